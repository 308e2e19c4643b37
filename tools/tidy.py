"""Runs clang-tidy over the C sources, with the flags they are compiled with: python tools/tidy.py [--deep] [FILE.c ...]

clang-tidy from PyPI comes without a compiler's own headers (stddef.h, immintrin.h); those of an installed clang are used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
# One variant of the kernels: the widest vectors, the precision most used.
KERNEL_FLAGS = ["-DTC_ISA=avx512", "-DTC_PRECISION=32", "-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mf16c"]
TILES_FLAGS = [*KERNEL_FLAGS[1:], "-DTC_ISA=amx", "-DTC_TILES_BESIDE=avx512"]
DOTS_FLAGS = [*KERNEL_FLAGS[1:], "-DTC_ISA=avx512_bf16", "-DTC_TILES_BESIDE=avx512", "-DTC_DOTS", "-mavx512bf16"]
FLAGS = {"cpu": [KERNEL_FLAGS], "benchmarks": [KERNEL_FLAGS], "tiles": [TILES_FLAGS, DOTS_FLAGS]}  # by folder, each with all of them
# The analyzer ends a function after so many states. clang's own limit, --deep, takes four times as long.
STATES = ["-Xclang", "-analyzer-config", "-Xclang", "max-nodes=50000"]


def headers() -> str:
    """The folder of an installed clang's own headers."""
    for name in ("clang-14", "clang", *(f"clang-{n}" for n in range(15, 22))):
        if shutil.which(name):
            found = subprocess.run([name, "-print-resource-dir"], capture_output=True, text=True, check=True)
            return os.path.join(found.stdout.strip(), "include")
    raise SystemExit("tools/tidy.py needs the headers of a clang, and there is none: apt install clang-14")


def tidy(command: list[str], path: Path, extra: list[str]) -> str:
    """clang-tidy's output for one file; empty when it finds nothing."""
    done = subprocess.run([*command[:2], str(path), "--", *command[2:], *extra], capture_output=True, text=True, cwd=ROOT)
    return (done.stdout or done.stderr or f"{path}: exit status {done.returncode}\n") if done.returncode else ""


def main() -> int:
    folders = [ROOT / "csrc" / name for name in ("core", "ops", "python", "kernels/cpu", "kernels/cpu/tiles")]
    arguments = sys.argv[1:]
    if deep := "--deep" in arguments:
        arguments.remove("--deep")
    paths = [Path(p).resolve() for p in arguments] or [path for folder in folders for path in sorted(folder.glob("*.c"))]
    program = shutil.which("clang-tidy", path=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]))
    if program is None:
        raise SystemExit("tools/tidy.py needs clang-tidy: pip install clang-tidy==14.0.6")
    includes = ["-isystem", headers(), "-isystem", sysconfig.get_paths()["include"], "-isystem", np.get_include()]
    command = [program, "--quiet", "-std=gnu11", *includes, *([] if deep else STATES)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [(path, extra) for path in paths for extra in FLAGS.get(path.parent.name, [[]])]
        found = [text for text in pool.map(lambda run: tidy(command, *run), runs) if text]
    print("\n".join(found) or f"clang-tidy: {len(paths)} files, nothing found")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
