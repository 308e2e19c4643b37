"""selftest: checks that this build computes correctly on this machine."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from .. import _core, functional, ops, optim
from ..config import get_num_threads, set_num_threads
from ..encoder import EncoderBlock
from ..random import manual_seed
from ..testing import gradcheck, reference
from ..training import TransformerPredictor
from .options import add_threads

TOLERANCE: dict[type, float] = {
    np.float32: 1e-5,
    np.float64: 1e-12,
}  # relative to the largest value; sums of about 100 products stay well below


def add(commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "selftest",
        help="checks this build on this machine, in seconds",
        description="Compares the kernels of every instruction set that this machine can use with float64 NumPy, differentiates an encoder "
        "block numerically, trains a small model, and compares its bits for several numbers of threads. Exit status 1 if anything is wrong.",
    )
    add_threads(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs all checks for every instruction set; says which failed."""
    started = time.perf_counter()
    before, failed, count = _core.cpu_isa(), [], 0
    try:
        for isa, is_usable in _core.cpu_isas().items():
            if not is_usable:
                print(f"{isa:10} not usable on this machine")
                continue
            _core.cpu_select(isa)
            results = list(checks())
            wrong = [f"{isa}: {name}: {problem}" for name, problem in results if problem]
            count += len(results)
            failed += wrong
            print(f"{isa:10} {len(results) - len(wrong)} of {len(results)} checks passed", flush=True)
    finally:
        _core.cpu_select(before)
    for line in failed:
        print(f"FAILED  {line}")
    verdict = f"{len(failed)} of {count} checks FAILED" if failed else f"all {count} checks passed"
    print(f"{verdict} in {time.perf_counter() - started:.1f} s")
    return 1 if failed else 0


def checks() -> Iterator[tuple[str, str]]:
    """(name, "" or a problem) for every check, on the instruction set in use."""
    for dtype in (np.float32, np.float64):
        rng = np.random.default_rng(0)
        for kernel in KERNELS:
            yield f"{kernel.__name__} {dtype.__name__}", _problem(partial(_run_kernel, kernel, rng, dtype))
    yield "gradients", _problem(_gradients)
    yield "training", _problem(_training)


def _problem(check: Callable[[], str]) -> str:
    """The problem that a check reports, or the exception that it raises; "" if there is none."""
    try:
        return check()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _run_kernel(kernel: Callable, rng: np.random.Generator, dtype: type) -> str:
    return _compare(kernel(rng, dtype), dtype)


def _compare(pairs: list[tuple[np.ndarray, np.ndarray]], dtype: type) -> str:
    """The largest difference from the reference, if it is too large; NaN always is."""
    for found, expected in pairs:
        found = np.asarray(found)
        if found.shape != expected.shape or found.dtype != dtype:
            return f"gave {found.dtype} {found.shape}, expected {np.dtype(dtype)} {expected.shape}"
        error = float(np.max(np.abs(found - expected)) / max(1.0, np.max(np.abs(expected))))
        if not error <= TOLERANCE[dtype]:
            return f"relative error {error:.2g}, allowed {TOLERANCE[dtype]:.0e}"
    return ""


# ---- kernels: pairs of what ours gives and what float64 NumPy gives; sizes with tails for every vector width -----------------------------


