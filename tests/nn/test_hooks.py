"""Hooks on modules, next to PyTorch's; attention maps of any module; tc.summary."""

import contextlib
import copy
import inspect
import itertools
import pickle

import numpy as np
import pytest
import transformer_c as tc


def net():
    tc.manual_seed(0)
    return tc.nn.Sequential(tc.nn.Linear(3, 4), tc.nn.ReLU(), tc.nn.Linear(4, 2))


X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


# ---- forward hooks -----------------------------------------------------------------------------------------------------------------


def test_hooks_see_and_change_what_passes():
    model, log = net(), []
    plain = model(X)
    handles = [
        model[0].register_forward_pre_hook(lambda m, args: log.append(("pre", type(m).__name__, args[0].shape))),
        model[0].register_forward_hook(lambda m, args, output: log.append(("post", args[0].shape, output.shape))),
    ]
    np.testing.assert_array_equal(model(X), plain)
    assert log == [("pre", "Linear", (2, 3)), ("post", (2, 3), (2, 4))]
    doubled = model[2].register_forward_hook(lambda m, args, output: output * 2)
    np.testing.assert_array_equal(model(X), plain * 2)
    first = model[2].register_forward_hook(lambda m, args, output: output + 1, prepend=True)
    np.testing.assert_array_equal(model(X), (plain + 1) * 2)
    first.remove()
    first.remove()
    halved = model[2].register_forward_pre_hook(lambda m, args: args[0] * 0)
    np.testing.assert_allclose(model(X), np.broadcast_to(model[2].bias.numpy() * 2, (2, 2)))
    for handle in (*handles, doubled, halved):
        handle.remove()
    np.testing.assert_array_equal(model(X), plain)
    assert not any("forward" in vars(module) for module in model.modules())


def test_hooks_with_keywords():
    class Scaled(tc.nn.Module):
        def forward(self, x, scale=1.0):
            return x * scale

    model, seen = Scaled(), []
    with model.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": 3.0}), with_kwargs=True):
        with model.register_forward_hook(lambda m, args, kwargs, out: seen.append(kwargs), with_kwargs=True):
            assert model(np.ones(2), scale=2.0).tolist() == [3.0, 3.0] and seen == [{"scale": 3.0}]
        assert list(inspect.signature(model.forward).parameters) == ["x", "scale"]
    assert model(np.ones(2), scale=2.0).tolist() == [2.0, 2.0]


def test_hooks_of_a_layer_whose_parts_are_computed_together():
    """Layers that an encoder layer fuses are called one by one when they have hooks, and give the same."""
    layer = tc.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype(np.float32)
    plain, seen = layer(x), []
    handles = [m.register_forward_hook(lambda m, a, o, n=n: seen.append(n)) for n, m in layer.named_modules() if n]
    np.testing.assert_allclose(layer(x), plain, atol=1e-6)
    assert seen == ["self_attn.out_proj", "self_attn", "dropout1", "norm1", "linear1", "dropout", "linear2", "dropout2", "norm2"]
    block = tc.EncoderBlock(8, 2, 16)
    seen.clear()
    handles += [block.norm1.register_forward_hook(lambda m, a, o: seen.append("norm1"))]
    block(x)
    assert seen == ["norm1"]


def block():
    return tc.EncoderBlock(12, 2, 23, 0.3), ("dropout", "norm1", "norm2"), lambda m, x: m(x)


def encoder_layer():
    layer = tc.nn.TransformerEncoderLayer(12, 2, 23, 0.3, batch_first=True)
    return layer, ("dropout1", "dropout2", "norm1", "norm2"), lambda m, x: m(x)


def decoder_layer():
    layer = tc.nn.TransformerDecoderLayer(12, 2, 23, 0.3, batch_first=True)
    return layer, [f"{part}{i}" for part in ("dropout", "norm") for i in (1, 2, 3)], lambda m, x: m(x, x)


class OwnDropout(tc.nn.Dropout):
    def forward(self, input):
        return super().forward(input)


class OwnNorm(tc.nn.LayerNorm):
    def forward(self, input):
        return super().forward(input)


def own_part(part):
    """A part of another class that does the same."""
    if isinstance(part, tc.nn.Dropout):
        return OwnDropout(part.p)
    own = OwnNorm(part.normalized_shape, eps=part.eps)
    own.load_state_dict(part.state_dict())
    return own


def bits_of_a_step(module, call, x):
    """Those of the result, of all gradients, and what the generator draws next."""
    module.zero_grad()
    tc.manual_seed(1)
    y = call(module, x)
    y.sum().backward()
    return [y.detach().numpy().tobytes(), *(p.grad.numpy().tobytes() for p in module.parameters()), tc.randn(3).tolist()]


