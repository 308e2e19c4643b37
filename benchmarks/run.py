#!/usr/bin/env python3
"""Runs the benchmarks and prints a table: python -m benchmarks, or python benchmarks/run.py. README.md explains the columns."""

import argparse
import dataclasses
import datetime
import fnmatch
import functools
import importlib
import importlib.util
import json
import pathlib
import platform
import subprocess
import sys

if not __package__:  # run as a file: the package is in the folder above
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from benchmarks import harness
from benchmarks.worker import CPU_CLOCK

FAMILIES = (
    "tiny",
    "reverse_step",
    "anomaly_step",
    "encoder_block",
    "torch_layers",
    "attention",
    "linear",
    "layer_norm",
    "elementwise",
    "lines",
    "convolution",
)


def workloads(families=FAMILIES):
    """(module name, workload) of every family, in order."""
    for family in families:
        module = f"benchmarks.{family}"
        for workload in importlib.import_module(module).WORKLOADS:
            yield module, workload


def select(patterns, quick, families=FAMILIES):
    """Those whose name or family contains, or matches (* and ?), one of the patterns; --quick leaves out the heavy ones that none names in full."""

    def wanted(module, workload):
        names = workload.name, module.rpartition(".")[2]
        return any(pattern in name or fnmatch.fnmatch(name, pattern) for name in names for pattern in patterns)

    return [(m, w) for m, w in workloads(families) if (not patterns or wanted(m, w)) and not (quick and w.heavy and w.name not in patterns)]


def parse_requirement(text):
    """ "reverse_step=2.5" or "reverse_step@1=2.5" -> (name, threads or None, ratio)."""
    name, equals, ratio = text.partition("=")
    name, at, threads = name.partition("@")
    try:
        if not equals or not name or (at and int(threads) < 1):
            raise ValueError
        return name, int(threads) if at else None, float(ratio)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=RATIO or NAME@THREADS=RATIO") from None


def parse_threads(text):
    try:
        threads = [int(part) for part in text.split(",")]
    except ValueError:
        threads = []
    if not threads or min(threads) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers of threads such as 1,2")
    return threads


