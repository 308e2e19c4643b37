"""Which layer may include which; and lists that belong together agree."""

import ast
import os
import re
import shutil
import subprocess
from pathlib import Path

import op_lists
import pytest

ROOT = Path(__file__).parents[1]
CSRC = ROOT / "csrc"
SOURCES = sorted(p for p in CSRC.rglob("*") if p.suffix in (".c", ".h", ".cu", ".cuh", ".def"))

# layer: the layers it may include (its own is always allowed; "api" is csrc/transformer_c.h)
ALLOWED = {
    "api": {"kernels"},  # the tables of functions, for their names
    "kernels": {"api"},
    "kernels/cpu": {"kernels", "api"},
    "kernels/cpu/tiles": {"kernels/cpu", "kernels", "api"},
    "kernels/cuda": {"kernels", "api"},
    "core": {"api", "kernels"},
    "ops": {"api", "core", "kernels"},
    "python": {"api", "core", "ops", "kernels"},
}


def layer(path):
    folder = path.relative_to(CSRC).parent.as_posix()
    return "api" if folder == "." else folder


def includes(path):
    return re.findall(r'^\s*#\s*include\s+([<"][^>"]+[>"])', path.read_text(), re.M)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(CSRC).as_posix())
def test_includes(path):
    own = layer(path)
    for include in includes(path):
        name = include[1:-1]
        if include[0] == "<":
            assert not name.startswith(("Python.h", "numpy/", "structmember")) or own == "python", (
                f"{include}: only csrc/python sees Python"
            )
            assert not name.startswith("cuda") or own == "kernels/cuda", f"{include}: only csrc/kernels/cuda sees CUDA"
            continue
        if own == "kernels/cuda" and name == "emulator.h":
            continue  # of tests/gpu_emulation, when g++ compiles a kernel against the emulated GPU
        target = (path.parent / name).resolve()
        assert target.exists(), f"{include} does not exist"
        other = layer(target)
        assert other == own or other in ALLOWED[own], f"{own} may not include {other} ({include})"


def calls_between(folder):
    """Which file of a folder calls functions that another one defines: {file: {file, ...}}."""
    words = {p.stem: re.sub(r"/\*.*?\*/|\"(?:\\\\.|[^\"\\\\])*\"", "", p.read_text(), flags=re.S) for p in sorted(folder.glob("*.c"))}
    definition = re.compile(r"^(?!static\b|typedef\b|extern\b)[a-z]\w*[\w *]*?\b(\w+)\([^;{]*\)\s*\{", re.M)
    owner = {function: stem for stem, text in words.items() for function in definition.findall(text)}
    used = {stem: {owner[word] for word in re.findall(r"\b\w+\b", text) if word in owner} for stem, text in words.items()}
    return {stem: others - {stem} for stem, others in used.items()}


# ---- the Python layers -----------------------------------------------------------------------------------------------------------------

PACKAGE = ROOT / "python/transformer_c"
MODULES = {
    ".".join(p.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): p for p in sorted(PACKAGE.rglob("*.py"))
}  # "nn.module"; "__init__" is the package itself
# group: its modules and folders. A new one is entered here.
PARTS = {
    "basis": "_core _version _arguments _array_loss _best _bfloat16 _evaluating _fork_lock _frames _listed_hooks _names _nested backends dtypes jit",
    "tensors": "_tensor _joining _recording _graph _tensor_copying _tensor_numpy _tensor_repr _pytorch_names _autocast _promotion autograd random cuda config custom ops distributed",
    "functions": "tensor_functions functional linalg",
    "modules": "nn optim encoder amp cuda.amp distributions",
    "values": "checkpoint data datasets utils metrics testing plot",
    "models": "models convert",
    "training": "training callbacks loggers trainer",
    "beside": "export sklearn _summary",
    "front": "tutorials cli __main__ _hints __init__",
}
# group: the groups that it may import from, besides its own
PYTHON_ALLOWED = {
    "basis": "",
    "tensors": "basis",
    "functions": "basis tensors",
    "modules": "basis tensors functions",
    "values": "basis tensors",
    "models": "basis tensors functions modules values",
    "training": "basis tensors functions modules values",
    "beside": "basis tensors functions modules values",
    "front": "basis tensors functions modules values models training beside",
}
GROUPS = {part: group for group, parts in PARTS.items() for part in parts.split()}