@pytest.mark.parametrize("make", [block, encoder_layer, decoder_layer])
@pytest.mark.parametrize("change", ["hook", "subclass"])
def test_dropout_that_a_norm_applies_has_the_bits_of_its_layer(make, change):
    """Dropout, residual connection and norm are one pass in train mode. A part with a hook or of another class is called, with the same masks."""
    tc.manual_seed(0)
    module, parts, call = make()
    x = tc.randn(3, 5, 12)
    seen = []

    def run():
        seen.clear()
        return bits_of_a_step(module, call, x)

    plain = run()
    for name in parts:
        part = getattr(module, name)
        if change == "hook":
            with part.register_forward_hook(lambda m, a, o, name=name: seen.append(name)):
                assert run() == plain, name
            assert set(seen) == {name}
        else:
            setattr(module, name, own_part(part))
            assert run() == plain, name
            setattr(module, name, part)
    module.eval()
    evaluated = run()
    for name in parts:
        with getattr(module, name).register_forward_hook(lambda m, a, o, name=name: seen.append(name)):
            assert run() == evaluated, name
        assert set(seen) == {name}


@pytest.mark.parametrize("make", [block, encoder_layer, decoder_layer])
def test_dropout_before_a_norm_is_not_an_op_of_its_own(make, monkeypatch):
    """Two or three masks are drawn by norms, that inside of the network by the product before it, but for the tutorial's block, whose activation
    comes after it."""
    module, parts, call = make()
    x, norms, products = tc.randn(3, 5, 12), sum(name.startswith("norm") for name in parts), int(make is not block)
    drawn = {"add_layer_norm": 0, "dropout": 0, "linear": 0}
    for name in drawn:
        original = getattr(tc._core, name)

        def counted(*args, name=name, original=original, **options):
            drawn[name] += name == "dropout" or bool(options.get("dropout"))
            return original(*args, **options)

        monkeypatch.setattr(tc._core, name, counted)
    call(module, x)
    assert drawn == {"add_layer_norm": norms, "dropout": 1 - products, "linear": products}
    module.eval()
    call(module, x)
    assert drawn == {"add_layer_norm": norms, "dropout": 1 - products, "linear": products}


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize(
    ("norm_first", "dtype"), [(False, "float32"), (True, "float32"), (False, "float64"), (True, "float64"), (True, "float16")]
)
@pytest.mark.parametrize("kind", ["encoder", "decoder", "block"])
def test_dropout_that_a_product_applies_has_the_bits_of_its_layer(kind, norm_first, activation, dtype):
    """And draws in its order. A part with a hook is called; halves of CPUs are rounded after dropout as well."""
    tc.manual_seed(0)
    if kind == "block":
        module, call = tc.EncoderBlock(12, 2, 23, 0.3, norm_first=norm_first, activation=activation), lambda m, x: m(x)
        parts = ["linear_net.3", "dropout"]
    else:
        make = tc.nn.TransformerEncoderLayer if kind == "encoder" else tc.nn.TransformerDecoderLayer
        module = make(12, 2, 23, 0.3, activation, batch_first=True, norm_first=norm_first)
        call = (lambda m, x: m(x)) if kind == "encoder" else lambda m, x: m(x, x)
        parts = ["linear1", "linear2", "dropout", "dropout2" if kind == "encoder" else "dropout3"]
    module, x, seen = module.to(getattr(tc, dtype)), tc.randn(3, 5, 12).to(getattr(tc, dtype)), []

    def run():
        seen.clear()
        return bits_of_a_step(module, call, x)

    plain = run()
    for name in parts if dtype != "float16" else [name for name in parts if "dropout" in name]:  # activations and norms round halves once
        with dict(module.named_modules())[name].register_forward_hook(lambda m, a, o, name=name: seen.append(name)):
            assert run() == plain, name
        assert set(seen) == {name}


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_an_activation_that_a_product_applies_has_the_bits_of_its_layer(activation, dropout):
    tc.manual_seed(0)
    block = tc.EncoderBlock(12, 2, 23, dropout, activation=activation)
    x = tc.randn(3, 5, 12)
    for training in (True, False):
        block.train(training)
        tc.manual_seed(1)
        (plain := block(x)).sum().backward()
        gradients = [p.grad.tolist() for p in block.parameters()]
        seen = []
        handles = [m.register_forward_hook(lambda m, a, o, n=n: seen.append(n)) for n, m in block.named_modules() if "linear_net" in n]
        block.zero_grad()
        tc.manual_seed(1)
        (alone := block(x)).sum().backward()
        assert seen == ["linear_net.0", "linear_net.1", "linear_net.2", "linear_net.3", "linear_net"]
        assert (alone.detach().numpy() == plain.detach().numpy()).all()
        assert [p.grad.tolist() for p in block.parameters()] == gradients
        for handle in handles:
            handle.remove()
        block.zero_grad()


