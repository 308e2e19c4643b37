"""DistributedSampler: against PyTorch's, and its own promises."""

import numpy as np
import pytest
import transformer_c as tc
from transformer_c.data import DistributedSampler
from transformer_c.trainer.shares import SharedLoader, is_shared_already


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


@pytest.mark.parametrize("form", ["sampler", "batch_sampler"])
def test_a_trainer_names_the_epochs(form, tmp_path):
    """So that every epoch has an order of its own, also in a run that resumes."""
    x = np.arange(12, dtype=np.float32)

    def orders(epochs, **options):
        sampler, seen = DistributedSampler(x, 2, 1, seed=5), []

        class Seeing(tc.TrainingModule):
            def __init__(self):
                super().__init__()
                self.linear = tc.nn.Linear(1, 1)

            def configure_optimizers(self):
                return tc.optim.SGD(self.parameters(), lr=0.0)

            def training_step(self, batch, batch_idx):
                seen.extend(batch.tolist())
                loss = self.linear(batch[:, None]).sum()
                self.log("loss", loss)
                return loss

        given = {"sampler": sampler, "batch_size": 4} if form == "sampler" else {"batch_sampler": tc.data.BatchSampler(sampler, 4, False)}
        trainer = tc.Trainer(epochs, progress=False, limit_val_batches=0, checkpoint_dir=tmp_path, monitor="loss")
        trainer.fit(Seeing(), tc.data.DataLoader(x, **given), **options)
        return np.reshape(seen, (-1, 6)).tolist()

    expected = []
    for epoch in range(3):
        sampler = DistributedSampler(x, 2, 1, seed=5)
        sampler.set_epoch(epoch)
        expected.append(list(sampler))
    assert orders(2) == expected[:2] and orders(3, resume="last") == expected[2:]
    assert expected[0] != expected[1]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_length_of_a_share_is_that_of_the_first_rank(ranks):
    loader = tc.data.DataLoader(range(7), batch_sampler=[[0], [1, 2], [3], [4, 5], [6]])
    shares = [SharedLoader(loader, rank, ranks) for rank in range(ranks)]
    assert {len(share) for share in shares} == {len(list(shares[0]))} and sum(len(list(share)) for share in shares) == 5
    plain = [SharedLoader(tc.data.DataLoader(range(7), 2), rank, ranks) for rank in range(ranks)]
    assert {len(share) for share in plain} == {len(list(plain[0]))}


def test_loaders_that_are_shared_already():
    x = np.arange(10)
    sampler = DistributedSampler(x, 2, 1)
    for options in ({"sampler": sampler}, {"batch_sampler": tc.data.BatchSampler(sampler, 2, False)}):
        assert is_shared_already(tc.data.DataLoader(x, **options))
    assert not is_shared_already(tc.data.DataLoader(x)) and not is_shared_already([x])
