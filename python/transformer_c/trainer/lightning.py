"""The options of Lightning's Trainer: other names for the options here, and those that have no effect."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from .. import cuda
from ..distributed.launchers import started_processes

# Without effect, with the reason where there is one to tell.
HARMLESS: Mapping[str, str] = {
    "accelerator": "",
    "benchmark": "",
    "deterministic": "runs always are",
    "devices": "",
    "enable_checkpointing": "checkpoint_dir= says whether and where",
    "enable_model_summary": "tc.summary(model, example) gives one",
    "gpus": "",
    "inference_mode": "",
    "logger": "checkpoint_dir= is missing: the history is the log",
    "min_epochs": "",
    "num_nodes": "",
    "num_sanity_val_steps": "fast_dev_run=True tries everything once",
    "progress_bar_refresh_rate": "",
    "reload_dataloaders_every_n_epochs": "",
    "replace_sampler_ddp": "ranks take their shares of the loader's own order",
    "use_distributed_sampler": "ranks take their shares of the loader's own order",
    "weights_summary": "",
}

# Of some only these values are harmless; otherwise what to do.
VALUES: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "min_epochs": ((None, 0, 1), "there is no least number of epochs; without patience= and callbacks that stop a run has max_epochs="),
    "num_nodes": ((1,), 'strategy="ddp" under a launcher uses the processes that it starts'),
    "reload_dataloaders_every_n_epochs": ((0,), "every epoch uses the loader given to fit()"),
    **dict.fromkeys(
        ("replace_sampler_ddp", "use_distributed_sampler"),
        ((True, None), "a loader whose sampler is a tc.data.DistributedSampler is taken as it is, any other is shared out"),
    ),
}

# Options that are not here: values that ask for what a run does anyway, as programs pass on that list all of Lightning's.
OFF: Mapping[str, tuple[Any, ...]] = {
    "auto_lr_find": (False,),
    "auto_scale_batch_size": (False, None),
    "barebones": (False,),
    "detect_anomaly": (False, None),
    "enable_autolog_hparams": (True, False),
    "max_time": (None,),
    "min_steps": (None, 0),
    "model_registry": (None,),
    "overfit_batches": (0, 0.0),
    "plugins": (None, []),
    "profiler": (None,),
    "resume_from_checkpoint": (None,),
    "sync_batchnorm": (False,),
    "track_grad_norm": (-1,),
    "val_check_interval": (None, 1.0),
}

# Other names.
SAME: Mapping[str, str] = {"default_root_dir": "checkpoint_dir", "enable_progress_bar": "progress"}

NO_GPU = "there is no GPU that can be used: tc.cuda.status() says why"

KNOWN = {*HARMLESS, *SAME}


def applied(
    given: Mapping[str, Any], checkpoint_dir: Any, progress: bool, device: Any, unused: list[str], strategy: Any = None
) -> tuple[Any, bool, Any]:
    """`checkpoint_dir`, `progress` and `device` as Lightning's options change them; one warning names those without effect.

    Parameters
    ----------
    given : mapping of str to object
        Lightning's options.
    checkpoint_dir, progress, device
        The trainer's own.
    unused : list of str
        Other options that have no effect.
    strategy : str, optional
        The trainer's: with one, `devices` is a number of processes.
    """
    for name, (harmless, advice) in VALUES.items():
        if name in given and given[name] not in harmless:
            raise TypeError(f"Trainer() has no option {name}={given[name]!r}: {advice}")
    if given.get("default_root_dir") is not None:
        if checkpoint_dir is not None:
            raise TypeError("default_root_dir and checkpoint_dir are two names of one option: give one of them")
        checkpoint_dir = given["default_root_dir"]
    progress = bool(given.get("enable_progress_bar", progress))
    unused = [*unused, *(name for name in given if name in HARMLESS)]
    if (gpu := _gpu_of(given, strategy)) is not None and cuda.is_available():
        if device is not None:
            raise TypeError("accelerator, devices and gpus name a device, and so does device: give one of them")
        device = gpu
        unused = [name for name in unused if name not in ("accelerator", "devices", "gpus")]
    if unused:
        reasons = {**HARMLESS, **({"accelerator": NO_GPU, "gpus": NO_GPU} if gpu is not None and not cuda.is_available() else {})}
        told = [f"{name} ({reasons[name]})" if reasons[name] else name for name in sorted(unused)]
        warnings.warn(f"options of Lightning without effect here: {', '.join(told)}", stacklevel=4)
    return checkpoint_dir, progress, device


def _gpu_of(given: Mapping[str, Any], strategy: Any) -> str | None:
    """The GPU that `accelerator`, `devices` or `gpus` name; None for the model's own device."""
    accelerator = given.get("accelerator", "auto")
    if accelerator not in (None, "auto", "cpu", "gpu", "cuda"):
        raise ValueError(f'accelerator must be "auto", "cpu" or "gpu", got {accelerator!r}')
    name, wanted = ("gpus", given["gpus"]) if given.get("gpus") else ("devices", given.get("devices", 1))
    many = len(wanted) if isinstance(wanted, (list, tuple)) else 1 if wanted in (None, "auto", -1, "-1") else int(wanted)
    if many > 1:
        _check_several(f"{name}={wanted!r}", many, strategy, name == "devices" and accelerator in (None, "auto", "cpu"))
    if accelerator not in ("gpu", "cuda") and name != "gpus":
        return None
    return f"cuda:{wanted[0]}" if isinstance(wanted, (list, tuple)) and wanted else "cuda"


def _check_several(option: str, many: int, strategy: Any, are_processes: bool) -> None:
    """Raises unless the `many` devices are processes on the CPU, and a launcher started as many."""
    start, ranks = f"mpiexec -n {many} python script.py", started_processes()
    if not are_processes:
        raise ValueError(f'{option} asks for {many} devices; a run uses one: device="cuda:1" names one')
    if strategy is None:
        raise ValueError(f'{option} asks for {many} devices; a run uses one, or several processes: strategy="ddp", started with: {start}')
    if ranks != many:
        raise ValueError(f"{option} asks for {many} processes, and there {'is' if ranks == 1 else 'are'} {ranks}: start it with: {start}")
