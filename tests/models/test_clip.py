"""CLIP and ImageTextEncoder: transformers' numbers, equal bits in any batch, folders, and what is refused."""

import json

import numpy as np
import pytest
import transformer_c as tc
from golden import load

CASES = load("clip")
OPTIONS, ARRAYS = CASES["clip"]
CONFIG = OPTIONS["config"]
IMAGES = [np.random.default_rng(i).integers(0, 256, (*shape, 3), dtype=np.uint8) for i, shape in enumerate(((9, 14), (20, 8), (8, 8)))]
TEXTS = ["a cat", "the dog", "q", "a large image of a dog"]
MADE = {"size": {"shortest_edge": 8}, "crop_size": {"height": 8, "width": 8}}


def state_of(case="clip"):
    return {name.removeprefix("state."): value for name, value in CASES[case][1].items() if name.startswith("state.")}


def model_of(case="clip", dtype=None, **values):
    return tc.convert.from_hf(state_of(case), {**CASES[case][0]["config"], **values}, dtype=dtype)


def letters(texts):
    """Begins with 3 and ends with 37, as the ids of the cases."""
    found = [np.array([3, *(4 + ord(c) % 32 for c in text[:12]), 37]) for text in texts]
    return [(ids, np.zeros(len(ids), int)) for ids in found]


def encoder_of(**values):
    return tc.models.ImageTextEncoder(model_of(**values), letters)


@pytest.mark.parametrize("case", CASES)
def test_numbers(case):
    arrays = CASES[case][1]
    ids, mask, pixels = (arrays[name] for name in ("ids", "mask", "pixels"))
    for dtype, tolerance in (("float64", 1e-12), ("float32", 2e-6), ("float16", 5e-3), ("bfloat16", 5e-2)):
        model = model_of(case, dtype)
        pairs = [
            (model.vision(pixels), "states.image"),
            (model(ids, pixels, mask), "scores"),
            (model(pixel_values=pixels, input_ids=ids, attention_mask=mask), "scores"),
            (model.of_images(pixels), "vectors.image"),
            *(
                (found, "vectors.text")
                for found in (model.of_texts(ids, mask), model.of_texts(ids, lengths=mask.sum(1)), model.of_texts(ids))
            ),
        ]
        pairs.append((model.text(ids, mask), "states.text"))
        for found, name in pairs:
            expected = arrays[name] * mask[..., None] if name == "states.text" else arrays[name]
            assert found.dtype == dtype and found.shape == expected.shape
            assert np.abs(found.astype(np.float64) - expected).max() <= tolerance * max(1, np.abs(expected).max()), (name, dtype)


SIDES = {"text": ("ids", "of_texts", "CLIPTextModel"), "vision": ("pixels", "of_images", "CLIPVisionModel")}


@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize("side", SIDES)
def test_sides_by_themselves(side, projected, tmp_path):
    """With a projection or without; the names of arrays in files begin with the side's, which those in transformers 5's memory do not."""
    given, function, kind = SIDES[side]
    config = {**CONFIG[f"{side}_config"], "model_type": f"clip_{side}_model", "projection_dim": 10}
    projection = "text_projection.weight" if side == "text" else "visual_projection.weight"
    state = {name: value for name, value in state_of().items() if name.startswith(f"{side}_model.") or (projected and name == projection)}
    model, whole = tc.convert.from_hf(dict(state), config), model_of()
    found = getattr(model, function)(ARRAYS[given])
    expected = whole(**{given: ARRAYS[given]})
    assert isinstance(found, np.ndarray) and found.shape == (len(expected), 10 if projected else CONFIG[f"{side}_config"]["hidden_size"])
    assert not projected or np.array_equal(found, expected)
    assert isinstance(getattr(model, function)(tc.tensor(ARRAYS[given])), tc.Tensor)
    assert np.array_equal(model(ARRAYS[given]), getattr(whole, side)(ARRAYS[given]))
    short = tc.convert.from_hf({name.removeprefix(f"{side}_model."): value for name, value in state.items()}, config)
    assert np.array_equal(getattr(short, function)(ARRAYS[given]), found)
    tc.models.save(model, tmp_path)
    name = kind + ("WithProjection" if projected else "")
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [name]
    assert np.array_equal(getattr(tc.models.load(tmp_path), function)(ARRAYS[given]), found)
    with pytest.raises(tc.CheckpointError, match="does not know: 'logit_scale'|does not know: .*logit_scale"):
        tc.convert.from_hf({**state, "logit_scale": np.zeros((), "f4")}, config)
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    theirs, report = getattr(transformers, name).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    with torch.no_grad():
        output = theirs.eval()(torch.from_numpy(ARRAYS[given]))
    vectors = output[0] if projected else output.pooler_output
    np.testing.assert_allclose(found, vectors.numpy(), rtol=0, atol=1e-5)
    theirs.save_pretrained(tmp_path / "theirs")
    for again in (tc.models.load(tmp_path / "theirs"), tc.convert.from_hf(theirs.state_dict(), theirs.config)):
        assert np.array_equal(getattr(again, function)(ARRAYS[given]), found)


