"""What the tests that go over all ops find in an op's own file, tests/ops/test_<op>.py:

GRADCHECK           {op: [case(draw) -> (function, *arrays)]}            ops/test_gradcheck_all.py
BACKWARD_ARGUMENTS  {op: function(rng) -> arguments of its backward}     ops/test_ops.py, for shapes (2, 3, 4) where possible
SAVED               {row of docs/memory.md: [(function, shapes)]}        test_memory_table.py
LAYERS              {class of tc.nn: function(width) -> layer}              gpu_emulation/test_cuda_modules.py
ON_DEVICES          {op: (function, reference, its backward, [shapes])}  gpu_emulation/test_cuda_tensors.py, in every floating dtype;
                    a backward gives a tuple, shapes are one for each argument
"""

import importlib
import re
import sys
from pathlib import Path

OPS = Path(__file__).parent / "ops"


def of_all_ops(name):
    """The dictionaries of this name of all files, as one."""
    found = {}
    for path in sorted(OPS.glob("test_*.py")):
        if re.search(rf"^{name} = ", path.read_text(), re.M):
            if str(OPS) not in sys.path:
                sys.path.append(str(OPS))
            found |= getattr(importlib.import_module(path.stem), name)
    return found
