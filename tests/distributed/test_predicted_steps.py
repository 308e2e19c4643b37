"""The predicted steps of docs/scale.md are those of its formulas."""

import math
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
HEAD = "| ranks | ring, as measured here | tree, as measured here | ring, during | ring, network | ring, network, during |"
COMPUTING, MEGABYTES, BEFORE_THE_END, BUCKETS = 136, 12.6, 80, 13  # ms, gradients, ms of a backward after its first bucket
HERE, NETWORK = (0.05, 0.25), (0.005, 10)  # ms a message, GB/s


def exchange(n, network, buckets=1, tree=False):
    latency, bandwidth = network
    return 2 * buckets * latency * (math.log2(n) if tree else n - 1) + 2 * (n - 1) / n * MEGABYTES / bandwidth


def during(n, network):
    e = exchange(n, network, BUCKETS)
    return max(e / BUCKETS, e - BEFORE_THE_END)


@pytest.mark.parametrize("line", PAGE.partition(HEAD)[2].strip().splitlines()[1:4])
def test_rows(line):
    ranks, *found = (cell.strip().replace(",", "") for cell in line.strip("|").split("|"))
    n = int(ranks)
    exchanges = exchange(n, HERE), exchange(n, HERE, tree=True), during(n, HERE), exchange(n, NETWORK), during(n, NETWORK)
    assert found == [f"{COMPUTING + e:.0f} ms" for e in exchanges]
