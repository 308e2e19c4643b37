"""Printing of Tensors, in PyTorch's format: four digits after the decimal point."""

from __future__ import annotations

import math

import numpy as np

from ._core import Tensor

DIGITS = 4
LINE_WIDTH = 80
SUMMARIZED_ABOVE = 1000  # elements
EDGE = 3  # items shown at each end of a summarized axis
PLAIN_DTYPES = ("float32", "int64", "bool")  # the dtypes of literals, which are not printed; for an empty Tensor only the first


class _Number:
    """Formats elements to one width: whole floats as "2.", others with DIGITS digits, or with exponents if the range is wide."""

    def __init__(self, values: np.ndarray) -> None:
        self.floating = values.dtype.kind == "f"
        self.exponent, self.whole, self.width = False, True, 1
        if not self.floating:
            self.width = max((len(str(v)) for v in values.reshape(-1).tolist()), default=1)
            return
        finite = values[np.isfinite(values) & (values != 0)].astype(np.float64)
        if not finite.size:
            return
        largest, smallest = np.abs(finite).max(), np.abs(finite).min()
        self.whole = bool((finite == np.floor(finite)).all())
        self.exponent = bool(largest > 1000.0 * smallest or largest > 1e8 or (not self.whole and smallest < 1e-4))
        self.width = max(len(self._text(v)) for v in finite.tolist())

    def _text(self, value: float) -> str:
        if self.exponent:
            return f"{value:.{DIGITS}e}"
        if self.whole:
            return f"{value:.0f}." if math.isfinite(value) else f"{value}"
        return f"{value:.{DIGITS}f}"

    def __call__(self, value: float | int | bool) -> str:
        return (self._text(value) if self.floating else str(value)).rjust(self.width)


def _shown(length: int, cut: bool) -> list[int | None]:
    """The indices along an axis that are printed; None is the gap."""
    if not cut or length <= 2 * EDGE:
        return list(range(length))
    return [*range(EDGE), None, *range(length - EDGE, length)]


def _edges(values: np.ndarray, cut: bool) -> np.ndarray:
    """The elements that are printed."""
    for axis in range(values.ndim if cut else 0):
        shown = [i for i in _shown(values.shape[axis], cut) if i is not None]
        values = values[(slice(None),) * axis + (shown,)]  # take() would first copy an array that is not contiguous
    return values


def _vector(values: np.ndarray, indent: int, cut: bool, number: _Number) -> str:
    per_line = max(1, (LINE_WIDTH - indent) // (number.width + 2))
    items = [" ..." if i is None else number(values[i].item()) for i in _shown(len(values), cut)]
    lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)] or [""]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _array(values: np.ndarray, indent: int, cut: bool, number: _Number) -> str:
    if values.ndim == 0:
        return number(values.item())
    if values.ndim == 1:
        return _vector(values, indent, cut, number)
    parts = ["..." if i is None else _array(values[i], indent + 1, cut, number) for i in _shown(len(values), cut)]
    return "[" + ("," + "\n" * (values.ndim - 1) + " " * (indent + 1)).join(parts) + "]"


def _with_notes(text: str, notes: list[str], indent: int) -> str:
    """`text` followed by the notes, which start a new line when the last one is full."""
    used = len(text) - text.rfind("\n") - 1 + 2  # room for the bracket
    for note in notes:
        if used + len(note) + 2 > LINE_WIDTH:
            text += ",\n" + " " * indent + note
            used = indent + len(note)
        else:
            text += ", " + note
            used += len(note) + 2
    return text + ")"


def _host_values(x: Tensor) -> tuple[np.ndarray, str]:
    """The elements as NumPy prints them, and the name of the dtype. bfloat16 is widened, so that no other package is needed."""
    x = x.detach().cpu()
    return np.asarray(x.float() if x._dtype_name == "bfloat16" else x), x._dtype_name


def tensor_repr(x: Tensor) -> str:
    """``repr(x)``: values, dtype, device, whether it records, and the shape when the values do not show it."""
    prefix = "tensor("
    values, dtype = _host_values(x)
    notes = []
    if not values.size and values.ndim != 1:
        notes.append(f"size={tuple(values.shape)}")
    if dtype not in (PLAIN_DTYPES if values.size else PLAIN_DTYPES[:1]):
        notes.append(f"dtype={dtype}")
    if x.device != "cpu":
        notes.append(f"device='{x.device}'")
    if x.grad_fn is not None:
        notes.append(f"grad_fn=<{x.grad_fn}>")
    elif x.requires_grad:
        notes.append("requires_grad=True")
    if values.size:
        cut = values.size > SUMMARIZED_ABOVE
        text = _array(values, len(prefix), cut, _Number(_edges(values, cut)))
    else:
        text = "[]"
    text = _with_notes(prefix + text, notes, len(prefix))
    return text if type(x) is Tensor else f"{type(x).__name__} containing:\n{text}"


def format_tensor(x: Tensor, spec: str) -> str:
    """``format(x, spec)``: a Tensor without axes, or one with a single element and a spec, is formatted like its number."""
    if x.ndim == 0 or (spec and x.numel() == 1):
        return format(x.item(), spec)
    if spec:
        raise TypeError(f"a Tensor of shape {tuple(x.shape)} cannot be formatted with {spec!r}; only one of one element can")
    return str(x)
