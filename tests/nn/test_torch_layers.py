"""tc.nn's attention and Transformer layers: golden values of torch.nn's, masks, errors. Comparison with PyTorch in float64: test_transformer.py."""

import copy
import pickle

import numpy as np
import pytest
import transformer_c as tc
from golden import load, rewritten
from tolerance import ROUNDING, assert_close
from transformer_c.testing import reference as R

CASES = load("layers")
FLOAT32 = 2e-5  # how close float32 results are to PyTorch's


def build(options, dtype=None):
    kind, make = options["kind"], dict(options["make"])
    if kind in ("TransformerEncoder", "TransformerDecoder"):
        layer = getattr(tc.nn, f"{kind}Layer")(**make["layer"], dtype=dtype)
        return getattr(tc.nn, kind)(layer, make["num_layers"], tc.nn.LayerNorm(make["layer"]["d_model"], dtype=dtype))
    return getattr(tc.nn, kind)(**make, dtype=dtype)


def group(arrays, prefix):
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


# ---- golden values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_initial_weights_from_the_seed(case):
    options, arrays = CASES[case]
    tc.manual_seed(42)
    state, expected = build(options).state_dict(), group(arrays, "weight.")
    following = tc.rand(2)
    assert list(state) == list(expected)
    for key, value in expected.items():
        if key.startswith("bias_"):  # normal numbers: as close as the C library's functions
            np.testing.assert_allclose(state[key].numpy(), value, rtol=0, atol=1e-6 * value.std())
        else:
            np.testing.assert_array_max_ulp(state[key].numpy(), value, maxulp=1)
    np.testing.assert_array_equal(following.numpy(), arrays["next"])


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_golden_outputs_and_gradients(case, dtype, training):
    options, arrays = CASES[case]
    module = build(options, np.dtype(dtype)).train(training)
    module.load_state_dict(group(arrays, "weight."), strict=True)
    leaves = {name: tc.tensor(x.astype(dtype), requires_grad=True) for name, x in group(arrays, "in.").items()}
    y = module(*(leaves[options["same"][name]] for name in leaves), **options["call"], **group(arrays, "call."))
    if isinstance(y, tuple):
        y, weights = y
        assert (weights is None) == ("f64.weights" not in arrays)
        if weights is not None:
            assert_close(weights.detach().numpy(), arrays["f64.weights"], dtype, k=64, scale=10, name="weights")
    assert_close(y.detach().numpy(), arrays["f64.y"], dtype, k=64, scale=10, name="y")
    assert np.abs(y.detach().numpy() - arrays["f64.y"]).max() < FLOAT32
    y.backward(gradient=tc.tensor(arrays["dy"].astype(dtype)))
    found = {n: x.grad for n, x in leaves.items() if options["same"][n] == n} | {n: p.grad for n, p in module.named_parameters()}
    assert {f"f64.d{n}" for n in found} == {n for n in arrays if n.startswith("f64.d")}
    for name, gradient in found.items():
        assert_close(gradient.numpy(), arrays[f"f64.d{name}"], dtype, gradient=True, scale=10, name=f"d{name}")


def test_golden_values_are_what_pytorch_gives(tmp_path):
    rewritten("make_layers", tmp_path)
    fresh = load("layers", tmp_path)
    assert {case: options for case, (options, _) in fresh.items()} == {case: options for case, (options, _) in CASES.items()}
    for case, (_, arrays) in fresh.items():
        for name, value in arrays.items():
            np.testing.assert_allclose(value, CASES[case][1][name], rtol=1e-6, atol=1e-10, err_msg=f"{case}/{name}")


# ---- PyTorch itself -----------------------------------------------------------------------------------------------------


QUIET = pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:Support for mismatched")


