"""Writes models*.npz with transformers 5 on PyTorch 2.13: small models with random weights, and what they compute in float64.

python tests/golden/make_models.py [FOLDER [FILE]]

Each of ``FILES``, or one, so that the numbers of architectures that are there stay as they are when one is added.

One case for each architecture: ``config`` (in the options), ``state.NAME`` the encoder's arrays, ``head.TASK.NAME`` those of a head that
the encoder has not, ``ids``, ``mask``, ``types``, or ``pixels``, and ``pixels.other`` of another size with ``hidden.other``; ``hidden``, ``pooled`` and ``TASK`` the results. For each of ``rotations`` in the
options, values of config.json by a label: ``rotated.LABEL`` is the states of some of ``rotated.ids``; for ``known`` ones, those of models that
exist, ``known.LABEL`` the frequencies of the pairs, and then the factor of cosines and sines.
"""

import json
import sys
import types

import numpy as np
import torch
import torch.nn.functional as F
import transformers as T
import writing
from transformers import modeling_rope_utils
from transformers.models.dinov2 import modeling_dinov2
from transformers.models.dinov2_with_registers import modeling_dinov2_with_registers

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 40}
ENDS = {"bos_token_id": 1, "eos_token_id": 2}
TWO = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3}
CONFIGS = {
    "bert": T.BertConfig(**SMALL, max_position_embeddings=16, hidden_act="gelu_new"),
    "camembert": T.CamembertConfig(**SMALL, max_position_embeddings=16, layer_norm_eps=1e-5, hidden_act="relu"),
    "distilbert": T.DistilBertConfig(vocab_size=40, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=16),
    "electra": T.ElectraConfig(**SMALL, max_position_embeddings=16, embedding_size=12),
    "gemma": T.GemmaConfig(**SMALL, **ENDS, num_key_value_heads=1, head_dim=6, max_position_embeddings=16),
    "gemma2": T.Gemma2Config(
        **{**SMALL, **ENDS, **TWO, "num_key_value_heads": 1, "head_dim": 6, "max_position_embeddings": 16, "query_pre_attn_scalar": 10},
        **{"attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0, "attention_bias": True},
    ),
    "gemma3_text": T.Gemma3TextConfig(
        **{**SMALL, **ENDS, **TWO, "num_key_value_heads": 1, "head_dim": 6, "max_position_embeddings": 16, "query_pre_attn_scalar": 10},
        **{"rope_theta": 90.0, "rope_local_base_freq": 30.0},
    ),
    "gpt2": T.GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_inner=24, n_positions=16, bos_token_id=1, eos_token_id=2),
    "gpt_neox": T.GPTNeoXConfig(**SMALL, **ENDS, max_position_embeddings=16, rotary_pct=0.5, rotary_emb_base=90),
    "llama": T.LlamaConfig(
        **SMALL, **ENDS, num_key_value_heads=1, max_position_embeddings=16, rope_parameters={"rope_type": "default", "rope_theta": 90.0}
    ),
    "mistral": T.MistralConfig(**SMALL, **ENDS, num_key_value_heads=2, max_position_embeddings=16, sliding_window=3),
    "modernbert": T.ModernBertConfig(
        **SMALL,
        **dict.fromkeys(("bos_token_id", "cls_token_id"), 1),
        **dict.fromkeys(("eos_token_id", "sep_token_id"), 2),
        pad_token_id=3,
        max_position_embeddings=32,
        local_attention=8,
        global_rope_theta=90.0,
        classifier_pooling="mean",
    ),
    "mpnet": T.MPNetConfig(**SMALL, max_position_embeddings=160),
    "nomic_bert": T.NomicBertConfig(**SMALL, max_position_embeddings=16),
    "olmo2": T.Olmo2Config(**SMALL, **ENDS, pad_token_id=0, num_key_value_heads=1, max_position_embeddings=16),
    "phi3": T.Phi3Config(
        **{**SMALL, **ENDS, "pad_token_id": 0, "num_key_value_heads": 1, "max_position_embeddings": 16, "sliding_window": 3},
        **{"partial_rotary_factor": 0.5, "tie_word_embeddings": True},
    ),
    "qwen2": T.Qwen2Config(
        **SMALL, **ENDS, num_key_value_heads=1, max_position_embeddings=16, use_sliding_window=True, sliding_window=3, max_window_layers=1
    ),
    "qwen3": T.Qwen3Config(**SMALL, **ENDS, num_key_value_heads=1, max_position_embeddings=16, head_dim=6, tie_word_embeddings=True),
    "roberta": T.RobertaConfig(**SMALL, max_position_embeddings=16, hidden_act="silu", num_labels=3),
    "vit": T.ViTConfig(**{k: v for k, v in SMALL.items() if k != "vocab_size"}, image_size=(12, 8), patch_size=4, num_labels=3),
    "xlm-roberta": T.XLMRobertaConfig(**SMALL, max_position_embeddings=16, type_vocab_size=1),
}
DISTANCES = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_position_embeddings": 32}
DEBERTA = {
    "deberta-v2": T.DebertaV2Config(  # as DeBERTa-v3
        **{
            **SMALL,
            **DISTANCES,
            "position_buckets": 8,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "position_biased_input": False,
        },
        **{"type_vocab_size": 0, "pooler_dropout": 0.1, "legacy": True},
    ),
}
# The others of its kind, by themselves: all that config.json may change.
ONE = {**SMALL, "num_hidden_layers": 1}
DEBERTAS = {
    "conv": T.DebertaV2Config(  # as DeBERTa-v2 xlarge
        **{**ONE, **DISTANCES, "position_buckets": 6, "max_relative_positions": 20, "norm_rel_ebd": "layer_norm", "share_att_key": True},
        **{"conv_kernel_size": 3, "conv_act": "gelu", "position_biased_input": False},
    ),
    "positions": T.DebertaV2Config(
        **{**ONE, **DISTANCES, "pos_att_type": "c2p|p2c", "type_vocab_size": 2, "max_relative_positions": 7, "embedding_size": 12},
    ),
    "c2p": T.DebertaV2Config(**{**ONE, **DISTANCES, "pos_att_type": ["c2p"], "share_att_key": True, "hidden_act": "relu"}),
    "p2c": T.DebertaV2Config(**{**ONE, **DISTANCES, "pos_att_type": ["p2c"], "position_buckets": 4, "legacy": False}),
    "plain": T.DebertaV2Config(**ONE, max_position_embeddings=32, pos_att_type=["c2p"]),
}
ALBERT = {
    "albert": T.AlbertConfig(**{**SMALL, "num_hidden_layers": 3}, embedding_size=12, num_hidden_groups=2, max_position_embeddings=16),
}
KIN = {  # of BERT and RoBERTa
    "data2vec-text": T.Data2VecTextConfig(**{**SMALL, "num_hidden_layers": 1}, max_position_embeddings=16),
    "ernie": T.ErnieConfig(**{**SMALL, "num_hidden_layers": 1}, max_position_embeddings=16, use_task_id=True),
}
XL = {"xlm-roberta-xl": T.XLMRobertaXLConfig(**{**SMALL, "num_hidden_layers": 1}, max_position_embeddings=16)}
FIRST = {
    "deberta": T.DebertaConfig(
        **{**SMALL, "num_hidden_layers": 1},
        max_position_embeddings=32,
        relative_attention=True,
        max_relative_positions=8,
        pos_att_type="c2p|p2c",
        position_biased_input=False,
    )
}
UNREAD = {name: value for name, value in SMALL.items() if name not in ("vocab_size", "intermediate_size")}
PATCHES = {"mlp_ratio": 2, "image_size": 12, "patch_size": 4, "num_labels": 3}
IMAGES = {
    "dinov2": T.Dinov2Config(**{**UNREAD, **PATCHES, "layerscale_value": 0.7, "hidden_act": "relu"}),
    "dinov2_with_registers": T.Dinov2WithRegistersConfig(**{**UNREAD, **PATCHES, "num_register_tokens": 2}),
}
GATES = {
    "gates": T.Dinov2Config(**{**UNREAD, **PATCHES, "use_swiglu_ffn": True}),
    "gates_registers": T.Dinov2WithRegistersConfig(**{**UNREAD, **PATCHES, "use_swiglu_ffn": True, "num_hidden_layers": 1}),
}
FILES = {
    "models": CONFIGS,
    "models_albert": ALBERT,
    "models_kin": KIN,
    "models_deberta": DEBERTA,
    "models_xl": XL,
    "models_first": FIRST,
    "models_images": IMAGES,
    "gates": GATES,
    "deberta": DEBERTAS,
}
# Positions that are scaled for long texts, as files of both transformers 4 and 5 have them.
LONG, FULL, NEAR = {"max_position_embeddings": 64}, "full_attention", "sliding_attention"
ROTATIONS = {
    "llama": {
        "linear": {"rope_scaling": {"type": "linear", "factor": 2.5}, "rope_theta": 90.0},
        "llama3": {
            "rope_parameters": {
                **{"rope_type": "llama3", "rope_theta": 90.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
                "original_max_position_embeddings": 12,
            }
        },
        "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}, "rope_theta": 50},
    },
    "mistral": {
        "options": {
            "rope_scaling": {
                **{"type": "yarn", "factor": 3, "original_max_position_embeddings": 20, "beta_fast": 4, "beta_slow": 0.5},
                **{"attention_factor": 0.8, "truncate": False},
            }
        },
        "elsewhere": {
            "rope_scaling": {"type": "llama3", "factor": 2, "low_freq_factor": 1, "high_freq_factor": 2},
            "original_max_position_embeddings": 12,
        },
    },
    "qwen2": {
        "mscale": {
            "rope_parameters": {
                **{"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8, "mscale": 0.7, "mscale_all_dim": 0.4},
                "rope_theta": 30.0,
            }
        },
    },
    "gemma3_text": {
        "older": {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_theta": 50.0, "rope_local_base_freq": 20},
        "kinds": {"rope_parameters": {FULL: {"rope_type": "linear", "factor": 3.0, "rope_theta": 70.0}, NEAR: {"rope_theta": 40.0}}},
        "encoder": {
            **{"use_bidirectional_attention": True, "sliding_window": 10, "rope_theta": 50.0, "rope_local_base_freq": 20},
            "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        },
    },
    "gpt_neox": {
        "linear": {"rope_scaling": {"type": "linear", "factor": 3.0}, "rotary_emb_base": 50, "use_parallel_residual": False},
        "yarn": {
            "rope_parameters": {
                **{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 50.0},
                "partial_rotary_factor": 0.75,
            }
        },
    },
    "phi3": {
        "longrope": {
            "rope_scaling": {"type": "longrope", "short_factor": [1.5, 3, 2.5, 1], "long_factor": [5.0, 6.0, 7.0, 8.0]},
            **{"original_max_position_embeddings": 45, "rope_theta": 90.0, "partial_rotary_factor": 1.0},
        },
        "share": {
            "rope_scaling": {
                **{"type": "longrope", "short_factor": [1.5, 3.0], "long_factor": [5.0, 6.0], "attention_factor": 1.5, "factor": 2.0}
            },
            **{"original_max_position_embeddings": 45, "rope_theta": 90.0, "partial_rotary_factor": 0.5},
        },
    },
    "qwen3": {"yarn": {"rope_scaling": {"type": "yarn", "factor": 4.0, "beta_slow": 2, "mscale": 0.5}, "rope_theta": 60.0}},
    "nomic_bert": {
        "linear": {"rope_parameters": {"rope_type": "linear", "factor": 3.0}},
        "yarn": {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 30, "rope_theta": 40.0}},
    },
    "modernbert": {
        "kinds": {
            "rope_parameters": {
                FULL: {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 90.0},
                NEAR: {"rope_type": "linear", "factor": 2.0},
            }
        },
    },
}
KNOWN = {
    "llama": {
        "Llama 3.1": {
            "rope_theta": 500000.0,
            "rope_scaling": {
                **{"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
                "rope_type": "llama3",
            },
        },
        "Llama 3.2": {
            "head_dim": 64,
            "rope_theta": 500000.0,
            "rope_scaling": {
                **{"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
                "rope_type": "llama3",
            },
        },
        "Qwen2.5": {
            "rope_theta": 1000000.0,
            "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"},
        },
        "DeepSeek": {
            "head_dim": 64,
            "rope_theta": 10000,
            "rope_scaling": {
                **{"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 1.0},
                **{"original_max_position_embeddings": 4096, "type": "yarn"},
            },
        },
        "gpt-oss": {
            "head_dim": 64,
            "rope_theta": 150000,
            "rope_scaling": {
                **{"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096},
                **{"rope_type": "yarn", "truncate": False},
            },
        },
        "Vicuna": {"rope_scaling": {"factor": 4.0, "type": "linear"}},
    },
}
TASKS = {
    "text-classification": T.AutoModelForSequenceClassification,
    "token-classification": T.AutoModelForTokenClassification,
    "question-answering": T.AutoModelForQuestionAnswering,
    "fill-mask": T.AutoModelForMaskedLM,
}
DECODERS = ("gemma", "gemma2", "gemma3_text", "gpt2", "gpt_neox", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3")
OTHERS = {  # of architectures that have other tasks
    **{name: {"text-generation": T.AutoModelForCausalLM} for name in DECODERS},
    **{key: {"image-classification": T.AutoModelForImageClassification} for key in ("vit", *IMAGES, *GATES)},
    "p2c": {"fill-mask": T.AutoModelForMaskedLM},
}
TIED = ("vocab_projector.weight", "generator_lm_head.weight", "decoder.weight")


def randomise(module):
    """Weights of a size that all parts of a result depend on, exact in float32."""
    for name, parameter in module.named_parameters():
        spread, middle = (0.1, 1.0) if parameter.ndim == 1 and name.endswith("weight") else (0.3, 0.0)
        parameter.data = (middle + spread * torch.randn_like(parameter.data)).to(torch.float32).to(parameter.dtype)


def exact(module):
    """Its norms in the dtype of their input: transformers' have float32, whatever the model has."""
    for kind in {type(part) for part in module.modules() if type(part).__name__.endswith("RMSNorm")}:
        if not kind.__name__.startswith("Gemma"):  # which call float()
            kind.forward = lambda self, x: self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)


def scores(output):
    if "start_logits" in output:
        return torch.stack([output.start_logits, output.end_logits], -1)
    return output.logits


def inputs_of(name, config):
    """Two texts, the second shorter; the ids of padding at its end."""
    length = {"mpnet": 140, "modernbert": 24}.get(name, 20 if "deberta" in config.model_type else 9)
    ids = torch.randint(5, 40, (2, length))
    mask = torch.ones_like(ids)
    mask[1, length - 4 :] = 0
    ids[mask == 0] = config.pad_token_id or 0
    found = {"input_ids": ids, "attention_mask": mask}
    if getattr(config, "type_vocab_size", 1) > 1:
        found["token_type_ids"] = torch.randint(0, 2, ids.shape)
    return found


def state_of(module):
    return {key: value.to(torch.float32).numpy() for key, value in module.state_dict().items()}


def run(name, config):
    torch.manual_seed(42)
    arrays = {}
    encoder = T.AutoModel.from_config(config).double().eval()
    randomise(encoder)
    exact(encoder)
    own = encoder.state_dict()
    arrays.update({f"state.{key}": value for key, value in state_of(encoder).items()})
    if hasattr(config, "patch_size"):
        size = config.image_size if name == "vit" else (config.image_size, config.image_size)
        inputs = {"pixel_values": torch.randn(2, 3, *size).to(torch.float32).double()}
        arrays["pixels"] = inputs["pixel_values"].to(torch.float32).numpy()
        if name in (*IMAGES, *GATES):  # smaller and larger, and not a whole number of patches
            arrays["pixels.other"] = torch.randn(1, 3, 9, 22).to(torch.float32).numpy()
            arrays["hidden.other"] = encoder(torch.from_numpy(arrays["pixels.other"]).double()).last_hidden_state.numpy()
    else:
        inputs = inputs_of(name, config)
        arrays.update(zip(("ids", "mask", "types"), (v.numpy() for v in inputs.values()), strict=False))
    output = encoder(**inputs)
    arrays["hidden"] = output.last_hidden_state.detach().numpy()
    if output.get("pooler_output") is not None and name not in (*IMAGES, *GATES):
        arrays["pooled"] = output.pooler_output.detach().numpy()
    for task, kind in OTHERS.get(name, {} if name in DEBERTAS else TASKS).items():
        if type(config) not in kind._model_mapping or (task == "question-answering" and config.num_labels != 2):
            continue
        model = kind.from_config(config).double().eval()
        randomise(model)
        base = model.base_model
        base.load_state_dict({**base.state_dict(), **{key: value for key, value in own.items() if key in base.state_dict()}})
        model.tie_weights()
        prefix = model.base_model_prefix + "."
        known = (*own, *TIED, *(["lm_head.weight"] if getattr(config, "tie_word_embeddings", False) else []))
        head = {key.removeprefix(prefix): value for key, value in state_of(model).items() if key.removeprefix(prefix) not in known}
        arrays.update({f"head.{task}.{key}": value for key, value in head.items() if ".decoder." not in key})
        arrays[task] = scores(model(**inputs)).detach().numpy()
        if task == "text-generation":
            arrays["generated"] = model.generate(inputs["input_ids"][:1], max_new_tokens=7, do_sample=False).numpy()
            arrays["penalised"] = model.generate(inputs["input_ids"][:1], max_new_tokens=7, do_sample=False, repetition_penalty=1.7).numpy()
    values = {k: v for k, v in config.to_dict().items() if v is not None}
    return {"config": {**values, "model_type": config.model_type}}, arrays


def changed(config, values):
    """A configuration with other rotary positions, for longer texts."""
    others = {key: value for key, value in config.to_dict().items() if value is not None and key != "rope_parameters"}
    return type(config)(**{**others, **LONG, **json.loads(json.dumps(values))})  # a copy, as it is changed there


def rotations(name, config, arrays):
    """The arrays of ROTATIONS and KNOWN for an architecture, with the weights of its case."""
    found = {}
    for label, values in ROTATIONS.get(name, {}).items():
        encoder = T.AutoModel.from_config(changed(config, values)).double().eval()
        exact(encoder)
        encoder.load_state_dict(
            {key.removeprefix("state."): torch.from_numpy(value) for key, value in arrays.items() if key.startswith("state.")}
        )
        found["rotated.ids"] = np.arange(3, 43)[None] * 7 % 35 + 5
        found[f"rotated.{label}"] = encoder(torch.from_numpy(found["rotated.ids"])).last_hidden_state[:, 3::12].numpy()
    for label, values in KNOWN.get(name, {}).items():
        own = changed(config, {"head_dim": 128, **values})
        frequencies, factor = modeling_rope_utils.ROPE_INIT_FUNCTIONS[own.rope_parameters["rope_type"]](own)
        found[f"known.{label}"] = np.append(frequencies.numpy(), factor)
    return {key: values[name] for key, values in (("rotations", ROTATIONS), ("known", KNOWN)) if name in values}, found


def main(folder, files=FILES):
    torch.set_num_threads(1)
    torch.float, torch.Tensor.float = torch.float64, torch.Tensor.double  # of rotary positions, which have float32 whatever the model has
    F.softmax = lambda x, dim, dtype=None: torch.softmax(x, dim)  # of attention in Gemma 2, likewise
    for module in (modeling_dinov2, modeling_dinov2_with_registers):  # of positions for images of other sizes
        module.torch = types.SimpleNamespace(**{**vars(torch), "float32": torch.float64})
    modeling_rope_utils.torch = types.SimpleNamespace(**{**vars(torch), "float": torch.float64, "float32": torch.float64})
    for file in files:
        cases = {}
        with torch.no_grad():
            for name, config in FILES[file].items():
                options, found = run(name, config)
                more, others = rotations(name, config, found)
                cases[name] = options | more, found | others
        writing.write(folder / f"{file}.npz", cases)


if __name__ == "__main__":
    main(writing.folder(), sys.argv[2:] or FILES)
