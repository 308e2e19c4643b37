"""benchmarks/random_calls: every family on both libraries with small tensors, and its tables from known times."""

import importlib.util
import json

import pytest
import transformer_c as tc

from benchmarks.random_calls import __main__ as command
from benchmarks.random_calls.measure import FAMILIES, Result, draw_call, measure

LARGEST = 1 << 9  # elements of a tensor


@pytest.fixture(scope="module")
def torch():
    """PyTorch, or None where it is not installed."""
    return importlib.import_module("torch") if importlib.util.find_spec("torch") else None


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_pytorch_numbers(family, torch, monkeypatch):
    monkeypatch.setattr("benchmarks.random_calls.measure.TURN_SECONDS", 0.0)
    for seed in range(6):
        result = measure(family, seed, tc, torch, turns=1, largest=LARGEST)
        assert result.error is None and result.agree is not False and result.ours_us > 0, result
        assert (result.ratio is None) == (torch is None)


def test_a_seed_gives_the_same_call():
    for family in FAMILIES:
        first, second = (draw_call(family, 3, LARGEST) for _ in range(2))
        assert str(first) == str(second) and all((x.array == y.array).all() for x, y in zip(first.inputs, second.inputs, strict=True))
    assert len({str(draw_call("unary", seed, LARGEST)) for seed in range(8)}) > 4


@pytest.fixture
def fixed_times(monkeypatch):
    """The command without any timing: the ratio of a call is a tenth of its seed, and seed 9 fails."""

    def measure(family, seed, ours, torch, turns):
        if seed == 9:
            return Result(family, seed, "call", error="ours: TypeError: no")
        return Result(family, seed, "call", 10.0, seed + 1.0, (seed + 1) / 10, seed != 5)

    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(command, "versions", dict)
    monkeypatch.setattr(command.importlib, "import_module", lambda name: tc)
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(tc, "set_num_threads", lambda number: None)


def test_the_tables_and_the_result(fixed_times, tmp_path, capsys):
    path = tmp_path / "result.json"
    assert command.main(["sorting", "unary:30", "--calls", "10", "--json", str(path)]) == 0
    summary, worst, refused, different = capsys.readouterr().out.split("\n\n")
    assert [line.split() for line in summary.splitlines()] == [
        ["family", "calls", "median", "lowest", "<", "0.8", "<", "0.4"],
        ["unary", "1", "3.10", "3.10", "0", "0"],
        ["sorting", "9", "0.50", "0.10", "7", "3"],
        ["all", "10", "0.55", "0.10", "7", "3"],
    ]
    assert worst.splitlines()[1].split() == ["0.10", "10.0", "1.0", "sorting:0", "call"] and "unary:30" in worst.splitlines()[-1]
    assert refused.splitlines() == ["not run:", "sorting:9  call  ours: TypeError: no"]
    assert different.split("\n")[:2] == ["different numbers:", "sorting:5  call  "]
    results = json.loads(path.read_text())
    assert len(results["results"]) == 11 and results["results"][0]["ratio"] == 3.1 and {"cpu", "versions", "commit"} <= results.keys()


def test_without_pytorch_the_slowest_come_first(fixed_times, monkeypatch, capsys):
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(command, "measure", lambda family, seed, *rest: Result(family, seed, "call", 1.0 + seed))
    assert command.main(["unary", "--calls", "3"]) == 0
    said, header, slowest, *_ = capsys.readouterr().out.splitlines()
    assert "PyTorch is not installed" in said and header.split()[0] == "ratio" and slowest.split() == ["-", "3.0", "-", "unary:2", "call"]


def test_a_list_of_calls_runs_nothing(capsys):
    assert command.main(["unary", "loaders:2", "--calls", "2", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["loaders:2", "unary:0", "unary:1"]


@pytest.mark.parametrize("arguments", [["nothing_like_it"], ["unary:"], ["unary:-1"], ["--calls", "0"], ["--turns", "0"], ["--seed", "-1"]])
def test_bad_options_are_usage_errors(arguments, capsys):
    with pytest.raises(SystemExit) as exit_status:
        command.main(arguments)
    assert exit_status.value.code == 2 and "usage" in capsys.readouterr().err
