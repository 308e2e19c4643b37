"""Folders of sentence-transformers' and ours, read by both. Needs that package; the golden values do not."""

import warnings

import numpy as np
import pytest
import transformer_c as tc
from folders import sentence_folder
from test_sentence import dense_layers
from words import write_tokenizer

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")
pytest.importorskip("tokenizers")

TEXTS = ["abc", "z" * 18, "transformers", "a", "0123456789"]
POOLINGS = [
    ("cls",),
    ("max",),
    ("mean",),
    ("mean_sqrt_len_tokens",),
    ("weightedmean",),
    ("lasttoken",),
    ("cls", "max", "mean"),
    ("lasttoken", "cls"),
]


@pytest.fixture(autouse=True)
def quietly():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def encoder(tmp_path):
    (tmp_path / "source").mkdir()
    sentence_folder(tmp_path / "source")
    write_tokenizer(tmp_path / "source")
    return tc.models.SentenceEncoder.from_pretrained(tmp_path / "source")


def theirs(folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("poolings", POOLINGS, ids="+".join)
def test_poolings(encoder, tmp_path, poolings, normalize):
    made = tc.models.SentenceEncoder(encoder.model, encoder.tokenizer, poolings, normalize)
    made.save(tmp_path / "saved")
    expected = theirs(tmp_path / "saved").encode(TEXTS)
    np.testing.assert_allclose(made.encode(TEXTS), expected, rtol=0, atol=1e-5 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("normalize", [False, True])
def test_the_numbers_that_are_kept(encoder, tmp_path, normalize):
    made = tc.models.SentenceEncoder(encoder.model, encoder.tokenizer, normalize=normalize, truncate_dim=5)
    made.save(tmp_path / "saved")
    other = theirs(tmp_path / "saved")
    if other.truncate_dim is None:  # of versions that do not read it
        other.truncate_dim = 5
    for again in (False, True):
        expected = other.encode(TEXTS, normalize_embeddings=again)
        np.testing.assert_allclose(made.encode(TEXTS, normalize_embeddings=again), expected, rtol=0, atol=1e-5)


def test_dense(encoder, tmp_path):
    made = tc.models.SentenceEncoder(encoder.model, encoder.tokenizer, ("cls", "max"), True, dense=dense_layers())
    made.save(tmp_path / "saved")
    other = theirs(tmp_path / "saved")
    np.testing.assert_allclose(made.encode(TEXTS), other.encode(TEXTS), rtol=0, atol=1e-5)
    other.save(str(tmp_path / "again"))
    read = tc.models.SentenceEncoder.from_pretrained(tmp_path / "again")
    assert repr(read) == repr(made) and np.array_equal(read.encode(TEXTS), made.encode(TEXTS))
