"""A few of PyTorch's own samples for every function that exists here too; tools/compare_operator_samples.py runs all of them."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import transformer_c as tc

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools/compare_operator_samples.py"
SPEC = importlib.util.spec_from_file_location("compare_operator_samples", TOOL)
samples = sys.modules[SPEC.name] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(samples)
# Forms of which samples are known to differ; docs/pytorch-samples.md lists them.
DIFFERENT: set[str] = set()


def test_values_dtypes_and_gradients_agree():
    """In a process of its own: PyTorch's database is large."""
    pytest.importorskip("expecttest")  # which the database needs
    done = subprocess.run([sys.executable, TOOL, "--most", "2"], capture_output=True, text=True, cwd=ROOT)
    rows = re.findall(r"^(\S+(?: \(\w+\))?) +\d+ agreed .* (\d+) different$", done.stdout, re.M)
    assert len(rows) > 250, done.stdout + done.stderr
    wrong = [name for name, different in rows if different != "0" and name not in DIFFERENT]
    assert not wrong, f"{wrong}: python tools/compare_operator_samples.py NAME says why"
    page = samples.PAGE.read_text()
    missing = [name for name, _ in rows if f"| `{name}` |" not in page]
    assert not missing, f"{missing} are not in docs/pytorch-samples.md: python tools/compare_operator_samples.py --write"


DEFECTS = {
    "values": lambda x: tc.square(x) * 2,
    "dtype": lambda x: tc.square(x).half(),
    "gradient": lambda x: tc.square(x.detach()),
    "shape": lambda x: tc.square(x).reshape(1, -1),
    "refused": lambda x: x.no_such_method(),
}


@pytest.mark.parametrize("name", [None, *DEFECTS])
def test_planted_defects_are_found(name):
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    info = SimpleNamespace(name="square", op=torch.square)
    sample = SimpleNamespace(input=x, args=(), kwargs={})
    outcome = samples.run(info, "tc.square", DEFECTS.get(name, tc.square), sample, torch)
    assert outcome.kind == ("agreed" if name is None else "refused" if name == "refused" else "different")
    assert name in (None, "refused") or name in outcome.why
