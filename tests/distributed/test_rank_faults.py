"""A rank that raises, dies or hangs ends all in time, and a run that was ended in any way resumes to the same bits."""

import atexit
import contextlib
import itertools
import os
import random
import re
import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest
import transformer_c as tc
from jobs import Job, needs_mpi, write_script
from transformer_c.distributed import faults
from transformer_c.distributed.group import Group

pytestmark = needs_mpi
LIMIT = 60  # seconds until all ranks have ended, start and end included, on a machine that is busy with more

FAULTS = {
    "raises": ("raise RuntimeError('no more data')", ["rank 1 of 2 failed", "in on_train_batch_end", "RuntimeError: no more data"]),
    "is killed": ("os.kill(os.getpid(), 9)", ["Killed (signal 9)"]),
    "is gone": ("os._exit(5)", []),
    "ends early": ("sys.exit(0)", ["rank 0 of 2 waits for others in", "but rank 1 has ended, which ends all", "in fit"]),
    "sleeps": ("time.sleep(1000)", ["rank 1 of 2 does not wait for others", "time.sleep(1000)", "rank 0 of 2 waits for others in", "in _run_epoch", "rank 0 of 2 waited for others in"]),
    "computes for ever": ("while True: pass", ["rank 1 of 2 does not wait for others", "while True", "rank 0 of 2 waited for others in"]),
}  # fmt: skip

SCRIPT = """
    import os, sys, time
    import training
    from transformer_c import distributed
    distributed.init()
    distributed.faults._GRACE = 1  # half as long, for the tests' sake

    class Fault(tc.callbacks.Callback):
        def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
            if trainer.global_step == 8 and distributed.rank() == 1:
                training.tell("at the fault")
                FAULT
            elif trainer.global_step == 8:
                training.wait_for("at the fault")
                training.set_limit(LIMIT)

    training.trained(2, 12, 4, folder="run", callbacks=[Fault()])
"""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_one_rank_ends_all(name, tmp_path):
    fault, messages = FAULTS[name]
    waits_in_vain = "rank 0 of 2 waited for others in" in messages  # else there is time to say why, on a busy machine too
    job = Job(2, SCRIPT.replace("FAULT", fault).replace("LIMIT", "1" if waits_in_vain else "60"), tmp_path)
    status, out, err = job.result(LIMIT)
    assert status != 0
    for message in messages:
        assert message in out + err, f"{message!r} is not in:\n{out}\n{err}"
    assert tc.load(tmp_path / "run/last.safetensors")["trainer"]["epoch"] == 1


def test_a_call_that_other_ranks_do_not_make_ends_all(tmp_path):
    """As in ``if trainer.is_global_zero: trainer.test(...)``, for which the others have no time limit: their programs are over."""
    script = """
        import sys, training
        tc.distributed.faults._GRACE = 0.5
        trainer, model = training.trained(3, 12, 1)
        if trainer.global_rank == 2:
            sys.exit("a bad row")
        if trainer.is_global_zero:
            trainer.test(model, tc.data.DataLoader(training.data(17, 1), batch_size=4), verbose=False)
    """
    status, _, err = Job(3, script, tmp_path).result(LIMIT)
    assert status != 0 and "a bad row" in err, err
    ended = r"rank 0 of 3 waits for others in allgather, but (ranks 1, 2 have|rank [12] has) ended, which ends all"
    assert re.search(ended, err) and "trainer.test(model" in err, err


def test_a_rank_that_ends_before_it_has_joined(tmp_path):
    """The others wait within the start of MPI, where Python does nothing."""
    script = """
        import os, sys
        if os.environ["PMI_RANK"] == "1":
            sys.exit("no such file")
        tc.distributed.init(timeout=1)
    """
    status, _, err = Job(2, script, tmp_path).result(LIMIT)
    assert status != 0 and "no such file" in err and "in _wait_for_all_ranks_to_start" in err, err


def test_a_hook_of_the_program_hears_of_errors(tmp_path):
    script = """
        import sys
        sys.excepthook = lambda kind, error, where: print("noted:", error, flush=True)
        tc.distributed.init()
        if tc.distributed.rank() == 1:
            raise RuntimeError("a bad row")
        tc.distributed.barrier()
    """
    status, out, err = Job(2, script, tmp_path).result(LIMIT)
    assert status != 0 and out == "noted: a bad row\n" and "rank 1 of 2 failed, which ends all" in err, (out, err)


