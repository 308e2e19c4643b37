"""Arrays that change after a call, or during it: the gradient is that of the call, and nothing is read or written outside the arrays.

What a backward reads of an ndarray argument is copied at the call. Of a Tensor that shares memory, indices, labels and masks are copied;
its floats stay shared.
"""

import ctypes
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core

F = tc.functional
FAR = 10**12


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def shared_by_dlpack(array):
    return tc.from_dlpack(array)


def exported(array):
    """A Tensor of its own memory, which an array shares: the array is changed."""
    t = tc.tensor(array)
    shared = np.from_dlpack(t)
    if not shared.flags.writeable:  # before NumPy 2.3
        memory = (ctypes.c_char * shared.nbytes).from_address(shared.ctypes.data)
        shared = np.ndarray(shared.shape, shared.dtype, memory, strides=shared.strides)
    array_of[id(t)] = shared
    return t


array_of: dict = {}
WAYS = {"array": lambda a: a, "as_tensor": tc.as_tensor, "dlpack": shared_by_dlpack, "exported": exported}


# name: what is computed from a leaf and one array of integers or bools; the shape of the leaf; the array; values that may be written
def index_cases():
    rng = np.random.default_rng(5)
    mask = rng.random((3, 4, 4)) < 0.6
    mask[..., 0] = True
    x = (3, 4)

    def written(leaf, i):
        target = tc.zeros(6, 4)
        target[i] = leaf[: len(i)]
        return target * tc.tensor(np.arange(24, dtype=np.float32).reshape(6, 4))

    def attention(leaf, **options):
        return F.scaled_dot_product_attention(leaf, leaf * 2.0, leaf + 1.0, **options)

    return {
        "embedding": (lambda w, i: F.embedding(i, w), (7, 4), np.array([0, 3, 6, 3])),
        "embedding int32": (lambda w, i: F.embedding(i, w), (7, 4), np.array([0, 3, 6, 3], np.int32)),
        "embedding strided": (lambda w, i: F.embedding(i, w), (7, 4), np.array([0, 3, 6, 3])[::2]),
        "cross_entropy": (lambda x, t: F.cross_entropy(x, t), (3, 4), np.array([0, 3, 1])),
        "cross_entropy smooth": (lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), (3, 4), np.array([0, 3, 1])),
        "cross_entropy ignored": (lambda x, t: F.cross_entropy(x, t, ignore_index=3), (3, 4), np.array([0, 3, 1])),
        "nll_loss": (lambda x, t: F.nll_loss(x, t), (3, 4), np.array([0, 3, 1])),
        "index": (lambda x, i: x[i], (7, 4), np.array([0, 3, 6, 3])),
        "index of two": (lambda x, i: x[i, i], (7, 7), np.array([0, 3, 6, 3])),
        "index by mask": (lambda x, m: x[m], x, rng.random(x) < 0.5),
        "assignment": (written, (7, 4), np.array([0, 3, 5])),
        "masked_fill": (lambda x, m: x.masked_fill(m if isinstance(m, tc.Tensor) else tc.as_tensor(m), 2.0), x, rng.random(x) < 0.5),
        "where": (lambda x, m: tc.where(m, x, 2.0), x, rng.random(x) < 0.5),
        "where of integers": (lambda x, m: tc.where(m, x, 2.0), x, rng.integers(0, 2, x)),
        "times integers": (lambda x, i: x * i, x, rng.integers(-4, 5, x)),
        "power of integers": (lambda x, i: (x * x + 1.0) ** i, x, rng.integers(0, 4, x)),
        "times bools": (lambda x, m: x * m, x, rng.random(x) < 0.5),
        "matmul of integers": (lambda x, i: x @ i, x, rng.integers(-4, 5, (4, 2))),
        "gather": (lambda x, i: x.gather(0, i), (7, 2), np.array([[0, 3], [6, 3]])),
        "scatter": (lambda x, i: tc.zeros(7, 2).scatter(0, i, x), (2, 2), np.array([[0, 3], [6, 2]])),
        "scatter_add": (lambda x, i: x.scatter_add(0, i, x[:2]), (7, 2), np.array([[0, 3], [6, 3]])),
        "rotary": (lambda x, p: F.rotary(x, p), (2, 3, 4), np.array([1, 5, 2])),
        "attention mask": (lambda x, m: attention(x, attn_mask=m), (3, 4, 6), mask),
        "attention broadcast mask": (lambda x, m: attention(x, attn_mask=m), (3, 4, 6), mask[:1, :1]),
        "attention key_lengths": (lambda x, n: attention(x, key_lengths=n), (3, 2, 4, 6), np.array([4, 1, 2])),
        "attention sequence_lengths": (lambda x, n: attention(x, sequence_lengths=n), (1, 2, 7, 6), np.array([4, 1, 2])),
        "attention causal_offset": (lambda x, n: attention(x, is_causal=True, causal_offset=n), (3, 2, 4, 6), np.array([0, 1, 2])),
        "scaled_dot_product": (lambda x, m: tc.scaled_dot_product(x, x * 2.0, x, m)[0], (3, 4, 6), mask),
        "scaled_dot_product by integers": (lambda x, m: tc.scaled_dot_product(x, x * 2.0, x, m)[0], (3, 4, 6), mask.astype(np.int64)),
        "one_hot": (lambda x, i: tc.as_tensor(F.one_hot(i, 4)) * x, (3, 4), np.array([0, 3, 1])),
        "mse_loss": (lambda x, t: F.mse_loss(x, tc.as_tensor(t).float()), (3,), np.array([0, 3, 1])),
        "custom_op": (lambda x, i: tc.custom_op(lambda x, i: x * i, lambda dy, x, i: (dy * i, None))(x, i), (4,), np.array([1, 2, 3, 4])),
    }


