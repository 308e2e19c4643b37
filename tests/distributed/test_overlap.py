"""Trainer(strategy="ddp") exchanges gradients while the backward goes on: with the bits of an exchange after it."""

import time
from textwrap import dedent

import numpy as np
import pytest
from jobs import Job, needs_mpi
from transformer_c.distributed import background

pytestmark = needs_mpi

# trained(is_overlapped, ...) gives what a run comes to, and what was exchanged when.
BEGIN = """
    import os, sys, time, warnings
    import on_ranks, training
    from transformer_c import distributed
    from transformer_c.trainer import overlap
    from transformer_c.trainer.overlap import Overlap
    overlap.BUCKET_BYTES = 1024
    distributed.init()
    rank, size = distributed.rank(), distributed.world_size()

    def trained(is_overlapped, **case):
        os.environ["TRANSFORMER_C_MPI_OVERLAP"] = "1" if is_overlapped else "0"
        Overlap.trace = trace = []
        if "callbacks" in case:
            case["callbacks"] = [case["callbacks"]()]
        trainer, model = training.trained(size, 12, **case)
        return (training.weights(model), trainer.history, trainer.step_history), trace

    def check_same_bits(is_summed=True, **case):
        expected, nothing = trained(False, **case)
        found, trace = trained(True, **case)
        assert np.array_equal(expected[0], found[0]) and expected[1:] == found[1:], case
        sums = [row for row in trace if row[0].startswith("sum")]
        assert not nothing and bool(sums) == is_summed, (len(nothing), len(sums))
        return trace
"""


def job(ranks, script, folder, **environment):
    return Job(ranks, dedent(BEGIN) + dedent(script), folder, **environment)


def check(ranks, script, folder, **environment):
    """Standard output and errors of a job that succeeds."""
    status, out, err = job(ranks, script, folder, **environment).result()
    assert status == 0, f"exit status {status}\n{out[-2000:]}\n{err[-4000:]}"
    return out + err


@pytest.mark.parametrize("ranks", [2, 3])
def test_same_bits_as_an_exchange_after_the_backward(ranks, tmp_path):
    """Shared, frozen, rarely and never used parameters; accumulation; batches that do not divide; halves, which are sent as float32."""
    script = """
        uneven = ("uneven", "fewer rows than ranks", "unused", "accumulated", "by hand")  # 3 ranks do all the others as well
        for name, case in ((name, on_ranks.CASES[name]) for name in (on_ranks.CASES if size == 3 else uneven)):
            check_same_bits(is_summed="by hand" not in name, epochs=2, **case)
        check_same_bits(precision="bf16-mixed", epochs=1)
        check_same_bits(dtype="bfloat16", epochs=1, accumulate_grad_batches=2)
    """
    check(ranks, script, tmp_path)


def test_sums_end_before_the_backward_ends(tmp_path):
    """The trace shows it, on every rank: a thread adds while the backward of the first layer waits for two sums."""
    script = """
        last = []  # the sums that began last
        begin = overlap.BackgroundSums.__init__
        overlap.BackgroundSums.__init__ = lambda sums, *given: (begin(sums, *given), last.append(sums))[0]

        def wait_for_sums():
            end = time.monotonic() + 30
            while last and len(last[-1].times) < 2 and time.monotonic() < end:
                time.sleep(0.001)

        wait = tc.custom_op(lambda x: x * 1, lambda dy, x: (wait_for_sums(), dy)[1])

        class Deep(training.Small):
            def forward(self, x):
                return self.head(self.block(wait(self.first(x))).mean(1))

        trace = check_same_bits(kind=Deep, epochs=1, rows=36, limit_val_batches=0)
        backwards = [row[1:] for row in trace if row[0] == "backward"][1:]  # the first finds the order
        sums = [row[1:] for row in trace if row[0].startswith("sum")]
        assert len(backwards) == 2
        for began, ended in backwards:
            early = [s for s in sums if began < s[0] and s[1] < ended]
            assert len(early) >= 2, (began, ended, sums)
        assert all(a[1] <= b[0] for a, b in zip(sums, sums[1:])), "one after the other"
    """
    check(2, script, tmp_path)


