"""Whisper: transformers' features, numbers, tokens and times, equal bits in any batch, and what is refused."""

import json
import random

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from transformer_c.models.log_mel import LogMel, Preprocessor
from transformer_c.models.speech_recognition import SpeechSampling
from transformer_c.models.speech_recognizer import Segment, cut
from transformer_c.models.speech_words import frames_of, warped, words_of

TASK = "automatic-speech-recognition"
CASES = load("whisper")
OPTIONS, ARRAYS = CASES["words"]
STATE = {name.removeprefix("state."): value for name, value in ARRAYS.items() if name.startswith("state.")}
AUDIO = [ARRAYS[f"audio.{i}"] / np.float32(32768) for i in range(3)]


class Numbers:
    """A tokenizer whose words are numbers."""

    def __call__(self, texts):
        return [(np.array([int(word) for word in text.split()]), np.zeros(len(text.split()), int)) for text in texts]

    def decode(self, ids):
        return " ".join(map(str, ids))


def model_of(task=TASK, dtype="float64"):
    return tc.convert.from_hf(STATE, OPTIONS["config"], task=task, dtype=dtype)


def recognizer_of(name, dtype="float64", **speech):
    options = CASES[name][0]
    own = {key: options["generation"][key] for key in ("max_length", "top_k") if key in options["generation"]}
    given = {"speech": {**options["generation"], **speech}, "preprocessor": options["preprocessor"]}
    return tc.models.SpeechRecognizer(model_of(dtype=dtype), Numbers(), own, 60, **given)


def words(tokens):
    return Numbers().decode([token for token in tokens if token < 80])  # without times


def test_numbers():
    given = {"ids": ARRAYS["features"], "decoder_ids": ARRAYS["decoder_ids"]}
    for dtype, tolerance in (("float64", 1e-12), ("float32", 2e-5)):
        model = model_of(dtype=dtype)
        with tc.nn.attention_maps(model) as maps:
            scores = model(**given)
        assert scores.dtype == dtype and np.array_equal(scores, model(**given))
        for found, expected in (
            (scores, ARRAYS["scores"]),
            (model.encoder(**given), ARRAYS["hidden"]),
            (model.encoder.encoder(ARRAYS["features"]), ARRAYS["encoded"]),
            (maps["encoder.decoder.layers.2"], ARRAYS["self"]),
            (maps["encoder.decoder.layers.2.cross"], ARRAYS["cross"]),
        ):
            np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1, np.abs(expected).max()))
    assert np.array_equal(model(input_features=ARRAYS["features"], decoder_input_ids=ARRAYS["decoder_ids"]), scores)


def test_loss():
    model, labels = model_of(), tc.tensor(ARRAYS["labels"])
    scores = model(tc.tensor(ARRAYS["features"]), decoder_ids=model.shifted(labels))
    loss = tc.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())
    loss.backward()
    assert abs(loss.item() - ARRAYS["loss"]) < 1e-12
    assert {name for name, p in model.named_parameters() if p.grad is None} == {"encoder.encoder.positions.weight"}


