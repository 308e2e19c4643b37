"""Every recorded op against central differences, in float64: at fixed shapes, and at ten drawn ones.

The tables of the extension are read: an op that has neither a case nor a reason to have none fails `test_every_op_has_a_case`, and one
that no case records fails `test_every_recorded_op_was_seen`. `--seed N` draws other shapes and values.
"""

import zlib
from pathlib import Path

import numpy as np
import op_lists
import pytest
import transformer_c as tc
from op_cases import of_all_ops
from transformer_c import Tensor, _core
from transformer_c.testing import gradcheck

OP = type(_core.relu)
OPS = {n: v for n, v in vars(_core).items() if isinstance(v, OP)}
METHODS = {n: v for n, v in vars(Tensor).items() if isinstance(v, OP)}


class Draw:
    """Lengths and values. With `lengths`, those in turn; without, from 1 to 5."""

    def __init__(self, rng, lengths=None):
        self.rng, self.lengths, self.taken = rng, lengths, 0

    def length(self, least=1):
        if self.lengths is None:
            return int(self.rng.integers(least, 6))
        self.taken += 1
        return max(least, self.lengths[self.taken % len(self.lengths)])

    def shape(self, ndim):
        return tuple(self.length() for _ in range(ndim))

    def normal(self, *shape):
        return self.rng.standard_normal(shape)

    def apart(self, *shape, low=-2.0, high=2.0):
        """No two closer than a step, and none close to 0: a difference does not cross a kink or change an order."""
        n = int(np.prod(shape))
        steps = np.linspace(low, high, n + 1)[:n] + (high - low) / (n + 1) * self.rng.uniform(0.3, 0.7)
        return self.rng.permutation(np.where(np.abs(steps) < 1e-3, 2e-3, steps)).reshape(shape)

    def positive(self, *shape):
        return self.rng.uniform(0.5, 2.0, shape)

    def pair(self, values):
        """Two arrays of shapes that broadcast."""
        m, n = self.shape(2)
        shapes = [((m, n), (n,)), ((m, 1), (1, n)), ((m, n), (m, n)), ((n,), ())][int(self.rng.integers(4))]
        return [values(*s) for s in shapes]


def values(f, *arrays, **gradcheck_options):
    return f, list(arrays), gradcheck_options


def unary(name, domain):
    return lambda d: values(getattr(_core, name), domain(d, *d.shape(2)))


def anywhere(d, *shape):
    return d.normal(*shape)


def apart(d, *shape):
    return d.apart(*shape)


def positive(d, *shape):
    return d.positive(*shape)


def binary(name, domain):
    def case(d):
        return values(getattr(_core, name), *d.pair(lambda *s: domain(d, *s)))

    return case


def with_parameter(name):
    return lambda d: values(lambda x: getattr(_core, name)(x, 0.3), d.apart(*d.shape(2)))


def extreme(name):
    def case(d):
        m, n = d.shape(2)
        both = d.apart(2, m, n)
        return values(getattr(_core, name), both[0], both[1])

    return case


def base_and_exponent(d):
    a, b = d.pair(d.positive)
    return values(_core.pow, a, b - 1.2)


def number_first(d):
    return values(lambda x: 2.0 - x / 3.0 + 1.5 * x + 2.0**x + x**3 + 1.0 / x, d.positive(*d.shape(2)))


def softplus(d):
    """Both signs of beta, and none close to 0, where the gradient grows as 1 / beta^2 and the differences lose it."""
    return values(_core.softplus, *d.pair(lambda *s: d.positive(*s) * d.rng.choice([-1, 1], s)))


def remainder(d):
    a, b = d.pair(d.positive)
    a = np.broadcast_to(a, np.broadcast_shapes(a.shape, b.shape)) * 3
    a = np.where(np.abs(a / b - np.round(a / b)) < 0.01, a + 0.1 * b, a)  # not at a jump
    return values(_core.remainder, a, b)


