"""tc.Trainer: what it calls and when, means, history, files, stopping, Lightning's forms, bad input."""

import contextlib
import copy
import csv
import inspect
import io
import itertools
import math
import os
import re
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import transformer_c as tc
from small_runs import Small, bits, seed_everything, small_data
from transformer_c.trainer import averages
from transformer_c.trainer import history as history_of_runs

pytestmark = pytest.mark.filterwarnings("ignore:.*there are no validation data")


def batches(*sizes):
    """Batches of ones whose y is 0, 1, 2, ..."""
    return [(np.ones((n, 3), np.float32), np.full((n, 1), i, np.float32)) for i, n in enumerate(sizes)]


def trainer(epochs=1, **options):
    return tc.Trainer(epochs, progress=False, **options)


class Reporting(Small):
    """Logs y of the batch: known values."""

    def __init__(self, **how):
        super().__init__()
        self.how, self.calls = how, []

    def training_step(self, batch, batch_idx):
        self.calls.append(("train", batch_idx, self.training, tc.is_grad_enabled()))
        self.log("y", batch[1].mean(), **self.how)
        return self.loss(batch)

    def validation_step(self, batch, batch_idx):
        self.calls.append(("val", batch_idx, self.training, tc.is_grad_enabled()))
        self.log("val_loss", batch[1].mean(), **self.how)

    test_step = validation_step


# ---- calls, and means of logged values -----------------------------------------------------------------------------------------


def test_order_modes_and_gradients():
    model = Reporting()
    trainer(2).fit(model, batches(2, 2), batches(1))
    epoch = [("train", 0, True, True), ("train", 1, True, True), ("val", 0, False, False)]
    assert model.calls == 2 * epoch and not model.training and model.trainer is None


def test_means_are_weighted_by_batch_size():
    run = trainer()
    run.fit(Reporting(), batches(4, 2, 1), batches(1, 3))
    assert run.history == {"epoch": [1], "step": [3], "y": [4 / 7], "val_loss": [3 / 4]}
    assert run.callback_metrics["y"] == 4 / 7


def test_a_batch_size_of_ones_own():
    run = trainer()
    run.fit(Reporting(batch_size=1), batches(4, 2, 1))
    assert run.history["y"] == [1.0]


def test_on_step_and_on_epoch():
    run = trainer(2)
    run.fit(Reporting(on_step=True, on_epoch=False), batches(4, 2))
    assert run.step_history == {"y": [(0, 0.0), (1, 1.0), (2, 0.0), (3, 1.0)]} and "y" not in run.history
    run = trainer(2)
    run.fit(Reporting(on_step=True, on_epoch=True), batches(1, 1))
    assert run.history["y"] == [0.5, 0.5] and len(run.step_history["y"]) == 4
    run.fit(Reporting(), batches(1, 1))  # a new fit is a new history
    assert run.history["y"] == [0.5, 0.5] and not run.step_history


def test_names_of_values_of_steps_and_epochs():
    """Those of Lightning for what is logged for both; the history has one name."""

    class Both(Reporting):
        def configure_optimizers(self):
            optimizer = tc.optim.SGD(self.parameters(), lr=0.1)
            schedule = tc.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            return {"optimizer": optimizer, "lr_scheduler": schedule, "monitor": "val_loss_epoch"}

        def on_train_batch_end(self, outputs, batch, batch_idx):
            self.calls.append(self.trainer.callback_metrics["y_step"])

    stopping, model = tc.callbacks.EarlyStopping("y_epoch", patience=1), Both(on_step=True, on_epoch=True)
    run = trainer(5, callbacks=stopping, monitor="y_epoch")
    run.fit(model, batches(4, 2, 1), batches(1, 3))
    assert [v for v in model.calls if isinstance(v, float)] == [0.0, 1.0, 2.0] * 2
    means = {"y": 4 / 7, "y_epoch": 4 / 7, "val_loss": 3 / 4, "val_loss_epoch": 3 / 4}
    assert run.callback_metrics == {**means, "y_step": 2.0} and run.epoch_metrics == means
    assert (stopping.best_score, run.best_model_score, run.best_epoch) == (4 / 7, 4 / 7, 1)
    assert list(run.history) == ["epoch", "step", "y", "val_loss"]


def test_reductions_of_logged_values():
    class Reduced(Reporting):
        def training_step(self, batch, batch_idx):
            for reduction in ("mean", "sum", min, tc.max):
                name = getattr(reduction, "__name__", reduction)
                self.log(name, batch[1].mean() + 1, reduce_fx=reduction, rank_zero_only=True, sync_dist=True, enable_graph=False)
            return self.loss(batch)

        def validation_step(self, batch, batch_idx):
            self.log("largest", batch[1].mean(), reduce_fx="max")

    run = trainer(2)
    run.fit(Reduced(), batches(4, 2, 1), batches(1, 3, 1))
    values = {"mean": 11 / 7, "sum": 6.0, "min": 1.0, "max": 3.0, "largest": 2.0}
    assert run.history == {"epoch": [1, 2], "step": [3, 6], **{name: [value] * 2 for name, value in values.items()}}
    with pytest.raises(ValueError, match="reduce_fx must be 'mean' or 'sum' or 'min' or 'max', got 'median'"):
        Small().log("y", 1.0, reduce_fx=np.median)


def test_the_means_are_known_at_the_end_of_a_pass():
    """Before the hook that callbacks read them in; they were those of the last batch."""
    found = []
    reading = tc.callbacks.LambdaCallback(on_validation_epoch_end=lambda trainer, model: found.append(dict(trainer.callback_metrics)))
    run = trainer(callbacks=[reading])
    run.fit(Reporting(), batches(2), batches(1, 3))
    loaders = [tc.data.DataLoader(tc.data.TensorDataset(y, y), 2) for y in (np.arange(3.0), np.ones(4))]
    run.validate(Reporting(), loaders, verbose=False)
    assert found[0]["val_loss"] == 3 / 4
    assert {name for name in found[1] if "val" in name} == {"val_loss/dataloader_idx_0", "val_loss/dataloader_idx_1"}
    assert [found[1][f"val_loss/dataloader_idx_{i}"] for i in (0, 1)] == [1.0, 1.0]


def test_batches_of_other_forms():
    class Forms(Small):
        def training_step(self, batch):
            self.log("n", 1.0)
            assert isinstance(batch["inputs"]["x"], tc.Tensor) and batch["mask"].dtype == "bool" and isinstance(batch["mask"], tc.Tensor)
            assert isinstance(batch["i"], tc.Tensor) and batch["i"].dtype == "int64" and isinstance(batch["words"], np.ndarray)
            return {"loss": tc.F.mse_loss(self.net(batch["inputs"]["x"]), batch["y"])}

    run = trainer()
    others = {"note": "text", "mask": np.array([True]), "i": np.arange(2), "words": np.array(["a"])}
    data = [{**others, "inputs": {"x": np.ones((n, 3), np.float32)}, "y": tc.ones(n, 1)} for n in (2, 3)]
    run.fit(Forms(), data)
    assert run.global_step == 2
    assert [averages.batch_size_of(b) for b in (data[1]["inputs"], [], 3, np.float32(1), (["a"], tc.ones(7, 2)))] == [3, 1, 1, 1, 7]


def test_hooks_and_logging_in_them():
    class Hooked(Reporting):
        def on_train_epoch_start(self):
            self.calls.append("start")

        def on_validation_epoch_end(self):
            self.log("of_all", 5.0)

        def on_train_epoch_end(self):
            self.log_dict({"a": 1, "b": tc.tensor(2.0)})
            self.trainer.should_stop = self.trainer.current_epoch == 1

    run = trainer(5)
    model = Hooked()
    run.fit(model, batches(2), batches(2))
    assert run.history["of_all"] == [5.0, 5.0] and run.history["a"] == [1.0, 1.0] and run.history["b"] == [2.0, 2.0]
    assert run.current_epoch == 2 and model.calls.count("start") == 2


def test_an_epoch_without_validation_is_nan(tmp_path):
    run = trainer(3, check_val_every_n_epoch=2, checkpoint_dir=tmp_path)
    run.fit(Reporting(), batches(2), batches(1, 1))
    assert np.array_equal(run.history["val_loss"], [math.nan, 0.5, math.nan], equal_nan=True)
    assert run.best_epoch == 2


