"""Each step of docs/adding-an-op.md is taken away in turn, on a copy of the sources: a check of test_structure.py names what is missing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import op_lists
import pytest

ROOT = Path(__file__).parents[1]
COPIED = ("csrc/**/*", "python/**/*.py*", "tests/**/*.py", "docs/*.md", "CHANGELOG.md")
# Ops that are one file in each layer.
OPS = ("layer_norm", "rms_norm")
# Cases may be in the op's own file or in those that go over all ops.
CASES = ("tests/ops/*.py", "tests/gpu_emulation/test_cuda_*.py", "tests/test_memory_table.py")

# (the file as docs/adding-an-op.md names it, what is taken out of it, or None for the whole file, the check, what it says)
STEPS = [
    ("python/transformer_c/testing/reference.py", r"def <op>\(", op_lists.ops_without_a_reference, "reference does not have <op>"),
    ("python/transformer_c/testing/reference.py", r"def <op>_backward\(", op_lists.ops_without_a_reference, "does not have <op>_backward"),
    ("tests/ops/test_<op>.py", r"\b<op>", op_lists.ops_without_cases, "compares <op> with the reference"),
    ("csrc/kernels/<op>.h", r"\} tc_<op>_forward_args;", op_lists.rows_without_args, "the struct tc_<op>_forward_args"),
    ("csrc/kernels/cpu/<op>.c", None, op_lists.rows_without_a_kernel, "kernels/cpu defines <op>_forward"),
    (
        "csrc/kernels/kernels.def",
        r"^TC_KERNEL_ENTRY\(<op>_forward,.*\n",
        op_lists.kernels_without_a_row,
        "kernels.def has no row of <op>_forward",
    ),
    ("csrc/ops/<op>.c", None, op_lists.prototypes_without_a_definition, "nothing in csrc defines tc_<op>"),
    ("csrc/ops/<op>.c", None, op_lists.kernels_that_nobody_runs, "no op runs the kernel <op>_backward"),
    ("csrc/transformer_c.h", r"^TC_CHECKED tc_status tc_<op>\(", op_lists.calls_without_a_prototype, "does not declare tc_<op>"),
    ("csrc/ops/ops.def", r"^OP\(<op>(_\w+)?,(.|\n)*?(?=^OP\(|^/\*)", op_lists.ops_without_a_row, "no row that calls tc_<op>"),
    ("python/transformer_c/functional/*.py", r"(?<=^def )<op>(?=\()", op_lists.ops_without_a_public_function, "has a documented <op>"),
    ("python/transformer_c/_core.pyi", r"def <op>\(", op_lists.ops_without_a_stub, "_core.pyi does not have <op>;"),
    ("python/transformer_c/ops.pyi", r"def <op>_backward\(", op_lists.ops_without_a_stub, "ops.pyi does not have <op>_backward"),
    (
        "python/transformer_c/export/converters/*.py",
        r'"<op>"',
        op_lists.ops_without_a_converter,
        "WITHOUT of tests/test_export.py, has <op>",
    ),
    ("tests/ops/test_<op>.py", r"\b<op>\b", op_lists.ops_without_a_gradcheck, "no GRADCHECK, has <op>"),
    ("tests/ops/test_<op>.py", r"\b<op>", op_lists.ops_without_a_measured_memory, "no SAVED, has <op>"),
    ("docs/memory.md", r"^\| `<op>`.*\n", op_lists.ops_without_a_row_of_memory, "does not say what <op> keeps"),
    ("CHANGELOG.md", r"(?i)\b<words>\b", op_lists.ops_without_a_line_in_the_changelog, "CHANGELOG.md does not name <op>"),
    ("csrc/kernels/cuda/<op>.cu", None, op_lists.rows_without_a_gpu_kernel, "csrc/kernels/cuda has <op>_forward"),
    (
        "csrc/kernels/kernels.def",
        r"(?<=<op>_forward, )CUDA\w*",
        op_lists.rows_that_deny_a_gpu_kernel,
        "says that <op>_forward has no CUDA kernel",
    ),
    ("tests/ops/test_<op>.py", r"\b<op>", op_lists.ops_without_a_case_on_gpus, "no ON_DEVICES, has <op>"),
]
# A function of elements is a row of unary.def or binary.def; these steps remain.
FUNCTIONS = {"unary": "silu", "binary": "swiglu"}
STEPS_OF_FUNCTIONS = [
    ("tests/ops/test_<kind>.py", r'^    "<op>":.*\n', op_lists.rows_of_functions_without_cases, "test_<kind>.py has no row of"),
    ("tests/ops/test_gradcheck_all.py", r'"<op>"', op_lists.ops_without_a_gradcheck, "no GRADCHECK, has <op>"),
    ("docs/memory.md", r"`<op>`", op_lists.ops_without_a_row_of_memory, "does not say what <op> keeps"),
    ("python/transformer_c/export/converters/*.py", r'"<op>"|\b<op>=', op_lists.ops_without_a_converter, "has the function <op>"),
]
# No check of the text: what is timed is a choice, and tests/test_site.py asks the package itself for examples.
APART = {"benchmarks/<family>.py", "docs/examples/names.md"}


@pytest.fixture
def copy(tmp_path):
    """The sources, as links."""
    for pattern in COPIED:
        for path in ROOT.glob(pattern):
            target = tmp_path / path.relative_to(ROOT)
            if path.is_file() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.symlink(path, target)
    return tmp_path


def take_away(path, pattern):
    before = path.read_text()
    path.unlink()
    if pattern is not None:
        after = re.sub(pattern, "CPU" if "CUDA" in pattern else "gone", before, flags=re.M)
        path.write_text(after)
        return after != before
    return True


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("step", range(len(STEPS)), ids=lambda i: f"{STEPS[i][0]}-{STEPS[i][2].__name__}")
def test_a_missing_step_is_named(copy, op, step):
    file, pattern, check, said = STEPS[step]
    places = CASES if file == "tests/ops/test_<op>.py" else (file.replace("<op>", op),)
    pattern = pattern and pattern.replace("<op>", op).replace("<words>", op.replace("_", "[ _]"))
    assert any([take_away(path, pattern) for place in places for path in copy.glob(place)]), f"{places} have no {pattern}"
    expected = said.replace("<op>", op)
    assert any(expected in line for line in check(copy)), check(copy)


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("step", STEPS_OF_FUNCTIONS, ids=lambda step: step[0])
def test_a_missing_step_of_a_function_is_named(copy, kind, step):
    file, pattern, check, said = (
        part.replace("<kind>", kind).replace("<op>", FUNCTIONS[kind]) if isinstance(part, str) else part for part in step
    )
    assert any([take_away(path, pattern) for path in copy.glob(file)]), f"{file} has no {pattern}"
    assert any(said in line and FUNCTIONS[kind] in line for line in check(copy)), check(copy)


def test_a_kernel_that_is_declared_but_not_defined(copy):
    """The extension then links and cannot be loaded: no test runs, but the first lines say why."""
    (copy / "csrc/kernels/cpu/rms_norm.c").unlink()
    (copy / "built/transformer_c").mkdir(parents=True)
    (copy / "built/transformer_c/__init__.py").write_text("raise ImportError('undefined symbol: tc_rms_norm_forward_f32_baseline')")
    environment = {**os.environ, "PYTHONPATH": str(copy / "built")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/test_structure.py"]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "undefined symbol" in done.stderr and "no file of csrc/kernels/cpu defines rms_norm_forward" in done.stderr


def test_every_check_of_a_step_is_one_that_test_structure_runs():
    assert {step[2] for step in (*STEPS, *STEPS_OF_FUNCTIONS)} <= set(op_lists.CHECKS)


def test_every_step_of_the_page_is_taken_away():
    page = (ROOT / "docs/adding-an-op.md").read_text()
    rows = re.findall(r"^\| \d+ \| (.*?) \|", page, re.M)
    named = {path for row in rows for path in re.findall(r"`([\w/<>.*]+)`", row)}
    assert len(rows) > 8 and named - {step[0] for step in STEPS} - APART == set()