def reduction(name, **options):
    def case(d):
        x = d.apart(*d.shape(3))
        axis = [None, 0, -1, (0, 2)][int(d.rng.integers(4))]
        return values(lambda x: getattr(_core, name)(x, axis, bool(x.shape[0] % 2), **options), x)

    return case


def variance(d):
    m = d.length(2)
    return values(lambda x: _core.var(x, (0, 1), correction=m % 2), d.normal(m, d.length(2), d.length()))


def layer_norm(d):
    n, m, c = d.length(), d.length(), d.length(3)
    return values(lambda x, w, b: _core.layer_norm(x, (c,), w, b), d.normal(n, m, c), d.normal(c), d.normal(c))


def layer_norm_over_two_axes(d):
    n, m, c = d.length(), d.length(), d.length(3)
    return values(lambda x: _core.layer_norm(x, (m, c), None, None, 1e-3), d.normal(n, m, c))


def add_layer_norm(**dropout):
    def case(d):
        n, c = d.length(), d.length(3)
        shapes = ((n, c), (n, c), (c,), (c,))
        return values(lambda x, r, w, b: _core.add_layer_norm(x, r, (c,), w, b, **dropout), *(d.normal(*s) for s in shapes))

    return case


def linear(activation=None, residual=False, **dropout):
    def case(d):
        n, k, m = d.shape(3)
        shapes = [(n, k), (m, k), (m,)] + [(n, m)] * residual
        arrays = [d.apart(*s) for s in shapes]
        return values(lambda x, w, b, *r: _core.linear(x, w, b, activation, *r, **dropout), *arrays)

    return case


def qkv_projection(packing):
    def case(d):
        b, t, c, h, size = *d.shape(3), d.length(), d.length()
        e = h * size
        return values(
            lambda x, w, b: _core.qkv_projection(x, w, b, h, packing), d.normal(b, t, c), d.normal(3 * e, c), d.normal(3 * e), atol=1e-6
        )

    return case


def heads(d):
    b, h, tq, tk, size, sv = d.shape(6)
    return [d.normal(b, h, tq, size), d.normal(b, h, tk, size), d.normal(b, h, tk, sv)]


def attention(results=3, **options):
    def case(d):
        q, k, v = heads(d)
        g = d.length(2)
        q = d.normal(q.shape[0], q.shape[1] * g, *q.shape[2:])
        bias = d.normal(q.shape[1], 1, k.shape[2])
        mask = d.normal(q.shape[2], k.shape[2])

        def f(q, k, v, bias, mask):
            kw = {"bias": bias, "attn_mask": mask, "enable_gqa": True, "empty_rows": "uniform", **options}
            return _core.attention(q, k, v, return_attention=True, return_logsumexp=True, **kw)[:results]

        return values(f, q, k, v, bias, mask)

    return case


def cross_entropy(reduction, rank):
    def case(d):
        n, c, *more = d.length(), d.length(2), *d.shape(rank - 2)
        target = d.rng.integers(0, c, (n, *more))
        weight = d.positive(c)
        return values(
            lambda x: _core.cross_entropy(x, target, weight, reduction=reduction, label_smoothing=0.1, ignore_index=-1),
            d.normal(n, c, *more),
        )

    return case


def cross_entropy_of_probabilities(d):
    n, c = d.length(), d.length(2)
    return values(lambda x, p, w: _core.cross_entropy(x, p, w, label_smoothing=0.2), d.normal(n, c), d.positive(n, c), d.positive(c))


def binary_cross_entropy(name, domain, *weights):
    def case(d):
        n, m = d.shape(2)
        constants = [d.positive(*s) for s in [(n, m), (m,)][: len(weights)]]
        return values(
            lambda x, t: getattr(_core, name)(x, t, reduction="none", **dict(zip(weights, constants, strict=True))),
            domain(d, n, m),
            d.rng.random((n, m)),
        )

    return case


def mse(reduction):
    def case(d):
        n, m = d.shape(2)
        return values(lambda x, t: _core.mse_loss(x, t, reduction), d.normal(n, m), d.normal(n, m))

    return case


