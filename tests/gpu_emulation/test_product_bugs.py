"""Bugs in the product on tensor cores itself: each is gemm_tensor.cu with one place changed, and must be noticed by what the tests of products look
at: results, races, addresses, bank conflicts."""

import dataclasses
import re
import subprocess

import emulation
import pytest

SOURCE = emulation.KERNELS / "cuda" / "gemm_tensor.cu"
MAIN = emulation.HERE / "bugs" / "product_main.h"


@dataclasses.dataclass(frozen=True)
class Bug:
    """`place` becomes `changed`; the program of that flavour, run by that schedule, prints the pattern."""

    name: str
    place: str
    changed: str
    flavour: str
    schedule: str
    pattern: str


BUGS = [
    Bug("missing_wait", "copy_async_wait<tensor_stages - 2>();", "", "plain", "round_robin", "wrong result|never waited for"),
    Bug("wait_for_too_few", "wait<tensor_stages - 2>", "wait<tensor_stages - 1>", "plain", "round_robin", "wrong result|never waited for"),
    Bug("missing_barrier", "__syncthreads();\n            copy(", "copy(", "access", "random", "race|uninitialised"),
    Bug("wrong_stage", "free = (tensor_stages - 1)", "free = (tensor_stages - 2)", "access", "greedy", "race|uninitialised|wrong result"),
    Bug("stages_not_turned", "free = oldest;", "", "plain", "round_robin", "wrong result"),
    Bug("chunks_not_permuted", "^ row / 2 % 4", "^ 0", "count", "round_robin", "costly"),
    Bug("rows_of_k_not_permuted", "^ k % 8)", "^ 0)", "count", "round_robin", "costly"),
    Bug("permuted_otherwise_when_read", "(start ^ kk * step)", "(start + kk * step)", "plain", "round_robin", "wrong result|out of bounds"),
    Bug("wrong_matrices", "left ? i % 2 : i / 2", "left ? i / 2 : i % 2", "plain", "round_robin", "wrong result"),
    Bug("wrong_fragment", "right[j / 2][j % 2 * 2]", "right[j / 2][j % 2]", "plain", "round_robin", "wrong result"),
    Bug("not_transposed", "load_matrix_x4_transposed(", "load_matrix_x4(", "plain", "round_robin", "wrong result"),
    Bug("tile_one_too_long", "between < rows_left", "between <= rows_left", "plain", "round_robin", "out of bounds"),
    Bug("no_zeros_after_the_sum", "const bool inside = whole ||", "const bool inside = true ||", "plain", "round_robin", "wrong result|out of"),
    Bug("results_over_stages_in_use", "__syncthreads();\n            if (warp_row == top)", "if (warp_row == top)", "access", "greedy", "race"),
    Bug("results_not_ready", "__syncthreads();\n            TC_ROLLED", "TC_ROLLED", "access", "random", "race|uninitialised"),
    Bug("row_sums_of_other_lanes", "lane % 4 == 0) {", "lane / 8 == 0) {", "plain", "round_robin", "wrong result"),
]  # fmt: skip

pytestmark = pytest.mark.minutes  # of compiling


def program(folder, text, flavour):
    """Of that text; only the kernels that it starts are compiled."""
    source = folder / "product.cu"
    source.write_text(re.sub(r"^template int tc::launch_tensor_gemm.*\n", "", text, flags=re.M) + f'#include "{MAIN}"\n')
    return emulation.program(source, flavour)


def run(path, schedule):
    return subprocess.run([path, schedule, "3"], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bug_is_caught(bug, tmp_path):
    text = SOURCE.read_text()
    assert text.count(bug.place) == 1, "the kernel has changed: so must the bug"
    done = run(program(tmp_path, text.replace(bug.place, bug.changed), bug.flavour), bug.schedule)
    assert done.returncode == 1, f"the bug was not noticed: {done.stdout}{done.stderr}"
    assert re.search(bug.pattern, done.stdout), done.stdout


@pytest.mark.parametrize("flavour", sorted({bug.flavour for bug in BUGS}))
def test_the_kernel_as_it_is_passes(flavour, tmp_path):
    path = program(tmp_path, SOURCE.read_text(), flavour)
    for schedule in ("round_robin", "greedy", "random"):
        done = run(path, schedule)
        assert done.returncode == 0, f"{schedule}: {done.stdout}{done.stderr}"
