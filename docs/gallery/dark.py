"""For dark pages

The colours of text and background follow the matplotlib style in use.
"""

import matplotlib.style
import transformer_c as tc

with matplotlib.style.context("dark_background"):
    figure = tc.plot.losses({"train_loss": [2.3, 0.9, 0.4, 0.2], "val_loss": [2.1, 0.8, 0.5, 0.3], "val_acc": [0.2, 0.7, 0.9, 0.95]})
