"""The base class of all layers and models.

A module is a tree. Assigning a Parameter, a buffer or another module to an attribute registers it under that name; the
names, joined by dots, are the keys of the state dict, which are the same as in PyTorch.
"""

from __future__ import annotations

import itertools
from _thread import get_ident
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from .. import _autocast, _core, _names
from .._core import Tensor
from .._listed_hooks import ListedHandle, listed
from .._nested import holds, map_nested
from .._recording import drop_gradients, no_grad
from .._tensor import tensor
from .call import MAY_HOLD_ARRAYS, accept_array, as_call_argument, gpu_of, to_array, unknown_arguments, with_list_as_array
from .html import html_tree
from .module_hooks import Hooked, RemovableHandle, register
from .parameter import Parameter, registered
from .state import LOADING, IncompatibleKeys, Loading, fitting_values, taken_over

M = TypeVar("M", bound="Module")

# Methods of models in other libraries: what to use here.
_ELSEWHERE = {
    "fit": "tc.Trainer(epochs).fit(model, (x, y)), with a tc.TrainingModule",
    "evaluate": "tc.Trainer.test, with a tc.TrainingModule",
    "predict": "the call, model(x), after model.eval()",
    "save": "tc.save(model, path)",
    "save_weights": "tc.save(model, path)",
    "load_weights": "model.load_state_dict(tc.load(path))",
    "summary": "tc.summary(model, example)",
    "weights": "list(model.parameters()), or model.state_dict()",
    "trainable_variables": "list(model.parameters())",
    **dict.fromkeys(
        ("num_parameters", "count_params", "get_num_params"), "sum(p.numel() for p in model.parameters()), or tc.summary(model)"
    ),
}


