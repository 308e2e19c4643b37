"""What a build says while it compiles, and that it can be stopped. The compilation itself is tested by every build; setup.py cannot be imported."""

import ast
import io
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from machine_code import of_setup


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def build():
    """Makes a build's Progress that writes to `stream`; and the clock that it reads."""
    tree = ast.parse((Path(__file__).parents[1] / "setup.py").read_text())
    tree.body = [node for node in tree.body if getattr(node, "name", "") == "Progress"]
    clock = Clock()

    def make(stream, total, shown=1):
        names = {"sys": SimpleNamespace(stdout=stream), "time": clock, "print": lambda *a, **k: print(*a, file=stream, **k)}
        exec(compile("import threading", "setup.py", "exec"), names)
        exec(compile(tree, "setup.py", "exec"), names)
        return names["Progress"](total, shown)

    return make, clock


def test_in_a_pipe_a_line_every_ten_percent_or_ten_seconds(build):
    make, clock = build
    stream = io.StringIO()
    progress = make(stream, 200)
    for i in range(1, 201):
        clock.now += 11 if i == 25 else 0.01
        progress.done(f"file{i}.c")
    progress.end()
    lines = stream.getvalue().splitlines()
    assert lines[:4] == ["20 of 200, file20.c", "25 of 200, file25.c", "45 of 200, file45.c", "65 of 200, file65.c"]
    assert len(lines) == 10 and "\r" not in stream.getvalue()


def test_on_a_terminal_one_line_that_changes(build):
    stream = Terminal()
    progress = build[0](stream, 3)
    for name in ("a.c", "b.c", "c.c"):
        progress.done(name)
    progress.end()
    assert stream.getvalue().replace("\033[K", "").split("\r") == ["", "1 of 3, a.c", "2 of 3, b.c", "3 of 3, c.c", ""]


def test_a_quiet_build_says_nothing(build):
    stream = io.StringIO()
    progress = build[0](stream, 2, shown=0)
    progress.done("a.c")
    progress.say("built")
    assert stream.getvalue() == ""


COMPILER = """#!/bin/sh
for word; do [ "$word" = -dM ] && echo "#define ${DEFINES:-__x86_64__} 1"; [ "$last" = -o ] && target=$word; [ "$last" = -MF ] && names=$word; last=$word; done
[ -n "$names" ] && sleep SECONDS && echo "x: $0" > "$names"
[ -n "$target" ] && : > "$target"
exit 0
"""


def with_a_compiler(folder, seconds):
    """The environment of a build that takes this long for each file, and compiles nothing."""
    compiler = folder / "compiler"
    compiler.write_text(COMPILER.replace("SECONDS", str(seconds)))
    compiler.chmod(0o755)
    return {**os.environ, "CC": str(compiler), "TRANSFORMER_C_OBJECTS": str(folder / "objects"), "TRANSFORMER_C_JOBS": "2"}


def test_more_options_come_last(tmp_path):
    """The last -O of a command counts."""
    environment = {**with_a_compiler(tmp_path, 0), "TRANSFORMER_C_CFLAGS": "-O1 -DMORE"}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(tmp_path), "--build-temp", str(tmp_path)]
    subprocess.run(command, cwd=Path(__file__).parents[1], env=environment, check=True)
    commands = [path.read_text() for path in (tmp_path / "objects").rglob("*.cmd")]
    assert len(commands) > 100 and all(re.findall(r"-O\d", c)[-1] == "-O1" and "-DMORE" in c for c in commands)


def test_ctrl_c_ends_a_build(tmp_path):
    """All processes of the terminal get the signal; of some 225 files two or so are being compiled."""
    environment = with_a_compiler(tmp_path, 0.3)
    command = [sys.executable, "setup.py", "build_ext", "--build-lib", str(tmp_path), "--build-temp", str(tmp_path)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True, text=True) as build:  # fmt: skip
        try:
            while "compiling" not in (line := build.stdout.readline()):
                assert line, "the build has ended"
            while not [*(tmp_path / "objects").rglob("*.cmd")]:
                assert build.poll() is None, "the build has ended"
                time.sleep(0.05)
            os.killpg(build.pid, signal.SIGINT)
            assert build.wait(60) != 0
        finally:
            if build.poll() is None:
                os.killpg(build.pid, signal.SIGKILL)
    assert 0 < len([*(tmp_path / "objects").rglob("*.cmd")]) < 100


