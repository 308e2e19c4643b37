"""The site: docs/*.md, the notebooks as they are committed, a gallery and a reference of every public name, by Sphinx.

python tools/make_site.py             writes build/docs; a warning of Sphinx or a broken internal link is an error
python tools/make_site.py --sources   only lays the pages out in build/site
python tools/make_site.py --pictures  only draws the README's pictures, docs/images, from two scripts of the gallery

The pages of docs/ are taken as they are. The gallery's pictures are drawn by the scripts of docs/gallery. The reference lists the names of
`__all__` of the package and of every public module in it, so that a new name is on a page without further work; examples of names whose
docstring has none are in docs/examples/names.md.
"""

from __future__ import annotations

import argparse
import html
import inspect
import re
import runpy
import shutil
import sys
import time
import types
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import transformer_c as tc

ROOT = Path(__file__).resolve().parents[1]
SITE, PAGES = ROOT / "build/site", ROOT / "build/docs"
EXAMPLES = ROOT / "docs/examples/names.md"
PICTURES = ("training", "positions")  # of the gallery, in the README
IN_C = (tc.Tensor, tc.Generator)
OTHERS = ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md")  # pages that are not in docs/
TITLES = {  # of the modules, in the reference's order; another public module comes after these
    "tc": "Tensors, seeds, files: the package itself",
    "tc.nn": "Layers",
    "tc.nn.init": "Initial weights",
    "tc.nn.utils": "Norms of gradients, parameters as a vector",
    "tc.nn.utils.rnn": "Sequences of different lengths",
    "tc.functional": "Functions",
    "tc.optim": "Optimizers",
    "tc.optim.lr_scheduler": "Learning-rate schedules",
    "tc.amp": "Training in float16",
    "tc.data": "Loaders and samplers",
    "tc.datasets": "Data sets",
    "tc.callbacks": "Callbacks",
    "tc.loggers": "Loggers",
    "tc.metrics": "Metrics",
    "tc.plot": "Figures",
    "tc.sklearn": "Estimators for scikit-learn",
    "tc.convert": "Weights in another order",
    "tc.cuda": "GPUs",
    "tc.testing": "Checks of gradients",
    "tc.ops": "Kernels without a tape",
}


def public_names(module: types.ModuleType) -> list[str]:
    """Those of `__all__`, and tc.sklearn, which needs an extra; without `__all__` the functions and classes that the module defines."""
    if hasattr(module, "__all__"):
        more = ["sklearn"] if module is tc else []
        return sorted(n for n in [*module.__all__, *more] if not n.startswith("_"))
    own = (module.__name__, "transformer_c._core")
    return sorted(n for n, v in vars(module).items() if not n.startswith("_") and getattr(v, "__module__", None) in own)


def public_modules() -> dict[str, types.ModuleType]:
    """Each public module by its first name ("tc.nn"): the package, the modules among its names and among theirs."""
    found: dict[str, types.ModuleType] = {}

    def visit(name: str, module: types.ModuleType) -> None:
        if not module.__name__.startswith("transformer_c") or module in found.values():
            return
        found[name] = module
        inner = [n for n in public_names(module) if isinstance(getattr(module, n), types.ModuleType)]
        # submodules that are not in __all__, such as tc.nn.init
        inner += [
            n
            for n, v in vars(module).items()
            if isinstance(v, types.ModuleType) and v.__name__ == f"{module.__name__}.{n}" and name != "tc"
        ]
        for part in sorted(
            {n for n in inner if not n.startswith("_")}, key=lambda n: (f"{module.__name__}.{n}" != getattr(module, n).__name__, n)
        ):
            if name == "tc" or f"{name}.{part}" in TITLES or part in public_names(module):
                visit(f"{name}.{part}", getattr(module, part))

    visit("tc", tc)
    return {name: found[name] for name in sorted(found, key=lambda n: (list(TITLES).index(n) if n in TITLES else len(TITLES), n))}


def public_objects() -> Iterator[tuple[str, object, str]]:
    """Every public name with its value, and the name under which the reference describes it: its own, or an earlier one of the same object."""
    first: dict[int, str] = {id(module): name for name, module in public_modules().items()}
    keep = []  # the values, so that an id stays one object's
    for name, module in public_modules().items():
        for part in public_names(module):
            value = getattr(module, part)
            keep.append(value)
            described = inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, types.ModuleType)
            yield f"{name}.{part}", value, first.setdefault(id(value), f"{name}.{part}") if described else f"{name}.{part}"


def expanded(title: str) -> list[str]:
    """The names of a title: `tc.a`, `tc.b`, and `tc.{a,b}_{forward,backward}` for all four."""

    def spread(name: str) -> list[str]:
        found = re.search(r"\{([^{}]*)\}", name)
        return (
            [full for part in found[1].split(",") for full in spread(name[: found.start()] + part + name[found.end() :])]
            if found
            else [name]
        )

    return [name for pattern in re.findall(r"`([^`]+)`", title) for name in spread(pattern)]


