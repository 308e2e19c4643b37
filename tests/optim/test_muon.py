"""Muon against PyTorch's numbers, the reference, and PyTorch where it is installed."""

import copy

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from tolerance import assert_close
from transformer_c.testing import reference as R

CASES = load("muon")
INPUTS = CASES.pop("inputs")
SHAPES = [(1, 1), (1, 7), (7, 1), (3, 3), (40, 33), (33, 40), (128, 64)]


def make(case, params):
    return tc.optim.Muon(params, **{k: tuple(v) if isinstance(v, list) else v for k, v in CASES[case][0].items()})


def parameters(dtype):
    return [tc.nn.Parameter(INPUTS[1][name].astype(dtype)) for name in "ab"]


def run(optimizer, params, steps, through="float64"):
    path = []
    for step in steps:
        for p, name in zip(params, ("da", "db"), strict=True):
            p.grad = tc.tensor(INPUTS[1][name][step]).to(through).to(p.dtype)
        optimizer.step()
        path.append(np.concatenate([p.detach().to("float64").numpy().ravel() for p in params]))
    return np.array(path)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_trajectory(case, dtype, isa):
    params = parameters(dtype)
    path = run(make(case, params), params, range(INPUTS[0]["steps"]))
    assert_close(path.astype(dtype), CASES[case][1]["f64"], dtype, k=20, gradient=dtype == "float32", name=case)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape, isa):
    rng = np.random.default_rng(0)
    expected, state = rng.standard_normal(shape), {}
    p = tc.nn.Parameter(expected)
    optimizer = tc.optim.Muon([p], lr=0.1)
    for _ in range(3):
        g = rng.standard_normal(shape)
        expected, p.grad = R.muon(expected, g, state, lr=0.1), tc.tensor(g)
        optimizer.step()
    assert_close(p.detach().numpy(), expected, "float64", scale=10)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_rounded_from_a_copy(dtype):
    pytest.importorskip("ml_dtypes")
    halves = [tc.nn.Parameter(p.detach().to(dtype)) for p in parameters("float32")]
    singles = [tc.nn.Parameter(p.detach().float()) for p in halves]
    optimizer = make("options", halves)
    run(optimizer, halves, range(3))
    run(make("options", singles), singles, range(3), through=dtype)
    for half, single in zip(halves, singles, strict=True):
        assert half.dtype.name == dtype and half.float().tolist() == single.detach().to(dtype).float().tolist()
        assert optimizer.state[half]["master"].tolist() == single.tolist()


def test_no_gradient_and_a_gradient_of_zeros():
    a, b = parameters("float64")
    before = [p.detach().numpy().copy() for p in (a, b)]
    optimizer = tc.optim.Muon([a, b], lr=0.5, weight_decay=0.25)
    a.grad = tc.zeros_like(a)
    optimizer.step()
    assert (a.detach().numpy() == before[0] * 0.875).all() and (b.detach().numpy() == before[1]).all() and b not in optimizer.state


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_state_dict_resumes_to_the_bit(dtype):
    whole = parameters(dtype)
    expected = run(make("default", whole), whole, range(5))[-1]
    params = parameters(dtype)
    first = make("default", params)
    run(first, params, range(2))
    second = make("default", params)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert (run(second, params, range(2, 5))[-1] == expected).all()


