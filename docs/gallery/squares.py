"""Squares

Noisy squares whose first two corners a model sees; here the true corners stand for its predictions, moved a little.
"""

import transformer_c as tc

points, directions = tc.datasets.square_sequences(n=10)
figure = tc.plot.sequences(points, directions, predictions=points[:, 2:] + 0.1)