@pytest.mark.parametrize("number", range(3))
def test_features(number):
    features = recognizer_of("words").features(AUDIO[number])
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, ARRAYS[f"mel.{number}"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_tokens_as_transformers_chooses_them(case):
    options, arrays = CASES[case]
    recognizer, timed = recognizer_of(case), "times" in case
    for i, (number, settings) in enumerate(options["calls"]):
        found = recognizer.transcribe(AUDIO[number], timestamps=timed, **settings)
        tokens = np.split(arrays[f"written.{i}"].astype(int), np.cumsum(arrays[f"counts.{i}"]).astype(int))[:-1]
        if timed:
            parts = zip(arrays[f"starts.{i}"], arrays[f"ends.{i}"], map(words, tokens), strict=True)
            expected = [part for part in parts if part[2]]
            if number == 1:  # no window is read that begins after the end, as there is in transformers
                assert expected[len(found)][0] >= len(AUDIO[1]) / 16000
                expected = expected[: len(found)]
            assert [part.text for part in found] == [text for *_, text in expected]
            np.testing.assert_allclose([part[:2] for part in found], [part[:2] for part in expected], rtol=0, atol=1e-9)
            assert recognizer.transcribe([AUDIO[number]], timestamps=True, **settings) == [found]
            assert number != 2 or recognizer.transcribe(AUDIO[number], **settings) == words(arrays[f"written.{i}"])
            assert number != 2 or recognizer.transcribe([*AUDIO, AUDIO[2]], timestamps=True, **settings)[2:] == [found, found]
        else:
            assert found == words(arrays[f"written.{i}"]), settings


def test_as_transformers_computes_now():
    """The file has what the script would write again."""
    pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    from golden import make_whisper

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            (options, arrays), (_, times), (_, attempts) = map(make_whisper.run, ("words", "times", "attempts"))
    finally:
        torch.set_num_threads(threads)
    assert options["generation"] == OPTIONS["generation"]
    for found, expected in ((arrays, ARRAYS), (times, CASES["times"][1]), (attempts, CASES["attempts"][1])):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_equal_bits(dtype, isa):
    """In any batch, and read in parts through a cache."""
    model, features, ids = model_of(dtype="float32").to(dtype=dtype), ARRAYS["features"], ARRAYS["decoder_ids"]
    together = model(features, decoder_ids=ids)
    for row in range(2):
        assert np.array_equal(model(features[row : row + 1], decoder_ids=ids[row : row + 1])[0], together[row])
    cache = tc.models.Cache()
    parts = [model(features, decoder_ids=ids[:, :1], cache=cache)]
    parts += [model(None, decoder_ids=ids[:, a:b], cache=cache) for a, b in ((1, 2), (2, 7), (7, 11))]
    assert np.array_equal(np.concatenate(parts, 1), together)


def test_audio_alone_and_among_others():
    recognizer = recognizer_of("times", "float32")
    for settings in ({"timestamps": True}, {"num_beams": 2}):
        together = recognizer.transcribe([*AUDIO, AUDIO[2][::-1]], **settings)
        assert together == [recognizer.transcribe(each, **settings) for each in (*AUDIO, AUDIO[2][::-1])]
        assert together == recognizer.transcribe([*AUDIO, AUDIO[2][::-1]], batch_size=3, **settings)
    assert recognizer.transcribe([]) == []
    assert all(isinstance(part, Segment) and part.end >= part.start for part in recognizer.transcribe(AUDIO[2], timestamps=True))


def test_times_of_words():
    """Each token is a word with this tokenizer; it begins where the one before it ends, which may be a token of a time."""
    options, arrays = CASES["words with times"]
    recognizer = recognizer_of("words with times")
    recognizer.tokenizer.decode = lambda ids: "".join(f" {i}" for i in ids)
    for i, (number, settings) in enumerate(options["calls"]):
        tokens, ends = arrays[f"written.{i}"].astype(int), np.round(arrays[f"seconds.{i}"], 2)
        expected = [(start, end, f" {token}") for token, start, end in zip(tokens, [0.0, *ends[:-1]], ends, strict=True) if token < 80]
        found = recognizer.transcribe(AUDIO[number], timestamps="word", **settings)
        if number == 1:  # no window is read that begins after the end
            assert 0 < len(found) < len(expected)
            expected = expected[: len(found)]
        assert all(isinstance(word, Segment) for word in found)
        assert [word.text for word in found] == [text for *_, text in expected]
        np.testing.assert_allclose([word[:2] for word in found], [word[:2] for word in expected], rtol=0, atol=1e-6)
    together = recognizer.transcribe([*AUDIO, AUDIO[2][::-1]], timestamps="word", batch_size=3)
    assert together == [recognizer.transcribe(each, timestamps="word") for each in (*AUDIO, AUDIO[2][::-1])]
    assert recognizer.transcribe(AUDIO[2], timestamps="word", temperature=(0, 1), compression_ratio_threshold=0.0, rng=1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_times_of_words_in_halves(dtype):
    """Where the weights of a position are 0 for all tokens, as small ones are in halves, no token has a part of it."""
    pytest.importorskip("ml_dtypes")
    words = recognizer_of("words with times", dtype).transcribe(AUDIO[0], timestamps="word")
    assert words and all(0 <= word.start <= word.end for word in words)
    assert [word.start for word in words] == sorted(word.start for word in words)


@pytest.mark.filterwarnings("error")
def test_times_of_positions_that_all_tokens_attend_alike(rng):
    maps = rng.random((2, 4, 30))
    maps[0, :, 10:18] = 0.0
    for attended in (maps, np.ones((2, 4, 30)), maps[:, :1]):
        found = frames_of(attended.astype(np.float32), 3)
        assert found[0] == 0 and len(found) == attended.shape[1] and (np.diff(found) >= 0).all() and found[-1] < 30


class Bytes:
    """A tokenizer whose tokens are parts of UTF-8."""

    eos_token_id, language = 10**6, None

    def __init__(self, *parts):
        self.parts = [part.encode() if isinstance(part, str) else part for part in parts]

    def decode(self, tokens, **_):
        return b"".join(self.parts[token] for token in tokens).decode(errors="replace")


def test_words_of_tokens():
    """With the spaces before them and marks around them; characters of several tokens stay whole."""
    for parts, spaced, expected in (
        ((" He", "llo", ",", " wor", "ld", "."), True, [" Hello,", " world."]),
        ((" (", "yes", ")", ' "', "no", '"'), True, [" (yes)", ' "no"']),
        ((" caf", b"\xc3", b"\xa9", "s", "!?"), True, [" cafés!?"]),
        (("\u4f60", b"\xe5\xa5", b"\xbd", "\u3002"), False, ["\u4f60", "\u597d\u3002"]),
        ((" a", b"\xff", " b"), True, [" a\ufffd", " b"]),
        ((" a", b"\xc3"), True, [" a\ufffd"]),
        ((" -", " 5", "%"), True, [" - 5", "%"]),
        ((), True, []),
    ):
        tokenizer = Bytes(*parts)
        words = words_of(range(len(parts)), tokenizer.decode, spaced)
        assert [word.text for word in words] == expected and "".join(expected) == tokenizer.decode(range(len(parts)))
        assert [word.first for word in words] == [0, *(word.last + 1 for word in words[:-1])][: len(words)]


def test_words_of_tokens_as_in_transformers():
    transformers, draw = pytest.importorskip("transformers"), random.Random(0)
    combine = transformers.models.whisper.tokenization_whisper._combine_tokens_into_words
    tokenizer = Bytes(" a", "b", " ", ",", " (", ")", '"', ' "', b"\xc3", b"\xa9", "\u3002", " -", "'s", b"\xff", " c.", "?!")
    for _ in range(2000):
        tokens = draw.choices(range(16), k=draw.randrange(1, 12))
        for language, spaced in (("english", True), ("japanese", False)):
            words, _, places = combine(tokenizer, list(tokens), language)
            expected = [(word, own[0], own[-1]) for word, own in zip(words, places, strict=True)]
            assert [tuple(word) for word in words_of(tokens, tokenizer.decode, spaced)] == expected, tokens


def test_the_cheapest_way():
    """By hand, and as a loop over all elements finds it."""
    rows, columns = warped(np.array([[0.0, 5, 5], [5, 0, 0]]))
    assert rows.tolist() == [0, 1, 1] and columns.tolist() == [0, 1, 2]
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (1, 6), (6, 1), (5, 9), (9, 5), (4, 4)):
        costs = rng.standard_normal(shape)
        found = np.full((shape[0] + 1, shape[1] + 1), np.inf)
        found[0, 0] = 0
        for i, j in np.ndindex(shape):
            found[i + 1, j + 1] = costs[i, j] + min(found[i, j], found[i, j + 1], found[i + 1, j])
        rows, columns = warped(costs)
        assert abs(costs[rows, columns].sum() - found[-1, -1]) < 1e-5
        assert (rows[0], columns[0], rows[-1], columns[-1]) == (0, 0, shape[0] - 1, shape[1] - 1)
        assert (np.diff(rows) + np.diff(columns) >= 1).all() and (np.diff(rows) <= 1).all() and (np.diff(columns) <= 1).all()
    transformers = pytest.importorskip("transformers")
    for shape in ((1, 7), (5, 20), (20, 30)):
        costs = rng.standard_normal(shape).round(1)
        theirs = transformers.models.whisper.generation_whisper._dynamic_time_warping(costs)
        assert all(map(np.array_equal, warped(costs), theirs))


def test_prompts_of_text():
    """Are read by the tokenizer, after the token that generation_config.json names."""
    recognizer = recognizer_of("attempts")
    for prompt in ("35 46 56", " 35 46  56 "):
        assert recognizer.transcribe(AUDIO[0], prompt=prompt) == words(CASES["attempts"][1]["written.0"])
    assert recognizer.transcribe(AUDIO[0], prompt="") == recognizer.transcribe(AUDIO[0], prompt_ids=[67]) != recognizer.transcribe(AUDIO[0])


def test_thresholds_of_generation_config():
    _, settings = CASES["attempts"][0]["calls"][5]
    own = {name: value for name, value in settings.items() if name.endswith("threshold")}
    recognizer = recognizer_of("attempts", **own)
    assert recognizer.transcribe(AUDIO[0]) == "" != recognizer.transcribe(AUDIO[0], logprob_threshold=-9.0)


def test_what_is_drawn():
    """The same for the same rng, whatever else is in the batch; each audio has draws of its own."""
    recognizer = recognizer_of("times", "float32")
    settings = {"temperature": (0, 0.7, 1.5), "compression_ratio_threshold": 0.0, "rng": 3}
    alone = recognizer.transcribe(AUDIO[0], **settings)
    together = recognizer.transcribe([AUDIO[0], AUDIO[0], AUDIO[2]], **settings)
    assert together[0] == alone != together[1] and alone != recognizer.transcribe(AUDIO[0])
    assert recognizer.transcribe([AUDIO[0], AUDIO[0], AUDIO[2]], batch_size=1, **settings) == together
    assert recognizer.transcribe(AUDIO[0], **{**settings, "rng": 4}) != alone
    numpys = {"temperature": np.array([0.0, 0.7, 1.5]), "compression_ratio_threshold": np.float64(0.0), "rng": 3}
    assert recognizer.transcribe(AUDIO[0], **numpys) == alone
    assert recognizer.transcribe(AUDIO[0], temperature=np.array(0.7), rng=3) == recognizer.transcribe(AUDIO[0], temperature=0.7, rng=3)
    assert recognizer.transcribe(AUDIO[0], **{**settings, "compression_ratio_threshold": 99.0}) == recognizer.transcribe(AUDIO[0])


def test_the_features_of_a_window_are_read_once():
    recognizer, read = recognizer_of("words"), []
    recognizer.model.encoder.encoder.register_forward_hook(lambda module, given, found: read.append(len(found)))
    recognizer.transcribe(AUDIO[:2], temperature=(0, 0.5, 1), compression_ratio_threshold=0.0, prompt_ids=[3])
    assert read == [2]


def test_probabilities_of_what_is_written():
    """Of greedy tokens and of beams: the mean that the threshold compares, by the scores of a call with all tokens."""
    model, prompt = model_of(), [61, 62, 65]
    for beams in (1, 3):
        sampling = SpeechSampling(num_beams=beams, suppress_tokens=(1, 7))
        decoding = model.begun(ARRAYS["features"], prompt, None)
        decoding.sums = [0.0, 0.0]
        tokens = model.tokens(decoding, 12, sampling, (60,))
        for row, own in enumerate(tokens):
            scores = model(ARRAYS["features"][row : row + 1], decoder_ids=[prompt + own])[0, 2:-1]
            scores[:, [1, 7]] = -np.inf
            logs = scores - scores.max(1, keepdims=True)
            logs -= np.log(np.exp(logs).sum(1, keepdims=True))
            assert abs(decoding.sums[row] - logs[np.arange(len(own)), own].sum()) < (1e-9 if beams == 1 else 1e-4)


def test_windows_are_cut_at_pairs_of_times():
    """By hand; 80: the token of 0 s."""
    for tokens, parts, more in (
        ([80, 5, 90], [(0, 0.2, [80, 5, 90])], 100),
        ([80, 5, 90, 90, 6], [(0, 0.2, [80, 5, 90, 90])], 20),
        ([80, 5, 90, 90], [(0, 0.2, [80, 5, 90, 90])], 20),
        ([80, 5, 90, 95, 6, 99], [(0, 0.2, [80, 5, 90]), (0.3, 0.38, [95, 6, 99])], 100),
        ([80, 5, 90, 91, 6, 99, 99], [(0, 0.2, [80, 5, 90]), (0.22, 0.38, [91, 6, 99, 99])], 38),
        ([5, 6], [(0, 1.0, [5, 6])], 100),
        ([80, 5], [(0, 1.0, [80, 5])], 100),
        ([], [(0, 1.0, [])], 100),
    ):
        found, step = cut(tokens, 80, 100)
        assert step == more and [part[2] for part in found] == [part[2] for part in parts]
        np.testing.assert_allclose([part[:2] for part in found], [part[:2] for part in parts], atol=1e-12)


def test_folders(tmp_path):
    """Written here, and read with transformers' other files."""
    tokenizers = pytest.importorskip("tokenizers")
    write_folder(tmp_path, tokenizers)
    recognizer = tc.models.SpeechRecognizer.from_pretrained(tmp_path, dtype="float64")
    for i, (number, settings) in enumerate(OPTIONS["calls"]):
        expected = [f"w{token}" for token in ARRAYS[f"written.{i}"] if token < 60]
        assert recognizer.transcribe(AUDIO[number], sampling_rate=16000, **settings).split() == expected
    (tmp_path / "processor_config.json").write_text(json.dumps({"feature_extractor": OPTIONS["preprocessor"]}))
    (tmp_path / "preprocessor_config.json").unlink()
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, **OPTIONS["generation"]}))  # as files before generation_config.json
    (tmp_path / "generation_config.json").unlink()
    older = tc.models.SpeechRecognizer.from_pretrained(tmp_path, dtype="float64")
    assert older.transcribe(AUDIO[1]) == recognizer.transcribe(AUDIO[1])
    assert repr(older).startswith("SpeechRecognizer(Whisper, do_sample=False")