@pytest.mark.parametrize("after", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("before", ["float32", "float64", "bfloat16"])
def test_the_state_of_a_recast_module_is_recast(before, after):
    pytest.importorskip("ml_dtypes")
    layer = tc.nn.Linear(3, 2, bias=False).to(dtype=before)
    optimizer = tc.optim.Muon(layer.parameters(), lr=0.125)
    for dtype in (before, after, after):
        layer.to(dtype=dtype)
        optimizer.zero_grad()
        (layer(tc.ones(1, 3, dtype=dtype)) ** 2).sum().backward()
        optimizer.step()
    state = optimizer.state[layer.weight]
    assert state["step"] == 3 and state["momentum_buffer"].dtype.name == ("float64" if after == "float64" else "float32")
    assert ("master" in state) is (after == "bfloat16") and np.isfinite(layer.weight.detach().float().numpy()).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_goes_on_from_a_state_of_pytorch(dtype):
    """PyTorch's iterations are in bfloat16."""
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Parameter(torch.tensor(INPUTS[1]["a"], dtype=getattr(torch, dtype)))
    optimizer = torch.optim.Muon([theirs], lr=0.125)

    def step():
        optimizer.zero_grad()
        (theirs * theirs).sum().backward()
        optimizer.step()

    step(), step()
    ours = tc.nn.Parameter(tc.from_dlpack(theirs.detach(), copy=True))
    before = ours.detach().numpy().copy()
    loaded = tc.optim.Muon([ours])
    loaded.load_state_dict(optimizer.state_dict())
    step()
    (ours * ours).sum().backward()
    loaded.step()
    found, expected = ours.detach().numpy() - before, theirs.detach().numpy() - before
    assert loaded.param_groups[0]["lr"] == 0.125 and np.linalg.norm(found - expected) < 0.03 * np.linalg.norm(expected)


def test_threads_give_the_same_bits():
    seen, before = set(), tc.get_num_threads()
    for count in (1, 2, 3):
        tc.set_num_threads(count)
        rng = np.random.default_rng(0)
        p = tc.nn.Parameter(rng.standard_normal((300, 200)).astype(np.float32))
        optimizer = tc.optim.Muon([p])
        for _ in range(2):
            p.grad = tc.tensor(rng.standard_normal((300, 200)).astype(np.float32))
            optimizer.step()
        seen.add(p.detach().numpy().tobytes())
    tc.set_num_threads(before)
    assert len(seen) == 1


def test_a_model_learns():
    """Hidden weights by Muon, the rest by AdamW; with the rates of AdamW where steps have its size."""
    tc.manual_seed(0)
    x, model = tc.randn(64, 8), tc.nn.Sequential(tc.nn.Linear(8, 32), tc.nn.Tanh(), tc.nn.Linear(32, 8))
    y = x.flip(1)
    optimizers = [
        tc.optim.Muon([p for p in model.parameters() if p.ndim == 2], lr=0.01, adjust_lr_fn="match_rms_adamw"),
        tc.optim.AdamW([p for p in model.parameters() if p.ndim != 2], lr=0.01),
    ]
    losses = []
    for _ in range(100):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = tc.F.mse_loss(model(x), y)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.02 * losses[0]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"lr": -1}, ValueError, "lr must not be negative"),
        ({"momentum": -1}, ValueError, "momentum must not be negative"),
        ({"nesterov": "yes"}, TypeError, "nesterov must be a bool"),
        ({"ns_coefficients": (1, 2)}, TypeError, r"ns_coefficients must be three numbers, such as .* got \(1, 2\)"),
        ({"ns_coefficients": (1, 2, "c")}, TypeError, r"ns_coefficients\[2\] must be a number"),
        ({"ns_steps": 100}, ValueError, "ns_steps must be at most 99, got 100"),
        ({"ns_steps": -1}, ValueError, "ns_steps must be at least 0"),
        ({"ns_steps": 1.5}, TypeError, "ns_steps must be an int"),
        ({"adjust_lr_fn": "rms"}, ValueError, "adjust_lr_fn must be 'original' or 'match_rms_adamw', got 'rms'"),
        ({"learning_rate": 1}, TypeError, "lr="),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        tc.optim.Muon([tc.nn.Parameter(tc.ones(2, 2))], **options)


def test_states_of_others_and_empty_matrices():
    p, empty = tc.nn.Parameter(tc.ones(2, 3)), tc.nn.Parameter(tc.ones(3, 0))
    optimizer = tc.optim.Muon([p])
    with pytest.raises(ValueError, match="a group has no momentum, nesterov, .*: it is no state of Muon's"):
        optimizer.load_state_dict(tc.optim.AdamW([p]).state_dict())
    with pytest.raises(ValueError, match="adjust_lr_fn must be"):
        tc.optim.Muon([p], adjust_lr_fn="")
    optimizer = tc.optim.Muon([empty, p], lr=0.5, weight_decay=0.0)
    for q in (empty, p):
        q.grad = tc.zeros_like(q)
    optimizer.step()
    assert empty.shape == (3, 0) and p.tolist() == [[1.0] * 3] * 2


def test_only_matrices():
    weight, bias = tc.nn.Parameter(tc.ones(2, 3)), tc.nn.Parameter(tc.ones(2))
    with pytest.raises(ValueError, match=r"Muon takes matrices, got a parameter of shape \(2,\); give the others to an AdamW"):
        tc.optim.Muon([weight, bias])
    optimizer = tc.optim.Muon([weight])
    with pytest.raises(ValueError, match="Muon takes matrices"):
        optimizer.add_param_group({"params": [bias]})
    assert len(optimizer.param_groups) == 1
