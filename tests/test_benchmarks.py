"""The benchmark harness, with contenders of known speed; the workloads themselves run with `--slow`."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import shutil
import sys
import textwrap

import pytest

from benchmarks import harness, run

FAMILY = """
    import os, time
    from benchmarks.harness import Workload

    def sleeper(name, seconds):
        def build():
            print("a library that prints")
            cores = sorted(os.sched_getaffinity(0))
            def call():
                with open(os.environ["CALLS"], "a") as log:
                    log.write(f"{name} {os.getpid()} {cores} {os.environ['OMP_NUM_THREADS']} {os.environ['TRANSFORMER_C_NUM_THREADS']}\\n")
                time.sleep(seconds)
            return call
        return build

    def broken():
        raise RuntimeError("this side cannot run")

    def dies():
        return lambda: os._exit(7)

    WORKLOADS = [
        Workload("naps", sleeper("ours", 0.004), {"slow": sleeper("torch slow", 0.03), "good": sleeper("torch good", 0.012)}, flops=1e6),
        Workload("broken", broken, sleeper("torch", 0.001)),
        Workload("dies", dies, sleeper("torch", 0.001)),
    ]
"""
EFFORT = harness.Effort(turns=3, turn_seconds=0.02, warm_seconds=0.01)
PEAKS = harness.Peaks(flops=2e9, tile=1e9, copy=((1000, 1e9), (2000, 5e8)))


@pytest.fixture
def family(tmp_path, monkeypatch):
    """A module `dummy_family` of workloads that sleep; gives {name: workload} and the log of their calls."""
    (tmp_path / "dummy_family.py").write_text(textwrap.dedent(FAMILY))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("dummy_family", None)
    module = importlib.import_module("dummy_family")
    yield {workload.name: workload for workload in module.WORKLOADS}, tmp_path / "calls"
    sys.modules.pop("dummy_family", None)


def make_row(**values):
    row = harness.Row("name", 1, 10.0, 30.0, None, 3.0, 0.01, 5.0, "FLOP", 0.5, "avx2")
    return dataclasses.replace(row, **values)


# ---- measuring -----------------------------------------------------------------------------------------------------


@pytest.mark.alone
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores are pinned on Linux only")
def test_contenders_take_turns_in_processes_of_their_own(family):
    workloads, log = family
    row = harness.measure("dummy_family", workloads["naps"], 1, lambda: PEAKS, EFFORT)
    assert row.torch_variant == "good"
    assert row.ours_us >= 4000 and row.torch_us >= 12000
    assert 1.1 < row.ratio < 6  # 12 ms to 4 ms, and what waking up costs on a machine with ten other things to do
    assert row.bound_us == pytest.approx(1000) and row.bound_by == "FLOP"
    assert row.share_of_bound == pytest.approx(row.bound_us / row.ours_us)

    names, pids, cores = [], {}, set()
    for line in log.read_text().splitlines():
        who, _, where = line.rpartition(" [")
        name, _, pid = who.rpartition(" ")
        names += [name] if not names or names[-1] != name else []
        pids.setdefault(name.split()[0], set()).add(pid)
        cores.add(where)
    assert names == ["torch slow", "torch good", "ours"] * (1 + EFFORT.turns)  # warm-up, then turns
    assert [len(p) for p in pids.values()] == [1, 1] and pids["ours"] != pids["torch"]
    assert cores == {f"{harness.choose_cores(1)[0]}] 1 1"}  # one core, and every library told so


@pytest.mark.alone
def test_ours_alone_without_pytorch(family):
    workloads, log = family
    row = harness.measure("dummy_family", workloads["naps"], 1, None, EFFORT, contenders=("ours",))
    assert row.ratio is None and row.torch_us is None and row.bound_us is None and row.ours_us >= 4000
    assert "torch" not in log.read_text()
    assert " - " in run.format_row(row)


@pytest.mark.parametrize(("name", "message"), [("broken", "this side cannot run"), ("dies", "ended with status 7")])
def test_a_contender_that_fails_is_named_with_its_message(family, name, message):
    with pytest.raises(harness.BenchmarkError, match=f"(?s){name}: contender ours.*{message}"):
        harness.measure("dummy_family", family[0][name], 1, lambda: PEAKS, EFFORT)


def test_more_threads_than_cores_are_refused():
    with pytest.raises(harness.BenchmarkError, match="cores may be used"):
        harness.choose_cores(len(harness.available_cores()) + 1)


def test_row_of_known_times():
    workload = harness.Workload("w", None, None, flops=4000, bytes=1500)
    times = {("torch", "a"): [6e-6, 8e-6, 7e-6], ("torch", "b"): [5e-6, 9e-6, 9e-6], ("ours", ""): [2e-6, 2e-6, 3.5e-6]}
    row = harness.make_row(workload, 2, times, PEAKS)
    assert (row.torch_variant, row.threads) == ("a", 2)
    assert row.ratio == pytest.approx(3) and row.spread == pytest.approx((4 - 2) / 2 / 3)  # ratios 3, 4, 2
    assert (row.ours_us, row.torch_us) == (pytest.approx(2), pytest.approx(7))
    assert (row.bound_us, row.bound_by, row.share_of_bound) == (pytest.approx(4), "FLOP", pytest.approx(2))


def test_bounds():
    def bound(**cost):
        return PEAKS.bound(harness.Workload("w", None, None, **cost))

    assert bound(flops=1e6, bytes=100) == (1e-3, "FLOP")
    assert bound(flops=1, bytes=1000) == (1e-6, "bytes")
    assert bound(bytes=1001) == (pytest.approx(2.002e-6), "bytes")  # the slower level
    assert bound(bytes=1e9) == (2.0, "bytes")  # larger than any that was measured
    assert bound() == (None, None)


def test_number_of_calls_fits_the_time():
    effort = harness.Effort(turn_seconds=0.2)
    assert [effort.calls(s) for s in (1e-6, 1e-3, 0.09, 5)] == [effort.max_calls, 200, 3, 1]


def test_the_better_rates_beside_a_workload_count():
    slower = harness.Peaks(flops=1e9, tile=2e9, copy=((1000, 2e9), (2000, 4e8)))
    better = harness.Peaks(flops=2e9, tile=2e9, copy=((1000, 2e9), (2000, 5e8)))
    assert PEAKS.or_better(slower) == better == slower.or_better(PEAKS)


def test_geometric_mean():
    assert harness.geometric_mean([2.0, 8.0]) == pytest.approx(4)
    assert harness.geometric_mean([]) is None


@pytest.mark.alone
@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")
def test_peaks_of_this_machine():
    for isa in harness.usable_instruction_sets()[0]:
        peaks = harness.measure_peaks(1, isa)
        assert 1e9 < peaks.tile < 1e13 and 1e9 < peaks.flops < 1e13
    sizes = [size for size, _ in peaks.copy]
    assert sizes == sorted(sizes) and all(1e8 < rate < 1e13 for _, rate in peaks.copy)


# ---- the command line ----------------------------------------------------------------------------------------------


@pytest.fixture
def fixed_rows(monkeypatch):
    """The command without any timing: every workload is three times as fast as PyTorch."""
    monkeypatch.setattr(harness, "peak_meter", lambda threads, isa: contextlib.nullcontext(lambda trials: PEAKS))
    monkeypatch.setattr(harness, "choose_cores", lambda threads: list(range(threads)))
    monkeypatch.setattr(harness, "measure", lambda m, w, threads, p, e, c, isa: make_row(workload=w.name, threads=threads, isa=isa))
    monkeypatch.setattr(harness, "usable_instruction_sets", lambda: (["baseline", "avx2", "avx512"], "avx512"))


def test_quick_leaves_out_what_is_heavy_and_not_named():
    def names(*patterns, quick=True):
        return {w.name for _, w in run.select(patterns, quick)}

    heavy = {w.name for _, w in run.workloads() if w.heavy}
    assert (
        "reverse_epoch" in heavy and not names() & heavy and {"reverse_step", "anomaly_step"} <= names()
    )  # trainings are what it is about
    assert names("reverse_epoch", "tiny_train") == {"reverse_epoch", "tiny_train"}
    assert names("reverse*") == {"reverse_step"} and names("reverse*", quick=False) == {"reverse_step", "reverse_epoch"}


def test_command_prints_and_writes_json(fixed_rows, tmp_path, capsys):
    path = tmp_path / "result.json"
    assert run.main(["--only", "layer_norm", "--only", "tiny_f*", "--threads", "1,2", "--quick", "--json", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "geometric mean of the ratios: 3.00" in printed and "avx512, 2 threads: 2 GFLOP/s of float32 FMA, 1 of the tile in L1" in printed
    result = json.loads(path.read_text())
    names = [row["workload"] for row in result["rows"]]
    assert len(names) % 2 == 0 and {"tiny_forward", "layer_norm_4096x768"} <= set(names) and "tiny_train" not in names
    assert result["geometric_mean"] == {"avx512": {"1": pytest.approx(3), "2": pytest.approx(3)}}
    assert result["rows"][0]["ratio"] == 3 and result["peaks"]["avx512"]["2"]["tile"] == 1e9
    assert {"date", "cpu", "cores", "versions", "commit"} <= set(result)


def test_every_instruction_set_in_one_table(fixed_rows, monkeypatch, tmp_path, capsys):
    forced = []

    def measure(module, workload, threads, peaks, effort, contenders, isa):
        forced.append((os.environ["TRANSFORMER_C_ISA"], os.environ["ATEN_CPU_CAPABILITY"], os.environ["MKL_ENABLE_INSTRUCTIONS"]))
        return make_row(workload=workload.name, threads=threads, isa=isa, ours_us=10.0 / threads, ratio=4.0 if isa == "avx512" else 2.0)

    monkeypatch.setattr(harness, "measure", measure)
    monkeypatch.setenv("TRANSFORMER_C_ISA", "avx512")
    path = tmp_path / "result.json"
    assert run.main(["--only", "softmax", "--isa", "all", "--threads", "1,2", "--json", str(path)]) == 0
    assert set(forced) == {("avx2", "avx2", "AVX2"), ("avx512", "avx512", "AVX512")} and "ATEN_CPU_CAPABILITY" not in os.environ
    table = capsys.readouterr().out.split("\n\n")[5].splitlines()
    assert table[0].split() == ["ratio,", "share,", "times", "one", "thread", "avx2,", "1", "avx2,", "2", "avx512,", "1", "avx512,", "2"]
    assert table[1].split() == ["softmax", "2.00", "50%", "2.00", "50%", "2.00", "4.00", "50%", "4.00", "50%", "2.00"]
    assert table[-2].split()[-4:] == ["2.00", "2.00", "4.00", "4.00"] and table[-1].startswith("the lowest ratio")
    result = json.loads(path.read_text())
    assert list(result["peaks"]) == ["avx2", "avx512"] and {row["isa"] for row in result["rows"]} == {"avx2", "avx512"}


def test_shares_of_the_bound_that_are_wanted(fixed_rows, monkeypatch, capsys):
    """What a workload names; for others 1 / 1.3, where a call takes more than 1 ms."""
    wanted = {"product": 0.92, "other": None}
    rows = [
        make_row(workload=name, ours_us=us, share_of_bound=share)
        for name in wanted
        for us in (10.0, 1001.0)
        for share in (0.76, 0.91, 0.93)
    ]
    short = list(run.short_of_share(rows, wanted))
    assert [line.split(" of ")[0] for line in short] == [
        "product, avx2, 1 thread: 0.76", "product, avx2, 1 thread: 0.91", "product, avx2, 1 thread: 0.76", "product, avx2, 1 thread: 0.91",
        "other, avx2, 1 thread: 0.76",
    ]  # fmt: skip
    assert short[-1].endswith("of its bound (FLOP), 0.77 is wanted") and not list(
        run.short_of_share([make_row(share_of_bound=None)], {"name": 0.9})
    )
    for arguments, status in (([], 0), (["--shares"], 1)):
        assert run.main(["--only", "linear_4096x512x2048", *arguments]) == status
        assert "0.50 of its bound (FLOP), 0.92 is wanted" in capsys.readouterr().out
    assert run.main(["--only", "softmax", "--shares"]) == 0  # 10 us


@pytest.mark.parametrize(
    ("requirement", "status"), [("reverse_step=2.5", 0), ("reverse_step=3.5", 1), ("reverse_step@1=3.5", 1), ("reverse_step@2=3", 0)]
)
def test_requirements_decide_the_exit_status(fixed_rows, capsys, requirement, status):
    assert run.main(["--only", "reverse_step", "--threads", "1,2", "--require", requirement]) == status
    assert ("not met: reverse_step" in capsys.readouterr().err) == bool(status)


def test_a_requirement_that_could_not_be_measured_is_not_met():
    assert list(run.unmet([("name", None, 2.0)], [make_row(ratio=None)])) == [
        "name: a ratio of 2.0 is required, but PyTorch is not installed"
    ]
    assert list(run.unmet([("name", 1, 2.0)], [make_row(ratio=float("nan"))]))
    assert not list(run.unmet([("name", 2, 99.0), ("name", 1, 3.0)], [make_row()]))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--threads", "0"], ["--threads", "one"], ["--only", "nothing_like_it"], ["--require", "reverse_step"], ["--require", "=2"],
        ["--require", "unknown=2"], ["--only", "tiny", "--require", "reverse_step=2"], ["--require", "reverse_step@2=2"],
        ["--quick", "--require", "reverse_epoch=2"], ["--isa", "mmx"], ["--isa", "avx2,mmx"], ["--cpu-clock", "--threads", "1,2"],
    ],
)  # fmt: skip
def test_bad_options_are_usage_errors(arguments, capsys):
    with pytest.raises(SystemExit) as exit_status:
        run.main(arguments)
    assert exit_status.value.code == 2 and "usage" in capsys.readouterr().err


# ---- the workloads -------------------------------------------------------------------------------------------------


ALL = list(run.workloads())


def test_workloads_are_named_once_and_have_two_sides():
    names = [workload.name for _, workload in ALL]
    assert len(names) == len(set(names))
    for _, workload in ALL:
        assert workload.variants("ours") and workload.variants("torch")
        assert workload.flops >= 0 and workload.bytes >= 0
    assert all(w.flops or w.bytes for _, w in ALL if not w.name.startswith("tiny"))


@pytest.mark.slow
@pytest.mark.parametrize("contender", ["ours", "torch"])
@pytest.mark.parametrize(("module", "workload"), [pytest.param(m, w, id=w.name) for m, w in ALL if not w.heavy])
def test_every_side_runs(module, workload, contender):
    if contender == "torch" and not importlib.util.find_spec("torch"):
        pytest.skip("PyTorch is not installed")
    with harness.Contender(module, workload, contender, harness.choose_cores(1)) as side:
        for variant in workload.variants(contender):
            side.warm_up(variant, 0)
            assert side.run(variant, 1) > 0
