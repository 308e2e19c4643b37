"""Trainer(strategy="ddp"): several ranks take the steps of one process; rank 0 writes; another number of ranks resumes."""

import argparse
import json
import pathlib
import re
import shlex
import signal
import sys
import time

import numpy as np
import on_ranks
import pytest
import training
import transformer_c as tc
from jobs import Job, needs_mpi, run, write_script
from transformer_c import cli
from transformer_c.cli import train
from transformer_c.cli.options import CommandError
from transformer_c.cli.tasks import TASKS
from transformer_c.trainer.shares import Dealt, SharedLoader

HERE = pathlib.Path(__file__).parent


@pytest.mark.skipif(sys.platform != "linux", reason="MPI may have no wheel here")
def test_mpi_comes_with_the_extra_for_tests():
    """Without it all jobs of several processes are skipped."""
    assert not needs_mpi.args[0], needs_mpi.kwargs["reason"]


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_checks_of_ranks(ranks, tmp_path):
    """One job, because a job takes a second to start."""
    out = run(ranks, [HERE / "on_ranks.py"], tmp_path)
    assert [line for line in out.splitlines() if line[:1] != " "] == [check.__name__ for check in on_ranks.CHECKS]
    assert [line[2:] for line in out.splitlines() if line[:1] == " "] == list(on_ranks.CASES)


@needs_mpi
def test_one_rank_writes_and_another_number_of_ranks_resumes(tmp_path):
    script = """
        import sys, training
        from transformer_c import distributed
        distributed.init()
        size = distributed.world_size()
        epochs, resume = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
        trainer, model = training.trained(size, 12, epochs, folder="run", resume=resume, strategy="ddp", logger=True, callbacks=[
            tc.callbacks.ModelCheckpoint("kept", monitor="val_loss", save_top_k=2, save_last=True)])
        paths = distributed.world.group().exchange("the paths", (trainer.best_model_path, trainer.last_model_path, trainer.callbacks[0].best_k_models))
        assert all(path == paths[0] for path in paths), paths
        if distributed.rank() == 0:
            np.save(f"weights_{size}_{epochs}.npy", training.weights(model))
    """
    write_script(script, tmp_path)
    whole, part = tmp_path / "whole", tmp_path / "part"
    for folder in (whole, part):
        folder.mkdir()
    run(2, ["../script.py", 4], whole)
    assert sorted(p.name for p in (whole / "run").iterdir()) == ["best.safetensors", "history.csv", "last.safetensors", "logs"]
    assert len(list((whole / "kept").glob("epoch=*.safetensors"))) == 2 and not list((whole / "kept").glob("*-v*"))
    assert [p.name for p in (whole / "run" / "logs").iterdir()] == ["version_0"]
    run(2, ["../script.py", 2], part)
    run(3, ["../script.py", 3, "last"], part)
    run(1, ["../script.py", 4, "last"], part)
    training.close(np.load(whole / "weights_2_4.npy"), np.load(part / "weights_1_4.npy"), 1e-5)
    assert len((part / "run" / "history.csv").read_text().splitlines()) == 5


@needs_mpi
def test_command_line(tmp_path):
    """Stopped in the middle of an epoch and resumed as the line says which is printed, by another number of ranks: as many rows in a step."""
    few = ["--train-size", 600, "--val-size", 64, "--test-size", 64, "--epochs", 24, "--batch-size", 48]
    job = Job(2, ["-m", "transformer_c", "train", "reverse", *few, "--output", "a run", "--no-progress"], tmp_path)
    assert "6 batches on each of 2 ranks" in job.process.stdout.readline()
    while not (tmp_path / "a run/last.safetensors").exists() and job.process.poll() is None:
        time.sleep(0.002)
    job.process.send_signal(signal.SIGINT)
    status, out, err = job.result()
    (again,) = re.findall("^  mpiexec -n 2 python (-m transformer_c train reverse --resume --output 'a run')$", err, re.M)
    assert status == 130, err
    out = run(3, [*shlex.split(again), "--no-progress", "--batch-size", 32], tmp_path)
    assert "going on from the last checkpoint" in out and "6 batches on each of 3 ranks" in out and out.count("best epoch: ") == 1, out


def test_one_of_several_processes_says_what_is_wrong(monkeypatch, capsys):
    monkeypatch.setenv("PMI_SIZE", "2")
    for rank, said in (("0", True), ("1", False)):
        monkeypatch.setenv("PMI_RANK", rank)
        with pytest.raises(SystemExit):
            cli.main(["train", "reverse", "--lr", "none"])
        assert ("argument --lr: invalid" in capsys.readouterr().err) is said


def test_the_help_says_how_several_processes_are_started(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "reverse", "--help"])
    assert "mpiexec -n 4 python -m transformer_c train reverse trains with four processes" in " ".join(capsys.readouterr().out.split())


