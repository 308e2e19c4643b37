"""What each kernel would cost a GPU, counted by the emulation: the cases, their counts now, and the committed ones of counts.json.

    python tests/gpu_emulation/counts.py            # how the counts differ from counts.json
    python tests/gpu_emulation/counts.py --write    # makes them the committed ones

A kernel's row has the columns of count.cpp: `threads` are those of all blocks, sectors are 32 bytes of global memory per request of a warp, bytes are
distinct ones of a launch, and `block_bytes` of a block; shared
memory takes wavefronts where `ideal_wavefronts` would do without bank conflicts, `special` are calls of mathematical functions. Of all threads:
`copy_waits` for asynchronous copies, `copies_in_flight` at these, and the waits that leave none on its way.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import emulation

COMMITTED = pathlib.Path(__file__).parent / "counts.json"
BOTH = ("float32", "bfloat16")

# ---- the cases: a name, and a call that launches kernels on Tensors of the shapes ----


def product(tc, tensor, M, N, K):
    return tc.matmul(tensor(M, K), tensor(K, N))


def medium_product(tc, tensor, *shape):
    """On tensor cores, as "high" is."""
    with_precision(tc, "medium", tensor, *shape)


def high_product(tc, tensor, *shape):
    with_precision(tc, "high", tensor, *shape)


def with_precision(tc, setting, tensor, *shape):
    tc.set_float32_precision(setting)
    product(tc, tensor, *shape)
    tc.set_float32_precision("highest")


def few_rows(tc, tensor, M, N, K):
    tc.functional.linear(tensor(M, K, grad=False), tensor(N, K, grad=False), tensor(N, grad=False))


def linear(tc, tensor, M, N, K):
    y = tc.functional.linear(tensor(M, K), tensor(N, K), tensor(N))
    y.backward(tensor(M, N, grad=False))


def qkv_projection(tc, tensor, B, T, C, H):
    tc.functional.qkv_projection(tensor(B, T, C), tensor(3 * C, C), tensor(3 * C), num_heads=H)


def attention(tc, tensor, B, H, T, d, **options):
    query, key, value = (tensor(B, H, T, d) for _ in range(3))
    tc.functional.scaled_dot_product_attention(query, key, value, **options).backward(tensor(B, H, T, d, grad=False))


def causal_attention(tc, tensor, *shape):
    attention(tc, tensor, *shape, is_causal=True)


def uniform_attention(tc, tensor, *shape):
    attention(tc, tensor, *shape, empty_rows="uniform")


def every_option(tc, tensor, B, H, T, d):
    """Of attention: dropout, a mask, a bias with a gradient, the map."""
    query, key, value = (tensor(B, H, T, d) for _ in range(3))
    options = {"dropout_p": 0.1, "rng": 1, "attn_mask": tc.ones(T, T, dtype=tc.bool, device=tensor.device), "bias": tensor(T, T)}
    values, map_ = tc.functional.scaled_dot_product_attention(query, key, value, return_attention=True, **options)
    (values.sum() + map_.sum()).backward()


def add_layer_norm(tc, tensor, N, C):
    tc.functional.add_layer_norm(tensor(N, C), tensor(N, C), C, tensor(C), tensor(C)).backward(tensor(N, C, grad=False))


def dropout_layer_norm(tc, tensor, N, C):
    """As between the layers of a block in train mode."""
    y = tc.functional.add_layer_norm(tensor(N, C), tensor(N, C), C, tensor(C), tensor(C), dropout_p=0.1, rng=1)
    y.backward(tensor(N, C, grad=False))


def rms_norm(tc, tensor, N, C):
    tc.functional.rms_norm(tensor(N, C), C, tensor(C)).backward(tensor(N, C, grad=False))


def cross_entropy(tc, tensor, N, C):
    target = tc.tensor([i % C for i in range(N)], device=tensor.device)
    tc.functional.cross_entropy(tensor(N, C), target).backward()


def softmax(tc, tensor, N, C):
    tc.functional.softmax(tensor(N, C)).backward(tensor(N, C, grad=False))


def softmax_of_columns(tc, tensor, N, C):
    tc.functional.softmax(tensor(N, C), 0).backward(tensor(N, C, grad=False))


def unary(tc, tensor, n):
    tc.functional.gelu(tensor(n)).backward(tensor(n, grad=False))


def binary(tc, tensor, N, C):
    (tensor(N, C) * tensor(N, C)).backward(tensor(N, C, grad=False))


def bias(tc, tensor, N, C):
    (tensor(N, C) + tensor(C)).backward(tensor(N, C, grad=False))


def dropout(tc, tensor, n):
    tc.functional.dropout(tensor(n), 0.1, rng=1).backward(tensor(n, grad=False))


def copied_columns(tc, tensor, N, C):
    tensor(N, 2 * C)[:, C:].contiguous()


def transposed_copy(tc, tensor, N, C):
    tensor(N, C).transpose(0, 1).contiguous()


def copied_flat(tc, tensor, N, C):
    """Of the same order on both sides, though not C's."""
    tensor(N, C, grad=False).transpose(0, 1).copy_(tensor(N, C, grad=False).transpose(0, 1))


