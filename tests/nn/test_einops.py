"""The functions and layers of einops on Tensors: NumPy's values, and gradients."""

import numpy as np
import pytest
import transformer_c as tc
from transformer_c.testing import gradcheck

einops = pytest.importorskip("einops")

from transformer_c.nn.einops import Rearrange, Reduce  # noqa: E402

REARRANGED = {
    "heads": ("b t (h d) -> b h t d", {"h": 2}),
    "patches": ("b (t s) e -> b t (s e)", {"s": 3}),
    "transposed": ("b t e -> e t b", {}),
    "new axes": ("b t e -> b () t 1 e", {}),
    "flat": ("... -> (...)", {}),
    "one axis in three": ("b t (x y z) -> y b (x t) z", {"x": 1, "y": 2}),
}


@pytest.mark.parametrize("name", REARRANGED)
def test_rearrange(name, rng):
    pattern, lengths = REARRANGED[name]
    x = rng.standard_normal((2, 6, 4))
    expected = einops.rearrange(x, pattern, **lengths)
    np.testing.assert_array_equal(einops.rearrange(tc.tensor(x), pattern, **lengths).numpy(), expected)
    layer = Rearrange(pattern, **lengths)
    np.testing.assert_array_equal(layer(x), expected)
    assert pattern in repr(layer)
    weights = tc.tensor(rng.standard_normal(expected.shape))
    assert gradcheck(lambda t: (einops.rearrange(t, pattern, **lengths) * weights).sum(), [tc.tensor(x, requires_grad=True)])


@pytest.mark.parametrize("reduction", ["mean", "sum", "max", "min", "prod"])
@pytest.mark.parametrize("pattern", ["b t e -> b e", "b (t s) e -> b t", "b t e -> ()", "b t e -> t 1 b"])
def test_reduce(pattern, reduction, rng):
    lengths = {"s": 2} if "s)" in pattern else {}
    x = rng.standard_normal((2, 6, 4))
    expected = einops.reduce(x, pattern, reduction, **lengths)
    np.testing.assert_allclose(einops.reduce(tc.tensor(x), pattern, reduction, **lengths).numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(Reduce(pattern, reduction, **lengths)(x), expected, rtol=1e-12)
    assert gradcheck(lambda t: einops.reduce(t, pattern, reduction, **lengths).sum(), [tc.tensor(x, requires_grad=True)])


@pytest.mark.parametrize("reduction", ["any", "all"])
def test_reduce_of_bools(reduction, rng):
    x = rng.random((2, 6, 4)) < 0.7
    found = einops.reduce(tc.tensor(x), "b (t s) e -> b t", reduction, s=2)
    np.testing.assert_array_equal(found.numpy(), einops.reduce(x, "b (t s) e -> b t", reduction, s=2))


def test_the_other_functions(rng):
    x = rng.standard_normal((2, 6, 4))
    t = tc.tensor(x, requires_grad=True)
    repeated = einops.repeat(t, "b t e -> b t r e s", r=3, s=2)
    np.testing.assert_array_equal(repeated.detach().numpy(), einops.repeat(x, "b t e -> b t r e s", r=3, s=2))
    repeated.sum().backward()
    assert (t.grad.numpy() == 6).all()
    np.testing.assert_array_equal(einops.rearrange([t, t], "n b t e -> b n t e").detach().numpy(), np.stack([x, x], 1))
    np.testing.assert_allclose(einops.einsum(t, t, "b t e, b s e -> b t s").detach().numpy(), x @ x.swapaxes(1, 2), rtol=1e-12)
    packed, shapes = einops.pack([t, t[:, 0]], "b * e")
    assert packed.shape == (2, 7, 4) and shapes == [(6,), ()]
    first, second = einops.unpack(packed, shapes, "b * e")
    assert first.shape == (2, 6, 4) and second.shape == (2, 4)
    assert einops.parse_shape(t, "b _ e") == {"b": 2, "e": 4} and isinstance(einops.asnumpy(t), np.ndarray)
    with pytest.raises(einops.EinopsError, match="can't divide axis"):
        einops.rearrange(t, "b t (h d) -> b h t d", h=3)


def test_layers_in_a_model(rng):
    model = tc.nn.Sequential(Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2), tc.nn.Linear(12, 5), Reduce("b n e -> b e", "mean"))
    x = rng.standard_normal((2, 3, 4, 6)).astype(np.float32)
    assert model(x).shape == (2, 5)
    model(tc.tensor(x)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
