"""Writes whisper.npz with transformers 5 on PyTorch 2.13: small models with random weights, and what they compute in float64.

python tests/golden/make_whisper.py [FOLDER]

``words``, ``times`` and ``attempts`` hear several languages, the others, with the same weights, one. The options are ``config``, ``generation`` (of generation_config.json),
``preprocessor`` and ``calls``. Of ``words``, ``state.NAME`` are the arrays of the model with its head. Of ``features`` and ``decoder_ids`` there are ``encoded``, ``hidden``, ``scores``,
the ``loss`` of ``labels`` and the maps ``self`` and ``cross`` of the decoder's last layer. ``audio.I`` are samples of 16 bits, ``mel.I`` their
features by NumPy; and of each call of both, the number of an audio and settings of ``generate``, ``written.I`` are the new tokens, and ``starts.I`` and ``ends.I``
the times of the parts with so many tokens (``counts.I``). Of ``words with times``, ``seconds.I`` are the times at which the tokens end.
"""

import pathlib
import sys

import numpy as np
import torch
import transformers as T

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import writing

CONFIG = {
    **{"vocab_size": 131, "num_mel_bins": 6, "d_model": 16, "max_source_positions": 50, "max_target_positions": 24},
    **{"encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 2, "decoder_attention_heads": 4},
    **{"encoder_ffn_dim": 24, "decoder_ffn_dim": 20, "scale_embedding": True},
    **{"bos_token_id": 60, "pad_token_id": 60, "eos_token_id": 60, "decoder_start_token_id": 61},
}
GENERATION = {
    **{"suppress_tokens": [1, 2, 7, 61, 65, 66], "begin_suppress_tokens": [3, 60], "max_length": 24, "no_timestamps_token_id": 79},
    **{"lang_to_id": {"<|en|>": 62, "<|de|>": 63, "<|fr|>": 64}, "task_to_id": {"transcribe": 65, "translate": 66}},
    **{"forced_decoder_ids": [[1, None], [2, 65]], "max_initial_timestamp_index": 30, "is_multilingual": True, "return_timestamps": False},
    **{name: CONFIG[name] for name in ("bos_token_id", "pad_token_id", "eos_token_id", "decoder_start_token_id")},
}
ENGLISH = {
    "is_multilingual": False,
    "forced_decoder_ids": [[1, 79]],
    "max_initial_timestamp_index": None,
    "lang_to_id": None,
    "task_to_id": None,
}
WORDS = {"suppress_tokens": [1, 2, 7, 61, 65, 66, *range(80, 131)]}  # random models write times also where they are not asked for
PREPROCESSOR = {"feature_size": 6, "chunk_length": 1}
DRAWN = {"top_k": 1, "prev_sot_token_id": 67}  # one token alone is drawn, so that it is known
LENGTHS = [16000, 9001, 52345]
CASES = {
    "words": (
        WORDS,
        [
            *((audio, {}) for audio in (0, 1)),
            *((0, {"language": language, "task": task}) for language, task in (("de", None), ("French", "translate"), (None, "translate"))),
            *((0, settings) for settings in ({"num_beams": 3}, {"max_new_tokens": 5})),
        ],
    ),
    "times": (
        {},
        [(0, {}), (1, {}), (2, {}), (2, {"language": "<|en|>"}), (2, {"num_beams": 2}), (2, {"language": "fr", "max_new_tokens": 7})],
    ),
    "english": ({**ENGLISH, **WORDS}, [(0, {}), (1, {"num_beams": 2})]),
    "english times": (ENGLISH, [(0, {}), (2, {"max_new_tokens": 9})]),
    "attempts": (
        {**WORDS, **DRAWN},
        [
            (0, {"prompt_ids": [67, 35, 46, 56]}),
            (1, {"prompt_ids": [67], "language": "fr"}),
            (0, {"temperature": [0.0, 0.5], "compression_ratio_threshold": 0.486, "logprob_threshold": -2.75, "num_beams": 3}),
            (1, {"temperature": [0.0, 0.5], "logprob_threshold": -1.2, "num_beams": 3}),
            (0, {"temperature": [0.0, 0.5], "logprob_threshold": -1.045, "num_beams": 3, "prompt_ids": [67, 35, 46, 56]}),
            (0, {"temperature": [0.0], "logprob_threshold": -0.776, "no_speech_threshold": 0.00015}),
            (1, {"temperature": [0.0, 0.2], "logprob_threshold": -0.4, "no_speech_threshold": 0.0002}),
            (0, {"temperature": [0.7], "logprob_threshold": -0.4}),
        ],
    ),
    "words with times": (
        {"alignment_heads": [[0, 1], [2, 3], [1, 0]], "prev_sot_token_id": 67},
        [
            *((audio, {}) for audio in (0, 1, 2)),
            (2, {"num_beams": 3, "prompt_ids": [67, 16, 21]}),
            (0, {"max_new_tokens": 5}),
            (0, {"max_new_tokens": 1}),
        ],
    ),
    "attempts times": (
        DRAWN,
        [
            (2, {"prompt_ids": [67, 16, 21]}),
            (2, {"temperature": [0.0], "logprob_threshold": -0.966, "no_speech_threshold": 0.000195}),
            (2, {"temperature": [0.0, 0.2], "logprob_threshold": -1.272, "no_speech_threshold": 0.0078, "prompt_ids": [67, 16, 21]}),
            (0, {"temperature": [0.0, 0.5], "compression_ratio_threshold": 0.485, "num_beams": 3}),
        ],
    ),
}
SEED = 104


def audio(length):
    """A tone that rises and falls, of 16 bits."""
    t = np.arange(length) / 16000
    return (9000 * np.sin(3000 * t + 2000 * np.sin(2 * t + length)) * np.cos(7 * t)).astype(np.int16)


def generation(name):
    return {key: value for key, value in {**GENERATION, **CASES[name][0]}.items() if value is not None}


def model_of(name):
    """(model, its features)."""
    torch.manual_seed(SEED)
    model = T.WhisperForConditionalGeneration(T.WhisperConfig(**CONFIG)).double().eval()
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            spread, middle = (0.1, 1.0) if parameter.ndim == 1 and key.endswith("weight") else (0.5, 0.0)
            spread = 3.0 if "positions" in key else 0.8 if "decoder" in key and "_attn" in key else spread  # so that tokens differ
            parameter.data = (middle + spread * torch.randn_like(parameter)).float().double()
    model.generation_config = T.GenerationConfig(**generation(name))
    return model, T.WhisperFeatureExtractor(**PREPROCESSOR)


def mel(extractor, samples):
    """In float64 by NumPy, whatever is installed."""
    padded = np.zeros(max(len(samples), extractor.n_samples), np.float32)
    padded[: len(samples)] = samples
    return extractor._np_extract_fbank_features(padded[None], "cpu").astype(np.float32)


def computed(model):
    """Of features and tokens."""
    features, ids, labels = torch.randn(2, 6, 100).double(), torch.randint(0, 60, (2, 11)), torch.randint(0, 60, (2, 7))
    labels[1, 4:] = -100
    model.set_attn_implementation("eager")
    output = model(input_features=features, decoder_input_ids=ids, output_attentions=True)
    decoded = model.model.decoder(input_ids=ids, encoder_hidden_states=output.encoder_last_hidden_state)
    found = {"features": features, "decoder_ids": ids, "labels": labels, "encoded": output.encoder_last_hidden_state}
    found |= {"hidden": decoded.last_hidden_state, "scores": output.logits, "loss": model(input_features=features, labels=labels).loss}
    found |= {"self": output.decoder_attentions[-1], "cross": output.cross_attentions[-1]}
    model.set_attn_implementation("sdpa")
    return {**found, **{f"state.{key}": value.float() for key, value in model.state_dict().items() if key != "proj_out.weight"}}


def run(name):
    model, extractor = model_of(name)
    arrays, sounds = computed(model) if name == "words" else {}, [audio(length) for length in LENGTHS]
    mels = [mel(extractor, sound / np.float32(32768)) for sound in sounds]
    if name == "words":
        arrays |= {f"audio.{i}": sound for i, sound in enumerate(sounds)} | {f"mel.{i}": found[0] for i, found in enumerate(mels)}
    for i, (number, settings) in enumerate(CASES[name][1]):
        given = torch.from_numpy(mels[number]).double()
        more = {"prompt_ids": torch.tensor(settings["prompt_ids"])} if "prompt_ids" in settings else {}
        if "words with" in name:
            heard = torch.arange(given.shape[-1]) < -(-LENGTHS[number] // 160)
            more |= {"return_token_timestamps": True, "attention_mask": heard.long()[None]}
        found = model.generate(given, return_segments=True, do_sample=False, return_timestamps="times" in name, **{**settings, **more})
        parts = found["segments"][0]
        if "words with" in name:
            arrays[f"seconds.{i}"] = torch.cat([part["token_timestamps"] for part in parts])
        arrays |= {
            f"written.{i}": torch.cat([part["tokens"] for part in parts] or [torch.zeros(0, dtype=int)]),
            f"counts.{i}": [len(part["tokens"]) for part in parts],
        }
        arrays |= {f"{edge}s.{i}": [float(part[edge]) for part in parts] for edge in ("start", "end")}
    values = {key: value for key, value in model.config.to_dict().items() if value is not None}
    options = {"config": values, "generation": generation(name), "preprocessor": PREPROCESSOR}
    return {**options, "calls": CASES[name][1]}, {key: np.asarray(value) for key, value in arrays.items()}


def main(folder):
    torch.set_num_threads(1)
    with torch.no_grad():
        writing.write(folder / "whisper.npz", {name: run(name) for name in CASES})


if __name__ == "__main__":
    main(writing.folder())
