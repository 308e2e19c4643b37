"""nn.MultiheadAttention and the layers and stacks on it, with random arguments, compared with PyTorch's in float64.

Ours runs in float32 or float64 with the same weights. A failure names the seed of the case; `--seed N` begins the sweep elsewhere.
"""

import numpy as np
import pytest
import transformer_c as tc

ATTENTIONS, LAYERS = 300, 150
FORWARD = {"float32": 2e-5, "float64": 1e-10}
GRADIENT = {"float32": 2e-4, "float64": 1e-9}


def pick(rng, values):
    return values[rng.integers(len(values))]


def chance(rng, share):
    return bool(rng.random() < share)


def hidden(rng, shape, always):
    """True = ignore, but never the key `always`."""
    mask = rng.random(shape) < pick(rng, [0.2, 0.7])
    mask[..., always] = False
    return mask


def added(rng, mask):
    return np.where(mask, -np.inf, rng.standard_normal(mask.shape))


def draw_mask(rng, shapes, always):
    """None, or a boolean or floating mask of one of the shapes."""
    kind = rng.integers(4)
    if kind == 0:
        return None
    mask = hidden(rng, pick(rng, shapes), always)
    return mask if kind < 3 else added(rng, mask)


class Pair:
    """A module of ours and PyTorch's in float64 with the same weights; state dicts go both ways, strictly."""

    def __init__(self, torch, rng, name, dtype, **options):
        self.torch, self.dtype = torch, np.dtype(dtype)
        self.theirs = getattr(torch.nn, name)(**options, dtype=torch.float64)
        self.ours = getattr(tc.nn, name)(**options, dtype=self.dtype)
        for p in self.theirs.parameters():
            p.data += 0.2 * torch.tensor(rng.standard_normal(p.shape))
        self.ours.load_state_dict({k: v.numpy() for k, v in self.theirs.state_dict().items()}, strict=True)
        state = self.ours.state_dict()
        assert list(state) == list(self.theirs.state_dict())
        self.theirs.load_state_dict({k: torch.tensor(np.asarray(v)).double() for k, v in state.items()}, strict=True)
        training = chance(rng, 0.5)
        self.ours.train(training), self.theirs.train(training)

    def arguments(self, arrays, masks):
        """Tensors of both; one array given twice is one Tensor given twice."""
        ours, theirs = {}, {}
        for x in arrays:
            ours[id(x)] = tc.tensor(x.astype(self.dtype), requires_grad=True)
            theirs[id(x)] = self.torch.tensor(np.asarray(ours[id(x)].detach()).astype(np.float64), requires_grad=True)
        kw = [{}, {}]
        self.masks = []
        for name, mask in masks.items():
            kw[0][name], kw[1][name] = mask, mask
            if isinstance(mask, np.ndarray):
                floating = mask.dtype != bool
                kw[0][name] = tc.tensor(mask.astype(self.dtype) if floating else mask, requires_grad=floating)
                kw[1][name] = self.torch.tensor(
                    np.asarray(kw[0][name].detach()).astype(np.float64 if floating else bool), requires_grad=floating
                )
                if floating:
                    self.masks.append((name, kw[0][name], kw[1][name]))
        self.inputs = list(zip(ours.values(), theirs.values(), strict=True))
        return [ours[id(x)] for x in arrays], kw[0], [theirs[id(x)] for x in arrays], kw[1]

    def check_limits(self, name, a, b, limits):
        a, b = np.asarray(a.detach()), b.detach().numpy()
        assert a.shape == b.shape, f"{name}: shape {a.shape}, PyTorch's {b.shape}"
        assert a.dtype == self.dtype, f"{name}: {a.dtype}"
        error, limit = np.abs(a - b), limits[self.dtype.name] * max(1.0, np.abs(b).max(initial=0))
        assert (error <= limit).all(), f"{name}: off by {error.max():.3g}, allowed {limit:.3g}"

    def compare(self, found, expected, rng):
        """Results, and the gradients of a weighted sum of them: of inputs, floating masks and parameters."""
        results = [(a, b) for a, b in zip(found, expected, strict=True) if b is not None]
        assert [a is None for a in found] == [b is None for b in expected]
        ours = theirs = 0
        for n, (a, b) in enumerate(results):
            self.check_limits(f"result {n}", a, b, FORWARD)
            weight = rng.standard_normal(b.shape)
            ours, theirs = ours + (a * tc.tensor(weight.astype(self.dtype))).sum(), theirs + (b * self.torch.tensor(weight)).sum()
        ours.backward(), theirs.backward()
        gradients = [(f"input {n}", a, b) for n, (a, b) in enumerate(self.inputs)] + self.masks
        gradients += [(name, a, b) for (name, a), b in zip(self.ours.named_parameters(), self.theirs.parameters(), strict=True)]
        for name, a, b in gradients:
            assert (a.grad is None) == (b.grad is None), f"{name}: one has no gradient"
            if b.grad is not None:
                self.check_limits(f"gradient of {name}", a.grad, b.grad, GRADIENT)


def sequences(rng, batch_first, batched, batch, length, width):
    shape = (length, width) if not batched else (batch, length, width) if batch_first else (length, batch, width)
    x = rng.standard_normal(shape)
    return np.asfortranarray(x) if chance(rng, 0.3) else x


