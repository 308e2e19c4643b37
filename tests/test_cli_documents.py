"""train and predict for squares, digits and reviews, as processes: short trainings, the same bits after a stop, and refusals."""

import json
import os
import re
import signal
import time

import mnist_files
import numpy as np
import pytest
import transformer_c as tc
from command_line import command, contents, started
from transformer_c import cli
from transformer_c.cli.tasks import NAMES, PREDICTORS, TASKS
from transformer_c.tutorials import godoy, keras_book, sensio

SQUARES = ["sequences", "--epochs", "3", "--train-size", "32", "--test-size", "16", "--no-progress"]
DIGITS = ["digits", "--batch-size", "16", "--no-progress"]
ENCODER = ["--model", "patches", "--patch-size", "14", "--n-embd", "8", "--n-heads", "2", "--n-layers", "1", "--lr", "0.01"]
REVIEWS = [
    "reviews",
    "--vocab-size",
    "40",
    "--sequence-length",
    "8",
    "--embed-dim",
    "8",
    "--dense-dim",
    "8",
    "--batch-size",
    "8",
    "--lr",
    "0.01",
]
REVIEWS += ["--no-progress"]
GOOD, BAD, OTHER = ("great", "lovely", "superb", "fine"), ("dull", "awful", "boring", "weak"), ("the", "film", "a", "plot", "and", "cast")


