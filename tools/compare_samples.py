"""Runs PyTorch's own samples here and there, and compares values, dtypes and gradients.

python tools/compare_samples.py                  a line per function, module and optimizer; exit status 1 where one is not done
python tools/compare_samples.py sort nn.Linear   those alone, with every sample that is refused or differs
python tools/compare_samples.py --write          docs/pytorch-samples.md as well

The samples are those of torch.testing._internal: common_methods_invocations, common_modules and common_optimizers (needs torch, expecttest and
numpy). One of these is done when its samples agree and at most 5 % of them are refused.
"""

import argparse
import itertools
import re
import sys
from collections import Counter
from pathlib import Path

from torch_samples import modules, operators, optimizers
from torch_samples.comparing import BY_CONTRACT

PAGE = Path(__file__).parents[1] / "docs/pytorch-samples.md"
MOST_REFUSED = 0.05


def is_done(counts):
    total = sum(counts.values()) - counts["contract"]
    return not counts["different"] and counts["refused"] <= MOST_REFUSED * total


def page(rows):
    """docs/pytorch-samples.md"""
    lines = [
        "# PyTorch's samples",
        "",
        "Which calls of PyTorch's own test databases (`common_methods_invocations`, `common_modules` and `common_optimizers` of",
        "`torch.testing._internal`) give the same here. Written by `python tools/compare_samples.py --write`.",
        "",
        "- Functions and methods, of float32, float64, int64 and bool: values, dtypes, shapes and gradients.",
        "- Modules (`nn.`), of float32 and float64, in train and eval mode, with PyTorch's state loaded: these, gradients of the parameters, and the",
        "  keys of the state dict.",
        "- Optimizers (`optim.`): the parameters after each of eight steps, with PyTorch's state loaded after the fourth.",
        "",
        "Modules and optimizers refuse what PyTorch refuses there, but for this:",
        "",
        *(f"- {reason}" for reason in (*modules.ACCEPTED.values(), *optimizers.ACCEPTED.values())),
        "",
        "The schedules of `optim.lr_scheduler` have no such database: `tests/optim/test_pytorch_schedules.py` compares them, to the bit.",
        "",
        "Calls that are refused on purpose (`on purpose` below) do not count as refused:",
        "",
        *(f"- {reason}" for reason in BY_CONTRACT.values()),
        "",
        "| function, module, optimizer | samples | agree | on purpose | refused | differ |",
        "|---|---|---|---|---|---|",
    ]
    for name, counts, _ in rows:
        cells = [sum(counts.values()), *(counts[kind] for kind in ("agreed", "contract", "refused", "different"))]
        lines.append(f"| `{name}` | {' | '.join(map(str, cells))} |")
    for kind, heading in (("refused", "## What is refused"), ("different", "## What differs")):
        lines += ["", heading, ""]
        before = len(lines)
        for name, _, found in rows:
            reasons = {}
            for outcome in found:
                if outcome.kind == kind:
                    reasons.setdefault(re.sub(r"[\d.]+", "#", outcome.why), []).append(outcome)
            for group in reasons.values():
                why = re.sub(r"\s+", " ", group[0].why)[:160].replace("|", "\\|")
                lines.append(f"- `{name}`, {len(group)} times, such as `{group[0].call[:140]}`: {why}")
        if len(lines) == before:
            lines.append("Nothing.")
    return "\n".join(lines) + "\n"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="functions, modules, optimizers; all that exist here by default")
    parser.add_argument("--write", action="store_true", help="write docs/pytorch-samples.md")
    parser.add_argument("--most", type=int, help="samples per dtype")
    options = parser.parse_args(arguments)
    rows, missed = [], []
    for name, found in itertools.chain.from_iterable(part.rows(options.names, options.most) for part in (operators, modules, optimizers)):
        if not found:
            continue
        counts = Counter(o.kind for o in found)
        rows.append((name, counts, found))
        if not is_done(counts):
            missed.append(name)
        print(
            f"{name:40} {counts['agreed']:5} agreed {counts['contract']:4} on purpose {counts['refused']:4} refused {counts['different']:4} different",
            flush=True,
        )
        for outcome in found if options.names else []:
            if outcome.kind != "agreed":
                print(f"    {outcome.kind} {outcome.call[:150]}: {outcome.why[:200]}")
    if options.write:
        PAGE.write_text(page(sorted(rows, key=lambda row: row[0])))
    total = Counter(kind for _, counts, _ in rows for kind in counts.elements())
    print(f"{sum(total.values())} samples: {dict(total)}; not done: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
