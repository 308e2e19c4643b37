"""Module: registration, the rule of arrays, state dicts, moving, copying, printing."""

import copy
import pickle
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from interrupting import interrupted
from transformer_c import _core, nn
from transformer_c.nn import functional as F
from transformer_c.nn.state import LOADING


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter([2.0])
        self.register_buffer("shift", tc.tensor([1.0]))
        self.register_buffer("scratch", tc.tensor([0.0]), persistent=False)
        self.seen = []

    def forward(self, x, *rest, **options):
        self.seen.append((type(x), tc.is_grad_enabled()))
        return x * self.factor + self.shift


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Scale()

    def forward(self, x):
        y = self.inner(x)
        assert isinstance(x, tc.Tensor) and isinstance(y, tc.Tensor)
        return {"y": y, "pair": (y, [x])}


X = np.ones(3, np.float32)


def test_attributes_register_and_none_unregisters():
    m = Scale()
    assert [n for n, _ in m.named_parameters()] == ["factor"] and [n for n, _ in m.named_buffers()] == ["shift", "scratch"]
    m.child = nn.Linear(2, 2)
    assert [n for n, _ in m.named_modules()] == ["", "child"]
    m.child = None
    assert m.child is None and [n for n, _ in m.named_modules()] == [""]
    m.factor = None
    assert list(m.parameters()) == [] and m.factor is None
    del m.shift
    with pytest.raises(AttributeError, match="shift"):
        m.shift  # noqa: B018
    m.plain = 3
    del m.plain
    with pytest.raises(AttributeError, match="plain"):
        del m.plain


def test_registration_mistakes_are_named():
    class Forgot(nn.Module):
        def __init__(self):
            self.w = nn.Parameter([1.0])

    with pytest.raises(AttributeError, match=r"super\(\).__init__"):
        Forgot()
    m = Scale()
    with pytest.raises(TypeError, match="factor.*parameter"):
        m.factor = np.ones(1)
    with pytest.raises(TypeError, match="shift.*buffer"):
        m.shift = 3
    with pytest.raises(KeyError, match="factor"):
        m.register_buffer("factor", tc.ones(1))
    with pytest.raises(NotImplementedError, match="forward"):
        nn.Module()(X)


def test_arrays_in_arrays_out_nothing_recorded():
    outer = Outer()
    out = outer(X)
    assert type(out["y"]) is np.ndarray and type(out["pair"][1][0]) is np.ndarray and (out["y"] == 3).all()
    assert outer.inner.seen == [(tc.Tensor, False)]
    out["y"][:] = 7  # the caller's own memory
    assert (outer(X)["y"] == 3).all() and (X == 1).all()


def test_tensors_in_tensors_out_recorded():
    outer = Outer()
    out = outer(tc.tensor(X))
    assert isinstance(out["y"], tc.Tensor) and out["y"].requires_grad
    assert outer.inner.seen == [(tc.Tensor, True)]


def test_nested_arguments_and_named_tuples():
    Pair = namedtuple("Pair", "a b")

    class Sums(nn.Module):
        def forward(self, pair, options):
            assert isinstance(pair.a, tc.Tensor) and isinstance(options["deep"][0], tc.Tensor)
            return Pair(pair.a + pair.b, options["deep"][0])

    out = Sums()(Pair(X, X), {"deep": [X]})
    assert type(out) is Pair and (out.a == 2).all() and type(out.b) is np.ndarray


def test_the_mode_alone_decides_about_dropout():
    m = nn.Dropout(0.5)
    x = np.ones(1000, np.float32)
    assert set(np.unique(m(x))) == {0.0, 2.0}
    assert (m.eval()(tc.tensor(x)).numpy() == 1).all() and (m(x) == 1).all()


def test_depth_is_restored_after_an_error():
    class Fails(nn.Module):
        def forward(self, x):
            raise RuntimeError("no")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="no"):
            Fails()(X)
    assert type(Scale()(X)) is np.ndarray and tc.is_grad_enabled()


