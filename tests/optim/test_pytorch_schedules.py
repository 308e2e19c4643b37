"""Schedules by PyTorch's names give PyTorch's numbers, to the bit: over steps, resumed, combined. The golden values are PyTorch's."""

import json
import math
from copy import deepcopy
from functools import partial
from pathlib import Path

import pytest
import transformer_c as tc

GOLDEN = Path(__file__).parent.parent / "golden" / "schedules.json"
STEPS = 24

# name: the schedule, made by the functions of a module `s`, PyTorch's or this library's, for an optimizer `o` of two groups.
SCHEDULES = {
    "lambda": lambda s, o: s.LambdaLR(o, [lambda e: 0.95**e, lambda e: 1 / (1 + e)]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda e: 0.9 if e % 2 else 1.05),
    "step": lambda s, o: s.StepLR(o, 3, gamma=0.3),
    "milestones": lambda s, o: s.MultiStepLR(o, [2, 5, 5, 11], gamma=0.7),
    "constant": lambda s, o: s.ConstantLR(o, factor=0.3, total_iters=4),
    "constant without a change": lambda s, o: s.ConstantLR(o, factor=1.0, total_iters=4),
    "linear": lambda s, o: s.LinearLR(o, start_factor=0.1, end_factor=0.9, total_iters=7),
    "linear from all to nothing": lambda s, o: s.LinearLR(o, start_factor=1.0, end_factor=0.0, total_iters=7),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.87),
    "polynomial": lambda s, o: s.PolynomialLR(o, total_iters=9, power=1.7),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, T_max=7, eta_min=0.01),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, T_0=4),
    "longer restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, T_0=2, T_mult=3, eta_min=0.02),
    "one cycle": lambda s, o: s.OneCycleLR(o, [1.0, 0.5], total_steps=STEPS + 1),
    "one linear cycle": lambda s, o: s.OneCycleLR(o, 1.0, epochs=5, steps_per_epoch=5, anneal_strategy="linear", three_phase=True, pct_start=0.4),
    "one cycle of rates": lambda s, o: s.OneCycleLR(o, 1.0, total_steps=30, cycle_momentum=False, div_factor=5.0, final_div_factor=10.0),
    "triangles": lambda s, o: s.CyclicLR(o, 0.1, [1.0, 2.0], step_size_up=3, step_size_down=5),
    "lower triangles": lambda s, o: s.CyclicLR(o, 0.1, 1.0, step_size_up=4, mode="triangular2"),
    "shrinking range": lambda s, o: s.CyclicLR(o, 0.1, 1.0, step_size_up=4, mode="exp_range", gamma=0.9, cycle_momentum=False),
    "scaled by a function": lambda s, o: s.CyclicLR(o, 0.1, 1.0, step_size_up=4, scale_fn=lambda x: 1 / x, cycle_momentum=False),
    "sequence": lambda s, o: s.SequentialLR(o, [s.LinearLR(o, 0.1, total_iters=4), s.CosineAnnealingLR(o, 8), s.StepLR(o, 2)], [4, 12]),
    "sequence of others": lambda s, o: s.SequentialLR(
        o, [s.ConstantLR(o, 0.5, 3), s.CosineAnnealingWarmRestarts(o, 3, 2), s.LambdaLR(o, lambda e: 0.9**e), s.ExponentialLR(o, 0.8)], [3, 13, 17]
    ),
    "sequence of polynomials": lambda s, o: s.SequentialLR(
        o, [s.PolynomialLR(o, 5), s.MultiStepLR(o, [2, 3]), s.ConstantLR(o, 0.5, 3)], [5, 10]
    ),
    "chain": lambda s, o: s.ChainedScheduler([s.LinearLR(o, 0.2, total_iters=5), s.ExponentialLR(o, 0.9), s.CosineAnnealingLR(o, 6)], o),
    "chain in a sequence": lambda s, o: s.SequentialLR(
        o, [s.ChainedScheduler([s.ConstantLR(o, 0.5, 2), s.ExponentialLR(o, 0.9)]), s.StepLR(o, 4)], [6]
    ),
}  # fmt: skip
PLATEAUS = {
    "plateau": dict(factor=0.5, patience=2),
    "absolute plateau": dict(mode="max", factor=0.3, patience=1, threshold=0.2, threshold_mode="abs", cooldown=2, min_lr=[0.01, 0.05]),
    "relative plateau": dict(mode="max", factor=0.9, patience=0, threshold=0.1, eps=0.05),
    "falling plateau": dict(mode="min", factor=0.9, patience=0, threshold=0.1, threshold_mode="abs"),
}
VALUES = [math.sin(i) + i / 20 if i % 7 else math.nan for i in range(1, STEPS + 1)]