def test_the_projection_of_queries_keys_and_values_with_a_hook_or_of_another_class_is_called(rng):
    class Doubled(tc.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    attention = tc.MultiheadAttention(12, 8, 2)
    x = tc.tensor(rng.standard_normal((3, 5, 12)).astype(np.float32))
    plain, seen = attention(x).detach().numpy(), []
    handle = attention.qkv_proj.register_forward_hook(lambda module, arguments, y: seen.append(y.shape))
    attention(x).sum().backward()
    np.testing.assert_allclose(attention(x).detach().numpy(), plain, rtol=1e-6, atol=1e-6)
    assert seen == [(3, 5, 24)] * 2
    handle.remove()
    other = tc.MultiheadAttention(12, 8, 2)
    other.load_state_dict({name: value * 2 if name.startswith("qkv") else value for name, value in attention.state_dict().items()})
    own = Doubled(12, 24)
    own.load_state_dict(attention.qkv_proj.state_dict())
    attention.qkv_proj = own
    np.testing.assert_allclose(attention(x).detach().numpy(), other(x).detach().numpy(), rtol=1e-6, atol=1e-6)


def test_an_activation_with_a_hook_is_called():
    layer, seen = tc.nn.TransformerEncoderLayer(8, 2, 16, activation=tc.nn.ReLU(), batch_first=True), []
    layer.activation.register_forward_hook(lambda m, a, o: seen.append(type(m).__name__))
    layer(np.zeros((2, 5, 8), np.float32))
    assert seen == ["ReLU"]


class Counting:
    """A hook that can be pickled."""

    count = 0

    def __call__(self, module, args, output):
        self.count += 1


def test_copies_have_hooks_of_their_own():
    model, hook = net(), Counting()
    model[0].register_forward_hook(hook)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        other(X)
        assert hook.count == 0 and next(iter(vars(other[0])["forward"].after.values()))[0].count == 1
        with tc.no_grad():
            other[0].weight.fill_(0.0)
        assert not np.array_equal(other(X), model(X))
        hook.count = 0
    assert repr(model) == repr(net()) and set(model.state_dict()) == set(net().state_dict())


def test_a_handle_is_copied_with_its_module():
    """In either order, as attributes of a program's own objects are."""
    for copied in (copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given))):
        for order in (1, -1):
            model, hook = net(), Counting()
            handle = model[0].register_forward_hook(hook)
            other, its_handle = copied([model, handle][::order])[::order]
            other(X)
            assert its_handle.id == handle.id and next(iter(vars(other[0])["forward"].after.values()))[0].count == 1
            its_handle.remove()
            assert "forward" not in vars(other[0]) and "forward" in vars(model[0]) and hook.count == 0


def test_copies_made_inside_a_block_have_none_of_its_hooks():
    """Such as the average of a model that a training keeps."""
    model = tc.EncoderBlock(8, 2, 16).eval()
    x = np.ones((1, 3, 8), np.float32)
    plain = model(x)
    with tc.nn.attention_maps(model) as maps:
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.copy(model)]
        copies[0](x)
    assert maps == {}
    for other in copies[:2]:
        assert all("forward" not in vars(part) for part in other.modules())
        np.testing.assert_array_equal(other(x), plain)
    assert maps == {} and all("forward" not in vars(part) for part in model.modules())


def test_a_shallow_copy_has_its_own_weights_and_hooks():
    """copy.copy shares the parameters until one is assigned, as in PyTorch; what it is called with reaches the copy."""
    layer, seen = tc.nn.Linear(3, 2), []
    handle = layer.register_forward_hook(lambda module, args, output: seen.append(module))
    other = copy.copy(layer)
    other._parameters = {name: tc.nn.Parameter(p.detach() * 0) for name, p in layer._parameters.items()}
    assert (other(X) == 0).all() and (layer(X) != 0).any() and [m is other for m in seen] == [True, False]
    handle.remove()
    assert "forward" not in vars(layer)
    layer(X), other(X)
    assert len(seen) == 3 and seen[2] is other


@pytest.mark.parametrize("kind", ["forward_pre", "forward", "full_backward", "full_backward_pre"])
def test_hooks_of_a_shallow_copy_are_its_own(kind):
    """A handle takes its hook from the module that it was registered on, and a hook that is added later is that module's alone."""
    layer, seen = tc.nn.Linear(3, 2), []

    def register(module, name):
        return getattr(module, f"register_{kind}_hook")(lambda *given: seen.append(name))

    def called(module):
        seen.clear()
        module(tc.tensor(X, requires_grad=True)).sum().backward()
        return sorted(seen)

    handle = register(layer, "first")
    other = copy.copy(layer)
    late = register(layer, "original's"), register(other, "copy's")
    assert called(layer) == ["first", "original's"] and called(other) == ["copy's", "first"]
    handle.remove()
    assert called(layer) == ["original's"] and called(other) == ["copy's", "first"]
    for added in late:
        added.remove()
    assert "forward" not in vars(layer) and called(other) == ["first"]


