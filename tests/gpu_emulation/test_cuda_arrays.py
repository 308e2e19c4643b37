"""Arrays beside Tensors on a GPU: they are on no device, and go where the Tensors are. A Tensor stays where it is."""

import numpy as np
import pytest
import transformer_c as tc
from device_cases import array, host
from transformer_c import functional as F

pytestmark = pytest.mark.usefixtures("nothing_is_left")


def floats(*shape):
    return lambda rng: array(rng, shape, "float32")


def places(end, *shape):
    return lambda rng: rng.integers(0, end, shape)


def lengths(rng):
    return np.array([3, 5])


def mask(*shape):
    return lambda rng: rng.random(shape) < 0.7


X, ROWS, HEADS = floats(2, 5, 8), floats(4, 3), floats(2, 2, 5, 4)
SHARES = lambda rng: rng.random((4, 3)).astype(np.float32)
# A function, the Tensor that is on the GPU, and what is given beside it.
CASES = {
    "mask of bool": (lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m), HEADS, mask(2, 1, 5, 5)),
    "added mask": (lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m), HEADS, floats(5, 5)),
    "bias": (lambda q, b: F.scaled_dot_product_attention(q, q, q, bias=b), HEADS, floats(5, 5)),
    "keys and values": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), HEADS, HEADS, HEADS),
    "key_lengths": (lambda q, n: F.scaled_dot_product_attention(q, q, q, key_lengths=n), HEADS, lengths),
    "causal_offset": (lambda q, n: F.scaled_dot_product_attention(q, q, q, is_causal=True, causal_offset=n), HEADS, lengths),
    "the tutorial's mask": (lambda q, m: tc.scaled_dot_product(q, q, q, mask=m)[0], HEADS, mask(2, 1, 5, 5)),
    "linear": (F.linear, X, floats(3, 8), floats(3)),
    "qkv_projection": (lambda x, w, b: F.qkv_projection(x, w, b, 2)[0], X, floats(24, 8), floats(24)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (8,), w, b), X, floats(8), floats(8)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (8,), w), X, floats(8)),
    "conv1d": (F.conv1d, floats(2, 3, 7), floats(4, 3, 3), floats(4)),
    "rotary": (F.rotary, HEADS, lambda rng: np.arange(5)),
    "target": (F.cross_entropy, ROWS, places(3, 4)),
    "weight of classes": (lambda x, t, w: F.cross_entropy(x, t, weight=w), ROWS, places(3, 4), floats(3)),
    "nll_loss": (lambda x, t, w: F.nll_loss(x, t, weight=w), ROWS, places(3, 4), floats(3)),
    "mse_loss": (F.mse_loss, ROWS, ROWS),
    "huber_loss": (F.huber_loss, ROWS, ROWS),
    "kl_div": (F.kl_div, ROWS, SHARES),
    "weight of elements": (lambda x, t, w: F.binary_cross_entropy(x.sigmoid(), t, weight=w), ROWS, SHARES, ROWS),
    "pos_weight": (lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, pos_weight=w), ROWS, SHARES, floats(3)),
    "gaussian_nll_loss": (F.gaussian_nll_loss, ROWS, ROWS, ROWS),
    "indices of embedding": (lambda w, i: F.embedding(i, w), ROWS, places(4, 2, 2)),
    "condition": (lambda x, c: tc.where(c, x, 0.0), ROWS, mask(4, 3)),
    "where": (lambda x, c, y: tc.where(c, x, y), ROWS, mask(4, 3), ROWS),
    "masked_fill": (lambda x, m: x.masked_fill(m, 1.0), ROWS, mask(4, 3)),
    "masked_select": (tc.masked_select, ROWS, mask(4, 3)),
    "x[mask]": (lambda x, m: x[m], ROWS, mask(4, 3)),
    "x[indices]": (lambda x, i: x[i], ROWS, places(4, 2)),
    "gather": (lambda x, i: x.gather(1, i), ROWS, places(3, 4, 2)),
    "scatter": (lambda x, y: x.scatter(1, np.array([[0], [2]]), y), ROWS, floats(2, 1)),
    "scatter_add": (lambda x, i, y: x.scatter_add(1, i, y), ROWS, places(3, 4, 2), floats(4, 2)),
    "index_select": (lambda x, i: x.index_select(0, i), ROWS, places(4, 2)),
    "index_put": (lambda x, i, y: x.index_put((i,), y, accumulate=True), ROWS, places(4, 2), floats(2, 3)),
    "+": (lambda x, y: x + y, ROWS, ROWS),
    "+, the other way round": (lambda x, y: y + x, ROWS, ROWS),
    "+=": (lambda x, y: (x * 1).__iadd__(y), ROWS, ROWS),
    ">": (lambda x, y: (x > y).float(), ROWS, ROWS),
    "@": (lambda x, y: x @ y, ROWS, floats(3, 2)),
    "@, the other way round": (lambda x, y: tc.matmul(y, x), ROWS, floats(3, 4)),
    "mm": (tc.mm, ROWS, floats(3, 2)),
    "einsum": (lambda x, y: tc.einsum("jk,ij->ik", y, x), ROWS, floats(3, 2)),
    "outer": (lambda x, y: tc.outer(x[0], y), ROWS, floats(5)),
    "cat": (lambda x, y: tc.cat([y, x]), ROWS, ROWS),
    "stack": (lambda x, y: tc.stack([x, y]), ROWS, ROWS),
    "maximum": (tc.maximum, ROWS, ROWS),
    "clamp": (lambda x, y: tc.clamp(x, y, None), ROWS, ROWS),
    "isclose": (lambda x, y: tc.isclose(y, x).float(), ROWS, ROWS),
    "meshgrid": (lambda x, y: tc.meshgrid(y, x[0])[1], ROWS, floats(5)),
    "a loss's module": (lambda x, t: tc.nn.CrossEntropyLoss()(x, t), ROWS, places(3, 4)),
    "copy_": (lambda x, y: (x * 1).copy_(y) + x, ROWS, ROWS),
}  # fmt: skip
# What a Tensor on the CPU may be, too: it is copied, or read by the host, or nothing is computed of both.
ANYWHERE = {"key_lengths", "causal_offset", "x[mask]", "masked_select", "x[indices]", "index_select", "copy_", "meshgrid"}


