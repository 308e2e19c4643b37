"""SentenceEncoder against NumPy over the model's own states; tests of folders need the package tokenizers."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import transformer_c as tc
from folders import CONFIG, sentence_folder
from transformer_c import cli
from transformer_c.models.pooling import POOLINGS
from words import letters

TEXTS = ["abc", "", "z" * 18, "transformers", "a", "0123456789", "numpy", "zyx"] * 3


@pytest.fixture(scope="module")
def model():
    tc.manual_seed(1)
    return tc.models.create({**CONFIG, "initializer_range": 0.3})


def states(model, text):
    return model(letters([text])[0][0][None])[0].astype(np.float64)


POOLED = {
    "cls": lambda x, first=1: x[0],
    "lasttoken": lambda x, first=1: x[-1],
    "max": lambda x, first=1: x.max(0),
    "mean": lambda x, first=1: x.sum(0) / len(x),
    "mean_sqrt_len_tokens": lambda x, first=1: x.sum(0) / len(x) ** 0.5,
    "weightedmean": lambda x, first=1: sum(i * row for i, row in enumerate(x, first)) / sum(range(first, first + len(x))),  # by place
}


@pytest.mark.parametrize("pooling", POOLED)
def test_poolings(model, pooling):
    encoder = tc.models.SentenceEncoder(model, letters, (pooling,), prompts={"q": "ab:"}, include_prompt=False)
    expected = np.stack([POOLED[pooling](states(model, text)) for text in TEXTS])
    found = encoder.encode(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    expected = POOLED[pooling](states(model, "ab:xyz")[4:], 5)  # [CLS] and the prompt have four tokens
    np.testing.assert_allclose(encoder.encode("xyz", prompt_name="q"), expected, rtol=0, atol=2e-6)
    encoder.include_prompt = True
    np.testing.assert_allclose(encoder.encode(["xyz"], prompt="ab:")[0], POOLED[pooling](states(model, "ab:xyz")), rtol=0, atol=2e-6)


def test_characters_are_made_lower_case_each_alone(model):
    """As by sentence-transformers' tokenizer, to which the last sigma of a word is one like others."""
    given = []
    encoder = tc.models.SentenceEncoder(model, lambda texts: (given.extend(texts), letters(texts))[1], lowercase=True)
    encoder.encode(["ΟΔΟΣ A", "İ"])
    assert given == ["οδοσ a", "i̇"]


def test_the_words_for_poolings(capsys):
    """Docstrings, the page and the command line name those of the table."""
    names = list(POOLINGS)
    assert set(POOLED) == set(names)
    written = "{" + ", ".join(f'"{name}"' for name in names) + "}"
    assert written in tc.models.SentenceEncoder.__doc__ and written in tc.models.SentenceEncoder.from_pretrained.__doc__
    page = (Path(__file__).parents[2] / "docs/models.md").read_text()
    assert ", ".join(f"`{name}`" for name in names) in page
    with pytest.raises(SystemExit):
        cli.main(["embed", "--help"])
    assert f"{', '.join(names[:-1])} or {names[-1]} (default" in re.sub(r"\s+", " ", capsys.readouterr().out)


def test_several_poolings_and_normalisation(model):
    encoder = tc.models.SentenceEncoder(model, letters, ("cls", "max"), normalize=True)
    x = states(model, "numpy")
    expected = np.concatenate([x[0], x.max(0)])
    np.testing.assert_allclose(encoder.encode("numpy"), expected / np.linalg.norm(expected), rtol=0, atol=1e-6)


def dense_layers():
    tc.manual_seed(3)
    return [tc.models.Dense(32, 24, activation="relu"), tc.models.Dense(24, 5, bias=False)]


