"""Golden values, written by make_golden.py with PyTorch; README.md describes them. Reading them needs only NumPy."""

import importlib
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


def rewritten(script, folder):
    """The module of a script, which has written its files anew, into `folder`. Skips the test unless PyTorch is the one of the golden values."""
    import pytest

    torch = pytest.importorskip("torch")
    if not torch.__version__.startswith("2.13"):
        pytest.skip(f"the golden values are of PyTorch 2.13, this is {torch.__version__}")
    threads = torch.get_num_threads()
    module = importlib.import_module(f"golden.{script}")
    try:
        module.main(folder)
    finally:
        torch.set_num_threads(threads)
    return module