def optimizer(optim, parameter, kind="Adam"):
    momentum = {"momentum": 0.5} if kind == "SGD" else {}
    return getattr(optim, kind)([{"params": [parameter()]}, {"params": [parameter()], "lr": 0.25}], lr=0.8, **momentum)


def rows(schedule, o, steps=STEPS, values=VALUES):
    """The rates and momentums of both groups, before the first and after every step."""
    found = []
    for step in range(steps + 1):
        found.append([[g["lr"], g["betas"][0] if "betas" in g else g["momentum"]] for g in o.param_groups])
        assert schedule.get_last_lr() == [g["lr"] for g in o.param_groups]
        if step < steps:
            o.step()
            schedule.step(*[values[step]] if type(schedule).__name__ == "ReduceLROnPlateau" else [])
    return found


def ours(name, kind):
    o = optimizer(tc.optim, lambda: tc.nn.Parameter([1.0]), kind)
    s = tc.optim.lr_scheduler
    return (s.ReduceLROnPlateau(o, **PLATEAUS[name]) if name in PLATEAUS else SCHEDULES[name](s, o)), o


NAMES = [*SCHEDULES, *PLATEAUS]


def pytorchs(name, kind):
    import torch

    o = optimizer(torch.optim, lambda: torch.nn.Parameter(torch.ones(1)), kind)
    s = torch.optim.lr_scheduler
    return (s.ReduceLROnPlateau(o, **PLATEAUS[name]) if name in PLATEAUS else SCHEDULES[name](s, o)), o


def test_every_schedule_has_a_row():
    made = {type(ours(name, "Adam")[0]).__name__ for name in NAMES}
    apart = {"LRScheduler", "CosineWarmupScheduler"}  # the base; the tutorial's
    assert sorted(set(tc.optim.lr_scheduler.__all__) - made - apart) == [], "a schedule has a row of SCHEDULES, or of PLATEAUS"


@pytest.mark.parametrize("kind", ["Adam", "SGD"])
@pytest.mark.parametrize("name", NAMES)
def test_pytorchs_numbers(name, kind):
    assert rows(*ours(name, kind)) == json.loads(GOLDEN.read_text())[f"{name}, {kind}"]


@pytest.mark.parametrize("name", NAMES)
def test_golden_numbers_are_pytorchs(name):
    pytest.importorskip("torch")
    for kind in ("Adam", "SGD"):
        assert rows(*pytorchs(name, kind)) == json.loads(GOLDEN.read_text())[f"{name}, {kind}"]


@pytest.mark.parametrize(
    ("mode", "threshold_mode", "values", "rates"),
    [
        ("min", "rel", (4.0, 3.5, 2.9, 2.0, 1.2, 1.1, 0.2), (1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25)),
        ("min", "abs", (4.0, 3.5, 2.9, 2.0, 1.2, 1.1, 0.2), (1, 1, 1, 1, 1, 0.5, 0.5)),
        ("max", "rel", (1.0, 1.2, 1.6, 2.0, 3.0, 3.1, 4.5), (1, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125)),
        ("max", "abs", (1.0, 1.2, 1.6, 2.0, 3.0, 3.1, 4.5), (1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25)),
    ],
)
def test_what_exceeds_the_threshold_of_a_plateau(mode, threshold_mode, values, rates):
    """PyTorch's rates, with a threshold that decides at each value."""
    o = tc.optim.SGD([tc.nn.Parameter([1.0])], 1.0)
    schedule = tc.optim.lr_scheduler.ReduceLROnPlateau(o, mode, 0.5, 0, 0.25, threshold_mode)
    for value, rate in zip(values, rates, strict=True):
        schedule.step(value)
        assert schedule.get_last_lr() == [rate]


