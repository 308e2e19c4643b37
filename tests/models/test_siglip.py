"""SigLIP: transformers' numbers, texts that are filled, its tokenizer of pieces, folders, and what is refused."""

import io
import json
import random

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from test_clip import IMAGES, TEXTS, letters, write_tokenizer
from transformer_c.models.siglip_pieces import SiglipPieces

CASES = load("siglip")
OPTIONS, ARRAYS = CASES["siglip"]
CONFIG = OPTIONS["config"]
MADE = {"image_processor_type": "SiglipImageProcessor", "size": {"height": 8, "width": 8}}


def state_of(case="siglip"):
    return {name.removeprefix("state."): value for name, value in CASES[case][1].items() if name.startswith("state.")}


def model_of(case="siglip", dtype=None, **values):
    return tc.convert.from_hf(state_of(case), {**CASES[case][0]["config"], **values}, dtype=dtype)


@pytest.mark.parametrize("case", CASES)
def test_numbers(case):
    arrays = CASES[case][1]
    ids, mask, pixels = (arrays[name] for name in ("ids", "mask", "pixels"))
    for dtype, tolerance in (("float64", 1e-12), ("float32", 4e-6), ("float16", 5e-3), ("bfloat16", 6e-2)):
        model = model_of(case, dtype)
        pairs = [
            (model.vision(pixels), arrays["states.image"]),
            (model(ids, pixels, mask), arrays["scores"]),
            (model(pixel_values=pixels, input_ids=ids, attention_mask=mask), arrays["scores"]),
            (model(ids, pixels, lengths=mask.sum(1)), arrays["scores"]),
            (model.of_images(pixels), arrays["vectors.image"]),
            (model.of_texts(ids, mask), arrays["vectors.text"]),
            (model.of_texts(ids), arrays["unmasked.text"]),
            (model.text(ids, mask), arrays["states.text"] * mask[..., None]),
        ]
        for found, expected in pairs:
            assert found.dtype == dtype and found.shape == expected.shape
            assert np.abs(found.astype(np.float64) - expected).max() <= tolerance * max(1, np.abs(expected).max()), dtype


SIDES = {"text": ("ids", "of_texts", "SiglipTextModel"), "vision": ("pixels", "of_images", "SiglipVisionModel")}


