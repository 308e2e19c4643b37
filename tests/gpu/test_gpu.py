"""The tests of tests/gpu_emulation/test_cuda_tensors.py on a real GPU."""

import pathlib
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "gpu_emulation"))
from test_cuda_tensors import *  # noqa: F403

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="session")
def emulated_gpu():
    """The device that those tests run on: here the first GPU."""
    return "cuda:0"
