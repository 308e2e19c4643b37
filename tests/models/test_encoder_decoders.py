"""Encoder-decoders: transformers' numbers and tokens, equal bits however texts are batched, padded and read, and what is refused."""

import json
import tracemalloc

import numpy as np
import pytest
import transformer_c as tc
from folders import decoder_folder
from golden import load
from transformer_c import cli
from transformer_c.models.architectures import ARCHITECTURES
from transformer_c.models.encoder_decoder import EncoderDecoder
from transformer_c.models.sampling import Sampling
from words import LETTERS

CASES = {**load("encoder_decoders"), **load("m2m_100")}
TASK = "text2text-generation"
KINDS = [name for name, kind in ARCHITECTURES.items() if issubclass(kind, EncoderDecoder) and TASK in kind.table.heads]  # that read texts
SOURCES, TARGETS = np.array([9, 4, 1]), np.array([3, 11, 6])
IDS, WRITTEN = (np.random.default_rng(seed).integers(4, 27, (3, longest)) for seed, longest in ((0, 9), (1, 11)))


def state_of(arrays):
    return {name.removeprefix("state."): value for name, value in arrays.items() if name.startswith("state.")}


def create(kind, task=TASK, dtype="float32", **values):
    sizes = {
        **dict.fromkeys(("encoder_layers", "decoder_layers", "num_layers"), 2),
        **{"encoder_attention_heads": 2, "decoder_attention_heads": 4, "num_heads": 3, "d_kv": 6, "vocab_size": 27, "d_model": 16},
        **{"encoder_ffn_dim": 24, "decoder_ffn_dim": 20, "d_ff": 24, "max_position_embeddings": 40, "feed_forward_proj": "gated-gelu"},
        **{"relative_attention_num_buckets": 6, "relative_attention_max_distance": 9, "pad_token_id": 0, "decoder_start_token_id": 0},
    }
    tc.manual_seed(3)
    values = {"model_type": kind, "initializer_range": 0.4, "eos_token_id": 26, "forced_eos_token_id": None, **sizes, **values}
    return tc.models.create(values, task=task).to(dtype=dtype)


def test_every_one_has_a_case():
    assert {options["config"]["model_type"] for options, _ in CASES.values()} == set(KINDS)


@pytest.mark.parametrize("case", CASES)
def test_numbers(case):
    options, arrays = CASES[case]
    for dtype, tolerance in (("float64", 2e-13), ("float32", 1e-5)):
        model = tc.convert.from_hf(state_of(arrays), options["config"], task=TASK, dtype=dtype)
        given, real = {"ids": arrays["ids"], "mask": arrays["mask"], "decoder_ids": arrays["decoder_ids"]}, arrays["mask"] != 0
        with tc.nn.attention_maps(model) as maps:
            scores = model(**given)
        assert scores.dtype == dtype and np.array_equal(scores, model(**given))
        for found, expected in (
            (scores, arrays["scores"]),
            (model.encoder(**given), arrays["hidden"]),
            (model.encoder.encoder(arrays["ids"], arrays["mask"])[real], arrays["encoded"][real]),
            (maps["encoder.decoder.layers.1"], arrays["self"]),
            (maps["encoder.decoder.layers.1.cross"], arrays["cross"]),
        ):
            np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1, np.abs(expected).max()))
    base = tc.convert.from_hf(state_of(arrays), options["config"], dtype="float32")
    assert np.array_equal(base(**given), model.encoder(**given))


@pytest.mark.parametrize("case", CASES)
def test_loss(case):
    options, arrays = CASES[case]
    model = tc.convert.from_hf(state_of(arrays), options["config"], task=TASK, dtype="float64")
    labels = tc.tensor(arrays["labels"])
    scores = model(tc.tensor(arrays["ids"]), tc.tensor(arrays["mask"]), decoder_ids=model.shifted(labels))
    loss = tc.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())
    loss.backward()
    assert abs(loss.item() - arrays["loss"]) < 1e-13 * max(1, arrays["loss"])
    assert model.shifted([[-100, -100]]).shape == (1, 2)
    unused = {name for name, p in model.named_parameters() if p.grad is None}
    assert unused == ({"bias"} if hasattr(model, "bias") and model.bias is not None else set())  # which is not trained


