"""Writes the golden values next to this file: results of PyTorch 2.13 on a CPU, for machines without PyTorch.

    python tests/golden/make_golden.py [FOLDER]

The same PyTorch on the same kind of machine writes the same bytes. README.md says what each file contains and how close a result
must come; `load` in __init__.py reads them.
"""

import json
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
from benchmarks import torch_modules as tutorial

DTYPES = {"f32": torch.float32, "f64": torch.float64}


class Cases:
    """Collects cases, each a name, its options (JSON) and its arrays, for one .npz file."""

    def __init__(self):
        self.options, self.arrays = {}, {}

    def add(self, case, options=None, **arrays):
        assert case not in self.options, case
        self.options[case] = options or {}
        for name, value in arrays.items():
            self.arrays[f"{case}/{name}"] = value.detach().numpy().copy() if isinstance(value, torch.Tensor) else np.asarray(value)

    def write(self, path):
        np.savez_compressed(path, options=json.dumps(self.options, sort_keys=True), **self.arrays)


def draw(seed, *shapes):
    """float32 normals, one tensor per shape."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def with_gradients(f, inputs, dy=None):
    """f and its gradients in both dtypes: {"f32.y": ..., "f32.d<name>": ..., "f64.y": ...} for named float32 inputs.

    `dy` is the gradient of the result; drawn when there is none and the result is not a single number.
    """
    found = {}
    for tag, dtype in DTYPES.items():
        leaves = {name: x.detach().clone().to(dtype).requires_grad_() for name, x in inputs.items()}
        y = f(*leaves.values())
        if y.ndim and dy is None:
            dy = draw(99, y.shape)[0]
            found["dy"] = dy
        y.backward(None if dy is None else dy.to(dtype))
        found[f"{tag}.y"] = y
        found.update({f"{tag}.d{name}": x.grad for name, x in leaves.items()})
    return found


# ---- the tutorial's modules ----------------------------------------------------------------------------------------


def example_mask(rank, batch, heads, length, padding=False):
    """0 and 1, about a third masked; the second query of the first sequence may attend to nothing."""
    shape = {2: (length, length), 3: (batch, 1 if padding else length, length), 4: (batch, heads, length, length)}[rank]
    mask = (draw(7, shape)[0] > -0.4).to(torch.uint8)
    if not padding:
        mask[(0,) * (rank - 2) + (1,)] = 0
    return mask


def add_module(cases, case, make, x, options, mask=None, **call):
    """Weights from seed 42; output, maps, and the gradients of sum(output * dy) for the input and every parameter."""
    torch.manual_seed(42)
    module = make()
    arrays = {"x": x} | {f"weight.{name}": value.clone() for name, value in module.state_dict().items()}
    if mask is not None:
        arrays["mask"] = mask
    dy = None
    for tag, dtype in DTYPES.items():
        module = module.to(dtype)
        module.zero_grad()
        leaf = x.clone().to(dtype).requires_grad_()
        y = module(leaf, mask=mask, **call)
        dy = draw(99, y.shape)[0] if dy is None else dy
        y.backward(dy.to(dtype))
        arrays |= {"dy": dy, f"{tag}.y": y, f"{tag}.dx": leaf.grad}
        arrays |= {f"{tag}.d{name}": parameter.grad.clone() for name, parameter in module.named_parameters()}
        if isinstance(module, tutorial.MultiheadAttention):
            arrays[f"{tag}.attention"] = module(leaf, mask=mask, return_attention=True)[1]
        elif not isinstance(module, tutorial.EncoderBlock):
            arrays |= {f"{tag}.map.{i}": m for i, m in enumerate(module.get_attention_maps(leaf.detach(), mask=mask, **call))}
    cases.add(case, {**options, **call}, **arrays)


def modules():
    cases = Cases()
    for case, heads, size, batch, length, rank in [
        ("mha", 2, 8, 2, 5, None),
        ("mha_rank2", 2, 8, 2, 5, 2),
        ("mha_rank3", 3, 9, 2, 7, 3),
        ("mha_rank4", 3, 9, 2, 7, 4),
        ("mha_one", 1, 5, 1, 1, None),
    ]:
        mask = None if rank is None else example_mask(rank, batch, heads, length)
        options = {"input_dim": size, "embed_dim": size, "num_heads": heads}
        add_module(cases, case, lambda o=options: tutorial.MultiheadAttention(**o), draw(1, (batch, length, size))[0], options, mask)
    wider = {"input_dim": 6, "embed_dim": 12, "num_heads": 4}
    add_module(
        cases,
        "mha_wider",
        lambda: tutorial.MultiheadAttention(**wider),
        draw(1, (2, 3, 6))[0],
        wider,
        example_mask(3, 2, 4, 3, padding=True),
    )
    for case, size, heads, hidden, batch, length, rank in [
        ("block", 32, 1, 64, 2, 16, None),
        ("block_odd", 15, 3, 13, 3, 7, 3),
        ("block_rank2", 8, 2, 16, 2, 5, 2),
        ("block_rank4", 8, 2, 16, 2, 5, 4),
    ]:
        mask = None if rank is None else example_mask(rank, batch, heads, length)
        options = {"input_dim": size, "num_heads": heads, "dim_feedforward": hidden}
        add_module(cases, case, lambda o=options: tutorial.EncoderBlock(**o), draw(2, (batch, length, size))[0], options, mask)
    options = {"num_layers": 3, "input_dim": 12, "num_heads": 2, "dim_feedforward": 20}
    x, mask = draw(3, (2, 6, 12))[0], example_mask(3, 2, 2, 6)
    add_module(cases, "encoder", lambda: tutorial.TransformerEncoder(**options), x, options, mask)
    torch.manual_seed(42)
    maps = tutorial.TransformerEncoder(**options).double().get_attention_maps(x.double(), mask, propagate_mask=True)
    cases.arrays |= {f"encoder/f64.propagated.{i}": m.numpy() for i, m in enumerate(maps)}
    options = {"input_dim": 10, "model_dim": 16, "num_classes": 7, "num_heads": 2, "num_layers": 2}
    for case, rank, call in [("predictor", None, {}), ("predictor_masked", 3, {"add_positional_encoding": False})]:
        mask = None if rank is None else example_mask(rank, 2, 2, 9)
        add_module(cases, case, lambda: tutorial.TransformerPredictor(**options), draw(4, (2, 9, 10))[0], options, mask, **call)
    return cases


def positional_encoding():
    cases = Cases()
    for d_model, rows in [(32, range(16)), (48, range(0, 96, 5)), (7, range(20)), (32, range(4990, 5000))]:
        pe = tutorial.PositionalEncoding(d_model).pe[0, list(rows)]
        cases.add(f"{d_model}_from_{rows.start}", {"d_model": d_model, "rows": list(rows)}, pe=pe)
    return cases


# ---- the Reverse run -----------------------------------------------------------------------------------------------


def reverse_setup():
    """Everything random up to the first batch, in the tutorial's order: cell 5, cell 16, cell 20."""
    torch.manual_seed(42)
    cell5 = [torch.randn(3, 2) for _ in range(3)]
    train, validation, test = (tutorial.ReverseDataset(10, 16, size) for size in (50000, 1000, 10000))
    model = tutorial.TransformerPredictor(input_dim=10, model_dim=32, num_classes=10, num_heads=1, num_layers=1)
    return cell5, (train, validation, test), model


