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
# # Encoder and decoder: the other half of a square
#
# A companion to the chapter *Transform and Roll Out* of Daniel Voigt Godoy's *Deep Learning with PyTorch Step-by-Step*, with `transformer_c` instead of
# PyTorch. Given two corners of a square, a Transformer predicts the other two.
#
# Tags such as [D1] are the rows of `docs/documents.md`, one for each cell of the chapter. Numbers that the chapter's code determines are the same here. Those
# that it printed from a GPU's random numbers are compared with those of a CPU.

# %% [markdown]
# ## [D-ext] Setup
#
# The chapter relies on helper files and on classes of earlier chapters: positions, a training loop, two plot functions. `transformer_c.tutorials.godoy` has
# them all. `TRANSFORMER_C_FAST=1` in the environment trains fewer seeds.

# %%
import os

import numpy as np
import transformer_c as tc
from transformer_c.tutorials.godoy import (
    DecoderLayer,
    DecoderTransf,
    EncoderDecoderSelfAttn,
    EncoderDecoderTransf,
    EncoderLayer,
    EncoderTransf,
    MultiHeadedAttention,
    PositionalEncoding,
    StepByStep,
    TransformerModel,
    generate_sequences,
    own_model,
    plot_data,
    sequence_pred,
    torch_style_model,
    xavier,
)

