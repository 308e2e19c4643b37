"""The files of a run: contents of its checkpoints, writing them, and resuming from one."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .._tensor import as_tensor
from ..callbacks.callback import Callback
from ..checkpoint import Checkpoint, CheckpointError, files, load_mapping, save
from ..checkpoint.files import HeldFolders, open_regular, remove_leftovers, write_atomically
from ..checkpoint.tree import encode
from ..optim import Optimizer
from . import streams
from .history import write_csv
from .run import Run

BEST, LAST, HISTORY, CHECKPOINTS = "best.safetensors", "last.safetensors", "history.csv", "checkpoints"


def prepare_folder(folder: str | None, model: Any, held: HeldFolders) -> None:
    """Checks now, not after the first epoch, that checkpoints can be written; no other run has the folder until `held` ends."""
    if folder is None:
        return
    encode(dict(model.hparams.items()), None, what="hyper_parameters")
    os.makedirs(folder, exist_ok=True)
    held.add(folder)
    remove_leftovers(folder)


def set_aside(folder: str | None) -> None:
    """Moves the files of an earlier run into a folder of their own, so that no run has files of two.

    A folder ``checkpoints`` belongs to an earlier run only if that run's other files are next to it; otherwise it is the user's.
    """
    if folder is None:
        return
    is_run = any(os.path.exists(os.path.join(folder, name)) for name in (LAST, HISTORY))
    aside = files.set_aside(folder, (LAST, BEST, HISTORY, *([CHECKPOINTS] if is_run else [])))
    if aside is not None:
        warnings.warn(
            f'{folder} had an earlier run: its files are in {aside} now; fit(..., resume="last") would have continued it', stacklevel=5
        )


def path_to_resume(resume: str | os.PathLike | None, folder: str | None) -> str | None:
    """The path of the checkpoint that fit(resume=) means; None to start from the beginning."""
    if resume is None:
        return None
    if isinstance(resume, bool):
        raise TypeError('resume is of type bool; expected "last" or the path of a checkpoint')
    if os.fspath(resume) != "last":
        return os.path.join(resume, LAST) if os.path.isdir(resume) else os.fspath(resume)
    if folder is None:
        raise ValueError('resume="last" needs a checkpoint_dir to look for it')
    path = os.path.join(folder, LAST)
    return path if os.path.exists(path) else None


def is_of_run_in(folder: str | None, path: str) -> bool:
    """Whether a checkpoint belongs to the run whose files are in `folder`: it is in this folder, or below its ``checkpoints``."""
    if folder is None:
        return False
    home, of_file = os.path.realpath(folder), os.path.dirname(os.path.realpath(path))
    kept = os.path.join(home, CHECKPOINTS)
    return of_file in (home, kept) or of_file.startswith(os.path.join(kept, ""))


def path_to_load(ckpt_path: str | os.PathLike | None, trainer: Any) -> str | None:
    """The path of the file that test(ckpt_path=) means: "best" and "last" are those of the last fit, or in the trainer's folder."""
    if ckpt_path is None or os.fspath(ckpt_path) not in ("best", "last"):
        return None if ckpt_path is None else os.fspath(ckpt_path)
    attribute, name = f"{ckpt_path}_model_path", {"best": BEST, "last": LAST}[str(ckpt_path)]
    found = [getattr(callback, attribute, "") for callback in trainer.callbacks] + [getattr(trainer, attribute)]
    if trainer.checkpoint_dir is not None and os.path.exists(in_folder := os.path.join(trainer.checkpoint_dir, name)):
        found.append(in_folder)
    path = next((path for path in found if path), None)
    if path is None:
        raise ValueError(f"ckpt_path={ckpt_path!r}: there is no such file; a Trainer with checkpoint_dir= writes it in fit()")
    return path


