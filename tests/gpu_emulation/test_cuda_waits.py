"""What the host waits for: a training step copies nothing to or from the device, and indices that are out of range are told by the next copy or wait."""

import gc
import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest
import transformer_c as tc
from device_cases import array, host
from transformer_c import functional as F
from transformer_c.models.architectures import ARCHITECTURES

pytestmark = pytest.mark.usefixtures("nothing_is_left")

COUNTS = {
    "copies from the host": "emulator_copies_from_host",
    "copies to the host": "emulator_copies_to_host",
    "waits": "emulator_host_waits",
}
NOTHING = dict.fromkeys(COUNTS, 0)


def counted(library, function):
    """What the function made the host copy and wait for."""
    read = lambda: {name: getattr(library.library, counter)() for name, counter in COUNTS.items()}
    tc.cuda.synchronize("cuda:emulated")  # no page-locked buffer is on its way
    before = read()
    function()
    return {name: count - before[name] for name, count in read().items()}


# ---- steps -------------------------------------------------------------------------------------------------------------------------


class Tokens(tc.nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.embedding = tc.nn.Embedding(11, 8, padding_idx=0)
        self.encoder = tc.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.norm, self.head = tc.nn.RMSNorm(8), tc.nn.Linear(8, 11)
        self.causal = causal

    def forward(self, tokens):
        mask = tc.nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device) if self.causal else None
        return self.head(self.norm(self.encoder(self.embedding(tokens), src_mask=mask)))


