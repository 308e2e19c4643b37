"""PyTorch's samples of modules: built in both libraries, with PyTorch's state, called in train and eval mode."""

import re
import warnings
from types import BuiltinFunctionType, FunctionType

import transformer_c as tc

from .comparing import Converter, Outcome, compare_gradients, compare_results, described_call, flat, named, refused

DTYPES = ("float32", "float64")
# What PyTorch alone refuses, by its message: why.
ACCEPTED = {r"expected scalar type \w+ but found": "a weight of another dtype is cast, as in other modules"}


class ModuleConverter(Converter):
    """Layers and functions among the arguments of constructors, too."""

    def both(self, value):
        if isinstance(value, self.torch.nn.TransformerEncoderLayer):
            return value, encoder_layer(value)
        if isinstance(value, (FunctionType, BuiltinFunctionType)):
            return value, getattr(tc.functional, value.__name__)
        return super().both(value)


def encoder_layer(theirs):
    return tc.nn.TransformerEncoderLayer(
        theirs.self_attn.embed_dim,
        theirs.self_attn.num_heads,
        theirs.linear1.out_features,
        theirs.dropout.p,
        getattr(tc.functional, theirs.activation.__name__),
        batch_first=theirs.self_attn.batch_first,
        norm_first=theirs.norm_first,
        bias=theirs.linear1.bias is not None,
    )


def arguments_of(sample, converter):
    """PyTorch's (constructor, forward) arguments and ours, (args, kwargs) each, and the call in words."""
    given = [sample.constructor_input, sample.forward_input]
    pairs = [converter.both((x.args, x.kwargs) if x else ((), {})) for x in given]
    words = "".join(described_call(x.args, x.kwargs, converter.torch) for x in given if x)
    return [theirs for theirs, _ in pairs], [ours for _, ours in pairs], words


def run(info, sample, training, dtype):
    """The outcome of one sample."""
    import torch

    converter = ModuleConverter(torch)
    theirs_given, ours_given, call = arguments_of(sample, converter)
    (args, kwargs), (forward_args, forward_kwargs) = theirs_given
    theirs = info.module_cls(*args, **kwargs).to(getattr(torch, dtype)).train(training)
    expected = theirs(*forward_args, **forward_kwargs)
    (args, kwargs), (forward_args, forward_kwargs) = ours_given
    try:
        ours = getattr(tc.nn, info.module_cls.__name__)(*args, **kwargs).to(dtype).train(training)
        ours.load_state_dict(theirs.state_dict())
        result = ours(*forward_args, **forward_kwargs)
    except Exception as error:
        return refused(named(error), call)
    if list(ours.state_dict()) != list(theirs.state_dict()):
        return Outcome("different", "the keys of the state dict", call)
    converter.leaves += zip(theirs.parameters(), ours.parameters(), strict=True)
    try:
        a, b = flat(result), flat(expected)
        found = compare_results(a, b, converter) or compare_gradients(a, b, converter)
    except Exception as error:
        return Outcome("different", named(error), call)
    return Outcome("different" if found else "agreed", found or "", call)


def error_of(module, arguments):
    """What building a module and calling it raises, or None."""
    (args, kwargs), (forward_args, forward_kwargs) = arguments
    try:
        module(*args, **kwargs)(*forward_args, **forward_kwargs)
    except (ValueError, TypeError, IndexError, RuntimeError) as error:
        return error
    return None


def run_error(info, sample):
    """The outcome of a sample that PyTorch refuses, or None where it does not."""
    import torch

    theirs_given, ours_given, call = arguments_of(sample.module_error_input, ModuleConverter(torch))
    expected = error_of(info.module_cls, theirs_given)
    if expected is None or any(re.search(pattern, str(expected)) for pattern in ACCEPTED):
        return None
    if error_of(getattr(tc.nn, info.module_cls.__name__), ours_given) is None:
        return Outcome("different", f"accepted; PyTorch: {named(expected)}", call)
    return Outcome("agreed", "", call)


def outcomes(info, most=None):
    import torch

    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in DTYPES:
            for training in (True, False):
                torch.manual_seed(0)
                given = dict(device="cpu", dtype=getattr(torch, dtype), training=training)
                found += [run(info, s, training, dtype) for s in info.module_inputs_func(info, requires_grad=True, **given)[:most]]
                if info.module_error_inputs_func:
                    errors = info.module_error_inputs_func(info, requires_grad=False, **given)
                    found += [outcome for s in errors[:most] if (outcome := run_error(info, s))]
    return found


def rows(names=(), most=None):
    """(title, outcomes) of each module that exists here."""
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        name = info.module_cls.__name__
        if hasattr(tc.nn, name) and (not names or {name, f"nn.{name}"} & set(names)):
            yield f"nn.{name}", outcomes(info, most)
