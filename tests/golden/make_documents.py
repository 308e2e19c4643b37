"""Writes documents.npz: PyTorch's results for the documents' models, by tests/documents/torch_twins.py.

python tests/golden/make_documents.py [FOLDER]
"""

import pathlib
import sys

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "documents"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import inputs
import torch_twins as twins
from make_golden import DTYPES, Cases

SMALL = {"n_heads": 2, "n_layers": 1}


def weights(model, prefix="weight"):
    return {f"{prefix}.{k}": v.detach().numpy().copy() for k, v in model.state_dict().items()}


def glimpses(model):
    """The first values of every weight, and their sum."""
    return {k: np.append(v.flatten()[:4], v.sum()) for k, v in weights(model, "glimpse").items()}


def squares(cases):
    """The squares models from seed 42, without dropout, and their loss curves of 50 epochs."""
    points = np.stack(inputs.squares()[0]).astype(np.float32)
    for case, make in {"squares": twins.Squares, "squares_of_torch": twins.small_torch_model}.items():
        found = {"points": points}
        for tag, dtype in DTYPES.items():
            torch.manual_seed(42)
            model = twins.xavier(make(dropout=0.0))
            found.update(weights(model))
            train, validation, final = twins.train_squares(model.to(dtype), torch.as_tensor(points).to(dtype))
            found |= {f"{tag}.train": train, f"{tag}.validation": validation, f"{tag}.final": final}
        cases.add(case, {"epochs": 50}, **found)


def digits(cases):
    """The patch encoder in both variants, small: results, and the losses of three epochs from seed 42; the MLP's losses."""
    x, labels = map(torch.as_tensor, inputs.digits())
    for over in ("features", "patches"):
        torch.manual_seed(42)
        model = twins.Patches(**SMALL, over=over)
        found = glimpses(model)
        first = model.tranformer[0].attention(model.inp_emb(x[:2]) + model.pos_emb)
        found |= {"y": model(x[:2]), "map": first[1]}
        cases.add(f"patches_{over}", SMALL | {"over": over}, **found, losses=twins.train_digits(model, x, labels, epochs=3))
    torch.manual_seed(42)
    model = twins.Mlp()
    cases.add("mlp", {"epochs": 2}, **glimpses(model), losses=twins.train_digits(model, x.flatten(1), labels, epochs=2))


def main(folder):
    torch.set_num_threads(1)
    cases = Cases()
    squares(cases)
    digits(cases)
    cases.write(pathlib.Path(folder) / "documents.npz")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
