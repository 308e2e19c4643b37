# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Transformers and multi-head attention, without PyTorch
#
# This notebook walks through Phillip Lippe's tutorial *Transformers and Multi-Head Attention* (University of Amsterdam, Deep Learning course) with
# `transformer_c`. The numbers in square brackets are the cells of the original. Everything runs on a CPU in a few minutes; every part
# is first written by hand, then compared with the library's. The numbers that the original prints, where they do not depend on its hardware or its
# image data, come out the same; the last cell checks all of them.
#
# Two tasks are trained: reversing a sequence of digits, and finding the one image in a set that differs from the rest.

# %% [markdown]
# ## [2] Setup
#
# One import instead of four. `TRANSFORMER_C_FAST=1` in the environment makes the trainings short.

# %%
import math
import os
import tempfile
import time

import numpy as np
import transformer_c as tc
from transformer_c.tutorials.uva_features import stand_in_features

FAST = os.environ.get("TRANSFORMER_C_FAST") == "1"
tc.manual_seed(42)
print("Device:", tc.zeros(1).device)


def difference(a, b):
    """The largest absolute difference of two arrays or Tensors."""
    return float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max())


def compare(name, hand, library, x):
    """Prints how far two functions of x are apart, and the shortest of their calls, in turns: what else the machine does lengthens calls."""
    shortest = {hand: math.inf, library: math.inf}
    for _ in range(50):
        for function in shortest:
            started = time.perf_counter()
            function(x)
            shortest[function] = min(shortest[function], 1e6 * (time.perf_counter() - started))
    print(
        f"{name}: differ by {difference(hand(x), library(x)):.0e}; by hand {shortest[hand]:.0f} us, by the library {shortest[library]:.0f} us"
    )


# %% [markdown]
# ## [3] Trained models
#
# The original downloads two checkpoints. Here both models are trained in seconds instead. If you have the file `ReverseTask.ckpt`:
# `ReversePredictor.load_from_checkpoint("ReverseTask.ckpt")` reads it, Lightning's pickles included, without PyTorch and without executing anything in
# the file.

# %%
CHECKPOINTS = tempfile.mkdtemp()

# %% [markdown]
# ## [4] Scaled dot product attention
#
# Each query is compared with all keys, and gets the average of the values, weighted by a softmax over the scores:
#
# $$\text{attention} = \text{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right), \qquad \text{values} = \text{attention} \cdot V$$
#
# The division keeps the variance of the scores at 1 whatever the head size $d_k$ is; without it the softmax would soon pick a single key, and its gradient
# would vanish. Where a mask is 0 the score becomes $-9 \cdot 10^{15}$. The library's function does the same in one pass. Both
# write the whole map here; layers that are not asked for their map, further down, do not write it.


# %%
def attention_by_hand(q, k, v, mask=None):
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -9e15)
    weights = tc.F.softmax(scores, axis=-1)
    return weights @ v, weights


x = tc.randn(8, 4, 64, 16)
mask = tc.tril(tc.ones(64, 64))
compare("attention", lambda x: attention_by_hand(x, x, x, mask)[0], lambda x: tc.scaled_dot_product(x, x, x, mask)[0], x)

# %% [markdown]
# A query that may not attend to any key gets the same small score everywhere, and so attends to all keys equally: a uniform row, not NaN.

# %%
_, uniform = tc.scaled_dot_product(x, x, x, tc.zeros(64, 64))
print(uniform[0, 0, 0, :4], "1 / 64 =", 1 / 64)

# %% [markdown]
# ## [5] A first example
#
# The random numbers are those of PyTorch's CPU generator, so seed 42 gives the digits that the original prints.

# %%
seq_len, d_k = 3, 2
tc.manual_seed(42)
q, k, v = tc.randn(seq_len, d_k), tc.randn(seq_len, d_k), tc.randn(seq_len, d_k)
values, attention = tc.scaled_dot_product(q, k, v)
found = {"Q": q, "K": k, "V": v, "Values": values, "Attention": attention}
for name, t in found.items():
    print(f"{name}\n{t}")