def group_of(name):
    """The group of a module: its own, or that of the folder."""
    return GROUPS[name if name in GROUPS else name.split(".")[0]]


def imports(name):
    """The modules of the package that a module imports, inside of functions as well; not those for type checkers alone."""
    tree, package = ast.parse(MODULES[name].read_text()), name.split(".") if MODULES[name].name == "__init__.py" else name.split(".")[:-1]
    package = [] if name == "__init__" else package
    found, left = set(), [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and "not" not in ast.unparse(node.test):
            left += node.orelse
            continue
        left += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1] + (node.module.split(".") if node.module else [])
            for alias in node.names:
                full = ".".join([*base, alias.name])
                found.add(full if full in MODULES or full == "_core" else ".".join(base) or "__init__")
    return found - {name}


def test_every_python_module_belongs_to_a_group():
    parts = {name.split(".")[0] for name in MODULES}
    assert parts - GROUPS.keys() == set(), "tests/test_structure.py: enter them into PARTS"
    assert GROUPS.keys() - parts - MODULES.keys() == {"_core"}, "PARTS has what does not exist"


def test_a_package_that_lists_its_files_lists_all():
    """A table in its docstring, whose lines begin with a file's name and blanks."""
    missing, listing = {}, 0
    for path in PACKAGE.rglob("__init__.py"):
        files = {p.stem for p in path.parent.glob("*.py")} - {"__init__"}
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        if len(files & set(re.findall(r"^(\w+)(?:, \w+)*  ", text, re.M))) > 1:
            listing += 1
            public = {file for file in files if not file.startswith("_")}
            missing[path.parent.relative_to(PACKAGE).as_posix()] = public - set(re.findall(r"\w+", text))
    assert listing > 8 and {name: files for name, files in missing.items() if files} == {}, "enter them into the docstring of __init__.py"


@pytest.mark.parametrize("group", PYTHON_ALLOWED)
def test_python_imports(group):
    allowed = {group, *PYTHON_ALLOWED[group].split()}
    wrong = {
        f"{name} imports {other}"
        for name in MODULES
        if group_of(name) == group
        for other in imports(name)
        if group_of(other) not in allowed
    }
    assert not wrong, f"{group} may not import: {sorted(wrong)}"


def test_python_modules_import_one_another_in_one_direction():
    """Imports inside of functions count: a module that needs another one at any time cannot be read without it."""
    graph = {"_core": set(), **{name: imports(name) for name in MODULES}}
    assert "_promotion" in graph["functional.losses"] and "nn" in graph["_hints"], "the graph is not read from the sources"
    assert not cycle_in(graph), f"a circle of imports: {' -> '.join(cycle_in(graph))}"


# ---- calls between files ------------------------------------------------------------------------------------------------------------------


