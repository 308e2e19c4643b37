"""lengths= of the encoder layer and its stack: the numbers that a padding mask gives, zeros at padded positions, and nothing computed there."""

import numpy as np
import pytest
import transformer_c as tc
from transformer_c.nn.packing import Packing, packing_of

E, H, T = 16, 4, 9
LENGTHS = np.array([4, 9, 1, 0, 6])


def layer(**options):
    tc.manual_seed(0)
    return tc.nn.TransformerEncoderLayer(E, H, 24, **{"dropout": 0.0, "batch_first": True, "dtype": np.float64, **options})


def stack(norm=True, **options):
    return tc.nn.TransformerEncoder(layer(**options), 2, tc.nn.LayerNorm(E, dtype=np.float64) if norm else None)


MODULES = {
    "layer": layer,
    "pre-norm": lambda **o: layer(norm_first=True, **o),
    "stack": stack,
    "stack without norm": lambda **o: stack(False, activation="gelu", **o),
}
MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "boolean": {"mask": np.random.default_rng(3).random((T, T)) < 0.3},
    "added": {"mask": np.random.default_rng(4).standard_normal((T, T))},
    "of each head": {"mask": np.random.default_rng(5).standard_normal((len(LENGTHS) * H, T, T))},
    "a causal one": {"mask": np.triu(np.ones((T, T), bool), 1)},
}


def batch(batch_first):
    x = np.random.default_rng(1).standard_normal((len(LENGTHS), T, E))
    return (x if batch_first else x.swapaxes(0, 1).copy()), np.arange(T) < LENGTHS[:, None]


def options(module, masks):
    name = "mask" if isinstance(module, tc.nn.TransformerEncoder) else "src_mask"
    return {name if key == "mask" else key: value for key, value in masks.items()}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("make", MODULES)
def test_as_with_a_padding_mask(make, masks, batch_first):
    """Values, and the gradients of input and parameters, when what comes out at padded positions is not used."""
    plain, packed = (MODULES[make](batch_first=batch_first) for _ in range(2))
    x, real = batch(batch_first)
    weights = np.random.default_rng(2).standard_normal(x.shape) * (real if batch_first else real.T)[..., None]
    given = options(plain, MASKS[masks])
    found = []
    for module, more in ((plain, {"src_key_padding_mask": ~real}), (packed, {"lengths": LENGTHS})):
        leaf = tc.tensor(x, requires_grad=True)
        y = module(leaf, **given, **more)
        (y * tc.tensor(weights)).sum().backward()
        found.append([y.detach().numpy(), leaf.grad.numpy(), *(p.grad.numpy() for p in module.parameters())])
    places = (real if batch_first else real.T)[..., None]
    assert not found[1][0][~np.broadcast_to(places, x.shape)].any()
    found[0][0] = found[0][0] * places
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("make", MODULES)
def test_only_tokens_are_computed(make, batch_first):
    module = MODULES[make](batch_first=batch_first)
    x, _ = batch(batch_first)
    shapes = []
    for part in module.modules():
        if isinstance(part, (tc.nn.LayerNorm, tc.nn.Linear)) or hasattr(part, "self_attn"):
            part.register_forward_hook(lambda part, inputs, result: shapes.append(tuple(result.shape)))
    module(x, lengths=LENGTHS)
    if make in ("layer", "pre-norm"):
        assert shapes.pop() == x.shape  # the layer's own result
    assert len(shapes) > 2 and {int(np.prod(shape[:-1])) for shape in shapes} == {LENGTHS.sum()}


def test_full_batches_are_not_packed():
    module, (x, _) = layer(), batch(True)
    shapes = []
    module.linear2.register_forward_hook(lambda part, inputs, result: shapes.append(tuple(result.shape)))
    np.testing.assert_array_equal(module(x, lengths=np.full(len(x), T)), module(x))
    assert shapes == [x.shape] * 2 and packing_of(np.full(3, T), T) is None


