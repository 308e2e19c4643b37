"""Optimizers: PyTorch's trajectories, groups, skipped parameters, state, the gradient buffer."""

import copy
import math
import pickle

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from tolerance import assert_close
from transformer_c.optim.optimizer import required

CASES = load("optimizers")
INPUTS = CASES.pop("inputs")


def parameters(dtype):
    return [tc.nn.Parameter(INPUTS[1][name].astype(dtype)) for name in "ab"]


def give_gradients(params, step):
    """The golden gradients of a step; the second parameter has none in every fourth."""
    skipped = INPUTS[0]["skip_second_every"]
    for p, name in zip(params, ("da", "db"), strict=True):
        absent = name == "db" and step % skipped == skipped - 1
        p.grad = None if absent else tc.tensor(INPUTS[1][name][step].astype(p.dtype))


def flat(params):
    return np.concatenate([p.detach().numpy().reshape(-1) for p in params])


def run(optimizer, params, steps):
    path = []
    for step in steps:
        give_gradients(params, step)
        optimizer.step()
        path.append(flat(params))
    return np.array(path)


def make(case, params):
    arguments = {k: tuple(v) if isinstance(v, list) else v for k, v in CASES[case][0]["arguments"].items()}
    return getattr(tc.optim, CASES[case][0]["optimizer"])(params, **arguments)


@pytest.mark.parametrize("case", sorted(CASES))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_trajectory(case, dtype, isa):
    params = parameters(dtype)
    path = run(make(case, params), params, range(20))
    assert_close(path, CASES[case][1]["f64"], dtype, k=20, gradient=dtype == "float32", name=case)


@pytest.mark.parametrize(
    "case", ["adam_amsgrad", "adamw", "sgd_nesterov", "adafactor_options", "nadam_options", "radam", "rmsprop_centered", "adagrad_options"]
)
def test_state_dict_resumes_to_the_bit(case):
    whole = parameters("float32")
    expected = run(make(case, whole), whole, range(20))[-1]
    params = parameters("float32")
    first = make(case, params)
    run(first, params, range(9))
    state = copy.deepcopy(first.state_dict())
    second = make(case, params)
    second.load_state_dict(state)
    assert (run(second, params, range(9, 20))[-1] == expected).all()


def test_load_state_dict_refuses_other_shapes():
    params = parameters("float32")
    optimizer = tc.optim.Adam(params)
    run(optimizer, params, range(1))
    state = copy.deepcopy(optimizer.state_dict())
    state["state"][0]["exp_avg"] = np.zeros((2, 2), np.float32)
    with pytest.raises(ValueError, match=r"\(2, 2\).*\(3, 5\)"):
        optimizer.load_state_dict(state)


