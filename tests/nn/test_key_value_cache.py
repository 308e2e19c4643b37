"""Decoding with cached keys and values: one step at a time, or in pieces, gives the same as the whole sequence."""

import copy

import numpy as np
import pytest
import transformer_c as tc
from interrupting import interrupted
from tolerance import assert_close

BATCH, LENGTH, WIDTH = 3, 7, 8
PIECES = [[1] * LENGTH, [3, 1, 1, 2], [LENGTH], [1, 6]]


def cut(x, pieces, axis=1):
    return np.split(x, np.cumsum(pieces)[:-1], axis=axis)


@pytest.fixture(params=["recorded", "arrays"])
def give(request):
    """What modules are called with: Tensors, so that gradients are recorded, or ndarrays."""
    return (lambda x: tc.tensor(x, requires_grad=True)) if request.param == "recorded" else (lambda x: x)


def numbers(y):
    return y.detach().numpy() if isinstance(y, tc.Tensor) else y


@pytest.mark.parametrize("pieces", PIECES, ids=str)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"kdim": WIDTH, "vdim": 5}, {"add_bias_kv": True, "add_zero_attn": True}], ids=["", "vdim", "added"]
)
@pytest.mark.parametrize("max_length", [None, LENGTH])
def test_attention_in_pieces(pieces, batch_first, options, max_length, give, rng):
    module = tc.nn.MultiheadAttention(WIDTH, 2, batch_first=batch_first, dtype=np.float64, **options)
    axis = 1 if batch_first else 0
    shape = (BATCH, LENGTH) if batch_first else (LENGTH, BATCH)
    x = rng.standard_normal((*shape, WIDTH))
    value = rng.standard_normal((*shape, options.get("vdim", WIDTH)))
    padding = np.arange(LENGTH) >= np.array([[7], [4], [6]])
    whole, weights = module(x, x, value, key_padding_mask=padding, is_causal=True)
    cache, end = tc.nn.KeyValueCache(max_length), 0
    for part, values in zip(cut(x, pieces, axis), cut(value, pieces, axis), strict=True):
        begin, end = end, end + part.shape[axis]
        y, maps = module(give(part), give(part), give(values), padding[:, :end], is_causal=True, past_key_value=cache)
        assert len(cache) == end and cache.key.shape == (BATCH, 2, end, WIDTH // 2)
        assert_close(numbers(y), whole.take(range(begin, end), axis), "float64", scale=10)
        extra = weights.shape[2] - LENGTH
        seen = np.concatenate([weights[:, begin:end, :end], weights[:, begin:end, LENGTH:]], axis=2)
        assert maps.shape == (BATCH, end - begin, end + extra)
        assert_close(numbers(maps), seen, "float64", scale=10)


@pytest.mark.parametrize("pieces", PIECES, ids=str)
@pytest.mark.parametrize("norm_first", [False, True])
def test_stacks_in_pieces(pieces, norm_first, give, rng):
    base = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first, "dtype": np.float64}
    x, memory = rng.standard_normal((BATCH, LENGTH, WIDTH)), rng.standard_normal((BATCH, 5, WIDTH))
    padding = np.arange(5) >= np.array([[5], [2], [1]])
    decoder = tc.nn.TransformerDecoder(tc.nn.TransformerDecoderLayer(WIDTH, 2, 12, **base), 2, tc.nn.LayerNorm(WIDTH, dtype=np.float64))
    encoder = tc.nn.TransformerEncoder(tc.nn.TransformerEncoderLayer(WIDTH, 2, 12, **base), 2)
    caches = decoder.new_caches()
    steps = [
        numbers(decoder(give(part), memory, memory_key_padding_mask=padding, tgt_is_causal=True, past_key_value=caches))
        for part in cut(x, pieces)
    ]
    whole = decoder(x, memory, memory_key_padding_mask=padding, tgt_is_causal=True)
    assert_close(np.concatenate(steps, 1), whole, "float64", scale=10)
    caches = encoder.new_caches(LENGTH)
    steps = [numbers(encoder(give(part), is_causal=True, past_key_value=caches)) for part in cut(x, pieces)]
    assert_close(np.concatenate(steps, 1), encoder(x, is_causal=True), "float64", scale=10)


