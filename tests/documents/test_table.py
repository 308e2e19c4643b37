"""docs/documents.md has every row of the documents, and the tests that it names exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs/documents.md").read_text()
ROWS = {"A": [*range(2, 43)], "B": [1, 4, 6, 9], "C": [*range(1, 12)], "D": [*range(1, 19)], "E": [*range(1, 13)]}


def rows():
    """The labels of all rows, ranges and lists spelt out."""
    found = []
    for cell in re.findall(r"^\| ([A-E]\d+[^|]*) \|", TABLE, re.M):
        numbers = [int(n) for n in re.findall(r"[A-E](\d+)", cell)]
        found += [f"{cell[0]}{n}" for n in (range(numbers[0], numbers[1] + 1) if " to " in cell else numbers)]
    return found


def test_every_row_once():
    assert sorted(rows()) == sorted(f"{letter}{n}" for letter, numbers in ROWS.items() for n in numbers)


def test_the_named_tests_are_there():
    named = set(re.findall(r"`((?:\w+/)*test_\w+\.py)(?:::(\w+))?`", TABLE))
    assert len(named) > 60
    for file, function in sorted(named):
        text = (ROOT / "tests" / file).read_text()
        assert not function or f"def {function}(" in text, f"{file} has no {function}"
