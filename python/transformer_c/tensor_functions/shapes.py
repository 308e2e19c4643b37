"""Shapes: the methods of Tensor as functions, repetition, and products of shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .. import _core
from .._arguments import count, integer, named, several, tensor_of
from .._core import Tensor
from .._frames import numbers_of
from .._joining import cat
from .._tensor import integers
from ._calls import METHODS, axes_of, axis_of, takes_arrays

# ---- methods as functions ------------------------------------------------------------------------------------------------------------


@takes_arrays("input", method=False)
def reshape(input: Any, *lengths: Any, shape: Any = None) -> Any:
    """The same elements under another shape; one length may be -1.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.reshape(tc.arange(4), (2, -1))
    tensor([[0, 1],
            [2, 3]])
    """
    return input.reshape(*named(lengths, "shape", shape))


@takes_arrays("input", method=False)
def squeeze(input: Any, dim: Any = None) -> Any:
    """Without the named axes of length 1, or without all of them.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.squeeze(tc.zeros(1, 2, 1), 0).shape
    (2, 1)
    """
    return input.squeeze() if dim is None else input.squeeze(dim)


@takes_arrays("input", method=False)
def unsqueeze(input: Any, dim: int) -> Any:
    """With a new axis of length 1 before axis `dim`.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.unsqueeze(tc.zeros(2), -1).shape
    (2, 1)
    """
    return input.unsqueeze(dim)


@takes_arrays("input", method=False)
def permute(input: Any, dims: Sequence[int]) -> Any:
    """The axes in another order.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.permute(tc.zeros(2, 3, 4), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return input.permute(dims)


@takes_arrays("input", method=False)
def transpose(input: Any, dim0: int, dim1: int) -> Any:
    """Two axes exchanged.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.transpose(tc.zeros(2, 3, 4), 0, -1).shape
    (4, 3, 2)
    """
    return input.transpose(dim0, dim1)


@takes_arrays("input", method=False)
def swapaxes(input: Any, axis0: int, axis1: int) -> Any:
    """Two axes exchanged: NumPy's name of ``transpose``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.swapaxes(tc.zeros(2, 3), 0, 1).shape
    (3, 2)
    """
    return input.transpose(axis0, axis1)


@takes_arrays("input", method=False)
def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Axes joined into one.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.flatten(tc.zeros(2, 3, 4), 1).shape
    (2, 12)
    """
    return input.flatten(start_dim, end_dim)


@takes_arrays("input")
def ravel(input: Any) -> Any:
    """All elements along one axis, contiguous in memory: a view where they are that already, a copy otherwise.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.zeros(2, 3).ravel().shape
    (6,)
    """
    return input.contiguous().reshape(-1)


@takes_arrays("input")
def unflatten(input: Any, dim: int, sizes: Sequence[int]) -> Any:
    """One axis split into several of the given lengths, one of which may be -1: the inverse of ``flatten``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.zeros(2, 12).unflatten(1, (3, -1)).shape
    (2, 3, 4)
    """
    axis = axis_of("dim", input.ndim, dim)
    if not isinstance(sizes, Iterable):
        raise TypeError(f"sizes must be a sequence of ints, got {sizes!r:.80} ({type(sizes).__name__})")
    lengths = [integer("a length of sizes", n) for n in sizes]
    known = math.prod(n for n in lengths if n != -1)
    if lengths.count(-1) == 1 and known > 0 and input.ndim and input.shape[axis] % known == 0:
        lengths[lengths.index(-1)] = input.shape[axis] // known  # reshape() cannot tell where another axis has length 0
    return input.reshape([*input.shape[:axis], *lengths, *input.shape[axis + 1 :]])


@takes_arrays("input")
def broadcast_to(input: Any, *lengths: Any, size: Any = None) -> Any:
    """Spread to another shape, without a copy: ``t.expand`` by its longer name.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.broadcast_to(tc.arange(2), (2, 2))
    tensor([[0, 1],
            [0, 1]])
    """
    return input.expand(*named(lengths, "size", size))


@takes_arrays("input")
def select(input: Any, dim: int, index: int) -> Any:
    """One slice of an axis, without that axis and without a copy: ``input[:, index]`` for `dim` 1.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.select(tc.tensor([[1, 2], [3, 4]]), 1, 0)
    tensor([1, 3])
    """
    return input[(slice(None),) * axis_of("dim", input.ndim, dim) + (integer("index", index),)]


@takes_arrays("input", method=False)
def narrow(input: Any, dim: int, start: int, length: int) -> Any:
    """A slice of one axis.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.narrow(tc.arange(5), 0, 1, 3)
    tensor([1, 2, 3])
    """
    return input.narrow(dim, start, length)


@takes_arrays("input", method=False)
def clone(input: Any, *, memory_format: str | None = None) -> Any:
    """A recorded copy.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.clone(tc.ones(2))
    tensor([1., 1.])
    """
    return input.clone(memory_format=memory_format)


@takes_arrays("input", method=False)
def chunk(input: Any, chunks: int, dim: int = 0) -> Any:
    """A tuple of at most `chunks` slices of equal size, the last one perhaps shorter.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.chunk(tc.arange(4), 2)
    (tensor([0, 1]), tensor([2, 3]))
    """
    return input.chunk(chunks, dim)


@takes_arrays("tensor", method=False)
def split(tensor: Any, split_size_or_sections: Any, dim: int = 0) -> Any:
    """A tuple of slices of a size, or of the sizes given.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.split(tc.arange(3), [1, 2])
    (tensor([0]), tensor([1, 2]))
    """
    return tensor.split(split_size_or_sections, dim)


@takes_arrays("input", method=False)
def unbind(input: Any, dim: int = 0) -> Any:
    """A tuple of the slices along an axis, without that axis.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.unbind(tc.tensor([[1, 2], [3, 4]]), 1)
    (tensor([1, 3]), tensor([2, 4]))
    """
    return input.unbind(dim)


@takes_arrays("input", method=False)
def numel(input: Any) -> int:
    """How many elements there are.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.numel(tc.zeros(2, 3))
    6
    """
    return input.numel()


@takes_arrays("input")
def t(input: Any) -> Any:
    """A matrix transposed; a vector, and an array without axes, as it is.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.zeros(2, 3).t().shape
    (3, 2)
    """
    if input.ndim > 2:
        raise ValueError(f"t() takes at most two axes, not shape {input.shape}: .mT exchanges the last two")
    return input.T


@takes_arrays("input")
def movedim(input: Any, source: Any, destination: Any) -> Any:
    """Axes moved to other places; the others keep their order.

    Parameters
    ----------
    input : array_like
    source, destination : int or sequence of int
        As many of both.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.movedim(tc.zeros(2, 3, 4), 0, -1).shape
    (3, 4, 2)
    """
    moved, places = (axes_of(name, input.ndim, value) for name, value in (("source", source), ("destination", destination)))
    if moved is None or places is None or len(moved) != len(places):
        raise ValueError(f"movedim() takes as many sources as destinations, not {source} and {destination}")
    order: list[int | None] = [None] * input.ndim
    for axis, place in zip(moved, places, strict=True):
        if input.ndim:
            order[place] = axis
    rest = iter([axis for axis in range(input.ndim) if axis not in moved])
    return input.permute([next(rest) if axis is None else axis for axis in order])


@takes_arrays("input")
def diag(input: Any, diagonal: int = 0) -> Any:
    """Of a vector, the square matrix that has it on its diagonal; of a matrix, the diagonal.

    Parameters
    ----------
    input : array_like, shape (N,) or (M, N)
    diagonal : int
        0 is the main one; positive ones are above it.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.diag(np.array([1, 2]))
    array([[1, 0],
           [0, 2]])
    >>> tc.diag(np.array([[1, 2], [3, 4]]), 1)
    array([2])
    """
    if input.ndim not in (1, 2):
        raise ValueError(f"input has shape {input.shape}; diag() takes a vector or a matrix")
    diagonal = integer("diagonal", diagonal)
    down, right = max(-diagonal, 0), max(diagonal, 0)
    if input.ndim == 2:
        rows, columns = input.shape
        count = max(min(rows - down, columns - right), 0)
        first = down * columns + right
        return input.reshape(-1)[first : first + (count - 1) * (columns + 1) + 1 : columns + 1].clone() if count else input.reshape(-1)[:0]
    side = input.shape[0] + down + right
    places = _core.as_argument(integers(down * side + right, side + 1, input.shape[0], input.device))
    whole = _core.full((side * side,), 0, input._dtype_name, input.device)
    return _core.scatter(whole, 0, places, input, "put").reshape(side, side)


def _shape_of(taker: str, instead: str, other: Any) -> Any:
    """The shape of an array; `taker` is the method that takes it, `instead` the one that takes a shape."""
    if not isinstance(other, Tensor) and not hasattr(other, "shape"):
        raise TypeError(f"{taker}() takes another Tensor, got {other!r} ({type(other).__name__}); {instead}() takes a shape")
    return other.shape


def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """This Tensor spread to the shape of another, without a copy."""
    return self.expand(_shape_of("expand_as", "expand", other))


def view_as(self: Tensor, other: Tensor) -> Tensor:
    """This Tensor's memory under the shape of another."""
    return self.view(_shape_of("view_as", "view", other))


METHODS |= {"expand_as": expand_as, "view_as": view_as}


# ---- joining -------------------------------------------------------------------------------------------------------------------------


def _at_least(tensors: Any, axes: int) -> list[Any]:
    """With new axes of length 1 at the front of those that have fewer."""
    if isinstance(tensors, (Tensor, np.ndarray)):
        raise TypeError("the arrays go into one list: hstack([a, b])")
    if isinstance(tensors, str) or not isinstance(tensors, Iterable):
        raise TypeError(f"tensors must be a sequence of tensors, not {type(tensors).__name__}")
    given = [x if isinstance(x, Tensor) else numbers_of(x) for x in tensors]
    return [x.reshape((1,) * (axes - x.ndim) + tuple(x.shape)) if x.ndim < axes else x for x in given]


def hstack(tensors: Sequence[Any]) -> Any:
    """Joins arrays side by side: vectors along axis 0, others along axis 1.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.hstack([np.array([1, 2]), np.array([3])])
    array([1, 2, 3])
    """
    given = _at_least(tensors, 1)
    return cat(given, 0 if given and given[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Any]) -> Any:
    """Joins arrays below each other; a vector is a row.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.vstack([np.array([1, 2]), np.array([3, 4])])
    array([[1, 2],
           [3, 4]])
    """
    return cat(_at_least(tensors, 2), 0)


# ---- repetition ----------------------------------------------------------------------------------------------------------------------


def _counts(name: str, given: tuple) -> tuple[int, ...]:
    """f(2, 3) and f((2, 3)) are the same; each at least 0."""
    return tuple(count(f"{name}(): a number of times", times, 0) for times in (several(*given) if len(given) == 1 else given))


@takes_arrays("input")
def repeat(input: Any, *counts: Any, repeats: Any = None) -> Any:
    """The whole repeated along each axis, as ``np.tile`` does it.

    Parameters
    ----------
    input : array_like
    *counts : int, or one sequence of int
        Also by name, as `repeats`: for each axis, at least as many as `input` has; additional ones are new axes at the front.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.repeat(np.array([1, 2]), 2, 2)
    array([[1, 2, 1, 2],
           [1, 2, 1, 2]])
    """
    counts = _counts("repeat", named(counts, "repeats", repeats))
    if len(counts) < input.ndim:
        raise ValueError(f"repeat() needs a count for each axis: {len(counts)} were given, input has shape {input.shape}")
    lengths = (1,) * (len(counts) - input.ndim) + tuple(input.shape)
    result, copied = input.reshape(lengths), False
    for axis, (times, length) in enumerate(zip(counts, lengths, strict=True)):  # copies from the front: each makes what follows longer
        if times == 1 or length == 1:
            continue
        shape = list(result.shape)
        spread = result.unsqueeze(axis).expand([*shape[:axis], times, *shape[axis:]])
        result, copied = spread.reshape([*shape[:axis], times * length, *shape[axis + 1 :]]), True
    # Axes of length 1 in one call, whatever their counts: of a file that is exported they may be the batch.
    result = result.expand([times * length for times, length in zip(counts, lengths, strict=True)])
    return result.contiguous() if copied else result.clone()


@takes_arrays("input")
def tile(input: Any, *counts: Any, dims: Any = None) -> Any:
    """The whole repeated along each axis: ``repeat`` with counts for the last axes only, where there are fewer counts than axes.

    Parameters
    ----------
    input : array_like
    *counts : int, or one sequence of int
        Also by name, as `dims`.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.tile(np.array([[1, 2]]), (2,))
    array([[1, 2, 1, 2]])
    """
    counts = _counts("tile", named(counts, "dims", dims))
    return repeat(input, (1,) * (input.ndim - len(counts)) + counts)


def _spread(input: Tensor, axis: int, repeats: int) -> Tensor:
    shape = input.shape
    spread = input.unsqueeze(axis + 1).expand((*shape[: axis + 1], repeats, *shape[axis + 1 :]))
    return spread.clone().reshape((*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]))