def test_threads_give_the_same_bits():
    seen = set()
    before = tc.get_num_threads()
    for count in (1, 2, 3):
        tc.set_num_threads(count)
        rng = np.random.default_rng(0)
        p = tc.nn.Parameter(rng.standard_normal(50_001).astype(np.float32))
        optimizer = tc.optim.Adam([p])
        for _ in range(3):
            p.grad = tc.tensor(rng.standard_normal(50_001).astype(np.float32))
            norm = float(tc.optim.clip_grad_norm_([p], 1.0))
            optimizer.step()
        seen.add((norm, p.detach().numpy().tobytes()))
    tc.set_num_threads(before)
    assert len(seen) == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_parameters_step_on_float32_masters(dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    p = tc.nn.Parameter(tc.ones(100).to(dtype))
    optimizer = tc.optim.SGD([p], lr=1e-4)
    for _ in range(100):  # a single step is below the spacing of half numbers at 1
        p.grad = tc.ones(100).to(dtype)
        optimizer.step()
    assert abs(float(p.detach().float()[0]) - 0.99) < 0.005


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_written_to_halves_counts(dtype):
    """Their masters take it; what was not written keeps its low bits."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    p = tc.nn.Parameter(tc.ones(3).to(dtype))
    optimizer = tc.optim.SGD([p], lr=2.0**-14)
    p.grad = tc.ones(3).to(dtype)
    optimizer.step()
    with tc.no_grad():
        p[1] = 0.5
    optimizer.step()
    p.data = tc.tensor([1.0, 0.5, 2.0]).to(dtype)
    optimizer.step()
    lost = optimizer.state[p]["master"].numpy() - [1, 0.5, 2]
    np.testing.assert_array_equal(lost * -(2**14), [3, 2, 1])
    fresh = tc.optim.SGD([p])
    fresh.load_state_dict(optimizer.state_dict())
    with tc.no_grad():
        p.fill_(4.0)
    p.grad = None
    fresh.step()
    p.grad = tc.zeros(3).to(dtype)
    fresh.step()
    assert p.tolist() == [4.0, 4.0, 4.0]


def test_a_half_cast_to_the_other_keeps_its_master():
    pytest.importorskip("ml_dtypes")
    p = tc.nn.Parameter(tc.ones(1).bfloat16())
    optimizer = tc.optim.SGD([p], lr=2.0**-12)
    for dtype in ("bfloat16", "float16", "bfloat16"):
        p.data = p.data.to(dtype)
        p.grad = tc.ones(1).to(dtype)
        optimizer.step()
    assert optimizer.state[p]["master"].tolist() == [1 - 3 * 2.0**-12]


def test_a_half_cast_between_steps_without_a_gradient_keeps_its_master():
    """Each step notes what the half looks like: the next cast is then one from there."""
    pytest.importorskip("ml_dtypes")
    p = tc.nn.Parameter(tc.tensor([1 + 2.0**-10]).half())
    optimizer = tc.optim.SGD([p], lr=2.0**-12)
    p.grad = tc.ones(1).half()
    optimizer.step()
    p.grad = None
    for dtype in ("bfloat16", "float16"):
        p.data = p.data.to(dtype)
        optimizer.step()
    assert p.tolist() == [1.0]
    assert optimizer.state[p]["master"].tolist() == [1 + 2.0**-10 - 2.0**-12]


def test_groups_have_options_of_their_own():
    a, b = parameters("float32")
    optimizer = tc.optim.SGD([{"params": [a], "lr": 1.0}, {"params": [b]}], lr=0.5)
    before = flat([a]), flat([b])
    a.grad, b.grad = tc.ones_like(a), tc.ones_like(b)
    optimizer.step()
    assert np.allclose(before[0] - flat([a]), 1.0) and np.allclose(before[1] - flat([b]), 0.5)
    assert [g["lr"] for g in optimizer.param_groups] == [1.0, 0.5]


def test_parameters_without_a_gradient_are_left_alone():
    a, b = parameters("float32")
    optimizer = tc.optim.Adam([a, b], weight_decay=0.1)
    a.grad = tc.ones_like(a)
    before = flat([b])
    optimizer.step()
    assert (flat([b]) == before).all() and b not in optimizer.state


def test_backward_writes_into_the_flat_buffer():
    a, b = parameters("float32")
    optimizer = tc.optim.SGD([a, b], lr=1.0)
    (flatten,) = optimizer.flat_gradients()
    assert flatten.shape == (22,)
    (a * 2.0).sum().backward()
    assert b.grad is None
    (flatten,) = optimizer.flat_gradients()
    assert (flatten.numpy() == np.r_[np.full(15, 2.0), np.zeros(7)]).all()
    before = flat([a])
    with tc.no_grad():
        flatten.fill_(3.0)
    optimizer.step()
    assert (before - flat([a]) == 3.0).all()
    optimizer.zero_grad()
    assert a.grad is None
    (b * 5.0).sum().backward()
    (flatten,) = optimizer.flat_gradients()
    assert (flatten.numpy() == np.r_[np.zeros(15), np.full(7, 5.0)]).all()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_a_copy_knows_no_gradient_buffers(copied):
    """They are found by the ids of the parameters, which others may have where the copy is."""
    optimizer = tc.optim.SGD([tc.nn.Parameter([1.0, 2.0])], lr=0.5)
    optimizer.param_groups[0]["params"][0].grad = tc.ones(2)
    optimizer.flat_gradients()
    other = copied(optimizer)
    assert optimizer._slots and not other._slots and [g.tolist() for g in other.flat_gradients()] == [[0.0, 0.0]]


def test_other_memory_at_the_address_of_that_before_counts():
    """Also with as many writes: the step begins from what is there, not from the float32 copy of what was."""
    p = tc.nn.Parameter(tc.ones(64).half())
    optimizer = tc.optim.SGD([p], lr=0.5)
    p.grad = tc.zeros(64).half()
    optimizer.step()
    place, writes, kept = p.data_ptr(), p._version, []
    p.data = tc.zeros(64).half()
    while len(kept) < 100 and (not kept or kept[-1].data_ptr() != place):
        kept.append(tc.empty(64, dtype="float16"))
    for _ in range(writes):
        kept[-1].fill_(3.0)
    p.data = kept[-1]
    optimizer.step()
    assert p.tolist() == [3.0] * 64


def test_a_parameter_that_takes_the_place_of_one_has_a_part_of_its_own():
    """It may have the id of the one before."""
    optimizer = tc.optim.SGD([tc.nn.Parameter(tc.ones(4))], lr=0.5)
    optimizer.flat_gradients()
    params, made = optimizer.param_groups[0]["params"], []
    old = id(params.pop())
    while len(made) < 1000 and (not made or id(made[-1]) != old):
        made.append(tc.nn.Parameter(tc.ones(2)))
    params.append(made[-1])
    assert [g.shape for g in optimizer.flat_gradients()] == [(2,)]


@pytest.mark.parametrize("clear", ["zero_grad", "None"])
def test_a_gradient_that_was_kept_stays_what_it_was(clear):
    """Also one that another parameter was given, and what a backward needs of it."""
    p, q = tc.nn.Parameter([1.0, 2.0]), tc.nn.Parameter([3.0, 4.0])
    optimizer = tc.optim.SGD([p, q], lr=0.1)
    kept = []
    for factor in (1.0, 2.0, 3.0):
        if clear == "zero_grad":
            optimizer.zero_grad()
        else:
            p.grad = None
        (p * p * factor).sum().backward()
        kept += [(p.grad, factor), (p.grad.view(-1).detach(), factor), (p.grad.numpy(), factor)]
    for gradient, factor in kept:
        assert np.array_equal(np.asarray(gradient), np.array([2, 4], np.float32) * np.float32(factor))
    y = (p * p * p.grad).sum()
    optimizer.zero_grad()
    (p * 100).sum().backward()
    optimizer.zero_grad()
    y.backward()
    assert p.grad.tolist() == [2 * 1 * 6, 2 * 2 * 12]
    q.grad, p.grad = p.grad, None
    (p * 7).sum().backward()
    assert q.grad.tolist() == [12, 48] and p.grad.tolist() == [7, 7]


def test_what_a_graph_saved_of_a_flat_gradient_is_not_overwritten_unnoticed():
    p = tc.nn.Parameter([1.0, 2.0])
    optimizer = tc.optim.SGD([p], lr=0.1)
    optimizer.flat_gradients()
    (p * p).sum().backward()
    y = (p * p.grad).sum()
    optimizer.zero_grad()
    (p * 100).sum().backward()
    with pytest.raises(RuntimeError, match="written in place after it was saved"):
        y.backward()


def test_two_optimizers_of_one_parameter():
    (p,) = [tc.nn.Parameter(np.zeros(3, np.float32))]
    first, second = tc.optim.SGD([p], lr=1.0), tc.optim.SGD([p], lr=10.0)
    p.sum().backward()
    assert (first.flat_gradients()[0].numpy() == 1).all()
    first.step()
    second.step()
    assert (p.detach().numpy() == -11).all()


def test_gradients_add_up_over_backwards():
    p = tc.nn.Parameter(np.ones(3, np.float32))
    tc.optim.SGD([p])
    p.sum().backward()
    held = p.grad
    (p * 2).sum().backward()
    assert held is p.grad and (held.numpy() == 3).all()


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.5, np.inf])
def test_clip_grad_norm(norm_type, isa):
    rng = np.random.default_rng(1)
    params = [tc.nn.Parameter(np.zeros(n, np.float32)) for n in (5000, 3, 1)]
    grads = [rng.standard_normal(p.numel()).astype(np.float32) for p in params]
    for p, g in zip(params, grads, strict=True):
        p.grad = tc.tensor(g)
    expected = np.linalg.norm(np.concatenate(grads).astype(np.float64), norm_type)
    total = float(tc.optim.clip_grad_norm_(params, 0.5, norm_type))
    assert abs(total / expected - 1) < 1e-6
    clipped = np.concatenate([p.grad.numpy() for p in params])
    assert_close(clipped, np.concatenate(grads) * min(1.0, 0.5 / (expected + 1e-6)), "float32")


@pytest.mark.parametrize("of_tensor", [False, True], ids=["a float", "a Tensor"])
@pytest.mark.parametrize("norm_type", [1.0, 2.0, np.inf])
@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float64", "float64"), ("float32", "float64")])
def test_gradients_are_clipped_where_they_are(dtypes, norm_type, of_tensor, rng):
    """Not contiguous, and of one dtype or of two."""
    given = [rng.standard_normal((5, 3)).astype(dtype) for dtype in dtypes]
    given[1] = given[1].T
    for limit, is_checked in ((0.5, False), (0.5, True), (1e3, False), (1e3, True)):
        parameters = [tc.nn.Parameter(np.zeros_like(g)) for g in given]
        for p, g in zip(parameters, given, strict=True):
            p.grad = tc.tensor(g.T.copy()).T
        norm = tc.optim.clip_grad_norm_(parameters, tc.tensor(limit) if of_tensor else limit, norm_type, is_checked)
        expected = np.linalg.norm(np.concatenate([g.ravel() for g in given]).astype(np.float64), norm_type)
        np.testing.assert_allclose(norm.item(), expected, rtol=1e-6)
        assert norm.shape == () and norm.dtype in dtypes and not norm.requires_grad
        for p, g in zip(parameters, given, strict=True):
            np.testing.assert_allclose(p.grad.numpy(), g * min(1.0, limit / (expected + 1e-6)), rtol=1e-6)
    held = parameters[1].grad
    tc.optim.clip_grad_value_(parameters, 0.25)
    assert held is parameters[1].grad
    np.testing.assert_array_equal(held.numpy(), given[1].clip(-0.25, 0.25))


def test_clip_keeps_small_gradients_and_reports_nan():
    p = tc.nn.Parameter(np.zeros(2, np.float32))
    p.grad = tc.tensor(np.array([3.0, 4.0], np.float32))
    assert float(tc.optim.clip_grad_norm_([p], 10.0)) == 5.0 and p.grad.tolist() == [3.0, 4.0]
    p.grad = tc.tensor(np.array([np.nan, 4.0], np.float32))
    with pytest.raises(RuntimeError, match="nan"):
        tc.optim.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    assert np.isnan(float(tc.optim.clip_grad_norm_([p], 1.0))) and tc.isnan(p.grad).all()
    p.grad = tc.tensor([np.inf, 4.0])
    with pytest.raises(RuntimeError, match="inf"):
        tc.optim.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    p.grad = tc.zeros(2)
    assert tc.optim.clip_grad_norm_([p], 1.0, error_if_nonfinite=True).item() == 0.0 and p.grad.tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="norm_type must be above 0, got 0.0"):
        tc.optim.clip_grad_norm_([p], 1.0, norm_type=0)


def test_the_largest_gradient_of_several_dtypes_is_nan_when_one_is():
    for order in (slice(None), slice(None, None, -1)):
        p, q = tc.nn.Parameter([1.0]), tc.nn.Parameter(np.ones(1))
        p.grad, q.grad = tc.ones(1), tc.full((1,), np.nan, dtype="float64")
        assert np.isnan(float(tc.optim.clip_grad_norm_([p, q][order], 1.0, norm_type=np.inf)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_in_halves_are_clipped(dtype):
    p = tc.nn.Parameter(tc.zeros(2, dtype=dtype))
    p.grad = held = tc.tensor([-3.0, 4.0], dtype=dtype)
    assert float(tc.optim.clip_grad_norm_([p], 2.5)) == 5.0 and held.tolist() == [-1.5, 2.0]
    tc.optim.clip_grad_value_([p], 1.75)
    assert p.grad is held and held.tolist() == [-1.5, 1.75]


def test_what_a_step_or_clipping_writes_to_was_saved():
    p = tc.nn.Parameter([3.0, 4.0])
    optimizer = tc.optim.SGD([p], lr=1.0)
    (p * p).sum().backward()
    for write, saved in ((optimizer.step, p), (lambda: tc.optim.clip_grad_norm_([p], 1.0), p.grad)):
        y = (p * saved).sum()
        write()
        with pytest.raises(RuntimeError, match="written in place after it was saved"):
            y.backward()


def test_clip_grad_value():
    p = tc.nn.Parameter(np.zeros(4, np.float32))
    p.grad = tc.tensor(np.array([-3.0, 0.2, 7.0, np.nan], np.float32))
    tc.optim.clip_grad_value_([p], 0.5)
    assert np.array_equal(p.grad.numpy(), np.array([-0.5, 0.2, 0.5, np.nan], np.float32), equal_nan=True)
    p.grad = tc.tensor([-3.0, 0.2, 7.0, np.inf])
    tc.optim.clip_grad_value_([p], 0.0)
    assert not p.grad.any()


def test_a_recast_module_keeps_training():
    layer = tc.nn.Linear(3, 2)
    optimizer = tc.optim.SGD(layer.parameters(), lr=0.1)
    assert {b.dtype.name for b in optimizer.flat_gradients()} == {"float32"}
    layer.double()
    layer(tc.tensor(np.ones((1, 3)))).sum().backward()
    before = flat(layer.parameters())
    optimizer.step()
    assert layer.weight.dtype == np.float64 and (flat(layer.parameters()) != before).all()
    assert {b.dtype.name for b in optimizer.flat_gradients()} == {"float64"}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_parameters_that_lie_across_memory(dtype):
    p = tc.nn.Parameter(tc.zeros(2, 3, dtype=dtype))
    p.data = tc.arange(6, dtype=dtype).reshape(3, 2).T
    optimizer = tc.optim.SGD([p], lr=1.0, momentum=0.5)
    for _ in range(2):
        p.grad = tc.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]], dtype=dtype)
        optimizer.step()
    assert p.tolist() == [[-2.5, -3.0, -6.0], [-19.0, -37.0, -75.0]]


@pytest.mark.parametrize("after", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("before", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (tc.optim.SGD, {}),
        (tc.optim.SGD, {"momentum": 0.9}),
        (tc.optim.Adam, {"amsgrad": True}),
        (tc.optim.AdamW, {}),
        (tc.optim.RMSprop, {"momentum": 0.9, "centered": True}),
    ],
)
def test_the_state_of_a_recast_module_is_recast(kind, options, before, after):
    """The steps of the recast optimizer are those of one that loads its state, which casts it."""
    layer = tc.nn.Linear(3, 2).to(dtype=before)
    optimizer = kind(layer.parameters(), lr=0.125, **options)

    def step(layer, optimizer, dtype):
        optimizer.zero_grad()
        (layer(tc.ones(1, 3, dtype=dtype)) ** 2).sum().backward()
        optimizer.step()

    step(layer, optimizer, before)
    layer.to(dtype=after)
    other = copy.deepcopy(layer)
    loaded = kind(other.parameters(), lr=0.125, **options)
    state = copy.deepcopy(optimizer.state_dict())
    halves = {"float16", "bfloat16"}
    if not {before, after} <= halves:  # between halves the copy in float32 stays, with all of its digits
        for values in state["state"].values():
            values.pop("master", None)
    loaded.load_state_dict(state)
    for _ in range(2):
        step(layer, optimizer, after)
        step(other, loaded, after)
    computed = "float64" if after == "float64" else "float32"
    for p, q in zip(layer.parameters(), other.parameters(), strict=True):
        assert p.dtype.name == after and p.tolist() == q.tolist()
        found = {name: value for name, value in optimizer.state[p].items() if name != "step"}
        assert {value.dtype.name for value in found.values()} <= {computed} and ("master" in found) is (after in halves)
        assert optimizer.state[p]["step"] == 3 and (after in halves or not optimizer._rounded)  # which keeps memory of halves


def test_a_state_of_which_some_parameters_were_recast():
    p, q = tc.nn.Parameter([1.0]), tc.nn.Parameter(np.ones(1))
    optimizer = tc.optim.SGD([p, q], lr=0.5, momentum=0.5)
    for _ in range(2):
        for x in (p, q):
            x.grad = tc.ones(1, dtype=x.dtype)
        optimizer.step()
        tc.nn.ParameterList([p]).double()
    assert p.tolist() == q.tolist() == [-0.25]
    assert [optimizer.state[x]["momentum_buffer"].dtype.name for x in (p, q)] == ["float64", "float64"]


def test_an_option_of_another_type_is_refused_as_before():
    p = tc.nn.Parameter([1.0])
    optimizer = tc.optim.Adam([p])
    p.grad = tc.ones(1)
    optimizer.param_groups[0]["lr"] = "high"
    with pytest.raises(TypeError):
        optimizer.step()
    assert p.tolist() == [1.0] and optimizer.state[p]["step"] == 0


@pytest.mark.parametrize(
    ("make_it", "error", "message"),
    [
        (lambda p: tc.optim.Adam([]), ValueError, "no parameters"),
        (lambda p: tc.optim.Adam(p), TypeError, "iterable"),
        (lambda p: tc.optim.Adam([p, p]), ValueError, "twice"),
        (lambda p: tc.optim.Adam([p], lr=-1.0), ValueError, "lr.*-1"),
        (lambda p: tc.optim.Adam([p], lr=float("nan")), ValueError, "lr.*nan"),
        (lambda p: tc.optim.Adam([p], betas=(0.9, 1.0)), ValueError, r"betas\[1\].*1.0"),
        (lambda p: tc.optim.Adam([p], betas=()), TypeError, r"betas must be two numbers, such as .* got \(\)"),
        (lambda p: tc.optim.Adam([p], betas=np.array(0.9)), TypeError, "betas must be two numbers"),
        (lambda p: tc.optim.Adam([p], betas=(0.9, [0.99])), TypeError, r"betas\[1\] must be a number, got \[0.99\]"),
        (lambda p: tc.optim.SGD([p], nesterov=True), ValueError, "nesterov"),
        (lambda p: tc.optim.SGD([p * 2]), ValueError, "leaf"),
        (lambda p: tc.optim.SGD(["p"]), TypeError, "str"),
    ],
)
def test_bad_arguments(make_it, error, message):
    with pytest.raises(error, match=message):
        make_it(tc.nn.Parameter([1.0]))


def test_closure_runs_with_gradients():
    p = tc.nn.Parameter([2.0])
    optimizer = tc.optim.SGD([p], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with tc.no_grad():
        loss = optimizer.step(closure)
    assert float(loss) == 4.0 and p.tolist() == [1.0]


OPTIMIZERS = {
    "SGD": dict(lr=0.1, momentum=0.9),
    "Adam": dict(lr=0.1, amsgrad=True),
    "AdamW": dict(lr=0.1),
    "Adafactor": dict(lr=0.1, weight_decay=0.1),
    "NAdam": dict(lr=0.1, weight_decay=0.1),
    "RAdam": dict(lr=0.1, weight_decay=0.1),
    "RMSprop": dict(lr=0.1, momentum=0.5, centered=True),
    "Adagrad": dict(lr=0.1, lr_decay=0.5, initial_accumulator_value=0.25),
}


def test_every_optimizer_has_a_row():
    public = {name: getattr(tc.optim, name) for name in tc.optim.__all__}
    kinds = {name for name, kind in public.items() if isinstance(kind, type) and issubclass(kind, tc.optim.Optimizer)} - {
        "Optimizer",
        "Muon",
    }  # test_muon.py
    assert sorted(kinds ^ set(OPTIMIZERS)) == [], "in tc.optim or in OPTIMIZERS, but not in both"
    golden = {options["optimizer"] for options, _ in CASES.values()}
    assert sorted(kinds - golden) == [], "PyTorch's numbers of each: tests/golden/make_golden.py, OPTIMIZERS"


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_goes_on_from_a_state_of_pytorch(name, dtype):
    """Two steps in PyTorch, then one here from its state dict and one there."""
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=getattr(torch, dtype)))
    optimizer = getattr(torch.optim, name)([theirs], **OPTIMIZERS[name])

    def step():
        optimizer.zero_grad()
        (theirs * theirs).sum().backward()
        optimizer.step()

    step(), step()
    ours = tc.nn.Parameter(tc.from_dlpack(theirs.detach(), copy=True))
    loaded = getattr(tc.optim, name)([ours], **OPTIMIZERS[name])
    loaded.load_state_dict(optimizer.state_dict())
    step()
    (ours * ours).sum().backward()
    loaded.step()
    tolerance = {"float64": 1e-14, "float32": 1e-6, "float16": 4e-3, "bfloat16": 2e-2}[dtype]
    np.testing.assert_allclose(ours.detach().to("float64").numpy(), theirs.detach().double().numpy(), rtol=tolerance)


def test_a_state_without_momentum_yet():
    """PyTorch's SGD saves None for buffers that it has not made."""
    p = tc.nn.Parameter([1.0])
    optimizer = tc.optim.SGD([p], lr=0.5, momentum=0.9)
    state = optimizer.state_dict()
    state["state"] = {0: {"momentum_buffer": None}}
    optimizer.load_state_dict(state)
    (p * p).sum().backward()
    optimizer.step()
    assert p.tolist() == [0.0]


def test_momentum_that_begins_late():
    """The first buffer is the gradient, without dampening; the first of other parameters comes when theirs begin."""
    p, q = tc.nn.Parameter([0.0]), tc.nn.Parameter([0.0])
    optimizer = tc.optim.SGD([p, q], lr=1.0, dampening=0.5)
    p.grad = q.grad = tc.ones(1)
    optimizer.step()
    optimizer.param_groups[0]["momentum"] = 0.5
    optimizer.step()
    assert p.tolist() == q.tolist() == [-2.0]
    q.grad = None
    optimizer.step()
    assert p.tolist() == [-3.0]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_hints_of_pytorch_change_nothing(name):
    p, q = tc.nn.Parameter([1.0, -2.0]), tc.nn.Parameter([1.0, -2.0])
    hints = {"foreach": True, "fused": False, "capturable": True, "differentiable": False}
    for missing in {"Adafactor": ("fused", "capturable", "differentiable"), "Adagrad": ("capturable",), "NAdam": ("fused",)}.get(name, ()):
        del hints[missing]  # PyTorch's has none
    plain, hinted = getattr(tc.optim, name)([p]), getattr(tc.optim, name)([q], **hints)
    for x, optimizer in ((p, plain), (q, hinted)):
        (x * x).sum().backward()
        options = {"foreach": True} if optimizer is hinted else {}
        tc.nn.utils.clip_grad_norm_([x], 3.0, **options)
        tc.nn.utils.clip_grad_value_([x], 1.0, **options)
        optimizer.step()
    assert p.tolist() == q.tolist() and plain.defaults == hinted.defaults


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name != "Adafactor"])  # PyTorch's has no such option
def test_a_step_is_never_differentiable(name):
    with pytest.raises(ValueError, match="differentiable=True is not possible: steps are not recorded"):
        getattr(tc.optim, name)([tc.nn.Parameter([1.0])], differentiable=True)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name != "SGD"])
