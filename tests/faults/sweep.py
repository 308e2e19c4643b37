"""Runs a piece of work again and again, each time with another call of the system failing (shim.c, loaded by LD_PRELOAD), and checks what is left.

    python sweep.py WORK KINDS ERROR EVERY PART CALL [DEFECT]

WORK is a class below; KINDS the sum of what fails; ERROR the errno of files, 0: reads and writes do half; EVERY: each so-manyth call,
from CALL (0: the first) of PART on. Exit status 77: CPython itself crashed (shim.c), in the call that was tried last. Otherwise the
last line of the output is JSON: how many calls there are, how many faults were tried, what came of them, and what was found wrong.
"""

import ctypes
import gc
import itertools
import json
import os
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "training")]

import numpy as np  # noqa: E402
import transformer_c as tc  # noqa: E402
from small_runs import Small, bits, seed_everything, small_data  # noqa: E402
from transformer_c import _core  # noqa: E402
from transformer_c.checkpoint import files  # noqa: E402

SHIM = ctypes.CDLL(os.environ["LD_PRELOAD"].split()[0])
SHIM.faults_disarm.restype = ctypes.c_long
SHIM.faults_failed_call.restype = ctypes.c_char_p


def train(folder, epochs=2, resume="last", prefetch=0):
    seed_everything()
    data, val = small_data(prefetch=prefetch)
    model = Small()
    trainer = tc.Trainer(epochs, gradient_clip_val=0.5, checkpoint_dir=folder, progress=False)
    trainer.fit(model, data, val, resume=resume)
    return bits(model, trainer)


class Work:
    """What is run with faults, and what must be true after each."""

    prefetch = 0
    parts, part = 1, 0  # of the work, each swept by itself

    def __init__(self, folder):
        self.folder = folder
        self.prepare()

    def prepare(self):
        pass

    def begin(self):
        """Before each run: a folder as it should be."""
        shutil.rmtree(self.folder)
        os.mkdir(self.folder)

    def run(self):
        raise NotImplementedError

    def check(self, result, error):
        """Yields what is wrong. `error` is None when the run succeeded, with this result."""
        raise NotImplementedError

    def check_files(self):
        for name in os.listdir(self.folder):
            if name.endswith(".tmp"):
                yield f"{name} was left behind"
            elif name.endswith(".safetensors"):
                try:
                    tc.load(os.path.join(self.folder, name))
                except Exception as error:
                    yield f"{name} cannot be loaded: {error!r}"


class Training(Work):
    """A training with checkpoints, from the beginning. After a fault it is resumed, and ends with the bits of one without."""

    def prepare(self):
        self.expected = train(self.folder)

    def run(self):
        return train(self.folder, prefetch=self.prefetch)

    def check(self, result, error):
        if error is None and result != self.expected:
            yield "the run ended with other numbers"
        yield from self.check_files()
        if train(self.folder) != self.expected:
            yield "the resumed run ended with other numbers"


class TrainingAhead(Training):
    """The same with batches read ahead on another thread."""

    prefetch = 2


class Resuming(Training):
    """The second half of a training."""

    def prepare(self):
        super().prepare()
        self.half = tempfile.mkdtemp()
        train(self.half, epochs=1)

    def begin(self):
        shutil.rmtree(self.folder)
        shutil.copytree(self.half, self.folder)


class Saving(Work):
    """tc.save over an older file: afterwards the old content or the new, as the call said."""

    def prepare(self):
        self.old = {"x": np.arange(5), "epoch": 1}
        self.new = {"x": np.arange(9), "w": tc.ones(300), "epoch": 2}
        self.path = os.path.join(self.folder, "x.safetensors")

    def begin(self):
        super().begin()
        tc.save(self.old, self.path)

    def run(self):
        tc.save(self.new, self.path)

    def check(self, result, error):
        yield from self.check_files()
        if os.listdir(self.folder) != ["x.safetensors"]:
            yield f"the folder has {os.listdir(self.folder)}"
        found = tc.load(self.path)["epoch"]
        if found != (2 if error is None else 1):
            yield f"the call {'succeeded' if error is None else 'failed'}, but the file has the content {found}"


