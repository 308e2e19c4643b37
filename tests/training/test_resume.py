"""A run that is stopped at any moment, in any way, and resumed, ends with the bits of one that was not stopped."""

import _thread
import errno
import fcntl
import os
import random
import signal
import subprocess
import sys
import threading
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
import transformer_c as tc
from small_runs import Small, bits, seed_everything, small_data

EPOCHS = 4


def run(folder, resume="last", epochs=EPOCHS, model_class=Small, prefetch=0, **options):
    """What a script does, from its seeds on."""
    seed_everything()
    train, val = small_data(prefetch=prefetch)
    model = model_class()
    trainer = tc.Trainer(epochs, gradient_clip_val=0.5, checkpoint_dir=folder, progress=False, **options)
    trainer.fit(model, train, val, resume=resume)
    return bits(model, trainer), trainer


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nothing stops."""
    return run(tmp_path_factory.mktemp("whole"))[0]


class Stopped(Exception):
    pass


def stopping(at, how, kind="training"):
    """A model whose step number `at` ends the run."""

    class Stopping(Small):
        def training_step(self, batch, batch_idx):
            self.count("training")
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            self.count("validation")
            super().validation_step(batch, batch_idx)

        def count(self, of):
            if of == kind:
                counts.append(1)
                if len(counts) == at:
                    how()

    counts = []
    return Stopping


def fail():
    raise Stopped


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("at", [1, 6, 7, 9, 23])
def test_after_an_error_in_a_step(tmp_path, whole, at, prefetch):
    with pytest.raises(Stopped):
        run(tmp_path, model_class=stopping(at, fail))
    assert run(tmp_path)[0] == whole


@pytest.mark.parametrize("kind", ["training", "validation"])
@pytest.mark.parametrize("at", [1, 2, 5, 6, 7])
def test_after_ctrl_c_nothing_is_lost(tmp_path, whole, at, kind):
    steps_done = {"training": at, "validation": 6 * ((at + 1) // 2)}[kind]
    with pytest.raises(KeyboardInterrupt, match="interrupted (in|after) epoch .*resume"):
        run(tmp_path, model_class=stopping(at, lambda: signal.raise_signal(signal.SIGINT), kind))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert tc.load(tmp_path / "last.safetensors")["trainer"]["global_step"] == steps_done
    assert run(tmp_path)[0] == whole


def test_ctrl_c_inside_an_accumulated_step_waits_for_its_end(tmp_path):
    options = dict(accumulate_grad_batches=3)
    whole = run(tmp_path / "whole", **options)[0]
    kind = stopping(2, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt, match="interrupted in epoch 1 after batch 3;"):
        run(tmp_path / "parts", model_class=kind, **options)
    assert tc.load(tmp_path / "parts" / "last.safetensors")["trainer"]["global_step"] == 1
    assert run(tmp_path / "parts", **options)[0] == whole


@pytest.mark.parametrize("epoch", [1, EPOCHS])
def test_ctrl_c_after_the_last_batch(tmp_path, whole, epoch):
    """In the last epoch, too: the user is told, and the run is complete."""

    class Late(Small):
        def on_train_epoch_end(self):
            if self.current_epoch + 1 == epoch:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=f"interrupted after epoch {epoch};"):
        run(tmp_path, model_class=Late)
    assert run(tmp_path)[0] == whole


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_in_the_validation_after_should_stop(tmp_path, times):
    """The rest of the epoch is not trained, and the run ends with it."""

    class Ending(Small):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            if self.current_epoch == 1 and batch_idx == 3:
                self.trainer.should_stop = True

    expected, trainer = run(tmp_path / "whole", model_class=Ending)
    assert trainer.should_stop and trainer.history["step"] == [6, 10]
    for again in range(times):
        stopped = stopping(1 if again else 3, lambda: signal.raise_signal(signal.SIGINT), "validation")
        with pytest.raises(KeyboardInterrupt, match="interrupted in epoch 2 after batch 4;"):
            run(tmp_path / "parts", model_class=type("Stopped", (stopped, Ending), {}))
    found, trainer = run(tmp_path / "parts", model_class=Ending)
    assert found == expected and trainer.should_stop and trainer.history["step"] == [6, 10]


def test_should_stop_before_a_checkpoint_is_loaded(tmp_path):
    class Ended(Small):
        def on_fit_start(self):
            self.trainer.should_stop = True

    run(tmp_path, epochs=1)
    assert run(tmp_path, model_class=Ended)[1].history["epoch"] == [1]


def test_a_second_ctrl_c_does_not_wait(tmp_path, whole):
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, model_class=stopping(9, twice))
    assert tc.load(tmp_path / "last.safetensors")["trainer"]["global_step"] == 6
    assert run(tmp_path)[0] == whole


def test_a_full_disk(tmp_path, whole, monkeypatch):
    """The error is raised; the previous checkpoint is complete, and the run resumes from it."""
    fsync, calls = os.fsync, []

    def full(descriptor):
        calls.append(1)
        if len(calls) > 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        return fsync(descriptor)

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(os, "fsync", full)
        run(tmp_path)
    assert tc.load(tmp_path / "last.safetensors")["trainer"]["epoch"] == 1
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
    assert run(tmp_path)[0] == whole


def test_in_a_thread(tmp_path, whole):
    """Where Ctrl-C never arrives, and its handler may not be touched."""
    found = []
    thread = threading.Thread(target=lambda: found.append(run(tmp_path)[0]))
    thread.start()
    thread.join()
    assert found == [whole]


def test_a_handler_of_somebody_else_stays(tmp_path):
    signals = []
    before = signal.signal(signal.SIGINT, lambda *unused: signals.append(1))
    try:
        run(tmp_path, epochs=1, model_class=stopping(2, lambda: signal.raise_signal(signal.SIGINT)))
    finally:
        signal.signal(signal.SIGINT, before)
    assert signals == [1]


def test_interrupted_again_and_again(tmp_path, whole):
    """After every single batch."""
    for _ in range(4 * 6):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, model_class=stopping(1, lambda: signal.raise_signal(signal.SIGINT)))
    found, trainer = run(tmp_path)
    assert found == whole and trainer.global_step == 24


@pytest.mark.parametrize("prefetch", [0, 3])
def test_checkpoints_within_an_epoch(tmp_path, prefetch):
    """With prefetch a thread draws samples ahead: from their dataset's own generator, as without it."""
    with pytest.raises(Stopped):
        quiet_run(tmp_path, prefetch, stopping(12, fail), checkpoint_every_n_steps=4)
    assert tc.load(tmp_path / "last.safetensors")["trainer"]["batch"] == 2
    resumed = quiet_run(tmp_path, prefetch, Small)
    assert resumed == quiet_run(tmp_path / "whole", 0, Small)