def test_dense_layers(model):
    """Their numbers, and the same bits in any batch."""
    layers = dense_layers()
    encoder = tc.models.SentenceEncoder(model, letters, ("cls", "max"), normalize=True, dense=layers)
    weights = [{name: value.numpy().astype(np.float64) for name, value in layer.linear.state_dict().items()} for layer in layers]
    found = encoder.encode(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        x = states(model, text)
        x = np.maximum(np.concatenate([x[0], x.max(0)]) @ weights[0]["weight"].T + weights[0]["bias"], 0)
        x = np.tanh(x @ weights[1]["weight"].T)
        np.testing.assert_allclose(vector, x / np.linalg.norm(x), rtol=0, atol=2e-6)
        assert np.array_equal(vector, encoder.encode(text))
    assert found.shape == (len(TEXTS), 5) and np.array_equal(encoder.encode(TEXTS, 5, False), found)
    with pytest.raises(ValueError, match="takes vectors of 24 numbers, but it is given 16"):
        tc.models.SentenceEncoder(model, letters, dense=layers[1:])
    with pytest.raises(TypeError, match="layers of tc.models.Dense, not Linear"):
        tc.models.SentenceEncoder(model, letters, dense=[tc.nn.Linear(16, 2)])
    with pytest.raises(ValueError, match="activation must be"):
        tc.models.Dense(2, 2, activation="softmax")


def test_dense_layers_are_trained(model):
    layers = dense_layers()[1:]
    encoder = tc.models.SentenceEncoder(model, letters, dense=[tc.models.Dense(16, 24, activation="identity"), *layers])
    before = layers[0].linear.weight.numpy().copy()
    pairs = [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]
    encoder.fit(pairs, epochs=20, learning_rate=0.01, random_state=0)
    assert encoder.history[-1]["loss"] < 0.8 * encoder.history[0]["loss"]
    assert np.array_equal(layers[0].linear.weight.numpy(), before) and encoder.dense[1] is not layers[0]
    assert not np.array_equal(encoder.dense[1].linear.weight.numpy(), before) and not encoder.dense[1].training


def test_dense_layers_have_the_dtype_of_the_model_in_a_training(model):
    wide = tc.models.create({**CONFIG, "initializer_range": 0.3}).to(dtype="float64")
    encoder = tc.models.SentenceEncoder(wide, letters, dense=[tc.models.Dense(16, 5)])
    encoder.fit([("a", "1"), ("b", "2")], random_state=0)
    assert encoder.dense[0].linear.weight.dtype == encoder.model.words.weight.dtype == np.float64
    assert encoder.encode(["a"]).dtype == np.float32


@pytest.mark.parametrize("architecture", ["bert", "mpnet", "roberta"])
def test_the_same_bits_in_any_batch(architecture, isa):
    names = {"model_type": architecture, "hidden_size": 48, "num_attention_heads": 3, "max_position_embeddings": 160}
    model = tc.models.create({**CONFIG, **names, "initializer_range": 0.2})
    encoder = tc.models.SentenceEncoder(model, letters)
    texts = [c * n for n, c in ((1, "a"), (2, "b"), (5, "c"), (15, "d"), (16, "e"), (31, "f"), (65, "g"), (130, "h"))] * 2
    expected = np.stack([encoder.encode(text) for text in texts])
    for size, by_length in ((16, True), (3, False), (5, True)):
        assert np.array_equal(encoder.encode(texts, size, by_length), expected)
    ids = np.zeros((2, 140), int)
    ids[0, :18], ids[1] = letters(["d" * 16])[0][0], 7
    alone = model(ids[:1, :18])
    assert np.array_equal(model(ids, np.arange(140) < np.array([[18], [140]]))[:1, :18], alone)


def test_batches_are_sorted_by_length(model):
    """The longest texts first, so that a batch has little padding; or in their own order."""
    encoder, seen = tc.models.SentenceEncoder(model, letters), []
    hook = model.register_forward_pre_hook(lambda part, inputs, options: seen.append(options["lengths"].tolist()), with_kwargs=True)
    lengths = [len(text) + 2 for text in TEXTS]
    for sort, expected in ((True, sorted(lengths, reverse=True)), (False, lengths)):
        seen.clear()
        encoder.encode(TEXTS, 5, sort)
        assert seen == [expected[begin : begin + 5] for begin in range(0, len(TEXTS), 5)]
    hook.remove()


def test_a_model_in_train_mode():
    """No dropout: fine-tuning a model leaves it in train mode, in which it is again afterwards."""
    encoder = tc.models.SentenceEncoder(tc.models.create({**CONFIG, "initializer_range": 0.3}), letters)
    expected = encoder.encode(TEXTS)
    encoder.model.train()
    np.testing.assert_array_equal(encoder.encode(TEXTS), expected)
    assert all(part.training for part in encoder.model.modules())


@pytest.mark.parametrize("name", ["words", "types", "layers.0.out", "layers.1.linear2"])
def test_a_model_with_another_layer_in_the_place_of_one(name):
    """Which need not have the attributes of the first one, such as its sizes."""
    model = tc.models.create({**CONFIG, "initializer_range": 0.3})
    expected = tc.models.SentenceEncoder(model, letters).encode(TEXTS)

    class Wrapped(tc.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = model.get_submodule(name)

        def forward(self, x):
            return self.first(x)

    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, Wrapped())
    np.testing.assert_allclose(tc.models.SentenceEncoder(model, letters).encode(TEXTS), expected, atol=1e-5)


def test_arguments(model):
    encoder = tc.models.SentenceEncoder(model, letters, prompts={"q": "a"})
    assert encoder.encode([]).shape == (0, 16) and encoder.encode("abc").shape == (16,)
    assert np.array_equal(encoder.encode(np.array(["abc", "z"])), encoder.encode(("abc", "z")))
    for bad in (["abc", None], [b"abc"], b"abc", {"a": 1}, 3, [float("nan")], None):
        with pytest.raises(TypeError, match="texts must be"):
            encoder.encode(bad)
    for texts in (["a"], "a"):
        with pytest.raises(ValueError, match="batch_size"):
            encoder.encode(texts, batch_size=0)
    for texts in (["a", "b \ud800"], [("a", "b"), ("c", "\udfff")]):
        with pytest.raises(ValueError, match="text number 1 has .* no character"):
            (encoder.encode if isinstance(texts[0], str) else tc.models.texts.checked_with_pairs)(texts)
    with pytest.raises(ValueError, match=r"^prompt has .*ud800.* no character"):
        encoder.encode(["a"], prompt="a \ud800")
    with pytest.raises(ValueError, match=r"^the prompt 'bad' has .*udfff.* no character"):
        tc.models.SentenceEncoder(model, letters, prompts={"bad": "\udfff"}).encode("a", prompt_name="bad")
    with pytest.raises(TypeError, match=r"^prompt must be a str, not 3 \(int\)"):
        encoder.encode(["a"], prompt=3)
    with pytest.raises(ValueError, match="prompt_name is 'x'; this model has the prompts 'q'"):
        encoder.encode(["a"], prompt_name="x")
    with pytest.raises(ValueError, match="this model has no prompts"):
        tc.models.SentenceEncoder(model, letters).encode(["a"], prompt_name="x")
    with pytest.raises(TypeError, match="two ways"):
        encoder.encode(["a"], prompt_name="q", prompt="b")
    with pytest.raises(ValueError, match="at most 40"):
        encoder.encode("a" * 39)


def test_a_tokenizer_of_another_model(model):
    for ids, types, message in (
        ([2, 64], [0, 0], "the number 64, .* 64 tokens"),
        ([-1], [0], "-1"),
        ([2, 3], [0, 2], "the number 2, .* 2 parts"),
    ):
        encoder = tc.models.SentenceEncoder(model, lambda texts, own=(ids, types): [tuple(map(np.array, own)) for _ in texts])
        with pytest.raises(ValueError, match=message):
            encoder.encode(["a"])


def test_words_of_an_encoder(model):
    make = tc.models.SentenceEncoder
    assert make(model, letters, pooling="max").pooling == ("max",)
    with pytest.raises(ValueError, match="2 arguments are wrong:\n  pooling .* got 'men'\n  similarity_function .* got 'cos'"):
        make(model, letters, ["men"], similarity_function="cos")
    for pooling, error, message in (
        (3, TypeError, "one or several of cls, max, mean, .* got 3"),
        (None, TypeError, "got None"),
        ((), ValueError, "nothing"),
    ):
        with pytest.raises(error, match=f"pooling .*{message}"):
            make(model, letters, pooling)
    with pytest.raises(TypeError, match=r"encode\(\) has no option 'convert_to_tensor': tc.tensor"):
        make(model, letters).encode(["a"], convert_to_tensor=True)


def test_similarity(model, rng):
    a, b = rng.standard_normal((3, 8)), rng.standard_normal((4, 8))
    for name, of in {
        "cosine": lambda x, y: x @ y / np.linalg.norm(x) / np.linalg.norm(y),
        "dot": lambda x, y: x @ y,
        "euclidean": lambda x, y: -np.linalg.norm(x - y),
        "manhattan": lambda x, y: -np.abs(x - y).sum(),
    }.items():
        encoder = tc.models.SentenceEncoder(model, letters, similarity_function=name)
        expected = [[of(x, y) for y in b] for x in a]
        np.testing.assert_allclose(encoder.similarity(a, b), expected, rtol=0, atol=1e-5)
        assert encoder.similarity(a, b).dtype == np.float32 and encoder.similarity(a[0], b).shape == (1, 4)
        assert encoder.similarity(np.empty((0, 8)), b).shape == (0, 4)
    with pytest.raises(ValueError, match=r"\(3, 8\) and \(4, 7\)"):
        encoder.similarity(a, b[:, :7])


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20, 1e30])
def test_similarity_of_large_and_tiny_vectors(model, rng, scale):
    """Their squares are outside of float32's range."""
    a, b = rng.standard_normal((3, 8)), rng.standard_normal((4, 8))
    large, others = (scale * a).astype(np.float32), (scale * b).astype(np.float32)
    expected = {
        "cosine": (a / np.linalg.norm(a, axis=1, keepdims=True)) @ (b / np.linalg.norm(b, axis=1, keepdims=True)).T,
        "euclidean": -np.linalg.norm(a[:, None] - b, axis=2) * scale,
        "manhattan": -np.abs(a[:, None] - b).sum(2) * scale,
    }
    for name, numbers in expected.items():
        found = tc.models.SentenceEncoder(model, letters, similarity_function=name).similarity(large, others)
        if name != "cosine" or scale > 1e-12:  # lengths below 1e-12 count as 1e-12, as in PyTorch
            np.testing.assert_allclose(found, numbers, rtol=1e-5, atol=1e-6 * (1 if name == "cosine" else scale))
        assert np.isfinite(found).all()


