"""The architectures of tc.models against transformers: golden values in float64, and, where it is installed, the package itself."""

import numpy as np
import pytest
import transformer_c as tc
from folders import sizes
from golden import load, models
from transformer_c.models.architectures import ARCHITECTURES
from transformer_c.models.deberta_v2 import Relative
from transformer_c.models.encoder_decoder import EncoderDecoder
from transformer_c.models.layers import OffsetNorm

CASES, OTHERS = models(), {**load("deberta"), **load("gates")}
TASKS = ["text-classification", "token-classification", "question-answering", "fill-mask", "image-classification", "text-generation"]


def state_of(arrays, task=None):
    """The arrays of an encoder, with a head or without one."""
    kinds = ["state."] + ([f"head.{task}."] if task else [])
    return {key[len(kind) :]: value for kind in kinds for key, value in arrays.items() if key.startswith(kind)}


def run(case, model, dtype=np.float32):
    """The result of a model for the inputs of a case."""
    arrays = {**CASES, **OTHERS}[case][1]
    if "pixels" in arrays:
        return model(arrays["pixels"].astype(dtype))
    return model(arrays["ids"], arrays["mask"], token_types=arrays.get("types"))


def close(case, found, expected, tolerance):
    """Compares at positions that are not padded."""
    arrays = {**CASES, **OTHERS}[case][1]
    if "mask" in arrays and expected.ndim == 3:
        found, expected = found[arrays["mask"] != 0], expected[arrays["mask"] != 0]
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * max(1, np.abs(expected).max())


def test_every_architecture_has_a_case():
    own = {name for name, kind in ARCHITECTURES.items() if not issubclass(kind, EncoderDecoder) and kind.table.heads}
    assert set(CASES) == own, "tests/golden/make_models.py writes the case of an architecture to models*.npz"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", [*CASES, *OTHERS])
def test_encoders(case, dtype):
    options, arrays = {**CASES, **OTHERS}[case]
    model = tc.convert.from_hf(state_of(arrays), options["config"], dtype=dtype)
    tolerance = 1e-13 if dtype == "float64" else 2e-6
    states = run(case, model, dtype)
    assert states.dtype == dtype and not model.training
    close(case, states, arrays["hidden"], tolerance)
    if "pooled" in arrays:
        close(case, model.pooler(states), arrays["pooled"], tolerance)
    else:
        assert model.pooler is None


@pytest.mark.parametrize("case", [case for case, found in {**CASES, **OTHERS}.items() if "pixels.other" in found[1]])
def test_images_of_other_sizes(case):
    """By positions that are interpolated, in float32 where states are halves."""
    options, arrays = {**CASES, **OTHERS}[case]
    for dtype, tolerance in (("float64", 1e-13), ("float32", 2e-6), ("bfloat16", 0.05), ("float16", 0.005)):
        model = tc.convert.from_hf(state_of(arrays), options["config"], dtype=dtype)
        close(case, np.asarray(model(arrays["pixels.other"])).astype(np.float64), arrays["hidden.other"], tolerance)
    model = tc.convert.from_hf(state_of(arrays), options["config"])
    model(tc.tensor(arrays["pixels.other"])).square().sum().backward()
    assert np.abs(model.positions.grad.numpy()).min() > 0
    with pytest.raises(ValueError, match=r"expected \(B, 3, 4 or more, 4 or more\)"):
        model(arrays["pixels.other"][:, :, :3])


@pytest.mark.parametrize(("case", "task"), [(case, task) for case, own in {**CASES, **OTHERS}.items() for task in TASKS if task in own[1]])
def test_heads(case, task):
    options, arrays = {**CASES, **OTHERS}[case]
    for dtype, tolerance in (("float64", 1e-13), ("float32", 2e-6)):
        model = tc.convert.from_hf(state_of(arrays, task), options["config"], task=task, dtype=dtype)
        close(case, run(case, model, dtype), arrays[task], tolerance)


