"""libtransformer_c_cuda.so, or its emulated counterpart, through its C interface (csrc/kernels/cuda_api.h) by ctypes.

    cuda = CudaLibrary(path)
    y = cuda.empty((N, C), np.float32)
    cuda.run("layer_norm_forward", np.float32, rows, x=cuda.array(x), y=y, C=C, eps=1e-5, ...)
    y.numpy()

The args structs are read from the C headers, so that the tests cannot drift from them.
"""

import contextlib
import ctypes
import pathlib
import re

import emulation
import ml_dtypes
import numpy as np
import pytest

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "csrc" / "kernels"
STORAGE = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3}  # tc_dtype
DTYPES = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
SCALARS = {
    "int64_t": ctypes.c_int64,
    "int": ctypes.c_int,
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "bool": ctypes.c_bool,
    "size_t": ctypes.c_size_t,
    "uint64_t": ctypes.c_uint64,
    "uint32_t": ctypes.c_uint32,
}


def compute_dtype(dtype):
    """The dtype in which the kernels compute and save statistics."""
    return np.dtype(np.float64 if np.dtype(dtype) == np.float64 else np.float32)


def _read_headers():
    """Every struct of kernels/*.h as a ctypes.Structure, every enumerator and integer #define as a number."""
    types, numbers = dict(SCALARS), {}
    texts = [
        re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        for path in [KERNELS.parent / "transformer_c.h", *sorted(KERNELS.glob("*.h"))]
    ]
    for text in texts:
        numbers.update((name, int(value)) for name, value in re.findall(r"^#define (\w+) \(?(\d+)\)?\s*$", text, flags=re.M))
        for members, name in re.findall(r"typedef enum \w+ \{([^}]*)\} (\w+);", text):
            types[name] = ctypes.c_int
            names = [member.split("=")[0].strip() for member in members.split(",") if member.strip() and "#" not in member]
            numbers.update((member, value) for value, member in enumerate(names))
    structs = {
        name: body
        for text in texts
        for body, name in re.findall(r"typedef struct \w+ \{([^}]*)\} (tc_\w+);", text)
        if name.endswith(("_args", "_problem", "_operand", "_plane", "_places", "_mask", "_chunk", "_pointer"))
    }
    while structs:  # those whose members are known first
        members = {name: re.findall(r"\s*(?:const )?(\w+) ([^;]*);", body) for name, body in structs.items()}
        known = [name for name in structs if all(kind in types or "*" in declarators for kind, declarators in members[name])]
        assert known, f"members of unknown type in {sorted(structs)}"
        for name in known:
            fields = [
                _field(declarator, types.get(kind), numbers) for kind, declarators in members[name] for declarator in declarators.split(",")
            ]
            types[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
            del structs[name]
    return types, numbers


def _field(declarator, kind, numbers):
    name, lengths = re.fullmatch(r"\s*\**(\w+)((?:\[\w+\])*)\s*", declarator).groups()
    kind = ctypes.c_void_p if "*" in declarator else kind
    for length in reversed(re.findall(r"\w+", lengths)):
        kind = kind * (numbers[length] if length in numbers else int(length))
    return name, kind


TYPES, NUMBERS = _read_headers()
KERNEL_IDS = {name: i for i, name in enumerate(re.findall(r"^TC_KERNEL_ENTRY\((\w+),", (KERNELS / "kernels.def").read_text(), flags=re.M))}
CUDA_KERNELS = re.findall(r"^TC_KERNEL_ENTRY\((\w+), CUDA", (KERNELS / "kernels.def").read_text(), flags=re.M)

LAUNCHER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
SCRATCH_BYTES = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p)


class KernelTable(ctypes.Structure):  # tc_cuda_kernel_table
    _fields_ = [("run", ctypes.c_void_p * len(KERNEL_IDS)), ("scratch_bytes", ctypes.c_void_p * len(KERNEL_IDS))]


INT, POINTER, BYTES = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
NUMBER, ADDRESS = ctypes.POINTER(INT), ctypes.POINTER(POINTER)


