"""Patches of an image

An image as an encoder over patches sees it: sixteen patches of 7 x 7 pixels.
"""

import transformer_c as tc

patches, labels = tc.datasets.digit_patches()
figure = tc.plot.patches(patches[7], title=f"A {labels[7]} in {len(patches[7])} patches")
