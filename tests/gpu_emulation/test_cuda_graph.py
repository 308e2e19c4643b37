"""Whole steps, captured once and started many times, beside the same steps as usual: equal bits."""

import copy
import gc
import threading

import numpy as np
import pytest
import transformer_c as tc
from device_cases import host, in_a_thread
from test_cuda_runtime import Borrower
from transformer_c import functional as F
from transformer_c.optim import lr_scheduler as LR

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class Model(tc.nn.Module):
    """The tutorial's encoder, on tokens."""

    def __init__(self):
        super().__init__()
        self.embedding = tc.nn.Embedding(11, 8)
        self.encoder = tc.EncoderBlock(8, 2, 16, dropout=0.2)
        self.attention_dropout = tc.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        self.head = tc.nn.Linear(8, 11)

    def forward(self, tokens):
        return self.head(self.attention_dropout(self.encoder(self.embedding(tokens))))


OPTIMIZERS = {
    "Adam": lambda p: tc.optim.Adam(p, lr=1e-2, weight_decay=0.1),
    "AdamW": lambda p: tc.optim.AdamW(p, lr=1e-2, amsgrad=True),
    "SGD": lambda p: tc.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "RMSprop": lambda p: tc.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True),
}


class Run:
    """A training; `make` wraps its step."""

    def __init__(self, gpu, precision="float32", optimizer="Adam", make=lambda step: step):
        tc.manual_seed(3)
        self.model = Model().to(gpu)
        if precision == "bfloat16":
            self.model.bfloat16()
        self.precision = precision
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.schedule = tc.CosineWarmupScheduler(self.optimizer, 5, 50)
        self.gpu, self.losses, self.norms = gpu, [], []
        self.step = make(self.one_step)

    def one_step(self, tokens, targets):
        self.optimizer.zero_grad()
        with tc.autocast(enabled=self.precision == "autocast"):
            y = self.model(tokens)
        loss = F.cross_entropy(y.transpose(1, 2).float(), targets)
        loss.backward()
        norm = tc.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.optimizer.step()
        self.schedule.step()
        return loss, norm

    def train(self, steps, between=lambda: None):
        rng = np.random.default_rng(0)
        for _ in range(steps):
            tokens = tc.tensor(rng.integers(0, 11, (3, 5)), device=self.gpu)
            loss, norm = self.step(tokens, tokens.flip(1))
            self.losses.append(float(loss))
            self.norms.append(float(norm))
            between()
        return self

    def end(self):
        """All that a step changes."""
        states = {f"{i}.{name}": host(v) if isinstance(v, tc.Tensor) else v
                  for i, s in self.optimizer.state_dict()["state"].items() for name, v in s.items()}  # fmt: skip
        weights = {name: host(p) for name, p in self.model.state_dict().items()}
        gradients = {f"d{name}": host(p.grad) for name, p in self.model.named_parameters()}
        rest = {
            "losses": self.losses,
            "norms": self.norms,
            "lr": [g["lr"] for g in self.optimizer.param_groups],
            "steps": self.schedule.last_epoch,
        }
        rest["generator"] = np.frombuffer(tc.random.default_generator.get_state(), np.uint8)
        return states | weights | gradients | rest


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(value), err_msg=name)


@pytest.fixture(autouse=True)
def late(emulated_library):
    yield
    emulated_library.set_streams("late")
    emulated_library.set_schedule("round_robin")


@pytest.mark.whole
@pytest.mark.parametrize(
    "precision, order, steps", [("float32", "random", 20), ("bfloat16", "late", 8), ("autocast", "late", 20), ("float32", "at_once", 8)]
)
def test_steps_have_the_bits_of_eager_ones(emulated_gpu, emulated_library, precision, order, steps):
    expected = Run(emulated_gpu, precision).train(steps).end()
    emulated_library.set_streams(order, 1)
    assert_equal(Run(emulated_gpu, precision, make=tc.cuda.graph).train(steps).end(), expected)


@pytest.mark.whole
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer(emulated_gpu, optimizer):
    expected = Run(emulated_gpu, optimizer=optimizer).train(5).end()
    assert_equal(Run(emulated_gpu, optimizer=optimizer, make=tc.cuda.graph).train(5).end(), expected)


def test_a_step_is_one_launch(emulated_gpu, emulated_library):
    library, run = emulated_library.library, Run(emulated_gpu, make=tc.cuda.graph)
    tokens = tc.tensor(np.ones((3, 5), np.int64), device=emulated_gpu)
    launches = []
    tc.cuda.synchronize(emulated_gpu)  # no buffer is on its way
    for _ in range(4):
        emulated_library.launches()
        before = library.emulator_graph_launches(), library.emulator_host_waits(), library.emulator_copies_from_host()
        run.step(tokens, tokens)
        after = library.emulator_graph_launches(), library.emulator_host_waits(), library.emulator_copies_from_host()
        launches.append((len(emulated_library.launches()) > 0, *(b - a for a, b in zip(before, after, strict=True))))
    # kernels, graphs, waits, copies: the one copy has the numbers of the step
    assert launches == [(True, 0, 0, 0), (True, 1, 0, 1), (False, 1, 0, 1), (False, 1, 0, 1)]


# ---- memory ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.whole
def test_other_threads_and_freed_tensors_do_no_harm(emulated_gpu, emulated_library):
    """Another thread takes memory and gives it back, and between the starts results of eager calls are freed and taken again."""
    expected = Run(emulated_gpu).train(8).end()
    emulated_library.set_streams("random", 5)
    stop, failures = threading.Event(), []

    def allocate():
        rng = np.random.default_rng(1)
        kept = []
        try:
            while not stop.is_set():
                n = int(rng.integers(1, 3000))
                kept.append((tc.full((n,), float(n), device=emulated_gpu) * 2, n))
                if len(kept) > 5:
                    x, n = kept.pop(int(rng.integers(5)))
                    assert (x.cpu().numpy() == 2 * n).all()
                if n % 7 == 0:
                    tc.cuda.empty_cache(emulated_gpu)
                if n % 5 == 0:
                    tc.cuda.synchronize(emulated_gpu)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=allocate)
    thread.start()
    run = Run(emulated_gpu, make=tc.cuda.graph)
    run.train(8, between=lambda: [p.detach() * 2 for p in run.model.parameters()])
    stop.set()
    thread.join()
    assert not failures
    assert_equal(run.end(), expected)


