"""Compares the float64 reference with the golden values, and both with PyTorch where it is installed."""

from pathlib import Path

import numpy as np
import pytest
from golden import load, rewritten
from tolerance import assert_close
from transformer_c.testing import reference as R

MODULES = load("modules")
FUNCTIONS = load("functions")
LOSSES = load("losses")
ATTENTION = load("attention")
OPTIMIZERS = load("optimizers")
MUON = load("muon")


def both(arrays, name, expected, *, k=1, scale=None):
    """The golden array in both dtypes against the reference: float64 to 1e-11 of the magnitude (PyTorch sums in another order)."""
    magnitude = max(np.abs(expected[np.isfinite(expected)]).max(initial=0), 1e-300) if scale is None else scale
    assert_close(arrays[f"f64.{name}"], expected, np.float64, scale=10 * magnitude, name=f"f64.{name}")
    gradient = name.startswith("d")
    assert_close(arrays[f"f32.{name}"], expected, np.float32, k, gradient=gradient, scale=magnitude, name=f"f32.{name}")


def test_the_readme_describes_every_file():
    folder = Path(__file__).parent / "golden"
    text = (folder / "README.md").read_text()
    files = {path.stem: path.name for path in folder.glob("*.npz")}
    assert len(files) > 10 and [name for name, file in files.items() if f"| `{name}` |" not in text and f"`{file}`" not in text] == []


def weights(arrays):
    return {name[len("weight.") :]: value for name, value in arrays.items() if name.startswith("weight.")}


@pytest.mark.parametrize("case", [case for case in MODULES if case.startswith("mha")])
def test_multihead_attention(case):
    options, arrays = MODULES[case]
    args = weights(arrays), arrays["x"], options["num_heads"], arrays.get("mask")
    y, attention = R.multihead_attention(*args)
    both(arrays, "y", y, k=options["input_dim"])
    both(arrays, "attention", attention, k=options["input_dim"])
    dx, gradients = R.multihead_attention_backward(arrays["dy"], *args)
    for name, gradient in {"x": dx, **gradients}.items():
        both(arrays, f"d{name}", gradient, scale=np.abs(dx).max())


@pytest.mark.parametrize("case", [case for case in MODULES if case.startswith("block")])
def test_encoder_block(case):
    options, arrays = MODULES[case]
    args = weights(arrays), arrays["x"], options["num_heads"], arrays.get("mask")
    both(arrays, "y", R.encoder_block(*args)[0], k=options["dim_feedforward"])
    dx, gradients = R.encoder_block_backward(arrays["dy"], *args)
    for name, gradient in {"x": dx, **gradients}.items():
        both(arrays, f"d{name}", gradient)


def layer_params(params, prefix):
    return {name[len(prefix) :]: value for name, value in params.items() if name.startswith(prefix)}


def test_encoder_and_its_maps():
    options, arrays = MODULES["encoder"]
    for propagate in (True, False):
        x = arrays["x"]
        for i in range(options["num_layers"]):
            params = layer_params(weights(arrays), f"layers.{i}.")
            y, attention = R.encoder_block(params, x, options["num_heads"], arrays["mask"])
            assert_close(arrays[f"f64.propagated.{i}" if propagate else f"f64.map.{i}"], attention, np.float64, scale=10)
            x = y if propagate else R.encoder_block(params, x, options["num_heads"])[0]
        if propagate:
            both(arrays, "y", y, k=options["dim_feedforward"])
    assert np.abs(arrays["f64.map.1"] - arrays["f64.propagated.1"]).max() > 1e-3  # the tutorial's quirk shows


@pytest.mark.parametrize("case", ["predictor", "predictor_masked"])
def test_predictor(case):
    options, arrays = MODULES[case]
    params = weights(arrays)
    x = R.linear(arrays["x"], params["input_net.1.weight"], params["input_net.1.bias"])
    positions = options.get("add_positional_encoding", True)
    x = x + R.positional_encoding(x.shape[1], options["model_dim"]) if positions else x
    for i in range(options["num_layers"]):
        x, attention = R.encoder_block(layer_params(params, f"transformer.layers.{i}."), x, options["num_heads"], arrays.get("mask"))
        if not i:
            assert_close(arrays["f64.map.0"], attention, scale=1e5 if positions else 10)
    x = R.relu(R.layer_norm(R.linear(x, params["output_net.0.weight"], params["output_net.0.bias"]), params["output_net.1.weight"],
                            params["output_net.1.bias"])[0])  # fmt: skip
    y = R.linear(x, params["output_net.4.weight"], params["output_net.4.bias"])
    # The tutorial's table of positions is float32: about 1e-7 from the exact one.
    assert_close(arrays["f64.y"], y, scale=1e6 if positions else 10)
    assert_close(arrays["f32.y"], y, np.float32, k=32, scale=np.abs(y).max())