class OneHot(tc.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.encoder, self.head = tc.nn.Linear(11, 8), tc.EncoderBlock(8, 2, 16, dropout=0.1), tc.nn.Linear(8, 11)

    def forward(self, tokens):
        return self.head(self.encoder(self.layer(F.one_hot(tokens, 11).float())))


LOSSES = {
    "mean": lambda y, t: F.cross_entropy(y, t),
    "padding": lambda y, t: F.cross_entropy(y, t, ignore_index=0, label_smoothing=0.1),
    "weights": lambda y, t: F.cross_entropy(y, t, weight=y.detach()[0, :, 0].abs()),
    "nll": lambda y, t: F.nll_loss(y.log_softmax(1), t),
    "gather": lambda y, t: -y.log_softmax(1).gather(1, t.unsqueeze(1)).mean(),
    "squares": lambda y, t: F.mse_loss(y, F.one_hot(t, 11).float().transpose(1, 2)),
    "probabilities": lambda y, t: F.binary_cross_entropy(y.sigmoid(), F.one_hot(t, 11).float().transpose(1, 2)),
}
MODELS = {"tokens": lambda: Tokens(False), "causal": lambda: Tokens(True), "one-hot": OneHot}


@pytest.mark.whole
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "autocast"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_waits_for_nothing(emulated_gpu, emulated_library, model, loss, precision, rng):
    module = MODELS[model]().to(emulated_gpu)
    if precision == "bfloat16":
        module.bfloat16()
    optimizer = tc.optim.AdamW(module.parameters(), lr=1e-2)
    schedule = tc.CosineWarmupScheduler(optimizer, 2, 50)
    tokens = tc.tensor(rng.integers(0, 11, (3, 5)), device=emulated_gpu)
    if model == "one-hot" and precision == "bfloat16":
        module.float()  # its input is float32
    values = []

    def step():
        with tc.autocast(enabled=precision == "autocast"):
            y = module(tokens)
        value = LOSSES[loss](y.transpose(1, 2).float(), tokens.flip(1))
        optimizer.zero_grad()
        value.backward()
        tc.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        values.append(value)

    tc.cuda.synchronize(emulated_gpu)  # no buffer is on its way
    for _ in range(3):  # the first one makes the optimizer's states
        assert counted(emulated_library, step) == NOTHING
    assert counted(emulated_library, lambda: values.append(values[-1].item())) == NOTHING | {"copies to the host": 1, "waits": 1}
    assert np.isfinite(values[-1])


SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
WORDS = {"vocab_size": 20, "max_position_embeddings": 14, "pad_token_id": 1}
PAIR = {  # of an encoder-decoder
    **{"vocab_size": 20, "d_model": 8, "max_position_embeddings": 14, "pad_token_id": 1, "decoder_start_token_id": 2},
    **{
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 16))
    },
}
CONFIGS = {
    "albert": {**SIZES, **WORDS, "embedding_size": 4},
    **dict.fromkeys(("bart", "m2m_100", "marian", "mbart"), PAIR),
    "bert": {**SIZES, **WORDS, "type_vocab_size": 2},
    "clip": {
        **{"projection_dim": 6, "text_config": {**SIZES, "vocab_size": 20, "max_position_embeddings": 9, "eos_token_id": 5}},
        "vision_config": {**SIZES, "image_size": 8, "patch_size": 4},
    },
    "clip_text_model": {**SIZES, **WORDS, "projection_dim": 6, "eos_token_id": 5},
    "clip_vision_model": {**SIZES, "image_size": 8, "patch_size": 4, "projection_dim": 6},
    "deberta-v2": {**SIZES, **WORDS, "relative_attention": True, "pos_att_type": "p2c|c2p", "position_buckets": 4, "conv_kernel_size": 3},
    "deberta": {**SIZES, **WORDS, "relative_attention": True, "pos_att_type": "p2c|c2p"},
    "distilbert": {**WORDS, "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 16},
    "electra": {**SIZES, **WORDS, "embedding_size": 4},
    "ernie": {**SIZES, **WORDS, "use_task_id": True},
    "gpt2": {**WORDS, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_inner": 16},
    "gpt_neox": {**SIZES, **WORDS, "rotary_pct": 0.5},
    "modernbert": {**SIZES, **WORDS},
    "nomic_bert": {**SIZES, **WORDS, "type_vocab_size": 2},
    "qwen3": {**SIZES, **WORDS, "num_key_value_heads": 1, "head_dim": 6},
    "siglip": {
        "text_config": {**SIZES, "vocab_size": 20, "max_position_embeddings": 6},
        "vision_config": {**SIZES, "image_size": 8, "patch_size": 4},
    },
    "siglip_text_model": {**SIZES, "vocab_size": 20, "max_position_embeddings": 6},
    "siglip_vision_model": {**SIZES, "image_size": 8, "patch_size": 4},
    "t5": {"vocab_size": 20, "d_model": 8, "d_kv": 3, "d_ff": 16, "num_layers": 1, "num_heads": 2, "feed_forward_proj": "gated-gelu"},
    **{key: {**SIZES, "image_size": 8, "patch_size": 4, "mlp_ratio": 2} for key in ("dinov2", "dinov2_with_registers")},
    "vit": {**SIZES, "image_size": 8, "patch_size": 4, "num_channels": 3},
    "whisper": {**PAIR, "num_mel_bins": 3, "max_source_positions": 6, "max_target_positions": 9},
    **{kind: {**SIZES, **WORDS, "type_vocab_size": 1} for kind in ("camembert", "data2vec-text", "mpnet", "roberta", "xlm-roberta")},
    **{
        kind: {**SIZES, **WORDS, "type_vocab_size": 1}
        for kind in ("camembert", "data2vec-text", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl")
    },
    **{kind: {**SIZES, **WORDS, "num_key_value_heads": 1} for kind in ("llama", "mistral", "olmo2", "phi3", "qwen2")},
    **{kind: {**SIZES, **WORDS, "num_key_value_heads": 1, "head_dim": 6} for kind in ("gemma", "gemma2", "gemma3_text")},
}


@pytest.mark.whole
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "autocast"])
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_step_of_each_architecture_waits_for_nothing(emulated_gpu, emulated_library, kind, precision, rng):
    """And may be captured, with the bits of the eager steps."""
    shape = (2, 3, 8, 8) if "image_size" in CONFIGS[kind] else {"whisper": (2, 3, 12)}.get(kind)
    written, images = rng.integers(2, 20, (2, 4)), array(rng, (2, 3, 8, 8), "float32")
    given = array(rng, shape, "float32") if shape else rng.integers(2, 20, (2, 6))
    found = []
    for is_captured in (False, True):
        tc.manual_seed(2)
        model = tc.models.create({"model_type": kind, **CONFIGS[kind]}).to(emulated_gpu).train()
        x = tc.tensor(given, device=emulated_gpu)
        if precision == "bfloat16":
            model.bfloat16()
            x = x.bfloat16() if shape else x
        optimizer = tc.optim.AdamW(model.parameters(), lr=1e-2)
        words = tc.tensor(written, device=emulated_gpu)
        more = {"decoder_ids": words} if kind in ("t5", "whisper") or CONFIGS[kind] is PAIR else {}
        if "vision_config" in CONFIGS[kind]:
            pixels = tc.tensor(images, device=emulated_gpu)
            more = {"pixels": pixels.bfloat16() if precision == "bfloat16" else pixels}

        def step(model=model, optimizer=optimizer, x=x, more=more):
            optimizer.zero_grad()
            with tc.autocast(enabled=precision == "autocast"):
                y = model(x, **more)
            loss = (y.float() ** 2).mean()
            loss.backward()
            tc.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        tc.cuda.synchronize(emulated_gpu)
        run, losses = tc.cuda.graph(step, device=emulated_gpu) if is_captured else step, []
        for i in range(4):
            counts = counted(emulated_library, lambda run=run, losses=losses: losses.append(run().clone()))
            assert (is_captured and i > 0) or counts == NOTHING
        found.append([*map(host, losses), *(host(p) for p in model.parameters())])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def with_gradient(x):
    x.grad = x.detach().clone()
    return [x]


WAITING = {
    "x[x > 0]": lambda x, i: x[x > 0],
    "x[x > 0] = y": lambda x, i: x.__setitem__(x > 0, 1.0),
    "masked_select": lambda x, i: tc.masked_select(x, x > 0),
    "nonzero": lambda x, i: tc.nonzero(x),
    "where": lambda x, i: tc.where(x > 0),
    "x[i]": lambda x, i: x[i[0]],
    "one_hot": lambda x, i: F.one_hot(i),
    "repeat_interleave": lambda x, i: tc.repeat_interleave(x[0, :2], i),
    "x[indices] = y": lambda x, i: (x.requires_grad_() * 1).__setitem__(i, x.sum()),
    "index_fill": lambda x, i: x.requires_grad_().index_fill(0, i, 1.0),
    "index_put": lambda x, i: x.index_put((i,), x[:2], accumulate=True),
    "gaussian_nll_loss": lambda x, i: F.gaussian_nll_loss(x, x, x.exp()),
    "error_if_nonfinite=True": lambda x, i: tc.nn.utils.clip_grad_norm_(with_gradient(x), 1.0, error_if_nonfinite=True),
    "GradScaler.step": lambda x, i: tc.amp.GradScaler().step(tc.optim.SGD(with_gradient(x))),
    "GradScaler.unscale_": lambda x, i: tc.amp.GradScaler().unscale_(tc.optim.SGD(with_gradient(x))),
    "bernoulli": lambda x, i: tc.bernoulli(x.sigmoid()),
    "multinomial": lambda x, i: tc.multinomial(x.exp(), 2),
    "allclose": lambda x, i: tc.allclose(x, x),
    "equal": lambda x, i: tc.equal(x, x),
}


@pytest.mark.parametrize("name", WAITING)
def test_what_the_host_reads_is_documented(emulated_gpu, emulated_library, name, rng):
    """docs/gpu/runtime.md names what waits; one that does not wait any more leaves its list."""
    x, i = tc.tensor(array(rng, (3, 4), "float32"), device=emulated_gpu), tc.tensor([1, 2], device=emulated_gpu)
    tc.cuda.synchronize(emulated_gpu)
    found = counted(emulated_library, lambda: WAITING[name](x, i))
    assert found["waits"] > 0 and found["copies to the host"] > 0
    page = (pathlib.Path(__file__).parents[2] / "docs" / "gpu" / "runtime.md").read_text()
    assert f"`{name}`" in page[page.index("Still read by the host") : page.index("`Trainer` waits once")]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64"])
@pytest.mark.parametrize("max_norm", [0.5, 3.0, 1e9])
def test_a_limit_on_the_gpu_stays_there(emulated_gpu, emulated_library, max_norm, dtype, rng):
    """With the bits of the number, and in a graph the limit of each start."""
    values, norms = array(rng, (70, 4), "float32"), []
    limit = tc.tensor([[max_norm]], dtype=dtype, device=emulated_gpu)

    def clipped(limit):
        x = tc.tensor(values, device=emulated_gpu)
        x.grad = x.clone()
        tc.cuda.synchronize(emulated_gpu)
        assert counted(emulated_library, lambda: norms.append(tc.nn.utils.clip_grad_norm_([x], limit))) == NOTHING
        return host(x.grad)

    np.testing.assert_array_equal(clipped(limit), clipped(float(limit)))
    assert float(norms[0]) == float(norms[1])


def test_a_graph_clips_by_the_limit_of_each_start(emulated_gpu):
    p = tc.ones(4, device=emulated_gpu, requires_grad=True)

    def clip(limit):
        p.grad = p.detach() * 2  # of norm 4
        tc.nn.utils.clip_grad_norm_([p], limit)
        return p.grad * 1

    step = tc.cuda.graph(clip)
    for limit in (1.0, 2.0, 3.0, 9.0):
        found = host(step(tc.full((), limit, device=emulated_gpu)))
        np.testing.assert_allclose(found, 0.5 * min(limit, 4.0), rtol=1e-5)


def test_a_limit_of_several_numbers_is_refused(emulated_gpu):
    for place in ("cpu", emulated_gpu):
        x = tc.ones(3, device=place)
        x.grad = tc.ones(3, device=place)
        with pytest.raises(ValueError, match=r"max_norm has shape \(2,\); expected one number"):
            tc.nn.utils.clip_grad_norm_([x], tc.ones(2, device=place))
        assert (host(x.grad) == 1).all()


# ---- masks -------------------------------------------------------------------------------------------------------------------------

T, CAUSAL = 5, tc.nn.Transformer.generate_square_subsequent_mask(5)
LAYER = {"d_model": 8, "nhead": 2, "dim_feedforward": 8, "dropout": 0.0, "batch_first": True}
CAUSAL_MASKS = {"bool": np.isneginf(host(CAUSAL)), "added": host(CAUSAL)}
MASKED = {  # (modules, x, masks): a causal one, of bool or added; one for each key
    "layer": lambda m, x, c, k: m["encoder"].layers[0](x, src_mask=c, src_key_padding_mask=k),
    "encoder": lambda m, x, c, k: m["encoder"](x, mask=c, src_key_padding_mask=k),
    "encoder, causal": lambda m, x, c, k: m["encoder"](x, mask=c, is_causal=True),
    "decoder": lambda m, x, c, k: m["decoder"](x, x * 2, tgt_mask=c, memory_mask=c, memory_key_padding_mask=k),
    "transformer": lambda m, x, c, k: m["transformer"](x, x, src_mask=c, tgt_mask=c, src_key_padding_mask=k),
    "attention": lambda m, x, c, k: m["attention"](x, x, x, attn_mask=c, key_padding_mask=k)[0],
    "functional": lambda m, x, c, k: F.scaled_dot_product_attention(x, x, x, attn_mask=c if c.dtype == np.float32 else ~c),
}
MASKED_ALIKE = {  # the causal mask is of bool here, or not used
    "added keys": lambda m, x, c, k: m["added"](x, x, x, key_padding_mask=k, is_causal=True)[0],
    "functional, causal": lambda m, x, c, k: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "the tutorial's": lambda m, x, c, k: m["tutorial"](x, ~c),
    "the tutorial's encoder": lambda m, x, c, k: m["block"](x, (~c).long()),
    "the tutorial's function": lambda m, x, c, k: tc.scaled_dot_product(x, x, x, mask=~c)[0],
}
MASKED_CASES = [(name, kind) for name in MASKED for kind in CAUSAL_MASKS] + [(name, "bool") for name in MASKED_ALIKE]


@pytest.mark.whole
@pytest.mark.parametrize("name, kind", MASKED_CASES)
def test_masks_are_not_read(emulated_gpu, emulated_library, name, kind, rng):
    """Values are those of the CPU, and a capture takes them."""
    tc.manual_seed(3)
    modules = {
        "encoder": tc.nn.TransformerEncoder(tc.nn.TransformerEncoderLayer(**LAYER), 2),
        "decoder": tc.nn.TransformerDecoder(tc.nn.TransformerDecoderLayer(**LAYER), 1),
        "transformer": tc.nn.Transformer(8, 2, 1, 1, 8, dropout=0.0, batch_first=True),
        "attention": tc.nn.MultiheadAttention(8, 2, batch_first=True),
        "added": tc.nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True),
        "tutorial": tc.MultiheadAttention(8, 8, 2),
        "block": tc.EncoderBlock(8, 2, 8),
    }
    x, padding = rng.standard_normal((2, T, 8), np.float32), np.arange(T) >= np.array([[T], [3]])
    found = []
    for place in ("cpu", emulated_gpu):
        on_device = {kind: module.to(place) for kind, module in modules.items()}
        given = [tc.tensor(a, device=place) for a in (x, CAUSAL_MASKS[kind], padding)]
        call = lambda *given, on=on_device: (MASKED | MASKED_ALIKE)[name](on, *given)
        if place != "cpu":
            tc.cuda.synchronize(place)
            results = []
            assert counted(emulated_library, lambda: results.append(call(*given))) == NOTHING
            captured = tc.cuda.graph(call)
            results += [captured(*given) for _ in range(3)]
            for y in results[1:]:
                np.testing.assert_array_equal(host(y), host(results[0]))
        found.append(host(call(*given)))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-5)


