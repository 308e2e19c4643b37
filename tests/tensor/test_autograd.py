"""tc.autograd: gradients with respect to some Tensors alone, which go into no .grad; of several at once; functions with a backward."""

import gc
import sys
import threading
import weakref

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core

grad = tc.autograd.grad


def leaf(*values, dtype="float32"):
    return tc.tensor(values, dtype=dtype, requires_grad=True)


def lists(gradients):
    return [None if g is None else g.tolist() for g in gradients]


def test_leaves_and_results_and_the_output():
    a, b = leaf(2.0, 3.0), leaf(5.0, 7.0)
    h = a * b
    y = (h * h).sum()
    assert lists(grad(y, [a, h, y, b, a])) == [[100.0, 294.0], [20.0, 42.0], 1.0, [40.0, 126.0], [100.0, 294.0]]
    assert a.grad is None and b.grad is None


def test_as_in_pytorch():
    torch = pytest.importorskip("torch")

    def results(library):
        x, w, unused = (library.tensor(v, requires_grad=True) for v in ([[0.5, -1.0], [2.0, 1.5]], [[1.0, 3.0], [-2.0, 0.25]], [1.0]))
        h = library.tanh(x @ w)
        row = h[0]
        out = [(h * h).sum(), row * 2, h.exp().mean()]
        factors = [None, library.tensor([0.5, -3.0]), library.tensor(2.0)]
        autograd = library.autograd
        yield autograd.grad(out, (x, row, h, w), factors, retain_graph=True)
        yield autograd.grad(out[0], [x, unused], allow_unused=True, retain_graph=True)
        yield autograd.grad(out[2], iter([unused, w]), materialize_grads=True)
        a = library.tensor(3.0, requires_grad=True)
        yield autograd.grad(a, a)
        yield autograd.grad(a * a, [a], grad_outputs=library.tensor(0.5))

    for found, expected in zip(results(tc), results(torch), strict=True):
        assert type(found) is tuple and len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            assert (f is None) == (e is None)
            if f is not None:
                np.testing.assert_allclose(f.numpy(), e.numpy(), rtol=1e-5)
                assert not f.requires_grad and f.grad_fn is None


def test_the_bits_of_backward(rng):
    model = tc.TransformerEncoder(2, input_dim=16, num_heads=2, dim_feedforward=32)
    x = tc.tensor(rng.standard_normal((2, 5, 16)).astype(np.float32), requires_grad=True)
    parameters = list(model.parameters())
    loss = model(x).square().mean()
    found = grad(loss, [x, *parameters], retain_graph=True)
    alone = grad(loss, x, retain_graph=True)[0]
    assert x.grad is None and all(p.grad is None for p in parameters)
    loss.backward()
    for tensor, gradient in zip([x, *parameters], found, strict=True):
        assert np.array_equal(tensor.grad.numpy(), gradient.numpy())
    assert np.array_equal(alone.numpy(), found[0].numpy())


def test_grads_that_there_are_stay():
    a = leaf(2.0)
    (a * 3).sum().backward()
    before = a.grad
    assert lists(grad((a * 5).sum(), a)) == [[5.0]] and a.grad is before and a.grad.tolist() == [3.0]


def test_buffers_of_optimizers_are_left_alone():
    a = tc.nn.Parameter(tc.tensor([2.0, 1.0]))
    (buffer,) = tc.optim.SGD([a], lr=0.1).flat_gradients()
    (a * 3).sum().backward()
    (found,) = grad((a * 5).sum(), a)
    assert found.tolist() == [5.0, 5.0] and a.grad.tolist() == [3.0, 3.0] == buffer.tolist()


def test_memory_of_their_own():
    """Neither of each other, nor of what was passed, nor a broadcast axis."""
    a, b, factor = leaf(1.0, 2.0), leaf(3.0, 4.0), tc.ones(2)
    first, second, again, direct = grad([a + b, a], [a, b, a, a], [factor, factor])
    for gradient in (first, second, again, direct):
        assert gradient.is_contiguous()
        gradient.mul_(10)
    assert first.tolist() == [20.0, 20.0] and second.tolist() == [10.0, 10.0] and factor.tolist() == [1.0, 1.0]
    (row,) = grad(a.sum(), a)
    row[0] = 7
    assert row.tolist() == [7.0, 1.0]


