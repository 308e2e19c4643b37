"""A learning rate with a warmup

The tutorial's schedule: a linear warmup, then half a cosine.
"""

import transformer_c as tc

optimizer = tc.optim.Adam([tc.nn.Parameter(tc.zeros(4))], lr=1e-3)
figure = tc.plot.learning_rate(tc.CosineWarmupScheduler(optimizer, warmup=100, max_iters=2000))
