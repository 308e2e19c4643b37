"""Memory runs out at the first allocation of a call, then at the second, and so on until the call succeeds: each time a MemoryError,
every object as it was, nothing leaked. Sweeps over single ops, forward and backward, and over a training step."""

import copy
import gc
import itertools

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core
from transformer_c import functional as F

RNG = np.random.default_rng(11)


def leaf(*shape, dtype="float32"):
    return tc.tensor(RNG.standard_normal(shape).astype(dtype), requires_grad=True)


Q, K, V, BIAS = leaf(2, 2, 5, 4), leaf(2, 2, 7, 4), leaf(2, 2, 7, 4), leaf(2, 1, 5, 7)
MASK = RNG.random((5, 7)) < 0.6
X, HALF, ROW = leaf(3, 4, 5), leaf(3, 4, 5, dtype="float16"), leaf(5)
WEIGHT, FEATURES, TABLE, SEQUENCE, KERNEL = leaf(6, 5), leaf(6), leaf(9, 5), leaf(2, 6, 8), leaf(2, 2, 3)
PLACES, LABELS = RNG.integers(0, 9, (3, 4)), RNG.integers(0, 5, 3)
ATTENTION, BLOCK, NORM = tc.MultiheadAttention(8, 8, 2), tc.EncoderBlock(8, 2, 16, dropout=0.1), tc.nn.LayerNorm(5)
PRODUCT = tc.custom_op(lambda a, b: a * b, lambda dy, a, b: (dy * b, (dy * a).sum((0, 1))))
LEAVES = [Q, K, V, BIAS, X, HALF, ROW, WEIGHT, FEATURES, TABLE, SEQUENCE, KERNEL]
LEAVES += [p for module in (ATTENTION, BLOCK, NORM) for p in module.parameters()]


def written(write):
    y = X * 1.0
    write(y)
    return y


def assign(y):
    y[1:, 0] = X[0, 0]
    y[[0, 1], 1] = 3.0
    y[y > 0] = ROW.sum()
    y += X


CALLS = {
    "attention": lambda: F.scaled_dot_product_attention(
        Q, K, V, attn_mask=MASK, bias=BIAS, return_attention=True, return_logsumexp=True, dropout_p=0.3, rng=1
    )[0],
    "half attention": lambda: F.scaled_dot_product_attention(
        Q.half(), K.half(), V.half(), is_causal=True, softcap=2.0, window=(2, 3), key_lengths=[5, 7]
    ),
    "scaled_dot_product": lambda: sum(t.sum() for t in tc.scaled_dot_product(Q, K, V, MASK)),
    "MultiheadAttention": lambda: ATTENTION(SEQUENCE),
    "MultiheadAttention of an ndarray": lambda: ATTENTION(SEQUENCE.numpy()),
    "EncoderBlock": lambda: BLOCK(SEQUENCE),
    "linear": lambda: F.linear(X, WEIGHT, FEATURES),
    "layer_norm": lambda: NORM(X),
    "add_layer_norm": lambda: F.add_layer_norm(X, X * 2, (5,)),
    "add_layer_norm with dropout": lambda: F.add_layer_norm(X, X * 2, (5,), dropout_p=0.5, rng=1),
    "add_layer_norm without a record": lambda: [F.add_layer_norm(x.detach(), x.detach(), (5,)) for x in (X, HALF)],
    "softmax": lambda: F.softmax(X.T, 1) + F.log_softmax(HALF.T.float(), 0),
    "cross_entropy": lambda: F.cross_entropy(X[:, 0], LABELS) + F.cross_entropy(HALF[:, 1], LABELS, label_smoothing=0.1),
    "binary_cross_entropy": lambda: F.binary_cross_entropy_with_logits(X, np.ones((3, 4, 5), np.float32)),
    "mse_loss": lambda: F.mse_loss(X, X.detach() * 2),
    "distances": lambda: F.smooth_l1_loss(X, X.detach() * 2) + F.nll_loss(X[:, 0], LABELS) + F.normalize(X, dim=2).sum() + F.elu(X).sum(),
    "convolution": lambda: F.conv1d(F.pad(X, (1, 0)), KERNEL, padding=1, groups=2),
    "transposed convolution": lambda: F.conv_transpose1d(SEQUENCE[:, :2], KERNEL, FEATURES[:2], 2, 1),
    "embedding": lambda: F.embedding(PLACES, TABLE, padding_idx=1),
    "dropout": lambda: F.dropout(X, 0.5, True),
    "matmul": lambda: X.mT @ X,
    "element-wise": lambda: tc.where(X > 0, (X + ROW) * X.exp() / X.abs() ** 2.0 - X.tanh(), F.gelu(X)).masked_fill(X > 1, 1.0),
    "reductions": lambda: X.sum(1) + X.mean((0, 1)).var() + X.max(axis=1) + X.min() + X.var(1) + F.global_max_pool1d(X),
    "indexing": lambda: X[[0, 2, 2], :, [1, 1, 0]].sum() + X[X > 0].sum() + X[None, ..., ::-2, 1:].sum(),
    "assignment": lambda: written(assign),
    "joining": lambda: tc.stack([tc.cat([X, X.flip(1)], 1), tc.cat([X, X], 1)], 2),
    "pieces": lambda: X.split(2, 1)[1] + X.chunk(2, 1)[0] + X.unbind(1)[2][:, None] + sum(t.sum() for t in X),
    "views": lambda: X.permute(2, 0, 1).reshape(10, 6).unfold(1, 3, 1).sum(2, keepdims=True).expand(10, 4, 9),
    "custom_op": lambda: PRODUCT(X, ROW),
    "new tensors": lambda: (tc.tensor([[1, 2.5]]), tc.as_tensor(np.ones((3, 3), ">f4")), tc.randn(3, 4, rng=1), tc.from_dlpack(np.ones(3))),
    "copies": lambda: (copy.deepcopy(X), X.tolist(), repr(X), BLOCK.state_dict()),
}


