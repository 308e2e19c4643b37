"""The time of a kernel on a GPU, predicted from what the emulation counts (tests/gpu_emulation/counts.py). Not measured: predicted.

A block occupies each of these for some cycles, and the longest of them bounds its throughput:
  compute  multiply-adds by the float32 lanes, special functions by theirs
  tensor   operations of tensor cores: mma.sync of 16 x 8 x 16 halves or 16 x 8 x 8 tf32
  issue    instructions of warps by the schedulers: multiply-adds, loads, stores, barriers, operations of tensor cores
  memory   passes over lines of global memory and banks of shared memory, one a cycle; a load or store takes no less than its addresses do, two
           cycles at 16 a cycle
  L2       distinct bytes between the block and L2
R blocks are resident on a multiprocessor. Between two barriers a block waits for its loads: it alone takes throughput + stages x latency, and R
blocks take the longer of that and R x throughput. A wait for asynchronous copies that leaves others on their way takes no time of its own: what
it waits for has had that of the stages before. So the busiest multiprocessor takes all its blocks' throughput, and at least as often as R of
them follow each other what one takes alone. DRAM moves every byte of the operands once, at least; the kernel takes the longer of both, and a launch.

test_predicted_time.py compares this with published speeds; docs/gpu/predicted-time.md says how far it is off.
"""

from __future__ import annotations

import dataclasses
import math

WARP = 32


@dataclasses.dataclass(frozen=True)
class Gpu:
    """What a model needs to know of a GPU. Cycles are of its clock."""

    name: str
    multiprocessors: int
    clock: float  # Hz
    multiply_adds: int  # float32, per cycle and multiprocessor, as the rest
    special: int
    mma: float  # cycles that one operation of tensor cores takes
    schedulers: int
    addresses: int  # of lanes, for loads and stores: 16 or 32
    l2_bytes: float
    dram_bytes: float  # per second
    latency: float  # cycles of a load from L2
    launch: float  # seconds
    threads: int
    blocks: int
    registers: int
    shared_bytes: int


# Where each figure is from:
#   multiprocessors, multiply_adds, special, schedulers, addresses, 128 bytes a pass and cycle, dram_bytes: NVIDIA, "Ampere GA102 GPU
#     Architecture", V2.0, figure 3 and the text on the GA10x SM and its L1, appendix C (RTX A6000: 84 SMs, 768 GB/s).
#   clock: the A6000's base clock. 84 SMs x 256 x 1.41 GHz = 30.3 TFLOP/s are what Boehm names for the GPU that was measured; at the boost clock of
#     1.80 GHz it would have 38.7.
#   l2_bytes: NVIDIA, "A100 Tensor Core GPU Architecture": 5120 bytes a cycle for 108 SMs; there is no figure for GA102.
#   mma: 512 multiply-adds of halves a cycle and SM, 256 of tf32 (the same, table 2: 154.8 and 77.4 TFLOP/s at the boost clock); an operation has
#     2048 and 1024.
#   latency: Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking", arXiv 2402.13499: about 270
#     cycles from L2. Of another GPU too.
#   launch: of the order of what is measured for empty kernels, some microseconds; it does not matter for Boehm's ladder.
#   threads, blocks, registers, shared_bytes: CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability", 8.6.
A6000 = Gpu(
    name="RTX A6000",
    multiprocessors=84,
    clock=1.41e9,
    multiply_adds=128,
    special=16,
    mma=4,
    schedulers=4,
    addresses=16,
    l2_bytes=5120 / 108,
    dram_bytes=768e9,
    latency=270,
    launch=4e-6,
    threads=1536,
    blocks=16,
    registers=65536,
    shared_bytes=100 * 1024,
)

# Of the same: "A100 Tensor Core GPU Architecture" (108 SMs, 64 float32 lanes, 1024 multiply-adds of halves and 512 of tf32 by tensor cores, 5120 bytes of L2 and 1555 GB/s at 1.41 GHz; each SM has four
# partitions with a scheduler, eight load and store units and four special ones), the latency and the launch as above, of which the small
# kernels are made, and the last four of compute capability 8.0.
A100 = Gpu(
    name="A100 40 GB",
    multiprocessors=108,
    clock=1.41e9,
    multiply_adds=64,
    special=16,
    mma=2,
    schedulers=4,
    addresses=32,
    l2_bytes=5120 / 108,
    dram_bytes=1555e9,
    latency=270,
    launch=4e-6,
    threads=2048,
    blocks=32,
    registers=65536,
    shared_bytes=164 * 1024,
)