def compare(kind, make, inputs, call, training, seed=5):
    """Weights from one seed; output and gradients to 2e-5; the state dict into PyTorch and back."""
    torch = pytest.importorskip("torch")
    tc.manual_seed(seed)
    ours = getattr(tc.nn, kind)(**make).train(training)
    torch.manual_seed(seed)
    theirs = getattr(torch.nn, kind)(**make).train(training)
    assert str(tc.rand(1)[0].item()) == str(torch.rand(1)[0].item())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in ours.state_dict().items()}, strict=True)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    leaves = [tc.tensor(x, requires_grad=True) for x in inputs]
    their_leaves = [torch.tensor(x, requires_grad=True) for x in inputs]
    their_call = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in call.items()}
    y, expected = ours(*leaves, **call), theirs(*their_leaves, **their_call)
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), rtol=0, atol=FLOAT32)
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    pairs = list(zip(leaves, their_leaves, strict=True)) + list(zip(ours.parameters(), theirs.parameters(), strict=True))
    for a, b in pairs:
        assert_close(a.grad.numpy(), b.grad.numpy(), "float32", gradient=True, scale=max(1, float(b.grad.abs().max())))


@QUIET
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("kind", ["TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer"])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "tanh"])
def test_layers_beside_pytorch(kind, norm_first, batch_first, activation, training, rng):
    torch = pytest.importorskip("torch")
    make = {"d_model": 12, "nhead": 3, "dim_feedforward": 20, "dropout": 0.0, "norm_first": norm_first, "batch_first": batch_first}
    shape = (lambda b, t: (b, t, 12)) if batch_first else (lambda b, t: (t, b, 12))
    inputs = [rng.standard_normal(shape(2, t)).astype(np.float32) for t in (4, 6)]
    call = {"src_mask": np.triu(np.ones((4, 4), bool), 1)}
    if kind == "TransformerDecoderLayer":
        call = {"tgt_mask": np.triu(np.ones((4, 4), bool), 1), "memory_key_padding_mask": np.arange(6) >= np.array([[6], [3]])}
    elif kind == "Transformer":
        make |= {"num_encoder_layers": 1, "num_decoder_layers": 1}
    else:
        inputs = inputs[:1]
    if activation == "tanh":  # a callable
        make["activation"] = lambda x: torch.tanh(x) if isinstance(x, torch.Tensor) else tc.tanh(x)
    else:
        make["activation"] = activation
    compare(kind, make, inputs, call, training)


# ---- against the float64 reference --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_first", [False, True])
def test_attention_against_the_reference(batch_first, rng, isa):
    x, memory = rng.standard_normal((3, 5, 8)), rng.standard_normal((3, 7, 8))
    module = tc.nn.MultiheadAttention(8, 2, batch_first=batch_first, dtype=np.float64)
    module.in_proj_bias.data.copy_(rng.standard_normal(24))
    weight, bias = module.in_proj_weight.detach().numpy(), module.in_proj_bias.detach().numpy()
    mask = rng.random((5, 7)) < 0.4
    q, k, v = (R.split_heads(R.linear(a, weight[i * 8 : i * 8 + 8], bias[i * 8 : i * 8 + 8]), 2) for i, a in enumerate((x, memory, memory)))
    expected = R.attention(q, k, v, attn_mask=~mask)
    values, maps = expected[0], expected[1]
    y = R.linear(R.merge_heads(values), module.out_proj.weight.detach().numpy(), module.out_proj.bias.detach().numpy())
    swap = (lambda a: a) if batch_first else (lambda a: a.swapaxes(0, 1))
    found, weights = module(swap(x), swap(memory), swap(memory), attn_mask=mask, average_attn_weights=False)
    assert_close(swap(found), y, "float64", scale=10)
    assert_close(weights, maps, "float64", scale=10)


def test_one_array_for_all_three_is_one_product(rng):
    module = tc.nn.MultiheadAttention(8, 2, batch_first=True)
    x = rng.standard_normal((2, 5, 8)).astype(np.float32)
    seen = []
    module.forward = lambda q, k, v: (seen.append((q, k, v)), (q, None))[1]
    module(x, x, x.copy())
    q, k, v = seen[0]
    assert q is k and k is not v


# ---- masks ---------------------------------------------------------------------------------------------------------------------


def attention_of(rng, **options):
    module = tc.nn.MultiheadAttention(8, 2, batch_first=True, dtype=np.float64, **options)
    return module, rng.standard_normal((3, 5, 8))


