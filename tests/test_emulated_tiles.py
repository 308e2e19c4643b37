"""Split products from Python to the kernels, on any processor: a build with no instruction set but the baseline and tile instructions in plain
C. tests/ops/test_split_products.py is for processors that have them; an emulated product of two tiles takes 60 us."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = """
import numpy as np
import transformer_c as tc
from transformer_c import _core

def is_accurate(got, a, b, limit):
    exact, size = a.astype(np.float64) @ b.astype(np.float64), np.abs(a).astype(np.float64) @ np.abs(b)
    assert np.max(np.abs(got - exact) / size) < limit, np.max(np.abs(got - exact) / size)

def variant():
    return tc.config.last_plans("cpu")["gemm"]["variant"]

def plain_of(x, weight):
    _core.cpu_select("baseline")
    try:
        return _core.linear(x, weight, sequence_lengths=len(x))
    finally:
        _core.cpu_select("avx512_bf16")

assert _core.cpu_isa() == "amx"
rng = np.random.default_rng(0)
x, weight = (rng.standard_normal((n, 384)).astype(np.float32) for n in (131, 385))
lengths, long = [1, 128, 2], slice(1, 129)
y = tc.functional.linear(tc.tensor(x), tc.tensor(weight), sequence_lengths=lengths).numpy()
assert variant() != "tiles x 6"  # of the last rows
is_accurate(y, x, weight.T, 4e-7)
alone = _core.linear(x[long], weight, sequence_lengths=128)
assert variant() == "tiles x 6" and np.array_equal(alone, y[long])
plain = _core.linear(x, weight)
assert variant() != "tiles x 6" and np.array_equal(plain[129:], y[129:]) and np.array_equal(plain[:1], y[:1])
assert not np.array_equal(plain[long], y[long])
dy = rng.standard_normal((131, 385)).astype(np.float32)
is_accurate(_core.linear_backward(dy, x, weight, sequence_lengths=lengths)[0], dy, weight, 4e-7)
tc.set_float32_precision("high")
a, b = (rng.standard_normal((n, 130)).astype(np.float32) for n in (330, 140))
is_accurate(_core.linear(a, b), a, b.T, 2e-5)
assert variant() == "tiles x 3"
a[7, 3] = np.inf
assert np.array_equal(np.isfinite(_core.linear(a, b)).all(1), np.arange(330) != 7)
dy, x, weight = (tc.tensor(rng.standard_normal(shape).astype(np.float32)).bfloat16() for shape in ((70, 200), (70, 180), (200, 180)))
gradients = _core.linear_backward(dy, x, weight)
assert variant() == "tiles"
dy, x, weight = (t.float().numpy() for t in (dy, x, weight))
for got, exact in zip(gradients, (dy.astype(float) @ weight, dy.T.astype(float) @ x, dy.sum(0, dtype=float)), strict=True):
    np.testing.assert_allclose(got.float().numpy(), exact, rtol=2.0**-8, atol=1e-4)

_core.cpu_select("avx512_bf16")
tc.set_float32_precision("highest")
x, weight = (rng.standard_normal((n, 384)).astype(np.float32) for n in (131, 385))
assert np.array_equal(_core.linear(x, weight, sequence_lengths=131), plain_of(x, weight)) and "dots" not in variant()
tc.set_float32_precision("medium")
a, b = (rng.standard_normal((n, 130)).astype(np.float32) for n in (330, 140))
is_accurate(_core.linear(a, b), a, b.T, 8e-3)
assert variant() == "dots"
a, b = (tc.tensor(rng.standard_normal(shape).astype(np.float32)).bfloat16() for shape in ((40, 330), (330, 300)))
whole = tc.matmul(a, b)
assert variant() == "dots"
is_accurate(whole.double().numpy(), a.double().numpy(), b.double().numpy(), 2.0**-8)
for rows in (1, 2, 3, 7, 13, 16):
    assert tc.equal(tc.matmul(a[:rows], b), whole[:rows]) and variant() == "dots, strips"
assert tc.equal(tc.matmul(a[:5], b[:, 50:150]), whole[:5, 50:150]) and variant() == "dots"
assert tc.equal(tc.functional.linear(a, b.T.contiguous()), whole)
"""


@pytest.mark.minutes
def test_split_products_with_emulated_tiles(tmp_path):
    package = tmp_path / "python" / "transformer_c"
    package.mkdir(parents=True)
    for path in (ROOT / "python" / "transformer_c").iterdir():
        if not path.name.startswith("_core.cpython"):
            (package / path.name).symlink_to(path)
    env = {
        **os.environ, "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1", "TRANSFORMER_C_BUILD_ISAS": "baseline",
        "TRANSFORMER_C_CFLAGS": "-O0 -ftls-model=global-dynamic -DTC_EMULATE_TILES", "TRANSFORMER_C_OBJECTS": str(tmp_path / "objects"),
        "TRANSFORMER_C_ISA": "amx",
    }  # fmt: skip
    for name in ("TRANSFORMER_C_SANITIZE", "TRANSFORMER_C_WERROR"):
        env.pop(name, None)
    build = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(package.parent), "--build-temp", str(tmp_path / "build")]
    subprocess.run(build, cwd=ROOT, env=env, check=True)
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
