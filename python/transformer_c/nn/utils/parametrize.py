"""Parameters that are computed from others at each use, with PyTorch's names and state dicts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..._core import Tensor
from ..._names import hooks
from ..._recording import no_grad
from ..containers import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter


class ParametrizationList(ModuleList):
    """The modules that compute a parameter, one after the other, and the Tensors that they compute it from: ``original``, or ``original0``,
    ``original1``... where the first takes several Tensors.

    Calling it gives the parameter.
    """

    def __init__(self, modules: Iterable[Module], original: Tensor) -> None:
        super().__init__(modules)
        found = self._before(original)
        self.is_tensor = isinstance(found, Tensor)
        self.ntensors = 1 if self.is_tensor else len(found)
        for name, value in zip(self._names(), [found] if self.is_tensor else found, strict=True):
            if not isinstance(original, Parameter):
                self.register_buffer(name, value)
            elif value is original:
                self.register_parameter(name, value)
            else:
                self.register_parameter(name, Parameter(value.detach(), original.requires_grad))

    def _names(self) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]

    def _before(self, value: Any) -> Any:
        """The input from which the modules compute `value`, as far as they can say."""
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    value = module.right_inverse(value)
                elif module is not self[0] or not isinstance(value, Tensor):
                    raise RuntimeError(f"{type(module).__name__} has no right_inverse(), so that its parameter cannot be assigned")
        return value

    def right_inverse(self, value: Tensor) -> None:
        """Writes what gives `value` to the originals."""
        found = self._before(value)
        with no_grad():
            for name, part in zip(self._names(), [found] if self.is_tensor else found, strict=True):
                getattr(self, name).copy_(part)

    def forward(self) -> Tensor:
        value = self[0](*(getattr(self, name) for name in self._names()))
        for module in list(self)[1:]:
            value = module(value)
        return value


def _property(name: str) -> property:
    return property(lambda self: self.parametrizations[name](), lambda self, value: self.parametrizations[name].right_inverse(value))


def _class_of(base: type, names: tuple[str, ...]) -> type:
    """A subclass whose attributes of these names are computed; `base` has those that were made, which end with it."""
    if "_parametrized_by" not in vars(base):
        base._parametrized_by = {}  # type: ignore[attr-defined]
    made = vars(base)["_parametrized_by"]
    return made[names] if names in made else made.setdefault(names, _make_class(base, names))


def _make_class(base: type, names: tuple[str, ...]) -> type:

    def assign(self: Any, name: str, value: Any) -> None:
        if name in names:
            object.__setattr__(self, name, value)  # a Parameter, too, goes to the property
        else:
            super(kind, self).__setattr__(name, value)  # type: ignore[arg-type]

    def reduce(self: Any, protocol: Any) -> tuple:
        return _make, (base, names), self.__getstate__()

    namespace: dict[str, Any] = {name: _property(name) for name in names}
    namespace.update({"__setattr__": assign, "__reduce_ex__": reduce, "_parametrized": base})
    kind = type(f"Parametrized{base.__name__}", (base,), namespace)
    return kind


def _make(base: type, names: tuple[str, ...]) -> Any:
    """A module of that class without its attributes, for pickle and copy, which cannot find the class by its name."""
    kind: Any = _class_of(base, names)
    return kind.__new__(kind)


def _set_names(module: Module, names: Iterable[str]) -> None:
    base: Any = getattr(type(module), "_parametrized", type(module))
    found = tuple(names)
    object.__setattr__(module, "__class__", _class_of(base, found) if found else base)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether parameters of a module are computed; whether that of a name is."""
    found = module._modules.get("parametrizations")
    return isinstance(found, ModuleDict) and (tensor_name in found if tensor_name is not None else len(found) > 0)


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Module:
    """Lets a parameter or buffer of a module be computed by another module; returns the module.

    Parameters
    ----------
    module : Module
    tensor_name : str
    parametrization : Module
        Called with the parameter, at each use. With a method ``right_inverse(value)`` values can be assigned; that may return several Tensors,
        all of which the call gets then. A second one is called with the result of the first.
    unsafe : bool, default False
        Let it change the shape or the dtype.

    Examples
    --------
    >>> import transformer_c as tc
    >>> class Symmetric(tc.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = tc.nn.utils.parametrize.register_parametrization(tc.nn.Linear(3, 3), "weight", Symmetric())
    >>> tc.equal(layer.weight, layer.weight.T), list(layer.state_dict())
    (True, ['bias', 'parametrizations.weight.original'])
    """
    if not isinstance(module, Module) or not isinstance(parametrization, Module):
        wrong = parametrization if isinstance(module, Module) else module
        raise TypeError(f"register_parametrization() takes a module, a name and a module, got {wrong!r} ({type(wrong).__name__})")
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        computed = module.parametrizations[tensor_name]
        before = computed()
        _check(parametrization(before), before, parametrization, unsafe)
        computed.append(parametrization)
        return module
    registry = next((r for r in (module._parameters, module._buffers) if r.get(tensor_name) is not None), None)
    if registry is None:
        raise ValueError(f"{type(module).__name__} has no parameter or buffer {tensor_name!r}")
    original = registry[tensor_name]
    computed = ParametrizationList([parametrization], original)
    with no_grad():
        _check(computed(), original, parametrization, unsafe)
    del registry[tensor_name]
    if "parametrizations" not in module._modules:
        module.add_module("parametrizations", ModuleDict())
    module.parametrizations[tensor_name] = computed
    _set_names(module, module.parametrizations.keys())
    return module


def _check(value: Any, original: Tensor, parametrization: Module, unsafe: bool) -> None:
    what = type(parametrization).__name__
    if not isinstance(value, Tensor):
        raise ValueError(f"{what} gives {type(value).__name__}; a parametrization gives a Tensor")
    if not unsafe and (value.shape != original.shape or value.dtype != original.dtype):
        raise ValueError(
            f"{what} gives {tuple(value.shape)} of {value.dtype}, but the parameter is {tuple(original.shape)} of {original.dtype}; unsafe=True "
            "allows it"
        )


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Makes a computed parameter an ordinary one again, with the value that it has, or with its original; returns the module.

    Examples
    --------
    >>> import transformer_c as tc
    >>> layer = tc.nn.utils.parametrizations.weight_norm(tc.nn.Linear(2, 2))
    >>> list(tc.nn.utils.parametrize.remove_parametrizations(layer, "weight").state_dict())
    ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"{type(module).__name__} has no parametrization of {tensor_name!r}")
    computed = module.parametrizations[tensor_name]
    if not leave_parametrized and not computed.is_tensor:
        raise ValueError(f"{tensor_name!r} is computed from {computed.ntensors} Tensors, so that leave_parametrized must be True")
    first = getattr(computed, computed._names()[0])
    with no_grad():
        value = computed() if leave_parametrized else first.detach()
    del module.parametrizations[tensor_name]
    _set_names(module, module.parametrizations.keys())
    if not len(module.parametrizations):
        del module.parametrizations
    if isinstance(first, Parameter):
        module.register_parameter(tensor_name, Parameter(value, first.requires_grad))
    else:
        module.register_buffer(tensor_name, value)
    return module


def cached() -> contextlib.AbstractContextManager[None]:
    """PyTorch's switch, without effect: a parameter is computed at each use."""
    return contextlib.nullcontext()


__all__ = ["ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
