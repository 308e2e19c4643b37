"""Positional encoding as curves

The first four dimensions over sixteen positions.
"""

import transformer_c as tc

figure = tc.plot.positional_encoding(tc.PositionalEncoding(d_model=48, max_len=96), dimensions=[1, 2, 3, 4], positions=16)