def test_shared_modules_and_parameters_count_once():
    a = nn.Linear(2, 2)
    model = nn.Sequential(a, a)
    assert len(list(model.parameters())) == 2 and len(list(model.modules())) == 2
    assert list(model.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    model(tc.tensor(np.ones((1, 2), np.float32))).sum().backward()
    assert a.weight.grad is not None


def test_state_dict_round_trip():
    m = nn.Sequential(OrderedDict(first=Scale(), second=nn.Linear(1, 1)))
    state = m.state_dict()
    assert list(state) == ["first.factor", "first.shift", "second.weight", "second.bias"]
    assert not any(v.requires_grad for v in state.values())
    other = nn.Sequential(OrderedDict(first=Scale(), second=nn.Linear(1, 1)))
    result = other.load_state_dict({k: v.numpy() + 1 for k, v in state.items()})
    assert result.missing_keys == [] and result.unexpected_keys == [] and repr(result) == "<All keys matched successfully>"
    other_keys = other.load_state_dict({"first.factor": [3.0], "third.weight": [1.0]}, strict=False)
    assert other_keys.unexpected_keys == ["third.weight"] and repr(other_keys).startswith("IncompatibleKeys(missing_keys=['first.shift',")
    assert other.first.factor.tolist() == [3.0]


def test_load_state_dict_refuses_and_changes_nothing():
    m = nn.Linear(2, 3)
    before = m.weight.detach().numpy().copy()
    with pytest.raises(RuntimeError, match=r"missing keys: 'bias'[\s\S]*unexpected keys: 'extra'"):
        m.load_state_dict({"weight": np.zeros((3, 2)), "extra": 1})
    with pytest.raises(ValueError, match=r"bias: got \(4,\), expected \(3,\)"):
        m.load_state_dict({"weight": np.zeros((3, 2)), "bias": np.zeros(4)})
    assert (m.weight.detach().numpy() == before).all()
    result = m.load_state_dict({"weight": np.zeros((3, 2)), "extra": 1}, strict=False)
    assert result == (["bias"], ["extra"]) and (m.weight.detach().numpy() == 0).all()


def test_keys_that_differ_by_a_prefix_say_how_to_rename_them():
    """As of a model of DataParallel's, of a checkpoint with more than the weights, or of a model inside another."""
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    state = net.state_dict()
    for given, advice in (
        ({f"module.{key}": value for key, value in state.items()}, r"all keys begin with 'module\.': load \{key\.removeprefix"),
        ({"state_dict": state, "epoch": 3}, r"'state_dict' is a state dict: load state\['state_dict'\]"),
    ):
        with pytest.raises(RuntimeError, match=advice):
            net.load_state_dict(given)
    with pytest.raises(RuntimeError, match=r"all keys lack '0\.': load \{'0\.' \+ key: value"):
        nn.Sequential(net).load_state_dict(state)
    for given in ({}, {"weight": tc.ones(2)}, {f"module.{key}": value for key, value in list(state.items())[1:]}):
        with pytest.raises(RuntimeError, match="missing keys") as raised:
            net.load_state_dict(given)
        assert "load" not in str(raised.value)


def test_a_state_dict_of_the_users_own():
    """A frozen part that is not saved; copies instead of the parameters' memory; keys besides. Loading is by the parameters there are."""

    class Frozen(nn.Linear):
        def state_dict(self, *args, **kwargs):
            return kwargs["destination"]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.head = Frozen(2, 2), nn.Linear(2, 1)

        def state_dict(self, *args, **kwargs):
            copies = OrderedDict((name, value.clone()) for name, value in super().state_dict(*args, **kwargs).items())
            return OrderedDict(copies, extra=tc.ones(1))

    model, full = Model(), nn.ModuleDict({"encoder": nn.Linear(2, 2), "head": nn.Linear(2, 1)}).state_dict()
    assert list(model.state_dict()) == ["head.weight", "head.bias", "extra"]
    assert model.load_state_dict(full) == ([], [])
    assert all(tc.equal(value, full[name]) for name, value in model.named_parameters())
    assert model.load_state_dict(model.state_dict(), strict=False) == (["encoder.weight", "encoder.bias"], ["extra"])


def test_modules_that_load_in_their_own_way():
    """One renames a key of older files, does without another, or takes its values itself."""

    class Renamed(nn.Linear):
        def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
            if prefix + "kernel" in state_dict:
                state_dict[prefix + "weight"] = state_dict.pop(prefix + "kernel")
            super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
            if prefix + "bias" in missing_keys:
                missing_keys.remove(prefix + "bias")

    class Turned(nn.Linear):
        def _load_from_state_dict(self, state_dict, prefix, *others):
            self.weight.data.copy_(state_dict[prefix + "weight"].T)
            if prefix + "bias" in state_dict:
                others[-1].append(f"{prefix}bias has no place here")

    for assign in (False, True):
        model, square = nn.ModuleDict({"a": Renamed(2, 3), "b": Turned(2, 2)}), tc.tensor([[1.0, 2.0], [3.0, 4.0]])
        old, bias = {"a.kernel": tc.ones(3, 2), "b.weight": square}, model["a"].bias.tolist()
        assert model.load_state_dict(old, assign=assign) == ([], []) and "a.kernel" in old
        assert (model["a"].weight == 1).all() and model["a"].bias.tolist() == bias and tc.equal(model["b"].weight, square.T)
        with pytest.raises(RuntimeError, match=r"does not fit ModuleDict:\n  b.bias has no place here"):
            model.load_state_dict({"a.kernel": tc.zeros(3, 2), "b.weight": square, "b.bias": tc.ones(2)}, assign=assign)
        assert (model["a"].weight == 1).all()
    missing: list = []
    model["a"]._load_from_state_dict({"x.weight": tc.zeros(3, 2)}, "x.", {}, True, missing, [], [])
    assert missing == [] and (model["a"].weight == 0).all()


@pytest.mark.parametrize("copied", (dict, OrderedDict, copy.copy, copy.deepcopy))
def test_modules_may_look_for_their_keys_in_copies_of_the_state_dict(copied):
    """What they leave out of a copy is not unexpected, nor what a module takes itself; no value is written where another is refused."""

    class Copied(nn.Linear):
        def _load_from_state_dict(self, state_dict, *others):
            state_dict = copied(state_dict)
            state_dict[others[0] + "weight"] = state_dict.pop(others[0] + "kernel")
            super()._load_from_state_dict(state_dict, *others)

    class Alone(nn.Linear):
        def _load_from_state_dict(self, state_dict, prefix, *others):
            self.weight.data.fill_(state_dict[prefix + "scale"])

    class Growing(nn.Module):
        def _load_from_state_dict(self, state_dict, prefix, *others):
            self.part = nn.LayerNorm(len(state_dict[prefix + "part.weight"]))
            super()._load_from_state_dict(state_dict, prefix, *others)

    old = OrderedDict({"0.kernel": tc.ones(2, 2), "0.bias": tc.ones(2), "1.scale": 3.0})
    old |= {"2.part.weight": tc.ones(1), "2.part.bias": tc.ones(1)}
    old._metadata = None
    model = nn.Sequential(Copied(2, 2), Alone(1, 1), Growing())
    assert model.load_state_dict(old) == ([], [])
    assert (model[0].weight == 1).all() and (model[1].weight == 3).all() and (model[2].part.bias == 1).all()
    with pytest.raises(RuntimeError, match=r"unexpected keys: 'more', '0.more'$"):
        model.load_state_dict({**old, "0.kernel": tc.zeros(2, 2), "0.more": 1, "1.more": 2, "more": 3})
    with pytest.raises(ValueError, match=r"2.part.bias: got \(2,\)"):
        model.load_state_dict({**old, "0.kernel": tc.zeros(2, 2), "2.part.bias": tc.ones(2)})
    assert (model[0].weight == 1).all()


def test_modules_that_make_a_state_dict_of_their_own():
    """Copies under other names are as good as the given one, a module that takes all itself answers for its keys, all or none are loaded."""

    class Copied(nn.Linear):
        def _load_from_state_dict(self, state_dict, *others):
            changed = state_dict.copy()
            changed["a.weight"] = changed["a.weight"] * 10
            super()._load_from_state_dict(changed, *others)

    class Renamed(nn.Linear):
        def _load_from_state_dict(self, state_dict, *others):
            super()._load_from_state_dict({key.replace("kernel", "weight"): value for key, value in state_dict.items()}, *others)

    class Own(nn.Module):
        def _load_from_state_dict(self, state_dict, prefix, *others):
            self.table = state_dict[prefix + "table"]

    given = OrderedDict({"a.weight": tc.ones(1, 1), "b.kernel": tc.ones(1, 1), "c.table": tc.ones(2), "d.weight": tc.ones(1, 1)})
    given._metadata = None
    for assign in (False, True):
        model = nn.ModuleDict({"a": Copied(1, 1, bias=False), "b": Renamed(1, 1, bias=False), "c": Own(), "d": nn.Linear(1, 1, bias=False)})
        before = model["b"].weight.item()
        with pytest.raises(RuntimeError, match="unexpected keys: 'b.extra', 'd.more'"):
            model.load_state_dict({**given, "d.more": tc.ones(1), "b.extra": tc.ones(1)}, assign=assign)
        assert model["b"].weight.item() == before
        assert model.load_state_dict(given, assign=assign) == ([], [])
        assert [model[name].weight.item() for name in "abd"] == [10, 1, 1] and model["c"].table.shape == (2,)


def test_modules_that_save_in_their_own_way():
    """One replaces its values, one adds to them; what is below them is saved as ever."""

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.part = nn.Parameter(tc.ones(1)), nn.Linear(1, 1)

        def _save_to_state_dict(self, destination, prefix, keep_vars):
            destination[prefix + "serialized"] = self.table.detach() + 1

        def _load_from_state_dict(self, state_dict, prefix, *others):
            self.table.data.copy_(state_dict[prefix + "serialized"] - 1)

    class Added(nn.Linear):
        def _save_to_state_dict(self, destination, prefix, keep_vars):
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "kept"] = keep_vars

    model, other = nn.Sequential(Own()), nn.Sequential(Own())
    model[0].table.data.fill_(5.0)
    state = model.state_dict()
    assert list(state) == ["0.serialized", "0.part.weight", "0.part.bias"] and state["0.serialized"].item() == 6
    assert other.load_state_dict(state) == ([], []) and other[0].table.item() == 5
    for keep_vars in (False, True):
        assert list(nn.Sequential(Added(1, 1, bias=False)).state_dict(keep_vars=keep_vars).items())[1] == ("0.kept", keep_vars)


