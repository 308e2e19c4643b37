"""Shared by all tests. The tolerances are in `tolerance.py`.

Fixtures
  isa      the name of a CPU instruction set, in use while the test runs: one run for each that this machine can use
  threads  1, 2, 3: the size of the thread pool while the test runs
  rng      a NumPy generator whose seed follows from the test's name; `--seed N` sets it; a failure shows it
Marks
  gpu      needs a usable CUDA device: skipped without one
  slow     takes more than a few seconds: skipped unless `--slow` is given
  alone    measures time: runs first, and with `-n` the other processes wait meanwhile
  minutes  takes minutes: runs next, so that with `-n` the other processes do the rest meanwhile
  follows_from  runs when one of its files has changed since it passed (unchanged.py), and with `--slow`
"""

import contextlib
import fcntl
import gc
import os
import pathlib
import re
import signal
import sys
import tempfile
import zlib

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the reference's products: two thread pools on the same cores slow each other

import numpy as np
import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background of a script: tests that interrupt would wait in vain
    signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path.append(str(pathlib.Path(__file__).parents[1]))  # the benchmarks are a package of the repository, not installed

pytest_plugins = ["unchanged"]


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=None, help="seed of the `rng` fixture, in place of one from the test's name")
    parser.addoption(
        "--by-turns",
        action="store_true",
        help="one instruction set, number of threads and schedule of the emulated GPU per case, instead of each",
    )
    parser.addoption(
        "--at-most",
        type=int,
        default=None,
        metavar="N",
        help="at most N cases of each test, with as many values of its parameters as they can have",
    )
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, and those marked follows_from, as well")


def pytest_configure(config):
    """Where the extension cannot be loaded, says which step of docs/adding-an-op.md is missing."""
    try:
        import transformer_c  # noqa: F401
    except ImportError as error:
        import op_lists

        missing = [line for check in op_lists.CHECKS for line in check(pathlib.Path(__file__).parents[1])]
        raise pytest.UsageError("\n".join([f"transformer_c cannot be imported: {error}", *missing])) from None


def one_by_turns(items):
    """Of the same case with several instruction sets, numbers of threads and schedules of the emulated GPU, one: chosen by the case's name, so that
    all take turns."""
    same = {}
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        name = item.nodeid
        words = [params.get("isa", ""), f"{params.get('threads')}-threads", params.get("schedule", [""])[0]]
        for word in words:
            name = re.sub(rf"(?<=[\[-]){re.escape(word)}(?=[\]-])", "", name, count=1)
        same.setdefault(name, []).append(item)
    return [group[zlib.crc32(name.encode()) % len(group)] for name, group in same.items()]


def some_of_each(items, most):
    """At most that many cases of each test: by turns the one with most values of parameters that none before it has, in the order of their names'
    checksums."""
    left, chosen, values = {}, [], {}
    for item in sorted(items, key=lambda item: zlib.crc32(item.nodeid.encode())):
        test, _, case = item.nodeid.partition("[")
        left.setdefault(test, []).append((item, {*enumerate(case.split("-"))}))
    for test, cases in left.items():
        for _ in range(min(most, len(cases))):
            best = max(cases, key=lambda case: len(case[1] - values.setdefault(test, set())))
            cases.remove(best)
            chosen.append(best[0])
            values[test] |= best[1]
    return chosen


def turn(item):
    """What runs alone comes first, while others have nothing long to end; then what takes minutes, of which one process has all at first."""
    return 0 if item.get_closest_marker("alone") else 1 if item.get_closest_marker("minutes") else 2


def pytest_collection_modifyitems(config, items):
    chosen, most = items, config.getoption("--at-most")
    if config.getoption("--by-turns"):
        chosen = one_by_turns(chosen)
    if most is not None:
        chosen = some_of_each(chosen, most)
    if chosen is not items:
        kept = {id(item) for item in chosen}
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
        items[:] = [item for item in items if id(item) in kept]
    items.sort(key=turn)
    noting = config.getoption("--note-unchanged")
    if not config.getoption("--slow"):
        for item in items:
            if item.get_closest_marker("slow") and not (noting and item.get_closest_marker("follows_from")):
                item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))
    if any(item.get_closest_marker("gpu") for item in items):
        import transformer_c as tc

        if not tc.cuda.is_available() and "GPU_TESTS_DEVICE" not in os.environ:  # which tests/test_gpu_test.py sets
            for item in items:
                if item.get_closest_marker("gpu"):
                    item.add_marker(pytest.mark.skip(reason="no usable CUDA device"))


FOLDER = pytest.StashKey[tempfile.TemporaryDirectory]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Gives every process of pytest-xdist the folder of the locks."""
    folder = node.config.stash.setdefault(FOLDER, tempfile.TemporaryDirectory())
    node.workerinput["locks"] = folder.name


@contextlib.contextmanager
def locked(path, kind):
    """The file locked, fcntl.LOCK_SH or LOCK_EX."""
    with open(path, "w") as file:
        fcntl.flock(file, kind)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Where several processes share the tests, a test marked `alone` waits until the others pause."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    folder = pathlib.Path(item.config.workerinput["locks"])
    alone = item.get_closest_marker("alone")
    with contextlib.ExitStack() as stack:
        with locked(folder / "gate", fcntl.LOCK_EX):  # who waits for the others closes the gate, so that no test starts meanwhile
            stack.enter_context(locked(folder / "running", fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        return (yield)


def pytest_generate_tests(metafunc):
    if "isa" in metafunc.fixturenames:
        from transformer_c import _core

        usable = [name for name, is_usable in _core.cpu_isas().items() if is_usable]
        metafunc.parametrize("isa", usable, indirect=True)


@pytest.fixture(scope="module", autouse=True)
def quick_collections():
    """What lives until now, such as thousands of cases and the libraries of other tests, is not searched by every garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def isa(request):
    from transformer_c import _core

    before = _core.cpu_isa()
    _core.cpu_select(request.param)
    yield request.param
    _core.cpu_select(before)


@pytest.fixture(params=[1, 2, 3], ids="{}-threads".format)
def threads(request):
    from transformer_c import _core

    before = _core.get_num_threads()
    _core.set_num_threads(request.param)
    yield request.param
    _core.set_num_threads(before)


@pytest.fixture
def rng(request):
    given = request.config.getoption("--seed")
    seed = zlib.crc32(request.node.nodeid.encode()) if given is None else given
    print(f"rng seed {seed}")  # pytest shows it with a failure
    return np.random.default_rng(seed)
