"""Counts the instructions that fixed workloads take, with callgrind: what no other work on a machine disturbs.

    python tools/count_instructions.py                       # prints them next to the committed ones
    python tools/count_instructions.py --write               # writes tests/instructions.json
    python tools/count_instructions.py --only layer          # workloads by a part of their names

Valgrind has no AVX-512, so the AVX2 kernels run, on one thread. Counted is what the library's own code executes, a step: not Python, NumPy
and the C library, which differ from machine to machine. Compilers differ as well: the file names its own.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = ROOT / "tests" / "instructions.json"

# name: what is prepared, a step, steps
WORKLOADS = {
    "scaled_dot_product (3, 2), ndarrays": (
        "q = np.ones((3, 2), np.float32)",
        "tc.scaled_dot_product(q, q, q)",
        20,
    ),
    "scaled_dot_product (3, 2), with its gradients": (
        "q = tc.ones(3, 2).requires_grad_()",
        "tc.scaled_dot_product(q, q, q)[0].sum().backward()",
        20,
    ),
    "product, 256 x 256 x 256": (
        "x, w = tc.randn(256, 256), tc.randn(256, 256)",
        "x @ w",
        1,
    ),
    "linear with bias, 512 rows, 32 to 96": (
        "x, w, b = tc.randn(512, 32), tc.randn(96, 32), tc.randn(96)",
        "tc.functional.linear(x, w, b)",
        2,
    ),
    "linear with bias and GELU, 256 rows, 128 to 256": (
        "x, w, b = tc.randn(256, 128), tc.randn(256, 128), tc.randn(256)",
        "tc._core.linear(x, w, b, activation='gelu')",
        2,
    ),
    "linear with its gradients, 256 rows, 64 to 128": (
        "m = tc.nn.Linear(64, 128); x = tc.randn(256, 64).requires_grad_(); dy = tc.randn(256, 128)",
        "m.zero_grad(); m(x).backward(dy)",
        2,
    ),
    "linear of 4 rows, 384 to 384, bfloat16": (
        "x, w = (tc.randn(*shape).to(dtype='bfloat16') for shape in ((4, 384), (384, 384)))",
        "tc.functional.linear(x, w)",
        2,
    ),
    "attention with its gradients, (2, 4, 64, 32)": (
        "q, k, v, dy = (tc.randn(2, 4, 64, 32).requires_grad_() for i in range(4))",
        "tc.functional.scaled_dot_product_attention(q, k, v).backward(dy)",
        2,
    ),
    "attention in float16 with its gradients, (1, 2, 128, 32)": (
        "q = tc.randn(1, 2, 128, 32).to(dtype='float16').requires_grad_()",
        "tc.functional.scaled_dot_product_attention(q, q, q).sum().backward()",
        2,
    ),
    "multi-head attention, 16 x 16 x 32": (
        "m = tc.MultiheadAttention(32, 32, 1); x = tc.randn(16, 16, 32)",
        "m(x)",
        2,
    ),
    "layer norm with its gradients, (256, 384)": (
        "m = tc.nn.LayerNorm(384); x = tc.randn(256, 384)",
        "m.zero_grad(); m(x).sum().backward()",
        2,
    ),
    "Reverse task, a training step": (
        "from benchmarks.reverse_step import WORKLOADS; step = WORKLOADS[0].ours()",
        "step()",
        1,
    ),
    "classifier, cross-entropy and Adam": (
        "m = tc.nn.Sequential(tc.nn.Embedding(16, 32), tc.nn.Linear(32, 64), tc.nn.GELU(), tc.nn.Linear(64, 16));"
        "o = tc.optim.Adam(m.parameters(), lr=1e-3); x = tc.randint(0, 16, (64,))",
        "o.zero_grad(); tc.functional.cross_entropy(m(x), x).backward(); o.step()",
        2,
    ),
}

SWITCH = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; }
void zero(void) { CALLGRIND_ZERO_STATS; }
void dump(void) { CALLGRIND_DUMP_STATS; }
"""
PROGRAM = """
import ctypes, gc, numpy as np, transformer_c as tc
switch = ctypes.CDLL({switch!r})
tc.set_num_threads(1)
gc.disable()
switch.begin()
def measure(prepare, step, count):
    names = {{"np": np, "tc": tc}}
    tc.manual_seed(0)
    exec(prepare, names)
    exec(f"def run(count):\\n    for _ in range(count): {{step}}", names)
    names["run"](2)
    switch.zero()
    names["run"](count)
    switch.dump()
for workload in {workloads!r}: measure(*workload)
"""


