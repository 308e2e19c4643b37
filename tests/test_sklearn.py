"""The estimators: scikit-learn's own checks, its tools around them, and each kind of input."""

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import transformer_c as tc

pytest.importorskip("sklearn", "1.6")
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from transformer_c.sklearn import TransformerClassifier, TransformerRegressor, training

SMALL = {"d_model": 16, "n_heads": 2, "n_layers": 1, "max_epochs": 15}
# test_weights_count_as_repetitions has what is true of it
UNEQUAL = {
    "check_sample_weight_equivalence_on_dense_data": "repeating a sample makes other batches; with one batch the results are equal up to rounding"
}


@parametrize_with_checks([TransformerClassifier(**SMALL), TransformerRegressor(**SMALL)], expected_failed_checks=lambda e: UNEQUAL)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


rng = np.random.default_rng(0)
TABLE = rng.standard_normal((120, 3))
CLASSES = np.array(["cold", "hot", "mild"])[np.digitize(TABLE[:, 0], (-0.4, 0.4))]
NUMBERS = 100 + 10 * TABLE[:, 0]


def test_digits():
    """One of three folds; all three take three times as long."""
    X, y = load_digits(return_X_y=True)
    train, test = slice(300, 900), slice(0, 300)
    assert TransformerClassifier(random_state=0).fit(X[train], y[train]).score(X[test], y[test]) >= 0.85


@pytest.mark.parametrize(("kind", "y"), [(TransformerClassifier, CLASSES), (TransformerRegressor, NUMBERS)])
def test_the_same_seed_gives_the_same_bits(kind, y):
    def outputs(seed, threads=2):
        state, before = tc.random.default_generator.get_state(), tc.get_num_threads()
        tc.set_num_threads(threads)
        try:
            found = kind(**SMALL, dropout=0.2, early_stopping=True, random_state=seed).fit(TABLE, y)._outputs(TABLE)
        finally:
            tc.set_num_threads(before)
        assert (np.asarray(tc.random.default_generator.get_state()) == np.asarray(state)).all()  # nobody else's numbers
        return found.tobytes()

    assert outputs(1) == outputs(1, threads=1) == outputs(np.random.RandomState(1)) != outputs(2)


def test_fits_in_threads_draw_their_own_numbers():
    def outputs(seed):
        return (
            TransformerClassifier(**SMALL | {"max_epochs": 2}, dropout=0.2, random_state=seed).fit(TABLE, CLASSES)._outputs(TABLE).tobytes()
        )

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(outputs, [1, 2])] == [outputs(1), outputs(2)]


def test_tools_around_it():
    model = make_pipeline(MinMaxScaler(), TransformerClassifier(**SMALL, random_state=0))
    search = GridSearchCV(model, {"transformerclassifier__d_model": [8, 16]}, cv=2).fit(TABLE, CLASSES)
    assert search.best_score_ > 0.8
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert (again.predict_proba(TABLE) == search.predict_proba(TABLE)).all()
    copy = clone(search.best_estimator_)
    with pytest.raises(NotFittedError):
        copy.predict(TABLE)
    assert (copy.fit(TABLE, CLASSES).predict_proba(TABLE) == search.predict_proba(TABLE)).all()


def test_a_row_has_the_same_bits_alone():
    fitted = TransformerClassifier(**SMALL, random_state=0).fit(TABLE, CLASSES)
    whole = fitted.predict_proba(np.tile(TABLE, (3, 1)))
    assert (whole[:120] == whole[120:240]).all() and (fitted.predict_proba(TABLE[5:6]) == whole[5]).all()
    assert list(fitted.classes_) == ["cold", "hot", "mild"] and np.allclose(whole.sum(1), 1, rtol=0, atol=1e-15)


