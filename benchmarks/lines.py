"""Along the lines of one axis: elements by an index, running sums, bounds; forward, nothing recorded."""

import numpy as np

from .common import enter, float32_bytes, normal
from .harness import Workload

SHAPE = (4096, 256)
ELEMENTS = SHAPE[0] * SHAPE[1]


def _case(library, function):
    """`function(module, x, index)`, with an index per element along the last axis."""

    def build():
        module = __import__(library)
        if library == "torch":
            enter(module.inference_mode())
        x = module.tensor(normal(0, *SHAPE))
        index = module.tensor(np.random.default_rng(1).integers(0, SHAPE[1], SHAPE))
        return lambda: function(module, x, index)

    return build


def _workload(name, function, values):
    """`values`: how many float32 values per element are read and written; an index is two."""
    return Workload(name, _case("transformer_c", function), _case("torch", function), bytes=float32_bytes(values * ELEMENTS))


WORKLOADS = [
    _workload("gather_rows", lambda module, x, index: module.gather(x, 1, index), 4),
    _workload("scatter_add_rows", lambda module, x, index: module.scatter_add(x, 1, index, x), 5),
    _workload("cumsum_rows", lambda module, x, index: module.cumsum(x, 1), 2),
    _workload("cumsum_columns", lambda module, x, index: module.cumsum(x, 0), 2),
    _workload("clamp", lambda module, x, index: module.clamp(x, -0.5, 0.5), 2),
]