class RunFiles:
    """Writes the checkpoints of a run, and restores one.

    At the beginning of an epoch, the states of all random streams are saved (`at_start`). A checkpoint in the middle of an epoch contains
    these and the states at its own moment (`at_batch`).

    Parameters
    ----------
    options : Trainer
        With `checkpoint_dir` None, nothing is written.
    run : Run
    model : TrainingModule
    optimizers : list of Optimizer
    schedulers : list of LRScheduler
    found : mapping of str to stream
        The result of ``streams.find_streams``.
    callbacks : sequence of Callback
    zeros : sequence of Zero
        With ``strategy="zero"``, those that have the optimizers' states.
    """

    def __init__(
        self,
        options: Any,
        run: Run,
        model: Any,
        optimizers: list[Optimizer],
        schedulers: list[Any],
        found: Mapping[str, Any],
        callbacks: Sequence[Callback],
        zeros: Sequence[Any] = (),
    ) -> None:
        self._trainer, self._folder, self._run, self._model, self._streams = options, options.checkpoint_dir, run, model, found
        self._optimizers, self._schedulers, self._callbacks = optimizers, schedulers, callbacks
        self._ranks, self._zeros = options.ranks, zeros
        self._resumed = Checkpoint()
        self._at_start: dict[str, Any] = {}
        self._at_batch: dict[str, Any] = {}  # set after a resume, and at the end of an epoch before validation
        self._weights: dict[str, Any] = {}

    # ---- writing -------------------------------------------------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """Saves the streams' states and drops those of the previous epoch."""
        self._ranks.same_streams(self._streams)
        self._at_start = streams.capture(self._streams)
        self._at_batch, self._weights = {}, {}

    def before_validation(self, is_validated: bool) -> None:
        """Saves the state that validation may change: after a Ctrl-C during validation, it is repeated from its beginning."""
        self._run.hold_values()
        self._at_batch = streams.capture(self._streams)
        if is_validated and (self._folder or self._callbacks):  # otherwise few save a run during validation
            self._weights = {name: value.detach().clone() for name, value in self._model.state_dict().items()}

    def write_best(self) -> None:
        """Writes the weights of the best epoch so far."""
        if self._folder:
            self._run.best_path = os.path.join(self._folder, BEST)
            self.write(self._run.best_path, weights_only=True)

    def write_last(self) -> None:
        """Writes the history, then the file from which a run resumes."""
        if self._folder:
            if self._ranks.is_writer:
                write_csv(self._run.history, os.path.join(self._folder, HISTORY))
            self._run.last_path = os.path.join(self._folder, LAST)
            self.write(self._run.last_path, weights_only=False)

    def write(self, path: str, weights_only: bool) -> None:
        """Writes a checkpoint of the current moment, or only its weights; called on all ranks, of which one writes."""
        contents = None if weights_only else self._checkpoint()
        if not self._ranks.is_writer:
            return
        if contents is None:
            save(self._model, path)
        else:
            save(contents, path, self._model.hparams)

    def _check_moment(self) -> None:
        """Raises RuntimeError at moments whose state is not all in a checkpoint, so that a run would take another course from there."""
        run = self._run
        where = f"in epoch {run.epoch + 1}, batch {run.batch + 1}"
        if run.is_in_batch:
            raise RuntimeError(
                f"a checkpoint to resume from was to be written {where}, inside the batch, whose work is half done: call save_checkpoint() in "
                "on_train_batch_end(); weights_only=True writes the weights at any moment"
            )
        if run.part and self._ranks.size > 1:
            raise RuntimeError(
                f"a checkpoint to resume from was to be written {where}, after {run.part} of the batches of an optimizer step, while each rank has "
                f"gradients of its own: call save_checkpoint() after the step's last batch (accumulate_grad_batches={run.batches_of_step}), "
                "when global_step has changed"
            )

    def _checkpoint(self) -> dict[str, Any]:
        self._check_moment()
        if self._run.batch:
            self._run.join("a checkpoint")
        self._ranks.same_buffers(self._model)
        at_batch = (self._at_batch or streams.capture(self._streams)) if self._run.batch else {}
        checkpoint = {
            "class": type(self._model).__name__,
            "state_dict": self._weights or self._model.state_dict(),
            **self._optimizer_states(),
            "schedulers": [s.state_dict() for s in self._schedulers],
            "trainer": self._run.state_dict(),
            "streams": {"at_start": self._at_start, "at_batch": at_batch},
        }
        if self._callbacks:
            checkpoint["callbacks"] = {name: callback.state_dict() for name, callback in self._named_callbacks()}
        for callback in self._callbacks:
            callback.on_save_checkpoint(self._trainer, self._model, checkpoint)
        self._model.on_save_checkpoint(checkpoint)
        return checkpoint

    def _optimizer_states(self) -> dict[str, Any]:
        """The optimizers' states; with manual optimization and within a step also the gradients, which a later batch may add to or use."""
        states = [zero.state_dict(self._ranks.is_writer) for zero in self._zeros] or [
            optimizer.state_dict() for optimizer in self._optimizers
        ]
        found: dict[str, Any] = {"optimizer": states[0]} if len(states) == 1 else {"optimizers": states}
        if self._run.manual is not None or self._run.part:
            found["gradients"] = {name: p.grad for name, p in self._model.named_parameters() if p.grad is not None}
        return found

    def _named_callbacks(self) -> Iterator[tuple[str, Callback]]:
        """Each callback under a name that is the same in every run of a script: its class, and its number among those of the class."""
        counts: Counter[str] = Counter()
        for callback in self._callbacks:
            kind = type(callback).__name__
            counts[kind] += 1
            yield f"{kind}.{counts[kind]}", callback

    # ---- resuming ------------------------------------------------------------------------------------------------------------

    def go_on_from(self, path: str) -> None:
        """Restores a checkpoint; after an error, the model and the random streams are unchanged."""
        checkpoint = load_mapping(path)
        if "trainer" not in checkpoint:
            raise CheckpointError(f"{path!r} contains no run to resume, only weights: resume from the {LAST} in the same folder")
        before = streams.capture(self._streams)
        try:
            self._compare(checkpoint, path)
            self._run.load_state_dict(checkpoint["trainer"])
            self._at_start, self._at_batch = checkpoint["streams"]["at_start"], checkpoint["streams"]["at_batch"]
            streams.restore(self._streams, self._at_batch)  # only checks that this works; the states apply once the batches are drawn
            streams.restore(self._streams, self._at_start)
            self._resumed = checkpoint
            self._load_weights()
            if not self._run.batch:
                self._resumed = Checkpoint()  # the state of the optimizers is as large as the model
        except (KeyError, TypeError, AttributeError) as error:
            streams.restore(self._streams, before)
            raise CheckpointError(f"{path!r} is not what a trainer writes ({type(error).__name__}: {error})") from error
        except BaseException:
            streams.restore(self._streams, before)
            raise

    def batches_drawn(self) -> None:
        """Restores everything but the training data's streams from the checkpoint, after its batches have been drawn again.

        Until then the run was at the beginning of the epoch; drawing the batches has restored the data's streams.
        """
        self._load_weights()
        streams.restore({k: v for k, v in self._streams.items() if not k.startswith("train.")}, self._at_batch)
        self._at_batch, self._resumed = {}, Checkpoint()

    def _load_weights(self) -> None:
        """Loads schedulers and optimizers first, as they are still unused: the model's weights are loaded only once all else fits.

        Schedulers set learning rates when they are loaded, so the optimizers, which have those of the moment, come after them.
        """
        checkpoint = self._resumed
        states = checkpoint["optimizers"] if "optimizers" in checkpoint else [checkpoint["optimizer"]]
        if len(states) != len(self._optimizers):
            raise ValueError(f"the checkpoint has {len(states)} optimizers, the model {len(self._optimizers)}")
        if len(checkpoint["schedulers"]) != len(self._schedulers):
            raise ValueError(f"the checkpoint has {len(checkpoint['schedulers'])} schedulers, the model {len(self._schedulers)}")
        for scheduler, saved in zip(self._schedulers, checkpoint["schedulers"], strict=True):
            scheduler.load_state_dict(saved)
        for optimizer, state in zip(self._optimizers, states, strict=True):
            optimizer.load_state_dict(state)
        for name, callback in self._named_callbacks():
            if name in checkpoint.get("callbacks", {}):
                callback.load_state_dict(checkpoint["callbacks"][name])
            callback.on_load_checkpoint(self._trainer, self._model, checkpoint)
        self._model.on_load_checkpoint(checkpoint)
        self._model.load_state_dict(checkpoint["state_dict"])
        for name, p in self._model.named_parameters() if "gradients" in checkpoint else ():
            grad = checkpoint["gradients"].get(name)
            p.grad = None if grad is None else as_tensor(grad).to(device=p.device)

    def _compare(self, checkpoint: Checkpoint, path: str) -> None:
        """Warns if the run cannot be the one that was stopped."""
        now = dict(self._model.hparams.items())
        changed = sorted(k for k in {*now, *checkpoint.hyper_parameters} if not _same(now.get(k), checkpoint.hyper_parameters.get(k)))
        if changed:
            shown = ", ".join(f"{k} {checkpoint.hyper_parameters.get(k)!r} -> {now.get(k)!r}" for k in changed)
            warnings.warn(f"hyper-parameters differ from those in {path!r}: {shown}; optimizer and schedules use the file's", stacklevel=6)
        missing = sorted(set(checkpoint["streams"]["at_start"]) ^ set(self._streams))
        if missing:
            warnings.warn(
                f"{path!r} and this run do not have the same random streams ({', '.join(missing)}): it may take another course",
                stacklevel=6,
            )

    def find_files(self, resumed: str) -> None:
        """Finds the files of earlier parts of the run. The best weights are copied from the folder of `resumed` if this one has none.

        Files of another run must have been set aside before.
        """
        if self._folder is None:
            return
        run = self._run
        best, last = (os.path.join(self._folder, name) for name in (BEST, LAST))
        earlier = os.path.join(os.path.dirname(resumed), BEST)
        if run.best.epoch is not None and not os.path.exists(best) and os.path.exists(earlier):
            with open_regular(earlier)[0] as file:
                write_atomically(best, file.read())
        run.best_path = best if run.best.epoch is not None and os.path.exists(best) else ""
        run.last_path = last if os.path.exists(last) else ""


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or (a != a and b != b)
