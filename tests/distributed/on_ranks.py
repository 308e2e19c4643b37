"""Checks that several ranks do together: mpiexec -n 2 python on_ranks.py; each says that it is done."""

import itertools
import os
import signal
import tempfile
import time
import warnings

import numpy as np
import training
import transformer_c as tc
from training import Closing, Late, Manual, Small, Two, close, trained, weights
from transformer_c import distributed
from transformer_c.checkpoint.files import held_by_one
from transformer_c.distributed import world
from transformer_c.trainer.zero import Zero

CASES = {
    "plain": {},
    "uneven": {"rows": 53},  # the last step has rows for some ranks only
    "fewer rows than ranks": {"rows": 25},  # a rank has none in the last step
    "dropout": {"dropout": 0.3},
    "uneven with dropout": {"dropout": 0.2, "rows": 53},
    "unused": {"unused": True},
    "accumulated": {"accumulate_grad_batches": 3},
    "clipped": {"gradient_clip_val": 0.05},
    "not clipped": {"gradient_clip_val": 100.0},
    "clipped by value": {"gradient_clip_val": 0.001, "gradient_clip_algorithm": "value"},
    "limited": {"limit_train_batches": 2, "limit_val_batches": 1},
    "float64": {"dtype": "float64"},
    "late values": {"callbacks": Late},
    "one row": {"callbacks": Late, "rows": 1},  # the other ranks never have one
    "by hand": {"kind": Manual, "rows": 53},
    "by hand, with a closure": {"kind": Closing, "dropout": 0.2},
    "by hand, fewer rows than ranks": {"kind": Closing, "rows": 25},
    "by hand, unused": {"kind": Closing, "unused": True},
    "by hand, two optimizers": {"kind": Two, "rows": 53, "dropout": 0.2, "unused": True},
}
ZERO = (
    "plain",
    "uneven",
    "unused",
    "accumulated",
    "float64",
    "clipped",
    "not clipped",
    "clipped by value",
    *(name for name in CASES if "by hand" in name),
)


class Result:
    """What a training of a case gave."""

    def __init__(self, name, size, **options):
        case = {"epochs": 2, **CASES[name], **options}
        if "callbacks" in case:
            case["callbacks"] = [case["callbacks"]()]
        trainer, model = trained(size, 12, **case)
        self.step, self.step_history, self.history = trainer.global_step, trainer.step_history, trainer.history
        self.metrics = dict(trainer.callback_metrics)
        self.seen = [callback.seen for callback in trainer.callbacks]
        self.weights = weights(model)
        self.test = trainer.test(model, tc.data.DataLoader(training.data(17, 1), batch_size=4), verbose=False)[0]
        if options:
            for optimizer in trainer.optimizers:
                assert not optimizer.state and "step" not in vars(optimizer), "the state is shared out, and the optimizer is as it was"


def cases(size, rank):
    """Values by step and epoch, and weights, are those of one process; two runs give the same bits, and so does a state that is shared out."""
    own = {name: Result(name, 1) for name in list(CASES)[rank::size]}  # each rank some
    found = world.group().exchange("the cases of one process", own)
    for name in CASES:
        one, several = next(part[name] for part in found if name in part), Result(name, size)
        shared = Result(name, size, strategy="zero") if name in ZERO else None
        again = Result(name, size) if shared is None or name == "clipped" else shared
        assert several.step == one.step and several.step_history == again.step_history and several.history == again.history
        assert several.step_history.keys() - one.step_history.keys() == ({"of one rank"} if "callbacks" in CASES[name] else set())
        for key, values in one.step_history.items():
            assert [step for step, _ in several.step_history[key]] == [step for step, _ in values], (name, key)
            close([value for _, value in several.step_history[key]], [value for _, value in values])
        for key in ("train_loss", "val_loss", "train_acc"):
            close(one.history[key], several.history[key])
        for key, value in {**one.metrics, **one.test}.items():
            close([value], [{**several.metrics, **several.test}[key]])
        close(one.seen, several.seen)
        close(one.weights, several.weights, 1e-5)
        assert np.array_equal(several.weights, again.weights)
        everywhere = distributed.all_gather(several.weights)
        assert (everywhere == everywhere[0]).all(), "the weights of all ranks are the same bits"
        if name == "clipped":  # the sum of its norm is in another order
            close(several.weights, shared.weights)
            assert shared.step_history.keys() == several.step_history.keys() and shared.history.keys() == several.history.keys()
        say(f"  {name}")


