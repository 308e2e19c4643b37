"""Calls of the system fail, one after the other: memory, threads, open, read, write, fsync, rename, close (faults/shim.c), over a training
with checkpoints, its resumption, saving, loading and every family of ops (faults/sweep.py). Each time: no crash, MemoryError or OSError,
objects and files as they were or as they should be, no descriptor lost, and the next call right.

A sample of the calls; `--slow` tries many more.
"""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.unsanitized,  # sanitizers have a malloc of their own
    pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD and glibc"),
]
FOLDER = Path(__file__).parent / "faults"
MEMORY, THREAD, OPEN, READ, WRITE, FSYNC, RENAME, CLOSE = (1 << i for i in range(8))
FILES = OPEN | READ | WRITE | FSYNC | RENAME | CLOSE
HALF = 0  # instead of an errno: reads and writes do half of what is asked


def compiled(target, *options):
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run(
        [*compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", *options, FOLDER / "shim.c", "-ldl", "-o", target], check=True
    )
    return target


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("shim") / "shim.so")


def sweep(shim, work, kinds, error, every, defect=None, whole_python=False, threads=1):
    """What sweep.py found. After a crash of CPython's own it goes on behind that call; any other end is something wrong."""
    environment = {**os.environ, "LD_PRELOAD": str(shim), "TRANSFORMER_C_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    if whole_python:  # every object of Python asks the system for its memory
        environment["PYTHONMALLOC"] = "malloc"
    part = call = tried = crashes = 0
    while True:
        command = [sys.executable, FOLDER / "sweep.py", work, kinds, error, every, part, call, *([defect] if defect else [])]
        done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, timeout=3000)
        if done.returncode == 0:
            found = json.loads(done.stdout.splitlines()[-1])
            return {**found, "tried": found["tried"] + tried, "crashes": crashes}
        if done.returncode != 77:
            return {"wrong": [f"exit status {done.returncode} after {done.stdout[-500:]!r}: {done.stderr[-2000:]}"], "tried": tried}
        crashes += 1
        places = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("trying ")]
        part, call, tried = int(places[-1][0]), int(places[-1][1]) + every, tried + len(places)


# (work, what fails, errno, every so-manyth call: a sample and with --slow, PYTHONMALLOC=malloc, how many are tried at least)
SWEEPS = {
    "saving, files": ("Saving", FILES, errno.ENOSPC, 1, 1, False, 8),
    "saving, half writes": ("Saving", WRITE, HALF, 1, 1, False, 3),
    "saving, memory": ("Saving", MEMORY, 0, 7, 1, True, 40),
    "loading, files": ("Loading", FILES, errno.EIO, 1, 1, False, 15),
    "loading, half reads": ("Loading", READ, HALF, 1, 1, False, 10),
    "loading, memory": ("Loading", MEMORY, 0, 61, 1, True, 35),
    "training, files": ("Training", FILES, errno.EIO, 5, 1, False, 10),
    "training, memory": ("Training", MEMORY, 0, 499, 17, True, 25),
    "resuming, files": ("Resuming", FILES, errno.EIO, 5, 1, False, 10),
    "resuming, memory": ("Resuming", MEMORY, 0, 499, 17, True, 25),
    "training, threads": ("TrainingAhead", THREAD, 0, 1, 1, False, 2),
    "product, threads": ("Threads", THREAD, 0, 1, 1, False, 3),
    "drawing, memory": ("Drawing", MEMORY, 0, 1, 1, True, 100),
    "ops, memory": ("Ops", MEMORY, 0, 37, 5, True, 55),
    "ops, the system's memory": ("Ops", MEMORY, 0, 1, 1, False, 12),
}


def check(shim, name, slow):
    work, kinds, error, every, every_slow, whole_python, least = SWEEPS[name]
    found = sweep(shim, work, kinds, error, every_slow if slow else every, whole_python=whole_python, threads=2 if work == "Ops" else 1)
    assert not found["wrong"], "\n".join(found["wrong"])
    assert found["tried"] >= least and found["crashes"] <= 1 + found["tried"] // 50, found
    print(found)


@pytest.mark.parametrize("name", SWEEPS)
def test_faults(shim, name):
    check(shim, name, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", SWEEPS)
def test_every_fault(shim, name):
    check(shim, name, slow=True)


SLOW = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
static void *slow_dlsym(void *library, const char *name)
{
    nanosleep(&(struct timespec){0, 100000}, NULL);
    return dlsym(library, name);
}
#define dlsym slow_dlsym
"""
ARMED = """
import ctypes, os, sys, threading, time
shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
path, RENAME, EIO = sys.argv[1], int(sys.argv[2]), 5
stop = False

def write():
    with open(path, "wb", buffering=0) as file:
        while not stop:
            file.write(b"x")

def renames():
    try:
        os.rename(path, path)
    except OSError:
        return False
    return True

write_thread = threading.Thread(target=write)
write_thread.start()
while not os.path.exists(path): pass
wrong = 0
def arm():
    shim.faults_arm(RENAME, ctypes.c_long(1), EIO)
    time.sleep(0.0003)

for _ in range(100):
    arm()
    wrong += renames()
    arm()
    shim.faults_disarm()
    time.sleep(0.0003)
    wrong += not renames()
stop = True
write_thread.join()
print(wrong)
"""


def test_calls_of_other_threads_do_not_arm_or_disarm(tmp_path):
    """A thread that looks up a function for long, while another arms and disarms."""
    (tmp_path / "slow.h").write_text(SLOW)
    environment = {**os.environ, "LD_PRELOAD": str(compiled(tmp_path / "slow.so", "-include", tmp_path / "slow.h"))}
    command = [sys.executable, "-c", ARMED, tmp_path / "x", str(RENAME)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "0\n"), done


# What the sweep is for: each defect is one that a change could bring.
DEFECTS = {
    "a short write is taken for a whole one": ("Saving", WRITE, HALF, 1, False, "cannot be loaded"),
    "the file is written in place": ("Saving", FILES, errno.EIO, 1, False, "cannot be loaded"),
    "a temporary file stays": ("Saving", WRITE, errno.EIO, 1, False, "was left behind"),
    "a folder that cannot be synced is an error": ("Saving", FSYNC, errno.EIO, 1, False, "the call failed, but the file has the content 2"),
    "a descriptor is lost": ("Loading", READ, errno.EIO, 7, False, "descriptors more"),
    "a module is loaded one weight after the other": ("Loading", MEMORY, 0, 13, True, "neither as it was nor as loaded"),
    "memory is not checked": ("Loading", MEMORY, 0, 1, False, "exit status -11"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(shim, defect):
    work, kinds, error, every, whole_python, message = DEFECTS[defect]
    found = sweep(shim, work, kinds, error, every, defect, whole_python)["wrong"]
    assert any(message in text for text in found), found
