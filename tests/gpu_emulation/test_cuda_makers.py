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
    "arange of bytes": lambda d: tc.arange(300, dtype="uint8", device=d),
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


def test_an_arange_is_one_kernel(emulated_gpu, emulated_library):
    emulated_library.launches()
    tc.arange(100, device=emulated_gpu)
    assert len(emulated_library.launches()) == 1
