"""TextClassifier with several labels of a text, and with numbers: transformers' losses and answers, scikit-learn's predictions and scores."""

import json

import numpy as np
import pytest
import transformer_c as tc
from folders import CONFIG
from golden import load
from transformer_c.models.problems import REGRESSION, r2
from words import LABELS, NUMBERS, SEVERAL, TEXTS, columns, letters, padded, tagged, write_tokenizer

CASES = load("classifiers")
MULTI, SINGLE = "multi_label_classification", "single_label_classification"
GIVEN = {"labels": np.array(SEVERAL), "numbers": np.array(NUMBERS), "columns": columns()}
PROBLEMS = {"labels": MULTI, "numbers": "regression", "columns": "regression", "one": "regression"}
TASK = "text-classification"


class Frame:
    """A table with named columns, as of pandas and polars."""

    def __init__(self, values, *names):
        self.columns, self._values = list(names), np.asarray(values)

    def to_numpy(self):
        return self._values

    def __iter__(self):
        return iter(self.columns)


def pretrained(task=None, **values):
    tc.manual_seed(1)
    return tc.models.create({**CONFIG, "initializer_range": 0.3, **values}, task=task)


def made(**options):
    return tc.models.TextClassifier(
        options.pop("model", None) or pretrained(), tokenizer=letters, **{"epochs": 1, "random_state": 0, **options}
    )


@pytest.mark.parametrize("case", [*GIVEN, "one"])
def test_the_numbers_of_transformers(case):
    """Losses and scores of a fine-tuning, and what the pipeline makes of the scores. `one`: num_labels alone says that it is a regression."""
    options, arrays = CASES[case]
    assert ("problem_type" in options["config"]) == (case != "one")
    first = {**CASES["text"][1], **(CASES["numbers"][1] if case == "one" else {}), **arrays}
    state = {key[6:]: value for key, value in first.items() if key.startswith("state.")}
    model = tc.convert.from_hf(state, options["config"], task=TASK, dtype="float64")
    classifier = made(model=model, dtype="float64", learning_rate=1e-2, weight_decay=0.1, warmup=2 / 8, epochs=8, batch_size=7)
    assert case != "one" or classifier.problem_type_ == "regression"  # before it is trained
    classifier.fit(TEXTS, GIVEN["numbers" if case == "one" else case])
    np.testing.assert_allclose([entry["loss"] for entry in classifier.history_], arrays["losses"], rtol=1e-9)
    np.testing.assert_allclose(classifier.model_(*padded(TEXTS)), arrays["scores"], rtol=0, atol=1e-8)
    found = classifier.predict_proba(TEXTS) if case == "labels" else classifier.predict(TEXTS).reshape(7, -1)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, arrays["answers"], rtol=0, atol=1e-6)
    assert classifier.problem_type_ == PROBLEMS[case]


@pytest.mark.parametrize("case", GIVEN)
def test_predictions_and_scores_are_scikit_learns(case):
    metrics = pytest.importorskip("sklearn.metrics")
    classifier = made(epochs=12, learning_rate=1e-2).fit(TEXTS, GIVEN[case])
    found = classifier.predict(TEXTS)
    assert found.shape == GIVEN[case].shape and classifier.predict([]).shape == (0, *found.shape[1:])
    expected = metrics.accuracy_score if case == "labels" else metrics.r2_score
    assert classifier.score(TEXTS, GIVEN[case]) == pytest.approx(expected(GIVEN[case], found)) and classifier.score(TEXTS, found) == 1.0
    if case == "labels":
        assert np.array_equal(found, classifier.predict_proba(TEXTS) > 0.5) and found.dtype == np.int64
        assert classifier.classes_.tolist() == [0, 1, 2] and repr(classifier) == "TextClassifier(bert, 3 labels, max_length=None)"
    else:
        assert classifier.classes_ is None and found.dtype == np.float64
        with pytest.raises(AttributeError, match="no probabilities; predict"):
            classifier.predict_proba(TEXTS)


@pytest.mark.parametrize("case", GIVEN)
def test_validation(case):
    """The loss by hand from what is predicted; the best epoch is kept."""
    classifier = made(epochs=8, learning_rate=1e-2)
    classifier.fit(TEXTS, GIVEN[case], validation=(TEXTS[:4], GIVEN[case][3:]))
    best = min(classifier.history_, key=lambda entry: entry["val_loss"])
    wanted = GIVEN[case][3:]
    if case == "labels":
        odds = classifier.predict_proba(TEXTS[:4])
        loss = -np.log(np.where(wanted == 1, odds, 1 - odds)).mean()
    else:
        loss = ((classifier.predict(TEXTS[:4]) - wanted) ** 2).mean()
    assert loss == pytest.approx(best["val_loss"], abs=1e-6)
    name = "val_accuracy" if case == "labels" else "val_r2"
    assert set(best) == {"loss", "val_loss", name} and best[name] == pytest.approx(classifier.score(TEXTS[:4], wanted))


