"""Datasets and loaders: PyTorch's shuffles, batches of every kind of sample, threads that prepare ahead."""

import itertools
import threading
import time
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from transformer_c._nested import map_nested
from transformer_c.data import DataLoader, Dataset, TensorDataset, default_collate, random_split
from transformer_c.random import default_generator, drawing_from
from transformer_c.trainer.shares import SharedLoader
from transformer_c.trainer.streams import find_streams

SHUFFLES = load("shuffles")


@pytest.mark.parametrize("case", [k for k in sorted(SHUFFLES) if k.startswith("shuffle")])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_shuffles_of_pytorch(case, prefetch):
    options, arrays = SHUFFLES[case]
    tc.manual_seed(42)
    dataset = TensorDataset(np.arange(options["size"]))
    shuffled, plain = DataLoader(dataset, 7, shuffle=True, prefetch=prefetch), DataLoader(dataset, 7)
    for order in arrays["order"]:
        assert np.concatenate([b[0].numpy() for b in shuffled]).tolist() == order.tolist()
        assert np.concatenate([b[0].numpy() for b in plain]).tolist() == list(range(options["size"]))


def test_random_split_of_pytorch():
    options, arrays = SHUFFLES["random_split"]
    tc.manual_seed(42)
    parts = random_split(TensorDataset(np.arange(options["size"])), options["lengths"])
    assert [len(p) for p in parts] == options["lengths"]
    assert np.concatenate([p.indices for p in parts]).tolist() == arrays["order"].tolist()


def test_random_split_by_fractions_and_errors():
    data = TensorDataset(np.arange(10))
    assert [len(p) for p in random_split(data, [0.55, 0.45])] == [6, 4]
    assert [len(p) for p in random_split(range(11), [0.25, 0.25, 0.5])] == [3, 3, 5]  # one more each, from the first on
    with pytest.raises(ValueError, match="9.*10 samples"):
        random_split(data, [4, 5])
    for lengths, total in (([0.5, 0.6], "1.1"), ([4.5, 5.5], "10"), ([float("nan"), 1.0], "nan")):
        with pytest.raises(ValueError, match=rf"the fractions \[.*\] add up to {total}, not to 1"):
            random_split(data, lengths)


class Squares(Dataset):
    """Samples of mixed kinds, one at a time, as a ported tutorial has them."""

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return tc.tensor([index]), {"square": np.float32(index**2), "name": str(index)}, index, index / 2, np.full(2, index)


def test_samples_are_stacked():
    batches = list(DataLoader(Squares(), batch_size=2))
    assert len(batches) == 3
    vector, named, index, half, array = batches[1]
    assert vector.shape == (2, 1) and vector.tolist() == [[2], [3]]
    assert named["square"].dtype == np.float32 and named["name"] == ["2", "3"]
    assert index.dtype == np.int64 and half.dtype == np.float64 and array.shape == (2, 2) and array.dtype == np.int64
    assert len(batches[2][0]) == 1


def test_drop_last_and_length():
    for drop_last, count in ((False, 3), (True, 2)):
        loader = DataLoader(Squares(), batch_size=2, drop_last=drop_last)
        assert len(loader) == count == len(list(loader))
    assert len(DataLoader(TensorDataset(np.zeros((0, 3))), batch_size=4)) == 0


def test_the_same_rng_gives_the_same_order_and_epochs_differ():
    data = TensorDataset(np.arange(100))
    first, second = (DataLoader(data, 100, shuffle=True, rng=3) for _ in range(2))
    a, b = next(iter(first))[0].tolist(), next(iter(first))[0].tolist()
    assert a != b and sorted(a) == list(range(100))
    assert [next(iter(second))[0].tolist() for _ in range(2)] == [a, b]


def test_collate_fn():
    loader = DataLoader(TensorDataset(np.arange(4)), 2, collate_fn=lambda samples: len(samples))
    assert list(loader) == [2, 2]