def test_sequences():
    """Which half of a sequence is larger; longer sequences at prediction than in the training."""
    X = rng.standard_normal((300, 8, 2)) * [1, 1000]
    y = X[:, :4, 0].sum(1) > X[:, 4:, 0].sum(1)
    fitted = TransformerClassifier(**SMALL | {"max_epochs": 30}, random_state=0).fit(X[:200], y[:200])
    assert fitted.score(X[200:], y[200:]) > 0.8 and fitted.n_features_in_ == 2
    assert fitted.predict(np.zeros((3, 11, 2)).tolist()).shape == (3,)
    numbers = TransformerRegressor(**SMALL, random_state=0).fit(X, np.stack([X[:, 0, 0], X[:, 1, 1]], 1))
    assert numbers.predict(X).shape == (300, 2) and numbers.score(X, np.stack([X[:, 0, 0], X[:, 1, 1]], 1)) > 0.5
    for wrong, message in (
        (np.zeros((3, 8, 1)), "1 features"),
        (TABLE, "'table'.*fitted to 'sequences'"),
        (X[:, :0], "at least one of each"),
    ):
        with pytest.raises(ValueError, match=message):
            fitted.predict(wrong)
    with pytest.raises(ValueError, match="NaN"):
        fitted.predict(np.full((1, 8, 2), np.nan))


GOOD, BAD = ["good", "great", "fine", "lovely"], ["bad", "awful", "poor", "dull"]


def reviews(n):
    words = [[*rng.choice(["the", "film", "was", "plot", "actor"], rng.integers(1, 9))] for _ in range(n)]
    labels = rng.integers(0, 2, n)
    for text, label in zip(words, labels, strict=True):
        text.insert(rng.integers(0, len(text) + 1), rng.choice((BAD, GOOD)[label]))
    return [" ".join(text) for text in words], np.array(["no", "yes"])[labels]


def test_texts():
    texts, labels = reviews(200)
    fitted = TransformerClassifier(**SMALL, random_state=0).fit(texts[:150], labels[:150])
    assert fitted.score(texts[150:], labels[150:]) > 0.9
    p = fitted.predict_proba(texts)
    for same in (np.array(texts), np.array(texts, object), tuple(texts)):
        assert (fitted.predict_proba(same) == p).all()
    assert (fitted.predict_proba(texts[7:8]) == p[7]).all()  # however long the others are
    assert fitted.predict(["", "words never seen"]).shape == (2,)
    assert TransformerRegressor(**SMALL, random_state=0).fit(texts, labels == "yes").score(texts, labels == "yes") > 0.7
    with pytest.raises(ValueError, match="no words"):
        TransformerClassifier().fit(["", "..."], [0, 1])