nn = tc.nn
FAST = os.environ.get("TRANSFORMER_C_FAST") == "1"


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def largest_difference(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


# %% [markdown]
# This library has two kinds of positions. `tc.PositionalEncoding(d_model, max_len)` adds sines and cosines; the chapter's class takes its arguments in the
# opposite order, multiplies its input by $\sqrt{d}$ first, and keeps its table in the state dict.

# %%
tc.manual_seed(0)
positions, x = PositionalEncoding(max_len=100, d_model=6), tc.randn(2, 5, 6)
by_hand = np.asarray(x) * 6**0.5 + np.asarray(positions.pe)[:, :5]
print("table", positions.pe.shape, f" written out, the result differs by {largest_difference(positions(x), by_hand):.0e}")
tc.plot.positional_encoding(positions, dimensions=range(1, 7), positions=16)

# %% [markdown]
# ## [D1] Narrow attention
#
# Each of $h$ heads attends to $d/h$ of the projected features: narrow, because the heads share the features. Keys and values are made in one step and used in
# another: `init_keys` projects and keeps them, a call passes the queries. This helps a decoder: the states of the encoder are projected once and used often.
#
# $$\text{alphas} = \text{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right), \qquad \text{context} = \text{dropout}(\text{alphas}) \cdot V$$
#
# Three things differ from the attention of the other documents. Where the mask is 0 the score is $-10^9$; the kept `alphas` are those *after* dropout, so that in
# train mode their rows do not add up to 1; and nothing checks that the number of heads divides the number of features.

# %%
mha = MultiHeadedAttention(n_heads=3, d_model=6, dropout=0.5)
mha.init_keys(x)
mha(x)
sums = mha.alphas.numpy().sum(-1)
print("row sums of alphas in train mode:", sums[0, 0].round(3))

# %% [markdown]
# In eval mode, written out: project, split into heads, weigh, concatenate the heads, project again.

# %%
mha.eval()
causal = EncoderDecoderSelfAttn.subsequent_mask(5)
mha.init_keys(x)
output = mha(x, mask=causal)


def heads(y):
    return np.asarray(y).reshape(2, 5, 3, 2).transpose(0, 2, 1, 3)  # (N, heads, L, d_k)


with tc.no_grad():
    q, k, v = heads(mha.linear_query(x)), heads(mha.linear_key(x)), heads(mha.linear_value(x))
    scores = np.where(np.asarray(causal) == 0, -1e9, q @ k.swapaxes(-2, -1) / 2**0.5)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    by_hand = mha.linear_out(tc.tensor((weights @ v).transpose(0, 2, 1, 3).reshape(2, 5, 6), dtype="float32"))
print(
    f"by hand and by the layer: outputs differ by {largest_difference(by_hand, output.detach()):.0e}, weights by {largest_difference(weights, mha.alphas):.0e}"
)
tc.plot.attention_maps(mha.alphas, idx=0, title="Three narrow heads, untrained; later steps are masked")

# %% [markdown]
# [D2] The chapter's own example: sixteen sequences of two points with four features.

# %%
dummy_points = tc.randn(16, 2, 4)  # N, L, F
mha = MultiHeadedAttention(n_heads=2, d_model=4, dropout=0.0)
mha.init_keys(dummy_points)
out = mha(dummy_points)  # N, L, D
print(out.shape)

# %% [markdown]
# ## Sub-layers and how they are wrapped
#
# A layer is a stack of sub-layers: attention, then a small network. Each one is wrapped in a residual connection with dropout and layer normalisation, in
# one of two orders.
#
# $$\text{norm-last:}\quad y = \text{norm}(x + \text{dropout}(f(x))) \qquad\qquad \text{norm-first:}\quad y = x + \text{dropout}(f(\text{norm}(x)))$$
#
# Norm-last is the original paper's. In norm-first nothing interrupts the residual path, so gradients reach the lowest layer unchanged; in return, the sums
# grow with every layer, and one more norm is needed at the very end. This chapter's layers are norm-first.
#
# ## [D3] Encoder layer

# %%
layer = EncoderLayer(n_heads=3, d_model=6, ff_units=10, dropout=0.0)
print(layer)
with tc.no_grad():
    normed = layer.norm1(x)
    layer.self_attn_heads.init_keys(normed)
    att = x + layer.self_attn_heads(normed)
    by_hand = att + layer.ffn(layer.norm2(att))
    output = layer(x)
print(f"written out, the result differs by {largest_difference(output, by_hand):.0e}")

# %% [markdown]
# ## [D4] Encoder
#
# Positions, copies of the layer, the last norm. The layer that is passed in is only a pattern: each copy has its own weights, which start out equal. (That is why
# the chapter draws all matrices again before it trains.)

# %%
encoder = EncoderTransf(layer, n_layers=2)
first, second = (dict(part.named_parameters())["ffn.0.weight"] for part in encoder.layers)
with tc.no_grad():
    y = encoder.pe(x)
    for part in encoder.layers:
        y = part(y)
    output, by_hand = encoder(x), encoder.norm(y)
print(f"first weights of the two copies: {largest_difference(first.detach(), second.detach())} apart")
print(f"layer by layer, the result is {largest_difference(output, by_hand)} apart")

# %% [markdown]
# [D5] PyTorch's own pair of classes exists as well, `nn.TransformerEncoderLayer` and `nn.TransformerEncoder`. The chapter passes the *class* `nn.LayerNorm`
# where a module is expected. The mistake shows only when the encoder is called: PyTorch then complains of an argument of `LayerNorm`, here the message says what is wrong.

# %%
enclayer = nn.TransformerEncoderLayer(d_model=6, nhead=3, dim_feedforward=20)
enctransf = nn.TransformerEncoder(enclayer, num_layers=1, norm=nn.LayerNorm)
try:
    enctransf(tc.randn(2, 16, 6))
except TypeError as error:
    print(error)
output = nn.TransformerEncoder(enclayer, num_layers=1, norm=nn.LayerNorm(6))(tc.randn(2, 16, 6))
print("with a module:", output.shape)

# %% [markdown]
# ## [D6] Decoder layer
#
# Three sub-layers. Masked self-attention over what has been written so far; cross-attention, whose queries come from the decoder and whose keys and values come from
# the encoder; the network. `init_keys` of the layer feeds cross-attention alone, because self-attention gets new keys in every call.

# %%
layer = DecoderLayer(n_heads=3, d_model=6, ff_units=10, dropout=0.0)
states, target = tc.randn(2, 4, 6), tc.randn(2, 2, 6)
mask = EncoderDecoderSelfAttn.subsequent_mask(2)
layer.init_keys(states)
with tc.no_grad():
    output = layer(target, target_mask=mask)
    normed = layer.norm1(target)
    layer.self_attn_heads.init_keys(normed)
    att1 = target + layer.self_attn_heads(normed, mask)
    att2 = att1 + layer.cross_attn_heads(layer.norm2(att1))
    by_hand = att2 + layer.ffn(layer.norm3(att2))
print(f"written out, the result differs by {largest_difference(output, by_hand):.0e}")
print("self-attention", layer.self_attn_heads.alphas.shape, " cross-attention", layer.cross_attn_heads.alphas.shape)

# %% [markdown]
# ## [D7] [D8] Decoder
#
# Like the encoder, with the same mistake in the PyTorch pair.

# %%
decoder = DecoderTransf(DecoderLayer(n_heads=3, d_model=6, ff_units=10), n_layers=2)
decoder.init_keys(states)
output = decoder(target, target_mask=mask)
print(output.shape)
declayer = nn.TransformerDecoderLayer(d_model=6, nhead=3, dim_feedforward=20)
dectransf = nn.TransformerDecoder(declayer, num_layers=1, norm=nn.LayerNorm)
try:
    dectransf(tc.randn(2, 16, 6), tc.randn(2, 16, 6))
except TypeError as error:
    print(error)

# %% [markdown]
# ## [D9] Train mode teaches, eval mode predicts
#
# The decoder turns points 2 and 3 into points 3 and 4: its input is the target, one step late. In train mode that input is the truth, whatever the model would have
# predicted (*teacher forcing*), all steps are computed at once, and a triangular mask hides later points from each step. In eval mode there is no truth: the decoder
# starts with the last given point and is called again with every point that it has added.

# %%
print(EncoderDecoderSelfAttn.subsequent_mask(4))

# %% [markdown]
# [D10] The whole Transformer adds a projection from the two coordinates to the width of the model, used for source and target, and one back.

# %%
tc.manual_seed(0)
model = EncoderDecoderTransf(
    EncoderTransf(EncoderLayer(3, 6, 10, dropout=0.0), n_layers=2),
    DecoderTransf(DecoderLayer(3, 6, 10, dropout=0.0), n_layers=2),
    input_len=2,
    target_len=2,
    n_features=2,
)
square = tc.randn(1, 4, 2)
with tc.no_grad():
    taught, alone = model.train()(square), model.eval()(square)
    step_1 = model.decode(square[:, 1:2], target_mask=model.trg_masks[:, :1, :1])
    step_2 = model.decode(tc.cat([square[:, 1:2], step_1], dim=1), target_mask=model.trg_masks)
for step in range(2):
    print(f"point {step + 3}: the modes differ by {largest_difference(taught[:, step], alone[:, step]):.1e}")

# %% [markdown]
# ## [D11] Data
#
# A square has its corners near $(\pm 1, \pm 1)$, moved by noise of 0.1, and is walked from any corner in either direction. The numbers are NumPy's for these seeds, to
# the last bit. One mistake is kept, because the chapter's curves depend on it: `full_test` is made of `points`, the training points, rather than of `test_points`. What is
# called validation below is therefore the training data, seen without dropout.

# %%
points, directions = generate_sequences()
full_train = tc.as_tensor(np.stack(points)).float()
target_train = full_train[:, 2:]

test_points, test_directions = generate_sequences(seed=17)
full_test = tc.as_tensor(np.stack(points)).float()  # not test_points
source_test = full_test[:, :2]
target_test = full_test[:, 2:]

train_data = tc.data.TensorDataset(full_train, target_train)
test_data = tc.data.TensorDataset(source_test, target_test)
generator = tc.Generator()
train_loader = tc.data.DataLoader(train_data, batch_size=16, shuffle=True, generator=generator)
test_loader = tc.data.DataLoader(test_data, batch_size=16)

np.random.seed(13)  # as generate_sequences draws: the corners at which the walks begin
bases = np.random.randint(4, size=128)
corners = np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]])
print(f"{len(full_train)} squares, {len(train_loader)} batches; the first begins at the corner {corners[bases[0]]}")