def test_an_extra_state_is_refused():
    class Extra(nn.Linear):
        def get_extra_state(self):
            return {"steps": 3}

    for use in (lambda m: m.state_dict(), lambda m: m.load_state_dict({})):
        with pytest.raises(NotImplementedError, match=r"Extra.get_extra_state\(\) is of PyTorch alone: keep what it returns in a buffer"):
            use(nn.Sequential(Extra(1, 1)))


def test_a_state_dict_is_added_to_a_dict():
    layer, held = nn.Linear(1, 1), {"other": 1}
    assert layer.state_dict(held, "a.", True) is held and list(held) == ["other", "a.weight", "a.bias"]
    assert held["a.weight"] is layer.weight and not layer.state_dict()["weight"].requires_grad
    with pytest.raises(TypeError, match="destination is a dict .* got 'a.'.*prefix= is given by name"):
        layer.state_dict("a.")


def test_a_state_dict_with_a_prefix_is_pytorchs():
    torch = pytest.importorskip("torch")
    ours, theirs = (m.Sequential(m.Linear(2, 3), m.Sequential(m.LayerNorm(3))) for m in (nn, torch.nn))
    assert list(ours.state_dict(prefix="model.")) == list(theirs.state_dict(prefix="model."))


def test_a_state_dict_may_hold_the_parameters_themselves():
    module = nn.Linear(2, 3)
    module.register_buffer("table", tc.ones(2))
    kept = module.state_dict(keep_vars=True)
    assert kept["weight"] is module.weight and kept["bias"] is module.bias and kept["table"] is module.table
    assert not any(value.requires_grad for value in module.state_dict().values()) and list(kept) == list(module.state_dict())


