"""docs/memory.md: the bytes that the tape keeps are those that the allocator counts."""

import re
from pathlib import Path

import numpy as np
import op_lists
import pytest
import transformer_c as tc
from op_cases import of_all_ops
from transformer_c import _core

ROOT = Path(__file__).parents[1]
SLACK = 8 << 10  # nodes and small blocks
# Powers of two: the allocator's blocks have just these sizes.
SIZES = {"n": 1 << 17, "N": 512, "C": 256, "M": 256, "K": 512, "B": 2, "T": 256, "E": 128, "H": 4, "D": 32, "V": 1024}


def table():
    """{first cell: formula}"""
    rows = re.findall(r"^\| (.*) \| [^|]* \| `([^`|]*)` \|$", (ROOT / "docs/memory.md").read_text(), re.M)
    assert len(rows) > 30
    return dict(rows)


TABLE = table()


def shape(text):
    return tuple(eval(part, {}, SIZES) for part in text.replace("x", "*").split(","))


def kept_bytes(f, shapes, dtype=np.float32, **constants):
    """Bytes in use because of f(*inputs, **constants) and its graph, when nobody else refers to inputs and results."""
    rng = np.random.default_rng(0)
    leaves = [tc.tensor(rng.uniform(0.5, 1.0, shape(s)).astype(dtype), requires_grad=True) for s in shapes]
    before = _core.memory_stats()["in_use"]
    made = {name: tc.tensor(make(rng)) for name, make in constants.items()}
    results = f(*[leaf.clone() for leaf in leaves], **made)
    del made
    results = results if isinstance(results, (tuple, list)) else [results]
    end = [r.sum() for r in results if r is not None]  # keeps nothing itself
    assert all(e.requires_grad for e in end)
    del results
    return _core.memory_stats()["in_use"] - before


def each(names, shapes):
    return [(lambda *a, name=name: getattr(_core, name)(*a), shapes) for name in names]


def attention(returned=1, **kw):
    def f(q, k, v, **made):
        return [r for r in _core.attention(q, k, v, **kw, **made)[:returned] if r is not None]

    return f


def assigned(x):
    y = tc.zeros(x.shape)
    y[:] = x
    return y


def classes(rng):
    return rng.integers(0, 200, SIZES["N"])


def boolean(*size):
    return lambda rng: rng.random(size) < 0.5


X, ROWS, HEADS = ["n"], ["N,C"], ["B,H,T,D"] * 3
LINEAR = ["M,K", "N,K", "N"]
T, n = SIZES["T"], SIZES["n"]


def of_functions():
    """Rows of functions of elements, the rows of unary.def and binary.def, have the names of what is called."""
    known = {"x (n)": (set(op_lists.functions(ROOT, "unary")), X), "a (n) and b (n)": (set(op_lists.functions(ROOT, "binary")), X * 2)}
    found = {}
    for row in TABLE:
        first, _, arguments = row.partition(" of ")
        functions, shapes = known.get(arguments, (set(), X))
        names = re.findall(r"`(\w+)`", first)
        if names and functions.issuperset(names):
            found[row] = each(names, shapes)
    return found


