"""The library in C compiles for macOS on arm64, and the core with its threads, forks and affinity on x86-64 too, without a warning. The package
ziglang has the compiler and macOS' headers; the bindings need NumPy's as well. Nothing is run."""

import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.harness import ROOT, setup_constant

pytestmark = [
    pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="pip install ziglang"),
    pytest.mark.minutes,
]

NEON = ["-DTC_NEON", "-DTC_ISA=neon", "-DTC_PRECISION=32"]
ARM, INTEL = "aarch64-macos.11.0", "x86_64-macos.10.13"


@pytest.mark.parametrize(
    ("target", "part", "more"),
    [(ARM, "core", []), (ARM, "ops", []), (ARM, "kernels/cpu", NEON), (INTEL, "core", []), (INTEL, "ops", [])],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_compiles(target, part, more, tmp_path):
    files = sorted((ROOT / "csrc" / part).glob("*.c"))
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *setup_constant("C_FLAGS"), *more, "-Werror", "-O0", "-c"]

    def compiled(path):
        return subprocess.run([*command, path, "-o", tmp_path / f"{path.stem}.o"], capture_output=True, text=True)

    with ThreadPoolExecutor(2) as pool:
        errors = [done.stderr for done in pool.map(compiled, files) if done.returncode]
    assert files and not errors, "\n".join(errors)


def test_an_error_would_be_seen(tmp_path):
    bad = tmp_path / "bad.c"
    bad.write_text("#include <sched.h>\nint cpu(void) { return sched_getcpu(); }\n")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", ARM, "-c", str(bad)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and "sched_getcpu" in done.stderr
