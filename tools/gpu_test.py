"""Runs everything that needs a GPU, in parts: make gpu-test, or python tools/gpu_test.py [--part NAME] [--output FOLDER]

Parts, in this order; each can be started alone, takes at most nine minutes, and all together 25:
  build         the CUDA library for this machine's GPU
  instructions  every instruction wrapper of device.cuh on the hardware against the emulation
  cases         the cases of single kernels in tests/gpu_emulation, against the float64 reference
  tests         tests/gpu: Tensors, layers, training, graphs
  benchmark     whole training steps, as they are and as graphs, in float32 and bfloat16, beside PyTorch where it is installed
  kernels       each kernel by itself, likewise
  constants     bandwidths, products per second and the cost of a launch, as our kernels reach them
  memcheck, racecheck   small cases of single kernels under compute-sanitizer

Each part writes FOLDER/<part>.jsonl line by line as results come: what the machine is, the results, last its state: done, failed, or out of
time. A part that was killed lacks the last line and leaves what it had. Without a GPU nothing is written. Exit status: 0 when nothing failed
and something was done, 1 when a part failed or was cut off, 77 when nothing was run.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import faulthandler
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tools"), str(ROOT / "tests" / "gpu"), str(ROOT / "tests" / "gpu_emulation")]
import build_cuda  # noqa: E402
from gpu_workloads import KERNELS, WORKLOADS, Library, best_of_pytorch, kernel_us, libraries, median_ms  # noqa: E402

Keep = Callable[[dict], None]  # takes one result, which is on the disk when it returns


class NotRun(Exception):
    """Why a part was not run."""


class OutOfTime(BaseException):
    """The part has taken its minutes. No ``except Exception`` takes it for the failure of one result."""


def pytest_command(*options: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options]


TESTS_ON_A_GPU = ("-m", "gpu", str(ROOT / "tests" / "gpu"))
# Of single kernels: the emulation's cases against the float64 reference, which run on a GPU in this environment
CASES = [str(ROOT / "tests" / "gpu_emulation" / f"test_cuda_{name}.py") for name in ("attention", "gemm", "kernels", "flat")]
ON_HARDWARE = {"EMULATION_FLAVOUR": "hardware"}


def in_parallel() -> tuple[str, ...]:
    """Options of pytest: by several processes where pytest-xdist is installed."""
    return ("-n", str(min(12, os.cpu_count() or 1))) if importlib.util.find_spec("xdist") else ()


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    output = (done.stdout + done.stderr)[-4000:]
    if done.returncode:
        raise RuntimeError(output)
    return output.strip().splitlines()[-1] if output.strip() else ""


# A line of pytest -v, of one process and of several: "a.py::test_b PASSED [ 50%]", "[gw0] [ 50%] PASSED a.py::test_b".
OUTCOME = re.compile(
    r"(?:\[gw\d+\] \[ *\d+%\] (?P<outcome>[A-Z]+) (?P<test>.*::.*)|(?P<first>\S.*::.*) (?P<last>PASSED|FAILED|ERROR|SKIPPED)(?: .*)?\[ *\d+%\])"
)


def run_tests(command: list[str], keep: Keep, environment: dict[str, str] | None = None) -> None:
    """Runs pytest -v and keeps each test's outcome as it comes, and the summary."""
    last, failed = [], 0
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    ) as tests:
        assert tests.stdout
        try:
            for line in tests.stdout:
                last = [*last[-60:], line.rstrip()]
                if "%]" in line and (found := OUTCOME.match(line)):
                    outcome = found["outcome"] or found["last"]
                    failed += outcome in ("FAILED", "ERROR")
                    keep({"test": (found["test"] or found["first"]).rstrip(), "outcome": outcome.lower()})
        except BaseException:
            os.killpg(tests.pid, signal.SIGKILL)
            raise
    if tests.returncode:
        raise RuntimeError(f"{failed} tests failed:\n" + "\n".join(last)[-4000:])
    keep({"summary": last[-1] if last else ""})