def test_frozen_parts_stay_in_eval_mode():
    """Validation puts every module back into the mode it was in."""

    class Partly(Reporting):
        def on_train_epoch_start(self):
            self.net.eval()

        def on_train_epoch_end(self):
            self.calls.append((self.training, self.net.training))

    model = Partly()
    trainer().fit(model, batches(1), batches(1))
    assert model.calls[-1] == (True, False)


# ---- optimizers and schedules ------------------------------------------------------------------------------------------------------


class Plain(Small):
    """SGD whose learning rate a schedule halves with every step it takes."""

    form = "optimizer"

    def configure_optimizers(self):
        optimizer = tc.optim.SGD(self.parameters(), lr=1.0)
        halving = tc.optim.LambdaLR(optimizer, lambda step: 0.5**step)
        self.optimizer = optimizer
        return {
            "optimizer": lambda: optimizer,
            "list": lambda: [optimizer],
            "two lists": lambda: ([optimizer], [halving]),
            "step": lambda: ([optimizer], [{"scheduler": halving, "interval": "step"}]),
            "dict": lambda: {"optimizer": optimizer, "lr_scheduler": halving},
            "dict of dict": lambda: {"optimizer": optimizer, "lr_scheduler": {"scheduler": halving, "interval": "step", "frequency": 2, "name": "lr"}},
            "monitor": lambda: {"optimizer": optimizer, "lr_scheduler": tc.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", 0.5, 0), "monitor": "y"},
            "two": lambda: [optimizer, optimizer],
            "none": lambda: None,
            "text": lambda: {"optimizer": "SGD"},
            "key": lambda: {"optimiser": optimizer},
            "plateau": lambda: {"optimizer": optimizer, "lr_scheduler": tc.optim.lr_scheduler.ReduceLROnPlateau(optimizer)},
            "plural": lambda: {"optimizer": optimizer, "lr_schedulers": halving},
            "short": lambda: [{"optimizer": optimizer, "scheduler": halving}],
            "colour": lambda: {"optimizer": optimizer, "colour": 1},
            "frequent": lambda: ([optimizer], [{"scheduler": halving, "freqency": 2}]),
            "without": lambda: {"lr_scheduler": halving},
            "unknown": lambda: {"optimizer": optimizer, "lr_scheduler": {"scheduler": halving, "every": 2}},
            "interval": lambda: ([optimizer], [{"scheduler": halving, "interval": "batch"}]),
            "frequency": lambda: ([optimizer], [{"scheduler": halving, "frequency": 0}]),
            "scheduler": lambda: ([optimizer], ["cosine"]),
        }[self.form]()  # fmt: skip


@pytest.mark.parametrize(
    ("form", "halvings"), [("optimizer", 0), ("list", 0), ("two lists", 2), ("step", 6), ("dict", 2), ("dict of dict", 3), ("monitor", 2)]
)
def test_forms_of_configure_optimizers(form, halvings):
    model = Plain()
    model.form = form
    model.on_train_epoch_end = lambda: model.log("y", -model.current_epoch)
    trainer(3 if form == "monitor" else 2, gradient_clip_val=1e-3).fit(model, batches(1, 1, 1))
    assert model.optimizer.param_groups[0]["lr"] == 0.5**halvings


@pytest.mark.parametrize(
    ("form", "error", "message"),
    [
        ("two", ValueError, "2 optimizers"),
        ("none", TypeError, "NoneType"),
        ("text", TypeError, "str"),
        ("key", ValueError, "gave a dict with the key 'optimiser'; did you mean 'optimizer'"),
        ("plural", ValueError, "the key 'lr_schedulers'; did you mean 'lr_scheduler'"),
        ("short", ValueError, "the key 'scheduler'; did you mean 'lr_scheduler'"),
        ("colour", ValueError, "the key 'colour'; expected 'optimizer', 'lr_scheduler', 'monitor'"),
        ("frequent", ValueError, "gave a schedule with the key 'freqency'; did you mean 'frequency'"),
        ("without", ValueError, "gave a dict without 'optimizer', with 'lr_scheduler'"),
        ("plateau", ValueError, "ReduceLROnPlateau without the value to watch"),
        ("unknown", ValueError, "every"),
        ("interval", ValueError, "'batch'"),
        ("frequency", ValueError, "frequency 0"),
        ("scheduler", TypeError, "no step"),
    ],
)
def test_forms_that_are_refused(form, error, message):
    model = Plain()
    model.form = form
    with pytest.raises(error, match=message):
        trainer().fit(model, batches(1))
    assert not model.training


def test_the_tutorials_override_steps_its_schedule():
    """Iteration by iteration, as a hand-written loop would: the same bits."""

    def model_and_data():
        tc.manual_seed(1)
        model = tc.tutorials.uva.ReversePredictor(5, 8, 5, 1, 1, lr=1e-2, warmup=2, max_iters=8, dropout=0.2)
        data = tc.data.DataLoader(tc.datasets.ReverseDataset(5, 4, 32), batch_size=8, shuffle=True)
        return model, data

    model, data = model_and_data()
    trainer(2, gradient_clip_val=0.5).fit(model, data)
    assert model.lr_scheduler.last_epoch == 8
    by_hand, data = model_and_data()
    optimizer = by_hand.configure_optimizers()
    for _ in range(2):
        for index, batch in enumerate(data):
            optimizer.zero_grad()
            by_hand.training_step(batch, index).backward()
            tc.optim.clip_grad_norm_(by_hand.parameters(), 0.5)
            by_hand.optimizer_step(optimizer)
    for a, b in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()


def test_other_overrides_of_optimizer_step():
    class Lightnings(Plain):
        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
            assert (epoch, batch_idx) == (self.current_epoch, self.global_step) == (0, self.trainer.global_step)
            optimizer.step(closure=optimizer_closure)

    class Ours(Plain):
        def optimizer_step(self, optimizer):
            optimizer.step()

    class Forgetful(Plain):
        def optimizer_step(self, *arguments):
            arguments[2].step()

    found = []
    for kind in (Plain, Lightnings, Ours):
        tc.manual_seed(0)
        model = kind()
        run = trainer(gradient_clip_val=0.1)
        run.fit(model, batches(2, 2))
        found.append(bits(model, run))
    assert found[0] == found[1] == found[2]
    with pytest.raises(RuntimeError, match="never called the closure"):
        trainer().fit(Forgetful(), batches(1))


@pytest.mark.parametrize("algorithm", ["norm", "value"])
def test_gradients_are_clipped(algorithm):
    class Looking(Plain):
        def optimizer_step(self, *arguments):
            super().optimizer_step(*arguments)
            flat = np.concatenate([p.grad.numpy().ravel() for p in self.parameters()])
            sizes.append(np.linalg.norm(flat) if algorithm == "norm" else abs(flat).max())

    sizes = []
    trainer(gradient_clip_val=0.01, gradient_clip_algorithm=algorithm).fit(Looking(), [(np.ones((1, 3)) * 9, np.full((1, 1), 99.0))] * 2)
    assert sizes == pytest.approx([0.01, 0.01], rel=1e-3)


class Skipping(Plain):
    """Trains on the batches whose numbers are in `trained`."""

    def __init__(self, trained):
        super().__init__()
        self.trained = trained

    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx) if batch_idx in self.trained else None


def test_a_batch_may_be_skipped():
    found = []
    for given in (batches(2), batches(2, 1)):
        seed_everything()
        model = Skipping([0])
        trainer().fit(model, given)
        found.append([p.numpy() for p in model.parameters()])
    assert all((a == b).all() for a, b in zip(*found, strict=True))


def test_a_step_that_never_returns_its_loss():
    run = trainer(2)
    with pytest.raises(ValueError, match=r"Skipping.training_step\(\) returned None for every batch of epoch 1, .*: return loss"):
        run.fit(Skipping([]), batches(2), batches(1))
    assert run.current_epoch == 0


# ---- files, best and last, stopping ------------------------------------------------------------------------------------------------


class Scripted(Small):
    """Its val_loss is what `values` says, epoch by epoch."""

    values = (3.0, 2.0, math.nan, 1.0, 1.0, 4.0, 5.0, 6.0)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.values[self.trainer.current_epoch])

    def on_train_epoch_end(self):
        states.append(self.net[1].bias.item())


