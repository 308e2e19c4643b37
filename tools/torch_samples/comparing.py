"""Arguments and results of both libraries: converted, compared, described."""

import dataclasses
import re

import numpy as np
import transformer_c as tc

# What this library refuses on purpose, by its message: why. It does not count as refused.
BY_CONTRACT = {
    r"a floating dtype is needed|mean .* needs": "integers where a float is needed are an error: a function does not choose a dtype",
    r"must be an int, not bool": "a bool instead of an axis is an error",
    r"has no meaning": "a function of bools that means something else for them is an error",
    r"Integers to negative integer powers": "an integer to a negative power is an error, as in NumPy",
    r"cannot be written to a tensor of": "a float is not written to integers in silence",
    r"keyword argument 'layout'": "layouts in memory (`layout=`) do not exist",
    r"channels_last": "another order in memory than C order (`channels_last`) does not exist",
    r"^complex$": "complex dtypes do not exist",
}
TOLERANCE = {"float32": (2e-5, 2e-5), "float64": (1e-8, 1e-9), "float16": (2e-3, 2e-3), "bfloat16": (2e-2, 2e-2)}


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


class Converter:
    """Arguments of PyTorch as ours; tensors that require a gradient are collected in pairs."""

    def __init__(self, torch):
        self.torch = torch
        self.leaves = []

    def array(self, tensor):
        plain = tensor.detach()
        return plain.float().numpy() if plain.dtype == self.torch.bfloat16 else plain.numpy()

    def ours(self, tensor):
        if tensor.is_complex():
            raise TypeError("complex")
        return tc.tensor(self.array(tensor).copy(), dtype=dtype_name(tensor.dtype), requires_grad=tensor.requires_grad)

    def both(self, value):
        """(a fresh value for PyTorch, the same for us)"""
        torch = self.torch
        if isinstance(value, torch.Tensor):
            theirs = value.detach().clone(memory_format=torch.preserve_format).requires_grad_(value.requires_grad)
            ours = self.ours(theirs)
            if value.requires_grad:
                self.leaves.append((theirs, ours))
            return theirs, ours
        if isinstance(value, torch.dtype):
            return value, dtype_name(value)
        if isinstance(value, torch.device):
            return value, str(value)
        if isinstance(value, torch.memory_format):
            return value, str(value).removeprefix("torch.")
        if isinstance(value, torch.layout):
            return value, value
        if isinstance(value, (list, tuple)):
            pairs = [self.both(v) for v in value]
            theirs, ours = ([p[i] for p in pairs] for i in (0, 1))
            return type(value)(theirs) if not hasattr(value, "_fields") else value, tuple(ours) if isinstance(value, tuple) else ours
        if isinstance(value, dict):
            pairs = {k: self.both(v) for k, v in value.items()}
            return {k: p[0] for k, p in pairs.items()}, {k: p[1] for k, p in pairs.items()}
        return value, value


def flat(result):
    """The tensors and numbers of a result, in order."""
    if isinstance(result, (tuple, list)):
        return [item for part in result for item in flat(part)]
    return [result]


def numbers(value, converter):
    if isinstance(value, tc.Tensor):
        return np.asarray(value.detach().float() if value._dtype_name == "bfloat16" else value.detach())
    return converter.array(value) if hasattr(value, "detach") else np.asarray(value)


def apart(ours, theirs, dtype, times=1.0):
    """What differs by more than the tolerance (so many times), or None."""
    if ours.shape != theirs.shape:
        return f"shape {ours.shape}, PyTorch's is {theirs.shape}"
    rtol, atol = (times * tolerance for tolerance in TOLERANCE.get(dtype, (0, 0)))
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if not np.allclose(a, b, rtol, atol * max(1.0, np.abs(b[np.isfinite(b)]).max(initial=0)), equal_nan=True):
        return "values"
    return None


def compare_results(ours, theirs, converter, has_values=True):
    """What differs between two lists of results, or None; shapes and dtypes alone where the values are random or not set."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results, PyTorch has {len(theirs)}"
    for x, y in zip(ours, theirs, strict=True):
        is_tensor = isinstance(x, tc.Tensor)
        if is_tensor != isinstance(y, converter.torch.Tensor):
            return f"a {type(x).__name__}, PyTorch gives {type(y).__name__}"
        if x is None and y is None:
            continue
        if is_tensor and x._dtype_name != dtype_name(y.dtype):
            return f"dtype {x._dtype_name}, PyTorch's is {dtype_name(y.dtype)}"
        if has_values:
            found = apart(numbers(x, converter), numbers(y, converter), x._dtype_name if is_tensor else "float64")
        else:
            found = f"shape {x.shape}, PyTorch's is {tuple(y.shape)}" if is_tensor and tuple(x.shape) != tuple(y.shape) else None
        if found:
            return found
    return None


def compare_gradients(ours, theirs, converter, times=1.0):
    rng = np.random.default_rng(0)
    total, other = None, None
    for x, y in zip(ours, theirs, strict=True):
        if not isinstance(y, converter.torch.Tensor) or not y.requires_grad or y.is_complex():
            continue
        weights = rng.uniform(0.5, 1.5, tuple(y.shape))
        piece = (y * converter.torch.tensor(weights, dtype=y.dtype)).sum()
        other = piece if other is None else other + piece.to(other.dtype)
        if not x.requires_grad:  # right where the gradient is zero
            continue
        part = (x * tc.tensor(weights, dtype=x._dtype_name)).sum()
        total = part if total is None else total + part
    if other is None:
        return None
    other.backward()
    if total is not None:
        total.backward()
    for theirs_leaf, ours_leaf in converter.leaves:
        a, b = ours_leaf.grad, theirs_leaf.grad
        b = np.zeros(tuple(theirs_leaf.shape)) if b is None else converter.array(b)
        a = np.zeros(ours_leaf.shape) if a is None else numbers(a, converter)
        found = apart(a, b, dtype_name(theirs_leaf.dtype), times)
        if found:
            return f"gradient: {found}"
    return None


@dataclasses.dataclass
class Outcome:
    """Of one sample: "agreed", "refused", "contract" or "different", why, and the arguments."""

    kind: str
    why: str = ""
    call: str = ""


def refused(why, call):
    return Outcome("contract" if any(re.search(pattern, why) for pattern in BY_CONTRACT) else "refused", why, call)


def described(value, torch):
    """An argument in a few words."""
    if isinstance(value, torch.Tensor):
        return f"{dtype_name(value.dtype)}{tuple(value.shape)}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(described(v, torch) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    return re.sub(r"torch\.", "", repr(value))


def described_call(args, kwargs, torch):
    """Arguments as in a call."""
    return f"({', '.join([*(described(v, torch) for v in args), *(f'{k}={described(v, torch)}' for k, v in kwargs.items())])})"


def named(error):
    return f"{type(error).__name__}: {error}"
