"""What tc.models refuses: every message says what it found and what it expected."""

import json

import numpy as np
import pytest
import transformer_c as tc
from golden import models
from transformer_c.models.architectures import ARCHITECTURES

CASES = models()
BERT, ARRAYS = CASES["bert"][0]["config"], CASES["bert"][1]
STATE = {key[6:]: value for key, value in ARRAYS.items() if key.startswith("state.")}
IDS = np.array([[1, 2, 3]])


def refuses(message, config=BERT, state=STATE, **options):
    with pytest.raises(tc.CheckpointError, match=message) as caught:
        tc.convert.from_hf(state, config, **options)
    assert len(str(caught.value)) < 600


def test_unknown_architectures():
    for config in ({"model_type": "t6", "architectures": ["T6Model"]}, {}, {"model_type": None}, {"model_type": ["bert"]}):
        refuses(f"expected one of {', '.join(sorted(ARCHITECTURES))}", config)


VALUES = [
    ("position_embedding_type", "relative_key", "nothing else is supported"),
    ("position_embedding_type", "relative_key_query", "'absolute'"),
    ("is_decoder", True, "is_decoder = True"),
    ("add_cross_attention", True, "add_cross_attention"),
    ("is_encoder_decoder", True, "is_encoder_decoder"),
    ("quantization_config", {"bits": 4}, "quantization_config"),
    ("pruned_heads", {"0": [1]}, "pruned_heads"),
    ("hidden_act", "laplace", "one of gelu, "),
    ("hidden_act", ["gelu"], "one of gelu, "),
    ("hidden_size", 17, r"hidden_size = 17 but .* has shape \(40, 16\)"),
    ("hidden_size", "16", "hidden_size = '16'"),
    ("vocab_size", 10**18, r"vocab_size = 1000000000000000000 but .* shape \(40, 16\)"),
    ("num_attention_heads", 3, "no multiple of num_attention_heads = 3"),
    ("num_attention_heads", 0, "at least 1"),
    ("num_attention_heads", True, "at least 1"),
    ("num_hidden_layers", 3, "the weights have 2 layers"),
    ("num_hidden_layers", 10**9, "the weights have 2 layers"),
    ("intermediate_size", 25, "intermediate_size = 25"),
    ("layer_norm_eps", -1, "a number from 0"),
    ("layer_norm_eps", float("nan"), "a number from 0"),
    ("layer_norm_eps", "1e-5", "a number from 0"),
    ("hidden_dropout_prob", 1.5, "a number from 0 to 1"),
    ("pad_token_id", 40, "an index below 40"),
    ("pad_token_id", -1, "an index below 40"),
]


@pytest.mark.parametrize(("name", "value", "message"), VALUES)
def test_values_that_are_not_supported(name, value, message):
    refuses(message, {**BERT, name: value})


def test_values_of_other_architectures():
    for case, name, value in [
        ("mpnet", "relative_attention_num_buckets", 16),
        ("mpnet", "pad_token_id", 0),
        ("roberta", "pad_token_id", None),
        ("roberta", "pad_token_id", 30),
        ("distilbert", "activation", "swiglu"),
        ("dinov2", "drop_path_rate", 0.1),
        ("dinov2", "image_size", [24, 8]),
        ("dinov2", "layerscale_value", "x"),
        ("dinov2", "mlp_ratio", 3),
        ("dinov2", "mlp_ratio", 2**20),
        ("dinov2", "use_mask_token", None),
        ("dinov2", "use_swiglu_ffn", 1),
        ("dinov2_with_registers", "num_register_tokens", 3),
        ("vit", "image_size", [8, 8, 8]),
        ("vit", "patch_size", 5),
        ("vit", "qkv_bias", 1),
        ("vit", "pooler_act", "relu"),
    ]:
        options, arrays = CASES[case]
        state = {key[6:]: array for key, array in arrays.items() if key.startswith("state.")}
        refuses("config.json has|by config.json", {**options["config"], name: value}, state)