@takes_arrays("input")
def repeat_interleave(input: Any, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None) -> Any:
    """Each element repeated, as ``np.repeat`` does it.

    Parameters
    ----------
    input : array_like
    repeats : int or array_like of int
        One for all, or one for each element along `dim`. Without it `input` is the repeats, and the result their indices.
    dim : int, optional
        None: of the flattened input.
    output_size : int, optional
        The length of the result along `dim`, checked.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.repeat_interleave(np.array([1, 2]), np.array([3, 1]))
    array([1, 1, 1, 2])
    """
    if repeats is None:
        input, repeats = _core.as_argument(integers(0, 1, input.numel(), input.device)), input
    if dim is None:
        input, dim = input.reshape(-1), 0
    axis = axis_of("dim", input.ndim, dim)
    if input.ndim == 0:
        input = input.reshape(1)
    length = input.shape[axis]
    if type(repeats) is int and 0 <= repeats < 2**31 and output_size is None:  # by far the most usual, whose checks are these
        return _spread(input, axis, repeats)
    counts = np.asarray(repeats.detach().cpu()) if isinstance(repeats, Tensor) else np.asarray(repeats)
    if counts.dtype == object and counts.ndim == 0:
        integer("repeats", counts.item())
    if counts.dtype.kind not in "iu":
        raise TypeError(f"repeats must be ints, not {counts.dtype}")
    if counts.size and counts.min() < 0:
        raise ValueError(f"repeat_interleave() cannot repeat {counts.min()} times")
    if counts.ndim > 1 or counts.size not in (1, length):
        raise ValueError(f"repeats has shape {counts.shape}; expected an int, or {length} of them, one for each element along axis {axis}")
    if float(counts.sum(dtype=np.float64)) * (1 if counts.size == length else length) >= 2.0**62:
        raise ValueError("the repeats add up to more elements than memory can address")
    total = int(counts.sum()) if counts.size == length else int(counts.reshape(-1)[0]) * length
    if output_size is not None and output_size != total:
        raise ValueError(f"output_size is {output_size}, but the repeats add up to {total}")
    if counts.size == 1:
        return _spread(input, axis, int(counts.reshape(-1)[0]))
    places = _core.as_argument(np.repeat(np.arange(length), counts), input)
    return input[(slice(None),) * axis + (places,)]