def test_nothing_else_is_computed_called_or_freed():
    calls = []

    def named(name):
        def backward(dy, x):
            calls.append(name)
            return dy

        return tc.custom_op(lambda x: x * 1.0, backward)

    x, w = leaf(2.0), leaf(3.0)
    w.register_hook(lambda g: calls.append("hook of w"))
    below, weight = named("below")(x), named("weight")(w)
    weight.register_hook(lambda g: calls.append("hook of weight"))
    y = named("above")(below * weight)
    assert lists(grad(y, below)) == [[3.0]] and calls == ["above"]
    with pytest.raises(RuntimeError, match="a second time"):
        grad(y, x)
    assert lists(grad(below, x)) == [[1.0]] and calls == ["above", "below"]


def test_no_gradient_of_an_input_is_computed_for_nobody():
    asked = []
    multiply = tc.custom_op(lambda x, w: x * w, lambda dy, x, w: asked.append(1) or (dy * w, np.ones(7)))
    x, w = leaf(2.0), leaf(3.0)
    assert lists(grad(multiply(x, w), x)) == [[3.0]], "a gradient of a wrong shape that nobody asks for is not looked at"
    with pytest.raises(ValueError, match="gave a gradient of shape"):
        grad(multiply(x, w), w)


def test_hooks_on_the_way():
    x = leaf(2.0)
    h = x * 3
    h.retain_grad()
    h.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g + 1)
    y = h * 2
    assert lists(grad(y, [x, h], retain_graph=True)) == [[61.0], [20.0]] and x.grad is None and h.grad.tolist() == [20.0]
    assert lists(grad(y, [h])) == [[20.0]]


def test_writes_and_views():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 2
    part = y[:2]
    part.mul_(5)
    y[2] = part[0]
    z = (y * y).sum()
    dy, dpart, dx = grad(z, [y, part, x], allow_unused=True, retain_graph=True)
    assert dy.tolist() == [20.0, 40.0, 20.0] and dx.tolist() == [400.0, 400.0, 0.0]
    assert dpart is None, "as in PyTorch: z was computed from y"
    z.backward()
    assert x.grad.tolist() == dx.tolist()
    big = tc.ones(200, 200).requires_grad_()
    h = big * 1.0
    view = h[:100]
    h.mul_(2)
    of_view, of_big = grad((view * 3).sum(), [view, big])
    assert of_view.numpy().mean() == 3 and of_big.numpy().mean() == 3


def test_halves_and_other_dtypes():
    a = tc.ones(3, dtype="bfloat16").requires_grad_()
    (found,) = grad((a * 2).float().sum(), a)
    assert found.dtype == tc.bfloat16 and found.tolist() == [2.0] * 3
    b = leaf(1.0, dtype="float64")
    assert grad((b * 2).sum(), b, np.float32(3))[0].tolist() == [6.0]


def test_a_penalty_of_gradients_that_is_not_trained():
    """A WGAN's, logged; and an input that is made better step by step."""
    tc.manual_seed(0)
    critic = tc.nn.Sequential(tc.nn.Linear(4, 8), tc.nn.ReLU(), tc.nn.Linear(8, 1))
    x = tc.randn(5, 4).requires_grad_()
    norms = grad(critic(x), x, grad_outputs=tc.ones(5, 1))[0].norm(dim=1)
    assert norms.shape == (5,) and float(((norms - 1) ** 2).mean()) > 0
    before = critic(x).mean().item()
    for _ in range(5):
        (g,) = grad(critic(x).mean(), x)
        x = (x + g).detach().requires_grad_()
    assert critic(x).mean().item() > before


