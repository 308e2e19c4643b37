"""Files of weights: safetensors read and written, PyTorch's and Lightning's checkpoints read.

errors, files       the error; opening a file that may be anything, writing one atomically
safetensors_file    save, load; tree: nested data around the arrays
torch_file          load_torch_checkpoint: what the archive and its pickle mean
zip_records         the archive
pickle_machine      the pickle: opcodes that make data; known_calls: what may be called
placeholders        what stands for classes and objects that are not known
"""

from .errors import CheckpointError
from .placeholders import GlobalName, UnknownObject
from .safetensors_file import Checkpoint, load, save
from .torch_file import load_torch_checkpoint

__all__ = ["Checkpoint", "CheckpointError", "GlobalName", "UnknownObject", "load", "load_torch_checkpoint", "save"]