def reverse_steps(model, loader, steps, dtype=torch.float32):
    """Losses, gradient norms before clipping and learning rates of the first steps; lists."""
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    scheduler = tutorial.CosineWarmupScheduler(optimizer, warmup=50, max_iters=3900)
    losses, norms, rates, batches = [], [], [], []
    for sequences, labels in loader:
        loss = F.cross_entropy(model(F.one_hot(sequences, 10).to(dtype)).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 5.0).item())
        rates.append(optimizer.param_groups[0]["lr"])
        losses.append(loss.item())
        batches.append(sequences)
        optimizer.step()
        scheduler.step()
        if len(losses) == steps:
            return losses, norms, rates, batches


def reverse_run():
    cases = Cases()
    cell5, (train, validation, test), model = reverse_setup()
    arrays = {
        "cell5": torch.stack(cell5),
        "train.first": train.data[:3],
        "validation.first": validation.data[:3],
        "test.first": test.data[:3],
    }
    arrays |= {f"initial.{name}": value.clone() for name, value in model.state_dict().items()}
    loader = torch.utils.data.DataLoader(train, batch_size=128, shuffle=True, drop_last=True)
    losses, norms, rates, batches = reverse_steps(model, loader, 100)
    arrays |= {f"final.{name}": value for name, value in model.state_dict().items()}
    arrays |= {"batch.first": batches[0], "batch.last": batches[-1][:8]}
    arrays |= {"losses": np.float32(losses), "norms": np.float32(norms), "rates": np.float64(rates)}
    exact = reverse_setup()[2].double()
    pairs = [(b, b.flip(1)) for b in batches]  # the same batches again, without drawing
    arrays["losses.f64"] = np.float64(reverse_steps(exact, pairs, 100, torch.float64)[0])
    recipe = {"lr": 5e-4, "warmup": 50, "max_iters": 3900, "batch_size": 128, "clip": 5.0, "parameters": 10346}
    assert recipe["parameters"] == sum(p.numel() for p in model.parameters())
    cases.add("run", recipe, **arrays)
    return cases


