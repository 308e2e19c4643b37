"""Tokenizers from vocab.txt, or vocab.json and merges.txt, of folders without tokenizer.json. Needs the package tokenizers."""

import json
import warnings

import numpy as np
import pytest
import transformer_c as tc
from folders import CONFIG
from transformer_c.models.architectures import ARCHITECTURES
from transformer_c.models.tokenizing import Tokenizer

pytest.importorskip("tokenizers")

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "wor", "##ld", "##s", "!", "cafe", "café", "Hello", "中", "ab", "##c"]
MPNET = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>", *PIECES[5:]]
BYTES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "h", "e", "l", "o", "w", "r", "d", "Ġ", "Ġw", "he", "ll", "hell", "hello", "Ġwo", "!"]
MERGES = ["#version: 0.2", "Ġ w", "h e", "l l", "he ll", "hell o", "Ġw o"]
TEXTS = ["hello worlds!", "Hello, Café 中", "abc [MASK] hello", "", "hello\tworld <mask>!"]


def write(folder, kind, **tokenizer_config):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "model_type": kind}))
    if kind in ("deberta", "roberta"):
        renamed = {"<s>": "[CLS]", "</s>": "[SEP]", "<pad>": "[PAD]", "<unk>": "[UNK]", "<mask>": "[MASK]"} if kind == "deberta" else {}
        (folder / "vocab.json").write_text(json.dumps({renamed.get(word, word): i for i, word in enumerate(BYTES)}))
        (folder / "merges.txt").write_text("\n".join(MERGES) + "\n")
    else:
        (folder / "vocab.txt").write_text("\n".join(MPNET if kind == "mpnet" else PIECES) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return str(folder)


def ids(folder, texts, pairs=False):
    return [found.tolist() for found, _ in Tokenizer(folder, 40, pairs)(texts)]


def test_word_pieces(tmp_path):
    folder = write(tmp_path, "bert")
    assert ids(folder, ["Hello worlds!", "Café", "中ab abd"]) == [[2, 5, 6, 7, 8, 9, 3], [2, 10, 3], [2, 13, 14, 1, 3]]
    found = Tokenizer(folder, 40, True)([("hello", "abc")])[0]
    assert found[0].tolist() == [2, 5, 3, 14, 15, 3] and found[1].tolist() == [0, 0, 0, 1, 1, 1]
    assert ids(write(tmp_path, "distilbert", do_lower_case=False), ["Hello hello Café"]) == [[2, 12, 5, 1, 3]]
    assert ids(write(tmp_path, "bert", strip_accents=False), ["café"]) == [[2, 11, 3]]
    found = Tokenizer(write(tmp_path, "mpnet"), 40, True)([("hello", "abc")])[0]
    assert found[0].tolist() == [0, 5, 2, 2, 14, 15, 2] and not found[1].any()


def test_byte_pairs(tmp_path):
    folder = write(tmp_path, "roberta")
    assert ids(folder, ["hello wow", "hello <mask>"]) == [[0, 17, 18, 9, 2], [0, 17, 4, 2]]
    assert ids(folder, [("hello", "wow")], True) == [[0, 17, 2, 2, 9, 8, 9, 2]]
    found = Tokenizer(write(tmp_path, "deberta"), 40, True)([("hello", "wow")])[0]
    assert found[0].tolist() == [0, 17, 2, 9, 8, 9, 2] and found[1].tolist() == [0, 0, 0, 1, 1, 1, 1]


def test_words_of_byte_pairs(tmp_path):
    """Each is one after a space, whatever the file says of the first; texts, and what is saved, stay as they were."""
    folder = write(tmp_path / "read", "roberta")
    tokenizer, (one, two) = Tokenizer(folder, 40), (tmp_path / "one", tmp_path / "two")
    one.mkdir(), two.mkdir()
    texts = [found.tolist() for found, _ in tokenizer(["wow", "hello"])]
    tokenizer.save(str(one))
    assert not json.loads((one / "tokenizer.json").read_text())["pre_tokenizer"]["add_prefix_space"]
    numbers, _, words = tokenizer.words([["wow", "hello"]])[0]
    assert numbers.tolist() == [0, 18, 9, 12, 17, 2] and words.tolist() == [-1, 0, 0, 1, 1, -1]
    assert [found.tolist() for found, _ in tokenizer(["wow", "hello"])] == texts == [[0, 9, 8, 9, 2], [0, 17, 2]]
    tokenizer.save(str(two))
    assert (two / "tokenizer.json").read_bytes() == (one / "tokenizer.json").read_bytes()
    assert Tokenizer(str(two), 40).words([["wow", "hello"]])[0][0].tolist() == numbers.tolist()


@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "TokenizersBackend"])
def test_words_of_byte_pairs_of_a_class_without_options(tmp_path, kind):
    """Are after a space only if tokenizer.json says so, as in transformers."""
    tokenizer = Tokenizer(write(tmp_path, "roberta"), 40)
    tokenizer.save(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    path = tmp_path / "tokenizer.json"
    for spaced, expected in ((False, [0, 9, 8, 9, 17, 2]), (True, [0, 18, 9, 12, 17, 2])):
        values = json.loads(path.read_text())
        values["pre_tokenizer"]["add_prefix_space"] = spaced
        path.write_text(json.dumps(values))
        assert Tokenizer(str(tmp_path), 40).words([["wow", "hello"]])[0][0].tolist() == expected


def test_a_saved_tokenizer_is_a_tokenizer_json(tmp_path):
    for kind in ("bert", "mpnet", "roberta"):
        folder = write(tmp_path / kind, kind)
        tokenizer, saved = Tokenizer(folder, 40), tmp_path / f"{kind} saved"
        saved.mkdir()
        tokenizer.save(str(saved))
        again = Tokenizer(str(saved), 40)
        for (a, b), (c, d) in zip(tokenizer(TEXTS), again(TEXTS), strict=True):
            assert np.array_equal(a, c) and np.array_equal(b, d)


def test_tokenizer_config_is_more_than_tokenizer_json(tmp_path):
    """As in transformers, whose classes of an architecture set these; PreTrainedTokenizerFast takes the file as it is."""
    cases = {
        "bert": ({"do_lower_case": False}, "Hello"),
        "mpnet": ({"strip_accents": False}, "café"),
        "roberta": ({"add_prefix_space": True}, "wow"),
    }
    for kind, (values, text) in cases.items():
        folder = write(tmp_path / kind, kind)
        before = ids(folder, [text])
        Tokenizer(folder, 40).save(folder)
        after = ids(write(tmp_path / kind, kind, **values), [text])
        write(tmp_path / "vocabulary", kind, **values)
        assert (tmp_path / kind / "tokenizer.json").exists()
        assert after == ids(str(tmp_path / "vocabulary"), [text]) != before
        assert ids(write(tmp_path / kind, kind, tokenizer_class="PreTrainedTokenizerFast", **values), [text]) == before


def test_the_defaults_of_a_class_are_more_than_tokenizer_json(tmp_path):
    """As in transformers: BertTokenizer makes texts lower-case unless tokenizer_config.json says otherwise."""
    cases = {
        "bert": ({"do_lower_case": False}, "Hello"),
        "mpnet": ({"strip_accents": False}, "café"),
        "roberta": ({"add_prefix_space": True}, "wow"),
    }
    for kind, (values, text) in cases.items():
        folder, name = write(tmp_path / kind, kind), f"{ARCHITECTURES[kind].table.name}Tokenizer"
        default = ids(folder, [text])
        write(tmp_path / kind, kind, **values)
        Tokenizer(folder, 40).save(folder)
        for said in ({}, {"tokenizer_class": name}, {"tokenizer_class": f"{name}Fast"}):
            write(tmp_path / kind, kind, **said)
            assert ids(folder, [text]) == default
        (tmp_path / kind / "tokenizer_config.json").unlink()
        assert ids(folder, [text]) == default
        for said in ("PreTrainedTokenizerFast", "TokenizersBackend", "HerbertTokenizerFast"):
            assert ids(write(tmp_path / kind, kind, tokenizer_class=said), [text]) != default
        write(tmp_path / kind, kind)
        (tmp_path / kind / "config.json").write_text(json.dumps({"model_type": kind, "tokenizer_class": "PreTrainedTokenizerFast"}))
        assert ids(folder, [text]) != default


def test_an_encoder(tmp_path):
    tc.models.save(tc.models.create(CONFIG), tmp_path)
    write(tmp_path, "bert", model_max_length=12)
    encoder = tc.models.SentenceEncoder.from_pretrained(tmp_path)
    assert encoder.tokenizer.max_length == 12 and encoder.encode(["hello world", "x"]).shape == (2, 16)


@pytest.mark.parametrize(
    ("kind", "name", "data", "message"),
    [
        ("bert", "vocab.txt", b"a\nb\n", "vocab.txt' lacks '.UNK.', the unk_token"),
        ("bert", "vocab.txt", b"\xff\xfe", "vocab.txt' is not text in UTF-8"),
        ("bert", "vocab.txt", b"", "lacks"),
        ("bert", "tokenizer_config.json", b'{"do_lower_case": 3}', "do_lower_case = 3; expected true or false"),
        ("bert", "tokenizer_config.json", b'{"cls_token": ["x"]}', "the cls_token"),
        ("bert", "tokenizer_config.json", b'{"sep_token": {"content": "x"}}', "lacks 'x', the sep_token"),
        ("bert", "added_tokens.json", b'{"new": 16}', "added_tokens.json' has tokens of its own"),
        ("roberta", "vocab.json", b'{"a": -1}', "not a mapping of words to numbers"),
        ("roberta", "vocab.json", b"[]", "not a mapping"),
        ("roberta", "merges.txt", b"a b c\n", "no two words"),
        ("roberta", "merges.txt", b"q z\n", "makes no tokenizer"),
    ],
)
def test_what_is_refused(tmp_path, kind, name, data, message):
    folder = write(tmp_path, kind)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(tc.CheckpointError, match=message):
        Tokenizer(folder, 40)


def test_a_sentencepiece_model_alone(tmp_path):
    folder = write(tmp_path, "xlm-roberta")
    (tmp_path / "vocab.txt").rename(tmp_path / "sentencepiece.bpe.model")
    with pytest.raises(tc.CheckpointError, match=r"has no tokenizer\.json; it has sentencepiece\.bpe\.model, from which transformers' "):
        Tokenizer(folder, 40)


@pytest.mark.unsanitized
@pytest.mark.parametrize("kind", ["bert", "deberta", "distilbert", "mpnet", "roberta"])
def test_next_to_transformers(tmp_path, kind):
    """The tokens of its tokenizers that are written in Python, where they exist."""
    transformers = pytest.importorskip("transformers")
    mask = {"content": "<mask>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False, "__type": "AddedToken"}
    folder = write(tmp_path, kind, **({"mask_token": mask} if kind == "roberta" else {}))  # as in real folders
    name = {
        "bert": "BertTokenizer",
        "deberta": "DebertaTokenizer",
        "distilbert": "DistilBertTokenizer",
        "mpnet": "MPNetTokenizer",
        "roberta": "RobertaTokenizer",
    }[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = getattr(transformers, name).from_pretrained(folder)
    assert ids(folder, TEXTS) == theirs(TEXTS)["input_ids"]
    if kind != "deberta":  # whose pairs have one more separator in transformers 5
        assert ids(folder, [("hello", "abc!")], True) == theirs([("hello", "abc!")])["input_ids"]
