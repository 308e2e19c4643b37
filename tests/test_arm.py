"""The code for 64-bit Arm, as a compiler for it on this machine makes it: the loops of the product. They are read, not run: what they give is
tested under an emulator (tools/emulate_arm.py), and how fast they are is not known here."""

import re
import shutil
import subprocess

import pytest
from machine_code import innermost_loops, parse

from benchmarks.harness import ROOT, setup_constant

COMPILER, DISASSEMBLER = "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-objdump"
JUMP = r"b$|b\.|cbn?z|tbn?z"

pytestmark = pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(DISASSEMBLER)), reason=f"there is no {COMPILER} (apt install gcc-aarch64-linux-gnu)"
)


@pytest.fixture(scope="module", params=[32, 64], ids=["float32", "float64"])
def functions(request, tmp_path_factory):
    """{name: [(address, instruction, operands)]} of gemm.c."""
    made = tmp_path_factory.mktemp("arm") / "gemm.o"
    names = ["-DTC_NEON", "-DTC_ISA=neon", f"-DTC_PRECISION={request.param}"]
    subprocess.run([COMPILER, *setup_constant("C_FLAGS"), "-O3", *names, "-c", "csrc/kernels/cpu/gemm.c", "-o", made], cwd=ROOT, check=True)
    text = subprocess.run([DISASSEMBLER, "-d", "--no-show-raw-insn", made], capture_output=True, text=True, check=True).stdout
    return parse(text)


def product_loop(code):
    """The loop with the most multiply-adds; of several, the one that takes whole vectors of b has the fewest other instructions."""
    return max(innermost_loops(code, JUMP), key=lambda loop: (multiply_adds(loop), -len(loop)))


def multiply_adds(loop):
    return sum(name == "fmla" for _, name, _ in loop)


# Of 8 rows and 2 vectors: at most so many other instructions for each multiply-add of a vector. Elements of packed rows are lanes of two
# loads a step; of rows in place, of eight loads for as many steps as a vector has lanes.
@pytest.mark.parametrize(("tile", "others"), [("tile_8x2_packed", 0.45), ("tile_8x2_plain", 0.6)])
def test_the_product_neither_spills_nor_broadcasts(functions, tile, others):
    loop = product_loop(functions[tile])
    fused = multiply_adds(loop)
    text = "\n".join(f"{name} {operands}" for _, name, operands in loop)
    assert fused >= 32 and (len(loop) - fused) / fused <= others, text
    assert "[sp" not in text and not re.search(r"^(ld1r|dup|fmul|fadd)\b", text, re.MULTILINE), text


def test_a_spill_and_a_broadcast_would_be_seen():
    code = parse("""
0000000000000000 <tile>:
   0:	mov	x0, x1
   4:	ld1r	{v0.4s}, [x1]
   8:	fmla	v1.4s, v0.4s, v2.4s
   c:	str	q1, [sp, #16]
  10:	b.ne	4 <tile+0x4>  // b.any
  14:	ret
""")["tile"]
    assert [name for _, name, _ in product_loop(code)] == ["ld1r", "fmla", "str", "b.ne"]
    assert multiply_adds(product_loop(code)) == 1
