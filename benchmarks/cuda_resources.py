"""Compiles every CUDA kernel for every target and writes the registers, shared memory, stack and spills of each.

    python benchmarks/cuda_resources.py [--targets sm_80,sm_90] [--jobs N] [--output benchmarks/results/kernels.json]

Exit status 1 when a kernel spills registers to memory, 77 without nvcc. No GPU is needed: the figures are ptxas's, of the objects
that tools/build_cuda.py links, so that neither compiles what the other has compiled.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools"))
import build_cuda  # noqa: E402

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(.*)")
SHARED = re.compile(r"(\d+) bytes smem")


def read_report(report: str) -> list[dict]:
    """One row per kernel, read from the output of ptxas -v."""
    rows: list[dict] = []
    for line in report.splitlines():
        if found := ENTRY.search(line):
            rows.append({"kernel": found[1], "target": found[2]})
        elif (found := SPILLS.search(line)) and rows:
            rows[-1].update(stack_bytes=int(found[1]), spill_store_bytes=int(found[2]), spill_load_bytes=int(found[3]))
        elif (found := USED.search(line)) and rows:
            shared = SHARED.search(found[2])
            rows[-1].update(registers=int(found[1]), shared_bytes=int(shared[1]) if shared else 0)
    incomplete = [row for row in rows if not {"registers", "spill_store_bytes"} <= set(row)]
    if incomplete:
        raise ValueError(f"what ptxas printed is not understood: {incomplete[:3]}")
    return rows


def measure(nvcc: str, source: Path, targets: list[str]) -> list[dict]:
    compiled = build_cuda.compile_object(nvcc, source, targets)
    return [{"file": source.name, **row} for row in read_report(build_cuda.report_of(compiled).read_text())]


def demangle(rows: list[dict]) -> None:
    """Names as C++ writes them, without their arguments, if c++filt is installed."""
    names = sorted({row["kernel"] for row in rows})
    try:
        done = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return
    clear = dict(zip(names, done.stdout.splitlines(), strict=True))
    for row in rows:
        row["kernel"] = clear[row["kernel"]].replace("(anonymous namespace)::", "").removeprefix("void ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default=",".join(build_cuda.TARGETS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    nvcc = build_cuda.find_nvcc()
    if nvcc is None:
        print("not run: nvcc is not found", flush=True)
        return 77
    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[-2]
    targets = options.targets.split(",")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        measured = pool.map(lambda source: measure(nvcc, source, targets), build_cuda.sources())
        rows = sorted((row for found in measured for row in found), key=lambda row: targets.index(row["target"]))
    demangle(rows)
    spilled = [row for row in rows if row["spill_store_bytes"] or row["spill_load_bytes"]]
    if options.output:
        result = {"compiler": version, "flags": build_cuda.FLAGS, "targets": targets, "kernels": rows}
        lines = json.dumps(result, indent=1)
        lines = re.sub(r"\n {3}(?=\S)|\n {2}(?=})", " ", lines)  # one kernel per line
        options.output.write_text(lines + "\n")
    print(f"{len(rows)} kernels for {', '.join(targets)}: at most {max(row['registers'] for row in rows)} registers, {len(spilled)} spill")
    for row in spilled:
        print(f"  {row['target']} {row['kernel']}: {row['spill_store_bytes']} bytes stored, {row['spill_load_bytes']} loaded")
    return 1 if spilled else 0


if __name__ == "__main__":
    sys.exit(main())