@pytest.mark.parametrize("prefetch", [1, 3])
def test_checkpoints_while_a_thread_draws_from_the_default_generator(tmp_path, prefetch):
    """The thread has a generator of its own there, seeded from the default one as the epoch begins."""
    with pytest.raises(Stopped):
        quiet_run(tmp_path, prefetch, stopping(12, fail), noise=True, checkpoint_every_n_steps=4)
    resumed = quiet_run(tmp_path, prefetch, Small, noise=True)
    assert resumed == quiet_run(tmp_path / "whole", prefetch, Small, noise=True)


def quiet_run(folder, prefetch, model_class, noise=False, **options):
    """`run` with a dataset that draws from its own generator and, with `noise`, from the default one."""
    seed_everything()

    class Own(tc.data.Dataset):
        rng = None

        def __len__(self):
            return 11

        def __getitem__(self, index):
            x = self.rng.normal(size=3).astype(np.float32)
            return x + tc.randn(3).numpy() if noise else x, x.sum(keepdims=True)

    data = Own()
    data.rng = np.random.default_rng(1)
    model = model_class()
    trainer = tc.Trainer(EPOCHS, checkpoint_dir=folder, progress=False, monitor="train_loss", **options)
    trainer.fit(model, tc.data.DataLoader(data, 2, shuffle=True, prefetch=prefetch), resume="last")
    return bits(model, trainer)


class Hooked(Small):
    """Its hook draws, logs, and changes data, weights and a counter that no state dict has."""

    def __init__(self):
        super().__init__()
        self.epochs_begun = 0

    def on_train_epoch_start(self):
        self.epochs_begun += 1
        self.shift[0] = float(tc.rand(1).item()) + self.current_epoch
        self.log("shift", self.shift[0], on_step=True)
        with tc.no_grad():
            self.net[1].bias.fill_(self.shift[0])

    def training_step(self, batch, batch_idx):
        return super().training_step((batch[0] + self.shift[0] * self.epochs_begun, batch[1]), batch_idx)

    def on_save_checkpoint(self, checkpoint):
        checkpoint["epochs_begun"] = self.epochs_begun

    def on_load_checkpoint(self, checkpoint):
        self.epochs_begun = checkpoint["epochs_begun"]


@pytest.mark.parametrize("at", [2, 6, 9])
def test_hooks_at_the_beginning_of_an_epoch(tmp_path, at):
    """Going on in the middle of an epoch, what they do to the data is done again; weights and logged values are the checkpoint's."""

    def hooked(*bases):
        class Shifted(*bases):
            shift = [0.0]  # noqa: RUF012

        return Shifted

    expected = run(tmp_path / "whole", model_class=hooked(Hooked))[0]
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", model_class=hooked(stopping(at, lambda: signal.raise_signal(signal.SIGINT)), Hooked))
    assert run(tmp_path / "parts", model_class=hooked(Hooked))[0] == expected