def test_states_follow_a_parameter_that_was_cast(name):
    p = tc.nn.Parameter([1.0, 2.0])
    optimizer = getattr(tc.optim, name)([p], **OPTIMIZERS[name])
    for cast in (False, True):
        if cast:
            p.data = p.data.double()
        p.grad = tc.ones_like(p.data)
        optimizer.step()
        states = [v for v in optimizer.state[p].values() if isinstance(v, tc.Tensor)]
        assert states and {v.dtype for v in states} == {p.dtype}


def momenta_of_their_own(library):
    """Two parameters with as many steps each, but with other momenta in them."""
    p, q = (library.nn.Parameter(library.tensor([1.0])) for _ in range(2))
    optimizer = library.optim.NAdam([p, q], lr=0.1)
    for i, moved in enumerate(((p,), (p,), (q,), (q,), (p, q))):
        optimizer.param_groups[0]["betas"] = (0.5 if i in (2, 3) else 0.9, 0.999)
        optimizer.zero_grad()
        for parameter in moved:
            parameter.grad = library.tensor([0.7])
        optimizer.step()
    return [p.item(), q.item()]


def test_nadam_keeps_the_momenta_of_each_parameter():
    assert momenta_of_their_own(tc) == pytest.approx([0.74276, 0.69569], abs=1e-5)  # PyTorch's


