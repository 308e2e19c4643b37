"""Writing in place through views: the base and other views get the history, as in PyTorch, or are refused."""

import gc
import random
import threading
import weakref

import numpy as np
import pytest
import transformer_c as tc

WRITES = {
    "method": lambda y, c: y[0].add_(c),
    "two steps": lambda y, c: y[0][1].mul_(c),
    "operator in two steps": lambda y, c: exec("y[0][1:] *= c", {"y": y, "c": c}),
    "item of a view": lambda y, c: y[1].__setitem__(2, c),
    "points of a view": lambda y, c: y[:, 1:].__setitem__(([0, 2], [1, 0]), c.double()),
    "column": lambda y, c: y.transpose(0, 1)[1].copy_(c * y[:, 0].clone()),
    "steps": lambda y, c: y[::2, ::3].sub_(c),
    "other shape": lambda y, c: y.view(2, 6)[1, 1:].mul_(c),
    "new axis": lambda y, c: y.unsqueeze(1)[1:].div_(c),
    "zeros": lambda y, c: y[1].zero_(),
    "number": lambda y, c: y[:, 0].fill_(3.0),
    "itself": lambda y, c: y[1].mul_(y[1].clone()),
    "all": lambda y, c: y[...].mul_(c),
    "two views": lambda y, c: (y[0].mul_(c), y[1].add_(y[0])),
    "a view of a view, then its base": lambda y, c: (y[1:][0].mul_(c), y.mul_(c)),
    "a kept view, twice": lambda y, c: (lambda row: (row.mul_(c), row.add_(c)))(y[2]),
    "siblings": lambda y, c: (lambda a, b: (a.mul_(c), b.mul_(a.exp())))(y[0], y[1]),
    "the base, then a view from before": lambda y, c: (lambda row: (y.mul_(c), row.add_(row)))(y[1]),
}