@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True, "add_zero_attn": True}], ids=["plain", "added_keys"])
@pytest.mark.parametrize("need_weights", [False, True])
def test_masks_that_say_the_same(options, need_weights, rng):
    module, x = attention_of(rng, **options)
    future = np.triu(np.ones((5, 5), bool), 1)
    padding = np.arange(5) >= np.array([[5], [3], [1]])
    additive, additive_padding = (np.where(m, -np.inf, 0.0) for m in (future, padding))
    whole = np.broadcast_to(future | padding[:, None], (3, 5, 5)).repeat(2, axis=0)

    def run(**masks):
        return module(x, x, x, need_weights=need_weights, **masks)

    expected = run(attn_mask=whole)
    calls = [
        {"attn_mask": future, "key_padding_mask": padding},
        {"attn_mask": additive, "key_padding_mask": padding},
        {"attn_mask": future, "key_padding_mask": additive_padding},
        {"attn_mask": additive, "key_padding_mask": additive_padding},
        {"is_causal": True, "key_padding_mask": padding},
        {"is_causal": True, "attn_mask": additive, "key_padding_mask": additive_padding},
        {"attn_mask": np.where(whole, -np.inf, 0.0).astype(np.float32)},
    ]
    for masks in calls:
        y, weights = run(**masks)
        assert_close(y, expected[0], "float64", scale=10)
        if need_weights:
            assert_close(weights, expected[1], "float64", scale=10)


def test_rows_that_may_attend_to_nothing(rng):
    module, x = attention_of(rng)
    module.out_proj.bias.data.copy_(rng.standard_normal(8))
    padding = np.zeros((3, 5), bool)
    padding[1] = True
    for need_weights in (False, True):
        leaf = tc.tensor(x, requires_grad=True)
        y, weights = module(leaf, leaf, leaf, key_padding_mask=padding, need_weights=need_weights)
        np.testing.assert_array_equal(y[1].detach().numpy(), np.broadcast_to(module.out_proj.bias.detach().numpy(), (5, 8)))
        (y * y).sum().backward()
        assert np.isfinite(leaf.grad.numpy()).all()
        np.testing.assert_array_equal(leaf.grad[1].numpy(), 0)
        if need_weights:
            np.testing.assert_array_equal(weights[1].detach().numpy(), 0)


@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True, "add_zero_attn": True}, {"kdim": 8, "vdim": 6}], ids=["", "added", "vdim"])
def test_gradients_of_everything(options, rng):
    """Inputs, floating masks and parameters, through output and weights, against central differences."""
    module = tc.nn.MultiheadAttention(8, 2, batch_first=True, dtype=np.float64, **options)
    shapes = (2, 3, 8), (2, 4, 8), (2, 4, options.get("vdim", 8)), (3, 4), (2, 4)
    inputs = [rng.standard_normal(shape) for shape in shapes] + [p.detach().numpy().copy() for p in module.parameters()]
    names = [name for name, _ in module.named_parameters()]

    def run(query, key, value, attn_mask, padding, *parameters):
        for name, parameter in zip(names, parameters, strict=True):
            owner = module.out_proj if name.startswith("out_proj.") else module
            owner._parameters[name.removeprefix("out_proj.")] = parameter
        y, weights = module.forward(query, key, value, padding, attn_mask=attn_mask)
        return (y * y).sum() + (weights * weights).sum()

    tc.testing.gradcheck(run, inputs)


@pytest.mark.parametrize("shapes", [(0, 3, 4), (2, 0, 4), (2, 3, 0)], ids=["batch", "queries", "keys"])
def test_nothing_to_attend(shapes):
    batch, queries, keys = shapes
    module = tc.nn.MultiheadAttention(8, 2, batch_first=True)
    memory = np.ones((batch, keys, 8), np.float32)
    y, weights = module(np.ones((batch, queries, 8), np.float32), memory, memory)
    assert y.shape == (batch, queries, 8) and weights.shape == (batch, queries, keys)
    assert np.isfinite(y).all()


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_ignored_keys_are_never_read(poison, rng):
    module, x = attention_of(rng)
    memory = rng.standard_normal((3, 4, 8))
    padding = np.arange(4) >= np.array([[4], [2], [1]])
    expected = module(x, memory, memory, key_padding_mask=padding)
    memory[padding] = poison
    for found, clean in zip(module(x, memory, memory, key_padding_mask=padding), expected, strict=True):
        np.testing.assert_array_equal(found, clean)


