"""Datasets and loaders, with PyTorch's names and, given the same seed, PyTorch's shuffles.

datasets  Dataset, IterableDataset, TensorDataset, Subset, ConcatDataset, ChainDataset, StackDataset, random_split
samplers  the order of the samples: Sampler, SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler, BatchSampler
distributed  DistributedSampler: one rank's share of the samples
loader    DataLoader: batches; prefetching: those that a thread prepares ahead
collate   default_collate: a batch from samples; default_convert: Tensors in one sample
"""

from typing import TYPE_CHECKING

from .._names import hooks
from .collate import default_collate, default_convert
from .datasets import ChainDataset, ConcatDataset, Dataset, IterableDataset, StackDataset, Subset, TensorDataset, random_split
from .distributed import DistributedSampler
from .loader import DataLoader
from .samplers import BatchSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler


def get_worker_info() -> None:
    """None: batches are never made in worker processes."""


__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