# %% [markdown]
# ## [6] Multi-head attention
#
# One weighted average can follow one aspect of a sequence. Several heads, each with its own queries, keys and values, follow several; an output layer
# combines their results. One linear layer computes all projections at once. Its output contains `[q | k | v]` of each head, head after head.
#
# Initial weights are Xavier's, biases zero.


# %%
class MultiheadAttention(tc.nn.Module):
    def __init__(self, input_dim, embed_dim, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.qkv_proj = tc.nn.Linear(input_dim, 3 * embed_dim)
        self.o_proj = tc.nn.Linear(embed_dim, embed_dim)
        for layer in (self.qkv_proj, self.o_proj):
            tc.nn.init.xavier_uniform_(layer.weight)
            tc.nn.init.zeros_(layer.bias)

    def forward(self, x, mask=None, return_attention=False):
        batch, length, _ = x.shape
        heads = self.qkv_proj(x).reshape(batch, length, self.num_heads, 3 * self.head_dim).permute(0, 2, 1, 3)
        q, k, v = heads.chunk(3, dim=-1)  # (batch, head, position, head size)
        values, weights = attention_by_hand(q, k, v, mask)
        output = self.o_proj(values.permute(0, 2, 1, 3).reshape(batch, length, -1))
        return (output, weights) if return_attention else output


tc.manual_seed(1)
by_hand = MultiheadAttention(input_dim=64, embed_dim=64, num_heads=4)
tc.manual_seed(1)
attention_layer = tc.MultiheadAttention(input_dim=64, embed_dim=64, num_heads=4)
same_weights = all((a == b).all() for a, b in zip(by_hand.parameters(), attention_layer.parameters(), strict=True))
print("the same initial weights from the same seed:", bool(same_weights))
x = np.random.default_rng(0).standard_normal((32, 48, 64)).astype(np.float32)
compare("multi-head attention", by_hand, attention_layer, x)

# %% [markdown]
# An ndarray in gives an ndarray out; nothing is recorded for gradients. Without positions, attention does not see an order: permute the inputs, and the
# outputs are permuted the same way. A number of heads that does not divide the features is refused.

# %%
output, maps = attention_layer(x, return_attention=True)
order = np.random.default_rng(1).permutation(48)
permuted = attention_layer(x[:, order])
print("output", output.shape, " maps", maps.shape, f" permuted inputs: outputs differ by {difference(permuted, output[:, order]):.0e}")
try:
    tc.MultiheadAttention(input_dim=16, embed_dim=16, num_heads=3)
except ValueError as error:
    print("3 heads for 16 features:", error)

# %% [markdown]
# ## [7] Encoder block
#
# Attention, then a small network for each position on its own. Around both: a residual connection, through which gradients reach the lower layers and the
# inputs are preserved, and layer normalisation, which does not depend on the batch.


# %%
class EncoderBlock(tc.nn.Module):
    def __init__(self, input_dim, num_heads, dim_feedforward, dropout=0.0):
        super().__init__()
        self.self_attn = MultiheadAttention(input_dim, input_dim, num_heads)
        self.linear_net = tc.nn.Sequential(
            tc.nn.Linear(input_dim, dim_feedforward), tc.nn.Dropout(dropout), tc.nn.ReLU(), tc.nn.Linear(dim_feedforward, input_dim)
        )
        self.norm1, self.norm2 = tc.nn.LayerNorm(input_dim), tc.nn.LayerNorm(input_dim)
        self.dropout = tc.nn.Dropout(dropout)

    def forward(self, x, mask=None):
        x = self.norm1(x + self.dropout(self.self_attn(x, mask=mask)))
        return self.norm2(x + self.dropout(self.linear_net(x)))


by_hand = EncoderBlock(input_dim=64, num_heads=4, dim_feedforward=128)
block = tc.EncoderBlock(input_dim=64, num_heads=4, dim_feedforward=128)
print(block)
print(block.load_state_dict(by_hand.state_dict()))
compare("block", by_hand, block, x)

# %% [markdown]
# ## [8] Encoder
#
# Blocks on top of each other. To look inside, each block's attention is asked for its map, before the block passes its result on.


# %%
class TransformerEncoder(tc.nn.Module):
    def __init__(self, num_layers, **block_args):
        super().__init__()
        self.layers = tc.nn.ModuleList([EncoderBlock(**block_args) for _ in range(num_layers)])

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = layer(x, mask=mask)
        return x

    def get_attention_maps(self, x, mask=None):
        maps = []
        for layer in self.layers:
            maps.append(layer.self_attn(x, mask=mask, return_attention=True)[1])
            x = layer(x)
        return maps


encoder_by_hand = TransformerEncoder(num_layers=3, input_dim=64, num_heads=4, dim_feedforward=128)
encoder = tc.TransformerEncoder(num_layers=3, input_dim=64, num_heads=4, dim_feedforward=128)
encoder.load_state_dict(encoder_by_hand.state_dict())
compare("encoder", encoder_by_hand, encoder, x)

# %% [markdown]
# `get_attention_maps` gives the map of every layer. One quirk of the original is kept by default: while it collects maps,
# layers pass on their results computed *without* the mask. `propagate_mask=True` uses the mask.

# %%
maps = encoder.get_attention_maps(x)
print(len(maps), "maps of shape", maps[0].shape)
mask = np.tril(np.ones((48, 48), np.float32))
hand_maps = encoder_by_hand.get_attention_maps(tc.tensor(x), tc.tensor(mask))
quirk, right = encoder.get_attention_maps(x, mask), encoder.get_attention_maps(x, mask, propagate_mask=True)
print("largest difference of the last layer's maps:", np.abs(quirk[-1] - right[-1]).max().round(4))
print(f"by hand and by the library: {difference(hand_maps[-1].detach(), quirk[-1]):.0e}")

# %% [markdown]
# ## [9] Positions
#
# To make order matter, each position adds its own pattern to the features: sines in the even, cosines in the odd dimensions, with wavelengths from
# $2 \pi$ to $10000 \cdot 2 \pi$.
#
# $$PE_{pos, 2i} = \sin\left(pos / 10000^{2i / d}\right), \qquad PE_{pos, 2i + 1} = \cos\left(pos / 10000^{2i / d}\right)$$


# %%
class PositionalEncoding(tc.nn.Module):
    def __init__(self, d_model, max_len=5000):
        super().__init__()
        position = tc.arange(max_len).float().unsqueeze(1)
        frequency = tc.exp(tc.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
        pe = tc.zeros(max_len, d_model)
        pe[:, 0::2] = tc.sin(position * frequency)
        pe[:, 1::2] = tc.cos(position * frequency)
        self.register_buffer("pe", pe.unsqueeze(0), persistent=False)

    def forward(self, x):
        return x + self.pe[:, : x.size(1)]


by_hand, encoding = PositionalEncoding(d_model=48, max_len=96), tc.PositionalEncoding(d_model=48, max_len=96)
print(f"the tables differ by {difference(by_hand.pe, encoding.pe):.0e}")

# %% [markdown]
# [10] Positions to the right, features downwards: fast waves at the top, slow ones below.

# %%
tc.plot.positional_encoding(encoding)

# %% [markdown]
# [11] The first four features one by one. 1 and 2 differ only in phase; 3 and 4 have a longer wavelength.

# %%
tc.plot.positional_encoding(encoding, dimensions=[1, 2, 3, 4], positions=16)

# %% [markdown]
# ## [12] [13] A learning rate that warms up
#
# At first the learning rate rises from 0, so that Adam's early and noisy estimates do no harm; afterwards it falls along half a cosine. The very first step has
# a learning rate of 0.


# %%
class CosineWarmupScheduler(tc.optim.lr_scheduler.LRScheduler):
    def __init__(self, optimizer, warmup, max_iters):
        self.warmup, self.max_iters = warmup, max_iters
        super().__init__(optimizer)

    def get_lr(self):
        return [rate * self.get_lr_factor(self.last_epoch) for rate in self.base_lrs]

    def get_lr_factor(self, step):
        return min(1.0, step / self.warmup) * 0.5 * (1 + math.cos(math.pi * step / self.max_iters))


def made_by(schedule):
    optimizer = tc.optim.Adam([tc.nn.Parameter(tc.empty(4, 4))], lr=1e-3)
    return schedule(optimizer, warmup=100, max_iters=2000)


by_hand, schedule = made_by(CosineWarmupScheduler), made_by(tc.CosineWarmupScheduler)
factors = {step: schedule.get_lr_factor(step) for step in (0, 50, 100, 101, 1000, 2000)}
print({step: round(factor, 7) for step, factor in factors.items()})
print(f"the factors differ by {max(abs(by_hand.get_lr_factor(s) - schedule.get_lr_factor(s)) for s in range(2000)):.0e}")
tc.plot.learning_rate(schedule)

# %% [markdown]
# ## [14] A model that trains itself
#
# `tc.TransformerPredictor` puts an input layer, positions, encoder and an output network together, keeps its hyper-parameters, and makes Adam with the schedule
# above, stepped every batch. Subclasses decide what a batch means.

# %%
predictor = tc.TransformerPredictor(
    input_dim=10, model_dim=32, num_classes=10, num_heads=1, num_layers=1, lr=5e-4, warmup=50, max_iters=3900
)
count = sum(p.numel() for p in predictor.parameters())
print(f"{count:,} parameters; learning rate {predictor.hparams.lr}")

# %% [markdown]
# ## [15] [16] The Reverse task
#
# Sequences of 16 digits; the label is the reversed sequence. Every position has to find the one opposite to it, which takes long-range attention and
# nothing else. The data are drawn with the generator as cell 5 left it, as in the original.

# %%
tc.manual_seed(42)
for _ in range(3):
    tc.randn(3, 2)  # Q, K and V of cell 5
train_set, val_set, test_set = (tc.datasets.ReverseDataset(10, 16, size) for size in (50_000, 1_000, 10_000))
train_loader = tc.data.DataLoader(train_set, batch_size=128, shuffle=True, drop_last=True)
val_loader, test_loader = (tc.data.DataLoader(d, batch_size=128) for d in (val_set, test_set))
print(len(train_loader), "batches")

# %% [markdown]
# [17] The first sample is the original's.

# %%
first_inputs, first_labels = train_loader.dataset[0]
print("Input data:", first_inputs.tolist())
print("Labels:    ", first_labels.tolist())


# %% [markdown]
# ## [18] What a batch means
#
# Digits become one-hot vectors; the loss is the cross-entropy at every position. This is the original's class with other imports.


# %%
class ReversePredictor(tc.TransformerPredictor):
    def loss_of(self, batch, mode):
        inputs, labels = batch
        one_hot = tc.F.one_hot(inputs, num_classes=self.hparams.num_classes).float()
        logits = self(one_hot)
        loss = tc.F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))
        self.log(f"{mode}_loss", loss)
        self.log(f"{mode}_acc", (logits.argmax(dim=-1) == labels).float().mean())
        return loss

    def training_step(self, batch, batch_idx):
        return self.loss_of(batch, "train")

    def validation_step(self, batch, batch_idx):
        self.loss_of(batch, "val")

    def test_step(self, batch, batch_idx):
        self.loss_of(batch, "test")


