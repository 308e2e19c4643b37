"""The limits of benchmarks.mixed_lengths and benchmarks.halves, with a clock that the timed calls move."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import transformer_c as tc

from benchmarks import halves, mixed_lengths


@pytest.fixture
def clock(monkeypatch):
    """A clock that only `clock(seconds)` moves, as the calls that are timed do: that of the core or of the wall. Threads stay as they are."""
    now = [0.0]
    monkeypatch.setattr(tc, "set_num_threads", lambda number: None)
    for module in (halves, mixed_lengths):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0], process_time=lambda: now[0] / 2))
    return lambda seconds: now.__setitem__(0, now[0] + seconds)


@pytest.mark.parametrize(("mixed", "status"), [(1.09, 0), (1.11, 1)])
def test_the_limit_of_mixed_lengths(clock, monkeypatch, capsys, mixed, status):
    """Of the time for each real token, forward and training, after padding was left out of the count."""

    def forward(ids, lengths):
        clock(ids.size if lengths is None else mixed * lengths.sum())

    def train(ids, lengths):
        clock(2.0 * (ids.size if lengths is None else lengths.sum()))

    def printed(arguments):
        mixed_lengths.main(arguments)
        return capsys.readouterr().out

    monkeypatch.setattr(mixed_lengths, "calls", lambda longest: (forward, train))
    assert mixed_lengths.main(["--texts", "5", "--limit", "1.1"]) == status
    out, err = capsys.readouterr()
    assert f"{mixed:6.2f}" in out and "train" in out and "1.94" in out  # 5 * 256 positions for 660 tokens
    assert err == (
        "not met: forward: a token of mixed lengths takes 1.11 times as long as one of a full batch, at most 1.1 is allowed\n" * status
    )
    assert mixed_lengths.main(["--texts", "5"]) == 0
    for module, threads in ((mixed_lengths, "2"), (halves, "1,2")):
        with pytest.raises(SystemExit):
            module.main(["--cpu-clock", "--threads", threads])
    assert "--cpu-clock counts threads that wait as well: it needs --threads 1" in capsys.readouterr().err
    wall, core = (out.split("us for each")[0].split()[-1] for out in (printed(["--texts", "5"]), printed(["--texts", "5", "--cpu-clock"])))
    assert float(core) == float(wall) / 2


def test_mixed_lengths_that_miss_the_limit_are_measured_again(clock):
    """Three times in all; the least times count."""
    made = {"full": (np.ones((2, 3)), None), "mixed": (np.ones((2, 4)), np.array([4, 2])), "padded": (np.ones((2, 4)), None)}
    for slow, limit, calls, ratio in ((5, 1.1, 9 + 9, 1.0), (99, 1.1, 27, 2.0), (99, None, 9, 2.0), (0, 1.1, 9, 1.0)):
        seen = []

        def call(ids, lengths, seen=seen, slow=slow):
            seen.append(ids)
            clock(6.0 if lengths is None else 12.0 if len(seen) <= 2 * slow else 6.0)

        found = mixed_lengths.least_seconds(call, made, 3, limit, mixed_lengths.time.perf_counter)
        assert len(seen) == calls and found == {"full": 1.0, "mixed": ratio, "padded": 1.0}


def test_halves_that_miss_a_limit_are_measured_again(clock):
    before = halves.MOST_WEIGHTS + 2  # calls before the turns
    for slow, calls in ((2, 4), (99, 6), (0, 2)):
        turns = []

        def half(turns=turns, slow=slow):
            turns.append(1)
            clock(2.0 if before < len(turns) <= before + slow else 1.0)

        found = halves.least_seconds([lambda: clock(1.0), half], 2, lambda least: least[1] > least[0], halves.time.perf_counter)
        assert len(turns) == before + calls and found == [1.0, 2.0 if slow == 99 else 1.0]


@pytest.mark.parametrize(
    ("ratio", "reads", "arguments", "status"),
    [(1.6, True, [], 1), (1.8, True, [], 0), (0.95, False, [], 0), (0.85, False, [], 1), (0.85, False, ["--tolerance", "0.8"], 0)],
)
def test_the_limits_of_halves(clock, monkeypatch, capsys, tmp_path, ratio, reads, arguments, status):
    def build(dtype):
        return lambda: clock(1.0 if dtype == "float32" else 1.0 / (ratio if dtype == "float16" else 2.0))

    monkeypatch.setattr(halves, "cases", lambda: [halves.Case("a product", build, (), reads), halves.Case("other", build, ())])
    options = ["--only", "product", "--threads", "1", "--turns", "2", "--cpu-clock", *arguments]
    assert halves.main([*options, "--limit", "1.7", "--json", str(tmp_path / "rows.json")]) == status
    out, err = capsys.readouterr()
    wanted = 1.7 if reads else 0.9
    assert err == f"not met: a product: float16 is {ratio:.2f} times as fast as float32, {wanted} is required\n" * status
    assert ("a product *" in out) == reads and "other" not in out
    assert json.loads((tmp_path / "rows.json").read_text())[0]["float32"] == 0.5
    assert halves.main(options) == 0
    with pytest.raises(SystemExit):
        halves.main(["--only", "nothing"])


def test_which_products_read_their_weights_from_memory():
    reading = {case.name for case in halves.cases() if case.reads}
    assert {"linear 1 x 4096 x 4096", "matmul 2 x 1024 x 4096", "decoding 1024, 8 layers, 1024 cached"} <= reading
    assert not any(name.startswith(("linear 1024", "linear 1 x 384", "linear 4 x 4096", "encoder", "decoding 256")) for name in reading)
