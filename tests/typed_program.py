"""A typical user's program: `make lint` checks it with mypy --strict, where an untyped name of ours would be an error."""

import numpy as np
import transformer_c as tc

x = np.zeros((2, 5, 8), np.float32)
tc.manual_seed(0)
block = tc.EncoderBlock(8, 2, 16).train()
encoder = tc.TransformerEncoder(num_layers=2, input_dim=8, num_heads=2, dim_feedforward=16).eval()
maps = encoder.get_attention_maps(x)
attention = tc.nn.MultiheadAttention(8, 2, batch_first=True)
y, weights = attention(x, x, x)
values = tc.functional.scaled_dot_product_attention(x, x, x, is_causal=True, key_lengths=[5, 3])
cache = tc.nn.KeyValueCache()
cache.truncate(0)

optimizer = tc.optim.SGD(block.parameters(), lr=0.1, momentum=0.9)
schedule = tc.CosineWarmupScheduler(optimizer, warmup=5, max_iters=10)
for batch, target in tc.data.DataLoader(tc.data.TensorDataset(x, x), batch_size=2, shuffle=True):
    optimizer.zero_grad()
    loss = tc.functional.mse_loss(block(batch), target)
    loss.backward()
    tc.nn.utils.clip_grad_norm_(block.parameters(), 1.0)
    optimizer.step()
    schedule.step()
with tc.no_grad():
    z = block.to("cpu")(x)
block.load_state_dict(block.state_dict())
parts = tc.nn.ModuleDict({"a": tc.nn.Linear(2, 3)})
numbers = tc.cat([tc.zeros(2), tc.ones(2), tc.arange(3).float(), tc.randn(2)])
probabilities = tc.functional.softmax(numbers, -1)
trainer = tc.Trainer(max_epochs=1, strategy="zero")
tc.distributed.init("auto", timeout=60)
is_last = tc.distributed.rank() == tc.distributed.world_size() - 1
everywhere = tc.distributed.all_gather(tc.distributed.all_reduce(tc.distributed.broadcast(x, root=0), op="mean"))
tc.distributed.barrier()
sampler = tc.data.DistributedSampler(tc.data.TensorDataset(x), num_replicas=2, rank=1, seed=3)
task = tc.datasets.ReverseDataset(10, 16, 100)
normed, mean, rstd = tc.ops.layer_norm_forward(x, np.ones(8, np.float32))
