"""The trainer: epochs, bars, history, checkpoints, and runs that go on after a stop as if there had been none.

trainer      Trainer: options, fit, validate, test
attached     a model while its trainer works with it
checks       options and models that are refused; names: what to write for Lightning's
run          where a run is and what it has logged
loop         the epochs of one fit
saving       the files of a run: what a checkpoint holds, going on from one
evaluation   one pass over validation or test data
steps        what configure_optimizers() and the steps of a module may look like
loaders      what may be walked over, limits, batches to their device
metrics      means of logged values, history and its CSV
streams      the random streams that a run draws from
stopping     the best epoch, and early stopping
progress     bars, tables
interrupts   Ctrl-C between two batches
"""

from .trainer import Trainer

__all__ = ["Trainer"]