def gradient(function, leaf, array, way, change):
    """The leaf's gradient when the array is changed between forward and backward."""
    array = array.copy() if array.flags.c_contiguous else np.repeat(array, 2)[::2]
    given = WAYS[way](array)
    w = tc.tensor(leaf, requires_grad=True)
    y = function(w, given)
    memory = array_of.pop(id(given), array)
    if change is not None:
        memory[...] = change(memory)
    (y * tc.tensor(np.linspace(1, 2, y.numel(), dtype=np.float32).reshape(y.shape))).sum().backward()
    return w.grad.numpy()


CHANGES = {
    "far": lambda a: ~a if a.dtype == bool else min(FAR, np.iinfo(a.dtype).max),
    "negative": lambda a: ~a if a.dtype == bool else -1,
    "in range": lambda a: ~a if a.dtype == bool else np.roll(a, 1).reshape(a.shape),
}


def check_gradient(function, shape, array, way, change, rng):
    leaf = floats(rng, *shape)
    expected = gradient(function, leaf, array, "array", None)
    np.testing.assert_array_equal(gradient(function, leaf, array, way, CHANGES[change]), expected)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", index_cases())
def test_the_gradient_is_that_of_the_call(case, way, change, rng):
    check_gradient(*index_cases()[case], way, change, rng)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("case", index_cases())
def test_a_tensor_of_indices_that_is_written_to(case, change, rng):
    """In its own memory, which is not copied: the gradient is that of the call, or refused."""
    function, shape, array = index_cases()[case]
    leaf = floats(rng, *shape)
    expected = gradient(function, leaf, array, "array", None)
    w, given = tc.tensor(leaf, requires_grad=True), tc.tensor(array)
    y = function(w, given)
    given.copy_(tc.tensor(np.broadcast_to(CHANGES[change](array), array.shape).astype(array.dtype)))
    try:
        (y * tc.tensor(np.linspace(1, 2, y.numel(), dtype=np.float32).reshape(y.shape))).sum().backward()
    except RuntimeError as error:
        assert "was written in place after it was saved" in str(error)
        return
    np.testing.assert_array_equal(w.grad.numpy(), expected)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", WAYS)
