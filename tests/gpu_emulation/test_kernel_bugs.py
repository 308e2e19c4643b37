"""Bugs in the kernels themselves: each is a file, with the headers that are its kernels, with one place changed, and must be noticed by what the
kernels' tests look at: results, races, addresses, bank conflicts.

The programs take ten minutes to compile: those of a file are left out while it, its headers and the emulator have not changed since all its bugs
were noticed (tests/unchanged.py), but for the first of each file and flavour.
"""

import dataclasses
import re
import subprocess

import emulation
import pytest

SEED = "3"
# The main function of each kernel's program, which starts some of the kernels: the lines that instantiate all of them are left out. What
# follows a file's name after a comma is one of several programs of it.
MAINS = {
    "gemm_tensor.cu": "product_of_halves_main.h",
    "gemm_tf32.cu": "product_of_tf32_main.h",
    "gemm_float.cu": "product_of_floats_main.h",
    "attention_mma.cu": "attention_main.h",
    "attention_backward_mma.cu": "attention_backward_main.h",
    "sum_partials.cu": "sum_partials_main.h",
    "attention_backward_head.cu": "attention_backward_head_main.h",
    "attention_float.cu": "attention_float_main.h",
    "attention_backward_float.cu": "attention_backward_float_main.h",
    "layer_norm.cu": "norm_main.h",
    "loss.cu": "cross_entropy_main.h",
    "optimizer.cu": "adam_main.h",
    "encoder_block.cu": "encoder_block_main.h",
    "gemm_tensor.cu, dropout": "product_with_dropout_main.h",
    "encoder_block_backward.cu": "encoder_block_backward_main.h",
}
INSTANTIATED = re.compile(
    r"^((template int tc::launch_tensor_gemm|INSTANTIATE\w*\(|TC_FOR_EACH_DTYPE\(|TC_OPTIMIZER_KERNEL\().*|int tc::(launch_(float|tf32)_gemm|attention_float_\w+)\((?:.*\n)*?})\n",
    flags=re.M,
)
# Become part of the file: each once.
INCLUDED = re.compile(
    r'^#include "(attention_float.cuh|attention_mma.cuh|attention_mma_forward.cuh|attention_backward_mma.cuh|dropout.cuh|encoder_block.cuh|encoder_block_rows.cuh|gemm_epilogue.cuh|gemm_tensor.cuh|norm_backward.cuh|vector_rows.cuh)"\n',
    flags=re.M,
)
AFTER = {"attention_mma.cu": "attention_mma_map.cu"}  # what follows a file, whose main function starts its kernels too


@dataclasses.dataclass(frozen=True)
class Bug:
    """`place` becomes `changed`; the program of that flavour, run by that schedule, prints the pattern."""

    name: str
    place: str
    changed: str
    flavour: str
    schedule: str
    pattern: str


