"""What the scripts in this folder share. They run as programs, for which this folder is on the path; a test that imports one puts it there."""

import json
import pathlib
import sys

import numpy as np


def folder():
    """FOLDER of the command line, or this one."""
    return pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent


def write(path, cases):
    """Writes {case: (options, {array name: ndarray})} in the form that ``golden.load`` reads."""
    options = {case: options for case, (options, _) in cases.items()}
    arrays = {f"{case}/{name}": array for case, (_, found) in cases.items() for name, array in found.items()}
    np.savez_compressed(path, options=np.array(json.dumps(options)), **arrays)