class Counting(Small):
    """Its validation changes what a state dict has."""

    def __init__(self):
        super().__init__()
        self.register_buffer("validated", tc.zeros(1))

    def validation_step(self, batch, batch_idx):
        self.validated += 1
        with tc.no_grad():
            self.net[1].bias.copy_(self.net[1].bias * 0.5)
        super().validation_step(batch, batch_idx)


@pytest.mark.parametrize("at", [1, 3])
def test_what_validation_changes_is_done_again(tmp_path, at):
    """A Ctrl-C in the middle of validation keeps what was there before it."""
    expected = run(tmp_path / "whole", model_class=Counting)[0]
    stopped = type("Stopped", (stopping(at, lambda: signal.raise_signal(signal.SIGINT), "validation"), Counting), {})
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", model_class=stopped)
    assert run(tmp_path / "parts", model_class=Counting)[0] == expected


def test_generators_that_are_named(tmp_path):
    """A generator in a closure is kept when the trainer is told of it."""

    def closed_run(folder, epochs, resume=None):
        seed_everything()
        rng = np.random.RandomState(4)
        batches = [(np.ones((2, 3), np.float32), np.ones((2, 1), np.float32))] * 3
        collected = []

        class Closing(Small):
            def training_step(self, batch, batch_idx):
                collected.append(rng.rand())
                return super().training_step(batch, batch_idx) * collected[-1]

        trainer = tc.Trainer(epochs, checkpoint_dir=folder, progress=False, generators=[rng])
        model = Closing()
        trainer.fit(model, batches, resume=resume)
        return bits(model, trainer)

    expected = closed_run(tmp_path / "whole", 4)
    closed_run(tmp_path / "parts", 2)
    assert closed_run(tmp_path / "parts", 4, "last") == expected


@pytest.mark.parametrize("depth", [0, 1, 2, 9])
def test_generators_of_parts_of_the_model(tmp_path, depth):
    """Attributes of modules within modules within modules."""

    class Noise(tc.nn.Module):
        def __init__(self):
            super().__init__()
            self.rng = np.random.default_rng(6)

        def forward(self, x):
            return x * float(self.rng.random())

    class Deep(Small):
        def __init__(self):
            super().__init__()
            part = Noise()
            for _ in range(depth):
                part = tc.nn.Sequential(part)
            self.net = tc.nn.Sequential(part, tc.nn.Linear(3, 1))

    expected, _ = run(tmp_path / "whole", epochs=3, model_class=Deep)
    run(tmp_path / "parts", epochs=1, model_class=Deep)
    assert run(tmp_path / "parts", epochs=3, model_class=Deep)[0] == expected


def test_generators_of_transforms():
    """In a list of a dataset of which a subset's subset is loaded; long lists contain samples and are skipped, like modules and functions."""

    class Anything:
        def __init__(self, **attributes):
            vars(self).update(attributes)

    rng, sample = np.random.default_rng(1), np.random.default_rng(2)
    module, function = types.ModuleType("module"), lambda: None
    module.rng = function.rng = sample
    codes = {"module": module, "function": function}
    inner = Anything(transform=Anything(steps=[len, Anything(rng=rng)]), samples=[sample] * 101, codes=codes)
    loader = tc.data.DataLoader(tc.data.Subset(tc.data.Subset(inner, [0]), [0]))
    found = tc.trainer.streams.find_streams({"train": loader})
    assert {name for name in found if name.startswith("train")} == {"train.dataset.dataset.dataset.transform.steps.1.rng"}


def test_generators_of_the_data_are_not_the_models():
    """Although it has a trainer, which has the loaders."""

    class Data(tc.LightningDataModule):
        def train_dataloader(self):
            return tc.data.DataLoader(small_data()[0].dataset, 2, shuffle=True, rng=np.random.default_rng(0))

    class Looking(Small):
        def on_train_start(self):
            found.update(tc.trainer.streams.find_streams({"model": self}))

    found = {}
    tc.Trainer(1, progress=False).fit(Looking(), Data())
    assert found.keys() - tc.trainer.streams.find_streams({}).keys() == {"model.noise"}


@pytest.mark.parametrize("schedule", ["step", "epoch"])
def test_longer_runs(tmp_path, schedule):
    """Epochs may be added; then it is as if there had been as many from the start."""

    class Scheduled(Small):
        def __init__(self):
            super().__init__(schedule=schedule)

    run(tmp_path / "parts", epochs=2, model_class=Scheduled)
    found, trainer = run(tmp_path / "parts", epochs=5, model_class=Scheduled)
    assert found == run(tmp_path / "whole", epochs=5, model_class=Scheduled)[0] and trainer.current_epoch == 5


