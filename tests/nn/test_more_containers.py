"""Lists of parameters, changes of Sequential, paths of modules, Unflatten, and truncated normal numbers."""

import copy
import math
from collections import OrderedDict

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import nn


def test_parameter_list():
    net = nn.Module()
    net.scales = nn.ParameterList([tc.ones(2), nn.Parameter(tc.zeros(3))]).append([1.0])
    assert [n for n, _ in net.named_parameters()] == ["scales.0", "scales.1", "scales.2"]
    assert len(net.scales) == 3 and net.scales[-1].tolist() == [1.0] and [p.shape for p in net.scales[1:]] == [(3,), (1,)]
    net.scales[0] = tc.full((2,), 5.0)
    assert net.scales[0].tolist() == [5.0, 5.0] and isinstance(net.scales[0], nn.Parameter)
    other = nn.ParameterList([tc.zeros(2), tc.ones(3), [0.0]])
    other.load_state_dict(net.scales.state_dict())
    assert other[0].tolist() == [5.0, 5.0]
    with pytest.raises(IndexError):
        other[4] = tc.ones(1)


def test_sequential_is_changed_as_a_list():
    a, b, c, d = (nn.Linear(2, 2) for _ in range(4))
    net = nn.Sequential(a).extend([b, d]).insert(2, c)
    assert list(net) == [a, b, c, d] and list(net._modules) == ["0", "1", "2", "3"]
    assert net.pop(1) is b and list(net) == [a, c, d] and list(net._modules) == ["0", "1", "2"]
    assert list(net.insert(-1, b)) == [a, c, b, d] and net.pop(-1) is d


def test_slices_of_a_subclass():
    class Stages(nn.ModuleList):
        pass

    class Scales(nn.ParameterList):
        pass

    assert type(Stages([nn.ReLU(), nn.Tanh()])[1:]) is Stages and type(nn.ModuleList()[:]) is nn.ModuleList
    assert type(Scales([tc.ones(2), tc.ones(3)])[1:]) is Scales


@pytest.mark.parametrize("kind", [nn.Sequential, nn.ModuleList])
def test_positions_are_written_to_as_in_a_list(kind):
    a, b, c, d = (nn.Linear(2, 2) for _ in range(4))
    net = kind() + [a, b, c]
    assert type(net) is kind and list(net) == [a, b, c]
    net[-1] = d
    assert list(net) == [a, b, d] and list(net._modules) == ["0", "1", "2"]
    del net[0]
    assert list(net) == [b, d] and list(net._modules) == ["0", "1"]
    more = net + kind([a]) if kind is nn.ModuleList else net + kind(a)
    assert list(more) == [b, d, a] and list(net) == [b, d]
    net += [c]
    assert list(net) == [b, d, c] and net.pop(0) is b
    del net[:1]
    assert list(net) == [c] and list(net._modules) == ["0"]


def test_a_name_of_sequential_stays_when_its_module_is_replaced():
    net = nn.Sequential(OrderedDict(hidden=nn.Linear(2, 3), out=nn.Linear(3, 1)))
    net[1] = nn.Linear(3, 5)
    assert list(net._modules) == ["hidden", "out"] and net.out.out_features == 5


@pytest.mark.parametrize("kind", [nn.Sequential, nn.ModuleList])
@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda net: net.insert(0, 3), TypeError, "'0' must be an nn.Module or None, not int"),
        (lambda net: net.extend([nn.ReLU(), 3]), TypeError, "'3' must be an nn.Module or None, not int"),
        (lambda net: net.extend(3), TypeError, "modules must be an iterable of nn.Module, not int"),
        (lambda net: net.append(nn.ReLU), TypeError, r"call the class to make one: ReLU\(\)"),
        (lambda net: net.__setitem__(0, 3), TypeError, "must be an nn.Module"),
        (lambda net: net.__setitem__(2, nn.ReLU()), IndexError, "index 2 is out of range for a (Sequential|ModuleList) of 2 modules"),
        (lambda net: net.__delitem__(-3), IndexError, "index -3 is out of range"),
        (lambda net: net["0"], TypeError, "is indexed with ints and slices, not with str"),
        (lambda net: net + 3, TypeError, "unsupported"),
    ],
)
def test_a_refused_change_leaves_the_modules(kind, change, error, says):
    a, b = nn.Linear(2, 2), nn.ReLU()
    net = kind().extend([a, b])
    with pytest.raises(error, match=says):
        change(net)
    assert list(net) == [a, b] and list(net._modules) == ["0", "1"]


