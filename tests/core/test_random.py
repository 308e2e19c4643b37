"""csrc/core/random.c and the dropout kernel alone, compiled for the test without the extension."""

import copy
import ctypes
import json
import os
import pathlib
import pickle
import random
import shutil
import signal
import subprocess
import threading
import time
import warnings

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core
from transformer_c.testing import reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
GOLDEN = np.load(ROOT / "tests/golden/random_mt19937.npz")
PROGRAMS = json.loads(str(GOLDEN["programs"]))
STATE_BYTES = 5056
FLAGS = ["-std=gnu11", "-O3", "-fPIC", "-shared", "-ffp-contract=off", "-pthread", f"-I{CSRC}"]
ISA_FLAGS = {
    "baseline": [],
    "portable": ["-U__SSE2__"],  # as a processor of another make compiles it
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma"],
}
USABLE = """
int avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
int avx512(void) { return avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"); }
"""

pytestmark = pytest.mark.skipif(not shutil.which(os.environ.get("CC", "cc").split()[-1]), reason="no C compiler")


def build(folder, name, *arguments):
    path = folder / f"{name}.so"
    subprocess.run([*os.environ.get("CC", "cc").split(), *FLAGS, *map(str, arguments), "-o", path, "-lm"], check=True)
    return ctypes.CDLL(str(path))


# ---- the sequential generator ------------------------------------------------------------------------------------------


class Generator:
    """tc_generator with NumPy arrays."""

    def __init__(self, library, seed=0, handle=None):
        self.c, self.handle = library, handle or library.tc_generator_new(seed)
        assert self.handle

    def __del__(self):
        self.c.tc_generator_free(self.handle)

    def copy(self):
        return Generator(self.c, handle=self.c.tc_generator_copy(self.handle))

    def seed(self, seed):
        self.c.tc_generator_seed(self.handle, seed)

    def initial_seed(self):
        return self.c.tc_generator_initial_seed(self.handle)

    def next32(self):
        return self.c.tc_generator_next32(self.handle)

    def next64(self):
        return self.c.tc_generator_next64(self.handle)

    def seed64(self):
        return self.c.tc_generator_seed64(self.handle)

    def _fill(self, name, values, *args):
        getattr(self.c, f"tc_generator_{name}")(self.handle, values.ctypes.data, values.size, *args)
        return values

    def uniform(self, dtype, n, low=0.0, high=1.0):
        return self._fill("uniform_f32" if dtype == "float32" else "uniform_f64", np.full(n, np.nan, dtype), low, high)

    def normal(self, dtype, n, mean=0.0, std=1.0):
        return self._fill("normal_f32" if dtype == "float32" else "normal_f64", np.full(n, np.nan, dtype), mean, std)

    def integers(self, n, low, high):
        return self._fill("integers", np.full(n, -99, np.int64), low, high)

    def permutation(self, n):
        return self._fill("permutation", np.full(n, -99, np.int64))

    def state(self):
        state = np.full(STATE_BYTES, 255, np.uint8)
        self.c.tc_generator_get_state(self.handle, state.ctypes.data)
        return state

    def set_state(self, state):
        assert state.shape == (STATE_BYTES,) and state.dtype == np.uint8
        return self.c.tc_generator_set_state(self.handle, state.ctypes.data)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    c = build(
        tmp_path_factory.mktemp("random"), "random", *(CSRC / f"core/{name}.c" for name in ("random", "box_muller", "lock", "status"))
    )
    pointer, i64, u64, double = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64, ctypes.c_double
    signatures = {
        "new": (pointer, u64),
        "copy": (pointer, pointer),
        "free": (None, pointer),
        "seed": (None, pointer, u64),
        "initial_seed": (u64, pointer),
        "next32": (ctypes.c_uint32, pointer),
        "next64": (u64, pointer),
        "seed64": (i64, pointer),
        "get_state": (None, pointer, pointer),
        "set_state": (ctypes.c_bool, pointer, pointer),
        "integers": (None, pointer, pointer, i64, i64, i64),
        "permutation": (None, pointer, pointer, i64),
    }
    signatures |= {f"{f}_{p}": (None, pointer, pointer, i64, double, double) for f in ("uniform", "normal") for p in ("f32", "f64")}
    for name, (result, *arguments) in signatures.items():
        function = getattr(c, f"tc_generator_{name}")
        function.restype, function.argtypes = result, arguments
    c.tc_philox.restype, c.tc_philox.argtypes = ctypes.c_uint32, [u64, u64, u64]
    return c


