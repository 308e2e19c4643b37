"""Parts of a training: losses, modules, optimizers, loaders."""

import functools

import numpy as np

from .draw import FLOATS, Call, functional

OF_TWO = {  # of an input and a target; the values of both
    "mse_loss": ("normal", "normal"),
    "l1_loss": ("normal", "normal"),
    "smooth_l1_loss": ("normal", "normal"),
    "huber_loss": ("normal", "normal"),
    "binary_cross_entropy": ("shares", "shares"),
    "binary_cross_entropy_with_logits": ("normal", "shares"),
    "kl_div": ("normal", "shares"),
}
OF_CLASSES = {
    "cross_entropy": {},
    "cross_entropy of each": {"reduction": "none"},
    "cross_entropy smoothed": {"label_smoothing": 0.1},
    "cross_entropy with some ignored": {},
    "cross_entropy weighted": {},
    "nll_loss": {},
}


def losses(draw):
    """Of classes, by their indices or chances; of numbers; of three rows."""
    name, dtype = (
        draw.choice((*OF_CLASSES, "cross_entropy of chances", *OF_TWO, "triplet_margin_loss", "gaussian_nll_loss")),
        draw.choice(FLOATS),
    )
    function = functional(name.split()[0], **({"reduction": "batchmean"} if name == "kl_div" else OF_CLASSES.get(name, {})))
    if name in OF_CLASSES:
        classes = draw.choice((2, 3, 5, 10, 16, 100, 1000, 5000, 30000))
        x = draw.input((draw.size(max(2, (1 << 21) // classes)), classes), dtype)
        target = draw.indices(x.shape[:1], classes)
        if name.endswith("ignored"):
            target.array[::2] = -100
            target.array[-1:] = 0
        if name.endswith("weighted"):
            weight = draw.plain((classes,), dtype, "positive").constant()
            return Call(name, lambda m, x, t, w: m.nn.functional.cross_entropy(x, t, w), (x, target, weight), True)
        return Call(name, function, (x, target), True)
    shape = draw.shape(2, largest=1 << 20)
    if name in OF_TWO:
        values, wanted = OF_TWO[name]
        return Call(name, function, (draw.input(shape, dtype, values), draw.input(shape, dtype, wanted).constant()), True)
    x, y, z = (draw.input(shape, dtype, "positive") for _ in range(3))
    if name == "cross_entropy of chances":
        return Call(name, function, (x, y.constant()), True)
    return Call(name, function, (x, y, z if name == "triplet_margin_loss" else z.constant()), True)


# ---- modules: made once for each library -----------------------------------------------------------------------------


def _modules(size):
    """{name: function of torch or transformer_c that makes a module}"""

    def layer(nn, kind, **options):
        return getattr(nn, kind)(size, 4, 2 * size, batch_first=True, dropout=0.0, **options)

    return {
        "MLP": lambda nn: nn.Sequential(
            nn.Linear(size, 2 * size), nn.ReLU(), nn.Linear(2 * size, 2 * size), nn.GELU(), nn.Linear(2 * size, 10)
        ),
        "TransformerEncoderLayer": lambda nn: layer(nn, "TransformerEncoderLayer"),
        "TransformerEncoder": lambda nn: nn.TransformerEncoder(
            layer(nn, "TransformerEncoderLayer", norm_first=True), 2, enable_nested_tensor=False
        ),
        "TransformerDecoderLayer": lambda nn: layer(nn, "TransformerDecoderLayer"),
        "MultiheadAttention": lambda nn: nn.MultiheadAttention(size, 4, batch_first=True),
        "norm and head": lambda nn: nn.Sequential(
            nn.LayerNorm(size), nn.Linear(size, size), nn.Tanh(), nn.Dropout(0.0), nn.Linear(size, 1), nn.Sigmoid()
        ),
        "Embedding and Linear": lambda nn: nn.Sequential(nn.Embedding(1000, size), nn.Linear(size, size)),
        "convolutions": lambda nn: nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 49, 10)
        ),
    }


def modules(draw):
    batch, size, length = draw.choice((1, 1, 1, 4, 32)), draw.choice((8, 32, 64, 128, 256)), draw.choice((1, 5, 16, 64))
    made = _modules(size)
    name, training = draw.choice(tuple(made)), draw.random() < 0.4
    inputs_of = {"TransformerDecoderLayer": 2, "MultiheadAttention": 3}

    @functools.cache
    def model_of(module):
        module.manual_seed(0)
        return made[name](module.nn).train(training)

    def function(module, x):
        model, xs = model_of(module), (x,) * inputs_of.get(name, 1)
        with module.set_grad_enabled(training):
            out = model(*xs, need_weights=False)[0] if name == "MultiheadAttention" else model(*xs)
        if training:
            model.zero_grad()
            out.sum().backward()
        return out.detach()

    if name == "Embedding and Linear":
        x = draw.indices((batch, length), 1000)
    else:
        x = draw.plain((batch, 3, 16, 16) if name == "convolutions" else (batch, length, size), "float32").constant()
    return Call(f"{name} {size}{', a step of training' * training}", function, (x,), compared=False)


# ---- what goes on between the steps -----------------------------------------------------------------------------------


OPTIMIZERS = {
    "SGD": ("SGD", {}),
    "SGD with momentum": ("SGD", {"momentum": 0.9, "weight_decay": 1e-2}),
    "Adam": ("Adam", {}),
    "AdamW": ("AdamW", {}),
    "RMSprop": ("RMSprop", {}),
}


def optimizers(draw):
    name, few = draw.choice((*OPTIMIZERS, "clip_grad_norm_", "clip_grad_value_")), draw.random() < 0.5
    count = draw.choice((1, 2, 4) if few else (20, 100, 300))
    shape = (draw.choice((100, 1000)), draw.choice((100, 1000, 1024))) if few else draw.choice(((1,), (32,), (16, 16), (7,)))

    @functools.cache
    def parameters_and_optimizer(module):
        parameters = [module.nn.Parameter(module.randn(*shape)) for _ in range(count)]
        for parameter in parameters:
            parameter.grad = module.randn(*shape) * 1e-3
        kind, options = OPTIMIZERS.get(name, OPTIMIZERS["SGD"])
        return parameters, getattr(module.optim, kind)(parameters, lr=1e-4, **options)

    def function(module):
        parameters, optimizer = parameters_and_optimizer(module)
        if name in OPTIMIZERS:
            optimizer.step()
        else:
            getattr(module.nn.utils, name)(parameters, 1e9)

    return Call(f"{name} of {count} times {shape}", function, compared=False)


def loaders(draw):
    """All batches of a DataLoader."""
    item = draw.choice(((1,), (8,), (16, 32), (3, 32, 32), (784,)))
    size = draw.choice((100, 1000, 5000) if np.prod(item) < 800 else (100, 1000))
    kind, batch, shuffle = draw.choice(("TensorDataset", "Subset", "tuples", "dicts")), draw.choice((1, 8, 32, 128)), draw.random() < 0.5
    values, labels = draw.array((size, *item), "float32"), draw.array((size,), "int64", below=10)

    def items(module, x, y):
        if kind == "tuples":
            return [(x[i], int(labels[i])) for i in range(size)]
        if kind == "dicts":
            return [{"x": x[i], "y": y[i]} for i in range(size)]
        whole = module.utils.data.TensorDataset(x, y)
        return module.utils.data.Subset(whole, range(0, size, 2)) if kind == "Subset" else whole

    @functools.cache
    def loader_of(module):
        dataset = items(module, module.tensor(values), module.tensor(labels))
        return module.utils.data.DataLoader(dataset, batch_size=batch, shuffle=shuffle)

    def function(module):
        for _ in loader_of(module):
            pass

    return Call(f"DataLoader of {kind}, {size} times {item}, batches of {batch}{', shuffled' * shuffle}", function, compared=False)


FAMILIES = (losses, modules, optimizers, loaders)
