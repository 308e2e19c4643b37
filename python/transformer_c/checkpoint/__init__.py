"""Files of weights: reads and writes safetensors, reads PyTorch's and Lightning's checkpoints.

errors, files       the error; opening a file that may be anything, writing one atomically
safetensors_file    save, load; safetensors_header: the header; dtypes: those that NumPy lacks; tree: nested data around the arrays
torch_file          load_torch_checkpoint: interprets the archive and its pickle
zip_records         the archive
pickle_machine      the pickle: opcodes that make data; known_calls: the functions that may be called
placeholders        placeholders for unknown classes and objects
"""

from typing import TYPE_CHECKING

from .._names import hooks
from .errors import CheckpointError
from .placeholders import GlobalName, UnknownObject
from .safetensors_file import Checkpoint, load, load_mapping, save
from .torch_file import load_torch_checkpoint

__all__ = ["Checkpoint", "CheckpointError", "GlobalName", "UnknownObject", "load", "load_mapping", "load_torch_checkpoint", "save"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