# first cell of a row: cases (f, shapes of the inputs, constants)
CASES = {
    **of_functions(),
    "`mul` of a (n) and a number": [(lambda x: x * 3.0, X)],
    "`where` of condition (n), a (n), b (n)": [(lambda a, b, condition: _core.where(condition, a, b), X * 2, {"condition": boolean(n)})],
    "`clamp` of x (n) between two numbers": [(lambda x: _core.clamp(x, -1.0, 1.0), X)],
    "`masked_fill` of x (n), mask (n)": [(lambda x, mask: x.masked_fill(mask, 0.0), X, {"mask": boolean(n)})],
    "`triangle` of x (n)": [(lambda x: x.triu(), ROWS), (lambda x: x.tril(), ROWS)],
    "`dropout` of x (n)": [(lambda x: _core.dropout(x, 0.5, 1, 2), X)],
    "`sum`, `mean` of x (N, C) over C": [(lambda x: x.sum(-1), ROWS), (lambda x: x.mean(-1), ROWS)],
    "`max`, `min` of x (N, C) over C": [(lambda x: x.max(axis=-1), ROWS), (lambda x: x.min(axis=-1), ROWS)],
    "`max`, `min` of x (N, C) along dim": [(lambda x: x.max(-1).values, ROWS), (lambda x: x.min(-1).values, ROWS)],
    "`var` of x (N, C) over C": [(lambda x: x.var(-1), ROWS)],
    "`softmax`, `log_softmax` of x (n)": each(["softmax", "log_softmax"], X),
    "`layer_norm` of x (N, C) with weight and bias": [(lambda x, w, b: _core.layer_norm(x, (x.shape[1],), w, b), ["N,C", "C", "C"])],
    "`add_layer_norm` of x, residual (N, C) with weight and bias": [
        (lambda x, r, w, b: _core.add_layer_norm(x, r, (x.shape[1],), w, b), ["N,C", "N,C", "C", "C"]),
        (lambda x, r, w, b: _core.add_layer_norm(x, r, (x.shape[1],), w, b, dropout=0.5, seed=1, call=2), ["N,C", "N,C", "C", "C"]),
    ],
    "`linear` of x (M, K), weight (N, K), bias": [(_core.linear, LINEAR)],
    "`linear` with ReLU": [(lambda x, w, b: _core.linear(x, w, b, "relu"), LINEAR)],
    "`linear` with GELU, or with an activation and a residual": [
        (lambda x, w, b: _core.linear(x, w, b, "gelu"), LINEAR),
        (lambda x, w, b, r: _core.linear(x, w, b, "relu", r), [*LINEAR, "M,N"]),
        (lambda x, w, b, r: _core.linear(x, w, b, "gelu_tanh", r), [*LINEAR, "M,N"]),
    ],
    "`linear` with dropout": [
        (lambda x, w, b: _core.linear(x, w, b, "relu", dropout=0.3, seed=1, call=2), LINEAR),
        (lambda x, w, b, r: _core.linear(x, w, b, "gelu", r, dropout=0.3, seed=1, call=2), [*LINEAR, "M,N"]),
    ],
    "`qkv_projection` of x (B, T, C), weight (3 E, C)": [
        (lambda x, w, b: _core.qkv_projection(x, w, b, 4, packing), ["B,T,C", "3*E,C", "3*E"]) for packing in ("head", "qkv")
    ],
    "`matmul` of a (M, K) and b (K, N)": [(_core.matmul, ["M,K", "K,N"])],
    "`attention` of q (B, H, T, D), k, v": [
        (attention(), HEADS),
        (attention(is_causal=True, window=(3, None), softcap=2.0, dropout=0.5, seed=1, call=2, return_logsumexp=True), HEADS),
        (_core.scaled_dot_product_values, HEADS),
    ],
    "`attention` with a boolean mask (T, T)": [(attention(), HEADS, {"attn_mask": boolean(T, T)})],
    "`attention` with a bias (H, T, T)": [(lambda q, k, v, b: attention(bias=b)(q, k, v), [*HEADS, "H,T,T"])],
    "`attention` with the map returned": [
        (attention(2, return_attention=True), HEADS),
        (_core.scaled_dot_product, HEADS),
    ],
    "`embedding` of indices (N), weight (V, C)": [(lambda w, i: _core.embedding(i, w), ["V,C"], {"i": classes})],
    "`cross_entropy` of input (N, C), classes (N)": [(lambda x, t: _core.cross_entropy(x, t), ROWS, {"t": classes})],
    "`mse_loss` of input, target (n)": [(_core.mse_loss, X * 2)],
    "`binary_cross_entropy`, `binary_cross_entropy_with_logits` of input, target (n)": each(
        ["binary_cross_entropy", "binary_cross_entropy_with_logits"], X * 2
    ),
    "`binary_cross_entropy_with_logits` with weight and pos_weight": [
        (
            lambda x, t, w, p: _core.binary_cross_entropy_with_logits(x, t, w, p),
            X * 2,
            {k: lambda rng: np.ones(1, np.float32) for k in "wp"},
        )
    ],
    "`reshape`, `permute`, `expand`, `slice`, `split`": [
        (lambda x: x.reshape(-1), ROWS),
        (lambda x: x.permute(1, 0), ROWS),
        (lambda x: x.expand(3, -1, -1), ROWS),
        (lambda x: x[1:], ROWS),
        (lambda x: x.split(100), ROWS),
    ],
    "`index` of x (V, C) with integers (N)": [(lambda x, i: x[i], ["V,C"], {"i": classes})],
    "`cat`, `stack`, `clone`, `cast`": [
        (lambda *x: _core.cat(x), X * 2),
        (lambda *x: _core.stack(x), X * 2),
        (lambda x: x.clone(), X),
        (lambda x: x.half(), X),
    ],
    "`item assignment` y[:] = x": [(assigned, ROWS)],
    **of_all_ops("SAVED"),
}


@pytest.mark.unsanitized
@pytest.mark.parametrize(
    ("row", "case"), [(row, case) for row, cases in CASES.items() for case in cases], ids=lambda v: v if isinstance(v, str) else ""
)
def test_bytes_held_are_those_of_the_table(row, case):
    f, shapes, constants = (*case, {})[:3]
    for _ in range(2):  # the first call may keep blocks of its own (threads)
        measured = kept_bytes(f, shapes, **constants)
    expected = eval(TABLE[row], {"__builtins__": {}}, {**SIZES, "s": 4})
    assert abs(measured - expected) <= SLACK, f"{measured} bytes kept, {expected} in the table"