@pytest.mark.parametrize("case", GIVEN)
def test_folders(case, tmp_path):
    """config.json keeps the problem; a loaded head is trained further, not replaced."""
    pytest.importorskip("tokenizers")
    tc.models.save(pretrained(), tmp_path)
    write_tokenizer(tmp_path)
    classifier = tc.models.TextClassifier(tmp_path, epochs=2, random_state=0).fit(TEXTS, GIVEN[case])
    classifier.save(tmp_path / "saved")
    config = json.loads((tmp_path / "saved/config.json").read_text())
    assert config["problem_type"] == PROBLEMS[case] and len(config["id2label"]) == (1 if case == "numbers" else 3)
    loaded = tc.models.TextClassifier(tmp_path / "saved", learning_rate=0.0, epochs=1)
    assert loaded.problem_type_ == PROBLEMS[case] and np.array_equal(loaded.predict(TEXTS), classifier.predict(TEXTS))
    assert (loaded.classes_ is None) == (case != "labels")
    kept = loaded.fit(TEXTS, GIVEN[case]).model_.out.weight.numpy()
    assert np.array_equal(kept, classifier.model_.out.weight.numpy())
    model = tc.models.load(tmp_path / "saved", task=TASK)
    assert model.config["problem_type"] == PROBLEMS[case]
    tc.models.save(model, tmp_path / "again")
    assert json.loads((tmp_path / "again/config.json").read_text())["problem_type"] == PROBLEMS[case]
    other = tc.models.TextClassifier(tmp_path / "saved", problem_type=SINGLE)  # which this head is not for
    assert other.model_ is None and other.fit(TEXTS, LABELS).problem_type_ == SINGLE


@pytest.mark.unsanitized
@pytest.mark.parametrize("case", GIVEN)
def test_what_is_saved_is_read_by_transformers(case, tmp_path):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    classifier = made(epochs=2).fit(TEXTS, GIVEN[case])
    classifier.save(tmp_path)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert model.config.problem_type == PROBLEMS[case]
    ids, mask = (torch.tensor(x) for x in padded(TEXTS))
    with torch.no_grad():
        found = model(input_ids=ids, attention_mask=mask, labels=torch.tensor(GIVEN[case], dtype=torch.float32))
    np.testing.assert_allclose(found.logits.numpy(), classifier.model_(*padded(TEXTS)), atol=1e-5)
    assert torch.isfinite(found.loss)


def test_kinds_of_labels():
    """What `y` is decides, or problem_type."""
    for y, problem in (
        (LABELS, SINGLE),
        (list("abcabca"), SINGLE),
        (NUMBERS, "regression"),
        ([1, 2.5, *NUMBERS[2:]], "regression"),
        (np.array(NUMBERS, np.float32), "regression"),
        (SEVERAL, MULTI),
        (np.array(SEVERAL) == 1, MULTI),
        (np.array(SEVERAL, float), MULTI),
        ([tuple(row) for row in SEVERAL], MULTI),
        (tc.tensor(SEVERAL), MULTI),
        (columns(), "regression"),
    ):
        assert made().fit(TEXTS, y).problem_type_ == problem
    assert made(problem_type="regression").fit(TEXTS, LABELS).predict(TEXTS).shape == (7,)
    assert made(num_labels=1).fit(TEXTS, LABELS).problem_type_ == "regression"
    assert made(problem_type=MULTI).fit(TEXTS, np.array(SEVERAL)[:, :1]).predict(TEXTS).shape == (7, 1)
    sparse = pytest.importorskip("scipy.sparse")
    assert made().fit(TEXTS, sparse.csr_matrix(SEVERAL)).problem_type_ == MULTI


def test_names_of_columns():
    several = np.array(SEVERAL)
    classifier = made(epochs=3, learning_rate=1e-2).fit(TEXTS, Frame(several, "a", "e", "o"))
    assert classifier.classes_.tolist() == ["a", "e", "o"] == classifier.model_.labels
    turned = Frame(several[:, ::-1], "o", "e", "a")
    assert classifier.score(TEXTS, turned) == classifier.score(TEXTS, several) == classifier.score(TEXTS, Frame(several, "a", "e", "o"))
    further = made(model=classifier.model_, learning_rate=0.0).fit(TEXTS, turned, validation=(TEXTS, turned))
    assert further.classes_.tolist() == ["a", "e", "o"] and np.array_equal(further.predict(TEXTS), classifier.predict(TEXTS))
    assert further.history_[0]["val_accuracy"] == classifier.score(TEXTS, several)
    assert made(model=classifier.model_).fit(TEXTS, Frame(several, "x", "e", "o")).classes_.tolist() == ["x", "e", "o"]
    assert made().fit(TEXTS, Frame(columns(), "length", "square", "one")).model_.labels == ["length", "square", "one"]
    assert made().fit(TEXTS, Frame(several, 0, 1, 2)).classes_.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="y has the columns a, e, x, but the labels are 3: a, e, o"):
        classifier.score(TEXTS, Frame(several, "a", "e", "x"))


