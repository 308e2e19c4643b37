"""Every layer of tc.nn on device="cuda:emulated" compared with the CPU, and passing memory to other libraries."""

import ctypes

import numpy as np
import pytest
import transformer_c as tc
from device_cases import array, host, leaves, nothing_is_left  # noqa: F401
from op_cases import of_all_ops
from test_cuda_streams import Worker
from tolerance import assert_close

pytestmark = pytest.mark.usefixtures("nothing_is_left")

B, T, S, E = 2, 5, 3, 8


def sequence(rng, length=T):
    return rng.standard_normal((B, length, E)).astype(np.float32)


def images(rng, axes):
    return rng.standard_normal((B, 2, *(4, 3, 5)[:axes])).astype(np.float32)


def padding(length):
    mask = np.zeros((B, length), bool)
    mask[1, length - 2 :] = True
    return mask


def causal(length):
    return np.triu(np.ones((length, length), bool), 1)


OPTIONS = {"batch_first": True, "dropout": 0.0}
LAYER = {"d_model": E, "nhead": 2, "dim_feedforward": 12, **OPTIONS}

# name: (module, inputs, keyword arguments); arrays become Tensors of the device
LAYERS = {
    "Linear": (lambda: tc.nn.Linear(E, 3), lambda rng: [sequence(rng)], {}),
    "Linear without bias": (lambda: tc.nn.Linear(E, 3, bias=False), lambda rng: [sequence(rng)], {}),
    "Embedding": (lambda: tc.nn.Embedding(9, 4, padding_idx=0), lambda rng: [rng.integers(0, 9, (B, T))], {}),
    "LayerNorm": (lambda: tc.nn.LayerNorm(E), lambda rng: [sequence(rng)], {}),
    "GroupNorm": (lambda: tc.nn.GroupNorm(T, T), lambda rng: [sequence(rng)], {}),
    "Dropout": (lambda: tc.nn.Dropout(0.0), lambda rng: [sequence(rng)], {}),
    "ReLU": (lambda: tc.nn.ReLU(), lambda rng: [sequence(rng)], {}),
    "SiLU": (lambda: tc.nn.SiLU(), lambda rng: [sequence(rng)], {}),
    "GELU": (lambda: tc.nn.GELU(), lambda rng: [sequence(rng)], {}),
    "GELU by tanh": (lambda: tc.nn.GELU(approximate="tanh"), lambda rng: [sequence(rng)], {}),
    "Sigmoid": (lambda: tc.nn.Sigmoid(), lambda rng: [sequence(rng)], {}),
    "Tanh": (lambda: tc.nn.Tanh(), lambda rng: [sequence(rng)], {}),
    "Softmax": (lambda: tc.nn.Softmax(dim=-1), lambda rng: [sequence(rng)], {}),
    "LogSoftmax": (lambda: tc.nn.LogSoftmax(dim=1), lambda rng: [sequence(rng)], {}),
    "Flatten": (lambda: tc.nn.Flatten(), lambda rng: [sequence(rng)], {}),
    "Unflatten": (lambda: tc.nn.Unflatten(-1, (E, 1)), lambda rng: [sequence(rng)], {}),
    "Identity": (lambda: tc.nn.Identity(), lambda rng: [sequence(rng)], {}),
    "GlobalAveragePool1D": (lambda: tc.nn.GlobalAveragePool1D(), lambda rng: [sequence(rng)], {}),
    "GlobalMaxPool1D": (lambda: tc.nn.GlobalMaxPool1D(), lambda rng: [sequence(rng)], {}),
    "BatchNorm1d": (lambda: tc.nn.BatchNorm1d(T), lambda rng: [sequence(rng)], {}),
    "BatchNorm2d": (lambda: tc.nn.BatchNorm2d(B), lambda rng: [sequence(rng)[None].repeat(2, 0)], {}),
    "MaxPool1d": (lambda: tc.nn.MaxPool1d(3, 2, 1), lambda rng: [sequence(rng)], {}),
    "MaxPool2d": (lambda: tc.nn.MaxPool2d(2), lambda rng: [sequence(rng)], {}),
    "AvgPool1d": (lambda: tc.nn.AvgPool1d(3, 2, 1), lambda rng: [sequence(rng)], {}),
    "AvgPool2d": (lambda: tc.nn.AvgPool2d(2), lambda rng: [sequence(rng)], {}),
    "AdaptiveAvgPool1d": (lambda: tc.nn.AdaptiveAvgPool1d(3), lambda rng: [sequence(rng)], {}),
    "AdaptiveAvgPool2d": (lambda: tc.nn.AdaptiveAvgPool2d(1), lambda rng: [sequence(rng)], {}),
    "Unfold": (lambda: tc.nn.Unfold(2), lambda rng: [sequence(rng)], {}),
    "Sequential": (lambda: tc.nn.Sequential(tc.nn.Linear(E, E), tc.nn.ReLU(), tc.nn.Linear(E, 1)), lambda rng: [sequence(rng)], {}),
    "BCELoss": (lambda: tc.nn.BCELoss(), lambda rng: [rng.random((B, T)).astype(np.float32), rng.random((B, T)).astype(np.float32)], {}),
    "BCEWithLogitsLoss": (lambda: tc.nn.BCEWithLogitsLoss(), lambda rng: [sequence(rng), rng.random((B, T, E)).astype(np.float32)], {}),
    "MSELoss": (lambda: tc.nn.MSELoss(), lambda rng: [sequence(rng), sequence(rng)], {}),
    "KLDivLoss": (lambda: tc.nn.KLDivLoss(log_target=True), lambda rng: [sequence(rng), sequence(rng)], {}),
    "GaussianNLLLoss": (
        lambda: tc.nn.GaussianNLLLoss(),
        lambda rng: [sequence(rng), sequence(rng), rng.random((B, T, E)).astype(np.float32) + np.float32(0.1)],
        {},
    ),
    "CosineEmbeddingLoss": (
        lambda: tc.nn.CosineEmbeddingLoss(),
        lambda rng: [sequence(rng)[0], sequence(rng)[0], np.array([1, -1, 1, -1, 1])],
        {},
    ),
    "MarginRankingLoss": (lambda: tc.nn.MarginRankingLoss(0.1), lambda rng: [sequence(rng), sequence(rng), np.sign(sequence(rng))], {}),
    "TripletMarginLoss": (lambda: tc.nn.TripletMarginLoss(), lambda rng: [sequence(rng), sequence(rng), sequence(rng)], {}),
    "NLLLoss": (lambda: tc.nn.NLLLoss(), lambda rng: [sequence(rng)[0], rng.integers(0, E, T)], {}),
    "CrossEntropyLoss": (
        lambda: tc.nn.CrossEntropyLoss(label_smoothing=0.1),
        lambda rng: [sequence(rng)[0], rng.integers(0, E, T)],
        {},
    ),
    "MultiheadAttention": (lambda: tc.nn.MultiheadAttention(E, 2, **OPTIONS), lambda rng: [sequence(rng)] * 3, {}),
    "MultiheadAttention to others": (
        lambda: tc.nn.MultiheadAttention(E, 2, **OPTIONS),
        lambda rng: [sequence(rng), sequence(rng, S), sequence(rng, S)],
        {"key_padding_mask": padding(S), "average_attn_weights": False},
    ),
    "MultiheadAttention without the map": (
        lambda: tc.nn.MultiheadAttention(E, 2, **OPTIONS),
        lambda rng: [sequence(rng)] * 3,
        {"attn_mask": causal(T), "need_weights": False},
    ),
    "MultiheadAttention of other widths": (
        lambda: tc.nn.MultiheadAttention(E, 2, kdim=3, vdim=4, **OPTIONS),
        lambda rng: [sequence(rng), sequence(rng, S)[..., :3].copy(), sequence(rng, S)[..., :4].copy()],
        {},
    ),
    "TransformerEncoderLayer": (lambda: tc.nn.TransformerEncoderLayer(**LAYER), lambda rng: [sequence(rng)], {}),
    "TransformerEncoderLayer norm_first": (
        lambda: tc.nn.TransformerEncoderLayer(**LAYER, norm_first=True, activation="gelu"),
        lambda rng: [sequence(rng)],
        {"src_mask": causal(T), "src_key_padding_mask": padding(T)},
    ),
    "TransformerDecoderLayer": (
        lambda: tc.nn.TransformerDecoderLayer(**LAYER),
        lambda rng: [sequence(rng), sequence(rng, S)],
        {"tgt_mask": causal(T), "memory_key_padding_mask": padding(S)},
    ),
    "TransformerEncoder": (
        lambda: tc.nn.TransformerEncoder(tc.nn.TransformerEncoderLayer(**LAYER), 2, norm=tc.nn.LayerNorm(E)),
        lambda rng: [sequence(rng)],
        {"src_key_padding_mask": padding(T)},
    ),
    "TransformerDecoder": (
        lambda: tc.nn.TransformerDecoder(tc.nn.TransformerDecoderLayer(**LAYER), 2),
        lambda rng: [sequence(rng), sequence(rng, S)],
        {},
    ),
    "Transformer": (
        lambda: tc.nn.Transformer(E, 2, 1, 1, 12, **OPTIONS),
        lambda rng: [sequence(rng, S), sequence(rng)],
        {"tgt_mask": causal(T)},
    ),
}
LAYERS |= {
    name: (lambda name=name: getattr(tc.nn, name)(), lambda rng: [sequence(rng), sequence(rng)], {})
    for name in ("L1Loss", "SmoothL1Loss", "HuberLoss", "CosineSimilarity", "PairwiseDistance")
}
LAYERS |= {
    name: (lambda name=name: getattr(tc.nn, name)(), lambda rng: [sequence(rng)], {})
    for name in ("ELU", "LeakyReLU", "Softplus", *tc.nn.activations.__all__)
}
LAYERS["Threshold"] = lambda: tc.nn.Threshold(0.1, -0.5), lambda rng: [sequence(rng)], {}
LAYERS["RReLU"] = lambda: tc.nn.RReLU().eval(), lambda rng: [sequence(rng)], {}  # slopes are not drawn
LAYERS |= {
    name: (
        lambda name=name, axes=axes, options=options: getattr(tc.nn, name)(2, 3, (2, 3, 2)[:axes], **options),
        lambda rng, axes=axes: [images(rng, axes)],
        {},
    )
    for name, axes, options in (
        ("Conv3d", 3, {"padding": 1}),
        *((f"ConvTranspose{axes}d", axes, {"stride": 2, "padding": 1, "output_padding": 1}) for axes in (1, 2, 3)),
    )
}
LAYERS |= {name: (lambda make=make: make(E), lambda rng: [sequence(rng)], {}) for name, make in of_all_ops("LAYERS").items()}
NOT_LAYERS = {"Module", "ModuleDict", "ModuleList", "Parameter", "ParameterDict", "ParameterList", "KeyValueCache"}


