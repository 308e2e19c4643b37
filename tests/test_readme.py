"""The numbers of the README and the pages are those of the measured files, and those that are determined are the same in a new run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
TUTORIAL = json.loads((ROOT / "docs/results/tutorial.json").read_text())


def test_the_tables_are_generated():
    done = subprocess.run([sys.executable, ROOT / "tools/readme.py", "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_changed_number_is_found(tmp_path):
    for name in (
        "tools/readme.py",
        "docs/results/tutorial.json",
        "docs/numbers.md",
        "docs/performance.md",
        *(f"benchmarks/results/{p.name}" for p in (ROOT / "benchmarks/results").glob("*.json")),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "README.md").write_text(README)
    numbers = (ROOT / "docs/numbers.md").read_text()
    (tmp_path / "docs/numbers.md").write_text(numbers.replace("| 100.00 % | 100.00 % |", "| 100.00 % | 99.00 % |", 1))
    done = subprocess.run([sys.executable, tmp_path / "tools/readme.py", "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "numbers.md does not have the tables" in done.stdout


def test_the_run_in_the_readme_is_a_whole_one():
    assert (TUTORIAL["seed"], TUTORIAL["epochs"], TUTORIAL["anomaly_epochs"]) == (42, 10, 20)
    verdicts = [r["verdict"] for r in TUTORIAL["rows"]]
    assert "DIFFERS" not in verdicts and verdicts.count("same") == 22
    found = {r["what"]: r["ours"] for r in TUTORIAL["rows"]}
    assert found["Val accuracy of the Reverse task"] == found["Test accuracy of the Reverse task"] == "100.00 %"
    assert TUTORIAL["seconds"] < 180


def test_what_is_determined_is_what_a_run_gives_now(tmp_path):
    """Cells 4 to 13 of a run; the trained ones are compared in test_tutorial.py."""
    from transformer_c.tutorials.uva_run import attention, encodings
    from transformer_c.tutorials.uva_run.report import Report

    report = Report(tmp_path, plots=False)
    attention.run(report)
    encodings.run(report)
    now = {(r.cell, r.what): (r.tutorial, r.ours, r.verdict) for r in report.rows}
    committed = {(r["cell"], r["what"]): (r["tutorial"], r["ours"], r["verdict"]) for r in TUTORIAL["rows"]}
    assert len(now) == 11 and now.items() <= committed.items()


def test_pictures_are_there_and_small():
    names = re.findall(r'(?:src="|!\[[^]]*\]\()([^")]+\.png)', README)
    assert names
    for name in names:
        assert (ROOT / name).read_bytes().startswith(b"\x89PNG") and (ROOT / name).stat().st_size < 60_000


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!https?:)([^)#]+)\)", README))))
def test_links(link):
    assert (ROOT / link).exists()


def test_the_commands_come_first():
    assert re.match(r"# transformer_c\n\n```\nmake tutorial .*\nmake test .*\n```\n\n<img ", README)


def test_every_page_is_linked():
    assert {f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")} - {"docs/index.md"} <= set(re.findall(r"\]\(([^)#]+)\)", README))
