"""The machine code of the CUDA kernels: instructions, loops and occupancy, by nvcc and nvdisasm; no GPU is needed.

    python tools/sass.py gemm.cu [--target sm_80] [--kernel 'gemm_kernel<float, 64']

prints the loops of each kernel with their instructions. nvdisasm comes with the CUDA toolkit and with the package nvidia-cuda-nvdisasm;
NVDISASM names another one.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tools"), str(ROOT / "benchmarks")]
import build_cuda  # noqa: E402
import cuda_resources  # noqa: E402

# CUDA C++ Programming Guide 13.0, table "Technical Specifications per Compute Capability".
MULTIPROCESSOR = {
    "sm_80": {"warps": 64, "blocks": 32, "registers": 65536, "shared_bytes": 164 * 1024},
    "sm_90": {"warps": 64, "blocks": 32, "registers": 65536, "shared_bytes": 228 * 1024},
}
SHARED_OF_A_BLOCK = 1024  # that the system takes, since sm_80
REGISTER_UNIT = 256  # a warp's registers come in units of this many
FLOAT64 = re.compile(r"D(ADD|MUL|FMA|SETP|MNMX)|F2F.*F64|I2F.*F64|MUFU.*64")


@dataclasses.dataclass
class Instruction:
    address: int
    code: str  # "FFMA", "LDG.E.128"
    operands: str


@dataclasses.dataclass
class Kernel:
    """registers, shared_bytes (static), stack_bytes and spill_store_bytes, spill_load_bytes are ptxas's; shared memory is what is static."""

    name: str
    target: str
    resources: dict
    code: list[Instruction]

    def loops(self) -> list[list[Instruction]]:
        """The instructions from the target of each backward branch to the branch, inner loops in outer ones as well."""
        found = []
        for i, instruction in enumerate(self.code):
            if instruction.code.startswith("BRA") and (target := re.search(r"0x([0-9a-f]+)", instruction.operands)):
                start = int(target[1], 16)
                if start < instruction.address:  # a branch to itself ends the code
                    found.append([one for one in self.code[: i + 1] if one.address >= start])
        return found

    def main_loops(self) -> list[list[Instruction]]:
        """The loops that load from memory or multiply: not those that only compute an offset."""
        return [loop for loop in self.loops() if any(re.match(r"LDG|LDS|FFMA|HMMA|DFMA", one.code) for one in loop)]

    def blocks(self, threads: int) -> int:
        """How many blocks a multiprocessor runs at a time."""
        most = MULTIPROCESSOR[self.target]
        warps = -(-threads // 32)
        unit = -(-self.resources["registers"] * 32 // REGISTER_UNIT) * REGISTER_UNIT
        shared = self.resources["shared_bytes"] + SHARED_OF_A_BLOCK
        return min(most["blocks"], most["warps"] // warps, most["registers"] // unit // warps, most["shared_bytes"] // shared)


def find_nvdisasm() -> str | None:
    named = os.environ.get("NVDISASM")
    packaged = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin" / "nvdisasm"
    return named or shutil.which("nvdisasm") or shutil.which(packaged)


def missing_tools() -> str:
    """What is not there of what this file needs, and where to get it; else nothing."""
    if build_cuda.find_nvcc() is None:
        return "nvcc is not found (the CUDA toolkit)"
    return "" if find_nvdisasm() else "nvdisasm is not found (pip install nvidia-cuda-nvdisasm)"


def compile_cubin(source: Path, target: str) -> Path:
    """Machine code of one file for one target, with ptxas's report beside it: what an object for this target was made of, where there is one."""
    nvcc = build_cuda.find_nvcc()
    assert nvcc
    return build_cuda.compile_object(nvcc, source, [target], "-cubin")


def read_code(listing: str) -> dict[str, list[Instruction]]:
    """The instructions by the kernel's mangled name, of what nvdisasm prints; labels become addresses, other functions stay names."""
    kernels: dict[str, list[Instruction]] = {}
    labels: dict[str, int] = {}
    waiting: list[str] = []  # labels before the next instruction
    code: list[Instruction] = []
    for line in listing.splitlines():
        if section := re.match(r"\t\.section\t\.text\.(\w+),", line):
            code = kernels.setdefault(section[1], [])
        elif label := re.match(r"(\.L_x_\d+):", line):
            waiting.append(label[1])
        elif found := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;", line):
            code.append(Instruction(int(found[1], 16), found[2], found[3]))
            labels.update(dict.fromkeys(waiting, code[-1].address))
            waiting.clear()
    for instructions in kernels.values():
        for one in instructions:
            if (label := re.search(r"`\((\.L_x_\d+)\)", one.operands)) and label[1] in labels:
                one.operands = one.operands.replace(label[0], hex(labels[label[1]]))
    return kernels


def resources(cubin: Path, target: str) -> list[dict]:
    """Registers, memory and spills of each kernel."""
    return [row for row in cuda_resources.read_report(build_cuda.report_of(cubin).read_text()) if row["target"] == target]


def kernels(source: Path, target: str) -> list[Kernel]:
    cubin = compile_cubin(source, target)
    nvdisasm = find_nvdisasm()
    assert nvdisasm
    listing = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True).stdout
    code = read_code(listing)
    rows = resources(cubin, target)
    found = [Kernel("", target, row, code[row["kernel"]]) for row in rows]
    cuda_resources.demangle(rows)
    for kernel in found:
        kernel.name = kernel.resources["kernel"].replace("tc::", "").replace("> >", ">>")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--target", default="sm_80", choices=list(MULTIPROCESSOR))
    parser.add_argument("--kernel", default="", help="only kernels whose names begin with this")
    options = parser.parse_args()
    if missing := missing_tools():
        print(f"not run: {missing}")
        return 77
    for kernel in kernels(build_cuda.KERNELS / "cuda" / options.file, options.target):
        if not kernel.name.startswith(options.kernel):
            continue
        print(f"{kernel.name}: {kernel.resources['registers']} registers, {len(kernel.code)} instructions")
        for loop in kernel.loops():
            counts = collections.Counter(one.code.split(".")[0] for one in loop)
            print(
                f"  {loop[0].address:x}-{loop[-1].address:x}: {len(loop)} instructions:", *(f"{k} {n}" for k, n in counts.most_common(14))
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
