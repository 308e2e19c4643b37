"""What an op needs, and where: each check reads a tree of sources as text and says what is missing.

`test_structure.py` reads this repository, `test_adding_an_op.py` copies of it with one step taken away.
"""

import ast
import re
from collections import Counter

# What has no reference of its own: why.
_NUMPY, _INVERSE = "NumPy has it, and tests call that", "the gradient is the function itself, with the opposite sign"
WITHOUT_A_REFERENCE = {
    **dict.fromkeys(
        ("triangle", "triu", "tril", "matmul", "where", "clamp", "cat", "stack", "split", "max", "min", "sum", "mean", "var"), _NUMPY
    ),
    **dict.fromkeys(("reshape", "permute", "expand", "slice", "index", "item assignment", "clone", "cast"), _NUMPY),
    "rotary_backward": _INVERSE,
}
# Its mask is not NumPy's: tests/core/test_random.py draws it once more.
TESTED_ELSEWHERE = {"dropout"}
# The name by which programs and tests call an op that is recorded under another one; x[...] is an "item".
PUBLIC_NAMES = {
    "attention": "scaled_dot_product_attention",
    "convolution": "conv1d",
    "transposed_convolution": "conv_transpose1d",
    "triangle": "tril",
    "cast": "float",
    "index": "item",
    "slice": "item",
}
ITEMS = {"item", "item assignment"}

# Recorded on GPUs alone: on CPUs a layer records its parts. The layer is its public function, and the emulated GPU has its cases.
ON_GPUS = {"encoder_block": "EncoderBlock"}

# Ops that the changelog names in other words.
TOGETHER = {"add_layer_norm": "add + layer norm"}


def text(root, *patterns):
    return "\n".join(path.read_text() for pattern in patterns for path in sorted(root.glob(pattern)))


def kernel_rows(root):
    """{kernel: (where it runs, its args struct)}"""
    rows = re.findall(r"^TC_KERNEL_ENTRY\((\w+), (\w+), (\w+)", text(root, "csrc/kernels/kernels.def"), re.M)
    return {name: (where, args) for name, where, args in rows}


def op_rows(root):
    """{op: its row}"""
    return dict(re.findall(r"^OP\((\w+),(.*?)(?=^OP\(|^/\*|^#|\Z)", text(root, "csrc/ops/ops.def"), re.M | re.S))


def with_backward(root):
    return [name for name in op_rows(root) if f"{name}_backward" in op_rows(root)]


def with_a_gradient(root):
    """The ops that are recorded, without functions of elements (rows of unary.def and binary.def) and the user's own."""
    apart = {*functions(root, "unary"), *functions(root, "binary"), "custom_op"}
    return sorted({*with_backward(root), *recorded(root)} - apart)


def functions(root, kind):
    """The functions of elements with a gradient: the rows of unary.def or binary.def."""
    return re.findall(rf"^TC_{kind.upper()}\((\w+),", text(root, f"csrc/kernels/{kind}.def"), re.M)


def differentiable(root):
    return [*with_a_gradient(root), *functions(root, "unary"), *functions(root, "binary")]


def recorded(root):
    """The names of the ops that write to the tape, also on CPUs."""
    found = re.findall(r"^(?:static )?const tc_op [^;]*;", text(root, "csrc/ops/*.c", "csrc/python/*.c"), re.M)
    names = {name for definition in found for name in re.findall(r'\{"([^"]+)"', definition)}
    return sorted((names - ON_GPUS.keys()).union(functions(root, "unary"), functions(root, "binary")))


def declared(root):
    """The functions of transformer_c.h."""
    return re.findall(r"^(?:TC_CHECKED )?(?!static\b)[a-z][\w *]*?\b(tc_\w+)\(", text(root, "csrc/transformer_c.h"), re.M)


def defined(root, *patterns):
    return set(re.findall(r"^[a-z][\w *]*?\b(tc_\w+)\([^;{]*\)\s*\{", text(root, *patterns), re.M))


def cases(root, name):
    """The dictionaries of this name in the tests of ops: cases that a test of all ops takes up (op_cases.py)."""
    return "".join(re.findall(rf"^{name} = .*\n(?:[ }}].*\n)*", text(root, "tests/ops/test_*.py"), re.M))


