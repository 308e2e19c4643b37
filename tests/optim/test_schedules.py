"""Learning-rate schedules."""

import numpy as np
import pytest
import transformer_c as tc


def optimizer(lr=1e-3):
    return tc.optim.Adam([tc.nn.Parameter(tc.empty(4, 4))], lr=lr)


def test_cosine_warmup_of_the_tutorial():
    schedule = tc.CosineWarmupScheduler(optimizer(), warmup=100, max_iters=2000)
    factors = {0: 0.0, 50: 0.4992293, 100: 0.9938442, 101: 0.9937207, 1000: 0.5, 1999: 6.1685e-7, 2000: 0.0}
    for epoch, factor in factors.items():
        assert abs(schedule.get_lr_factor(epoch) - factor) < 5e-8
    assert schedule.get_lr_factor(2500) > 0  # it rises again
    assert schedule.base_lrs == [1e-3] and schedule.last_epoch == 0


def test_the_first_step_has_no_learning_rate():
    optim = optimizer()
    schedule = tc.CosineWarmupScheduler(optim, warmup=10, max_iters=100)
    assert optim.param_groups[0]["lr"] == 0.0
    for epoch in range(1, 21):
        schedule.step()
        assert optim.param_groups[0]["lr"] == schedule.get_lr()[0] == 1e-3 * schedule.get_lr_factor(epoch)
    assert schedule.get_last_lr() == [optim.param_groups[0]["lr"]]


def test_steps_may_be_whole_floats():
    schedules = tc.optim.lr_scheduler
    for make in (schedules.StepLR, schedules.CosineAnnealingLR, lambda o, n: schedules.PolynomialLR(o, total_iters=n)):
        rates = []
        for count in (2, 2.0):
            schedule = make(optimizer(), count)
            for _ in range(3):
                schedule.step()
            rates.append(schedule.get_last_lr())
        assert rates[0] == rates[1]
        with pytest.raises(TypeError, match="must be an int, got 2.5"):
            make(optimizer(), 2.5)


@pytest.mark.parametrize("options", [{"warmup": "10"}, {"max_iters": None}], ids=str)
def test_a_warmup_that_is_no_number_is_named(options):
    with pytest.raises(TypeError, match=f"{next(iter(options))} must be a number, got "):
        tc.CosineWarmupScheduler(optimizer(), **{"warmup": 1, "max_iters": 10, **options})


@pytest.mark.parametrize("warmup", [0, -1, float("nan")])
def test_warmup_below_one_is_refused(warmup):
    with pytest.raises(ValueError, match="warmup"):
        tc.CosineWarmupScheduler(optimizer(), warmup=warmup, max_iters=10)


def test_max_iters_below_one_is_refused():
    with pytest.raises(ValueError, match="max_iters"):
        tc.CosineWarmupScheduler(optimizer(), warmup=1, max_iters=0)


def test_lambda_and_subclasses():
    optim = optimizer(lr=2.0)
    schedule = tc.optim.LambdaLR(optim, lambda epoch: 0.5**epoch)
    schedule.step()
    assert optim.param_groups[0]["lr"] == 1.0

    class Halves(tc.optim.lr_scheduler.LRScheduler):
        def get_lr(self):
            return [base / (self.last_epoch + 1) for base in self.base_lrs]

    halves = Halves(optimizer(lr=6.0))
    halves.step()
    halves.step()
    assert halves.get_last_lr() == [2.0]


def test_state_dict_goes_on():
    first = optimizer()
    schedule = tc.CosineWarmupScheduler(first, warmup=10, max_iters=100)
    for _ in range(7):
        schedule.step()
    second = optimizer()
    resumed = tc.CosineWarmupScheduler(second, warmup=10, max_iters=100)
    resumed.load_state_dict(schedule.state_dict())
    assert second.param_groups[0]["lr"] == first.param_groups[0]["lr"] != 0
    schedule.step()
    resumed.step()
    assert np.array_equal(schedule.get_last_lr(), resumed.get_last_lr())
