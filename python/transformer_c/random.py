"""Random numbers: the default generator and the functions that draw from it.

The generator is MT19937, used as PyTorch's CPU generator uses it, so that a seed gives the same numbers as in PyTorch.
"""

from __future__ import annotations

import functools
import math
import os
from _thread import get_ident
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from . import _core
from ._arguments import all_of, count, integer, lengths_of, not_negative, real, tensor_of
from ._core import Generator, Tensor
from ._fork_lock import by_thread
from ._names import hooks
from ._recording import is_grad_enabled, no_grad
from ._tensor import check_fit, empty, like, tensor

F = TypeVar("F", bound=Callable[..., Any])

default_generator = Generator(int.from_bytes(os.urandom(7), "little"))
_instead: dict[int, Generator] = by_thread()  # of the default one


def manual_seed(seed: int) -> Generator:
    """Seeds the default generator; returns it.

    Parameters
    ----------
    seed : int
        From -2**63 to 2**64 - 1.

    Examples
    --------
    >>> import transformer_c as tc
    >>> _ = tc.manual_seed(42)
    >>> tc.randn(2)
    tensor([0.3367, 0.1288])
    """
    return default_generator.manual_seed(seed)


class _Forked(_core.switched):
    """A decorator as well: each call of the function is a block of its own."""

    _enabled: bool

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with fork_rng(enabled=self._enabled):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


def fork_rng(devices: Any = None, enabled: bool = True) -> _Forked:
    """Gives the default generator the state that it had before the block, when the block ends; also a decorator.

    Parameters
    ----------
    devices
        Without effect: the generator is that of all devices.
    enabled : bool, default True
        False: it does nothing.

    Examples
    --------
    >>> import transformer_c as tc
    >>> _ = tc.manual_seed(0)
    >>> with tc.random.fork_rng():
    ...     inside = tc.rand(2)
    >>> tc.equal(tc.rand(2), inside)
    True
    """
    generator = as_generator(None)

    def exchange(state: Tensor) -> Tensor:
        generator.set_state(state)
        return state

    found = _Forked(exchange, generator.get_state) if enabled else _Forked(bool, bool)
    found._enabled = enabled
    return found


def get_rng_state() -> Tensor:
    """The state of the default generator, to save in a checkpoint: a Tensor of uint8. It includes the counter of dropout masks.

    Examples
    --------
    >>> import transformer_c as tc
    >>> state = tc.get_rng_state()
    >>> before = tc.rand(2)
    >>> tc.set_rng_state(state)
    >>> tc.equal(tc.rand(2), before)
    True
    """
    return tensor(np.frombuffer(as_generator(None).get_state(), np.uint8))


def set_rng_state(new_state: Any) -> None:
    """Sets the default generator to a state that ``get_rng_state`` gave, here or in PyTorch.

    Parameters
    ----------
    new_state : array_like of uint8
        Also what ``tc.load`` gives of a saved one.

    Raises
    ------
    TypeError, ValueError
        For another dtype, or numbers that are no state.

    Examples
    --------
    >>> import transformer_c as tc
    >>> _ = tc.manual_seed(42)
    >>> state, _ = tc.get_rng_state(), tc.randn(2)
    >>> tc.set_rng_state(state)
    >>> tc.randn(2)
    tensor([0.3367, 0.1288])
    """
    state = tensor_of("new_state", new_state).cpu().numpy()
    if state.dtype != np.uint8:
        raise TypeError(f"set_rng_state() takes the uint8 that get_rng_state() gave, got {state.dtype}")
    as_generator(None).set_state(state.tobytes())


def seed_everything(seed: int | None = None, workers: bool = False, verbose: bool = True) -> int:
    """Seeds the default generator, Python's ``random`` and NumPy's global generator; returns the seed.

    Parameters
    ----------
    seed : int, optional
        From 0 to 2**32 - 1, as NumPy's generator needs it. None is 0.
    workers, verbose
        Accepted for compatibility with Lightning; ignored.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.seed_everything(42)
    42
    >>> tc.randn(2)
    tensor([0.3367, 0.1288])
    """
    seed = count("seed", 0 if seed is None else seed, 0)
    if seed >= 2**32:
        raise ValueError(f"seed must be below 2**32, got {seed}")
    import random  # slow to import, and of no other use here

    random.seed(seed)
    np.random.seed(seed)
    manual_seed(seed)
    return seed