states: list[float] = []


@pytest.mark.parametrize(("mode", "epoch", "score"), [("min", 4, 1.0), ("max", 8, 6.0)])
def test_best_and_last(tmp_path, mode, epoch, score):
    states.clear()
    run = trainer(8, mode=mode, checkpoint_dir=tmp_path / "new" / "folder")
    model = Scripted()
    run.fit(model, batches(2, 2), batches(1))
    assert (run.best_epoch, run.best_model_score) == (epoch, score)
    assert sorted(os.listdir(tmp_path / "new" / "folder")) == ["best.safetensors", "history.csv", "last.safetensors"]
    best, last = Scripted.load_from_checkpoint(run.best_model_path), Scripted.load_from_checkpoint(run.last_model_path)
    assert best.net[1].bias.item() == states[epoch - 1] and last.net[1].bias.item() == states[-1] == model.net[1].bias.item()
    assert not best.training and best.hparams.lr == 0.1
    plain = Small()
    plain.load_state_dict(tc.load(run.best_model_path))


def test_nan_is_never_the_best():
    class Late(Scripted):
        values = (math.nan, 2.0, 3.0, math.nan)

    run = trainer(4)
    run.fit(Late(), batches(1), batches(1))
    assert (run.best_epoch, run.best_model_score) == (2, 2.0)


def test_a_schedule_that_is_kept_and_returned_is_saved_once(tmp_path):
    class Keeping(Small):
        def configure_optimizers(self):
            (optimizer,), (schedule,) = super().configure_optimizers()
            self.schedulers = [schedule["scheduler"], tc.optim.LambdaLR(optimizer, lambda step: 1.0)]
            return [optimizer], [schedule]

    trainer(checkpoint_dir=tmp_path).fit(Keeping(), batches(1))
    assert len(tc.load(tmp_path / "last.safetensors")["schedulers"]) == 2


