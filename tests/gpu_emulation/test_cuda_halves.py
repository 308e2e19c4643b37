"""float16 and bfloat16 on device="cuda:emulated": kernels take them as they are, so that a training step casts nothing but its input and what
its loss is computed from."""

import re

import numpy as np
import pytest
import transformer_c as tc
from device_cases import array, host
from test_cuda_training import OPTIMIZERS
from transformer_c import functional as F
from transformer_c.models.config import Config
from transformer_c.models.mpnet import MPNet

pytestmark = pytest.mark.usefixtures("nothing_is_left")


def casts(launches):
    """Of the kernels that copy from one dtype to another, the dtypes: "<to, from>"."""
    found = (re.search(r"(?:copy|cast)_kernel(<[\w:]+, [\w:]+)", name) for name in launches)
    return [match[1] + ">" for match in found if match]


@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_of_halves_is_not_cast(emulated_gpu, emulated_library, rng, norm_first):
    """Its forward and its backward run on halves alone, by parts; sums are in float32 within the kernels."""
    block = tc.EncoderBlock(8, 2, 16, dropout=0.1, norm_first=norm_first).to(emulated_gpu).bfloat16()
    x = tc.tensor(array(rng, (2, 65, 8), "float32"), device=emulated_gpu).bfloat16().requires_grad_()
    emulated_library.launches()
    y = block(x)
    forward = emulated_library.launches()
    assert len(forward) > 8 and casts(forward) == []
    y.backward(y.detach())
    backward = emulated_library.launches()
    adds = [name for name in backward if "add_kernel<tc::bfloat16, " in name]  # where branches meet
    assert len(adds) == (2 if norm_first else 0)  # gradients of norms; those of products are added by the products
    assert casts(backward) == []


NATIVE = {  # of three tensors (2, 6, 8), in halves
    "linear": lambda x, y, z: F.linear(x, y[0], z[0, 0, :6]),
    "qkv_projection": lambda x, y, z: sum(F.qkv_projection(x, tc.cat([y[0], z[0], y[1], z[1]]), None, 2)),
    "attention": lambda x, y, z: F.scaled_dot_product_attention(x, y, z, is_causal=True),
    "attention with dropout": lambda x, y, z: F.scaled_dot_product_attention(x, y, z, dropout_p=0.3),
    "layer_norm": lambda x, y, z: F.layer_norm(x, (8,), y[0, 0], z[0, 0]),
    "rms_norm": lambda x, y, z: F.rms_norm(x, (8,), y[0, 0]),
    "element-wise": lambda x, y, z: F.gelu(x) * y + z.exp(),
    "dropout": lambda x, y, z: F.dropout(x, 0.3),
    "softmax": lambda x, y, z: x.softmax(-1),
    "embedding": lambda x, y, z: F.embedding(tc.tensor([0, 2, 2], device=x.device), x[0]),
    "cross_entropy": lambda x, y, z: F.cross_entropy(x[0], tc.tensor([0, 1, 2, 3, 4, 5], device=x.device)),
    "nll_loss": lambda x, y, z: F.nll_loss(x[0], tc.tensor([0, 1, 2, 3, 4, 5], device=x.device)),
    "mse_loss": lambda x, y, z: F.mse_loss(x, y),
    "l1_loss": lambda x, y, z: F.l1_loss(x, y),
    "huber_loss": lambda x, y, z: F.huber_loss(x, y),
    "kl_div": lambda x, y, z: F.kl_div(x, y.detach()),
    "with logits": lambda x, y, z: F.binary_cross_entropy_with_logits(x, y.detach()),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", NATIVE)
def test_an_op_takes_halves_and_gives_them(emulated_gpu, emulated_library, name, dtype, rng):
    """No cast forward, none backward, but of the one number that is the mean of a loss, summed in float32, and of its gradient."""
    given = [tc.tensor(array(rng, (2, 6, 8), dtype), device=emulated_gpu, requires_grad=True) for _ in range(3)]
    tc.cuda.synchronize(emulated_gpu)
    emulated_library.launches()
    y = NATIVE[name](*given)
    assert y.dtype.name == dtype
    y.backward(y.detach())
    tc.cuda.synchronize(emulated_gpu)
    half = f"tc::{dtype}"
    assert casts(emulated_library.launches()) == ([] if y.ndim else [f"<{half}, float>", f"<float, {half}>"])
    assert all(x.grad is None or x.grad.dtype.name == dtype for x in given) and given[0].grad is not None


def encoder(rng):
    return tc.TransformerEncoder(2, input_dim=8, num_heads=2, dim_feedforward=16, dropout=0.1), array(rng, (2, 5, 8), "float32")


def mpnet(rng):
    """Its scores have a bias, which is of the model's dtype, as is its gradient."""
    sizes = dict(hidden_size=8, num_attention_heads=2, num_hidden_layers=2, intermediate_size=16)
    config = Config({"model_type": "mpnet", "vocab_size": 40, "max_position_embeddings": 20, **sizes})
    return MPNet(config), rng.integers(2, 40, (2, 5))


class Step:
    """A step of training of a model's, in parts; each gives the kernels that it launched."""

    def __init__(self, gpu, library, rng, autocast, make=encoder):
        self.library, self.autocast = library, autocast
        model, x = make(rng)
        self.model, self.x = model.to(gpu), tc.tensor(x, device=gpu)
        if not autocast:
            self.model.bfloat16()
            self.x = self.x.bfloat16() if self.x.is_floating_point() else self.x
        self.target = tc.tensor(rng.integers(0, 8, (2, 5)), device=gpu)
        self.optimizer = tc.optim.AdamW(self.model.parameters(), 1e-2)

    def forward(self):
        with tc.autocast(enabled=self.autocast):
            self.y = self.model(self.x)

    def loss(self):
        self.value = F.cross_entropy(self.y.transpose(1, 2).float(), self.target)

    def backward(self):
        self.optimizer.zero_grad()
        self.value.backward()

    def clip(self):
        tc.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)

    def step(self):
        self.optimizer.step()

    def casts(self):
        found = {}
        for part in (self.forward, self.loss, self.backward, self.clip, self.step):
            self.library.launches()
            part()
            found[part.__name__] = casts(self.library.launches())
        return {part: names for part, names in found.items() if names}


