"""The tests of tests/gpu_emulation that go through device="cuda:emulated", on a real GPU."""

import pathlib
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "gpu_emulation"))
from device_cases import device, nothing_is_left  # noqa: F401 (fixtures)
from test_cuda_modules import test_a_layer, test_decoding_with_a_cache  # noqa: F401
from test_cuda_streams import CASES
from test_cuda_tensors import *  # noqa: F403
from test_cuda_training import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("nothing_is_left")]


@pytest.fixture(scope="session")
def emulated_gpu():
    """The device that those tests run on: here the first GPU."""
    return "cuda:0"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_order_between_threads(emulated_gpu, case):
    read, expected = case(emulated_gpu)
    assert read == expected
