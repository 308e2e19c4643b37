"""Dropout as an op: the kept elements follow from seed, call and place, whatever the instruction set, threads, dtype and layout."""

import inspect
from pathlib import Path

import numpy as np
import pytest
import transformer_c as tc
from interrupting import before_instruction, interrupted
from transformer_c import _core, functional

KEEP_ALL, KEEP_NONE = 0.0, 1.0
# The first 48 elements at p = 0.3, seed 42, call 7, by the definition (words_of in tests/core/test_random.py): never changes.
KEPT = "111110110101111011110101111101111111101111111011"


def kept(shape, p, seed, call):
    return _core.dropout_forward(np.ones(shape, np.float32), p, seed, call) != 0


def test_the_mask_is_that_of_the_definition(isa):
    assert "".join("01"[int(k)] for k in kept(48, 0.3, 42, 7)) == KEPT


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (5, 0, 3), (63,), (64,), (65,), (7, 11, 13), (700, 129)])
def test_values(isa, dtype, shape, rng):
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = rng.standard_normal(shape).astype(dtype)
    for p in (0.1, 0.5, 0.9):
        y = _core.dropout_forward(x, p, 2**64 - 1, 3)
        compute = np.float64 if dtype == np.float64 else np.float32
        expected = np.where(kept(shape, p, 2**64 - 1, 3), x.astype(compute) * compute(1 / (1 - p)), 0).astype(dtype)
        assert y.dtype == dtype and y.shape == shape
        np.testing.assert_array_equal(y, expected)


def test_same_bits_for_any_instruction_set_and_threads(isa, threads):
    x = np.random.default_rng(1).standard_normal(300_001)
    words = _core.dropout_forward(x, 0.5, 11, 0)
    _core.set_num_threads(1)
    _core.cpu_select("baseline")
    np.testing.assert_array_equal(_core.dropout_forward(x, 0.5, 11, 0), words)


def test_rate(rng):
    n = 1 << 20
    for p in (0.1, 0.5, 0.9):
        rate = np.count_nonzero(kept(n, p, int(rng.integers(2**63)), 0)) / n
        assert abs(rate - (1 - p)) < 5 * np.sqrt(p * (1 - p) / n)


def test_seeds_and_calls_differ():
    masks = [kept(1000, 0.5, *key).tobytes() for key in [(1, 2), (2, 1), (1, 3), (-1, 2), (1, 2 + 2**32), (1 + 2**32, 2)]]
    assert len(set(masks)) == len(masks)
    assert kept(1000, 0.5, -1, 2).tobytes() == kept(1000, 0.5, 2**64 - 1, 2).tobytes()


