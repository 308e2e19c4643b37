"""Manual optimization: modules that compute gradients and step their optimizers in training_step."""

import contextlib

import numpy as np
import pytest
import transformer_c as tc
from small_runs import Small, bits, seed_everything, small_data
from transformer_c.trainer.saving import RunFiles
from transformer_c.trainer.steps import configured

pytestmark = pytest.mark.filterwarnings("ignore:.*there are no validation data")
BATCHES = [(np.full((2, 3), i + 1, np.float32), np.full((2, 1), i, np.float32)) for i in range(5)]


def trainer(epochs=1, **options):
    return tc.Trainer(epochs, progress=False, **options)


class Accumulating(Small):
    """Steps with the gradients of every two batches."""

    def __init__(self, **options):
        super().__init__(**options)
        self.automatic_optimization = False
        self.calls = []

    def configure_optimizers(self):
        optimizer = tc.optim.SGD(self.parameters(), lr=0.1, momentum=0.5)
        return {"optimizer": optimizer, "lr_scheduler": tc.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)}

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        loss = self.loss(batch)
        self.log("train_loss", loss, on_step=True)
        self.manual_backward(loss / 2)
        if batch_idx % 2:
            self.calls.append(np.concatenate([p.grad.numpy().ravel() for p in self.parameters()]))
            optimizer.step()
            optimizer.zero_grad()
            self.lr_schedulers().step()


def made(kind, **options):
    seed_everything()
    return kind(dropout=0.0, **options)


def test_gradients_of_two_batches_are_added():
    """Beside a loop written by hand, with the same bits; in the last epoch a gradient is left over, which the next one adds to."""
    model, run = made(Accumulating), trainer(2, log_every_n_steps=1)
    run.fit(model, BATCHES)
    other = made(Accumulating)
    optimizer = tc.optim.SGD(other.parameters(), lr=0.1, momentum=0.5)
    gradients, lr = [], 0.1
    for _ in range(2):
        for i, (x, y) in enumerate(BATCHES):
            (other.loss((tc.tensor(x), tc.tensor(y))) / 2).backward()
            if i % 2:
                gradients.append(np.concatenate([p.grad.numpy().ravel() for p in other.parameters()]))
                optimizer.param_groups[0]["lr"] = lr
                optimizer.step()
                optimizer.zero_grad()
                lr *= 0.5
    np.testing.assert_array_equal(model.calls, gradients)
    assert bits(model, run)[0] == bits(other, run)[0]
    assert run.global_step == 4 == len(model.calls) and run.optimizers[0].param_groups[0]["lr"] == 0.1 / 16
    assert "step" not in vars(run.optimizers[0]) and [step for step, _ in run.step_history["train_loss"]] == [0, 0, 1, 1, 2, 2, 2, 3, 3, 4]


@pytest.mark.parametrize("at", [2, 4, 7])
def test_a_stopped_run_resumes_with_its_gradients(tmp_path, at):
    class Failing(Accumulating):
        def on_train_batch_start(self, batch, batch_idx):
            if self.trainer.current_epoch * 5 + batch_idx == self.fails_at:
                self.trainer.save_checkpoint(tmp_path / "now")
                raise InterruptedError

    found = []
    for fails, resume in ((None, None), (at, None), (None, tmp_path / "now")):
        model, run = made(Failing), trainer(2, checkpoint_dir=tmp_path / str(len(found)), monitor="train_loss")
        model.fails_at = fails
        with contextlib.suppress(InterruptedError):
            run.fit(model, BATCHES, resume=resume)
        found.append(bits(model, run))
    assert found[0] == found[2] != found[1]


