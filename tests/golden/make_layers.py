"""Writes layers.npz: results of torch.nn's attention and Transformer layers in float64, from weights drawn in float32.

python tests/golden/make_layers.py [FOLDER]
"""

import pathlib
import sys
import warnings

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from make_golden import Cases, draw


def mask(seed, *shape):
    """Bool, about a third True, none along the last axis in full."""
    found = draw(seed, shape)[0] > 0.5
    found[..., 0] = False
    return found


def causal(size):
    return torch.nn.Transformer.generate_square_subsequent_mask(size)


def add(cases, case, kind, make, inputs, **call):
    """`kind` from seed 42 and, after that, two more numbers; results in train and eval mode (dropout 0) and all gradients."""
    torch.manual_seed(42)
    if kind in ("TransformerEncoder", "TransformerDecoder"):
        layer = getattr(torch.nn, f"{kind}Layer")(**make["layer"])
        module = getattr(torch.nn, kind)(layer, make["num_layers"], torch.nn.LayerNorm(make["layer"]["d_model"]))
    else:
        module = getattr(torch.nn, kind)(**make)
    arrays = {"next": torch.rand(2)} | {f"weight.{k}": v.clone() for k, v in module.state_dict().items()}
    arrays |= {f"in.{name}": value for name, value in inputs.items()}
    options = {"kind": kind, "make": make, "call": {k: v for k, v in call.items() if not isinstance(v, torch.Tensor)}}
    arrays |= {f"call.{k}": v for k, v in call.items() if isinstance(v, torch.Tensor)}
    module = module.double()
    call = {k: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in call.items()}
    leaves = {}
    for name, value in inputs.items():  # names of equal arrays are one array: self-attention
        same = next((n for n in leaves if inputs[n] is value), None)
        leaves[name] = leaves[same] if same else value.double().requires_grad_()
    options["same"] = {n: next(m for m in inputs if inputs[m] is inputs[n]) for n in inputs}
    y = module(*leaves.values(), **call)
    if isinstance(y, tuple):
        y, weights = y
        if weights is not None:
            arrays["f64.weights"] = weights
    dy = draw(99, y.shape)[0]
    y.backward(dy.double())
    arrays |= {"dy": dy, "f64.y": y} | {f"f64.d{n}": leaves[n].grad for n in inputs if options["same"][n] == n}
    arrays |= {f"f64.d{n}": p.grad for n, p in module.named_parameters()}
    assert all(not torch.isnan(v).any() for v in arrays.values())
    cases.add(case, options, **arrays)


def attention(cases):
    size, heads = 8, 2
    x, q = draw(1, (5, 3, size), (4, 3, size))
    same = {"query": x, "key": x, "value": x}
    cross = {"query": q, "key": x, "value": x}
    base = {"embed_dim": size, "num_heads": heads}
    add(cases, "mha", "MultiheadAttention", base, same)
    add(cases, "mha_heads", "MultiheadAttention", base, same, average_attn_weights=False, attn_mask=causal(5))
    add(cases, "mha_no_weights", "MultiheadAttention", base, same, need_weights=False, attn_mask=mask(3, 6, 5, 5))
    add(cases, "mha_cross", "MultiheadAttention", {**base, "bias": False}, cross, key_padding_mask=mask(4, 3, 5))
    add(cases, "mha_batch_first", "MultiheadAttention", {**base, "batch_first": True},
        {k: v.transpose(0, 1).contiguous() for k, v in cross.items()} , attn_mask=draw(5, (4, 5))[0])  # fmt: skip
    add(cases, "mha_one_sequence", "MultiheadAttention", base, {"query": x[:, 0].contiguous(), "key": q[:, 1], "value": q[:, 2]},
        key_padding_mask=mask(6, 4), attn_mask=mask(7, 2, 5, 4))  # fmt: skip
    other = {"query": q, "key": draw(8, (5, 3, 6))[0], "value": draw(9, (5, 3, 10))[0]}
    add(cases, "mha_separate", "MultiheadAttention", {**base, "kdim": 6, "vdim": 10}, other, key_padding_mask=draw(10, (3, 5))[0])
    added = {**base, "add_bias_kv": True, "add_zero_attn": True}
    add(cases, "mha_added_keys", "MultiheadAttention", added, same, key_padding_mask=mask(4, 3, 5), attn_mask=mask(11, 5, 5))


def layers(cases):
    base = {"d_model": 8, "nhead": 2, "dim_feedforward": 12, "dropout": 0.0}
    x, memory = draw(20, (4, 3, 8), (5, 3, 8))
    first = {"batch_first": True}
    for norm_first in (False, True):
        tag = "_norm_first" if norm_first else ""
        make = {**base, "norm_first": norm_first}
        add(cases, f"encoder_layer{tag}", "TransformerEncoderLayer", make, {"src": x}, src_mask=causal(4))
        add(cases, f"decoder_layer{tag}", "TransformerDecoderLayer", {**make, "activation": "gelu"}, {"tgt": x, "memory": memory},
            tgt_mask=causal(4), memory_key_padding_mask=mask(21, 3, 5))  # fmt: skip
    add(cases, "encoder_layer_no_bias", "TransformerEncoderLayer", {**base, **first, "bias": False, "layer_norm_eps": 1e-3}, {"src": x})
    stack = {"layer": {**base, **first}, "num_layers": 2}
    add(cases, "encoder", "TransformerEncoder", stack, {"src": x}, mask=causal(3), src_key_padding_mask=draw(22, (4, 3))[0])
    add(cases, "decoder", "TransformerDecoder", {**stack, "layer": base}, {"tgt": x, "memory": memory}, tgt_mask=causal(4))
    make = {"d_model": 8, "nhead": 2, "num_encoder_layers": 1, "num_decoder_layers": 2, "dim_feedforward": 12, "dropout": 0.0}
    add(cases, "transformer", "Transformer", make, {"src": memory, "tgt": x}, tgt_mask=causal(4))
    add(cases, "transformer_one_sequence", "Transformer", make, {"src": memory[:, 0].contiguous(), "tgt": x[:, 0].contiguous()})


def main(folder):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # that masks of two kinds are mixed
    cases = Cases()
    attention(cases)
    layers(cases)
    cases.write(pathlib.Path(folder) / "layers.npz")


if __name__ == "__main__":
    main(*(sys.argv[1:] or [pathlib.Path(__file__).parent]))
