"""The project's tolerances, in one place."""

import math

import numpy as np

# Relative to the magnitude of the result. Forward sums of K terms may grow with sqrt(K) in float32.
FORWARD = {"float32": 2e-6, "float64": 1e-12}
GRADIENT = {"float32": 5e-5, "float64": 1e-11}
# Half the distance between neighbours: what storing a result costs, as a share of it.
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


def tolerance(dtype, k=1, gradient=False):
    """The allowed error as a share of the magnitude.

    dtype: "float32", np.float64, ...; k: the number of terms in the longest sum; gradient: the result is a gradient.
    Half precision is stored after computing in float32: twice what the rounding of an exact result may cost.
    """
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if name in ROUNDING:
        return 2 * ROUNDING[name]
    if gradient:
        return GRADIENT[name]
    return FORWARD[name] * (math.sqrt(max(k, 1)) if name == "float32" else 1)


def assert_close(actual, expected, dtype=None, k=1, *, gradient=False, scale=None, naive=None, name="result"):
    """Fails unless `actual` has the dtype, the shape of `expected`, and every element within the tolerance.

    The error is absolute, divided by the magnitude: the largest finite |expected|, or `scale` (a number, or an array that
    broadcasts, such as |A| @ |B| of a product). With `naive`, the result of the plain computation in the same dtype, the largest
    error may be twice that of `naive` instead. Infinities must be equal, sign included; a NaN on either side fails.
    """
    actual, expected = np.asarray(actual), np.asarray(expected).astype(np.float64)
    if dtype is not None:
        wanted = dtype if isinstance(dtype, str) else np.dtype(dtype).name
        assert actual.dtype.name == wanted, f"{name}: dtype {actual.dtype.name}, expected {wanted}"
    assert actual.shape == expected.shape, f"{name}: shape {actual.shape}, expected {expected.shape}"
    if not expected.size:
        return
    actual, dtype = actual.astype(np.float64), actual.dtype.name
    with np.errstate(invalid="ignore"):
        error = np.where(np.isinf(expected) & (actual == expected), 0, np.abs(actual - expected))
    if naive is not None:
        limit = 2 * np.max(np.abs(np.asarray(naive).astype(np.float64) - expected))
    else:
        finite = np.abs(expected[np.isfinite(expected)])
        magnitude = np.asarray(finite.max(initial=0.0) if scale is None else scale, np.float64)
        limit = tolerance(dtype, k, gradient) * magnitude
    limit = np.broadcast_to(limit, error.shape)
    good = error <= limit  # False for NaN
    if good.all():
        return
    worst = np.unravel_index(np.argmax(np.where(good, -1, np.where(np.isnan(error), np.inf, error))), error.shape)
    where = tuple(int(i) for i in worst)
    raise AssertionError(
        f"{name}{list(where)} is {float(actual[worst])!r}, expected {float(expected[worst])!r}: "
        f"error {error[worst]:.3g}, allowed {limit[worst]:.3g} "
        f"({dtype}, shape {actual.shape}, {np.count_nonzero(~good)} of {good.size} elements out)"
    )
