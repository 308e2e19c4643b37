"""docs/gpu.md's examples of training, on the emulated GPU."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import transformer_c as tc

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/gpu.md").read_text()

pytestmark = pytest.mark.whole


@pytest.mark.usefixtures("nothing_is_left")
def test_the_examples_run(emulated_gpu):
    tc.manual_seed(0)
    examples = doctest.DocTestParser().get_doctest(PAGE.replace('"cuda"', f'"{emulated_gpu}"'), {}, "gpu.md", "docs/gpu.md", 0)
    with np.printoptions(legacy="1.25" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else False):
        result = doctest.DocTestRunner().run(examples)
    assert result.attempted >= 14 and result.failed == 0


def test_a_script_runs_on_the_emulation():
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(Path(tc.__file__).parents[1])}
    environment.pop("TRANSFORMER_C_CUDA_LIBRARY", None)
    done = subprocess.run(["sh", "-ec", commands], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "tensor([2., 2., 2.], device='cuda:emulated')"
