"""Hostile arguments: lengths near 2**63, sequences that change while they are read, arrays larger than memory."""

import numpy as np
import pytest
import transformer_c as tc

FAR = 2**63 - 1


@pytest.mark.parametrize("start, length", [(FAR, 1), (1, FAR), (FAR, FAR), (2**62, 2**62)])
def test_narrow_to_the_end_of_all_integers(start, length):
    for dtype in ("uint8", "int64"):
        with pytest.raises(IndexError, match="outside an axis of length 10"):
            tc.zeros(10, dtype=dtype).narrow(0, start, length)


def test_pieces_larger_than_anything():
    x = tc.arange(10)
    assert [p.shape for p in x.split(FAR)] == [(10,)]
    assert [p.shape for p in x.split(2**62)] == [(10,)]
    assert [p.shape for p in x.chunk(FAR)] == [(1,)] * 10
    assert [p.shape for p in tc.zeros(0, 3).chunk(5)] == [(0, 3)] * 5 and len(tc.zeros(0, 3).split(5)) == 1  # as in PyTorch


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda x: x.sum(axis=2**70), "axis"),
        (lambda x: x.reshape(2**64, 1), "shape"),
        (lambda x: x.transpose(0, -(2**63) - 1), "dim1"),
        (lambda x: tc.functional.softmax(x, 2**63), "axis"),
    ],
)
def test_integers_beyond_64_bits_are_named(call, name):
    with pytest.raises(ValueError, match=rf"^{name} is -?\d+; expected an int of at most 64 bits"):
        call(tc.ones(2, 3))


class Emptying:
    """Empties the list that it is in, as soon as someone looks at it."""

    def __init__(self, items):
        self.items = items

    def __array__(self, dtype=None, copy=None):
        self.items.clear()
        return np.ones(3, np.float32)

    def __index__(self):
        self.items.clear()
        return 1


def filled_with(item, count):
    items = [item]
    items += [Emptying(items)] + [item] * count
    return items


def test_a_list_of_tensors_that_changes_while_it_is_read():
    assert tc.cat(filled_with(tc.ones(3), 1000)).tolist() == [1.0] * 3 * 1002


def test_a_list_of_ints_that_changes_while_it_is_read():
    assert tc.ones(1).expand(filled_with(1, 3)).shape == (1,) * 5
    assert tc.randn(filled_with(1, 3)).shape == (1,) * 5


def test_more_elements_than_memory_by_strides():
    x = tc.as_tensor(np.broadcast_to(np.float32(1), (2**16, 2**16)))
    assert repr(x).count("\n") == 6
    assert x[-1, 1::2].sum().item() == 2.0**15
    assert tc.as_tensor(np.broadcast_to(np.uint8(1), (2**16, 2**15 + 1))).sum().item() == 2**31 + 2**16


def test_an_op_is_made_by_the_library_alone():
    with pytest.raises(TypeError, match="cannot create"):
        type(tc._core.layer_norm)()
    with pytest.raises(TypeError):
        object.__new__(type(tc._core.layer_norm))