def test_no_layer_is_missing():
    names = {name for name in tc.nn.__all__ if isinstance(getattr(tc.nn, name), type)}
    assert {name.split()[0] for name in LAYERS} == names - NOT_LAYERS


def outputs_of(result):
    return [y for y in (result if isinstance(result, tuple) else (result,)) if y is not None]


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer(emulated_gpu, name, rng):
    make, inputs, options = LAYERS[name]
    module, arrays, outcomes = make(), inputs(rng), []
    for place in ("cpu", emulated_gpu):
        module.zero_grad()
        module.to(place)
        tensors = [tc.tensor(x, device=place, requires_grad=x.dtype.kind == "f") for x in arrays]
        arguments = {k: tc.tensor(v, device=place) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        results = outputs_of(module(*tensors, **arguments))
        assert {y.device for y in results} == {place}
        if results[0].requires_grad:
            (results[0] * results[0]).sum().backward()
        wanted = [*tensors, *module.parameters()]
        outcomes.append([*map(host, results), *(host(t.grad) for t in wanted if t.grad is not None)])
    assert len(outcomes[0]) == len(outcomes[1]) > len(results)
    for on_cpu, on_gpu in zip(*outcomes, strict=True):
        assert_close(on_gpu, on_cpu, "float32", gradient=True, scale=1 + np.abs(on_cpu).max())


@pytest.mark.parametrize("static", [False, True])
def test_decoding_with_a_cache(emulated_gpu, static, rng):
    module, x, outcomes = tc.nn.MultiheadAttention(E, 2, **OPTIONS).eval(), sequence(rng), []
    for place in ("cpu", emulated_gpu):
        module.to(place)
        cache, steps = tc.nn.KeyValueCache(T, static=static), []
        with tc.no_grad():
            for i in range(T):
                q = tc.tensor(x[:, i : i + 1], device=place)
                steps.append(host(module(q, q, q, past_key_value=cache, need_weights=False)[0]))
        outcomes.append(np.concatenate(steps, 1))
    assert_close(outcomes[1], outcomes[0], "float32", 16, scale=2)


# ---- other libraries -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def consumer(emulated_library):
    """Another library with its own stream, on which it reads floats at an address."""

    class Consumer:
        def __init__(self):
            api, stream = emulated_library.api, ctypes.c_void_p()
            emulated_library.check(api.create_stream(ctypes.byref(stream), 0))
            self.api, self.stream = api, stream.value

        def read(self, address, count):
            values = np.zeros(count, np.float32)
            emulated_library.check(self.api.copy_to_host(values.ctypes.data, address, values.nbytes, self.stream))
            emulated_library.check(self.api.synchronize(self.stream))
            return values

    return Consumer()


def test_dlpack_gives_memory_in_order(emulated_gpu, consumer):
    x = tc.full((4,), 2.0, device=emulated_gpu) * 3
    assert x.__dlpack_device__() == (2, -1)
    x.__dlpack__(stream=-1, max_version=(1, 0))
    assert (consumer.read(x.data_ptr(), 4) != 6).all()  # nobody waited: the emulated stream has not run it
    x = tc.full((4,), 2.0, device=emulated_gpu) * 3
    x.__dlpack__(stream=consumer.stream, max_version=(1, 0))
    assert (consumer.read(x.data_ptr(), 4) == 6).all()
    for stream in (None, 1, 2):
        x = x + 1
        x.__dlpack__(stream=stream)
        assert (consumer.read(x.data_ptr(), 4) == host(x)).all()


def test_dlpack_gives_what_any_thread_wrote(emulated_gpu, consumer):
    """Each thread has a stream of its own, and the consumer's comes after all of them."""
    with Worker() as one, Worker() as other:
        tensors = [do(lambda: tc.full((4,), 2.0, device=emulated_gpu) * 3) for do in (lambda work: work(), one.do, other.do)]
        for x in tensors:
            x.__dlpack__(stream=consumer.stream, max_version=(1, 0))
            assert (consumer.read(x.data_ptr(), 4) == 6).all()


def test_dlpack_copies(emulated_gpu, consumer):
    x = tc.full((4,), 2.0, device=emulated_gpu)
    capsule = x.__dlpack__(stream=consumer.stream, copy=True, dl_device=(2, -1))
    x.fill_(5.0)
    assert "dltensor" in repr(capsule)
    del capsule  # nobody took it: the copy is freed


def test_dlpack_says_what_it_cannot_do(emulated_gpu):
    x = tc.full((4,), 2.0, device=emulated_gpu)
    with pytest.raises(ValueError, match="stream 0 says nothing for CUDA; expected None, -1, 1, 2 or the address"):
        x.__dlpack__(stream=0)
    with pytest.raises(TypeError):
        x.__dlpack__(stream="main")
    with pytest.raises(BufferError, match="on another device"):
        x.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError, match="from_dlpack takes CPU memory .* copy the array to the CPU"):
        tc.from_dlpack(x)
    with pytest.raises(BufferError, match=r"detach\(\)"):
        leaves(emulated_gpu, array(np.random.default_rng(0), 3, "float32"))[0].__dlpack__()


