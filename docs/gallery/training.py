"""A training

Losses and accuracies of digits, classified by the sequence of their rows.
"""

import numpy as np
import transformer_c as tc

(images, labels), (test_images, test_labels) = tc.datasets.digits(side=8)
images, test_images = (a.reshape(-1, 8, 8).astype(np.float32) / a.max() for a in (images, test_images))
model = tc.nn.Sequential(tc.nn.Linear(8, 32), tc.PositionalEncoding(32), tc.EncoderBlock(32, 4, 64), tc.nn.Flatten(), tc.nn.Linear(256, 10))
optimizer = tc.optim.Adam(model.parameters(), lr=2e-3)
history = {"train_loss": [], "test_loss": [], "test_acc": []}
for _ in range(8):
    losses = []
    for x, y in tc.data.DataLoader(tc.data.TensorDataset(images, labels), 64, shuffle=True):
        loss = tc.F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    scores = model(test_images)
    history["train_loss"].append(np.mean(losses))
    history["test_loss"].append(float(tc.F.cross_entropy(scores, test_labels)))
    history["test_acc"].append(float((scores.argmax(1) == test_labels).mean()))
figure = tc.plot.losses(history, log=True)