@pytest.mark.parametrize("case", [case for case in CASES if "pad_token_id" in CASES[case][0]["config"] and "ids" in CASES[case][1]])
def test_padding_inside_a_text_gets_no_gradient(case):
    """Nor does the position that padding has where positions count the other tokens."""
    options, arrays = CASES[case]
    model, ids = tc.convert.from_hf(state_of(arrays), options["config"]), tc.tensor(arrays["ids"])
    padding = model.words.padding_idx
    ids[:, 2] = padding
    model(ids).square().sum().backward()
    for table in (model.words, *([model.positions] if model.places(ids) is not None else [])):
        assert not table.weight.grad[padding].numpy().any() and table.weight.grad.numpy().any()


@pytest.mark.parametrize("case", [case for case in CASES if "ids" in CASES[case][1]])
def test_new_embeddings_of_padding_are_zero(case):
    """As in transformers, whose numbers of words these are where config.json is silent."""
    model = tc.models.create({"model_type": case, **sizes(width=16, heads=2, hidden=8, layers=1)})
    for table in filter(None, (model.words, getattr(model, "positions", None))):
        zero = np.flatnonzero(~table.weight.detach().numpy().any(1)).tolist()
        assert zero == ([] if table.padding_idx is None else [table.padding_idx])
    words = {"gpt2": 50257, "modernbert": 50368, "mpnet": 30527, "nomic_bert": 30528, "roberta": 50265}
    words |= {**dict.fromkeys(("llama", "mistral"), 32000), **dict.fromkeys(("qwen2", "qwen3"), 151936), "phi3": 32064}
    words |= {
        "albert": 30000,
        "deberta-v2": 128100,
        **dict.fromkeys(("gemma", "gemma2"), 256000),
        "gemma3_text": 262208,
        "gpt_neox": 50432,
        "deberta": 50265,
        "olmo2": 50304,
        "xlm-roberta-xl": 250880,
    }
    assert model.words.num_embeddings == words.get(case, 30522)


def rotated(x, base):
    """x (B, H, T, D), whose pairs of features are turned by angles that grow with the position: products of complex numbers."""
    length, half = x.shape[2], x.shape[3] // 2
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * np.arange(length)[:, None] * base ** (-np.arange(half) / half))
    return np.concatenate([turned.real, turned.imag], -1)


def product(layer, x):
    return x @ layer.weight.numpy().T + (0 if layer.bias is None else layer.bias.numpy())


