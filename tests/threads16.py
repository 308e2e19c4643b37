"""Checks an installed package with 16 threads at once, on any Python, free-threaded ones included: python tests/threads16.py

Each thread trains a model of its own and calls one that all share: the numbers are those of one thread, to the bit.
"""

import sys
import threading

import numpy as np
import transformer_c as tc

THREADS, STEPS = 16, 12
x = np.random.default_rng(0).standard_normal((8, 5, 12)).astype(np.float32)
shared = tc.EncoderBlock(input_dim=12, num_heads=3, dim_feedforward=24)
expected = shared(x)


def train(seed):
    """The losses of a model whose weights depend on the seed alone."""
    rng = np.random.default_rng(seed)
    model = tc.nn.Sequential(tc.nn.Linear(12, 24), tc.nn.ReLU(), tc.nn.Linear(24, 12))
    for p in model.parameters():
        p.data = tc.tensor(rng.standard_normal(p.shape).astype(np.float32) / 4)
    optimizer = tc.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = tc.F.mse_loss(model(tc.tensor(x)), tc.tensor(x[:, ::-1].copy()))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        assert (shared(x) == expected).all()
    return losses


alone = [train(seed) for seed in range(THREADS)]
together = [None] * THREADS
start = threading.Barrier(THREADS)


def run(seed):
    start.wait()
    for _ in range(3):
        together[seed] = train(seed)


threads = [threading.Thread(target=run, args=(seed,)) for seed in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert together == alone
gil = getattr(sys, "_is_gil_enabled", lambda: True)()
print(f"{THREADS} threads trained as one does; the GIL is {'on' if gil else 'off'}")
