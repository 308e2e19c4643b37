"""Callbacks and hooks of tc.Trainer: their order, ModelCheckpoint, EarlyStopping, LearningRateMonitor; schedules that watch a value."""

import contextlib
import inspect
import math
import os

import numpy as np
import pytest
import transformer_c as tc
from small_runs import Small, bits, seed_everything, small_data
from transformer_c._best import Best
from transformer_c.callbacks import Callback, EarlyStopping, LambdaCallback, LearningRateMonitor, ModelCheckpoint
from transformer_c.trainer import hooks as trainer_hooks
from transformer_c.trainer import steps
from transformer_c.training.hooks import ModuleHooks

pytestmark = pytest.mark.filterwarnings("ignore:.*there are no validation data")
HOOKS = sorted(name for name in vars(Callback) if name.startswith("on_") or name in ("setup", "teardown"))


def batches(*sizes):
    return [(np.ones((n, 3), np.float32), np.full((n, 1), i, np.float32)) for i, n in enumerate(sizes)]


def trainer(epochs=1, **options):
    return tc.Trainer(epochs, progress=False, **options)


class Scripted(Small):
    """Its val_loss is what `values` says, epoch by epoch."""

    values = (3.0, 2.0, 2.5, 1.0, 1.0, 4.0, 0.5, 6.0)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.values[self.trainer.current_epoch])


# ---- the order of hooks ------------------------------------------------------------------------------------------------------------


def recording(log):
    """A model and a callback whose hooks write their names to `log`, the callback's with "c." before it."""

    def noting(name):
        return lambda *arguments: log.append(name)

    def step(name, give=lambda self, batch: None):
        def run(self, batch, batch_idx):
            log.append(name)
            return give(self, batch)

        return run

    def around(name):
        def run(self, *arguments):
            log.append(name)
            return getattr(Small, name)(self, *arguments)

        return run

    steps = {
        "training_step": Small.loss,
        "validation_step": lambda s, b: s.log("val_loss", 1.0),
        "test_step": lambda s, b: 0,
        "predict_step": lambda s, b: 0,
    }
    own = (
        "prepare_data",
        "backward",
        "optimizer_zero_grad",
        "configure_gradient_clipping",
        "lr_scheduler_step",
        "optimizer_step",
        "configure_optimizers",
    )
    members = {name: noting(name) for name in HOOKS if hasattr(ModuleHooks, name)}
    members |= {name: step(name, give) for name, give in steps.items()} | {name: around(name) for name in own}
    callback = type("Recorder", (Callback,), {name: noting(f"c.{name}") for name in HOOKS})()
    return type("Recorded", (Small,), members)(), callback


def both(*names):
    return [f"{prefix}{name}" for name in names for prefix in ("c.", "")]


def test_hooks_are_called_in_lightnings_order(tmp_path):
    log = []
    model, callback = recording(log)
    trainer(callbacks=callback, checkpoint_dir=tmp_path).fit(model, batches(1, 1), batches(1))
    batch = [
        *both("on_train_batch_start"), "optimizer_step", "training_step", *both("on_before_zero_grad"), "optimizer_zero_grad",
        *both("on_before_backward"), "backward", *both("on_after_backward", "on_before_optimizer_step"), "configure_gradient_clipping",
        "lr_scheduler_step", *both("on_train_batch_end"),
    ]  # fmt: skip
    validation = [
        *both("on_validation_start", "on_validation_epoch_start", "on_validation_batch_start"), "validation_step",
        *both("on_validation_batch_end", "on_validation_epoch_end", "on_validation_end"),
    ]  # fmt: skip
    assert log == [
        "prepare_data", *both("setup", "on_fit_start"), "configure_optimizers", *both("on_train_start", "on_train_epoch_start"),
        *batch, *batch, *validation, *both("on_train_epoch_end"), "c.on_epoch_completed", *both("on_save_checkpoint"),
        *both("on_train_end", "on_fit_end", "teardown"),
    ]  # fmt: skip


