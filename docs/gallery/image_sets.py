"""Sets with an anomaly

Nine digits of one class and one of another, at the end of each row: found (green) in the first set, and in the second another one was chosen (red).
"""

import numpy as np
import transformer_c as tc

(images, labels), _ = tc.datasets.digits(side=8)
images = images.reshape(-1, 8, 8)
sets = np.stack([np.concatenate([images[labels == a][:9], images[labels == b][:1]]) for a, b in [(3, 8), (0, 6)]])
figure = tc.plot.image_sets(sets / sets.max(), labels=[9, 9], predictions=[9, 4])