def test_what_is_exchanged_during_the_backward_is_counted(tmp_path):
    script = """
        group, counts = distributed.world.group(), []
        for is_overlapped in (False, True):
            before = group.sent
            trained(is_overlapped, epochs=1)
            counts.append(group.sent - before)
        buckets = 10 * 5  # at most, in all steps; each is cut into parts, whose lengths are rounded
        assert abs(counts[0] - counts[1]) <= 8 * size * buckets, counts
    """
    check(3, script, tmp_path)


def test_what_changes_between_steps(tmp_path):
    """Parameters that come later or have strides, a step without a loss on some ranks, closures, another backward meanwhile, hooks of leaves."""
    script = """
        class Added(training.Small):
            def on_train_epoch_start(self):
                if self.trainer.current_epoch == 1:
                    extra = tc.nn.Linear(4, 4)
                    self.add_module("extra", extra)
                    self.trainer.optimizers[0].add_param_group({"params": list(extra.parameters())})

        class Skipping(training.Small):
            def training_step(self, batch, batch_idx):
                loss = super().training_step(batch, batch_idx)
                return None if (batch_idx + rank) % 2 else loss

        class Nested(training.Small):
            def training_step(self, batch, batch_idx):
                h = self.first(batch[0])
                other = self.head.weight.square().sum() + self.first.weight.square().sum()
                h.register_hook(lambda gradient: other.backward())  # the head's gradient is exchanged by then
                return tc.F.cross_entropy(self.head(self.block(h).mean(1)), batch[1])

        class Hooked(training.Small):
            def __init__(self, *args):
                super().__init__(*args)
                self.head.weight.register_hook(lambda gradient: gradient * 2)

        class Twice(training.Small):
            def optimizer_step(self, epoch, batch_idx, optimizer, closure):
                closure()
                optimizer.step(closure)

        class Strided(training.Small):
            def __init__(self, *args):
                super().__init__(*args)
                for p in self.parameters():
                    if p.ndim == 2:
                        p.data = tc.tensor(np.asarray(p.detach()).T.copy()).T

        for kind in (Added, Skipping, Nested, Hooked, Twice, Strided):
            check_same_bits(kind=kind, epochs=2)
    """
    check(2, script, tmp_path)


def test_exchange_after_the_backward_where_it_cannot_be_during_it(tmp_path):
    script = """
        class Own(training.Small):
            def backward(self, loss):
                (loss * 0.5).backward(retain_graph=True)
                (loss * 0.5).backward()

        check_same_bits(is_summed=False, epochs=1, kind=Own)
        overlap.BUCKET_BYTES = 2**20
        check_same_bits(is_summed=False, epochs=1)
        overlap.BUCKET_BYTES = 1024
        check_same_bits(is_summed=False, epochs=1, strategy="zero")
        os.environ["TRANSFORMER_C_MPI_OVERLAP"] = "1"
        for change, reason in (
            (lambda m: setattr(m, "automatic_optimization", False), "the module computes gradients itself"),
            (lambda m: setattr(m, "backward", lambda loss: None), "Small has a backward() of its own"),
        ):
            model = training.Small()
            change(model)
            assert reason in overlap.obstacle(model, [tc.optim.SGD(model.parameters())])
        model = training.Small()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            overlap.BUCKET_BYTES = 2**20
            tc.Trainer(1, strategy="ddp", progress=False).fit(model, tc.data.DataLoader(training.data(), batch_size=10))
        said = [str(w.message) for w in seen if "OVERLAP" in str(w.message)]
        assert said == ["TRANSFORMER_C_MPI_OVERLAP is 1, but gradients are exchanged after the backward: all gradients together fill one bucket, of 1048576 bytes"] * (rank == 0), said
        os.environ["TRANSFORMER_C_MPI_OVERLAP"] = ""  # as if it were not set
        assert distributed.world.overlap_wish() is False
        os.environ["TRANSFORMER_C_MPI_OVERLAP"] = "yes"
        try:
            tc.Trainer(1, strategy="ddp", progress=False).fit(model, tc.data.DataLoader(training.data(), batch_size=10))
        except ValueError as error:
            assert "TRANSFORMER_C_MPI_OVERLAP must be" in str(error), error
        else:
            raise AssertionError
    """
    check(2, script, tmp_path)


