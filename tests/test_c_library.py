"""The library without Python: a C program includes transformer_c.h alone, links the archive, and computes the same as Python."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import transformer_c as tc

ROOT = Path(__file__).parents[1]
COMPILER = shlex.split(os.environ.get("CC", "")) or ["cc"]
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT / 'csrc'}"]
EXAMPLE = ROOT / "docs/examples/attention.c"

pytestmark = [
    pytest.mark.skipif(not shutil.which(COMPILER[0]), reason=f"there is no C compiler {COMPILER[0]!r}"),
    pytest.mark.unsanitized,  # would build the library once more
]


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wave(shape, step):
    return np.sin(step * np.arange(np.prod(shape))).astype(np.float32).reshape(shape)


def expected():
    """(loss, norm of the gradients) of the example."""
    x, target = wave((2, 5, 8), 0.7), wave((2, 5, 8), 0.3)
    gamma, weight = (tc.tensor(wave(shape, step), requires_grad=True) for shape, step in (((8,), 1.1), ((8, 8), 0.9)))
    normed = tc.functional.layer_norm(tc.tensor(x), (8,), gamma)
    values = tc.functional.scaled_dot_product_attention(tc.functional.linear(normed, weight), normed, normed, is_causal=True)
    loss = tc.functional.mse_loss(values, target)
    loss.backward()
    return loss.item(), float(np.sqrt(sum(np.sum(np.square(p.grad.numpy(), dtype=np.float64)) for p in (gamma, weight))))


def test_the_example_computes_what_python_does_and_says_what_is_wrong(tmp_path):
    run(sys.executable, "setup.py", "-q", "build_library", cwd=ROOT)
    program = tmp_path / "attention"
    run(*COMPILER, *STRICT, EXAMPLE, ROOT / "build/libtransformer_c.a", "-pthread", "-lm", "-ldl", "-o", program)
    found = re.fullmatch(r"loss (\S+), norm of the gradients (\S+)\n", run(program))
    assert [float(number) for number in found.groups()] == pytest.approx(expected(), rel=1e-6)
    done = subprocess.run([program], capture_output=True, text=True, env={**os.environ, "TRANSFORMER_C_ISA": "none"})
    assert done.returncode == 1 and "TRANSFORMER_C_ISA" in done.stderr


@pytest.mark.parametrize("name", ["test_tape", "test_refusals"])
def test_what_is_wrong_is_refused(tmp_path, name):
    run(sys.executable, "setup.py", "-q", "build_library", cwd=ROOT)
    gnu = ["-std=gnu11", *STRICT[1:3], "-Werror", f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'tests/c'}"]  # Wpedantic refuses the tests' macros
    program = tmp_path / name
    run(*COMPILER, *gnu, ROOT / f"tests/c/{name}.c", ROOT / "build/libtransformer_c.a", "-pthread", "-lm", "-ldl", "-o", program)
    run(program)


def test_the_header_needs_names_of_functions_alone():
    rule = run(*COMPILER, "-std=c11", "-MM", "-xc", ROOT / "csrc/transformer_c.h").replace("\\\n", " ")
    used = {Path(word).resolve().relative_to(ROOT / "csrc").as_posix() for word in rule.split(":", 1)[1].split()}
    assert used - {"kernels/types.h", "kernels/function_ids.h"} == {"transformer_c.h", "kernels/unary.def", "kernels/binary.def"}
