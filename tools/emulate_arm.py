"""Runs tests on an emulated 64-bit Arm processor: python tools/emulate_arm.py [ARGUMENTS OF PYTEST]

    python tools/emulate_arm.py -n 2                          # TESTS below
    python tools/emulate_arm.py tests/ops/test_softmax.py -x

The C files are compiled by Debian's cross compiler (apt install gcc-aarch64-linux-gnu) and run by QEMU (apt install qemu-user-static), in
Debian's arm64 Python with NumPy's wheel for it. Those are downloaded once, into build/arm64; apt's state on this machine is not touched.
TRANSFORMER_C_CFLAGS has more options for that compiler.
The emulation computes every bit of the results and knows nothing of time. Exit status 77: something that this needs cannot be had here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDER = REPOSITORY / "build" / "arm64"
ROOT, PACKAGES, TREE = FOLDER / "root", FOLDER / "packages", FOLDER / "tree"
COMPILER = "aarch64-linux-gnu-gcc"
EMULATORS = ("qemu-aarch64-static", "qemu-aarch64")
DEBIAN = ("python3", "libpython3-dev", "libstdc++6", "libexpat1")
WHEELS = ("numpy>=2.0", "pytest", "pytest-xdist", "hypothesis", "ml_dtypes", "tqdm")
# Functions of elements, rows and their sums, random numbers, halves, products in place and packed, attention. Each case once: the baseline is
# tested on x86-64, and the emulator has all threads take turns.
TESTS = (
    "tests/ops/test_softmax.py",
    "tests/ops/test_unary.py",
    "tests/ops/test_add_layer_norm.py",
    "tests/ops/test_linear.py::test_an_element_does_not_depend_on_its_neighbours",
    "tests/ops/test_linear.py::test_leading_axes_and_strides",
    "tests/ops/test_linear.py::test_nan_and_infinity_stay_in_their_rows_and_columns",
    "tests/ops/test_linear.py::test_half_types",
    "tests/ops/test_halves.py::test_every_number_is_read_as_it_is",
    "tests/ops/test_halves.py::test_results_are_rounded_to_nearest_even",
    "tests/ops/test_halves.py::test_nan_and_infinity_reach_their_own_row_and_column_only",
    "tests/ops/test_attention.py::test_a_row_with_every_key_masked_attends_uniformly",
    "tests/ops/test_attention.py::test_leading_axes_broadcast",
    "tests/ops/test_equal_bits.py::test_a_sum_that_is_minus_zero_stays_so",
    "tests/ops/test_dropout.py::test_values",
)
ONCE = ("-k", "not baseline and not 1-threads and not 3-threads")
NOT_RUN = 77


class NotHere(Exception):
    """Something that this needs, and why it is not to be had."""


def call(command: list[str], missing: str, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        raise NotHere(f"{missing}: {(done.stderr or done.stdout).strip().splitlines()[-1:] or done.returncode}")
    return done.stdout


def find_tools() -> str:
    """The emulator."""
    for name in (COMPILER, "apt-get", "dpkg-deb"):
        if not shutil.which(name):
            raise NotHere(f"{name} is not found")
    emulator = next(filter(None, map(shutil.which, EMULATORS)), None)
    if not emulator:
        raise NotHere(f"{' or '.join(EMULATORS)} is not found")
    return emulator


def unpack_debian() -> None:
    """Python, its headers and libraries, into ROOT. apt has a state of its own there, so that this machine gets no other architecture."""
    if (FOLDER / "root.complete").exists():
        return
    state = FOLDER / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "1",
        "Dir::State::Lists": state / "lists",
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
    }
    apt = ["apt-get", "-q", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    call([*apt, "update"], "Debian's lists of arm64 packages")
    call([*apt, "install", "-y", "--no-install-recommends", "--download-only", *DEBIAN], "Debian's arm64 packages")
    for package in sorted((state / "cache" / "archives").glob("*.deb")):
        call(["dpkg-deb", "-x", str(package), str(ROOT)], f"{package.name} cannot be unpacked")
    (FOLDER / "root.complete").touch()


def interpreter() -> Path:
    return next(path for path in (ROOT / "usr" / "bin").glob("python3.*") if path.name.split(".")[1].isdigit())


def install_wheels() -> None:
    if (FOLDER / "packages.complete").exists():
        return
    shutil.rmtree(PACKAGES, ignore_errors=True)
    platforms = ("--platform", "manylinux_2_28_aarch64", "--platform", "manylinux2014_aarch64")
    python = ("--python-version", interpreter().name.removeprefix("python"))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(PACKAGES)]
    call([*pip, *platforms, *python, "--only-binary=:all:", *WHEELS], "NumPy's and pytest's wheels for arm64")
    (FOLDER / "packages.complete").touch()


def write_runner(emulator: str) -> Path:
    """A program that is Python for arm64, for this machine's shell; to the Python that it runs, it is sys.executable."""
    runner = FOLDER / "python"
    runner.write_text(f'#!/bin/sh\nexec env QEMU_LD_PREFIX="{ROOT}" "{emulator}" "{interpreter()}" "$@"\n')
    runner.chmod(0o755)
    TREE.mkdir(exist_ok=True)
    (TREE / "sitecustomize.py").write_text(f"import sys\n\nsys.executable = {str(runner)!r}\n")
    return runner


def build() -> None:
    """The package in TREE: its Python files, and an extension for the headers in ROOT."""
    shutil.rmtree(TREE / "transformer_c", ignore_errors=True)
    shutil.copytree(REPOSITORY / "python" / "transformer_c", TREE / "transformer_c", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    name = interpreter().name
    includes = ROOT / "usr" / "include"  # -idirafter: the C library's headers are the compiler's
    headers = f"-I{includes / name} -I{PACKAGES / 'numpy/_core/include'} -idirafter {includes}"
    environment = {
        **os.environ,
        "CC": COMPILER,
        "TRANSFORMER_C_CFLAGS": f"{headers} {os.environ.get('TRANSFORMER_C_CFLAGS', '')}",
        "TRANSFORMER_C_OBJECTS": str(FOLDER / "objects"),
        "SETUPTOOLS_EXT_SUFFIX": ".so",
    }
    command = [sys.executable, "setup.py", "build_ext", "--build-lib", str(TREE), "--build-temp", str(FOLDER / "temp")]
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True)


def main(arguments: list[str]) -> int:
    try:
        emulator = find_tools()
        FOLDER.mkdir(parents=True, exist_ok=True)
        unpack_debian()
        install_wheels()
    except NotHere as reason:
        print(f"not run: {reason}")
        return NOT_RUN
    runner = write_runner(emulator)
    build()
    if all(word.startswith("-") or word.isdigit() for word in arguments):
        arguments = [*arguments, *ONCE, *TESTS]
    environment = {**os.environ, "PYTHONPATH": f"{TREE}:{PACKAGES}"}
    return subprocess.run([str(runner), "-m", "pytest", *arguments], cwd=REPOSITORY, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