@pytest.mark.parametrize("kind", [bool, float])
def test_a_causal_mask_is_recognised(kind, rng, monkeypatch):
    layer = tc.nn.TransformerEncoderLayer(8, 2, 12, batch_first=True).eval()
    encoder = tc.nn.TransformerEncoder(layer, 2)
    seen, run = [], tc.nn.TransformerEncoderLayer._layer

    def watched(layer, x, padding, mask, is_causal, **options):
        seen.append((mask, is_causal))
        return run(layer, x, padding, mask, is_causal, **options)

    monkeypatch.setattr(tc.nn.TransformerEncoderLayer, "_layer", watched)
    x = rng.standard_normal((2, 5, 8)).astype(np.float32)
    mask = np.triu(np.ones((5, 5), bool), 1) if kind is bool else tc.nn.Transformer.generate_square_subsequent_mask(5).numpy()
    y = encoder(x, mask)
    assert seen == [(None, True)] * 2
    for said, flag, dropped in ((True, True, True), (False, False, False)):
        seen.clear()
        z = encoder(x, mask, is_causal=said)
        assert [(given is None, causal) for given, causal in seen] == [(dropped, flag)] * 2
        np.testing.assert_allclose(y, z, rtol=0, atol=1e-6)
    seen.clear()
    other = np.where(mask, mask, 0.5) if kind is float else mask | np.eye(5, k=-1, dtype=bool)
    encoder(x, other, is_causal=True)  # not the flag's mask: both apply
    assert [(given is None, causal) for given, causal in seen] == [(False, True)] * 2
    seen.clear()
    for each in encoder.layers:  # it may be for the mask that someone looks
        each.register_forward_pre_hook(lambda layer, given: None)
    np.testing.assert_allclose(y, encoder(x, mask), rtol=0, atol=1e-6)
    assert [(given is None, causal) for given, causal in seen] == [(False, True)] * 2


class ReadsTheMask(tc.nn.TransformerEncoderLayer):
    """Takes the flag for a hint, as layers for PyTorch may."""

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        return super().forward(src, src_mask, src_key_padding_mask)


class OwnAttention(tc.nn.MultiheadAttention):
    def forward(
        self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, average_attn_weights=True, is_causal=False
    ):
        values, self.weights = super().forward(query, key, value, key_padding_mask, attn_mask=attn_mask)
        return values, self.weights


class OtherOrder(tc.nn.MultiheadAttention):
    """Masks in another order, which PyTorch's layers do not mind: they name them."""

    def forward(self, query, key, value, attn_mask=None, key_padding_mask=None, need_weights=False, is_causal=False):
        return super().forward(query, key, value, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=need_weights)


class OwnParts(tc.nn.TransformerEncoderLayer):
    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        y, self.weights = self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=True)
        return self.dropout1(y)

    def _ff_block(self, x):
        return super()._ff_block(x) * 1.0


class OwnDecoderParts(tc.nn.TransformerDecoderLayer):
    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        return super()._sa_block(x, attn_mask, key_padding_mask) * 1.0

    def _mha_block(self, x, mem, attn_mask, key_padding_mask, is_causal=False):
        y, self.weights = self.multihead_attn(x, mem, mem, attn_mask=attn_mask, need_weights=True)
        return self.dropout2(y)


def with_own_attention(kind=OwnAttention, **options):
    layer = tc.nn.TransformerEncoderLayer(**options)
    own = kind(8, 2, batch_first=True)
    own.load_state_dict(layer.self_attn.state_dict())
    layer.self_attn = own
    return layer


def with_masks_in_another_order(**options):
    return with_own_attention(OtherOrder, **options)