@pytest.fixture
def make(library):
    return lambda seed: Generator(library, seed)


def through_libm(call):
    """Normals that go through the C library's functions, whose last bit is its own: all but float32 in blocks."""
    return call[0] == "normal" and (call[1] == "float64" or call[2] < 16)


def assert_same(call, actual, expected, exact=False):
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, call
    if through_libm(call) and not exact:
        _, dtype, _, mean, std = call
        np.testing.assert_allclose(actual, expected, rtol=0, atol=4 * np.finfo(dtype).eps * (abs(mean) + 4 * std), err_msg=str(call))
    else:
        np.testing.assert_array_equal(actual.reshape(-1).view(np.uint8), expected.reshape(-1).view(np.uint8), err_msg=str(call))


@pytest.mark.parametrize("program", PROGRAMS)
def test_golden(make, program):
    seed, calls = PROGRAMS[program]
    generator = make(seed)
    for i, call in enumerate(calls):
        actual = np.asarray(getattr(generator, call[0])(*call[1:]))
        expected = GOLDEN[f"{program}/{i}"]
        if call[0] == "state":  # a kept normal is the C library's as well
            kept = slice(5024, 5032)
            np.testing.assert_allclose(actual[kept].view(np.float64), expected[kept].view(np.float64), rtol=1e-15)
            actual[kept] = expected[kept]
        assert_same(call, actual, expected)


def random_call(choice, uniform):
    n, dtype = choice([0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 100, 1000, 4097]), choice(["float32", "float64"])
    kind = choice(["uniform", "normal", "bounds", "moments", "integers", "permutation", "seed64"])
    if kind == "uniform":
        return ["uniform", dtype, n, 0.0, 1.0]
    if kind == "normal":
        return ["normal", dtype, n, 0.0, 1.0]
    if kind == "bounds":
        low = uniform(-5, 5)
        return ["uniform", dtype, n, low, low + uniform(0, choice([1e-6, 3, 1e5]))]
    if kind == "moments":
        return ["normal", dtype, n, uniform(-5, 5), uniform(0, 10)]
    if kind == "integers":
        low = choice([0, -7, -(2**63)])
        return ["integers", n, low, min(low + choice([1, 10, 2**28 - 1, 2**28, 2**31, 2**32, 2**32 + 5, 2**64 - 1]), 2**63 - 1)]
    return ["permutation", n] if kind == "permutation" else ["seed64"]


def torch_with_vectors():
    torch = pytest.importorskip("torch")
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("PyTorch without its AVX2 kernels rounds differently")
    return torch


@pytest.mark.parametrize("seed", [0, 1, 42, 2**32 - 1, 2**32, 2**40 + 7, 2**63, 2**64 - 1])
def test_interleaved_calls_give_the_bits_of_pytorch(make, seed):
    torch = torch_with_vectors()
    from golden.make_random import draw

    theirs, ours, dice = torch.Generator().manual_seed(seed if seed < 2**63 else seed - 2**64), make(seed), random.Random(seed)
    for _ in range(80):
        call = random_call(dice.choice, dice.uniform)
        assert_same(call, np.asarray(getattr(ours, call[0])(*call[1:])), draw(theirs, *call).numpy(), exact=True)
        np.testing.assert_array_equal(ours.state(), theirs.get_state().numpy(), err_msg=str(call))


def test_state_is_interchangeable_with_pytorch(make):
    torch = torch_with_vectors()
    theirs, ours = torch.Generator().manual_seed(5), make(5)
    for n in (3, 700):  # with and without a kept normal
        torch.randn(n, generator=theirs)
        assert ours.set_state(theirs.get_state().numpy())
        ours.normal("float32", 5), torch.randn(5, generator=theirs)
        theirs.set_state(torch.from_numpy(ours.state()))
        np.testing.assert_array_equal(ours.normal("float64", 40), torch.randn(40, generator=theirs, dtype=torch.float64).numpy())


