"""Everything that training needs, on device="cuda:emulated": embedding, losses, indexing, integers, optimizers, and the steps of a whole model, each
compared with the CPU, which other tests compare with the reference."""

import ml_dtypes
import numpy as np
import pytest
import transformer_c as tc
from cuda_library import small
from device_cases import FLOATS, array, beside_the_cpu, host
from transformer_c import functional as F
from transformer_c.distributed.group import Group
from transformer_c.trainer.zero import Zero
from transformer_c.tutorials import godoy, keras_book, sensio, uva

pytestmark = pytest.mark.usefixtures("nothing_is_left")

INTEGERS = ["int64", "int32", "uint8", "bool"]


def integers(rng, shape, dtype, low=-9):
    values = rng.integers(0, 2, shape) if dtype == "bool" else rng.integers(0 if dtype == "uint8" else low, 10, shape)
    return values.astype(dtype)


# ---- embedding ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [(1, 1), small((7, 6)), (300, 3)], ids=str)  # more rows than a block has threads
@pytest.mark.parametrize("count", [0, 5, 333])
def test_embedding(emulated_gpu, table, count, rng):
    weight, indices = array(rng, table, "float32"), rng.integers(0, table[0], count)
    for dtype in ("float32", "float16", "bfloat16"):
        beside_the_cpu(lambda i, w: F.embedding(i, w), emulated_gpu, rng, indices, array(rng, table, dtype))
    beside_the_cpu(lambda i, w: F.embedding(i, w, padding_idx=-1), emulated_gpu, rng, indices.astype(np.int32), weight.astype(np.float64))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("width", [1, 2, 3, 4])  # rows of 2 to 32 bytes
def test_rows_of_any_size(emulated_gpu, width, dtype, rng):
    weight = tc.tensor(array(rng, (5, width), dtype), device=emulated_gpu)
    np.testing.assert_array_equal(
        host(F.embedding(tc.tensor([[4, 0], [4, 2]], device=emulated_gpu), weight)), host(weight)[[[4, 0], [4, 2]]]
    )


def test_one_hot(emulated_gpu, rng):
    beside_the_cpu(lambda i: F.one_hot(i, 5), emulated_gpu, rng, rng.integers(0, 5, (3, 50)))


# ---- losses ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("classes", [1, 10, 75])
def test_cross_entropy(emulated_gpu, classes, dtype, rng):
    x, target, weight = array(rng, (9, classes), dtype), rng.integers(0, classes, 9), array(rng, classes, dtype)
    x[0] += x.dtype.type(1e4)  # digits that a sum of maximum and logarithm would lose
    target[1] = -100
    for options in ({}, {"label_smoothing": 0.1}, {"reduction": "none"}, {"reduction": "sum", "ignore_index": 0}):
        beside_the_cpu(lambda a, t, o=options: F.cross_entropy(a, t, **o), emulated_gpu, rng, x, np.where(target == -100, 0, target))
    beside_the_cpu(lambda a, t: F.cross_entropy(a, t), emulated_gpu, rng, x, target)
    beside_the_cpu(lambda a, t: F.nll_loss(a, t), emulated_gpu, rng, x, target)
    w = {place: tc.tensor(weight, device=place) for place in ("cpu", emulated_gpu)}
    beside_the_cpu(lambda a, t: F.cross_entropy(a, t, weight=w[a.device], label_smoothing=0.2), emulated_gpu, rng, x, target)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("classes", [301, 1032, 2051, 8200])  # more than a warp and than a block keep, with and without vectors
