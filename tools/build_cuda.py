"""Builds libtransformer_c_cuda.so next to the extension module, with nvcc.

    python tools/build_cuda.py [--output DIRECTORY] [--targets sm_80,sm_90] [--jobs N] [--quick]

TRANSFORMER_C_CUDA=auto (the default) builds where nvcc is found, 0 never, 1 always: without nvcc that is an error.
NVCC names the compiler. Kernels that are the same as last time are not compiled again.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ROOT / "csrc" / "kernels"
OBJECTS = ROOT / "build" / "cuda"
LIBRARY = "libtransformer_c_cuda.so"
# Machine code for these GPUs (docs/gpu.md says which they are), and PTX of the last for later ones.
TARGETS = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"]
OLDEST = 13  # version of the toolkit
FLAGS = [
    "-std=c++17",
    "-O3",
    "--expt-relaxed-constexpr",
    "-Xcompiler",
    "-fPIC,-fvisibility=hidden",
    "-Xfatbin",
    "-compress-all",
    "-Xptxas",
    "-v",
]
# Kernels in which two ways to the same number, as by vectors and by elements, must give the same bits: as on CPUs, only what says so is fused
# into one operation. Products and attention leave it to the compiler.
FUSED = ("gemm", "attention", "encoder_block")


QUICK = ["-Ofc=max"]  # compiles in a third of the time, to slow code


def flags_of(source: Path, quick: bool = False) -> list[str]:
    return [*FLAGS, *([] if source.stem.startswith(FUSED) else ["-fmad=false"]), *(QUICK if quick else [])]


def find_nvcc() -> str | None:
    named = os.environ.get("NVCC")
    if named and not shutil.which(named):
        raise SystemExit(f"NVCC is {named!r}, which is not a program; expected the path of nvcc, or leave NVCC out to have it looked for")
    return named or shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


@functools.cache
def version(nvcc: str) -> str:
    """What it says of itself, which objects depend on. SystemExit when it is older than the kernels need."""
    done = subprocess.run([nvcc, "--version"], capture_output=True, text=True)
    found = re.search(r"release (\d+)\.(\d+)", done.stdout)
    if found and int(found[1]) < OLDEST:
        raise SystemExit(
            f"{nvcc} is of CUDA {found[1]}.{found[2]}, and {OLDEST} is needed: install the CUDA toolkit {OLDEST}, or name its compiler in NVCC"
        )
    return done.stdout + done.stderr


def sources() -> list[Path]:
    return sorted((KERNELS / "cuda").glob("*.cu"))


def code_flags(targets: list[str]) -> list[str]:
    if not all(targets):
        raise SystemExit("--targets names no GPU; expected names such as sm_80,sm_90")
    flags = [f"-gencode=arch=compute_{name[3:]},code={name}" for name in targets]
    return flags + [f"-gencode=arch=compute_{name[3:]},code=compute_{name[3:]}" for name in targets[-1:]]


def _digest(*folders: Path, suffixes: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.iterdir() if path.suffix in suffixes):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def digest_of_headers() -> str:
    """Of those that core and kernels share."""
    return _digest(KERNELS.parent, KERNELS, suffixes=(".h", ".def"))


def sources_options() -> list[str]:
    """Options for the two files with tc_kernel_rows (kernel_ids.h), of the core and of the kernels."""
    code = _digest(KERNELS / "cuda", suffixes=(".cu", ".cuh", ".h", ".def"))
    return [f"-DTC_KERNEL_HEADERS={digest_of_headers()}", f"-DTC_KERNEL_CODE={code}"]


def with_headers(*sources: Path, places: tuple[Path, ...] = ()) -> set[Path]:
    """Those files and all that they include by `#include "name"`, from their own folder, from `places`, or from among the kernels for GPUs. Without
    kernels.def: of its rows a file gets declarations alone, which change no code of it."""
    found: set[Path] = set()
    waiting = [source.resolve() for source in sources]
    while waiting:
        path = waiting.pop()
        if path in found or path.name == "kernels.def":
            continue
        found.add(path)
        for name in re.findall(r'^# *include "([^"]+)"', path.read_text(), flags=re.M):
            of_name = (place / name for place in (path.parent, *places, KERNELS / "cuda"))
            waiting += [path.resolve() for path in of_name if path.exists()][:1]  # the compiler says which it does not find
    return found


def command_of(nvcc: str, source: Path, targets: list[str], output: str, quick: bool = False) -> tuple[list[str], Path]:
    """How the file is compiled, but for where to, and the name of what is made, by all that it depends on."""
    code = code_flags(targets) if output == "-c" else [f"-arch={targets[0]}"]
    named = sources_options() if source.name == "table.cu" else []
    command = [nvcc, *flags_of(source, quick), *code, *named, output, str(source)]
    key = hashlib.sha256(repr((version(nvcc), command[1:-1])).encode())
    for path in [*sorted(with_headers(source) - {source.resolve()}), KERNELS / "kernels.def", source]:
        key.update(path.read_bytes())
    return command, OBJECTS / f"{source.stem}-{key.hexdigest()[:16]}.o"


def compile_object(nvcc: str, source: Path, targets: list[str], output: str = "-c", quick: bool = False) -> Path:
    """An object file, or with output="-cubin" the machine code alone, of one target. Of an object the machine code of each target is kept as
    well, which then need not be compiled once more."""
    command, target = command_of(nvcc, source, targets, output, quick)
    OBJECTS.mkdir(parents=True, exist_ok=True)
    with _locked(target):  # another process may be compiling it
        if not target.exists():
            _compile(
                command,
                source,
                target,
                {name: command_of(nvcc, source, [name], "-cubin", quick)[1] for name in targets if output == "-c"},
            )
    return target


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str], source: Path) -> str:
    """What nvcc says of the file. SystemExit when it refuses it."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"nvcc failed on {source.name}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def _compile(command: list[str], source: Path, target: Path, machine_code: dict[str, Path]) -> None:
    """Makes `target`, and the machine code for each GPU where it is not there yet: its kernels have other names in each compilation, and the
    report beside it has to be of the same one."""
    with tempfile.TemporaryDirectory(dir=OBJECTS) as folder:
        made = Path(folder) / "made.o"
        report = _run([*command, "--keep", "--keep-dir", folder, "-o", str(made)], source)
        for name, place in machine_code.items():
            # x.compute_75.cubin, beside PTX x.compute_80.sm_80.cubin, or x.sm_80.cubin where no other target is
            for kept in Path(folder).glob(f"{source.stem}.*cubin"):
                if not {f"compute_{name[3:]}", name} & {*kept.name.split(".")}:
                    continue
                with _locked(place):
                    if not place.exists():
                        report_of(place).write_text(report)
                        kept.replace(place)
        report_of(target).write_text(report)
        made.replace(target)


