"""Attention of a model that reverses

A model with one encoder block learns in a few seconds to turn sequences around: each position attends to the one opposite to it.
"""

import transformer_c as tc

model = tc.TransformerPredictor(input_dim=8, model_dim=32, num_classes=8, num_heads=1, num_layers=1, lr=2e-3, warmup=20, max_iters=1000)
optimizer = tc.optim.Adam(model.parameters(), lr=2e-3)
for _ in range(400):
    digits = tc.randint(8, (64, 10))
    loss = tc.F.cross_entropy(model(tc.F.one_hot(digits, 8).float()).view(-1, 8), digits.flip(1).reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

maps = model.get_attention_maps(tc.F.one_hot(digits, 8).float())
figure = tc.plot.attention_maps(maps, digits, title=f"After 400 steps, loss {loss.item():.3f}")
