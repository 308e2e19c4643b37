"""Loggers of tc.Trainer: what they get, their files, new and resumed runs."""

import argparse
import contextlib
import csv
import itertools
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import transformer_c as tc
from interrupting import interrupted
from small_runs import Small

pytestmark = pytest.mark.filterwarnings("ignore:.*there are no validation data")


def batches(*sizes):
    return [(np.ones((n, 3), np.float32), np.full((n, 1), i, np.float32)) for i, n in enumerate(sizes)]


class Logging(Small):
    def training_step(self, batch, batch_idx):
        self.log("y", batch[1].mean(), on_step=True)
        self.log("hidden", 7.0, on_step=True, logger=False)
        return self.loss(batch)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.log("late", float(batch_idx), on_step=True, on_epoch=False)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", 0.5)

    def test_step(self, batch, batch_idx):
        self.log("test_loss", 0.25)


class Recorder(tc.loggers.Logger):
    def __init__(self):
        self.calls = []

    def begin(self, step):
        self.calls.append(("begin", step))

    def log_hyperparams(self, params):
        self.calls.append(("hparams", params))

    def log_metrics(self, metrics, step=None):
        self.calls.append((step, metrics))

    def finalize(self, status):
        self.calls.append(status)


def trainer(epochs, logger, **options):
    return tc.Trainer(epochs, progress=False, logger=logger, **options)


def test_what_a_logger_gets():
    logger = Recorder()
    run = trainer(2, logger, log_every_n_steps=2)
    model = Logging(lr=0.25)
    run.fit(model, batches(1, 1, 1), batches(1))
    hparams = {"lr": 0.25, "dropout": 0.3, "schedule": "step"}
    assert logger.calls == [
        ("begin", None), ("hparams", hparams),
        (1, {"y_step": 1.0, "late_step": 1.0}),
        (2, {"epoch": 1, "y": 1.0, "val_loss": 0.5}),
        (3, {"y_step": 0.0, "late_step": 0.0}),
        (5, {"y_step": 2.0, "late_step": 2.0}),
        (5, {"epoch": 2, "y": 1.0, "val_loss": 0.5}),
        "success",
    ]  # fmt: skip
    logger.calls.clear()
    run.test(model, batches(1), verbose=False)
    assert logger.calls == [(6, {"test_loss": 0.25})] and run.logger is logger and run.loggers == [logger]


def test_a_value_of_some_steps_is_logged_at_those():
    class Rarely(Small):
        def training_step(self, batch, batch_idx):
            if batch_idx != 1:
                self.log("y", batch[1].mean(), on_step=True, on_epoch=False)
            return self.loss(batch)

    logger = Recorder()
    trainer(1, logger, log_every_n_steps=1).fit(Rarely(), batches(1, 1, 1))
    assert logger.calls[2:] == [(0, {"y_step": 0.0}), (2, {"y_step": 2.0}), (2, {"epoch": 1}), "success"]


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt, "interrupted"), (ValueError, "failed")])
def test_the_end_of_a_run_that_fails(error, status):
    class Failing(Logging):
        def training_step(self, batch, batch_idx):
            assert self.logger is logger
            raise error

    logger = Recorder()
    with pytest.raises(error):
        trainer(1, [logger]).fit(Failing(), batches(1))
    assert logger.calls[-1] == status


def read(folder):
    with open(folder / "metrics.csv", newline="") as file:
        return [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]


def test_csv(tmp_path):
    run = trainer(3, tc.loggers.CSVLogger(tmp_path, name="mine"), log_every_n_steps=1)
    run.fit(Logging(), batches(1, 1), batches(1))
    folder = tmp_path / "mine" / "version_0"
    assert run.log_dir == str(folder) and json.loads((folder / "hparams.json").read_text())["lr"] == 0.1
    rows = read(folder)
    assert [row["step"] for row in rows] == [0, 1, 1, 2, 3, 3, 4, 5, 5]
    assert rows[2] == {"step": 1, "epoch": 1, "y": 0.5, "val_loss": 0.5} and rows[1] == {"step": 1, "y_step": 1, "late_step": 1}
    run.fit(Logging(), batches(1), batches(1))
    assert sorted(os.listdir(tmp_path / "mine")) == ["version_0", "version_1"] and len(read(folder)) == 9
    again = tc.Trainer(1, progress=False, logger=True, checkpoint_dir=tmp_path / "run")
    again.fit(Logging(), batches(1), batches(1))
    assert [row["epoch"] for row in read(tmp_path / "run" / "logs" / "version_0")] == [1]


