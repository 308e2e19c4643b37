"""``python -m transformer_c train TASK --device cuda --graph``: the documents' models, captured, beside the same training without."""

import json

import mnist_files
import numpy as np
import pytest
import transformer_c as tc
from transformer_c import cli
from transformer_c.cli import train

pytestmark = [pytest.mark.usefixtures("nothing_is_left"), pytest.mark.whole]

ENCODER = ["--patch-size", "14", "--n-embd", "4", "--n-heads", "2", "--n-layers", "1"]
TASKS = {
    "reverse": ["reverse", "--train-size", "32", "--val-size", "8", "--test-size", "8", "--batch-size", "8", "--model-dim", "8", "--seq-len", "4", "--dropout", "0.1"],
    "anomaly": ["anomaly", "--features", "features.npz", "--set-size", "3", "--batch-size", "8", "--model-dim", "8", "--num-layers", "1", "--num-heads", "2"],
    "sequences of own layers": ["sequences", "--model", "own", "--train-size", "16", "--test-size", "4", "--batch-size", "4"],
    "sequences of nn": ["sequences", "--model", "nn", "--train-size", "16", "--test-size", "4", "--batch-size", "4"],
    "digits of pixels": ["digits", "--model", "mlp", "--n-hidden", "4", "--mnist", "mnist", "--batch-size", "8"],
    "digits over features": ["digits", "--model", "features", *ENCODER, "--mnist", "mnist", "--batch-size", "8"],
    "digits over patches": ["digits", "--model", "patches", *ENCODER, "--mnist", "mnist", "--batch-size", "8"],
    "reviews": ["reviews", "--csv", "reviews.csv", "--vocab-size", "12", "--sequence-length", "4", "--embed-dim", "4", "--dense-dim", "4", "--batch-size", "7"],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with small data, in which the commands run; --device takes the emulated GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "device", str)
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(2), 20)
    arrays = {f"{part}_features": rng.standard_normal((40, 5)) for part in ("train", "test")}
    np.savez("features.npz", **arrays, train_labels=labels, test_labels=labels)
    (tmp_path / "mnist").mkdir()
    for part, count in (("train", 32), ("t10k", 8)):
        mnist_files.write(tmp_path / "mnist", part, rng.integers(0, 255, (count, 28, 28)), np.arange(count) % 10)
    lines = [f"{word} film number {i},{label}" for i in range(20) for word, label in (("good", 1), ("bad", 0))]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    return tmp_path


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_the_numbers_of_one_without_graphs(emulated_gpu, emulated_library, folder, name):
    found, starts = [], []
    for output, graph in (("plain", []), ("graph", ["--graph"])):
        before = emulated_library.library.emulator_graph_launches()
        options = ["--epochs", "2", "--device", emulated_gpu, "--no-progress", "--output", output, *graph]
        assert cli.main(["train", *TASKS[name], *options]) == 0
        found.append((folder / output / "history.csv").read_text().splitlines())
        starts.append(emulated_library.library.emulator_graph_launches() - before)
    assert found[0] == found[1] and len(found[0]) == 3
    assert starts[0] == 0 and starts[1] > 2


def test_a_run_goes_on_with_graphs(emulated_gpu, folder):
    """They are no part of what a run was started with."""
    options = [*TASKS["sequences of nn"], "--device", emulated_gpu, "--no-progress", "--output", "run", "--epochs", "1"]
    assert cli.main(["train", *options]) == 0
    saved = json.loads((folder / "run/options.json").read_text())
    assert "graph" not in saved["options"]
    assert cli.main(["train", "sequences", "--resume", "--output", "run", "--no-progress", "--device", emulated_gpu, "--graph"]) == 0


def test_the_command_that_resumes_is_for_the_same_device(emulated_gpu, folder, capsys, monkeypatch):
    def stop(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(train.Trainer, "fit", stop)
    cli.main(["train", *TASKS["sequences of nn"], "--device", emulated_gpu, "--graph", "--output", "run", "--no-progress"])
    assert f"train sequences --resume --output run --device {emulated_gpu} --graph\n" in capsys.readouterr().err


def test_graphs_need_a_gpu_and_one_process(folder, capsys, monkeypatch):
    with pytest.raises(SystemExit):
        cli.main(["train", "reverse", "--graph"])
    assert "--graph captures steps on a GPU, and --device is cpu: give --device cuda as well" in capsys.readouterr().err
    monkeypatch.setattr(tc.distributed, "world_size", lambda: 2)
    with pytest.raises(SystemExit):
        cli.main(["train", "reverse", "--graph", "--device", "cuda"])
    assert "--graph captures the steps of one process" in capsys.readouterr().err