# %% [markdown]
# [D12] The first five squares, corners numbered as they are visited. Points 1 and 2 are given; the places of 3 and 4 depend on the direction, which follows from the first two.

# %%
plot_data(points, directions, n_rows=1)

# %% [markdown]
# ## [D13] Model and training
#
# Two layers on either side, three heads, six features, ten hidden units: 1,728 numbers. Every parameter with more than one axis is drawn again by Xavier's rule.

# %%
EPOCHS = 50
tc.manual_seed(42)
enclayer = EncoderLayer(n_heads=3, d_model=6, ff_units=10, dropout=0.1)
declayer = DecoderLayer(n_heads=3, d_model=6, ff_units=10, dropout=0.1)
enctransf = EncoderTransf(enclayer, n_layers=2)
dectransf = DecoderTransf(declayer, n_layers=2)
model_transf = EncoderDecoderTransf(enctransf, dectransf, input_len=2, target_len=2, n_features=2)
loss = nn.MSELoss()
optimizer = tc.optim.Adam(model_transf.parameters(), lr=0.01)
for p in model_transf.parameters():
    if p.dim() > 1:
        nn.init.xavier_uniform_(p)
print(f"{parameters(model_transf):,} parameters")

# %% [markdown]
# `StepByStep` is the book's training loop. Before it begins it seeds again with 42, model and shuffling alike, so a second run repeats the first.