def test_models_are_exported(tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    texts, labels = reviews(40)
    given = {
        "table": (TABLE[:40], lambda e, n: (e._prepared(TABLE[:n])[0],)),
        "sequences": (TABLE[:120].reshape(40, 3, 3), lambda e, n: (e._prepared(np.tile(TABLE[:n, None], (1, n, 1)))[0],)),
        "texts": (texts, lambda e, n: e._prepared(texts[:n])),
    }
    for kind, (X, arguments) in given.items():
        fitted = TransformerClassifier(**SMALL | {"max_epochs": 1}, random_state=0).fit(X, labels)
        path = tmp_path / f"{kind}.onnx"
        tc.export_onnx(fitted.model_, arguments(fitted, 2), path)
        names = ("x", "lengths") if kind == "texts" else ("x",)
        (found,) = ReferenceEvaluator(onnx.load(path)).run(None, dict(zip(names, arguments(fitted, 7), strict=True)))
        np.testing.assert_allclose(found, fitted.model_(*arguments(fitted, 7)), atol=1e-5)


def test_weights_count_as_repetitions():
    """With one batch and no dropout, up to rounding; a sample of weight 0 is as if it were not there."""
    weights = rng.integers(0, 4, len(TABLE))
    options = {**SMALL, "batch_size": 1000, "dropout": 0.0, "max_epochs": 5, "random_state": 0}
    for kind, y in ((TransformerClassifier, CLASSES), (TransformerRegressor, NUMBERS)):
        weighted = kind(**options).fit(TABLE, y, sample_weight=weights)._outputs(TABLE)
        repeated = kind(**options).fit(np.repeat(TABLE, weights, 0), np.repeat(y, weights))._outputs(TABLE)
        np.testing.assert_allclose(weighted, repeated, atol=2e-3)
    with pytest.raises(ValueError, match="[Ss]ample.weight"):
        TransformerRegressor().fit(TABLE, NUMBERS, sample_weight=np.zeros(len(TABLE)))


def test_a_subclass_whose_options_are_not_named():
    class Named(TransformerClassifier):
        def __init__(self, **options):
            super().__init__(**options)
            self.mine = []

    options = {**SMALL, "max_epochs": 2, "random_state": 0}
    named, plain = Named(**options), TransformerClassifier(**options)
    mine = named.mine
    np.testing.assert_array_equal(named.fit(TABLE, CLASSES)._outputs(TABLE), plain.fit(TABLE, CLASSES)._outputs(TABLE))
    assert named.mine is mine and named.max_epochs == named.n_iter_ == 2


def test_targets_near_the_largest_float():
    y = np.where(TABLE[:, 0] > 0, 1.7e308, -1.7e308)
    found = (
        TransformerRegressor(**{**SMALL, "max_epochs": 5, "random_state": 0, "learning_rate": 0.1}).fit(TABLE, y).predict(np.abs(TABLE) * 3)
    )
    assert np.isfinite(found).all() and found.max() == np.finfo(np.float64).max


def test_weights_whose_sum_is_too_large():
    """Only their ratios count."""
    options = {**SMALL, "max_epochs": 2, "random_state": 0, "class_weight": "balanced"}
    found = TransformerClassifier(**options).fit(TABLE, CLASSES, np.full(len(TABLE), 1e308))
    expected = TransformerClassifier(**options).fit(TABLE, CLASSES, np.ones(len(TABLE)))
    np.testing.assert_array_equal(found._outputs(TABLE), expected._outputs(TABLE))


def test_class_weights():
    X, y = np.repeat([[0.0], [1.0]], 60, 0), np.r_[np.zeros(50), np.ones(70)]  # ten samples of the first class where the second is usual
    plain, weighted = (
        TransformerClassifier(**SMALL, random_state=0, class_weight=w).fit(X, y).predict_proba([[0.0]])[0, 0] for w in (None, {0: 1, 1: 50})
    )
    assert plain > 0.6 and weighted < 0.3


def test_early_stopping_keeps_the_best(monkeypatch):
    """The weights of the lowest loss on the samples held out, which have the same share of each class."""
    splits = []
    monkeypatch.setattr(training, "train_test_split", lambda *rows, **how: splits.append(train_test_split(*rows, **how)) or splits[-1])
    X, y = rng.standard_normal((80, 4)), rng.permutation(np.repeat([0, 1], (60, 20)))  # nothing to learn
    fitted = TransformerClassifier(max_epochs=100, early_stopping=True, n_iter_no_change=5, validation_fraction=0.25, random_state=0).fit(
        X, y
    )
    curve, [(_, held)] = fitted.validation_curve_, splits
    assert np.bincount(y[held]).tolist() == [15, 5]
    assert len(curve) == len(fitted.loss_curve_) == fitted.n_iter_ < 100 and fitted.loss_curve_[-1] < fitted.loss_curve_[0]
    losses = -np.log(fitted.predict_proba(X[held])[np.arange(20), y[held]])
    assert losses.mean() == pytest.approx(min(curve), abs=1e-5) and curve[-1] > min(curve) + 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_heads": 3}, "d_model 32 must be a multiple of n_heads 3"),
        ({"max_epochs": 0}, "max_epochs must be at least 1"),
        ({"batch_size": "all"}, "batch_size must be an int or 'auto'"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"learning_rate": -1}, "learning_rate must not be negative"),
        ({"early_stopping": True, "validation_fraction": 1.5}, "validation_fraction must be between 0 and 1"),
        ({"dropout": "0.1"}, "dropout must be a number, got '0.1'"),
        ({"n_iter_no_change": "5"}, "n_iter_no_change must be an int"),
        ({"tol": None}, "tol must be a number"),
        ({"verbose": "no"}, "verbose must be True or False, got 'no'"),
        ({"d_ff": 1.5, "max_tokens": 2, "max_length": 0}, "3 arguments are wrong:\n  d_ff .*\n  max_tokens .*\n  max_length"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        TransformerClassifier(**options).fit(TABLE, CLASSES)


def state_of(estimator):
    """Everything that the estimator has, as bytes."""
    kept = dict(vars(estimator))
    weights = {name: value.numpy().copy() for name, value in kept.pop("model_").state_dict().items()}
    scale = {name: vars(kept.pop(name)) for name in ("_scale_", "_target_scale_") if name in kept}
    return pickle.dumps((kept, weights, scale))


@pytest.mark.parametrize(("kind", "y", "other"), [(TransformerClassifier, CLASSES, NUMBERS), (TransformerRegressor, NUMBERS, CLASSES)])
def test_a_refused_fit_changes_nothing(kind, y, other):
    fitted = kind(**SMALL | {"max_epochs": 1}, random_state=0).fit(TABLE, y)
    expected = fitted.predict(TABLE)
    texts = [f"word {i}" for i in range(len(y))]
    refused = [
        (lambda e: e.fit(TABLE[:, :2] * 100, other), {}),
        (lambda e: e.fit(texts, y[:-1]), {}),
        (lambda e: e.fit(TABLE[:, None], None), {}),
        (lambda e: e.fit(["", "..."] * 3, y[:6]), {}),
        (lambda e: e.fit(TABLE * 3, y[::-1]), {"n_heads": 5}),
        (lambda e: e.fit(TABLE * 3, y[::-1]), {"learning_rate": 1e30, "max_epochs": 3}),
        (lambda e: e.fit(TABLE * 3, y[::-1], sample_weight=np.zeros(len(y))), {}),
    ]
    for call, options in refused:
        fitted.set_params(**options)
        before = state_of(fitted)
        with pytest.raises((TypeError, ValueError)):
            call(fitted)
        assert state_of(fitted) == before
        fitted.set_params(n_heads=2, learning_rate=3e-3, max_epochs=1)
        assert (fitted.predict(TABLE) == expected).all()
    fitted.fit(texts, y).fit(TABLE[:, None], y)  # another kind of input: nothing of the old one is left
    assert "vectorizer_" not in vars(fitted)
    with pytest.raises(ValueError, match="'table'.*fitted to 'sequences'"):
        fitted.predict(TABLE)


def test_a_training_that_diverges_is_an_error():
    for options in ({}, {"max_epochs": 1, "batch_size": 1000}):
        with pytest.raises(ValueError, match="training diverged; a lower learning_rate may help"):
            TransformerClassifier(**SMALL | {"learning_rate": 1e38} | options).fit(TABLE, CLASSES).predict(TABLE)


@pytest.mark.parametrize("factor", [1e200, 1e-200])
def test_targets_of_any_size(factor):
    """Squares of the targets would not be finite, or zero."""
    options = SMALL | {"random_state": 0, "max_epochs": 3}
    plain, scaled = (TransformerRegressor(**options).fit(TABLE, NUMBERS * f).predict(TABLE) for f in (1.0, factor))
    np.testing.assert_allclose(scaled / factor, plain, rtol=1e-4)


def test_samples_far_away():
    """A number beyond float32 is one far away; one target far away from the others does not keep the model from the rest."""
    fitted = TransformerClassifier(**SMALL | {"max_epochs": 1}, random_state=0).fit(TABLE, CLASSES)
    assert np.isfinite(fitted.predict_proba(TABLE * 1e300)).all()
    numbers = NUMBERS - 100
    numbers[5] = 1e4
    found = TransformerRegressor(**SMALL, random_state=0).fit(TABLE, numbers).predict(TABLE)
    assert np.median(abs(found - numbers)) < 20  # 60 and more where the gradient is not clipped


def test_probabilities_and_their_logarithms():
    fitted = TransformerClassifier(**SMALL | {"max_epochs": 2}, random_state=0).fit(TABLE, CLASSES)
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(TABLE)), fitted.predict_proba(TABLE), rtol=1e-12)
    with tc.no_grad():
        fitted.model_.head.weight *= 1e4
    assert np.isfinite(fitted.predict_log_proba(TABLE)).all() and (fitted.predict_proba(TABLE) == 0).any()


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (["good", None], "X has texts, but sample 1 is None"),
        ("a text", r"X is one str; several texts are expected, as a list: \[text\]"),
        ([], "X has no samples"),
        ([[1.0, 2.0, 3.0], [1.0, 2.0]], "sample 0 has length 3 and sample 1 has length 2"),
        ([[[1.0], [2.0]], [[1.0]]], "sample 0 has length 2 and sample 1 has length 1"),
        (["a text"], "'texts'.*fitted to 'table'"),
    ],
)
def test_wrong_samples(X, message):
    fitted = TransformerClassifier(**SMALL | {"max_epochs": 1}).fit(TABLE.tolist(), CLASSES)
    for call in (fitted.predict, *([lambda X: fitted.fit(X, [0, 1])] if "fitted" not in message else [])):
        with pytest.raises(ValueError, match=message):
            call(X)