def test_what_is_refused():
    a, b, fixed = leaf(2.0), leaf(3.0, 4.0), tc.ones(1)
    for error, match, call in (
        (RuntimeError, r"no output depends on inputs\[1\], of shape \(2,\); allow_unused=True", lambda: grad(a * 2, [a, b])),
        (RuntimeError, r"inputs\[1\], of shape \(1,\), does not require a gradient", lambda: grad(a * 2, [a, fixed])),
        (RuntimeError, "recorded nothing to go back through", lambda: grad(fixed * 2, a)),
        (RuntimeError, r"outputs\[0\] has shape \(2,\); grad\(\) starts from tensors of one element", lambda: grad(b * 2, b)),
        (ValueError, "gradient has shape", lambda: grad(b * 2, b, tc.ones(3))),
        (ValueError, "grad_outputs has 1 gradients for 2 outputs", lambda: grad([a, a], a, tc.ones(1))),
        (ValueError, "there are no gradients of gradients", lambda: grad(a * 2, a, create_graph=True)),
        (ValueError, "is_grads_batched must be False", lambda: grad(a * 2, a, is_grads_batched=True)),
        (ValueError, "only_inputs must be True", lambda: grad(a * 2, a, only_inputs=False)),
        (ValueError, "which allow_unused=False refuses", lambda: grad(a * 2, a, allow_unused=False, materialize_grads=True)),
        (ValueError, "inputs is empty", lambda: grad(a * 2, [])),
        (TypeError, r"inputs\[1\] is of type ndarray", lambda: grad(a * 2, [a, np.ones(1)])),
        (TypeError, "outputs is of type float", lambda: grad(2.0, a)),
    ):
        with pytest.raises(error, match=match):
            call()
    assert a.grad is None and b.grad is None
    y = (a * a).sum()
    a.data.mul_(2)
    with pytest.raises(RuntimeError, match="written in place after it was saved"):
        grad(y, a)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_a_gradient_has_the_dtype_that_a_leaf_has_now(dtype):
    x = tc.tensor([1.0, 2.0], requires_grad=True)
    y = (x * 3).sum()
    x.data = tc.tensor([5.0, 6.0], dtype=dtype)
    y.backward()
    assert x.grad.dtype == x.dtype == np.dtype(dtype) and x.grad.tolist() == [3, 3]


def test_an_error_on_the_way_leaves_the_graph_usable():
    a, fails = leaf(2.0), [True]
    broken = tc.custom_op(lambda x: x * 1.0, lambda dy, x: 1 / 0 if fails else dy)
    h = a * a
    y = broken(h) * 3
    with pytest.raises(ZeroDivisionError):
        grad(y, a, retain_graph=True)
    fails.clear()
    assert lists(grad(y, a)) == [[12.0]]


def test_a_backward_inside_of_a_hook():
    a, b = leaf(2.0), leaf(3.0)
    y, other = a * 3, (b * b).sum()
    y.register_hook(lambda g: g * grad(other, b)[0])
    assert lists(grad(y * 2, a)) == [[36.0]] and b.grad is None


def test_threads():
    """Each has its own graph of shared leaves."""
    w = tc.tensor(np.linspace(-1, 1, 40000, dtype=np.float32), requires_grad=True)
    expected = (w.detach() * 3 * 2).numpy()
    wrong = []

    def work():
        for _ in range(20):
            (found,) = grad((w * w * 3).sum(), w)
            if not np.allclose(found.numpy(), expected):
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and w.grad is None


def test_two_backwards_through_one_graph_at_once():
    """The second is refused, and both can be done afterwards."""
    a, inside, seen = leaf(2.0), threading.Event(), []
    go_on = threading.Event()

    def wait(dy, x):
        inside.set()
        assert go_on.wait(60)
        return dy

    y = tc.custom_op(lambda x: x * 1.0, wait)(a * a) * 3
    thread = threading.Thread(target=lambda: seen.append(grad(y, a, retain_graph=True)[0].tolist()))
    thread.start()
    assert inside.wait(60)
    for call in (lambda: grad(y, a, retain_graph=True), lambda: y.backward(retain_graph=True)):
        with pytest.raises(RuntimeError, match="another thread is running backward through this graph; run one after the other"):
            call()
    go_on.set()
    thread.join()
    assert seen == [[12.0]] and a.grad is None
    assert lists(grad(y, a, retain_graph=True)) == [[12.0]]
    y.backward()
    assert a.grad.tolist() == [12.0]


