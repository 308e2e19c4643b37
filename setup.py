"""Builds the extension module transformer_c._core; "setup.py build_library" builds the library for C, build/libtransformer_c.a.

Everything that does not need Python is in pyproject.toml. Here: each CPU kernel is compiled once per instruction set and
precision, all objects are compiled in parallel, and only what changed is compiled again. The build says what it compiles;
"setup.py -q" is silent.

Environment: CC (compiler), TRANSFORMER_C_SANITIZE ("address,undefined", "thread"), TRANSFORMER_C_JOBS (parallel compiles),
TRANSFORMER_C_WERROR=1 (warnings are errors, as in CI), TRANSFORMER_C_CFLAGS (more options for the compiler, after those of here),
TRANSFORMER_C_OBJECTS (folder of the objects, which copies of the same sources may share; build/objects), TRANSFORMER_C_BUILD_ISAS
("baseline,avx2": only these instruction sets), TRANSFORMER_C_CUDA=1 (the CUDA library as well, with nvcc, which takes minutes;
"make cuda" builds it later).
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))
import build_cuda  # noqa: E402

C_FLAGS = [
    "-std=gnu11",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wstrict-prototypes",
    "-Wmissing-prototypes",
    "-Wno-missing-field-initializers",  # the rest of a row is zero
]
# By what the compiler defines. 32-bit x86 computes floats with more digits than they have, unless told: sums of rounding errors come out wrong.
PROCESSOR_FLAGS = {"__i386__": ["-msse2", "-mfpmath=sse"]}
# The baseline beside other instruction sets is for processors made before 2013: half the size of -O2, and 2 to 10 % slower.
SMALLER = ["-Os"]
# GCC writes out the few turns that are left after a loop of several vectors, for each of the kernels' many functions: 6 % of the library. Of
# integers it would repeat the loop for shorter vectors as well.
_TURNS = "--param=max-completely-peel-times=2"
_VECTORS = "--param=vect-epilogues-nomask=0"
# It would cut the loops over keys where masks and causal rows begin to matter, and unroll both parts: a tenth of attention's code, for no time.
_WHOLE = "-fno-split-loops"
ROLLED = {
    **{name: [_TURNS] for name in ("binary", "cast", "gemm", "index", "lines", "reduce", "unary")},
    **{name: [_TURNS, _VECTORS] for name in ("integer", "integer_32")},
    **{name: [_WHOLE] for name in ("attention", "attention_backward")},
}
# On x86-64, whose registers are few, clang's scheduler loads the operands of several steps of a product ahead, and sums wait in memory: up to
# twice the time.
UNSCHEDULED = ["-mllvm", "-enable-misched=false"]
# Checks that a sanitizer build leaves out of kernels, whose compilation they double. What is loaded or stored, AddressSanitizer looks at; an address
# that a kernel only computes goes unseen.
UNCHECKED = ["-fno-sanitize=null,object-size,pointer-overflow"]
# By what the compiler defines; other processors have the baseline alone.
ISAS = {
    "__x86_64__": {
        "baseline": [],
        "avx2": ["-mavx2", "-mfma", "-mf16c"],
        "avx512": ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mf16c", "-mprefer-vector-width=512"],
    },
    "__aarch64__": {"baseline": [], "neon": ["-DTC_NEON"]},
}


# Tiles of bfloat16, by which float32 products are computed; everything else is another instruction set's. In builds for tests
# TRANSFORMER_C_CFLAGS may emulate them.
TILES = {"avx512_bf16": ("avx512", ["-mavx512bf16", "-DTC_DOTS"]), "amx": ("avx512", ["-mamx-tile", "-mamx-bf16"])}
EMULATE_TILES = "-DTC_EMULATE_TILES"
NOT_FOR_WINDOWS = (
    "transformer_c is built for Linux and macOS, not for Windows: its threads and its memory are POSIX's. "
    "On a Windows machine install it inside the Windows Subsystem for Linux (wsl --install), where it is as on Linux."
)


def sources(folder):
    found = sorted((ROOT / "csrc" / folder).glob("*.c"))
    if not found:
        raise SystemExit(f"csrc/{folder} has no C files: this copy of the sources is not whole")
    return found


# Seconds for one object of a kernel that takes long, with gcc 12: those are compiled first, so that all cores finish together.
SECONDS = {
    "attention_backward": 5,
    "gemm": 6,
    "attention": 3,
    "attention_product": 2,
    "reduce": 2.5,
    "copy": 4,
    "binary": 2.5,
    "unary": 2,
    "integer": 2,
    "integer_32": 2,
    "softmax": 1,
}


def seconds(source):
    return SECONDS.get(source.stem, 0.5) if source.parent.name == "cpu" else 0.5


class Progress:
    """Says how far a build is: on a terminal in one line that changes, elsewhere in a line every ten percent or ten seconds."""

    def __init__(self, total, shown):
        self.total, self.shown = total, shown
        self.live = sys.stdout.isatty()
        self.finished, self.told, self.told_at = 0, 0, time.monotonic()
        self.lock = threading.Lock()

    def done(self, what):
        with self.lock:
            self.finished += 1
            now = time.monotonic()
            if self.live:
                self.say(f"{self.finished} of {self.total}, {what}", "\r\033[K", "")
            elif self.finished - self.told >= self.total / 10 or now - self.told_at >= 10:
                self.say(f"{self.finished} of {self.total}, {what}")
                self.told, self.told_at = self.finished, now

    def end(self):
        if self.live:
            self.say("", "\r\033[K", "")

    def say(self, text, start="", end="\n"):
        if self.shown:
            print(start + text, end=end, flush=True)


class BuildCore(build_ext):
    """Compiles the objects of one extension in parallel and links them."""

    def set_up(self):
        """Compiler, flags, and the folder of the objects."""
        if sys.platform == "win32":
            raise SystemExit(NOT_FOR_WINDOWS)
        self.compiler_command = self.compiler.compiler_so[:1] if not os.environ.get("CC") else os.environ["CC"].split()
        self.check_compiler()
        if sys.platform == "darwin":
            self.compiler_command += os.environ.get("ARCHFLAGS", "").split()  # "-arch x86_64" on a machine with another processor
        macros = self.macros()
        if "_WIN32" in macros:
            raise SystemExit(NOT_FOR_WINDOWS)
        self.macos = "__APPLE__" in macros
        self.sanitize = sanitize = os.environ.get("TRANSFORMER_C_SANITIZE", "")
        strict = os.environ.get("TRANSFORMER_C_WERROR") == "1"
        # One folder for every kind of build (pip builds in a temporary folder), so that only changed files are compiled again.
        kind = "-".join([Path(self.compiler_command[-1]).name, *sanitize.split(","), *(["strict"] if strict else [])]).strip("-")
        self.objects = Path(os.environ.get("TRANSFORMER_C_OBJECTS") or ROOT / "build" / "objects") / kind
        self.objects.mkdir(parents=True, exist_ok=True)
        self.workers = int(os.environ.get("TRANSFORMER_C_JOBS", 0)) or os.cpu_count() or 1
        flags = [*C_FLAGS, *(["-Werror"] if strict else [])]
        flags += [flag for processor, needed in PROCESSOR_FLAGS.items() if processor in macros for flag in needed]
        # A thread's own variables are there before it starts: they cost no call to find, and no memory that could run out. There are few
        # (test_package.py counts the bytes), as glibc has little room for those of extensions; other C libraries have none.
        if "__GLIBC__" in macros:
            flags.append("-ftls-model=initial-exec")
        if not sanitize:
            flags.append("-fno-asynchronous-unwind-tables")  # 3 % of the wheel, and nothing is thrown through C
        if sanitize:
            flags += [f"-fsanitize={sanitize}", "-fno-omit-frame-pointer", "-g1", "-DTC_ASSERTIONS"]
        known = next((sets for processor, sets in ISAS.items() if processor in macros), {"baseline": []})
        wanted = (os.environ.get("TRANSFORMER_C_BUILD_ISAS") or ",".join(known)).split(",")
        self.isas = {name: extra for name, extra in known.items() if name in wanted and self.accepts(extra)}
        more = os.environ.get("TRANSFORMER_C_CFLAGS", "").split()
        self.tiles = {}
        for name, (beside, extra) in TILES.items():
            if EMULATE_TILES in more:
                self.tiles[name] = ("baseline", [])
            elif beside in self.isas and name in (os.environ.get("TRANSFORMER_C_BUILD_ISAS") or name).split(",") and self.accepts(extra):
                self.tiles[name] = (beside, [*self.isas[beside], *extra])
        flags += [f"-DTC_HAVE_{name.upper()}" for name in (*self.isas, *self.tiles) if name != "baseline"]
        self.plain = [*flags, "-O1" if sanitize else "-O2", *more]
        unscheduled = UNSCHEDULED if macros >= {"__clang__", "__x86_64__"} and self.accepts(UNSCHEDULED) else []
        optimised = ["-O1" if sanitize else "-O3"]
        if {"address", "undefined"} <= {*sanitize.split(",")}:
            optimised += UNCHECKED
        self.kernels = {name: [*flags, *optimised, *unscheduled, *more] for name in self.isas}
        self.rolled = {name: extra for name, extra in ROLLED.items() if self.accepts(["-Werror", *extra])}
        if len(self.isas) > 1 and not sanitize and self.accepts(["-Werror", *SMALLER]):
            self.kernels["baseline"] = [*flags, *SMALLER, *more]

    def library_jobs(self):
        """(source, object, flags, what it is called) of all that needs no Python."""
        named = {"cuda_library.c": build_cuda.sources_options()}
        jobs = [
            (path, self.objects / f"{path.parent.name}-{path.stem}.o", [*self.plain, *named.get(path.name, [])], path.name)
            for folder in ("core", "ops")
            for path in sources(folder)
        ]
        jobs += [
            (
                path,
                self.objects / f"{path.stem}-{precision}-{isa}.o",
                [*self.kernels[isa], *self.rolled.get(path.stem, []), *extra, f"-DTC_ISA={isa}", f"-DTC_PRECISION={precision}"],
                f"{path.name} {isa} float{precision}",
            )
            for path in sources("kernels/cpu")
            for isa, extra in self.isas.items()
            for precision in (32, 64)
        ]
        jobs += [
            (
                path,
                self.objects / f"{path.stem}-32-{isa}.o",
                [*self.kernels[beside], *extra, f"-DTC_ISA={isa}", "-DTC_PRECISION=32", f"-DTC_TILES_BESIDE={beside}"],
                f"{path.name} {isa} float32",
            )
            for path in sources("kernels/cpu/tiles")
            for isa, (beside, extra) in self.tiles.items()
        ]
        return jobs

    def build_extension(self, ext):
        self.set_up()
        with_cuda = os.environ.get("TRANSFORMER_C_CUDA") == "1"
        if with_cuda:
            build_cuda.find_compiler()  # or says what is missing, before minutes of compiling
        jobs = self.library_jobs()
        version = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        binding = [*self.plain, *(f"-I{p}" for p in self.python_includes())]
        jobs += [(path, self.objects / f"{version}-{path.stem}.o", binding, path.name) for path in sources("python")]
        self.compile_all(jobs, self.workers)

        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        link = [*self.compiler_command, "-shared", "-pthread", "-o", str(target)]
        link += ["-undefined", "dynamic_lookup"] if self.macos else []  # the names that Python itself defines
        link += [str(job[1]) for job in jobs]
        link += [f"-fsanitize={self.sanitize}"] if self.sanitize else ["-Wl,-x" if self.macos else "-s"]
        self.call([*link, "-lm", "-ldl"])
        (target.parent / build_cuda.LIBRARY).unlink(missing_ok=True)  # of an earlier build
        if with_cuda:
            command = [sys.executable, str(ROOT / "tools" / "build_cuda.py"), "--output", str(target.parent), "--jobs", str(self.workers)]
            if subprocess.run(command).returncode:
                raise SystemExit("the CUDA library could not be built; TRANSFORMER_C_CUDA=0 leaves it out")

    def python_includes(self):
        import numpy

        return [*self.include_dirs, numpy.get_include()]

    def compile_all(self, jobs, workers):
        """Compiles the objects that are missing or older than what they were made of."""
        ages = {}
        stale = [job for job in jobs if not self.fresh(*job[:3], ages)]
        if not stale:
            return
        stale.sort(key=lambda job: seconds(job[0]), reverse=True)
        started = time.monotonic()
        progress = Progress(len(stale), self.verbose)
        progress.say(
            f"compiling {len(stale)} {'file' if len(stale) == 1 else 'files'} with {workers} {'job' if workers == 1 else 'jobs'}{self.estimate(stale, workers)}"
        )

        def compile_one(job):
            self.compile(*job[:3])
            progress.done(job[3])

        with ThreadPoolExecutor(workers) as pool:
            results = [pool.submit(compile_one, job) for job in stale]
            try:
                wait(results, return_when=FIRST_EXCEPTION)
            finally:  # also by Ctrl-C: what has not begun is not compiled
                pool.shutdown(cancel_futures=True)
                progress.end()
        for result in results:
            if not result.cancelled():
                result.result()
        progress.say(f"built in {time.monotonic() - started:.0f} s")

    @staticmethod
    def estimate(jobs, workers):
        """In words, for what takes long: machines, and their load, differ by a factor of four."""
        minutes = sum(seconds(job[0]) for job in jobs) / min(workers, os.cpu_count() or 1) / 60
        return f" ({max(1, round(minutes / 2))} to {round(minutes * 1.7)} minutes)" if minutes > 0.75 else ""

    def command(self, source, target, flags):
        return [
            *self.compiler_command,
            *flags,
            "-MMD",
            "-MF",
            str(target.with_suffix(".d")),
            "-c",
            str(source.relative_to(ROOT)),
            "-o",
            str(target),
        ]

    def compile(self, source, target, flags):
        command = self.command(source, target, flags)
        stamp = target.with_suffix(".cmd")
        stamp.unlink(missing_ok=True)  # a half-written object has none
        self.call(command)
        stamp.write_text(" ".join(command))

    def fresh(self, source, target, flags, ages):
        """Is the object newer than everything it was made of, by the same command? ages: when files that were asked for changed."""
        stamp, depends = target.with_suffix(".cmd"), target.with_suffix(".d")
        if not (target.exists() and stamp.exists() and depends.exists()):
            return False
        if stamp.read_text() != " ".join(self.command(source, target, flags)):
            return False
        names = re.split(r"(?<!\\)\s+", depends.read_text().replace("\\\n", " ").split(":", 1)[1].strip())
        for name in names:
            if name not in ages:
                ages[name] = os.path.getmtime(ROOT / name) if os.path.exists(ROOT / name) else float("inf")
        made = target.stat().st_mtime
        return all(ages[name] <= made for name in names)

    def call(self, command):
        if self.verbose > 1:
            print(" ".join(command), flush=True)
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        if done.stderr:
            sys.stderr.write(done.stderr)
        if done.returncode:
            raise SystemExit(f"the C compiler failed (exit status {done.returncode}):\n{' '.join(command)}")

    def check_compiler(self):
        try:
            subprocess.run([*self.compiler_command, "--version"], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            raise SystemExit(
                f"transformer_c is built from C and found no working compiler ({' '.join(self.compiler_command)}). "
                "Install gcc 9 or newer, or clang (Debian, Ubuntu: apt install build-essential), or name one with CC=..."
            ) from None

    def macros(self):
        """What the compiler defines: processor, system and C library are those it compiles for, which need not be this machine's."""
        source = "#include <limits.h>\n"  # any header of the C library's
        done = subprocess.run([*self.compiler_command, "-dM", "-E", "-xc", "-"], input=source, capture_output=True, text=True)
        return {line.split()[1] for line in done.stdout.splitlines() if line.startswith("#define ")}

    def accepts(self, flags):
        """Does the compiler know these flags?"""
        with tempfile.TemporaryDirectory() as folder:
            probe = Path(folder) / "probe.c"
            probe.write_text("int probe;\n")
            done = subprocess.run(
                [*self.compiler_command, *flags, "-c", str(probe), "-o", str(probe.with_suffix(".o"))], capture_output=True
            )
        return done.returncode == 0


class BuildLibrary(BuildCore):
    """Compiles what needs no Python, and puts it into an archive that a C program links."""

    description = "build build/libtransformer_c.a for programs in C"

    def build_extension(self, ext):
        self.set_up()
        jobs = self.library_jobs()
        self.compile_all(jobs, self.workers)
        target = ROOT / "build" / "libtransformer_c.a"
        target.unlink(missing_ok=True)  # ar would keep members that are gone
        self.call(["ar", "rcs", str(target), *(str(job[1]) for job in jobs)])


setup(
    ext_modules=[Extension("transformer_c._core", sources=[])],
    cmdclass={"build_ext": BuildCore, "build_library": BuildLibrary},
)
