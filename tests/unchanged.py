"""Long tests that follow from few files, which most changes leave alone: a plugin of pytest.

    @pytest.mark.follows_from("csrc/kernels/cuda/{file}", "tools/sass.py", headers=build_cuda.with_headers, programs=["nvcc"])
    @pytest.mark.parametrize("file", ["copy.cu", "gemm.cu"])

unchanged.json has a hash for each of them: of those files, the test's own, and what the programs say of their versions, when all of its cases had
passed. Where a pattern names a parameter of the test, there is a hash for each of its values. `headers(path)` gives the files that one includes,
itself among them. While that is the hash, the test is skipped, unless `--slow` is given. When something has changed it runs, in every run, until

    python -m pytest -n 2 --note-unchanged -m follows_from

has passed and written the new hashes, with cases that are slow, too. Where a program is missing there is no hash, and the test runs.
"""

import collections
import functools
import hashlib
import json
import platform
import re
import shlex
import subprocess
from pathlib import Path

import pytest

WHERE = "tests/unchanged.json"
PROPERTY = "follows_from"  # of a test and its reports: key, hash or None, and number of cases


def pytest_addoption(parser):
    parser.addoption(
        "--note-unchanged", action="store_true", help=f"write the hashes of the tests marked follows_from that pass to {WHERE}"
    )


def pytest_configure(config):
    if config.getoption("--note-unchanged") and not hasattr(config, "workerinput"):
        if one := [argument for argument in config.args if "[" in argument]:
            raise pytest.UsageError(f"--note-unchanged needs all cases of a test; {one[0]} is one of them")
        if config.getoption("lf", False):
            raise pytest.UsageError("--note-unchanged needs all cases of a test; --lf runs those that failed")
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
def hash_of(root, files, programs, headers):
    """Of the processor's architecture, of what the programs say, and of the files that match the patterns, each of which must have some. None where a
    program is missing."""
    versions = [version_of(program) for program in programs]
    if None in versions:
        return None
    root, found = root.resolve(), set()
    for pattern in files:
        matching = [path for path in root.glob(pattern) if path.is_file()]
        if not matching:
            raise pytest.UsageError(f"follows_from: no file is {pattern!r} in {root}")
        found.update(*([path] if headers is None else headers(path) for path in matching))
    digest = hashlib.sha256(repr((platform.machine(), versions)).encode())
    for path in sorted(found):
        digest.update(f"{path.relative_to(root).as_posix()} {path.stat().st_size} ".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def name_of(key):
    """The test's, without its case."""
    return key.partition("[")[0]


def noted_before(path):
    return json.loads(path.read_text()) if path.exists() else {}


def key_and_hash(item, mark):
    """The test's name, with the values that its patterns name, and its hash now."""
    values = item.callspec.params if hasattr(item, "callspec") else {}
    names = dict.fromkeys(re.findall(r"{(\w+)}", " ".join(mark.args)))
    if unknown := [name for name in names if name not in values]:
        raise pytest.UsageError(f"follows_from: {unknown[0]} is no parameter of {item.nodeid}")
    case = "-".join(str(values[name]) for name in names)
    own = item.path.relative_to(item.config.rootpath).as_posix()
    files = [re.sub(r"{(\w+)}", lambda found: str(values[found[1]]), pattern) for pattern in mark.args]
    now = hash_of(item.config.rootpath, (own, *files), (*mark.kwargs.get("programs", ()),), mark.kwargs.get("headers"))
    return name_of(item.nodeid) + (f"[{case}]" if names else ""), now


@pytest.hookimpl(tryfirst=True)  # counts the cases before others choose some of them
def pytest_collection_modifyitems(config, items):
    before = noted_before(config.rootpath / WHERE)
    found = [(item, *key_and_hash(item, mark)) for item in items if (mark := item.get_closest_marker("follows_from"))]
    cases = collections.Counter(key for _, key, _ in found)
    for item, key, now in found:
        item.user_properties.append((PROPERTY, (key, now, cases[key])))
        if now and before.get(key) == now and not config.getoption("--slow", False):
            item.add_marker(pytest.mark.skip(reason="nothing that it follows from has changed since it passed: run with --slow"))


class Notes:
    """Writes the hash of each test, or value, of which every case has passed."""

    def __init__(self, path):
        self.path, self.hashes, self.left = path, {}, {}

    def pytest_runtest_logreport(self, report):
        for key, now, cases in (value for name, value in report.user_properties if name == PROPERTY):
            self.hashes[key] = now
            self.left.setdefault(key, cases)
            if report.when == "call" and report.passed:
                self.left[key] -= 1
            elif not report.passed:
                self.left[key] += 1

    def pytest_sessionfinish(self):
        now = {key: hash for key, hash in self.hashes.items() if hash and not self.left[key]}
        self.path.write_text(json.dumps(dict(sorted({**noted_before(self.path), **now}.items())), indent=0) + "\n")