def test_history_csv(tmp_path):
    run = trainer(3, checkpoint_dir=tmp_path)
    run.fit(Scripted(), batches(2, 2), batches(1))
    with open(tmp_path / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [r["epoch"] for r in rows] == ["1", "2", "3"] and [r["step"] for r in rows] == ["2", "4", "6"]
    assert [float(r["train_loss"]) for r in rows] == run.history["train_loss"]
    assert math.isnan(float(rows[2]["val_loss"]))


def test_an_epoch_costs_no_more_after_many(tmp_path):
    """Of the history: appending makes no list as long as it, the checkpoint's text does not grow with it."""
    history = {"epoch": [*range(1, 100_001)], "val_loss": [0.5] * 100_000}
    history_of_runs.append_row(history, {"epoch": 100_001, "val_loss": 0.25})  # Python makes the lists room for more
    tracemalloc.start()
    try:
        history_of_runs.append_row(history, {"epoch": 100_002, "val_loss": 0.125})
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
    texts = []
    for epochs in (2, 8):
        trainer(epochs, checkpoint_dir=tmp_path).fit(Scripted(), batches(1), batches(1))
        texts.append(tc.load(tmp_path / "last.safetensors").metadata["tree"])
    assert abs(len(texts[1]) - len(texts[0])) < 100


@pytest.mark.parametrize(
    ("patience", "min_delta", "epochs"), [(1, 0.0, 3), (2, 0.0, 6), (3, 0.0, 7), (2, 1.5, 3), (3, 1.5, 7), (3, 2.5, 4), (9, 0.0, 8)]
)
def test_early_stopping(patience, min_delta, epochs):
    """3, 2, nan, 1, 1, 4, ...: by a margin of 1.5 only 3 and 1 are improvements."""
    run = trainer(8, patience=patience, min_delta=min_delta)
    run.fit(Scripted(), batches(1), batches(1))
    assert run.current_epoch == epochs and run.best_model_path == ""


def test_nothing_is_written_unasked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = trainer(2)
    run.fit(Small(), batches(1), batches(1))
    run.test(Small(), batches(1), verbose=False)
    assert os.listdir(tmp_path) == [] and run.last_model_path == ""


def test_without_validation_no_epoch_is_the_best(tmp_path):
    run = trainer(checkpoint_dir=tmp_path)
    run.fit(Small(), batches(1))
    assert run.best_model_path == "" and run.best_epoch is None and run.last_model_path == str(tmp_path / "last.safetensors")
    run = trainer(checkpoint_dir=tmp_path, monitor="train_loss")
    run.fit(Small(), batches(1))
    assert run.best_epoch == 1


def test_repr_names_the_options():
    assert repr(trainer(3, gradient_clip_val=2, mode="max")) == (
        "Trainer(max_epochs=3, gradient_clip_val=2, monitor='val_loss', mode='max', checkpoint_dir=None, device=None)"
    )


def test_the_seed_option():
    found = []
    for draws in (0, 3):
        tc.manual_seed(0)
        model = Small()
        tc.rand(1 + draws)
        run = trainer(2, seed=5)
        data = tc.data.DataLoader(
            tc.data.TensorDataset(np.ones((8, 3), np.float32), np.arange(8, dtype=np.float32)[:, None]), 2, shuffle=True
        )
        run.fit(model, data)
        found.append(bits(model, run))
    assert found[0] == found[1]


# ---- where the data come from ----------------------------------------------------------------------------------------------------


def test_an_object_with_loaders():
    class Data:
        def train_dataloader(self):
            return batches(1, 1)

        def val_dataloader(self):
            return batches(1)

        def test_dataloader(self):
            return batches(1)

    class Own(Reporting, Data):
        pass

    for arguments in ((Reporting(), Data()), (Own(),)):
        run = trainer()
        run.fit(*arguments)
        assert list(run.history) == ["epoch", "step", "y", "val_loss"]
        assert run.test(*arguments, verbose=False) == run.validate(*arguments, verbose=False) == [{"val_loss": 0.0}]


def test_test_gives_a_dict_for_each_loader(capsys):
    model = Small().train()
    loader = tc.data.DataLoader(tc.data.TensorDataset(np.ones((5, 3), np.float32), np.zeros((5, 1), np.float32)), 2)
    (result,) = trainer().test(model, dataloaders=loader)
    x, y = np.ones((5, 3), np.float32), np.zeros((5, 1), np.float32)
    assert result == {"test_loss": pytest.approx(tc.F.mse_loss(model.net(x), y).item(), rel=1e-6)} and not model.training
    assert "test_loss" in capsys.readouterr().out
    assert trainer().test(model, [loader, loader], verbose=False) == [result, result]
    assert capsys.readouterr().out == ""


def test_several_validation_loaders():
    class Two(Reporting):
        options: ClassVar[dict] = {}

        def validation_step(self, batch, batch_idx, dataloader_idx):
            self.log("val_loss", dataloader_idx, **self.options)

    loader = tc.data.DataLoader(tc.data.TensorDataset(np.ones((2, 3))), 2)
    run = trainer(monitor="val_loss/dataloader_idx_1")
    run.fit(Two(), batches(1), [loader, loader])
    assert run.history["val_loss/dataloader_idx_0"] == [0.0] and run.best_model_score == 1.0
    Two.options = {"on_step": True, "on_epoch": True}
    run = trainer(monitor="val_loss_epoch/dataloader_idx_1")
    run.fit(Two(), batches(1), [loader, loader])
    assert run.best_model_score == 1.0 and "val_loss_epoch/dataloader_idx_1" not in run.history


def test_names_of_several_loaders_of_ones_own():
    class Named(Reporting):
        names = ("val_loss", "other")

        def validation_step(self, batch, batch_idx, dataloader_idx):
            self.log(self.names[dataloader_idx], dataloader_idx, add_dataloader_idx=False)

    loader, model = tc.data.DataLoader(tc.data.TensorDataset(np.ones((2, 3))), 2), Named()
    run = trainer()
    run.fit(model, batches(1), [loader, loader])
    assert run.history == {"epoch": [1], "step": [1], "y": [0.0], "val_loss": [0.0], "other": [1.0]}
    model.names = ("val_loss", "val_loss")
    with pytest.raises(ValueError, match="add_dataloader_idx=False\\) has values of several loaders"):
        run.validate(model, [loader, loader], verbose=False)


@pytest.mark.parametrize(("limit", "count"), [(2, 2), (9, 4), (0.5, 2), (0.1, 1), (1.0, 4)])
def test_limits(limit, count):
    model = Reporting()
    trainer(limit_train_batches=limit, limit_val_batches=limit, limit_test_batches=limit).fit(
        model, batches(1, 1, 1, 1), batches(1, 1, 1, 1)
    )
    assert [c[0] for c in model.calls] == ["train"] * count + ["val"] * count


def test_validation_left_out(tmp_path):
    model, run = Reporting(), trainer(limit_val_batches=0, checkpoint_dir=tmp_path)
    run.fit(model, batches(1), batches(1))
    assert [c[0] for c in model.calls] == ["train"] and run.best_model_path == ""


def test_fast_dev_run(tmp_path):
    model = Reporting()
    run = tc.Trainer(50, fast_dev_run=True, checkpoint_dir=tmp_path / "no", progress=False, patience=3)
    run.fit(model, batches(1, 1), batches(1, 1))
    assert [c[0] for c in model.calls] == ["train", "val"] and not (tmp_path / "no").exists()


# ---- bars -----------------------------------------------------------------------------------------------------------------------------


def test_bars(capsys):
    tc.Trainer(2).fit(Reporting(prog_bar=True), batches(1, 1, 1), batches(1))
    shown = capsys.readouterr()
    assert (
        "epoch 2/2" in shown.err and "3/3" in shown.err and "y=2.0000" in shown.err and "val_loss=0.0000" in shown.err and shown.out == ""
    )
    trainer(2).fit(Reporting(prog_bar=True), batches(1), batches(1))
    assert capsys.readouterr().err == ""


def test_a_bar_ends_with_the_means_of_a_validation(capsys):
    """Of what its steps put there, and of what is monitored."""

    class Model(Reporting):
        def validation_step(self, batch, batch_idx):
            self.log("own", float(batch_idx), prog_bar=True)
            self.log("hidden", 7.0)
            self.log("val_loss", 3.0)

    tc.Trainer(1).fit(Model(), batches(1), batches(1, 1, 1, 1))
    last = capsys.readouterr().err.split("\r")[-1]
    assert "own=1.5000" in last and "val_loss=3.0000" in last and "hidden" not in last


def test_values_behind_a_bar_are_renewed_ten_times_a_second(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(tc.trainer.progress.time, "monotonic", lambda: now[0])
    with tc.trainer.progress.Bar(True, "epoch 1/1", 3) as bar:
        assert bar.due()
        bar.show({"loss": 1.25})
        assert not bar.due()
        now[0] += 0.2
        assert bar.due()
    assert bar._bar.disable and capsys.readouterr().err.endswith("\n")  # closed
    with tc.trainer.progress.Bar(False, "epoch 1/1", 3) as bar:
        assert not bar.due()


def test_a_bar_moves_where_it_is_watched(monkeypatch):
    """In a notebook, whose standard error is no terminal, and not in a log."""
    for module, most in (("ipykernel.iostream", 0.1), ("somewhere", 30.0)):
        stream = type("OutStream", (io.StringIO,), {"__module__": module})()
        monkeypatch.setattr(sys, "stderr", stream)
        with tc.trainer.progress.Bar(True, "epoch 1/1", 3) as bar:
            assert bar._bar.mininterval == most
        with tc.trainer.progress.Bar(True, "validation", 3, leave=False) as bar:
            assert bar._bar.disable


def test_the_table_of_a_test(capsys):
    tc.trainer.progress.print_table([{"test_loss": 0.125, "acc": 1e-5}], "test")
    assert capsys.readouterr().out == "test            value\n---------  ----------\ntest_loss      0.1250\nacc             1e-05\n"
    tc.trainer.progress.print_table([{"a": 1.0}, {"a": 2.0}], "validation")
    assert re.findall(r"^validation \d", capsys.readouterr().out, re.M) == ["validation 0", "validation 1"]


def test_a_process_without_standard_error(monkeypatch):
    """Its sys.stderr is None: `python script 2>&-`, pythonw, some services."""
    monkeypatch.setattr(sys, "stderr", None)
    shown = tc.Trainer(2)
    shown.fit(Reporting(prog_bar=True), batches(1, 1), batches(1))
    assert shown.global_step == 4


def test_optimizer_step_without_an_optimizer():
    with pytest.raises(TypeError, match="needs the optimizer among its arguments"):
        Reporting().optimizer_step(0, 1, lambda: None)


# ---- bad input --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(max_epochs=0), ValueError, "max_epochs must be at least 1, got 0"),
        (dict(max_epochs=1.5), TypeError, "max_epochs must be an int, got 1.5"),
        (dict(max_epochs=True), TypeError, "bool"),
        (dict(gradient_clip_val=-1), ValueError, "gradient_clip_val"),
        (dict(gradient_clip_val=math.nan), ValueError, "gradient_clip_val"),
        (dict(mode="maximum"), ValueError, "'min' or 'max', got 'maximum'"),
        (dict(monitor=None), TypeError, "monitor"),
        (dict(patience=0), ValueError, "patience"),
        (dict(min_delta=-1), ValueError, "min_delta"),
        (dict(limit_train_batches=1.5), ValueError, "limit_train_batches"),
        (dict(limit_val_batches=-1), ValueError, "limit_val_batches"),
        (dict(limit_test_batches="all"), TypeError, "limit_test_batches"),
        (dict(checkpoint_every_n_steps=0), ValueError, "checkpoint_every_n_steps"),
        (dict(check_val_every_n_epoch=0), ValueError, "check_val_every_n_epoch"),
        (dict(checkpoint_dir=3), TypeError, "int"),
        (dict(generators=[np.random.default_rng(0), 3]), TypeError, "generators\\[1\\] is of type int; expected a generator: tc.Generator"),
        (dict(accelerator="tpu"), ValueError, 'accelerator must be "auto", "cpu" or "gpu", got \'tpu\''),
        (dict(gpus=4), ValueError, "gpus=4 asks for 4 devices; a run uses one"),
        (dict(devices=[0, 1], accelerator="gpu"), ValueError, "asks for 2 devices"),
        (dict(devices=2), ValueError, 'one, or several processes: strategy="ddp", started with: mpiexec -n 2 python script.py'),
        (dict(devices=2, accelerator="cpu", strategy="ddp"), ValueError, "2 processes, and there is 1: start it with: mpiexec -n 2 python"),
        (dict(use_distributed_sampler=False), TypeError, "is taken as it is, any other is shared out"),
        (dict(sync_batchnorm=True), TypeError, "each rank's batch norms use its own rows"),
        (dict(default_root_dir="a", checkpoint_dir="b"), TypeError, "two names of one option"),
        (dict(max_steps=0), ValueError, "max_steps must be at least 1, got 0"),
        (dict(max_epochs=-1), ValueError, "max_epochs must be at least 1, got -1"),
        (dict(val_check_interval=0.5), TypeError, "check_val_every_n_epoch="),
        (dict(callbacks=[3]), TypeError, "callbacks has a int"),
        (dict(callbacks=[tc.callbacks.ModelCheckpoint]), TypeError, r"pass an instance: ModelCheckpoint\("),
        (dict(callbacks=tc.callbacks.EarlyStopping), TypeError, r"callbacks has a type; .*pass an instance: EarlyStopping\("),
        (dict(callbacks=3), TypeError, "callbacks has a int"),
        (dict(logger="csv"), TypeError, "logger is of type str"),
        (dict(accumulate_grad_batches=0), ValueError, "accumulate_grad_batches must be at least 1"),
        (dict(max_epoch=3), TypeError, "did you mean 'max_epochs'"),
        (dict(epochs=3), TypeError, "no option 'epochs': max_epochs= is"),
        (dict(colour="red"), TypeError, "it has max_epochs, gradient_clip_val, monitor"),
    ],
)
def test_options_that_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        tc.Trainer(**{"max_epochs": 1, **options})


def test_all_wrong_options_are_named_at_once():
    with pytest.raises(
        TypeError, match=r"3 arguments are wrong:\n  max_epochs must be .*\n  mode must be .*\n  patience must be an int, got 1.5"
    ):
        tc.Trainer(0, mode="best", patience=1.5)


