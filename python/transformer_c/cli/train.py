"""train: trains one of the tutorials' tasks; stops at Ctrl-C, resumes with --resume.

The output folder contains options.json (the options of the run), best.safetensors, last.safetensors and history.csv.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
from typing import Any

from .. import distributed, zeros
from ..checkpoint import load_mapping
from ..checkpoint.files import open_regular, write_atomically
from ..random import manual_seed
from ..trainer import Trainer
from ..trainer.ranks import Ranks
from ..trainer.saving import BEST, HISTORY, LAST
from ..training import TrainingModule
from . import tasks
from .options import EXPECTED, CommandError, add_threads, device, flag, positive

OPTIONS = "options.json"
LARGEST_OPTIONS = 1 << 16  # bytes; a file of options has a few hundred


def add(commands) -> None:
    """Describes the command and its tasks."""
    parser = commands.add_parser("train", help="trains a task of the documents; stops at Ctrl-C, continues with --resume")
    choices = parser.add_subparsers(dest="task", metavar="TASK", required=True)
    for task in tasks.TASKS.values():
        _add_task(choices, task)


def _add_task(choices, task: tasks.Task) -> None:
    command = f"python -m transformer_c train {task.name}"
    parser = choices.add_parser(
        task.name,
        help=task.help,
        description=f"{task.description} Defaults are the document's.",
        usage=f"{command} [-h] [OPTION ...]",
        epilog=f"mpiexec -n 4 {command} trains with four processes, each of which takes --batch-size in a step.",
    )
    hyper = parser.add_argument_group("hyper-parameters and data")
    for name, option in task.options.items():
        option.add_to(hyper, name)
    running = parser.add_argument_group("running")
    add_threads(running)
    running.add_argument("--device", type=device, default="cpu", metavar="D", help="cpu, or cuda where it can be used (default: cpu)")
    running.add_argument(
        "--graph",
        action="store_true",
        help="with --device cuda: capture the training step and repeat it with one launch; the numbers are the same",
    )
    running.add_argument(
        "--output", default=f"runs/{task.name}", metavar="FOLDER", help=f"where checkpoints and history go (default: runs/{task.name})"
    )
    running.add_argument(
        "--resume",
        action="store_true",
        help="continue the run in the output folder, with the options it was started with; on another number of ranks with as many rows per step",
    )
    running.add_argument("--overwrite", action="store_true", help="start anew where the output folder has a run already")
    running.add_argument("--no-progress", action="store_true", help="no progress bars")
    parser.set_defaults(run=lambda options: run(task, options, parser))


def run(task: tasks.Task, options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Trains and tests; under a launcher on all its processes together, of which the first one prints."""
    try:
        is_first = distributed.rank() == 0
    except (ImportError, RuntimeError) as error:
        raise CommandError(str(error)) from error
    with contextlib.nullcontext() if is_first else open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere or sys.stdout):
        try:
            return _run(task, options, parser)
        except EXPECTED as error:
            distributed.world.fail(f"python -m transformer_c train: error: {error}")
            raise


def _run(task: tasks.Task, options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    given = {name: getattr(options, name) for name in task.options if getattr(options, name) is not None}
    last = os.path.join(options.output, LAST)
    if options.resume and options.overwrite:
        parser.error("--resume continues a run and --overwrite deletes it: give one of them")
    if options.graph and not options.device.startswith("cuda"):
        parser.error(f"--graph captures steps on a GPU, and --device is {options.device}: give --device cuda as well")
    if options.graph and distributed.world_size() > 1:
        parser.error("--graph captures the steps of one process: leave it out, or start the command without a launcher")
    if options.resume:
        hp = _saved(task, options.output, given, parser)
    else:
        if os.path.exists(last) and not options.overwrite:
            parser.error(
                f"{options.output} has a run already: --resume continues it, --overwrite starts again, --output names another folder"
            )
        hp = task.fill(given, parser.error)
    task.check(hp, parser.error)
    _check_device(options.device)
    manual_seed(hp.seed)
    data = task.loaders(hp)
    model = task.model(hp, Ranks(distributed.world.group()).share(data[0]))  # whose length the schedule is for
    if not options.resume and distributed.rank() == 0:  # only now, so that --overwrite deletes nothing for a run that cannot start
        _start_folder(task, hp, options.output)
    distributed.barrier()
    return _train(task, hp, options, model, *data)


def _check_device(name: str) -> None:
    try:
        zeros(1, device=name)
    except RuntimeError as error:
        raise CommandError(f"--device {name}: {error}") from error


def _start_folder(task: tasks.Task, hp: argparse.Namespace, folder: str) -> None:
    """Prepares an output folder with the options of a new run and no files of an older one."""
    try:
        os.makedirs(folder, exist_ok=True)
    except FileExistsError:
        raise CommandError(f"--output {folder}: a file has that name") from None
    for name in (LAST, BEST, HISTORY, OPTIONS):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))
    text = json.dumps({"task": task.name, "ranks": distributed.world_size(), "options": vars(hp)}, indent=2) + "\n"
    write_atomically(os.path.join(folder, OPTIONS), text.encode())


