"""Fine-tuning of a SentenceEncoder: the loss against sentence-transformers' numbers and float64 NumPy, the steps against a loop by hand."""

import numpy as np
import pytest
import transformer_c as tc
from folders import CONFIG, sentence_folder
from golden import load
from transformer_c.models.contrastive import ranking_loss
from transformer_c.models.pooling import POOLINGS, of_text, recorded
from words import letters

ARRAYS = load("classifiers")["contrast"][1]
PAIRS = [("one", "1"), ("two", "22"), ("three", "333"), ("four", "4444"), ("five", "5"), ("six", "66"), ("seven", "77")]
TRIPLES = [(*pair, "0" * (1 + i % 3)) for i, pair in enumerate(PAIRS)]


def make(**options):
    tc.manual_seed(1)
    return tc.models.SentenceEncoder(tc.models.create({**CONFIG, "initializer_range": 0.3}), letters, **options)


def weights(encoder):
    return {name: value.numpy().tobytes() for name, value in encoder.model.state_dict().items()}


def reference(anchors, *others, scale=20.0):
    """The loss in float64."""
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (anchors, np.concatenate(others)))
    scores = scale * a @ b.T
    return np.mean([np.log(np.exp(row - row[i]).sum()) for i, row in enumerate(scores)])


def test_the_loss_and_its_gradients():
    a, b, c = (tc.tensor(ARRAYS[name], requires_grad=True) for name in "abc")
    assert ranking_loss(a, [b], 20.0).item() == pytest.approx(float(ARRAYS["two"]), rel=1e-12)
    loss = ranking_loss(a, [b, c], 20.0)
    assert loss.item() == pytest.approx(float(ARRAYS["three"]), rel=1e-12) == reference(*(ARRAYS[name] for name in "abc"))
    loss.backward()
    for tensor, name in ((a, "da"), (b, "db"), (c, "dc")):
        np.testing.assert_allclose(tensor.grad.numpy(), ARRAYS[name], rtol=0, atol=1e-11)
    assert ranking_loss(a, [b], 5.0).item() == pytest.approx(reference(ARRAYS["a"], ARRAYS["b"], scale=5.0))


@pytest.mark.parametrize("skipped", [0, 3])
def test_poolings_with_gradients_are_those_of_encode(rng, skipped):
    lengths = np.array([7, 4, 2])
    states = rng.standard_normal((3, 7, 5))
    for names in [(name,) for name in POOLINGS] + [("cls", "max")]:
        x = tc.tensor(states, requires_grad=True)
        found = recorded(names, x, lengths, skipped)
        firsts = np.minimum(skipped, lengths - 1)
        expected = [of_text(names, s[:n], skipped) for s, n in zip(states, lengths, strict=True)]
        np.testing.assert_allclose(found.detach().numpy(), expected, rtol=0, atol=1e-12)
        (found**2).sum().backward()
        gradient = x.grad.numpy()
        for i, (n, f) in enumerate(zip(lengths, firsts, strict=True)):
            assert not gradient[i, n:].any() and not gradient[i, :f].any() and gradient[i, f:n].any()