def test_out_of_memory_at_every_allocation():
    a, b = leaf(2.0), leaf(3.0)
    for n in range(1, 200):
        h = a * b
        y, one = (h + a).sum(), tc.tensor(1.0)
        _core.memory_fail_after(n)
        try:
            found = _core.gradients([y], [a, h], [one])
        except MemoryError:
            continue
        finally:
            _core.memory_fail_after(0)
        break
    assert n > 5 and lists(found) == [[4.0], [1.0]] and a.grad is None


def test_long_chains_are_no_recursion():
    a = leaf(1.0)
    y = middle = a * 1.0
    for _ in range(100_000):
        y = y * 1.0
    assert lists(grad(y.sum(), [a, middle])) == [[1.0], [1.0]]


def test_outputs_that_are_leaves_and_inputs_that_are_results():
    x = leaf(1.0)
    assert lists(grad(x, [x * 2, x], allow_unused=True)) == [None, [1.0]]
    assert lists(grad(x, [x * 2], allow_unused=True)) == [None]


def test_many_results_as_inputs():
    """In time that grows with their number: 20,000 took 5 s where each was looked for among all."""
    rows = leaf(*range(20_000)).unbind(0)
    gradients = grad(tc.stack(rows).square().sum(), rows)
    assert [g.item() for g in gradients[:3]] == [0.0, 2.0, 4.0] and len(gradients) == 20_000
    h = leaf(1.0, 2.0, 3.0) * 2
    first, second, third = h.unbind(0)
    assert lists(grad(first * second * third, [third, h, first, second])) == [8.0, [24.0, 12.0, 8.0], 24.0, 12.0]


# ---- backward() of several ----------------------------------------------------------------------------------------------------------


def test_backward_of_several():
    x = leaf(1.0, 2.0)
    calls = []
    h = x * x
    h.register_hook(calls.append)
    last = h[1] * 5
    with tc.no_grad():
        tc.autograd.backward([h, last, x], [tc.tensor([1.0, 10.0]), None, tc.ones(2)])
    assert x.grad.tolist() == [3.0, 61.0] and len(calls) == 1
    y = (x * x).sum()
    tc.autograd.backward(y, retain_graph=True)
    tc.autograd.backward((y,), (tc.tensor(2.0),))
    assert x.grad.tolist() == [9.0, 73.0]
    for error, match, call in (
        (RuntimeError, "a second time", lambda: tc.autograd.backward(y)),
        (
            RuntimeError,
            r"tensors\[0\] has shape \(2,\); backward\(\) starts from .* pass grad_tensors=",
            lambda: tc.autograd.backward(x * 1),
        ),
        (ValueError, "grad_tensors has 1 gradients for 2 tensors", lambda: tc.autograd.backward([y, y], [None])),
        (
            ValueError,
            r"grad_tensors\[1\] has shape \(1,\), tensors\[1\] has \(2,\)",
            lambda: tc.autograd.backward([x, x], [tc.ones(2), tc.ones(1)]),
        ),
        (ValueError, "there are no gradients of gradients", lambda: tc.autograd.backward(y, create_graph=True)),
        (TypeError, "tensors is of type float", lambda: tc.autograd.backward(2.0)),
    ):
        with pytest.raises(error, match=match):
            call()
    assert x.grad.tolist() == [9.0, 73.0]


# ---- Function -----------------------------------------------------------------------------------------------------------------------


