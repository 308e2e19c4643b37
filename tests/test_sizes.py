"""Every integer that a user can give takes the values at which arithmetic on sizes overflows: a clear error or a right result, and under
`make sanitize` no undefined behaviour, but for addresses that kernels only compute. Shapes that a Tensor gets without memory (by expand, or with a
length of 0) do the same."""

import re
import struct
from pathlib import Path

import numpy as np
import op_lists
import pytest
import transformer_c as tc
from hypothesis import given, settings
from hypothesis import strategies as st
from transformer_c import _core, nn
from transformer_c import functional as F

ROOT = Path(__file__).parents[1]
EDGES = [2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**62, 2**62 + 1, 2**61, -(2**62), 2**32, 2**31, -(2**31), 0, -1]
# For lengths of new memory: none that a machine has, so that none is touched.
LENGTHS = [2**63 - 1, -(2**63), 2**63, 2**62, 2**61, 2**60, 2**45, -1]
ERRORS = (ValueError, TypeError, IndexError, OverflowError, MemoryError, NotImplementedError, RuntimeError)

X, ROWS, TOKENS = np.ones((2, 3, 4), np.float32), np.ones((2, 4), np.float32), np.array([0, 2])
HEADS = np.ones((2, 2, 3, 4), np.float32)
TABLE, LOGITS = np.ones((5, 4), np.float32), np.ones((2, 3), np.float32)
NORM = {"x": X, "residual": X, "normalized_shape": (4,)}
REDUCTION = {"x": X, "axis": (0, 1)}
LOSS = {"input": LOGITS, "target": TOKENS, "ignore_index": -100}
ROW = np.ones(2, np.float32)
LINEAR = {"x": X, "weight": np.ones((12, 4), np.float32), "sequence_lengths": 3}
PROJECTION = {**LINEAR, "num_heads": 2}
ATTENTION = {"causal_offset": 1, "window": (1, 2), "seed": 1, "call": 2, "dropout": 0.5, "is_causal": True}
VALUES = {"dvalues": HEADS, "q": HEADS, "k": HEADS, "v": HEADS, "values": HEADS, "shift": HEADS[..., 0], "sum": HEADS[..., 0]}
BLOCK = {"x": X, "qkv_weight": np.ones((12, 4), np.float32), "qkv_bias": np.ones(12, np.float32), "num_heads": 2}
BLOCK |= {f"{name}_weight": np.ones((4, 4), np.float32) for name in ("out", "up", "down")}
BLOCK |= {name: np.ones(4, np.float32) for name in ("out_bias", "up_bias", "down_bias", "gamma1", "beta1", "gamma2", "beta2")}
CONVOLUTION = {"x": X, "weight": X[:1, :, :2], "stride": (1,), "padding": (0,), "dilation": (1,), "groups": 1}
TRANSPOSED = {**CONVOLUTION, "weight": X[0, :, None, :2]}
DROPPED = {"dropout": 0.5, "seed": 1, "call": 2}
RANDOM = {"x": X, "dy": X, "p": 0.5, "seed": 1, "call": 2}
ADAM = dict.fromkeys(("lr", "beta1", "beta2", "eps", "weight_decay"), 0.1)