def halves(size, rank):
    """Their gradients are rounded on each rank, so that the numbers are not those of one process; the strategies give the same bits."""
    (_, ddp), (_, zero) = (trained(size, 12, 2, dtype="bfloat16", strategy=strategy) for strategy in ("ddp", "zero"))
    assert np.array_equal(weights(ddp), weights(zero))
    assert (distributed.all_gather(weights(zero)) == weights(zero)).all()
    close(weights(ddp), weights(trained(1, 12, 2, dtype="bfloat16")[1]), 0.05)


def streams_of_rank_0(size, rank):
    """Weights, shuffles and dropout masks are those of rank 0, whatever the seeds of the others."""

    def seeded(*args):
        tc.manual_seed(5 + rank)
        return Small(*args)

    one, several = (trained(ranks, 12, 2, kind=seeded, dropout=0.3, seed=None) for ranks in (1, size))
    of_rank_0 = distributed.broadcast(weights(one[1]))
    close(of_rank_0, weights(several[1]), 1e-5)
    assert not rank or np.abs(weights(one[1]) - of_rank_0).max() > 0.1


def what_lightning_says(size, rank):
    """`devices` may be the number of ranks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert tc.Trainer(1, accelerator="cpu", devices=size, num_nodes=1, strategy="ddp", use_distributed_sampler=True).world_size == size
    fails(ValueError, f"devices=5 asks for 5 processes, and there are {size}", lambda: tc.Trainer(1, devices=5, strategy="ddp"))


def samplers_of_the_program(size, rank):
    """A loader with a DistributedSampler is taken as it is."""

    def fitted(ranks, sampler):
        tc.manual_seed(7)
        model, trainer = Small(), tc.Trainer(2, strategy="ddp" if ranks > 1 else None, progress=False, limit_val_batches=0)
        trainer.fit(model, tc.data.DataLoader(training.data(48), batch_size=12 // ranks, sampler=sampler))
        return weights(model)

    class Unseeded(tc.data.Sampler):
        def __iter__(self):
            return iter(np.random.default_rng().permutation(48).tolist())

        def __len__(self):
            return 48

    class Batches(Unseeded):
        def __iter__(self):
            return iter(np.random.default_rng().permutation(48).reshape(12, 4).tolist())

        def __len__(self):
            return 12

    for own in ({"sampler": Unseeded(), "batch_size": 4}, {"batch_sampler": Batches()}):
        loader, trainer = tc.data.DataLoader(training.data(48), **own), tc.Trainer(2, strategy="ddp", progress=False, limit_val_batches=0)
        message = "the train loader's sampler gives another order on rank 1"
        fails(ValueError, message, lambda loader=loader, trainer=trainer: trainer.fit(Small(), loader))
    other = tc.data.DistributedSampler(range(48), size, 0)
    fails(ValueError, f"on rank 1 of {size} is that of rank 0 of {size}", lambda: fitted(size, other))
    order = tc.data.DistributedSampler(range(48), 1, 0, shuffle=False)
    shares = tc.data.DistributedSampler(range(48), size, rank, shuffle=False)
    close(fitted(1, order), fitted(size, shares), 1e-5)


class Save(tc.callbacks.Callback):
    """Saves after the batch of a number in the second epoch."""

    def __init__(self, batch):
        self.batch = batch

    def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
        if (trainer.current_epoch, batch_idx) == (1, self.batch):
            trainer.save_checkpoint("middle.safetensors")


def resuming_in_the_middle_of_an_epoch(size, rank):
    trainer, model = trained(size, 12, 3, callbacks=[Late(), Save(1)])
    again, twin = trained(size, 12, 3, callbacks=[Late()], resume="middle.safetensors")
    assert np.array_equal(weights(model), weights(twin))
    assert trainer.history == again.history and trainer.step_history == again.step_history


class Stop(tc.callbacks.Callback):
    """Stops on one rank only."""

    def __init__(self, hook):
        setattr(self, hook, lambda trainer, *args: setattr(trainer, "should_stop", distributed.rank() == 1))


def stopping_on_one_rank(size, rank):
    """All stop: at the end of the step, or of the next one where the ranks had exchanged their values."""
    for hook, steps in (("on_train_batch_start", [1]), ("on_train_batch_end", [2]), ("on_train_epoch_end", [5]), ("on_train_start", [])):
        trainer, _ = trained(size, 12, 3, callbacks=[Stop(hook)])
        assert trainer.should_stop and trainer.history.get("step", []) == steps, (hook, trainer.history)


def values_of_some_ranks(size, rank):
    """They are those of all, under all of their names, so that ranks that logged nothing do as the others."""

    class Some(Small):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            if rank:
                self.log("n", float(rank), reduce_fx="sum")
            self.log("root", loss, on_step=True, on_epoch=True, rank_zero_only=True)
            return loss

        def configure_optimizers(self):
            optimizer = tc.optim.SGD(self.parameters(), lr=0.1)
            schedule = tc.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=10.0)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, **self.monitored}}

    for Some.monitored, steps in (({"monitor": "root_epoch"}, 2), ({"monitor": "root_step", "interval": "step"}, 8)):
        trainer, model = trained(size, 12, 2, rows=48, kind=Some)
        assert trainer.history["n"] == [4.0 * sum(range(size))] * 2, trainer.history["n"]
        assert trainer.run.schedulers[0].last_epoch == steps
        everywhere = distributed.all_gather(weights(model))
        assert (everywhere == everywhere[0]).all()


def stopping_after_steps(size, rank):
    """As with one process, also where some ranks have no rows left."""
    for rows, most, options in ((50, 3, {}), (53, 5, {}), (25, 6, {}), (50, 4, {"accumulate_grad_batches": 2})):
        (one, own), (several, model) = (trained(n, 12, -1, rows=rows, max_steps=most, **options) for n in (1, size))
        assert several.history["step"] == one.history["step"] and several.global_step == most
        close(one.history["train_loss"], several.history["train_loss"])
        close(weights(own), weights(model), 1e-5)


def saving(size, rank):
    """The file is there for all ranks once save_checkpoint() returns; where it cannot be written, all are told."""
    trainer, _ = trained(size, 12, 1)
    write = trainer._write_checkpoint

    def late(*args):
        time.sleep(0 if rank else 0.2)
        write(*args)

    trainer._write_checkpoint = late
    trainer.save_checkpoint("saved.safetensors")
    assert tc.load("saved.safetensors")["trainer"]["epoch"] == 1
    fails(RuntimeError if rank else OSError, "Not a directory", lambda: trainer.save_checkpoint("saved.safetensors/another"))

    class WritesAtTheEnd(tc.callbacks.Callback):
        def on_train_end(self, trainer, model):
            if trainer.is_global_zero:
                time.sleep(0.2)
                open("at the end", "w").close()

    trained(size, 12, 1, callbacks=[WritesAtTheEnd()])
    open("at the end").close()


def resuming_with_gradients(size, rank):
    """With those of a batch that no step has used; also with another number of ranks."""
    for strategy in ("ddp", "zero"):
        options = dict(kind=Manual, strategy=strategy)
        trainer, model = trained(size, 12, 3, callbacks=[Save(2)], **options)
        assert len(tc.load("middle.safetensors")["gradients"]) > 10
        again, twin = trained(size, 12, 3, resume="middle.safetensors", **options)
        assert np.array_equal(weights(model), weights(twin)) and trainer.step_history == again.step_history
        _, alone = trained(1, 12, 3, resume="middle.safetensors", kind=Manual)
        close(weights(model), weights(alone), 1e-5)
        distributed.barrier()  # all have read the file


class Parting(Manual):
    """Ranks that do not take the same steps."""

    how = ""

    def training_step(self, batch, batch_idx):
        loss, optimizer, rank = Small.training_step(self, batch, batch_idx), self.optimizers(), distributed.rank()
        if self.how == "nan":
            self.manual_backward(loss * (float("nan") if rank else 1))
        elif self.how == "local":
            loss.backward()
            optimizer.step()
        elif rank and self.how == "saves":
            self.trainer.save_checkpoint("of one rank.safetensors")
        elif rank and self.how == "adds":
            distributed.all_reduce(loss)
        elif rank or self.how in ("saves", "adds"):
            self.manual_backward(loss)
        elif self.how == "other steps":
            optimizer.step()


def ranks_that_part(size, rank):
    """They are told so, all of them, and may go on with something else."""
    for Parting.how, kind, message in (
        ("nan", FloatingPointError, "the loss is nan in epoch 1, batch 1, after 0 steps"),
        ("local", RuntimeError, "the gradients of optimizer 0 are not the same on all ranks, in epoch 1, batch 1"),
        ("other steps", RuntimeError, "rank 0 is at step() of optimizer 0, rank 1 at manual_backward()"),
        ("saves", RuntimeError, "rank 0 is at manual_backward(), rank 1 at save_checkpoint()"),
        ("adds", RuntimeError, "rank 0 is at manual_backward(), rank 1 at a call of tc.distributed"),
        ("no step", RuntimeError, "rank 0 is at the end of a step, rank 1 at manual_backward()"),
    ):
        fails(kind, message, lambda: trained(size, 12, 1, kind=Parting))


class Net(tc.TrainingModule):
    """One layer."""

    def __init__(self, width=4, lr=0.1):
        super().__init__()
        self.linear, self.lr = tc.nn.Linear(4, width), lr

    def training_step(self, batch, batch_idx):
        return self.linear(batch).square().mean()

    def configure_optimizers(self):
        return tc.optim.SGD(self.parameters(), lr=self.lr)


def with_another(model, other=None):
    """A model with one more layer."""
    model.other = tc.nn.Linear(1, 1) if other is None else other
    return model


class Scheduled(Net):
    """With a schedule of a factor."""

    def __init__(self, gamma, interval="epoch"):
        super().__init__()
        self.gamma, self.interval = gamma, interval

    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        scheduler = tc.optim.lr_scheduler.StepLR(optimizer, 1, self.gamma)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}


def what_differs_at_the_start(size, rank):
    """It is found on all ranks, so that a program may catch it and go on."""
    stops = [tc.callbacks.EarlyStopping("train_loss")]
    for message, model, rows, batch, options in (
        ("weight is float32 (4, 4) on rank 0 but float32 (5, 4) on rank 1", Net(4 + rank), 10, 2, {}),
        ("weight is float32 (4, 4) on rank 0 but float64 (4, 4) on rank 1", Net().to("float64" if rank else "float32"), 10, 2, {}),
        ("len(train.dataset) is 10 on rank 0 but 11 on rank 1", Net(), 10 + rank, 2, {}),
        ("train.batch_size is 2 on rank 0 but 3 on rank 1", Net(), 10, 2 + rank, {}),
        ("gradient_clip_val is 1.0 on rank 0 but 2.0 on rank 1", Net(), 10, 2, {"gradient_clip_val": 1.0 + rank}),
        ("optimizer 0 is", Net(4, 0.1 + rank), 10, 2, {}),
        ("other.weight is missing on rank 0 but", with_another(Net()) if rank else Net(), 10, 2, {}),
        ("other is GELU(approximate='none') on rank 0 but ReLU()", with_another(Net(), tc.nn.ReLU() if rank else tc.nn.GELU()), 10, 2, {}),
        ("other is Dropout(p=0.0", with_another(Net(), tc.nn.Dropout(0.5 * rank)), 10, 2, {}),
        ("scheduler 0 is", Scheduled(0.5 + 0.3 * rank), 10, 2, {}),
        ("schedule 0 is", Scheduled(0.5, "step" if rank else "epoch"), 10, 2, {}),
        ("callbacks that all ranks need is ['EarlyStopping'] on rank 0 but []", Net(), 10, 2, {"callbacks": stops[rank:]}),
        ("whether checkpoint_dir is given is True on rank 0 but False", Net(), 10, 2, {"checkpoint_dir": None if rank else "of one rank"}),
    ):
        trainer = tc.Trainer(1, strategy="ddp", progress=False, **options)
        data = tc.data.DataLoader(np.ones((rows, 4), "f"), batch_size=batch)
        fails(ValueError, message, lambda trainer=trainer, model=model, data=data: trainer.fit(model, data))
    with tempfile.TemporaryDirectory() as folder, held_by_one(folder):
        trainer = tc.Trainer(1, strategy="ddp", progress=False, checkpoint_dir=folder)
        data = tc.data.DataLoader(np.ones((10, 4), "f"), batch_size=2)
        fails(RuntimeError, "another run is writing to", lambda: trainer.fit(Net(), data))
    few = tc.data.DataLoader(np.ones((3, 4), "f"), batch_size=2, drop_last=True)
    trainer = tc.Trainer(1, strategy="ddp", progress=False)
    fails(ValueError, f"train has 0 batches on each of {size} ranks, which need ranks times batch_size", lambda: trainer.fit(Net(), few))
    spoilt = tc.data.DataLoader(np.array([[1.0] * 4, [np.nan] * 4] + [[1.0] * 4] * (size - 2), "f"), batch_size=1)
    fails(FloatingPointError, "the loss is nan on rank 1 at step 1", lambda: trainer.fit(Net(), spoilt))


class Jittered(tc.data.TensorDataset):
    """Samples that are random, the same arrays beneath."""

    def __getitems__(self, indices):
        return (self.tensors[0][indices] + float(np.random.default_rng().normal()),)


class Kept(tc.data.Dataset):
    """A class of the program, with an array that differs."""

    def __init__(self, rows, cache):
        self.rows, self.cache = rows, cache

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def data_that_differ(size, rank):
    """Splits without a seed are found on all ranks; what may be meant so is a warning of rank 0; random samples are neither."""
    rows = np.random.default_rng(0).random((40, 4)).astype("f")
    own = np.random.default_rng(rank).permutation(40)
    half, same, tensors = own[:20].tolist(), list(range(20)), tc.data.TensorDataset(rows)
    subset, unlike = tc.data.Subset(rows, half), tc.data.TensorDataset(rows[own])
    loader = tc.data.DataLoader

    def fit(train, val=None):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tc.Trainer(1, strategy="ddp", progress=False, limit_val_batches=0 if val is None else None).fit(Net(), train, val)
        caught = [warning for warning in caught if "rank" in str(warning.message)]
        assert all(warning.filename == __file__ for warning in caught)
        return [str(warning.message) for warning in caught]

    for name, train in (
        ("train.dataset.indices", loader(subset, 4)),
        ("train.dataset", loader(rows[own], 4)),
        ("train.dataset", loader(list(rows[own]), 4)),
        ("train.dataset.datasets[1].indices", loader(tc.data.ConcatDataset([rows, subset]), 4)),
        ("train.dataset.rows.indices", loader(Kept(subset, None), 4)),
        ("train.dataset.tensors", loader(Jittered(rows[own]), 4)),
        ("train.sampler.indices", loader(rows, 4, sampler=tc.data.SubsetRandomSampler(half))),
        ("train.batch_sampler", loader(rows, batch_sampler=own.reshape(10, 4).tolist())),
        ("train", list(rows[own].reshape(10, 4, 4))),
    ):
        fails(ValueError, f"{name} differs between rank 0 and rank 1", lambda train=train: fit(train))
    fails(ValueError, "give what is random there a seed", lambda: fit(loader(subset, 4)))
    test = Net()
    test.test_step = test.training_step
    trainer = tc.Trainer(1, strategy="ddp", progress=False)
    fails(ValueError, "dataloaders[0].dataset.tensors differs", lambda: trainer.test(test, loader(unlike, 4)))

    cached = fit(loader(Kept(rows, own), 4))
    assert len(cached) == (rank == 0) and (rank or "train.dataset.cache differs between rank 0 and rank 1" in cached[0]), cached
    random = Jittered(rows)
    for legal in (random, tensors, rows, tc.data.Subset(random, same), Kept(rows, {3, rank}), Kept(rows, np.random.default_rng(rank))):
        assert fit(loader(legal, 4, collate_fn=(lambda s: np.stack([np.ravel(v)[:4] for v in s])))) == []

    class Stream(tc.data.IterableDataset):
        def __init__(self, first, step, noise=0.0):
            self.range, self.noise = (first, len(rows), step), noise

        def __iter__(self):
            return ((rows[i] + self.noise, i) for i in range(*self.range))

    class Once:
        def __init__(self, own):
            self.first = own

        def __iter__(self):
            return iter(rows[self.first :: 2].reshape(-1, 4, 4)[:4])

    class Labelled(Net):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch[0], batch_idx)

    def read(stream, model, text="other samples"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tc.Trainer(2, strategy="ddp", progress=False).fit(model, stream)
        return [str(warning.message) for warning in caught if text in str(warning.message)]

    class Some(tc.data.IterableDataset):
        def __init__(self, rows):
            self.rows = rows

        def __iter__(self):
            return iter(self.rows)

    for few, which in ((rank == 0, "more"), (rank != 0, "fewer")):
        said = read(loader(Some(rows[: 4 * size + 1] if few else rows), 2), Net(), "than on rank 0: each rank takes")
        assert len(said) == (rank == 0) and (rank or f"train (Some) has {which} samples on rank 1" in said[0]), said
    for alike in (Some(rows), Some(rows[: 4 * size + 1])):
        assert not read(loader(alike, 2), Net(), "than on rank 0")
    said = read(loader(Stream(rank, size), 2), Labelled()), read(Once(rank % 2), Net())
    assert [len(part) for part in said] == [rank == 0] * 2, said
    assert rank or ("train (Stream) begins with other samples on rank 1" in said[0][0] and "train (Once)" in said[1][0]), said
    assert not read(loader(Stream(0, 1, noise=float(rank)), 2), Labelled()) and not read(Once(0), Net())


def checkpoints_of_shared_out_state(size, rank):
    """They are whole: the file of either strategy is resumed by the other."""
    _, whole = trained(size, 12, 3, strategy="zero", folder="whole")
    trained(size, 12, 2, strategy="zero", folder="part")
    files = [tc.load(f"{folder}/last.safetensors")["optimizer"] for folder in ("whole", "part")]
    assert files[0]["state"].keys() == files[1]["state"].keys()
    for strategy in ("zero", "ddp", "zero"):
        _, model = trained(size, 12, 3, strategy=strategy, resume="part/last.safetensors")
        assert np.array_equal(weights(model), weights(whole))


def steps_of_shared_out_state(size, rank):
    """The state of a rank is that of its part; bytes and numbers of a step, for parameters of any strides."""
    plain, strided = Small(), Small()
    strided.load_state_dict(plain.state_dict())
    for p in strided.parameters():
        if p.ndim == 2:  # also of parts that other ranks have
            p.data = tc.tensor(np.asarray(p.detach()).T.copy()).T
    for module in (plain, strided):
        parameters = list(module.parameters())
        zero, group = Zero(world.group(), tc.optim.AdamW(parameters, lr=0.1)), world.group()
        for p in parameters:
            p.grad = tc.ones(p.shape)
        numbers, before = sum(p.numel() for p in parameters), group.sent
        zero.sum_gradients([True] * len(parameters), None, "norm")
        zero.step()
        least = 2 * (size - 1) * 4 * numbers / size
        assert least - 8 * size <= group.sent - before <= least + 8 * size
        assert zero.state_bytes() <= 2 * 4 * (numbers // size + 1), "exp_avg and exp_avg_sq of one part"
    assert np.array_equal(weights(plain), weights(strided))

    class Own(tc.optim.SGD):
        pass

    fails(ValueError, "shares out the state of SGD, Adam", lambda: Zero(world.group(), Own(plain.parameters())))


def a_gradient_of_one_rank(size, rank):
    """All ranks take its step, whichever rank has it."""
    rows = np.ones((4 * size, 4), "f")
    for only in range(size):

        class Rare(Net):
            def training_step(self, batch, batch_idx):
                loss = super().training_step(batch, batch_idx)
                return loss + self.other(batch).square().mean() if rank == only else loss

        model = with_another(Rare(), tc.nn.Linear(4, 1))
        before = np.asarray(distributed.broadcast(model.other.weight))
        tc.Trainer(1, strategy="ddp", progress=False).fit(model, tc.data.DataLoader(rows, batch_size=4))
        everywhere = np.asarray(distributed.all_gather(model.other.weight))
        assert (everywhere == everywhere[0]).all() and (everywhere[0] != before).all(), only


def an_infinite_gradient_of_one_rank(size, rank):
    """It is found on all, which keep their weights."""

    class Infinite(Net):
        def training_step(self, batch, batch_idx):
            h = self.linear(batch)
            return (h - h if rank == 1 else h.square() + 1).sqrt().mean()

    for strategy in ("ddp", "zero"):
        model, data = Infinite(), tc.data.DataLoader(np.ones((2 * size, 4), "f"), batch_size=2)
        trainer = tc.Trainer(1, strategy=strategy, progress=False, gradient_clip_val=1.0)
        fails(FloatingPointError, "the gradient of linear.weight is not finite at step 1", lambda: trainer.fit(model, data))
        assert np.isfinite(weights(model)).all()


def testing_with_fewer_rows_than_ranks(size, rank):
    """Those that have none get the metrics as well."""

    class Measured(Net):
        def __init__(self):
            super().__init__()
            self.metric = tc.metrics.Accuracy()

        def test_step(self, batch, batch_idx):
            self.metric(self.linear(batch), np.zeros(len(batch), int))
            self.log("metric", self.metric)

    trainer = tc.Trainer(1, strategy="ddp", progress=False)
    found = trainer.test(Measured(), tc.data.DataLoader(np.ones((1, 4), "f"), batch_size=1), verbose=False)
    assert list(found[0]) == list(trainer.callback_metrics) == ["metric"], (rank, found)


def an_interrupt_of_one_rank(size, rank):
    """It stops all at the end of the same step."""
    for only in range(size):

        class Interrupt(tc.callbacks.Callback):
            def on_train_batch_start(self, trainer, model, batch, batch_idx):
                if batch_idx == 1 and rank == only:
                    os.kill(os.getpid(), signal.SIGINT)

        fails(KeyboardInterrupt, "interrupted in epoch 1 after batch 2", lambda: trained(size, 12, 2, callbacks=[Interrupt()]))


class Buffered(Net):
    """With a random buffer that is in no checkpoint, and one that steps change."""

    def __init__(self):
        super().__init__()
        self.register_buffer("noise", tc.tensor(np.random.default_rng(distributed.rank()).random(4).astype("f")), persistent=False)
        self.register_buffer("mean", tc.zeros(4))

    def training_step(self, batch, batch_idx):
        with tc.no_grad():
            self.mean.copy_(0.9 * self.mean + 0.1 * batch.mean(0))
        return super().training_step((batch - self.mean) * self.noise, batch_idx)

    def validation_step(self, batch, batch_idx):
        assert (distributed.all_gather(self.mean).numpy() == self.mean.numpy()).all()


def buffers(size, rank):
    """They are rank 0's at the start, in validations and in files, so that a run that is resumed in the middle of an epoch has the same bits."""
    rows = np.random.default_rng(0).random((48, 4)).astype("f")

    def fitted(resume=None, callbacks=()):
        tc.manual_seed(5 + rank)
        model = Buffered()
        trainer = tc.Trainer(3, strategy="ddp", progress=False, checkpoint_every_n_steps=1, callbacks=list(callbacks), seed=3)
        loader = tc.data.DataLoader(rows, batch_size=12 // size, shuffle=True)
        trainer.fit(model, loader, tc.data.DataLoader(rows, batch_size=12), resume=resume)
        everywhere = distributed.all_gather(np.concatenate([weights(model), model.noise.numpy()]))
        assert (everywhere == everywhere[0]).all()
        return everywhere[0]

    assert np.array_equal(fitted(callbacks=[Save(1)]), fitted("middle.safetensors"))


def changes_around_shared_out_state(size, rank):
    """Other memory of a parameter counts, as with "ddp"; what cannot count is an error."""

    class Halved(Small):
        def on_train_epoch_start(self):
            if self.trainer.current_epoch == 1:
                for p in self.parameters():
                    p.data = self.halve(p.detach())

    class Before(Small):
        def on_before_optimizer_step(self, optimizer):
            tc.nn.utils.clip_grad_norm_(self.parameters(), 1e-3)

    class After(Small):
        change = staticmethod(lambda p: setattr(p, "grad", p.grad * 2))

        def on_after_backward(self):
            if self.trainer.global_step == 2:  # not in the first of the epoch
                self.change(self.head.weight)

    class Negated(After):
        change = staticmethod(lambda p: p.grad.mul_(-1))

    class Dropped(After):
        change = staticmethod(lambda p: setattr(p, "grad", None))

    class Twice(Small):
        def optimizer_step(self, epoch, batch_idx, optimizer, closure):
            optimizer.step(closure)
            optimizer.step()

    class Added(Small):
        def on_train_epoch_start(self):
            self.add_module("extra", tc.nn.Linear(4, 4))
            self.trainer.optimizers[0].add_param_group({"params": list(self.extra.parameters())})

    for halve in (lambda value: value * 0.5, lambda value: (value.T * 0.5).contiguous().T if value.ndim == 2 else value):
        Halved.halve = staticmethod(halve)
        both = [weights(trained(size, 12, 2, kind=Halved, strategy=strategy)[1]) for strategy in ("ddp", "zero")]
        assert np.array_equal(*both), np.abs(both[0] - both[1]).max()
    for kind, message in (
        *((kind, "which would not count") for kind in (Before, After, Negated, Dropped)),
        (Twice, "takes one step of each backward"),
        (Added, "some were added, cast or moved"),
    ):
        fails(RuntimeError, message, lambda kind=kind: trained(size, 12, 1, kind=kind, strategy="zero"))


def bytes_of_a_step(size, rank):
    """2 (n - 1) / n of the gradients per rank, with either strategy."""
    group = world.group()

    class Count(tc.callbacks.Callback):
        def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
            sent.append(group.sent)

    for strategy in ("ddp", "zero"):
        sent = []
        _, model = trained(size, 12, 1, strategy=strategy, callbacks=[Count()])
        least = 2 * (size - 1) / size * 4 * sum(p.numel() for p in model.parameters())
        lengths = 8 * (size - 1)  # of the batches
        for before, after in itertools.pairwise(sent):
            assert abs(after - before - lengths - least) <= 8 * size, (strategy, after - before, least)


def fails(kind, message, call):
    """The call raises this error."""
    try:
        call()
    except kind as error:
        assert message in str(error), error
    else:
        raise AssertionError(f"no error: {message}")


CHECKS = (
    cases,
    halves,
    streams_of_rank_0,
    what_lightning_says,
    samplers_of_the_program,
    resuming_in_the_middle_of_an_epoch,
    stopping_on_one_rank,
    stopping_after_steps,
    values_of_some_ranks,
    saving,
    a_gradient_of_one_rank,
    an_infinite_gradient_of_one_rank,
    testing_with_fewer_rows_than_ranks,
    an_interrupt_of_one_rank,
    resuming_with_gradients,
    ranks_that_part,
    what_differs_at_the_start,
    data_that_differ,
    checkpoints_of_shared_out_state,
    steps_of_shared_out_state,
    changes_around_shared_out_state,
    bytes_of_a_step,
    buffers,
)


def say(line):
    if distributed.rank() == 0:
        print(f"{line}\n", end="", flush=True)


if __name__ == "__main__":
    distributed.init(timeout=100)  # less than a job has: ranks that wait for ever say where
    for check in CHECKS:
        check(distributed.world_size(), distributed.rank())
        say(check.__name__)
