"""A model and data small enough to train in milliseconds, which draw from every kind of random stream."""

import random

import numpy as np
import transformer_c as tc


class Small(tc.TrainingModule):
    """A linear layer behind dropout; regression."""

    def __init__(self, lr=0.1, dropout=0.3, schedule="step"):
        super().__init__()
        self.save_hyperparameters()
        self.net = tc.nn.Sequential(tc.nn.Dropout(dropout), tc.nn.Linear(3, 1))
        self.noise = np.random.default_rng(5)

    def configure_optimizers(self):
        optimizer = tc.optim.Adam(self.parameters(), lr=self.hparams.lr)
        scheduler = tc.CosineWarmupScheduler(optimizer, warmup=3, max_iters=40)
        return [optimizer], [{"scheduler": scheduler, "interval": self.hparams.schedule}]

    def loss(self, batch):
        x, y = batch
        return tc.F.mse_loss(self.net(x), y)

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch) + float(self.noise.normal()) * self.net[1].weight.sum() * 0.01
        self.log("train_loss", loss, on_step=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch))

    def test_step(self, batch, batch_idx):
        self.log("test_loss", self.loss(batch))


class Noisy(tc.data.Dataset):
    """Samples that are never the same twice: from a generator of its own, Python's and NumPy's."""

    def __init__(self, size):
        self.rng = np.random.default_rng(3)
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        noise = self.rng.normal(size=3) + random.random() + np.random.random()
        x = (np.arange(3) + index + noise).astype(np.float32)
        return x / 10, x.sum(keepdims=True) / 10


def small_data(size=11, prefetch=0):
    """Training and validation loaders; both shuffle."""
    train = tc.data.DataLoader(Noisy(size), batch_size=2, shuffle=True, prefetch=prefetch)
    return train, tc.data.DataLoader(Noisy(4), batch_size=3, shuffle=True, rng=9)


def seed_everything(seed=0):
    """All that a script would seed."""
    tc.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def bits(model, trainer):
    """Weights and history: what two equal runs must have in common."""
    weights = b"".join(v.numpy().tobytes() for v in model.state_dict().values())
    return weights, repr(trainer.history), repr(trainer.step_history), trainer.best_epoch, trainer.best_model_score
