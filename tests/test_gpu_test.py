"""tools/gpu_test.py without a GPU: parts that are fakes, the workloads of its benchmark, and a rehearsal of its tests on the emulated one."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[1] / "tools"
sys.path.append(str(TOOLS))
import gpu_test  # noqa: E402
import gpu_workloads  # noqa: E402
import measured_kernels  # noqa: E402

FAKES = f"""
import signal, sys, time
sys.path.insert(0, {str(TOOLS)!r})
import gpu_test

def good(gpu, keep):
    keep({{"row": 1}})
    keep({{"row": 2}})

def bad(gpu, keep):
    keep({{"row": 1}})
    raise ValueError("a reason")

def missing(gpu, keep):
    raise gpu_test.NotRun("something is not installed")

def slow(gpu, keep):
    keep({{"row": 1}})
    time.sleep(60)

def stuck(gpu, keep):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # as a call that does not return
    slow(gpu, keep)

def endless(gpu, keep):
    for i in range(6000):
        keep({{"row": i}})
        time.sleep(0.01)

short = 0.5 / 60
gpu_test.PARTS = {{"good": (1, good), "bad": (1, bad), "missing": (1, missing), "slow": (short, slow), "stuck": (short, stuck)}}
if "endless" in sys.argv:
    gpu_test.PARTS["endless"] = (1, endless)