# ---- late errors -------------------------------------------------------------------------------------------------------------------

BAD = {
    "embedding": (lambda i, x: F.embedding(i, x), r"index 7 \(element 3 of indices, shape \(2, 2\)\) .* has 5 rows"),
    "cross_entropy": (lambda i, x: F.cross_entropy(x[:4], i.reshape(-1)), r"target\[3\] \(flattened\) is 7, but there are 5 classes"),
    "nll_loss": (lambda i, x: F.nll_loss(x[:4], i.reshape(-1)), r"target\[3\] .* is 7, but there are 5 classes"),
    "one_hot": (lambda i, x: F.one_hot(i, 5), "x has 7 as its element 3 but num_classes is 5; expected 0 to 4"),
    "negative": (lambda i, x: F.one_hot(i - 9, 5), "x has -9 as its element 0; classes are not negative"),
    "gather": (lambda i, x: x.gather(1, i), r"index 7 \(element 3 of index, shape \(2, 2\)\) is out of range for axis 1 of length 5"),
    "scatter": (lambda i, x: x.scatter(1, i, x[:2, :2]), r"index 7 \(element 3 of index"),
    "brackets": (lambda i, x: x[:, i], "index 7 is out of range for axis 1 of length 5"),
    "negative brackets": (lambda i, x: x[i - 8], "index -8 is out of range for axis 0 of length 5"),
    "a write": (lambda i, x: (x.__setitem__(i, 1.0), x)[1], "index 7 is out of range for axis 0 of length 5"),
    "a probability": (lambda i, x: F.binary_cross_entropy(x + 1.5, x), "input has a value of 1.5 but must hold probabilities, from 0 to 1"),
    "a negative probability": (lambda i, x: F.binary_cross_entropy(x - 0.25, x), "input has a value of -0.25 but must"),
}  # fmt: skip