def texts_and_labels(count, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    texts = [" ".join([*rng.choice(GOOD if y else BAD, 2), *rng.choice(OTHER, 4)]) for y in labels]
    return texts, labels


@pytest.fixture(scope="session")
def reviews_csv(tmp_path_factory):
    """A CSV file of 120 reviews, and 20 of another source that say the opposite."""
    path = tmp_path_factory.mktemp("reviews") / "reviews.csv"
    texts, labels = texts_and_labels(120)
    lines = ["text,label,source", *(f'"{t}.",{y},ours' for t, y in zip(texts, labels, strict=True))]
    lines += [f"{t},{1 - y},theirs" for t, y in zip(texts[:20], labels, strict=False)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def mnist(tmp_path_factory):
    """A folder of MNIST's four files: images with one bright row, which determines their class."""
    folder = tmp_path_factory.mktemp("mnist")
    rng = np.random.default_rng(0)
    for part, count in (("train", 96), ("t10k", 32)):
        labels, images = rng.integers(0, 10, count), rng.integers(0, 30, (count, 28, 28))
        images[np.arange(count), 2 * labels] = 255
        mnist_files.write(folder, part, images, labels, compressed=True)
    return folder


@pytest.fixture(scope="module")
def squares_run(tmp_path_factory):
    """A folder in which `train sequences` has run, and its output."""
    folder = tmp_path_factory.mktemp("squares")
    out, err = command("train", *SQUARES, cwd=folder)
    assert err == ""
    return folder / "runs/sequences", out


@pytest.fixture(scope="module")
def digits_run(mnist, tmp_path_factory):
    """The same of `train digits` with the encoder, on the files above."""
    folder = tmp_path_factory.mktemp("digits")
    out, err = command("train", *DIGITS, *ENCODER, "--mnist", mnist, "--epochs", "12", cwd=folder)
    assert err == ""
    return folder / "runs/digits", out


@pytest.fixture(scope="module")
def reviews_run(reviews_csv, tmp_path_factory):
    """The same of `train reviews`."""
    folder = tmp_path_factory.mktemp("reviews_run")
    out, err = command("train", *REVIEWS, "--csv", reviews_csv, "--source", "ours", "--epochs", "6", cwd=folder)
    assert err == ""
    return folder / "runs/reviews", out


def score(out, name):
    return float(re.search(rf"{name} +([\d.]+)", out)[1])


def predicts(*arguments):
    return cli.main(["predict", *map(str, arguments)])


# ---- every task --------------------------------------------------------------------------------------------------------------------


def arguments_of(task, mnist, reviews_csv):
    return {
        "sequences": [*SQUARES, "--model", "nn"],
        "digits": [*DIGITS, *ENCODER, "--mnist", mnist],
        "reviews": [*REVIEWS, "--csv", reviews_csv],
    }[task]


@pytest.mark.parametrize("task", ["sequences", "digits", "reviews"])
def test_ctrl_c_and_resume_to_the_same_bits(task, mnist, reviews_csv, tmp_path):
    """Stopped when the first checkpoint exists: exit status 130, a line that says how to resume, and the result of an uninterrupted run."""
    many = ["train", *arguments_of(task, mnist, reviews_csv), "--epochs", "60", "--clip", "1"]
    command(*many, "--output", "whole", cwd=tmp_path)
    process = started(*many, "--output", "stopped", cwd=tmp_path)
    last = tmp_path / "stopped/last.safetensors"
    deadline = time.monotonic() + 60
    while not last.exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    assert f"python -m transformer_c train {task} --resume --output stopped" in err
    steps = int(re.search(r"stopped after (\d+) steps", err)[1])
    saved = tc.load(last)
    assert steps == saved["trainer"]["global_step"] < tc.load(tmp_path / "whole/last.safetensors")["trainer"]["global_step"]
    assert saved.hyper_parameters["lr"] == 0.01
    out, err = command("train", task, "--resume", "--output", "stopped", "--no-progress", "--threads", "2", cwd=tmp_path)
    assert "going on from the last checkpoint" in out and err == ""
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")


@pytest.mark.parametrize("task", ["sequences", "digits", "reviews"])
def test_the_seed_decides(task, mnist, reviews_csv, tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        options = ["--epochs", "1", "--seed", seed, "--output", name]
        command("train", *arguments_of(task, mnist, reviews_csv), *options, cwd=tmp_path)
    a, b, c = (contents(tmp_path / name) for name in "abc")
    assert a == b and a[1] != c[1]


def test_each_task_is_one_module():
    assert list(TASKS) == list(NAMES) == [task.name for task in TASKS.values()]
    for task in TASKS.values():
        assert all(PREDICTORS[p.kind.__name__] is p for p in task.predictors)


@pytest.mark.parametrize("task", NAMES)
def test_help_has_every_option_and_its_default(task, capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", task, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for name, option in TASKS[task].options.items():
        assert f"--{name.replace('_', '-')} {option.metavar}" in text
        assert not option.shown or f"(default: {option.shown})" in text
    for name in ("--threads", "--device", "--graph", "--output", "--resume", "--overwrite", "--no-progress"):
        assert name in text


def test_a_model_without_its_options_on_resume(tmp_path, capsys):
    """Options that do not belong to --model do not prevent resuming."""
    pytest.importorskip("sklearn")
    folder = ["--output", str(tmp_path)]
    assert cli.main(["train", *DIGITS, "--model", "mlp", "--n-hidden", "4", "--epochs", "1", *folder]) == 0
    saved = json.loads((tmp_path / "options.json").read_text())["options"]
    assert saved["n_heads"] is None and saved["n_hidden"] == 4
    assert cli.main(["train", "digits", "--resume", "--no-progress", *folder]) == 0
    with pytest.raises(SystemExit):
        cli.main(["train", "digits", "--resume", "--n-hidden", "5", *folder])
    assert "--n-hidden is 4 in the run" in capsys.readouterr().err


# ---- squares -----------------------------------------------------------------------------------------------------------------------


def test_squares_are_the_documents_training(tmp_path):
    """The same numbers as the document's own loop from the same seed."""
    command("train", "sequences", "--epochs", "4", "--no-progress", "--seed", "42", cwd=tmp_path)
    tc.manual_seed(42)
    model = godoy.own_model()
    sbs = godoy.StepByStep(model, tc.nn.MSELoss(), tc.optim.Adam(model.parameters(), lr=0.01))
    sbs.set_loaders(*godoy.loaders())
    sbs.train(4, seed=42)
    rows = np.loadtxt(tmp_path / "runs/sequences/history.csv", delimiter=",", skiprows=1)
    assert np.allclose(rows[:, 2], sbs.losses, rtol=1e-12) and np.allclose(rows[:, 3], sbs.val_losses, rtol=1e-12)


def test_squares(squares_run):
    folder, out = squares_run
    assert "Squares: 1,728 parameters, 3 epochs of 2 batches, seed 42" in out
    best = godoy.SquaresPredictor.load_from_checkpoint(folder / "best.safetensors")
    for name, seed, n in (("validation", 13, 32), ("test", 17, 16)):
        points = tc.datasets.square_sequences(n, seed=seed)[0].astype(np.float32)
        assert score(out, f"{name} mean squared error") == pytest.approx(((best(points[:, :2]) - points[:, 2:]) ** 2).mean(), abs=1e-4)


def test_corners_are_predicted(squares_run, tmp_path):
    checkpoint = squares_run[0] / "best.safetensors"
    points = tc.datasets.square_sequences(3)[0]
    expected = godoy.SquaresPredictor.load_from_checkpoint(checkpoint)(points[:, :2].astype(np.float32))
    np.save(tmp_path / "x.npy", points)
    np.save(tmp_path / "two.npy", points[0, :2])
    out, _ = command("predict", checkpoint, "x.npy", "--plot", "x.png", cwd=tmp_path)
    assert out.count("\n\n") == 2 and np.allclose(np.loadtxt(out.splitlines()).reshape(3, 2, 2), expected, atol=1e-4)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    command("predict", checkpoint, "two.npy", "--plot", "two.svg", "--output", "y.npy", cwd=tmp_path)
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected[0]) and b"<svg" in (tmp_path / "two.svg").read_bytes()


def test_corners_that_are_refused(squares_run, tmp_path, capsys):
    checkpoint = squares_run[0] / "best.safetensors"
    np.save(tmp_path / "good.npy", np.zeros((1, 2, 2)))
    for x, message in (
        (np.zeros((1, 1, 2)), "two corners"),
        (np.zeros((1, 2, 3)), "two corners"),
        (np.zeros(2), r"expected \(batch, corn"),
        (np.array([[[0, np.nan], [0, 0]]]), "NaN, infinity .* in 1 of 4 places"),
        (np.full((1, 2, 2), 1e300), "beyond float32 in 4 of 4 places"),
    ):
        np.save(tmp_path / "x.npy", x)
        assert predicts(checkpoint, tmp_path / "x.npy") == 1 and re.search(message, capsys.readouterr().err)
    assert predicts(checkpoint, tmp_path / "good.npy", "--plot", tmp_path / "x.doc") == 1
    assert "--plot" in capsys.readouterr().err and not (tmp_path / "x.doc").exists()
    assert predicts(checkpoint, tmp_path / "good.npy", "--plot", tmp_path / "no/x.png") == 1
    for wrong in (("x.npy", "y.npy"), ("x.npy", "--mnist", "folder")):
        with pytest.raises(SystemExit) as leaving:
            predicts(checkpoint, *wrong)
        assert leaving.value.code == 2 and "usage: " in capsys.readouterr().err


# ---- digits ------------------------------------------------------------------------------------------------------------------------


def test_digits_of_mnists_files(digits_run, mnist):
    folder, out = digits_run
    assert "12 epochs of 6 batches" in out and "test accuracy" not in out
    assert score(out, "validation accuracy") > 60
    saved = tc.load(folder / "best.safetensors").hyper_parameters
    assert saved == {"n_input": 196, "n_embd": 8, "seq_len": 4, "n_heads": 2, "n_layers": 1, "over": "patches", "lr": 0.01}


def test_classes_are_predicted(digits_run, mnist, tmp_path):
    """By number, from .npy and .npz, as bytes and as floats: the same."""
    checkpoint = digits_run[0] / "best.safetensors"
    images, classes = tc.datasets.load_mnist(mnist)[1]
    model = sensio.Model.load_from_checkpoint(checkpoint)
    logits = model(tc.datasets.cut_patches(images[:3], (14, 14)).astype(np.float32) / 255)
    p = tc.F.softmax(logits, axis=-1)
    out, _ = command("predict", checkpoint, "0", "1", "2", "--mnist", mnist, cwd=tmp_path)
    expected = [f"{i}: {p[i].argmax()}  {100 * p[i].max():.2f} %" for i in range(3)]
    assert out.splitlines() == [f"{line}  (it is a {c})" for line, c in zip(expected, classes, strict=False)]
    np.save(tmp_path / "x.npy", images[:3])
    np.savez(tmp_path / "x.npz", images=images[:3].reshape(3, 784) / 255.0, labels=classes[:3])
    for name in ("x.npy", "x.npz"):
        out, _ = command("predict", checkpoint, name, cwd=tmp_path)
        assert out.splitlines() == expected
    np.save(tmp_path / "one.npy", images[0])
    command("predict", checkpoint, "one.npy", "--output", "y.npy", cwd=tmp_path)
    assert np.load(tmp_path / "y.npy").tolist() == [p[0].argmax()]


def test_digits_of_scikit_learn(tmp_path):
    pytest.importorskip("sklearn")
    out, _ = command("train", *DIGITS, "--model", "mlp", "--epochs", "2", cwd=tmp_path)
    assert "623,290 parameters, 2 epochs of 90 batches" in out and score(out, "validation accuracy") > 80
    out, _ = command("predict", "runs/digits/best.safetensors", "0", "359", cwd=tmp_path)
    classes = tc.datasets.digits()[1][1]
    assert [line[-2] for line in out.splitlines()] == [str(classes[0]), str(classes[359])]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 27, 27)), r"shape \(2, 27, 27\); expected images"),
        (np.full((28, 28), 2.0), "floats from 0 to 1"),
        (np.full((28, 28), np.nan), "floats from 0 to 1"),
        (np.full((28, 28), 256), "integers from 0 to 255"),
        (np.full((28, 28), "a"), "expected numbers"),
        ({"a": np.zeros((28, 28)), "b": np.zeros((28, 28))}, "one that is called images"),
        ({"images": np.array([object()] * 3)}, "not an .npz file of arrays"),
    ],
)
def test_images_that_are_refused(digits_run, tmp_path, capsys, x, message):
    path = tmp_path / ("x.npz" if isinstance(x, dict) else "x.npy")
    np.savez(path, **x) if isinstance(x, dict) else np.save(path, x)
    assert predicts(digits_run[0] / "best.safetensors", path) == 1
    assert re.search(message, capsys.readouterr().err)