def cycle_in(graph):
    """A list of nodes, each of which leads to the next and the last to the first; empty when there is none."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return path[path.index(node) :]
        if node in done:
            return []
        path.append(node)
        for other in sorted(graph[node]):
            if found := visit(other):
                return found
        done.add(path.pop())
        return []

    for node in sorted(graph):
        if found := visit(node):
            return found
    return []


def test_ops_call_one_another_in_one_direction():
    """What several ops need is below them, in csrc/core."""
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    graph = calls_between(CSRC / "ops")
    assert "op" in graph["softmax"] and "binary" in graph["reduce"], "the graph is not read from the sources"
    assert not cycle_in(graph), f"a circle of calls: {' -> '.join(cycle_in(graph))}"


def test_kernels_do_arithmetic_only():
    forbidden = re.compile(r"\b(malloc|calloc|realloc|free|tc_allocate|tc_free|pthread_\w+|printf|fprintf|abort|exit|assert)\s*\(")
    for path in SOURCES:
        if layer(path).startswith("kernels/cpu"):
            found = forbidden.search(path.read_text())
            assert not found, f"{path.name} calls {found.group(1)}: kernels never allocate, lock, print or leave"


def test_library_never_exits_or_prints():
    forbidden = re.compile(r"\b(printf|fprintf|puts|abort|exit|_exit|assert)\s*\(")
    asserting = "#define TC_ASSERT(condition) assert(condition)"  # in builds with sanitizers
    for path in SOURCES:
        if layer(path) in ("core", "ops", "python", "api"):
            found = forbidden.search(path.read_text().replace(asserting, ""))
            assert not found, f"{path.relative_to(CSRC)} calls {found.group(1)}"


@pytest.mark.parametrize("check", op_lists.CHECKS, ids=lambda check: check.__name__)
def test_nothing_of_an_op_is_missing(check):
    assert check(ROOT) == []


def test_a_kernel_without_a_row_cannot_be_launched(tmp_path):
    """An op names tc_kernel_<name>, which its row alone defines; the tables of functions are made of the rows as well."""
    compiler = os.environ.get("CC", "gcc").split()
    if not shutil.which(compiler[0]):
        pytest.skip(f"{compiler[0]} is not installed")
    shutil.copytree(CSRC, tmp_path / "csrc")
    rows = tmp_path / "csrc/kernels/kernels.def"
    link = [*compiler, "-std=gnu11", "-shared", "-fPIC", "-Wl,-z,defs", "core/kernels.c", "ops/triangle.c", "-o", tmp_path / "out.so"]

    def undefined():
        said = subprocess.run(link, cwd=tmp_path / "csrc", capture_output=True, text=True).stderr
        return set(re.findall(r"undefined (?:reference to|symbol:) [`']?(\w+)", said))

    assert "tc_make" in undefined() and "tc_kernel_triangle" not in undefined()  # the rest of the core is not linked here
    rows.write_text(re.sub(r"^TC_KERNEL_ENTRY\(triangle,.*\n", "", rows.read_text(), flags=re.M))
    assert "tc_kernel_triangle" in undefined()


def test_every_op_table_is_listed():
    listed = set(re.findall(r"TCPY_OP_TABLE\((\w+)\)", (CSRC / "python/op_tables.def").read_text()))
    files = {p.stem.removeprefix("ops_") for p in (CSRC / "python").glob("ops_*.c")}
    assert listed == files


def test_nothing_committed_names_a_machine():
    forbidden = re.compile(r"(?<![\w.])/(work|root|tmp)/\w")
    for path in [*SOURCES, *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("python/**/*.py")]:
        assert not forbidden.search(path.read_text()), f"{path.relative_to(ROOT)} has a path of one machine"


@pytest.mark.parametrize("name", ["python/transformer_c", "tests", "benchmarks"])
def test_no_unfinished_marks(name):
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    for path in (ROOT / name).rglob("*.py"):
        if path != Path(__file__):
            assert not marks.search(path.read_text()), path
    for path in SOURCES:
        assert not marks.search(path.read_text()), path


def test_inline_ptx_stands_in_one_file():
    found = [p.name for p in SOURCES if p.suffix in (".cu", ".cuh") and re.search(r"\basm\b", p.read_text())]
    assert found == ["device.cuh"]


def included(path):
    """A source and all that it includes, directly or not, of csrc."""
    found, left = {path}, [path]
    while left:
        at = left.pop()
        below = {(at.parent / name[1:-1]).resolve() for name in includes(at) if name[0] == '"' and name != '"emulator.h"'}
        left += below - found
        found |= below
    return found


@pytest.mark.parametrize(
    ("table", "most", "layers"),
    [
        ("kernels/kernels.def", 22, ALLOWED),  # a new kernel
        ("ops/ops.def", 5, ALLOWED),  # a new op
        # A new function: its number is part of transformer_c.h, which all files above the kernels include, but most kernels need nothing of that.
        ("kernels/unary.def", 30, ["kernels/cpu"]),
        ("kernels/binary.def", 30, ["kernels/cpu"]),
    ],
)
def test_a_new_row_compiles_few_objects_again(table, most, layers):
    """Each kernel is three instruction sets times two precisions: six objects."""
    objects = [p for p in SOURCES if p.suffix == ".c" and layer(p) in layers for _ in range(6 if layer(p) == "kernels/cpu" else 1)]
    rebuilt = [p.name for p in objects if CSRC / table in included(p)]
    assert 0 < len(rebuilt) <= most, f"{len(rebuilt)} of {len(objects)} objects: {sorted(set(rebuilt))}"
