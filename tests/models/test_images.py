"""Images: pixels as transformers' image processors make them, and ImageClassifier, with what both refuse."""

import io
import json
import sys

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from transformer_c.models.images import ImagePreprocessor, checked

OPTIONS, ARRAYS = load("images")["processors"]
IMAGES = [ARRAYS[f"image.{i}"] for i in range(3)]
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "initializer_range": 0.3}
VIT = {"model_type": "vit", **SMALL, "image_size": [8, 8], "patch_size": 4}
MADE = {"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8}}
NAMES = ("cat", "dog", "fish")


def model_of(task="image-classification", labels=NAMES, **values):
    tc.manual_seed(1)
    return tc.models.create({**VIT, "id2label": {str(i): name for i, name in enumerate(labels)}, **values}, task=task)


def folder_of(folder, values=MADE, **config):
    tc.models.save(model_of(**config), folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(values))
    return folder


@pytest.fixture
def pillow():
    return pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("call", range(len(OPTIONS["calls"])))
def test_pixels_of_transformers(call, pillow):
    number, kind, values = OPTIONS["calls"][call]
    for written in (
        {"image_processor_type": f"{kind}Fast"},
        {"feature_extractor_type": kind.replace("ImageProcessor", "FeatureExtractor")},
    ):
        preprocess = ImagePreprocessor({**written, **values}, "", (1, 1), free=True)
        found = preprocess(IMAGES[number])
        assert found.dtype == np.float32 and np.array_equal(found, ARRAYS[f"pixels.{call}"])
        assert np.array_equal(ImagePreprocessor(preprocess.values, "", (1, 1), free=True)(pillow.fromarray(IMAGES[number])), found)


def test_pixels_as_transformers_computes_them_now(pillow):
    """And by torchvision, where that is installed, to one of the 256 values."""
    transformers = pytest.importorskip("transformers")
    for call, (number, kind, values) in enumerate(OPTIONS["calls"]):
        found = getattr(transformers, f"{kind}Pil")(**values)(IMAGES[number], return_tensors="np")["pixel_values"][0]
        np.testing.assert_array_equal(found, ARRAYS[f"pixels.{call}"])


def test_pipeline_of_transformers(tmp_path, pillow):
    transformers = pytest.importorskip("transformers")
    images = [pillow.fromarray(IMAGES[0]), pillow.fromarray(IMAGES[1]).convert("L"), pillow.fromarray(IMAGES[2]).convert("P")]
    images.append(images[0].copy())
    images[-1].getexif()[0x0112] = 6  # taken with the camera on its side
    for values in ({}, {"problem_type": "multi_label_classification"}, {"problem_type": "regression"}):
        classifier = tc.models.ImageClassifier(folder_of(tmp_path, **values))
        classifier.save(tmp_path / "saved")  # which has all that theirs needs
        theirs = transformers.pipeline(
            "image-classification", str(tmp_path / "saved"), image_processor=transformers.ViTImageProcessorPil(**MADE)
        )
        expected = np.array([[{each["label"]: each["score"] for each in found}[name] for name in NAMES] for found in theirs(images)])
        found = classifier.predict(images) if values.get("problem_type") == "regression" else classifier.predict_proba(images)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
        own = transformers.AutoImageProcessor.from_pretrained(tmp_path / "saved", backend="pil")
        assert own.to_dict()["size"] == MADE["size"]


def test_folders(tmp_path, pillow):
    classifier = tc.models.ImageClassifier.from_pretrained(folder_of(tmp_path))
    assert repr(classifier) == "ImageClassifier(vit, 3 classes, ImagePreprocessor(ViTImageProcessor, 8 x 8))"
    expected = classifier.predict_proba(IMAGES)
    assert expected.shape == (3, 3) and classifier.predict(IMAGES).tolist() == [NAMES[i] for i in expected.argmax(1)]
    best = classifier.top(IMAGES, 2)
    assert [[label for label, _ in row] for row in best] == [[NAMES[i] for i in np.argsort(-row)[:2]] for row in expected]
    assert [score for (_, score), *_ in best] == expected.max(1).tolist() and len(classifier.top(IMAGES)[0]) == 3
    pixels = np.stack([classifier.preprocessor_(image) for image in IMAGES])
    scores = np.exp(tc.models.load(tmp_path, task="image-classification")(pixels).astype(np.float64))
    np.testing.assert_allclose(expected, scores / scores.sum(1, keepdims=True), rtol=1e-12)
    classifier.save(tmp_path / "saved")
    assert np.array_equal(tc.models.ImageClassifier(tmp_path / "saved").predict_proba(IMAGES), expected)
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": MADE}))  # as transformers 5 writes it
    (tmp_path / "preprocessor_config.json").unlink()
    assert np.array_equal(tc.models.ImageClassifier(tmp_path).predict_proba(IMAGES), expected)
    (tmp_path / "processor_config.json").unlink()
    with pytest.raises(tc.CheckpointError, match="has no preprocessor_config.json"):
        tc.models.ImageClassifier(tmp_path)
    assert np.array_equal(tc.models.ImageClassifier(tmp_path, preprocessor=MADE).predict_proba(IMAGES), expected)


def test_sizes_that_differ(pillow):
    """A model that interpolates positions takes them, each size by itself."""
    tc.manual_seed(1)
    model = tc.models.create(
        {"model_type": "dinov2", **SMALL, "image_size": 16, "patch_size": 4, "mlp_ratio": 2}, task="image-classification"
    )
    classifier = tc.models.ImageClassifier(model)
    assert classifier.preprocessor_(IMAGES[1]).shape == (3, 16, 16) and classifier.predict(IMAGES).shape == (3,)
    smaller = tc.models.ImageClassifier(model, preprocessor={"size": {"shortest_edge": 10}, "crop_size": 8})
    assert smaller.preprocessor_(IMAGES[1]).shape == (3, 8, 8) and smaller.predict(IMAGES).shape == (3,)
    free = tc.models.ImageClassifier(model, preprocessor={"size": {"shortest_edge": 8}, "do_center_crop": False})
    assert free.predict(IMAGES, batch_size=1).shape == (3,)
    with pytest.raises(ValueError, match="image number 1 has 8 x 11 pixels after preprocessing, and number 0 has 11 x 8: batch_size=1"):
        free.predict(IMAGES)
    same = [IMAGES[0]] * 9
    with pytest.raises(ValueError, match="image number (9 has 8 x 11|. has 11 x 8) pixels after .* and number (9 has 8 x 11|. has 11 x 8)"):
        free.set_params(random_state=0, batch_size=10).fit([*same, IMAGES[1]], ["a", "b"] * 5)  # by their numbers in the list
    tiny = tc.models.ImageClassifier(model, preprocessor={"do_resize": False, "do_center_crop": False})
    with pytest.raises(ValueError, match=r"pixels have shape \(1, 3, 3, 9\); expected \(B, 3, 4 or more, 4 or more\)"):
        tiny.predict([np.zeros((3, 9, 3), np.uint8)])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_any_batch(tmp_path, pillow, dtype, isa):
    classifier = tc.models.ImageClassifier(folder_of(tmp_path), dtype=dtype)
    images = [*IMAGES, *(image[:, ::-1] for image in IMAGES)]
    expected = np.concatenate([classifier.predict_proba([image]) for image in images])
    for given in (images, tuple(map(pillow.fromarray, images)), np.array([*images, None], object)[:-1]):
        for size in (1, 4, 32):
            assert np.array_equal(classifier.predict_proba(given, batch_size=size), expected)
    assert classifier.predict_proba([]).shape == (0, 3) and classifier.predict([]).shape == (0,)
    together = np.stack([pillow.fromarray(image).resize((8, 8)) for image in images])
    assert classifier.predict(together).shape == classifier.predict(tc.tensor(together)).shape == (6,)


def test_colours(pillow):
    make = ImagePreprocessor({**MADE, "size": 12, "do_normalize": False, "do_rescale": False}, "", (12, 12))
    square = IMAGES[0][:12]
    expected = square.transpose(2, 0, 1)
    assert np.array_equal(make(pillow.fromarray(square)), expected)
    grey = pillow.fromarray(square[:, :, 0])
    assert np.array_equal(make(grey), np.stack([square[:, :, 0]] * 3))
    assert np.array_equal(make(grey.convert("1")), np.stack([np.asarray(grey.convert("1")) * 255] * 3))
    clear = np.dstack([square, np.where(np.arange(12) < 6, 255, 0).astype(np.uint8) * np.ones((12, 1), np.uint8)])
    assert np.array_equal(make(pillow.fromarray(clear)), np.where(np.arange(12) < 6, expected, 255))  # on white
    turned = pillow.fromarray(np.rot90(square))
    turned.getexif()[0x0112] = 6
    assert np.array_equal(make(turned), expected)
    stream = io.BytesIO()
    pillow.fromarray(square).save(stream, "PNG")
    assert np.array_equal(make(checked([pillow.open(io.BytesIO(stream.getvalue()))])[0]), expected)
    assert np.array_equal(make(square[::-1][::-1]), expected) and np.array_equal(make(np.asfortranarray(square)), expected)


@pytest.mark.parametrize(
    ("y", "problem"),
    [
        (list(NAMES), "single_label_classification"),
        ([0, 5, 0], "single_label_classification"),
        (np.array([[0, 1], [1, 1], [0, 0]]), "multi_label_classification"),
        ([0.5, 0.25, 1.0], "regression"),
    ],
)
def test_fit(y, problem, pillow, tmp_path):
    """Whose loop is that of texts; a model that is given is not changed."""
    model = model_of()
    classifier = tc.models.ImageClassifier(model, epochs=60, learning_rate=0.02, batch_size=2, random_state=0)
    before = tc.convert.to_hf(model)["classifier.weight"].numpy().copy()
    assert classifier.preprocessor_.values["size"] == {"height": 8, "width": 8}
    classifier.fit(IMAGES, y, validation=(IMAGES, y))
    assert classifier.problem_type_ == problem and classifier.history_[-1]["loss"] < classifier.history_[0]["loss"]
    assert classifier.score(IMAGES, y) > 0.9 and "val_loss" in classifier.history_[0]
    assert np.array_equal(tc.convert.to_hf(model)["classifier.weight"].numpy(), before)
    classifier.save(tmp_path)
    again = tc.models.ImageClassifier(tmp_path)
    assert again.problem_type_ == problem and np.array_equal(again.predict(IMAGES), classifier.predict(IMAGES))
    assert again.predict(IMAGES).dtype == classifier.predict(IMAGES).dtype
    assert again.set_params(preprocessor={**MADE, "image_mean": 0.25}).preprocessor_.values["image_mean"] == 0.25
    assert again.get_params()["preprocessor"]["image_mean"] == 0.25 and "tokenizer" not in again.get_params()


def test_a_fit_in_transformers(pillow):
    """The losses of two steps with all images, in float64."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model, y = model_of(), [2, 0, 1]
    classifier = tc.models.ImageClassifier(model, dtype="float64", epochs=2, batch_size=3, warmup=0, weight_decay=0, learning_rate=0.01)
    classifier.fit(IMAGES, [NAMES[i] for i in y])
    state = {key: torch.from_numpy(value.numpy().copy()) for key, value in tc.convert.to_hf(model).items()}
    theirs = transformers.ViTForImageClassification.from_pretrained(None, config=transformers.ViTConfig(**model.config), state_dict=state)
    theirs.double().train()
    pixels = torch.from_numpy(np.stack([classifier.preprocessor_(image) for image in IMAGES])).double()
    optimizer, losses = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0), []
    for _ in range(2):
        loss = theirs(pixels, labels=torch.tensor(y)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    np.testing.assert_allclose([entry["loss"] for entry in classifier.history_], losses, rtol=1e-9)


@pytest.mark.parametrize("kind", ["dinov2", "dinov2_with_registers"])
def test_gates_in_both_directions(kind, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    tc.manual_seed(1)
    task, config = "image-classification", {"model_type": kind, **SMALL, "image_size": 8, "patch_size": 4, "use_swiglu_ffn": True}
    model = tc.models.create(config, task=task)
    tc.models.save(model, tmp_path)
    theirs, report = transformers.AutoModelForImageClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    pixels = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    with torch.no_grad():
        expected = theirs.eval()(torch.from_numpy(pixels)).logits.numpy()
    theirs.save_pretrained(tmp_path / "theirs")
    for again in (model, tc.models.load(tmp_path / "theirs", task=task), tc.convert.from_hf(theirs.state_dict(), theirs.config, task=task)):
        np.testing.assert_allclose(again(pixels), expected, rtol=0, atol=1e-5)


SIDE = {name: SMALL[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")}


@pytest.mark.unsanitized
@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "vit"},
        {"model_type": "dinov2_with_registers", "mlp_ratio": 2},
        {"model_type": "dinov2", "mlp_ratio": 2, "image_size": 12},
        {
            "model_type": "clip",
            "text_config": {**SIDE, "vocab_size": 40, "eos_token_id": 7},
            "vision_config": {**SIDE, "image_size": 8, "patch_size": 4},
        },
        {
            "model_type": "siglip",
            "text_config": {**SIDE, "vocab_size": 40},
            "vision_config": {**SIDE, "image_size": 8, "patch_size": 4},
        },
    ],
    ids=["vit", "registers", "other size", "clip", "siglip"],
)
@pytest.mark.filterwarnings("ignore:axis")
def test_exported(config, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    tc.manual_seed(1)
    model = tc.models.create({**SMALL, "image_size": 8, "patch_size": 4, **config})
    pixels = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    given = (np.array([[3, 5, 9, 7], [3, 7, 1, 1]]), pixels) if "text_config" in config else (pixels,)
    tc.export_onnx(model, given, tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    found = session.run(None, {each.name: value for each, value in zip(session.get_inputs(), given, strict=True)})[0]
    np.testing.assert_allclose(found, model(*given), rtol=0, atol=1e-5)


WHITE = np.full((8, 8, 3), 255, np.uint8)


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (WHITE, TypeError, r"one array of the shape \(8, 8, 3\); put a single one into a list"),
        (WHITE[:, :, 0], TypeError, "put a single one into a list"),
        ("cat.jpg", TypeError, "images must be a sequence of images, not str; put a single one into a list"),
        (None, TypeError, "images must be a sequence of images, not None"),
        (7, TypeError, "not int"),
        (["cat.jpg"], TypeError, r"number 0 is 'cat.jpg'; images are read by `PIL.Image.open\(path\)`"),
        ([b"\xff\xd8"], TypeError, r"PIL.Image.open\(io.BytesIO\(data\)\)"),
        ([None], TypeError, "image number 0 has values of object"),
        ([WHITE, WHITE / 255], TypeError, r"image number 1 has values of float64; expected uint8, from 0 to 255; np.round\(x \* 255\)"),
        ([WHITE.astype("f4")], TypeError, r"np.round\(x\).astype\(np.uint8\)"),
        ([np.where(WHITE, np.nan, 0)], TypeError, "it has NaN or infinity"),
        ([WHITE / 255 - 1.5], TypeError, "normalised already"),
        ([WHITE.astype(int)], TypeError, r"values of int64; .*x.astype\(np.uint8\) makes them"),
        ([WHITE.astype(int) * 3], TypeError, "values of int64; expected uint8, from 0 to 255$"),
        ([WHITE > 0], TypeError, "values of bool"),
        ([WHITE[:, :, 0]], ValueError, r"the shape \(8, 8\); .*it is grey: np.stack\(\[x\] \* 3, -1\)"),
        ([WHITE[:, :, :1]], ValueError, r"np.repeat\(x, 3, 2\)"),
        ([np.dstack([WHITE, WHITE[:, :, 0]])], ValueError, r"it has transparency: PIL.Image.fromarray\(x\)"),
        ([WHITE.transpose(2, 0, 1)], ValueError, r"the shape \(3, 8, 8\); .*x.transpose\(1, 2, 0\)"),
        ([WHITE[None]], ValueError, "several images are a list"),
        ([WHITE[:0]], ValueError, r"no pixels: its shape is \(0, 8, 3\)"),
        ([WHITE[:, :0]], ValueError, "no pixels"),
        ([np.zeros((1, 8, 3), np.uint8).repeat(3, 0)[:, ::4], WHITE.tolist()], TypeError, "image number 1 has values of int64"),
    ],
)
def test_images_that_are_refused(images, error, message):
    classifier = tc.models.ImageClassifier(model_of(), preprocessor={"do_resize": False})
    for call in (classifier.predict, classifier.predict_proba, classifier.top, lambda x: classifier.fit(x, ["cat"])):
        with pytest.raises(error, match=message):
            call(images)


def test_other_images_that_are_refused(pillow):
    classifier = tc.models.ImageClassifier(model_of())
    with pytest.raises(TypeError, match="not one image; put a single one into a list"):
        classifier.predict(pillow.fromarray(WHITE))
    with pytest.raises(ValueError, match="number 1 has the mode 'I;16'"):
        classifier.predict([WHITE, pillow.fromarray(np.zeros((8, 8), np.uint16))])
    with pytest.raises(ValueError, match="mode 'F'"):
        classifier.predict([pillow.fromarray(np.zeros((8, 8), np.float32))])
    with pytest.raises(ValueError, match=r"no pixels: its size is \(0, 5\)"):
        classifier.predict([pillow.new("RGB", (0, 5))])
    with pytest.raises(ValueError, match="there are 2 images but 1 labels"):
        classifier.fit([WHITE, WHITE], ["cat"])
    with pytest.raises(ValueError, match="there are no images to score"):
        classifier.score([], [])
    with pytest.raises(ValueError, match="validation has no images"):
        classifier.fit([WHITE, WHITE // 2], ["cat", "dog"], validation=([], []))
    same = tc.models.ImageClassifier(model_of(), preprocessor={"do_resize": False})
    with pytest.raises(ValueError, match="image number 1 has 9 x 8 pixels after preprocessing; the model takes 8 x 8"):
        same.predict([WHITE, np.zeros((9, 8, 3), np.uint8)])
    strip = tc.models.ImageClassifier(model_of(), preprocessor={"size": {"shortest_edge": 8}, "do_center_crop": True, "crop_size": 8})
    with pytest.raises(ValueError, match="would be resized to 8 x 33554432"):
        strip.predict([np.broadcast_to(np.zeros((1, 1, 3), np.uint8), (1, 2**22, 3))])
    assert strip.predict([np.zeros((1, 2**10, 3), np.uint8)]).shape == (1,)
    file = io.BytesIO()
    pillow.fromarray(WHITE).save(file, "PNG")
    with pytest.raises(ValueError, match="image number 1 cannot be read"):
        classifier.predict([WHITE, pillow.open(io.BytesIO(file.getvalue()[:50]))])
    with pytest.raises(ValueError, match="image number 0 is no array: "):
        classifier.predict([[[[1, 2, 3]], [[1, 2]]]])
    model = model_of()
    model.out.weight.data[0, 0] = np.nan
    with pytest.raises(ValueError, match="gives nan for image number 0"):
        tc.models.ImageClassifier(model).predict([WHITE])


@pytest.mark.parametrize(
    ("message", "values"),
    [
        (
            "image_processor_type = 'DonutImageProcessor'; expected one of BitImageProcessor, CLIP",
            {"image_processor_type": "DonutImageProcessor"},
        ),
        ("image_processor_type = 5", {"image_processor_type": 5}),
        ("image_processor_type = \\['ViTImageProcessor'\\]", {"image_processor_type": ["ViTImageProcessor"]}),
        ("size = 0", {"size": 0}),
        ("size = 1000000000", {"size": 10**9}),
        ("size = '8'", {"size": "8"}),
        ("size = True", {"size": True}),
        (r"size = \{'height': 8\}", {"size": {"height": 8}}),
        ("size = .*longest_edge", {"size": {"longest_edge": 8}}),
        ("size = .*max_height", {"size": {"max_height": 8, "max_width": 8}}),
        ("size = .*8.5", {"size": {"height": 8.5, "width": 8}}),
        (r"images get the size \(8, 9\); the model takes images of 8 x 8", {"size": {"height": 8, "width": 9}}),
        (r"images get the size \(4, 4\)", {"do_center_crop": True, "crop_size": 4}),
        ("crop_size = .*shortest_edge", {"do_center_crop": True, "crop_size": {"shortest_edge": 8}}),
        ("crop_size = None", {"do_center_crop": True}),
        ("crop_size = 65536; expected a size of at most 67108864 pixels", {"do_center_crop": True, "crop_size": 65536}),
        ("do_resize = 1", {"do_resize": 1}),
        ("do_pad = True", {"do_pad": True}),
        ("do_convert_rgb = 'yes'", {"do_convert_rgb": "yes"}),
        ("resample = 6", {"resample": 6}),
        ("resample = 'bilinear'", {"resample": "bilinear"}),
        ("rescale_factor = 0", {"rescale_factor": 0}),
        ("rescale_factor = nan", {"rescale_factor": float("nan")}),
        ("image_mean = 'x'", {"image_mean": "x"}),
        (r"image_mean = \[0.5, 0.5\]; expected a number, or three", {"image_mean": [0.5, 0.5]}),
        ("image_mean = inf", {"image_mean": float("inf")}),
        (r"image_std = \[1, 1, 0\]; expected .*above 0", {"image_std": [1, 1, 0]}),
        ("image_std = nan", {"image_std": float("nan")}),
    ],
)
def test_preprocessors_that_are_refused(tmp_path, message, values):
    with pytest.raises(tc.CheckpointError, match=message):
        tc.models.ImageClassifier(model_of(), preprocessor={"size": 8, **values})
    folder_of(tmp_path, {**MADE, **values})
    with pytest.raises(tc.CheckpointError, match=message) as caught:
        tc.models.ImageClassifier(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_other_mistakes(tmp_path, monkeypatch):
    with pytest.raises(tc.CheckpointError, match="num_channels = 1; images have 3"):
        tc.models.ImageClassifier(model_of(num_channels=1))
    with pytest.raises(tc.CheckpointError, match="expected a mapping"):
        tc.models.ImageClassifier(model_of(), preprocessor=[8])
    with pytest.raises(ValueError, match="for bert there are 'text-classification'"):
        tc.models.ImageClassifier(tc.models.create({"model_type": "bert", **SMALL, "vocab_size": 9}))
    with pytest.raises(TypeError, match=r"no option 'image_processor': .*preprocessor=\{...\}"):
        tc.models.ImageClassifier(model_of(), image_processor=None)
    with pytest.raises(RuntimeError, match="call fit first"):
        tc.models.ImageClassifier(model_of(task=None)).predict([WHITE])
    with pytest.raises(AttributeError, match="for regression has no probabilities"):
        tc.models.ImageClassifier(model_of(problem_type="regression")).top([WHITE])
    with pytest.raises(TypeError, match="values of int64; expected floats"):
        model_of()(np.zeros((1, 3, 8, 8), int))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"pip install 'transformer_c\[models\]'"):
        tc.models.ImageClassifier(model_of()).predict([WHITE])
    assert tc.models.ImageClassifier(model_of(), preprocessor={"do_resize": False}).predict([WHITE]).shape == (1,)