def test_a_sequence_whose_first_schedule_has_one_step():
    """PyTorch's rates."""
    o, s = tc.optim.SGD([tc.nn.Parameter([1.0])], 1.0), tc.optim.lr_scheduler
    schedule, rates = s.SequentialLR(o, [s.ConstantLR(o, 0.5, 10), s.ExponentialLR(o, 0.25)], [1]), []
    for _ in range(4):
        rates += schedule.get_last_lr()
        schedule.step()
    assert rates == [0.5, 1.0, 0.25, 0.0625]


def test_the_count_of_steps_of_a_schedule():
    schedule = tc.optim.lr_scheduler.ExponentialLR(tc.optim.SGD([tc.nn.Parameter([1.0])], 1.0), 0.5)
    assert schedule.state_dict()["_step_count"] == 1
    schedule.step()
    schedule.step()
    assert schedule.state_dict()["_step_count"] == 3


@pytest.mark.parametrize("at", [1, 5, 12])
@pytest.mark.parametrize("name", NAMES)
def test_resumed(name, at, tmp_path):
    """Saved with its optimizer to a file in the middle and loaded, a schedule goes on as if it had not been stopped."""
    whole = rows(*ours(name, "Adam"))
    schedule, o = ours(name, "Adam")
    rows(schedule, o, at)
    tc.save({"schedule": schedule.state_dict(), "optimizer": o.state_dict()}, tmp_path / "state.safetensors")
    saved = tc.load(tmp_path / "state.safetensors")
    again, other = ours(name, "Adam")
    other.load_state_dict(saved["optimizer"])
    again.load_state_dict(saved["schedule"])
    assert rows(again, other, STEPS - at, VALUES[at:]) == whole[at:]


@pytest.mark.parametrize(
    "name", ["step", "milestones", "constant", "linear", "exponential", "polynomial", "cosine", "restarts", "longer restarts"]
)
def test_jumps_to_a_step(name):
    torch = pytest.importorskip("torch")
    del torch
    (a, o), (b, p) = ours(name, "SGD"), pytorchs(name, "SGD")
    for epoch in (3, 0, 9, 5, 4, 2, 8):
        a.step(epoch)
        with pytest.warns(UserWarning) if "restarts" not in name else pytest.MonkeyPatch.context():
            b.step(epoch)
        assert [g["lr"] for g in o.param_groups] == [g["lr"] for g in p.param_groups]


def test_jumps_of_a_schedule_of_the_users_own():
    """It multiplies the rates of the step before, and knows those of any step."""

    class Halves(tc.optim.lr_scheduler.LRScheduler):
        def get_lr(self):
            return [group["lr"] / (2 if self.last_epoch else 1) for group in self.optimizer.param_groups]

        def _get_closed_form_lr(self):
            return [base / 2**self.last_epoch for base in self.base_lrs]

    schedule, rates = Halves(tc.optim.SGD([tc.nn.Parameter([1.0])], 1.0)), []
    for epoch in (None, 3, None, 1):
        schedule.step(epoch)
        rates += schedule.get_last_lr()
    assert rates == [0.5, 0.125, 0.0625, 0.5]


def test_restarts_go_on_from_between_two_steps():
    torch = pytest.importorskip("torch")
    del torch
    for name in ("restarts", "longer restarts"):
        (a, o), (b, p) = ours(name, "SGD"), pytorchs(name, "SGD")
        for epoch in (2.5, None, 7.75, None, 0.25, None):
            a.step(epoch), b.step(epoch)
            assert [g["lr"] for g in o.param_groups] == [g["lr"] for g in p.param_groups] and a.last_epoch == b.last_epoch


def test_cycles_leave_alone_what_is_not_theirs():
    """Adam's second beta, and the first learning rate of a schedule before them."""
    o = tc.optim.Adam([tc.nn.Parameter([1.0])], lr=0.5, betas=(0.9, 0.75))
    schedules = tc.optim.lr_scheduler
    schedules.OneCycleLR(o, 1.0, total_steps=3).step()
    assert o.param_groups[0]["betas"][1] == 0.75
    o = tc.optim.SGD([tc.nn.Parameter([1.0])], lr=0.5)
    schedules.LambdaLR(o, lambda epoch: 1.0)
    schedules.CyclicLR(o, 0.25, 1.25, step_size_up=2, cycle_momentum=False).step()
    assert o.param_groups[0]["lr"] == 0.75