def test_adafactor_keeps_rows_and_columns():
    """A row and a column of each matrix of the last two axes; other shapes are refused before anything is loaded."""
    weight, bias = tc.nn.Parameter(np.ones((2, 5, 3), np.float32)), tc.nn.Parameter(np.ones(4, np.float32))
    optimizer = tc.optim.Adafactor([weight, bias])
    (weight.sum() + bias.sum()).backward()
    optimizer.step()
    assert {name: v.shape for name, v in optimizer.state[weight].items() if name != "step"} == {"row_var": (2, 5, 1), "col_var": (2, 1, 3)}
    assert optimizer.state[bias]["variance"].shape == (4,)
    state = optimizer.state_dict()
    state["state"][0]["row_var"] = np.zeros((2, 5, 3), np.float32)
    fresh = tc.optim.Adafactor([weight, bias])
    with pytest.raises(
        ValueError, match=r"state 'row_var' has shape \(2, 5, 3\), but that of a parameter of shape \(2, 5, 3\) has \(2, 5, 1\)"
    ):
        fresh.load_state_dict(state)
    assert not fresh.state
    for options, message in (
        ({"beta2_decay": 0.5}, "beta2_decay must be at most 0, got 0.5"),
        ({"d": 0.5}, "d must be at least 1, got 0.5"),
        ({"eps": (None, -1.0)}, r"eps\[1\] must not be negative"),
        ({"beta2_decay": float("nan")}, "beta2_decay must be at most 0, got nan"),
    ):
        with pytest.raises(ValueError, match=message):
            tc.optim.Adafactor([bias], **options)
    with pytest.raises(TypeError, match=r"eps must be two numbers, such as \(None, 0.001\), got 1e-08"):
        tc.optim.Adafactor([bias], eps=1e-8)