def test_gradients_through_the_cache(rng):
    module = tc.nn.MultiheadAttention(WIDTH, 2, batch_first=True, dtype=np.float64)
    x = tc.tensor(rng.standard_normal((BATCH, LENGTH, WIDTH)), requires_grad=True)
    dy = tc.tensor(rng.standard_normal((BATCH, LENGTH, WIDTH)))
    module(x, x, x, is_causal=True)[0].backward(gradient=dy)
    expected = {"x": x.grad.numpy(), **{n: p.grad.numpy() for n, p in module.named_parameters()}}
    module.zero_grad()
    x.grad = None
    cache, steps = tc.nn.KeyValueCache(), []
    for i in range(LENGTH):
        part = x[:, i : i + 1]
        steps.append(module(part, part, part, is_causal=True, past_key_value=cache)[0])
    tc.cat(steps, 1).backward(gradient=dy)
    found = {"x": x.grad.numpy(), **{n: p.grad.numpy() for n, p in module.named_parameters()}}
    for name, gradient in expected.items():
        assert_close(found[name], gradient, "float64", gradient=True, scale=10, name=name)


def steps_of(decoder, x, memory, caches):
    return [decoder(x[:, i : i + 1], memory, tgt_is_causal=True, past_key_value=caches) for i in range(x.shape[1])]


def decoder_and_input(rng):
    layer = tc.nn.TransformerDecoderLayer(WIDTH, 2, 12, dropout=0.0, batch_first=True)
    draw = lambda t: rng.standard_normal((BATCH, t, WIDTH)).astype(np.float32)
    return tc.nn.TransformerDecoder(layer, 2), draw(LENGTH), draw(5)


def test_truncate_and_go_another_way(rng):
    decoder, x, memory = decoder_and_input(rng)
    caches = decoder.new_caches()
    first = steps_of(decoder, x, memory, caches)
    for cache in caches:
        cache.truncate(3)
    again = steps_of(decoder, x[:, 3:], memory, caches)
    np.testing.assert_array_equal(np.concatenate(first[3:]), np.concatenate(again))
    for cache in caches:
        cache.truncate(0)
    np.testing.assert_array_equal(np.concatenate(steps_of(decoder, x, memory, caches)), np.concatenate(first))
    with pytest.raises(ValueError, match="has 7 positions; it cannot be truncated to 8"):
        caches[0].truncate(8)


def test_reorder_picks_beams(rng):
    decoder, x, memory = decoder_and_input(rng)
    caches, order = decoder.new_caches(), [2, 0]
    steps_of(decoder, x[:, :4], memory, caches)
    for cache in caches:
        cache.reorder(order)
    found = steps_of(decoder, x[order, 4:], memory[order], caches)
    expected = steps_of(decoder, x[order], memory[order], decoder.new_caches())[4:]
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(expected), rtol=0, atol=1e-6)


def test_a_copy_goes_its_own_way(rng):
    decoder, x, memory = decoder_and_input(rng)
    caches = decoder.new_caches(LENGTH)
    steps_of(decoder, x[:, :3], memory, caches)
    other = copy.deepcopy(caches)
    first = steps_of(decoder, x[:, 3:], memory, caches)
    steps_of(decoder, -x[:, 3:], memory, other)
    for cache in caches:
        cache.truncate(3)
    np.testing.assert_array_equal(np.concatenate(steps_of(decoder, x[:, 3:], memory, caches)), np.concatenate(first))


def test_the_memory_is_projected_once(rng):
    decoder, x, memory = decoder_and_input(rng)
    caches = decoder.new_caches()
    expected = steps_of(decoder, x[:, :2], memory, decoder.new_caches())
    decoder(x[:, :1], memory, tgt_is_causal=True, past_key_value=caches)
    assert caches[0].cross.static and len(caches[0].cross) == 5
    kept = caches[0].cross.key.numpy().copy()
    found = decoder(x[:, 1:2], np.full_like(memory, np.nan), tgt_is_causal=True, past_key_value=caches)  # not looked at any more
    np.testing.assert_array_equal(found, expected[1])
    np.testing.assert_array_equal(caches[0].cross.key.numpy(), kept)