def test_modules_and_callbacks_have_the_same_hooks():
    """With the same arguments, less trainer and model, and the same words; a few belong to one of them."""
    of_callbacks, of_modules = (trainer_hooks.names_of(base) for base in (Callback, ModuleHooks))
    assert of_callbacks ^ of_modules == {"on_epoch_completed", "on_exception"} and HOOKS == trainer_hooks.NAMES
    for name in of_callbacks & of_modules:
        one, other = (inspect.signature(getattr(base, name)).parameters for base in (Callback, ModuleHooks))
        assert [str(p) for p in one.values() if p.name not in ("trainer", "model")] == [str(p) for p in other.values()], name
        assert getattr(Callback, name).__doc__ == getattr(ModuleHooks, name).__doc__, name


@pytest.mark.parametrize("kind", ["validate", "test", "predict"])
def test_hooks_of_the_other_passes(kind):
    log = []
    model, callback = recording(log)
    part = "validation" if kind == "validate" else kind
    getattr(trainer(callbacks=[callback]), kind)(model, batches(1))
    assert log == [
        "prepare_data", *both("setup", f"on_{part}_start", f"on_{part}_epoch_start", f"on_{part}_batch_start"), f"{part}_step",
        *both(f"on_{part}_batch_end", f"on_{part}_epoch_end", f"on_{part}_end", "teardown"),
    ]  # fmt: skip


def test_hooks_of_several_batches_per_step():
    log = []
    model, callback = recording(log)
    trainer(callbacks=[callback], accumulate_grad_batches=2).fit(model, batches(1, 1, 1))
    counts = {
        name: log.count(name) for name in ("on_before_zero_grad", "on_after_backward", "on_before_optimizer_step", "on_train_batch_end")
    }
    assert counts == {"on_before_zero_grad": 2, "on_after_backward": 3, "on_before_optimizer_step": 2, "on_train_batch_end": 3}


def test_arguments_of_hooks():
    class Asking(Callback):
        def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
            assert outputs["loss"].numel() == 1 and len(batch[0]) == 2 and trainer.global_step == batch_idx + 1
            seen.append(type(model).__name__)

        def on_validation_batch_start(self, trainer, model, batch, batch_idx, dataloader_idx=0):
            assert not model.training and not tc.is_grad_enabled()
            seen.append(dataloader_idx)

        def on_validation_end(self, trainer, model):
            seen.append(sorted(trainer.callback_metrics))

        def on_exception(self, trainer, model, exception):
            seen.append(exception)

    class Giving(Small):
        def training_step(self, batch, batch_idx):
            return {"loss": super().training_step(batch, batch_idx)}

        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            super().validation_step(batch, batch_idx)

        def on_train_end(self):
            raise KeyError

        def configure_callbacks(self):
            return LambdaCallback(on_train_start=lambda trainer, model: seen.append("start"))

    seen = []
    val = tc.data.DataLoader(tc.data.TensorDataset(np.ones((2, 3), np.float32), np.ones((2, 1), np.float32)), 2)
    with pytest.raises(KeyError):
        trainer(callbacks=[Asking()]).fit(Giving(), batches(2, 2), [val, val])
    assert seen == ["start", "Giving", "Giving", 0, 1, ["train_loss", "val_loss/dataloader_idx_0", "val_loss/dataloader_idx_1"]]

    class Failing(Small):
        def training_step(self, batch, batch_idx):
            raise error

    error = RuntimeError("in a step")
    with pytest.raises(RuntimeError, match="in a step"):
        trainer(callbacks=[Asking()]).fit(Failing(), batches(2))
    assert seen[-1] is error
    with pytest.raises(TypeError, match="there is no hook 'on_train_begin'; there are on_after_backward"):
        LambdaCallback(on_train_begin=print)


def test_what_a_module_knows_of_its_run():
    class Asking(Small):
        def training_step(self, batch, batch_idx):
            assert self.device == batch[0].device == "cpu" and self.dtype == np.float32
            assert self.optimizers() is self.trainer.optimizers[0] and self.lr_schedulers().optimizer is self.optimizers()
            return super().training_step(batch, batch_idx)

    model = Asking()
    trainer().fit(model, batches(1))
    model.device = "mine"
    assert model.device == "mine" and model.lr_schedulers() is None and model.logger is None
    with pytest.raises(RuntimeError, match="no optimizer outside of fit"):
        model.optimizers()
    with pytest.raises(AttributeError, match="'devices'"):
        _ = model.devices


