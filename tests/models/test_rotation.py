"""Rotary positions that are scaled for long texts, against transformers': its numbers in float64, and what it takes."""

import numpy as np
import pytest
import transformer_c as tc
from golden import models
from test_architectures import state_of
from transformer_c.models.config import Config
from transformer_c.models.rotation import Rotary

CASES = models()
SCALED = [(case, label) for case in CASES for label in CASES[case][0].get("rotations", ())]
KNOWN = [(case, label) for case in CASES for label in CASES[case][0].get("known", ())]
LINEAR = {"rope_type": "linear", "factor": 2.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
LONGROPE = {"type": "longrope", "short_factor": [1.0, 2.0, 3.0, 4.0], "long_factor": [8.0] * 4, "original_max_position_embeddings": 16}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0}
FULL, NEAR = "full_attention", "sliding_attention"


def config_of(case, label):
    values = {key: value for key, value in CASES[case][0]["config"].items() if key != "rope_parameters"}
    return {**values, "max_position_embeddings": 64, **CASES[case][0]["rotations"][label]}


def read(**values):
    return Rotary().read(Config(values), 8, 64)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 2e-6)])
@pytest.mark.parametrize(("case", "label"), SCALED)
def test_states(case, label, dtype, tolerance, tmp_path):
    """Far beyond the original length, alone and in a batch, and after the model is saved."""
    arrays = CASES[case][1]
    model = tc.convert.from_hf(state_of(arrays), config_of(case, label), dtype=dtype)
    ids, expected = arrays["rotated.ids"], arrays[f"rotated.{label}"]
    states = model(ids)
    assert np.abs(states[:, 3::12] - expected).max() <= tolerance * max(1, np.abs(expected).max())
    plain = tc.convert.from_hf(state_of(arrays), {**config_of(case, label), "rope_parameters": None, "rope_scaling": None}, dtype=dtype)
    assert np.abs(plain(ids)[:, 3::12] - expected).max() > 1e-3
    assert np.array_equal(model(np.repeat(ids, 2, 0), lengths=[30, 40])[1], states[0])
    tc.models.save(model, tmp_path)
    assert np.array_equal(tc.models.load(tmp_path)(ids), states)


@pytest.mark.parametrize(("case", "label"), KNOWN)
def test_frequencies_of_models_that_exist(case, label):
    values, expected = CASES[case][0]["known"][label], CASES[case][1][f"known.{label}"]
    found = Rotary().read(Config(values), values.get("head_dim", 128), 64)
    np.testing.assert_allclose(found.frequencies, expected[:-1], rtol=1e-14)
    np.testing.assert_allclose(found.factor, expected[-1], rtol=1e-14)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-6)])
def test_positions_far_beyond_the_original_length(dtype, tolerance):
    """A million of them; angles have no rounding errors of float32."""
    found, rng = Rotary().read(Config({"rope_scaling": LLAMA3, "rope_theta": 5e5}), 64, 2**20), np.random.default_rng(0)
    x, places = rng.standard_normal((2, 3, 5, 64)).astype(dtype), rng.integers(2**19, 2**20, (2, 1, 5))
    turned = (x[..., :32] + 1j * x[..., 32:]) * np.exp(1j * places[..., None] * found.frequencies)
    expected = np.concatenate([turned.real, turned.imag], -1)
    np.testing.assert_allclose(found(tc.tensor(x), tc.tensor(places)).numpy(), expected, rtol=0, atol=tolerance)


def test_frequencies_of_no_scaling_have_the_bits_of_rotary():
    """So do those that are scaled by 1; gradients as well."""
    plain, scaled = read(rope_theta=70.0), read(rope_theta=70.0, rope_scaling={**LINEAR, "factor": 1})
    gradients = []
    for rotation in (plain, scaled):
        x = tc.tensor(np.random.default_rng(0).standard_normal((2, 3, 9, 8)), requires_grad=True)
        result = rotation(x, None)
        result.pow(3).sum().backward()
        gradients.append((result.detach().numpy(), x.grad.numpy()))
    assert np.array_equal(gradients[0], gradients[1]) and plain.scale is None and scaled.scale is None