@pytest.mark.parametrize("kind", ["forward_pre", "forward", "full_backward", "full_backward_pre"])
def test_hooks_that_remove_themselves_run_once(kind):
    layer, seen = tc.nn.Linear(3, 2), []

    def add(name):
        def hook(*unused):
            seen.append(name)
            handle.remove()

        handle = getattr(layer, f"register_{kind}_hook")(hook)

    for name in ("first", "second"):
        add(name)
    for _ in range(2):
        layer(tc.ones(1, 3)).sum().backward()
    assert seen == ["first", "second"] and "forward" not in vars(layer)


def test_a_forward_of_an_object_is_back_after_its_hooks():
    layer, x = tc.nn.ReLU(), tc.ones(2)
    layer.forward = own = lambda x: x * 3.0
    handle = layer.register_forward_hook(lambda module, args, result: result + 1.0)
    assert layer(x).tolist() == [4.0, 4.0]
    handle.remove()
    assert layer.forward is own and layer(x).tolist() == [3.0, 3.0]


@pytest.mark.parametrize("library", ["torch", "transformer_c"])
def test_a_forward_that_is_set_after_hooks_is_called_under_them(library):
    lib = pytest.importorskip(library)
    layer, x = lib.nn.ReLU(), lib.ones(2)
    handle = layer.register_forward_hook(lambda module, args, result: result + 1)
    with pytest.raises(AttributeError):
        del layer.forward
    before = layer.forward
    layer.forward = lambda x: before(x) * 10
    assert layer(x).tolist() == [11, 11] and copy.copy(layer)(x).tolist() == [11, 11]
    second = layer.register_forward_hook(lambda module, args, result: result * 3)
    assert layer(x).tolist() == [33, 33]
    layer.forward = before
    assert layer(x).tolist() == [6, 6]
    layer.forward = own = lambda x: x * 100
    handle.remove()
    assert layer(x).tolist() == [300, 300]
    del layer.forward
    assert layer(x).tolist() == [3, 3]
    layer.forward = own
    second.remove()
    assert layer.forward is own and layer(x).tolist() == [100, 100]
    del layer.forward
    assert layer(x).tolist() == [1, 1] and "forward" not in vars(layer)


@pytest.mark.parametrize("kind", ["Linear", "LayerNorm", "Dropout", "ReLU", "GELU", "Sequential", "MultiheadAttention"])
@pytest.mark.parametrize("layer", ["EncoderBlock", "TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_a_forward_that_is_set_on_a_class_is_called(layer, kind, monkeypatch):
    """Not passed by, where several layers are computed in one pass."""
    nn, x = tc.nn, tc.rand(2, 3, 8)
    of_kind = tc.MultiheadAttention if (layer, kind) == ("EncoderBlock", "MultiheadAttention") else getattr(nn, kind)
    own, called = of_kind.forward, set()
    monkeypatch.setattr(of_kind, "forward", lambda self, *args, **options: (called.add(self), own(self, *args, **options))[1])
    for activation in ("relu", "gelu"):
        if layer == "EncoderBlock":
            model = tc.EncoderBlock(8, 2, 16, dropout=0.1, activation=activation)
        else:
            model = getattr(nn, layer)(8, 2, 16, 0.1, nn.ReLU() if activation == "relu" else nn.GELU(), batch_first=True)
        for training, recorded in itertools.product((True, False), repeat=2):
            called.clear()
            with tc.set_grad_enabled(recorded):
                model.train(training)(*[x] * (1 + (layer == "TransformerDecoderLayer")))
            assert called == {part for part in model.modules() if type(part) is of_kind}


@pytest.mark.parametrize("kind", ["forward_pre", "forward", "full_backward", "full_backward_pre"])
def test_a_hook_is_a_function(kind):
    layer = tc.nn.Linear(3, 2)
    with pytest.raises(TypeError, match="a hook of Linear must be a function, got 3"):
        getattr(layer, f"register_{kind}_hook")(3)
    assert "forward" not in vars(layer)


# ---- hooks of state dicts ----------------------------------------------------------------------------------------------------------


def saved_and_loaded(nn, make, log):
    """The keys of a state dict, and what loading one gave, of modules with hooks of all kinds."""

    def rename(module, state, prefix, metadata, strict, missing, unexpected, errors):
        log.append((type(module).__name__, prefix, metadata, sorted(state), strict, list(missing), list(unexpected), errors))
        if prefix + "old" in state:
            state[prefix + "bias"] = state.pop(prefix + "old")

    def loaded(module, keys):
        log.append((type(module).__name__, list(keys.missing_keys), list(keys.unexpected_keys), module.state_dict()["bias"].tolist()))
        if "2.weight" in keys.missing_keys:
            keys.missing_keys.remove("2.weight")

    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2))
    model.register_state_dict_pre_hook(lambda module, prefix, keep: log.append((prefix, keep)))
    model[0].register_state_dict_post_hook(
        lambda module, state, prefix, metadata: state.update({prefix + "old": state.pop(prefix + "bias")})
    )
    model._register_state_dict_hook(lambda module, state, prefix, metadata: {key: state[key] for key in sorted(state)})
    keys = list(model.state_dict(prefix="x.", keep_vars=True))
    handles = [model[0].register_load_state_dict_pre_hook(rename), model[2].register_load_state_dict_post_hook(loaded)]
    model[0]._register_load_state_dict_pre_hook(lambda state, prefix, *rest: log.append((prefix, len(rest))))
    model[0]._register_load_state_dict_pre_hook(lambda module, *given: log.append((module is model[0], len(given))), with_module=True)
    state = {"0.weight": make([[1.0], [2.0]]), "0.old": make([3.0, 4.0]), "2.bias": make([5.0, 6.0])}
    given = str(model.load_state_dict(state))
    for handle in handles:
        handle.remove()
    return keys, given, list(state), [p.tolist() for p in model.state_dict().values()][:2]


