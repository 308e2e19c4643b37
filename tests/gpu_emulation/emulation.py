"""Compiles .cu files with g++ against the emulated GPU.

Flavours
  plain    -O2: the results, the schedules, and what the emulator checks itself
  address  AddressSanitizer and UndefinedBehaviorSanitizer: out-of-bounds and misaligned accesses of plain C++; not optimised, as
           compiling would take longer than what the tests save
  thread   ThreadSanitizer through its fiber interface: races, slowly
  access   every load and store is looked up by access_check.cpp: races, within and between blocks, reads of memory nobody
           wrote, bounds, alignment
  count    every load and store is counted by count.cpp: sectors, bank conflicts, and special functions, shuffles, barriers
What was compiled is kept in build/gpu_emulation/ under the hash of all that went into it.
"""

import concurrent.futures
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "tools"))
import build_cuda  # noqa: E402

KERNELS = ROOT / "csrc" / "kernels"
ROWS = ROOT / "csrc" / "core" / "kernels.c"  # of kernels.def, as the core has them
CACHE = ROOT / "build" / "gpu_emulation"

COMMON = ["-std=c++17", "-fPIC", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-Wno-unknown-pragmas", f"-I{HERE}", f"-I{KERNELS / 'cuda'}"]
# Kernels whose loads and stores call a function each. g++ would compute most square roots without a call, and sines with cosines.
CALLED = [f"-fno-builtin-{name}{suffix}" for name in ("sqrt", "sin", "cos") for suffix in ("", "f")]
HOOKED = ["-O1", "-g1", "-fsanitize=thread", "-DEMULATOR_HOOKS", *CALLED]
# The mathematical functions that count.cpp counts.
SPECIAL = re.findall(r"^SPECIAL_\d\((\w+)\)$", (HERE / "count.cpp").read_text(), flags=re.M)
FLAVOURS = {  # flags for the .cu files, for the emulator, for linking
    "plain": (["-O2"], ["-O2"], []),
    "address": (
        ["-O0", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
        ["-O2", "-g", "-DEMULATOR_ADDRESS_SANITIZER"],
        ["-fsanitize=address,undefined"],
    ),
    "thread": (HOOKED, ["-O2", "-g", "-DEMULATOR_THREAD_SANITIZER"], ["-fsanitize=thread"]),
    "access": (HOOKED, ["-O2", "-g", "-DEMULATOR_ACCESS_CHECK"], []),
    "count": (HOOKED, ["-O2", "-g", "-DEMULATOR_COUNT"], [f"-Wl,--wrap={name}{suffix}" for name in SPECIAL for suffix in ("", "f")]),
}


FLAVOUR = os.environ.get(
    "EMULATION_FLAVOUR", "plain"
)  # the one that the `cuda` fixture compiles: sanitizer tests start pytest again with another


def _constant(expression, texts):
    """The value of a product of numbers and `constexpr int` names, looked for in the first text that has them. S::threads of the shape that a
    kernel is compiled for counts as `most_threads`, which no shape exceeds."""
    product = 1
    for factor in map(str.strip, expression.replace("S::", "most_").split("*")):
        definitions = (re.search(rf"constexpr int {factor} = (.*?);", text) for text in texts)
        product *= int(factor) if factor.isdigit() else _constant(next(filter(None, definitions))[1], texts)
    return product


def launch_bounds():
    """The threads that a block of each kernel may have, by the kernel's name: the first argument of its __launch_bounds__."""
    texts = [path.read_text() for path in sorted((KERNELS / "cuda").glob("*.cu*"))]
    bounds = {}
    for text in texts:
        for expression, kernel in re.findall(r"__global__ void(?: __launch_bounds__\(([^,()]+)[^()]*\))?\s+(\w+)\(", text):
            assert expression, f"{kernel} has no __launch_bounds__"
            threads = _constant(expression, [text, *texts])
            assert bounds.setdefault(kernel, threads) == threads, f"two kernels are named {kernel}, and their bounds differ"
    return bounds


COUNTED_BY = "g++-12"  # the compiler whose code counts.json was counted with, where it is installed


def compiler():
    return os.environ.get("CXX", COUNTED_BY if shutil.which(COUNTED_BY) else "g++").split()


# The files from which it follows what the tests of this folder make kernels do: their code, that of the host which starts them, and the cases.
# The Python layer and the bindings are not among them: they choose which of these are started, and the flavour `plain` compares all that they
# compute.
BEHAVIOUR = (
    "csrc/*.h",
    "csrc/core/*.[ch]",
    "csrc/ops/*.[ch]",
    "csrc/ops/ops.def",
    "csrc/kernels/*.*",
    "csrc/kernels/cuda/*.*",
    "tests/gpu_emulation/*.py",
    "tests/gpu_emulation/*.cpp",
    "tests/gpu_emulation/*.h",
    "tests/conftest.py",
    "tests/op_cases.py",
    "tests/ops/test_*.py",
)
# What chooses the kernels of the cases in counts.py
CHOICE = ("csrc/python/*.[ch]", *(f"python/transformer_c/{name}/**/*.py" for name in ("functional", "nn", "optim", "tensor_functions")))


def _digest(paths, *more):
    digest = hashlib.sha256(repr(more).encode())
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _headers():
    return [
        *HERE.glob("*.h"),
        *HERE.glob("bugs/*.h"),
        *KERNELS.glob("*.h"),
        *KERNELS.glob("*.def"),
        *(KERNELS / "cuda").glob("*.*h"),
        *(KERNELS / "cuda").glob("*.def"),
    ]


def _run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def _publish(make, target):
    """make(path) writes the file, which then takes its name in one step. A second process that wants it waits for the first."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                temporary = target.with_name(f"{target.stem}.{os.getpid()}{target.suffix}")
                make(temporary)
                temporary.replace(target)
    return target


def compile_object(source, flavour, optimised=True):
    """The object file of one .cu, .cpp or .c file; with `optimised=False` a .cu file is compiled with -O0."""
    kernel_flags, emulator_flags, _ = FLAVOURS[flavour]
    flags = [*COMMON, *(kernel_flags if source.suffix == ".cu" else emulator_flags)]
    if source.suffix == ".cu" and not optimised:
        flags.append("-O0")  # the last one counts
    language = "c++"
    if source.name == "table.cu":
        flags += [f"-DTC_KERNEL_HEADERS={build_cuda.digest_of_headers()}", "-DTC_KERNEL_CODE="]
    if source.suffix == ".c":
        flags[0], language = "-std=gnu11", "c"
    key = _digest([source, *_headers()], compiler(), flags)
    target = CACHE / "objects" / f"{source.stem}-{key}.o"  # flavours with the same flags for kernels share them
    return _publish(lambda path: _run([*compiler(), *flags, "-x", language, "-c", source, "-o", path]), target)


def _objects(sources, flavour, optimised):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        own = [*sorted(HERE.glob("*.cpp")), ROWS]
        return list(pool.map(lambda source: compile_object(source, flavour, optimised), [*sources, *own]))


def _link(sources, flavour, suffix, flags, optimised=True):
    objects = _objects(sources, flavour, optimised)
    name = f"{sources[0].stem}-{_digest(objects, flags)}{suffix}"
    link = [*compiler(), *flags, *FLAVOURS[flavour][2], *objects, "-Wl,-Bsymbolic", "-ldl", "-pthread"]
    return _publish(lambda path: _run([*link, "-o", path]), CACHE / flavour / name)


def library(sources, flavour):
    """A shared object of these .cu files and the emulator."""
    return _link(list(sources), flavour, ".so", ["-shared"])


def _is_optimised(flavour):
    return flavour == "count"


def program(source, flavour):
    """A program of one .cu file, which has a main function of its own and is run once or twice: compiling is what takes long. So its kernels are
    optimised only where their loads and stores are counted."""
    return _link([source], flavour, "", [], optimised=_is_optimised(flavour))


def kernel_library(flavour):
    return library(sorted((KERNELS / "cuda").glob("*.cu")), flavour)


def hardware_library():
    """What nvcc has made of the same kernels: next to the extension, or named by TRANSFORMER_C_CUDA_LIBRARY."""
    return pathlib.Path(os.environ.get("TRANSFORMER_C_CUDA_LIBRARY") or ROOT / "python" / "transformer_c" / build_cuda.LIBRARY)


def preload(flavour):
    """The environment in which a Python that was built without sanitizers can load a library of this flavour."""
    if flavour == "address":
        runtime = subprocess.run([*compiler(), "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
        # Python leaks on purpose
        return {"LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0", "UBSAN_OPTIONS": "print_stacktrace=0"}
    if flavour == "thread":
        runtime = subprocess.run([*compiler(), "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True).stdout.strip()
        return {"LD_PRELOAD": runtime, "TSAN_OPTIONS": "report_bugs=1:halt_on_error=1:exitcode=66:report_signal_unsafe=0"}
    return {}


def without_address_randomisation():
    """A command prefix: ThreadSanitizer needs its shadow memory at fixed addresses. Empty if it is not available."""
    setarch = shutil.which("setarch")
    if setarch and subprocess.run([setarch, "-R", "true"], capture_output=True).returncode == 0:
        return [setarch, "-R"]
    return []
