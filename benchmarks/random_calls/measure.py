"""Random calls by family and seed: each side in turns, on one thread of one process."""

import dataclasses
import gc
import statistics
import time

import numpy as np

from . import elements, moving, products, rows, training
from .draw import LARGEST, Draw

FAMILIES = {
    family.__name__: family
    for module in (elements, rows, moving, products, training)
    for family in module.FAMILIES
}  # fmt: skip
TURN_SECONDS = 1.5e-3
TOLERANCE = 1e-2  # of the largest number: bfloat16 has eight bits


@dataclasses.dataclass(frozen=True)
class Result:
    """ratio: torch_us / ours_us. agree: whether both gave the same numbers, None where that was not asked. error: why a side was not timed."""

    family: str
    seed: int
    call: str
    ours_us: float | None = None
    torch_us: float | None = None
    ratio: float | None = None
    agree: bool | None = None
    error: str | None = None


def draw_call(family, seed, largest=LARGEST):
    """The Call of a family and a seed, always the same one."""
    return FAMILIES[family](Draw(f"{family}:{seed}", largest))


class Side:
    """One library with the tensors of a call."""

    def __init__(self, module, call):
        self.module, self.call = module, call
        self.tensors = [one.tensor(module) for one in call.inputs]
        self.leaves = [tensor.requires_grad_() for tensor, derived in zip(self.tensors, call.derived(), strict=True) if derived]
        self.views = None if self.leaves else self._views()
        self.gradient = None

    def _views(self):
        return [one.view(tensor) for tensor, one in zip(self.tensors, self.call.inputs, strict=True)]

    def __call__(self):
        """Once, with the gradients if they are wanted; gives the result. Views belong to what is recorded."""
        if not self.leaves:
            return self.call.function(self.module, *self.views)
        result = self.call.function(self.module, *self._views())
        if result.requires_grad:
            if self.gradient is None:
                self.gradient = self.module.ones_like(result.detach())
            result.backward(self.gradient)
        for leaf in self.leaves:
            leaf.grad = None
        return result

    def seconds(self, calls):
        """The time of a call on the core, which other processes do not lengthen."""
        gc.disable()
        start = time.thread_time()
        for _ in range(calls):
            self()
        passed = time.thread_time() - start
        gc.enable()
        return passed / calls

    def calls_of_a_turn(self):
        calls = 1
        while (passed := self.seconds(calls) * calls) < TURN_SECONDS:
            calls = max(2 * calls, int(1.2 * calls * TURN_SECONDS / max(passed, 1e-6)))
        return calls


def agree(ours, torch):
    """Whether two results are the same, within what bfloat16 allows."""
    ours, torch = (np.asarray(result.detach().double().numpy()) for result in (ours, torch))
    largest = np.abs(torch[np.isfinite(torch)]).max(initial=1.0)
    return ours.shape == torch.shape and np.allclose(ours, torch, rtol=TOLERANCE, atol=TOLERANCE * largest, equal_nan=True)


def measure(family, seed, ours, torch=None, turns=5, largest=LARGEST):
    """The Result of one call; torch None: ours alone."""
    call = draw_call(family, seed, largest)
    result = Result(family, seed, str(call))
    sides, results = {}, {}
    for name, module in (("torch", torch), ("ours", ours)):
        try:
            if module:
                sides[name] = Side(module, call)
                results[name] = sides[name]()
        except Exception as error:
            return dataclasses.replace(result, error=f"{name}: {type(error).__name__}: {error}")
    same = agree(**results) if call.compared and torch else None
    results.clear()
    counts = {name: side.calls_of_a_turn() for name, side in sides.items()}
    times = {name: [] for name in sides}
    for _ in range(turns):
        for name, side in sides.items():
            times[name].append(side.seconds(counts[name]))
    medians = {name: 1e6 * statistics.median(found) for name, found in times.items()}
    ratio = medians["torch"] / medians["ours"] if torch else None
    return dataclasses.replace(result, ours_us=medians["ours"], torch_us=medians.get("torch"), ratio=ratio, agree=same)