def test_hooks_of_state_dicts_are_pytorchs():
    torch = pytest.importorskip("torch")
    logs = [], []
    found = saved_and_loaded(tc.nn, tc.tensor, logs[0])
    expected = saved_and_loaded(torch.nn, torch.tensor, logs[1])
    assert found == expected and logs[0] == logs[1] and len(logs[0]) == 6


@pytest.mark.parametrize("assign", [False, True])
def test_keys_that_a_hook_leaves_take_the_values_back(assign):
    layer = tc.nn.Linear(1, 2)
    before, seen = {k: v.tolist() for k, v in layer.state_dict().items()}, []
    layer.register_load_state_dict_post_hook(lambda module, keys: seen.append(module.weight.tolist()))
    with pytest.raises(RuntimeError, match=r"(?s)does not fit Linear.*missing keys: 'bias'"):
        layer.load_state_dict({"weight": [[1.0], [2.0]]}, assign=assign)
    assert seen == [[[1.0], [2.0]]] and {k: v.tolist() for k, v in layer.state_dict().items()} == before
    layer.load_state_dict({"weight": [[1.0], [2.0]]}, strict=False, assign=assign)
    assert layer.weight.tolist() == [[1.0], [2.0]]
    with pytest.raises(ValueError, match="shapes"):
        layer.load_state_dict({"weight": [[1.0]]}, assign=assign)
    layer(tc.ones(1, 1)).sum().backward()
    before = {k: (v.tolist(), v.dtype, v.grad.tolist()) for k, v in layer.named_parameters()}
    layer.register_load_state_dict_post_hook(lambda module, keys: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        layer.load_state_dict({"weight": np.array([[3.0], [4.0]]), "bias": np.array([5.0, 6.0])}, assign=assign)
    assert {k: (v.tolist(), v.dtype, v.grad.tolist()) for k, v in layer.named_parameters()} == before


def versions_of(nn):
    """What hooks see of the versions of modules, in state dicts that are made and loaded."""

    class Second(nn.Linear):
        _version = 2

    model, log = nn.Sequential(nn.Sequential(Second(1, 2)), nn.BatchNorm1d(2)), []
    handle = model.register_state_dict_post_hook(lambda module, state, prefix, metadata: log.append((metadata, dict(state._metadata))))
    for module in (model, model[0][0], model[1]):
        module.register_load_state_dict_pre_hook(lambda module, state, prefix, metadata, *rest: log.append((prefix, metadata)))
    model.register_load_state_dict_pre_hook(lambda module, state, *rest: log.append(getattr(state, "_metadata", "none")))
    state = copy.deepcopy(model.state_dict())
    handle.remove()
    for given in (state, dict(state)):
        model.load_state_dict(given)
    return log, dict(model[0].state_dict(prefix="x.")._metadata), hasattr(model.state_dict(destination={}), "_metadata")


def test_hooks_of_state_dicts_see_the_versions_of_modules():
    expected = [("", {"version": 1}), ("0", {"version": 1}), ("0.0", {"version": 2}), ("1", {"version": 2})]
    found = versions_of(tc.nn)
    assert found[0][0] == ({"version": 1}, dict(expected)) and found[1:] == ({"x": {"version": 1}, "x.0": {"version": 2}}, False)
    torch = pytest.importorskip("torch")
    assert found == versions_of(torch.nn)


LISTED = ["state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post"]


@pytest.mark.parametrize("kind", LISTED)
def test_handles_of_hooks_of_state_dicts(kind):
    layer, seen = tc.nn.Linear(1, 1), []
    with pytest.raises(TypeError, match="a hook of Linear must be a function, got 3"):
        getattr(layer, f"register_{kind}_hook")(3)
    handle = getattr(layer, f"register_{kind}_hook")(lambda *given: seen.append(given[0]))
    copies = copy.copy(layer), copy.deepcopy(layer)
    handle.remove()
    handle.remove()
    for module in (layer, *copies):
        module.load_state_dict(module.state_dict())
    assert len(seen) == 2 and (kind == "state_dict_pre" or seen[0] is copies[0])


@pytest.mark.parametrize("kind", ["state_dict_post", "load_state_dict_post"])
def test_hooks_that_may_return_nothing(kind):
    layer = tc.nn.Linear(1, 1)
    state = layer.state_dict()
    getattr(layer, f"register_{kind}_hook")(lambda *given: {})
    with pytest.raises(RuntimeError, match=f"a hook of register_{kind}_hook.* returns None"):
        layer.load_state_dict(state) if "load" in kind else layer.state_dict()


# ---- backward hooks ----------------------------------------------------------------------------------------------------------------


def watched(nn, model, x, log, numbers):
    def note(module, given, got):
        log.append((type(module).__name__, [None if g is None else numbers(g) for g in given], [numbers(g) for g in got]))

    for part in (model, *model):
        part.register_full_backward_hook(note)
        part.register_full_backward_pre_hook(lambda module, got: note(module, (), got))
    (model(x) ** 2).sum().backward()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_backward_hooks_are_pytorchs(requires_grad):
    torch = pytest.importorskip("torch")
    model = net()
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    theirs.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in model.state_dict().items()})
    logs = [], []
    watched(tc.nn, model, tc.tensor(X, requires_grad=requires_grad), logs[0], lambda g: g.numpy())
    watched(torch.nn, theirs, torch.tensor(X, requires_grad=requires_grad), logs[1], lambda g: g.numpy())
    assert [name for name, *_ in logs[0]] == [name for name, *_ in logs[1]] and len(logs[0]) == 8
    for (_, given, got), (_, theirs_given, theirs_got) in zip(*logs, strict=True):
        assert [g is None for g in given] == [g is None for g in theirs_given]
        for a, b in zip([*given, *got], [*theirs_given, *theirs_got], strict=True):
            if a is not None:
                np.testing.assert_allclose(a, b, atol=1e-6)
    for p, q in zip(model.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), atol=1e-6)