PRODUCT = [
    Bug("missing_wait", "copy_async_wait<Tile::stages - 2>();", "", "plain", "round_robin", "wrong result|never waited for"),
    Bug("wait_for_too_few", "wait<Tile::stages - 2>", "wait<Tile::stages - 1>", "plain", "round_robin", "wrong result|never waited for"),
    Bug("missing_barrier", "__syncthreads();\n            copy(", "copy(", "access", "random", "race|uninitialised"),
    Bug("wrong_stage", "free = (Tile::stages - 1)", "free = (Tile::stages - 2)", "access", "greedy", "race|uninitialised|wrong result"),
    Bug("stages_not_turned", "free = oldest;", "", "plain", "round_robin", "wrong result"),
    Bug("chunks_not_permuted", "turn = run == 128 ? row % 8 : row / 2 % 4;", "turn = 0;", "count", "round_robin", "costly"),
    Bug("runs_in_the_same_banks", "number / 8 * 8 + number % 2 * 4 + number / 2 % 4", "number", "count", "round_robin", "costly"),
    Bug("halves_permuted_otherwise", "= to ^ half * half_run", "= to + half * half_run", "plain", "round_robin", "wrong result|out of bounds"),
    Bug("rows_of_k_not_permuted", "size == 2 ? k % 8", "size == 2 ? 0", "count", "round_robin", "costly"),
    Bug("permuted_otherwise_when_read", "(start ^ kk * step_bytes)", "(start + kk * step_bytes)", "plain", "round_robin", "wrong result|out of bounds"),
    Bug("wrong_matrices", "left ? i % 2 : i / 2", "left ? i / 2 : i % 2", "plain", "round_robin", "wrong result"),
    Bug("wrong_fragment", "{right[of_right][j / 2][j % 2 * 2],", "{right[of_right][j / 2][j % 2],", "plain", "round_robin", "wrong result"),
    Bug("not_transposed", "load_matrix_x4_transposed(", "load_matrix_x4(", "plain", "round_robin", "wrong result"),
    Bug("tile_one_too_long", "between < rows_left", "between <= rows_left", "plain", "round_robin", "out of bounds"),
    Bug("no_zeros_before_the_sum", "const bool inside = whole ||", "const bool inside = true ||", "plain", "round_robin", "wrong result|out of"),
    Bug("results_over_stages_in_use", "__syncthreads();\n            if (warp_row == top)", "if (warp_row == top)", "access", "greedy", "race"),
    Bug("results_not_ready", "__syncthreads();\n            if constexpr (Tile", "if constexpr (Tile", "access", "random", "race|uninitialised"),
    Bug("results_in_the_same_banks", "row_floats = Tile::columns + 8;", "row_floats = Tile::columns;", "count", "round_robin", "costly"),
    Bug("results_of_other_columns", "row_floats + 8 * j + lane_pair()", "row_floats + 8 * j + lane_pair() / 2", "plain", "round_robin", "wrong result"),
    Bug("row_sums_of_other_lanes", "lane % 4 == 0) {", "lane / 8 == 0) {", "plain", "round_robin", "wrong result"),
    Bug("pairs_not_added", "residual ? value[i + j] + more.at[j] : value[i + j]", "value[i + j]", "plain", "round_robin", "wrong result"),
    Bug("added_from_another_row", "load_vector<lanes>(residual + row * residual_row + at)", "load_vector<lanes>(residual + row * c_row + at)", "plain", "round_robin", "wrong result"),
    Bug("pairs_begin_between_pairs", "begins(a.residual, written)", "begins(a.residual, whole)", "access", "round_robin", "misaligned"),
]  # fmt: skip
TF32 = [
    Bug("blocks_not_added", "total.at[i][j][e] += at", "total.at[i][j][e] = at", "plain", "round_robin", "wrong result"),
    Bug("blocks_added_again", "            at[i][j][e] = 0;\n", "", "plain", "round_robin", "wrong result"),
    Bug("blocks_from_the_first_k_on", "(steps - 1 - step) % (settled_k / depth)", "(step + 1) % (settled_k / depth)", "plain", "round_robin", "wrong result"),
    Bug("row_sums_of_one_half_of_k", "float_of_bits(a[0]) + float_of_bits(a[2])", "float_of_bits(a[0])", "plain", "round_robin", "wrong result"),
    Bug("wrong_rows_of_single_numbers", "below = left ? e % 2 : e / 2", "below = left ? e / 2 : e % 2", "plain", "round_robin", "wrong result"),
    Bug("wrong_half_of_single_numbers", "half = left ? e / 2 : e % 2", "half = left ? e % 2 : e / 2", "plain", "round_robin", "wrong result"),
    Bug("single_numbers_of_other_rows", "+ lane / 4 % 4 * size", "+ lane % 4 * size", "plain", "round_robin", "wrong result"),
    Bug("single_numbers_permuted_otherwise", "(start ^ (i % 2 * 4 + below * 2)", "(start + (i % 2 * 4 + below * 2)", "plain", "round_robin", "wrong result|out of bounds"),
    Bug("rows_of_k_not_permuted", "k % 4 * 2)", "0)", "count", "round_robin", "costly"),
    Bug("chunks_not_permuted", "turn = run == 128 ? row % 8 : row / 2 % 4;", "turn = 0;", "count", "round_robin", "costly"),
    Bug("runs_in_the_same_banks", "number / 8 * 8 + number % 2 * 4 + number / 2 % 4", "number", "count", "round_robin", "costly"),
    Bug("no_zeros_before_the_sum", "const bool inside = whole ||", "const bool inside = true ||", "plain", "round_robin", "wrong result|out of"),
    Bug("cut_off_for_rounded", "one = float_to_tf32(float_of_bits(one));", "one = first_tf32(one);", "plain", "round_robin", "wrong result"),
    Bug("rest_of_the_left_left_out", "multiply(parts - 1, 0);", "", "plain", "round_robin", "wrong result"),
    Bug("rest_of_the_right_left_out", "multiply(0, parts - 1);", "", "plain", "round_robin", "wrong result"),
    Bug("no_rest", "return x & ~0x1fffu;", "return x;", "plain", "round_robin", "wrong result"),
    Bug("split_before_the_rest", "x[1][i][j] = rest_of_tf32(x[0][i][j]);\n            x[0][i][j] = first_tf32(x[0][i][j]);", "x[0][i][j] = first_tf32(x[0][i][j]);\n            x[1][i][j] = rest_of_tf32(x[0][i][j]);", "plain", "round_robin", "wrong result"),
    Bug("row_sums_of_half_the_lanes", "sum[half] += __shfl_xor_sync(all_lanes, sum[half], 2);", "", "plain", "round_robin", "wrong result"),
    Bug("parts_of_infinity", "if (!is_finite(value) && row", "if (value > 1e30f && row", "plain", "round_robin", "wrong result"),
    Bug("single_sum_of_another_column", "right_data + c * a.b_col", "right_data + r * a.b_col", "plain", "round_robin", "wrong result"),
    Bug("results_not_ready", "__syncthreads();\n            if constexpr (Tile", "if constexpr (Tile", "access", "random", "race|uninitialised"),
    Bug("single_sums_not_ready", "__syncthreads();\n            }\n            write_rows", "}\n            write_rows", "access", "random", "race"),
]  # fmt: skip
FLOAT = [
    Bug("missing_wait", "copy_async_wait<float_stages - 2>();", "", "plain", "round_robin", "wrong result|never waited for"),
    Bug("wait_for_too_few", "wait<float_stages - 2>", "wait<float_stages - 1>", "plain", "round_robin", "wrong result|never waited for"),
    Bug("missing_barrier", "__syncthreads();\n            stages.copy();", "stages.copy();", "access", "random", "race|uninitialised"),
    Bug("wrong_stage", "k_block, shared, 0};", "k_block, shared, Tile::stage_floats};", "plain", "round_robin", "wrong result"),
    Bug("one_stage_too_few", "shared_floats = float_stages *", "shared_floats = (float_stages - 1) *", "access", "greedy", "race|uninitialised|wrong result"),
    Bug("stages_not_turned", "oldest = oldest + Tile", "oldest = oldest < 0 && oldest + Tile", "plain", "round_robin", "wrong result"),
    Bug("rows_in_the_same_banks", "row_floats = tile + 4;", "row_floats = tile + 8;", "count", "round_robin", "costly"),
    Bug("wrong_rows", "left + k * row_floats + 16 * i", "left + k * row_floats + 32 * i", "plain", "round_robin", "wrong result"),
    Bug("wrong_fragment", "b[j / 4].at[j % 4]", "b[j / 4].at[j / 4]", "plain", "round_robin", "wrong result"),
    Bug("tile_one_too_long", "own < rows ? own", "own <= rows ? own", "plain", "round_robin", "out of bounds"),
    Bug("vectors_after_the_last_row", "left < 0 ? 0 : left);", "width);", "plain", "round_robin", "out of bounds"),
    Bug("no_zeros_after_the_sum", "copied_k < depth ? valid : 0;", "copied_k <= depth ? valid : 0;", "plain", "round_robin", "wrong result|out of bounds"),
    Bug("whole_stage_after_a_part", "from[i] += depth *", "from[i] += float_depth *", "plain", "round_robin", "wrong result|out of bounds"),
    Bug("blocks_not_added", "total.sum[i][j] += sum[i][j];", "total.sum[i][j] = sum[i][j];", "plain", "round_robin", "wrong result"),
    Bug("results_over_stages_in_use", "__syncthreads();\n            if (own_row", "if (own_row", "access", "greedy", "race"),
    Bug("results_not_ready", "__syncthreads();\n            write_rows", "write_rows", "access", "random", "race|uninitialised"),
    Bug("row_sums_of_others", "stage[i * Tile::row_floats + thread]", "stage[i * Tile::row_floats + thread + 1]", "plain", "round_robin", "wrong result"),
    Bug("odd_columns_not_added", "value += residual[row * residual_row + column];", "value += 0;", "plain", "round_robin", "wrong result"),
    Bug("first_of_pairs_added_twice", "value[i + j] + more.at[j]", "value[i + j] + more.at[0]", "plain", "round_robin", "wrong result"),
]  # fmt: skip
JOIN = [
    Bug("missing_barrier", "__syncthreads();\n        const int64_t left", "const int64_t left", "access", "greedy", "race|uninitialised"),
    Bug("read_over_what_is_added", "sum += some[row][threadIdx.x];\n        __syncthreads();", "sum += some[row][threadIdx.x];", "access", "random", "race"),
    Bug("not_added_to_those_before", "if (a.before) sum +=", "if (a.before) (void)", "plain", "round_robin", "wrong result"),
    Bug("added_twice", "if (a.before) sum += widen(", "if (a.before) sum += 2 * widen(", "plain", "round_robin", "wrong result"),
    Bug("a_column_too_many", "if (threadIdx.y != 0 || column >= a.C) return;", "if (threadIdx.y != 0 || column > a.C) return;", "plain", "round_robin", "out of bounds"),
]  # fmt: skip
ATTENTION = [
    Bug("missing_wait", "copy_async_wait<0>();\n                __sync", "__sync", "plain", "round_robin", "wrong result|never waited for"),
    Bug("missing_barrier", "__syncthreads(); // also", "// also", "access", "random", "race|uninitialised"),
    Bug("copied_over_what_is_read", "next_keys.load(shared.keys(stage() ^ 1))", "next_keys.load(shared.keys(stage()))", "plain", "round_robin", "wrong result"),
    Bug("stages_not_turned", "T());\n                change_stage();", "T());", "plain", "round_robin", "wrong result"),
    Bug("tile_one_too_far", "end - S::keys) - S::keys;", "end - S::keys);", "plain", "round_robin", "out of bounds|wrong result"),
    Bug("queries_of_one_block", "own[f][d], shared + rows.at(f, d)", "own[f][d], shared + rows.at(f, 0)", "plain", "round_robin", "wrong result"),
    Bug("queries_not_ready", "copy_async_wait<0>();\n    __syncwarp();", "copy_async_wait<0>();", "access", "random", "race|uninitialised"),
    Bug("wrong_fragment", "own.fragment(f, d), {four[2], four[3]}", "own.fragment(f, d), {four[1], four[3]}", "plain", "round_robin", "wrong result"),
    Bug("not_transposed", "load_matrix_x4_transposed(", "load_matrix_x4(", "plain", "round_robin", "wrong result"),
    Bug("sum_of_two_lanes_of_four", "sum += __shfl_xor_sync(all_lanes, sum, 2);", "", "plain", "round_robin", "wrong result"),
    Bug("sum_not_rescaled", "sum[f][r] *= shrink;", "", "plain", "round_robin", "wrong result"),
    Bug("values_not_rescaled", "fragment[2 * r + 1] *= shrink;", "", "plain", "round_robin", "wrong result"),
    Bug("hidden_nan_in_the_product", "clear_infinite<S::keys, size, S::threads>(shared.values(stage()));", "", "plain", "round_robin", "wrong result"),
    Bug("hidden_nan_added", "hidden >> (e + 1) & 1 ? mark : pair >> 16", "pair >> 16", "plain", "round_robin", "wrong result"),
    Bug("missing_fence", "__syncwarp();\n    const T *const own", "const T *const own", "access", "random", "race|uninitialised"),
    Bug("matrices_beside_for_below", "values(shared.tile, false)", "values(shared.tile, true)", "plain", "round_robin", "wrong result"),
    Bug("rows_of_one_head", "h + static_cast<int>(unsigned(row) % unsigned(group))", "h + (row & 0)", "plain", "round_robin", "wrong result"),
    Bug("queries_of_one_head", "+ (group.head(first + i) - group.h) * head", "", "plain", "round_robin", "wrong result"),
    Bug("rows_of_one_query", "int>(unsigned(row) / unsigned(group))", "int>(unsigned(row) / unsigned(group) / 2)", "plain", "round_robin", "wrong result|out of bounds"),
    Bug("reach_of_the_first_head", "group.query(first + rows - 1)", "group.query(first + rows - rows)", "plain", "round_robin", "wrong result"),
    Bug("map_of_keys_on_their_way", "__syncthreads();\n    if (first >= p.Tq)", "if (first >= p.Tq)", "access", "greedy", "race|uninitialised"),
    Bug("map_over_scores_in_use", "__syncwarp();\n    }\n    const float scale", "}\n    const float scale", "access", "greedy", "race"),
    Bug("map_not_ready", "__syncwarp();\n    T *const out = static_cast<T *>(a.map)", "T *const out = static_cast<T *>(a.map)", "access", "random", "race|uninit"),
    Bug("map_of_unfinished_scores", "own.sees_all(key, S::keys) ? numbers.scale : 1.0f", "numbers.scale", "plain", "round_robin", "wrong result"),
    Bug("scores_over_keys_in_use", "if (!S::keeps_queries && (infinite || !self.bounds.alone)) __syncthreads();", "", "access", "greedy", "race"),
    Bug("queries_of_one_fragment", "own[f][0], shared + rows.at(f, d)", "own[f][0], shared + rows.at(0, d)", "plain", "round_robin", "wrong result"),
    Bug("weights_of_one_fragment", "mma(sums[f][2 * d], weights[f][n]", "mma(sums[f][2 * d], weights[0][n]", "plain", "round_robin", "wrong result"),
    Bug("bounds_of_one_fragment", "fragment * warp_rows + row_of(2 * r)", "fragment * 0 + row_of(2 * r)", "plain", "round_robin", "wrong result"),
    Bug("bound_one_too_far", "head.offset + p.right + 1, head", "head.offset + p.right + 2, head", "plain", "round_robin", "wrong result"),
    Bug("weights_of_a_fragment_that_sees_none", "if (!own_sees) clear_weights<S::keys>(weights[f]);", "", "plain", "round_robin", "wrong result|uninit"),
    Bug("infinite_of_the_first_of_two", "found & 0x80008000u", "found & 0x8000u", "plain", "round_robin", "wrong result"),
    Bug("results_not_ready", "__syncwarp();\n    const GroupRows<T> out", "const GroupRows<T> out", "access", "random", "race|uninitialised"),
]  # fmt: skip
BACKWARD = [
    Bug("missing_wait", "copy_async_wait<0>();\n                    __sync", "__sync", "plain", "round_robin", "wrong result|never waited for"),
    Bug("missing_barrier", "__syncthreads(); // also", "// also", "access", "random", "race|uninitialised"),
    Bug("copied_over_what_is_read", "next_dy.load(shared.dy(stage() ^ 1), step)", "next_dy.load(shared.dy(stage()), step)", "plain", "round_robin", "wrong result"),
    Bug("numbers_of_the_tile_before", "next_numbers.load(shared.numbers(stage() ^ 1), others, step)", "next_numbers.load(shared.numbers(stage()), others, step)", "plain", "round_robin", "wrong result"),
    Bug("stages_not_turned", "add();\n                    change_stage();", "add();", "plain", "round_robin", "wrong result"),
    Bug("tile_one_too_far", "? self.block.all_end : last) - others : -1", "? self.block.all_end : last) : -1", "plain", "round_robin", "out of bounds|wrong result"),
    Bug("own_rows_not_ready", "copy_async_wait<0>();\n    __syncwarp();", "copy_async_wait<0>();", "access", "random", "race|uninitialised"),
    Bug("queries_for_rows", "S::queries ? i / 2 : i % 2", "i / 2", "plain", "round_robin", "wrong result"),
    Bug("fragments_of_weights_exchanged", "dscores[n / 2][n % 2 * 2 + r]", "dscores[n / 2][n % 2 + r * 2]", "plain", "round_robin", "wrong result"),
    Bug("reach_of_the_first_key", "set_all(head.first_query(p, end - 1)", "set_all(head.first_query(p, first)", "plain", "round_robin", "wrong result"),
    Bug("hidden_nan_in_the_product", "clear_infinite<others, size, backward_threads>(shared.y(stage()));", "", "plain", "round_robin", "wrong result"),
    Bug("hidden_nan_of_values_in_the_product", "clear_infinite<others, size, backward_threads>(shared.dy(stage()));", "(void)0;", "plain", "round_robin", "wrong result"),
    Bug("hidden_nan_added", "mine.dscores, marks.hidden, weights", "mine.dscores, 0, weights", "plain", "round_robin", "wrong result"),
    Bug("matrices_beside_for_below", "below(Layout::first_stage, false)", "below(Layout::first_stage, true)", "plain", "round_robin", "wrong result"),
]  # fmt: skip
WHOLE_HEADS = [
    Bug("missing_wait", "copy_async_wait<0>();\n        __syncwarp();\n        TC_UNROLL", "__syncwarp();\n        TC_UNROLL", "plain", "round_robin", "wrong result|never waited for"),
    Bug("missing_barrier", "__syncthreads();\n        // Only a pair", "__syncwarp();\n        // Only a pair", "access", "random", "race|uninitialised"),
    Bug("gradients_of_scores_not_ready", "__syncthreads(); // all", "// all", "access", "random", "race|uninitialised"),
    Bug("results_not_ready", "    __syncwarp();\n    if (wide) {", "    if (wide) {", "access", "random", "race|uninitialised"),
    Bug("not_transposed", "load_matrix_x4_transposed(dscores[0],", "load_matrix_x4(dscores[0],", "plain", "round_robin", "wrong result"),
    Bug("chunks_not_permuted", "(number ^ key / 4 % 2) * 8", "number * 8", "count", "round_robin", "costly"),
    Bug("permuted_otherwise_when_read", "ScoreTile::chunk(key, matrix % 2)", "(ScoreTile::chunk(key, matrix % 2) ^ key % 2 * 8)", "plain", "round_robin", "wrong result"),
    Bug("wrong_matrices", "key = matrix / 2 * 8", "key = matrix % 2 * 8", "plain", "round_robin", "wrong result|race"),
    Bug("tile_too_few", "query < band.queries; query += warp_rows", "query + warp_rows < band.queries; query += warp_rows", "access", "round_robin", "wrong result|uninitialised"),
    Bug("keys_too_few", "key < band.reached_keys; key += warp_rows", "key + warp_rows < band.reached_keys; key += warp_rows", "plain", "round_robin", "wrong result"),
    Bug("queries_of_the_first_head", "band.b, band.first_head + n + 1, vectors", "band.b, band.first_head, vectors", "plain", "round_robin", "wrong result"),
    Bug("gradients_of_the_first_head", "band.b, band.first_head + n) + own", "band.b, band.first_head) + own", "plain", "round_robin", "wrong result"),
    Bug("heads_not_added", "    TC_ROLLED\n    for (int n = 0;; n++) {", "    for (int n = 0;; n++) {\n        clear_sums(dv);", "plain", "round_robin", "wrong result"),
    Bug("sums_of_two_lanes_of_eight", "int distance = chunks / 2; distance", "int distance = 1; distance", "plain", "round_robin", "wrong result"),
    Bug("shares_for_shifts", "load_vector<2>(at + rows)", "load_vector<2>(at)", "plain", "round_robin", "wrong result"),
    Bug("hidden_key_too_many", "(apart <= hi)", "(apart <= hi + 1)", "plain", "round_robin", "wrong result"),
    Bug("hidden_nan_in_the_product", "(pair & low) == low ? 0", "(pair & low) == low + 1 ? 0", "plain", "round_robin", "wrong result"),
    Bug("hidden_nan_added", "pairs.dscores, marks.hidden, ", "pairs.dscores, 0, ", "plain", "round_robin", "wrong result"),
    Bug("hidden_nan_of_keys_added", "of.find_hidden();", "", "plain", "round_robin", "wrong result"),
]  # fmt: skip
FLOAT_ATTENTION = [
    Bug("missing_wait", "copy_async_wait<0>();\n        __sync", "__sync", "plain", "round_robin", "wrong result|never waited for"),
    Bug("missing_barrier", "__syncthreads(); // also", "// also", "access", "random", "race|uninitialised"),
    Bug("values_not_waited_for", "copy_async_wait<0>();\n        // Only", "// Only", "plain", "round_robin", "wrong result|never waited for"),
    Bug("the_same_keys_again", "copy_keys(key + tile_others);", "copy_keys(key);", "plain", "round_robin", "wrong result"),
    Bug("weights_not_ready", "put_weights(weights, score);\n            __syncwarp();", "put_weights(weights, score);", "access", "random", "race|uninitialised"),
    Bug("sum_of_four_lanes_of_eight", "for (int distance = 4; distance > 0; distance /= 2) one +=", "for (int distance = 2; distance > 0; distance /= 2) one +=", "plain", "round_robin", "wrong result"),
    Bug("values_not_rescaled", "for (float &value : values[i]) value *= shrink;", "(void)0;", "plain", "round_robin", "wrong result"),
    Bug("vectors_not_permuted", "(first ^ column ^ chunk) * 4", "(first + chunk) * 4", "count", "round_robin", "wrong result|costly"),
    Bug("weights_in_the_same_banks", "(number ^ row % 4 * 2) * 4", "(number ^ row % 4) * 4", "count", "round_robin", "wrong result|costly"),
    Bug("hidden_nan_added", "if (bits_of_float(weight) == hidden_weight) continue;", "", "plain", "round_robin", "wrong result"),
    Bug("segments_not_joined", "joins = true;", "", "plain", "round_robin", "wrong result"),
    Bug("queries_for_keys", "cut.sees(4 * i, 8 * j)", "cut.sees(8 * j, 4 * i)", "plain", "round_robin", "wrong result"),
    Bug("rows_after_the_last_copied", "count = row < left ? whole : 0;", "count = row < left + rows ? whole : 0;", "plain", "round_robin", "out of bounds|wrong result"),
]  # fmt: skip
FLOAT_BACKWARD = [
    Bug("missing_wait", "copy_async_wait<0>();\n            // Only", "// Only", "plain", "round_robin", "wrong result|never waited for"),
    Bug("missing_barrier", "__syncthreads(); // everybody", "// everybody", "access", "random", "race|uninitialised"),
    Bug("weights_not_ready", "put_weights(weights, factors);\n                __syncwarp();", "put_weights(weights, factors);", "access", "random", "race|uninitialised"),
    Bug("weights_over_those_in_use", "__syncwarp(); // those before", "// those before", "access", "random", "race"),
    Bug("numbers_of_other_queries", "warp * S::warp_rows + lane_row_of(i) : lane_other_of(j);", "lane_row_of(i) : lane_other_of(j);", "plain", "round_robin", "wrong result"),
    Bug("queries_for_keys", "cut.sees(8 * j, 4 * i) &&", "cut.sees(4 * i, 8 * j) &&", "plain", "round_robin", "wrong result"),
    Bug("reach_of_the_first_key", "set(all, all_end, head.first_query(p, end - 1)", "set(all, all_end, head.first_query(p, first)", "plain", "round_robin", "wrong result"),
    Bug("hidden_nan_added", "if (in_pairs(hidden, i, j)) factors", "if (hidden == 1) factors", "plain", "round_robin", "wrong result"),
    Bug("weights_for_gradients", "add(sums[0], dscore, marks.hidden, y);", "add(sums[0], weight, marks.hidden, y);", "plain", "round_robin", "wrong result"),
]  # fmt: skip
NORM = [
    Bug("one_vector_too_far", "if (i < C) f(i, at[k]);", "if (i <= C) f(i, at[k]);", "access", "round_robin", "out of bounds|race|uninitialised"),
    Bug("rest_read_from_elsewhere", "+ before * threads) * N", "+ before) * N", "plain", "round_robin", "wrong result"),
    Bug("rest_not_of_the_sum", "row = total;", "", "plain", "round_robin", "wrong result"),
    Bug("rows_left_out", "row += together)", "row += together + 1)", "plain", "round_robin", "wrong result"),
    Bug("chunk_too_long", "last = first + a.rows_per_chunk < a.N ? first + a.rows_per_chunk : a.N", "last = a.N", "plain", "round_robin", "wrong result"),
    Bug("sums_not_ready", "__syncthreads();\n            for (int i = threadIdx.y", "for (int i = threadIdx.y", "access", "random", "race|uninitialised"),
    Bug("sums_overwritten", "= sum;\n            }\n            __syncthreads();", "= sum;\n            }", "access", "random", "race"),
    Bug("sums_of_a_row_left_out", "for (int y = 1; y < together; y++)", "for (int y = 2; y < together; y++)", "plain", "round_robin", "wrong result"),
    Bug("sums_of_other_columns", "(threadIdx.x * N + j) / 4", "(threadIdx.x + j) / 4", "access", "random", "race|wrong result"),
    Bug("sums_beyond_the_row", "if (partial && begin + column < a.C)", "if (partial)", "plain", "round_robin", "wrong result|out of bounds"),
    Bug("mean_of_the_wrong_gradient", "sum_gx += g[j] * normalised(xv.at[j])", "sum_gx += normalised(xv.at[j])", "plain", "round_robin", "wrong result"),
]  # fmt: skip
CROSS_ENTROPY = [
    Bug("sum_not_rescaled", "exponentials *= real_exp(top - above);", "", "plain", "round_robin", "wrong result"),
    Bug("infinity_from_infinity", "? Real(0) : highest;", "? highest : highest;", "plain", "round_robin", "wrong result"),
    Bug("spread_not_moved", "spread += weights * (above - shift);", "", "plain", "round_robin", "wrong result"),
    Bug("largest_of_one_thread", "highest = group_join<threads>(highest, scratch, [](Real p, Real q) { return v_maximum(p, q); });", "", "plain", "round_robin", "wrong result"),
    Bug("last_part_too_long", "a.C - first < Part::longest ? a.C - first : Part::longest", "Part::longest", "plain", "round_robin", "wrong result|out of bounds"),
    Bug("target_of_another_lane", "c + j == t", "c == t", "plain", "round_robin", "wrong result"),
]  # fmt: skip
OPTIMIZER = [
    Bug("vectors_that_begin_anywhere", "fit = fit && fits(chunk.state[s], 16);", "fit = fit;", "access", "round_robin", "misaligned"),
    Bug("last_vector_too_long", "(last - first) / N * N", "(last - first + N - 1) / N * N", "plain", "round_robin", "out of bounds"),
    Bug("last_elements_left_out", "i = whole + threadIdx.x; i < last", "i = whole + threadIdx.x; i + 1 < last", "plain", "round_robin", "wrong result"),
    Bug("blocks_overlap", "chunk.n ? first + TC_OPTIMIZER_BLOCK : chunk.n;", "chunk.n ? first + TC_OPTIMIZER_BLOCK + 1 : chunk.n;", "access", "random", "race|wrong result"),
    Bug("state_not_stored", "if (chunk.state[s]) store_global", "if (chunk.state[s] && s) store_global", "plain", "round_robin", "wrong result"),
]  # fmt: skip
ENCODER_BLOCK = [
    Bug("missing_barrier", "fetch();\n        __syncthreads();", "fetch();", "access", "random", "race|uninitialised"),
    Bug("no_zeros_after_the_weight", "n >= p.N || kk >= p.K ? 0", "kk >= p.K ? 0", "plain", "round_robin", "out of bounds|wrong result"),
    Bug("rows_in_the_same_banks", "row = (depth / lanes | 1) * lanes", "row = depth", "count", "round_robin", "costly"),
    Bug("qkv_not_complete", "/ own_queries;\n    __syncthreads(); // the", "/ own_queries;\n    // the", "access", "random", "race|uninitialised"),
    Bug("mask_of_one_query", "!mask[query[i] * m.row", "!mask[query[0] * m.row", "plain", "round_robin", "wrong result"),
    Bug("squares_after_the_row", "if (c + e < block.width) squares", "if (c < block.width) squares", "plain", "round_robin", "wrong result"),
    Bug("places_of_this_process", "place_in_batch(dropping.places, sequence * count)", "sequence * count", "plain", "round_robin", "wrong result"),
]  # fmt: skip
ENCODER_BLOCK_BACKWARD = [
    Bug("scores_not_ready", "__syncthreads(); // the scores are complete", "", "access", "random", "race|uninitialised"),
    Bug("scores_of_other_heads_in_use", "__syncthreads(); // the rows are complete, and the", "// the", "access", "random", "race|uninitialised"),
    Bug("rows_over_scores_in_use", "__syncthreads(); // the scores are read", "// the scores are read", "access", "random", "race"),
    Bug("gradient_not_complete", "__syncthreads(); // the rows are complete\n        store_rows", "store_rows", "access", "random", "race|uninitialised"),
    Bug("first_sequence_added", "*at = first ? value : *at + value;", "*at += value;", "plain", "round_robin", "wrong result"),
    Bug("sequences_not_added", "if (!first) total = load_vector<lanes>(at);", "", "plain", "round_robin", "wrong result"),
    Bug("sequences_beyond_the_last", "end = begin + b.chunk < b.sequences ? begin + b.chunk : b.sequences", "end = begin + b.chunk", "plain", "round_robin", "out of bounds"),
    Bug("padding_of_heads", "clear_beyond<T, S>(block, 3 * block.width, d, block.wide_row);", "", "access", "round_robin", "uninitialised"),
    Bug("scores_after_the_last_key", "if (key >= block.length) break;\n        TC_UNROLL\n        for (int i", "TC_UNROLL\n        for (int i", "plain", "round_robin", "wrong result"),
    Bug("transposed_to_other_rows", "(row_of_transposed(i) + e) * row", "(row_of_transposed(i) + e) * depth", "plain", "round_robin", "wrong result"),
    Bug("gradient_of_hidden_scores", "hidden[i] >> j & 1 ? Real(0) : queries", "queries", "plain", "round_robin", "wrong result"),
    Bug("delta_left_out", "(dweight[i][j] - delta[i])", "dweight[i][j]", "plain", "round_robin", "wrong result"),
    Bug("statistics_of_the_first_norm", "areas.statistics + branch * 2 * length;", "areas.statistics;", "plain", "round_robin", "wrong result"),
    Bug("stream_left_out", "if (adds) before", "if (adds && false) before", "plain", "round_robin", "wrong result"),
    Bug("slope_left_out", "is_relu ? value * activation_slope", "is_relu && row < 0 ? value * activation_slope", "plain", "round_robin", "wrong result"),
    Bug("kept_without_scale", "areas.branch[at] = dropping.keep.applied(areas.gradient[at], kept);", "areas.branch[at] = kept ? areas.gradient[at] : compute<T>(0);", "plain", "round_robin", "wrong result"),
    Bug("one_product_skipped", "block.norm_first ? weights - 1 : weights;", "weights - 1;", "plain", "round_robin", "wrong result"),
    Bug("x_not_loaded_again", "load_rows<T, S>(block, sequence, block.x, areas.normal);", "", "plain", "round_robin", "wrong result"),
    Bug("queries_in_the_same_banks", "query, query + pairs);", "2 * query, 2 * query + 1);", "count", "round_robin", "costly"),
]  # fmt: skip
DROPOUT = [
    Bug("numbers_by_rows_in_memory", "row_length(a.N)", "row_length(a.c_row)", "plain", "round_robin", "wrong result"),
    Bug("runs_one_to_the_right", "keep.applied(x[i], kept >> i & 1)", "keep.applied(x[i], kept >> (i + 1) % n & 1)", "plain", "round_robin", "wrong result"),
    Bug("places_of_this_part", "place_in_batch(places, row * row_length + column)", "row * row_length + column", "plain", "round_robin", "wrong result"),
    Bug("dropped_after_the_addition", "drop(value);\n        if (residual) add(value, residual + row * residual_row + column);", "if (residual) add(value, residual + row * residual_row + column);\n        drop(value);", "plain", "round_robin", "wrong result"),
    Bug("word_of_other_elements", "word = own == w ?", "word = own == w - 1 ?", "plain", "round_robin", "wrong result"),
    Bug("drawn_together_across_rows", "columns % TC_PHILOX_GROUP == 0 && a.N % TC_PHILOX_GROUP == 0 && ", "columns % TC_PHILOX_GROUP == 0 && ", "plain", "round_robin", "wrong result|deadlock"),
    Bug("drawn_together_in_half_a_group", "together(columns % TC_PHILOX_GROUP == 0 && ", "together(", "plain", "round_robin", "wrong result|deadlock"),
    Bug("lanes_of_another_group", "((1u << sharing % warp_lanes) - 1) << own", "((1u << sharing % warp_lanes) - 1) << (own & 16)", "plain", "round_robin", "not in the mask|wrong result"),
    Bug("runs_across_numbered_rows", "rows && a.N % n == 0 && a.mask.places.row % n == 0;", "rows && a.N % n == 0;", "plain", "round_robin", "wrong result"),
    Bug("parts_of_a_group_drawn_once", "count = together ? share : N;", "count = share;", "plain", "round_robin", "wrong result"),
]  # fmt: skip
PROGRAMS = dict(
    zip(
        MAINS,
        (
            PRODUCT,
            TF32,
            FLOAT,
            ATTENTION,
            BACKWARD,
            JOIN,
            WHOLE_HEADS,
            FLOAT_ATTENTION,
            FLOAT_BACKWARD,
            NORM,
            CROSS_ENTROPY,
            OPTIMIZER,
            ENCODER_BLOCK,
            DROPOUT,
            ENCODER_BLOCK_BACKWARD,
        ),
        strict=True,
    )
)


