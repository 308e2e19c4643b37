"""Kernels read and write nothing beside their operands: arrays that begin or end at a page that cannot be read.

Vectors are loaded whole where there are enough elements, columns are transposed by squares, panels are packed by tables of offsets: one
element too many is a fault here, and mostly goes unnoticed elsewhere.
"""

import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.unsanitized,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are protected by Linux's mprotect"),
]

GUARD = """
import ctypes, faulthandler, itertools, mmap, sys
import ml_dtypes
import numpy as np
import transformer_c as tc
from transformer_c import _core

faulthandler.disable()
libc, page, kept = ctypes.CDLL(None), mmap.PAGESIZE, []
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

def guarded(array, at_end):
    # A copy that ends where a page without access begins, or begins where one ends.
    pages = -(-max(array.nbytes, 1) // page)
    memory = mmap.mmap(-1, (pages + 2) * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for first in (start, start + (pages + 1) * page):
        assert libc.mprotect(first, page, 0) == 0
    offset = page + (pages * page - array.nbytes if at_end else 0)
    copy = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    kept.append(memory)
    del kept[:-16]
    return copy
"""

CALLS = """
rng = np.random.default_rng(0)
def numbers(dtype, at_end, *shapes):
    return [guarded(rng.standard_normal(shape).astype(dtype), at_end) for shape in shapes]

WINDOWS = [  # x, weight, stride, padding, dilation, groups
    ((2, 3, 40), (5, 3, 3), 1, 0, 1, 1), ((70, 1, 9), (16, 1, 2), 1, 0, 1, 1), ((1, 8, 33), (3, 8, 4), 3, 1, 2, 1), ((3, 6, 17), (4, 3, 1), 1, 0, 1, 2),
    ((2, 3, 11, 13), (16, 3, 3, 3), 1, 1, 1, 1), ((2, 8, 12, 20), (3, 8, 4, 4), 4, 0, 1, 1), ((1, 2, 5, 70), (50, 1, 2, 3), 1, 0, 1, 2),
]
DROPPED = {"dropout": 0.3, "seed": 1, "call": 2}
EPILOGUES = [("gelu", False, {}), ("relu", True, {}), (None, True, DROPPED), ("gelu_tanh", True, DROPPED)]  # activation, residual, dropout
calls = 0
for at_end, dtype in itertools.product((True, False), (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)):
    for x, weight, stride, padding, dilation, groups in WINDOWS:
        axes = len(x) - 2
        options = [(n,) * axes for n in (stride, padding, dilation)]
        a, w, b = numbers(dtype, at_end, x, weight, weight[:1])
        y = _core.convolution(a, w, b, *options, groups)
        _core.convolution_backward(*numbers(dtype, at_end, y.shape), a, w, *options, groups)
        back = (y.shape, weight, (weight[1] * groups,))  # its gradient of x, as an op
        d, w, b = numbers(dtype, at_end, *back)
        z = _core.transposed_convolution(d, w, b, *options[:2], (0,) * axes, options[2], groups)
        _core.transposed_convolution_backward(*numbers(dtype, at_end, z.shape), d, w, *options, groups)
    for rows, C, N in itertools.product((1, 2, 17, 64, 200), (1, 63, 130), (1, 33, 200)):
        dy, x, w = numbers(dtype, at_end, (rows, N), (rows, C), (N, C))
        _core.linear(x, w)
        _core.linear_backward(dy, x, w)
        _core.linear_backward(dy, x, w, *numbers(dtype, at_end, (rows, N)), "gelu")
        _core.matmul(dy, w)
        _core.matmul(x[:, None], x[:, :, None])
        bias, residual = numbers(dtype, at_end, (N,), (rows, N))
        for activation, added, dropped in EPILOGUES:
            y, pre = _core.linear_forward(x, w, bias, activation, residual if added else None, **dropped)
            if activation is not None:
                _core.linear_backward(dy, x, w, guarded(np.asarray(pre), at_end), activation, **dropped)
    for few, many, K in itertools.product((1, 3, 5), (3, 17, 131), (1, 3, 5, 22, 771, 1154)):
        x, w, wide = numbers(dtype, at_end, (few, K), (many, K), (K, many))
        _core.matmul(x, w.T), _core.matmul(w, x.T), _core.matmul(x, wide), _core.matmul(w[:, :1], wide[:1])
        _core.matmul(w[:, None, :1], x[:1, :1])
    for D, T in itertools.product((1, 16, 33, 64), (1, 7, 64, 130)):
        for queries in (1, T):
            _core.attention(*numbers(dtype, at_end, (1, 2, queries, D), (1, 2, T, D), (1, 2, T, D)))
    for shape in ((1, 1), (7, 33), (16, 16), (33, 70)):
        _core.cumsum(*numbers(dtype, at_end, shape), 1)
        _core.sum(*numbers(dtype, at_end, shape), 0)
        _core.softmax(*numbers(dtype, at_end, shape), -1)
        x, gamma, beta = numbers(dtype, at_end, shape, shape[1:], shape[1:])
        _core.layer_norm(x, shape[1:], gamma, beta)
        _core.add_layer_norm(x, *numbers(dtype, at_end, shape), shape[1:], gamma, beta, **DROPPED)
    for rows, length in ((3, 130), (3, 300), (2, 1025)):  # runs of whole groups, and with a rest; halves that are computed row by row
        x, dy, row, column = map(tc.as_tensor, numbers(dtype, at_end, (rows, length), (rows, length), (length,), (rows, 1)))
        x[:, : length - 1].sum(), x[:, 1:].mean(), x.amax(1), x.T[: length - 1].amin(0)
        for other in (row, column):
            a, b = x.detach().requires_grad_(), other.detach().requires_grad_()
            (a * b).backward(dy), (a / b).backward(dy), (b - a).backward(dy)
    for n in (*range(1, 36), 63, 65, 129, 1025):
        _core.dropout(*numbers(dtype, at_end, (n,)), 0.3, 1, 2)
        x, y = map(tc.as_tensor, numbers(dtype, at_end, (n,), (n,)))
        mask = guarded(rng.random(n) < 0.3, at_end)
        places = guarded(rng.integers(0, n, n), at_end)
        x[mask], tc.nonzero(mask), x[::-1].exp(), x.flip(0), x[places], x[::3].contiguous()
        x[mask] = 1.0
        x[::-1][mask] = y[mask]
        x.index_add_(0, places, y).clamp_(-1.0, 1.0).lerp_(y, 0.5)
        for whole in (places, mask, *(guarded(places.astype(to), at_end) for to in (np.int32, np.uint8))):
            _core.sum(whole), _core.max(whole), _core.argmin(whole), _core.any(whole), _core.all(whole), _core.cumsum(whole, 0)
        for to in ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"):
            x.to(to)[::-1].to(y.dtype)
            x[::2].to(to)
            tc.as_tensor(mask).to(to)
    for shape in ((3, 3), (16, 17), (33, 129), (130, 70), (5, 20, 33), (4, 100, 33)):
        x, y = map(tc.as_tensor, numbers(dtype, at_end, shape, shape))
        for order in itertools.permutations(range(len(shape))):
            x.permute(order).contiguous(), x.permute(order).exp(), x.permute(order) + y.permute(order), x.permute(order)[1:].bool()
            for axis in range(len(shape)):
                x.permute(order).sum(axis), x.permute(order).argmax(axis), x.permute(order).flip(axis), x.permute(order).long().cumsum(axis)
            x.norm(), x.permute(order)[..., :2].std(-1), x.permute(order)[..., :1].sum(0)
    calls += 1
print(calls)
"""


def run(program, isa):
    env = {**os.environ, "TRANSFORMER_C_ISA": isa, "TRANSFORMER_C_NUM_THREADS": "2"}
    return subprocess.run([sys.executable, "-c", GUARD + program], env=env, capture_output=True, text=True, timeout=300)


def test_nothing_beside_an_operand_is_read(isa):
    done = run(CALLS, isa)
    assert done.returncode == 0, f"a fault, or an error: {done.returncode} {done.stderr[-2000:]}"
    assert done.stdout == "8\n"


@pytest.mark.parametrize("at_end", [True, False])
def test_one_element_beside_an_operand_is_noticed(at_end):
    """A view of one element more, which NumPy does not check."""
    program = f"""
array = guarded(np.ones(1000, np.float32), {at_end})
longer = np.lib.stride_tricks.as_strided(array if {at_end} else array[:1], (1001,), (4 if {at_end} else -4,))
print("begins")
sys.stdout.flush()
_core.sum(longer)
"""
    done = run(program, "baseline")
    assert done.returncode < 0 and done.stdout == "begins\n", (done.returncode, done.stderr[-500:])