def test_a_planted_defect_is_found(way, change, rng):
    """An op whose backward reads the caller's memory: it is no argument of the op, so that nobody copies it."""

    def times(x, i):
        memory = np.asarray(i)
        return tc.custom_op(lambda x: x * memory, lambda dy, x: dy * tc.tensor(memory.astype(np.float32)))(x)

    array = np.array([1, 2, 3, 4])
    with pytest.raises(AssertionError, match="not equal"):
        check_gradient(times, (4,), array, way, change, rng)


# ---- floats --------------------------------------------------------------------------------------------------------------------

# What has to be in a row of the table for a recorded call with arrays of shape (4, 4), besides defaults.
OPTIONS = {"normalized_shape": (4,), "num_heads": 1, "axis": 1, "p": 0.5, "value": 1.0, "seed": 1, "call": 2, "t": 1, "dim": 0}
SHAPES = {
    "weight": {
        "layer_norm": (4,),
        "add_layer_norm": (4,),
        "rms_norm": (4,),
        "qkv_projection": (12, 4),
        "cross_entropy": (4,),
        "nll_loss": (4,),
    }
}
SHAPES |= {"bias": {"layer_norm": (4,), "add_layer_norm": (4,), "linear": (4,), "qkv_projection": (12,)}}


MANY = """add sub mul div pow maximum minimum swiglu geglu where matmul linear qkv_projection layer_norm add_layer_norm rms_norm attention
scaled_dot_product mse_loss binary_cross_entropy binary_cross_entropy_with_logits cross_entropy embedding
leaky_relu elu softplus smooth_l1_loss kl_div nll_loss"""


def recorded_calls():
    """(op, the argument that is a leaf) for the ops of the table that record a call of floats."""
    for name, op in vars(_core).items():
        if isinstance(op, _core.op) and not name.endswith(("_forward", "_backward", "_step")):
            tensors = [word.split(":")[0] for word in op.spec.split() if ":" in word and word.split(":")[1][0] in "ta"]
            yield from (
                (name, leaf) for leaf in tensors if leaf not in ("key_lengths", "sequence_lengths", "indices", "target", "positions")
            )


def make_arguments(name, rng):
    """The arguments by name; None for those that are left out."""
    given = {}
    for word in getattr(_core, name).spec.split():
        if ":" not in word:
            continue
        argument, kind = word.split(":", 1)
        if kind[0] in "ta" and argument not in ("key_lengths", "sequence_lengths", "positions", "padding_idx"):
            shape = SHAPES.get(argument, {}).get(name, (4, 4))
            given[argument] = np.abs(rng.standard_normal(shape)).astype(np.float32) % 0.9 + 0.05
        elif "=" not in kind and argument in OPTIONS:
            given[argument] = OPTIONS[argument]
    for mask in {"condition", "mask"} & set(given) if name != "scaled_dot_product" else ():
        given[mask] = rng.random((4, 4)) < 0.5
    if name == "embedding":
        given["indices"] = np.array([0, 2, 1])
    if name in ("cross_entropy", "nll_loss"):
        given["target"] = np.array([0, 2, 1, 0])
    if name == "global_max_pool1d":
        given["x"] = floats(rng, 2, 3, 4)
    return given


def float_gradient(name, leaf, given, change):
    arrays = {key: value.copy() for key, value in given.items() if isinstance(value, np.ndarray) and key != leaf}
    w = tc.tensor(given[leaf], requires_grad=True)
    results = getattr(_core, name)(**{**given, **arrays, leaf: w})
    results = [r for r in (results if isinstance(results, tuple) else [results]) if isinstance(r, tc.Tensor) and r.requires_grad]
    if not results:
        return None
    if change:
        for array in arrays.values():
            array[...] = np.roll(array, 1, 0) if array.dtype != np.float32 else np.nan
    total = sum((r * 1.5).sum() for r in results)
    total.backward()
    return w.grad.numpy()


