"""The memory of a rank: what docs/scale.md says of it, measured of processes."""

import json

import pytest
from jobs import Job, needs_mpi, write_script

pytestmark = needs_mpi

# Prints, of the last rank, what a training takes in addition to the process before it, after a step and at most, as a multiple of the parameters.
SCRIPT = """
    import json, sys, warnings
    from transformer_c import distributed
    distributed.init()
    distributed.all_reduce(np.ones(2**21, "f"))  # what MPI keeps for messages

    class Net(tc.TrainingModule):
        def __init__(self):
            super().__init__()
            self.layers = tc.nn.Sequential(*(tc.nn.Linear(1024, 1024) for _ in range(10)))

        def training_step(self, batch, batch_idx):
            return self.layers(batch).square().mean()

        def configure_optimizers(self):
            return tc.optim.AdamW(self.parameters(), lr=1e-3)

    def memory(name):
        lines = open("/proc/self/status").read().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))

    class Look(tc.callbacks.Callback):
        def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
            found.append(memory("VmRSS:"))

    rows, found = np.ones((4 * distributed.world_size(), 1024), "f"), []
    warnings.simplefilter("ignore")
    before = memory("VmRSS:")
    model = Net()
    size = sum(4 * p.numel() for p in model.parameters())
    tc.Trainer(1, progress=False, strategy=sys.argv[1], callbacks=[Look()]).fit(model, tc.data.DataLoader(rows, batch_size=1))
    if distributed.rank() == distributed.world_size() - 1:
        print(json.dumps({"after": (found[-1] - before) / size, "peak": (memory("VmHWM:") - before) / size}))
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_with_a_part_of_the_state(ranks, tmp_path):
    """It saves (2 - 2 / n) times the parameters after a step of AdamW, and during one what its part of the gradients leaves of that."""
    found = {}
    for strategy in ("ddp", "zero"):
        (tmp_path / strategy).mkdir()
        write_script(SCRIPT, tmp_path / strategy)
        # NumPy's arrays go back to the system at once, as large ones do anyway.
        job = Job(ranks, ["script.py", strategy], tmp_path / strategy, MALLOC_MMAP_THRESHOLD_="65536")
        status, out, err = job.result()
        assert status == 0, err
        found[strategy] = json.loads(out)
    ddp, zero = found["ddp"], found["zero"]
    assert ddp["after"] > 5, found
    assert abs(ddp["after"] - zero["after"] - (2 - 2 / ranks)) < 0.1, found
    assert ddp["peak"] - zero["peak"] > 2 - 3 / ranks - 0.2 and zero["peak"] < zero["after"] + 1 / ranks + 0.25, found