def drawing_from(generator: Generator) -> AbstractContextManager[None]:
    """A context manager: what this thread draws from the default generator comes from `generator` instead."""
    return _core.replaced([(_instead, get_ident(), generator)])


def one_source(rng: Any, generator: Any) -> Any:
    """The source of random numbers that was given under either name, or None."""
    if rng is not None and generator is not None:
        raise TypeError("rng and generator are two names of one argument: pass one of them")
    return rng if generator is None else generator


def as_generator(rng: int | np.integer | np.random.Generator | Generator | None) -> Generator:
    """The generator for an `rng` argument: None is the default generator, an int seeds a new one, a NumPy generator draws the seed."""
    if rng is None:
        return _instead.get(get_ident(), default_generator) if _instead else default_generator
    if isinstance(rng, Generator):
        return rng
    if isinstance(rng, np.random.Generator):
        if _core.cuda_is_capturing():
            raise RuntimeError(
                "a seed was drawn from a np.random.Generator while tc.cuda.graph captured, and each start would have the same; pass a "
                "tc.Generator that was made outside of the function"
            )
        return Generator(int(rng.integers(0, 2**63)))
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool):
        return Generator(int(rng))
    raise TypeError(f"rng must be an int, a np.random.Generator, a tc.Generator or None, not {type(rng).__name__}")


def _shape(sizes: tuple, size: Any = None) -> tuple[int, ...]:
    shape = tuple(count("size", s, 0) for s in lengths_of(sizes, size))
    if shape and max(shape) >= 2**63:
        raise ValueError(f"size is {max(shape)}; expected an int of at most 64 bits")
    return shape


def _is_half(dtype) -> bool:
    if dtype is None:
        return False
    is_name = isinstance(dtype, str) and dtype in ("float32", "float64", "float16", "bfloat16")
    return (dtype if is_name else empty(0, dtype=dtype)._dtype_name) in ("float16", "bfloat16")


def _uniform(shape, low: float, high: float, dtype=None, rng=None) -> Tensor:
    """Halves are drawn in float32 and rounded, and those that become `high` are `low` instead, as in PyTorch."""
    generator = as_generator(rng)
    if not _is_half(dtype):
        return generator.uniform(shape, low, high, dtype)
    if math.prod(shape) > 2 * _PIECE:
        return _fill(empty(shape, dtype=dtype), generator, lambda piece, source: _uniform(piece, low, high, dtype, source))
    drawn = generator.uniform(shape, low, high, "float32").to(dtype)
    first, last = _rounded(float(low).hex(), dtype), _rounded(float(high).hex(), dtype)
    return _core.masked_fill(drawn, _core.eq(drawn, last), first)


@functools.lru_cache(256)
def _rounded(value: str, dtype: Any) -> float:
    """A number rounded to `dtype`, given in hexadecimal digits: the cache would take -0.0 for 0.0."""
    return _core.as_argument([float.fromhex(value)]).to(dtype).tolist()[0]


_BLOCK = 16  # from this many numbers on, PyTorch draws normal numbers in blocks
_PIECE = 1 << 20  # whole blocks; numbers that are cast, or written to a tensor, are drawn in pieces of this length