def test_what_a_trainer_says_of_its_stage():
    """In its hooks, and to a module that asks about its data."""

    def stage():
        return [name for name in ("training", "validating", "testing", "predicting", "evaluating") if getattr(run, name)]

    class Asking(Small):
        def configure_optimizers(self):
            assert run.train_dataloader is train and run.val_dataloaders is val and run.datamodule is data and run.max_steps == -1
            assert run.lightning_module is run.model is self and self.loggers == [] and not run.sanity_checking
            return super().configure_optimizers()

        def setup(self, stage):
            seen.append((stage, self.stage()))

        def training_step(self, batch, batch_idx):
            seen.append(("step", self.stage(), run.is_last_batch))
            return super().training_step(batch, batch_idx)

        def on_train_batch_end(self, outputs, batch, batch_idx):
            assert run.is_last_batch == (batch_idx == 1)

        def validation_step(self, batch, batch_idx):
            seen.append(("validation", self.stage()))
            super().validation_step(batch, batch_idx)

        def test_step(self, batch, batch_idx):
            seen.append(("test", self.stage()))

        def on_train_epoch_end(self):
            seen.append(("end", self.stage()))

        def predict_step(self, batch, batch_idx):
            seen.append(("predict", self.stage()))

    class Data(tc.LightningDataModule):
        def train_dataloader(self):
            return train

        def val_dataloader(self):
            return val

        test_dataloader = val_dataloader

    Asking.stage = staticmethod(stage)
    train, val = batches(2, 2), batches(1)
    seen, model, run, data = [], Asking(), trainer(), Data()
    run.fit(model, data)
    train_steps = [("step", ["training"], False), ("step", ["training"], True)]
    validation = ("validation", ["validating", "evaluating"])
    assert seen == [("fit", ["training"]), *train_steps, validation, ("end", ["training"])] and stage() == []
    seen.clear()
    run.test(model, data, verbose=False)
    run.validate(model, val, verbose=False)
    run.predict(model, val)
    test, alone = ["testing", "evaluating"], ["validating", "evaluating"]
    predict = ["predicting"]
    assert seen == [("test", test), ("test", test), ("validate", alone), validation, ("predict", predict), ("predict", predict)]
    assert run.datamodule is None and run.val_dataloaders is None and stage() == []
    run, model.to = trainer(device="cpu"), lambda **to: 1 / 0
    with pytest.raises(ZeroDivisionError):  # as where the device has no memory left
        run.fit(model, data)
    assert stage() == []


def test_the_last_batch_of_a_loader_without_a_length():
    class Rows(tc.data.IterableDataset):
        def __iter__(self):
            return iter([(np.ones(3, np.float32), np.ones(1, np.float32))] * 4)

    seen = []
    asking = LambdaCallback(on_train_batch_start=lambda trainer, *rest: seen.append(trainer.is_last_batch))
    with pytest.raises(RuntimeError, match="is_last_batch is not known: the training loader has no length"):
        trainer(callbacks=[asking]).fit(Small(), tc.data.DataLoader(Rows(), 2))
    trainer(callbacks=[asking], limit_train_batches=2).fit(Small(), tc.data.DataLoader(Rows(), 2))
    assert seen == [False, True]


def test_parts_of_lightnings_modules(capsys):
    model = Small()
    model.freeze()
    assert not model.training and not any(p.requires_grad for p in model.parameters())
    model.unfreeze()
    assert model.training and all(p.requires_grad for p in model.parameters())
    model.print("alone", end="!")
    run = trainer(callbacks=[LambdaCallback(on_train_start=lambda trainer, model: model.print("in a run"))])
    run.fit(model, batches(1))
    assert capsys.readouterr().out == "alone!in a run\n" and (run.num_devices, run.num_nodes) == (1, 1)


