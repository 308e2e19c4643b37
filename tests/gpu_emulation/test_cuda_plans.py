"""What the GPU's planners choose, what forces another choice, and what is known of it afterwards."""

import ast
import json
import os
import pathlib
import subprocess
import sys

import pytest
import transformer_c as tc


def test_what_ran_last_is_known(emulated_gpu):
    x = tc.randn(700, 8, rng=0).to(emulated_gpu)
    q = tc.randn(1, 1, 400, 4, rng=1).to(emulated_gpu).requires_grad_()
    try:
        tc.set_float32_precision("high")
        tc.matmul(x.permute(1, 0), x)
    finally:
        tc.set_float32_precision("highest")
    tc.scaled_dot_product(q, q, q)[0].sum().backward()
    plans = tc.config.last_plans(emulated_gpu)
    assert plans["gemm"] == {"variant": "tf32 x 3", "splits": 1, "float32_precision": "high"}
    assert plans["attention_backward"] == {"variant": "float32", "splits": 6, "float32_precision": "highest"}
    ran = tc.cuda.last_variants()
    assert ran == {kernel: plan["variant"] for kernel, plan in plans.items()} and ran["attention_forward"] == "float32"


def test_float32_products_use_tf32_where_it_is_allowed(emulated_gpu):
    """With the errors that the documentation names; a row has the same bits among any others. Float64 is not concerned, nor are rows that do not
    begin at multiples of 16 bytes."""
    a, b = tc.randn(70, 92, rng=0).to(emulated_gpu), tc.randn(33, 92, rng=1).to(emulated_gpu)
    exact, sizes = (f(a.cpu().numpy().astype(float)) @ f(b.cpu().numpy().astype(float)).T for f in (lambda x: x, abs))
    errors, ran = {}, {}
    try:
        for precision in ("highest", "high", "medium"):
            tc.set_float32_precision(precision)
            c = tc.matmul(a, b.permute(1, 0)).cpu().numpy()
            ran[precision] = tc.cuda.last_variants()["gemm"]
            errors[precision] = (abs(c - exact) / sizes).max()
            assert (tc.matmul(a[:1], b.permute(1, 0)).cpu().numpy() == c[:1]).all()
        for x in (a.double(), a[:, :90]):
            tc.matmul(x, x.permute(1, 0))
            assert tc.cuda.last_variants()["gemm"] == "plain"
    finally:
        tc.set_float32_precision("highest")
    assert ran == {"highest": "plain", "high": "tf32 x 3", "medium": "tf32"}
    assert errors["highest"] < 1e-6 and errors["high"] < 2e-6 and 1e-5 < errors["medium"] < 2.0**-10


SPLITS = """
import cuda_library, hashlib, json, sys, numpy as np, transformer_c as tc
cuda_library.EmulatedLibrary(sys.argv[1]).set_multiprocessors(int(sys.argv[2]))
values = np.random.default_rng(0).standard_normal((6144, 70)).astype(np.float32)

def product(K, M, N, of_rows):
    "A forward, or the gradient of a weight (N,M): how many chunks its sum over K is split into, and its bits."
    x, w = (tc.tensor(values[:K, :size], device="cuda:emulated") for size in (M, N))
    if of_rows:
        weight = tc.zeros(N, M, device="cuda:emulated", requires_grad=True)
        tc.functional.linear(x, weight).backward(w)
        c = weight.grad
    else:
        c = tc.matmul(x.permute(1, 0).contiguous(), w)
    splits = tc.config.last_plans("cuda:emulated")["gemm"]["splits"]
    return splits, hashlib.sha256(c.cpu().numpy().tobytes()).hexdigest()

print(json.dumps([product(K, M, N, of_rows) for K, M, N in [(6144, 64, 64), (6144, 70, 70), (900, 20, 20), (500, 9, 9)] for of_rows in (0, 1)]))
"""


