"""When memory is freed, what keeps it alive, and threads."""

import gc
import subprocess
import sys
import textwrap
import threading
import tracemalloc
import weakref

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core


def in_use():
    gc.collect()
    return _core.memory_stats()["in_use"]


def test_a_forward_without_a_backward_frees_itself():
    w = tc.ones(64, 64, requires_grad=True)

    def forward():
        y = w
        for _ in range(20):
            y = (y * 2 + w)[::-1].reshape(64, 64).T
        return y.sum()

    forward()
    before = in_use()
    for _ in range(5):
        forward()
    assert in_use() == before


def test_a_backward_leaves_the_gradient_alone():
    w = tc.ones(1000, requires_grad=True)
    (w * w).sum().backward()
    w.grad = None
    before = in_use()
    for _ in range(5):
        x = w * 1.0
        x[::2] = 0.0
        x[[1, 3]] += 1.0
        x.sum().backward()
        w.grad = None
        del x
    assert in_use() == before


def refused(call, *errors):
    with pytest.raises(errors or (ValueError, IndexError, TypeError, RuntimeError)):
        call()


def renewed_views(w):
    y = w * 1.0
    v = y[0]
    for _ in range(3):
        y *= 2.0
        assert v.requires_grad
        v += 1.0
        y[1] = v * 2.0
    (y.sum() + v.sum()).backward()


def hooks_and_kept_gradients(w):
    y = w * 2.0
    y.retain_grad()
    handle = y.register_hook(lambda g: g * 2.0)
    w.register_hook(lambda g: None).remove()
    y.sum().backward(retain_graph=True)
    handle.remove()
    y.mul_(2.0)
    y.sum().backward()


def failing_backwards(w):
    y = w * w
    y.register_hook(lambda g: 1 / 0)
    refused(lambda: (y.sum() + (w * 3.0).sum()).backward(), ZeroDivisionError)
    frozen = tc.ones(3, requires_grad=True)
    z = (frozen * 2.0).sum() + w.sum()
    frozen.requires_grad = False
    z.backward()
    refused(lambda: tc.ones(2).backward())
    refused(lambda: w.backward())
    refused(z.backward)


def gradients_given(w):
    w.grad = np.ones(w.shape, np.float32)
    w.grad = tc.ones_like(w)
    refused(lambda: setattr(w, "grad", np.ones(3, np.float32)))
    refused(lambda: setattr(w, "grad", w))
    p = tc.ones(4, requires_grad=True)
    p.grad = p.detach()[:] * 1.0
    p.data = tc.ones(4, dtype="float64")
    q = tc.ones(4, requires_grad=True)
    optimizer = tc.optim.SGD([q], lr=0.1)
    optimizer.flat_gradients()
    (q * q).sum().backward()


def tensors_of_numbers(w):
    tc.tensor([[1, 2], [3, 4]]), tc.tensor(3.0), tc.as_tensor([1.0, 2.0]), tc.Tensor([1.0], requires_grad=True)
    w.detach() + [[1.0] * 4] * 5, tc.stack([[1.0], [2.0]]), tc.cat([w, [[1.0] * 4]])
    for bad in ("a", [1, "a"], [[1], [1, 2]], None, [2**70]):
        refused(lambda bad=bad: tc.tensor(bad), ValueError, TypeError, OverflowError)
        refused(lambda bad=bad: w + bad, ValueError, TypeError, OverflowError)


GIVEN_BACK = {
    "reading": lambda w: [w[i] for i in (0, [0, 1], np.array([1, -1]), tc.tensor([2]), w.detach() > 0, (None, ..., True), slice(1, 3))],
    "reading nowhere": lambda w: [refused(lambda i=i: w[i]) for i in (9, [0, 9], ([0], 9), ([0], "a"), np.ones(2, bool), (0, 0, 0), 1.5)],
    "writing": lambda w: [(w * 1.0).__setitem__(i, v) for i in (0, [0, 1], ([0, 0], [1, 1])) for v in (1.0, [2.0], np.ones(1), w[0, :1])],
    "writing nowhere": lambda w: [refused(lambda i=i: (w * 1.0).__setitem__(i, [1.0, 2.0, 3.0])) for i in (0, 9, [0, 9], "a", ([0], 9))],
    "questions": lambda w: (1.0 in w, list(w), w.tolist(), w.sum().item(), np.asarray(w.detach()), bool(w.detach().any()), len(w)),
    "renewed views": renewed_views,
    "hooks and kept gradients": hooks_and_kept_gradients,
    "failing backwards": failing_backwards,
    "gradients given": gradients_given,
    "tensors of numbers": tensors_of_numbers,
    "a gradient of several": lambda w: (w * w + w.exp() * w.sum(0) + w[1] + w.T.reshape(5, 4)).sum().backward(),
    "a graph kept": lambda w: [y.backward(retain_graph=True) for y in [(w * w).sum()] * 3],
    "pieces": lambda w: sum(p.sum() for p in (*w.unbind(), *w.split(2), *w.chunk(3, 1))).backward(),
}


