"""The core without Python: compiles the programs of tests/c with the system's compiler and runs them, as they are and
under the sanitizers. `CC` names another compiler, as in the build."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CORE = ROOT / "csrc" / "core"
COMPILER = shlex.split(os.environ.get("CC", "")) or ["cc"]
FLAGS = [
    "-std=gnu11",
    "-g",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wstrict-prototypes",
    "-Wmissing-prototypes",
    "-Werror",
    "-pthread",
    f"-I{ROOT / 'csrc'}",
    f"-I{ROOT / 'tests' / 'c'}",
]

POOL = ["threads.c", "allocator.c", "lock.c", "cpu_count.c", "status.c"]
CPU = ["cpu.c", "cpu_count.c", "status.c"]
PROGRAMS = {  # name: (program, sources of csrc/core, macros)
    "status": ("test_status.c", ["status.c", "dtype.c"], []),
    "status-with-assertions": ("test_status.c", ["status.c", "dtype.c"], ["-DTC_ASSERTIONS"]),
    "cpu": ("test_cpu.c", CPU, ["-DTC_HAVE_AVX2", "-DTC_HAVE_AVX512", "-DTC_HAVE_AVX512_BF16", "-DTC_HAVE_AMX"]),
    "cpu-without-amx": ("test_cpu.c", CPU, ["-DTC_HAVE_AVX2", "-DTC_HAVE_AVX512"]),
    "cpu-without-avx512": ("test_cpu.c", CPU, ["-DTC_HAVE_AVX2"]),
    "cpu-baseline-only": ("test_cpu.c", CPU, []),
    "cpu-neon": ("test_cpu.c", CPU, ["-DTC_HAVE_NEON"]),
    "allocator": ("test_allocator.c", ["allocator.c", "lock.c", "status.c"], []),
    "allocator-no-cache": ("test_allocator.c", ["allocator.c"], ["-DTC_NO_CACHE"]),
    "threads": ("test_threads.c", POOL, []),
}
SANITIZED = [(name, "address,undefined") for name in ("status", "cpu", "allocator", "threads")]
SANITIZED += [(name, "thread") for name in ("allocator", "threads")]

# A sanitizer's own answers to what the tests do on purpose: sizes beyond all memory, many short-lived children.
OPTIONS = {
    "ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "allocator_may_return_null=1:halt_on_error=1:atexit_sleep_ms=0",
}

pytestmark = pytest.mark.skipif(not shutil.which(COMPILER[0]), reason=f"there is no C compiler {COMPILER[0]!r}")


def run(command, **options):
    return subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, **options
    )


def run_program(folder, name, extra):
    program, sources, macros = PROGRAMS[name]
    binary = folder / name
    built = run([*COMPILER, *FLAGS, *extra, *macros, ROOT / "tests" / "c" / program, *(CORE / source for source in sources), "-o", binary])
    assert built.returncode == 0, built.stdout
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRANSFORMER_C_")}
    result = run([binary], env={**environment, **OPTIONS})
    assert result.returncode == 0, result.stdout


@pytest.fixture(scope="module")
def has_runtime(tmp_path_factory):
    """Whether a program built with a sanitizer starts: (True, "") or (False, what was said)."""
    folder, known = tmp_path_factory.mktemp("runtime"), {}
    source = folder / "empty.c"
    source.write_text("int main(void) { return 0; }\n")

    def check(sanitizer):
        if sanitizer not in known:
            built = run([*COMPILER, f"-fsanitize={sanitizer}", source, "-o", folder / "empty"])
            result = run([folder / "empty"]) if built.returncode == 0 else built
            known[sanitizer] = (result.returncode == 0, result.stdout.strip())
        return known[sanitizer]

    return check


@pytest.mark.parametrize("name", PROGRAMS)
def test_plain(tmp_path, name):
    run_program(tmp_path, name, ["-O2"])


@pytest.mark.parametrize("name, sanitizer", SANITIZED)
def test_sanitized(tmp_path, has_runtime, name, sanitizer):
    works, said = has_runtime(sanitizer)
    if not works:
        pytest.skip(f"{COMPILER[0]} has no runtime for -fsanitize={sanitizer}: {said[-200:]}")
    run_program(tmp_path, name, ["-O1", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"])
