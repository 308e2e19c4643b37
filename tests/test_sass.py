"""The machine code of the hot kernels keeps its limits: registers, occupancy, no spills, no local memory, and in the loops no float64 and
no division of integers. It needs nvcc and nvdisasm, no GPU; .ci/run installs nvdisasm."""

import functools
import re
import shlex
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools"))
import sass  # noqa: E402

CUDA = sass.build_cuda.KERNELS / "cuda"
TARGETS = ("sm_80", "sm_90")
# The hottest kernels are compiled for both; the others for the second one with --slow alone: it takes some four minutes of a core.
ON_TENSOR_CORES = ("gemm_tensor.cu", "gemm_tf32.cu", "attention_mma.cu", "attention_backward_mma.cu", "attention_backward_head.cu")

# file, beginning of the names of kernels: threads per block; at most so many registers, at least so many blocks per multiprocessor; then at
# most so many instructions of the kernel that use local memory, and of its loops that compute in float64 or call a division of integers.
# Attention's local memory is of dropout and of the soft cap, which call functions. In float64 are the optimizers' rates and corrections, which the
# compiler converts for each element, sums of norms, numbers that are given for a tensor, and sines of large angles. Divisions are of the number
# of an element by the lengths of strided axes, of windows and rows; of numbers that fit 32 bits the called function is not entered. Those of
# encoder blocks are for dropout in a shared batch.
LIMITS = {
    ("gemm_float.cu", "gemm_float_kernel<128, "): (256, 244, 1, 0, 0, 0),
    ("gemm_float.cu", "gemm_float_kernel<64, "): (128, 168, 3, 0, 0, 0),
    ("gemm_float.cu", "gemm_float_kernel<32, "): (64, 128, 8, 0, 0, 0),
    ("gemm.cu", "gemm_kernel<bfloat16, 64, "): (256, 128, 2, 0, 0, 0),
    ("gemm.cu", "gemm_kernel<float16, 64, "): (256, 128, 2, 0, 0, 0),
    ("gemm_tensor.cu", "gemm_tensor_kernel<bfloat16, 128, "): (128, 244, 2, 0, 0, 0),
    ("gemm_tensor.cu", "gemm_tensor_kernel<float16, 128, "): (128, 244, 2, 0, 0, 0),
    ("gemm_tensor.cu", "gemm_tensor_kernel<bfloat16, 64, "): (128, 128, 4, 0, 0, 0),
    ("gemm_tf32.cu", "gemm_tensor_kernel<tf32, 128, "): (128, 244, 2, 0, 0, 0),
    ("gemm_tf32.cu", "gemm_tensor_kernel<tf32, 64, "): (128, 128, 4, 0, 0, 0),
    ("gemm_tf32.cu", "gemm_tensor_kernel<tf32_x3, 128, "): (256, 244, 1, 0, 0, 0),
    ("gemm_tf32.cu", "gemm_tensor_kernel<tf32_x3, 64, "): (128, 168, 3, 0, 0, 0),
    ("gemm_tensor.cu", "gemm_tensor_kernel<bfloat16, 16, "): (64, 64, 16, 0, 0, 0),
    ("gemm_tf32.cu", "gemm_tensor_kernel<tf32_x3, 16, "): (64, 80, 12, 0, 0, 0),
    ("gemm_float.cu", "gemm_float_dropout_kernel<128, "): (256, 244, 1, 0, 0, 5),
    ("gemm_float.cu", "gemm_float_dropout_kernel<64, "): (128, 168, 3, 0, 0, 5),
    ("gemm_tensor.cu", "gemm_tensor_dropout_kernel<bfloat16, 128, "): (128, 244, 2, 0, 0, 5),
    ("gemm_tensor.cu", "gemm_tensor_dropout_kernel<float16, 64, "): (128, 128, 4, 0, 0, 5),
    ("gemm_tensor.cu", "gemm_tensor_dropout_kernel<bfloat16, 16, "): (64, 80, 12, 0, 0, 5),
    ("gemm_tf32.cu", "gemm_tensor_dropout_kernel<tf32_x3, 128, "): (256, 244, 1, 0, 0, 5),
    ("gemm_tf32.cu", "gemm_tensor_dropout_kernel<tf32, 64, "): (128, 128, 4, 0, 0, 5),
    ("attention.cu", "attention_forward_kernel<float, 64, "): (256, 243, 1, 1, 0, 0),
    ("attention.cu", "attention_forward_kernel<float, 32, "): (256, 128, 2, 1, 0, 0),
    ("attention.cu", "attention_forward_kernel<bfloat16, 64, "): (256, 243, 1, 1, 0, 0),
    ("attention_float.cu", "attention_forward_float_kernel<Shape<64, 8, 4"): (128, 255, 2, 1, 0, 0),
    ("attention_backward_float.cu", "attention_gradient_float_kernel<Shape<true, 64, 8, 4"): (128, 255, 2, 2, 0, 0),
    ("attention_backward_float.cu", "attention_gradient_float_kernel<Shape<false, 64, 4, 4"): (128, 255, 2, 2, 0, 0),
    ("attention_mma.cu", "attention_mma_kernel<Shape<64, 4, 2, "): (128, 255, 2, 0, 0, 0),
    ("attention_mma.cu", "attention_mma_kernel<Shape<96, 4, 2, "): (128, 255, 2, 0, 0, 0),
    ("attention_mma.cu", "attention_mma_kernel<Shape<128, 4, 2, "): (128, 255, 2, 0, 0, 0),
    ("attention_mma.cu", "attention_mma_kernel<Shape<64, 4, 1, "): (128, 168, 3, 1, 0, 0),
    ("attention_mma.cu", "attention_mma_kernel<Shape<96, 4, 1, "): (128, 255, 2, 1, 0, 0),
    ("attention_mma.cu", "attention_mma_kernel<Shape<128, 4, 1, "): (128, 255, 2, 1, 0, 0),
    ("attention_mma.cu", "attention_mma_kernel<Shape<128, 1, 1, "): (32, 255, 8, 1, 0, 0),
    ("attention_mma.cu", "attention_mma_kernel<Shape<64, 1, 1, "): (32, 184, 10, 1, 0, 0),
    ("attention_mma.cu", "attention_mma_kernel<Shape<256, "): (256, 255, 1, 1, 0, 0),
    ("attention_mma_map.cu", "attention_map_mma_kernel<"): (128, 112, 4, 1, 0, 0),
    ("attention_backward_mma.cu", "attention_backward_mma_kernel<Shape<true, 64>, bfloat16>"): (128, 168, 3, 2, 0, 0),
    ("attention_backward_mma.cu", "attention_backward_mma_kernel<Shape<false, 64>, bfloat16>"): (128, 168, 3, 2, 0, 0),
    ("attention_backward_mma.cu", "attention_backward_mma_kernel<Shape<true, 128>, bfloat16>"): (128, 255, 2, 2, 0, 0),
    ("attention_backward_mma.cu", "attention_backward_mma_kernel<Shape<false, 128>, bfloat16>"): (128, 255, 2, 2, 0, 0),
    ("attention_backward_mma.cu", "attention_backward_mma_kernel<Shape<false, 96>, float16>"): (128, 255, 2, 2, 0, 0),
    ("attention_backward_head.cu", "attention_backward_head_kernel<Shape<32>, "): (256, 128, 2, 20, 0, 0),
    ("attention_backward_head.cu", "attention_backward_head_kernel<Shape<64>, "): (256, 128, 2, 20, 0, 0),
    ("attention_backward_head.cu", "attention_backward_head_kernel<Shape<128>, "): (128, 255, 2, 20, 0, 0),
    ("attention.cu", "attention_segments_kernel<float>"): (256, 40, 6, 0, 0, 0),
    ("attention.cu", "attention_map_kernel<float, 64>"): (256, 104, 2, 1, 0, 0),
    ("attention_backward.cu", "attention_gradient_kernel<float, 64, "): (256, 229, 1, 17, 0, 0),
    ("attention_backward.cu", "attention_gradient_kernel<bfloat16, 64, "): (256, 229, 1, 17, 0, 0),
    ("attention_backward.cu", "attention_dbias_kernel<float, "): (256, 168, 1, 1, 0, 0),
    ("attention_backward.cu", "attention_join_kernel<float>"): (256, 40, 6, 0, 0, 0),
    ("attention_backward.cu", "attention_delta_kernel<float>"): (256, 40, 6, 0, 0, 0),
    ("encoder_block.cu", "encoder_block_kernel<float, Shape<2, "): (128, 168, 3, 0, 0, 2),
    ("encoder_block.cu", "encoder_block_kernel<bfloat16, Shape<2, "): (128, 168, 3, 0, 0, 2),
    ("encoder_block.cu", "encoder_block_kernel<float, Shape<4, 256"): (256, 168, 1, 0, 0, 2),
    ("encoder_block_backward.cu", "encoder_block_backward_kernel<float, Shape<2, "): (128, 240, 2, 0, 0, 4),
    ("encoder_block_backward.cu", "encoder_block_backward_kernel<float, Shape<4, "): (256, 255, 1, 0, 0, 4),
    ("encoder_block_backward.cu", "encoder_block_backward_kernel<bfloat16, Shape<2, "): (128, 240, 2, 0, 0, 4),
    ("layer_norm.cu", "layer_norm_forward_kernel<float, 32, 4>"): (256, 128, 2, 0, 0, 0),
    ("layer_norm.cu", "layer_norm_forward_kernel<bfloat16, 32, 8>"): (256, 96, 2, 0, 0, 0),
    ("layer_norm.cu", "norm_input_gradient_kernel<float, 32, 4, "): (256, 128, 2, 0, 0, 0),
    ("layer_norm.cu", "norm_gradients_kernel<float, 32, 4, "): (256, 240, 1, 0, 0, 2),
    ("layer_norm.cu", "norm_gradients_kernel<bfloat16, 32, 8, "): (256, 240, 1, 0, 0, 2),
    ("layer_norm.cu", "norm_gradients_kernel<float, 256, 4, "): (256, 240, 1, 0, 0, 2),
    ("layer_norm.cu", "norm_weight_gradient_kernel<float, "): (256, 32, 8, 0, 0, 0),
    ("rms_norm.cu", "rms_norm_forward_kernel<float, 32, 4>"): (256, 128, 2, 0, 0, 0),
    ("copy.cu", "move_sixteens_kernel"): (128, 32, 16, 0, 0, 0),
    ("copy.cu", "cast_kernel<float, bfloat16, 4>"): (128, 32, 16, 0, 0, 0),
    ("copy.cu", "add_kernel<float, 4>"): (128, 32, 16, 0, 0, 0),
    ("elementwise.cu", "flat_kernel<float, BinaryForward>"): (128, 32, 16, 0, 3, 0),
    ("elementwise.cu", "flat_kernel<bfloat16, BinaryForward>"): (128, 32, 16, 0, 0, 0),
    ("elementwise.cu", "flat_kernel<float, UnaryForward>"): (128, 32, 16, 10, 8, 0),
    ("elementwise.cu", "own_flat_kernel<float, "): (128, 32, 16, 0, 0, 0),
    ("elementwise.cu", "own_flat_kernel<bfloat16, "): (128, 48, 10, 0, 0, 0),
    ("elementwise.cu", "activation_backward_kernel<float, 4>"): (128, 32, 16, 0, 0, 0),
    ("elementwise.cu", "activation_backward_kernel<bfloat16, 8>"): (128, 32, 16, 0, 0, 0),
    ("elementwise.cu", "dropout_kernel<float>"): (128, 32, 16, 0, 0, 1),
    ("elementwise.cu", "dropout_kernel<bfloat16>"): (128, 32, 16, 0, 0, 1),
    ("elementwise.cu", "dropout_vectors_kernel<float>"): (128, 40, 12, 0, 0, 1),
    ("elementwise.cu", "dropout_vectors_kernel<bfloat16>"): (128, 48, 10, 0, 0, 1),
    ("embedding.cu", "rows_kernel<unsigned int>"): (128, 32, 16, 0, 0, 10),
    ("embedding.cu", "backward_kernel<float>"): (128, 40, 12, 0, 0, 1),
    ("embedding.cu", "start_of_sorted_kernel"): (128, 32, 16, 0, 0, 0),
    ("extremes.cu", "argsort_kernel<float>"): (128, 32, 16, 0, 0, 2),
    ("extremes.cu", "argsort_kernel<long>"): (128, 32, 16, 0, 0, 2),
    ("extremes.cu", "find_kernel<FirstExtreme<float>, float>"): (128, 52, 9, 0, 0, 7),
    ("extremes.cu", "find_in_columns_kernel<FirstExtreme<float>, float>"): (512, 52, 2, 0, 0, 7),
    ("index.cu", "gather_kernel<unsigned int>"): (128, 48, 10, 0, 0, 22),
    ("index.cu", "points_kernel"): (128, 48, 10, 0, 0, 14),
    ("index.cu", "add_ordered_kernel<float>"): (128, 40, 12, 0, 0, 8),
    ("index.cu", "put_ordered_kernel<unsigned int>"): (128, 48, 10, 0, 0, 8),
    ("integer.cu", "find_kernel<IntegerReduction, long>"): (128, 52, 9, 0, 0, 7),
    ("integer.cu", "find_in_columns_kernel<IntegerReduction, long>"): (512, 64, 2, 0, 0, 7),
    ("loss.cu", "loss_kernel<float>"): (128, 32, 16, 0, 0, 0),
    ("loss.cu", "cross_entropy_kernel<float, 32, 4>"): (256, 72, 3, 0, 0, 0),
    ("loss.cu", "cross_entropy_kernel<float, 256, 4>"): (256, 72, 3, 0, 0, 0),
    ("loss.cu", "cross_entropy_kernel<float, 256, 1>"): (256, 52, 4, 0, 0, 0),
    ("loss.cu", "cross_entropy_backward_kernel<float, 256, 4>"): (256, 48, 5, 0, 0, 0),
    ("reduce.cu", "reduce_rows_kernel<32, float, float>"): (256, 64, 4, 0, 0, 7),
    ("reduce.cu", "reduce_rows_kernel<256, float, float>"): (256, 64, 4, 0, 0, 7),
    ("reduce.cu", "softmax_rows_kernel<float, 32, 4>"): (256, 96, 2, 0, 0, 0),
    ("reduce.cu", "softmax_rows_kernel<bfloat16, 256, 8>"): (256, 96, 2, 0, 0, 0),
    ("reduce.cu", "softmax_rows_backward_kernel<float, 32, 4>"): (256, 128, 2, 0, 0, 0),
    ("reduce.cu", "reduce_columns_kernel<float, float>"): (512, 52, 2, 0, 0, 7),
    ("reduce.cu", "softmax_kernel<float>"): (128, 32, 16, 0, 0, 0),
    ("reduce.cu", "softmax_backward_kernel<float>"): (128, 32, 16, 0, 0, 0),
    ("optimizer.cu", "adam_kernel<float>"): (256, 64, 4, 0, 5, 0),
    ("optimizer.cu", "rmsprop_kernel<float>"): (256, 64, 4, 0, 3, 0),
    ("optimizer.cu", "norm_kernel<float>"): (256, 40, 6, 0, 92, 0),
    ("optimizer.cu", "sgd_kernel<float>"): (256, 40, 6, 0, 0, 0),
}
# At most so many instructions for each operation of tensor cores, itself included, in every loop that has any.
PER_MMA = {("gemm_tensor.cu", ", 128, "): 2.5, ("gemm_tensor.cu", ", 64, "): 3.8}
# Kernels whose numbers the host computes: no float64 before their loops either.
WITHOUT_FLOAT64 = ("gemm_kernel", "gemm_float_", "gemm_tensor_", "attention_", "dropout_kernel", "dropout_vectors_kernel")


