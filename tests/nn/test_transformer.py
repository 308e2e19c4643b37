"""nn.MultiheadAttention, the layers and nn.Transformer compared with PyTorch in float64. Golden values, masks and errors: test_torch_layers.py."""

import copy

import numpy as np
import pytest
import transformer_c as tc
from tolerance import assert_close

OPTIONS = [
    {},
    {"batch_first": True},
    {"bias": False},
    {"kdim": 5, "vdim": 7},
    {"kdim": 5, "batch_first": True},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"add_bias_kv": True, "add_zero_attn": True, "vdim": 3},
]
LAYER_OPTIONS = [
    {},
    {"batch_first": True},
    {"norm_first": True},
    {"activation": "gelu", "bias": False},
    {"layer_norm_eps": 1e-2, "batch_first": True},
]
L, S, N, E, H = 4, 6, 3, 8, 2


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def pair(torch, name, *args, **options):
    """Our module and PyTorch's in float64, from one seed: the same weights, then PyTorch's with other values, biases included."""
    torch.manual_seed(7), tc.manual_seed(7)
    theirs, ours = getattr(torch.nn, name)(*args, **options), getattr(tc.nn, name)(*args, **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[key].numpy(), value.numpy(), rtol=3e-7, atol=2e-7, err_msg=key)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()}, strict=True)
    return ours.double(), theirs.double()


def same(torch, ours, theirs, inputs, **options):
    """Results of both, and every gradient of the sum of their squares."""
    tensors = [(tc.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)) for x in inputs]
    as_torch = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    as_tc = {k: tc.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    found, expected = ours(*(t for t, _ in tensors), **as_tc), theirs(*(t for _, t in tensors), **as_torch)
    pairs = list(zip(found, expected, strict=True)) if isinstance(expected, tuple) else [(found, expected)]
    for a, b in pairs:
        assert (a is None) == (b is None)
        if b is not None:
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-11)
    (pairs[0][0] ** 2).sum().backward(), (pairs[0][1] ** 2).sum().backward()
    for a, b in tensors:
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-8, atol=1e-9)
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-8, atol=1e-9, err_msg=name)
    ours.zero_grad(), theirs.zero_grad()


def masks(rng, kind):
    """attn_mask, key_padding_mask; every query keeps a key."""
    causal = np.triu(np.ones((L, S), bool), 2)
    padding = np.arange(S) >= np.array([[6], [4], [1]])
    heads = rng.random((N * H, L, S)) < 0.3
    heads[:, :, 0] = False
    as_float = lambda m: np.where(m, -np.inf, 0.0)
    return {
        "none": (None, None),
        "boolean": (causal, None),
        "floating": (rng.standard_normal((L, S)), None),
        "per head": (heads, None),
        "padding": (None, padding),
        "both": (causal, padding),
        "both floating": (as_float(causal), as_float(padding)),
        "floating per head": (as_float(heads), as_float(padding)),
    }[kind]


KINDS = ["none", "boolean", "floating", "per head", "padding", "both", "both floating", "floating per head"]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention(torch, rng, options, kind, need_weights):
    ours, theirs = pair(torch, "MultiheadAttention", E, H, **options)
    shape = lambda length, width: (N, length, width) if options.get("batch_first") else (length, N, width)
    widths = (E, options.get("kdim", E), options.get("vdim", E))
    inputs = [rng.standard_normal(shape(n, w)) for n, w in zip((L, S, S), widths, strict=True)]
    attn_mask, padding = masks(rng, kind)
    same(
        torch,
        ours,
        theirs,
        inputs,
        attn_mask=attn_mask,
        key_padding_mask=padding,
        need_weights=need_weights,
        average_attn_weights=kind != "both",
    )


