"""ThreadSanitizer over the extension: at_once.py with the core, the ops, the binding and the kernels instrumented. Nothing is suppressed: CPython and
NumPy are not instrumented, and the GIL's mutex orders what happens under it.

Elements that two threads read and write at once by the user's own doing are not in at_once.py: the library gives no order to them.
"""

import contextlib
import fcntl
import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "transformer_c"
FOLDER = ROOT / "build" / "threads"
COMPILER = shlex.split(os.environ.get("CC", "")) or ["cc"]

pytestmark = [pytest.mark.minutes, pytest.mark.unsanitized]


def runtime():
    """The compiler's ThreadSanitizer, or None."""
    if not shutil.which(COMPILER[0]) or not sys.platform.startswith("linux"):
        return None
    found = subprocess.run([*COMPILER, "-print-file-name=libtsan.so"], capture_output=True, text=True).stdout.strip()
    return found if os.path.isabs(found) and os.path.exists(found) else None


@functools.cache
def without_address_randomisation():
    """A command prefix: ThreadSanitizer's shadow memory is at fixed addresses. Empty if it is not available."""
    setarch = shutil.which("setarch")
    works = setarch and subprocess.run([setarch, "-R", "true"], capture_output=True).returncode == 0
    return [setarch, "-R"] if works else []


@contextlib.contextmanager
def locked():
    """One process builds, the others wait."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def copy_package(folder):
    shutil.copytree(PACKAGE, folder / "transformer_c", ignore=shutil.ignore_patterns("*.so", "__pycache__"), dirs_exist_ok=True)


@pytest.fixture(scope="module")
def commands():
    """Builds the extension with one instruction set; returns the commands that a planted defect needs again: {source: compile}, link."""
    if runtime() is None:
        pytest.skip("this compiler has no ThreadSanitizer")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRANSFORMER_C_")}
    environment |= {"TRANSFORMER_C_SANITIZE": "thread", "TRANSFORMER_C_BUILD_ISAS": "baseline"}
    if "TRANSFORMER_C_OBJECTS" in os.environ:
        environment["TRANSFORMER_C_OBJECTS"] = os.environ["TRANSFORMER_C_OBJECTS"]
    with locked():
        copy_package(FOLDER)
        command = [sys.executable, "setup.py", "-v", "-v", "build_ext", "--build-lib", str(FOLDER)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        (link,) = [line.split() for line in done.stdout.splitlines() if " -shared " in line]
        objects = [Path(word) for word in link if word.endswith(".o")]
        stamps = [path.with_suffix(".cmd").read_text().split() for path in objects]
    return {words[words.index("-c") + 1]: words for words in stamps}, link


def run(folder, seconds, *names):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRANSFORMER_C_")}
    environment |= {"LD_PRELOAD": runtime(), "TSAN_OPTIONS": "exitcode=66", "PYTHONPATH": str(folder), "OPENBLAS_NUM_THREADS": "1"}
    program = Path(__file__).with_name("at_once.py")
    command = [*without_address_randomisation(), sys.executable, str(program), str(seconds), *names]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_nothing_is_reported(commands):
    done = run(FOLDER, 0.7)
    assert done.returncode == 0 and done.stdout.startswith("done"), (done.returncode, done.stderr[:6000])


# Defects: a source, what is taken out of it, what is put in, and who meets it.
DEFECTS = {
    "a call uses the header that other threads write": (
        "csrc/python/arguments.c",
        r"if \(!\*tensor \|\| .*\) return 0;",
        "return 0;",
        "data_and_forward",
    ),
    "gradients are stored without the lock": (
        "csrc/core/tape_walk.c",
        r"tc_lock_(take|give)\(&tc_replacing\);",
        "",
        "grad_none_and_backward",
    ),
    "backwards add to one gradient at once": (
        "csrc/core/tape_walk.c",
        r"tc_lock_(take|give)\(&commit_lock\);",
        "",
        "two_backwards_and_grad_none",
    ),
    "a generator without its lock": (
        "csrc/core/random.c",
        r"tc_lock_(take|give)\(&generator->lock\);",
        "",
        "random_numbers",
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(commands, name, tmp_path):
    source, pattern, replacement, use = DEFECTS[name]
    compiles, link = commands
    text, count = re.subn(pattern, replacement, (ROOT / source).read_text())
    assert count, "the defect no longer applies: plant it anew"
    planted, made = ROOT / source, tmp_path / "planted.o"
    words = compiles[source][:]
    was = words[words.index("-o") + 1]
    copy = tmp_path / planted.name
    copy.write_text(text)
    words[words.index("-c") + 1], words[words.index("-o") + 1], words[words.index("-MF") + 1] = str(copy), str(made), str(tmp_path / "d")
    built = subprocess.run([*words, f"-iquote{planted.parent}"], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    copy_package(tmp_path)
    target = tmp_path / "transformer_c" / Path(link[link.index("-o") + 1]).name
    again = [str(made) if word == was else word for word in link]
    again[again.index("-o") + 1] = str(target)
    subprocess.run(again, cwd=ROOT, check=True)
    done = run(tmp_path, 2, use)
    assert done.returncode != 0 and "ThreadSanitizer" in done.stderr, (done.returncode, done.stderr[-2000:])
