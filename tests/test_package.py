"""The package as a whole: a quick import, and global settings."""

import functools
import inspect
import os
import resource
import statistics
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import transformer_c as tc

HEAVY = ["tqdm", "matplotlib", "safetensors", "torch", "scipy", "sklearn", "h5py", "zipfile", "csv", "logging", "subprocess", "hashlib", "onnx"]  # fmt: skip


@functools.cache
def _modules_after(code: str) -> set[str]:
    program = f"import sys, numpy; before = set(sys.modules); {code}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_nothing_heavy_is_loaded():
    assert not _modules_after("import transformer_c") & {*HEAVY, "transformer_c.testing.reference"}


def _processor_seconds(code: str, environment: dict[str, str]) -> float:
    """Of a process that runs `code`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.alone
@pytest.mark.unsanitized
def test_the_import_takes_at_most_one_and_a_half_times_that_of_numpy(tmp_path):
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}  # compiled modules, as an installed package has them
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    codes = ("import numpy", "import transformer_c")
    seconds = [[_processor_seconds(code, environment) for code in codes] for _ in range(12)]
    ratios = [ours / numpy for numpy, ours in seconds[1:]]  # of neighbours, as a shared machine's clock changes
    assert statistics.median(ratios) <= 1.5, ratios


@pytest.mark.parametrize("name", sorted(tc._LATER))
def test_what_comes_later_comes(name):
    module = f"transformer_c.{tc._LATER[name] or name}"
    assert module not in _modules_after("import transformer_c")
    assert module in _modules_after(f"import transformer_c as tc; tc.{name}")
    assert name in dir(tc) and (name in tc.__all__ or name == "sklearn")


def test_a_star_import_needs_no_extra():
    """All names but those of modules that need a package that is not installed with this one."""
    hidden = "import sys; sys.modules.update(dict.fromkeys(['sklearn', 'matplotlib', 'torch', 'onnx', 'mpi4py', 'h5py', 'scipy', 'PIL']))"
    code = f"{hidden}; from transformer_c import *; print(Trainer.__name__, plot.__name__, export_onnx.__name__, 'sklearn' in globals())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["Trainer", "transformer_c.plot", "export_onnx", "False"], done.stderr


def test_the_float32_precision_reaches_the_plan_of_products_and_small_ones_do_not_use_it():
    a = tc.randn(64, 64, rng=0)
    full = tc.matmul(a, a).numpy().copy()
    try:
        for precision in ("medium", "high", "highest"):
            tc.set_float32_precision(precision)
            assert tc.get_float32_precision() == precision and precision in tc.config.config()["float32 products"]
            assert (tc.matmul(a, a).numpy() == full).all()
            assert tc.config.last_plans()["gemm"]["float32_precision"] == precision
    finally:
        tc.set_float32_precision("highest")


def _plan_of_a_product(a, b):
    tc.matmul(a, b)
    plan = tc.config.last_plans("cpu")["gemm"]
    return plan["variant"], plan["splits"]


def test_the_plan_of_a_product_says_how_its_operand_is_read():
    x = tc.randn(200, 40, rng=0)
    square = tc.randn(40, 40, rng=1)
    assert _plan_of_a_product(x, square) == ("rows", 1)
    assert _plan_of_a_product(x, square.T) == ("panels", 1)
    assert _plan_of_a_product(square, square.T) == ("strided", 1)
    large = tc.zeros(1024, 1024)
    assert _plan_of_a_product(large[:16], large) == ("strips", 1)
    assert _plan_of_a_product(large[:17], large) == ("rows", 1)
    rows = tc.randn(2048, 8, rng=2)
    assert _plan_of_a_product(rows.T, rows) == ("rows, split k", 6)  # blocks of k
    with tc.no_grad():
        tc.functional.linear(x[:50], square)  # a weight that is not trained: its panels are kept
    assert tc.config.last_plans()["gemm"]["variant"] == "panels"


def test_the_plan_of_attention_says_when_queries_are_shared_out():
    for length, expected in ((40, ("tiled", 1)), (400, ("shares of queries", 2))):
        q = tc.randn(1, 1, length, 8, rng=0).requires_grad_()
        tc.scaled_dot_product(q, q, q)[0].sum().backward()
        plan = tc.config.last_plans()["attention_backward"]
        assert (plan["variant"], plan["splits"]) == expected
    assert tc.config.last_plans()["attention_forward"]["variant"] == "tiled"


def test_a_threads_own_variables_are_few():
    """They are reserved when the extension is loaded (setup.py), from some 1,600 bytes that glibc has for all extensions together."""
    data = Path(tc._core.__file__).read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        pytest.skip("no ELF file of 64 bits")
    start, size, count = *struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<IIQQQQQQ", data, start + i * size) for i in range(count)]
    assert sum(header[6] for header in headers if header[0] == 7) <= 192  # p_memsz of PT_TLS


def test_arrays_of_an_impossible_length():
    for bounds in ((2**63 - 1,), (2**63,), (0.0, 2.0**63), (2**200,), (-(2**200), 0), (0, 1.0, 1e-30)):
        with pytest.raises(ValueError, match="do not fit in 62 bits"):
            tc.arange(*bounds)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("scaled_dot_product", "q k v mask"),
        ("MultiheadAttention", "input_dim embed_dim num_heads"),
        ("EncoderBlock", "input_dim num_heads dim_feedforward dropout"),
        ("TransformerEncoder", "num_layers"),
        ("PositionalEncoding", "d_model max_len"),
        ("CosineWarmupScheduler", "optimizer warmup max_iters"),
        ("TransformerPredictor", "input_dim model_dim num_classes num_heads num_layers lr warmup max_iters dropout input_dropout"),
    ],
)
def test_signatures_of_the_tutorial(name, arguments):
    """What help() and editors show, and in the tutorial's order."""
    shown = list(inspect.signature(getattr(tc, name)).parameters)
    assert shown[: len(arguments.split())] == arguments.split()
