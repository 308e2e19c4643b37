"""tc.autocast and Trainer(precision="bf16-mixed"): half compute, float32 weights, gradients and results."""

import threading

import numpy as np
import pytest
import transformer_c as tc

pytest.importorskip("ml_dtypes")


def model_of():
    tc.manual_seed(0)
    return tc.nn.Sequential(tc.nn.Linear(8, 32), tc.PositionalEncoding(32, 16), tc.EncoderBlock(32, 4, 64), tc.nn.Linear(32, 8))


def data(n=8):
    numbers = np.random.default_rng(0).integers(0, 8, (n, 6))
    return np.eye(8, dtype=np.float32)[numbers], numbers[:, ::-1].copy()


def gradients(model, x, target, halves):
    context = tc.autocast(enabled=halves)
    with context:
        logits = model(tc.tensor(x))
    loss = tc.F.cross_entropy(logits.reshape(-1, 8), target.reshape(-1))
    model.zero_grad()
    loss.backward()
    return logits, loss.item(), {name: p.grad.numpy().copy() for name, p in model.named_parameters()}


def without_buffers():
    model = model_of()
    return tc.nn.Sequential(model[0], *model[2:])


def test_it_is_the_half_precision_model_with_gradients_in_float32():
    """The same numbers as those of the model cast to bfloat16; gradients, weights and results are float32."""
    model, half = without_buffers(), without_buffers().bfloat16()
    x, target = data()
    logits, _, found = gradients(model, x, target, True)
    expected = half(tc.tensor(x).bfloat16())
    np.testing.assert_array_equal(logits.detach().numpy(), np.asarray(expected.detach().float()))
    assert logits.dtype == np.float32 and all(p.dtype == np.float32 for p in model.parameters())
    tc.F.cross_entropy(expected.float().reshape(-1, 8), target.reshape(-1)).backward()
    for name, p in half.named_parameters():
        np.testing.assert_array_equal(found[name], np.asarray(p.grad.float()), err_msg=name)
    _, _, exact = gradients(model, x, target, False)
    for name, g in exact.items():
        assert 0 < np.linalg.norm(found[name] - g) < 0.05 * np.linalg.norm(g), name


def test_arrays_nesting_and_decorators():
    model = model_of().eval()
    x, _ = data()
    plain = model(x)
    with tc.autocast():
        found = model(x)
        with tc.autocast(enabled=False):
            np.testing.assert_array_equal(model(x), plain)
        np.testing.assert_array_equal(model(x), found)
    assert found.dtype == np.float32 and 0 < abs(found - plain).max() < 0.1
    np.testing.assert_array_equal(tc.autocast("cpu", tc.float16)(model)(x), tc.autocast(dtype="float16")(lambda: model(x))())
    np.testing.assert_array_equal(model(x), plain)
    with pytest.raises(ValueError, match="bfloat16 or float16, got dtype='float32'"):
        tc.autocast(dtype="float32")


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ("tpu", ValueError, 'device_type must be "cpu" or "cuda", got \'tpu\''),
        ("bfloat16", ValueError, "got 'bfloat16'; the dtype comes by name, dtype='bfloat16'"),
        (3, TypeError, r"got 3 \(int\)"),
        (None, TypeError, r"got None \(NoneType\)"),
    ],
)
def test_what_names_no_device_is_refused(given, kind, message):
    with pytest.raises(kind, match=message):
        tc.autocast(given)


@pytest.mark.parametrize("given", ["cpu", "cuda", "cuda:0", tc.device("cpu")])
def test_names_of_devices_are_taken(given):
    assert isinstance(tc.autocast(given, dtype="bfloat16"), tc.autocast)


