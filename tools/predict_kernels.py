"""The times of the main kernels on an A100, predicted by tools/gpu_time.py. Not measured: predicted.

    python tools/predict_kernels.py            # the table of docs/gpu.md
    python tools/predict_kernels.py --write    # puts it there

Counts are those of tests/gpu_emulation/counts.json: of some blocks of a launch, which the shape of the row has `times` as many of. Registers and
shared memory are ptxas's for sm_80 (benchmarks/results/kernels.json). Multiply-adds are those of the formulas, each operation of a row of a norm
or a loss counting as one; the product's are those of whole tiles.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools"))
from gpu_time import A100, Block, Gpu, Predicted, predict  # noqa: E402

PAGE = ROOT / "docs" / "gpu.md"
BEGIN, END = "<!-- python tools/predict_kernels.py --write -->\n", "<!-- end -->\n"


@dataclasses.dataclass(frozen=True)
class Row:
    """case: in counts.json; kernel: how its name begins there; multiply_adds: of a launch of the case. operand_bytes: of the row's shape, where
    they are not `times` those of the case."""

    name: str
    shape: str
    case: str
    kernel: str
    times: int
    multiply_adds: float
    operand_bytes: float | None = None


def product(M: int, N: int, K: int) -> Row:
    tiles = -(-M // 64) * -(-N // 64)
    return Row(
        "product", f"{M} x {K} by {K} x {N}", f"product float32 64x64x{K}", "gemm_kernel", tiles, 64 * 64 * K, 4 * (M * K + K * N + M * N)
    )


def attention(case: str, times: int) -> list[Row]:
    B, H, T, d = map(int, case.split("x"))
    shape, pairs = f"{times * B * H} heads of {T} x {d}", B * H * T * T * d
    names = {"attention": ("attention_forward", 2), "attention, backward (dQ, dK, dV)": ("attention_gradient", 9 / 3)}
    return [Row(name, shape, f"attention float32 {case}", kernel, times, n * pairs) for name, (kernel, n) in names.items()]


def rows_of(case: str, times: int, kernels: dict[str, tuple[str, int]]) -> list[Row]:
    """Kernels by the row's name, with operations per element. Sizes end in N x C."""
    N, C = map(int, case.split()[-1].removeprefix("AdamW").strip("x").split("x"))
    return [Row(name, f"{times * N} x {C}", case, kernel, times, operations * N * C) for name, (kernel, operations) in kernels.items()]


NORM = {
    "add + layer norm": ("layer_norm_forward", 6),
    "layer norm, backward (dx)": ("norm_input_gradient", 8),
    "layer norm, backward (dgamma, dbeta)": ("norm_weight_gradient", 4),
}
LOSS = {"softmax and cross-entropy": ("cross_entropy_kernel", 3), "softmax and cross-entropy, backward": ("cross_entropy_backward", 3)}
ROWS = [
    product(2048, 96, 32),
    product(4096, 768, 768),
    product(4096, 3072, 768),
    *attention("2x4x16x8", 64),
    *attention("1x1x128x64", 32 * 12),
    *attention("1x1x512x64", 8 * 12),
    *rows_of("add_layer_norm float32 2048x32", 1, NORM),
    *rows_of("add_layer_norm float32 1024x768", 4, NORM),
    *rows_of("binary float32 64x1024", 1, {"x * y": ("flat_kernel<float, BinaryForward>", 1)}),
    *rows_of("binary float32 64x1024", 192, {"x * y": ("flat_kernel<float, BinaryForward>", 1)}),
    Row("GELU", "65536", "unary float32 65536", "flat_kernel<float, UnaryForward>", 1, 3 * 65536),
    Row("GELU", f"{192 * 65536}", "unary float32 65536", "flat_kernel<float, UnaryForward>", 192, 3 * 65536),
    *rows_of("optimizer float32 AdamWx64x1024", 1, {"AdamW": ("adam_kernel", 12)}),
    *rows_of("optimizer float32 AdamWx64x1024", 36, {"AdamW": ("adam_kernel", 12)}),
    *rows_of("cross_entropy float32 2048x10", 1, LOSS),
    *rows_of("cross_entropy float32 8x30522", 64, LOSS),
]


def counted(row: Row) -> tuple[str, dict[str, int]]:
    """The kernel, and the columns of its row in counts.json."""
    saved = json.loads((ROOT / "tests" / "gpu_emulation" / "counts.json").read_text())
    kernels = saved["counts"][row.case]
    (name,) = [kernel for kernel in kernels if kernel.startswith(row.kernel)]
    return name, dict(zip(saved["columns"], kernels[name], strict=True))


def resources(kernel: str) -> dict[str, int]:
    """ptxas's of the kernel for sm_80."""
    measured = json.loads((ROOT / "benchmarks" / "results" / "kernels.json").read_text())["kernels"]
    (found,) = [row for row in measured if row["target"] == "sm_80" and _plain(row["kernel"]) == _plain(kernel)]
    return found


def _plain(kernel: str) -> str:
    return kernel.replace("tc::", "").replace("> >", ">>")


def time_of(row: Row, gpu: Gpu) -> tuple[Predicted, int, dict[str, float]]:
    """Of all launches of the row's kernel together, their blocks, and their counts."""
    kernel, counts = counted(row)
    needs, launches, blocks = resources(kernel), counts["launches"], counts["blocks"] // counts["launches"]
    per_block = {name: count / counts["blocks"] for name, count in counts.items()}
    block = Block(counts["threads"] // counts["blocks"], needs["registers"], needs["shared_bytes"], row.multiply_adds / blocks, per_block)
    moved = row.operand_bytes or row.times * (counts["load_bytes"] + counts["store_bytes"]) / launches
    one = predict(gpu, block, row.times * blocks, moved)
    total = {"MiB": launches * moved / 2**20, "multiply_adds": launches * row.times * row.multiply_adds}
    total |= {name: row.times * counts[name] for name in ("requests", "shared_requests", "wavefronts", "special")}
    return Predicted(launches * one.seconds, one.bound), launches * row.times * blocks, total


def table(gpu: Gpu = A100) -> str:
    def short(number: float) -> str:
        for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
            if number >= size:
                return f"{number / size:.3g}{unit}"
        return f"{number:.3g}"

    lines = [
        f"| kernel, float32 | shape | blocks | multiply-adds | requests, global | and shared | special | MiB | predicted, {gpu.name} | bound by |\n",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---|\n",
    ]
    for row in ROWS:
        time, blocks, total = time_of(row, gpu)
        counts = [short(total[name]) for name in ("multiply_adds", "requests", "shared_requests", "special")]
        cells = [
            row.name,
            row.shape,
            f"{blocks}",
            *counts,
            f"{total['MiB']:.3g}",
            f"{1e6 * time.seconds:{'.3g' if time.seconds < 1e-4 else '.0f'}} us",
            time.bound,
        ]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def page_with(text: str) -> str:
    """docs/gpu.md with this as its table."""
    found, count = re.subn(f"(?<={re.escape(BEGIN)}).*?(?={re.escape(END)})", lambda _: text, PAGE.read_text(), flags=re.S)
    if count != 1:
        raise ValueError(f"{PAGE} has {count} places for the table")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into docs/gpu.md")
    if parser.parse_args().write:
        PAGE.write_text(page_with(table()))
    else:
        print(table(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
