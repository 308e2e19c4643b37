"""Making Tensors: from data, of one value, in ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _core
from ._arguments import lengths_of, real, tensor_of
from ._core import Tensor
from ._frames import numbers_of, refuse_mixed_integers
from ._joining import stack
from ._recording import no_grad

# ---- from data ------------------------------------------------------------------------------------------------------------------


_NUMBERS = frozenset((int, float, bool))  # of lists that need no look at each item


def _first_tensor(data: Any) -> Tensor | None:
    """The first Tensor in nested lists or tuples."""
    if not isinstance(data, (list, tuple)) or _NUMBERS.issuperset(map(type, data)):
        return None
    for item in data:
        if (found := item if isinstance(item, Tensor) else _first_tensor(item)) is not None:
            return found
    return None


def _stacked(data: Any, first: Tensor) -> Any:
    """Nested lists with Tensors among their leaves as one Tensor; numbers go to where `first`, the first of them, is."""
    if isinstance(data, Tensor):
        return data
    if _first_tensor(data) is None:
        return as_tensor(data, device=first.device)
    return stack([_stacked(d, first) for d in data])


def readable(data: Any) -> Any:
    """PyTorch's bfloat16 tensors, which NumPy cannot read, as Tensors over their memory; anything else is returned unchanged."""
    if isinstance(data, (np.ndarray, Tensor, list, tuple, int, float)) or str(getattr(data, "dtype", None)) != "torch.bfloat16":
        return data
    return from_dlpack(data.detach().cpu())


def check_fit(dtype: Any, *numbers: float) -> None:
    """ValueError if `dtype` is of integers and one of the numbers does not fit it."""
    for number in numbers:
        _core.full((), number, dtype)


def _fitting(result: Tensor, data: Any, dtype: Any) -> Tensor:
    """`result`, made of `data`; ValueError if a Python number in `data` does not fit the integers it becomes."""
    if dtype is None and result.dtype.kind == "f" and isinstance(data, (list, tuple)):
        refuse_mixed_integers(data, "data")
    if dtype is None or result.dtype.kind not in "iu" or hasattr(data, "dtype") or hasattr(data, "__array__"):
        return result  # an array is cast as NumPy casts it
    values = np.asarray(data)
    if values.size and values.dtype.kind in "iuf":
        check_fit(result.dtype, values.min().item(), values.max().item())
    return result