def run(program, library, multiprocessors):
    """The columns of what it prints."""
    own = {
        "TRANSFORMER_C_CUDA_LIBRARY": library,
        "PYTHONPATH": os.pathsep.join([str(pathlib.Path(__file__).parent), str(pathlib.Path(tc.__file__).parents[1])]),
    }
    command = [sys.executable, "-c", program, library, str(multiprocessors)]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return tuple(zip(*json.loads(done.stdout), strict=True))


@pytest.mark.whole
def test_sums_are_split_for_the_number_of_multiprocessors(emulated_library):
    """Forwards into their blocks of k, which changes no bit; the gradients of weights so that every multiprocessor has blocks enough."""
    library = emulated_library.library._name
    (few, few_bits), (many, many_bits) = (run(SPLITS, library, count) for count in (4, 132))
    # 64x64: 1 tile | 70x70: 4 tiles, of its gradient a large one | 20x20 | 500 terms
    assert few == (16, 16, 1, 4, 3, 3, 1, 1)
    assert many == (16, 24, 16, 24, 3, 3, 1, 1)
    assert few_bits[::2] == many_bits[::2]
    assert few_bits == run(SPLITS, library, 4)[1]


SHARES = """
import cuda_library, hashlib, json, sys, numpy as np, transformer_c as tc
cuda_library.EmulatedLibrary(sys.argv[1]).set_multiprocessors(int(sys.argv[2]))
rng = np.random.default_rng(0)

def gradients(H, Hk, Tq, Tk, dtype):
    "How many shares the tiles are in at most, the gradients' bits, and how far they are from those of the CPU."
    results = []
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in ((1, H, Tq, 4), (1, Hk, Tk, 4), (1, Hk, Tk, 4), (1, H, Tq, 4))]
    for device in ("cpu", "cuda:emulated"):
        q, k, v = (tc.tensor(a, device=device, requires_grad=True) for a in arrays[:3])
        tc.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != Hk).backward(tc.tensor(arrays[3], device=device))
        results.append([x.grad.cpu().numpy() for x in (q, k, v)])
    splits = tc.config.last_plans("cuda:emulated")["attention_backward"]["splits"]
    bits = hashlib.sha256(b"".join(x.tobytes() for x in results[1])).hexdigest()
    return splits, bits, float(max(abs(a - b).max() for a, b in zip(*results)))

shapes = [(1, 1, 300, 300, "float32"), (2, 1, 100, 400, "float32"), (1, 1, 190, 190, "float32"), (1, 1, 130, 130, "float64"), (6, 6, 200, 200, "float32"),
          (1, 1, 128, 128, "float32")]
print(json.dumps([gradients(*shape) for shape in shapes]))
"""


@pytest.mark.whole
def test_gradients_of_few_heads_are_shared_among_multiprocessors(emulated_library):
    """Two tiles of keys or queries each at least; not where there are blocks enough. A GPU has the same bits every time."""
    library = emulated_library.library._name
    few, many, again = (run(SHARES, library, count) for count in (8, 132, 132))
    #                    5 tiles | dq: 7 tiles | 3 tiles | 5 of float64 | 24 blocks | 2 tiles
    assert many[0] == (5, 6, 3, 2, 3, 2) and many == again
    assert few[0] == (1, 2, 2, 1, 1, 2)
    assert max(*many[2], *few[2]) < 1e-4