@pytest.mark.parametrize("groups", [PAIRS, TRIPLES], ids=["pairs", "triples"])
def test_a_loop_by_hand(groups):
    """The same bits: batches, schedule, dropout."""
    encoder = make(pooling=("cls",)).fit(groups, epochs=2, batch_size=3, learning_rate=1e-3, scale=10.0, random_state=4)

    model = make().model
    tc.manual_seed(4)
    matrices, others = [p for p in model.parameters() if p.ndim > 1], [p for p in model.parameters() if p.ndim == 1]
    optimizer = tc.optim.AdamW([{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=1e-3)
    schedule = tc.optim.LambdaLR(optimizer, lambda step: step if step < 1 else (6 - step) / 5)
    model.train()
    losses = []
    for _ in range(2):
        order = tc.randperm(7).tolist()
        for rows in (order[:3], order[3:6], order[6:]):
            vectors = []
            for column in range(len(groups[0])):
                tokens = [ids for ids, _ in letters([groups[i][column] for i in rows])]
                ids = np.zeros((len(rows), max(map(len, tokens))), np.int64)
                for row, own in zip(ids, tokens, strict=True):
                    row[: len(own)] = own
                vectors.append(model(tc.tensor(ids), lengths=tc.tensor([len(own) for own in tokens]))[:, 0])
            first, *rest = (tc.nn.functional.normalize(v) for v in (vectors[0], tc.cat(vectors[1:], 0)))
            loss = tc.nn.functional.cross_entropy(first @ rest[0].transpose(0, 1) * 10.0, tc.tensor(np.arange(len(rows))))
            losses.append(loss.item() * len(rows) / 7)
            optimizer.zero_grad()
            loss.backward()
            tc.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    assert weights(encoder) == {name: value.numpy().tobytes() for name, value in model.state_dict().items()}
    np.testing.assert_allclose([entry["loss"] for entry in encoder.history], [sum(losses[:3]), sum(losses[3:])], rtol=1e-12)


def test_it_learns_and_is_saved(tmp_path):
    pytest.importorskip("tokenizers")
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    encoder = tc.models.SentenceEncoder.from_pretrained(sentence_folder(tmp_path, {**CONFIG, **still}))
    before = encoder.encode(["one", "1"])
    encoder.fit(PAIRS, epochs=25, batch_size=7, learning_rate=5e-3, prompt_names=["query", None], random_state=0)
    questions, answers = encoder.encode([a for a, _ in PAIRS], prompt_name="query"), encoder.encode([b for _, b in PAIRS])
    assert encoder.similarity(questions, answers).argmax(1).tolist() == list(range(7))
    assert not encoder.model.training and not np.array_equal(encoder.encode(["one", "1"]), before)
    encoder.save(tmp_path / "saved")
    loaded = tc.models.SentenceEncoder.from_pretrained(tmp_path / "saved")
    assert repr(loaded) == repr(encoder) and loaded.prompts == encoder.prompts and loaded.similarity_function == "dot"
    assert np.array_equal(loaded.encode([b for _, b in PAIRS]), answers)
    for i, names in enumerate((("max", "cls"), ("cls", "cls"))):  # as sentence-transformers has them from version 6 on
        other = tc.models.SentenceEncoder(encoder.model, encoder.tokenizer, names)
        other.save(tmp_path / str(i))
        loaded = tc.models.SentenceEncoder.from_pretrained(tmp_path / str(i))
        assert loaded.pooling == names and np.array_equal(loaded.encode(["one"]), other.encode(["one"]))
    two = make(pooling=("cls", "max"), include_prompt=False, lowercase=True)
    two.save(tmp_path / "two")
    assert sorted(p.name for p in (tmp_path / "two").iterdir()) == [
        "1_Pooling", "config.json", "config_sentence_transformers.json", "model.safetensors", "modules.json", "sentence_bert_config.json",
    ]  # fmt: skip


def test_one_group_with_a_wrong_answer_is_enough():
    assert make().fit(TRIPLES[:1], random_state=0).history[0]["loss"] > 0


def test_seeds_and_mistakes():
    first = weights(make().fit(PAIRS, batch_size=3, learning_rate=1e-3, random_state=3))
    tc.manual_seed(77)
    encoder = make()
    assert weights(encoder.fit(PAIRS, batch_size=3, learning_rate=1e-3, random_state=3)) == first
    half = make()
    half.model.to(dtype="float16")
    assert half.fit(PAIRS).model.words.weight.dtype == np.float32
    before = dict(vars(encoder))
    for error, message, pairs, options in (
        (TypeError, r"pairs must be \(anchor, positive\)", ["ab", "cd"], {}),
        (TypeError, r"number 1 is \('a', 3\)", [("a", "b"), ("a", 3)], {}),
        (ValueError, "number 1 has 3 texts", [("a", "b"), ("a", "b", "c")], {}),
        (ValueError, "no pairs", [], {}),
        (ValueError, "a batch of one pair has no wrong answers", PAIRS[:1], {}),
        (ValueError, "a batch of one pair has no wrong answers", PAIRS, {"batch_size": 1}),
        (TypeError, "texts must be a sequence", "abc", {}),
        (ValueError, "has 1 names, but a pair has 2", PAIRS, {"prompt_names": ["q"]}),
        (ValueError, "prompt_name is 'q'", PAIRS, {"prompt_names": ["q", None]}),
        (ValueError, "2 arguments are wrong", PAIRS, {"epochs": 0, "warmup": -1}),
        (ValueError, "scale must not be negative", PAIRS, {"scale": -1}),
        (ValueError, "diverged", PAIRS, {"learning_rate": 1e30, "max_norm": 0, "warmup": 0, "epochs": 3}),
    ):
        with pytest.raises(error, match=message):
            encoder.fit(pairs, **options)
        assert vars(encoder) == before and weights(encoder) == first