def test_names_with_a_prefix_and_of_what_is_shared():
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    net.again = net[0]
    net.register_buffer("count", tc.zeros(1))
    assert [n for n, _ in net.named_parameters("net", remove_duplicate=False)] == [
        "net.0.weight", "net.0.bias", "net.again.weight", "net.again.bias",
    ]  # fmt: skip
    assert [n for n, _ in net.named_parameters()] == ["0.weight", "0.bias"]
    assert [n for n, _ in net.named_modules(remove_duplicate=False)] == ["", "0", "1", "again"]
    assert [n for n, _ in net.named_buffers("net", recurse=False)] == ["net.count"]
    with pytest.raises(TypeError, match="prefix must be a str, got False"):
        net.named_parameters(False)


def test_a_parameter_and_a_buffer_by_their_paths():
    net = nn.Sequential(nn.Linear(2, 2))
    net.register_buffer("count", tc.zeros(1))
    assert net.get_parameter("0.weight") is net[0].weight and net.get_buffer("count") is net.count
    with pytest.raises(AttributeError, match=r"Linear has no parameter 'scale' \(of the path '0.scale'\); it has \['weight', 'bias'\]"):
        net.get_parameter("0.scale")
    with pytest.raises(AttributeError, match=r"Sequential has no module '7'"):
        net.get_parameter("7.weight")
    with pytest.raises(AttributeError, match=r"Linear has no buffer 'weight'"):
        net.get_buffer("0.weight")


def test_a_module_by_its_path():
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    assert net.get_submodule("1.0") is net[1][0] and net.get_submodule("") is net
    with pytest.raises(AttributeError, match=r"Sequential has no module '7' \(of the path '1.7'\); it has \['0'\]"):
        net.get_submodule("1.7")


def test_unflatten():
    x = tc.arange(24).reshape(2, 12).float().requires_grad_()
    for dim in (1, -1):
        assert nn.Unflatten(dim, (3, -1))(x).shape == (2, 3, 4)
    assert (nn.Flatten()(nn.Unflatten(1, [3, 4])(x)) == x).all() and "unflattened_size=(3, 4)" in repr(nn.Unflatten(1, [3, 4]))
    assert nn.Unflatten(1, (3, -1))(x[:0]).shape == x[:0].unflatten(-1, (-1, 4)).shape == (0, 3, 4)
    with pytest.raises(IndexError, match="dim 2"):
        nn.Unflatten(2, (1,))(x)


BOUNDS = [(0.0, 0.02, -2.0, 2.0), (1.0, 1.0, -3.0, 1.5), (0.0, 1.0, 1.0, 2.0), (0.0, 1.0, -0.1, 0.1)]


@pytest.mark.parametrize("bounds", BOUNDS)
def test_truncated_normal_numbers(bounds):
    """The moments are those of the distribution (float64, by summing its density)."""
    mean, std, a, b = bounds
    x = nn.init.trunc_normal_(tc.empty(20_000), *bounds, generator=tc.Generator(1)).numpy().astype(np.float64)
    assert x.min() >= np.float32(a) and x.max() <= np.float32(b)
    z = np.linspace(a, b, 2_000_001)
    weight = np.exp(-0.5 * ((z - mean) / std) ** 2)
    expected = (z * weight).sum() / weight.sum()
    spread = np.sqrt((np.square(z - expected) * weight).sum() / weight.sum())
    assert abs(x.mean() - expected) < 5 * spread / np.sqrt(x.size) and abs(x.std() / spread - 1) < 0.03


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_truncated_normal_numbers_are_pytorchs(bounds, dtype):
    torch = pytest.importorskip("torch")
    if tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])) < (2, 13):
        pytest.skip("PyTorch drew by another method before 2.13")
    torch.manual_seed(4)
    theirs = torch.nn.init.trunc_normal_(torch.empty(7, 11, dtype=getattr(torch, dtype)), *bounds)
    tc.manual_seed(4)
    np.testing.assert_array_equal(nn.init.trunc_normal_(tc.empty(7, 11, dtype=dtype), *bounds), theirs.numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (1, 6), (6, 2, 3), (2, 3, 4, 5), (0, 3)])
