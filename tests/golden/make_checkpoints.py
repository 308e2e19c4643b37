"""Writes the files in checkpoints/, and their contents to checkpoints.npz: files of PyTorch for the tests of the reader.

    python tests/golden/make_checkpoints.py [FOLDER]

The same PyTorch writes the same bytes on any processor. Lightning is not needed: its checkpoint is a dict of a known layout, in which objects of
its own classes occur; classes of the same names replace them.
"""

import argparse
import pathlib
import sys
import types
from collections import Counter, OrderedDict

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from golden.make_golden import Cases

DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128"),
    *("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"),
)


def numbers(count, shape):
    """0.5, -1.5, 2.5, -3.5, ..., all different."""
    values = torch.arange(count, dtype=torch.float32)
    return (torch.where(values.long() % 2 == 0, 1, -1) * (values + 0.5)).reshape(shape)


def fake_class(module, name, base=object):
    """A class that a pickle names as if it belonged to another package."""
    parts = module.split(".")
    for i in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
    made = type(name, (base,), {"__module__": module})
    setattr(sys.modules[module], name, made)
    return made


def network():
    torch.manual_seed(42)
    return nn.Sequential(OrderedDict(first=nn.Linear(3, 4), norm=nn.LayerNorm(4), last=nn.Linear(4, 2)))


def state_dict():
    return network().state_dict()


def dtypes():
    values = numbers(6, (2, 3))  # 4.5 and 5.5 are rounded by the 8-bit floats
    tensors = {name: (values.abs() if name[0] == "u" else values).to(getattr(torch, name)) for name in DTYPES}
    return (
        tensors
        | {"bool": values > 0}
        | {"scalar": torch.tensor(1.5), "empty": torch.zeros(0, 3), "no_axis_empty": torch.zeros(2, 0, dtype=torch.int64)}
    )


def views():
    base = numbers(24, (4, 6))
    whole = torch.nn.Parameter(base)
    return {
        "base": base,
        "row": base[2],
        "transposed": base.T,
        "every_other": base[::2, 1::2],
        "permuted": numbers(24, (2, 3, 4)).permute(2, 0, 1),
        "expanded": base[0, :1].expand(3, 5),
        "element": base[1, 1],
        "empty": base[:0],
        "parameter": whole,
        "tied": {"again": whole},
    }


def replace_trained(model, optimizer):
    """Puts numbers where the training has left some: those differ between processors in their last bits."""
    moments = (value for state in optimizer.state.values() for value in state.values() if value.ndim)
    with torch.no_grad():
        for i, tensor in enumerate([*model.parameters(), *moments]):
            tensor.copy_(numbers(tensor.numel(), tensor.shape) / 2**i)


def training():
    """What a hand-written loop saves: a module, its optimizer after two steps, a schedule, numbers of NumPy."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 5])
    for _ in range(2):
        optimizer.zero_grad()
        model(numbers(6, (2, 3))).square().sum().backward()
        optimizer.step()
        schedule.step()
    replace_trained(model, optimizer)
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "epoch": 2,
        "best": np.float64(0.5),
        "curve": np.arange(6, dtype=">f4").reshape(2, 3),
        "grid": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "rng": torch.arange(16, dtype=torch.uint8),
        "options": argparse.Namespace(lr=0.01, sizes=(3, 4), name="größe"),
        "misc": [{1, 2}, frozenset([3]), 1 + 2j, b"\0\xff", bytearray(b"xy"), 2**70, -1, 1e300, None, Counter("aab"), torch.Size([2, 3])],
        "where": torch.device("cuda", 1),
        "dtype": torch.bfloat16,
        "path": pathlib.PurePosixPath("runs/one"),
    }


def lightning():
    """A checkpoint as Lightning 1.0 and 2.0 write them, the parts of both in one."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    model(numbers(6, (2, 3))).sum().backward()
    optimizer.step()
    replace_trained(model, optimizer)
    parameters = fake_class("pytorch_lightning.utilities.parsing", "AttributeDict", dict)(input_dim=3, lr=5e-4, dropout=0.0, name="reverse")
    callback = fake_class("pytorch_lightning.callbacks.model_checkpoint", "ModelCheckpoint")
    progress = fake_class("lightning.pytorch.loops.progress", "Progress")()
    progress.total = 390
    return {
        "epoch": 9,
        "global_step": 3900,
        "pytorch-lightning_version": "1.0.2",
        "state_dict": model.state_dict(),
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 10, "completed": 10}}}, "progress": progress},
        "callbacks": {callback: {"best_model_score": torch.tensor(1.0), "best_model_path": "epoch=9.ckpt", "current_score": None}},
        "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [{"last_epoch": 3900, "_last_lr": [np.float64(2.5e-4)], "base_lrs": [5e-4]}],
        "hparams_name": "kwargs",
        "hyper_parameters": parameters,
    }


FILES = {"state_dict.pt": state_dict, "dtypes.pt": dtypes, "views.pt": views, "training.pt": training, "lightning.ckpt": lightning}


def tensors(value, where=()):
    """{path: array} of all tensors in nested dicts and lists; bfloat16 and 8-bit floats as float32."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return {"/".join(where): (value.float() if value.dtype.is_floating_point and value.itemsize < 4 else value).numpy()}
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {name: array for key, part in parts for name, array in tensors(part, (*where, getattr(key, "__name__", str(key)))).items()}


def main(folder):
    (folder / "checkpoints").mkdir(exist_ok=True)
    cases = Cases()
    for name, make in FILES.items():
        value = make()
        torch.save(value, folder / "checkpoints" / name)
        cases.add(name, **tensors(value))
    torch.save(state_dict(), folder / "checkpoints" / "legacy.pt", _use_new_zipfile_serialization=False)
    cases.write(folder / "checkpoints.npz")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
