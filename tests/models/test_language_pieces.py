"""M2M100's tokenizer, of sentencepiece.bpe.model and vocab.json: the numbers and texts of transformers' M2M100Tokenizer. Needs sentencepiece."""

import json
import random

import numpy as np
import pytest
import transformer_c as tc
from folders import coded_folder as folder_of
from transformer_c.models.language_pieces import LanguagePieces

pytest.importorskip("sentencepiece", "0.2.2")

PARTS = [
    "the ",
    "house",
    " ",
    "in",
    "__fr__",
    "__xx__",
    "</s>",
    "<pad>",
    "<unk>",
    "\N{SNOWMAN}",
    "\n",
    "garden ",
    "\N{LOWER ONE EIGHTH BLOCK}",
    ">>fr<<",
]


def test_numbers_and_texts(tmp_path):
    tokenizer = LanguagePieces(str(folder_of(tmp_path)), 30)
    words = list(json.loads((tmp_path / "vocab.json").read_text()))
    assert tokenizer.languages["af"] == len(words) and tokenizer.languages["zu"] == len(words) + 99 and len(tokenizer.languages) == 100
    for language in (None, "fr"):
        ids, types = tokenizer(["the house"], language=language)[0]
        assert ids[0] == tokenizer.number(language or "en") and [words[i] for i in ids[1:]] == ["\u2581the", "\u2581house", "</s>"]
        assert not types.any() and tokenizer.decode(ids) == "the house"
    assert tokenizer.as_written(["the house"])[0][0].tolist() == ids[1:-1].tolist()
    (folder_of(tmp_path / "other", src_lang="de", language_codes="wmt21", additional_special_tokens=[]))
    other = LanguagePieces(str(tmp_path / "other"), 30)
    assert list(other.languages) == ["en", "ha", "is", "ja", "cs", "ru", "zh", "de"] and other(["the"])[0][0][0] == len(words) + 7


@pytest.mark.unsanitized
@pytest.mark.parametrize("values", [{}, {"src_lang": "de", "truncation_side": "left"}, {"clean_up_tokenization_spaces": True}], ids=str)
def test_as_in_transformers(tmp_path, values):
    transformers, draw = pytest.importorskip("transformers"), random.Random(0)
    theirs = transformers.M2M100Tokenizer.from_pretrained(folder_of(tmp_path, **values))
    ours = LanguagePieces(str(tmp_path), 9)
    texts = ["".join(draw.choices(PARTS, k=draw.randrange(15))) for _ in range(300)]
    count = len(json.loads((tmp_path / "vocab.json").read_text())) + 104
    for language in (values.get("src_lang", "en"), "fr", "zu"):
        theirs.src_lang = language
        assert theirs.get_lang_id(language) == ours.number(language)
        assert [ids.tolist() for ids, _ in ours(texts, language=language)] == theirs(texts, truncation=True, max_length=9)["input_ids"]
    for _ in range(300):
        ids = [draw.randrange(count) for _ in range(draw.randrange(12))]
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    theirs.src_lang = values.get("src_lang", "en")
    theirs.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs/config.json").write_bytes((tmp_path / "config.json").read_bytes())
    (tmp_path / "ours").mkdir()
    ours.save(str(tmp_path / "ours"))
    (tmp_path / "ours/config.json").write_bytes((tmp_path / "config.json").read_bytes())
    for again in ("theirs", "ours"):
        assert [ids.tolist() for ids, _ in LanguagePieces(str(tmp_path / again), 9)(texts)] == [ids.tolist() for ids, _ in ours(texts)]
    loaded = transformers.M2M100Tokenizer.from_pretrained(tmp_path / "ours")
    assert loaded(texts, truncation=True, max_length=9)["input_ids"] == theirs(texts, truncation=True, max_length=9)["input_ids"]


def test_generators(tmp_path):
    generator = tc.models.Text2TextGenerator.from_pretrained(folder_of(tmp_path))
    assert type(generator.tokenizer) is LanguagePieces and generator.tokenizer.max_length == 20
    for settings in ({}, {"num_beams": 3}):
        found = generator.generate("the house", 6, src_lang="de", tgt_lang="fr", **settings)
        ids, number = generator.tokenizer(["the house"], language="de")[0][0], generator.tokenizer.number("fr")
        written = generator.model.generate(ids[None], 6, forced_bos_token_id=number, **settings)[0]
        assert found == generator.tokenizer.decode(written) and written[1] == number
    assert "".join(generator.stream("the house", 6, tgt_lang="fr")) == generator.generate("the house", 6, tgt_lang="fr")
    generator.fit(
        [("the house", "a garden"), ("is in", "the small")], src_lang="en", tgt_lang="fr", epochs=80, learning_rate=0.01, random_state=0
    )
    assert generator.generate(["the house", "is in"], 12, tgt_lang="fr") == ["a garden", "the small"]
    generator.save(tmp_path / "mine")
    assert tc.models.Text2TextGenerator.from_pretrained(tmp_path / "mine").generate("is in", 12, tgt_lang="fr") == "the small"
    for message, call in (
        ("no language 'xx'; it has af, am", lambda: generator.generate("a", tgt_lang="xx")),
        ("no language 'fra'; did you mean", lambda: generator.generate("a", src_lang="fra")),
        ("tgt_lang is the first token", lambda: generator.generate("a", tgt_lang="fr", forced_bos_token_id=3)),
        ("tgt_lang= is the one that is written", lambda: generator.fit([("a", "the")])),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert np.isfinite(generator.history[-1]["loss"])


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("language_codes = 'x'; expected m2m100 or wmt21", {"language_codes": "x"}),
        (r"language_codes = \[\]; expected", {"language_codes": []}),
        ("src_lang = 'xx', of which there is no code", {"src_lang": "xx"}),
        ("src_lang = 7, of which", {"src_lang": 7}),
        ("lacks '<end>', the eos_token", {"eos_token": "<end>"}),
        (r"additional_special_tokens = \['<new>'\]; only those of languages", {"additional_special_tokens": ["<new>"]}),
        ("additional_special_tokens = 5", {"additional_special_tokens": 5}),
        ("extra_special_tokens", {"extra_special_tokens": [7]}),
        ("adds the token", {"added_tokens_decoder": {"900": {"content": "__af__"}}}),
        ("adds the token", {"added_tokens_decoder": {"0": {"content": "<s>", "lstrip": True}}}),
        ("sp_model_kwargs", {"sp_model_kwargs": {"alpha": 1}}),
        ("num_madeup_words = 9", {"num_madeup_words": 9}),
    ],
)
def test_what_is_refused(tmp_path, message, values):
    with pytest.raises(tc.CheckpointError, match=message):
        LanguagePieces(str(folder_of(tmp_path, **values)), 30)
    with pytest.raises(ValueError, match="adds 2 to each"):
        LanguagePieces(str(folder_of(tmp_path)), 2)
