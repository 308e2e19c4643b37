"""Runs everything that needs a GPU: make gpu-test

Parts, each of which reports done, failed, or not run and why:
  build         the CUDA library for this machine's GPU
  instructions  every instruction wrapper of device.cuh on the hardware against the emulation
  tests         pytest -m gpu
  memcheck, racecheck   the same tests, fewer, under compute-sanitizer
  benchmark     forward and backward against PyTorch in the same run

Writes benchmarks/results/<date>-gpu.json when a GPU was there. Exit status: 0 when nothing failed and something was done, 1 when
a part failed, 77 when nothing was run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tools"), str(ROOT / "tests" / "gpu"), str(ROOT / "tests" / "gpu_emulation")]
import build_cuda  # noqa: E402


class NotRun(Exception):
    """Why a part was not run."""


def pytest_command(*options: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", str(ROOT / "tests"), *options]


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    output = (done.stdout + done.stderr)[-4000:]
    if done.returncode:
        raise RuntimeError(output)
    return output.strip().splitlines()[-1] if output.strip() else ""


def gpu_description() -> dict[str, str]:
    """Name, driver and compute capability of the first GPU; NotRun without one."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        raise NotRun("no NVIDIA driver here: nvidia-smi is not found")
    query = "name,driver_version,compute_cap,memory.total"
    done = subprocess.run([smi, f"--query-gpu={query}", "--format=csv,noheader", "--id=0"], capture_output=True, text=True)
    if done.returncode:
        raise NotRun(f"nvidia-smi finds no usable GPU: {(done.stdout + done.stderr).strip()[:200]}")
    return dict(zip(query.split(","), (field.strip() for field in done.stdout.split(",")), strict=True))


def part_build(gpu: dict[str, str]) -> str:
    nvcc = build_cuda.find_nvcc()
    if nvcc is None:
        raise NotRun("nvcc is not found")
    target = "sm_" + gpu["compute_cap"].replace(".", "")
    library = build_cuda.build(ROOT / "python" / "transformer_c", [target], os.cpu_count() or 1)
    if library is None:
        raise NotRun("TRANSFORMER_C_CUDA=0")
    return f"{library.name} for {target}"


def part_instructions(gpu: dict[str, str]) -> str:
    import emulation
    import instructions

    nvcc = build_cuda.find_nvcc()
    if nvcc is None:
        raise NotRun("nvcc is not found")
    if float(gpu["compute_cap"]) < 8:
        raise NotRun("tensor core wrappers need compute capability 8.0")
    source = ROOT / "tests" / "gpu" / "instructions.cu"
    emulated = emulation.library([source], "plain")
    with tempfile.TemporaryDirectory() as folder:
        hardware = Path(folder) / "instructions.so"
        target = "sm_" + gpu["compute_cap"].replace(".", "")
        flags = [*build_cuda.FLAGS, f"-arch={target}", f"-I{build_cuda.KERNELS / 'cuda'}", "-shared", "-cudart=static"]
        run([nvcc, *flags, "-o", str(hardware), str(source)])
        found = [
            instructions.differences(name, instructions.run(hardware, name, seed), instructions.run(emulated, name, seed))
            for name in instructions.NAMES
            for seed in range(20)
        ]
    wrong = [text for text in found if text]
    if wrong:
        raise RuntimeError("the hardware and the emulation differ:\n" + "\n".join(wrong))
    return f"{len(instructions.NAMES)} instructions agree with the emulation"


def part_tests(gpu: dict[str, str]) -> str:
    return run(pytest_command())


def sanitizer(tool: str) -> str:
    found = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if not found:
        raise NotRun("compute-sanitizer is not found")
    return run([found, "--tool", tool, "--error-exitcode", "1", *pytest_command("-k", "layer_norm or attention or linear or sums")])


def part_memcheck(gpu: dict[str, str]) -> str:
    return sanitizer("memcheck")


def part_racecheck(gpu: dict[str, str]) -> str:
    return sanitizer("racecheck")


