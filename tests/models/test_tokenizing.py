"""What a folder's tokenizer makes of texts: cut off as by the package tokenizers, the same each time, in little memory."""

import json
import random
import subprocess
import sys

import pytest
import transformer_c as tc
from folders import sentence_folder, tokenizer_json
from transformer_c.models.tokenizing import Tokenizer
from words import write_tokenizer

tokenizers = pytest.importorskip("tokenizers")


def set_config(folder, **values):
    """Adds values to a folder's tokenizer_config.json."""
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("length", [4, 5, 6, 7, 12, 13])
def test_texts_are_cut_off_as_by_the_package(tmp_path, length, side):
    write_tokenizer(tmp_path)
    set_config(tmp_path, truncation_side=side)
    ours, theirs = Tokenizer(str(tmp_path), length, pairs=True), tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    theirs.enable_truncation(length, direction=side)
    draw = random.Random(length)
    sizes = [(n, m) for n in range(length + 2) for m in range(length + 2)] + [(50, 60), (60, 50), (60, 60), (1, 70), (70, 0)]
    pairs = [tuple("".join(draw.choices("abcxyz", k=n)) for n in both) for both in sizes]
    for texts in (pairs, [first for first, _ in pairs]):
        found = [(ids.tolist(), types.tolist()) for ids, types in ours(texts)]
        assert found == [(e.ids, e.type_ids) for e in theirs.encode_batch(texts)]
    words = [list(first) for first, _ in pairs]
    theirs.enable_truncation(length)  # words that are cut off are read next
    found = [[None if word < 0 else word for word in numbers] for _, _, numbers in ours.words(words)]
    assert found == [e.word_ids for e in theirs.encode_batch(words, is_pretokenized=True)]


def test_an_unknown_side_is_refused(tmp_path):
    write_tokenizer(tmp_path)
    set_config(tmp_path, truncation_side="middle")
    with pytest.raises(tc.CheckpointError, match="truncation_side = 'middle'; expected 'left' or 'right'"):
        Tokenizer(str(tmp_path), 12)


def test_a_model_without_types_is_given_none(tmp_path):
    """As in transformers, whatever tokenizer.json makes of a pair."""
    write_tokenizer(tmp_path)
    for names, types in ((["input_ids", "attention_mask"], [0, 0, 0, 0, 0]), (["input_ids", "token_type_ids"], [0, 0, 0, 1, 1])):
        set_config(tmp_path, model_input_names=names)
        ((_, found),) = Tokenizer(str(tmp_path), 12, pairs=True)([("a", "b")])
        assert found.tolist() == types


@pytest.mark.parametrize(
    ("kind", "types"),
    [
        ("TokenizersBackend", [0, 0, 0, 0, 0]),
        ("AlbertTokenizer", [0, 0, 0, 0, 0]),
        ("DistilBertTokenizerFast", [0, 0, 0, 0, 0]),
        ("BertTokenizer", [0, 0, 0, 1, 1]),
        ("PreTrainedTokenizerFast", [0, 0, 0, 1, 1]),
    ],
)
def test_types_by_the_class_of_the_tokenizer(tmp_path, kind, types):
    """The class of transformers 5 gives none where no names of inputs say so; that of version 4 did. That of DistilBERT never does."""
    write_tokenizer(tmp_path)
    set_config(tmp_path, model_input_names=None, tokenizer_class=kind)
    ((_, found),) = Tokenizer(str(tmp_path), 12, pairs=True)([("a", "b")])
    assert found.tolist() == types


_LONG = """
import re, sys
from transformer_c.models.tokenizing import Tokenizer

peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])  # KiB; ru_maxrss counts the parent's
tokenizer = Tokenizer(sys.argv[1], 20, pairs=True)
tokenizer([("ab", "abc")])
before = peak()
assert all(len(ids) == 20 for ids, _ in tokenizer([("a" * 3000, "b" * 3000)] * 4))
print(peak() - before)
"""


@pytest.mark.unsanitized  # AddressSanitizer keeps what was freed
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_pairs_of_long_texts_take_little_memory(tmp_path):
    """With what is cut off, every part of one text with every part of the other, these take 500 MiB."""
    write_tokenizer(tmp_path)
    run = subprocess.run([sys.executable, "-c", _LONG, str(tmp_path)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 50 << 10


def test_byte_pairs_are_merged_without_dropout(tmp_path):
    """A tokenizer file may ask for merges that are left out at random, which is of use in a training alone."""
    words = {"[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4, "b": 5, "c": 6, "ab": 7, "abc": 8}
    model = {"type": "BPE", "vocab": words, "merges": ["a b", "ab c"], "dropout": 0.5, "unk_token": "[UNK]"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({**tokenizer_json(), "pre_tokenizer": None, "model": model}))
    tokenizer = Tokenizer(str(tmp_path), 20)
    assert {tuple(ids.tolist()) for ids, _ in tokenizer(["abc"] * 50)} == {(2, 8, 3)}


def test_a_length_is_kept_in_the_folder_of_an_encoder(tmp_path):
    """Whose own file says 20, and is read first."""
    sentence_folder(tmp_path)
    classifier = tc.models.TextClassifier(tmp_path, max_length=33, epochs=1, random_state=0).fit(["a", "b"], ["x", "y"])
    classifier.save(tmp_path)
    again, texts = tc.models.TextClassifier(tmp_path), ["abcde" * 5]
    assert again.tokenizer_.max_length == 33 and (again.predict_proba(texts) == classifier.predict_proba(texts)).all()


def test_saving_changes_nothing(tmp_path):
    """Another thread may read texts meanwhile, and they are cut off as before."""
    write_tokenizer(tmp_path)
    tokenizer = Tokenizer(str(tmp_path), 12)
    before = tokenizer._tokenizer

    class Watched:
        def __getattr__(self, name):
            assert name == "to_str", name
            return before.to_str

    tokenizer._tokenizer = Watched()
    tokenizer.save(str(tmp_path))
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["model_max_length"] == 12
    assert json.loads((tmp_path / "tokenizer.json").read_text())["truncation"] is None