gpu_test.gpu_description = lambda: {{"name": "none, a fake"}}
gpu_test.versions = lambda: {{"transformer_c": "any"}}
gpu_test.GRACE_SECONDS = 2.0
gpu_test.COMMAND = [sys.executable, __file__]
sys.exit(gpu_test.main())
"""


@pytest.fixture
def fakes(tmp_path):
    script = tmp_path / "fakes.py"
    script.write_text(FAKES)
    return [sys.executable, str(script), "--output", str(tmp_path / "results")]


def rows(folder, part):
    return [json.loads(line) for line in (folder / "results" / f"{part}.jsonl").read_text().splitlines()]


def test_all_parts(fakes, tmp_path):
    done = subprocess.run(fakes, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert list(said) == ["good", "bad", "missing", "slow", "stuck"]
    assert said["good"].startswith("done: 2 results in ") and said["missing"] == "not run: something is not installed"
    assert said["bad"] == "failed: ValueError: a reason" and said["slow"].startswith("out of time: it has taken 0.0083")
    assert said["stuck"] == "cut off: the process ended"
    first, *results, last = rows(tmp_path, "good")
    assert first["part"] == "good" and first["gpu"] == {"name": "none, a fake"} and first["versions"] == {"transformer_c": "any"}
    assert results == [{"row": 1}, {"row": 2}] and last["state"] == "done"
    for part in ("bad", "slow", "stuck"):
        assert rows(tmp_path, part)[1] == {"row": 1}


@pytest.mark.parametrize("part, status", [("good", 0), ("bad", 1), ("missing", 77), ("slow", 1), ("stuck", 1)])
def test_one_part(fakes, tmp_path, part, status):
    done = subprocess.run([*fakes, "--part", part], capture_output=True, text=True, timeout=50)
    assert done.returncode == status and (part == "stuck") == ("in stuck" in done.stderr), done.stderr
    assert [path.name for path in (tmp_path / "results").iterdir()] == [f"{part}.jsonl"]


def test_a_killed_part_leaves_what_it_had(fakes, tmp_path):
    file = tmp_path / "results" / "endless.jsonl"
    part = subprocess.Popen([*fakes, "--part", "endless"])
    try:
        deadline = time.monotonic() + 30
        while not (file.exists() and file.read_text().count("\n") > 5):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.kill(part.pid, signal.SIGKILL)
        part.wait()
    assert [row["row"] for row in rows(tmp_path, "endless")[1:5]] == [0, 1, 2, 3]


def test_an_interrupted_line_is_no_result(tmp_path, capsys):
    (tmp_path / "build.jsonl").write_text('{"part": "build"}\n{"library": "one"}\n{"state": "do')
    assert gpu_test.report("build", tmp_path) == "cut off"
    assert gpu_test.report("tests", tmp_path) == "cut off"  # no file


def test_the_minutes_of_the_parts():
    minutes = [limit for limit, _ in gpu_test.PARTS.values()]
    assert max(minutes) + gpu_test.GRACE_SECONDS / 60 <= 9 and sum(minutes) + len(minutes) * gpu_test.GRACE_SECONDS / 60 <= 25
    listed = [
        gpu_test.__doc__.index(f"  {name}") if name != "racecheck" else gpu_test.__doc__.index("racecheck") for name in gpu_test.PARTS
    ]
    assert listed == sorted(listed)


def test_the_page_has_what_was_measured():
    """Otherwise: python tools/measured_kernels.py --write."""
    assert measured_kernels.page_with(*measured_kernels.tables()) == measured_kernels.PAGE.read_text()


def test_without_a_gpu_nothing_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_test.shutil, "which", lambda name: None)
    assert gpu_test.main(["--output", str(tmp_path / "results")]) == 77
    said = capsys.readouterr().out.splitlines()
    assert said == [f"{name}: not run: no NVIDIA driver here: nvidia-smi is not found" for name in gpu_test.PARTS]
    assert not (tmp_path / "results").exists()


def test_make_takes_nothing_to_run_for_no_error():
    """Exit status 77, as that of emulate_arm.py."""
    recipes = re.findall(r"^\t.*tools/(?:gpu_test|emulate_arm)\.py.*$", (TOOLS.parent / "Makefile").read_text(), re.M)
    assert len(recipes) == 2 and all(line.endswith("|| [ $$? = 77 ]") for line in recipes)


TINY = {
    "encoder_step": (2, 3, 8, 2),
    "captured_encoder_step": (2, 3, 8, 2),
    "linear": (3, 4, 5),
    "attention": (1, 2, 3, 4),
    "layer_norm": (3, 8),
    "softmax": (3, 5),
    "gelu": (7,),
}


def tiny(dimensions):
    """A shape for a kernel."""
    return (2, 2, 3, 3, 4)[-dimensions:]


ON_THE_CPU = [workload for workload, _ in gpu_test.WORKLOADS if workload is not gpu_workloads.captured_encoder_step]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("workload", ON_THE_CPU, ids=lambda workload: workload.__name__)
def test_workloads_run(workload, dtype):
    for library in gpu_test.libraries("cpu", dtype).values():
        assert gpu_test.median_ms(library, workload(library, *TINY[workload.__name__]), repeats=1) > 0


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two processes"])
def test_outcomes_of_tests_are_kept(tmp_path, options):
    (tmp_path / "test_two.py").write_text("def test_a():\n    pass\n\n\ndef test_b():\n    assert not 1\n")
    kept = []
    with pytest.raises(RuntimeError, match="1 tests failed"):
        gpu_test.run_tests([sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options, str(tmp_path)], kept.append)
    assert sorted((row["test"].split("::")[1], row["outcome"]) for row in kept) == [("test_a", "passed"), ("test_b", "failed")]


def test_a_workload_that_fails_fails_the_part(tmp_path, monkeypatch):
    """The others are measured all the same."""

    def broken(library, n):
        raise ValueError("no kernel")

    monkeypatch.setattr(gpu_test, "WORKLOADS", [(broken, [(3,)]), (gpu_workloads.gelu, [(7,)])])
    found = gpu_test.libraries("cpu", "float32")
    monkeypatch.setattr(gpu_test, "libraries", lambda device, dtype: found | {"pytorch_ms": found["ms"]})
    assert gpu_test.run_part("benchmark", {}, tmp_path) == "failed"
    _, *results, last = [json.loads(line) for line in (tmp_path / "benchmark.jsonl").read_text().splitlines()]
    assert [type(row["ms"]) for row in results] == [str, str, float, float]
    assert "2 workloads failed" in last["why"] and "broken 3 bfloat16: ValueError: no kernel" in last["why"]


def test_a_workload_out_of_time_ends_the_part(tmp_path, monkeypatch):
    """What follows it would run without a limit."""
    monkeypatch.setattr(
        gpu_test, "WORKLOADS", [(lambda library, seconds: lambda: time.sleep(seconds), [(0.05,)]), (gpu_workloads.gelu, [(7,)])]
    )
    monkeypatch.setattr(gpu_test.WORKLOADS[0][0], "__name__", "sleep")
    found = gpu_test.libraries("cpu", "float32")
    monkeypatch.setattr(gpu_test, "libraries", lambda device, dtype: {"ms": found["ms"]})
    monkeypatch.setitem(gpu_test.PARTS, "benchmark", (0.5 / 60, gpu_test.part_benchmark))
    assert gpu_test.run_part("benchmark", {}, tmp_path) == "out of time"
    assert len((tmp_path / "benchmark.jsonl").read_text().splitlines()) == 2  # what the machine is, and the state


TESTING = f"""
import os, sys
sys.path.insert(0, {str(TOOLS)!r})
import gpu_test