@takes_arrays("input")
def roll(input: Any, shifts: Any, dims: Any = None) -> Any:
    """The elements moved along axes; those that leave at one end come back at the other.

    Parameters
    ----------
    input : array_like
    shifts : int or sequence of int
    dims : int or sequence of int, optional
        As many as `shifts`; None: of the flattened input.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.roll(np.array([1, 2, 3]), 1)
    array([3, 1, 2])
    """
    steps = tuple(integer("shifts", step) for step in several(shifts))
    if dims is None:
        if len(steps) != 1:
            raise ValueError(f"{len(steps)} shifts need as many dims")
        return roll(input.reshape(-1), steps, 0).reshape(input.shape)
    axes = several(dims)
    if len(axes) != len(steps):
        raise ValueError(f"there are {len(steps)} shifts but {len(axes)} dims; they must be as many")
    result = input
    for step, axis in zip(steps, axes, strict=True):
        along = axis_of("dims", input.ndim, axis)
        length = input.shape[along] if input.ndim else 1
        if length and (shift := step % length):
            result = _core.cat([result.narrow(along, length - shift, shift), result.narrow(along, 0, length - shift)], along)
    return result.clone() if result is input else result


# ---- products of shapes ----------------------------------------------------------------------------------------------------------------


@takes_arrays("input", "vec2")
def outer(input: Any, vec2: Any) -> Any:
    """The products of all pairs of elements of two vectors.

    Parameters
    ----------
    input : array_like, shape (N,)
    vec2 : array_like, shape (M,)

    Returns
    -------
    Tensor or ndarray, shape (N, M)

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.outer(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array([[3., 4.],
           [6., 8.]])
    """
    vec2 = tensor_of("vec2", vec2, input)
    for name, vector in (("input", input), ("vec2", vec2)):
        if vector.ndim != 1:
            raise ValueError(f"{name} has shape {vector.shape}; outer() takes two vectors")
    return _core.mul(input.unsqueeze(1), vec2)


__all__ = [
    "broadcast_to",
    "chunk",
    "clone",
    "diag",
    "flatten",
    "hstack",
    "movedim",
    "narrow",
    "numel",
    "outer",
    "permute",
    "ravel",
    "repeat",
    "repeat_interleave",
    "reshape",
    "roll",
    "select",
    "split",
    "squeeze",
    "swapaxes",
    "t",
    "tile",
    "transpose",
    "unbind",
    "unflatten",
    "unsqueeze",
    "vstack",
]
