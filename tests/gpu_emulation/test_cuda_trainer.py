"""``Trainer(graph=True)``: fits whose steps are captured, beside the same fits without: equal bits."""

import collections
import copy
import random
from contextlib import nullcontext

import numpy as np
import pytest
import transformer_c as tc
from device_cases import host
from transformer_c import functional as F
from transformer_c.trainer.captured import BatchIndex

pytestmark = [pytest.mark.usefixtures("nothing_is_left"), pytest.mark.whole]


@pytest.fixture(autouse=True)
def late(emulated_library):
    yield
    emulated_library.set_streams("late")


class Tokens(tc.TrainingModule):
    """An encoder that reverses rows of tokens, with everything that a step may have."""

    def __init__(self, each=lambda self, batch, batch_idx: None):
        super().__init__()
        self.embedding, self.head = tc.nn.Embedding(7, 8), tc.nn.Linear(8, 7)
        self.encoder = tc.EncoderBlock(8, 2, 8, dropout=0.2)
        self.register_buffer("sum", tc.zeros((), dtype="float64"))
        self.seen, self.counts, self.noise = [], {}, np.random.default_rng(0)
        self.each = [each]  # in a list: no function of the module

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens)))

    def configure_optimizers(self):
        optimizer = tc.optim.Adam(self.parameters(), lr=1e-2)
        return [optimizer], [{"scheduler": tc.CosineWarmupScheduler(optimizer, 5, 50), "interval": "step"}]

    def loss(self, batch):
        tokens, targets = batch
        y = self(tokens).float()
        return F.cross_entropy(y.transpose(1, 2), targets), (y.argmax(-1) == targets).float().mean()

    def training_step(self, batch, batch_idx):
        self.each[0](self, batch, batch_idx)
        loss, accuracy = self.loss(batch)
        self.log("train_loss", loss, on_step=True, prog_bar=True)
        self.sum.copy_(loss.detach() + self.current_epoch)
        self.log("sum", self.sum)
        self.sum.mul_(2)  # what was logged is what it was
        self.log_dict({"train_acc": accuracy, "epoch_acc": accuracy * (1 + self.current_epoch)}, batch_size=3)
        return {"loss": loss, "accuracy": accuracy}

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch)[0])


class Light(Tokens):
    """Without the encoder, whose kernels take the emulation its time."""

    def __init__(self, *given):
        super().__init__(*given)
        self.encoder = tc.nn.Dropout(0.2)


class Watching(tc.callbacks.Callback):
    """Sees what steps give, and keeps it."""

    def __init__(self):
        self.outputs, self.norms = [], []

    def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
        self.outputs.append((outputs["loss"], outputs["accuracy"], float(batch[0].sum()), batch_idx))

    def seen(self):
        return [(float(loss), float(accuracy), *rest) for loss, accuracy, *rest in self.outputs], self.norms


class Norms(Watching):
    """Reads and changes gradients in each step."""

    def on_after_backward(self, trainer, model):
        self.norms.append(float(model.head.weight.grad.norm()))
        model.log("norm", self.norms[-1], on_step=True)

    def on_before_optimizer_step(self, trainer, model, optimizer):
        model.head.bias.grad.mul_(0.5)


class Freezing(tc.callbacks.Callback):
    """Changes the module within an epoch."""

    def on_train_batch_start(self, trainer, model, batch, batch_idx):
        model.embedding.weight.requires_grad = batch_idx < 2 or batch_idx > 4
        model.encoder.train(batch_idx != 5)


def data(rows, batch=3, seed=0):
    x = np.random.default_rng(seed).integers(0, 7, (rows, 4))
    return tc.data.DataLoader(tc.data.TensorDataset(x, x[:, ::-1].copy()), batch, shuffle=True)


def fit(gpu, graph, rows=12, epochs=2, model=Light, resume=None, batch=3, **options):
    tc.manual_seed(4)
    model, trainer = model(), tc.Trainer(epochs, 0.5, device=gpu, progress=False, graph=graph, **options)
    trainer.fit(model, data(rows, batch), data(2, seed=1), resume=resume)
    return model, trainer