class Module:
    """Base class for all layers and models; subclass it and write ``forward``.

    Attributes that are Parameters, modules or registered buffers are found by ``parameters()``, ``state_dict()``,
    ``to()`` and so on. Calling a module calls ``forward``. Called with ndarrays, a module passes Tensors to ``forward``, records
    nothing and returns ndarrays; called with a Tensor among its arguments, it returns Tensors.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> class Double(tc.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.scale = tc.nn.Parameter([2.0])
    ...     def forward(self, x):
    ...         return x * self.scale
    >>> Double()(np.ones(3, np.float32))
    array([2., 2., 2.], dtype=float32)
    >>> [name for name, _ in Double().named_parameters()]
    ['scale']
    """

    training: bool
    _version = 1  # of what is in a state dict, which hooks and `_load_from_state_dict` are told
    _arguments_elsewhere: ClassVar[Mapping[str, str]] = {}  # names of arguments of forward() in other layers: what it is here

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        owners: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            if base is not Module and base is not object:  # which declare nothing, and have most of the names
                owners |= dict.fromkeys(vars(base), base)
        for name, owner in owners.items():
            if owner is cls or not isinstance(vars(owner)[name], _core.registered):
                continue
            others = [vars(base)[name] for base in cls.__mro__ if name in vars(base) and not issubclass(owner, base)]
            hidden = [other for other in others if not isinstance(other, _core.registered)]  # of another base class, such as a property
            if hidden:
                setattr(cls, name, hidden[0])
            elif cls.__getattr__ is not owner.__getattr__:  # it is asked for what is registered, too
                setattr(cls, name, registered(""))

    def __init__(self) -> None:
        object.__setattr__(self, "training", True)
        object.__setattr__(self, "_parameters", {})
        object.__setattr__(self, "_buffers", {})
        object.__setattr__(self, "_transient", set())  # names of buffers that are not in the state dict
        object.__setattr__(self, "_modules", {})

    # ---- attributes -------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        registries = self.__dict__
        if "_parameters" not in registries:
            if isinstance(value, (Parameter, Module)):
                raise AttributeError(f"call super().__init__() in {type(self).__name__}.__init__ before assigning {name!r}")
            object.__setattr__(self, name, value)
            return
        if isinstance(value, Parameter):
            _check_name("parameter", name)
            self._refuse_hidden(name)
            self._register(self._parameters, name, value)
        elif isinstance(value, Module) and name not in self._parameters:
            self._register(self._modules, name, value)
        elif name in self._parameters:
            if value is not None:
                hint = f"; del module.{name} makes room for a module" if isinstance(value, Module) else ""
                raise TypeError(
                    f"{name!r} is a parameter: assign an nn.Parameter, or None to unregister it, not {type(value).__name__}{hint}"
                )
            self._parameters[name] = None
        elif name in self._buffers:
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"{name!r} is a buffer: assign a Tensor or None, not {type(value).__name__}")
            self._buffers[name] = value
        elif name in self._modules:
            if value is not None:
                raise TypeError(f"{name!r} is a module: assign an nn.Module, or None to unregister it, not {type(value).__name__}")
            self._modules[name] = None
        elif name == "forward" and (hooked := Hooked.in_place(self)):
            hooked.replace(value)
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:  # only reached when normal lookup has failed
        own = self.__dict__
        if "_modules" in own:  # the last that __init__ makes
            if name in (modules := own["_modules"]):
                return modules[name]
            if name in (parameters := own["_parameters"]):
                return _autocast.seen(parameters[name]) if _autocast.casts else parameters[name]
            if name in (buffers := own["_buffers"]):
                return buffers[name]
        raise _names.MissingName(f"{type(self).__name__!r} object has no attribute {name!r}", lambda: self._advice(name), name, self)

    def _advice(self, name: str) -> str:
        """What to write instead of a name that the module does not have."""
        if "_modules" not in self.__dict__:
            return f"; call super().__init__() at the beginning of {type(self).__name__}.__init__"
        if name in _ELSEWHERE:
            return f"; use {_ELSEWHERE[name]}"
        found = None if name.startswith("_") else _names.nearest(name, dir(self))
        return f"; did you mean {found!r}?" if found else ""

    def __delattr__(self, name: str) -> None:
        if name == "forward" and (hooked := Hooked.in_place(self)):
            if Hooked.is_own(self):
                raise AttributeError(f"this {type(self).__name__} has no forward of its own, only hooks, which their handles remove")
            hooked.replace(None)
        elif name in self.__dict__ or not self._forget(name):
            object.__delattr__(self, name)

    def __dir__(self):
        of_class = [name for name in super().__dir__() if not isinstance(getattr(type(self), name, None), _core.registered)]
        names = {*of_class, *self.__dict__, *self._parameters, *self._buffers, *self._modules}
        return [name for name in names if not name[:1].isdigit()]

    def _register(self, registry: dict[str, Any], name: str, value: Any) -> None:
        """Registers `value` under `name`; a name that is already registered keeps its place in the order, as in PyTorch."""
        self._forget(name, but=registry)
        registry[name] = value

    def _refuse_taken(self, name: str, registry: dict[str, Any]) -> None:
        """KeyError where `name` is an attribute of another kind than those of `registry`: to replace it, one assigns, or deletes it first."""
        if name not in registry and hasattr(self, name):
            raise KeyError(f"attribute {name!r} already exists")

    def _refuse_hidden(self, name: str) -> None:
        """KeyError where the class has a value or a method of this name, which Python would find before a parameter. A property may be there:
        it computes with the parameter."""
        owner = next((kind for kind in type(self).__mro__ if name in vars(kind)), None)
        if owner and not (isinstance(found := vars(owner)[name], _core.registered) or hasattr(type(found), "__set__")):
            raise KeyError(f"attribute {name!r} already exists: the class {owner.__name__} has it, which would hide the parameter")

    def _forget(self, name: str, but: dict[str, Any] | None = None) -> bool:
        """Removes `name` from all registries except `but`."""
        found = False
        for registry in (self._parameters, self._buffers, self._modules):
            if registry is not but and name in registry:
                del registry[name]
                found = True
        self._transient.discard(name)
        self.__dict__.pop(name, None)
        return found

    def register_buffer(self, name: str, value: Tensor | None, persistent: bool = True) -> None:
        """Registers a Tensor that is part of the module's state but is not trained.

        Parameters
        ----------
        name : str
        value : Tensor, array_like or None
            Anything but a Tensor is copied.
        persistent : bool
            Whether the state dict contains it.
        """
        if "_buffers" not in self.__dict__:
            raise AttributeError("call super().__init__() before register_buffer()")
        _check_name("buffer", name)
        if value is not None and not isinstance(value, Tensor):
            value = tensor(value)
        self._refuse_taken(name, self._buffers)
        self._buffers[name] = value
        if persistent:
            self._transient.discard(name)
        else:
            self._transient.add(name)

    def register_parameter(self, name: str, value: Parameter | None) -> None:
        """Registers a parameter, or None in place of an omitted one, under a name without dots; KeyError where it is another attribute's."""
        _check_name("parameter", name)
        if value is not None and not isinstance(value, Parameter):
            raise TypeError(f"{name!r} must be an nn.Parameter or None, not {type(value).__name__}")
        self._refuse_taken(name, self._parameters)
        self._register(self._parameters, name, value)

    def add_module(self, name: str, module: Module | None) -> None:
        """Registers a child under `name`, which has no dots and is no other attribute's; KeyError otherwise."""
        if module is not None and not isinstance(module, Module):
            hint = "; a list of modules is unpacked with *" if isinstance(module, (list, tuple)) else ""
            if isinstance(module, type) and issubclass(module, Module):
                hint = f"; call the class to make one: {module.__name__}()"
            raise TypeError(f"{name!r} must be an nn.Module or None, not {type(module).__name__}{hint}")
        _check_name("module", name)
        self._refuse_taken(name, self._modules)
        self._register(self._modules, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """``add_module`` under PyTorch's other name."""
        self.add_module(name, module)

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Replaces the module at a path of names, such as "layers.0.linear1"; without `strict` adds it where there is none. AttributeError where
        a name before the last is not a module.

        Examples
        --------
        >>> import transformer_c as tc
        >>> net = tc.nn.Sequential(tc.nn.Linear(2, 2), tc.nn.ReLU())
        >>> net.set_submodule("1", tc.nn.GELU())
        >>> net[1]
        GELU(approximate='none')
        """
        if not target:
            raise ValueError("target is empty: a module cannot take its own place")
        if not isinstance(module, Module):
            raise ValueError(f"{target!r} must be an nn.Module, not {type(module).__name__}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if name not in parent._modules:
            if strict:
                self.get_submodule(target)  # says what there is
            parent._refuse_taken(name, parent._modules)
        parent.add_module(name, module)

    def get_submodule(self, target: str) -> Module:
        """The module at a path of names, such as "layers.0.linear1"; "" is this one.

        Raises
        ------
        AttributeError
            Where a name of the path is not a module.
        """
        found = self
        for name in target.split(".") if target else ():
            child = found._modules.get(name)
            if child is None:
                raise AttributeError(
                    f"{type(found).__name__} has no module {name!r} (of the path {target!r}); it has {list(found._modules)}"
                )
            found = child
        return found

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path of names, such as "layers.0.linear1.weight"; AttributeError where there is none."""
        return self._at("_parameters", "parameter", target)

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path of names; AttributeError where there is none."""
        return self._at("_buffers", "buffer", target)

    def _seen(self, registry: str) -> dict[str, Any]:
        """A registry as this thread sees it: in a call under autocast, with the casts of parameters."""
        found = getattr(self, registry)
        is_changed = _autocast.casts and registry == "_parameters"
        return {name: _autocast.seen(value) for name, value in found.items()} if is_changed else found

    def _at(self, registry: str, kind: str, target: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        registered = module._seen(registry)
        found = registered.get(name)
        if found is None:
            has = [key for key, value in registered.items() if value is not None]
            raise AttributeError(f"{type(module).__name__} has no {kind} {name!r} (of the path {target!r}); it has {has}")
        return found

    # ---- calling ----------------------------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the module's result; subclasses override it."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(): define it in the class")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls ``forward`` with ndarrays turned into Tensors; see the class."""
        try:
            depth = _core.call_depth()  # of calls of modules in this thread
            if depth <= 0:
                if depth < 0:
                    return _autocast.call(self, args, kwargs)
                args = tuple(map(as_call_argument, args))
                if args and isinstance(args[0], (list, tuple)):
                    args = with_list_as_array(self, args)
                kwargs = {k: as_call_argument(a) for k, a in kwargs.items()}
            for value in (*args, *kwargs.values()) if kwargs else args:
                if isinstance(value, MAY_HOLD_ARRAYS):
                    return self._call_with_arrays(args, kwargs, depth)
            return self.forward(*args, **kwargs) if depth else _core.call_nested(self.forward, args, kwargs)
        except TypeError as error:
            own = f"{getattr(self.forward, '__qualname__', None)}() got an unexpected keyword argument"
            unknown = unknown_arguments(self, kwargs) if str(error).startswith(own) else ""
            if unknown:
                raise TypeError(unknown) from None
            raise

    def _call_with_arrays(self, args: tuple, kwargs: dict[str, Any], depth: int) -> Any:
        """Calls ``forward`` with arguments among which may be ndarrays; the results are ndarrays if the outermost call has no Tensors."""
        if not (holds(np.ndarray, args) or holds(np.ndarray, kwargs)):
            return _core.call_nested(self.forward, args, kwargs)
        outermost_arrays = depth == 0 and not (holds(Tensor, args) or holds(Tensor, kwargs))
        dtype, device = self._dtype_and_device()
        if device == "cpu" and not outermost_arrays:
            device = gpu_of((args, kwargs)) or device
        taken: dict[int, Any] = {}  # an array given twice becomes one Tensor, which lets self-attention save products

        def convert(value: Any) -> Any:
            if id(value) not in taken:
                taken[id(value)] = accept_array(value, dtype, device)
            return taken[id(value)]

        args, kwargs = map_nested(convert, args), map_nested(convert, kwargs)
        if not outermost_arrays:
            return _core.call_nested(self.forward, args, kwargs)
        with no_grad():
            return map_nested(to_array, _core.call_nested(self.forward, args, kwargs))

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: there is nothing to compile."""

    def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """Calls ``hook(module, args)`` before ``forward``; what it returns, unless None, takes the place of the arguments.

        Parameters
        ----------
        hook : callable
        prepend : bool, default False
            Call it before the hooks that are registered already.
        with_kwargs : bool, default False
            Call ``hook(module, args, kwargs)``, which returns None or (args, kwargs).

        Returns
        -------
        RemovableHandle
            ``handle.remove()`` takes the hook away.
        """
        return register(self, "before", hook, with_kwargs, prepend)

    def register_forward_hook(self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """Calls ``hook(module, args, output)`` after ``forward``; what it returns, unless None, takes the place of the output.

        With `with_kwargs`, calls ``hook(module, args, kwargs, output)``. Parameters and result as for ``register_forward_pre_hook``.

        Examples
        --------
        >>> import numpy as np, transformer_c as tc
        >>> net = tc.nn.Sequential(tc.nn.Linear(4, 8), tc.nn.ReLU())
        >>> handle = net[0].register_forward_hook(lambda module, args, output: print(tuple(output.shape)))
        >>> y = net(np.zeros((2, 4), np.float32))
        (2, 8)
        >>> handle.remove()
        """
        return register(self, "after", hook, with_kwargs, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(module, grad_input, grad_output)``, tuples of Tensors or None, once the gradients of the module's inputs are known.

        What it returns, unless None, takes the place of `grad_input`. It sees positional arguments and results that are Tensors, also those in
        tuples, lists and dicts of results, on the CPU.
        Result as for ``register_forward_pre_hook``.
        """
        return register(self, "backward", hook, prepend=prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(module, grad_output)`` once the gradients of the module's results are known; what it returns, unless None, takes their
        place. Otherwise as ``register_full_backward_hook``."""
        return register(self, "backward_before", hook, prepend=prepend)

    def _dtype_and_device(self):
        """The dtype and device of the first floating parameter or buffer; (None, "cpu") without one."""
        for value in itertools.chain(self.parameters(), self.buffers()):
            if value.dtype.kind in "fV":
                return value.dtype, value.device
        return None, "cpu"

    # ---- walking the tree ---------------------------------------------------------------------------------------------

    def named_modules(self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """(name, module) for this module (named `prefix`) and all modules below it, each once unless `remove_duplicate` is False."""
        memo = set() if memo is None else memo
        if remove_duplicate:
            if id(self) in memo:
                return
            memo.add(id(self))
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """This module and all below it."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) one level down, each module once: one that has several names comes under the first."""
        seen: set[int] = set()
        for name, child in self._places():
            if id(child) not in seen:
                seen.add(id(child))
                yield name, child

    def children(self) -> Iterator[Module]:
        """The modules one level down, each once."""
        return (child for _, child in self.named_children())

    def _places(self) -> Iterator[tuple[str, Module]]:
        """(name, module) one level down, a shared module under each of its names."""
        return ((name, child) for name, child in self._modules.items() if child is not None)

    def _named(self, registry: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        if not isinstance(prefix, str):
            raise TypeError(f"prefix must be a str, got {prefix!r} ({type(prefix).__name__}); recurse is given by name")
        return self._walk(registry, self.named_modules(None, prefix, remove_duplicate) if recurse else [(prefix, self)], remove_duplicate)

    @staticmethod
    def _walk(registry: str, modules: Iterable[tuple[str, Module]], remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for prefix, module in modules:
            for name, value in module._seen(registry).items():
                if value is not None and id(value) not in seen:
                    if remove_duplicate:
                        seen.add(id(value))
                    yield (f"{prefix}.{name}" if prefix else name), value

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """(name, parameter), each parameter once, even if it is shared, unless `remove_duplicate` is False; names begin with `prefix`."""
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once."""
        return (value for _, value in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """(name, buffer), persistent or not; the arguments as those of ``named_parameters``."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, persistent or not."""
        return (value for _, value in self.named_buffers(recurse=recurse))

    # ---- state --------------------------------------------------------------------------------------------------------

    def state_dict(self, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False) -> dict[str, Any]:
        """Parameters and persistent buffers by name, as detached Tensors that share the module's memory.

        Parameters
        ----------
        destination : dict, optional
            What they are added to, and what is returned, instead of a new OrderedDict. A module's parts are asked with it for theirs, by
            their own ``state_dict``.
        prefix : str
            What the names begin with.
        keep_vars : bool
            Give the parameters and buffers themselves, not detached.
        """
        if destination is not None and not isinstance(destination, MutableMapping):
            raise TypeError(
                f"destination is a dict that takes the values, got {destination!r:.80} ({type(destination).__name__}); prefix= is given by name"
            )
        for hook in listed(self, "saving"):
            hook(self, prefix, keep_vars)
        state: Any = OrderedDict() if destination is None else destination
        if destination is None:
            state._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(state, "_metadata"):
            state._metadata[prefix[:-1]] = metadata
        self._save_to_state_dict(state, prefix, keep_vars)
        for name, child in self._places():
            child.state_dict(destination=state, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in listed(self, "saved"):
            found = hook(self, state, prefix, metadata)
            state = state if found is None else found
        return state

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> ListedHandle:
        """Calls ``hook(module, prefix, keep_vars)`` before ``state_dict`` gathers what is of this module."""
        return ListedHandle(self, "saving", hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> ListedHandle:
        """Calls ``hook(module, state_dict, prefix, local_metadata)`` after ``state_dict`` gathered what is of this module and those below it; the
        hook may change the dict, whose keys of this module begin with `prefix`, and returns None.

        Examples
        --------
        >>> import transformer_c as tc
        >>> layer = tc.nn.Linear(2, 1)
        >>> handle = layer.register_state_dict_post_hook(lambda module, state, prefix, metadata: state.pop(prefix + "bias") and None)
        >>> list(layer.state_dict())
        ['weight']
        """
        return ListedHandle(self, "saved", _InPlace(hook) if callable(hook) else hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> ListedHandle:
        """Calls ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`` before ``load_state_dict``
        takes what is of this module; the hook may rename or change what is in the dict, a copy.

        Examples
        --------
        >>> import transformer_c as tc
        >>> layer = tc.nn.Linear(2, 1, bias=False)
        >>> rename = lambda module, state, prefix, *unused: state.update({prefix + "weight": state.pop(prefix + "w")})
        >>> handle = layer.register_load_state_dict_pre_hook(rename)
        >>> layer.load_state_dict({"w": [[1.0, 2.0]]}), layer.weight.tolist()
        (<All keys matched successfully>, [[1.0, 2.0]])
        """
        return ListedHandle(self, "loading", hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> ListedHandle:
        """Calls ``hook(module, incompatible_keys)`` after ``load_state_dict`` has written the values of all modules. What it removes from the lists
        of `incompatible_keys` is no error; where keys remain that are one, or the hook raises, ``load_state_dict`` takes the values back."""
        return ListedHandle(self, "loaded", hook)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> ListedHandle:
        """``register_state_dict_post_hook`` of a hook that may return another dict."""
        return ListedHandle(self, "saved", hook)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any], with_module: bool = False) -> ListedHandle:
        """``register_load_state_dict_pre_hook`` of a hook without a module as its first argument."""
        return ListedHandle(self, "loading", hook if with_module or not callable(hook) else _Without(hook))

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Adds what is of this module alone. As in PyTorch, a subclass whose files have other keys or values extends or replaces this method, and
        ``_load_from_state_dict`` with it."""
        for name, value in self._own_state():
            destination[prefix + name] = value if keep_vars else value.detach()

    def _own_state(self) -> Iterator[tuple[str, Tensor]]:
        """What the state dict has of this module without those below it."""
        if hasattr(type(self), "get_extra_state"):
            raise NotImplementedError(
                f"{type(self).__name__}.get_extra_state() is of PyTorch alone: keep what it returns in a buffer, by register_buffer(), or add it "
                "in a _save_to_state_dict() and take it in a _load_from_state_dict() of your own"
            )
        for name, value in self._seen("_parameters").items():
            if value is not None:
                yield name, value
        for name, value in self._buffers.items():
            if value is not None and name not in self._transient:
                yield name, value

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> IncompatibleKeys:
        """Copies values into the parameters and persistent buffers, cast to their dtypes.

        Parameters
        ----------
        state_dict : mapping of str to array_like
            Tensors, ndarrays, or anything ``np.asarray`` takes (PyTorch's tensors too).
        strict : bool
            Whether missing or unexpected keys are an error.
        assign : bool, default False
            Let parameters and buffers have the dtypes of the values, and their memory where it can be written to, instead of copying:
            for ``tc.load(path, mmap=True)`` and modules made in ``nn.init.skip()``. Gradients of parameters that change their dtype are
            dropped. Make optimizers after it. An interrupt leaves all of the old values or all of the new ones, as it does without.

        Returns
        -------
        IncompatibleKeys
            Named tuple of ``missing_keys`` and ``unexpected_keys``.

        Raises
        ------
        RuntimeError
            With `strict`, when keys are missing or unexpected, or when a module's ``_load_from_state_dict`` reports an error.
        ValueError
            When a shape differs; nothing is loaded in that case.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"a state dict is a mapping of names to arrays, got {type(state_dict).__name__}; tc.load(path) reads one from a file"
            )
        loading = Loading()
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        followed: list[Module] = []
        state: Any = OrderedDict(state_dict)
        if (metadata := getattr(state_dict, "_metadata", None)) is not None:
            state._metadata = metadata
        with _core.replaced([(LOADING, get_ident(), loading)]):
            _offer(self, state, "", metadata or {}, followed, missing, unexpected, errors)
        check = (loading, state_dict, type(self).__name__)
        values = fitting_values(*check, strict and not followed, missing, unexpected, errors)
        # A hook may raise: then all is as it was.
        before = {key: p.detach() if assign else p.detach().clone() for key, p in loading.places.items()} if followed else {}
        gradients = [(p, p.grad) for p in loading.places.values()] if followed and assign else []  # another dtype drops them
        if assign:
            data = taken_over(loading.places, values, loading.values)
            _core.set_all_data([loading.places[key] for key in data], list(data.values()))
        else:
            _assign(loading.places, values)
        found = IncompatibleKeys(missing, unexpected)
        try:
            for module in followed:
                for hook in listed(module, "loaded"):
                    if hook(module, found) is not None:
                        raise RuntimeError(
                            "a hook of register_load_state_dict_post_hook() changes the lists that it is given, and returns None"
                        )
            if followed and strict and (missing or unexpected):
                fitting_values(*check, True, missing, unexpected, errors)
        except BaseException:
            if assign and before:
                _core.set_all_data([loading.places[key] for key in before], list(before.values()))
                for p, gradient in gradients:
                    p.grad = gradient
            else:
                _assign(loading.places, before)
            raise
        return found

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Loads what is of this module alone, whose keys begin with `prefix`. As in PyTorch, a subclass that has other keys in older files
        renames those of `state_dict`, a copy, or makes another one, and then calls this method of its base class; one that does not call it
        answers for all its keys."""
        for hook in listed(self, "loading"):
            hook(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        own = {prefix + name: value for name, value in self._own_state()}
        if strict:
            missing_keys.extend(key for key in own if key not in state_dict)
            unexpected_keys.extend(key for key in state_dict if key not in own and _has_no_place(key, prefix, self))
        if (loading := LOADING.get(get_ident())) is not None:
            loading.ask(own, state_dict)  # load_state_dict takes the values of all modules, or of none
        else:
            loading = Loading()
            loading.ask(own, state_dict)
            _assign(loading.places, fitting_values(loading, state_dict, type(self).__name__, False, [], [], []))

    def train(self: M, mode: bool = True) -> M:
        """Turns dropout on (or off) in this module and all below it; returns self."""
        if not isinstance(mode, (bool, np.bool_)):
            raise ValueError(f"mode must be a bool, got {mode!r}")
        object.__setattr__(self, "training", bool(mode))
        for child in self.children():
            child.train(mode)  # by its own method: a frozen part may stay in eval mode
        return self

    def eval(self: M) -> M:
        """Turns dropout off in this module and all below it; returns self."""
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Freezes (False) or unfreezes every parameter; returns self."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops every gradient: ``.grad`` is None until the next backward. With `set_to_none` False, gradients become zeros."""
        drop_gradients(self.parameters(), set_to_none)

    def apply(self: M, function: Callable[[Module], Any]) -> M:
        """Calls `function` on every module below this one and then on this one; returns self."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    def to(self: M, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False) -> M:
        """Moves and casts parameters and buffers in place; returns self.

        ``module.to("cuda")``, ``module.to(np.float64)``, ``module.to(device, dtype)``, or by keyword. Only floating
        values are cast. Gradients are dropped when their parameter changes. A device may be the number of a GPU; `non_blocking`
        has no effect.
        """
        for argument in args:
            if isinstance(argument, bool):  # non_blocking
                continue
            if isinstance(argument, int) or (isinstance(argument, str) and argument.startswith(("cpu", "cuda"))):
                device = argument
            else:
                dtype = argument
        kind = None if dtype is None else tensor([0.0]).to(dtype).dtype
        if kind is not None and kind.kind not in "fV":
            raise TypeError(f"a module has floating parameters and buffers, which to() casts to a floating dtype, not to {kind.name}")
        moved = []
        for module in self.modules():
            for value in (*module._seen("_parameters").values(), *module._buffers.values()):
                changed = None if value is None else _converted(value, dtype, device)
                if changed is not None and changed.device != value.device:
                    moved.append((value, changed))  # all of them, or none where the memory ends
                elif changed is not None and changed.dtype != value.dtype:
                    _core.set_data(value, changed)  # one by one: both are in the same memory
        for value, changed in moved:
            _core.set_data(value, changed)
        return self

    def float(self: M) -> M:
        """Casts floating parameters and buffers to float32; returns self."""
        return self.to(dtype=np.float32)

    def double(self: M) -> M:
        """Casts floating parameters and buffers to float64; returns self."""
        return self.to(dtype=np.float64)

    def half(self: M) -> M:
        """Casts floating parameters and buffers to float16; returns self."""
        return self.to(dtype=np.float16)

    def bfloat16(self):
        """Casts floating parameters and buffers to bfloat16; returns self."""
        return self.to(dtype="bfloat16")

    def cpu(self: M) -> M:
        """Moves parameters and buffers to the CPU; returns self."""
        return self.to("cpu")

    def cuda(self: M, device: int | str | None = None, non_blocking: bool = False) -> M:
        """Moves parameters and buffers to a GPU, given by its number or name; returns self."""
        return self.to("cuda" if device is None else device)

    # ---- copying and printing ------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict:
        return self.__dict__.copy()

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        if "forward" in state:
            Hooked.settle_copy(self)

    def extra_repr(self) -> str:
        """The text that ``repr`` shows between the parentheses; layers override it."""
        return ""

    def __repr__(self) -> str:
        lines = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self._places()]
        extra = self.extra_repr().splitlines()
        if not lines and len(extra) < 2:
            return f"{type(self).__name__}({''.join(extra)})"
        inner = "\n  ".join([*extra, *lines])
        return f"{type(self).__name__}(\n  {inner}\n)"

    def _repr_html_(self, name: str = "") -> str:
        """The tree of modules with their parameters, for notebooks."""
        return html_tree(self, name)


def _check_name(kind: str, name: str) -> None:
    """Raises where something cannot be registered under a name, which becomes a part of the keys of a state dict."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a {kind} is a str, not {type(name).__name__}")
    if not name or "." in name:
        raise KeyError(f"a {kind} cannot be named {name!r}: dots separate names in the keys of a state dict")


def _assign(places: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    with no_grad():
        _core.assign_all([places[key].detach() for key in values], list(values.values()))


class _InPlace:
    """A hook that changes the dict that it is given."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self.hook = hook

    def __call__(self, *arguments: Any) -> None:
        if self.hook(*arguments) is not None:
            raise RuntimeError("a hook of register_state_dict_post_hook() changes the dict that it is given, and returns None")


class _Without:
    """A hook that is called without the first argument, its module."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self._hook = hook

    def __call__(self, module: Module, *arguments: Any) -> None:
        self._hook(*arguments)


def _offer(
    module: Module, state: dict[str, Any], prefix: str, metadata: Mapping[str, Any], followed: list[Module], *reports: list[str]
) -> None:
    """Lets a module and those below it take their values from `state`; each is given the keys that begin with its prefix. Those whose hooks must
    be called afterwards are added to `followed`."""
    module._load_from_state_dict(state, prefix, metadata.get(prefix[:-1], {}), True, *reports)
    below: dict[str, dict[str, Any]] = {}
    for key, value in state.items():
        if isinstance(key, str) and key.startswith(prefix):
            below.setdefault(key[len(prefix) :].partition(".")[0], {})[key] = value
    for name, child in module._modules.items():
        if child is not None:
            _offer(child, below.get(name, {}), f"{prefix}{name}.", metadata, followed, *reports)
    if listed(module, "loaded"):
        followed.append(module)


def _has_no_place(key: Any, prefix: str, module: Module) -> bool:
    """Does a key that is none of the module's own begin with its prefix, and not with that of a module below it?"""
    if not isinstance(key, str):
        return not prefix
    name, dot, _ = key[len(prefix) :].partition(".")
    return key.startswith(prefix) and not (dot and module._modules.get(name) is not None)


def _converted(value: Tensor, dtype: Any, device: Any) -> Tensor:
    """The contents of `value`, cast (floating values only) and moved; in the same memory where neither changes anything."""
    changed = value.detach()
    if dtype is not None and value.dtype.kind in "fV":
        changed = changed.to(dtype)
    return changed if device is None else changed.to(device)


__all__ = ["IncompatibleKeys", "Module"]