def with_a_patch(**options):
    layer = tc.nn.TransformerEncoderLayer(**options)
    layer.self_attn.register_forward_pre_hook(
        lambda _, given, named: (given, {k: v for k, v in named.items() if k != "is_causal"}), with_kwargs=True
    )
    return layer


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("make", [ReadsTheMask, with_own_attention, with_masks_in_another_order, with_a_patch, OwnParts, OwnDecoderParts])
def test_layers_of_ones_own_get_the_causal_mask(make, norm_first, rng):
    options = dict(d_model=8, nhead=2, dim_feedforward=16, dropout=0.0, norm_first=norm_first, batch_first=True)
    is_decoder = make is OwnDecoderParts
    plain = tc.nn.TransformerDecoderLayer if is_decoder else tc.nn.TransformerEncoderLayer
    stack = tc.nn.TransformerDecoder if is_decoder else tc.nn.TransformerEncoder
    theirs, ours = stack(make(**options), 2), stack(plain(**options), 2)
    ours.load_state_dict(theirs.state_dict())
    x = rng.standard_normal((2, 5, 8)).astype(np.float32)
    given = (x, x[:, :3]) if is_decoder else (x,)
    mask = tc.nn.Transformer.generate_square_subsequent_mask(5)
    assert_close(theirs(*given, mask), ours(*given, mask), np.float32)
    if hasattr(theirs.layers[0], "weights"):
        assert theirs.layers[0].weights.shape == (2, 5, given[-1].shape[1])


def test_a_part_of_ones_own_takes_no_cache():
    layer, x = OwnParts(8, 2, 16, batch_first=True), np.ones((1, 2, 8), np.float32)
    for options in ({"past_key_value": tc.nn.KeyValueCache()}, {"lengths": [1]}):
        with pytest.raises(ValueError, match="OwnParts has a _sa_block of its own, which takes neither past_key_value nor lengths"):
            layer(x, **options)


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_causal_mask_of_another_length_is_refused(batch_first):
    layer = tc.nn.TransformerEncoderLayer(8, 2, 12, batch_first=batch_first)
    encoder, x = tc.nn.TransformerEncoder(layer, 2), np.ones((3, 4, 8), np.float32)
    wrong = tc.nn.Transformer.generate_square_subsequent_mask(3 if batch_first else 4)  # the batch's size
    with pytest.raises(ValueError, match="attn_mask has shape"):
        encoder(x, wrong)
    caches = encoder.new_caches()
    encoder(x, is_causal=True, past_key_value=caches)
    with pytest.raises(ValueError, match="attn_mask has shape"):  # a column for each kept position is missing
        encoder(x, tc.nn.Transformer.generate_square_subsequent_mask(4 if batch_first else 3), past_key_value=caches)


def test_causal_mask():
    mask = tc.nn.Transformer.generate_square_subsequent_mask(3, dtype=np.float64)
    assert mask.dtype == np.float64
    np.testing.assert_array_equal(mask.numpy(), [[0, -np.inf, -np.inf], [0, 0, -np.inf], [0, 0, 0]])


# ---- train and eval, copies, dtypes ----------------------------------------------------------------------------------------------


def test_eval_takes_the_path_of_training(rng):
    layer = tc.nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
    encoder = tc.nn.TransformerEncoder(layer, 2)
    x = rng.standard_normal((2, 5, 8)).astype(np.float32)
    padding = np.arange(5) >= np.array([[5], [3]])
    np.testing.assert_array_equal(encoder.train()(x, None, padding), encoder.eval()(x, None, padding))


def test_dropout_in_train_mode_only(rng):
    layer = tc.nn.TransformerEncoderLayer(8, 2, 12, dropout=0.5, batch_first=True)
    x = rng.standard_normal((2, 5, 8)).astype(np.float32)
    tc.manual_seed(1)
    a, b = layer(x), layer(x)
    tc.manual_seed(1)
    np.testing.assert_array_equal(layer(x), a)
    assert (a != b).any()
    layer.eval()
    np.testing.assert_array_equal(layer(x), layer(x))


