"""What the kernels would cost a GPU has not risen: counts.py counts it, counts.json has what is committed."""

import copy
import re
import subprocess
import sys

import counts
import emulation
import pytest

pytestmark = [
    pytest.mark.minutes,
    pytest.mark.skipif(sys.platform != "linux", reason="fibers and --wrap are Linux's here"),
]


@pytest.mark.follows_from(
    *emulation.BEHAVIOUR, *emulation.CHOICE, "tests/gpu_emulation/counts.json", programs=[" ".join(emulation.compiler())]
)
def test_no_count_has_risen():
    compiler, before = counts.committed()
    if compiler != counts.compiler_version():
        pytest.skip(
            f"counts.json is of {compiler}; {counts.compiler_version()} keeps other values in registers: install {emulation.COUNTED_BY}"
        )
    now = counts.count()
    assert all(now.values()), f"nothing is launched by {[case for case, kernels in now.items() if not kernels]}"
    rises, others = counts.differences(before, now)
    assert not rises, "more work than in counts.json:\n" + "\n".join(rises)
    assert not others, "less or other work: keep it by python tests/gpu_emulation/counts.py --write\n" + "\n".join(others)


def test_every_kernel_has_counts():
    """By its name, in some case: a kernel without a case could grow unseen."""
    _, before = counts.committed()
    counted = {re.sub("<.*", "", kernel) for kernels in before.values() for kernel in kernels}
    assert emulation.launch_bounds().keys() <= counted


def test_asynchronous_copies_are_counted():
    """At the waits of each case of a kernel that makes any. In a product only the last step of k waits for all that is on its way."""
    _, before = counts.committed()
    rows = [(kernel, row) for kernels in before.values() for kernel, row in kernels.items()]
    assert {kernel.split("<")[0] for kernel, row in rows if row["copy_waits"]} >= {"gemm_tensor_kernel"}
    assert all(row["idle_waits"] <= row["copy_waits"] for _, row in rows)
    assert all(row["idle_waits"] == row["threads"] for kernel, row in rows if kernel.startswith("gemm_tensor_kernel"))


def test_tensor_cores_are_fed_without_bank_conflicts():
    """In every case of a product on them, whichever way its operands run; and the mma are those of whole tiles."""
    _, before = counts.committed()
    rows = {
        (case, kernel): row for case, kernels in before.items() for kernel, row in kernels.items() if row["tensor"] and "gemm" in kernel
    }
    assert {kernel.split(", ", 1)[1] for _, kernel in rows} >= {
        "128, true, false, false>",
        "64, true, true, false>",
        "64, false, false, true>",
    }
    assert all(row["wavefronts"] == row["ideal_wavefronts"] for row in rows.values())
    assert rows["product bfloat16 128x128x768", "gemm_tensor_kernel<bfloat16, 128, true, false, false>"]["tensor"] == 128 * 128 * 768 / 2048


def test_sorting_is_not_quadratic():
    """Twice the elements take little more than twice the requests."""
    _, before = counts.committed()
    once, twice = (before[f"sorted_rows float32 1x{n}"]["argsort_kernel<float>"]["requests"] for n in (2048, 4096))
    assert twice < 2.5 * once


def test_each_difference_is_named():
    _, before = counts.committed()
    case, kernel = "product bfloat16 70x33x40", "gemm_kernel<bfloat16, 64, WholeSum<bfloat16>>"
    now = copy.deepcopy(before)
    assert counts.differences(before, now) == ([], [])
    row = now[case][kernel]
    row["load_sectors"] += 1
    row["wavefronts"] -= 1
    now[case]["another_kernel"] = row
    now["new case"] = now[case]
    rises, others = counts.differences(before, now)
    sectors, wavefronts = before[case][kernel]["load_sectors"], before[case][kernel]["wavefronts"]
    assert rises == [f"{case}: another_kernel is new", f"{case}: {kernel}: load_sectors {sectors} -> {sectors + 1}"]
    assert others == ["new case: has no committed counts", f"{case}: {kernel}: wavefronts {wavefronts} -> {wavefronts - 1}"]
    _, others = counts.differences(now, before)
    assert others[:2] == ["new case: is not counted any more", f"{case}: another_kernel is not launched any more"]


def names(*command):
    return set(re.findall(r" [A-Za-z] (\w+)", subprocess.run(command, capture_output=True, text=True, check=True).stdout))


@pytest.mark.follows_from(*emulation.BEHAVIOUR, programs=[" ".join(emulation.compiler())])
def test_every_mathematical_function_is_counted():
    """The kernels call no other than those of count.cpp and those that take no special instruction on a GPU."""
    kernels = [emulation.compile_object(source, "count") for source in sorted((emulation.KERNELS / "cuda").glob("*.cu"))]
    library = subprocess.run(["ldd", emulation.kernel_library("count")], capture_output=True, text=True, check=True).stdout
    mathematics = names("nm", "-D", "--defined-only", re.search(r"libm\S* => (\S+)", library)[1])
    called = names("nm", "--undefined-only", *kernels) & mathematics
    counted = {name + suffix for name in emulation.SPECIAL for suffix in ("", "f")}
    assert counted & called and called - counted <= {
        name + suffix for name in ("floor", "fmax", "rint", "frexp", "fma") for suffix in ("", "f")
    }
