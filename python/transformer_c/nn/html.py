"""A module as HTML, for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .module import Module


def html_tree(module: Module, name: str = "") -> str:
    """The tree of modules with their parameters: each module unfolds; the outermost one, which has no `name`, is open."""
    import html  # slow to import

    total = sum(int(np.prod(p.shape)) for p in module.parameters())
    arguments = "" if module._modules and not module.extra_repr() else f"({html.escape(module.extra_repr())})"
    title = f"{f'({html.escape(name)}) ' if name else ''}<b>{html.escape(type(module).__name__)}</b>{arguments}: {total:,} parameters"
    rows = "".join(
        f"<tr><td style='text-align:left'><code>{html.escape(key)}</code></td><td>{tuple(p.shape)}</td><td>{p.dtype.name}</td>"
        f"<td>{int(np.prod(p.shape)):,}</td></tr>"
        for key, p in module.named_parameters(recurse=False)
    )
    table = f"<table><tr><th>parameter</th><th>shape</th><th>dtype</th><th>count</th></tr>{rows}</table>" if rows else ""
    below = "".join(child._repr_html_(key) for key, child in module._places())
    if not table and not below:
        return f"<div style='margin-left:1em'>{title.rsplit(':', 1)[0]}</div>"
    start = "<details style='margin-left:1em'>" if name else "<details open>"
    return f"{start}<summary>{title}</summary>{table}{below}</details>"


__all__ = ["html_tree"]