def gpu_description() -> dict[str, str]:
    """Name, driver and compute capability of the first GPU; NotRun without one."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        raise NotRun("no NVIDIA driver here: nvidia-smi is not found")
    query = "name,driver_version,compute_cap,memory.total"
    done = subprocess.run([smi, f"--query-gpu={query}", "--format=csv,noheader", "--id=0"], capture_output=True, text=True)
    if done.returncode:
        raise NotRun(f"nvidia-smi finds no usable GPU: {(done.stdout + done.stderr).strip()[:200]}")
    return dict(zip(query.split(","), (field.strip() for field in done.stdout.split(",")), strict=True))


def part_build(gpu: dict[str, str], keep: Keep) -> None:
    nvcc = build_cuda.find_nvcc()
    if nvcc is None:
        raise NotRun("nvcc is not found")
    target = "sm_" + gpu["compute_cap"].replace(".", "")
    library = build_cuda.build(ROOT / "python" / "transformer_c", [target], os.cpu_count() or 1)
    if library is None:
        raise NotRun("TRANSFORMER_C_CUDA=0")
    keep({"library": library.name, "target": target, "bytes": library.stat().st_size})


def part_instructions(gpu: dict[str, str], keep: Keep) -> None:
    import emulation
    import instructions

    nvcc = build_cuda.find_nvcc()
    if nvcc is None:
        raise NotRun("nvcc is not found")
    if float(gpu["compute_cap"]) < 8:
        raise NotRun("tensor core wrappers need compute capability 8.0")
    source = ROOT / "tests" / "gpu" / "instructions.cu"
    emulated = emulation.library([source], "plain")
    with tempfile.TemporaryDirectory() as folder:
        hardware = Path(folder) / "instructions.so"
        target = "sm_" + gpu["compute_cap"].replace(".", "")
        flags = [*build_cuda.FLAGS, f"-arch={target}", f"-I{build_cuda.KERNELS / 'cuda'}", "-shared", "-cudart=static"]
        run([nvcc, *flags, "-o", str(hardware), str(source)])
        wrong = []
        for name in instructions.NAMES:
            found = [
                instructions.differences(name, instructions.run(hardware, name, seed), instructions.run(emulated, name, seed))
                for seed in range(20)
            ]
            keep({"instruction": name, "differences": [text for text in found if text]})
            wrong += [text for text in found if text]
    if wrong:
        raise RuntimeError("the hardware and the emulation differ:\n" + "\n".join(wrong))


def part_tests(gpu: dict[str, str], keep: Keep) -> None:
    run_tests(pytest_command(*in_parallel(), *TESTS_ON_A_GPU), keep)


def part_cases(gpu: dict[str, str], keep: Keep) -> None:
    run_tests(pytest_command(*in_parallel(), *CASES), keep, ON_HARDWARE)


def sanitizer(tool: str, keep: Keep) -> None:
    found = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if not found:
        raise NotRun("compute-sanitizer is not found")
    few = pytest_command("-m", "small", *CASES)
    run_tests([found, "--tool", tool, "--error-exitcode", "1", *few], keep, ON_HARDWARE)


def part_memcheck(gpu: dict[str, str], keep: Keep) -> None:
    sanitizer("memcheck", keep)


def part_racecheck(gpu: dict[str, str], keep: Keep) -> None:
    sanitizer("racecheck", keep)


# ---- benchmarks ------------------------------------------------------------------------------------------------------------------------


def part_benchmark(gpu: dict[str, str], keep: Keep) -> None:
    """Fails at its end where ours did; what PyTorch cannot do is a text in its column."""
    wrong = []
    for workload, shape, dtype in ((workload, s, d) for workload, shapes in WORKLOADS for s in shapes for d in ("float32", "bfloat16")):
        row: dict[str, Any] = {"workload": f"{workload.__name__} {'x'.join(map(str, shape))} {dtype}"}
        for column, library in libraries("cuda", dtype).items():
            try:
                row[column] = library if isinstance(library, str) else median_ms(library, workload(library, *shape))
            except Exception as error:
                row[column] = f"{type(error).__name__}: {error}"
                wrong += [f"{row['workload']}: {row[column]}"] if column == "ms" else []
        keep(row)
    if wrong:
        raise RuntimeError(f"{len(wrong)} workloads failed:\n" + "\n".join(wrong)[-4000:])


def precisions_of(kernel: Callable[..., Any], unit: str, dtype: str) -> tuple[str, ...]:
    """Those of float32 that a kernel is timed with: several for products."""
    is_product = unit == "flop" and kernel.__name__.startswith(("linear", "matmul"))
    return ("highest", "high", "medium") if is_product and dtype == "float32" else ("highest",)


def part_kernels(gpu: dict[str, str], keep: Keep) -> None:
    """Each kernel by itself, in graphs, next to PyTorch's fastest; with "medium" and "high" products of float32 on tensor cores."""
    wrong = []
    for kernel, dtypes, shapes, work, unit in KERNELS:
        for shape, dtype, precision in ((s, d, p) for s in shapes for d in dtypes for p in precisions_of(kernel, unit, d)):
            name = f"{kernel.__name__} {'x'.join(map(str, shape))} {dtype}{'' if precision == 'highest' else ', ' + precision}"
            measured = time_kernel(kernel, shape, dtype, precision)
            if isinstance(measured["us"], str):
                wrong.append(f"{name}: {measured['us']}")
            elif unit == "flop":
                measured["tflops"] = work(*shape) / measured["us"] / 1e6
            else:
                measured["gb_per_s"] = work(*shape) * (4 if dtype == "float32" else 2) / measured["us"] / 1e3
            keep({"kernel": name, **measured})
    if wrong:
        raise RuntimeError(f"{len(wrong)} kernels failed:\n" + "\n".join(wrong)[-4000:])