def test_without_super_init_the_error_says_so():
    class Net(nn.Module):
        def __init__(self):
            self.width = 3

    for use in (repr, lambda net: list(net.parameters()), lambda net: net.state_dict(), lambda net: net.eval()):
        with pytest.raises(AttributeError, match=r"call super\(\)\.__init__\(\) at the beginning of Net\.__init__"):
            use(Net())


def test_load_state_dict_casts():
    m = nn.Linear(2, 3)
    m.load_state_dict({"weight": np.ones((3, 2), np.float64), "bias": np.ones(3, np.int64)})
    assert m.weight.dtype == np.float32 and m.weight.requires_grad


def test_to_keeps_objects_and_drops_gradients():
    m = nn.Linear(2, 3)
    weight = m.weight
    m(tc.tensor(np.ones((1, 2), np.float32))).sum().backward()
    m.double()
    assert m.weight is weight and weight.dtype == np.float64 and weight.grad is None and weight.requires_grad
    assert m(np.ones((1, 2), np.float32)).dtype == np.float64
    with pytest.raises(RuntimeError, match="cuda"):
        m.to("cuda")
    assert m.to("cpu").float() is m and m.weight.dtype == np.float32


def test_train_eval_apply_zero_grad_freeze():
    m = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))
    assert m.eval() is m and not any(x.training for x in m.modules())
    assert m.train()[1].training
    seen = []
    m.apply(lambda x: seen.append(type(x).__name__))
    assert seen == ["Linear", "Dropout", "Sequential"]
    m(tc.tensor(np.ones((1, 2), np.float32))).sum().backward()
    m.zero_grad()
    assert all(p.grad is None for p in m.parameters())
    m.requires_grad_(False)
    assert not m(tc.tensor(np.ones((1, 2), np.float32))).requires_grad


def test_a_part_that_stays_in_eval_mode():
    """A frozen backbone, as programs write it: train() of the whole model asks its own method."""

    class Frozen(nn.Sequential):
        def train(self, mode=True):
            self.asked = mode
            return super().train(False)

    model = nn.ModuleDict({"parts": nn.ModuleList([Frozen(nn.Dropout(0.5))]), "head": nn.Dropout(0.5)})
    frozen = model.parts[0]
    for mode in (True, False):
        assert model.train(mode).training is mode and model.head.training is mode and frozen.asked is mode
        assert not frozen.training and not frozen[0].training


def test_zero_grad_writes_zeros_over_nan():
    """In place, so that a gradient that was kept is zero, too."""
    m = nn.Linear(2, 2)
    m(tc.tensor([[np.nan, np.inf]])).sum().backward()
    kept = m.weight.grad
    m.zero_grad(set_to_none=False)
    assert m.weight.grad is kept and not kept.numpy().any()


