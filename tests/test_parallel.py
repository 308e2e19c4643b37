"""Several processes share the tests: one marked `alone` runs while no other does. Cases that differ in little take turns."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("xdist")

TESTS = """
import os, pathlib, time
import pytest

def note(word, seconds):
    with open(os.environ["NOTES"], "a") as file:
        file.write(word + " begins\\n")
    time.sleep(seconds)
    with open(os.environ["NOTES"], "a") as file:
        file.write(word + " ends\\n")

@pytest.mark.parametrize("i", range(12))
def test_shared(i):
    note(f"{i}", 0.02)

@pytest.mark.alone
@pytest.mark.parametrize("i", range(4))
def test_alone(i):
    note("alone", 0.02)

@pytest.mark.parametrize("i", range(12))
def test_shared_later(i):
    note(f"{i} later", 0.02)
"""


def overlaps(notes):
    """(whether two tests ran at the same time, whether anything ran with one that is alone)."""
    running, together, disturbed = set(), False, False
    for line in notes:
        name, _, what = line.rpartition(" ")
        (running.add if what == "begins" else running.discard)(name)
        together |= len(running) > 1
        disturbed |= len(running) > 1 and "alone" in running
    return together, disturbed


def test_a_test_marked_alone_runs_alone(tmp_path, monkeypatch):
    folder = Path(__file__).parent
    for name in ("conftest.py", "unchanged.py"):
        (tmp_path / name).write_text((folder / name).read_text())
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = alone\n")
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "28 passed" in done.stdout, done.stdout + done.stderr
    assert overlaps((tmp_path / "notes").read_text().splitlines()) == (True, False)


def collected(file, *options):
    """The cases that pytest would run."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options, file]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.parametrize(
    "file, words",
    [
        (
            "tests/ops/test_equal_bits.py",
            ("baseline", "avx2", "avx512", "avx512_bf16", "amx", "neon", "1-threads", "2-threads", "3-threads"),
        ),
        ("tests/gpu_emulation/test_cuda_gemm.py", ("round_robin", "greedy", "random")),
    ],
)
def test_by_turns_every_case_runs_once(file, words):
    """Each case with one of its instruction sets, numbers of threads and schedules, and each of those with some case."""
    every, turns = collected(file), collected(file, "--by-turns")

    def case(line):
        return re.sub(rf"(?<=[\[-])({'|'.join(words)})(?=[\]-])", "", line)

    assert sorted(map(case, turns)) == sorted({*map(case, every)}) and {*turns} <= {*every} and len(turns) < len(every)
    for word in words:
        assert any(word in line for line in turns) == any(word in line for line in every), word


def test_at_most_some_cases_of_each_test_run():
    """As many as asked for, or all that there are, in the order that they have; with every value of the parameters of one test."""
    file = "tests/gpu_emulation/test_cuda_gemm.py"
    every, some = collected(file, "--by-turns"), collected(file, "--by-turns", "--at-most", "6")
    assert some == [line for line in every if line in {*some}]
    all_of, some_of = (Counter(line.partition("[")[0] for line in lines) for lines in (every, some))
    assert some_of == {test: min(cases, 6) for test, cases in all_of.items()} and max(all_of.values()) > 6
    for value in ("float32", "float64", "float16", "bfloat16", "gelu", "relu", "None", "plain", "tensor", "tf32"):
        assert any("::test_epilogue[" in line and value in line for line in some), value