def test_progress(model, capsys):
    tc.models.SentenceEncoder(model, letters).encode(TEXTS, progress=True)
    assert "encoding" in capsys.readouterr().err
    tc.models.SentenceEncoder(model, letters).encode(TEXTS)
    assert not capsys.readouterr().err


def test_progress_without_standard_error(model, monkeypatch):
    """Its sys.stderr is None: `python script 2>&-`, pythonw, some services."""
    encoder = tc.models.SentenceEncoder(model, letters)
    expected = encoder.encode(TEXTS)
    monkeypatch.setattr(sys, "stderr", None)
    assert np.array_equal(encoder.encode(TEXTS, progress=True), expected)


# ---- folders ----------------------------------------------------------------------------------------------------------------


def test_a_folder(tmp_path):
    pytest.importorskip("tokenizers")
    encoder = tc.models.SentenceEncoder.from_pretrained(sentence_folder(tmp_path))
    assert (encoder.pooling, encoder.normalize, encoder.similarity_function, encoder.prompts) == (
        ("mean",),
        True,
        "dot",
        {"query": "find:"},
    )
    assert repr(encoder) == "SentenceEncoder(Bert, pooling=mean, normalize=True, max_length=20)"
    own = tc.models.SentenceEncoder(tc.models.load(tmp_path), letters, normalize=True)
    texts = ["abc", "z" * 18, "a"]  # the tokenizer's file would cut off after 5 tokens and pad to 30
    assert np.array_equal(encoder.encode(texts), own.encode(texts))
    assert np.array_equal(encoder.encode("z" * 30), own.encode("z" * 18))  # max_seq_length is 20 with [CLS] and [SEP]
    assert np.array_equal(encoder.encode("b", prompt_name="query"), own.encode("find:b"))
    other = tc.models.SentenceEncoder.from_pretrained(tmp_path, pooling="cls", normalize=False, max_length=12)
    own = tc.models.SentenceEncoder(tc.models.load(tmp_path), letters, ("cls",))
    assert np.array_equal(other.encode("z" * 30), own.encode("z" * 10))