def functions(library):
    """Functions as programs have them, made with a library."""

    class Scaled(library.autograd.Function):
        """Results of all kinds, and arguments that are no Tensors."""

        @staticmethod
        def forward(ctx, x, n, w):
            ctx.save_for_backward(x, None, w)
            ctx.n = n
            return x * w * n, x.argmax(-1), "text", x.sum()

        @staticmethod
        def backward(ctx, dy, of_index, of_text, of_sum):
            x, nothing, w = ctx.saved_tensors
            assert nothing is None and of_text is None and not library.is_grad_enabled()
            return dy * w * ctx.n + of_sum, None, dy * x * ctx.n if ctx.needs_input_grad[2] else None

    class Again(library.autograd.Function):
        """Computes its forward a second time, as reversible networks do; the weights' gradients come from there."""

        @staticmethod
        def forward(ctx, x, module):
            ctx.x, ctx.module = x.detach(), module
            return module(x)

        @staticmethod
        def backward(ctx, dy):
            with library.enable_grad():
                x = ctx.x.requires_grad_()
                library.autograd.backward(ctx.module(x), dy)
            return x.grad, None

    class Apart(library.autograd.Function):
        """The forward without ctx; a result without a gradient, and one whose gradient may be None."""

        @staticmethod
        def forward(x):
            return x * 2, x * 3, x.round()

        @staticmethod
        def setup_context(ctx, arguments, results):
            ctx.mark_non_differentiable(results[2])
            ctx.set_materialize_grads(False)
            ctx.rounded = results[2]

        @staticmethod
        def backward(ctx, first, second, third):
            assert third is None
            return sum(g * k for g, k in ((first, 2), (second, 3)) if g is not None) + 0 * ctx.rounded

    return Scaled, Again, Apart


def use_functions(library):
    found = []
    scaled, again, apart = functions(library)
    for needs in ((True, True), (True, False), (False, True)):
        x, w = (library.arange(6.0).reshape(2, 3).requires_grad_(needed) for needed in needs)
        y, index, text, total = scaled.apply(x, 3, w)
        assert (index.requires_grad, text, total.requires_grad) == (False, "text", True)
        (y * y).sum().backward()
        found += [y, index, total, *(t.grad for t in (x, w) if t.requires_grad)]
    library.manual_seed(0)
    module = library.nn.Linear(3, 2)
    x = library.randn(4, 3, requires_grad=True)
    again.apply(x * 2, module).square().sum().backward()
    found += [x.grad, module.weight.grad, module.bias.grad]
    for i in (0, 1):
        results = apart.apply(x)
        assert [r.requires_grad for r in results] == [True, True, False]
        results[i].sum().backward()
        found += [*results, x.grad]
    with library.no_grad():
        assert not again.apply(x, module).requires_grad
    assert not again.apply(x.detach(), module).requires_grad
    return [t.detach().tolist() for t in found]


