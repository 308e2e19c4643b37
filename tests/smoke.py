"""Checks an installed package that has only its own requirements: python tests/smoke.py"""

import sys

import numpy as np
import transformer_c as tc

x = np.random.default_rng(0).standard_normal((8, 5, 12)).astype(np.float32)
block = tc.EncoderBlock(input_dim=12, num_heads=3, dim_feedforward=24)
assert block(x).shape == x.shape

target = tc.tensor(x[:, ::-1].copy())
optimizer = tc.optim.Adam(block.parameters(), lr=1e-2)
with tc.autocast():  # bfloat16, without the package ml_dtypes
    assert block(target).dtype == target.dtype
assert block.bfloat16()(target.bfloat16()).dtype == tc.bfloat16
block.float()
losses = []
for _ in range(30):
    optimizer.zero_grad()
    loss = tc.F.mse_loss(block(tc.tensor(x)), target)
    loss.backward()
    optimizer.step()
    losses.append(float(loss))
assert losses[-1] < 0.8 * losses[0], losses
assert "torch" not in sys.modules
print(f"transformer_c {tc.__version__}: loss {losses[0]:.3f} -> {losses[-1]:.3f}")