def time_kernel(kernel: Callable[..., Callable[[], Any]], shape: tuple[int, ...], dtype: str, precision: str) -> dict[str, Any]:
    """Ours and PyTorch's, in microseconds; a text where one fails."""
    row: dict[str, Any] = {}
    for library in libraries("cuda", dtype).values():
        if isinstance(library, str):
            row["pytorch_us"] = library
            continue
        try:
            if library.is_pytorch:
                # its "high" is TF32, as our "medium" is; it has nothing like our "high"
                library.module.set_float32_matmul_precision("high" if precision == "medium" else "highest")
                row |= best_of_pytorch(library, kernel, shape)
            else:
                library.module.set_float32_precision(precision)
                row["us"] = kernel_us(library, kernel(library, *shape))
        except Exception as error:
            row["pytorch_us" if library.is_pytorch else "us"] = f"{type(error).__name__}: {error}"[:500]
        finally:
            if not library.is_pytorch:
                library.module.set_float32_precision("highest")
    return row


LAUNCHES = 500
COPIED_MIB = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
PRODUCT = 4096


def part_constants(gpu: dict[str, str], keep: Keep) -> None:
    """What a model of time would take from tables, measured with our kernels: so a bandwidth is what these reach.

    A copy's GB/s count what is read and what is written. Where both fit the L2 it is the L2's, of large ones DRAM's; graphs, so that the host
    has no part in it.
    """
    library = libraries("cuda", "float32")["ms"]
    assert isinstance(library, Library)
    tiny = library.tensor(4, grad=False)

    def launches() -> None:
        for _ in range(LAUNCHES):
            tiny.add_(1.0)

    for what, step in (
        ("an op of 4 elements, from Python", launches),
        ("a launch in a graph, one after the other", library.graph(launches)),
    ):
        keep({"constant": f"microseconds of {what}", "measured": median_ms(library, step) * 1000 / LAUNCHES})
    x, square = library.tensor(PRODUCT, PRODUCT, grad=False), library.tensor(PRODUCT, PRODUCT, grad=False)
    ms = median_ms(library, library.graph(lambda: library.module.matmul(x, square)))
    keep({"constant": f"GFLOP/s of a float32 product of {PRODUCT}", "measured": 2 * PRODUCT**3 / ms / 1e6})
    for mebibytes in COPIED_MIB:
        row: dict[str, Any] = {"constant": f"GB/s of copies of {mebibytes} MiB, read and written"}
        try:
            row["measured"] = 2 * (mebibytes << 20) / (median_ms(library, copies(library, mebibytes << 18)) / 10) / 1e6
        except MemoryError as error:  # of a small GPU
            row["measured"] = str(error)
        keep(row)


def copies(library: Library, n: int) -> Callable[[], Any]:
    """Ten copies of n float32 from one array to the same other, as a graph."""
    x = library.module.zeros(n, device=library.device)
    y = x + 1

    def step() -> None:
        for _ in range(10):
            y.copy_(x)

    return library.graph(step)


# ---- parts -----------------------------------------------------------------------------------------------------------------------------