def read(file, seen=None):
    """The file's text, with the headers that it includes and that are not in `seen`."""
    seen = set() if seen is None else seen

    def header(found):
        return "" if found[1] in seen else seen.add(found[1]) or read(found[1], seen)

    return INCLUDED.sub(header, (emulation.KERNELS / "cuda" / file).read_text().replace("#pragma once\n", ""))


def write_program(folder, program, place="", changed=""):
    """The source of a program: its file, changed in one place, and its main function."""
    seen, (kernels, *_) = set(), program.split(",")
    text = "".join(read(name, seen) for name in (kernels, AFTER.get(kernels)) if name)
    assert not place or text.count(place) == 1, "the kernel has changed: so must the bug"
    source = folder / kernels
    main = (emulation.HERE / "bugs" / MAINS[program]).read_text()
    source.write_text(INSTANTIATED.sub("", text.replace(place, changed) if place else text) + main)
    return source


def run(source, flavour, schedule):
    return subprocess.run([emulation.program(source, flavour), schedule, SEED], capture_output=True, text=True, timeout=60)


def with_headers(path):
    """What a program of that file is made of."""
    paths = [path, *([path.with_name(AFTER[path.name])] if path.name in AFTER else [])]
    return emulation.build_cuda.with_headers(*paths, places=(emulation.HERE,))


