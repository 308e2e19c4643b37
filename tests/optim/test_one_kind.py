"""Parameters of one kind go to a kernel by one look of the core; others are looked at one by one, with the same bits."""

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core

OPTIMIZERS = {
    "sgd": lambda params: tc.optim.SGD(params, lr=0.1),
    "momentum": lambda params: tc.optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.5),
    "adam": lambda params: tc.optim.Adam(params, lr=0.1),
    "amsgrad": lambda params: tc.optim.AdamW(params, lr=0.1, amsgrad=True),
    "rmsprop": lambda params: tc.optim.RMSprop(params, lr=0.1, momentum=0.5, centered=True),
}


def made(dtype="float32", count=4):
    rng = np.random.default_rng(0)
    return [tc.nn.Parameter(tc.tensor(rng.standard_normal((3, i + 2)).astype(np.float32)).to(dtype)) for i in range(count)]


def give(params, step, leaves_out=()):
    rng = np.random.default_rng(step)
    for i, p in enumerate(params):
        gradient = tc.tensor(rng.standard_normal(p.shape).astype(np.float32)).to(p.dtype)
        p.grad = None if (i, step) in leaves_out else gradient


def looks(monkeypatch):
    """A list to which each look of the core adds whether the parameters were of one kind."""
    found, look = [], _core.step_of_one_kind

    def watched(*args):
        result = look(*args)
        found.append(result is not None)
        return result

    monkeypatch.setattr(_core, "step_of_one_kind", watched)
    return found


def run(make, params, leaves_out=()):
    optimizer = make(params)
    for step in range(5):
        give(params, step, leaves_out)
        optimizer.step()
    return optimizer, [p.detach().numpy().copy() for p in params]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_bits_and_states_are_those_of_parameters_one_by_one(name, dtype, monkeypatch):
    found = looks(monkeypatch)
    optimizer, values = run(OPTIMIZERS[name], made(dtype))
    assert found == [False, True, True, True, True]  # the first step makes the states
    monkeypatch.setattr(_core, "step_of_one_kind", lambda *args: None)
    one_by_one, expected = run(OPTIMIZERS[name], made(dtype))
    np.testing.assert_array_equal(np.concatenate([v.ravel() for v in values]), np.concatenate([v.ravel() for v in expected]))
    states, others = optimizer.state_dict()["state"], one_by_one.state_dict()["state"]
    assert [{k: np.asarray(v).tolist() for k, v in s.items()} for s in states.values()] == [
        {k: np.asarray(v).tolist() for k, v in s.items()} for s in others.values()
    ]


def test_parameters_that_have_taken_fewer_steps_are_apart(monkeypatch):
    found = looks(monkeypatch)
    leaves_out = {(2, 1), (1, 3)}
    _, values = run(OPTIMIZERS["adam"], made(), leaves_out)
    assert found == [False, True, False, False, False]  # one without a gradient is left out; from then on it is behind
    monkeypatch.setattr(_core, "step_of_one_kind", lambda *args: None)
    _, expected = run(OPTIMIZERS["adam"], made(), leaves_out)
    for value, other in zip(values, expected, strict=True):
        np.testing.assert_array_equal(value, other)


def of_one_kind(optimizer):
    group = optimizer.param_groups[0]
    return _core.step_of_one_kind(group["params"], optimizer.state, optimizer._states_of(group), optimizer._counts_from)


def stepped(name="adam", dtype="float32"):
    params = made(dtype)
    optimizer, _ = run(OPTIMIZERS[name], params)
    return optimizer, params


def test_what_is_given():
    optimizer, params = stepped()
    params[1].grad = None
    values, gradients, states, lists, steps = of_one_kind(optimizer)
    kept = [params[i] for i in (0, 2, 3)]
    assert all(a is b for a, b in zip(values, kept, strict=True))
    assert all(a is p.grad for a, p in zip(gradients, kept, strict=True))
    assert all(a is optimizer.state[p] for a, p in zip(states, kept, strict=True))
    assert all(a is optimizer.state[p]["exp_avg_sq"] for a, p in zip(lists[1], kept, strict=True))
    assert (len(lists), steps) == (2, 5)