def test_resuming_by_ranks_that_cannot_share_the_rows(tmp_path, monkeypatch):
    (tmp_path / "options.json").write_text(json.dumps({"task": "reverse", "ranks": 2, "options": vars(TASKS["reverse"].fill({}, None))}))
    parser = argparse.ArgumentParser()
    for size, rows in ((1, 256), (2, 128), (4, 64)):
        monkeypatch.setattr(tc.distributed, "world_size", lambda size=size: size)
        assert train._saved(TASKS["reverse"], tmp_path, {}, parser).batch_size == rows
    monkeypatch.setattr(tc.distributed, "world_size", lambda: 3)
    with pytest.raises(
        CommandError, match=r"steps of 256 rows \(128 on each of 2 ranks\), which 3 ranks cannot share evenly.*mpiexec -n 2"
    ):
        train._saved(TASKS["reverse"], tmp_path, {}, parser)


@needs_mpi
def test_the_script_of_the_documentation(tmp_path):
    script, loop = re.findall(r"```python\n(.*?)```", (HERE.parents[1] / "docs" / "scale.md").read_text(), re.S)
    alike = "\nweights = tc.distributed.all_gather(model[0].weight)\nassert (np.asarray(weights) == np.asarray(weights)[0]).all()\n"
    (tmp_path / "script.py").write_text(f"{script}\n{loop}{alike}")
    out = run(2, ["script.py"], tmp_path)
    (loss,) = re.findall(r"^2 ranks: (\S+)$", out, re.M)
    (last,) = re.findall(r"^2 (0\S+)$", out, re.M)
    assert float(loss) < 0.3 and float(last) < 0.6 and (tmp_path / "run" / "last.safetensors").exists()


# ---- one process ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows, batch", [(0, 2), (1, 2), (12, 2), (13, 2), (17, 4), (5, 3)])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "options", [{}, {"shuffle": True}, {"drop_last": True}, {"sampler": True}, {"unsized": True, "drop_last": True}], ids=str
)
def test_shares_make_up_the_batches_of_one_process(rows, batch, size, options):
    class Unsized(tc.data.IterableDataset):
        def __iter__(self):
            return iter(np.arange(rows))

    def loader(batch):
        own = {"rng": 5, **options}
        if own.pop("sampler", False):
            own["sampler"] = list(range(rows))[::-1]
        return tc.data.DataLoader(Unsized() if own.pop("unsized", False) else np.arange(rows), batch_size=batch, **own)

    if not rows and options.get("shuffle"):
        return
    one, parts = loader(size * batch), [SharedLoader(loader(batch), rank, size) for rank in range(size)]
    for _ in range(2):  # epochs
        whole, shares = [b.tolist() for b in one], [[b.tolist() for b in part] for part in parts]
        assert len(shares[0]) == len(whole)
        if "unsized" not in options:
            assert [len(part) for part in parts] == [len(one)] * size
        for i, rows_of_step in enumerate(whole):
            for rank, share in enumerate(shares):
                assert (share[i] if i < len(share) else []) == rows_of_step[rank::size]


def test_batches_are_dealt_out():
    assert [list(Dealt([1, 2, 3], rank, 2)) for rank in range(2)] == [[1, 3], [2]] and len(Dealt([1, 2, 3], 1, 2)) == 2
    sampled = tc.data.DataLoader(np.arange(5), batch_sampler=[[0], [1, 2], [3, 4]])
    assert [[b.tolist() for b in SharedLoader(sampled, rank, 2)] for rank in range(2)] == [[[0], [3, 4]], [[1, 2]]]


def test_one_rank_is_as_without_a_strategy():
    one, model = training.trained(1, 12, epochs=1)
    ddp, other = training.trained(1, 12, epochs=1, strategy="ddp")
    assert np.array_equal(training.weights(model), training.weights(other)) and one.history == ddp.history
    assert (ddp.global_rank, ddp.world_size, ddp.is_global_zero) == (0, 1, True)


def test_options(monkeypatch):
    with pytest.raises(ValueError, match='strategy must be "ddp", "zero", "auto" or None, got \'fsdp\''):
        tc.Trainer(1, strategy="fsdp")
    for name, hint in (
        ("ddp_find_unused_parameters_true", '"ddp" also takes'),
        ("fsdp", '"zero" shares'),
        ("deepspeed_stage_1", "its stage 1"),
    ):
        with pytest.raises(ValueError, match=hint):
            tc.Trainer(1, strategy=name)
    assert tc.Trainer(1, strategy="auto").strategy is None
    monkeypatch.setenv("PMI_SIZE", "2")
    model = training.Small()
    with pytest.warns(UserWarning, match="a launcher started 2 processes, and with strategy=None each trains by itself"):
        tc.Trainer(1, progress=False, limit_val_batches=0).fit(model, tc.data.DataLoader(training.data(), batch_size=50))
