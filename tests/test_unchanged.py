"""The plugin unchanged.py, in a folder of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import unchanged

TESTS = Path(__file__).parent
EXAMPLE = """
import pathlib
import pytest

follows = pytest.mark.follows_from("code/*", "more/*.h", programs=["tool"])

@follows
@pytest.mark.parametrize("case", [1, 2])
def test_long(case):
    assert "bug" not in pathlib.Path("code/a.c").read_text() or case == 1

@follows
def test_another():
    pass

def test_short():
    pass
"""

BY_FILE = """
import pathlib
import pytest

def with_headers(path):
    return {path, *path.parents[1].glob("headers/*")} if path.name == "1.cu" else {path}

@pytest.mark.follows_from("files/{file}", headers=with_headers)
@pytest.mark.parametrize("size", [3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("file", ["1.cu", "2.cu"])
def test_file(file, size):
    assert "bug" not in pathlib.Path("files", file).read_text() or size == 3
"""


@pytest.fixture
def folder(tmp_path):
    files = {
        "pytest.ini": "[pytest]\nmarkers =\n    follows_from(files, headers, programs): as in pyproject.toml\n    slow: slow\naddopts = --strict-markers",
        "conftest.py": "def pytest_addoption(parser):\n    parser.addoption('--slow', action='store_true')",
        "tests/test_example.py": EXAMPLE,
        "code/a.c": "fine",
        "more/b.h": "fine",
        "more/b.txt": "not asked for",
        "bin/tool": "#!/bin/sh\necho version 1",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    (tmp_path / "bin" / "tool").chmod(0o755)
    return tmp_path


@pytest.fixture
def by_file(folder):
    """Another example, of which each file has a hash."""
    (folder / "tests" / "test_example.py").write_text(BY_FILE)
    for name in ("files/1.cu", "files/2.cu", "headers/a.h"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("fine\n")
    return folder


def run(folder, *options):
    """The last line without its time, and the text."""
    env = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTEST_ADDOPTS": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "unchanged", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    return done.stdout.splitlines()[-1].partition(" in ")[0] if done.stdout else "", done.stdout + done.stderr


def noted(folder):
    path = folder / unchanged.WHERE
    return [name.partition("::")[2] for name in json.loads(path.read_text())] if path.exists() else []


def test_what_has_passed_is_skipped_until_something_changes(folder):
    assert run(folder)[0] == "4 passed" and not noted(folder), "nothing is written unasked"
    assert run(folder, "--note-unchanged")[0] == "4 passed" and noted(folder) == ["test_another", "test_long"]
    said, text = run(folder, "-rs")
    assert said == "1 passed, 3 skipped" and "has changed since it passed: run with --slow" in text
    assert run(folder, "--slow")[0] == "4 passed"
    (folder / "more" / "b.txt").write_text("changed")
    assert run(folder)[0] == "1 passed, 3 skipped"


@pytest.mark.parametrize("name", ["code/a.c", "code/new.c", "more/b.h", "tests/test_example.py", "bin/tool"])
def test_what_a_test_follows_from(folder, name):
    run(folder, "--note-unchanged")
    with open(folder / name, "a") as file:
        file.write("# changed\n" if name != "bin/tool" else "echo more\n")
    assert run(folder)[0] == "4 passed"
    assert run(folder, "--note-unchanged")[0] == "4 passed" and run(folder)[0] == "1 passed, 3 skipped"


@pytest.mark.parametrize(
    "name, keys",
    [("files/1.cu", ["[1.cu]"]), ("headers/a.h", ["[1.cu]"]), ("files/2.cu", ["[2.cu]"]), ("tests/test_example.py", ["[1.cu]", "[2.cu]"])],
)
def test_each_file_by_itself(by_file, name, keys):
    assert run(by_file, "--note-unchanged")[0] == "4 passed", "with the slow ones"
    assert noted(by_file) == ["test_file[1.cu]", "test_file[2.cu]"]
    before = json.loads((by_file / unchanged.WHERE).read_text())
    with open(by_file / name, "a") as file:
        file.write("# changed\n")
    assert run(by_file, "--note-unchanged")[0] == ("2 passed, 2 skipped" if len(keys) == 1 else "4 passed"), "only what has changed"
    after = json.loads((by_file / unchanged.WHERE).read_text())
    assert [key.partition("test_file")[2] for key in after if after[key] != before[key]] == keys


def test_a_failure_of_one_file(by_file):
    (by_file / "files" / "1.cu").write_text("bug")
    assert run(by_file, "--note-unchanged")[0] == "1 failed, 3 passed" and noted(by_file) == ["test_file[2.cu]"]


@pytest.mark.parametrize("processes", [1, 3])
def test_with_several_processes(folder, processes):
    assert run(folder, "-p", "xdist", "-n", str(processes), "--note-unchanged")[0] == "4 passed"
    assert noted(folder) == ["test_another", "test_long"] and run(folder)[0] == "1 passed, 3 skipped"
    (folder / "code" / "a.c").write_text("bug")
    assert run(folder, "-p", "xdist", "-n", str(processes), "--note-unchanged")[0] == "1 failed, 3 passed"
    assert run(folder)[0] == "1 failed, 2 passed, 1 skipped", "of before, where it failed; the other one's is of now"


def test_a_moved_file(folder):
    run(folder, "--note-unchanged")
    (folder / "code" / "a.c").rename(folder / "code" / "b.c")
    (folder / "code" / "a.c").write_text("")
    assert run(folder)[0] == "4 passed"


def test_a_part_of_the_cases_is_not_noted(folder):
    run(folder, "--note-unchanged", "-k", "2 or another")
    assert noted(folder) == ["test_another"]
    one = "tests/test_example.py::test_long[1]"
    assert f"needs all cases of a test; {one} is one of them" in run(folder, "--note-unchanged", one)[1]


def test_a_failure_is_not_noted(folder):
    (folder / "code" / "a.c").write_text("bug")
    assert run(folder, "--note-unchanged")[0] == "1 failed, 3 passed" and noted(folder) == ["test_another"]
    (folder / unchanged.WHERE).unlink()
    run(folder, "--note-unchanged", "-x")
    assert noted(folder) == []
    assert run(folder)[0] == "1 failed, 3 passed"


def test_a_hash_of_before_stays_where_another_test_is_noted(folder):
    run(folder, "--note-unchanged")
    run(folder, "--note-unchanged", "-k", "another")
    assert noted(folder) == ["test_another", "test_long"] and run(folder)[0] == "1 passed, 3 skipped"


@pytest.mark.parametrize("program", [None, "#!/bin/sh\nexit 3\n"], ids=["missing", "fails"])
def test_without_a_program_nothing_is_known(folder, program):
    (folder / "bin" / "tool").unlink()
    if program:
        (folder / "bin" / "tool").write_text(program)
        (folder / "bin" / "tool").chmod(0o755)
    assert run(folder, "--note-unchanged")[0] == "4 passed" and not noted(folder)


def test_wrong_use(folder):
    (folder / "code" / "a.c").unlink()
    assert "follows_from: no file is 'code/*'" in run(folder)[1]
    (folder / "tests" / "test_example.py").write_text(EXAMPLE.replace("code/*", "code/{kind}"))
    assert "follows_from: kind is no parameter of tests/test_example.py::test_long[1]" in run(folder)[1]


KEYS = """
import sys
import pytest

class Keys:
    def pytest_collection_finish(self, session):
        for item in session.items:
            print(*(f"\\nkey {key}" for name, (key, *_) in item.user_properties if name == "follows_from"))

pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "-m", "follows_from", *sys.argv[1:]], plugins=[Keys()])
"""


def test_every_noted_test_is_there():
    """Else: delete its line."""
    root = TESTS.parent
    noted = [*unchanged.noted_before(root / unchanged.WHERE)]
    files = sorted({key.partition("::")[0] for key in noted})
    done = subprocess.run([sys.executable, "-c", KEYS, *files], cwd=root, capture_output=True, text=True, check=True)
    assert noted == sorted({line.removeprefix("key ").strip() for line in done.stdout.splitlines() if line.startswith("key ")})


def test_cases_that_failed_last_are_not_all(folder):
    (folder / "code" / "a.c").write_text("bug")
    cache = ["-p", "cacheprovider"]
    assert run(folder, *cache)[0].startswith("1 failed, 3 passed")
    (folder / "code" / "a.c").write_text("fine")
    assert "needs all cases of a test; --lf" in run(folder, *cache, "--lf", "--note-unchanged")[1] and not noted(folder)
    assert run(folder, *cache, "--lf")[0].startswith("1 passed")