def test_positional_encoding():
    for options, arrays in load("positional_encoding").values():
        rows = options["rows"]
        exact = R.positional_encoding(rows[-1] + 1, options["d_model"])[0, rows]
        # Angles up to `row` are rounded to float32 twice.
        assert_close(arrays["pe"], exact, np.float32, scale=max(1, 2**-24 * rows[-1] * 3 / 2e-6))


REFERENCE = {
    "layer_norm": lambda o, x, gamma=None, beta=None: R.layer_norm(x, gamma, beta, o["eps"])[0],
    "gelu": lambda o, x: R.gelu(x),
    "gelu_tanh": lambda o, x: R.gelu(x, "tanh"),
    "relu": lambda o, x: R.relu(x),
    "sigmoid": lambda o, x: R.sigmoid(x),
    "tanh": lambda o, x: R.tanh(x),
    "softmax": lambda o, x: R.softmax(x, o["axis"]),
    "log_softmax": lambda o, x: R.log_softmax(x, o["axis"]),
    "embedding": lambda o, weight, indices: R.embedding(indices, weight),
    "linear": lambda o, x, weight, bias: R.linear(x, weight, bias),
}
BACKWARD = {
    "layer_norm": lambda o, dy, x, gamma=None, beta=None: R.layer_norm_backward(dy, x, gamma, beta, o["eps"]),
    "gelu": lambda o, dy, x: R.gelu_backward(dy, x),
    "gelu_tanh": lambda o, dy, x: R.gelu_backward(dy, x, "tanh"),
    "relu": lambda o, dy, x: R.relu_backward(dy, x),
    "sigmoid": lambda o, dy, x: R.sigmoid_backward(dy, x),
    "tanh": lambda o, dy, x: R.tanh_backward(dy, x),
    "softmax": lambda o, dy, x: R.softmax_backward(dy, x, o["axis"]),
    "log_softmax": lambda o, dy, x: R.log_softmax_backward(dy, x, o["axis"]),
    "embedding": lambda o, dy, weight, indices: R.embedding_backward(dy, indices, weight, o["padding_idx"]),
    "linear": lambda o, dy, x, weight, bias: R.linear_backward(dy, x, weight, bias)[:3],
}


def inputs_of(arrays):
    return {name: value for name, value in arrays.items() if not name.startswith(("f32.", "f64.")) and name != "dy"}


@pytest.mark.parametrize("case", [case for case, (options, _) in FUNCTIONS.items() if options["function"] in REFERENCE])
def test_functions(case):
    options, arrays = FUNCTIONS[case]
    given = inputs_of(arrays)
    assert_close(arrays["f64.y"], REFERENCE[options["function"]](options, **given), np.float64, scale=100)
    gradients = BACKWARD[options["function"]](options, arrays["dy"], **given)
    gradients = [g for g in (gradients if isinstance(gradients, tuple) else (gradients,)) if g is not None]
    golden = [value for name, value in arrays.items() if name.startswith("f64.d")]
    assert len(golden) == len(gradients)
    for a, b in zip(golden, gradients, strict=True):
        assert_close(a, b, scale=10 * np.abs(b).max())


@pytest.mark.parametrize("case", [case for case, (options, _) in FUNCTIONS.items() if options["function"] == "clip_grad_norm_"])
def test_clipping(case):
    options, arrays = FUNCTIONS[case]
    clipped, total = R.clip_grad_norm([arrays["g0"], arrays["g1"]], options["max_norm"], float(options["norm_type"]))
    assert_close(arrays["total"], total, scale=10 * total)
    for i, gradient in enumerate(clipped):
        assert_close(arrays[f"clipped{i}"], gradient, scale=10)


@pytest.mark.parametrize("case", ATTENTION)
def test_attention(case):
    options, arrays = ATTENTION[case]
    args = [arrays[name] for name in ("query", "key", "value")]
    options = {**options, "attn_mask": arrays.get("attn_mask")}
    both(arrays, "y", R.attention(*args, **options)[0], k=6)
    for name, gradient in zip(("query", "key", "value"), R.attention_backward(arrays["dy"], *args, **options)[:3], strict=True):
        both(arrays, f"d{name}", gradient)


