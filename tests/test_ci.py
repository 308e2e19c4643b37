"""`.ci/run`: two lists of stages at a time end the run when either fails, after both have said why; and nothing outlives the run."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

RUN = (Path(__file__).parents[1] / ".ci/run").read_text()
HELPERS = "".join(re.search(rf"^{name}\(\) \{{\n.*?^\}}\n", RUN, re.MULTILINE | re.DOTALL)[0] for name in ("stage", "beside"))
LISTS = """
good() { stage first true; stage second echo whole; }
bad() { stage third sh -c 'echo a reason; exit 3'; stage fourth echo never; }
long() { stage fifth sh -c 'echo $$ >>pids; sleep 300; true'; }
"""

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")


def command(first, second):
    return ["bash", "-c", f"set -euo pipefail\nmkdir -p build\n{HELPERS}{LISTS}beside {first} {second}\necho all of it"]


@pytest.mark.parametrize("first", ["good", "bad"])
@pytest.mark.parametrize("second", ["good", "bad"])
def test_a_failure_of_either_list_is_shown_and_ends_the_run(tmp_path, first, second):
    done = subprocess.run(command(first, second), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    lists = [second, first]
    assert done.stdout.count("\nwhole\n") == lists.count("good") and done.stdout.count("\na reason\n") == lists.count("bad")
    assert "never" not in done.stdout
    if "bad" in lists:
        assert done.returncode != 0
        assert done.stdout.endswith("==== failed: " + " ".join(name for name in lists if name == "bad") + "\n")
    else:
        assert done.returncode == 0 and done.stdout.endswith("all of it\n")


def runs(pid):
    """Ended processes that nobody has asked about are not running."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_outlives_a_run_that_is_stopped(tmp_path, number):
    with subprocess.Popen(command("long", "long"), cwd=tmp_path, start_new_session=True, stdout=subprocess.DEVNULL) as run:
        pids = tmp_path / "pids"
        begins = time.monotonic()
        while not pids.exists() or len(pids.read_text().split()) < 2:
            assert time.monotonic() - begins < 60
            time.sleep(0.02)
        os.killpg(run.pid, number)
        assert run.wait(60) != 0
    while any(map(runs, pids.read_text().split())):
        assert time.monotonic() - begins < 60
        time.sleep(0.02)