def watching_run(folder, model_class=Small, **options):
    """A run in which a schedule and a callback look at the latest val_loss in the middle of an epoch."""

    class Watching(model_class):
        def configure_optimizers(self):
            optimizer = tc.optim.SGD(self.parameters(), lr=0.1)
            plateau = tc.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "interval": "step", "monitor": "val_loss"}}

    keep = tc.callbacks.ModelCheckpoint(
        folder / "kept", filename="{step}", monitor="val_loss", save_top_k=-1, every_n_train_steps=2, save_weights_only=True
    )
    found, trainer = run(folder, model_class=Watching, callbacks=[keep], **options)
    kept = {os.path.basename(path): value for path, value in keep.best_k_models.items()}
    return found, kept, trainer.callback_metrics, trainer.epoch_metrics, trainer.optimizers[0].param_groups[0]["lr"]


@pytest.mark.parametrize(("at", "kind"), [(7, "training"), (9, "training"), (12, "training"), (2, "validation"), (3, "validation")])
def test_the_latest_values_are_kept(tmp_path, at, kind):
    """A schedule or a callback that looks at one within an epoch finds that of the validation before."""
    with pytest.raises(KeyboardInterrupt):
        watching_run(tmp_path / "parts", stopping(at, lambda: signal.raise_signal(signal.SIGINT), kind))
    assert watching_run(tmp_path / "parts") == watching_run(tmp_path / "whole")


def test_a_finished_run_still_shows_its_values(tmp_path):
    first, again = run(tmp_path)[1], run(tmp_path)[1]
    assert first.callback_metrics and again.callback_metrics == first.callback_metrics
    assert first.epoch_metrics and again.epoch_metrics == first.epoch_metrics


def test_a_file_without_the_latest_values(tmp_path, whole):
    """As earlier versions wrote them."""
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, model_class=stopping(8, lambda: signal.raise_signal(signal.SIGINT)))
    saved = tc.load(tmp_path / "last.safetensors")
    for name in ("metrics", "latest"):
        del saved["trainer"][name]
    tc.save(saved, tmp_path / "last.safetensors")
    assert run(tmp_path)[0] == whole


class Saving(tc.callbacks.Callback):
    """Saves the run once, in a hook of a batch of the second epoch."""

    def __init__(self, hook, at, path, **options):
        self.has_saved = False

        def save(trainer, model, *unused):
            if not self.has_saved and trainer.current_epoch == 1 and trainer.run.batch == at:
                self.has_saved = True
                trainer.save_checkpoint(path, **options)

        setattr(self, hook, save)


@pytest.mark.parametrize("count", [1, 3, 4])
@pytest.mark.parametrize(
    ("hook", "at"),
    [*[("on_train_batch_end", at) for at in (1, 2, 3, 4, 5, 6)], *[("on_train_batch_start", at) for at in (0, 1, 3, 4)]],
)
def test_saving_between_the_batches_of_a_step(tmp_path, count, hook, at):
    """The batches of a step are drawn together, and the gradients of those that are done are there."""
    options = dict(accumulate_grad_batches=count, epochs=3)
    expected, trainer = run(tmp_path / "whole", callbacks=[save := Saving(hook, at, tmp_path / "now")], **options)
    assert save.has_saved and trainer.global_step == 3 * -(-6 // count)
    assert run(tmp_path / "parts", resume=tmp_path / "now", **options)[0] == expected


def test_saving_without_a_folder_or_callbacks(tmp_path):
    """A hook of the module saves a run that has no other files."""

    class Kept(Small):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            if self.trainer.global_step == 8:
                self.trainer.save_checkpoint(tmp_path / "now")

    expected, _ = run(None, None, model_class=Kept)
    assert run(None, tmp_path / "now")[0] == expected


@pytest.mark.parametrize("at", [4, 6])
def test_two_schedules_of_one_optimizer(tmp_path, at):
    """The learning rate is the optimizer's, whichever schedule set it last."""

    class Twofold(Small):
        def configure_optimizers(self):
            optimizer = tc.optim.SGD(self.parameters(), lr=0.1)
            every = {"scheduler": tc.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), "interval": "step"}
            return [optimizer], [every, {"scheduler": tc.optim.lr_scheduler.ReduceLROnPlateau(optimizer), "monitor": "val_loss"}]

    expected, _ = run(None, None, model_class=Twofold, callbacks=[Saving("on_train_batch_end", at, tmp_path / "now")])
    assert run(None, tmp_path / "now", model_class=Twofold)[0] == expected


