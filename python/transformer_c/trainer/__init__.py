"""The trainer: epochs, progress bars, history, checkpoints, and runs that resume as if they had never been stopped.

trainer      Trainer: options, fit, validate, test; view: its run under Lightning's names; lightning: Lightning's options
attached     attaches a model to its trainer while it is in use
checks       checks of options and models; names: replacements for Lightning's options and hooks
run          the state of a run: its position and its logged values
loop         the epochs of one fit; hooks: what model and callbacks define, in Lightning's order
captured     graph=True: steps that are captured as graphs of a GPU; watched: what such a step may not change
saving       the files of a run: contents of a checkpoint, resuming from one
evaluation   one pass over validation or test data
manual       steps that a module takes itself
steps        the accepted forms of configure_optimizers() and of a module's steps
ranks        what the ranks of a run do together; alike, same_data: whether they were started alike, on the same data; shares: the data of one
overlap      gradients that are summed during the backward; zero: the optimizer's state shared out over the ranks
loaders      accepted loaders, limits, moving batches to their device; arrays: data given as arrays
averages     means of logged values; later: those on a GPU, read together; logs: passed on to loggers; history: of the epochs, and its CSV
streams      the random streams that a run draws from
progress     bars, tables
interrupts   Ctrl-C between two batches
"""

from .trainer import Trainer

__all__ = ["Trainer"]