def _median_ms(step, synchronize, repeats: int = 20) -> float:
    for _ in range(3):
        step()
    times = []
    for _ in range(repeats):
        synchronize()
        start = time.perf_counter()
        step()
        synchronize()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def benchmark_rows() -> list[dict]:
    """Milliseconds of a forward and backward, ours and PyTorch's, measured in turns."""
    import numpy as np
    import torch
    import transformer_c as tc

    rows = []
    for batch, length, width, heads in ((128, 16, 32, 4), (64, 128, 256, 4), (8, 1024, 512, 8)):
        x = np.random.default_rng(0).standard_normal((batch, length, width)).astype(np.float32)
        ours = tc.nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True).to("cuda")
        theirs = torch.nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True).to("cuda")
        our_x, their_x = tc.tensor(x, device="cuda", requires_grad=True), torch.tensor(x, device="cuda", requires_grad=True)

        def our_step(ours=ours, our_x=our_x):
            y = ours(our_x)
            (y * y).sum().backward()

        def their_step(theirs=theirs, their_x=their_x):
            y = theirs(their_x)
            (y * y).sum().backward()

        mine, other = _median_ms(our_step, tc.cuda.synchronize), _median_ms(their_step, torch.cuda.synchronize)
        shape = f"encoder layer, batch {batch}, length {length}, width {width}, {heads} heads, float32"
        rows.append({"workload": shape, "ms": mine, "pytorch_ms": other, "speedup": other / mine})
    return rows


def part_benchmark(gpu: dict[str, str]) -> list[dict]:
    try:
        import torch
    except ImportError:
        raise NotRun("PyTorch is not installed") from None
    if not torch.cuda.is_available():
        raise NotRun("this PyTorch has no CUDA")
    done = subprocess.run([sys.executable, __file__, "--benchmark-only"], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-4000:])
    return json.loads(done.stdout.splitlines()[-1])


PARTS = {
    "build": part_build,
    "instructions": part_instructions,
    "tests": part_tests,
    "memcheck": part_memcheck,
    "racecheck": part_racecheck,
    "benchmark": part_benchmark,
}


def attempt(part, gpu: dict[str, str] | None, reason: str) -> dict:
    if gpu is None:
        return {"state": "not run", "why": reason}
    try:
        return {"state": "done", "result": part(gpu)}
    except NotRun as why:
        return {"state": "not run", "why": str(why)}
    except Exception as error:
        return {"state": "failed", "why": f"{type(error).__name__}: {error}"}


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("numpy", "torch", "transformer_c"):
        try:
            found[name] = __import__(name).__version__
        except ImportError:
            found[name] = "not installed"
    nvcc = build_cuda.find_nvcc()
    if nvcc:
        found["nvcc"] = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout.splitlines()[-2]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark-only", action="store_true", help="print the rows of the benchmark as JSON")
    parser.add_argument("--output", type=Path, help="where to write the JSON")
    options = parser.parse_args()
    if options.benchmark_only:
        print(json.dumps(benchmark_rows()))
        return 0
    gpu, reason = None, ""
    try:
        gpu = gpu_description()
    except NotRun as why:
        reason = str(why)
    results = {}
    for name, part in PARTS.items():
        results[name] = attempt(part, gpu, reason)
        print(f"{name}: {results[name]['state']}: {results[name].get('why') or results[name].get('result')}", flush=True)
    states = {result["state"] for result in results.values()}
    if gpu is not None:
        date = datetime.datetime.now(datetime.timezone.utc)
        output = options.output or ROOT / "benchmarks" / "results" / f"{date:%Y-%m-%d}-gpu.json"
        report = {"date": date.isoformat(timespec="seconds"), "gpu": gpu, "versions": versions(), "parts": results}
        output.write_text(json.dumps(report, indent=1) + "\n")
        print(f"written to {output}")
    return 1 if "failed" in states else 0 if "done" in states else 77


if __name__ == "__main__":
    sys.exit(main())