# %%
sbs_seq_transf = StepByStep(model_transf, loss, optimizer)
sbs_seq_transf.set_loaders(train_loader, test_loader)
sbs_seq_transf.train(EPOCHS)
sbs_seq_transf.plot_losses()

# %% [markdown]
# ## [D14] Why validation looks better
#
# One batch, the same weights, both modes. The chapter prints 0.0456 and 0.0101, from a GPU's random numbers, and speaks of three times as much. A CPU draws other
# dropout masks and other weights, so here the pair differs but the relation is the same. Only train mode uses dropout; that is the whole reason.

# %%
tc.manual_seed(11)
x, y = next(iter(train_loader))
model_transf.train()
train_loss = loss(model_transf(x), y).item()
model_transf.eval()
eval_loss = loss(model_transf(x), y).item()
print(f"train mode {train_loss:.4f}   eval mode {eval_loss:.4f}   ratio {train_loss / eval_loss:.1f}")

# %% [markdown]
# *Your turn*, says the chapter: without dropout the curves meet, and they are lower. Then only the weights and the order of the batches are random, and both are
# PyTorch's for seed 42. So are the losses: the numbers below were computed with PyTorch on a CPU.

# %%
tc.manual_seed(42)
plain = own_model(dropout=0.0)
sbs_plain = StepByStep(plain, loss, tc.optim.Adam(plain.parameters(), lr=0.01))
sbs_plain.set_loaders(train_loader, test_loader)
sbs_plain.train(EPOCHS)
pytorch = {1: (1.65056, 1.01563), 5: (0.66327, 0.65191), 10: (0.43050, 0.40995), 25: (0.01910, 0.01536), 50: (0.01055, 0.01060)}
print("epoch   training   validation   PyTorch")
for epoch, (training, validation) in pytorch.items():
    ours = sbs_plain.losses[epoch - 1], sbs_plain.val_losses[epoch - 1]
    print(f"{epoch:5}   {ours[0]:.5f}    {ours[1]:.5f}      {training:.5f} {validation:.5f}")
sbs_plain.plot_losses()

# %% [markdown]
# ## [D15] Predictions
#
# The model gets only the first two corners; its predictions are dashed, the true sides solid. The directions above the panels are those of
# `test_points`, as in the chapter, while the squares are the training ones: the two need not agree.

# %%
sequence_pred(sbs_seq_transf, full_test, test_directions)

# %% [markdown]
# The noise of the corners has a standard deviation of 0.1, and cannot be predicted: the best possible mean squared error on new squares is $0.1^2 = 0.01$.

