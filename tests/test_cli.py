"""The command line, as processes: what it prints and where, its exit status, and that the documentation agrees with --help."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import transformer_c as tc
from command_line import command, contents, started
from transformer_c import cli
from transformer_c.cli.tasks import TASKS
from transformer_c.cli.tasks.reverse import LONGEST_SEQUENCE

ROOT = Path(__file__).parents[1]
TINY = [
    "--epochs",
    "3",
    "--train-size",
    "96",
    "--val-size",
    "32",
    "--test-size",
    "32",
    "--batch-size",
    "32",
    "--model-dim",
    "8",
    "--dropout",
    "0.1",
]
TINY += ["--num-categories", "4", "--seq-len", "5", "--warmup", "2", "--lr", "0.01", "--no-progress"]
SMALL_SETS = [
    "--set-size",
    "4",
    "--batch-size",
    "12",
    "--model-dim",
    "16",
    "--num-layers",
    "1",
    "--num-heads",
    "2",
    "--warmup",
    "5",
    "--no-progress",
]


@pytest.fixture(scope="module")
def reverse_run(tmp_path_factory):
    """A folder in which `train reverse` has run."""
    folder = tmp_path_factory.mktemp("reverse")
    out, err = command("train", "reverse", *TINY, cwd=folder)
    assert err == ""
    return folder, out


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """An .npz file of features of four classes that are easy to tell apart."""
    path = tmp_path_factory.mktemp("features") / "features.npz"
    rng = np.random.default_rng(0)
    centres, labels = rng.normal(size=(4, 6)), np.repeat(np.arange(4), 30)
    train, test = (centres[labels] + 0.1 * rng.normal(size=(120, 6)) for _ in range(2))
    np.savez(path, train_features=train, train_labels=labels, test_features=test, test_labels=labels)
    return path


# ---- train -------------------------------------------------------------------------------------------------------------------------


def test_train_reverse(reverse_run):
    folder, out = reverse_run
    assert "3 epochs of 3 batches, seed 42" in out and "validation accuracy" in out and "test accuracy" in out
    assert sorted(os.listdir(folder / "runs/reverse")) == ["best.safetensors", "history.csv", "last.safetensors", "options.json"]
    assert len((folder / "runs/reverse/history.csv").read_text().splitlines()) == 4


def test_the_seed_decides(reverse_run, tmp_path):
    folder, _ = reverse_run
    command("train", "reverse", *TINY, "--output", "same", "--threads", "2", cwd=tmp_path)
    command("train", "reverse", *TINY, "--output", "other", "--seed", "1", cwd=tmp_path)
    assert contents(tmp_path / "same") == contents(folder / "runs/reverse")
    assert contents(tmp_path / "other")[1] != contents(tmp_path / "same")[1]


def test_ctrl_c_and_resume(tmp_path):
    """Exit status 130, a line that says how to resume, and the same bits at the end."""
    many = ["train", "reverse", *TINY, "--epochs", "60"]
    command(*many, "--output", "whole", cwd=tmp_path)
    process = started(*many, "--output", "with a space", cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "with a space/last.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    again = re.search(r"python -m transformer_c (train reverse --resume --output) '(with a space)'", err)
    assert again, err
    steps = int(re.search(r"stopped after (\d+) steps", err)[1])
    assert steps == tc.load(tmp_path / "with a space/last.safetensors")["trainer"]["global_step"] < 180
    out, _ = command(*again[1].split(), again[2], "--no-progress", cwd=tmp_path)
    assert "going on from the last checkpoint" in out
    assert contents(tmp_path / "with a space") == contents(tmp_path / "whole")


def test_what_resume_refuses(reverse_run, tmp_path):
    folder, _ = reverse_run
    _, err = command("train", "reverse", cwd=folder, status=2)
    assert "--resume continues it, --overwrite starts again" in err
    _, err = command("train", "reverse", "--resume", "--lr", "0.5", cwd=folder, status=2)
    assert "--lr is 0.01 in the run" in err
    _, err = command("train", "reverse", "--resume", "--overwrite", cwd=folder, status=2)
    assert "give one of them" in err
    _, err = command("train", "anomaly", "--resume", "--output", "runs/reverse", cwd=folder, status=1)
    assert "'reverse'" in err
    _, err = command("train", "reverse", "--resume", cwd=tmp_path, status=1)
    assert "there is no run in runs/reverse" in err
    command("train", "reverse", "--resume", "--lr", "0.01", "--no-progress", cwd=folder)  # what it is anyway may be said


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"task": "reverse", "options": {"epochs": "x"}}', '{"task": "reverse", "options": 3}', "[" * 10000, "\xff"]
)
def test_damaged_options(tmp_path, text, capsys):
    (tmp_path / "options.json").write_text(text, encoding="latin-1")
    assert cli.main(["train", "reverse", "--resume", "--output", str(tmp_path)]) == 1
    assert "is damaged" in capsys.readouterr().err


def test_overwrite_and_a_run_without_checkpoint(tmp_path, capsys):
    options = ["train", "reverse", *TINY, "--epochs", "1", "--output", str(tmp_path)]
    assert cli.main(options) == 0 and cli.main([*options, "--overwrite"]) == 0
    before = contents(tmp_path)
    assert cli.main([*options, "--overwrite", "--model-dim", str(10**10)]) == 1  # memory for the model is not there
    assert "out of memory" in capsys.readouterr().err and contents(tmp_path) == before
    os.unlink(tmp_path / "last.safetensors")
    assert cli.main(["train", "reverse", "--resume", "--output", str(tmp_path), "--no-progress"]) == 0
    assert "starting from the beginning" in capsys.readouterr().out


def test_train_anomaly(features, tmp_path):
    out, _ = command(
        "train",
        "anomaly",
        "--features",
        features.name,
        "--output",
        tmp_path,
        "--epochs",
        12,
        "--lr",
        0.005,
        *SMALL_SETS,
        cwd=features.parent,
    )
    assert float(re.search(r"test accuracy +([\d.]+) %", out)[1]) > 60
    assert json.loads((tmp_path / "options.json").read_text())["options"]["features"] == str(features)
    with np.load(features) as held:
        x = held["test_features"]
    np.save(tmp_path / "sets.npy", np.stack([x[[0, 1, 2, 40]], x[[40, 1, 2, 3]]]))
    out, _ = command("predict", tmp_path / "best.safetensors", "sets.npy", cwd=tmp_path)
    assert out.split() == ["3", "0"]


def test_anomaly_without_a_file(tmp_path, capsys):
    """Uses the stand-in features."""
    pytest.importorskip("sklearn")
    assert cli.main(["train", "anomaly", "--epochs", "1", "--output", str(tmp_path), *SMALL_SETS]) == 0
    assert "test accuracy" in capsys.readouterr().out


def test_anomaly_without_scikit_learn(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert cli.main(["train", "anomaly", "--output", str(tmp_path / "run")]) == 1
    err = capsys.readouterr().err
    assert "pip install" in err and "--features FILE.npz" in err and not (tmp_path / "run").exists()


def arrays(**changes):
    labels = np.repeat([0, 1], 8)
    good = {"train_features": np.ones((16, 3)), "train_labels": labels, "test_features": np.ones((16, 3)), "test_labels": labels}
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (arrays(test_labels=None), "no array test_labels"),
        (arrays(train_features=np.full((16, 3), np.nan)), "finite"),
        (arrays(train_features=np.ones(16)), r"\(16,\)"),
        (arrays(train_features=np.array([[object()]])), "not an .npz file of arrays"),
        (arrays(test_features=np.ones((16, 2))), "3 and 2 columns"),
        (arrays(train_labels=np.zeros(3)), "16 train features and 3 train labels"),
        (arrays(train_labels=np.zeros(16)), "two classes"),
        (arrays(), "of 8 images|one batch|the smallest"),
    ],
)
def test_features_that_are_refused(tmp_path, capsys, held, message):
    np.savez(tmp_path / "f.npz", **held)
    assert cli.main(["train", "anomaly", "--features", str(tmp_path / "f.npz"), "--output", str(tmp_path / "run")]) == 1
    assert re.search(message, capsys.readouterr().err) and not (tmp_path / "run").exists()


def test_files_that_are_no_features(tmp_path, capsys):
    (tmp_path / "text").write_text("features")
    for name, message in (
        ("nowhere", "nowhere: No such file"),
        ("text", "as np.savez writes them"),
        (".", "expected a file, got a folder"),
    ):
        assert cli.main(["train", "anomaly", "--features", str(tmp_path / name), "--output", str(tmp_path / "run")]) == 1
        assert message in capsys.readouterr().err and not (tmp_path / "run").exists()
    assert cli.main(["train", "reverse", *TINY, "--output", str(tmp_path / "text")]) == 1
    assert "a file has that name" in capsys.readouterr().err


# ---- predict -----------------------------------------------------------------------------------------------------------------------


def test_predict(reverse_run, tmp_path):
    folder, _ = reverse_run
    checkpoint = folder / "runs/reverse/last.safetensors"
    x = np.random.default_rng(0).integers(4, size=(3, 5))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "one.npy", x[0].astype(np.uint8))
    model = tc.tutorials.uva.ReversePredictor.load_from_checkpoint(checkpoint)
    expected = model(tc.F.one_hot(x, num_classes=4).astype(np.float32)).argmax(-1)
    out, _ = command("predict", checkpoint, "x.npy", cwd=tmp_path)
    assert np.array_equal(np.loadtxt(out.splitlines(), dtype=int), expected)
    out, _ = command("predict", checkpoint, "one.npy", cwd=tmp_path)
    assert out == " ".join(str(v) for v in expected[0]) + "\n"
    command("predict", checkpoint, "one.npy", "--output", "y.npy", cwd=tmp_path)
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected[0])
    command("predict", checkpoint, "x.npy", "--output", "y.npy", cwd=tmp_path)
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected)


def predictor():
    return tc.TransformerPredictor(3, 8, 2, 1, 1, lr=1e-3, warmup=2, max_iters=9)


def predicts(*arguments):
    return cli.main(["predict", *map(str, arguments)])


def test_a_models_outputs(tmp_path, capsys):
    model, x = predictor().eval(), np.random.default_rng(0).normal(size=(2, 5, 3))
    tc.save(model, tmp_path / "m.safetensors")
    np.save(tmp_path / "x.npy", x)
    assert predicts(tmp_path / "m.safetensors", tmp_path / "x.npy") == 0
    out = capsys.readouterr().out
    assert out.count("\n\n") == 1 and np.allclose(np.loadtxt(out.splitlines()).reshape(2, 5, 2), model(x.astype(np.float32)), atol=1e-4)


def test_a_class_that_is_not_ours(tmp_path, capsys):
    class Module(tc.TransformerPredictor):
        pass

    np.save(tmp_path / "x.npy", np.ones((5, 3)))
    tc.save(Module(3, 8, 2, 1, 1, lr=1e-3, warmup=2, max_iters=9), tmp_path / "m.safetensors")
    assert predicts(tmp_path / "m.safetensors", tmp_path / "x.npy") == 1
    assert "class 'Module'; predict knows AnomalyPredictor" in capsys.readouterr().err
    assert predicts(tmp_path / "m.safetensors", tmp_path / "x.npy", "--class", "TransformerPredictor") == 0
    tc.save(dict(predictor().state_dict()), tmp_path / "m.safetensors")
    assert predicts(tmp_path / "m.safetensors", tmp_path / "x.npy") == 1
    assert "add --class" in capsys.readouterr().err


def test_sizes_beyond_the_weights_are_refused(tmp_path, capsys):
    """A file of a few kilobytes cannot ask for a model of gigabytes."""
    np.save(tmp_path / "x.npy", np.ones((5, 3)))
    model = predictor()
    for name, value in (
        ("model_dim", 10**8),
        ("num_layers", 10**9),
        ("input_dim", 7),
        ("num_classes", "2"),
        ("num_heads", 3),
        ("lr", "fast"),
    ):
        parameters = {**dict(model.hparams.items()), name: value}
        tc.save(dict(model.state_dict()), tmp_path / "m.safetensors", hyper_parameters=parameters)
        found = predicts(tmp_path / "m.safetensors", tmp_path / "x.npy", "--class", "TransformerPredictor")
        assert found == (0 if name == "lr" else 1), name
    for width, inputs, classes in ((100_000, 0, 2), (2, 3, 10**10)):  # in arrays without elements, which take no room in a file
        weights = {"input_net.1.weight": np.ones((width, inputs), np.float32), "output_net.4.weight": np.ones((classes, 0), np.float32)}
        parameters = dict(model.hparams.items()) | dict(input_dim=inputs, model_dim=width, num_classes=classes, num_layers=0, num_heads=1)
        tc.save(weights, tmp_path / "m.safetensors", hyper_parameters=parameters)
        assert predicts(tmp_path / "m.safetensors", tmp_path / "x.npy", "--class", "TransformerPredictor") == 1
        assert "weights; the file has" in capsys.readouterr().err
    tc.save({"a": np.ones(3)}, tmp_path / "m.safetensors")
    assert predicts(tmp_path / "m.safetensors", tmp_path / "x.npy", "--class", "ReversePredictor") == 1
    assert "contains no ReversePredictor" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.ones((2, 5)), "float64; expected categories"),
        (np.full((2, 5), 4), "from 4 to 4; expected categories from 0 to 3"),
        (np.zeros((1, 2, 5), int), r"shape \(1, 2, 5\); expected \(batch, sequence\)"),
        (np.int64(3), r"shape \(\)"),
        (np.array(["a"] * 5), "expected categories"),
        (None, "not an .npy file"),
    ],
)
def test_inputs_that_are_refused(reverse_run, tmp_path, capsys, value, message):
    np.save(tmp_path / "x.npy", value)
    assert predicts(reverse_run[0] / "runs/reverse/best.safetensors", tmp_path / "x.npy") == 1
    assert re.search(message, capsys.readouterr().err)


def test_files_that_are_not_there_or_something_else(reverse_run, tmp_path, capsys):
    checkpoint = reverse_run[0] / "runs/reverse/best.safetensors"
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 5), int))
    np.save(tmp_path / "x.npy", np.zeros((1, 5), int))
    for arguments in (
        ("nowhere", tmp_path / "x.npy"),
        (tmp_path, tmp_path / "x.npy"),
        (tmp_path / "x.npy", tmp_path / "x.npy"),
        (tmp_path / "x.npz", tmp_path / "x.npy"),
        (checkpoint, "nowhere"),
        (checkpoint, tmp_path / "x.npz"),
        (checkpoint, checkpoint),
        (checkpoint, tmp_path / "x.npy", "--output", tmp_path / "no/folder.npy"),
    ):
        assert predicts(*arguments) == 1, arguments
        assert capsys.readouterr().err.startswith("python -m transformer_c predict: error: ")
    assert predicts("", tmp_path / "x.npy") == 1 and "error: '': No such file" in capsys.readouterr().err


def test_names_that_the_output_cannot_encode(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    tc.save(predictor(), tmp_path / "m.safetensors")
    np.save(tmp_path / "x.npy", np.zeros((2, 5, 3)))
    out, err = command("predict", "m.safetensors", "x.npy", "--output", "größe.npy", cwd=tmp_path)
    assert out.startswith("gr\\xf6\\xdfe.npy: shape (2, 5, 2)") and err == "" and (tmp_path / "größe.npy").exists()


def test_errors_are_not_printed_among_results(tmp_path):
    done = subprocess.run(f"'{sys.executable}' -m transformer_c predict nowhere x.npy 2>&-", shell=True, cwd=tmp_path, capture_output=True)
    assert done.returncode == 1 and done.stdout == b""


@pytest.mark.parametrize("output", ["m.safetensors", "x.npy", "link.npy"])
def test_what_is_read_is_not_written_over(tmp_path, monkeypatch, capsys, output):
    monkeypatch.chdir(tmp_path)
    tc.save(predictor(), "m.safetensors")
    np.save("x.npy", np.zeros((2, 5, 3)))
    os.symlink("x.npy", "link.npy")
    before = [Path(name).read_bytes() for name in ("m.safetensors", "x.npy")]
    assert predicts("m.safetensors", "x.npy", "--output", output) == 1
    assert "is read and cannot be the output as well" in capsys.readouterr().err
    assert before == [Path(name).read_bytes() for name in ("m.safetensors", "x.npy")]


def test_a_reader_that_goes_away(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((300, 200, 3)))
    tc.save(predictor(), tmp_path / "m.safetensors")
    process = started("predict", "m.safetensors", "x.npy", cwd=tmp_path)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait(60) == 1
    process.stderr.close()


# ---- selftest, bench, usage --------------------------------------------------------------------------------------------------------


def test_selftest(tmp_path):
    out, err = command("selftest", cwd=tmp_path)
    assert err == "" and re.search(r"all \d+ checks passed in", out)
    for name, usable in tc._core.cpu_isas().items():
        expected = r"(\d+) of \1 checks passed" if usable else "not usable"
        assert re.search(rf"^{name} +{expected}", out, re.M)


@pytest.mark.parametrize(
    ("arguments", "of"),
    [("--foo", ""), ("info extra", " info"), ("train reverse --foo", " train reverse"), ("predict x --foo", " predict")],
)
def test_an_unknown_argument_is_the_commands_own_error(arguments, of, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments.split())
    printed = capsys.readouterr()
    assert stopped.value.code == 2 and printed.out == ""
    assert printed.err.startswith(f"usage: python -m transformer_c{of} [")
    assert f"python -m transformer_c{of}: error: unrecognized arguments: {arguments.split()[-1]}" in printed.err


@pytest.mark.parametrize("command", ["embed FOLDER", "classify FOLDER", "predict FILE"])
def test_files_may_be_named_after_options(command):
    for arguments in ("a.txt - --threads 2", "a.txt --threads 2 -", "--threads 2 a.txt -"):
        options = cli.parser().parse_args([*command.split(), *arguments.split()])
        assert (options.input, options.threads) == (["a.txt", "-"], 2)
    assert list(cli.parser().parse_args([*command.split(), "--threads", "2"]).input) == []


@pytest.mark.parametrize("kernel", ["linear_forward", "layer_norm_backward"])
def test_selftest_finds_a_wrong_kernel(monkeypatch, capsys, kernel):
    from transformer_c import ops

    right = getattr(ops, kernel)

    def wrong(*arguments, **options):
        result = right(*arguments, **options)
        return (result[0] * np.asarray(1 + 1e-4, result[0].dtype), *result[1:])

    monkeypatch.setattr(ops, kernel, wrong)
    before = tc._core.cpu_isa()
    assert cli.main(["selftest"]) == 1
    out = capsys.readouterr().out
    assert f"FAILED  {before}: {kernel.rpartition('_')[0]} float32: relative error" in out and "checks FAILED" in out
    assert tc._core.cpu_isa() == before


def test_bench_of_a_checkout_and_of_an_installed_package(tmp_path, monkeypatch, capsys):
    if Path(tc.__file__).parents[2] == ROOT:
        out, _ = command("bench", "--list", cwd=tmp_path)
        assert "reverse_step" in out.split()
        command("bench", "--nonsense", cwd=tmp_path, status=2)
    monkeypatch.setattr(cli.bench, "REPOSITORY", tmp_path)
    assert cli.main(["bench", "--quick"]) == 1
    assert "make bench" in capsys.readouterr().err


USAGE = {
    "no command": [],
    "unknown command": ["trian"],
    "no task": ["train"],
    "unknown task": ["train", "sorting"],
    "unknown option": ["train", "reverse", "--epoches", "3"],
    "no number": ["train", "reverse", "--epochs", "many"],
    "zero": ["train", "reverse", "--epochs", "0"],
    "too many threads": ["train", "reverse", "--threads", "4096"],
    "no rate": ["train", "reverse", "--dropout", "1"],
    "infinite": ["train", "reverse", "--lr", "inf"],
    "nan": ["train", "reverse", "--clip", "nan"],
    "seed": ["train", "reverse", "--seed", str(2**64)],
    "device": ["train", "anomaly", "--device", "gpu"],
    "graphs on the CPU": ["train", "reverse", "--graph"],
    "heads": ["train", "anomaly", "--num-heads", "3"],
    "set of one": ["train", "anomaly", "--set-size", "1"],
    "longer than the encoding": ["train", "reverse", "--seq-len", "5001"],
    "less than a batch": ["train", "reverse", "--train-size", "5"],
    "not its model's": ["train", "digits", "--model", "mlp", "--n-heads", "2"],
    "unknown model": ["train", "sequences", "--model", "lstm"],
    "heads of the squares": ["train", "sequences", "--n-heads", "4"],
    "large patches": ["train", "digits", "--patch-size", "29"],
    "no reviews": ["train", "reviews"],
    "two files of reviews": ["train", "reviews", "--csv", "a", "--folder", "b"],
    "source of a folder": ["train", "reviews", "--folder", "b", "--source", "imdb"],
    "no vocabulary": ["train", "reviews", "--csv", "a", "--vocab-size", "2"],
    "random state": ["train", "sequences", "--data-seed", "-1"],
    "no input": ["predict", "a"],
    "unknown class": ["predict", "a", "b", "--class", "os.system"],
    "info takes nothing": ["info", "--verbose"],
    "selftest takes no file": ["selftest", "file"],
}


def test_the_longest_sequence_is_that_of_the_encoding():
    assert tc.PositionalEncoding(2).pe.shape[1] == LONGEST_SEQUENCE


@pytest.mark.parametrize("name", USAGE)
def test_usage_errors(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        status = cli.main(USAGE[name])
    except SystemExit as leaving:
        status = leaving.code
    shown = capsys.readouterr()
    assert status == 2 and shown.out == "" and shown.err.startswith("usage: python -m transformer_c") and "error: " in shown.err
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(tc.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_device_that_is_not_there(tmp_path, capsys):
    assert cli.main(["train", "reverse", "--device", "cuda", "--output", str(tmp_path / "run")]) == 1
    assert "--device cuda: " in capsys.readouterr().err and not (tmp_path / "run").exists()


# ---- documentation --------------------------------------------------------------------------------------------------------------


def options_of(parser):
    """Every long option of a parser and its subparsers."""
    found = {o for action in parser._actions for o in action.option_strings if o.startswith("--")}
    for action in parser._actions:
        for below in (action.choices or {}).values() if hasattr(action, "_parser_class") else ():
            found |= options_of(below)
    return found


def test_the_documentation_has_every_option_and_no_other():
    section = ""
    for name in ("docs/training.md", "docs/models.md"):
        text = (ROOT / name).read_text()
        section += text[text.index("## On the command line") :]
    mentioned = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", section))
    known = options_of(cli.parser())
    assert mentioned - known == set() and known - mentioned - {"--help", "--version"} == set()


def test_the_documentation_has_every_default():
    """The table's cells agree with --help."""
    text = (ROOT / "docs/training.md").read_text()
    rows = dict(re.findall(r"^\| `(--[a-z-]+)`[^|]*\|([^\n]*)\|$", text, re.M))
    for column, task in enumerate(TASKS.values()):
        for name, option in task.options.items():
            cells = [cell.strip() for cell in rows["--" + name.replace("_", "-")].split("|")]
            assert cells[column] == option.shown, (task.name, name)
        for row, cells in rows.items():
            assert (cells.split("|")[column].strip() == "-") == (row[2:].replace("-", "_") not in task.options), (task.name, row)


def test_the_documented_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/training.md").read_text()
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(
            compile(
                block.replace("fit(model, train, val,", "fit(model, tc.data.DataLoader(train, 32), tc.data.DataLoader(val, 64),"),
                "training.md",
                "exec",
            ),
            names,
        )
    assert names["result"]["val_loss"] < 0.1 and (tmp_path / "runs/line/last.safetensors").exists()


def test_the_documented_commands_parse():
    text = "".join((ROOT / name).read_text() for name in ("docs/training.md", "docs/models.md", "README.md"))
    commands = re.findall(r"^python -m transformer_c ([^#\n]*)", text, re.M)
    assert len(commands) > 10
    for line in commands:
        if not line.startswith("bench"):
            cli.parser().parse_args(shlex.split(line))
