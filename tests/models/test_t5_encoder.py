"""Encoders of T5 alone: transformers' numbers, folders in both directions, and sentence-transformers' models made of them."""

import json

import numpy as np
import pytest
import transformer_c as tc
from folders import sentence_folder
from golden import load

CASES = {name: case for name, case in load("encoder_decoders").items() if case[0]["config"]["model_type"] == "t5"}
ALONE = {"architectures": ["T5EncoderModel"]}
SIZES = {"vocab_size": 64, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_heads": 3, "relative_attention_num_buckets": 6}
CONFIG = {"model_type": "t5", **ALONE, **SIZES, "relative_attention_max_distance": 9, "initializer_range": 0.3}
LENGTHS = np.array([9, 1, 4])
IDS = np.random.default_rng(0).integers(3, 64, (3, 9))


def create(dtype="float32", **values):
    tc.manual_seed(1)
    return tc.models.create({**CONFIG, **values}).to(dtype=dtype)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("says", [True, False])
def test_numbers(case, says, tmp_path):
    options, arrays = CASES[case]
    state = {name.removeprefix("state."): value for name, value in arrays.items() if name.startswith("state.")}
    state = {name: value for name, value in state.items() if name.startswith(("shared", "encoder"))}
    config, real = {**options["config"], **ALONE, "is_encoder_decoder": says}, arrays["mask"] != 0
    model = tc.convert.from_hf(state, config, dtype="float64")
    found = model(arrays["ids"], arrays["mask"])
    np.testing.assert_allclose(found[real], arrays["encoded"][real], rtol=0, atol=1e-13 * np.abs(arrays["encoded"]).max())
    tc.models.save(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["T5EncoderModel"]
    assert set(tc.load(tmp_path / "model.safetensors")) == set(state)
    assert np.array_equal(tc.models.load(tmp_path)(arrays["ids"], arrays["mask"]), found)
    copy = {**state, "encoder.embed_tokens.weight": state["shared.weight"]}
    assert np.array_equal(tc.convert.from_hf(copy, config, dtype="float64")(arrays["ids"], arrays["mask"]), found)


@pytest.mark.parametrize("gate", ["relu", "gated-gelu"])
def test_transformers_loads_it_and_is_loaded(gate, tmp_path):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    model, mask = create(feed_forward_proj=gate), np.arange(9) < LENGTHS[:, None]
    tc.models.save(model, tmp_path)
    theirs, report = transformers.T5EncoderModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor(IDS), attention_mask=torch.tensor(mask)).last_hidden_state.numpy()
    np.testing.assert_allclose(model(IDS, mask)[mask], expected[mask], rtol=0, atol=2e-5 * np.abs(expected).max())
    theirs.save_pretrained(tmp_path / "again")
    assert np.array_equal(tc.models.load(tmp_path / "again")(IDS, mask), model(IDS, mask))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_a_text_has_the_same_bits_in_any_batch(dtype, isa):
    model = create(dtype)
    together = model(IDS, lengths=LENGTHS)
    for row, length in enumerate(LENGTHS):
        assert np.array_equal(together[row, :length], model(IDS[row : row + 1, :length])[0]) and not together[row, length:].any()


def test_embeddings_of_texts(tmp_path):
    pytest.importorskip("tokenizers")
    own = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}  # T5's is of SentencePiece
    sentence_folder(tmp_path, CONFIG, tokenizer_config=own)
    encoder = tc.models.SentenceEncoder.from_pretrained(tmp_path)
    encoder = tc.models.SentenceEncoder(encoder.model, encoder.tokenizer, "mean", True, dense=[tc.models.Dense(16, 8, False, "identity")])
    vectors = encoder.encode(["abc", "a", "hello"])
    encoder.save(tmp_path / "saved")
    assert np.array_equal(tc.models.SentenceEncoder.from_pretrained(tmp_path / "saved").encode(["abc", "a", "hello"]), vectors)
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        pass
    else:
        theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(["abc", "a", "hello"])
        np.testing.assert_allclose(vectors, theirs, rtol=0, atol=1e-5)
    before = {name: p.detach().numpy().copy() for name, p in encoder.model.named_parameters()}
    encoder.fit([("abc", "a"), ("hello", "b"), ("xyz", "c")], epochs=2, learning_rate=1e-2, random_state=0)
    changed = {name for name, p in encoder.model.named_parameters() if not np.array_equal(p.detach().numpy(), before[name])}
    assert changed == set(before)


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("is_encoder_decoder = 'x'; expected True or False", {"is_encoder_decoder": "x"}),
        ("is_decoder = True", {"is_decoder": True}),
        ("d_kv = 0; expected an integer of at least 1", {"d_kv": 0}),
        ("feed_forward_proj = 7", {"feed_forward_proj": 7}),
        ("num_heads = '3'", {"num_heads": "3"}),
    ],
)
def test_what_is_not_computed_is_refused(message, values):
    with pytest.raises(tc.CheckpointError, match=message):
        create(**values)


def test_refusals():
    model = create()
    state = tc.convert.to_hf(model)
    for values in ({"d_kv": 5}, {"num_heads": 2}, {"d_ff": 10**9}, {"d_model": 10**9}):
        with pytest.raises(tc.CheckpointError, match="has shape"):
            tc.convert.from_hf(state, {**CONFIG, **values})
    with pytest.raises(tc.CheckpointError, match=r"arrays that T5 does not know: 'decoder\.final"):
        tc.convert.from_hf({**state, "decoder.final_layer_norm.weight": np.ones(16, np.float32)}, CONFIG)
    with pytest.raises(tc.CheckpointError, match=r"the weights lack 'encoder\.block\.0\.layer\.0\.SelfAttention\.q\.weight"):
        tc.convert.from_hf(
            {"shared.weight": np.ones((64, 16), np.float32), **{k: v for k, v in state.items() if "Attention.q" not in k}}, CONFIG
        )
    with pytest.raises(ValueError, match="for t5 there are none, or None for the model without a head"):
        tc.models.create(CONFIG, task="text2text-generation")
    for said in (["T5EncoderModel", "T5Model"], "T5EncoderModel", [["T5EncoderModel"]], [7], 7, [], None):
        assert type(tc.models.create({**CONFIG, "architectures": said})).__name__ == "T5"
    with pytest.raises(tc.CheckpointError, match="is_encoder_decoder"):
        tc.models.create({**CONFIG, "architectures": None, "is_encoder_decoder": False})
    assert type(tc.models.create({"model_type": "bert", **ALONE, "vocab_size": 9, "hidden_size": 12})).__name__ == "Bert"
