"""The book chapter: attention step by step, Keras's encoder and its weights, the model of film reviews."""

import inspect
import pathlib

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from transformer_c.tutorials import keras_book

OPTIONS, SMALL = load("keras")["small"]
WEIGHTS = pathlib.Path(__file__).parents[1] / "golden" / "small.weights.h5"
ENCODER = {k: v for k, v in OPTIONS.items() if k != "vocab_size"}


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ---- step by step ---------------------------------------------------------------------------------------------------------------------


def test_self_attention_without_parameters(rng):
    x = rng.standard_normal((2, 5, 4))
    np.testing.assert_allclose(keras_book.self_attention(x), softmax(x @ x.swapaxes(1, 2)) @ x, rtol=1e-12)


@pytest.mark.parametrize("width", [2, 4])
def test_attention_with_parameters(rng, width):
    """Heads of d / H and of d: 2 of 2 or of 4 features."""
    x = rng.standard_normal((3, 5, 4))
    w_q, w_k, w_v = rng.standard_normal((3, 2, 4, width))
    w_o = rng.standard_normal((2 * width, 4))
    heads = [softmax(x @ q @ (x @ k).swapaxes(1, 2) / np.sqrt(width)) @ (x @ v) for q, k, v in zip(w_q, w_k, w_v, strict=True)]
    np.testing.assert_allclose(keras_book.scaled_self_attention(x, w_q[1], w_k[1], w_v[1]), heads[1], rtol=1e-10)
    np.testing.assert_allclose(
        keras_book.multi_head_self_attention(x, w_q, w_k, w_v, w_o), np.concatenate(heads, -1) @ w_o, rtol=1e-9, atol=1e-12
    )


def test_formulas_of_the_encoder(rng):
    """Z = LayerNorm(X + SelfAttn(X)), R = LayerNorm(Z + DFN(Z)), written out with the module's weights."""
    encoder = keras_book.TransformerEncoder(embed_dim=4, dense_dim=16, num_heads=2).double()
    state = {k: v.numpy() for k, v in encoder.state_dict().items()}
    x = rng.standard_normal((3, 5, 4))
    norm = lambda a: (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-3)
    per_head = lambda name: state[f"attention.{name}.weight"].reshape(2, 4, 4).swapaxes(1, 2)
    z = norm(x + keras_book.multi_head_self_attention(x, *map(per_head, ("query", "key", "value")), state["attention.output.weight"].T))
    hidden = np.maximum(z @ state["dense_proj.0.weight"].T, 0)
    np.testing.assert_allclose(encoder(x), norm(z + hidden @ state["dense_proj.2.weight"].T), rtol=1e-9, atol=1e-12)


# ---- the encoder and the model --------------------------------------------------------------------------------------------------------


def test_parameter_counts():
    model = keras_book.build_model()
    encoder = model.transformer_encoder
    counts = [parameters(part) for part in (encoder.attention, encoder.dense_proj, encoder.layernorm_1, encoder.layernorm_2)]
    assert counts == [8416, 2112, 64, 64] and parameters(encoder) == 10_656
    assert parameters(model) == 650_689 and parameters(model.embedding) == 640_000
    lines = model.summary().splitlines()
    assert lines[-1].split() == ["Total", "650,689"] and lines[3].split() == ["transformer_encoder", "TransformerEncoder", "10,656"]


def test_signature_and_configuration():
    assert list(inspect.signature(keras_book.TransformerEncoder).parameters)[:3] == ["embed_dim", "dense_dim", "num_heads"]
    encoder = keras_book.TransformerEncoder(8, 12, 3, name="first")
    config = encoder.get_config()
    assert config == {"name": "first", "embed_dim": 8, "num_heads": 3, "dense_dim": 12}
    again = keras_book.TransformerEncoder.from_config(config)
    assert {k: v.shape for k, v in again.state_dict().items()} == {k: v.shape for k, v in encoder.state_dict().items()}


def test_initial_weights_are_keras(rng):
    tc.manual_seed(1)
    model = keras_book.build_model()
    state = {k: v.numpy() for k, v in model.state_dict().items()}
    bounds = {
        "embedding.weight": 0.05,
        "transformer_encoder.attention.query.weight": 0.25,
        "transformer_encoder.attention.output.weight": 0.25,
    }
    bounds |= {"transformer_encoder.dense_proj.0.weight": np.sqrt(6 / 64), "dense.weight": np.sqrt(6 / 33)}
    for name, bound in bounds.items():
        assert 0.9 * bound < np.abs(state[name]).max() <= bound, name
    assert all((value == 0).all() for name, value in state.items() if name.endswith("bias"))
    assert model.transformer_encoder.layernorm_1.eps == 1e-3


