"""The tutorial's modules against PyTorch's golden values: initial weights, outputs, maps, gradients, state dicts, errors."""

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from tolerance import assert_close

CASES = load("modules")
KINDS = {"mha": tc.MultiheadAttention, "block": tc.EncoderBlock, "encoder": tc.TransformerEncoder, "predictor": tc.TransformerPredictor}


def build(case):
    options = dict(CASES[case][0])
    call = {k: options.pop(k) for k in ("add_positional_encoding",) if k in options}
    if case.startswith("predictor"):
        options |= {"lr": 1e-3, "warmup": 10, "max_iters": 100}
    kind = next(cls for name, cls in KINDS.items() if case.startswith(name))
    return kind(**options), call


def weights(arrays):
    return {k.removeprefix("weight."): v for k, v in arrays.items() if k.startswith("weight.")}


@pytest.mark.parametrize("case", sorted(CASES))
def test_initial_weights_from_the_seed(case):
    tc.manual_seed(42)
    module, _ = build(case)
    state, expected = module.state_dict(), weights(CASES[case][1])
    assert list(state) == list(expected)
    for key, value in expected.items():
        np.testing.assert_array_max_ulp(state[key].numpy(), value, maxulp=1)


@pytest.mark.parametrize("case", sorted(CASES))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_outputs_and_gradients(case, dtype, isa):
    module, call = build(case)
    arrays = CASES[case][1]
    module.load_state_dict(weights(arrays), strict=True)
    module.to(np.dtype(dtype))
    module.eval()
    x = tc.tensor(arrays["x"].astype(dtype), requires_grad=True)
    y = module(x, mask=arrays.get("mask"), **call)
    if case.startswith("predictor") and call.get("add_positional_encoding", True):
        dtype = "float32"  # the tutorial's table of positions is float32, its last bits are the C library's
        assert_close(y.detach().numpy().astype(dtype), arrays["f64.y"], dtype, k=64, name="y")
    else:
        assert_close(y.detach().numpy(), arrays["f64.y"], dtype, k=64, name="y")
    y.backward(gradient=tc.tensor(arrays["dy"].astype(y.dtype)))
    found = {"x": x.grad, **{name: p.grad for name, p in module.named_parameters()}}
    for name, grad in found.items():
        assert_close(
            grad.numpy().astype(dtype),
            arrays[f"f64.d{name}"],
            dtype,
            k=64,
            gradient=True,
            name=f"d{name}",
            scale=max(1e-3, np.abs(arrays[f"f64.d{name}"]).max()),
        )


@pytest.mark.parametrize("case", sorted(CASES))
def test_arrays_give_the_same_as_tensors(case):
    module, call = build(case)
    module.eval()
    arrays = CASES[case][1]
    from_array = module(arrays["x"], mask=arrays.get("mask"), **call)
    from_tensor = module(tc.tensor(arrays["x"]), mask=arrays.get("mask"), **call)
    assert type(from_array) is np.ndarray and isinstance(from_tensor, tc.Tensor) and from_tensor.requires_grad
    assert (from_array == from_tensor.detach().numpy()).all()


@pytest.mark.parametrize("case", [c for c in sorted(CASES) if c.startswith("mha")])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attention_of_each_head(case, dtype, isa):
    module, _ = build(case)
    arrays = CASES[case][1]
    module.load_state_dict(weights(arrays))
    module.to(np.dtype(dtype))
    y, attention = module(arrays["x"].astype(dtype), mask=arrays.get("mask"), return_attention=True)
    assert_close(attention, arrays["f64.attention"], dtype, k=16, name="attention")
    assert_close(y, arrays["f64.y"], dtype, k=64, name="y")


@pytest.mark.parametrize("case", [c for c in sorted(CASES) if any(k.startswith("f64.map.") for k in CASES[c][1])])
def test_attention_maps_of_the_layers(case):
    module, call = build(case)
    arrays = CASES[case][1]
    module.load_state_dict(weights(arrays))
    module.double().eval()
    x, mask = arrays["x"].astype(np.float64), arrays.get("mask")
    maps = module.get_attention_maps(x, mask=mask, **call)
    expected = [arrays[f"f64.map.{i}"] for i in range(len(maps))]
    assert all(type(m) is np.ndarray for m in maps)
    dtype = "float32" if case.startswith("predictor") else "float64"  # the table of positions is float32
    for i, (found, wanted) in enumerate(zip(maps, expected, strict=True)):
        assert_close(found.astype(dtype), wanted, dtype, k=64, name=f"map {i}")
    if "f64.propagated.0" in arrays:
        maps = module.get_attention_maps(x, mask=mask, propagate_mask=True)
        for i, found in enumerate(maps):
            assert_close(found, arrays[f"f64.propagated.{i}"], "float64", name=f"propagated map {i}")


def test_positional_encoding_table():
    for options, arrays in load("positional_encoding").values():
        module = tc.PositionalEncoding(d_model=options["d_model"])
        assert "pe" not in module.state_dict() and module.pe.shape == (1, 5000, options["d_model"])
        rows = np.array(options["rows"])
        error = np.abs(module.pe.numpy()[0, rows] - arrays["pe"])
        assert (error <= 1e-6 + 2.0**-24 * rows[:, None]).all()


def test_block_with_input_dim_other_than_embed_dim():
    y = tc.MultiheadAttention(input_dim=5, embed_dim=8, num_heads=2)(np.ones((2, 3, 5), np.float32))
    assert y.shape == (2, 3, 8)