@pytest.mark.parametrize("name", GIVEN_BACK)
def test_all_memory_is_given_back(name):
    w = tc.ones(5, 4, requires_grad=True)

    def use():
        GIVEN_BACK[name](w)
        w.grad = None

    use()
    before = in_use()
    for _ in range(3):
        use()
    assert in_use() == before


ARRAYS_GIVEN_BACK = {
    "reading": (np.array([0, 1]), lambda w, a: w[a]),
    "reading by a mask": (np.array([True, False, True, True, False]), lambda w, a: w[a]),
    "reading nowhere": (np.array([0, 9]), lambda w, a: refused(lambda: w[a])),
    "reading by floats": (np.ones(2), lambda w, a: refused(lambda: w[a])),
    "writing": (np.array([0, 1]), lambda w, a: [(w * 1.0).__setitem__(a, 1.0), (w * 1.0).__setitem__((a, a), a)]),
    "computing": (np.ones(4, np.float32), lambda w, a: (w + a, a * w, tc.add(a, a), tc.F.linear(a, w), tc.where(a > 0, w, a))),
    "refused": (
        np.ones(3, np.float32),
        lambda w, a: [refused(lambda: w + a), refused(lambda: tc.F.linear(a, w)), refused(lambda: tc.cat([a, w]))],
    ),
    "making": (np.ones((5, 4), np.float32), lambda w, a: [tc.tensor(a), tc.as_tensor(a), tc.Tensor(a), setattr(w, "grad", a)]),
    "other dtypes": (np.ones(4, np.int16), lambda w, a: [tc.tensor(a), w + a, a in w.detach(), refused(lambda: setattr(w, "grad", a))]),
}


@pytest.mark.parametrize("name", ARRAYS_GIVEN_BACK)
def test_arrays_are_given_back(name):
    array, use = ARRAYS_GIVEN_BACK[name]
    w = tc.ones(5, 4, requires_grad=True)
    use(w, array)
    gc.collect()
    before = sys.getrefcount(array)
    for _ in range(3):
        use(w, array)
    gc.collect()
    assert sys.getrefcount(array) == before


def test_arrays_made_of_lists_are_freed():
    numbers, x = [0] * 50_000, tc.zeros(50_000)

    def use():
        tc.tensor(numbers), tc.as_tensor(numbers), x + numbers, x[numbers], tc.maximum(numbers, numbers)
        x[numbers] = numbers
        refused(lambda: x[:2] + numbers)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = use()
        use()
        assert use() - before < 100_000
    finally:
        tracemalloc.stop()


def test_a_deep_graph_is_freed_without_a_deep_stack():
    x = y = tc.ones(1, requires_grad=True)
    for _ in range(200_000):
        y = y.view(1)
    del y
    for _ in range(50_000):
        x = x.reshape(1)
    x.backward()


CHAINS = {
    "numpy": ("tc.zeros(2)", "tc.as_tensor(a.numpy())"),
    "asarray": ("tc.zeros(2)", "tc.as_tensor(np.asarray(a))"),
    "a view": ("tc.zeros(2)", "tc.as_tensor(a.detach().numpy()[:]).view(2)"),
    "the buffer protocol": ("tc.zeros(2)", "tc.as_tensor(np.asarray(memoryview(a)))"),
    "DLPack": ("tc.zeros(2)", "tc.from_dlpack(np.from_dlpack(a))"),
    "functions of a graph": (
        "tc.zeros(2, requires_grad=True)",
        "_core.record_custom([tc.ones(2, requires_grad=True)], (np.ones(2, np.float32),), lambda dy, a=a: dy)",
    ),
}


