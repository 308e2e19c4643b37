"""Gradients that meet, on device="cuda:emulated" and on the CPU: the product of a linear layer or a projection adds its gradient to those that
came before, with the bits of a product and an addition of its own in float32."""

import numpy as np
import pytest
import transformer_c as tc
from device_cases import FLOATS, array, device, host, leaves  # noqa: F401
from tolerance import assert_close
from transformer_c import _core
from transformer_c import functional as F
from transformer_c.testing import reference

# Rows, features in, features out: one; odd; a sum over rows that is split on either device; one over features that is; nothing
SIZES = [(1, 1, 1), (5, 7, 3), (600, 8, 16), (3, 1100, 24), (0, 3, 2), (4, 0, 3), (4, 3, 0)]


def kernels(launches, name):
    return sum(name + "<" in launch for launch in launches)


def signed(rng, shape, dtype):
    return (array(rng, shape, dtype).astype(np.float64) - 5).astype(array(rng, (), dtype).dtype)


def backward(dy, *tensors, function):
    """The gradients of one call of the function, with respect to the tensors."""
    given = [tc.tensor(x.detach(), requires_grad=True) for x in tensors]
    function(*given).backward(dy)
    return [x.grad for x in given]


@pytest.mark.whole
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_an_input_and_a_weight_that_are_used_twice(device, rng, size, dtype):  # noqa: F811
    rows, K, N = size
    x, weight, bias = leaves(device, *(signed(rng, shape, dtype) for shape in ((rows, K), (N, K), (N,))))
    dys = [tc.tensor(signed(rng, (rows, N), dtype), device=device) for _ in range(2)]
    both = F.linear(x, weight, bias), F.linear(x, weight, bias)
    tc.cat([both[0], both[1]]).backward(tc.cat(dys))  # the second product's gradients come first
    (dx1, dw1, _), (dx2, dw2, _) = (backward(dy, x, weight, bias, function=F.linear) for dy in dys)
    for name, sum_, parts in (("dx", x.grad, (dx2, dx1)), ("dweight", weight.grad, (dw2, dw1))):
        expected = host(parts[0]).astype(np.float64) + host(parts[1])
        if dtype.startswith("float") and dtype != "float16":
            np.testing.assert_array_equal(host(sum_), host(parts[0]) + host(parts[1]), err_msg=name)
        assert_close(host(sum_), expected, dtype, gradient=True, scale=1e-30 + np.abs(expected).max(initial=0), name=name)


def test_halves_are_rounded_once(device):  # noqa: F811
    """256 + 1 is no bfloat16 and becomes 256, to which another 1 is added; 256 + (1 + 1/128) is more than half way to 258."""
    x = tc.ones(1, 1, device=device).bfloat16().requires_grad_()
    y = x * 1
    z = tc.cat([F.linear(y, tc.tensor([[1.0 + 2.0**-7]], device=device).bfloat16()), y * 256])
    z.sum().backward()
    assert host(x.grad).astype(float).item() == 258


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_projections_and_linears_of_one_input(device, rng, precision):  # noqa: F811
    """The gradient of an input that a projection, two products and an addition read: the same bits as added one by one, in that order."""
    before = tc.get_float32_precision()
    tc.set_float32_precision(precision)
    try:
        x, packed, weight = leaves(device, *(signed(rng, shape, "float32") for shape in ((2, 9, 12), (36, 12), (12, 12))))
        h = x * 1
        q, k, v = F.qkv_projection(h, packed, None, 3)
        up, down = _core.linear(h, weight, None, "gelu"), _core.linear(h, weight)
        y = (q + k * v).transpose(1, 2).reshape(2, 9, 12) + up * down + h
        dy = tc.tensor(signed(rng, (2, 9, 12), "float32"), device=device)
        y.backward(dy)
        u, d = (t.detach() for t in (up, down))
        (of_down, dw1), (of_up, dw2) = (
            backward(g, h, weight, function=lambda *both, a=a: _core.linear(*both, None, a)) for g, a in ((dy * u, None), (dy * d, "gelu"))
        )
        of_heads, dpacked = backward(
            dy,
            h,
            packed,
            function=lambda *both: (lambda q, k, v: (q + k * v).transpose(1, 2).reshape(2, 9, 12))(*F.qkv_projection(*both, None, 3)),
        )
        np.testing.assert_array_equal(host(x.grad), host(dy + of_down + of_up + of_heads))
        np.testing.assert_array_equal(host(weight.grad), host(dw1 + dw2))
        np.testing.assert_array_equal(host(packed.grad), host(dpacked))
    finally:
        tc.set_float32_precision(before)