def test_mask(rng):
    """True attends; nothing behind the mask matters; words that are masked themselves still get a result."""
    encoder = keras_book.TransformerEncoder(4, 6, 2)
    x = rng.standard_normal((2, 5, 4)).astype(np.float32)
    mask = np.arange(5) < np.array([[5], [3]])
    y = encoder(x, mask)
    assert y.shape == x.shape and (y[0] == encoder(x)[0]).all()
    other = x.copy()
    other[1, 3:] = 100
    assert (encoder(other, mask)[1, :3] == y[1, :3]).all()
    np.testing.assert_allclose(y[1, :3], encoder(x[1:, :3])[0], atol=1e-6)
    assert (encoder(x, mask.astype(np.int64)) == y).all()


def test_maps(rng):
    attention = keras_book.MultiHeadAttention(num_heads=3, key_dim=5, embed_dim=4)
    query, value = rng.standard_normal((2, 6, 4)).astype(np.float32), rng.standard_normal((2, 7, 4)).astype(np.float32)
    y, maps = attention(query, value, return_attention_scores=True)
    assert y.shape == (2, 6, 4) and maps.shape == (2, 3, 6, 7)
    np.testing.assert_allclose(maps.sum(-1), 1, rtol=1e-5)


def test_model(rng):
    model = keras_book.build_model().eval()
    words = rng.integers(0, 20000, (4, 600))
    y = model(words)
    assert y.shape == (4, 1) and ((y > 0) & (y < 1)).all() and (model.predict(words) == y).all()
    assert (model.train()(words) != y).any()  # dropout


# ---- Keras's numbers -------------------------------------------------------------------------------------------------------------------


def loaded(cls, **options):
    pytest.importorskip("h5py")
    module = cls(**options)
    module.load_keras_weights(WEIGHTS)
    return module


def test_encoder_with_weights_of_keras():
    encoder = loaded(keras_book.TransformerEncoder, **ENCODER)
    np.testing.assert_allclose(encoder(SMALL["inputs"]), SMALL["y"], atol=2e-6)
    np.testing.assert_allclose(encoder(SMALL["inputs"], SMALL["mask"]), SMALL["masked"], atol=2e-6)


def test_model_and_training_of_keras():
    """Probabilities, then twenty losses by binary cross-entropy and RMSprop."""
    model = loaded(keras_book.ReviewModel, **OPTIONS, dropout=0.0)
    np.testing.assert_allclose(model(SMALL["numbers"]), SMALL["probability"], atol=1e-6)
    optimizer, losses = model.configure_optimizers(), []
    for step in range(20):
        optimizer.zero_grad()
        loss = model.training_step((tc.tensor(SMALL["numbers"]), tc.tensor(SMALL["labels"])), step)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    np.testing.assert_allclose(losses, SMALL["losses"], atol=1e-5)
    assert losses[-1] < losses[0]


def test_keras_weights_that_do_not_fit(tmp_path):
    h5py = pytest.importorskip("h5py")
    encoder = keras_book.TransformerEncoder(**{**ENCODER, "num_heads": 2})
    before = {k: v.numpy().copy() for k, v in encoder.state_dict().items()}
    with pytest.raises(tc.CheckpointError, match=r"query_dense/vars/0.*\(4, 3, 4\); expected floats \(4, 2, 4\)"):
        encoder.load_keras_weights(WEIGHTS)
    with pytest.raises(FileNotFoundError):
        encoder.load_keras_weights(tmp_path / "nowhere.h5")
    (tmp_path / "text.h5").write_text("no HDF5")
    with pytest.raises(OSError):
        encoder.load_keras_weights(tmp_path / "text.h5")
    (tmp_path / "cut.h5").write_bytes(WEIGHTS.read_bytes()[:20_000])
    with pytest.raises((OSError, tc.CheckpointError)):
        encoder.load_keras_weights(tmp_path / "cut.h5")
    with h5py.File(tmp_path / "empty.h5", "w"):
        pass
    with pytest.raises(tc.CheckpointError, match="0 encoders.*no arrays"):
        encoder.load_keras_weights(tmp_path / "empty.h5")
    assert all((v.numpy() == before[k]).all() for k, v in encoder.state_dict().items())


@pytest.mark.parametrize("kind", ["missing", "integers", "link", "external"])
def test_keras_weights_that_are_hostile(tmp_path, kind):
    """Arrays elsewhere, by a link or as external storage, are not followed."""
    h5py = pytest.importorskip("h5py")
    place, file = "layers/transformer_encoder/layernorm_2/vars/1", tmp_path / "changed.weights.h5"
    file.write_bytes(WEIGHTS.read_bytes())
    with h5py.File(file, "r+") as h5:
        del h5[place]
        if kind == "integers":
            h5[place] = np.zeros(4, np.int64)
        elif kind == "link":
            h5[place] = h5py.ExternalLink(str(WEIGHTS), place)
        elif kind == "external":
            (tmp_path / "secret").write_bytes(bytes(16))
            h5.create_dataset(place, (4,), np.float32, external=[(str(tmp_path / "secret"), 0, 16)])
    encoder = keras_book.TransformerEncoder(**ENCODER)
    with pytest.raises(tc.CheckpointError, match=f"{place}.*expected floats" if kind == "integers" else f"no array {place}"):
        encoder.load_keras_weights(file)