def test_refused_calls_leave_the_caches(rng):
    decoder, x, memory = decoder_and_input(rng)
    caches = decoder.new_caches(LENGTH)
    expected = steps_of(decoder, x, memory, decoder.new_caches())
    steps_of(decoder, x[:, :3], memory, caches)
    bad = decoder.layers[1].linear2.weight
    decoder.layers[1].linear2.weight = tc.nn.Parameter(np.zeros((WIDTH, 3), np.float32))  # the second layer fails at its very end
    with pytest.raises(ValueError):
        decoder(x[:, 3:4], memory, tgt_is_causal=True, past_key_value=caches)
    fresh = decoder.new_caches()
    assert len(fresh[1].cross) == 0  # looked at, so there, before the call that is refused; the first layer's is not
    with pytest.raises(ValueError):
        decoder(x[:, :1], memory, tgt_is_causal=True, past_key_value=fresh)
    assert all(len(cache) == 0 and len(cache.cross) == 0 for cache in fresh)
    decoder.layers[1].linear2.weight = bad
    assert [len(cache) for cache in caches] == [3, 3]
    np.testing.assert_array_equal(np.concatenate(steps_of(decoder, x[:, 3:], memory, caches)), np.concatenate(expected[3:]))
    fresh = decoder.new_caches()
    with pytest.raises(ValueError):
        decoder(x[:, :1], memory, memory_mask=np.zeros((2, 2), bool), tgt_is_causal=True, past_key_value=fresh)
    assert all(len(cache) == 0 and len(cache.cross) == 0 for cache in fresh)


def test_bad_caches(rng):
    decoder, x, memory = decoder_and_input(rng)
    caches = decoder.new_caches(2)
    steps_of(decoder, x[:, :2], memory, caches)
    with pytest.raises(ValueError, match="3 positions do not fit in a KeyValueCache of max_length=2"):
        decoder(x[:, 2:3], memory, past_key_value=caches)
    caches = decoder.new_caches()
    steps_of(decoder, x[:, :2], memory, caches)
    with pytest.raises(
        ValueError, match=r"past_key_value has a key \(B, H, T, D\) = \(3, 2, 2, 4\) of float32, this call has \(2, 2, 1, 4\)"
    ):
        decoder(x[:2, 2:3], memory[:2], past_key_value=caches)
    with pytest.raises(ValueError, match=r"a list of 2 KeyValueCache, one per layer, got 1; new_caches\(\) makes it"):
        decoder(x, memory, past_key_value=caches[:1])
    with pytest.raises(ValueError, match="a list of 2 KeyValueCache, one per layer, got one"):
        decoder(x, memory, tgt_mask=tc.nn.Transformer.generate_square_subsequent_mask(LENGTH), past_key_value=caches[0])
    with pytest.raises(TypeError, match="must be a tc.nn.KeyValueCache, not str"):
        decoder(x, memory, past_key_value=["a", "b"])
    with pytest.raises(TypeError, match=r"a list of 2 KeyValueCache, one per layer, not bool; new_caches\(\) makes it"):
        decoder(x, memory, past_key_value=True)
    shared = tc.nn.KeyValueCache()
    with pytest.raises(ValueError, match="got one cache for several layers, which would see each other's keys"):
        decoder(x, memory, past_key_value=[shared] * 2)
    assert len(shared) == 0
    attention = tc.nn.MultiheadAttention(WIDTH, 2, batch_first=True)
    static = tc.nn.KeyValueCache(static=True)
    attention(x, memory, memory, past_key_value=static)
    with pytest.raises(TypeError, match="index must be a sequence of integers, got float32"):
        caches[0].reorder([0.5])
    with pytest.raises(IndexError):
        caches[0].reorder([0, 7])
    assert caches[0].key.shape == (BATCH, 2, 2, 4) and caches[0].cross.key.shape == (BATCH, 2, 5, 4)
    with pytest.raises(ValueError, match=r"same B, H and T; got \(2, 1, 4\)"):
        static.append(tc.zeros(2, 1, 4), tc.zeros(2, 1, 4))
    with pytest.raises(ValueError, match="keys of another batch"):
        attention(x[:2], memory[:2], memory[:2], past_key_value=static)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("pieces", PIECES, ids=str)