def bad(gpu):
    return tc.tensor([[0, 1], [2, 7]], device=gpu), tc.zeros(5, 5, device=gpu)


@pytest.mark.parametrize("name", BAD)
def test_checks_of_indices_wait_for_nothing(emulated_gpu, emulated_library, name):
    call, _ = BAD[name]
    arguments = bad(emulated_gpu)
    assert counted(emulated_library, lambda: call(*arguments)) == NOTHING
    with pytest.raises(RuntimeError):
        tc.cuda.synchronize(emulated_gpu)


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("read", ["copy", "synchronize", "another tensor"])
def test_an_index_out_of_range_is_told_by_the_next_wait(emulated_gpu, name, read):
    call, message = BAD[name]
    arguments, fine = bad(emulated_gpu), tc.ones(3, device=emulated_gpu)
    results = [call(*arguments)]
    waits = {
        "copy": lambda: results[0].cpu(),
        "synchronize": lambda: tc.cuda.synchronize(emulated_gpu),
        "another tensor": lambda: (tc.cuda.synchronize(emulated_gpu), fine.tolist()),
    }
    with pytest.raises(RuntimeError, match=f"{message}.*in an earlier call on {emulated_gpu}"):
        waits[read]()
    waits[read]()  # told once
    assert host(F.embedding(arguments[0] % 5, arguments[1])).shape == (2, 2, 5)