HALVES = """
import cuda_library, json, sys, numpy as np, transformer_c as tc
cuda_library.EmulatedLibrary(sys.argv[1]).set_multiprocessors(int(sys.argv[2]))
rng = np.random.default_rng(0)

def gradients(H, Hk, Tq, Tk, width, dtype):
    "Which variant computes them, in how many shares at most, and how far they are from those of the CPU."
    results = []
    arrays = [rng.standard_normal(shape).astype("float32") for shape in ((1, H, Tq, width), *[(1, Hk, Tk, width)] * 2, (1, H, Tq, width))]
    for device in ("cpu", "cuda:emulated"):
        q, k, v, dy = (tc.tensor(a, device=device, dtype=getattr(tc, dtype), requires_grad=True) for a in arrays)
        tc.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != Hk).backward(dy.detach())
        results.append([x.grad.float().cpu().numpy() for x in (q, k, v)])
    plan = tc.config.last_plans("cuda:emulated")["attention_backward"]
    return plan["variant"], plan["splits"], float(max(abs(a - b).max() / abs(a).max() for a, b in zip(*results)))

shapes = [(1, 1, 300, 300, 8, "float16"), (2, 1, 100, 70, 70, "bfloat16"), (4, 4, 20, 20, 8, "float16"), (1, 1, 5, 5, 136, "bfloat16")]
print(json.dumps([gradients(*shape) for shape in shapes]))
"""


@pytest.mark.whole
def test_gradients_of_halves_run_on_tensor_cores(emulated_library):
    """Where heads have at most 128 features; shared among multiprocessors as the plain ones."""
    variants, splits, errors = run(HALVES, emulated_library.library._name, 132)
    assert variants == ("tensor_cores", "tensor_cores", "tensor_cores", "plain")
    #                 10 tiles | dk, dv: 4 tiles | one tile
    assert splits == (5, 2, 1, 1)
    assert max(errors) < 0.02


SEGMENTS = """
import cuda_library, hashlib, json, sys, numpy as np, transformer_c as tc
cuda_library.EmulatedLibrary(sys.argv[1]).set_multiprocessors(int(sys.argv[2]))
rng = np.random.default_rng(0)
arrays = [rng.standard_normal((8, 2, T, 4)).astype("float32") for T in (1, 600, 600)]
rows = [rng.standard_normal((1, 2, 640, 4)).astype("float32") for _ in range(3)]

def values(arrays, **options):
    "How many segments of the keys have blocks of their own (1: none), and the bits of the first sequence."
    q, k, v = (tc.tensor(a, device="cuda:emulated") for a in arrays)
    out = tc.functional.scaled_dot_product_attention(q, k, v, **options).cpu().numpy()
    splits = tc.config.last_plans("cuda:emulated")["attention_forward"]["splits"]
    return splits, hashlib.sha256(out[:1, :, :1].tobytes()).hexdigest()

print(json.dumps([
    values([a[:1] for a in arrays]),
    values(arrays),
    values([arrays[0][:1], *(a[:1, :, :256] for a in arrays[1:])]),
    values(arrays, key_lengths=tc.tensor([0] * 8, device="cuda:emulated"), empty_rows="uniform"),
    values(rows, sequence_lengths=[600, 0, 40], is_causal=True),
]))
"""


@pytest.mark.whole
def test_few_queries_have_blocks_for_each_segment_of_the_keys(emulated_library):
    """Where blocks are missing; no bit depends on it, so none on the other sequences or on the multiprocessors."""
    library = emulated_library.library._name
    (few, few_bits), (many, many_bits) = (run(SEGMENTS, library, count) for count in (4, 132))
    #      2 blocks | 16 | one segment | rows without a key | packed: 60 blocks
    assert few == (3, 1, 1, 1, 1)
    assert many == (3, 3, 1, 1, 3)
    assert few_bits == many_bits and few_bits[0] == few_bits[1]


VARIANTS = """
import cuda_library, sys, transformer_c as tc
cuda_library.EmulatedLibrary(sys.argv[1]).set_compute_capability(*map(int, sys.argv[2]))

def ran(dtype, M, N, K):
    "Which variant computed y = x w^T, and in how many chunks; the same of the weight's gradient."
    x, w, dy = (tc.ones(*shape, device="cuda:emulated").to(getattr(tc, dtype)) for shape in ((M, K), (N, K), (M, N)))
    y = tc.functional.linear(x, w.requires_grad_())
    plans = [tc.config.last_plans("cuda:emulated")["gemm"]]
    y.backward(dy)
    plans.append(tc.config.last_plans("cuda:emulated")["gemm"])
    return [(plan["variant"], plan["splits"]) for plan in plans]

print([ran(*case) for case in (("bfloat16", 1, 16, 16), ("bfloat16", 768, 8, 16), ("float16", 2, 5, 16), ("float16", 3, 8, 9), ("float32", 2, 8, 8))])
"""