def test_a_gradient_that_is_not_finite_stops_before_its_step():
    """The root's slope at 0 times 0, though the loss is 0; with the step's closure, and after gradients of its own are assigned."""

    class Rooted(Small):
        automatic_optimization, how = False, "step"

        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()

            def closure():
                optimizer.zero_grad()
                loss = (self.net(batch[0]) * 0).abs()
                self.manual_backward((loss.sqrt() if self.trainer.global_step and self.how != "assigned" else loss).sum())
                if self.trainer.global_step and self.how == "assigned":
                    self.net[1].weight.grad = tc.full((1, 3), float("inf"))

            if self.how == "closure":
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()

    for Rooted.how in ("step", "closure", "assigned"):
        model, run = made(Rooted), trainer()
        with pytest.raises(
            FloatingPointError, match=r"the gradient of net.1.weight is not finite in epoch 1, batch 2, after 1 steps; the weights"
        ):
            run.fit(model, BATCHES)
        assert run.global_step == 1 and all(np.isfinite(p.numpy()).all() for p in model.parameters())


class Two(Small):
    """As in a GAN: each optimizer has its part of the parameters, its loss and its schedule."""

    automatic_optimization = False
    form = "lists"

    def __init__(self, **options):
        super().__init__(**options)
        self.other = tc.nn.Linear(1, 1)

    def configure_optimizers(self):
        one, two = tc.optim.SGD(self.net.parameters(), lr=0.1), tc.optim.Adam(self.other.parameters(), lr=0.2)
        schedule = tc.optim.lr_scheduler.StepLR(two, 1, 0.5)
        forms = {
            "lists": ([one, two], [schedule]),
            "dicts": ({"optimizer": one}, {"optimizer": two, "lr_scheduler": schedule}),
            "tuple": (one, two),
        }
        return forms[self.form]

    def training_step(self, batch, batch_idx):
        x, y = batch
        one, two = self.optimizers(use_pl_optimizer=True)
        for optimizer in (one, two):
            self.toggle_optimizer(optimizer)
            assert [p.requires_grad for p in self.parameters()] == 2 * [optimizer is one] + 2 * [optimizer is two]
            optimizer.zero_grad()
            self.manual_backward(tc.F.mse_loss(self.other(self.net(x)), y))
            self.clip_gradients(optimizer, gradient_clip_val=0.5)
            optimizer.step()
            self.untoggle_optimizer(optimizer)
        assert all(p.requires_grad for p in self.parameters())
        return {"loss": tc.ones(1), "more": 3}

    def on_train_epoch_end(self):
        if schedule := self.lr_schedulers():
            schedule.step()


class One(Two):
    def configure_optimizers(self):
        return tc.optim.SGD(self.parameters(), lr=0.1)


def by_hand(epochs):
    model = made(Two)
    one, two = tc.optim.SGD(model.net.parameters(), lr=0.1), tc.optim.Adam(model.other.parameters(), lr=0.2)
    for epoch in range(epochs):
        two.param_groups[0]["lr"] = 0.2 * 0.5**epoch
        for x, y in BATCHES:
            for optimizer, part in ((one, model.net), (two, model.other)):
                model.zero_grad()
                tc.F.mse_loss(model.other(model.net(tc.tensor(x))), tc.tensor(y)).backward()
                tc.optim.clip_grad_norm_(part.parameters(), 0.5)
                optimizer.step()
    return model


@pytest.mark.parametrize("form", ["lists", "dicts"])
def test_two_optimizers(tmp_path, form):
    expected, (model, run) = by_hand(3), (made(Two), trainer(2, checkpoint_dir=tmp_path, checkpoint_every_n_steps=3))
    model.form = form
    run.fit(model, BATCHES)
    assert run.global_step == 20 and len(run.optimizers) == 2
    model, run = made(Two), trainer(3, checkpoint_dir=tmp_path)
    model.form = form
    run.fit(model, BATCHES, resume="last")
    assert bits(model, run)[0] == bits(expected, run)[0]
    saved = tc.load(run.last_model_path)
    assert len(saved["optimizers"]) == 2 and set(saved["gradients"]) == set(saved["state_dict"])
    model.form = "tuple"
    assert len(configured(model)[0]) == 2
    with pytest.raises(ValueError, match="the checkpoint has 2 optimizers, the model 1"):
        trainer(3, checkpoint_dir=tmp_path).fit(made(One), BATCHES, resume="last")