def report_of(compiled: Path) -> Path:
    """The file with ptxas's report on an object's kernels: registers, memory, spills. Beside machine code it may tell of other targets too."""
    return compiled.with_suffix(".txt")


def find_compiler() -> str | None:
    """nvcc, or None if it is neither found nor required. SystemExit when it is required, or is too old."""
    wanted, nvcc = os.environ.get("TRANSFORMER_C_CUDA", "auto"), find_nvcc()
    if wanted not in ("auto", "0", "1"):
        raise SystemExit(f"TRANSFORMER_C_CUDA is {wanted!r}; expected auto, 0 or 1")
    if wanted == "0" or (wanted == "auto" and nvcc is None):
        missing = f"nvcc is not found; install the CUDA toolkit {OLDEST}, or name its compiler in NVCC"
        print("the CUDA library is not built: " + ("TRANSFORMER_C_CUDA=0" if wanted == "0" else missing), flush=True)
        return None
    if nvcc is None:
        raise SystemExit(f"TRANSFORMER_C_CUDA=1 but nvcc is not found; install the CUDA toolkit {OLDEST} or name its compiler in NVCC")
    version(nvcc)
    return nvcc


def build(output: Path, targets: list[str], jobs: int, quick: bool = False) -> Path | None:
    """The library's path, or None if nvcc is neither found nor required."""
    nvcc = find_compiler()
    if nvcc is None:
        return None
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        objects = list(pool.map(lambda source: compile_object(nvcc, source, targets, quick=quick), sources()))
    output.mkdir(parents=True, exist_ok=True)
    library = output / LIBRARY
    temporary = library.with_suffix(f".{os.getpid()}.so")
    link = [nvcc, "-shared", "-cudart=static", "-Xlinker", "--no-undefined", *code_flags(targets), "-o", str(temporary), *map(str, objects)]
    done = subprocess.run(link, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"nvcc could not link the CUDA library:\n{done.stdout}{done.stderr}")
    temporary.replace(library)
    return library


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="python/transformer_c unless it is given")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--quick", action="store_true", help="in a third of the time, with slow code: to see that all compiles, links and opens"
    )
    options = parser.parse_args()
    if options.quick and not options.output:
        parser.error("--quick makes slow code: name another directory than the package's by --output")
    targets = options.targets.split(",")
    library = build(options.output or ROOT / "python" / "transformer_c", targets, options.jobs, options.quick)
    if library:
        print(f"{library}: {library.stat().st_size / 2**20:.1f} MiB for {options.targets}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