def test_a_tensor_that_a_graph_reads_is_freed(emulated_gpu):
    table = [tc.full((100,), 3.0, device=emulated_gpu)]
    step = tc.cuda.graph(lambda x: x * table[0])
    x = tc.full((100,), 2.0, device=emulated_gpu)
    for _ in range(2):
        step(x)
    table.clear()  # nothing but the graph has it now
    others = [tc.full((100,), 9.0, device=emulated_gpu) for _ in range(5)]
    assert (host(step(x)) == 6).all() and (host(others[0]) == 9).all()


def test_a_result_that_was_dropped_is_nobody_elses(emulated_gpu):
    step = tc.cuda.graph(lambda x: (x * 2).sum())
    x = tc.ones(100, device=emulated_gpu)
    step(x), step(x)
    others = [tc.full((100,), 9.0, device=emulated_gpu) for _ in range(5)]  # of the size of the product within
    assert float(step(x)) == 200
    assert all((host(y) == 9).all() for y in others)


def test_results_live_on_without_their_graph(emulated_gpu):
    step = tc.cuda.graph(lambda x: x * 2)
    x = tc.ones(100, device=emulated_gpu)
    step(x), (y := step(x))
    step = None
    gc.collect()
    others = [tc.full((100,), 9.0, device=emulated_gpu) for _ in range(5)]
    assert (host(y) == 2).all() and (host(others[-1]) == 9).all()


def test_memory_of_a_graph_is_in_use_until_it_ends(emulated_gpu):
    def in_use():
        gc.collect()
        return tc.cuda.memory_stats(emulated_gpu)["in_use"]

    before = in_use()
    step = tc.cuda.graph(lambda x: (x * 2 + 1).sum())
    x = tc.ones(5000, device=emulated_gpu)
    step(x), step(x)
    during = in_use()
    assert during > before + 3 * 4 * 5000  # the input, the graph's own, and what is computed in between
    [step(x) for _ in range(3)]
    assert in_use() == during
    del step, x
    assert in_use() == before


def test_a_graph_uses_its_memory_again(emulated_gpu):
    """Twenty products one after the other, of which two are there at a time."""
    numel = 2**14
    x = tc.ones(numel, device=emulated_gpu)

    def function(y):
        for _ in range(20):
            y = y * 2
        return y.sum()

    step = tc.cuda.graph(function)
    step(x)
    before = tc.cuda.memory_stats(emulated_gpu)["in_use"]
    step(x)
    assert tc.cuda.memory_stats(emulated_gpu)["in_use"] - before < 4 * 4 * numel
    assert float(step(x)) == 2**20 * numel


def test_two_graphs(emulated_gpu):
    """A second graph reads what the first one writes; both name the same memory."""
    x, y = tc.zeros(50, device=emulated_gpu), tc.zeros(50, device=emulated_gpu)

    def first(one):
        x.add_(one)

    def second(one):
        y.add_(x * one)

    one, first, second = tc.ones(50, device=emulated_gpu), tc.cuda.graph(first), tc.cuda.graph(second)
    for _ in range(4):
        first(one), second(one)
    assert (host(x) == 4).all() and (host(y) == 10).all()
    del first
    gc.collect()
    second(one)
    assert (host(y) == 14).all()