def embedding(d):
    rows, size = d.length(2), d.length()
    indices = d.rng.integers(0, rows, d.shape(2))
    return values(lambda w: _core.embedding(indices, w), d.normal(rows, size))


def matmul(d):
    m, k, n, b = d.shape(4)
    shapes = [((m, k), (k, n)), ((b, m, k), (k, n)), ((k,), (b, k, n)), ((b, 1, m, k), (m, k, n)), ((k,), (k,))]
    return values(_core.matmul, *(d.normal(*s) for s in shapes[int(d.rng.integers(5))]))


def where(d):
    m, n = d.shape(2)
    condition = d.rng.random((m, n)) < 0.5
    return values(lambda a, b: _core.where(condition, a, b), d.normal(m, n), d.normal(n))


def masked_fill(d):
    m, n = d.shape(2)
    mask = d.rng.random(n) < 0.5
    return values(lambda x: _core.masked_fill(x, mask, 3.0), d.normal(m, n))


def view(f, ndim=3):
    return lambda d: values(f, d.normal(*d.shape(ndim)))


def cast(f):
    """Numbers that every dtype can represent, and a step that it can represent as well."""
    return lambda d: values(lambda x: f(x).double(), d.rng.integers(-8, 9, d.shape(2)) / 4.0, eps=0.5)


def write(f):
    """Writes into a copy, whose old values are overwritten there."""

    def case(d):
        m, n = d.shape(2)

        def g(x, y):
            z = x * 1.0
            f(z, y)
            return z * x, z

        return values(g, d.normal(m, n), d.normal(n))

    return case


def set_items(z, y):
    z[:1] = y
    z[..., -1] = 2.0


def custom(d):
    cube = tc.custom_op(lambda x: x**3, lambda dy, x: 3 * x**2 * dy)
    return values(cube, d.normal(*d.shape(2)))


def indexed(f):
    return lambda d: values(f, d.normal(*d.shape(3)))


