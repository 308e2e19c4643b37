"""Trainer(strategy="ddp"): several ranks take the steps of one process; rank 0 writes; another number of ranks resumes."""

import json
import pathlib

import numpy as np
import pytest
import training
import transformer_c as tc
from jobs import needs_mpi, run
from transformer_c.trainer.shares import Dealt, SharedLoader

HERE = pathlib.Path(__file__).parent


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_take_the_steps_of_one_process(ranks, tmp_path):
    out = run(ranks, [HERE / "training.py"], tmp_path)
    assert out.splitlines() == [f"{name}: done" for name in (*training.CASES, *(f"by hand, {name}" for name in training.MANUAL))]


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
        paths = distributed.group.Group.exchange(distributed.world.group(), (trainer.best_model_path, trainer.last_model_path, trainer.callbacks[0].best_k_models))
        assert all(path == paths[0] for path in paths), paths
        if distributed.rank() == 0:
            np.save(f"weights_{size}_{epochs}.npy", training.weights(model))
    """
    (tmp_path / "script.py").write_text("import numpy as np, transformer_c as tc\n" + __import__("textwrap").dedent(script))
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
def test_a_run_resumes_in_the_middle_of_an_epoch(tmp_path):
    script = """
        import sys, training
        from transformer_c import distributed
        size = distributed.world_size()

        class Stop(tc.callbacks.Callback):
            def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
                if trainer.global_step == 7:  # in the second epoch of five steps
                    trainer.save_checkpoint("middle.safetensors")

        trainer, model = training.trained(2, 12, 3, callbacks=[training.Late(), Stop()])
        trainer2, model2 = training.trained(2, 12, 3, callbacks=[training.Late()], resume="middle.safetensors")
        assert np.array_equal(training.weights(model), training.weights(model2))
        assert trainer.history == trainer2.history and trainer.step_history == trainer2.step_history
    """
    run(2, script, tmp_path)


@needs_mpi
def test_checkpoints_of_shared_out_state_are_whole(tmp_path):
    script = """
        import training
        from transformer_c import distributed
        from transformer_c.distributed import world
        from transformer_c.trainer.zero import Zero
        size, rank = distributed.world_size(), distributed.rank()
        at_once, whole = training.trained(size, 12, 3, strategy="zero", folder="whole")
        first, _ = training.trained(size, 12, 2, strategy="zero", folder="part")
        files = [tc.load(f"{folder}/last.safetensors")["optimizer"] for folder in ("whole", "part")]
        assert files[0]["state"].keys() == files[1]["state"].keys()
        for strategy in ("zero", "ddp", "zero"):  # the file of either is resumed by the other
            _, model = training.trained(size, 12, 3, strategy=strategy, resume="part/last.safetensors")
            assert np.array_equal(training.weights(model), training.weights(whole))
        module = training.Small()
        optimizer = tc.optim.AdamW(module.parameters())
        zero = Zero(world.group(), optimizer)
        for p in module.parameters():
            p.grad = tc.ones(p.shape)
        numbers = sum(p.numel() for p in module.parameters())
        before = zero._group.sent
        zero.sum_gradients([True] * len(list(module.parameters())), None, "norm")
        zero.step()
        least = 2 * (size - 1) * 4 * numbers / size
        assert least - 8 * size <= zero._group.sent - before <= least + 8 * size
        assert zero.state_bytes() <= 2 * 4 * (numbers // size + 1), "exp_avg and exp_avg_sq of one part"
        plain, strided = training.Small(), training.Small()
        strided.load_state_dict(plain.state_dict())
        for p in strided.parameters():
            if p.ndim == 2:  # also of parts that other ranks have
                p.data = tc.tensor(np.asarray(p.detach()).T.copy()).T
        for module in (plain, strided):
            zero = Zero(world.group(), tc.optim.AdamW(module.parameters(), lr=0.1))
            for p in module.parameters():
                p.grad = tc.ones(p.shape)
            zero.sum_gradients([True] * len(list(module.parameters())), None, "norm")
            zero.step()
        assert np.array_equal(training.weights(plain), training.weights(strided))
        try:
            class Own(tc.optim.SGD):
                pass
            Zero(world.group(), Own(module.parameters()))
        except ValueError as error:
            assert "shares out the state of SGD, Adam" in str(error)
        else:
            raise AssertionError
    """
    run(3, script, tmp_path)


@needs_mpi
def test_bytes_of_a_step(tmp_path):
    """2 (n - 1) / n of the gradients per rank, with either strategy."""
    script = """
        import training
        from transformer_c import distributed
        group, size = distributed.world.group(), distributed.world_size()
        for strategy in ("ddp", "zero"):
            sent = []
            class Count(tc.callbacks.Callback):
                def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
                    sent.append(group.sent)
            trainer, model = training.trained(size, 12, 1, strategy=strategy, callbacks=[Count()])
            numbers = sum(p.numel() for p in model.parameters())
            least = 2 * (size - 1) / size * 4 * numbers
            lengths = 8 * (size - 1)  # of the batches
            for before, after in zip(sent, sent[1:]):
                assert abs(after - before - lengths - least) <= 8 * size, (strategy, after - before, least)
    """
    run(3, script, tmp_path)


@needs_mpi
def test_manual_optimization(tmp_path):
    """A run with gradients that no step has used resumes, also with another number of ranks; ranks that part are told so, on all of them."""
    script = """
        import training
        from transformer_c import distributed
        rank = distributed.rank()

        class Stop(tc.callbacks.Callback):
            def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
                if (trainer.current_epoch, batch_idx) == (1, 2):  # of an epoch of five batches: a step, and gradients of the next
                    trainer.save_checkpoint("middle.safetensors")

        for strategy in ("ddp", "zero"):
            options = dict(kind=training.Manual, strategy=strategy)
            trainer, model = training.trained(2, 12, 3, callbacks=[Stop()], **options)
            assert len(tc.load("middle.safetensors")["gradients"]) > 10
            again, twin = training.trained(2, 12, 3, resume="middle.safetensors", **options)
            assert np.array_equal(training.weights(model), training.weights(twin)) and trainer.step_history == again.step_history
            one, alone = training.trained(1, 12, 3, resume="middle.safetensors", kind=training.Manual)
            training.close(training.weights(model), training.weights(alone), 1e-5)

        class Wrong(training.Manual):
            def training_step(self, batch, batch_idx):
                loss, optimizer = training.Small.training_step(self, batch, batch_idx), self.optimizers()
                if self.how == "nan":
                    self.manual_backward(loss * (float("nan") if rank else 1))
                elif self.how == "local":
                    loss.backward()
                    optimizer.step()
                elif self.how == "parted":
                    if rank:
                        self.manual_backward(loss)
                    optimizer.step()
                elif self.how == "ended" and rank:
                    self.manual_backward(loss)

        for Wrong.how, kind, message in (
            ("nan", FloatingPointError, "the loss is nan in epoch 1, batch 1, after 0 steps"),
            ("local", RuntimeError, "the gradients of optimizer 0 are not the same on all ranks, in epoch 1, batch 1"),
            ("parted", RuntimeError, "rank 0 is at step() of optimizer 0, rank 1 at manual_backward()"),
            ("ended", RuntimeError, "rank 0 is at the end of a step, rank 1 at manual_backward()"),
        ):
            try:
                training.trained(2, 12, 1, kind=Wrong)
            except kind as error:
                assert message in str(error), error
            else:
                raise AssertionError(f"no error: {Wrong.how}")
    """
    run(2, script, tmp_path)


DIFFERENT = {
    "model": ("model = Net(4 + rank)", "weight is float32 (4, 4) on rank 0 but float32 (5, 4) on rank 1"),
    "dtype": ("model = Net(4).to('float64' if rank else 'float32')", "weight is float32 (4, 4) on rank 0 but float64 (4, 4) on rank 1"),
    "data": ("rows = 10 + rank", "len(train.dataset) is 10 on rank 0 but 11 on rank 1"),
    "batch": ("batch = 2 + rank", "train.batch_size is 2 on rank 0 but 3 on rank 1"),
    "option": ("options = dict(gradient_clip_val=1.0 + rank)", "gradient_clip_val is 1.0 on rank 0 but 2.0 on rank 1"),
    "rate": ("model = Net(4, 0.1 + rank)", "optimizer 0 is"),
    "names": ("model = Net(4)\nif rank: model.other = tc.nn.Linear(1, 1)", "other.weight is missing on rank 0 but"),
}  # fmt: skip


@needs_mpi
def test_what_differs_between_ranks_is_found_at_the_start(tmp_path):
    """On all ranks, so that a program may catch it and go on."""
    script = """
        import json
        from transformer_c import distributed
        rank = distributed.rank()

        class Net(tc.TrainingModule):
            def __init__(self, size, lr=0.1):
                super().__init__()
                self.linear, self.lr = tc.nn.Linear(4, size), lr
            def training_step(self, batch, batch_idx):
                return self.linear(batch).square().mean()
            def configure_optimizers(self):
                return tc.optim.SGD(self.parameters(), lr=self.lr)

        for change, message in json.load(open("cases.json")).values():
            rows, batch, options, model = 10, 2, {}, Net(4)
            exec(change)
            try:
                tc.Trainer(1, strategy="ddp", progress=False, **options).fit(model, tc.data.DataLoader(np.ones((rows, 4), "f"), batch_size=batch))
            except ValueError as error:
                assert message in str(error), error
            else:
                raise AssertionError(f"no error: {change}")
    """
    (tmp_path / "cases.json").write_text(json.dumps(DIFFERENT))
    run(2, script, tmp_path)


@needs_mpi
def test_command_line(tmp_path):
    few = ["--epochs", 1, "--train-size", 300, "--val-size", 64, "--test-size", 64, "--no-progress"]
    out = run(2, ["-m", "transformer_c", "train", "reverse", *few, "--batch-size", 32], tmp_path)
    assert out.count("best epoch: 1 of 1") == 1 and "4 batches on each of 2 ranks" in out, out
    again = run(2, ["-m", "transformer_c", "train", "reverse", "--resume", "--no-progress"], tmp_path)
    assert "going on from the last checkpoint" in again


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
    assert tc.Trainer(1, strategy="auto").strategy is None
    monkeypatch.setenv("PMI_SIZE", "2")
    model = training.Small()
    with pytest.warns(UserWarning, match="a launcher started 2 processes, and with strategy=None each trains by itself"):
        tc.Trainer(1, progress=False, limit_val_batches=0).fit(model, tc.data.DataLoader(training.data(), batch_size=50))