def test_adam_with_the_weight_decay_of_adamw():
    """As an option, from the state dict of an AdamW, and from that of PyTorch's Adam with this option; an AdamW stays one."""
    options = {"lr": 0.1, "weight_decay": 0.5}
    p, q, r, s = (tc.nn.Parameter([1.0, -2.0]) for _ in range(4))
    expected, other = tc.optim.AdamW([p], **options), tc.optim.AdamW([s], **options)
    loaded = tc.optim.Adam([r], **options)
    loaded.load_state_dict(expected.state_dict())
    other.load_state_dict(tc.optim.Adam([tc.nn.Parameter([0.0, 0.0])], **options).state_dict())
    for x, optimizer in ((p, expected), (q, tc.optim.Adam([q], decoupled_weight_decay=True, **options)), (r, loaded), (s, other)):
        (x * x).sum().backward()
        optimizer.step()
    assert p.tolist() == q.tolist() == r.tolist() == s.tolist()
    assert other.state_dict()["param_groups"][0]["decoupled_weight_decay"] is True
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = torch.optim.Adam([theirs], decoupled_weight_decay=True, **options)
    t = tc.nn.Parameter([1.0, -2.0])
    ours = tc.optim.Adam([t])
    ours.load_state_dict(optimizer.state_dict())
    for x, one in ((theirs, optimizer), (t, ours)):
        (x * x).sum().backward()
        one.step()
    np.testing.assert_allclose(t.numpy(), theirs.detach().numpy(), rtol=1e-6)


