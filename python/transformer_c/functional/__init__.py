"""Functions without state. Tensors give Tensors; ndarrays give ndarrays, and nothing is recorded.

Names, arguments and results follow torch.nn.functional. Arguments of different floating dtypes are promoted to a common one.
PyTorch's `inplace` is accepted; the result is always a new Tensor.
"""

from typing import TYPE_CHECKING

from .._names import hooks
from . import activations, attention, convolution, distances, lookup, losses, normalisation, projections
from .activations import *  # noqa: F403
from .attention import *  # noqa: F403
from .convolution import *  # noqa: F403
from .distances import *  # noqa: F403
from .lookup import *  # noqa: F403
from .losses import *  # noqa: F403
from .normalisation import *  # noqa: F403
from .projections import *  # noqa: F403

__all__: list[str] = []
__all__ += activations.__all__ + attention.__all__ + convolution.__all__ + distances.__all__
__all__ += lookup.__all__ + losses.__all__ + normalisation.__all__ + projections.__all__

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
