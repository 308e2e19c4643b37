"""tools/gpu_time.py against published speeds: S. Boehm's ladder of float32 products on an A6000, counted by the emulation from ladder.cu.

python tests/gpu_emulation/test_predicted_time.py prints the table of docs/gpu/predicted-time.md.
"""

import ctypes
import dataclasses
import json
import pathlib
import re
import subprocess
import sys

import emulation
import numpy as np
import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "tools"))
import gpu_time  # noqa: E402
from gpu_time import A6000  # noqa: E402

pytestmark = [
    pytest.mark.minutes,
    pytest.mark.skipif(sys.platform != "linux", reason="fibers and --wrap are Linux's here"),
]

SIZE = 4096


@dataclasses.dataclass(frozen=True)
class Step:
    """number: in ladder.cu; registers: ptxas's of nvcc 13.0 for sm_86; gflops: github.com/siboehm/SGEMM_CUDA, measured for size 4096."""

    number: int
    name: str
    tile: int
    threads: int
    registers: int
    shared_bytes: int
    gflops: float


LADDER = [
    Step(1, "naive", 32, 1024, 27, 0, 309),
    Step(2, "coalesced", 32, 1024, 27, 0, 1987),
    Step(3, "shared memory", 32, 1024, 45, 8192, 2980),
    Step(4, "8 elements a thread", 64, 512, 44, 4096, 8475),
    Step(5, "8 x 8 elements a thread", 128, 256, 127, 8192, 15972),
    Step(6, "vectors", 128, 256, 117, 8192, 18237),
    Step(7, "tiles of warps", 128, 128, 211, 16384, 21779),
]


def product(library, step, M, N, K):
    """Runs a step on random arrays; gives its result and NumPy's."""
    rng = np.random.default_rng(step.number)
    a, b, c = rng.standard_normal((M, K), np.float32), rng.standard_normal((K, N), np.float32), np.zeros((M, N), np.float32)
    run = library.run_step
    run.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 3]
    assert run(step.number, a.ctypes.data, b.ctypes.data, c.ctypes.data, M, N, K) == 0
    return c, a.astype(np.float64) @ b


def counted(library, step, K):
    """What one block counts."""
    product(library, step, step.tile, step.tile, K)
    (_, *columns), row = (line.split("\t") for line in library.emulator_counts().decode().splitlines())
    return dict(zip(columns, map(int, row[1:]), strict=True))


def count_here():
    """Of each step, the counts of one block of a product of K = SIZE: they rise linearly with K."""
    library = ctypes.CDLL(str(emulation.library([HERE / "ladder.cu"], "count")))
    library.emulator_counts.restype = ctypes.c_char_p
    found, (short, long) = [], (64, 128)
    for step in LADDER:
        first, second = counted(library, step, short), counted(library, step, long)
        found.append({name: first[name] + (second[name] - first[name]) * (SIZE - short) / (long - short) for name in first})
    return found


