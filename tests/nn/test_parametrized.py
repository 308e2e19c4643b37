"""Parameters that are computed from others, next to PyTorch's."""

import copy
import pickle

import numpy as np
import pytest
import transformer_c as tc
from transformer_c.nn.utils import parametrize
from transformer_c.nn.utils.parametrizations import spectral_norm, weight_norm

LAYERS = {
    "linear": (lambda nn: nn.Linear(4, 3), (5, 4)),
    "conv": (lambda nn: nn.Conv1d(2, 3, 3), (2, 2, 6)),
}
NORMS = {
    "weight": ("weight_norm", {}),
    "weight, dim 1": ("weight_norm", {"dim": 1}),
    "weight, all": ("weight_norm", {"dim": None}),
    "bias": ("weight_norm", {"name": "bias", "dim": None}),
    "spectral": ("spectral_norm", {}),
    "spectral, dim 1": ("spectral_norm", {"dim": 1, "n_power_iterations": 2}),
    "spectral, a vector": ("spectral_norm", {"name": "bias"}),
}


def trained(library, make, shape, norm, options, dtype, rng):
    """States, results and gradients over a few steps of training."""
    library.manual_seed(3)
    layer = make(library.nn).to(dtype=getattr(library, dtype))
    layer = getattr(library.nn.utils.parametrizations, norm)(layer, **options)
    optimizer = library.optim.AdamW(layer.parameters(), lr=0.05)
    x, found = library.tensor(rng.standard_normal(shape).astype(dtype)), {"class": type(layer).__name__, "repr": repr(layer)}
    for step in range(4):
        layer.train(step != 2)
        y = layer(x)
        (y * y).mean().backward()
        found |= {f"{step} {name}": p.grad.numpy().copy() for name, p in layer.named_parameters()} | {f"{step} y": y.detach().numpy()}
        optimizer.step()
        optimizer.zero_grad()
    return found | {key: value.numpy() for key, value in layer.state_dict().items()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("layer", LAYERS)
def test_norms_are_pytorchs(layer, norm, dtype):
    torch = pytest.importorskip("torch")
    ours, theirs = (trained(library, *LAYERS[layer], *NORMS[norm], dtype, np.random.default_rng(1)) for library in (tc, torch))
    assert list(ours) == list(theirs)
    for key, value in ours.items():
        if isinstance(value, str):
            assert value == theirs[key]
        else:
            rtol = 2e-4 if dtype == "float32" else 1e-9
            np.testing.assert_allclose(value, theirs[key], rtol=rtol, atol=rtol / 10, err_msg=key)


class Doubled(tc.nn.Module):
    def forward(self, x):
        return x * 2


class Shifted(Doubled):
    def forward(self, x):
        return x + 1

    def right_inverse(self, x):
        return x - 1


def test_several_and_assigned_and_removed():
    layer = tc.nn.Linear(2, 2).double()
    original = layer.weight
    before = original.detach().clone()
    parametrize.register_parametrization(layer, "weight", Shifted())
    assert tc.allclose(layer.weight, before) and not tc.allclose(layer.parametrizations.weight.original, before)
    layer.weight = tc.ones(2, 2)
    assert layer.parametrizations.weight.original.tolist() == [[0.0, 0.0]] * 2 and layer.weight.tolist() == [[1.0, 1.0]] * 2
    layer.weight = tc.nn.Parameter(tc.full((2, 2), 3.0))
    assert layer.parametrizations.weight.original.tolist() == [[2.0, 2.0]] * 2 and "weight" not in layer._parameters
    parametrize.register_parametrization(layer, "weight", Doubled())
    assert layer.weight.tolist() == [[6.0, 6.0]] * 2
    with pytest.raises(RuntimeError, match=r"Doubled has no right_inverse\(\)"):
        layer.weight = tc.ones(2, 2)
    parametrize.register_parametrization(layer, "bias", Doubled())
    assert isinstance(layer.parametrizations.bias, parametrize.ParametrizationList)
    assert parametrize.is_parametrized(layer) and parametrize.is_parametrized(layer, "bias")
    with parametrize.cached():
        assert sorted(layer.state_dict()) == ["parametrizations.bias.original", "parametrizations.weight.original"]
    parametrize.remove_parametrizations(layer, "weight")
    assert layer.weight.tolist() == [[6.0, 6.0]] * 2 and isinstance(layer.weight, tc.nn.Parameter)
    bias = layer.parametrizations.bias.original.tolist()
    parametrize.remove_parametrizations(layer, "bias", leave_parametrized=False)
    assert layer.bias.tolist() == bias and type(layer) is tc.nn.Linear and not parametrize.is_parametrized(layer)
    assert list(layer.state_dict()) == ["weight", "bias"]


def test_copies_are_their_own():
    layer = weight_norm(tc.nn.Linear(2, 2))
    other = copy.deepcopy(layer)
    parametrize.remove_parametrizations(other, "weight")
    assert (
        tc.allclose(layer.weight, other.weight)
        and type(other) is tc.nn.Linear
        and "parametrizations.weight.original0" in layer.state_dict()
    )
    loaded = pickle.loads(pickle.dumps(layer))
    assert tc.equal(loaded.weight, layer.weight) and type(loaded) is type(layer) and list(loaded.state_dict()) == list(layer.state_dict())
    loaded.weight = tc.ones(2, 2)
    assert not tc.equal(layer.weight, loaded.weight)
    third = copy.deepcopy(layer)
    parametrize.register_parametrization(third, "bias", Doubled())
    assert isinstance(layer.bias, tc.nn.Parameter) and tc.equal(third.bias, layer.bias * 2)
    third.load_state_dict({**layer.state_dict(), "parametrizations.bias.original": tc.ones(2)}, strict=False)
    assert third.bias.tolist() == [2.0, 2.0]


def test_older_names_of_a_norm_are_loaded():
    layer = tc.nn.Sequential(weight_norm(tc.nn.Linear(2, 2)))
    values = {"0.bias": tc.zeros(2), "0.weight_g": tc.tensor([[5.0], [10.0]]), "0.weight_v": tc.tensor([[3.0, 4.0], [3.0, 4.0]])}
    layer.load_state_dict(values)
    assert tc.allclose(layer[0].weight, tc.tensor([[3.0, 4.0], [6.0, 8.0]]))


def test_buffers_and_layers_of_a_block():
    class Table(tc.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", tc.ones(2))

    table = parametrize.register_parametrization(Table(), "table", Doubled())
    assert table.table.tolist() == [2.0, 2.0] and not list(table.parameters())
    block, x = tc.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), tc.ones(1, 3, 8)
    expected = block(x)
    weight_norm(block.linear1), weight_norm(block.self_attn.out_proj)
    assert tc.allclose(block(x), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: weight_norm(tc.nn.ReLU()), ValueError, "ReLU has no parameter or buffer 'weight'"),
        (lambda: weight_norm(weight_norm(tc.nn.Linear(2, 2))), RuntimeError, "'weight' of .*Linear is computed already"),
        (lambda: spectral_norm(tc.nn.ReLU()), ValueError, "ReLU has no parameter or buffer 'weight'"),
        (lambda: spectral_norm(tc.nn.Linear(2, 2), dim=2), IndexError, "dim 2 is out of range for a weight of 2 axes"),
        (lambda: spectral_norm(tc.nn.Linear(2, 2), n_power_iterations=0), ValueError, "n_power_iterations must be at least 1"),
        (lambda: parametrize.register_parametrization(tc.nn.Linear(2, 2), "weight", tc.sin), TypeError, "a module, a name and a module"),
        (lambda: parametrize.register_parametrization(tc.nn.Linear(2, 2), "weight", tc.nn.Linear(2, 3)), ValueError, r"gives \(2, 3\)"),
        (lambda: parametrize.remove_parametrizations(tc.nn.Linear(2, 2), "weight"), ValueError, "has no parametrization of 'weight'"),
        (lambda: parametrize.remove_parametrizations(weight_norm(tc.nn.Linear(2, 2)), "weight", False), ValueError, "from 2 Tensors"),
    ],
)
def test_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_what_is_refused_changes_nothing():
    layer = tc.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="gives"):
        parametrize.register_parametrization(layer, "weight", tc.nn.Linear(2, 3))
    assert type(layer) is tc.nn.Linear and list(layer.state_dict()) == ["weight", "bias"]