@pytest.mark.parametrize(
    ("options", "y", "error", "message"),
    [
        ({}, [0, 1.5, "a"], TypeError, "all str or all int, but number 1 is 1.5"),
        ({}, [0.5, float("nan"), 1.0], ValueError, "finite numbers, but number 1 is nan"),
        ({}, [0.5, np.inf, 1.0], ValueError, "finite numbers, but number 1 is inf"),
        ({}, [[1, 0], [0, 1], 1], TypeError, r"one kind, but number 0 is \[1, 0\]"),
        ({}, [[1, 0], [0, 1], [1]], ValueError, "labels number 2 are 1 values, but number 0 are 2"),
        ({}, [["joy"], [], ["fear"]], TypeError, "scikit-learn's MultiLabelBinarizer"),
        ({}, [{"joy"}, {"fear"}, {"joy"}], TypeError, "scikit-learn's MultiLabelBinarizer"),
        ({}, [{2, 5}, {0, 3}, {1, 2}], TypeError, "scikit-learn's MultiLabelBinarizer"),  # which were numbers to be predicted
        ({}, [[1, None], [0, 1], [0, 0]], TypeError, "labels number 0"),
        ({}, np.ones((3, 1)), ValueError, r"shape \(3, 1\); one label of each text is y\[:, 0\]"),
        ({}, np.ones((3, 0)), ValueError, r"the shape \(3, 0\)"),
        ({}, np.ones((3, 2, 2)), ValueError, r"the shape \(3, 2, 2\)"),
        ({}, np.ones((2, 2)), ValueError, "3 texts but 2 labels"),
        ({}, None, TypeError, "y must be a sequence of labels, not None"),
        ({}, "aba", TypeError, "y must be a sequence of labels, not str"),
        ({}, Frame(np.ones((3, 2)), "a", "a"), ValueError, "two columns of one name"),
        ({"problem_type": MULTI}, [0, 1, 1], TypeError, "array of 0 and 1"),
        ({"problem_type": MULTI}, [[0, 2], [1, 0], [0, 1]], ValueError, "must be 0 and 1, but it has 2"),
        ({"problem_type": MULTI}, [[0, np.nan], [1, 0], [0, 1]], ValueError, "must be 0 and 1, but it has nan"),
        ({"problem_type": SINGLE}, [[0, 1], [1, 0], [0, 1]], TypeError, r"one label of each text, but it has the shape \(3, 2\)"),
        ({"problem_type": SINGLE}, [0.0, 1.0, 2.0], TypeError, "number 0 is 0.0"),
        ({"problem_type": "regression"}, ["a", "b", "c"], TypeError, "y must be numbers, but number 0 is 'a'"),
        ({"problem_type": "regression"}, [True, False, True], TypeError, "y must be numbers, but number 0 is True"),
        ({"problem_type": MULTI, "num_labels": 3}, [[0, 1], [1, 0], [0, 1]], ValueError, "num_labels is 3, but y has 2 columns"),
        ({"num_labels": 1}, [[0.0, 1.5], [1, 0], [0, 1]], ValueError, "num_labels is 1, but y has 2 columns"),
    ],
)
def test_labels_that_are_refused(options, y, error, message):
    """And change nothing."""
    classifier = made(**options)
    before = dict(vars(classifier))
    with pytest.raises(error, match=message):
        classifier.fit(["a", "b", "c"], y)
    assert vars(classifier) == before


def test_arguments_that_are_refused():
    with pytest.raises(ValueError, match=f"problem_type must be '{SINGLE}' or '{MULTI}' or 'regression', got 'multilabel'"):
        made(problem_type="multilabel")
    with pytest.raises(ValueError, match=f"problem_type must be '{SINGLE}', got 'regression'"):
        tc.models.TokenClassifier(pretrained(), problem_type="regression", tokenizer=letters)
    with pytest.raises(ValueError, match="num_labels must be at least 2, got 1"):
        made(problem_type=SINGLE, num_labels=1)
    with pytest.raises(ValueError, match="no labels to train with"):
        made(problem_type="regression").fit([], [])
    numbers = made().fit(TEXTS, NUMBERS)
    for y, kind in ((LABELS, "classes"), (SEVERAL, "labels")):
        with pytest.raises(ValueError, match=rf"predicts numbers, but y, .* may be {kind}: say problem_type='regression' or"):
            made(model=numbers.model_).fit(TEXTS, y)
    assert made(model=numbers.model_, problem_type=SINGLE).fit(TEXTS, LABELS).problem_type_ == SINGLE
    assert made(model=numbers.model_).fit(TEXTS, list("abcabca")).problem_type_ == SINGLE
    with pytest.raises(ValueError, match="y has 1 column, but the labels are 3"):
        made().fit(TEXTS, SEVERAL, validation=(TEXTS, np.array(SEVERAL)[:, :1]))
    with pytest.raises(TypeError, match="y must be numbers"):
        numbers.score(TEXTS, ["a"] * 7)
    with pytest.raises(RuntimeError, match="call fit first"):
        made().score(TEXTS, NUMBERS)


