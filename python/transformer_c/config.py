"""What this build is and what it uses."""

from __future__ import annotations

import os
import sys

import numpy as np

from . import _core


def set_num_threads(count: int) -> None:
    """Sets how many threads computations use, 1 to 1024. Results do not depend on it.

    The start value is TRANSFORMER_C_NUM_THREADS, or the CPUs this process may use.
    """
    _core.set_num_threads(count)


def get_num_threads() -> int:
    """How many threads computations use."""
    return _core.get_num_threads()


def config() -> dict[str, str]:
    """What ``show_config`` prints, as a dict."""
    from . import __version__, cuda

    isas = _core.cpu_isas()
    return {
        "transformer_c": __version__,
        "Python": sys.version.split()[0],
        "NumPy": np.__version__,
        "compiler": _core.compiler(),
        "instruction sets built": ", ".join(f"{name}{'' if usable else ' (not usable here)'}" for name, usable in isas.items()),
        "instruction set in use": _core.cpu_isa() + (" (TRANSFORMER_C_ISA)" if os.environ.get("TRANSFORMER_C_ISA") else ""),
        "threads": f"{get_num_threads()} of {os.cpu_count()} CPUs",
        "CUDA": cuda.status(),
    }


def show_config() -> None:
    """Prints version, compiler, instruction sets built and in use, threads, and the state of CUDA and why."""
    width = max(map(len, config())) + 2
    for name, value in config().items():
        print(f"{name + ':':{width}}{value}")