def _normal(rng: np.random.Generator, dtype: type, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def linear(rng, dtype):
    """Forward, also with a ReLU, and the three gradients."""
    x, w, b, dy = _normal(rng, dtype, (37, 29), (43, 29), (43,), (37, 43))
    pairs = [(ops.linear_forward(x, w, b, activation=a)[0], reference.linear(x, w, b, activation=a)) for a in (None, "relu")]
    return [*pairs, *zip(ops.linear_backward(dy, x, w)[:3], reference.linear_backward(dy, x, w, b)[:3], strict=True)]


def layer_norm(rng, dtype):
    """Forward and gradients."""
    x, gamma, beta, dy = _normal(rng, dtype, (19, 45), (45,), (45,), (19, 45))
    y, mean, rstd = ops.layer_norm_forward(x, gamma, beta, 1e-5)
    gradients = reference.layer_norm_backward(dy, x, gamma, beta, 1e-5)
    return [
        (y, reference.layer_norm(x, gamma, beta, 1e-5)[0]),
        *zip(ops.layer_norm_backward(dy, x, gamma, mean, rstd), gradients, strict=True),
    ]


def softmax(rng, dtype):
    """Softmax with a few large logits."""
    (x,) = _normal(rng, dtype, (11, 35))
    x[0] *= 1000
    return [(functional.softmax(x, axis=-1), reference.softmax(x)), (functional.log_softmax(x, axis=-1), reference.log_softmax(x))]


def attention(rng, dtype):
    """Values and map, causal, with a mask."""
    q, k, v = _normal(rng, dtype, *[(2, 3, 21, 13)] * 3)
    allowed = np.tril(rng.random((21, 21)) < 0.8) | np.eye(21, dtype=bool)
    found = functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed, is_causal=True, return_attention=True)
    expected = reference.attention(q, k, v, attn_mask=allowed, is_causal=True)[:2]
    alone = functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
    return [*zip(found, expected, strict=True), (alone, expected[0])]


def matmul(rng, dtype):
    """A batch of products."""
    a, b = _normal(rng, dtype, (3, 17, 31), (3, 31, 23))
    return [(_core.matmul(a, b), reference.matmul(a, b))]


def activations(rng, dtype):
    """ReLU, tanh, sigmoid, GELU by tanh."""
    (x,) = _normal(rng, dtype, (7, 33))
    pairs = [(getattr(functional, name)(x), getattr(reference, name)(x)) for name in ("relu", "tanh", "sigmoid")]
    return [*pairs, (functional.gelu(x, approximate="tanh"), reference.gelu(x, approximate="tanh"))]


def cross_entropy(rng, dtype):
    """The mean over rows."""
    (x,) = _normal(rng, dtype, (23, 10))
    labels = rng.integers(10, size=23)
    return [(functional.cross_entropy(x, labels), np.asarray(reference.cross_entropy(x, labels)))]


def reductions(rng, dtype):
    """Sums, means and maxima over an axis."""
    (x,) = _normal(rng, dtype, (9, 41))
    wide = reference.f64(x)
    return [
        (_core.sum(x, 0), wide.sum(0)),
        (_core.sum(x, 1), wide.sum(1)),
        (_core.mean(x, 1), wide.mean(1)),
        (_core.max(x, 1), wide.max(1)),
    ]


KERNELS = (linear, layer_norm, softmax, attention, matmul, activations, cross_entropy, reductions)


# ---- gradients and training ------------------------------------------------------------------------------------------------------------------


def _gradients() -> str:
    """An encoder block in float64, against central differences."""
    manual_seed(0)
    block = EncoderBlock(input_dim=6, num_heads=2, dim_feedforward=5).double()
    x = np.random.default_rng(0).normal(size=(2, 3, 6))
    return "" if gradcheck(block, [x]) else "the gradients of an encoder block are not those of central differences"


def _training() -> str:
    """A model learns to copy, with the same bits for any number of threads."""
    before = get_num_threads()
    try:
        runs = []
        for threads in (1, 2, 3):
            set_num_threads(threads)
            runs.append(_train())
    finally:
        set_num_threads(before)
    first, last, bits = runs[0]
    if any(run[2] != bits for run in runs):
        return "the weights depend on the number of threads"
    return "" if last < 0.5 * first else f"the loss went from {first:.3f} to {last:.3f} only"


def _train(steps: int = 40) -> tuple[float, float, bytes]:
    """(first loss, last loss, bytes of the weights) of a small model with dropout."""
    manual_seed(0)
    model = TransformerPredictor(5, 16, 5, num_heads=2, num_layers=1, lr=1e-2, warmup=5, max_iters=10 * steps, dropout=0.1)
    optimizer = model.configure_optimizers()
    labels = np.random.default_rng(0).integers(5, size=(16, 8))
    x = functional.one_hot(labels, num_classes=5).astype(np.float32)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(_core.Tensor(x)).view(-1, 5), labels.reshape(-1))
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        model.optimizer_step(optimizer)
        losses.append(float(loss))
    return losses[0], losses[-1], b"".join(p.detach().numpy().tobytes() for p in model.parameters())


__all__ = ["add", "checks", "run"]