def test_shuffles_splits_and_initial_weights_of_pytorch(make):
    torch = torch_with_vectors()
    torch.manual_seed(11)
    data = torch.arange(50)
    epochs = [torch.cat(list(torch.utils.data.DataLoader(data, 8, shuffle=True))).numpy() for _ in range(3)]
    split = torch.utils.data.random_split(data, [30, 20])
    layer = torch.nn.Linear(24, 40)
    torch.nn.init.xavier_uniform_(layer.weight)
    ours = make(11)
    for epoch in epochs:
        ours.seed64()  # the workers' seed
        np.testing.assert_array_equal(make(ours.seed64()).permutation(50), epoch)
    np.testing.assert_array_equal(ours.permutation(50), [*split[0].indices, *split[1].indices])
    ours.uniform("float32", 24 * 40, -1, 1)  # the first initial weight, drawn over below
    np.testing.assert_array_equal(ours.uniform("float32", 40, -(24**-0.5), 24**-0.5), layer.bias.detach().numpy())
    bound = (6 / (24 + 40)) ** 0.5
    np.testing.assert_array_equal(ours.uniform("float32", 24 * 40, -bound, bound).reshape(40, 24), layer.weight.detach().numpy())


def assert_prints(array, text):
    """The array shows the numbers of a printed tensor, to its four digits."""
    expected = np.array([[float(x) for x in row.split()] for row in text.split("/")])
    np.testing.assert_allclose(array, expected, atol=5.1e-5, rtol=0)


def test_values_the_tutorial_prints(make):
    generator = make(42)
    q, k, v = (generator.normal("float32", 6).reshape(3, 2) for _ in range(3))
    assert_prints(q, "0.3367 0.1288/0.2345 0.2303/-1.1229 -0.1863")
    assert_prints(k, "2.2082 -0.6380/0.4617 0.2674/0.5349 0.8094")
    assert_prints(v, "1.1103 -1.6898/-0.9890 0.9580/1.3221 0.8172")
    values, attention = reference.scaled_dot_product(q, k, v)
    assert_prints(values, "0.5698 -0.1520/0.5379 -0.0265/0.2246 0.5556")
    assert_prints(attention, "0.4028 0.2886 0.3086/0.3538 0.3069 0.3393/0.1303 0.4630 0.4067")
    sequences = generator.integers(50000 * 16, 0, 10).reshape(50000, 16)  # the training set comes next
    np.testing.assert_array_equal(sequences[0], [9, 6, 2, 0, 6, 2, 7, 9, 7, 3, 3, 4, 3, 7, 0, 9])


def test_values_the_notes_print(make):
    generator = make(42)
    generator.uniform("float32", 18)  # the cell had run once before
    q, k, v = (generator.uniform("float32", 6).reshape(3, 2) for _ in range(3))
    assert_prints(q, "0.2666 0.6274/0.2696 0.4414/0.2969 0.8317")
    assert_prints(k, "0.1053 0.2695/0.3588 0.1994/0.5472 0.0062")
    assert_prints(v, "0.9516 0.0753/0.8860 0.5832/0.3376 0.8090")
    values, attention = reference.scaled_dot_product(q, k, v)
    assert_prints(values, "0.7303 0.4861/0.7262 0.4902/0.7336 0.4830")
    assert_prints(attention, "0.3351 0.3408 0.3241/0.3302 0.3390 0.3308/0.3388 0.3429 0.3184")


@pytest.mark.parametrize("seed", [0, 5489, 2**32 - 1])
def test_words_are_mt19937(make, seed):
    engine = np.random.MT19937()
    engine._legacy_seeding(seed)
    generator, words = make(seed), engine.random_raw(2000)
    np.testing.assert_array_equal([generator.next32() for _ in range(1500)], words[:1500])
    np.testing.assert_array_equal([generator.next64() for _ in range(200)], (words[1500:1900:2] << np.uint64(32)) | words[1501:1901:2])


def test_seed_copy_and_state(make):
    generator = make(3)
    assert generator.initial_seed() == 3
    fresh = generator.state()
    for words in (0, 1, 623, 624, 625):  # at, before and after the end of a block
        generator.seed(2**63 + 9)
        assert generator.initial_seed() == 2**63 + 9
        generator.integers(words, 0, 10)
        generator.normal("float32", 1)  # leaves its sine behind
        copy, state = generator.copy(), generator.state()
        wanted = np.concatenate([generator.normal("float64", 3), generator.uniform("float64", 700)])
        np.testing.assert_array_equal(np.concatenate([copy.normal("float64", 3), copy.uniform("float64", 700)]), wanted)
        generator.seed(1)
        assert generator.set_state(state)
        np.testing.assert_array_equal(generator.state(), state)
        np.testing.assert_array_equal(np.concatenate([generator.normal("float64", 3), generator.uniform("float64", 700)]), wanted)
    generator.normal("float32", 1)
    generator.seed(3)  # forgets the sine
    np.testing.assert_array_equal(generator.state(), fresh)