def test_backward_hooks_change_gradients():
    model, x = net(), tc.tensor(X, requires_grad=True)
    model(x).sum().backward()
    plain = x.grad.numpy().copy()
    x.grad = None
    handle = model.register_full_backward_hook(lambda m, given, got: (given[0] * 2,))
    model(x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * plain)
    handle.remove()
    for factor, returned in ((3, lambda g: (g * 3,)), (-1, lambda g: -g)):
        x.grad = None
        with model.register_full_backward_pre_hook(lambda m, got, returned=returned: returned(got[0])):
            model(x).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), factor * plain, rtol=1e-6)
    with tc.no_grad():
        model.register_full_backward_hook(lambda *unused: pytest.fail("there is no backward"))
        model(x)


class Several(tc.nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return self.make(x)


@pytest.mark.parametrize(
    ("make", "gradients"),
    [
        (lambda x: x.max(1), [1.0, None]),
        (lambda x: {"a": x * 2, "b": [x.sum(), None, "text"]}, [1.0, 1.0, None, None]),
        (lambda x: (x, (x * 3,)), [1.0, 1.0]),
        (lambda x: [x * 2], [1.0]),
    ],
)
def test_backward_hooks_of_results_of_all_kinds(make, gradients):
    """Named pairs and dicts keep their type, and the hook sees the gradient of each Tensor in them."""
    model, seen = Several(make), []
    x = tc.tensor(X, requires_grad=True)
    model.register_full_backward_hook(lambda m, given, got: seen.append((given, got)))
    result, plain = model(x), make(tc.tensor(X))
    assert type(result) is type(plain)
    leaves = [t for t in tree(result) if isinstance(t, tc.Tensor) and t.requires_grad]
    sum(t.sum() for t in leaves).backward()
    (((given,), got),) = seen
    assert [None if g is None else float(g.numpy().max()) for g in got] == gradients
    again = tc.tensor(X, requires_grad=True)
    sum(t.sum() for t in tree(make(again)) if isinstance(t, tc.Tensor) and t.requires_grad).backward()
    np.testing.assert_array_equal(x.grad.numpy(), again.grad.numpy())
    np.testing.assert_array_equal(given.numpy(), x.grad.numpy())


def tree(value):
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else None
    return [value] if values is None else [leaf for v in values for leaf in tree(v)]


class Both(tc.nn.Module):
    def forward(self, x, y):
        return x * 2, y * 3


def test_a_backward_hook_is_called_once_for_several_arguments():
    model, calls = Both(), []
    model.register_full_backward_hook(lambda m, given, got: calls.append([[t.item() for t in part] for part in (given, got)]))
    x, y = (tc.ones(1, requires_grad=True) for _ in range(2))
    sum(model(x, y)).backward()
    assert calls == [[[2.0, 3.0], [1.0, 1.0]]] and [x.grad.item(), y.grad.item()] == [2.0, 3.0]


@pytest.mark.parametrize("returned", [(), (None, None)])
def test_a_backward_hook_returns_a_gradient_for_each_argument(returned):
    model = net()
    model.register_full_backward_hook(lambda m, given, got: returned)
    with pytest.raises(ValueError, match=f"hook of Sequential returned {len(returned)} gradients; expected 1"):
        model(tc.tensor(X, requires_grad=True)).sum().backward()


# ---- attention maps ------------------------------------------------------------------------------------------------------------------


def test_maps_of_an_encoder_and_decoder():
    x, y = (np.random.default_rng(i).normal(size=(2, 4 + i, 8)).astype(np.float32) for i in range(2))
    model = tc.nn.Transformer(8, 2, 1, 2, 16, batch_first=True).eval()
    plain = model(x, y)
    with tc.nn.attention_maps(model) as maps:
        np.testing.assert_allclose(model(x, y), plain, atol=1e-6)
    assert {name: m.shape for name, m in maps.items()} == {
        "encoder.layers.0.self_attn": (2, 2, 4, 4),
        "decoder.layers.0.self_attn": (2, 2, 5, 5),
        "decoder.layers.0.multihead_attn": (2, 2, 5, 4),
        "decoder.layers.1.self_attn": (2, 2, 5, 5),
        "decoder.layers.1.multihead_attn": (2, 2, 5, 4),
    }
    for found in maps.values():
        np.testing.assert_allclose(found.sum(-1), 1, atol=1e-6)
    layer = model.encoder.layers[0]
    expected = layer.self_attn(x, x, x, average_attn_weights=False)[1]
    np.testing.assert_allclose(maps["encoder.layers.0.self_attn"], expected, atol=1e-6)
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize("options", [{}, {"need_weights": False}, {"average_attn_weights": False}])
def test_callers_get_what_they_asked_for(options):
    attention = tc.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)
    plain = attention(x, x, x, **options)
    with tc.nn.attention_maps(attention) as maps:
        found = attention(x, x, x, **options)
    np.testing.assert_allclose(found[0], plain[0], atol=1e-6)
    assert (found[1] is None) == (plain[1] is None) and maps[""].shape == (2, 2, 4, 4)
    if plain[1] is not None:
        np.testing.assert_allclose(found[1], plain[1], atol=1e-6)


