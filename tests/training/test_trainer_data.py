"""Trainer with arrays and frames, several batches per step, predictions, and losses that are not finite."""

import math

import numpy as np
import pytest
import transformer_c as tc
from small_runs import Small, bits, seed_everything, small_data

pytestmark = pytest.mark.filterwarnings("ignore:.*there are no validation data")


class Line(tc.TrainingModule):
    """Draws nothing: what it learns depends on the data alone."""

    def __init__(self, optimizer="SGD", dtype="float64", options=None):
        super().__init__()
        self.save_hyperparameters()
        self.net = tc.nn.Linear(3, 1).to(dtype)
        with tc.no_grad():
            self.net.weight.copy_(tc.tensor([[0.1, -0.2, 0.3]]))
            self.net.bias.fill_(0.0)
        self.seen = []

    def forward(self, x):
        return self.net(x)

    def configure_optimizers(self):
        return getattr(tc.optim, self.hparams.optimizer)(self.parameters(), **(self.hparams.options or {"lr": 0.1}))

    def training_step(self, batch, batch_idx):
        x, y = batch
        self.seen.append((batch_idx, len(x), x.dtype.name, y.dtype.name))
        return tc.F.mse_loss(self(x)[:, 0], y.to(x.dtype))

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.training_step(batch, batch_idx))

    test_step = validation_step


def trainer(epochs=1, **options):
    return tc.Trainer(epochs, progress=False, **options)


def made(rows=10):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 3))
    return x, x @ [1.0, 2.0, 3.0] + rng.normal(size=rows)


# ---- several batches per step --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [12, 10, 9, 11])  # whole steps; a shorter last step; a shorter last batch, alone or not
@pytest.mark.parametrize(("optimizer", "options"), [("SGD", {"lr": 0.1, "momentum": 0.9}), ("AdamW", {"lr": 0.1})])
def test_k_batches_are_one_batch_k_times_as_large(rows, optimizer, options):
    data = tc.data.TensorDataset(*made(rows))
    found = []
    for size, k in ((4, 1), (2, 2)):
        model = Line(optimizer, options=options)
        run = trainer(3, gradient_clip_val=0.7, accumulate_grad_batches=k)
        run.fit(model, tc.data.DataLoader(data, size))
        found.append((np.concatenate([p.numpy().ravel() for p in model.parameters()]), run.global_step))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)
    assert found[0][1] == found[1][1] == 3 * math.ceil(rows / 4)


def test_schedules_steps_and_hooks_count_updates():
    class Counting(Small):
        def configure_optimizers(self):
            found.append(self.trainer.estimated_stepping_batches)
            return super().configure_optimizers()

        def optimizer_step(self, *arguments):
            found.append(arguments[1])  # the batch that ends the step
            super().optimizer_step(*arguments)

    found = []
    data, _ = small_data(10)
    run = trainer(2, accumulate_grad_batches=2)
    model = Counting()
    run.fit(model, data)
    assert found == [6, 1, 3, 4, 1, 3, 4] and run.global_step == 6
    assert len(run.step_history["train_loss"]) == 10


def test_skipped_batches_of_a_step():
    class Skipping(Line):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx) if batch_idx != self.left_out else None

    x, y = made(4)
    weights = []
    for left_out, share in ((0, slice(2, 4)), (1, slice(0, 2))):
        model = Skipping()
        model.left_out = left_out
        trainer(gradient_clip_val=1e9, accumulate_grad_batches=2).fit(model, [(x[:2], y[:2]), (x[2:], y[2:])])
        alone = Line(options={"lr": 0.05})  # half of the rows
        trainer().fit(alone, [(x[share], y[share])])
        weights.append((model.net.weight.numpy(), alone.net.weight.numpy()))
    for a, b in weights:
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_run_of_several_batches_per_step_resumes_to_the_bit(tmp_path):
    class Stopping(Small):
        def training_step(self, batch, batch_idx):
            if (
                self.trainer.current_epoch == 1
                and batch_idx == 5
                and self.trainer.checkpoint_dir.endswith("stopped")
                and not self.trainer.is_again
            ):
                raise InterruptedError
            return super().training_step(batch, batch_idx)

    found = []
    for name in ("whole", "stopped"):
        for again in (False, True):
            seed_everything()
            run = trainer(3, checkpoint_dir=tmp_path / name, checkpoint_every_n_steps=1, accumulate_grad_batches=2)
            run.is_again = again
            model = Stopping()
            try:
                run.fit(model, *small_data(), resume="last")
            except InterruptedError:
                assert (run.run.batch, run.global_step) == (5, 5) and not again
        found.append(bits(model, run))
    assert found[0] == found[1]