def test_cross_entropy_of_many_classes(emulated_gpu, classes, dtype, rng):
    x, target = array(rng, (3, classes), dtype), np.array([classes - 1, 5, 0])
    x[0, : classes - 3] = -np.inf  # the first elements that are read have no finite one
    x[1, -1] = 50  # the last ones raise the largest
    beside_the_cpu(lambda a, t: F.cross_entropy(a, t), emulated_gpu, rng, x, target)
    x[0] = np.linspace(-30, 30, classes)
    for options in ({"label_smoothing": 0.1}, {"label_smoothing": 0.3, "reduction": "sum", "ignore_index": 5}):
        beside_the_cpu(lambda a, t, o=options: F.cross_entropy(a, t, **o), emulated_gpu, rng, x, target)
    beside_the_cpu(lambda a, t: F.nll_loss(a, t), emulated_gpu, rng, x, target)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_elementwise_losses(emulated_gpu, reduction, dtype, rng):
    dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    logits, target, weight = ((s * rng.standard_normal((5, 31))).astype(dtype) for s in (30, 1, 1))
    probabilities, zero_one = rng.random((5, 31)).astype(dtype), (target > 0).astype(dtype)
    probabilities[0, :2], logits[0, :2] = [0, 1], [-200, 200]
    w = {place: tc.tensor(np.abs(weight), device=place) for place in ("cpu", emulated_gpu)}
    beside_the_cpu(lambda a, b: F.mse_loss(a, b, reduction=reduction), emulated_gpu, rng, logits, target)
    for beta in (0.0, 1.0):
        beside_the_cpu(lambda a, b, k=beta: F.smooth_l1_loss(a, b, reduction, k), emulated_gpu, rng, logits, target)
    for log, given in ((False, probabilities), (True, np.abs(target))):
        beside_the_cpu(lambda a, b, k=log: F.kl_div(a, b, reduction, k), emulated_gpu, rng, target, given)
    beside_the_cpu(lambda a, b: F.binary_cross_entropy(a, b, reduction=reduction), emulated_gpu, rng, probabilities, zero_one)
    beside_the_cpu(
        lambda a, b: F.binary_cross_entropy_with_logits(a, b, weight=w[a.device], pos_weight=w[a.device], reduction=reduction),
        emulated_gpu, rng, logits, zero_one,
    )  # fmt: skip


# ---- places and extremes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8"])
def test_gathering(emulated_gpu, dtype, rng):
    x, rows, columns = array(rng, (6, 5, 4), dtype), rng.integers(-6, 6, (3, 7)), rng.integers(0, 4, (3, 7))
    beside_the_cpu(lambda t, i: t[i], emulated_gpu, rng, x, rows)  # many rows more than once
    beside_the_cpu(lambda t, i, j: t[i, :, j], emulated_gpu, rng, x, rows, columns)
    beside_the_cpu(lambda t, i, j: t.permute(2, 1, 0)[j, 1:, i], emulated_gpu, rng, x, rows, columns)
    beside_the_cpu(lambda t, m: t[m], emulated_gpu, rng, x, rng.random((6, 5)) < 0.5)


@pytest.mark.small
def test_a_row_taken_by_all(emulated_gpu, rng):
    """Gradients of one place from more points than a block has threads."""
    beside_the_cpu(lambda t, i: t[i], emulated_gpu, rng, array(rng, (3, 2), "float64"), np.repeat([2, 0, 2], 70))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bool", "int32"])
def test_writing(emulated_gpu, dtype, rng):
    rows, value = np.concatenate([rng.integers(0, 6, 150), [1, 1]]), array(rng, (152, 4), dtype)  # of equal places the last one stays

    def write(t, i, v):
        t = t * 1 if t.requires_grad else t.clone()
        t[i] = v
        t[i[:2], 1] = 0
        return t

    beside_the_cpu(write, emulated_gpu, rng, array(rng, (6, 4), dtype), rows, value)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sorting_halves(emulated_gpu, dtype, rng):
    x = array(rng, (3, 2, 70), dtype)
    x[0, 1, ::9] = np.nan
    for descending in (False, True):
        beside_the_cpu(lambda t, d=descending: t.permute(0, 2, 1).argsort(1, d), emulated_gpu, rng, x)


