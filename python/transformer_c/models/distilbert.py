"""DistilBERT (Sanh et al. 2019)."""

from __future__ import annotations

from .. import nn
from .._core import Tensor
from .config import Config, Widths
from .layers import TextEncoder
from .table import WORD_PIECES, Table

TABLE = Table(
    model_type="distilbert",
    prefix="distilbert",
    name="DistilBert",
    sizes={
        "vocab_size": ("embeddings.word_embeddings.weight", 0),
        "dim": ("embeddings.word_embeddings.weight", 1),
        "max_position_embeddings": ("embeddings.position_embeddings.weight", 0),
        "hidden_dim": ("transformer.layer.0.ffn.lin1.weight", 0),
    },
    layers=("n_layers", "transformer.layer."),
    names={
        "words": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "norm": "embeddings.LayerNorm",
        "layers.{}.qkv": (
            "transformer.layer.{}.attention.q_lin",
            "transformer.layer.{}.attention.k_lin",
            "transformer.layer.{}.attention.v_lin",
        ),
        "layers.{}.out": "transformer.layer.{}.attention.out_lin",
        "layers.{}.norm1": "transformer.layer.{}.sa_layer_norm",
        "layers.{}.linear1": "transformer.layer.{}.ffn.lin1",
        "layers.{}.linear2": "transformer.layer.{}.ffn.lin2",
        "layers.{}.norm2": "transformer.layer.{}.output_layer_norm",
    },
    heads={
        "text-classification": {"dense": "pre_classifier", "out": "classifier"},
        "token-classification": {"out": "classifier"},
        "question-answering": {"out": "qa_outputs"},
        "fill-mask": {"dense": "vocab_transform", "norm": "vocab_layer_norm", "bias": "vocab_projector.bias"},
    },
    tied={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
    vocabulary=WORD_PIECES,
)


class DistilBert(TextEncoder):
    """BERT without parts of a pair and without a pooler, with half of the layers."""

    table = TABLE

    def __init__(self, config: Config, pooler: bool = False) -> None:
        config.without_extensions()
        widths = Widths(
            model=config.size("dim", 768),
            heads=config.size("n_heads", 12),
            hidden=config.size("hidden_dim", 3072),
            layers=config.size("n_layers", 6),
            activation=config.activation("activation"),
            eps=1e-12,
            dropout=config.number("dropout", 0.1),
            attention_dropout=config.number("attention_dropout", 0.1),
            drops_attended=False,
        )
        super().__init__(config, config.divided(widths, "dim", "n_heads"), pooler=False)
        words = config.size("vocab_size", 30522)
        self.longest = config.size("max_position_embeddings", 512)
        self.words = nn.Embedding(words, widths.model, padding_idx=config.index("pad_token_id", 0, words))
        self.positions = nn.Embedding(self.longest, widths.model)  # sinusoids, where config.json says so, are in the file as well
        self.norm = nn.LayerNorm(widths.model, eps=widths.eps)
        self.dropout = nn.Dropout(widths.dropout)

    def embed(self, ids: Tensor, token_types: Tensor | None, places: Tensor | None) -> Tensor:
        if token_types is not None:
            raise ValueError("token_types were given, but DistilBERT has no embeddings for the parts of a pair")
        return self.dropout(self.norm(self.words(ids) + self.place(ids, places)))

    @staticmethod
    def head_options(config: Config, task: str) -> dict:
        """Of the head for a task, as in ``Bert``."""
        if task == "text-classification":
            return {"activation": "relu", "dropout": config.number("seq_classif_dropout", 0.2)}
        if task == "fill-mask":
            return {"activation": config.activation("activation"), "eps": 1e-12}
        return {"dropout": config.number("qa_dropout" if task == "question-answering" else "dropout", 0.1)}