def test_a_data_module():
    class Data(tc.LightningDataModule):
        def __init__(self, size=4):
            super().__init__()
            self.save_hyperparameters()
            self.calls = []

        def prepare_data(self):
            self.calls.append("prepare")

        def setup(self, stage):
            self.calls.append(stage)

        def teardown(self, stage):
            self.calls.append(f"end of {stage}")

        def train_dataloader(self):
            return batches(self.hparams.size)

        val_dataloader = test_dataloader = predict_dataloader = train_dataloader

    data, model, run = Data(), Small(), trainer()
    run.fit(model, datamodule=data)
    run.validate(model, data, verbose=False)
    run.test(model, data, verbose=False)
    model.forward = model.net.forward
    assert run.predict(model, data)[0].shape == (4, 1)
    stages = ("fit", "validate", "test", "predict")
    assert data.calls == [call for stage in stages for call in ("prepare", stage, f"end of {stage}")]


# ---- ModelCheckpoint -----------------------------------------------------------------------------------------------------------------


def files(folder):
    return sorted(os.listdir(folder))


@pytest.mark.parametrize(
    ("options", "expected", "best"),
    [
        (dict(monitor="val_loss"), ["epoch=6-step=7"], "epoch=6-step=7"),
        (dict(monitor="val_loss", mode="max", filename="{epoch:02d}-{val_loss:.1f}"), ["epoch=07-val_loss=6.0"], "epoch=07-val_loss=6.0"),
        (dict(monitor="val_loss", save_top_k=3), ["epoch=3-step=4", "epoch=4-step=5", "epoch=6-step=7"], "epoch=6-step=7"),
        (dict(monitor="val_loss", save_top_k=0, save_last=True), ["last"], ""),
        (dict(filename="{epoch}", auto_insert_metric_name=False), ["7"], "7"),
        (dict(filename="{epoch}", save_top_k=-1, every_n_epochs=3), ["epoch=2", "epoch=5"], "epoch=5"),
        (dict(every_n_train_steps=5), ["epoch=4-step=5"], "epoch=4-step=5"),
        (dict(monitor="val_loss", filename="best"), ["best"], "best"),
        (dict(monitor="val_loss", filename="best", save_top_k=2), ["best", "best-v1"], "best"),
        (dict(monitor="val_loss", filename="{val_loss:.0f}", save_top_k=3, auto_insert_metric_name=False), ["0", "1", "1-v1"], "0"),
        (dict(monitor="val_loss", filename="all", save_top_k=-1), ["all", *(f"all-v{i}" for i in range(1, 8))], "all-v6"),
    ],
)
def test_files_of_model_checkpoint(tmp_path, options, expected, best):
    keep = ModelCheckpoint(tmp_path / "kept", **options)
    run = trainer(8, callbacks=[keep])
    run.fit(Scripted(), batches(2), batches(1))
    assert files(tmp_path / "kept") == sorted(f"{name}.safetensors" for name in expected)
    assert keep.best_model_path == (str(tmp_path / "kept" / f"{best}.safetensors") if best else "")
    assert run.checkpoint_callback is keep
    if best:
        epoch = int(tc.load(keep.best_model_path)["trainer"]["epoch"]) - 1
        Scripted.load_from_checkpoint(keep.best_model_path)
        assert keep.monitor is None or Scripted.values[epoch] == keep.best_model_score
        assert keep.best_model_score == ({"min": 0.5, "max": 6.0}[keep.mode] if keep.monitor else None)


def test_a_value_between_the_kept_ones_and_nan(tmp_path):
    class Some(Scripted):
        values = (math.nan, 3.0, 2.0, 2.5, math.nan, 2.25)

    trainer(6, callbacks=[ModelCheckpoint(tmp_path, "{epoch}", monitor="val_loss", mode="max", save_top_k=2)]).fit(
        Some(), batches(2), batches(1)
    )
    assert files(tmp_path) == ["epoch=1.safetensors", "epoch=3.safetensors"]