# ---- arrays and frames -------------------------------------------------------------------------------------------------------------


class Frame:
    """What a trainer uses of a data frame of pandas or polars."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", [np.asarray, tc.tensor, Frame, lambda a: Frame(a.astype(object))])
def test_arrays_and_frames(kind, dtype):
    x, y = made(10)
    given = kind(x), kind(np.round(y).astype(np.int64))
    model = Line(dtype=dtype)
    run = trainer(2)
    run.fit(model, given, given, batch_size=4)
    y_dtype = dtype if isinstance(given[1], Frame) and given[1].values.dtype == object else "int64"
    assert model.seen == 2 * 2 * [(0, 4, dtype, y_dtype), (1, 4, dtype, y_dtype), (2, 2, dtype, y_dtype)]
    (means,) = run.test(model, given, verbose=False)
    assert means["val_loss"] == pytest.approx(run.validate(model, given, verbose=False, batch_size=3)[0]["val_loss"], rel=1e-6)
    predicted = run.predict(model, given[0], batch_size=3)
    np.testing.assert_array_equal(predicted, model(x.astype(dtype)))
    np.testing.assert_array_equal(run.predict(model, given), predicted)
    assert type(predicted) is np.ndarray and predicted.dtype == dtype


class Columns(Frame):
    """With named columns, some of which are not numbers."""

    columns = ("age", "city", "name")

    def __init__(self):
        super().__init__(np.array([[1, "Rom", "A"], [2, "Bonn", "B"]], object))

    def __getitem__(self, name):
        return Frame(self.values[:, self.columns.index(name)])


def test_columns_that_are_not_numbers_are_named():
    for given, name in (((Columns(), np.ones(2)), r"train\[0\]"), ((np.ones((2, 3)), Columns()), r"train\[1\]"), (Columns(), "train")):
        with pytest.raises(TypeError, match=f"^{name}: the Columns has columns that are not numbers: 'city', 'name'; leave them out"):
            trainer().fit(Line(), given)


def test_arrays_are_shuffled_for_training_only():
    class Order(Line):
        def training_step(self, batch, batch_idx):
            self.order.append(batch[1].tolist())
            return super().training_step(batch, batch_idx)

    model = Order()
    model.order = []
    tc.manual_seed(3)
    trainer().fit(model, (np.ones((6, 3)), np.arange(6)), (np.ones((6, 3)), np.arange(6)), batch_size=6)
    assert model.order[0] != model.order[1] == list(range(6)) and sorted(model.order[0]) == list(range(6))


def test_a_dataset_and_a_single_array():
    class Denoising(Line):
        def training_step(self, batch, batch_idx):
            return super().training_step((batch, batch[:, 0]), batch_idx)

    model = Denoising()
    trainer().fit(model, made(4)[0])
    assert model.seen == [(0, 4, "float64", "float64")]
    plain = Line()
    trainer().fit(plain, tc.data.TensorDataset(*made(4)), batch_size=3)
    assert [n for _, n, *_ in plain.seen] == [3, 1]
    with pytest.raises(TypeError, match=r"in a tuple: fit\(model, \(X, y\)\)"):
        trainer().fit(plain, *made(4))
    x, y = made(4)
    with pytest.raises(TypeError, match=r"train is a list of arrays of one length; .* are a tuple: \(X, y\)"):
        trainer().fit(plain, [x, y[:, 0] if y.ndim > 1 else y])


# ---- predictions -------------------------------------------------------------------------------------------------------------------


class Detailed(Line):
    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        assert not self.training and not tc.is_grad_enabled()
        y = self(batch[0])
        return {"y": y, "of": (batch_idx, dataloader_idx), "both": [y, y * 2]}


def test_predictions_of_loaders_are_lists_of_batches():
    x, y = made(5)
    loader = tc.data.DataLoader(tc.data.TensorDataset(x, y), 2)
    model = Detailed()
    run = trainer(limit_predict_batches=2)
    one = run.predict(model, loader)
    assert [len(p["y"]) for p in one] == [2, 2] and [p["of"] for p in one] == [(0, 0), (1, 0)]
    two = run.predict(model, [loader, loader])
    assert [p["of"] for p in two[1]] == [(0, 1), (1, 1)] and not model.training
    model.predict_dataloader = lambda: loader
    assert len(run.predict(model)) == 2


def test_predictions_of_arrays_are_joined():
    x, y = made(5)
    found = trainer().predict(Detailed(), (x, y), batch_size=2)
    assert found["y"].shape == (5, 1) and found["of"][0].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(found["both"][1], 2 * found["y"])
    with pytest.raises(ValueError, match="predict data is missing"):
        trainer().predict(Line())


# ---- losses that are not finite ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_with_its_step_named(tmp_path, bad):
    x, y = made(8)
    y[5] = bad
    model = Line()
    run = trainer(2, checkpoint_dir=tmp_path, checkpoint_every_n_steps=1)
    with pytest.raises(FloatingPointError, match=rf"the loss is {bad} at step 3 \(epoch 1, batch 3\); the weights are those of step 2"):
        run.fit(model, [(x[i : i + 2], y[i : i + 2]) for i in range(0, 8, 2)])
    kept = Line.load_from_checkpoint(run.last_model_path)
    np.testing.assert_array_equal(kept.net.weight.numpy(), model.net.weight.numpy())
    assert run.global_step == 2 and np.isfinite(model.net.weight.numpy()).all()


@pytest.mark.parametrize("k", [1, 2])
def test_a_gradient_that_is_not_finite_stops_before_its_step(tmp_path, k):
    """The loss is finite: its root has an infinite slope at 0. A hook may mend gradients, and large ones are no error."""

    class Rooted(Line):
        is_mended = False

        def training_step(self, batch, batch_idx):
            x, y = batch
            return tc.sqrt((self.net(x) * 0).sum() ** 2 + (1 - float(y[0, 0]))) + self.net(x).sum() * 1e37

        def on_after_backward(self):
            if self.is_mended:
                for p in self.parameters():
                    p.grad = tc.where(tc.isfinite(p.grad), p.grad, 0.0)

        def configure_optimizers(self):
            return tc.optim.SGD(self.parameters(), lr=1e-37)

    x = np.ones((8, 3), np.float32)
    batches = [(x, np.full((8, 1), float(i == 2 * k - 1), np.float32)) for i in range(2 * k)]
    model = Rooted()
    run = trainer(1, checkpoint_dir=tmp_path, checkpoint_every_n_steps=1, monitor="train_loss", accumulate_grad_batches=k)
    message = rf"the gradient of net.weight is not finite at step 2 \(epoch 1, batch {2 * k}\), though the loss is; the weights are those of step 1"
    with pytest.raises(FloatingPointError, match=message):
        run.fit(model, batches)
    kept = Line.load_from_checkpoint(run.last_model_path)
    np.testing.assert_array_equal(kept.net.weight.numpy(), model.net.weight.numpy())
    assert np.isfinite(model.net.weight.numpy()).all() and run.global_step == 1
    mended = Rooted()
    mended.is_mended = True
    trainer(1, accumulate_grad_batches=k).fit(mended, batches)
    assert np.isfinite(mended.net.weight.numpy()).all()


@pytest.mark.parametrize("hook", ["on_train_epoch_start", "on_train_batch_start"])
def test_gradients_of_a_group_added_by_a_hook_are_checked(hook):
    class Unfreezing(Line):
        def __init__(self):
            super().__init__()
            self.late = tc.nn.Linear(1, 1).to("float64")

        def training_step(self, batch, batch_idx):
            return self.net(batch[0]).sum() + (self.late(batch[1]) * 0).abs().sqrt().sum()

        def configure_optimizers(self):
            return tc.optim.SGD(self.net.parameters(), lr=0.1)

    def unfreeze(*arguments):
        if model.trainer.global_step == 1:
            model.optimizers().add_param_group({"params": list(model.late.parameters())})

    model, batch = Unfreezing(), (np.ones((2, 3), np.float32), np.ones((2, 1), np.float32))
    setattr(model, hook, unfreeze)
    with pytest.raises(FloatingPointError, match=r"the gradient of late.weight is not finite at step 2 .* the weights are those of step 1"):
        trainer(2).fit(model, [batch] if hook == "on_train_epoch_start" else [batch, batch])
    assert np.isfinite(model.late.weight.numpy()).all()


class Foreign:
    """An array of another library, such as PyTorch's Tensor."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)


