"""Nothing is computed for padding: what the layers of a model see, and that results and gradients are those of each text alone."""

import numpy as np
import pytest
import transformer_c as tc
from folders import own_text_encoders, sizes, text_tasks
from transformer_c.models.architectures import ARCHITECTURES
from transformer_c.models.llama import Llama

KINDS = own_text_encoders()
LENGTHS = np.array([5, 1, 40, 17, 8])
T, E, WORDS = 42, 32, 60


def create(kind, task=None, dtype="float64", dropout=0.0):
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout"), dropout)
    rates |= dict.fromkeys(("hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    rates |= dict.fromkeys(("classifier_dropout", "seq_classif_dropout", "qa_dropout", "embedding_dropout", "mlp_dropout"), dropout)
    values = {**sizes(width=E, heads=2, hidden=48, layers=2, words=WORDS, positions=60), "num_labels": 3, "initializer_range": 0.2}
    tc.manual_seed(0)
    return tc.models.create({"model_type": kind, **values, **rates}, task=task).to(dtype=dtype)


def batch(kind, lengths=LENGTHS, width=T):
    """ids (B, T) with the padding of the kind, and the mask."""
    ids = np.random.default_rng(1).integers(4, WORDS, (len(lengths), width))
    mask = np.arange(width) < np.asarray(lengths)[:, None]
    return np.where(mask, ids, create(kind).words.padding_idx or 0), mask


def counted(model):
    """A list that gets the shape of what each linear layer and norm of the model computes for tokens, not for distances."""
    shapes, bias = [], getattr(model, "encoder", model).bias(LENGTHS.max())
    others = len(bias.table) if isinstance(bias, tuple) else None

    def add(part, inputs, result):
        if result.shape[-2] != others:
            shapes.append(tuple(result.shape))

    for name, part in model.named_modules():
        if isinstance(part, (tc.nn.Linear, tc.nn.LayerNorm)) and not name.endswith(("far_key", "far_query")):
            part.register_forward_hook(add)
    return shapes


@pytest.mark.parametrize("way", ["lengths", "mask", "both"])
@pytest.mark.parametrize(("kind", "task"), text_tasks())
def test_rows_that_are_computed(kind, task, way):
    """As many as there are tokens, in every layer; and those of the head, where it is for tokens."""
    model = create(kind, task)
    ids, mask = batch(kind)
    given = {"mask": mask.astype(np.int64), "lengths": LENGTHS}
    shapes = counted(model)
    model(ids, **{name: value for name, value in given.items() if way in (name, "both")})
    rows = [int(np.prod(shape[:-1])) for shape in shapes]
    assert len(rows) > 6
    few = {"token-classification": len(LENGTHS) * T, "question-answering": len(LENGTHS) * T, "text-classification": len(LENGTHS)}
    assert set(rows) <= {LENGTHS.sum(), few.get(task)}
    assert rows.count(LENGTHS.sum()) >= 6


def test_attention_is_computed_within_texts(monkeypatch):
    """The lengths reach attention, so that it computes the sum of their squares and not the square of their sum."""
    found = []
    attend = tc.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        tc.functional, "scaled_dot_product_attention", lambda q, *a, **k: (found.append((q.shape, k)), attend(q, *a, **k))[1]
    )
    ids, _ = batch("bert")
    create("bert")(ids, lengths=LENGTHS)
    assert len(found) == 2
    for shape, options in found:
        assert shape == (1, 2, LENGTHS.sum(), E // 2) and np.array_equal(options["sequence_lengths"].numpy(), LENGTHS)


@pytest.mark.parametrize("kind", KINDS)
def test_full_batches_stay_as_they_are(kind):
    model = create(kind)
    ids, _ = batch(kind, [T] * 3)
    shapes = counted(model)
    plain = model(ids)
    for given in ({"lengths": np.full(3, T)}, {"mask": np.ones((3, T))}):
        shapes.clear()
        np.testing.assert_array_equal(model(ids, **given), plain)
        assert {shape[:2] for shape in shapes} == {(3, T)}


@pytest.mark.parametrize(("kind", "task"), text_tasks())
def test_results_and_gradients_are_those_of_each_text(kind, task):
    """And 0 at padded positions, which give no gradient."""
    rng = np.random.default_rng(2)
    packed, alone = create(kind, task), create(kind, task)
    ids, mask = batch(kind)
    states = packed(tc.tensor(ids), lengths=tc.tensor(LENGTHS))
    weights = rng.standard_normal(states.shape)
    (states * tc.tensor(weights)).sum().backward()
    if states.ndim == 3 and task in (None, "fill-mask"):
        assert not states.detach().numpy()[~mask].any()
    for i, n in enumerate(LENGTHS):
        own = alone(tc.tensor(ids[i : i + 1, :n]))
        expected = own.detach().numpy()[0]
        np.testing.assert_allclose(
            states.detach().numpy()[i][: len(expected)] if own.ndim == 3 else states.detach().numpy()[i], expected, rtol=1e-12, atol=1e-13
        )
        upstream = weights[i : i + 1, :n] if own.ndim == 3 else weights[i : i + 1]
        (own * tc.tensor(upstream)).sum().backward()
    if task in ("token-classification", "question-answering"):
        with tc.no_grad():  # the head's bias is at padded positions too
            extra = (weights * ~mask[:, :, None]).sum((0, 1))
            alone.out.bias.grad = alone.out.bias.grad + tc.tensor(extra)
    for (name, a), b in zip(packed.named_parameters(), alone.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), name
        if a.grad is not None:
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-11, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_padding_at_other_places_is_computed(kind, dtype):
    """By a mask, as before; the result is 0 there too."""
    model = create(kind, dtype=dtype)
    ids, _ = batch(kind, [T] * 3)
    mask = np.ones((3, T), np.int64)
    mask[0, :4] = mask[1, 7] = mask[2, 30:] = 0
    shapes = counted(model)
    states = np.asarray(model(ids, mask)).astype(np.float32)
    assert {shape[:2] for shape in shapes} == {(3, T)}
    assert not states[mask == 0].any() and states[mask == 1].any(-1).all()
    np.testing.assert_array_equal(states[2, :30], np.asarray(model(ids[2:, :30])).astype(np.float32)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_texts_without_tokens(kind):
    model = create(kind)
    ids, _ = batch(kind, [0, 7, 0], 9)
    states = model(ids, lengths=[0, 7, 0])
    np.testing.assert_array_equal(states[1, :7], model(ids[1:2, :7])[0])
    assert not states[[0, 2]].any() and not states[1, 7:].any()
    assert not model(ids, lengths=[0, 0, 0]).any()


def test_dropout_follows_the_seed():
    model = create("bert", dropout=0.3).train()
    ids, mask = batch("bert")
    found = []
    for _ in range(2):
        tc.manual_seed(4)
        found.append(model(ids, lengths=LENGTHS))
    np.testing.assert_array_equal(*found)
    assert not found[0][~mask].any() and (found[0] != create("bert")(ids, lengths=LENGTHS))[mask].mean() > 0.9


@pytest.mark.parametrize(
    ("lengths", "error", "message"),
    [
        ([5, 43], ValueError, r"lengths are from 5 to 43; they must be from 0 to 42: ids have \(2, 42\)"),
        ([-1, 3], ValueError, "lengths are from -1 to 3"),
        ([1, 2, 3], ValueError, r"lengths must be integers of shape \(B,\) = \(2,\), got int64 of shape \(3,\)"),
        ([1.0, 2.0], TypeError, r"got float64 of shape \(2,\)"),
    ],
)
def test_wrong_lengths(lengths, error, message):
    ids, _ = batch("bert", [T, T])
    with pytest.raises(error, match=message):
        create("bert")(ids, lengths=lengths)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_in_front(kind):
    """It is computed. Where positions are counted from the tokens, a text has the bits that it has alone; where they are not, it has others."""
    model = create(kind)
    ids, _ = batch(kind, [5], 12)
    text, front = ids[:, :5], np.roll(ids, 7, axis=1)
    alone, found = model(text)[0], model(front, (np.arange(12) >= 7)[None])[0]
    assert not found[:7].any()
    if model.places(text) is not None:
        assert np.array_equal(found[7:], alone)
    elif hasattr(model, "positions"):
        assert np.abs(found[7:] - alone).max() > 0.1
    else:
        np.testing.assert_allclose(found[7:], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [kind for kind, task in text_tasks() if task == "text-classification"])
def test_a_text_that_begins_with_padding_has_no_first_token_to_be_judged_by(kind):
    """Its scores would be those of zeros; one without any token has them."""
    model, (ids, mask) = create(kind, "text-classification"), batch(kind, [4, 0, 2], 6)
    mask[2] = np.roll(mask[2], 1)
    for given in (mask, tc.tensor(mask.astype(np.float32))):
        with pytest.raises(ValueError, match=r"text number 2 begins with padding \(mask\[2, 0\] is 0\).*pad texts at their ends"):
            model(ids, given)
    assert model(ids[:2], mask[:2]).shape == (2, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_every_dropout_is_called_with_its_rate(kind, monkeypatch):
    """Of the embeddings, twice in each layer, of DistilBERT once, and within attention; of Llama, CLIP and SigLIP there alone, of Phi-3 not of the embeddings, of
    ALBERT's and XLM-RoBERTa-XL's networks not; none where nothing is trained. DeBERTa also drops from its distances and its convolution, and calls attention for each text."""
    rates, model = [], create(kind, dropout=0.25)
    attend = tc.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        tc.functional, "scaled_dot_product_attention", lambda *a, **k: (rates.append(("attention", k["dropout_p"])), attend(*a, **k))[1]
    )
    for part in model.modules():
        if isinstance(part, tc.nn.Dropout):
            part.register_forward_hook(lambda part, inputs, result: rates.append(("dropout", part.p)))
    ids, mask = batch(kind)
    model.train()(ids, mask)
    attended = 0.0 if kind == "distilbert" else 0.25
    expected = [("dropout", 0.25), *[("attention", 0.25), ("dropout", attended), ("dropout", 0.25)] * 2]
    if issubclass(ARCHITECTURES[kind], Llama) or kind in ("clip_text_model", "siglip_text_model"):
        expected = expected[1:] if kind == "phi3" else [("attention", 0.25), ("dropout", 0.0), ("dropout", 0.0)] * 2
    if kind in ("albert", "xlm-roberta-xl"):
        expected = [("dropout", 0.25), *[("attention", 0.25), ("dropout", 0.25), ("dropout", 0.0)] * 2]
    if kind in ("deberta", "deberta-v2"):
        one = ("dropout", 0.25)
        expected = [one, *[one, *[("attention", 0.25)] * len(LENGTHS), one, one] * 2]
        if kind == "deberta-v2":
            expected.insert(len(expected) // 2 + 1, one)
    assert rates == expected
    rates.clear()
    model.eval()(ids, mask)
    assert {rate for name, rate in rates if name == "attention"} == {0.0}


def test_maps_of_texts_that_are_all_shorter_than_the_batch():
    """Their sides are those of ids, with 0 beyond the tokens."""
    model = create("bert")
    ids, _ = batch("bert", [3, 7], 9)
    with tc.nn.attention_maps(model) as maps:
        model(ids, lengths=[3, 7])
    assert len(maps) == 2
    for found in maps.values():
        found = np.asarray(found)
        assert found.shape == (2, 2, 9, 9)
        for text, length in zip(found, (3, 7), strict=True):
            np.testing.assert_allclose(text[:, :length, :length].sum(-1), 1)
            assert not text[:, :, length:].any()


@pytest.mark.parametrize("front", [0, 2])
def test_a_mask_and_lengths_that_differ(front):
    """A token is one where both say so, with padding at the end and, unpacked, in front."""
    model = create("bert")
    ids, _ = batch("bert", [9, 9], 9)
    places = np.arange(9)
    mask = np.array([(places >= front) & (places < 5), (places >= front) & (places < 4)])
    lengths = np.array([3, 8])
    found = np.asarray(model(ids, mask, lengths))
    within = mask & (places < lengths[:, None])
    assert within.sum() == 3 + 4 - 2 * front
    np.testing.assert_allclose(found, np.asarray(model(ids, within)), atol=1e-12)
    assert not found[~within].any() and found[within].any(-1).all()


@pytest.mark.parametrize("name", ["qkv", "out", "linear1", "linear2"])
def test_another_layer_in_the_place_of_one_is_called(name):
    """Such as the sum of a frozen layer and of a small trained one; and the hooks of a layer are."""
    model = create("bert")
    ids, _ = batch("bert")
    expected, layer = model(ids, lengths=LENGTHS), model.layers[1]
    linear, found = getattr(layer, name), []
    with linear.register_forward_hook(lambda part, inputs, result: found.append(result.shape[:2])):
        np.testing.assert_allclose(model(ids, lengths=LENGTHS), expected, rtol=0, atol=1e-13)
    assert found == [(1, LENGTHS.sum())]
    more = tc.nn.Linear(linear.in_features, linear.out_features).to(dtype="float64")

    class Sum(tc.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.more = linear, more

        def forward(self, x):
            return self.first(x) + self.more(x)

    setattr(layer, name, Sum())
    result = model(tc.tensor(ids), lengths=LENGTHS)
    result.sum().backward()
    assert more.weight.grad is not None
    with tc.no_grad():
        linear.weight.add_(more.weight), linear.bias.add_(more.bias)
    setattr(layer, name, linear)
    np.testing.assert_allclose(result.detach().numpy(), model(ids, lengths=LENGTHS), rtol=0, atol=1e-12)


@pytest.mark.parametrize("lengths", [None, [3, 9]])
@pytest.mark.parametrize("name", ["words", "positions", "types"])
def test_another_embedding_in_the_place_of_one_is_called(name, lengths):
    """And so are its hooks, whether texts are padded or not, and with or without the parts of a pair."""
    model = create("bert")
    ids, _ = batch("bert", [9, 9])
    first = getattr(model, name)
    expected = model(ids, lengths=lengths)

    class Twice(tc.nn.Module):
        def forward(self, numbers):
            return 2 * first(numbers)

    with tc.no_grad():
        first.weight *= 0.5
    setattr(model, name, Twice())
    np.testing.assert_allclose(model(ids, lengths=lengths), expected, atol=1e-12)
    setattr(model, name, first)
    first.register_forward_hook(lambda part, inputs, result: 2 * result)
    np.testing.assert_allclose(model(ids, lengths=lengths), expected, atol=1e-12)
