"""A training step of the tutorial's Set-Anomaly task: 64 sets of 10 feature vectors, four blocks of size 256, dropout 0.1."""

from .common import block_flops, linear_flops, normal
from .harness import Workload

BATCH, SET, FEATURES, SIZE, HEADS, LAYERS, CLIP, LR, WARMUP, MAX_ITERS = 64, 10, 512, 256, 4, 4, 2.0, 5e-4, 100, 70300
SHAPE = {"input_dim": FEATURES, "model_dim": SIZE, "num_classes": 1, "num_heads": HEADS, "num_layers": LAYERS}
DROPOUT = {"dropout": 0.1, "input_dropout": 0.1}
FLOPS = 3 * (
    LAYERS * block_flops(BATCH, SET, SIZE, HEADS, 2 * SIZE)
    + linear_flops(BATCH * SET, FEATURES + SIZE + 1, SIZE)  # input and output layers
)


def _ours():
    import transformer_c as tc

    tc.manual_seed(42)
    model = tc.TransformerPredictor(**SHAPE, **DROPOUT, lr=LR, warmup=WARMUP, max_iters=MAX_ITERS)
    parameters = list(model.parameters())
    optimizer = tc.optim.Adam(parameters, lr=LR)
    scheduler = tc.CosineWarmupScheduler(optimizer, warmup=WARMUP, max_iters=MAX_ITERS)
    features, labels = tc.tensor(normal(0, BATCH, SET, FEATURES)), tc.randint(SET, size=(BATCH,))

    def step():
        predicted = model(features, add_positional_encoding=False).squeeze(-1)
        loss = tc.functional.cross_entropy(predicted, labels)
        optimizer.zero_grad()
        loss.backward()
        tc.optim.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        scheduler.step()

    return step


def _torch(**adam):
    def build():
        import torch
        import torch.nn.functional as F

        from .torch_modules import CosineWarmupScheduler, TransformerPredictor

        torch.manual_seed(42)
        model = TransformerPredictor(**SHAPE, **DROPOUT)
        parameters = list(model.parameters())
        optimizer = torch.optim.Adam(parameters, lr=LR, **adam)
        scheduler = CosineWarmupScheduler(optimizer, warmup=WARMUP, max_iters=MAX_ITERS)
        features, labels = torch.tensor(normal(0, BATCH, SET, FEATURES)), torch.randint(SET, size=(BATCH,))

        def step():
            predicted = model(features, add_positional_encoding=False).squeeze(-1)
            loss = F.cross_entropy(predicted, labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, CLIP)
            optimizer.step()
            scheduler.step()

        return step

    return build


ADAMS = {"Adam(foreach=True)": {"foreach": True}, "Adam(fused=True)": {"fused": True}}

WORKLOADS = [Workload("anomaly_step", _ours, {name: _torch(**options) for name, options in ADAMS.items()}, FLOPS)]
