"""Times contenders against each other and against what the machine can do.

A workload has two sides, `ours` and `torch`. A side is a function that prepares everything and gives a call without arguments;
or, where there is more than one good way, a dict of such functions, of which the fastest counts. Each side runs in a process
of its own (worker.py), pinned to the same cores, and the two take turns: A B A B ... A turn is many calls; its time is their
median, its ratio torch / ours, and the result is the median over the turns.

The bound of a workload is the larger of FLOP / ceiling and bytes / bandwidth. Both are measured before and after each workload, as the clock of a
machine goes up and down with what else it does, and the better ones count: the ceiling is the rate of the product's register tile on operands in L1.
"""

import ast
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

MANY_TRIALS, FEW_TRIALS = 7, 2  # of the machine's peaks, at the beginning and beside each workload
LONG_US, WANTED_SHARE = 1000, 1 / 1.3  # a call that takes longer is within 1.3 times of its bound, where nothing else is said

# What tells each library to use an instruction set, where the processor has more. Float32 products of "amx" are split into bfloat16.
INSTRUCTION_SETS = {
    "baseline": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
    "avx512_bf16": {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
    "amx": {},
    "neon": {},
}
VECTORS_OF = {"amx": "avx512", "avx512_bf16": "avx512"}  # whose kernels compute everything but products
SAME_IN_FLOAT32 = {"avx512_bf16"}  # as another one: what is measured in float32 would be measured twice

ROOT = pathlib.Path(__file__).resolve().parents[1]


class BenchmarkError(RuntimeError):
    """A contender failed, or the machine lacks what a measurement needs."""


@dataclasses.dataclass(frozen=True)
class Workload:
    """name: of the row; ours, torch: the two sides; flops, bytes: the least that one call needs (0: no bound).

    bytes counts what must be read and written when every array moves once. heavy: left out by --quick. share: of the bound that is wanted; None:
    WANTED_SHARE for what takes long.
    """

    name: str
    ours: object
    torch: object
    flops: float = 0
    bytes: float = 0
    heavy: bool = False
    share: float | None = None

    def variants(self, contender):
        side = getattr(self, contender)
        return side if isinstance(side, dict) else {"": side}


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long to measure: turns per contender, seconds per turn, seconds of warm-up."""

    turns: int = 7
    turn_seconds: float = 0.2
    warm_seconds: float = 0.3
    max_calls: int = 2000

    def calls(self, seconds_a_call):
        """Calls in a turn, so that it takes about turn_seconds."""
        least = 3 if seconds_a_call < 0.1 else 1
        return max(least, min(self.max_calls, int(self.turn_seconds / max(seconds_a_call, 1e-9))))


QUICK = Effort(turns=3, turn_seconds=0.05, warm_seconds=0.1)


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the result; times in microseconds. None: not measured."""

    workload: str
    threads: int
    ours_us: float
    torch_us: float | None
    torch_variant: str | None
    ratio: float | None
    spread: float
    bound_us: float | None
    bound_by: str | None
    share_of_bound: float | None
    isa: str | None = None


# ---- processes -----------------------------------------------------------------------------------------------------


def available_cores():
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def choose_cores(threads):
    """The last ones: the first core serves most interrupts."""
    cores = available_cores()
    if threads > len(cores):
        raise BenchmarkError(f"{threads} threads asked for, but only {len(cores)} cores may be used")
    return cores[-threads:]


def environment(threads):
    """The environment of a contender's process: one setting for every library's threads, and where to find our packages."""
    count = str(threads)
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "TRANSFORMER_C_NUM_THREADS": count,
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OMP_PROC_BIND": "close",
        "OMP_PLACES": "cores",
        "OPENBLAS_NUM_THREADS": "1",  # NumPy only makes data here
        "PYTHONPATH": os.pathsep.join(path),
    }