def on_a_small_stack(work):
    """Runs these lines, a program of its own, on a thread with a stack of 256 kB; nothing of it is left."""
    program = f"""
import threading
import numpy as np, transformer_c as tc
from transformer_c import _core
def work():
{textwrap.indent(textwrap.dedent(work), "    ")}
    print("freed")
threading.stack_size(256 * 1024)
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert _core.memory_stats()["in_use"] == 0
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == "freed\n", done.stderr[-2000:]


def chain(kind, length):
    """Makes a chain of objects each of which owns the next, and drops it."""
    first, link = CHAINS[kind]
    on_a_small_stack(f"""
        a = {first}
        for _ in range({length}):
            a = {link}
            if isinstance(a, tuple): a, = a
        del a
    """)


@pytest.mark.parametrize("kind", CHAINS)
def test_a_long_chain_of_owners_is_freed_without_a_deep_stack(kind):
    if kind == "DLPack" and np.lib.NumpyVersion(np.__version__) < "2.1.0":
        pytest.skip("np.from_dlpack makes arrays that are read-only, which DLPack before version 1 cannot say")
    chain(kind, 30_000)


def test_a_million_owners():
    chain("numpy", 1_000_000)


def test_second_backward():
    x = tc.ones(2, requires_grad=True)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, 4]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()
    assert x.grad.tolist() == [4, 4]


def test_backward_of_what_recorded_nothing():
    with pytest.raises(RuntimeError, match="recorded nothing"):
        tc.ones(1).sum().backward()
    with pytest.raises(RuntimeError, match="one element"):
        tc.ones(2, requires_grad=True).backward()
    with pytest.raises(ValueError, match=r"gradient has shape \(3,\)"):
        tc.ones(2, requires_grad=True).backward(tc.ones(3))


def test_one_object_a_tensor():
    x = tc.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    grad = x.grad
    assert x.grad is grad
    (x * 2).sum().backward()
    assert x.grad is grad and grad.tolist() == [4, 4]
    ref = weakref.ref(grad)
    x.grad = None
    assert x.grad is None and grad.tolist() == [4, 4]
    del grad
    assert ref() is None


def test_an_object_made_while_another_dies():
    x = tc.ones(2, requires_grad=True)
    x.sum().backward()
    seen = []
    kept = x.grad
    watch = weakref.ref(kept, lambda _: seen.append(x.grad.tolist()))
    del kept
    assert seen == [[1.0, 1.0]] and watch() is None and x.grad.tolist() == [1.0, 1.0]


def test_graphs_on_several_threads_share_a_leaf():
    w = tc.ones(100, requires_grad=True)
    errors = []

    def work():
        try:
            for _ in range(20):
                y = (w * 2)[::2].clone()
                y[0] = 1.0
                y.sum().backward()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    expected = np.zeros(100)
    expected[2::2] = 2 * 20 * 4
    np.testing.assert_array_equal(w.grad.numpy(), expected)


def test_recording_is_a_threads_own():
    seen = []
    with tc.no_grad():
        t = threading.Thread(target=lambda: seen.append(tc.is_grad_enabled()))
        t.start()
        t.join()
    assert seen == [True]


def test_an_allocation_that_fails_changes_nothing():
    x = tc.zeros(100)
    y = tc.ones(100, requires_grad=True) * 1
    version = y.tolist()
    for n in range(1, 6):
        _core.memory_fail_after(n)
        try:
            y[[0, 1]] = 5.0
        except MemoryError:
            assert y.tolist() == version
            assert y.sum().item() == 100.0
        else:
            break
        finally:
            _core.memory_fail_after(0)
    assert not x.numpy().any()


def test_assigned_gradients_make_no_circle():
    before = in_use()
    x, y = tc.ones(1000, requires_grad=True), tc.ones(1000)
    with pytest.raises(ValueError, match="own gradient"):
        x.grad = x
    x.grad = x * 2
    assert not x.grad.requires_grad
    y.grad, x.grad = x, y
    del x, y
    assert in_use() == before


def test_a_long_chain_of_gradients_is_freed_without_a_deep_stack():
    first = last = tc.ones(1)
    for _ in range(300_000):
        last.grad = tc.ones(1)
        last = last.grad
    del first, last


# ---- the gradient of a leaf is its own ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 4), (1, 3, 4), (4,)], ids=str)
def test_leaves_do_not_share_a_gradient(shape):
    """The gradient of a sum is the same array for both terms: each leaf has a copy, or the second backward would add it twice."""
    a, b = tc.tensor(np.ones((3, 4)), requires_grad=True), tc.tensor(np.ones(shape), requires_grad=True)
    times = 12 // b.numpy().size
    for n in (1, 2):
        ((a + b) * 2.0).sum().backward()
        np.testing.assert_array_equal(a.grad.numpy(), np.full((3, 4), 2.0 * n))
        np.testing.assert_array_equal(b.grad.numpy(), np.full(shape, 2.0 * n * times))
    a.grad.fill_(0.0)
    np.testing.assert_array_equal(b.grad.numpy(), np.full(shape, 4.0 * times))


def test_clipping_scales_every_gradient_once():
    a, b = (tc.tensor(np.ones((3, 4)), requires_grad=True) for _ in range(2))
    ((a + b) * 100.0).sum().backward()
    tc.nn.utils.clip_grad_norm_([a, b], 1.0)
    norm = np.sqrt((a.grad.numpy() ** 2).sum() + (b.grad.numpy() ** 2).sum())
    assert abs(norm - 1) < 1e-5


@pytest.mark.parametrize("given", ["tensor", "array", "custom op"])
def test_what_the_caller_gave_is_not_kept_as_the_gradient(given):
    a, upstream = tc.tensor(np.ones((3, 4)), requires_grad=True), np.ones((3, 4))
    if given == "custom op":
        tc.custom_op(lambda x: 2 * x, lambda dy, x: upstream)(a).sum().backward()
    else:
        dy = tc.tensor(upstream) if given == "tensor" else tc.as_tensor(upstream)
        (a + 1.0).backward(dy)
        a.grad.fill_(5.0)
        np.testing.assert_array_equal(dy.numpy(), np.ones((3, 4)))
        a.grad.fill_(1.0)
        dy.fill_(7.0)
    upstream[:] = 7
    np.testing.assert_array_equal(a.grad.numpy(), np.ones((3, 4)))


def test_a_deep_chain_of_leaves_with_a_late_history():
    """Each leaf gets its history after an op has kept it."""
    on_a_small_stack("""
        before = None
        for i in range(100_000):
            x = tc.ones(2, requires_grad=True)
            y = x * 2
            x.requires_grad_(False)
            if before is not None:
                x[:] = before
            before = y
        del x, y, before
    """)


@pytest.mark.parametrize("shared_first", [True, False])
def test_a_gradient_that_others_see_is_added_to_one_that_nobody_sees(shared_first):
    """The sum of both goes into the memory of the second: no third one is made, and the caller's dy stays what it was."""
    n = 1 << 18
    x, dy = tc.arange(n).float().requires_grad_(), tc.ones(n)
    y = tc.relu(x) + x if shared_first else x + tc.relu(x)
    _core.memory_reset_peak()
    before = _core.memory_stats()["in_use"]
    y.backward(dy)
    assert _core.memory_stats()["peak_in_use"] - before < 1.5 * x.nbytes
    np.testing.assert_array_equal(dy.numpy(), 1)
    np.testing.assert_array_equal(x.grad.numpy(), 1 + (np.arange(n) > 0))


