"""States that code switches and switches back: recording, the handler of Ctrl-C, the stream, the depth of calls. Whatever interrupts it, at
whatever instruction, the state is what it was afterwards."""

import asyncio
import functools
import inspect
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import transformer_c as tc
from transformer_c import _core
from transformer_c.trainer.interrupts import Interrupts

# What is done again and again, and the expression that is true afterwards, or else the state was left switched.
SWITCHES = {
    "no_grad": ("with tc.no_grad(): pass", "tc.is_grad_enabled()"),
    "a mode that is set": ("with tc.set_grad_enabled(False): pass", "tc.is_grad_enabled()"),
    "nested": (
        "with tc.no_grad():\n        with tc.enable_grad():\n            with tc.no_grad(): pass",
        "tc.is_grad_enabled()",
    ),
    "a decorated function": ("silent()", "tc.is_grad_enabled()"),
    "a decorated generator": ("list(quiet())", "tc.is_grad_enabled()"),
    "a module called with an array": ("module(array)", "tc.is_grad_enabled() and _core.call_depth() == 0"),
    "a step of an optimizer": ("optimizer.step()", "tc.is_grad_enabled()"),
    "the handler of Ctrl-C": ("with Interrupts().held(): pass", "signal.getsignal(signal.SIGINT) is signal.default_int_handler"),
    "the log of a training": (
        "with log.muted(True), log.averaging() as inner: assert log.pass_averages is inner",
        "not log.is_muted and log.pass_averages is None and log.averages is averages",
    ),
    "autocast": (
        "with tc.autocast():\n        module(array)",
        "_core.autocast_state() == 0 and _core.call_depth() == 0 and [*map(id, module.parameters())] == weights",
    ),
    "a function under autocast": ("halved()", "_core.autocast_state() == 0"),
    "a state dict": ("module.load_state_dict(state)", "not LOADING"),
    "layers without initial values": ("with tc.nn.init.skip(): tc.nn.ReLU()", "not skipping"),
    "the state of the generator": (
        "with tc.random.fork_rng(): tc.rand(1)",
        "tc.equal(tc.get_rng_state(), drawn)",
    ),
    "a wait for other ranks": ("with group.waits('a sum'): pass", "group.waiting is None"),
    "a folder that one run has": ("with held_by_one(folder): pass", "is_free(folder)"),
    "a model and its trainer": (
        "with Attached(trainer, model, 'validation', None).in_use(): pass",
        "model.trainer is None and not trainer.stage.is_running",
    ),
    "modes and hooks of a module": (
        "with evaluating(attention), tc.nn.attention_maps(attention):\n        tc.summary(module, array)",
        "attention.training and module.training and not any(map(hooks_of, (attention, *module.modules())))",
    ),
    "switched": (
        "with _core.switched(functools.partial(_signal.signal, signal.SIGUSR1), lambda: _signal.SIG_IGN): pass",
        "signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL",
    ),
}

INTERRUPTS = 2500  # of each program

# What opens files, and how they are left.
FILES = {
    "a file that is written": ("tc.save({'x': array}, own + '/a')", "os.listdir(own) in ([], ['a'])"),
    "a file that is read": ("tc.load(written)", "True"),
    "a leftover that is deleted": (
        "open(own + '/' + files._PREFIX + 'x' + files._SUFFIX, 'w').close(); files.remove_leftovers(own)",
        "True",
    ),
    "a folder that is written out": ("files._sync_folder(own)", "True"),
}