def is_slow(file, target):
    return target != TARGETS[0] and file not in ON_TENSOR_CORES


def on_targets(table):
    """Each row of a table, whose key begins with a file, on each target."""
    return [
        pytest.param(*row, target, marks=[pytest.mark.slow] * is_slow(row[0], target), id=f"{row[1]}-{target}")
        for row in table
        for target in TARGETS
    ]


def of_file(file, first_only=False):
    """A test of that file's kernels on both targets; on the second one with --slow alone, if `first_only`."""
    second = pytest.param(TARGETS[1], marks=[pytest.mark.slow] * first_only)

    def mark(test):
        return pytest.mark.parametrize("file", [file])(pytest.mark.parametrize("target", [TARGETS[0], second])(test))

    return mark


def named_calls(loop):
    """The functions that a loop calls; calls of a label are how warps converge."""
    return [found[1] for one in loop if one.code.startswith("CALL") and (found := re.search(r"`\((?!\.L_)(.*)\)", one.operands))]


def figures(kernel, threads):
    """In the order of LIMITS."""
    in_loops = {one.address: one for loop in kernel.main_loops() for one in loop}.values()
    return (
        threads,
        kernel.resources["registers"],
        kernel.blocks(threads),
        sum(one.code.startswith(("LDL", "STL")) for one in kernel.code),
        sum(bool(sass.FLOAT64.match(one.code)) for one in in_loops),
        sum(bool(re.search(r"_(div|rem)_[su]64", name)) for name in named_calls(in_loops)),
    )


