"""The package as such: a quick import, and settings that hold for all of it."""

import subprocess
import sys

import pytest
import transformer_c as tc

HEAVY = ["tqdm", "matplotlib", "safetensors", "torch", "scipy", "sklearn", "h5py", "zipfile", "csv", "logging", "subprocess", "hashlib"]


def _modules_after(code: str) -> set[str]:
    program = f"import sys, numpy; before = set(sys.modules); {code}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_nothing_heavy_is_loaded():
    assert not _modules_after("import transformer_c") & set(HEAVY)


@pytest.mark.parametrize("name", sorted(tc._LATER))
def test_what_comes_later_comes(name):
    module = f"transformer_c.{tc._LATER[name] or name}"
    assert module not in _modules_after("import transformer_c")
    assert module in _modules_after(f"import transformer_c as tc; tc.{name}")
    assert name in dir(tc) and name in tc.__all__


def test_the_float32_precision_is_a_permission_that_products_on_the_cpu_do_not_use():
    a = tc.randn(64, 64, rng=0)
    full = tc.matmul(a, a).numpy().copy()
    try:
        for precision in ("medium", "high", "highest"):
            tc.set_float32_precision(precision)
            assert tc.get_float32_precision() == precision and precision in tc.config.config()["float32 products"]
            assert (tc.matmul(a, a).numpy() == full).all()
    finally:
        tc.set_float32_precision("highest")
