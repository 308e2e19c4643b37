"""Shared by the workloads: data, the two libraries' no-gradient modes, and counts of FLOP and bytes."""

import numpy as np


def normal(seed, *shape):
    """float32 standard normals, the same for both sides."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def enter(context):
    """Enters a context for the rest of the process: entering it is not timed, and nothing else runs in this process."""
    context.__enter__()
    _entered.append(context)  # some exit when they are garbage-collected


_entered = []


def linear_flops(rows, inputs, outputs):
    return 2 * rows * inputs * outputs


def attention_flops(batch, heads, queries, keys, head_dim, causal=False):
    """q k^T and the product with the values; half of it when causal."""
    return 4 * batch * heads * queries * keys * head_dim / (2 if causal else 1)


def mha_flops(batch, length, size, heads):
    rows = batch * length
    return linear_flops(rows, size, 4 * size) + attention_flops(batch, heads, length, length, size // heads)


def block_flops(batch, length, size, heads, hidden):
    return mha_flops(batch, length, size, heads) + 2 * linear_flops(batch * length, size, hidden)


def float32_bytes(*sizes):
    return 4 * sum(sizes)