# op: a function of a Draw that gives f, its inputs, and options of gradcheck; or several
CASES = {
    **{n: unary(n, anywhere) for n in ("neg", "square", "exp", "sin", "cos", "tanh", "sigmoid", "erf", "gelu", "gelu_tanh", "silu")},
    **{n: unary(n, apart) for n in ("abs", "sign", "relu", "floor", "ceil", "round", "trunc", "relu6", "hardsigmoid", "hardswish")},
    **{n: [with_parameter(n), binary(n, positive)] for n in ("leaky_relu", "elu")},
    **{n: unary(n, positive) for n in ("reciprocal", "sqrt", "rsqrt", "log", "log2", "log10", "log1p")},
    **{n: binary(n, anywhere) for n in ("add", "sub", "mul", "swiglu", "geglu")},
    "softplus": softplus,
    "div": [binary("div", positive), number_first],
    "pow": base_and_exponent,
    "maximum": extreme("maximum"),
    "minimum": extreme("minimum"),
    "clamp_min": extreme("clamp_min"),
    "clamp_max": extreme("clamp_max"),
    "remainder": remainder,
    "where": where,
    "clamp": lambda d: values(lambda x: _core.clamp(x, -0.5, 0.4), d.apart(*d.shape(2))),
    "masked_fill": masked_fill,
    **{n: reduction(n) for n in ("sum", "mean", "max", "min")},
    "var": variance,
    "softmax": lambda d: values(lambda x: _core.softmax(x, 1), d.normal(*d.shape(3))),
    "log_softmax": lambda d: values(lambda x: _core.log_softmax(x, -1), d.normal(*d.shape(2))),
    "layer_norm": [layer_norm, layer_norm_over_two_axes],
    "add_layer_norm": [add_layer_norm(), add_layer_norm(dropout=0.4, seed=3, call=5)],
    "linear": [
        *(linear(), linear("relu"), linear("gelu"), linear("gelu_tanh"), linear("gelu", residual=True)),
        *(linear(name, name != "relu", dropout=0.4, seed=3, call=5) for name in (None, "relu", "gelu")),
    ],
    "matmul": matmul,
    "qkv_projection": [qkv_projection("head"), qkv_projection("qkv")],
    "scaled_dot_product": lambda d: values(_core.scaled_dot_product, *heads(d)),
    "scaled_dot_product_values": lambda d: values(_core.scaled_dot_product_values, *heads(d)),
    "attention": [
        attention(),
        attention(softcap=1.5, scale=0.4),
        attention(2, is_causal=True, window=(1, None), causal_offset=1, dropout=0.3, seed=1, call=2),
    ],
    "dropout": lambda d: values(lambda x: _core.dropout(x, 0.4, 3, 5), d.normal(*d.shape(2))),
    "embedding": embedding,
    "global_max_pool1d": lambda d: values(_core.global_max_pool1d, d.apart(*d.shape(3))),
    "cross_entropy": [cross_entropy("mean", 3), cross_entropy("none", 2), cross_entropy_of_probabilities],
    "mse_loss": [mse("mean"), mse("none")],
    "binary_cross_entropy": binary_cross_entropy("binary_cross_entropy", lambda d, *s: d.rng.uniform(0.1, 0.9, s), "weight"),
    "binary_cross_entropy_with_logits": binary_cross_entropy("binary_cross_entropy_with_logits", anywhere, "weight", "pos_weight"),
    "cat": lambda d: values(lambda x, y: _core.cat([x, y * 2.0], 1), *(d.normal(3, d.length()) for _ in range(2))),
    "stack": lambda d: (lambda s: values(lambda x, y: _core.stack([x, y * 2.0], -1), d.normal(*s), d.normal(*s)))(d.shape(2)),
    "triu": view(lambda x: _core.triu(x, 1)),
    "tril": view(lambda x: _core.tril(x, -1)),
    "record_custom": custom,
    "reshape": view(lambda x: x.reshape(-1, x.shape[0])),
    "view": view(lambda x: x.view(-1)),
    "squeeze": view(lambda x: x[None].squeeze(0)),
    "unsqueeze": view(lambda x: x.unsqueeze(1)),
    "permute": view(lambda x: x.permute(2, 0, 1)),
    "transpose": view(lambda x: x.transpose(0, -1)),
    "swapaxes": view(lambda x: x.swapaxes(1, 2)),
    "expand": view(lambda x: x[:, None].expand(2, -1, 3, -1, -1)),
    "flip": view(lambda x: x.flip(0, 2)),
    "unfold": lambda d: values(lambda x: x.unfold(1, 2, 1), d.normal(d.length(), d.length(2), d.length())),
    "flatten": view(lambda x: x.flatten(1)),
    "chunk": view(lambda x: x.chunk(2, 1)),
    "split": view(lambda x: x.split([1, x.shape[2] - 1], 2)),
    "unbind": view(lambda x: x.unbind(1)),
    "narrow": view(lambda x: x.narrow(1, x.shape[1] - 1, 1)),
    "contiguous": view(lambda x: x.transpose(0, 1).contiguous()),
    "clone": view(lambda x: x.clone()),
    "float": cast(lambda x: x.float()),
    "double": view(lambda x: x.double()),
    "half": cast(lambda x: x.half()),
    "bfloat16": cast(lambda x: x.bfloat16()),
    "type_as": cast(lambda x: x.type_as(tc.zeros(1))),
    "to": cast(lambda x: x.to(tc.float16)),
    "cpu": view(lambda x: x.cpu()),
    "copy_": write(lambda z, y: z.copy_(y)),
    "zero_": write(lambda z, y: z.zero_()),
    "fill_": write(lambda z, y: z.fill_(y.sum())),
    "masked_fill_": write(lambda z, y: z.masked_fill_(np.arange(len(y)) % 2 == 0, y.sum())),
    "scatter_into": write(lambda z, y: _core.scatter_into(z, 0, np.zeros((1, len(y)), int), y[None])),
    "item assignment": write(set_items),
    "item": [
        indexed(lambda x: x[..., ::-1, 0]),
        indexed(lambda x: x[[0, -1, 0]]),
        indexed(lambda x: x[:, [0, -1], np.array([[0], [-1]])]),
        indexed(lambda x: x[np.arange(x.shape[0]) % 2 == 0]),
        indexed(lambda x: x[None, ..., 0]),
    ],
}
CASES |= {op: [lambda d, case=case: values(*case(d)) for case in cases] for op, cases in of_all_ops("GRADCHECK").items()}
WITHOUT_GRADIENT = {
    "their values jump": "floor_divide eq ne lt le gt ge logical_and logical_or logical_xor any all argmax argmin argsort nonzero one_hot",
    "integers and bools": "bitwise_and bitwise_or bitwise_xor long int bool",
    "they make tensors or read numbers": "copied_with_memory arange spaced empty full as_tensor as_argument from_dlpack_capsule size dim numel nelement data_ptr stride is_contiguous",
    "it rounds to halves": "cast_parameter",
    "where nothing is recorded": "sum_of_squares",
    "they leave the tape": "detach numpy tolist",
    "they are the tape's own": "backward backward_to backward_watched gradients requires_grad_ set_data set_grad_slot gradient_hook take_array assign_all set_all_data",
    "optimizers, after the backward": "sgd_step adam_step rmsprop_step gradient_norm gradient_clip gradient_scale",
    "another device; the copy back is the same op": "cuda",
    "on GPUs alone, against the reference in tests/gpu_emulation": "encoder_block",
    "the state of a GPU": "cuda_code_for cuda_describe cuda_device_count cuda_empty_cache cuda_end_stream cuda_memory_stats cuda_new_stream cuda_set_stream cuda_synchronize",
    "graphs of a GPU": "cuda_graph_begin cuda_graph_check cuda_graph_collect cuda_graph_collected cuda_graph_draw cuda_graph_undraw cuda_graph_end cuda_graph_give_up cuda_graph_note "
    "cuda_graph_start cuda_graph_use cuda_is_capturing",
}


