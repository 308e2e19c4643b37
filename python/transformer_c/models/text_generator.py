"""Texts that a decoder writes, of those before them or of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from .._arguments import count
from .._names import Explaining, explained
from ..checkpoint import CheckpointError
from ..random import as_generator
from .chats import chats_of, rendered, templates_in
from .folder import find, naming, read_config, read_weights
from .generating import continuations
from .heads import TextGeneration
from .loading import assemble, check
from .pieces import tokenizer_in
from .sampling import Sampling, read_ends, read_sampling
from .texts import Bar, arguments, as_others_read, attributes, checked, made_of, of_characters, parts, tokens_of

# Settings that repr shows, whatever they are.
_SHOWN = ("do_sample", "temperature", "top_k", "top_p", "repetition_penalty", "max_new_tokens", "max_length")
# Transformers' words for what is said otherwise here, or not computed.
_OF_GENERATE = {
    "max_length": "max_new_tokens=, which counts the new tokens alone",
    **dict.fromkeys(("seed", "random_state", "generator"), "rng="),
    "num_return_sequences": "generate([text] * n, do_sample=True) gives n continuations",
    "eos_token_id": "an argument of TextGenerator(model, tokenizer, eos_token_id=...)",
    "streamer": "generator.stream(text) gives the pieces",
}
_AS_HERE: dict[str, tuple[Any, ...]] = {"num_return_sequences": (1,), "use_cache": (True,)}
_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # what the bytes of a part of a character become


Own = TypeVar("Own", bound="Writer")


class Writer(Explaining):
    """What classes that write texts share."""

    task: str
    head: type
    beside: tuple[str, ...] = ()  # of generation_config.json, what a class reads itself
    _instead = attributes(
        "generator.model",
        **dict.fromkeys(("predict", "forward", "encode"), "generator.generate(texts)"),
        save="tc.models.save(generator.model, folder) and generator.tokenizer.save(folder)",
    )

    def __init__(self, model: Any, tokenizer: Any = None, sampling: Any = None, eos_token_id: Any = None) -> None:
        name = type(self).__name__
        made_of(name, model, tokenizer, self.head, f'tc.models.load(folder, task="{self.task}")')
        if not callable(getattr(tokenizer, "decode", None)):
            raise TypeError(f"{name} needs a tokenizer with decode(ids), which gives the text, not {tokenizer!r:.80}")
        self.model, self.tokenizer = model, tokenizer
        unknown = [name for name in sampling or {} if name not in vars(Sampling())]
        if unknown:
            raise TypeError(f"sampling has {unknown[0]!r:.80}; there are {', '.join(vars(Sampling()))}")
        self._sampling = Sampling(**(sampling or {}))
        self._ends = model.ends(eos_token_id)

    @classmethod
    @as_others_read
    def from_pretrained(cls: type[Own], folder: Any, *, dtype: Any = None, mmap: bool = True) -> Own:
        """A generator from a folder of transformers' with a decoder, alone or with an encoder, and its tokenizer.

        Defaults of ``generate`` are read from generation_config.json.

        Parameters
        ----------
        folder : str or path-like
        dtype : dtype, optional
            Of the model's parameters.
        mmap : bool, default True
            Map safetensors files into memory, as ``tc.models.load`` does.

        Raises
        ------
        CheckpointError
            As ``tc.models.load``; when generation_config.json asks for what is not computed.
        ImportError
            When the package tokenizers, or for Marian sentencepiece, is not installed.
        """
        path = find(folder)
        config = read_config(path)
        with naming(path):
            kind = check(config, cls.task)[1]
        sampling, ends = read_sampling(path, {**getattr(kind, "USUAL", {}), **config}, cls.beside), read_ends(path)
        with naming(path):
            model, lacking = assemble(config, read_weights(path, mmap), cls.task, dtype, owned=True)
        if lacking:
            raise CheckpointError(f"{path!r} has no weights for {', '.join(lacking)}, the scores of words")
        made = cls(model, tokenizer_in(path, cls._longest(path, model)), vars(sampling), ends)
        made._settle(path)
        return made

    def _settle(self, path: str) -> None:
        """Reads what else a folder's generation_config.json says."""

    @staticmethod
    def _longest(path: str, model: Any) -> int:
        """How many tokens of a text are read."""
        return model.encoder.longest

    def _found(self, tokens: list[np.ndarray], settings: Sampling, rng: Any, batch_size: int, progress: bool) -> list[list[int]]:
        """The new tokens of each text."""
        size, most = count("batch_size", batch_size), self.model.most(settings, _lengths(tokens))
        source = as_generator(rng) if settings.do_sample else None  # of all parts
        found: list[list[int]] = [[] for _ in tokens]
        with Bar(len(tokens), progress, "writing") as bar:
            for rows in parts(np.arange(len(tokens)), size):
                for step in continuations(
                    self.model, *self._batch([tokens[i] for i in rows]), most[rows], settings, self._ends, source, rows[0]
                ):
                    for number, token in step:
                        found[number].append(token)
                bar.update(len(rows))
        return found

    def _steps(self, text: str, settings: Sampling, rng: Any, tokenizer: Any = None) -> tuple[np.ndarray, Iterator[list[tuple[int, int]]]]:
        """(the tokens of one text, its new ones as they are written)."""
        if settings.num_beams > 1:
            raise ValueError(f"beams give no pieces before they end, and num_beams is {settings.num_beams}: generate(text), or num_beams=1")
        tokens = self._tokens([text], tokenizer)
        most = self.model.most(settings, _lengths(tokens))
        return tokens[0], continuations(self.model, *self._batch(tokens), most, settings, self._ends, rng)

    def _pieces(self, tokens: list[int], steps: Iterator[list[tuple[int, int]]]) -> Iterator[str]:
        text = self.tokenizer.decode(tokens) if tokens else ""
        shown, settled = len(text), getattr(self.tokenizer, "settled", len)
        for step in steps:
            tokens += [token for _, token in step]
            text = self.tokenizer.decode(tokens)
            if not text.endswith(_INCOMPLETE):
                end = max(shown, settled(text))
                yield text[shown:end]
                shown = end
        yield text[shown:]

    def _tokens(self, texts: list[str], tokenizer: Any = None) -> list[np.ndarray]:
        """The numbers of the tokens of each text, by the tokenizer or another function."""
        for i, text in enumerate(texts):
            of_characters(text, f"text number {i}")
        return [np.asarray(ids) for ids, *_ in tokens_of(tokenizer or self.tokenizer, texts, some=False)]

    def _batch(self, tokens: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(ids, lengths), after a check that the model has these words."""
        found = arguments(self.model.encoder, [(own,) for own in tokens])
        return found["ids"], found["lengths"]

    def __repr__(self) -> str:
        usual = Sampling()
        said = {k: v for k, v in vars(self._sampling).items() if k in _SHOWN or v != getattr(usual, k)}
        return f"{type(self).__name__}({type(self.model.encoder).__name__}, {', '.join(f'{k}={v}' for k, v in said.items())})"


class TextGenerator(Writer):
    """Continues texts with a decoder such as GPT-2. ``TextGenerator.from_pretrained(folder)`` makes one.

    Parameters
    ----------
    model : Module
        Of ``tc.models.load(folder, task="text-generation")``.
    tokenizer : callable
        Takes a list of str and gives (ids, types) of each; ``tokenizer.decode(ids)`` gives the text. For chats, ``tokenizer.config`` has
        their ``chat_template``.
    sampling : mapping, optional
        Other defaults of ``generate``: its settings by their names, and ``max_length``, which counts all tokens of a text.
    eos_token_id : int or sequence of int, optional
        Tokens that end a text; by default what ``model.config`` says.

    Attributes
    ----------
    model, tokenizer
        As above. ``generator.model.to("cuda")`` moves the model.

    Examples
    --------
    With a new model and a tokenizer of letters; a trained one comes from ``from_pretrained``:

    >>> import numpy as np, transformer_c as tc
    >>> class Letters:
    ...     def __call__(self, texts):
    ...         return [(np.array([ord(c) - 97 for c in text]), np.zeros(len(text), int)) for text in texts]
    ...     def decode(self, ids):
    ...         return "".join(chr(97 + i) for i in ids)
    >>> _ = tc.manual_seed(0)
    >>> model = tc.models.create({"model_type": "gpt2", "vocab_size": 26, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 32},
    ...                          task="text-generation")
    >>> generator = tc.models.TextGenerator(model, Letters())
    >>> text = generator.generate("abc", max_new_tokens=5)
    >>> text.startswith("abc"), len(text)
    (True, 8)
    >>> "".join(generator.stream("abc", max_new_tokens=5)) == text[3:]
    True
    """

    task, head = "text-generation", TextGeneration
    _instead: ClassVar[dict[str, str]] = {
        **Writer._instead,
        "apply_chat_template": "generator.prompt(messages)",
        "chat": "generator.generate(messages)",
    }

    def _settle(self, path: str) -> None:
        """Reads templates of chats."""
        self.tokenizer.config = templates_in(path, self.tokenizer.config)

    def prompt(self, messages: Any, **values: Any) -> str:
        """The text of a chat that ``generate(messages)`` continues, as transformers' ``apply_chat_template`` makes it with add_generation_prompt.

        Parameters
        ----------
        messages : sequence of mapping
            Each {"role": "user", "content": "..."}, or what else the folder's template reads.
        **values
            What else the template is told, as ``enable_thinking=False``, ``tools=[...]`` (schemas), or ``add_generation_prompt=False``.

        Returns
        -------
        str
            With all special tokens that the model was trained with.

        Raises
        ------
        TypeError
            When messages are no list of mappings with a role, or something in them is not as in JSON.
        ValueError
            When the tokenizer has no template, or the template refuses the messages.
        CheckpointError
            When the template is damaged.
        ImportError
            When the package jinja2 is not installed.

        Examples
        --------
        >>> import numpy as np, transformer_c as tc
        >>> class Letters:
        ...     config = {"chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }} / {% endfor %}bot:"}
        ...     def __call__(self, texts):
        ...         return [(np.array([ord(c) for c in text]), np.zeros(len(text), int)) for text in texts]
        ...     def decode(self, ids):
        ...         return "".join(map(chr, ids))
        >>> model = tc.models.create({"model_type": "gpt2", "vocab_size": 128, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 32},
        ...                          task="text-generation")
        >>> generator = tc.models.TextGenerator(model, Letters())
        >>> generator.prompt([{"role": "you", "content": "Hello!"}])
        'you: Hello! / bot:'
        """
        return rendered(getattr(self.tokenizer, "config", None) or {}, messages, values)

    def _prompts(self, texts: Any, values: Any) -> tuple[bool, Any, list[str]]:
        """(whether it is one, the function that reads them if these are chats, whose special tokens the template writes, their texts)."""
        chats = chats_of(texts)
        if chats is not None:
            own_reader = getattr(self.tokenizer, "as_written", self.tokenizer)
            return chats[0], own_reader, [rendered(getattr(self.tokenizer, "config", None) or {}, own, values or {}) for own in chats[1]]
        if values is not None:
            raise ValueError("chat_template_kwargs is for chats, lists of messages, and changes nothing of texts")
        single = isinstance(texts, str)
        return single, None, [texts] if single else checked(texts)

    @explained(_OF_GENERATE, harmless=_AS_HERE)
    def generate(
        self,
        texts: Any,
        max_new_tokens: int | None = None,
        *,
        do_sample: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float | None = None,
        num_beams: int | None = None,
        length_penalty: float | None = None,
        early_stopping: bool | str | None = None,
        no_repeat_ngram_size: int | None = None,
        return_full_text: bool | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        rng: Any = None,
        batch_size: int = 8,
        progress: bool = False,
    ) -> Any:
        """Continues texts, or answers chats, in transformers' words for how.

        Parameters
        ----------
        texts : str, or sequence of str
            Or a chat, a list of messages such as {"role": "user", "content": "..."}, or a list of chats: see ``prompt``.
        max_new_tokens : int, optional
            At most so many; a text ends before where the model writes the end of a text. By default what generation_config.json says, there also as
            ``max_length``, which counts all tokens of a text, or 50.
        do_sample : bool, optional
            Draw each token by the model's probabilities; otherwise the likeliest is taken. By default what generation_config.json says, or False.
        temperature : float, optional
            Scores are divided by it before the draw: below 1 likely tokens become likelier; 1 by default.
        top_k : int, optional
            Draw among so many of the likeliest tokens; 0: among all; 50 by default.
        top_p : float, optional
            Draw among the fewest of the likeliest tokens that have this probability together (Holtzman et al. 2020); 1, so all, by default.
        repetition_penalty : float, optional
            Positive scores of tokens that the text has are divided by it, negative ones multiplied (Keskar et al. 2019); 1 by default.
        num_beams : int, optional
            Search among so many texts at once, of which the most probable is the result; 1 by default: none but the one that takes the likeliest token
            each time.
        length_penalty : float, optional
            The logarithm of a text's probability is divided by its length to this power: above 1 longer texts become likelier; 1 by default.
        early_stopping : bool or "never", optional
            Whether to end when `num_beams` texts have ended; by default, False, when by their present lengths none can become better; "never": when
            none can by any length.
        no_repeat_ngram_size : int, optional
            No sequence of so many tokens (n-gram) occurs twice; 0, so all may, by default.
        return_full_text : bool, optional
            Whether the result begins with the text that was given; by default that of a text does, that of a chat is the answer.
        chat_template_kwargs : mapping, optional
            What else the template of chats is told, as for ``prompt``.
        rng : int, np.random.Generator, tc.Generator or None
            The source of random numbers, with ``do_sample``; None: the default generator.
        batch_size : int, default 8
            How many texts are continued at once; it changes no result.
        progress : bool, default False
            Show a bar.

        Returns
        -------
        str, or list of str
            As `texts`.

        Raises
        ------
        TypeError
            When a text is no str.
        ValueError
            When a text and the new tokens are more than the model takes; when an argument has no meaning.

        Examples
        --------
        See ``TextGenerator``.
        """
        single, reader, given = self._prompts(texts, chat_template_kwargs)
        tokens = self._tokens(given, reader)
        settings = self._sampling.with_arguments(
            max_new_tokens=max_new_tokens,
            do_sample=do_sample,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            num_beams=num_beams,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            no_repeat_ngram_size=no_repeat_ngram_size,
        )
        found = self._found(tokens, settings, rng, batch_size, progress)
        whole = reader is None if return_full_text is None else return_full_text
        new = map(self._continuation, tokens, found)
        results = [before + after if whole else after for before, after in zip(given, new, strict=True)]
        return results[0] if single else results

    @explained({**_OF_GENERATE, "return_full_text": "the pieces are those of the continuation alone"}, harmless=_AS_HERE)
    def stream(
        self,
        text: Any,
        max_new_tokens: int | None = None,
        *,
        do_sample: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float | None = None,
        num_beams: int | None = None,
        no_repeat_ngram_size: int | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        rng: Any = None,
    ) -> Iterator[str]:
        """The continuation of one text in pieces, as they are written; together they are that of ``generate``.

        Parameters
        ----------
        text : str, or sequence of mapping
            Or one chat.
        max_new_tokens, do_sample, temperature, top_k, top_p, repetition_penalty, num_beams, no_repeat_ngram_size, chat_template_kwargs, rng
            As for ``generate``; beams give no pieces, so that `num_beams` must be 1 where the folder says another number.

        Returns
        -------
        iterator of str

        Examples
        --------
        See ``TextGenerator``.
        """
        chats = chats_of(text)
        if not (isinstance(text, str) if chats is None else chats[0]):
            raise TypeError(f"text must be a str, or one chat, got {text!r:.80} ({type(text).__name__}); generate(texts) continues several")
        _, reader, (prompt,) = self._prompts(text, chat_template_kwargs)
        settings = self._sampling.with_arguments(
            max_new_tokens=max_new_tokens,
            do_sample=do_sample,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            num_beams=num_beams,
            no_repeat_ngram_size=no_repeat_ngram_size,
        )
        tokens, steps = self._steps(prompt, settings, rng, reader)
        return self._pieces(tokens.tolist(), steps)

    def _continuation(self, before: np.ndarray, after: list[int]) -> str:
        """The text of new tokens after others: alone, the first one would lose its space in some tokenizers."""
        begin = before.tolist()
        return self.tokenizer.decode(begin + after)[len(self.tokenizer.decode(begin)) :]

    def _tokens(self, texts: list[str], tokenizer: Any = None) -> list[np.ndarray]:
        """The numbers of the tokens of each text; of one without any, that which begins texts."""
        found, begin = super()._tokens(texts, tokenizer), self.model.config.get("bos_token_id")
        if type(begin) is int and 0 <= begin < self.model.encoder.words.weight.shape[0]:
            found = [ids if len(ids) else np.array([begin]) for ids in found]
        return found


def _lengths(tokens: list[np.ndarray]) -> np.ndarray:
    return np.array([len(own) for own in tokens], np.int64)
