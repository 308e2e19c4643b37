"""generate: a text that a decoder continues, or an encoder-decoder writes of another."""

from __future__ import annotations

import argparse
import sys

from . import lines
from .options import CommandError, add_threads, choice, positive, seed


def add(commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "generate",
        help="a text continued by a pretrained decoder, or translated by an encoder-decoder",
        description="Prints a text and its continuation by a decoder in a folder of transformers', token by token; of an encoder-decoder, such as T5, "
        "the text that it writes of the given one. Settings that are not given are those of the folder's generation_config.json.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="the model: config.json, weights, tokenizer")
    parser.add_argument("text", metavar="TEXT", nargs="?", help="the beginning, or the text that is read; - or none: standard input")
    parser.add_argument(
        "--chat", action="store_true", help="TEXT is the message of a user: prints the answer, by the folder's template of chats"
    )
    parser.add_argument("--max-new-tokens", type=positive, metavar="N", help="at most so many (default: the folder's, or 50)")
    parser.add_argument(
        "--do-sample", action=argparse.BooleanOptionalAction, help="draw tokens by their probabilities instead of taking the likeliest"
    )
    parser.add_argument("--temperature", type=float, metavar="X", help="with --do-sample: below 1 likely tokens become likelier")
    parser.add_argument("--top-k", type=int, metavar="N", help="with --do-sample: draw among the N likeliest tokens; 0: among all")
    parser.add_argument(
        "--top-p", type=float, metavar="P", help="with --do-sample: draw among the fewest tokens that have this probability"
    )
    parser.add_argument("--repetition-penalty", type=float, metavar="X", help="above 1: tokens that the text has become less likely")
    parser.add_argument("--num-beams", type=positive, metavar="N", help="the most probable of N texts that are searched at once")
    parser.add_argument("--src-lang", metavar="CODE", help="of a translator of several languages: that of TEXT")
    parser.add_argument("--tgt-lang", metavar="CODE", help="the language that is written")
    parser.add_argument("--seed", type=seed, metavar="N", help="with --do-sample: the same seed gives the same text")
    parser.add_argument(
        "--dtype", type=choice(*lines.DTYPES), metavar="D", help=f"of the weights: {', '.join(lines.DTYPES)} (default: the file's)"
    )
    add_threads(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Loads, reads, writes."""
    from ..models import Text2TextGenerator, TextGenerator
    from ..models.architectures import writes_another
    from ..models.folder import find, read_config

    if sys.stdout is None:
        raise CommandError("standard output is closed; nobody would read the text")
    text = _read() if options.text in (None, "-") else options.text
    reads = lines.opened(lambda: writes_another(read_config(find(options.folder))))
    if reads and options.chat:
        raise CommandError("--chat is for decoders; an encoder-decoder writes a text of another")
    kind = Text2TextGenerator if reads else TextGenerator
    generator = lines.opened(lambda: kind.from_pretrained(options.folder, dtype=options.dtype))
    if options.seed is not None and not (generator._sampling.do_sample if options.do_sample is None else options.do_sample):
        raise CommandError("--seed is for drawing tokens, and changes nothing without --do-sample")
    given = [{"role": "user", "content": text}] if options.chat else text
    settings = {
        name: getattr(options, name) for name in ("do_sample", "temperature", "top_k", "top_p", "repetition_penalty", "num_beams")
    } | {"rng": options.seed}
    for name in ("src_lang", "tgt_lang"):
        if getattr(options, name) is not None:
            if not reads:
                raise CommandError("--src-lang and --tgt-lang are for encoder-decoders; a decoder continues a text")
            settings[name] = getattr(options, name)
    if (generator._sampling.num_beams if options.num_beams is None else options.num_beams) > 1:
        _write(lines.opened(lambda: generator.generate(given, options.max_new_tokens, **settings)) + "\n")
        return 0
    pieces = lines.opened(lambda: generator.stream(given, options.max_new_tokens, **settings))
    first: str = lines.opened(lambda: next(pieces, ""))  # after the first token: errors come before any output
    piece: str | None = first if reads or options.chat else text + first
    while piece is not None:
        _write(piece)
        piece = lines.opened(lambda: next(pieces, None))
    _write("\n")
    return 0


def _read() -> str:
    """The text of standard input, without the line feed at its end."""
    if sys.stdin is None:
        raise CommandError("standard input is closed; give the text as an argument")
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise CommandError(f"standard input is not text in UTF-8 ({error.reason} at byte {error.start})") from None


def _write(text: str) -> None:
    """Writes at once, whatever encoding the terminal has."""
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


__all__ = ["add", "run"]