def test_same_bits_alone():
    module = stack().to(dtype="float32")
    x, _ = batch(True)
    y = module(x.astype(np.float32), lengths=LENGTHS)
    for i, n in enumerate(LENGTHS):
        if n:
            np.testing.assert_array_equal(y[i, :n], module(x[i : i + 1, :n].astype(np.float32))[0])


def test_packing():
    x = np.arange(24.0).reshape(3, 4, 2)
    packing = Packing(np.array([2, 0, 3]), 4)
    packed = packing.pack(tc.tensor(x, requires_grad=True))
    np.testing.assert_array_equal(packed.detach().numpy(), np.concatenate([x[0, :2], x[2, :3]]))
    back = packing.unpack(packed).detach().numpy()
    np.testing.assert_array_equal(back, x * (np.arange(4) < packing.lengths[:, None])[..., None])
    np.testing.assert_array_equal(packing.pack(tc.tensor(x.astype(int)[..., 0])).numpy(), [0, 2, 16, 18, 20])
    assert packing.positions.tolist() == [0, 1, 0, 1, 2] and repr(packing) == "Packing(3 sequences, 5 of 12 positions)"
    tc.testing.gradcheck(lambda t: packing.unpack(packing.pack(t) * 2.0), (x,))


def test_weights_of_packed_attention():
    attention = tc.nn.MultiheadAttention(E, H, batch_first=True, dtype=np.float64)
    x = np.random.default_rng(6).standard_normal((7, E))
    values, weights = attention(x, x, x, sequence_lengths=[5, 2], average_attn_weights=False)
    assert values.shape == (7, E) and weights.shape == (2, H, 5, 5)
    alone, own = attention(x[5:], x[5:], x[5:], average_attn_weights=False)
    np.testing.assert_allclose(values[5:], alone, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(weights[1, :, :2, :2], own, rtol=1e-12, atol=1e-12)
    assert not weights[1, :, 2:].any() and not weights[1, :, :, 2:].any()


@pytest.mark.parametrize(
    ("module", "given", "message"),
    [
        (layer, {"lengths": [10, 1, 1, 1, 1]}, r"lengths are from 1 to 10; they must be from 0 to 9: src has shape \(5, 9, 16\)"),
        (stack, {"lengths": [1, 1]}, r"lengths must be integers of shape \(B,\) = \(5,\)"),
        (layer, {"lengths": LENGTHS, "src_key_padding_mask": np.zeros((5, 9), bool)}, "got src_key_padding_mask as well"),
        (stack, {"lengths": LENGTHS, "src_key_padding_mask": np.zeros((5, 9), bool)}, "got src_key_padding_mask as well"),
        (layer, {"lengths": LENGTHS, "past_key_value": tc.nn.KeyValueCache()}, "got past_key_value as well"),
        (layer, {"lengths": LENGTHS, "src_mask": np.zeros((8, 8), bool)}, r"the mask has shape \(8, 8\); expected \(T, T\) = \(9, 9\)"),
        (lambda: tc.nn.TransformerEncoder(tc.nn.Linear(E, E), 2), {"lengths": LENGTHS}, "lengths needs layers that are .*; got Linear"),
    ],
)
def test_what_is_refused(module, given, message):
    with pytest.raises(ValueError, match=message):
        module()(batch(True)[0], **given)


def test_what_attention_refuses():
    x = np.zeros((4, E))
    attention = tc.nn.MultiheadAttention(E, H, add_zero_attn=True, dtype=np.float64)
    with pytest.raises(ValueError, match=r"no keys besides their own; got past_key_value, add_zero_attn as well"):
        attention(x, x, x, sequence_lengths=[4], past_key_value=tc.nn.KeyValueCache())
    with pytest.raises(ValueError, match=r"side by side in arrays \(N, E\) of equal N; got query \(1, 4, 16\)"):
        attention(x[None], x[None], x[None], sequence_lengths=[4])
    with pytest.raises(ValueError, match="lengths needs a batch of sequences, 3 axes"):
        layer()(x, lengths=[3])