def cast(tc, tensor, N, C):
    tensor(N, C).float()


def reductions(tc, tensor, N, C):
    x = tensor(N, C, grad=False)
    x.sum(), x.sum(0), x.sum(1), x.amax(1), x.argmax(1), x.argmax(0)


def embedding(tc, tensor, N, rows, C):
    indices = tc.tensor([i * 7 % rows for i in range(N)], device=tensor.device)
    tc.functional.embedding(indices, tensor(rows, C)).backward(tensor(N, C, grad=False))


def indexed(tc, tensor, N, rows, C):
    indices = tc.tensor([i * 7 % rows for i in range(N)], device=tensor.device)
    tensor(rows, C)[indices].backward(tensor(N, C, grad=False))


def written_rows(tc, tensor, N, rows, C):
    indices = tc.tensor([i * 7 % rows for i in range(N)], device=tensor.device)
    tensor(rows, C, grad=False)[indices] = tensor(N, C, grad=False)


def along_lines(tc, tensor, N, C):
    x, index = tensor(N, C), tc.tensor([[i % N for i in range(C)]] * N, device=tensor.device)
    x.gather(0, index).sum().backward()
    for options in ({}, {"reduce": "add"}, {"reduce": "multiply"}):
        x.detach().scatter(0, index, x.detach(), **options)
    x.detach().cumsum(0), x.detach().cumsum(1), tc.functional.global_max_pool1d(tensor(1, N, C)).sum().backward()


def sorted_rows(tc, tensor, N, C):
    tensor(N, C, grad=False).argsort()


def integers(tc, tensor, N, C):
    x = tensor(N, C, grad=False).long()
    x + x, x.sum(1), x.sum(0), x.amax(0), x.argmax(0), x @ x.T, tc.functional.one_hot(x[0], 4)


def corners(tc, tensor, N, C):
    tc.triu(tensor(N, C, grad=False))


def losses(tc, tensor, N, C):
    tc.functional.mse_loss(tensor(N, C), tensor(N, C)).backward()


def rotary(tc, tensor, B, H, T, d):
    tc.functional.rotary(tensor(B, H, T, d)).backward(tensor(B, H, T, d, grad=False))


def a_range(tc, tensor, length):
    (
        tc.arange(length, device=tensor.device),
        tc.arange(0, length / 8, 0.125, device=tensor.device),
        tc.linspace(0, 1, length, device=tensor.device),
    )


def activated(tc, tensor, M, N, K):
    tc._core.linear(tensor(M, K), tensor(N, K), tensor(N), "relu").backward(tensor(M, N, grad=False))


def dropped(tc, tensor, M, N, K):
    """A product with dropout and a residual in its epilogue."""
    y = tc._core.linear(tensor(M, K), tensor(N, K), tensor(N), "relu", tensor(M, N), dropout=0.1, seed=1, call=2)
    y.backward(tensor(M, N, grad=False))


def accumulated(tc, tensor, N, C):
    """A gradient that is added to the one that is there."""
    x = tensor(N, C)
    for _ in range(2):
        (x * 2).backward(tensor(N, C, grad=False))