def test_model_checkpoint_in_the_trainers_folder(tmp_path):
    """As in the tutorial: the trainer watches what the callback watches; another run does not mix with it."""
    keep = ModelCheckpoint(monitor="val_loss", mode="max", save_weights_only=True)
    run = trainer(8, callbacks=[keep], default_root_dir=tmp_path)
    model = Scripted()
    run.fit(model, batches(2), batches(1))
    assert (run.monitor, run.mode, run.best_epoch) == ("val_loss", "max", 8)
    assert files(tmp_path / "checkpoints") == ["epoch=7-step=8.safetensors"]
    kept = tc.load(keep.best_model_path)
    assert set(kept) == set(model.state_dict())
    with pytest.warns(UserWarning, match="had an earlier run"):
        run.fit(model, batches(2), batches(1))
    assert files(tmp_path / "checkpoints") == files(tmp_path / "earlier_1" / "checkpoints") == ["epoch=7-step=8.safetensors"]
    other = trainer(8, callbacks=[ModelCheckpoint(tmp_path / "checkpoints", monitor="val_loss", mode="max")])
    other.fit(model, batches(2), batches(1))
    assert files(tmp_path / "checkpoints") == ["epoch=7-step=8-v1.safetensors", "epoch=7-step=8.safetensors"]


def test_files_of_unusual_names_are_dropped_too(tmp_path):
    trainer(8, callbacks=[ModelCheckpoint(tmp_path, "{val_loss:*>6}", monitor="val_loss")]).fit(Scripted(), batches(2), batches(1))
    assert files(tmp_path) == ["val_loss=***0.5.safetensors"]


def test_a_run_resumes_from_a_kept_checkpoint(tmp_path):
    def run(epochs, resume=None):
        seed_everything()
        keep = ModelCheckpoint(tmp_path / f"kept {epochs} {resume is None}", save_top_k=-1, filename="{step}", every_n_train_steps=4)
        started, model = trainer(epochs, callbacks=[keep, EarlyStopping("val_loss", patience=9)], generators=[]), Small()
        started.fit(model, *small_data(), resume=resume)
        return bits(model, started), keep

    whole, kept = run(3)
    assert list(kept.best_k_models.values()) == [-4.0, -8.0, -12.0, -16.0]
    middle = list(kept.best_k_models)[1]  # of step 8, in the second epoch
    again, _ = run(3, resume=middle)
    assert again[:3] == whole[:3]


def test_a_file_of_somebody_else_deletes_nothing(tmp_path):
    """The names of the best files come with the checkpoint that is resumed."""
    outside = [tmp_path / "thesis.safetensors", tmp_path / "new" / "notes.txt"]
    outside.append(tmp_path / "new" / "pretrained.safetensors")
    (tmp_path / "new").mkdir()
    for path in outside:
        path.write_text("mine")

    class Stranger(ModelCheckpoint):
        def state_dict(self):
            names = [*map(str, outside), str(tmp_path / "new" / ".." / "thesis.safetensors")]
            return {**super().state_dict(), "best_k_models": dict.fromkeys(names, 1e9)}

    Stranger.__name__ = "ModelCheckpoint"
    other = trainer(1, checkpoint_dir=tmp_path / "theirs", callbacks=[Stranger(monitor="train_loss", save_top_k=1)])
    other.fit(Small(), *small_data())
    keep = ModelCheckpoint(tmp_path / "new", monitor="train_loss", save_top_k=1)
    ours = trainer(3, checkpoint_dir=tmp_path / "ours", callbacks=[keep])
    ours.fit(Small(), *small_data(), resume=tmp_path / "theirs" / "last.safetensors")
    assert [path.read_text() for path in outside] == ["mine"] * 3 and len(files(tmp_path / "new")) == 3


@pytest.mark.parametrize(
    ("filename", "inserts", "name", "is_ours"),
    [
        (None, True, "epoch=1-step=20", True),
        (None, True, "epoch=1-step=20-v2", True),
        (None, True, "sub/epoch=1-step=20", False),
        (None, True, "pretrained", False),
        ("best", True, "best-v1", True),
        ("best", True, "best2", False),
        ("best", True, "best.safetensors", False),
        ("{epoch:03d}", False, "001", True),
        ("{epoch:03d}", False, "mine", False),
        ("e{epoch}-{val/loss:.2e}.x", True, "eepoch=1-val/loss=-1.00e-05.x", True),
        ("e{epoch}-{val/loss:.2e}.x", False, "e1-nan.x", True),
    ],
)
def test_files_that_model_checkpoint_takes_for_its_own(tmp_path, filename, inserts, name, is_ours):
    keep = ModelCheckpoint(tmp_path, filename, auto_insert_metric_name=inserts)
    assert keep._is_ours(str(tmp_path), str(tmp_path / f"{name}.safetensors")) == is_ours