def test_bytes_that_are_no_state_are_refused(make):
    generator = make(3)
    generator.integers(10, 0, 10)
    state = generator.state()
    for offset, value in ((8, 0), (8, 700 % 256), (11, 255), (12, 0), (16, 11), (23, 1), (28, 1), (5040, 2)):
        bad = state.copy()
        bad[offset] = value
        assert not generator.set_state(bad), (offset, value)
        np.testing.assert_array_equal(generator.state(), state)
    assert not generator.set_state(np.zeros(STATE_BYTES, np.uint8))
    assert generator.set_state(state)


def test_calls_from_threads_get_unbroken_pieces(make):
    threads, calls, n = 4, 50, 777
    generator, pieces = make(8), []

    def work():
        for _ in range(calls):
            pieces.append(generator.uniform("float64", n))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sequence = make(8).uniform("float64", threads * calls * n).reshape(-1, n)
    order = {row[0]: i for i, row in enumerate(sequence)}
    np.testing.assert_array_equal(sorted(pieces, key=lambda piece: order[piece[0]]), sequence)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork_during_a_call(make):
    generator, stop = make(8), threading.Event()

    def work():
        while not stop.is_set():
            generator.uniform("float32", 5_000_000)  # longer than a fork takes

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(20):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # about a fork in a process with threads: the case under test
                child = os.fork()
            if child == 0:
                signal.alarm(20)  # a child that finds the lock taken would wait for ever
                generator.next32()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        worker.join()


# ---- the counter-based generator ---------------------------------------------------------------------------------------

M0, M1, W0, W1 = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85
LOW = np.uint64(0xFFFFFFFF)


def philox4x32(counter, key, rounds=7):
    """Salmon et al. 2011, section 3.3, on arrays of 32-bit words stored as uint64."""
    c = [np.asarray(x, np.uint64) for x in counter]
    for i in range(rounds):
        k0, k1 = np.uint64((key[0] + i * W0) & 0xFFFFFFFF), np.uint64((key[1] + i * W1) & 0xFFFFFFFF)
        p0, p1 = np.uint64(M0) * c[0], np.uint64(M1) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ k0, p1 & LOW, (p0 >> np.uint64(32)) ^ c[3] ^ k1, p0 & LOW]
    return c


