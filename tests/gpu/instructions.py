"""The instructions of instructions.cu with operands for each, and how closely two machines must agree on them."""

import ctypes

import numpy as np

LANES, WORDS = 32, 12
NAMES = [
    "float_to_tf32", "exp2_approximate", "reciprocal_approximate", "float16", "bfloat16", "copy_async_4", "copy_async_8", "copy_async_16", "copy_async_partial",
    "store_global_8", "store_global_16",
    "load_matrix_x2", "load_matrix_x2_transposed", "load_matrix_x4", "load_matrix_x4_transposed", "mma_float16", "mma_bfloat16", "mma_tf32",
]  # fmt: skip


def operands(name, seed=0):
    """Words (32, 12). For mma: d (4 floats), a (4 words), b (2 words) of each lane."""
    rng = np.random.default_rng([NAMES.index(name), seed])
    words = rng.integers(0, 2**32, (LANES, WORDS), dtype=np.uint64).astype(np.uint32)
    if name in ("float_to_tf32", "float16", "bfloat16"):
        words[0, :6] = np.array([0.0, -0.0, np.inf, -np.inf, 65520, 6e-8], np.float32).view(np.uint32)
        words[0, 6] = 0x7F800001  # a NaN by its last bit
    if name == "exp2_approximate":
        words = rng.uniform(-130, 128, (LANES, WORDS)).astype(np.float32).view(np.uint32)
    if name == "reciprocal_approximate":
        words[0, :7] = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38], np.float32).view(np.uint32)
    if name.startswith("mma"):
        words[:, :4] = rng.standard_normal((LANES, 4)).astype(np.float32).view(np.uint32)
        values = rng.standard_normal((LANES, 12)).astype(np.float32)
        if name == "mma_tf32":
            words[:, 4:10] = values[:, :6].view(np.uint32) & 0xFFFFE000
        elif name == "mma_float16":
            words[:, 4:10] = values.astype(np.float16).view(np.uint32)
        else:
            words[:, 4:10] = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)
    return words


def run(library, name, seed=0):
    """The results of a compiled instructions.cu, words (32, 12); words an instruction does not write stay 0."""
    function = ctypes.CDLL(str(library)).run_instruction
    function.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    inputs, outputs = np.ascontiguousarray(operands(name, seed)), np.zeros((LANES, WORDS), np.uint32)
    error = function(NAMES.index(name), inputs.ctypes.data, outputs.ctypes.data)
    if error:
        raise RuntimeError(f"{name}: CUDA error {error}")
    return outputs


def differences(name, one, other):
    """The differences between the results of two machines; "" when they agree."""
    if name.endswith("_approximate") or name.startswith("mma"):
        with np.errstate(invalid="ignore"):  # signalling NaN
            a, b = one.view(np.float32).astype(np.float64), other.view(np.float32).astype(np.float64)
        # ex2.approx, rcp.approx: 2 and 1 units in the last place each; mma: 16 products in any order, at least 2^-22 of the largest
        limit = 2.0**-21 * np.abs(a) if name.endswith("_approximate") else np.full(a.shape, 2.0**-18 * max(1, np.abs(a).max()))
        with np.errstate(invalid="ignore"):
            good = (np.abs(a - b) <= limit + 2.0**-126) | (a == b) | (np.isnan(a) & np.isnan(b))
    else:
        good = one == other
    if name in ("float_to_tf32", "float16", "bfloat16"):  # any NaN is allowed; of tf32 the first 19 bits count
        good |= ((one & 0x7FFFE000) > 0x7F800000) & ((other & 0x7FFFE000) > 0x7F800000)
    if good.all():
        return ""
    lane, word = np.argwhere(~good)[0]
    return f"{name}: lane {lane}, word {word}: {one[lane, word]:#x} and {other[lane, word]:#x}, {np.count_nonzero(~good)} in all"
