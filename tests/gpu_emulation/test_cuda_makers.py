"""New Tensors of constants: a kernel writes them, so that nothing is copied to the GPU and a capture takes them."""

import numpy as np
import pytest
import transformer_c as tc
from device_cases import host
from test_cuda_waits import NOTHING, counted
from transformer_c import functional as F

pytestmark = pytest.mark.usefixtures("nothing_is_left")

MAKERS = {
    "arange": lambda d: tc.arange(7, device=d),
    "arange of none": lambda d: tc.arange(0, device=d),
    "arange of one": lambda d: tc.arange(5, 6, device=d),
    "arange down": lambda d: tc.arange(9, -8, -4, device=d),
    "arange of floats": lambda d: tc.arange(0.3, 7.7, 0.1, device=d),
    "arange of doubles": lambda d: tc.arange(-1, 1, 0.07, dtype="float64", device=d),
    "arange in halves": lambda d: tc.arange(0, 300, 7, dtype="float16", device=d),
    "arange in bfloat16": lambda d: tc.arange(0, 300, 7, dtype="bfloat16", device=d).float(),
    "arange of bytes": lambda d: tc.arange(256, dtype="uint8", device=d),
    "arange of int32": lambda d: tc.arange(2.5, 9.5, dtype="int32", device=d),
    "arange of bools": lambda d: tc.arange(2, dtype="bool", device=d),
    "a large arange": lambda d: tc.arange(2**40, 2**40 + 3, device=d),
    "a long arange": lambda d: tc.arange(1000, device=d),
    "a leaf": lambda d: tc.arange(3.0, device=d, requires_grad=True),
    "linspace": lambda d: tc.linspace(-1, 1.7, 11, device=d),
    "linspace of doubles": lambda d: tc.linspace(0.1, 3, 23, dtype="float64", device=d),
    "linspace of none": lambda d: tc.linspace(0, 1, 0, device=d),
    "linspace of one": lambda d: tc.linspace(3, 4, 1, device=d),
    "linspace of ints": lambda d: tc.linspace(10, -3, 8, dtype="int64", device=d),
    "full": lambda d: tc.full((2, 3), 2.5, device=d),
    "full of ints": lambda d: tc.full((3,), 2**50 + 1, device=d),
    "zeros": lambda d: tc.zeros(2, 3, device=d),
    "ones": lambda d: tc.ones(2, dtype="bool", device=d),
    "full_like": lambda d: tc.full_like(tc.ones(2, 2, device=d), 7),
    "new_full": lambda d: tc.ones(2, device=d).new_full((3,), 4),
    "one number": lambda d: tc.tensor(2.5, device=d),
    "eye": lambda d: tc.eye(4, device=d),
    "a wide eye": lambda d: tc.eye(3, 5, dtype="int64", device=d),
    "tril": lambda d: tc.tril(tc.ones(4, 4, dtype="bool", device=d), -1),
    "triu": lambda d: tc.triu(tc.full((3, 5), float("-inf"), device=d), 1),
    "a causal mask": lambda d: tc.nn.Transformer.generate_square_subsequent_mask(4, device=d),
    "meshgrid": lambda d: tc.stack(tc.meshgrid(tc.arange(2, device=d), tc.arange(3, device=d))),
    "diag": lambda d: tc.diag(tc.arange(1, 4, device=d), 1),
    "diag below": lambda d: tc.diag(tc.ones(2, device=d), -2),
    "one_hot": lambda d: F.one_hot(tc.arange(3, device=d), 5),
    "repeat_interleave": lambda d: tc.repeat_interleave(tc.arange(3, device=d), 2),
    "pad reflect": lambda d: F.pad(tc.arange(4.0, device=d), (3, 2), mode="reflect"),
    "pad replicate": lambda d: F.pad(tc.arange(6.0, device=d).reshape(2, 3), (3, -1, 1, 2), mode="replicate"),
    "pad circular": lambda d: F.pad(tc.arange(6.0, device=d).reshape(2, 3), (2, -1, -1, 1), mode="circular"),
    "interpolate": lambda d: F.interpolate(tc.arange(12.0, device=d).reshape(1, 2, 2, 3), scale_factor=2, mode="bicubic"),
    "interpolate, antialias": lambda d: F.interpolate(tc.ones(1, 2, 4, 3, device=d), (8, 3), mode="bilinear", antialias=True),
    "interpolate nearest": lambda d: F.interpolate(tc.arange(10.0, device=d).reshape(1, 2, 5), scale_factor=1.7),
    "interpolate area": lambda d: F.interpolate(tc.arange(10.0, device=d).reshape(1, 2, 5), 3, mode="area"),
    "positions": lambda d: (
        tc.PositionalEncoding(4, 8).to(d)(tc.zeros(1, 3, 4, device=d)) if d == "cpu" else ENCODING[0](tc.zeros(1, 3, 4, device=d))
    ),
}
ENCODING: list = []  # on the GPU