def test_early_stopping_starts_anew_with_each_fit():
    stop = EarlyStopping("val_loss", patience=1)
    for _ in range(2):
        run = trainer(8, callbacks=[stop])
        run.fit(Scripted(), batches(2), batches(1))
        assert run.current_epoch == 3 and stop.best_score == 2.0


def test_a_stopped_run_keeps_the_states_of_its_callbacks(tmp_path):
    def run(fail_at=None):
        class Failing(Scripted):
            def on_train_epoch_start(self):
                if self.trainer.current_epoch == fail_at:
                    raise InterruptedError

        keep, stop = ModelCheckpoint(monitor="val_loss", save_top_k=2), EarlyStopping("val_loss", patience=2)
        started = trainer(8, callbacks=[keep, stop], checkpoint_dir=tmp_path)
        with contextlib.suppress(InterruptedError):
            started.fit(Failing(), batches(2), batches(1), resume="last")
        return started, keep, stop

    run(fail_at=4)
    started, keep, stop = run()
    assert started.current_epoch == 6 and stop.stopped_epoch == 5 and stop.wait_count == 2 and stop.best_score == 1.0
    assert sorted(keep.best_k_models.values()) == [1.0, 1.0] and keep.best_model_path.endswith("epoch=3-step=4.safetensors")
    started, *_ = run()
    assert started.current_epoch == 6  # stays stopped


def test_what_model_checkpoint_refuses(tmp_path):
    with pytest.raises(ValueError, match="needs a folder"):
        trainer(callbacks=ModelCheckpoint(monitor="val_loss")).fit(Scripted(), batches(1), batches(1))
    for filename, kind in (("{train_loss:d}", "train_loss is a float, which has no format 'd'"), ("{epoch:.2q}", "epoch is an int, which")):
        with pytest.raises(ValueError, match=kind):
            ModelCheckpoint(filename=filename)
    assert ModelCheckpoint(filename="{epoch:02d}-{step}-{val_loss:.2f}-{a/b:+}-{").filename.endswith("{")
    with pytest.raises(ValueError, match='filename="last" is the name of the file that save_last=True writes'):
        ModelCheckpoint(filename="last", save_last=True)
    with pytest.raises(ValueError, match="save_top_k=3 needs monitor="):
        ModelCheckpoint(save_top_k=3)
    with pytest.raises(ValueError, match="ModelCheckpoint monitors 'val_acc', which nothing logs; logged: train_loss, val_loss"):
        trainer(callbacks=ModelCheckpoint(tmp_path, monitor="val_acc")).fit(Scripted(), batches(1), batches(1))
    run = trainer(fast_dev_run=True, callbacks=ModelCheckpoint(tmp_path, monitor="val_loss"))
    run.fit(Scripted(), batches(1), batches(1))
    assert files(tmp_path) == []
    with pytest.raises(RuntimeError, match="no run to save"):
        trainer().save_checkpoint(tmp_path / "a")
    run.save_checkpoint(tmp_path / "end")
    assert tc.load(tmp_path / "end")["trainer"]["epoch"] == 1


# ---- EarlyStopping -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "epochs"),
    [
        (dict(patience=1), 3),
        (dict(patience=2), 6),
        (dict(patience=3), 8),
        (dict(patience=2, min_delta=1.2), 3),
        (dict(patience=2, min_delta=-1.2), 3),
        (dict(patience=0), 3),
        (dict(mode="max", patience=3), 4),
        (dict(stopping_threshold=1.5), 4),
        (dict(divergence_threshold=3.5), 6),
    ],
)
def test_early_stopping(options, epochs, capsys):
    stop = EarlyStopping("val_loss", verbose=True, **options)
    run = trainer(8, callbacks=[stop])
    run.fit(Scripted(), batches(2), batches(1))
    assert run.current_epoch == epochs and run.early_stopping_callback is stop
    stopped = epochs < 8
    assert (
        stop.stopped_epoch == (epochs - 1 if stopped else 0) and capsys.readouterr().out.startswith("EarlyStopping: val_loss is") == stopped
    )