def words_of(seed, call, elements):
    """The definition of csrc/kernels/philox.h."""
    e = np.asarray(elements, np.uint64)
    block = e // np.uint64(64) * np.uint64(16) + e % np.uint64(16)
    halves = [np.full(e.shape, x, np.uint64) for x in (call & 0xFFFFFFFF, call >> 32)]
    words = philox4x32([block & LOW, block >> np.uint64(32), *halves], (seed & 0xFFFFFFFF, seed >> 32))
    return np.choose((e // np.uint64(16) % np.uint64(4)).astype(np.intp), words).astype(np.uint32)


def test_philox_known_answers(library):
    """Vectors published with Random123, the authors' implementation, for 7 rounds."""
    ones = 0xFFFFFFFF
    for counter, key, words in [
        ([0, 0, 0, 0], [0, 0], [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]),
        ([ones] * 4, [ones] * 2, [0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A],
        ),
    ]:
        assert [int(x) for x in philox4x32(counter, key)] == words
    assert [library.tc_philox(0, 0, 16 * i) for i in range(4)] == [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]


def test_philox_in_plain_c(library, rng):
    for seed, call in [(0, 0), (2**64 - 1, 2**64 - 1), *rng.integers(0, 2**64, (4, 2), np.uint64).tolist()]:
        ends = np.array([2**64 - 1, 2**38 - 1, 2**38], np.uint64)
        elements = np.concatenate([np.arange(130, dtype=np.uint64), rng.integers(0, 2**64, 100, np.uint64), ends])
        np.testing.assert_array_equal([library.tc_philox(seed, call, int(e)) for e in elements], words_of(seed, call, elements))


def z_of_rate(hits, rate):
    return (np.count_nonzero(hits) - hits.size * rate) / np.sqrt(hits.size * rate * (1 - rate))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_rate_and_independence_of_what_is_kept(p):
    n, elements = 1 << 20, np.arange(1 << 20)
    words = words_of(42, 7, elements)
    keep = words >= np.uint32(round(p * 2**32))
    assert abs(z_of_rate(keep, 1 - p)) < 4
    for lag in (1, 2, 15, 16, 17, 48, 63, 64, 65, 768, 1024):  # neighbours in a block, a group, the next group, a row
        assert abs(z_of_rate(keep[lag:] & keep[:-lag], (1 - p) ** 2)) < 5, lag
    for seed, call in ((42, 8), (43, 7), (42, 7 + 2**32), (42 + 2**32, 7), (7, 42)):
        other = words_of(seed, call, elements) >= np.uint32(round(p * 2**32))
        assert abs(z_of_rate(keep & other, (1 - p) ** 2)) < 4.5, (seed, call)
    for byte in range(4):
        counts = np.bincount((words >> np.uint32(8 * byte)) & np.uint32(255), minlength=256)
        chi_square = ((counts - n / 256) ** 2).sum() / (n / 256)
        assert abs(chi_square - 255) < 5 * np.sqrt(2 * 255), byte
    distance = np.abs(np.sort(words) / 2**32 - (np.arange(n) + 0.5) / n).max()
    assert distance * np.sqrt(n) < 2.0  # Kolmogorov-Smirnov: beyond it once in 1500


# ---- the dropout kernel, once for each instruction set and precision ----------------------------------------------------


class DropoutArgs(ctypes.Structure):
    _fields_ = [("y", ctypes.c_void_p), ("x", ctypes.c_void_p), ("n", ctypes.c_int64), ("p", ctypes.c_double)]
    _fields_ += [("seed", ctypes.c_uint64), ("call", ctypes.c_uint64), ("drawn", ctypes.c_void_p)]
    _fields_ += [(name, ctypes.c_int64) for name in ("row", "first", "step")]  # tc_places


@pytest.fixture(scope="module", params=[(isa, p) for isa in ISA_FLAGS for p in (32, 64)], ids="{0[0]}-f{0[1]}".format)
def dropout(request, tmp_path_factory):
    """dropout(y, x, p, seed, call, begin=0, end=None, first=0): y's element 0 is element `first` of the whole."""
    isa, precision = request.param
    folder = tmp_path_factory.mktemp("dropout")
    if isa not in ("baseline", "portable"):
        source = folder / "usable.c"
        source.write_text(USABLE)
        if not getattr(build(folder, "usable", source), isa)():
            pytest.skip(f"this machine has no {isa}")
    defines = [f"-DTC_ISA={isa}", f"-DTC_PRECISION={precision}"]
    core = folder / "core.c"
    core.write_text(f'#include "{CSRC}/kernels/kernels.h"\nsize_t tc_kernel_bytes_ahead = 2048;\n')
    c = build(folder, "dropout", *ISA_FLAGS[isa], *defines, CSRC / "kernels/cpu/dropout.c", core)
    function = getattr(c, f"tc_dropout_forward_f{precision}_{isa}")
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p], None

    def run(y, x, p, seed, call, begin=0, end=None, first=0):
        assert first % 64 == 0 and y.dtype == x.dtype == run.dtype
        offset, n = first * x.itemsize, first + x.size
        args = DropoutArgs(y.ctypes.data - offset, x.ctypes.data - offset, n, p, seed, call, None, max(n, 1), 0, 1)
        function(ctypes.byref(args), first // 64 + begin, (n + 63) // 64 if end is None else first // 64 + end, None)
        return y

    run.dtype = np.dtype(f"float{precision}")
    return run


@pytest.mark.parametrize("n", [0, 1, 3, 15, 16, 17, 63, 64, 65, 127, 1000])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.999])
def test_dropout_keeps_what_philox_says(dropout, rng, n, p):
    x = rng.standard_normal(n).astype(dropout.dtype)
    for seed, call, first in ((0, 0, 0), (2**64 - 1, 2**64 - 1, 64), (0x299F31D0A4093822, 0x0370734413198A2E, 2**40)):
        keep = words_of(seed, call, np.arange(n, dtype=np.uint64) + np.uint64(first)) >= np.uint32(round(p * 2**32))
        scale = dropout.dtype.type(1 / (1 - p))
        y = np.full(n + 80, 7, dropout.dtype)
        dropout(y[:n], x, p, seed, call, first=first)
        np.testing.assert_array_equal(y[:n], np.where(keep, x * scale, 0))
        assert (y[n:] == 7).all()