def write_folder(folder, tokenizers):
    tc.models.save(model_of(dtype="float32"), folder)
    (folder / "generation_config.json").write_text(json.dumps(OPTIONS["generation"]))
    (folder / "preprocessor_config.json").write_text(json.dumps(OPTIONS["preprocessor"]))
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(60)}, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens([f"<{i}>" for i in range(60, 80)])
    made.save(str(folder / "tokenizer.json"))


def test_both_directions(tmp_path):
    """Saved here, loaded by transformers, and the other way round."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    tc.manual_seed(3)
    features, ids = ARRAYS["features"].astype(np.float32), ARRAYS["decoder_ids"]
    for task, kind in ((TASK, "WhisperForConditionalGeneration"), (None, "WhisperModel")):
        own = tc.models.create(OPTIONS["config"], task=task)
        tc.models.save(own, tmp_path / kind)
        theirs, report = getattr(transformers, kind).from_pretrained(tmp_path / kind, output_loading_info=True)
        assert not any(report.values()), report
        theirs.save_pretrained(tmp_path / "theirs")
        with torch.no_grad():
            output = theirs.eval()(torch.from_numpy(features), decoder_input_ids=torch.from_numpy(ids))
        expected = (output.logits if task else output.last_hidden_state).numpy()
        for model in (own, tc.models.load(tmp_path / "theirs", task=task)):
            np.testing.assert_allclose(model(features, decoder_ids=ids), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
        state = {key: torch.from_numpy(value.numpy().copy()) for key, value in tc.convert.to_hf(own).items()}
        assert str(theirs.load_state_dict(state)) == "<All keys matched successfully>"
        sines = transformers.models.whisper.modeling_whisper.sinusoids(50, 16).numpy()
        encoder = own.encoder.encoder if task else own.encoder
        np.testing.assert_allclose(encoder.positions.weight.numpy(), sines, atol=1e-5)


@pytest.mark.parametrize("mels", [80, 128])
def test_features_of_models_that_there_are(mels):
    """Their banks of filters: each has the area 1 over its frequencies."""
    made = LogMel(Preprocessor({"feature_size": mels}), mels, 3000)
    found = made(AUDIO[0])
    assert found.shape == (mels, 3000) and abs(made._filters.sum(0)[mels // 2 :] * 40 - 1).max() < 0.1
    transformers = pytest.importorskip("transformers")
    theirs = transformers.WhisperFeatureExtractor(feature_size=mels)
    np.testing.assert_allclose(made._filters, theirs.mel_filters, rtol=0, atol=1e-15)
    np.testing.assert_allclose(
        found, theirs(AUDIO[0], sampling_rate=16000).input_features[0], rtol=0, atol=1e-4
    )  # which are computed in float32


def test_layers_in_place_of_others():
    """With a hook the product is computed by the layer itself."""
    model, given = model_of(), {"ids": ARRAYS["features"], "decoder_ids": ARRAYS["decoder_ids"]}
    expected = model(**given)
    model.encoder.encoder.layers[0].qkv.register_forward_hook(lambda *_: None)
    model.encoder.decoder.layers[1].qkv.register_forward_hook(lambda *_: None)
    np.testing.assert_allclose(model(**given), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("vocab_size = 'x'", {"vocab_size": "x"}),
        ("d_model = 15; expected an even number", {"d_model": 15}),
        ("d_model = 16, which is no multiple of encoder_attention_heads = 3", {"encoder_attention_heads": 3}),
        ("num_mel_bins = -1", {"num_mel_bins": -1}),
        ("max_source_positions = 1000000000.0; expected an integer", {"max_source_positions": 1e9}),
        ("encoder_layerdrop", {"encoder_layerdrop": 2}),
        ("decoder_start_token_id = 131", {"decoder_start_token_id": 131}),
        ("is_encoder_decoder = False", {"is_encoder_decoder": False}),
        ("quantization_config", {"quantization_config": {}}),
    ],
)
def test_configurations_that_are_refused(message, values):
    with pytest.raises(tc.CheckpointError, match=message):
        tc.models.create({**OPTIONS["config"], **values})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vocab_size", 10**9),
        ("max_source_positions", 10**9),
        ("max_target_positions", 25),
        ("encoder_ffn_dim", 2**30),
        ("decoder_layers", 4),
    ],
)
def test_sizes_are_compared_with_the_arrays(name, value):
    with pytest.raises(tc.CheckpointError, match=name):
        tc.convert.from_hf(STATE, {**OPTIONS["config"], name: value}, task=TASK)


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("feature_size = 'x'", {"feature_size": "x"}),
        ("n_fft = 1000000000; expected an integer of at least 2 and at most", {"n_fft": 10**9}),
        ("hop_length = 0", {"hop_length": 0}),
        ("preprocessor_config.json lacks chunk_length", {"chunk_length": None}),
        (r"features have the shape \(6, 3000\); the model takes \(6, 100\)", {"chunk_length": 30}),
        (r"features have the shape \(80, 100\)", {"feature_size": 80}),
        ("dither = 0.1", {"dither": 0.1}),
        ("do_normalize = True", {"do_normalize": True}),
        ("feature_extractor_type = 'X'", {"feature_extractor_type": "X"}),
    ],
)
def test_preprocessors_that_are_refused(message, values):
    with pytest.raises(tc.CheckpointError, match=message):
        tc.models.SpeechRecognizer(model_of(), Numbers(), preprocessor={**OPTIONS["preprocessor"], **values})


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("suppress_tokens = 5", {"suppress_tokens": 5}),
        ("begin_suppress_tokens", {"begin_suppress_tokens": [1.5]}),
        ("forced_decoder_ids", {"forced_decoder_ids": [[2, 5]]}),
        ("forced_decoder_ids", {"forced_decoder_ids": [[1, 131]]}),
        ("forced_decoder_ids", {"forced_decoder_ids": [5]}),
        ("lang_to_id", {"lang_to_id": ["en"]}),
        ("task_to_id", {"task_to_id": {"translate": True}}),
        ("no_timestamps_token_id", {"no_timestamps_token_id": 131}),
        ("is_multilingual", {"is_multilingual": 1}),
        ("language = 5", {"language": 5}),
        ("task = 'sing'", {"task": "sing"}),
        ("max_initial_timestamp_index", {"max_initial_timestamp_index": -1}),
        ("prev_sot_token_id", {"prev_sot_token_id": 131}),
        ("alignment_heads = 5", {"alignment_heads": 5}),
        ("alignment_heads", {"alignment_heads": [[1, -1]]}),
        ("alignment_heads", {"alignment_heads": [[1]]}),
        ("condition_on_prev_tokens = True", {"condition_on_prev_tokens": True}),
        ("logprob_threshold = 'x'", {"logprob_threshold": "x"}),
        ("compression_ratio_threshold = nan", {"compression_ratio_threshold": float("nan")}),
    ],
)
def test_generation_configs_that_are_refused(message, values):
    with pytest.raises(tc.CheckpointError, match=f"generation_config.json has {message}"):
        recognizer_of("words", **values)


def test_calls_that_are_refused():
    recognizer, english, drawn, model = recognizer_of("words"), recognizer_of("english"), recognizer_of("attempts"), model_of()
    samples = AUDIO[0]
    for error, message, call in (
        (TypeError, "audio number 0 has samples of int16; .*samples / 32768", lambda: recognizer.transcribe(ARRAYS["audio.0"])),
        (TypeError, "audio number 1 has samples of complex", lambda: recognizer.transcribe([samples, samples * 1j])),
        (TypeError, "samples of object", lambda: recognizer.transcribe(np.array([None, 1.0]))),
        (TypeError, "audio number 0 is 'a.wav'; samples are read from a file by `soundfile.read", lambda: recognizer.transcribe("a.wav")),
        (TypeError, "audio must be a sequence of arrays of samples, not NoneType|not None", lambda: recognizer.transcribe(None)),
        (ValueError, r"the shape \(16000, 2\); .*samples.mean\(1\)", lambda: recognizer.transcribe(np.stack([samples, samples], 1))),
        (ValueError, r"the shape \(2, 16000\); .*samples.mean\(0\)", lambda: recognizer.transcribe(np.stack([samples, samples]))),
        (ValueError, r"the shape \(\)", lambda: recognizer.transcribe([0.5, 0.25])),
        (ValueError, "audio number 0 has no samples", lambda: recognizer.transcribe(samples[:0])),
        (ValueError, "NaN or infinite", lambda: recognizer.transcribe(np.where(np.arange(9) == 4, np.nan, 0.0))),
        (ValueError, "NaN or infinite", lambda: recognizer.transcribe(np.where(np.arange(9) == 4, -np.inf, 0.0))),
        (ValueError, "samples up to 1e\\+300", lambda: recognizer.transcribe(np.array([0.0, 1e300]))),
        (
            ValueError,
            "sampling_rate is 44100; .*resample_poly\\(samples, 160, 441\\)",
            lambda: recognizer.transcribe(samples, sampling_rate=44100),
        ),
        (TypeError, "sampling_rate must be a number, got 'x'", lambda: recognizer.transcribe(samples, sampling_rate="x")),
        (TypeError, "sampling_rate must be a number, got True", lambda: recognizer.transcribe(samples, sampling_rate=True)),
        (ValueError, "times of words need alignment_heads in generation_config", lambda: recognizer.transcribe(samples, timestamps="word")),
        (
            tc.CheckpointError,
            r"alignment_heads with \[3, 0\]; the decoder has 3 layers of 4 heads",
            lambda: recognizer_of("words", alignment_heads=[[2, 3], [3, 0]]).transcribe(samples, timestamps="word"),
        ),
        (TypeError, "timestamps must be a bool", lambda: recognizer.transcribe(samples, timestamps="no")),
        (ValueError, "samples of one audio are an array", lambda: recognizer.transcribe([0.5, 0.25])),
        (ValueError, "language is 'Klingon'; the model has en, de, fr", lambda: recognizer.transcribe(samples, language="Klingon")),
        (ValueError, "language is 'italian'", lambda: recognizer.transcribe(samples, language="italian")),
        (TypeError, "language must be a str", lambda: recognizer.transcribe(samples, language=["en"])),
        (ValueError, "task must be", lambda: recognizer.transcribe(samples, task="sing")),
        (ValueError, "has English alone", lambda: english.transcribe(samples, language="en")),
        (ValueError, "max_new_tokens is 21, and 4 tokens", lambda: recognizer.transcribe(samples, max_new_tokens=21)),
        (ValueError, "times need no_timestamps_token_id", lambda: recognizer_of("words", no_timestamps_token_id=None).transcribe(AUDIO[2])),
        (ValueError, "prompt must be a str, or numbers of tokens below 131", lambda: recognizer.transcribe(samples, prompt_ids=[131])),
        (ValueError, "prompt must be a str, or numbers of tokens", lambda: recognizer.transcribe(samples, prompt=[0.5])),
        (ValueError, "prompt must be a str, or numbers of tokens", lambda: recognizer.transcribe(samples, prompt=[])),
        (ValueError, "a prompt needs prev_sot_token_id in generation_config.json", lambda: recognizer.transcribe(samples, prompt="1 2")),
        (ValueError, "prompt has the token 61, which is no word", lambda: drawn.transcribe(samples, prompt="5 61")),
        (ValueError, "24 tokens begin a text, which leaves no room", lambda: drawn.transcribe(samples, prompt_ids=[5] * 20)),
        (ValueError, "half of a pair", lambda: drawn.transcribe(samples, prompt="\ud800")),
        (TypeError, "condition_on_prev_tokens.*prompt=", lambda: recognizer.transcribe(samples, condition_on_prev_tokens=True)),
        (ValueError, "temperature must be a number of at least 0", lambda: recognizer.transcribe(samples, temperature=-1)),
        (ValueError, "temperature must be a number of at least 0", lambda: recognizer.transcribe(samples, temperature="x")),
        (ValueError, "temperature must be a number of at least 0", lambda: recognizer.transcribe(samples, temperature=[0.0, np.nan])),
        (ValueError, "temperature has no values", lambda: recognizer.transcribe(samples, temperature=())),
        (ValueError, "temperature has several values, but neither", lambda: recognizer.transcribe(samples, temperature=(0, 0.5))),
        (ValueError, "logprob_threshold must be a number", lambda: recognizer.transcribe(samples, logprob_threshold="x")),
        (
            ValueError,
            "logprob_threshold must be a number, got an int of",
            lambda: recognizer.transcribe(samples, logprob_threshold=10**5000),
        ),
        (ValueError, "no_speech_threshold must be a number", lambda: recognizer.transcribe(samples, no_speech_threshold=np.float64("nan"))),
        (ValueError, "temperature must be a number of at least 0", lambda: recognizer.transcribe(samples, temperature=10**5000)),
        (ValueError, r"prompt must be a str, or numbers of tokens .*\[1, \[2\]\]", lambda: recognizer.transcribe(samples, prompt=[1, [2]])),
        (
            ValueError,
            "no_speech_threshold is for windows that are improbable",
            lambda: recognizer.transcribe(samples, no_speech_threshold=0.5),
        ),
        (
            ValueError,
            "no_speech_threshold needs no_timestamps_token_id",
            lambda: recognizer_of("words", no_timestamps_token_id=None).transcribe(
                samples, logprob_threshold=-1.0, no_speech_threshold=0.5
            ),
        ),
        (ValueError, r"expected floats \(B, 6, 100\)", lambda: model(ARRAYS["features"][:, :, :99], decoder_ids=[[1], [1]])),
        (ValueError, r"expected floats \(B, 6, 100\)", lambda: model(ARRAYS["decoder_ids"], decoder_ids=[[1], [1]])),
        (ValueError, "features have no mask", lambda: model(ARRAYS["features"], np.ones((2, 100)), decoder_ids=[[1], [1]])),
        (ValueError, "features are None", lambda: model(None, decoder_ids=[[1], [1]])),
        (ValueError, "at most 24", lambda: model(ARRAYS["features"], decoder_ids=np.ones((2, 25), int))),
        (ValueError, "prompt must be numbers", lambda: model.generate(ARRAYS["features"], [])),
        (TypeError, "is made of a model", lambda: tc.models.SpeechRecognizer(model_of(None), Numbers())),
    ):
        with pytest.raises(error, match=message):
            call()
    assert model.generate(ARRAYS["features"][:0]) == []
    assert [len(row) <= 4 for row in model.generate(ARRAYS["features"], max_new_tokens=4)] == [True, True]
    with pytest.raises(AttributeError, match=r"recognizer.transcribe\(samples\)"):
        _ = recognizer.generate
    assert recognizer.transcribe(samples.astype(np.float64)) == recognizer.transcribe(samples, return_timestamps=False)
