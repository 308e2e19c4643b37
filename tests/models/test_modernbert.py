"""ModernBERT: every setting of its config.json against a reference in NumPy, what it refuses, its windows and what a text is judged by."""

import json
from math import erf

import numpy as np
import pytest
import transformer_c as tc
from test_architectures import rotated

SMALL = {"model_type": "modernbert", "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2,
         "intermediate_size": 24, "max_position_embeddings": 64, "pad_token_id": 3, "local_attention": 8, "initializer_range": 0.3}  # fmt: skip
BIASES = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True)
FULL, NEAR = "full_attention", "sliding_attention"
IDS = np.random.default_rng(0).integers(4, 40, (3, 30))
LENGTHS = np.array([30, 5, 17])


def create(task=None, dtype="float64", **values):
    """A model whose norms and biases are not 1 and 0."""
    tc.manual_seed(1)
    model = tc.models.create({**SMALL, **values}, task=task)
    with tc.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.3 * tc.randn(*parameter.shape)
    return model.to(dtype=dtype)


# ---- a reference ------------------------------------------------------------------------------------------------------------------

ACTIVATIONS = {
    "gelu": np.vectorize(lambda x: x * (1 + erf(x / 2**0.5)) / 2),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def linear(x, state, name):
    return x @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0)


def norm(x, state, name, eps):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * state[f"{name}.weight"] + state.get(f"{name}.bias", 0)


def reference(model, ids, kinds, bases=(160000.0, 10000.0), reach=4, activation="gelu", eps=1e-5):
    """The states of one text."""
    state = {name: value.numpy() for name, value in tc.convert.to_hf(model).items()}
    x = norm(state["embeddings.tok_embeddings.weight"][ids], state, "embeddings.norm", eps)
    distance = np.abs(np.subtract.outer(np.arange(len(ids)), np.arange(len(ids))))
    for i, kind in enumerate(kinds):
        h = norm(x, state, f"layers.{i}.attn_norm", eps) if i else x
        q, k, v = linear(h, state, f"layers.{i}.attn.Wqkv").reshape(len(ids), 3, 2, 8).transpose(1, 2, 0, 3)
        q, k = (rotated(part[None], bases[kind == NEAR])[0] for part in (q, k))
        odds = np.exp(q @ k.swapaxes(1, 2) / 8**0.5) * (distance <= (reach if kind == NEAR else len(ids)))
        values = (odds / odds.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(len(ids), 16)
        x = x + linear(values, state, f"layers.{i}.attn.Wo")
        a, b = np.split(linear(norm(x, state, f"layers.{i}.mlp_norm", eps), state, f"layers.{i}.mlp.Wi"), 2, -1)
        x = x + linear(ACTIVATIONS[activation](a) * b, state, f"layers.{i}.mlp.Wo")
    return norm(x, state, "final_norm", eps)


SETTINGS = [
    ({}, {"kinds": [FULL, NEAR, NEAR, FULL]}),
    (BIASES, {"kinds": [FULL, NEAR, NEAR, FULL]}),
    ({"layer_types": [NEAR, FULL, FULL, NEAR]}, {"kinds": [NEAR, FULL, FULL, NEAR]}),
    ({"global_attn_every_n_layers": 2}, {"kinds": [FULL, NEAR] * 2}),
    ({"global_attn_every_n_layers": 1}, {"kinds": [FULL] * 4}),
    ({"local_attention": 13, "sliding_window": 6}, {"kinds": [FULL, NEAR, NEAR, FULL], "reach": 6}),
    ({"local_attention": 1}, {"kinds": [FULL, NEAR, NEAR, FULL], "reach": 0}),
    ({"local_attention": 128}, {"kinds": [FULL, NEAR, NEAR, FULL], "reach": 64}),
    ({"global_rope_theta": 50, "local_rope_theta": 9.0}, {"kinds": [FULL, NEAR, NEAR, FULL], "bases": (50.0, 9.0)}),
    (
        {"rope_parameters": {FULL: {"rope_type": "default", "rope_theta": 50.0}, NEAR: {"rope_theta": 9.0}}, "global_rope_theta": 3.0},
        {"kinds": [FULL, NEAR, NEAR, FULL], "bases": (50.0, 9.0)},
    ),
    ({"rope_parameters": {FULL: None}, "local_rope_theta": 9.0}, {"kinds": [FULL, NEAR, NEAR, FULL], "bases": (160000.0, 9.0)}),
    ({"hidden_activation": "silu"}, {"kinds": [FULL, NEAR, NEAR, FULL], "activation": "silu"}),
    ({"hidden_activation": "relu", "norm_eps": 0.5}, {"kinds": [FULL, NEAR, NEAR, FULL], "activation": "relu", "eps": 0.5}),
]


@pytest.mark.parametrize(("values", "meaning"), SETTINGS, ids=lambda setting: ", ".join(setting) or "defaults")
def test_settings(values, meaning, tmp_path):
    """Of texts alone and in a batch, before and after they are saved."""
    model = create(**values)
    tc.models.save(model, tmp_path)
    together = tc.models.load(tmp_path)(IDS, lengths=LENGTHS)
    for text, states, length in zip(IDS, together, LENGTHS, strict=True):
        expected = reference(model, text[:length], **meaning)
        np.testing.assert_allclose(states[:length], expected, rtol=0, atol=1e-11)
        np.testing.assert_array_equal(model(text[None, :length])[0], states[:length])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layer_types": [FULL]}, "layer_types = .*; expected null or a list of 4, each 'full_attention' or 'sliding_attention'"),
        ({"layer_types": [FULL, NEAR, NEAR, "chunked_attention"]}, "expected null or a list of 4"),
        ({"layer_types": "full_attention"}, "expected null or a list of 4"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers = 0; expected an integer of at least 1"),
        ({"local_attention": -1}, "local_attention = -1; expected an integer of at least 1"),
        ({"sliding_window": 8}, "sliding_window = 8; expected None or 4"),
        (
            {"rope_parameters": {FULL: {"rope_type": "dynamic", "factor": 2.0}}},
            "rope_parameters = .*; expected rope_type 'default', .* for 'full_attention'",
        ),
        ({"rope_parameters": {NEAR: {"rope_theta": 9.0, "partial_rotary_factor": 0.5}}}, "expected no partial_rotary_factor for"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 9.0}}, "each other kind of layers"),
        ({"rope_parameters": [1]}, "expected rope_type 'default', .* for 'full_attention'"),
        ({"rope_parameters": {FULL: 7}}, "expected rope_type 'default', .* for 'full_attention'"),
        ({"rope_parameters": {FULL: {"rope_theta": 0.0}}}, "a base of rotary positions above 0"),
        ({"local_rope_theta": None}, "local_rope_theta = None; expected a base of rotary positions above 0"),
        ({"global_rope_theta": float("inf")}, "global_rope_theta = inf"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "rope_scaling = "),
        ({"head_dim": 4}, "head_dim = 4; expected None or 8"),
        ({"hidden_size": 14}, "hidden_size / num_attention_heads = 7; rotary positions need an even number"),
        ({"hidden_activation": "laplace"}, "hidden_activation = 'laplace'"),
        ({"norm_bias": 1}, "norm_bias = 1; expected true or false"),
        ({"is_decoder": True}, "is_decoder"),
    ],
)
def test_what_is_not_computed_is_refused(values, message):
    with pytest.raises(tc.CheckpointError, match=message):
        tc.models.create({**SMALL, **values})


