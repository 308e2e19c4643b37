"""How many instructions fixed workloads take, next to tests/instructions.json. Callgrind counts them: what makes a step longer fails here, on a
machine of any speed. tools/count_instructions.py explains what is counted."""

import json
import shutil
from pathlib import Path

import pytest
from transformer_c import _core

from tools import count_instructions

COMMITTED = json.loads(count_instructions.COMMITTED.read_text())
MOST, LEAST = 1.03, 0.9  # of what is committed. Below the least the gain is to be committed, so that it stays.


def test_every_workload_has_a_committed_count():
    assert list(COMMITTED["instructions"]) == list(count_instructions.WORKLOADS)


def misses(found):
    """One line for each count that is not the committed one."""
    for name, count in found.items():
        share = count / COMMITTED["instructions"][name]
        if not LEAST <= share <= MOST:
            yield f"{name}: {count:,.0f} instructions, {share:.3f} of the committed; if that is meant: tools/count_instructions.py --write"


def test_misses_are_named():
    committed = COMMITTED["instructions"]
    name = next(iter(committed))
    assert not list(misses(committed))
    assert [line.split(", ")[-1][:5] for line in misses({name: 1.04 * committed[name]})] == ["1.040"]
    assert list(misses({name: 0.89 * committed[name]}))


def test_callgrinds_files_are_read():
    """The lines of calls repeat the called functions' own; an object's name is given once."""
    dump = """version: 1
positions: line
events: Ir
summary: 138

ob=(1) /usr/bin/python
fn=(1) main
10 5
+2 3
cob=(2) /usr/lib/_core.cpython-311-x86_64-linux-gnu.so
cfn=(2) tc_gemm
calls=7 0
* 130

ob=(2)
fn=(2)
0 130
"""
    assert count_instructions.instructions(dump) == (130, 138)


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
@pytest.mark.skipif(not _core.cpu_isas().get("avx2"), reason="no AVX2, whose kernels are counted")
def test_no_workload_takes_more_instructions():
    library = Path(_core.__file__)
    compiler = " ".join(map(str, count_instructions.built_by(library)))
    if compiler != COMMITTED["compiler"]:
        pytest.skip(f"counted with {COMMITTED['compiler']}; this library was built by {compiler}")
    found = count_instructions.count(library.parents[1], list(COMMITTED["instructions"]))
    assert not list(misses({name: library for name, (library, _) in found.items()}))
