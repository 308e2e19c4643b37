"""Decoders: a token sees none after it, what is kept in a cache changes no bit, and the choice of tokens is transformers'."""

import json

import numpy as np
import pytest
import transformer_c as tc
from folders import DECODER, decoder_folder, sentence_folder, sizes
from golden import models
from transformer_c.models.architectures import ARCHITECTURES
from transformer_c.models.decoder import TextDecoder
from transformer_c.models.sampling import Sampling
from words import LETTERS

LENGTHS = np.array([9, 4, 1])
IDS = np.random.default_rng(0).integers(0, 60, (3, 9))


KINDS = {  # and what is special of each
    "gemma": {"num_key_value_heads": 1, "head_dim": 6},
    "gemma2": {"head_dim": 6, "sliding_window": 3, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "gemma3_text": {
        **{"num_key_value_heads": 1, "head_dim": 6, "sliding_window": 3, "sliding_window_pattern": 2, "query_pre_attn_scalar": 10},
        **{"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "tie_word_embeddings": False},
    },
    "gpt2": {},
    "gpt_neox": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 6}},
    "llama": {"num_key_value_heads": 1, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 6}},
    "mistral": {"num_key_value_heads": 1, "sliding_window": 3},
    "olmo2": {"num_key_value_heads": 1},
    "phi3": {
        **{"num_key_value_heads": 1, "sliding_window": 3, "partial_rotary_factor": 0.25, "original_max_position_embeddings": 40},
        **{"rope_scaling": {"type": "longrope", "short_factor": [1.0, 2.5], "long_factor": [4.0, 9.0], "factor": 32.0}},
    },
    "qwen2": {
        "num_key_value_heads": 2,
        "use_sliding_window": True,
        "sliding_window": 3,
        "max_window_layers": 1,
        "tie_word_embeddings": True,
    },
    "qwen3": {"num_key_value_heads": 1, "head_dim": 6},
}


def create(task="text-generation", dtype="float32", **values):
    tc.manual_seed(1)
    return tc.models.create({**DECODER, **values}, task=task).to(dtype=dtype)


LEFT_OUT = object()


def of_kind(kind, **options):
    values = sizes(width=32, heads=2, hidden=48, layers=2, words=60, positions=40)
    values = {**values, **KINDS[kind], **options}
    return create(model_type=kind, **{name: value for name, value in values.items() if value is not LEFT_OUT})


def test_every_decoder_is_tested():
    assert set(KINDS) == {name for name, kind in ARCHITECTURES.items() if issubclass(kind, TextDecoder)}


class Letters:
    """A tokenizer whose tokens are the letters; the token after them ends a text."""

    def __call__(self, texts):
        return [(np.array([LETTERS.index(c) for c in text], int), np.zeros(len(text), int)) for text in texts]

    def decode(self, ids):
        return "".join(LETTERS[i] if i < 26 else "" for i in ids)


def writer(**values):
    return tc.models.TextGenerator(create(vocab_size=27, eos_token_id=26, **values), Letters())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_no_token_sees_those_after_it(dtype, kind):
    model, other = of_kind(kind, task=None, dtype=dtype), IDS.copy()
    other[:, 5:] = (other[:, 5:] + 1) % 60
    assert np.array_equal(model(IDS)[:, :5], model(other)[:, :5])
    assert not np.array_equal(model(IDS)[:, 5:], model(other)[:, 5:])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", [[9], [1] * 9, [4, 5], [2, 1, 6]])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_text_read_in_parts(dtype, parts, kind):
    """Has the scores of the whole, to the last bit, whatever the lengths of the others."""
    model, cache = of_kind(kind, dtype=dtype), tc.models.Cache()
    expected, begin = model(IDS, lengths=LENGTHS), 0
    for part in parts:
        end, lengths = begin + part, np.clip(LENGTHS - begin, 0, part)
        found = model(IDS[:, begin:end], lengths=lengths, cache=cache)
        for row, length in zip(range(3), lengths, strict=True):
            assert np.array_equal(found[row, :length], expected[row, begin : begin + length])
            assert not found[row, length:].any()
        begin = end
        assert cache.lengths.tolist() == np.minimum(LENGTHS, end).tolist()


def test_scores_after_the_last_token():
    """Wherever a text is padded."""
    mask = np.array([[0, 0, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]])
    model, ids = create(), IDS[[0, 1, 2, 0], :4]
    found, expected = model(ids, mask, last=True), model(ids, mask)
    assert found.shape == (4, 1, 60) and not found[3].any() and found[:3].any(2).all()
    assert np.array_equal(found[:3, 0], expected[range(3), [3, 1, 2]])
    ends = np.arange(9) < LENGTHS[:, None]
    expected = model(IDS, ends)[range(3), LENGTHS - 1]
    for arguments in ({"mask": ends}, {"lengths": LENGTHS}):
        assert np.array_equal(model(IDS, last=True, **arguments)[:, 0], expected)