def test_errors_in_a_dataset_reach_the_caller_and_stop_the_thread():
    class Breaks(Squares):
        def __getitem__(self, index):
            if index == 3:
                raise KeyError("sample 3")
            return index

    for prefetch in (0, 2):
        with pytest.raises(KeyError, match="sample 3"):
            list(DataLoader(Breaks(), 1, prefetch=prefetch))
    assert not any(t.name == "transformer_c-prefetch" for t in threading.enumerate())


@pytest.mark.parametrize("has_begun", [True, False])
def test_an_interrupt_while_a_prefetching_thread_starts_stops_it(monkeypatch, has_begun):
    """Ctrl-C while start() waits for the thread, and before the thread is there."""
    start, loader = threading.Thread.start, DataLoader(TensorDataset(np.arange(1000)), 1, prefetch=2)

    def starts(thread):
        if has_begun:
            start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", starts)
    with pytest.raises(KeyboardInterrupt):
        next(iter(loader))
    assert not any(t.name == "transformer_c-prefetch" for t in threading.enumerate())


def test_leaving_a_prefetching_loop_stops_its_thread():
    iterator = iter(DataLoader(TensorDataset(np.arange(1000)), 1, prefetch=2))
    next(iterator)
    iterator.close()
    assert not any(t.name == "transformer_c-prefetch" for t in threading.enumerate())


class Unordered(tc.data.IterableDataset):
    def __iter__(self):
        return iter(range(3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DataLoader(Squares(), batch_size=0), "batch_size"),
        (lambda: DataLoader(Squares(), prefetch=-1), "prefetch"),
        (lambda: DataLoader(Squares(), batch_sampler=[[0]], sampler=[0]), "batch_sampler takes the place of"),
        (lambda: DataLoader(Squares(), 2, batch_sampler=[[0]]), "batch_sampler takes the place of"),
        (lambda: DataLoader(Squares(), batch_sampler=[[0]], shuffle=True), "batch_sampler takes the place of"),
        (lambda: DataLoader(Squares(), batch_sampler=[[0]], drop_last=True), "batch_sampler takes the place of"),
        (lambda: DataLoader(Squares(), sampler=[0], shuffle=True), "give one of them"),
        (lambda: DataLoader(Unordered(), shuffle=True), "an order of its own"),
        (lambda: DataLoader(Unordered(), sampler=[0]), "an order of its own"),
        (lambda: DataLoader(Unordered(), batch_sampler=[[0]]), "an order of its own"),
        (lambda: TensorDataset(), "at least one"),
        (lambda: TensorDataset(np.zeros(3), np.zeros(4)), r"\[3, 4\]"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_sampler_in_the_place_of_a_bool():
    """It is PyTorch's fourth argument; here it goes by name."""
    with pytest.raises(TypeError, match=r"drop_last must be a bool, got .*Sampler.*by name"):
        DataLoader(Squares(), 2, False, tc.data.WeightedRandomSampler([1, 2, 3], 3))
    with pytest.raises(TypeError, match="shuffle must be a bool, got 'no'"):
        DataLoader(Squares(), 2, "no")
    for number in (2, -1, 1.0, np.int64(2)):
        with pytest.raises(TypeError, match="shuffle must be a bool, got "):
            DataLoader(Squares(), 2, number)
    loader = DataLoader(Squares(), 2, np.bool_(True), 1)
    assert loader.shuffle is True and loader.drop_last is True and DataLoader(Squares(), shuffle=None).shuffle is False


def test_reverse_dataset():
    data = tc.datasets.ReverseDataset(10, 16, 50, rng=0)
    inputs, labels = data[7]
    assert labels.tolist() == inputs.tolist()[::-1] and len(data) == 50
    batch = data.__getitems__([3, 7])
    assert (batch[0][1] == inputs).all() and (batch[1][1] == labels).all()


def test_set_anomaly_dataset(rng):
    features, labels = rng.standard_normal((60, 4)).astype(np.float32), np.repeat(np.arange(3), 20)
    train = tc.datasets.SetAnomalyDataset(features, labels, set_size=5, rng=1)
    test = tc.datasets.SetAnomalyDataset(features, labels, set_size=5, train=False)
    for index in (0, 25, 59):
        images, indices, label = train[index]
        picked = indices.numpy()
        assert images.shape == (5, 4) and label == 4 and picked[-1] == index and len(set(picked)) == 5
        assert len(set(labels[picked[:-1]])) == 1 and labels[picked[0]] != labels[index]
        assert (test[index][1] == test[index][1]).all()
    assert any((train[0][1] != train[0][1]).any() for _ in range(5))
    batch = next(iter(DataLoader(test, 8)))
    assert batch[0].shape == (8, 5, 4) and batch[2].tolist() == [4] * 8
    with pytest.raises(ValueError, match="sets of 30"):
        tc.datasets.SetAnomalyDataset(features, labels, set_size=30)


def test_square_sequences():
    points, directions = tc.datasets.square_sequences()
    assert points.shape == (128, 4, 2) and set(directions) == {0, 1}
    state = np.random.RandomState(13)
    bases = state.randint(4, size=128)
    assert (state.randint(2, size=128) == directions).all()
    corners = np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]])
    first = corners[[(bases[0] + i) % 4 for i in range(4)]][:: directions[0] * 2 - 1] + state.randn(4, 2) * 0.1
    assert np.allclose(points[0], first)
    lengths = {len(p) for p in tc.datasets.square_sequences(n=50, variable_len=True)[0]}
    assert lengths == {2, 3, 4}


