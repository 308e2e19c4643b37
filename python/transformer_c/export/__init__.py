"""Modules as ONNX files, for programs that run them without this library."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..nn import Module
from .tracing import ExportError


def export_onnx(
    module: Module, example: Any, path: str | os.PathLike, *, dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None
) -> None:
    """Writes a module as an ONNX file (opset 18): what ``forward`` computes in eval mode, with the parameters as they are now.

    The module runs on the example, and on others of other lengths that are made of it, and the ops that it calls are written down: any
    module that computes with Tensors can be exported, including your own. The file has the lengths that may change as named dimensions:
    those at which the module makes the same calls, so normally the batch and the sequence.

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
        When an op has no form in ONNX, or ``forward`` decides by the values of its inputs; it names the op.

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
    if not isinstance(module, Module):
        raise TypeError(f"export_onnx takes a tc.nn.Module, not {type(module).__name__}")
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise ImportError("export_onnx needs the package onnx: pip install 'transformer_c[onnx]'") from None
    from .writing import write

    write(module, example, path, dynamic_axes)


__all__ = ["ExportError", "export_onnx"]