class Loading(Work):
    """tc.load, load_torch_checkpoint, load_features and loading into a module: all of it, or an error and the module as it was."""

    def prepare(self):
        self.sources = tempfile.mkdtemp()
        self.model = tc.nn.Sequential(tc.nn.Linear(40, 30), tc.nn.Linear(30, 20), tc.nn.Linear(20, 40))
        self.given = {name: value.numpy() + 1 for name, value in self.model.state_dict().items()}
        self.path = os.path.join(self.sources, "x.safetensors")
        tc.save(self.given, self.path)
        self.torch = str(Path(__file__).parents[1] / "golden" / "checkpoints" / "state_dict.pt")
        self.features = os.path.join(self.sources, "x.npz")
        x, y = np.ones((2, 3)), np.arange(2)
        np.savez(self.features, train_features=x, train_labels=y, test_features=x, test_labels=y)
        self.expected = self.values(self.run())
        self.before = {name: value + 5 for name, value in self.given.items()}

    @staticmethod
    def values(loaded):
        return [(name, np.asarray(value).tobytes()) for part in loaded for name, value in part.items()]

    def begin(self):
        super().begin()
        self.model.load_state_dict(self.before)

    def run(self):
        loaded = tc.load(self.path), tc.load_torch_checkpoint(self.torch), tc.datasets.load_features(self.features)
        self.model.load_state_dict(loaded[0])
        return loaded

    def check(self, result, error):
        if error is None and self.values(result) != self.expected:
            yield "other values were loaded"
        weights = {name: value.numpy().tobytes() for name, value in self.model.state_dict().items()}
        if weights != {name: value.tobytes() for name, value in (self.given if error is None else self.before).items()}:
            yield "the module is neither as it was nor as loaded"


class Ops(Work):
    """Calls of every family of ops, forward and backward: all gradients or none, the same bits the next time."""

    def prepare(self):
        from test_out_of_memory import CALLS, LEAVES

        self.calls, self.leaves = list(CALLS.values()), LEAVES
        self.kept = [x.numpy().tobytes() for x in self.leaves]
        tc.set_num_threads(2)
        self.parts = len(self.calls)
        self.expected = {}
        for part in range(self.parts):
            self.part = part
            self.expected[part] = self.gradients()

    def begin(self):
        self.clear()

    def clear(self):
        for x in self.leaves:
            x.grad = None

    def run(self):
        self.clear()
        tc.manual_seed(0)
        y = self.calls[self.part]()
        if isinstance(y, tc.Tensor) and y.requires_grad:
            (y.float() * y.detach().float()).sum().backward()

    def gradients(self):
        self.run()
        return [None if x.grad is None else x.grad.numpy().tobytes() for x in self.leaves]

    def check(self, result, error):
        if error is not None and any(x.grad is not None for x in self.leaves):
            yield "a call that failed left gradients"
        if [x.numpy().tobytes() for x in self.leaves] != self.kept:
            yield "the arguments have changed"
        if self.gradients() != self.expected[self.part]:
            yield "the next call gives other gradients"


class Drawing(Work):
    """Calls that draw random numbers: one that fails leaves its generator as it was."""

    def prepare(self):
        self.generator, x = tc.Generator(1), tc.ones(1, 2, 3, 4)
        rng = {"rng": self.generator}
        attention = tc.functional.scaled_dot_product_attention
        self.calls = [
            lambda: tc.functional.dropout(x, 0.5, **rng),
            lambda: attention(x, x, x, dropout_p=0.5, **rng),
            lambda: attention(x, x, x, dropout_p=0.5, return_attention=True, return_logsumexp=True, **rng),
            lambda: tc.rand(5, **rng),
            lambda: tc.randn(5, dtype="float64", **rng),
            lambda: tc.randint(9, (5,), **rng),
            lambda: tc.randperm(5, **rng),
        ]
        self.parts = len(self.calls)
        self.before = self.generator.get_state()
        self.expected = [self.values() for self.part in range(self.parts)]

    def begin(self):
        self.generator.set_state(self.before)

    def run(self):
        return self.calls[self.part]()

    def values(self):
        self.begin()
        result = self.run()
        return [y.numpy().tobytes() for y in (result if isinstance(result, tuple) else (result,))]

    def check(self, result, error):
        if error is not None and self.generator.get_state() != self.before:
            yield "a call that failed has drawn numbers"
        if self.values() != self.expected[self.part]:
            yield "the next call gives other numbers"


class Threads(Work):
    """A product that wants more threads than there are."""

    def prepare(self):
        self.x = tc.tensor(np.random.default_rng(1).standard_normal((600, 600)))
        tc.set_num_threads(1)
        self.expected = (self.x @ self.x).numpy().tobytes()

    def begin(self):
        tc.set_num_threads(1)  # ends the workers

    def run(self):
        tc.set_num_threads(4)
        return (self.x @ self.x).numpy().tobytes()

    def check(self, result, error):
        if error is not None or result != self.expected or self.run() != self.expected:
            yield "the product is another with fewer threads"


# ---- planted defects: what the sweep is to notice ------------------------------------------------------------------------------------


