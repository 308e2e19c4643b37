"""A text, or an image, has the same bits in any batch: every architecture and head, however it is padded, any dtype, any number of threads."""

import numpy as np
import pytest
import transformer_c as tc
from folders import own_text_encoders, rotates, sizes
from transformer_c.models.architectures import ARCHITECTURES

DTYPES = ["float32", "bfloat16", "float64", "float16"]
# (features, heads, features between): heads of 16, of one and of 32 numbers, and widths that fill no vector.
WIDTHS = [(48, 3, 100), (12, 12, 7), (96, 3, 384)]
# float32 with all of them, each other dtype with one: with attention and products of these sizes tests/ops/test_equal_bits.py has every dtype.
COMBINATIONS = [*((widths, "float32") for widths in WIDTHS), *zip(WIDTHS, DTYPES[1:], strict=True)]
LENGTHS = [1, 2, 3, 5, 15, 16, 17, 31, 33, 64, 65, 100, 130]  # around vectors, blocks of keys and of rows


def create(kind, widths, dtype, task, image=(12, 8)):
    """A model for texts or images."""
    width, heads, hidden = widths
    if rotates(kind) and heads == width:
        heads //= 2
    values = {**sizes(width=width, heads=heads, hidden=hidden, layers=2, words=60, positions=170), "image_size": image, "patch_size": 4}
    tc.manual_seed(0)
    return tc.models.create({"model_type": kind, "num_labels": 3, "initializer_range": 0.2, **values}, task=task).to(dtype=dtype)


def padded(texts, width, padding):
    ids = np.full((len(texts), width), padding)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = text
    return ids


def own(states, number, length):
    """The bits of a text's states, without those of padded positions."""
    found = np.asarray(states)[number]
    return (found[:length] if found.ndim == 2 else found).tobytes()


@pytest.fixture
def with_threads():
    """Sets the number of threads until the test ends."""
    before = tc.get_num_threads()
    yield tc.set_num_threads
    tc.set_num_threads(before)


@pytest.mark.parametrize("widths, dtype", COMBINATIONS, ids=str)
@pytest.mark.parametrize("kind", own_text_encoders())
def test_texts(kind, widths, dtype, isa, with_threads):
    rng = np.random.default_rng(1)
    texts = [rng.integers(4, 60, n) for n in LENGTHS]
    for task in (None, *ARCHITECTURES[kind].table.heads) if widths == WIDTHS[0] else (None,):
        model = create(kind, widths, dtype, task)
        padding = (model if task is None else model.encoder).words.padding_idx or 0
        with_threads(1)
        alone = [own(model(text[None]), 0, len(text)) for text in texts]
        assert len(set(alone)) == len(texts)
        for threads, size, more in ((2, 1, 5), (1, 2, 0), (2, 3, 20), (1, len(texts), 0), (2, len(texts), 30)):
            with_threads(threads)
            for begin in range(0, len(texts), size):
                batch = texts[begin : begin + size]
                lengths = np.array([len(text) for text in batch])
                ids = padded(batch, lengths.max() + more, padding)
                given = {"lengths": lengths} if begin % 2 else {"mask": np.arange(ids.shape[1]) < lengths[:, None]}
                states = model(ids, **given)
                for i, text in enumerate(batch):
                    assert own(states, i, len(text)) == alone[begin + i], (task, len(text), threads, size, more, *given)


def is_split():
    """Whether the last product went through tiles of AMX, as those of long texts do."""
    return tc.config.last_plans("cpu")["gemm"]["variant"].startswith("tiles x 6")


@pytest.mark.parametrize("kind", own_text_encoders())
def test_long_texts_of_wide_models(kind, isa, with_threads):
    """Of widths whose products are split from 128 tokens on, packed with shorter ones and among others of their length."""
    rng = np.random.default_rng(4)
    lengths = np.array([127, 7, 128, 150, 128])
    texts = [rng.integers(4, 60, n) for n in lengths]
    model = create(kind, (384, 6, 390), "float32", None)
    with_threads(1)
    alone = []
    for text in texts:
        alone.append(own(model(text[None]), 0, len(text)))
        assert is_split() == (isa == "amx" and len(text) >= 128)
    with_threads(2)
    for rows in ([0, 1, 2, 3, 4], [4, 2], [3, 1]):
        states = model(padded([texts[i] for i in rows], 160, model.words.padding_idx or 0), lengths=lengths[rows])
        assert [own(states, i, lengths[row]) for i, row in enumerate(rows)] == [alone[row] for row in rows]


@pytest.mark.parametrize("image", [(32, 64), (40, 60)], ids=["129 positions", "151 positions"])
def test_large_images_of_wide_models(image, isa, with_threads):
    model = create("vit", (384, 6, 390), "float32", None, image)
    pixels = np.random.default_rng(5).standard_normal((3, 3, *image)).astype(np.float32)
    with_threads(1)
    alone = [own(model(each[None]), 0, None) for each in pixels]
    assert is_split() == (isa == "amx") and len(set(alone)) == 3
    with_threads(2)
    states = model(pixels)
    assert [own(states, i, None) for i in range(3)] == alone


@pytest.mark.parametrize("dtype", DTYPES)
def test_pairs_of_texts(dtype, isa):
    """With the parts of a pair, and both ways to say where a text ends."""
    rng = np.random.default_rng(2)
    model = create("bert", WIDTHS[0], dtype, None)
    texts = [rng.integers(4, 60, n) for n in (7, 33, 120)]
    lengths = np.array([len(text) for text in texts])
    ids = padded(texts, 140, 0)
    types = (np.arange(140) > 3).astype(np.int64) * np.ones_like(ids)
    mask = np.arange(140) < lengths[:, None]
    for states in (model(ids, mask, token_types=types), model(ids, lengths=lengths, token_types=types)):
        for i, (text, row) in enumerate(zip(texts, types, strict=True)):
            assert own(states, i, len(text)) == own(model(text[None], token_types=row[None, : len(text)]), 0, len(text))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("task", [None, "image-classification"])
@pytest.mark.parametrize("kind", ["dinov2_with_registers", "vit"])
def test_images(kind, widths, dtype, task, isa, with_threads):
    model = create(kind, widths, dtype, task, *([] if kind == "vit" else [(12, 12)]))
    pixels = tc.tensor(np.random.default_rng(3).standard_normal((9, 3, 12, 8)).astype(np.float32)).to(dtype)
    with_threads(1)
    alone = [own(model(pixels[i : i + 1]).detach(), 0, 7) for i in range(9)]
    assert len(set(alone)) == 9
    for threads, size in ((2, 1), (1, 2), (2, 4), (2, 9)):
        with_threads(threads)
        for begin in range(0, 9, size):
            states = model(pixels[begin : begin + size]).detach()
            assert [own(states, i, 7) for i in range(len(states))] == alone[begin : begin + size]
