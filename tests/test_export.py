"""ONNX files: checked by onnx, and the same numbers in ONNX Runtime at other lengths than the example's."""

import contextlib
import linecache
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core, nn
from transformer_c.export import ExportError
from transformer_c.export.sizes import Formulas, Real
from transformer_c.tutorials import godoy, keras_book, sensio, uva

onnx = pytest.importorskip("onnx")
F = tc.functional
DTYPES = {1: np.float32, 10: np.float16, 11: np.float64, 7: np.int64, 6: np.int32, 9: np.bool_, 2: np.uint8}


def run(path, arrays):
    """The outputs of the file, from ONNX Runtime, or from onnx itself where that cannot be installed."""
    model = onnx.load(path)
    given = {i.name: np.asarray(a).astype(DTYPES[i.type.tensor_type.elem_type]) for i, a in zip(model.graph.input, arrays, strict=True)}
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(model).run(None, given)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, given)


def leaves(output):
    if isinstance(output, dict):
        output = tuple(output.values())
    if isinstance(output, (tuple, list)):
        return [leaf for o in output for leaf in leaves(o)]
    return [] if output is None else [np.asarray(output)]


def check(module, example, *others, tmp_path, tolerance=1e-5, **options):
    """Exports once, and compares at the example and at each of the others; gives the model."""
    path = str(tmp_path / "module.onnx")
    was_training = module.training
    assert tc.export_onnx(module, example, path, **options) is None
    assert module.training == was_training
    onnx.checker.check_model(path, full_check=True)
    module.eval()
    for given in (example, *others):
        given = given if isinstance(given, tuple) else (given,)
        expected = leaves(module(*given))
        found = run(path, [a for a in given if isinstance(a, np.ndarray)])
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    return onnx.load(path)


rng = np.random.default_rng(0)


def r(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def bits(*shape):
    return rng.random(shape) < 0.3


def ids(top, *shape):
    return rng.integers(0, top, shape)


def causal(n):
    return np.triu(np.ones((n, n), bool), 1)


SELF = (lambda b, t: r(b, t, 8)), [(2, 5), (1, 1), (3, 17)]
PLAIN = {
    "relu": nn.ReLU, "gelu": nn.GELU, "gelu tanh": lambda: nn.GELU("tanh"), "silu": nn.SiLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid,
    "softmax": nn.Softmax, "log softmax": lambda: nn.LogSoftmax(1), "identity": nn.Identity, "flatten": nn.Flatten, "dropout": nn.Dropout,
    "unflatten": lambda: nn.Unflatten(-1, (2, 4)),
    "layer norm": lambda: nn.LayerNorm(8), "rms norm": lambda: nn.RMSNorm(8), "linear": lambda: nn.Linear(8, 3),
    "leaky relu": nn.LeakyReLU, "elu": lambda: nn.ELU(0.7), "softplus": lambda: nn.Softplus(2.0),
    **{name: getattr(nn, name) for name in nn.activations.__all__}, "Threshold": lambda: nn.Threshold(0.1, 2.0),
    "max pool": nn.GlobalMaxPool1D, "average pool": nn.GlobalAveragePool1D, "positions": lambda: tc.PositionalEncoding(8),
    "sequential": lambda: nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.LayerNorm(5)), "block": lambda: tc.EncoderBlock(8, 2, 16),
    "block, gelu": lambda: tc.EncoderBlock(8, 2, 16, norm_first=True, activation="gelu"),
    "stack": lambda: tc.TransformerEncoder(2, input_dim=8, num_heads=2, dim_feedforward=16),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_layers_of_one_sequence(name, tmp_path):
    make, sizes = SELF
    check(PLAIN[name](), *(make(*size) for size in sizes), tmp_path=tmp_path)


def layer(**options):
    return nn.TransformerEncoderLayer(8, 2, 16, **options)


def decoder(**options):
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, **options), 2)


