"""A model of the time of a step on n ranks, and the tables of docs/scale.md: `python -m benchmarks.scale [FILE]`.

FILE is what `mpiexec -n 2 python -m benchmarks.ranks --json FILE` wrote, benchmarks/results/ranks.json without one. docs/scale.md has the formulas.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

FILE = Path(__file__).parent / "results" / "ranks.json"
NETWORK = {"latency": 0.005, "bandwidth": 10.0}  # 5 us a message, 10 GB/s: assumed
RANKS = (8, 64, 1024)


@dataclass(frozen=True)
class Model:
    """Times in ms, sizes in MB, bandwidths in GB/s, which are MB per ms."""

    compute: float  # c: a step of one rank
    fixed: float  # f: what an exchange takes without bytes, mostly Python
    gradients: float  # G
    latency: float  # a: of a message
    bandwidth: float  # b: of an exchange, copies and additions included
    copy: float  # m: of the gradients once, in memory
    buckets: int  # k
    left: int  # l: buckets of the layer whose gradients become final last
    window: float  # w: from the first full bucket to the end of the backward

    @classmethod
    def of(cls, found: dict) -> Model:
        """From what benchmarks.ranks measured."""
        steps, n, during = found["steps"], found["ranks"], found["during"]["computes"]
        compute, ddp = (steps["computes"][name]["ms"] for name in ("each by itself", "ddp"))
        fixed = steps["is tiny"]["ddp"]["ms"] - steps["is tiny"]["each by itself"]["ms"]
        gradients, latency = found["gradients"] / 1e6, found["us"]["message"] / 1e3
        bandwidth = 2 * (n - 1) / n * gradients / (ddp - compute - fixed - 2 * latency * (n - 1))
        left, copy = math.ceil(during["buckets"] / found["layers"]), found["us"]["copy of the gradients"] / 1e3
        return cls(compute, fixed, gradients, latency, bandwidth, copy, during["buckets"], left, during["window ms"])

    def over(self, latency: float, bandwidth: float) -> Model:
        """With other messages."""
        return replace(self, latency=latency, bandwidth=bandwidth)

    def bytes_sent(self, n: int) -> float:
        """MB that each rank sends in a step."""
        return 2 * (n - 1) / n * self.gradients

    def exchange(self, n: int, buckets: int = 1, is_tree: bool = False) -> float:
        """e: the time of the messages of a step."""
        return 2 * buckets * self.latency * (math.log2(n) if is_tree else n - 1) + self.bytes_sent(n) / self.bandwidth

    def step(self, n: int, is_tree: bool = False) -> float:
        """With the exchange after the backward."""
        return self.compute + (self.fixed + self.exchange(n, is_tree=is_tree) if n > 1 else 0.0)

    def step_during(self, n: int) -> float:
        """With the exchange during the backward, for which a core is left."""
        e = self.exchange(n, self.buckets)
        return self.compute + self.fixed + 2 * self.copy + max(self.left / self.buckets * e, e - self.window)

    def constants(self) -> str:
        """As docs/scale.md has them."""
        return (
            f"c = {self.compute:.1f} ms, f = {self.fixed:.2f} ms, G = {self.gradients:.1f} MB, a = {1e3 * self.latency:.1f} us, "
            f"b = {self.bandwidth:.2f} GB/s; k = {self.buckets}, l = {self.left}, w = {self.window:.0f} ms, m = {self.copy:.1f} ms"
        )


def table(head: list[str], rows: list[list[str]]) -> str:
    """In Markdown."""
    first, *others = ["| " + " | ".join(row) + " |" for row in [head, *rows]]
    return "\n".join([first, "|---" * len(head) + "|", *others])


def measured(found: dict) -> str:
    """What benchmarks.ranks measured of steps."""
    rows = [
        [
            f"{kind}: {name}",
            *(f"{row[key]:.2f}" if row[key] < 1 else f"{row[key]:.1f}" for key in ("ms", "processor ms")),
            f"{row['of ddp']:.2f}",
        ]
        for kind, of_kind in found["steps"].items()
        for name, row in of_kind.items()
    ]
    return table(["a step that ...", "ms", "ms of a processor", 'of "ddp"'], rows)


def sums(found: dict) -> str:
    """What it measured of messages and sums."""
    return table(["", "us"], [[name, f"{took:,.0f}" if took >= 10 else f"{took:.1f}"] for name, took in found["us"].items()])


def left(found: dict) -> str:
    """What the traces say of the exchange during the backward."""
    parts = [f"{row['left']:g} of {row['buckets']} in the step that {kind}" for kind, row in found["during"].items()]
    return f"Buckets that were left when the backward ended, median of all turns: {', '.join(parts)}."


def predicted(model: Model) -> str:
    """Steps of many ranks."""
    network = model.over(**NETWORK)
    head = ["ranks", "ring, as measured here", "tree, as measured here", "ring, during", "ring, network", "ring, network, during"]
    rows = [[model.step(n), model.step(n, is_tree=True), model.step_during(n), network.step(n), network.step_during(n)] for n in RANKS]
    return table(head, [[f"{n:,}", *(f"{ms:,.0f} ms" for ms in row)] for n, row in zip(RANKS, rows, strict=True)])


def main() -> None:
    """Prints what docs/scale.md contains."""
    found = json.loads(Path(sys.argv[1] if len(sys.argv) > 1 else FILE).read_text())
    model = Model.of(found)
    print(sums(found), measured(found), left(found), model.constants(), predicted(model), sep="\n\n")


if __name__ == "__main__":
    main()