def test_floats_of_array_arguments_are_those_of_the_call(rng):
    """Every op of the table, every argument as the leaf, all others arrays that become NaN after the call."""
    seen = set()
    for name, leaf in recorded_calls():
        given = make_arguments(name, rng)
        if leaf not in given:
            continue
        try:
            expected = float_gradient(name, leaf, given, False)
        except (TypeError, ValueError, NotImplementedError):
            continue  # not an argument that has a gradient, or not of this shape
        if expected is None:
            continue
        seen.add(name)
        np.testing.assert_array_equal(float_gradient(name, leaf, given, True), expected, err_msg=f"{name}, gradient of {leaf}")
    assert seen >= set(MANY.split()), seen


def test_floats_of_as_tensor_stay_shared():
    """As its docstring says: the gradient is that of what the array contains now."""
    array = np.ones(3, np.float32)
    w = tc.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = w * tc.as_tensor(array)
    array[:] = 5
    y.sum().backward()
    assert w.grad.tolist() == [5.0] * 3


def test_an_array_given_twice_and_a_repeated_one(rng):
    """A value saved twice is copied once, and an axis that repeats its elements still does: no copy larger than the array."""
    x = floats(rng, 4, 4)
    leaf = floats(rng, 4, 4)
    big = np.broadcast_to(np.array([True, False, True, True]), (1 << 20, 4))
    w = tc.tensor(np.ones(4, np.float32), requires_grad=True)
    y = tc.where(big, w, 0.0)
    y.sum().backward()
    assert w.grad.tolist() == [1 << 20, 0, 1 << 20, 1 << 20]
    q = tc.tensor(leaf, requires_grad=True)
    given = x.copy()
    y = F.scaled_dot_product_attention(q, given, given)
    given[:] = np.nan
    y.sum().backward()
    again = tc.tensor(leaf, requires_grad=True)
    F.scaled_dot_product_attention(again, x, x).sum().backward()
    np.testing.assert_array_equal(q.grad.numpy(), again.grad.numpy())


def test_arguments_of_modules(rng):
    """Arrays next to Tensors become Tensors in Module.__call__, and count as arguments of a call."""

    class Scale(tc.nn.Module):
        def forward(self, x, scale, rows):
            return (x * scale)[rows].sum()

    x, scale, rows = tc.tensor(floats(rng, 5), requires_grad=True), np.arange(5, dtype=np.float32), np.array([1, 3])
    y = Scale()(x, scale, rows)
    scale[:] = np.nan
    rows[:] = 0
    y.backward()
    assert x.grad.tolist() == [0.0, 1.0, 0.0, 3.0, 0.0]

    block = tc.EncoderBlock(8, 2, 16).eval()
    inputs, mask = floats(rng, 2, 5, 8), rng.random((2, 5, 5)) < 0.7
    gradients = []
    for change in (False, True):
        given, x = mask.copy(), tc.tensor(inputs, requires_grad=True)
        y = block(x, mask=given)
        if change:
            given[:] = ~given
        y.sum().backward()
        gradients.append(x.grad.numpy())
    np.testing.assert_array_equal(*gradients)


def test_arguments_of_custom_ops():
    op = tc.custom_op(lambda x, a, i: x * a * i, lambda dy, x, a, i: (dy * a * i, None, None))
    a, i = np.array([2.0, 3.0], np.float32), np.array([1, 2])
    x = tc.tensor([1.0, 1.0], requires_grad=True)
    for given in (i, tc.as_tensor(i)):
        x.grad = None
        y = op(x, a, given)
        a[:], i[:] = 7, FAR
        y.sum().backward()
        assert x.grad.tolist() == [2.0, 6.0]
        a[:], i[:] = (2, 3), (1, 2)


def test_what_is_kept_of_an_array_is_a_copy():
    """Gradients that are assigned, seeds of a backward, buffers, parameters and what is loaded."""
    array = np.ones(3, np.float32)
    x, buffers, linear = tc.tensor(np.ones(3, np.float32), requires_grad=True), tc.nn.Module(), tc.nn.Linear(3, 1, bias=False)
    x.grad = array
    buffers.register_buffer("mask", array)
    parameter = tc.nn.Parameter(array)
    linear.load_state_dict({"weight": array[None]})
    y = tc.tensor(np.ones(3, np.float32), requires_grad=True)
    y.backward(array)
    z = tc.tensor(np.ones((3, 1), np.float32), requires_grad=True)
    z.reshape(3).backward(array)
    array[:] = 7
    for kept in (x.grad, buffers.mask, parameter, linear.weight, y.grad, z.grad):
        assert (kept == 1).all(), kept


