"""A fork while other threads are in the library: the child computes, and ends. Every lock is one of csrc/core/lock.h, which forks know."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from transformer_c import random
from transformer_c._autocast import casts
from transformer_c._fork_lock import ForkLock, by_thread
from transformer_c._graph import _noting
from transformer_c.nn.parameter import skipping
from transformer_c.nn.state import LOADING

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "csrc"

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

# What the other threads do. Each of these is inside one lock, or several, for most of the time.
WORK = {
    "backward": """
        leaves = [tc.ones(300, 300, requires_grad=True) for _ in range(20)]
        y = sum(((w * 2.0).sum() for w in leaves), tc.zeros(()))
        while not stop:
            y.backward(retain_graph=True)
    """,
    "forward": """
        block = tc.EncoderBlock(64, 4, 128)
        x = tc.ones(8, 32, 64)
        while not stop:
            block(x)
    """,
    "allocation": """
        while not stop:
            held = [tc.empty(n) for n in range(1, 200_000, 5_000)]
            _core.memory_empty_cache()
    """,
    "released arrays": """
        while not stop:
            leaf = tc.ones(200, 100, requires_grad=True)
            y = sum(((leaf * tc.as_tensor(np.ones((200, 100), np.float32))).sum() for _ in range(20)), tc.zeros(()))
            y.backward()
    """,
    "random numbers": """
        mine = tc.Generator(1)
        while not stop:
            tc.rand(200_000, rng=mine)
            tc.Generator(2)
    """,
    "packed weights": """
        layer = tc.nn.Linear(64, 64)
        x = tc.ones(16, 64)
        while not stop:
            with tc.no_grad():
                layer.weight.mul_(1.0)
                layer(x)
    """,
    "the pool": """
        x = tc.ones(300_000)
        while not stop:
            for n in (1, 2, 3):
                tc.set_num_threads(n)
                x.exp()
    """,
}

PROGRAM = """
import os, signal, sys, threading, time, warnings
import numpy as np
import transformer_c as tc
from transformer_c import _core
warnings.simplefilter("ignore", DeprecationWarning)  # about forks in a process with threads: the case under test
stop = False
tc.set_num_threads(2)

def work():
{work}

def train():
    model = tc.nn.Sequential(tc.nn.Linear(64, 300), tc.nn.ReLU(), tc.nn.Dropout(0.5), tc.nn.Linear(300, 10))
    optimizer = tc.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = tc.nn.functional.cross_entropy(model(tc.as_tensor(np.ones((100, 64), np.float32))), np.zeros(100, np.int64))
        loss.backward()
        optimizer.step()
    tc.rand(100)
    _core.memory_stats()
    return loss.item()

def fork():
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that waits for a lock of a thread that it does not have would wait for ever
        code = 1
        try:
            code = 0 if np.isfinite(train()) else 2
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"the child ended with {{status}}"

workers = [threading.Thread(target=work, daemon=True) for _ in range({threads})]
for worker in workers: worker.start()
end = time.monotonic() + {seconds}
forks = 0
while time.monotonic() < end or forks < 3:  # of a busy machine one takes long
    {fork}
    forks += 1
    time.sleep(0.0001 * (forks % 7))
stop = True
for worker in workers: worker.join()
print("forks:", forks)
"""


def run(work, seconds=1.5, threads=1, fork="fork()"):
    body = "\n".join("    " + line.strip("\n")[8:] for line in WORK[work].splitlines() if line.strip())
    program = PROGRAM.format(work=body, seconds=seconds, threads=threads, fork=fork)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) >= 3


# The allocator of AddressSanitizer has locks of its own, for which gcc 12 has no fork handlers.
@pytest.mark.unsanitized
@pytest.mark.parametrize("work", WORK)
def test_a_fork_while_another_thread_computes(work):
    run(work)


@pytest.mark.unsanitized
def test_a_fork_by_a_thread():
    run("backward", threads=2, fork="t = threading.Thread(target=fork); t.start(); t.join()")


@pytest.mark.unsanitized
def test_processes_of_multiprocessing():
    """Workers that are forked while the parent trains, as those of a loader of data are."""
    pool = "import multiprocessing as mp\n    with mp.get_context('fork').Pool(2) as pool: assert np.isfinite(pool.starmap(train, [()] * 4)).all()"
    run("backward", seconds=2, fork=pool)


@pytest.mark.unsanitized
def test_a_child_of_a_child():
    again = "child = os.fork()\n    if child == 0: signal.alarm(40); fork(); os._exit(0)\n    assert os.waitpid(child, 0)[1] == 0"
    run("forward", fork=again)


def test_an_iterator_over_a_loader_belongs_to_its_process():
    program = """
import os, signal, warnings
import numpy as np, transformer_c as tc
warnings.simplefilter("ignore", DeprecationWarning)
loader = tc.data.DataLoader(np.arange(100), batch_size=2, prefetch=3)
iterator = iter(loader)
next(iterator)
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        next(iterator)
    except RuntimeError as error:
        assert "before a fork" in str(error)
        del iterator
        assert len(list(loader)) == 50
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
assert len(list(iterator)) == 49
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# ---- every lock is known -----------------------------------------------------------------------------------------------------


