"""tc.amp.GradScaler: scales, skipped steps, states and refusals, beside PyTorch's."""

import copy
import pickle

import numpy as np
import pytest
import transformer_c as tc

# What happens in each iteration to the gradient: it is multiplied by this.
FACTORS = [1, 1, 1, np.inf, 1, 1, np.nan, np.nan, 1, 1, 1, 1, 1, -np.inf, 1, 1, 1, 1, 1]  # the last two are in the state


def trained(library, clip):
    """Scales and weights after each iteration, and the state in the end."""
    x = library.tensor(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))
    model = library.nn.Linear(3, 2)
    with library.no_grad():
        model.weight.copy_(library.tensor(np.linspace(-0.5, 0.5, 6, dtype=np.float32).reshape(2, 3)))
        model.bias.zero_()
    optimizer = library.optim.SGD(model.parameters(), lr=0.125)
    scaler = library.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
    seen = []
    for factor in FACTORS:
        optimizer.zero_grad()
        scaler.scale((model(x) ** 2).mean()).backward()
        model.weight.grad[1, 2] *= float(factor)
        if clip:
            scaler.unscale_(optimizer)
            seen.append(float(library.nn.utils.clip_grad_norm_(model.parameters(), 0.25)))
        scaler.step(optimizer)
        scaler.update()
        seen += [scaler.get_scale(), *model.weight.detach().numpy().ravel().tolist()]
    return seen, scaler.state_dict()


@pytest.mark.parametrize("clip", [False, True])
def test_scales_and_steps_are_pytorchs(clip):
    torch = pytest.importorskip("torch")
    (ours, state), (theirs, expected) = trained(tc, clip), trained(torch, clip)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert state == expected
    torch.amp.GradScaler("cpu").load_state_dict(state)
    other = tc.amp.GradScaler()
    other.load_state_dict(expected)
    assert other.state_dict() == state


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [0, 7, 1029])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_number_that_is_not_finite_is_found_wherever_it_is(bad, place, dtype):
    ps = [tc.nn.Parameter(np.zeros(1000, dtype)), tc.nn.Parameter(np.zeros((30, 2), "float32"))]
    for p in ps:
        p.grad = tc.ones_like(p)
    optimizer, scaler = tc.optim.SGD(ps, lr=1.0), tc.amp.GradScaler(init_scale=2.0)
    (ps[0].grad if place < 1000 else ps[1].grad.view(-1))[place % 1000] = bad
    assert scaler.step(optimizer) is None
    scaler.update()
    assert scaler.get_scale() == 1.0 and not any(p.numpy().any() for p in ps)


def test_the_largest_numbers_are_finite():
    """Their squares are not."""
    p = tc.nn.Parameter(np.zeros(2))
    p.grad = tc.tensor(np.array([1e300, -1e300]))
    scaler = tc.amp.GradScaler(init_scale=2.0)
    scaler.step(tc.optim.SGD([p], lr=1.0))
    assert p.tolist() == [-5e299, 5e299]


def test_arguments_of_a_step_go_to_the_optimizer():
    class Own(tc.optim.SGD):
        def step(self, *, factor):
            return factor

    p, _, scaler = prepared()
    assert scaler.step(Own([p], lr=1.0), factor=3) == 3


