"""Jobs of several processes: a script under mpiexec, with a time limit."""

import contextlib
import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest

MPIEXEC = os.path.join(os.path.dirname(sys.executable), "mpiexec")
MPIEXEC = MPIEXEC if os.path.exists(MPIEXEC) else shutil.which("mpiexec")
needs_mpi = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None, reason="needs MPI: pip install 'transformer_c[mpi]'"
)
PACKAGE = pathlib.Path(__file__).parents[2] / "python"
LIMIT = 120  # seconds
YIELDING = {
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "10",
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
}  # MPICH's ranks that wait: there may be too few cores


def write_script(script, folder):
    """Writes a program, which has np and tc, as script.py; returns its path."""
    path = pathlib.Path(folder) / "script.py"
    path.write_text("import numpy as np, transformer_c as tc\n" + textwrap.dedent(script))
    return path


class Job:
    """A script that runs on several ranks.

    Parameters
    ----------
    ranks : int
    script : str
        Python code, or arguments of ``python`` as a list.
    folder : path
        Where it runs.
    """

    def __init__(self, ranks, script, folder, **environment):
        if isinstance(script, str):
            script = [write_script(script, folder).name]
        paths = os.pathsep.join(filter(None, [str(PACKAGE), str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [MPIEXEC, "-n", str(ranks), sys.executable, *map(str, script)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **YIELDING, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def result(self, limit=LIMIT):
        """(exit status, standard output, standard error); fails where the job takes longer."""
        try:
            out, err = self.process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.kill()
            out, err = self.process.communicate()
            pytest.fail(f"the job did not end within {limit} s\n{out[-2000:]}\n{err[-4000:]}")
        return self.process.returncode, out, err

    def kill(self):
        """Ends the job's processes, each of which has a session of its own."""
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def ranks(self):
        """The processes that run the script."""
        return [pid for pid in descendants(self.process.pid) if "script.py" in command_of(pid) and "mpiexec" not in command_of(pid)]


def command_of(pid):
    """The command line of a process; empty once it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def descendants(pid):
    """The processes that a process started, and those that they started."""
    found = []
    for task in pathlib.Path("/proc").glob(f"{pid}/task/*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def run(ranks, script, folder, limit=LIMIT, **environment):
    """The standard output of a job that succeeds."""
    status, out, err = Job(ranks, script, folder, **environment).result(limit)
    assert status == 0, f"exit status {status}\n{out[-2000:]}\n{err[-4000:]}"
    return out