class Twice(nn.Module):
    """Has one layer under two names."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.b = self.a


def test_a_child_with_two_names_is_visited_once():
    m = Twice()
    assert [name for name, _ in m.named_children()] == ["a"] and list(m.children()) == [m.a]
    assert [name for name, _ in m.named_modules()] == ["", "a"] and list(m.modules()) == [m, m.a]
    seen = []
    m.apply(lambda x: seen.append(type(x).__name__))
    assert seen == ["Linear", "Twice"]
    relu = nn.ReLU()
    assert [name for name, _ in nn.Sequential(relu, nn.Dropout(), relu).named_children()] == ["0", "1"]


def test_a_child_with_two_names_is_shown_and_saved_under_both():
    m = Twice()
    assert list(m.state_dict()) == ["a.weight", "a.bias", "b.weight", "b.bias"]
    line = "Linear(in_features=2, out_features=2, bias=True)"
    assert repr(m) == f"Twice(\n  (a): {line}\n  (b): {line}\n)"
    assert "(a)" in m._repr_html_() and "(b)" in m._repr_html_()
    assert repr(nn.ModuleList([m.a, m.a])) == f"ModuleList(\n  (0-1): 2 x {line}\n)"
    m.eval().double()
    assert not m.b.training and m.b.weight.dtype == np.float64


def test_a_module_is_not_assigned_over_a_parameter():
    m = Scale()
    for value in (nn.ReLU(), 3, tc.ones(1)):
        with pytest.raises(TypeError, match=f"'factor' is a parameter: .* not {type(value).__name__}"):
            m.factor = value
    assert m.factor.tolist() == [2.0]
    m.factor = None
    with pytest.raises(TypeError, match="del module.factor makes room for a module"):
        m.factor = nn.ReLU()
    del m.factor
    m.factor = m.shift = nn.ReLU()  # a buffer, and a module below, give way
    m.factor = nn.Parameter([1.0])
    assert list(m._parameters) == ["factor"] and list(m._modules) == ["shift"] and "shift" not in m._buffers


def test_registering_does_not_replace_what_is_of_another_kind():
    m = Scale()
    m.inner, m.plain = nn.ReLU(), 3
    for name in ("inner", "plain", "shift", "forward"):
        with pytest.raises(KeyError, match=f"attribute '{name}' already exists"):
            m.register_parameter(name, nn.Parameter([1.0]))
    for name in ("factor", "plain", "shift", "forward"):
        with pytest.raises(KeyError, match=f"attribute '{name}' already exists"):
            m.add_module(name, nn.ReLU())
    m.register_parameter("factor", nn.Parameter([3.0]))
    m.add_module("inner", nn.Tanh())
    assert m.factor.tolist() == [3.0] and type(m.inner) is nn.Tanh and m.plain == 3


@pytest.mark.parametrize("library", ["torch", "transformer_c"])
def test_a_parameter_that_its_class_would_hide(library):
    """The class's attribute would be used in the parameter's place, which would get no gradient."""
    lib = pytest.importorskip(library)
    nn = lib.nn

    class Default(nn.Module):
        scale = None

    class Method(nn.Module):
        def scale(self):
            return 5

    class Bare(nn.Linear):
        weight = None

    class Later(nn.Module):
        @property
        def scale(self):
            return self.raw * 2

    for m in (Default(), Method()):
        with pytest.raises(KeyError, match="attribute 'scale' already exists"):
            m.scale = nn.Parameter(lib.ones(1))
        assert not m.state_dict()
    with pytest.raises(KeyError, match="attribute 'weight' already exists"):
        Bare(1, 1)
    m = Later()
    m.scale = nn.Parameter(lib.ones(1))
    m.scale = nn.Parameter(lib.zeros(1))
    assert list(m.state_dict()) == ["scale"]


@pytest.mark.parametrize("library", ["torch", "transformer_c"])
def test_names_are_parts_of_keys(library):
    lib = pytest.importorskip(library)
    m = lib.nn.Module()
    for register, value in ((m.register_parameter, None), (m.register_buffer, None), (m.add_module, lib.nn.ReLU())):
        for name, error in (("", KeyError), ("a.b", KeyError), (3, TypeError)):
            with pytest.raises(error):
                register(name, value)
    for name in ("", "a.b"):
        with pytest.raises(KeyError):
            setattr(m, name, lib.nn.Parameter(lib.ones(1)))
    assert m.state_dict() == {} and list(m.modules()) == [m]


def test_copies_and_pickles():
    m = nn.Sequential(Scale(), nn.Linear(3, 2)).eval()
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(nn.Sequential(nn.Linear(3, 2), nn.ReLU())))):
        assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in other.parameters())
    twin = copy.deepcopy(m)
    with tc.no_grad():
        twin[0].factor.fill_(9.0)
    assert m[0].factor.tolist() == [2.0] and not twin.training


def test_a_copied_parameter_has_no_gradient():
    m = nn.Linear(2, 1)
    m(tc.ones(1, 2)).sum().backward()
    for other in (copy.deepcopy(m).weight, copy.deepcopy(m.weight), copy.deepcopy([m.weight])[0]):
        assert type(other) is nn.Parameter and other.grad is None and other.requires_grad and other is not m.weight
        assert other.tolist() == m.weight.tolist()
    assert m.weight.grad is not None


def test_repr_shows_the_tree():
    text = repr(nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU())))
    assert text == ("Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=True)\n  (1): Sequential(\n    (0): ReLU()\n  )\n)")
    assert repr(nn.LayerNorm(4)) == "LayerNorm((4,), eps=1e-05, elementwise_affine=True, bias=True)"
    assert repr(nn.LayerNorm((2, 3), bias=False)) == "LayerNorm((2, 3), eps=1e-05, elementwise_affine=True, bias=False)"
    assert repr(nn.RMSNorm(4)) == "RMSNorm((4,), eps=None, elementwise_affine=True)"
    html = nn.Linear(2, 3)._repr_html_()
    assert "9 parameters" in html and "<code>weight</code>" in html


def test_lists():
    layers = nn.ModuleList([nn.Linear(1, 1)])
    layers.append(nn.ReLU())
    layers.insert(0, nn.Tanh())
    assert (
        [type(x).__name__ for x in layers] == ["Tanh", "Linear", "ReLU"]
        and len(layers[1:]) == 2
        and list(layers.state_dict()) == ["1.weight", "1.bias"]
    )
    layers[0] = nn.Sigmoid()
    assert isinstance(layers[0], nn.Sigmoid) and len(nn.Sequential(*layers)[:2]) == 2


def test_what_is_assigned_anew_keeps_its_place():
    """The order of parameters is that of an optimizer's state."""
    m = nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 3))
    m.add_module("0", nn.Linear(4, 2))
    setattr(m, "0", nn.Linear(5, 2))
    m[0].weight = nn.Parameter(tc.zeros(2, 6))
    assert [(n, tuple(p.shape)) for n, p in m.named_parameters()] == [
        ("0.weight", (2, 6)), ("0.bias", (2,)), ("1.weight", (3, 2)), ("1.bias", (3,)),
    ]  # fmt: skip
    m.extra = 1
    m.extra = nn.ReLU()
    assert list(m._modules) == ["0", "1", "extra"] and "extra" not in m.__dict__


def test_dicts():
    heads = nn.ModuleDict({"mean": nn.Linear(2, 1)})
    heads["class"] = nn.Linear(2, 3)
    heads.update([("mean", nn.Linear(2, 4, bias=False))])
    assert list(heads) == list(heads.keys()) == ["mean", "class"] and "class" in heads and len(heads) == 2
    assert list(heads.state_dict()) == ["mean.weight", "class.weight", "class.bias"]
    assert heads.mean is heads["mean"] is next(iter(heads.values())) and dict(heads.items())["class"] is heads["class"]
    again = pickle.loads(pickle.dumps(heads))
    again.load_state_dict(heads.state_dict())
    assert heads.pop("mean").out_features == 4 and list(heads) == ["class"] and list(again) == ["mean", "class"]
    for refused, name in ((KeyError, "a.b"), (KeyError, ""), (TypeError, 3)):
        with pytest.raises(refused, match="name"):
            heads[name] = nn.ReLU()
    with pytest.raises(TypeError, match="'x' must be an nn.Module"):
        heads["x"] = 3
    with pytest.raises(KeyError):
        heads["none"]
    assert list(heads) == ["class"]
    del heads["class"]
    heads.clear()
    assert not heads