def test_a_frame_with_a_text_column_names_it():
    class Frame(dict):
        columns = property(lambda self: list(self))

        def __array__(self, dtype=None, copy=None):
            return np.array(list(self.values()), object).T.astype(dtype or object)

        to_numpy = __array__
        shape = property(lambda self: self.to_numpy().shape)

    class Column(list):
        def to_numpy(self):
            return np.array(list(self))

    frame = Frame(a=Column([1.0, 2.0]), city=Column(["x", "y"]))
    with pytest.raises(ValueError, match="columns that are not numbers: 'city'"):
        TransformerClassifier(**SMALL).fit(frame, [0, 1])


def test_a_regressor_learns_numbers():
    with pytest.raises(ValueError, match="y must be numbers, got 'cold'; TransformerClassifier learns classes"):
        TransformerRegressor().fit(["a", "b"], ["cold", "hot"])
    assert TransformerRegressor(**SMALL | {"max_epochs": 1}).fit(TABLE, NUMBERS.astype(object)).predict(TABLE).shape == (120,)


def test_without_scikit_learn_the_extra_is_named():
    code = "import sys; sys.modules['sklearn'] = None; import transformer_c as tc; tc.sklearn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: tc.sklearn needs scikit-learn 1.6 or newer: pip install 'transformer_c[sklearn]'" in done.stderr


def test_without_scikit_learn_the_attribute_is_not_there():
    code = """
import inspect, sys
sys.modules["sklearn"] = None
import transformer_c as tc
assert not hasattr(tc, "sklearn") and "sklearn" not in dict(inspect.getmembers(tc))
for line, kind in (("tc.sklearn", AttributeError), ("from transformer_c import sklearn", ImportError), ("import transformer_c.sklearn", ImportError)):
    try:
        exec(line)
    except kind as error:
        assert "pip install" in str(error), error
    else:
        raise AssertionError(line)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", [tc.sklearn.TransformerClassifier, tc.sklearn.TransformerRegressor])
def test_names_of_options_elsewhere(kind):
    for name, advice in (
        ("epochs", "max_epochs="),
        ("lr", "learning_rate="),
        ("num_heads", "n_heads="),
        ("batchsize", "did you mean 'batch_size'"),
    ):
        with pytest.raises(TypeError, match=rf"{kind.__name__}\(\) has no option '{name}': {advice}"):
            kind(**{name: 1})