# ---- checks: each gives what is missing ----------------------------------------------------------------------------------------


def kernels_without_a_row(root):
    found = re.findall(r"TC_DEFINE_KERNEL\((\w+)\)", text(root, "csrc/kernels/cpu/*.c"))
    return [f"csrc/kernels/kernels.def has no row of {name}" for name in found if name not in {"name", *kernel_rows(root)}]


def rows_without_a_kernel(root):
    found = text(root, "csrc/kernels/cpu/*.c")
    return [
        f"no file of csrc/kernels/cpu defines {name}"
        for name, (where, _) in kernel_rows(root).items()
        if where != "CUDA_ALONE" and f"TC_DEFINE_KERNEL({name})" not in found
    ]


def rows_without_args(root):
    found = text(root, "csrc/kernels/*.h")
    return [
        f"no header of csrc/kernels has the struct {args}" for _, args in kernel_rows(root).values() if not re.search(rf"\b{args};", found)
    ]


def kernels_that_nobody_runs(root):
    found = set(re.findall(r"\btc_kernel_(\w+)", text(root, "csrc/core/*.c", "csrc/ops/*.c")))
    return [f"no op runs the kernel {name}" for name in kernel_rows(root) if name not in found]


def rows_that_deny_a_gpu_kernel(root):
    found = re.findall(r"TC_CUDA_INSTANTIATE, (\w+)", text(root, "csrc/kernels/cuda/*.cu"))
    return [f"kernels.def says that {name} has no CUDA kernel" for name in found if kernel_rows(root).get(name, ("CUDA",))[0] == "CPU"]


def rows_without_a_gpu_kernel(root):
    found = text(root, "csrc/kernels/cuda/*.cu")
    return [
        f"no file of csrc/kernels/cuda has {name}"
        for name, row in kernel_rows(root).items()
        if row[0] != "CPU" and not re.search(rf"\b(tc_cuda_)?{name}\b", found)
    ]


def ops_without_a_case_on_gpus(root):
    found = text(root, "tests/gpu_emulation/test_cuda_*.py") + cases(root, "ON_DEVICES")
    return [
        f"no case of tests/gpu_emulation, and no ON_DEVICES, has {name}"
        for name in [*with_a_gradient(root), *ON_GPUS]
        if PUBLIC_NAMES.get(name, name) not in ITEMS and not re.search(rf"\b({name}|{PUBLIC_NAMES.get(name, name)})", found)
    ]


def calls_without_a_prototype(root):
    known = set(declared(root))
    return [
        f"transformer_c.h does not declare {call}, which the row of {name} calls"
        for name, row in op_rows(root).items()
        for call in re.findall(r"\b(tc_\w+)\(", row)
        if call not in known
    ]


def prototypes_without_a_definition(root):
    found = defined(root, "csrc/core/*.c", "csrc/ops/*.c")
    return [f"nothing in csrc defines {name}" for name in declared(root) if name not in found]


def ops_without_a_row(root):
    used = Counter(re.findall(r"\btc_\w+", text(root, "csrc/ops/ops.def", "csrc/python/*.[ch]", "csrc/core/*.c", "csrc/ops/*.c")))
    own = defined(root, "csrc/ops/*.c")  # one of the places where it is used
    return [f"csrc/ops/ops.def has no row that calls {name}" for name in declared(root) if name in own and used[name] < 2]


def ops_without_a_reference(root):
    found = text(root, "python/transformer_c/testing/reference.py")
    return [
        f"transformer_c.testing.reference does not have {function}"
        for name in [*with_a_gradient(root), *ON_GPUS]
        for function in (name, f"{name}_backward")
        if not {name, function} & WITHOUT_A_REFERENCE.keys() and f"def {function}(" not in found
    ]


def ops_without_cases(root):
    found = text(root, "tests/ops/*.py", "tests/core/*.py")
    return [
        f"no test of tests/ops compares {name} with the reference"
        for name in with_a_gradient(root)
        if name not in {*WITHOUT_A_REFERENCE, *TESTED_ELSEWHERE} - {"rotary"}
        and not re.search(rf"\b(R|reference)\.{name}(_backward)?\b", found)
    ]