class CountError(RuntimeError):
    """Valgrind, its headers or a compiler are missing, or a workload failed."""


def built_by(library):
    """(compiler, major version) that the code of a library names: ("gcc", 12)."""
    code = Path(library).read_bytes()
    for name, pattern in (("clang", rb"clang version (\d+)\."), ("gcc", rb"GCC: \([^)]*\) (\d+)\.")):
        if found := re.search(pattern, code):
            return name, int(found[1])
    return "unknown", 0


def library_of(folder):
    """The extension module of a folder that contains transformer_c/."""
    return next(Path(folder, "transformer_c").glob("_core.*.so"))


def instructions(dump):
    """(of the library, of all) that one of callgrind's files counts. Lines that follow `calls=` repeat what the called functions' own say."""
    library = everything = 0
    objects, inside, called = {}, False, False
    for line in dump.splitlines():
        if line.startswith("ob="):
            number, _, name = line[3:].partition(" ")
            if name:
                objects[number] = Path(name).name.startswith("_core.")
            inside = objects[number]
        elif line.startswith("cob="):
            number, _, name = line[4:].partition(" ")
            if name:
                objects[number] = Path(name).name.startswith("_core.")
        elif line.startswith("calls="):
            called = True
        elif line[:1] in "0123456789+-*" and line:
            if not called:
                count = int(line.split()[1])
                everything += count
                library += count * inside
            called = False
    return library, everything


def count(folder, names):
    """{workload: (instructions of the library, of all) a step} for the build in a folder that contains transformer_c/."""
    with tempfile.TemporaryDirectory() as scratch:
        switch = f"{scratch}/switch.so"
        command = [*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-x", "c", "-", "-o", switch]
        built = subprocess.run(command, input=SWITCH, text=True, capture_output=True)
        if built.returncode:
            raise CountError(f"a switch for callgrind did not compile:\n{built.stderr}")
        paths = [str(Path(folder).resolve()), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "TRANSFORMER_C_ISA": "avx2", "PYTHONHASHSEED": "0"}
        program = PROGRAM.format(switch=switch, workloads=[WORKLOADS[name] for name in names])
        command = [
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--callgrind-out-file={scratch}/out",
            sys.executable,
            "-c",
            program,
        ]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise CountError("\n".join(line for line in done.stderr.splitlines() if not line.startswith("==")))
        found = {}
        for i, name in enumerate(names, 1):
            found[name] = tuple(n / WORKLOADS[name][2] for n in instructions(Path(f"{scratch}/out.{i}").read_text()))
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="workloads whose names contain this")
    parser.add_argument("--write", action="store_true", help="write the committed counts")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write counts all workloads")
    folder = ROOT / "python"
    try:
        found = count(folder, [name for name in WORKLOADS if options.only in name])
    except CountError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    committed = json.loads(COMMITTED.read_text())["instructions"] if COMMITTED.exists() else {}
    print(f"{'workload':58} {'a step':>12}  of the committed")
    for name, (library, _) in found.items():
        share = f"{library / committed[name]:.4f}" if name in committed else "-"
        print(f"{name:58} {library:12,.0f}  {share}")
    if options.write:
        compiler = " ".join(map(str, built_by(library_of(folder))))
        counts = {name: round(library) for name, (library, _) in found.items()}
        COMMITTED.write_text(json.dumps({"compiler": compiler, "instructions": counts}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