def parse_isas(text):
    """ "avx2,avx512", or "all" for those that this machine can run."""
    usable, _ = harness.usable_instruction_sets()
    several = [name for name in usable if name not in {"baseline", *harness.SAME_IN_FLOAT32}]
    names = several or usable if text == "all" else text.split(",")
    if unusable := [name for name in names if name not in usable]:
        raise argparse.ArgumentTypeError(f"{', '.join(unusable)}: this machine and this build can use {', '.join(usable)}")
    return names


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Compares the speed of transformer_c with PyTorch's on this machine."
    )
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="workloads or families by name; may be repeated")
    parser.add_argument("--threads", type=parse_threads, default=[1], metavar="N[,N]", help="numbers of threads, one after the other (1)")
    parser.add_argument(
        "--isa", type=parse_isas, metavar="NAME[,NAME]",
        help="instruction sets, forced for both sides, one after the other; all: every one of this machine whose float32 differs, but the baseline (the best one)",
    )  # fmt: skip
    parser.add_argument(
        "--cpu-clock", action="store_true", help="the time that a process has on a core, where others use it too: needs one thread"
    )
    parser.add_argument("--quick", action="store_true", help="fewer turns, and no heavy workloads but those that --only names in full")
    parser.add_argument("--json", type=pathlib.Path, metavar="PATH", help="write the results there as well")
    parser.add_argument(
        "--require", type=parse_requirement, action="append", default=[], metavar="NAME[@N]=RATIO",
        help="exit with status 1 if a ratio to PyTorch is lower, or was not measured; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--shares", action="store_true", help="exit with status 1 if a workload has not the share of its bound that is wanted"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the workloads and stop")
    arguments = parser.parse_args(argv)
    arguments.selected = select(arguments.only, arguments.quick)
    if not arguments.selected:
        parser.error(f"no workload matches {' '.join(arguments.only)}{' with --quick' * arguments.quick}; see --list")
    if arguments.cpu_clock and arguments.threads != [1]:
        parser.error("--cpu-clock counts threads that wait as well: it needs --threads 1")
    names = {workload.name for _, workload in arguments.selected}
    for name, threads, _ in arguments.require:
        if name not in names or (threads or arguments.threads[0]) not in arguments.threads:
            parser.error(f"--require {name}: that workload is not among those that run")
    return arguments


# ---- what is printed and written -----------------------------------------------------------------------------------


def cpu_model():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = {name.strip(): value.strip() for name, _, value in reversed([line.partition(":") for line in lines])}
    named = found.get("model name") or platform.processor() or platform.machine()
    generation = " ".join(f"{part} {found[key]}" for part, key in (("family", "cpu family"), ("model", "model")) if key in found)
    return f"{named}, {generation}" if generation else named  # names of virtual machines leave the generation out


def versions():
    """Versions of Python, NumPy and the contenders; None for one that is missing. Read in another process: this one imports neither."""
    found = {"python": platform.python_version()}
    for name in ("numpy", "torch", "transformer_c"):
        command = [sys.executable, "-c", f"import {name}; print({name}.__version__)"]
        answer = subprocess.run(command, capture_output=True, text=True, env=harness.environment(1))
        found[name] = answer.stdout.strip() or None
    return found


def commit():
    """The checked-out commit, with "+" when files differ from it; None outside a repository."""

    def git(*command):
        return subprocess.run(["git", "-C", str(harness.ROOT), *command], capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def write_json(path, rows, peaks):
    result = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "cores": len(harness.available_cores()),
        "versions": versions(),
        "commit": commit(),
        "peaks": {isa: {str(threads): dataclasses.asdict(peaks[isa, threads]) for of, threads in peaks if of == isa} for isa, _ in peaks},
        "geometric_mean": {
            isa: {str(threads): harness.geometric_mean(ratios(rows, threads, isa)) for of, threads in peaks if of == isa}
            for isa, _ in peaks
        },
        "rows": [dataclasses.asdict(row) for row in rows],
    }
    path.write_text(json.dumps(result, indent=1) + "\n")


def ratios(rows, threads, isa):
    return [row.ratio for row in rows if (row.threads, row.isa) == (threads, isa) and row.ratio is not None]


COLUMNS = "{:<30} {:>2} {:>11} {:>11} {:>7} {:>6} {:>10} {:>6} {:>6}  {}"
HEADER = COLUMNS.format("workload", "th", "ours us", "torch us", "ratio", "+-", "bound us", "by", "share", "torch by")


def format_row(row):
    def number(value, digits):
        return "-" if value is None else f"{value:.{digits}f}"

    share = "-" if row.share_of_bound is None else f"{row.share_of_bound:.0%}"
    return COLUMNS.format(
        row.workload, row.threads, number(row.ours_us, 1), number(row.torch_us, 1), number(row.ratio, 2), f"{row.spread:.0%}",
        number(row.bound_us, 1), row.bound_by or "-", share, row.torch_variant or "",
    ).rstrip()  # fmt: skip


def format_peaks(isa, threads, peaks):
    copies = ", ".join(f"{rate / 1e9:.0f} in {size >> 10} KiB" for size, rate in peaks.copy)
    return (
        f"{isa}, {threads} thread{'s' * (threads > 1)}: {peaks.flops / 1e9:.0f} GFLOP/s of float32 FMA, "
        f"{peaks.tile / 1e9:.0f} of the tile in L1; copy GB/s: {copies}"
    )


def format_table(rows):
    """Every workload once: for each instruction set and number of threads the ratio to PyTorch, the share of the bound, and how many times as
    fast as one thread."""
    sides = list(dict.fromkeys((row.isa, row.threads) for row in rows))
    found = {(row.workload, row.isa, row.threads): row for row in rows}
    lines = [f"{'ratio, share, times one thread':<34}" + "".join(f"{f'{isa}, {threads}':>18}" for isa, threads in sides)]
    for name in dict.fromkeys(row.workload for row in rows):
        line = f"{name:<34}"
        for isa, threads in sides:
            row, one = found[name, isa, threads], found.get((name, isa, 1))
            ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
            share = "-" if row.share_of_bound is None else f"{row.share_of_bound:.0%}"
            line += f"{ratio:>7}{share:>6}{f'{one.ours_us / row.ours_us:.2f}' if one and threads > 1 else '':>5}"
        lines.append(line)
    means = [ratios(rows, threads, isa) for isa, threads in sides]
    for title, reduce in (("geometric mean of the ratios", harness.geometric_mean), ("the lowest ratio", min)):
        lines.append(f"{title:<34}" + "".join(f"{f'{reduce(found):.2f}' if found else '-':>7}{'':11}" for found in means))
    return "\n".join(line.rstrip() for line in lines)


def short_of_share(rows, wanted):
    """One line for each row with less of its bound than is wanted: what its workload names, or WANTED_SHARE where a call takes long."""
    for row in rows:
        least = wanted[row.workload] or (harness.WANTED_SHARE if row.ours_us > harness.LONG_US else None)
        if least and row.share_of_bound is not None and row.share_of_bound < least:
            yield (
                f"{row.workload}, {row.isa}, {row.threads} thread{'s' * (row.threads > 1)}: {row.share_of_bound:.2f} of its bound "
                f"({row.bound_by}), {least:.2f} is wanted"
            )


def unmet(requirements, rows):
    """One line for each requirement that the rows do not meet."""
    for name, threads, wanted in requirements:
        for row in (row for row in rows if row.workload == name and threads in (None, row.threads)):
            if row.ratio is None:
                yield f"{name}: a ratio of {wanted} is required, but PyTorch is not installed"
            elif not row.ratio >= wanted:
                yield f"{name} with {row.threads} threads: {row.ratio:.2f} times PyTorch's speed, {wanted} is required"


def has_pytorch():
    return importlib.util.find_spec("torch") is not None


def run_workloads(arguments, isa, threads, rows, peaks):
    """Measures the selected workloads with one instruction set and number of threads; prints them and adds them to `rows` and `peaks`."""
    contenders = ("torch", "ours") if has_pytorch() else ("ours",)
    effort = harness.QUICK if arguments.quick else harness.Effort()
    with harness.peak_meter(threads, isa) as measure_peaks:
        peaks[isa, threads] = measure_peaks(harness.MANY_TRIALS)
        print(f"\n{format_peaks(isa, threads, peaks[isa, threads])}\n{HEADER}", flush=True)
        beside = functools.partial(measure_peaks, harness.FEW_TRIALS)
        for module, workload in arguments.selected:
            rows.append(harness.measure(module, workload, threads, beside, effort, contenders, isa))
            print(format_row(rows[-1]), flush=True)
    if found := ratios(rows, threads, isa):
        print(f"geometric mean of the ratios: {harness.geometric_mean(found):.2f}")


def main(argv=None):
    arguments = parse_arguments(argv)
    if arguments.list:
        print("\n".join(workload.name for _, workload in arguments.selected))
        return 0
    rows, peaks = [], {}
    print(f"{cpu_model()}, {len(harness.available_cores())} cores")
    if not has_pytorch():
        print("PyTorch is not installed: ours alone is timed, without ratios")
    try:
        for isa in arguments.isa or [harness.usable_instruction_sets()[1]]:
            forced = harness.forced(isa) if arguments.isa else {}
            with harness.variables({**forced, CPU_CLOCK: str(int(arguments.cpu_clock))}):
                for threads in arguments.threads:
                    run_workloads(arguments, isa, threads, rows, peaks)
    except harness.BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if len(peaks) > 1:
        print("\n" + format_table(rows))
    short = list(short_of_share(rows, {workload.name: workload.share for _, workload in arguments.selected}))
    print("\nless of the bound than is wanted:" * bool(short), *short, sep="\n")
    if arguments.json:
        write_json(arguments.json, rows, peaks)
    failures = list(unmet(arguments.require, rows))
    for line in failures:
        print(f"not met: {line}", file=sys.stderr)
    return 1 if failures or (arguments.shares and short) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