class Last(tc.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        return self.model(ids, mask, last=True)


@pytest.mark.parametrize("kind", KINDS)
def test_export(kind, tmp_path):
    """Other batches and lengths than those of the example, longer than a window; all scores, and the last."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model, ends, path = of_kind(kind), (np.arange(9) < LENGTHS[:, None]).astype(np.int64), str(tmp_path / "model.onnx")
    for module, real in ((model, ends != 0), (Last(model), ...)):
        tc.export_onnx(module, {"ids": IDS[:2, :6], "mask": ends[:2, :6]}, path)
        (found,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"ids": IDS, "mask": ends})
        expected = module(IDS, ends)
        np.testing.assert_allclose(found[real], expected[real], rtol=0, atol=2e-5 * np.abs(expected).max())


def test_a_cache_is_selected_and_truncated():
    model, cache = create(), tc.models.Cache()
    model(IDS, lengths=LENGTHS, cache=cache)
    cache.select([2, 0])
    assert cache.lengths.tolist() == [1, 9]
    new = np.array([[7], [8]])
    for row, text, found in zip((2, 0), ([*IDS[2, :1], 7], [*IDS[0], 8]), model(new, cache=cache), strict=True):
        assert np.array_equal(found[0], model([text])[0, -1]), row
    cache.truncate([1, 5])
    assert np.array_equal(model(new, cache=cache)[1, 0], model([[*IDS[0, :5], 8]])[0, -1])
    assert repr(cache) == "Cache(lengths=[2, 6])" and repr(tc.models.Cache()) == "Cache(lengths=None)"


def test_a_call_that_fails_leaves_the_cache_as_it_was():
    model, cache = create(), tc.models.Cache()
    model(IDS, lengths=LENGTHS, cache=cache)
    expected = model([[3]] * 3, cache=cache)
    cache.truncate(LENGTHS)

    def fail(*_):
        raise RuntimeError("of the hook")

    handle = model.encoder.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="of the hook"):
        model([[5]] * 3, cache=cache)
    handle.remove()
    first, handle = tc.models.Cache(), model.encoder.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="of the hook"):
        model(IDS, cache=first)
    handle.remove()
    assert first.lengths is None and np.array_equal(model(IDS[:2], cache=first), model(IDS[:2]))
    for message, call in (
        (r"the cache has 3 texts, but ids have 2", lambda: model(IDS[:2], cache=cache)),
        (
            r"texts would have 49 tokens, 9 of them in the cache; this model takes at most 40",
            lambda: model(np.ones((3, 40), int), cache=cache),
        ),
        (r"lengths are \[10, 0, 0\]; the texts have \[9, 4, 1\] tokens", lambda: cache.truncate([10, 0, 0])),
        (r"lengths must be integers, one for each text", lambda: cache.truncate([1, 2])),
        (r"no texts before the first call", lambda: tc.models.Cache().select([])),
        (r"only be padded at their ends", lambda: model(IDS, mask=np.eye(3, 9), cache=cache)),
        (r"`with tc.no_grad\(\):`", lambda: model(tc.tensor(IDS), cache=cache)),
        (r"token_types were given, but GPT-2", lambda: model(IDS, token_types=IDS)),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="must be a tc.models.Cache, not list"):
        model(IDS, cache=[])
    with pytest.raises(IndexError):
        model([[60]] * 3, cache=cache)
    assert cache.lengths.tolist() == LENGTHS.tolist()
    assert np.array_equal(model([[3]] * 3, cache=cache), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_as_transformers_chooses_them(kind):
    options, arrays = models()[kind]
    state = {key.removeprefix("state.").removeprefix("head.text-generation."): value for key, value in arrays.items()}
    state = {key: value for key, value in state.items() if key.endswith((".weight", ".bias"))}
    model = tc.convert.from_hf(state, options["config"], task="text-generation", dtype="float64")
    for name, penalty in (("generated", 1.0), ("penalised", 1.7)):
        expected = arrays[name]
        assert np.array_equal(model.generate(arrays["ids"][:1], 7, repetition_penalty=penalty), expected)
    assert kind != "gpt2" or expected[0, -1] == options["config"]["eos_token_id"]
    assert not np.array_equal(arrays["generated"], arrays["penalised"])


@pytest.mark.parametrize("options", [{}, {"do_sample": True, "rng": 3}, {"repetition_penalty": 1.3}])
def test_a_text_is_continued_alone_as_among_others(options):
    """The first one where tokens are drawn; all where they are not. Texts end at different steps."""
    ends = create().generate(IDS[1:2, :4], 12)[0, -2:].tolist()
    model = create(eos_token_id=ends)
    together = model.generate(IDS, 20, lengths=LENGTHS, **options)
    ended = [row[length:].tolist() for row, length in zip(together, LENGTHS, strict=True)]
    assert len({next((i for i, token in enumerate(row) if token in ends), 20) for row in ended}) > 1
    for i in range(1 if "rng" in options else 3):
        alone = model.generate(IDS[i : i + 1, : LENGTHS[i]], 20, **options)[0]
        assert np.array_equal(together[i, : len(alone)], alone) and (together[i, len(alone) :] == ends[0]).all()
    assert np.array_equal(together, model.generate(tc.tensor(IDS), 20, lengths=LENGTHS, **options))


def reference(scores, temperature, top_k, top_p):
    """The probabilities of tokens, one by one."""
    odds = np.exp((scores - scores.max()) / temperature)
    if top_k:
        odds[odds < np.sort(odds)[-min(top_k, len(odds))]] = 0
    odds /= odds.sum()
    kept, total = np.zeros_like(odds), 0.0
    for i in np.argsort(-odds, kind="stable"):
        if total >= top_p:
            break
        kept[i], total = odds[i], total + odds[i]
    return kept / kept.sum()


@pytest.mark.parametrize("top_p", [0.05, 0.6, 1.0])
@pytest.mark.parametrize("top_k", [0, 1, 5, 500])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_tokens_are_drawn_by_their_probabilities(temperature, top_k, top_p):
    scores = np.random.default_rng(4).standard_normal(40)
    sampling = Sampling(do_sample=True, temperature=temperature, top_k=top_k, top_p=top_p)
    drawn = [sampling.choose(scores, (i + 0.5) / 1000) for i in range(1000)]
    expected = reference(scores, temperature, top_k, top_p)
    np.testing.assert_allclose(np.bincount(drawn, minlength=40) / 1000, expected, atol=1.1e-3)
    assert Sampling().choose(scores, 0.5) == scores.argmax()


def test_equal_scores_and_the_ends_of_the_random_numbers():
    sampling = Sampling(do_sample=True, top_k=2)
    assert [sampling.choose(np.ones(4), u) for u in (0.0, 0.3, 0.6, 1 - 2**-53)] == [0, 1, 2, 3]


def test_seeds():
    generator = writer()
    draw = {"do_sample": True, "max_new_tokens": 12}
    found = [generator.generate("abc", rng=seed, **draw) for seed in range(5)]
    assert len(set(found)) > 2 and found[3] == generator.generate("abc", rng=3, **draw)
    tc.manual_seed(8)
    first = generator.generate("abc", **draw)
    tc.manual_seed(8)
    assert generator.generate("abc", **draw) == first
    assert generator.generate("abc", max_new_tokens=12, rng=1) == generator.generate("abc", max_new_tokens=12)


@pytest.mark.parametrize("make", [lambda: 3, lambda: np.random.default_rng(3), lambda: tc.Generator(3)])
def test_each_text_is_drawn_by_itself(make):
    """Also those of different batches, whose size changes nothing."""
    generator = writer()
    found = [
        generator.generate(["abc"] * 6, do_sample=True, max_new_tokens=12, batch_size=size, rng=make(), return_full_text=False)
        for size in (1, 2, 6)
    ]
    assert len(set(found[0])) == 6 and found[0] == found[1] == found[2]


def test_texts():
    generator = writer()
    texts = ["abc", "z", "transformers", "q"]
    found = generator.generate(texts, max_new_tokens=8, batch_size=3)
    assert found == [generator.generate(text, max_new_tokens=8) for text in texts] and all(map(str.startswith, found, texts))
    assert generator.generate(texts, max_new_tokens=8, return_full_text=False) == [
        new[len(t) :] for new, t in zip(found, texts, strict=True)
    ]
    assert "".join(generator.stream("abc", max_new_tokens=8)) == found[0][3:]
    assert generator.generate([]) == [] and generator.model.generate(IDS[:0]).shape == (0, 0)
    assert generator.model.training is False and repr(generator).startswith("TextGenerator(GPT2, do_sample=False, temperature=1.0")


def test_the_end_of_a_text():
    """Nothing after it is computed; it is written, as it is no special token."""
    free = tc.models.TextGenerator(writer().model, Letters(), eos_token_id=[])
    whole = free.generate("abc", max_new_tokens=20, return_full_text=False)
    end = whole[7]
    model = free.model
    seen = []
    model.encoder.words.register_forward_hook(lambda layer, inputs, result: seen.append(inputs[0].shape[0]))
    generator = tc.models.TextGenerator(model, Letters(), eos_token_id=LETTERS.index(end))
    before = whole[: whole.index(end) + 1]
    assert generator.generate("abc", max_new_tokens=20, return_full_text=False) == before and seen == [1] * len(before)
    seen.clear()
    assert generator.generate(["abc", "q"], max_new_tokens=20, return_full_text=False)[0] == before
    assert seen == [1, *[2] * (len(before) - 1), *[1] * (20 - len(before))]  # the first call packs texts of two lengths


def test_a_text_without_tokens_begins_with_that_which_begins_texts():
    assert writer(bos_token_id=3).generate("", max_new_tokens=4) == writer().generate("d", max_new_tokens=4, return_full_text=False)
    with pytest.raises(ValueError, match="text number 0 has no tokens"):
        writer().generate("", max_new_tokens=4)


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (TypeError, "texts must be a sequence of str, not int", {"texts": 3}),
        (TypeError, r"number 1 is 3 \(int\)", {"texts": ["a", 3]}),
        (ValueError, "half of a pair of surrogates", {"texts": "\ud800"}),
        (
            ValueError,
            "text number 1 has 3 tokens, and max_new_tokens is 38; the model takes at most 40 together",
            {"texts": ["a", "abc"], "max_new_tokens": 38},
        ),
        (
            ValueError,
            "text number 2 has 39 tokens, and max_new_tokens is 5",
            {"texts": ["a", "abc", "a" * 39], "max_new_tokens": 5, "batch_size": 2},
        ),
        (ValueError, "text number 3 has no tokens", {"texts": ["a", "abc", "a", ""], "max_new_tokens": 5, "batch_size": 2}),
        (ValueError, "max_new_tokens must be at least 1, got 0", {"max_new_tokens": 0}),
        (ValueError, "text number 0 has 3 tokens, and max_new_tokens is 10{15}; the model takes", {"max_new_tokens": 10**15}),
        (ValueError, "temperature is for drawing tokens, and changes nothing without do_sample=True", {"temperature": 0.5}),
        (ValueError, "top_p must be above 0 and at most 1, got 1.5", {"do_sample": True, "top_p": 1.5}),
        (ValueError, "temperature must be above 0, and finite, got 0.0; .* do_sample=False", {"do_sample": True, "temperature": 0.0}),
        (ValueError, "temperature must be above 0, and finite, got nan", {"do_sample": True, "temperature": float("nan")}),
        (TypeError, "top_k must be an int, got 2.5", {"do_sample": True, "top_k": 2.5}),
        (TypeError, "do_sample must be True or False, got 'yes'", {"do_sample": "yes"}),
        (TypeError, "rng must be an int", {"do_sample": True, "rng": "x", "max_new_tokens": 3}),
        (ValueError, "batch_size must be at least 1", {"batch_size": 0}),
        (TypeError, "generate\\(\\) has no option 'max_length': max_new_tokens=, which counts", {"max_length": 20}),
        (TypeError, "has no option 'seed': rng=", {"seed": 0}),
        (ValueError, "num_beams must be at least 1, got 0", {"num_beams": 0}),
        (ValueError, "num_beams must be at most 1000, got 1000000000000", {"num_beams": 10**12}),
        (ValueError, "do_sample=True needs num_beams=1, got 4", {"num_beams": 4, "do_sample": True}),
        (ValueError, "length_penalty is for beams, and changes nothing with num_beams = 1", {"length_penalty": 2.0}),
        (ValueError, "length_penalty must be from -10 to 10, got 1e\\+300", {"num_beams": 2, "length_penalty": 1e300}),
        (TypeError, "early_stopping must be True, False or 'never', got 'now'", {"num_beams": 2, "early_stopping": "now"}),
        (TypeError, "no_repeat_ngram_size must be an int, got 'x'", {"no_repeat_ngram_size": "x"}),
    ],
)
def test_refusals(error, message, arguments):
    with pytest.raises(error, match=message):
        writer().generate(**{"texts": "abc", **arguments})


def test_what_a_generator_is_made_of():
    for message, arguments in (
        ("TextGenerator.from_pretrained\\('gpt2'\\) reads a folder", ("gpt2", Letters())),
        ('as tc.models.load\\(folder, task="text-generation"\\) gives, not GPT2', (create(None), Letters())),
        ("needs a tokenizer with decode", (create(), lambda texts: texts)),
        ("text must be a str, or one chat, got \\['a'\\]", None),
    ):
        with pytest.raises(TypeError, match=message):
            tc.models.TextGenerator(*arguments) if arguments else writer().stream(["a"])
    with pytest.raises(AttributeError, match=r"use generator.generate\(texts\)"):
        writer().predict("a")
    with pytest.raises(TypeError, match="stream\\(\\) has no option 'return_full_text': the pieces are those"):
        writer().stream("a", return_full_text=True)
    plain = writer().generate("a", max_new_tokens=3)
    assert writer().generate("a", max_new_tokens=3, num_beams=1, num_return_sequences=1, use_cache=True) == plain


def test_a_tokenizer_of_another_folder():
    generator = tc.models.TextGenerator(create(vocab_size=9), Letters())
    for call in (lambda: generator.generate(["a", "z"], max_new_tokens=3), lambda: generator.stream("z", max_new_tokens=3)):
        with pytest.raises(
            ValueError, match="the tokenizer gives the number 25, but the model has embeddings of 9 tokens; are they of one folder"
        ):
            call()


def test_damaged_weights():
    generator = writer()
    generator.model.encoder.norm.weight.data[0] = np.nan
    with pytest.raises(ValueError, match="the model gives nan for text number 0: its weights are damaged"):
        generator.generate("abc", max_new_tokens=3)
    generator = writer(tie_word_embeddings=False)
    generator.model.encoder.words.weight.data[LETTERS.index("q")] = np.nan
    with pytest.raises(ValueError, match="the model gives nan for text number 2: its"):
        generator.generate(["abc", "d", "q"], max_new_tokens=3, batch_size=2)


def test_training():
    """A decoder learns to count; the gradient reaches the table of words from both its uses."""
    model = create(n_layer=1, initializer_range=0.02)
    optimizer = tc.optim.AdamW(model.parameters(), lr=1e-2)
    rng = np.random.default_rng(0)
    for _ in range(60):
        ids = tc.tensor((rng.integers(0, 60, (16, 1)) + np.arange(12)) % 60)
        loss = tc.functional.cross_entropy(model(ids[:, :-1]).reshape(-1, 60), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    assert model.generate([[5, 6, 7]], 5, eos_token_id=[]).tolist() == [[*range(5, 13)]]


def test_older_files(tmp_path):
    """Have masks that are no weights, and no prefix; n_inner is null."""
    model = create(None, n_inner=None)
    tc.models.save(model, tmp_path)
    state = dict(tc.load(tmp_path / "model.safetensors"))
    assert state["h.1.attn.c_attn.weight"].shape == (32, 96)
    state |= {"h.0.attn.bias": np.ones((1, 1, 40, 40), np.float32), "h.1.attn.masked_bias": np.array(-1e4, np.float32)}
    tc.save(state, tmp_path / "model.safetensors")
    expected = model(IDS)
    assert np.array_equal(tc.models.load(tmp_path)(IDS), expected)
    assert np.array_equal(tc.models.load(tmp_path, task="text-generation").encoder(IDS), expected)
    with pytest.raises(tc.CheckpointError, match="n_inner = None; expected the second size of 'h.0.mlp.c_fc.weight'"):
        tc.convert.from_hf(tc.convert.to_hf(create(None)), {**DECODER, "n_inner": None})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scale_attn_weights", False),
        ("scale_attn_by_inverse_layer_idx", True),
        ("add_cross_attention", True),
        ("activation_function", "x"),
        ("n_head", 3),
        ("eos_token_id", "x"),
        ("eos_token_id", [2, None]),
    ],
)
def test_what_is_not_computed_is_refused(name, value):
    with pytest.raises(tc.CheckpointError, match=name):
        create(**{name: value})


@pytest.mark.parametrize(
    ("kind", "message", "values"),
    [
        ("llama", "rope_scaling", {"rope_scaling": {"rope_type": "ntk", "factor": 8.0}}),
        ("mistral", "rope_parameters", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}),
        ("llama", "num_attention_heads = 2, which is no multiple of num_key_value_heads = 3", {"num_key_value_heads": 3}),
        ("llama", "hidden_size = 32, which is no multiple of num_attention_heads = 3", {"num_attention_heads": 3}),
        ("llama", "heads of size 1; rotary positions need an even number", {"num_attention_heads": 32}),
        ("llama", "pretraining_tp", {"pretraining_tp": 2}),
        ("qwen2", "layer_types", {"layer_types": ["full_attention"]}),
        ("qwen2", "sliding_window", {"sliding_window": 0}),
        ("mistral", "layer_types", {"layer_types": ["full_attention", "sliding_attention"]}),
        ("qwen3", "head_dim", {"head_dim": "large"}),
        ("gemma", "use_bidirectional_attention = True", {"use_bidirectional_attention": True}),
        ("gemma2", "attn_logit_softcapping = 0; expected a number above 0", {"attn_logit_softcapping": 0}),
        ("gemma2", "final_logit_softcapping", {"final_logit_softcapping": "30"}),
        ("gemma2", "query_pre_attn_scalar = None", {"query_pre_attn_scalar": None}),
        ("gemma3_text", "attn_logit_softcapping", {"attn_logit_softcapping": 50.0}),
        ("gemma3_text", "sliding_window_pattern", {"sliding_window_pattern": 0}),
        ("gemma3_text", "rope_local_base_freq", {"rope_local_base_freq": 0}),
        ("gemma3_text", "rope_scaling", {"rope_scaling": {"type": "linear", "factor": 8.0}}),  # which transformers reads as "default"
        ("gemma3_text", "rope_scaling = 'linear'", {"rope_scaling": "linear"}),
        ("gpt_neox", "rotary_pct = 0.2; expected a share .* an even number of 16 features", {"rotary_pct": 0.2}),
        ("gpt_neox", "rotary_pct", {"rotary_pct": 1.5}),
        (
            "gpt_neox",
            "lacks rotary_pct, and 0.25 is taken; expected",
            {"num_attention_heads": 8, "rotary_pct": LEFT_OUT, "rope_scaling": None},
        ),
        *((kind, "is_causal", {"is_causal": value}) for kind in ("gpt2", "llama", "gemma3_text", "gpt_neox") for value in (False, None)),
        (
            "gemma3_text",
            "truncate true or nothing",
            {
                "rope_scaling": None,
                "rope_parameters": {
                    key: {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "truncate": False}
                    for key in ("full_attention", "sliding_attention")
                },
            },
        ),
        ("gpt_neox", "rope_parameters", {"rope_scaling": None, "rope_parameters": {"partial_rotary_factor": "all"}}),
        ("gpt_neox", "use_parallel_residual", {"use_parallel_residual": None}),
        ("olmo2", "clip_qkv", {"clip_qkv": 8.0}),
        ("phi3", "expected rope_type 'default' or 'longrope'", {"rope_scaling": {"type": "linear", "factor": 2.0}}),
        ("phi3", "2 numbers as long_factor", {"rope_scaling": {"type": "longrope", "short_factor": [1, 2], "long_factor": [1]}}),
    ],
)
def test_what_llama_and_its_kin_do_not_compute(kind, message, values):
    with pytest.raises(tc.CheckpointError, match=message):
        of_kind(kind, **values)


@pytest.mark.parametrize("kind", ["llama", "gemma", "olmo2"])
def test_a_window_that_no_layer_uses_is_not_read(kind):
    assert np.array_equal(of_kind(kind, sliding_window=0)(IDS), of_kind(kind)(IDS))


def test_a_buffer_that_no_model_needs_has_no_say_in_the_dtype():
    model = of_kind("llama", task=None)
    state = {name: array.half() for name, array in tc.convert.to_hf(model).items()}
    state["layers.0.self_attn.rotary_emb.inv_freq"] = tc.ones(8)
    assert {p.dtype.name for p in tc.convert.from_hf(state, model.config).parameters()} == {"float16"}


def test_heads_that_the_weights_have_not():
    state = tc.convert.to_hf(of_kind("llama", task=None))
    for values in ({"num_key_value_heads": 2}, {"head_dim": 2**30}, {"num_attention_heads": 4, "num_key_value_heads": 4}):
        config = {**of_kind("llama").config, **values}
        with pytest.raises(tc.CheckpointError, match=r"heads of size \d+ but 'layers.0.self_attn.[qk]_proj.weight' has shape"):
            tc.convert.from_hf(state, config)
    joined = of_kind("phi3", task=None)
    with pytest.raises(tc.CheckpointError, match=r"6 heads of size 16 but 'layers.0.self_attn.qkv_proj.weight' has shape \(64, 32\)"):
        tc.convert.from_hf(tc.convert.to_hf(joined), {**joined.config, "num_key_value_heads": 2})


@pytest.mark.parametrize(
    ("kind", "keys"),
    [("llama", None), ("mistral", 8), ("qwen2", 32), ("qwen3", 32), ("gemma", 16), ("gemma2", 4), ("gemma3_text", 4), ("olmo2", None)],
)
def test_heads_of_keys_where_config_json_does_not_say(kind, keys):
    """As many as in transformers' class; with null as many as those of queries."""
    values = {name: value for name, value in of_kind(kind).config.items() if name != "num_key_value_heads"}
    values |= {"num_attention_heads": 64, "head_dim": 2}
    for given, expected in (({}, keys or 64), ({"num_key_value_heads": None}, 64), ({"num_key_value_heads": 16}, 16)):
        assert tc.models.create({**values, **given}).layers[0].key.out_features == 2 * expected


def test_a_window_that_is_null():
    for options in ({"sliding_window": None}, {"use_sliding_window": False}):
        whole = of_kind("qwen2", **options)
        assert np.array_equal(whole(IDS), of_kind("qwen2", layer_types=["full_attention"] * 2)(IDS))


def test_layers_that_see_only_what_is_near():
    """By layer_types; otherwise from max_window_layers on."""
    whole, near = (of_kind("qwen2", task=None, layer_types=kinds) for kinds in (["full_attention"] * 2, ["sliding_attention"] * 2))
    changed = IDS.copy()
    changed[:, 0] = (changed[:, 0] + 1) % 60
    for model, sees in ((whole, True), (near, False)):  # two layers of windows of three: four tokens back
        assert np.array_equal(model(IDS)[:, 5:], model(changed)[:, 5:]) != sees
        assert not np.array_equal(model(IDS)[:, 4], model(changed)[:, 4])
    assert np.array_equal(of_kind("qwen2", layer_types=["full_attention", "sliding_attention"])(IDS), of_kind("qwen2")(IDS))


def test_which_layers_of_gemma_see_only_what_is_near():
    """Every other one of Gemma 2, all but every sixth of Gemma 3, or as config.json says."""
    for kind, values, whole in (
        ("gemma2", {}, [1, 3, 5, 7]),
        ("gemma3_text", {"sliding_window_pattern": 6}, [5]),
        ("gemma3_text", {"sliding_window_pattern": 3}, [2, 5]),
        ("gemma3_text", {"layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 6}, [0, 1]),
    ):
        layers = of_kind(kind, task=None, num_hidden_layers=8, **values).layers
        assert [number for number, layer in enumerate(layers) if layer.window is None] == whole
        near, far = ({layer.rotation.base for layer in layers if (layer.window is None) == sees} for sees in (False, True))
        assert (near, far) == ({1e4}, {1e4} if kind == "gemma2" else {1e6})


def test_an_encoder_of_gemma(tmp_path):
    """Tokens see those after them; in layers with a window half of its tokens on each side. It reads texts, but continues none."""
    pytest.importorskip("tokenizers")
    both = {"use_bidirectional_attention": True, "sliding_window": 6, "num_hidden_layers": 1, "layer_types": ["sliding_attention"]}
    model, changed = of_kind("gemma3_text", task=None, **both), IDS.copy()
    changed[:, 4] = (changed[:, 4] + 1) % 60
    same = (model(IDS) == model(changed)).all(2)
    assert same.tolist() == [[not 1 <= place <= 7 for place in range(9)]] * 3
    with pytest.raises(ValueError, match="tokens see those after them"):
        model(IDS, cache=tc.models.Cache())
    with pytest.raises(tc.CheckpointError, match="use_bidirectional_attention = True"):
        of_kind("gemma3_text", **both)
    encoder = tc.models.SentenceEncoder.from_pretrained(sentence_folder(tmp_path, {**model.config, "vocab_size": 64}))
    texts = ["abcdefghijk", "z"]
    found = encoder.encode(texts)
    for text, own in zip(texts, found, strict=True):
        mean = encoder.model(encoder.tokenizer([text])[0][0][None])[0].mean(0)
        np.testing.assert_allclose(own, mean / np.linalg.norm(mean), rtol=0, atol=1e-6)
        assert np.array_equal(encoder.encode(text), own)
    before = encoder.model.words.weight.detach().numpy().copy()
    encoder.fit([("abc", "cba"), ("xyz", "zyx")], epochs=3, batch_size=2, random_state=0)
    assert not np.array_equal(encoder.model.words.weight.detach().numpy(), before)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_embeddings_and_norms_of_gemma(dtype):
    """The root of the size has the precision of weights; norms multiply by 1 + weight, in float32 where weights have fewer bits."""
    model = of_kind("gemma", task=None, dtype=dtype)
    words = model.words.weight.detach()[IDS[0]]
    root = tc.tensor([32**0.5], dtype="float64").to(dtype)
    with tc.no_grad():
        found = model.embed(tc.tensor(IDS[:1]), None, None)[0]
        assert np.array_equal(found.double().numpy(), (words * root).double().numpy())
        assert not model.norm.weight.double().numpy().any()
        model.norm.weight.copy_(tc.tensor(np.linspace(-2e-3, 2e-3, 32)).to(dtype))
        x = found.double().numpy()
        expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * (1 + model.norm.weight.double().numpy())
        step = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
        np.testing.assert_allclose(model.norm(found).double().numpy(), expected, rtol=1.01 * step * (4 if "16" not in dtype else 1))


def test_older_names_of_gemma_and_gpt_neox():
    """ "gelu" is the other one in the first files of Gemma; the scores of words had another name in GPT-NeoX, and layers arrays that no model needs."""
    assert np.array_equal(of_kind("gemma", hidden_act="gelu")(IDS), of_kind("gemma")(IDS))
    assert not np.array_equal(of_kind("gemma2", hidden_activation="gelu")(IDS), of_kind("gemma2")(IDS))
    model = of_kind("gpt_neox")
    state = dict(tc.convert.to_hf(model))
    state["lm_head.weight"] = state.pop("embed_out.weight")
    state["gpt_neox.layers.1.attention.bias"] = tc.ones(1, 1, 4, 4)
    assert np.array_equal(tc.convert.from_hf(state, model.config, task="text-generation")(IDS), model(IDS))
    sequential = of_kind("gpt_neox", use_parallel_residual=False)
    assert not np.allclose(sequential(IDS), model(IDS))


def test_hooks_of_queries_keys_and_values():
    """Of one array, whose heads are in another order than elsewhere, and of one with fewer heads of keys."""
    for kind in ("gpt_neox", "phi3"):
        model, shapes = of_kind(kind, dtype="float64"), []
        expected = model(IDS, lengths=LENGTHS)
        model.encoder.layers[0].qkv.register_forward_hook(lambda layer, inputs, result, shapes=shapes: shapes.append(tuple(result.shape)))
        np.testing.assert_allclose(model(IDS, lengths=LENGTHS), expected, rtol=0, atol=1e-12)
        assert shapes == [(1, LENGTHS.sum(), {"gpt_neox": 96, "phi3": 64}[kind])]


def test_texts_longer_than_the_first_ones_of_longrope():
    """Would have other positions, as well in a cache; they are refused."""
    model = of_kind("phi3", original_max_position_embeddings=8)
    with pytest.raises(ValueError, match="ids have 9 tokens .* at most 8"):
        model(IDS)
    with pytest.raises(ValueError, match="the model takes at most 8 together"):
        tc.models.TextGenerator(of_kind("phi3", original_max_position_embeddings=8, vocab_size=27), Letters()).generate(
            "abc", max_new_tokens=6
        )


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_saved(kind, tied, tmp_path):
    model = of_kind(kind, tie_word_embeddings=tied)
    tc.models.save(model, tmp_path)
    (scores,) = ARCHITECTURES[kind].table.tied
    assert (scores in tc.load(tmp_path / "model.safetensors")) != tied
    assert np.array_equal(tc.models.load(tmp_path, task="text-generation")(IDS), model(IDS))
    assert np.array_equal(tc.models.load(tmp_path)(IDS), model.encoder(IDS))


@pytest.mark.parametrize("values", [{}, {"tie_word_embeddings": False}])
def test_embeddings_that_are_not_there(values):
    """The table for scores is not taken for them, unless it is the same."""
    model = of_kind("llama", tie_word_embeddings=True)
    state = dict(tc.convert.to_hf(model))
    del state["model.embed_tokens.weight"]  # as safetensors' save_model does
    for task, expected in ((None, model.encoder), ("text-generation", model)):
        assert np.array_equal(tc.convert.from_hf(state, model.config, task=task)(IDS), expected(IDS))
        config = {name: value for name, value in model.config.items() if name != "tie_word_embeddings"}
        with pytest.raises(tc.CheckpointError, match="the weights lack 'embed_tokens.weight'"):
            tc.convert.from_hf(state, {**config, **values}, task=task)


def test_a_table_for_scores_that_is_not_there(tmp_path):
    """No new one is made of random numbers."""
    pytest.importorskip("tokenizers")
    tc.models.save(of_kind("llama").encoder, tmp_path)
    with pytest.raises(tc.CheckpointError, match="has no weights for out, the scores of words"):
        tc.models.TextGenerator.from_pretrained(tmp_path)
    with pytest.warns(RuntimeWarning, match=r"no weights for 'text-generation' \(out\)"):
        tc.models.load(tmp_path, task="text-generation")


def test_folders(tmp_path):
    generator = tc.models.TextGenerator.from_pretrained(
        decoder_folder(tmp_path, generation_config={"do_sample": True, "top_k": 3, "use_cache": True})
    )
    assert "do_sample=True" in repr(generator) and "top_k=3" in repr(generator)
    ids = generator.tokenizer(["he he<|endoftext|>"])[0][0]
    assert ids.tolist() == [256, 257, 258] and generator.tokenizer.decode(ids) == "he he"
    text = generator.generate("he", max_new_tokens=30, rng=1)
    assert "".join(generator.stream("he", max_new_tokens=30, rng=1)) == text[2:]
    assert generator.generate("é", max_new_tokens=5, do_sample=False).startswith("é")
    generator.tokenizer.save(tmp_path)
    assert (tmp_path / "tokenizer.json").exists()
    assert tc.models.TextGenerator.from_pretrained(tmp_path).generate("he", max_new_tokens=30, rng=1) == text


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_beam_groups": 4}, "num_beam_groups = 4; supported are do_sample"),
        ({"num_beams": 4, "do_sample": True}, "do_sample=True needs num_beams=1"),
        ({"top_p": 2}, "top_p must be above 0"),
        ({"min_length": -5}, "min_length must be at least 0"),
        ({"encoder_no_repeat_ngram_size": 3}, "encoder_no_repeat_ngram_size = 3"),
        ({"min_p": 0.1}, "min_p = 0.1"),
        ({"typical_p": 0.9}, "typical_p = 0.9"),
        ({"forced_bos_token_id": "en"}, "forced_bos_token_id must be an int"),
        ({"suppress_tokens": [3]}, r"suppress_tokens = \[3\]"),
        ({"bad_words_ids": [[3, 4]]}, "bad_words_ids must be lists of one token each"),
        ({"a_setting_of_tomorrow": 1}, "a_setting_of_tomorrow = 1"),
        ({"max_new_tokens": 0}, "generation_config.json': max_new_tokens must be at least 1, got 0"),
        ({"max_length": "20"}, "generation_config.json': max_length must be an int, got '20'"),
        ({"temperature": 10**400}, "generation_config.json': temperature must be above 0, and finite"),
        ({"eos_token_id": "x"}, "generation_config.json': eos_token_id must be an int, got 'x'"),
        ({"eos_token_id": [1, -1]}, "generation_config.json': eos_token_id must be at least 0, got -1"),
    ],
)
def test_settings_that_are_refused(tmp_path, values, message):
    with pytest.raises(tc.CheckpointError, match=message):
        tc.models.TextGenerator.from_pretrained(decoder_folder(tmp_path, generation_config=values))


def test_settings_that_change_nothing(tmp_path):
    values = {
        "num_beams": 1,
        "length_penalty": 0.6,
        "early_stopping": True,
        "typical_p": 1.0,
        "min_p": 0,
        "suppress_tokens": [],
        "pad_token_id": 0,
        "transformers_version": "5",
        "no_repeat_ngram_size": None,
        "eos_token_id": [3, 258],
    }
    assert tc.models.TextGenerator.from_pretrained(decoder_folder(tmp_path, generation_config=values))._ends == (3, 258)


def test_settings_of_a_folder_without_a_file_for_them(tmp_path):
    """Are those of config.json, where transformers takes them from; otherwise those there mean nothing."""
    decoder_folder(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "repetition_penalty": 1.9, "max_length": 9}))
    generator = tc.models.TextGenerator.from_pretrained(tmp_path)
    plain = tc.models.TextGenerator(generator.model, generator.tokenizer)
    assert (
        generator.generate("ab") == plain.generate("ab", max_new_tokens=7, repetition_penalty=1.9) != plain.generate("ab", max_new_tokens=7)
    )
    path.write_text(json.dumps({**config, "encoder_no_repeat_ngram_size": 2}))
    with pytest.raises(tc.CheckpointError, match="config.json' has encoder_no_repeat_ngram_size = 2; supported are do_sample"):
        tc.models.TextGenerator.from_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text("{}")
    tc.models.TextGenerator.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("sampling", "arguments", "new"),
    [
        ({}, {}, [37, 37]),
        ({"max_new_tokens": 7}, {}, [7, 7]),
        ({"max_new_tokens": 7, "max_length": 5}, {}, [7, 7]),
        ({"max_length": 5}, {}, [2, 4]),
        ({"max_length": 5}, {"max_new_tokens": 6}, [6, 6]),
        ({"max_length": 500}, {}, [37, 39]),
        ({"max_new_tokens": 7}, {"max_new_tokens": 6}, [6, 6]),
    ],
)
def test_how_many_tokens_are_written(sampling, arguments, new):
    """An argument takes precedence, then max_new_tokens of the folder, then its max_length, which counts all tokens."""
    if not {**sampling, **arguments}:
        arguments = {"max_new_tokens": 37}
    generator = tc.models.TextGenerator(writer().model, Letters(), sampling, eos_token_id=[])
    found = generator.generate(["abc", "q"], return_full_text=False, **arguments)
    assert [len(text) for text in found] == new
    for text, expected in zip(["abc", "q"], found, strict=True):
        assert "".join(generator.stream(text, **arguments)) == expected
    with pytest.raises(ValueError, match="number 1 has 5 tokens, and with new ones it may have 5 by max_length = 5; max_new_tokens"):
        tc.models.TextGenerator(writer().model, Letters(), {"max_length": 5}).generate(["a", "abcde"])


def test_pieces_are_whole_characters(monkeypatch):
    """A character of several tokens is given when it is complete."""
    generator, tokens = writer(), [list("é€".encode()), list("a\U0001f600b".encode())]
    generator.tokenizer.decode = lambda ids: bytes(ids).decode(errors="replace")
    for text in tokens:
        steps = iter([[(0, token)] for token in text])
        monkeypatch.setattr("transformer_c.models.text_generator.continuations", lambda *_, steps=steps: steps)
        assert [piece for piece in generator.stream("a", max_new_tokens=9) if piece] == list(bytes(text).decode())