def tensor(data: Any, dtype: Any = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """A new Tensor with a copy of `data`.

    Parameters
    ----------
    data : array_like
        Numbers, nested lists of numbers or Tensors, an ndarray or a Tensor.
    dtype : dtype, optional
        Arrays and Tensors keep theirs, in lists as well; Python floats become float32, ints int64, bools bool.
    device : str, optional
        "cpu", "cuda" or "cuda:<ordinal>". Tensors keep theirs; anything else becomes a Tensor on the CPU.
    requires_grad : bool
        Whether ``backward()`` computes a gradient for this Tensor; floating dtypes only.

    Returns
    -------
    Tensor
        A leaf: the history of a Tensor in `data` is dropped (``clone()`` keeps it).

    Raises
    ------
    TypeError
        For an unsupported dtype, or `requires_grad` with integers.
    ValueError
        When a Python number does not fit the integer `dtype`.
    RuntimeError
        When the device is not available; the message says why.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.tensor([[1.0, 2.0], [3.0, 4.0]])
    tensor([[1., 2.],
            [3., 4.]])
    """
    if (first := _first_tensor(data)) is not None:
        with no_grad():
            data = _stacked(data, first)
    data = readable(data)
    if device is None and isinstance(data, Tensor):
        device = data.device
    return _fitting(Tensor(data, dtype, device, requires_grad), data, dtype)


def as_tensor(data: Any, dtype: Any = None, device: str | None = None) -> Tensor:
    """`data` as a Tensor, without a copy where that is possible.

    Parameters
    ----------
    data : array_like
        A Tensor is returned as it is. A Tensor made from an ndarray shares its memory: writes to one are seen in the other (a
        read-only array gives a read-only Tensor), by ``backward()`` as well, if the dtype is floating; of integers and bools a recorded
        call keeps a copy. Arrays with other byte orders, odd strides or unsupported dtypes are copied.
    dtype : dtype, optional
    device : str, optional
        If either differs from that of `data`, the result is a copy (recorded, for a Tensor).

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> a = np.zeros(3)
    >>> t = tc.as_tensor(a)
    >>> a[0] = 1
    >>> t
    tensor([1., 0., 0.], dtype=float64)
    """
    data = readable(data)
    if isinstance(data, Tensor):
        result = data
    elif (first := _first_tensor(data)) is not None:
        result = _stacked(data, first)
    elif isinstance(data, (list, tuple, int, float)):
        result = Tensor(data, dtype)
    else:
        result = _core.as_tensor(data)
        if dtype is None and result.dtype == np.float64 and not (hasattr(data, "dtype") or hasattr(data, "__array__")):
            dtype = np.float32  # as of Python's floats
    return result if dtype is None and device is None else _fitting(result.to(dtype=dtype, device=device), data, dtype)


def from_dlpack(x: Any, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A Tensor over the memory of another library's array (DLPack), which it keeps alive.

    Parameters
    ----------
    x : object
        An object on the CPU with ``__dlpack__`` and ``__dlpack_device__`` (an ndarray, a PyTorch tensor, ...), or a DLPack capsule.
    device : str, optional
        Moves the result there.
    copy : bool, optional
        True: never share memory. False: raise an error if memory cannot be shared. None: copy only if necessary.

    Returns
    -------
    Tensor
        Writable when `x` is; writes to one are seen in the other.

    Raises
    ------
    TypeError
        When `x` has no ``__dlpack__``, or an unsupported dtype.
    BufferError
        When the memory is not the CPU's, or the producer refuses.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    if type(x).__name__ == "PyCapsule":
        capsule = x
    elif not hasattr(x, "__dlpack__"):
        raise TypeError(f"from_dlpack needs an object with __dlpack__, or a DLPack capsule, not {type(x).__name__}")
    else:
        capsule = _capsule(x, copy)
    result = _core.from_dlpack_capsule(capsule)
    if copy:
        result = result.clone()
    return result if device is None else result.to(device=device)


def _capsule(x: Any, copy: bool | None) -> Any:
    """The result of ``x.__dlpack__``, called first in the way of DLPack 1. `copy` = True is done here: not every producer can copy."""
    options = {"copy": False} if copy is False else {}
    try:
        return x.__dlpack__(max_version=(1, 0), **options)
    except TypeError:  # a producer from before version 1 knows neither argument, and never copies
        return x.__dlpack__()


# ---- constants and ranges -------------------------------------------------------------------------------------------------------


def _finish(result: Tensor, requires_grad: bool) -> Tensor:
    return result.requires_grad_() if requires_grad else result


def empty(*lengths, size: Any = None, dtype: Any = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """A Tensor of uninitialised memory.

    Parameters
    ----------
    *lengths : int or one sequence of int
        The shape; also by name, as `size`.
    dtype : dtype, default float32
    device : str, default "cpu"
    requires_grad : bool

    Raises
    ------
    ValueError
        For a negative length, or more elements than memory can address.
    RuntimeError
        When the device is not available; the message says why.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.empty(2, 3).shape
    (2, 3)
    """
    return _finish(_core.empty(lengths_of(lengths, size), dtype, device), requires_grad)


def full(size: int | Sequence[int], fill_value: Any, dtype: Any = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """A Tensor with `fill_value` everywhere. The value decides the dtype: float32, int64 or bool.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.full((2,), 7)
    tensor([7, 7])
    """
    if dtype is None and isinstance(fill_value, Tensor):
        dtype = fill_value.dtype
    elif dtype is None:
        kind = numbers_of(fill_value, "fill_value").dtype
        dtype = kind if isinstance(fill_value, (np.generic, np.ndarray)) else {"b": np.bool_, "i": np.int64}.get(kind.kind, np.float32)
    return _finish(_core.full(size, fill_value, dtype, device), requires_grad)


def zeros(*lengths, size: Any = None, dtype: Any = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """A Tensor of zeros. Parameters as for ``empty``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.zeros(2, 2)
    tensor([[0., 0.],
            [0., 0.]])
    """
    return _finish(_core.full(lengths_of(lengths, size), False, dtype, device), requires_grad)


def ones(*lengths, size: Any = None, dtype: Any = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """A Tensor of ones. Parameters as for ``empty``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.ones(3, dtype="int64")
    tensor([1, 1, 1])
    """
    return _finish(_core.full(lengths_of(lengths, size), True, dtype, device), requires_grad)


def like(x: Any, dtype: Any, device: str | None, memory_format: str | None) -> tuple[Any, Any, Any]:
    """Shape, dtype and device, without reading elements, which may be on a GPU."""
    if memory_format not in (None, "contiguous_format", "preserve_format"):
        raise ValueError(f"memory_format is {memory_format!r}; a Tensor here is in C order: 'contiguous_format' or 'preserve_format'")
    x = tensor_of("input", x, convert=as_tensor)  # of numbers float32, as tc.tensor() makes them
    return x.shape, x._dtype_name if dtype is None else dtype, x.device if device is None else device


def empty_like(
    input: Any, dtype: Any = None, device: str | None = None, requires_grad: bool = False, *, memory_format: str | None = None
) -> Tensor:
    """A Tensor of uninitialised memory with the shape of `input`, and its dtype and device unless others are given."""
    return _finish(_core.empty(*like(input, dtype, device, memory_format)), requires_grad)


def full_like(
    input: Any,
    fill_value: Any,
    dtype: Any = None,
    device: str | None = None,
    requires_grad: bool = False,
    *,
    memory_format: str | None = None,
) -> Tensor:
    """A Tensor filled with `fill_value`, with the shape of `input`, and its dtype and device unless others are given."""
    shape, dtype, device = like(input, dtype, device, memory_format)
    return _finish(_core.full(shape, fill_value, dtype, device), requires_grad)


def zeros_like(
    input: Any, dtype: Any = None, device: str | None = None, requires_grad: bool = False, *, memory_format: str | None = None
) -> Tensor:
    """Zeros with the shape of `input`, and its dtype and device unless others are given.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.zeros_like(tc.tensor([1, 2]))
    tensor([0, 0])
    """
    return full_like(input, False, dtype, device, requires_grad, memory_format=memory_format)


def ones_like(
    input: Any, dtype: Any = None, device: str | None = None, requires_grad: bool = False, *, memory_format: str | None = None
) -> Tensor:
    """Ones with the shape of `input`, and its dtype and device unless others are given."""
    return full_like(input, True, dtype, device, requires_grad, memory_format=memory_format)


def arange(
    start: float | None = None,
    end: float | None = None,
    step: float = 1,
    dtype: Any = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... below `end`: ``arange(end)`` or ``arange(start, end, step)``; by keyword, `start` may be left out.

    Parameters
    ----------
    start, end, step : int or float
        `end` is excluded. The result is int64 when all are ints, otherwise float32, unless `dtype` is given.
    dtype : dtype, optional
    device : str, default "cpu"
    requires_grad : bool

    Raises
    ------
    ValueError
        For a step of zero, or one that leads away from `end`.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.arange(0, 1, 0.25)
    tensor([0.0000, 0.2500, 0.5000, 0.7500])
    """
    if start is None and end is None:
        raise TypeError("arange() needs an end")
    given: tuple[Any, ...] = (0, start, step) if end is None else (0 if start is None else start, end, step)
    bounds = [b.item() if hasattr(b, "item") else b for b in given]
    for name, bound in zip(("start", "end", "step"), bounds, strict=True):
        if not isinstance(bound, (int, float)):
            real(name, bound)
        if not math.isfinite(bound):
            raise ValueError(f"{name} must be finite, got {bound}")
    kind, stride = None if dtype is None else Tensor([], dtype)._dtype_name, bounds[2]
    if kind == "int64":
        bounds = [int(b) for b in bounds]
    first, last, step = bounds
    is_short = kind in ("int32", "uint8")  # their length is that of the bounds as they are, as in PyTorch and NumPy
    if (int(step) if is_short else step) == 0:
        raise ValueError(f"arange() needs a step other than 0{f', which {stride} is in {kind}' if stride else ''}")
    if (last - first) * step < 0:
        raise ValueError(f"arange() from {first} to {last} cannot go in steps of {step}: the step must lead from start to end")
    whole = all(isinstance(b, int) for b in bounds)
    length = int(-((first - last) // step)) if whole else math.ceil((last - first) / step)
    largest = max(length, *map(abs, bounds)) if whole else length
    if largest >= 2**62:
        raise ValueError(f"arange() from {first} to {last} in steps of {step} has numbers or a length that do not fit in 62 bits")
    if whole or is_short:
        first, step = int(first), int(step)
        if dtype is not None and length:
            check_fit(dtype, first, first + (length - 1) * step)
        return _finish(_core.arange(first, step, length, dtype, device), requires_grad)
    return _finish(_core.spaced(first, step, last, length, length, dtype, device), requires_grad)


def integers(first: int, step: int, length: int, device: str | None) -> Any:
    """`length` integers from `first` in equal steps: an ndarray, or a Tensor on a GPU, to which nothing is copied."""
    if device is None or str(device) == "cpu":
        return np.arange(first, first + step * length, step, dtype=np.int64)
    return _core.arange(first, step, length, None, device)


__all__ = [
    "arange",
    "as_tensor",
    "empty",
    "empty_like",
    "from_dlpack",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "tensor",
    "zeros",
    "zeros_like",
]