# %% [markdown]
# ## [19] [20] Training
#
# `tc.Trainer` runs the epochs, clips the gradients' norm at 5, validates, and keeps the best and the last checkpoint.

# %%
epochs = 4 if FAST else 10
reverse_model = ReversePredictor(
    input_dim=10,
    model_dim=32,
    num_heads=1,
    num_classes=10,
    num_layers=1,
    dropout=0.0,
    lr=5e-4,
    warmup=50,
    max_iters=epochs * len(train_loader),
)
trainer = tc.Trainer(
    max_epochs=epochs, gradient_clip_val=5, monitor="val_acc", mode="max", checkpoint_dir=f"{CHECKPOINTS}/ReverseTask", progress=False
)
trainer.fit(reverse_model, train_loader, val_loader)
tc.plot.losses(trainer.history, log=True, title="Reverse task")

# %% [markdown]
# ## [21] Accuracy
#
# The original prints 100.00 % twice.

# %%
val_acc, test_acc = (trainer.test(reverse_model, loader, verbose=False)[0]["test_acc"] for loader in (val_loader, test_loader))
print(f"Val accuracy:  {100 * val_acc:4.2f}%")
print(f"Test accuracy: {100 * test_acc:4.2f}%")

# %% [markdown]
# ## [22] [23] Attention of the trained model
#
# A list with a map for each layer, of shape (batch, heads, positions, positions).

