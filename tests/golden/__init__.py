"""Golden values, written by make_golden.py with PyTorch; README.md describes them. Reading them needs only NumPy."""

import json
import pathlib

import numpy as np


def load(name, folder=pathlib.Path(__file__).parent):
    """The cases of NAME.npz: {case: (options, {array name: ndarray})}."""
    with np.load(folder / f"{name}.npz") as file:
        cases = {case: (options, {}) for case, options in json.loads(str(file["options"])).items()}
        for key in file.files:
            if key != "options":
                case, _, array = key.partition("/")
                cases[case][1][array] = file[key]
    return cases


def models(folder=pathlib.Path(__file__).parent):
    """The cases of all files of models that ``make_models.py`` writes, one for each architecture."""
    return {case: found for path in sorted(folder.glob("models*.npz")) for case, found in load(path.stem, folder).items()}