@pytest.mark.parametrize("size, batch_size, drop_last", [(12, 4, False), (10, 4, False), (10, 4, True)])
def test_shuffles_from_a_generator_of_the_loaders_own(size, batch_size, drop_last):
    """PyTorch's sampler draws one more order at the end of each epoch: only then is the second epoch the same."""
    torch = pytest.importorskip("torch")
    torch_generator = torch.Generator().manual_seed(5)
    options = dict(batch_size=batch_size, shuffle=True, drop_last=drop_last)
    theirs = torch.utils.data.DataLoader(torch.arange(size), generator=torch_generator, **options)
    ours = DataLoader(TensorDataset(np.arange(size)), generator=tc.Generator(5), **options)
    for _ in range(3):
        assert [b[0].tolist() for b in ours] == [b.tolist() for b in theirs]


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("seed", [None, 5])
def test_shuffles_of_two_loaders_walked_over_together(num_workers, seed):
    """PyTorch draws an order at the first next(), or where workers begin; what is drawn between iter() and that is of before it or after it."""
    torch = pytest.importorskip("torch")

    def walked(library, generator):
        library.manual_seed(3)
        options = dict(shuffle=True, generator=generator, num_workers=num_workers)
        first, second = (library.utils.data.DataLoader(range(size), 2, **options) for size in (7, 5))
        found = [[batch.tolist() for batch in pair] for _ in range(2) for pair in zip(first, second, strict=False)]
        batches = iter(first)
        return [*found, library.rand(3).tolist(), *(batch.tolist() for batch in batches), library.rand(3).tolist()]

    ours = walked(tc, None if seed is None else tc.Generator(seed))
    assert ours == walked(torch, None if seed is None else torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([1, 2.7], [1.0, 2.7]),
        ([2.7, 1], [2.7, 1.0]),
        ([True, 2], [1, 2]),
        ([2, True], [2, 1]),
        ([True, 0.5], [1.0, 0.5]),
        ([np.int64(1), 2.5], [1.0, 2.5]),
        ([np.True_, False], [True, False]),
        ([np.float32(1), np.float32(2)], np.float32([1, 2])),
        ([np.float32(1), np.float16(2)], np.float32([1, 2])),
        ([np.uint8(255), 256], [255, 256]),
        ([np.uint8(255), np.uint8(1)], np.uint8([255, 1])),
        ([np.int32(1), np.uint8(2)], np.int32([1, 2])),
        ([np.int8(1), np.int8(2)], [1, 2]),
        ([np.int64(-1), np.uint64(2)], [-1, 2]),
        ([np.uint8(1), np.False_], [1, 0]),
    ],
)
def test_numbers_of_several_kinds_keep_their_values(samples, expected):
    """In whatever order they come, since a shuffle changes it."""
    found, expected = default_collate(samples), np.array(expected)
    assert found.dtype == expected.dtype and found.tolist() == expected.tolist()
    batch = next(iter(DataLoader([(s, 0) for s in samples], batch_size=len(samples))))
    assert batch[0].dtype == expected.dtype and batch[0].tolist() == expected.tolist()


