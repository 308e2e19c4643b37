"""Decoders on a GPU: the tokens and scores of the CPU, with a cache and without."""

import numpy as np
import pytest
import transformer_c as tc
from device_cases import host
from golden import load

pytestmark = pytest.mark.usefixtures("nothing_is_left")

CONFIGS = {
    "gpt2": {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_inner": 16, "n_positions": 24},
    "llama": {
        **{"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 16},
        **{"max_position_embeddings": 24, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 6}},
    },
    "gpt_neox": {
        **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 24},
        **{"rotary_pct": 0.5, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    },
    "phi3": {
        **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 16},
        **{"max_position_embeddings": 48, "original_max_position_embeddings": 24, "partial_rotary_factor": 0.5, "pad_token_id": 0},
        "rope_scaling": {"type": "longrope", "short_factor": [1.5, 2.0], "long_factor": [3.0, 4.0]},
    },
    "gemma2": {
        **{"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 6},
        **{"intermediate_size": 16, "sliding_window": 3, "max_position_embeddings": 24},
    },
    "qwen3": {
        **{
            "hidden_size": 8,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 6,
            "intermediate_size": 16,
        },
        **{"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1, "max_position_embeddings": 24},
    },
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_texts_are_continued_as_on_the_cpu(emulated_gpu, kind, rng):
    tc.manual_seed(3)
    model = tc.models.create({"model_type": kind, "vocab_size": 30, "initializer_range": 0.5, **CONFIGS[kind]}, task="text-generation")
    ids, lengths = rng.integers(0, 30, (2, 5)), np.array([5, 2])
    expected, scores = model.generate(ids, 6, lengths=lengths), model(ids, lengths=lengths)
    model.to(emulated_gpu)
    assert np.array_equal(model.generate(ids, 6, lengths=lengths), expected)
    cache = tc.models.Cache()
    with tc.no_grad():
        parts = [
            host(model(tc.tensor(ids[:, part], device=emulated_gpu), lengths=n, cache=cache))
            for part, n in ((slice(0, 2), [2, 2]), (slice(2, 5), [3, 0]))
        ]
    np.testing.assert_allclose(np.concatenate(parts, 1), scores, rtol=0, atol=1e-5 * np.abs(scores).max())


def test_speech_is_written_as_on_the_cpu(emulated_gpu):
    """With the language that is heard."""
    options, arrays = load("whisper")["words"]
    state = {name.removeprefix("state."): value for name, value in arrays.items() if name.startswith("state.")}
    model = tc.convert.from_hf(state, options["config"], task="automatic-speech-recognition", dtype="float32")
    features = arrays["features"].astype(np.float32)
    expected = model.generate(features, [61, 62, 79], languages=[62, 63, 64])
    assert model.to(emulated_gpu).generate(features, [61, 62, 79], languages=[62, 63, 64]) == expected