def test_the_tutorials_encoder_in_pieces(pieces, norm_first, give, rng):
    encoder = tc.TransformerEncoder(2, input_dim=WIDTH, num_heads=2, dim_feedforward=12, norm_first=norm_first).double()
    x, mask = rng.standard_normal((BATCH, LENGTH, WIDTH)), np.tril(np.ones((LENGTH, LENGTH)))
    caches, steps, end = encoder.new_caches(), [], 0
    for part in cut(x, pieces):
        begin, end = end, end + part.shape[1]
        steps.append(numbers(encoder(give(part), mask[begin:end, :end], past_key_value=caches)))
    assert_close(np.concatenate(steps, 1), encoder(x, mask), "float64", scale=10)
    attention, cache = encoder.layers[0].self_attn, tc.nn.KeyValueCache()
    _, maps = attention(x, mask, return_attention=True)
    attention(x[:, :3], mask[:3, :3], past_key_value=cache)
    assert_close(attention(x[:, 3:], mask[3:], return_attention=True, past_key_value=cache)[1], maps[:, :, 3:], "float64")
    with pytest.raises(ValueError, match=r"mask has shape \(2, 2\); expected .* = \(3, 2, 1, 8\)"):
        attention(x[:, :1], np.ones((2, 2)), past_key_value=cache)
    assert len(cache) == LENGTH


def test_a_shallow_copy_goes_its_own_way(rng):
    decoder, x, memory = decoder_and_input(rng)
    caches = decoder.new_caches(2 * LENGTH)
    steps_of(decoder, x[:, :3], memory, caches)
    other = [copy.copy(cache) for cache in caches]
    one, two = [], []
    for i in range(3, LENGTH):  # in turn, so that each would overwrite the other's last position
        one.append(decoder(x[:, i : i + 1], memory, past_key_value=caches))
        two.append(decoder(-x[:, i : i + 1], memory, past_key_value=other))
    np.testing.assert_array_equal(np.concatenate(one), np.concatenate(steps_of(decoder, x, memory, decoder.new_caches())[3:]))
    changed = np.concatenate([x[:, :3], -x[:, 3:]], axis=1)
    np.testing.assert_array_equal(np.concatenate(two), np.concatenate(steps_of(decoder, changed, memory, decoder.new_caches())[3:]))


def test_arrays_after_a_recorded_call_leave_the_graph_alone(rng):
    """A recorded call's keys are views of its projection: later positions are written elsewhere."""
    module = tc.nn.MultiheadAttention(WIDTH, 2, batch_first=True)
    x = rng.standard_normal((BATCH, LENGTH, WIDTH)).astype(np.float32)
    gradients = []
    for go_on in (False, True):
        cache, leaf = tc.nn.KeyValueCache(), tc.tensor(x, requires_grad=True)
        y, _ = module(leaf, leaf, leaf, past_key_value=cache)
        if go_on:
            cache.truncate(3)
            module(-x[:, :2], -x[:, :2], -x[:, :2], past_key_value=cache)
            assert len(cache) == 5
        (y * y).sum().backward()
        gradients.append(leaf.grad.numpy())
    np.testing.assert_array_equal(*gradients)


@pytest.mark.parametrize(("max_length", "most"), [(None, 7), (64, 1)])
def test_memory_is_doubled_or_made_once(max_length, most):
    one, cache, buffers = tc.zeros(1, 1, 1, 2), tc.nn.KeyValueCache(max_length), set()
    with tc.no_grad():
        for _ in range(64):
            cache.append(one, one)
            buffers.add(cache._state.key.shape[2])
    assert len(buffers) <= most and max(buffers) <= 128 and len(cache) == 64


