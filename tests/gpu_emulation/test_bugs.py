"""The emulated GPU is only useful if it finds bugs: each file of bugs/ has one, and a corrected version."""

import pathlib
import re
import subprocess

import emulation
import pytest

BUGS = sorted((pathlib.Path(__file__).parent / "bugs").glob("*.cu"))


def claims(source):
    """(flavour, schedule, seed, pattern) of each "caught by" line."""
    text = source.read_text()
    here = next((i for i, line in enumerate(text.splitlines(), 1) if "<- here" in line), None)
    for flavour, schedule, seed, pattern in re.findall(r"^// caught by (\w+)(?: (\w+))?(?: (\d+))?: (.*)$", text, flags=re.M):
        yield flavour, schedule or "round_robin", seed or "1", pattern.replace("{here}", rf"{re.escape(source.name)}:{here}")


CLAIMS = [(source, *claim) for source in BUGS for claim in claims(source)]


def run(source, flavour, twin, schedule, seed):
    command = [emulation.program(source, flavour), twin, schedule, seed]
    if flavour == "thread":
        command = [*emulation.without_address_randomisation(), *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_there_are_bugs_of_every_kind():
    assert len(BUGS) >= 20
    assert {source.stem for source, *_ in CLAIMS} == {source.stem for source in BUGS}  # none without a claim
    assert {flavour for _, flavour, *_ in CLAIMS} == set(emulation.FLAVOURS)


@pytest.mark.parametrize("source, flavour, order, seed, pattern", CLAIMS, ids=[f"{s.stem}-{f}-{o}" for s, f, o, *_ in CLAIMS])
def test_bug_is_caught(source, flavour, order, seed, pattern):
    done = run(source, flavour, "buggy", order, seed)
    output = done.stdout + done.stderr
    assert done.returncode != 0, "the bug was not noticed"
    assert re.search(pattern, output), output


@pytest.mark.parametrize("source", BUGS, ids=[source.stem for source in BUGS])
def test_mended_twin_passes(source):
    for flavour in sorted({flavour for flavour, *_ in claims(source)}):
        for schedule in ("round_robin", "greedy", "random"):
            done = run(source, flavour, "fixed", schedule, "7")
            assert done.returncode == 0, f"{flavour}, {schedule}: {done.stdout}{done.stderr}"