TOO_LARGE = [
    ("bert", "num_labels", 2**31 - 1, "text-classification", "at most 65536"),
    ("vit", "num_labels", 2**16, "image-classification", r"65536 labels but 'classifier.weight' has shape \(3, 16\)"),
    ("vit", "image_size", 2**15, None, r"image_size = \(32768, 32768\) and .* 'embeddings.position_embeddings' has shape"),
    ("vit", "image_size", 2**31 - 1, None, "position_embeddings"),
    ("vit", "patch_size", 2**14, None, r"patch_size = \(16384, 16384\) but .*patch_embeddings.projection.weight' has shape"),
    ("vit", "pooler_act", [], None, "pooler_act = \\[\\]; expected 'tanh'"),
]


@pytest.mark.parametrize(("case", "name", "value", "task", "message"), TOO_LARGE)
def test_sizes_are_compared_before_memory_is_taken(case, name, value, task, message):
    options, arrays = CASES[case]
    state = {key[6:]: array for key, array in arrays.items() if key.startswith("state.")}
    if task == "image-classification":
        state = {**{f"vit.{key}": array for key, array in state.items()}, "classifier.weight": np.zeros((3, 16), np.float32)}
    config = {key: each for key, each in options["config"].items() if key != "id2label"}
    refuses(message, {**config, name: value}, state, task=task)


def test_a_label_that_is_no_character_is_saved_as_it_was_read(tmp_path):
    config = {**BERT, "id2label": {"0": "a\ud800", "1": "b"}}
    tc.models.save(tc.models.create(config, task="text-classification"), tmp_path)
    assert tc.models.load(tmp_path, task="text-classification").labels == ["a\ud800", "b"]


def test_labels():
    head = {**STATE, "classifier.weight": np.ones((3, 16), "f4"), "classifier.bias": np.ones(3, "f4")}
    task = {"task": "text-classification"}
    model = tc.convert.from_hf(head, {**BERT, "id2label": {"1": "no", "0": "yes", "2": "?"}}, **task)
    assert model.labels == ["yes", "no", "?"] and model(IDS).shape == (1, 3)
    refuses(r"2 labels but 'classifier.weight' has shape \(3, 16\)", state=head, **task)
    for names in ({}, {"0": "a", "2": "b"}, ["a"], {"0": None}, {"0": "a", "1": "a\0"}):
        refuses("id2label", {**BERT, "id2label": names}, head, **task)


@pytest.mark.parametrize("task", ["text-classification", "token-classification"])
def test_problems_that_do_not_exist(tmp_path, task):
    tc.models.save(tc.models.create(BERT, task=task), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "problem_type": "x"}))
    with pytest.raises(tc.CheckpointError, match="problem_type = 'x'; expected null or one of"):
        tc.models.load(tmp_path, task=task)


