"""What the runtime around the kernels does: last errors, page-locked memory, the thread's device, the GPUs that there is code for, memory
that another library has borrowed. Each case is shown to fail with the bug that it looks for."""

import contextlib
import ctypes
import os
import pathlib
import subprocess
import sys

import cuda_library
import numpy as np
import pytest
import transformer_c as tc

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOT_READY = 600


@pytest.fixture
def emulator(emulated_library, emulated_gpu):
    """The controls of the emulation; what they plant is taken out afterwards."""
    tc.cuda.synchronize(emulated_gpu)
    tc.cuda.empty_cache(emulated_gpu)
    library = emulated_library.library
    yield library
    library.emulator_keep_last_errors(0)
    library.emulator_launches_tell_last_error(0)
    library.emulator_refuse_host_memory(0)
    library.emulator_select_device(0)
    emulated_library.set_compute_capability(8, 0)
    library.emulator_set_last_error(0)
    emulated_library.set_streams("late")


def replaced(api, name, function):
    """Puts function(the real one, ...) into the library's table, in a process of its own; what it returns must be kept."""
    page = ctypes.addressof(api) & ~4095
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(8192), 3) == 0  # the table is constant
    kind = dict(cuda_library.Api._fields_)[name]
    real = kind(ctypes.cast(getattr(api, name), ctypes.c_void_p).value)
    kept = kind(lambda *arguments: function(real, *arguments))
    setattr(api, name, kept)
    return kept