def end(model, trainer):
    """All that a fit leaves."""
    states = {f"{i}.{name}": host(v) if isinstance(v, tc.Tensor) else v
              for i, s in trainer.optimizers[0].state_dict()["state"].items() for name, v in s.items()}  # fmt: skip
    weights = {name: host(p) for name, p in model.state_dict().items()}
    gradients = {f"d{name}": None if p.grad is None else host(p.grad) for name, p in model.named_parameters()}
    rest = {
        "history": trainer.history,
        "steps": trainer.step_history,
        "metrics": trainer.callback_metrics,
        "lr": [group["lr"] for group in trainer.optimizers[0].param_groups],
        "generator": tc.random.default_generator.get_state(),
        "logged": model.logged,
        "callbacks": [c.seen() for c in trainer.callbacks if isinstance(c, Watching)],
        "grads": {name: p.requires_grad for name, p in model.named_parameters()},
    }
    return states | weights | gradients | {name: repr(value) for name, value in rest.items()}


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


ANY = range(1, 1000)


def started(library):
    """How many graphs were, so far; on a GPU nothing counts them."""
    return library.library.emulator_graph_launches() if library.counts_launches else 0


def assert_started(library, before, wanted):
    assert not library.counts_launches or started(library) - before in wanted


def both(gpu, library, wanted, **options):
    """The same fit with and without graphs, of which so many were started."""
    ends = []
    for graph in (False, True):
        before = started(library)
        made = {name: make() for name, make in options.items()}
        ends.append(end(*fit(gpu, graph, **made)))
        assert_started(library, before, wanted if graph else [0])
    assert_equal(ends[1], ends[0])


# ---- bits -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision, order", [(None, "random"), ("bf16-mixed", "late")])
def test_a_fit_has_the_bits_of_one_without_graphs(emulated_gpu, emulated_library, precision, order):
    """Twenty-two steps. In both epochs one runs before its graph is captured, and the last one is of another shape."""
    emulated_library.set_streams(order, 1)
    given = {"rows": 21, "batch": 2, "precision": precision, "model": Tokens}
    both(emulated_gpu, emulated_library, [2 * 9], callbacks=Watching, **{name: lambda v=value: v for name, value in given.items()})


OPTIONS = {
    "accumulation": {"accumulate_grad_batches": lambda: 2, "gradient_clip_algorithm": lambda: "value"},
    "callbacks": {"callbacks": Norms},
    "changes within an epoch": {"callbacks": Freezing, "rows": lambda: 27, "epochs": lambda: 1},
    "halves": {"model": lambda: lambda: Light().bfloat16()},
    "short epochs": {"rows": lambda: 2, "batch": lambda: 1, "epochs": lambda: 3},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options(emulated_gpu, emulated_library, name):
    both(emulated_gpu, emulated_library, ANY, **OPTIONS[name])


class Plain(Light):
    """Another optimizer, stepped by an override without a closure; a loss alone."""

    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx)["loss"]

    def configure_optimizers(self):
        class Own(tc.optim.SGD):
            def step(self, closure=None):
                return super().step(closure)

        return Own(self.parameters(), lr=0.1, momentum=0.9)

    def optimizer_step(self, optimizer):
        optimizer.step()

    def configure_gradient_clipping(self, optimizer, value, algorithm):
        self.log("norm", tc.nn.utils.clip_grad_norm_(self.parameters(), value * (1 + self.current_epoch)), on_step=True)


def test_methods_that_a_module_replaces(emulated_gpu, emulated_library):
    both(emulated_gpu, emulated_library, [2 * 3], model=lambda: Plain)


def test_a_run_resumes_within_an_epoch(emulated_gpu, emulated_library, tmp_path):
    """With graphs from a checkpoint without, and the other way round, with the bits of the run that was not stopped."""
    expected = end(*fit(emulated_gpu, False))
    for first, then in [(False, True), (True, False)]:
        folder = tmp_path / str(first)
        with pytest.raises(KeyError):
            fit(emulated_gpu, first, callbacks=[Stop(7)], checkpoint_dir=folder, checkpoint_every_n_steps=3)
        assert_equal(end(*fit(emulated_gpu, then, checkpoint_dir=folder, resume="last")), expected)