def test_numbers_and_other_things_are_no_batch():
    for samples in ([1, "a"], [1.0, None]):
        with pytest.raises(TypeError, match="cannot be stacked into a batch; pass collate_fn="):
            default_collate(samples)
    for number in (2**63, 2**64, -(2**63) - 1, np.uint64(2**63)):
        with pytest.raises(OverflowError, match=rf"^{number} is too large for a batch of int64"):
            default_collate([1, number])
    with pytest.raises(ValueError, match="there are no samples"):
        default_collate([])


@pytest.mark.parametrize("is_left", [False, True])
def test_a_thread_prepares_as_many_batches_as_asked_for(is_left):
    """And none that it was asked for, once the loop is left."""
    seen, gate = [], threading.Semaphore(1)

    class Gated(Squares):
        def __getitem__(self, index):
            seen.append(index)
            return gate.acquire(timeout=10)

    iterator, deadline = iter(DataLoader(Gated(), 1, prefetch=3)), time.monotonic() + 10
    next(iterator)
    later = threading.Timer(0.05, gate.release, [9])
    later.start()
    if is_left:
        iterator.close()
    while not is_left and len(seen) < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert seen == ([0, 1] if is_left else [0, 1, 2, 3])
    iterator.close(), later.join()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_dataset_that_stops_early_is_an_error(prefetch):
    class Stopping(Squares):
        def __getitem__(self, index):
            return next(iter([])) if index == 3 else index

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(DataLoader(Stopping(), batch_size=2, prefetch=prefetch))


def test_nothing_to_draw_from():
    assert list(tc.data.RandomSampler([])) == list(tc.data.RandomSampler([], replacement=True)) == list(DataLoader([], shuffle=True)) == []
    with pytest.raises(ValueError, match=r"lengths must not be negative, got \[7, -2\]"):
        random_split(range(5), [7, -2])
    for weights in ([1e308] * 4, [0.0, 1e-310], [1e-320] * 2):
        for replacement in (True, False):
            count = np.count_nonzero(weights)
            seen = {i for seed in range(40) for i in tc.data.WeightedRandomSampler(weights, 1, replacement, rng=seed)}
            assert seen == set(np.flatnonzero(weights)) and len(seen) == count


class Unsized:
    def __getitem__(self, index):
        return index


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (None, "dataset is of type NoneType; expected a Dataset, an object with __getitem__ and __len__$"),
        (iter([1, 2]), "list_iterator; expected .* make a list of it, or an IterableDataset"),
        (Unsized(), "the dataset, a Unsized, has no __len__: define it, give a sampler, or make it an IterableDataset"),
        (Unsized, "dataset is the class Unsized; call it to make a dataset"),
    ],
)
def test_what_is_no_dataset_is_refused_when_the_loader_is_made(dataset, message):
    for options in ({}, {"shuffle": True}, {"collate_fn": len}):
        with pytest.raises(TypeError, match=message):
            DataLoader(dataset, 2, **options)


def test_a_dataset_without_a_length_takes_a_sampler():
    assert [b.tolist() for b in DataLoader(Unsized(), 2, sampler=[4, 2, 7])] == [[4, 2], [7]]


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"shuffle": True, "generator": 5}, {"sampler": [4, 0, 4]}])
def test_samples_without_batches(options):
    """In PyTorch's order, epoch after epoch."""
    torch = pytest.importorskip("torch")

    def epochs(library, loader, make):
        library.manual_seed(3)
        given = {k: make(v) if k == "generator" else v for k, v in options.items()}
        samples = loader([np.full(2, i, np.float32) for i in range(5)], batch_size=None, **given)
        return len(samples), [[sample.tolist() for sample in samples] for _ in range(3)], library.rand(1).item()

    expected = epochs(torch, torch.utils.data.DataLoader, torch.Generator().manual_seed)
    assert epochs(tc, DataLoader, int) == expected
    prefetched = DataLoader(range(5), None, prefetch=2, collate_fn=lambda sample: -sample)
    assert list(prefetched) == list(range(0, -5, -1)) and len(prefetched) == 5


