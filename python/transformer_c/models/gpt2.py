"""GPT-2 (Radford et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping

from .. import nn
from .._core import Tensor
from .config import Config, Widths
from .decoder import TextDecoder
from .layers import Layer
from .names import lack
from .table import Table, Vocabulary

TABLE = Table(
    model_type="gpt2",
    prefix="transformer",
    name="GPT2",
    sizes={"vocab_size": ("wte.weight", 0), "n_embd": ("wte.weight", 1), "n_positions": ("wpe.weight", 0)},
    layers=("n_layer", "h."),
    names={
        "words": "wte",
        "positions": "wpe",
        "layers.{}.norm1": "h.{}.ln_1",
        "layers.{}.qkv": "h.{}.attn.c_attn",
        "layers.{}.out": "h.{}.attn.c_proj",
        "layers.{}.norm2": "h.{}.ln_2",
        "layers.{}.linear1": "h.{}.mlp.c_fc",
        "layers.{}.linear2": "h.{}.mlp.c_proj",
        "norm": "ln_f",
    },
    heads={"text-generation": {"out": "lm_head"}},
    tied={"lm_head.weight": "wte.weight"},
    vocabulary=Vocabulary(("vocab.json", "merges.txt"), {"unk_token": "<|endoftext|>"}, separators=0, second=0),
    buffers=("h.{}.attn.bias", "h.{}.attn.masked_bias"),
    transposed=("layers.{}.qkv", "layers.{}.out", "layers.{}.linear1", "layers.{}.linear2"),
    classes={"text-generation": "LMHeadModel"},
)


class GPT2(TextDecoder):
    """GPT-2: embeddings of words and positions, layers that normalise first, and a norm after the last."""

    table = TABLE

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.without_extensions()
        config.only("scale_attn_weights", True)
        config.only("scale_attn_by_inverse_layer_idx", False)
        widths = _widths(config)
        super().__init__(config, widths, pooler=False, layers=(Layer(widths, norm_first=True) for _ in range(widths.layers)))
        self.longest = config.size("n_positions", 1024)
        self.words = nn.Embedding(config.size("vocab_size", 50257), widths.model)
        self.positions = nn.Embedding(self.longest, widths.model)
        self.dropout = nn.Dropout(config.number("embd_pdrop", 0.1))
        self.norm = nn.LayerNorm(widths.model, eps=widths.eps)

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        if token_types is not None:
            raise ValueError("token_types were given, but GPT-2 has no embeddings for the parts of a pair")
        return self.dropout(self.words(ids) + self.place(ids, places))

    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x)

    @staticmethod
    def check_shapes(config: Config, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Compares the network's size, 4 E where config.json says nothing, with the arrays."""
        name = "h.0.mlp.c_fc.weight"
        if name not in shapes:
            raise lack(name, shapes)
        if shapes[name][1:] != (_widths(config).hidden,):
            raise config.refuse("n_inner", f"the second size of {name!r}, which has shape {shapes[name]}")


def _widths(config: Config) -> Widths:
    model = config.size("n_embd", 768)
    found = Widths(
        model=model,
        heads=config.size("n_head", 12),
        hidden=4 * model if config.values.get("n_inner") is None else config.size("n_inner"),
        layers=config.size("n_layer", 12),
        activation=config.activation("activation_function", "gelu_new"),
        eps=config.number("layer_norm_epsilon", 1e-5),
        dropout=config.number("resid_pdrop", 0.1),
        attention_dropout=config.number("attn_pdrop", 0.1),
    )
    return config.divided(found, "n_embd", "n_head")
