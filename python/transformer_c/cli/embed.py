"""embed: the vectors of texts."""

from __future__ import annotations

import argparse
from typing import Any

from . import lines


def add(commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "embed",
        help="vectors of texts by a pretrained encoder: text or JSON lines in, JSON lines or a .npy file out",
        description="The vector of each text by an encoder in a folder of sentence-transformers' or transformers'. Each result is a line of JSON: the text "
        "and its embedding, or the object that had the text with its embedding.",
    )
    lines.add_options(parser, "the vectors, float32 (N, E)")
    parser.add_argument(
        "--pooling", metavar="NAME", help="cls, max, mean, mean_sqrt_len_tokens, weightedmean or lasttoken (default: what the folder says)"
    )
    parser.add_argument("--prompt-name", metavar="NAME", help="the folder's prompt that is put before each text")
    parser.add_argument("--prompt", metavar="TEXT", help="a prompt itself")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Loads, reads, writes."""
    from ..models import SentenceEncoder

    encoder = lines.opened(
        lambda: SentenceEncoder.from_pretrained(options.folder, pooling=options.pooling, max_length=options.max_length, dtype=options.dtype)
    )

    def compute(texts: list[Any]) -> Any:
        return encoder.encode(texts, options.batch_size, prompt_name=options.prompt_name, prompt=options.prompt)

    def describe(vector: Any) -> dict[str, Any]:
        return {"embedding": [lines.number(x) for x in vector]}

    width = lines.opened(lambda: compute([])).shape[1]
    return lines.run(options, read, compute, describe, width)


def read(value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise ValueError(f"expected a text, got {value!r:.80}")
    return value


__all__ = ["add", "run"]