class Counter(tc.nn.Module):
    """Counts its calls, in a buffer that it writes to or in one that it assigns, and adds a table."""

    def __init__(self):
        super().__init__()
        self.register_buffer("written", tc.tensor(np.float32(255)))
        self.register_buffer("assigned", tc.tensor(np.float32(255)))
        self.register_buffer("table", tc.tensor(np.full(8, 1 + 2**-12, np.float32)))
        self.linear = tc.nn.Linear(8, 8)

    def forward(self, x):
        self.written.copy_(self.written + 1)
        self.assigned = self.assigned + 1
        self.seen = self.table
        return self.linear(x + self.table)


def test_buffers_are_left_alone():
    """As in PyTorch: a count does not stop at 256, where bfloat16 does; and layers cast what a float32 buffer made float32."""
    model, x = Counter(), tc.ones(2, 8)
    table = model.table
    with tc.autocast():
        for _ in range(4):
            y = model(x)
    assert model.written.item() == model.assigned.item() == 259 and model.seen is table is model.table
    assert y.dtype == model.assigned.dtype == np.float32
    expected = tc.F.linear((x + table).bfloat16(), model.linear.weight.bfloat16(), model.linear.bias.bfloat16())
    np.testing.assert_array_equal(y.detach().numpy(), expected.detach().float().numpy())
    with pytest.raises(TypeError, match="Linear has float32 parameters"):
        model.linear(x.bfloat16())


