"""Every figure: its axes, labels, units, ticks and scales; refusals; no display, no pyplot, and matplotlib is imported only when it is needed."""

import itertools
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import transformer_c as tc

pytest.importorskip("matplotlib")
import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

RNG = np.random.default_rng(3)
MAPS = [RNG.random((5, 3, 6, 6)) for _ in range(2)]
SCHEDULE = tc.CosineWarmupScheduler(tc.optim.Adam([tc.nn.Parameter(tc.zeros(2))], lr=1e-3), warmup=100, max_iters=2000)
HISTORY = {
    "epoch": [1, 2, 3],
    "step": [9, 18, 27],
    "train_loss": [2.0, 1.0, 0.5],
    "val_loss": [2.1, float("nan"), 0.7],
    "val_acc": [0.1, 0.5, 1.0],
}
POINTS, DIRECTIONS = tc.datasets.square_sequences(n=7)
IMAGES = RNG.random((3, 10, 8, 8))

FIGURES = {
    "attention_maps": lambda: tc.plot.attention_maps(MAPS, title="maps"),
    "attention_maps of one layer": lambda: tc.plot.attention_maps(MAPS[:1]),
    "attention_maps of words": lambda: tc.plot.attention_maps(
        MAPS[:1], ["a", "truly", "tedious", "and", "endless", "story"], title="words"
    ),
    "attention_maps with a scale for each": lambda: tc.plot.attention_maps(MAPS, title="maps", scale="panel"),
    "attention_maps of one head": lambda: tc.plot.attention_maps(MAPS[0][:, :1]),
    "attention_maps of long words": lambda: tc.plot.attention_maps(
        RNG.random((1, 3, 6, 6)), [["transformer", "attention", "<unk>", "der", "Geschwindigkeit", "a"]]
    ),
    "attention_maps of a strip": lambda: tc.plot.attention_maps(RNG.random((1, 2, 3, 40)), title="strip"),
    "patches in a row": lambda: tc.plot.patches(RNG.random((100, 4)), grid=(1, 100)),
    "positional_encoding": lambda: tc.plot.positional_encoding(tc.PositionalEncoding(48, 96)),
    "positional_encoding curves": lambda: tc.plot.positional_encoding(tc.PositionalEncoding(48, 96), range(1, 5), 16),
    "learning_rate": lambda: tc.plot.learning_rate(SCHEDULE),
    "losses": lambda: tc.plot.losses(HISTORY, log=True, title="run"),
    "sequences": lambda: tc.plot.sequences(POINTS, DIRECTIONS, POINTS[:, 2:] + 0.1, title="predicted"),
    "image_sets": lambda: tc.plot.image_sets(IMAGES, [9, 9, 9], [9, 2, 9]),
    "patches": lambda: tc.plot.patches(RNG.random((16, 49)), title="3 / 8", correct=False),
}


def image_of(ax):
    return ax.get_images()[0]


def frame_of(ax):
    return matplotlib.colors.to_hex(ax.spines["left"].get_edgecolor())


def test_every_figure_is_drawn_here_and_in_the_docs():
    page = (Path(__file__).parents[1] / "docs/figures.md").read_text()
    assert {name.split()[0] for name in FIGURES} == set(tc.plot.__all__) == set(re.findall(r"tc\.plot\.(\w+)\(", page))


@pytest.mark.parametrize("style", ["default", "dark_background"])
@pytest.mark.parametrize("name", FIGURES)
def test_drawn_whole_and_readable(name, style):
    with matplotlib.style.context(style):
        figure = FIGURES[name]()
        FigureCanvasAgg(figure).draw()  # once, as where it is saved: a second layout would come out better
        for around in (ax.get_tightbbox() for ax in figure.axes):
            assert around.x0 >= 0 and around.y0 >= 0 and around.x1 <= figure.bbox.width and around.y1 <= figure.bbox.height, "cut off"
    picture, shown = figure._repr_png_()
    assert isinstance(figure, Figure) and len(picture) > 3000
    ground = to_rgb(figure.get_facecolor())
    for ax in figure.axes:
        for text in (ax.title, ax.xaxis.label, ax.yaxis.label, figure._suptitle or ax.title):
            assert np.abs(np.subtract(to_rgb(text.get_color()), ground)).max() > 0.4, f"{text.get_text()!r} cannot be read"
    assert picture.startswith(b"\x89PNG")
    assert [abs(int.from_bytes(picture[i : i + 4], "big") - 2 * shown[side]) <= 1 for i, side in ((16, "width"), (20, "height"))] == [
        True,
        True,
    ]