# %%
data_input, labels = next(iter(val_loader))
reverse_maps = reverse_model.get_attention_maps(tc.F.one_hot(data_input, num_classes=10).float())
print(reverse_maps[0].shape)

# %% [markdown]
# [24] [25] Every query attends to the key opposite to it. Its neighbours get some attention too, because neighbouring positions have similar encodings; this
# does not hurt the task.

# %%
tc.plot.attention_maps(reverse_maps, data_input, idx=0)

# %% [markdown]
# ## [26] [27] [28] [29] Set Anomaly: the data
#
# Nine images of one class and one of another: which one is it? A set has no order, so there are no positional encodings here, and the answer must not depend on
# the order of the set.
#
# The original computes features of CIFAR100 with a ResNet34 trained on ImageNet: files that this notebook cannot rely on. It uses scikit-learn's 8 x 8
# digits instead, passed through one layer of random weights with a ReLU: also 512 features, also never trained. If you have your own features, put them into the dictionary
# below.

# %%
arrays = stand_in_features()
print("Train:", arrays["train_features"].shape)
print("Test: ", arrays["test_features"].shape)

# %% [markdown]
# ## [30] A validation set with all classes
#
# A tenth of each class. Sorting by label puts each class into its own row.

# %%
labels = arrays["train_labels"]
by_class = np.argsort(labels, kind="stable").reshape(labels.max() + 1, -1)
tenth = by_class.shape[1] // 10
val_indices, train_indices = by_class[:, :tenth].ravel(), by_class[:, tenth:].ravel()
print("per class:", tenth, "images to validate,", by_class.shape[1] - tenth, "to train")

