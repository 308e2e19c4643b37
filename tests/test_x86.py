"""The inner loops of the products in the library that was built, for AVX2 and AVX-512: multiply-adds, broadcasts and little else, and no sum that
waits in memory. Only machine code is read; the library has no names of functions, so loops are known by what they contain."""

import platform
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from machine_code import loops_of
from transformer_c import _core

from tools.count_instructions import built_by

pytestmark = [
    pytest.mark.skipif(
        platform.machine() != "x86_64" or not shutil.which("objdump"), reason="not an x86-64 processor, or no objdump (binutils)"
    ),
    pytest.mark.skipif(built_by(_core.__file__) != ("gcc", 12), reason="other compilers arrange the loops in other ways"),
]

# Of the tiles of a product: registers, float or double, multiply-adds and broadcasts of a turn of the loop, at most so many instructions, and
# at least so many such loops, with rows of A packed and in place. A tile of 14 rows in place loads some of its addresses from the stack.
TILES = {
    "AVX2, 6 x 2": ("ymm", "ps", 48, 24, 91, 4),
    "AVX2, 6 x 2, float64": ("ymm", "pd", 48, 24, 91, 4),
    "AVX2, 4 x 2": ("ymm", "ps", 32, 16, 67, 3),
    "AVX-512, 14 x 2": ("zmm", "ps", 28, 14, 53, 2),
    "AVX-512, 14 x 2, float64": ("zmm", "pd", 28, 14, 53, 2),
    "AVX-512, 13 x 2": ("zmm", "ps", 26, 13, 50, 2),
    "AVX-512, 8 x 2": ("zmm", "ps", 32, 16, 60, 2),
}


@pytest.fixture(scope="module")
def loops():
    """All innermost loops of the library with 16 multiply-adds of vectors or more."""
    command = ["objdump", "-d", "--no-show-raw-insn", "-j", ".text", Path(_core.__file__)]
    return [loop for loop in loops_of(subprocess.run(command, capture_output=True, text=True, check=True).stdout) if loop.fused >= 16]


@pytest.mark.parametrize("tile", TILES)
def test_the_loops_of_products(loops, tile):
    registers, precision, fused, broadcasts, most, wanted = TILES[tile]
    found = [loop for loop in loops if (loop.kind, loop.fused, loop.broadcasts) == ((precision, registers), fused, broadcasts)]
    short = [loop for loop in found if loop.length <= most and loop.spills == 0]
    assert len(short) >= wanted, [(loop.length, loop.spills) for loop in found]


def test_no_product_saves_its_sums_to_the_stack(loops):
    """But 14 rows by pairs of bfloat16, which need one register more than there are: a loop, for which one vector of 28 waits there."""
    # Functions of elements have many other instructions, and may wait for a constant on the stack.
    products = [loop for loop in loops if loop.broadcasts and loop.fused % loop.broadcasts == 0 and loop.length <= 4 * loop.fused]
    assert Counter(loop.kind[1] for loop in products)["zmm"] > 100
    saving = [loop for loop in products if loop.saves]
    assert [(loop.kind, loop.broadcasts % 28) for loop in saving] == [(("ps", "zmm"), 0)], [loop.text for loop in saving]


def test_a_spill_would_be_seen():
    (loop,) = loops_of("""
0000000000000000 <.text>:
   0:	mov    %rsi,%rax
   4:	vbroadcastss (%rax),%ymm0
   8:	vfmadd231ps (%rdx),%ymm0,%ymm1
   c:	vmovaps %ymm1,0x20(%rsp)
  10:	vandps 0x40(%rsp),%ymm2,%ymm2
  14:	add    $0x4,%rax
  18:	cmp    %rax,0x8(%rsp)
  1c:	jne    4 <.text+0x4>
  1e:	ret
""")
    assert (loop.kind, loop.fused, loop.broadcasts, loop.length, loop.spills, loop.saves) == (("ps", "ymm"), 1, 1, 7, 2, 1)