def tests(gpu, keep):
    gpu_test.run_tests([sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", os.environ["SLOW_TEST"]], keep)

gpu_test.PARTS = {{"tests": (1, tests), "racecheck": (1, tests)}}
gpu_test.gpu_description = lambda: {{"name": "none, a fake"}}
gpu_test.versions = lambda: {{}}
gpu_test.COMMAND = [sys.executable, __file__]
sys.exit(gpu_test.main())
"""
PROCESSES = """
import os, pathlib, time

def test_a():
    pathlib.Path(__file__).with_name("tests.pid").write_text(f"{os.getpid()} {os.getppid()}")

def test_b():
    time.sleep(60)
"""


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["Ctrl-C", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("part", [[], ["--part", "tests"]], ids=["all parts", "one part"])
def test_what_was_started_ends_with_it(tmp_path, part, number):
    """A second run would share the GPU with it."""
    (tmp_path / "fakes.py").write_text(TESTING)
    (tmp_path / "test_slow.py").write_text(PROCESSES)
    command = [sys.executable, str(tmp_path / "fakes.py"), *part, "--output", str(tmp_path / "results")]
    with subprocess.Popen(command, env={**os.environ, "SLOW_TEST": str(tmp_path / "test_slow.py")}, stdout=subprocess.PIPE,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler)) as run:  # fmt: skip
        noted = tmp_path / "tests.pid"
        deadline = time.monotonic() + 60
        while not (noted.exists() and len(noted.read_text().split()) == 2):
            assert time.monotonic() < deadline and run.poll() is None
            time.sleep(0.02)
        run.send_signal(number)
        assert run.wait(30) != 0
        left = [pid for pid in noted.read_text().split() if is_running(pid)]
        for pid in left:
            os.kill(int(pid), signal.SIGKILL)
        assert not left
    assert not (tmp_path / "results" / "racecheck.jsonl").exists()


def test_a_torch_that_cannot_be_opened_is_a_text(tmp_path, monkeypatch):
    """All that is ours is measured."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text('raise OSError("libcudart.so.99: cannot open shared object file")')
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(gpu_test, "WORKLOADS", [(gpu_workloads.gelu, [(7,)])])
    of_the_cpu = gpu_test.libraries
    monkeypatch.setattr(gpu_test, "libraries", lambda device, dtype: of_the_cpu("cpu", dtype))
    assert gpu_test.run_part("benchmark", {}, tmp_path) == "done"
    first, *results, last = [json.loads(line) for line in (tmp_path / "benchmark.jsonl").read_text().splitlines()]
    assert first["versions"]["torch"] == "OSError: libcudart.so.99: cannot open shared object file"
    assert {row["pytorch_ms"] for row in results} == {first["versions"]["torch"]} and all(row["ms"] > 0 for row in results)
    assert last["state"] == "done"


# ---- rehearsals on the emulated GPU, in processes of their own: each opens one CUDA library -------------------------------------------------

WORKLOADS = f"""
import sys
sys.path[:0] = [{str(TOOLS)!r}, {str(Path(__file__).parent)!r}]
import gpu_test, gpu_workloads, test_gpu_test
import transformer_c as tc
for dtype in ("float32", "bfloat16"):
    library = gpu_test.Library(tc, tc.functional, "cuda:emulated", dtype)
    for workload, _ in gpu_test.WORKLOADS:
        assert gpu_test.median_ms(library, workload(library, *test_gpu_test.TINY[workload.__name__]), repeats=1) > 0
gpu_test.KERNELS = [(kernel, dtypes[:1], [test_gpu_test.tiny(len(shapes[0]))], *more) for kernel, dtypes, shapes, *more in gpu_test.KERNELS]
gpu_test.libraries = lambda device, dtype: {{"us": gpu_test.Library(tc, tc.functional, "cuda:emulated", dtype)}}
gpu_workloads.KERNEL_SECONDS = 0.0
gpu_workloads.kernel_us.__defaults__ = (0.0,)
kept = []
gpu_test.part_kernels({{}}, kept.append)
assert len(kept) > len(gpu_test.KERNELS) and all(row["us"] > 0 and row.get("tflops", row.get("gb_per_s")) > 0 for row in kept)
"""
CONSTANTS = f"""
import json, sys
sys.path[:0] = [{str(TOOLS)!r}]
import gpu_test
import transformer_c as tc
gpu_test.LAUNCHES, gpu_test.COPIED_MIB, gpu_test.PRODUCT = 5, (1,), 8
gpu_test.libraries = lambda device, dtype: {{"ms": gpu_test.Library(tc, tc.functional, "cuda:emulated", dtype)}}
gpu_test.median_ms.__defaults__ = (1,)
kept = []
gpu_test.part_constants({{}}, kept.append)
print(json.dumps(kept))
"""
TESTS = "order_between or Test_waits or gradients_are_zeroed or copies_in_halves or a_forward_alone or short or layer_norm or linear"


@pytest.fixture
def emulated():
    """The environment of a process with the emulated library, as if it were a GPU's."""
    import emulation

    return {**os.environ, "TRANSFORMER_C_CUDA_LIBRARY": str(emulation.kernel_library("plain")), "GPU_TESTS_DEVICE": "cuda:emulated"}


@pytest.mark.unsanitized
def test_workloads_run_on_a_gpu(emulated):
    done = subprocess.run([sys.executable, "-c", WORKLOADS], env=emulated, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.unsanitized
def test_constants_are_measured(emulated):
    done = subprocess.run([sys.executable, "-c", CONSTANTS], env=emulated, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {row["constant"]: row["measured"] for row in json.loads(done.stdout)}
    assert list(found) == [
        "microseconds of an op of 4 elements, from Python",
        "microseconds of a launch in a graph, one after the other",
        "GFLOP/s of a float32 product of 8",
        "GB/s of copies of 1 MiB, read and written",
    ]
    assert all(value > 0 for value in found.values())


@pytest.mark.unsanitized
def test_the_tests_for_a_gpu_run(emulated):
    """What they need of the emulation, they skip. All of them: GPU_TESTS_DEVICE and TRANSFORMER_C_CUDA_LIBRARY as here."""
    command = gpu_test.pytest_command("-q", "-rs", "-k", TESTS, *gpu_test.TESTS_ON_A_GPU)
    done = subprocess.run(command, cwd=gpu_test.ROOT, env=emulated, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert skipped and all("the emulation alone has " in line for line in skipped)
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 100