# A call of each op that takes integers, by names of arguments; each integer in it is replaced.
CASES = {
    "layer_norm": NORM, "add_layer_norm": {**NORM, **DROPPED}, "rms_norm": NORM,
    "add_layer_norm_forward": {"x": X, "residual": X, **DROPPED},
    "add_layer_norm_backward": {"dy": X, "sum": X, "gamma": X[0, 0], "mean": X[..., 0], "rstd": X[..., 0], **DROPPED},
    **{f"{log}softmax{end}": {"x": X, "dim" if end else "axis": 1} for log in ("", "log_") for end in ("", "_forward")},
    **{f"{log}softmax_backward": {"dy": X, "y": X, "dim": 1} for log in ("", "log_")},
    "triu": {"input": X, "diagonal": 1}, "tril": {"input": X, "diagonal": 1},
    "triu_backward": {"dy": X, "diagonal": 1}, "tril_backward": {"dy": X, "diagonal": 1},
    "dropout": RANDOM, "dropout_forward": RANDOM, "dropout_backward": RANDOM,
    "cross_entropy": LOSS, "cross_entropy_forward": LOSS,
    "cross_entropy_backward": {**LOSS, "dloss": np.float32(1), "top": ROW, "log_sum": ROW},
    "nll_loss": LOSS, "nll_loss_backward": {**LOSS, "dloss": np.float32(1)},
    "convolution": {**CONVOLUTION, "bias": None}, "convolution_backward": {**CONVOLUTION, "dy": X[:, :1, :3]},
    "transposed_convolution": {**TRANSPOSED, "bias": None, "output_padding": (0,)},
    "transposed_convolution_backward": {**TRANSPOSED, "dy": np.ones((2, 1, 5), np.float32)},
    "pad": {"x": X, "pads": (1, 2, 0, 1)}, "pad_backward": {"dy": X, "pads": (1, 2)},
    "embedding": {"indices": TOKENS, "weight": TABLE, "padding_idx": 1},
    "embedding_backward": {"dy": ROWS, "indices": TOKENS, "num_embeddings": 5, "padding_idx": 1},
    "one_hot": {"x": TOKENS, "num_classes": 3},
    "argsort": {"x": X, "axis": 1, "first": 2},
    "cumsum": {"x": X, "axis": 1}, "cumsum_backward": {"dy": X, "axis": 1},
    "gather": {"x": X, "axis": 1, "index": X.astype(int) * 0}, "scatter": {"x": X, "axis": 1, "index": X.astype(int) * 0, "src": X},
    "scatter_into": {"x": X.copy(), "axis": 1, "index": X.astype(int) * 0, "src": X},
    "linear": {**LINEAR, **DROPPED}, "linear_forward": {**LINEAR, **DROPPED},
    "linear_backward": {**LINEAR, **DROPPED, "dy": np.ones((2, 3, 12), np.float32)},
    "qkv_projection": PROJECTION, "qkv_projection_forward": PROJECTION,
    "qkv_projection_backward": {**PROJECTION, **dict.fromkeys(("dq", "dk", "dv"), np.ones((2, 2, 3, 2), np.float32))},
    "encoder_block": BLOCK | {"seed": 1, "call": 2},
    "encoder_block_forward": BLOCK | {"seed": 1, "call": 2},
    "attention": {**ATTENTION, "query": HEADS, "key": HEADS, "value": HEADS},
    "attention_forward": {**ATTENTION, "q": HEADS, "k": HEADS, "v": HEADS},
    "attention_backward": {**ATTENTION, **VALUES},
    **dict.fromkeys(("sum", "mean", "max", "min", "any", "all", "var"), REDUCTION),
    **{key: {"x": X, "axis": 1} for key in ("argmax", "argmin")},
    **{key: {**REDUCTION, "dy": X[0, 0]} for key in ("sum_backward", "mean_backward", "var_backward")},
    **{key: {**REDUCTION, "dy": X[0, 0], "y": X[0, 0]} for key in ("max_backward", "min_backward")},
    "reshape": {"shape": (6, 4)}, "view": {"shape": (-1, 4)}, "squeeze": {"dim": 1}, "unsqueeze": {"dim": 1},
    "permute": {"dims": (2, 0, 1)}, "transpose": {"dim0": 0, "dim1": 2}, "swapaxes": {"axis1": 0, "axis2": 2},
    "expand": {"size": (5, 2, 3, 4)}, "flip": {"dims": (0, 2)}, "unfold": {"dimension": 1, "size": 2, "step": 1},
    "flatten": {"start_dim": 0, "end_dim": 2}, "narrow": {"dim": 1, "start": 1, "length": 2}, "cuda": {"device": 0},
    "cat": {"tensors": [X, X], "dim": 1}, "stack": {"tensors": [X, X], "dim": 1},
    "adam_step": {**dict.fromkeys(("parameters", "gradients", "exp_avg", "exp_avg_sq"), None), "t": 1, **ADAM},
    "empty": {"shape": (2, 3)}, "full": {"shape": (2, 3), "value": 1.0}, "arange": {"first": 2, "step": 3, "length": 4},
    "spaced": {"first": 2.0, "step": 3.0, "last": 9.0, "length": 4, "turn": 3},
    "chunk": {"chunks": 2, "dim": 1}, "split": {"split_size": 2, "dim": 1}, "unbind": {"dim": 1}, "size": {"dim": 1}, "stride": {"dim": 1},
}  # fmt: skip
MEMORY = {
    ("one_hot", "num_classes"),
    ("embedding_backward", "num_embeddings"),
    ("empty", "shape"),
    ("full", "shape"),
    ("transposed_convolution", "stride"),
    ("transposed_convolution", "dilation"),
    ("arange", "length"),
    ("spaced", "length"),
}
INTEGER_KINDS = ("INT", "INT_OR_NONE", "INT_OR_TENSOR", "PAIR", "INTS", "INTS_OR_NONE", "AXES", "SPREAD", "WORD", "WORD_OF_DROPOUT")


