"""Random calls, timed in turns with PyTorch on one thread: finds what is slow although nobody thought of measuring it.

python -m benchmarks.random_calls                            20 calls of every family
python -m benchmarks.random_calls --calls 200 --seed 1000    others
python -m benchmarks.random_calls sorting in_place           these families alone
python -m benchmarks.random_calls sorting:17 --turns 21      one call again, as the table names it

A family draws its call from a seed: function, arguments, shapes, strides, dtypes, with or without gradients. Both libraries compute in this process,
one after the other; the time is that on the core. One turn is 1.5 ms of calls, and medians count. A single low ratio may be chance: repeat it alone.
"""

import argparse
import dataclasses
import importlib.util
import json
import pathlib
import statistics
import sys
import warnings

from benchmarks.random_calls.measure import FAMILIES, draw_call, measure
from benchmarks.run import commit, cpu_model, versions

LIMITS = (0.8, 0.4)  # of the ratio: below it a call is counted
WORST = 20


def parse_name(text):
    """ "sorting" or "sorting:17" -> (family, seed or None)."""
    family, colon, seed = text.partition(":")
    if family not in FAMILIES or (colon and not seed.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a family, or a family and a seed such as sorting:17; {', '.join(FAMILIES)}")
    return family, int(seed) if colon else None


def chosen(names, calls, seed):
    """[(family, seed)], seed by seed, so that a run that is stopped has something of every family."""
    families = [family for family, only in names if only is None] or (FAMILIES if not names else [])
    alone = [(family, only) for family, only in names if only is not None]
    return alone + [(family, seed + i) for i in range(calls) for family in families]


def format_summary(results):
    """One line for each family: calls, median, lowest, and how many are below the limits."""
    lines = [f"{'family':<20}{'calls':>6}{'median':>8}{'lowest':>8}" + "".join(f"{f'< {limit}':>7}" for limit in LIMITS)]
    for family in (*dict.fromkeys(result.family for result in results), "all"):
        ratios = [result.ratio for result in results if family in (result.family, "all")]
        below = "".join(f"{sum(ratio < limit for ratio in ratios):>7}" for limit in LIMITS)
        lines.append(f"{family:<20}{len(ratios):>6}{statistics.median(ratios):>8.2f}{min(ratios):>8.2f}{below}")
    return "\n".join(lines)


def format_result(result):
    def number(value, digits):
        return "-" if value is None else f"{value:.{digits}f}"

    return f"{number(result.ratio, 2):>6}{number(result.ours_us, 1):>12}{number(result.torch_us, 1):>12}  {result.family}:{result.seed}  {result.call}"


def format_worst(results):
    """The slowest next to PyTorch, or, where there is none, of all."""
    worst = sorted(results, key=lambda result: -result.ours_us if result.ratio is None else result.ratio)[:WORST]
    return "\n".join([f"{'ratio':>6}{'ours us':>12}{'torch us':>12}  call", *map(format_result, worst)])


def write_json(path, results):
    about = {"cpu": cpu_model(), "versions": versions(), "commit": commit()}
    path.write_text(json.dumps({**about, "results": [dataclasses.asdict(result) for result in results]}, indent=1) + "\n")


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.random_calls", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", type=parse_name, metavar="FAMILY[:SEED]", help="families, or single calls; all families if none"
    )
    for name, default, what in (("calls", 20, "of each family"), ("seed", 0, "the first"), ("turns", 5, "of each side")):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{what} ({default})")
    parser.add_argument("--json", type=pathlib.Path, metavar="PATH", help="write all results there as well")
    parser.add_argument("--list", action="store_true", help="print the calls without running them")
    arguments = parser.parse_args(argv)
    if arguments.calls < 1 or arguments.turns < 1 or arguments.seed < 0:
        parser.error("--calls and --turns are at least 1, --seed at least 0")
    return arguments


def main(argv=None):
    arguments = parse_arguments(argv)
    pairs = chosen(arguments.names, arguments.calls, arguments.seed)
    if arguments.list:
        for family, seed in pairs:
            print(f"{family}:{seed}  {draw_call(family, seed)}")
        return 0
    import transformer_c

    torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
    for module in filter(None, (torch, transformer_c)):
        module.set_num_threads(1)
    if not torch:
        print("PyTorch is not installed: ours alone is timed, without ratios")
    warnings.simplefilter("ignore")  # of what PyTorch will change
    results = [measure(family, seed, transformer_c, torch, arguments.turns) for family, seed in pairs]
    timed = [result for result in results if not result.error]
    if torch and timed:
        print(format_summary(timed) + "\n")
    print(format_worst(timed))
    for title, found in (("not run", [r for r in results if r.error]), ("different numbers", [r for r in timed if r.agree is False])):
        print(f"\n{title}:" * bool(found), *(f"{r.family}:{r.seed}  {r.call}  {r.error or ''}" for r in found), sep="\n")
    if arguments.json:
        write_json(arguments.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
