"""Tables of the README, docs/numbers.md and docs/performance.md: docs/results/tutorial.json, the newest file of benchmarks/results, the command
line's tasks.

python tools/readme.py                   rewrites the tables
python tools/readme.py tutorial_output   first copies numbers and picture of a run of `python -m transformer_c tutorial`
python tools/readme.py --check           exit status 1 when the tables are out of date
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs/numbers.md", ROOT / "docs/performance.md")
TUTORIAL = ROOT / "docs" / "results" / "tutorial.json"
PICTURE = ROOT / "docs" / "images" / "reverse_attention.png"
CELLS = (5, 12, 17, 20, 21, 23, 36, 37, 38, 39)
WORKLOADS = {
    "tiny_forward": "scaled dot product of (3, 2), Tensors",
    "tiny_forward_arrays": "the same, ndarrays",
    "tiny_train": "the same with its gradients",
    "reverse_step": "Reverse task, a training step",
    "reverse_epoch": "Reverse task, an epoch with its loader",
    "anomaly_step": "Set Anomaly task, a training step",
    "block_128x16x32_train": "encoder block (128, 16, 32), forward and backward",
    "encoder_layer_32x128x256": "`nn.TransformerEncoderLayer` (32, 128, 256), a training step",
    "mha_32x128x256": "multi-head attention (32, 128, 256), 8 heads, forward",
    "attention_8x8x512x64": "attention alone (8, 8, 512, 64)",
    "linear_4096x512x2048": "linear layer, 4,096 rows, 512 to 2,048",
    "layer_norm_4096x768": "layer norm (4096, 768)",
    "gelu": "exact GELU (4096, 768)",
    "dropout": "dropout (4096, 768)",
}


def tutorial_table() -> str:
    """Cells in which the tutorial has a number, and ours."""
    result = json.loads(TUTORIAL.read_text())
    rows = [r for r in result["rows"] if r["cell"] in CELLS and r["verdict"]]
    lines = ["| cell | | tutorial | transformer_c | |", "|---:|---|---|---|---|"]
    lines += [f"| {r['cell']} | {r['what']} | {r['tutorial']} | {r['ours']} | {r['verdict']} |" for r in rows]
    lines += [
        "",
        f"Written by `python -m transformer_c tutorial` with seed {result['seed']}: {result['epochs']} and {result['anomaly_epochs']} epochs, {result['seconds']:.0f} s with "
        f"{result['threads']} threads of an {result['cpu']}. *other images*: CIFAR100 there, scikit-learn's digits here. In cells 12, 20 and 36 the tutorial prints no number; those are what its code gives.",
    ]
    return "\n".join(lines)


def benchmark_table() -> str:
    """How many times as fast as PyTorch."""
    path, result = newest_benchmark()
    threads = sorted({r["threads"] for r in result["rows"]})
    ratios = {(r["workload"], r["threads"]): r["ratio"] for r in result["rows"] if r["ratio"] is not None}
    names = [n for n in WORKLOADS if any((n, t) in ratios for t in threads)]
    lines = ["| times as fast as PyTorch | " + " | ".join(f"{t} thread{'s' if t > 1 else ''}" for t in threads) + " |"]
    lines += ["|---|" + "---:|" * len(threads)]
    for name in names:
        found = [f"{ratios[name, t]:.1f}" if (name, t) in ratios else "" for t in threads]
        lines += [f"| {WORKLOADS[name]} (`{name}`) | {' | '.join(found)} |"]
    lines += [
        "",
        f"{result['cpu']}, {result['cores']} cores; PyTorch {result['versions']['torch']}, its fastest variant; {result['date'][:10]}. All figures: "
        f"[{path.name}](../benchmarks/results/{path.name}); `make bench` measures them on another machine.",
    ]
    return "\n".join(lines)


def instruction_sets_table() -> str:
    """The newest run of `python -m benchmarks --isa all` on each processor: of every workload and instruction set the ratio, and the share of the bound."""
    results = {path: json.loads(path.read_text()) for path in (ROOT / "benchmarks/results").glob("*-instruction-sets*.json")}
    newest = {result["cpu"]: (path, result) for path, result in sorted(results.items(), key=lambda item: item[1]["date"])}
    runs = [newest[cpu] for cpu in sorted(newest)]
    columns = [(result, isa) for _, result in runs for isa in result["peaks"]]
    rows = [{r["workload"]: r for r in result["rows"] if r["threads"] == 1 and r["isa"] == isa} for result, isa in columns]

    def cells(name: str) -> str:
        found = [column.get(name) for column in rows]
        ratios = [f"{r['ratio']:.2f}" if r else "" for r in found]
        shares = [f"{r['share_of_bound']:.2f}" if r and r["share_of_bound"] else "" for r in found]
        return " | ".join(cell for pair in zip(ratios, shares, strict=True) for cell in pair)

    lines = [f"| one thread | {' | '.join(f'{short_name(result)}, {isa} | share' for result, isa in columns)} |"]
    lines += ["|---|" + "---:|" * (2 * len(columns))]
    lines += [f"| `{name}` | {cells(name)} |" for name in dict.fromkeys(name for column in rows for name in column)]
    means = " | ".join(f"{result['geometric_mean'][isa]['1']:.2f} | " for result, isa in columns)
    peaks = [result["peaks"][isa]["1"] for result, isa in columns]
    rates = " | ".join(f"{peak['tile'] / 1e9:.0f} | {peak['flops'] / 1e9:.0f}" for peak in peaks)
    lines += [f"| geometric mean | {means} |", f"| GFLOP/s of the tile in L1; of multiply-adds alone | {rates} |", ""]
    lines += [
        f"{result['cpu']}; PyTorch {result['versions']['torch']}; {result['date'][:10]}; [{path.name}](../benchmarks/results/{path.name})."
        for path, result in runs
    ]
    return "\n".join(lines)


def short_name(result: dict) -> str:
    """Of the processor of a run."""
    name, _, family = result["cpu"].partition(", family ")
    short = next((known for known in ("EPYC", "Xeon") if known in name), name)
    return f"{short} (family {family})" if family else short


def tasks_table() -> str:
    """What the command line trains, and how its models are used."""
    from transformer_c.cli.tasks import TASKS

    lines = ["| `python -m transformer_c train` | | `predict runs/.../best.safetensors` |", "|---|---|---|"]
    lines += [f"| `{task.name}` | {task.help} | `{task.example}` |" for task in TASKS.values()]
    return "\n".join(lines)


def newest_benchmark() -> tuple[Path, dict]:
    """The newest CPU figures that include PyTorch and the Reverse task."""
    results = {path: json.loads(path.read_text()) for path in (ROOT / "benchmarks/results").glob("*-cpu-*.json")}
    fit = {p: h for p, h in results.items() if any(r["workload"] == "reverse_step" and r["ratio"] for r in h["rows"])}
    path = max(fit, key=lambda p: (fit[p]["date"], p.name))
    return path, fit[path]


def rewritten(text: str) -> str:
    """A page with its tables between their marks."""
    tables = {"tutorial": tutorial_table, "benchmarks": benchmark_table, "instruction sets": instruction_sets_table, "tasks": tasks_table}
    for name, table in tables.items():
        begin, end = f"<!-- {name}: tools/readme.py -->", f"<!-- /{name} -->"
        if begin in text:
            before, rest = text.split(begin)
            text = f"{before}{begin}\n{table()}\n{end}{rest.split(end)[1]}"
    return text


def take(run: Path) -> None:
    """Copies numbers and picture of a run."""
    from PIL import Image

    for target in (TUTORIAL, PICTURE):
        target.parent.mkdir(parents=True, exist_ok=True)
    TUTORIAL.write_text((run / "results.json").read_text())
    picture = Image.open(run / "cell_25_reverse_attention.png").convert("RGB")
    picture.quantize(256, Image.Quantize.MAXCOVERAGE).save(PICTURE, optimize=True)


def main() -> int:
    """Gives the exit status."""
    parser = argparse.ArgumentParser(description="Writes or checks the tables.")
    parser.add_argument("run", nargs="?", type=Path, help="output folder of a tutorial run to take over")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 when a page is not up to date")
    options = parser.parse_args()
    if options.run:
        take(options.run)
    status = 0
    for page in PAGES:
        text = page.read_text()
        new = rewritten(text)
        if options.check and new != text:
            print(f"{page.name} does not have the tables of docs/results and benchmarks/results: python tools/readme.py")
            status = 1
        elif not options.check:
            page.write_text(new)
    return status


if __name__ == "__main__":
    sys.exit(main())