def test_other_folders(tmp_path):
    pytest.importorskip("tokenizers")
    read = tc.models.SentenceEncoder.from_pretrained
    plain = sentence_folder(tmp_path, modules=None, sentence_bert_config=None, tokenizer_config={"model_max_length": 10**30})
    assert repr(read(plain)) == "SentenceEncoder(Bert, pooling=mean, normalize=False, max_length=40)"
    new = "sentence_transformers.base.modules.transformer.Transformer", "sentence_transformers.sentence_transformer.modules.pooling.Pooling"
    files = {
        "modules": [{"idx": i, "path": ["", "1_Pooling"][i], "type": kind} for i, kind in enumerate(new)],
        "1_Pooling/config": {"embedding_dimension": 16, "pooling_mode": ["cls", "max"], "include_prompt": False},
        "sentence_bert_config": {
            "transformer_task": "feature-extraction",
            "do_lower_case": True,
            "model_kwargs": {"add_pooling_layer": False},
        },
        "tokenizer_config": {"model_max_length": 16},
        "config_sentence_transformers": {"prompts": {"document": "", "query": "q:"}, "default_prompt_name": "query"},
    }
    encoder = read(sentence_folder(tmp_path, **files))
    assert repr(encoder) == "SentenceEncoder(Bert, pooling=cls+max, normalize=False, max_length=16)"
    assert not encoder.include_prompt and encoder.encode(["a"]).shape == (1, 32)
    assert np.array_equal(encoder.encode("ABC"), encoder.encode("abc", prompt="q:"))


