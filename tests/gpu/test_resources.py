"""The committed figures of ptxas: every kernel, every target, no spill; and reading its output."""

import json
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tools"), str(ROOT / "tests" / "gpu_emulation")]
import build_cuda  # noqa: E402
import emulation  # noqa: E402

from benchmarks import cuda_resources  # noqa: E402

PRINTED = """\
ptxas info    : Compiling entry function '_Z3oneILi4EEvPf' for 'sm_80'
ptxas info    : Function properties for _Z3oneILi4EEvPf
    32 bytes stack frame, 36 bytes spill stores, 208 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 32 bytes cumulative stack size, 64 bytes smem, 424 bytes cmem[0]
ptxas info    : Compiling entry function '_Z3twov' for 'sm_80'
ptxas info    : Function properties for _Z3twov
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""


def test_what_ptxas_prints_is_read():
    one, two = cuda_resources.read_report(PRINTED)
    assert (one["registers"], one["shared_bytes"], one["stack_bytes"]) == (40, 64, 32)
    assert (one["spill_store_bytes"], one["spill_load_bytes"], one["target"]) == (36, 208, "sm_80")
    assert (two["kernel"], two["registers"], two["shared_bytes"], two["spill_store_bytes"]) == ("_Z3twov", 8, 0, 0)
    with pytest.raises(ValueError, match="not understood"):
        cuda_resources.read_report(PRINTED.replace("Used", "Takes"))


def has_kernels(path):
    """Of its own, or of a header that it includes."""
    text = path.read_text()
    headers = [path.parent / name for name in re.findall(r'^#include "(\w+\.cuh)"', text, flags=re.M)]
    return any("__global__" in one for one in (text, *(header.read_text() for header in headers)))


def test_the_committed_figures_are_whole_and_without_spills():
    found = json.loads((ROOT / "benchmarks" / "results" / "kernels.json").read_text())
    assert found["targets"] == build_cuda.TARGETS
    rows = found["kernels"]
    files = {path.name for path in build_cuda.sources() if has_kernels(path)}
    for target in build_cuda.TARGETS:
        assert {row["file"] for row in rows if row["target"] == target} == files
        names = {re.sub("<.*", "", row["kernel"]).split("::")[-1] for row in rows if row["target"] == target}
        assert names == emulation.launch_bounds().keys()
    assert not [row for row in rows if row["spill_store_bytes"] or row["spill_load_bytes"]]


def test_the_library_was_linked_for_every_target():
    found = json.loads((ROOT / "benchmarks" / "results" / "cuda_library.json").read_text())
    assert [build["targets"] for build in found["builds"]] == [["sm_75", "sm_80"], build_cuda.TARGETS]
    assert all(2**20 < build["bytes"] < 32 * 2**20 and build["processor_seconds"] > 0 for build in found["builds"])
