"""init, broadcast, all_reduce and all_gather: against NumPy, between real processes."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import transformer_c as tc
from jobs import needs_mpi, run
from transformer_c.distributed import cores, launchers, sums
from transformer_c.distributed.group import MOST_PAIRS, Group

DTYPES = ("float32", "float64", "float16", "int64", "uint8")


# ---- one rank ---------------------------------------------------------------------------------------------------------------------


def test_there_is_one_rank_without_a_launcher():
    tc.distributed.init()
    tc.distributed.barrier()
    assert (tc.distributed.rank(), tc.distributed.world_size()) == (0, 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_rank_gets_what_it_gave(dtype, rng):
    x = (100 * rng.random((3, 5))).astype(dtype)
    for y in (tc.distributed.broadcast(x), tc.distributed.all_reduce(x), tc.distributed.all_gather(x)[0]):
        assert y.dtype == x.dtype and np.array_equal(y, x) and not np.shares_memory(y, x)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_tensors_stay_tensors_without_a_history(dtype):
    x = tc.tensor([[1.0, 2.5]], requires_grad=True).to(dtype)
    for y in (tc.distributed.broadcast(x), tc.distributed.all_reduce(x, "mean"), tc.distributed.all_gather(x)[0]):
        assert isinstance(y, tc.Tensor) and y.dtype == x.dtype and y.shape == (1, 2) and not y.requires_grad
        assert y.tolist() == [[1.0, 2.5]]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_arrays(shape):
    x = np.ones(shape)
    for y in (tc.distributed.broadcast(x), tc.distributed.all_reduce(x)):
        assert y.shape == shape and np.array_equal(y, x)
    assert tc.distributed.all_gather(x).shape == (1, *shape)


@pytest.mark.parametrize(
    "call, kind, message",
    [
        (lambda: tc.distributed.init("nccl"), NotImplementedError, 'use backend="mpi"'),
        (lambda: tc.distributed.init("gloo"), ValueError, "backend must be 'auto' or 'mpi' or 'nccl', got 'gloo'"),
        (lambda: tc.distributed.broadcast(np.ones(2), root=1), ValueError, "root is 1; expected a rank from 0 to 0"),
        (lambda: tc.distributed.broadcast(None), TypeError, "takes an ndarray or a Tensor, not NoneType"),
        (lambda: tc.distributed.all_reduce("x"), TypeError, "takes an ndarray or a Tensor, not str"),
        (lambda: tc.distributed.all_reduce(np.ones(2), "min"), ValueError, "op must be 'sum' or 'mean' or 'max', got 'min'"),
        (lambda: tc.distributed.all_reduce(np.ones(2, int), "mean"), TypeError, "convert it to float64"),
        (lambda: tc.distributed.all_reduce(np.ones(2, bool)), TypeError, "op='max'"),
        (lambda: tc.distributed.all_gather(np.array(["a"])), TypeError, "takes numbers"),
        (lambda: tc.distributed.ReduceOp, AttributeError, 'use op="sum"'),
        (lambda: tc.distributed.destroy_process_group, AttributeError, "the end of the program, with which MPI ends"),
        (lambda: tc.TrainingModule().global_rank, AttributeError, "use self.trainer.global_rank"),
        (lambda: tc.distributed.get_rank(), AttributeError, r"use tc.distributed.rank\(\)"),
    ],
)
def test_wrong_arguments(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_there_are_no_process_groups(monkeypatch):
    """Programs of PyTorch's ask for them that run as one process; with several, their in-place calls would do nothing in silence."""
    from transformer_c.distributed import world

    assert tc.distributed.is_available() is False and tc.distributed.is_initialized() is False
    monkeypatch.setattr(world, "world_size", lambda: 2)
    for question in (tc.distributed.is_available, tc.distributed.is_initialized):
        with pytest.raises(RuntimeError, match=r"2 processes, but no process groups .*world_size\(\) > 1"):
            question()