def test_patience_is_an_early_stopping(tmp_path):
    """Which a run with more patience than before goes on from."""
    for patience, epochs in ((1, 3), (1, 3), (2, 6), (9, 8)):
        run = trainer(8, patience=patience, checkpoint_dir=tmp_path)
        run.fit(Scripted(), batches(2), batches(1), resume="last")
        assert run.current_epoch == epochs and run.early_stopping_callback.wait_count == (1 if epochs == 8 else patience)
    assert (run.best_model_score, run.best_epoch, run.early_stopping_callback.best_score) == (0.5, 7, 0.5)


@pytest.mark.parametrize(("mode", "sign"), [("min", 1), ("max", -1)])
def test_the_best_of_some_values(mode, sign):
    best = Best(mode, 0.5)
    seen = [best.see(sign * value, epoch) for epoch, value in enumerate([math.nan, 3.0, 2.5, 2.4, math.nan, -math.inf, -math.inf])]
    assert seen == [False, True, False, True, False, True, False] and (best.value, best.epoch, best.waited) == (sign * -math.inf, 5, 1)
    other = Best(mode)
    other.load_state_dict(best.state_dict())
    assert other.state_dict() == best.state_dict() and not other.see(math.nan) and other.waited == 2


def test_a_run_that_stopped_at_a_threshold_stays_stopped(tmp_path):
    """Its patience is not used up."""
    for _ in range(2):
        stop = EarlyStopping("val_loss", patience=5, stopping_threshold=1.5)
        run = trainer(8, callbacks=[stop], checkpoint_dir=tmp_path)
        run.fit(Scripted(), batches(2), batches(1), resume="last")
        assert run.current_epoch == 4


def test_early_stopping_at_a_value_that_is_not_finite():
    class Diverging(Scripted):
        values = (1.0, math.nan, 0.5, 0.4)

    for check, epochs in ((True, 2), (False, 4)):
        run = trainer(4, callbacks=[EarlyStopping("val_loss", patience=5, check_finite=check)])
        run.fit(Diverging(), batches(2), batches(1))
        assert run.current_epoch == epochs
    run = trainer(4, patience=5)
    run.fit(Diverging(), batches(2), batches(1))
    assert run.current_epoch == 4 and not run.early_stopping_callback.check_finite  # as the docstrings of both say


def test_early_stopping_without_its_value():
    with pytest.raises(ValueError, match="EarlyStopping monitors 'val_acc', which nothing logs; logged: train_loss, val_loss"):
        trainer(callbacks=EarlyStopping("val_acc")).fit(Scripted(), batches(1), batches(1))
    run = trainer(4, callbacks=EarlyStopping("val_acc", strict=False))
    run.fit(Scripted(), batches(1), batches(1))
    run = trainer(8, callbacks=EarlyStopping("val_loss", patience=1), check_val_every_n_epoch=2)  # sees 2.0, 1.0, 4.0
    run.fit(Scripted(), batches(1), batches(1))
    assert run.current_epoch == 6


# ---- learning rates ------------------------------------------------------------------------------------------------------------------


def test_learning_rates_are_logged():
    class Two(Small):
        def configure_optimizers(self):
            optimizer = tc.optim.SGD([{"params": [self.net[1].weight]}, {"params": [self.net[1].bias], "lr": 4.0}], lr=1.0, momentum=0.5)
            return [optimizer], [tc.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]

    run = trainer(3, callbacks=[LearningRateMonitor(log_momentum=True)])
    run.fit(Two(), batches(1, 1))
    assert run.history["lr-SGD/pg1"] == [1.0, 0.5, 0.25] and run.history["lr-SGD/pg2"] == [4.0, 2.0, 1.0]
    assert [v for _, v in run.step_history["lr-SGD/pg1"]] == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25] and run.history[
        "lr-SGD-momentum/pg1"
    ] == 3 * [0.5]
    run = trainer(1, callbacks=[LearningRateMonitor("step", log_weight_decay=True)])
    run.fit(Small(schedule="epoch"), batches(1))
    assert (
        "lr-Adam" not in run.history
        and run.step_history["lr-Adam"] == [(0, 0.0)]
        and run.step_history["lr-Adam-weight_decay"] == [(0, 0.0)]
    )
    with pytest.raises(ValueError, match="logging_interval"):
        LearningRateMonitor("batch")


