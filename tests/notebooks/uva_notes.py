"""What the cells of notebooks/uva_notes.py must give; run in the notebook by tools/notebooks.py, each part after the cell that begins so."""

# ruff: noqa: F821

# %% variances = {}
assert all(0.8 < variance < 1.2 for variance in variances.values())

# %% q = k = v = tc.randn(2, 5, 4)
assert (np.triu(attention.numpy(), 1) == 0).all() and np.abs(attention.numpy().sum(-1) - 1).max() < 1e-6

# %% printed = {
for name, digits in printed.items():
    assert np.abs(found[name].numpy() - digits).max() < 6e-5, name

# %% layer = tc.MultiheadAttention(input_dim=12, embed_dim=12, num_heads=3)
assert weight.shape == (36, 12) and 0.9 * bound < np.abs(weight).max() <= bound and (layer.qkv_proj.bias.detach().numpy() == 0).all()
assert attention.shape == (2, 3, 5, 5)

# %% order = [4, 0, 3, 1, 2]
assert np.abs(permuted.detach().numpy() - output.detach().numpy()[:, order]).max() < 1e-5

# %% try:
assert not hasattr(tc.nn, "ReLu")

# %% class EncoderBlock(tc.nn.Module):
assert difference < 1e-5