# A module, and its arguments as a function of (batch, length, other length).
MASKED = {
    "tutorial's attention": (lambda: tc.MultiheadAttention(8, 8, 2), lambda b, t, s: (r(b, t, 8), ~causal(t), True)),
    "tutorial's block": (lambda: tc.EncoderBlock(8, 2, 16), lambda b, t, s: (r(b, t, 8), bits(b, 1, t))),
    "embedding": (lambda: nn.Embedding(11, 4, padding_idx=0), lambda b, t, s: (ids(11, b, t),)),
    "attention": (lambda: nn.MultiheadAttention(8, 2), lambda b, t, s: (r(t, b, 8), r(s, b, 8), r(s, b, 8))),
    "attention, padding": (
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        lambda b, t, s: (r(b, t, 8), r(b, s, 8), r(b, s, 8), bits(b, s)),
    ),
    "attention, float mask": (
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        lambda b, t, s: (r(b, t, 8), r(b, s, 8), r(b, s, 8), None, False, r(t, s)),
    ),
    "attention, causal": (
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        lambda b, t, s: (r(b, t, 8), r(b, t, 8), r(b, t, 8), None, True, None, False, True),
    ),
    "attention, more keys": (
        lambda: nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True),
        lambda b, t, s: (r(b, t, 8), r(b, t, 8), r(b, t, 8), None, True, None, True, True),
    ),
    "encoder": (
        lambda: nn.TransformerEncoder(layer(activation="gelu"), 2, nn.LayerNorm(8)),
        lambda b, t, s: (r(t, b, 8), None, bits(b, t)),
    ),
    "encoder, mask": (
        lambda: nn.TransformerEncoder(layer(batch_first=True, norm_first=True), 2), lambda b, t, s: (r(b, t, 8), causal(t))
    ),
    "encoder, causal": (
        lambda: nn.TransformerEncoder(layer(batch_first=True), 1), lambda b, t, s: (r(b, t, 8), None, None, True)
    ),
    "decoder": (lambda: decoder(batch_first=True), lambda b, t, s: (r(b, t, 8), r(b, s, 8))),
    "transformer": (
        lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True, norm_first=True), lambda b, t, s: (r(b, s, 8), r(b, t, 8))
    ),
    "Keras's attention": (lambda: keras_book.MultiHeadAttention(2, 8, 6), lambda b, t, s: (r(b, t, 6), r(b, s, 6))),
    "Keras's encoder": (lambda: keras_book.TransformerEncoder(8, 16, 2), lambda b, t, s: (r(b, t, 8), bits(b, t))),
    "Keras's model": (lambda: keras_book.ReviewModel(20), lambda b, t, s: (ids(20, b, t),)),
    "reverse": (
        lambda: uva.ReversePredictor(
            input_dim=8, model_dim=16, num_classes=8, num_heads=2, num_layers=1, lr=1e-3, warmup=5, max_iters=10
        ),
        lambda b, t, s: (r(b, t, 8),),
    ),
    "SensIO's MLP": (sensio.MLP, lambda b, t, s: (r(b, 784),)),
    "SensIO's model": (sensio.Model, lambda b, t, s: (r(b, 16, 49),)),
    "Godoy's model": (lambda: godoy.SquaresPredictor("own"), lambda b, t, s: (r(b, 2, 2),)),
    "Godoy's Transformer": (lambda: godoy.SquaresPredictor("nn"), lambda b, t, s: (r(b, 2, 2),)),
    "convolution": (
        lambda: nn.Conv1d(4, 6, 3, stride=2, padding=2, padding_mode="reflect"),
        lambda b, t, s: (r(b, 4, t + 4),),
    ),
    "convolution, images": (
        lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(0, 1), dilation=(1, 2), groups=2),
        lambda b, t, s: (r(b, 4, t, s + 2),),
    ),
    "convolution, films": (lambda: nn.Conv3d(4, 6, (1, 3, 2), padding=(0, 1, 1)), lambda b, t, s: (r(b, 4, t, s + 2, 3),)),
    "transposed convolution": (
        lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=2, dilation=3),
        lambda b, t, s: (r(b, 4, t + 1),),
    ),
    "transposed convolution, images": (
        lambda: nn.ConvTranspose2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), output_padding=(1, 0), groups=2, bias=False),
        lambda b, t, s: (r(b, 4, t + 1, s),),
    ),
    "transposed convolution, films": (lambda: nn.ConvTranspose3d(4, 2, 2, stride=2), lambda b, t, s: (r(b, 4, t, s, 3),)),
    "batch norm": (lambda: nn.BatchNorm1d(4).eval(), lambda b, t, s: (r(b, 4, t),)),
    "batch norm, images": (lambda: nn.BatchNorm2d(4).eval(), lambda b, t, s: (r(b, 4, 3, 2),)),
    "group norm": (lambda: nn.GroupNorm(2, 4), lambda b, t, s: (r(b, 4, t),)),
    "group norm, images": (lambda: nn.GroupNorm(2, 4, affine=False), lambda b, t, s: (r(b, 4, t, s),)),
    "max pooling": (lambda: nn.MaxPool1d(3, 2, 1), lambda b, t, s: (r(b, 4, 8),)),
    "max pooling, images": (lambda: nn.MaxPool2d(2), lambda b, t, s: (r(b, 4, 6, 8),)),
    "average pooling": (lambda: nn.AvgPool1d(3, 2, 1), lambda b, t, s: (r(b, 4, 8),)),
    "average pooling, images": (lambda: nn.AvgPool2d(2), lambda b, t, s: (r(b, 4, 6, 8),)),
    "adaptive pooling": (lambda: nn.AdaptiveAvgPool1d(3), lambda b, t, s: (r(b, 4, 8),)),
    "adaptive pooling, images": (lambda: nn.AdaptiveAvgPool2d((1, 3)), lambda b, t, s: (r(b, 4, 6, 8),)),
    "patches": (lambda: nn.Unfold(2, stride=2), lambda b, t, s: (r(b, 4, 6, 8),)),
    "pretrained": (lambda: nn.Embedding.from_pretrained(r(11, 4)), lambda b, t, s: (ids(11, b, t),)),
    "squared error": (nn.MSELoss, lambda b, t, s: (r(b, t), r(b, t))),
    "binary": (nn.BCELoss, lambda b, t, s: (np.abs(r(b, t)) % 1, np.abs(r(b, t)) % 1)),
    "binary, logits": (nn.BCEWithLogitsLoss, lambda b, t, s: (r(b, t), np.abs(r(b, t)) % 1)),
    "absolute error": (nn.L1Loss, lambda b, t, s: (r(b, t), r(b, t))),
    "smooth error": (lambda: nn.SmoothL1Loss(beta=0.5), lambda b, t, s: (r(b, t), r(b, t))),
    "Huber": (lambda: nn.HuberLoss("sum", 0.5), lambda b, t, s: (r(b, t), r(b, t))),
    "divergence": (nn.KLDivLoss, lambda b, t, s: (r(b, t), np.abs(r(b, t)) % 1)),
    "likelihood": (nn.NLLLoss, lambda b, t, s: (r(b, 4), ids(4, b))),
    "cosine": (nn.CosineSimilarity, lambda b, t, s: (r(b, t), r(b, t))),
    "distance": (nn.PairwiseDistance, lambda b, t, s: (r(b, t), r(b, t))),
    "cosine loss": (nn.CosineEmbeddingLoss, lambda b, t, s: (r(b, t), r(b, t), np.where(bits(b), 1, -1))),
    "ranking": (nn.MarginRankingLoss, lambda b, t, s: (r(b, t), r(b, t), np.sign(r(b, t)))),
    "triplets": (nn.TripletMarginLoss, lambda b, t, s: (r(b, t), r(b, t), r(b, t))),
    "normal": (nn.GaussianNLLLoss, lambda b, t, s: (r(b, t), r(b, t), np.abs(r(b, t)) + np.float32(0.1))),
    "cross-entropy": (
        lambda: nn.CrossEntropyLoss(tc.tensor([0.1, 0.2, 0.3, 0.4]), label_smoothing=0.1, ignore_index=2),
        lambda b, t, s: (r(b, 4, t), ids(4, b, t)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MASKED)
def test_masks_and_models(name, tmp_path):
    make, arguments = MASKED[name]
    check(make(), arguments(2, 5, 4), arguments(3, 17, 9), tmp_path=tmp_path)


@pytest.mark.parametrize(("batch", "length"), [(1, 4), (4, 4), (8, 8)])  # 8 is the number of features
def test_examples_whose_lengths_say_little(batch, length, tmp_path):
    check(tc.EncoderBlock(8, 2, 16), (r(batch, length, 8), ~causal(length)), (r(3, 9, 8), ~causal(9)), tmp_path=tmp_path)


def test_a_batch_of_one_with_memory_and_padding(tmp_path):
    example = r(1, 5, 8), r(1, 6, 8), r(1, 6, 8), bits(1, 6)
    check(nn.MultiheadAttention(8, 2, batch_first=True), example, (r(3, 7, 8), r(3, 9, 8), r(3, 9, 8), bits(3, 9)), tmp_path=tmp_path)


# ---- your own modules -----------------------------------------------------------------------------------------------------------


class Function(nn.Module):
    """A forward that is a function."""

    def __init__(self, function):
        super().__init__()
        self.function, self.weight = function, nn.Parameter(r(8, 24))

    def forward(self, x):
        return self.function(self, x)


def own_attention(self, x, **options):
    batch, length, width = x.shape
    q, k, v = (x @ self.weight).view(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(q, k, v, **options)
    return y.transpose(1, 2).reshape(batch * length, width).view(batch, length, width)


def grouped(self, x):
    q = (x @ self.weight).view(*x.shape[:2], 6, 4).transpose(1, 2)
    k = q[:, ::3]
    return F.scaled_dot_product_attention(q, k, k, enable_gqa=True, return_attention=True, return_logsumexp=True)


def written(self, x):
    batch, length, width = x.shape
    mask = tc.triu(tc.ones(length, length), 1)
    mask[mask != 0] = -1e9
    wide = tc.zeros(batch, length + 1, width)
    wide[:, 1:] = x
    wide[:, 0, ::2] = 1.0
    x = x * 1
    x += mask.sum() / 1e9
    return wide, x


def from_numpy(self, x):
    length = x.shape[1]
    past = tc.as_tensor(np.tri(length, dtype=np.float32)) @ x
    return past * tc.arange(length)[None, :, None] / length**0.5 + np.arange(length, 0, -1, np.float32)[:, None] / length, x[
        :, : length // 2
    ]


def reflected(self, x):
    length = x.shape[1]
    places = np.r_[2:0:-1, np.arange(length), length - 2, length - 3]
    eye = tc.zeros(length, length)
    eye.view(-1)[:: length + 1] = 2.0
    return x[:, places], eye @ x, tc.as_tensor(np.eye(length, k=1, dtype=np.float32)) @ x


def indexed(self, x):
    places = tc.tensor([0, 2])
    return {
        "pair": x[:, [0, -1]], "both": x[:, places, places], "apart": x[places * 0, :, places], "late": x[:, :, places, None],
        "last": x[:, -1], "part": x[..., 1:-1:2], "back": x.flip(1, 2), "new": x[None, 0], "column": x[:, 1:, 3], "row": x[1 - 1],
    }  # fmt: skip


def shapes(self, x):
    batch, length, width = x.shape
    parts = (*x.chunk(2, -1), *x.split([3, 5], -1), x.unbind(2)[1], x.unfold(1, 3, 2), x.unfold(1, 2, 4), x.mT, x.narrow(1, 1, length - 1))
    parts += (x[:, :0], x[:, :0].transpose(0, 1).expand(-1, -1, 8), tc.cat([x[:0], x]))
    return parts, x.unsqueeze(1).expand(-1, 3, -1, -1), x.flatten(1), tc.stack([x, x], 1), x.expand(batch, length, width).contiguous()


def numbers(self, x):
    whole = (x * 10).long()
    return (
        whole // 3, whole % 3, x // 0.3, x % 0.3, whole > 2, (x > 0) & (x < 1) | ~(x > -1), x != 0, tc.where(x > 0, x, 0.1), 1 / (x * x + 1),
        2**x, x.abs().log1p(), x.masked_fill(x > 0, -1), whole.float().mean(), x.var(1), x.max(axis=-1), x.min(axis=1), x.argmax(1), x.argmin(),
        *x.topk(2, 1), *x.max(1), x.topk(1, 0, largest=False).values,
        (x > 0).any(1), (x > 0).all(), (x > 0).sum(-1), x.argsort(1, descending=True), F.one_hot(whole % 4, 4), F.swiglu(x, x),
        (x > 0) + (x < -1), (x > 0) * (x < 1), x.narrow(1, tc.tensor(1), 2), F.geglu(x, x), tc.tril(x), F.rotary(x), F.rotary(x, pairing="interleaved"), x.to("float64").sum(), x.type_as(whole), -x, x.exp().sqrt(),
    )  # fmt: skip


def resized(self, x):
    """By whole factors and halves, to sizes made of lengths, and to those that never change."""
    images, weight, longer = x[:, None].expand(-1, 2, -1, -1), self.weight[None, None], x.shape[1] + 24
    return (
        F.interpolate(x, scale_factor=0.5), F.interpolate(x.mT, scale_factor=2, mode="linear"), F.interpolate(images, scale_factor=2, mode="bicubic"),
        F.interpolate(images, scale_factor=2, mode="nearest-exact"), F.interpolate(weight, (5, 9), mode="bicubic", antialias=True),
        F.interpolate(weight, longer, mode="bicubic", align_corners=True), F.interpolate(weight, (longer, 7)),
        F.interpolate(weight, x.shape[1], mode="bilinear"), F.interpolate(weight[..., :1], (x.shape[1], 1), mode="bicubic"),
    )  # fmt: skip


def repeated(self, x):
    """Along the batch or the sequence, which may be 1."""
    batch, length, _ = x.shape
    row = self.weight[:1, :8]
    return row.repeat(batch, length, 1) * x, self.weight[:, None].repeat(1, batch, 2), tc.tile(row, (length, 1)) + x


OWN = {
    "attention": own_attention,
    "causal": lambda self, x: own_attention(self, x, is_causal=True, softcap=5.0),
    "window": lambda self, x: own_attention(self, x, window=(2, 1), scale=0.3),
    "lengths": lambda self, x: own_attention(self, x, key_lengths=(x[:, 0, 0] * 0).long() + 3, empty_rows="uniform"),
    "groups": grouped,
    "writing": written,
    "numpy": from_numpy,
    "reflecting": reflected,
    "index": indexed,
    "shapes": shapes,
    "numbers": numbers,
    "resizing": resized,
    "repeating": repeated,
}


@pytest.mark.parametrize("name", OWN)
def test_own_modules(name, tmp_path):
    check(Function(OWN[name]), r(2, 6, 8), r(3, 9, 8), r(4, 16, 8), r(1, 6, 8), tmp_path=tmp_path)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_quotients_that_are_rounded_down(dtype, tmp_path):
    """From the remainder, as they are computed here: 1.5 // 0.3 is 4, and a quotient rounded by the division would be 5."""
    x = np.array([[1.5, -1.5, 0.0, 4.5, 0.9, -2.1, 7.0, 1e4], [2.0, 0.1, -0.3, 0.3, 3.0, -0.0, 1.0, -7.5]], dtype)
    y = np.array([[0.3, 0.3, -2.0, 1.5, 0.3, -0.7, 0.0, 0.1], [np.inf, -np.inf, 0.3, -0.1, 0.0, 0.0, -0.0, 2.5]], dtype)

    def divided(self, x):
        a, b = x[:, 0], x[:, 1]
        return (a // 0.3, a % 0.3, a // b, a % b, a // -0.7, 1.5 // a, a // a, a % 0.0)

    cast = {np.float16: "half", np.float64: "double"}.get(dtype)
    module = Function(divided)
    path, module = str(tmp_path / "module.onnx"), getattr(module, cast)() if cast else module
    given = np.stack([x, y], 1)
    tc.export_onnx(module, given, path)
    for a, b in zip(run(path, [given]), leaves(module(given)), strict=True):
        assert a.dtype == b.dtype == dtype
        np.testing.assert_array_equal(a, b)


def test_a_module_in_double_precision(tmp_path):
    check(tc.EncoderBlock(8, 2, 16).double(), r(2, 5, 8).astype(float), r(3, 7, 8).astype(float), tmp_path=tmp_path, tolerance=1e-12)


def test_names_shapes_and_weights(tmp_path):
    model = check(tc.MultiheadAttention(8, 8, 2), (r(2, 5, 8), ~causal(5)), tmp_path=tmp_path)
    shapes = {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*model.graph.input, *model.graph.output)}
    assert shapes == {"x": ["batch", "sequence", 8], "mask": ["sequence", "sequence"], "output": ["batch", "sequence", 8]}
    weights = {i.name for i in model.graph.initializer}
    assert {"qkv_proj.weight", "o_proj.bias"} <= weights
    assert all(node.domain == "" for node in model.graph.node) and model.opset_import[0].version == 18


def test_axes_of_ones_own_and_a_dict_of_arguments(tmp_path):
    block, path = tc.EncoderBlock(8, 2, 16), tmp_path / "b.onnx"
    tc.export_onnx(block, {"x": r(1, 5, 8)}, path, dynamic_axes={"x": {0: "n"}})
    dims = onnx.load(path).graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in dims] == ["n", 5, 8]
    for wrong in ({"y": [0]}, {"x": [3]}, {"x": {0: "n", 1: "n"}}):
        with pytest.raises(ValueError, match="dynamic_axes"):
            tc.export_onnx(block, r(1, 5, 8), path, dynamic_axes=wrong)


def test_large_files_have_their_parameters_next_to_them(tmp_path, monkeypatch):
    from transformer_c.export import writing

    monkeypatch.setattr(writing, "_LARGEST", 100)
    check(tc.EncoderBlock(8, 2, 64), r(2, 5, 8), tmp_path=tmp_path)
    assert (tmp_path / "module.onnx.data").exists()


def test_a_file_is_written_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    path, module, x = tmp_path / "module.onnx", nn.Linear(2, 2), np.ones((1, 2), np.float32)
    path.write_bytes(b"an older file")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk is full"):
        patch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError("the disk is full")))
        tc.export_onnx(module, x, path)
    assert path.read_bytes() == b"an older file" and os.listdir(tmp_path) == ["module.onnx"]
    tc.export_onnx(module, x, path)
    assert len(onnx.load(path).graph.node) > 0


