"""The architectures of tc.models against transformers: golden values in float64, and, where it is installed, the package itself."""

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from transformer_c.models.loading import ARCHITECTURES

CASES = load("models")
TASKS = ["text-classification", "token-classification", "question-answering", "fill-mask", "image-classification"]


def state_of(arrays, task=None):
    """The arrays of an encoder, with a head or without one."""
    kinds = ["state."] + ([f"head.{task}."] if task else [])
    return {key[len(kind) :]: value for kind in kinds for key, value in arrays.items() if key.startswith(kind)}


def run(case, model, dtype=np.float32):
    """The result of a model for the inputs of a case."""
    arrays = CASES[case][1]
    if "pixels" in arrays:
        return model(arrays["pixels"].astype(dtype))
    return model(arrays["ids"], arrays["mask"], token_types=arrays.get("types"))


def close(case, found, expected, tolerance):
    """Compares at positions that are not padded."""
    arrays = CASES[case][1]
    if "mask" in arrays and expected.ndim == 3:
        found, expected = found[arrays["mask"] != 0], expected[arrays["mask"] != 0]
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * max(1, np.abs(expected).max())


def test_every_architecture_has_a_case():
    assert set(CASES) == set(ARCHITECTURES)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", CASES)
def test_encoders(case, dtype):
    options, arrays = CASES[case]
    model = tc.convert.from_hf(state_of(arrays), options["config"], dtype=dtype)
    tolerance = 1e-11 if dtype == "float64" else 1e-5
    states = run(case, model, dtype)
    assert states.dtype == dtype and not model.training
    close(case, states, arrays["hidden"], tolerance)
    if "pooled" in arrays:
        close(case, model.pooler(states), arrays["pooled"], tolerance)
    else:
        assert model.pooler is None


@pytest.mark.parametrize(("case", "task"), [(case, task) for case in CASES for task in TASKS if task in CASES[case][1]])
def test_heads(case, task):
    options, arrays = CASES[case]
    for dtype, tolerance in (("float64", 1e-11), ("float32", 1e-5)):
        model = tc.convert.from_hf(state_of(arrays, task), options["config"], task=task, dtype=dtype)
        close(case, run(case, model, dtype), arrays[task], tolerance)
