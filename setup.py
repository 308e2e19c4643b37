"""Builds the extension module transformer_c._core.

Everything that does not need Python is in pyproject.toml. Here: each CPU kernel is compiled once per instruction set and
precision, all objects are compiled in parallel, and only what changed is compiled again.

Environment: CC (compiler), TRANSFORMER_C_SANITIZE ("address,undefined", "thread"), TRANSFORMER_C_JOBS (parallel compiles),
TRANSFORMER_C_WERROR=1 (warnings are errors, as in CI), TRANSFORMER_C_CUDA=1 (the CUDA library as well, with nvcc, which takes
minutes; "make cuda" builds it later).
"""

import os
import platform
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
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
    "-Wno-missing-field-initializers", # the rest of a row is zero
]
X86 = platform.machine().lower() in ("x86_64", "amd64")
ISAS = {"baseline": []}
if X86:
    ISAS["avx2"] = ["-mavx2", "-mfma", "-mf16c"]
    ISAS["avx512"] = ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mf16c", "-mprefer-vector-width=512"]


def sources(folder):
    found = sorted((ROOT / "csrc" / folder).glob("*.c"))
    if not found:
        raise SystemExit(f"csrc/{folder} has no C files: this copy of the sources is not whole")
    return found


class BuildCore(build_ext):
    """Compiles the objects of one extension in parallel and links them."""

    def build_extension(self, ext):
        self.compiler_command = self.compiler.compiler_so[:1] if not os.environ.get("CC") else os.environ["CC"].split()
        self.check_compiler()
        sanitize = os.environ.get("TRANSFORMER_C_SANITIZE", "")
        strict = os.environ.get("TRANSFORMER_C_WERROR") == "1"
        # One place whatever asks for the build (pip's own lies in a temporary folder), so that only what changed is compiled again.
        kind = "-".join([Path(self.compiler_command[-1]).name, *sanitize.split(","), *(["strict"] if strict else [])]).strip("-")
        objects = ROOT / "build" / "objects" / kind
        flags = [*C_FLAGS, *(["-Werror"] if strict else [])]
        optimise = ["-O3"]
        if sanitize:
            flags += [f"-fsanitize={sanitize}", "-fno-omit-frame-pointer", "-g"]
            optimise = ["-O1"]
        isas = {name: extra for name, extra in ISAS.items() if self.accepts(extra)}
        flags += [f"-DTC_HAVE_{name.upper()}" for name in isas if name != "baseline"]
        plain = [*flags, *(optimise if sanitize else ["-O2"])]

        jobs = [(path, objects / f"{path.parent.name}-{path.stem}.o", plain) for folder in ("core", "ops") for path in sources(folder)]
        jobs += [
            (
                path,
                objects / f"{path.stem}-{precision}-{isa}.o",
                [*flags, *optimise, *extra, f"-DTC_ISA={isa}", f"-DTC_PRECISION={precision}"],
            )
            for path in sources("kernels/cpu")
            for isa, extra in isas.items()
            for precision in (32, 64)
        ]
        version = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        binding = [*plain, *(f"-I{p}" for p in self.python_includes())]
        jobs += [(path, objects / f"{version}-{path.stem}.o", binding) for path in sources("python")]
        objects.mkdir(parents=True, exist_ok=True)
        workers = int(os.environ.get("TRANSFORMER_C_JOBS", 0)) or os.cpu_count() or 1
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(lambda job: self.compile(*job), jobs))

        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        link = [*self.compiler_command, "-shared", "-pthread", "-o", str(target)]
        link += [str(job[1]) for job in jobs]
        link += [f"-fsanitize={sanitize}"] if sanitize else ["-s"]
        self.call([*link, "-lm", "-ldl"])
        if os.environ.get("TRANSFORMER_C_CUDA") == "1":
            command = [sys.executable, str(ROOT / "tools" / "build_cuda.py"), "--output", str(target.parent), "--jobs", str(workers)]
            if subprocess.run(command).returncode:
                raise SystemExit("the CUDA library could not be built; TRANSFORMER_C_CUDA=0 leaves it out")

    def python_includes(self):
        import numpy

        return [*self.include_dirs, numpy.get_include()]

    def compile(self, source, target, flags):
        """Compiles one file unless its object is newer than everything it was made of, with the same command."""
        depends = target.with_suffix(".d")
        command = [*self.compiler_command, *flags, "-MMD", "-MF", str(depends), "-c", str(source), "-o", str(target)]
        stamp = target.with_suffix(".cmd")
        if target.exists() and stamp.exists() and stamp.read_text() == " ".join(command) and self.fresh(target, depends):
            return
        self.call(command)
        stamp.write_text(" ".join(command))

    @staticmethod
    def fresh(target, depends):
        made = target.stat().st_mtime
        if not depends.exists():
            return False
        names = re.split(r"(?<!\\)\s+", depends.read_text().replace("\\\n", " ").split(":", 1)[1].strip())
        return all(Path(n).exists() and Path(n).stat().st_mtime <= made for n in names if n)

    def call(self, command):
        if self.verbose > 1:
            print(" ".join(command), flush=True)
        done = subprocess.run(command, capture_output=True, text=True)
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

    def accepts(self, flags):
        """Does the compiler know these flags?"""
        with tempfile.TemporaryDirectory() as folder:
            probe = Path(folder) / "probe.c"
            probe.write_text("int probe;\n")
            done = subprocess.run(
                [*self.compiler_command, *flags, "-c", str(probe), "-o", str(probe.with_suffix(".o"))], capture_output=True
            )
        return done.returncode == 0


setup(ext_modules=[Extension("transformer_c._core", sources=[])], cmdclass={"build_ext": BuildCore})
