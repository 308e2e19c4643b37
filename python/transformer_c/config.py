"""Facts about this build, and settings of threads and precision."""

from __future__ import annotations

import os
import sys

import numpy as np

from . import _core
from ._arguments import one_of


def set_num_threads(count: int) -> None:
    """Sets the number of threads that computations use, from 1 to 1024. Results do not depend on it.

    The initial value is TRANSFORMER_C_NUM_THREADS, or else the number of CPUs this process may use.
    """
    _core.set_num_threads(count)


def get_num_threads() -> int:
    """The number of threads that computations use."""
    return _core.get_num_threads()


_PRECISIONS = ("highest", "high", "medium")


def set_float32_precision(precision: str) -> None:
    """Sets how much accuracy float32 products may give up for speed, like ``torch.set_float32_matmul_precision``.

    This is a permission; a kernel that gains nothing does not use it. On a CPU products use it where the processor multiplies tiles of
    bfloat16 (AMX), for matrices of at least 128 x 128: "high" adds three products of bfloat16, an error of at most 2e-5 of the sum of the
    products' magnitudes, "medium" one, at most 8e-3, which it also is with AVX512-BF16, chosen on processors of AMD. On a GPU of compute capability 8.0 or later tensor cores multiply matrices whose rows
    begin at multiples of 16 bytes, as they do where widths are multiples of 4: "high" adds three products of TF32 parts, an error of some
    2e-6, at most 5e-6 with up to 16,384 terms, "medium" is one product of TF32, some 1e-3 at most with up to 4,096. Everywhere else they
    are full float32.

    Parameters
    ----------
    precision : {"highest", "high", "medium"}
        Full float32 (the initial setting); about 16 bits on a CPU (two bfloat16 parts) and 20 on a GPU (two TF32 parts); bfloat16, on a GPU
        TF32.

    Raises
    ------
    ValueError
        For another word.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.set_float32_precision("high")
    >>> tc.get_float32_precision()
    'high'
    >>> tc.set_float32_precision("highest")
    """
    _core.set_float32_precision(_PRECISIONS.index(one_of("precision", precision, _PRECISIONS)))


def get_float32_precision() -> str:
    """The setting of ``set_float32_precision``: "highest", "high" or "medium"."""
    return _PRECISIONS[_core.get_float32_precision()]


def last_plans(device: str = "cpu") -> dict[str, dict[str, str | int]]:
    """How each kernel with several variants (the matrix product, attention) last ran, for tests and benchmarks.

    Parameters
    ----------
    device : str
        "cpu" or "cuda".

    Returns
    -------
    dict
        For each such kernel that has run in this process: ``variant``, the name of the implementation; ``splits``, the number of parts
        its sum was divided into; ``float32_precision``, the setting of `set_float32_precision` when it was planned.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> _ = tc.matmul(np.ones((2, 3)), np.ones((3, 2)))
    >>> tc.config.last_plans()["gemm"]
    {'variant': 'rows', 'splits': 1, 'float32_precision': 'highest'}
    """
    return {
        kernel: {"variant": variant, "splits": splits, "float32_precision": _PRECISIONS[precision]}
        for kernel, (variant, splits, precision) in _core.last_plans(device).items()
    }


def config() -> dict[str, str]:
    """The facts that ``show_config`` prints, as a dict."""
    from . import cuda
    from ._version import __version__

    isas = _core.cpu_isas()
    return {
        "transformer_c": __version__,
        "Python": sys.version.split()[0],
        "NumPy": np.__version__,
        "compiler": _core.compiler(),
        "instruction sets built": ", ".join(f"{name}{'' if usable else ' (not usable here)'}" for name, usable in isas.items()),
        "instruction set in use": _core.cpu_isa() + (" (TRANSFORMER_C_ISA)" if os.environ.get("TRANSFORMER_C_ISA") else ""),
        "threads": f"{get_num_threads()} of {os.cpu_count()} CPUs",
        "float32 products": f"full float32 (allowed: {get_float32_precision()!r})",
        "CUDA": cuda.status(),
        **_gpus(cuda.device_count()),
    }


def _gpus(count: int) -> dict[str, str]:
    """Each GPU, and which ones the CUDA library has code for; nothing where there is no library."""

    def named(capability: int) -> str:
        return f"{capability // 10}.{capability % 10}"

    found = {}
    for i in range(count):
        capability, multiprocessors = _core.cuda_describe(i)
        found[f"cuda:{i}"] = f"compute capability {named(capability)}, {multiprocessors} multiprocessors"
    try:
        code = _core.cuda_code_for()
    except RuntimeError:  # as the line of CUDA says
        return found
    return {**found, "CUDA library": f"for compute capability {', '.join(map(named, code))} and later"}


def show_config() -> None:
    """Prints version, compiler, instruction sets built and in use, threads, whether CUDA is available, with the
    reason if not, GPUs, and which ones the CUDA library has code for."""
    width = max(map(len, config())) + 2
    for name, value in config().items():
        print(f"{name + ':':{width}}{value}")