def test_mpi_is_missing(monkeypatch):
    from transformer_c.distributed import world

    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setattr(world, "_group", None)
    monkeypatch.setenv("PMI_SIZE", "4")
    with pytest.raises(ImportError, match=r"(?s)started 4 processes.*pip install 'transformer_c\[mpi\]'.*mpiexec -n 4 python"):
        tc.distributed.init()
    with pytest.raises(ImportError, match="mpiexec"):
        tc.distributed.rank()
    monkeypatch.delenv("PMI_SIZE")
    with pytest.raises(ImportError, match='backend="mpi" was asked for'):
        tc.distributed.init("mpi")
    tc.distributed.init()  # one rank needs no MPI


@needs_mpi
@pytest.mark.parametrize(
    "variables, message",
    [
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "each finds itself alone: it belongs to another MPI than mpi4py's library"),
        ({"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2"}, "each finds itself alone: start them with mpiexec -n 2 python script.py"),
    ],
    ids=["another MPI", "torchrun"],
)
def test_a_launcher_of_which_mpi_knows_nothing(variables, message):
    """Under torchrun each process trained on all the data, and wrote the same files."""
    job = subprocess.run(
        [sys.executable, "-c", "import transformer_c as tc; tc.distributed.init()"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert job.returncode == 1 and f"started 2 processes, but {message}" in job.stderr


@pytest.mark.parametrize(
    "environment, count",
    [
        ({}, 1),
        ({"PMI_SIZE": "3"}, 3),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, 2),
        ({"SLURM_STEP_NUM_TASKS": "8"}, 8),
        ({"SLURM_NTASKS": "8"}, 1),
        ({"WORLD_SIZE": "8"}, 1),
        ({"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "8"}, 8),
        ({"PMI_SIZE": "3", launchers.RANK_PROCESS: str(os.getpid())}, 3),
        ({"PMI_SIZE": "3", launchers.RANK_PROCESS: "1"}, 1),
    ],
)
def test_processes_by_launcher(environment, count):
    assert launchers.started_processes(environment) == count


@pytest.mark.parametrize("length", [0, 1, 2, 7, 64, 1001])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_parts_cover_an_array(length, ranks):
    bounds = sums.bounds(length, ranks)
    lengths = np.diff(bounds)
    assert bounds[0] == 0 and bounds[-1] == length and lengths.max() - lengths.min() <= 1


@pytest.mark.parametrize(
    "allowed, threads",
    [
        ([{0, 1, 2, 3}], [4]),
        ([{0, 1, 2, 3}] * 2, [2, 2]),
        ([{0, 1, 2, 3}] * 3, [2, 1, 1]),
        ([{0, 1}] * 5, [1] * 5),
        ([{0, 1}, {2, 3}], [2, 2]),  # bound by the launcher
        ([{0}, {0}, {1}], [1, 1, 1]),
    ],
)
def test_threads_of_ranks_that_share_cores(allowed, threads):
    allowed = [frozenset(cores) for cores in allowed]
    assert [cores.threads_for(rank, allowed) for rank in range(len(allowed))] == threads


# ---- several ranks ----------------------------------------------------------------------------------------------------------------

SCRIPT = """
    from on_ranks import fails
    from transformer_c import distributed as d
    import os
    threads, os.sched_getaffinity = tc.get_num_threads(), lambda process: range(4) if os.environ["PMI_RANK"] == "0" else range(4, 6)
    d.init()
    rank, size = d.rank(), d.world_size()
    assert size == SIZE and 0 <= rank < SIZE
    assert d.world._cores == (2 // (size - 1) if rank else 4), "rank 0 has four cores, and the others share two, as their launcher bound them"
    assert tc.get_num_threads() == min(d.world._cores, threads), "no more than before"

    def of(rank, dtype, length):
        x = 40 * np.random.default_rng(rank).random(length)
        return x.astype(dtype)

    for dtype in ("float32", "float64", "float16", "int64", "uint8"):
        for length in (0, 1, 2, 7, 100_003):
            xs = [of(r, dtype, length) for r in range(size)]
            x = xs[rank]
            wide = [x.astype("float32") if dtype == "float16" else x for x in xs]
            total = wide[0].copy()
            for other in wide[1:]:
                total += other
            assert np.array_equal(d.all_reduce(x), total.astype(dtype)), (dtype, length)   # the same bits, not close
            assert np.array_equal(d.all_reduce(x, "max"), np.max(xs, axis=0)), (dtype, length)
            if x.dtype.kind == "f":
                assert np.array_equal(d.all_reduce(x, "mean"), (total / total.dtype.type(size)).astype(dtype))
            assert np.array_equal(d.all_gather(x), np.stack(xs))
            for root in range(size):
                assert np.array_equal(d.broadcast(x if rank == root else None, root), xs[root])
    file = np.array([rank + 0.5, 1.0]).astype("<f4" if rank else ">f4")  # the byte order of one rank's file
    assert d.all_reduce(file).tolist() == [sum(r + 0.5 for r in range(size)), size]
    assert d.all_gather(file)[:, 0].tolist() == [r + 0.5 for r in range(size)] and d.broadcast(file, 1).tolist() == [1.5, 1.0]
    x = tc.tensor([rank + 0.5, 1.0]).to("bfloat16")
    assert d.all_reduce(x).tolist() == [sum(r + 0.5 for r in range(size)), size] and d.all_reduce(x).dtype == x.dtype
    y = d.broadcast(tc.tensor([1.5]) if rank == 1 else None, root=1)
    assert isinstance(y, tc.Tensor) and y.tolist() == [1.5]
    strided = np.arange(12.0).reshape(3, 4).T[::2]
    assert np.array_equal(d.all_reduce(strided), size * strided)
    assert np.isnan(d.all_reduce(np.array(np.nan if rank else 1.0), "max"))
    extremes = np.array([3e38, np.inf if rank else -np.inf], np.float32)
    with np.errstate(all="raise"):  # of the program, which the rank that adds a part alone would follow
        assert str(d.all_reduce(extremes, "mean").tolist()) == "[inf, nan]" and d.all_reduce(np.array([6e4], "f2")).tolist() == [np.inf]
    import threading
    found = []
    threads = [threading.Thread(target=lambda i=i: found.append(d.all_reduce(np.full(1000, i)))) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    d.barrier()
    assert len(found) == 4 and all((y == y[0]).all() for y in found) and sum(y[0] for y in found) == 6 * size, "parts of two calls were added"
    # What does not fit together is an error on every rank, after which they go on.
    for wrong in (np.ones(2 + rank), np.ones(2, np.float32 if rank else np.float64), tc.ones(2).to("float16" if rank else "float32")):
        for function in (d.all_reduce, d.all_gather, d.broadcast):
            try:
                function(wrong)
            except ValueError as error:
                assert "on rank 0" in str(error) and "on rank 1" in str(error), error
            else:
                raise AssertionError("no error")
    # So is what is wrong on one rank alone: the others are told, and nobody waits.
    for length in (3, 100_000):
        own = np.full(length, float(rank))
        fails(ValueError, "root=0) on rank 0 but with broadcast(float64", lambda: d.broadcast(own, root=rank))
    fails(ValueError, "broadcast(None, root=1) on rank 0 but with broadcast(None, root=0) on rank 1",
         lambda: d.broadcast(None, root=0 if rank else 1))
    for kind, message, call in (
        (TypeError, "takes an ndarray or a Tensor, not str", lambda x, wrong: d.all_reduce("x" if wrong else x)),
        (TypeError, "takes numbers", lambda x, wrong: d.all_gather(np.array(["a"]) if wrong else x)),
        (TypeError, "convert it to float64", lambda x, wrong: d.all_reduce(np.ones(3, int) if wrong else x, "mean")),
        (TypeError, "without a mask", lambda x, wrong: d.all_reduce(np.ma.masked_equal(x, 1.0) if wrong else x)),
        (ValueError, "op must be", lambda x, wrong: d.all_reduce(x, "min" if wrong else "sum")),
        (ValueError, "root is 7; expected a rank", lambda x, wrong: d.broadcast(x, root=7 if wrong else 0)),
        (TypeError, "not NoneType", lambda x, wrong: d.broadcast(None if wrong else x, root=1)),
    ):
        other = ("failed on rank 1: " + kind.__name__) if rank != 1 else message
        fails(kind if rank == 1 else ValueError, other, lambda: call(np.ones(3), rank == 1))
    assert np.array_equal(d.all_reduce(np.ma.array([1.0, 2.0])), [size, 2 * size]), "without anything masked"
    import subprocess, sys, warnings
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        d.init(timeout=7)
    assert "the ranks have joined already, with timeout=1800: call init(timeout=7) first" in str(caught[0].message)
    if rank == 1:  # a program that a rank starts is none of the ranks
        code = "import transformer_c as tc; print(tc.distributed.world_size())"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "1\\n"
    d.barrier()
    group = d.world.group()
    before = group.sent
    d.all_reduce(np.ones(3 * 1024, np.float32))
    assert group.sent - before == 2 * (size - 1) * 3 * 1024 * 4 // size, "as many bytes as an all-reduce needs"
    print(f"rank {rank} done\\n", end="")
"""


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_values_between_processes(ranks, tmp_path):
    out = run(ranks, SCRIPT.replace("SIZE", str(ranks)), tmp_path)
    assert sorted(out.splitlines()) == [f"rank {r} done" for r in range(ranks)]


SUMS_SCRIPT = """
    import os
    from transformer_c import distributed as d
    from transformer_c.distributed import group as groups
    d.init()
    group, rank, size = d.world.group(), d.rank(), d.world_size()
    assert d.all_reduce(np.array(tc.get_num_threads())) <= max(len(os.sched_getaffinity(0)), size), "no core has two threads"

    class Counting:
        def __init__(self, communicator):
            self.communicator, self.bytes, self.names = communicator, 0, set()

        def __getattr__(self, name):
            self.names.add(name)
            return getattr(self.communicator, name)

        def Isend(self, data, to):
            assert to != rank, "nothing is sent to itself"
            self.bytes += data.nbytes
            return self.communicator.Isend(data, to)

        def Alltoallv(self, sent, found):
            (lengths, _), self.names = sent[1], self.names | {"Alltoallv"}
            self.bytes += lengths.sum() - lengths[rank]
            self.communicator.Alltoallv(sent, found)

        def Allgatherv(self, own, whole):
            (lengths, _), self.names = whole[1], self.names | {"Allgatherv"}
            self.bytes += (size - 1) * lengths[rank]
            self.communicator.Allgatherv(own, whole)

    group.communicator = counting = Counting(group.communicator)
    for pairs in (True, False):
        groups.MOST_PAIRS = size if pairs else size - 1
        for groups.ROUND_BYTES in (2**21, 64):  # in one round, and in many
            for dtype in ("float32", "float64", "int32"):
                for length in (0, 1, 2, 7, 1003):
                    xs = [(1000 * np.random.default_rng(r).standard_normal(length)).astype(dtype) for r in range(size)]
                    total = xs[0].copy()
                    for x in xs[1:]:
                        total += x
                    x, own = xs[rank].copy(), slice(rank * length // size, (rank + 1) * length // size)
                    counting.names.clear()
                    before, counted = group.sent, counting.bytes
                    assert np.array_equal(group.all_reduce(x), total)
                    parts = (x.nbytes - x[own].nbytes) + (size - 1) * x[own].nbytes
                    assert group.sent - before == counting.bytes - counted == parts
                    assert ("Alltoallv" in counting.names and "Allgatherv" in counting.names) == (not pairs and length > 0) or not length
                    assert np.array_equal(x, xs[rank]), "the array is as it was"
                    assert np.array_equal(group.reduce_scatter(x), total[own])
                    assert group.all_reduce(x, out=x) is x and np.array_equal(x, total)
    print(f"rank {rank} done\\n", end="")
"""


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_sums_by_pairs_of_messages_and_by_calls_of_all(ranks, tmp_path):
    """Both ways have the bits of the sum in the order of the ranks, and send as much, in any number of rounds."""
    out = run(ranks, SUMS_SCRIPT, tmp_path)
    assert sorted(out.splitlines()) == [f"rank {r} done" for r in range(ranks)]


class Alike:
    """The communicator of one of many ranks, which all have the same array."""

    def __init__(self, rank, size, total):
        self.rank, self.size, self.total, self.bytes, self.calls = rank, size, total.view(np.uint8), 0, 0

    def Alltoallv(self, sent, found):
        (array, (lengths, begins), _), (room, (own, places), _) = sent, found
        assert len(lengths) == self.size and (own == lengths[self.rank]).all()
        for place, length in zip(places, own, strict=True):
            room[place : place + length] = array[begins[self.rank] :][:length]
        self.bytes, self.calls = self.bytes + lengths.sum() - lengths[self.rank], self.calls + 1

    def Allgatherv(self, own, whole):
        array, (lengths, begins), _ = whole
        for rank, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
            part = slice(begin, begin + length)
            assert rank != self.rank or (array[part] == self.total[part]).all()
            array[part] = self.total[part]
        self.bytes, self.calls = self.bytes + (self.size - 1) * lengths[self.rank], self.calls + 1


@pytest.mark.parametrize("size", [MOST_PAIRS + 1, 64, 1024])
@pytest.mark.parametrize("length", [7, 1024, 1_000_003])
def test_bytes_of_many_ranks(size, length, monkeypatch):
    """2 (n - 1) / n of the array per rank, but for parts of lengths that differ by one, and the sum of all."""
    monkeypatch.setattr("transformer_c.distributed.group.ROUND_BYTES", 2**16)
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=SimpleNamespace(IN_PLACE=None)))
    x = np.arange(length, dtype=np.float64)
    for rank in (0, size // 2, size - 1):
        group = Group(communicator := Alike(rank, size, size * x))
        assert (group.all_reduce(x) == size * x).all()
        assert (group.sent, group.calls) == (communicator.bytes, communicator.calls)
        assert abs(group.sent - 2 * (size - 1) / size * x.nbytes) <= x.itemsize * size


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_sums_in_order_into_one_of_the_parts(ranks, rng):
    parts = list(rng.standard_normal((ranks, 50)).astype(np.float32))
    expected = parts[0].copy()
    for part in parts[1:]:
        expected = expected + part
    for own in range(ranks):
        copies = [part.copy() for part in parts]
        sums.in_order(copies, copies[own])
        assert np.array_equal(copies[own], expected)
        assert all(np.array_equal(copies[r], parts[r]) for r in range(ranks) if r != own), "the others are as they were"


@needs_mpi
def test_gradients_are_summed_where_they_are(tmp_path):
    """Without a second copy of them: what NumPy takes meanwhile is what one round needs."""
    script = """
        import tracemalloc
        from transformer_c import distributed as d
        from transformer_c.distributed import group as groups
        from transformer_c.trainer.ranks import Ranks
        d.init()
        groups.ROUND_BYTES = 2**14
        layer = tc.nn.Linear(512, 512)
        optimizer = tc.optim.SGD(layer.parameters(), lr=1.0)
        for p in layer.parameters():
            p.grad = tc.full(p.shape, d.rank() + 1.0)
        buffers = [buffer.data_ptr() for buffer in optimizer.flat_gradients()]
        tracemalloc.start()
        Ranks(d.world.group()).sum_gradients(optimizer, [True, True])
        peak = tracemalloc.get_traced_memory()[1]
        assert peak < 0.2 * 512 * 512 * 4, peak
        assert [buffer.data_ptr() for buffer in optimizer.flat_gradients()] == buffers
        assert all((np.asarray(p.grad) == 3).all() for p in layer.parameters())
        print("done\\n", end="")
    """
    assert run(2, script, tmp_path) == "done\ndone\n"
