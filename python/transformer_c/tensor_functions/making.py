"""New tensors: ranges, the identity, grids."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._arguments import count, one_of, real
from .._core import Tensor
from .._joining import stack
from .._tensor import _finish, check_fit, empty, full, ones, tensor, zeros
from ._calls import METHODS, with_tensors


def _number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def linspace(start: float, end: float, steps: int, *, dtype: Any = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """`steps` numbers from `start` to `end`, both included, at equal distances.

    Parameters
    ----------
    start, end : float
    steps : int
    dtype : dtype, default float32
    device : str, default "cpu"
    requires_grad : bool

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.linspace(0, 1, 5)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    start, end, steps = _number(real("start", start)), _number(real("end", end)), count("steps", steps, 0)
    whole = dtype is not None and Tensor([], dtype)._dtype_name in ("int64", "int32", "uint8")
    start, end = (int(start), int(end)) if whole else (float(start), float(end))
    if whole and steps:
        check_fit(dtype, start, *([end] if steps > 1 else []))
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    turn = 1 if steps == 1 else steps // 2 if whole else steps - 1  # integers from both ends, as PyTorch does, so that rounding is the same
    return _finish(_core.spaced(start, step, end, steps, turn, dtype, device), requires_grad)


def eye(n: int, m: int | None = None, *, dtype: Any = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """The (n, m) matrix with ones on its main diagonal.

    Parameters
    ----------
    n : int
    m : int, default n
    dtype : dtype, default float32
    device : str, default "cpu"
    requires_grad : bool

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.eye(2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    rows = count("n", n, 0)
    columns = rows if m is None else count("m", m, 0)
    result = _core.full((rows, columns), 0, dtype, device)
    places = min(rows, columns)
    if places:
        result.reshape(-1)[: (places - 1) * columns + places : columns + 1] = 1
    return result.requires_grad_() if requires_grad else result


def new_empty(
    self: Tensor, *lengths: Any, size: Any = None, dtype: Any = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """A Tensor of uninitialised memory, with the dtype and device of this one unless others are given."""
    return empty(*lengths, size=size, dtype=dtype or self._dtype_name, device=device or self.device, requires_grad=requires_grad)


def new_zeros(
    self: Tensor, *lengths: Any, size: Any = None, dtype: Any = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Zeros, with the dtype and device of this Tensor unless others are given."""
    return zeros(*lengths, size=size, dtype=dtype or self._dtype_name, device=device or self.device, requires_grad=requires_grad)


def new_ones(
    self: Tensor, *lengths: Any, size: Any = None, dtype: Any = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Ones, with the dtype and device of this Tensor unless others are given."""
    return ones(*lengths, size=size, dtype=dtype or self._dtype_name, device=device or self.device, requires_grad=requires_grad)


def new_full(self: Tensor, size: Any, fill_value: Any, dtype: Any = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """`fill_value` everywhere, with the dtype and device of this Tensor unless others are given."""
    return full(size, fill_value, dtype or self._dtype_name, device or self.device, requires_grad)


def new_tensor(self: Tensor, data: Any, dtype: Any = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """A copy of `data`, with the dtype and device of this Tensor unless others are given."""
    return tensor(data, dtype or self._dtype_name, device or self.device, requires_grad)


# Of each dtype the word in PyTorch's names of types.
_TYPES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int", "uint8": "Byte",
    "bool": "Bool",
}  # fmt: skip
_DTYPES = {
    f"torch.{place}{word}Tensor": (dtype, device) for dtype, word in _TYPES.items() for place, device in (("", "cpu"), ("cuda.", "cuda"))
}


def as_type(self: Tensor, dtype: Any = None) -> Any:
    """This Tensor in another dtype: ``t.to(dtype)``.

    ``tc.ByteTensor`` and its like name a dtype too, and so does what it returns without an argument: PyTorch's name of the type.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.ones(2).type(), tc.ones(2).type(tc.LongTensor).type()
    ('torch.FloatTensor', 'torch.LongTensor')
    """
    if dtype is None:
        return f"torch.{'' if self.device == 'cpu' else 'cuda.'}{_TYPES[self._dtype_name]}Tensor"
    dtype, device = _DTYPES.get(dtype, (dtype, None)) if isinstance(dtype, str) else (dtype, None)
    return self.to(dtype=dtype, device=None if device is None or self.device.startswith(device) else device)


def element_size(self: Tensor) -> int:
    """The bytes of an element."""
    return self.dtype.itemsize


def byte(self: Tensor, *, memory_format: str | None = None) -> Tensor:
    """This Tensor in uint8."""
    return self.to(dtype="uint8", memory_format=memory_format)


METHODS |= {"byte": byte, "element_size": element_size, "type": as_type}
METHODS |= {"new_empty": new_empty, "new_full": new_full, "new_ones": new_ones, "new_tensor": new_tensor, "new_zeros": new_zeros}


def meshgrid(*tensors: Any, indexing: str = "ij") -> Any:
    """Vectors spread over a grid: for each a view of the grid's shape that follows it along its own axis.

    Parameters
    ----------
    *tensors : array_like, or one sequence of them
        Vectors, or arrays without axes.
    indexing : {"ij", "xy"}
        "ij": the first vector runs along axis 0, as in PyTorch; "xy": along axis 1, the default of NumPy.

    Returns
    -------
    tuple of Tensor or ndarray

    Examples
    --------
    >>> import transformer_c as tc
    >>> rows, columns = tc.meshgrid(tc.arange(2), tc.arange(3))
    >>> columns
    tensor([[0, 1, 2],
            [0, 1, 2]])
    """
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    one_of("indexing", indexing, ("ij", "xy"))
    if not tensors:
        raise ValueError("meshgrid() needs a vector")
    return with_tensors(lambda vectors: _grid(vectors, indexing), tensors)


def _grid(vectors: list[Tensor], indexing: str) -> tuple[Tensor, ...]:
    for vector in vectors:
        if vector.ndim > 1:
            raise ValueError(f"meshgrid() takes vectors, not an array of shape {vector.shape}")
        if vector.dtype != vectors[0].dtype:
            raise TypeError(f"the vectors must have one dtype, not {vectors[0]._dtype_name} and {vector._dtype_name}")
    swapped = indexing == "xy" and len(vectors) > 1
    ordered = [vectors[1], vectors[0], *vectors[2:]] if swapped else vectors
    shape = [v.numel() for v in ordered]
    grids = [v.reshape([-1 if k == i else 1 for k in range(len(shape))]).expand(shape) for i, v in enumerate(ordered)]
    return (grids[1], grids[0], *grids[2:]) if swapped else tuple(grids)


def cartesian_prod(*tensors: Any) -> Any:
    """All choices of one element of each vector, as rows: those of the first vector change most slowly.

    Parameters
    ----------
    *tensors : array_like
        Vectors of one dtype.

    Returns
    -------
    Tensor or ndarray, shape (product of the lengths, vectors)
        Of a single vector, the vector itself.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.cartesian_prod(tc.arange(2), tc.tensor([5, 6]))
    tensor([[0, 5],
            [0, 6],
            [1, 5],
            [1, 6]])
    """
    if not tensors:
        raise ValueError("cartesian_prod() needs a vector")
    return with_tensors(_rows_of_all, tensors)


def _rows_of_all(vectors: list[Tensor]) -> Tensor:
    for vector in vectors:
        if vector.ndim != 1:
            raise ValueError(f"cartesian_prod() takes vectors, not an array of shape {vector.shape}")
    return stack([grid.reshape(-1) for grid in _grid(vectors, "ij")], 1) if len(vectors) > 1 else vectors[0]


__all__ = [
    "cartesian_prod",
    "eye",
    "linspace",
    "meshgrid",
]