class Stop(tc.callbacks.Callback):
    """Ends a fit after some steps."""

    def __init__(self, steps):
        self.steps = steps

    def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
        if trainer.global_step == self.steps:
            raise KeyError("stopped")


def test_the_last_graphs_are_freed_before_validation(emulated_gpu):
    """And outputs that a callback keeps are its own, whatever later steps write."""
    used = []

    class Used(Light):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            used.append(tc.cuda.memory_stats(emulated_gpu)["in_use"])

        def on_validation_start(self):
            used.append(tc.cuda.memory_stats(emulated_gpu)["in_use"])

    fit(emulated_gpu, True, 12, 1, Used)
    assert used[-1] < used[0] < used[-2]


# ---- one launch -------------------------------------------------------------------------------------------------------------------------


class Counting(tc.callbacks.Callback):
    """What each step costs, between its batch's arrival and the optimizer's step."""

    def __init__(self, library):
        self.library, self.steps = library, []

    def counts(self):
        names = ("graph_launches", "copies_to_host")
        return [getattr(self.library.library, f"emulator_{name}")() for name in names]

    def on_train_batch_start(self, trainer, model, batch, batch_idx):
        self.library.launches()
        self.before = self.counts()

    def take(self):
        self.steps.append((self.library.launches(), *(b - a for a, b in zip(self.before, self.counts(), strict=True))))


def test_a_step_is_one_launch(emulated_gpu, emulated_library):
    """Then its numbers are read together, and the optimizer steps with a kernel of its own."""
    counting = Counting(emulated_library)

    class Counted(Light):
        def lr_scheduler_step(self, scheduler, metric):
            counting.take()
            super().lr_scheduler_step(scheduler, metric)

    fit(emulated_gpu, True, 15, 1, Counted, callbacks=counting)
    before, *captured = counting.steps
    assert len(before[0]) > 20 and before[1:] == (0, 1)
    assert [step[1:] for step in captured] == [(1, 1)] * 4
    assert all(len(kernels) == 1 and "adam_kernel" in kernels[0] for kernels, *_ in captured[1:])


def test_batches_of_many_shapes(emulated_gpu, emulated_library):
    """The first of them have a graph each; one warning tells of the others."""
    lengths = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3, 3, 10, 11, 9]
    batches = [[np.full((1, n), n % 7)] * 2 for n in lengths]
    ends = []
    for graph in (False, True):
        tc.manual_seed(1)
        model, trainer = Light(), tc.Trainer(1, device=emulated_gpu, progress=False, graph=graph, limit_val_batches=0)
        before = started(emulated_library)
        if graph:
            with pytest.warns(UserWarning, match="more than 8 shapes .* captures the first 8: others run") as told:
                trainer.fit(model, batches)
            assert len(told) == 1
        else:
            trainer.fit(model, batches)
        ends.append(end(model, trainer))
    assert_equal(ends[1], ends[0])
    assert_started(emulated_library, before, [4])


# ---- checks -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_loss_or_gradient_that_is_not_finite(emulated_gpu, where):
    """The error is that of a fit without graphs, and the weights are those of the step before."""

    class Broken(Light):
        def training_step(self, batch, batch_idx):
            value = self.head.bias.sum() * 0 + (batch[0][0, 0] == 6).float()  # 1 in the batch with the 6
            bad = 1 / (1 - value) if where == "loss" else (1 - value + self.head.bias.sum() * 0).sqrt() * 0
            return self.loss(batch)[0] + bad.sum()

    found = []
    for graph in (False, True):
        tc.manual_seed(1)
        model, trainer = Broken(), tc.Trainer(1, device=emulated_gpu, progress=False, graph=graph, limit_val_batches=0)
        batches = [[np.full((2, 4), n)] * 2 for n in (1, 2, 3, 6, 5)]
        with pytest.raises(FloatingPointError) as error:
            trainer.fit(model, batches)
        found.append((str(error.value), trainer.global_step, *(host(p).tobytes() for p in model.parameters())))
    assert found[0] == found[1] and "step 4" in found[0][0] and found[0][1] == 3


class Manual(Light):
    automatic_optimization = False