@pytest.mark.parametrize("name", CASES)
def test_an_array_goes_to_the_tensors_beside_it(emulated_gpu, name, rng):
    """With the bits, and the gradient, of a Tensor that was moved. A Tensor on the CPU is refused, as nothing is moved in silence."""
    function, first, *others = CASES[name]
    x, others = first(rng), [make(rng) for make in others]
    results = []
    for given in (others, [tc.tensor(y, device=emulated_gpu) for y in others]):
        leaf = tc.tensor(x, device=emulated_gpu, requires_grad=True)
        y = function(leaf, *given)
        assert y.device == emulated_gpu
        if y.requires_grad:
            y.backward(tc.ones_like(y))
        results.append([host(y), *([] if leaf.grad is None else [host(leaf.grad)])])
    for found, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(found, expected)
    if name not in ANYWHERE:
        with pytest.raises(RuntimeError, match="is on cpu; move one with .to|is on cuda:.* move one with .to"):
            function(tc.tensor(x, device=emulated_gpu), *map(tc.tensor, others))


MODULES = {
    "layer": lambda x, mask, padding: LAYER(x, src_mask=mask, src_key_padding_mask=padding),
    "attention": lambda x, mask, padding: LAYER.self_attn(x, x, x, attn_mask=mask, key_padding_mask=padding)[0],
    "memory": lambda x, mask, padding: DECODER(x, x, tgt_mask=mask, memory_key_padding_mask=padding),
    "the tutorial's": lambda x, mask, padding: BLOCK(x, mask=(~mask).astype(int) if isinstance(mask, np.ndarray) else (~mask).long()),
}
OPTIONS = {"d_model": 8, "nhead": 2, "dim_feedforward": 8, "dropout": 0.0, "batch_first": True}
LAYER, DECODER, BLOCK = tc.nn.TransformerEncoderLayer(**OPTIONS), tc.nn.TransformerDecoderLayer(**OPTIONS), tc.EncoderBlock(8, 2, 8)


@pytest.mark.parametrize("name", MODULES)
def test_masks_of_modules_may_be_arrays(emulated_gpu, name, rng):
    modules = [LAYER, DECODER, BLOCK]
    try:
        [module.to(emulated_gpu) for module in modules]
        x = tc.tensor(array(rng, (2, 5, 8), "float32"), device=emulated_gpu)
        masks = np.triu(np.ones((5, 5), bool), 1), np.arange(5) >= np.array([[5], [3]])
        found = MODULES[name](x, *masks)
        expected = MODULES[name](x, *(tc.tensor(m, device=emulated_gpu) for m in masks))
        assert found.device == emulated_gpu
        np.testing.assert_array_equal(host(found), host(expected))
    finally:
        [module.to("cpu") for module in modules]


def test_values_of_key_lengths_in_an_array_are_checked_at_once(emulated_gpu, rng):
    """They stay where the host reads them."""
    q = tc.tensor(HEADS(rng), device=emulated_gpu)
    with pytest.raises(ValueError, match="key_lengths holds 6; with 5 keys they are from 0 to 5"):
        F.scaled_dot_product_attention(q, q, q, key_lengths=np.array([6, 5]))