def run(call):
    y = call()
    if isinstance(y, tc.Tensor) and y.requires_grad:
        (y.float() * y.detach().float()).sum().backward()


def in_use_without_gradients(leaves):
    for x in leaves:
        x.grad = None
    gc.collect()
    return _core.memory_stats()["in_use"]


def failures(call):
    """Runs `call` with memory that runs out at allocation 1, 2, ... until it succeeds; yields after each MemoryError."""
    for n in itertools.count(1):
        _core.memory_fail_after(n)
        try:
            call()
            return
        except MemoryError as error:
            assert "out of memory" in str(error)
        finally:
            _core.memory_fail_after(0)
        yield n


@pytest.mark.parametrize("name", CALLS)
def test_an_op(name):
    call = CALLS[name]
    for _ in range(2):
        run(call)
        before = in_use_without_gradients(LEAVES)
    values = [x.numpy().copy() for x in LEAVES]
    n = 0
    for n in failures(lambda: run(call)):
        assert all(x.grad is None for x in LEAVES), n
        assert in_use_without_gradients(LEAVES) == before, n
    assert n > 5
    assert all(x.numpy().tobytes() == v.tobytes() for x, v in zip(LEAVES, values, strict=True))
    in_use_without_gradients(LEAVES)


@pytest.mark.parametrize("make", [lambda: X * 1.0, lambda: X.detach().clone(), lambda: X.detach().clone().detach()])
def test_a_write_through_a_view(make):
    """Where its base cannot get a history, or a view another one, using them is an error."""

    def call():
        y = make()
        row, other = y[0], y[:, 1:]
        row.mul_(ROW.sum())
        (y.sum() + other.sum()).backward()

    before, n, refused = None, 0, 0
    for n in itertools.count(0):
        _core.memory_fail_after(n)
        try:
            call()
            if n:
                break
        except MemoryError:
            pass
        except RuntimeError as error:
            assert "written in place" in str(error)
            refused += 1
        finally:
            _core.memory_fail_after(0)
        if n:
            assert ROW.grad is None
        else:
            expected = ROW.grad.tolist()
        assert before in (None, in_use_without_gradients(LEAVES)), n
        before = in_use_without_gradients(LEAVES)
    assert n > 10 and refused == 1 and ROW.grad.tolist() == expected
    in_use_without_gradients(LEAVES)


@pytest.mark.parametrize("write", [lambda x, y: x.add_(y), lambda x, y: x.__imod__(y), lambda x, y: x.addcmul_(y, y)])
def test_a_write_that_reads_another_layout(write):
    """A copy of the operand, for which there is no memory, comes before the new version: what was computed from x keeps its gradient."""
    y = tc.tensor(RNG.random((96, 96), np.float32)).T
    for _ in range(2):
        x, w = tc.ones(96, 96), tc.ones(1, requires_grad=True)
        product = (x * w).sum()
        n = 0
        for n in failures(lambda x=x: write(x, y)):
            assert x._version == 0 and (x == 1).all(), n
            product.backward(retain_graph=True)
        assert x._version == 1
    assert n > 1


@pytest.mark.parametrize("threads", [1, 3])
def test_a_training_step(threads):
    tc.manual_seed(3)
    model = tc.TransformerPredictor(
        input_dim=10, model_dim=16, num_classes=10, num_heads=2, num_layers=1, lr=1e-3, warmup=5, max_iters=100, dropout=0.1
    )
    optimizer = tc.optim.Adam(model.parameters(), lr=1e-3)
    parameters = list(model.parameters())
    x, y = RNG.random((4, 7, 10), np.float32), RNG.integers(0, 10, 28)

    def step():
        F.cross_entropy(model(tc.tensor(x)).reshape(-1, 10), y).backward()
        tc.optim.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    def everything():
        state = [v for s in optimizer.state_dict()["state"].values() for v in s.values()]
        return [v.numpy().tobytes() if isinstance(v, tc.Tensor) else v for v in [*parameters, *state]]

    used = tc.get_num_threads()
    tc.set_num_threads(threads)
    try:
        step()
        before, kept = in_use_without_gradients(parameters), everything()
        n = 0
        for n in failures(step):
            assert len({p.grad is None for p in parameters}) == 1, n  # the backward brings all gradients or none
            assert in_use_without_gradients(parameters) == before, n
            assert everything() == kept, n
        assert n > 100
        assert everything() != kept
    finally:
        tc.set_num_threads(used)
