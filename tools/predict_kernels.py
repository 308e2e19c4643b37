"""The times of the main kernels on an A100, predicted by tools/gpu_time.py. Not measured: predicted. And what the same model says of GPUs on which
others measured kernels that do the same as some of these.

    python tools/predict_kernels.py            # the tables of docs/gpu/predicted-time.md
    python tools/predict_kernels.py --write    # puts them there

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
import kernel_traffic  # noqa: E402
from gpu_time import A100, A100_80, H100, RTX_3090, V100, Block, Gpu, Predicted, predict  # noqa: E402

PAGE = ROOT / "docs" / "gpu" / "predicted-time.md"
BEGIN, END = "<!-- python tools/predict_kernels.py --write -->\n", "<!-- end -->\n"
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# By the tile of the product: three stages of both operands, of 16 k in gemm_float.cu, and of 128 or 64 bytes of each row in gemm_tensor.cuh.
FLOAT_SHARED = {tile: 3 * 2 * 16 * (tile + 4) * 4 for tile in (32, 64, 128)}
TENSOR_SHARED = {64: 3 * 2 * 64 * 128, 128: 3 * 2 * 128 * 64}


@dataclasses.dataclass(frozen=True)
class Row:
    """case: in counts.json; kernel: how its name begins there; multiply_adds: of a launch of the case. operand_bytes: of the row's shape, where
    they are not `times` those of the case. Multiply-adds of a kernel for tensor cores are theirs."""

    name: str
    shape: str
    case: str
    kernel: str
    times: float
    multiply_adds: float
    operand_bytes: float | None = None
    dynamic_bytes: int = 0  # of shared memory
    on_lanes: float = 0  # operations of float32 lanes beside those of tensor cores


def product(M: int, N: int, K: int, dtype: str = "float32") -> Row:
    tile = 128 if A100.multiprocessors <= -(-M // 128) * -(-N // 128) else 64
    name, kernel, shared = "product", "gemm_float_kernel", FLOAT_SHARED[tile]
    if dtype != "float32":
        name, kernel, tile, shared = f"product, {dtype}", "gemm_tensor_kernel", 128, TENSOR_SHARED[128]
    tiles, bytes_moved = -(-M // tile) * -(-N // tile), BYTES[dtype] * (M * K + K * N + M * N)
    case = f"product {dtype} {tile}x{tile}x{K}"
    return Row(name, f"{M} x {K} by {K} x {N}", case, kernel, tiles, tile * tile * K, bytes_moved, shared)


def tf32_product(M: int, N: int, K: int, setting: str) -> Row:
    """Of float32 by tf32, where "medium" allows it, or by two of them, where "high" does; conversions are not counted."""
    name, kernel, times = ("product, tf32", "tf32", 1) if setting == "medium" else ("product, tf32 x 3", "tf32_x3", 3)
    row = dataclasses.replace(product(M, N, K), name=name, case=f"{setting}_product float32 128x128x{K}")
    row = dataclasses.replace(row, kernel=f"gemm_tensor_kernel<{kernel}, 128, ", dynamic_bytes=TENSOR_SHARED[128])
    return dataclasses.replace(row, multiply_adds=times * row.multiply_adds)


def weight_gradient(dtype: str, case: str, N: int, M: int) -> Row:
    """dW (N,M), in chunks of 256 rows; of the case's tiles it has `times` as many."""
    rows, own_n, own_m = map(int, case.split("x"))
    chunks = rows // 256
    large = M > 64 < N and -(-N // 128) * -(-M // 128) * chunks >= A100.multiprocessors
    tile = 128 if large else 64 if M > 32 < N or dtype != "float32" else 32
    tiles, own_tiles = (-(-n // tile) * -(-m // tile) for n, m in ((N, M), (own_n, own_m)))
    name = "dW of a linear" if dtype == "float32" else f"dW of a linear, {dtype}"
    moved = BYTES[dtype] * rows * (N + M) + 4 * chunks * N * M  # the chunks' sums are float32
    kernel = f"gemm_float_kernel<{tile}, 0, 0>" if dtype == "float32" else f"gemm_tensor_kernel<{dtype}, {tile}, false, false"
    shape = f"{N} x {rows} by {rows} x {M}"
    return Row(
        f"{name}, in {chunks} chunks",
        shape,
        f"weight_gradient {dtype} {case}",
        kernel,
        tiles / own_tiles,
        own_tiles * rows * tile**2,
        moved,
        (FLOAT_SHARED if dtype == "float32" else TENSOR_SHARED)[tile],
    )


# In float32, heads of up to 64 features: the kernel, its products, its shared memory in bytes.
FLOAT_ATTENTION = (
    ("attention_forward_float_kernel", 2, 65 * 1024),
    ("attention_gradient_float_kernel<Shape<true", 3, 98 * 1024),
    ("attention_gradient_float_kernel<Shape<false", 4, 57 * 1024),
)


def attention(case: str, times: int, kind: str = "attention") -> list[Row]:
    B, H, T, d = map(int, case.split("x"))
    heads, pairs = times * B * H, B * H * T * T * d
    shape = f"{heads} heads of {T} x {d}" if heads > 1 else f"a head of {T} x {d}"
    forward, of_queries, of_keys = FLOAT_ATTENTION
    names = {"attention": forward, "attention, backward (dQ)": of_queries, "attention, backward (dK, dV)": of_keys}
    if kind == "few_heads":
        names = {"the same, in segments": forward, "and joining the segments": ("attention_segments", 0, 0)}
        names |= {"its backward (dQ), in shares": of_queries, "and (dK, dV)": of_keys, "and joining the shares": ("attention_join", 0, 0)}
    return [
        Row(name, shape, f"{kind} float32 {case}", kernel, times, n * pairs, None, shared) for name, (kernel, n, shared) in names.items()
    ]


def attention_of_halves(heads: int, d: int) -> Row:
    """Forward, with 512 queries and keys: a block of 128 queries, of 4 warps or, of heads of 256, 8. For each score the machine code has 6.3
    instructions beside those for tensor cores, their operands and the exponential (`python tools/sass.py`, sm_80, heads of 64)."""
    tiles = 2 * 2 * (64 if d == 64 else 32) * d * 2  # two stages of keys and values
    warps = 4 if d <= 128 else 8
    case, scores = f"attention_forward bfloat16 1x1x512x{d}", 512 * 512
    shared = tiles + 128 * d * 2 + warps * 92  # queries, and where a warp is
    kernel = "attention_mma_kernel"
    return Row("attention, bfloat16", f"{heads} heads of 512 x {d}", case, kernel, heads, 2 * scores * d, None, shared, 6.3 * scores)


def short_attention_of_halves(heads: int) -> Row:
    """Of 16 queries and keys: a block of one warp. Each score is compared with the bounds of its row, some twenty instructions
    (`python tools/sass.py`)."""
    shared, scores = 2 * 2 * 16 * 64 * 2 + 16 * 64 * 2 + 76, 16 * 16
    case, kernel = "attention_forward bfloat16 2x4x16x8", "attention_mma_kernel"
    return Row(
        "attention, bfloat16", f"{heads} heads of 16 x 8", case, kernel, heads // 8, 2 * 8 * scores * 64, None, shared, 8 * 20 * scores
    )


def decoding_of_halves(batch: int) -> Row:
    """One query of each of eight heads that share 4096 keys: a block of one warp for 256 keys."""
    shared, scores = 2 * 2 * 32 * 128 * 2 + 16 * 128 * 2 + 76, 16 * 4096
    case, kernel, shape = "decoding bfloat16 8x4096x128", "attention_mma_kernel", f"{batch} of 8 heads of 1 by 4096 x 128"
    return Row("a step, one key head, bfloat16", shape, case, kernel, batch, 2 * scores * 128, None, shared, 6.5 * scores)


def attention_backward_of_halves(heads: int, d: int) -> list[Row]:
    """The same of gradients: blocks of 4 warps for 64 rows, and tiles of 32. on_lanes: likewise, for each score."""
    shared, scores = 2 * 64 * d * 2 + 2 * 2 * 32 * d * 2 + 4 * (2 * 16 * 32 * 4 + 56), 512 * 512
    rows = []
    for name, own, products, on_lanes in (("dQ", "true", 3, 7), ("dK, dV", "false", 4, 8)):
        numbers = 0 if own == "true" else 2 * 3 * 32 * 4
        kernel, case = f"attention_backward_mma_kernel<Shape<{own}, {d}>", f"attention bfloat16 1x1x512x{d}"
        shape = f"{heads} heads of 512 x {d}"
        multiply_adds = products * scores * d
        rows.append(
            Row(
                f"attention, backward ({name}), bfloat16",
                shape,
                case,
                kernel,
                heads,
                multiply_adds,
                None,
                shared + numbers,
                on_lanes * scores,
            )
        )
    return rows


def one_query(kind: str, segments: str) -> list[Row]:
    """A decoding step of 8 heads with 4096 keys; a block computes a whole tile of 64 queries."""
    shape, case, products = "8 heads of 1 by 4096 x 64", f"{kind} float32 1x1x4096x64", 2 * 64 * 4096 * 64
    rows = [Row(f"attention of one query{segments}", shape, case, "attention_forward_float_kernel", 8, products, None, 34 * 1024)]
    return [*rows, Row("and joining the segments", shape, case, "attention_segments", 8, 0)] if segments else rows


def encoder_block(sequences: int, dtype: str = "float32") -> Row:
    """Of 16 rows of 32, 4 heads and a hidden layer of 64, in one launch of a block each. Its shared memory has rows of 36 and of 100 float32, and
    two panels of 64 x 36."""
    B, T, E, F = 2, 16, 32, 64
    weights, scores = 4 * E * E + 2 * E * F, 2 * E * T
    name, kernel = ("an encoder block", "float,") if dtype == "float32" else (f"an encoder block, {dtype}", dtype)
    shape, case, shared = (
        f"{sequences} x {T} x {E}, 4 heads",
        f"encoder_block {dtype} {B}x{T}x{E}x4",
        4 * (T * (2 * 36 + 100) + 2 * 64 * 36),
    )
    moved = BYTES[dtype] * (2 * sequences * T * E + weights)
    return Row(name, shape, case, f"encoder_block_kernel<{kernel}", sequences / B, B * T * (weights + scores), moved, shared)


def encoder_block_backward(sequences: int, dtype: str = "float32") -> Row:
    """All gradients of the same blocks: the forward again, two products for each of its four, and four more of attention. Shared memory has six areas
    of rows of 36, two of 100, statistics and panels. Each sequence writes 8,544 sums in float32, which a second launch adds up."""
    forward = encoder_block(sequences, dtype)
    T, E, F = 16, 32, 64
    weights, scores = 4 * E * E + 2 * E * F, 2 * E * T
    shared = 4 * (T * (6 * 36 + 2 * 100) + 4 * T + 2 * 64 * 36)
    moved = BYTES[dtype] * (3 * sequences * T * E + weights) + 4 * sequences * 8544
    return dataclasses.replace(
        forward,
        name=forward.name.replace("encoder block", "encoder block, its gradients"),
        case=forward.case.replace("encoder_block", "encoder_block_train"),
        kernel=forward.kernel.replace("encoder_block", "encoder_block_backward"),
        multiply_adds=2 * T * 3 * (weights + scores),
        operand_bytes=moved,
        dynamic_bytes=shared,
    )


def rows_of(case: str, times: int, kernels: dict[str, tuple[str, int]]) -> list[Row]:
    """Kernels by the row's name, with operations per element. Sizes end in N x C."""
    N, C = map(int, case.split()[-1].removeprefix("AdamW").strip("x").split("x"))
    return [Row(name, f"{times * N} x {C}", case, kernel, times, operations * N * C) for name, (kernel, operations) in kernels.items()]


def add_layer_norm(case: str, times: int) -> list[Row]:
    """The sum is written and read again at once, from a cache: it moves once. The other operands are x, the residual, y, weight, bias and two
    numbers of each row."""
    N, C = map(int, case.split()[-1].split("x"))
    forward, *backward = rows_of(case, times, NORM)
    return [dataclasses.replace(forward, operand_bytes=4 * (4 * times * N * C + 2 * C + 2 * times * N)), *backward]


NORM = {
    "add + layer norm": ("layer_norm_forward", 6),
    "layer norm, all gradients": ("norm_gradients", 12),
}
LOSS = {"softmax and cross-entropy": ("cross_entropy_kernel", 3), "softmax and cross-entropy, backward": ("cross_entropy_backward", 3)}
ROWS = [
    product(2048, 96, 32),
    product(4096, 768, 768),
    product(4096, 3072, 768),
    tf32_product(4096, 3072, 768, "medium"),
    tf32_product(4096, 3072, 768, "high"),
    product(4096, 768, 768, "bfloat16"),
    product(4096, 3072, 768, "bfloat16"),
    product(4096, 3072, 768, "float16"),
    product(4096, 4096, 4096, "bfloat16"),
    weight_gradient("float32", "2048x96x32", 96, 32),
    weight_gradient("bfloat16", "2048x96x32", 96, 32),
    weight_gradient("float32", "3328x64x64", 512, 128),
    *attention("2x4x16x8", 64),
    *attention("1x1x128x64", 32 * 12),
    *attention("1x1x512x64", 8 * 12),
    *attention("1x1x512x64", 1),
    *attention("1x1x512x64", 1, "few_heads"),
    attention_of_halves(384, 64),
    attention_of_halves(192, 128),
    attention_of_halves(96, 256),
    short_attention_of_halves(512),
    decoding_of_halves(1),
    decoding_of_halves(32),
    *attention_backward_of_halves(384, 64),
    *attention_backward_of_halves(192, 128),
    *one_query("whole_query", ""),
    *one_query("one_query", ", in segments"),
    encoder_block(128),
    encoder_block(128, "bfloat16"),
    encoder_block_backward(128),
    encoder_block_backward(128, "bfloat16"),
    *add_layer_norm("add_layer_norm float32 2048x32", 1),
    *add_layer_norm("add_layer_norm float32 1024x768", 4),
    # 2 is TC_BINARY_mul, 22 TC_UNARY_gelu: their places in binary.def and unary.def.
    *rows_of("binary float32 64x1024", 1, {"x * y": ("own_flat_kernel<float, BinaryForward, 2, false>", 1)}),
    *rows_of("binary float32 64x1024", 192, {"x * y": ("own_flat_kernel<float, BinaryForward, 2, false>", 1)}),
    Row("GELU", "65536", "unary float32 65536", "own_flat_kernel<float, UnaryForward, 22, false>", 1, 3 * 65536),
    Row("GELU", f"{192 * 65536}", "unary float32 65536", "own_flat_kernel<float, UnaryForward, 22, false>", 192, 3 * 65536),
    *rows_of("optimizer float32 AdamWx64x1024", 1, {"AdamW": ("adam_kernel", 12)}),
    *rows_of("optimizer float32 AdamWx64x1024", 36, {"AdamW": ("adam_kernel", 12)}),
    *rows_of("cross_entropy float32 2048x10", 1, LOSS),
    *rows_of("cross_entropy float32 8x30522", 64, LOSS),
]


@dataclasses.dataclass(frozen=True)
class Measured:
    """What somebody measured of a kernel that does what the row's does: gigabytes a second, as they count them."""

    row: Row
    gpu: Gpu
    gigabytes: float  # that go in and out
    speed: float
    by: str


def vector_sum(size: int, speed: float) -> Measured:
    row = Row("x + y", f"{size}", "binary float32 64x1024", "own_flat_kernel<float, BinaryForward, 2, false>", size / 65536, 65536)
    return Measured(row, V100, 12 * size / 1e9, speed, "PyTorch")


def layer_norm(case: str, times: int, gpu: Gpu, speed: float, by: str) -> Measured:
    dtype, (N, C) = case.split()[0], map(int, case.split()[1].split("x"))
    name = "layer norm" if dtype == "float32" else f"layer norm, {dtype}"
    row = Row(name, f"{times * N} x {C}", f"layer_norm {case}", "layer_norm_forward", times, 5 * N * C)
    return Measured(row, gpu, 2 * BYTES[dtype] * times * N * C / 1e9, speed, by)


# x + y: "Triton学习——Vector Addition, Fused Softmax", 2025-03-06, the column of PyTorch, by triton.testing.do_bench, on a V100-PCIE-32GB; every
# second size. Layer norms: github.com/karpathy/llm.c/pull/600 and /645, its kernels 5 and 6 (the faster version); NVIDIA/apex/pull/1037, its new
# forward, of 32 x 512 rows of 1024.
MEASURED = [
    vector_sum(2**12, 9.6),
    vector_sum(2**14, 38.4),
    vector_sum(2**16, 128.0),
    vector_sum(2**18, 341.3),
    vector_sum(2**20, 614.4),
    vector_sum(2**22, 756.2),
    vector_sum(2**24, 815.8),
    vector_sum(2**26, 828.7),
    layer_norm("float16 1024x1024", 16, A100, 1258.0, "apex"),
    layer_norm("float32 1024x768", 8, RTX_3090, 773.1, "llm.c"),
    layer_norm("float32 1024x768", 8, A100_80, 1268.8, "llm.c"),
    layer_norm("float32 1024x768", 8, H100, 1244.5, "llm.c"),
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
    on_lanes = (row.on_lanes if counts["tensor"] else row.multiply_adds) / blocks
    shared = needs["shared_bytes"] + row.dynamic_bytes
    block = Block(counts["threads"] // counts["blocks"], needs["registers"], shared, on_lanes, per_block)
    moved = row.operand_bytes or row.times * (counts["load_bytes"] + counts["store_bytes"]) / launches
    one = predict(gpu, block, round(row.times * blocks), moved)
    total = {"MiB": launches * moved / 2**20, "multiply_adds": launches * row.times * row.multiply_adds}
    total |= {name: row.times * counts[name] for name in ("requests", "shared_requests", "wavefronts", "special")}
    return Predicted(launches * one.seconds, one.bound), launches * round(row.times * blocks), total


def table(gpu: Gpu = A100) -> str:
    def short(number: float) -> str:
        for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
            if number >= size:
                return f"{number / size:.3g}{unit}"
        return f"{number:.3g}"

    lines = [
        f"| kernel, float32 if not named | shape | blocks | multiply-adds | requests, global | and shared | special | MiB | predicted, {gpu.name} | bound by |\n",
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


def error_of(measured: Measured) -> tuple[float, float, str]:
    """Predicted gigabytes a second, how far that is from what was measured, and what bounds it."""
    time, _, _ = time_of(measured.row, measured.gpu)
    speed = measured.gigabytes / time.seconds
    return speed, speed / measured.speed - 1, time.bound


def comparison() -> str:
    lines = ["| kernel | size | GPU | measured GB/s | by | predicted GB/s | error | bound by |\n", "|---|---|---|---:|---|---:|---:|---|\n"]
    for one in MEASURED:
        speed, error, bound = error_of(one)
        cells = [one.row.name, one.row.shape, one.gpu.name, f"{one.speed:.4g}", one.by, f"{speed:.4g}", f"{100 * error:+.0f} %", bound]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def page_with(*tables: str) -> str:
    """docs/gpu/predicted-time.md with these as its tables, in their order."""
    left = iter(tables)
    found, count = re.subn(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: BEGIN + next(left, "") + END, PAGE.read_text(), flags=re.S)
    if count != len(tables):
        raise ValueError(f"{PAGE} has {count} places for {len(tables)} tables")
    return found


def tables() -> tuple[str, ...]:
    return comparison(), table(), kernel_traffic.table()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/gpu/predicted-time.md")
    if parser.parse_args().write:
        PAGE.write_text(page_with(*tables()))
    else:
        print(*tables(), sep="\n", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
