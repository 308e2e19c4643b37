"""Marian's tokenizer, of source.spm and vocab.json: the numbers and texts of transformers' MarianTokenizer. Needs the package sentencepiece."""

import json
import random
import sys
import types

import pytest
import transformer_c as tc
from folders import marian_files
from test_encoder_decoders import create
from transformer_c.models.pieces import PieceTokenizer

pytest.importorskip("sentencepiece", "0.2.2")

PARTS = [
    "the ",
    "house",
    " ",
    "in",
    ">>fr<<",
    "<<",
    ">>",
    "</s>",
    "<pad>",
    "<unk>",
    "\N{SNOWMAN}",
    "\n",
    "garden ",
    "\N{LOWER ONE EIGHTH BLOCK}",
]


@pytest.fixture
def words(tmp_path):
    return marian_files(tmp_path)


def test_numbers_and_texts(words, tmp_path):
    tokenizer = PieceTokenizer(str(tmp_path), 30)
    for text, pieces, decoded in (
        ("the small house", "▁the ▁small ▁house </s>", "the small house"),
        (">>fr<< a  garden", ">>fr<< ▁a ▁garden </s>", ">>fr<< a garden"),
        (">>xx<<the", "<unk> ▁the </s>", "the"),
        ("a</s>the", "▁a </s> ▁the </s>", "a the"),
        ("", "</s>", ""),
    ):
        ids, kinds = tokenizer([text])[0]
        assert [words[i] for i in ids] == pieces.split() and ids.dtype == kinds.dtype == "int64" and not kinds.any()
        assert tokenizer.decode(ids) == decoded
    assert tokenizer.decode([words.index("▁jardin"), 0]) == "jardin"
    with pytest.raises(tc.CheckpointError, match="the tokenizer failed .IndexError"):
        tokenizer.decode([10**6])


def test_long_texts(words, tmp_path):
    for side, kept in (("right", [2, 3, 0]), ("left", [3, 4, 0])):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"truncation_side": side}))
        assert PieceTokenizer(str(tmp_path), 3)(["the house garden"])[0][0].tolist() == kept
    with pytest.raises(ValueError, match="cut off at 1 tokens, but the tokenizer of .* adds 1 to each"):
        PieceTokenizer(str(tmp_path), 1)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("cleans", [False, True])
def test_as_transformers(words, tmp_path, side, cleans):
    transformers = pytest.importorskip("transformers")
    values = {"truncation_side": side, "clean_up_tokenization_spaces": cleans, "model_max_length": 9}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(values))
    theirs, draw = transformers.MarianTokenizer.from_pretrained(str(tmp_path)), random.Random(0)
    theirs.save_pretrained(tmp_path / "saved")
    for folder in (tmp_path, tmp_path / "saved"):
        ours = PieceTokenizer(str(folder), 9)
        texts = ["".join(draw.choices(PARTS, k=draw.randrange(15))) for _ in range(200)]
        assert [ids.tolist() for ids, _ in ours(texts)] == theirs(texts, truncation=True, max_length=9)["input_ids"]
        for _ in range(200):
            ids = draw.choices(range(len(words)), k=draw.randrange(12))
            assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    ours.save(str(tmp_path))
    assert transformers.MarianTokenizer.from_pretrained(str(tmp_path))(texts[:9], truncation=True) == theirs(texts[:9], truncation=True)


def test_settled_texts_stay(words, tmp_path):
    """What of a text has been shown stays, also where spaces before marks are taken away later."""
    (tmp_path / "tokenizer_config.json").write_text('{"clean_up_tokenization_spaces": true}')
    tokenizer = PieceTokenizer(str(tmp_path), 30)
    ids = [words.index(word) for word in ("▁the", "▁n", "'t", "▁house", "▁.")]
    assert tokenizer.decode(ids) == "then't house."
    draw = random.Random(1)
    for _ in range(300):
        ids = draw.choices(range(len(words)), k=12)
        shown = [text[: tokenizer.settled(text)] for text in (tokenizer.decode(ids[:n]) for n in range(13))]
        assert all(tokenizer.decode(ids).startswith(text) for text in shown)


def test_generators(words, tmp_path):
    model = create("marian", vocab_size=len(words), eos_token_id=0, pad_token_id=len(words) - 1, decoder_start_token_id=len(words) - 1)
    tc.models.save(model, tmp_path)
    for cleans in (False, True):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"clean_up_tokenization_spaces": cleans, "model_max_length": 12}))
        generator = tc.models.Text2TextGenerator.from_pretrained(tmp_path)
        assert generator.tokenizer.max_length == 12
        ids = generator.tokenizer([">>fr<< the house"])[0][0]
        expected = generator.tokenizer.decode(generator.model.generate(ids[None], 9, num_beams=2)[0, 1:])
        assert expected and generator.generate(">>fr<< the house", 9, num_beams=2) == expected
        assert "".join(generator.stream("a garden", 20)) == generator.generate("a garden", 20)
    copy = tmp_path / "copy"
    tc.models.save(generator.model, copy)
    generator.tokenizer.save(str(copy))
    assert tc.models.Text2TextGenerator.from_pretrained(copy).generate("the garden", 9) == generator.generate("the garden", 9)


@pytest.mark.parametrize("package", [None, types.SimpleNamespace(__version__="0.2.1")], ids=["missing", "old"])
def test_without_the_package(words, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, "sentencepiece", package)
    with pytest.raises(ImportError, match=r"read by the package sentencepiece, 0.2.2 or newer: pip install 'transformer_c\[models\]'"):
        PieceTokenizer(str(tmp_path), 30)


@pytest.mark.parametrize(
    ("file", "value", "message"),
    [
        ("source.spm", b"", "source.spm' is not a model of sentencepiece's that can be read"),
        ("target.spm", b"no model", "target.spm' is not a model of sentencepiece's that can be read"),
        ("target.spm", None, "has no target.spm"),
        ("vocab.json", None, "vocab.json"),
        ("vocab.json", [], "vocab.json' is not a mapping of words to numbers"),
        ("vocab.json", {"a": 10**30}, "vocab.json' is not a mapping of words to numbers"),
        ("vocab.json", {"<unk>": 0, "</s>": 1}, "vocab.json' lacks '<pad>', the pad_token"),
        ("tokenizer_config.json", {"separate_vocabs": True}, "separate_vocabs = True; only False is supported"),
        ("tokenizer_config.json", {"sp_model_kwargs": {"enable_sampling": True}}, "sp_model_kwargs = .*; only {} is supported"),
        ("tokenizer_config.json", {"bos_token": "<s>"}, "bos_token = '<s>'; only None is supported"),
        ("tokenizer_config.json", {"eos_token": {"content": "</s>", "lstrip": True}}, "only tokens without lstrip, rstrip and single_word"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"7": {"content": "</s>"}}}, "adds '</s>'; only the words of vocab.json"),
        ("tokenizer_config.json", {"added_tokens_decoder": [3]}, "has the token .3.; only tokens without"),
        ("added_tokens.json", {"new": 50}, "added_tokens.json adds 'new'"),
        ("special_tokens_map.json", {"unk_token": "?"}, "vocab.json' lacks '.', the unk_token"),
        ("special_tokens_map.json", {"additional_special_tokens": ["a"]}, "additional_special_tokens = .'a'.; only .. is supported"),
    ],
)
def test_refusals(words, tmp_path, file, value, message):
    path = tmp_path / file
    path.unlink(missing_ok=True)
    if value is not None:
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    with pytest.raises((tc.CheckpointError, FileNotFoundError), match=message):
        PieceTokenizer(str(tmp_path), 30)