def test_orthogonal_matrices_are_pytorchs(shape, dtype):
    torch = pytest.importorskip("torch")
    torch.manual_seed(4)
    theirs = torch.nn.init.orthogonal_(torch.empty(shape, dtype=getattr(torch, dtype)), gain=1.5)
    tc.manual_seed(4)
    ours = nn.init.orthogonal_(tc.empty(shape, dtype=dtype), 1.5)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=2e-6 if dtype == "float32" else 1e-14)
    assert tc.rand(1).item() == torch.rand(1).item()  # as many numbers were drawn


def test_matrices_of_an_initialisation():
    for dtype in ("bfloat16", "float16", "float32"):
        x = nn.init.orthogonal_(nn.Parameter(tc.empty(8, 3, dtype=dtype)), generator=tc.Generator().manual_seed(1)).detach().float()
        assert tc.allclose(x.T @ x, tc.eye(3), atol=0.05)
    with nn.init.skip():
        assert nn.init.orthogonal_(tc.zeros(2, 2)).sum() == 0
    for fill, match in ((nn.init.orthogonal_, "at least 2 axes"), (nn.init.eye_, "fills matrices")):
        with pytest.raises(ValueError, match=match):
            fill(tc.zeros(3))
    assert nn.init.eye_(tc.ones(3, 2)).tolist() == np.eye(3, 2).tolist()


def test_truncated_normal_numbers_refuse_and_warn():
    with pytest.raises(ValueError, match="a below b"):
        nn.init.trunc_normal_(tc.empty(2), a=1.0, b=1.0)
    for wrong in ({"mean": math.nan}, {"mean": -math.inf}, {"std": math.inf}, {"std": math.nan}):
        with pytest.raises(ValueError, match="positive std and a finite mean"):
            nn.init.trunc_normal_(tc.empty(2), **wrong)
    with pytest.warns(UserWarning, match="more than 2 std"):
        nn.init.trunc_normal_(tc.empty(2), 0.0, 1.0, 2.5, 3.0)


def test_a_refused_update_adds_nothing():
    heads = nn.ModuleDict({"a": nn.ReLU()})
    for given in ({"b": nn.Tanh(), "c": 3}, {"b": nn.Tanh(), 4: nn.Tanh()}):
        with pytest.raises(TypeError, match="must be an nn.Module|the name of a module is a str, not int"):
            heads.update(given)
    assert list(heads) == ["a"]
    scales = nn.ParameterList([tc.ones(2)])
    with pytest.raises(TypeError, match="data has dtype"):
        scales.extend([tc.ones(3), "text"])
    assert [p.shape for p in scales] == [(2,)]


def test_parameters_under_names():
    scales = nn.ParameterDict({"a": tc.ones(2), "b": nn.Parameter(tc.zeros(3))})
    scales["c"] = [1.0]
    assert list(scales) == list(scales.state_dict()) == ["a", "b", "c"] and len(scales) == 3 and "b" in scales and "d" not in scales
    assert all(isinstance(p, nn.Parameter) for p in scales.values()) and [n for n, _ in scales.items()] == list(scales.keys())
    assert scales.get("d") is None and scales == scales and scales != nn.ParameterDict() and {scales: 1}[scales] == 1
    model = nn.ModuleDict({"scales": scales})
    (model["scales"]["a"] * 3).sum().backward()
    assert scales["a"].grad.tolist() == [3.0, 3.0] and len(list(model.parameters())) == 3
    assert scales.pop("c").tolist() == [1.0]
    for given, match in (({"d": tc.ones(1), "e": "text"}, "data has dtype"), ({"d": tc.ones(1), 4: tc.ones(1)}, "is a str, not int")):
        with pytest.raises(TypeError, match=match):
            scales.update(given)
    with pytest.raises(KeyError):
        del scales["d"]
    scales.update([("a", tc.zeros(1))], z=None)
    assert list(scales) == ["a", "b", "z"] and scales["a"].shape == (1,) and scales["z"] is None
    assert repr(scales) == "ParameterDict(\n  (a): float32 of shape (1,)\n  (b): float32 of shape (3,)\n)"
    assert repr(nn.ParameterDict()) == "ParameterDict()"
    other = copy.deepcopy(scales)
    assert other["b"] is not scales["b"] and list(other) == list(scales)
    scales.clear()
    assert not scales.state_dict() and not nn.ParameterDict().state_dict()


