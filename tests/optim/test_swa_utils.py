"""Averages of weights, next to PyTorch's."""

import copy

import numpy as np
import pytest
import transformer_c as tc

SWA = tc.optim.swa_utils
RULES = {
    "mean": lambda swa: {},
    "ema": lambda swa: {"multi_avg_fn": swa.get_ema_multi_avg_fn(0.9)},
    "ema of one": lambda swa: {"avg_fn": swa.get_ema_avg_fn(0.9)},
    "mean of one": lambda swa: {"avg_fn": swa.get_swa_avg_fn()},
    "ema of all": lambda swa: {"multi_avg_fn": swa.get_ema_multi_avg_fn(0.5), "use_buffers": True},
    "mean of all": lambda swa: {"multi_avg_fn": swa.get_swa_multi_avg_fn()},
    "own": lambda swa: {"avg_fn": lambda average, value, number: average * 0.5 + value * (1.0 / (number + 1))},
}


def model_of(library, weights):
    model = library.nn.Sequential(library.nn.Linear(3, 2), library.nn.BatchNorm1d(2)).double()
    model.load_state_dict({key: library.tensor(value) for key, value in weights.items()})
    return model


@pytest.mark.parametrize("rule", RULES)
def test_averages_are_pytorchs(rule, rng):
    torch = pytest.importorskip("torch")
    from torch.optim import swa_utils  # noqa: F401

    weights = [
        {
            "0.weight": rng.standard_normal((2, 3)),
            "0.bias": rng.standard_normal(2),
            "1.weight": rng.standard_normal(2),
            "1.bias": rng.standard_normal(2),
            "1.running_mean": rng.standard_normal(2),
            "1.running_var": rng.random(2) + 0.5,
            "1.num_batches_tracked": np.array(7 * i),
        }
        for i in range(4)
    ]
    x, states = rng.standard_normal((5, 3)), []
    for library in (tc, torch):
        swa = library.optim.swa_utils
        averaged = swa.AveragedModel(model_of(library, weights[0]), **RULES[rule](swa))
        for values in weights:
            averaged.update_parameters(model_of(library, values))
        averaged.eval()
        states.append({k: v.numpy() for k, v in averaged.state_dict().items()} | {"y": averaged(library.tensor(x)).detach().numpy()})
        swa.update_bn([(library.tensor(x), 1), library.tensor(x * 2)], averaged)
        assert not averaged.training and averaged.module[1].momentum == 0.1
        states[-1] |= {f"after {k}": v.numpy() for k, v in averaged.state_dict().items()}
    ours, theirs = states
    assert list(ours) == list(theirs)
    for key in ours:
        rtol = 1e-6 if rule == "mean of all" else 1e-10  # PyTorch divides in float32
        np.testing.assert_allclose(ours[key], theirs[key], rtol=rtol, atol=rtol, err_msg=key)


def test_the_averages_of_a_model_are_its_own():
    model = tc.nn.Linear(2, 1)
    averaged = SWA.AveragedModel(model)
    averaged.update_parameters(model)
    other = copy.deepcopy(averaged)
    tc.nn.init.zeros_(model.weight)
    averaged.update_parameters(model)
    assert int(averaged.n_averaged) == 2 and int(other.n_averaged) == 1
    assert tc.allclose(averaged.module.weight * 2, other.module.weight)
    other.load_state_dict(averaged.state_dict())
    assert int(other.n_averaged) == 2


@pytest.mark.parametrize("options", [{}, {"anneal_epochs": 3, "anneal_strategy": "linear"}, {"anneal_epochs": 0}, {"anneal_epochs": 4}])
def test_the_schedule_is_pytorchs(options):
    torch = pytest.importorskip("torch")
    found = []
    for library in (tc, torch):
        groups = [{"params": [library.nn.Parameter(library.ones(1))], "lr": lr} for lr in (1.0, 0.3)]
        optimizer = library.optim.SGD(groups)
        schedule = library.optim.swa_utils.SWALR(optimizer, [0.1, 0.05], **options)
        rates = []
        for _ in range(13):
            optimizer.step()
            rates.append(schedule.get_last_lr())
            schedule.step()
        found.append(rates)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: SWA.AveragedModel(3), TypeError, "model must be an nn.Module, not int"),
        (lambda: SWA.AveragedModel(tc.nn.ReLU(), avg_fn=max, multi_avg_fn=max), ValueError, "give one rule"),
        (lambda: SWA.get_ema_multi_avg_fn(1.5), ValueError, "decay"),
        (
            lambda: SWA.AveragedModel(tc.nn.Linear(1, 1)).update_parameters(tc.nn.Linear(1, 1, bias=False)),
            ValueError,
            "the model has 1 parameters, but the averages are of 2",
        ),
        (
            lambda: SWA.AveragedModel(tc.nn.Linear(1, 1)).update_parameters(tc.nn.Linear(2, 1)),
            ValueError,
            r"weight of the model has shape \(1, 2\), but its average has \(1, 1\)",
        ),
        (lambda: SWA.SWALR(tc.optim.SGD([tc.nn.Parameter([1.0])], lr=1.0), [0.1, 0.1]), ValueError, "2 values for 1 parameter groups"),
        (lambda: SWA.SWALR(tc.optim.SGD([tc.nn.Parameter([1.0])], lr=1.0), 0.1, 5, "cosine"), ValueError, "anneal_strategy must be"),
        (lambda: SWA.SWALR(tc.optim.SGD([tc.nn.Parameter([1.0])], lr=1.0), 0.1, -1), ValueError, "anneal_epochs"),
    ],
)
def test_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