BEGIN = """
import _signal, fcntl, functools, os, random, signal, sys, tempfile, time
import numpy as np
import transformer_c as tc
from transformer_c import _core
from transformer_c.trainer.interrupts import Interrupts
from transformer_c._evaluating import evaluating
from transformer_c.trainer.attached import Attached
from transformer_c.trainer.run import Run
from transformer_c.checkpoint import files
from transformer_c.checkpoint.files import held_by_one
from transformer_c.distributed.group import Group
from transformer_c.nn.parameter import skipping
from transformer_c.nn.state import LOADING

class Interrupt(BaseException): pass

armed = False
def handler(number, frame):
    global armed
    if armed:
        armed = False
        raise Interrupt

def hooks_of(part):
    forward = vars(part).get("forward")
    return forward and (forward.before or forward.after)

@tc.no_grad()
def silent(): pass

@tc.no_grad
def quiet(): yield from range(2)

@tc.autocast()
def halved(): pass

array = np.ones((2, 3), np.float32)
module = tc.nn.Sequential(tc.nn.Linear(3, 3), tc.nn.ReLU())
module(tc.tensor(array)).sum().backward()
optimizer = tc.optim.SGD(module.parameters(), 0.0)
attention = tc.nn.MultiheadAttention(4, 2, batch_first=True)
with tc.autocast(): module(array)  # imports what bfloat16 needs
weights = [*map(id, module.parameters())]
log = Run("val_loss", None)
averages = log.averages
state = module.state_dict()
group = Group()
kept_folder = tempfile.TemporaryDirectory()
folder = kept_folder.name
other_folder, third_folder = tempfile.TemporaryDirectory(), tempfile.TemporaryDirectory()
own, written = other_folder.name, third_folder.name + "/x"
tc.save(dict(x=array), written)
model = tc.TransformerPredictor(3, 4, 2, num_heads=1, num_layers=1, lr=1e-3, warmup=1, max_iters=1)
trainer = tc.Trainer(max_epochs=1)

def is_free(folder):
    found = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(found)

tc.manual_seed(0)
drawn = tc.get_rng_state()

def action():
    {action}
"""

AT_RANDOM = (
    BEGIN
    + """
signal.signal(signal.SIGALRM, handler)
random.seed(1)
interrupts = wrong = 0
end = time.monotonic() + 60
while interrupts < {interrupts} and time.monotonic() < end:
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 5e-5))
        for _ in range(200):
            action()
        armed = False
    except Interrupt as error:
        kept = error  # with the frames that it came through: what they would do when they are freed, they have not done yet
        interrupts += 1
    if not ({check}):
        wrong += 1
        _core.set_grad_enabled(True)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
print(interrupts, wrong)
"""
)

EVERYWHERE = (
    BEGIN
    + f"""
sys.path.insert(0, {str(Path(__file__).parents[1])!r})"""
    + """
from interrupting import interrupted

def descriptors():
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0

action()
open_before, nth, kept = descriptors(), 0, []

def call():
    try:
        action()
    except BaseException as error:
        kept.append(error)
        raise

while interrupted(nth, call):
    assert {check}, nth
    kept.clear()
    assert descriptors() == open_before, nth
    nth += 1
print(nth, 0)
"""
)


