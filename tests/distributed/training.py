"""Trainings that one process and several ranks do alike."""

import os
import signal
import threading
import time
import warnings

import numpy as np
import transformer_c as tc
from transformer_c import distributed


class Small(tc.TrainingModule):
    """A block with parameters that are shared, frozen, or unused in some batches."""

    def __init__(self, dropout=0.0, unused=False):
        super().__init__()
        self.first = tc.nn.Linear(8, 16)
        self.block = tc.EncoderBlock(16, 2, 32, dropout=dropout)
        self.again = self.first  # shared
        self.frozen = tc.nn.Linear(8, 16).requires_grad_(False)
        self.rare = tc.nn.Linear(16, 16)
        self.never = tc.nn.Linear(3, 3)
        self.head = tc.nn.Linear(16, 4)
        self.accuracy = tc.metrics.Accuracy()
        self.unused = unused

    def forward(self, x):
        is_large, x = x[:, 0, 0] > 0.9, x.type_as(self.head.weight)
        h = self.block(self.first(x)) + self.again(x) + self.frozen(x)
        if self.unused and is_large.any():  # some samples, so in some steps on some ranks only
            h = h + self.rare(h) * is_large[:, None, None].type_as(h)
        return self.head(h.mean(1))

    def configure_optimizers(self):
        optimizer = tc.optim.AdamW(self.parameters(), lr=3e-3, eps=1e-5)  # the bias of the keys has no gradient but rounding
        return [optimizer], [tc.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)]

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = tc.F.cross_entropy(logits, y)
        self.log("train_loss", loss, on_step=True)
        self.accuracy(logits, y)
        self.log("train_acc", self.accuracy)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", tc.F.cross_entropy(self(x), y))

    test_step = validation_step


class Manual(Small):
    """Steps after every second batch, clipped; the gradients of an odd last batch are left to the next epoch."""

    def __init__(self, *args):
        super().__init__(*args)
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        loss, optimizer = super().training_step(batch, batch_idx), self.optimizers()
        self.manual_backward(loss / 2)
        if batch_idx % 2:
            self.clip_gradients(optimizer, gradient_clip_val=0.05)
            optimizer.step()
            optimizer.zero_grad()
            self.lr_schedulers().step()
        return loss


class Closing(Manual):
    """Steps with a closure, and looks at the gradients."""

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()

        def closure():
            loss = Small.training_step(self, batch, batch_idx)
            optimizer.zero_grad()
            self.manual_backward(loss)
            self.log("norm", tc.nn.utils.clip_grad_norm_(self.parameters(), 0.1), on_step=True)
            return loss

        return optimizer.step(closure)


class Two(Manual):
    """Two optimizers, the second every other time; both have the parameters of the head."""

    def configure_optimizers(self):
        body = [p for name, p in self.named_parameters() if not name.startswith("head")]
        one, two = (
            tc.optim.SGD([*body, *self.head.parameters()], lr=0.1, momentum=0.9),
            tc.optim.AdamW(self.head.parameters(), lr=1e-3, eps=1e-5),
        )
        return [one, two], [tc.optim.lr_scheduler.ExponentialLR(two, 0.5)]

    def training_step(self, batch, batch_idx):
        for turn, optimizer in enumerate(self.optimizers()):
            if turn and batch_idx % 2:
                continue
            self.toggle_optimizer(optimizer)
            loss = Small.training_step(self, batch, batch_idx)
            self.manual_backward(loss)
            self.clip_gradients(optimizer, 0.5)
            optimizer.step()
            self.untoggle_optimizer(optimizer)
            if turn:
                self.lr_schedulers().step()
            optimizer.zero_grad()
        return loss


class Late(tc.callbacks.Callback):
    """Logs where no step of the epoch follows."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
        if distributed.rank() == 0 and trainer.strategy:
            model.log("of one rank", 1.0, on_step=True)
        model.log("mean", batch[0].mean(), on_step=True)
        model.log("mean", 2 * batch[0].mean(), on_step=True)
        model.log("largest", batch[0].amax(), reduce_fx="max", on_step=False, rank_zero_only=False)

    def on_train_epoch_end(self, trainer, model):
        self.seen += [trainer.callback_metrics[name] for name in ("train_loss", "train_acc", "mean")]
        model.log("at the end", trainer.current_epoch + 0.5, on_step=True)


# ---- events between ranks, and between a job and its test --------------------------------------------------------------------------------


def tell(what):
    """Writes a file whose name says what this rank has done."""
    open(f"{what} {distributed.rank()}", "w").close()


def wait_for(what, rank=1):
    """Waits until another rank has told so."""
    while not os.path.exists(f"{what} {rank}"):
        time.sleep(0.005)


def wait_for_interrupt():
    """Waits in a fit until this rank has got a Ctrl-C."""
    while not signal.getsignal(signal.SIGINT).__self__.pending:
        time.sleep(0.005)


def set_limit(seconds):
    """For how long this rank waits for others from now on."""
    (watch,) = (thread for thread in threading.enumerate() if thread.name == "transformer_c-watch")
    watch._limit = seconds


# ---- data and models ----------------------------------------------------------------------------------------------------------------------


def data(rows=50, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.random((rows, 5, 8)).astype(np.float32)
    return tc.data.TensorDataset(x, x.sum((1, 2)).astype(np.int64) % 4)


def trained(
    ranks, batch, epochs=3, rows=50, dropout=0.0, unused=False, folder=None, resume=None, dtype=None, kind=Small, seed=3, **options
):
    """(trainer, model) after training with `batch` rows per step, by all ranks or by this process alone."""
    tc.manual_seed(7)
    model = kind(dropout, unused)
    if dtype:
        model.to(dtype)
    per_rank = batch // ranks
    train = tc.data.DataLoader(data(rows), batch_size=per_rank, shuffle=True)
    val = tc.data.DataLoader(data(17, 1), batch_size=per_rank)
    options.setdefault("strategy", "ddp" if ranks > 1 else None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = tc.Trainer(epochs, seed=seed, progress=False, checkpoint_dir=folder, **options)
        trainer.fit(model, train, val, resume=resume)
    return trainer, model


def weights(model):
    return np.concatenate([np.asarray(v.detach().float()).reshape(-1) for v in model.state_dict().values()])


def close(a, b, limit=1e-6):
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape, (a.shape, b.shape)
    assert np.abs(a - b).max(initial=0) <= limit, f"apart by {np.abs(a - b).max():.2g}"
