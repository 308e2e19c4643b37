"""Commands as processes, for the tests of the command line."""

import os
import signal
import subprocess
import sys

import transformer_c as tc


def started(*arguments, cwd, stdin=None):
    """A running command, in a process that Ctrl-C reaches even where the tests run in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "transformer_c", *map(str, arguments)], cwd=cwd, text=True, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "TRANSFORMER_C_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "COLUMNS": "100"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def command(*arguments, cwd, status=0, given=None):
    """(standard output, standard error) of a command that ends with `status`; `given` is its standard input."""
    process = started(*arguments, cwd=cwd, stdin=None if given is None else subprocess.PIPE)
    out, err = process.communicate(given, timeout=300)
    assert process.returncode == status, err
    assert "Traceback" not in err
    return out, err


def contents(folder):
    """The files that two equal runs share, byte for byte. (last.safetensors also contains NumPy's and Python's streams, which are not seeded.)"""
    files = {name: (folder / name).read_bytes() for name in ("best.safetensors", "history.csv", "options.json")}
    return files, {k: v.tobytes() for k, v in tc.load(folder / "last.safetensors")["state_dict"].items()}