def layer_norm(tc, tensor, N, C):
    tc.functional.layer_norm(tensor(N, C, grad=False), C, tensor(C, grad=False), tensor(C, grad=False))


def weight_gradient(tc, tensor, K, N, M):
    """Of a weight (N,M), summed over K rows: in chunks of them, by a GPU with many multiprocessors."""
    weight = tensor(N, M)
    tc.functional.linear(tensor(K, M, grad=False), weight).backward(tensor(K, N, grad=False))


def few_heads(tc, tensor, *shape):
    """Their gradients are shared among more blocks than one per tile."""
    attention(tc, tensor, *shape)


def one_query(tc, tensor, B, H, T, d):
    """Of few heads: each segment of the keys has blocks of its own."""
    tc.functional.scaled_dot_product_attention(tensor(B, H, 1, d), tensor(B, H, T, d), tensor(B, H, T, d))


def whole_query(tc, tensor, *shape):
    """The same, where there are blocks enough without."""
    one_query(tc, tensor, *shape)


def decoding(tc, tensor, heads, T, d):
    """A step of heads that share their keys."""
    keys = (tensor(1, 1, T, d, grad=False) for _ in range(2))
    tc.functional.scaled_dot_product_attention(tensor(1, heads, 1, d, grad=False), *keys, enable_gqa=True)


def attention_forward(tc, tensor, *shape):
    tc.functional.scaled_dot_product_attention(*(tensor(*shape, grad=False) for _ in range(3)))


def encoder_block(tc, tensor, B, T, C, H):
    """In one launch, without a record."""
    block = tc.EncoderBlock(C, H, 2 * C).to(getattr(tc, tensor.dtype)).to(tensor.device).eval()
    with tc.no_grad():
        block(tensor(B, T, C, grad=False))


def encoder_block_train(tc, tensor, B, T, C, H):
    """One launch forward and two backward: one computes all gradients, the other adds up those of parameters over the batch."""
    block = tc.EncoderBlock(C, H, 2 * C).to(getattr(tc, tensor.dtype)).to(tensor.device)
    block(tensor(B, T, C)).backward(tensor(B, T, C, grad=False))


def optimizer(tc, tensor, kind, *shape):
    parameter = tensor(*shape)
    parameter.grad = tensor(*shape, grad=False)
    steps = getattr(tc.optim, kind)([parameter], lr=0.1)
    tc.nn.utils.clip_grad_norm_([parameter], 1.0)
    steps.step()


CASES = [
    (product, BOTH, [(64, 64, 64), (70, 33, 40), (8, 96, 256)]),
    (linear, BOTH, [(128, 96, 64), (33, 48, 32)]),
    (few_rows, ["bfloat16"], [(1, 64, 1024), (9, 40, 136)]),
    (qkv_projection, BOTH, [(2, 24, 32, 4)]),
    (attention, BOTH, [(1, 2, 48, 32), (1, 1, 40, 64)]),
    (attention, ["float32"], [(1, 1, 40, 160)]),  # by the plain kernel
    (causal_attention, ["float32"], [(1, 2, 48, 32)]),
    (uniform_attention, ["bfloat16"], [(1, 2, 16, 8)]),
    (add_layer_norm, BOTH, [(16, 256), (9, 33), (3, 1032)]),
    (dropout_layer_norm, BOTH, [(16, 256), (9, 33), (3, 1032)]),
    (rms_norm, BOTH, [(16, 256)]),
    (cross_entropy, BOTH, [(16, 100), (4, 1000)]),
    (softmax, BOTH, [(16, 100), (64, 16)]),
    (softmax_of_columns, ["float32"], [(16, 100)]),
    (unary, BOTH, [(4096,), (1001,)]),
    (binary, BOTH, [(32, 128), (7, 33)]),
    (bias, BOTH, [(32, 128)]),
    (dropout, BOTH, [(4096,), (1001,)]),
    (copied_columns, BOTH, [(32, 128), (7, 33)]),
    (transposed_copy, ["float32"], [(64, 48)]),
    (copied_flat, BOTH, [(32, 128)]),
    (cast, ["bfloat16"], [(32, 128)]),
    (reductions, ["float32"], [(64, 96), (2, 1000)]),
    (embedding, BOTH, [(48, 20, 64), (2100, 20, 4)]),
    (indexed, BOTH, [(48, 20, 64), (2100, 20, 4)]),
    (written_rows, ["float32"], [(48, 20, 64), (2100, 20, 4)]),
    (along_lines, ["float32"], [(40, 33)]),
    (sorted_rows, ["float32"], [(3, 300), (1, 2048), (1, 4096)]),
    (integers, ["float32"], [(40, 33)]),
    (corners, ["float32"], [(40, 33)]),
    (losses, BOTH, [(32, 128)]),
    (rotary, BOTH, [(1, 2, 24, 16)]),
    (a_range, ["float32"], [(1000,)]),
    (activated, BOTH, [(40, 33, 32)]),
    (accumulated, ["float32"], [(32, 128)]),
    (every_option, ["float32", "float16"], [(1, 2, 48, 32)]),
    (weight_gradient, BOTH, [(2048, 96, 32)]),
    (weight_gradient, ["float32"], [(3328, 64, 64)]),
    (few_heads, ["float32"], [(1, 1, 512, 64)]),
    (one_query, ["float32"], [(1, 1, 4096, 64)]),
    (optimizer, ["float32"], [("SGD", 1000), ("AdamW", 64, 65), ("RMSprop", 1000)]),
    (dropped, BOTH, [(40, 33, 32), (40, 64, 32)]),
]

