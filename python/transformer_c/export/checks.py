"""What a graph cannot say: numbers and calls that depend on the values of the inputs."""

from __future__ import annotations

from typing import Any

from .constants import array_of, equal
from .dimensions import difference
from .running import Runner
from .tracing import ExportError, Ref, Trace, refs_in


def check_values(runner: Runner, first: Trace) -> None:
    """Runs the module on other values of the same shapes: nothing but values may differ."""
    for call in first.calls:
        if call.op == "one_hot" and call.args["num_classes"] == -1 and any(first.values[ref.place].depends for ref in refs_in(call.args)):
            raise ExportError("the shape of what one_hot gives depends on the values of the inputs: say num_classes=")
    for change in ("all", "order"):
        try:
            other = runner.run(change=change)
        except ExportError:
            raise
        except Exception:
            continue  # these values do not fit
        _check_same(first, other)


def _check_same(first: Trace, other: Trace) -> None:
    if (where := difference(first, other)) is not None:
        raise ExportError(f"forward calls other ops for other values of its inputs ({where}): a graph cannot decide by values; use where()")
    for i, (a, b) in enumerate(zip(first.calls, other.calls, strict=True)):
        if _numbers(a.args) != _numbers(b.args):
            raise ExportError(f"an argument of {a.op} depends on the values of the inputs (call {i}): {a.args} and {b.args}")
        for x, y in zip(a.results, b.results, strict=True):
            if x is not None and y is not None and first.values[x.place].shape != other.values[y.place].shape:
                raise ExportError(f"the shape of what {a.op} gives depends on the values of the inputs (call {i})")
    used = [(ref, f"an array that {call.op} gets") for call in first.calls for ref in refs_in(call.args)]
    for ref, what in [*used, *((ref, "a result of forward") for ref in refs_in(first.output))]:
        v, w = first.values[ref.place], other.values[ref.place]
        if v.source == "constant" and v.name is None and not equal(array_of(v), array_of(w)):
            raise ExportError(
                f"{what} depends on the values of the inputs, or on chance: it was computed outside the library (NumPy, random numbers), or in "
                "another thread"
            )


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return [_numbers(v) for v in value.values()]
    if isinstance(value, (list, tuple)) and not isinstance(value, Ref):
        return [_numbers(v) for v in value]
    return repr(value)


__all__ = ["check_values"]