def of_kernels(test):
    """It takes minutes to compile them."""
    programs = [shlex.quote(sass.build_cuda.find_nvcc() or "nvcc"), shlex.quote(str(sass.find_nvdisasm() or "nvdisasm"))]
    tools = ("tools/build_cuda.py", "tools/sass.py", "benchmarks/cuda_resources.py")
    mark = pytest.mark.follows_from("csrc/kernels/cuda/{file}", *tools, headers=sass.build_cuda.with_headers, programs=programs)
    return pytest.mark.minutes(mark(test))


@functools.cache
def kernels_of(file, target):
    if missing := sass.missing_tools():
        pytest.skip(missing)
    return sass.kernels(CUDA / file, target)


@of_kernels
@pytest.mark.skipif(bool(sass.missing_tools()), reason=sass.missing_tools() or "nothing is missing")
@pytest.mark.parametrize("target", ["sm_75", "sm_80"])
@pytest.mark.parametrize("file", [source.name for source in sass.build_cuda.sources()])
def test_no_kernel_spills(file, target):
    """For the oldest GPU and the oldest with tensor cores for all formats."""
    rows = sass.resources(sass.compile_cubin(CUDA / file, target), target)
    assert rows or file == "table.cu", "a file without kernels"
    assert not [row for row in rows if row["spill_store_bytes"] or row["spill_load_bytes"]]