def test_strides_and_byte_order(rng):
    base = rng.standard_normal((40, 30)).astype(np.float32)
    for x in (base.T, base[::-2, ::3], np.broadcast_to(base[0], (5, 30)), base.astype(">f4")):
        expected = _core.dropout_forward(np.ascontiguousarray(x, np.float32), 0.4, 1, 2)
        np.testing.assert_array_equal(_core.dropout_forward(x, 0.4, 1, 2), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ends_and_bad_numbers(isa, dtype):
    for value in (1.0, np.nan, np.inf):
        x = np.full(1000, value, dtype)
        np.testing.assert_array_equal(_core.dropout_forward(x, KEEP_ALL, 1, 2), x)
        np.testing.assert_array_equal(_core.dropout_forward(x, KEEP_NONE, 1, 2), np.zeros_like(x))
        np.testing.assert_array_equal(_core.dropout_forward(x, 0.5, 1, 2), np.where(kept(1000, 0.5, 1, 2), x * 2, 0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_probability_of_one_keeps_nothing_whatever_the_word(isa, dtype):
    """Of this seed the word of the last element is 2^32 - 1, which every threshold of 32 bits keeps."""
    x = np.full(1684, np.nan, dtype)
    assert np.isnan(_core.dropout_forward(x, np.nextafter(1, 0), 256857, 0)).nonzero()[0].tolist() == [1683]
    for value in (np.nan, np.inf, 1.0):
        np.testing.assert_array_equal(_core.dropout_forward(np.full_like(x, value), 1.0, 256857, 0), np.zeros_like(x))


def test_errors():
    x = np.ones(3, np.float32)
    for p in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"p must be between 0 and 1"):
            _core.dropout(x, p, 1, 2)
    with pytest.raises(TypeError, match="x is int64"):
        _core.dropout(np.arange(3), 0.5, 1, 2)
    with pytest.raises(TypeError):
        _core.dropout(x, 0.5, 1.5, 2)


def test_every_op_that_drops_asks_for_seed_and_call():
    x = np.ones((4, 4), np.float32)
    others = {"num_heads": 1, "normalized_shape": (4,)}
    signatures = {
        name: inspect.signature(op) for name, op in vars(_core).items() if "seed=None" in (getattr(op, "__text_signature__", None) or "")
    }
    assert {"linear", "linear_backward", "add_layer_norm", "attention_forward", "encoder_block"} <= signatures.keys()
    for name, signature in signatures.items():
        required = [key for key, value in signature.parameters.items() if value.default is value.empty]
        arguments = {key: others.get(key, x) for key in required}
        rates = [key for key in ("dropout", "hidden_dropout") if key in signature.parameters]
        for rate in rates:
            for given, missing in ({}, "seed"), ({"seed": 1}, "call"), ({"call": 1}, "seed"):
                with pytest.raises(ValueError, match=f"dropout needs the arguments seed and call.*; {missing} is None"):
                    getattr(_core, name)(**arguments, **{rate: 0.5}, **given)


def test_a_refused_call_takes_no_mask():
    """The generator is unchanged, so the next mask is the same as without the call."""
    x = np.ones((1, 1, 3, 2), np.float32)
    refused = {
        "dtype": lambda g: tc.F.dropout(np.array(["a"]), 0.5, rng=g),
        "residual": lambda g: tc.F.add_layer_norm(x, x[0], 2, dropout_p=0.5, rng=g),
        "norm": lambda g: tc.F.add_layer_norm(x, x, 2, dropout_p=1.5, rng=g),
        "mask": lambda g: tc.F.scaled_dot_product_attention(x, x, x, np.ones((7, 7), bool), dropout_p=0.5, rng=g),
        "rate": lambda g: tc.F.scaled_dot_product_attention(x, x, x, dropout_p=1.5, rng=g),
        "empty": lambda g: tc.F.scaled_dot_product_attention(x, x, x, key_lengths=[0], dropout_p=0.5, rng=g, empty_rows="raise"),
        "window": lambda g: tc.F.scaled_dot_product_attention(x, x, x, window=3, dropout_p=0.5, rng=g),
    }
    generator = tc.Generator(3)
    for name, call in refused.items():
        before = generator.get_state()
        with pytest.raises((TypeError, ValueError)):
            call(generator)
        assert generator.get_state() == before, name
    first = generator.next_call()
    with pytest.raises(ZeroDivisionError):
        generator.with_mask(lambda seed, call: generator.next_call() / 0)  # another thread has gone on
    assert generator.next_call() == first + 3


MASKED = {
    "dropout": ("dropout", lambda x, g: tc.F.dropout(x, 0.5, rng=g)),
    "add_layer_norm": ("add_layer_norm", lambda x, g: tc.F.add_layer_norm(x, x, 2, dropout_p=0.5, rng=g)),
    "attention": ("attention", lambda x, g: tc.F.scaled_dot_product_attention(x, x, x, dropout_p=0.5, rng=g)),
    "all of attention": (
        "attention",
        lambda x, g: tc.F.scaled_dot_product_attention(x, x, x, dropout_p=0.5, rng=g, return_attention=True, return_logsumexp=True),
    ),
}


def is_of_functional(frame):
    return Path(frame.f_code.co_filename).parent == Path(functional.__file__).parent


@pytest.mark.parametrize("name", MASKED)
def test_an_interrupt_at_any_instruction_takes_no_mask(name, monkeypatch):
    """Unless it comes when the result is on its way to the caller."""
    op, call = MASKED[name]
    x, core, results = tc.ones(1, 1, 3, 2), getattr(_core, op), []

    def counted(*args, **kwargs):
        results.append(core(*args, **kwargs))
        return results[-1]

    monkeypatch.setattr(_core, op, counted)
    refused = 0
    for nth in range(10_000):
        generator = tc.Generator(1)
        before = generator.get_state()
        results.clear()
        if not interrupted(nth, lambda generator=generator: call(x, generator), before_instruction, is_of_functional):
            break
        refused += not results
        assert results or generator.get_state() == before, nth
    assert refused > 20