def test_layers_of_a_stack_are_copies():
    layer = tc.nn.TransformerDecoderLayer(8, 2, 12)
    decoder = tc.nn.TransformerDecoder(layer, 2)
    first, second = (dict(each.named_parameters()) for each in decoder.layers)
    for name, parameter in layer.named_parameters():
        assert first[name] is not parameter and first[name] is not second[name]
        np.testing.assert_array_equal(first[name].numpy(), parameter.numpy())
    assert pickle.loads(pickle.dumps(decoder)).state_dict().keys() == decoder.state_dict().keys()
    assert copy.deepcopy(decoder).layers[0].activation is layer.activation


@pytest.mark.parametrize("activation", ["relu", "gelu", tc.nn.ReLU(), tc.nn.GELU("tanh"), tc.nn.SiLU(), tc.tanh])
def test_fused_activations_are_the_activations(activation, rng):
    layer = tc.nn.TransformerEncoderLayer(8, 2, 12, activation=activation, dropout=0.0, dtype=np.float64)
    x = tc.tensor(rng.standard_normal((5, 8)))
    assert_close(
        layer._feed_forward(x).detach().numpy(), layer.linear2(layer.activation(layer.linear1(x))).detach().numpy(), "float64", scale=10
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype, rng):
    pytest.importorskip("ml_dtypes")
    layer = tc.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    x = rng.standard_normal((2, 5, 16)).astype(np.float32)
    expected = layer(x)
    layer.to(getattr(tc, dtype, dtype))
    y = layer(x, np.zeros((5, 5), np.float32), np.zeros((2, 5), bool))
    assert y.dtype.name == dtype
    assert np.abs(y.astype(np.float32) - expected).max() < 8 * ROUNDING[dtype] * np.abs(expected).max()


def test_integers_are_cast(rng):
    layer = tc.nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, norm_first=True, batch_first=True)
    x = rng.integers(0, 5, (2, 3, 8))
    np.testing.assert_array_equal(layer(x), layer(x.astype(np.float32)))


# ---- bad input -------------------------------------------------------------------------------------------------------------------

Z = np.zeros


@pytest.mark.parametrize(
    ("error", "words", "make"),
    [
        (ValueError, "embed_dim 7 must be a multiple of num_heads 2", lambda nn: nn.MultiheadAttention(7, 2)),
        (TypeError, "dropout probability must be a number", lambda nn: nn.MultiheadAttention(8, 2, dropout="0.1")),
        (TypeError, "num_heads must be an int", lambda nn: nn.MultiheadAttention(8, "2")),
        (ValueError, "num_heads must be at least 1", lambda nn: nn.MultiheadAttention(8, 0)),
        (ValueError, "dropout probability", lambda nn: nn.MultiheadAttention(8, 2, dropout=1.5)),
        (ValueError, "activation must be one of relu, gelu", lambda nn: nn.TransformerEncoderLayer(8, 2, activation="swish")),
        (TypeError, "activation must be a str or a callable", lambda nn: nn.TransformerEncoderLayer(8, 2, activation=3)),
        (TypeError, "an instance", lambda nn: nn.TransformerEncoder(nn.TransformerEncoderLayer, 2)),
        (TypeError, "num_layers must be an int", lambda nn: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 2.0)),
        (ValueError, "max_length must be at least 1", lambda nn: nn.KeyValueCache(0)),
    ],
)
def test_bad_constructors(error, words, make):
    with pytest.raises(error, match=words):
        make(tc.nn)