def test_other_steps_within_a_step_are_refused(tmp_path):
    run(None, None, epochs=2, accumulate_grad_batches=3, callbacks=[Saving("on_train_batch_end", 4, tmp_path / "now")])
    with pytest.raises(ValueError, match=r"after 1 of the 3 batches of an optimizer step; a step has 2 now.*accumulate_grad_batches=3"):
        run(None, tmp_path / "now", accumulate_grad_batches=2)
    saved, (train, val) = tc.load(tmp_path / "now"), small_data(8)
    saved["trainer"]["batches"] = None  # as of data without a length
    tc.save(saved, tmp_path / "now")
    unsized = type("Unsized", (), {"__iter__": lambda self: iter(train)})()
    with warnings.catch_warnings(), pytest.raises(tc.CheckpointError, match="train has 4 batches"):
        warnings.simplefilter("ignore")
        tc.Trainer(2, accumulate_grad_batches=3, progress=False).fit(Small(), unsized, val, resume=tmp_path / "now")


@pytest.mark.parametrize("is_manual", [False, True])
@pytest.mark.parametrize("hook", ["on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step"])
def test_saving_inside_a_batch_is_refused(tmp_path, hook, is_manual):
    """What is half done would be done again; weights alone can be saved, and the run itself after the batch."""

    class Manual(Small):
        automatic_optimization = False

        def configure_optimizers(self):
            return tc.optim.SGD(self.parameters(), lr=0.1)

        def training_step(self, batch, batch_idx):
            loss, optimizer = super().training_step(batch, batch_idx), self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

    def fit(**options):
        (train, val), model = small_data(), Manual() if is_manual else Small()
        save = Saving(hook, 2, tmp_path / "now", **options)
        tc.Trainer(2, callbacks=save, progress=False).fit(model, train, val)
        return save.has_saved

    if is_manual and hook == "on_before_zero_grad":
        return  # the module calls zero_grad() itself
    with pytest.raises(RuntimeError, match=r"epoch 2, batch 3, inside the batch.*call save_checkpoint\(\) in on_train_batch_end\(\)"):
        fit()
    assert not (tmp_path / "now").exists()
    assert fit(weights_only=True) and (tmp_path / "now").exists()


def test_saving_after_an_error_inside_a_batch(tmp_path):
    """What is left of the run: the weights of the step before."""
    path = tmp_path / "now"
    save = tc.callbacks.LambdaCallback(on_exception=lambda trainer, model, error: trainer.save_checkpoint(path))
    with pytest.raises(Stopped):
        run(None, None, model_class=stopping(9, fail), callbacks=[save])
    assert tc.load(path)["trainer"]["global_step"] == 8
    assert run(None, path)[1].global_step == 24


VALIDATION_HOOKS = [f"on_validation_{part}" for part in ("start", "epoch_start", "batch_start", "batch_end", "epoch_end", "end")]


@pytest.mark.parametrize("hook", [*VALIDATION_HOOKS, "on_train_epoch_end"])
@pytest.mark.parametrize("has_logged", [False, True])
def test_saving_during_validation(tmp_path, hook, has_logged):
    """The epoch's means are those of its training batches; what is logged in the hooks of a validation is logged again with it."""

    class Logging(Small):
        def on_validation_start(self):
            self.log("drawn", float(tc.rand(1).item()))

        def on_train_epoch_end(self):
            self.log("at_end", float(self.trainer.callback_metrics["val_loss"]))

    class Counting(tc.callbacks.Callback):
        def on_validation_epoch_start(self, trainer, model):
            if has_logged:
                model.log("again", trainer.callback_metrics.get("val_loss", 0.0))

    def logged(*callbacks, **options):
        return run(epochs=3, model_class=Logging, callbacks=[Counting(), *callbacks], **options)[0]

    expected = logged(save := Saving(hook, 6, tmp_path / "now"), folder=tmp_path / "whole")
    assert save.has_saved
    assert logged(folder=tmp_path / "parts", resume=tmp_path / "now") == expected


class Measured(Small):
    """Its history has values of metrics: one of every batch, one of the first batch alone."""

    def __init__(self):
        super().__init__()
        self.error, self.first = tc.metrics.MeanAbsoluteError(), tc.metrics.MeanSquaredError()

    def training_step(self, batch, batch_idx):
        for metric, name in [(self.error, "error"), (self.first, "first")][: 1 if batch_idx else 2]:
            metric.update(self.net(batch[0]), batch[1])
            self.log(name, metric)
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize(
    ("at", "kind"), [(3, "training"), (6, "training"), (9, "training"), (12, "training"), (1, "validation"), (3, "validation")]
)
@pytest.mark.parametrize("times", [1, 2])
def test_metrics_of_the_batches_before(tmp_path, at, kind, times):
    """Also where no batch is left to train on, and in a run that is stopped there again."""
    expected = run(tmp_path / "whole", model_class=Measured)[0]
    for again in range(times):
        stopped = stopping(1 if again else at, lambda: signal.raise_signal(signal.SIGINT), "validation" if again else kind)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "parts", model_class=type("Stopped", (stopped, Measured), {}))
    assert run(tmp_path / "parts", model_class=Measured)[0] == expected


