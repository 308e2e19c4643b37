"""Texts, labels and a tokenizer of letters, for classifiers; without transformer_c, as PyTorch's numbers are made with them too."""

import json

import numpy as np

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = [*SPECIAL, *LETTERS, *"0123456789:"]
TEXTS = ["abc", "zyx", "hello", "q", "transformers", "numpy", "abcabcabc"]
LABELS = [0, 2, 1, 1, 0, 2, 0]
TAGS = [[ord(letter) % 3 for letter in text] for text in TEXTS]
SEVERAL = [[int(letter in text) for letter in "aeo"] for text in TEXTS]
NUMBERS = [len(text) / 5 for text in TEXTS]
PAIRS = [("query", "an answer"), ("query", "abc"), ("q", "z" * 12), ("a", "b"), ("numpy", "arrays" * 5)]


def letters(texts):
    """(ids, types) of texts, [CLS] before and [SEP] after each; of pairs, another [SEP] between them, and types 0 and 1."""
    found = []
    for text in texts:
        first, *second = [text] if isinstance(text, str) else text
        ids = [2, *(WORDS.index(c) if c in WORDS else 1 for c in first), 3]
        types = [0] * len(ids)
        for other in second:
            ids += [*(WORDS.index(c) if c in WORDS else 1 for c in other), 3]
            types += [1] * (len(other) + 1)
        found.append((np.array(ids), np.array(types)))
    return found


def tagged(texts):
    """(ids, types, words) of texts that are lists of words."""
    found = []
    for words in texts:
        numbers = [-1, *(i for i, word in enumerate(words) for _ in word), -1]
        found.append((*letters(["".join(words)])[0], np.array(numbers)))
    return found


def columns():
    """Three numbers of each text."""
    return np.array([[number, number**2, 1.0] for number in NUMBERS])


def padded(texts):
    """(ids, mask) of texts."""
    tokens = [ids for ids, _ in letters(texts)]
    mask = np.arange(max(map(len, tokens))) < np.array([len(ids) for ids in tokens])[:, None]
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = np.concatenate(tokens)
    return ids, mask.astype(np.int64)


def tokenizer_json(**values):
    """The same tokenizer as the contents of tokenizer.json; `values` are other parts of it."""
    special = [{"id": i, "content": w, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
               for i, w in enumerate(SPECIAL)]  # fmt: skip
    one = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
    ]
    two = [*one, {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False},
        "post_processor": {"type": "TemplateProcessing", "single": one, "pair": two,
                           "special_tokens": {w: {"id": w, "ids": [i], "tokens": [w]} for i, w in ((2, "[CLS]"), (3, "[SEP]"))}},
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)}, "unk_token": "[UNK]"},
        **values,
    }  # fmt: skip


def write_tokenizer(folder, length=40):
    """The same tokenizer as files."""
    names = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": length, **names,
              "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
