"""The measured times of kernels and steps in docs/gpu.md: tables from the newest results of tools/gpu_test.py.

python tools/measured_kernels.py            # prints them
python tools/measured_kernels.py --write    # puts them there
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gpu.md"
BEGIN, END = "<!-- python tools/measured_kernels.py --write -->\n", "<!-- end -->\n"


def newest() -> Path:
    """The folder of the last results with times of kernels."""
    return max(path.parent for path in (ROOT / "benchmarks" / "results").glob("*-gpu/kernels.jsonl"))


def rows(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the machine was, and the results."""
    first, *rest = [json.loads(line) for line in path.read_text().splitlines()]
    return first, [row for row in rest if "state" not in row]


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def cell(value: Any) -> str:
    return number(value) if isinstance(value, float) else "none takes it" if value else ""


def ratio(ours: Any, other: Any) -> str:
    return f"{other / ours:.2f}" if isinstance(ours, float) and isinstance(other, float) else ""


def machine(folder: Path) -> str:
    first, _ = rows(folder / "kernels.jsonl")
    gpu, versions = first["gpu"], first["versions"]
    return f"{gpu['name']}, driver {gpu['driver_version']}, PyTorch {versions['torch']}, {first['date'][:10]}"


def table_of_kernels(folder: Path) -> str:
    lines = ["| kernel | us | PyTorch, us | PyTorch / ours |", "|---|---:|---:|---:|"]
    for row in rows(folder / "kernels.jsonl")[1]:
        ours, other, backend = row["us"], row.get("pytorch_us"), row.get("pytorch_backend", "").removesuffix("_ATTENTION").lower()
        lines.append(f"| {row['kernel']} | {cell(ours)} | {cell(other)}{f' ({backend})' if backend else ''} | {ratio(ours, other)} |")
    return "\n".join(lines) + "\n"


def table_of_steps(folder: Path) -> str:
    lines = ["| step | ms | PyTorch, ms | PyTorch / ours |", "|---|---:|---:|---:|"]
    for row in rows(folder / "benchmark.jsonl")[1]:
        ours, other = row["ms"], row.get("pytorch_ms")
        lines.append(f"| {row['workload']} | {cell(ours)} | {cell(other)} | {ratio(ours, other)} |")
    return "\n".join(lines) + "\n"


def tables() -> list[str]:
    folder = newest()
    return [f"{machine(folder)}:\n\n{table_of_steps(folder)}", table_of_kernels(folder)]


def page_with(*texts: str) -> str:
    """The page with these between its marks, in order."""
    before, *parts = PAGE.read_text().split(BEGIN)
    assert len(parts) == len(texts), f"{PAGE.name} has {len(parts)} places for {len(texts)} tables"
    return before + "".join(BEGIN + text + END + part.split(END, 1)[1] for text, part in zip(texts, parts, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/gpu.md")
    if parser.parse_args().write:
        PAGE.write_text(page_with(*tables()))
    else:
        print("\n".join(tables()))


if __name__ == "__main__":
    main()
