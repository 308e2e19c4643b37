"""Dropout of a batch that ranks share: each keeps of its rows what one process keeps of them."""

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core


def part_of(call, rows, rank, size):
    """What a rank computes of its rows, first, first + size, ..."""
    before = _core.exchange_batch_share(rows, rank, size)
    try:
        return call()
    finally:
        assert _core.exchange_batch_share(*before) == (rows, rank, size)


SHAPES = [(6, 1), (6, 7), (6, 64), (6, 3, 43), (12, 5), (6, 200), (6, 2, 128), (6, 63), (6, 65)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_are_dropped_as_in_the_whole_batch(shape, size, dtype, isa, threads):
    x = tc.ones(shape).to(dtype)
    whole = np.asarray(_core.dropout(x, 0.4, 11, 3))
    rows, each = 6 // size, shape[0] // 6  # the leading axis may have several for each sample
    numbers = np.arange(shape[0]).reshape(6, each)
    for rank in range(size):
        own = numbers[rank::size].reshape(-1)
        leaf = (
            tc.ones((len(own), *shape[1:]), requires_grad=True)
            if dtype == "float32"
            else tc.ones((len(own), *shape[1:])).double().requires_grad_()
        )
        part = part_of(lambda leaf=leaf: _core.dropout(leaf, 0.4, 11, 3), rows, rank, size)
        assert np.array_equal(np.asarray(part.detach()), whole[own]), (rank, own)
        part.sum().backward()  # outside of the share
        assert np.array_equal(np.asarray(leaf.grad), whole[own])


@pytest.mark.parametrize("merged", [False, True], ids=["heads", "merged heads"])
@pytest.mark.parametrize("size", [2, 3])
def test_attention_drops_as_in_the_whole_batch(merged, size, isa, rng):
    q, k, v = rng.standard_normal((3, 6, 2, 9, 8)).astype(np.float32)

    def attend(rows):
        arrays = [x[rows].reshape(-1, 9, 8) if merged else x[rows] for x in (q, k, v)]
        leaves = [tc.tensor(a, requires_grad=True) for a in arrays]
        return leaves, tc.F.scaled_dot_product_attention(*leaves, dropout_p=0.3, rng=tc.Generator(5))

    def shaped(x):
        return np.asarray(x).reshape(-1, 2, 9, 8)

    leaves, whole = attend(slice(None))
    whole.square().sum().backward()
    for rank in range(size):
        own, part = part_of(lambda rank=rank: attend(slice(rank, None, size)), 6 // size, rank, size)
        part.square().sum().backward()
        assert np.array_equal(shaped(part.detach()), shaped(whole.detach())[rank::size])
        for a, b in zip(own, leaves, strict=True):
            assert np.allclose(shaped(a.grad), shaped(b.grad)[rank::size], rtol=1e-6, atol=1e-6)


def test_what_has_no_rows_of_the_batch_is_the_same_on_all_ranks():
    x = tc.ones(5, 9)
    assert _core.dropout(x, 0.5, 1, 2).tolist() == part_of(lambda: _core.dropout(x, 0.5, 1, 2).tolist(), 3, 1, 2)
    assert part_of(lambda: _core.dropout(tc.ones(0, 4), 0.5, 1, 2), 2, 1, 2).shape == (0, 4)


@pytest.mark.parametrize("share", [(-1, 0, 1), (1, -1, 1), (1, 0, 0)])
def test_wrong_shares_are_refused(share):
    with pytest.raises(ValueError, match="a share of a batch has rows and a first row of at least 0"):
        _core.exchange_batch_share(*share)
    assert _core.exchange_batch_share(0, 0, 0)[0] == 0
