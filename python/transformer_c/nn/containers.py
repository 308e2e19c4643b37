"""Modules that contain modules: in sequence, in a list, or under names."""

from __future__ import annotations

import itertools
import operator
from collections import OrderedDict
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from typing import Any, TypeVar

from .._arguments import listed, shown
from .._tensor import as_tensor
from .module import Module
from .parameter import Parameter

N = TypeVar("N", bound="_Numbered")


class _Numbered(Module):
    """Modules at positions, with the methods of a list. What is refused changes nothing."""

    def append(self: N, module: Module) -> N:
        """Adds a module at the end; returns self."""
        self.add_module(next(self._free_names()), module)
        return self

    def extend(self: N, modules: Iterable[Module]) -> N:
        """Adds modules at the end; returns self."""
        self._modules.update(_registered(modules, self._free_names()))
        return self

    def _free_names(self) -> Iterator[str]:
        """Numbers from that of the next position on, but for those that are names here, as in net[1:] and in an OrderedDict."""
        return (name for name in map(str, itertools.count(len(self))) if name not in self._modules)

    def insert(self: N, index: int, module: Module) -> N:
        """Puts a module before position `index`; returns self. All are numbered anew."""
        items = list(self)
        items.insert(index, module)
        return self._hold(items)

    def pop(self, index: int = -1) -> Module:
        """Removes the module at position `index` and returns it; those after it are numbered anew."""
        items = list(self)
        module = items.pop(self._place(index))
        self._hold(items)
        return module

    def _hold(self: N, items: list[Module]) -> N:
        """Has these modules from now on, numbered anew."""
        modules = _registered(items, map(str, itertools.count()))
        self._modules.clear()
        self._modules.update(modules)
        return self

    def _place(self, index: int) -> int:
        """The position, counted from the beginning."""
        kind = type(self).__name__
        if isinstance(index, slice):
            raise TypeError(f"modules of a {kind} are replaced and popped one by one, not by slices")
        try:
            place = operator.index(index)
        except TypeError:
            raise TypeError(
                f"a {kind} is indexed with ints and slices, not with {type(index).__name__}; by its name a module is an attribute"
            ) from None
        if not -len(self) <= place < len(self):
            raise IndexError(f"index {shown(place)} is out of range for a {kind} of {len(self)} modules")
        return place % len(self)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(list(self._modules)[self._place(index)], module)

    def __delitem__(self, index: int | slice) -> None:
        items = list(self)
        del items[index if isinstance(index, slice) else self._place(index)]
        self._hold(items)

    def __iadd__(self: N, other: Iterable[Module]) -> N:
        return self.extend(other) if isinstance(other, Iterable) else NotImplemented


def _registered(modules: Iterable[Module], names: Iterator[str]) -> dict[str, Any]:
    """The modules by these names, of which there are enough; TypeError if one is none."""
    if not isinstance(modules, Iterable) or isinstance(modules, (str, dict)):
        raise TypeError(f"modules must be an iterable of nn.Module, not {type(modules).__name__}")
    holder = Module()
    for module in modules:
        holder.add_module(next(names), module)
    return holder._modules


class Sequential(_Numbered):
    """Calls modules one after the other; they are given as arguments or as an OrderedDict of names."""

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        first = modules[0] if len(modules) == 1 else None
        named = first if isinstance(first, dict) else {str(i): module for i, module in enumerate(modules)}
        for name, module in named.items():
            self.add_module(name, module)

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return list(self._modules.values())[self._place(index)]

    def __add__(self, other: Iterable[Module]) -> Sequential:
        return Sequential().extend([*self, *other]) if isinstance(other, Iterable) else NotImplemented


class ModuleList(_Numbered):
    """A list of modules that registers them."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def __getitem__(self, index):
        items = list(self._modules.values())
        return type(self)(items[index]) if isinstance(index, slice) else items[self._place(index)]

    def __repr__(self) -> str:
        """As PyTorch shows it: neighbours that look alike once, with their numbers."""
        lines = []
        for text, group in itertools.groupby(((name, repr(child)) for name, child in self._places()), key=operator.itemgetter(1)):
            names = [name for name, _ in group]
            shown = text if len(names) == 1 else f"{len(names)} x {text}"
            lines.append(f"\n  ({names[0] if len(names) == 1 else f'{names[0]}-{names[-1]}'}): " + shown.replace("\n", "\n  "))
        return f"{type(self).__name__}({''.join(lines)}{chr(10) if lines else ''})"

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other]) if isinstance(other, Iterable) else NotImplemented


class ParameterList(Module):
    """A list of parameters that registers them: their state-dict keys are their positions.

    Parameters
    ----------
    values : iterable of Parameter, array_like or None
        Anything but a Parameter becomes one; None keeps its place.

    Examples
    --------
    >>> import transformer_c as tc
    >>> scales = tc.nn.ParameterList([tc.ones(2), tc.zeros(3)])
    >>> list(scales.state_dict()), [p.shape for p in scales]
    (['0', '1'], [(2,), (3,)])
    """

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__()
        self.extend(listed("values", values, "parameters"))

    def append(self, value: Any) -> ParameterList:
        """Adds a parameter at the end; returns self."""
        self.register_parameter(str(len(self)), _parameter(value))
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Adds parameters at the end; returns self."""
        for value in [_parameter(value) for value in values]:  # all, before the first is added
            self.append(value)
        return self

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._seen("_parameters").values()))

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(list(self._parameters.values())[index])  # the parameters, also in a call under autocast
        return list(self)[index]

    def __repr__(self) -> str:
        lines = [f"  ({name}): {p.dtype} of shape {tuple(p.shape)}" for name, p in self._seen("_parameters").items() if p is not None]
        return "\n".join([f"{type(self).__name__}(", *lines, ")"]) if lines else Module.__repr__(self)

    def __setitem__(self, index: int, value: Any) -> None:
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} parameters; append() adds one")
        self.register_parameter(str(place), _parameter(value))


