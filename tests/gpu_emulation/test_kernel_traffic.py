"""What the kernels over rows and elements move stays near the least (tools/kernel_traffic.py); tests/test_sass.py looks at the widths of accesses."""

import dataclasses
import pathlib
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import kernel_traffic


def passed(row):
    """The limits that a row passes."""
    limits = (row.memory, row.sectors, row.requests)
    return [(found, limit) for found, limit in zip(kernel_traffic.ratios(row), limits, strict=True) if found > limit]


@pytest.mark.parametrize("row", kernel_traffic.ROWS, ids=lambda row: f"{row.name} {row.case}")
def test_no_kernel_moves_more_than_its_limit(row):
    assert not passed(row)


def test_a_second_pass_would_be_noticed():
    """Of one more array, were the counts those of a kernel that should move one less."""
    rows = [dataclasses.replace(row, operands=row.operands - 1) for row in kernel_traffic.ROWS if row.operands > 1]
    assert rows and all(passed(row) for row in rows)
