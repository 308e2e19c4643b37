"""The operands of tests/gpu/instructions.py through the emulation alone: a GPU is then compared with it."""

import pathlib
import sys

import emulation
import numpy as np
import pytest

GPU = pathlib.Path(__file__).resolve().parents[1] / "gpu"
sys.path.append(str(GPU))
import instructions  # noqa: E402


@pytest.fixture(scope="module")
def library():
    return emulation.library([GPU / "instructions.cu"], "plain")


def wanted(name, words):
    """By NumPy, for a lane's operands in their order; None where the layout of a fragment is the point (see test_tensor_core)."""
    x = words.view(np.float32)
    with np.errstate(all="ignore"):
        if name == "float_to_tf32":
            return np.where(np.isnan(x), words, words + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
        if name == "float16":
            return x.astype(np.float16).astype(np.float32).view(np.uint32)
        if name == "bfloat16":
            import ml_dtypes

            return x.astype(ml_dtypes.bfloat16).astype(np.float32).view(np.uint32)
        if name == "reciprocal_approximate":
            small = np.abs(x) < np.finfo(np.float32).tiny
            y = 1 / np.where(small, np.copysign(np.float32(0), x), x)
            return np.where(np.abs(y) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), y).view(np.uint32)
        if name == "exp2_approximate":
            return np.exp2(x.astype(np.float64)).astype(np.float32).view(np.uint32)
    out = np.zeros_like(words)
    if name.startswith("copy_async"):
        count = {"copy_async_4": 1, "copy_async_8": 2, "copy_async_16": 4, "copy_async_partial": 2}[name]
        out[:, :count] = np.roll(words, -1, axis=0)[:, :count]
        if name == "copy_async_partial":  # 6 bytes
            out[:, 1] &= 0xFFFF
        return out
    if name.startswith("store_global"):
        count = int(name.removeprefix("store_global_")) // 4
        out[:, :count] = words[:, :count]
        return out
    halves = words[:, :4].copy().view(np.uint16).reshape(4, 8, 8)  # matrices, rows, columns
    if name.startswith("load_matrix"):
        for matrix in range(4 if "x4" in name else 2):
            m = halves[matrix].T if "transposed" in name else halves[matrix]
            out[:, matrix] = np.ascontiguousarray(m).view(np.uint32).reshape(32)
        return out
    d, fragments = words[:, :4].view(np.float32), words[:, 4:10]
    lane = np.arange(32)
    group, quad = lane // 4, lane % 4
    K = 8 if name == "mma_tf32" else 16
    A, B, D = np.zeros((16, K)), np.zeros((K, 8)), np.zeros((16, 8))
    for i in range(4):  # PTX manual, "Matrix Fragments for mma.m16n8k16" and "... mma.m16n8k8"
        D[group + 8 * (i // 2), quad * 2 + i % 2] = d[:, i]
    for i in range(6):
        word = np.ascontiguousarray(fragments[:, i])
        if K == 8:
            value = word.view(np.float32)
            if i < 4:
                A[group + 8 * (i % 2), quad + 4 * (i // 2)] = value
            else:
                B[quad + 4 * (i - 4), group] = value
            continue
        for j in range(2):
            bits = ((word >> (16 * j)) & 0xFFFF).astype(np.uint16)
            value = bits.view(np.float16).astype(float) if name == "mma_float16" else (bits.astype(np.uint32) << 16).view(np.float32)
            if i < 4:
                A[group + 8 * (i % 2), quad * 2 + j + 8 * (i // 2)] = value
            else:
                B[quad * 2 + j + 8 * (i - 4), group] = value
    result = (D + A @ B).astype(np.float32)
    for i in range(4):
        out[:, i] = np.ascontiguousarray(result[group + 8 * (i // 2), quad * 2 + i % 2]).view(np.uint32)
    return out


@pytest.mark.parametrize("name", instructions.NAMES)
def test_the_emulation_agrees_with_the_manual(library, name):
    for seed in range(3):
        got = instructions.run(library, name, seed)
        assert not instructions.differences(name, wanted(name, instructions.operands(name, seed)), got)


def test_every_wrapper_has_a_case():
    import re

    text = (GPU.parents[1] / "csrc/kernels/cuda/device.cuh").read_text().split("==== from here on")[0]
    with_ptx = set(re.findall(r"\b(\w+)\([^()]*(?:\([^()]*\)[^()]*)*\)\s*\{(?=[^}]*\basm\b)", text))
    cases = (GPU / "instructions.cu").read_text()
    assert with_ptx and not [name for name in with_ptx if f"{name}(" not in cases and f"{name}<" not in cases]