def test_what_a_program_logs_before_its_run(tmp_path):
    """The log of the run has it, in one folder."""
    logger = tc.loggers.CSVLogger(tmp_path)
    logger.log_hyperparams(argparse.Namespace(data="small", lr=1.0))
    logger.log_hyperparams({"lr": 2.0, "seed": 3})
    logger.log_metrics({"rows": 5.0})
    trainer(1, logger).fit(Logging(lr=0.25), batches(1))
    folder = tmp_path / "logs" / "version_0"
    assert os.listdir(tmp_path / "logs") == ["version_0"] and logger.log_dir == str(folder)
    expected = {"data": "small", "lr": 0.25, "seed": 3, "dropout": 0.3, "schedule": "step"}
    assert json.loads((folder / "hparams.json").read_text()) == expected
    assert read(folder) == [{"step": 0, "rows": 5.0}, {"step": 0, "epoch": 1, "y": 0.0}]
    logger.log_hyperparams({"found": 1})  # after the run
    assert json.loads((folder / "hparams.json").read_text()) == {**expected, "found": 1}
    trainer(1, logger).fit(Logging(lr=0.5), batches(1))  # the next run has its own alone
    assert json.loads((tmp_path / "logs" / "version_1" / "hparams.json").read_text()) == {"lr": 0.5, "dropout": 0.3, "schedule": "step"}


def test_a_log_without_a_trainer(tmp_path):
    logger = tc.loggers.CSVLogger(tmp_path, name="")
    logger.log_hyperparams({"lr": 0.5})
    logger.log_metrics({"y": 2.0}, 7)
    logger.save()
    assert read(tmp_path / "version_0") == [{"step": 7, "y": 2.0}]
    assert json.loads((tmp_path / "version_0" / "hparams.json").read_text()) == {"lr": 0.5}


def test_a_row_without_a_step_is_one_of_step_0(tmp_path):
    logger = tc.loggers.CSVLogger(tmp_path, version="mine")
    logger.begin(None)
    logger.log_metrics({"y": 2.0})
    logger.save()
    assert read(tmp_path / "logs" / "mine") == [{"step": 0, "y": 2.0}]


def test_a_table_of_tensors(tmp_path):
    """Their numbers are written, and the row has the step that was given."""
    logger = tc.loggers.CSVLogger(tmp_path, version="x")
    logger.log_metrics({"norm": tc.ones(1, requires_grad=True) / 4, "step": 7.0}, step=3)
    logger.save()
    logger.begin(4)
    assert read(tmp_path / "logs" / "x") == [{"step": 3, "norm": 0.25}]


@pytest.mark.parametrize("version", [None, "fixed"])
def test_a_resumed_run_continues_its_table(tmp_path, version):
    """Rows of steps after the checkpoint are dropped; the table is that of a run that was not stopped."""

    class Failing(Logging):
        def training_step(self, batch, batch_idx):
            if self.trainer.global_step == 5 and self.fails:
                raise InterruptedError
            return super().training_step(batch, batch_idx)

    tables = []
    for name, failing in (("whole", False), ("stopped", True)):
        for Failing.fails in (failing, False):
            run = trainer(4, tc.loggers.CSVLogger(tmp_path / name, version=version), log_every_n_steps=1, checkpoint_dir=tmp_path / name)
            with contextlib.suppress(InterruptedError):
                run.fit(Failing(), batches(1, 1), batches(1), resume="last")
        tables.append((tmp_path / name / "logs" / (version or "version_0") / "metrics.csv").read_text())
        assert len(os.listdir(tmp_path / name / "logs")) == 1
    assert tables[0] == tables[1]
    if version:
        folder = tmp_path / "stopped" / "logs" / version
        with pytest.warns(UserWarning, match=r"fixed had the log of an earlier run: its files are in .*fixed.earlier_1 now"):
            run.fit(Logging(), batches(1), batches(1))
        assert (
            len(read(folder)) == 8 and (folder / "earlier_1" / "metrics.csv").read_text() == tables[0]
        )  # a new run has a table of its own
        assert (folder / "earlier_1" / "hparams.json").read_text() == (folder / "hparams.json").read_text()