@pytest.mark.parametrize("wrap", [lambda a: a.tolist(), Foreign])
def test_lists_of_numbers_and_arrays_of_other_libraries_are_arrays(wrap):
    x, y = made()
    lines = [Line(), Line()]
    for line, data in zip(lines, ((x, y), (wrap(x), wrap(y))), strict=True):
        tc.manual_seed(0)  # of the shuffles
        trainer(3).fit(line, data, batch_size=4)
    assert lines[0].seen == lines[1].seen and np.array_equal(lines[0].net.weight.numpy(), lines[1].net.weight.numpy())
    assert np.array_equal(trainer().predict(lines[0], wrap(x)), trainer().predict(lines[0], x))
    with pytest.raises(ValueError, match=r"train\[0\] has lists of different lengths, which make no array: pad them"):
        trainer().fit(Line(), ([[1.0, 2.0, 3.0], [1.0]], [1.0, 2.0]))


@pytest.mark.parametrize("labels", [np.ndarray.tolist, np.asarray, tc.tensor, lambda y: list(tc.tensor(y))])
@pytest.mark.parametrize("wrap", [np.asarray, tc.tensor, Foreign])
def test_a_list_of_arrays_beside_a_number_for_each_is_rows(wrap, labels):
    """They were two batches, each without a part of it."""
    x, y = made()
    lines = [Line(), Line()]
    for line, data in zip(lines, ((x, y), ([wrap(row) for row in x], labels(y))), strict=True):
        tc.manual_seed(0)  # of the shuffles
        trainer(3).fit(line, data, batch_size=4)
    assert lines[0].seen == lines[1].seen and np.array_equal(lines[0].net.weight.numpy(), lines[1].net.weight.numpy())