class Returning(Small):
    value = None

    def training_step(self, batch, batch_idx):
        return self.value


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (1.0, TypeError, r"gave a float; expected the loss, a Tensor: .* not loss\.item\(\)"),
        (tc.functional.mse_loss(np.ones(2), np.zeros(2)), TypeError, r"gave an ndarray; .* Use the Tensors of the batch, not x\.numpy\(\)"),
        (np.float32(1), TypeError, "gave a float32; expected the loss, a Tensor"),
        ("loss", TypeError, "gave str; expected the loss"),
        (tc.ones(3, requires_grad=True), ValueError, r"shape \(3,\)"),
        ({"los": 1}, ValueError, "los"),
        (tc.ones(1), RuntimeError, "grad"),
    ],
)
def test_losses_that_are_refused(value, error, message):
    model = Returning()
    model.value = value
    with pytest.raises(error, match=message):
        trainer().fit(model, batches(1))
    assert model.trainer is None and not model.training


def one_shot():
    yield from batches(1)


class Unsized:
    """Batches without a length, `count` of them."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter(batches(*[2] * self.count))


@pytest.mark.parametrize(
    ("train", "error", "message"),
    [
        (None, ValueError, "pass train="),
        (3, TypeError, "int"),
        ((np.ones((4, 3)), np.ones(5)), ValueError, r"train has arrays of shapes \(4, 3\), \(5,\): their first axes"),
        ((np.ones((0, 3)), np.ones(0)), ValueError, "train has no rows"),
        ((np.ones((2, 3)), np.array(["a", "b"])), TypeError, r"train\[1\] is an array of dtype <U1; expected numbers"),
        ((np.ones((2, 3)), np.array(["a", 1], object)), TypeError, r"train\[1\] has values that are not numbers"),
        (one_shot(), TypeError, "only once"),
        ([], ValueError, "no batch"),
        (Unsized(0), ValueError, "train is empty"),
        (tc.data.DataLoader(tc.data.TensorDataset(np.ones(3)), 4, drop_last=True), ValueError, "no batch"),
    ],
)
def test_data_that_are_refused(train, error, message):
    with pytest.raises(error, match=message):
        trainer().fit(Small(), train)


def test_validation_data_without_a_batch():
    nothing = tc.data.DataLoader(tc.data.TensorDataset(np.ones((1, 3)), np.ones((1, 1))), batch_size=2, drop_last=True)
    with pytest.raises(ValueError, match="no batch to validate on: loader 1 of val is empty"):
        trainer(1).fit(Reporting(), batches(1), [tc.data.DataLoader(nothing.dataset), nothing])


def test_a_folder_as_bytes(tmp_path):
    trainer(1, checkpoint_dir=os.fsencode(tmp_path)).fit(Reporting(), batches(1), batches(1))
    assert (tmp_path / "last.safetensors").exists()


def test_models_that_are_refused():
    with pytest.raises(TypeError, match="expected a tc.TrainingModule"):
        trainer().fit(tc.nn.Linear(1, 1), batches(1))
    with pytest.raises(NotImplementedError, match="configure_optimizers"):
        trainer().fit(tc.TrainingModule(), batches(1))
    with pytest.raises(ValueError, match="dataloaders="):
        trainer().test(Small())


def test_lightnings_words():
    run = trainer()
    run.fit(Small(), train_dataloaders=batches(1), val_dataloaders=batches(1), ckpt_path=None)
    assert set(run.history) == {"epoch", "step", "train_loss", "val_loss"}
    assert run.test(Small(), test_dataloaders=batches(1), verbose=False)[0].keys() == {"test_loss"}
    with pytest.raises(TypeError, match=r"fit\(\) got 'train_dataloader' and 'train', which are two names"):
        trainer().fit(Small(), train=batches(1), train_dataloader=batches(1))
    names = tc.trainer.names
    assert not set(names.TRAINER) & {*inspect.signature(tc.Trainer).parameters, *tc.trainer.lightning.KNOWN}
    for same, function in ((names.FIT, tc.Trainer.fit), (names.TEST, tc.Trainer.test)):
        assert not set(same) & set(inspect.signature(function).parameters) and set(same.values()) <= set(
            inspect.signature(function).parameters
        )
    with pytest.raises(AttributeError, match="'lr_scheduler_configs': what configure_optimizers"):
        _ = trainer().lr_scheduler_configs
    with pytest.raises(AttributeError, match="no attribute 'colour'$"):
        _ = trainer().colour
    assert not any(hasattr(trainer(), name) for name in tc.trainer.names.ATTRIBUTES)
    copy.deepcopy(trainer())


def test_tests_with_weights_of_a_file(tmp_path):
    class Weighted(Scripted):
        def test_step(self, batch, batch_idx):
            self.log("w", self.net[1].weight.abs().sum())

        predict_step = validation_step = test_step

    def weight(path):
        return float(abs(tc.load(path).get("state_dict", tc.load(path))["net.1.weight"]).sum())

    class Best(Weighted):
        validation_step = Scripted.validation_step

    model, run, data = Best(), trainer(8, checkpoint_dir=tmp_path), batches(1)
    run.fit(model, batches(1, 1), data)
    best, last = weight(tmp_path / "best.safetensors"), weight(tmp_path / "last.safetensors")
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "any.safetensors"
    tc.save(Best(), other)
    keep = tc.callbacks.ModelCheckpoint(tmp_path / "other", monitor="val_loss", mode="max")
    for call, expected in (
        (lambda: run.test(model, data, verbose=False), last),
        (lambda: run.test(model, data, verbose=False, ckpt_path="best"), best),
        (lambda: run.test(dataloaders=data, verbose=False, ckpt_path="last"), last),
        (lambda: run.test(dataloaders=data, verbose=False), best),
        (lambda: run.test(ckpt_path=other, dataloaders=data, verbose=False), weight(other)),
        (lambda: trainer(checkpoint_dir=tmp_path).test(Best(), data, verbose=False, ckpt_path="best"), best),
        (lambda: run.validate(Weighted(), data, verbose=False, ckpt_path="best"), best),
    ):
        assert call()[0]["w"] == pytest.approx(expected) and not model.training
    assert best != last != weight(other)
    model.predict_step = lambda batch, batch_idx: model.net[1].weight.abs().sum()
    assert run.predict(dataloaders=data, ckpt_path="last")[0].item() == pytest.approx(last)
    again = trainer(8, callbacks=keep)
    again.fit(model, batches(1, 1), data)
    assert again.test(ckpt_path="best", dataloaders=data, verbose=False)[0]["w"] == pytest.approx(weight(keep.best_model_path))
    with pytest.raises(ValueError, match="ckpt_path='last': there is no such file"):
        again.test(model, data, ckpt_path="last")
    with pytest.raises(TypeError, match="there is no model: pass one"):
        trainer().test(dataloaders=data)
    with pytest.raises(FileNotFoundError):
        run.test(model, data, ckpt_path="nowhere")


def test_arguments_of_loading_that_scripts_have(tmp_path):
    class Taking(Small):
        def __init__(self, lr=0.1, **options):
            super().__init__(lr)
            self.options = options

    path = tmp_path / "a.safetensors"
    tc.save(Taking(lr=0.5), path)
    for where in ("cpu", tc.device("cpu"), None, lambda storage, place: storage, {"cuda:0": "cpu"}):
        model = Taking.load_from_checkpoint(checkpoint_path=path, map_location=where, weights_only=True)
        assert model.hparams.lr == 0.5 and set(model.options) <= {"dropout", "schedule"} and model.device == "cpu"
        assert tc.load(path, map_location=where, weights_only=False).keys() == tc.load(path, where).keys() == model.state_dict().keys()
    if not tc.cuda.is_available():
        with pytest.raises(RuntimeError):
            Taking.load_from_checkpoint(path, map_location="cuda")
    with pytest.raises(FileNotFoundError):
        tc.load_torch_checkpoint(tmp_path / "b", map_location="cpu", weights_only=True)
    for paths in ({}, {"path": path, "checkpoint_path": path}):
        with pytest.raises(TypeError, match="takes the path of a file, under one name"):
            Taking.load_from_checkpoint(**paths)


def test_a_run_without_its_length(recwarn):
    class Ending(Small):
        def on_train_epoch_end(self):
            self.trainer.should_stop = True

    run = tc.Trainer(progress=False)
    run.test(Small(), batches(1), verbose=False)
    tc.Trainer(fast_dev_run=True, progress=False).fit(Small(), batches(1), batches(1))
    assert run.max_epochs == 1000 and not recwarn.list
    with pytest.warns(UserWarning, match=r"max_epochs= is not given: the run ends after 1000 epochs") as told:
        run.fit(Ending(), batches(1), batches(1))
    assert told[0].filename == __file__ and run.current_epoch == 1
    run = tc.Trainer(max_steps=3, progress=False)
    run.fit(Small(), batches(1), batches(1))
    assert (run.max_epochs, run.current_epoch) == (-1, 3) and len(told) == 1


class Counting(Small):
    """Saves a run after its fifth step, and stops after the step `stops`."""

    path, stops = None, None

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.log("n", 1.0, reduce_fx="sum")
        if self.trainer.global_step == 5 and self.path:
            self.trainer.save_checkpoint(self.path)
        if self.trainer.global_step == self.stops:
            self.trainer.should_stop = True


def test_the_largest_number_of_steps(tmp_path):
    """The epoch of the last one is validated and counted; from a checkpoint within it, too."""

    def run(most, resume=None, path=None):
        seed_everything()
        model, done = Counting(), trainer(None, max_steps=most, checkpoint_dir=tmp_path / "run")
        model.path = path
        done.fit(model, batches(2, 2, 2), batches(1), resume=resume)
        return done, bits(model, done)

    first, weights = run(5, path=tmp_path / "kept")
    assert (first.history["epoch"], first.history["step"], first.history["n"]) == ([1, 2], [3, 5], [3.0, 2.0])
    assert not np.isnan(first.history["val_loss"]).any() and first.estimated_stepping_batches == 5
    again, same = run(5, resume=tmp_path / "kept")
    assert again.history == first.history and same == weights and again.global_step == 5
    longer, _ = run(8, resume="last")
    assert longer.history["step"] == [3, 5, 8] and longer.history["val_loss"][:2] == first.history["val_loss"]
    for epochs, most, steps in ((1, 5, 3), (3, 4, 4), (-1, 4, 4)):
        done = trainer(epochs, max_steps=most)
        done.fit(Small(), batches(2, 2, 2), batches(1))
        assert done.global_step == done.estimated_stepping_batches == steps
    done = trainer(None, max_steps=4, accumulate_grad_batches=2)
    done.fit(Small(), batches(2, 2, 2), batches(1))
    assert done.history["step"] == [2, 4] and done.estimated_stepping_batches == 4


def test_a_run_ends_after_the_step_that_stops_it(tmp_path):
    """Also in an epoch that has no end."""

    class Endless(tc.data.IterableDataset):
        def __iter__(self):
            return ((np.ones(3, np.float32), np.ones(1, np.float32)) for _ in itertools.count())

    model, run = Counting(), trainer(3, checkpoint_dir=tmp_path)
    model.stops = 2
    run.fit(model, tc.data.DataLoader(Endless(), 2), batches(1))
    assert run.history["step"] == [2] and run.history["n"] == [2.0] and not np.isnan(run.history["val_loss"]).any()
    model.stops = 3
    run.fit(model, tc.data.DataLoader(Endless(), 2), batches(1), resume="last")
    assert run.history["step"] == [2, 3] and run.should_stop
    model.stops, run = 1, trainer(3, accumulate_grad_batches=2)
    run.fit(model, batches(1, 1, 1, 1, 1), batches(1))
    assert run.history["step"] == [1] and run.history["n"] == [2.0]


@pytest.mark.parametrize("callbacks", [[], [tc.callbacks.LambdaCallback(on_train_batch_start=lambda *arguments: None)]])
def test_the_rest_of_an_epoch_is_not_left_out_in_silence(callbacks):
    class Leaving(Small):
        def on_train_batch_start(self, batch, batch_idx):
            return -1 if batch_idx else None

    with pytest.raises(ValueError, match=r"on_train_batch_start\(\) returned -1, .* limit_train_batches= makes"):
        trainer(callbacks=callbacks).fit(Leaving(), batches(1, 1))


def test_options_of_lightnings_without_effect_are_listed_once():
    options = dict(accelerator="auto", devices=1, deterministic=True, num_sanity_val_steps=0, logger=True, min_epochs=1)
    message = (
        r"^options of Lightning without effect here: accelerator, deterministic \(runs always are\), devices, "
        r"logger \(checkpoint_dir= is missing.*\), min_epochs, num_sanity_val_steps \(.*\)$"
    )
    with pytest.warns(UserWarning, match=message) as told:
        run = tc.Trainer(2, **options)
    assert len(told) == 1 and told[0].filename == __file__ and run.device is None


def test_options_of_lightnings_that_are_off(recwarn, tmp_path):
    """A program that lists all of them runs; with another value it is told what to do."""
    off = {name: values[0] for name, values in tc.trainer.lightning.OFF.items()}
    run = tc.Trainer(1, **off, gradient_clip_algorithm=None, log_every_n_steps=None)
    assert (run.gradient_clip_algorithm, run.log_every_n_steps) == ("norm", 50) and not recwarn.list
    tc.callbacks.ModelCheckpoint(tmp_path, train_time_interval=None, enable_version_counter=True)
    for name, value in (("val_check_interval", 1), ("overfit_batches", 2), ("detect_anomaly", True), ("max_time", "00:01:00:00")):
        with pytest.raises(TypeError, match=f"no option {name!r}: {re.escape(tc.trainer.names.TRAINER[name])}"):
            tc.Trainer(1, **{name: value})
    logger = tc.loggers.CSVLogger(tmp_path)
    trainer(logger=logger, log_every_n_steps=0).fit(Reporting(on_step=True), batches(1, 1))
    assert (Path(logger.log_dir) / "metrics.csv").read_text().splitlines() == ["step,epoch,y", "1,1,0.5"]


def test_gpus_of_lightnings_without_one(monkeypatch):
    monkeypatch.setattr(tc.cuda, "is_available", lambda: False)
    with pytest.warns(UserWarning, match=r"without effect here: accelerator \(there is no GPU.*\), gpus \(there is no GPU"):
        assert tc.Trainer(1, gpus=1, accelerator="gpu").device is None


def test_options_of_lightnings_with_effect(tmp_path, recwarn, monkeypatch):
    monkeypatch.setattr(tc.cuda, "is_available", lambda: True)
    run = tc.Trainer(max_epochs=1, default_root_dir=tmp_path, enable_progress_bar=False, accelerator="gpu", devices=[1])
    assert (run.checkpoint_dir, run.default_root_dir, run.progress, run.device) == (str(tmp_path), str(tmp_path), False, "cuda:1")
    assert tc.Trainer(1, gpus=1).device == "cuda" and not recwarn.list
    with pytest.raises(TypeError, match="name a device, and so does device: give one"):
        tc.Trainer(1, gpus=1, device="cpu")
    run.logger._default_hp_metric = None  # as the tutorial does
    assert run.logger.log_dir == run.log_dir == str(tmp_path) and tc.Trainer(1, logger=False).logger is None
    assert run.checkpoint_callback.best_model_path == "" and run.checkpoint_callback.best_model_score is None


def test_hooks_that_nothing_calls_are_told():
    class Ported(Small):
        def validation_epoch_end(self, outputs):
            pytest.fail("is not called")

        transfer_batch_to_device = validation_epoch_end

    message = r"never calls transfer_batch_to_device\(\) \(here: .*collate_fn.*validation_epoch_end\(\) \(here: on_valid.* of Ported$"
    with pytest.warns(UserWarning, match=message) as told:
        trainer().fit(Ported(), batches(1), batches(1))
    assert len(told) == 1 and told[0].filename == __file__
    assert not any(hasattr(tc.TrainingModule, name) for name in tc.trainer.names.HOOKS)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("on_train_batch_begin", "on_train_batch_start"),
        ("on_epoch_begin", "on_train_epoch_start"),
        ("on_val_epoch_end", "on_validation_epoch_end"),
        ("on_train_bacth_end", "on_train_batch_end"),
        ("on_epoch_end", "on_train_epoch_end"),
        ("on_boundary", None),
        ("on_train_end", None),
    ],
)
def test_misspelt_hooks_are_told(name, meant, recwarn):
    """Of callbacks and modules, on classes and instances; a method that only begins with "on_" is nobody's business."""
    callback = type("Mine", (tc.callbacks.Callback,), {name: lambda *given: None})()
    model = Small()
    setattr(model, name, lambda *given: None)
    for call, expected in (
        (lambda: trainer(callbacks=callback).fit(model, batches(1), batches(1)), f"{name}() (here: {meant}()) of Small, nor {name}() (here: {meant}()) of Mine"),
        (lambda: trainer().test(model, batches(1), verbose=False), f"{name}() (here: {meant}()) of Small"),
        (lambda: trainer(callbacks=callback).validate(Small(), batches(1), verbose=False), f"{name}() (here: {meant}()) of Mine"),
    ):  # fmt: skip
        call()
        told = [str(w.message) for w in recwarn.list]
        assert told == ([f"a Trainer never calls {expected}"] if meant else [])
        assert all(w.filename == __file__ for w in recwarn.list)
        recwarn.clear()


