"""Four masks

What each query (a row) may attend to: all keys, those before it, a window, and the first five keys, as padding leaves them.
"""

import numpy as np
import transformer_c as tc

x = np.random.default_rng(0).standard_normal((1, 1, 12, 16))
options = [{}, {"is_causal": True}, {"window": (2, 2)}, {"key_lengths": [5]}]
maps = [tc.F.scaled_dot_product_attention(x, x, x, return_attention=True, **each)[1] for each in options]
figure = tc.plot.attention_maps(
    np.concatenate(maps, axis=1)[0] ** 0.5, title="Square roots of the weights: all, causal, window=(2, 2), key_lengths=[5]"
)
