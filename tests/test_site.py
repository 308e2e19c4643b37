"""The site's sources: every public name is on a page and has an example that runs, and every name in a table exists. `make docs` builds it."""

import doctest
import importlib.util
import re
import types
from pathlib import Path

import numpy as np
import pytest
import transformer_c as tc

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("make_site", ROOT / "tools/make_site.py")
site = importlib.util.module_from_spec(spec)
spec.loader.exec_module(site)

SECTIONS: dict[str, list[str]] = {}  # example: its names
for name, text in site.examples().items():
    SECTIONS.setdefault(text, []).append(name)
OBJECTS = [(name, value) for name, value, first in site.public_objects() if name == first and callable(value)]
INDEX = (ROOT / "docs/index.md").read_text()


def without_example():
    more = site.examples()
    return [name for name, value in OBJECTS if ">>>" not in (value.__doc__ or "") and name not in more]


def test_every_public_name_has_an_example():
    assert not without_example(), "an example in the docstring, or in docs/examples/names.md"


# Bases, an error and a data set that tests meet in what they call.
BEHIND_OTHERS = {"tc.metrics.Metric", "tc.loggers.HistoryLog", "tc.testing.GradcheckError", "tc.tutorials.keras_book.ReviewDataset"}


def test_every_public_name_is_in_a_test():
    words = {word for path in (ROOT / "tests").rglob("*.py") for word in re.findall(r"\w+", path.read_text())}
    names = {name for name, _ in OBJECTS if not name.startswith("tc.ops.")} - BEHIND_OTHERS  # ops: tests/op_lists.py
    assert sorted(name for name in names if name.rpartition(".")[2] not in words) == [], "no file of tests/ has these names"


def test_every_public_name_is_on_a_page(tmp_path):
    site.reference(tmp_path / "reference")
    pages = {p.stem: p.read_text() for p in (tmp_path / "reference").glob("*.rst")}
    assert set(tc.__all__) <= {n.rpartition(".")[2] for n, _, _ in site.public_objects()} | {"__version__"}
    modules = [
        tc,
        tc.nn,
        tc.nn.init,
        tc.nn.utils,
        tc.nn.utils.rnn,
        tc.functional,
        tc.optim,
        tc.optim.lr_scheduler,
        tc.data,
        tc.datasets,
        tc.callbacks,
        tc.loggers,
    ]
    modules += [
        tc.plot,
        tc.sklearn,
        tc.convert,
        tc.models,
        tc.cuda,
        tc.testing,
        tc.ops,
        tc.tutorials.uva,
        tc.tutorials.godoy,
        tc.tutorials.keras_book,
    ]
    for module in modules:
        page = pages["tc" + module.__name__.removeprefix("transformer_c")]
        names = [n for n in getattr(module, "__all__", []) if not n.startswith("_")]
        missing = [n for n in names if not re.search(rf"\b{n}\b", page)]
        assert not missing and (names or not hasattr(module, "__all__")), module.__name__
    for name, _ in OBJECTS:
        module, _, own = name.rpartition(".")
        assert re.search(rf"^\.\. (autoclass|autofunction|autoexception|py:function):: {own}\b", pages[module], re.M), name


def test_modules_show_their_own_names_and_suggest_them():
    for name, module in site.public_modules().items():
        own = {n for n, v in vars(module).items() if isinstance(v, types.ModuleType) and v.__name__ == f"{module.__name__}.{n}"}
        shown = {n for n in dir(module) if not n.startswith("_")}
        assert shown <= own | set(site.public_names(module)) | {"cuda", "amp"}, name  # modules that may not be imported yet
        with pytest.raises(AttributeError, match="no attribute 'xyzzy'|has cuda, cudnn"):
            _ = module.xyzzy
    for module, wrong, right in (
        (tc.metrics, "Acuracy", "Accuracy"),
        (tc.callbacks, "EarlyStoping", "EarlyStopping"),
        (tc.nn.utils, "clip_grad_norm", "clip_grad_norm_"),
    ):
        with pytest.raises(AttributeError, match=f"did you mean '{right}'"):
            getattr(module, wrong)


