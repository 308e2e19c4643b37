"""The tests of tests/gpu_emulation that go through device="cuda:emulated", on a real GPU."""

import inspect
import os
import pathlib
import sys
import types

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "gpu_emulation"))
import test_cuda_arrays
import test_cuda_flat
import test_cuda_gradient_sums
import test_cuda_graph
import test_cuda_graph_generators
import test_cuda_graph_gradients
import test_cuda_graph_halves
import test_cuda_graph_memory
import test_cuda_graph_refused
import test_cuda_graph_starts
import test_cuda_graph_threads
import test_cuda_halves
import test_cuda_modules
import test_cuda_tensors
import test_cuda_trainer
import test_cuda_training
import test_cuda_waits
from cuda_library import Hardware
from device_cases import device, nothing_is_left  # noqa: F401 (fixtures)
from test_cuda_streams import CASES, fresh  # noqa: F401 (a fixture for each test)

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("nothing_is_left")]


@pytest.fixture(scope="session")
def emulated_gpu():
    """The device that those tests run on: here the first GPU. tests/test_gpu_test.py rehearses some on the emulated one."""
    return os.environ.get("GPU_TESTS_DEVICE", "cuda:0")


@pytest.fixture(scope="session")
def emulated_library():
    return Hardware()


FIXTURES = {"device", "emulated_gpu", "emulated_library", "rng", "tmp_path", "monkeypatch", "capsys", "request"}


COUNTING = {"counted", "launched"}  # what the emulation alone counts


def names_in(code):
    """The global names that a function and those in it use."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return {*code.co_names}.union(*map(names_in, inner))


def runs_here(test):
    """Whether it takes a device and no fixture of its file, and counts nothing."""
    if COUNTING & names_in(test.__code__):
        return False
    arguments = {*inspect.signature(test).parameters}
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            names = mark.args[0]
            arguments -= {*(names.replace(",", " ").split() if isinstance(names, str) else names)}
    return arguments <= FIXTURES and bool(arguments & {"device", "emulated_gpu"})


def of(module):
    """A class, so that tests of two files may have one name."""
    tests = {name: test for name, test in vars(module).items() if name.startswith("test_") and runs_here(test)}
    return type(f"Test_{module.__name__}", (), {name: staticmethod(test) for name, test in tests.items()})


Test_tensors, Test_training = of(test_cuda_tensors), of(test_cuda_training)
Test_modules, Test_halves, Test_flat = of(test_cuda_modules), of(test_cuda_halves), of(test_cuda_flat)
Test_waits, Test_arrays, Test_gradient_sums = of(test_cuda_waits), of(test_cuda_arrays), of(test_cuda_gradient_sums)
Test_graph, Test_graph_halves, Test_trainer = of(test_cuda_graph), of(test_cuda_graph_halves), of(test_cuda_trainer)
Test_graph_memory, Test_graph_threads = of(test_cuda_graph_memory), of(test_cuda_graph_threads)
Test_graph_generators, Test_graph_gradients = of(test_cuda_graph_generators), of(test_cuda_graph_gradients)
Test_graph_starts, Test_graph_refused = of(test_cuda_graph_starts), of(test_cuda_graph_refused)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_order_between_threads(emulated_gpu, case):
    read, expected = case(emulated_gpu)
    assert read == expected