def test_what_was_frozen_after_the_forward_gets_no_gradient():
    """As in PyTorch; its gradient of before stays."""
    layer = tc.nn.Linear(2, 2)
    y = layer(tc.ones(1, 2))
    layer.weight.requires_grad_(False)
    layer.bias.grad = tc.ones(2)
    y.sum().backward()
    assert layer.weight.grad is None and layer.bias.grad.tolist() == [2.0, 2.0]


def frozen_since(x, w):
    y = (x * 2.0 + w).sum()
    x.requires_grad_(False)
    y.backward()
    x.requires_grad_(True)


def written_through_a_view(x, w):
    y = x * 2.0
    y[1:].mul_(w[1:])
    y.sum().backward()


def taken_by_a_view(x, w):
    y = x * 2.0
    part = y[:2]
    y.mul_(w)
    part.sum().backward()


def assigned_to_points(x, w):
    y = x * 2.0
    y[[3, 1]] = w[:2]
    y[x.detach() > 2.0] = 0.0
    y.sum().backward()


def refused_for_an_empty_row(x, w):
    q = (x * w).reshape(1, 1, 8, 8)
    with pytest.raises(ValueError, match="may attend to no key"):
        _core.attention(q, q, q, attn_mask=np.zeros((8, 8), bool), empty_rows="raise")


def attended(x, w):
    q = (x * w).reshape(1, 4, 4, 4).transpose(1, 2)
    _core.scaled_dot_product_values(q, q, q, np.ones((4, 4), np.int32)).sum().backward()


def concatenated(x, w):
    tc.cat([x.double(), w, x.half()]).sum().backward()


def clamped(x, w):
    tc.clamp(x * 2.0, w * 0.5, w).sum().backward()


def convolved(x, w):
    tc.nn.functional.conv1d(x.reshape(1, 2, 32), w[:12].reshape(2, 2, 3), padding=2, dilation=2).sum().backward()


WORK = [
    frozen_since,
    written_through_a_view,
    taken_by_a_view,
    assigned_to_points,
    refused_for_an_empty_row,
    attended,
    concatenated,
    clamped,
    convolved,
]


@pytest.mark.parametrize("work", WORK)
def test_a_backward_leaves_no_memory(work):
    x, w = (tc.ones(64, requires_grad=True) for _ in range(2))
    used = []
    for _ in range(4):
        work(x, w)
        x.grad = w.grad = None
        used.append(_core.memory_stats()["in_use"])
    assert used[1] == used[3]
