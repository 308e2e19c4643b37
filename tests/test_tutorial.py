"""python -m transformer_c tutorial, with a short training: what it prints, writes, compares and requires; the stand-in features."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import cli
from transformer_c.tutorials import uva

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")
from transformer_c.tutorials import uva_features, uva_run
from transformer_c.tutorials.uva_run.report import DIFFERS, Report

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path if p)}
SHORT = ["tutorial", "--epochs", "1", "--anomaly-epochs", "1", "--no-progress"]


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    """(standard output, results.json, folder) of a short run."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "tutorial_output").mkdir()
    (folder / "tutorial_output/SetAnomalyTask.ckpt").write_bytes(b"of other features: not to be opened")
    done = subprocess.run(
        [sys.executable, "-m", "transformer_c", *SHORT], cwd=folder, capture_output=True, text=True, timeout=300,
        env=ENVIRONMENT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    output = folder / "tutorial_output"
    return done.stdout, json.loads((output / "results.json").read_text()), output


def test_every_cell_with_a_result_has_a_row(short_run):
    text, results, _ = short_run
    rows = results["rows"]
    assert {r["cell"] for r in rows} >= {4, 5, 6, 7, 8, 9, 12, 16, 17, 20, 21, 23, 25, 29, 30, 31, 32, 36, 37, 38, 39, 40, 41}
    assert not [r for r in rows if r["verdict"] == DIFFERS] and sum(r["verdict"] == "same" for r in rows) == 20
    lines = text.split("transformer_c\n----")[1].splitlines()
    for row in rows:
        assert any(all(part in line for part in (row["what"], row["tutorial"], row["ours"])) for line in lines), row


def test_the_numbers_are_the_tutorials(short_run):
    rows = {(r["cell"], r["what"]): r["ours"] for r in short_run[1]["rows"]}
    assert rows[5, "Attention (3, 3), first row"] == "0.4028 0.2886 0.3086"
    assert rows[17, "first sample"] == "9620627973343709" and rows[20, "parameters"] == "10,346" and rows[36, "parameters"] == "2,306,305"
    assert rows[23, "shape of attention_maps[0]"] == "(128, 1, 16, 16)" and rows[38, "change when the sets are permuted"] == "< 1e-05"


def test_pictures_and_checkpoints_are_written(short_run):
    _, results, output = short_run
    cells = ("10_positional_encoding", "11_encoding_curves", "13_learning_rate", "20_reverse_history", "25_reverse_attention")
    cells += (
        "33_anomaly_sets",
        "36_anomaly_history",
        "40_anomaly_set",
        "40_anomaly_attention",
        "42_anomaly_mistake",
        "42_mistake_attention",
    )
    assert results["pictures"] == [f"cell_{cell}.png" for cell in cells]
    for name in results["pictures"]:
        assert (output / name).read_bytes().startswith(b"\x89PNG"), name
    assert sorted(p.name for p in output.glob("*.png")) == sorted(results["pictures"])
    for task, kind in (("ReverseTask", uva.ReversePredictor), ("SetAnomalyTask", uva.AnomalyPredictor)):
        assert {p.name for p in (output / task).iterdir()} == {"best.safetensors", "last.safetensors", "history.csv"}
        assert isinstance(kind.load_from_checkpoint(output / task / "best.safetensors"), kind)


def test_a_model_of_other_features_is_not_used(short_run):
    assert "SetAnomalyTask.ckpt is not used" in short_run[0]


def test_ctrl_c_keeps_the_last_checkpoint(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "transformer_c", "tutorial", "--epochs", "500", "--no-plots", "--no-progress"], cwd=tmp_path, env=ENVIRONMENT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    last = tmp_path / "tutorial_output/ReverseTask/last.safetensors"
    deadline = time.monotonic() + 120
    while not last.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130 and "Traceback" not in error
    assert "ReverseTask" in error and "last.safetensors" in error and "`python -m transformer_c train`" in error
    assert tc.load(last)["state_dict"]


def test_a_number_that_differs_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(uva.CELL_5, "Q", [[0.3367, 0.1288], [0.2345, 0.2303], [-1.1229, 0.1863]])
    for part in ("encodings", "reverse", "anomaly"):
        monkeypatch.setattr(getattr(uva_run, part), "run", lambda *arguments: None)
    assert uva_run.run(output=tmp_path, plots=False) == 1
    out = capsys.readouterr().out
    assert re.search(r"5  Q \(3, 2\), first row .* DIFFERS", out) and "1 differ;" in out


def test_rows_of_a_report(tmp_path, capsys):
    report = Report(tmp_path / "new", plots=False)
    report.compare(1, "equal", "1.00", "1.00")
    report.compare(2, "unlike", "1.00", "1.01")
    report.picture("nothing", lambda: pytest.fail("no pictures were wanted"))
    assert [r.what for r in report.differing] == ["unlike"]
    report.finish(0.1, {"seed": 1})
    results = json.loads((tmp_path / "new/results.json").read_text())
    assert results["seed"] == 1 and results["rows"][1]["verdict"] == DIFFERS and results["pictures"] == []


def test_the_weight_on_the_mirrored_position(tmp_path):
    class Mirror:
        hparams = SimpleNamespace(num_classes=10)

        def get_attention_maps(self, x):
            assert x.shape == (128, 16, 10)
            return [np.broadcast_to(0.75 * np.eye(16)[::-1] + 0.25 * np.eye(16), (128, 1, 16, 16))]

    report = Report(tmp_path, plots=False)
    uva_run.reverse._look(report, Mirror(), uva.reverse_loaders()[1])
    found = {r.cell: (r.ours, r.verdict) for r in report.rows}
    assert found == {23: ("(128, 1, 16, 16)", "same"), 25: ("0.75, the highest in 100 % of rows", "")}


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_a_model_that_knows_positions_is_found_out(tmp_path, weight):
    """Permuted sets must give permuted probabilities."""

    class Model:
        def __call__(self, features, add_positional_encoding):
            assert not add_positional_encoding
            return features.mean(axis=-1, keepdims=True) + tc.tensor(weight * np.arange(10.0, dtype=np.float32)[:, None])

        def get_attention_maps(self, features, add_positional_encoding):
            assert not add_positional_encoding
            return [np.zeros((64, 4, 10, 10))] * 4

    arrays = uva_features.stand_in_features()
    report = Report(tmp_path, plots=False)
    uva_run.anomaly._look(report, Model(), uva.anomaly_loaders(arrays)[2], arrays["test_images"], 42)
    (verdict,) = (r.verdict for r in report.rows if r.what == "change when the sets are permuted")
    assert verdict == (DIFFERS if weight else "same")


def test_the_second_task_does_not_depend_on_what_the_first_drew(tmp_path, monkeypatch):
    class Reached(Exception):
        pass

    def train(*arguments, **options):
        states.append(tc.random.default_generator.get_state())
        raise Reached

    states = []
    monkeypatch.setattr(uva, "train_anomaly", train)
    for drawn in (1, 1000):
        tc.randn(drawn)
        with pytest.raises(Reached):
            uva_run.anomaly.run(Report(tmp_path, plots=False), 42, 1, progress=False)
    assert states[0] == states[1]


def without(*names):
    """Standard error and exit status of the command when packages are missing."""
    code = f"import sys; sys.modules.update(dict.fromkeys({names!r}))\nfrom transformer_c.cli import main\nsys.exit(main({SHORT[:1]!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
    assert done.stdout == "" and "Traceback" not in done.stderr
    return done.stderr, done.returncode


def test_what_is_missing_is_asked_for_before_anything_is_trained():
    error, status = without("matplotlib")
    assert status == 1 and "needs matplotlib: pip install 'transformer_c[tutorial]'; --no-plots does not need matplotlib" in error
    error, status = without("matplotlib", "sklearn")
    assert status == 1 and "needs scikit-learn and matplotlib" in error and "--no-plots" not in error


def test_without_plots_matplotlib_is_not_touched(tmp_path):
    """Also with a seed other than the tutorial's."""
    code = f"import sys; sys.modules['matplotlib'] = None\nfrom transformer_c.cli import main\nsys.exit(main({[*SHORT, '--no-plots', '--seed', '-3']!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=tmp_path, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "tutorial_output").glob("*.png")) and (tmp_path / "tutorial_output/results.json").exists()


def test_full_is_another_name_for_100_epochs(capsys, monkeypatch):
    seen = {}
    monkeypatch.setattr(uva_run, "run", lambda **options: seen.update(options) or 0)
    assert cli.main(["tutorial", "--full"]) == 0 and seen["anomaly_epochs"] == 100
    assert cli.main(["tutorial"]) == 0 and seen == dict(
        seed=42, epochs=10, anomaly_epochs=20, output="tutorial_output", plots=True, progress=True
    )
    with pytest.raises(SystemExit) as refused:
        cli.main(["tutorial", "--full", "--anomaly-epochs", "3"])
    assert refused.value.code == 2 and "give one of them" in capsys.readouterr().err


# ---- features, loaders, training functions ----------------------------------------------------------------------------------------------


def test_stand_in_features():
    arrays = uva_features.stand_in_features()
    assert {n: a.shape for n, a in arrays.items()} == {
        "train_features": (1440, 512), "train_labels": (1440,), "train_images": (1440, 8, 8),
        "test_features": (300, 512), "test_labels": (300,), "test_images": (300, 8, 8),
    }  # fmt: skip
    for part, count in (("train", 144), ("test", 30)):
        assert np.bincount(arrays[f"{part}_labels"]).tolist() == [count] * 10
        assert arrays[f"{part}_features"].dtype == np.float32 and arrays[f"{part}_features"].min() == 0
        assert 0 <= arrays[f"{part}_images"].min() < arrays[f"{part}_images"].max() <= 1
    assert abs(arrays["train_features"].std() - 1) < 1e-3
    again, other = uva_features.stand_in_features(), uva_features.stand_in_features(seed=1)
    assert all((arrays[n] == again[n]).all() for n in arrays)
    assert (arrays["test_images"] == other["test_images"]).all() and (arrays["test_features"] != other["test_features"]).any()
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    where = {i.astype(np.float32).tobytes(): n for n, i in enumerate(digits.images / 16)}
    order = [where[i.tobytes()] for i in arrays["test_images"]]
    assert abs(np.mean(order) / len(where) - 0.5) < 0.05, "the set is ordered by writer: the test images must be of all of it"
    train = {i.tobytes() for i in arrays["train_images"]}
    assert len(train) == 1440 and not train & {i.tobytes() for i in arrays["test_images"]}


def test_figures_of_the_tutorials_own_functions():
    arrays = uva_features.stand_in_features()
    maps = [np.full((2, 4, 5, 5), 0.2), np.full((2, 4, 5, 5), 0.2)]
    figure = uva.plot_attention_maps(tc.tensor([[1, 2, 3, 4, 5], [9, 8, 7, 6, 5]]), maps, idx=1)
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == list("98765")
    assert [t.get_text() for t in uva.plot_attention_maps(None, maps).axes[0].get_xticklabels()] == list("01234")
    indices = tc.tensor([[3, 1, 4], [1, 5, 9]])
    images = arrays["test_images"]
    for dataset in (images, [(image, 0) for image in images], tc.data.TensorDataset(images, arrays["test_labels"])):
        axes = uva.visualize_exmp(indices, dataset).axes
        assert len(axes) == 6 and (np.asarray(axes[2].get_images()[0].get_array()) == images[4]).all()


def test_the_last_images_of_each_class_are_for_tests_and_none_is_used_twice():
    images, _ = uva_features.digit_images()
    arrays = uva_features.stand_in_features()
    by_class = images.reshape(10, -1, 8, 8)
    assert (arrays["test_images"].reshape(10, 30, 8, 8) == by_class[:, -30:]).all()
    assert (arrays["train_images"].reshape(10, -1, 8, 8) == by_class[:, :-30]).all()
    train, val, test = (loader.dataset.img_feats for loader in uva.anomaly_loaders(arrays))
    assert (len(train), len(val), len(test)) == (1300, 140, 300)
    assert len({row.tobytes() for part in (train, val, test) for row in part}) == 1740


def test_the_history_of_a_report_is_whole(tmp_path):
    (tmp_path / "Task").mkdir()
    (tmp_path / "Task/history.csv").write_text("epoch,val_acc\n1,0.5\n2,nan\n")
    report = Report(tmp_path, plots=False)
    found = report.history("Task")
    assert list(found) == ["epoch", "val_acc"] and np.array_equal(found["epoch"], [1, 2])
    assert np.array_equal(found["val_acc"], [0.5, np.nan], equal_nan=True) and report.history("Other") == {}


def test_split_by_class():
    train, val = uva.split_by_class(np.repeat([0, 1, 2], [20, 20, 20]))
    assert val.tolist() == [0, 1, 20, 21, 40, 41] and sorted([*train, *val]) == list(range(60))


def test_training_functions_train_and_reload(tmp_path):
    tc.manual_seed(1)
    arrays = uva_features.stand_in_features()
    options = dict(input_dim=512, model_dim=16, num_heads=2, num_classes=1, num_layers=1, lr=5e-3, warmup=5)
    loaders = uva.anomaly_loaders(arrays, set_size=4)
    model, result = uva.train_anomaly(loaders, max_epochs=4, checkpoint_path=tmp_path, progress=False, **options)
    assert set(result) == {"test_acc", "val_acc", "train_acc"} and not model.training and result["test_acc"] > 0.4
    best = tc.load(tmp_path / "SetAnomalyTask/best.safetensors")
    assert all((model.state_dict()[n].numpy() == np.asarray(v)).all() for n, v in best.items())


def test_the_best_epochs_weights_are_those_of_the_set_anomaly_task(tmp_path, monkeypatch):
    """And those of the last epoch, of the Reverse task, as in the tutorial."""
    monkeypatch.setattr(uva.AnomalyPredictor, "validation_step", lambda self, *_: self.log("val_acc", 1.0 - 0.1 * self.current_epoch))
    monkeypatch.setattr(uva.ReversePredictor, "validation_step", uva.AnomalyPredictor.validation_step)
    trainers = []
    monkeypatch.setattr(uva, "Trainer", lambda *given, **options: trainers.append(tc.Trainer(*given, **options)) or trainers[-1])
    sizes = dict(model_dim=8, num_heads=1, num_layers=1, lr=1e-3, warmup=5)
    sets = uva.anomaly_loaders(uva_features.stand_in_features(), set_size=3)
    sequences = [tc.data.DataLoader(tc.datasets.ReverseDataset(4, 5, 32), 16) for _ in range(3)]
    options = dict(max_epochs=2, checkpoint_path=tmp_path, progress=False)
    anomaly, _ = uva.train_anomaly(sets, input_dim=512, num_classes=1, **options, **sizes)
    reverse, _ = uva.train_reverse(sequences, input_dim=4, num_classes=4, **options, **sizes)
    assert [t.gradient_clip_val for t in trainers] == [2, 5]
    assert (anomaly.hparams.max_iters, reverse.hparams.max_iters) == (
        2 * len(sets[0]),
        2 * len(sequences[0]),
    )  # the schedule ends with the run
    for model, task, wanted, other in ((anomaly, "SetAnomalyTask", "best", "last"), (reverse, "ReverseTask", "last", "best")):
        found = {n: v.numpy() for n, v in model.state_dict().items()}
        states = {kind: type(model).load_from_checkpoint(tmp_path / task / f"{kind}.safetensors").state_dict() for kind in (wanted, other)}
        assert all((found[n] == v.numpy()).all() for n, v in states[wanted].items())
        assert any((found[n] != v.numpy()).any() for n, v in states[other].items())


def test_a_pretrained_file_is_used(tmp_path):
    """The tutorial's download, written as Lightning writes it."""
    torch = pytest.importorskip("torch")
    tc.manual_seed(3)
    parameters = dict(input_dim=10, model_dim=8, num_classes=10, num_heads=1, num_layers=1, lr=1e-3, warmup=5, max_iters=10)
    model = uva.ReversePredictor(**parameters)
    state = {n: torch.tensor(v.numpy()) for n, v in model.state_dict().items()}
    torch.save({"state_dict": state, "hyper_parameters": parameters}, tmp_path / "ReverseTask.ckpt")
    loaded, result = uva.train_reverse(checkpoint_path=tmp_path, progress=False, max_epochs=1)
    assert all((loaded.state_dict()[n].numpy() == v.numpy()).all() for n, v in state.items())
    assert set(result) == {"test_acc", "val_acc"} and result["test_acc"] < 0.3 and not (tmp_path / "ReverseTask").exists()


@pytest.mark.parametrize("kind", [uva.ReversePredictor, uva.AnomalyPredictor])
def test_layouts_of_the_pretrained_files(tmp_path, kind, rng):
    """Both of the tutorial's: Lightning's keys around the weights, the tutorial's sizes; into TransformerPredictor, too."""
    torch = pytest.importorskip("torch")
    parameters = dict(input_dim=10, model_dim=32, num_classes=10, num_heads=1, num_layers=1, lr=5e-4, warmup=50, max_iters=3900)
    if kind is uva.AnomalyPredictor:
        parameters = dict(input_dim=512, model_dim=256, num_classes=1, num_heads=4, num_layers=4, lr=5e-4, warmup=100, max_iters=70300)
        parameters |= dict(dropout=0.1, input_dropout=0.1)
    model = kind(**parameters).eval()
    state = {n: torch.tensor(v.numpy()) for n, v in model.state_dict().items()}
    rest = {"epoch": 9, "global_step": 3900, "callbacks": {}, "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(2)}}}]}
    torch.save({**rest, "state_dict": state, "hyper_parameters": parameters}, tmp_path / "file.ckpt")
    x = rng.standard_normal((2, 7, parameters["input_dim"])).astype(np.float32)
    for loaded in (kind, tc.TransformerPredictor):
        assert np.array_equal(loaded.load_from_checkpoint(tmp_path / "file.ckpt")(x), model(x))
