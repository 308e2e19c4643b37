"""Runs the code of the documents on this library, with their imports alone exchanged.

python tools/run_documents.py FOLDER          all four documents in FOLDER, whose names begin with 000, 001, 003 and 004
python tools/run_documents.py FOLDER 003      some of them

CELLS says which lines of a document are code. EXCHANGED are lines that a machine without PyTorch, Lightning and the internet cannot have: imports,
magics, downloads, helper files and data that come from elsewhere (`document_stand_ins.py` has small ones). DIFFER are the other lines
that have to be others here; the tool prints how many and which, and ends with status 1 if a cell fails or there are more than LIMIT.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

LIMIT = 12

# document: its cells, (first line, last line), counted from 1.
CELLS = {
    "000": [
        (25, 25), (33, 83), (91, 114), (169, 177), (182, 192), (233, 274), (310, 348), (353, 369), (385, 409), (414, 425), (431, 445), (461, 475),
        (477, 491), (503, 605), (618, 633), (638, 641), (646, 648), (657, 681), (686, 715), (720, 729), (747, 748), (755, 758), (763, 763),
        (770, 795), (800, 800), (816, 831), (839, 852), (862, 883), (888, 889), (896, 914), (919, 981), (986, 997), (1002, 1019), (1027, 1047),
        (1052, 1087), (1092, 1102), (1122, 1124), (1132, 1150), (1163, 1164), (1169, 1175), (1185, 1186), (1192, 1195),
    ],
    "001": [(2, 35), (41, 55), (64, 87), (112, 121), (124, 133), (162, 203), (219, 239)],
    "003": [
        (9, 12), (16, 25), (33, 100), (101, 105), (123, 160), (161, 176), (177, 178), (182, 234), (235, 254), (255, 256), (266, 311), (312, 333),
        (337, 347), (348, 362), (363, 363), (368, 381), (382, 385), (394, 399), (401, 403), (414, 414), (429, 443), (444, 503), (507, 516),
        (517, 520), (525, 525),
    ],
    "004": [
        (34, 40), (41, 70), (71, 74), (76, 87), (91, 129), (130, 132), (134, 136), (188, 202), (208, 222), (223, 226), (228, 239), (243, 310),
        (311, 313), (360, 374),
    ],
}  # fmt: skip

# Lines of any document, without their indentation. None leaves the line out.
EXCHANGED = {
    # imports
    "import torch": "import transformer_c as torch",
    "import torch.nn as nn": "import transformer_c.nn as nn",
    "import torch.nn.functional as F": "import transformer_c.nn.functional as F",
    "import torch.optim as optim": "import transformer_c.optim as optim",
    "import torch.utils.data as data": "import transformer_c.utils.data as data",
    "from torch.utils.data import DataLoader": "from transformer_c.utils.data import DataLoader",
    "from torch.utils.data import DataLoader, Dataset, random_split, TensorDataset": "from transformer_c.utils.data import DataLoader, Dataset, random_split, TensorDataset",
    "import lightning as L": "import transformer_c as L",
    "import pytorch_lightning as pl": "import transformer_c as pl",
    "from lightning.pytorch.callbacks import ModelCheckpoint": "from transformer_c.callbacks import ModelCheckpoint",
    "import seaborn as sns": "from document_stand_ins import seaborn as sns",
    "import matplotlib_inline.backend_inline": None,
    "from IPython.display import set_matplotlib_formats": None,
    "from IPython.display import FileLink, FileLinks": None,
    "from tqdm.notebook import tqdm": "from tqdm import tqdm",
    # magics and settings of a notebook
    "%matplotlib inline": None,
    'matplotlib_inline.backend_inline.set_matplotlib_formats("svg", "pdf")  # For export': None,
    "set_matplotlib_formats('svg', 'pdf') # For export": None,
    # helper files
    "FileLink('plots_transformer.py')": None,
    "FileLink('util.py')": None,
    "FileLink('replay.py')": None,
    "from plots_transformer import *": "from transformer_c.tutorials.godoy import plot_data, sequence_pred",
    "from util import *": "from transformer_c.tutorials.godoy import PositionalEncoding, StepByStep",
    # downloads
    "urllib.request.urlretrieve(file_url, file_path)": "pass",
    "import torchvision": "from document_stand_ins import torchvision",
    "from torchvision import transforms": "from document_stand_ins import transforms",
    "from torchvision.datasets import CIFAR100": "from document_stand_ins import CIFAR100",
    "from sklearn.datasets import fetch_openml": "from document_stand_ins import fetch_openml",
}

# (document, line): what is exchanged in it, what for, and why.
DIFFER: dict[tuple[str, int], tuple[str, str, str]] = {
    ("004", 62): ("np.int", "int", "NumPy has no np.int since 1.24"),
}


def code(document: str, lines: list[str], cell: tuple[int, int]) -> str:
    """The code of a cell, on its own line numbers."""
    found = [""] * (cell[0] - 1)
    for number, line in enumerate(lines[cell[0] - 1 : cell[1]], cell[0]):
        bare, indent = line.strip(), line[: len(line) - len(line.lstrip())]
        if (document, number) in DIFFER:
            old, new, _ = DIFFER[document, number]
            if old not in line:
                raise ValueError(f"{document}, line {number} has no {old!r}: this is another version of the document")
            line = line.replace(old, new)
        elif bare in EXCHANGED:
            line = indent + (EXCHANGED[bare] or "pass")
        elif bare.startswith("!"):
            line = indent + "pass"
        found.append(line)
    return "\n".join(found)


def run(document: str, path: Path) -> list[str]:
    """Runs all cells in one namespace, in an empty folder; returns the failures."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    names: dict[str, object] = {"__name__": "__main__"}
    failures = []
    for cell in CELLS[document]:
        start = time.perf_counter()
        try:
            exec(compile(code(document, lines, cell), path.name, "exec"), names)
        except Exception as error:
            frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == path.name]
            line = frames[-1].lineno if frames else cell[0]
            failures.append(f"{document}, line {line}: {type(error).__name__}: {error}")
            print(f"  FAILED at line {line}: {lines[(line or 1) - 1].strip()}\n    {type(error).__name__}: {error}")
        pyplot.close("all")
        print(f"  {document}, lines {cell[0]} to {cell[1]}: {time.perf_counter() - start:.1f} s", flush=True)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder with the documents' text files")
    parser.add_argument("documents", nargs="*", metavar="DOCUMENT", help=f"{', '.join(CELLS)}; all by default")
    options = parser.parse_args()
    if unknown := [name for name in options.documents if name not in CELLS]:
        parser.error(f"there is no document {unknown[0]}; there are {', '.join(CELLS)}")
    chosen = options.documents or list(CELLS)
    failures, count = [], 0
    for document in chosen:
        found = sorted(options.folder.resolve().glob(f"{document}*.txt"))
        if len(found) != 1:
            raise SystemExit(f"{options.folder} has {len(found)} files {document}*.txt; expected one")
        path = found[0]
        print(path.name)
        random.seed(0)
        np.random.seed(0)
        warnings.simplefilter("ignore")
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.environ["PATH_DATASETS"] = os.environ["PATH_CHECKPOINT"] = folder
            os.chdir(folder)
            try:
                failures += run(document, path)
            finally:
                os.chdir(before)
        count += len(CELLS[document])
    differing = [(key, value) for key, value in DIFFER.items() if key[0] in chosen]
    print(
        f"{count - len(failures)} of {count} cells run; apart from imports, magics, downloads and helper files, {len(differing)} lines differ"
    )
    for (document, line), (old, new, why) in differing:
        print(f"  {document}, line {line}: {new} instead of {old} ({why})")
    return 1 if failures or len(differing) > LIMIT else 0


if __name__ == "__main__":
    raise SystemExit(main())