WIDEN, NARROW = "<float, tc::bfloat16>", "<tc::bfloat16, float>"


@pytest.mark.whole
@pytest.mark.parametrize("make", [encoder, mpnet])
def test_a_step_of_a_model_of_halves_casts_at_the_loss_alone(emulated_gpu, emulated_library, make, rng):
    step = Step(emulated_gpu, emulated_library, rng, autocast=False, make=make)
    step.casts()  # makes the masters
    for _ in range(2):
        assert step.casts() == {"loss": [WIDEN], "backward": [NARROW]}


@pytest.mark.whole
def test_a_step_under_autocast_casts_its_input_and_at_the_loss(emulated_gpu, emulated_library, rng):
    step = Step(emulated_gpu, emulated_library, rng, autocast=True)
    parameters = list(step.model.parameters())
    assert step.casts()["forward"] == [NARROW] * (len(parameters) + 1) + [WIDEN]
    for _ in range(2):
        assert step.casts() == {"forward": [NARROW, WIDEN], "backward": [NARROW]}
    assert {p.dtype.name for p in parameters} == {p.grad.dtype.name for p in parameters} == {"float32"}


# ---- rounded copies of parameters, kept for autocast ---------------------------------------------------------------------------------------


def in_halves(module, x):
    with tc.autocast():
        return host(module(x))


def rounded(module, x):
    """The same with copies made for this call."""
    again = tc.nn.Linear(*module.weight.shape[::-1]).to(x.device)
    again.load_state_dict(module.state_dict())
    return in_halves(again, x)


def linear(gpu, rng):
    return tc.nn.Linear(6, 3).to(gpu), tc.tensor(array(rng, (4, 6), "float32"), device=gpu)