def test_missing_validation_is_told(tmp_path, recwarn):
    trainer(limit_val_batches=0).fit(Small(), batches(1))
    assert not recwarn.list
    with pytest.warns(
        UserWarning, match=r"Small has a validation_step\(\), but there are no validation data: epochs are not validated; pass"
    ) as told:
        trainer().fit(Small(), batches(1))
    assert told[0].filename == __file__
    with pytest.warns(UserWarning, match="not validated, and none is the best"):
        trainer(checkpoint_dir=tmp_path).fit(Small(), batches(1))


def test_a_second_fit_does_not_mix_runs(tmp_path):
    run = trainer(2, checkpoint_dir=tmp_path)
    run.fit(Reporting(), batches(2), batches(2))
    first = (tmp_path / "history.csv").read_text()
    with pytest.warns(UserWarning, match=r"had an earlier run: its files are in .*earlier_1 now; fit\(\.\.\., resume=") as told:
        run.fit(Small(), batches(2))
    told = [warning for warning in told if "earlier" in str(warning.message)]
    assert len(told) == 1 and told[0].filename == __file__
    assert sorted(os.listdir(tmp_path)) == ["earlier_1", "history.csv", "last.safetensors"] and run.best_model_path == ""
    assert sorted(os.listdir(tmp_path / "earlier_1")) == ["best.safetensors", "history.csv", "last.safetensors"]
    assert (tmp_path / "earlier_1" / "history.csv").read_text() == first != (tmp_path / "history.csv").read_text()
    again = trainer(3, checkpoint_dir=tmp_path)
    again.fit(Small(), batches(2), resume="last")
    assert len(again.history["epoch"]) == 3 and not (tmp_path / "earlier_2").exists()