def test_dynamic_positions_are_not_scaled_up_to_their_length():
    """Where transformers does not change the angles; longer texts are refused."""
    arrays, values = CASES["llama"][1], CASES["llama"][0]["config"]
    plain, dynamic = (
        tc.convert.from_hf(state_of(arrays), {**values, "rope_parameters": {"rope_theta": 90.0, **more}}) for more in ({}, DYNAMIC)
    )
    ids = np.arange(16)[None] + 5
    assert np.array_equal(dynamic(ids), plain(ids))
    with pytest.raises(ValueError, match="this model takes texts of at most 16"):
        dynamic(np.arange(17)[None])


def test_names_and_places_of_values():
    """Of transformers 4 and 5; rope_scaling takes precedence, as there."""
    plain = read()
    assert (plain.base, plain.frequencies, plain.longest) == (10000.0, None, 64)
    for values in (
        {"rope_scaling": {}},
        {"rope_scaling": {"type": "default"}, "rope_theta": 1e4},
        {"rope_parameters": {"rope_theta": 1e4}},
    ):
        assert read(**values) == plain
    expected = read(rope_parameters={**LINEAR, "rope_theta": 50.0})
    for values in (
        {"rope_scaling": LINEAR, "rope_theta": 50.0},
        {"rope_scaling": {"type": "linear", "factor": 2}, "rope_theta": 50},
        {"rope_scaling": {**LINEAR, "type": "linear"}, "rope_theta": 50.0, "rope_parameters": {"rope_theta": 3.0}},
        {"rope_scaling": {**LINEAR, "rope_theta": 50.0, "beta_fast": None}, "rope_theta": 7.0},
    ):
        found = read(**values)
        assert found.base == 50.0 and np.array_equal(found.frequencies, expected.frequencies)
    assert np.array_equal(
        read(rope_scaling=YARN, original_max_position_embeddings=32).frequencies,
        read(rope_scaling={**YARN, "original_max_position_embeddings": 32}).frequencies,
    )
    without = {key: value for key, value in YARN.items() if not key.startswith("original")}
    assert np.array_equal(
        read(rope_scaling=without).frequencies, read(rope_scaling={**YARN, "original_max_position_embeddings": 64}).frequencies
    )


@pytest.mark.parametrize(
    ("values", "longest"),
    [(LINEAR, 64), (LLAMA3, 64), ({**LLAMA3, "factor": 9.6}, 76), ({**YARN, "factor": 1e30}, 2**31 - 1), (LONGROPE, 16), (DYNAMIC, 64)],
)
def test_how_long_texts_may_be(values, longest):
    """As config.json says, or as many times the original length as frequencies are made for; of "longrope", that length. Reading changes nothing."""
    assert read(rope_scaling=values).longest == longest
    given = {
        "model_type": "phi3",
        "vocab_size": 9,
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
    }
    assert values is not LONGROPE or tc.models.create({**given, "rope_scaling": values}).config == {**given, "rope_scaling": values}
    if values is LLAMA3:
        assert tc.models.create({**config_of("llama", "llama3"), "max_position_embeddings": 9}).longest == 96


