"""Long tests that follow from few files, which most changes leave alone: a plugin of pytest.

    @pytest.mark.follows_from("csrc/kernels/cuda/*", "csrc/kernels/*.h", programs=["g++-12 -m64"])

unchanged.json has a hash for each of them: of those files, the test's own, and what the programs say of their versions, when all of its cases had
passed. While that is the hash, the test is skipped, unless `--slow` is given. When something has changed it runs, in every run, until

    python -m pytest --slow --note-unchanged -m follows_from

has passed and written the new hashes. Where a program is missing there is no hash, and the test runs.
"""

import collections
import functools
import hashlib
import json
import platform
import shlex
import subprocess
from pathlib import Path

import pytest

WHERE = "tests/unchanged.json"
HASH = pytest.StashKey[str]()


def pytest_addoption(parser):
    parser.addoption(
        "--note-unchanged", action="store_true", help=f"write the hashes of the tests marked follows_from that pass to {WHERE}"
    )


def pytest_configure(config):
    if config.getoption("--note-unchanged"):
        if config.getoption("numprocesses", None):
            raise pytest.UsageError("--note-unchanged needs one process: leave -n out")
        if one := [argument for argument in config.args if "[" in argument]:
            raise pytest.UsageError(f"--note-unchanged needs all cases of a test; {one[0]} is one of them")
        config.pluginmanager.register(Notes(config.rootpath / WHERE))


@functools.cache
def version_of(program):
    """The program's name, its options, and what it says of its version; None without it."""
    path, *options = shlex.split(program)
    try:
        done = subprocess.run([path, *options, "--version"], capture_output=True, text=True)
    except OSError:
        return None
    return None if done.returncode else (Path(path).name, *options, done.stdout)


@functools.cache
def hash_of(root, files, programs):
    """Of the processor's architecture, of what the programs say, and of the files that match the patterns, each of which must have some. None where a
    program is missing."""
    versions = [version_of(program) for program in programs]
    if None in versions:
        return None
    digest = hashlib.sha256(repr((platform.machine(), versions)).encode())
    for pattern in files:
        found = sorted(path for path in root.glob(pattern) if path.is_file())
        if not found:
            raise pytest.UsageError(f"follows_from: no file is {pattern!r} in {root}")
        for path in found:
            digest.update(f"{path.relative_to(root).as_posix()} {path.stat().st_size} ".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def name_of(nodeid):
    """A test has one hash, however many cases."""
    return nodeid.partition("[")[0]


def noted_before(path):
    return json.loads(path.read_text()) if path.exists() else {}


def pytest_collection_modifyitems(config, items):
    root = config.rootpath
    before = noted_before(root / WHERE)
    for item in items:
        if mark := item.get_closest_marker("follows_from"):
            own = item.path.relative_to(root).as_posix()
            now = item.stash[HASH] = hash_of(root, (own, *mark.args), (*mark.kwargs.get("programs", ()),))
            if now and before.get(name_of(item.nodeid)) == now and not config.getoption("--slow", False):
                item.add_marker(pytest.mark.skip(reason="nothing that it follows from has changed since it passed: run with --slow"))


class Notes:
    """Writes the hash of each test of which every case has passed."""

    def __init__(self, path):
        self.path, self.hashes, self.left = path, {}, collections.Counter()

    def pytest_deselected(self, items):
        self.left.update(name_of(item.nodeid) for item in items)

    def pytest_collection_finish(self, session):
        marked = [item for item in session.items if item.stash.get(HASH, None)]
        self.hashes = {name_of(item.nodeid): item.stash[HASH] for item in marked}
        self.left.update(name_of(item.nodeid) for item in marked)

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.left[name_of(report.nodeid)] -= 1
        elif not report.passed:
            self.left[name_of(report.nodeid)] += 1

    def pytest_sessionfinish(self):
        now = {name: hash for name, hash in self.hashes.items() if not self.left[name]}
        self.path.write_text(json.dumps(dict(sorted({**noted_before(self.path), **now}.items())), indent=0) + "\n")