# %% [markdown]
# ## [31] [32] Sets
#
# Each image is the anomaly once per epoch. Training sets are drawn again every time; validation and test sets are drawn once, from a fixed seed. A sample is the
# features of a set, the numbers of its images, and the place of the anomaly: for simplicity always the last.

# %%
SET_SIZE = 10
parts = {
    "train": (arrays["train_features"][train_indices], labels[train_indices], True),
    "val": (arrays["train_features"][val_indices], labels[val_indices], False),
    "test": (arrays["test_features"], arrays["test_labels"], False),
}
sets = {name: tc.datasets.SetAnomalyDataset(f, y, set_size=SET_SIZE, train=t) for name, (f, y, t) in parts.items()}
train_anom_loader = tc.data.DataLoader(sets["train"], batch_size=64, shuffle=True, drop_last=True)
val_anom_loader, test_anom_loader = (tc.data.DataLoader(sets[name], batch_size=64) for name in ("val", "test"))
features, indices, label = sets["test"][0]
print(features.shape, indices.tolist(), label)

# %% [markdown]
# [33] Four sets; the anomaly has a green frame.

# %%
test_images = arrays["test_images"]
tc.plot.image_sets(test_images[sets["test"].test_sets[[0, 100, 200, 299]]], labels=[9, 9, 9, 9], title="Anomaly examples")


# %% [markdown]
# ## [34] One logit for each image
#
# The softmax runs over the images of a set rather than over classes. Swap two images, and their probabilities are swapped with them.


# %%
class AnomalyPredictor(tc.TransformerPredictor):
    def loss_of(self, batch, mode):
        img_sets, _, labels = batch
        logits = self(img_sets, add_positional_encoding=False).squeeze(dim=-1)  # (batch, set size)
        loss = tc.F.cross_entropy(logits, labels)
        self.log(f"{mode}_loss", loss)
        self.log(f"{mode}_acc", (logits.argmax(dim=-1) == labels).float().mean())
        return loss

    def training_step(self, batch, batch_idx):
        return self.loss_of(batch, "train")

    def validation_step(self, batch, batch_idx):
        self.loss_of(batch, "val")

    def test_step(self, batch, batch_idx):
        self.loss_of(batch, "test")