def _normal(shape, mean: float, std: float, dtype=None, rng=None) -> Tensor:
    """Halves are drawn in float32 and rounded; in whole blocks, as PyTorch does, the last of which is moved back to end with the result."""
    generator = as_generator(rng)
    if not _is_half(dtype):
        return generator.normal(shape, mean, std, dtype)
    n = math.prod(shape)
    if n > 2 * _PIECE:
        return _fill_normal(empty(shape, dtype=dtype), mean, std, generator)
    if n < _BLOCK or n % _BLOCK == 0:
        return generator.normal(shape, mean, std, "float32").to(dtype)
    drawn = generator.normal((-(-n // _BLOCK) * _BLOCK,), mean, std, "float32")
    return _core.cat([drawn[: n - _BLOCK], drawn[-_BLOCK:]], 0).view(shape).to(dtype)


def _filling(tensor: Tensor, draw: Callable[[Sequence[int]], Tensor]) -> Tensor:
    """draw(shape), laid out so that numbers follow each other in the memory of `tensor`, in which order PyTorch fills it."""
    if tensor.is_contiguous():
        return draw(tensor.shape)
    order = sorted(range(tensor.ndim), key=lambda axis: -tensor.stride(axis))
    return draw([tensor.shape[axis] for axis in order]).permute(sorted(range(tensor.ndim), key=order.__getitem__))


def _check_written(tensor: Tensor) -> None:
    """Raises the error of a write that would be refused, before numbers are drawn."""
    if not tensor.is_cuda or not tensor.is_contiguous() or (tensor.requires_grad and is_grad_enabled()):
        (tensor if tensor.ndim else tensor.view(1))[:0] = 0.0


def _fill(tensor: Tensor, generator: Generator, draw: Callable[[Sequence[int], Generator], Tensor], words: int = 0) -> Tensor:
    """Writes draw(shape, generator) into `tensor`; large ones in pieces, which are the same numbers and need no memory as large again.
    `words`: how many are drawn, if not one for each element, or two of float64."""
    n, contiguous = tensor.numel(), tensor.is_contiguous()
    _check_written(tensor)
    if n < 2 * _PIECE and contiguous:
        return tensor.copy_(draw(tensor.shape, generator))
    if not contiguous or (tensor.requires_grad and is_grad_enabled()):
        return tensor.copy_(_filling(tensor, lambda shape: draw(shape, generator)))
    starts = range(0, n - _PIECE, _PIECE)
    flat = tensor.view(-1)
    reserved = generator.reserve(words or n * (2 if tensor._dtype_name == "float64" else 1))  # other threads may draw meanwhile
    for start, stop in zip(starts, [*starts[1:], n], strict=True):
        flat[start:stop] = draw((stop - start,), reserved)
    return tensor


def _is_drawn_into(tensor: Tensor) -> bool:
    """Whether a generator writes to the memory of `tensor` by itself. It does not for large ones, so that Ctrl-C can interrupt."""
    if tensor._dtype_name not in ("float32", "float64") or tensor.is_cuda or not tensor.is_contiguous() or tensor.numel() >= 2 * _PIECE:
        return False
    return not (tensor.requires_grad and is_grad_enabled()) and not _core.is_traced()


def _fill_uniform(tensor: Tensor, low: float, high: float, rng: Any) -> Tensor:
    if _is_drawn_into(tensor):
        return as_generator(rng).uniform(tensor, low, high)
    return _fill(tensor, as_generator(rng), lambda shape, source: _uniform(shape, low, high, tensor._dtype_name, source))


def _fill_normal(tensor: Tensor, mean: float, std: float, rng: Any) -> Tensor:
    generator = as_generator(rng)
    if _is_drawn_into(tensor):
        return generator.normal(tensor, mean, std)
    if tensor.is_contiguous():
        blocks, rest = divmod(tensor.numel(), _BLOCK)
        more = 0 if rest == 0 else _BLOCK if _is_half(tensor._dtype_name) else _BLOCK + rest  # the last block is drawn afresh
        words = (blocks * _BLOCK + more) * (2 if tensor._dtype_name == "float64" else 1)
        return _fill(tensor, generator, lambda shape, source: _normal(shape, mean, std, tensor._dtype_name, source), words)
    dtype = "float32" if _is_half(tensor._dtype_name) else tensor._dtype_name
    return _fill(tensor, generator, lambda shape, source: source.normal_one_by_one(shape, mean, std, dtype))


def _check_device(device) -> None:
    """Raises the error for a wrong device before numbers are drawn, which leaves the generator as it was."""
    if device is not None:
        empty(0, device=device)


def _finish(x: Tensor, device, requires_grad: bool) -> Tensor:
    if device is not None:
        x = x.to(device)
    return x.requires_grad_() if requires_grad else x


def randn(*lengths, size=None, dtype=None, device=None, requires_grad: bool = False, rng=None, generator=None) -> Tensor:
    """A Tensor of standard normal numbers.

    Parameters
    ----------
    *lengths : int or one sequence of int
        The shape; also by name, as `size`.
    dtype : dtype, default float32
    device : str, optional
    requires_grad : bool
    rng : int, np.random.Generator, tc.Generator or None
        None is the default generator; `generator` is PyTorch's name for it.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.randn(2, 3, rng=0).shape
    (2, 3)
    """
    _check_device(device)
    return _finish(_normal(_shape(lengths, size), 0.0, 1.0, dtype, one_source(rng, generator)), device, requires_grad)


def normal(
    mean: Any = 0.0, std: Any = 1.0, size=None, *, dtype=None, device=None, requires_grad: bool = False, rng=None, generator=None
) -> Tensor:
    """A Tensor of numbers of N(mean, std**2): PyTorch's, given the same seed.

    Parameters
    ----------
    mean, std : float or Tensor
        The Tensors broadcast, and have the shape, the dtype (of two that of `mean`) and the device of the result.
    size : sequence of int
        The shape, of two floats.
    dtype, device, requires_grad, rng, generator
        As for ``randn``, of two floats; of Tensors, `rng` and `generator` alone.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.normal(1.0, 0.1, (2,), rng=42)
    tensor([1.0337, 1.0129])
    >>> tc.normal(tc.zeros(3, 1), tc.ones(4)).shape
    (3, 4)
    """
    source = one_source(rng, generator)
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        if size is None:
            raise TypeError("normal() of two numbers needs a size: normal(mean, std, size)")
        all_of((real, "mean", mean), (not_negative, "std", std))
        _check_device(device)
        return _finish(_normal(_shape((), size), mean, std, dtype, source), device, requires_grad)
    if size is not None or dtype is not None or device is not None or requires_grad:
        raise TypeError("normal() of Tensors takes its shape, dtype and device from them; it has no other options than rng and generator")
    with no_grad():
        if isinstance(std, Tensor):
            if bool(_core.lt(std, 0).any()):
                raise ValueError("std has a negative element")
            sum = _core.add(std, mean)
            dtype = mean.dtype if isinstance(mean, Tensor) and mean.is_floating_point() else sum.dtype
            return _fill_normal(empty(sum.shape, dtype=dtype, device=sum.device), 0.0, 1.0, source).mul_(std).add_(mean)
        std = not_negative("std", std)
        return _fill_normal(empty(mean.shape, dtype=mean.dtype, device=mean.device), 0.0, std, source).add_(mean)


def rand(*lengths, size=None, dtype=None, device=None, requires_grad: bool = False, rng=None, generator=None) -> Tensor:
    """A Tensor of uniform numbers in [0, 1). Parameters as for ``randn``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.rand(2, rng=42)
    tensor([0.8823, 0.9150])
    """
    _check_device(device)
    return _finish(_uniform(_shape(lengths, size), 0.0, 1.0, dtype, one_source(rng, generator)), device, requires_grad)


def randn_like(
    input: Any, dtype=None, device=None, requires_grad: bool = False, *, rng=None, generator=None, memory_format: str | None = None
) -> Tensor:
    """Standard normal numbers with the shape of `input`, and its dtype and device unless others are given.

    Examples
    --------
    >>> import transformer_c as tc
    >>> x = tc.ones(2)
    >>> x + 0.1 * tc.randn_like(x, rng=42)
    tensor([1.0337, 1.0129])
    """
    shape, dtype, device = like(input, dtype, device, memory_format)
    return randn(shape, dtype=dtype, device=device, requires_grad=requires_grad, rng=rng, generator=generator)


def rand_like(
    input: Any, dtype=None, device=None, requires_grad: bool = False, *, rng=None, generator=None, memory_format: str | None = None
) -> Tensor:
    """Uniform numbers in [0, 1) with the shape of `input`, and its dtype and device unless others are given.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.rand_like(tc.ones(2), rng=42)
    tensor([0.8823, 0.9150])
    """
    shape, dtype, device = like(input, dtype, device, memory_format)
    return rand(shape, dtype=dtype, device=device, requires_grad=requires_grad, rng=rng, generator=generator)


def bernoulli(input: Any, *, rng=None, generator=None) -> Tensor:
    """1 with the probability that `input` has for each element, else 0. Given the same seed, the numbers are PyTorch's.

    Parameters
    ----------
    input : array_like
        Floating, from 0 to 1.
    rng, generator : int, np.random.Generator, tc.Generator or None
        None is the default generator.

    Returns
    -------
    Tensor
        Of the dtype of `input`.

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.bernoulli(tc.tensor([0.0, 0.5, 1.0]), rng=0)
    tensor([0., 0., 1.])
    """
    return _bernoulli(_probabilities(tensor_of("input", input)), as_generator(one_source(rng, generator)))


def _probabilities(p: Tensor) -> Tensor:
    p = p.detach()
    if p._dtype_name not in ("float32", "float64", "float16", "bfloat16"):
        raise TypeError(f"input is {p._dtype_name}; bernoulli() takes floating probabilities: convert it with .float()")
    if not bool(_core.logical_and(_core.ge(p, 0.0), _core.le(p, 1.0)).all()):
        raise ValueError("bernoulli() takes probabilities from 0 to 1")
    return p


def _bernoulli(p: Tensor, source: Generator) -> Tensor:
    return _draw_below(p, p.shape, source).to(p._dtype_name)


def _draw_below(p: Tensor, shape: tuple[int, ...], source: Generator) -> Tensor:
    """Whether a uniform number is below its probability, as bools."""
    drawn = source.uniform(shape, 0.0, 1.0, "float64" if p._dtype_name == "float64" else None)
    return _core.lt(drawn.to(p.device) if p.is_cuda else drawn, p.float() if _is_half(p._dtype_name) else p)


def _check_drawn(dtype: Any, least: int, most: int) -> None:
    """ValueError unless `dtype` has room for integers from `least` to `most`."""
    check_fit(dtype, least, most)
    as_drawn = _core.as_argument([least, most]).to(dtype=dtype)
    fits = as_drawn.dtype.kind != "b" or (least >= 0 and most <= 1)
    if not fits or not all(map(math.isfinite, as_drawn.tolist())):
        raise ValueError(f"integers from {least} to {most} do not fit {as_drawn._dtype_name}; int64 has room for them")


def randint(*args, low: int | None = None, high: int | None = None, size=None, dtype=None, device=None, rng=None, generator=None) -> Tensor:
    """A Tensor of integers in [low, high): ``randint(high, size)`` or ``randint(low, high, size)``.

    Parameters
    ----------
    low : int, default 0
    high : int
        Excluded.
    size : sequence of int
    dtype : dtype, default int64
    device : str, optional
    rng : int, np.random.Generator, tc.Generator or None

    Examples
    --------
    >>> import transformer_c as tc
    >>> tc.randint(10, size=(2,), rng=42).tolist()
    [2, 7]
    """
    given = list(args)
    if size is None:
        if not given or isinstance(given[-1], (int, np.integer)):
            raise TypeError("randint() needs a size: randint(high, size) or randint(low, high, size)")
        size = given.pop()
    if high is None:
        if not given:
            raise TypeError("randint() needs high: randint(high, size) or randint(low, high, size)")
        high = given.pop()
    if given and low is None:
        low = given.pop()
    if given:
        raise TypeError("randint() takes low, high and size")
    shape = lengths_of((), size)
    least, end = 0 if low is None else integer("low", low), integer("high", high)
    for name, number in (("low", least), ("high", end)):
        if not -(2**63) <= number < 2**63:
            raise ValueError(f"{name} is {number}; expected an int of at most 64 bits")
    if dtype is not None and least < end:
        _check_drawn(dtype, least, end - 1)
    generator = as_generator(one_source(rng, generator))
    shape = _shape(shape)
    if dtype is None:
        _check_device(device)
        return _finish(generator.integers(shape, least, end), device, False)
    drawn = empty(shape, dtype=dtype)
    words = drawn.numel() * (1 if end - least < 2**28 else 2)
    _check_device(device)
    return _finish(_fill(drawn, generator, lambda piece, source: source.integers(piece, least, end), words), device, False)


def randperm(n: int, device=None, rng=None, generator=None, *, dtype=None) -> Tensor:
    """The integers below `n` in random order, int64 unless another `dtype` is given.

    Examples
    --------
    >>> import transformer_c as tc
    >>> sorted(tc.randperm(4, rng=0).tolist())
    [0, 1, 2, 3]
    """
    n = integer("n", n)
    if dtype is not None and n > 0:
        _check_drawn(dtype, 0, n - 1)
    _check_device(device)
    drawn = as_generator(one_source(rng, generator)).permutation(n)
    return _finish(drawn if dtype is None else drawn.to(dtype=dtype), device, False)


__all__ = [
    "bernoulli",
    "get_rng_state",
    "manual_seed",
    "normal",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "randperm",
    "seed_everything",
    "set_rng_state",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(
        __name__,
        instead={
            "seed": "tc.manual_seed(seed)",
            "default_rng": "tc.Generator(seed)",
            "standard_normal": "tc.randn(shape)",
            "uniform": "tc.rand(shape) * (high - low) + low",
            "random": "tc.rand(shape)",
            "integers": "tc.randint(low, high, shape)",
            "permutation": "tc.randperm(n), an index",
            "shuffle": "t[tc.randperm(len(t))]",
            "choice": "t[tc.randint(0, len(t), (n,))]",
        },
    )
