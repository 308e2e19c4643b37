"""convert.packing: converts between the orders in which libraries store the projections to queries, keys and values."""

import itertools

import numpy as np
import pytest
import transformer_c as tc

HEADS, SIZE, FEATURES = 3, 2, 5
ORDERS = ["head", "qkv", "separate", "keras"]


def names(bias):
    """An array for each order, in which every element encodes its part, head, row in the head (and feature)."""
    part, head, row, feature = np.meshgrid(range(3), range(HEADS), range(SIZE), range(1 if bias else FEATURES), indexing="ij")
    label = part * 1000.0 + head * 100 + row * 10 + feature  # (3, H, D, C)
    if bias:
        label = label[..., 0]
        return {
            "head": label.transpose(1, 0, 2).ravel(),
            "qkv": label.ravel(),
            "separate": tuple(x.ravel() for x in label),
            "keras": tuple(label),
        }
    rows = HEADS * SIZE
    return {
        "head": label.transpose(1, 0, 2, 3).reshape(3 * rows, FEATURES),
        "qkv": label.reshape(3 * rows, FEATURES),
        "separate": tuple(x.reshape(rows, FEATURES) for x in label),
        "keras": tuple(x.transpose(2, 0, 1) for x in label),
    }


def each(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("source", "target"), [*itertools.product(ORDERS, ORDERS)])
def test_every_pair(source, target, bias):
    given, expected = names(bias)[source], names(bias)[target]
    found = tc.convert.packing(given, source, target, HEADS)
    assert type(found) is type(expected)
    for a, b in zip(each(found), each(expected), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.flags.c_contiguous and a.flags.writeable
        assert not any(np.shares_memory(a, x) for x in each(given))


@pytest.mark.parametrize(("source", "target"), [*itertools.product(ORDERS, ORDERS)])
def test_tensors_are_recorded(source, target):
    given = tuple(tc.tensor(x, requires_grad=True) for x in each(names(False)[source]))
    found = tc.convert.packing(given if len(given) > 1 else given[0], source, target, HEADS)
    for a, b in zip(each(found), each(names(False)[target]), strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b)
    sum((x * x).sum() for x in each(found)).backward()
    for x in given:
        np.testing.assert_array_equal(x.grad.numpy(), 2 * x.detach().numpy())


def test_other_names_and_state_dicts():
    weight, bias = names(False)["head"], names(True)["head"]
    expected = {"weight": names(False)["qkv"], "bias": names(True)["qkv"]}
    for source, target in (("per_head", "packed"), ("interleaved", "qkv")):
        found = tc.convert.packing({"weight": weight, "bias": bias}, source, target, HEADS)
        assert list(found) == ["weight", "bias"]
        for key in found:
            np.testing.assert_array_equal(found[key], expected[key])


def test_lists_are_arrays():
    rows = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    np.testing.assert_array_equal(tc.convert.packing(rows, "qkv", "head", 1), rows)
    np.testing.assert_array_equal(tc.convert.packing([[r] for r in rows], "separate", "qkv", 1), rows)


def test_widths_of_their_own(rng):
    parts = tuple(rng.standard_normal((6, c)) for c in (4, 5, 7))
    kernels = tc.convert.packing(parts, "separate", "keras", 3)
    assert [k.shape for k in kernels] == [(4, 3, 2), (5, 3, 2), (7, 3, 2)]
    for a, b in zip(tc.convert.packing(kernels, "keras", "separate", 3), parts, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match=r"target 'qkv' is one array .*\(6, 4\), \(6, 5\), \(6, 7\)"):
        tc.convert.packing(parts, "separate", "qkv", 3)


def test_the_same_attention_from_every_order(rng):
    """The layers that own the orders agree on the same weights: the tutorial's and PyTorch's, packed and separate."""
    ours = tc.MultiheadAttention(8, 8, 2)
    ours.qkv_proj.bias.data.copy_(rng.standard_normal(24).astype(np.float32))
    x = rng.standard_normal((3, 5, 8)).astype(np.float32)
    expected = ours(x)
    out = {f"out_proj.{k}": v for k, v in ours.o_proj.state_dict().items()}
    packed = tc.convert.packing(ours.qkv_proj.state_dict(), "head", "qkv", 2)
    torch_like = tc.nn.MultiheadAttention(8, 2, batch_first=True)
    torch_like.load_state_dict({"in_proj_weight": packed["weight"], "in_proj_bias": packed["bias"], **out})
    np.testing.assert_allclose(torch_like(x, x, x)[0], expected, rtol=0, atol=2e-6)
    q, k, v = tc.convert.packing(packed["weight"], "qkv", "keras", 2)
    b = tc.convert.packing(packed["bias"], "qkv", "keras", 2)
    heads = [
        np.einsum("btc,chd->bhtd", x, np.asarray(w.numpy())) + np.asarray(c.numpy())[:, None] for w, c in zip((q, k, v), b, strict=True)
    ]
    values = tc.functional.scaled_dot_product_attention(*heads)
    np.testing.assert_allclose(ours.o_proj(values.transpose(0, 2, 1, 3).reshape(3, 5, 8)), expected, rtol=0, atol=2e-6)


def test_pytorch_tensors():
    torch = pytest.importorskip("torch")
    given = torch.tensor(names(False)["qkv"], requires_grad=True)
    np.testing.assert_array_equal(tc.convert.packing(given, "qkv", "head", HEADS), names(False)["head"])


@pytest.mark.parametrize(
    ("error", "words", "args"),
    [
        (ValueError, "source is 'torch'; expected one of 'head', 'per_head'", (np.zeros((6, 2)), "torch", "qkv", 1)),
        (ValueError, "target is None; expected one of", (np.zeros((6, 2)), "qkv", None, 1)),
        (ValueError, r"source is \['qkv'\]; expected one of", (np.zeros((6, 2)), ["qkv"], "head", 1)),
        (TypeError, "weights must be arrays, not NoneType", (None, "qkv", "head", 1)),
        (TypeError, "num_heads must be an int", (np.zeros((6, 2)), "qkv", "head", 2.0)),
        (ValueError, r"shape \(8, 2\); expected .* multiple of 3 num_heads = 6", (np.zeros((8, 2)), "qkv", "head", 2)),
        (ValueError, r"shape \(2, 6, 2\)", (np.zeros((2, 6, 2)), "qkv", "head", 2)),
        (ValueError, "got three: 'separate' or 'keras' was probably meant", ((np.zeros((2, 2)),) * 3, "qkv", "head", 2)),
        (ValueError, r"got one of shape \(6, 2\): 'head' or 'qkv' was probably meant", (np.zeros((6, 2)), "separate", "head", 2)),
        (ValueError, r"k has shape \(3, 2\); expected .* multiple of num_heads=2",
         ((np.zeros((2, 2)), np.zeros((3, 2)), np.zeros((2, 2))), "separate", "keras", 2)),
        (ValueError, r"q has shape \(4, 3, 2\); expected \(C, H, D\) or \(H, D\) with H = num_heads = 2",
         ((np.zeros((4, 3, 2)),) * 3, "keras", "qkv", 2)),
    ],
)  # fmt: skip
def test_errors(error, words, args):
    with pytest.raises(error, match=words):
        tc.convert.packing(*args)
