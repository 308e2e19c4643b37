"""Samplers, and loaders that use them: PyTorch's orders from the same seed, where there is PyTorch and by golden values."""

import collections

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import data

LABELS = [0] * 40 + [1] * 8 + [2] * 2
WEIGHTS = [0.1, 0.0, 2.0, 0.7, 1.2, 0.0, 3.0]

# name: a sampler of a module `d`, PyTorch's or this library's, with the generator `g`.
SAMPLERS = {
    "sequential": lambda d, g: d.SequentialSampler(range(7)),
    "random": lambda d, g: d.RandomSampler(range(7), generator=g),
    "longer": lambda d, g: d.RandomSampler(range(7), num_samples=17, generator=g),
    "replacement": lambda d, g: d.RandomSampler(range(7), replacement=True, num_samples=70, generator=g),
    "subset": lambda d, g: d.SubsetRandomSampler([5, 3, 9, 1], generator=g),
    "weights": lambda d, g: d.WeightedRandomSampler(WEIGHTS, 20, generator=g),
    "one of weights": lambda d, g: d.WeightedRandomSampler(WEIGHTS, 1, generator=g),
    "batches": lambda d, g: d.BatchSampler(d.RandomSampler(range(7), generator=g), 3, False),
    "full batches": lambda d, g: d.BatchSampler(d.SubsetRandomSampler(range(8), generator=g), 3, True),
}
GOLDEN = {  # PyTorch's orders from seed 5
    "random": [1, 0, 4, 2, 6, 5, 3],
    "replacement": [1, 5, 2, 3, 6, 1, 1, 3, 5],
    "subset": [1, 3, 5, 9],
    "weights": [6, 2, 3, 3, 2, 6, 6, 6, 6, 4, 3, 3],
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_orders(name):
    assert list(SAMPLERS[name](data, tc.Generator(5)))[: len(GOLDEN[name])] == GOLDEN[name]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("name", SAMPLERS)
def test_orders_are_pytorchs(name, own):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.utils.data")

    tc.manual_seed(3)
    torch.manual_seed(3)
    ours = SAMPLERS[name](data, tc.Generator(5) if own else None)
    theirs = SAMPLERS[name](torch.utils.data, torch.Generator().manual_seed(5) if own else None)
    for _ in range(2):
        assert list(ours) == list(theirs)
    assert len(ours) == len(theirs)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("kind", ["sampler", "batch_sampler"])
@pytest.mark.parametrize("name", ["random", "subset", "weights"])
def test_loaders_give_pytorchs_batches(name, kind, own):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.utils.data")

    tc.manual_seed(3)
    torch.manual_seed(3)
    found = []
    for d, generator, make in ((data, tc.Generator(5), tc.arange), (torch.utils.data, torch.Generator().manual_seed(5), torch.arange)):
        sampler = SAMPLERS[name](d, generator if own else None)
        given = {"sampler": sampler, "batch_size": 3} if kind == "sampler" else {"batch_sampler": d.BatchSampler(sampler, 3, True)}
        loader = d.DataLoader(d.TensorDataset(make(10)), **given)
        found.append(([[batch[0].tolist() for batch in loader] for _ in range(2)], len(loader)))
    assert found[0] == found[1]


def test_weights_are_probabilities():
    weights = 1 / np.bincount(LABELS)[LABELS]
    counts = collections.Counter(LABELS[i] for i in data.WeightedRandomSampler(weights, 30_000, rng=0))
    assert all(abs(counts[c] / 30_000 - 1 / 3) < 0.015 for c in range(3))
    drawn = list(data.WeightedRandomSampler(WEIGHTS, 5, replacement=False, rng=1))
    assert sorted(drawn) == [0, 2, 3, 4, 6]
    firsts = collections.Counter(next(iter(data.WeightedRandomSampler(WEIGHTS, 1, replacement=False, rng=seed))) for seed in range(3000))
    assert all(abs(firsts[i] / 3000 - w / sum(WEIGHTS)) < 0.03 for i, w in enumerate(WEIGHTS))


@pytest.mark.parametrize("scale", [1e-308, 1e308])
def test_weights_at_the_limits_of_floats(scale):
    weights = np.array([1.0, 0.0, 1.0, 0.5]) * scale
    for replacement, n in ((True, 20), (False, 3)):
        ours, same = (list(data.WeightedRandomSampler(w, n, replacement, rng=2)) for w in (weights, [1.0, 0.0, 1.0, 0.5]))
        assert ours == same and set(ours) == {0, 2, 3}


def test_an_iterable_dataset():
    class Numbers(data.IterableDataset):
        def __iter__(self):
            return iter(np.arange(5, dtype=np.float32))

    loader = data.DataLoader(Numbers(), batch_size=2)
    assert [b.tolist() for b in loader] == [[0, 1], [2, 3], [4]] == [b.tolist() for b in data.DataLoader(Numbers(), 2, prefetch=2)]
    assert [b.tolist() for b in data.DataLoader(data.ChainDataset([Numbers(), Numbers()]), 4, drop_last=True)] == [
        [0, 1, 2, 3],
        [4, 0, 1, 2],
    ]
    with pytest.raises(TypeError, match="the length of a Numbers is not known"):
        len(loader)

    class Line(tc.TrainingModule):
        def __init__(self):
            super().__init__()
            self.net = tc.nn.Linear(1, 1)

        def configure_optimizers(self):
            return tc.optim.SGD(self.parameters(), lr=0.1)

        def training_step(self, batch, batch_idx):
            return self.net(batch[:, None]).square().mean() if hasattr(tc.Tensor, "square") else (self.net(batch[:, None]) ** 2).mean()

    run = tc.Trainer(2, progress=False)
    run.fit(Line(), loader)
    assert run.global_step == 6 and run.num_training_batches == float("inf")


def test_datasets_together():
    both = data.ConcatDataset([data.TensorDataset(np.arange(3)), data.TensorDataset(np.arange(3, 5))])
    assert [int(both[i][0]) for i in (*range(5), -1, -5)] == [0, 1, 2, 3, 4, 4, 0]
    assert [b[0].tolist() for b in data.DataLoader(both, 4)] == [[0, 1, 2, 3], [4]]
    three = data.ConcatDataset([[1], [2, 3], [4]])
    assert len(three) == 4 and [three[i] for i in (*range(4), -1)] == [1, 2, 3, 4, 4]
    stacked = data.DataLoader(data.StackDataset(x=both, y=np.arange(5.0)), 5)
    assert next(iter(stacked))["y"].tolist() == [0, 1, 2, 3, 4] and data.StackDataset([1], [2])[0] == (1, 2)
    assert len(data.StackDataset([1, 2])) == len(data.StackDataset(x=[1, 2])) == 2
    assert data.get_worker_info() is None
    for make, error in (
        (lambda: both[5], IndexError),
        (lambda: both[-6], IndexError),
        (lambda: data.ConcatDataset([]), ValueError),
        (lambda: data.StackDataset([1], [1, 2]), ValueError),
        (lambda: data.StackDataset(), ValueError),
    ):
        with pytest.raises(error):
            make()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(sampler=[1, 0], shuffle=True), ValueError, "sampler and shuffle=True both give an order"),
        (dict(batch_sampler=[[1, 0]], batch_size=2), ValueError, "give it alone"),
        (dict(sampler=iter([1])), TypeError, "walked over again"),
        (dict(batch_sampler=3), TypeError, "batch_sampler is of type int"),
    ],
)
def test_refused(options, error, message):
    with pytest.raises(error, match=message):
        data.DataLoader(data.TensorDataset(np.arange(3)), **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: data.WeightedRandomSampler([1.0, -1.0], 2), "not negative"),
        (lambda: data.WeightedRandomSampler([0.0], 2), "not all 0"),
        (lambda: data.WeightedRandomSampler([[1.0]], 2), "one weight per sample"),
        (lambda: data.WeightedRandomSampler([1.0, 0.0], 2, replacement=False), "2 samples without replacement, but 1 have"),
        (lambda: data.RandomSampler(range(3), num_samples=0), "num_samples"),
        (lambda: data.BatchSampler(range(3), 0, False), "batch_size"),
        (lambda: list(data.Sampler()), "define it in the class"),
    ],
)
def test_samplers_that_are_refused(make, message):
    with pytest.raises((ValueError, NotImplementedError), match=message):
        make()


def test_collections_of_indices_are_samplers():
    loader = data.DataLoader(data.TensorDataset(np.arange(5)), batch_size=2, sampler=[4, 2, 0])
    assert [b[0].tolist() for b in loader] == [[4, 2], [0]] and len(loader) == 2
    loader = data.DataLoader(data.TensorDataset(np.arange(5)), batch_sampler=[[4, 2, 0], [1]], prefetch=1)
    assert [b[0].tolist() for b in loader] == [[4, 2, 0], [1]] and len(loader) == 2


def test_more_samples_than_fit_in_memory():
    """As minGPT's trainer asks for, which stops by itself."""
    sampler = data.RandomSampler(range(7), replacement=True, num_samples=10**13, generator=tc.Generator(5))
    assert len(sampler) == 10**13 and [i for i, _ in zip(sampler, range(9), strict=False)] == GOLDEN["replacement"]
