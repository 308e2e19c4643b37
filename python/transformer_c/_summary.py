"""A table of a module's layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ._core import Tensor
from ._evaluating import evaluating
from ._recording import no_grad
from .nn import Module
from .nn.module_hooks import around


@dataclass
class Row:
    """One module of a summary."""

    name: str
    kind: str
    depth: int
    parameters: int  # of the module and all below it
    shapes: list[Any] = field(default_factory=list)  # of the results of each call


class Summary:
    """The result of ``tc.summary``; printed, a table.

    Attributes
    ----------
    rows : list of Row
    total_parameters, trainable_parameters : int
        Shared parameters count once.
    parameter_bytes : int
    """

    def __init__(self, module: Module, rows: list[Row]) -> None:
        parameters = list(module.parameters())
        self.rows = rows
        self.total_parameters = sum(p.numel() for p in parameters)
        self.trainable_parameters = sum(p.numel() for p in parameters if p.requires_grad)
        self.parameter_bytes = sum(p.numel() * p.dtype.itemsize for p in parameters)

    def __str__(self) -> str:
        with_shapes = any(row.shapes for row in self.rows)
        head = ["layer", "type", *(["output"] if with_shapes else []), "parameters"]
        body = []
        for row in self.rows:
            shapes = ", ".join(dict.fromkeys(str(shape) for shape in row.shapes)) if row.shapes else "-"
            calls = f" x {len(row.shapes)}" if len(row.shapes) > 1 else ""
            label = "  " * row.depth + (row.name.rpartition(".")[2] or "(module)")
            body.append([label, row.kind, *([shapes + calls] if with_shapes else []), f"{row.parameters:,}" if row.parameters else "-"])
        widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]

        def text(line: list[str]) -> str:
            cells = [cell.ljust(width) for cell, width in zip(line[:-1], widths, strict=False)]
            return "  ".join([*cells, line[-1].rjust(widths[-1])])

        frozen = self.total_parameters - self.trainable_parameters
        size = self.parameter_bytes
        end = f"{self.total_parameters:,} parameters" + (f", {frozen:,} of them frozen" if frozen else "")
        unit = f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size / 2**10:.1f} KiB" if size >= 2**10 else f"{size} bytes"
        return "\n".join([text(head), "-" * len(text(head)), *map(text, body), f"{end}, {unit}"])

    __repr__ = __str__


def summary(module: Module, input: Any = None, depth: int | None = None) -> Summary:
    """A table of a module's layers: their types, the shapes of their results, and their parameters.

    Parameters
    ----------
    module : nn.Module
    input : array_like, tuple of arguments or dict of keyword arguments, optional
        With it, the module is called once, in eval mode and without recording, to find the shapes.
    depth : int, optional
        Leave out layers further down than this; 1 shows the module and its children.

    Returns
    -------
    Summary
        ``print`` it, or use its ``rows`` and ``total_parameters``.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> net = tc.nn.Sequential(tc.nn.Linear(4, 8), tc.nn.ReLU(), tc.nn.Linear(8, 2))
    >>> tc.summary(net, np.zeros((3, 4), np.float32))
    layer     type        output  parameters
    ----------------------------------------
    (module)  Sequential  (3, 2)          58
      0       Linear      (3, 8)          40
      1       ReLU        (3, 8)           -
      2       Linear      (3, 2)          18
    58 parameters, 232 bytes
    """
    if isinstance(input, tuple) and input and all(isinstance(length, int) for length in input):
        raise TypeError(f"summary() calls the module with arrays, and {input} is a shape: summary(module, np.zeros({input}, np.float32))")
    if not isinstance(module, Module):
        raise TypeError(f"summary() takes a module, not {type(module).__name__}")
    rows = {}
    for name, part in module.named_modules():
        level = name.count(".") + 1 if name else 0
        rows[name] = Row(name, type(part).__name__, level, sum(p.numel() for p in part.parameters()))
    if input is not None:
        _run(module, input, rows)
    return Summary(module, [row for row in rows.values() if depth is None or row.depth <= depth])


def _run(module: Module, input: Any, rows: dict[str, Row]) -> None:
    """Calls the module once and notes the shapes of all results."""

    def noting(row: Row) -> Callable[..., Any]:
        def note(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            result = forward(*args, **kwargs)
            row.shapes.append(_shape(result))
            return result

        return note

    args, kwargs = ((), input) if isinstance(input, dict) else (input if isinstance(input, tuple) else (input,), {})
    with around((part, noting(rows[name])) for name, part in module.named_modules()), evaluating(module), no_grad():
        module(*args, **kwargs)


def _shape(result: Any) -> Any:
    """The shape of a Tensor; of several results, those of the Tensors among them."""
    if isinstance(result, Tensor):
        return tuple(result.shape)
    values = list(result.values()) if isinstance(result, dict) else result if isinstance(result, (list, tuple)) else []
    found = [shape for shape in map(_shape, values) if shape is not None]
    return found[0] if len(found) == 1 else tuple(found) or None


__all__ = ["Row", "Summary", "summary"]