@of_kernels
@pytest.mark.parametrize("file, name, target", on_targets(LIMITS))
def test_machine_code(file, name, target):
    kernels = [kernel for kernel in kernels_of(file, target) if kernel.name.startswith(name)]
    assert kernels, f"{file} has no kernel {name}"
    threads, registers, blocks, *limits = LIMITS[file, name]
    for kernel in kernels:
        assert kernel.main_loops(), f"no loop is found in {kernel.name}"
        found = figures(kernel, threads)
        assert kernel.resources["spill_store_bytes"] == kernel.resources["spill_load_bytes"] == 0, kernel.name
        assert found[1] <= registers and found[2] >= blocks, f"{kernel.name}: {found[1]} registers, {found[2]} blocks per multiprocessor"
        for what, count, limit in zip(("local memory", "float64", "divisions of integers"), found[3:], limits, strict=True):
            assert count <= limit, f"{kernel.name}: {what}: {count} instructions"
        if name.startswith(WITHOUT_FLOAT64):
            assert not [one for one in kernel.code if sass.FLOAT64.match(one.code)], f"{kernel.name} computes in float64"


@of_kernels
@pytest.mark.parametrize("file, tile, target", on_targets(PER_MMA))
def test_few_instructions_go_with_each_operation_of_tensor_cores(file, tile, target):
    kernels = [kernel for kernel in kernels_of(file, target) if tile in kernel.name]
    assert kernels
    for kernel in kernels:
        loops = [loop for loop in kernel.loops() if any(one.code.startswith("HMMA") for one in loop)]
        assert loops, kernel.name
        for loop in loops:
            ratio = len(loop) / sum(one.code.startswith("HMMA") for one in loop)
            assert ratio <= PER_MMA[file, tile], f"{kernel.name}: {ratio:.2f} instructions per mma"