ACCEPTED = "rope_type 'default', 'linear', 'llama3', 'yarn', 'longrope' or 'dynamic' and its values"
REFUSED = [
    ("linear", ACCEPTED),
    (["linear"], ACCEPTED),
    (7, ACCEPTED),
    ({"rope_type": "dynamic"}, "a number above 0 as factor for rope_type 'dynamic'"),
    ({"rope_type": "ntk", "factor": 2.0}, ACCEPTED),
    ({**LONGROPE, "short_factor": [1.0]}, "4 numbers as short_factor for rope_type 'longrope'"),
    ({**LONGROPE, "long_factor": [1.0] * 5}, "4 numbers as long_factor"),
    ({**LONGROPE, "long_factor": None}, "a list of numbers above 0 as long_factor"),
    ({**LONGROPE, "short_factor": [1.0, 2.0, 3.0, 0]}, "a list of numbers above 0 as short_factor"),
    ({**LONGROPE, "factor": 2.0, "original_max_position_embeddings": 1}, "an original_max_position_embeddings above 1"),
    ({**LONGROPE, "attention_factor": 0}, "a number above 0 as attention_factor"),
    ({"rope_type": ["linear"], "factor": 2.0}, ACCEPTED),
    ({"rope_type": "linear", "type": "yarn", "factor": 2.0}, ACCEPTED),
    ({"rope_type": "linear"}, "a number above 0 as factor for rope_type 'linear'"),
    *(
        ({**LINEAR, "factor": value}, "a number above 0 as factor")
        for value in (None, "2", -1, 0, float("nan"), float("inf"), True, [2], 10**400)
    ),
    ({**LINEAR, "short_factor": [1.0]}, "no short_factor for rope_type 'linear', but factor"),
    ({"factor": 2.0}, "no factor for rope_type 'default', but rope_theta"),
    ({**LINEAR, "partial_rotary_factor": 0.5}, "no partial_rotary_factor"),
    ({**LINEAR, "rope_theta": "10"}, "a base of rotary positions above 0"),
    ({**LINEAR, "rope_theta": None}, "a base of rotary positions above 0"),
    ({**LLAMA3, "low_freq_factor": 4.0}, "a high_freq_factor above low_freq_factor for rope_type 'llama3'"),
    ({**LLAMA3, "high_freq_factor": "4"}, "a number above 0 as high_freq_factor"),
    *(
        ({**LLAMA3, "original_max_position_embeddings": value}, "an integer above 0 as original")
        for value in (0, -1, 8.5, "8", True, 2**31)
    ),
    ({**YARN, "beta_fast": 1, "beta_slow": 2}, "a beta_fast of at least beta_slow for rope_type 'yarn'"),
    ({**YARN, "beta_slow": -1}, "a number above 0 as beta_slow"),
    ({**YARN, "attention_factor": 0}, "a number above 0 as attention_factor"),
    ({**YARN, "attention_factor": 1e30}, "a factor of queries and keys between 1e-4 and 1e15 for rope_type 'yarn', not 1e.30"),
    ({**YARN, "mscale": "1"}, "a number of at least 0 as mscale"),
    ({**YARN, "mscale_all_dim": float("nan")}, "a number of at least 0 as mscale_all_dim"),
    ({**YARN, "truncate": None}, "true or false as truncate"),
    ({**YARN, "rope_theta": 1.0}, "a rope_theta above 1"),
]


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=str)
def test_what_is_refused(values, message):
    for name in ("rope_scaling", "rope_parameters"):
        with pytest.raises(tc.CheckpointError, match=f"config.json has {name} = .*; expected .*{message}"):
            read(**{name: values})


def test_kinds_of_layers():
    """Each has its own; transformers reads rope_scaling of older files otherwise there, so it is refused."""
    values = config_of("modernbert", "kinds")
    turned = {layer.window is None: layer.rotation for layer in tc.models.create(values).layers}
    assert turned[True].base == 90.0 and turned[True].factor > 1 and turned[False].base == 10000.0 and turned[False].factor == 1
    for given, message in (
        ({"rope_scaling": LINEAR}, "rope_scaling = "),
        ({"rope_parameters": {FULL: LINEAR, NEAR: {**LINEAR, "factor": -1}}}, "a number above 0 as factor"),
        (
            {"rope_parameters": {FULL: {**YARN, "rope_type": "dynamic"}}},
            "'llama3' or 'yarn' and its values, for 'full_attention' and for each other kind",
        ),
    ):
        with pytest.raises(tc.CheckpointError, match=message):
            tc.models.create({**values, **given})
