"""Keeps the documentation correct: its examples run, the README's code runs, the command line matches the docs."""

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import transformer_c as tc

ROOT = Path(__file__).parents[1]
MODULES = sorted(m.name for m in pkgutil.walk_packages(tc.__path__, "transformer_c.") if not m.name.endswith(("__main__", "._core")))


@pytest.mark.parametrize("name", ["transformer_c", *MODULES])
def test_examples(name):
    tc.manual_seed(0)
    with np.printoptions(legacy="1.25" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else False):
        result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def public_objects():
    for module in (tc, tc.nn, tc.convert, tc.models, tc.functional, tc.optim, tc.data, tc.datasets, tc.testing, tc.plot, tc.tutorials.uva):
        for name in getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")]):
            value = getattr(module, name)
            if getattr(value, "__module__", "").startswith("transformer_c") and callable(value):
                yield f"{module.__name__}.{name}", value


@pytest.mark.parametrize(("name", "value"), list(public_objects()), ids=lambda v: v if isinstance(v, str) else "")
def test_public_names_are_documented(name, value):
    assert value.__doc__ and value.__doc__.strip(), name


def test_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("name", ["attention.md", "figures.md", "first-steps.md", "mixed-precision.md"])
def test_examples_of_a_page(name):
    if name == "figures.md":
        pytest.importorskip("matplotlib")
    if name == "mixed-precision.md":
        pytest.importorskip("ml_dtypes")
    if name == "first-steps.md":
        pytest.importorskip("sklearn")
    tc.manual_seed(0)
    with np.printoptions(legacy="1.25" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else False):
        result = doctest.testfile(str(ROOT / "docs" / name), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 10 and result.failed == 0


def test_paths_the_docs_name_exist():
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for path in re.findall(r"`((?:csrc|tests|benchmarks|docs|python|tools)/[\w./-]*\w)`", document.read_text()):
            candidates = [ROOT / path, ROOT / "csrc" / path, ROOT / "python/transformer_c" / path]
            assert any(c.exists() for c in candidates), f"{document.name} names {path}"


def anchor(heading):
    """That of a heading, as the site makes it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.replace("`", ""))
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def test_links_of_pages_lead_somewhere():
    """To a file, and to a heading of it. `make docs` checks them in the pages of the site."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "benchmarks").glob("*.md"), *(ROOT / "tests/golden").glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts = {page: re.sub(r"```.*?```", "", page.read_text(), flags=re.S) for page in pages}
    wrong, found = [], 0
    for page, text in texts.items():
        for link in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", text):
            path, _, heading = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            headings = {anchor(line) for line in re.findall(r"^#+ (.*)$", texts.get(target, ""), re.M)}
            found += 1
            if not target.exists() or (heading and target.suffix == ".md" and heading not in headings):
                wrong.append(f"{page.relative_to(ROOT)}: {link}")
    assert not wrong and found > 150


def test_tests_that_promises_name_exist():
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs/trust.md").read_text())
    assert len(named) > 15
    assert not [name for name in named if f"def {name}(" not in tests]


def test_every_target_of_make_is_described_and_phony():
    """A file with a target's name must not prevent it from running."""
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][\w-]*):(?!=)", text, re.M))
    assert targets == set(re.search(r"^\.PHONY: (.*)$", text, re.M)[1].split()) == set(re.findall(r"^# make ([\w-]+) ", text, re.M))


def test_the_stubs_are_what_the_extension_says():
    done = subprocess.run([sys.executable, ROOT / "tools/make_stub.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_environment_variables_are_in_the_table():
    table = (ROOT / "docs/how-it-works.md").read_text()
    used = set()
    for path in [ROOT / "setup.py", *(ROOT / "csrc").rglob("*.[ch]"), *(ROOT / "python").rglob("*.py")]:
        used |= set(re.findall(r"\bTRANSFORMER_C_[A-Z_]+\b", path.read_text()))
    used -= {"TRANSFORMER_C_H"}
    assert all(f"`{name}`" in table for name in used), used


def command(*arguments, **options):
    environment = {**os.environ, **options.pop("environment", {})}
    return subprocess.run(
        [sys.executable, "-m", "transformer_c", *arguments], capture_output=True, text=True, env=environment, timeout=120, **options
    )


def test_info():
    done = command("info")
    assert done.returncode == 0 and f"transformer_c:          {tc.__version__}" in done.stdout and "instruction set in use" in done.stdout


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["tutorial", "--epochs", "0"], ["tutorial", "--threads", "0"], ["info", "--what"]])
def test_usage_errors(arguments):
    done = command(*arguments)
    assert done.returncode == 2 and done.stdout == "" and "usage:" in done.stderr


def test_version_and_help():
    assert command("--version").stdout.strip() == tc.__version__
    text = command("tutorial", "--help").stdout
    assert all(option in text for option in ("--seed", "--epochs", "--threads", "--no-progress"))


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [("TRANSFORMER_C_ISA", "sse9", "sse9"), ("TRANSFORMER_C_NUM_THREADS", "many", "many"), ("TRANSFORMER_C_NUM_THREADS", "0", "0")],
)
def test_bad_environment_is_named(variable, value, message):
    done = command("info", environment={variable: value})
    assert done.returncode == 1 and variable in done.stderr and message in done.stderr


def test_the_portable_path_is_forced():
    done = command("info", environment={"TRANSFORMER_C_ISA": "baseline"})
    assert "baseline (TRANSFORMER_C_ISA)" in done.stdout


def test_no_section_of_a_page_is_empty():
    for page in (ROOT / "docs").rglob("*.md"):
        blocks = re.sub(r"```.*?```", "code", page.read_text(), flags=re.S)
        assert not re.search(r"^#+ [^\n]*\n*\Z", blocks, re.M), f"{page.name} ends with a heading"