@pytest.mark.parametrize("case", LOSSES)
def test_losses(case):
    options, arrays = LOSSES[case]
    options, given = dict(options), inputs_of(arrays)
    name = options.pop("loss")
    y = getattr(R, name)(**given, **options)
    both(arrays, "y", np.asarray(y), scale=max(1, np.abs(y).max()))
    gradients = getattr(R, f"{name}_backward")(arrays.get("dy", 1.0), **given, **options)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    golden = [key[len("f64.") :] for key in arrays if key.startswith("f64.d")]
    assert len(golden) == len(gradients)
    for key, gradient in zip(golden, gradients, strict=True):  # PyTorch guards the division by the float32 nearest to 1e-12
        both(arrays, key, gradient, scale=1e4 * np.abs(gradient).max() if case == "bce_edges" else None)


RULES = {
    "SGD": R.sgd,
    "Adafactor": R.adafactor,
    "Adagrad": R.adagrad,
    "Adam": R.adam,
    "AdamW": R.adamw,
    "NAdam": R.nadam,
    "RAdam": R.radam,
    "RMSprop": R.rmsprop,
}


@pytest.mark.parametrize("case", [case for case in OPTIMIZERS if case != "inputs"])
def test_optimizers(case):
    options, arrays = OPTIMIZERS[case]
    inputs, given = OPTIMIZERS["inputs"]
    values, states, path = {name: R.f64(given[name]) for name in "ab"}, {"a": {}, "b": {}}, []
    for step in range(inputs["steps"]):
        for name in "a" if step % inputs["skip_second_every"] == inputs["skip_second_every"] - 1 else "ab":
            values[name] = RULES[options["optimizer"]](values[name], given[f"d{name}"][step], states[name], **options["arguments"])
        path.append(np.concatenate([values["a"].ravel(), values["b"].ravel()]))
    assert_close(arrays["f64"], np.stack(path), np.float64, scale=10)
    assert_close(arrays["f32"], np.stack(path[-1:]), np.float32, k=20, scale=np.abs(path[-1]).max())


@pytest.mark.parametrize("case", [case for case in MUON if case != "inputs"])
def test_muon(case):
    options, arrays = MUON[case]
    inputs, given = MUON["inputs"]
    values, states, path = {name: R.f64(given[name]) for name in "ab"}, {"a": {}, "b": {}}, []
    for step in range(inputs["steps"]):
        values = {name: R.muon(value, given[f"d{name}"][step], states[name], **options) for name, value in values.items()}
        path.append(np.concatenate([value.ravel() for value in values.values()]))
    assert_close(arrays["f64"], np.stack(path), np.float64, scale=10)


def test_reverse_run_is_the_tutorials():
    options, arrays = load("reverse_run")["run"]
    q, k, v = arrays["cell5"]
    np.testing.assert_allclose(R.scaled_dot_product(q, k, v)[0], [[0.5698, -0.1520], [0.5379, -0.0265], [0.2246, 0.5556]], atol=5e-5)
    np.testing.assert_array_equal(arrays["train.first"][0], [9, 6, 2, 0, 6, 2, 7, 9, 7, 3, 3, 4, 3, 7, 0, 9])
    assert sum(value.size for name, value in arrays.items() if name.startswith("initial.")) == options["parameters"]
    rates = [options["lr"] * R.cosine_warmup_factor(step, options["warmup"], options["max_iters"]) for step in range(100)]
    np.testing.assert_allclose(arrays["rates"], rates, rtol=1e-12, atol=1e-20)
    assert np.abs(arrays["losses"] - arrays["losses.f64"]).max() < 1e-4


def test_golden_values_are_what_pytorch_gives(tmp_path):
    make_golden = rewritten("make_golden", tmp_path)
    for make in make_golden.FILES:
        kept, fresh = load(make.__name__), load(make.__name__, tmp_path)
        assert kept.keys() == fresh.keys()
        for case, (options, arrays) in kept.items():
            assert options == fresh[case][0] and arrays.keys() == fresh[case][1].keys()
            for name, value in arrays.items():  # another machine may round, or start normals, differently in the last places
                np.testing.assert_allclose(fresh[case][1][name], value, rtol=1e-4, atol=1e-4, err_msg=f"{make.__name__} {case}/{name}")