def rows_of_functions_without_cases(root):
    return [
        f"tests/ops/test_{kind}.py has no row of {table} for {name}"
        for kind, table in (("unary", "FUNCTIONS"), ("binary", "GRADIENTS"))
        for name in functions(root, kind)
        if not re.search(rf'^    "{name}":', text(root, f"tests/ops/test_{kind}.py"), re.M)
    ]


def ops_without_a_gradcheck(root):
    found = text(root, "tests/ops/test_gradcheck_all.py") + cases(root, "GRADCHECK")
    return [
        f"no case of test_gradcheck_all.py, and no GRADCHECK, has {name}"
        for name in differentiable(root)
        if not re.search(rf"\b({name}|{PUBLIC_NAMES.get(name, name)})\b", found)
    ]


def ops_without_a_row_of_memory(root):
    rows = re.findall(r"^\| (.*?) \|", text(root, "docs/memory.md"), re.M)
    named = {name for row in rows for name in re.findall(r"`([a-z_0-9]+(?: assignment)?)", row)}
    return [f"docs/memory.md does not say what {name} keeps" for name in recorded(root) if name not in named | {"custom_op"}]


def ops_without_a_measured_memory(root):
    """Of functions of elements the row of docs/memory.md is the case."""
    found = text(root, "tests/test_memory_table.py") + cases(root, "SAVED")
    return [
        f"no case of test_memory_table.py, and no SAVED, has {name}" for name in with_a_gradient(root) if not re.search(rf"\b{name}", found)
    ]


def ops_without_a_public_function(root):
    """In functional/, in _joining.py, in tensor_functions/ or as a method of Tensor; with a docstring."""
    documented = {
        node.name
        for name in ("functional/*.py", "_joining.py", "tensor_functions/*.py")
        for path in root.glob(f"python/transformer_c/{name}")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node)
    }
    rows = op_rows(root)
    return [
        f"no file of functional has a documented {name}"
        for name in with_a_gradient(root)
        for public in (PUBLIC_NAMES.get(name, name),)
        if public not in {*documented, *ITEMS} and not re.search(r"\b(METHOD|QUICK)", rows.get(public, ""))
    ]


def ops_without_a_converter(root):
    """A converter in export/converters/, or a reason in WITHOUT of tests/test_export.py, which also runs what has one."""
    converters = text(root, "python/transformer_c/export/converters/*.py")
    reasons = re.search(r"^WITHOUT = \{.*?^\}", text(root, "tests/test_export.py"), re.M | re.S)
    found = converters + (reasons[0] if reasons else "")
    return [
        f"no converter of export/converters/, and no reason in WITHOUT of tests/test_export.py, has {name}"
        for name in differentiable(root)
        if name in op_rows(root) and not re.search(rf'"{name}"|\b{name}=', found)
    ] + [
        f"no converter of export/converters/ has the function {name}"
        for kind in ("unary", "binary")
        for name in functions(root, kind)
        if not re.search(rf'"{name}"|\b{name}=', found)
    ]


def ops_without_a_stub(root):
    core, ops = text(root, "python/transformer_c/_core.pyi"), text(root, "python/transformer_c/ops.pyi")
    missing = [f"_core.pyi does not have {name}; run tools/make_stub.py" for name in op_rows(root) if f"def {name}(" not in core]
    return missing + [
        f"ops.pyi does not have {name}; run tools/make_stub.py"
        for name in op_rows(root)
        if name.endswith("_backward") and f"def {name}(" not in ops
    ]


def ops_without_a_line_in_the_changelog(root):
    found = re.sub(r"[\s_-]+", " ", text(root, "CHANGELOG.md").lower())
    return [
        f"CHANGELOG.md does not name {name}"
        for name in [*with_a_gradient(root), *ON_GPUS.values()]
        if name not in WITHOUT_A_REFERENCE and TOGETHER.get(name, name.replace("_", " ")).lower() not in found
    ]


CHECKS = [
    check
    for name, check in list(globals().items())
    if re.match(r"(kernels|rows|ops|calls|prototypes)_(of_functions_)?(without|that)_", name) and callable(check)
]