def test_what_others_have_is_not_written_to(device, rng):  # noqa: F811
    """The gradient of a residual is that of the result itself, which hooks have seen, a user keeps and another branch reads."""
    x, weight = leaves(device, *(signed(rng, shape, "float32") for shape in ((6, 8), (8, 8))))
    h = x * 1
    y, seen = _core.linear(h, weight, None, None, h), []
    y.register_hook(lambda g: seen.append((g, host(g).copy())))
    y.retain_grad()
    dy = tc.tensor(signed(rng, (6, 8), "float32"), device=device)
    given = host(dy).copy()
    (y + 0).backward(dy, retain_graph=True)
    np.testing.assert_array_equal(host(dy), given)
    np.testing.assert_array_equal(host(y.grad), given)
    np.testing.assert_array_equal(host(seen[0][0]), seen[0][1])
    once = [host(t.grad).copy() for t in (x, weight)]
    (y + 0).backward(dy)
    for t, first in zip((x, weight), once, strict=True):
        np.testing.assert_array_equal(host(t.grad), first + first)
    expected = reference.linear_backward(given, host(h), host(weight), np.zeros(8), None)[0] + given
    assert_close(once[0], expected, "float32", gradient=True, scale=np.abs(expected).max())


def test_a_backward_that_fails_changes_no_gradient(device, rng):  # noqa: F811
    """Nor one that was there before: products add only to what the walk itself has summed."""
    x, weight = leaves(device, *(signed(rng, shape, "float32") for shape in ((6, 8), (8, 8))))
    F.linear(F.linear(x, weight), weight).sum().backward()
    before = [host(t.grad).copy() for t in (x, weight)]
    h = x * 1
    h.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        F.linear(F.linear(h, weight), weight).sum().backward()
    for t, first in zip((x, weight), before, strict=True):
        np.testing.assert_array_equal(host(t.grad), first)
    F.linear(F.linear(x, weight), weight).sum().backward()
    for t, first in zip((x, weight), before, strict=True):
        np.testing.assert_array_equal(host(t.grad), first + first)


def test_a_gradient_of_another_dtype_or_order_is_added_as_ever(device, rng):  # noqa: F811
    """What has come is transposed memory, which is no addend of a product; the sum is the same."""
    x, weight = leaves(device, *(signed(rng, shape, "float32") for shape in ((6, 8), (8, 8))))
    h = x * 1
    y, dy = F.linear(h, weight), signed(rng, (8, 6), "float32")
    (y.sum() + (h.transpose(0, 1) * tc.tensor(dy, device=device)).sum()).backward()
    (of_y, _) = backward(tc.ones(6, 8, device=device), h, weight, function=F.linear)
    np.testing.assert_array_equal(host(x.grad), dy.T + host(of_y))


def test_weights_in_float32_are_added_without_rounding(device, rng):  # noqa: F811
    """Under autocast, of a layer that is used twice: on a GPU dweight of either use is float32, and so is their sum."""
    layer = tc.nn.Linear(16, 16).to(device)
    x = tc.tensor(signed(rng, (40, 16), "float32"), device=device)
    with tc.autocast():
        y = tc.nn.Sequential(layer, tc.nn.Tanh(), layer)(x)
    y.sum().backward()
    gradient = host(layer.weight.grad)
    is_rounded = gradient == host(layer.weight.grad.bfloat16().float())
    assert gradient.dtype == np.float32 and (is_rounded.all() if device == "cpu" else is_rounded.mean() < 0.1)
    exact = tc.nn.Linear(16, 16)
    exact.load_state_dict({name: value.cpu() for name, value in layer.state_dict().items()})
    tc.nn.Sequential(exact, tc.nn.Tanh(), exact)(x.cpu()).sum().backward()
    wanted = host(exact.weight.grad)
    np.testing.assert_allclose(gradient, wanted, rtol=0.05, atol=0.05 * np.abs(wanted).max())


@pytest.mark.parametrize("autocast", [False, True])
def test_an_encoder_layer_adds_no_gradients_by_themselves(emulated_gpu, emulated_library, rng, autocast):
    """Where its branches meet, the product of the branch adds: to the gradient of the residual, twice in a layer whose norms come last."""
    layer = tc.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).to(emulated_gpu)
    x = tc.tensor(array(rng, (2, 5, 16), "float32"), device=emulated_gpu, requires_grad=True)
    with tc.autocast(enabled=autocast):
        y = layer(x)
    tc.cuda.synchronize(emulated_gpu)
    emulated_library.launches()
    y.backward(y.detach())
    tc.cuda.synchronize(emulated_gpu)
    launches = emulated_library.launches()
    assert kernels(launches, "add_kernel") == 0
    assert kernels(launches, "gemm_tensor_kernel" if autocast else "gemm_float_kernel") == 8
