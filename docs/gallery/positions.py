"""Positional encoding

Sines and cosines of the position, one wavelength for two dimensions.
"""

import transformer_c as tc

figure = tc.plot.positional_encoding(tc.PositionalEncoding(d_model=48, max_len=96))