def test_a_resumed_run_that_is_killed_at_once_keeps_its_table(tmp_path):
    """The rows before the checkpoint are in the file at any moment."""
    for step, expected in ((None, []), (2, [0.0, 1.0]), (1, [0.0])):
        logger = tc.loggers.CSVLogger(tmp_path, version="mine")
        logger.begin(step)
        assert [row["a"] for row in (read(tmp_path / "logs" / "mine") if step else [])] == expected
        if not step:
            for i in range(3):
                logger.log_metrics({"a": i}, i)
            logger.save()
    logger.log_metrics({"b": 5}, 1)
    logger.save()
    assert read(tmp_path / "logs" / "mine") == [{"step": 0, "a": 0}, {"step": 1, "b": 5}]


def test_a_table_whose_save_is_interrupted_has_each_row_once(tmp_path):
    """At any place, in a table that is written as a whole and in one that grows, also where a line is cut."""
    ours = str(Path(tc.__file__).parent)
    for grows in (False, True):
        for nth in itertools.count():
            logger = tc.loggers.CSVLogger(tmp_path / f"{grows} {nth}")
            logger.begin(None)
            if grows:
                logger.log_metrics({"a": 0.5}, 0)
                logger.save()
            path = Path(logger.log_dir, "metrics.csv")
            before = path.read_bytes() if grows else b""
            logger.log_metrics({"a": 1.5}, 1)
            logger.log_metrics({"a": 2.5}, 1)
            has_more = interrupted(nth, logger.save, follows=lambda frame: frame.f_code.co_filename.startswith(ours))
            if has_more and grows and path.read_bytes() != before:  # as if the disk had been full
                path.write_bytes(path.read_bytes()[: len(before) + nth % 3 + 1])
            logger.log_metrics({"a": 3.5}, 2)
            logger.finalize("interrupted")
            assert [row["a"] for row in read(path.parent)] == [*([0.5] if grows else []), 1.5, 2.5, 3.5]
            if not has_more:
                break
        assert nth > 5


def test_a_logger_that_has_not_begun(tmp_path):
    """An error before it begins is not hidden by one of the logger; values of a test go to a table of their own, or to the one that is there."""

    class Early(Logging):
        def on_train_start(self):
            raise RuntimeError("mine")

    for _ in range(2):
        run = trainer(1, tc.loggers.CSVLogger(tmp_path, version="mine"))
        run.test(Logging(), batches(1), verbose=False)
    with pytest.raises(RuntimeError, match="mine"):
        run.fit(Early(), batches(1))
    trainer(1, again := tc.loggers.CSVLogger(tmp_path, version="mine")).test(Classifying(), batches(1), verbose=False)
    rows = [{"step": 0, "test_loss": 0.25}] * 2 + [{"step": 0, "test_acc": 0.5}]
    assert read(tmp_path / "logs" / "mine") == rows and again.log_dir == run.log_dir


@pytest.mark.parametrize("kind", [tc.loggers.CSVLogger, tc.loggers.TensorBoardLogger])
def test_the_folder_of_a_logger_that_has_not_begun(tmp_path, kind):
    (tmp_path / "logs" / "version_3").mkdir(parents=True)
    logger = kind(tmp_path)
    assert logger.log_dir == str(tmp_path / "logs" / "version_4") and logger.version == 4


class Classifying(Logging):
    def test_step(self, batch, batch_idx):
        self.log("test_acc", 0.5)


def test_what_on_exception_raises_hides_nothing():
    class Bad(tc.loggers.Logger):
        def finalize(self, status):
            raise OSError("the disk is full")

    class Failing(Logging):
        def training_step(self, batch, batch_idx):
            raise RuntimeError("mine")

    seen = []
    callbacks = [tc.callbacks.LambdaCallback(on_exception=f) for f in (lambda *given: 1 / 0, lambda t, m, error: seen.append(error))]
    with pytest.warns(UserWarning) as told, pytest.raises(RuntimeError, match="mine") as raised:
        trainer(1, Bad(), callbacks=callbacks).fit(Failing(), batches(1), batches(1))
    assert seen == [raised.value]
    assert [str(w.message).partition(":")[0] for w in told] == ["on_exception() raised ZeroDivisionError", "on_exception() raised OSError"]