OUTSIDE = {  # what each leaves: 2 where a place is in range, and 0 where an index out of range was read
    "gather": (lambda i, x, y: x.gather(1, i), [[3, 3], [3, 0]]),
    "scatter": (lambda i, x, y: x.scatter(1, i, y), [[2, 2, 3, 3], [3, 3, 2, 3], [3] * 4]),
    "scatter, added": (lambda i, x, y: x.scatter(1, i, y, reduce="add"), [[5, 5, 3, 3], [3, 3, 5, 3], [3] * 4]),
    "scatter, multiplied": (lambda i, x, y: x.scatter(1, i, y, reduce="multiply"), [[6, 6, 3, 3], [3, 3, 6, 3], [3] * 4]),
    "columns": (lambda i, x, y: x[1, i], [[3, 3], [3, 0]]),
    "embedding": (lambda i, x, y: F.embedding(i, x.T.contiguous()), [[[3] * 3] * 2, [[3] * 3, [0] * 3]]),
    "a write": (lambda i, x, y: (x.__setitem__((1, i), y), x)[1], [[3] * 4, [2, 2, 2, 3], [3] * 4]),
}


@pytest.mark.parametrize("outside", [4, 5, -5, -6])
@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_out_of_range_reads_zeros_and_is_written_nowhere(emulated_gpu, name, outside):
    """Not to the row before or after, where the place would be."""
    call, expected = OUTSIDE[name]
    indices = tc.tensor([[0, 1], [2, outside]], device=emulated_gpu)
    x, y = tc.full((3, 4), 3.0, device=emulated_gpu), tc.full((2, 2), 2.0, device=emulated_gpu)
    result = call(indices, x, y)
    with pytest.raises(RuntimeError, match=f"{outside}"):
        tc.cuda.synchronize(emulated_gpu)
    assert host(result).tolist() == expected