# The loop of float32 products by tile: so many multiply-adds of 16 k, and at most so many instructions for each, itself included. Those that
# may sum the rows of A, or take any strides, have more that are skipped.
PER_MULTIPLY_ADD = {(128, 1, 1): 1.16, (128, 1, 0): 1.17, (128, 0, 0): 1.21, (128, 2, 2): 1.23, (64, 1, 1): 1.31, (64, 0, 0): 1.37}


@of_kernels
@of_file("gemm_float.cu", first_only=True)
@pytest.mark.parametrize("how", PER_MULTIPLY_ADD, ids=str)
def test_few_instructions_go_with_each_multiply_add(file, how, target):
    (kernel,) = [one for one in kernels_of(file, target) if one.name == f"gemm_float_kernel<{', '.join(map(str, how))}>"]
    operations = 16 * 8 * (8 if how[0] == 128 else 4)
    loop = min((loop for loop in kernel.loops() if multiply_adds_in(loop) >= operations), key=len)
    assert multiply_adds_in(loop) == operations, "all of a stage, once"
    assert len(loop) <= PER_MULTIPLY_ADD[how] * operations, f"{len(loop)} instructions"


def multiply_adds_in(loop):
    return sum(one.code.startswith("FFMA") for one in loop)


def loops_on_tensor_cores(file, target, name):
    """Those of the one kernel whose name begins so."""
    (kernel,) = [one for one in kernels_of(file, target) if one.name.startswith(name)]
    return [loop for loop in kernel.loops() if operations_in(loop)]


