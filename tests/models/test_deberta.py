"""DeBERTa beside what holds of every architecture: its buckets of distances, an exported model, names of its arrays, what is refused."""

import json

import numpy as np
import pytest
import transformer_c as tc
from folders import sizes
from golden import load
from test_architectures import state_of
from transformer_c.models.deberta_v2 import buckets
from words import letters

OTHERS = load("deberta")
IDS = np.random.default_rng(0).integers(4, 60, (3, 13))
LENGTHS = np.array([13, 5, 1])


def create(task=None, **values):
    tc.manual_seed(0)
    given = {**sizes(width=32, heads=2, hidden=48, layers=2, words=60, positions=60), "initializer_range": 0.2}
    return tc.models.create({"model_type": "deberta-v2", **given, **values}, task=task)


def test_buckets():
    """Of DeBERTa-v3, as transformers computes them in float32."""
    found = buckets(512, 256, 512)
    assert np.array_equal(found, -found[::-1]) and np.array_equal(found[511 : 511 + 129], np.arange(129))
    assert found[[511 + 129, 511 + 200, 511 + 300, 511 + 511]].tolist() == [129, 169, 207, 255]
    assert np.array_equal(buckets(9, 0, 512), np.arange(-8, 9))


def test_export(tmp_path):
    """Other batches and lengths than those of the example, among them one token."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model, mask, path = create(), (np.arange(13) < LENGTHS[:, None]).astype(np.int64), str(tmp_path / "model.onnx")
    tc.export_onnx(model, {"ids": IDS[:2, :6], "mask": mask[:2, :6]}, path)
    run = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run
    for width in (13, 1):
        own = {"ids": IDS[:, :width], "mask": mask[:, :width]}
        np.testing.assert_allclose(run(None, own)[0], model(**own), rtol=0, atol=1e-5)


def test_the_words_of_a_head_with_other_names(tmp_path):
    """With legacy = false, which is saved with the older names, and in files of the pretraining, beside another head."""
    options, arrays = OTHERS["p2c"]
    state = {f"deberta.{name}": value for name, value in state_of(arrays).items()}
    state |= {name: value for name, value in state_of(arrays, "fill-mask").items() if name.startswith("lm_predictions.")}
    assert len(state) > len(state_of(arrays)) and options["config"]["legacy"] is False
    given = json.dumps(options["config"])
    model = tc.convert.from_hf(dict(state), options["config"], task="fill-mask")
    tc.models.save(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["legacy"] is True and json.dumps(options["config"]) == given
    again = tc.models.load(tmp_path, task="fill-mask")
    more = {**state, "mask_predictions.dense.weight": np.ones((2, 2), np.float32)}
    pretrained = tc.convert.from_hf(more, {**options["config"], "legacy": True}, task="fill-mask")
    ids = arrays["ids"]
    assert np.array_equal(again(ids), model(ids)) and np.array_equal(pretrained(ids), model(ids))


def test_positions_that_are_not_used_may_be_in_a_file():
    state = {name: value.numpy() for name, value in tc.convert.to_hf(create()).items()}
    state["embeddings.position_embeddings.weight"] = np.ones((60, 32), np.float32)
    found = tc.convert.from_hf(state, create().config)
    assert np.array_equal(found(IDS), create()(IDS)) and np.array_equal(found(IDS, token_types=np.ones_like(IDS)), found(IDS))


def test_fine_tuning(tmp_path):
    """Texts of different lengths; losses fall, all parts are trained, and the folder is read again."""
    texts, labels = [c * n for c in "abcd" for n in (1, 3, 9)], ["ham", "eggs"] * 6
    classifier = tc.models.TextClassifier(create(), tokenizer=letters, epochs=15, batch_size=4, learning_rate=1e-2, random_state=0)
    classifier.fit(texts, labels)
    assert classifier.history_[-1]["loss"] < 0.7 * classifier.history_[0]["loss"]
    before, after = create().state_dict(), classifier.model_.encoder.state_dict()
    assert not [name for name, value in after.items() if np.array_equal(value.numpy(), before[name].numpy())]
    tc.models.save(classifier.model_, tmp_path)
    again = tc.models.load(tmp_path, task="text-classification")
    assert np.array_equal(again(IDS, lengths=LENGTHS), classifier.model_(IDS, lengths=LENGTHS))


def test_another_layer_in_the_place_of_the_queries_is_called():
    """Also for the queries and keys of distances."""
    model, qkv = create(), None
    expected, qkv = model(IDS, lengths=LENGTHS), model.layers[0].qkv
    found = []
    with qkv.register_forward_hook(lambda part, inputs, result: found.append(tuple(result.shape))):
        np.testing.assert_allclose(model(IDS, lengths=LENGTHS), expected, rtol=0, atol=1e-5)
    assert [shape[:-1] for shape in found] == [(1, LENGTHS.sum()), (1, len(model.bias(13).table))]


def test_a_long_text_beside_short_ones():
    """Has the states and maps that it has beside one."""
    lengths = np.array([60, *[2] * 200])
    ids = np.full((len(lengths), 60), 7)
    model = create()
    with tc.nn.attention_maps(model) as maps:
        states = model(ids[:2], lengths=lengths[:2])
    assert maps["layers.0"].shape == (2, 2, 60, 60) and not maps["layers.0"][1, :, 2:].any()
    assert np.array_equal(model(ids, lengths=lengths)[:2], states)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("pos_att_type", ["c2p", "p2p"], "expected null, or 'c2p' and 'p2c'"),
        ("pos_att_type", 7, "expected null, or 'c2p' and 'p2c'"),
        ("norm_rel_ebd", "batch_norm", "expected 'none' or 'layer_norm'"),
        ("position_buckets", 1, "position_buckets = 1; expected -1, or from 2 to 117, as distances are up to 60"),
        ("position_buckets", 118, "expected -1, or from 2 to 117"),
        ("conv_kernel_size", 2, "expected 0 or an odd number"),
        ("conv_groups", 3, "expected a number that divides hidden_size = 32"),
        ("conv_act", "softmax", "conv_act"),
        ("attention_head_size", 8, "attention_head_size"),
        ("pooler_hidden_size", 8, "pooler_hidden_size"),
        ("max_position_embeddings", 2**21, "at most 1048576"),
        ("relative_attention", 1, "true or false"),
    ],
)
def test_what_is_not_computed_is_refused(name, value, message):
    with pytest.raises(tc.CheckpointError, match=message):
        create(**{name: value})


def test_tables_of_other_sizes_are_refused():
    state = {name: value.numpy() for name, value in tc.convert.to_hf(create(position_biased_input=True)).items()}
    for values, message in (
        ({"position_buckets": 8}, r"the number of buckets = 16, but 'encoder.rel_embeddings.weight' has shape \(32, 32\)"),
        ({"max_position_embeddings": 50}, r"max_position_embeddings = 50, but 'embeddings.position_embeddings.weight'"),
        ({"embedding_size": 2**31 - 1}, r"embedding_size = 2147483647.*'embeddings.word_embeddings.weight'"),
        ({"type_vocab_size": 2**31 - 1}, r"'embeddings.token_type_embeddings.weight'"),
        ({"conv_kernel_size": 2**31 - 1}, r"'encoder.conv.conv.weight'"),
        ({"position_buckets": 0, "max_relative_positions": 2**30}, "has shape"),
    ):
        with pytest.raises(tc.CheckpointError, match=message):
            tc.convert.from_hf(dict(state), {**create(position_biased_input=True).config, **values})


def test_a_norm_of_distances_that_there_are_not():
    """Which transformers has all the same."""
    model = create(relative_attention=False, norm_rel_ebd="layer_norm")
    assert "encoder.LayerNorm.weight" in tc.convert.to_hf(model)
    other = tc.convert.from_hf(tc.convert.to_hf(model), model.config)
    assert np.array_equal(other([[5, 6, 7]]), model([[5, 6, 7]]))


@pytest.mark.parametrize(("layers", "groups", "ninth"), [(18, 14, 6), (12, 5, 3), (12, 1, 0)])
def test_groups_of_alberts_layers(layers, groups, ninth):
    """int(i / (layers / groups)) of transformers, in which floats are rounded."""
    values = {"model_type": "albert", "num_hidden_layers": layers, "num_hidden_groups": groups, "hidden_size": 8, "num_attention_heads": 2}
    model = tc.models.create({**values, "intermediate_size": 8, "embedding_size": 4, "vocab_size": 9, "max_position_embeddings": 5})
    order = [list(model.layers).index(layer) for layer in model.in_order()]
    assert order == [int(i / (layers / groups)) for i in range(layers)] and order[9] == ninth
    with pytest.raises(tc.CheckpointError, match="num_hidden_layers = 2147483647; expected an integer of at least 1 and at most 1024"):
        tc.models.create({**model.config, "num_hidden_layers": 2**31 - 1})


FIRST = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}


@pytest.mark.parametrize(
    "values",
    [
        FIRST,
        {**FIRST, "pos_att_type": "c2p", "max_relative_positions": 5, "legacy": False},
        {**FIRST, "pos_att_type": ["p2c"], "type_vocab_size": 2, "position_biased_input": True},
        {"pos_att_type": "c2p|p2c"},
        {},
    ],
    ids=str,
)
def test_the_first_version_is_that_of_transformers(values, tmp_path):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    sizes_of = {"vocab_size": 60, "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 48}
    torch.manual_seed(0)
    for task, kind in (("fill-mask", "MaskedLM"), ("text-classification", "SequenceClassification")):
        config = transformers.DebertaConfig(**sizes_of, max_position_embeddings=60, **values)
        theirs = getattr(transformers, f"DebertaFor{kind}")(config).eval()
        for parameter in theirs.parameters():
            parameter.data = torch.randn_like(parameter) * 0.3
        theirs.tie_weights()
        theirs.save_pretrained(tmp_path)
        model, mask = tc.models.load(tmp_path, task=task), (np.arange(13) < LENGTHS[:, None]).astype(np.int64)
        with torch.no_grad():
            expected = theirs(input_ids=torch.tensor(IDS), attention_mask=torch.tensor(mask)).logits.numpy()
        found, real = model(IDS, mask), slice(None) if kind != "MaskedLM" else mask != 0
        np.testing.assert_allclose(found[real], expected[real], rtol=0, atol=2e-5 * np.abs(expected).max())
        tc.models.save(model, tmp_path / "saved")
        again, report = getattr(transformers, f"DebertaFor{kind}").from_pretrained(tmp_path / "saved", output_loading_info=True)
        assert not any(report.values())
        with torch.no_grad():
            np.testing.assert_allclose(again(torch.tensor(IDS[:1])).logits.numpy(), model(IDS[:1]), rtol=0, atol=1e-4)


def test_what_the_first_version_does_not_have():
    """Values of the second one change nothing, as in transformers; heads that are mixed are refused."""
    first = create(model_type="deberta", **FIRST)
    second = ("position_buckets", "norm_rel_ebd", "share_att_key", "conv_kernel_size", "conv_act")
    plain = {name: value for name, value in first.config.items() if name not in second}
    assert len(plain) < len(first.config)
    state = tc.convert.to_hf(first)
    assert "encoder.layer.0.attention.self.q_bias" in state and len([name for name in state if "conv" in name]) == 0
    assert np.array_equal(tc.convert.from_hf(state, plain)(IDS), first(IDS))
    with pytest.raises(tc.CheckpointError, match="talking_head = True"):
        create(model_type="deberta", talking_head=True)
    for name, value in (
        ("max_relative_positions", "x"),
        ("max_relative_positions", 10**12),
        ("pos_att_type", [7]),
        ("type_vocab_size", []),
    ):
        with pytest.raises(tc.CheckpointError, match=name):
            create(model_type="deberta", **{**FIRST, name: value})
    for name, value in (("max_relative_positions", 7), ("hidden_size", 30), ("intermediate_size", 10**9)):
        with pytest.raises(tc.CheckpointError, match="has shape"):
            tc.convert.from_hf(state, {**plain, name: value})
    del state["encoder.layer.0.attention.self.q_bias"]
    with pytest.raises(tc.CheckpointError, match=r"the weights lack 'encoder\.layer\.0\.attention\.self\.q_bias'"):
        tc.convert.from_hf(state, plain)