def _parameter(value: Any) -> Parameter | None:
    return value if value is None or isinstance(value, Parameter) else Parameter(as_tensor(value))


class ParameterDict(Module, MutableMapping[str, Any]):
    """A dict of parameters that registers them: their state-dict keys are their names.

    Parameters
    ----------
    parameters : mapping or iterable of (str, value), optional
        Values as for ``ParameterList``.

    Examples
    --------
    >>> import transformer_c as tc
    >>> scales = tc.nn.ParameterDict({"text": tc.ones(2), "image": tc.zeros(3)})
    >>> list(scales.state_dict()), scales["image"].requires_grad, "text" in scales
    (['text', 'image'], True, True)
    """

    __eq__, __hash__ = Module.__eq__, Module.__hash__  # of the module itself, not of its contents
    __repr__ = ParameterList.__repr__

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        if parameters is not None:
            self.update(parameters)

    def update(self, parameters: Any = (), /, **more: Any) -> None:
        """Adds parameters; those of the same name are replaced."""
        holder = Module()
        for name, value in dict(parameters, **more).items():  # all, before the first is added
            holder.register_parameter(name, _parameter(value))
        for name, value in holder._parameters.items():
            self.register_parameter(name, value)

    def __getitem__(self, name: str) -> Any:
        return self._seen("_parameters")[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.register_parameter(name, _parameter(value))

    def __delitem__(self, name: str) -> None:
        del self._parameters[name]

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._parameters))

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._parameters))

    def popitem(self) -> tuple[str, Any]:
        """Removes the last parameter, and returns it with its name."""
        for name in reversed(self):
            return name, self.pop(name)
        raise KeyError("popitem() of a ParameterDict that is empty")

    def copy(self) -> ParameterDict:
        """Another of the same parameters."""
        return ParameterDict(self)

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """Another with one value under all of the names."""
        return ParameterDict((name, default) for name in keys)

    def __or__(self, other: Mapping[str, Any]) -> ParameterDict:
        return ParameterDict({**self, **other}) if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Mapping[str, Any]) -> ParameterDict:
        return ParameterDict({**other, **self}) if isinstance(other, Mapping) else NotImplemented

    def __ior__(self, other: Mapping[str, Any]) -> ParameterDict:
        self.update(other)
        return self


class ModuleDict(Module):
    """A dict of modules that registers them: their state-dict keys begin with their names.

    Parameters
    ----------
    modules : mapping or iterable of (str, Module), optional

    Examples
    --------
    >>> import transformer_c as tc
    >>> heads = tc.nn.ModuleDict({"mean": tc.nn.Linear(4, 1), "class": tc.nn.Linear(4, 3)})
    >>> list(heads.state_dict())
    ['mean.weight', 'mean.bias', 'class.weight', 'class.bias']
    >>> heads["class"](tc.zeros(2, 4)).shape
    (2, 3)
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Adds modules; those of the same name are replaced."""
        if isinstance(modules, (list, tuple)) and any(isinstance(item, Module) for item in modules):
            raise TypeError(
                f"{type(self).__name__} takes a dict of modules, or pairs of a name and a module; ModuleList takes modules alone"
            )
        holder = Module()
        for name, module in dict(modules).items():
            holder.add_module(name, module)
        for name, module in holder._modules.items():
            self.add_module(name, module)

    def pop(self, name: str) -> Module:
        """Removes a module and returns it."""
        return self._modules.pop(name)

    def clear(self) -> None:
        """Removes all modules."""
        self._modules.clear()

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> ValuesView[Module]:
        """The modules."""
        return self._modules.values()

    def items(self) -> ItemsView[str, Module]:
        """Names and modules."""
        return self._modules.items()

    def __getitem__(self, name: str) -> Module:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        del self._modules[name]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: object) -> bool:
        return name in self._modules
