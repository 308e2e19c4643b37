"""Training the tutorial's Reverse task: one step on a batch of 128, and an epoch of 390 of them through the DataLoader.

A step is the tutorial's: one-hot, forward, cross-entropy, accuracy, backward, clipping at 5, Adam, scheduler. PyTorch's side is
the eager modules with the fastest of its three Adams.
"""

from .common import block_flops, linear_flops
from .harness import Workload

BATCH, LENGTH, CLASSES, SIZE, CLIP, LR, WARMUP, MAX_ITERS = 128, 16, 10, 32, 5.0, 5e-4, 50, 3900
ROWS = BATCH * LENGTH
FORWARD_FLOPS = block_flops(BATCH, LENGTH, SIZE, 1, 2 * SIZE) + 2 * linear_flops(ROWS, CLASSES, SIZE) + linear_flops(ROWS, SIZE, SIZE)
STEPS = 50000 // BATCH


def _ours_train():
    """The function that trains on one batch."""
    import transformer_c as tc

    functional = tc.functional
    model = tc.TransformerPredictor(
        input_dim=CLASSES, model_dim=SIZE, num_classes=CLASSES, num_heads=1, num_layers=1, lr=LR, warmup=WARMUP, max_iters=MAX_ITERS
    )
    parameters = list(model.parameters())
    optimizer = tc.optim.Adam(parameters, lr=LR)
    scheduler = tc.CosineWarmupScheduler(optimizer, warmup=WARMUP, max_iters=MAX_ITERS)

    def train(sequences, labels):
        predicted = model(functional.one_hot(sequences, CLASSES).float())
        loss = functional.cross_entropy(predicted.view(-1, CLASSES), labels.view(-1))
        (predicted.argmax(dim=-1) == labels).float().mean()
        optimizer.zero_grad()
        loss.backward()
        tc.optim.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        scheduler.step()

    return train


def _torch_train(**adam):
    import torch
    import torch.nn.functional as F

    from .torch_modules import CosineWarmupScheduler, TransformerPredictor

    model = TransformerPredictor(input_dim=CLASSES, model_dim=SIZE, num_classes=CLASSES, num_heads=1, num_layers=1)
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=LR, **adam)
    scheduler = CosineWarmupScheduler(optimizer, warmup=WARMUP, max_iters=MAX_ITERS)

    def train(sequences, labels):
        predicted = model(F.one_hot(sequences, CLASSES).float())
        loss = F.cross_entropy(predicted.view(-1, CLASSES), labels.view(-1))
        (predicted.argmax(dim=-1) == labels).float().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        scheduler.step()

    return train


def _step(module, train):
    sequences = module.randint(CLASSES, size=(BATCH, LENGTH))
    labels = sequences.flip(1).clone()
    return lambda: train(sequences, labels)


def _epoch(loader, train):
    def epoch():
        for sequences, labels in loader:
            train(sequences, labels)

    return epoch


def _ours_step():
    import transformer_c as tc

    tc.manual_seed(42)
    return _step(tc, _ours_train())


def _ours_epoch():
    import transformer_c as tc

    tc.manual_seed(42)
    data = tc.datasets.ReverseDataset(CLASSES, LENGTH, 50000)
    return _epoch(tc.data.DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True), _ours_train())


def _torch_step(**adam):
    def build():
        import torch

        torch.manual_seed(42)
        return _step(torch, _torch_train(**adam))

    return build


def _torch_epoch():
    import torch

    from .torch_modules import ReverseDataset

    torch.manual_seed(42)
    data = ReverseDataset(CLASSES, LENGTH, 50000)
    return _epoch(torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True), _torch_train(fused=True))


ADAMS = {"Adam": {}, "Adam(foreach=True)": {"foreach": True}, "Adam(fused=True)": {"fused": True}}

WORKLOADS = [
    Workload("reverse_step", _ours_step, {name: _torch_step(**options) for name, options in ADAMS.items()}, 3 * FORWARD_FLOPS),
    Workload("reverse_epoch", _ours_epoch, _torch_epoch, 3 * FORWARD_FLOPS * STEPS, heavy=True),
]