def _saved(task: tasks.Task, folder: str, given: dict[str, Any], parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options with which the run in `folder` was started, each parsed as if it had been typed; the batches are for the ranks of now."""
    path = os.path.join(folder, OPTIONS)
    try:
        file, size = open_regular(path)
    except FileNotFoundError:
        raise CommandError(f"there is no run in {folder} to continue ({path} is missing)") from None
    with file:
        text = file.read(min(size, LARGEST_OPTIONS))
    try:
        held = json.loads(text)
        if held["task"] != task.name:
            raise CommandError(f"{folder} has a run of the task {held['task']!r}: train {held['task']} --resume continues it")
        values = {
            name: None if held["options"][name] is None else option.type(str(held["options"][name]))
            for name, option in task.options.items()
        }
        rows: Any = values["batch_size"]
        ranks = positive(str(held.get("ranks", distributed.world_size())))
    except (ValueError, KeyError, TypeError, RecursionError, argparse.ArgumentTypeError) as error:
        raise CommandError(f"{path} is damaged ({type(error).__name__}: {error}); --overwrite starts anew") from error
    values["batch_size"] = _share_of_rows(rows, ranks, folder)
    changed = sorted(name for name in given if given[name] != values[name])
    if changed:
        name = changed[0]
        parser.error(f"{flag(name)} is {values[name]} in the run that --resume continues: leave it out, or start another run")
    return argparse.Namespace(**values)


def _share_of_rows(rows: int, ranks: int, folder: str) -> int:
    """The batch size with which the ranks take the steps that `ranks` took with batches of so many rows."""
    size = distributed.world_size()
    share, rest = divmod(rows * ranks, size)
    if rest:
        raise CommandError(
            f"the run in {folder} takes steps of {rows * ranks} rows ({rows} on each of {ranks} ranks), which {size} ranks cannot share "
            f"evenly; as it was started: {_launcher(ranks)}python -m transformer_c train ... --resume"
        )
    return share


def _launcher(ranks: int) -> str:
    return "" if ranks == 1 else f"mpiexec -n {ranks} "


def _train(task: tasks.Task, hp: argparse.Namespace, options: argparse.Namespace, model, train, val, test) -> int:
    trainer = Trainer(
        hp.epochs, hp.clip, monitor=task.monitor, mode=task.mode, checkpoint_dir=options.output, progress=not options.no_progress,
        device=options.device, patience=hp.patience, strategy="auto", graph=options.graph,
    )  # fmt: skip
    count = sum(p.numel() for p in model.parameters())
    print(
        f"{task.title}: {count:,} parameters, {_counted(hp.epochs, 'epoch', 'epochs')} of {_counted(len(trainer.ranks.share(train)), 'batch', 'batches')}{_on_ranks(trainer.world_size)}, seed {hp.seed}; output in {options.output}",
        flush=True,
    )
    again = f"{_launcher(trainer.world_size)}python -m transformer_c train {task.name} --resume --output {shlex.quote(options.output)}"
    again += ("" if options.device == "cpu" else f" --device {options.device}") + (" --graph" if options.graph else "")
    if options.resume:
        _check_same(model, options.output)
        _say_where(os.path.join(options.output, LAST))
    try:
        trainer.fit(model, train, val, resume="last" if options.resume else None)
    except KeyboardInterrupt as interrupt:
        if not trainer.is_global_zero:
            raise SystemExit(130) from None
        if str(interrupt):  # between two batches, when all was written
            where = f"stopped after {trainer.global_step} steps; they are in {trainer.last_model_path}"
        else:
            where = "stopped at once" + ("; the last checkpoint has the run until then" if trainer.last_model_path else "")
        raise KeyboardInterrupt(f"{where}. To continue:\n  {again}") from None
    return _report(task, type(model), trainer, val, test, options.output)


def _on_ranks(count: int) -> str:
    return "" if count == 1 else f" on each of {count} ranks"


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _check_same(model: TrainingModule, folder: str) -> None:
    """Raises if a hyper-parameter that depends on the data, such as a vocabulary, has changed."""
    last = os.path.join(folder, LAST)
    if not os.path.exists(last):
        return
    held, now = load_mapping(last).hyper_parameters, dict(model.hparams.items())
    changed = sorted(name for name in {*held, *now} if held.get(name) != now.get(name))
    if changed:
        raise CommandError(
            f"the data, or the rows that all ranks together take in a step, are no longer those that the run in {folder} was started with: "
            f"its {changed[0]} would be another; bring them back, or start another run"
        )


def _say_where(last: str) -> None:
    print(
        "going on from the last checkpoint" if os.path.exists(last) else "no checkpoint was written yet: starting from the beginning",
        flush=True,
    )


def _report(task: tasks.Task, kind: type[TrainingModule], trainer: Trainer, val, test, folder: str) -> int:
    """Prints the results of the best epoch's model, and how to use it."""
    best = kind.load_from_checkpoint(trainer.best_model_path)
    name, key = task.score.name, task.score.key
    print(f"best epoch: {trainer.best_epoch} of {trainer.current_epoch}")
    for part, loader in (("validation", val), ("test", test)):
        if loader is not None:
            (result,) = trainer.test(best, loader, verbose=False)
            print(f"  {f'{part} {name}':30}{task.score.text(result[f'test_{key}'])}")
    print(f"  {f'validation {name}':30}{task.score.text(trainer.history[f'val_{key}'][-1])}  after the last epoch")
    print(f"files in {folder}: {BEST}, {LAST}, {HISTORY}")
    print(f"predictions: python -m transformer_c predict {shlex.quote(trainer.best_model_path)} {task.example}", flush=True)
    return 0


__all__ = ["add", "run"]
