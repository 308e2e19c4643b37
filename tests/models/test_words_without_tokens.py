"""Words of which a tokenizer makes nothing, such as U+200B: they have no label, and all others have theirs."""

import json

import numpy as np
import pytest
import transformer_c as tc
from folders import CONFIG
from words import tagged, write_tokenizer

NAMES = {"id2label": {"0": "no", "1": "yes", "2": "?"}}


@pytest.fixture
def folder(tmp_path):
    """A tagger whose tokenizer removes U+200B, as BERT's does."""
    pytest.importorskip("tokenizers")
    tc.manual_seed(1)
    tc.models.save(tc.models.create({**CONFIG, "initializer_range": 0.3, **NAMES}, task="token-classification"), tmp_path)
    write_tokenizer(tmp_path, length=12)
    path = tmp_path / "tokenizer.json"
    values = {**json.loads(path.read_text()), "normalizer": {"type": "Replace", "pattern": {"String": "\u200b"}, "content": ""}}
    path.write_text(json.dumps(values))
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["a", "\u200b", "b"],
        ["\u200b", "a"],
        ["a", "\u200b"],
        ["a", "", "\u200b\u200b", "b", ""],
        ["abc", "de", "fghij", "\u200b", "k", "lm", "\u200b", "nopqrstuvwxyz", "\u200b", "a", "\u200b"],  # in several parts
        ["\u200b", "", "\u200b"],
        [],
    ],
)
def test_every_word_has_an_answer(folder, words):
    tagger = tc.models.TokenClassifier(folder)
    odds, labels = tagger.predict_proba([words, ["z"]]), tagger.predict([words, ["z"]])
    real = [i for i, word in enumerate(words) if word.replace("\u200b", "")]
    assert odds[0].shape == (len(words), 3) and len(labels[0]) == len(words)
    assert [label is None for label in labels[0]] == [i not in real for i in range(len(words))] == np.isnan(odds[0]).any(1).tolist()
    found = tagger.predict_proba([[words[i] for i in real]])[0]
    assert np.array_equal(odds[0][real], found) and np.array_equal(odds[1], tagger.predict_proba([["z"]])[0])


def test_they_are_not_trained_with(folder):
    """Nor do they end a training, whatever label they have."""
    options = {"epochs": 2, "batch_size": 1, "random_state": 0, "learning_rate": 1e-2}
    texts, tags = [["a", "\u200b"], ["b"]], [["no", "?"], ["yes"]]
    expected = tc.models.TokenClassifier(folder, **options).fit([["a"], ["b"]], [["no"], ["yes"]])
    found = tc.models.TokenClassifier(folder, **options).fit(texts, tags)
    assert found.history_ == expected.history_
    both = tc.models.TokenClassifier(folder, **options).fit([*texts, ["\u200b"], []], [*tags, ["?"], []], validation=(texts, tags))
    assert [entry["loss"] for entry in both.history_] == [entry["loss"] for entry in expected.history_]
    right = 2 * expected.score([["a"], ["b"]], [["no"], ["yes"]])
    assert both.score(texts, tags) == right / 3 and both.score(texts, [["no", None], ["yes"]]) == (right + 1) / 3
    for X, y in (([["\u200b"]], [["no"]]), ([["", "\u200b"]], [["no", "yes"]])):
        with pytest.raises(ValueError, match="the tokenizer makes no tokens of any word"):
            tc.models.TokenClassifier(folder, **options).fit(X, y)


def test_a_tokenizer_of_ones_own():
    """Which adds no special tokens either."""
    model = tc.models.create({**CONFIG, **NAMES}, task="token-classification")

    def bare(texts):
        return [(ids[1:-1], types[1:-1], words[1:-1]) for ids, types, words in tagged(texts)]

    tagger = tc.models.TokenClassifier(model, tokenizer=bare)
    assert [len(labels) for labels in tagger.predict([[""], ["a", "", "b"], []])] == [1, 3, 0]
    assert tagger.predict([["", ""]]) == [[None, None]]