def integer_arguments():
    """{op: names of the arguments that are integers}, from the rows of ops.def and from the specs of the ops without a row."""
    text = (ROOT / "csrc/ops/ops.def").read_text()
    macros = dict(re.findall(r"^#define (\w+)[ ]((?:.*\\\n)*.*)", text, re.M))
    words = re.compile(rf"\b({'|'.join(macros)})\b")
    found = {}
    for name, row in op_lists.op_rows(ROOT).items():
        while words.search(row):
            row = words.sub(lambda macro: macros[macro[1]], row)
        found[name] = [argument for kind, argument in re.findall(r"\b([A-Z_]+)\((\w+)[,)]", row) if kind in INTEGER_KINDS]
    for path in sorted((ROOT / "csrc/python").glob("ops_*.c")):
        for name, spec in re.findall(r'(?:^    \{"|METHOD\()(\w+)"?, "([^"]*)"', path.read_text(), re.M):
            found[name] = re.findall(r"(\w+):[inpIw]", spec)
    return {name: arguments for name, arguments in found.items() if arguments}


def with_each(value, edge):
    """The argument with each of its integers replaced."""
    if not isinstance(value, tuple):
        yield edge
        return
    for i in range(len(value)):
        yield (*value[:i], edge, *value[i + 1 :])


def call_of(name, arguments):
    arguments = dict(arguments)
    if name == "adam_step":  # writes to its tensors
        arguments |= {k: [tc.ones(3)] for k in ("parameters", "gradients", "exp_avg", "exp_avg_sq")}
        return _core.adam_step(*(arguments.get(k) for k in ("parameters", "gradients", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "t")),
                               *(arguments[k] for k in ADAM), False, False)  # fmt: skip
    if hasattr(_core, name) and name not in ("split", "cuda"):
        known = re.findall(r"\w+", getattr(_core, name).__text_signature__)
        return getattr(_core, name)(**{k: v for k, v in arguments.items() if k in known})
    return getattr(tc.tensor(X, requires_grad=True), name)(**arguments)


def check_argument(call, case, argument, edges, gives_none=False):
    """With any of the edges a call gives a result, or an error that says something."""
    for edge in edges:
        for value in with_each(case[argument], edge):
            try:
                result = call({**case, argument: value})
            except ERRORS as error:
                assert len(str(error)) > 10, (argument, value)
            else:
                assert result is not None or gives_none, (argument, value)


