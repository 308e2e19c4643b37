"""Split products (csrc/kernels/cpu/tiles) with emulated instructions, on any processor: tests/c/test_tiles.c says what is compared."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from transformer_c import _core

ROOT = Path(__file__).parent.parent
COMPILER = shlex.split(os.environ.get("CC", "")) or ["cc"]
FLAGS = ["-std=gnu11", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", "-DTC_PRECISION=32"]
FLAGS += [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'tests' / 'c'}"]
OWN = {"amx": ["-mamx-tile", "-mamx-bf16"], "avx512_bf16": ["-mavx512bf16", "-mavx512f", "-mavx512bw", "-mavx512vl"]}


def build(folder, isa):
    """The program; with the processor's own instructions beside the emulated ones, where it has them."""
    kind = ["-DTC_TILES_BESIDE=baseline", *(["-DTC_DOTS"] if isa == "avx512_bf16" else [])]
    kernels = ROOT / "csrc" / "kernels" / "cpu"
    objects = [
        ("baseline", kernels / "gemm.c", []),
        ("emulated", kernels / "tiles" / "gemm.c", [*kind, "-DTC_EMULATE_TILES"]),
    ]
    has_it = _core.cpu_isas().get(isa)
    if has_it:
        objects.append((isa, kernels / "tiles" / "gemm.c", [*kind, *OWN[isa]]))
    objects.append(("test", ROOT / "tests" / "c" / "test_tiles.c", [*kind, *([f"-DNATIVE={isa}"] if has_it else [])]))
    running = [
        subprocess.Popen([*COMPILER, *FLAGS, *more, f"-DTC_ISA={name}", "-c", str(source), "-o", str(folder / f"{name}.o")])
        for name, source, more in objects
    ]
    assert [process.wait() for process in running] == [0] * len(objects)
    program = folder / "test_tiles"
    subprocess.run([*COMPILER, *(str(folder / f"{name}.o") for name, _, _ in objects), "-o", str(program), "-lm"], check=True)
    return program


@pytest.mark.parametrize("kind", OWN)
def test_split_products(tmp_path, kind):
    done = subprocess.run([build(tmp_path, kind)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-3000:]