def test_last_epoch_continues():
    torch = pytest.importorskip("torch")
    for name in ("StepLR", "ExponentialLR", "CosineAnnealingLR", "LinearLR"):
        found = []
        for optim, parameter in ((tc.optim, tc.nn.Parameter([1.0])), (torch.optim, torch.nn.Parameter(torch.ones(1)))):
            o = optim.SGD([parameter], lr=0.5)
            o.param_groups[0]["initial_lr"] = 1.0
            s = getattr(optim.lr_scheduler, name)(
                o, *{"StepLR": [4], "ExponentialLR": [0.9], "CosineAnnealingLR": [9]}.get(name, []), last_epoch=2
            )
            rates = [o.param_groups[0]["lr"]]
            for _ in range(4):
                o.step()
                s.step()
                rates.append(o.param_groups[0]["lr"])
            found.append(rates)
        assert found[0] == found[1]
    with pytest.raises(KeyError, match=r"param_groups\[0\] has no .initial_lr., which last_epoch=2 needs"):
        tc.optim.lr_scheduler.StepLR(tc.optim.SGD([tc.nn.Parameter([1.0])], lr=1.0), 3, last_epoch=2)


def test_last_epoch_after_several_restarts():
    optimizer = tc.optim.SGD([{"params": [tc.nn.Parameter([1.0])], "initial_lr": 8.0}], lr=1.0)
    schedule = tc.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2, last_epoch=7)
    rates = []
    for _ in range(3):
        rates.append(round(schedule.get_last_lr()[0], 6))
        schedule.step()
    assert rates == [8.0, 4.0, 8.0]