def test_float16_trains_where_gradients_are_too_small_for_it():
    """The gradient of each weight is 1e-9, below the smallest number of float16."""

    def weight(scaler):
        model = tc.nn.Linear(1, 1, bias=False)
        model.weight.data.fill_(1.0)
        optimizer = tc.optim.SGD(model.parameters(), lr=1e8)
        with tc.autocast(dtype="float16"):
            y = model(tc.ones(1, 1))
        scaler.scale((y * 1e-9).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return model.weight.item()

    assert weight(tc.amp.GradScaler(enabled=False)) == 1.0
    assert weight(tc.amp.GradScaler()) == pytest.approx(0.9, rel=1e-3)


def test_losses_may_be_nested_and_in_halves():
    scaler = tc.amp.GradScaler(init_scale=2.0**17)
    a, (b, c) = scaler.scale([tc.ones(2), (tc.ones(1).double(), tc.ones(1).half())])
    assert (a.tolist(), b.tolist(), c.tolist()) == ([2.0**17] * 2, [2.0**17], [2.0**17])
    assert (b.dtype.name, c.dtype.name) == ("float64", "float32")


def prepared(**options):
    p = tc.nn.Parameter([1.0])
    p.grad = tc.ones(1)
    return p, tc.optim.SGD([p], lr=1.0), tc.amp.GradScaler(init_scale=2.0, **options)


def test_what_is_not_enabled_does_nothing():
    p, optimizer, scaler = prepared(enabled=False)
    loss = tc.ones(1)
    assert scaler.scale(loss) is loss and scaler.state_dict() == {} and scaler.get_scale() == 1.0 and not scaler.is_enabled()
    scaler.unscale_(optimizer)
    assert scaler.step(optimizer, lambda: 5.0) == 5.0
    scaler.update()
    scaler.load_state_dict({})
    assert p.tolist() == [0.0]


def test_the_order_of_calls():
    p, optimizer, scaler = prepared()
    with pytest.raises(RuntimeError, match=r"update\(\) follows step\(\) or unscale_\(\)"):
        scaler.update()
    for args, kwargs in (((lambda: 0.0,), {}), ((), {"closure": lambda: 0.0})):
        with pytest.raises(RuntimeError, match="takes no closure"):
            scaler.step(optimizer, *args, **kwargs)
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"^unscale_\(\) has been called .* unscaled already"):
        scaler.unscale_(optimizer)
    assert p.grad.tolist() == [0.5]
    scaler.step(optimizer)
    for call in (scaler.step, scaler.unscale_):
        with pytest.raises(RuntimeError, match=r"^step\(\) has been called for this optimizer since the last update"):
            call(optimizer)
    assert p.tolist() == [0.5]
    scaler.update()
    optimizer.zero_grad()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no parameter of this optimizer has a gradient"):
            scaler.step(optimizer)
    p.grad = tc.ones(1)
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0.0]


def test_one_optimizer_of_two_may_have_no_step():
    (p, first, scaler), (q, second, _) = prepared(), prepared()
    p.grad = tc.tensor([np.inf])
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert (p.tolist(), q.tolist(), scaler.get_scale()) == ([1.0], [0.5], 1.0)


def test_all_groups_are_unscaled_and_decide():
    (p, _, scaler), q = prepared(), tc.nn.Parameter([1.0])
    optimizer = tc.optim.SGD([{"params": [p]}, {"params": [q], "lr": 0.5}], lr=1.0)
    q.grad = tc.tensor([np.inf])
    scaler.step(optimizer)
    scaler.update()
    assert (p.tolist(), q.tolist(), scaler.get_scale()) == ([1.0], [1.0], 1.0)
    scaler.update(2.0)
    p.grad, q.grad = tc.ones(1), tc.ones(1)
    scaler.step(optimizer)
    assert (p.tolist(), q.tolist()) == ([0.5], [0.75])


def test_the_scale_stays_a_number():
    p, optimizer, scaler = prepared(growth_interval=1)
    scaler.update(2.0**126)
    for _ in range(2):
        p.grad = tc.zeros(1)
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 2.0**127
    scaler.update(tc.tensor(2.0**-125))
    p.grad = tc.tensor([np.nan])
    scaler.step(optimizer)
    scaler.update()
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="infinite or NaN at every scale"):
        scaler.update()
    assert scaler.get_scale() == 2.0**-126 and p.tolist() == [1.0]