# %% [markdown]
# ## [35] [36] Training
#
# The original's hyper-parameters: 4 layers with 4 heads, 256 features, dropout 0.1 inside and on the inputs, 100 epochs (of 20
# batches: there are fewer images than in CIFAR100).
# The weights of the best epoch are loaded at the end.

# %%
epochs = 8 if FAST else 100
anomaly_model = AnomalyPredictor(
    input_dim=512, model_dim=256, num_heads=4, num_classes=1, num_layers=4, dropout=0.1, input_dropout=0.1, lr=5e-4, warmup=100,
    max_iters=epochs * len(train_anom_loader),
)  # fmt: skip
print(f"{sum(p.numel() for p in anomaly_model.parameters()):,} parameters")
trainer = tc.Trainer(
    max_epochs=epochs, gradient_clip_val=2, monitor="val_acc", mode="max", checkpoint_dir=f"{CHECKPOINTS}/SetAnomalyTask", progress=False
)
trainer.fit(anomaly_model, train_anom_loader, val_anom_loader)
anomaly_model = AnomalyPredictor.load_from_checkpoint(trainer.best_model_path)
tc.plot.losses(trainer.history, log=True, title="Set Anomaly task")

# %% [markdown]
# ## [37] Accuracy
#
# The original has 96.45, 95.94 and 94.42 % on CIFAR100. Other images, other numbers; guessing would give 10 %.

# %%
accuracy = {
    name: trainer.test(anomaly_model, loader, verbose=False)[0]["test_acc"]
    for name, loader in (("Train", train_anom_loader), ("Val", val_anom_loader), ("Test", test_anom_loader))
}
for name, value in accuracy.items():
    print(f"{name} accuracy: {100 * value:4.2f}%")

# %% [markdown]
# ## [38] The order of a set does not matter
#
# Predictions of the permuted sets are the permuted predictions, to less than $10^{-5}$.


# %%
def probabilities(features):
    with tc.no_grad():
        return tc.F.softmax(anomaly_model(features, add_positional_encoding=False).squeeze(dim=-1), axis=-1).numpy()


inp_data, indices, _ = next(iter(test_anom_loader))
preds = probabilities(inp_data)
permut = np.random.default_rng(42).permutation(SET_SIZE)
perm_preds = probabilities(inp_data[:, permut])
print(f"differ by {difference(preds[:, permut], perm_preds):.0e}")
print("Preds\n", preds[0, permut])
print("Permuted preds\n", perm_preds[0])

# %% [markdown]
# ## [39] [40] What the model attends to
#
# Maps of four layers with four heads each. In some heads every image attends to the odd one out; the row of pictures shows the probability of each image.
# Each map has its own colours, from 0 to the largest weight, which its title names: some heads choose one image, others look at all.

# %%
attention_maps = anomaly_model.get_attention_maps(inp_data, add_positional_encoding=False)
predictions = preds.argmax(-1)
print("Prediction:", predictions[0])
tc.plot.image_sets(test_images[indices.numpy()[0]], 9, predictions[0], preds[0])

# %%
tc.plot.attention_maps(attention_maps, idx=0, scale="panel")

# %% [markdown]
# ## [41] [42] A mistake
#
# The anomaly is always the last image; where the model picks another one, it is wrong. The last mistake of the batch (or, if there is none, the set it was least sure of):

# %%
mistakes = np.flatnonzero(predictions != 9)
print("Indices with mistake:", mistakes)
shown = int(mistakes[-1]) if len(mistakes) else int(preds[:, 9].argmin())
print("Prediction:", predictions[shown])
for i, p in enumerate(preds[shown]):
    print(f"Image {i}: {100 * p:4.2f}%")
tc.plot.image_sets(test_images[indices.numpy()[shown]], 9, predictions[shown], preds[shown])

# %%
tc.plot.attention_maps(attention_maps, idx=shown, scale="panel")

# %% [markdown]
# ## In short
#
# Attention is a weighted average whose weights come from the data. By itself it knows no order, which suits a set; sequences need positions. A
# learning rate that warms up, clipped gradients and layer normalisation make it train. One command runs all of this: `python -m transformer_c tutorial`.
