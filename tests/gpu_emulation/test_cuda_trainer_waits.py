"""``Trainer`` on a GPU without graphs: the host waits once in each batch, for all numbers that it reads, and finds what it finds when it reads each at once."""

from contextlib import nullcontext

import numpy as np
import pytest
import transformer_c as tc
from device_cases import host
from test_cuda_trainer import Light, Norms, data, end, fit
from test_cuda_waits import counted
from transformer_c.trainer.later import numbers_of
from transformer_c.trainer.run import Run

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class Counted(Light):
    """Counts what its batches cost; its children log in other ways."""

    def __init__(self, library):
        super().__init__()
        self.library, self.found = [library], {"training": [], "validation": []}

    def note(self, what, function):
        self.found[what].append(counted(self.library[0], function))

    def validation_step(self, batch, batch_idx):
        loss, accuracy = self.loss(batch)
        self.log("val_loss", loss)
        self.log("val_acc", accuracy)


class Silent(Counted):
    def training_step(self, batch, batch_idx):
        return self.loss(batch)[0]


class Mixed(Counted):
    """Numbers, metrics and Tensors of several dtypes, on both devices."""

    def training_step(self, batch, batch_idx):
        loss, accuracy = self.loss(batch)
        self.log("b", loss, on_step=True, prog_bar=True)
        self.log("number", batch_idx + 0.1, on_step=True)
        self.log("of the CPU", tc.tensor([0.3]))
        self.log("count", (batch[0] > 2).sum() + (1 << 40), on_step=True)
        self.log("a", accuracy, on_epoch=False, logger=False)
        self.log("half", loss.bfloat16().reshape(1, 1), batch_size=7)
        self.log("again", loss)
        self.log("again", loss * 2)
        return loss


class Manual(Counted):
    automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss, accuracy = self.loss(batch)
        self.log("loss", loss)
        self.log("acc", accuracy)
        self.manual_backward(loss)
        optimizer.step()


class OfOneStep(tc.callbacks.Callback):
    """Counts from a batch's arrival to its end."""

    def __init__(self):
        self.read = lambda library: (library.library.emulator_copies_to_host(), library.library.emulator_host_waits())
        self.found = []

    def on_train_batch_start(self, trainer, model, batch, batch_idx):
        tc.cuda.synchronize(next(model.parameters()).device)  # no buffer is on its way
        self.before = self.read(model.library[0])

    def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
        self.found.append(tuple(b - a for a, b in zip(self.before, self.read(model.library[0]), strict=True)))

    def on_validation_batch_start(self, trainer, model, batch, batch_idx):
        self.on_train_batch_start(trainer, model, batch, batch_idx)

    def on_validation_batch_end(self, trainer, model, outputs, batch, batch_idx):
        self.on_train_batch_end(trainer, model, outputs, batch, batch_idx)


COSTS = {  # copies and waits of each training batch
    "silent": (Silent, {}, (1, 1)),
    "logs": (lambda library: _with(Light, library), {}, (1, 1)),
    "mixed": (Mixed, {}, (1, 1)),
    "halves": (lambda library: Silent(library).bfloat16(), {}, (1, 1)),
    "autocast": (Silent, {"precision": "bf16-mixed"}, (1, 1)),
    "accumulation": (Silent, {"accumulate_grad_batches": 2}, (1, 1)),
    "manual": (Manual, {"gradient_clip_val": None}, (2, 2)),  # before the backward and before the step
}


def _with(kind, library):
    model = kind()
    model.library = [library]
    return model


@pytest.mark.parametrize("name", COSTS)
def test_a_batch_waits_once(emulated_gpu, emulated_library, name):
    make, options, expected = COSTS[name]
    watching = OfOneStep()
    options = {"gradient_clip_val": 0.5, **options}
    trainer = tc.Trainer(2, device=emulated_gpu, progress=False, callbacks=watching, **options)
    trainer.fit(make(emulated_library), data(12, 3), data(2, seed=1))
    training, validation = watching.found[:4], watching.found[4:5]
    assert training == [expected] * 4
    assert validation == [(1, 1)]


