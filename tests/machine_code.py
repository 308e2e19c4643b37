"""What a disassembler prints, for tests that read the loops of compiled kernels."""

import re


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