# %%
ideal = np.stack([np.roll(corners, -b, axis=0)[:: 2 * d - 1] for b, d in zip(bases, directions, strict=True)])
floor = ((np.stack(points) - ideal)[:, 2:] ** 2).mean()
predicted = sbs_seq_transf.predict(full_test[:, :2])
error = ((predicted - target_test.numpy()) ** 2).mean()
print(f"mean squared error over all 128 squares: {error:.4f}; of the ideal corners: {floor:.4f}")
nearest = np.abs(predicted[:, :, None] - corners).sum(-1).argmin(-1)
true = np.abs(ideal[:, 2:, None] - corners).sum(-1).argmin(-1)
print(f"{100 * (nearest == true).mean():.1f} % of the corners are nearest to the right one")

# %% [markdown]
# What does it attend to? Cross-attention of the last decoder layer, in eval mode, for the first square: the queries are the steps of the decoder, the keys the two given
# points.

# %%
model_transf.eval()
model_transf(full_test[:1])
alphas = [part.cross_attn_heads.alphas for part in model_transf.decoder.layers]
tc.plot.attention_maps(alphas, ["point 1", "point 2"], query_data=["step 1", "step 2"], title="Cross-attention")

# %% [markdown]
# ## [D16] PyTorch's Transformer
#
# `nn.Transformer` has encoder, decoder and final norms; positions, projections and masks are left to the user, and `TransformerModel` provides them. The differences:
# sequences come first and batches second, hence the permutations; layers are norm-last; a boolean source mask means *ignore* where it is True; the target mask is added
# to the scores, 0 or $-\infty$. The chapter never passes `memory_key_padding_mask`: the decoder still sees what the source mask hides from the encoder.

# %%
tc.manual_seed(42)
transformer = nn.Transformer(d_model=6, nhead=3, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=20, dropout=0.1)
model_transformer = TransformerModel(transformer, input_len=2, target_len=2, n_features=2)
print(model_transformer.trg_masks)

hidden = np.array([[True, False]])  # the first point is to be ignored
changed = full_test[:1].numpy().copy()
changed[0, 0] += 1
model_transformer.eval()
difference = largest_difference(model_transformer(full_test[:1], hidden).detach(), model_transformer(changed, hidden))
print(f"an ignored point is moved, and the prediction moves by {difference:.3f}")

# %% [markdown]
# ## [D17] The same training
#
# One layer on either side with twenty hidden units: 1,164 parameters.

# %%
model_transformer.train()
optimizer = tc.optim.Adam(model_transformer.parameters(), lr=0.01)
xavier(model_transformer)
print(f"{parameters(model_transformer):,} parameters")
sbs_seq_transformer = StepByStep(model_transformer, loss, optimizer)
sbs_seq_transformer.set_loaders(train_loader, test_loader)
sbs_seq_transformer.train(EPOCHS)
sbs_seq_transformer.plot_losses()

# %% [markdown]
# [D18] Its predictions.

# %%
sequence_pred(sbs_seq_transformer, full_test, test_directions)

# %% [markdown]
# ## How good, in general
#
# One seed is not enough. Mean squared error over all points in eval mode after 50 epochs, seeds 42 to 49 (the first two in fast mode). PyTorch run the same way gives
# 0.0138 to 0.0295 with its own layers, median 0.018.

# %%
medians = {}
for name, make in {"own layers": own_model, "nn.Transformer": torch_style_model}.items():
    errors = []
    for seed in range(42, 44 if FAST else 50):
        tc.manual_seed(seed)
        candidate = make()
        sbs = StepByStep(candidate, loss, tc.optim.Adam(candidate.parameters(), lr=0.01))
        sbs.set_loaders(train_loader, test_loader)
        sbs.train(EPOCHS, seed=seed)
        errors.append(float(((sbs.predict(full_test[:, :2]) - target_test.numpy()) ** 2).mean()))
    medians[name] = float(np.median(errors))
    print(f"{name:15} median {medians[name]:.4f}, from {min(errors):.4f} to {max(errors):.4f}")
