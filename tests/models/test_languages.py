"""Translators of several languages: the code of a text's language, and of the one that is written, are tokens, as in transformers' tokenizers."""

import json

import numpy as np
import pytest
import transformer_c as tc
from folders import LANGUAGES, language_folder
from transformer_c import cli
from transformer_c.models.languages import LanguageTokenizer

pytest.importorskip("tokenizers")
TEXTS = ["the house", "", "he  </s> a.", "x" * 30, " \u2581zü"]


def read(folder):
    return tc.models.Text2TextGenerator.from_pretrained(folder)


@pytest.mark.parametrize("name", LANGUAGES)
def test_codes_of_languages(name, tmp_path):
    generator = read(language_folder(tmp_path, name))
    tokenizer, (first, second, _) = generator.tokenizer, LANGUAGES[name]
    assert type(tokenizer) is LanguageTokenizer and list(tokenizer.languages) == LANGUAGES[name]
    alone = tokenizer.as_written(["the he"])[0][0].tolist()
    for language, code in ((None, first), (second, second)):
        number = tokenizer.number(code)
        expected = [*alone, 2, number] if name == "MBartTokenizer" else [number, *alone, 2]
        assert tokenizer(["the he"], language=language)[0][0].tolist() == expected
    long = tokenizer(["x" * 30])[0][0]
    assert len(long) == 12 and tokenizer.number(first) in long and 2 in long


@pytest.mark.parametrize("values", [{}, {"src_lang": 1}, {"truncation_side": "left"}, {"legacy_behaviour": True}], ids=str)
@pytest.mark.parametrize("name", LANGUAGES)
def test_numbers_of_transformers(name, values, tmp_path):
    transformers = pytest.importorskip("transformers")
    values = {key: LANGUAGES[name][value] if key == "src_lang" else value for key, value in values.items()}
    if "legacy_behaviour" in values and name != "NllbTokenizer":
        pytest.skip("is NLLB's")
    own = read(language_folder(tmp_path, name, **values)).tokenizer
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(theirs).__name__ == name
    for language in (None, *LANGUAGES[name]):
        if language is not None:
            theirs.src_lang = language
        for text in TEXTS:
            assert own([text], language=language)[0][0].tolist() == theirs(text, truncation=True)["input_ids"], text
    number = own.number(LANGUAGES[name][1])
    assert number == theirs.convert_tokens_to_ids(LANGUAGES[name][1])
    assert own.decode([2, number, 30, 31, 2]) == theirs.decode([2, number, 30, 31, 2], skip_special_tokens=True)


