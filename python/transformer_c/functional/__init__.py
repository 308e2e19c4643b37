"""Functions without state. Tensors give Tensors; ndarrays give ndarrays, and nothing is recorded.

Names, arguments and results follow torch.nn.functional. Arguments of different floating dtypes are promoted to a common one.
PyTorch's `inplace` is accepted; the result is always a new Tensor.
"""

from typing import TYPE_CHECKING

from .._names import hooks
from . import activations, attention, convolution, distances, lookup, losses, normalisation, projections, resizing, windows
from .activations import *  # noqa: F403
from .attention import *  # noqa: F403
from .convolution import *  # noqa: F403
from .distances import *  # noqa: F403
from .lookup import *  # noqa: F403
from .losses import *  # noqa: F403
from .normalisation import *  # noqa: F403
from .projections import *  # noqa: F403
from .resizing import *  # noqa: F403
from .windows import *  # noqa: F403

__all__: list[str] = []
__all__ += activations.__all__ + attention.__all__ + convolution.__all__ + distances.__all__
__all__ += lookup.__all__ + losses.__all__ + normalisation.__all__ + projections.__all__ + resizing.__all__ + windows.__all__

if not TYPE_CHECKING:
    instead = {
        **dict.fromkeys(("adaptive_max_pool1d", "adaptive_max_pool2d"), "t.amax(dim, keepdim=True), for one number of each channel"),
        "instance_norm": "tc.functional.group_norm, with a group for each channel",
        **dict.fromkeys(("upsample", "upsample_bilinear", "upsample_nearest"), "tc.functional.interpolate"),
        **dict.fromkeys(("dropout1d", "dropout2d", "dropout3d"), "x * functional.dropout(ones, p, training), of ones (N, C, 1, ...)"),
        "embedding_bag": "tc.functional.embedding and a mean over the sequence",
        "fold": "reshape and permute, where windows do not overlap",
        "pixel_shuffle": "t.unflatten(1, (-1, r, r)), permute and reshape",
        "multi_head_attention_forward": "tc.nn.MultiheadAttention, or tc.functional.scaled_dot_product_attention",
    }
    __getattr__, __dir__ = hooks(__name__, instead=instead)
    del instead
