"""Small folders of models, as sentence-transformers and transformers write them."""

import json

import numpy as np
import transformer_c as tc
from transformer_c.models.architectures import ARCHITECTURES
from transformer_c.models.layers import TextEncoder

CONFIG = {
    "model_type": "bert",
    "vocab_size": 64,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz0123456789:"]


def tokenizer_json():
    """A tokenizer of letters between [CLS] and [SEP], whose file asks for other lengths and padding than the model."""
    vocabulary = {word: i for i, word in enumerate(WORDS)} | {f"##{word}": i + 4 + 20 for i, word in enumerate("abcd")}
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 30},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        "added_tokens": [
            {"id": i, "content": w, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for i, w in enumerate(WORDS[:4])
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {w: {"id": w, "ids": [i], "tokens": [w]} for i, w in ((2, "[CLS]"), (3, "[SEP]"))},
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }


def own_text_encoders():
    """The names of the architectures that read texts; one alone of those that differ in nothing but their tables."""
    return [name for name, kind in ARCHITECTURES.items() if issubclass(kind, TextEncoder) and "__init__" in vars(kind)]


def sentence_folder(folder, config=CONFIG, **files):
    """Writes a folder of sentence-transformers'; `files` are other contents of its JSON files, None for none; returns it."""
    tc.manual_seed(5)
    model = tc.models.create({**config, "initializer_range": 0.3})
    tc.models.save(model, folder)
    kind = "sentence_transformers.models."
    contents = {
        "tokenizer": tokenizer_json(),
        "modules": [
            {"idx": 0, "name": "0", "path": "", "type": kind + "Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": kind + "Pooling"},
            {"idx": 2, "name": "2", "path": "2_Normalize", "type": kind + "Normalize"},
        ],
        "sentence_bert_config": {"max_seq_length": 20, "do_lower_case": False},
        "config_sentence_transformers": {"prompts": {"query": "find:"}, "default_prompt_name": None, "similarity_fn_name": "dot"},
        "1_Pooling/config": {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
        **files,
    }
    (folder / "1_Pooling").mkdir(exist_ok=True)
    for name, value in contents.items():
        if value is not None:
            (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def letters(texts):
    """What that tokenizer makes of texts of letters, without the package."""
    return [(np.array([2, *(WORDS.index(c) for c in text), 3]), np.zeros(len(text) + 2, int)) for text in texts]