class Api(ctypes.Structure):  # tc_cuda_api
    _fields_ = [
        ("abi_version", INT),
        ("emulated", INT),
        ("rows", ctypes.c_char_p),
        ("error_text", ctypes.CFUNCTYPE(ctypes.c_char_p, INT)),
        ("versions", ctypes.CFUNCTYPE(INT, NUMBER, NUMBER)),
        ("code_for", NUMBER),
        ("device_count", ctypes.CFUNCTYPE(INT, NUMBER)),
        ("compute_capability", ctypes.CFUNCTYPE(INT, NUMBER, INT)),
        ("multiprocessors", ctypes.CFUNCTYPE(INT, NUMBER, INT)),
        ("block_shared_bytes", ctypes.CFUNCTYPE(INT, NUMBER, INT)),
        ("current_device", ctypes.CFUNCTYPE(INT, NUMBER)),
        ("select_device", ctypes.CFUNCTYPE(INT, INT)),
        ("memory_info", ctypes.CFUNCTYPE(INT, ctypes.POINTER(BYTES), ctypes.POINTER(BYTES))),
        ("allocate", ctypes.CFUNCTYPE(INT, ADDRESS, BYTES)),
        ("release", ctypes.CFUNCTYPE(INT, POINTER)),
        ("copy_from_host", ctypes.CFUNCTYPE(INT, POINTER, POINTER, BYTES, POINTER)),
        ("copy_to_host", ctypes.CFUNCTYPE(INT, POINTER, POINTER, BYTES, POINTER)),
        ("copy_on_device", ctypes.CFUNCTYPE(INT, POINTER, POINTER, BYTES, POINTER)),
        ("allocate_host", ctypes.CFUNCTYPE(INT, ADDRESS, BYTES)),
        ("create_stream", ctypes.CFUNCTYPE(INT, ADDRESS, INT)),
        ("create_event", ctypes.CFUNCTYPE(INT, ADDRESS)),
        ("record_event", ctypes.CFUNCTYPE(INT, POINTER, POINTER)),
        ("wait_event", ctypes.CFUNCTYPE(INT, POINTER, POINTER)),
        ("query_event", ctypes.CFUNCTYPE(INT, POINTER)),
        ("synchronize_event", ctypes.CFUNCTYPE(INT, POINTER)),
        ("synchronize", ctypes.CFUNCTYPE(INT, POINTER)),
        ("synchronize_device", ctypes.CFUNCTYPE(INT)),
        ("begin_capture", ctypes.CFUNCTYPE(INT, POINTER)),
        ("end_capture", ctypes.CFUNCTYPE(INT, ADDRESS, POINTER)),
        ("instantiate", ctypes.CFUNCTYPE(INT, ADDRESS, POINTER)),
        ("forget_captured", ctypes.CFUNCTYPE(INT, POINTER)),
        ("launch_graph", ctypes.CFUNCTYPE(INT, POINTER, POINTER)),
        ("destroy_graph", ctypes.CFUNCTYPE(INT, POINTER)),
        ("kernels", ctypes.CFUNCTYPE(ctypes.POINTER(KernelTable), INT)),
    ]


class CudaError(RuntimeError):
    pass


class DeviceArray:
    """Device memory of a shape and dtype, released with the object."""

    def __init__(self, cuda, shape, dtype):
        self.cuda, self.shape, self.dtype, self.pointer = cuda, tuple(shape), np.dtype(dtype), None
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        pointer = ctypes.c_void_p()
        cuda.check(cuda.api.allocate(ctypes.byref(pointer), max(self.nbytes, 1)))
        self.pointer = pointer.value

    def numpy(self):
        host = np.empty(self.shape, self.dtype)
        self.cuda.check(self.cuda.api.copy_to_host(host.ctypes.data, self.pointer, self.nbytes, None))
        self.cuda.check(self.cuda.api.synchronize(None))
        return host

    def strides(self):
        """In elements."""
        return [int(np.prod(self.shape[i + 1 :], dtype=np.int64)) for i in range(len(self.shape))]

    def __del__(self):
        if self.pointer:  # none where there was no memory
            self.cuda.api.release(self.pointer)


class CudaLibrary:
    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.tc_cuda_get_api.restype = ctypes.POINTER(Api)
        self.api = self.library.tc_cuda_get_api().contents
        assert self.api.abi_version == NUMBERS["TC_CUDA_ABI_VERSION"] and self.api.rows.count(b"\n") == len(KERNEL_IDS)

    def check(self, error):
        if error:
            raise CudaError(f"{self.api.error_text(error).decode()} (error {error})")

    def array(self, host):
        """A copy on the device; None stays None."""
        if host is None:
            return None
        host = np.ascontiguousarray(host)
        device = DeviceArray(self, host.shape, host.dtype)
        self.check(self.api.copy_from_host(device.pointer, host.ctypes.data, device.nbytes, None))
        return device

    def empty(self, shape, dtype):
        return DeviceArray(self, shape, dtype)

    def launch(self, kernel, dtype, items, args, scratch=None):
        """Runs a kernel on a filled args struct. scratch: an address; without one the kernel gets what it asks for."""
        table, kernel_id = self.api.kernels(STORAGE[np.dtype(dtype).name]).contents, KERNEL_IDS[kernel]
        if not table.run[kernel_id]:
            raise NotImplementedError(kernel)
        scratch_bytes = table.scratch_bytes[kernel_id]
        if scratch_bytes and scratch is None:
            own = self.empty((SCRATCH_BYTES(scratch_bytes)(ctypes.byref(args)),), np.uint8)
            scratch = own.pointer
        self.check(LAUNCHER(table.run[kernel_id])(ctypes.byref(args), items, scratch, None))
        self.check(self.api.synchronize(None))

    def run(self, kernel, dtype, items, struct=None, **values):
        """Runs a kernel on its args struct made from `values`; device arrays and None become pointers."""
        self.launch(kernel, dtype, items, fill(struct or f"tc_{kernel}_args", **values))


