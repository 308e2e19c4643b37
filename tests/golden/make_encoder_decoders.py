"""Writes encoder_decoders.npz with transformers 5 on PyTorch 2.13: small models with random weights, and what they compute in float64.

python tests/golden/make_encoder_decoders.py [FOLDER]

One case for each architecture, and one of Flan-T5: ``config`` (in the options), ``state.NAME`` the arrays of the model with its head, ``ids``, ``mask``,
``decoder_ids``, ``labels``; the results ``encoded``, ``hidden``, ``scores``, ``loss``, the maps ``self`` and ``cross`` of the decoder's last layer; and for
each of ``searches`` in the options, settings of ``generate``, ``written.I``, the tokens of each text alone, one text after the other, with ``ends.I`` their ends.
"""

import numpy as np
import torch
import transformers as T
import writing
from transformers.models.t5 import modeling_t5

BART = {
    **{
        "vocab_size": 32,
        "d_model": 8,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 4,
    },
    **{"encoder_ffn_dim": 12, "decoder_ffn_dim": 10, "max_position_embeddings": 24, "scale_embedding": True},
    **{"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2},
}
T5 = {
    **{"vocab_size": 32, "d_model": 8, "d_kv": 3, "d_ff": 12, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2},
    **{"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "decoder_start_token_id": 0},
}
CASES = {
    "bart": (T.BartConfig(**BART, activation_function="gelu_new"), T.BartForConditionalGeneration),
    "flan": (T.T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False), T.T5ForConditionalGeneration),
    "marian": (T.MarianConfig(**BART, activation_function="swish"), T.MarianMTModel),
    "mbart": (T.MBartConfig(**BART), T.MBartForConditionalGeneration),
    "t5": (T.T5Config(**T5), T.T5ForConditionalGeneration),
}
SEARCHES = [
    {},
    {"num_beams": 4},
    {"num_beams": 3, "length_penalty": 2.0, "early_stopping": True, "no_repeat_ngram_size": 2, "min_length": 5},
    {"num_beams": 2, "length_penalty": 0.0, "early_stopping": "never", "repetition_penalty": 1.3, "bad_words_ids": [[7], [9]]},
    {"num_beams": 5, "renormalize_logits": True, "forced_bos_token_id": 5, "forced_eos_token_id": 6},
]


def exact(self, x):
    """A norm in the dtype of its input: transformers' has float32, whatever the model has."""
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def run(name):
    config, kind = CASES[name]
    torch.manual_seed(42)
    model = kind(config).double().eval()
    if name == "flan":  # as in its files
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            spread, middle = (0.1, 1.0) if parameter.ndim == 1 and key.endswith("weight") else (0.5, 0.0)
            parameter.data = (middle + spread * torch.randn_like(parameter)).float().double()
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.data = torch.randn(1, 32).double().float().double()
    ids, decoder_ids, labels = (torch.randint(8, 32, (2, length)) for length in (9, 18, 7))
    mask = torch.ones_like(ids)
    mask[1, 5:], labels[1, 4:] = 0, -100
    ids[mask == 0] = config.pad_token_id
    model.set_attn_implementation("eager")
    output = model(input_ids=ids, attention_mask=mask, decoder_input_ids=decoder_ids, output_attentions=True)
    base = model.base_model if hasattr(model, "model") else model
    shared = {} if name == "flan" else {"lm_head.weight"}
    tied = {
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
        "encoder.embed_positions.weight",
        "decoder.embed_positions.weight",
    }
    tied = tied if name == "marian" else {one for one in tied if "tokens" in one}
    arrays = {
        f"state.{key}": value.float().numpy()
        for key, value in model.state_dict().items()
        if key.removeprefix("model.") not in tied and key not in shared
    }
    decoded = base.decoder(input_ids=decoder_ids, encoder_hidden_states=output.encoder_last_hidden_state, encoder_attention_mask=mask)
    arrays |= {
        **{"ids": ids, "mask": mask, "decoder_ids": decoder_ids, "labels": labels, "encoded": output.encoder_last_hidden_state},
        **{
            "hidden": decoded.last_hidden_state,
            "scores": output.logits,
            "loss": model(input_ids=ids, attention_mask=mask, labels=labels).loss,
        },
        **{"self": output.decoder_attentions[-1], "cross": output.cross_attentions[-1]},
    }
    model.set_attn_implementation("sdpa")
    for i, settings in enumerate(SEARCHES):
        settings = {"forced_eos_token_id": None, **settings} if "forced_bos_token_id" in settings else settings
        written = [
            model.generate(text[None, :count], max_new_tokens=12, do_sample=False, **settings)[0]
            for text, count in zip(ids, mask.sum(1), strict=True)
        ]
        arrays |= {f"written.{i}": torch.cat(written), f"ends.{i}": torch.tensor([len(text) for text in written]).cumsum(0)}
    values = {key: value for key, value in config.to_dict().items() if value is not None}
    if name == "flan":
        values["tie_word_embeddings"] = False
    return {"config": values, "searches": SEARCHES}, {key: np.asarray(value) for key, value in arrays.items()}


def main(folder):
    torch.set_num_threads(1)
    modeling_t5.T5LayerNorm.forward = exact
    with torch.no_grad():
        writing.write(folder / "encoder_decoders.npz", {name: run(name) for name in CASES})


if __name__ == "__main__":
    main(writing.folder())