@pytest.mark.parametrize(
    ("error", "words", "args", "call"),
    [
        (ValueError, "3 axes, or all 2", [(2, 5, 8), (2, 8), (2, 8)], {}),
        (ValueError, "query has 7 features but the layer has embed_dim=8", [(2, 5, 7)] * 3, {}),
        (ValueError, "key has 9 features but the layer has kdim=8", [(2, 5, 8), (2, 5, 9), (2, 5, 9)], {}),
        (ValueError, "same batch and sequence lengths", [(2, 5, 8), (2, 5, 8), (2, 4, 8)], {}),
        (ValueError, "2 and 3 batch elements on axis 0 .batch_first=True", [(2, 5, 8), (3, 5, 8), (3, 5, 8)], {}),
        (ValueError, r"attn_mask has shape \(5, 4\); expected \(Tq, Tk\) = \(5, 5\)", [(2, 5, 8)] * 3, {"attn_mask": Z((5, 4), bool)}),
        (ValueError, r"= \(4, 5, 5\). Write tc.repeat_interleave\(mask, 2, 0\)", [(2, 5, 8)] * 3, {"attn_mask": Z((2, 5, 5), bool)}),
        (ValueError, r"key_padding_mask has shape \(5, 2\)", [(2, 5, 8)] * 3, {"key_padding_mask": Z((5, 2), bool)}),
        (TypeError, "attn_mask has dtype int64; expected bool, True = ignore", [(2, 5, 8)] * 3, {"attn_mask": Z((5, 5), int)}),
        (TypeError, "attn_mask must be an array of bool, True = ignore, or of floats.*'causal'", [(2, 5, 8)] * 3, {"attn_mask": "causal"}),
        (TypeError, "query must be a Tensor or an array of numbers, not NoneType", [None] * 3, {}),
        (TypeError, "key_padding_mask has dtype uint8", [(2, 5, 8)] * 3, {"key_padding_mask": Z((2, 5), np.uint8)}),
        (TypeError, "must be a tc.nn.KeyValueCache, not tuple", [(2, 5, 8)] * 3, {"past_key_value": ()}),
    ],
)
def test_bad_calls(error, words, args, call):
    module = tc.nn.MultiheadAttention(8, 2, batch_first=True)
    before = {k: v.numpy().copy() for k, v in module.state_dict().items()}
    cache = tc.nn.KeyValueCache()
    arrays = [shape and Z(shape, np.float32) for shape in args]
    with pytest.raises(error, match=words):
        module(*arrays, **{"past_key_value": cache, **call})
    assert len(cache) == 0 and cache.key is None
    for key, value in module.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[key])


def test_bad_calls_of_the_transformer():
    model = tc.nn.Transformer(8, 2, 1, 1, 12, batch_first=True)
    with pytest.raises(ValueError, match="d_model=8 features; got src .2, 5, 8., tgt .2, 4, 7"):
        model(Z((2, 5, 8)), Z((2, 4, 7)))
    with pytest.raises(ValueError, match="the same number of batch elements on axis 0"):
        model(Z((2, 5, 8)), Z((3, 4, 8)))
    with pytest.raises(ValueError, match="both have 3 axes"):
        model(Z((2, 5, 8)), Z((4, 8)))


def test_another_dtype_is_named():
    layer = tc.nn.TransformerEncoderLayer(8, 2, 12)
    with pytest.raises(
        TypeError, match=r"float32 parameters but the input is a float64 Tensor; .*x.to\('float32'\).*X.astype\('float32'\)"
    ):
        layer(tc.zeros(2, 3, 8, dtype=np.float64))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("part", ["linear1", "linear2", "norm1", "norm2"])