@pytest.mark.parametrize("torn", ["1", "12,0."])
def test_a_row_that_was_cut_short(tmp_path, torn):
    """By a kill: it is no row of the step whose digits are there."""
    logger = tc.loggers.CSVLogger(tmp_path, version="mine")
    logger.begin(None)
    for step in (0, 1, 11):
        logger.log_metrics({"y": step / 2}, step)
    logger.save()
    path = Path(logger.log_dir, "metrics.csv")
    text = path.read_text()
    path.write_text(text + torn)
    again = tc.loggers.CSVLogger(tmp_path, version="mine")
    again.begin(20)
    assert path.read_text() == text == "step,y\n0,0.0\n1,0.5\n11,5.5\n"


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = trainer(2, tc.loggers.TensorBoardLogger(tmp_path, default_hp_metric=False), log_every_n_steps=1)
    run.fit(Logging(lr=0.5), batches(1, 1), batches(1))
    run.logger.experiment.add_scalar("mine", scalar_value=3.0, global_step=9)  # the names of torch.utils.tensorboard
    run.logger.experiment.add_text("note", text_string="a note", global_step=None)
    run.logger.log_hyperparams({"a|b": np.eye(2)})
    run.logger.save()
    found = EventAccumulator(run.log_dir)
    found.Reload()
    assert set(found.Tags()["scalars"]) == {"y", "y_step", "late_step", "val_loss", "epoch", "mine"}
    assert [(event.step, event.value) for event in found.Scalars("y_step")] == [(0, 0.0), (1, 1.0), (2, 0.0), (3, 1.0)]
    assert all(event.wall_time > 1.5e9 for event in found.Scalars("y_step"))
    first, second = (event.tensor_proto.string_val[0].splitlines() for event in found.Tensors("hparams/text_summary"))
    assert b"| lr | 0.5 |" in first and second[:-1] == first and second[-1].startswith(rb"| a\|b | array([[1., 0.], ")  # two columns


def test_an_empty_table_in_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = tc.loggers.TensorBoardLogger(tmp_path)
    logger.log_hyperparams({})
    logger.log_metrics({"y": 1.0}, 3)
    logger.finalize("success")
    found = EventAccumulator(logger.log_dir)
    found.Reload()
    assert found.Tags()["tensors"] == [] and found.Tags()["scalars"] == ["y"]


def test_tensorboard_without_a_trainer_has_a_table_once(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = tc.loggers.TensorBoardLogger(tmp_path)
    logger.log_hyperparams({"lr": 0.5})
    for step in range(3):
        logger.log_metrics({"y": 1.0}, step)
        logger.save()
    logger.finalize("success")
    found = EventAccumulator(logger.log_dir)
    found.Reload()
    assert len(found.Tensors("hparams/text_summary")) == 1


def test_a_run_resumed_at_its_first_step_in_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = tc.loggers.TensorBoardLogger(tmp_path, version=0)
    for step, name in ((None, "old"), (0, "new")):
        logger.begin(step)
        logger.log_metrics({name: 1.0}, 0)
    logger.finalize("success")
    found = EventAccumulator(logger.log_dir)
    found.Reload()
    assert [len(found.Scalars(name)) for name in ("old", "new")] == [0, 1]


def test_a_run_closes_the_file_before_it_in_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    logger = tc.loggers.TensorBoardLogger(tmp_path, version=0)
    before = logger.experiment
    logger.begin(None)
    with pytest.raises(OSError, match="closed"):
        before.add_scalar("y", 1.0)
    logger.finalize("success")


def test_a_resumed_run_in_tensorboard(tmp_path):
    """What was logged from the step of the checkpoint on is void; `prefix` is put before every name."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for step, values in ((None, (0.0, 1.0, 2.0)), (2, (5.0, 6.0))):
        logger = tc.loggers.TensorBoardLogger(tmp_path, "runs", 0, prefix="mine")
        logger.begin(step)
        for at, value in enumerate(values, step or 0):
            logger.log_metrics({"y": value}, at)
        logger.finalize("success")
    found = EventAccumulator(logger.log_dir)
    found.Reload()
    assert found.Tags()["scalars"] == ["mine-y"]
    assert [(event.step, event.value) for event in found.Scalars("mine-y")] == [(0, 0.0), (1, 1.0), (2, 5.0), (3, 6.0)]


def test_tensorboard_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    with pytest.raises(ImportError, match=r"pip install 'transformer_c\[tensorboard\]'"):
        trainer(1, tc.loggers.TensorBoardLogger(tmp_path)).fit(Logging(), batches(1))