def results(library, write, recorded):
    rng = np.random.default_rng(3)
    x = library.tensor(rng.normal(size=(3, 4)), requires_grad=True)
    c = library.tensor(rng.normal(), requires_grad=True)
    y = x * 2 if recorded else library.tensor(rng.normal(size=(3, 4)))
    before = y[1:, 1:]
    write(y, c)
    loss = (y * y * y).sum() + (before * c).sum() + x.sum() + c
    loss.backward()
    return [value.detach().numpy() for value in (y, before, x.grad, c.grad)]


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("name", WRITES)
def test_gradients_are_pytorchs(name, recorded):
    torch = pytest.importorskip("torch")
    try:
        expected = results(torch, WRITES[name], recorded)
    except RuntimeError as error:  # PyTorch calls a view without a history a leaf, once its base got one
        assert not recorded and "a leaf Variable that requires grad is being used in an in-place operation" in str(error)
        return
    for ours, theirs in zip(results(tc, WRITES[name], recorded), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", WRITES)
def test_gradients_are_those_of_differences(name):
    def f(x, c):
        y = x * 2
        before = y[1:, 1:]
        WRITES[name](y, c)
        return (y * y * y).sum() + (before * c).sum()

    rng = np.random.default_rng(4)
    assert tc.testing.gradcheck(f, [tc.tensor(rng.normal(size=shape), requires_grad=True) for shape in ((3, 4), ())])


def random_program(rng):
    """Statements over t[0], t[1], ..., some of which are views of others, and c."""
    lines, shapes = ["t = [x * 1.5, lib.zeros((3, 4, 2), dtype=lib.float64)]"], [(3, 4, 2)] * 2
    for _ in range(rng.randrange(4, 12)):
        i = rng.randrange(len(shapes))
        shape = shapes[i]
        axis = rng.randrange(len(shape))
        first = rng.randrange(shape[axis])
        last = rng.randrange(first, shape[axis]) + 1
        if rng.random() < 0.45 and len(shape) < 5:
            other = rng.randrange(len(shape))
            swapped = list(shape)
            swapped[axis], swapped[other] = swapped[other], swapped[axis]
            colons = ":, " * axis
            source, new = rng.choice(
                [
                    (f"[{colons}{first}:{last}]", (*shape[:axis], last - first, *shape[axis + 1 :])),
                    (f"[{colons}::2]", (*shape[:axis], (shape[axis] + 1) // 2, *shape[axis + 1 :])),
                    (f".transpose({axis}, {other})", tuple(swapped)),
                    (".unsqueeze(0)", (1, *shape)),
                    (".contiguous()", shape),
                    (".tanh()", shape),
                ]
            )
            lines.append(f"t.append(t[{i}]{source})")
            shapes.append(new)
        else:
            value = rng.choice(["c", "0.5", f"t[{rng.choice([k for k, s in enumerate(shapes) if s == shape])}].tanh()"])
            row = rng.randrange(shape[0])
            writes = [f".mul_({value})", f".add_({value})", f".copy_({value} + c)", f"[{row}].mul_(c)", f"[{row}:][0] -= c", f"[{row}] = c"]
            lines.append(f"t[{i}]{rng.choice(writes)}")
    return lines


def test_random_programs_have_the_gradients_of_differences():
    refused = 0
    for seed in range(150):
        lines = random_program(random.Random(seed))

        def f(x, c, lines=lines):
            names = {"x": x, "c": c, "lib": tc}
            exec("\n".join(lines), names)
            return sum((value * (k + 1) * value).sum() for k, value in enumerate(names["t"]))

        rng = np.random.default_rng(seed)
        inputs = [tc.tensor(rng.normal(size=shape), requires_grad=True) for shape in ((3, 4, 2), ())]
        try:
            f(*inputs).backward()
        except RuntimeError as error:
            assert "written in place after it was saved" in str(error), "\n".join(lines)
            refused += 1
            continue
        assert tc.testing.gradcheck(f, inputs), "\n".join(lines)
    assert refused < 50


def test_without_the_gil():
    x = tc.ones(200, 300, requires_grad=True)
    y = x * 1
    rows, columns = y[:100], y.T[:150]
    rows *= 2
    columns.mul_(3)
    y[100:].T[:10].zero_()
    assert rows.sum().item() == 100 * (150 * 6 + 150 * 2)  # made before the writes to the columns
    y.sum().backward()
    expected = np.ones((200, 300))
    expected[:100] *= 2
    expected[:, :150] *= 3
    expected[100:, :10] = 0
    np.testing.assert_array_equal(x.grad.numpy(), expected)


def test_assignments_without_the_gil():
    x, c = tc.ones(200, 300, requires_grad=True), tc.ones(100, 300, requires_grad=True)
    for write, of_x, of_c in (
        (lambda y: y[:100].zero_(), 100 * 300, None),
        (lambda y: y[:100].copy_(c), 100 * 300, 100 * 300),
        (lambda y: y[:100][:].__setitem__(slice(None), c), 100 * 300, 100 * 300),
        (lambda y: y.detach()[:100].zero_(), 200 * 300, None),
    ):
        x.grad = c.grad = None
        y = x * 1
        write(y)
        y.sum().backward()
        assert x.grad.sum().item() == of_x and of_c == (None if c.grad is None else c.grad.sum().item())
    y = x * 1
    with tc.no_grad():
        rows = y[:100]
    rows.copy_(c)
    y[:100] = rows
    part = y[:100]
    with tc.no_grad():
        rows = y[100:]
    rows.copy_(c)  # y does not learn of it
    with tc.no_grad():
        assert (part * 1).sum().item() == 100 * 300


def test_a_view_knows_that_its_base_got_a_history():
    w, out = tc.ones(2, requires_grad=True), tc.zeros(2, 2)
    row = out[0]
    assert not row.requires_grad
    out[0] = w * 3
    assert row.requires_grad and not row.is_leaf and row.grad_fn and row.tolist() == [3.0, 3.0]
    out[0] *= 1
    with pytest.raises(RuntimeError, match="leaf tensors only"):
        row.requires_grad_(False)
    row.sum().backward()
    assert w.grad.tolist() == [3.0, 3.0]
    out = tc.zeros(2, 2)
    out[0][1] = w[0]  # through a view that nobody keeps
    assert out.requires_grad


def test_without_recording_the_history_stays():
    x = tc.ones(3, requires_grad=True)
    for write in (
        lambda y: y[0].zero_(),
        lambda y: y[1:][0].mul_(5),
        lambda y: y.zero_(),
        lambda y: exec("y[0] += 1", {"y": y}),
    ):
        y = x * 2
        part = y[:2]
        with tc.no_grad():
            write(y)
        x.grad = None
        (y.sum() + part.sum()).backward()
        assert x.grad.tolist() == [4.0, 4.0, 2.0]
    y = x * 2
    y.detach().zero_()
    x.grad = None
    y.sum().backward()
    assert y.tolist() == [0.0] * 3 and x.grad.tolist() == [2.0] * 3


def test_what_was_saved_is_still_refused():
    x = tc.ones(3, requires_grad=True)
    y = x * 2
    z = y * y
    y[0].add_(1)
    with pytest.raises(RuntimeError, match="written in place after it was saved"):
        z.sum().backward()


def test_views_of_leaves_are_refused():
    w = tc.ones(3, requires_grad=True)
    for write in (lambda: w[0].add_(1), lambda: w[1:][0].zero_(), lambda: w.view(3, 1)[0].__setitem__(0, 2.0)):
        with pytest.raises(RuntimeError, match="leaf tensor that requires a gradient"):
            write()
    base = tc.zeros(3)
    view = base[1:]
    base.requires_grad_()
    with pytest.raises(RuntimeError, match="written in place with values that have a gradient"):
        view.mul_(tc.ones((), requires_grad=True))
        base.sum()


def test_where_no_base_is_known_the_tensor_is_unusable_not_wrong():
    x = tc.ones(3, 2, requires_grad=True)
    y = x * 2
    with tc.no_grad():
        first, rest = y[:1], y[1:]
    first.mul_(tc.ones((), requires_grad=True) * 3)
    for other in (y, rest):
        with pytest.raises(RuntimeError, match="shares memory"):
            other.sum()
    assert first.tolist() == [[6.0, 6.0]]
    w = tc.ones((), requires_grad=True)
    backwards = tc.as_tensor(np.zeros((3, 2)).T)
    backwards[0].add_(w)
    with pytest.raises(RuntimeError, match="written in place with values that have a gradient"):
        backwards.sum()


@pytest.mark.parametrize("split", [lambda y: y.split([1, 2]), lambda y: y.chunk(3), lambda y: y.unbind(0), list])
@pytest.mark.parametrize("make", [lambda x: x * 2, lambda x: tc.zeros(3, 2), lambda x: (x * 2).detach()])
def test_pieces(make, split):
    x, c = tc.ones(3, 2, requires_grad=True), tc.tensor(3.0, requires_grad=True)
    y = make(x)
    first, *rest = split(y)
    first += c
    y.mul_(2)
    (y.sum() + sum(piece.sum() for piece in rest)).backward()
    assert c.grad.item() == 4.0
    assert x.grad is None or x.grad.tolist() == [[4.0, 4.0], [8.0, 8.0], [8.0, 8.0]]


def test_detached_bases():
    c = tc.tensor(3.0, requires_grad=True)
    detached = tc.zeros(3, 2).detach()
    with tc.no_grad():
        row = detached[0]
    row.add_(c)
    detached.sum().backward()
    assert c.grad.item() == 2.0
    leaf, columns = tc.zeros(3, 2).detach(), tc.zeros(3, 2).T.detach()
    row = leaf[0]
    leaf.requires_grad_()
    row.add_(c)
    columns[0].add_(c)
    for tensor in (leaf, columns):
        with pytest.raises(RuntimeError, match="written in place with values that have a gradient"):
            tensor.sum()
    x = tc.ones(3, requires_grad=True)
    y = x * 2
    y.detach()[0].zero_()
    y.data[1:][0].mul_(5)
    y.sum().backward()
    assert y.tolist() == [0.0, 10.0, 2.0] and x.grad.tolist() == [2.0] * 3


def test_a_base_that_got_other_memory():
    c = tc.tensor(3.0, requires_grad=True)
    for start in (6, 2):  # none of the view, a part of it
        memory = tc.zeros(10)
        base = memory[:4].detach()
        view = base[:3]
        base.data = memory[start : start + 4]
        view.add_(c)
        with pytest.raises(RuntimeError, match="written in place with values that have a gradient"):
            base.sum()


def test_a_part_is_taken_back_only_without_other_writes():
    y = tc.ones(3, requires_grad=True) * 2
    with tc.no_grad():
        first = y[:1]
    first *= tc.ones(1, requires_grad=True)
    with tc.no_grad():
        rest = y[1:]
    rest *= tc.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="written in place"):
        y[1:] = rest
    y = tc.ones(3, requires_grad=True) * 2
    with tc.no_grad():
        rest = y[1:]
    rest *= tc.ones(2, requires_grad=True)
    y[1:] = rest
    assert y.sum().requires_grad
    w = tc.ones(2, requires_grad=True)
    y = tc.ones(3, requires_grad=True) * 2
    with tc.no_grad():
        rest = y[1:]
    for _ in range(3):  # all writes went through the part
        rest *= w
    y[1:] = rest
    y.sum().backward()
    assert w.grad.tolist() == [6.0, 6.0]


@pytest.mark.parametrize("writes", [1, 2])
def test_a_part_is_taken_back_only_without_other_writes_where_nothing_had_a_history(writes):
    y = tc.ones(3)
    with tc.no_grad():
        first = y[:1]
    first *= tc.ones(1, requires_grad=True)
    with tc.no_grad():
        rest = y[1:]
    for _ in range(writes):
        rest *= tc.ones(2, requires_grad=True)
    for place, part in ((slice(1, None), rest), (slice(1), first)):
        with pytest.raises(RuntimeError, match="written in place"):
            y[place] = part


@pytest.mark.parametrize("n", [4, 300_000])
@pytest.mark.parametrize("write", [lambda part: part.__iadd__(1.0), lambda part: part.fill_(3.0), lambda part: part.copy_(part + 1.0)])
def test_a_part_without_a_history_is_written_whatever_its_size(write, n):
    """A long call works on a header of its own."""
    y, w = tc.ones(n, requires_grad=True) * 2.0, tc.ones(n - 1, requires_grad=True)
    with tc.no_grad():
        part = y[1:]
    write(part)
    part *= w
    y[1:] = part
    y.sum().backward()
    assert w.grad[0].item() == w.grad[-1].item() == 3.0


def test_what_is_there_is_taken_only_with_all_writes():
    w = tc.ones(1, requires_grad=True)

    def views():
        y = tc.ones(2, requires_grad=True) * 2
        with tc.no_grad():
            return y, y[:1], y[1:]

    def new(y):
        with tc.no_grad():
            return y[1:]

    y, first, _ = views()
    first.mul_(w)
    with pytest.raises(RuntimeError, match="written in place"):
        y[1:] = new(y)  # nothing was written through that
    y, first, _ = views()
    first.mul_(2)
    rest = new(y)
    rest.mul_(w)
    with pytest.raises(RuntimeError, match="written in place"):
        y[1:] = rest  # lacks a write without a gradient
    y, first, rest = views()
    rest.fill_(1)
    first.fill_(1)
    rest.mul_(w)
    with pytest.raises(RuntimeError, match="written in place"):
        y[1:] = rest  # lacks one between two of its own


def test_assigning_constants_to_where_they_are():
    x = tc.ones(3, requires_grad=True)
    for part in (lambda y: y[1:].detach(), lambda y: y[1:]):
        x.grad = None
        y = x * 2
        with tc.no_grad():
            value = part(y)
        y[1:] = value
        y.sum().backward()
        assert x.grad.tolist() == [2.0, 0.0, 0.0]


def test_a_renewed_view_retains_its_gradient():
    x = tc.ones(3, requires_grad=True)
    y = x * 2
    part = y[:2]
    part.retain_grad()
    y.mul_(3)
    (part * part).sum().backward()
    assert part.grad.tolist() == [12.0, 12.0] and x.grad.tolist() == [72.0, 72.0, 0.0]


def test_views_that_repeat_elements_are_refused():
    y = tc.ones(3, requires_grad=True) * 2
    with pytest.raises(ValueError, match="repeats its elements"):
        y.expand(2, 3).add_(1)
    z = y.expand(2, 3)
    z[0] += 1  # a part that does not repeat any: the write is one to y, and z would have to know that it has it twice
    assert y.tolist() == z.tolist()[1] == [3.0, 3.0, 3.0]
    with pytest.raises(RuntimeError, match="shares memory that was written in place"):
        z.sum()
    windows = y.unfold(0, 2, 1)
    y.mul_(3)
    with pytest.raises(RuntimeError, match="shares memory that was written in place"):
        windows.sum()


def test_nothing_is_kept_alive():
    w = tc.ones(100, requires_grad=True)
    arrays = [np.zeros((100, 100), np.float32) for _ in range(3)]
    y, z, leaf = (tc.as_tensor(a) for a in arrays)
    y[0].add_(w)
    row = y[1]
    y.mul_(w)
    row.add_(row.sum())
    part = z[0].requires_grad_()
    z[1] = part * 2  # z leads to part, which does not lead back
    leaf = leaf[3].requires_grad_()
    (y.sum() + z.sum() + leaf.sum()).backward()
    gone = [weakref.ref(a) for a in arrays]
    arrays.clear()
    del y, z, row, part, leaf
    gc.collect()
    tc.ones(1) + 1  # what waited for the GIL is released with the next call
    assert [ref() for ref in gone] == [None] * 3


def test_gradients_that_are_views_are_freed():
    arrays = [np.zeros(3) for _ in range(3)]
    x, y, z = (tc.as_tensor(a) for a in arrays)
    part = x[:]
    x.grad = part
    assert x.grad is part
    y.grad, z.grad = z[:], y[:]
    gone = [weakref.ref(a) for a in arrays]
    arrays.clear()
    del x, y, z, part
    gc.collect()
    tc.ones(1) + 1
    assert [ref() for ref in gone] == [None] * 3


def test_long_chains_of_gradients_of_views_are_freed():
    x = tc.zeros(1)
    for _ in range(100_000):
        y = tc.zeros(2)
        part = y[:1]
        part.grad = x
        x = part
    del x, y, part


def test_threads_write_to_parts_of_one_result():
    """Nobody promises that this works; but where nothing raises, all gradients are there."""
    failures = []

    def work(parts, barrier):
        try:
            barrier.wait()
            for part in parts:
                part.mul_(2.0)
        except RuntimeError as error:  # another thread wrote meanwhile
            if "written in place" not in str(error):
                failures.append(error)

    for _ in range(40):
        x = tc.ones(100, 1000, requires_grad=True)
        y = x * 1
        barrier = threading.Barrier(4)
        threads = [threading.Thread(target=work, args=([y[k : k + 25]] * 3, barrier)) for k in (0, 25, 50, 75)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        try:
            y.sum().backward()
        except RuntimeError as error:
            assert "written in place" in str(error)
        else:
            assert x.grad.tolist() == y.tolist()
    assert not failures


def test_flip_is_a_copy():
    x = tc.arange(3.0)
    x.flip(0).zero_()
    tc.flip(x, 0).zero_()
    x.repeat_interleave(1).zero_()
    assert x.tolist() == [0.0, 1.0, 2.0]
    x[::-1].mul_(2)
    assert x.tolist() == [0.0, 2.0, 4.0]


@pytest.mark.parametrize("recorded", [True, False], ids=["a result", "a leaf"])
@pytest.mark.parametrize(
    "write",
    [
        lambda y, x: y.copy_(x * 3),
        lambda y, x: y.__setitem__(slice(None), x[0] * 3),
        lambda y, x: y.zero_(),
        lambda y, x: y.fill_(2.0),
        lambda y, x: y.copy_(np.ones((3, 4), "float16")),
    ],
    ids=["values with a history", "one row", "zeros", "a number", "an array"],
)
def test_writing_all_elements_mends_a_tensor_that_is_out_of_date(write, recorded):
    def made(damaged):
        x = tc.tensor(np.arange(12.0).reshape(3, 4), requires_grad=True)
        y = tc.as_tensor(np.arange(12.0).reshape(4, 3).T)  # not contiguous: it cannot follow a write through a view
        if recorded:
            y.copy_(x)
        if damaged:
            y[0].add_(x[1])
            with pytest.raises(RuntimeError, match="use clone"):
                y * 2.0
            with pytest.raises(RuntimeError, match="use clone"):
                y[1:] = 0.0
        write(y, x)
        loss = (y * y).sum() + x.sum()
        loss.backward()
        y[1] *= 2.0
        return y.numpy(), x.grad.numpy(), y.requires_grad

    (y, grad, requires_grad), (expected_y, expected_grad, expected_requires_grad) = made(True), made(False)
    np.testing.assert_array_equal(y, expected_y)
    np.testing.assert_array_equal(grad, expected_grad)
    assert requires_grad == expected_requires_grad or recorded  # mended by values without a history, it has none


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 7, 15, 16, 17, 33, 63, 65, 511, 513, 1025])
def test_what_follows_a_part_stays_as_it_is(n, dtype, isa):
    """A function of elements is computed by whole cache lines, and writes no element more than there are."""
    x = tc.full((n + 40,), 0.25, dtype=dtype)
    for function in ("exp_", "sigmoid_", "relu_", "tanh_"):
        getattr(x[:n], function)()
        np.testing.assert_array_equal(x[n:], np.full(40, 0.25, dtype))
    y = tc.full((n + 40,), 0.5, dtype=dtype)
    y[:n].mul_(y[:n]).pow_(2.0).add_(1.0)
    np.testing.assert_array_equal(y, np.concatenate([np.full(n, 1.0625, dtype), np.full(40, 0.5, dtype)]))