def in_a_process(program, emulated_library, *arguments):
    """What it prints, given this folder and the emulated library's path."""
    path = emulated_library.library._name
    done = subprocess.run(
        [sys.executable, "-c", program, os.path.dirname(__file__), path, *arguments],
        env={**os.environ, "TRANSFORMER_C_CUDA_LIBRARY": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- last errors ---------------------------------------------------------------------------------------------------------------------


def copies_and_a_kernel(gpu):
    """The second copy asks whether the buffer of the first is free, and is told that it is not ready."""
    x, y = (tc.tensor(np.full(100, value, np.float32), device=gpu) for value in (1, 2))
    return (x + y).cpu().numpy()


def test_nothing_is_left_as_the_last_error(emulated_gpu, emulator):
    assert (copies_and_a_kernel(emulated_gpu) == 3).all()
    assert emulator.emulator_last_error() == 0
    with pytest.raises(MemoryError, match="out of memory on cuda:emulated"):
        tc.empty(2**30, device=emulated_gpu)
    assert emulator.emulator_last_error() == 0


def test_a_launch_tells_its_own_error_alone(emulated_gpu, emulator):
    emulator.emulator_set_last_error(NOT_READY)  # by another library
    assert (copies_and_a_kernel(emulated_gpu) == 3).all()


def test_a_last_error_that_is_told_by_a_launch_is_noticed(emulated_gpu, emulator):
    emulator.emulator_keep_last_errors(1)
    emulator.emulator_launches_tell_last_error(1)
    with pytest.raises(RuntimeError, match=r"not ready \(CUDA error 600\)"):
        copies_and_a_kernel(emulated_gpu)


def test_a_last_error_that_is_kept_is_noticed(emulated_gpu, emulator):
    emulator.emulator_keep_last_errors(1)
    copies_and_a_kernel(emulated_gpu)
    assert emulator.emulator_last_error() == NOT_READY


# ---- page-locked memory --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def counted(emulator):
    copies, waits = emulator.emulator_pageable_copies(), emulator.emulator_pageable_waits()
    found = {}
    yield found
    found |= {"copies": emulator.emulator_pageable_copies() - copies, "waits": emulator.emulator_pageable_waits() - waits}


LARGE = 2**18 + 100  # float32: more than a buffer


def there_and_back(gpu):
    host = np.arange(LARGE, dtype=np.float32)
    return np.array_equal((tc.tensor(host, device=gpu) + 1).cpu().numpy(), host + 1)


def test_copies_go_through_page_locked_memory(emulated_gpu, emulator):
    with counted(emulator) as found:
        assert there_and_back(emulated_gpu)
    assert found == {"copies": 0, "waits": 0}


def test_without_page_locked_memory_no_copy_waits_for_its_stream(emulated_gpu, emulated_library, emulator):
    """A copy of pageable memory waits in the driver, and the device's lock is held meanwhile: so nothing may be left to wait for."""
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import cuda_library, numpy as np, transformer_c as tc, test_cuda_runtime as tests
emulated = cuda_library.EmulatedLibrary(sys.argv[2])
emulated.library.emulator_refuse_host_memory(1)
with tests.counted(emulated.library) as found:
    assert tests.there_and_back("cuda:emulated")
assert emulated.library.emulator_last_error() == 0
print(found)
"""  # a process of its own: here the buffers exist
    environment = os.environ | {"TRANSFORMER_C_CUDA_LIBRARY": emulated_library.library._name}
    command = [sys.executable, "-c", program, str(pathlib.Path(__file__).parent), emulated_library.library._name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "{'copies': 2, 'waits': 0}"


def test_a_copy_that_waits_is_noticed(emulated_gpu, emulated_library, emulator):
    x = tc.full((LARGE,), 2.0, device=emulated_gpu) * 3  # on its way
    host, stream = np.empty(LARGE, np.float32), ctypes.c_void_p()
    with tc.cuda.stream(emulated_gpu) as number:
        y = x + 1
        stream.value = number
        with counted(emulator) as found:
            emulated_library.check(emulated_library.api.copy_to_host(host.ctypes.data, y.data_ptr(), host.nbytes, stream))
    assert found == {"copies": 1, "waits": 1} and (host == 7).all()


# ---- the thread's device -------------------------------------------------------------------------------------------------------------


def everything_on(gpu):
    x = tc.tensor(np.ones(10, np.float32), device=gpu)
    y = (x * 2).sum()
    tc.cuda.memory_stats(gpu)
    tc.cuda.synchronize(gpu)
    with tc.cuda.stream(gpu):
        z = y + 1
    z.__dlpack__(stream=1)
    tc.cuda.empty_cache(gpu)
    return float(z)


def test_a_thread_keeps_the_device_that_it_had(emulated_gpu, emulator):
    emulator.emulator_select_device(1)  # as another library does, which works on a second GPU
    assert everything_on(emulated_gpu) == 21
    assert emulator.emulator_current_device() == 1
    with pytest.raises(MemoryError):
        tc.empty(2**30, device=emulated_gpu)
    assert emulator.emulator_current_device() == 1


def test_work_on_another_device_is_noticed(emulated_library, emulator):
    emulator.emulator_select_device(1)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        emulated_library.check(emulated_library.api.allocate(ctypes.byref(ctypes.c_void_p()), 12))


LEFT = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import cuda_library, transformer_c as tc, test_cuda_runtime as tests
emulated = cuda_library.EmulatedLibrary(sys.argv[2])
tc.zeros(1, device="cuda:emulated")
stays = tests.replaced(emulated.api, "select_device", lambda real, index: 0 if index == 1 else real(index)) if sys.argv[3] == "left" else None
emulated.library.emulator_select_device(1)
assert tests.everything_on("cuda:emulated") == 21
print(emulated.library.emulator_current_device())
"""


@pytest.mark.parametrize("kind, device", [("kept", 1), ("left", 0)])
def test_a_device_that_is_left_selected_is_noticed(emulated_library, kind, device):
    """Where the library does not select the thread's own again, as it once did."""
    assert in_a_process(LEFT, emulated_library, kind).strip() == str(device)


# ---- GPUs that there is code for -----------------------------------------------------------------------------------------------------


CAPABILITIES = """
import cuda_library, sys, transformer_c as tc
cuda_library.EmulatedLibrary(sys.argv[1]).set_compute_capability(int(sys.argv[2]), int(sys.argv[3]))
print(tc.cuda.is_available())
tc.empty(3, device="cuda:emulated")
"""


@pytest.mark.parametrize(
    "capability, runs", [((7, 0), False), ((7, 5), True), ((8, 9), True), ((11, 0), False), ((12, 1), True), ((13, 0), True)]
)
def test_a_gpu_without_code_for_it_is_refused(emulated_library, capability, runs):
    """sm_75, 80, 90, 100, 120 and PTX of the last."""
    environment = os.environ | {"TRANSFORMER_C_CUDA_LIBRARY": emulated_library.library._name}
    environment["PYTHONPATH"] = os.pathsep.join([str(pathlib.Path(__file__).parent), environment.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", CAPABILITIES, emulated_library.library._name, *map(str, capability)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == str(runs), done.stderr
    assert (done.returncode == 0) == runs
    if not runs:
        major, minor = capability
        assert (
            f"GPU 0 has compute capability {major}.{minor}, and the CUDA library has code for 7.5, 8.0, 9.0, 10.0, 12.0 and later"
            in done.stderr
        )


def test_a_compiler_that_does_not_exist():
    command = [sys.executable, str(ROOT / "tools" / "build_cuda.py")]
    done = subprocess.run(command, env=os.environ | {"NVCC": "/nonexistent/nvcc"}, capture_output=True, text=True)
    assert done.returncode and "Traceback" not in done.stderr
    assert "NVCC is '/nonexistent/nvcc', which is not a program; expected the path of nvcc" in done.stderr


# ---- memory that another library has borrowed -------------------------------------------------------------------------------------------


TAKEN = b"used_dltensor_versioned"


DEFAULT_STREAM = 1  # as DLPack and CUDA name it


class Borrower:
    """Another library: takes a DLPack capsule and puts reads of its memory on a stream of its own or the default one, which the emulation
    runs late."""

    def __init__(self, emulated_library, stream=None):
        self.api, made, host = emulated_library.api, ctypes.c_void_p(), ctypes.c_void_p()
        self.check = emulated_library.check
        self.check(self.api.create_stream(ctypes.byref(made), 0))
        self.check(self.api.allocate_host(ctypes.byref(host), 40))
        self.stream, self.host = stream or made.value, host.value

    def borrows_and_reads(self, tensor):
        """The memory, until it is given back."""
        capsule = tensor.__dlpack__(stream=self.stream, max_version=(1, 0))
        self.check(self.api.copy_to_host(self.host, tensor.data_ptr(), 40, self.stream))
        python = ctypes.pythonapi
        python.PyCapsule_GetPointer.restype = ctypes.c_void_p
        managed = python.PyCapsule_GetPointer(ctypes.py_object(capsule), b"dltensor_versioned")
        assert python.PyCapsule_SetName(ctypes.py_object(capsule), TAKEN) == 0
        return managed

    def gives_back(self, managed):
        deleter = ctypes.c_void_p.from_address(managed + 16).value  # after major, minor, context
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(managed)

    def has_read(self):
        self.check(self.api.synchronize(self.stream))
        return list((ctypes.c_float * 10).from_address(self.host))


def borrow_and_give_back(gpu, emulated_library, stream=None):
    borrower = Borrower(emulated_library, stream)
    x = tc.full((10,), 2.0, device=gpu)
    tc.cuda.synchronize(gpu)
    calls, memory = tc.cuda.memory_stats(gpu)["device_calls"], borrower.borrows_and_reads(x)
    del x
    borrower.gives_back(memory)  # before the read has run
    y = tc.full((10,), 9.0, device=gpu)
    assert tc.cuda.memory_stats(gpu)["device_calls"] == calls, "the block was not taken again"
    assert (y.cpu().numpy() == 9).all()
    return borrower.has_read()


def test_what_was_borrowed_is_not_overwritten_too_early(emulated_gpu, emulated_library, emulator):
    assert borrow_and_give_back(emulated_gpu, emulated_library) == [2.0] * 10


def test_memory_taken_back_too_early_is_noticed(emulated_gpu, emulated_library, emulator):
    emulator.emulator_ignore_device_waits(1)
    try:
        assert borrow_and_give_back(emulated_gpu, emulated_library) == [9.0] * 10
    finally:
        emulator.emulator_ignore_device_waits(0)


@pytest.fixture
def late_default_stream(emulator):
    """The default stream does its work late, too."""
    emulator.emulator_put_off_default_stream(1)
    yield
    emulator.emulator_ignore_blocking(0)
    emulator.emulator_put_off_default_stream(0)


@pytest.mark.usefixtures("late_default_stream")
def test_what_the_default_stream_reads_is_not_overwritten_too_early(emulated_gpu, emulated_library):
    assert borrow_and_give_back(emulated_gpu, emulated_library, DEFAULT_STREAM) == [2.0] * 10


@pytest.mark.usefixtures("late_default_stream")
def test_streams_that_do_not_wait_for_the_default_one_are_noticed(emulated_gpu, emulated_library, emulator):
    emulator.emulator_ignore_blocking(1)
    assert borrow_and_give_back(emulated_gpu, emulated_library, DEFAULT_STREAM) == [9.0] * 10


FAULTS = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import cuda_library
import numpy as np, test_cuda_runtime as tests
emulated = cuda_library.EmulatedLibrary(sys.argv[2])
import transformer_c as tc
api, name, gpu = emulated.api, sys.argv[3], "cuda:emulated"
tc.zeros(1, device=gpu)
left = [0]

def fails_once(real, *arguments):
    left[0] -= 1
    return 1 if left[0] == 0 else real(*arguments)

kept = tests.replaced(api, name, fails_once)
values, told = np.arange(600000, dtype=np.float32) % 7, 0
for k in range(1, 12):
    left[0] = k
    try:
        tc.tensor(values[::-1].copy(), device=gpu).tolist()
    except RuntimeError:
        told += 1
    left[0] = 0
    found = [tc.tensor(values + i, device=gpu) for i in range(3)]  # through the buffers, many of which are not used any more
    for i, x in enumerate(found):
        np.testing.assert_array_equal(np.asarray(x.cpu()), values + i)
print(told)
"""


@pytest.mark.parametrize("name", ["record_event", "synchronize_event", "query_event"])
def test_a_buffer_whose_copy_may_be_on_its_way_is_not_used_again(emulated_library, name):
    told = in_a_process(FAULTS, emulated_library, name)
    assert int(told) > 0 or name == "query_event"
