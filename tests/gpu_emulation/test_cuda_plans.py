"""What the GPU's planners choose, what forces another choice, and what is known of it afterwards."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import transformer_c as tc


def test_what_ran_last_is_known(emulated_gpu):
    x = tc.randn(700, 5, rng=0).to(emulated_gpu)
    q = tc.randn(1, 1, 400, 4, rng=1).to(emulated_gpu).requires_grad_()
    try:
        tc.set_float32_precision("high")
        tc.matmul(x.permute(1, 0), x)
    finally:
        tc.set_float32_precision("highest")
    tc.scaled_dot_product(q, q, q)[0].sum().backward()
    plans = tc.config.last_plans(emulated_gpu)
    assert plans["gemm"] == {"variant": "plain", "splits": 2, "float32_precision": "high"}
    assert plans["attention_backward"] == {"variant": "plain", "splits": 1, "float32_precision": "highest"}
    ran = tc.cuda.last_variants()
    assert ran == {kernel: plan["variant"] for kernel, plan in plans.items()} and ran["attention_forward"] == "plain"


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


def splits_and_bits(library, multiprocessors):
    own = {
        "TRANSFORMER_C_CUDA_LIBRARY": library,
        "PYTHONPATH": os.pathsep.join([str(pathlib.Path(__file__).parent), str(pathlib.Path(tc.__file__).parents[1])]),
    }
    command = [sys.executable, "-c", SPLITS, library, str(multiprocessors)]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return tuple(zip(*json.loads(done.stdout), strict=True))


def test_sums_are_split_for_the_number_of_multiprocessors(emulated_library):
    """Forwards into their blocks of k, which changes no bit; the gradients of weights so that every multiprocessor has blocks enough."""
    library = emulated_library.library._name
    (few, few_bits), (many, many_bits) = (splits_and_bits(library, count) for count in (4, 132))
    #             64x64: 1 tile | 70x70: 4 tiles | 20x20   | 500 terms
    assert few == (16, 8, 1, 1, 3, 3, 1, 1)
    assert many == (16, 24, 16, 24, 3, 3, 1, 1)
    assert few_bits[::2] == many_bits[::2]
    assert few_bits == splits_and_bits(library, 4)[1]


@pytest.mark.parametrize(
    "named, said", [("plain", "(2, 2)"), ("", "(2, 2)"), ("wgmma", "TRANSFORMER_C_CUDA_VARIANT: 'wgmma' is not a variant")]
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
    assert "of gemm; expected one of: plain" in done.stdout or named != "wgmma"