def test_heads_refuse_what_they_do_not_compute():
    with pytest.raises(tc.CheckpointError, match="classifier_pooling = 'max'; expected 'cls' or 'mean'"):
        create("text-classification", classifier_pooling="max")
    with pytest.raises(tc.CheckpointError, match="tie_word_embeddings"):
        create("fill-mask", tie_word_embeddings=False)
    with pytest.raises(ValueError, match="ModernBERT has no embeddings for the parts of a pair"):
        create()(IDS, token_types=IDS)
    with pytest.raises(ValueError, match="ids have 65 tokens"):
        create()(np.ones((1, 65), int))


# ---- heads ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [{}, {**BIASES, "classifier_activation": "silu"}], ids=["plain", "biases"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_what_a_text_is_judged_by(pooling, values):
    """Its first token, or the mean of all; also where it begins with padding, which has no first token."""
    model = create("text-classification", classifier_pooling=pooling, **values)
    state = {name: value.numpy() for name, value in tc.convert.to_hf(model).items()}
    states = model.encoder(IDS, lengths=LENGTHS)
    pooled = states[:, 0] if pooling == "cls" else states.sum(1) / LENGTHS[:, None]
    hidden = ACTIVATIONS[values.get("classifier_activation", "gelu")](linear(pooled, state, "head.dense"))
    expected = linear(norm(hidden, state, "head.norm", 1e-5), state, "classifier")
    within = np.arange(30) < LENGTHS[:, None]
    for given in ({"lengths": LENGTHS}, {"mask": within}):
        np.testing.assert_allclose(model(IDS, **given), expected, rtol=0, atol=1e-12)
    if pooling == "mean":
        front = model(np.roll(IDS, 4, 1)[:, :21], (np.arange(21) >= 4)[None].repeat(3, 0))
        np.testing.assert_allclose(front, model(IDS[:, :17]), rtol=0, atol=1e-11)
        empty = model(IDS[:2], lengths=[0, 3])
        assert np.isfinite(empty).all()


def test_an_answer_is_not_sought_by_the_head_of_a_classifier(tmp_path):
    """Their arrays have the same names and shapes; config.json says whose they are."""
    tc.models.save(create("text-classification"), tmp_path)
    with pytest.raises(tc.CheckpointError, match=r"another task than 'question-answering': .*; task='text-classification' reads it"):
        tc.models.load(tmp_path, task="question-answering")