def test_names_that_meet(tmp_path):
    module = Function(lambda self, x: {"x": x @ self.weight, "matmul_0": x + 1, "a b": x[0]})
    model = check(module, r(2, 5, 8), r(3, 7, 8), tmp_path=tmp_path)
    assert [o.name for o in model.graph.output] == ["x_out", "matmul_0", "a_b"]


def test_the_example_is_not_written_to(tmp_path):
    example = np.ones((2, 5, 8), np.float32)

    def forward(self, x):
        x += 1
        table = tc.tensor([1.0, 2.0])
        table[0] = 5.0
        return x * table.sum()

    tc.export_onnx(Function(forward), example, tmp_path / "m.onnx")
    assert (example == 1).all()
    (found,) = run(tmp_path / "m.onnx", [example])
    assert (found == 14).all()


def test_half_precision(tmp_path):
    block, path = tc.EncoderBlock(8, 2, 16).half(), str(tmp_path / "half.onnx")
    tc.export_onnx(block, r(2, 5, 8), path)
    x = r(3, 7, 8).astype(np.float16)
    model = onnx.load(path)
    assert {i.data_type for i in model.graph.initializer if i.name in dict(block.named_parameters())} == {onnx.TensorProto.FLOAT16}
    from onnx.reference import ReferenceEvaluator

    (found,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(found.astype(np.float32), block.eval()(x).astype(np.float32), atol=2e-2)
    tc.export_onnx(nn.Linear(8, 3).bfloat16(), r(2, 5, 8), path)
    onnx.checker.check_model(path, full_check=True)


class Twice(nn.Module):
    def forward(self, x, y):
        return x + y


class Picking(nn.Module):
    """Ops whose indices may be shorter than what they index, but not longer."""

    def __init__(self, op):
        super().__init__()
        self.op = op

    def forward(self, x, index, source):
        return x.gather(1, index) + source if self.op == "gather" else getattr(x, self.op)(1, index, source)


@pytest.mark.parametrize("op", ["gather", "scatter", "scatter_add"])
def test_inputs_of_which_one_alone_may_be_longer(op, tmp_path):
    """The batch of the indices grows with that of x, although x could grow alone."""

    def given(batch, length, count):
        return r(batch, length), np.argsort(rng.random((batch, length)), 1)[:, :count], r(batch, count)

    model = check(Picking(op), given(2, 5, 5), given(3, 5, 5), given(1, 7, 4), given(4, 9, 9), tmp_path=tmp_path)
    x, index, source = ([d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input)
    assert x[0] == index[0] == source[0] == "batch" and x[1] == "sequence" and index[1] == source[1] == "index_1"


def test_an_index_grows_with_what_it_indexes(tmp_path):
    class Gathering(nn.Module):
        def forward(self, x, index):
            return x.gather(1, index)

    model = check(Gathering(), (r(2, 5), ids(5, 2, 5)), (r(3, 5), ids(5, 3, 5)), (r(4, 6), ids(6, 4, 2)), tmp_path=tmp_path)
    found = [[d.dim_param for d in i.type.tensor_type.shape.dim] for i in model.graph.input]
    assert found == [["batch", "sequence"], ["batch", "index_1"]]


def test_batches_of_one_go_together(tmp_path):
    check(Twice(), (r(1, 4), r(1, 4)), (r(3, 7), r(3, 7)), tmp_path=tmp_path)


# ---- what cannot be exported --------------------------------------------------------------------------------------------------------

FIRST = r(2, 5, 8)


def parts_of_parts(self, x):
    y = x * 2
    before, first = y[:, 1:], y[:, 0]
    y[:, 1:] *= 2
    y[..., 0].zero_()
    y[0][1][None] += first[0]
    y[0].index_put_((tc.tensor([1, 1]),), tc.ones(2, 8), accumulate=True)
    first.mul_(y[:, 1])
    return y, before, first


def parts_of_constants(self, x):
    w = self.weight[:, :8] * 2
    y, row = x + w[0], w[2]
    w.add_(1)
    row.mul_(2)
    table = tc.zeros(5, 8)
    table[:, 0::2] = tc.arange(20.0).view(5, 4)
    table[:, 1::2].copy_(tc.arange(20.0).view(5, 4).cos())
    table[1:][0].add_(w[1])
    mixed = tc.zeros(5, 8)
    rest = x + mixed
    mixed[0].add_(x[0, 1])
    return y, x + table, rest + mixed, w


@pytest.mark.parametrize("function", [parts_of_parts, parts_of_constants])
def test_writes_to_parts(function, tmp_path):
    """Also through views; values of constants are those of the moment."""
    check(Function(function), FIRST, r(3, 5, 8), tmp_path=tmp_path)


def elsewhere(x):
    """Computed in another thread, which the tracer does not see."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: x * 2).result()


REFUSED = {
    "as a custom_op does": lambda self, x: tc.custom_op(np.sin, lambda dy, x: dy * np.cos(x))(x),
    "dropout has no converter": lambda self, x: F.dropout(x, 0.5),
    r"by bool\(\): a graph cannot decide by values": lambda self, x: x * 2 if x.sum() > 1e6 else x * 2 + 1,
    r"by float\(\)": lambda self, x: x * float(x.sum()),
    r"by item\(\)": lambda self, x: (x.mean(1), tc.tensor(float(x.sum().item()))),
    r"by tolist\(\)": lambda self, x: tc.tensor(x.tolist()),
    "by an index": lambda self, x: x[:, : (x[0, 0, 0] > 0).long()],
    r"by numpy\(\)": lambda self, x: tc.tensor(x.numpy() * 2),
    "by NumPy": lambda self, x: tc.tensor(np.asarray(x.bfloat16())),
    "by a buffer": lambda self, x: tc.tensor(np.frombuffer(x, np.float32)),
    "that add gets depends on the values": lambda self, x: x + elsewhere(x),
    "a result of forward depends on the values": lambda self, x: elsewhere(x),
    "a result of forward depends on .* chance": lambda self, x: {"x": x, "noise": tc.tensor(np.random.random(3))},
    "or on chance": lambda self, x: x + tc.randn(8),
    "one_hot gives .* say num_classes=": lambda self, x: F.one_hot((x > 0).long()),
    "shape of what nonzero gives": lambda self, x: tc.where(x > 0)[0],
    "no arithmetic progression": lambda self, x: x + np.sin(np.arange(x.shape[1], dtype=np.float32))[:, None],
    "by no formula": lambda self, x: x * (x.shape[1] ** 3),
    r"permute\(dims=\) depends on lengths by no formula": lambda self, x: (
        x @ self.weight[:, :8].permute([x.shape[1] % 2, 1 - x.shape[1] % 2])
    ),  # one memory
    "memory that another Tensor shares": lambda self, x: [y := x * 1, z := y.transpose(0, 1), y.zero_(), z][-1],
    "in place to weight, by zero_": lambda self, x: [self.weight.zero_(), x][-1],
    "in place to weight, by copy_": lambda self, x: [self.weight[0].add_(x[0, 0, 0]), x][-1],
    "there before the call": lambda self, x: [self.__dict__.setdefault("state", tc.ones(8)).add(x[0, 0]), self.state.fill_(1.0), x][-1],
    "strides= of Conv depends on lengths": lambda self, x: F.conv1d(x.reshape(-1, 8, 1), self.weight.T[:, :, None], stride=x.shape[1]),
    "drops weights in eval mode": lambda self, x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    "drops elements in eval mode": lambda self, x: F.add_layer_norm(x, x, 8, dropout_p=0.5),
    "export the model in eval mode": lambda self, x: _core.linear(x, self.weight[:, :8], dropout=0.5, seed=1, call=2),
    "has no counterpart in ONNX: export with padding": lambda self, x: F.scaled_dot_product_attention(
        *[x[:1, None]] * 3, sequence_lengths=[x.shape[1]]
    ),
    "returned a set": lambda self, x: {1},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_a_graph_cannot_say(message, tmp_path):
    with pytest.raises(ExportError, match=message):
        tc.export_onnx(Function(REFUSED[message]), FIRST, tmp_path / "no.onnx")
    assert not (tmp_path / "no.onnx").exists() and not _core.is_traced()


@pytest.mark.parametrize("example", [np.zeros((2, 5), int), np.zeros((2, 5), bool), np.zeros((2, 5), np.float32)])
def test_decisions_are_found_from_equal_values_too(example, tmp_path):
    with pytest.raises(ExportError, match="decide by values"):
        tc.export_onnx(Function(lambda self, x: x.float() + 1 if x.any() else x.float()), example, tmp_path / "no.onnx")


def test_a_loop_over_the_sequence_keeps_its_length(tmp_path):
    loop = Function(lambda self, x: tc.stack([x[:, i] for i in range(x.shape[1])], 1))
    model = check(loop, r(2, 5, 8), r(3, 5, 8), tmp_path=tmp_path)
    assert model.graph.input[0].type.tensor_type.shape.dim[1].dim_value == 5
    with pytest.raises(ExportError, match=r"other ops for inputs of shape \(2, 6, 8\) \(x\)"):
        tc.export_onnx(loop, r(2, 5, 8), tmp_path / "no.onnx", dynamic_axes={"x": [1]})


SHORTER = {  # by whose length forward decides, at less than the example's
    "calls": (1, lambda self, x: x * 2 if x.shape[1] > 4 else x + 2),
    "numbers": (1, lambda self, x: x * max(x.shape[1], 3)),
    "one": (0, lambda self, x: x * 2 if x.shape[0] == 1 else x * 3),
    "two": (1, lambda self, x: x * 2 if x.shape[1] == 2 else x * 3),
    "shapes": (1, lambda self, x: x[:, : max(2, x.shape[1] - 4)]),
    "arrays": (1, lambda self, x: x + np.full((x.shape[1], 1), max(x.shape[1], 3), np.float32)),
    "together": (1, lambda self, x: x * (2 if x.shape[0] * x.shape[1] < 5 else 3)),
}


@pytest.mark.parametrize("name", SHORTER)
def test_shorter_inputs_than_the_example_are_tried(name, tmp_path):
    axis, forward = SHORTER[name]
    with pytest.warns(
        UserWarning, match=f"axis {axis} of input 'x' can only have the example's length {(3, 8)[axis]} in the file: forward "
    ) as found:
        model = check(Function(forward), r(3, 8, 4), r(3, 8, 4), tmp_path=tmp_path)
    assert {linecache.getline(w.filename, w.lineno).strip() for w in found} == {
        "assert tc.export_onnx(module, example, path, **options) is None"
    }
    fixed = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert fixed[axis] == (3, 8)[axis] and fixed[2] == 0
    with pytest.raises(ExportError, match=r"forward (calls other|has (other|another)) .* raise an error for them"):
        tc.export_onnx(Function(forward), r(3, 8, 4), tmp_path / "no.onnx", dynamic_axes={"x": [0, 1]})


def test_several_lengths_that_decide_are_kept_each_with_a_warning(tmp_path):
    class Two(nn.Module):
        def forward(self, x, y):
            x = x * 2 if x.shape[1] > 4 else x + 2
            return x * 3 if x.shape[0] > 1 else x - 3, y * 7

    with pytest.warns(UserWarning, match="can only have the example's length") as found:
        model = check(Two(), (r(3, 8, 4), r(5, 6)), (r(3, 8, 9), r(9, 6)), tmp_path=tmp_path)
    assert [str(w.message).split(" in the file")[0] for w in found] == [
        f"axis {axis} of input 'x' can only have the example's length {length}" for axis, length in ((0, 3), (1, 8))
    ]
    dims = [[d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input]
    assert dims[0] == [3, 8, "x_2"] and set(map(type, dims[1])) == {str}


def test_shorter_inputs_that_are_refused_or_the_same(tmp_path):
    def forward(self, x):
        if x.shape[1] < 3:
            raise ValueError("too short")
        steps = np.arange(x.shape[1], dtype=np.float32) / (x.shape[1] - 1)
        return F.conv1d((x * steps[:, None]).transpose(1, 2), tc.ones(4, 4, 3)) / x.shape[1] ** 0.5

    model = check(Function(forward), r(3, 8, 4), r(1, 3, 4), r(2, 9, 4), tmp_path=tmp_path)
    assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [0, 0, 4]


def test_without_the_package_the_extra_is_named():
    code = "import sys; sys.modules['onnx'] = None; import transformer_c as tc; tc.export_onnx(tc.nn.ReLU(), [1.0], 'no.onnx')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: export_onnx needs the package onnx: pip install 'transformer_c[onnx]'" in done.stderr


def test_an_axis_that_changes_a_little_only_keeps_its_length(tmp_path):
    class Windows(nn.Module):
        def forward(self, x, kernel):
            return F.conv1d(x, kernel)

    model = check(Windows(), (r(2, 3, 9), r(4, 3, 8)), (r(3, 3, 12), r(6, 3, 8)), tmp_path=tmp_path)
    dims = [[d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input]
    assert dims == [["batch", "sequence", "x_2"], ["kernel_0", "sequence", 8]]


@pytest.mark.parametrize("axes", [{"x": 0}, {"x": "batch"}, {"x": {"batch": 0}}, {"x": [0.5]}, ["x"], "batch"])
def test_forms_of_dynamic_axes_are_named(axes, tmp_path):
    with pytest.raises(TypeError, match=r"dynamic_axes .*must be .*\[axis, \.\.\.\]"):
        tc.export_onnx(tc.EncoderBlock(8, 2, 16), r(1, 5, 8), tmp_path / "no.onnx", dynamic_axes=axes)


def test_arguments_of_pytorchs_export_are_explained(tmp_path):
    with pytest.raises(
        TypeError, match=r"take input_names \(inputs have the names.*\), opset_version \(the file is of opset 18\), verbos$"
    ):
        tc.export_onnx(nn.Linear(8, 8), r(2, 8), tmp_path / "no.onnx", input_names=["x"], opset_version=17, verbos=True)
    assert not (tmp_path / "no.onnx").exists()


def test_first_mistakes(tmp_path):
    with pytest.raises(TypeError, match=r"takes a tc\.nn\.Module, not function"):
        tc.export_onnx(lambda x: x, r(2), tmp_path / "no.onnx")
    with pytest.raises(TypeError, match=r"does not fit Linear\.forward\(input"):
        tc.export_onnx(nn.Linear(8, 8), (r(2, 8), r(2, 8)), tmp_path / "no.onnx")
    with pytest.raises(TypeError, match="'input' is a dict of arrays"):
        tc.export_onnx(nn.Linear(8, 8), ({"a": r(2, 8)},), tmp_path / "no.onnx")
    with pytest.raises(TypeError, match="has no array"):
        tc.export_onnx(nn.Linear(8, 8), None, tmp_path / "no.onnx")


# ---- nothing is forgotten -------------------------------------------------------------------------------------------------------------

# Ops without a converter to ONNX: why.
WITHOUT = {
    "arange": "a constant",
    "spaced": "a constant",
    "assign_all": "loads a state dict",
    "backward": "gradients",
    "backward_to": "gradients",
    "backward_watched": "gradients",
    "dropout": "chance",
    "encoder_block": "a traced block runs part by part",
    "from_dlpack_capsule": "another library's memory",
    "gradient_hook": "gradients",
    "gradients": "gradients",
    "gradient_clip": "gradients",
    "gradient_norm": "gradients",
    "gradient_scale": "gradients",
    "nonzero": "a shape that depends on values",
    "record_custom": "a Python function",
    "copied_with_memory": "a copy while something is traced is a clone",
    "set_all_data": "writes to parameters",
    "set_data": "writes to a parameter",
    "set_grad_slot": "gradients",
    "sum_of_squares": "while a graph is traced, norms are squares and their sum",
}


def test_every_op_has_a_converter_or_a_reason():
    from transformer_c.export.converters import CONVERTERS
    from transformer_c.export.tracing import _NUMBERS, _QUESTIONS

    ops = {name for space in (_core, tc.Tensor) for name, op in vars(space).items() if isinstance(op, _core.op)}
    ops = {name for name in ops if not name.endswith(("_forward", "_backward", "_step")) and not name.startswith("cuda_")}
    without = ops - set(CONVERTERS) - _QUESTIONS - set(_NUMBERS)
    assert sorted(without - set(WITHOUT)) == [], "ops without a converter in export/converters/ and without a reason in WITHOUT"
    assert sorted(set(WITHOUT) - without) == [], "WITHOUT has what is no op, or has a converter"
    assert set(CONVERTERS) - ops == {"T", "mT", "getitem", "setitem", "tensor"}  # parts of a Tensor that the tracer sees as well


def test_every_layer_is_exported_here():
    made = [make() for make in PLAIN.values()] + [make() for make, _ in MASKED.values()]
    seen = {type(module) for one in made for module in one.modules()}
    layers = {name: getattr(nn, name) for name in nn.__all__ if isinstance(getattr(nn, name), type)}
    unseen = {name for name, kind in layers.items() if issubclass(kind, nn.Module) and kind not in seen}
    assert unseen == {"Module", "ModuleDict", "ParameterDict", "ParameterList"}, "a layer has a row in PLAIN or MASKED"


# ---- the parts ----------------------------------------------------------------------------------------------------------------------


def test_formulas():
    lengths = [(4, 7), *((4 + k, 7) for k in range(1, 13)), *((4, 7 + k) for k in range(1, 13)), (9, 13), (20, 31)]
    formulas = Formulas(lengths)
    known = {
        "constant": lambda b, t: 12, "b": lambda b, t: b, "sum": lambda b, t: 3 * b - 2 * t + 5, "product": lambda b, t: b * t * 6,
        "shifted": lambda b, t: (b + 1) * (t - 2), "square": lambda b, t: t * t, "triangle": lambda b, t: t * (t + 1) // 2,
        "floor": lambda b, t: (t - 3) // 2 + 1, "both": lambda b, t: b * ((t + 1) // 3), "zero": lambda b, t: t - 7,
        "offset": lambda b, t: 3 * b * (t + 1) - 20,
    }  # fmt: skip
    for name, function in known.items():
        found = formulas.integer([function(*given) for given in lengths])
        for given in [(1, 1), (50, 64), (5, 100)]:
            assert (found if isinstance(found, int) else found(given)) == function(*given), name
    assert formulas.integer([t**3 for _, t in lengths]) is None and formulas.integer([b * b + b * t for b, t in lengths]) is None
    root = formulas.real([t**-0.5 for _, t in lengths])
    assert isinstance(root, Real) and (root.function, root.size((4, 64))) == ("rsqrt", 64)


@pytest.mark.parametrize("fails", [False, True])
def test_each_part_keeps_its_mode(tmp_path, fails):
    """Also where the export is refused."""
    model = tc.nn.Sequential(tc.nn.Linear(4, 4), tc.nn.Dropout(0.5), tc.nn.Linear(4, 4))
    model[1].eval()
    with pytest.raises(ValueError) if fails else contextlib.nullcontext():
        tc.export_onnx(model, np.zeros((2, 5 if fails else 4), np.float32), tmp_path / "model.onnx")
    assert [part.training for part in model.modules()] == [True, True, False, True]


def test_examples_and_paths_that_are_none(tmp_path):
    layer, x = tc.nn.Linear(3, 2), np.ones((2, 3), np.float32)
    for path in (None, 3):
        with pytest.raises(TypeError, match=rf"path must be a path, such as 'model\.onnx', not {path} \({type(path).__name__}\)"):
            tc.export_onnx(layer, x, path)
    torch = pytest.importorskip("torch")
    tc.export_onnx(layer, torch.tensor(x), tmp_path / "a.onnx")  # an array of another library
    with pytest.raises(TypeError, match="the example for 'input' is a PyTorch tensor of float32, with a gradient"):
        tc.export_onnx(layer, torch.tensor(x, requires_grad=True), tmp_path / "a.onnx")
