"""The inner loops of the products as clang compiles them with the flags of setup.py: no sum waits in memory. Its releases before 20 skip GCC's
pragmas, and its scheduler loads operands so far ahead that sums find no register; either takes up to twice the time, or more."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from machine_code import loops_of, of_setup

ROOT = Path(__file__).parents[1]
CLANG = next(filter(None, map(shutil.which, ("clang", *(f"clang-{release}" for release in range(30, 11, -1))))), None)
pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or not CLANG or not shutil.which("objdump"), reason="not an x86-64 processor, no clang, or no objdump"
)


@pytest.mark.parametrize(("target", "tile"), [("avx2", (48, 24)), ("avx512", (28, 14))])
def test_sums_of_products_stay_in_registers(tmp_path, target, tile):
    compiled = tmp_path / "gemm.o"
    flags = [flag for flag in of_setup("C_FLAGS") if not flag.startswith("-W")]
    flags += ["-O3", *of_setup("UNSCHEDULED"), *of_setup("ISAS")["__x86_64__"][target], f"-DTC_ISA={target}", "-DTC_PRECISION=32"]
    command = [CLANG, *flags, f"-I{ROOT / 'csrc'}", "-c", ROOT / "csrc/kernels/cpu/gemm.c", "-o", compiled]
    subprocess.run(command, check=True)
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", compiled], capture_output=True, text=True, check=True).stdout
    products = [loop for loop in loops_of(text) if loop.fused >= 16 and loop.fused == 2 * loop.broadcasts]
    of_tile = [loop for loop in products if (loop.fused, loop.broadcasts) == tile]
    assert len(products) > 15 and len([loop for loop in of_tile if loop.spills == 0]) >= 2, [(loop.length, loop.spills) for loop in of_tile]
    unrolled = [loop for loop in products if loop.fused >= 32]  # or tall tiles, of which those that widen halves have a few more vectors
    assert not any(loop.saves for loop in unrolled), [(loop.fused, loop.saves) for loop in unrolled]