MODELS = {
    "mixed": Mixed,
    "manual": Manual,
    "logs": lambda library: Light(),
    "hooks": lambda library: Light(),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_read_together_is_what_was(emulated_gpu, emulated_library, monkeypatch, name):
    """All values, in the order in which they were logged; with the bits of a fit that reads each when it is logged."""
    ends = []
    for at_once in (True, False):
        if at_once:
            monkeypatch.setattr(Run, "reading_together", lambda self, device: nullcontext())
        else:
            monkeypatch.undo()
        clip = {"gradient_clip_val": None} if name == "manual" else {}
        options = {"callbacks": Norms()} if name == "hooks" else {}
        tc.manual_seed(4)
        model, trainer = MODELS[name](emulated_library), tc.Trainer(2, device=emulated_gpu, progress=False, **clip, **options)
        trainer.fit(model, data(12, 3), data(2, seed=1))
        ends.append((end(model, trainer), list(trainer.history), list(trainer.callback_metrics), dict(trainer.run.in_bar)))
    assert ends[0][1:] == ends[1][1:]
    for key, value in ends[0][0].items():
        np.testing.assert_array_equal(ends[1][0][key], value, err_msg=key)


class Reading(Counted):
    """Reads what it has logged in the step."""

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)[0]
        self.log("loss", loss, on_step=True)
        step = self.trainer.global_step  # this waits for nothing
        seen = []
        counts = [
            counted(self.library[0], lambda read=read: seen.append(read()))["copies to the host"]
            for read in (
                lambda: self.trainer.history,
                lambda: self.logged["loss"],
                lambda: self.trainer.callback_metrics["loss"],
                lambda: self.trainer.step_history["loss"][-1],
            )
        ]
        number = float(loss)
        assert seen[1:] == [number, number, (step, number)] and counts == [0, 1, 0, 0]
        self.log("twice", loss * 2)
        assert self.trainer.callback_metrics["twice"] == 2 * number
        self.log("later", loss)
        return loss


def test_a_step_may_read_what_it_logged(emulated_gpu, emulated_library):
    trainer = tc.Trainer(1, device=emulated_gpu, progress=False, limit_val_batches=0)
    trainer.fit(Reading(emulated_library), data(6))
    assert trainer.history["later"] == trainer.history["loss"] and len(trainer.step_history["loss"]) == 2


def test_a_checkpoint_in_a_step_has_what_was_logged(emulated_gpu, tmp_path):
    class Saving(Light):
        def on_after_backward(self):
            state = self.trainer.run.state_dict()
            assert [name for name in state["step_history"]] == ["train_loss"]
            assert len(state["step_history"]["train_loss"]) == self.trainer.global_step + 1

    fit(emulated_gpu, False, 6, 1, Saving)


def test_what_was_logged_before_an_error_is_recorded(emulated_gpu):
    class Failing(Light):
        def training_step(self, batch, batch_idx):
            self.log("loss", self.loss(batch)[0], on_step=True)
            if batch_idx == 1:
                raise KeyError("in the step")

    model, trainer = Failing(), tc.Trainer(1, device=emulated_gpu, progress=False, limit_val_batches=0)
    with pytest.raises(KeyError, match="in the step"):
        trainer.fit(model, data(9))
    assert len(trainer.step_history["loss"]) == 2 and trainer.step_history["loss"][-1][1] == model.logged["loss"]
    assert trainer.run.later is None


def test_an_index_out_of_range_is_told_before_its_step(emulated_gpu):
    """Weights are those of the step before."""

    class Wrong(Light):
        def training_step(self, batch, batch_idx):
            if batch_idx == 2:
                self.before = [host(p.detach()) for p in self.parameters()]
                batch = [batch[0] + 9, batch[1]]
            loss = self.loss(batch)[0]
            self.log("loss", loss)
            return loss

    model, trainer = Wrong(), tc.Trainer(1, device=emulated_gpu, progress=False, limit_val_batches=0)
    with pytest.raises(RuntimeError, match="is outside the table, which has 7 rows"):
        trainer.fit(model, data(12))
    assert trainer.global_step == 2
    for p, before in zip(model.parameters(), model.before, strict=True):
        np.testing.assert_array_equal(host(p), before)


def test_values_that_are_not_one_number_are_refused_where_they_are_logged(emulated_gpu):
    class Wide(Light):
        def training_step(self, batch, batch_idx):
            with pytest.raises((TypeError, ValueError), match="takes a number or a Tensor of one element, not this Parameter"):
                self.log("loss", self.head.bias)
            with pytest.raises(ValueError, match="takes a number or a Tensor of one element, not this str"):
                self.log("loss", "one")
            with pytest.raises(ValueError, match="'epoch' is a name that the history uses itself"):
                self.log("epoch", 1.0)
            return self.loss(batch)[0]

    tc.Trainer(1, device=emulated_gpu, progress=False, limit_val_batches=0).fit(Wide(), data(3))


def test_numbers_of_several_dtypes(emulated_gpu, emulated_library):
    values = [
        2.5,
        tc.tensor(1 << 40, device=emulated_gpu),
        tc.tensor([[0.1]]),
        tc.tensor(0.1, device=emulated_gpu),
        tc.tensor(True, device=emulated_gpu),
    ]
    found = []
    assert counted(emulated_library, lambda: found.extend(numbers_of(values)))["copies to the host"] == 1
    assert found == [2.5, float(1 << 40), float(np.float32(0.1)), float(np.float32(0.1)), 1.0] and all(type(n) is float for n in found)
    assert numbers_of([]) == []