def test_attention_maps():
    figure = tc.plot.attention_maps(MAPS, np.arange(30).reshape(5, 6), idx=2, title="maps")
    *panels, bar = figure.axes
    assert [p.get_title() for p in panels] == [f"Layer {r}, Head {c}" for r in (1, 2) for c in (1, 2, 3)]
    assert figure.get_suptitle() == "maps" and bar.get_ylabel() == "attention weight"
    assert (
        [t.get_text() for t in panels[0].get_xticklabels()]
        == [t.get_text() for t in panels[0].get_yticklabels()]
        == ["12", "13", "14", "15", "16", "17"]
    )
    assert panels[3].get_xlabel() == "key" and panels[3].get_ylabel() == "query" and panels[1].get_ylabel() == ""
    top = max(m[2].max() for m in MAPS)
    for i, panel in enumerate(panels):
        image = image_of(panel)
        assert (np.asarray(image.get_array()) == MAPS[i // 3][2, i % 3]).all()
        assert image.get_clim() == (0.0, top) and image.origin == "lower"


def test_attention_maps_with_a_scale_for_each():
    """A head that attends to one key does not hide another one's differences."""
    maps = np.stack([np.eye(4), np.full((4, 4), 0.25)])
    panels = tc.plot.attention_maps(maps, scale="panel").axes
    assert [image_of(p).get_clim() for p in panels] == [(0.0, 1.0), (0.0, 0.25)]
    assert [p.get_title() for p in panels] == ["Layer 1, Head 1, to 1.00", "Layer 1, Head 2, to 0.25"]


def test_attention_maps_of_other_forms():
    cross = tc.plot.attention_maps(RNG.random((2, 3, 5)), ["the", "cat", "sat", "down", "."], query_data=[7, 8, 9])
    assert [t.get_text() for t in cross.axes[0].get_xticklabels()] == ["the", "cat", "sat", "down", "."]
    assert [t.get_text() for t in cross.axes[0].get_yticklabels()] == ["7", "8", "9"]
    assert len(tc.plot.attention_maps(tc.tensor(RNG.random((4, 4)), requires_grad=True)).axes) == 2
    words = ["a", "tedious", "story", "with", "an", "awful", "ending"]
    of_words = tc.plot.attention_maps(RNG.random((2, 7, 7)), words)
    FigureCanvasAgg(of_words).draw()
    seen = [label.get_window_extent() for label in of_words.axes[0].get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(seen))
    long = tc.plot.attention_maps(RNG.random((1, 1, 300, 300)))
    assert len(long.axes[0].get_xticks()) <= 20 and long.axes[0].get_xticks()[0] == 0


def test_layers_of_different_numbers_of_heads():
    *panels, _ = tc.plot.attention_maps([MAPS[0], MAPS[1][:, :2]]).axes
    assert [bool(p.get_images()) for p in panels] == [p.axison for p in panels] == [True] * 5 + [False]


def test_labels_stand_apart():
    """Long words are vertical, and a strip is drawn wider than it is."""
    for name, axis in (
        ("attention_maps of long words", "xaxis"),
        ("attention_maps of long words", "yaxis"),
        ("attention_maps of a strip", "yaxis"),
    ):
        figure = FIGURES[name]()
        FigureCanvasAgg(figure).draw()
        low, high = ("x0", "x1") if axis == "xaxis" else ("y0", "y1")
        boxes = [t.get_window_extent() for t in getattr(figure.axes[0], axis).get_ticklabels()]
        assert len(boxes) >= 3 and all(getattr(a, high) <= getattr(b, low) for a, b in itertools.pairwise(boxes)), name


def test_maps_that_are_no_weights():
    """Scores, nan and infinity: the scale is that of the finite values."""
    scores = np.array([[[-2.0, np.inf], [np.nan, 3.0]]])
    for given, limits in ((scores, (-2, 3)), (scores * np.nan, (0, 1)), (-np.ones((2, 2)), (-1, 1)), (np.zeros((2, 2)), (0, 1))):
        figure = tc.plot.attention_maps(given)
        assert image_of(figure.axes[0]).get_clim() == limits
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            FigureCanvasAgg(figure).draw()


def test_words_of_a_batch():
    words = [["a", "b"], ["c", "d"]]
    for given in (words, np.array(words)):
        figure = tc.plot.attention_maps(RNG.random((2, 1, 2, 2)), given, idx=1)
        assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == ["c", "d"]


def test_what_is_not_finite_is_left_out():
    """A model that has diverged says nan."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for figure in (
            tc.plot.sequences(POINTS, None, np.full_like(POINTS[:, 2:], np.nan)),
            tc.plot.sequences(np.zeros((2, 3, 2))),
            tc.plot.sequences(np.zeros((2, 0, 2))),
            tc.plot.image_sets(np.full((2, 3, 4, 4), np.nan)),
            tc.plot.patches(np.full((4, 4), np.nan)),
        ):
            FigureCanvasAgg(figure).draw()
    reach = 1.25 * np.abs(POINTS).max()
    assert np.allclose(tc.plot.sequences(POINTS, None, np.full_like(POINTS[:, 2:], np.nan)).axes[0].get_xlim(), (-reach, reach))


def test_attention_maps_of_a_model():
    model = tc.TransformerPredictor(4, 8, 4, 2, 3, lr=1e-3, warmup=5, max_iters=10)
    figure = tc.plot.attention_maps(model.get_attention_maps(tc.randn(2, 5, 4)), idx=1)
    assert len(figure.axes) == 7


def test_positional_encoding_picture():
    module = tc.PositionalEncoding(48, 96)
    for given in (module, module.pe, module.pe[0].numpy()):
        ax, bar = tc.plot.positional_encoding(given).axes
        assert ax.get_title() == "Positional encoding over hidden dimensions" and bar.get_ylabel() == "encoding"
        assert ax.get_xlabel() == "position in sequence" and ax.get_ylabel() == "hidden dimension"
        assert (np.asarray(image_of(ax).get_array()) == module.pe[0].numpy().T).all() and image_of(ax).get_clim() == (-1, 1)
        assert ax.get_xticks().tolist() == [1, *range(10, 100, 10)] and ax.get_yticks().tolist() == [1, 10, 20, 30, 40]
        assert image_of(ax).get_cmap().name == "RdGy"


def test_positional_encoding_curves():
    module = tc.PositionalEncoding(48, 96)
    figure = tc.plot.positional_encoding(module, [1, 2, 3, 4], positions=16)
    assert [a.get_title() for a in figure.axes] == [f"Encoding in hidden dimension {i}" for i in (1, 2, 3, 4)]
    for i, ax in enumerate(figure.axes):
        x, y = ax.lines[0].get_data()
        assert x.tolist() == list(range(1, 17)) and (y == module.pe[0, :16, i].numpy()).all()
        assert ax.get_ylim() == (-1.2, 1.2) and ax.get_xticks().tolist() == list(range(1, 17))
    assert figure.axes[2].get_xlabel() == "position in sequence" and figure.axes[2].get_ylabel() == "encoding"


def test_learning_rate():
    (ax,) = tc.plot.learning_rate(SCHEDULE).axes
    x, y = ax.lines[0].get_data()
    assert len(x) == 2000 and y[0] == 0 and abs(y[100] - 0.9938442) < 1e-7 and abs(y[1000] - 0.5) < 1e-9
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step (batches)", "learning rate factor")
    assert ax.get_title() == "Cosine warm-up learning rate schedule" and ax.texts[0].get_text() == "warm-up ends: step 100"
    (ax,) = tc.plot.learning_rate([1e-3, 5e-4, 1e-4], title="mine").axes
    assert ax.get_ylabel() == "learning rate" and ax.get_title() == "mine" and ax.lines[0].get_ydata().tolist() == [1e-3, 5e-4, 1e-4]
    (ax,) = tc.plot.learning_rate(lambda step: 0.9**step, steps=5).axes
    assert ax.lines[0].get_ydata().tolist() == [0.9**s for s in range(5)]


def test_losses():
    left, right = tc.plot.losses(HISTORY, log=True).axes
    assert [t.get_text() for t in left.get_legend().get_texts()] == ["train_loss", "val_loss"]
    assert (left.get_xlabel(), left.get_ylabel(), left.get_yscale()) == ("epoch", "loss", "log")
    assert left.lines[1].get_xdata().tolist() == [1, 3]  # an epoch that was not validated
    assert right.get_ylabel() == "accuracy (%)" and right.lines[0].get_ydata().tolist() == [10, 50, 100]
    trainer = tc.Trainer(max_epochs=3, progress=False)
    trainer.history = HISTORY
    assert len(tc.plot.losses(trainer).axes) == 2
    (ax,) = tc.plot.losses(tc.tensor([3.0, 2.0])).axes
    assert ax.lines[0].get_data()[0].tolist() == [1, 2]


def test_sequences():
    figure = tc.plot.sequences(POINTS, DIRECTIONS, POINTS[:, 2:] + 0.1)
    shown = [a for a in figure.axes if a.axison]
    assert [a.get_title() for a in shown] == ["clockwise" if d else "counter-clockwise" for d in DIRECTIONS]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["true", "predicted"]
    true, guess = shown[3].lines
    assert (POINTS[3] == np.array(true.get_data()).T).all() and guess.get_linestyle() == "--"
    assert (np.concatenate([POINTS[3, 1:2], POINTS[3, 2:] + 0.1]) == np.array(guess.get_data()).T).all()
    numbers = [t for t in shown[3].texts if t.get_text()]
    assert [t.get_text() for t in numbers] == list("1234") and (np.array([t.xy for t in numbers]) == POINTS[3]).all()
    assert shown[0].get_ylabel() == "$x_1$" and shown[-1].get_xlabel() == "$x_0$"
    beyond = tc.plot.sequences(POINTS[:, :2], predictions=POINTS[:, 2:], beyond=True)
    given, guess = beyond.axes[0].lines
    assert np.allclose(given.get_xydata(), POINTS[0, :2]) and np.allclose(guess.get_xydata(), POINTS[0, 1:])
    assert [text.get_text() for text in beyond.legends[0].get_texts()] == ["given", "predicted"]
    lengths, _ = tc.datasets.square_sequences(n=12, variable_len=True)
    assert len(tc.plot.sequences(lengths, most=4, n_rows=2).axes) == 4


def test_image_sets_title_says_what_is_drawn():
    draw = lambda *arguments: tc.plot.image_sets(*arguments).get_suptitle()
    assert draw(IMAGES, [9, 9, 9], [9, 2, 9]) == "Sets of images; green: the anomaly, red: a wrong prediction"
    assert draw(IMAGES, [9, 9, 9], [9, 9, 9]) == "Sets of images; green: the anomaly, as predicted"
    assert draw(IMAGES[:1], [9]) == "One set of images; green: the anomaly"
    assert draw(IMAGES[0], None, [2]) == "One set of images; the prediction is framed"


def test_image_sets_frames():
    figure = tc.plot.image_sets(IMAGES, [9, 9, 9], [9, 2, 9], np.full((3, 10), 0.1), titles=np.arange(30).reshape(3, 10))
    axes = np.array(figure.axes).reshape(3, 10)
    green, red = frame_of(axes[0, 9]), frame_of(axes[1, 2])
    assert green != red and frame_of(axes[1, 9]) == green and frame_of(axes[0, 2]) not in (green, red)
    assert axes[2, 4].get_xlabel() == "10.0 %" and axes[2, 4].get_title() == "24" and axes[1, 0].get_ylabel() == "set 1"
    assert image_of(axes[0, 0]).get_clim() == (IMAGES.min(), IMAGES.max()) and "green" in figure.get_suptitle()
    assert len(tc.plot.image_sets(RNG.random((2, 4, 6, 6, 3))).axes) == 8
    assert len(tc.plot.image_sets(RNG.random((4, 6, 6, 3))).axes) == len(tc.plot.image_sets(RNG.random((4, 6, 6))).axes) == 4


def test_patches():
    values = RNG.random((16, 49))
    figure = tc.plot.patches(values, title="3 / 8", correct=False)
    assert len(figure.axes) == 16 and figure.get_suptitle() == "3 / 8"
    assert (np.asarray(image_of(figure.axes[5]).get_array()) == values[5].reshape(7, 7)).all()
    assert len({image_of(a).get_clim() for a in figure.axes}) == 1
    assert len(tc.plot.patches(RNG.random((6, 8)), grid=(2, 3), patch_size=(2, 4)).axes) == 6


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: tc.plot.attention_maps([]), ValueError, "at least one layer"),
        (lambda: tc.plot.attention_maps(MAPS, idx=5), IndexError, "5 batch elements"),
        (lambda: tc.plot.attention_maps(MAPS, list("abc")), ValueError, "input_data has 3 positions"),
        (lambda: tc.plot.attention_maps(MAPS, idx=True), TypeError, "idx is of type bool"),
        (lambda: tc.plot.attention_maps(MAPS, np.zeros((2, 6)), idx=4), IndexError, "input_data has 2 rows"),
        (lambda: tc.plot.attention_maps(MAPS, [[["a"]]]), ValueError, "1 or 2 dimensions"),
        (lambda: tc.plot.positional_encoding(np.zeros((0, 4))), ValueError, "nothing to draw"),
        (lambda: tc.plot.learning_rate(tc.optim.LambdaLR(SCHEDULE.optimizer, lambda s: 1.0)), TypeError, "its function of the step"),
        (lambda: tc.plot.attention_maps(np.zeros(3)), ValueError, r"\(3,\)"),
        (lambda: tc.plot.positional_encoding(tc.PositionalEncoding(8, 9), [0]), ValueError, "1 to 8"),
        (lambda: tc.plot.positional_encoding(tc.PositionalEncoding(8, 9), positions=10), ValueError, "has 9"),
        (lambda: tc.plot.learning_rate(lambda s: 1.0), ValueError, "steps is missing"),
        (lambda: tc.plot.losses({"epoch": [1]}), ValueError, "no values"),
        (lambda: tc.plot.losses(["a"]), TypeError, "expected numbers"),
        (lambda: tc.plot.sequences(np.zeros((2, 4, 3))), ValueError, r"expected \(L, 2\)"),
        (lambda: tc.plot.sequences(POINTS, DIRECTIONS[:3]), ValueError, "3 entries for 7"),
        (lambda: tc.plot.attention_maps(MAPS, scale="row"), ValueError, "figure"),
        (lambda: tc.plot.image_sets(IMAGES, [10, 0, 0]), ValueError, "0 to 9"),
        (lambda: tc.plot.image_sets(IMAGES, [9]), ValueError, "one per set"),
        (lambda: tc.plot.image_sets(np.zeros((2, 4, 3, 8, 8))), ValueError, "colours are the last axis"),
        (lambda: tc.plot.patches(np.zeros((3, 49))), ValueError, "grid="),
        (lambda: tc.plot.patches(np.zeros((4, 7))), ValueError, "patch_size="),
    ],
)
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call()


def in_a_fresh_process(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_matplotlib_only_when_called_and_never_pyplot():
    code = """
import sys, numpy as np, transformer_c as tc
assert "matplotlib" not in sys.modules
tc.plot.patches(np.zeros((4, 4))).savefig
assert "matplotlib" in sys.modules and "matplotlib.pyplot" not in sys.modules
"""
    in_a_fresh_process(code)


def test_without_matplotlib_the_extra_is_named():
    code = """
import sys; sys.modules["matplotlib"] = None
import numpy as np, transformer_c as tc
try:
    tc.plot.patches(np.zeros((4, 4)))
except ModuleNotFoundError as error:
    print(error)
"""
    assert "pip install 'transformer_c[tutorial]'" in in_a_fresh_process(code)