def test_keras_weights_that_are_damaged(tmp_path):
    """A byte changed in each of many places: the weights, or an error that names the file, and never half of them."""
    pytest.importorskip("h5py")
    whole, kinds = WEIGHTS.read_bytes(), set()
    encoder = keras_book.TransformerEncoder(**ENCODER)
    before = encoder.layernorm_1.weight.numpy().copy()
    for start in range(0, len(whole), 97):
        data = bytearray(whole)
        data[start] ^= 0xA5
        file = tmp_path / "damaged.h5"
        file.write_bytes(data)
        try:
            keras_book.TransformerEncoder(**ENCODER).load_keras_weights(file)
        except tc.CheckpointError as error:
            assert "damaged.h5" in str(error)
            kinds.add("damaged" if "is damaged (" in str(error) else "other")
            with pytest.raises(tc.CheckpointError):
                encoder.load_keras_weights(file)
        except OSError:
            kinds.add("OSError")
    assert "damaged" in kinds and (encoder.layernorm_1.weight.numpy() == before).all()


# ---- reviews ----------------------------------------------------------------------------------------------------------------------------


def make_reviews(folder, rng, count):
    """Folders of reviews with words that only one kind has, among others."""
    words = {"neg": ["dull", "awful", "boring"], "pos": ["great", "lovely", "brilliant"]}
    for name, own in words.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            text = [*rng.choice(["the", "film", "plot", "was", "an", "actor", "scene"], 12), *rng.choice(own, 2)]
            (folder / name / f"{i}.txt").write_text(" ".join(rng.permutation(text)) + "!")
    return tc.datasets.load_reviews(folder)


def test_reviews_are_learned(tmp_path, rng):
    """The chapter's way from files to a trained model, on reviews made here."""
    tc.manual_seed(3)
    train, tested = make_reviews(tmp_path / "train", rng, 128), make_reviews(tmp_path / "test", rng, 32)
    vectorization = keras_book.TextVectorization(max_tokens=200, output_mode="int", output_sequence_length=20)
    vectorization.adapt(train[0])
    loader = keras_book.review_loader(*train, vectorization, batch_size=32, shuffle=True)
    words, labels = next(iter(loader))
    assert words.shape == (32, 20) and words.dtype == np.int64 and labels.shape == (32,)
    model = keras_book.build_model(vocab_size=200, embed_dim=8, num_heads=2, dense_dim=8)
    optimizer = model.configure_optimizers()
    for _ in range(25):
        for i, batch in enumerate(loader):
            optimizer.zero_grad()
            model.training_step(batch, i).backward()
            optimizer.step()
    predicted = model.eval().predict(vectorization(tested[0]))[:, 0] > 0.5
    assert (predicted == tested[1]).mean() > 0.9
    model.validation_step(next(iter(keras_book.review_loader(*tested, vectorization, batch_size=64))), 0)
    assert model.logged["val_accuracy"] > 0.9 and model.logged["val_loss"] < 0.5


def test_the_vocabulary_is_in_the_checkpoint(tmp_path):
    """A model that is told its vocabulary reads texts when it comes back from a file."""
    vectorization = keras_book.TextVectorization(max_tokens=6, output_sequence_length=4)
    vectorization.adapt(["good good film", "bad bad film"])
    words = vectorization.get_vocabulary()
    model = keras_book.ReviewModel(6, 4, 2, 4, lr=0.5, vocabulary=words, sequence_length=4).eval()
    tc.save(model, tmp_path / "m.safetensors")
    found = keras_book.ReviewModel.load_from_checkpoint(tmp_path / "m.safetensors")
    texts = ["A good film!", "Bad, bad.", "unknown"]
    assert found.vectorization().get_vocabulary() == words
    assert np.array_equal(found.predict_texts(texts, batch_size=2), np.asarray(model(vectorization(texts)))[:, 0])
    assert found.train().predict_texts([]).shape == (0,) and found.training
    frozen = next(found.children()).eval()
    found.predict_texts(texts)
    assert found.training and not frozen.training  # each part is in the mode that it had
    assert found.configure_optimizers().param_groups[0]["lr"] == 0.5
    with pytest.raises(RuntimeError, match="without a vocabulary"):
        keras_book.ReviewModel(6, 4, 2, 4).predict_texts(texts)
    with pytest.raises(ValueError, match="5 words; vocab_size=4"):
        keras_book.ReviewModel(4, vocabulary=words)


@pytest.mark.parametrize("count", [0, 10, 25])
def test_split(count):
    """Every review is in one part; the parts are those of the seed."""
    train, val, test = keras_book.split_reviews(count, seed=4)
    assert sorted([*train, *val, *test]) == list(range(count)) and (len(test), len(val)) == (count // 5, count * 3 // 10 - count // 5)
    assert all(np.array_equal(a, b) for a, b in zip((train, val, test), keras_book.split_reviews(count, seed=4), strict=True))