def test_a_child_of_a_rank_ends_alone(tmp_path):
    """By an error, or by sys.exit, after which it would end MPI as the rank does; what it exchanged would be taken for the rank's."""
    script = """
        import os, sys
        tc.distributed.init()
        for status in (1, 3):
            child = os.fork()
            if not child and status == 1:
                raise RuntimeError("of the " + "child")
            elif not child:
                try:
                    tc.distributed.all_reduce(np.ones(2))
                except RuntimeError as error:
                    sys.exit(status if "none of the ranks" in str(error) else 4)
                sys.exit(5)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status
            tc.distributed.barrier()
    """
    status, _, err = Job(2, script, tmp_path).result(LIMIT)
    # An error is printed piece by piece, and ranks print at the same time; the message is one piece, and the source line does not contain it.
    assert status == 0 and err.count("of the child") == 2 and "ends all" not in err and "MPI" not in err, err


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_end_well_say_nothing(ranks, tmp_path):
    """Over a network, too, whose library warns of messages that nobody took; the last to come ends last."""
    script = """
        import time
        from transformer_c import distributed
        distributed.init()
        distributed.all_reduce(np.ones(3))
        time.sleep(0.3 * (distributed.rank() == distributed.world_size() - 2))
    """
    assert Job(ranks, script, tmp_path, MPIR_CVAR_NOLOCAL="1").result(LIMIT) == (0, "", "")


class Messages:
    """The communicator of a watch on rank 2 of 3, whose messages are here."""

    rank, size = 2, 3

    def __init__(self):
        self.sent, self.to_be_received, self.answers = [], [], True

    def Dup(self):
        return self

    def isend(self, message, rank):
        self.sent.append((message, rank))
        if self.answers and message[0] == "report":
            self.to_be_received.append(("reported", rank))

    def Iprobe(self):
        return bool(self.to_be_received)

    def recv(self):
        return self.to_be_received.pop(0)

    def Abort(self, status):
        raise SystemExit(status)


@pytest.fixture
def watch():
    watch = faults.Watch(Group(Messages()), limit=60)
    yield watch
    atexit.unregister(watch._leave)


@pytest.mark.parametrize("ended, who", [({0: 5}, "rank 0 has"), ({0: 5, 1: 4}, "ranks 0, 1 have")])
@pytest.mark.parametrize("calls, heard, ends", [(3, 0.0, False), (5, 0.0, True), (6, 0.0, True), (6, 9.0, False)])
def test_who_waits_in_a_call_that_an_ended_rank_has_made_goes_on_waiting(calls, heard, ends, ended, who, watch, monkeypatch, capsys):
    group, messages = watch._group, watch._messages
    monkeypatch.setattr(faults, "time", SimpleNamespace(monotonic=lambda: 10.0, sleep=lambda seconds: None))
    watch._ended, watch._heard, group.calls = ended, heard, calls  # rank 0 ended after five calls, and may still print why
    watch._judge()
    group.waiting = "bcast", 0.0
    with pytest.raises(SystemExit) if ends else contextlib.nullcontext():
        watch._judge()
    assert (f"rank 2 of 3 waits for others in bcast, but {who} ended" in capsys.readouterr().err) is ends
    assert messages.sent == ([(("report", 2), 1)] if ends and len(ended) == 1 else [])


def test_a_rank_ends_all_once_the_others_have_said_where_they_are(watch, monkeypatch, capsys):
    """Or do not answer within a moment. One that is asked meanwhile answers, and says no more than once where it is."""
    messages, clock = watch._messages, itertools.count()
    monkeypatch.setattr(faults, "time", SimpleNamespace(monotonic=lambda: 0.1 * next(clock), sleep=lambda seconds: None))
    messages.to_be_received.append(("report", 0))
    with pytest.raises(SystemExit):
        watch._end("ends all")
    assert messages.sent == [(("report", 2), 0), (("report", 2), 1), (("reported", 2), 0)] and next(clock) < 5
    messages.answers = False
    with pytest.raises(SystemExit):
        watch._end("ends all")
    assert watch._silent == {0, 1} and next(clock) > 10 * faults._GRACE
    assert capsys.readouterr().err.count("rank 2 of 3 does not wait for others") == 1