def test_a_folder_says_how_many_numbers_are_kept(tmp_path):
    pytest.importorskip("tokenizers")
    read = tc.models.SentenceEncoder.from_pretrained
    whole = read(sentence_folder(tmp_path)).encode(["abc", "z"])
    (tmp_path / "config_sentence_transformers.json").write_text('{"truncate_dim": 5}')
    encoder = read(tmp_path)
    encoder.save(tmp_path / "saved")
    for each in (encoder, read(tmp_path / "saved")):
        assert np.array_equal(each.encode(["abc", "z"]), whole[:, :5]) and each.encode([]).shape == (0, 5)
        np.testing.assert_allclose(np.linalg.norm(each.encode(["abc", "z"], normalize_embeddings=True), axis=1), 1, rtol=1e-6)
    (tmp_path / "config_sentence_transformers.json").write_text('{"truncate_dim": 50}')
    assert np.array_equal(read(tmp_path).encode(["abc", "z"]), whole)


def test_folders_with_dense_layers(tmp_path, model):
    pytest.importorskip("tokenizers")
    encoder = tc.models.SentenceEncoder.from_pretrained(sentence_folder(tmp_path / "source"))
    made = tc.models.SentenceEncoder(encoder.model, encoder.tokenizer, ("cls", "max"), normalize=True, dense=dense_layers())
    made.save(tmp_path / "saved")
    config = json.loads((tmp_path / "saved/3_Dense/config.json").read_text())
    names = {"in_features": 24, "out_features": 5, "bias": False}
    assert config == {**names, "activation_function": "torch.nn.modules.activation.Tanh"}
    read = tc.models.SentenceEncoder.from_pretrained
    texts = ["abc", "", "z" * 18, "a", "0123456789"]
    assert np.array_equal(read(tmp_path / "saved").encode(texts), made.encode(texts))
    assert np.array_equal(read(tmp_path / "saved", mmap=False).encode(texts), made.encode(texts))
    for change, message in (
        ({"activation_function": "os.system"}, "activation_function = 'os.system'; supported are torch"),
        ({"out_features": 6}, r"has shape \(5, 24\).*by config.json it has \(6, 24\)"),
        ({"in_features": None}, "by config.json"),
        ({"bias": True}, "bias = True"),
        ({"bias": 0}, "bias = 0"),
        ({"use_residual": True}, "use_residual = True; only False"),
        ({"module_input_name": "token_embeddings"}, "only 'sentence_embedding'"),
    ):
        (tmp_path / "saved/3_Dense/config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(tc.CheckpointError, match=message) as caught:
            read(tmp_path / "saved")
        assert "3_Dense" in str(caught.value)
    (tmp_path / "saved/3_Dense/config.json").write_text(json.dumps(config))
    tc.save({"linear.weight": np.zeros((5, 24), int)}, tmp_path / "saved/3_Dense/model.safetensors")
    with pytest.raises(tc.CheckpointError, match="values of int64"):
        read(tmp_path / "saved")


KIND = "sentence_transformers.models."
WRONG = {
    "modules": [
        ({"0": 1}, "list of modules"),
        (
            [{"type": KIND + "WordWeights", "path": ""}],
            r"module 'sentence_transformers\.models\.WordWeights'; supported are Transformer, Pooling, Dense, Normalize",
        ),
        ([{"type": KIND + "Transformer"}, {"type": KIND + "Dense", "path": "2_Dense"}], "in this order"),
        ([{"type": KIND + "Transformer"}, {"type": KIND + "Pooling"}, {"type": KIND + "Pooling"}], "in this order"),
        ([{"type": KIND + "Pooling", "path": ""}], "in this order"),
        ([{"type": KIND + "Transformer", "path": "../../etc"}], "expected a folder inside"),
        ([{"type": KIND + "Transformer", "path": "/etc"}], "expected a folder inside"),
        (
            [{"type": "custom.Transformer", "path": ""}],
            r"module 'custom\.Transformer'; supported are Transformer, .* of sentence_transformers",
        ),
    ],
    "1_Pooling/config": [
        ({"pooling_mode": "attention"}, "has the pooling"),
        ([], "not a mapping"),
        ({"pooling_mode": []}, "has the pooling"),
        ({"pooling_mode_cls_token": "true"}, "pooling_mode_cls_token = 'true'; expected true or false"),
        ({"include_prompt": "false"}, "include_prompt = 'false'; expected true or false"),
        (None, r"names '.*1_Pooling', but there is no '.*1_Pooling/config\.json'; was all of the model downloaded"),
    ],
    "sentence_bert_config": [
        ({"max_seq_length": 0}, "number of tokens"),
        ({"max_seq_length": "9"}, "number of tokens"),
        ({"do_lower_case": 1}, "true or false"),
        ({"query_length": 8}, "query_length = 8; only None is supported"),
        ({"tokenizer_args": {"truncation_side": "left"}}, "tokenizer_args with 'truncation_side', .*; tokenizer_config.json may say it"),
        ({"processor_kwargs": {"padding_side": "left", "do_lower_case": False}}, "processor_kwargs with 'do_lower_case'"),
        ({"config_kwargs": {"hidden_act": "relu"}}, "config_kwargs with 'hidden_act', .*; config.json may say it"),
        ({"model_args": [1]}, r"model_args with \[1\]"),
    ],
    "config_sentence_transformers": [
        ({"prompts": ["a"]}, "prompts"),
        ({"default_prompt_name": "x"}, "which its prompts lack"),
        ({"similarity_fn_name": "jaccard"}, "similarity_fn_name = 'jaccard'"),
        ({"truncate_dim": 0}, "truncate_dim = 0; expected null or a number of at least 1"),
    ],
    "tokenizer": [(None, "has no tokenizer.json"), ({}, "not a tokenizer that can be read"), ({"model": 3}, "not a tokenizer")],
    "config": [({"model_type": "t6"}, "expected one of")],
}


@pytest.mark.parametrize(("name", "value", "message"), [(name, *case) for name, cases in WRONG.items() for case in cases])
def test_wrong_folders(tmp_path, name, value, message):
    pytest.importorskip("tokenizers")
    with pytest.raises(tc.CheckpointError, match=message):
        tc.models.SentenceEncoder.from_pretrained(sentence_folder(tmp_path, **{name: value}))


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install 'transformer_c\[models\]'"):
        tc.models.SentenceEncoder.from_pretrained(sentence_folder(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "model_type": "nope"}))
    with pytest.raises(tc.CheckpointError, match="expected one of"):
        tc.models.SentenceEncoder.from_pretrained(tmp_path)


def test_lengths(tmp_path):
    pytest.importorskip("tokenizers")
    with pytest.raises(ValueError, match="max_length is 41; the model has embeddings for 40 positions"):
        tc.models.SentenceEncoder.from_pretrained(sentence_folder(tmp_path), max_length=41)
    with pytest.raises(ValueError, match="cut off at 2 tokens, but the tokenizer of .* adds 2"):
        tc.models.SentenceEncoder.from_pretrained(tmp_path, max_length=2)