def test_threads_start_a_graph_in_turn(emulated_gpu, emulated_library):
    emulated_library.set_streams("random", 3)
    x = tc.zeros(50, device=emulated_gpu)
    step = tc.cuda.graph(lambda one: x.add_(one))
    one = tc.ones(50, device=emulated_gpu)
    step(one), step(one)
    threads = [threading.Thread(target=lambda: [step(one) for _ in range(5)]) for _ in range(3)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert (host(x) == 17).all()


# ---- numbers ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.whole
def test_what_is_set_between_steps_counts(emulated_gpu):
    """Learning rates, decays, seeds: whatever an eager step would see."""

    def changed(run):
        def between():
            group = run.optimizer.param_groups[0]
            group["weight_decay"] = 0.01 * len(run.losses)
            group["betas"] = (0.8, 0.99)
            if len(run.losses) == 4:
                tc.manual_seed(11)
            F.dropout(tc.ones(5, device=emulated_gpu), 0.5, True)  # draws in between

        return run.train(6, between).end()

    assert_equal(changed(Run(emulated_gpu, make=tc.cuda.graph)), changed(Run(emulated_gpu)))


def test_a_generator_of_its_own(emulated_gpu):
    x = tc.ones(300, device=emulated_gpu)
    found = []
    for make in (lambda f: f, tc.cuda.graph):
        one, two = tc.Generator(5), tc.Generator(5)
        step = make(lambda x, a=one, b=two: [F.dropout(x, 0.5, rng=g) for g in (a, b, a)])
        found.append([[host(y).copy() for y in step(x)] for _ in range(4)])
    np.testing.assert_array_equal(found[0], found[1])


def dropped(x, rng):
    return F.dropout(x, 0.5, rng=rng)


def attended(x, rng):
    q = x.reshape(2, 5, 3)
    return F.scaled_dot_product_attention(q, q, q, dropout_p=0.5, rng=rng)


@pytest.mark.parametrize("draw", [dropped, attended])
@pytest.mark.parametrize("made", ["an int", "a generator", "one for two masks", "beside another"])
def test_a_generator_that_the_function_makes_begins_anew(emulated_gpu, draw, made):
    """With the masks, and so the gradients, of the function itself."""
    makers = {
        "an int": lambda other: [1, 1],
        "a generator": lambda other: [tc.Generator(1), tc.Generator(2)],
        "one for two masks": lambda other: [tc.Generator(1)] * 2,
        "beside another": lambda other: [other, tc.Generator(1), other],
    }

    def run(wrap):
        other, w = tc.Generator(5), tc.ones(30, device=emulated_gpu, requires_grad=True)

        def step(x):
            w.grad = None
            masked = [draw(w * x, rng) for rng in makers[made](other)]
            sum((y * y).sum() for y in masked).backward()
            return [*masked, w.grad]

        step = wrap(step)
        return [[host(y).copy() for y in step(tc.full((30,), float(i), device=emulated_gpu))] for i in range(1, 6)]

    for one, expected in zip(run(tc.cuda.graph), run(lambda step: step), strict=True):
        for found, wanted in zip(one, expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_a_generator_of_another_capture_goes_on(emulated_gpu):
    """It is outside of the function that draws from it."""

    def run(wrap):
        made = []
        first = wrap(lambda x: made.append(tc.Generator(3)) or F.dropout(x, 0.5, rng=made[-1]))
        x = tc.ones(100, device=emulated_gpu)
        first(x), first(x)
        second = wrap(lambda x: F.dropout(x, 0.5, rng=made[1]))
        return [host(second(x)).copy() for _ in range(4)]

    np.testing.assert_array_equal(run(tc.cuda.graph), run(lambda step: step))


def test_other_states_are_refused(emulated_gpu):
    run = Run(emulated_gpu, make=tc.cuda.graph).train(2)
    run.optimizer.load_state_dict(run.optimizer.state_dict())  # copies: the graph knows the old ones
    with pytest.raises(RuntimeError, match="is not the one that was captured"):
        run.train(1)


class Late(LR.LambdaLR):
    """A schedule that ends after some steps."""

    def get_lr(self):
        if self.last_epoch > 3:
            raise ValueError("the schedule has ended")
        return super().get_lr()


@pytest.mark.parametrize("refused", ["states", "schedule", "gradient"])
def test_a_refused_start_leaves_everything_as_it_was(emulated_gpu, refused):
    """Also what optimizers and schedules that come before the refused one have counted, and the versions of their parameters."""
    tc.manual_seed(2)
    one, two = tc.nn.Linear(3, 2).to(emulated_gpu), tc.nn.Linear(3, 2).to(emulated_gpu)
    first, second = tc.optim.Adam(one.parameters(), lr=0.1), tc.optim.Adam(two.parameters(), lr=0.1)
    parts = [LR.LambdaLR(first, lambda n: 0.5**n), LR.StepLR(first, 2)]
    schedules = [LR.ChainedScheduler(parts), (Late if refused == "schedule" else LR.LambdaLR)(second, lambda n: 1.0)]
    extra = tc.nn.Parameter(tc.ones(2, device=emulated_gpu))

    def step(x):
        first.zero_grad(), second.zero_grad()
        F.dropout(one(x), 0.5, True).sum().backward()
        two(x).sum().backward()
        [o.step() for o in (first, second)], [s.step() for s in schedules]

    step, x = tc.cuda.graph(step), tc.ones(4, 3, device=emulated_gpu)
    [step(x) for _ in range(3)]
    one.weight.grad = tc.ones(2, 3, device=emulated_gpu)
    if refused == "states":
        second.load_state_dict(second.state_dict())
    if refused == "gradient":
        second.add_param_group({"params": [extra]})
        extra.grad = tc.ones(2, device=emulated_gpu)

    def everything():
        states = [[(id(p), s["step"], host(s["exp_avg"]).tobytes()) for p, s in o.state.items()] for o in (first, second)]
        rates = [[{k: v for k, v in g.items() if k != "params"} for g in o.param_groups] for o in (first, second)]
        rest = [s.state_dict() for s in schedules], [p.last_epoch for p in parts], tc.random.default_generator.get_state()
        tensors = [host(t).tobytes() for p in (*one.parameters(), *two.parameters()) for t in (p, p.grad)]
        return repr((states, rates, rest)), [p.grad.data_ptr() for p in one.parameters()], tensors

    y, before = (one.weight * one.weight).sum(), everything()
    for _ in range(2):
        with pytest.raises((RuntimeError, ValueError), match="not the one that was captured|schedule has ended|on the GPU outside of its"):
            step(x)
        assert everything() == before
    one.zero_grad()
    y.backward()  # the weight has not changed


@pytest.mark.parametrize("gradient", [5.0, None])
def test_gradients_from_elsewhere_are_refused(emulated_gpu, gradient):
    """The function only steps: a start must not step with the gradient of the capture in their place."""
    p = tc.ones(4, device=emulated_gpu, requires_grad=True)
    optimizer = tc.optim.SGD([p], lr=1.0)
    step = tc.cuda.graph(lambda x: optimizer.step())
    for _ in range(3):
        p.grad = p.grad if p.grad is not None else tc.ones(4, device=emulated_gpu)
        step(p.detach())
    p.grad = None if gradient is None else tc.full((4,), gradient, device=emulated_gpu)
    with pytest.raises(RuntimeError, match=r"a leaf of shape \(4,\) has (no gradient|a gradient elsewhere), but in the capture it had one"):
        step(p.detach())
    assert (host(p) == -2).all()


def test_parameters_that_were_moved_are_refused(emulated_gpu):
    layer = tc.nn.Linear(3, 2).to(emulated_gpu)
    step, x = tc.cuda.graph(lambda x: layer(x).sum().backward()), tc.ones(5, 3, device=emulated_gpu)
    [step(x) for _ in range(3)]
    layer.cpu().to(emulated_gpu)
    layer.zero_grad()
    with pytest.raises(RuntimeError, match="values of a leaf of shape .* are not where they were in the capture"):
        step(x)


def test_a_new_parameter_is_refused_in_a_capture(emulated_gpu):
    run, layer = Run(emulated_gpu), tc.nn.Linear(2, 1).to(emulated_gpu)
    run.optimizer.add_param_group({"params": list(layer.parameters())})
    uses = []

    def step(x):
        uses.append(1)
        if len(uses) > 1:
            layer(x).sum().backward()
        run.optimizer.step()

    step = tc.cuda.graph(step)
    x = tc.ones(3, 2, device=emulated_gpu)
    step(x)
    with pytest.raises(RuntimeError, match="got its first gradient"):
        step(x)


# ---- gradients --------------------------------------------------------------------------------------------------------------------------


def gradients(gpu, make, before, within, between=lambda p: None):
    """Three steps that zero gradients before the function, or within, or nowhere."""
    p = tc.ones(4, device=gpu, requires_grad=True)
    optimizer = tc.optim.SGD([p], lr=0.1)

    def step(x):
        if within:
            optimizer.zero_grad(set_to_none=within == "none")
        (p * x).sum().backward()
        optimizer.step()

    step, values = make(step), []
    for i in range(5):
        if before:
            optimizer.zero_grad(set_to_none=before == "none")
        step(tc.full((4,), float(i), device=gpu))
        values.append((host(p).copy(), host(p.grad).copy()))
        between(p)
    return np.array(values)


@pytest.mark.parametrize("before", [None, "none", "zeros"])
@pytest.mark.parametrize("within", [None, "none", "zeros"])
def test_gradients_are_zeroed_anywhere(emulated_gpu, before, within):
    expected = gradients(emulated_gpu, lambda f: f, before, within)
    np.testing.assert_array_equal(gradients(emulated_gpu, tc.cuda.graph, before, within), expected)


# ---- leaves that the function makes -------------------------------------------------------------------------------------------------


def an_attack(layer, x):
    """The gradient of the inputs, and a step in its direction."""
    d = tc.zeros(*x.shape, device=x.device, requires_grad=True)
    (layer(x + d) ** 2).sum().backward()
    layer.zero_grad()
    (layer(x + 0.1 * d.grad.tanh()) ** 2).sum().backward()
    return [d.grad]


def several_steps(layer, x):
    """Each gives the leaf other memory, and the gradients add up."""
    d = tc.nn.Parameter(x * 0.5)
    for _ in range(3):
        (layer(d) ** 2).sum().backward()
        d.data = d.data - 0.1 * d.grad
    return [d, d.grad]


def of_an_argument(layer, x):
    leaf = x.detach().requires_grad_()
    (layer(leaf) ** 2).sum().backward()
    return [leaf.grad, leaf]


def the_argument(layer, x):
    (layer(x.requires_grad_()) ** 2).sum().backward()
    return [x.grad]


def of_a_weight(layer, x):
    """A leaf over memory that was there before."""
    weight = layer.weight.detach().requires_grad_()
    (F.linear(x, weight) ** 2).sum().backward()
    (F.linear(x, weight * weight) ** 2).sum().backward()
    return [weight.grad]


def with_a_gradient(layer, x):
    d = (x * 1).requires_grad_()
    d.grad = tc.ones_like(x)
    (layer(d) ** 2).sum().backward()
    return [d.grad]


def retained(layer, x):
    y = layer(x)
    y.retain_grad()
    (y * y).sum().backward()
    return [y.grad]


@pytest.mark.parametrize("make", [an_attack, several_steps, of_an_argument, the_argument, of_a_weight, with_a_gradient, retained])
def test_a_leaf_that_the_function_makes_starts_without_a_gradient(emulated_gpu, make):
    """At each start, whatever was done to its gradient before."""

    def run(wrap):
        tc.manual_seed(1)
        layer, rng = tc.nn.Linear(3, 3).to(emulated_gpu), np.random.default_rng(0)
        optimizer = tc.optim.SGD(layer.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            results = make(layer, x)
            optimizer.step()
            return results

        step, found = wrap(step), []
        for i in range(6):
            results = step(tc.tensor(rng.standard_normal((2, 3), np.float32), device=emulated_gpu))
            found.append([host(t).copy() for t in (*results, *layer.parameters())])
            for leaf in results:
                if leaf.is_leaf and leaf.requires_grad and i > 2:
                    leaf.grad = None if i % 2 else tc.full(leaf.shape, 9.0, device=emulated_gpu)
        return found

    for one, other in zip(run(tc.cuda.graph), run(lambda step: step), strict=True):
        for found, expected in zip(one, other, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_leaf_from_outside_stays_one(emulated_gpu):
    """Though the function freezes it for a while, and one of its own is over the same memory."""
    p = tc.ones(4, device=emulated_gpu, requires_grad=True)

    def step(x):
        (p.detach().requires_grad_() * x).sum().backward()
        p.requires_grad_(False), p.requires_grad_(True)
        (p * x).sum().backward()

    step, x = tc.cuda.graph(step), tc.ones(4, device=emulated_gpu)
    [step(x) for _ in range(3)]
    assert (host(p.grad) == 3).all()
    p.grad = None
    with pytest.raises(RuntimeError, match="has no gradient, but in the capture it had one"):
        step(x)


def test_gradients_that_are_not_as_in_the_capture_are_refused(emulated_gpu):
    def drop(p):
        p.grad = None

    calls = []
    with pytest.raises(RuntimeError, match=r"a leaf of shape \(4,\) has no gradient, but in the capture it had one"):
        gradients(emulated_gpu, tc.cuda.graph, None, None, lambda p: calls.append(1) or (drop(p) if len(calls) == 2 else None))
    calls.clear()
    with pytest.raises(RuntimeError, match="has a gradient, but in the capture it had none"):
        gradients(emulated_gpu, tc.cuda.graph, None, None, lambda p: calls.append(1) or (drop(p) if len(calls) == 1 else None))


def test_a_gradient_that_was_dropped_is_there_after_a_start(emulated_gpu):
    run = Run(emulated_gpu, make=tc.cuda.graph).train(2)
    for p in run.model.parameters():
        p.grad = None
    run.train(1)
    assert all(p.grad is not None for p in run.model.parameters())


def test_an_eager_backward_notices_that_a_graph_wrote(emulated_gpu):
    """Weights and results alike."""
    run = Run(emulated_gpu, make=tc.cuda.graph).train(2)
    weight = run.model.head.weight
    y = (weight * weight).sum()
    run.train(1)
    with pytest.raises(RuntimeError, match="changed in place|modified|written"):
        y.backward()
    step = tc.cuda.graph(lambda x: x * 2)
    x = tc.ones(3, device=emulated_gpu)
    step(x)
    z = (tc.ones(3, device=emulated_gpu, requires_grad=True) * step(x)).sum()
    step(x)
    with pytest.raises(RuntimeError, match="changed in place|modified|written"):
        z.backward()


def test_results_are_used_as_any_other_tensors(emulated_gpu):
    """They have no history, which would be that of the capture."""
    layer = tc.nn.Linear(3, 2).to(emulated_gpu)
    for make in (lambda step: step, tc.cuda.graph):
        step = make(lambda x: {"y": layer(x), "both": (layer(x).tanh(), [x * 2])})
        total, expected = tc.zeros((), device=emulated_gpu), 0.0
        for i in range(5):
            x = tc.full((4, 3), float(i), device=emulated_gpu)
            results = step(x)
            total = total + results["y"].softmax(-1).sum() + results["both"][0].clone().mean() + results["both"][1][0].sum()
            expected += 4 + float(layer(x).tanh().mean()) + 24 * i
        np.testing.assert_allclose(float(total), expected, rtol=1e-5)
    with pytest.raises(RuntimeError, match="nothing to go back through: .* or it is a result of tc.cuda.graph, in whose function backward"):
        step(x)["y"].sum().backward()


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_parameter_that_is_frozen_later_is_refused(emulated_gpu, name):
    layer = tc.nn.Linear(3, 2).to(emulated_gpu)
    optimizer = tc.optim.SGD(layer.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        layer(x).sum().backward()
        optimizer.step()

    step, x = tc.cuda.graph(step), tc.ones(5, 3, device=emulated_gpu)
    [step(x) for _ in range(3)]
    getattr(layer, name).requires_grad_(False)
    before = host(layer.weight).copy()
    with pytest.raises(RuntimeError, match="a leaf of shape .* no longer requires a gradient, which in the capture it did; make a new"):
        step(x)
    np.testing.assert_array_equal(host(layer.weight), before)
    getattr(layer, name).requires_grad_(True)
    step(x)


def test_copies_in_halves_are_of_the_weights_that_a_start_finds(emulated_gpu):
    layer = tc.nn.Linear(8, 8).to(emulated_gpu)
    x = tc.ones(2, 8, device=emulated_gpu)

    def forward(x):
        with tc.autocast(), tc.no_grad():
            return layer(x)

    step = tc.cuda.graph(forward)
    for scale in (1.0, 1.0, 2.0, 3.0):
        with tc.no_grad():
            layer.weight.mul_(scale)
        np.testing.assert_array_equal(host(step(x)), host(forward(x)))


# ---- what may not be done in a capture ------------------------------------------------------------------------------------------------------


class OwnOptimizer(tc.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)


SCHEDULE = tc.optim.lr_scheduler.StepLR(tc.optim.SGD([tc.nn.Parameter([1.0])]), 1)
PLATEAU = tc.optim.lr_scheduler.ReduceLROnPlateau(tc.optim.SGD([tc.nn.Parameter([1.0])]))

FORBIDDEN = {
    "item": (lambda x: x.sum().item(), "the host read values"),
    "tolist": (lambda x: x.tolist(), "the host read values"),
    "numpy": (lambda x: x.cpu().numpy(), "the host read values"),
    "print": (lambda x: repr(x), "the host read values"),
    "if": (lambda x: bool(x[0] > 0), "the host read values"),
    "mask": (lambda x: x[x > 0], "the host read values"),
    "indices": (lambda x: x[[0, 2]], "values of the host were copied"),
    "tensor": (lambda x: tc.tensor([1.0, 2.0], device=x.device), "values of the host were copied"),
    "random": (lambda x: tc.rand(3, device=x.device), "random numbers were drawn on the host"),
    "one random number": (lambda x: x * tc.rand(1, device=x.device), "random numbers were drawn on the host"),
    "a normal one": (lambda x: tc.randn((), device=x.device), "random numbers were drawn on the host"),
    "a random integer": (lambda x: tc.randint(3, (1,), device=x.device), "random numbers were drawn on the host"),
    "a permutation": (lambda x: tc.randperm(1), "random numbers were drawn on the host"),
    "a generator of NumPy": (lambda x: F.dropout(x, 0.5, rng=OUTSIDE[2]), "a seed was drawn from a np.random.Generator"),
    "one made there": (lambda x: F.dropout(x, 0.5, rng=np.random.default_rng(0)), "a seed was drawn from a np.random.Generator"),
    "a seed": (lambda x: tc.random.default_generator.seed64(), "random numbers were drawn on the host"),
    "one number of the host": (lambda x: tc.zeros(1, device=x.device).copy_(tc.ones(1)), "values of the host were copied"),
    "a number beside": (lambda x: x * tc.ones(()), "values of the host were copied"),
    "an assigned number of the host": (lambda x: OUTSIDE[0].__setitem__(0, tc.ones(())), "values of the host were copied"),
    "synchronize": (lambda x: tc.cuda.synchronize(x.device), "the host waited"),
    "dlpack": (lambda x: x.__dlpack__(stream=1), "was given to another library"),
    "manual_seed": (lambda x: tc.manual_seed(1), r"manual_seed\(\) was called"),
    "next_call": (lambda x: tc.random.default_generator.next_call(), r"next_call\(\) was called"),
    "set_state": (lambda x: tc.random.default_generator.set_state(tc.random.default_generator.get_state()), r"set_state\(\) was called"),
    "masks of numbers": (lambda x: OUTSIDE[1](tc.ones(1, 2, 2, device=x.device), x.reshape(2, 2)), "pass mask != 0, which is not read"),
    "data": (lambda x: setattr(OUTSIDE[0], "data", x * 2), r"a Tensor of shape \(4,\) got another .data"),
    "graph": (lambda x: [step(x) for step in [tc.cuda.graph(lambda y: y * 1)] for _ in range(2)], "another capture was begun"),
    "optimizer": (lambda x: OwnOptimizer([tc.nn.Parameter([1.0])]).step(), "OwnOptimizer.step.., which is not a method"),
    "schedule": (lambda x: SCHEDULE.step(3), "got an argument"),
    "plateau": (lambda x: PLATEAU.step(0.5), "got an argument"),
}  # fmt: skip


OUTSIDE: list = []  # what is not the function's own: a Tensor, a layer


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_may_not_be_done_in_a_capture(emulated_gpu, name):
    """The error names it. What came before is done, and the thread works on as usual."""
    call, message = FORBIDDEN[name]
    OUTSIDE[:] = [tc.ones(4, device=emulated_gpu), tc.MultiheadAttention(2, 2, 1).to(emulated_gpu), np.random.default_rng(0)]
    x, count = tc.ones(4, device=emulated_gpu), tc.zeros(4, device=emulated_gpu)
    calls = []

    def function(x):
        count.add_(x)
        calls.append(1)
        if len(calls) > 1:
            call(x)
        count.add_(x)

    step = tc.cuda.graph(function)
    step(x)
    with pytest.raises(RuntimeError, match=f"{message}.* while tc.cuda.graph captured"):
        step(x)
    assert (host(count) == 3).all()
    calls.clear()
    OUTSIDE.clear()
    assert float((x * 2).sum()) == 8


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (lambda gpu: (tc.ones(3, device=gpu),), ValueError, r"argument 0 has shape \(3,\) and dtype float32, but shape \(4,\)"),
        (lambda gpu: (tc.ones(4, device=gpu, dtype="float64"),), ValueError, "dtype float64, but shape .* and dtype float32"),
        (lambda gpu: (tc.ones(4),), TypeError, "argument 0 of a captured function is on the CPU"),
        (lambda gpu: (np.ones(4),), TypeError, "argument 0 of a captured function is a ndarray"),
        (lambda gpu: (), ValueError, "got 1 Tensors at its first call and 0 now"),
    ],
)
def test_arguments_that_do_not_fit(emulated_gpu, arguments, error, message):
    step, x = tc.cuda.graph(lambda x: x * 2), tc.ones(4, device=emulated_gpu)
    for _ in range(3):
        step(x)
        with pytest.raises(error, match=message):
            step(*arguments(emulated_gpu))
    assert (host(step(x)) == 2).all()


def test_a_cache_that_grows_is_refused(emulated_gpu):
    """Each start would write to the same positions."""
    cache = tc.nn.KeyValueCache(8)
    step, x = tc.cuda.graph(lambda x: cache.append(x, x)[0].sum()), tc.ones(1, 2, 1, 4, device=emulated_gpu)
    step(x)
    with pytest.raises(RuntimeError, match="KeyValueCache, .* while tc.cuda.graph captured"):
        step(x)
    assert len(cache) == 1


def test_an_argument_that_requires_a_gradient_is_refused(emulated_gpu):
    """The graph's copy would get it, and the caller's Tensor none."""
    w = tc.ones(4, device=emulated_gpu, requires_grad=True)
    step = tc.cuda.graph(lambda x: x * 2)
    for x in (w.detach(), w.detach(), w.detach()):
        with pytest.raises(ValueError, match="argument 0 of a captured function requires a gradient"):
            step(w)
        step(x)


@pytest.mark.parametrize("mode", [tc.no_grad, tc.autocast])
def test_a_start_in_another_mode_is_refused(emulated_gpu, mode):
    weight, x = tc.nn.Parameter(tc.ones(3, device=emulated_gpu)), tc.ones(3, device=emulated_gpu)
    step = tc.cuda.graph(lambda x: (weight * x).sum())
    for _ in range(2):
        with mode():
            step(x)
    with pytest.raises(
        RuntimeError, match=r"first called with(out)? gradients and .*, and now with gradients and without autocast; a graph"
    ):
        step(x)
    with mode():
        assert float(step(x)) == 3


def test_a_function_that_changes_its_argument_is_refused(emulated_gpu):
    """The caller's Tensor would stay as it is."""
    x, y = tc.ones(4, device=emulated_gpu), tc.ones(4, device=emulated_gpu)
    for change in (lambda x, y: y.mul_(2), lambda x, y: setattr(y, "data", x * 2)):
        step = tc.cuda.graph(change)
        step(x, y)
        with pytest.raises(RuntimeError, match="changed argument 1 in place"):
            step(x, y)


@pytest.mark.parametrize(
    "optimizer, option", [(tc.optim.SGD, {"momentum": 0.5}), (tc.optim.Adam, {"amsgrad": True}), (tc.optim.RMSprop, {"centered": True})]
)
def test_an_option_with_a_state_of_its_own_wants_a_new_graph(emulated_gpu, optimizer, option):
    """The refused call changes nothing; a new graph goes on as eager steps do."""
    x, found = tc.ones(4, device=emulated_gpu), []
    for captures in (False, True):
        p = tc.nn.Parameter(tc.ones(4, device=emulated_gpu))
        own = optimizer([p], lr=0.1, capturable=True)

        def function(x, p=p, own=own):
            own.zero_grad()
            ((p * x) ** 2).sum().backward()
            own.step()

        for _ in range(2):
            step = tc.cuda.graph(function) if captures else function
            for _ in range(3):
                step(x)
            own.param_groups[0].update(option)
            if captures and len(found) == 1:
                found.append(None)
                with pytest.raises(
                    RuntimeError, match=r"another state \(momentum, amsgrad, centered\) was switched on, make a new tc.cuda.graph"
                ):
                    step(x)
        found.append(host(p))
    assert found[0].tobytes() == found[2].tobytes()


def test_a_graph_without_arguments(emulated_gpu):
    count = tc.zeros(3, device=emulated_gpu)
    step = tc.cuda.graph(lambda: count.add_(1.0), device=emulated_gpu)
    [step() for _ in range(5)]
    assert (host(count) == 5).all()


def test_a_function_is_asked_for():
    with pytest.raises(TypeError, match=r"takes a function, not int: step = tc.cuda.graph\(function\).* no context manager"):
        tc.cuda.graph(3)


def test_a_decorated_function_keeps_its_name(emulated_gpu):
    @tc.cuda.graph
    def double(x):
        """Twice x."""
        return x * 2

    assert double.__name__ == "double" and double.__doc__ == "Twice x." and "double" in repr(double)
    x = tc.ones(3, device=emulated_gpu)
    assert (host(double.__wrapped__(x)) == 2).all()
    with pytest.raises(TypeError, match="by position, and got x by name"):
        double(x=x)
    with pytest.raises(TypeError, match="neither copied nor pickled"):
        copy.deepcopy(double)


def test_a_method_is_captured_for_each_object():
    class Owner:
        @tc.cuda.graph
        def step(self, x):
            return x

    with pytest.raises(TypeError, match=r"self.step = tc.cuda.graph\(self.step\)"):
        Owner().step(1)


@pytest.mark.parametrize("device", ["cpu", "gpu", 3.0])
def test_a_graph_is_for_a_gpu(device):
    with pytest.raises(ValueError, match="tc.cuda.graph is for a GPU"):
        tc.cuda.graph(lambda: None, device=device)


def test_a_function_without_arguments_is_not_run_without_a_gpu(emulated_gpu):
    """Its first call would compute on the CPU, and step optimizers there. Of the emulated GPU, "cuda" is no name."""
    calls = []
    step = tc.cuda.graph(lambda: calls.append(1))
    with pytest.raises(RuntimeError, match="cuda:0"):
        step()
    assert not calls
    with pytest.raises(RuntimeError, match="cuda:0"):
        tc.cuda.graph(lambda: None, device=0)


def test_a_backward_outside_of_the_graph_is_refused_where_masks_are_drawn(emulated_gpu):
    w = tc.ones(100, device=emulated_gpu, requires_grad=True)
    kept = []  # with its history, which a result does not have
    step = tc.cuda.graph(lambda x: kept.append(F.dropout(w * x, 0.5, True).sum()))
    x = tc.ones(100, device=emulated_gpu)
    step(x), step(x), (y := kept.pop())
    with pytest.raises(RuntimeError, match=r"call backward\(\) in the function"):
        y.backward()


# ---- others meanwhile ---------------------------------------------------------------------------------------------------------------------


def test_what_other_threads_do_in_a_capture(emulated_gpu):
    """They read, copy, wait and give memory back; the capture is not theirs."""
    y = tc.full((1000,), 2.0, device=emulated_gpu)
    seen = []

    def other():
        seen.append(float((y * 3).sum()))
        tc.cuda.synchronize(emulated_gpu)
        tc.cuda.empty_cache(emulated_gpu)
        seen.append((tc.tensor(np.ones(5, np.float32), device=emulated_gpu) + 1).tolist())

    def function(x):
        in_a_thread(other)
        return x + 1

    step, x = tc.cuda.graph(function), tc.ones(4, device=emulated_gpu)
    for _ in range(3):
        assert (host(step(x)) == 2).all()
    assert seen == [6000.0, [2.0] * 5] * 2


OF_A_THREAD = {
    "computes": lambda y, x: y * 3,
    "writes": lambda y, x: y.add_(1),
    "reads": lambda y, x: y.tolist(),
    "copies": lambda y, x: y.clone(),
    "has a large copy": lambda y, x: y.repeat(500000).tolist(),
    "writes a number": lambda y, x: y.__setitem__(0, 1.0),
    "uses the argument": lambda y, x: x * 3,
    "uses a view": lambda y, x: y[1:].sum(),
    "lends": lambda y, x: y.__dlpack__(stream=1),
    "captures": lambda y, x: [step() for step in [tc.cuda.graph(lambda: y * 3, device=y.device)] for _ in range(2)],
}


@pytest.mark.parametrize("name", OF_A_THREAD)
def test_a_thread_of_the_function_may_not_use_what_the_capture_has_not_computed(emulated_gpu, name):
    errors, calls = [], []

    def use(y, x):
        try:
            OF_A_THREAD[name](y, x)
        except RuntimeError as error:
            errors.append(str(error))

    def function(x):
        y = x * 2
        calls.append(1)
        if len(calls) > 1:
            in_a_thread(lambda: use(y, x))
        return y * 5

    step = tc.cuda.graph(function)
    for i in range(1, 5):
        assert (host(step(tc.full((8,), float(i), device=emulated_gpu))) == 10 * i).all()
    assert len(errors) == 1 and "another thread computed, or got as an argument, while tc.cuda.graph captured" in errors[0]


def test_an_argument_that_is_not_used_is_taken_again(emulated_gpu):
    step, x = tc.cuda.graph(lambda x, y: x * 2), tc.ones(1000, device=emulated_gpu)
    step(x, x), step(x, x)
    del step
    gc.collect()
    others = [tc.full((1000,), float(i), device=emulated_gpu) for i in range(5)]
    assert [float(y[0]) for y in others] == [0, 1, 2, 3, 4]


def test_a_start_within_a_start_is_refused(emulated_gpu):
    inner, x = tc.cuda.graph(lambda x: x * 2), tc.ones(2, device=emulated_gpu)
    inner(x), inner(x)
    p, calls = tc.nn.Parameter(tc.ones(2, device=emulated_gpu)), []
    optimizer = tc.optim.SGD([p], lr=0.1)

    def factor(epoch):
        calls.append(1)
        if len(calls) < 4:
            return 1.0
        inner(x)
        return 1.0

    schedule = LR.LambdaLR(optimizer, factor)

    def step():
        optimizer.zero_grad()
        (p * p).sum().backward()
        optimizer.step()
        schedule.step()

    step, errors = tc.cuda.graph(step, device=emulated_gpu), []

    def run():
        for _ in range(4):
            try:
                step()
            except RuntimeError as error:
                errors.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len(errors) == 2 and all("called by an optimizer or a schedule within a start of tc.cuda.graph" in e for e in errors)
    before = host(p).copy()
    calls.clear()
    step()  # as usual
    assert (host(p) != before).all() and (host(inner(x)) == 2).all()


def test_a_function_that_calls_itself(emulated_gpu):
    step = tc.cuda.graph(lambda x: step(x))
    with pytest.raises(RuntimeError, match="may not call itself"):
        step(tc.ones(4, device=emulated_gpu))


# ---- memory that another library has borrowed --------------------------------------------------------------------------------------------


def test_a_loan_that_ends_in_a_capture(emulated_gpu, emulated_library):
    """Its reads have not run, and the device cannot be waited for: nobody else gets the memory."""
    borrower = Borrower(emulated_library)
    y = [tc.full((10,), 2.0, device=emulated_gpu)]
    loans, taken = [], []

    def give_back_and_take():
        borrower.gives_back(loans.pop())
        z = tc.full((10,), 9.0, device=emulated_gpu)
        taken.append((z.data_ptr(), float(z.sum())))

    def function(x):
        if loans:
            in_a_thread(give_back_and_take)
        return x + 1

    step, x = tc.cuda.graph(function), tc.ones(4, device=emulated_gpu)
    step(x)
    tc.cuda.synchronize(emulated_gpu)
    address = y[0].data_ptr()
    loans.append(borrower.borrows_and_reads(y[0]))
    y.clear()
    step(x)
    assert taken[0][0] != address and taken[0][1] == 90
    others = [tc.full((10,), 9.0, device=emulated_gpu) for _ in range(9)]  # the capture is over
    assert address in {z.data_ptr() for z in others} and all((host(z) == 9).all() for z in others)
    assert borrower.has_read() == [2.0] * 10


# ---- captures that cannot be made graphs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["float32", "autocast"])
def test_a_graph_that_finds_no_memory_leaves_the_step_undone(emulated_gpu, emulated_library, precision):
    """Weights, states, counts and schedules are those before the call, and later calls go on from there."""
    if not emulated_library.counts_launches:
        pytest.skip("the emulation alone can be short of it")
    run = Run(emulated_gpu, precision, make=lambda step: tc.cuda.graph(step))
    tokens = tc.tensor(np.arange(10).reshape(2, 5), device=emulated_gpu)
    run.step(tokens, tokens)
    state = lambda: (
        [host(p) for p in run.model.parameters()]
        + [host(v) if isinstance(v, tc.Tensor) else v for s in run.optimizer.state.values() for v in s.values()]
    )
    before, rate = state(), run.schedule.get_last_lr()
    emulated_library.library.emulator_fail_instantiations(2)
    with pytest.raises(MemoryError, match="out of memory"):
        run.step(tokens, tokens)
    for found, expected in zip(state(), before, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert run.schedule.get_last_lr() == rate and all(p.grad is None for p in run.model.parameters())
    for _ in range(3):
        run.step(tokens, tokens)
    assert {s["step"] for s in run.optimizer.state.values()} == {4}


def test_gradients_that_are_added_to_stay_where_no_graph_is_made(emulated_gpu, emulated_library):
    if not emulated_library.counts_launches:
        pytest.skip("the emulation alone can be short of memory")
    w, x = tc.ones(3, device=emulated_gpu, requires_grad=True), tc.tensor([1.0, 2.0, 3.0], device=emulated_gpu)
    step = tc.cuda.graph(lambda x: (w * x).sum().backward())
    step(x)
    emulated_library.library.emulator_fail_instantiations(2)
    with pytest.raises(MemoryError):
        step(x)
    np.testing.assert_array_equal(host(w.grad), host(x))
    step(x)
    step(x)
    np.testing.assert_array_equal(host(w.grad), 3 * host(x))


def test_a_graph_gets_the_memory_that_is_cached(emulated_gpu, emulated_library):
    if not emulated_library.counts_launches:
        pytest.skip("the emulation alone can be short of memory")
    tc.zeros(1 << 20, device=emulated_gpu)  # is cached from now on
    step = tc.cuda.graph(lambda x: x * 2)
    x = tc.ones(3, device=emulated_gpu)
    step(x)
    emulated_library.library.emulator_fail_instantiations(1)
    assert host(step(x)).tolist() == [2.0] * 3
    assert tc.cuda.memory_stats(emulated_gpu)["cached"] < 1 << 22
