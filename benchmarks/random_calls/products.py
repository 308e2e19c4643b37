"""Products: of matrices, einsum, convolutions, attention."""

import math

from .draw import FLOATS, Call, Input, functional, of_module

SIZES = (1, 2, 3, 5, 7, 8, 16, 17, 31, 32, 33, 64, 65, 100, 127, 128, 200, 256, 300, 512, 777, 1024, 2048, 4096)
SMALL_SIZES = (1, 1, 2, 3, 4, 5, 8, 10, 16, 17, 31, 32, 33, 64, 100, 128, 256)
IMAGE_SIZES = (4, 7, 8, 14, 16, 28, 32, 56, 64, 112, 224)
EINSUMS = (
    "ij,jk->ik", "bij,bjk->bik", "bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd", "bqhd,bkhd->bhqk", "ijk,kl->ijl", "bnd,cd->bnc",
    "i,j->ij", "ij->ji", "ij->i", "bi,bj->bij", "bij,bj->bi", "bi,ij,bj->b", "ii->i",
    "ii", "ij,ij->", "bij,bij->b", "btd,btd->bt",
)  # fmt: skip
MOST_PRODUCTS, MOST_ELEMENTS = 1 << 27, 1 << 22


def _until(attempt, fits):
    """The first attempt that fits."""
    while not fits(*(found := attempt())):
        pass
    return found


