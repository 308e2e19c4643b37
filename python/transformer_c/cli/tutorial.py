"""tutorial: runs the UvA tutorial and compares its numbers with ours."""

from __future__ import annotations

import argparse
import importlib.util

from .options import CommandError, add_threads, positive, seed

FULL = 100


def add(commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "tutorial",
        help="the UvA tutorial from cell 4 to cell 42, its numbers compared with ours",
        description="Runs the UvA tutorial on Transformers from cell 4 to cell 42: prints each cell's numbers next to the tutorial's, trains "
        "the Reverse task and the Set Anomaly task (on features made from scikit-learn's digits), draws the figures, and ends with a table. "
        "Exit status 1 if a number that the tutorial determines comes out otherwise.",
    )
    parser.add_argument("--seed", type=seed, default=42, metavar="N", help="seed of data, weights, shuffles and dropout (default: 42)")
    parser.add_argument(
        "--epochs",
        type=positive,
        default=10,
        metavar="N",
        help="passes over the data of the Reverse task (default: 10, as in the tutorial)",
    )
    parser.add_argument("--anomaly-epochs", type=positive, metavar="N", help="passes over the data of the Set Anomaly task (default: 20)")
    parser.add_argument("--full", action="store_true", help=f"{FULL} passes over the data of the Set Anomaly task, as in the tutorial")
    parser.add_argument(
        "--output", default="tutorial_output", metavar="FOLDER",
        help="where pictures, checkpoints, histories and results.json go; the tutorial's ReverseTask.ckpt there is used instead of training "
        "(default: tutorial_output)",
    )  # fmt: skip
    parser.add_argument("--no-plots", action="store_true", help="no pictures; matplotlib is not needed then")
    add_threads(parser)
    parser.add_argument("--no-progress", action="store_true", help="no progress bars")
    parser.set_defaults(run=lambda options: run(options, parser))


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Asks for what is missing before anything is trained; then runs all cells."""
    if options.full and options.anomaly_epochs is not None:
        parser.error(f"--full means --anomaly-epochs {FULL}: give one of them")
    missing = [name for name in ("sklearn", "matplotlib") if not (name == "matplotlib" and options.no_plots) and not _installed(name)]
    if missing:
        names = " and ".join({"sklearn": "scikit-learn", "matplotlib": "matplotlib"}[name] for name in missing)
        without = "; --no-plots does not need matplotlib" if missing == ["matplotlib"] else ""
        raise CommandError(f"the tutorial needs {names}: pip install 'transformer_c[tutorial]'{without}")
    from ..tutorials import uva_run

    return uva_run.run(
        seed=options.seed, epochs=options.epochs, anomaly_epochs=FULL if options.full else options.anomaly_epochs or uva_run.ANOMALY_EPOCHS,
        output=options.output, plots=not options.no_plots, progress=not options.no_progress,
    )  # fmt: skip


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # sys.modules has None for it
        return False