def examples() -> dict[str, str]:
    """The examples of docs/examples/names.md, by name."""
    found = {}
    for section in re.split(r"^## ", EXAMPLES.read_text(), flags=re.M)[1:]:
        title, text = section.split("\n", 1)
        block = re.search(r"```python\n(.*?)\n*```", text, re.S)
        assert block, f"{EXAMPLES.name}: {title} has no example"
        for name in expanded(title):
            found[name] = block[1]
    return found


def escaped(text: str) -> str:
    """A docstring as reStructuredText: signs that mean something there are escaped, except in `code` and in examples."""

    def plain(words: str) -> str:
        return re.sub(r"(?<=\w)_(?!\w)|[|*]", lambda found: "\\" + found[0], words)

    parts = []
    for paragraph in re.split(r"(\n[ ]*\n)", text):
        if not paragraph.lstrip().startswith(">>>"):
            spans = re.split(r"(``.*?``|`[^`]*`_*)", paragraph, flags=re.S)
            paragraph = "".join(span if i % 2 else plain(span) for i, span in enumerate(spans))
        parts.append(paragraph)
    return "".join(parts)


def summary(value: object) -> str:
    """The first paragraph of a docstring, in one line of a table."""
    text = inspect.getdoc(value) or ""
    return escaped(re.sub(r"\s+", " ", text.split("\n\n")[0]).strip())


def members(kind: type) -> list[str]:
    """The methods and attributes of a class in C, whose signatures do not begin with self as Python's do."""
    lines = []
    for name in sorted(n for n in dir(kind) if not n.startswith("_")):
        value = getattr(kind, name)
        if callable(value):
            try:
                arguments = [a.replace(annotation=a.empty) for a in inspect.signature(value).parameters.values()]
                signature = str(inspect.Signature([a for i, a in enumerate(arguments) if i or a.kind is not a.POSITIONAL_OR_KEYWORD]))
            except ValueError:
                signature = "()"
            lines += [f"   .. py:method:: {name}{signature}", ""]
        else:
            lines += [f"   .. py:attribute:: {name}", ""]
        text = escaped(inspect.getdoc(value) or "")
        if "----" in text:  # the function of the same name says more
            text = text.split("\n\n")[0]
            other = next((m for m in (tc, tc.functional) if name in public_names(m)), None)
            text += f"\n\nArguments: :py:obj:`tc.{name} <{other.__name__}.{name}>`." if other else ""
        lines += [*(f"      {line}".rstrip() for line in text.splitlines()), ""]
    return lines


def entry(name: str, value: object, example: str | None) -> list[str]:
    """What the reference says about one name."""
    path = "transformer_c" + name[2:]
    module, _, own = path.rpartition(".")
    lines = [f".. currentmodule:: {module}", ""]
    if inspect.isclass(value):
        exception = issubclass(value, BaseException)
        brief = exception or value in IN_C or value.__module__ in ("builtins", "numpy")  # those of Python and NumPy have pages elsewhere
        lines += [f".. auto{'exception' if exception else 'class'}:: {own}", *([] if brief else ["   :members:"]), ""]
    elif getattr(value, "__module__", "") == "transformer_c._core" and "----" not in (value.__doc__ or ""):
        # as autofunction would have it, in a tenth of the time
        lines += [
            f".. py:function:: {own}{inspect.signature(value)}",
            "",
            *(f"   {line}" for line in escaped(inspect.getdoc(value) or "").splitlines()),
            "",
        ]
    else:
        lines += [f".. autofunction:: {own}", ""]
    if value in IN_C:
        lines += members(value)
    if example and ">>>" not in (value.__doc__ or ""):
        lines += ["   .. rubric:: Examples", "", *(f"   {line}".rstrip() for line in example.splitlines()), ""]
    return lines


def reference(folder: Path) -> None:
    """A page for every public module: a table of its names, then the entry of each."""
    folder.mkdir(parents=True)
    modules, more = public_modules(), examples()
    names = list(public_objects())
    for module_name, module in modules.items():
        title = f"{module_name}: {TITLES[module_name]}" if module_name in TITLES else module_name
        lines = [title, "=" * len(title), "", f".. module:: {module.__name__}", ""]
        if module is not tc:
            lines += [*((module.__doc__ or "").strip().split("\n\n")[0].splitlines()), ""]
        rows, entries = [], []
        for full, value, first in names:
            if full.rpartition(".")[0] != module_name:
                continue
            target = "transformer_c" + first[2:]
            if isinstance(value, types.ModuleType):
                if first in modules:
                    rows.append((f":doc:`{full} <{first}>`", summary(value)))
                continue
            if not (inspect.isclass(value) or inspect.isroutine(value)):
                rows.append((f"``{full}``", f"``{value!r}``" if isinstance(value, (str, int, float)) else summary(value)))
                continue
            rows.append((f":py:obj:`{full} <{target}>`", summary(value) if first == full else f"another name of ``{first}``"))
            if first == full:
                entries += entry(full, value, more.get(full))
        lines += [".. list-table::", "   :widths: 30 70", "   :header-rows: 0", ""]
        lines += [line for row in rows for line in (f"   * - {row[0]}", f"     - {row[1]}")]
        folder.joinpath(f"{module_name}.rst").write_text("\n".join([*lines, "", *entries]) + "\n")
    pages = "\n".join(modules)
    folder.joinpath("index.md").write_text(
        "# Reference\n\nEvery public name, by module; the search finds them all.\n\n"
        f"```{{toctree}}\n:maxdepth: 1\n\n{pages}\n```\n"
    )  # fmt: skip