EXPRESSIONS = {
    "rows": lambda i, j: np.s_[i],
    "negative": lambda i, j: np.s_[i - 3],
    "columns": lambda i, j: np.s_[:, i],
    "pairs": lambda i, j: np.s_[i, j],
    "broadcast": lambda i, j: np.s_[i[:, None], j],
    "with a step": lambda i, j: np.s_[::-2, j, 1:],
    "apart": lambda i, j: np.s_[i, :, j],
    "new axis": lambda i, j: np.s_[None, i, ..., 1],
    "with a list": lambda i, j: np.s_[i, [0, 1, 0, 2]],
    "none": lambda i, j: np.s_[i[:0]],
    "of none": lambda i, j: np.s_[:, :0][0],
}


@pytest.mark.parametrize("kind", ["int64", "int32", "uint8"])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_indices_on_the_gpu_are_not_read(emulated_gpu, emulated_library, name, kind, rng):
    """Values, writes and gradients are those of the CPU."""
    if kind == "uint8" and name == "negative":
        kind = "int64"
    x, i, j = array(rng, (3, 4, 5), "float32"), np.array([2, 0, 1, 1], kind), np.array([1, 3, 3, 0], kind)
    expected = {}
    for place in ("cpu", emulated_gpu):
        t = tc.tensor(x, device=place, requires_grad=True)
        index = EXPRESSIONS[name](tc.tensor(i, device=place), tc.tensor(j, device=place))
        found, copies = [], 1 if name == "with a list" else 0
        view = t.transpose(0, 1).contiguous().transpose(0, 1)  # its strides are others than those of its gradient
        assert counted(emulated_library, lambda t=t, view=view, index=index: found.extend([t[index], view[index]])) == NOTHING | {
            "copies from the host": 2 * copies if place != "cpu" else 0
        }
        (found[0] * found[0]).sum().backward()
        (found[1] * found[1]).sum().backward()
        target = t.detach().clone()
        written = found[0].detach() * 2
        counts = counted(emulated_library, lambda target=target, index=index, written=written: target.__setitem__(index, written))
        assert counts["waits"] == 0
        recorded, value = t.detach().requires_grad_(), (written * 1).requires_grad_()
        mixed = recorded * 2
        mixed[index] = value
        (mixed * mixed).sum().backward()
        results = [host(r) for r in (*found, t.grad, target, mixed, recorded.grad, value.grad)]
        for one, other in zip(results, expected.setdefault("of the CPU", results), strict=True):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(expected["of the CPU"][0], x[EXPRESSIONS[name](i, j)])