def step_of(module, x, optimizer):
    with tc.autocast():
        module(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.whole
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_kept_copies_are_those_of_the_stepped_weights(emulated_gpu, name, rng):
    module, x = linear(emulated_gpu, rng)
    make, options = OPTIMIZERS[name]
    optimizer = make(module.parameters(), **options)
    for _ in range(3):
        before = in_halves(module, x)
        step_of(module, x, optimizer)
        after = in_halves(module, x)
        assert (before != after).any()
        np.testing.assert_array_equal(after, rounded(module, x))


WRITES = {
    "add_": lambda w: w.add_(1.0),
    "copy_": lambda w: w.copy_(w * 2),
    "item": lambda w: w.__setitem__(0, 9.0),
    "data": lambda w: w.data.fill_(3.0),
    "new data": lambda w: setattr(w, "data", w.detach() * 3),
    "a window": lambda w: w[1:, 2].mul_(5.0),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_kept_copy_is_made_anew_after_a_write(emulated_gpu, write, rng):
    module, x = linear(emulated_gpu, rng)
    before = in_halves(module, x)
    with tc.no_grad():
        WRITES[write](module.weight)
    after = in_halves(module, x)
    assert (before != after).any()
    np.testing.assert_array_equal(after, rounded(module, x))


def test_a_kept_copy_is_in_the_dtype_that_is_asked_for(emulated_gpu, rng):
    module, x = linear(emulated_gpu, rng)
    for dtype in ("bfloat16", "float16", "bfloat16"):
        with tc.autocast(dtype=dtype):
            found = host(module(x))
        wide = tc.nn.Linear(6, 3)
        wide.load_state_dict(module.state_dict())
        with tc.autocast(dtype=dtype):
            np.testing.assert_allclose(found, host(wide(x.cpu())), rtol=2e-2, atol=1e-2)


def test_a_graph_that_waits_keeps_the_weights_of_its_call(emulated_gpu, rng):
    """The optimizer does not write to a copy that a backward still needs."""
    module, x = linear(emulated_gpu, rng)
    x.requires_grad_()
    with tc.autocast():
        waiting = module(x).sum()
    weight = host(module.weight).astype("bfloat16")
    step_of(module, x.detach(), tc.optim.SGD(module.parameters(), 1.0))
    np.testing.assert_array_equal(in_halves(module, x.detach()), rounded(module, x.detach()))
    waiting.backward()
    np.testing.assert_allclose(host(x.grad)[0], weight.astype(np.float32).sum(0), rtol=1e-2)


@pytest.mark.parametrize(
    "lend", [lambda p: p.__dlpack__(stream=1, max_version=(1, 0)), lambda p: p.__cuda_array_interface__], ids=["DLPack", "interface"]
)
def test_copies_of_shared_memory_are_not_kept(emulated_gpu, emulated_library, lend, rng):
    """Another library may write there unnoticed."""
    module, x = linear(emulated_gpu, rng)
    in_halves(module, x)  # copies from before are not used either
    loans = [lend(p.detach()) for p in module.parameters()]
    for _ in range(2):
        emulated_library.launches()
        in_halves(module, x)
        assert len(casts(emulated_library.launches())) == 4
    del loans


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_of_halves_launch_one_kernel(emulated_gpu, emulated_library, name, dtype, rng):
    """It reads the gradients as halves, steps the float32 masters, and writes the halves: the masters rounded to nearest."""
    make, options = OPTIMIZERS[name]
    parameters = [tc.tensor(array(rng, s, dtype), device=emulated_gpu, requires_grad=True) for s in [(3, 5), (4097,)]]
    optimizer = make(parameters, **options)
    for step in range(2):
        for p in parameters:
            p.grad = tc.tensor(array(rng, p.shape, dtype), device=emulated_gpu)
        tc.nn.utils.clip_grad_norm_(parameters, 1.0)
        emulated_library.launches()
        optimizer.step()
        launches = emulated_library.launches()
        assert step == 0 or len(launches) == 1, launches  # the first makes masters and states
    late = (parameters[0] * parameters[0]).sum()
    optimizer.step()
    with pytest.raises(RuntimeError, match="written in place"):
        late.backward()
    for p in parameters:
        np.testing.assert_array_equal(host(p), host(optimizer.state[p]["master"]).astype(host(p).dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_clipping_of_halves_does_not_cast(emulated_gpu, emulated_library, dtype, rng):
    p = tc.tensor(array(rng, (70, 3), dtype), device=emulated_gpu, requires_grad=True)
    given = array(rng, (70, 3), dtype)
    p.grad = tc.tensor(given, device=emulated_gpu)
    emulated_library.launches()
    norm = tc.nn.utils.clip_grad_norm_([p], 0.5)
    tc.nn.utils.clip_grad_value_([p], 0.05)
    assert len(emulated_library.launches()) == 4  # sums, the factor, and two that scale
    assert norm.device == emulated_gpu
    expected = np.sqrt((given.astype(np.float64) ** 2).sum())
    np.testing.assert_allclose(float(norm), expected, rtol=1e-6)
    clipped = (given.astype(np.float32) * np.float32(0.5 / (expected + 1e-6))).astype(given.dtype)
    limit = np.float32(0.05)
    np.testing.assert_array_equal(host(p.grad), np.clip(clipped.astype(np.float32), -limit, limit).astype(given.dtype))


def test_refused_gradients_of_a_step(emulated_gpu):
    p = tc.zeros(3, device=emulated_gpu)
    with pytest.raises(TypeError, match="gradient 0 is int64 but the step computes in float32"):
        tc._core.gradient_scale([tc.tensor([1, 2, 3], device=emulated_gpu)], 1.0, 1.0)
    with pytest.raises(TypeError, match="parameter 0 is float16 but the step computes in float32"):
        tc._core.sgd_step([p.to("float16")], [p], None, 0.1, 0.0, 0.0, 0.0, False, False, False)
    with pytest.raises(ValueError, match="halves and parameters are lists of different lengths, 0 and 1"):
        tc._core.sgd_step([p], [p], None, 0.1, 0.0, 0.0, 0.0, False, False, False, [])
    with pytest.raises(ValueError, match=r"half 0 has shape \(2,\) but its parameter has \(3,\)"):
        tc._core.sgd_step([p], [p], None, 0.1, 0.0, 0.0, 0.0, False, False, False, [tc.zeros(2, dtype="bfloat16", device=emulated_gpu)])
    with pytest.raises(RuntimeError, match="half 0 is on cpu but the first parameter is on"):
        tc._core.sgd_step([p], [p], None, 0.1, 0.0, 0.0, 0.0, False, False, False, [tc.zeros(3, dtype="bfloat16")])