def gallery(folder: Path) -> None:
    """Runs each script of docs/gallery, keeps its `figure`, and writes the page with pictures and code."""
    folder.mkdir(parents=True)
    lines = ["# Gallery", "", "Each picture is drawn by the lines below it, when this site is built.", ""]
    for script in sorted((ROOT / "docs/gallery").glob("*.py")):
        tc.manual_seed(0)
        found = runpy.run_path(str(script))
        title, _, text = found["__doc__"].strip().partition("\n")
        found["figure"].savefig(folder / f"{script.stem}.png", dpi=160)
        code = script.read_text().split('"""', 2)[2].strip()
        lines += [
            f"## {title.rstrip('.')}",
            "",
            text.strip(),
            "",
            f"![{title}](gallery/{script.stem}.png)",
            "",
            "```python",
            code,
            "```",
            "",
        ]
    folder.with_suffix(".md").write_text("\n".join(lines))


def pictures() -> None:
    """The README's pictures, with 256 colours."""
    from PIL import Image

    for name in PICTURES:
        tc.manual_seed(0)
        path = ROOT / f"docs/images/{name}.png"
        runpy.run_path(str(ROOT / f"docs/gallery/{name}.py"))["figure"].savefig(path, dpi=100)
        Image.open(path).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)


def written() -> list[Path]:
    """The pages of docs/; its examples belong to the reference."""
    return sorted(page for page in (ROOT / "docs").rglob("*.md") if page != EXAMPLES)


def sources() -> None:
    """Lays the pages out in build/site: those of docs/ at the top, so that their links to each other stay as they are."""
    shutil.rmtree(SITE, ignore_errors=True)
    SITE.mkdir(parents=True)
    for page in written():
        target = SITE / page.relative_to(ROOT / "docs")
        target.parent.mkdir(parents=True, exist_ok=True)
        inner = "../" * (len(target.relative_to(SITE).parts) - 1)
        target.write_text(re.sub(rf"(\]\(|src=\"){re.escape(inner)}\.\./", rf"\1{inner}", page.read_text()))
    shutil.copytree(ROOT / "docs/images", SITE / "images")
    for name in OTHERS:
        (SITE / name).parent.mkdir(exist_ok=True)
        text = re.sub(r"\]\(docs/", "](", (ROOT / name).read_text())
        (SITE / name).write_text(text)
    shutil.copytree(ROOT / "benchmarks/results", SITE / "benchmarks/results")
    (SITE / "notebooks").mkdir()
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        shutil.copy(notebook, SITE / "notebooks")
    gallery(SITE / "gallery")
    reference(SITE / "reference")


def broken_links(folder: Path) -> list[str]:
    """Links and pictures of the pages that lead to no file or to no place in it."""
    pages = {page: page.read_text() for page in folder.rglob("*.html")}
    places = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in pages.items()}
    found = []
    for page, text in pages.items():
        for link in set(re.findall(r'(?:href|src)="([^"]+)"', text)):
            address = urllib.parse.urlsplit(html.unescape(link))
            if address.scheme or address.netloc or not (address.path or address.fragment):
                continue
            target = (page.parent / urllib.parse.unquote(address.path)).resolve() if address.path else page
            if target.is_dir():
                target /= "index.html"
            place = urllib.parse.unquote(address.fragment)
            if not target.exists() or (place and target in places and place not in places[target]):
                found.append(f"{page.relative_to(folder)}: {link}")
    return sorted(found)


def main() -> int:
    """Gives the exit status."""
    parser = argparse.ArgumentParser(description="Writes the site.")
    parser.add_argument("--sources", action="store_true", help="only lay the pages out in build/site")
    parser.add_argument("--pictures", action="store_true", help="only draw the README's pictures")
    options = parser.parse_args()
    if options.pictures:
        pictures()
        return 0
    started = time.perf_counter()
    sources()
    print(f"pages laid out in {time.perf_counter() - started:.0f} s", flush=True)
    if options.sources:
        return 0
    from sphinx.cmd.build import build_main

    shutil.rmtree(PAGES, ignore_errors=True)
    status = build_main(
        ["-q", "-W", "--keep-going", "-b", "html", "-c", str(ROOT / "docs"), "-d", str(ROOT / "build/doctrees"), str(SITE), str(PAGES)]
    )
    found = broken_links(PAGES)
    print("\n".join(f"broken link in {line}" for line in found))
    print(f"{len(list(PAGES.rglob('*.html')))} pages in {PAGES.relative_to(ROOT)}, {time.perf_counter() - started:.0f} s")
    return status or bool(found)


if __name__ == "__main__":
    sys.exit(main())
