"""The recipes of docs/mixed-precision.md: half-precision models train on float32 masters as float32 models do."""

import numpy as np
import pytest
import transformer_c as tc

pytest.importorskip("ml_dtypes")


def model_of(dtype):
    tc.manual_seed(0)
    model = tc.nn.Sequential(tc.nn.Linear(8, 32), tc.PositionalEncoding(32, 16), tc.EncoderBlock(32, 4, 64), tc.nn.Linear(32, 8))
    return model.to(dtype=dtype)


def batches(steps):
    rng = np.random.default_rng(0)
    for _ in range(steps):
        numbers = rng.integers(0, 8, (32, 6))
        yield np.eye(8, dtype=np.float32)[numbers], numbers[:, ::-1].copy()  # to be reversed


def loss_of(model, x, target):
    dtype = next(model.parameters()).dtype
    logits = model(tc.tensor(x).to(dtype=dtype))
    assert logits.dtype == dtype
    return tc.functional.cross_entropy(logits.float().reshape(-1, 8), target.reshape(-1))


def train(dtype, steps=250, scale=1.0, make=None):
    model = model_of(dtype)
    optimizer = (make or (lambda p: tc.optim.AdamW(p, lr=3e-3, eps=1e-8 * scale)))(model.parameters())
    losses = []
    for x, target in batches(steps):
        loss = loss_of(model, x, target)
        optimizer.zero_grad()
        (loss * scale).backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model, optimizer


@pytest.fixture(scope="module")
def single():
    return train("float32")[0]


@pytest.mark.parametrize(("dtype", "scale"), [("bfloat16", 1.0), ("float16", 1.0), ("float16", 1024.0)])
def test_a_half_precision_model_learns_to_reverse(dtype, scale, single):
    losses, model, optimizer = train(dtype, scale=scale)
    assert single[0] > 1.5 and np.mean(single[-10:]) < 0.1  # in float32 the task is learned
    assert np.mean(losses[-10:]) < 0.15
    assert abs(losses[0] - single[0]) < 0.03
    for p in model.parameters():
        master = optimizer.state[p]["master"]
        assert p.dtype.name == dtype and p.grad.dtype == p.dtype and master.dtype == np.float32
        np.testing.assert_array_equal(np.asarray(master.to(dtype=dtype)), np.asarray(p))  # the rounded master


def test_without_masters_small_steps_are_lost():
    """What the masters are for: the same steps on the rounded weights alone change few of them."""
    model, other = model_of("bfloat16"), model_of("bfloat16")
    optimizer = tc.optim.SGD(model.parameters(), lr=1e-4)
    before = [np.asarray(p).astype(np.float32) for p in model.parameters()]
    for x, target in batches(40):
        for m in (model, other):
            for p in m.parameters():
                p.grad = None
            loss_of(m, x, target).backward()
        optimizer.step()
        with tc.no_grad():
            for p in other.parameters():
                p.copy_(p - 1e-4 * p.grad)

    def moved(m):
        large = [(np.abs(b) > 0.1, b, np.asarray(p).astype(np.float32)) for b, p in zip(before, m.parameters(), strict=True)]
        return sum(int((a != b)[where].sum()) for where, b, a in large)

    assert moved(model) > 10 * max(1, moved(other))


def test_the_scale_cancels_in_adam():
    """In float32, where nothing underflows: scaled loss and eps give the same weights to rounding."""
    plain, scaled = (train("float32", steps=5, scale=s)[1] for s in (1.0, 1024.0))
    for a, b in zip(plain.parameters(), scaled.parameters(), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-7)


def test_saved_masters_go_on(tmp_path):
    """Half of the steps, saved and loaded with the optimizer's state, and the other half: the same weights to the bit."""
    whole, model, _ = train("bfloat16", steps=8)
    _, first, optimizer = train("bfloat16", steps=4)
    again = model_of("bfloat16")
    again.load_state_dict(first.state_dict())
    resumed = tc.optim.AdamW(again.parameters(), lr=3e-3)
    resumed.load_state_dict(optimizer.state_dict())
    losses = []
    for x, target in list(batches(8))[4:]:
        loss = loss_of(again, x, target)
        resumed.zero_grad()
        loss.backward()
        resumed.step()
        losses.append(loss.item())
    assert losses == whole[4:]
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
