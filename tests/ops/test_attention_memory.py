"""Memory and time of attention: nothing of the size of the map, and nothing for masked tiles."""

import statistics
import subprocess
import sys
import time

import numpy as np
import pytest
from transformer_c import _core
from transformer_c.functional import scaled_dot_product_attention

MIB = 1 << 20

# Prints the most memory in use above what was there before, once as the allocator counts and once as the system does (RSS).
CHILD = """
import resource, sys
import numpy as np
from transformer_c import _core
from transformer_c.functional import scaled_dot_product_attention

T, train, is_causal = int(sys.argv[1]), sys.argv[2] == "train", sys.argv[3] == "causal"
x = np.random.default_rng(0).standard_normal((3, 1, 8, T, 64), dtype=np.float32)
inputs = [_core.as_tensor(t) for t in x]
for t in inputs:
    t.requires_grad = train
scaled_dot_product_attention(*(t.detach()[:, :, :64] for t in inputs))  # libraries loaded, threads started
_core.memory_reset_peak()
held, resident = _core.memory_stats()["in_use"], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
values = scaled_dot_product_attention(*inputs, is_causal=is_causal)
results = [values]
if train:
    values.sum().backward()
    results += [t.grad for t in inputs]
outputs = sum(t.nbytes for t in results)
print(_core.memory_stats()["peak_in_use"] - held - outputs, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - resident - outputs)
"""


@pytest.mark.unsanitized
@pytest.mark.parametrize(
    ("length", "mode", "kind", "limit"), [(8192, "forward", "full", 64), (4096, "train", "full", 160), (4096, "train", "causal", 160)]
)
def test_peak_memory(length, mode, kind, limit):
    """B 1, H 8, D 64, float32: the map alone would be 2048 MiB at 8192 positions and 512 MiB at 4096."""
    done = subprocess.run([sys.executable, "-c", CHILD, str(length), mode, kind], capture_output=True, text=True, timeout=300, check=True)
    counted, resident = map(int, done.stdout.split())
    print(f"{mode}, {kind}, {length} positions: {counted / MIB:.1f} MiB by the allocator, {resident / MIB:.1f} MiB resident, limit {limit}")
    assert 0 < counted < limit * MIB
    assert resident < limit * MIB


@pytest.mark.unsanitized
def test_the_map_is_what_costs():
    """When it is requested, it is allocated: the measurement above would see it."""
    x = np.zeros((1, 8, 1024, 64), np.float32)
    _core.memory_reset_peak()
    held = _core.memory_stats()["in_use"]
    scaled_dot_product_attention(x, x, x, return_attention=True)
    assert _core.memory_stats()["peak_in_use"] - held > 8 * 1024 * 1024 * 4


def seconds(f):
    """This thread's processor time: other threads do not count."""
    start = time.thread_time()
    f()
    return time.thread_time() - start


QUARTER = np.arange(2048) < 512
LESS_WORK = {  # a half or a quarter of the scores, by every way to say so
    "causal": {"is_causal": True},
    "window": {"window": (256, 0)},
    "lengths": {"key_lengths": [512]},
    "boolean padding": {"attn_mask": QUARTER},
    "boolean mask": {"attn_mask": np.repeat(QUARTER[None], 2048, 0)},
    "floating mask": {"attn_mask": np.where(np.repeat(QUARTER[None], 2048, 0), 0, -np.inf).astype(np.float32)},
    "bias": {"bias": np.where(QUARTER, 0, -np.inf).astype(np.float32)},
}


@pytest.mark.alone
@pytest.mark.unsanitized
@pytest.mark.parametrize("train", [False, True], ids=["forward", "forward and backward"])
@pytest.mark.parametrize("way", LESS_WORK)
def test_masked_tiles_are_skipped(way, train):
    """Causal attention at 2048 positions takes at most 0.6 of the full one's time. A mask or bias must be read, too: 0.8, with three
    quarters of it empty.

    On a busy machine both are slowed alike when they take turns, and the least of several is what neither was slowed in; one that is
    never quiet gets more turns.
    """
    before = _core.get_num_threads()
    _core.set_num_threads(1)
    inputs = [_core.as_tensor(t) for t in np.random.default_rng(0).standard_normal((3, 1, 1, 2048, 64), dtype=np.float32)]
    for t in inputs:
        t.requires_grad = train
    calls, limit = {True: LESS_WORK[way], False: {}}, 0.8 if "mask" in way or way == "bias" else 0.6

    def run(less):
        values = scaled_dot_product_attention(*inputs, **calls[less])
        if train:
            values.sum().backward()

    try:
        times = {True: [], False: []}
        for _ in range(4):
            for _ in range(5):
                for less in times:
                    times[less].append(seconds(lambda: run(less)))
            ratios = [a / b for a, b in zip(times[True], times[False], strict=True)]
            ratio = min(statistics.median(ratios), min(times[True]) / min(times[False]))
            if ratio <= limit:
                break
    finally:
        _core.set_num_threads(before)
    print(f"{way} / full: {ratio:.3f}")
    assert ratio <= limit