PRIMITIVES = re.compile(
    r"\b(?:pthread_mutex_t|pthread_rwlock_t|pthread_spinlock_t|pthread_cond_t|pthread_barrier_t|sem_t|mtx_t|cnd_t|PyThread_type_lock|"
    r"atomic_flag|std::mutex|pthread_atfork)\b"
)
# The pool's condition variables and their mutexes, which a child makes anew; and lock.h itself.
KNOWN = {"core/lock.h", "core/lock.c", "core/threads.c"}


def with_locks(folder):
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix in {".c", ".h", ".cu", ".cuh", ".cpp"} and PRIMITIVES.search(path.read_text())
    }


def test_every_lock_is_in_the_table_of_forks():
    assert with_locks(CSRC) == KNOWN
    assert "TC_IN_FORKED_CHILD(reset_in_child)" in (CSRC / "core/threads.c").read_text()


def locks_of(text):
    """How many members of structures are locks, which of them are initialised, and which are added: {(variable, member)}."""
    initialised = re.findall(r"(\w+)(?:->|\.|\[[^\]]*\] = \{.*?\.)(\w+) = (?:\(tc_lock\))?TC_LOCK_INITIALIZER", text)
    added = re.findall(r"tc_lock_add\(&(\w+)(?:\[\w+\])?(?:->|\.)(\w+)\)", text)
    return len(re.findall(r"^ +tc_lock \w+;", text, re.MULTILINE)), set(initialised), set(added)


def test_every_lock_in_a_structure_is_added():
    """TC_DEFINE_LOCK adds its lock; a member of a structure is added by tc_lock_add."""
    found = 0
    for path in CSRC.rglob("*.c"):
        if path.name != "lock.c":
            members, initialised, added = locks_of(path.read_text())
            assert members == len(initialised) and initialised == added, path
            found += members
    assert found >= 3


def test_a_lock_that_is_not_added_is_found():
    text = (CSRC / "core/random.c").read_text()
    more = text.replace("    tc_lock lock;", "    tc_lock lock;\n    tc_lock other;", 1)
    assert more != text
    members, initialised, added = locks_of(more)
    assert members > len(initialised)
    more = re.sub(r"(generator->)lock( = \(tc_lock\)TC_LOCK_INITIALIZER.*;)", r"\1lock\2 \1other\2", more)
    members, initialised, added = locks_of(more)
    assert members == len(initialised) and initialised != added


def test_a_lock_of_another_kind_is_found(tmp_path):
    (tmp_path / "new.c").write_text("#include <pthread.h>\nstatic pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\n")
    assert with_locks(tmp_path) == {"new.c"}


def test_no_lock_of_the_python_layer_is_held_across_a_fork():
    """Locks of a thread that a child does not have: data/prefetching.py's are of an iterator, which refuses to run in a child; the watch of ranks
    does nothing there; a ForkLock is made anew."""
    package = ROOT / "python/transformer_c"
    made = r"\b(?:allocate_lock|RLock)\(|threading\.(?:R?Lock|Condition|Event|Semaphore|Barrier|Thread)\(|queue\.\w*Queue"
    found = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if re.search(made, path.read_text())}
    assert found == {"data/prefetching.py", "distributed/faults.py", "_fork_lock.py"}


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_lock_that_is_held_is_free_in_a_child(reentrant):
    lock = ForkLock(reentrant)
    with lock.held():
        pid = os.fork()
        if pid == 0:
            os._exit(0 if lock.lock.acquire(timeout=5) else 1)
        assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("entries", [by_thread(), random._instead, casts, LOADING, skipping, _noting])
def test_entries_of_other_threads_are_not_in_a_child(entries):
    """A new thread of the child may have their numbers."""
    entered, done = threading.Event(), threading.Event()

    def work():
        entries[threading.get_ident()] = "other"
        entered.set()
        done.wait()
        del entries[threading.get_ident()]

    entries[threading.get_ident()] = "own"
    thread = threading.Thread(target=work)
    thread.start()
    entered.wait()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if entries == {threading.get_ident(): "own"} else 1)
    assert os.waitpid(pid, 0)[1] == 0 and len(entries) == 2
    done.set()
    thread.join()
    assert entries.pop(threading.get_ident()) == "own" and not entries


def test_an_interrupt_leaves_no_lock_held():
    """A lock that is entered by a method in Python is left held by half of them, and from Python 3.14 on one that is entered itself."""
    lock, before = ForkLock(), signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for round_number in range(2000):
            with contextlib.suppress(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + round_number % 40))
                while True:
                    with lock.held():
                        pass
            assert not lock.lock.locked(), round_number
    finally:
        signal.signal(signal.SIGALRM, before)