def test_mpi_that_takes_one_thread(tmp_path):
    """The exchange is after the backward, and ranks that wait for ever are not ended: both are said."""
    script = "import mpi4py\nmpi4py.rc.thread_level = 'serialized'\n"
    end = """
        check_same_bits(is_summed=False, epochs=1)
        assert not distributed.world.takes_threads()
    """
    status, _, err = Job(2, script + dedent(BEGIN) + dedent(end), tmp_path).result()
    assert status == 0, err
    assert "so that nothing ends ranks that wait for ever" in err


@pytest.mark.parametrize("threads, is_overlapped", [(1, False), (0, True)])
def test_by_itself_where_a_core_is_left(threads, is_overlapped, tmp_path):
    script = f"""
        distributed.world._cores = tc.get_num_threads() + {1 - threads} * (rank == 0 or {threads} == 0)
        os.environ["TRANSFORMER_C_MPI_OVERLAP"] = "auto"
        Overlap.trace = []
        training.trained(size, 12, epochs=1)
        assert bool(Overlap.trace) == {is_overlapped}
    """
    check(2, script, tmp_path)


def test_a_run_that_failed_on_all_ranks_leaves_nothing_behind(tmp_path):
    """A program may catch the error and train again, and it ends."""
    script = """
        class Broken(training.Small):
            count = 0

            def forward(self, x):
                Broken.count += 1
                fail = tc.custom_op(lambda x: x * 1, lambda dy, x: 1 / 0 if Broken.count == 3 else dy)
                return self.head(self.block(fail(self.first(x))).mean(1))

        class Infinite(training.Small):
            def training_step(self, batch, batch_idx):
                loss = super().training_step(batch, batch_idx)
                return loss * float("nan") if batch_idx == 2 else loss

        for kind, error in ((Broken, ZeroDivisionError), (Infinite, FloatingPointError)):
            try:
                trained(True, epochs=1, kind=kind)
            except error:
                pass
            else:
                raise AssertionError(error)
        check_same_bits(epochs=1)
    """
    check(2, script, tmp_path)


def test_sums_that_are_left(monkeypatch):
    """Ranks meet without haste before each sum; one that has failed goes on to no sum for which the others do not come."""
    calls = []

    class Ranks:
        def meet(self, is_left):
            calls.append("meet")
            while len(calls) == 3 and not is_left():
                time.sleep(0.001)
            return not is_left()

        def all_reduce(self, array, out):
            calls.append("sum")

    monkeypatch.setattr(background, "_GRACE", 0.05)
    sums = background.BackgroundSums(Ranks(), [np.ones(1)] * 3)
    sums.next_is_filled()
    while not sums.times:
        time.sleep(0.001)
    sums.leave()
    sums.wait()
    assert calls == ["meet", "sum", "meet"]


FAULTS = {
    "is killed": ("os.kill(os.getpid(), 9)", ["Killed (signal 9)"]),
    "raises": ("raise RuntimeError('planted')", ["rank 1 of 2 failed, which ends all", "RuntimeError: planted"]),
    "hangs": ("time.sleep(1000)", ["rank 0 of 2 waited for others in a sum of gradients for more than 1 s", "time.sleep(1000)"]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_the_middle_of_an_exchange_ends_all(name, tmp_path):
    fault, messages = FAULTS[name]
    script = f"""
        from transformer_c.trainer.overlap import Step
        add, count = Step.add, [0]

        def faulty(self, place, gradient):
            count[0] += 1
            if rank == 1 and count[0] == 30:
                training.tell("at the fault")
                {fault}
            elif count[0] == 30:
                training.wait_for("at the fault")
                training.set_limit({1 if name == "hangs" else 60})
            add(self, place, gradient)

        Step.add = faulty
        trained(True, epochs=2)
    """
    status, out, err = job(2, script, tmp_path).result()
    assert status != 0
    for message in messages:
        assert message in out + err, f"{message!r} is not in:\n{out}\n{err}"
