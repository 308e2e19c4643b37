"""The kernel tests again, with the kernels compiled in the other flavours of emulation.py."""

import os
import pathlib
import re
import subprocess
import sys

import emulation
import pytest

HERE = pathlib.Path(__file__).parent
# They start kernels that other files have, with the same arguments, from graphs, streams and several threads.
OF_THE_HOST = tuple(f"test_cuda_{name}" for name in ("capture", "graph", "makers", "runtime", "streams", "trainer_waits", "waits"))


def run_kernel_tests(flavour, *options, without=(), **environment):
    environment = {**os.environ, **emulation.preload(flavour), "EMULATION_FLAVOUR": flavour, **environment}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        *(str(path) for path in sorted(HERE.glob("test_cuda_*.py")) if not path.name.startswith(without)),
        *options,
    ]
    if flavour == "thread":
        command = [*emulation.without_address_randomisation(), *command]
    emulation.kernel_library(flavour)  # compile outside the preloaded sanitizer
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1800)
    output = done.stdout[-4000:] + done.stderr[-6000:]
    assert done.returncode == 0, output
    assert int(re.search(r"(\d+) passed", done.stdout).group(1)) > 10, output


def test_no_access_is_out_of_bounds_or_misaligned():
    """AddressSanitizer and UndefinedBehaviorSanitizer over some cases of every test but whole trainings, which have most of its settings: what these
    see and the next test does not, arrays of one thread and the arithmetic of indices, differs by setting more than by shape."""
    run_kernel_tests("address", "-m", "not whole", "--by-turns", "--at-most", "6", without=OF_THE_HOST)


def test_accesses_are_ordered_and_as_in_kernels_def(tmp_path):
    """Every load and store of every case but whole trainings, by one of the schedules each, looked up by access_check.cpp: no race, no
    uninitialised read, nothing outside the kernel's row; and some case stores through each member of each row."""
    never_written = tmp_path / "never_written"
    run_kernel_tests("access", "-m", "not whole", "--by-turns", EMULATION_NEVER_WRITTEN=str(never_written))
    # Of attention's gradients the partial sums are the CPU's; gradient_norm reads the gradients in its chunks, which are listed for their order;
    # the alarms of indices are in memory of the host.
    known = {"attention_backward.dk_partial", "attention_backward.dv_partial", "gradient_norm.chunks", "check_index.alarm"}
    known |= {"index_gather.points.alarm", "index_points.alarm"}
    assert {*never_written.read_text().split()} == known


def test_thread_sanitizer_sees_no_race():
    """The small cases: ThreadSanitizer is a hundred times slower."""
    run_kernel_tests("thread", "-m", "small")


pytestmark = [
    pytest.mark.minutes,
    pytest.mark.follows_from(*emulation.BEHAVIOUR, programs=[" ".join(emulation.compiler())]),
    pytest.mark.skipif(sys.platform != "linux", reason="fibers, preloading and /proc are Linux's here"),
]
