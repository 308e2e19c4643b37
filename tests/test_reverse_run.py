"""The tutorial's Reverse run from seed 42 is PyTorch's: draws, weights, shuffles, the first 100 losses; and what a run must guarantee."""

import subprocess
import sys

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from transformer_c.tutorials import uva

OPTIONS, EXPECTED = load("reverse_run")["run"]


@pytest.fixture(scope="module")
def run():
    """100 steps, with everything that is compared."""
    found = {"cell5": np.stack([uva.cell_5()[name] for name in "QKV"])}
    train, validation, test = uva.reverse_loaders()
    found |= {
        f"{name}.first": loader.dataset.data.numpy()[:3] for name, loader in (("train", train), ("validation", validation), ("test", test))
    }
    model = uva.ReversePredictor(
        input_dim=10, model_dim=32, num_heads=1, num_classes=10, num_layers=1, dropout=0.0, lr=5e-4, warmup=50, max_iters=3900
    )
    found |= {f"initial.{k}": v.numpy().copy() for k, v in model.state_dict().items()}
    optimizer = model.configure_optimizers()
    losses, norms, rates = [], [], []
    for index, batch in enumerate(train):
        if index == 0:
            found["batch.first"] = batch[0].numpy()
        if index == 100:
            break
        found["batch.last"] = batch[0].numpy()[:8]
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.zero_grad()
        loss = model.training_step(batch, index)
        loss.backward()
        norms.append(float(tc.optim.clip_grad_norm_(model.parameters(), 5.0)))
        model.optimizer_step(optimizer)
        losses.append(float(loss))
    found |= {"losses": np.array(losses), "norms": np.array(norms), "rates": np.array(rates)}
    found |= {f"final.{k}": v.numpy() for k, v in model.state_dict().items()}
    return found


def test_draws_and_batches_are_exact(run):
    for name in ("train.first", "validation.first", "test.first", "batch.first", "batch.last"):
        assert (run[name] == EXPECTED[name]).all(), name
    np.testing.assert_array_max_ulp(run["cell5"], EXPECTED["cell5"], maxulp=1)


def test_initial_weights(run):
    names = [k for k in EXPECTED if k.startswith("initial.")]
    assert names == [k for k in run if k.startswith("initial.")]
    for name in names:
        np.testing.assert_array_max_ulp(run[name], EXPECTED[name], maxulp=1)


def test_the_first_100_losses(run):
    assert np.abs(run["losses"] - EXPECTED["losses"]).max() <= 1e-4
    assert run["losses"][-1] < run["losses"][0]


def test_learning_rates_norms_and_parameters(run):
    assert np.abs(run["rates"] - EXPECTED["rates"]).max() <= 1e-12 and run["rates"][0] == 0
    assert (np.abs(run["norms"] - EXPECTED["norms"]) <= 3e-2 * EXPECTED["norms"]).all()
    for name in (k for k in EXPECTED if k.startswith("final.")):
        assert np.abs(run[name] - EXPECTED[name]).max() <= 2e-3, name


def small_run(steps, dropout=0.1):
    """Training steps with dropout; gives the parameters' bytes."""
    tc.manual_seed(7)
    model = tc.TransformerPredictor(10, 32, 10, 2, 2, lr=1e-3, warmup=5, max_iters=100, dropout=dropout, input_dropout=dropout)
    optimizer = model.configure_optimizers()
    x, y = tc.randn(33, 17, 10), tc.randint(10, size=(33, 17))
    for _ in range(steps):
        optimizer.zero_grad()
        loss = tc.F.cross_entropy(model(x).view(-1, 10), y.view(-1))
        loss.backward()
        tc.optim.clip_grad_norm_(model.parameters(), 1.0)
        model.optimizer_step(optimizer)
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


def test_the_same_bits_for_any_number_of_threads(isa):
    before = tc.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            tc.set_num_threads(threads)
            results.append(small_run(3))
    finally:
        tc.set_num_threads(before)
    assert results[0] == results[1] == results[2]


def test_the_same_seed_gives_the_same_bits():
    assert small_run(3) == small_run(3)


# In a process of its own: that of other tests gives memory back and takes it as they come.
GROWTH = """
import gc, resource
import transformer_c as tc

def resident_kib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024

{prepare}
for step in range(1000):
    {step}
    if step == 99:
        gc.collect()
        before = resident_kib()
gc.collect()
print(resident_kib() - before)
"""
TRAINING = (
    """
model = tc.TransformerPredictor(10, 16, 10, 1, 1, lr=1e-3, warmup=5, max_iters=2000, dropout=0.1)
optimizer = model.configure_optimizers()
x, y = tc.randn(8, 16, 10), tc.randint(10, size=(8, 16))

def train():
    optimizer.zero_grad()
    loss = tc.F.cross_entropy(model(x).view(-1, 10), y.view(-1))
    loss.backward()
    tc.optim.clip_grad_norm_(model.parameters(), 1.0)
    model.optimizer_step(optimizer)
""",
    "train()",
)
FORWARDS = "block, x = tc.EncoderBlock(16, 2, 32, dropout=0.1), tc.randn(8, 16, 16)", "block(x)"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.unsanitized
@pytest.mark.parametrize(("prepare", "step"), [TRAINING, FORWARDS], ids=["training", "forwards without a backward"])
def test_memory_does_not_grow(prepare, step):
    program = GROWTH.format(prepare=prepare, step=step)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) < 1024
