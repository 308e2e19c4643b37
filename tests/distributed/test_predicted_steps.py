"""The model of a step on n ranks, and docs/scale.md, which has its tables."""

import json
from pathlib import Path

import pytest

from benchmarks import scale

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
FOUND = json.loads(scale.FILE.read_text())
MEASURED = scale.Model.of(FOUND)
SIMPLE = scale.Model(compute=10, fixed=1, gradients=8, latency=0.5, bandwidth=2, copy=0.25, buckets=4, left=1, window=3)


@pytest.mark.parametrize(
    "text", [scale.sums(FOUND), scale.measured(FOUND), scale.left(FOUND), MEASURED.constants(), scale.predicted(MEASURED)]
)
def test_the_page_has_what_the_model_says(text):
    assert text in PAGE, f"docs/scale.md lacks what python -m benchmarks.scale prints:\n{text}"


@pytest.mark.parametrize("ranks, is_tree, expected", [(1, False, 10), (2, False, 16), (8, False, 25), (8, True, 21)])
def test_an_exchange_after_the_backward(ranks, is_tree, expected):
    assert SIMPLE.step(ranks, is_tree) == expected


@pytest.mark.parametrize("window, expected", [(3, 16.5), (7, 13.5), (0, 19.5)])
def test_an_exchange_during_the_backward(window, expected):
    """Four buckets take 8 ms, of which a quarter is left at least, and two copies take half a ms."""
    model = scale.Model(**{**vars(SIMPLE), "window": window})
    assert model.step_during(2) == expected


def test_the_model_of_what_was_measured():
    """It gives the steps that it was made of, and each rank sends what tests count."""
    assert MEASURED.step(FOUND["ranks"]) == pytest.approx(FOUND["steps"]["computes"]["ddp"]["ms"])
    assert MEASURED.step(1) == FOUND["steps"]["computes"]["each by itself"]["ms"]
    assert MEASURED.bytes_sent(2) == FOUND["gradients"] / 1e6 and MEASURED.over(0.0, 1e9).step(2) == pytest.approx(
        MEASURED.compute + MEASURED.fixed
    )
