"""The emulated GPU, alone and as device="cuda:emulated", and the dtypes and schedules for its kernels.

With EMULATION_FLAVOUR=hardware the tests of single kernels, those that take `cuda`, run on the first GPU, in the order that it has.
"""

import gc
import os
import pathlib

import cuda_library
import emulation
import numpy as np
import pytest
import transformer_c as tc
from device_cases import device, nothing_is_left  # noqa: F401 (fixtures)
from transformer_c import _core

HERE = pathlib.Path(__file__).parent
ON_HARDWARE = emulation.FLAVOUR == "hardware"
SCHEDULES = [("round_robin", 0), ("greedy", 1), ("random", 2)][: 1 if ON_HARDWARE else None]


def pytest_generate_tests(metafunc):
    own = {name for mark in metafunc.definition.iter_markers("parametrize") for name in np.atleast_1d(mark.args[0])}
    every_dtype = "dtype" in metafunc.fixturenames and "dtype" not in own
    if "variant" in metafunc.fixturenames:  # of attention; without a dtype of its own a test has the case in one of the variant's
        halves = [name for name, dtype in cuda_library.DTYPES.items() if np.dtype(dtype).itemsize == 2]
        dtypes = {"plain": cuda_library.DTYPES, "mma": halves, "float": ["float32"]}
        pairs = [(name, variant) for variant, names in dtypes.items() for name in names]
        if every_dtype:
            metafunc.parametrize("dtype, variant", [(cuda_library.DTYPES[name], v) for name, v in pairs], ids=["-".join(p) for p in pairs])
        else:
            metafunc.parametrize("variant", dtypes)
    elif every_dtype:
        metafunc.parametrize("dtype", cuda_library.DTYPES.values(), ids=cuda_library.DTYPES.keys())
    if "schedule" in metafunc.fixturenames:  # set in the fixture `cuda`
        metafunc.parametrize("schedule", SCHEDULES, ids=[name for name, _ in SCHEDULES])


def pytest_collection_modifyitems(config, items):
    """`make sanitize` leaves these out: they use their own sanitizers, and two in one process conflict."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.unsanitized)
    if ON_HARDWARE:
        others = [item for item in items if "cuda" not in item.fixturenames]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if "cuda" in item.fixturenames]


@pytest.fixture(scope="session")
def emulated_library():
    if ON_HARDWARE:
        yield cuda_library.HardwareLibrary(emulation.hardware_library())
        return
    library = cuda_library.EmulatedLibrary(emulation.kernel_library(emulation.FLAVOUR))
    yield library
    if os.environ.get("EMULATION_NEVER_WRITTEN"):  # of test_sanitizers.py
        pathlib.Path(os.environ["EMULATION_NEVER_WRITTEN"]).write_text(library.never_written())


@pytest.fixture
def cuda(emulated_library, request):
    emulated_library.set_schedule(
        *request.node.callspec.params.get("schedule", SCHEDULES[0]) if hasattr(request.node, "callspec") else SCHEDULES[0]
    )
    emulated_library.set_compute_capability(8, 0)
    return emulated_library


EMULATED_GPU = pytest.StashKey[str]()  # once a test has used it


@pytest.fixture(scope="module", autouse=True)
def nothing_is_cached(pytestconfig):
    """After each file, so that the emulated GPU uses the same addresses again."""
    yield
    if EMULATED_GPU in pytestconfig.stash:
        gc.collect()
        tc.cuda.empty_cache(pytestconfig.stash[EMULATED_GPU])


@pytest.fixture(scope="session")
def emulated_gpu(emulated_library, pytestconfig):
    """The name of the device of the emulated library; its memory faults when the host accesses it."""
    before = os.environ.get("TRANSFORMER_C_CUDA_LIBRARY")
    os.environ["TRANSFORMER_C_CUDA_LIBRARY"] = emulated_library.library._name
    try:
        _core.empty(0, device="cuda:emulated")
    except RuntimeError as error:
        if tc.cuda.is_available():  # a process opens one CUDA library, and this one has opened that of a GPU
            pytest.skip(str(error))
        pytest.fail(
            f"{error}\nIs the extension older than csrc (python setup.py build_ext --inplace), or was another library opened before?"
        )
    finally:
        if before is None:
            del os.environ["TRANSFORMER_C_CUDA_LIBRARY"]
        else:
            os.environ["TRANSFORMER_C_CUDA_LIBRARY"] = before
    emulated_library.hide_device_memory()
    pytestconfig.stash[EMULATED_GPU] = "cuda:emulated"
    return "cuda:emulated"
