"""The tutorials' figures.

Every function takes ndarrays or Tensors and returns a ``matplotlib.figure.Figure`` without a window or pyplot state: save it with
``figure.savefig("name.png")``; a notebook displays it. The colours of text and background follow the matplotlib style in use.
matplotlib is not needed to install or import this library, only to call these functions: ``pip install 'transformer_c[tutorial]'``.

attention      attention_maps
curves         positional_encoding, learning_rate, losses
pictures       image_sets, patches
paths          sequences
"""

from typing import TYPE_CHECKING

from .._names import hooks
from .attention import attention_maps
from .curves import learning_rate, losses, positional_encoding
from .paths import sequences
from .pictures import image_sets, patches

__all__ = ["attention_maps", "image_sets", "learning_rate", "losses", "patches", "positional_encoding", "sequences"]

if not TYPE_CHECKING:
    others = ("history", "training", "loss", "curves", "learning_curve", "accuracy")
    __getattr__, __dir__ = hooks(
        __name__, instead={**dict.fromkeys(others, "tc.plot.losses(trainer)"), "attention": "tc.plot.attention_maps(maps)"}
    )
    del others