@pytest.mark.parametrize("side", SIDES)
def test_sides_by_themselves(side, tmp_path):
    """The names of arrays in files begin with the side's, which those in transformers 5's memory do not."""
    given, function, kind = SIDES[side]
    config = {**CONFIG[f"{side}_config"], "model_type": f"siglip_{side}_model"}
    state = {name: value for name, value in state_of().items() if name.startswith(f"{side}_model.")}
    model, whole = tc.convert.from_hf(dict(state), config), model_of()
    found = getattr(model, function)(ARRAYS[given])
    assert isinstance(found, np.ndarray) and np.array_equal(found, whole(**{given: ARRAYS[given]}))
    assert isinstance(getattr(model, function)(tc.tensor(ARRAYS[given])), tc.Tensor)
    assert np.array_equal(model(ARRAYS[given]), getattr(whole, side)(ARRAYS[given]))
    short = tc.convert.from_hf({name.removeprefix(f"{side}_model."): value for name, value in state.items()}, config)
    assert np.array_equal(getattr(short, function)(ARRAYS[given]), found)
    tc.models.save(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [kind]
    assert np.array_equal(getattr(tc.models.load(tmp_path), function)(ARRAYS[given]), found)
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    theirs, report = getattr(transformers, kind).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    with torch.no_grad():
        output = theirs.eval()(torch.from_numpy(ARRAYS[given]))
    np.testing.assert_allclose(found, output.pooler_output.numpy(), rtol=0, atol=2e-5)
    theirs.save_pretrained(tmp_path / "theirs")
    for again in (tc.models.load(tmp_path / "theirs"), tc.convert.from_hf(theirs.state_dict(), theirs.config)):
        assert np.array_equal(getattr(again, function)(ARRAYS[given]), found)


def test_images_alone_without_a_head():
    config = {**CONFIG["vision_config"], "model_type": "siglip_vision_model", "vision_use_head": False}
    state = {name: value for name, value in state_of().items() if name.startswith("vision_model.")}
    with pytest.raises(tc.CheckpointError, match="does not know: 'vision_model.head"):
        tc.convert.from_hf(state, config)
    model = tc.convert.from_hf({name: value for name, value in state.items() if ".head." not in name}, config)
    assert np.array_equal(model(ARRAYS["pixels"]), model_of().vision(ARRAYS["pixels"]))
    with pytest.raises(ValueError, match="vision_use_head = false"):
        model.of_images(ARRAYS["pixels"])


def test_gradients():
    """Of the loss of its training: each text describes the image of its number alone."""
    model = model_of()
    scores = model(tc.tensor(ARRAYS["ids"][:2]), tc.tensor(ARRAYS["pixels"]))
    loss = tc.functional.binary_cross_entropy_with_logits(scores, tc.eye(2), reduction="sum") / 2
    signs = 2 * np.eye(2) - 1
    assert abs(loss.item() - np.log1p(np.exp(-signs * scores.detach().numpy().astype(float))).sum() / 2) < 1e-5
    loss.backward()
    assert all(p.grad is not None and np.isfinite(p.grad.numpy()).all() for p in model.parameters())


def test_maps():
    """The head's shows what of an image its vector is made of."""
    model = model_of()
    with tc.nn.attention_maps(model) as maps:
        model.of_images(ARRAYS["pixels"])
    assert maps["vision.head.attention"].shape == (2, 2, 1, 4) and len(maps) == 3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_equal_bits(dtype, isa):
    encoder = tc.models.ImageTextEncoder(
        model_of(dtype=dtype), letters, {**MADE, "do_resize": False, "do_center_crop": True, "crop_size": 8}
    )
    mixed = [TEXTS[0], IMAGES[0], IMAGES[1], TEXTS[3], TEXTS[2], IMAGES[2], TEXTS[1]]
    alone = np.stack([encoder.encode(each) for each in mixed])
    assert alone.shape == (7, 16) and alone.dtype == np.float32
    for size in (1, 2, 32):
        assert np.array_equal(encoder.encode(mixed, size), alone)
    scores = encoder.scores(IMAGES, TEXTS)
    assert np.array_equal(encoder.scores(IMAGES[1:2], TEXTS[2:3]), scores[1:2, 2:3])


def test_large_images_have_equal_bits(isa):
    tc.manual_seed(1)
    side = {"hidden_size": 384, "num_attention_heads": 6, "num_hidden_layers": 1, "intermediate_size": 390}
    model = tc.models.create({"model_type": "siglip_vision_model", **side, "image_size": 48, "patch_size": 4, "initializer_range": 0.2})
    pixels = np.random.default_rng(5).standard_normal((3, 3, 48, 48)).astype(np.float32)
    whole = model.of_images(pixels)
    assert [model.of_images(each[None])[0].tobytes() for each in pixels] == [each.tobytes() for each in whole]


def test_classes():
    """Texts are filled with pad_token_id of config.json, which they see; each class is likely by itself."""
    encoder = tc.models.ImageTextEncoder(model_of(), letters, MADE)
    found = encoder.predict_proba(IMAGES, TEXTS, template="a {}.")
    assert found.shape == (3, 4) and (np.abs(found.sum(1) - 1) > 1e-3).all()
    pixels = np.stack([encoder.preprocessor(image) for image in IMAGES])
    filled = np.array([[*ids, *[1] * (14 - len(ids))] for ids, _ in letters([f"a {text}." for text in TEXTS])])
    scores = encoder.model(filled, pixels).astype(np.float64)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-scores)), rtol=1e-4)
    np.testing.assert_allclose(encoder.scores(IMAGES, [f"a {text}." for text in TEXTS]), scores, rtol=0, atol=2e-5)
    assert encoder.predict(IMAGES, TEXTS, template="a {}.").tolist() == [TEXTS[i] for i in found.argmax(1)]
    assert encoder.scores([], []).shape == (0, 0)
    with pytest.raises(ValueError, match="gives 15 tokens; this model takes texts of at most 14"):
        tc.models.ImageTextEncoder(model_of(), lambda texts: [(np.ones(15, int),) * 2] * len(texts), MADE).encode("a")