def use_parameter_dict(library):
    scales = library.nn.ParameterDict({"a": library.ones(1), "b": library.ones(2)})
    more = scales | {"c": library.ones(3), "a": library.ones(4)}
    yield [(name, tuple(p.shape)) for name, p in more.items()]
    yield [name for name in reversed(more)]
    yield [(name, tuple(p.shape)) for name, p in ({"c": library.ones(3), "a": library.ones(4)} | scales).items()]
    other = more.copy()
    yield type(other).__name__, list(other), other["b"] is more["b"] is scales["b"]
    same = other
    other |= library.nn.ParameterDict({"d": library.ones(5)})
    yield same is other, list(other), list(more)
    name, value = other.popitem()
    yield name, tuple(value.shape), list(other)
    yield type(other).__name__, list(scales.fromkeys(["x", "y"])), scales.fromkeys(["x"])["x"]
    for wrong in (lambda: library.nn.ParameterDict().popitem(), lambda: scales | 3):
        with pytest.raises((KeyError, TypeError)):
            wrong()


def test_parameter_dicts_are_pytorchs():
    torch = pytest.importorskip("torch")
    for ours, theirs in zip(use_parameter_dict(tc), use_parameter_dict(torch), strict=True):
        assert ours == theirs


def test_a_module_of_a_dict_is_deleted():
    heads = nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.ReLU()})
    del heads["a"]
    assert list(heads) == ["b"] and not list(heads.parameters())
    with pytest.raises(KeyError):
        del heads["a"]


def test_a_parameter_of_a_list_is_replaced_where_it_is():
    scales = nn.ParameterList([tc.ones(2), tc.ones(3)])
    scales[-1] = tc.zeros(4)
    assert [p.shape for p in scales] == [(2,), (4,)]
    for index in (2, -3):
        with pytest.raises(IndexError, match=rf"index {index} is out of range for 2 parameters; append\(\) adds one"):
            scales[index] = tc.ones(1)
    assert list(scales.state_dict()) == ["0", "1"]


def test_none_keeps_a_place_in_a_list_of_parameters():
    """As Transformer-XL counts on: a projection for each cutoff, or None."""
    scales = nn.ParameterList([None, tc.ones(2)]).append(None)
    assert len(scales) == 3 and scales[0] is scales[2] is None and [p is None for p in scales] == [True, False, True]
    assert list(scales.state_dict()) == ["1"] == [name for name, _ in scales.named_parameters()]
    scales[0] = tc.zeros(3)
    assert list(copy.deepcopy(scales).double().state_dict()) == ["0", "1"] and "(1): float32 of shape (2,)" in repr(scales)
    scales.load_state_dict({"0": tc.ones(3), "1": tc.ones(2)})
    assert scales[0].tolist() == [1.0, 1.0, 1.0]


def test_no_module_is_lost_where_a_number_is_a_name():
    """PyTorch's lists replace the module that has the number of the new one."""
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    assert list(net[1:].append(nn.Tanh())._modules) == ["1", "2", "3"]
    assert list(net[1:].extend([nn.Tanh(), nn.GELU()])._modules) == ["1", "2", "3", "4"]
    between = nn.Sequential(OrderedDict([("a", nn.ReLU()), ("3", nn.ReLU())]))
    assert list(between.extend([nn.Tanh(), nn.GELU()])._modules) == ["a", "3", "2", "4"]


def test_slices_are_read_and_deleted_only():
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with pytest.raises(TypeError, match="modules of a Sequential are replaced and popped one by one"):
        net[:1] = [nn.Tanh()]
    with pytest.raises(TypeError, match="one by one, not by slices"):
        net.pop(slice(0, 1))


def test_a_list_shows_neighbours_that_look_alike_once():
    layers = [nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)]
    assert repr(nn.ModuleList(layers)) == (
        "ModuleList(\n  (0-1): 2 x Linear(in_features=2, out_features=2, bias=True)\n  (2): ReLU()"
        "\n  (3): Linear(in_features=2, out_features=2, bias=True)\n)"
    )
    assert repr(nn.ModuleList()) == "ModuleList()" and repr(nn.ParameterList()) == "ParameterList()"
    assert repr(nn.ParameterList([tc.ones(2), tc.zeros(3, 1)])) == (
        "ParameterList(\n  (0): float32 of shape (2,)\n  (1): float32 of shape (3, 1)\n)"
    )


def test_a_list_of_layers_is_shown_as_pytorch_shows_it():
    torch = pytest.importorskip("torch")
    made = [m.ModuleList([m.Sequential(m.Linear(2, 2), m.ReLU()) for _ in range(3)] + [m.Tanh()]) for m in (nn, torch.nn)]
    assert repr(made[0]) == repr(made[1])
