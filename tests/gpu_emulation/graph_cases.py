"""Shared by the tests of captured graphs: a training whose step is captured or not, and the orders of streams put back."""

import numpy as np
import pytest
import transformer_c as tc
from device_cases import host
from transformer_c import functional as F


class Model(tc.nn.Module):
    """The tutorial's encoder, on tokens."""

    def __init__(self):
        super().__init__()
        self.embedding = tc.nn.Embedding(11, 8)
        self.encoder = tc.EncoderBlock(8, 2, 16, dropout=0.2)
        self.attention_dropout = tc.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        self.head = tc.nn.Linear(8, 11)

    def forward(self, tokens):
        return self.head(self.attention_dropout(self.encoder(self.embedding(tokens))))


OPTIMIZERS = {
    "Adam": lambda p: tc.optim.Adam(p, lr=1e-2, weight_decay=0.1),
    "AdamW": lambda p: tc.optim.AdamW(p, lr=1e-2, amsgrad=True),
    "SGD": lambda p: tc.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "RMSprop": lambda p: tc.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True),
}


class Run:
    """A training; `make` wraps its step."""

    def __init__(self, gpu, precision="float32", optimizer="Adam", make=lambda step: step):
        tc.manual_seed(3)
        self.model = Model().to(gpu)
        if precision == "bfloat16":
            self.model.bfloat16()
        self.precision = precision
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.schedule = tc.CosineWarmupScheduler(self.optimizer, 5, 50)
        self.gpu, self.losses, self.norms = gpu, [], []
        self.step = make(self.one_step)

    def one_step(self, tokens, targets):
        self.optimizer.zero_grad()
        with tc.autocast(enabled=self.precision == "autocast"):
            y = self.model(tokens)
        loss = F.cross_entropy(y.transpose(1, 2).float(), targets)
        loss.backward()
        norm = tc.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.optimizer.step()
        self.schedule.step()
        return loss, norm

    def train(self, steps, between=lambda: None):
        rng = np.random.default_rng(0)
        for _ in range(steps):
            tokens = tc.tensor(rng.integers(0, 11, (3, 5)), device=self.gpu)
            loss, norm = self.step(tokens, tokens.flip(1))
            self.losses.append(float(loss))
            self.norms.append(float(norm))
            between()
        return self

    def end(self):
        """All that a step changes."""
        states = {f"{i}.{name}": host(v) if isinstance(v, tc.Tensor) else v
                  for i, s in self.optimizer.state_dict()["state"].items() for name, v in s.items()}  # fmt: skip
        weights = {name: host(p) for name, p in self.model.state_dict().items()}
        gradients = {f"d{name}": host(p.grad) for name, p in self.model.named_parameters()}
        rest = {
            "losses": self.losses,
            "norms": self.norms,
            "lr": [g["lr"] for g in self.optimizer.param_groups],
            "steps": self.schedule.last_epoch,
        }
        rest["generator"] = np.frombuffer(tc.random.default_generator.get_state(), np.uint8)
        return states | weights | gradients | rest


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(value), err_msg=name)


@pytest.fixture(autouse=True)
def late(emulated_library):
    yield
    emulated_library.set_streams("late")
    emulated_library.set_schedule("round_robin")