def matmul(draw):
    rows, inner, columns = _until(
        lambda: [draw.choice(SIZES) for _ in range(3)],
        lambda m, k, n: m * k * n < MOST_PRODUCTS and max(m * k, k * n, m * n) < min(MOST_ELEMENTS, draw.largest),
    )
    dtype = draw.choice(FLOATS)
    x, y, w = draw.input((rows, inner), dtype), draw.input((inner, columns), dtype), draw.input((columns, inner), dtype)
    v, u, bias = draw.input((inner,), dtype), draw.input((rows,), dtype), draw.plain((columns,), dtype)
    x3 = draw.input((draw.choice((2, 5)), max(1, rows // 4), inner), dtype)
    name, inputs, function = draw.choice(
        (
            ("x @ y", (x, y), lambda m, x, y: x @ y),
            ("x @ v", (x, v), lambda m, x, v: x @ v),
            ("v @ y", (v, y), lambda m, v, y: v @ y),
            ("v @ v", (v, v), lambda m, v, w: v @ w),
            ("outer", (u, v), of_module("outer")),
            ("addmm", (bias, x, y), of_module("addmm")),
            ("linear", (x, w), functional("linear")),
            ("linear with bias", (x, w, bias), functional("linear")),
            ("linear of (N, T, C)", (x3, w, bias), functional("linear")),
        )
    )
    return Call(name, function, inputs, draw.sometimes())


def batched(draw):
    batch, heads, m, k, n = _until(
        lambda: [
            draw.choice((1, 2, 3, 8, 16, 32, 64, 100, 500, 2000)),
            draw.choice((1, 1, 2, 4, 8)),
            *(draw.choice(SMALL_SIZES) for _ in range(3)),
        ],
        lambda b, h, m, k, n: b * h * m * k * n < 1 << 26 and b * h * max(m * k, k * n, m * n) < min(1 << 21, draw.largest),
    )
    dtype = draw.choice(FLOATS)

    def input_of(*shape):
        return draw.input(shape, dtype)

    keys = Input(draw.array((batch, n, heads, k), dtype), dtype, (batch, heads, k, n), "transposed", lambda t: t.permute(0, 2, 3, 1))
    name, shapes = draw.choice(
        (
            ("(B, m, k) @ (B, k, n)", ((batch, m, k), (batch, k, n))),
            ("(m, k) @ (B, k, n)", ((m, k), (batch, k, n))),
            ("(B, m, k) @ (k, n)", ((batch, m, k), (k, n))),
            ("(B, m, k) @ (k,)", ((batch, m, k), (k,))),
            ("(B, H, m, k) @ (B, H, k, n)", ((batch, heads, m, k), (batch, heads, k, n))),
            ("(B, 1, m, k) @ (H, k, n)", ((batch, 1, m, k), (heads, k, n))),
            ("q @ k^T", None),
            ("baddbmm", ((batch, m, n), (batch, m, k), (batch, k, n))),
        )
    )
    inputs = tuple(input_of(*shape) for shape in shapes) if shapes else (input_of(batch, heads, m, k), keys)
    return Call(name, of_module("baddbmm" if name == "baddbmm" else "matmul"), inputs, draw.sometimes())


def einsum(draw):
    equation = draw.choice(EINSUMS)
    sizes = {letter: draw.choice((1, 2, 3, 8, 16, 17, 32, 50, 64)) for letter in sorted(set(equation) - set(",->"))}
    inputs = tuple(draw.input([sizes[letter] for letter in term], "float32") for term in equation.split("->")[0].split(","))
    return Call(f"einsum {equation}", lambda m, *xs: m.einsum(equation, *xs), inputs, draw.sometimes())


def _one_convolution(draw, axes):
    """(sizes, batch, channels in and out, kernel's size, stride, padding, dilation, groups)"""
    channels, kernel = draw.choice((1, 3, 4, 8, 16, 32, 64, 80, 128)), draw.choice((1, 1, 3, 3, 5, 7, 16, 4, 2))
    out, groups = draw.choice((1, 2, 8, 16, 32, 64, 96, 128, 256)), 1
    if draw.random() < 0.3:
        groups, out = channels, channels * draw.choice((1, 2))
    sizes = [draw.choice(IMAGE_SIZES if axes == 2 else (1, 10, 50, 100, 128, 1000, 1500, 4000)) for _ in range(axes)]
    padding, stride, dilation = draw.choice((0, kernel // 2, 1)), draw.choice((1, 1, 2, kernel)), draw.choice((1, 1, 1, 2))
    return sizes, draw.choice((1, 1, 2, 4, 8, 16, 32)), channels, out, kernel, stride, padding, dilation, groups


def convolution(draw):
    axes = draw.choice((1, 2, 2))

    def fits(sizes, batch, channels, out, kernel, stride, padding, dilation, groups):
        outer = [(size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 for size in sizes]
        if min(outer) < 1:
            return False
        area, area_out = sizes[0] * sizes[-1] ** (axes - 1), outer[0] * outer[-1] ** (axes - 1)
        products = batch * area_out * out * channels // groups * kernel**axes
        return products < MOST_PRODUCTS and batch * max(channels * area, out * area_out) < min(MOST_ELEMENTS, draw.largest)

    sizes, batch, channels, out, kernel, *options, groups = _until(lambda: _one_convolution(draw, axes), fits)
    options = dict(zip(("stride", "padding", "dilation"), options, strict=True), groups=groups)
    dtype = draw.choice(FLOATS)
    weight = draw.plain((out, channels // groups, *[kernel] * axes), dtype)
    inputs = draw.input((batch, channels, *sizes), dtype), weight, draw.plain((out,), dtype)
    return Call(f"conv{axes}d {options}", functional(f"conv{axes}d", **options), inputs, draw.sometimes())


def attention(draw):
    lengths = (1, 1, 3, 10, 17, 32, 64, 100, 128, 256, 512, 1024)
    batch, heads, queries, keys, size = _until(
        lambda: [
            draw.choice((1, 1, 2, 4, 16, 64)),
            draw.choice((1, 2, 4, 8, 12)),
            queries := draw.choice(lengths),
            draw.choice((queries, queries, 1, 5, 50, 100, 200, 512, 1024, 2000)),
            draw.choice((1, 4, 8, 16, 24, 32, 33, 64, 64, 80, 128, 256)),
        ],
        lambda b, h, q, k, d: b * h * q * k * d < MOST_PRODUCTS and b * h * max(q * d, k * d, 2 * q * k) < min(1 << 21, draw.largest),
    )
    dtype, layout = draw.choice(FLOATS), draw.choice(("", "", "(B, T, H, D)", "of a projection"))

    def heads_of(length):
        shape = batch, heads, length, size
        if layout == "(B, T, H, D)":
            return Input(draw.array((batch, length, heads, size), dtype), dtype, shape, layout, lambda t: t.transpose(1, 2))
        if layout == "of a projection":
            memory = draw.array((batch, length, 3 * heads * size), dtype)
            view = lambda t: t[:, :, : heads * size].unflatten(2, (heads, size)).transpose(1, 2)
            return Input(memory, dtype, shape, layout, view)
        return draw.plain(shape, dtype)

    q, k, v = heads_of(queries), heads_of(keys), heads_of(keys)
    masks = {"mask": (queries, keys), "mask of each": (batch, 1, queries, keys), "mask of keys": (batch, 1, 1, keys)}
    name = draw.choice(("attention", "attention", "causal", "bias", *masks))
    if name in ("attention", "causal"):
        return Call(name, functional("scaled_dot_product_attention", is_causal=name == "causal"), (q, k, v), draw.sometimes())
    mask = draw.plain(
        masks.get(name, (draw.choice((1, batch)), draw.choice((1, heads)), queries, keys)), "bool" if name in masks else dtype
    )
    if name in masks:
        mask.array[..., 0] = True
    return Call(name, functional("scaled_dot_product_attention"), (q, k, v, mask.constant()), draw.sometimes())


def transposed_convolution(draw):
    axes, dtype = draw.choice((1, 2, 2, 3)), draw.choice(FLOATS)

    def fits(sizes, batch, channels, out, kernel, stride, padding, dilation, groups):
        lengths = [(size - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1 for size in sizes]
        area, area_out = math.prod(sizes), math.prod(lengths)
        products = batch * area * out * channels // groups * kernel**axes
        return (
            min(lengths) > 0
            and products < MOST_PRODUCTS
            and batch * max(channels * area, out * area_out) < min(MOST_ELEMENTS, draw.largest)
        )

    sizes, batch, channels, out, kernel, *options, groups = _until(lambda: _one_convolution(draw, axes), fits)
    options = dict(zip(("stride", "padding", "dilation"), options, strict=True), groups=groups)
    inputs = (
        draw.input((batch, channels, *sizes), dtype),
        draw.plain((channels, out // groups, *[kernel] * axes), dtype),
        draw.plain((out,), dtype),
    )
    return Call(f"conv_transpose{axes}d {options}", functional(f"conv_transpose{axes}d", **options), inputs, draw.sometimes())


FAMILIES = (matmul, batched, einsum, convolution, attention, transposed_convolution)