def queries_and_keys(layer, x):
    """Those of x (B, T, E), each (B, H, T, D)."""
    size = getattr(layer, "head_size", x.shape[-1] // layer.heads)
    if hasattr(layer, "qkv"):
        both = product(layer.qkv, x)
        if layer.rows == "head":
            both = np.moveaxis(both.reshape(*x.shape[:2], layer.heads, 3, size), 3, 2).reshape(both.shape)
        heads = layer.heads, (both.shape[-1] // size - layer.heads) // 2
        found = np.split(both, np.cumsum(heads) * size, -1)[:2]
        if hasattr(layer, "query_bias"):
            found[0] = found[0] + layer.query_bias.detach().numpy()
    else:
        found = [product(layer.query, x), product(layer.key, x)]
        found = [normed(norm, part) for norm, part in zip((layer.query_norm, layer.key_norm), found, strict=True)]
    found = [part.reshape(*x.shape[:2], -1, size) for part in found]
    return [np.repeat(part, layer.heads // part.shape[2], 2).swapaxes(1, 2) for part in found]


def normed(norm, x):
    """x (B, T, H D), divided by the root mean square of each head, or of all together."""
    if not isinstance(norm, tc.nn.RMSNorm):
        return x
    parts = x.reshape(*x.shape[:2], -1, *norm.normalized_shape)
    parts = parts / np.sqrt((parts**2).mean(-1, keepdims=True) + norm.eps) * (norm.weight.numpy() + isinstance(norm, OffsetNorm))
    return parts.reshape(x.shape)


def by_distances(layer, relative, q, k):
    """What DeBERTa adds to the scores of q and k, (B, H, T, D): for each query and key its products with those of their distance."""
    length, size = q.shape[2], q.shape[3]
    rows, table = relative.rows.numpy(), relative.table.detach().numpy()
    own = rows[np.subtract.outer(np.arange(length), np.arange(length)) + len(rows) // 2]  # (T, T)
    layers = (layer.far_query, layer.far_key)
    far = np.split(product(layer.qkv, table), 3, -1)[:2] if layer.shared else [part and product(part, table) for part in layers]
    queries, keys = (part if part is None else part[own].reshape(length, length, -1, size) for part in far)
    by_query = 0 if keys is None or "c2p" not in layer.kinds else np.einsum("bhid,ijhd->bhij", q, keys)
    by_key = 0 if queries is None or "p2c" not in layer.kinds else np.einsum("bhjd,ijhd->bhij", k, queries)
    return layer.scale * (by_query + by_key)


def reference_map(layer, x, visible, width):
    """softmax(q k^T / sqrt(D) + bias) over the keys that a query sees, (B, H, T, T); of packed texts 0 beyond their ends."""
    if "sequence_lengths" in visible:
        lengths = visible["sequence_lengths"].numpy()
        found = np.zeros((len(lengths), layer.heads, width, width))
        for own, n, end in zip(found, lengths, np.cumsum(lengths), strict=True):
            bias = {name: v if isinstance(v, Relative) else v[:, :, :n, :n] for name, v in visible.items() if name == "bias"}
            short = {**{name: v for name, v in visible.items() if name != "sequence_lengths"}, **bias}
            own[:, :n, :n] = reference_map(layer, x[:, end - n : end], short, n)[0]
        return found
    q, k = queries_and_keys(layer, x)
    if hasattr(layer, "rotation"):
        size = layer.rotation.size
        q, k = (np.concatenate([rotated(x[..., :size], layer.rotation.base), x[..., size or x.shape[-1] :]], -1) for x in (q, k))
    scores = q @ k.swapaxes(2, 3) * (layer.scale or q.shape[-1] ** -0.5)
    if layer.softcap:
        scores = layer.softcap * np.tanh(scores / layer.softcap)
    if layer.window is not None:
        scores[:, :, np.abs(np.subtract.outer(*[np.arange(x.shape[1])] * 2)) > layer.window[0]] = -np.inf
    if "bias" in visible:
        bias = visible["bias"]
        scores = scores + (by_distances(layer, bias, q, k) if isinstance(bias, Relative) else bias.numpy())
    if "attn_mask" in visible:
        scores = np.where(visible["attn_mask"].numpy(), scores, -np.inf)
    if visible.get("is_causal"):
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    odds = np.exp(scores - scores.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)


@pytest.mark.parametrize("case", [*CASES, *OTHERS])
def test_attention_maps(case):
    options, arrays = {**CASES, **OTHERS}[case]
    model = tc.convert.from_hf(state_of(arrays), options["config"], dtype="float64")
    expected = {}

    def record(layer, inputs):
        x, visible = inputs
        normed = layer.norm1(x) if layer.norm_first else x
        expected[f"layers.{list(model.layers).index(layer)}"] = reference_map(
            layer, normed.detach().numpy(), visible, arrays["ids"].shape[1] if "ids" in arrays else x.shape[1]
        )

    hooks = [layer.register_forward_pre_hook(record) for layer in model.layers]
    states = run(case, model, np.float64)
    for hook in hooks:
        hook.remove()
    with tc.nn.attention_maps(model) as maps:
        again = run(case, model, np.float64)
    assert np.array_equal(states, again) and maps.keys() == expected.keys() == {f"layers.{i}" for i in range(len(model.layers))}
    for name, found in maps.items():
        assert found.shape == (*states.shape[:1], model.layers[0].heads, *states.shape[1:2] * 2)
        np.testing.assert_allclose(found, expected[name], rtol=0, atol=1e-12)
    if "fill-mask" in arrays:
        head = tc.convert.from_hf(state_of(arrays, "fill-mask"), options["config"], task="fill-mask", dtype="float64")
        with tc.nn.attention_maps(head) as maps:
            run(case, head, np.float64)
        np.testing.assert_allclose(maps["encoder.layers.0"], expected["layers.0"], rtol=0, atol=1e-12)