@pytest.mark.parametrize("length", [256, 257, 700, 1100])
def test_sorting_long_rows(emulated_gpu, rng, length):
    """One run and no merging, a run of one element, one merge with a short half, two merges."""
    few = rng.integers(0, 40, (2, length))  # many are equal: they keep their order
    many = rng.standard_normal((2, length)).astype(np.float32)
    many[0, ::7] = np.nan
    for x in (few, many):
        for descending in (False, True):
            beside_the_cpu(lambda t, d=descending: t.argsort(1, d), emulated_gpu, rng, x)
        beside_the_cpu(lambda t: tc.topk(t, 5, 1).indices, emulated_gpu, rng, x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(emulated_gpu, name, dtype, rng):
    """Halves are saved as such here and as float32 on CPUs: test_cuda_tensors.py compares their gradients with the reference."""
    for shape, axis in [((4, 37), -1), ((3, 70, 5), 1)]:
        beside_the_cpu(lambda t, a=axis: getattr(t, name)(a), emulated_gpu, rng, array(rng, shape, dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", *INTEGERS])
def test_extremes(emulated_gpu, dtype, rng):
    x = integers(rng, (4, 37, 3), dtype if dtype in INTEGERS else "int64").astype(dtype)
    if dtype.startswith("float"):
        x[1, 5, 0] = x[1, 7, 0] = np.nan
        x[2] = -np.inf
    for axis in (None, 0, 1, 2):
        beside_the_cpu(lambda t, a=axis: t.argmax(a), emulated_gpu, rng, x)
        beside_the_cpu(lambda t, a=axis: t.argmin(a), emulated_gpu, rng, x)
        beside_the_cpu(lambda t, a=axis: t.max() if a is None else t.max(a)[0], emulated_gpu, rng, x)
        beside_the_cpu(lambda t, a=axis: t.min() if a is None else t.min(a)[0], emulated_gpu, rng, x)
    for descending in (False, True):
        beside_the_cpu(lambda t, d=descending: t.permute(0, 2, 1).argsort(descending=d), emulated_gpu, rng, x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "uint8"])
def test_triangles(emulated_gpu, dtype, rng):
    for diagonal in (-2, 0, 1, 9):
        beside_the_cpu(lambda t, d=diagonal: tc.triu(t, d), emulated_gpu, rng, array(rng, (2, 4, 5), dtype))
        beside_the_cpu(lambda t, d=diagonal: tc.tril(t, d), emulated_gpu, rng, array(rng, (2, 5, 4), dtype))


# ---- along an axis, functions made of ops -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_gather_scatter_and_cumsum(emulated_gpu, dtype, rng):
    for shape, axis, lengths in [((5,), 0, (9,)), ((3, 70), 1, (2, 5)), ((4, 3, 50), 1, (4, 7, 33)), ((2, 3), 0, (0, 3))]:
        x, src = array(rng, shape, dtype), array(rng, [n + 1 for n in lengths], dtype)
        index = rng.integers(0, shape[axis], lengths)
        beside_the_cpu(lambda t, i, a=axis: t.gather(a, i), emulated_gpu, rng, x, index)
        for reduce in ("add", "multiply") if dtype in INTEGERS else ("add",):
            beside_the_cpu(lambda t, i, s, a=axis, r=reduce: t.scatter(a, i, s, reduce=r), emulated_gpu, rng, x, index, src)
        distinct = np.argsort(rng.random(shape), axis)
        beside_the_cpu(lambda t, i, s, a=axis: t.scatter(a, i, s), emulated_gpu, rng, x, distinct, array(rng, shape, dtype))
        for reduce in (None, "add"):
            beside_the_cpu(
                lambda t, i, s, a=axis, r=reduce: t.detach().clone().scatter_(a, i, s.detach(), reduce=r),
                emulated_gpu,
                rng,
                x,
                distinct,
                array(rng, shape, dtype),
            )
    for shape, axis in [((300,), 0), ((2, 5, 40), 1), ((3, 4), 0)]:
        beside_the_cpu(lambda t, a=axis: t.cumsum(a), emulated_gpu, rng, array(rng, shape, dtype))
    with pytest.raises(RuntimeError, match="index 5"):
        tc.zeros(5, device=emulated_gpu).gather(0, tc.tensor([5], device=emulated_gpu)).cpu()


MADE_OF_OPS = {
    "clamp": lambda t: (t.clamp(2.0, t[:1]), t.clamp(2, 5)),
    "extremes": lambda t: (t.max(0).values, t.min(1).indices, t.amax(1), t.amin((0, 1))),
    "spread": lambda t: (t.std(0), t.norm(dim=1), t.norm(3), t.norm(float("inf")), t.logsumexp(0), t.prod(0)),
    "order": lambda t: (*t.sort(1, descending=True), *t.topk(2, 0)),
    "masks": lambda t: (
        t.isnan(),
        t.isfinite(),
        t.isinf(),
        t.logical_not(),
        t.nonzero(),
        t.masked_select(t > 3),
        t.masked_fill(t > 3, t[0, 0]),
    ),
    "shapes": lambda t: (t.repeat(2, 1, 2), t.repeat_interleave(2, 0), t.roll(1, 1), tc.outer(t[0], t[1]), tc.einsum("ij,kj->ik", t, t)),
    "put": lambda t: t.index_put((tc.tensor([0, 0], device=t.device),), t[:2], accumulate=True),
}


@pytest.mark.parametrize("name", MADE_OF_OPS)
def test_functions_made_of_ops(emulated_gpu, name, rng):
    def joined(t):
        results = MADE_OF_OPS[name](t)
        return tc.cat([r.float().reshape(-1) for r in (results if isinstance(results, tuple) else (results,))])

    beside_the_cpu(joined, emulated_gpu, rng, array(rng, (4, 5), "float32"))


# ---- integers ----------------------------------------------------------------------------------------------------------------------

ARITHMETIC = ["__add__", "__sub__", "__mul__", "__floordiv__", "__mod__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_integer_arithmetic(emulated_gpu, name, dtype, rng):
    a, b = integers(rng, (4, 1, 30), dtype), integers(rng, (3, 30), dtype)
    b[0, :3], a[0, 0, 0] = [0, 1, 2], np.iinfo(dtype).min
    if name in ("__floordiv__", "__mod__"):
        b[b == 0] = 3  # refused
    beside_the_cpu(lambda x, y: getattr(x, name)(y), emulated_gpu, rng, a, b)
    beside_the_cpu(lambda x: getattr(x, name)(3), emulated_gpu, rng, a)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_otherwise(emulated_gpu, dtype, rng):
    x, y = integers(rng, (4, 40, 3), dtype), integers(rng, (4, 40, 3), dtype)
    if dtype != "bool":
        beside_the_cpu(lambda t: -t, emulated_gpu, rng, x)
        beside_the_cpu(lambda t: t.abs(), emulated_gpu, rng, x)
        beside_the_cpu(lambda t: abs(t) ** 3, emulated_gpu, rng, x)
    beside_the_cpu(lambda t, u: (t & u) | (t ^ u), emulated_gpu, rng, x, y)
    beside_the_cpu(lambda t, u: tc.where(t > u, t, u), emulated_gpu, rng, x, y)
    beside_the_cpu(lambda t, u: t.permute(0, 2, 1) @ u, emulated_gpu, rng, x, y)
    for axis in (None, 1, (0, 2)):
        for name in ("sum", "any", "all"):
            beside_the_cpu(lambda t, n=name, a=axis: getattr(t, n)(a), emulated_gpu, rng, x)


# ---- optimizers --------------------------------------------------------------------------------------------------------------------

OPTIMIZERS = {
    "SGD": (tc.optim.SGD, {"lr": 0.1}),
    "SGD nesterov": (tc.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "SGD dampening": (tc.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "maximize": True}),
    "Adam": (tc.optim.Adam, {"lr": 0.01}),
    "Adam amsgrad": (tc.optim.Adam, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}),
    "AdamW": (tc.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "RMSprop": (tc.optim.RMSprop, {"lr": 0.01}),
    "RMSprop centered": (tc.optim.RMSprop, {"lr": 0.01, "centered": True, "momentum": 0.5, "eps_inside_sqrt": True}),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(emulated_gpu, name, dtype, rng):
    make, options = OPTIMIZERS[name]
    shapes = [(), (3, 5), (4097,), (0, 4)]  # several blocks
    if (name, dtype) == ("Adam", "float32"):
        shapes += [(2,)] * 62  # more than go into one launch
    values, gradients = ([array(rng, s, dtype) for s in shapes] for _ in range(2))
    found = []
    for place in ("cpu", emulated_gpu):
        parameters = [tc.tensor(v, device=place, requires_grad=True) for v in values]
        optimizer = make(parameters, **options)
        for step in range(3):
            for p, g in zip(parameters, gradients, strict=True):
                p.grad = tc.tensor(g * (1 + step), device=place)
            optimizer.step()
        found.append([host(p) for p in parameters])
    for on_cpu, on_gpu in zip(*found, strict=True):
        tolerance = {"float32": 1e-5, "float64": 1e-12, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
        np.testing.assert_allclose(on_gpu.astype(np.float64), on_cpu.astype(np.float64), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("power", [1, small(2), 3, float("inf")])
def test_norms_and_clipping(emulated_gpu, power, rng):
    shapes = [(5000,), (3, 4)] + [(2,)] * (63 if power == 2 else 1)  # more than go into one launch
    gradients = [array(rng, s, "float32") - 5 for s in shapes]
    found = []
    for place in ("cpu", emulated_gpu):
        parameters = [tc.tensor(np.zeros_like(g), device=place, requires_grad=True) for g in gradients]
        for p, g in zip(parameters, gradients, strict=True):
            p.grad = tc.tensor(g, device=place)
        norm = tc.nn.utils.clip_grad_norm_(parameters, 1.5, norm_type=power)
        tc.nn.utils.clip_grad_value_(parameters, 0.01)
        found.append([float(norm), *(host(p.grad) for p in parameters)])
    for on_cpu, on_gpu in zip(*found, strict=True):
        np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-6)
    parameters[0].grad[7] = np.nan
    assert np.isnan(float(tc.nn.utils.clip_grad_norm_(parameters, 1.0, norm_type=power)))


# ---- whole trainings ---------------------------------------------------------------------------------------------------------------


def losses_of(place, steps, dropout):
    tc.manual_seed(0)
    model = uva.ReversePredictor(
        input_dim=10, model_dim=16, num_classes=10, num_heads=2, num_layers=1, dropout=dropout, lr=2e-3, warmup=3, max_iters=100
    ).to(place)
    optimizer = tc.optim.Adam(model.parameters(), lr=5e-3)
    schedule = tc.CosineWarmupScheduler(optimizer, warmup=2, max_iters=100)
    found = []
    numbers = tc.tensor(np.random.default_rng(0).integers(0, 10, (4, 6)))
    batch = numbers.to(place), numbers.flip(-1).contiguous().to(place)
    for step in range(steps):
        loss = model.training_step(batch, step)
        optimizer.zero_grad()
        loss.backward()
        tc.nn.utils.clip_grad_norm_(model.parameters(), 5)
        optimizer.step()
        schedule.step()
        found.append(loss.item())
    return np.array(found)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_reverse_task_trains_as_on_the_cpu(emulated_gpu, dropout):
    on_cpu, on_gpu = (losses_of(place, 6, dropout) for place in ("cpu", emulated_gpu))
    assert on_cpu[-1] < on_cpu[0]
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=2e-5)


@pytest.mark.whole
def test_the_trainer_trains_there(emulated_gpu, tmp_path):
    """Fit, validate, checkpoint and resume with device=, and test on the CPU what was trained on the GPU."""
    tc.manual_seed(1)
    x = np.random.default_rng(0).integers(0, 5, (24, 4))
    data = tc.data.DataLoader(tc.data.TensorDataset(x, x[:, ::-1].copy()), batch_size=8)
    make = lambda: uva.ReversePredictor(
        input_dim=5, model_dim=8, num_classes=5, num_heads=1, num_layers=1, lr=5e-3, warmup=2, max_iters=12
    )  # fmt: skip
    trainer = tc.Trainer(2, device=emulated_gpu, progress=False, checkpoint_dir=tmp_path)
    model = make()
    trainer.fit(model, data, data)
    assert {p.device for p in model.parameters()} == {emulated_gpu}
    again = make()
    tc.Trainer(3, device=emulated_gpu, progress=False, checkpoint_dir=tmp_path).fit(again, data, data, resume="last")
    on_cpu = uva.ReversePredictor.load_from_checkpoint(trainer.best_model_path)
    assert {p.device for p in on_cpu.parameters()} == {"cpu"}
    np.testing.assert_allclose(on_cpu(F.one_hot(tc.tensor(x), 5).float()).shape, (24, 4, 5))


@pytest.mark.parametrize("make", [lambda: tc.nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)], ids=["nn.Transformer"])
def test_sequence_to_sequence(emulated_gpu, make, rng):
    model = make()
    source, target = (rng.standard_normal(s).astype(np.float32) for s in ((2, 5, 8), (2, 4, 8)))
    found = []
    for place in ("cpu", emulated_gpu):
        model.to(place)
        model.zero_grad()
        mask = tc.nn.Transformer.generate_square_subsequent_mask(4, device=place)
        loss = F.mse_loss(
            model(tc.tensor(source, device=place), tc.tensor(target, device=place), tgt_mask=mask), tc.zeros(2, 4, 8, device=place)
        )
        loss.backward()
        found.append([host(loss), *(host(p.grad) for p in model.parameters())])
    for on_cpu, on_gpu in zip(*found, strict=True):
        np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-4, atol=1e-6)


# ---- the other documents' models -----------------------------------------------------------------------------------------------------

SQUARES = (4, 4, 2), (4, 2, 2)
MODULES = {
    "squares, own layers": (lambda: godoy.SquaresPredictor("own", dropout=0.0), *SQUARES),
    "squares, nn.Transformer": (lambda: godoy.SquaresPredictor("nn", dropout=0.0), *SQUARES),
    "digits, MLP": (lambda: sensio.MLP(n_hidden=8), (4, 784), (4,)),
    "digits, features": (lambda: sensio.Model(4, 4, 4, 2, 1), (4, 4, 4), (4,)),
    "digits, patches": (lambda: sensio.Model(4, 4, 4, 2, 1, over="patches"), (4, 4, 4), (4,)),
    "reviews": (lambda: keras_book.ReviewModel(2, 4, 2, 4, dropout=0.0), (4, 5), (4,)),
}


@pytest.mark.whole
@pytest.mark.parametrize("name", MODULES)
def test_modules_of_the_documents(emulated_gpu, name, rng):
    """A training with validation gives the CPU's losses."""
    make, x_shape, y_shape = MODULES[name]
    x = rng.integers(0, 2, x_shape) if name == "reviews" else array(rng, x_shape, "float32")
    y = rng.integers(0, 2, y_shape) if len(y_shape) == 1 else array(rng, y_shape, "float32")
    found = []
    for device in ("cpu", emulated_gpu):
        tc.manual_seed(3)
        model, trainer = make(), tc.Trainer(2, 1.0, device=device, progress=False)
        given = x[:, :2] if name.startswith("squares") else x
        trainer.fit(model, tc.data.DataLoader(tc.data.TensorDataset(x, y), 2), tc.data.DataLoader(tc.data.TensorDataset(given, y), 4))
        found.append([trainer.history["loss"], trainer.history["val_loss"]])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_steps_of_a_shared_out_state_are_those_on_the_cpu(dtype, emulated_gpu):
    """As ``strategy="zero"`` takes them, of one rank: gradients, parameters and state go to the host to be sent, and back."""

    def trained(device):
        tc.manual_seed(0)
        model = tc.nn.Sequential(tc.nn.Linear(5, 7), tc.nn.Linear(7, 3)).to(dtype).to(device)
        zero = Zero(Group(), tc.optim.AdamW(model.parameters(), lr=0.1))
        for _ in range(2):
            model.zero_grad()
            model(tc.ones(2, 5).to(dtype).to(device)).float().square().mean().backward()
            zero.sum_gradients([True] * 4, 0.1, "norm")
            zero.step()
        states = [value for state in zero.state_dict()["state"].values() for value in state.values() if isinstance(value, tc.Tensor)]
        return [np.asarray(value.detach().float().cpu()) for value in [*model.parameters(), *states]]

    for gpu, cpu in zip(trained(emulated_gpu), trained("cpu"), strict=True):
        np.testing.assert_allclose(gpu, cpu, atol=1e-6 if dtype == "float32" else 1e-2)