@pytest.mark.parametrize("name", integer_arguments())
def test_an_argument_of_an_op(name):
    assert name in CASES, f"{name} has integer arguments: add a call of it to CASES in tests/test_sizes.py"
    case = CASES[name]
    call_of(name, case) if name != "cuda" else None
    for argument in {"split": ["split_size", "dim"]}.get(name, integer_arguments()[name]):
        assert argument in case, f"{name} has an integer {argument}, which its case lacks"
        edges = LENGTHS if (name, argument) in MEMORY else EDGES
        check_argument(lambda arguments: call_of(name, arguments), case, argument, edges, gives_none=name == "adam_step")


def test_a_planted_defect_is_found(monkeypatch):
    def unchecked(n):
        return struct.pack("q", n)  # struct.error, which no op raises

    def without_a_word(n):
        raise ValueError

    def no_result(n):
        return n or None

    check = lambda function: check_argument(lambda arguments: function(arguments["n"]), {"n": 1}, "n", EDGES)
    check(abs)
    for defect, error in ((unchecked, struct.error), (without_a_word, AssertionError), (no_result, AssertionError)):
        with pytest.raises(error):
            check(defect)
    monkeypatch.delitem(CASES, "argsort")  # an op that was added without a case
    with pytest.raises(AssertionError, match="argsort has integer arguments"):
        test_an_argument_of_an_op("argsort")


def test_what_returns_is_right():
    x = tc.tensor(X)
    for edge in EDGES:
        if -(2**63) <= edge < 2**63:
            np.testing.assert_array_equal(x.triu(edge), np.triu(X, max(min(edge, 9), -9)))
            np.testing.assert_array_equal(x.tril(edge), np.tril(X, max(min(edge, 9), -9)))
            offset = max(min(edge, 9), -9)
            far, near = (F.scaled_dot_product_attention(HEADS, HEADS, HEADS, is_causal=True, causal_offset=o) for o in (edge, offset))
            np.testing.assert_array_equal(far, near)
            many, near = (
                F.scaled_dot_product_attention(HEADS, HEADS, HEADS, is_causal=True, causal_offset=np.full(2, o)) for o in (edge, offset)
            )
            np.testing.assert_array_equal(many, near)
        if edge > 0:
            assert [len(p) for p in x.split(edge, 1)] == [2] and len(x.chunk(min(edge, 2**63 - 1), 1)) == 3
            np.testing.assert_array_equal(x[:, :edge], X)
            np.testing.assert_array_equal(x[:, ::edge], X[:, :1])
            assert x[edge:].shape == (0, 3, 4) and x[:, ::-edge].shape == (2, 1, 4)
            window = (edge, edge)
            np.testing.assert_array_equal(F.scaled_dot_product_attention(HEADS, HEADS, HEADS, window=window), np.ones_like(HEADS))
    assert tc.tensor(X, requires_grad=True).unfold(1, 3, 2**63 - 1).shape == (2, 1, 4, 3)


# ---- tensors that are large without memory ------------------------------------------------------------------------------------------


def wide(*shape):
    """One number, read as a tensor of this shape."""
    return tc.ones(*[1] * len(shape)).expand(*shape)


B = 2**40
LARGE = {
    "an empty shape": lambda: tc.empty(0, B, B),
    "an empty shape by reshape": lambda: tc.empty(0, 3).reshape(0, 2**28 - 1, 2**45 - 1),
    "an empty view": lambda: tc.empty(0, 1, 1).expand(0, B, B),
    "a view": lambda: wide(B, B),
    "sum of two": lambda: wide(B, 1) + wide(B),
    "matmul": lambda: wide(B, 1) @ wide(1, B),
    "matmul of empty": lambda: wide(B, 0) @ wide(0, B),
    "batches of matmul": lambda: wide(B, 1, 1, 1) @ wide(B, 1, 1),
    "flattened": lambda: wide(B, B, 0).flatten(0, 1),
    "attention": lambda: F.scaled_dot_product_attention(wide(B, 1, 1, 0, 1), wide(B, 1, 1, 1), wide(B, 1, 1)),
    "attention of long sequences": lambda: F.scaled_dot_product_attention(wide(2, 2**31, 0), wide(1, 2**31, 0), wide(2**31, 0)),
    "cat": lambda: tc.cat([wide(0, 2**59)] * 17, 1),
    "where": lambda: tc.where(wide(B, 1) > 0, wide(1, B), 0.0),
    "one-hot of the largest int": lambda: F.one_hot(np.array([2**63 - 1])),
    "points of an index": lambda: tc.empty(3, 3)[np.zeros((2, 1), int).repeat(1), np.zeros((1, 2), int)],
    "pieces": lambda: wide(2**33).unbind(),
    "even pieces": lambda: wide(2**33).split(1),
}  # fmt: skip