def test_one_label_without_a_problem():
    """A number, as in transformers' models."""
    for names in ({"num_labels": 1}, {"id2label": {"0": "stars"}}):
        model = pretrained(TASK, **names)
        for options in ({}, {"problem_type": "regression"}, {"num_labels": 1}):
            classifier = made(model=model, **options)
            np.testing.assert_array_equal(classifier.predict(TEXTS), model(*padded(TEXTS))[:, 0])
            assert classifier.problem_type_ == "regression" and classifier.classes_ is None
    fitted = made(model=model, epochs=2, learning_rate=1e-2).fit(TEXTS, NUMBERS)
    assert fitted.model_.labels == ["stars"] and fitted.model_.config["problem_type"] == "regression"
    with pytest.raises(ValueError, match=r"predicts numbers, but y, .* may be classes: say problem_type='regression' or"):
        made(model=model).fit(TEXTS, LABELS)
    assert made(model=model, problem_type=SINGLE).fit(TEXTS, LABELS).classes_.tolist() == [0, 1, 2]
    with pytest.raises(tc.CheckpointError, match="problem_type = 'single_label_classification'; expected null or 'regression' with one"):
        made(model=pretrained(TASK, num_labels=1, problem_type=SINGLE))
    named = pretrained(TASK, num_labels=1, problem_type="regression")
    assert tc.models.CrossEncoder(named, letters).predict([("a", "b")]).shape == (1,)


@pytest.mark.unsanitized
def test_one_label_of_words(tmp_path):
    """It is a class, which all words have; transformers would not read a config.json that calls it one."""
    transformers = pytest.importorskip("transformers")
    model = pretrained("token-classification", id2label={"0": "word"})
    classifier = tc.models.TokenClassifier(model, tokenizer=tagged, epochs=1)
    assert classifier.predict([["ab", "c"]]) == [["word", "word"]] and classifier.predict_proba([["a"]])[0].tolist() == [[1.0]]
    classifier.fit([["ab", "c"]], [["word", "word"]]).save(tmp_path)
    assert transformers.AutoConfig.from_pretrained(tmp_path).num_labels == 1


def test_two_classes_of_one_name():
    model = pretrained(TASK, id2label={"0": "a", "1": "b", "2": "a"})
    assert set(made(model=model).predict(TEXTS)) <= {"a", "b"}
    with pytest.raises(ValueError, match="two classes of one name"):
        made(model=model).fit(["a", "b"], ["a", "b"])


def test_r2():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    for shape in ((5,), (6, 3)):
        found, wanted = rng.normal(size=shape), rng.normal(size=shape)
        assert r2(found, wanted) == pytest.approx(metrics.r2_score(wanted, found), abs=1e-14)
    constant = np.ones(4)
    assert r2(constant, constant) == metrics.r2_score(constant, constant) == 1.0
    assert r2(found[:4, 0], constant) == metrics.r2_score(constant, found[:4, 0]) == 0.0
    assert np.isnan(r2([1.0], [1.0])) and REGRESSION.metric == "r2"


def test_scikit_learn():
    base, selection = pytest.importorskip("sklearn.base"), pytest.importorskip("sklearn.model_selection")
    numbers, several = made(problem_type="regression"), made(problem_type=MULTI)
    assert base.is_regressor(numbers) and not base.is_classifier(numbers) and base.is_classifier(several)
    assert base.clone(numbers).problem_type == "regression" and numbers.set_params(problem_type=MULTI).problem_type == MULTI
    texts = np.array(TEXTS * 2)
    assert selection.cross_val_score(made(problem_type="regression"), texts, np.array(NUMBERS * 2), cv=2).shape == (2,)
    assert selection.cross_val_score(several, texts, np.array(SEVERAL * 2), cv=2).shape == (2,)


def test_the_same_bits_in_any_batch(isa):
    for classifier in (made().fit(TEXTS, SEVERAL), made().fit(TEXTS, NUMBERS)):
        ask = classifier.predict_proba if classifier.problem_type_ == MULTI else classifier.predict
        alone = [ask([text])[0] for text in TEXTS]
        for size in (7, 2):
            assert np.array_equal(ask(TEXTS, batch_size=size), alone)