def test_dropout_ranges_and_in_place(dropout, rng):
    x = rng.standard_normal(1000).astype(dropout.dtype)
    whole = dropout(np.empty_like(x), x, 0.3, 1, 2)
    parts = np.empty_like(x)
    for begin, end in ((5, 16), (0, 1), (1, 5)):
        dropout(parts, x, 0.3, 1, 2, begin, end)
    np.testing.assert_array_equal(parts, whole)
    np.testing.assert_array_equal(dropout(x, x, 0.3, 1, 2), whole)


def test_dropped_nan_and_infinity_become_zero(dropout):
    for bad in (np.nan, np.inf, -np.inf):
        x = np.full(200, bad, dropout.dtype)
        keep = words_of(3, 4, np.arange(200)) >= np.uint32(round(0.4 * 2**32))
        np.testing.assert_array_equal(dropout(np.empty_like(x), x, 0.4, 3, 4), np.where(keep, bad, 0))
        np.testing.assert_array_equal(dropout(np.empty_like(x), x, 0.0, 3, 4), x)
        np.testing.assert_array_equal(dropout(np.empty_like(x), x, 1.0, 3, 4), np.zeros_like(x))


def test_p_of_zero_and_one_at_the_ends_of_the_words(dropout):
    """Elements whose word is 0 or 2^32 - 1 would be the exceptions; a million elements include words near both."""
    n = 1 << 20
    x = np.ones(n, dropout.dtype)
    np.testing.assert_array_equal(dropout(np.empty_like(x), x, 0.0, 5, 6), x)
    assert not dropout(np.empty_like(x), x, 1.0, 5, 6).any()
    almost = np.nextafter(1, 0)  # its threshold does not fit 32 bits
    assert np.count_nonzero(dropout(np.empty_like(x), x, almost, 5, 6)) <= 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_of_any_number_are_those_of_pytorch(dtype):
    torch = torch_with_vectors()
    tc.manual_seed(3), torch.manual_seed(3)
    for shape in ((1,), (15,), (16,), (17,), (5, 7), (64,), (3, 33), (2, 0)):
        np.testing.assert_array_equal(
            tc.randn(*shape, dtype=dtype).float().numpy(), torch.randn(shape, dtype=getattr(torch, dtype)).float().numpy(), str(shape)
        )
    assert tc.random.default_generator.get_state()[:5000] == torch.get_rng_state().numpy().tobytes()[:5000]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("low, high", [(0.0, 1.0), (-3.0, 5.0), (0.1, 0.7)])
def test_uniform_halves_are_below_the_upper_end(low, high, dtype):
    tc.manual_seed(3)
    drawn = tc.empty(50_000, dtype=dtype).uniform_(low, high)
    ends = tc.tensor([low, high]).to(dtype)
    assert bool((drawn >= ends[0]).all()) and bool((drawn < ends[1]).all())
    assert bool((tc.rand(50_000, dtype=dtype) < 1.0).all())
    torch = torch_with_vectors()
    torch.manual_seed(3)
    np.testing.assert_array_equal(
        drawn.float().numpy(), torch.empty(50_000, dtype=getattr(torch, dtype)).uniform_(low, high).float().numpy()
    )


@pytest.mark.parametrize("ends", [(0.0, -0.0), (-0.0, 0.0)])
def test_the_sign_of_a_zero_is_that_of_the_lower_end(ends):
    """Numbers that are rounded up to the upper end become the lower one, whichever was asked for before."""
    for low in ends:
        tc.manual_seed(0)
        drawn = tc.empty(5000, dtype="bfloat16").uniform_(low, 1.0).float().numpy()
        assert np.signbit(drawn).any() == (np.signbit(low)) and (drawn[np.signbit(drawn)] == 0).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_end_with_a_whole_block(dtype):
    """Without PyTorch: 20 numbers are the first four of one block of 16 and all of the next."""
    two = tc.randn(32, rng=3)
    twenty = tc.randn(4, 5, dtype=dtype, rng=3).flatten()
    assert twenty.tolist() == two.to(dtype)[[*range(4), *range(16, 32)]].tolist()


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16", "bool"])
def test_integers_of_other_dtypes_are_drawn_in_pieces(dtype):
    n = (3 << 20) + 5
    _core.memory_reset_peak()
    before = _core.memory_stats()["in_use"]
    drawn = tc.randint(0, 2, (n,), dtype=dtype, rng=5)
    assert _core.memory_stats()["peak_in_use"] - before < 2 * drawn.nbytes + (17 << 20)
    assert tc.equal(drawn, tc.randint(0, 2, (n,), rng=5).to(dtype))


