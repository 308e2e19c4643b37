"""What a disassembler prints, for tests that read the loops of compiled kernels, and the flags that compiled them."""

import ast
import re
from pathlib import Path

STACK = re.compile(r"\(%(rsp|rbp)")


def of_setup(name):
    """A constant of setup.py."""
    for statement in ast.parse((Path(__file__).parents[1] / "setup.py").read_text()).body:
        if isinstance(statement, ast.Assign) and statement.targets[0].id == name:
            return ast.literal_eval(statement.value)
    raise LookupError(name)


def parse(text):
    """{function: [(address, instruction, operands)]} of `objdump -d --no-show-raw-insn`."""
    found, code = {}, None
    for line in text.splitlines():
        if line.startswith(" "):
            address, _, rest = line.partition(":")
            name, _, operands = rest.strip().partition("\t" if "\t" in rest.strip() else " ")
            code.append((int(address, 16), name, operands.strip()))
        elif named := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            code = found.setdefault(named[1], [])
    return found


def innermost_loops(code, jump):
    """Ranges of a function that end in a jump (the names that match) to their beginning and contain no other such range."""
    places = {address: i for i, (address, _, _) in enumerate(code)}
    latest, loops = -1, []  # the latest beginning of a range so far
    for i, (_, name, operands) in enumerate(code):
        if not re.match(jump, name) or not (to := re.search(r"\b([0-9a-f]+) <", operands)):
            continue
        begin = places.get(int(to[1], 16), i + 1)
        if begin <= i:
            if latest < begin:
                loops.append(code[begin : i + 1])
            latest = max(latest, begin)
    return loops


class Loop:
    """What a loop of an x86-64 processor contains."""

    def __init__(self, code):
        self.text = "\n".join(f"{name} {operands}" for _, name, operands in code)
        fused = [(name[-2:], re.search(r"%([xyz]mm)", operands)[1]) for _, name, operands in code if name.startswith(("vfmadd", "vfnmadd"))]
        self.kind = max(set(fused), key=fused.count) if fused else None  # ("ps", "ymm")
        self.fused, self.length = len(fused), len(code)
        read = [operands for _, name, operands in code if name.startswith("vbroadcasts")]
        self.broadcasts = sum("(%rip)" not in operands and not STACK.search(operands) for operands in read)  # of operands, not of constants
        on_stack = [(name, operands) for _, name, operands in code if name.startswith("v") and STACK.search(operands)]
        self.spills = sum(bool(re.search(r"%[yz]mm\d+", operands)) for _, operands in on_stack)
        self.saves = sum(operands.endswith(")") and bool(re.match(r"%[yz]mm\d+,", operands)) for _, operands in on_stack)


def loops_of(text):
    """The innermost loops of what `objdump -d --no-show-raw-insn` prints for an x86-64 processor."""
    return [Loop(code) for function in parse(text).values() for code in innermost_loops(function, r"j\w+$")]
