"""TextClassifier and TokenClassifier: against PyTorch's numbers of a fine-tuning, against a loop by hand, in any batch."""

import enum
import json
import warnings

import numpy as np
import pytest
import transformer_c as tc
import transformer_c.nn.functional as F
from folders import CONFIG, sizes
from golden import load
from transformer_c.models.folder import read_weights
from transformer_c.models.tokenizing import Tokenizer
from words import LABELS, TAGS, TEXTS, letters, padded, tagged, write_tokenizer

CASES = load("classifiers")
KINDS = {"text": tc.models.TextClassifier, "token": tc.models.TokenClassifier}
TOKENIZERS = {"text": letters, "token": tagged}
INPUTS = {"text": (TEXTS, LABELS), "token": ([list(text) for text in TEXTS], TAGS)}
TASKS = {kind: f"{kind}-classification" for kind in KINDS}


def pretrained(task=None, labels=None, **values):
    tc.manual_seed(1)
    names = {} if labels is None else {"id2label": {str(i): name for i, name in enumerate(labels)}}
    return tc.models.create({**CONFIG, "initializer_range": 0.3, **names, **values}, task=task)


def weights(classifier):
    return {name: value.numpy().tobytes() for name, value in classifier.model_.state_dict().items()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_of_pytorch(kind):
    """Losses and scores of a fine-tuning in transformers, float64: AdamW, warm-up, decay of matrices only, clipping."""
    options, arrays = CASES[kind]
    state = {key[6:]: value for key, value in arrays.items() if key.startswith("state.")}
    names = {"id2label": {"0": "0", "1": "1", "2": "2"}, "labels_are_integers": True}
    model = tc.convert.from_hf(state, {**options["config"], **names}, task=TASKS[kind], dtype="float64")
    classifier = KINDS[kind](
        model, tokenizer=TOKENIZERS[kind], dtype="float64", learning_rate=1e-2, weight_decay=0.1, warmup=2 / 8, epochs=8, batch_size=7
    )
    classifier.fit(*INPUTS[kind])
    assert classifier.classes_.tolist() == [0, 1, 2]
    np.testing.assert_allclose([entry["loss"] for entry in classifier.history_], arrays["losses"], rtol=1e-9)
    ids, mask = padded(TEXTS)
    found = classifier.model_(ids, mask)
    used = mask != 0 if kind == "token" else ...
    np.testing.assert_allclose(found[used], arrays["scores"][used], rtol=0, atol=1e-8)


def test_a_loop_by_hand():
    """The same bits: groups, schedule, batches of similar lengths in random order, dropout."""
    texts, labels = TEXTS * 3, np.array(LABELS * 3)
    source = pretrained(TASKS["text"], "abc")
    classifier = tc.models.TextClassifier(source, tokenizer=letters, epochs=2, batch_size=4, learning_rate=1e-3, random_state=5)
    classifier.fit(texts, [("a", "b", "c")[label] for label in labels])

    model = tc.convert.from_hf({k: v.clone() for k, v in tc.convert.to_hf(source).items()}, source.config, task=TASKS["text"])
    tc.manual_seed(5)
    named = list(model.named_parameters())
    matrices, others = [p for _, p in named if p.ndim > 1], [p for _, p in named if p.ndim == 1]
    optimizer = tc.optim.AdamW([{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=1e-3)
    schedule = tc.optim.LambdaLR(optimizer, lambda step: step / 2 if step < 2 else (12 - step) / 10)
    tokens = [ids for ids, _ in letters(texts)]
    model.train()
    for _ in range(2):
        shuffled = sorted(tc.randperm(21).tolist(), key=lambda i: -len(tokens[i]))
        batches = [shuffled[begin : begin + 4] for begin in range(0, 21, 4)]
        for number in tc.randperm(6).tolist():
            rows = batches[number]
            ids = np.zeros((len(rows), max(len(tokens[i]) for i in rows)), np.int64)
            for row, i in zip(ids, rows, strict=True):
                row[: len(tokens[i])] = tokens[i]
            loss = F.cross_entropy(model(tc.tensor(ids), lengths=tc.tensor([len(tokens[i]) for i in rows])), tc.tensor(labels[rows]))
            optimizer.zero_grad()
            loss.backward()
            tc.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    assert weights(classifier) == {name: value.numpy().tobytes() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("kind", KINDS)
def test_seeds(kind):
    """The same seed gives the same bits whatever was drawn or fitted before; the default generator goes on as if nothing had been drawn."""
    X, y = INPUTS[kind]
    options = {"tokenizer": TOKENIZERS[kind], "epochs": 1, "batch_size": 2, "learning_rate": 1e-3}
    model = pretrained()
    first = KINDS[kind](model, random_state=3, **options).fit(X, y)
    before = weights(first)
    tc.manual_seed(8)
    expected = tc.randn(3).tolist()
    tc.manual_seed(8)
    assert weights(first.fit(X, y)) == before and tc.randn(3).tolist() == expected
    assert weights(KINDS[kind](model, random_state=4, **options).fit(X, y)) != before
    drawn = []
    for _ in range(2):
        tc.manual_seed(2)
        drawn.append(weights(KINDS[kind](model, **options).fit(X, y)))
    assert drawn[0] == drawn[1] != before


@pytest.mark.parametrize(("architecture", "kind"), [("bert", "text"), ("mpnet", "text"), ("distilbert", "token"), ("roberta", "token")])
def test_the_same_bits_in_any_batch(architecture, kind, isa):
    values = sizes(width=48, heads=3, hidden=24, layers=2, positions=160)
    model = pretrained(TASKS[kind], "abc", **values, model_type=architecture)
    classifier = KINDS[kind](model, tokenizer=TOKENIZERS[kind])
    texts = [c * n for n, c in ((1, "a"), (2, "b"), (5, "c"), (15, "d"), (16, "e"), (31, "f"), (65, "g"), (130, "h"))] * 2
    texts = texts if kind == "text" else [list(text) for text in texts]
    alone = [classifier.predict_proba([text])[0] for text in texts]
    for size in (16, 3):
        assert all(np.array_equal(a, b) for a, b in zip(classifier.predict_proba(texts, batch_size=size), alone, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_and_keeps_the_best_epoch(kind):
    X, y = INPUTS[kind]
    names = ["ham", "eggs", "spam"]
    y = [names[label] for label in y] if kind == "text" else [[names[label] for label in some] for some in y]
    classifier = KINDS[kind](pretrained(), tokenizer=TOKENIZERS[kind], epochs=30, batch_size=4, learning_rate=1e-2, random_state=0)
    classifier.fit(X, y, validation=(X, y))
    assert classifier.classes_.tolist() == sorted(names) and classifier.score(X, y) > 0.9
    best = min(classifier.history_, key=lambda entry: entry["val_loss"])
    odds = classifier.predict_proba(X)
    numbers = [[sorted(names).index(label) for label in ([some] if kind == "text" else some)] for some in y]
    losses = [-np.log(p) for each, some in zip(odds, numbers, strict=True) for p in np.atleast_2d(each)[np.arange(len(some)), some]]
    assert np.mean(losses) == pytest.approx(best["val_loss"], abs=1e-6) and best["val_accuracy"] == pytest.approx(classifier.score(X, y))
    assert set(classifier.history_[0]) == {"loss", "val_loss", "val_accuracy"}
    assert not classifier.model_.training and all(p.grad is None for p in classifier.model_.parameters())


def test_a_last_epoch_that_is_worse():
    X, y = INPUTS["text"]
    classifier = tc.models.TextClassifier(pretrained(), tokenizer=letters, epochs=6, batch_size=4, learning_rate=1e-2, random_state=0)
    wrong = np.roll(y, 1)
    classifier.fit(X, y, validation=(X, wrong))
    losses = [entry["val_loss"] for entry in classifier.history_]
    odds = classifier.predict_proba(X)[np.arange(len(X)), wrong]
    assert -np.log(odds).mean() == pytest.approx(min(losses), abs=1e-6) and losses[-1] > min(losses) + 0.1


@pytest.mark.parametrize("task", [None, "text-classification"])
def test_weights_are_read_once(tmp_path, monkeypatch, task):
    """When a classifier is made, and once more for each fit."""
    tc.models.save(pretrained(task, ["a", "b"]), tmp_path)
    calls = []
    monkeypatch.setattr(tc.models.pretrained, "read_weights", lambda *given: calls.append(given) or read_weights(*given))
    classifier = tc.models.TextClassifier(tmp_path, tokenizer=letters, epochs=1, mmap=False, random_state=0)
    assert calls == [(str(tmp_path), False)]
    first = weights(classifier.fit(["a", "b"], ["a", "b"]))
    assert len(calls) == 2 and weights(classifier.fit(["a", "b"], ["a", "b"])) == first and len(calls) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_folders(kind, tmp_path):
    """A fit of a plain encoder's folder, saved, loaded; labels keep their type; transformers' names."""
    pytest.importorskip("tokenizers")
    tc.models.save(pretrained(), tmp_path)
    write_tokenizer(tmp_path)
    X, y = INPUTS[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier = KINDS[kind].from_pretrained(tmp_path, epochs=1, max_length=20, random_state=0)
    assert repr(classifier) == f"{KINDS[kind].__name__}(bert, to be fitted, max_length=20)"
    with pytest.raises(RuntimeError, match="call fit first"):
        classifier.predict(X)
    classifier.fit(X, y)
    own = KINDS[kind](pretrained(), tokenizer=TOKENIZERS[kind], epochs=1, random_state=0).fit(X, y)
    assert weights(own) == weights(classifier)
    classifier.save(tmp_path / "saved")
    config = json.loads((tmp_path / "saved/config.json").read_text())
    assert config["id2label"] == {"0": "0", "1": "1", "2": "2"} and config["label2id"] == {"0": 0, "1": 1, "2": 2}
    loaded = KINDS[kind](tmp_path / "saved")
    assert repr(loaded) == f"{KINDS[kind].__name__}(bert, 3 classes, max_length=20)"
    assert all(np.array_equal(a, b) for a, b in zip(loaded.predict_proba(X), classifier.predict_proba(X), strict=True))
    assert list(loaded.predict(X)) == list(classifier.predict(X))
    assert loaded.classes_.tolist() == [0, 1, 2]
    other = KINDS["token" if kind == "text" else "text"](tmp_path / "saved")  # the head there is for another task
    assert other.classes_ is None


def test_heads_and_labels():
    make, source = tc.models.TextClassifier, pretrained(TASKS["text"], ["no", "yes", "?"])
    options = {"tokenizer": letters, "epochs": 1, "batch_size": 2, "random_state": 0, "learning_rate": 0.0}
    head = source.out.weight.numpy()
    kept = make(source, **options).fit(["abc", "z"], ["yes", "no"])
    assert kept.classes_.tolist() == ["no", "yes", "?"] and np.array_equal(kept.model_.out.weight.numpy(), head)
    new = make(source, **options).fit(["abc", "z"], ["yes", "maybe"])
    assert new.classes_.tolist() == ["maybe", "yes"] and new.model_.out.weight.shape == (2, 16)
    assert np.array_equal(new.model_.dense.weight.numpy(), source.dense.weight.numpy())
    assert make(source, 5, **options).fit(["abc", "z"], [1, 3]).classes_.tolist() == [0, 1, 2, 3, 4]
    assert make(source, 5, **options).classes_ is None
    assert np.array_equal(source.out.weight.numpy(), head) and source.labels == ["no", "yes", "?"]
    half = make(source, dtype="float16", **options).fit(["abc", "z"], ["yes", "no"])
    assert half.model_.out.weight.dtype == np.float32
    pairs = make(source, **options).fit([("abc", "z"), ["z", "abc"]], ["yes", "no"])
    assert pairs.predict_proba([("a", "b"), "ab"]).shape == (2, 3)


def test_half_a_head(tmp_path):
    """A last layer without the one before it is no head: nothing is predicted with random weights."""
    pytest.importorskip("tokenizers")
    model = pretrained(TASKS["text"], "ab")
    state = {name: value.numpy() for name, value in tc.convert.to_hf(model).items() if "pooler" not in name}
    tc.models.save(model, tmp_path)
    tc.save(state, tmp_path / "model.safetensors")
    write_tokenizer(tmp_path)
    classifier = tc.models.TextClassifier(tmp_path)
    with pytest.raises(RuntimeError, match="call fit first"):
        classifier.predict(["a"])
    assert classifier.fit(["a", "b"], ["a", "b"]).predict(["a"]).shape == (1,)


def test_an_interrupted_fit_changes_nothing():
    classifier = tc.models.TextClassifier(pretrained(), tokenizer=letters, epochs=1)
    encoder = tc.models.SentenceEncoder(pretrained(), letters)
    for one, arguments in ((classifier, (TEXTS, LABELS)), (encoder, ([("a", "b"), ("c", "d")],))):
        kind = type(one).__name__
        before, calls = dict(vars(one)), []

        def stop(*_, calls=calls):
            calls.append(1)
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tc.optim.AdamW, "step", stop)
            with pytest.raises(KeyboardInterrupt):
                one.fit(*arguments)
        assert vars(one) == before and len(calls) == 1, kind
    assert not encoder.model.training and all(p.grad is None for p in encoder.model.parameters())


def test_long_texts_of_words(tmp_path):
    """Words that do not fit are read in a second part."""
    pytest.importorskip("tokenizers")
    tc.models.save(pretrained(TASKS["token"], "ab"), tmp_path)
    write_tokenizer(tmp_path, length=12)
    classifier = tc.models.TokenClassifier(tmp_path)
    words = ["abc", "de", "fghij", "k", "lm", "nopqrstuvwxyz", "a"]
    found = classifier.predict_proba([words])[0]
    parts = [["abc", "de", "fghij"], ["k", "lm", "nopqrstuvwxyz"], ["a"]]  # 10 letters each; the long word's first token has its label
    assert np.array_equal(found, np.concatenate(classifier.predict_proba(parts)))
    words, read = ["ab"] * 1000 + [""] * 99 + ["cd", ""], []
    tokenize = classifier.tokenizer_.words
    classifier.tokenizer_.words = lambda texts: read.extend(map(len, texts)) or tokenize(texts)
    found = classifier.predict_proba([words])[0]
    assert sum(read) < 10 * len(words)  # 110,000 where all that is left is read for each part
    expected = classifier.predict_proba([words[:5], ["cd"]])
    assert np.array_equal(found[:1000], np.tile(expected[0], (200, 1))) and np.array_equal(found[1099:1100], expected[1])
    assert np.isnan(found[1000:1099]).all() and np.isnan(found[1100:]).all()


WRONG = [
    ({}, "abc", ["a"], TypeError, "texts must be a sequence"),
    ({}, ["a", 3], ["a", "b"], TypeError, "texts must be str or pairs of str, but number 1 is 3"),
    ({}, ["a", "b"], ["a"], ValueError, "2 texts but 1 labels"),
    ({}, ["a", "b"], ["a", "a"], ValueError, "labels are all 'a'"),
    ({}, ["a", "b"], ["a", None], TypeError, "all str or all int, but number 1 is None"),
    ({}, ["a", "b"], ["a", 1.5], TypeError, "all str or all int, but number 1 is 1.5"),
    ({}, ["a", "b"], ["a", "b\0"], ValueError, "label number 1 is 'b\\\\x00'; NumPy's arrays of str drop NUL"),
    ({}, ["a", "b"], ["a", "b\ud800"], ValueError, "label number 1 has '\\\\ud800', half of a pair of surrogates"),
    ({}, ["a", "b"], [2**63, -1], ValueError, "label number 0 is 9223372036854775808, which int64 does not have"),
    ({}, [], [], ValueError, "no labels"),
    ({"num_labels": 3}, ["a", "b"], ["a", "b"], ValueError, "num_labels is 3"),
    ({"epochs": 0, "learning_rate": -1}, ["a", "b"], ["a", "b"], ValueError, "2 arguments are wrong"),
    ({"warmup": 2}, ["a", "b"], ["a", "b"], ValueError, "a share of the steps"),
    ({"random_state": "x"}, ["a", "b"], ["a", "b"], TypeError, "random_state"),
    ({"learning_rate": 1e30, "max_norm": 0, "warmup": 0}, ["a", "b"], ["a", "b"], ValueError, "diverged"),
]


@pytest.mark.parametrize(("options", "X", "y", "error", "message"), WRONG)
def test_what_a_fit_refuses(options, X, y, error, message):
    """And changes nothing."""
    classifier = tc.models.TextClassifier(pretrained(), tokenizer=letters, **options)
    before = dict(vars(classifier))
    with pytest.raises(error, match=message):
        classifier.fit(X, y)
    assert vars(classifier) == before


def test_other_mistakes(tmp_path):
    make = tc.models.TextClassifier
    with pytest.raises(TypeError, match="needs tokenizer="):
        make(pretrained())
    for values, message in (
        ({"problem_type": "ranking"}, "problem_type = 'ranking'"),
        ({"problem_type": "single_label_classification", "id2label": {"0": "x"}}, "'regression' with one label"),
    ):
        with pytest.raises(tc.CheckpointError, match=message):
            make(pretrained(TASKS["text"], **values), tokenizer=letters)
    vit = {"model_type": "vit", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "image_size": 8}
    with pytest.raises(ValueError, match="for vit there are 'image-classification'"):
        make(tc.models.create({**vit, "patch_size": 4}), tokenizer=letters)
    with pytest.raises(ValueError, match="label 'c' of the validation"):
        make(pretrained(), tokenizer=letters).fit(["a", "b"], ["a", "b"], validation=(["a"], ["c"]))
    with pytest.raises(ValueError, match="validation has no texts"):
        make(pretrained(), tokenizer=letters).fit(["a", "b"], ["a", "b"], validation=([], []))
    with pytest.raises(ValueError, match="no labels to train with"):
        make(pretrained(TASKS["text"], ["no", "yes"]), tokenizer=letters).fit([], [])
    with pytest.raises(ValueError, match="num_labels must be at most 65536, got 1000000000"):
        make(pretrained(), 10**9, tokenizer=letters)
    for more in ([], [[0]], [[0, 2]], [[0.0, 1.0]], [[0, 1], [0, 1]]):
        token = tc.models.TokenClassifier(pretrained(), tokenizer=lambda texts, more=more: [([4, 5], [0, 0], *more)] * len(texts))
        with pytest.raises(ValueError, match=r"for text number 0; expected \(ids, types, words\): .* 0 to 1, or -1"):
            token.fit([["a", "b"]], [["x", "y"]])
    token = tc.models.TokenClassifier(pretrained(), tokenizer=tagged)
    for X, y, message in (
        (["a b"], [["x"]], "expected a list of words"),
        ([[]], [[]], "no labels to train with"),
        ([["a", 3]], [["x", "y"]], "number 1 of text number 0 is 3"),
        ([["a", "b"]], [["x"]], "has 2 words but 1 labels"),
        ([["a"]], [], "1 texts but 0 lists"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            token.fit(X, y)


def test_words_with_halves_of_surrogates():
    classifier = tc.models.TokenClassifier(pretrained(TASKS["token"], ["a", "b"]), tokenizer=tagged)
    with pytest.raises(ValueError, match=r"^word number 1 of text number 1 has .*ud800.* no character"):
        classifier.predict([["a"], ["b", "c\ud800"]])


def test_scikit_learn():
    base = pytest.importorskip("sklearn.base")
    selection = pytest.importorskip("sklearn.model_selection")
    classifier = tc.models.TextClassifier(pretrained(), tokenizer=letters, epochs=1, random_state=0)
    copy = base.clone(classifier).set_params(epochs=2, num_labels=3)
    assert (copy.epochs, copy.num_labels, copy.random_state) == (2, 3, 0) and classifier.epochs == 1
    found = selection.cross_val_score(classifier, np.array(["a", "b"] * 4), np.array([0, 1] * 4), cv=2)
    assert found.shape == (2,) and base.is_classifier(classifier)
    with pytest.raises(ValueError, match="no parameter 'lr'"):
        classifier.set_params(lr=1)


def test_a_folder_stays_where_it_is_when_the_process_goes_elsewhere(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    (tmp_path / "elsewhere").mkdir()
    tc.models.save(pretrained(), tmp_path / "model")
    write_tokenizer(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    classifier = tc.models.TextClassifier("model", epochs=1, random_state=0)
    expected = classifier.fit(TEXTS, LABELS).predict_proba(TEXTS)
    monkeypatch.chdir("elsewhere")
    assert np.array_equal(classifier.fit(TEXTS, LABELS).predict_proba(TEXTS), expected)
    (tmp_path / "model").rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError, match=f"there is no folder '{tmp_path}/model'"):
        classifier.fit(TEXTS, LABELS)
    assert np.array_equal(classifier.predict_proba(TEXTS), expected)


def test_scikit_learn_splits_texts_with_labels_of_words():
    selection = pytest.importorskip("sklearn.model_selection")
    classifier = tc.models.TokenClassifier(pretrained(), tokenizer=tagged, epochs=1, random_state=0)
    texts, labels = [["a", "b"], ["c"], ["d", "e", "f"]] * 2, [["x", "y"], ["x"], ["y", "y", "x"]] * 2
    assert selection.cross_val_score(classifier, texts, labels, cv=2).shape == (2,)


def test_words_are_those_of_the_tokenizer_file(tmp_path):
    pytest.importorskip("tokenizers")
    write_tokenizer(tmp_path)
    tokenizer = Tokenizer(str(tmp_path), 40, True)
    for own, found in zip(letters([*TEXTS, ("ab", "c")]), tokenizer([*TEXTS, ("ab", "c")]), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(own, found, strict=True))
    for own, found in zip(tagged([["ab", "c"]]), tokenizer.words([["ab", "c"]]), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(own, found, strict=True))


def test_a_module_whose_folder_has_another_head(tmp_path):
    """The module's own task counts, not the one that its config.json names."""
    tc.models.save(tc.models.create(CONFIG, task="fill-mask"), tmp_path)
    with pytest.warns(RuntimeWarning, match="the head has new ones"):
        model = tc.models.load(tmp_path, task="text-classification")
    assert model.config["architectures"] == ["BertForMaskedLM"]
    classifier = tc.models.TextClassifier(model, tokenizer=letters)
    assert classifier.predict_proba(["abc"]).shape == (1, 2) and classifier.classes_.tolist() == model.labels


def test_the_number_of_a_folders_labels_is_that_of_the_new_ones():
    """config.json may say num_labels and no names: a new head has its own classes."""
    tc.manual_seed(0)
    source = tc.models.create({**CONFIG, "num_labels": 4}, task="text-classification")
    classifier = tc.models.TextClassifier(source, tokenizer=letters, epochs=1, batch_size=2, random_state=0)
    classifier.fit(["abc", "z"], ["yes", "no"])
    assert "num_labels" not in classifier.model_.config and classifier.model_.labels == ["no", "yes"]


def test_labels_that_are_members_of_an_enum():
    class Mood(str, enum.Enum):
        GOOD, BAD = "good", "bad"

    classifier = tc.models.TextClassifier(pretrained(), tokenizer=letters, epochs=1, random_state=0)
    classifier.fit(TEXTS[:4], [Mood.GOOD, Mood.BAD, Mood.BAD, "good"])
    assert classifier.classes_.tolist() == ["bad", "good"]


def test_another_number_of_labels_drops_their_names(tmp_path):
    """As in transformers: the configuration of one model is used for another."""
    first = tc.models.create({**CONFIG, "id2label": {"0": "no", "1": "yes"}}, task="text-classification")
    tc.models.save(tc.models.create({**first.config, "num_labels": 3}, task="text-classification"), tmp_path)
    model = tc.models.load(tmp_path, task="text-classification")
    assert first.labels == ["no", "yes"] and model.labels == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert tc.models.create({**first.config, "num_labels": 2}, task="text-classification").labels == ["no", "yes"]


@pytest.mark.parametrize("task", [None, "text-classification"])
def test_what_is_frozen_in_a_model_is_not_trained(task):
    """But a new last layer is."""
    source = pretrained(task).requires_grad_(False)
    encoder = source if task is None else source.encoder
    encoder.layers[1].requires_grad_(True)
    classifier = tc.models.TextClassifier(source, tokenizer=letters, batch_size=4, random_state=0).fit(TEXTS, LABELS)
    before, after = encoder.state_dict(), classifier.model_.encoder.state_dict()
    changed = {key[:8] for key, value in after.items() if not np.array_equal(value.numpy(), before[key].numpy())}
    assert changed == {"layers.1"}
    trained = {key for key, parameter in classifier.model_.named_parameters() if parameter.requires_grad}
    assert {key for key in trained if not key.startswith("encoder.layers.1.")} == {"out.weight", "out.bias"}
    assert not any(parameter.requires_grad for parameter in encoder.layers[0].parameters())
