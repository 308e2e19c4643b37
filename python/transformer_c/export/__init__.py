"""Modules as ONNX files, for programs that run them without this library.

writing      export_onnx; in this order:
dimensions   which axes may have other lengths; running: runs of the module, with these
tracing      the calls of ops of a run; checks: calls that a graph cannot have
unify        the traces at several lengths as one, whose lengths are symbols; sizes: its numbers, constants: its arrays
shorter      whether that is true at shorter lengths as well
graph        nodes of ONNX; converters: those of each op
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._names import hooks
from ..nn import Module
from .tracing import ExportError

# Arguments of torch.onnx.export that are not here, and what to write instead.
_ADVICE = {
    "args": "it is called example",
    "f": "it is called path",
    "input_names": "inputs have the names of the parameters of forward",
    "output_names": "outputs have the keys of the dict that forward returns",
    "opset_version": "the file is of opset 18",
    "dynamic_shapes": "write dynamic_axes={input: {axis: name}}; without it, the axes that may change are found",
    "export_params": "parameters are always in the file",
    "do_constant_folding": "what depends on no input is always computed beforehand",
    "training": "modules are exported in eval mode",
}


def export_onnx(
    module: Module,
    example: Any,
    path: str | os.PathLike,
    *,
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
    **unknown: Any,
) -> None:
    """Writes a module as an ONNX file (opset 18): what ``forward`` computes in eval mode, with the parameters as they are now.

    The module runs on the example, and on others of other lengths that are made of it, and the ops that it calls are written down: any
    module that computes with Tensors can be exported, including your own. The file has the lengths that may change as named dimensions:
    those at which the module makes the same calls, so normally the batch and the sequence. Longer inputs than the example are tried, and shorter
    ones down to 1: a length by which ``forward`` decides stays as it is in the example, with a warning where that shows only at other
    lengths. Lengths at which ``forward`` raises an error are left out.

    Parameters
    ----------
    module : Module
    example : array_like, or a tuple or dict of them
        The arguments of ``forward``, by position or by name; None, bools and str are options that the file has built in. The inputs of
        the file have the names of the parameters of ``forward``, in order, and the dtypes with which the module computes. Lengths above 1,
        different for axes that are independent, say most.
    path : path-like
        Above 2 GB the parameters go to a file next to it, with ".data" at the end of its name.
    dynamic_axes : dict, optional
        {input: {axis: name}} or {input: [axis, ...]}, the axes that may have other lengths, in place of those that are found. Axes of one
        name change together.

    Raises
    ------
    ImportError
        Without the package onnx, which the extra "onnx" installs.
    ExportError
        When an op has no converter to ONNX, or ``forward`` takes numbers out of Tensors that depend on its inputs, to decide by them or to compute
        outside the library; it names the op.
    TypeError
        For other arguments: those of ``torch.onnx.export`` that are not here, with what to write instead.

    Notes
    -----
    Outputs are called "output", or "output_0", "output_1" for tuples, or have the keys of a dict. What is masked must be finite: a NaN in
    a masked value reaches the result, which it does not here.

    Examples
    --------
    >>> import numpy as np, os, tempfile, transformer_c as tc
    >>> block = tc.EncoderBlock(input_dim=8, num_heads=2, dim_feedforward=16)
    >>> path = os.path.join(tempfile.mkdtemp(), "block.onnx")
    >>> tc.export_onnx(block, np.zeros((2, 5, 8), np.float32), path)
    >>> import onnx
    >>> [i.name for i in onnx.load(path).graph.input]
    ['x']
    """
    if unknown:
        known = {name: f" ({_ADVICE[name]})" if name in _ADVICE else "" for name in unknown}
        raise TypeError(f"export_onnx() does not take {', '.join(name + advice for name, advice in known.items())}")
    if not isinstance(module, Module):
        raise TypeError(f"export_onnx takes a tc.nn.Module, not {type(module).__name__}")
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"path must be a path, such as 'model.onnx', not {path!r:.80} ({type(path).__name__})")
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise ImportError("export_onnx needs the package onnx: pip install 'transformer_c[onnx]'") from None
    from .writing import write

    write(module, example, path, dynamic_axes)


__all__ = ["ExportError", "export_onnx"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
