"""What an argument's own methods raise comes out of the call: only a missing method is a TypeError."""

import contextlib
import operator
from pathlib import Path

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import functional as F
from transformer_c import nn


class Argument:
    """Each of these methods raises, and says that it was asked."""

    def __init__(self, error, methods):
        self.error, self.asked = error, False
        for method in methods:
            self.__class__ = type("Argument", (self.__class__,), {method: Argument.fail})

    def fail(self, *args, **kwargs):
        self.asked = True
        raise self.error


NUMBER, ARRAY, ITEMS = ("__index__", "__float__"), ("__array__",), ("__iter__",)
PROPERTY = ("__getattr__",)
X, HEADS = tc.ones(2, 3), np.ones((1, 2, 3, 4), np.float32)
WEIGHT = nn.Linear(2, 2).weight
CALLS = {
    "softmax": lambda a: F.softmax(X, a),
    "manual_seed": lambda a: tc.manual_seed(a),
    "Generator": lambda a: tc.Generator(a),
    "Tensor.to": lambda a: X.to(a),
    "Tensor.to dtype": lambda a: X.to(dtype=a),
    "dtype": lambda a: tc.zeros(2, dtype=a),
    "masked_fill": lambda a: X.masked_fill(X > 0, a),
    "masked_fill mask": lambda a: X.masked_fill(a, 1.0),
    "reshape": lambda a: X.reshape(a, 3),
    "reshape to a sequence": lambda a: X.reshape((a, 3)),
    "add": lambda a: X + a,
    "add, reflected": lambda a: a + X,
    "in place": lambda a: X.__iadd__(a),
    "equal": lambda a: a == X,
    "in": lambda a: a in X,
    "where": lambda a: tc.where(X > 0, a, 1.0),
    "matmul": lambda a: X @ a,
    "pow": lambda a: X**a,
    "index": lambda a: X[a],
    "index of two": lambda a: X[0, a],
    "slice": lambda a: X[a:],
    "assignment": lambda a: tc.ones(2).__setitem__(0, a),
    "full": lambda a: tc.full((2,), a),
    "zeros": lambda a: tc.zeros(a),
    "tensor": lambda a: tc.tensor(a),
    "tensor of a list": lambda a: tc.tensor([a]),
    "as_tensor": lambda a: tc.as_tensor(a),
    "sum": lambda a: X.sum(a),
    "split": lambda a: X.split(a),
    "split into sizes": lambda a: X.split([a, 1]),
    "window": lambda a: F.scaled_dot_product_attention(HEADS, HEADS, HEADS, window=(a, 1)),
    "causal_offset": lambda a: F.scaled_dot_product_attention(HEADS, HEADS, HEADS, is_causal=True, causal_offset=a),
    "key_lengths": lambda a: F.scaled_dot_product_attention(HEADS, HEADS, HEADS, key_lengths=a),
    "layer_norm": lambda a: F.layer_norm(X, a),
    "eps": lambda a: F.layer_norm(X, 3, eps=a),
    "dropout": lambda a: F.dropout(X, a),
    "Linear": lambda a: nn.Linear(a, 3),
    "Embedding": lambda a: nn.Embedding(3, a),
    "nn.MultiheadAttention": lambda a: nn.MultiheadAttention(8, a),
    "EncoderBlock": lambda a: tc.EncoderBlock(8, a, 8),
    "PositionalEncoding": lambda a: tc.PositionalEncoding(8, a),
    "randn": lambda a: tc.randn(a),
    "randn of a generator": lambda a: tc.randn(2, rng=a),
    "randint": lambda a: tc.randint(0, a, (2,)),
    "randint of a size": lambda a: tc.randint(0, 2, a),
    "randperm": lambda a: tc.randperm(a),
    "arange": lambda a: tc.arange(a),
    "cat": lambda a: tc.cat(a),
    "cat of a list": lambda a: tc.cat([X, a]),
    "cat along": lambda a: tc.cat([X, X], a),
    "Adam": lambda a: tc.optim.Adam([WEIGHT], lr=a),
    "Adam of": lambda a: tc.optim.Adam(a),
    "clip_grad_norm_": lambda a: tc.optim.clip_grad_norm_([WEIGHT], a),
    "set_num_threads": lambda a: tc.set_num_threads(a),
    "backward": lambda a: tc.ones(2, requires_grad=True).sum().backward(a),
    "grad": lambda a: setattr(X, "grad", a),
    "one_hot": lambda a: F.one_hot(a),
    "cross_entropy": lambda a: F.cross_entropy(X, a),
    "embedding": lambda a: F.embedding(a, X),
    "DataLoader": lambda a: tc.data.DataLoader([1], batch_size=a),
    "TensorDataset": lambda a: tc.data.TensorDataset(a),
    "load_state_dict": lambda a: nn.Linear(2, 2).load_state_dict({"weight": a, "bias": a}),
    "from_dlpack": lambda a: tc.from_dlpack(a),
    "a module": lambda a: nn.Linear(2, 2)(a),
    "scaled_dot_product": lambda a: tc.scaled_dot_product(HEADS, HEADS, a),
    "Tensor.dim argument": lambda a: X.size(a),
    "unfold": lambda a: X.unfold(0, a, 1),
}


def check_call(call, methods):
    for kind in (KeyboardInterrupt, MemoryError, ZeroDivisionError):
        argument = Argument(kind("from the argument"), methods)
        try:
            call(argument)
        except kind:
            assert argument.asked
        except (TypeError, ValueError, IndexError) as error:
            assert not argument.asked, f"{kind.__name__} became {error!r}"
        else:
            assert not argument.asked, f"{kind.__name__} was hidden"


@pytest.mark.parametrize("make", [tc.tensor, tc.Tensor, tc.as_tensor], ids=lambda make: make.__name__)
def test_an_array_whose_dtype_raises(make):
    class Array:
        def __array__(self, dtype=None, copy=None):
            return np.ones(3)

        @property
        def dtype(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(Array())


def test_no_attribute_is_asked_for_in_a_way_that_hides_errors():
    """PyObject_HasAttr and its like clear whatever the attribute raises; tcpy_has_attribute does not."""
    sources = (Path(__file__).parents[1] / "csrc/python").glob("*.c")
    assert not [path.name for path in sources if "PyObject_HasAttr" in path.read_text()]


@pytest.mark.parametrize("methods", [NUMBER, ARRAY, ITEMS, PROPERTY], ids=lambda m: m[0])
@pytest.mark.parametrize("name", CALLS)
def test_errors_of_the_users_code_come_out(name, methods):
    check_call(CALLS[name], methods)


def test_a_planted_defect_is_found():
    def replaced(a):
        try:
            return operator.index(a)
        except BaseException as error:
            raise TypeError("an int is expected") from error

    def hidden(a):
        with contextlib.suppress(BaseException):
            operator.index(a)

    def of_one_kind(a):
        try:
            return operator.index(a)
        except Exception as error:  # KeyboardInterrupt comes out, MemoryError does not
            raise ValueError("an int is expected") from error

    check_call(operator.index, NUMBER)
    for defect, message in ((replaced, "became TypeError"), (hidden, "was hidden"), (of_one_kind, "MemoryError became ValueError")):
        with pytest.raises(AssertionError, match=message):
            check_call(defect, NUMBER)


@pytest.mark.parametrize("count", ["2", 2.0, None, True])
def test_a_number_of_threads_that_is_no_int(count):
    before = tc.get_num_threads()
    with pytest.raises(TypeError, match=r"the number of threads must be an int, got .* \((str|float|NoneType|bool)\)"):
        tc.set_num_threads(count)
    assert tc.get_num_threads() == before