def other_gradient(optimizer, params):
    params[1].grad = tc.zeros(4, 3).T[:3, :3]


def other_parameter(optimizer, params):
    params[1].data = tc.zeros(3, 3).T


def no_state(optimizer, params):
    del optimizer.state[params[2]]


def state_without_an_entry(optimizer, params):
    del optimizer.state[params[2]]["exp_avg"]


def state_with_a_number(optimizer, params):
    optimizer.state[params[2]]["exp_avg"] = 0.0


def state_of_another_dtype(optimizer, params):
    optimizer.state[params[2]]["exp_avg"] = optimizer.state[params[2]]["exp_avg"].double()


def strided_state(optimizer, params):
    optimizer.state[params[1]]["exp_avg"] = tc.zeros(3, 3).T


def state_with_a_master(optimizer, params):
    optimizer.state[params[2]]["master"] = params[2].detach().clone()


def another_count(optimizer, params):
    optimizer.state[params[3]]["step"] = 4


def no_count(optimizer, params):
    del optimizer.state[params[3]]["step"]


def count_that_is_no_int(optimizer, params):
    optimizer.state[params[3]]["step"] = 5.0


def state_that_is_no_dict(optimizer, params):
    optimizer.state[params[3]] = [5]


def no_gradient(optimizer, params):
    for p in params:
        p.grad = None


@pytest.mark.parametrize(
    "change",
    [
        other_gradient,
        other_parameter,
        no_state,
        state_without_an_entry,
        state_with_a_number,
        state_of_another_dtype,
        strided_state,
        state_with_a_master,
        another_count,
        no_count,
        count_that_is_no_int,
        state_that_is_no_dict,
        no_gradient,
    ],
)
def test_another_kind_is_left_to_the_general_way(change):
    optimizer, params = stepped()
    assert of_one_kind(optimizer) is not None
    change(optimizer, params)
    assert of_one_kind(optimizer) is None


def test_parameters_in_a_tuple_and_names_in_a_list(monkeypatch):
    class Listing(tc.optim.Adam):
        def _states_of(self, group):
            return list(super()._states_of(group))

    def make(params):
        optimizer = Listing(params, lr=0.1)
        optimizer.param_groups[0]["params"] = tuple(params)
        return optimizer

    found = looks(monkeypatch)
    values, expected = run(make, made())[1], run(OPTIMIZERS["adam"], made())[1]
    assert found == 2 * [False, True, True, True, True]
    for value, other in zip(values, expected, strict=True):
        np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_halves_have_copies_and_are_left_to_the_general_way(name):
    optimizer, _ = stepped(name, "bfloat16")
    assert of_one_kind(optimizer) is None


def test_a_count_too_large_for_the_core_is_an_error():
    optimizer, params = stepped()
    for p in params:
        optimizer.state[p]["step"] = 2**70
    before = [p.detach().numpy().copy() for p in params]
    with pytest.raises(OverflowError):
        optimizer.step()
    assert all((p.detach().numpy() == b).all() for p, b in zip(params, before, strict=True))


def test_gradients_of_one_kind():
    params = made()
    give(params, 0)
    assert all(a is p.grad for a, p in zip(_core.gradients_of_one_kind(params), params, strict=True))
    params[0].grad = None
    assert len(_core.gradients_of_one_kind(params)) == 3
    params[1].grad = tc.zeros(4, 3).T[:3, :3]
    assert _core.gradients_of_one_kind(params) is None
    assert _core.gradients_of_one_kind([]) is None
    assert _core.gradients_of_one_kind([1.0]) is None
    mixed = [*made(), *made("float64")]
    give(mixed, 0)
    assert _core.gradients_of_one_kind(mixed) is None
    with pytest.raises(TypeError, match="must be a list, not tuple"):
        _core.gradients_of_one_kind(tuple(params))


def test_clipping_takes_what_gives_parameters_once():
    params = made()
    give(params, 0)
    total = tc.optim.clip_grad_norm_((p for p in params), 1e-3)
    assert float(total) > 1.0
    assert np.isclose(sum(float((p.grad**2).sum()) for p in params), 1e-6, rtol=1e-3)