@pytest.mark.parametrize("ends", [False, True])
def test_a_folder_that_another_run_writes_to(tmp_path, ends):
    """It is refused, whatever the first run has written, until that ends, in one way or another."""

    class Second(Small):
        def on_train_epoch_end(self):
            with pytest.raises(RuntimeError, match="another run is writing to .*; give each a folder of its own"):
                trainer(1, checkpoint_dir=tmp_path).fit(Small(), batches(1))
            with pytest.raises(RuntimeError, match="another run"):
                trainer(1, checkpoint_dir=tmp_path).fit(Small(), batches(1), resume="last")
            trainer(1, checkpoint_dir=tmp_path / "other").fit(Small(), batches(1))
            if ends:
                raise KeyError("the first run ends here")

    first = trainer(2, limit_val_batches=0, checkpoint_dir=tmp_path)
    with pytest.raises(KeyError) if ends else contextlib.nullcontext():
        first.fit(Second(), batches(2))
    assert "earlier_1" not in os.listdir(tmp_path)
    first.fit(Small(), batches(2), resume="last")


def test_a_folder_checkpoints_of_the_users_own_stays(tmp_path, recwarn):
    own = tmp_path / "checkpoints" / "pretrained.safetensors"
    own.parent.mkdir()
    own.write_bytes(b"mine")
    trainer(limit_val_batches=0, checkpoint_dir=tmp_path).fit(Small(), batches(1))
    assert own.exists() and not recwarn.list and not (tmp_path / "earlier_1").exists()


@pytest.mark.parametrize("where", ["configure_optimizers", "setup", "on_fit_start", "resume"])
def test_a_refused_fit_leaves_the_run_before_it(tmp_path, where):
    def refuses(*arguments):
        raise RuntimeError("refused")

    keep = tc.callbacks.ModelCheckpoint(tmp_path / "kept", monitor="val_loss")
    run, model, other = trainer(2, checkpoint_dir=tmp_path / "run", callbacks=[keep], patience=3), Small(), Small()
    run.fit(model, batches(2), batches(2))

    def shown():
        states = [callback.state_dict() for callback in run.callbacks]
        return run.history, run.global_step, run.best_model_path, run.callback_metrics, repr(states), sorted(tmp_path.rglob("*"))

    before = copy.deepcopy(shown())
    if where != "resume":
        setattr(other, where, refuses)
    with pytest.raises(tc.CheckpointError if where == "resume" else RuntimeError):
        run.fit(other, batches(2), batches(2), resume=tmp_path / "run" / "best.safetensors" if where == "resume" else None)
    assert shown() == before and before[1] == 2
    run.validate(dataloaders=batches(1), verbose=False)
    assert run._fitted is model


def test_a_schedule_as_long_as_the_run():
    class Endless:
        def __iter__(self):
            return itertools.repeat(batches(1)[0])

    class Asking(Small):
        def configure_optimizers(self):
            found.append((self.trainer.num_training_batches, self.trainer.estimated_stepping_batches))
            return super().configure_optimizers()

    found = []
    trainer(3, limit_train_batches=2).fit(Asking(), batches(1, 1, 1))
    run = trainer(3, limit_train_batches=2)
    run.fit(Asking(), Endless())
    with pytest.raises(ValueError, match="needs a loader with a length"):
        trainer(limit_train_batches=0.5).fit(Asking(), Endless())
    assert found == [(2, 6), (2, 6)] and run.global_step == 6


def test_mistakes_in_the_module_are_found_before_the_first_epoch():
    with pytest.raises(TypeError, match=r"the class Small; pass an instance: Small\("):
        trainer().fit(Small, batches(1))

    class Uninitialised(Small):
        def __init__(self):
            self.lr = 3

    with pytest.raises(RuntimeError, match=r"Uninitialised.__init__\(\) must call super\(\).__init__\(\)"):
        trainer().fit(Uninitialised(), batches(1))

    class Unvalidated(Reporting):
        validation_step = tc.TrainingModule.validation_step

    model = Unvalidated()
    with pytest.raises(NotImplementedError, match="validation_step"):
        trainer().fit(model, batches(1), batches(1))
    assert model.calls == []


def test_no_step_asks_for_advice(monkeypatch):
    """A step never asks a Tensor or module for what it does not have: looking for the name that was meant takes longer than a small step."""
    import difflib

    def fail(*unused):
        pytest.fail("a name is looked for")

    class Steps(Reporting):
        def on_train_epoch_start(self):
            monkeypatch.setattr(difflib, "get_close_matches", fail)

        def on_train_epoch_end(self):
            monkeypatch.undo()

    model = Steps()
    trainer(2).fit(model, batches(2, 2), batches(1))
    assert len(model.calls) == 6