def test_a_parameter_is_on_the_device_of_its_tensor(emulated_gpu):
    values = tc.arange(3.0).to(emulated_gpu)
    weight = tc.nn.Parameter(values)
    values.fill_(9)
    assert weight.device == emulated_gpu and weight.is_leaf and weight.requires_grad and weight.tolist() == [0, 1, 2]
    assert not tc.nn.Parameter(values, requires_grad=False).requires_grad


def test_gradcheck(emulated_gpu, rng):
    """Of Tensors where they are; it read them as if they were the CPU's."""
    layer = tc.nn.Linear(3, 2).to(emulated_gpu, tc.float64)
    x = tc.tensor(rng.standard_normal((4, 3)), device=emulated_gpu, requires_grad=True)
    assert tc.testing.gradcheck(lambda x: tc.F.gelu(layer(x)), x)
    assert not tc.testing.gradcheck(lambda x: (x * x.detach()).sum(), x, raise_exception=False)


def test_a_module_moves_as_a_whole(emulated_gpu):
    """Where there is no memory for the last of its values, the others are where they were."""
    model = tc.nn.Sequential(tc.nn.Linear(3, 2), tc.nn.Linear(2, 2))
    model[1].weight = model[0].bias = tc.nn.Parameter(tc.zeros(2, 2))  # shared
    model[1].register_buffer("large", tc.zeros(1).expand(tc.cuda.memory_stats(emulated_gpu)["total"]))
    with pytest.raises(MemoryError, match="out of memory on"):
        model.to(emulated_gpu, tc.float16)
    assert all(value.device == "cpu" and value.dtype == tc.float32 for value in model.state_dict().values())
    del model[1].large
    model.to(emulated_gpu, tc.float16)
    assert all(value.device == emulated_gpu and value.dtype == tc.float16 for value in model.state_dict().values())
    assert model[1].weight is model[0].bias


def test_a_fitted_estimator_predicts_there(emulated_gpu, rng):
    pytest.importorskip("sklearn", "1.6")
    kinds = [rng.standard_normal((6, 3)), rng.standard_normal((6, 4, 3)), ["one word", "two", "a few words more", "one", "two", "more"]]
    for x in kinds:
        fitted = tc.sklearn.TransformerClassifier(d_model=8, n_heads=2, n_layers=1, max_epochs=1, random_state=0).fit(x, [0, 1, 2] * 2)
        on_cpu = fitted.predict_proba(x)
        fitted.model_.to(emulated_gpu)
        np.testing.assert_allclose(fitted.predict_proba(x), on_cpu, atol=1e-5)