def operations_in(loop):
    return sum(one.code.startswith("HMMA") for one in loop)


# Of float32 products by tf32 in tiles of 128, of a stage: operations of tensor cores, and at most so many instructions for each, itself included.
# Operands that run along k are loaded by ldmatrix, others one number at a time; numbers are rounded, or split into two parts.
PER_TF32 = {
    "tf32, 128, true, true": (64, 4.5),
    "tf32, 128, false, false": (64, 5.3),
    "tf32_x3, 128, true, true": (96, 3.7),
    "tf32_x3, 128, false, false": (96, 4.2),
}


@of_kernels
@of_file("gemm_tf32.cu")
@pytest.mark.parametrize("how", PER_TF32)
def test_few_instructions_go_with_each_operation_of_tf32(file, how, target):
    loop = min(loops_on_tensor_cores(file, target, f"gemm_tensor_kernel<{how}, false>"), key=len)
    operations, most = PER_TF32[how]
    assert operations_in(loop) == operations, "all of a stage, once"
    assert len(loop) <= most * operations, f"{len(loop)} instructions"


# Instructions for each operation of tensor cores, itself included, in the shortest loop that has any: tiles that all queries see.
HOT = {"64, 4, 2, 64": 5.1, "96, 4, 2, 32": 5.1, "128, 4, 2, 32": 4.5, "256, 8, 1, 32": 3.9}


@of_kernels
@of_file("attention_mma.cu")
@pytest.mark.parametrize("shape", HOT)
def test_a_tile_of_keys_that_all_queries_see_takes_few_instructions(file, shape, target):
    loop = min(loops_on_tensor_cores(file, target, f"attention_mma_kernel<Shape<{shape}>, bfloat16"), key=len)
    operations = operations_in(loop)
    size, _, fragments, keys = map(int, shape.split(", "))
    assert operations == fragments * size * keys // 64, "all of a tile, once"
    assert len(loop) <= HOT[shape] * operations, f"{len(loop)} instructions, {operations} operations"