LAYERS = load("initial_weights")


@pytest.mark.parametrize("case", [k for k in sorted(LAYERS) if "layer" in LAYERS[k][0]])
def test_initial_weights_of_layers(case):
    options, arrays = LAYERS[case]
    tc.manual_seed(options["seed"])
    layer = getattr(nn, options["layer"])(**options["arguments"])
    state = layer.state_dict()
    for name in (k for k in arrays if k != "next"):
        wanted = arrays[name]
        assert np.abs(state[name].numpy() - wanted).max(initial=0) <= 1e-6
    assert (tc.rand(2).numpy() == arrays["next"]).all()


@pytest.mark.parametrize("case", [k for k in sorted(LAYERS) if "function" in LAYERS[k][0]])
def test_init_functions(case):
    options, arrays = LAYERS[case]
    tc.manual_seed(options["seed"])
    weight = tc.empty(*options["shape"], dtype=options["dtype"])
    getattr(nn.init, options["function"])(weight, **options["arguments"])
    wanted = next(v for k, v in arrays.items() if k != "next")
    assert np.abs(weight.numpy() - wanted).max() <= 1e-6 * max(1.0, np.abs(wanted).max())
    assert (tc.rand(2).numpy() == arrays["next"]).all()


def test_lists_of_numbers_are_arrays():
    assert type(nn.Linear(3, 4)([[1.0, 2.0, 3.0]])) is np.ndarray
    assert tc.MultiheadAttention(2, 2, 1)([[[1.0, 2.0], [3.0, 4.0]]]).shape == (1, 2, 2)
    row = np.array([1, 2, 3], np.float32)
    layer = nn.Linear(3, 4)
    for given in ([(1, 2.0, 3)], [list(row)], [tuple(row)]):  # tuples and NumPy's numbers in lists
        np.testing.assert_array_equal(layer(given), layer(row[None]))


def test_an_embedding_takes_pytorchs_arguments_in_their_order():
    table = nn.Embedding(3, 2, 0, None, 2.0, False, True)
    assert table.padding_idx == 0 and table(np.array([0])).tolist() == [[0.0, 0.0]]
    assert nn.Embedding(3, 2, max_norm=None, sparse=False, dtype="float64").weight.dtype == np.float64


def test_a_layer_is_called_with_other_weights():
    """As adapters of low rank do it, which subclass the layer."""

    class Table(nn.Embedding):
        def forward(self, x):
            return F.embedding(x, self.weight.T, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)

    class Kernel(nn.Conv1d):
        def forward(self, x):
            return self._conv_forward(x, self.weight * 2, None)

    table, kernel, x = Table(3, 2), Kernel(2, 4, 3, padding=1, padding_mode="reflect"), tc.randn(1, 2, 5)
    assert tc.equal(table(tc.tensor([1])), table.weight[:, 1][None])
    np.testing.assert_allclose(kernel(x).detach(), 2 * (nn.Conv1d.forward(kernel, x) - kernel.bias[:, None]).detach(), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"embedding\(max_norm=1\.0\) is not possible"):
        F.embedding(tc.tensor([1]), table.weight, max_norm=1.0)


@pytest.mark.parametrize("value", ["abc", np.array(["a", "b", "c"]), np.array([1, 2, 3], dtype=object)])
def test_what_is_no_number_is_named(value):
    with pytest.raises(TypeError, match="Linear takes a Tensor or an array of numbers, not"):
        nn.Linear(3, 4)(value)


def test_hyperparameters_of_a_subclass_and_load_from_checkpoint(tmp_path):
    class Sub(tc.TransformerPredictor):
        def __init__(this, *, extra=1, **options):
            super().__init__(**options)
            this.save_hyperparameters()

    options = dict(input_dim=3, model_dim=4, num_classes=2, num_heads=1, num_layers=1, lr=1e-3, warmup=1, max_iters=5)
    model = Sub(extra=7, **options).eval()
    assert model.hparams.extra == 7 and model.hparams.model_dim == 4
    tc.save(model, tmp_path / "model.safetensors")
    again = Sub.load_from_checkpoint(tmp_path / "model.safetensors")
    x = np.ones((1, 2, 3), np.float32)
    assert again.hparams.extra == 7 and not again.training and (again(x) == model(x)).all()


@pytest.mark.parametrize("given", [None, "weights.safetensors", 5])
def test_a_state_dict_is_a_mapping(given):
    with pytest.raises(TypeError, match="a state dict is a mapping of names to arrays"):
        tc.nn.Linear(2, 2).load_state_dict(given)


def test_an_interrupted_assignment_leaves_all_values_or_none():
    layer = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), Scale())
    old, new = ({name: np.full(p.shape, number, np.float32) for name, p in layer.state_dict().items()} for number in (1, 2))
    nth, seen = 0, set()
    while True:
        layer.load_state_dict(old)
        ended = not interrupted(nth, lambda: layer.load_state_dict(new, assign=True))
        values = {float(v) for p in layer.state_dict().values() for v in p.reshape(-1).tolist()}
        assert values in ({1.0}, {2.0}) and not LOADING, nth
        seen |= values
        if ended:
            break
        nth += 1
        layer = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), Scale())
    assert nth > 20 and seen == {1.0, 2.0}