@pytest.mark.parametrize("name", [n for n in LARGE if n not in ("where", "points of an index")])
def test_a_large_shape_is_refused(name):
    with pytest.raises((ValueError, MemoryError), match="more elements than memory|more classes than|add up to|too many|out of memory"):
        LARGE[name]()


@pytest.mark.parametrize("name", LARGE)
def test_a_large_shape_is_harmless(name):
    try:
        LARGE[name]()
    except (ValueError, IndexError, MemoryError) as error:
        assert len(str(error)) > 20


def test_strides_that_nobody_walks():
    far = np.lib.stride_tricks.as_strided(np.ones(4, np.float32), (1, 4, 1), (2**62, 4, -(2**62)))
    x = tc.as_tensor(far)
    for y in (x[::-1], x.flip(0), x.reshape(2, 2), x.unfold(0, 1, 1), x + 1, x.mT @ x, x.permute(2, 1, 0).contiguous()):
        assert y.float().sum().item() in (4.0, 8.0, 16.0)


# ---- the layers above -----------------------------------------------------------------------------------------------------------------

# Calls with an integer left open: the length of something new, and any other number.
CALLS = {
    "arange": lambda n: tc.arange(n), "arange with an end": lambda n: tc.arange(0, n, 1), "zeros": lambda n: tc.zeros(n, 2),
    "ones": lambda n: tc.ones(2, n), "randn": lambda n: tc.randn(n, 3), "rand": lambda n: tc.rand(3, n), "randperm": lambda n: tc.randperm(n),
    "randint": lambda n: tc.randint(0, 5, (n,)), "classes": lambda n: F.one_hot([1], n), "Linear": lambda n: nn.Linear(n, 2),
    "Linear out": lambda n: nn.Linear(2, n), "Embedding": lambda n: nn.Embedding(n, 2), "Embedding dim": lambda n: nn.Embedding(2, n),
    "LayerNorm": lambda n: nn.LayerNorm(n), "RMSNorm": lambda n: nn.RMSNorm((2, n)), "PositionalEncoding": lambda n: tc.PositionalEncoding(4, n),
    "PositionalEncoding of a width": lambda n: tc.PositionalEncoding(n, 4),
    "nn.MultiheadAttention": lambda n: nn.MultiheadAttention(n, 1), "MultiheadAttention": lambda n: tc.MultiheadAttention(8, n, 2),
    "EncoderBlock": lambda n: tc.EncoderBlock(8, 2, n), "TransformerEncoderLayer": lambda n: nn.TransformerEncoderLayer(8, 2, n),
    "square mask": lambda n: nn.Transformer.generate_square_subsequent_mask(n), "KeyValueCache": lambda n: nn.KeyValueCache(n, static=True), "repeat": lambda n: tc.ones(2).expand(n, 2).contiguous(),
}  # fmt: skip
NUMBERS = {
    "heads": lambda n: nn.MultiheadAttention(8, n), "heads of the tutorial": lambda n: tc.MultiheadAttention(8, 8, n),
    "heads of a block": lambda n: tc.EncoderBlock(8, n, 8), "F.qkv_projection": lambda n: F.qkv_projection(X, np.ones((12, 4), np.float32), None, n),
    "packing": lambda n: tc.convert.packing(np.ones((12, 4), np.float32), "head", "qkv", n), "softmax": lambda n: F.softmax(X, n),
    "randint": lambda n: tc.randint(n, 2**63 - 1, (2,)), "seed": lambda n: tc.manual_seed(n), "index": lambda n: tc.tensor(X)[n],
    "index array": lambda n: tc.tensor(X)[[n]], "assignment": lambda n: tc.tensor(X).__setitem__(n, 0), "set_num_threads": lambda n: tc.set_num_threads(n),
    "ignore_index": lambda n: F.cross_entropy(LOGITS, TOKENS, ignore_index=n), "labels": lambda n: F.cross_entropy(LOGITS, np.full(2, n)),
    "tokens": lambda n: F.embedding(np.full(2, n), TABLE), "positions": lambda n: F.rotary(X, np.full(3, n)), "Flatten": lambda n: nn.Flatten(n)(X),
    "sequence_lengths": lambda n: F.scaled_dot_product_attention(HEADS[:1], HEADS[:1], HEADS[:1], sequence_lengths=np.full(2, n)),
    "key_lengths": lambda n: F.scaled_dot_product_attention(HEADS, HEADS, HEADS, key_lengths=np.full(2, n)),
    "Embedding.padding_idx": lambda n: nn.Embedding(3, 2, padding_idx=n), "DataLoader": lambda n: next(iter(tc.data.DataLoader([1, 2], batch_size=n))),
    "truncate": lambda n: nn.KeyValueCache().truncate(n), "fill": lambda n: tc.zeros(2, dtype=tc.int64).fill_(n), "full": lambda n: tc.full((2,), n),
    "power": lambda n: tc.arange(3) ** n, "floor division": lambda n: tc.tensor([-(2**63), 1, 0]) // n, "remainder": lambda n: tc.tensor([-(2**63), 1]) % n,
    "product": lambda n: (tc.full((2, 2), 2**62, dtype=tc.int64) * n, tc.full((2, 2), 2**62, dtype=tc.int64) @ tc.full((2, 2), 3, dtype=tc.int64)),
    "sum": lambda n: tc.tensor([2**63 - 1, min(max(n, -(2**63)), 2**63 - 1)]).sum(), "negation": lambda n: (-tc.tensor([-(2**63)]), tc.tensor([-(2**63)]).abs()),
}  # fmt: skip