def test_functions_are_pytorchs():
    torch = pytest.importorskip("torch")
    for ours, theirs in zip(use_functions(tc), use_functions(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_functions_without_pytorch():
    x = leaf(1.0, 2.0)
    scaled, _, apart = functions(tc)
    scaled.apply(x, 2, leaf(3.0, 4.0))[0].sum().backward()
    apart.apply(x)[1].sum().backward()
    assert x.grad.tolist() == [9.0, 11.0]
    from transformer_c.autograd.function import Function

    assert Function is tc.autograd.Function


def test_functions_that_are_wrong():
    scaled, _, _ = functions(tc)

    class Few(scaled):
        @staticmethod
        def backward(ctx, *gradients):
            return gradients[0]

    class Many(scaled):
        @staticmethod
        def backward(ctx, *gradients):
            return gradients[0], None, None, gradients[0]

    class Wide(scaled):
        @staticmethod
        def backward(ctx, *gradients):
            return tc.ones(5), None, None

    class Numbers(scaled):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, 3)

    class Bare(tc.autograd.Function):
        pass

    x = leaf(1.0, 2.0)
    for error, match, call in (
        (ValueError, r"Few.backward\(\) returned 1 gradients for 3 arguments", lambda: Few.apply(x, 3, tc.ones(2))[0].sum().backward()),
        (ValueError, r"Many.backward\(\) returned 4 gradients for 3 arguments", lambda: Many.apply(x, 3, tc.ones(2))[0].sum().backward()),
        (ValueError, "gave a gradient of shape", lambda: Wide.apply(x, 3, tc.ones(2))[0].sum().backward()),
        (TypeError, "argument 1 is of type int: make it an attribute", lambda: Numbers.apply(x)),
        (NotImplementedError, r"needs a static method forward", lambda: Bare.apply(x)),
    ):
        with pytest.raises(error, match=match):
            call()
    assert x.grad is None


def test_a_function_changes_no_gradient_of_others():
    class Doubled(tc.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, dy):
            return dy.mul_(2)

    x, w = leaf(1.0), leaf(1.0)
    (Doubled.apply(x) + w).sum().backward()
    assert (x.grad.item(), w.grad.item()) == (2.0, 1.0)


class Kept(tc.autograd.Function):
    """x times what `keep` makes of it, which is saved and may be a result as well."""

    @staticmethod
    def forward(ctx, x, keep, is_result):
        kept = keep(x)
        ctx.save_for_backward(kept)
        ctx.mark_non_differentiable(kept)
        return (x * kept, kept) if is_result else x * kept

    @staticmethod
    def backward(ctx, dy, *rest):
        return dy * ctx.saved_tensors[0], None, None


@pytest.mark.parametrize("is_result", [False, True], ids=["from outside", "a result"])
def test_a_function_refuses_what_was_written_to_after_it_was_saved(is_result):
    x, factors = leaf(1.0, 2.0), tc.tensor([3.0, 4.0])
    results = Kept.apply(x, lambda t: factors.clone() if is_result else factors, is_result)
    y, kept = results if is_result else (results, factors)
    kept.mul_(100)
    with pytest.raises(RuntimeError, match=r"saved_tensors\[0\], of shape \(2,\), was written in place after it was saved"):
        y.sum().backward()
    assert x.grad is None


def test_results_of_a_function_without_a_history():
    class Same(tc.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return [x, x + 1]

        @staticmethod
        def backward(ctx, *gradients):
            return gradients[0] * 7

    x = leaf(1.0, 2.0)
    with tc.no_grad():
        y, z = Same.apply(x)
    assert y is not x and not y.requires_grad and not z.requires_grad
    y, _ = Same.apply(x)
    y.sum().backward()
    assert x.grad.tolist() == [7.0, 7.0]


def test_backward_of_several_needs_a_history_of_each():
    x, factor = leaf(1.0, 2.0), leaf(1.0, 1.0)
    tc.autograd.backward([x * 2, x * 3], [factor, factor])
    assert x.grad.tolist() == [5.0, 5.0] and factor.grad is None
    with pytest.raises(RuntimeError, match=r"tensors\[1\], of shape \(\), recorded nothing"):
        tc.autograd.backward([(x * 2).sum(), tc.ones(2).sum()])


def writing(library):
    class Times(library.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            x.mul_(w)
            ctx.mark_dirty(x)
            ctx.save_for_backward(w)
            return x.sum(), x

        @staticmethod
        @library.autograd.function.once_differentiable
        def backward(ctx, dtotal, dy):
            (w,) = ctx.saved_tensors
            return (dy + dtotal) * w, (dy + dtotal) * 10

    return Times


def use_writing(library):
    times, found = writing(library), []
    x, w = library.tensor([1.0, 2.0], requires_grad=True), library.tensor([3.0, 4.0], requires_grad=True)
    y = x * 5
    part = y[:1]
    total, z = times.apply(y, w)
    assert z is y
    (total * 2 + (z * part).sum()).backward()
    found += [y, part, x.grad, w.grad]
    constant, x.grad = library.tensor([1.0, 2.0]), None
    total, z = times.apply(constant, x)
    assert z is constant and z.requires_grad and not z.is_leaf
    (z * z).sum().backward()
    found += [z, x.grad]
    with library.no_grad():
        y = library.tensor([1.0, 2.0])
        assert times.apply(y, w)[1] is y
    found += [y]
    with pytest.raises(RuntimeError, match="a leaf .* in"):
        times.apply(x, w)
    one, x.grad = one_result(library), None
    y = x * 5
    one.apply(y[1:], True)
    (y * y).sum().backward()
    found += [y, x.grad]
    with pytest.raises(RuntimeError, match="dirty"):
        one.apply(x * 2, False)
    return [t.detach().tolist() for t in found]


def one_result(library):
    class Times(library.autograd.Function):
        @staticmethod
        def forward(ctx, x, returned):
            ctx.mark_dirty(x.mul_(7))
            return x if returned else x * 1

        @staticmethod
        def backward(ctx, dy):
            return dy * 7, None

    return Times


def test_functions_that_write_to_their_arguments_are_pytorchs():
    torch = pytest.importorskip("torch")
    for ours, theirs in zip(use_writing(tc), use_writing(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("retain_graph", [False, True])
def test_the_backward_frees_what_a_function_saved(retain_graph):
    before = tc._core.memory_stats()["in_use"]
    x = tc.ones(1000, requires_grad=True)
    y = Kept.apply(x, lambda t: t * 3, False)
    held = tc._core.memory_stats()["in_use"]
    y.backward(tc.ones(1000), retain_graph=retain_graph)
    x.grad = None
    freed = held - tc._core.memory_stats()["in_use"]
    assert freed == 0 if retain_graph else freed >= 4000, freed
    if retain_graph:
        y.backward(tc.ones(1000))
        assert x.grad[0] == 3
    with pytest.raises(RuntimeError, match="a second time through custom_op, whose saved values were freed"):
        y.backward(tc.ones(1000))
    del x, y
    assert tc._core.memory_stats()["in_use"] == before


def test_a_function_keeps_no_arguments_that_it_does_not_save():
    class Twice(tc.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            return dy.double() * 2  # rounded to the argument's dtype

    x = leaf(1.0, 2.0)
    y = (x * 1).bfloat16()
    z = Twice.apply(y)
    y.zero_()
    z.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0] and x.grad.dtype == tc.float32


def use_inputs(library):
    """The gradients of each of a few calls of backward() with inputs."""
    x, w, unused = (library.tensor(v, requires_grad=True) for v in ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]))
    h = x * w
    y = (h * h).sum()
    h.register_hook(lambda gradient: gradient * 10)
    x.register_hook(lambda gradient: gradient * 100)
    last = h.detach()
    for tensors, factors, inputs in (
        (y, None, [x]),
        (y, None, x),
        (y, None, (unused, x)),
        (y, None, iter([h, w])),
        (y, None, [h, y]),
        ([y, h], [None, library.ones(2)], [w, w]),
        (h, library.tensor([1.0, 10.0]), [x]),
    ):
        library.autograd.backward(tensors, factors, retain_graph=True, inputs=inputs)
        yield [None if t.grad is None else t.grad.tolist() for t in (x, w, unused, h, y)]
    before = x.grad
    (x * w).sum().backward(inputs=[x])
    h.backward(library.ones(2), inputs=w)
    assert x.grad is before
    yield [x.grad.tolist(), w.grad.tolist(), last.tolist()]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_backward_to_inputs_alone_is_pytorchs():
    torch = pytest.importorskip("torch")
    for ours, theirs in zip(use_inputs(tc), use_inputs(torch), strict=True):
        assert ours == theirs


def test_backward_to_what_cannot_be_an_input():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    y = (x * w).sum()
    for error, match, inputs in (
        (ValueError, "inputs is empty", []),
        (TypeError, r"inputs\[1\] is of type int", [x, 3]),
        (TypeError, "inputs is of type int", 3),
        (RuntimeError, r"inputs\[0\], of shape \(2,\), does not require a gradient", [tc.ones(2), x]),
    ):
        with pytest.raises(error, match=match):
            y.backward(inputs=inputs)
    with pytest.raises(ValueError, match="create_graph must be False"):
        y.backward(create_graph=True, inputs=x)
    with pytest.raises(RuntimeError, match="this one has shape .2,.: reduce it .* or pass gradient="):
        (x * w).backward(inputs=x)
    y.backward(np.float32(2), inputs=(x,))
    assert x.grad.tolist() == [6.0, 8.0] and w.grad is None
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward(inputs=x)
    assert x.grad.tolist() == [6.0, 8.0]


def test_backward_to_leaves_of_several_threads():
    """No gradient is lost between reading .grad and writing it."""
    leaves, turns = [tc.zeros(100_000, requires_grad=True) for _ in range(4)], 300
    start, interval = threading.Barrier(3), sys.getswitchinterval()

    def work():
        start.wait(60)
        for _ in range(turns):
            sum(x.sum() for x in leaves).backward(inputs=leaves)

    threads = [threading.Thread(target=work) for _ in range(3)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert all((x.grad == 3 * turns).all() for x in leaves)


def test_a_failed_backward_to_inputs_changes_no_gradient():
    a, b = leaf(2.0), leaf(3.0)
    a.grad = tc.tensor([5.0])
    for n in range(1, 200):
        y, one = (a * b + a).sum(), tc.tensor(1.0)
        _core.memory_fail_after(n)
        try:
            _core.backward_to([y], [a, b, a], [one])
        except MemoryError:
            assert a.grad.tolist() == [5.0] and b.grad is None
            continue
        finally:
            _core.memory_fail_after(0)
        break
    assert n > 5 and a.grad.tolist() == [9.0] and b.grad.tolist() == [2.0]


def saving_what_it_writes(library, named=()):
    """e to the power of the arguments, in their memory."""

    class Exp(library.autograd.Function):
        @staticmethod
        def forward(ctx, *given):
            for x in given:
                x.exp_()
            ctx.mark_dirty(*given)
            ctx.mark_non_differentiable(*(given[i] for i in named))
            ctx.save_for_backward(*given, None)
            return given if len(given) > 1 else given[0]

        @staticmethod
        def backward(ctx, *gradients):
            return tuple(dy * y for dy, y in zip(gradients, ctx.saved_tensors[:-1], strict=True))

    return Exp


def use_what_is_written_and_saved(library):
    x = library.tensor([1.0, 2.0], requires_grad=True)
    y, z = x * 1, x * 2
    exp = saving_what_it_writes(library)
    (exp.apply(y, z)[0] * 3 + z).sum().backward()
    yield x.grad
    x.grad = None
    y, z = x * 1, x * 2
    constant, result = saving_what_it_writes(library, named=[0]).apply(y, z)
    assert not constant.requires_grad and result.requires_grad
    (constant * 5 + result).sum().backward()
    yield x.grad
    p = exp.apply(x * 1)
    p.mul_(2)
    with pytest.raises(RuntimeError, match="in.?place"):
        p.sum().backward()


def test_functions_save_what_they_write_as_in_pytorch():
    torch = pytest.importorskip("torch")
    for ours, theirs in zip(use_what_is_written_and_saved(tc), use_what_is_written_and_saved(torch), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)


class Doubled(tc.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


def test_arguments_of_a_function_are_freed_where_it_saves_none():
    y = tc.ones(2, requires_grad=True) * 1
    seen = weakref.ref(y)
    z = Doubled.apply(y)
    del y
    assert seen() is None and z.requires_grad


@pytest.mark.parametrize("goes_back", [False, True])
def test_functions_that_write_to_their_arguments_are_freed(goes_back):
    before = tc._core.memory_stats()["in_use"]
    gc.disable()  # no cycles
    try:
        for function in (saving_what_it_writes(tc), saving_what_it_writes(tc, named=[1])):
            x = tc.ones(1000, requires_grad=True)
            y, z = function.apply(x * 1, x * 2)
            if goes_back:
                y.sum().backward()
            del x, y, z
        after = tc._core.memory_stats()["in_use"]
    finally:
        gc.enable()
    assert after == before


def test_what_functions_saved_is_freed_on_the_way():
    held = []

    class Saved(tc.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x * 1)
            return x * 1

        @staticmethod
        def backward(ctx, dy):
            held.append(tc._core.memory_stats()["in_use"])
            return dy * 1

    y = tc.ones(10_000, requires_grad=True)
    for _ in range(8):
        y = Saved.apply(y)
    total = y.sum()
    del y
    total.backward()
    assert len(held) == 8 and held[2] - held[-1] >= 4 * 40_000, held


def test_any_name_is_free_for_what_a_function_leaves():
    class Named(tc.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.is_dirty = ctx.is_recorded = ctx.give_history = False
            return x * 3

        @staticmethod
        def backward(ctx, dy):
            return dy * (3 if ctx.is_dirty is False else 0)

    x = leaf(1.0)
    Named.apply(x).backward()
    assert x.grad.tolist() == [3.0]
