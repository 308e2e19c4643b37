"""A pretrained encoder beside other engines: seconds, and the peak of memory.

    python -m benchmarks.encoders FOLDER                        all engines that are installed, one and two threads
    python -m benchmarks.encoders FOLDER --isa native,avx2      again with AVX2 alone, for all that can be told so
    python -m benchmarks.encoders FOLDER --json result.json --require full=1.15 --require memory=1
    python -m benchmarks.encoders FOLDER --threads 1 --cases full,mixed,padded,one --turns 2 --cpu-clock --page docs/models.md

FOLDER is one of sentence-transformers', of BERT's kind, such as all-MiniLM-L6-v2. README.md says what is measured.
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import importlib.util
import json
import pathlib
import re
import sys
import tempfile

from benchmarks import harness, run
from benchmarks.encoder_engines import CASES, ENGINES, FILES, FOLDER, WORKLOADS, flops, prepare, times
from benchmarks.worker import CPU_CLOCK

TOLERANCE = 1e-4  # between embeddings of length 1
CASE_TITLES = {
    "full": "32 texts of 128 tokens",
    "padded": "32 texts, one of 128 tokens and 31 of 32",
    "one": "one text of 16 tokens",
    "mixed": "32 texts of 8 to 256 tokens",
    "sorted": "128 texts of 8 to 256 tokens, by length",
}
PEAK_CASES = ("one", "full")  # whose memory is measured
PAGE_TABLE = "| | bound | ours | "  # how the table of the page begins
# The variables that keep engines to AVX2 where there is AVX-512; ONNX Runtime has none.
ISAS = {
    "native": {},
    "avx2": {
        **harness.forced("avx2"),
        "DNNL_MAX_CPU_ISA": "AVX2",
        "CT2_FORCE_CPU_ISA": "AVX2",
    },
}


def installed():
    """The engines whose packages there are, and the others with what they lack."""
    lacks = {name: [p for p in packages if importlib.util.find_spec(p) is None] for name, (_, packages) in ENGINES.items()}
    return [name for name, missing in lacks.items() if not missing], {name: missing for name, missing in lacks.items() if missing}


def contender(engine, threads):
    return harness.Contender("benchmarks.encoder_engines", WORKLOADS[0], engine, harness.choose_cores(threads))


def measure(case, sides, turns):
    """{engine: least seconds} of one case; the engines take turns, after their embeddings were compared."""
    sides = {name: side for name, side in sides.items() if times(name, case)}
    expected = sides["ours"].result(f"list {case}")
    for name, side in sides.items():
        apart = max(abs(x - y) for a, b in zip(side.result(f"list {case}"), expected, strict=True) for x, y in zip(a, b, strict=True))
        if not apart <= TOLERANCE:
            raise harness.BenchmarkError(f"the embeddings of {name} differ from ours by {apart:.1e} ({case})")
    effort = harness.Effort(turns=turns)
    calls = {name: effort.calls(side.run(case, 1)) for name, side in sides.items()}
    return {name: min(found) for name, found in _turns(case, sides, calls, turns).items()}


def _turns(case, sides, calls, turns):
    found = {name: [] for name in sides}
    for _ in range(turns):
        for name, side in sides.items():
            found[name].append(side.run(case, calls[name]))
    return found


def memory(case, engine, threads):
    """The largest memory of a process that loads the model and computes a case twice, in bytes."""
    with contender(engine, threads) as side:
        side.warm_up(case, 0)
        return side.result("peak")


def best_other(found):
    """The name of the engine besides ours with the least of these values; None where there is none."""
    others = {engine: value for engine, value in found.items() if engine in ENGINES}
    return min(others, key=others.get, default=None)


def ratio(found):
    """The least value of the others over ours, as it is shown."""
    best = best_other(found)
    return "-" if best is None else f"{found[best] / found['ours']:.2f}"


def table(title, columns, rows, form):
    """Lines of a table in Markdown: what, a figure for each engine, the least of the others over ours."""
    lines = [f"| {title} | {' | '.join(columns)} | ratio |", "|---" * (len(columns) + 2) + "|"]
    lines += [
        f"| {name} | {' | '.join(form(found[c]) if c in found else '' for c in columns)} | {ratio(found)} |" for name, found in rows.items()
    ]
    return "\n".join(lines)


def page_table(rows, isa="native", threads=1):
    """Lines of the table of docs/models.md from the rows of a result: cases that were measured, engines from the fastest at full batches on."""
    found = {"seconds": {}, "peak": {}}
    for row in rows:
        if (row["isa"], row["threads"]) == (isa, threads):
            for kind in found.keys() & row.keys():
                found[kind].setdefault(row["case"], {})[row["engine"]] = row[kind]
    seconds, peaks = found["seconds"], found["peak"]
    first = next(iter(seconds.values()), {})
    columns = ["bound", "ours", *sorted(first.keys() & ENGINES.keys(), key=first.get)]
    lines = [f"| | {' | '.join(columns)} | best of the others / ours |", "|---|" + "---:|" * (len(columns) + 1)]
    for title, values, unit, digits in (
        *((CASE_TITLES[case], values, 1e3, 0 if values["ours"] > 0.1 else 1) for case, values in seconds.items()),
        *((f"MiB, {CASE_TITLES[case]}", values, 2**-20, 0) for case, values in peaks.items()),
    ):
        figures = [f"{unit * values[c]:.{digits}f}" if c in values else "" for c in columns]
        lines.append(f"| {title} | {' | '.join(figures)} | {ratio(values)} |")
    return lines


def unmet(requirements, rows):
    """A line for each requirement that the rows do not meet: of seconds those of the case that it names, of memory all peaks."""
    found = {}
    for row in rows:
        kind = "seconds" if "seconds" in row else "peak"
        found.setdefault((row["isa"], row["threads"], row["case"], kind), {})[row["engine"]] = row[kind]
    for name, threads, wanted in requirements:
        for (isa, number, case, kind), values in found.items():
            if (case if kind == "seconds" else "memory") == name and threads in (None, number):
                best = best_other(values)
                at = f"{name} ({CASE_TITLES[case]}), {isa}, {number} thread{'s' * (number > 1)}"
                if best is None:
                    yield f"{at}: a ratio of {wanted} is required, but no other engine was measured"
                elif not values[best] / values["ours"] >= wanted:
                    yield f"{at}: {ratio(values)} times as good as {best}, {wanted} is required"


def write_page(path, rows, result):
    """Puts the table of these rows in the place of the page's, and the name of the file `result` in its link."""
    lines = path.read_text().splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith(PAGE_TABLE)]
    if len(starts) != 1:
        raise harness.BenchmarkError(f"{path} has {len(starts)} tables that begin with {PAGE_TABLE!r}; expected one")
    end = next((i for i in range(starts[0], len(lines)) if not lines[i].startswith("|")), len(lines))
    lines[starts[0] : end] = page_table(rows)
    text = "\n".join(lines) + "\n"
    if result:
        text = re.sub(r"\[[\d-]+encoders\.json\]\(([^)]*/)[^/)]*\)", rf"[{result.name}](\g<1>{result.name})", text)
    path.write_text(text)