def test_the_gradient_that_is_not_finite_is_named_where_others_have_none():
    class Model(tc.TrainingModule):
        def __init__(self):
            super().__init__()
            self.unused, self.used = tc.nn.Parameter(tc.ones(1)), tc.nn.Parameter(tc.zeros(1))

        def training_step(self, batch, batch_idx):
            return self.used.sqrt().sum()

        def configure_optimizers(self):
            return tc.optim.SGD(self.parameters(), 0.1)

    with pytest.raises(FloatingPointError, match="the gradient of used is not finite at step 1"):
        trainer(1).fit(Model(), [np.ones((1, 1), np.float32)])


def test_lists_of_rows_are_refused_where_batches_are_expected():
    """Each row was taken as a batch, without an axis for its rows and in the order of the list."""
    x, y = made()
    rows = {
        "ndarray, float": [(a, float(b)) for a, b in zip(x, y, strict=True)],
        "ndarray, float64": [(a, b) for a, b in zip(x, y, strict=True)],
        "ndarray, ndarray": [(a, b.reshape(1)) for a, b in zip(x, y, strict=True)],
        "Tensor, Tensor": [(tc.tensor(a), tc.tensor(b.reshape(1))) for a, b in zip(x, y, strict=True)],
        "ndarray, Tensor": [(a, tc.tensor(b)) for a, b in zip(x, y, strict=True)],
        "list, int": [(a.tolist(), 1) for a in x],
        "str, int": [("a text", 1), ("another", 0)],
    }
    for kinds, data in rows.items():
        message = rf"is a list of rows \({kinds}\), where batches are expected; .*DataLoader\(rows, batch_size=5"
        with pytest.raises(TypeError, match="train " + message.replace("=5", r"=5, shuffle=True\)")):
            trainer().fit(Line(), data, batch_size=5)
        with pytest.raises(TypeError, match="dataloaders " + message.replace("=5", r"=5\)")):
            trainer().test(Line(), data, batch_size=5)
    line, pairs = Line(), [(a[None], b[None]) for a, b in zip(x, y, strict=True)]
    trainer().fit(line, pairs)  # batches of one row
    assert len(line.seen) == len(x)
    trainer().fit(Line(), tc.data.DataLoader(list(zip(x, y, strict=True)), batch_size=4))

    class Named(Line):
        def training_step(self, batch, batch_idx):
            return super().training_step((batch[0]["x"], batch[1]), batch_idx)

    trainer().fit(Named(), [({"x": x[:4]}, y[:4]), ({"x": x[4:5]}, y[4:5])])  # what is named is no row