@pytest.mark.unsanitized
def test_elements_of_float64_have_eight_bytes_and_halves_are_kept_as_they_are_given():
    halves = {  # what is given is kept as it is
        "`linear` of x (M, K), weight (N, K), bias": "2 * (M * K + N * K)",
        "`linear` with GELU, or with an activation and a residual": "2 * (M * K + N * K) + 4 * M * N",
        "`qkv_projection` of x (B, T, C), weight (3 E, C)": "2 * (B * T * C + 3 * E * C)",
        "`matmul` of a (M, K) and b (K, N)": "2 * (M * K + K * N)",
        "`attention` of q (B, H, T, D), k, v": "B * H * T * (2 * 4 * D + 4 * 2)",
    }
    for row, of_halves in halves.items():
        f, shapes = CASES[row][0]
        for dtype, expected in ((np.float64, TABLE[row]), (np.float16, of_halves)):
            assert abs(kept_bytes(f, shapes, dtype) - eval(expected, {}, {**SIZES, "s": 8})) <= SLACK, (row, dtype)
    f, shapes = each(["mul"], X * 2)[0]
    assert abs(kept_bytes(f, shapes, np.float16) - 2 * 2 * n) <= SLACK


@pytest.mark.unsanitized
def test_a_constant_needs_no_copy_of_the_other():
    """x * mask keeps the mask; x is gone."""
    assert abs(kept_bytes(lambda x, mask: x * mask, X, mask=lambda rng: np.ones(n, np.float32)) - 4 * n) <= SLACK


# A product with a weight, their shapes, and how many elements of the result are kept.
FROZEN = {
    "linear": (lambda x, w: _core.linear(x, w, None), "M,K", "N,K", 0),
    "linear with ReLU": (lambda x, w: _core.linear(x, w, None, "relu"), "M,K", "N,K", SIZES["M"] * SIZES["N"]),
    "qkv_projection": (lambda x, w: _core.qkv_projection(x, w, None, 4, "qkv"), "B,T,C", "3*E,C", 0),
    "matmul": (lambda x, w: x @ w, "B,T,C", "C,E", 0),
    "matmul from the left": (lambda x, w: w @ x, "B,T,C", "N,T", 0),
    "matmul of batches": (lambda x, w: x @ w, "B,T,C", "B,C,E", 0),
    "matmul with a vector": (lambda x, w: x @ w, "B,T,C", "C", 0),
    "convolution": (lambda x, w: _core.convolution(x, w, None, (1,), (1,), (1,)), "B,C,T", "E,C,3", 0),
    "transposed convolution": (
        lambda x, w: _core.transposed_convolution(x, w, None, (1,), (1,), (0,), (1,)),
        "B,C,T",
        "C,E,3",
        0,
    ),
}


@pytest.mark.unsanitized
@pytest.mark.parametrize("name", FROZEN)
def test_a_product_with_a_frozen_weight_keeps_nothing_else(name):
    f, x, weight, more = FROZEN[name]
    w = tc.rand(*shape(weight))
    for _ in range(2):  # the weight's prepared form is made once
        measured = kept_bytes(lambda x: f(x, w), [x])
    assert abs(measured - 4 * more) <= SLACK


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", FROZEN)
def test_gradients_with_a_frozen_weight(name, dtype):
    """The same bits as with one that is trained; also for narrow matrices, and after a write to what is not needed."""
    f, found = FROZEN[name][0], []
    for lengths in ({}, {"M": 5, "K": 3, "N": 7, "B": 2, "T": 6, "C": 8, "E": 4}, dict.fromkeys("MKNBT", 1), {"M": 0, "B": 0}):
        small = {**SIZES, "M": 64, "T": 32, **lengths}
        x, weight = (tuple(eval(part, {}, small) for part in text.split(",")) for text in FROZEN[name][1:3])
        for trained in (True, False):
            leaf = tc.randn(*x, rng=0).to(dtype).requires_grad_()
            given, w = leaf * 1, tc.randn(*weight, rng=1).to(dtype).requires_grad_(trained)
            results = f(given, w)
            if not trained:
                given.zero_()
            end = sum((r.float() * tc.randn(*r.shape, rng=2)).sum() for r in (results if isinstance(results, (tuple, list)) else [results]))
            end.backward()
            found.append(leaf.grad.float().tolist())
        assert found[-1] == found[-2] and np.isfinite(found[-1]).all()


@pytest.mark.unsanitized
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_an_encoder_block(dropout):
    formula = re.search(r"thus keeps `([^`]*)`", (ROOT / "docs/memory.md").read_text())[1]
    sizes = {"B": 2, "T": 256, "E": 128, "H": 4, "F": 512, "s": 4}
    block = tc.EncoderBlock(sizes["E"], sizes["H"], sizes["F"], dropout)
    x = tc.tensor(np.random.default_rng(0).standard_normal((2, 256, 128)).astype(np.float32), requires_grad=True)
    for _ in range(2):
        before = _core.memory_stats()["in_use"]
        end = block(x.clone()).sum()
        measured = _core.memory_stats()["in_use"] - before
        del end
    assert abs(measured - eval(formula, {}, sizes)) <= 3 * SLACK


def test_every_row_is_measured_and_every_op_has_a_row():
    assert sorted(set(TABLE) - set(CASES)) == [], "rows of docs/memory.md without a case here, or in SAVED of an op's test"
    assert sorted(set(CASES) - set(TABLE)) == [], "cases without a row of docs/memory.md that begins with these words"
    named = {name for row in TABLE for name in re.findall(r"`([a-z_0-9]+(?: assignment)?)", row)}
    assert set(op_lists.recorded(ROOT)) - named == {"custom_op"}