def test_numbers_and_folders_that_are_refused(digits_run, mnist, tmp_path, capsys):
    checkpoint = digits_run[0] / "best.safetensors"
    assert predicts(checkpoint, "32", "--mnist", mnist) == 1
    assert "no image 32: the validation images have the numbers 0 to 31" in capsys.readouterr().err
    assert predicts(checkpoint, "0", "--mnist", tmp_path) == 1
    assert "has none of train-images" in capsys.readouterr().err
    assert cli.main(["train", *DIGITS, "--mnist", str(tmp_path / "nowhere"), "--output", str(tmp_path / "run")]) == 1
    assert "is not a folder" in capsys.readouterr().err and not (tmp_path / "run").exists()
    with pytest.raises(SystemExit):
        predicts(checkpoint, "x.npy", "--mnist", mnist)


def test_digits_without_scikit_learn(tmp_path, capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert cli.main(["train", "digits", "--output", str(tmp_path / "run")]) == 1
    assert "or pass --mnist FOLDER" in capsys.readouterr().err and not (tmp_path / "run").exists()


# ---- reviews -----------------------------------------------------------------------------------------------------------------------


def test_reviews(reviews_run):
    folder, out = reviews_run
    assert "6 epochs of 11 batches" in out  # 84 of 120 reviews, in batches of 8
    assert score(out, "validation accuracy") > 90 and score(out, "test accuracy") > 90
    for name in ("best", "last"):
        words = tc.load(folder / f"{name}.safetensors").hyper_parameters["vocabulary"]
        assert words[:2] == ["", "[UNK]"] and set(words[2:]) == {*GOOD, *BAD, *OTHER}


def test_sentiments_are_predicted(reviews_run, tmp_path):
    """From arguments, a file and the standard input, in a folder other than the training's."""
    checkpoint = tmp_path / "moved.safetensors"
    checkpoint.write_bytes((reviews_run[0] / "best.safetensors").read_bytes())
    texts = ["A GREAT film, and a lovely cast!", "dull plot; boring and awful"]
    out, _ = command("predict", checkpoint, *texts, cwd=tmp_path)
    first, second = out.splitlines()
    assert first.startswith("positive ") and first.endswith(texts[0]) and second.startswith("negative ") and second.endswith(texts[1])
    (tmp_path / "t.txt").write_text("\ufeff" + texts[0] + "\n\n" + texts[1], encoding="utf-8")
    assert command("predict", checkpoint, "--file", "t.txt", cwd=tmp_path)[0] == out
    assert command("predict", checkpoint, "-", cwd=tmp_path, given="\n".join(texts) + "\n")[0] == out
    command("predict", checkpoint, *texts, "--output", "p.npy", cwd=tmp_path)
    p = keras_book.ReviewModel.load_from_checkpoint(checkpoint).predict_texts(texts)
    assert np.array_equal(np.load(tmp_path / "p.npy"), p) and p[0] > 0.5 > p[1]
    assert score(first, "positive") == pytest.approx(100 * p[0], abs=0.01)


def test_other_reviews_on_resume(reviews_csv, tmp_path, capsys):
    """Other words would have the numbers of the old ones: refused, and the run is unchanged."""
    text = reviews_csv.read_text()
    (tmp_path / "r.csv").write_text(text)
    options = ["--output", str(tmp_path / "run")]
    assert cli.main(["train", *REVIEWS, "--csv", str(tmp_path / "r.csv"), "--epochs", "1", *options]) == 0
    before = contents(tmp_path / "run")
    (tmp_path / "r.csv").write_text(text.replace("dull", "dreary"))
    capsys.readouterr()
    assert cli.main(["train", "reviews", "--resume", "--no-progress", *options]) == 1
    err = capsys.readouterr().err
    assert "no longer those that the run" in err and "its vocabulary would be another" in err and contents(tmp_path / "run") == before
    (tmp_path / "r.csv").write_text(text)
    assert cli.main(["train", "reviews", "--resume", "--no-progress", *options]) == 0


def test_the_source_is_a_filter(reviews_csv, tmp_path):
    command("train", *REVIEWS, "--csv", reviews_csv, "--source", "theirs", "--epochs", "1", cwd=tmp_path)
    command("train", *REVIEWS, "--csv", reviews_csv, "--source", "nobody", "--output", "none", cwd=tmp_path, status=1)
    assert len((tmp_path / "runs/reviews/history.csv").read_text().splitlines()) == 2 and not (tmp_path / "none").exists()


@pytest.mark.parametrize("form", ["classes", "train and test"])
def test_folders_of_reviews(form, tmp_path):
    """As IMDB's archive has them, or without a test folder."""
    for part, count in (("", 40),) if form == "classes" else (("train", 40), ("test", 12)):
        for i, (text, label) in enumerate(zip(*texts_and_labels(count), strict=True)):
            file = tmp_path / "imdb" / part / ("neg", "pos")[label] / f"{i}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    out, _ = command("train", *REVIEWS, "--folder", "imdb", "--epochs", "1", cwd=tmp_path)
    assert f"1 epoch of {4 if form == 'classes' else 5} batches" in out and "test accuracy" in out  # 28 and 36 reviews


def test_reviews_that_are_refused(tmp_path, capsys):
    (tmp_path / "few.csv").write_text("text,label\ngood,1\n")
    (tmp_path / "empty.csv").write_text("text,label\n" + "!,1\n?,0\n" * 10)
    (tmp_path / "one.csv").write_text("text,label\n" + "good,1\n" * 10)
    for name in "abc":
        (tmp_path / "three" / name).mkdir(parents=True)
        (tmp_path / "three" / name / "1.txt").write_text("x")
    for option, name, message in (
        ("--csv", "nowhere.csv", "nowhere.csv: No such file"),
        ("--csv", "few.csv", "has 1 reviews; expected 10 or more"),
        ("--csv", "empty.csv", "have no word"),
        ("--csv", "one.csv", "all of its 10 reviews are good; expected some of each"),
        ("--csv", "three", "give it to --folder"),
        ("--folder", "few.csv", "no such folder"),
        ("--folder", "three", "3 classes; expected two"),
    ):
        assert cli.main(["train", "reviews", option, str(tmp_path / name), "--output", str(tmp_path / "run")]) == 1
        assert message in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_texts_that_are_refused(reviews_run, tmp_path, capsys):
    checkpoint = reviews_run[0] / "best.safetensors"
    (tmp_path / "latin.txt").write_bytes(b"tr\xe8s bon")
    (tmp_path / "empty.txt").write_text("\n \n")
    for name, message in (("latin.txt", "is not UTF-8"), ("empty.txt", "has no text"), ("nowhere.txt", "No such file")):
        assert predicts(checkpoint, "--file", tmp_path / name) == 1 and message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        predicts(checkpoint, "text", "--file", tmp_path / "empty.txt")


# ---- files that ask for more than they contain -------------------------------------------------------------------------------------


def hostile(path, model, changes):
    """A file of the model's weights with other hyper-parameters."""
    tc.save(dict(model.state_dict()), path, hyper_parameters={**dict(model.hparams.items()), **changes})


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (lambda: godoy.SquaresPredictor("own"), [{"model": "nn"}, {"d_model": 10**8}, {"ff_units": 10**9}, {"n_layers": 10**9}, {"n_heads": 4}]),
        (lambda: godoy.SquaresPredictor("nn"), [{"model": "own"}, {"ff_units": 10**9}, {"n_heads": "3"}]),
        (lambda: sensio.MLP(n_hidden=4), [{"n_hidden": 10**9}]),
        (
            lambda: sensio.Model(49, 7, 16, 2, 1),
            [{"n_input": 10**9}, {"n_embd": 10**9}, {"seq_len": 10**9}, {"n_heads": 10**9}, {"n_layers": 10**9}, {"over": "pixels"}],
        ),
        (
            lambda: keras_book.ReviewModel(5, 4, 2, 4, vocabulary=["", "[UNK]", "a"], sequence_length=6),
            [
                {"vocab_size": 10**9}, {"embed_dim": 10**9}, {"num_heads": 10**9}, {"dense_dim": 10**9}, {"sequence_length": 10**9},
                {"sequence_length": 0}, {"vocabulary": None}, {"vocabulary": [1, 2]}, {"vocabulary": list("abcdef")}, {"vocabulary": ["a", "a"]}, {"vocabulary": []},
            ],
        ),
    ],
    ids=["own", "nn", "mlp", "encoder", "reviews"],
)  # fmt: skip
def test_sizes_beyond_the_weights_are_refused(tmp_path, capsys, make, changes):
    """A file of a few kilobytes cannot ask for a model of gigabytes; none of them reaches INPUT."""
    model, path = make(), tmp_path / "m.safetensors"
    name = type(model).__name__
    for change in changes:
        hostile(path, model, change)
        assert predicts(path, "nowhere.npy", "--class", name) == 1
        assert f"contains no {name}" in capsys.readouterr().err, change
    tc.save({"a": np.ones(3)}, path)
    assert predicts(path, "nowhere.npy", "--class", name) == 1
    assert f"contains no {name}" in capsys.readouterr().err
    if name != "ReviewModel":
        hostile(path, model, {})
        assert predicts(path, "nowhere.npy", "--class", name) == 1
        assert "nowhere.npy: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "shapes", "sizes"),
    [
        ("MLP", {"mlp.0.weight": (10**10, 0)}, {"n_hidden": 10**10}),
        (
            "Model",
            {"inp_emb.weight": (1, 0), "pos_emb": (0, 10**10, 1), "tranformer.0.attn.key.weight": (1, 0)},
            {"n_input": 0, "n_embd": 1, "seq_len": 10**10, "n_heads": 1, "n_layers": 1},
        ),
        (
            "Model",
            {"inp_emb.weight": (1, 1), "pos_emb": (0, 10**10, 1), "tranformer.0.attn.key.weight": (10**10, 0)},
            {"n_input": 1, "n_embd": 1, "seq_len": 10**10, "n_heads": 10**10, "n_layers": 1},
        ),
        (
            "SquaresPredictor",
            {"model.proj.weight": (10**5, 0), "model.encoder.layers.0.ffn.0.weight": (10**10, 0)},
            {"model": "own", "d_model": 10**5, "ff_units": 10**10, "n_layers": 1, "n_heads": 1},
        ),
        (
            "ReviewModel",
            {"embedding.weight": (5, 1), "transformer_encoder.attention.query.weight": (10**10, 0), "transformer_encoder.dense_proj.0.weight": (1, 1)},
            {"vocab_size": 5, "embed_dim": 1, "num_heads": 10**10, "dense_dim": 1, "vocabulary": ["a"], "sequence_length": 5},
        ),
    ],
)  # fmt: skip
def test_sizes_of_arrays_without_elements_are_refused(tmp_path, capsys, kind, shapes, sizes):
    """They take no room in a file."""
    weights = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    tc.save(weights, tmp_path / "m.safetensors", hyper_parameters=sizes)
    assert predicts(tmp_path / "m.safetensors", "nowhere.npy", "--class", kind) == 1
    assert f"contains no {kind}" in capsys.readouterr().err


def test_no_file_is_left_by_what_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "reviews", "--csv", "nowhere.csv"]) == 1
    assert os.listdir(tmp_path) == []
