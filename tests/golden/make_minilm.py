"""Writes minilm.npz: embeddings of texts by all-MiniLM-L6-v2 in float64, with transformers 5 on PyTorch 2.13.

python tests/golden/make_minilm.py MODEL_FOLDER
"""

import json
import pathlib
import sys

import numpy as np
import torch
import transformers

TEXTS = [
    "Reverse a sequence of numbers.",
    "a",
    "",
    "How do I bake bread without yeast?",
    "Ünïcödé, 日本語 and 🙂 in one text",
    "The quick brown fox jumps over the lazy dog. " * 12,
    "attention " * 400,
    "Bread can be baked with baking soda in the place of yeast.",
]

if __name__ == "__main__":
    tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
    model = transformers.AutoModel.from_pretrained(sys.argv[1]).double().eval()
    inputs = tokenizer(TEXTS, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        states = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None]
    vectors = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1))
    arrays = {"minilm/vectors": vectors.numpy().astype(np.float32), "minilm/ids": inputs["input_ids"].numpy().astype(np.uint16)}
    options = {"minilm": {"texts": TEXTS, "lengths": inputs["attention_mask"].sum(1).tolist()}}
    np.savez_compressed(pathlib.Path(__file__).parent / "minilm.npz", options=np.array(json.dumps(options)), **arrays)