def test_parts_may_be_replaced(part, training, rng):
    """By a module that has other parameters, as adapters of low rank do."""

    class Wrapped(tc.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)

    x = rng.standard_normal((2, 5, 8)).astype(np.float32)
    layer = tc.nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True).train(training)
    expected = layer(x)
    setattr(layer, part, Wrapped(getattr(layer, part)))
    np.testing.assert_allclose(layer(x), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_attention_drops_weights_in_train_mode(kind, rng):
    """With weights and biases that make the output the mean of the kept weights: 0 or 1 / (1 - p) of each of 40 equal weights."""
    p, length = 0.3, 40
    x = tc.tensor(np.eye(length, dtype=np.float32)[None])
    if kind == "MultiheadAttention":
        attention = tc.nn.MultiheadAttention(length, 1, dropout=p, batch_first=True)
        attentions = [attention]
    else:
        layer = getattr(tc.nn, kind)(length, 1, 8, dropout=p, batch_first=True)
        attentions = [getattr(layer, name) for name in layer._attentions]
    for attention in attentions:
        for weight in (attention.in_proj_weight, attention.in_proj_bias, attention.out_proj.weight, attention.out_proj.bias):
            weight.data.fill_(0.0)
        attention.in_proj_weight.data[2 * length :] = np.eye(length, dtype=np.float32)
        attention.out_proj.weight.data[:] = np.eye(length, dtype=np.float32)
        for training in (True, False):
            found = attention.train(training)(x, x, x, need_weights=False)[0].detach().numpy() * length
            if not training:
                np.testing.assert_allclose(found, 1, rtol=1e-5)
                continue
            kept = found != 0
            np.testing.assert_allclose(found[kept], 1 / (1 - p), rtol=1e-5)
            assert abs(kept.mean() - (1 - p)) < 5 * np.sqrt(p * (1 - p) / kept.size)


class Nothing(tc.nn.Module):
    def forward(self, x):
        return x * 0.0


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("kind", ["TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_every_dropout_is_in_its_place(kind, norm_first, rng):
    """Dropping everything gives the same as zero weights before it."""
    make = lambda: getattr(tc.nn, kind)(8, 2, 12, 0.0, batch_first=True, norm_first=norm_first, dtype=np.float64)
    first = make()
    for parameter in first.parameters():
        parameter.data.copy_(rng.standard_normal(parameter.shape))
    inputs = [rng.standard_normal((2, 5, 8)) for _ in range(1 if kind == "TransformerEncoderLayer" else 2)]
    outputs = [["self_attn.out_proj.weight", "self_attn.out_proj.bias"], ["linear2.weight", "linear2.bias"]]
    if kind == "TransformerDecoderLayer":
        outputs.insert(1, ["multihead_attn.out_proj.weight", "multihead_attn.out_proj.bias"])
    zeroed = {"dropout": ["linear2.weight"], **{f"dropout{i}": names for i, names in enumerate(outputs, 1)}}
    whole = first(*inputs)
    for name, weights in zeroed.items():
        layer, expected = make(), make()
        layer.load_state_dict(first.state_dict()), expected.load_state_dict(first.state_dict())
        assert isinstance(getattr(layer, name), tc.nn.Dropout)
        setattr(layer, name, Nothing())
        for key, parameter in expected.named_parameters():
            if key in weights:
                parameter.data.fill_(0.0)
        np.testing.assert_allclose(layer(*inputs), expected(*inputs), rtol=0, atol=1e-12, err_msg=name)
        assert np.abs(layer(*inputs) - whole).max() > 1e-3, name


@pytest.mark.parametrize("layer", [tc.nn.Linear(3, 2), tc.nn.LayerNorm(3), tc.nn.RMSNorm(3), tc.nn.Dropout(0.0), tc.nn.ReLU(), tc.nn.GELU(), tc.nn.SiLU(),
                                   tc.nn.Tanh(), tc.nn.Sigmoid(), tc.nn.Softmax(-1), tc.nn.Identity(), tc.nn.Flatten(0), tc.nn.Sequential(tc.nn.ReLU())],
                         ids=lambda layer: type(layer).__name__)  # fmt: skip
def test_the_argument_by_pytorchs_name(layer):
    x = tc.randn(2, 3)
    assert layer(input=x).tolist() == layer(x).tolist()


@pytest.mark.parametrize(
    "make",
    [
        lambda nn: nn.Linear(3, 2),
        lambda nn: nn.Conv1d(2, 4, 3),
        lambda nn: nn.Conv2d(2, 4, 3, groups=2, bias=False),
        lambda nn: nn.Conv3d(2, 4, (1, 2, 3)),
        lambda nn: nn.ConvTranspose2d(2, 4, 3, groups=2),
        lambda nn: nn.Embedding(3, 2, padding_idx=0),
        lambda nn: nn.LayerNorm(3),
        lambda nn: nn.RMSNorm(3),
        lambda nn: nn.PReLU(2, 0.5),
    ],
)
def test_layers_are_made_anew(make):
    """Programs call reset_parameters() of the layers that have it, as PyTorch's have."""
    torch = pytest.importorskip("torch")
    found = []
    for library in (tc, torch):
        layer = make(library.nn)
        for parameter in layer.parameters():
            parameter.data.fill_(9.0)
        library.manual_seed(3)
        layer.reset_parameters()
        found.append([parameter.tolist() for parameter in layer.parameters()])
    assert found[0] == found[1]
