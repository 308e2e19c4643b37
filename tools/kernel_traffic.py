"""What the kernels over rows and elements move, beside the least that they could: by the counts of tests/gpu_emulation/counts.json.

    python tools/kernel_traffic.py            # the table of docs/gpu/predicted-time.md, which tools/predict_kernels.py --write puts there

The least is every operand of a formula once, read or written. `from memory` is what is distinct in a launch, which DRAM moves if the cache holds
what is read again; `to the multiprocessors` are the sectors of all requests, of which L1 serves some (weights that each row reads). Requests are
compared with those that the least would take in vectors of 16 bytes by all lanes of a warp. The limits are near what was counted when they were
written; a test fails when a kernel passes one.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclasses.dataclass(frozen=True)
class Row:
    """case and the beginning of the kernel's name: in counts.json. operands: how many arrays of the case's N x C elements are read or written, or
    the bytes of all of them where that is a function of N and C. The limits are times the least."""

    name: str
    case: str
    kernel: str
    operands: float
    memory: float
    sectors: float
    requests: float


# fmt: off
ROWS = [
    Row("add + layer norm", "add_layer_norm float32 1024x768", "layer_norm_forward", 4, 1.01, 1.52, 1.6),
    Row("layer norm", "layer_norm float16 1024x1024", "layer_norm_forward", 2, 1.01, 2.03, 2.3),
    Row("layer norm, all gradients", "add_layer_norm float32 1024x768", "norm_gradients", 3, 1.09, 1.77, 2.2),
    Row("add + layer norm", "add_layer_norm float32 2048x32", "layer_norm_forward", 4, 1.03, 1.17, 2.1),
    Row("layer norm, all gradients", "add_layer_norm float32 2048x32", "norm_gradients", 3, 1.05, 1.25, 2.5),
    Row("dropout + add + layer norm", "dropout_layer_norm float32 1024x768", "dropout_layer_norm", 4, 1.01, 1.52, 1.6),
    Row("its gradients", "dropout_layer_norm float32 1024x768", "dropout_norm_gradients", 4, 1.07, 1.6, 1.9),
    Row("dropout + add + layer norm", "dropout_layer_norm bfloat16 1024x768", "dropout_layer_norm", 4, 1.01, 1.52, 1.7),
    Row("dropout + add + layer norm", "dropout_layer_norm float32 2048x32", "dropout_layer_norm", 4, 1.03, 1.17, 2.1),
    Row("its gradients", "dropout_layer_norm float32 2048x32", "dropout_norm_gradients", 4, 1.05, 1.2, 2.1),
    Row("RMS norm", "rms_norm float32 16x256", "rms_norm_forward", 2, 1.04, 1.55, 1.8),
    Row("softmax and cross-entropy", "cross_entropy float32 8x30522", "cross_entropy_kernel", 1, 1.01, 1.2, 4.1),
    Row("its gradient", "cross_entropy float32 8x30522", "cross_entropy_backward", 2, 1.01, 1.2, 4.1),
    Row("softmax and cross-entropy", "cross_entropy float32 4x1000", "cross_entropy_kernel", 1, 1.01, 1.05, 1.7),
    Row("its gradient", "cross_entropy float32 4x1000", "cross_entropy_backward", 2, 1.01, 1.05, 1.3),
    Row("AdamW", "optimizer float32 AdamWx64x1024", "adam_kernel", 7, 1.01, 1.01, 1.01),
    Row("RMSprop", "optimizer float32 RMSpropx1000", "rmsprop_kernel", 5, 1.01, 1.01, 1.1),
    Row("SGD", "optimizer float32 SGDx1000", "sgd_kernel", 3, 1.01, 1.01, 1.1),
    Row("norm of gradients", "optimizer float32 AdamWx64x1024", "norm_kernel", 1, 1.01, 1.01, 1.04),
    Row("their clipping", "optimizer float32 AdamWx64x1024", "scale_kernel", 2, 1.01, 1.01, 1.2),
    Row("dropout", "dropout float32 4096", "dropout_vectors_kernel", 4, 1.01, 1.01, 1.01),
    # 2 is TC_BINARY_mul, 22 TC_UNARY_gelu: their places in binary.def and unary.def.
    Row("x * y", "binary float32 64x1024", "own_flat_kernel<float, BinaryForward, 2, false>", 3, 1.01, 1.01, 1.01),
    Row("GELU", "unary float32 65536", "own_flat_kernel<float, UnaryForward, 22, false>", 2, 1.01, 1.01, 1.01),
    Row("x + bias", "bias float32 32x128", "elementwise_kernel", 2, 1.04, 1.51, 6.1),
    Row("squared error", "losses float32 32x128", "loss_kernel", 3, 1.01, 1.01, 4.1),
    Row("softmax", "softmax float32 16x100", "softmax_rows_kernel", 2, 1.01, 1.3, 2.3),
    Row("its gradient", "softmax float32 16x100", "softmax_rows_backward_kernel", 3, 1.01, 1.3, 2.3),
]
# fmt: on


def shape_of(case: str) -> tuple[int, int]:
    *_, N, C = [1, *(int(size) for size in case.split()[-1].split("x") if size.isdigit())]
    return N, C


def ratios(row: Row) -> tuple[float, float, float]:
    """Bytes from memory, bytes to the multiprocessors and requests, as multiples of the least."""
    saved = json.loads((ROOT / "tests" / "gpu_emulation" / "counts.json").read_text())
    kernels = saved["counts"][row.case]
    (name,) = [kernel for kernel in kernels if kernel.startswith(row.kernel)]
    counts, (N, C) = dict(zip(saved["columns"], kernels[name], strict=True)), shape_of(row.case)
    least = row.operands * N * C * BYTES[row.case.split()[1]]
    moved, sectors = counts["load_bytes"] + counts["store_bytes"], counts["load_sectors"] + counts["store_sectors"]
    return moved / least, 32 * sectors / least, counts["requests"] / (least / (16 * 32))


def table() -> str:
    lines = [
        "| kernel | shape | arrays moved once, at least | from memory | to the multiprocessors | requests, to those of 16 bytes a lane |\n",
        "|---|---|---:|---:|---:|---:|\n",
    ]
    for row in ROWS:
        N, C = shape_of(row.case)
        dtype = row.case.split()[1]
        name = row.name if dtype == "float32" else f"{row.name}, {dtype}"
        cells = [name, f"{N} x {C}" if N > 1 else f"{C}", f"{row.operands:g}", *(f"{ratio:.2f}" for ratio in ratios(row))]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


if __name__ == "__main__":
    print(table(), end="")
