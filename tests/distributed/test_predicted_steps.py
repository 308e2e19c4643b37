"""The model of a step on n ranks, and docs/scale.md, which has its tables."""

import json
import os
from pathlib import Path

import pytest
from jobs import PACKAGE, Job, needs_mpi

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


@needs_mpi
def test_figures_and_a_trace_of_a_run(tmp_path):
    """Of a small model: what the model of a step needs, and when each rank summed its buckets."""
    script = """
        import sys
        from benchmarks import ranks
        from transformer_c.trainer import overlap
        overlap.BUCKET_BYTES, ranks.SIZES, ranks.WIDTH, ranks.LAYERS = 2**14, [256], 64, 2
        for kind in ranks.KINDS.values():
            kind.update(width=64, layers=2, length=2)
        sys.argv += ["--turns", "1", "--json", "found.json", "--trace", "trace.json"]
        ranks.main()
    """
    status, out, err = Job(2, script, tmp_path, PYTHONPATH=f"{PACKAGE}{os.pathsep}{PACKAGE.parent}").result()
    assert status == 0 and "step that computes  ddp, during" in out, err
    found, events = (json.loads((tmp_path / name).read_text()) for name in ("found.json", "trace.json"))
    model = scale.Model.of(found)
    assert found.keys() == FOUND.keys() and found["steps"].keys() == FOUND["steps"].keys()
    assert model.step(2) == pytest.approx(found["steps"]["computes"]["ddp"]["ms"]) and model.buckets > 2
    assert {(event["pid"], event["name"].split()[0]) for event in events["traceEvents"]} == {
        (rank, name) for rank in (0, 1) for name in ("backward", "wait", "sum")
    }