@pytest.mark.parametrize("name", MAKERS)
def test_nothing_is_copied(emulated_gpu, emulated_library, name):
    """The values are those of the CPU, and those that a capture makes at each start."""
    ENCODING[:] = [tc.PositionalEncoding(4, 8).to(emulated_gpu)]
    expected, made = MAKERS[name]("cpu"), []
    tc.cuda.synchronize(emulated_gpu)
    assert counted(emulated_library, lambda: made.append(MAKERS[name](emulated_gpu))) == NOTHING
    step = tc.cuda.graph(lambda: MAKERS[name](emulated_gpu), device=emulated_gpu)
    made += [step() for _ in range(3)]
    ENCODING.clear()
    for found in made:
        assert found.device == emulated_gpu and found.dtype == expected.dtype and found.shape == expected.shape
        assert found.requires_grad == expected.requires_grad
        np.testing.assert_array_equal(host(found), host(expected))


RANGES = [name for name in MAKERS if name.startswith(("a l", "arange", "linspace")) and not name.endswith(("none", "in bfloat16"))]


@pytest.mark.parametrize("name", RANGES)
def test_a_range_is_one_kernel(emulated_gpu, emulated_library, name):
    emulated_library.launches()
    MAKERS[name](emulated_gpu)
    (kernel,) = emulated_library.launches()
    assert "range_kernel" in kernel


def in_steps(first, step, last, length, turn):
    """The numbers of float64 that are rounded to the dtype."""
    i = np.arange(length, dtype=np.float64)
    values = np.where(i < turn, first + step * i, last - step * (length - 1 - i))
    values[turn:][-1:] = last
    return values


# first, step, last, length, turn; all below 2^53 of a unit: computed as integers
WHOLE = {
    "integers": (3.0, -2.0, 0.0, 70, 70),
    "quarters": (0.0, 0.25, 0.0, 200, 200),
    "from one end to the other": (-1.0, 2.0**-7, 1.0, 257, 256),
    "many bits": (1.0 + 2.0**-40, 3.0 * 2.0**-30, 0.0, 99, 99),
    "to 2^53": (2.0**53 - 99.0, 1.0, 0.0, 99, 99),
    "no step": (5.5, 0.0, 5.5, 1, 1),
}
REAL = {
    "tenths": (0.3, 0.1, 0.0, 400, 400),
    "thirds": (-1.0, 1 / 3, 1.0, 7, 6),
    "another end": (0.0, 0.25, 9.0, 5, 4),
    "beyond 2^53": (2.0**53 - 9.0, 3.0, 0.0, 99, 99),
    "tiny": (1e-300, 1e-310, 0.0, 40, 40),
    "of float32's smallest": (1e-44, 1.3e-45, 0.0, 40, 40),
    "too large for float32": (1e38, 1e38, 0.0, 9, 9),
    "a negative zero": (-0.0, -1.0, 0.0, 4, 4),
    "towards a negative zero": (-4.0, 1.0, -0.0, 5, 4),
    "infinite": (0.0, np.inf, np.inf, 4, 3),
    "not a number": (np.nan, 1.0, 0.0, 4, 4),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("name", [*WHOLE, *REAL])
def test_numbers_in_equal_steps(emulated_gpu, emulated_library, name, dtype):
    """To the bit those of float64, rounded to the dtype as casts are. Those that are whole are computed without float64."""
    arguments = (WHOLE | REAL)[name]
    with np.errstate(invalid="ignore"):
        expected = tc.tensor(in_steps(*arguments)).to(dtype)
    emulated_library.launches()
    found = tc._core.spaced(*arguments, dtype, emulated_gpu)
    (kernel,) = emulated_library.launches()
    if dtype in ("float32", "float64", "float16", "bfloat16"):
        assert ("whole_range_kernel" in kernel) == (name in WHOLE)
    for made in (found, tc._core.spaced(*arguments, dtype)):
        assert made._dtype_name == dtype
        np.testing.assert_array_equal(bits(made), bits(expected))


def bits(x):
    """Of NaN, which NaN is open."""
    array = np.ascontiguousarray(host(x))
    return np.where(array != array, 0, array.view(f"u{array.itemsize}"))


@pytest.mark.parametrize("steps, most", [("dyadic", 2.0**40), ("any", 1.0)])
def test_random_numbers_in_equal_steps(emulated_gpu, rng, steps, most):
    for _ in range(40):
        length = int(rng.integers(2, 60))
        first, step = (
            rng.integers(-(2**20), 2**20, 2) / 2.0 ** rng.integers(0, 30) if steps == "dyadic" else rng.standard_normal(2) * most
        ).tolist()
        last = first + step * (length - 1)
        turn = int(rng.integers(1, length + 1))
        wide = tc.tensor(in_steps(first, step, last, length, turn))
        for dtype in ("float32", "float64", "float16", "int64"):
            found = tc._core.spaced(first, step, last, length, turn, dtype, emulated_gpu)
            np.testing.assert_array_equal(bits(found), bits(wide.to(dtype)))


FILLS = {name: getattr(tc.nn.init, name) for name in dir(tc.nn.init) if name.endswith(("normal_", "uniform_"))}
FILLS["trunc_normal_ far from the mean"] = lambda t: tc.nn.init.trunc_normal_(t, a=1.5, b=2.0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FILLS)
def test_initial_values_are_those_of_the_cpu(emulated_gpu, name, dtype):
    found = []
    for place in ("cpu", emulated_gpu):
        tc.manual_seed(3)
        x = tc.full((6, 5), 7.0, dtype=dtype, device=place)
        assert FILLS[name](x) is x and x.device == place
        found.append(bits(x))
    np.testing.assert_array_equal(*found)