class Early(tc.callbacks.Callback):
    def on_before_backward(self, trainer, model, loss):
        pass


REFUSED = {
    "cpu": (
        lambda gpu: tc.Trainer(1, device="cpu", graph=True),
        'graph=True captures steps on a GPU, and device is .cpu.: pass device="cuda"',
    ),
    "ddp": (lambda gpu: tc.Trainer(1, device="cuda", strategy="ddp", graph=True), "the steps of one process, and strategy is .ddp."),
    "zero": (lambda gpu: tc.Trainer(1, device="cuda", strategy="zero", graph=True), "the steps of one process, and strategy is .zero."),
    "a model on the CPU": (lambda gpu: tc.Trainer(1, graph=True).fit(Light(), data(6)), "Light is on the CPU: pass device="),
    "manual": (lambda gpu: tc.Trainer(1, device=gpu, graph=True).fit(Manual(), data(6)), "Manual has automatic_optimization = False"),
    "hook": (
        lambda gpu: tc.Trainer(1, device=gpu, graph=True, callbacks=Early()).fit(Light(), data(6)),
        r"without calling on_before_backward\(\), which is defined: use on_train_batch_start",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_captured_is_refused_at_the_beginning(emulated_gpu, name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call(emulated_gpu)


def changes_an_attribute(model, batch, batch_idx):
    model.each = [*model.each, None]


FORBIDDEN = {
    "item": (lambda model, batch, i: model.head.bias.sum().item(), RuntimeError, r"of Light to clipping: the host read values .* move that out of the function\. on_train_batch_start"),
    "number": (lambda model, batch, i: model.log("n", 3.0), TypeError, r"log\('n'\) got a float in a step that Trainer\(graph=True\) captures"),
    "cpu": (lambda model, batch, i: model.log("n", tc.ones(1)), TypeError, r"log\('n'\) got a Tensor on the CPU"),
    "many": (lambda model, batch, i: model.log("n", batch[0].float()), ValueError, r"log\('n'\) takes .*, not this one of shape \(3, 4\)"),
    "metric": (lambda model, batch, i: model.log("n", tc.metrics.Mean()), TypeError, r"log\('n'\) got a Mean"),
    "batch_idx": (lambda model, batch, i: i % 2, RuntimeError, r"captures what is from training_step\(\) of Light to clipping: batch_idx was used"),
    "global_step": (lambda model, batch, i: model.global_step, RuntimeError, "global_step was read in the captured function"),
    "logged": (lambda model, batch, i: model.logged, RuntimeError, "to clipping: logged was read in the captured function"),
    "callback_metrics": (lambda model, batch, i: model.trainer.callback_metrics, RuntimeError, "callback_metrics was read in the captured"),
    "history": (lambda model, batch, i: model.trainer.history, RuntimeError, "history was read in the captured function"),
    "step_history": (lambda model, batch, i: model.trainer.step_history, RuntimeError, "step_history was read in the captured function"),
    "list": (lambda model, batch, i: model.seen.append(1), RuntimeError, "seen of the module was changed while tc.cuda.graph captured; move that out"),
    "dict": (lambda model, batch, i: model.counts.update({len(model.counts): 1}), RuntimeError, "counts of the module was changed"),
    "attribute": (changes_an_attribute, RuntimeError, "each of the module was changed while tc.cuda.graph captured"),
    "numpy": (lambda model, batch, i: np.random.random(), RuntimeError, "the generator 'numpy' was drawn from while tc.cuda.graph captured"),
    "python": (lambda model, batch, i: random.random(), RuntimeError, "the generator 'python' was drawn from"),
    "own generator": (lambda model, batch, i: model.noise.normal(), RuntimeError, "the generator 'model.noise' was drawn from"),
    "in place": (lambda model, batch, i: batch[0].mul_(1), RuntimeError, "changed argument 0 in place"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_a_step_may_not_do(emulated_gpu, name):
    """It is told by the second step at the latest."""
    call, error, message = FORBIDDEN[name]
    trainer = tc.Trainer(1, device=emulated_gpu, progress=False, graph=True, limit_val_batches=0)
    with pytest.raises(error, match=message):
        trainer.fit(Light(call), data(12))
    assert trainer.global_step <= 1


def test_batches_with_other_things_than_arrays(emulated_gpu, emulated_library):
    """Numbers and strings are part of what a graph is for; of other objects nothing is known."""

    class Named(Light):
        def training_step(self, batch, batch_idx):
            return super().training_step((batch["x"], batch["y"]), batch_idx)["loss"] * batch["scale"]

    def batches(*scales):
        x = np.arange(4).reshape(1, 4)
        return [{"x": x, "y": x, "scale": scale, "name": "a"} for scale in scales]

    ends = []
    for graph in (False, True):
        tc.manual_seed(1)
        before = started(emulated_library)
        model, trainer = Named(), tc.Trainer(1, device=emulated_gpu, progress=False, graph=graph, limit_val_batches=0)
        trainer.fit(model, batches(1.0, 1.0, 2.0, 1.0, 2.0, 3.0))
        ends.append(end(model, trainer))
    assert_equal(ends[1], ends[0])
    assert_started(emulated_library, before, [3])
    with pytest.raises(
        TypeError, match="graph=True takes batches of arrays of numbers, numbers and strings, and this one has an item of type object"
    ):
        trainer.fit(Named(), batches(object()))


# ---- what a step depends on, and what it may not leave behind ----------------------------------------------------------------------------


class Line(tc.TrainingModule):
    """A small model, whose step may do something else too."""

    def __init__(self, each=lambda self, loss: None):
        super().__init__()
        self.save_hyperparameters("each")
        self.hparams.beta = 1.0
        self.head, self.teacher = tc.nn.Linear(3, 2), tc.nn.Linear(3, 2).requires_grad_(False)
        self.register_buffer("mean", tc.zeros(()))
        self.counts, self.list, self.deque, self.array = {"n": 0}, [[0.0]], collections.deque(maxlen=2), np.zeros(1)
        self.long, self.last, self.pair = [0.0] * 300, None, None

    def on_train_batch_start(self, batch, batch_idx):
        self.rng = getattr(self, "rng", None) or np.random.default_rng(0)
        self.deque.append(None)

    def configure_optimizers(self):
        return tc.optim.SGD(self.parameters(), lr=0.1)

    def loss(self, x, y):
        return F.mse_loss(self.head(x) + self.teacher(x) * 0.1, y) * (1 + self.mean)

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch["x"], batch["y"]) if isinstance(batch, dict) else self.loss(*batch[:2])
        self.hparams.each(self, loss)
        self.log("loss", loss, on_step=True)
        return loss


def rows(steps, size=2):
    rng = np.random.default_rng(0)
    return [tuple(rng.standard_normal((size, n), np.float32) for n in (3, 2)) for _ in range(steps)]


def short_fit(gpu, graph, model, batches, callback=None, **options):
    tc.manual_seed(1)
    random.seed(1)
    trainer = tc.Trainer(1, device=gpu, progress=False, graph=graph, limit_val_batches=0, callbacks=callback and Each(callback), **options)
    model = model()
    trainer.fit(model, batches)
    weights = {name: host(p) for name, p in model.state_dict().items()}
    return weights | {"losses": np.array(trainer.step_history["loss"])}


class Each(tc.callbacks.Callback):
    """Does something to the model after each batch."""

    def __init__(self, call):
        self.call = call

    def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
        self.call(trainer, model, batch_idx)


One, Two = (collections.namedtuple(name, "x y") for name in ("One", "Two"))


class Kinds(Line):
    """Its loss depends on the type of a batch, and on a third item."""

    def training_step(self, batch, batch_idx):
        scale = 3 if isinstance(batch, Two) or (len(batch) == 3 and str(batch[2]) == "-0.0") else 1
        return super().training_step(batch, batch_idx) * scale


class Square(Line):
    """Arrays of one shape."""

    def loss(self, x, y):
        return F.mse_loss(self.head(x).sum(-1), y.sum(-1))


def in_order(names, steps=3):
    rng = np.random.default_rng(1)
    made = ({name: rng.standard_normal((2, 3), np.float32) for name in "xy"} for _ in range(steps))
    return [{name: batch[name] for name in names} for batch in made]


BATCHES = {
    "a dict in another order": (Square, in_order("xy") + in_order("yx"), 2),
    "another namedtuple": (Kinds, [One(*row) for row in rows(3)] + [Two(*row) for row in rows(3)], 2),
    "another zero": (Kinds, [(*row, 0.0) for row in rows(3)] + [(*row, -0.0) for row in rows(3)], 2),
    "not a number": (Kinds, [(*row, float("nan")) for row in rows(10)], 9),
    "a number of NumPy": (Kinds, [(*row, np.int64(3)) for row in rows(3)], 2),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_graph_is_for_one_kind_of_batches(emulated_gpu, emulated_library, name):
    model, batches, starts = BATCHES[name]
    expected = short_fit(emulated_gpu, False, model, batches)
    before = started(emulated_library)
    assert_equal(short_fit(emulated_gpu, True, model, batches), expected)
    assert_started(emulated_library, before, range(starts, 1000))


def replaces_the_head(trainer, model, batch_idx):
    if batch_idx == 2:
        model.head = copy.deepcopy(model.head)
        with tc.no_grad():
            model.head.weight.mul_(2)


def replaces_a_parameter(trainer, model, batch_idx):
    if batch_idx == 2:
        model.head.weight = tc.nn.Parameter(model.head.weight.detach() * 2)


def replaces_a_buffer(trainer, model, batch_idx):
    model.mean = model.mean * 0.5 + 1


def adds_a_hook(trainer, model, batch_idx):
    if batch_idx == 2:
        model.head.register_forward_hook(lambda module, given, output: output * 2)


def changes_clipping(trainer, model, batch_idx):
    trainer.gradient_clip_val = 0.5 if batch_idx < 2 else 0.001


def copies_the_head(trainer, model, batch_idx):
    model.teacher = copy.deepcopy(model.head).requires_grad_(False)


def moves_the_teacher(trainer, model, batch_idx):
    model.teacher.weight.data = 0.5 * model.teacher.weight.data + 0.5 * model.head.weight.data


def clips_weights(trainer, model, batch_idx):
    if batch_idx in (2, 3):
        model.head.weight.data = model.head.weight.data.clip(-0.2, 0.2)


NONE_REPEATED = "are replaced, or their .data is, in or between all steps, so that graph=True repeats none of them: change values in place"
CHANGES = [
    replaces_the_head,
    replaces_a_parameter,
    replaces_a_buffer,
    adds_a_hook,
    changes_clipping,
    copies_the_head,
    moves_the_teacher,
    clips_weights,
]
IN_EACH_STEP = [replaces_a_buffer, copies_the_head, moves_the_teacher]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_between_steps_is_seen(emulated_gpu, change):
    expected = short_fit(emulated_gpu, False, Line, rows(7), change, gradient_clip_val=0.5)
    with pytest.warns(UserWarning, match=NONE_REPEATED) if change in IN_EACH_STEP else nullcontext():
        found = short_fit(emulated_gpu, True, Line, rows(7), change, gradient_clip_val=0.5)
    assert_equal(found, expected)


class Adversarial(Line):
    """Trains on inputs moved in the direction of their gradients, which it finds by leaves of its own, of the batch and made anew."""

    def training_step(self, batch, batch_idx):
        x, y = batch[0].detach().requires_grad_(), batch[1]
        noise = tc.zeros(*y.shape, device=y.device, requires_grad=True)
        for _ in range(2):
            self.loss(x, y + noise).backward()
        self.zero_grad()
        self.log("noise", (noise.grad**2).sum())
        return super().training_step((x.detach() + x.grad.tanh(), y), batch_idx)


def test_leaves_that_a_step_makes(emulated_gpu):
    expected = short_fit(emulated_gpu, False, Adversarial, rows(6))
    assert_equal(short_fit(emulated_gpu, True, Adversarial, rows(6)), expected)


def clips_all_weights(trainer, model, batch_idx):
    """At first after each step, as in the paper on Wasserstein GANs."""
    if batch_idx < 8:
        for p in model.head.parameters():
            p.data = p.data.clip(-0.3, 0.3)


def test_weights_that_are_clipped_after_each_step(emulated_gpu, emulated_library):
    """Nothing is captured in vain for long, and graphs are made again when the clipping ends."""
    found = []
    for graph in (False, True):
        before = started(emulated_library)
        with pytest.warns(UserWarning, match=NONE_REPEATED) if graph else nullcontext():
            found.append(short_fit(emulated_gpu, graph, Line, rows(14), clips_all_weights))
        # two captures, and from the ninth step on a step as usual, a capture, and repetitions
        assert_started(emulated_library, before, [2 + 4] if graph else [0])
    assert_equal(found[1], found[0])


def test_a_buffer_that_each_step_replaces(emulated_gpu):
    def replace(model, loss):
        model.mean = model.mean * 0.5 + loss.detach()

    expected = short_fit(emulated_gpu, False, lambda: Line(replace), rows(5))
    with pytest.warns(UserWarning, match=NONE_REPEATED) as told:
        found = short_fit(emulated_gpu, True, lambda: Line(replace), rows(5))
    assert len(told) == 1
    assert_equal(found, expected)


def sets_data(model, loss):
    model.teacher.weight.data = 0.5 * model.head.weight.data


def adds_to_the_last(model, loss):
    model.last = loss.detach() if model.last is None else model.last + loss.detach()


def keeps_the_last_but_one(model, loss):
    model.pair, model.last = loss.detach() if model.last is None else model.last, loss.detach()


def keeps_all(model, loss):
    model.kept = [*getattr(model, "kept", []), loss.detach()]


def keeps_one(model, loss):
    model.list.clear()
    model.list.append(loss.detach())


LEFT_BEHIND = {
    "a Tensor of the one before": (adds_to_the_last, "last of the module was changed"),
    "the Tensor before": (keeps_the_last_but_one, "pair of the module was changed"),
    "a list with the Tensors before": (keeps_all, "kept of the module was changed"),
    "another item of the same list": (keeps_one, "list of the module was changed"),
    "data": (sets_data, r"a Tensor of shape \(2, 3\) got another \.data while tc\.cuda\.graph captured, .* change its values in place"),
    "an item of a dict": (lambda model, loss: model.counts.update(n=model.counts["n"] + 1), "counts of the module"),
    "a Tensor in a dict": (lambda model, loss: model.counts.update(n=loss.detach()), "counts of the module"),
    "an item of a list in a list": (lambda model, loss: model.list[0].__setitem__(0, model.list[0][0] + 1), "list of the module"),
    "an item of a long list": (lambda model, loss: model.long.__setitem__(7, model.long[7] + 1), "long of the module"),
    "a full deque": (lambda model, loss: model.deque.append(loss.detach()), "deque of the module"),
    "an array": (lambda model, loss: model.array.__iadd__(1), "array of the module"),
    "a hyper-parameter": (lambda model, loss: setattr(model.hparams, "beta", model.hparams.beta / 2), "hparams of the module"),
    "an attribute that goes": (lambda model, loss: vars(model).pop("pair", None), None),
    "a generator made by a hook": (lambda model, loss: model.rng.normal(), r"the generator 'model\.rng' was drawn from"),
}


@pytest.mark.parametrize("name", LEFT_BEHIND)
def test_what_a_step_may_not_leave_behind(emulated_gpu, name):
    """Equal values are nothing new: an attribute that the first step removed is missing before and after the second."""
    call, message = LEFT_BEHIND[name]
    if message is None:
        short_fit(emulated_gpu, True, lambda: Line(call), rows(3))
        return
    with pytest.raises(RuntimeError, match=message):
        short_fit(emulated_gpu, True, lambda: Line(call), rows(3))


class Head(tc.nn.Linear):
    mean = None

    def keep(self, output):
        self.mean = output.mean(0)
        return output + self.mean


class Keeping(Line):
    """Its step keeps Tensors in attributes, of which a callback keeps those of all steps."""

    def __init__(self):
        super().__init__()
        self.head = Head(3, 2)

    def loss(self, x, y):
        prediction = self.head.keep(self.head(x))
        self.last, self.pair = prediction, ({"x": x * 2, "y": [prediction.detach().abs()]}, F.dropout(x, 0.5))
        return F.mse_loss(prediction, y)


def test_tensors_that_a_step_leaves_in_attributes(emulated_gpu, emulated_library):
    """Copies, which stay as they are when the next step is repeated; batches of two shapes have two graphs."""

    batches, found = [*rows(4), *rows(3, size=1), *rows(3)], []
    for graph in (False, True):
        seen, at_once = [], []

        def keep(trainer, model, batch_idx, seen=seen, at_once=at_once):
            seen.append([model.last, model.pair[0]["x"], *model.pair[0]["y"], model.pair[1], model.head.mean])
            at_once.append([host(tensor) for tensor in seen[-1]])

        before = started(emulated_library)
        end = short_fit(emulated_gpu, graph, Keeping, batches, keep)
        assert_started(emulated_library, before, [3 + 2 + 3] if graph else [0])
        later = [[host(tensor) for tensor in step] for step in seen]
        named = {
            f"{name} {i} {j}": array
            for name, steps in (("now", at_once), ("later", later))
            for i, step in enumerate(steps)
            for j, array in enumerate(step)
        }
        found.append(end | named)
    assert len(found[0]) > 2 * 10 * 5
    assert_equal(found[1], found[0])


def test_tensors_in_attributes_that_a_hook_takes_away(emulated_gpu):
    """What the step would find then is not what its capture found."""
    with pytest.raises(RuntimeError, match="last of the module was changed"):
        short_fit(emulated_gpu, True, Keeping, rows(4), lambda trainer, model, batch_idx: setattr(model, "last", None))


def test_equal_values_may_be_assigned(emulated_gpu):
    """A number beyond those that Python has once."""

    def assign(model, loss):
        model.pair = (300 + len(model.counts), "a" + str(len(model.counts)))

    model = lambda: Line(assign)
    assert_equal(short_fit(emulated_gpu, True, model, rows(4)), short_fit(emulated_gpu, False, model, rows(4)))


class Shared(tc.data.Dataset):
    """Draws from a generator that the model may have too."""

    def __init__(self, rng):
        self.rng, self.rows = rng, rows(8, 1)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return tuple(a[0] + self.rng.normal() for a in self.rows[i])


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_generator_that_the_data_draw_from(emulated_gpu, prefetch):
    """Whether it was the step that drew is known while batches are not drawn beside it."""
    rng = np.random.default_rng(0)

    class Drawing(Line):
        def __init__(self):
            super().__init__()
            self.mine = rng

        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx) + (0 if prefetch else self.mine.normal())

    loader = tc.data.DataLoader(Shared(rng), 2, prefetch=prefetch)
    if prefetch:
        short_fit(emulated_gpu, True, Drawing, loader)
        return
    with pytest.raises(RuntimeError, match="the generator 'model.mine' was drawn from"):
        short_fit(emulated_gpu, True, Drawing, loader)


def test_outputs_in_an_object(emulated_gpu):
    class Held(Line):
        def training_step(self, batch, batch_idx):
            return {"loss": super().training_step(batch, batch_idx), "kept": collections.UserList([1])}

    with pytest.raises(TypeError, match=r"training_step\(\) returned an object of type UserList, and a Tensor in it"):
        short_fit(emulated_gpu, True, Held, rows(2), lambda *given: None)


@pytest.mark.parametrize("batch", [np.array(["a", "b"]), object()])
def test_items_that_no_graph_is_for(emulated_gpu, batch):
    with pytest.raises(TypeError, match="has an item of type (ndarray of dtype <U1|object)$"):
        short_fit(emulated_gpu, True, Line, [(*rows(1)[0], batch)])


USES = [repr, abs, round, np.sin, np.array, "{!r}".format, lambda i: divmod(i, 2), lambda i: divmod(2, i), lambda i: np.int64(2) > i,
        lambda i: i << 1, lambda i: 1 << i, lambda i: i >> 1, lambda i: i | 1, lambda i: 1 ^ i, lambda i: ~i, lambda i: +i]  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_any_use_of_batch_idx_is_refused(use):
    with pytest.raises(RuntimeError, match="batch_idx was used in the captured function"):
        use(BatchIndex())