def test_self_attention_and_no_batch(torch, rng):
    for batch_first in (False, True):
        ours, theirs = pair(torch, "MultiheadAttention", E, H, batch_first=batch_first)
        for shape in ((L, N, E), (L, E)):
            x = rng.standard_normal(shape)
            t, u = tc.tensor(x), torch.tensor(x)
            for need_weights in (True, False):
                found, expected = ours(t, t, t, need_weights=need_weights), theirs(u, u, u, need_weights=need_weights)
                np.testing.assert_allclose(found[0].detach().numpy(), expected[0].detach().numpy(), rtol=1e-9, atol=1e-12)
                assert need_weights == (found[1] is not None)
                if need_weights:
                    np.testing.assert_allclose(found[1].detach().numpy(), expected[1].detach().numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("options", LAYER_OPTIONS, ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_layers(torch, rng, options, training):
    shape = lambda length: (N, length, E) if options.get("batch_first") else (length, N, E)
    source, target = rng.standard_normal(shape(S)), rng.standard_normal(shape(L))
    causal, padding = np.triu(np.ones((S, S), bool), 1), np.arange(S) >= np.array([[6], [4], [1]])
    ours, theirs = pair(torch, "TransformerEncoderLayer", E, H, 12, 0.0, **options)
    ours.train(training), theirs.train(training)
    same(torch, ours, theirs, [source], src_mask=causal, src_key_padding_mask=padding)
    ours, theirs = pair(torch, "TransformerDecoderLayer", E, H, 12, 0.0, **options)
    ours.train(training), theirs.train(training)
    same(torch, ours, theirs, [target, source], tgt_mask=np.triu(np.full((L, L), -np.inf), 1), memory_key_padding_mask=padding)


@pytest.mark.parametrize("options", LAYER_OPTIONS, ids=str)
def test_whole(torch, rng, options):
    ours, theirs = pair(torch, "Transformer", E, H, 2, 2, 12, 0.0, **options)
    shape = lambda length: (N, length, E) if options.get("batch_first") else (length, N, E)
    inputs = [rng.standard_normal(shape(S)), rng.standard_normal(shape(L))]
    padding = np.arange(S) >= np.array([[6], [4], [1]])
    mask = tc.nn.Transformer.generate_square_subsequent_mask(L).numpy().astype(np.float64)
    assert (mask == torch.nn.Transformer.generate_square_subsequent_mask(L).numpy()).all()
    floating = np.where(padding, -np.inf, 0.0)
    same(torch, ours, theirs, inputs, tgt_mask=mask, src_key_padding_mask=floating, memory_key_padding_mask=floating)


def test_float32_is_close_to_float64(rng):
    model = tc.nn.Transformer(E, H, 1, 1, 12, 0.0)
    source, target = rng.standard_normal((S, N, E)), rng.standard_normal((L, N, E))
    exact = copy.deepcopy(model).double()(source, target)
    assert_close(model(source.astype(np.float32), target.astype(np.float32)), exact, np.float32, k=64)


def test_the_class_of_a_norm():
    """The squares chapter passes the class: that makes a stack, which cannot be called."""
    encoder = tc.nn.TransformerEncoder(
        tc.nn.TransformerEncoderLayer(d_model=6, nhead=3, dim_feedforward=20), num_layers=1, norm=tc.nn.LayerNorm
    )
    decoder = tc.nn.TransformerDecoder(
        tc.nn.TransformerDecoderLayer(d_model=6, nhead=3, dim_feedforward=20), num_layers=1, norm=tc.nn.LayerNorm
    )
    x = np.zeros((2, 4, 6), np.float32)
    for call in (lambda: encoder(x), lambda: decoder(x, x)):
        with pytest.raises(TypeError, match=r"class LayerNorm; expected a module such as nn.LayerNorm\(d_model\)"):
            call()


def test_pickle_and_copies(rng):
    import pickle

    model = tc.nn.Transformer(6, 3, 1, 1, 20).eval()
    x = rng.standard_normal((2, 4, 6)).astype(np.float32)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert (other(x, x) == model(x, x)).all()