def count():
    """The same by a process of its own: its counts would be of everything that this one launches."""
    done = subprocess.run([sys.executable, __file__, "--counts"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def predict(step, counts, gpu=A6000):
    block = gpu_time.Block(step.threads, step.registers, step.shared_bytes, step.tile**2 * SIZE, counts)
    return gpu_time.predict(gpu, block, (SIZE // step.tile) ** 2, 3 * 4 * SIZE**2)


def gflops(seconds):
    return 2 * SIZE**3 / seconds / 1e9


@pytest.fixture(scope="module")
def counts():
    return count()


@pytest.mark.parametrize("step", LADDER, ids=lambda step: step.name)
def test_the_ladder_computes_products(step):
    library = ctypes.CDLL(str(emulation.library([HERE / "ladder.cu"], "plain")))
    found, expected = product(library, step, step.tile, 2 * step.tile, 64)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_predictions_have_the_order_of_the_measured(counts):
    """And none is further off than docs/gpu/predicted-time.md says."""
    predicted = [gflops(predict(*pair).seconds) for pair in zip(LADDER, counts, strict=True)]
    assert predicted == sorted(predicted)
    errors = [found / step.gflops - 1 for found, step in zip(predicted, LADDER, strict=True)]
    documented = (HERE.parents[1] / "docs" / "gpu" / "predicted-time.md").read_text()
    for step, error in zip(LADDER, errors, strict=True):
        row = re.search(rf"^\| {re.escape(step.name)} \| {step.gflops:.0f} \| \d+ \| ([-+]\d+) %", documented, flags=re.M)
        assert row and abs(100 * error - int(row[1])) <= 1, f"{step.name}: {error:+.0%}"


# ---- what is known of a block without counting -----------------------------------------------------------------------------------------


def block(**counts):
    names = ["requests", "lines", "shared_requests", "single", "wavefronts", "block_bytes", "barriers", "special"]
    names += ["tensor", "copy_waits", "idle_waits"]
    return gpu_time.Block(256, 64, 0, 0, {**dict.fromkeys(names, 0), **counts})


def test_the_longest_part_bounds_a_block():
    cycles = block(requests=10, lines=320, shared_requests=4, wavefronts=4, single=4, barriers=2, block_bytes=1024).cycles(A6000)
    assert cycles == {"compute": 0, "tensor": 0, "issue": (14 + 2 * 8) / 4, "memory": 320 + 4 * 2, "L2": pytest.approx(1024 * 108 / 5120)}
    assert block(requests=10, lines=10, single=10).cycles(A6000)["memory"] == 20  # sixteen addresses a cycle


def test_resident_blocks():
    assert block().resident(A6000) == 4  # registers
    assert dataclasses.replace(block(), registers=41).resident(A6000) == 5  # a warp's are 1312, of which it takes six units of 256
    assert dataclasses.replace(block(), registers=32).resident(A6000) == 6  # threads
    assert dataclasses.replace(block(), shared_bytes=48 * 1024).resident(A6000) == 2
    with pytest.raises(ValueError, match="no block of 256 threads"):
        gpu_time.predict(A6000, dataclasses.replace(block(), shared_bytes=200 * 1024), 1, 0)


def test_waves_tail_and_launch():
    one = block(requests=1000, lines=10_000)
    per_wave = 4 * A6000.multiprocessors

    def cycles(blocks, of=one, operand_bytes=0):
        return (gpu_time.predict(A6000, of, blocks, operand_bytes).seconds - A6000.launch) * A6000.clock

    assert cycles(per_wave) == pytest.approx(4 * 10_000)
    assert cycles(2 * per_wave) == pytest.approx(8 * 10_000)
    assert cycles(per_wave + 1) == pytest.approx(5 * 10_000)  # the last block begins when the first has ended, and waits beside others
    waits = block(requests=1, lines=1, barriers=200)
    assert cycles(1, waits) == pytest.approx(400.25 + 100 * A6000.latency)  # a request and 200 barriers of 8 warps are issued in 400.25
    assert gpu_time.predict(A6000, waits, 1, 0).bound == "latency"
    of_dram = gpu_time.predict(A6000, one, 1, 768e9)
    assert of_dram.seconds == pytest.approx(1, rel=1e-4) and str(of_dram) == "predicted 1e+03 ms, bound by DRAM"


def test_more_of_anything_takes_no_longer(rng):
    """More blocks, fewer registers of a thread and more of a GPU's parts: the sign of a change is right."""
    for _ in range(2000):
        lines, barriers, blocks = rng.integers(1, [3000, 40, 2000]).tolist()
        one = block(requests=lines // 4, lines=lines, barriers=barriers, block_bytes=64 * lines)

        def seconds(blocks=blocks, registers=64, one=one, **more):
            gpu = dataclasses.replace(A6000, **more)
            return gpu_time.predict(gpu, dataclasses.replace(one, registers=registers), blocks, 4096 * blocks).seconds

        of_registers = [seconds(registers=count) for count in (128, 96, 64, 48, 32)]
        assert of_registers == sorted(of_registers, reverse=True), (lines, barriers, blocks)
        assert (
            seconds(blocks) <= seconds(blocks + 1) and seconds() >= seconds(multiprocessors=100) and seconds() >= seconds(dram_bytes=1e12)
        )


def main():
    if "--counts" in sys.argv:
        print(json.dumps(count_here()))
        return
    print("| step | measured GFLOP/s | predicted GFLOP/s | error | bound by | predicted at 1.80 GHz |\n|---|---:|---:|---:|---|---:|")
    for step, counts_of_block in zip(LADDER, count_here(), strict=True):
        time = predict(step, counts_of_block)
        speed, boost = gflops(time.seconds), gflops(predict(step, counts_of_block, dataclasses.replace(A6000, clock=1.8e9)).seconds)
        print(f"| {step.name} | {step.gflops} | {speed:.0f} | {100 * (speed / step.gflops - 1):+.0f} % | {time.bound} | {boost:.0f} |")


if __name__ == "__main__":
    main()