def test_a_buffer_that_is_a_parameter_is_left_alone_too():
    class Beside(tc.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = tc.nn.Parameter(tc.ones(2))
            self.register_buffer("first", self.weight)

        def forward(self, x):
            return [t.dtype.name for t in (self.weight, self.first, *self.parameters(), *self.buffers())]

    with tc.autocast():
        assert Beside()(tc.ones(2)) == ["bfloat16", "float32", "bfloat16", "float32"]


class Averaging(tc.nn.Module):
    """Writes to parameters in its forward, trained ones or frozen ones."""

    def __init__(self, write, frozen):
        super().__init__()
        self.linear, self.write = tc.nn.Linear(8, 8).requires_grad_(not frozen), write

    def forward(self, x):
        with tc.no_grad():
            self.write(self.linear)
        return self.linear(x)


WRITES = {
    "copy_": lambda linear: linear.weight.copy_(linear.weight * 0.5),
    "data": lambda linear: linear.weight.data.fill_(2.0),
    "view": lambda linear: linear.weight[0].fill_(2.0),
    "item": lambda linear: linear.weight.__setitem__(0, 2.0),
    "operator": lambda linear: setattr(linear, "w", linear.weight.__imul__(0.5)),
    "init": lambda linear: tc.nn.init.ones_(linear.weight),
    "load": lambda linear: linear.load_state_dict({"weight": np.ones((8, 8), np.float32), "bias": np.ones(8, np.float32)}),
    "assign": lambda linear: linear.load_state_dict({"weight": np.ones((8, 8), np.float32), "bias": np.ones(8, np.float32)}, assign=True),
}


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("how", WRITES)
def test_writes_to_casts_are_errors_and_not_lost(how, frozen):
    model = Averaging(WRITES[how], frozen)
    before = model.linear.weight.detach().numpy().copy()
    with tc.autocast(), pytest.raises(RuntimeError, match="cast to half precision.* outside of calls"):
        model(tc.ones(2, 8))
    np.testing.assert_array_equal(model.linear.weight.detach().numpy(), before)
    model(tc.ones(2, 8))  # without autocast, and beside a call under it, they are written
    assert not np.array_equal(model.linear.weight.detach().numpy(), before)
    with tc.autocast(), tc.no_grad():
        model.linear.weight.fill_(3.0)
    assert model.linear.weight.max().item() == 3.0


def test_arrays_of_casts_are_read_only():
    def write(linear):
        np.asarray(linear.weight.detach())[:] = 0

    with tc.autocast(), pytest.raises(ValueError, match="read-only"):
        Averaging(write, True)(tc.ones(2, 8))


@pytest.mark.parametrize("make", [lambda: tc.autocast(), lambda: tc.autocast(enabled=False)])
def test_one_object_inside_itself(make):
    model, x = tc.nn.Linear(8, 8), data()[0]
    plain, context = model(x), make()
    with context:
        expected = model(x)
        with context:
            np.testing.assert_array_equal(model(x), expected)
        np.testing.assert_array_equal(model(x), expected)
    np.testing.assert_array_equal(model(x), plain)


class Part(tc.nn.Module):
    """Uses autocast in its forward, for a part of itself."""

    def __init__(self):
        super().__init__()
        self.linear = tc.nn.Linear(8, 8)

    def forward(self, x):
        with tc.autocast():
            y = self.linear(x)
        return y, self.linear(x), y.dtype


def test_inside_a_forward():
    model, x = Part(), tc.ones(2, 8)
    half, whole, dtype = model(x)
    with tc.autocast():
        again = model.linear(x)
        both, *_, inner = model(x)  # all of it is in half precision already
    np.testing.assert_array_equal(half.detach().numpy(), again.detach().numpy())
    np.testing.assert_array_equal(half.detach().numpy(), both.detach().numpy())
    assert dtype == np.float32 and inner == "bfloat16" and 0 < abs(half - whole).detach().numpy().max() < 0.1


class Wide(tc.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.dtypes = tc.nn.Linear(8, 8), tc.nn.Linear(8, 8), []

    def forward(self, x):
        x = self.first(x)
        with tc.autocast(enabled=False):
            with tc.autocast():
                self.dtypes.append(self.last(x).dtype.name)
            with pytest.raises(TypeError, match="Linear has float32 parameters but the input is a bfloat16 Tensor"):
                self.last(x)
            x = self.last(x.float())
        self.dtypes += [x.dtype.name, self.last.weight.dtype.name]
        return x


def test_off_inside_a_forward():
    """As in PyTorch: the modules called there have their float32 parameters, and take float32."""
    tc.manual_seed(0)
    model, x = Wide(), tc.rand(4, 8)
    with tc.autocast():
        first, found = model.first(x), model(x)
    np.testing.assert_array_equal(found.detach().numpy(), model.last(first).detach().numpy())
    assert model.dtypes == ["bfloat16", "float32", "bfloat16"] and model.last.weight.dtype == np.float32
    found.sum().backward()
    assert {p.grad.dtype.name for p in model.parameters()} == {"float32"}


def test_a_shared_parameter_is_cast_once():
    class Tied(tc.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = tc.nn.Linear(8, 8), tc.nn.Linear(8, 8)
            self.second.weight = self.first.weight

        def forward(self, x):
            assert self.first.weight is self.second.weight and self.first.weight.dtype.name == "bfloat16"
            self.first.bias = tc.nn.Parameter(tc.zeros(8))  # a module may assign one; it stays
            return self.second(x)

    model = Tied()
    weight, bias = model.first.weight, model.first.bias
    with tc.autocast():
        model(tc.ones(2, 8))
    assert model.first.weight is model.second.weight is weight and model.first.bias is not bias and model.first.bias.dtype == np.float32


def test_parameters_that_a_class_does_not_give_are_cast_too():
    """A model whose parameters() are those that an optimizer trains."""

    class Tuned(tc.nn.Sequential):
        def parameters(self, recurse=True):
            return self[1].parameters(recurse)

    model, seen = Tuned(tc.nn.Linear(4, 4), tc.nn.Linear(4, 4)), []
    for layer in model:
        layer.register_forward_hook(lambda layer, args, output: seen.append((layer.weight.dtype.name, output.dtype.name)))
    with tc.autocast():
        model(tc.ones(2, 4))
    assert seen == [("bfloat16", "bfloat16")] * 2


def test_gradients_arrive_through_a_part_of_a_list():
    class Product(tc.nn.Module):
        def __init__(self):
            super().__init__()
            self.factors = tc.nn.ParameterList([tc.ones(4, 4), tc.ones(4, 4), tc.ones(4, 4)])

        def forward(self, x):
            for factor in self.factors[1:]:
                x = x @ factor
            return x

    model = Product()
    with tc.autocast():
        y = model(tc.ones(2, 4))
    y.sum().backward()
    assert [p.grad is not None for p in model.parameters()] == [False, True, True]


def test_an_error_leaves_the_weights_in_place():
    model = tc.nn.Sequential(tc.nn.Linear(4, 4), tc.nn.Linear(3, 3))
    weights = list(model.parameters())
    with pytest.raises(ValueError), tc.autocast():
        model(np.ones((2, 4), np.float32))
    assert all(a is b for a, b in zip(weights, model.parameters(), strict=True))


def test_other_threads_compute_as_before():
    model, x = tc.nn.Linear(8, 8), data()[0]
    plain, found = model(x), []
    with tc.autocast():
        thread = threading.Thread(target=lambda: found.append(model(x)))
        thread.start()
        thread.join()
    np.testing.assert_array_equal(found[0], plain)


class Meeting(tc.nn.Module):
    """Calls `between` in the middle of its forward."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.between = tc.nn.Linear(8, 8), tc.nn.Linear(8, 8), lambda: None

    def forward(self, x):
        x = self.first(x)
        between, self.between = self.between, lambda: None
        between()
        return self.last(x)


def test_two_threads_call_one_module():
    """As in PyTorch, what a call computes with does not depend on another one in progress, with other gradients and precision."""
    model, x, found = Meeting(), tc.tensor(data()[0][0]), []

    def compute(half):
        with tc.autocast(enabled=half), tc.no_grad():
            return model(x)

    def train(half):
        model.zero_grad()
        with tc.autocast(enabled=half):
            model(x).sum().backward()
        return model.last.weight.grad.clone()

    def state(half):
        return model.state_dict()["last.weight"].clone()

    for call in (compute, train, state):
        for half in (False, True):
            expected, outer = call(half), compute(True)

            def between(call=call, half=half):
                thread = threading.Thread(target=lambda: found.append(call(half)))
                thread.start()
                thread.join()

            model.between = between
            assert tc.equal(compute(True), outer) and found[-1].dtype == expected.dtype and tc.equal(found[-1], expected)
    assert len(found) == 6


class Reversing(tc.TrainingModule):
    def __init__(self):
        super().__init__()
        self.net = model_of()

    def configure_optimizers(self):
        return tc.optim.AdamW(self.parameters(), lr=3e-3)

    def training_step(self, batch, batch_idx):
        x, target = batch
        logits = self.net(x)
        assert logits.dtype == np.float32
        loss = tc.F.cross_entropy(logits.reshape(-1, 8), target.reshape(-1))
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.training_step(batch, batch_idx))

    def predict_step(self, batch, batch_idx):
        return self.net(batch)


def test_a_trainer_learns_in_mixed_precision():
    x, target = data(256)
    runs = {}
    for precision in ("32-true", "bf16-mixed"):
        tc.manual_seed(0)
        model = Reversing()
        run = tc.Trainer(25, progress=False, precision=precision)
        run.fit(model, (x, target), (x, target), batch_size=32)
        runs[precision] = run.history
        assert all(p.dtype == np.float32 for p in model.parameters())
        assert run.predict(model, x).dtype == np.float32
    a, b = runs.values()
    assert a["train_loss"][0] != b["train_loss"][0] and abs(a["train_loss"][0] - b["train_loss"][0]) < 0.05
    assert b["train_loss"][0] > 1.5 and b["val_loss"][-1] < 0.2


@pytest.mark.parametrize(
    ("given", "advice"), [("16-mixed", "bf16-mixed"), (64, "model.to"), ("bf16-true", "bfloat16\\(\\)"), ("half", "bf16-mixed")]
)
def test_other_precisions_are_refused(given, advice):
    with pytest.raises(ValueError, match=f"precision must be .*{advice}"):
        tc.Trainer(1, precision=given)
