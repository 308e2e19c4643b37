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
# # Notes on attention, checked
#
# A learner's notes of the UvA tutorial stop half-way through the encoder block. This notebook runs them with `transformer_c`: their one output is reproduced to
# all printed digits, the layers that they do not run are run, and the layer that they leave unfinished is finished. The numbers in square brackets are the cells of the
# notes.

# %% [markdown]
# ## [1] [4] Setup
#
# Seed and device. The notes run on a CPU, and so does this notebook. They download the tutorial's two checkpoints and never use them, so nothing is downloaded here;
# `tc.load_torch_checkpoint(path)` reads such files.

# %%
import numpy as np
import transformer_c as tc

tc.manual_seed(42)
print("Device:", tc.zeros(1).device)

# %% [markdown]
# ## What attention is
#
# Four parts: a **query** says what to look for, each element's **key** says what it offers, a **score function** says how well the two match, and the element's **value**
# is averaged. The weights are a softmax over the scores. In *self*-attention all three come from the same sequence.

# %% [markdown]
# ## [6] Scaled dot product
#
# The score is a dot product over $\sqrt{d_k}$. A sum of $d_k$ products of numbers with variance 1 has variance $d_k$; the root brings that back to 1:

# %%
variances = {}
for d_k in (4, 64, 1024):
    scores = (tc.randn(1000, d_k) * tc.randn(1000, d_k)).sum(axis=-1).numpy()
    variances[d_k] = (scores / d_k**0.5).var()
    print(f"d_k = {d_k:4}: variance of the scores {scores.var():8.1f}, after the division {variances[d_k]:.2f}")

# %% [markdown]
# The mask is 0 where a query may not attend; there the score becomes $-9 \cdot 10^{15}$ and the weight 0. Its shape need only broadcast to that of the scores.

# %%
q = k = v = tc.randn(2, 5, 4)
_, attention = tc.scaled_dot_product(q, k, v, mask=np.tril(np.ones((5, 5))))
print(attention[0])

# %% [markdown]
# ## [9] The example of the notes
#
# Uniform numbers this time. The cell had been run once before, so it prints draws 19 to 36 of seed 42.

# %%
seq_len, d_k = 3, 2
tc.manual_seed(42)
for _ in range(2):
    q, k, v = tc.rand(seq_len, d_k), tc.rand(seq_len, d_k), tc.rand(seq_len, d_k)
values, attention = tc.scaled_dot_product(q, k, v)
found = {"Q": q, "K": k, "V": v, "Values": values, "Attention": attention}
for name, t in found.items():
    print(f"{name}\n{t}")

# %% [markdown]
# Compared with the digits that the notes show:

# %%
printed = {
    "Q": [[0.2666, 0.6274], [0.2696, 0.4414], [0.2969, 0.8317]],
    "K": [[0.1053, 0.2695], [0.3588, 0.1994], [0.5472, 0.0062]],
    "V": [[0.9516, 0.0753], [0.8860, 0.5832], [0.3376, 0.8090]],
    "Values": [[0.7303, 0.4861], [0.7262, 0.4902], [0.7336, 0.4830]],
    "Attention": [[0.3351, 0.3408, 0.3241], [0.3302, 0.3390, 0.3308], [0.3388, 0.3429, 0.3184]],
}
for name, digits in printed.items():
    print(f"{name:9} differs by {np.abs(found[name].numpy() - digits).max():.0e}")

# %% [markdown]
# ## Multi-head attention
#
# The notes define the layer and do not run it. One matrix contains the projections of all heads, for speed; weights are drawn by Xavier's rule, biases are 0.

# %%
layer = tc.MultiheadAttention(input_dim=12, embed_dim=12, num_heads=3)
x = tc.randn(2, 5, 12)
output, attention = layer(x, return_attention=True)
print("output", output.shape, " attention", attention.shape)
bound = (6 / (12 + 3 * 12)) ** 0.5
weight = layer.qkv_proj.weight.detach().numpy()
print(f"weights {weight.shape}, the largest {np.abs(weight).max():.3f}; by Xavier's rule none is above {bound:.3f}")

# %% [markdown]
# The layer treats its input as a set: permuting it only permutes the output.

# %%
order = [4, 0, 3, 1, 2]
permuted = layer(x[:, order])
print(f"{np.abs(permuted.detach().numpy() - output.detach().numpy()[:, order]).max():.0e} apart")

# %% [markdown]
# Each head attends to different places, even before any training.

# %%
tc.plot.attention_maps(attention, idx=0, title="An untrained layer")

# %% [markdown]
# ## Encoder block
#
# Here the notes end, in the middle of `__init__` and with a typing error: `nn.ReLu` does not exist, neither in PyTorch nor here.

# %%
try:
    tc.nn.ReLu()
except AttributeError as error:
    print(error)

# %% [markdown]
# The whole block, written out with the parts that the notes name: attention and a two-layer network, each with a residual connection and layer normalisation. With the same
# weights it gives what `tc.EncoderBlock` gives.


# %%
class EncoderBlock(tc.nn.Module):
    def __init__(self, input_dim, num_heads, dim_feedforward, dropout=0.0):
        super().__init__()
        self.self_attn = tc.MultiheadAttention(input_dim, input_dim, num_heads)
        self.linear_net = tc.nn.Sequential(
            tc.nn.Linear(input_dim, dim_feedforward),
            tc.nn.Dropout(dropout),
            tc.nn.ReLU(inplace=True),
            tc.nn.Linear(dim_feedforward, input_dim),
        )
        self.norm1, self.norm2 = tc.nn.LayerNorm(input_dim), tc.nn.LayerNorm(input_dim)
        self.dropout = tc.nn.Dropout(dropout)

    def forward(self, x, mask=None):
        x = self.norm1(x + self.dropout(self.self_attn(x, mask=mask)))
        return self.norm2(x + self.dropout(self.linear_net(x)))


mine, theirs = EncoderBlock(12, 3, 24), tc.EncoderBlock(12, 3, 24)
theirs.load_state_dict(mine.state_dict())
difference = np.abs(mine(x).detach().numpy() - theirs(x).detach().numpy()).max()
print(f"largest difference {difference:.1e}")
