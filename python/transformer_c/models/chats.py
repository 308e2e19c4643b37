"""Chats to texts by the templates of folders, as transformers' apply_chat_template makes them. Nothing but a template is executed, in jinja2's sandbox."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

from ..checkpoint import CheckpointError
from .folder import contents, has, mapping
from .vocabularies import tokenizer_class

MAX_TEMPLATE = 1 << 20  # bytes of a template's file
_LONGEST = 1 << 24  # characters that a template may write, or repeat
_END = "<|endoftext|>"
# The special tokens of transformers' classes, where no file says others.
_ENDS = {"bos_token": _END, "eos_token": _END, "unk_token": _END}
_LLAMA = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
_GEMMA = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
_QWEN = {"eos_token": _END, "unk_token": _END, "pad_token": _END}
_USUAL = {
    "GPT2Tokenizer": _ENDS,
    "GPTNeoXTokenizer": {**_ENDS, "pad_token": "<|padding|>"},
    **{name: _QWEN for name in ("Qwen2Tokenizer", "Qwen3Tokenizer")},
    **{name: _LLAMA for name in ("LlamaTokenizer", "MistralTokenizer", "Phi3Tokenizer")},
    **{name: _GEMMA for name in ("GemmaTokenizer", "Gemma2Tokenizer", "Gemma3Tokenizer")},
}
_REASONS = ("reasoning_content", "thinking", "reasoning")  # names of one thing, by model


def templates_in(folder: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """What tokenizer_config.json is with the templates and special tokens of other files, and of transformers' class: files of templates take
    precedence."""
    also = {} if "added_tokens_decoder" in config else mapping(os.path.join(folder, "special_tokens_map.json"))
    more = os.path.join(folder, "additional_chat_templates")
    names = sorted(name for name in os.listdir(more) if name.endswith(".jinja")) if os.path.isdir(more) else []
    paths = {"default": os.path.join(folder, "chat_template.jinja")}
    paths |= {name.removesuffix(".jinja"): os.path.join(more, name) for name in names}
    found = [{"name": name, "template": _text(path)} for name, path in paths.items() if has(path)]
    usual = _USUAL.get(tokenizer_class(folder).removesuffix("Fast"), {})
    return {**usual, **config, **also, **({"chat_template": found} if found else {})}


def _text(path: str) -> str:
    try:
        return contents(path, MAX_TEMPLATE).decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path!r} is not text in UTF-8 ({error.reason} at byte {error.start})") from None


def chats_of(texts: Any) -> tuple[bool, list[Any]] | None:
    """(whether it is one, chats), each a list of messages; None where these are texts."""
    first = texts[0] if isinstance(texts, (list, tuple)) and texts else None
    if isinstance(first, Mapping):
        return True, [texts]
    return (False, list(texts)) if isinstance(first, (list, tuple)) and first and isinstance(first[0], Mapping) else None


def rendered(config: Any, messages: Any, values: Mapping[str, Any]) -> str:
    """The text of a chat, with the beginning of an answer if `values` do not refuse it.

    Parameters
    ----------
    config : mapping
        As in tokenizer_config.json: the template, or several by their names, and special tokens.
    messages : sequence of mapping
    values : mapping
        What else the template is told.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"chat_template_kwargs must be a mapping, got {values!r:.80} ({type(values).__name__})")
    try:
        values = _plain(values, "chat_template_kwargs")
        chat = _plain(messages, "messages")
    except RecursionError:
        raise ValueError("messages or chat_template_kwargs contain themselves, or are nested too deeply") from None
    if not isinstance(chat, list) or not chat:
        raise TypeError(f"messages must be a list of mappings with role and content, got {messages!r:.80}")
    for i, message in enumerate(chat):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise TypeError(f"message number {i} must be a mapping with role, a str, and content, got {message!r:.80}")
    chat = [_as_shown({name: value for name, value in message.items() if value is not None}) for message in chat]
    said = {name: token.get("content") if isinstance(token, dict) else token for name, token in config.items() if name.endswith("_token")}
    given = {
        "tools": None,
        "documents": None,
        "add_generation_prompt": True,
        **{k: v for k, v in said.items() if isinstance(v, str)},
        **values,
    }
    template = _compiled(_template(config, given["tools"] is not None))
    parts, size = [], 0
    try:
        for part in template.generate({**given, "messages": chat}):
            parts.append(part)
            size += len(part)
            if size > _LONGEST:
                raise ValueError(f"it writes more than {_LONGEST} characters")
    except MemoryError:
        raise
    except Exception as error:  # what it raises itself, as of roles that do not alternate, and any error of its expressions
        raise ValueError(f"the chat template refuses these messages ({type(error).__name__}: {str(error)[:200]})") from None
    return "".join(parts)