@contextlib.contextmanager
def variables(values):
    """With these variables in the environment of new processes."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def forced(isa):
    """The variables that make both sides use an instruction set."""
    return {"TRANSFORMER_C_ISA": isa, **INSTRUCTION_SETS[isa]}


def usable_instruction_sets():
    """(those that the build has and the machine can run, the one that is in use), asked of a new process."""
    command = [sys.executable, "-c", "from transformer_c import _core; import json; print(json.dumps([_core.cpu_isas(), _core.cpu_isa()]))"]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment(1))
    if answer.returncode:
        raise BenchmarkError(f"transformer_c cannot be imported:\n{answer.stderr}")
    known, used = json.loads(answer.stdout)
    return [name for name, usable in known.items() if usable], used


class Contender:
    """One side of a workload in its own process, idle until told to run. Use as a context manager."""

    def __init__(self, module, workload, name, cores):
        self.name, self.workload = name, workload
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115, closed in __exit__
        command = [sys.executable, "-m", "benchmarks.worker", module, workload.name, name, ",".join(map(str, cores))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, env=environment(len(cores)), text=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._stderr.close()

    def _ask(self, **request):
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self._process.wait()
            self._stderr.seek(0)
            said = self._stderr.read().decode(errors="replace").strip()
            raise BenchmarkError(f"{self.workload.name}: contender {self.name} ended with status {self._process.returncode}\n{said}")
        return json.loads(answer)

    def warm_up(self, variant, seconds):
        """Prepares the variant on first use and runs it for a while; returns seconds per call."""
        return self._ask(do="warm", variant=variant, seconds=seconds)

    def run(self, variant, calls):
        """The median time of so many calls, in seconds."""
        return statistics.median(self._ask(do="time", variant=variant, calls=calls)) * 1e-9

    def result(self, variant):
        """What a call gives, which JSON can hold."""
        return self._ask(do="result", variant=variant)


def measure(module, workload, threads, measure_peaks=None, effort=Effort(), contenders=("torch", "ours"), isa=None):
    """Runs one workload of a family (the name of its module) and gives its Row; contenders without "torch": ours alone. `measure_peaks` gives those of
    the moment, if there is to be a bound."""
    cores = choose_cores(threads)
    medians = {}  # (contender, variant) -> one time per turn
    before = measure_peaks() if measure_peaks else None
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(Contender(module, workload, name, cores)) for name in contenders]
        plan = []
        for side in sides:
            for variant in workload.variants(side.name):
                plan.append((side, variant, effort.calls(side.warm_up(variant, effort.warm_seconds))))
        for _ in range(effort.turns):
            for side, variant, calls in plan:
                medians.setdefault((side.name, variant), []).append(side.run(variant, calls))
    peaks = before.or_better(measure_peaks()) if measure_peaks else None
    return dataclasses.replace(make_row(workload, threads, medians, peaks), isa=isa)


def make_row(workload, threads, medians, peaks=None):
    """The Row of the turns' times: {(contender, variant): [seconds, ...]}, turns in the same order for each."""

    def best(contender):
        variants = [(statistics.median(times), variant, times) for (name, variant), times in medians.items() if name == contender]
        return min(variants) if variants else (None, None, None)

    ours, _, our_times = best("ours")
    torch, torch_variant, torch_times = best("torch")
    relative = [t / o for t, o in zip(torch_times, our_times, strict=True)] if torch else our_times
    middle = statistics.median(relative)
    bound, bound_by = peaks.bound(workload) if peaks else (None, None)
    return Row(
        workload=workload.name,
        threads=threads,
        ours_us=ours * 1e6,
        torch_us=torch * 1e6 if torch else None,
        torch_variant=torch_variant or None,
        ratio=middle if torch else None,
        spread=(max(relative) - min(relative)) / 2 / middle,
        bound_us=bound * 1e6 if bound else None,
        bound_by=bound_by,
        share_of_bound=bound / ours if bound else None,
    )


def geometric_mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


# ---- the machine's peaks --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Peaks:
    """Measured on the cores that the workloads use: float32 FLOP/s of multiply-adds alone and of the register tile on operands in L1, and bytes/s
    of a copy by working set in bytes."""

    flops: float
    tile: float
    copy: tuple  # ((working set, bytes per second), ...), ascending

    def or_better(self, other):
        """Of each rate the better one."""
        copy = tuple((size, max(rate, again)) for (size, rate), (_, again) in zip(self.copy, other.copy, strict=True))
        return Peaks(max(self.flops, other.flops), max(self.tile, other.tile), copy)

    def bandwidth(self, moved):
        """The rate of a copy whose working set is the smallest measured one of at least so many bytes."""
        return next((rate for size, rate in self.copy if moved <= size), self.copy[-1][1])

    def bound(self, workload):
        """The least time of a call in seconds, and what sets it: "FLOP" or "bytes"; (None, None) without a bound."""
        arithmetic, traffic = workload.flops / self.tile, workload.bytes / self.bandwidth(workload.bytes)
        if not arithmetic and not traffic:
            return None, None
        return (arithmetic, "FLOP") if arithmetic >= traffic else (traffic, "bytes")


def setup_constant(name):
    """What setup.py, which cannot be imported, assigns to a name: options of compilers."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise BenchmarkError(f"setup.py has no {name}")


@contextlib.contextmanager
def peak_meter(threads, isa):
    """Compiles peaks.c as the kernels of an instruction set are. As a context manager it gives a function of a number of trials, which runs it on the
    cores of the workloads and gives Peaks."""
    compiler = os.environ.get("CC", "").split() or [shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")]
    if compiler[0] is None:
        raise BenchmarkError("no C compiler found: the peaks of this machine cannot be measured")
    options = {name: flags for sets in setup_constant("ISAS").values() for name, flags in sets.items()}
    vectors = VECTORS_OF.get(isa, isa)
    flags = [*setup_constant("C_FLAGS"), "-O3", *options[vectors], f"-DTC_ISA={vectors}", "-DTC_PRECISION=32", "-pthread"]
    cores = choose_cores(threads)
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "peaks"
        source = pathlib.Path(__file__).with_name("peaks.c")
        built = subprocess.run([*compiler, *flags, "-o", program, source, "-lm"], capture_output=True, text=True)
        if built.returncode:
            raise BenchmarkError(f"peaks.c did not compile:\n{built.stderr}")
        time.sleep(0.05)

        def run(trials):
            figures = json.loads(subprocess.run([program, *map(str, (trials, *cores))], capture_output=True, text=True, check=True).stdout)
            return Peaks(figures["flops"], figures["tile"], tuple((int(size), rate) for size, rate in figures["copy"]))

        yield run


def measure_peaks(threads, isa):
    """The Peaks of a machine that is left alone meanwhile."""
    with peak_meter(threads, isa) as run:
        return run(MANY_TRIALS)