@pytest.mark.parametrize("name", LANGUAGES)
def test_texts_that_are_written(name, tmp_path, capsysbinary):
    generator = read(language_folder(tmp_path, name))
    tokenizer, (_, second, third) = generator.tokenizer, LANGUAGES[name]
    for settings in ({}, {"num_beams": 3}):
        found = generator.generate("the he", 6, src_lang=second, tgt_lang=third, **settings)
        ids = tokenizer(["the he"], language=second)[0][0]
        begins, number = name == "MBartTokenizer", tokenizer.number(third)
        given = {"decoder_start_token_id" if begins else "forced_bos_token_id": number}
        written = generator.model.generate(ids[None], 6, **settings, **given, forced_eos_token_id=generator._sampling.forced_eos_token_id)[
            0
        ]
        assert found == tokenizer.decode(written) and written[0 if begins else 1] == number
    given = {"src_lang": second, "tgt_lang": third}
    expected = generator.generate("the he", 6, **given)
    assert "".join(generator.stream("the he", 6, **given)) == expected == generator.generate(["a", "the he"], 6, **given)[1]
    assert cli.main(["generate", str(tmp_path), "the he", "--max-new-tokens", "6", "--src-lang", second, "--tgt-lang", third]) == 0
    assert capsysbinary.readouterr().out.decode() == expected + "\n"
    tokenizer.save(tmp_path)
    assert read(tmp_path).generate("the he", 6, **given) == expected
    for error, message, call in (
        (ValueError, r"no language 'xx'; it has en", lambda: generator.generate("a", src_lang="xx")),
        (ValueError, rf"no language '{third[:-1]}'; did you mean '{third}'", lambda: generator.stream("a", tgt_lang=third[:-1])),
        (ValueError, "no language '<mask>'", lambda: generator.generate("a", tgt_lang="<mask>")),
        (ValueError, "no language 7", lambda: generator.generate("a", tgt_lang=7)),
        (
            ValueError,
            "decoder_start_token_id must be the number of a token below",
            lambda: generator.model.generate(ids[None], 6, decoder_start_token_id=10**6),
        ),
        (ValueError, "decoder_start_token_id must be", lambda: generator.model.generate(ids[None], 6, decoder_start_token_id="x")),
        *(
            [(ValueError, "tgt_lang is the first token", lambda: generator.generate("a", tgt_lang=third, forced_bos_token_id=3))]
            if not begins
            else []
        ),
    ):
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("beams", [1, 3])
def test_what_mbart_of_25_languages_writes_in_transformers(beams, tmp_path):
    """Where the token that begins texts is the code, as in its documentation."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    generator = read(language_folder(tmp_path, "MBartTokenizer"))
    _, second, third = LANGUAGES["MBartTokenizer"]
    theirs = transformers.MBartForConditionalGeneration.from_pretrained(tmp_path).eval()
    tokenizer = transformers.MBartTokenizer.from_pretrained(tmp_path, src_lang=second)
    for text in ("the house", "a", "he is he"):
        begin = tokenizer.convert_tokens_to_ids(third)
        found = theirs.generate(**tokenizer(text, return_tensors="pt"), decoder_start_token_id=begin, num_beams=beams, max_new_tokens=8)[0]
        assert found[0] == begin
        given = {"src_lang": second, "tgt_lang": third, "num_beams": beams}
        assert generator.generate(text, 8, **given) == tokenizer.decode(found, skip_special_tokens=True)
    assert torch.is_tensor(found)


def test_refusals(tmp_path, capsysbinary):
    for values, message in (
        ({"src_lang": "deu_Latn"}, "a tokenizer without the language 'deu_Latn'"),
        ({"src_lang": 7}, "a tokenizer without the language 7"),
        ({"src_lang": "the"}, "a tokenizer without the language 'the'"),
        ({"eos_token": "<end>"}, "or the end of texts '<end>'"),
        ({"eos_token": {"content": 7}}, "or the end of texts 7"),
        ({"legacy_behaviour": "x"}, "legacy_behaviour = 'x'; expected true or false"),
    ):
        with pytest.raises(tc.CheckpointError, match=message):
            read(language_folder(tmp_path, **values))
    with pytest.raises(ValueError, match="the tokenizer of .* adds 2 to each; nothing of the text is left"):
        read(language_folder(tmp_path, model_max_length=2))
    plain = read(language_folder(tmp_path, tokenizer_class="PreTrainedTokenizerFast"))
    assert plain.tokenizer(["a"])[0][0][0] == 0  # as tokenizer.json says
    for given in ({"src_lang": "eng_Latn"}, {"tgt_lang": "eng_Latn"}):
        with pytest.raises(ValueError, match="for tokenizers of several languages"):
            plain.generate("a", **given)
        with pytest.raises(ValueError, match="for tokenizers of several languages"):
            plain.stream("a", **given)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "pad_token_id": None}))
    with pytest.raises(tc.CheckpointError, match="pad_token_id = null, where the positions of M2M100 begin"):
        read(tmp_path)


def test_positions_count_tokens():
    """Padding in front moves nothing, as in transformers, whatever number it has; its own positions are zeros."""
    sizes = {"vocab_size": 30, "d_model": 17, "encoder_attention_heads": 1, "decoder_attention_heads": 1, "initializer_range": 0.5}
    for padding in (1, 0, 29):
        tc.manual_seed(1)
        model = tc.models.create({"model_type": "m2m_100", **sizes, "encoder_layers": 1, "decoder_layers": 1, "pad_token_id": padding})
        ids = np.array([[5, 6, 7, 8]])
        front = np.concatenate([np.full((1, 3), padding), ids], 1)
        found = model.encoder(front, (front != padding).astype(int))[:, 3:]
        np.testing.assert_allclose(found, model.encoder(ids), rtol=0, atol=1e-5)
        assert not np.array(model.encoder.positions.waves)[0].any() and model.encoder.positions.waves.shape == (1025, 17)


def test_positions_of_transformers():
    module = pytest.importorskip("transformers.models.m2m_100.modeling_m2m_100")
    from transformer_c.models.m2m_100 import _sines

    for count, width, padding in ((1024, 64, 1), (40, 17, 5)):
        theirs = module.M2M100SinusoidalPositionalEmbedding.get_embedding(count + padding + 1, width, padding).numpy()
        np.testing.assert_allclose(_sines(count, width, padding), theirs[padding:], rtol=0, atol=2e-5)
