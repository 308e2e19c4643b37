"""The emulated GPU with the kernels on it, and the dtypes and schedules to run them with."""

import pathlib

import cuda_library
import emulation
import pytest

HERE = pathlib.Path(__file__).parent
SCHEDULES = [("round_robin", 0), ("greedy", 1), ("random", 2)]


def pytest_generate_tests(metafunc):
    if "dtype" in metafunc.fixturenames:
        metafunc.parametrize("dtype", cuda_library.DTYPES.values(), ids=cuda_library.DTYPES.keys())
    if "schedule" in metafunc.fixturenames:  # set in the fixture `cuda`
        metafunc.parametrize("schedule", SCHEDULES, ids=[name for name, _ in SCHEDULES])


def pytest_collection_modifyitems(items):
    """`make sanitize` leaves these out: they bring their own sanitizers, and two in one process do not agree."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.unsanitized)


def pytest_configure(config):
    config.addinivalue_line("markers", "small: a case for ThreadSanitizer as well")


@pytest.fixture(scope="session")
def emulated_library():
    return cuda_library.EmulatedLibrary(emulation.kernel_library(emulation.FLAVOUR))


@pytest.fixture
def cuda(emulated_library, request):
    emulated_library.set_schedule(
        *request.node.callspec.params.get("schedule", SCHEDULES[0]) if hasattr(request.node, "callspec") else SCHEDULES[0]
    )
    emulated_library.set_compute_capability(8, 0)
    return emulated_library