def test_heads_of_other_tasks(tmp_path):
    """By their arrays they look alike: config.json says which task they are for."""
    tc.models.save(tc.models.create({**BERT, "id2label": {"0": "a", "1": "b", "2": "c"}}, task="token-classification"), tmp_path)
    assert tc.models.load(tmp_path, task="token-classification")(IDS).shape == (1, 3, 3)
    message = r"another task than 'text-classification': .*'BertForTokenClassification'\]; task='token-classification' reads it"
    with pytest.raises(tc.CheckpointError, match=message):
        tc.models.load(tmp_path, task="text-classification")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["BertForMultipleChoice"]}))
    for task in ("token-classification", "text-classification"):
        with pytest.raises(tc.CheckpointError, match="'BertForMultipleChoice'.*there are 'text-classification', "):
            tc.models.load(tmp_path, task=task)
    for said in (None, ["A", "B"], ["Mine"], 3, ["BertForTokenClassification", 1]):  # nothing that can be relied on
        (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": said}))
        assert tc.models.load(tmp_path, task="token-classification")(IDS).shape == (1, 3, 3)
    tc.models.save(tc.models.create({**BERT, "id2label": {"0": "a", "1": "b", "2": "c"}}, task="fill-mask"), tmp_path)
    with pytest.warns(RuntimeWarning, match="the head has new ones"):
        tc.models.load(tmp_path, task="text-classification")


def test_arrays():
    lacking = {key: value for key, value in STATE.items() if key != "encoder.layer.1.attention.self.key.weight"}
    refuses(r"lack 'encoder.layer.1.attention.self.key.weight'$", state=lacking)
    refuses("lack 'embeddings.word_embeddings.weight'; they have no arrays$", state={})
    prefixed = {f"module.{key}": value for key, value in STATE.items()}
    refuses(rf"lack 'embeddings.word_embeddings.weight'; they have 'module.embeddings.\S+, .* and {len(STATE) - 5} more$", state=prefixed)
    refuses("have a layer 7, but no layer 1$", state={key.replace(".layer.1.", ".layer.7."): value for key, value in STATE.items()})
    refuses("does not know: 'encoder.layer.0.adapter.weight'$", state={**STATE, "encoder.layer.0.adapter.weight": np.ones(3, "f4")})
    refuses("two names of one array", state={**STATE, "bert.pooler.dense.bias": STATE["pooler.dense.bias"]})
    name = "encoder.layer.0.output.dense.weight"
    refuses(r"has shape \(24, 16\); by config.json it has \(16, 24\)", state={**STATE, name: STATE[name].T})
    refuses("has values of int8, perhaps quantised", state={**STATE, name: STATE[name].astype("i1")})
    part = {**STATE, "classifier.weight": np.ones((2, 16), "f4")}
    refuses("lack 'classifier.bias'", state=part, task="token-classification")


def test_old_names_and_leftovers():
    """TensorFlow's names of a norm's arrays, the buffer of positions, and another task's head."""
    old = {k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v for k, v in STATE.items()}
    old |= {"embeddings.position_ids": np.arange(16)[None], "cls.seq_relationship.bias": np.ones(2, "f4")}
    expected = tc.convert.from_hf(STATE, BERT)(IDS)
    assert np.array_equal(tc.convert.from_hf({f"bert.{k}" if k[:3] != "cls" else k: v for k, v in old.items()}, BERT)(IDS), expected)


def test_arrays_of_masked_image_modelling():
    """The token in the place of masked patches, and the layer that paints them."""
    config, arrays = CASES["vit"][:2]
    model = tc.convert.from_hf({key[6:]: value for key, value in arrays.items() if key.startswith("state.")}, config["config"])
    state = {f"vit.{key}": value for key, value in tc.convert.to_hf(model).items()}
    state |= {"vit.embeddings.mask_token": np.ones((1, 1, 16), "f4"), "decoder.0.weight": np.ones((48, 16, 1, 1), "f4")}
    assert np.array_equal(tc.convert.from_hf(state, model.config)(arrays["pixels"]), model(arrays["pixels"]))


def test_a_head_that_the_file_has_not_is_new():
    tc.manual_seed(0)
    with pytest.warns(RuntimeWarning, match=r"no weights for 'token-classification' \(out\)"):
        model = tc.convert.from_hf(STATE, BERT, task="token-classification", dtype="float64")
    assert model(IDS).shape == (1, 3, 2) and model.out.weight.dtype == "float64"
    assert 0.005 < np.std(model.out.weight.numpy()) < 0.05 and not model.out.bias.numpy().any()


def test_the_warning_of_a_new_head_names_the_callers_line(tmp_path):
    tc.models.save(tc.models.create(BERT), tmp_path)
    for make in (
        lambda: tc.convert.from_hf(STATE, BERT, task="token-classification"),
        lambda: tc.models.load(tmp_path, task="token-classification"),
    ):
        with pytest.warns(RuntimeWarning, match="the head has new ones") as caught:
            make()
        assert [(one.filename, one.lineno) for one in caught] == [(__file__, make.__code__.co_firstlineno)]


def test_a_new_head_keeps_the_pooler():
    with pytest.warns(RuntimeWarning, match=r"'text-classification' \(out\)"):
        model = tc.convert.from_hf(STATE, BERT, task="text-classification")
    assert np.array_equal(model.dense.weight.numpy(), STATE["pooler.dense.weight"])


def test_tied_arrays_must_be_equal():
    head = {key.removeprefix("head.fill-mask."): value for key, value in ARRAYS.items() if key.startswith("head.fill-mask.")}
    both = {**STATE, **head, "cls.predictions.decoder.weight": STATE["embeddings.word_embeddings.weight"].copy()}
    tc.convert.from_hf(both, BERT, task="fill-mask")
    both["cls.predictions.decoder.weight"][0, 0] += 1
    refuses("'cls.predictions.decoder.weight' differs from 'embeddings.word_embeddings.weight'", state=both, task="fill-mask")
    refuses("tie_word_embeddings", {**BERT, "tie_word_embeddings": False}, both, task="fill-mask")


def test_arguments():
    model = tc.convert.from_hf(STATE, BERT)
    for message, arguments in [
        (r"at most 16", (np.ones((1, 17), int),)),
        (r"shape \(B, T\)", (np.ones(3, int),)),
        (r"mask has shape \(1, 2\)", (IDS, np.ones((1, 2)))),
        (r"other than 0 and 1", (IDS, np.full((1, 3), -1e9))),
        (r"other than 0 and 1", (IDS, np.array([[0, 0, -10000]]))),
        (r"lengths must be integers of shape", (IDS, None, np.ones(2, int))),
        (r"token_types must be integers of the shape of ids, \(1, 3\), got int64 of shape \(1, 2\)", (IDS, None, None, ((1, 2),))),
    ]:
        with pytest.raises(ValueError, match=message):
            model(*arguments)
    for message, arguments in [
        (r"ids must be integers .* got float32 of shape \(1, 3\); convert them with ids\.astype\(int\)", (np.ones((1, 3)),)),
        (r"lengths must be integers .* got float32", (IDS, None, np.ones(1))),
        (r"token_types must be integers .* got bool of shape \(1, 3\)", (IDS, None, None, IDS > 1)),
    ]:
        with pytest.raises(TypeError, match=message):
            model(*arguments)
    with pytest.raises(IndexError):
        model(IDS + 40)
    with pytest.raises(ValueError, match=r"ids have the shape \(2, 0\); a text is judged by its first token"):
        tc.models.create(BERT, task="text-classification")(np.zeros((2, 0), int))
    with pytest.raises(ValueError, match="DistilBERT has no embeddings for the parts"):
        config = {"model_type": "distilbert", "vocab_size": 20, "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 8}
        tc.models.create(config)(IDS, token_types=IDS)
    with pytest.raises(ValueError, match=r"pixels have shape \(1, 3, 8, 8\); expected \(B, 3, 12, 8\)"):
        tc.models.create(CASES["vit"][0]["config"])(np.ones((1, 3, 8, 8), "f4"))
    with pytest.raises(ValueError, match="'text-classification', .*or None for the model without a head"):
        tc.models.create(BERT, task="summarization")
    with pytest.raises(ValueError, match="or None for the model without a head"):
        tc.models.create(BERT, task=["fill-mask"])
    with pytest.raises(TypeError, match=r"a model of tc\.models, not Linear"):
        tc.convert.to_hf(tc.nn.Linear(2, 2))


def test_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match="never downloaded"):
        tc.models.load("sentence-transformers/all-MiniLM-L6-v2")
    for name, data, message in [
        ("model.gguf", b"GGUF\3\0\0\0", "GGUF"),
        ("model.onnx", b"\x08\x07\x12\x07pytorch", "ONNX"),
        ("x.safetensors", b"{}", "is a file; expected a folder"),
    ]:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(tc.CheckpointError, match=message):
            tc.models.load(tmp_path / name)
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    with pytest.raises(tc.CheckpointError, match=r"no model\.safetensors and no pytorch_model\.bin; it has model\.gguf \(GGUF"):
        tc.models.load(tmp_path)
    for text in ("", "{", "[]", "3", '{"a": 1, "a": 2}', "\udc80", "[" * 10**5):
        (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(tc.CheckpointError):
            tc.models.load(tmp_path)