def test_a_step_makes_few_calls_more_than_a_bare_loop():
    """Counted, since times vary: a step of a small model is about 2 ms, a call less than a microsecond."""

    class Quiet(Small):
        def training_step(self, batch, batch_idx):
            return self.loss(batch)

    def calls(count, run):
        seen, data = [], [(tc.ones(2, 3), tc.ones(2, 1))] * count
        model = Quiet(dropout=0.0)
        sys.setprofile(lambda frame, event, argument: seen.append(event) if event in ("call", "c_call") else None)
        try:
            run(model, data)
        finally:
            sys.setprofile(None)
        return len(seen)

    def bare(model, data):
        (optimizer,), (schedule,) = model.configure_optimizers()
        for index, batch in enumerate(data):
            loss = model.training_step(batch, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule["scheduler"].step()
            float(loss)

    def trained(model, data):
        trainer(limit_val_batches=0).fit(model, data)

    calls(1, trained)  # imports
    per_step = {run: (calls(30, run) - calls(10, run)) / 20 for run in (bare, trained)}
    assert 50 < per_step[trained] - per_step[bare] < 95  # 92 with Python 3.11


@pytest.mark.parametrize("value", ["high", None, np.ones(2), tc.ones(2)])
def test_what_is_no_number_cannot_be_logged(value):
    with pytest.raises((TypeError, ValueError, RuntimeError), match="log\\('y'\\) takes a number"):
        Small().log("y", value)


def test_a_monitor_that_nothing_logs(tmp_path):
    with pytest.raises(ValueError, match="'val_acc', which nothing logs; logged: train_loss, val_loss"):
        trainer(checkpoint_dir=tmp_path, monitor="val_acc").fit(Small(), batches(1), batches(1))
    with pytest.raises(ValueError, match="patience needs"):
        trainer(patience=2).fit(Small(), batches(1))


def test_names_of_the_historys_own():
    class Odd(Small):
        def training_step(self, batch, batch_idx):
            self.log("epoch", 1)

    with pytest.raises(ValueError, match="'epoch'"):
        trainer().fit(Odd(), batches(1))


def test_hyper_parameters_that_no_file_can_hold(tmp_path):
    """Found out before the first epoch, not after it."""
    model = Reporting()
    model.hparams.function = len
    with pytest.raises(TypeError, match="function"):
        trainer(checkpoint_dir=tmp_path).fit(model, batches(1))
    assert model.calls == []


def test_a_device_that_is_not_there():
    if not tc.cuda.is_available():
        with pytest.raises(RuntimeError):
            trainer(device="cuda").fit(Small(), batches(1))
    with pytest.raises(ValueError, match="'tpu'"):
        trainer(device="tpu")


@pytest.mark.parametrize("kind", ["training", "validation"])
def test_the_threads_of_loaders_end(kind):
    """Also where an error, kept with its frames as a debugger or a notebook keeps it, leaves a pass in the middle."""

    class Failing(Small):
        def training_step(self, batch, batch_idx):
            assert kind != "training"
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            raise AssertionError

    seed_everything()
    train, val = small_data(prefetch=2)
    trainer(3, limit_train_batches=1).fit(Small(), train, val)
    val.prefetch = 2
    with pytest.raises(AssertionError) as kept:
        trainer(3, limit_train_batches=2).fit(Failing(), train, val)
    assert not [t for t in threading.enumerate() if "prefetch" in t.name] and kept.tb


@pytest.mark.parametrize("limit", [None, 2])
def test_a_generators_order_in_every_epoch(limit):
    """A loader with a generator of its own shuffles as if it were walked over to its end; a limit that cuts a pass short does not draw on."""

    class Order(Small):
        def on_train_epoch_start(self):
            self.seen.append([])

        def training_step(self, batch, batch_idx):
            self.seen[-1].extend(batch[1][:, 0].tolist())
            return super().training_step(batch, batch_idx)

    def loader():
        data = tc.data.TensorDataset(np.ones((12, 3), np.float32), np.arange(12, dtype=np.float32)[:, None])
        return tc.data.DataLoader(data, batch_size=4, shuffle=True, generator=5)

    model = Order()
    model.seen = []
    trainer(3, limit_train_batches=limit).fit(model, loader())
    walked = loader()
    expected = []
    for _ in range(3):
        passed = iter(walked)
        batches = list(passed) if limit is None else list(itertools.islice(passed, limit))
        expected.append([value for _, y in batches for value in y[:, 0].tolist()])
    assert model.seen == expected and expected[0] != expected[1]


class Shared(Small):
    """One metric for training and tests, another one for validation: all right in training, all wrong elsewhere."""

    def __init__(self):
        super().__init__()
        self.acc, self.of_validation = tc.metrics.Accuracy(), tc.metrics.Accuracy()

    def step(self, batch, metric, name, value):
        metric.update([1] * len(batch[0]), [value] * len(batch[0]))
        self.log(name, metric)
        return self.loss(batch)

    def training_step(self, batch, batch_idx):
        self.log("also_train_acc", self.acc)
        return self.step(batch, self.acc, "train_acc", 1)

    def validation_step(self, batch, batch_idx):
        self.step(batch, self.of_validation, "val_acc", 0)

    def test_step(self, batch, batch_idx):
        self.step(batch, self.acc, "test_acc", 0)


def test_a_metric_of_training_and_validation_is_refused():
    model, run = Shared(), trainer(2)
    model.of_validation = model.acc
    with pytest.raises(
        ValueError, match=r"log\('val_acc'\) in validation got the Accuracy that training logs as 'also_train_acc'.*make two"
    ):
        run.fit(model, batches(2, 2), batches(1))


def test_a_metric_of_training_and_tests():
    """Of which one is over when the other begins, also where it was stopped."""

    class Stopping(Shared):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            if self.is_stopped:
                raise InterruptedError

    for Stopping.is_stopped in (False, True):
        model, run = Stopping(), trainer(2)
        with contextlib.suppress(InterruptedError):
            run.fit(model, batches(2, 2), batches(1))
            assert run.history["train_acc"] == run.history["also_train_acc"] == [1, 1] and run.history["val_acc"] == [0, 0]
        assert run.test(model, batches(2), verbose=False) == [{"test_acc": 0}]
        model.of_validation = model.acc
        assert run.validate(model, batches(2), verbose=False) == [{"val_acc": 0}]


def test_a_metric_begins_anew_in_each_epoch():
    class Alternating(Shared):
        def training_step(self, batch, batch_idx):
            return self.step(batch, self.acc, "train_acc", self.trainer.current_epoch % 2)

    run = trainer(3)
    run.fit(Alternating(), batches(2, 2), batches(1))
    assert run.history["train_acc"] == [0, 1, 0]


def test_weights_of_values_that_are_logged():
    """The mean of nothing is NaN; a batch without axes counts once."""

    class Numbers(Small):
        def training_step(self, batch, batch_idx):
            self.log("nothing", 5.0, batch_size=0)
            self.log("y", batch)
            return self.net(tc.ones(1, 3)).mean()

    run = trainer(limit_train_batches=9)
    run.fit(Numbers(), [np.array(1.0, np.float32), np.array(4.0, np.float32)])
    assert np.isnan(run.history["nothing"]).all() and run.history["y"] == [2.5] and run.num_training_batches == 2


def test_what_is_logged_at_the_end_counts_for_the_last_loader():
    class Ending(Small):
        def validation_step(self, batch, batch_idx, dataloader_idx):
            self.log("y", batch[1].mean())

        def on_validation_epoch_end(self):
            self.log("end", 7.0)

    loaders = [tc.data.DataLoader(tc.data.TensorDataset(*batch)) for batch in batches(1, 1)]
    assert trainer().validate(Ending(), loaders, verbose=False) == [{"y": 0.0}, {"y": 1.0, "end": 7.0}]


def test_no_class_reaches_into_another():
    """What trainer and loop share is their Run."""
    folder = Path(tc.trainer.__file__).parent
    for path in [p for name in ("trainer", "training", "callbacks", "loggers") for p in folder.with_name(name).glob("*.py")]:
        found = re.findall(r"\b(?!self\b|random\b|mtrand\b)\w+\._[a-z]\w*", path.read_text())
        assert not found, f"{path.name}: {found}"


def test_a_module_of_a_file_without_its_arguments(tmp_path):
    class Wide(tc.TrainingModule):
        def __init__(self, width):
            super().__init__()
            self.layer = tc.nn.Linear(width, 1)

    tc.save(Wide(3), tmp_path / "wide.safetensors")
    with pytest.raises(TypeError, match=r"'width': the file has no hyper-parameters; pass them .* or call self\.save_hyperparameters\(\)"):
        Wide.load_from_checkpoint(tmp_path / "wide.safetensors")
    assert Wide.load_from_checkpoint(tmp_path / "wide.safetensors", width=3).layer.in_features == 3