def far(array, elements):
    """The address of an array that ends with `array` and has `elements` before it. That memory is not allocated: nothing may access it."""
    return (array.pointer - elements * array.dtype.itemsize) % 2**64


def fill(struct, **values):
    """A struct of the C headers; members that are not named are zero."""
    args = TYPES[struct]()
    known = {name for name, _ in args._fields_}
    assert set(values) <= known, f"{struct} has no {sorted(set(values) - known)}"
    for name, value in values.items():
        setattr(args, name, value.pointer if isinstance(value, DeviceArray) else value)
    args.keep = values  # the arrays live as long as the struct that points to them
    return args


class Hardware:
    """What a GPU has in the place of the emulator's controls: the order that it has, and it counts nothing."""

    counts_launches = False

    def set_schedule(self, name, seed=0):
        pass

    def set_streams(self, order, seed=0):
        pass

    def set_compute_capability(self, major, minor):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        pytest.skip(f"the emulation alone has {name}")


class HardwareLibrary(Hardware, CudaLibrary):
    """The library that nvcc built, on the first GPU."""


class EmulatedLibrary(CudaLibrary):
    """The same with the emulator's own controls."""

    counts_launches = True  # and copies, waits, starts of graphs

    def __init__(self, path):
        super().__init__(path)
        self.library.emulator_report.restype = self.library.emulator_launches.restype = ctypes.c_char_p
        self.library.emulator_never_written.restype = self.library.emulator_counts.restype = ctypes.c_char_p
        self.library.emulator_set_schedule.argtypes = [ctypes.c_int, ctypes.c_uint64]
        self.library.emulator_set_streams.argtypes = [ctypes.c_int, ctypes.c_uint64]
        for kernel, threads in emulation.launch_bounds().items():
            self.limit_threads(kernel, threads)

    def check(self, error):
        try:
            super().check(error)
        finally:
            self.library.emulator_clear_report()

    @contextlib.contextmanager
    def last_block_only(self):
        """Only the last block of each grid runs: elements beyond 2^31 in moments (see far())."""
        self.library.emulator_run_last_block_only(1)
        try:
            yield
        finally:
            self.library.emulator_run_last_block_only(0)

    def launches(self):
        """The kernels launched since the last call, in order."""
        return self.library.emulator_launches().decode().splitlines()

    def never_written(self):
        """The members listed in kernels.def that no launch has stored through so far, one per line; known in the flavour "access"."""
        return self.library.emulator_never_written().decode()

    def counts(self):
        """What the kernels cost since the last call, as a table (count.h); known in the flavour "count"."""
        return self.library.emulator_counts().decode()

    def limit_threads(self, kernel, threads):
        """A launch of this kernel with more threads per block is refused, as a GPU does after __launch_bounds__(threads)."""
        self.library.emulator_limit_threads(kernel.encode(), threads)

    @contextlib.contextmanager
    def refusing(self, kernel):
        """Launches of this kernel are refused meanwhile."""
        self.limit_threads(kernel, 1)
        try:
            yield
        finally:
            self.limit_threads(kernel, emulation.launch_bounds()[kernel])

    def hide_device_memory(self):
        """From now on the process ends when the host reads or writes device memory other than by a copy."""
        self.library.emulator_hide_device_memory()

    def set_schedule(self, name, seed=0):
        self.library.emulator_set_schedule(["round_robin", "greedy", "random"].index(name), seed)

    def set_streams(self, order, seed=0):
        self.library.emulator_set_streams(["late", "random", "at_once"].index(order), seed)

    def ignore_events(self, who):
        self.library.emulator_ignore_events(["nobody", "streams", "streams and host"].index(who))

    def set_compute_capability(self, major, minor):
        self.library.emulator_set_compute_capability(major, minor)

    def set_multiprocessors(self, count):
        """Known to the core from the time when it opens the library."""
        self.library.emulator_set_multiprocessors(count)


# ---- what the tests of the kernels share ----


def small(*values):
    """A case that ThreadSanitizer, a hundred times slower, sees as well."""
    return pytest.param(*values, marks=pytest.mark.small)


def normal(rng, shape, dtype):
    return rng.standard_normal(shape).astype(dtype)