def test_a_new_name_is_found(tmp_path, monkeypatch):
    """In a list of names it is on its page, and without an example it is refused."""

    class Added(tc.nn.Module):
        """A layer without an example."""

    before = without_example()
    monkeypatch.setattr(tc.nn, "Added", Added, raising=False)
    monkeypatch.setattr(tc.nn, "__all__", [*tc.nn.__all__, "Added"])
    monkeypatch.setitem(globals(), "OBJECTS", [(n, v) for n, v, first in site.public_objects() if n == first and callable(v)])
    assert set(without_example()) - set(before) == {"tc.nn.Added"}
    site.reference(tmp_path / "reference")
    assert ".. autoclass:: Added" in (tmp_path / "reference/tc.nn.rst").read_text()


def is_emulated():
    """Whether an earlier test of this process has opened the emulated GPU, which is no device="cuda"."""
    try:
        tc.ones(0, device="cuda")
    except RuntimeError as error:
        return "emulated" in str(error)
    return False


@pytest.mark.parametrize("text", SECTIONS, ids=[names[0] for names in SECTIONS.values()])
def test_examples_of_names(text, tmp_path, monkeypatch):
    if "plot_" in text or "tc.plot" in text or "TensorBoard" in text:
        pytest.importorskip("matplotlib")
    if "digits" in text:
        pytest.importorskip("sklearn")
    if "export_onnx" in text:
        pytest.importorskip("onnx")
    if is_emulated():
        monkeypatch.setattr(tc.cuda, "_why_not", lambda: "the GPU of this process is emulated")
    monkeypatch.chdir(tmp_path)
    tc.manual_seed(0)
    example = doctest.DocTestParser().get_doctest(text, {"np": np, "tc": tc}, SECTIONS[text][0], "names.md", 0)
    with np.printoptions(legacy="1.25" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else False):
        result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example)
    assert result.failed == 0 and result.attempted


def test_examples_use_the_names_of_their_title():
    public = {name for name, _, _ in site.public_objects()}
    for text, names in SECTIONS.items():
        for name in names:
            own = name.rpartition(".")[2]
            assert name in public, f"{name} is not public"
            assert own.lower() in text.lower() or re.sub("_(forward|backward)$", "", own) in re.findall(r"\w+", text), name


def test_names_in_the_tables_exist():
    text = (ROOT / "docs/coming-from.md").read_text()
    ours, theirs = (set(re.findall(rf"`({package}\.[\w.]+)`", text)) for package in ("tc", "torch"))
    assert len(ours) > 80 and len(theirs) > 40
    packages: dict[str, types.ModuleType] = {"tc": tc}
    try:
        import torch
        import torch.onnx

        packages["torch"] = torch
    except ImportError:
        theirs = set()
    missing = []
    for name in sorted(ours | theirs):
        first, *rest = name.split(".")
        value = packages[first]
        for part in rest:
            value = getattr(value, part, None)
        if value is None:
            missing.append(name)
    assert not missing


def test_the_index_has_every_page():
    listed = set(re.findall(r"^([\w/-]+)$", "\n".join(re.findall(r"```\{toctree\}\n(?::[^\n]*\n)*\n(.*?)```", INDEX, re.S)), re.M))
    pages = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in site.written()}
    notebooks = {f"notebooks/{p.stem}" for p in (ROOT / "notebooks").glob("*.ipynb")}
    others = {name.removesuffix(".md") for name in site.OTHERS}
    assert listed == (pages - {"index"}) | notebooks | others | {"gallery", "reference/index"}


@pytest.mark.parametrize("script", sorted((ROOT / "docs/gallery").glob("*.py")), ids=lambda p: p.stem)
def test_scripts_of_the_gallery(script):
    text = script.read_text()
    title, empty, words = text.split('"""')[1].split("\n")[:3]
    assert title and not title.endswith(".") and not empty and words
    assert "tc.plot." in text and len(text.splitlines()) <= 40
    assert "import numpy" not in text or "np." in text


def test_signs_of_docstrings_are_escaped():
    assert site.escaped("|x| of step_ and *args, `a|b` of ``**c``") == r"\|x\| of step\_ and \*args, `a|b` of ``**c``"
    assert site.escaped("Text\n\n>>> 2 ** 3 | 1\n9\n\na * b") == "Text\n\n>>> 2 ** 3 | 1\n9\n\na \\* b"


def test_broken_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">1</a><a href="c.html">2</a><a href="b.html#there">3</a><a href="https://x.y/z">4</a>'
    )
    (tmp_path / "b.html").write_text('<p id="here"></p><img src="none.png"><a href="#nowhere">5</a>')
    assert site.broken_links(tmp_path) == ["a.html: b.html#there", "a.html: c.html", "b.html: #nowhere", "b.html: none.png"]