def run(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return map(int, done.stdout.split())


@pytest.mark.parametrize("name", SWITCHES)
def test_interrupts_at_any_moment(name):
    action, check = SWITCHES[name]
    interrupts, wrong = run(AT_RANDOM.format(action=action, check=check, interrupts=INTERRUPTS))
    assert interrupts >= INTERRUPTS and wrong == 0


@pytest.mark.parametrize("name", [*SWITCHES, *FILES])
def test_interrupts_at_every_place(name):
    """One after the other, where Python looks for signals; no descriptor is lost either."""
    action, check = (SWITCHES | FILES)[name]
    places, _ = run(EVERYWHERE.format(action=action, check=check))
    assert places > 5


def test_what_is_dropped_while_it_is_on_switches_back():
    """As where an interrupt comes between entering and the block, from Python 3.14 on. What __enter__() of a temporary object has set stays."""
    entries, log, module = {"kept": 1}, [], tc.nn.Linear(2, 2)
    weight = module.weight

    def state():
        return tc.is_grad_enabled(), _core.autocast_state(), dict(entries), list(log), module.weight is weight

    before = state()
    for make, change in (
        (tc.no_grad, None),
        (tc.autocast, None),
        (lambda: _core.replaced([(entries, "kept", 2), (entries, "new", 3)]), None),
        (lambda: _core.switched(lambda value: log.append(value) or "before", lambda: "after", lambda value: log.clear()), None),
        (lambda: _core.restored((module,), ("weight",)), lambda: setattr(module, "weight", tc.nn.Parameter(tc.ones(2, 2)))),
    ):
        held = [make()]
        held[0].__enter__()
        if change:
            change()
        assert state() != before
        held.clear()
        assert state() == before
    try:
        tc.no_grad().__enter__()
        assert not tc.is_grad_enabled()
    finally:
        _core.set_grad_enabled(True)


def test_an_error_of_what_is_dropped_is_told_and_hides_no_other(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(unraisable.exc_type))

    def failing(value):
        raise ValueError

    with pytest.raises(KeyError):
        context = _core.switched(bool, int, failing)
        context.__enter__()
        try:
            raise KeyError
        finally:
            del context
    assert told == [ValueError]


@pytest.mark.parametrize(
    ("error", "found"), [("KeyboardInterrupt", "KeyboardInterrupt"), ("ModuleNotFoundError", "need the package ml_dtypes")]
)
def test_an_interrupt_of_an_import_is_no_missing_package(error, found):
    program = f"""
import sys
import transformer_c as tc
class Finder:
    def find_spec(self, name, *rest):
        if name == "ml_dtypes": raise {error}
sys.modules.pop("ml_dtypes", None)
sys.meta_path.insert(0, Finder())
tc.ones(2).bfloat16().numpy()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert found in done.stderr.splitlines()[-1]


def test_the_machinery_finds_a_switch_in_python():
    """What no_grad was: methods in Python, which switch first and remember then."""
    planted = """
class switch:
    def __enter__(self): self.before = _core.set_grad_enabled(False)
    def __exit__(self, *exception): _core.set_grad_enabled(self.before)

def action():"""
    program = AT_RANDOM.replace("\ndef action():", planted)
    interrupts, wrong = run(program.format(action="with switch(): pass", check="tc.is_grad_enabled()", interrupts=INTERRUPTS))
    assert wrong > interrupts / 100


MEMORY = """
import _testcapi
import transformer_c as tc
from transformer_c import _core
wrong = failed = 0
for nth in range(60):
    _testcapi.set_nomemory(nth, nth + 1)
    try:
        with tc.no_grad():
            pass
    except MemoryError:
        failed += 1
    finally:
        _testcapi.remove_mem_hooks()
    if not tc.is_grad_enabled():
        wrong += 1
        _core.set_grad_enabled(True)
print(failed, wrong)
"""


def test_no_memory_at_any_moment():
    pytest.importorskip("_testcapi", reason="this Python comes without its own tests' module, which makes allocations fail")
    failed, wrong = run(MEMORY)
    assert failed > 0 and wrong == 0


# ---- recording: what it applies to ---------------------------------------------------------------------------------------------


def test_one_object_is_entered_often():
    off = tc.no_grad()

    def nest(depth):
        with off:
            assert not tc.is_grad_enabled()
            if depth:
                with tc.enable_grad():
                    nest(depth - 1)
                    assert tc.is_grad_enabled()

    nest(20)
    assert tc.is_grad_enabled()
    with pytest.raises(RuntimeError, match="without having been entered"):
        off.__exit__(None, None, None)


def test_one_object_is_entered_by_several_threads():
    off, on, problems = tc.no_grad(), tc.enable_grad(), []

    def work(outer):
        for _ in range(300):
            with outer:
                before = tc.is_grad_enabled()
                with off:
                    if tc.is_grad_enabled():
                        problems.append("on inside no_grad")
                if tc.is_grad_enabled() != before:
                    problems.append("another thread's state")
        if not tc.is_grad_enabled():
            problems.append("left off")

    threads = [threading.Thread(target=work, args=(outer,)) for outer in (off, on, off, on)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_a_generator_that_moves_to_another_thread():
    def inside():
        with tc.no_grad():
            yield

    generator, seen = inside(), []
    next(generator)

    def end():
        list(generator)
        seen.append(tc.is_grad_enabled())

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    _core.set_grad_enabled(True)  # of this thread, which the generator left switched
    assert seen == [True]


def test_decorated_coroutines():
    states = []

    @tc.no_grad()
    async def inner(value):
        states.append(tc.is_grad_enabled())
        await asyncio.sleep(0)
        states.append(tc.is_grad_enabled())
        if value is None:
            raise ValueError("none")
        return value

    @tc.enable_grad
    async def outer():
        states.append(tc.is_grad_enabled())
        return await inner(3)

    async def other():
        for _ in range(5):
            states.append(("other", tc.is_grad_enabled()))
            await asyncio.sleep(0)

    async def both():
        return (await asyncio.gather(outer(), other()))[0]

    assert inspect.iscoroutinefunction(inner) and inner.__name__ == "inner"
    assert asyncio.run(both()) == 3
    assert [s for s in states if isinstance(s, bool)] == [True, False, False]
    assert all(on for s in states if isinstance(s, tuple) for on in s[1:]) and tc.is_grad_enabled()
    with pytest.raises(ValueError, match="none"):
        asyncio.run(inner(None))
    assert tc.is_grad_enabled()

    async def cancelled():
        task = asyncio.ensure_future(inner(1))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert tc.is_grad_enabled()


def test_decorated_asynchronous_generators():
    states = []

    @tc.no_grad()
    async def numbers():
        try:
            for i in range(3):
                states.append(tc.is_grad_enabled())
                given = yield i
                states.append(given)
        finally:
            states.append(tc.is_grad_enabled())

    async def main():
        got = []
        async for number in numbers():
            assert tc.is_grad_enabled()
            got.append(number)
        generator = numbers()
        assert await generator.__anext__() == 0 and await generator.asend("sent") == 1
        await generator.aclose()
        return got

    assert inspect.isasyncgenfunction(numbers)
    assert asyncio.run(main()) == [0, 1, 2]
    assert states == [False, None, False, None, False, None, False, False, "sent", False, False]
    assert tc.is_grad_enabled()


def test_decorated_generators_take_what_is_sent_and_thrown():
    @tc.no_grad()
    def echo():
        given = None
        while True:
            try:
                given = yield (given, tc.is_grad_enabled())
            except KeyError:
                given = "thrown"

    generator = echo()
    assert next(generator) == (None, False) and generator.send(5) == (5, False)
    assert generator.throw(KeyError) == ("thrown", False) and tc.is_grad_enabled()
    generator.close()


# ---- switched --------------------------------------------------------------------------------------------------------------------


def test_switched():
    calls, state = [], ["first"]

    def exchange(value):
        calls.append(("set", value))
        before, state[0] = state[0], value
        return before

    context = _core.switched(exchange, lambda: "second", lambda value: calls.append(("end", value)))
    with context as value:
        assert value == "second" and state == ["second"]
        with pytest.raises(RuntimeError, match="on already"):
            context.__enter__()
    assert state == ["first"] and calls == [("set", "second"), ("set", "first"), ("end", "second")]
    with pytest.raises(ZeroDivisionError), context:
        raise ZeroDivisionError
    assert state == ["first"]
    with pytest.raises(RuntimeError, match="without"):
        context.__exit__(None, None, None)


def test_switched_waits_for_interrupts():
    """A call that an interrupt ends before it does anything is made again, and the interrupt is raised then."""
    state, interrupts = ["first"], [KeyboardInterrupt, MemoryError]

    def exchange(value):
        if value == "first" and interrupts:
            raise interrupts.pop(0)
        before, state[0] = state[0], value
        return before

    with pytest.raises(KeyboardInterrupt), _core.switched(exchange, lambda: "second"):
        assert state == ["second"]
    assert state == ["first"] and not interrupts


def test_switched_ends_what_it_could_not_set():
    ended = []
    with pytest.raises(ZeroDivisionError), _core.switched(lambda value: 1 / 0, lambda: 7, ended.append):
        raise AssertionError("not reached")
    assert ended == [7]


# ---- restored --------------------------------------------------------------------------------------------------------------------


class Slow:
    """Attributes that cannot be set the first times."""

    def __init__(self):
        self.__dict__.update(x=1, y=2, interrupts=[])

    def __setattr__(self, name, value):
        if self.interrupts:
            raise self.interrupts.pop(0)
        self.__dict__[name] = value


def test_restored():
    objects = [Slow(), Slow()]
    context = _core.restored(objects, ("x", "y"))
    with context:
        objects[0].x = objects[1].y = 5
    assert [(o.x, o.y) for o in objects] == [(5, 2), (1, 5)]
    with pytest.raises(ZeroDivisionError), context:
        objects[0].x = objects[1].x = 7
        raise ZeroDivisionError
    assert [(o.x, o.y) for o in objects] == [(5, 2), (1, 5)]
    with pytest.raises(KeyboardInterrupt), context:
        objects[0].x = objects[1].x = 7
        objects[0].interrupts[:] = [KeyboardInterrupt, MemoryError]
        raise ZeroDivisionError
    assert [(o.x, o.y) for o in objects] == [(5, 2), (1, 5)]
    with pytest.raises(RuntimeError, match="without"):
        context.__exit__(None, None, None)
    with pytest.raises(AttributeError), _core.restored(objects, ("x", "none")):
        raise AssertionError("not reached")
    with pytest.raises(TypeError):
        _core.restored(3, ("x",))
    with pytest.raises(TypeError):
        _core.restored(objects, "x")


def test_ctrl_c_between_batches():
    interrupts = Interrupts()
    with interrupts.held():
        signal.raise_signal(signal.SIGINT)
        assert interrupts.pending
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    handler = functools.partial(print)
    signal.signal(signal.SIGINT, handler)
    try:
        with Interrupts().held():
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