# Most important first: the minutes that each may take, and what it does.
PARTS: dict[str, tuple[float, Callable[[dict[str, str], Keep], None]]] = {
    "build": (3, part_build),
    "instructions": (1, part_instructions),
    "cases": (2, part_cases),
    "tests": (3, part_tests),
    "benchmark": (2, part_benchmark),
    "kernels": (4, part_kernels),
    "constants": (1, part_constants),
    "memcheck": (3.5, part_memcheck),
    "racecheck": (3.5, part_racecheck),
}
GRACE_SECONDS = 8.0  # after a part's minutes, until it is killed: all of them together are 25 minutes
COMMAND = [sys.executable, __file__]


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """OutOfTime after so many seconds."""

    def stop(number: int, frame: object) -> None:
        raise OutOfTime(f"it has taken {seconds / 60:g} minutes")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def ended_when_stuck(seconds: float) -> Iterator[None]:
    """Ends this process after so many seconds and prints where it is: a call into a GPU that does not return lets no signal's handler run."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def run_part(name: str, gpu: dict[str, str], folder: Path) -> str:
    """Writes <name>.jsonl; gives the state."""
    minutes, part = PARTS[name]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.jsonl", "w") as file:

        def keep(row: dict) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

        now = datetime.datetime.now(datetime.timezone.utc)
        keep({"part": name, "date": now.isoformat(timespec="seconds"), "gpu": gpu, "versions": versions()})
        start, why = time.monotonic(), ""
        try:
            with time_limit(60 * minutes), ended_when_stuck(60 * minutes + GRACE_SECONDS):
                part(gpu, keep)
            state = "done"
        except NotRun as error:
            state, why = "not run", str(error)
        except OutOfTime as error:
            state, why = "out of time", str(error)
        except Exception as error:
            state, why = "failed", f"{type(error).__name__}: {error}"
        keep({"state": state, "why": why, "seconds": round(time.monotonic() - start, 1)})
    return state


def report(name: str, folder: Path) -> str:
    """The state of a part, printed with what it left."""
    path = folder / f"{name}.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []
    state = rows.pop() if rows and "state" in rows[-1] else {"state": "cut off", "why": "the process ended"}
    print(f"{name}: {state['state']}: {state['why'] or f'{max(len(rows) - 1, 0)} results in {path}'}", flush=True)
    return state["state"]


def run_parts(names: list[str], folder: Path) -> list[str]:
    """Each in a process of its own, which cannot take the others with it."""
    states = []
    for name in names:
        (folder / f"{name}.jsonl").unlink(missing_ok=True)  # of an earlier run
        part = subprocess.Popen([*COMMAND, "--part", name, "--output", str(folder)], start_new_session=True, stdout=subprocess.DEVNULL)
        try:
            part.wait(60 * PARTS[name][0] + GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            end(part)
        except BaseException:
            end(part)
            report(name, folder)
            raise
        states.append(report(name, folder))
    return states


def end(part: subprocess.Popen) -> None:
    """Ends a part: told to, it ends its tests, which are a session of their own; stuck, it is killed."""
    part.terminate()
    try:
        part.wait(GRACE_SECONDS / 3)
    except subprocess.TimeoutExpired:
        os.killpg(part.pid, signal.SIGKILL)
        part.wait()


@contextlib.contextmanager
def told_to_end() -> Iterator[None]:
    """SIGTERM and SIGHUP are SystemExit in the block, so that what was started ends with this process."""

    def leave(number: int, frame: object) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("numpy", "torch", "transformer_c"):
        try:
            found[name] = __import__(name).__version__
        except ModuleNotFoundError:
            found[name] = "not installed"
        except Exception as error:  # of a library that it needs, perhaps
            found[name] = f"{type(error).__name__}: {error}"
    nvcc = build_cuda.find_nvcc()
    if nvcc:
        found["nvcc"] = " ".join(subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout.splitlines()[-2:-1])
    return found


def main(arguments: list[str] | None = None) -> int:
    date = datetime.datetime.now(datetime.timezone.utc)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=list(PARTS), help="run this part alone, in this process")
    default = ROOT / "benchmarks" / "results" / f"{date:%Y-%m-%d}-gpu"
    parser.add_argument(
        "--output", type=Path, default=default, metavar="FOLDER", help="where to write (default: benchmarks/results/<date>-gpu)"
    )
    options = parser.parse_args(arguments)
    try:
        gpu = gpu_description()
    except NotRun as why:
        for name in [options.part] if options.part else PARTS:
            print(f"{name}: not run: {why}")
        return 77
    with told_to_end():
        if options.part:
            run_part(options.part, gpu, options.output)
            states = [report(options.part, options.output)]
        else:
            states = run_parts(list(PARTS), options.output)
    return 0 if {*states} <= {"done", "not run"} and "done" in states else 77 if {*states} == {"not run"} else 1


if __name__ == "__main__":
    sys.exit(main())