def shuffles():
    """The order in which a DataLoader visits its data, epoch after epoch, with an unshuffled pass between, as in training."""
    cases = Cases()
    for size in (10, 1000):
        torch.manual_seed(42)
        data = torch.utils.data.TensorDataset(torch.arange(size))
        shuffled = torch.utils.data.DataLoader(data, batch_size=7, shuffle=True)
        plain = torch.utils.data.DataLoader(data, batch_size=7)
        orders = []
        for _ in range(3):
            orders.append(torch.cat([batch for (batch,) in shuffled]))
            list(plain)  # draws its workers' seed as well
        cases.add(f"shuffle_{size}", {"size": size}, order=torch.stack(orders).short())
    torch.manual_seed(42)
    parts = torch.utils.data.random_split(range(20), [13, 5, 2])
    cases.add("random_split", {"size": 20, "lengths": [13, 5, 2]}, order=np.concatenate([part.indices for part in parts]))
    return cases


# ---- initial weights -----------------------------------------------------------------------------------------------


def initial_weights():
    cases = Cases()

    def add_layer(case, kind, seed, **options):
        torch.manual_seed(seed)
        layer = getattr(nn, kind)(**options)
        cases.add(case, {"layer": kind, "seed": seed, "arguments": options}, **layer.state_dict(), next=torch.rand(2))

    add_layer("linear_3x2", "Linear", 42, in_features=3, out_features=2)
    add_layer("linear_8x24", "Linear", 42, in_features=8, out_features=24)
    add_layer("linear_no_bias", "Linear", 1, in_features=5, out_features=7, bias=False)
    add_layer("embedding_small", "Embedding", 42, num_embeddings=5, embedding_dim=3)
    add_layer("embedding_padded", "Embedding", 3, num_embeddings=7, embedding_dim=5, padding_idx=2)
    add_layer("embedding_16", "Embedding", 3, num_embeddings=4, embedding_dim=8)
    add_layer("layer_norm", "LayerNorm", 42, normalized_shape=6)

    def add_init(case, function, shape, seed=42, dtype=torch.float32, **options):
        torch.manual_seed(seed)
        weight = getattr(nn.init, function)(torch.empty(shape, dtype=dtype), **options)
        described = {"function": function, "shape": shape, "seed": seed, "dtype": str(dtype)[6:], "arguments": options}
        cases.add(case, described, weight=weight, next=torch.rand(2))

    for function in ("xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "normal_", "uniform_"):
        for tag, dtype in DTYPES.items():
            add_init(f"{function}{tag}", function, (6, 5), dtype=dtype)
            add_init(f"{function}small_{tag}", function, (2, 3), dtype=dtype)
    add_init("xavier_uniform_gain", "xavier_uniform_", (4, 7), gain=2.5)
    add_init("xavier_normal_gain", "xavier_normal_", (4, 7), gain=2.5)
    add_init("kaiming_uniform_fan_out", "kaiming_uniform_", (4, 7), mode="fan_out", nonlinearity="relu")
    add_init("kaiming_uniform_linear", "kaiming_uniform_", (4, 7), a=5**0.5)
    add_init("kaiming_normal_tanh", "kaiming_normal_", (4, 7), mode="fan_out", nonlinearity="tanh")
    add_init("normal_scaled", "normal_", (3, 11), mean=-2.0, std=0.02)
    add_init("uniform_range", "uniform_", (3, 11), a=-0.3, b=4.5)
    return cases


# ---- optimizers ----------------------------------------------------------------------------------------------------

OPTIMIZERS = {
    "sgd": ("SGD", {"lr": 0.1}),
    "sgd_default": ("SGD", {}),
    "sgd_momentum": ("SGD", {"lr": 0.05, "momentum": 0.9}),
    "sgd_dampening": ("SGD", {"lr": 0.05, "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.01}),
    "sgd_nesterov": ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "sgd_maximize": ("SGD", {"lr": 0.1, "momentum": 0.5, "maximize": True}),
    "adam": ("Adam", {}),
    "adam_options": ("Adam", {"lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.1}),
    "adam_amsgrad": ("Adam", {"lr": 0.02, "betas": [0.5, 0.6], "amsgrad": True}),
    "adam_maximize": ("Adam", {"lr": 0.02, "maximize": True}),
    "adamw": ("AdamW", {}),
    "adamw_options": ("AdamW", {"lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.3}),
    "adamw_amsgrad": ("AdamW", {"lr": 0.02, "betas": [0.5, 0.6], "amsgrad": True}),
    "adafactor": ("Adafactor", {}),
    "adafactor_options": (
        "Adafactor",
        {"lr": 0.5, "beta2_decay": -0.5, "eps": [1e-2, 0.5], "d": 1.5, "weight_decay": 0.1, "maximize": True},
    ),
    "nadam": ("NAdam", {}),
    "nadam_options": (
        "NAdam",
        {"lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.1, "momentum_decay": 0.3, "maximize": True},
    ),
    "nadam_decoupled": ("NAdam", {"lr": 0.02, "weight_decay": 0.3, "decoupled_weight_decay": True}),
    "radam": ("RAdam", {}),
    "radam_options": ("RAdam", {"lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    "radam_decoupled": ("RAdam", {"lr": 0.02, "weight_decay": 0.3, "decoupled_weight_decay": True}),
    "radam_momentum": ("RAdam", {"lr": 0.02, "betas": [0.5, 0.6]}),
    "adagrad": ("Adagrad", {}),
    "adagrad_options": (
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-3, "maximize": True},
    ),
    "rmsprop": ("RMSprop", {}),
    "rmsprop_options": ("RMSprop", {"lr": 0.02, "alpha": 0.8, "eps": 1e-3, "weight_decay": 0.1}),
    "rmsprop_momentum": ("RMSprop", {"lr": 0.02, "momentum": 0.9}),
    "rmsprop_centered": ("RMSprop", {"lr": 0.02, "centered": True, "momentum": 0.5, "weight_decay": 0.01}),
}


def optimizers(steps=20):
    """Two parameters, the second without a gradient in every fourth step (then it is skipped)."""
    cases = Cases()
    start = draw(5, (3, 5), (7,))
    gradients = draw(6, (steps, 3, 5), (steps, 7))
    cases.add("inputs", {"steps": steps, "skip_second_every": 4}, a=start[0], b=start[1], da=gradients[0], db=gradients[1])
    for case, (kind, options) in OPTIMIZERS.items():
        arrays = {}
        for tag, dtype in DTYPES.items():
            parameters = [nn.Parameter(x.clone().to(dtype)) for x in start]
            optimizer = getattr(torch.optim, kind)(parameters, **options)
            path = []
            for step in range(steps):
                parameters[0].grad = gradients[0][step].to(dtype)
                parameters[1].grad = None if step % 4 == 3 else gradients[1][step].to(dtype)
                optimizer.step()
                path.append(torch.cat([p.detach().flatten() for p in parameters]))
            arrays[tag] = torch.stack(path if tag == "f64" else path[-1:])
        cases.add(case, {"optimizer": kind, "arguments": options}, **arrays)
    return cases


MUON = {
    "default": {},
    "options": {"lr": 0.05, "weight_decay": 0.3, "momentum": 0.8, "ns_steps": 3, "ns_coefficients": [3.0, -3.2, 1.2], "eps": 1e-3},
    "without_nesterov": {"lr": 0.05, "nesterov": False},
    "as_adamw": {"lr": 0.05, "adjust_lr_fn": "match_rms_adamw"},
}


def muon(steps=5):
    """Two matrices; the iterations are in the parameters' dtype, where PyTorch's are in bfloat16."""
    cases, as_bfloat16 = Cases(), torch.Tensor.bfloat16
    start, gradients = draw(7, (3, 5), (8, 2)), draw(8, (steps, 3, 5), (steps, 8, 2))
    cases.add("inputs", {"steps": steps}, a=start[0], b=start[1], da=gradients[0], db=gradients[1])
    torch.Tensor.bfloat16 = torch.Tensor.clone
    for case, options in MUON.items():
        parameters = [nn.Parameter(x.double()) for x in start]
        optimizer = torch.optim.Muon(parameters, **options)
        path = []
        for step in range(steps):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient[step].double()
            optimizer.step()
            path.append(torch.cat([p.detach().flatten() for p in parameters]))
        cases.add(case, options, f64=torch.stack(path))
    torch.Tensor.bfloat16 = as_bfloat16
    return cases


# ---- functions -----------------------------------------------------------------------------------------------------


def functions():
    cases = Cases()
    x, gamma, beta = draw(11, (3, 4, 17), (17,), (17,))
    rows = torch.cat([x[0], torch.full((1, 17), 3.0), x[1, :1] * 1e4, x[1, 1:2] * 1e-4])  # a constant row, large, small
    given = {"x": rows, "gamma": gamma, "beta": beta}
    for eps in (1e-5, 1e-2):
        found = with_gradients(lambda x, gamma, beta, e=eps: F.layer_norm(x, (17,), gamma, beta, e), given)
        cases.add(f"layer_norm_{eps:g}", {"function": "layer_norm", "eps": eps}, **given, **found)
    cases.add(
        "layer_norm_plain", {"function": "layer_norm", "eps": 1e-5}, x=x, **with_gradients(lambda x: F.layer_norm(x, (17,)), {"x": x})
    )
    wide = torch.cat([x.flatten(), torch.linspace(-12, 12, 97), torch.tensor([0.0, -0.0, 1e-30, -1e-30, 100.0, -100.0])])
    for case, f in {
        "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "relu": F.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
    }.items():  # fmt: skip
        cases.add(case, {"function": case}, x=wide, **with_gradients(f, {"x": wide}))
    logits = torch.cat([x[0], x[1, :1] * 3000, x[2, :1].masked_fill(x[2, :1] > 0, -torch.inf), torch.zeros(1, 17)])
    for axis in (-1, 0):
        for name, f in {"softmax": F.softmax, "log_softmax": F.log_softmax}.items():
            given = logits if axis == -1 and name == "softmax" else x
            cases.add(
                f"{name}_{axis}",
                {"function": name, "axis": axis},
                x=given,
                **with_gradients(lambda x, f=f, a=axis: f(x, dim=a), {"x": given}),
            )
    weight = draw(12, (6, 4))[0]
    indices = torch.tensor([[0, 2, 2, 5], [1, 0, 2, 3]])
    for padding_idx in (None, 2):
        cases.add(
            f"embedding_{padding_idx}", {"function": "embedding", "padding_idx": padding_idx}, indices=indices, weight=weight,
            **with_gradients(lambda weight, p=padding_idx: F.embedding(indices, weight, padding_idx=p), {"weight": weight}),
        )  # fmt: skip
    a, w, b = draw(13, (2, 3, 5), (4, 5), (4,))
    cases.add("linear", {"function": "linear"}, x=a, weight=w, bias=b, **with_gradients(F.linear, {"input": a, "weight": w, "bias": b}))
    gradients = draw(14, (4, 3), (5,))
    for norm_type in (2.0, 1.0, float("inf")):
        parameters = [nn.Parameter(torch.zeros_like(g, dtype=torch.float64)) for g in gradients]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.double()
        total = nn.utils.clip_grad_norm_(parameters, 1.5, norm_type)
        clipped = {f"clipped{i}": p.grad for i, p in enumerate(parameters)}
        cases.add(f"clip_{norm_type:g}", {"function": "clip_grad_norm_", "max_norm": 1.5, "norm_type": str(norm_type)},
                  g0=gradients[0], g1=gradients[1], total=total, **clipped)  # fmt: skip
    return cases


def attention():
    """F.scaled_dot_product_attention, values and gradients."""
    cases = Cases()
    q, k, v = draw(21, (2, 4, 5, 6), (2, 4, 7, 6), (2, 4, 7, 3))
    boolean = draw(22, (2, 1, 5, 7))[0] > -0.5
    additive = draw(23, (4, 5, 7))[0].masked_fill(boolean[0].logical_not(), -torch.inf)

    def add(case, options, k=k, v=v, **masks):
        given = {"query": q, "key": k, "value": v}

        def f(query, key, value):
            kept = {name: mask if mask.dtype == torch.bool else mask.to(query.dtype) for name, mask in masks.items()}
            return F.scaled_dot_product_attention(query, key, value, **kept, **options)

        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            cases.add(case, options, **given, **masks, **with_gradients(f, given))

    add("plain", {})
    add("scaled", {"scale": 0.7})
    add("causal", {"is_causal": True})
    add("boolean", {}, attn_mask=boolean)
    add("additive", {}, attn_mask=additive)
    add("grouped", {"enable_gqa": True, "is_causal": True}, k=k[:, :2], v=v[:, :2])
    return cases


def losses():
    cases = Cases()
    flat, deep = draw(31, (6, 5), (3, 5, 4))
    weight = draw(32, (5,))[0].abs() + 0.2
    generator = torch.Generator().manual_seed(33)
    for kind, logits in {"rows": flat, "positions": deep, "probabilities": deep}.items():
        shape = logits.shape[:1] + logits.shape[2:]
        target = torch.randint(5, shape, generator=generator)
        target.view(-1)[1] = -100
        if kind == "probabilities":
            target = F.softmax(draw(34, logits.shape)[0], dim=1)
        for reduction in ("mean", "sum", "none"):
            for smoothing in (0.0, 0.1):
                for weighted in (False, True):
                    options = {"reduction": reduction, "label_smoothing": smoothing}
                    extra = {"weight": weight} if weighted else {}

                    def f(logits, target=target, options=options, extra=extra):
                        kept = target if target.dtype == torch.int64 else target.to(logits.dtype)
                        return F.cross_entropy(logits, kept, **options, **{k: w.to(logits.dtype) for k, w in extra.items()})

                    case = f"cross_entropy_{kind}_{reduction}_{smoothing:g}{'_weighted' * weighted}"
                    cases.add(case, {"loss": "cross_entropy", **options}, logits=logits, target=target, **extra,
                              **with_gradients(f, {"logits": logits}))  # fmt: skip
    other = torch.tensor([3, 1, 3, 0, 2, 3])
    cases.add("cross_entropy_ignore_index", {"loss": "cross_entropy", "ignore_index": 3}, logits=flat, target=other,
              **with_gradients(lambda logits: F.cross_entropy(logits, other, ignore_index=3), {"logits": flat}))  # fmt: skip
    x, y, w, pos = draw(35, (4, 3), (4, 3), (4, 3), (3,))
    p, t, w, pos = x.sigmoid(), y.sigmoid(), w.abs(), pos.abs()
    for reduction in ("mean", "sum", "none"):
        cases.add(f"mse_{reduction}", {"loss": "mse_loss", "reduction": reduction}, x=x, target=y,
                  **with_gradients(lambda x, target, r=reduction: F.mse_loss(x, target, reduction=r), {"x": x, "target": y}))  # fmt: skip
        for weighted in (False, True):
            extra = {"weight": w} if weighted else {}

            def bce(x, r=reduction, extra=extra):
                return F.binary_cross_entropy(x, t.to(x.dtype), reduction=r, **{k: e.to(x.dtype) for k, e in extra.items()})

            cases.add(f"bce_{reduction}{'_weighted' * weighted}", {"loss": "binary_cross_entropy", "reduction": reduction}, x=p, target=t,
                      **extra, **with_gradients(bce, {"x": p}))  # fmt: skip
            extra = extra | ({"pos_weight": pos} if weighted else {})

            def with_logits(x, r=reduction, extra=extra):
                return F.binary_cross_entropy_with_logits(x, t.to(x.dtype), reduction=r, **{k: e.to(x.dtype) for k, e in extra.items()})

            cases.add(f"bce_with_logits_{reduction}{'_weighted' * weighted}",
                      {"loss": "binary_cross_entropy_with_logits", "reduction": reduction}, x=x * 4, target=t, **extra,
                      **with_gradients(with_logits, {"x": x * 4}))  # fmt: skip
    edges = torch.tensor([0.0, 1.0, 0.0, 1.0])
    cases.add("bce_edges", {"loss": "binary_cross_entropy", "reduction": "none"}, x=edges, target=torch.tensor([0.0, 1.0, 1.0, 0.0]),
              **with_gradients(lambda x: F.binary_cross_entropy(x, torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=x.dtype), reduction="none"),
                               {"x": edges}))  # fmt: skip
    return cases


# ---- interpolation -------------------------------------------------------------------------------------------------


def interpolation():
    """With antialias no result is one element wide: there PyTorch 2.13 is wrong, and its gradient says otherwise."""
    cases, grow, shrink, other = Cases(), [8, 9], [3, 2], {"scale_factor": [1.6, 0.61]}
    images = {"grow": {"size": grow}, "shrink": {"size": shrink}, "both": {"size": [12, 4]}, "factor": other}
    images |= {"recompute": {**other, "recompute_scale_factor": True}, "same": {"size": [5, 7]}, "one row": {"size": [1, 3]}}
    for name, options in images.items():
        for mode in ("nearest", "nearest-exact", "area", "bilinear", "bicubic"):
            for corners in (None, True) if mode in ("bilinear", "bicubic") else (None,):
                for antialias in (False, True) if mode in ("bilinear", "bicubic") else (False,):
                    given = {**options, "mode": mode, "align_corners": corners, "antialias": antialias}
                    case = f"{mode}{', corners' * bool(corners)}{', antialias' * antialias}, {name}"
                    cases.add(case, given, **interpolated(given, draw(1, (1, 2, 5, 7))[0]))
    for mode, shape in (("linear", (2, 3, 8)), ("nearest", (2, 3, 8)), ("trilinear", (1, 2, 3, 4, 5)), ("nearest-exact", (1, 2, 3, 4, 5))):
        for name, options in {"to 6": {"size": 6}, "factor": {"scale_factor": 1.7}, "half": {"scale_factor": 0.5}}.items():
            cases.add(
                f"{mode}, {len(shape) - 2} axes, {name}",
                {**options, "mode": mode},
                **interpolated({**options, "mode": mode}, draw(1, shape)[0]),
            )
    return cases


def interpolated(options, x):
    return {"x": x} | with_gradients(lambda x: F.interpolate(x, **options), {"x": x})


FILES = [
    modules, positional_encoding, reverse_run, shuffles, initial_weights, optimizers, muon, functions, attention, losses, interpolation
]  # fmt: skip


def main(folder):
    torch.set_num_threads(1)
    for make in FILES:
        make().write(pathlib.Path(folder) / f"{make.__name__}.npz")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