def test_rates_of_several_optimizers_and_named_groups():
    class Several(Small):
        automatic_optimization = False

        def configure_optimizers(self):
            weight, bias = self.net[1].weight, self.net[1].bias
            groups = [{"params": [weight], "name": "weights"}, {"params": [bias], "lr": 4.0}]
            return [
                tc.optim.SGD([weight], lr=1.0),
                tc.optim.SGD(groups, lr=2.0),
                tc.optim.Adam([{"params": [bias], "name": "one"}], lr=3.0),
            ]

        def training_step(self, batch, batch_idx):
            pass

    run = trainer(1, callbacks=[LearningRateMonitor("epoch")])
    run.fit(Several(), batches(1))
    rates = {"lr-SGD": [1.0], "lr-SGD-1/weights": [2.0], "lr-SGD-1/pg2": [4.0], "lr-Adam/one": [3.0]}
    assert run.history == {"epoch": [1], "step": [0], **rates}


def test_hooks_and_steps_without_the_number_of_a_loader():
    """One loader has none."""
    seen = []

    class Model(Small):
        def on_validation_batch_start(self, batch, batch_idx):
            seen.append(("start", batch_idx))

        def validation_step(self, batch, batch_idx, dataloader_idx=None):
            seen.append(dataloader_idx)

        def on_validation_batch_end(self, outputs, batch, batch_idx):
            seen.append(("end", batch_idx))

    trainer(1).fit(Model(), batches(1), batches(1, 1))
    assert seen == [("start", 0), None, ("end", 0), ("start", 1), None, ("end", 1)]


def test_rates_of_an_optimizer_without_momentum_and_decay():
    class Plain(tc.optim.Optimizer):
        def step(self, closure=None):
            closure()

    class Model(Small):
        def configure_optimizers(self):
            return Plain(self.parameters(), {"lr": 0.5})

    run = trainer(1, callbacks=[LearningRateMonitor("epoch", log_momentum=True, log_weight_decay=True)])
    run.fit(Model(), batches(1))
    assert [run.history[f"lr-Plain{name}"] for name in ("", "-momentum", "-weight_decay")] == [[0.5], [0.0], [0.0]]


@pytest.mark.parametrize(("every", "expected"), [(1, [0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.2, 0.2]), (2, [0.8] * 6 + [0.4] * 2)])
def test_a_schedule_watches_a_value(tmp_path, every, expected):
    class Watching(Scripted):
        def configure_optimizers(self):
            optimizer = tc.optim.SGD(self.parameters(), lr=0.8)
            schedule = tc.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, mode="max" if every == 1 else "min")
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss", "interval": "epoch"}}

    values = {1: (1.0, 2.0, 1.5, 3.0, 4.0, 3.0, 5.0, 6.0), 2: Scripted.values}[every]
    Watching.values = values
    run = trainer(8, callbacks=LearningRateMonitor("epoch"), check_val_every_n_epoch=every, checkpoint_dir=tmp_path)
    run.fit(Watching(), batches(1), batches(1))
    assert run.history["lr-SGD"] == expected and "lr-SGD" not in run.step_history
    assert run.optimizers[0].param_groups[0]["lr"] == tc.load(run.last_model_path)["optimizer"]["param_groups"][0]["lr"]


def test_the_monitor_of_a_schedule_itself_counts():
    class Two(Small):
        def configure_optimizers(self):
            schedule = tc.optim.lr_scheduler.ReduceLROnPlateau(tc.optim.SGD(self.parameters(), lr=0.8))
            return {"optimizer": schedule.optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "own"}, "monitor": "of all"}

    assert [schedule.monitor for schedule in steps.configured(Two())[1]] == ["own"]


def test_a_schedule_without_its_value():
    class Watching(Scripted):
        def configure_optimizers(self):
            optimizer = tc.optim.SGD(self.parameters(), lr=0.8)
            schedule = tc.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            return [optimizer], [{"scheduler": schedule, "monitor": "val_acc"}]

    with pytest.raises(ValueError, match="a schedule monitors 'val_acc', which nothing logs; logged: train_loss, val_loss"):
        trainer().fit(Watching(), batches(1), batches(1))
