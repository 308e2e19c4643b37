"""tools/run_documents.py on documents of the test's own: its tables, failures, and lines that differ."""

import importlib.util
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "run_documents.py"

DOCUMENT = """\
A line of prose
import torch
import torch.nn as nn
from lightning.pytorch.callbacks import ModelCheckpoint
%matplotlib inline
! pip install torch
x = torch.ones(2, 3)
    Output: 3
y = nn.Linear(3, 2)(x).odd_name
print("ran", y.shape)
"""


@pytest.fixture
def tool(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sys, "path", [*sys.path])  # which it adds to, as it sets the variables
    for name in ("PATH_DATASETS", "PATH_CHECKPOINT"):
        monkeypatch.setenv(name, "")
    spec = importlib.util.spec_from_file_location("run_documents", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "003_x.txt").write_text(DOCUMENT)
    monkeypatch.setattr(module, "CELLS", {"003": [(2, 7), (9, 10)]})
    monkeypatch.setattr(module, "DIFFER", {("003", 9): (".odd_name", "", "for the test")})
    return module


def run(tool, folder, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["run_documents.py", str(folder)])
    return tool.main()


def test_cells_run_with_their_imports_exchanged(tool, tmp_path, monkeypatch, capsys):
    assert run(tool, tmp_path, monkeypatch) == 0
    printed = capsys.readouterr().out
    assert "ran (2, 2)" in printed and "2 of 2 cells run" in printed and "1 lines differ" in printed and "003, line 9" in printed


def test_failures_and_too_many_differing_lines_are_told(tool, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tool, "LIMIT", 0)
    assert run(tool, tmp_path, monkeypatch) == 1
    monkeypatch.setattr(tool, "DIFFER", {})
    assert run(tool, tmp_path, monkeypatch) == 1
    assert re.search(r"FAILED at line 9: .*\n +AttributeError: .*odd_name", capsys.readouterr().out)
    monkeypatch.setattr(tool, "DIFFER", {("003", 9): ("another", "", "")})
    assert run(tool, tmp_path, monkeypatch) == 1
    assert "another version of the document" in capsys.readouterr().out


def test_its_tables(tool, tmp_path):
    spec = importlib.util.spec_from_file_location("fresh", TOOL)
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    assert len(fresh.DIFFER) <= fresh.LIMIT == 12 and list(fresh.CELLS) == ["000", "001", "003", "004"]
    for cells in fresh.CELLS.values():
        assert all(a[1] < b[0] for a, b in itertools.pairwise(cells)) and all(a <= b for a, b in cells)
    ran = subprocess.run([sys.executable, TOOL, tmp_path / "none"], capture_output=True, check=False, text=True)
    assert ran.returncode == 1 and ran.stderr == f"{tmp_path / 'none'} has 0 files 000*.txt; expected one\n"
