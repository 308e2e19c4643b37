"""The code for 64-bit Arm, as a compiler for it on this machine makes it: the loops of the product. They are read, not run: what they give is
tested under an emulator (tools/emulate_arm.py), and how fast they are is not known here."""

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COMPILER, DISASSEMBLER = "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-objdump"

pytestmark = pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(DISASSEMBLER)), reason=f"there is no {COMPILER} (apt install gcc-aarch64-linux-gnu)"
)


def c_flags():
    """C_FLAGS of setup.py, which cannot be imported."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "C_FLAGS":
            return ast.literal_eval(node.value)
    raise AssertionError("setup.py has no C_FLAGS")


@pytest.fixture(scope="module", params=[32, 64], ids=["float32", "float64"])
def functions(request, tmp_path_factory):
    """{name: [(address, instruction, operands)]} of gemm.c."""
    made = tmp_path_factory.mktemp("arm") / "gemm.o"
    names = ["-DTC_NEON", "-DTC_ISA=neon", f"-DTC_PRECISION={request.param}"]
    subprocess.run([COMPILER, *c_flags(), "-O3", *names, "-c", "csrc/kernels/cpu/gemm.c", "-o", made], cwd=ROOT, check=True)
    text = subprocess.run([DISASSEMBLER, "-d", "--no-show-raw-insn", made], capture_output=True, text=True, check=True).stdout
    return parse(text)


def parse(text):
    found, code = {}, None
    for line in text.splitlines():
        if named := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            code = found.setdefault(named[1], [])
        elif one := re.match(r"\s+([0-9a-f]+):\s+(\S+)\s*(.*)$", line):
            code.append((int(one[1], 16), one[2], one[3]))
    return found


def innermost_loops(code):
    """Ranges of a function that end in a jump to their beginning and contain no other such range."""
    places = {address: i for i, (address, _, _) in enumerate(code)}
    ends = [
        (i, re.search(r"\b([0-9a-f]+) <", operands)) for i, (_, name, operands) in enumerate(code) if re.match(r"b$|b\.|cbn?z|tbn?z", name)
    ]
    ranges = [(places[int(to[1], 16)], i) for i, to in ends if to and places.get(int(to[1], 16), i + 1) <= i]
    return [code[a : b + 1] for a, b in ranges if not any((c, d) != (a, b) and a <= c and d <= b for c, d in ranges)]


def product_loop(code):
    """The loop with the most multiply-adds; of several, the one that takes whole vectors of b has the fewest other instructions."""
    return max(innermost_loops(code), key=lambda loop: (multiply_adds(loop), -len(loop)))


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