def test_attention_of_ones_own(rng):
    key, value = (tc.tensor(rng.standard_normal((BATCH, 2, 4, 3))) for _ in "kv")
    cache = tc.nn.KeyValueCache()
    with tc.no_grad():
        for i in range(4):
            keys, values = cache.append(key[:, :, i : i + 1], value[:, :, i : i + 1])
    np.testing.assert_array_equal(keys.numpy(), key.numpy())
    np.testing.assert_array_equal(values.numpy(), value.numpy())


def test_repr_and_attributes(rng):
    cache = tc.nn.KeyValueCache()
    assert repr(cache) == "KeyValueCache(length=0)" and bool(cache) and cache.key is None and cache.value is None
    attention = tc.nn.MultiheadAttention(WIDTH, 2)
    x = rng.standard_normal((1, BATCH, WIDTH)).astype(np.float32)
    attention(x, x, x, past_key_value=cache)
    assert repr(cache) == "KeyValueCache(length=1, shape=(3, 2, 1, 4))"
    assert cache.value.shape == (3, 2, 1, 4)


@pytest.mark.parametrize("pieces", [[1, 1, 1, 1, 1], [3, 2], [2, 1, 2]], ids=str)
@pytest.mark.parametrize("recorded", [True, False])
def test_a_causal_memory_goes_on_with_the_targets(pieces, recorded, rng):
    """Position i sees the memory up to i, in whichever call; after a truncation as well."""
    decoder = tc.nn.TransformerDecoder(tc.nn.TransformerDecoderLayer(8, 2, 12, batch_first=True, dtype=np.float64), 2).eval()
    memory, x = rng.standard_normal((2, 6, 8)), rng.standard_normal((2, 5, 8))
    whole = decoder(x, memory, tgt_is_causal=True, memory_is_causal=True)
    caches, steps, at = decoder.new_caches(), [], 0
    for length in pieces:
        piece = x[:, at : at + length]
        for _ in range(2):  # once for nothing, taken back
            for cache in caches:
                cache.truncate(at)
            y = decoder(tc.tensor(piece) if recorded else piece, memory, tgt_is_causal=True, memory_is_causal=True, past_key_value=caches)
        steps.append(np.asarray(y.detach() if recorded else y))
        at += length
    np.testing.assert_allclose(np.concatenate(steps, 1), whole, rtol=0, atol=1e-12)


class Failing(tc.nn.Module):
    failed = False

    def forward(self, x):
        Failing.failed = True
        raise ZeroDivisionError


def small_encoder():
    layer = tc.nn.TransformerEncoderLayer(WIDTH, 2, 6, dropout=0.0, batch_first=True)
    return tc.nn.TransformerEncoder(layer, 3), tc.ones(1, 1, WIDTH)


def test_an_interrupt_while_a_failed_call_restores_its_caches():
    """All layers have the same positions, wherever it comes."""
    encoder, x = small_encoder()
    caches = encoder.new_caches()
    with tc.no_grad():
        encoder(x, past_key_value=caches)
        encoder.norm = Failing()
        for nth in range(1000):
            Failing.failed = False
            try:
                interrupted(nth, lambda: encoder(x, past_key_value=caches), begins=lambda: Failing.failed)
            except ZeroDivisionError:
                break
            finally:
                assert [len(cache) for cache in caches] == [1, 1, 1], nth


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an iterator that is closed may be what is interrupted
def test_an_interrupt_of_a_call_leaves_all_caches_as_they_were_or_as_they_become():
    encoder, x = small_encoder()
    with tc.no_grad():
        for nth in range(0, 100_000, 7):
            caches = encoder.new_caches()
            stopped = interrupted(nth, lambda caches=caches: encoder(x, past_key_value=caches))
            assert len({len(cache) for cache in caches}) == 1, nth
            if not stopped:
                break
    assert nth > 7 * 20
