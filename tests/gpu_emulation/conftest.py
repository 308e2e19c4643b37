"""The emulated GPU with the kernels on it."""

import cuda_library
import emulation
import pytest


def pytest_configure(config):
    config.addinivalue_line("markers", "small: a case for ThreadSanitizer as well")


@pytest.fixture(scope="session")
def emulated_library():
    return cuda_library.EmulatedLibrary(emulation.kernel_library(emulation.FLAVOUR))


@pytest.fixture
def cuda(emulated_library):
    emulated_library.set_schedule("round_robin")
    emulated_library.set_compute_capability(8, 0)
    return emulated_library