ALL = {
    (name if not isinstance(entry, list) else f"{name}-{n}"): case
    for name, entry in CASES.items()
    for n, case in enumerate(entry if isinstance(entry, list) else [entry])
}


def fixed():
    return Draw(np.random.default_rng(0), lengths=[2, 3, 4, 3, 2])


def check(case, draw):
    f, inputs, options = case(draw)
    assert gradcheck(f, inputs, **{"atol": 1e-6, "rtol": 1e-5, **options})


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_gradients(case):
    check(case, fixed())


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_gradients_at_random_shapes(case, request):
    given = request.config.getoption("--seed")
    seed = zlib.crc32(request.node.name.encode()) if given is None else given
    for n in range(10):
        print(f"--seed {seed}, draw {n}")  # pytest shows it with a failure
        check(case, Draw(np.random.default_rng([seed, n])))


def test_no_case_leaves_memory():
    """What a forward and its backward take is given back with the results."""
    for name, case in ALL.items():
        f, inputs, _ = case(fixed())
        leaves = [tc.tensor(x, requires_grad=True) for x in inputs]
        used = []
        for _ in range(4):
            results = f(*leaves)
            for r in results if isinstance(results, tuple) else (results,):
                r.sum().backward(retain_graph=True)
            results = r = None
            for x in leaves:
                x.grad = None
            used.append(_core.memory_stats()["in_use"])
        assert used[1] == used[3], name


def test_every_op_has_a_case():
    apart = set(" ".join(WITHOUT_GRADIENT.values()).split())
    raw = {n for n in OPS if n.endswith(("_forward", "_backward"))}  # without the tape: test_ops.py
    named = {*OPS, *METHODS} - raw
    assert sorted(named - {*CASES} - apart) == [], "ops without a case and without a reason"
    assert sorted(({*CASES} | apart) - named - {"item assignment"}) == [], "cases of no op"
    assert not {*CASES} & apart


def test_every_recorded_op_was_seen():
    """The names of all tc_op in the sources."""
    names = set(op_lists.recorded(Path(__file__).parents[2]))
    assert len(names) > 50
    seen = set()
    for case in ALL.values():
        f, inputs, _ = case(fixed())
        results = f(*(tc.tensor(x, requires_grad=True) for x in inputs))
        seen.update(r.grad_fn for r in (results if isinstance(results, tuple) else (results,)))
    assert sorted(names - seen) == [], "recorded ops that no case above uses"


