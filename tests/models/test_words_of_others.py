"""Names that users of transformers and sentence-transformers know: taken where they ask for what is done anyway, explained otherwise."""

import numpy as np
import pytest
import transformer_c as tc
from folders import CONFIG, DECODER, sentence_folder
from words import letters

IDS = np.array([[2, 7, 9, 3], [2, 8, 3, 0]])
MASK = (IDS != 0).astype(int)
NAMED = {"input_ids": IDS, "attention_mask": MASK}


@pytest.fixture(scope="module")
def encoder():
    tc.manual_seed(1)
    return tc.models.SentenceEncoder(tc.models.create({**CONFIG, "initializer_range": 0.3}), letters)


@pytest.mark.parametrize("task", [None, "text-classification", "token-classification", "question-answering", "fill-mask"])
def test_what_a_tokenizer_of_transformers_gives(task):
    model = tc.models.create(CONFIG, task=task)
    types = np.ones_like(IDS)
    expected = model(IDS, MASK, token_types=types)
    assert np.array_equal(model(**NAMED, token_type_ids=types), expected)
    assert np.array_equal(model(IDS, attention_mask=MASK, token_types=types, labels=None), expected)
    assert isinstance(model(input_ids=tc.tensor(IDS)), tc.Tensor)


def test_images():
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "image_size": 8, "patch_size": 4}
    pixels = np.ones((1, 3, 8, 8), np.float32)
    for task in (None, "image-classification"):
        model = tc.models.create({"model_type": "vit", **sizes}, task=task)
        assert np.array_equal(model(pixel_values=pixels), model(pixels))


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("labels", "cross_entropy"),
        ("output_attentions", "tc.nn.attention_maps"),
        ("return_dict", "the array itself"),
        ("position_ids", "counted"),
        ("inputs_embeds", "numbers of tokens"),
        ("past_key_values", "cache=tc.models.Cache"),
        ("use_cache", "cache=tc.models.Cache"),
        ("logits_to_keep", "last=True"),
        ("token_type", "did you mean 'token_types'"),
        ("x", "it has ids, mask, lengths, token_types"),
    ],
)
def test_arguments_of_a_model(encoder, name, advice):
    with pytest.raises(TypeError, match=rf"forward\(\) has no option {name!r}: .*{advice}"):
        encoder.model(IDS, **{name: np.array([True, False])})


def test_generate():
    model = tc.models.create(DECODER, task="text-generation")
    expected = model.generate(IDS, 3)
    assert np.array_equal(model.generate(input_ids=IDS, attention_mask=None, max_new_tokens=3, num_beams=1, use_cache=True), expected)
    assert np.array_equal(model(input_ids=IDS, past_key_values=None, use_cache=False), model(IDS))
    for name, advice in (("attention_mask", r"lengths=mask.sum\(1\)"), ("max_length", "max_new_tokens"), ("streamer", "TextGenerator")):
        with pytest.raises(TypeError, match=rf"generate\(\) has no option {name!r}: .*{advice}"):
            model.generate(IDS, **{name: MASK})


def test_encode(encoder):
    expected = encoder.encode(["abc", "z"])
    harmless = {"convert_to_numpy": True, "convert_to_tensor": False, "show_progress_bar": None, "device": "cpu", "precision": "float32"}
    assert np.array_equal(encoder.encode(["abc", "z"], **harmless), expected)
    lengths = np.linalg.norm(expected.astype(np.float64), axis=1, keepdims=True)
    assert not np.allclose(lengths, 1, atol=0.1)
    found = encoder.encode(["abc", "z"], normalize_embeddings=True)
    np.testing.assert_allclose(found, expected / lengths, rtol=1e-6)
    assert np.array_equal(encoder.encode("z", normalize_embeddings=True), found[1]) and found.dtype == np.float32
    for options, advice in (
        ({"convert_to_numpy": False}, "an ndarray"),
        ({"convert_to_tensor": True}, r"tc\.tensor"),
        ({"device": "cuda"}, r"encoder\.model\.to"),
        ({"precision": "int8"}, "quantise"),
        ({"output_value": "token_embeddings"}, r"encoder\.model"),
    ):
        with pytest.raises(TypeError, match=f"encode.. has no option .*{advice}"):
            encoder.encode(["abc"], **options)


def test_cross_encoders():
    scorer = tc.models.CrossEncoder(tc.models.create({**CONFIG, "num_labels": 1}, task="text-classification"), letters_of_pairs)
    expected = scorer.predict([("a", "b")])
    assert np.array_equal(scorer.predict([("a", "b")], show_progress_bar=False, convert_to_numpy=True, activation_fn=None), expected)
    assert scorer.rank("a", ["b"], show_progress_bar=False)[0]["score"] == expected[0]
    with pytest.raises(TypeError, match=r"apply_softmax.*np\.exp"):
        scorer.predict([("a", "b")], apply_softmax=True)


def letters_of_pairs(pairs):
    return letters(["".join(both) for both in pairs])


@pytest.mark.parametrize("kind", [tc.models.SentenceEncoder, tc.models.CrossEncoder])
def test_a_folder_in_the_place_of_a_model(kind, tmp_path):
    with pytest.raises(TypeError, match=rf"{kind.__name__}\.from_pretrained\('all-MiniLM-L6-v2'\) reads a folder"):
        kind("all-MiniLM-L6-v2")
    with pytest.raises(TypeError, match="reads a folder"):
        kind(tmp_path)
    with pytest.raises(TypeError, match="needs a tokenizer, a function"):
        kind(tc.models.create(CONFIG, task="text-classification"), "bert-base-uncased")


def test_reading(tmp_path):
    pytest.importorskip("tokenizers")
    sentence_folder(tmp_path)
    read = tc.models.SentenceEncoder.from_pretrained
    given = read(tmp_path, device="cpu", torch_dtype="float64", trust_remote_code=False, local_files_only=True)
    assert np.array_equal(given.encode("abc"), read(tmp_path, dtype="float64").encode("abc"))
    assert tc.models.load(tmp_path, torch_dtype="float64").words.weight.dtype == np.float64
    for options, advice in (
        ({"device": "cuda"}, r"model\.to"),
        ({"trust_remote_code": True}, "executed"),
        ({"max_seq_length": 8}, "max_length="),
    ):
        with pytest.raises(TypeError, match=advice):
            read(tmp_path, **options)


def test_names():
    for module in (tc, tc.models):
        with pytest.raises(AttributeError, match=r"tc\.models\.SentenceEncoder\.from_pretrained\(folder\)"):
            module.SentenceTransformer  # noqa: B018
        with pytest.raises(AttributeError, match=r"tc\.models\.load\(folder\)"):
            module.AutoModel  # noqa: B018
    for name in ("AutoTokenizer", "AutoConfig", "pipeline", "AutoModelForMaskedLM"):
        with pytest.raises(AttributeError, match="; use "):
            getattr(tc.models, name)
