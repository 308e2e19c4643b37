"""What the GPU's planners choose, what forces another choice, and what is known of it afterwards."""

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