REFUSED = {
    r"device must be a str, got 1024.0 \(float\); pass the scale by name": (TypeError, lambda: tc.amp.GradScaler(1024.0)),
    "the scale must be from": (ValueError, lambda: tc.amp.GradScaler(init_scale=0.0)),
    "the scale must be .* got nan": (ValueError, lambda: tc.amp.GradScaler(init_scale=np.nan)),
    "the scale must be a number, got 'a'": (TypeError, lambda: tc.amp.GradScaler().update("a")),
    "the scale must be .* got 1e-39": (ValueError, lambda: tc.amp.GradScaler(init_scale=1e-39)),
    "the scale must be .* got -1.0": (ValueError, lambda: tc.amp.GradScaler().update(-1.0)),
    "a device is .* got 'tpu'": (ValueError, lambda: tc.amp.GradScaler("tpu")),
    "growth_factor must be above 1": (ValueError, lambda: tc.amp.GradScaler(growth_factor=1.0)),
    "growth_factor must be .* got inf": (ValueError, lambda: tc.amp.GradScaler(growth_factor=np.inf)),
    "backoff_factor must be above 0 and below 1": (ValueError, lambda: tc.amp.GradScaler(backoff_factor=1.0)),
    "backoff_factor must be .* got 0.0": (ValueError, lambda: tc.amp.GradScaler(backoff_factor=0.0)),
    "growth_interval must be at least 1": (ValueError, lambda: tc.amp.GradScaler(growth_interval=0)),
    "growth_interval must be an int": (TypeError, lambda: tc.amp.GradScaler().set_growth_interval(1.5)),
    r"scale\(\) takes Tensors, got float": (TypeError, lambda: tc.amp.GradScaler().scale(1.0)),
    "the state is empty": (RuntimeError, lambda: tc.amp.GradScaler().load_state_dict({})),
    "lacks growth_factor, backoff_factor": (ValueError, lambda: tc.amp.GradScaler().load_state_dict({"scale": 2.0})),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message):
    error, call = REFUSED[message]
    with pytest.raises(error, match=message):
        call()


def test_gradients_in_halves_are_refused_and_left_alone():
    p = tc.nn.Parameter(tc.ones(2).half())
    p.grad = tc.ones(2).half()
    optimizer, scaler = tc.optim.SGD([p], lr=1.0), tc.amp.GradScaler()
    with pytest.raises(ValueError, match="leave the parameters in float32"):
        scaler.step(optimizer)
    assert p.grad.tolist() == p.tolist() == [1.0, 1.0]


def test_a_state_that_does_not_fit_changes_nothing():
    scaler = tc.amp.GradScaler()
    before = scaler.state_dict()
    for name, value in (("scale", -1.0), ("growth_factor", 0.5), ("_growth_tracker", -1), ("growth_interval", "many")):
        with pytest.raises((ValueError, TypeError)):
            scaler.load_state_dict({**before, name: value})
        assert scaler.state_dict() == before
    scaler.load_state_dict(before)


def test_an_optimizer_that_takes_the_place_of_one_is_unscaled():
    """It may have the id of the one before, whose gradients were."""
    p, scaler, made = tc.nn.Parameter([1.0]), tc.amp.GradScaler("cpu", init_scale=8.0), []
    optimizer = tc.optim.SGD([p], lr=1.0)
    scaler.scale(p.sum()).backward()
    scaler.unscale_(optimizer)
    old = id(optimizer)
    del optimizer
    while len(made) < 1000 and (not made or id(made[-1]) != old):
        made.append(tc.optim.SGD([p], lr=1.0))
    made[-1].zero_grad()
    scaler.scale(p.sum()).backward()
    scaler.step(made[-1])
    assert p.tolist() == [0.0]


def test_copies_and_pickles_go_on():
    _, optimizer, scaler = prepared(growth_interval=7)
    scaler.set_growth_factor(4.0)
    scaler.set_backoff_factor(0.25)
    for other in (copy.deepcopy(scaler), pickle.loads(pickle.dumps(scaler))):
        assert other.state_dict() == scaler.state_dict()
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (4.0, 0.25, 7)
    scaler.unscale_(optimizer)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(RuntimeError, match="between iterations"):
            copied(scaler)
    scaler.update()
    copy.deepcopy(scaler)
