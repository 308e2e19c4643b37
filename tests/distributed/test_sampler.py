"""DistributedSampler: against PyTorch's, and its own promises."""

import numpy as np
import pytest
import transformer_c as tc
from transformer_c.data import DistributedSampler


@pytest.mark.parametrize("length, ranks", [(0, 2), (1, 3), (7, 1), (10, 2), (10, 3), (2, 5), (101, 4)])
@pytest.mark.parametrize(
    "options", [{}, {"shuffle": False}, {"seed": 7}, {"drop_last": True}, {"drop_last": True, "shuffle": False}], ids=str
)
def test_as_pytorch(length, ranks, options):
    torch_data = pytest.importorskip("torch.utils.data")
    for rank in range(ranks):
        own = DistributedSampler(range(length), ranks, rank, **options)
        theirs = torch_data.DistributedSampler(range(length), ranks, rank, **options)
        for epoch in (0, 3):
            own.set_epoch(epoch)
            theirs.set_epoch(epoch)
            assert list(own) == list(theirs) and len(own) == len(theirs) and own.total_size == theirs.total_size


def test_ranks_take_turns_in_one_permutation():
    parts = [list(DistributedSampler(range(12), 3, rank, seed=5)) for rank in range(3)]
    assert np.array(parts).T.reshape(-1).tolist() == tc.randperm(12, rng=5).tolist()


def test_a_loader_takes_it():
    x = np.arange(10)
    sampler = DistributedSampler(x, 2, 1, shuffle=False)
    assert [batch.tolist() for batch in tc.data.DataLoader(x, batch_size=2, sampler=sampler)] == [[1, 3], [5, 7], [9]]
    assert DistributedSampler(x).num_replicas == 1, "of tc.distributed"


def test_wrong_arguments():
    with pytest.raises(ValueError, match="rank is 2; expected a number from 0 to 1"):
        DistributedSampler(range(4), 2, 2)
    with pytest.raises(ValueError, match="num_replicas must be at least 1"):
        DistributedSampler(range(4), 0, 0)
    with pytest.raises(TypeError, match="seed must be an int"):
        DistributedSampler(range(4), 2, 0, seed=0.5)
