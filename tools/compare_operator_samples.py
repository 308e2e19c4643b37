"""Runs PyTorch's own samples of operators here and there, and compares values, dtypes and gradients.

python tools/compare_operator_samples.py                  a line per function; exit status 1 where one is not done
python tools/compare_operator_samples.py sort topk        those alone, with every sample that is refused or differs
python tools/compare_operator_samples.py --write          docs/pytorch-samples.md as well

The samples are those of torch.testing._internal.common_methods_invocations (needs torch, expecttest and numpy). A function is done when
its samples agree and at most 5 % of them are refused.
"""

import argparse
import dataclasses
import re
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import transformer_c as tc

PAGE = Path(__file__).parents[1] / "docs/pytorch-samples.md"
DTYPES = ("float32", "float64", "int64", "bool")
MOST_REFUSED = 0.05
# Their values are drawn at random or not set: shapes and dtypes are compared.
NO_VALUES = {
    "bernoulli",
    "new_empty",
    "rand_like",
    "randn_like",
    "empty",
    "empty_like",
    "randn",
    "randint",
    "multinomial",
    "normal",
    "nn.functional.dropout",
}
# Names whose samples cannot be called: why.
LEFT_OUT = {"item": "the samples have more than one element, which both refuse", "data": "a property"}
# Variants of an operator that do not exist here: why.
LEFT_OUT_VARIANTS = {("norm", "nuc"): "norms of matrices", ("normal", "in_place"): "a method, `normal_`"}
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
# PyTorch's database calls these by functions of its own, with arguments in another order.
ADAPTED = {
    "where": lambda f: lambda x, condition, other: f(condition, x, other),
    "einsum": lambda f: lambda tensors, equation: f(equation, tensors),
    "nn.functional.embedding": lambda f: lambda weight, indices, **kw: f(indices, weight, **kw),
    "zero_": lambda f: lambda x: f(x.clone()),
}
# Of equal elements any may be named: what the indices name is compared.
ANY_OF_EQUAL = {"topk", "sort", "argsort"}
TOLERANCE = {"float32": (2e-5, 2e-5), "float64": (1e-8, 1e-9), "float16": (2e-3, 2e-3), "bfloat16": (2e-2, 2e-2)}


def functions_here(name):
    """{form: callable} of an operator of PyTorch: "tc.f", "t.f", "F.f"."""
    found = {}
    adapt = ADAPTED.get(name, lambda f: f)
    if name.startswith("nn.functional."):
        short = name.removeprefix("nn.functional.")
        if callable(getattr(tc.functional, short, None)):
            found[f"F.{short}"] = adapt(getattr(tc.functional, short))
        return found
    if "." in name or name in LEFT_OUT:
        return found
    if name in tc.__all__ and callable(getattr(tc, name)):
        found[f"tc.{name}"] = adapt(getattr(tc, name))
    if callable(getattr(tc.Tensor, name, None)) and name not in ("where", "einsum"):
        found[f"t.{name}"] = adapt(getattr(tc.Tensor, name))
    return found


# ---- one sample ------------------------------------------------------------------------------------------------------------------------


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


# Where rows have one element, the gradient is a difference of large numbers that is 0 but for rounding. PyTorch's own gradient of
# hardsigmoid multiplies by a 1 / 6 of float32.
ROUNDED = {"nn.functional.layer_norm": 50.0, "nn.functional.hardsigmoid": 50.0}


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


def named_by(indices, values, dim, converter):
    """The elements of the argument that the indices name."""
    values, indices = numbers(values, converter), numbers(indices, converter)
    return np.take_along_axis(values, indices, dim) if values.ndim else values


def compare(ours, theirs, name, converter, arguments):
    """What differs between two results, or None."""
    a, b = flat(ours), flat(theirs)
    if name in ANY_OF_EQUAL:
        (x, *args), kwargs = arguments
        dim = kwargs.get("dim", args[name == "topk"] if len(args) > (name == "topk") else -1)
        found = apart(named_by(a[-1], x, dim, converter), named_by(b[-1], x, dim, converter), "float64")
        if found:
            return f"indices: {found}"
        a, b = a[:-1], b[:-1]
    if len(a) != len(b):
        return f"{len(a)} results, PyTorch has {len(b)}"
    for x, y in zip(a, b, strict=True):
        if isinstance(x, tc.Tensor) != isinstance(y, converter.torch.Tensor):
            return f"a {type(x).__name__}, PyTorch gives {type(y).__name__}"
        if isinstance(x, tc.Tensor) and x._dtype_name != dtype_name(y.dtype):
            return f"dtype {x._dtype_name}, PyTorch's is {dtype_name(y.dtype)}"
        kind = x._dtype_name if isinstance(x, tc.Tensor) else "float64"
        by_chance = name in NO_VALUES or arguments[1].get("dropout_p")
        found = apart(numbers(x, converter), numbers(y, converter), kind) if not by_chance else None
        if by_chance and isinstance(x, tc.Tensor) and tuple(x.shape) != tuple(y.shape):
            found = f"shape {x.shape}, PyTorch's is {tuple(y.shape)}"
        if found:
            return found
    return compare_gradients(a, b, converter, ROUNDED.get(name, 1.0)) if not (name in NO_VALUES or arguments[1].get("dropout_p")) else None