def test_gradients():
    model = model_of()
    scores = model(tc.tensor(ARRAYS["ids"]), tc.tensor(ARRAYS["pixels"]))
    tc.functional.cross_entropy(scores, tc.tensor([0, 2])).backward()
    assert all(p.grad is not None and np.isfinite(p.grad.numpy()).all() for p in model.parameters())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_equal_bits(dtype, isa):
    encoder = tc.models.ImageTextEncoder(model_of(dtype=dtype), letters, MADE | {"do_resize": False})
    mixed = [TEXTS[0], IMAGES[0], IMAGES[1], TEXTS[3], TEXTS[2], IMAGES[2], TEXTS[1]]
    alone = np.stack([encoder.encode(each) for each in mixed])
    assert alone.shape == (7, 10) and alone.dtype == np.float32
    for size in (1, 2, 32):
        assert np.array_equal(encoder.encode(mixed, size), alone)
    scores = encoder.scores(IMAGES, TEXTS)
    assert np.array_equal(encoder.scores(IMAGES[1:2], TEXTS[2:3]), scores[1:2, 2:3])


def test_classes():
    encoder = encoder_of()
    vectors = [encoder.encode(each, normalize_embeddings=True) for each in (IMAGES, [f"a {text}." for text in TEXTS])]
    np.testing.assert_allclose(np.linalg.norm(vectors[0], axis=1), 1, rtol=1e-6)
    expected = np.exp(vectors[0].astype(float) @ vectors[1].T.astype(float) * np.exp(1.375))
    expected /= expected.sum(1, keepdims=True)
    found = encoder.predict_proba(IMAGES, TEXTS, template="a {}.")
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert encoder.predict(IMAGES, TEXTS, template="a {}.").tolist() == [TEXTS[i] for i in found.argmax(1)]
    pixels = np.stack([encoder.preprocessor(image) for image in IMAGES])
    ids = [ids for ids, _ in letters(TEXTS)]
    padded = np.array([[*row, *[0] * (14 - len(row))] for row in ids])
    np.testing.assert_allclose(encoder.model(padded, pixels), encoder.scores(IMAGES, TEXTS), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        encoder.similarity(*map(encoder.encode, (IMAGES, TEXTS))) * np.exp(1.375), encoder.scores(IMAGES, TEXTS), atol=1e-5
    )
    assert encoder.encode([]).shape == (0, 10) and encoder.predict([], TEXTS).shape == (0,) and encoder.scores([], []).shape == (0, 0)


def write_tokenizer(folder):
    tokenizers = pytest.importorskip("tokenizers")
    words = ["[a]", "[b]", "!", "<s>", *"acdimqxyz.", "cat", "the", "dog", "large", "image", "of", "this", "is", "photo"]
    words += [f"<{i}>" for i in range(len(words), 37)] + ["</s>"]
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="!"))
    made.normalizer = tokenizers.normalizers.Lowercase()
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 37), ("<s>", 3), False, False)
    made.save(str(folder / "tokenizer.json"))
    values = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 14, "pad_token": "[b]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(values))


def folder_of(folder, **values):
    tc.models.save(model_of(**values), folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({**MADE, "image_processor_type": "CLIPImageProcessor"}))
    write_tokenizer(folder)
    return folder


