"""What somebody types first who has read the page on models only, and what the answer says."""

import copy
import pickle

import numpy as np
import pytest
import transformer_c as tc
from folders import CONFIG, sentence_folder
from words import LABELS, TEXTS, letters, tagged, write_tokenizer

IDS = np.array([[2, 7, 9, 3]])
READERS = {
    "load": tc.models.load,
    "encoder": tc.models.SentenceEncoder.from_pretrained,
    "cross": tc.models.CrossEncoder.from_pretrained,
    "classifier": tc.models.TextClassifier,
    "tagger": tc.models.TokenClassifier,
    "images": tc.models.ImageClassifier,
    "both": tc.models.ImageTextEncoder.from_pretrained,
}


@pytest.fixture(scope="module")
def made():
    """One of each class."""
    tc.manual_seed(0)
    found = {
        "encoder": tc.models.SentenceEncoder(tc.models.create(CONFIG), letters),
        "cross": tc.models.CrossEncoder(tc.models.create({**CONFIG, "num_labels": 1}, task="text-classification"), letters),
        "classifier": tc.models.TextClassifier(tc.models.create(CONFIG), tokenizer=letters, epochs=1).fit(TEXTS, LABELS),
        "tagger": tc.models.TokenClassifier(tc.models.create(CONFIG), tokenizer=tagged, epochs=1).fit([["a", "b"]], [["x", "y"]]),
    }
    return {**found, "model": found["encoder"].model}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_folders(read, tmp_path):
    for folder, kind in ((None, r"None \(NoneType\)"), (3, r"3 \(int\)"), ({"model_type": "bert"}, "a mapping")):
        with pytest.raises(TypeError, match=f"folder must be a path, .* not {kind}"):
            read(folder)
    with pytest.raises(FileNotFoundError, match=r"`hf download org/name --local-dir name`"):
        read("org/name")
    with pytest.raises(FileNotFoundError, match=r"os\.path\.expanduser"):
        read("~/name")
    for folder in ("bert-base", "./a/b", f"{tmp_path}/a", "a/b/c"):
        with pytest.raises(FileNotFoundError, match="never downloaded$"):
            read(folder)


def test_what_stands_in_the_place_of_a_file(tmp_path):
    """Links whose files were left behind, and what Git gives where Git LFS is not installed; a link to nothing was no file."""
    pytest.importorskip("tokenizers")
    folder = sentence_folder(tmp_path / "model")
    names = ["config", "tokenizer", "modules", "1_Pooling/config", "config_sentence_transformers", "sentence_bert_config"]
    for name in ("model.safetensors", *(f"{name}.json" for name in names)):
        path = folder / name
        data = path.read_bytes()
        path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n")
        with pytest.raises(tc.CheckpointError, match=rf"{name}.*pointer of Git LFS .*git lfs pull"):
            tc.models.SentenceEncoder.from_pretrained(folder)
        path.unlink()
        path.symlink_to("../blobs/4d7a21")
        with pytest.raises(tc.CheckpointError, match=rf"{name}' is a link to '../blobs/4d7a21', where there is no file; `cp -rL`"):
            tc.models.SentenceEncoder.from_pretrained(folder)
        path.unlink()
        path.write_bytes(data)