@pytest.mark.parametrize(
    "draw",
    [
        lambda g: tc.empty(3 << 20).uniform_(generator=g),
        lambda g: tc.empty((3 << 20) + 5, dtype="float64").normal_(generator=g),
        lambda g: tc.empty(1 << 10, 1 << 8).T.normal_(generator=g),
        lambda g: tc.randn((3 << 20) + 5, dtype="float16", generator=g),
        lambda g: tc.randint(0, 1 << 29, (3 << 20,), dtype="int32", generator=g),
    ],
    ids=["uniform_", "normal_", "not contiguous", "halves", "integers"],
)
def test_what_is_drawn_in_pieces_is_unbroken_too(draw):
    """Two threads that draw from one generator: each gets what one of two calls in a row gets."""
    generator, drawn, barrier = tc.Generator(3), [], threading.Barrier(2)

    def work():
        barrier.wait()
        drawn.append(draw(generator))

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    alone = tc.Generator(3)
    first, second = draw(alone), draw(alone)
    a, b = drawn if tc.equal(drawn[0], first) else drawn[::-1]
    assert tc.equal(a, first) and tc.equal(b, second) and alone.get_state() == generator.get_state()


def test_a_mask_does_not_wait_for_a_long_draw():
    """A call of dropout has the GIL: every thread of the program would wait with it."""
    generator = tc.Generator(3)
    for _ in range(5):
        begun, took = threading.Event(), []

        def work(begun=begun, took=took):
            start = time.perf_counter()
            begun.set()
            tc.rand(16 << 20, generator=generator)
            took.append(time.perf_counter() - start)

        worker = threading.Thread(target=work)
        worker.start()
        begun.wait()
        time.sleep(0.005)
        start = time.perf_counter()
        tc.F.dropout(tc.ones(10), rng=generator)
        waited = time.perf_counter() - start
        worker.join()
        if waited < took[0] / 4:
            return
    raise AssertionError(f"waited {waited} s for a draw of {took[0]} s")


def test_the_state_that_a_checkpoint_keeps(tmp_path):
    """Saved and read back, the default generator goes on as it would have, dropout included."""
    draw = lambda: (tc.rand(3).tolist(), tc.functional.dropout(tc.ones(64), 0.5).tolist())
    state = tc.get_rng_state()
    assert state.dtype == np.uint8 and state.numpy().tobytes() == tc.random.default_generator.get_state()
    tc.save({"rng": state, "epoch": 3}, tmp_path / "checkpoint.safetensors")
    expected = draw()
    for given in (tc.load(tmp_path / "checkpoint.safetensors")["rng"], state, state.numpy().copy()):
        assert tc.set_rng_state(given) is None and draw() == expected
    state = tc.get_rng_state()
    for wrong, error in ((state[:-1], ValueError), (state.float(), TypeError), (None, TypeError), (tc.ones(8), TypeError)):
        with pytest.raises(error, match="state"):
            tc.set_rng_state(wrong)
    assert tc.equal(tc.get_rng_state(), state)


def test_a_copied_or_pickled_generator_goes_on_alike():
    generator = tc.Generator(5)
    tc.rand(7, generator=generator)
    tc.randn(1, generator=generator)  # leaves its sine behind
    copies = [copy.deepcopy(generator), pickle.loads(pickle.dumps(generator)), pickle.loads(pickle.dumps(generator, 2))]
    expected = tc.randn(3, generator=generator).tolist()
    for other in copies:
        assert type(other) is tc.Generator and repr(other) == repr(generator) == "Generator(seed=5)"
        assert tc.randn(3, generator=other).tolist() == expected


def test_the_state_of_pytorchs_generator():
    torch = pytest.importorskip("torch")
    torch.manual_seed(4), torch.rand(3)
    tc.set_rng_state(torch.get_rng_state().numpy())
    assert tc.rand(3).tolist() == torch.rand(3).tolist()