def test_epochs_without_validation(tmp_path):
    """Their nan comes back as nan."""
    run(tmp_path / "parts", epochs=3, check_val_every_n_epoch=2)
    found, trainer = run(tmp_path / "parts", epochs=5, check_val_every_n_epoch=2)
    assert np.isnan(trainer.history["val_loss"]).tolist() == [True, False, True, False, True]
    assert found == run(tmp_path / "whole", epochs=5, check_val_every_n_epoch=2)[0]


def test_a_finished_run_stays_finished(tmp_path, whole):
    run(tmp_path)
    before = (tmp_path / "last.safetensors").read_bytes()
    found, trainer = run(tmp_path)
    assert found == whole and (tmp_path / "last.safetensors").read_bytes() == before
    assert trainer.last_model_path and trainer.best_model_path


def test_early_stopping_stays_stopped(tmp_path):
    found, trainer = run(tmp_path, patience=1, min_delta=1e9)
    assert trainer.current_epoch == 2
    assert run(tmp_path, patience=1, min_delta=1e9)[0] == found


# ---- the process is killed ------------------------------------------------------------------------------------------------------

KILLER = """
import os, random, signal, sys, time
from test_resume import run
folder, kills, longest = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
moments = random.Random(int(sys.argv[4]))

def live(life):
    try:
        found, _ = run(f"{folder}/{life}", checkpoint_every_n_steps=1 if life % 2 else None)
        with open(f"{folder}/{life}.result", "w") as file:
            file.write(repr(found))
        os._exit(0)
    finally:
        os._exit(1)  # KeyboardInterrupt: its moment is as random as that of a kill

killed = lives = 0
while killed < kills:
    lives += 1
    while True:
        child = os.fork()
        if child == 0:
            live(lives)
        time.sleep(moments.uniform(0, longest))
        how = moments.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT])
        os.kill(child, how)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            longest *= 0.8  # came to its end: sooner the next time, as most are to be killed
            break
        longest *= 1.1  # so that a busy machine gets on, too
        killed += how == signal.SIGKILL
print(killed, lives)
"""

CRASHER = """
import os, sys
from test_resume import run
folder, whole = sys.argv[1:]
calls_left = 0

def crashing(function):
    def call(*arguments):
        global calls_left
        calls_left -= 1
        if calls_left == 0:
            os._exit(9)
        return function(*arguments)
    return call

os.fsync, os.replace = crashing(os.fsync), crashing(os.replace)
moment, crashed = 0, True
while crashed:
    moment += 1
    child = os.fork()
    if child == 0:
        calls_left = moment
        run(f"{folder}/{moment}", epochs=2)
        os._exit(0)
    crashed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    calls_left = 0
    assert repr(run(f"{folder}/{moment}", epochs=2)[0]) == whole, moment
print(moment)
"""


def python(script, *arguments):
    """Runs a script that forks: with one thread, so that a fork has all of the process."""
    environment = {**os.environ, "TRANSFORMER_C_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.unsanitized
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_killed_at_fifty_moments(tmp_path, whole, rng):
    killed, lives = map(int, python(KILLER, tmp_path, 50, 0.05, rng.integers(2**31)))
    assert killed >= 50
    for life in range(1, lives + 1):
        assert (tmp_path / f"{life}.result").read_text() == repr(whole), life


@pytest.mark.unsanitized
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_killed_at_every_step_of_writing(tmp_path):
    expected = run(tmp_path / "whole", epochs=2)[0]
    (moments,) = map(int, python(CRASHER, tmp_path / "parts", repr(expected)))
    assert moments > 15  # five files at least, each synced and renamed, its folder synced


def test_what_killed_writers_leave_is_cleared_away(tmp_path):
    """Not what may be in the middle of being written, and nothing of others."""
    names = [".transformer_c-dead.tmp", ".transformer_c-alive.tmp", "mine.tmp"]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    with open(tmp_path / ".transformer_c-alive.tmp") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        run(tmp_path, epochs=1)
    assert [(tmp_path / name).exists() for name in names] == [False, True, True]


# ---- refusals ----------------------------------------------------------------------------------------------------------------------


def test_no_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError):
        run(tmp_path, resume=tmp_path / "nowhere.safetensors")
    with pytest.raises(ValueError, match="checkpoint_dir"):
        run(None, resume="last")
    with pytest.raises(TypeError, match="bool"):
        run(tmp_path, resume=True)