def test_results_that_jump_have_no_history(rng):
    x, y = (tc.tensor(rng.standard_normal((2, 3)), requires_grad=True) for _ in range(2))
    for name in ("floor_divide", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"):
        assert not getattr(_core, name)(x, y).requires_grad, name
    for name in ("any", "all", "argmax", "argmin", "argsort", "long", "int", "bool", "detach"):
        assert not getattr(x, name)().requires_grad, name


def test_gradcheck_says_what_is_no_tensor_and_takes_no_elements():
    for f, kind in ((lambda x: x.detach().numpy() ** 2, "ndarray"), (lambda x: (x * 2, 3.0), "float")):
        with pytest.raises(TypeError, match=f"f returned a value of type {kind} as output"):
            gradcheck(f, np.ones(2))
    for nothing in (None, (), (None, None)):
        with pytest.raises(TypeError, match=r"f returned .*; expected a Tensor, or a tuple with one"):
            gradcheck(lambda x: nothing, np.ones(2))
    assert gradcheck(lambda x: (x * 2, None, x.argmax()), np.arange(2.0))
    assert gradcheck(lambda x, y: (x * 2, y.sum(), x.sum() * y), (np.ones((0, 3)), np.ones(2)))


def of_results(f, leaves):
    """The results of f for results of other ops, and what is gone back from, which saved none of them."""
    between = [leaf * 1.0 for leaf in leaves]
    results = f(*between)
    results = [r for r in (results if isinstance(results, tuple) else (results,)) if r.requires_grad]
    return between, results, sum((r * tc.tensor(np.linspace(1, 2, r.numel()).reshape(r.shape))).sum() for r in results)


def overwrite(x, recorded):
    with tc.set_grad_enabled(recorded):
        x.copy_(tc.tensor(np.linspace(-3, 3, x.numel()).reshape(x.shape)))


def gradients_after_a_write(case, place, recorded):
    """Of the leaves, one of the op's arguments or results overwritten; None where it is refused, place -1: nothing is written."""
    f, inputs, _ = case(fixed())
    leaves = [tc.tensor(x, requires_grad=True) for x in inputs]
    between, results, total = of_results(f, leaves)
    try:
        if place >= 0:
            overwrite([*between, *results][place], recorded)
        total.backward()
    except (ValueError, RuntimeError) as error:
        assert "was written in place after it was saved" in str(error) or "repeats its elements" in str(error)
        return None
    return [leaf.grad if leaf.grad is None else leaf.grad.numpy() for leaf in leaves]


def check_writes(case, recorded):
    """How many are refused; the others do no harm."""
    f, inputs, _ = case(fixed())
    between, results, _ = of_results(f, [tc.tensor(x, requires_grad=True) for x in inputs])
    expected, refused = gradients_after_a_write(case, -1, recorded), 0
    for place in range(len(between) + len(results)):
        found = gradients_after_a_write(case, place, recorded)
        refused += found is None
        for a, b in zip(found or [], expected, strict=found is not None):
            np.testing.assert_array_equal(a, b)
    return refused


@pytest.mark.parametrize("recorded", [False, True], ids=["without grad", "recorded"])
@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_a_write_before_the_backward_is_refused_or_does_no_harm(case, recorded):
    """To each argument and each result of the op."""
    check_writes(case, recorded)


def test_writes_are_refused_and_found():
    assert [check_writes(ALL[name], False) for name in ("add", "mul", "exp", "clamp")] == [0, 2, 1, 2]

    def reads_later(x):  # an argument that is not saved
        memory = x.detach()
        return tc.custom_op(lambda x: x**2, lambda dy, x: tc.tensor(dy) * memory * 2.0)(x + 0.0)

    with pytest.raises(AssertionError, match="not equal"):
        check_writes(lambda d: values(reads_later, d.normal(3)), False)
