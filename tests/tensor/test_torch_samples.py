"""A few of PyTorch's own samples for every function, module and optimizer that exists here too; tools/compare_samples.py runs all of them."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import transformer_c as tc

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools/compare_samples.py"
sys.path.append(str(ROOT / "tools"))
from torch_samples import modules, operators, optimizers  # noqa: E402

PAGE = ROOT / "docs/pytorch-samples.md"
# Forms of which samples are known to differ; docs/pytorch-samples.md lists them.
DIFFERENT: set[str] = set()


def test_values_dtypes_and_gradients_agree():
    """In a process of its own: PyTorch's database is large."""
    pytest.importorskip("expecttest")  # which the database needs
    done = subprocess.run([sys.executable, TOOL, "--most", "2"], capture_output=True, text=True, cwd=ROOT)
    rows = re.findall(r"^(\S+(?: \(\w+\))?) +\d+ agreed .* (\d+) different$", done.stdout, re.M)
    names = [name for name, _ in rows]
    assert len(rows) > 300 and {"tc.sort", "nn.Linear", "optim.SGD"} <= set(names), done.stdout + done.stderr
    wrong = [name for name, different in rows if different != "0" and name not in DIFFERENT]
    assert not wrong, f"{wrong}: python tools/compare_samples.py NAME says why"
    page = PAGE.read_text()
    missing = [name for name in names if f"| `{name}` |" not in page]
    assert not missing, f"{missing} are not in docs/pytorch-samples.md: python tools/compare_samples.py --write"


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
    outcome = operators.run(info, "tc.square", DEFECTS.get(name, tc.square), sample, torch)
    assert outcome.kind == ("agreed" if name is None else "refused" if name == "refused" else "different")
    assert name in (None, "refused") or name in outcome.why


class Doubled(tc.nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class Cut(tc.nn.Linear):
    """Right values, no gradient of the weight."""

    def forward(self, x):
        return tc.functional.linear(x, self.weight.detach(), self.bias)


class Mute(tc.nn.Linear):
    def __init__(self, *args):
        super().__init__(*args, bias=False)


class More(tc.nn.Linear):
    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination["more"] = self.weight


WRONG_MODULES = {Doubled: "values", Cut: "gradient", Mute: "unexpected keys: 'bias'", More: "the keys of the state dict"}


@pytest.mark.parametrize("module", [tc.nn.Linear, *WRONG_MODULES])
def test_planted_defects_of_modules_are_found(module, monkeypatch):
    monkeypatch.setattr(tc.nn, "Linear", module)
    call = SimpleNamespace(args=(2, 3), kwargs={}), SimpleNamespace(args=(torch.ones(4, 2, requires_grad=True),), kwargs={})
    sample = SimpleNamespace(constructor_input=call[0], forward_input=call[1])
    outcome = modules.run(SimpleNamespace(module_cls=torch.nn.Linear), sample, True, "float32")
    why = WRONG_MODULES.get(module, "")
    assert outcome.kind == ("refused" if module is Mute else "different" if why else "agreed") and why in outcome.why


class Slow(tc.optim.SGD):
    def _step_group(self, group, *others):
        super()._step_group({**group, "lr": group["lr"] * 0.999}, *others)


class Forgetful(tc.optim.SGD):
    def load_state_dict(self, state_dict):
        super().load_state_dict({**state_dict, "state": {}})


@pytest.mark.parametrize(("kind", "why"), [(tc.optim.SGD, ""), (Slow, "step 1: values"), (Forgetful, "step 5: values")])
def test_planted_defects_of_optimizers_are_found(kind, why, monkeypatch):
    monkeypatch.setattr(tc.optim, "SGD", kind)
    sample = SimpleNamespace(kwargs={"lr": 0.1, "momentum": 0.9}, params=None)
    outcome = optimizers.run(SimpleNamespace(name="SGD", optim_cls=torch.optim.SGD), sample, "float64")
    assert (outcome.kind, outcome.why) == ("different" if why else "agreed", why)


def test_what_is_accepted_where_pytorch_refuses_is_found(monkeypatch):
    call, nothing = SimpleNamespace(args=("two", 3), kwargs={}), SimpleNamespace(args=(torch.ones(2),), kwargs={})
    sample = SimpleNamespace(module_error_input=SimpleNamespace(constructor_input=call, forward_input=nothing))
    info = SimpleNamespace(module_cls=torch.nn.Linear)
    assert modules.run_error(info, sample).kind == "agreed"
    monkeypatch.setattr(tc.nn, "Linear", lambda *args: tc.nn.Identity())
    assert modules.run_error(info, sample).kind == "different"
    options = SimpleNamespace(optimizer_error_input=SimpleNamespace(params=None, kwargs={"momentum": -1.0}, desc="a momentum below 0"))
    info = SimpleNamespace(name="SGD", optim_cls=torch.optim.SGD)
    assert optimizers.run_error(info, options, "float32").kind == "agreed"
    monkeypatch.setattr(tc.optim, "SGD", lambda *args, **kwargs: None)
    assert optimizers.run_error(info, options, "float32").kind == "different"