@pytest.mark.parametrize("dtype", ["half", "bfloat16", "double"])
def test_other_dtypes(tmp_path, dtype):
    """The optimizer's float32 copies of half weights are a part of the run."""

    class Other(Small):
        def __init__(self):
            super().__init__()
            getattr(self, dtype)()

    def fit(folder, epochs):
        seed_everything()
        batches = [(np.random.RandomState(i).rand(4, 3), np.ones((4, 1))) for i in range(3)]
        model, trainer = Other(), tc.Trainer(epochs, progress=False, checkpoint_dir=folder)
        trainer.fit(model, batches, batches, resume="last")
        return bits(model, trainer)

    fit(tmp_path / "parts", 2)
    assert fit(tmp_path / "parts", 4) == fit(tmp_path / "whole", 4)


def test_a_folder_stands_for_the_checkpoint_in_it(tmp_path, whole):
    run(tmp_path / "first", epochs=2)
    found, trainer = run(tmp_path / "second", resume=tmp_path / "first")
    assert found == whole and trainer.best_model_path == str(tmp_path / "second/best.safetensors")
    assert tc.load(trainer.best_model_path).metadata["class"] == "Small"


@pytest.mark.parametrize("at", [".", "earlier_1", "checkpoints"])
def test_resuming_in_the_folder_of_another_run(tmp_path, at):
    """The other run's files are moved aside; the best weights are those of the resumed run. A file kept in `checkpoints` is no other run's."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    run(mine, epochs=2)
    run(other, epochs=3, model_class=lambda: Small(lr=0.5))
    before = {name: (other / name).read_bytes() for name in os.listdir(other)}
    if at != ".":
        os.renames(mine, other / at)
    resumed = mine if at == "." else other / at
    best = (resumed / "best.safetensors").read_bytes()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _, trainer = run(other, resume=resumed, epochs=2)
    if at == "checkpoints":
        assert not told and sorted(os.listdir(other)) == sorted([*before, at])
        return
    assert len(told) == 1 and "had an earlier run" in str(told[0].message) and told[0].filename == __file__
    aside = other / ("earlier_2" if at == "earlier_1" else "earlier_1")
    assert {name: (aside / name).read_bytes() for name in os.listdir(aside)} == before
    assert trainer.best_model_path == str(other / "best.safetensors") and Path(trainer.best_model_path).read_bytes() == best
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(best)
    with pytest.raises(tc.CheckpointError, match="no run to resume"):
        run(other, resume=broken)
    assert (other / "best.safetensors").exists()  # a refused call moves nothing


def test_another_monitor_is_refused(tmp_path):
    run(tmp_path, epochs=2)
    with pytest.raises(ValueError, match="by monitor='val_loss' and mode='min', not 'train_loss' and 'min': resume with .*mode='min'"):
        run(tmp_path, monitor="train_loss")
    with pytest.raises(ValueError, match="by monitor='val_loss' and mode='min', not 'val_loss' and 'max'"):
        run(tmp_path, mode="max")


def test_a_run_goes_on_with_more_data_from_the_end_of_an_epoch(tmp_path):
    train, val = small_data()
    for epochs, data in ((1, list(train)), (2, [*train, *train])):
        started = tc.Trainer(epochs, progress=False, checkpoint_dir=tmp_path)
        started.fit(Small(), data, val, resume="last")
    assert started.global_step == 3 * len(list(train))


def test_weights_alone_are_no_run(tmp_path):
    run(tmp_path, epochs=1)
    with pytest.raises(tc.CheckpointError, match=r"only weights: resume from the last\.safetensors"):
        run(tmp_path, resume=tmp_path / "best.safetensors")


DAMAGES = {
    "no optimizer": lambda h: h.pop("optimizer"),
    "no place": lambda h: h["trainer"].pop("epoch"),
    "a stream that is none": lambda h: h["streams"]["at_start"].update(default=np.zeros(3, np.uint8)),
    "a stream of another kind": lambda h: h["streams"]["at_start"].update({"train.dataset.rng": {"bit_generator": "none"}}),
    "Python's stream cut": lambda h: h["streams"]["at_start"]["python"].update(words=np.zeros(2, np.uint32)),
    "a stream of the moment": lambda h: h["streams"]["at_batch"].update(numpy={"bit_generator": "MT19937"}),
    "a stream that is no array": lambda h: h["streams"]["at_batch"].update(default="text"),
    "another trainer": lambda h: h.update(trainer=3),
}


def everything(model, train):
    """Weights and streams, as bytes and numbers that can be compared."""
    weights = [v.numpy().tobytes() for v in model.state_dict().values()]
    return weights, tc.random.default_generator.get_state(), random.getstate(), train.dataset.rng.bit_generator.state, model.noise.random()


def refused(folder, path, error, model_class=Small, message=None):
    """Going on from `path` is refused, and changes neither weights nor streams."""
    found = []
    for is_tried in (True, False):
        seed_everything(3)
        model, (train, val) = model_class(), small_data()
        if is_tried:
            with warnings.catch_warnings(), pytest.raises(error, match=message):
                warnings.simplefilter("ignore")
                tc.Trainer(2, checkpoint_dir=folder, progress=False).fit(model, train, val, resume=path)
            assert not model.training and model.trainer is None
        found.append(everything(model, train))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_state_changes_nothing(tmp_path, name):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, model_class=stopping(8, lambda: signal.raise_signal(signal.SIGINT)))
    saved = tc.load(tmp_path / "last.safetensors")
    DAMAGES[name](saved)
    tc.save(saved, tmp_path / "bad.safetensors")
    refused(tmp_path, tmp_path / "bad.safetensors", tc.CheckpointError)


def test_another_model_is_refused(tmp_path):
    class Wider(Small):
        def __init__(self):
            super().__init__()
            self.net = tc.nn.Sequential(tc.nn.Dropout(0.3), tc.nn.Linear(3, 2))

    run(tmp_path, epochs=1)
    refused(tmp_path, "last", (ValueError, RuntimeError), Wider, r"\(1, 3\)|\(2, 3\)")


def test_another_name_of_a_weight_is_refused(tmp_path):
    """Which only the model finds out, last of all."""
    run(tmp_path, epochs=1)
    saved = tc.load(tmp_path / "last.safetensors")
    saved["state_dict"]["net.1.w"] = saved["state_dict"].pop("net.1.weight")
    tc.save(saved, tmp_path / "bad.safetensors")
    refused(tmp_path, tmp_path / "bad.safetensors", (ValueError, RuntimeError), Small, "net.1.w")


def test_other_data_in_the_middle_of_an_epoch_is_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, model_class=stopping(3, _thread.interrupt_main))
    with pytest.raises(ValueError, match="6 batches; an epoch has 2 now"):
        run(tmp_path, limit_train_batches=2)


def test_fewer_data_than_were_trained_on_are_refused(tmp_path):
    class Unsized:
        def __init__(self, count):
            self.count = count

        def __iter__(self):
            return iter([(np.ones((2, 3), np.float32), np.ones((2, 1), np.float32))] * self.count)

    kind = stopping(3, _thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):
        tc.Trainer(1, checkpoint_dir=tmp_path, progress=False).fit(kind(), Unsized(4))
    with pytest.raises(tc.CheckpointError, match="after 3 batches of an epoch; train has 2"):
        tc.Trainer(1, checkpoint_dir=tmp_path, progress=False).fit(Small(), Unsized(2), resume="last")


def test_the_same_hyper_parameters_are_not_mentioned(tmp_path):
    class Own(Small):
        def __init__(self):
            super().__init__(lr=0.1)
            self.hparams.unknown = float("nan")

    run(tmp_path, epochs=1, model_class=Own)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(tmp_path, model_class=Own)


def test_other_random_streams_are_mentioned(tmp_path):
    """Those of the checkpoint that the run has not, and the other way round."""
    run(tmp_path, epochs=1)

    class Other(Small):
        def __init__(self):
            super().__init__()
            self.noise, self.sound = None, self.noise

        def training_step(self, batch, batch_idx):
            return self.loss(batch)

    with pytest.warns(UserWarning, match=r"same random streams \(model\.noise, model\.sound\)") as told:
        run(tmp_path, model_class=Other)
    assert told[0].filename == __file__


def test_another_number_of_schedules_is_refused(tmp_path):
    class Two(Small):
        def configure_optimizers(self):
            (optimizer,), schedules = super().configure_optimizers()
            return [optimizer], [*schedules, tc.optim.LambdaLR(optimizer, lambda step: 1.0)]

    run(tmp_path, epochs=1)
    refused(tmp_path, tmp_path / "last.safetensors", ValueError, Two, "the checkpoint has 1 schedulers, the model 2")


def test_other_hyper_parameters_are_mentioned(tmp_path):
    run(tmp_path, epochs=1)

    class Faster(Small):
        def __init__(self):
            super().__init__(lr=0.7)

    with pytest.warns(UserWarning, match=r"lr 0\.1 -> 0\.7") as told:
        run(tmp_path, model_class=Faster)
    assert told[0].filename == __file__