def test_maps_of_the_tutorials_encoder():
    encoder = tc.TransformerEncoder(2, input_dim=8, num_heads=2, dim_feedforward=16).eval()
    x = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)
    with tc.nn.attention_maps(encoder) as maps:
        encoder(x)
        expected = encoder.get_attention_maps(x)
    for found, wanted in zip(maps.values(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    with pytest.raises(ZeroDivisionError), tc.nn.attention_maps(encoder):
        _ = 1 / 0
    assert not any("forward" in vars(module) for module in encoder.modules())


def test_maps_of_the_tutorials_modules():
    from transformer_c.tutorials import godoy, keras_book, sensio

    x = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)
    cases = [
        (keras_book.TransformerEncoder(8, 16, 2), {"attention": (2, 2, 4, 4)}),
        (sensio.Model(8, 8, 4, 2, 2, "patches"), {f"tranformer.{i}.attn": (2, 2, 4, 4) for i in range(2)}),
        (godoy.EncoderLayer(n_heads=2, d_model=8, ff_units=16), {"self_attn_heads": (2, 2, 4, 4)}),
    ]
    for model, shapes in cases:
        plain = model.eval()(x)
        with tc.nn.attention_maps(model) as maps:
            found = model(x)
        np.testing.assert_allclose(found, plain, atol=1e-6)
        assert {name: m.shape for name, m in maps.items()} == shapes
        for found in maps.values():
            np.testing.assert_allclose(found.sum(-1), 1, atol=1e-6)


def test_maps_and_hooks_at_once():
    """Hooks see what the caller asked for; one that is registered inside the block stays; blocks are nested."""
    attention, seen = tc.nn.MultiheadAttention(8, 2, batch_first=True).eval(), []
    note = lambda m, args, output: seen.append(output[1])
    x = np.zeros((2, 4, 8), np.float32)
    handle = attention.register_forward_hook(note)
    with tc.nn.attention_maps(attention) as outer:
        with tc.nn.attention_maps(attention) as inner:
            attention(x, x, x, need_weights=False)
        outer.clear()
        attention(x, x, x, need_weights=False)
    assert seen == [None, None] and outer[""].shape == inner[""].shape == (2, 2, 4, 4)
    handle.remove()
    with tc.nn.attention_maps(attention):
        handle = attention.register_forward_hook(note)
    attention(x, x, x, need_weights=False)
    assert len(seen) == 3
    handle.remove()
    assert "forward" not in vars(attention)
    with pytest.raises(ValueError, match="Linear contains no attention layer"):
        tc.nn.attention_maps(tc.nn.Linear(2, 2))


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_forward_that_is_set_inside_a_block_stays_with_the_hooks(blocks):
    x, seen = np.zeros((2, 4, 8), np.float32), []
    for hooked in (False, True):
        attention = tc.nn.MultiheadAttention(8, 2, batch_first=True).eval()
        handle = attention.register_forward_hook(lambda m, args, output: seen.append(m)) if hooked else contextlib.nullcontext()
        around = tc.nn.attention_maps(attention)
        own = lambda *args, **options: type(attention).forward(attention, *args, **options)
        with handle:
            with contextlib.ExitStack() as stack:
                maps = [stack.enter_context(tc.nn.attention_maps(attention) if i else around) for i in range(blocks)]
                attention.forward = own
                attention(x, x, x)
            assert all("" in found for found in maps)
            attention(x, x, x)
            assert seen == [attention] * 2 * hooked
        assert attention.forward is own
        attention.forward = other = lambda *args, **options: None
        with around:
            pass
        assert attention.forward is other


# ---- summary -------------------------------------------------------------------------------------------------------------------------


def test_summary():
    model = net()
    model[0].requires_grad_(False)
    model.train()
    found = tc.summary(model, X)
    assert found.total_parameters == 26 and found.trainable_parameters == 10 and found.parameter_bytes == 104
    assert [(row.name, row.kind, row.parameters, row.shapes) for row in found.rows] == [
        ("", "Sequential", 26, [(2, 2)]), ("0", "Linear", 16, [(2, 4)]), ("1", "ReLU", 0, [(2, 4)]), ("2", "Linear", 10, [(2, 2)]),
    ]  # fmt: skip
    assert "26 parameters, 16 of them frozen, 104 bytes" in str(found) and all(m.training for m in model.modules())
    assert "output" not in str(tc.summary(model)) and len(tc.summary(model, depth=0).rows) == 1
    assert not any("forward" in vars(module) for module in model.modules())


def test_summary_of_models_with_several_arguments():
    model = tc.nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    x = np.zeros((2, 4, 8), np.float32)
    for given in ((x, x), {"src": x, "tgt": x}):
        rows = {row.name: row for row in tc.summary(model, given).rows}
        assert rows["encoder.layers.0.linear1"].shapes == [(2, 4, 16)] and rows["decoder.layers.0.norm3"].shapes == [(2, 4, 8)]
    twice = tc.nn.Sequential(*[tc.nn.Linear(3, 3)] * 2)
    assert "(2, 3) x 2" in str(tc.summary(twice, X)) and tc.summary(twice).total_parameters == 12
    with pytest.raises(TypeError, match=r"\(2, 3\) is a shape: summary\(module, np\.zeros\(\(2, 3\), np\.float32\)\)"):
        tc.summary(twice, (2, 3))
    with pytest.raises(TypeError, match="takes a module, not type"):
        tc.summary(tc.nn.Linear)


@pytest.mark.parametrize("fails", [False, True])
def test_what_looks_at_a_module_leaves_each_part_in_its_mode(fails):
    """A frozen part stays in eval mode inside of a model that trains; also where the call fails."""
    model = tc.nn.Sequential(tc.nn.Linear(4, 4), tc.nn.Dropout(0.5), tc.nn.Linear(4, 4))
    model[1].eval()
    with pytest.raises(ValueError) if fails else contextlib.nullcontext():
        tc.summary(model, np.zeros((2, 5 if fails else 4), np.float32))
    assert [part.training for part in model.modules()] == [True, True, False, True]


def test_a_dropout_that_was_taken_away_is_an_error():
    """As in PyTorch; nn.Identity() is none."""
    layer = tc.nn.TransformerEncoderLayer(8, 2, 16)
    x = np.zeros((1, 2, 8), np.float32)
    layer.dropout = None
    with pytest.raises(TypeError, match="NoneType"):
        layer(x)
    layer.dropout = tc.nn.Identity()
    assert layer(x).shape == (1, 2, 8)


def _keep(*unused):
    pass


def test_a_module_with_a_hook_of_its_state_can_be_pickled():
    module = tc.nn.Linear(2, 1)
    module.register_state_dict_post_hook(_keep)
    assert list(pickle.loads(pickle.dumps(module)).state_dict()) == ["weight", "bias"]
