"""Texts that a decoder writes, of those before them or of others."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from .._arguments import count
from .._names import Explaining, explained
from ..checkpoint import CheckpointError
from ..checkpoint.files import write_atomically
from ..random import as_generator
from . import next_words
from .chats import chats_of, rendered, templates_in
from .fitting import OTHER_NAMES, Options
from .folder import as_json, find, naming, read_config, read_weights
from .generating import continuations
from .heads import TextGeneration
from .language_pieces import tokenizer_in
from .loading import assemble, check, save
from .next_words import Sample
from .pieces import PieceTokenizer
from .sampling import Sampling, read_ends, read_sampling
from .texts import Bar, arguments, as_others_read, attributes, checked, listed, made_of, of_characters, pair, parts, tokens_of
from .tokenizing import Tokenizer

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
_OF_FIT = {
    **OTHER_NAMES,
    **dict.fromkeys(("max_seq_length", "block_size"), "max_length="),
    **dict.fromkeys(("eval_dataset", "validation_data", "val"), "validation="),
    "train_dataset": "the first argument",
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

    def _found(
        self, tokens: list[np.ndarray], settings: Sampling, rng: Any, batch_size: int, progress: bool, **begin: Any
    ) -> list[list[int]]:
        """The new tokens of each text; `begin` as for ``continuations``."""
        size, most = count("batch_size", batch_size), self.model.most(settings, _lengths(tokens))
        source = as_generator(rng) if settings.do_sample else None  # of all parts
        found: list[list[int]] = [[] for _ in tokens]
        with Bar(len(tokens), progress, "writing") as bar:
            for rows in parts(np.arange(len(tokens)), size):
                for step in continuations(
                    self.model, *self._batch([tokens[i] for i in rows]), most[rows], settings, self._ends, source, rows[0], **begin
                ):
                    for number, token in step:
                        found[number].append(token)
                bar.update(len(rows))
        return found

    def _steps(
        self, text: str, settings: Sampling, rng: Any, tokenizer: Any = None, **begin: Any
    ) -> tuple[np.ndarray, Iterator[list[tuple[int, int]]]]:
        """(the tokens of one text, its new ones as they are written); `begin` as for ``continuations``."""
        if settings.num_beams > 1:
            raise ValueError(f"beams give no pieces before they end, and num_beams is {settings.num_beams}: generate(text), or num_beams=1")
        tokens = self._tokens([text], tokenizer)
        most = self.model.most(settings, _lengths(tokens))
        return tokens[0], continuations(self.model, *self._batch(tokens), most, settings, self._ends, rng, **begin)

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


class Trainable(Writer):
    """Those that texts train."""

    history: list[dict[str, float]]

    def __init__(self, model: Any, tokenizer: Any = None, sampling: Any = None, eos_token_id: Any = None) -> None:
        super().__init__(model, tokenizer, sampling, eos_token_id)
        self.history = []

    def _fit(self, samples: list[Sample], others: list[Sample] | None, options: Options, random_state: Any, progress: bool) -> None:
        model, history = next_words.fit(self.model, samples, others, options, random_state, progress)
        self.__dict__ = {**vars(self), "model": model, "history": history}  # in one step

    def save(self, folder: Any) -> None:
        """Writes a folder that ``from_pretrained`` and transformers load: config.json, weights, generation_config.json, tokenizer.

        Parameters
        ----------
        folder : str or path-like
            Is made where it does not exist. A tokenizer of one's own is not written.
        """
        said, usual = vars(self._sampling), vars(Sampling())
        settings: dict[str, Any] = {
            name: value.item() if isinstance(value, np.generic) else value for name, value in said.items() if value != usual[name]
        }
        if self._ends or self.model.ends():
            settings["eos_token_id"] = self._ends[0] if len(self._ends) == 1 else list(self._ends)
        if getattr(self.model.encoder, "start", None) is not None:
            settings["decoder_start_token_id"] = self.model.encoder.start
        path, name = os.fsdecode(folder), "generation_config.json"
        contents = as_json(settings, name)  # refused before anything is written
        save(self.model, path)
        write_atomically(os.path.join(path, name), contents)
        if isinstance(self.tokenizer, (Tokenizer, PieceTokenizer)):
            self.tokenizer.save(path)


class TextGenerator(Trainable):
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
    history : list of dict
        Of the last ``fit``: the loss of each epoch, and "val_loss" with a validation.

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
        **Trainable._instead,
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

    @explained(_OF_FIT)
    def fit(
        self,
        texts: Any,
        *,
        validation: Any = None,
        learning_rate: float = 5e-5,
        epochs: int = 3,
        batch_size: int = 8,
        max_length: int | None = None,
        warmup: float = 0.1,
        weight_decay: float = 0.01,
        max_norm: float = 1.0,
        random_state: int | None = None,
        progress: bool = False,
    ) -> TextGenerator:
        """Trains the decoder to write such texts; returns this generator.

        The loss is the mean cross-entropy of the tokens that are learnt: of a text all but the first, with the token that ends texts; of a
        pair, those of its second text; of a chat, those of its last message. A fit that is refused or interrupted changes nothing.

        Parameters
        ----------
        texts : sequence of str, of (prompt, completion), or of chats
            What a prompt should be continued with, such as an answer to a question; of a chat, a list of messages as for ``prompt``, the last one is
            the answer.
        validation : sequence, optional
            Other such texts. The weights of the epoch with the least loss of theirs, "val_loss", are kept; its exponential is the perplexity.
        learning_rate : float, default 5e-5
            The highest; it rises from 0 in the first steps and then falls to 0.
        epochs : int, default 3
        batch_size : int, default 8
        max_length : int, optional
            Texts of more tokens are learnt in parts of so many; pairs and chats of more are refused. By default 512, or what the model takes at most.
        warmup : float, default 0.1
            The share of the steps in which the learning rate rises.
        weight_decay : float, default 0.01
            AdamW's, for matrices; norms and biases have none.
        max_norm : float, default 1.0
            Larger gradients are scaled down to this norm; 0 leaves all as they are.
        random_state : int, optional
            Decides on batches and dropout. The same int gives the same bits; None draws from ``tc.manual_seed``'s generator.
        progress : bool, default False
            Show a bar.

        Returns
        -------
        TextGenerator
            This one. float16 and bfloat16 models are float32 then.

        Raises
        ------
        TypeError
            When a text is neither a str, nor a pair of them, nor a chat.
        ValueError
            When a text has nothing to learn, a pair or chat is too long, an option has a wrong value, or the loss is not finite.

        Examples
        --------
        >>> import numpy as np, transformer_c as tc
        >>> class Letters:
        ...     def __call__(self, texts):
        ...         return [(np.array([ord(c) - 97 for c in text]), np.zeros(len(text), int)) for text in texts]
        ...     def decode(self, ids):
        ...         return "".join(chr(97 + i) for i in ids)
        >>> _ = tc.manual_seed(0)
        >>> model = tc.models.create({"model_type": "gpt2", "vocab_size": 26, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32,
        ...                           "eos_token_id": 25}, task="text-generation")
        >>> generator = tc.models.TextGenerator(model, Letters())
        >>> generator = generator.fit(["abcdef", "defabc"], epochs=40, learning_rate=0.01, random_state=0)
        >>> generator.generate("ab", max_new_tokens=3)
        'abcde'
        """
        options = Options.of(locals())
        longest = self.model.encoder.longest
        most = min(512, longest) if max_length is None else count("max_length", max_length, 2)
        if most > longest:
            raise ValueError(f"max_length must be at most {longest}, the tokens that this model takes, got {max_length}")
        samples, others = self._samples(texts, most, "texts"), None if validation is None else self._samples(validation, most, "validation")
        self._fit(samples, others, options, random_state, progress)
        return self

    def _samples(self, texts: Any, most: int, name: str) -> list[Sample]:
        """What is learnt, in parts of at most so many tokens."""
        found: list[Sample] = []
        whole = uncut(self.tokenizer)
        for i, given in enumerate(listed(texts, "str, pairs of str, or chats", name)):
            what = f"{name}[{i}]"
            if isinstance(given, str):
                (ids,) = self._tokens([of_characters(given, what)], whole)
                found += [own for own in next_words.pieces(next_words.with_end(ids, self._ends), most) if len(own.ids) > 1]
                continue
            if isinstance(given, Mapping):
                raise TypeError(
                    f"{what} is {given!r:.80}, a mapping; put a single chat into a list, and pass of a data set's rows row['text'], "
                    "(row['prompt'], row['completion']) or row['messages']"
                )
            if chats_of([given]) is not None:
                before, after, reader = *self._answered(given, what), getattr(whole, "as_written", whole)
                ends: Sequence[int] = ()  # which the template writes
            else:
                (before, after), reader, ends = pair(given, i, "str, pairs of str, or chats", name), whole, self._ends
            (head,), (ids,) = self._tokens([before], reader), self._tokens([before + after], reader)
            ids = next_words.with_end(ids, ends)
            if len(ids) > most:
                raise ValueError(f"{what} has {len(ids)} tokens, more than max_length = {most}; shorten it, or raise max_length")
            first = next((k for k, (a, b) in enumerate(zip(head, ids, strict=False)) if a != b), min(len(head), len(ids)))
            if first == len(ids):
                raise ValueError(f"{what} has no tokens after its prompt, {before!r:.80}, and nothing is learnt from it")
            found.append(Sample(None, ids, max(1, first)))
        if not found:
            raise ValueError(f"{name} have nothing to learn, no text of two tokens")
        return found

    def _answered(self, messages: Any, name: str) -> tuple[str, str]:
        """(the prompt of a chat without its last message, that message as the template writes it)."""
        if len(messages) < 2 or not isinstance(messages[-1], Mapping) or messages[-1].get("role") != "assistant":
            raise ValueError(
                f"{name} must end with a message of the assistant, after others, which is what is learnt; got {messages[-1]!r:.80}"
            )
        before, whole = self.prompt(messages[:-1]), self.prompt(messages, add_generation_prompt=False)
        if not whole.startswith(before):
            raise ValueError(
                f"the chat template writes {name} otherwise with its answer than without it; give pairs (prompt, answer) of str"
            )
        return before, whole[len(before) :]

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


def uncut(tokenizer: Any) -> Any:
    """A folder's tokenizer that cuts no text off; one of one's own as it is."""
    if not isinstance(tokenizer, (Tokenizer, PieceTokenizer)):
        return tokenizer
    found = copy.copy(tokenizer)
    found.max_length = 1 << 62
    return found


def _lengths(tokens: list[np.ndarray]) -> np.ndarray:
    return np.array([len(own) for own in tokens], np.int64)