def of_library(program, library, argument):
    own = {
        "TRANSFORMER_C_CUDA_LIBRARY": library,
        "PYTHONPATH": os.pathsep.join([str(pathlib.Path(__file__).parent), str(pathlib.Path(tc.__file__).parents[1])]),
    }
    done = subprocess.run([sys.executable, "-c", program, library, argument], env={**os.environ, **own}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ast.literal_eval(done.stdout)


@pytest.mark.whole
def test_tensor_cores_compute_halves_whose_rows_are_aligned(emulated_library):
    """With any number of rows; from capability 8.0 on. A forward is never split, a weight's gradient by the multiprocessors."""
    library, tensor, plain = emulated_library.library._name, ("tensor_cores", 1), ("plain", 1)
    #         5 columns: its weight's gradient cannot be copied | rows of 9
    expected = [[tensor, tensor], [tensor, ("tensor_cores", 3)], [tensor, plain], [plain, plain], [plain, plain]]
    assert of_library(VARIANTS, library, "80") == of_library(VARIANTS, library, "90") == expected
    assert {name for pair in of_library(VARIANTS, library, "75") for name, _ in pair} == {"plain"}


ROWS = """
import cuda_library, numpy as np, sys, transformer_c as tc
library = cuda_library.EmulatedLibrary(sys.argv[1])
library.set_multiprocessors(int(sys.argv[2]))
x, w = (tc.tensor(np.random.default_rng(size).standard_normal((size, 72)), device="cuda:emulated").to(tc.bfloat16) for size in (130, 80))

def rows(count):
    "The bits of the first row of so many, and the kernel that computed them."
    library.launches()
    y = tc.functional.linear(x[:count], w)[:1].to(tc.float32).cpu().numpy()
    (kernel,) = [name for name in library.launches() if "gemm" in name]
    return y.tobytes().hex(), kernel.split(", ")[1]

print([rows(count) for count in (1, 33, 65, 130)])
"""


@pytest.mark.whole
def test_a_row_has_the_same_bits_in_the_tile_of_any_number_of_rows(emulated_library):
    """Also on a GPU with fewer multiprocessors, which takes large tiles earlier."""
    one, many = (of_library(ROWS, emulated_library.library._name, count) for count in ("1", "132"))
    assert [tile for _, tile in one] == ["16", "64", "128", "128"] and [tile for _, tile in many] == ["16", "64", "64", "64"]
    assert len({bits for bits, _ in (*one, *many)}) == 1


@pytest.mark.parametrize(
    "named, said",
    [
        ("plain", "(2, 2)"),
        ("", "(2, 2)"),
        ("wgmma", "TRANSFORMER_C_CUDA_VARIANT: 'wgmma' is not a variant"),
        ("tensor_cores", "TRANSFORMER_C_CUDA_VARIANT: this call of gemm cannot use 'tensor_cores', which needs halves"),
    ],
)
def test_a_variant_can_be_forced(emulated_library, named, said):
    code = """
import transformer_c as tc
x = tc.exp(tc.ones(2, 2, device="cuda:emulated"))  # a kernel that leaves no choice
try:
    print(tc.matmul(x, x).shape)
except ValueError as error:
    print(error)
"""
    own = {
        "TRANSFORMER_C_CUDA_VARIANT": named,
        "TRANSFORMER_C_CUDA_LIBRARY": emulated_library.library._name,
        "PYTHONPATH": str(pathlib.Path(tc.__file__).parents[1]),
    }
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **own}, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(said), done.stdout
    assert "of gemm; expected one of: tensor_cores, tf32, tf32 x 3, plain" in done.stdout or named != "wgmma"