def parse_arguments(argv):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.encoders", description=__doc__.splitlines()[0])
    parser.add_argument("folder", metavar="FOLDER", type=pathlib.Path, help="the model: config.json, weights, tokenizer.json")
    parser.add_argument("--threads", type=run.parse_threads, default=[1, 2], metavar="N[,N]", help="numbers of threads (1,2)")
    parser.add_argument("--isa", default="native", metavar="NAME[,NAME]", help=f"instructions: {', '.join(ISAS)} (native)")
    parser.add_argument("--cases", default=",".join(CASES), metavar="NAME[,NAME]", help=f"of {', '.join(CASES)} (all)")
    parser.add_argument("--engines", metavar="NAME[,NAME]", help=f"of {', '.join(ENGINES)} (all that are installed)")
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="of each engine (5)")
    parser.add_argument(
        "--cpu-clock",
        action="store_true",
        help="measure the time that processes have on the cores: for one thread on a machine that does other things",
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="PATH", help="write the results there as well")
    parser.add_argument("--page", type=pathlib.Path, metavar="PATH", help="put the table of one thread into this page, docs/models.md")
    parser.add_argument(
        "--require", type=run.parse_requirement, action="append", default=[], metavar="NAME[@N]=RATIO",
        help="exit with status 1 if the best of the other engines over ours is lower; NAME is a case, or memory for the peaks; may be repeated",
    )  # fmt: skip
    parser.add_argument("--add", action="store_true", help="keep what the file of --json has of other instructions and threads")
    arguments = parser.parse_args(argv)
    for name, known in (("isa", ISAS), ("cases", CASES), ("engines", ENGINES)):
        given = getattr(arguments, name)
        values = given.split(",") if given else []
        setattr(arguments, name, values)
        unknown = [value for value in values if value not in known]
        if unknown:
            parser.error(f"--{name} {unknown[0]}: expected {', '.join(known)}")
    measured = (*arguments.cases, *(["memory"] if set(PEAK_CASES) & set(arguments.cases) else []))
    for name, threads, _ in arguments.require:
        if name not in measured or (threads or arguments.threads[0]) not in arguments.threads:
            parser.error(f"--require {name}: that case is not among those that are measured")
    if arguments.page and not (arguments.page.is_file() and "native" in arguments.isa and 1 in arguments.threads):
        parser.error("--page is a page that exists, for --isa native and --threads 1")
    if arguments.cpu_clock and arguments.threads != [1]:
        parser.error("--cpu-clock counts threads that wait as well: it needs --threads 1")
    if not (arguments.folder / "config.json").is_file():
        parser.error(f"{arguments.folder} has no config.json: expected the folder of a model")
    return arguments