# Of what tools/predict_kernels.py predicts, so many blocks as are soon counted. The GPU has one multiprocessor here: no sum is split, as in large
# products.
TYPICAL = [
    (product, ["float32"], [(64, 64, 32), (128, 128, 768)]),
    (medium_product, ["float32"], [(128, 128, 768), (64, 64, 32)]),
    (high_product, ["float32"], [(128, 128, 768)]),
    (product, ["bfloat16", "float16"], [(128, 128, 768)]),
    (product, ["bfloat16"], [(128, 128, 4096)]),
    (layer_norm, ["float32"], [(1024, 768)]),
    (layer_norm, ["float16"], [(1024, 1024)]),
    (attention, ["float32"], [(2, 4, 16, 8), (1, 1, 128, 64), (1, 1, 512, 64)]),
    (attention, ["bfloat16"], [(2, 4, 16, 8), (1, 1, 64, 64), (1, 1, 128, 64), (1, 1, 512, 64), (1, 1, 512, 128)]),
    (attention_forward, ["bfloat16"], [(1, 1, 512, 64), (1, 1, 512, 128), (1, 1, 512, 256), (2, 4, 16, 8)]),
    (decoding, ["bfloat16"], [(8, 4096, 128)]),
    (whole_query, ["float32"], [(1, 1, 4096, 64)]),
    (add_layer_norm, ["float32"], [(2048, 32), (1024, 768)]),
    (dropout_layer_norm, ["float32"], [(2048, 32), (1024, 768)]),
    (dropout_layer_norm, ["bfloat16"], [(1024, 768)]),
    (unary, ["float32"], [(65536,)]),
    (binary, ["float32"], [(64, 1024)]),
    (encoder_block, BOTH, [(2, 16, 32, 4)]),
    (encoder_block_train, BOTH, [(2, 16, 32, 4)]),
    (optimizer, ["float32"], [("AdamW", 64, 1024)]),
    (cross_entropy, ["float32"], [(2048, 10), (8, 30522)]),
]
CASES_BY_MULTIPROCESSORS = {108: CASES, 1: TYPICAL}


class Tensors:
    """Makes Tensors of a shape with the values 0, 1/8, 2/8, ... 15/8, 0, ..."""

    def __init__(self, tc, device, dtype):
        self.tc, self.device, self.dtype = tc, device, dtype

    def __call__(self, *shape, grad=True):
        import numpy as np

        values = (np.arange(np.prod(shape)).reshape(shape) % 16 / 8).astype(np.float32)
        return self.tc.tensor(values, dtype=getattr(self.tc, self.dtype), device=self.device, requires_grad=grad)


# ---- counting: in a process of its own, since a process opens one CUDA library ----