def test_folders(tmp_path):
    encoder = tc.models.ImageTextEncoder.from_pretrained(folder_of(tmp_path))
    assert repr(encoder) == "ImageTextEncoder(CLIP, ImagePreprocessor(CLIPImageProcessor, 8 x 8), max_length=14)"
    expected = encoder.encode([*IMAGES, *TEXTS, "of " * 40])
    encoder.save(tmp_path / "saved")
    assert np.array_equal(tc.models.ImageTextEncoder.from_pretrained(tmp_path / "saved").encode([*IMAGES, *TEXTS, "of " * 40]), expected)
    assert tc.models.ImageTextEncoder.from_pretrained(tmp_path, max_length=4, dtype="bfloat16").encode("a dog").shape == (10,)
    older = {**CONFIG, **{f"{side}_config_dict": CONFIG[f"{side}_config"] for side in ("text", "vision")}, "text_config": None}
    older["vision_config"] = {"hidden_size": 24}
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, **older}))
    again = tc.models.ImageTextEncoder.from_pretrained(tmp_path)
    assert np.array_equal(again.encode([*IMAGES, *TEXTS, "of " * 40]), expected) and "text_config_dict" not in again.model.config
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(tc.CheckpointError, match="has no preprocessor_config.json"):
        tc.models.ImageTextEncoder.from_pretrained(tmp_path)