def test_a_decoder_without_a_bias(tmp_path):
    model = create("fill-mask", decoder_bias=False)
    tc.models.save(model, tmp_path)
    assert "decoder.bias" not in tc.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(tc.models.load(tmp_path, task="fill-mask")(IDS), model(IDS))


def test_a_classifier_begins_with_the_layers_of_the_head_for_words(tmp_path):
    """They have the same names, as in transformers; the last layer alone is new."""
    model = create("fill-mask")
    tc.models.save(model, tmp_path)
    with pytest.warns(RuntimeWarning, match=r"there are no weights for 'text-classification' \(out\)"):
        classifier = tc.models.load(tmp_path, task="text-classification")
    np.testing.assert_array_equal(classifier.dense.weight.numpy(), model.dense.weight.numpy())
    np.testing.assert_array_equal(classifier.norm.weight.numpy(), model.norm.weight.numpy())


# ---- windows ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("window", [2, 16, 60, 128])
def test_windows_leave_a_text_its_bits(window, dtype, isa):
    """That of windows which cut blocks of keys anywhere, and the mean of the states, in any batch."""
    rng = np.random.default_rng(3)
    lengths = np.array([1, 31, 33, 64, 65, 100, 129, 200])
    values = {"local_attention": window, "max_position_embeddings": 260, "classifier_pooling": "mean"}
    model = create("text-classification", dtype, **values)
    ids = rng.integers(4, 40, (len(lengths), 240))
    alone = [
        (np.asarray(model.encoder(text[None, :n]))[0].tobytes(), np.asarray(model(text[None, :n]))[0].tobytes())
        for text, n in zip(ids, lengths, strict=True)
    ]
    for rows in (range(8), [7, 0], [2, 1], [3, 4, 5]):
        for width in (lengths[rows].max(), 240):
            given = {"lengths": lengths[rows]} if width == 240 else {"mask": np.arange(width) < lengths[rows][:, None]}
            states, scores = np.asarray(model.encoder(ids[rows, :width], **given)), np.asarray(model(ids[rows, :width], **given))
            for i, row in enumerate(rows):
                assert (states[i, : lengths[row]].tobytes(), scores[i].tobytes()) == alone[row]


def test_a_token_sees_no_further_than_all_windows_reach():
    """And what it does not see may be anything."""
    model = create(layer_types=[NEAR] * 4)
    other = IDS[:1].copy()
    other[:, 20:] = (other[:, 20:] - 3) % 36 + 4
    changed = (model(IDS[:1]) != model(other)).any(-1)[0]
    assert not changed[:4].any() and changed[4:].all()  # 4 layers that reach 4 tokens each


@pytest.mark.parametrize("task", [None, "text-classification", "token-classification", "fill-mask"])
def test_export(task, tmp_path):
    """Other batches and lengths than those of the example, longer than the window."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model = create(task, "float32", classifier_pooling="mean", **BIASES)
    mask = (np.arange(30) < LENGTHS[:, None]).astype(np.int64)
    path = str(tmp_path / "model.onnx")
    tc.export_onnx(model, {"ids": IDS[:2, :20], "mask": mask[:2, :20]}, path)
    (found,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"ids": IDS, "mask": mask})
    expected = model(IDS, mask)
    real = mask != 0 if expected.ndim == 3 else ...
    np.testing.assert_allclose(found[real], expected[real], rtol=0, atol=2e-5 * np.abs(expected).max())


# ---- texts ------------------------------------------------------------------------------------------------------------------------


def test_texts_are_read_as_by_its_tokenizer(tmp_path):
    """Of byte pairs, in a tokenizer.json of a class of transformers' that has no options."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        ["a cat sat on a mat"], tokenizers.trainers.BpeTrainer(vocab_size=270, special_tokens=special, initial_alphabet=alphabet)
    )
    made.post_processor = tokenizers.processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", [("[CLS]", 1), ("[SEP]", 2)]
    )
    tc.models.save(create(dtype="float32", vocab_size=made.get_vocab_size()), tmp_path)
    made.save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 32, "model_input_names": ["input_ids", "attention_mask"]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    encoder = tc.models.SentenceEncoder.from_pretrained(tmp_path)
    assert repr(encoder) == "SentenceEncoder(ModernBert, pooling=mean, normalize=False, max_length=32)"
    texts = ["a cat", "on a mat a cat sat on a mat, and on, and on"]
    for text, vector in zip(texts, encoder.encode(texts), strict=True):
        expected = encoder.model([made.encode(text).ids])[0].mean(0)
        np.testing.assert_allclose(vector, expected, rtol=0, atol=1e-6)
    assert encoder.fit([("a cat", "a mat"), ("on", "sat")], random_state=0).history
    classifier = tc.models.TextClassifier(tmp_path, epochs=1, random_state=0).fit(texts * 2, [0, 1, 0, 1])
    classifier.save(tmp_path / "saved")
    assert np.array_equal(tc.models.TextClassifier(tmp_path / "saved").predict_proba(texts), classifier.predict_proba(texts))