def pieces_in(folder, **values):
    """Writes a folder's spiece.model, by the package sentencepiece."""
    sentencepiece = pytest.importorskip("sentencepiece", "0.2.2")
    made = io.BytesIO()
    text = "a photo of the small house in the garden and of a dog"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text, *text.split()] * 9), model_writer=made, vocab_size=40, hard_vocab_limit=False, num_threads=1,
        minloglevel=2, eos_id=1, unk_id=2, bos_id=-1, pad_id=0,
    )  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "spiece.model").write_bytes(made.getvalue())
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "SiglipTokenizer", "model_max_length": 14, **values}))
    return folder


def folder_of(folder, tokenizer=write_tokenizer, **values):
    tc.models.save(model_of(), folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(MADE))
    tokenizer(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return folder


PARTS = ["the ", "House", " ", ", ", "</s>", "<unk>", "\N{SNOWMAN}", "\n", "garden", "\N{LOWER ONE EIGHTH BLOCK}", "_", "É", "dog's", "{}"]


@pytest.mark.unsanitized
@pytest.mark.parametrize("values", [{}, {"do_lower_case": False, "truncation_side": "left"}])
def test_pieces_as_in_transformers(tmp_path, values):
    folder, draw = pieces_in(tmp_path, **values), random.Random(0)
    ours = SiglipPieces(str(folder), 14)
    ids = [found.tolist() for found, types in ours(["The house, of a dog!", "", "a </s>", "..."]) if not types.any()]
    assert ids[1:] == [[1], [*ours(["a"])[0][0]], [1]] and ids[0][-1] == 1 and len(ids[0]) > 5
    (tmp_path / "saved").mkdir()
    ours.save(str(tmp_path / "saved"))
    texts = ["".join(draw.choices(PARTS, k=draw.randrange(15))) for _ in range(300)]
    assert [found.tolist() for found, _ in SiglipPieces(str(tmp_path / "saved"), 14)(texts)] == [found.tolist() for found, _ in ours(texts)]
    transformers = pytest.importorskip("transformers")
    theirs = transformers.SiglipTokenizer.from_pretrained(folder)
    assert [found.tolist() for found, _ in ours(texts)] == theirs(texts, truncation=True, max_length=14)["input_ids"]
    again = transformers.SiglipTokenizer.from_pretrained(tmp_path / "saved")
    assert again(texts, truncation=True) == theirs(texts, truncation=True)


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("has legacy = False", {"legacy": False}),
        ("has do_lower_case = 1", {"do_lower_case": 1}),
        ("lacks 'q', the eos_token", {"eos_token": "q"}),
        ("adds the token", {"added_tokens_decoder": {"5": {"content": "<new>"}}}),
        ("adds the token 3", {"added_tokens_decoder": {"5": 3}}),
        ("adds the token", {"added_tokens_decoder": {"1": {"content": "</s>", "single_word": True}}}),
        ("truncation_side = 'x'", {"truncation_side": "x"}),
        ("sp_model_kwargs", {"sp_model_kwargs": {"alpha": 1}}),
    ],
)
def test_pieces_that_are_refused(tmp_path, message, values):
    with pytest.raises(tc.CheckpointError, match=message):
        SiglipPieces(str(pieces_in(tmp_path, **values)), 14)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"model_input_names": ["input_ids"]},
        {"model_input_names": ["input_ids"], "padding_side": "left", "pad_token": "</s>"},
        {"padding_side": "left"},
    ],
    ids=["mask", "no mask", "left", "left, mask"],
)
@pytest.mark.parametrize("kind", ["words", "pieces"])
def test_folders(tmp_path, kind, values):
    """Texts are filled as the folder's tokenizer says, and as in transformers' pipeline; what it saves loads there."""
    pytest.importorskip("tokenizers")
    write = write_tokenizer if kind == "words" else pieces_in
    encoder = tc.models.ImageTextEncoder.from_pretrained(folder_of(tmp_path, write, **values))
    assert repr(encoder) == "ImageTextEncoder(SigLIP, ImagePreprocessor(SiglipImageProcessor, 8 x 8), max_length=14)"
    expected = encoder.encode([*IMAGES, *TEXTS, "of " * 40])
    encoder.save(tmp_path / "saved")
    assert np.array_equal(tc.models.ImageTextEncoder.from_pretrained(tmp_path / "saved").encode([*IMAGES, *TEXTS, "of " * 40]), expected)
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    theirs, report = transformers.SiglipModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    given = tokenizer([*TEXTS, "of " * 40], padding="max_length", max_length=14, truncation=True, return_tensors="pt")
    assert ("attention_mask" in given) == ("model_input_names" not in values)
    given.pop("token_type_ids", None)
    pixels = transformers.SiglipImageProcessorPil(size=MADE["size"])(IMAGES, return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        output = theirs.eval()(**given, pixel_values=pixels)
    np.testing.assert_allclose(encoder.scores(IMAGES, [*TEXTS, "of " * 40]), output.logits_per_image.numpy(), rtol=0, atol=3e-5)
    np.testing.assert_allclose(expected[3:], theirs.get_text_features(**given).pooler_output.detach().numpy(), rtol=0, atol=3e-5)
    theirs.save_pretrained(tmp_path / "theirs")
    for model in (tc.models.load(tmp_path / "theirs"), tc.convert.from_hf(theirs.state_dict(), theirs.config)):
        assert np.array_equal(model.of_images(ARRAYS["pixels"]), encoder.model.of_images(ARRAYS["pixels"]))


def write_gemma(folder):
    """A tokenizer of SigLIP 2: byte pairs of Gemma's form, filled at the end."""
    tokenizers = pytest.importorskip("tokenizers")
    words = {
        word: i for i, word in enumerate(("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *"\u2581abcdogthe.", "th", "the", "\u2581the", "A"))
    }
    merges = [("t", "h"), ("th", "e"), ("\u2581", "the")]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(words, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = tokenizers.normalizers.Replace(" ", "\u2581")
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", "merged_with_previous")
    made.post_processor = tokenizers.processors.TemplateProcessing(single=["$A", "<eos>"], special_tokens=[("<eos>", 1)])
    made.add_special_tokens(list(words)[:5])
    made.enable_padding(direction="right", length=64, pad_id=0, pad_token="<pad>")
    made.save(str(folder / "tokenizer.json"))
    values = {
        "model_max_length": 14,
        "pad_token": "<pad>",
        "eos_token": "<eos>",
        "bos_token": "<bos>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(values))


@pytest.mark.parametrize("kind", ["GemmaTokenizer", "GemmaTokenizerFast", "Siglip2Tokenizer"])
def test_tokenizers_of_siglip_2(tmp_path, kind):
    """Lower case is the class's, the side of the padding tokenizer.json's, which comes before that of the class."""
    folder = folder_of(tmp_path, write_gemma, tokenizer_class=kind)
    encoder = tc.models.ImageTextEncoder.from_pretrained(folder)
    assert encoder._filling == (14, 0, "right", True)
    texts = ["the A dog", "A", "the cat." * 5, ""]
    found = [ids.tolist() for ids, _ in encoder.tokenizer(texts)]
    assert (found[1] == [6, 1]) == (kind == "Siglip2Tokenizer")  # of "a"
    encoder.save(tmp_path / "saved")
    again = tc.models.ImageTextEncoder.from_pretrained(tmp_path / "saved")
    assert again._filling == encoder._filling and [ids.tolist() for ids, _ in again.tokenizer(texts)] == found
    transformers = pytest.importorskip("transformers")
    for path in (folder, tmp_path / "saved"):
        theirs = transformers.AutoTokenizer.from_pretrained(path)
        assert type(theirs).__name__ == kind.removesuffix("Fast") and theirs.padding_side == "right"
        given = theirs(texts, padding="max_length", max_length=14, truncation=True)
        own = encoder._filling.arguments(encoder.model.text, encoder.tokenizer(texts))
        assert own["ids"].tolist() == given["input_ids"] and own["mask"].tolist() == given["attention_mask"]


def test_padding_of_tokenizer_json(tmp_path):
    """As transformers, which takes the token and the side from there where tokenizer_config.json has none; a copy says it itself."""
    tokenizers = pytest.importorskip("tokenizers")
    folder = folder_of(tmp_path, pad_token=None, tokenizer_class=None, model_input_names=["input_ids"])
    expected = tc.models.ImageTextEncoder.from_pretrained(folder)
    assert expected._filling == (14, 37, "right", False)  # that of the class
    made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    made.enable_padding(direction="left", pad_id=1, pad_token="[b]", length=14)
    made.save(str(folder / "tokenizer.json"))
    encoder = tc.models.ImageTextEncoder.from_pretrained(folder)
    assert encoder._filling == (14, 1, "left", False)
    encoder.save(tmp_path / "saved")
    assert tc.models.ImageTextEncoder.from_pretrained(tmp_path / "saved")._filling == encoder._filling
    for values, message in (({"pad_token": "?"}, r"pad_token = '\?', which is no token"), ({"padding_side": "up"}, "padding_side = 'up'")):
        with pytest.raises(tc.CheckpointError, match=message):
            tc.models.ImageTextEncoder.from_pretrained(folder_of(tmp_path / message[:3], **values))


@pytest.mark.parametrize(
    ("message", "part", "values"),
    [
        ("text_config has projection_size = 17 but 'text_model.head.weight'", "text_config", {"projection_size": 17}),
        ("text_config has vocab_size = 1000000000 but", "text_config", {"vocab_size": 10**9}),
        ("text_config has hidden_act = 'swiglu'", "text_config", {"hidden_act": "swiglu"}),
        ("text_config has pad_token_id = 40", "text_config", {"pad_token_id": 40}),
        ("text_config has num_hidden_layers = 3; the weights have 2 layers", "text_config", {"num_hidden_layers": 3}),
        ("text_config has hidden_size = 12, which is no multiple of num_attention_heads = 5", "text_config", {"num_attention_heads": 5}),
        ("vision_config has vision_use_head = False", "vision_config", {"vision_use_head": False}),
        (r"vision_config has image_size = \(12, 12\) and patch_size = \(4, 4\) but", "vision_config", {"image_size": 12}),
        ("vision_config has image_size = 1000000000000; expected", "vision_config", {"image_size": 10**12}),
        ("vision_config has layer_norm_eps = nan", "vision_config", {"layer_norm_eps": float("nan")}),
        ("vision_config has hidden_size = 20 but", "vision_config", {"hidden_size": 20}),
        ("vision_config = 5; expected a mapping", None, {"vision_config": 5}),
        ("quantization_config", None, {"quantization_config": {}}),
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
    for name in ("logit_bias", "vision_model.head.probe", "vision_model.head.attention.in_proj_bias", "text_model.head.bias"):
        with pytest.raises(tc.CheckpointError, match=f"lack '{name}'"):
            tc.convert.from_hf({key: value for key, value in state.items() if key != name}, CONFIG)
    with pytest.raises(tc.CheckpointError, match="does not know: 'logit_more'"):
        tc.convert.from_hf({**state, "logit_more": np.ones(1, "f4")}, CONFIG)
    none = {**CONFIG, "text_config": {**CONFIG["text_config"], "projection_size": None}}
    assert np.array_equal(tc.convert.from_hf(dict(state), none).of_texts(ARRAYS["ids"]), model_of().of_texts(ARRAYS["ids"]))
    with pytest.raises(tc.CheckpointError, match="text_config has projection_size = None; expected 16, the size of an image's vector"):
        tc.models.create(none)
    created = tc.models.create(CONFIG)
    assert created.scale.weight.item() == created.bias.item() == 0 and created.vision.head.probe.numpy().any()
    for error, message, call in (
        (TypeError, "ids or pixels must be given", lambda: created()),
        (ValueError, "at most 14", lambda: created(np.ones((1, 15), int))),
        (ValueError, "at least one position", lambda: created.text.of_texts(np.ones((1, 0), int))),
        (ValueError, r"expected \(B, 3, 8, 8\)", lambda: created(None, np.ones((1, 3, 8, 9), "f4"))),
    ):
        with pytest.raises(error, match=message):
            call()