def _as_shown(message: dict[str, Any]) -> dict[str, Any]:
    """With what an assistant thought under the names that templates know, as transformers shows it."""
    why = next((message[name] for name in _REASONS if name in message), None)
    return message if why is None else {"thinking": why, **message, "reasoning_content": why}


def _plain(value: Any, name: str) -> Any:
    """The same of nothing but what JSON has: other objects have methods, which a template could call."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {str.__str__(key): _plain(own, name) for key, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(own, name) for own in value]
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(
        f"{name} has {value!r:.80} ({type(value).__name__}); str, int, float, bool, None, and lists and dicts of them are supported"
    )


def _template(config: Any, tools: bool) -> str:
    """The template that is meant: "tool_use" with tools, where there are several."""
    found = config.get("chat_template")
    if found is None:
        raise ValueError("the tokenizer has no chat_template: the model continues texts, and was trained with no format of chats")
    if isinstance(found, list) and all(isinstance(own, dict) and isinstance(own.get("name"), str) for own in found):
        named = {own["name"]: own.get("template") for own in found}
        found = named["tool_use"] if tools and "tool_use" in named else named.get("default")
        if found is None:
            raise CheckpointError(f"chat_template has no default, only {', '.join(map(repr, named))}"[:300])
    if not isinstance(found, str):
        raise CheckpointError(f"chat_template is {found!r:.80} ({type(found).__name__}); expected a template")
    return found


@functools.lru_cache
def _compiled(template: str) -> Any:
    made = _sandbox()
    try:
        return made.from_string(template)
    except MemoryError as error:
        raise CheckpointError("chat_template takes too much memory to compile, or is nested too deeply") from error
    except Exception as error:  # of deep ones also those of Python's compiler
        line = getattr(error, "lineno", None)
        at = "" if line is None else f" in line {line}"
        raise CheckpointError(f"chat_template is no template that jinja2 reads{at} ({type(error).__name__}: {str(error)[:200]})") from None


@functools.lru_cache(1)
def _sandbox() -> Any:
    """What transformers' templates are written for."""
    try:
        import jinja2
        from jinja2 import ext, nodes, sandbox

        version = importlib.metadata.version("jinja2")
    except ImportError:
        version = "0"
    if [int(number) for number in re.findall(r"\d+", version)[:3]] < [3, 1, 6]:  # before, templates can leave the sandbox
        raise ImportError(
            "templates of chats are read by the package jinja2, 3.1.6 or newer: pip install 'transformer_c[models]', or pip install -U jinja2"
        )

    class Answer(ext.Extension):
        """Marks what a training learns; here its text alone."""

        tags = {"generation"}  # noqa: RUF012 (jinja2's)

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    class Sandbox(sandbox.ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(("%", "*", "**"))

        def handle_exception(self, source: Any = None) -> NoReturn:
            raise  # as it is: jinja2 would run code that puts the template's lines into the traceback

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            count = right if isinstance(right, int) else left
            long = max((len(own) for own in (left, right) if isinstance(own, (str, list, tuple))), default=0)
            wide = operator == "%" and isinstance(left, str) and re.search(r"\d{7}|\*", left)
            if operator == "**" or wide or (operator == "*" and long and isinstance(count, int) and long * count > _LONGEST):
                raise jinja2.exceptions.SecurityError(f"{operator} of such values is not supported")
            return super().call_binop(context, operator, left, right)

    class Namespace(jinja2.utils.Namespace):
        def __init__(*args: Any, **values: Any) -> None:
            self, *rest = args
            jinja2.utils.Namespace.__init__(self)
            for name, value in dict(*rest, **values).items():
                self[name] = value

        def __setitem__(self, name: str, value: Any) -> None:
            if name.startswith("_"):
                raise jinja2.exceptions.SecurityError(f"a namespace may not have {name!r:.80}")
            super().__setitem__(name, value)

    made = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[Answer, ext.loopcontrols])

    def refuse(message: Any) -> None:
        raise jinja2.exceptions.TemplateError(message)

    def as_json(x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made.filters["tojson"] = as_json
    made.globals |= {
        "raise_exception": refuse,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "dict": lambda *args, **values: dict(*args, **values),
        "namespace": Namespace,
    }
    return made


__all__ = ["chats_of", "rendered", "templates_in"]