def test_an_array_that_would_be_written_is_refused(emulated_gpu, rng):
    """A copy of it would be, and the array would stay as it is."""
    values = ROWS(rng)
    kept, x = values.copy(), tc.ones(4, 3, device=emulated_gpu)
    for call in (tc._core.gradient_scale, lambda g, *options: tc._core.gradient_clip(g, 1.0)):
        with pytest.raises(RuntimeError, match="device"):
            call([x, values], 2.0, 1.0)
    np.testing.assert_array_equal(values, kept)
    assert (host(x) == 1).all()


def test_an_array_of_the_caller_may_change_before_the_backward(emulated_gpu, rng):
    y, x = ROWS(rng), tc.ones(4, 3, device=emulated_gpu, requires_grad=True)
    expected = y.copy()
    product = x * y
    y[:] = 0
    product.sum().backward()
    np.testing.assert_array_equal(host(x.grad), expected)


def test_gradients_in_arrays_go_to_the_gpu(emulated_gpu, rng):
    dy, x = ROWS(rng), tc.ones(4, 3, device=emulated_gpu, requires_grad=True)
    (2 * x).backward(dy)
    np.testing.assert_array_equal(host(x.grad), 2 * dy)
    x.grad = dy
    assert x.grad.device == emulated_gpu
    x.sum().backward(tc.tensor(3.0))  # a number of the CPU
    np.testing.assert_array_equal(host(x.grad), dy + 3)


def test_gradients_of_another_device_are_refused(emulated_gpu, rng):
    gradient = tc.tensor(ROWS(rng))
    x = tc.ones(4, 3, device=emulated_gpu, requires_grad=True)
    with pytest.raises(RuntimeError, match=f"gradient is on cpu but the tensor is on {emulated_gpu}; move one with"):
        (2 * x).backward(gradient)
    with pytest.raises(RuntimeError, match=f"grad is on cpu but the tensor is on {emulated_gpu}; move one with"):
        x.grad = gradient
    assert x.grad is None


@pytest.mark.parametrize("steps", [0, 1], ids=["without a gradient", "with one"])
def test_a_leaf_that_was_moved_after_the_forward_gets_no_gradient(emulated_gpu, steps):
    layer = tc.nn.Linear(3, 2, bias=False)
    before = layer(tc.ones(4, 3)).sum()
    layer.to(emulated_gpu)
    for _ in range(steps):
        layer(tc.ones(4, 3, device=emulated_gpu)).sum().backward()
    with pytest.raises(RuntimeError, match=rf"shape \(2, 3\) was moved from cpu to {emulated_gpu} after it was used.*forward again"):
        before.backward()
    assert (host(layer.weight.grad) == 4).all() if steps else layer.weight.grad is None


def test_numbers_beside_tensors_in_a_list_go_to_the_gpu(emulated_gpu):
    two = tc.tensor(2.0, device=emulated_gpu)
    for make in (tc.tensor, tc.as_tensor, tc.FloatTensor):
        found = make([[1.0, two], [0, 3]])
        assert found.device == emulated_gpu and found.tolist() == [[1, 2], [0, 3]]


def test_full_of_a_number_on_the_gpu(emulated_gpu):
    for value in (2.5, 7, True):
        number = tc.tensor(value, device=emulated_gpu)
        for device in ("cpu", emulated_gpu):
            found = tc.full((2,), number, device=device)
            assert found.device == device and found.dtype == number.dtype and found.tolist() == [value, value]


def test_a_state_on_another_device_is_refused_with_the_way_out(emulated_gpu):
    layer = tc.nn.Linear(3, 2)
    optimizer = tc.optim.AdamW(layer.parameters())
    for device in ("cpu", emulated_gpu):
        layer.to(device)(tc.ones(4, 3, device=device)).sum().backward()
        if device == "cpu":
            optimizer.step()
    with pytest.raises(RuntimeError, match=f"state 0 is on cpu but the first parameter is on {emulated_gpu}; .*load_state_dict"):
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.step()
    assert all(state["step"] == 2 and state["exp_avg"].device == emulated_gpu for state in optimizer.state.values())


def test_an_array_is_copied_in_no_capture(emulated_gpu):
    """Each start would have the values of the second call."""
    y = np.ones((4, 3), np.float32)
    step, x = tc.cuda.graph(lambda x: x * y), tc.ones(4, 3, device=emulated_gpu)
    step(x)
    with pytest.raises(RuntimeError, match="values of the host were copied .* while tc.cuda.graph captured"):
        step(x)


def test_tensors_on_the_cpu_take_arrays_as_before(rng):
    x, y = ROWS(rng), ROWS(rng)
    np.testing.assert_array_equal(host(tc.tensor(x) + y), x + y)
    assert (tc.tensor(x) + y).device == "cpu" and isinstance(tc.maximum(x, y), np.ndarray)
