"""A call and its inputs, and the draws that make them: shapes, strides, dtypes and values."""

import dataclasses
import math
import random

import numpy as np

FLOATS = ("float32",) * 6 + ("float64", "bfloat16")
INTEGERS = ("int64", "int32", "uint8")
NUMBERS = ("float32",) * 5 + ("float64", "bfloat16", "int64", "int32")
LAYOUTS = ("contiguous",) * 3 + ("permuted", "sliced", "stepped", "expanded", "offset")
COMMON_SIZES = (2, 3, 5, 7, 11, 13, 17, 31, 64, 100, 128, 256)
LARGEST = 1 << 22  # elements of a shape


@dataclasses.dataclass(frozen=True)
class Input:
    """What a call is given: `view` of a tensor of `array`, in `dtype`. gradient: whether it gets one where the call computes gradients."""

    array: np.ndarray
    dtype: str
    shape: tuple
    layout: str = ""
    view: object = lambda tensor: tensor
    gradient: bool = True

    def __str__(self):
        return f"{self.dtype} {self.shape} {self.layout}".strip()

    def tensor(self, module):
        made = module.tensor(self.array)
        return made if self.dtype == str(self.array.dtype) else made.to(getattr(module, self.dtype))

    def constant(self):
        return dataclasses.replace(self, gradient=False)


@dataclasses.dataclass(frozen=True)
class Call:
    """`function(module, *tensors)`, where the module is either library. backward: its gradients as well. compared: both give the same numbers."""

    name: str
    function: object
    inputs: tuple = ()
    backward: bool = False
    compared: bool = True

    def derived(self):
        """For each input whether it gets a gradient."""
        return [self.backward and one.gradient and one.dtype in FLOATS for one in self.inputs]

    def __str__(self):
        inputs = f": {', '.join(map(str, self.inputs))}" if self.inputs else ""
        return f"{self.name}{inputs}{' and gradients' * any(self.derived())}"


def fill(rng, shape, dtype, values="normal", below=100):
    """An array of float32 where NumPy has no such dtype. values: "normal", "positive", "ones", "shares" (0 to 1), or "few" (0 and 1)."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in INTEGERS:
        return rng.integers(min(1, below - 1) if values == "positive" else 0, 1 if values == "ones" else below, shape).astype(dtype)
    array = rng.standard_normal(shape)
    if values == "positive":
        array = np.abs(array) + 0.1
    elif values == "shares":
        array = 1 / (1 + np.exp(-array))
    elif values == "few":
        array = (array > 0) * 1.0
    elif values == "ones":
        array = np.ones(shape)
    return array.astype("float64" if dtype == "float64" else "float32")


class Draw(random.Random):
    """A random generator with what calls are made of. largest: an upper bound of the elements of its shapes."""

    def __init__(self, seed, largest=LARGEST):
        super().__init__(seed)
        self.largest = largest

    def size(self, largest):
        """1 to largest, small ones as often as large ones."""
        return int(2 ** self.uniform(0, math.log2(max(1, min(largest, self.largest)))))

    def shape(self, axes=None, largest=LARGEST):
        axes, left, shape = axes or self.choice((1, 2, 2, 3, 3, 4)), self.size(largest), []
        for _ in range(axes - 1):
            any_size = max(1, int(left ** self.random()))
            shape.append(self.choice((any_size, any_size, 1, min(any_size, self.choice(COMMON_SIZES)), any_size | 1)))
            left = max(1, left // shape[-1])
        shape.append(left)
        self.shuffle(shape)
        return tuple(shape)

    def broadcast(self, shape):
        """A shape that fits: the same, or with sizes of 1, or without the first axes."""
        if self.random() < 0.4:
            return shape
        shape = tuple(1 if self.random() < 0.25 else size for size in shape)
        return shape[self.randrange(len(shape)) :] if self.random() < 0.15 else shape

    def order(self, shape):
        return self.sample(range(len(shape)), len(shape))

    def array(self, shape, dtype, values="normal", below=100):
        return fill(np.random.default_rng(self.randrange(1 << 30)), shape, dtype, values, below)

    def plain(self, shape, dtype, values="normal", below=100):
        """An Input that is contiguous."""
        return Input(self.array(shape, dtype, values, below), dtype, tuple(shape))

    def indices(self, shape, below):
        return self.plain(shape, "int64", below=below)

    def input(self, shape, dtype, values="normal", below=100, layouts=LAYOUTS):
        """An Input of any layout."""
        layout, memory, view = self._lay_out(self.choice(layouts), tuple(shape))
        return Input(self.array(memory, dtype, values, below), dtype, tuple(shape), layout, view)

    def _lay_out(self, layout, shape):
        """(layout in words, shape of the memory, view)"""
        axis = self.randrange(len(shape))
        before, after = shape[:axis], shape[axis + 1 :]
        if layout == "permuted":
            order = self.order(shape)
            return f"permuted {order}", tuple(shape[order.index(i)] for i in range(len(shape))), lambda t: t.permute(*order)
        if layout == "sliced":
            return layout, (*shape[:-1], shape[-1] + 3), lambda t: t[..., 1:-2]
        if layout == "stepped":
            return f"stepped {axis}", (*before, 2 * shape[axis], *after), lambda t: t[(slice(None),) * axis + (slice(None, None, 2),)]
        if layout == "expanded":
            return f"expanded {axis}", (*before, 1, *after), lambda t: t.expand(*shape)
        if layout == "offset":
            return layout, (shape[0] + 1, *shape[1:]), lambda t: t[1:]
        return "", shape, lambda t: t

    def sometimes(self, share=0.45):
        """Whether a call computes gradients as well."""
        return self.random() < share


def method(name, *arguments):
    """The call of a method of the first tensor."""
    return lambda module, x, *others: getattr(x, name)(*others, *arguments)


def of_module(name, *arguments, **options):
    return lambda module, *tensors: getattr(module, name)(*tensors, *arguments, **options)


def functional(name, *arguments, **options):
    return lambda module, *tensors: getattr(module.nn.functional, name)(*tensors, *arguments, **options)