follows = pytest.mark.follows_from(
    "csrc/kernels/cuda/{file}", "tests/gpu_emulation/*.h", "tests/gpu_emulation/*.cpp", "tests/gpu_emulation/bugs/*.h",
    "tests/gpu_emulation/emulation.py", headers=with_headers,
)  # fmt: skip


def cases():
    """Every bug with its file and program. The first of each program and flavour is compiled in every run."""
    for program, bugs in PROGRAMS.items():
        flavours = set()
        for bug in bugs:
            marks = [follows] if bug.flavour in flavours else []
            flavours.add(bug.flavour)
            yield pytest.param(program.partition(",")[0], program, bug, marks=marks, id=f"{program}-{bug.name}")


@pytest.mark.parametrize(("file", "program", "bug"), [*cases()])
def test_bug_is_noticed(file, program, bug, tmp_path):
    done = run(write_program(tmp_path, program, bug.place, bug.changed), bug.flavour, bug.schedule)
    assert done.returncode == 1, f"not noticed: {done.stdout}{done.stderr}"
    assert re.search(bug.pattern, done.stdout), done.stdout


@pytest.mark.parametrize(("program", "flavour"), sorted({(program, bug.flavour) for program, bugs in PROGRAMS.items() for bug in bugs}))
def test_the_kernel_as_it_is_passes(program, flavour, tmp_path):
    source = write_program(tmp_path, program)
    for schedule in ("round_robin", "greedy", "random"):
        done = run(source, flavour, schedule)
        assert done.returncode == 0, f"{schedule}: {done.stdout}{done.stderr}"