def plant(name):
    """Puts a defect into the library, of a kind that the sweep must notice."""
    if name == "a short write is taken for a whole one":
        files._write = lambda descriptor, part: os.write(descriptor, part)
    elif name == "the file is written in place":
        replaced(os_replace=lambda source, target: Path(target).write_bytes(Path(source).read_bytes()) and os.unlink(source))
    elif name == "a temporary file stays":
        replaced(os_unlink=lambda path: None)
    elif name == "a folder that cannot be synced is an error":
        files._sync_folder = lambda folder: os.fsync(os.open(folder, os.O_RDONLY))
    elif name == "a descriptor is lost":
        opened = files.FileIO
        files.FileIO = lambda path, mode, opener: opened(os.dup(opener(path, 0)), mode)
    elif name == "a module is loaded one weight after the other":
        tc.nn.Module.load_state_dict = lambda self, state, strict=True: [
            setattr(weight, "data", tc.tensor(state[name])) for name, weight in self.named_parameters()
        ]
    elif name == "memory is not checked":
        empty = np.empty

        def unchecked(*arguments, **keywords):
            try:
                return empty(*arguments, **keywords)
            except MemoryError:
                return ctypes.string_at(0)

        np.empty = unchecked
    else:
        raise ValueError(name)


def replaced(**functions):
    """The module os, as checkpoint.files sees it, with other functions."""
    files.os = type("Os", (), vars(os) | {name.removeprefix("os_"): staticmethod(function) for name, function in functions.items()})


# ---- the sweep ------------------------------------------------------------------------------------------------------------------------


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def disarm():
    while True:
        try:
            return SHIM.faults_disarm()
        except MemoryError:  # raised by the call itself, which comes back at the second try
            pass


def attempt(work, kinds, at, error):
    """(result, exception or None, calls counted) of one run whose call `at` fails."""
    work.begin()
    result = failure = None
    gc.disable()
    try:
        try:
            SHIM.faults_arm(kinds, at, error)
            result = work.run()
        finally:
            calls = disarm()
    except BaseException as caught:
        failure = caught
    gc.enable()
    return result, failure, calls


# CPython and NumPy have errors of their own for a thread that cannot start and, in places, for memory that runs out.
FOREIGN = ("can't start new thread", "can't allocate lock", "can't allocate read lock")
LOST = ("without exception set", "without setting an exception", "with an exception set")


def is_refusal(error):
    if isinstance(error, SystemError):
        return str(error).endswith(LOST) and "transformer_c" not in str(error)
    return isinstance(error, (MemoryError, OSError)) or (isinstance(error, RuntimeError) and str(error) in FOREIGN)


def sweep(work, kinds, error, every, first):
    outcomes, wrong, tried, most = Counter(), [], 0, 0
    for part in range(first[0], work.parts):
        work.part = part
        for _ in range(2):
            result, failure, calls = attempt(work, kinds, 0, error)
            assert failure is None, failure
            found = [*work.check(result, None)]
            assert not found, found
        most = max(most, calls)
        for at in itertools.count(first[1] if part == first[0] and first[1] else 1 + part % every, every):
            print("trying", part, at, flush=True)
            gc.collect()
            before = descriptors()
            result, failure, _ = attempt(work, kinds, at, error)
            call = SHIM.faults_failed_call().decode()
            if not call and failure is None:
                break  # the run has fewer calls
            tried += 1
            place = f"{call or 'nothing'} {at}" + (f" of part {part}" if part else "")
            outcomes[f"{call}: {type(failure).__name__ if failure else 'passed'}"] += 1
            print(place, repr(failure)[:200], flush=True)
            if failure is not None and not (call and is_refusal(failure)):
                wrong.append(f"{place}: {failure!r}")
            if not tc.is_grad_enabled():
                wrong.append(f"{place}: gradients are off")
                _core.set_grad_enabled(True)
            wrong += [f"{place}, {failure!r:.200}: {text}" for text in work.check(result, failure)]
            result = failure = None
            gc.collect()
            if descriptors() != before:
                wrong.append(f"{place}: {descriptors() - before} descriptors more")
    return {"calls": most, "tried": tried, "outcomes": dict(outcomes), "wrong": wrong[:20]}


if __name__ == "__main__":
    name, kinds, error, every, part, at, *defect = sys.argv[1:]
    warnings.simplefilter("ignore")
    kind = {k.__name__: k for k in (Training, TrainingAhead, Resuming, Saving, Loading, Drawing, Ops, Threads)}[name]
    work = kind(tempfile.mkdtemp())
    if defect:
        plant(defect[0])
    if os.environ.get("PYTHONMALLOC") == "malloc":
        SHIM.faults_watch_crashes()
    print(json.dumps(sweep(work, int(kinds), int(error), int(every), (int(part), int(at)))))