def test_a_module_is_cast_to_floating_dtypes_alone():
    """A frozen layer had become int64 when the next layer refused."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[0].requires_grad_(False)
    before = [p.tolist() for p in net.parameters()]
    for dtype in ("int64", tc.bool, np.uint8, tc.arange(2)):
        with pytest.raises(TypeError, match="which to\\(\\) casts to a floating dtype, not to (int64|bool|uint8)"):
            net.to(dtype)
    assert [p.tolist() for p in net.parameters()] == before and {p.dtype for p in net.parameters()} == {np.dtype(np.float32)}
    assert net.to("bfloat16")[0].weight.dtype == tc.bfloat16 and net.to(tc.ones(1).double())[1].bias.dtype == np.float64


@pytest.mark.parametrize(
    ("arguments", "gain"),
    [
        (("linear",), 1),
        (("conv2d",), 1),
        (("conv_transpose3d",), 1),
        (("sigmoid",), 1),
        (("tanh",), 5 / 3),
        (("relu",), 2**0.5),
        (("leaky_relu", 1.0), 1),
        (("selu",), 0.75),
    ],
)
def test_gains(arguments, gain):
    assert tc.nn.init.calculate_gain(*arguments) == pytest.approx(gain, rel=1e-15)
    with pytest.raises(ValueError, match="'gelu' is unknown; expected leaky_relu"):
        tc.nn.init.calculate_gain("gelu")


@pytest.mark.parametrize("fill", ["uniform_", "normal_", "trunc_normal_", "zeros_", "ones_", "xavier_uniform_", "kaiming_normal_"])
def test_initial_values_of_what_is_no_tensor(fill):
    array = np.full((2, 3), 7.0)
    with pytest.raises(TypeError, match=r"nn\.init fills a Tensor in place, got ndarray; tc\.tensor\(\.\.\.\) makes a Tensor of an array"):
        getattr(nn.init, fill)(array)
    assert (array == 7.0).all()


@pytest.mark.parametrize("mode", ["fan_in", "fan_out"])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_initial_values_of_no_elements(shape, mode):
    for fill in (nn.init.kaiming_uniform_, nn.init.kaiming_normal_):
        assert fill(tc.empty(*shape), mode=mode).shape == shape


@pytest.mark.parametrize(
    ("shape", "groups"), [((4, 4, 3), 1), ((2, 3, 4), 1), ((3, 2, 1), 1), ((6, 2, 3, 5), 3), ((2, 2, 3, 3, 3), 2), ((0, 3, 1), 1)]
)
def test_convolutions_that_pass_channels_on(shape, groups):
    weight = nn.init.dirac_(tc.full(shape, 7.0), groups)
    assert weight.sum().item() == groups * min(shape[0] // groups, shape[1])
    if len(shape) == 3 and shape[2] % 2:
        x = tc.randn(1, shape[1], 5)
        assert tc.equal(tc.F.conv1d(x, weight, padding=shape[2] // 2)[:, : shape[1]], x[:, : shape[0]])
    torch = pytest.importorskip("torch")
    assert shape[0] == 0 or weight.tolist() == torch.nn.init.dirac_(torch.empty(shape), groups).tolist()
    for bad, of, error in ((tc.ones(2, 2), 1, "3, 4 or 5 axes"), (tc.ones(3, 2, 1), 2, "multiple of groups")):
        with pytest.raises(ValueError, match=error):
            nn.init.dirac_(bad, of)
        assert (bad == 1).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("n", [1 << 21, (3 << 20) + 5])
def test_initial_values_that_are_drawn_in_pieces(n, dtype):
    for draw, fill in ((tc.randn, nn.init.normal_), (tc.rand, nn.init.uniform_)):
        x = fill(tc.empty(n, dtype=dtype), generator=tc.Generator(7))
        assert tc.equal(x, draw(n, dtype=dtype, rng=7))
    w = tc.zeros(n, dtype=dtype).requires_grad_()
    y = (w * w).sum()
    nn.init.uniform_(w)
    with pytest.raises(RuntimeError, match="written in place after it was saved"):
        y.backward()


@pytest.mark.parametrize("n", [16, (2 << 20) + 1])
def test_a_result_that_is_filled_through_a_view_without_a_history_is_out_of_date(n):
    """Also where the numbers are drawn in pieces."""
    for fill in (tc.Tensor.uniform_, tc.Tensor.normal_):
        y = tc.ones(n, requires_grad=True) * 2
        with tc.no_grad():
            part = y[:]
        fill(part)
        with pytest.raises(RuntimeError, match="shares memory that was written in place"):
            y.sum()


def test_a_large_layer_is_made_in_its_own_memory():
    _core.memory_reset_peak()
    before = _core.memory_stats()["in_use"]
    layers = nn.Linear(4096, 2048), nn.Embedding(2048, 4096), nn.Conv1d(2048, 2048, 2)
    own = sum(p.nbytes for layer in layers for p in layer.parameters())
    assert _core.memory_stats()["peak_in_use"] - before < own + (9 << 20)


def test_a_type_error_of_forward_stays_what_it_is():
    """Only names that forward() does not take are explained, not those that a call inside gets wrong."""

    class Inner(nn.Module):
        def forward(self, x, scale=1.0):
            return x * scale

    class Outer(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.inner, self.name = Inner(), name

        def forward(self, x, **options):
            return self.inner(x, **{self.name: 2.0}) if self.name else sorted(x, kye=1)

    assert Outer("scale")(tc.ones(2), other=1).tolist() == [2, 2]
    with pytest.raises(TypeError, match=r"^Inner\.forward\(\) has no option 'scal': did you mean 'scale'\?$"):
        Outer("scal")(tc.ones(2), other=1)
    with pytest.raises(TypeError, match="sort"):
        Outer("")(tc.ones(2), other=1)
    for x in (np.ones(2, np.float32), tc.ones(2)):
        with pytest.raises(TypeError, match=r"Inner\.forward\(\) has no option 'factor': it has x, scale"):
            Inner()(x, factor=2.0)


def test_an_error_inside_forward_is_not_blamed_on_the_arguments():
    class Wrong(tc.nn.Module):
        def forward(self, x, mask=None):
            return (lambda a: a)(b=x)

    module = Wrong()
    module.register_forward_pre_hook(lambda m, args, kwargs: (args, {"mask": kwargs.pop("old")}), with_kwargs=True)
    with pytest.raises(TypeError, match=r"<lambda>\(\) got an unexpected keyword argument 'b'"):
        module(tc.ones(2), old=None)


def test_a_layer_with_a_forward_of_its_own_has_its_own_names():
    class Own(tc.nn.TransformerEncoderLayer):
        def forward(self, x):
            return x

    with pytest.raises(TypeError, match=r"^Own\.forward\(\) has no option 'mask': it has x$"):
        Own(8, 2)(tc.ones(1, 2, 8), mask=None)


def test_layers_take_what_makes_an_array(rng):
    """A first argument of numbers or arrays; modules of the user get lists of arrays as they are."""
    rows = rng.standard_normal((2, 4)).astype(np.float32)
    for layer in (nn.Linear(4, 3), nn.LayerNorm(4), nn.ReLU(), tc.EncoderBlock(input_dim=4, num_heads=1, dim_feedforward=4).eval()):
        x = rows if isinstance(layer, (nn.Linear, nn.LayerNorm, nn.ReLU)) else rows[None]
        expected = layer(x)
        for given in (list(x), tuple(x), tuple(map(tuple, x.tolist())) if x.ndim == 2 else tuple(x.tolist())):
            found = layer(given)
            assert isinstance(found, np.ndarray)
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(ValueError, match="different lengths"):
        nn.Linear(4, 3)([rows[0], rows[1, :2]])
    with pytest.raises(ValueError, match="0 features"):
        nn.Linear(4, 3)([])
    with pytest.raises(TypeError, match=r"tc\.stack"):
        nn.Linear(4, 3)([tc.ones(4), tc.ones(4)])

    class Pair(nn.Module):
        def forward(self, pair):
            assert isinstance(pair, list)
            return pair[0] + pair[1]

    np.testing.assert_array_equal(Pair()(list(rows)), rows.sum(0))


def test_parameters_take_attributes():
    """As programs mark what is not to decay."""
    model = nn.Linear(3, 2)
    model.bias.no_decay = True
    model.double().load_state_dict(nn.Linear(3, 2).state_dict())
    for m in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        kept = {name: getattr(p, "no_decay", False) for name, p in m.named_parameters()}
        assert kept == {"weight": False, "bias": True}
    del model.bias.no_decay
    assert not hasattr(model.bias, "no_decay")


def test_completion_offers_what_can_be_written():
    """In a notebook `model.` is no place for the number of a layer."""
    model = tc.nn.Sequential(tc.nn.Linear(2, 2))
    model.extra = tc.nn.Linear(2, 2)
    assert "extra" in dir(model) and "0" not in dir(model) and {"weight", "bias"} <= set(dir(model[0]))


def test_extra_lines_of_a_repr_are_set_in_as_in_pytorch():
    class Named(nn.Module):
        def __init__(self, text, *layers):
            super().__init__()
            self.text, self.layers = text, nn.ModuleList(layers)
            if not layers:
                del self.layers

        def extra_repr(self):
            return self.text

    assert repr(Named("")) == "Named()" and repr(Named("a=1")) == "Named(a=1)"
    assert repr(Named("a=1\nb=2")) == "Named(\n  a=1\n  b=2\n)"
    assert repr(Named("a=1\nb=2", nn.ReLU())) == "Named(\n  a=1\n  b=2\n  (layers): ModuleList(\n    (0): ReLU()\n  )\n)"


def test_a_module_takes_the_place_of_another():
    net = tc.nn.Sequential(tc.nn.Linear(2, 2), tc.nn.Sequential(tc.nn.ReLU()))
    net.set_submodule("1.0", new := tc.nn.GELU())
    assert net[1][0] is new and [name for name, _ in net.named_modules()] == ["", "0", "1", "1.0"]
    net.set_submodule("1.more", tc.nn.Tanh())
    net[1].register_module("last", tc.nn.SiLU())
    assert list(net[1]._modules) == ["0", "more", "last"]
    for target, module, error, message in (
        ("", new, ValueError, "target is empty"),
        ("0", tc.tanh, ValueError, "'0' must be an nn.Module"),
        ("2.0", new, AttributeError, "has no module '2'"),
        ("0.weight", new, KeyError, "attribute 'weight' already exists"),
    ):
        with pytest.raises(error, match=message):
            net.set_submodule(target, module)
    with pytest.raises(AttributeError, match="has no module 'other'"):
        net.set_submodule("1.other", new, strict=True)
    assert list(net[0].state_dict()) == ["weight", "bias"] and list(net[1]._modules) == ["0", "more", "last"]
