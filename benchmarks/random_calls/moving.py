"""Calls that move elements: by an index or a mask, into another shape, order or dtype; and those that make new ones."""

import math

import numpy as np

from .draw import FLOATS, INTEGERS, Call, Input, functional, method, of_module

ANY = (*FLOATS, "int64", "bool")
MOST = 1 << 20  # elements that an index gives


def rows_by_index(draw):
    """Whole rows of an axis, by an index or none."""
    shape, dtype = draw.shape(draw.choice((1, 2, 2, 3)), largest=MOST), draw.choice(FLOATS)
    axis = draw.randrange(len(shape))
    count = max(1, min(draw.size(1 << 14), MOST * shape[axis] // math.prod(shape)))
    x, index = draw.input(shape, dtype), draw.indices((count,), shape[axis])
    rows = draw.input((*shape[:axis], count, *shape[axis + 1 :]), dtype)
    here, repeats = (slice(None),) * axis, draw.choice((2, 3, 5))
    calls = {
        "index_select": ((x, index), lambda m, x, i: m.index_select(x, axis, i)),
        "x[..., i, ...]": ((x, index), lambda m, x, i: x[(*here, i)]),
        "x[..., i[:, None], ...]": ((x, index), lambda m, x, i: x[(*here, i[:, None])]),
        "index_add": ((x, index, rows), lambda m, x, i, rows: x.index_add(axis, i, rows)),
        "index_fill": ((x, index), lambda m, x, i: x.index_fill(axis, i, 1.0)),
        f"repeat_interleave {repeats}": ((x,), lambda m, x: m.repeat_interleave(x, repeats, dim=axis)),
        "x[1:][..., ::2] + 0": ((x,), lambda m, x: x[1:][..., ::2] + 0),
        "x[0]": ((x,), lambda m, x: x[0]),
    }
    name = draw.choice(tuple(calls))
    inputs, function = calls[name]
    return Call(f"{name} dim={axis}", function, inputs, draw.sometimes())


def elements_by_index(draw):
    """Single elements along an axis, or of the first two axes."""
    shape, dtype = draw.shape(draw.choice((2, 3)), largest=1 << 19), draw.choice(FLOATS)
    axis = draw.randrange(len(shape))
    count = max(1, min(draw.size(1 << 15), MOST // math.prod(shape[2:])))
    x, source = draw.input(shape, dtype), draw.plain((count, *shape[2:]), dtype)
    pair = draw.indices((count,), shape[0]), draw.indices((count,), shape[1])
    along = (*shape[:axis], max(1, min(draw.size(1 << 14), 2 * shape[axis])), *shape[axis + 1 :])
    index, values = draw.input(along, "int64", below=shape[axis]), draw.input(along, dtype)
    calls = {
        "gather": ((x, index), lambda m, x, i: m.gather(x, axis, i)),
        "scatter_add": ((x, index, values), lambda m, x, i, values: m.scatter_add(x, axis, i, values)),
        "scatter": ((x, index), lambda m, x, i: m.scatter(x, axis, i, 1.0)),
        "x[i, j]": ((x, *pair), lambda m, x, i, j: x[i, j]),
        "index_put": ((x, *pair), lambda m, x, i, j: x.index_put((i, j), m.tensor(1.0, dtype=x.dtype))),
        "index_put accumulate": ((x, *pair, source), lambda m, x, i, j, source: x.index_put((i, j), source, accumulate=True)),
    }
    name = draw.choice(tuple(calls))
    inputs, function = calls[name]
    return Call(f"{name} dim={axis}", function, inputs, draw.sometimes())


def by_mask(draw):
    shape, dtype = draw.shape(draw.choice((1, 2, 2, 3)), largest=MOST), draw.choice(FLOATS)
    share = draw.choice((0.01, 0.5, 0.99))
    mask = Input(np.random.default_rng(draw.randrange(1 << 30)).random(shape) < share, "bool", shape)
    name, function = draw.choice(
        (
            ("x[mask]", lambda m, x, mask: x[mask]),
            ("masked_select", lambda m, x, mask: m.masked_select(x, mask)),
            ("nonzero", lambda m, x, mask: m.nonzero(mask)),
            ("where(x > 0, x, 0)", lambda m, x, mask: m.where(x > 0, x, 0.0)),
            ("masked_fill", lambda m, x, mask: x.masked_fill(mask, 0.5)),
        )
    )
    return Call(f"{name}, {share} true", function, (draw.input(shape, dtype), mask), draw.sometimes())


def tables(draw):
    """Rows of an embedding, one-hot vectors."""
    index = draw.shape(2, largest=1 << 12)
    rows, width = draw.choice((draw.size(2000), 5000, 30000, 50257)), draw.choice((1, 3, 8, 32, 64, 100, 256))
    if draw.random() < 0.3:
        classes = draw.choice((2, 5, 10, 100, 1000))
        return Call(f"one_hot {classes}", functional("one_hot", classes), (draw.indices(index, classes),))
    table = draw.plain((rows, width if rows <= 2000 else min(width, 128)), draw.choice(FLOATS))
    return Call("embedding", lambda m, table, i: m.nn.functional.embedding(i, table), (table, draw.indices(index, rows)), draw.sometimes())


def moving(draw):
    """One tensor in another order or shape."""
    shape = draw.shape(draw.choice((2, 3, 4)), largest=1 << 21)
    axis, last, order = draw.randrange(len(shape)), len(shape) - 1, draw.order(shape)
    copies, pads = [draw.randint(1, 3) for _ in shape], [draw.randint(0, 3) for _ in range(4)]
    wrap, window = [min(1, shape[-1] - 1)] * 2, min(shape[axis], 5)
    functions = {
        "chunk": lambda m, x: m.chunk(x, 3, dim=axis)[0].contiguous(),
        "clone": method("clone"),
        "contiguous": method("contiguous"),
        "expand": lambda m, x: x.unsqueeze(axis).expand(*shape[:axis], 3, *shape[axis:]).contiguous(),
        "flip": of_module("flip", [axis]),
        "flip of two": of_module("flip", [0, last]),
        "movedim": lambda m, x: m.movedim(x, 0, -1).reshape(-1),
        "narrow": lambda m, x: m.narrow(x, axis, 0, max(1, shape[axis] // 2)).contiguous(),
        f"pad {pads[:2]}": functional("pad", pads[:2]),
        f"pad {pads} with ones": functional("pad", pads, value=1),
        f"permute {order}": lambda m, x: x.permute(*order).contiguous(),
        f"repeat {copies}": method("repeat", *copies),
        "reshape": method("reshape", -1),
        "roll": of_module("roll", 3, axis),
        "roll of two": of_module("roll", (1, -2), (0, last)),
        "transpose": lambda m, x: x.transpose(0, last).contiguous(),
        "tril": of_module("tril"),
        "triu": of_module("triu"),
        f"unfold {window}": lambda m, x: x.unfold(axis, window, window).contiguous(),
    }
    if len(shape) < 4:  # as PyTorch wants it
        functions["pad circular"] = functional("pad", wrap, mode="circular")
        functions["pad reflect"] = functional("pad", wrap, mode="reflect")
    name = draw.choice(tuple(functions))
    return Call(f"{name} dim={axis}", functions[name], (draw.input(shape, draw.choice(ANY)),), draw.sometimes())


def joining(draw):
    shape, dtype = draw.shape(draw.choice((2, 3)), largest=1 << 21), draw.choice(ANY)
    axis, many = draw.randrange(len(shape)), draw.choice((8, 32, 100, 500))
    x, y = draw.input(shape, dtype), draw.input(shape, dtype)
    shorter = draw.input((*shape[:axis], max(1, shape[axis] // 3), *shape[axis + 1 :]), dtype)
    small = draw.plain((many, *draw.shape(draw.choice((1, 2)), largest=1 << 12)), dtype)
    calls = {
        "cat": ((x, y), lambda m, *xs: m.cat(xs, dim=axis)),
        "cat of lengths": ((x, shorter, x), lambda m, *xs: m.cat(xs, dim=axis)),
        "stack": ((x, y), lambda m, *xs: m.stack(xs, dim=axis)),
        "vstack": ((x, y), lambda m, *xs: m.vstack(xs)),
        "hstack": ((x, y), lambda m, *xs: m.hstack(xs)),
        f"cat of {many}": ((small,), lambda m, x: m.cat([x[i] for i in range(many)], dim=-1)),
        f"stack of {many}": ((small,), lambda m, x: m.stack([x[i] for i in range(many)], dim=-1)),
        "unbind and stack": ((small,), lambda m, x: m.stack(m.unbind(x, dim=0), dim=1)),
    }
    name = draw.choice(tuple(calls))
    inputs, function = calls[name]
    return Call(f"{name} dim={axis}", function, inputs, draw.sometimes())


def views(draw):
    """Short chains of views, as programs around attention have them."""
    batch, length, size = draw.choice((1, 2, 8, 32)), draw.choice((1, 7, 16, 64, 128)), draw.choice((8, 32, 64, 100, 256))
    name, function = draw.choice(
        (
            ("sum of every other", lambda m, x: x[:, ::2].sum()),
            ("first of each", lambda m, x: x.transpose(1, 2)[:, :, :1].reshape(batch, -1).unsqueeze(1).expand(batch, 3, size) * 1),
            ("product of transposed", lambda m, x: x.transpose(0, 1) * x.transpose(0, 1)),
            ("columns, stacked", lambda m, x: m.stack([x[:, i] for i in range(min(length, 20))], dim=1)),
            ("heads and back", lambda m, x: x.reshape(batch, length, 4, -1).transpose(1, 2).contiguous().transpose(1, 2).reshape(x.shape)),
            ("first and last", lambda m, x: x[:, 0] + x[:, -1]),
            ("expand and multiply", lambda m, x: x[:, :1].expand(batch, length, size) * x),
            ("halves", lambda m, x: x.chunk(2, dim=-1)[0] * 2 + x.chunk(2, dim=-1)[1] * 2),
            ("the last by indices", lambda m, x: x[m.arange(batch), length - 1]),
            ("mean of positive", lambda m, x: (x * (x > 0).float()).sum(1) / length),
            ("a token before", lambda m, x: m.cat([x[:, :1] * 2, x], dim=1)),
        )
    )
    return Call(name, function, (draw.input((batch, length, size), "float32"),), draw.sometimes(0.7))


def casts(draw):
    before, after = draw.sample(("float32", "float64", "bfloat16", "float16", *INTEGERS, "bool"), 2)
    return Call(f"to {after}", lambda m, x: x.to(getattr(m, after)), (draw.input(draw.shape(), before, "positive"),))


def creating(draw):
    """New tensors, of random numbers as well."""
    shape = draw.shape(largest=1 << 21)
    count = math.prod(shape)
    values, listed = draw.array(shape, "float32"), draw.array((min(count, 30000),), "float32").tolist()
    chances = draw.plain(shape, "float32", "shares")
    weights = draw.plain((draw.size(50), draw.size(3000) + 1), "float32", "positive")
    calls = {
        "bernoulli": ((chances,), of_module("bernoulli")),
        "dropout": ((draw.input(shape, draw.choice(FLOATS)),), functional("dropout", 0.2)),
        "multinomial": ((weights,), of_module("multinomial", 1)),
        "normal_": ((chances,), method("normal_")),
        "uniform_": ((chances,), method("uniform_")),
        f"rand {shape}": ((), of_module("rand", *shape)),
        f"randn {shape}": ((), of_module("randn", *shape)),
        f"randint {shape}": ((), of_module("randint", 0, 100, shape)),
        f"randperm {count}": ((), of_module("randperm", count)),
    }
    exact = {
        f"arange {count}": of_module("arange", count),
        f"eye {min(count, 1500)}": of_module("eye", min(count, 1500)),
        f"full {shape}": of_module("full", shape, 3.0),
        f"linspace {count}": of_module("linspace", 0, 1, count),
        f"tensor of a list of {len(listed)}": lambda m: m.tensor(listed),
        f"tensor of an array {shape}": lambda m: m.tensor(values),
        f"zeros {shape}": of_module("zeros", *shape),
    }
    name = draw.choice((*calls, *exact))
    if name in exact:
        return Call(name, exact[name])
    return Call(name, calls[name][1], calls[name][0], name == "dropout" and draw.sometimes(), compared=False)


FAMILIES = (rows_by_index, elements_by_index, by_mask, tables, moving, joining, views, casts, creating)