def test_a_graph_selects_by_indices(emulated_gpu, rng):
    x = tc.tensor(array(rng, (5, 3), "float32"), device=emulated_gpu)
    step = tc.cuda.graph(lambda i: x[i] * 2)
    for _ in range(4):
        i = rng.integers(-5, 5, 4)
        np.testing.assert_array_equal(host(step(tc.tensor(i, device=emulated_gpu))), 2 * host(x)[i])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
def test_one_number_is_written_without_a_copy(emulated_gpu, emulated_library, dtype):
    """Whole words of 16 bytes, a part of one, and strided elements."""
    for shape in [(), (1,), (3,), (16,), (33, 2), (0, 4)]:
        x = tc.empty(*shape, dtype=dtype, device=emulated_gpu)
        assert counted(emulated_library, lambda x=x: x.fill_(3)) == NOTHING
        np.testing.assert_array_equal(host(x), np.full(shape, 3).astype(host(x).dtype))
    x = tc.zeros(6, 5, 4, dtype=dtype, device=emulated_gpu)
    expected = np.zeros((6, 5, 4)).astype(host(x).dtype)
    for window in [np.s_[1], np.s_[:, ::2], np.s_[2:, 1:3, 3], np.s_[::-3, :, 1:2]]:
        emulated_library.launches()
        assert counted(emulated_library, lambda w=window: x.__setitem__(w, 1)) == NOTHING
        assert "fill_kernel" in "".join(emulated_library.launches())
        expected[window] = 1
        np.testing.assert_array_equal(host(x), expected)


def test_a_bad_class_leaves_no_gradient_elsewhere(emulated_gpu):
    """Kernels take it for a row that does not count."""
    x = tc.zeros(2, 5, device=emulated_gpu, requires_grad=True)
    F.cross_entropy(x, tc.tensor([1, 9], device=emulated_gpu)).backward()
    with pytest.raises(RuntimeError, match=r"target\[1\]"):
        tc.cuda.synchronize(emulated_gpu)
    np.testing.assert_array_equal(host(x.grad)[1], 0)


def test_the_first_of_several_errors_is_told_and_the_next(emulated_gpu):
    table = tc.zeros(5, 2, device=emulated_gpu)
    for index in (1, 6, 2, 9):
        F.embedding(tc.tensor([index], device=emulated_gpu), table)
    F.cross_entropy(tc.zeros(1, 3, device=emulated_gpu), tc.tensor([4], device=emulated_gpu))
    with pytest.raises(RuntimeError, match=r"^index 6 .*\(in an earlier call .* is wrong; 2 more since, the next: index 9 .*\)$"):
        tc.cuda.synchronize(emulated_gpu)
    tc.cuda.synchronize(emulated_gpu)


def test_the_order_of_errors_is_that_of_their_calls(emulated_gpu):
    """Also where places are used again, and the later call has the earlier place."""
    table, good = tc.zeros(5, 2, device=emulated_gpu), tc.tensor([1], device=emulated_gpu)
    for _ in range(2):
        for index in (7, 8, 9):
            F.embedding(tc.tensor([index], device=emulated_gpu), table)
            for _ in range(60):
                F.embedding(good, table)
        with pytest.raises(RuntimeError, match="^index 7 .*; 2 more since, the next: index 8 "):
            tc.cuda.synchronize(emulated_gpu)