# GPUs that others measured layer norms and sums of vectors on, for tools/predict_kernels.py. Each differs from one of the above in what its data
# sheet says; what is not published is that GPU's (latency, launch; for GA102 and GH100 the bytes of L2 per multiprocessor).
#   RTX 3090: 82 SMs, 936 GB/s, base clock 1.395 GHz (NVIDIA, "Ampere GA102 GPU Architecture", V2.0, table 2).
#   A100 80 GB: 2039 GB/s (data sheet, SXM).
#   H100: 132 SMs of 128 lanes, 3350 GB/s (data sheet, SXM); boost clock of the "H100 Tensor Core GPU Architecture", which does not matter here.
#     What its tensor cores do of mma.sync is not published; the A100's rate is kept.
#   V100: 80 SMs, 1.38 GHz, 877 MHz x 2 x 4096 bits of memory (its own device properties, with the measurements); 64 lanes, 32 load and store units
#     ("Tesla V100 GPU Architecture"), 2048 bytes of L2 a cycle ("A100 Tensor Core GPU Architecture"); compute capability 7.0.
RTX_3090 = dataclasses.replace(A6000, name="RTX 3090", multiprocessors=82, clock=1.395e9, dram_bytes=936e9)
A100_80 = dataclasses.replace(A100, name="A100 80 GB", dram_bytes=2039e9)
H100 = dataclasses.replace(
    A100, name="H100", multiprocessors=132, clock=1.755e9, multiply_adds=128, dram_bytes=3350e9, shared_bytes=228 * 1024
)
V100 = dataclasses.replace(
    A100, name="V100 32 GB", multiprocessors=80, clock=1.38e9, l2_bytes=2048 / 80, dram_bytes=898e9, mma=math.inf, shared_bytes=96 * 1024
)


@dataclasses.dataclass(frozen=True)
class Block:
    """One block's share of the counts, which need not be whole, and what it takes of a multiprocessor. Registers are ptxas's, per thread."""

    threads: int
    registers: int
    shared_bytes: int
    multiply_adds: float  # by single threads
    counts: dict[str, float]  # columns of count.cpp

    def resident(self, gpu: Gpu) -> int:
        """How many of them a multiprocessor runs at a time."""
        warps = math.ceil(self.threads / WARP)
        of_registers = gpu.registers // (math.ceil(self.registers * WARP / 256) * 256 * warps)
        of_shared = gpu.shared_bytes // (self.shared_bytes + 1024)  # the system takes 1024 of each block
        return min(gpu.threads // (warps * WARP), gpu.blocks, of_registers, of_shared)

    def cycles(self, gpu: Gpu) -> dict[str, float]:
        """For which it occupies each part of a multiprocessor."""
        count, warps = self.counts, math.ceil(self.threads / WARP)
        multiply_adds = self.multiply_adds / WARP
        requests = count["requests"] + count["shared_requests"]
        return {
            "compute": self.multiply_adds / gpu.multiply_adds + count["special"] / gpu.special,
            "tensor": count["tensor"] * gpu.mma if count["tensor"] else 0.0,
            "issue": (multiply_adds + count["tensor"] + requests + count["special"] / WARP + count["barriers"] * warps) / gpu.schedulers,
            "memory": count["lines"] + count["wavefronts"] + (WARP / gpu.addresses - 1) * count["single"],
            "L2": count["block_bytes"] / gpu.l2_bytes,
        }

    def stages(self) -> float:
        """Waits for loads, one after the other: a stage ends with two barriers, after its stores and after its loads from shared memory. Of
        asynchronous copies there is a barrier for each wait, and those count that leave nothing on its way."""
        waits, idle = (self.counts[name] / self.threads for name in ("copy_waits", "idle_waits"))
        return max(1.0, (self.counts["barriers"] - waits) / 2 + idle)


@dataclasses.dataclass(frozen=True)
class Predicted:
    seconds: float
    bound: str

    def __str__(self) -> str:
        return f"predicted {1e3 * self.seconds:.3g} ms, bound by {self.bound}"


def predict(gpu: Gpu, block: Block, blocks: int, operand_bytes: float) -> Predicted:
    """The time of a launch of so many equal blocks, which read and write so many distinct bytes."""
    cycles, resident = block.cycles(gpu), block.resident(gpu)
    if resident == 0:
        raise ValueError(
            f"no block of {block.threads} threads, {block.registers} registers and {block.shared_bytes} bytes fits on {gpu.name}"
        )
    throughput, alone = max(cycles.values()), max(cycles.values()) + block.stages() * gpu.latency
    waves = math.ceil(blocks / (resident * gpu.multiprocessors))
    busiest = max(math.ceil(blocks / gpu.multiprocessors) * throughput, waves * alone)
    times = {max(cycles, key=cycles.__getitem__): busiest / gpu.clock, "DRAM": operand_bytes / gpu.dram_bytes}
    bound = max(times, key=times.__getitem__)
    if bound != "DRAM" and block.stages() * gpu.latency > resident * throughput:
        bound = "latency"
    return Predicted(max(times.values()) + gpu.launch, bound)