TRAINING = """
    import sys, time
    import training
    from transformer_c import distributed
    size = distributed.world_size()
    resume = "last" if "resume" in sys.argv else None

    class Waits(tc.callbacks.Callback):
        "Says that an epoch is under way, and stays there."
        def on_train_batch_start(self, trainer, model, batch, batch_idx):
            if trainer.global_step == 3 and "waits" in sys.argv:
                training.tell("under way")
                training.wait_for_interrupt()

    if distributed.rank() == 0:
        print("begun", flush=True)
    try:
        trainer, model = training.trained(size, 12, 8, folder="run", resume=resume, checkpoint_every_n_steps=2, dropout=0.1, callbacks=[Waits()])
    except KeyboardInterrupt as interrupt:
        print(f"{interrupt}\\n", end="", flush=True)  # by one write: ranks share the output
        sys.exit(130)
    if distributed.rank() == 0:
        np.save("weights.npy", training.weights(model))
"""


def begin(folder, *arguments):
    write_script(TRAINING, folder)
    job = Job(2, ["script.py", *arguments], folder)
    while job.process.stdout.readline() not in ("begun\n", ""):
        pass
    return job


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The weights after a run that nobody stopped, and how long it takes."""
    folder = tmp_path_factory.mktemp("whole")
    job, started = begin(folder), time.monotonic()
    assert job.result()[0] == 0
    return np.load(folder / "weights.npy"), time.monotonic() - started


def resumed(folder):
    assert begin(folder, "resume").result()[0] == 0
    return np.load(folder / "weights.npy")


@pytest.mark.parametrize("moments", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_a_rank_that_is_killed_loses_nothing(moments, whole, tmp_path, rng):
    weights, seconds = whole
    for moment in range(moments):
        folder = tmp_path / str(moment)
        folder.mkdir()
        job = begin(folder)
        time.sleep(seconds * (moment + rng.random()) / moments)
        if ranks := job.ranks():
            os.kill(random.choice(ranks), signal.SIGKILL)
        job.result(LIMIT)
        assert np.array_equal(resumed(folder), weights), f"killed at moment {moment}"


def interrupt_under_way(job, folder):
    """A Ctrl-C once each of two ranks has said that it is under way."""
    while len(list(folder.glob("under way*"))) < 2 and job.process.poll() is None:
        time.sleep(0.01)
    job.process.send_signal(signal.SIGINT)


def test_one_interrupt_stops_all_ranks_at_the_same_step(whole, tmp_path):
    weights, _ = whole
    job = begin(tmp_path, "waits")  # within an epoch
    interrupt_under_way(job, tmp_path)
    status, out, err = job.result(LIMIT)
    said = re.findall(r"interrupted in epoch \d+ after batch \d+", out)
    assert status == 130 and len(said) == 2 and said[0] == said[1], (status, out, err)
    assert np.array_equal(resumed(tmp_path), weights)


def test_an_interrupt_that_nobody_catches_waits_for_the_file(tmp_path):
    """Its error ends all ranks, those that still write as well."""
    script = """
        import time
        import training
        from transformer_c import distributed

        class Slow(tc.callbacks.Callback):
            def on_train_batch_start(self, trainer, model, batch, batch_idx):
                if trainer.global_step == 2:
                    training.tell("under way")
                    training.wait_for_interrupt()

            def on_save_checkpoint(self, trainer, model, checkpoint):
                time.sleep(0 if distributed.rank() else 1)

        training.trained(2, 12, 8, folder="run", callbacks=[Slow()])
    """
    job = Job(2, script, tmp_path)
    interrupt_under_way(job, tmp_path)
    status, _, err = job.result(LIMIT)
    assert status != 0 and "has everything" in err, err
    assert tc.load(tmp_path / "run/last.safetensors")["trainer"]["global_step"] >= 3


@pytest.mark.parametrize("value", ["-1", "never", "0"])
def test_the_time_limit_is_a_number_of_seconds(value, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_C_MPI_TIMEOUT", value)
    with pytest.raises(ValueError, match=f"TRANSFORMER_C_MPI_TIMEOUT is '{value}'; expected a number of seconds above 0"):
        tc.distributed.init()
    tc.distributed.init(timeout=60)
    with pytest.raises(ValueError, match="timeout is 0; expected"):
        tc.distributed.init(timeout=0)