def test_a_late_error_ends_no_loop(emulated_gpu):
    """Python takes an IndexError of __getitem__ for the end, and goes on."""
    x = tc.arange(3, device=emulated_gpu)

    class Numbers:
        def __getitem__(self, i):
            if i == 3:
                raise IndexError
            return int(x[i])

    F.embedding(tc.tensor([8], device=emulated_gpu), tc.zeros(5, 2, device=emulated_gpu))
    with pytest.raises(RuntimeError, match="^index 8 .*in an earlier call"):
        list(Numbers())
    assert list(Numbers()) == [0, 1, 2]


def test_an_error_of_long_ago_is_told_without_its_call(emulated_gpu):
    table, good = tc.zeros(5, 2, device=emulated_gpu), tc.tensor([1], device=emulated_gpu)
    F.embedding(tc.tensor([8], device=emulated_gpu), table)
    for _ in range(256):
        F.embedding(good, table)
    with pytest.raises(RuntimeError, match=rf"^index 8 \(element 0 of the indices\), or .* \(in an earlier call on {emulated_gpu}"):
        tc.cuda.synchronize(emulated_gpu)


@pytest.mark.parametrize("name", ["embedding", "cross_entropy", "brackets", "a probability"])
def test_an_error_of_a_start_is_described_for_as_long_as_its_graph_is_there(emulated_gpu, name):
    call, message = BAD[name]
    others, (indices, x) = tc.tensor([1], device=emulated_gpu), bad(emulated_gpu)
    step = tc.cuda.graph(call)
    for _ in range(2):
        step(indices * 0, x)  # probabilities are bad at once
        if name == "a probability":
            with pytest.raises(RuntimeError):
                tc.cuda.synchronize(emulated_gpu)
    for _ in range(2):
        for _ in range(300):
            F.embedding(others, x)
        step(indices, x)
        with pytest.raises(RuntimeError, match=f"^{message}.*in an earlier call on {emulated_gpu}"):
            tc.cuda.synchronize(emulated_gpu)
    step(indices, x)
    step = None
    gc.collect()
    with pytest.raises(RuntimeError, match="in an earlier call"):
        tc.cuda.synchronize(emulated_gpu)


def test_an_error_of_another_thread_is_told(emulated_gpu):
    table = tc.zeros(5, 2, device=emulated_gpu)
    indices = tc.tensor([5], device=emulated_gpu)
    thread = threading.Thread(target=lambda: F.embedding(indices, table))
    thread.start()
    thread.join()
    with pytest.raises(RuntimeError, match="index 5 "):
        tc.cuda.synchronize(emulated_gpu)


def test_without_page_locked_memory_the_check_waits(emulated_gpu, emulated_library):
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import cuda_library
emulated = cuda_library.EmulatedLibrary(sys.argv[2])
emulated.library.emulator_refuse_host_memory(1)
import transformer_c as tc
table = tc.zeros(5, 2, device="cuda:emulated")
try:
    tc.functional.embedding(tc.tensor([6], device="cuda:emulated"), table)
except IndexError as error:
    print(error)
"""  # a process of its own: here there is a board of alarms
    done = subprocess.run(
        [sys.executable, "-c", program, os.path.dirname(__file__), emulated_library.library._name],
        env={**os.environ, "TRANSFORMER_C_CUDA_LIBRARY": emulated_library.library._name}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "index 6 (element 0 of indices, shape (1,)) is outside the table, which has 5 rows\n", done.stderr


def test_classes_that_count_are_weighed_on_the_device(emulated_gpu, rng):
    """The divisor of the mean, for more rows than the kernel has threads."""
    x, target = array(rng, (700, 5), "float32"), rng.integers(0, 5, 700)
    target[::3] = -100
    weight = array(rng, 5, "float32")
    found = []
    for place in ("cpu", emulated_gpu):
        logits = tc.tensor(x, device=place, requires_grad=True)
        loss = F.cross_entropy(logits, tc.tensor(target, device=place), weight=tc.tensor(weight, device=place))
        loss.backward()
        found.append((host(loss), host(logits.grad)))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-5)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-4, atol=1e-8)