def test_the_same_steps_as_automatically():
    """Also in reduced precision, with dropout, validation, and a closure."""

    class Closing(Small):
        automatic_optimization = False

        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()

            def closure():
                loss = Small.training_step(self, batch, batch_idx)
                optimizer.zero_grad()
                self.manual_backward(loss)
                return loss

            loss = optimizer.step(closure)
            self.lr_schedulers().step()
            return loss

    for options in ({}, {"precision": "bf16-mixed"}):
        found = []
        for kind in (Small, Closing):
            seed_everything()
            model, run = kind(), trainer(2, **options)
            run.fit(model, *small_data())
            found.append(bits(model, run))
            assert run.run.losses.means()["loss"] == pytest.approx(run.history["train_loss"][-1])
        assert found[0] == found[1]


def test_hooks_of_steps():
    log = []

    class Noting(tc.callbacks.Callback):
        def on_before_backward(self, trainer, model, loss):
            log.append("before backward")

        def on_after_backward(self, trainer, model):
            log.append("after backward")

        def on_before_optimizer_step(self, trainer, model, optimizer):
            log.append(optimizer is model.optimizers())

        def on_before_zero_grad(self, trainer, model, optimizer):
            pytest.fail("nothing drops gradients but the module")

        def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
            log.append(trainer.global_step)

    trainer(callbacks=Noting()).fit(made(Accumulating), BATCHES[:2])
    assert log == ["before backward", "after backward", 0, "before backward", "after backward", True, 1]


def test_logs_and_files_of_every_so_many_steps(tmp_path, monkeypatch):
    """Where a batch takes two steps, or half a one."""
    last = []
    monkeypatch.setattr(RunFiles, "write_last", lambda self: last.append(self._run.step))
    for kind, every, files, rows in ((Two, 3, [4, 6, 10], 3), (Accumulating, 2, [2], 1)):
        keep = tc.callbacks.ModelCheckpoint(tmp_path / kind.__name__, "{step}", save_top_k=-1, every_n_train_steps=every)
        logger = tc.loggers.CSVLogger(tmp_path, name=None, version=kind.__name__)
        monitor = tc.callbacks.LearningRateMonitor("step")
        run = trainer(
            callbacks=[keep, monitor],
            logger=logger,
            log_every_n_steps=every,
            checkpoint_dir=tmp_path / "last",
            checkpoint_every_n_steps=every,
        )
        last.clear()
        run.fit(made(kind), BATCHES)
        assert last == [*files, run.global_step]  # and after the epoch
        assert sorted(keep.best_k_models) == sorted(str(tmp_path / kind.__name__ / f"step={step}.safetensors") for step in files)
        assert (tmp_path / kind.__name__ / "metrics.csv").read_text().count("\n") == 2 + rows


def test_what_is_refused():
    for options, message in (
        (dict(accumulate_grad_batches=2), r"accumulate_grad_batches= has no effect on Accumulating, whose automatic.*every k-th"),
        (dict(gradient_clip_val=1.0), r"gradient_clip_val= has no effect on .*self.clip_gradients\("),
    ):
        with pytest.raises(ValueError, match=message):
            trainer(**options).fit(Accumulating(), BATCHES)

    class Mixed(Small):
        def training_step(self, batch, batch_idx):
            self.manual_backward(self.loss(batch))

    with pytest.raises(RuntimeError, match=r"manual_backward\(\) needs automatic_optimization = False"):
        trainer().fit(Mixed(), BATCHES)
    two = Two()
    two.automatic_optimization = True
    with pytest.raises(ValueError, match="gave 2 optimizers; a trainer steps one: .*automatic_optimization = False"):
        trainer().fit(two, BATCHES)
    none = made(Accumulating)
    none.configure_optimizers = lambda: []
    with pytest.raises(ValueError, match="gave 0 optimizers"):
        trainer().fit(none, BATCHES)
    model = made(Accumulating)
    with pytest.raises(FloatingPointError, match=r"the loss is nan in epoch 1, batch 2, after 0 steps"):
        trainer().fit(model, [BATCHES[0], (BATCHES[0][0], np.full((2, 1), np.nan, np.float32))])
    model.manual_backward(model.loss((tc.ones(2, 3), tc.ones(2, 1))))  # in a loop without a trainer
    assert all(p.grad is not None for p in model.parameters())