def test_16_threads():
    """The script that every wheel runs, in a process of its own; the extension says that it needs the GIL."""
    done = subprocess.run([sys.executable, Path(__file__).with_name("threads16.py")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "16 threads trained as one does; the GIL is on" in done.stdout, done.stdout + done.stderr


def test_the_target_is_the_compilers(tmp_path):
    """A compiler for another processor gets no option for x86-64, whatever this machine is."""
    environment = {**with_a_compiler(tmp_path, 0), "DEFINES": "__aarch64__"}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(tmp_path), "--build-temp", str(tmp_path)]
    subprocess.run(command, cwd=Path(__file__).parents[1], env=environment, check=True)
    commands = [path.read_text() for path in (tmp_path / "objects").rglob("*.cmd")]
    assert len(commands) > 60 and not [c for c in commands if "-mavx" in c or "TC_HAVE_AVX" in c or "initial-exec" in c]
    assert all("-DTC_HAVE_NEON" in c and ("-DTC_NEON" in c) == ("-DTC_ISA=neon" in c) for c in commands)
    assert sum("-DTC_NEON" in c for c in commands) == sum("-DTC_ISA=baseline" in c for c in commands) > 30


def test_a_build_for_windows_is_refused_before_anything_is_compiled(tmp_path):
    done = built(tmp_path, DEFINES="_WIN32")
    assert done.returncode == 1 and "not for Windows" in done.stderr and "wsl --install" in done.stderr and "Traceback" not in done.stderr
    assert not [*tmp_path.rglob("*.cmd")]


@pytest.mark.parametrize(
    ("flags", "refused"),
    [
        ((), False),
        (("-ffast-math",), True),
        (("-Ofast",), True),
        (("-U__FLT_EVAL_METHOD__", "-D__FLT_EVAL_METHOD__=2"), True),  # the x87
        (("-U__FLT_EVAL_METHOD__", "-D__FLT_EVAL_METHOD__=16"), False),  # gcc, for processors with arithmetic of float16 (-march=native)
    ],
)
def test_arithmetic_with_other_roundings_is_refused(flags, refused):
    """Errors of sums are summed as well, which -ffast-math takes out, and which are lost in registers of 80 bits."""
    needed = of_setup("PROCESSOR_FLAGS")["__i386__"] if platform.machine() in ("i386", "i686") else []
    kernel = ["csrc/kernels/cpu/unary.c", "-std=gnu11", "-DTC_PRECISION=32", "-DTC_ISA=baseline", "-fsyntax-only", *needed]
    done = subprocess.run(["cc", *kernel, *flags], cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert bool(done.returncode) == refused and ("results would be wrong" in done.stderr) == refused, done.stderr


@pytest.mark.skipif(platform.machine() != "x86_64", reason="32-bit x86 is compiled for on x86-64 alone")
def test_32_bit_x86_computes_without_80_bits():
    found = []
    for flags in ([], of_setup("PROCESSOR_FLAGS")["__i386__"]):
        command = ["cc", "-m32", "-march=i686", "-E", "-P", "-xc", "-", *flags]
        found.append(subprocess.run(command, input="__FLT_EVAL_METHOD__ __i386__", capture_output=True, text=True).stdout.split())
    assert found == [["2", "1"], ["0", "1"]]


def built(folder, **environment):
    """setup.py's build into the folder, by a compiler that compiles nothing."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(folder), "--build-temp", str(folder)]
    environment = {**with_a_compiler(folder, 0), **environment}
    return subprocess.run(command, cwd=Path(__file__).parents[1], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    "answer, message",
    [(None, "NVCC is '.*nvcc', which is not a program"), ("release 12.4, V12.4.1", "nvcc is of CUDA 12.4, and 13 is needed: install")],
    ids=["no nvcc", "an old one"],
)
def test_a_missing_nvcc_is_told_before_anything_is_compiled(tmp_path, answer, message):
    nvcc = tmp_path / "nvcc"
    if answer:
        nvcc.write_text(f"#!/bin/sh\necho '{answer}'\n")
        nvcc.chmod(0o755)
    done = built(tmp_path, TRANSFORMER_C_CUDA="1", NVCC=str(nvcc))
    assert done.returncode == 1 and re.search(message, done.stderr) and "Traceback" not in done.stderr
    assert not [*tmp_path.rglob("*.cmd")]


def test_a_build_without_cuda_has_no_cuda_library(tmp_path):
    """That of an earlier build in the same folder would go into the wheel, of whatever sources it was made."""
    library = tmp_path / "transformer_c" / "libtransformer_c_cuda.so"
    library.parent.mkdir()
    library.write_bytes(b"old")
    done = built(tmp_path)
    assert done.returncode == 0, done.stderr
    assert [path.name.split(".")[0] for path in library.parent.iterdir()] == ["_core"]