@pytest.mark.parametrize("inner", ["model", "snapshots/0123"])
def test_a_folder_around_the_model(inner, tmp_path):
    """As of a package, or of a cache."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other/config.json").write_text("{}")
    (tmp_path / inner).parent.mkdir(exist_ok=True)
    tc.models.save(tc.models.create(CONFIG), tmp_path / inner)
    with pytest.raises(tc.CheckpointError, match=f"^'{tmp_path}' has no config.json; there is a model in '{tmp_path}/{inner}'$"):
        tc.models.load(tmp_path)


@pytest.mark.parametrize("dtype", ["fp16", "int8", "int64", "cpu", "bool", np.int32, 16, "float128", object()])
def test_dtypes(dtype, tmp_path):
    tc.models.save(tc.models.create(CONFIG), tmp_path)
    with pytest.raises(ValueError, match="dtype must be float32, float64, float16 or bfloat16, got"):
        tc.models.load(tmp_path, dtype=dtype)


def test_names_of_dtypes(tmp_path):
    tc.models.save(tc.models.create(CONFIG), tmp_path)
    words = {
        "half": "float16",
        "float": "float32",
        "double": "float64",
        np.float16: "float16",
        tc.float64: "float64",
    }
    for dtype, name in words.items():
        assert tc.models.load(tmp_path, dtype=dtype).words.weight.dtype.name == name
    assert "bfloat16" in repr(tc.models.load(tmp_path, dtype="bfloat16").words.weight)  # without the package ml_dtypes, too
    torch = pytest.importorskip("torch")
    assert tc.models.load(tmp_path, dtype=torch.float16).words.weight.dtype.name == "float16"


class Frame:
    columns = ("title", "body")

    def to_numpy(self):
        return np.array([["a", "b"]])

    def __iter__(self):
        return iter(self.columns)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (b"abc", "not bytes; decode"),
        ({"a", "b"}, "not set; it has no order"),
        (frozenset("ab"), "not frozenset; it has no order"),
        (np.array("abc"), "not an array of no dimensions"),
        (None, "not None"),
        (3, "not int"),
        ({"a": 1}, "not dict"),
        (Frame(), "one of its columns: 'title', 'body'"),
        (["a", None], "number 1 is None"),
        (["a", 2.5], "number 1 is 2.5"),
        ([b"a"], r"number 0 is b'a' \(bytes\)"),
    ],
)
def test_texts(made, texts, message):
    for call in (made["encoder"].encode, made["classifier"].predict, made["tagger"].predict, made["cross"].predict):
        with pytest.raises(TypeError, match=message if "number" not in message else "number"):
            call(texts)
    with pytest.raises(TypeError, match=message):
        made["encoder"].encode(texts)


def test_what_has_an_order_is_taken(made):
    expected = made["encoder"].encode(["a", "b"])
    for texts in (("a", "b"), np.array(["a", "b"]), iter(["a", "b"]), {"a": 0, "b": 1}.keys(), (text for text in "ab")):
        assert np.array_equal(made["encoder"].encode(texts), expected)
    long = "x" * 38
    assert np.isfinite(made["encoder"].encode([long, ""])).all() and made["encoder"].encode([]).shape == (0, 16)


@pytest.mark.parametrize(
    ("name", "call", "message"),
    [
        ("classifier", lambda c: c.predict("abc"), "not str; put a single one into a list"),
        ("classifier", lambda c: c.fit(TEXTS, set(TEXTS)), "y must be a sequence of labels, not set"),
        ("classifier", lambda c: c.score(TEXTS, list("abcabca")), r"label number 0 is 'a' \(str\), but the classes are \[0, 1, 2\]"),
        ("classifier", lambda c: c.score([], []), "no texts to score"),
        ("tagger", lambda c: c.score([["a"]], [[1]]), r"label number 0 is 1 \(int\), but the classes are \['x', 'y'\]"),
        ("tagger", lambda c: c.score([[]], [[]]), "no words to score"),
        ("tagger", lambda c: c.predict([{"a", "b"}]), "text number 0 must be a sequence of words, not set"),
        ("tagger", lambda c: c.fit([["a"]], ["x"]), "labels number 0 must be a sequence of labels, not str"),
        ("classifier", lambda c: c.fit(TEXTS, LABELS, validation_data=(TEXTS, LABELS)), r"validation_data': validation=\(X, y\)"),
        ("classifier", lambda c: c.fit(TEXTS, LABELS, epochs=2), "an argument of the constructor"),
        ("model", lambda m: tc.models.TextClassifier(m, tokenizer=letters, lr=1e-5), "'lr': learning_rate="),
        ("model", lambda m: tc.models.TextClassifier(m, tokenizer=letters, device="cuda"), "moves the model"),
        ("encoder", lambda e: e.similarity("a", "b"), r"takes vectors, as encode gives them, not 'a'; for texts: similarity\(encode"),
        ("encoder", lambda e: e.similarity(np.ones((1, 16)), None), "takes vectors, as encode gives them, not None"),
        ("encoder", lambda e: e.save(None), "folder must be a path"),
        ("encoder", lambda e: e.fit([("a", "\ud800")]), "pair number 0 has .* no character"),
        ("cross", lambda c: c.predict("a", "b"), r"list\(zip\(queries, documents\)\)"),
        ("cross", lambda c: c.predict(["a", "b"], ["c", "d"]), r"list\(zip\(queries, documents\)\)"),
        ("model", lambda m: m("a text"), "ids must be numbers of tokens; texts are read by SentenceEncoder, .* and TextGenerator"),
        ("model", lambda m: m(["a", "text"]), "ids must be numbers of tokens"),
        ("model", lambda m: m({"input_ids": IDS}), r"ids are a dict, as a tokenizer gives it; model\(\*\*tokens\) takes"),
        ("model", lambda m: m([[1, 2], [3]]), "lists of different lengths make no array: pad them at their ends"),
        ("classifier", lambda c: tc.models.save(c, "x"), "not TextClassifier; it has a save of its own"),
        ("model", lambda m: tc.models.create("folder"), r"tc\.models\.load reads a folder"),
        ("model", lambda m: tc.models.create(CONFIG, dtype="float16"), r"has no option 'dtype': tc\.models\.create\(config\)\.to\(dtype\)"),
        ("model", lambda m: tc.models.TextClassifier(m, tokenizer=letters, max_length=8), "given as tokenizer= cuts texts off itself"),
        ("model", lambda m: tc.models.TextClassifier(tc.nn.Linear(2, 2), tokenizer=letters), "expected a model of .*, not Linear"),
        ("model", lambda m: tc.models.SentenceEncoder(None, letters), "made of a model, as tc.models.load gives, not NoneType"),
        (
            "model",
            lambda m: tc.models.CrossEncoder(m, letters),
            r'as tc.models.load\(folder, task="text-classification"\) gives, not Bert',
        ),
        ("model", lambda m: tc.models.SentenceEncoder(m, letters, normalize="no"), r"normalize must be a bool, got 'no' \(str\)"),
        ("model", lambda m: tc.models.SentenceEncoder(m, letters, prompts=["find:"]), "prompts must be a mapping of names to texts, not"),
        ("model", lambda m: tc.models.SentenceEncoder(m, letters, prompts={"query": 3}), "the prompt 'query' must be a str, not 3"),
        (
            "model",
            lambda m: tc.models.SentenceEncoder(m, letters, default_prompt="query"),
            "default_prompt is 'query', and prompts has no names",
        ),
        (
            "model",
            lambda m: tc.models.CrossEncoder(tc.models.create(CONFIG, task="token-classification"), letters),
            r'as tc.models.load\(folder, task="text-classification"\) gives, not TokenClassification',
        ),
        ("classifier", lambda c: c.fit(["a", "b"], [True, False]), r"number 0 is True \(bool\); int\(label\) makes an int of it"),
        (
            "encoder",
            lambda e: e.similarity([[1.0, 2.0], [3.0]], np.ones((1, 2))),
            "vectors of one size; these lists have different lengths",
        ),
        ("encoder", lambda e: e.fit([("a", "b")], lr=1e-5), "'lr': learning_rate="),
        ("encoder", lambda e: e.fit([("a", "b")], labels=[1]), "they have no labels"),
        ("encoder", lambda e: e.fit([("a", "b")]), "a batch of one pair has no wrong answers"),
        ("encoder", lambda e: e.fit([("a", "b"), ("c", "d")], batch_size=1), "give more pairs, a larger batch_size, or negatives"),
        ("model", lambda m: m(np.ones((1, 3))), r"got float\d+ of shape \(1, 3\); convert them with ids\.astype\(int\)"),
        ("model", lambda m: m(np.ones(3, int)), r"of shape \(3,\); one text is ids\[None\]"),
        (
            "classifier",
            lambda c: c.fit(TEXTS, LABELS, sample_weight=[1]),
            r"TextClassifier\.fit\(\) has no option 'sample_weight': texts of rare",
        ),
        ("model", lambda m: tc.models.TextClassifier(m, tokenizer=letters, early_stopping=True), "keeps the weights of the best epoch"),
        ("cross", lambda c: c.predict([("a", "b")], activation_fct=np.tanh), "CrossEncoder.predict.. has no option .* activation= of the"),
    ],
)
def test_other_mistakes(made, name, call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(made[name])


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([], "gives 0 results for 1 texts"),  # the vector of the text was whatever its memory contained before
        ([([2], [0])] * 2, "gives 2 results for 1 texts"),
        (None, "gives a NoneType for 1 texts"),
        ([[2, 3]], r"gives \[2, 3\] for text number 0; expected \(ids, types\)"),
        ([[2]], r"gives \[2\] for"),
        ([([2, 3], [0])], "two sequences of ints of one length"),
        ([([2.5], [0])], "two sequences of ints"),  # which had been cut off
        ([(["a"], [0])], "two sequences of ints"),
        ([([2**70], [0])], "two sequences of ints"),
        ([([[2]], [[0]])], "two sequences of ints"),
        ([([[2], [3, 4]], [0])], "two sequences of ints"),
        ([([], [])], "makes no tokens of text number 0"),
    ],
)
def test_tokenizers_that_give_something_else(made, result, message):
    encoder = tc.models.SentenceEncoder(made["model"], lambda texts: result)
    for texts in ("a", ["a"]):
        with pytest.raises(ValueError, match=message):
            encoder.encode(texts)


def test_tokenizers_may_give_lists(made):
    expected = tc.models.SentenceEncoder(made["model"], letters).encode(["abc", "d"])
    for form in (lambda i, k: (i.tolist(), k.tolist()), lambda i, k: np.stack([i, k]), lambda i, k: [tc.tensor(i), tc.tensor(k)]):
        encoder = tc.models.SentenceEncoder(made["model"], lambda t, f=form: [f(i, k) for i, k in letters(t)])
        assert np.array_equal(encoder.encode(["abc", "d"]), expected)


def test_states_of_transformers(made):
    state = tc.convert.to_hf(made["model"])
    for wrong, kind in ((None, "NoneType"), ([], "list"), ({1: np.ones(2)}, "a mapping with other keys")):
        with pytest.raises(TypeError, match=rf"state must be a mapping of names to arrays, as model\.state_dict\(\) gives, not {kind}"):
            tc.convert.from_hf(wrong, CONFIG)
    torch = pytest.importorskip("torch")
    halves = {name: torch.tensor(x.numpy()).bfloat16().requires_grad_() for name, x in state.items()}
    model = tc.convert.from_hf(halves, CONFIG)
    assert model.words.weight._dtype_name == "bfloat16"
    wanted = halves["embeddings.word_embeddings.weight"].detach().float().numpy()
    assert np.array_equal(model.words.weight.detach().float().numpy(), wanted)
    assert tc.convert.from_hf(halves, CONFIG, dtype="float32").words.weight.dtype == np.float32


def test_lists_of_ids(made):
    assert np.array_equal(made["model"](IDS.tolist()), made["model"](IDS))


@pytest.mark.parametrize(
    ("name", "attribute", "advice"),
    [
        ("encoder", "max_seq_length", "; use encoder.tokenizer.max_length"),
        ("encoder", "to", "; use encoder.model.to(device)"),
        ("encoder", "get_sentence_embedding_dimension", "; use encoder.encode([]).shape[1]"),
        ("encoder", "embed_query", "; use encoder.encode(texts)"),
        ("encoder", "encodes", "; did you mean 'encode'?"),
        ("encoder", "xyz", ""),
        ("cross", "fit", '; use tc.models.TextClassifier(folder, problem_type="regression").fit(pairs, scores)'),
        ("classifier", "classes", "; did you mean 'classes_'?"),
        ("classifier", "save_pretrained", "; use save(folder)"),
        ("tagger", "predict_log_proba", "; use np.log(classifier.predict_proba(X))"),
    ],
)
def test_attributes(made, name, attribute, advice):
    with pytest.raises(AttributeError) as caught:
        getattr(made[name], attribute)
    assert str(caught.value) == f"{type(made[name]).__name__!r} object has no attribute {attribute!r}{advice}"
    assert not hasattr(made[name], attribute)


def test_copies(made):
    """Which ask for attributes that there are not."""
    for name in ("encoder", "cross", "classifier", "tagger"):
        for made_again in (copy.copy(made[name]), copy.deepcopy(made[name]), pickle.loads(pickle.dumps(made[name]))):
            assert repr(made_again) == repr(made[name])


def test_normalize_is_a_bool(tmp_path):
    pytest.importorskip("tokenizers")
    tc.models.save(tc.models.create(CONFIG), tmp_path)
    write_tokenizer(tmp_path)
    with pytest.raises(TypeError, match=r"normalize must be True, False or None, got 'no' \(str\)"):
        tc.models.SentenceEncoder.from_pretrained(tmp_path, normalize="no")


def test_one_pair_with_a_negative_is_enough(made):
    encoder = copy.deepcopy(made["encoder"])
    assert encoder.fit([("a", "b", "c")], random_state=0).history[-1]["loss"] > 0


@pytest.mark.parametrize(
    ("name", "attribute", "advice"),
    [
        ("encoder", "similarity_pairwise", r"\(a \* b\)\.sum\(axis=1\)"),
        ("encoder", "parameters", "encoder.model, which has them"),
        ("encoder", "start_multi_process_pool", r"encoder\.encode\(texts\)"),
        ("cross", "save", "the folder that it was read from"),
    ],
)
def test_attributes_of_others(made, name, attribute, advice):
    with pytest.raises(AttributeError, match=f"use {advice}"):
        getattr(made[name], attribute)