# The same of gradients, whose own rows are queries or keys: its operations are all of a tile of 32, once.
HOT_GRADIENTS = {"true, 64": (48, 4.3), "false, 64": (64, 4.3), "true, 128": (96, 3.2), "false, 128": (128, 3.2)}


@of_kernels
@of_file("attention_backward_mma.cu")
@pytest.mark.parametrize("shape", HOT_GRADIENTS)
def test_a_tile_of_gradients_without_hidden_pairs_takes_few_instructions(file, shape, target):
    name = f"attention_backward_mma_kernel<Shape<{shape}>, bfloat16>"
    loop = min(loops_on_tensor_cores(file, target, name), key=len)
    operations, most = HOT_GRADIENTS[shape]
    assert operations_in(loop) == operations
    assert len(loop) <= most * operations, f"{len(loop)} instructions, {operations} operations"


# The same of gradients of whole heads, for 16 queries of 16 keys, in part of the loop only where pairs are hidden; and of their dq for 16 keys.
HOT_HEADS = {32: (16.5, 12.8), 64: (9.8, 7.2), 128: (5.8, 4.2)}


@of_kernels
@of_file("attention_backward_head.cu")
@pytest.mark.parametrize("size", HOT_HEADS)
def test_a_tile_of_whole_heads_takes_few_instructions(file, size, target):
    name = f"attention_backward_head_kernel<Shape<{size}>, bfloat16>"
    loops = loops_on_tensor_cores(file, target, name)
    for operations, most in zip((size // 2, size // 8), HOT_HEADS[size], strict=True):
        loop = min((one for one in loops if operations_in(one) == operations), key=len)
        assert len(loop) <= most * operations, f"{len(loop)} instructions, {operations} operations"


# Of kernels that move vectors of 16 bytes: loads and stores of global memory by 16 bytes at least, and at most so many narrower ones. Those are of
# numbers of a row, of sums over a block of rows, of classes and their weights; of the optimizers, of the last elements, of arrays that begin
# anywhere, and of halves.
WIDE = {
    ("layer_norm.cu", "layer_norm_forward_kernel<float, 32, 4>"): (24, 8, 0, 2),
    ("layer_norm.cu", "layer_norm_forward_kernel<bfloat16, 32, 8>"): (12, 4, 0, 2),
    ("layer_norm.cu", "norm_input_gradient_kernel<float, 32, 4, "): (24, 8, 2, 0),
    ("layer_norm.cu", "norm_gradients_kernel<float, 32, 4, "): (24, 8, 2, 32),
    ("layer_norm.cu", "norm_gradients_kernel<bfloat16, 32, 8, "): (12, 4, 2, 12),
    ("rms_norm.cu", "rms_norm_forward_kernel<float, 32, 4>"): (16, 8, 0, 1),
    ("loss.cu", "cross_entropy_kernel<float, 256, 4>"): (8, 0, 35, 3),
    ("loss.cu", "cross_entropy_backward_kernel<float, 256, 4>"): (1, 1, 42, 0),
    ("optimizer.cu", "adam_kernel<float>"): (5, 5, 9, 9),
    ("optimizer.cu", "rmsprop_kernel<float>"): (5, 5, 9, 9),
    ("optimizer.cu", "sgd_kernel<float>"): (5, 5, 9, 9),
    ("elementwise.cu", "flat_kernel<float, BinaryForward>"): (2, 1, 0, 0),
    ("elementwise.cu", "activation_backward_kernel<float, 4>"): (2, 1, 0, 0),
    ("copy.cu", "add_kernel<float, 4>"): (2, 1, 0, 0),
}


@of_kernels
@pytest.mark.parametrize("file, name, target", on_targets(WIDE))
def test_arrays_are_moved_by_16_bytes_at_a_time(file, name, target):
    """A vector that the compiler stores one element at a time takes four times the transfers; no count of the emulation shows that."""
    kernels = [kernel for kernel in kernels_of(file, target) if kernel.name.startswith(name)]
    assert kernels
    for kernel in kernels:
        accesses = [one.code for one in kernel.code if one.code.startswith(("LDG", "STG"))]
        found = [
            sum(code.startswith(kind) and (".128" in code) == wide for code in accesses)
            for wide in (True, False)
            for kind in ("LDG", "STG")
        ]
        loads, stores, narrow_loads, narrow_stores = WIDE[file, name]
        assert found[0] >= loads and found[1] >= stores, f"{kernel.name}: {found}"
        assert found[2] <= narrow_loads and found[3] <= narrow_stores, f"{kernel.name}: {found}"


PHILOX = re.compile("-0x2daee0ad|-0x326172a9")  # what its rounds multiply by, ten times each


@of_kernels
@of_file("elementwise.cu", first_only=True)
def test_four_random_words_are_drawn_for_four_elements(file, target):
    kernels = [kernel for kernel in kernels_of(file, target) if kernel.name.startswith("dropout_kernel")]
    assert len(kernels) == 4
    for kernel in kernels:
        (loop,) = kernel.main_loops()
        rounds = [one for one in kernel.code if PHILOX.search(one.operands)]
        draws = [name for name in named_calls(loop) if "_div_" not in name] or [one for one in loop if one is rounds[0]]
        assert 0 < len(rounds) <= 20 and len(draws) == 1, f"{kernel.name}: {len(draws)} draws, {len(rounds)} multiplications"
        assert sum(one.code.startswith("STG") for one in loop) == 4, kernel.name


@pytest.mark.parametrize(
    "threads, registers, shared_kib, blocks",
    [
        (256, 32, 0, 8),  # warps
        (32, 16, 0, 32),  # blocks
        (256, 64, 0, 4),  # registers
        (256, 41, 0, 5),  # those of a warp are 1312, of which it takes six units of 256
        (128, 32, 40, 4),  # shared memory
        (128, 32, 41, 3),  # of which the system takes 1 KiB of each block
    ],
)
def test_resident_blocks(threads, registers, shared_kib, blocks):
    """By the table of the CUDA C++ Programming Guide for compute capability 8.0."""
    kernel = sass.Kernel("k", "sm_80", {"registers": registers, "shared_bytes": 1024 * shared_kib}, [])
    assert kernel.blocks(threads) == blocks


BAD = """
#include "device.cuh"
extern "C" __global__ void divides(float *x, const float *y, long n, long m)
{
    for (long i = threadIdx.x; i < n; i += blockDim.x) x[i] = y[i / m];
}
extern "C" __global__ void computes_in_float64(float *x, long n)
{
    for (long i = threadIdx.x; i < n; i += blockDim.x) x[i] = static_cast<float>(x[i] * 0.1);
}
extern "C" __global__ void keeps_an_array(float *x, long n)
{
    float kept[64];
    for (int i = 0; i < 64; i++) kept[i] = x[i];
    for (long i = threadIdx.x; i < n; i += blockDim.x) x[i] = kept[i % 64];
}
"""


@pytest.mark.skipif(bool(sass.missing_tools()), reason=sass.missing_tools() or "nothing is missing")
def test_what_is_bad_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sass.build_cuda, "OBJECTS", tmp_path)
    monkeypatch.setattr(sass.build_cuda, "FLAGS", [*sass.build_cuda.FLAGS, f"-I{sass.build_cuda.KERNELS / 'cuda'}"])
    source = tmp_path / "bad.cu"
    source.write_text(BAD)
    found = {kernel.name: figures(kernel, 128)[3:] for kernel in sass.kernels(source, "sm_80")}
    local, float64, divisions = (found[name] for name in ("keeps_an_array", "computes_in_float64", "divides"))
    assert local[0] > 0 and float64[1] > 0 and divisions[2] > 0
    assert divisions[:2] == (0, 0) and float64[::2] == (0, 0) and local[1:] == (0, 0)