def test_a_state_of_pytorchs():
    pytest.importorskip("torch")
    for name in ("step", "milestones", "linear", "cosine", "longer restarts", "plateau"):
        b, p = pytorchs(name, "SGD")
        rows(b, p, 5)
        a, o = ours(name, "SGD")
        a.load_state_dict(b.state_dict())
        assert rows(a, o, 6, VALUES[5:]) == rows(b, p, 6, VALUES[5:])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("step", lambda state: None, "the state of a StepLR is a dict, not NoneType"),
        ("step", lambda state: {**state, "_last_lr": [1.0]}, "learning rates of 1 parameter groups, the optimizer has 2"),
        ("lambda", lambda state: {**state, "_last_lr": [1.0] * 3, "lr_lambdas": [{"n": 9}, None]}, "of 3 parameter groups"),
        ("plateau", lambda state: {**state, "_last_lr": []}, "of 0 parameter groups"),
        ("chain", lambda state: {**state, "_schedulers": state["_schedulers"][1:]}, "is of 2 schedules, the ChainedScheduler has 3"),
        ("sequence", lambda state: {}, "is of 0 schedules, the SequentialLR has 3"),
        ("sequence", lambda state: {**state, "_schedulers": [*state["_schedulers"][:2], {"_last_lr": []}]}, "of 0 parameter groups"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(name, change, message):
    schedule, o = ours(name, "SGD")
    if name == "lambda":
        schedule.lr_lambdas[0] = Counting()
    other, p = ours(name, "SGD")
    rows(other, p, 3)
    before, rates = deepcopy(schedule.state_dict()), [g["lr"] for g in o.param_groups]
    with pytest.raises(ValueError, match=message):
        schedule.load_state_dict(change(other.state_dict()))
    assert schedule.state_dict() == before and [g["lr"] for g in o.param_groups] == rates


ADDED = {
    **dict.fromkeys(("lambda", "multiplicative", "cosine", "restarts", "one cycle of rates", "triangles"), "has 2 values for 3 parameter groups: make"),
    **dict.fromkeys(("step", "milestones", "constant", "linear", "exponential", "polynomial", "plateau"), None),
    "sequence": "CosineAnnealingLR has 2 values for 3",
    "relative plateau": None,
    "absolute plateau": "ReduceLROnPlateau has 2 values for 3",
}  # fmt: skip


@pytest.mark.parametrize("name", ADDED)
def test_a_group_that_is_added_later(name):
    """Where PyTorch has a rate for it, the same; a step that is refused changes nothing."""
    torch = pytest.importorskip("torch")
    found = []
    for made, parameter in ((ours, tc.nn.Parameter([1.0])), (pytorchs, torch.nn.Parameter(torch.ones(1)))):
        schedule, o = made(name, "SGD")
        rows(schedule, o, 1)
        o.add_param_group({"params": [parameter], "lr": 0.5})
        found.append((schedule, o))
    (a, o), (b, p) = found
    values = [[-VALUES[i]] if "plateau" in name else [] for i in range(STEPS)]
    if ADDED[name] is None:
        for value in values:
            a.step(*value), b.step(*value)
            assert [g["lr"] for g in o.param_groups] == [g["lr"] for g in p.param_groups] == a.get_last_lr()
        return
    for value in values:
        before, groups = deepcopy(a.state_dict()), [dict(g) for g in o.param_groups]
        try:
            a.step(*value)
        except ValueError as error:
            assert ADDED[name] in str(error) and a.state_dict() == before and o.param_groups == groups
            return
    pytest.fail("no step was refused")


def test_a_function_that_raises_leaves_a_schedule_as_it_was():
    o = optimizer(tc.optim, lambda: tc.nn.Parameter([1.0]))
    schedule = tc.optim.lr_scheduler.LambdaLR(o, lambda epoch: [1.0, 0.5][epoch])
    schedule.step()
    before = schedule.state_dict()
    with pytest.raises(IndexError):
        schedule.step()
    assert schedule.state_dict() == before and schedule.last_epoch == 1


def test_a_schedule_with_nothing_of_its_base_class():
    class Halving(tc.optim.lr_scheduler.LRScheduler):
        def __init__(self, groups):
            self.groups, self._schedulers, self.steps = groups, [self.halve], 0

        def halve(self):
            for group in self.groups:
                group["lr"] /= 2

        def step(self):
            self.steps += 1
            for part in self._schedulers:
                part()

    o = optimizer(tc.optim, lambda: tc.nn.Parameter([1.0]))
    before, schedule = o.param_groups[0]["lr"], Halving(o.param_groups)
    schedule.step()
    assert (o.param_groups[0]["lr"], schedule.steps) == (before / 2, 1)


class Counting:
    """A factor with a state of its own; `o`, `f` and `g` are nothing that a file holds."""

    def __init__(self, o=None):
        self.n, self.seen, self.o, self.f, self.g = 0, {"steps": [0]}, o, lambda: 0, {"f": [abs]}

    def __call__(self, epoch):
        self.n += 1
        self.seen["steps"].append(self.n)
        return 0.5**self.n


class Factor(float):
    """A class that is called for a factor."""


@pytest.mark.parametrize("name", ["LambdaLR", "MultiplicativeLR"])
def test_functions_with_a_state(name, tmp_path):
    """As in PyTorch, the state of objects that are called is saved, and functions are not."""
    kind, o, p = getattr(tc.optim.lr_scheduler, name), *(optimizer(tc.optim, lambda: tc.nn.Parameter([1.0]), "SGD") for _ in range(2))
    schedule = kind(o, [Counting(o), lambda epoch: 0.5])
    rows(schedule, o, 3)
    state, n = schedule.state_dict(), schedule.lr_lambdas[0].n
    tc.save({"schedule": state, "optimizer": o.state_dict()}, tmp_path / "state.safetensors")
    expected = rows(schedule, o, 4)
    assert state["lr_lambdas"] == [{"n": n, "seen": {"steps": list(range(n + 1))}}, None] and n >= 3
    saved, again = tc.load(tmp_path / "state.safetensors"), kind(p, [Counting(p), lambda epoch: 0.5])
    p.load_state_dict(saved["optimizer"])
    again.load_state_dict(saved["schedule"])
    assert rows(again, p, 4) == expected and again.lr_lambdas[0].o is p and saved["schedule"]["lr_lambdas"] == state["lr_lambdas"]
    assert not any(
        kind(o, [abs, partial(max, 1)]).state_dict()["lr_lambdas"] + kind(o, [Factor, Counting().__call__]).state_dict()["lr_lambdas"]
    )


@pytest.mark.parametrize("name", ["LambdaLR", "MultiplicativeLR"])
def test_a_state_of_pytorchs_functions(name):
    torch = pytest.importorskip("torch")
    o, p = (
        optimizer(tc.optim, lambda: tc.nn.Parameter([1.0]), "SGD"),
        optimizer(torch.optim, lambda: torch.nn.Parameter(torch.ones(1)), "SGD"),
    )
    a = getattr(tc.optim.lr_scheduler, name)(o, [Counting(), lambda epoch: 0.5])
    b = getattr(torch.optim.lr_scheduler, name)(p, [Counting(), lambda epoch: 0.5])
    rows(b, p, 3)
    a.load_state_dict(b.state_dict())
    assert rows(a, o, 4) == rows(b, p, 4)
    a.load_state_dict({key: value for key, value in a.state_dict().items() if key != "lr_lambdas"})  # as earlier versions saved it
    b.load_state_dict(a.state_dict())
    assert rows(a, o, 4) == rows(b, p, 4)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda s, o: s.StepLR(o, 0), ValueError, "step_size must be at least 1"),
        (lambda s, o: s.StepLR(3, 1), TypeError, "takes an Optimizer, not int"),
        (lambda s, o: s.StepLR(o, 1).step("3"), TypeError, "epoch must be a number, got '3'"),
        (lambda s, o: s.ConstantLR(o, 2.0), ValueError, "factor must be from 0 to 1"),
        (lambda s, o: s.LinearLR(o, 0.0), ValueError, "start_factor"),
        (lambda s, o: s.LinearLR(o, 0.1, 1.5), ValueError, "end_factor"),
        (lambda s, o: s.LambdaLR(o, [abs]), ValueError, "1 functions for 2 parameter groups"),
        (lambda s, o: s.LambdaLR(o, [abs, 3]), TypeError, "lr_lambda must be a function of the epoch, or a list of one for each group, got "),
        (lambda s, o: s.CosineAnnealingLR(o, 0), ValueError, "T_max"),
        (lambda s, o: s.CosineAnnealingWarmRestarts(o, 0), ValueError, "T_0"),
        (lambda s, o: s.CosineAnnealingWarmRestarts(o, 2).step(-1), ValueError, "epoch must not be negative"),
        (lambda s, o: s.OneCycleLR(o, 1.0), ValueError, "total_steps, or epochs and steps_per_epoch"),
        (lambda s, o: s.OneCycleLR(o, [1.0], total_steps=3), ValueError, "max_lr has 1 values for 2 parameter groups"),
        (lambda s, o: s.OneCycleLR(o, 1.0, total_steps=3, pct_start=2), ValueError, "pct_start"),
        (lambda s, o: s.OneCycleLR(o, 1.0, total_steps=3, anneal_strategy="sin"), ValueError, "anneal_strategy"),
        (lambda s, o: [c.step() for c in [s.OneCycleLR(o, 1.0, total_steps=3)] for _ in range(4)], ValueError, "step 4 of a OneCycleLR of 3 steps"),
        (lambda s, o: s.OneCycleLR(Momentumless(), 1.0, total_steps=3), ValueError, "neither momentum nor betas"),
        (lambda s, o: s.CyclicLR(o, 0.1, 1.0, mode="square"), ValueError, "mode"),
        (lambda s, o: s.ReduceLROnPlateau(o, factor=1.0), ValueError, "factor must be below 1"),
        (lambda s, o: s.ReduceLROnPlateau(o, mode="least"), ValueError, "mode"),
        (lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)], [3]), ValueError, "1 schedules need 0 milestones, got 1"),
        (lambda s, o: s.ChainedScheduler([]), ValueError, "at least one"),
        (lambda s, o: s.ChainedScheduler([o]), TypeError, r"schedulers\[0\] is of type Adam"),
        (lambda s, o: s.ChainedScheduler([s.ReduceLROnPlateau(o)]), ValueError, "takes a value"),
        (lambda s, o: s.ChainedScheduler([s.StepLR(o, 1), s.StepLR(ours("step", "SGD")[1], 1)]), ValueError, "another optimizer"),
    ],
)  # fmt: skip
def test_refused(make, error, message):
    with pytest.raises(error, match=message):
        make(tc.optim.lr_scheduler, ours("step", "Adam")[1])


class Momentumless(tc.optim.Optimizer):
    def __init__(self):
        super().__init__([tc.nn.Parameter([1.0])], {"lr": 1.0})


if __name__ == "__main__":  # writes the golden values
    GOLDEN.write_text(json.dumps({f"{n}, {k}": rows(*pytorchs(n, k)) for n in NAMES for k in ("Adam", "SGD")}) + "\n")