def versions(engines):
    packages = {package for name in engines for package in ENGINES[name][1]}
    return {package: importlib.metadata.version(package) for package in sorted(packages)}


def main(argv=None):
    arguments = parse_arguments(argv)
    engines, missing = installed()
    for name, packages in missing.items():
        print(f"{name} is left out: {', '.join(packages)} is not installed")
    engines = [name for name in engines if not arguments.engines or name in arguments.engines]
    columns, rows = ["ours", *engines], []
    print(f"{run.cpu_model()}, {len(harness.available_cores())} cores")
    config = json.loads((arguments.folder / "config.json").read_text())
    with tempfile.TemporaryDirectory() as files, harness.variables({FOLDER: str(arguments.folder.resolve()), FILES: files}):
        for name, why in prepare(arguments.folder, files).items():
            print(f"{name} cannot be written: {why}")
        for isa in arguments.isa:
            for threads in arguments.threads:
                with harness.variables({**ISAS[isa], CPU_CLOCK: str(int(arguments.cpu_clock))}):
                    rows += run_all(arguments, config, isa, threads, columns)
    if arguments.json:
        result = {
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "cpu": run.cpu_model(),
            "cores": len(harness.available_cores()),
            "clock": "cpu" if arguments.cpu_clock else "wall",
            "model": arguments.folder.resolve().name,
            "commit": run.commit(),
            "versions": {**run.versions(), **versions(engines)},
            "cases": {case: CASES[case] for case in arguments.cases},
            "rows": rows,
        }
        if arguments.add and arguments.json.exists():
            done = {(row["isa"], row["threads"]) for row in rows}
            earlier = json.loads(arguments.json.read_text())["rows"]
            result["rows"] = [row for row in earlier if (row["isa"], row["threads"]) not in done] + rows
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    if arguments.page:
        write_page(arguments.page, rows, arguments.json)
    failures = list(unmet(arguments.require, rows))
    for failure in failures:
        print(f"not met: {failure}", file=sys.stderr)
    return int(bool(failures))


def run_all(arguments, config, isa, threads, columns):
    """Measures and prints all cases with these instructions and threads; gives the rows for the file."""
    flop_rate = harness.measure_peaks(threads, harness.usable_instruction_sets()[1]).flops
    seconds, peaks = {}, {}
    with contextlib.ExitStack() as stack:
        sides = {name: stack.enter_context(contender(name, threads)) for name in columns}
        for case in arguments.cases:
            seconds[case] = {"bound": flops(config, case) / flop_rate, **measure(case, sides, arguments.turns)}
            print(f"{isa}, {threads}, {case}: " + ", ".join(f"{e} {1e3 * s:.1f}" for e, s in seconds[case].items()), flush=True)
    for case in [case for case in PEAK_CASES if case in arguments.cases]:
        peaks[case] = {name: memory(case, name, threads) for name in columns}
    title = f"{isa}, {threads} thread{'s' * (threads > 1)}{', on the core' * arguments.cpu_clock}"
    print("\n" + table(f"{title}: ms", ["bound", *columns], _named(seconds), lambda s: f"{1e3 * s:.1f}"))
    print("\n" + table(f"{title}: peak of memory, MiB", columns, _named(peaks), lambda b: f"{b / 2**20:.0f}") + "\n", flush=True)
    of = {"isa": isa, "threads": threads}
    return [
        {**of, "case": case, "engine": engine, kind: value}
        for kind, found in (("seconds", seconds), ("peak", peaks))
        for case, values in found.items()
        for engine, value in values.items()
    ]


def _named(rows):
    return {CASE_TITLES[case]: found for case, found in rows.items()}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except harness.BenchmarkError as error:
        sys.exit(f"error: {error}")
