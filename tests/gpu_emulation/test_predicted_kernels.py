"""tools/predict_kernels.py: the predicted times of the main kernels, and their table in docs/gpu/predicted-time.md."""

import pathlib
import re
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import predict_kernels
from gpu_time import A100


def test_the_page_has_the_tables():
    """Otherwise: python tools/predict_kernels.py --write."""
    assert predict_kernels.page_with(*predict_kernels.tables()) == predict_kernels.PAGE.read_text()


@pytest.mark.parametrize("measured", predict_kernels.MEASURED, ids=lambda one: f"{one.row.name} {one.row.shape} {one.gpu.name}")
def test_what_was_measured_is_counted_as_its_authors_do(measured):
    """The bytes of a kernel are what the operands have and little more; nobody measured more than the memory gives, with a cache of its size."""
    _, _, total = predict_kernels.time_of(measured.row, measured.gpu)
    assert 1e9 * measured.gigabytes == pytest.approx(total["MiB"] * 2**20, rel=0.01)
    assert measured.speed < measured.gpu.dram_bytes / 1e9


def test_sums_of_vectors_are_predicted_within_a_third():
    """Of sizes from a launch's time to that of memory; docs/gpu/predicted-time.md says what is off more, and why."""
    errors = [predict_kernels.error_of(one)[1] for one in predict_kernels.MEASURED if one.row.name == "x + y"]
    assert len(errors) == 8 and max(map(abs, errors)) < 1 / 3


@pytest.mark.parametrize("row", predict_kernels.ROWS, ids=lambda row: f"{row.name} {row.shape}")
def test_no_prediction_is_below_what_the_gpu_can_do(row):
    """Nor above a hundred times that, or what a launch of some microseconds hides."""
    time, _, total = predict_kernels.time_of(row, A100)
    lanes = 2048 / A100.mma if predict_kernels.counted(row)[1]["tensor"] else A100.multiply_adds
    least = max(total["multiply_adds"] / (lanes * A100.multiprocessors * A100.clock), total["MiB"] * 2**20 / A100.dram_bytes)
    launches = predict_kernels.counted(row)[1]["launches"]
    assert least < time.seconds - launches * A100.launch or time.seconds < 1.01 * (least + launches * A100.launch)
    assert time.seconds < 100 * least + launches * 5 * A100.launch


def test_a_product_is_counted_by_hand():
    """A tile of 128 x 128 with K = 768, by 8 warps of 32 threads of 8 x 8 results: of each k a thread loads four vectors from shared memory, where
    the 128 x 768 numbers of both operands went, and C goes there and is read again, to be written once."""
    (row,) = [row for row in predict_kernels.ROWS if row.shape == "4096 x 768 by 768 x 768" and row.name == "product"]
    _, counts = predict_kernels.counted(row)
    time, blocks, total = predict_kernels.time_of(row, A100)
    assert blocks == 32 * 6 and total["multiply_adds"] == 4096 * 768 * 768
    assert counts["load_bytes"] == 2 * 128 * 768 * 4 and counts["store_bytes"] == 128 * 128 * 4
    assert total["MiB"] == (4096 * 768 + 768 * 768 + 4096 * 768) * 4 / 2**20
    assert counts["wavefronts"] == counts["ideal_wavefronts"] == 8 * 768 * 4 * 4 + 2 * 128 * 768 / 32 + 2 * 128 * 128 / 32
    # of the 108 multiprocessors each has at most two tiles, whose multiply-adds bound it, 64 a cycle; no wait is left but for the last stage
    assert time.bound == "compute" and time.seconds == pytest.approx(2 * 128 * 128 * 768 / 64 / 1.41e9 + 4e-6, rel=0.02)


def test_a_large_product_of_halves_takes_most_of_the_tensor_cores():
    """Predicted: of the A100's 312 TFLOP/s at least 0.65, for 4096 x 4096 by 4096 x 4096."""
    (row,) = [row for row in predict_kernels.ROWS if row.shape == "4096 x 4096 by 4096 x 4096"]
    time, blocks, total = predict_kernels.time_of(row, A100)
    assert blocks == 32 * 32 and 2 * total["multiply_adds"] / time.seconds / 312e12 > 0.65


@pytest.mark.parametrize(("size", "share"), [(64, 0.40), (128, 0.45)])
def test_attention_of_halves_takes_its_share_of_the_tensor_cores(size, share):
    (row,) = [row for row in predict_kernels.ROWS if row.name == "attention, bfloat16" and row.shape.endswith(f" of 512 x {size}")]
    time, _, total = predict_kernels.time_of(row, A100)
    assert 2 * total["multiply_adds"] / time.seconds / 312e12 > share
    _, counts = predict_kernels.counted(row)
    assert counts["wavefronts"] == counts["ideal_wavefronts"] and counts["tensor"] == 2 * 512 * 512 * size / 2048


@pytest.mark.parametrize(("name", "products", "share"), [("dQ", 3, 0.5), ("dK, dV", 4, 0.4)])
@pytest.mark.parametrize("size", [64, 128])
def test_gradients_of_attention_take_their_share_of_the_tensor_cores(name, products, share, size):
    name, shape = f"attention, backward ({name}), bfloat16", f" of 512 x {size}"
    (row,) = [row for row in predict_kernels.ROWS if row.name == name and row.shape.endswith(shape)]
    time, _, total = predict_kernels.time_of(row, A100)
    assert 2 * total["multiply_adds"] / time.seconds / 312e12 > share
    _, counts = predict_kernels.counted(row)
    assert counts["wavefronts"] == counts["ideal_wavefronts"] and counts["tensor"] == products * 512 * 512 * size / 2048


def test_a_page_without_a_place_is_an_error(tmp_path, monkeypatch):
    page = tmp_path / "gpu.md"
    page.write_text("no table")
    monkeypatch.setattr(predict_kernels, "PAGE", page)
    with pytest.raises(ValueError, match="has 0 places"):
        predict_kernels.page_with("")


def test_every_time_on_the_page_is_called_predicted():
    """In the heads of its tables, and README says in one line that no figure is a GPU's, until there are results of `make gpu-test`."""
    page = predict_kernels.PAGE.read_text()
    times = 0
    for head, rows in re.findall(r"^(\|.*\|)\n\|[-:|]+\|\n((?:\|.*\|\n)+)", page, flags=re.M):
        names = head.split("|")
        for row in rows.splitlines():
            for name, cell in zip(names, row.split("|"), strict=True):
                if re.fullmatch(r" [\d.]+ [mun]?s ", cell):
                    times += 1
                    assert "predicted" in name, (head, row)
    assert times == len(predict_kernels.ROWS)
    root = predict_kernels.ROOT
    runs = [folder for folder in (root / "benchmarks" / "results").glob("*-gpu") if folder.is_dir()]
    assert bool(runs) != ("no figure here comes from a GPU yet" in (root / "README.md").read_text())