def survives(call, n):
    try:
        call(n)
    except ERRORS as error:
        assert len(str(error)) > 3


@pytest.mark.parametrize("name", CALLS)
def test_a_length(name):
    for n in LENGTHS:
        survives(CALLS[name], n)
        survives(CALLS[name], np.int64(n)) if -(2**63) <= n < 2**63 else None


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number(name):
    before = tc.get_num_threads()
    try:
        for n in EDGES:
            survives(NUMBERS[name], n)
    finally:
        tc.set_num_threads(before)


far_numbers = st.integers(0, 63).flatmap(lambda k: st.integers(-3, 3).map(lambda d: 2**k + d)).flatmap(lambda n: st.sampled_from([n, -n]))


@settings(deadline=None, max_examples=300, derandomize=True)
@given(st.lists(far_numbers, min_size=1, max_size=4), st.sampled_from(["reshape", "view", "expand", "permute", "flip", "squeeze"]))
def test_shapes_drawn_at_random(numbers, name):
    survives(lambda _: getattr(tc.tensor(X), name)(*numbers), None)
    survives(lambda _: getattr(tc.empty(0, 3, 4), name)(*numbers), None)


@settings(deadline=None, max_examples=300, derandomize=True)
@given(far_numbers, far_numbers, far_numbers)
def test_windows_drawn_at_random(a, b, c):
    x = tc.tensor(X)
    for call in (lambda _: x[:, a:b:c], lambda _: x.narrow(a, b, c), lambda _: x.unfold(1, a, b), lambda _: x.flatten(a, b)):
        survives(call, None)
    if c not in (0,) and all(-(2**63) <= n < 2**63 for n in (a, b, c)):
        np.testing.assert_array_equal(x[:, a:b:c], X[:, a:b:c])
