"""Names that a class declares with registered(): what its modules have under them is found at once, and as for all other names."""

import copy
import pickle

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core
from transformer_c.nn.parameter import registered


def test_a_name_is_what_is_registered():
    layer = tc.nn.Linear(2, 3)
    assert layer.weight is layer._parameters["weight"] and layer.bias is layer._parameters["bias"]
    layer.weight = weight = tc.nn.Parameter(tc.zeros(3, 2))
    assert layer.weight is weight
    assert tc.nn.Linear(2, 3, bias=False).bias is None and tc.nn.LayerNorm(2, bias=False).bias is None
    block = tc.EncoderBlock(4, 1, 8)
    assert block.norm2 is block._modules["norm2"] and isinstance(tc.PositionalEncoding(4).pe, tc.Tensor)
    assert isinstance(tc.nn.Linear.weight, _core.registered)


def test_a_plain_attribute_in_place_of_a_parameter():
    layer = tc.nn.Linear(2, 3)
    del layer.weight
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'weight'"):
        layer.weight  # noqa: B018
    assert not hasattr(layer, "weight")
    layer.weight = tc.ones(3, 2)
    assert layer.weight.tolist() == [[1.0, 1.0]] * 3 and "weight" not in layer._parameters
    np.testing.assert_allclose(layer(np.ones((1, 2), np.float32)), 2 + layer.bias.detach().numpy()[None], rtol=1e-6)


def test_without_init():
    class Unready(tc.nn.Linear):
        def __init__(self):
            self.weight  # noqa: B018

    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\) at the beginning of Unready.__init__"):
        Unready()


def test_a_property_of_a_subclass_comes_first():
    class Doubled(tc.nn.Linear):
        @property
        def weight(self):
            return self._parameters["weight"] * 2

    layer = Doubled(2, 3)
    x = np.ones((1, 2), np.float32)
    expected = x @ (2 * layer._parameters["weight"].detach().numpy()).T + layer.bias.detach().numpy()
    np.testing.assert_allclose(layer(x), expected, rtol=1e-6)


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("mixed_in", [False, True])
def test_getattr_of_a_subclass_is_asked(mixed_in, below):
    asked = []

    def watched(*bases):
        class Watched(*bases):
            def __getattr__(self, name):
                asked.append(name)
                return super().__getattr__(name)

        return Watched

    kind = type("Mixed", (watched(), tc.nn.Linear), {}) if mixed_in else watched(tc.nn.Linear)
    layer = (type("Below", (kind,), {}) if below else kind)(2, 3)
    asked.clear()
    layer(np.ones((1, 2), np.float32))
    assert {"weight", "bias"} <= set(asked)
    with pytest.raises(AttributeError, match="has no attribute 'wieght'; did you mean 'weight'"):
        layer.wieght  # noqa: B018


def test_what_another_base_class_has_under_the_name():
    class Doubled:
        @property
        def weight(self):
            return self._parameters["weight"] * 2

    class Layer(tc.nn.Linear, Doubled):
        pass

    class Below(Layer):
        pass

    x = np.ones((1, 2), np.float32)
    for layer in (Layer(2, 3, bias=False), Below(2, 3, bias=False)):
        np.testing.assert_allclose(layer(x), x @ (2 * layer._parameters["weight"].detach().numpy()).T, rtol=1e-6)

    class Bare:
        bias = None

    class Unbiased(tc.nn.Linear, Bare):
        pass

    with pytest.raises(KeyError, match="attribute 'bias' already exists: the class Unbiased has it"):
        Unbiased(2, 3)


def test_subclasses_find_names_as_the_class_that_declares_them():
    class Below(tc.TransformerPredictor):
        pass

    assert "input_net" not in vars(Below) and Below.input_net is tc.TransformerPredictor.input_net


def test_names_of_a_module_are_those_that_it_has():
    layer = tc.nn.Linear(2, 3)
    assert {"weight", "bias", "forward"} <= set(dir(layer))
    del layer.weight
    assert "weight" not in dir(layer)
    with pytest.raises(AttributeError, match="has no attribute 'weight'$"):
        layer.weight  # noqa: B018
    layer.weight = tc.ones(3, 2)
    assert "weight" in dir(layer)


def test_copies_and_pickles():
    model = tc.TransformerPredictor(3, 4, 3, num_heads=1, num_layers=1, lr=0.1, warmup=1, max_iters=2)
    x = np.ones((2, 5, 3), np.float32)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.input_net is other._modules["input_net"] is not model.input_net
        np.testing.assert_array_equal(other(x), model(x))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda own: pickle.loads(pickle.dumps(own))])
def test_classes_may_be_pickled_by_value(copied):
    """As joblib does with those of a notebook: attribute by attribute."""
    layer = tc.nn.Linear(2, 3)
    assert copied(vars(tc.nn.Linear)["weight"]).__get__(layer, tc.nn.Linear) is layer.weight
    with pytest.raises(AttributeError):
        copied(registered("_parameters")).__get__(layer, tc.nn.Linear)


def test_casts_of_autocast():
    layer = tc.nn.Linear(2, 3)
    seen = []
    layer.register_forward_hook(lambda module, args, output: seen.append(module.weight.dtype.name))
    x = tc.ones(1, 2)
    with tc.autocast():
        layer(x)
    layer(x)
    assert seen == ["bfloat16", "float32"] and layer.weight.dtype.name == "float32"


def test_a_declared_name_of_a_program():
    class Mine(tc.nn.Module):
        scale = registered("_parameters")
        names = registered("names")

        def __init__(self):
            super().__init__()
            self.scale = tc.nn.Parameter([2.0])

    module = Mine()
    assert module.scale is module._parameters["scale"]
    with pytest.raises(AttributeError, match="'names'"):  # there is no such dict
        module.names  # noqa: B018
    module.names = 3
    assert module.names == 3
    with pytest.raises(TypeError, match="__set_name__"):
        Mine.scale.__set_name__(Mine)
    with pytest.raises(TypeError):
        registered(3)
    Mine.later = registered("_parameters")  # it was not told its name
    with pytest.raises(AttributeError, match="'later'"):
        module.later  # noqa: B018