def test_samples_without_batches_are_converted():
    class Rows(tc.data.IterableDataset):
        def __iter__(self):
            yield {"x": np.ones((2, 3)), "n": np.int64(4), "names": ["a", "b"], "pair": (1, np.array(True))}

    (found,) = DataLoader(Rows(), batch_size=None)
    assert found["x"].dtype == "float64" and found["x"].shape == (2, 3) and found["n"].item() == 4 and isinstance(found["n"], tc.Tensor)
    assert found["names"] == ["a", "b"] and found["pair"][0] == 1 and found["pair"][1].dtype == "bool"
    dataset = TensorDataset(np.arange(4))
    assert [row[0].item() for row in DataLoader(dataset, None)] == [0, 1, 2, 3]
    assert tc.data.default_convert("a") == "a" and tc.data.default_convert(np.float32(2)).dtype == "float32"
    with pytest.raises(ValueError, match="a DataLoader with batch_size=None has none: give it a batch_size"):
        SharedLoader(DataLoader(dataset, None), 0, 2)
    with pytest.raises(ValueError, match="with batch_size=None there are no batches"):
        DataLoader(dataset, None, drop_last=True)


def test_the_sampler_of_a_loader():
    """As in PyTorch; it has no stream of a checkpoint but that of a sampler that was given."""
    data, generator = list(range(4)), tc.Generator(3)
    plain, shuffled = DataLoader(data, 2), DataLoader(data, 2, shuffle=True, generator=generator)
    assert type(plain.sampler) is tc.data.SequentialSampler and list(plain.sampler) == data and len(plain.sampler) == 4
    assert type(shuffled.sampler) is tc.data.RandomSampler and shuffled.sampler.generator is shuffled.generator
    assert sorted(shuffled.sampler) == data
    given = tc.data.SubsetRandomSampler([1, 2], generator=4)
    loader = DataLoader(data, 2, sampler=given)
    assert loader.sampler is given
    streams = find_streams({"train": loader, "val": shuffled})
    assert {"train.sampler.generator", "val.generator"} <= set(streams) and not any("val.sampler" in name for name in streams)
    loader.sampler = [3]
    assert loader.sampler == [3] and [batch.tolist() for batch in loader] == [[3]]

    class Rows(tc.data.IterableDataset):
        pass

    assert DataLoader(Rows(), 2).sampler is None


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([[1, 2, 3], [4, 5]], r"different lengths make no batch: 3 and, at place 1 of the batch, 2; pad them"),
        (
            [(np.ones(2), 0), (np.ones(2), 1), (np.ones(5), 1)],
            r"different shapes make no batch: \(2,\) and, at place 2 of the batch, \(5,\); pad",
        ),
        ([tc.ones(2), tc.ones(3)], r"different shapes make no batch: \(2,\) and, at place 1 of the batch, \(3,\)"),
    ],
)
def test_samples_of_different_sizes(samples, message):
    with pytest.raises(ValueError, match=message + r".* or pass collate_fn="):
        default_collate(samples)


def test_samples_of_different_types():
    for samples in ([(1, 2), 3], [[1], None]):
        with pytest.raises(TypeError, match="samples of types .* cannot be stacked into a batch; pass collate_fn="):
            default_collate(samples)


def test_samples_of_other_libraries_are_stacked():
    class Foreign:
        def __init__(self, values):
            self.values = values

        def __array__(self, dtype=None, copy=None):
            return np.asarray(self.values, dtype)

    x, y = next(iter(DataLoader([(Foreign([1.0, 2.0]), Foreign(3)), (Foreign([4.0, 5.0]), Foreign(6))], 2)))
    assert isinstance(x, tc.Tensor) and x.tolist() == [[1, 2], [4, 5]] and y.tolist() == [3, 6]