@pytest.mark.parametrize("case", CASES)
def test_tokens_as_transformers_chooses_them(case):
    options, arrays = CASES[case]
    model = tc.convert.from_hf(state_of(arrays), options["config"], task=TASK, dtype="float64")
    config, lengths = options["config"], arrays["mask"].sum(1)
    for i, settings in enumerate(options["searches"]):
        own = {"forced_eos_token_id": config.get("forced_eos_token_id"), **settings}
        chosen, texts = Sampling(max_new_tokens=12, **own), np.split(arrays[f"written.{i}"], arrays[f"ends.{i}"][:-1])
        found = tc.models.generating.generate(model, arrays["ids"], lengths, chosen, model.ends(), None)
        for row, expected in zip(found, texts, strict=True):
            assert row[: len(expected)].tolist() == expected.tolist(), settings
            assert (row[len(expected) :] == model.ends()[0]).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_equal_bits(kind, dtype, isa):
    """In any batch, however both texts are padded, and read in parts through a cache."""
    model = create(kind, dtype=dtype)
    together = model(IDS, lengths=SOURCES, decoder_ids=WRITTEN, decoder_lengths=TARGETS)
    masks = np.arange(9) < SOURCES[:, None], np.arange(11) < TARGETS[:, None]
    assert np.array_equal(together, model(IDS, masks[0], decoder_ids=WRITTEN, decoder_mask=masks[1]))
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        ids, written = IDS[row : row + 1, :source], WRITTEN[row : row + 1, :target]
        alone = model(ids, decoder_ids=written)[0]
        assert np.array_equal(together[row, :target], alone) and not together[row, target:].any()
    whole, cache = model(IDS, lengths=SOURCES, decoder_ids=WRITTEN), tc.models.Cache()
    parts = [model(IDS, lengths=SOURCES, decoder_ids=WRITTEN[:, :1], cache=cache)]
    parts += [model(None, decoder_ids=WRITTEN[:, a:b], cache=cache) for a, b in ((1, 2), (2, 7), (7, 11))]
    assert np.array_equal(np.concatenate(parts, 1), whole)
    cache.truncate([4, 4, 4])
    cache.select([2, 0])
    assert np.array_equal(model(None, decoder_ids=WRITTEN[[2, 0], 4:6], cache=cache), whole[[2, 0], 4:6])


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_written_alone_as_among_others(kind):
    for settings in ({}, {"num_beams": 3}, {"num_beams": 2, "early_stopping": True, "no_repeat_ngram_size": 2}):
        model = create(kind, eos_token_id=[26, 9, 13])
        together = model.generate(IDS, 8, lengths=SOURCES, **settings)
        for i, length in enumerate(SOURCES):
            alone = model.generate(IDS[i : i + 1, :length], 8, **settings)[0]
            assert np.array_equal(together[i, : len(alone)], alone) and (together[i, len(alone) :] == 26).all()
    drawn = [model.generate(IDS, 8, lengths=SOURCES, do_sample=True, rng=seed).tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_beams_of_decoders():
    """By hand: the most probable of all texts of two tokens, where there are as many beams as words."""
    tc.manual_seed(1)
    model = tc.models.create(
        {"model_type": "gpt2", "vocab_size": 7, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8, "initializer_range": 0.9},
        task="text-generation",
    ).to(dtype="float64")
    texts = np.array([[3, 5, a, b] for a in range(7) for b in range(7)])
    odds = np.log(np.exp(model(texts)) / np.exp(model(texts)).sum(-1, keepdims=True))
    total = odds[np.arange(49), 1, texts[:, 2]] + odds[np.arange(49), 2, texts[:, 3]]
    found = model.generate([[3, 5, 1], [3, 5, 0]], 2, lengths=[2, 2], num_beams=7)
    assert found.tolist() == [texts[total.argmax()].tolist()] * 2
    with pytest.raises(ValueError, match="num_beams must be at least 1"):
        model.generate([[3]], 2, num_beams=0)


@pytest.mark.parametrize(
    ("kind", "message", "values"),
    [
        ("t5", "feed_forward_proj = 'gated-x'; expected one of gelu", {"feed_forward_proj": "gated-x"}),
        ("t5", "dense_act_fn = 'relu'; expected 'gelu_new' or None", {"dense_act_fn": "relu"}),
        ("t5", "relative_attention_num_buckets = 7; expected an even number", {"relative_attention_num_buckets": 7}),
        ("t5", "relative_attention_max_distance = 3; expected an integer of at least 6", {"relative_attention_max_distance": 3}),
        ("t5", "decoder_start_token_id = 27; expected null or an index below 27", {"decoder_start_token_id": 27}),
        ("t5", "is_encoder_decoder = False", {"is_encoder_decoder": False}),
        ("bart", "d_model = 16, which is no multiple of decoder_attention_heads = 3", {"decoder_attention_heads": 3}),
        ("bart", "scale_embedding = 'x'; expected true or false", {"scale_embedding": "x"}),
        ("bart", "encoder_layerdrop", {"encoder_layerdrop": 2}),
        ("bart", "eos_token_id", {"eos_token_id": "x"}),
        ("marian", "share_encoder_decoder_embeddings = False", {"share_encoder_decoder_embeddings": False}),
        (
            "marian",
            "max_position_embeddings = 1000000; expected an integer of at least 1 and at most 65536",
            {"max_position_embeddings": 10**6},
        ),
        ("marian", "decoder_vocab_size = 28", {"decoder_vocab_size": 28}),
    ],
)
def test_what_is_not_computed_is_refused(kind, message, values):
    with pytest.raises(tc.CheckpointError, match=message):
        create(kind, **values)


@pytest.mark.parametrize(
    ("kind", "layers", "name"), [("t5", "num_decoder_layers", "decoder.block."), ("bart", "decoder_layers", "decoder.layers.")]
)
def test_arrays_that_are_not_those_of_config_json(kind, layers, name):
    model = create(kind, task=None)
    state, config = tc.convert.to_hf(model), model.config
    with pytest.raises(tc.CheckpointError, match=f"{layers} = 3; the weights have 2 layers of the decoder, to number 1"):
        tc.convert.from_hf(state, {**config, layers: 3})
    tracemalloc.start()
    with pytest.raises(tc.CheckpointError, match=f"{layers} = 1000000; the weights have 2 layers of the decoder"):
        tc.convert.from_hf(state, {**config, layers: 10**6})  # up to 2^31 - 1 are read
    assert tracemalloc.get_traced_memory()[1] < 1 << 22
    tracemalloc.stop()
    changes = {"t5": ({"d_kv": 5}, {"num_heads": 2}), "bart": ({"max_position_embeddings": 41}, {"decoder_ffn_dim": 7}, {"d_model": 12})}
    for changed in changes[kind]:
        with pytest.raises(tc.CheckpointError, match="has shape"):
            tc.convert.from_hf(state, {**config, **changed})
    with pytest.raises(tc.CheckpointError, match=f"the weights lack '{name}0"):
        tc.convert.from_hf({key: value for key, value in state.items() if not key.startswith(name)}, config)


def test_calls_that_are_refused():
    model, cache = create("t5"), tc.models.Cache()
    model(IDS, decoder_ids=WRITTEN[:, :2], cache=cache)
    for error, message, call in (
        (ValueError, r"decoder_ids are missing.* model.encoder\(ids, mask\)", lambda: model.encoder(IDS)),
        (ValueError, "ids have 3 texts and decoder_ids 2", lambda: model(IDS, decoder_ids=WRITTEN[:2])),
        (ValueError, "ids are None, but no cache", lambda: model(None, decoder_ids=WRITTEN)),
        (ValueError, "decoder_mask has zeros elsewhere", lambda: model(IDS, decoder_ids=WRITTEN, decoder_mask=np.eye(3, 11))),
        (
            ValueError,
            "with a cache, the texts that are written have no padding",
            lambda: model(None, decoder_ids=WRITTEN, decoder_lengths=TARGETS, cache=cache),
        ),
        (ValueError, r"`with tc.no_grad\(\):`", lambda: model(tc.tensor(IDS), decoder_ids=tc.tensor(WRITTEN), cache=cache)),
        (
            ValueError,
            r"the cache has the text that is read: give None for ids",
            lambda: model(IDS, decoder_ids=WRITTEN[:, 2:], cache=cache),
        ),
        (
            ValueError,
            r"of the texts that are written \(decoder_ids, .*mask",
            lambda: model(IDS, decoder_ids=WRITTEN, decoder_mask=np.ones((3, 4))),
        ),
        (ValueError, "the model takes at most 40 tokens of a text that is written", lambda: create("bart").generate(IDS, 40)),
        (ValueError, "labels must be integers of shape", lambda: model.shifted([1, 2])),
        (ValueError, "text number 1 has no tokens", lambda: model.generate(IDS, 3, lengths=[1, 0, 2])),
        (TypeError, "cache must be a tc.models.Cache, not list", lambda: model(IDS, decoder_ids=WRITTEN, cache=[])),
        (TypeError, r"cross_entropy\(model\(ids, mask, decoder_ids=model.shifted", lambda: model(IDS, labels=WRITTEN)),
        (ValueError, "forced_eos_token_id is 27, but the model has 27 words", lambda: model.generate(IDS, 3, forced_eos_token_id=27)),
        (ValueError, "no decoder_start_token_id", lambda: create("mbart", decoder_start_token_id=None).generate(IDS, 3)),
        (ValueError, "no decoder_start_token_id", lambda: create("bart", decoder_start_token_id=None).shifted(WRITTEN)),
    ):
        with pytest.raises(error, match=message):
            call()
    assert np.array_equal(model(input_ids=IDS, decoder_input_ids=WRITTEN, labels=None), model(IDS, decoder_ids=WRITTEN))
    assert cache.lengths.tolist() == [2, 2, 2]
    cache.truncate([2, 1, 2])
    with pytest.raises(ValueError, match=r"must have one length in a cache, not \[2, 1, 2\]"):
        model(None, decoder_ids=WRITTEN, cache=cache)
    model, cache = create("bart"), tc.models.Cache()
    model(IDS, decoder_ids=np.ones((3, 38), int), cache=cache)
    with pytest.raises(ValueError, match="would have 41 tokens, 38 of them in the cache; this model takes at most 40"):
        model(None, decoder_ids=np.ones((3, 3), int), cache=cache)


@pytest.mark.parametrize("kind", KINDS)
def test_no_texts_and_texts_without_tokens(kind):
    model, cache = create(kind), tc.models.Cache()
    assert model(np.zeros((0, 5), int), decoder_ids=np.zeros((0, 2), int)).shape == (0, 2, 27)
    assert model(IDS, decoder_ids=np.zeros((3, 0), int)).shape == (3, 0, 27)
    assert np.isfinite(model(np.zeros((3, 0), int), decoder_ids=WRITTEN)).all()
    model(IDS, decoder_ids=WRITTEN, cache=cache)
    cache.select([])
    assert model(None, decoder_ids=np.zeros((0, 1), int), cache=cache).shape == (0, 1, 27)


def test_searches_at_their_limits():
    """Without a text that has ended the most probable one is taken; where all words are forbidden there is none."""
    model = create("bart")
    with np.errstate(all="raise"):
        for penalty in (-10.0, 10.0):
            assert model.generate(IDS[:1], 39, num_beams=3, eos_token_id=[], length_penalty=penalty).shape == (1, 40)
        ended = model.generate(IDS[:1], 39, num_beams=3, no_repeat_ngram_size=1, length_penalty=5.0)[0].tolist()
        assert len(set(ended)) == len(ended)
    for settings in ({}, {"do_sample": True}, {"num_beams": 3}):
        with pytest.raises(ValueError, match="no word may come next: no_repeat_ngram_size"):
            model.generate(IDS[:1], 39, no_repeat_ngram_size=1, min_length=40, **settings)
    scores = np.zeros(5, np.float32)
    for sampling, ended in ((Sampling(min_length=9, min_new_tokens=1), 0.0), (Sampling(min_length=9), -np.inf)):
        assert sampling.processed(scores, [1, 2], step=1, most=5, ends=(4,))[4] == ended  # min_new_tokens takes precedence


def test_positions_of_marian():
    """Files may have them; others than the sines are refused."""
    config = create("marian", task=None).config
    state = {name: value.numpy() for name, value in tc.convert.to_hf(create("marian", task=None)).items()}
    places = np.array(create("marian", task=None).decoder.positions.waves)
    for dtype in ("float32", "float16"):
        tc.convert.from_hf({**state, "encoder.embed_positions.weight": places.astype(dtype)}, config)
    with pytest.raises(tc.CheckpointError, match="'decoder.embed_positions.weight' are not the positions that Marian computes"):
        tc.convert.from_hf({**state, "decoder.embed_positions.weight": places[::-1]}, config)


@pytest.mark.parametrize("kind", ["bart", "marian", "mbart"])
def test_words_of_their_own_for_each_side_are_refused(kind):
    """As transformers writes them with tie_word_embeddings = false; with a head and without."""
    for task in (None, TASK):
        model = create(kind, task=task)
        state = {name: value.numpy() for name, value in tc.convert.to_hf(model).items()}
        prefix = "" if task is None else "model."
        state[f"{prefix}decoder.embed_tokens.weight"] = state[f"{prefix}shared.weight"] + 1
        with pytest.raises(tc.CheckpointError, match=r"decoder.embed_tokens.weight"):
            tc.convert.from_hf(state, {**model.config, "tie_word_embeddings": False}, task=task)


def test_a_call_that_fails_leaves_the_cache_as_it_was():
    model, cache = create("bart"), tc.models.Cache()

    def fail(*_):
        raise RuntimeError("of the hook")

    def failing(ids, written):
        handle = model.encoder.decoder.layers[1].register_forward_pre_hook(fail)
        with pytest.raises(RuntimeError, match="of the hook"):
            model(ids, decoder_ids=written, cache=cache)
        handle.remove()

    failing(IDS, WRITTEN[:, :2])
    found = model(IDS[:2], decoder_ids=WRITTEN[:2, :1], cache=cache)  # of other texts
    failing(None, WRITTEN[:2, 5:7])
    found = np.concatenate([found, model(None, decoder_ids=WRITTEN[:2, 1:3], cache=cache)], 1)
    assert np.array_equal(found, model(IDS[:2], decoder_ids=WRITTEN[:2, :3]))
    decoder = tc.models.Cache()
    tc.models.create({"model_type": "gpt2", "vocab_size": 27, "n_embd": 8, "n_head": 2, "n_layer": 2})(IDS, cache=decoder)
    with pytest.raises(ValueError, match="the cache is of a decoder that reads no other text"):
        model(IDS, decoder_ids=WRITTEN, cache=decoder)


def test_export(tmp_path):
    """Other batches and lengths than those of the example."""
    onnxruntime = pytest.importorskip("onnxruntime")
    for kind in ("t5", "bart"):
        model, path, mask = create(kind), str(tmp_path / "model.onnx"), (np.arange(9) < SOURCES[:, None]).astype(np.int64)
        tc.export_onnx(model, {"ids": IDS[:2, :6], "mask": mask[:2, :6], "decoder_ids": WRITTEN[:2, :4]}, path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {"ids": IDS, "mask": mask, "decoder_ids": WRITTEN})
        expected = model(IDS, mask, decoder_ids=WRITTEN)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_tables_of_scores(tmp_path):
    """Flan-T5's is its own where it differs; then states are not scaled, which transformers 5 calls by another name."""
    state, config = state_of(CASES["flan"][1]), CASES["flan"][0]["config"]
    given = {"ids": IDS, "decoder_ids": WRITTEN}
    expected = tc.convert.from_hf(state, config, task=TASK)(**given)
    later = {**config, "tie_word_embeddings": True, "scale_decoder_outputs": False}
    model = tc.convert.from_hf(state, later, task=TASK)
    assert np.array_equal(model(**given), expected) and not model.scores_words
    tc.models.save(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"] is False
    assert np.array_equal(tc.models.load(tmp_path, task=TASK)(**given), expected)
    tied = tc.convert.from_hf({**state, "lm_head.weight": state["shared.weight"]}, config, task=TASK)
    alone = tc.convert.from_hf({name: value for name, value in state.items() if name != "lm_head.weight"}, config, task=TASK)
    scaled = tc.convert.from_hf(
        {**state, "lm_head.weight": state["shared.weight"]},
        {**config, "tie_word_embeddings": True, "scale_decoder_outputs": True},
        task=TASK,
    )
    assert tied.scores_words and np.array_equal(tied(**given), alone(**given))
    np.testing.assert_allclose(scaled(**given) * 8**0.5, tied(**given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_other_copies_of_the_words(case, tmp_path):
    """Older files have several, safetensors' save_model one of any name; the bias of scores may be missing."""
    options, arrays = CASES[case]
    state = state_of(arrays)
    model = tc.convert.from_hf(state, options["config"], task=TASK)
    tc.models.save(model, tmp_path)
    found = tc.load(tmp_path / "model.safetensors")
    assert found.keys() == state.keys() and all(np.array_equal(found[name], state[name]) for name in state)
    prefix = "" if "shared.weight" in state else "model."
    other = {name.replace("shared", "decoder.embed_tokens") if case != "flan" else name: value for name, value in state.items()}
    other |= {f"{prefix}encoder.embed_tokens.weight": state[f"{prefix}shared.weight"]}
    given = {"ids": IDS, "decoder_ids": WRITTEN}
    assert np.array_equal(tc.convert.from_hf(other, options["config"], task=TASK)(**given), model(**given))
    if "final_logits_bias" in other:
        bias = other.pop("final_logits_bias")
        plain = tc.convert.from_hf(other, options["config"], task=TASK)
        np.testing.assert_allclose(plain(**given) + bias, model(**given), atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_folders_of_transformers(case, tmp_path):
    """Of both directions."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    options, arrays = CASES[case]
    model = tc.convert.from_hf(state_of(arrays), options["config"], task=TASK)
    tc.models.save(model, tmp_path)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    given = {"input_ids": arrays["ids"], "attention_mask": arrays["mask"], "decoder_input_ids": arrays["decoder_ids"]}
    with torch.no_grad():
        scores = theirs(**{name: torch.from_numpy(x) for name, x in given.items()}).logits.numpy()
    np.testing.assert_allclose(model(**given), scores, rtol=0, atol=1e-5 * np.abs(scores).max())
    theirs.save_pretrained(tmp_path / "theirs")
    assert np.array_equal(tc.models.load(tmp_path / "theirs", task=TASK)(**given), model(**given))
    assert np.array_equal(tc.models.load(tmp_path / "theirs")(**given), model.encoder(**given))


class Letters:
    def __call__(self, texts):
        return [(np.array([LETTERS.index(c) for c in text], int), np.zeros(len(text), int)) for text in texts]

    def decode(self, ids):
        return "".join(LETTERS[i] if i < 26 else "" for i in ids)


def test_texts():
    generator = tc.models.Text2TextGenerator(create("t5"), Letters(), {"max_length": 8})
    texts = ["abc", "z", "transformers", "q"]
    for settings in ({}, {"num_beams": 4}):
        found = generator.generate(texts, batch_size=3, **settings)
        assert found == [generator.generate(text, **settings) for text in texts] and len(set(found)) > 1
        assert all(len(text) <= 7 for text in found)
    ids = generator.model.generate([[0, 1, 2]], 7, num_beams=4)[0, 1:]
    assert generator.generate("abc", num_beams=4) == Letters().decode(ids)
    assert "".join(generator.stream("abc")) == generator.generate("abc") and generator.generate([]) == []
    assert repr(generator) == (
        "Text2TextGenerator(T5, do_sample=False, temperature=1.0, top_k=50, top_p=1.0, repetition_penalty=1.0, max_new_tokens=None, max_length=8)"
    )
    for error, message, call in (
        (ValueError, "beams give no pieces before they end, and num_beams is 2", lambda: generator.stream("a", num_beams=2)),
        (TypeError, "text must be a str", lambda: generator.stream(["a"])),
        (TypeError, "texts must be str, but number 1 is 3", lambda: generator.generate(["a", 3])),
        (ValueError, "text number 1 has no tokens; a model needs one to read", lambda: generator.generate(["a", ""])),
        (TypeError, "num_return_sequences", lambda: generator.generate("a", num_return_sequences=2)),
        (TypeError, "is made of a model", lambda: tc.models.Text2TextGenerator(create("t5", None), Letters())),
        (
            ValueError,
            "the tokenizer gives the number 25, but",
            lambda: tc.models.Text2TextGenerator(create("t5", vocab_size=9, eos_token_id=1), Letters()).generate("z"),
        ),
    ):
        with pytest.raises(error, match=message):
            call()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """BART with a tokenizer of bytes."""
    pytest.importorskip("tokenizers")
    path = tmp_path_factory.mktemp("bart")
    decoder_folder(path, generation_config={"num_beams": 3, "max_length": 9, "decoder_start_token_id": 5, "forced_eos_token_id": 258})
    words = [*json.loads((path / "vocab.json").read_text()), "<s>", "</s>", "<pad>", "<unk>", "<mask>"]
    (path / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    tc.models.save(create("bart", vocab_size=len(words), eos_token_id=260), path)
    return path


def test_folders(folder, tmp_path):
    generator = tc.models.Text2TextGenerator.from_pretrained(folder)
    assert generator.model.encoder.start == 5 and generator._sampling.num_beams == 3
    ids = generator.tokenizer(["he he"])[0][0]
    assert ids.tolist() == [259, 256, 257, 260]
    generator.model.encoder.start = 5
    expected = generator.model.generate(ids[None], 8, num_beams=3, forced_eos_token_id=258)[0, 1:]
    assert generator.generate("he he") == generator.tokenizer.decode(expected)
    assert "".join(generator.stream("he", num_beams=1)) == generator.generate("he", num_beams=1)
    with pytest.raises(ValueError, match="task is 'text-generation'; for bart there are 'text2text-generation'"):
        tc.models.TextGenerator.from_pretrained(folder)
    tc.models.save(create("marian"), tmp_path / "marian")
    with pytest.raises(tc.CheckpointError, match="has no tokenizer.json$"):
        tc.models.Text2TextGenerator.from_pretrained(tmp_path / "marian")
    decoder_folder(tmp_path)
    with pytest.raises(ValueError, match="task is 'text2text-generation'; for gpt2 there are"):
        tc.models.Text2TextGenerator.from_pretrained(tmp_path)


def test_the_command(folder, capsysbinary):
    for options, settings in (([], {}), (["--num-beams", "1", "--max-new-tokens", "5"], {"num_beams": 1, "max_new_tokens": 5})):
        assert cli.main(["generate", str(folder), "he he", *options]) == 0
        expected = tc.models.Text2TextGenerator.from_pretrained(folder).generate("he he", **settings)
        assert capsysbinary.readouterr().out.decode() == expected + "\n"