@pytest.mark.parametrize("shape", [(7, 7), (1, 7), (3, 7, 7), (3, 1, 7), (1, 7, 7), (3, 2, 7, 7), (1, 1, 7, 7), (3, 1, 1, 7), (1, 2, 1, 1)])
@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float32, np.float64])
def test_masks_of_every_rank(shape, dtype, rng):
    attention = tc.MultiheadAttention(8, 8, 2).double()
    x = rng.standard_normal((3, 7, 8))
    mask = (rng.random(shape) < 0.6).astype(dtype)
    _, maps = attention(x, mask=mask, return_attention=True)
    wide = np.broadcast_to(np.asarray(tc.expand_mask(mask)), (3, 2, 7, 7)) != 0
    empty = ~wide.any(-1, keepdims=True)
    assert np.allclose(maps.sum(-1), 1)
    assert np.allclose(maps[np.broadcast_to(~wide & ~empty, maps.shape)], 0)
    assert np.allclose(maps[np.broadcast_to(empty, maps.shape)], 1 / 7)


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        (np.ones((3, 7)), ValueError, r"mask has shape \(3, 7\).*mask\[:, None, :\]"),
        (np.ones((7, 6)), ValueError, r"mask has shape \(7, 6\)"),
        (np.ones(7), ValueError, "2 to 4 axes"),
        (np.ones((1, 1, 1, 7, 7)), ValueError, "2 to 4 axes"),
        (np.full((7, 7), -1e9), ValueError, "additive.*bias="),
        (np.full((7, 7), np.nan), ValueError, "additive"),
        (np.full((7, 7), "a"), TypeError, "mask must be an array"),
        (np.ones((3, 4, 7, 7)), ValueError, r"\(3, 2, 7, 7\)"),
    ],
)
def test_bad_masks(mask, error, message):
    with pytest.raises(error, match=message):
        tc.MultiheadAttention(8, 8, 2)(np.zeros((3, 7, 8), np.float32), mask=mask)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tc.MultiheadAttention(8, 9, 2), ValueError, "^Embedding dimension must be 0 modulo number of heads.$"),
        (lambda: tc.MultiheadAttention(8, 8, 2)(np.zeros((3, 7), np.float32)), ValueError, r"\(3, 7\)"),
        (lambda: tc.MultiheadAttention(8, 8, 2)(np.zeros((3, 7, 9), np.float32)), ValueError, "9.*8|8.*9"),
        (lambda: tc.MultiheadAttention(8, 8, 2)(tc.tensor(np.zeros((3, 7, 8)))), TypeError, "float32.*float64"),
        (lambda: tc.EncoderBlock(8, 2, 16, activation="swish"), ValueError, "swish"),
        (lambda: tc.EncoderBlock(8, 2, 16, dropout=1.5), ValueError, "1.5"),
        (lambda: tc.PositionalEncoding(4, max_len=5)(np.zeros((1, 6, 4), np.float32)), ValueError, "max_len=5"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_float64_arrays_are_cast_to_the_module():
    module = tc.EncoderBlock(8, 2, 16)
    x = np.random.default_rng(0).standard_normal((2, 3, 8))
    assert module(x).dtype == np.float32
    assert (module(x) == module(x.astype(np.float32))).all()
    assert module(np.ones((2, 3, 8), np.int64)).dtype == np.float32


def test_norm_first_and_gelu_match_their_formula(rng):
    block = tc.EncoderBlock(8, 2, 16, norm_first=True, activation="gelu", layer_norm_eps=1e-3).double().eval()
    x = rng.standard_normal((2, 5, 8))
    a = x + block.self_attn(block.norm1(x))
    expected = a + block.linear_net(block.norm2(a))
    assert np.allclose(block(x), expected, atol=1e-12)
    assert block.norm1.eps == 1e-3


def test_permutation_equivariance(rng):
    encoder = tc.TransformerEncoder(num_layers=2, input_dim=16, num_heads=4, dim_feedforward=32).eval()
    x = rng.standard_normal((4, 9, 16)).astype(np.float32)
    order = rng.permutation(9)
    assert np.abs(encoder(x)[:, order] - encoder(x[:, order])).max() < 1e-5


def test_tutorial_subclasses_must_define_their_steps():
    model = tc.TransformerPredictor(10, 32, 10, 1, 1, 5e-4, 50, 100)
    for step in (model.training_step, model.validation_step, model.test_step):
        with pytest.raises(NotImplementedError):
            step(None, 0)
    assert model.hparams.model_dim == 32 and model.hparams["lr"] == 5e-4
    assert sum(p.numel() for p in model.parameters()) == 10_346


def test_pytorch_accepts_our_state_dict_strictly():
    torch = pytest.importorskip("torch")
    from benchmarks import torch_modules

    ours = tc.TransformerEncoder(num_layers=2, input_dim=16, num_heads=4, dim_feedforward=32).eval()
    theirs = torch_modules.TransformerEncoder(num_layers=2, input_dim=16, num_heads=4, dim_feedforward=32).eval()
    theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in ours.state_dict().items()}, strict=True)
    x = np.random.default_rng(0).standard_normal((2, 5, 16)).astype(np.float32)
    with torch.no_grad():
        assert np.abs(theirs(torch.tensor(x)).numpy() - ours(x)).max() < 2e-6
    theirs_state = {k: v + 0.01 for k, v in theirs.state_dict().items()}
    ours.load_state_dict(theirs_state, strict=True)
    assert np.allclose(ours.layers[0].norm1.weight.numpy(), 1.01)


def test_an_encoder_whose_constructor_takes_a_module():
    class Embedding(tc.TransformerEncoder):
        def __init__(self, embedding, **options):
            super().__init__(1, **options)
            self.embedding = embedding

    encoder = Embedding(tc.nn.Embedding(5, 8), input_dim=8, num_heads=2, dim_feedforward=8)
    assert encoder.embedding.num_embeddings == 5 and len(encoder.layers) == 1
