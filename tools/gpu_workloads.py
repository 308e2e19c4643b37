"""Workloads that are the same code for transformer_c and for PyTorch, on a GPU, and their time: for tools/gpu_test.py."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any


class Library:
    """transformer_c or PyTorch, with Tensors of one dtype on one device."""

    def __init__(self, module: Any, functional: Any, device: str, dtype: str) -> None:
        self.module, self.functional, self.device, self.dtype = module, functional, device, getattr(module, dtype)

        self.is_pytorch = module.__name__ == "torch"

    def tensor(self, *shape: int, grad: bool = True) -> Any:
        import numpy as np

        values = np.random.default_rng(0).standard_normal(shape, np.float32)
        tensor = (self.module.from_numpy(values) if self.is_pytorch else self.module.tensor(values)).to(self.device)
        return tensor.to(self.dtype).requires_grad_(grad)

    def synchronize(self) -> None:
        if self.device != "cpu":
            self.module.cuda.synchronize(self.device)

    def graph(self, step: Callable[[], Any]) -> Callable[[], Any]:
        """The step, captured as a graph; the calls before the capture are made here."""
        cuda = self.module.cuda
        if not self.is_pytorch:
            captured = cuda.graph(step, device=self.device)
            captured(), captured()
            return captured
        side, graph = cuda.Stream(), cuda.CUDAGraph()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for _ in range(3):
                step()
        cuda.current_stream().wait_stream(side)
        with cuda.graph(graph):
            step()
        return graph.replay


def forward_and_backward(library: Library, compute: Callable[[], Any]) -> Callable[[], Any]:
    dy = library.tensor(*compute().shape, grad=False)
    return lambda: compute().backward(dy)


def linear(library: Library, N: int, inputs: int, outputs: int) -> Callable[[], Any]:
    x, weight, bias = library.tensor(N, inputs), library.tensor(outputs, inputs), library.tensor(outputs)
    return forward_and_backward(library, lambda: library.functional.linear(x, weight, bias))


def attention(library: Library, B: int, H: int, T: int, D: int) -> Callable[[], Any]:
    query, key, value = (library.tensor(B, H, T, D) for _ in range(3))
    return forward_and_backward(library, lambda: library.functional.scaled_dot_product_attention(query, key, value))


def layer_norm(library: Library, N: int, C: int) -> Callable[[], Any]:
    x, weight, bias = library.tensor(N, C), library.tensor(C), library.tensor(C)
    return forward_and_backward(library, lambda: library.functional.layer_norm(x, (C,), weight, bias))


def softmax(library: Library, N: int, C: int) -> Callable[[], Any]:
    x = library.tensor(N, C)
    return forward_and_backward(library, lambda: library.functional.softmax(x, -1))


def gelu(library: Library, n: int) -> Callable[[], Any]:
    x = library.tensor(n)
    return forward_and_backward(library, lambda: library.functional.gelu(x))


def encoder_step(library: Library, B: int, T: int, C: int, H: int, **options: Any) -> Callable[[], Any]:
    """Forward, loss, backward, clipping and AdamW of an encoder layer."""
    nn, x = library.module.nn, library.tensor(B, T, C, grad=False)
    model = nn.TransformerEncoderLayer(C, H, 2 * C, dropout=0.0, batch_first=True).to(library.device).to(library.dtype)
    optimizer = library.module.optim.AdamW(model.parameters(), lr=1e-3, **options)

    def step() -> None:
        optimizer.zero_grad()
        y = model(x)
        (y * y).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def captured_encoder_step(library: Library, *shape: int) -> Callable[[], Any]:
    """The same as one graph."""
    options = {"capturable": True} if library.is_pytorch else {}
    return library.graph(encoder_step(library, *shape, **options))


# Whole steps first.
WORKLOADS: list[tuple[Callable[..., Callable[[], Any]], list[tuple[int, ...]]]] = [
    (encoder_step, [(128, 16, 32, 4), (64, 128, 256, 4), (8, 1024, 512, 8)]),
    (captured_encoder_step, [(128, 16, 32, 4), (64, 128, 256, 4), (8, 1024, 512, 8)]),
    (linear, [(8192, 512, 2048), (2048, 32, 96)]),
    (attention, [(8, 8, 1024, 64), (64, 4, 128, 64)]),
    (layer_norm, [(8192, 512)]),
    (softmax, [(8192, 1024)]),
    (gelu, [(1 << 24,)]),
]


def median_ms(library: Library, step: Callable[[], Any], repeats: int = 20) -> float:
    for _ in range(3):
        step()
    times = []
    for _ in range(repeats):
        library.synchronize()
        start = time.perf_counter()
        step()
        library.synchronize()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def libraries(device: str, dtype: str) -> dict[str, Library | str]:
    """Ours, and PyTorch where it is installed for this device; the reason where it is installed and cannot be used."""
    import transformer_c as tc

    found: dict[str, Library | str] = {"ms": Library(tc, tc.functional, device, dtype)}
    try:
        import torch

        if device == "cpu" or torch.cuda.is_available():
            found["pytorch_ms"] = Library(torch, torch.nn.functional, device, dtype)
    except ModuleNotFoundError:
        pass
    except Exception as error:
        found["pytorch_ms"] = f"{type(error).__name__}: {error}"
    return found


# ---- kernels by themselves: many calls in one graph, so that the host has no part in their time ---------------------------------------------


def linear_forward(library: Library, N: int, inputs: int, outputs: int) -> Callable[[], Any]:
    x, weight, bias = (library.tensor(*shape, grad=False) for shape in ((N, inputs), (outputs, inputs), (outputs,)))
    return lambda: library.functional.linear(x, weight, bias)


def matmul(library: Library, M: int, K: int, N: int) -> Callable[[], Any]:
    a, b = library.tensor(M, K, grad=False), library.tensor(K, N, grad=False)
    return lambda: library.module.matmul(a, b)


def attention_forward(library: Library, B: int, H: int, Tq: int, Tk: int, D: int, **options: Any) -> Callable[[], Any]:
    query, key, value = (library.tensor(B, H, T, D, grad=False) for T in (Tq, Tk, Tk))
    return lambda: library.functional.scaled_dot_product_attention(query, key, value, **options)


def causal_forward(library: Library, *shape: int) -> Callable[[], Any]:
    return attention_forward(library, *shape, is_causal=True)


def attention_step(library: Library, B: int, H: int, Tq: int, Tk: int, D: int, **options: Any) -> Callable[[], Any]:
    query, key, value = (library.tensor(B, H, T, D) for T in (Tq, Tk, Tk))
    return forward_and_backward(library, lambda: library.functional.scaled_dot_product_attention(query, key, value, **options))


def causal_step(library: Library, *shape: int) -> Callable[[], Any]:
    return attention_step(library, *shape, is_causal=True)


def layer_norm_forward(library: Library, N: int, C: int) -> Callable[[], Any]:
    x, weight, bias = (library.tensor(*shape, grad=False) for shape in ((N, C), (C,), (C,)))
    return lambda: library.functional.layer_norm(x, (C,), weight, bias)


def softmax_forward(library: Library, N: int, C: int) -> Callable[[], Any]:
    x = library.tensor(N, C, grad=False)
    return lambda: library.functional.softmax(x, -1)


def cross_entropy(library: Library, N: int, C: int) -> Callable[[], Any]:
    import numpy as np

    x, classes = library.tensor(N, C), np.random.default_rng(1).integers(0, C, N)
    target = (library.module.from_numpy(classes) if library.is_pytorch else library.module.tensor(classes)).to(library.device)
    return lambda: library.functional.cross_entropy(x, target).backward()


def gelu_forward(library: Library, n: int) -> Callable[[], Any]:
    x = library.tensor(n, grad=False)
    return lambda: library.functional.gelu(x)


def dropout_forward(library: Library, n: int) -> Callable[[], Any]:
    x = library.tensor(n, grad=False)
    return lambda: library.functional.dropout(x, 0.1)


def add(library: Library, n: int) -> Callable[[], Any]:
    x, y = library.tensor(n, grad=False), library.tensor(n, grad=False)
    return lambda: x + y


def adamw(library: Library, n: int) -> Callable[[], Any]:
    parameter = library.module.nn.Parameter(library.tensor(n, grad=False))
    parameter.grad = library.tensor(n, grad=False)
    options = {"capturable": True, "fused": True} if library.is_pytorch else {}
    return library.module.optim.AdamW([parameter], lr=1e-3, **options).step


def make_block(library: Library, C: int, H: int, by_parts: bool) -> Any:
    """An encoder block: ours in one launch each way, or part by part."""
    nn = library.module.nn
    model = (
        nn.TransformerEncoderLayer(C, H, 2 * C, dropout=0.0, batch_first=True)
        if library.is_pytorch
        else library.module.EncoderBlock(C, H, 2 * C)
    )
    if by_parts:
        model._in_one_pass = lambda x, mask: None
    return model.to(library.device).to(library.dtype)


def block_forward(library: Library, B: int, T: int, H: int, D: int, by_parts: bool = False) -> Callable[[], Any]:
    """An encoder block of H heads of D features, without a record."""
    model = make_block(library, H * D, H, by_parts).eval()
    x = library.tensor(B, T, H * D, grad=False)

    def step() -> Any:
        with library.module.no_grad():
            return model(x)

    return step


def block_by_parts(library: Library, *shape: int) -> Callable[[], Any]:
    return block_forward(library, *shape, by_parts=True)


def block_train(library: Library, B: int, T: int, H: int, D: int, by_parts: bool = False) -> Callable[[], Any]:
    """Forward and all gradients."""
    model = make_block(library, H * D, H, by_parts)
    x, dy = library.tensor(B, T, H * D), library.tensor(B, T, H * D, grad=False)

    def step() -> None:
        x.grad = None
        for p in model.parameters():
            p.grad = None
        y = model(x)
        assert library.is_pytorch or by_parts or y.grad_fn == "encoder_block", "this GPU has no room for one launch"
        y.backward(dy)

    return step


def block_train_by_parts(library: Library, *shape: int) -> Callable[[], Any]:
    return block_train(library, *shape, by_parts=True)


def block_operations(B: int, T: int, H: int, D: int) -> float:
    return 2.0 * B * T * H * D * (8 * H * D + 2 * T)


HALVES, BOTH = ("bfloat16",), ("float32", "bfloat16")
# A kernel, the dtypes and shapes in which it is timed, what it takes: floating-point operations of a call, or bytes per element of its dtype.
KERNELS: list[tuple[Callable[..., Callable[[], Any]], tuple[str, ...], list[tuple[int, ...]], Callable[..., float], str]] = [
    (matmul, ("float32", "float16", "bfloat16"), [(4096, 4096, 4096), (8192, 1024, 1024)], lambda M, K, N: 2.0 * M * K * N, "flop"),
    (
        linear_forward,
        BOTH,
        [(4096, 768, 768), (4096, 768, 3072), (4096, 3072, 768), (2048, 32, 96), (32, 768, 3072), (1, 4096, 4096)],
        lambda N, K, M: 2.0 * M * K * N,
        "flop",
    ),
    (linear, BOTH, [(4096, 768, 3072), (2048, 32, 96)], lambda N, K, M: 6.0 * M * K * N, "flop"),
    (
        attention_forward,
        BOTH,
        [
            (32, 12, 512, 512, 64),
            (16, 12, 512, 512, 128),
            (32, 12, 128, 128, 64),
            (128, 4, 16, 16, 8),
            (4, 12, 4096, 4096, 64),
            (32, 8, 1, 4096, 128),
        ],
        lambda B, H, Tq, Tk, D: 4.0 * B * H * Tq * Tk * D,
        "flop",
    ),
    (
        causal_forward,
        HALVES,
        [(4, 12, 4096, 4096, 64), (4, 12, 4096, 4096, 128)],
        lambda B, H, Tq, Tk, D: 2.0 * B * H * Tq * Tk * D,
        "flop",
    ),
    (
        attention_step,
        BOTH,
        [(32, 12, 512, 512, 64), (16, 12, 512, 512, 128), (32, 12, 128, 128, 64), (128, 4, 16, 16, 8), (4, 12, 4096, 4096, 64)],
        lambda B, H, Tq, Tk, D: 14.0 * B * H * Tq * Tk * D,
        "flop",
    ),
    (causal_step, HALVES, [(4, 12, 4096, 4096, 64), (4, 12, 4096, 4096, 128)], lambda B, H, Tq, Tk, D: 7.0 * B * H * Tq * Tk * D, "flop"),
    (block_forward, BOTH, [(1, 64, 4, 16), (128, 16, 4, 8), (4096, 16, 4, 8), (1024, 64, 4, 16)], block_operations, "flop"),
    (block_by_parts, BOTH, [(1, 64, 4, 16), (128, 16, 4, 8), (4096, 16, 4, 8), (1024, 64, 4, 16)], block_operations, "flop"),
    (block_train, BOTH, [(128, 16, 4, 8), (4096, 16, 4, 8), (1024, 64, 4, 16)], lambda *shape: 3 * block_operations(*shape), "flop"),
    (
        block_train_by_parts,
        BOTH,
        [(128, 16, 4, 8), (4096, 16, 4, 8), (1024, 64, 4, 16)],
        lambda *shape: 3 * block_operations(*shape),
        "flop",
    ),
    (layer_norm_forward, BOTH, [(65536, 768), (4096, 768), (2048, 32)], lambda N, C: 2.0 * N * C, "elements"),
    (layer_norm, BOTH, [(65536, 768), (4096, 768), (2048, 32)], lambda N, C: 5.0 * N * C, "elements"),
    (softmax_forward, BOTH, [(65536, 1024)], lambda N, C: 2.0 * N * C, "elements"),
    (softmax, BOTH, [(65536, 1024)], lambda N, C: 5.0 * N * C, "elements"),
    (cross_entropy, BOTH, [(4096, 30522), (2048, 10)], lambda N, C: 3.0 * N * C, "elements"),
    (gelu_forward, BOTH, [(1 << 26,)], lambda n: 2.0 * n, "elements"),
    (dropout_forward, BOTH, [(1 << 26,)], lambda n: 2.0 * n, "elements"),
    (add, BOTH, [(1 << 26,), (1 << 16,)], lambda n: 3.0 * n, "elements"),
    (adamw, ("float32",), [(1 << 26,)], lambda n: 7.0 * n, "elements"),
]
KERNEL_SECONDS = 0.02  # of the GPU, for one reading


def kernel_us(library: Library, call: Callable[[], Any], seconds: float = KERNEL_SECONDS) -> float:
    """Microseconds of a call: the least of five readings of a graph of many of them."""

    def several(calls: int) -> Callable[[], Any]:
        def run() -> None:
            for _ in range(calls):
                call()

        return library.graph(run)

    def reading(replay: Callable[[], Any], times: int) -> float:
        library.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            replay()
        library.synchronize()
        return (time.perf_counter() - start) / times

    one = several(1)
    reading(one, 3)
    calls = max(1, min(20, int(seconds / 5 / max(reading(one, 10), 1e-6))))
    replay = several(calls)
    times = max(1, int(seconds / max(reading(replay, 2), 1e-6)))
    return min(reading(replay, times) for _ in range(5)) * 1e6 / calls


@contextlib.contextmanager
def attention_backend(name: str) -> Iterator[None]:
    """PyTorch's scaled_dot_product_attention by one of its backends."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel([getattr(SDPBackend, name)]):
        yield


LONG_US = 100.0
BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")


def best_of_pytorch(library: Library, kernel: Callable[..., Callable[[], Any]], shape: tuple[int, ...]) -> dict[str, Any]:
    """Its time in microseconds, of attention by the fastest of its backends, and which."""
    if not any(word in kernel.__name__ for word in ("attention", "causal")):
        return {"pytorch_us": kernel_us(library, kernel(library, *shape))}
    best: dict[str, Any] = {"pytorch_us": "no backend takes it"}
    for name in BACKENDS:
        if name == "MATH" and not isinstance(best["pytorch_us"], str) and best["pytorch_us"] > LONG_US:
            continue  # the map of long sequences, which takes seconds
        try:
            with attention_backend(name):
                us = kernel_us(library, kernel(library, *shape))
        except Exception:  # it does not take this dtype or shape
            continue
        if isinstance(best["pytorch_us"], str) or us < best["pytorch_us"]:
            best = {"pytorch_us": us, "pytorch_backend": name}
    return best