# ---- during the call ---------------------------------------------------------------------------------------------------------------

RACES = {
    "embedding": "y = F.embedding(i, W); y.sum().backward()",
    "embedding without a gradient": "F.embedding(i, W.detach())",
    "cross_entropy": "F.cross_entropy(X, i).backward()",
    "cross_entropy weights": "F.cross_entropy(X, i, weight=weights).backward()",
    "one_hot": "F.one_hot(i, 8)",
    "one_hot counted": "F.one_hot(i)",
    "index": "X[i].sum().backward()",
    "assignment": "X.detach()[i] = 1.0",
    "key_lengths": "F.scaled_dot_product_attention(Q, Q, Q, key_lengths=lengths).sum().backward()",
    "sequence_lengths": "F.scaled_dot_product_attention(Q[:1], Q[:1], Q[:1], sequence_lengths=lengths[:1]).sum().backward()",
    "rotary": "F.rotary(Q, lengths[:5]).sum().backward()",
    "gather": "X.gather(1, i.reshape(n, 1)).sum().backward()",
    "scatter": "X.scatter(1, i.reshape(n, 1), X[:, :1]).sum().backward()",
    "scatter_add": "X.scatter_add(1, i.reshape(n, 1), X[:, :1]).sum().backward()",
}


@pytest.mark.parametrize("own", [False, True], ids=["array", "own memory"])
@pytest.mark.parametrize("case", RACES)
def test_indices_that_change_during_the_call(case, own):
    """Another thread makes them wrong and right again. Errors are expected, and wrong values; reading or writing elsewhere is not."""
    program = f"""
    import threading, time
    import numpy as np, transformer_c as tc
    F = tc.functional
    n = 40000
    array = np.arange(n) % 8
    rows = np.full(512, 5)
    own = {own}
    i = tc.tensor(array) if own else array
    lengths = tc.tensor(rows) if own else rows
    W = tc.tensor(np.ones((8, 16), np.float32), requires_grad=True)
    X = tc.tensor(np.ones((n, 8), np.float32), requires_grad=True)
    Q = tc.tensor(np.ones((512, 1, 5, 4), np.float32), requires_grad=True)
    weights = tc.ones(8)
    stop = False
    def flip():
        right, wrong = tc.tensor(array.copy()), tc.full((n,), {FAR})
        while not stop:
            for given, a, b in ((i, wrong, right), (lengths, {FAR}, 5)):
                if own:
                    with tc.no_grad():
                        given.copy_(tc.as_tensor(a)), given.copy_(tc.as_tensor(b))
                else:
                    given[:] = a if isinstance(a, int) else {FAR}
                    given[:] = b if isinstance(b, int) else b.numpy()
    thread = threading.Thread(target=flip)
    thread.start()
    end, count = time.monotonic() + 0.7, 0
    while time.monotonic() < end:
        W.grad = X.grad = Q.grad = None
        try:
            {RACES[case]}
        except (IndexError, ValueError, RuntimeError, MemoryError):
            pass
        count += 1
    stop = True
    thread.join()
    i[:] = tc.tensor(np.arange(n) % 8) if own else np.arange(n) % 8
    lengths[:] = 5
    {RACES[case]}
    print("done", count)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "done" in done.stdout, done.stderr[-2000:]


def test_named_arguments_of_custom_ops():
    op = tc.custom_op(lambda x, *, i: x * i, lambda dy, x, *, i: dy * i)
    x, i = tc.ones(3, requires_grad=True), np.array([1.0, 2.0, 3.0], np.float32)
    y = op(x, i=i)
    i[:] = 9
    y.sum().backward()
    assert x.grad.tolist() == [1, 2, 3]
