"""Cells 4 to 8: scaled dot product, multi-head attention, encoder block, encoder."""

from __future__ import annotations

import numpy as np

from ...encoder import EncoderBlock, MultiheadAttention, TransformerEncoder, scaled_dot_product
from .. import uva
from .report import Report, numbers, shape

PRINTED = 6e-5  # half a unit of the last printed digit, and the rounding of float32


def run(report: Report) -> None:
    """Runs them on small arrays."""
    report.head("Cells 4 and 5", "scaled dot product")
    q, k, v = (np.arange(12, dtype=np.float32).reshape(1, 4, 3) / (10 + i) for i in range(3))
    mask = np.tril(np.ones((4, 4)))
    mask[2] = 0
    _, weights = scaled_dot_product(q, k, v, mask=mask)
    report.compare(4, "weights of a query with all keys masked", numbers([0.25] * 4), numbers(weights[0, 2]))
    found = uva.cell_5()
    for name, theirs in uva.CELL_5.items():
        agree = bool(np.abs(np.array(theirs) - found[name]).max() <= PRINTED)
        report.compare(5, f"{name} {found[name].shape}, first row", numbers(theirs[0]), numbers(found[name][0]), agree)

    report.head("Cells 6 to 8", "multi-head attention, encoder block, encoder")
    try:
        MultiheadAttention(16, 16, num_heads=3)
        words = "accepted"
    except ValueError as error:
        words = str(error)
    refused = "Embedding dimension must be 0 modulo number of heads."
    report.compare(6, "16 features for 3 heads", "refused", "refused" if words == refused else words)
    x = np.zeros((2, 5, 16), np.float32)
    block = EncoderBlock(input_dim=16, num_heads=4, dim_feedforward=32)
    # qkv 16*48 + 48, output 16*16 + 16, the two linear layers 16*32 + 32 and 32*16 + 16, two norms of 2*16
    report.compare(7, "parameters of EncoderBlock(16, 4, 32)", "2,224", f"{sum(p.numel() for p in block.parameters()):,}")
    maps = TransformerEncoder(num_layers=3, input_dim=16, num_heads=4, dim_feedforward=32).get_attention_maps(x)
    report.compare(8, "attention maps of 3 layers", "3 x (2, 4, 5, 5)", f"{len(maps)} x {shape(maps[0])}")