def test_transformers(tmp_path):
    """The folder loads there, and gives the scores and probabilities of its pipeline; what that saves loads here."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    encoder = tc.models.ImageTextEncoder.from_pretrained(folder_of(tmp_path))
    theirs, report = transformers.CLIPModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    processor = transformers.CLIPImageProcessorPil(**MADE)
    given = {**tokenizer(TEXTS, padding=True, return_tensors="pt"), **processor(IMAGES, return_tensors="pt")}
    with torch.no_grad():
        output = theirs.eval()(**{name: given[name] for name in ("input_ids", "attention_mask", "pixel_values")})
    np.testing.assert_allclose(encoder.scores(IMAGES, TEXTS), output.logits_per_image.numpy(), rtol=0, atol=1e-5)
    pillow = pytest.importorskip("PIL.Image")
    images = list(map(pillow.fromarray, IMAGES))
    pipe = transformers.pipeline("zero-shot-image-classification", theirs, tokenizer=tokenizer, image_processor=processor)
    labels = ["cat", "dog", "large dog"]
    for image, found in zip(images, encoder.predict_proba(images, labels), strict=True):
        scores = {each["label"]: each["score"] for each in pipe(image, candidate_labels=labels)}
        np.testing.assert_allclose(found, [scores[label] for label in labels], rtol=0, atol=1e-6)
    theirs.save_pretrained(tmp_path / "theirs")
    for model in (tc.models.load(tmp_path / "theirs"), tc.convert.from_hf(theirs.state_dict(), theirs.config)):
        assert np.array_equal(model.of_images(ARRAYS["pixels"]), encoder.model.of_images(ARRAYS["pixels"]))


@pytest.mark.parametrize(
    ("message", "part", "values"),
    [
        ("config.json's text_config has vocab_size = 'x' but", "text_config", {"vocab_size": "x"}),
        ("config.json's text_config has vocab_size = 1000000000 but 'text_model.embeddings", "text_config", {"vocab_size": 10**9}),
        ("text_config has hidden_act = 'swiglu'; expected one of", "text_config", {"hidden_act": "swiglu"}),
        ("text_config has hidden_act = \\[\\]", "text_config", {"hidden_act": []}),
        ("text_config has max_position_embeddings = 15 but", "text_config", {"max_position_embeddings": 15}),
        ("text_config has num_hidden_layers = 3; the weights have 2 layers", "text_config", {"num_hidden_layers": 3}),
        ("text_config has eos_token_id = -1", "text_config", {"eos_token_id": -1}),
        ("text_config has eos_token_id = \\[2\\]", "text_config", {"eos_token_id": [2]}),
        ("text_config has hidden_size = 12, which is no multiple of num_attention_heads = 5", "text_config", {"num_attention_heads": 5}),
        ("quantization_config", "text_config", {"quantization_config": {}}),
        ("vision_config has num_hidden_layers = 1; the weights have 2 layers", "vision_config", {"num_hidden_layers": 1}),
        ("vision_config has image_size = \\(12, 12\\) and patch_size = \\(4, 4\\) but", "vision_config", {"image_size": 12}),
        ("vision_config has image_size = 1000000000000; expected", "vision_config", {"image_size": 10**12}),
        ("vision_config has intermediate_size = 21 but", "vision_config", {"intermediate_size": 21}),
        ("vision_config has layer_norm_eps = nan", "vision_config", {"layer_norm_eps": float("nan")}),
        ("vision_config has attention_dropout = 2", "vision_config", {"attention_dropout": 2}),
        ("text_config = 5; expected a mapping", None, {"text_config": 5}),
        ("projection_dim = 11 but", None, {"projection_dim": 11}),
        ("logit_scale_init_value = 'x'", None, {"logit_scale_init_value": "x"}),
        ("logit_scale_init_value = nan", None, {"logit_scale_init_value": float("nan")}),
    ],
)
def test_configurations_that_are_refused(message, part, values):
    config = {**CONFIG, part: {**CONFIG[part], **values}} if part else {**CONFIG, **values}
    before = json.dumps(config)
    with pytest.raises(tc.CheckpointError, match=message):
        tc.convert.from_hf(state_of(), config)
    assert json.dumps(config) == before


def test_weights_that_are_refused():
    state = state_of()
    for name in ("logit_scale", "text_projection.weight", "vision_model.pre_layrnorm.bias", "text_model.encoder.layers.1.mlp.fc2.weight"):
        with pytest.raises(tc.CheckpointError, match=f"lack '{name}'"):
            tc.convert.from_hf({key: value for key, value in state.items() if key != name}, CONFIG)
    with pytest.raises(tc.CheckpointError, match=r"'logit_scale' has shape \(1,\)"):
        tc.convert.from_hf({**state, "logit_scale": np.ones(1, "f4")}, CONFIG)
    with pytest.raises(tc.CheckpointError, match="does not know: 'text_model.more'"):
        tc.convert.from_hf({**state, "text_model.more": np.ones(1, "f4")}, CONFIG)
    with pytest.raises(ValueError, match="for clip there are none, or None"):
        tc.convert.from_hf(state, CONFIG, task="image-classification")
    created = tc.models.create(CONFIG)
    assert (
        created.scale.weight.item() == 1.5
        and tc.models.create({"model_type": "clip", **CONFIG, "logit_scale_init_value": None}).scale.weight.item() < 3
    )


def test_calls_that_are_refused():
    encoder, model = encoder_of(), model_of()
    image = IMAGES[0]
    for error, message, call in (
        (TypeError, "inputs must be a sequence of str and images, not None", lambda: encoder.encode(None)),
        (TypeError, "image number 1 has values of object", lambda: encoder.encode(["a", None])),
        (TypeError, "image number 2 has values of float64", lambda: encoder.encode(["a", image, image / 255])),
        (ValueError, "text number 1 has .*half of a pair", lambda: encoder.encode([image, "\ud800"])),
        (TypeError, "put a single one into a list", lambda: encoder.scores(image, ["a"])),
        (TypeError, "texts must be a sequence of str, not str; put a single one", lambda: encoder.scores([image], "a")),
        (TypeError, "texts must be str, but number 0", lambda: encoder.scores([image], [image])),
        (TypeError, "labels must be a sequence of str, not str", lambda: encoder.predict([image], "cat")),
        (TypeError, "labels must be str, but number 1 is 5", lambda: encoder.predict([image], ["cat", 5])),
        (ValueError, "there are no labels", lambda: encoder.predict([image], [])),
        (ValueError, "template must be a str with {}", lambda: encoder.predict([image], ["a"], template="a photo")),
        (ValueError, "batch_size", lambda: encoder.encode(["a"], 0)),
        (TypeError, "normalize_embeddings", lambda: encoder.encode(["a"], normalize_embeddings=2)),
        (TypeError, "ImageTextEncoder.from_pretrained\\('clip'\\) reads a folder", lambda: tc.models.ImageTextEncoder("clip")),
        (
            TypeError,
            "is made of a model of images and texts, .*not Linear",
            lambda: tc.models.ImageTextEncoder(tc.nn.Linear(2, 2), letters),
        ),
        (TypeError, "needs a tokenizer", lambda: tc.models.ImageTextEncoder(model)),
        (tc.CheckpointError, r"images get the size \(9, 9\)", lambda: tc.models.ImageTextEncoder(model, letters, {**MADE, "crop_size": 9})),
        (TypeError, "ids or pixels must be given", lambda: model()),
        (ValueError, "at most 14", lambda: model(np.ones((1, 15), int))),
        (ValueError, "at least the token that ends it", lambda: model(np.ones((1, 0), int))),
        (ValueError, r"expected \(B, 3, 8, 8\)", lambda: model(None, np.ones((1, 3, 8, 9), "f4"))),
        (TypeError, "images are refused|no attribute|is made of", lambda: tc.models.ImageTextEncoder(model.text, letters)),
    ):
        with pytest.raises(error, match=message):
            call()
    with pytest.raises(AttributeError, match=r"encoder.encode\(images\)"):
        _ = encoder.get_image_features
    model.visual_projection.weight.data[0, 0] = np.inf
    with pytest.raises(ValueError, match="for image number 1"):
        tc.models.ImageTextEncoder(model, letters).encode(["a", image])