def test_a_step_whose_rounded_copy_has_another_shape_changes_nothing():
    p, g = tc.ones(4), tc.ones(4)
    with pytest.raises(ValueError, match=r"half 0 has shape \(2,\) but its parameter has \(4,\)"):
        tc._core.sgd_step([p], [g], None, 0.5, 0.0, 0.0, 0.0, False, False, True, [tc.zeros(2, dtype="bfloat16")])
    assert p.tolist() == [1.0] * 4


def test_parameters_with_names():
    """As in PyTorch 2.6 and later: the names are in the groups and in the state dict, and one without names can be loaded."""
    layer = tc.nn.Linear(2, 1)
    optimizer = tc.optim.AdamW(layer.named_parameters(), lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert [p is q for p, q in zip(optimizer.param_groups[0]["params"], layer.parameters(), strict=True)] == [True, True]
    layer(tc.ones(1, 2)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    assert state["param_groups"][0]["param_names"] == ["weight", "bias"] and "param_names" not in repr(optimizer)
    plain = tc.optim.AdamW(layer.parameters())
    plain.load_state_dict(state)
    optimizer.load_state_dict(tc.optim.AdamW(layer.parameters()).state_dict())
    assert plain.param_groups[0]["lr"] == 0.1 and optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    groups = tc.optim.SGD([{"params": [("w", layer.weight)], "lr": 0.5}, {"params": [("b", layer.bias)]}], lr=0.1)
    assert [(g["param_names"], g["lr"]) for g in groups.param_groups] == [(["w"], 0.5), (["b"], 0.1)]
    again = tc.optim.SGD(groups.param_groups, lr=0.3)
    assert [(g["param_names"], g["lr"]) for g in again.param_groups] == [(["w"], 0.5), (["b"], 0.1)]
    with pytest.raises(ValueError, match="a group has 1 parameters and 2 names"):
        tc.optim.SGD([{"params": [layer.bias], "param_names": ["a", "b"]}], lr=0.1)


def test_groups_that_are_none_change_nothing():
    layer = tc.nn.Linear(2, 1)
    for params in ([("w", layer.weight), layer.bias], [{"params": [("w", layer.weight)]}, {"params": [layer.bias]}]):
        with pytest.raises(ValueError, match="some parameters have names, others none"):
            tc.optim.SGD(params, lr=0.1)
    optimizer = tc.optim.SGD([layer.weight], lr=0.1)
    for group, message in (
        ({"param": [layer.bias], "lr": 1}, r"a dict of \['lr', 'param'\]"),
        ({"param": [layer.bias], 1: 1}, r"a dict of \['1', 'param'\]"),
        (layer.bias, "Parameter"),
        ([layer.bias], "list"),
    ):
        with pytest.raises(TypeError, match='a group of parameters is a dict that has "params", got ' + message):
            optimizer.add_param_group(group)
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize(
    ("state", "what"), [({}, r"a dict of \[\]"), (None, "NoneType"), ({"model": 1, 2: 3}, r"a dict of \['2', 'model'\]")]
)
def test_what_is_no_state_dict_of_an_optimizer(state, what):
    with pytest.raises(ValueError, match='the state dict of an optimizer has "state" and "param_groups", got ' + what):
        tc.optim.SGD([tc.nn.Parameter([1.0])], lr=0.1).load_state_dict(state)


def test_a_state_dict_that_does_not_fit_changes_nothing():
    p = tc.nn.Parameter([1.0])
    optimizer = tc.optim.Adam([p], lr=0.1)
    before = optimizer.state_dict()
    for group, state, error, message in (
        ({"lr": "x"}, {}, TypeError, "lr"),
        ({"lr": math.nan}, {}, ValueError, "lr must not be NaN"),
        ({"eps": -1.0}, {}, ValueError, "eps"),
        ({}, {5: {"step": 1}}, ValueError, r"a state for the parameters \[5\]; its groups have \[0\]"),
    ):
        with pytest.raises(error, match=message):
            optimizer.load_state_dict({"state": state, "param_groups": [{**before["param_groups"][0], **group}]})
    assert optimizer.state_dict() == before


def test_a_learning_rate_that_a_schedule_led_below_0_is_loaded():
    """By a rounding at the end of a linear decay; the step goes on with it, as PyTorch's."""
    p = tc.nn.Parameter([1.0])
    optimizer = tc.optim.SGD([p], lr=2.5)
    schedule = tc.optim.lr_scheduler.LinearLR(optimizer, end_factor=0.0)
    for _ in range(5):
        schedule.step()
    again = tc.optim.SGD([p], lr=1.0)
    again.load_state_dict(optimizer.state_dict())
    assert again.param_groups[0]["lr"] == schedule.get_last_lr()[0] < 0
    with pytest.raises(ValueError, match="lr must not be negative"):
        again.add_param_group({"params": [tc.nn.Parameter([1.0])], "lr": -1.0})


class Lion(tc.optim.Optimizer):
    """Chen et al. 2023, written as for PyTorch, with the sum of squares of each row besides."""

    def __init__(self, params, lr=0.5, betas=(0.75, 0.5)):
        super().__init__(params, dict(lr=lr, betas=betas))

    @tc.no_grad()
    def step(self, closure=None):
        if closure is not None:
            with tc.enable_grad():
                closure()
        for group in self.param_groups:
            for p in [p for p in group["params"] if p.grad is not None]:
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"], state["parts"] = tc.zeros_like(p), {"rows": [tc.zeros(p.shape[0])]}
                beta1, beta2 = group["betas"]
                p.add_((state["exp_avg"] * beta1 + p.grad * (1 - beta1)).sign(), alpha=-group["lr"])
                state["exp_avg"].mul_(beta2).add_(p.grad, alpha=1 - beta2)
                state["parts"]["rows"][0] += (p.grad * p.grad).sum(1)


def test_an_optimizer_of_the_users_own():
    """Its state is what it puts there, of any shape, and is loaded as it was saved."""
    p = tc.nn.Parameter([[1.0, 2.0], [3.0, 4.0]])
    optimizer = Lion([p])
    for gradient in ([[1.0, -2.0], [0.0, 4.0]], [[-0.25, 0.0], [-1.0, 4.0]]):
        p.grad = tc.tensor(gradient)
        optimizer.step()
        loaded = Lion([p])
        loaded.load_state_dict(optimizer.state_dict())
    assert p.tolist() == [[0.0, 3.0], [3.5, 3.0]]
    state, saved = loaded.state[p], optimizer.state[p]
    assert list(state) == ["exp_avg", "parts"] and state["exp_avg"].tolist() == [[0.125, -0.5], [-0.5, 3.0]]
    assert state["parts"]["rows"][0].tolist() == [5.0625, 33.0] and state["parts"]["rows"][0] is not saved["parts"]["rows"][0]


def test_an_optimizer_of_the_users_own_has_its_own_options():
    """Adafactor's two eps and no lr, Adan's three betas."""
    given = {"lr": None, "eps": (1e-30, 1e-3), "betas": (0.9, 0.9, 0.9), "momentum": "heavy"}

    class Own(tc.optim.Optimizer):
        def step(self, closure=None): ...

    p = tc.nn.Parameter([1.0])
    optimizer = Own([p], given)
    loaded = Own([{"params": [p], "eps": 0.5}], given)
    loaded.load_state_dict(optimizer.state_dict())
    assert loaded.param_groups == optimizer.param_groups == [{"params": [p], **given}]


def test_a_parameter_without_a_state_has_an_empty_one():
    p, q = tc.nn.Parameter([1.0]), tc.nn.Parameter(tc.ones(1).half())
    optimizer = tc.optim.Adam([p, q], lr=0.5)
    assert [optimizer.state[x] for x in (p, q)] == [{}, {}]
    p.grad, q.grad = tc.ones(1), tc.ones(1).half()
    optimizer.step()
    assert p.half().tolist() == q.tolist() == [0.5] and list(optimizer.state[q]) == ["step", "master", "exp_avg", "exp_avg_sq"]


def test_an_empty_state_is_loaded_as_that_of_no_step():
    p, q = tc.nn.Parameter([1.0]), tc.nn.Parameter([1.0])
    saved, loaded = tc.optim.Adam([p], lr=0.5), tc.optim.Adam([q], lr=0.5)
    assert saved.state[p] == {}
    loaded.load_state_dict(saved.state_dict())
    for x, optimizer in ((p, saved), (q, loaded)):
        x.grad = tc.ones(1)
        optimizer.step()
    assert p.tolist() == q.tolist() and loaded.state[q]["step"] == 1


def test_a_state_that_was_looked_at_before_the_first_step():
    p = tc.nn.Parameter([1.0])
    optimizer = tc.optim.SGD([p], lr=0.5)
    state = optimizer.state[p]
    state["seen"] = True
    p.sum().backward()
    optimizer.step()
    assert p.tolist() == [0.5] and state["step"] == 1 and optimizer.state[p] is state


class Written(tc.optim.Optimizer):
    """Adam, as a program for PyTorch writes it: a ``step`` of its own, and a state that begins empty."""

    def __init__(self, params, lr=required):
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-8})

    @tc.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad.is_sparse:
                    raise RuntimeError("Written does not support sparse gradients")
                state, (beta1, beta2) = self.state[p], group["betas"]
                if len(state) == 0:
                    state.update(step=0, exp_avg=tc.zeros_like(p), exp_avg_sq=tc.zeros_like(p))
                state["step"] += 1
                state["exp_avg"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                denominator = (state["exp_avg_sq"] / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
                p.addcdiv_(state["exp_avg"], denominator, value=-group["lr"] / (1 - beta1 ** state["step"]))


def test_an_optimizer_with_a_step_of_its_own():
    p, q = tc.nn.Parameter(np.arange(4.0)), tc.nn.Parameter(np.arange(4.0))
    with pytest.raises(ValueError, match=r"the options \['lr'\] have no default"):
        Written([p])
    written, adam = Written([{"params": [p], "lr": 0.1}]), tc.optim.Adam([q], lr=0.1)
    for i in range(6):
        if i == 3:
            state = written.state_dict()
            written = Written([p], lr=0.1)
            written.load_state_dict(state)
        for parameter, optimizer in ((p, written), (q, adam)):
            optimizer.zero_grad()
            (parameter - 1).square().sum().backward()
            optimizer.step()
    np.testing.assert_allclose(p.detach(), q.detach(), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_that_was_read_before_the_first_step_is_empty(name, dtype):
    values = []
    for read in (False, True):
        p = tc.nn.Parameter(tc.ones(3, dtype=dtype))
        optimizer = getattr(tc.optim, name)([p], lr=0.1)
        assert not read or optimizer.state[p] == {}
        p.grad = tc.full((3,), 2.0, dtype=dtype)
        optimizer.step()
        values.append((p.tolist(), sorted(optimizer.state[p])))
    assert values[0] == values[1]


# ---- hooks --------------------------------------------------------------------------------------------------------------------------


def hooked(library, own_step):
    """What the hooks of an optimizer see and change, and the parameter after two steps."""

    class Own(library.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    p, log = library.nn.Parameter(library.tensor([1.0, 2.0])), []
    optimizer = (Own if own_step else library.optim.SGD)([p], lr=0.5)

    def before(optimizer, args, kwargs):
        log.append(("before", args[0] is optimizer, len(args), sorted(kwargs)))
        return args[:1], {"closure": closure}

    def closure():
        optimizer.zero_grad()
        (loss := (p * p).sum()).backward()
        return loss

    optimizer.register_step_post_hook(lambda optimizer, args, kwargs: log.append(("after", len(args), sorted(kwargs), p.tolist())))
    first = optimizer.register_step_pre_hook(before)
    losses = [optimizer.step().tolist(), optimizer.step(closure=None).tolist()]
    first.remove()
    optimizer.step()
    optimizer.register_state_dict_pre_hook(lambda optimizer: log.append("saving"))
    optimizer.register_state_dict_post_hook(lambda optimizer, state: {**state, "more": 1})
    optimizer.register_state_dict_post_hook(lambda optimizer, state: log.append(sorted(state)), prepend=True)
    optimizer.register_load_state_dict_pre_hook(lambda optimizer, state: log.append(state.pop("more")))
    optimizer.register_load_state_dict_pre_hook(
        lambda optimizer, state: {**state, "param_groups": [{**state["param_groups"][0], "lr": 0.25}]}
    )
    optimizer.register_load_state_dict_post_hook(lambda optimizer: log.append(optimizer.param_groups[0]["lr"]))
    optimizer.load_state_dict(state := optimizer.state_dict())
    assert "more" in state
    return losses, p.tolist(), log


@pytest.mark.parametrize("own_step", [False, True])
def test_hooks_are_pytorchs(own_step):
    torch = pytest.importorskip("torch")
    found, expected = hooked(tc, own_step), hooked(torch, False)  # which calls them again where a step calls that of its base class
    assert found == expected and len(found[2]) == 9


def test_hooks_are_not_copied_and_go_away():
    p = tc.nn.Parameter([1.0])
    optimizer, seen = tc.optim.SGD([p], lr=0.5), []
    with optimizer.register_step_pre_hook(lambda *given: seen.append(given)):
        copy.deepcopy(optimizer).step()
        pickle.loads(pickle.dumps(tc.optim.SGD([p], lr=0.5))).step()
        assert not seen
        optimizer.step()
    optimizer.step()
    assert len(seen) == 1
    with pytest.raises(TypeError, match="a hook of SGD must be a function, got None"):
        optimizer.register_step_post_hook(None)
    for wrong in (3, (1, 2, 3)):
        expected = pytest.raises(RuntimeError, match=r"a hook before SGD.step\(\) returns None or \(args, kwargs\)")
        with optimizer.register_step_pre_hook(lambda *given, wrong=wrong: wrong), expected:
            optimizer.step()
    with optimizer.register_step_pre_hook(lambda *given: 1 / 0), pytest.raises(ZeroDivisionError):
        optimizer.step()
    optimizer.register_step_pre_hook(lambda *given: seen.append(given))
    optimizer.step()
    assert len(seen) == 2