def check_attention(torch, seed):
    rng = np.random.default_rng(seed)
    heads, width, batch, queries, keys = pick(rng, [1, 2, 3]), pick(rng, [1, 2, 5, 8]), *(int(n) for n in rng.integers(1, 8, 3))
    size, batch_first, batched = heads * width, chance(rng, 0.5), chance(rng, 0.8)
    options = {"embed_dim": size, "num_heads": heads, "bias": chance(rng, 0.7), "batch_first": batch_first}
    options |= {"add_bias_kv": chance(rng, 0.2), "add_zero_attn": chance(rng, 0.2)}
    same = pick(rng, ["none", "none", "key is value", "all"])
    if same == "none":
        options |= {name: int(rng.integers(1, 9)) for name in ("kdim", "vdim") if chance(rng, 0.3)}
    pair = Pair(torch, rng, "MultiheadAttention", pick(rng, ["float32", "float64"]), **options)
    make = lambda length, width: sequences(rng, batch_first, batched, batch, length, width)
    query, key, value = make(queries, size), make(keys, options.get("kdim", size)), make(keys, options.get("vdim", size))
    if same != "none":
        value = key
    if same == "all":
        query, queries = key, keys
    batch = batch if batched else 1
    always = int(rng.integers(keys))
    causal = keys > 0 and chance(rng, 0.2)
    masks = {
        "attn_mask": draw_mask(rng, [(queries, keys), (batch * heads, queries, keys)], always),
        "key_padding_mask": draw_mask(rng, [(batch, keys) if batched else (keys,)], always),
        "need_weights": chance(rng, 0.5),
        "average_attn_weights": chance(rng, 0.5),
    }
    if causal and masks["key_padding_mask"] is None:  # PyTorch's flag says what its mask is
        masks["attn_mask"] = np.triu(np.ones((queries, keys), bool), 1)
    a, our_kw, b, their_kw = pair.arguments([query, key, value], masks)
    if causal and masks["key_padding_mask"] is None:
        our_kw["is_causal"] = True
        if chance(rng, 0.5):
            del our_kw["attn_mask"]
    pair.compare(pair.ours(*a, **our_kw), pair.theirs(*b, **their_kw), rng)


def check_layer(torch, seed):
    rng = np.random.default_rng(seed)
    kind = pick(rng, ["TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer"])
    heads, width, batch, source, target = pick(rng, [1, 2, 3]), pick(rng, [2, 4, 5]), *(int(n) for n in rng.integers(1, 7, 3))
    size, batch_first, batched = heads * width, chance(rng, 0.5), chance(rng, 0.8)
    options = {"d_model": size, "nhead": heads, "dim_feedforward": int(rng.integers(1, 20)), "dropout": 0.0, "batch_first": batch_first}
    options |= {"activation": pick(rng, ["relu", "gelu"]), "norm_first": chance(rng, 0.5), "bias": chance(rng, 0.7)}
    options["layer_norm_eps"] = pick(rng, [1e-5, 1e-3])
    if kind == "Transformer":
        options |= {f"num_{name}_layers": int(rng.integers(1, 3)) for name in ("encoder", "decoder")}
    dtype = pick(rng, ["float32", "float64"])
    if size == 2:  # a norm of two nearly equal numbers loses all digits in float32, PyTorch's like ours
        dtype = "float64"
    pair = Pair(torch, rng, kind, dtype, **options)
    make = lambda length: sequences(rng, batch_first, batched, batch, length, size)
    src, tgt = make(source), make(target)
    rows = batch if batched else 1

    def masks(name, queries, keys):
        always = int(rng.integers(keys))
        full, padding = {"src": ("src_mask", "src_key_padding_mask"), "tgt": ("tgt_mask", "tgt_key_padding_mask"),
                         "memory": ("memory_mask", "memory_key_padding_mask")}[name]  # fmt: skip
        first = draw_mask(rng, [(queries, keys), (rows * heads, queries, keys)], always)
        if chance(rng, 0.3) and name != "memory":
            first = np.triu(np.ones((queries, keys), bool), 1)
            always = 0
        return {full: first, padding: draw_mask(rng, [(rows, keys) if batched else (keys,)], always)}

    given = masks("src", source, source) if kind != "TransformerDecoderLayer" else {}
    arrays = [src]
    if kind != "TransformerEncoderLayer":
        given |= masks("tgt", target, target) | masks("memory", target, source)
        arrays = [tgt, src] if kind == "TransformerDecoderLayer" else [src, tgt]
    a, our_kw, b, their_kw = pair.arguments(arrays, given)
    pair.compare([pair.ours(*a, **our_kw)], [pair.theirs(*b, **their_kw)], rng)


def sweep(torch, check, first, cases):
    for seed in range(first, first + cases):
        try:
            check(torch, seed)
        except Exception as error:
            raise AssertionError(f"case of seed {seed}: {error}") from error


@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:Support for mismatched")
@pytest.mark.parametrize(("check", "cases"), [(check_attention, ATTENTIONS), (check_layer, LAYERS)], ids=["attention", "layers"])
def test_random_arguments_beside_pytorch(request, check, cases):
    torch = pytest.importorskip("torch")
    given, threads = request.config.getoption("--seed"), torch.get_num_threads()
    torch.set_num_threads(1)  # two thread pools on the same cores slow each other
    try:
        sweep(torch, check, 0 if given is None else given, cases)
    finally:
        torch.set_num_threads(threads)