def read(report):
    """{kernel: {column: count}} of what count.cpp reports."""
    (_, *columns), *rows = (line.split("\t") for line in report.splitlines())
    return {
        row[0].replace("{anonymous}::", "").replace("tc::", "").replace("> >", ">>"): dict(zip(columns, map(int, row[1:]), strict=True))
        for row in rows
    }


def count_here(multiprocessors):
    """{case: {kernel: {column: count}}} of the cases for so many, with the library of TRANSFORMER_C_CUDA_LIBRARY."""
    import transformer_c as tc
    from cuda_library import EmulatedLibrary

    library, device, counts = EmulatedLibrary(os.environ["TRANSFORMER_C_CUDA_LIBRARY"]), "cuda:emulated", {}
    library.set_multiprocessors(multiprocessors)
    for run, dtypes, shapes in CASES_BY_MULTIPROCESSORS[multiprocessors]:
        for dtype in dtypes:
            for shape in shapes:
                tc.cuda.synchronize(device)
                library.counts()
                run(tc, Tensors(tc, device, dtype), *shape)
                tc.cuda.synchronize(device)
                counts[name_of(run, dtype, shape)] = read(library.counts())
    return counts


def name_of(run, dtype, shape):
    return f"{run.__name__} {dtype} {'x'.join(map(str, shape))}"


def count():
    """The same of all, counted by other processes."""
    environment, counts = {**os.environ, "TRANSFORMER_C_CUDA_LIBRARY": str(emulation.kernel_library("count"))}, {}
    for multiprocessors in CASES_BY_MULTIPROCESSORS:
        done = subprocess.run([sys.executable, __file__, "--here", str(multiprocessors)], capture_output=True, text=True, env=environment)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        counts |= json.loads(done.stdout)
    return counts


# ---- the committed counts ----


def compiler_version():
    """Counts of kernels depend on the registers that a compiler takes: "g++ 12"."""
    version = subprocess.run([*emulation.compiler(), "-dumpversion"], capture_output=True, text=True, check=True).stdout
    return f"{pathlib.Path(emulation.compiler()[0]).name.split('-')[0]} {version.split('.')[0].strip()}"


def committed():
    """The compiler, and the counts as count() has them."""
    saved = json.loads(COMMITTED.read_text())
    rows = {
        case: {kernel: dict(zip(saved["columns"], row, strict=True)) for kernel, row in kernels.items()}
        for case, kernels in saved["counts"].items()
    }
    return saved["compiler"], rows


def write(counts):
    columns = list(next(iter(next(iter(counts.values())).values())))
    lines = [
        f"  {json.dumps(case)}: {{\n"
        + ",\n".join(f"   {json.dumps(kernel)}: {json.dumps(list(row.values()))}" for kernel, row in sorted(kernels.items()))
        + "}"
        for case, kernels in counts.items()
    ]
    COMMITTED.write_text(
        f'{{"compiler": {json.dumps(compiler_version())},\n "columns": {json.dumps(columns)},\n "counts": {{\n' + ",\n".join(lines) + "}}\n"
    )


def differences(before, now):
    """What rose and what is otherwise not as it was, each a list of lines."""
    rises, others = [], []
    for case in sorted({*before, *now}):
        old, new = before.get(case, {}), now.get(case, {})
        if not old or not new:
            others.append(f"{case}: {'is not counted any more' if old else 'has no committed counts'}")
            continue
        for kernel in sorted({*old, *new}):
            if kernel not in new or kernel not in old:
                (others if kernel in old else rises).append(f"{case}: {kernel} is {'not launched any more' if kernel in old else 'new'}")
                continue
            for column, count in new[kernel].items():
                line = f"{case}: {kernel}: {column} {old[kernel][column]} -> {count}"
                if count != old[kernel][column]:
                    (rises if count > old[kernel][column] else others).append(line)
    return rises, others


def main():
    if "--here" in sys.argv:
        print(json.dumps(count_here(int(sys.argv[-1]))))
        return 0
    now = count()
    if "--write" in sys.argv:
        write(now)
        return 0
    compiler, before = committed()
    rises, others = differences(before, now)
    print(f"committed by {compiler}, now {compiler_version()}", *rises, *others, sep="\n")
    return int(bool(rises or others))


if __name__ == "__main__":
    sys.exit(main())
