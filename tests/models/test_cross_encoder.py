"""CrossEncoder against sentence-transformers' numbers; tests of folders need the package tokenizers."""

import json

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from words import PAIRS, letters, write_tokenizer

OPTIONS, ARRAYS = load("classifiers")["pairs"]
STATE = {key[6:]: value for key, value in ARRAYS.items() if key.startswith("state.")}


def make(dtype="float32", outputs=1, **values):
    names = {"id2label": {str(i): str(i) for i in range(outputs)}}
    state = {
        **STATE,
        "classifier.weight": STATE["classifier.weight"][[0] * outputs],
        "classifier.bias": STATE["classifier.bias"][[0] * outputs],
    }
    return tc.convert.from_hf(state, {**OPTIONS["config"], **names, **values}, task="text-classification", dtype=dtype)


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("tokenizers")
    tc.models.save(make(), tmp_path)
    write_tokenizer(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-6), ("float32", 1e-5)])
def test_the_numbers_of_sentence_transformers(dtype, tolerance):
    for activation, expected in (("identity", "scores"), (None, "probabilities")):
        encoder = tc.models.CrossEncoder(make(dtype), letters, activation)
        found = encoder.predict(PAIRS)
        assert found.dtype == np.float32 and found.shape == (5,)
        np.testing.assert_allclose(found, ARRAYS[expected], rtol=tolerance, atol=tolerance)
    assert np.ptp(ARRAYS["scores"]) > 0.1


def test_a_model_in_train_mode():
    encoder = tc.models.CrossEncoder(make(hidden_dropout_prob=0.5), letters)
    expected = encoder.predict(PAIRS)
    encoder.model.train()
    np.testing.assert_array_equal(encoder.predict(PAIRS), expected)
    assert all(part.training for part in encoder.model.modules())


def test_folders(folder):
    read = tc.models.CrossEncoder.from_pretrained
    assert repr(read(folder)) == "CrossEncoder(Bert, outputs=1, activation=sigmoid, max_length=40)"
    assert np.array_equal(read(folder).predict(PAIRS), tc.models.CrossEncoder(make(), letters).predict(PAIRS))
    short = read(folder, max_length=8, activation="identity")
    expected = tc.models.CrossEncoder(make(), letters, "identity").predict([("a", "zzzz"), ("abc", "zy")])
    assert np.array_equal(short.predict([("a", "z" * 20), ("abcdef", "zy")]), expected)
    (folder / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""}]))
    config = json.loads((folder / "config.json").read_text())
    for files in (
        {"config_sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "default_prompt_name": None}},
        {"config": {**config, "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "5.0"}}},
        {"config": {**config, "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}},
    ):
        for name in ("config_sentence_transformers", "config"):
            (folder / f"{name}.json").write_text(json.dumps(files.get(name, config if name == "config" else {})))
        assert read(folder).activation == "identity"
        assert read(folder, activation="sigmoid").activation == "sigmoid"


def test_an_empty_folder_is_named_as_it_was_given(tmp_path):
    for read in (
        tc.models.CrossEncoder.from_pretrained,
        tc.models.SentenceEncoder.from_pretrained,
        tc.models.TextClassifier,
        tc.models.load,
    ):
        with pytest.raises(tc.CheckpointError, match=f"^'{tmp_path}' has no config.json"):
            read(tmp_path)


def test_folders_that_are_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    for name, value, message in (
        ("config_sentence_transformers", {"activation_fn": "os.system"}, r"activation_fn = 'os\.system'; supported are torch"),
        ("config_sentence_transformers", {"activation_fn": "torch.nn.modules.activation.Tanh"}, "supported are"),
        ("config_sentence_transformers", {"default_prompt_name": "q"}, "prompts of pairs"),
        (
            "sentence_bert_config",
            {"processing_kwargs": {"text": {"truncation": "only_second"}}},
            "processing_kwargs = .* only {} is supported",
        ),
        ("config", {**config, "sbert_ce_default_activation_function": 3}, "sbert_ce_default_activation_function = 3"),
        ("sentence_bert_config", {"processor_kwargs": {"truncation_side": "left"}}, "processor_kwargs with 'truncation_side'"),
        (
            "modules",
            [{"type": f"sentence_transformers.models.{kind}"} for kind in ("Transformer", "Pooling")],
            "SentenceEncoder reads them",
        ),
        ("config", {**config, "model_type": "t6"}, "expected one of"),
    ):
        path = folder / f"{name}.json"
        before = path.read_text() if path.exists() else None
        path.write_text(json.dumps(value))
        with pytest.raises(tc.CheckpointError, match=message):
            tc.models.CrossEncoder.from_pretrained(folder)
        path.unlink() if before is None else path.write_text(before)
    with pytest.raises(ValueError, match="cut off at 3 tokens, but the tokenizer of .* adds 3"):
        tc.models.CrossEncoder.from_pretrained(folder, max_length=3)
    tc.models.save(make().encoder, folder)
    with pytest.raises(tc.CheckpointError, match="no weights for .*out: it is no cross-encoder"):
        tc.models.CrossEncoder.from_pretrained(folder)


def test_the_same_bits_in_any_batch(isa):
    encoder = tc.models.CrossEncoder(make(), letters)
    pairs = [(a, c * n) for a in ("q", "query") for n, c in ((1, "a"), (2, "b"), (9, "c"), (15, "d"), (16, "e"), (31, "f"))]
    alone = np.array([encoder.predict(both) for both in pairs])
    for size, by_length in ((12, True), (5, False), (3, True)):
        assert np.array_equal(encoder.predict(pairs, size, by_length), alone)


def test_rank():
    encoder = tc.models.CrossEncoder(make(), letters)
    documents = ["abc", "zzz", "abc", "numpy"]
    found = encoder.predict([("q", text) for text in documents])
    ranked = encoder.rank("q", documents, return_documents=True)
    order = [entry["corpus_id"] for entry in ranked]
    assert order == sorted(range(4), key=lambda i: (-found[i], i)) and order.index(0) < order.index(2)
    assert [(entry["score"], entry["text"]) for entry in ranked] == [(float(found[i]), documents[i]) for i in order]
    assert encoder.rank("q", documents, top_k=2) == [{"corpus_id": i, "score": float(found[i])} for i in order[:2]]
    assert encoder.rank("q", []) == []


def test_several_outputs_and_mistakes():
    encoder = tc.models.CrossEncoder(make(outputs=3), letters)
    assert encoder.activation == "identity" and encoder.predict(PAIRS).shape == (5, 3) and encoder.predict(PAIRS[0]).shape == (3,)
    assert encoder.predict([]).shape == (0, 3)
    with pytest.raises(ValueError, match="3 scores to a pair"):
        encoder.rank("q", ["a"])
    with pytest.raises(ValueError, match="activation must be"):
        tc.models.CrossEncoder(make(), letters, "tanh")
    encoder = tc.models.CrossEncoder(make(), letters)
    for pairs in ("ab", ["abc"], [("a", "b", "c")], [("a", None)], None, [b"ab"]):
        with pytest.raises(TypeError, match="texts must be"):
            encoder.predict(pairs)
    with pytest.raises(TypeError, match="query must be a str"):
        encoder.rank(["q"], ["a"])
    large = np.array([-1000.0, 1000.0, -30.0], np.float32)
    np.testing.assert_allclose(encoder._activated(large), [0, 1, np.exp(-30.0)], rtol=1e-12)
