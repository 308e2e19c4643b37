"""The tutorials' figures.

Every function takes ndarrays or Tensors and gives a ``matplotlib.figure.Figure`` that no window and no pyplot state belongs to: keep it with
``figure.savefig("name.png")``; in a notebook it shows itself. Colours of text and ground follow the matplotlib style in use.
matplotlib is not needed to install or import this library, only to call these functions: ``pip install 'transformer_c[tutorial]'``.

attention      attention_maps
curves         positional_encoding, learning_rate, losses
pictures       image_sets, patches
paths          sequences
"""

from .attention import attention_maps
from .curves import learning_rate, losses, positional_encoding
from .paths import sequences
from .pictures import image_sets, patches

__all__ = ["attention_maps", "image_sets", "learning_rate", "losses", "patches", "positional_encoding", "sequences"]
