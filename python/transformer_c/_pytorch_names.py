"""Names of PyTorch's for what is here already: devices, tensors from arrays and of a dtype."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from . import _core
from ._arguments import integer, shown
from ._core import Tensor
from ._tensor import as_tensor, empty, tensor


class device(str):
    """The name of a device, which every function takes and every Tensor has as a str: "cpu", "cuda" or "cuda:1".

    Parameters
    ----------
    type : str, int or device
        With or without a number; an int is the number of a GPU.
    index : int, optional

    Attributes
    ----------
    type : str
        "cpu" or "cuda".
    index : int or None

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.zeros(2).to(tc.device("cpu")).device == tc.device("cpu")
    True
    >>> tc.device("cuda", 1), tc.device("cuda:1").index, str(tc.device("cpu"))
    (device(type='cuda', index=1), 1, 'cpu')
    """

    type: str
    index: int | None  # type: ignore[assignment]

    def __new__(cls, type: str | int, index: int | None = None) -> device:
        if isinstance(type, int) and not isinstance(type, bool):
            return cls("cuda", type)
        if not isinstance(type, str):
            raise TypeError(f"a device is given as a str or the number of a GPU, not {type.__class__.__name__}")
        found = re.fullmatch(r"(cpu|cuda)(?::(\d+|emulated))?", type)
        if found is None or (found[2] is not None and index is not None):
            raise ValueError(
                f'a device is "cpu", "cuda" or "cuda:0", got {shown(type)}' + ("" if index is None else f" and {shown(index)}")
            )
        self = super().__new__(cls, type if index is None else f"{type}:{integer('index', index)}")
        self.type = found[1]
        self.index = int(found[2]) if found[2] is not None and found[2].isdigit() else index
        return self

    def __repr__(self) -> str:
        return f"device(type={self.type!r}" + (f", index={self.index})" if self.index is not None else ")")

    def __reduce__(self) -> tuple:
        return device, (str(self),)


_core.set_device_type(device)


def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A Tensor over the memory of an ndarray: writes to one are seen in the other.

    Parameters
    ----------
    ndarray : np.ndarray

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> array = np.zeros(2)
    >>> tc.from_numpy(array)[0] = 5
    >>> array
    array([5., 0.])
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"from_numpy() takes an ndarray, not {type(ndarray).__name__}; tc.tensor(data) copies anything")
    return as_tensor(ndarray)


# Of each dtype the bits, those of the fraction, and the largest exponent.
_FLOATS = {"float16": (16, 10, 15), "bfloat16": (16, 7, 127), "float32": (32, 23, 127), "float64": (64, 52, 1023)}


class finfo:
    """The limits of a floating dtype.

    Parameters
    ----------
    dtype : dtype, default float32

    Attributes
    ----------
    dtype : str
    bits : int
    min, max : float
    eps : float
        The distance from 1 to the next number.
    tiny, smallest_normal : float
    resolution : float
        That of the decimal digits that all numbers have.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.finfo(tc.float16).max, tc.finfo("bfloat16").eps
    (65504.0, 0.0078125)
    """

    def __init__(self, dtype: Any = "float32") -> None:
        self.dtype = empty(0, dtype=dtype)._dtype_name
        if self.dtype not in _FLOATS:
            raise TypeError(f"finfo() takes a floating dtype, got {self.dtype}; tc.iinfo is for those of integers")
        self.bits, fraction, exponent = _FLOATS[self.dtype]
        self.eps = 2.0**-fraction
        self.max = (2.0 - self.eps) * 2.0**exponent
        self.min = -self.max
        self.tiny = self.smallest_normal = 2.0 ** (1 - exponent)
        self.resolution = 10.0 ** -int(fraction * math.log10(2.0))

    def __repr__(self) -> str:
        return f"finfo({', '.join(f'{name}={value}' for name, value in vars(self).items())})"


def iinfo(dtype: Any) -> np.iinfo:
    """The limits of a dtype of integers: its ``bits``, ``min`` and ``max``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.iinfo(tc.uint8).max
    255
    """
    try:
        return np.iinfo(dtype)
    except ValueError:
        raise TypeError(f"iinfo() takes a dtype of integers, got {shown(dtype)}; tc.finfo is for floating ones") from None


def _typed(name: str, dtype: str) -> Any:
    def make(*arguments: Any) -> Tensor:
        if arguments and all(isinstance(a, (int, np.integer)) and not isinstance(a, bool) for a in arguments):
            return empty(*arguments, dtype=dtype)
        if len(arguments) > 1:
            raise TypeError(f"{name}() takes data, or the sizes of an uninitialised Tensor")
        return tensor(arguments[0], dtype=dtype) if arguments else empty(0, dtype=dtype)

    make.__name__ = make.__qualname__ = name
    make.dtype = np.dtype(dtype)  # type: ignore[attr-defined]  # t.type(tc.ByteTensor)
    make.__doc__ = f"""A Tensor of dtype {dtype} from data, or an uninitialised one from sizes: ``tc.tensor(data, dtype="{dtype}")`` by an older name.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.{name}([1, 2]).dtype.name, tc.{name}(2, 3).shape
    ('{dtype}', (2, 3))
    """
    return make


FloatTensor, DoubleTensor = _typed("FloatTensor", "float32"), _typed("DoubleTensor", "float64")
LongTensor, IntTensor = _typed("LongTensor", "int64"), _typed("IntTensor", "int32")
BoolTensor, ByteTensor = _typed("BoolTensor", "bool"), _typed("ByteTensor", "uint8")

e, inf, nan, pi = math.e, math.inf, math.nan, math.pi

# The types of t.shape and t.dtype.
Size, dtype = tuple, np.dtype


def compile(model: Any = None, **options: Any) -> Any:
    """Returns the module or function that it is given: there is nothing to compile. As a decorator, with options, too.

    Examples
    --------
    >>> import transformer_c as tc
    >>> layer = tc.nn.Linear(2, 2)
    >>> tc.compile(layer, mode="max-autotune") is layer
    True
    """
    if unknown := sorted(set(options) - {"fullgraph", "dynamic", "backend", "mode", "options", "disable", "recompile_limit"}):
        raise TypeError(f"compile() has no option {unknown[0]!r}")
    if model is not None and not callable(model):
        raise TypeError(f"compile() takes a module or a function, got {model!r} ({model.__class__.__name__})")
    return model if model is not None else lambda function: compile(function, **options)


__all__ = [
    "BoolTensor",
    "ByteTensor",
    "DoubleTensor",
    "FloatTensor",
    "IntTensor",
    "LongTensor",
    "Size",
    "compile",
    "device",
    "dtype",
    "e",
    "finfo",
    "from_numpy",
    "iinfo",
    "inf",
    "nan",
    "pi",
]
