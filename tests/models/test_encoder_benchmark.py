"""benchmarks/encoders.py with a small model: what is compared, timed and written; the other engines as far as they are installed."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import transformer_c as tc
from folders import CONFIG
from words import write_tokenizer

from benchmarks import encoder_engines, encoders, harness

pytest.importorskip("tokenizers")


@pytest.fixture
def folder(tmp_path):
    tc.manual_seed(0)
    values = {**CONFIG, "vocab_size": 20000, "max_position_embeddings": 256, "initializer_range": 0.3}
    tc.models.save(tc.models.create(values), tmp_path / "model")
    write_tokenizer(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.alone
def test_the_command(folder, tmp_path, capsys):
    path = tmp_path / "result.json"
    options = ["--threads", "1", "--cases", "one,mixed", "--turns", "2", "--engines", "ONNX Runtime", "--json", str(path)]
    assert encoders.main([str(folder), *options]) == 0
    printed, result = capsys.readouterr().out, json.loads(path.read_text())
    assert "| native, 1 thread: ms | bound | ours |" in printed and "| one text of 16 tokens |" in printed
    assert {"date", "cpu", "commit", "versions", "cases"} <= set(result) and len(result["cases"]["mixed"]) == 32
    times = {(row["case"], row["engine"]): row["seconds"] for row in result["rows"] if "seconds" in row}
    peaks = {row["case"]: row["peak"] for row in result["rows"] if row["engine"] == "ours" and "peak" in row}
    assert 0 < times["one", "bound"] < times["one", "ours"] < times["mixed", "ours"] < 10
    assert peaks.keys() == {"one"} and 20e6 < peaks["one"] < 4e9
    if "ONNX Runtime" in encoders.installed()[0]:
        assert ("one", "ONNX Runtime") in times


def test_other_embeddings_are_an_error(folder, monkeypatch):
    monkeypatch.setattr(encoders, "TOLERANCE", -1.0)
    with pytest.raises(harness.BenchmarkError, match=r"the embeddings of ours differ from ours by 0.0e\+00 \(one\)"):
        encoders.main([str(folder), "--threads", "1", "--cases", "one", "--engines", "ONNX Runtime"])


def test_the_embeddings_of_an_engine_are_sorted_padded_and_put_back():
    """With states that are the ids themselves, and one that shows the batches."""
    texts, seen = [np.arange(3) + 10 * i for i in range(40)], []
    texts[7] = np.arange(9)

    def states(ids, lengths):
        seen.append(ids.shape)
        return np.stack([ids, np.ones_like(ids)], -1).astype(np.float32) + 1000.0 * (np.arange(ids.shape[1]) >= lengths[:, None])[..., None]

    found = encoder_engines._embeddings(states, texts)
    means = np.array([[text.mean(), 1.0] for text in texts])
    np.testing.assert_allclose(found, means / np.linalg.norm(means, axis=1, keepdims=True), rtol=1e-6)
    assert seen == [(32, 9), (8, 3)]


def test_variables_are_put_back(monkeypatch):
    monkeypatch.setenv("TRANSFORMER_C_ISA", "generic")
    monkeypatch.delenv("CT2_FORCE_CPU_ISA", raising=False)
    with harness.variables(encoders.ISAS["avx2"]):
        assert os.environ["TRANSFORMER_C_ISA"] == "avx2" and "CT2_FORCE_CPU_ISA" in os.environ
    assert os.environ["TRANSFORMER_C_ISA"] == "generic" and "CT2_FORCE_CPU_ISA" not in os.environ


def test_the_table():
    rows = {"a": {"bound": 1.0, "ours": 2.0, "PyTorch": 3.0, "OpenVINO": 5.0}, "b": {"bound": 1.0, "ours": 4.0, "PyTorch": 2.0}}
    lines = encoders.table("ms", ["bound", "ours", "PyTorch", "OpenVINO"], rows, lambda v: f"{v:.1f}").splitlines()
    assert lines[0] == "| ms | bound | ours | PyTorch | OpenVINO | ratio |"
    assert lines[2:] == ["| a | 1.0 | 2.0 | 3.0 | 5.0 | 1.50 |", "| b | 1.0 | 4.0 | 2.0 |  | 0.50 |"]


def test_the_least_arithmetic():
    config = {"hidden_size": 3, "intermediate_size": 5, "num_hidden_layers": 2}
    products = 16 * 3 * (9 + 3) + 2 * 16 * 16 * 3 + 2 * 16 * 3 * 5  # q k v and out; scores and values; the network
    assert encoder_engines.flops(config, "one") == 2 * 2 * products


def test_the_page(tmp_path):
    """Its table and its link are replaced, the rest stays."""
    page, table = tmp_path / "models.md", "| | bound | ours | old |\n|---|---:|---:|---:|\n| x | 1 | 2 | 3 |\n"
    page.write_text(f"# Speed\n\n{table}\nAll: [2026-11-22-encoders.json](../results/2026-11-22-encoders.json).\n")
    of, rows = {"isa": "native", "threads": 1}, []
    for case, times in {"full": (0.8, 1.0, 1.3, 0.9), "one": (0.003, 0.005, 0.01, 0.02)}.items():
        rows += [
            {**of, "case": case, "engine": e, "seconds": s} for e, s in zip(("bound", "ours", "PyTorch", "OpenVINO"), times, strict=True)
        ]
    rows += [{**of, "case": "one", "engine": e, "peak": mib << 20} for e, mib in (("ours", 130), ("PyTorch", 391))]
    rows += [{**rows[1], "threads": 2, "seconds": 9.0}, {**rows[1], "isa": "avx2", "seconds": 9.0}]
    encoders.write_page(page, rows, tmp_path / "2027-01-02-encoders.json")
    assert page.read_text() == (
        "# Speed\n\n| | bound | ours | OpenVINO | PyTorch | best of the others / ours |\n|---|---:|---:|---:|---:|---:|\n"
        "| 32 texts of 128 tokens | 800 | 1000 | 900 | 1300 | 0.90 |\n| one text of 16 tokens | 3.0 | 5.0 | 20.0 | 10.0 | 2.00 |\n"
        "| MiB, one text of 16 tokens |  | 130 |  | 391 | 3.01 |\n\nAll: [2027-01-02-encoders.json](../results/2027-01-02-encoders.json).\n"
    )
    page.write_text("no table\n")
    with pytest.raises(harness.BenchmarkError, match="has 0 tables that begin with"):
        encoders.write_page(page, rows, None)


def test_the_table_of_docs_is_that_of_its_file():
    """And the ratios of two threads beside it."""
    page = (Path(__file__).parents[2] / "docs/models.md").read_text()
    path = re.search(r"of two threads:\n\[[\w.-]+\]\(\.\./(benchmarks/results/[\w.-]+)\)", page)[1]
    rows = json.loads((Path(__file__).parents[2] / path).read_text())["rows"]
    lines = encoders.page_table(rows)
    assert len(lines) == 8 and "\n" + "\n".join(lines) + "\n\n" in page
    others = [
        name for name in lines[0].split(" | ") if any(r["engine"] == name and r["threads"] == 2 for r in rows) and name in encoders.ENGINES
    ]
    full, mixed, padded, one = (line.split("|")[-2].strip() for line in encoders.page_table(rows, threads=2)[2:6])
    assert (
        f"With two threads the ratios of the table's run to {', '.join(others[:-1])} and {others[-1]} are {full}, {mixed}, {padded} and {one}:"
        in " ".join(page.split())
    )


def test_requirements():
    """Seconds by case, memory by each peak; what has no other engine beside it is not met."""
    of = {"isa": "native", "threads": 1}
    rows = [
        {**of, "case": "full", "engine": e, "seconds": s} for e, s in (("bound", 0.5), ("ours", 1.0), ("PyTorch", 1.5), ("OpenVINO", 1.2))
    ]
    rows += [{**of, "case": "full", "engine": "ours", "peak": 100}, {**of, "case": "full", "engine": "OpenVINO", "peak": 90}]
    rows += [{**of, "case": "one", "engine": "ours", "seconds": 1.0}]
    assert list(encoders.unmet([("full", 1, 1.2), ("full", None, 1.0), ("full", 2, 9.0), ("memory", None, 0.9)], rows)) == []
    assert list(encoders.unmet([("full", None, 1.3), ("memory", 1, 1.0), ("one", None, 1.0)], rows)) == [
        "full (32 texts of 128 tokens), native, 1 thread: 1.20 times as good as OpenVINO, 1.3 is required",
        "memory (32 texts of 128 tokens), native, 1 thread: 0.90 times as good as OpenVINO, 1.0 is required",
        "one (one text of 16 tokens), native, 1 thread: a ratio of 1.0 is required, but no other engine was measured",
    ]


def test_a_requirement_that_is_not_met_is_the_exit_status(folder, monkeypatch, capsys):
    rows = [{"isa": "native", "threads": 1, "case": "one", "engine": e, "seconds": s} for e, s in (("ours", 2.0), ("PyTorch", 1.0))]
    monkeypatch.setattr(encoders, "run_all", lambda *_: rows)
    options = [str(folder), "--threads", "1", "--cases", "one", "--engines", "PyTorch", "--require"]
    assert (encoders.main([*options, "one=0.5"]), encoders.main([*options, "one@1=0.6"])) == (0, 1)
    assert capsys.readouterr().err.endswith("1 thread: 0.50 times as good as PyTorch, 0.6 is required\n")


def test_rows_of_other_threads_are_kept(folder, tmp_path, monkeypatch, capsys):
    path, options = tmp_path / "result.json", ["--cases", "one", "--engines", "ONNX Runtime", "--add"]
    of = {"case": "one", "engine": "ours"}
    monkeypatch.setattr(encoders, "run_all", lambda a, c, isa, threads, e: [{**of, "isa": isa, "threads": threads, "seconds": next(count)}])
    count = iter(range(9))
    for threads in ("1,2", "2"):
        assert encoders.main([str(folder), *options, "--json", str(path), "--threads", threads]) == 0
    assert [(row["threads"], row["seconds"]) for row in json.loads(path.read_text())["rows"]] == [(1, 0), (2, 2)]


@pytest.mark.parametrize(
    "wrong",
    [
        ["--isa", "sse"],
        ["--cases", "huge"],
        ["--engines", "Caffe"],
        ["--cases", "one", "--require", "full=1"],
        ["--threads", "1", "--require", "full@2=1"],
        ["--require", "full@0=1"],
        ["--cases", "mixed", "--require", "memory=1"],
        ["--require", "full"],
        ["--threads", "0"],
        ["--cpu-clock", "--threads", "2"],
        ["--page", "none.md"],
    ],
)
def test_wrong_options(folder, capsys, wrong):
    with pytest.raises(SystemExit) as error:
        encoders.main([str(folder), *wrong])
    assert error.value.code == 2 and wrong[0] in capsys.readouterr().err


def test_a_folder_without_a_model(tmp_path, capsys):
    with pytest.raises(SystemExit):
        encoders.main([str(tmp_path)])
    assert "has no config.json" in capsys.readouterr().err