def compare_gradients(ours, theirs, converter, times):
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


def run(info, form, function, sample, torch):
    """The outcome of one sample, or None where PyTorch itself refuses it."""
    converter = Converter(torch)
    arguments = [described(v, torch) for v in (sample.input, *sample.args)]
    call = f"({', '.join([*arguments, *(f'{k}={described(v, torch)}' for k, v in sample.kwargs.items())])})"
    try:
        theirs_in, ours_in = converter.both((sample.input, *sample.args))
        theirs_kw, ours_kw = converter.both(dict(sample.kwargs))
    except TypeError as error:
        return refused(str(error), call)
    try:
        theirs = info.op(*theirs_in, **theirs_kw)
    except Exception:
        return None
    try:
        ours = function(*ours_in, **ours_kw)
    except Exception as error:
        return refused(f"{type(error).__name__}: {error}", call)
    try:
        found = compare(ours, theirs, info.name, converter, (theirs_in, theirs_kw))
    except Exception as error:
        return Outcome("different", f"{type(error).__name__}: {error}", call)
    return Outcome("different" if found else "agreed", found or "", call)


def samples_of(info, most=None):
    """The samples of an operator in our dtypes, at most so many per dtype."""
    import torch

    for name in DTYPES:
        dtype = getattr(torch, name)
        if dtype not in info.dtypes:
            continue
        records = info.supports_autograd and dtype.is_floating_point
        for count, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=records)):
            if count == most:
                break
            yield sample


def outcomes(info, most=None):
    """{form: [outcome of a sample]}"""
    import torch

    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for form, function in functions_here(info.name).items():
            torch.manual_seed(0)
            found[form] = [o for sample in samples_of(info, most) if (o := run(info, form, function, sample, torch))]
    return found


def operators(names=()):
    """The entries of PyTorch's database that exist here."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [
        info
        for info in op_db
        if functions_here(info.name)
        and (info.name, info.variant_test_name) not in LEFT_OUT_VARIANTS
        and (not names or info.name in names or info.name.rsplit(".")[-1] in names)
    ]


# ---- reports ---------------------------------------------------------------------------------------------------------------------------


def title(info, form):
    return f"{form} ({info.variant_test_name})" if info.variant_test_name else form


def is_done(counts):
    total = sum(counts.values()) - counts["contract"]
    return not counts["different"] and counts["refused"] <= MOST_REFUSED * total


def page(rows):
    """docs/pytorch-samples.md"""
    lines = [
        "# PyTorch's samples",
        "",
        "Which calls of PyTorch's own operator database (`torch.testing._internal.common_methods_invocations`, float32, float64, int64 and bool)",
        "give the same here: values, dtypes, shapes and gradients. Written by `python tools/compare_operator_samples.py --write`.",
        "",
        "Calls that are refused on purpose (`on purpose` below) do not count as refused:",
        "",
        *(f"- {reason}" for reason in BY_CONTRACT.values()),
        "",
        "| function | samples | agree | on purpose | refused | differ |",
        "|---|---|---|---|---|---|",
    ]
    for name, counts, _ in rows:
        cells = [sum(counts.values()), *(counts[kind] for kind in ("agreed", "contract", "refused", "different"))]
        lines.append(f"| `{name}` | {' | '.join(map(str, cells))} |")
    for kind, heading in (("refused", "## What is refused"), ("different", "## What differs")):
        lines += ["", heading, ""]
        before = len(lines)
        for name, _, found in rows:
            reasons = {}
            for outcome in found:
                if outcome.kind == kind:
                    reasons.setdefault(re.sub(r"[\d.]+", "#", outcome.why), []).append(outcome)
            for group in reasons.values():
                why = re.sub(r"\s+", " ", group[0].why)[:160].replace("|", "\\|")
                lines.append(f"- `{name}`, {len(group)} times, such as `{group[0].call[:140]}`: {why}")
        if len(lines) == before:
            lines.append("Nothing.")
    return "\n".join(lines) + "\n"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="operators; all that exist here by default")
    parser.add_argument("--write", action="store_true", help="write docs/pytorch-samples.md")
    parser.add_argument("--most", type=int, help="samples per dtype")
    options = parser.parse_args(arguments)
    rows, missed = [], []
    for info in operators(options.names):
        for form, found in outcomes(info, options.most).items():
            if not found:
                continue
            name, counts = title(info, form), Counter(o.kind for o in found)
            rows.append((name, counts, found))
            if not is_done(counts):
                missed.append(name)
            print(
                f"{name:40} {counts['agreed']:5} agreed {counts['contract']:4} on purpose {counts['refused']:4} refused {counts['different']:4} different",
                flush=True,
            )
            for outcome in found if options.names else []:
                if outcome.kind != "agreed":
                    print(f"    {outcome.kind} {outcome.call[:150]}: {outcome.why[:200]}")
    if options.write:
        PAGE.write_text(page(sorted(rows, key=lambda row: row[0])))
    total = Counter(kind for _, counts, _ in rows for kind in counts.elements())
    print(f"{sum(total.values())} samples: {dict(total)}; not done: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