def test_datasets_are_added_up():
    class Counting(tc.data.IterableDataset):
        def __iter__(self):
            return iter(range(2))

    a, b = TensorDataset(np.arange(3)), TensorDataset(np.arange(3, 5))
    assert [int(row) for (row,) in (a + b)] == list(range(5)) and len(a + [(9,)]) == 4
    assert list(Counting() + Counting()) == [0, 1, 0, 1]
    with pytest.raises(ValueError, match="argument 1 is one number, without axes"):
        TensorDataset(np.arange(3), 3)


def test_the_length_of_a_chain_is_that_of_its_parts():
    class Sized(tc.data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

        def __len__(self):
            return 3

    chain = tc.data.ChainDataset([Sized(), Sized()])
    assert len(chain) == 6 == len(list(chain)) and len(DataLoader(chain, 4)) == 2 == len(list(DataLoader(chain, 4)))
    endless = tc.data.ChainDataset([Sized(), itertools.count()])
    for call in (lambda: len(endless), lambda: len(DataLoader(endless))):
        with pytest.raises(TypeError, match="count"):
            call()


def test_lists_of_places_in_a_subset():
    """As in PyTorch, they go to the dataset together."""
    data = TensorDataset(np.arange(10), np.arange(10) ** 2)
    part = tc.data.Subset(data, [7, 1, 4])
    for subset in (part, tc.data.Subset(data, np.array([7, 1, 4]))):
        assert [column.tolist() for column in subset[[0, 2]]] == [[7, 4], [49, 16]]
    assert tc.data.Subset(part, [2, 0])[[1]][0].tolist() == [7] and [int(v) for v in part[-1]] == [4, 16]


def test_a_batch_of_names_that_the_dataset_makes_keeps_them():
    class Rows(Squares):
        def __getitems__(self, indices):
            return Pair(np.asarray(indices), 0) if self.named else (np.asarray(indices), 0)

    Pair = namedtuple("Pair", "x y")
    rows = Rows()
    for rows.named, kind in ((True, Pair), (False, list)):
        batch = next(iter(DataLoader(rows, 2)))
        assert type(batch) is kind and batch[0].tolist() == [0, 1]


def test_samples_that_the_dataset_gives_together_are_collated():
    """A list is of samples, as in PyTorch."""

    class Rows(Squares):
        def __getitems__(self, indices):
            return [{"x": int(i), "y": [float(i), "a"]} for i in indices]

    for rows in (Rows(), tc.data.Subset(Rows(), range(4))):
        batch = next(iter(DataLoader(rows, 2)))
        assert batch["x"].tolist() == [0, 1] and batch["y"][0].tolist() == [0.0, 1.0] and batch["y"][1] == ["a", "a"]


def test_options_of_pytorch_that_change_nothing():
    assert next(iter(DataLoader(Squares(), 2, in_order=True, pin_memory_device=""))) is not None


def test_samplers_of_keys():
    """Anything that the dataset takes; what has the value of an int is one."""
    assert next(iter(DataLoader({"one": 1, "two": 2}, 2, sampler=["two", "one"]))).tolist() == [2, 1]
    assert next(iter(DataLoader([5, 6], 2, sampler=[np.int32(1), tc.tensor(0)]))).tolist() == [6, 5]
    with pytest.raises(TypeError, match="list indices must be integers"):
        next(iter(DataLoader([5, 6], 2, sampler=[0.5, 1.5])))


def test_samples_that_a_subclass_changes_are_changed_one_by_one():
    """A TensorDataset gives whole batches, which its subclass's __getitem__ was called with."""

    class Reversed(tc.data.TensorDataset):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return x.flip(0), y

    x = tc.arange(12).reshape(4, 3)
    data = Reversed(x, tc.arange(4))
    for samples in (data, tc.data.Subset(data, range(4)), tc.data.ConcatDataset([data])):
        (batch, labels), _ = DataLoader(samples, 2)
        assert batch.tolist() == [[2, 1, 0], [5, 4, 3]] and labels.tolist() == [0, 1]

    class Marked(tc.data.Subset):
        def __getitem__(self, index):
            return -super().__getitem__(index)[0]

    assert next(iter(DataLoader(Marked(data, [3, 1]), 2))).tolist() == [[-11, -10, -9], [-5, -4, -3]]


def test_a_subset_gives_the_batches_of_its_dataset():
    calls = []

    class Rows(Squares):
        def __getitems__(self, indices):
            calls.append(list(indices))
            return np.asarray(indices)

    subset = tc.data.Subset(tc.data.Subset(Rows(), [5, 6, 7, 8]), np.array([3, 1, 0]))
    assert [np.asarray(b).tolist() for b in DataLoader(subset, 2)] == [[8, 6], [5]] and calls == [[8, 6], [5]]
    plain = DataLoader(tc.data.Subset(Squares(), np.array([3, 1, 0])), 2)
    expected = DataLoader(tc.data.Subset(Squares(), [3, 1, 0]), 2, collate_fn=tc.data.default_collate)
    assert repr(list(plain)) == repr(list(expected))


def test_a_subset_passes_its_indices_on_as_they_are():
    named = tc.data.Subset({"one": 1, "two": 2, "three": 3}, ["three", "one"])
    assert next(iter(DataLoader(named, 2))).tolist() == [3, 1]
    data = tc.data.TensorDataset(tc.arange(4))
    for indices in ([True, False, True], np.array([False, True]), [0.5, 2.5], tc.tensor([1.0])):
        with pytest.raises(IndexError, match="samples are taken by ints, got (bool|float)"):
            next(iter(DataLoader(tc.data.Subset(data, indices), 2)))
    with pytest.raises(TypeError, match="indices must be integers"):
        next(iter(DataLoader(tc.data.Subset([5, 6], [0.5]), 2)))


def test_mappings_keep_their_type():
    class Named(UserDict):
        """No dict, and with an attribute."""

    class Fixed(Mapping):
        def __init__(self, items, name):
            self._items = dict(items)

        __getitem__, __iter__, __len__ = (lambda self, k: self._items[k]), (lambda self: iter(self._items)), (lambda self: len(self._items))

    named = Named(x=1)
    named.source = "here"
    for sample in (OrderedDict(x=1), defaultdict(list, x=1), named, MappingProxyType({"x": 1})):
        batch = default_collate([sample, sample])
        assert type(batch) is type(sample) and batch["x"].tolist() == [1, 1] and sample["x"] == 1
    assert default_collate([defaultdict(list, x=1)])["y"] == [] and default_collate([named])["x"].shape == (1,)
    assert (
        default_collate([named]).source == "here"
        and type(default_collate([{"x": 1}])) is type(default_collate([Fixed({"x": 1}, "")])) is dict
    )
    assert next(iter(DataLoader([defaultdict(list, x={"y": 1})] * 2, 2)))["x"]["y"].tolist() == [1, 1]
    moved = map_nested(lambda t: t + 1, defaultdict(list, x=1))
    assert type(moved) is defaultdict and moved == {"x": 2} and moved["y"] == []


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_are_recorded_where_the_caller_records(prefetch):
    """As in PyTorch: of samples that require a gradient, and by a collate_fn with parameters."""
    layer, rows = tc.nn.Linear(2, 1), tc.ones(4, 2, requires_grad=True)

    def collate(samples):
        return layer(tc.stack(samples))

    for loader in (
        DataLoader([tc.ones(2)] * 4, 2, collate_fn=collate, prefetch=prefetch),
        DataLoader([row * 2 for row in rows], 2, prefetch=prefetch),
    ):
        assert [batch.requires_grad for batch in loader] == [True, True]
        with tc.no_grad():
            assert [batch.requires_grad for batch in loader] == [False, False]
    for (batch,) in DataLoader(TensorDataset(rows), 2, prefetch=prefetch):
        (batch**2).sum().backward()
    assert rows.grad.tolist() == [[2.0, 2.0]] * 4
    for batch in DataLoader([tc.ones(2)] * 4, 2, collate_fn=collate, prefetch=prefetch):
        batch.sum().backward()
    assert layer.weight.grad.tolist() == [[4.0, 4.0]]
    assert not any(batch[0].requires_grad for batch in DataLoader(TensorDataset(np.ones((4, 2), np.float32)), 2, prefetch=prefetch))


class Drawing(Dataset):
    """Samples with noise from the default generator."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index + 0.1 * tc.randn(4)


class DrawingInOrder(tc.data.IterableDataset):
    def __iter__(self):
        return (Drawing()[i] for i in range(8))


def pauses(samples):
    """Now and then later than the loop."""
    time.sleep(0.001 * np.random.default_rng().random())
    return default_collate(samples)


SOURCES = {
    "shuffle": lambda prefetch: DataLoader(Drawing(), 2, shuffle=True, prefetch=prefetch, collate_fn=pauses),
    "own generator": lambda prefetch: DataLoader(Drawing(), 2, shuffle=True, prefetch=prefetch, collate_fn=pauses, rng=5),
    "iterable": lambda prefetch: DataLoader(DrawingInOrder(), 2, prefetch=prefetch, collate_fn=pauses),
    "sampler": lambda prefetch: DataLoader(
        Drawing(), 2, sampler=tc.data.WeightedRandomSampler([1.0] * 8, 8), prefetch=prefetch, collate_fn=pauses
    ),
    "batch_sampler": lambda prefetch: DataLoader(
        Drawing(), batch_sampler=tc.data.BatchSampler(tc.data.SubsetRandomSampler(range(8)), 2, False), prefetch=prefetch, collate_fn=pauses
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_thread_that_prefetches_draws_from_a_generator_of_its_own(name):
    """The draws of the data and those of the loop do not depend on which is first; the order of the samples is that without a thread."""

    def run(prefetch):
        tc.manual_seed(0)
        loader, found = SOURCES[name](prefetch), []
        for _ in range(2):
            found += [(batch.tolist(), tc.randn(1).item()) for batch in loader]
        return found

    first = run(2)
    assert all(run(2) == first for _ in range(9)) and run(1) == run(3) == first
    samples = [np.round(batch) for batch, _ in first]
    assert first[:4] != first[4:] and not np.array_equal(samples[0] - first[0][0], samples[4] - first[4][0])
    tc.manual_seed(0)
    without = [np.round(batch.tolist()) for batch in SOURCES[name](0)]
    np.testing.assert_array_equal(samples[:4], without)


def test_a_thread_that_prefetches_leaves_the_generators_of_others():
    """The state after a pass is that after a pass over data that draw nothing."""
    states = []
    for dataset, prefetch in ((TensorDataset(np.arange(8)), 0), (Drawing(), 2)):
        tc.manual_seed(0)
        list(DataLoader(dataset, 2, shuffle=True, prefetch=prefetch))
        states.append(bytes(default_generator.get_state()))
    assert states[0] == states[1]
    for seed in (3, 3):
        with drawing_from(tc.Generator(seed)):
            states.append([batch.tolist() for batch in DataLoader(Drawing(), 2, shuffle=True, prefetch=2)])
    assert states[2] == states[3] and bytes(default_generator.get_state()) == states[0]


def test_a_thread_that_prefetches_draws_the_numbers_of_pytorchs_worker():
    torch = pytest.importorskip("torch")
    tc.manual_seed(0)
    found = [batch.tolist() for _ in range(2) for batch in DataLoader(Drawing(), 2, shuffle=True, prefetch=2)]
    torch.manual_seed(0)
    for start in (0, 4):
        seed = int(torch.empty((), dtype=torch.int64).random_())  # of the worker, drawn before that of the order
        order = torch.randperm(8, generator=torch.Generator().manual_seed(int(torch.empty((), dtype=torch.int64).random_()))).tolist()
        worker = torch.Generator().manual_seed(seed)
        samples = [i + 0.1 * torch.randn(4, generator=worker) for i in order]
        expected = torch.stack(samples).reshape(4, 2, 4)
        np.testing.assert_allclose(found[start : start + 4], expected.numpy(), rtol=1e-6)
