"""What is said in audio, as text; windows of longer audio by the times that the model writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .._arguments import count, one_of, switch
from .._names import explained
from ..checkpoint import CheckpointError
from ..random import as_generator
from .config import Config, Preprocessor
from .folder import has, mapping, naming, preprocessing, read_config
from .generating import seeded
from .log_mel import LogMel
from .speech_attempts import Attempts, is_threshold
from .speech_recognition import SpeechDecoding, SpeechRecognition, SpeechSampling
from .speech_words import SPACELESS, frames_of, words_of
from .text2text_generator import settle_start
from .text_generator import Writer
from .texts import Bar, attributes, listed, of_characters, tokens_of

_TASKS = ("transcribe", "translate")
_TIMES = 1501  # tokens of times, 0.02 s apart: of 30 s
# The languages in the order of their tokens; other names of them.
_NAMES = """en english zh chinese de german es spanish ru russian ko korean fr french ja japanese pt portuguese tr turkish pl polish ca catalan
nl dutch ar arabic sv swedish it italian id indonesian hi hindi fi finnish vi vietnamese he hebrew uk ukrainian el greek ms malay cs czech ro romanian
da danish hu hungarian ta tamil no norwegian th thai ur urdu hr croatian bg bulgarian lt lithuanian la latin mi maori ml malayalam cy welsh sk slovak
te telugu fa persian lv latvian bn bengali sr serbian az azerbaijani sl slovenian kn kannada et estonian mk macedonian br breton eu basque is icelandic
hy armenian ne nepali mn mongolian bs bosnian kk kazakh sq albanian sw swahili gl galician mr marathi pa punjabi si sinhala km khmer sn shona yo yoruba
so somali af afrikaans oc occitan ka georgian be belarusian tg tajik sd sindhi gu gujarati am amharic yi yiddish lo lao uz uzbek fo faroese
ht haitian_creole ps pashto tk turkmen nn nynorsk mt maltese sa sanskrit lb luxembourgish my myanmar bo tibetan tl tagalog mg malagasy as assamese
tt tatar haw hawaiian ln lingala ha hausa ba bashkir jw javanese su sundanese yue cantonese my burmese ca valencian nl flemish ht haitian
lb letzeburgesch ps pushto pa panjabi ro moldavian ro moldovan si sinhalese es castilian zh mandarin"""
_CODES = {name.replace("_", " "): code for code, name in zip(_NAMES.split()[::2], _NAMES.split()[1::2], strict=True)}


class Segment(NamedTuple):
    """A part of what is said.

    Attributes
    ----------
    start, end : float
        Seconds.
    text : str
    """

    start: float
    end: float
    text: str


class _Generation(Config):
    """What a generation_config.json says of speech."""

    file = "generation_config.json"
    NAMES = (
        *(
            "suppress_tokens",
            "begin_suppress_tokens",
            "forced_decoder_ids",
            "lang_to_id",
            "task_to_id",
            "language",
            "task",
            "is_multilingual",
        ),
        *("no_timestamps_token_id", "max_initial_timestamp_index", "return_timestamps"),
        *("prev_sot_token_id", "compression_ratio_threshold", "logprob_threshold", "no_speech_threshold"),
        *("alignment_heads", "condition_on_prev_tokens", "prompt_condition_type", "median_filter_width"),  # the last two change nothing
    )

    def __init__(self, values: Any, words: int) -> None:
        super().__init__(values)
        self.never, self.not_first = (self._tokens(name, words) for name in ("suppress_tokens", "begin_suppress_tokens"))
        self.languages, self.tasks = (self._named(name, words) for name in ("lang_to_id", "task_to_id"))
        self.language, self.task = self.values.get("language"), self.values.get("task")
        if self.language is not None and not isinstance(self.language, str):
            raise self.refuse("language", "null or the name of a language")
        if self.task not in (None, *_TASKS):
            raise self.refuse("task", f"null, {' or '.join(_TASKS)}")
        self.no_times = self.index("no_timestamps_token_id", None, words)
        self.latest = None
        if self.values.get("max_initial_timestamp_index") is not None:
            self.latest = self.size("max_initial_timestamp_index", least=0, most=_TIMES)
        self.knows_languages = self.values.get("is_multilingual") is None or self.flag("is_multilingual", True)
        self.timed = self.values.get("return_timestamps") is not None and self.flag("return_timestamps", False)
        self.forced = self._forced(words)
        self.before, self.heads = self.index("prev_sot_token_id", None, words), self._heads()
        self.only("condition_on_prev_tokens", None, False)
        names = ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold")
        self.thresholds = {name: self._threshold(name) for name in names if self.values.get(name) is not None}

    def _heads(self) -> list[tuple[int, int]]:
        """(layer, head) of those that attend to what a token is said in."""
        value = [] if self.values.get("alignment_heads") is None else self.values["alignment_heads"]
        if not isinstance(value, (list, tuple)) or any(
            not isinstance(pair, (list, tuple)) or len(pair) != 2 or not all(type(n) is int and 0 <= n < 1 << 16 for n in pair)
            for pair in value
        ):
            raise self.refuse("alignment_heads", "null or [[layer, head], ...]")
        return [(layer, head) for layer, head in value]

    def _threshold(self, name: str) -> float:
        value = self.values[name]
        if not is_threshold(value):
            raise self.refuse(name, "null or a number")
        return float(value)

    def _tokens(self, name: str, words: int) -> tuple[int, ...]:
        value = [] if self.values.get(name) is None else self.values[name]
        if not isinstance(value, (list, tuple)) or not all(type(token) is int and -1 <= token < 2**31 for token in value):
            raise self.refuse(name, "null or numbers of tokens")
        return tuple(dict.fromkeys(token for token in value if 0 <= token < words))

    def _named(self, name: str, words: int) -> dict[str, int]:
        value = {} if self.values.get(name) is None else self.values[name]
        if not isinstance(value, Mapping) or not all(type(token) is int and 0 <= token < words for token in value.values()):
            raise self.refuse(name, f"null or names of tokens below {words}")
        return dict(value)

    def _forced(self, words: int) -> list[int | None]:
        value = [] if self.values.get("forced_decoder_ids") is None else self.values["forced_decoder_ids"]
        is_list = isinstance(value, (list, tuple)) and all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in value)
        if not is_list or any(
            type(place) is not int or place != i or not (token is None or (type(token) is int and 0 <= token < words))
            for i, (place, token) in enumerate(value, 1)
        ):
            raise self.refuse("forced_decoder_ids", f"null or [[1, token], [2, token], ...], each token null or below {words}")
        return [token for _, token in value]

    def prompt(self, start: int | None, language: str | None, task: str | None, timed: bool) -> list[int]:
        """What texts begin with, as transformers' ``generate`` has it; -1 for the language that is to be heard."""
        if start is None:
            raise ValueError("config.json has no decoder_start_token_id, the token that texts begin with")
        if not self.knows_languages and not (language is None and task is None):
            raise ValueError(
                "language and task are for models of several languages; by is_multilingual in generation_config.json this one has English alone"
            )
        if timed and self.no_times is None:
            raise ValueError(
                "times need no_timestamps_token_id in generation_config.json, also those of audio that is longer than a window"
            )
        language, task = self.language if language is None else language, self.task if task is None else task
        found: list[int | None] = [start]
        if language is None and task is None:
            found += self.forced
        if language is not None or (self.languages and (len(found) < 2 or found[1] is None)):
            found[1:2] = [-1 if language is None else self._number(language)]
        if task is not None:
            if task not in self.tasks:
                raise ValueError(
                    f"task is {task!r}, but generation_config.json has a number in task_to_id for {', '.join(self.tasks)[:300] or 'none'}"
                )
            found.append(self.tasks[task])
        elif language is not None and not set(found) & set(self.tasks.values()) and "transcribe" in self.tasks:
            found.append(self.tasks["transcribe"])
        if self.no_times is not None:
            if not timed and found[-1] != self.no_times:
                found.append(self.no_times)
            elif timed and found[-1] == self.no_times:
                found.pop()
        return [token for token in found if token is not None]

    def _number(self, language: str) -> int:
        name = language.lower()
        for known in (name, f"<|{_CODES.get(name, name)}|>"):
            if known in self.languages:
                return self.languages[known]
        there = ", ".join(code.strip("<|>") for code in self.languages)[:600]
        raise ValueError(f"language is {language!r:.80}; the model has {there or 'no lang_to_id in generation_config.json'}")


class _Speech:
    """An audio that is read, in windows."""

    def __init__(self, features: np.ndarray, end: int, timed: bool, prompt: list[int]) -> None:
        self.features, self.end, self.timed, self.prompt = features, end, timed, prompt
        self.place = 0  # in frames
        self.draws: Any = None  # a generator, where tokens are drawn
        self.found: list[tuple[float, float, list[int]]] = []  # start and end in seconds
        self.times: list[float] = []  # of the ends of all their tokens, where they are computed

    def window(self, frames: int) -> np.ndarray:
        part = self.features[:, self.place : self.place + frames]
        return np.pad(part, ((0, 0), (0, frames - part.shape[1])))

    def take(self, tokens: list[int] | None, first: int, frames: int, times: np.ndarray | None = None) -> None:
        """What has been written of the window at ``place``, None where nothing is said: moves on to where its last whole part ends.

        `times`: of the ends of the tokens, in the window.
        """
        if not self.timed:
            self.found, self.place = [(0.0, 0.0, tokens or [])], self.end
            return
        frames = min(frames, self.features.shape[1] - self.place)
        if tokens is None:
            self.place += frames
            return
        parts, more = cut(tokens, first, frames)
        self.found += [(0.01 * self.place + start, 0.01 * self.place + end, part) for start, end, part in parts]
        if times is not None:
            self.times += (0.01 * self.place + times)[: sum(len(part) for *_, part in parts)].tolist()
        self.place += more if more > 0 else frames


def cut(tokens: list[int], first: int, frames: int) -> tuple[list[tuple[float, float, list[int]]], int]:
    """((start, end, tokens) of the parts of a window of `frames`, by pairs of tokens of times from `first` on; the frames up to the next window)."""
    times = [token >= first for token in tokens]
    ends = [i for i in range(1, len(tokens)) if times[i - 1] and times[i]]
    if not ends:
        last = next((token - first for token in reversed(tokens) if token >= first), 0)
        return [(0.0, 0.02 * (last or frames // 2), tokens)], frames
    is_whole = times[-2:] == [False, True]  # nothing is said after the last time
    if is_whole:
        ends.append(len(tokens))
    else:
        ends[-1] += 1
    parts = [tokens[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    lasts = [part[-1] for part in parts]
    if not is_whole:
        lasts[-1] = parts[-1][-2]
    found = [(0.02 * (part[0] - first), 0.02 * (last - first), part) for part, last in zip(parts, lasts, strict=True)]
    return found, frames if is_whole else 2 * (lasts[-1] - first)


def _of_python(value: Any) -> Any:
    """A number or an array of NumPy's as Python's numbers and lists."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


class SpeechRecognizer(Writer):
    """Writes what is said in audio, with Whisper. ``SpeechRecognizer.from_pretrained(folder)`` makes one.

    Parameters
    ----------
    model : Module
        Of ``tc.models.load(folder, task="automatic-speech-recognition")``.
    tokenizer : callable
        ``tokenizer.decode(ids)`` gives the text.
    sampling, eos_token_id
        As for ``Text2TextGenerator``.
    speech, preprocessor : mapping, optional
        Contents of generation_config.json, of languages, tasks and times, and of preprocessor_config.json.

    Attributes
    ----------
    model, tokenizer
        As above. ``recognizer.model.to("cuda")`` moves the model.
    features : callable
        ``features(samples)``: log-mel features of samples (n,), (mels, frames), float32.

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
    >>> config = {"model_type": "whisper", "vocab_size": 26, "d_model": 8, "num_mel_bins": 4, "max_source_positions": 50, "decoder_start_token_id": 0}
    >>> config |= {f"{side}_{name}": 1 for side in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")}
    >>> model = tc.models.create(config, task="automatic-speech-recognition")
    >>> recognizer = tc.models.SpeechRecognizer(model, Letters())
    >>> samples = np.sin(np.arange(8000) / 10)
    >>> len(recognizer.transcribe(samples, max_new_tokens=5)), recognizer.features(samples).shape
    (5, (4, 100))
    """

    task, head, beside = "automatic-speech-recognition", SpeechRecognition, _Generation.NAMES
    _instead = attributes(
        "recognizer.model",
        **dict.fromkeys(("predict", "forward", "encode", "generate", "recognize"), "recognizer.transcribe(samples)"),
        save="tc.models.save(recognizer.model, folder) and recognizer.tokenizer.save(folder)",
    )

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        sampling: Any = None,
        eos_token_id: Any = None,
        *,
        speech: Any = None,
        preprocessor: Any = None,
    ) -> None:
        super().__init__(model, tokenizer, sampling, eos_token_id)
        self._configure(speech or {}, preprocessor or {})

    def _configure(self, speech: Any, preprocessor: Any) -> None:
        encoder = self.model.encoder.encoder
        self._speech = _Generation(speech, encoder.words.weight.shape[0])
        self._filter = Config(self.model.config).size("median_filter_width", 7, most=1 << 8)
        if self._filter % 2 == 0:
            raise Config(self.model.config).refuse("median_filter_width", "an odd number")
        self.features = LogMel(Preprocessor(preprocessor), encoder.mels, encoder.frames)

    def _settle(self, path: str) -> None:
        settle_start(path, self.model)
        file = os.path.join(path, "generation_config.json")
        speech = mapping(file) if has(file) else read_config(path)
        values = preprocessing(path, "feature_extractor")
        with naming(path):
            self._configure(speech, values)

    @explained(
        {
            **dict.fromkeys(
                ("return_segments", "return_token_timestamps"),
                "timestamps=True gives parts with their times, timestamps='word' words with theirs",
            ),
            "condition_on_prev_tokens": "prompt= is put in front of each window; the text before it is not",
            "chunk_length_s": "longer audio is read window after window",
        },
        {"return_timestamps": "timestamps", "prompt_ids": "prompt", "initial_prompt": "prompt"},
        harmless={"condition_on_prev_tokens": (None, False)},
    )
    def transcribe(
        self,
        audio: Any,
        *,
        language: str | None = None,
        task: str | None = None,
        timestamps: bool | str = False,
        sampling_rate: int | None = None,
        max_new_tokens: int | None = None,
        num_beams: int | None = None,
        prompt: Any = None,
        temperature: Any = None,
        compression_ratio_threshold: float | None = None,
        logprob_threshold: float | None = None,
        no_speech_threshold: float | None = None,
        rng: Any = None,
        batch_size: int = 8,
        progress: bool = False,
    ) -> Any:
        """What is said, as text.

        Parameters
        ----------
        audio : ndarray of floats, shape (n,), or sequence of them
            Samples from -1 to 1, 16,000 per second. One that is longer than a window of 30 s is read window after window, by the times that the
            model writes, as in transformers with its defaults: without the text before.
        language : str, optional
            "en" or "english"; by default it is heard at the beginning of each audio, or the one that generation_config.json has.
        task : {"transcribe", "translate"}, optional
            "translate" writes English; by default what generation_config.json says.
        timestamps : bool or "word", default False
            Give the parts with their times; or words, each with the space before it and the marks around it, by the heads that generation_config.json has as
            ``alignment_heads``.
        sampling_rate : int, optional
            That of `audio`, for a check.
        max_new_tokens : int, optional
            At most so many tokens of a window; by default as many as the model takes.
        prompt : str or sequence of int, optional
            What precedes each window: names and other words as they are to be written, or text in the style that is wanted. As numbers of tokens it is
            transformers' ``prompt_ids``, which begin with ``prev_sot_token_id``.
        temperature : float or sequence of float, default 0
            0 takes the likeliest tokens, or beams; at others they are drawn. Of several the next is tried for a window that the thresholds do not let pass, such
            as (0, 0.2, 0.4, 0.6, 0.8, 1) in section 4.5 of the paper.
        compression_ratio_threshold : float, optional
            None takes that of generation_config.json, if it has one; so the next two. Windows do not pass whose tokens take more than so many times fewer bytes compressed, as they repeat themselves: 1.35 in transformers' examples.
        logprob_threshold : float, optional
            Nor do those of which the mean logarithm of the tokens' probabilities is less: -1 in the paper.
        no_speech_threshold : float, optional
            Unless silence is likelier than this, 0.6 in the paper: then nothing is said.
        rng : Generator, int or None
            Draws; by default the default generator.
        num_beams, batch_size, progress
            As for ``TextGenerator.generate``; `batch_size` windows at once.

        Returns
        -------
        str, or list of Segment, or a list of them
            As `audio`; Segment(start, end, text), in seconds.

        Raises
        ------
        TypeError
            When samples are no floats.
        ValueError
            When audio is empty, has several channels, NaN or infinity, or another rate; when the model has no such language or task; when a prompt leaves no
            room, or has special tokens.

        Examples
        --------
        See ``SpeechRecognizer``.
        """
        self.features.check_rate(sampling_rate)
        single = hasattr(audio, "ndim") or isinstance(audio, (str, bytes, os.PathLike))
        waves = [
            self.features.checked(each, i) for i, each in enumerate([audio] if single else listed(audio, "arrays of samples", "audio"))
        ]
        if not isinstance(language, (str, type(None))):
            raise TypeError(f"language must be a str, got {language!r:.80}")
        by_words = isinstance(timestamps, str) and timestamps == "word"
        timestamps = by_words or switch("timestamps", timestamps)
        if by_words:
            self._check_heads()
        task = None if task is None else one_of("task", task, _TASKS)
        size, spoken, frames = count("batch_size", batch_size), self._speech, self.features.frames
        given = {
            "compression_ratio_threshold": compression_ratio_threshold,
            "logprob_threshold": logprob_threshold,
            "no_speech_threshold": no_speech_threshold,
        }
        attempts = self._attempts(temperature, {name: value for name, value in given.items() if value is not None})
        before = [] if prompt is None else self._before(prompt)
        usual = replace(self._sampling, do_sample=False)  # which temperature= says
        settings = SpeechSampling(
            **vars(usual.with_arguments(max_new_tokens=max_new_tokens, num_beams=num_beams)),
            suppress_tokens=spoken.never,
            begin_suppress_tokens=spoken.not_first,
        )
        first = 0 if spoken.no_times is None else spoken.no_times + 1
        speeches = []
        source = as_generator(rng) if any(attempts.temperatures) else None
        for wave in waves:
            features = self.features(wave)
            timed = timestamps or spoken.timed or features.shape[1] > frames
            end = min(-(-len(wave) // self.features.hop), features.shape[1])
            speech = _Speech(features, end, timed, spoken.prompt(self.model.encoder.start, language, task, timed))
            speech.draws = seeded(source)
            speeches.append(speech)
        with Bar(len(speeches), progress, "writing", "audio") as bar:
            for timed in (False, True):
                own = [speech for speech in speeches if speech.timed == timed]
                chosen = replace(settings, first_time=first, latest=spoken.latest) if timed else settings
                while own:
                    unheard = -1 in own[0].prompt
                    batch = [speech for speech in own if (-1 in speech.prompt) == unheard][:size]
                    decoding = self.model.begun(
                        np.stack([speech.window(frames) for speech in batch]),
                        [speech.prompt for speech in batch],
                        list(spoken.languages.values()) if unheard else None,
                        before,
                    )
                    for speech, begun in zip(batch, decoding.texts, strict=True):
                        speech.prompt = begun[len(before) :]
                    most, decoding.keeps = self.model.room(len(decoding.texts[0]), chosen), by_words
                    draws = [speech.draws for speech in batch]
                    written = attempts.written(decoding, most, chosen, self._ends, draws, first - 2)
                    for row, (speech, whole) in enumerate(zip(batch, written, strict=True)):
                        times = self._times(decoding, row, whole, speech.end - speech.place) if by_words and whole else None
                        speech.take(whole[:-1] if whole and whole[-1] in self._ends else whole, first, frames, times)
                    left = [speech for speech in own if speech.place < speech.end]
                    bar.update(len(own) - len(left))
                    own = left
        give = self._words if by_words else self._parts if timestamps else self._text
        found = [give(speech, first) for speech in speeches]
        return found[0] if single else found

    def _check_heads(self) -> None:
        """Raises where times of words cannot be computed."""
        layers = self.model.encoder.decoder.layers
        if not self._speech.heads:
            raise ValueError("times of words need alignment_heads in generation_config.json")
        for layer, head in self._speech.heads:
            if layer >= len(layers) or head >= layers[layer].cross.heads:
                raise CheckpointError(
                    f"generation_config.json has alignment_heads with {[layer, head]}; the decoder has {len(layers)} layers of {layers[0].cross.heads} heads"
                )

    def _times(self, decoding: SpeechDecoding, row: int, tokens: list[int], frames: int) -> np.ndarray:
        """When each of a window's new tokens ends, in seconds: the last one, which is not read, with the one before it."""
        if len(tokens) == 1:
            return np.zeros(1)
        attended = decoding.attended(row, tokens[:-1], self._speech.heads)[:, :, : max(1, frames // 2)]
        found = frames_of(attended, self._filter)
        return 0.02 * np.append(found, found[-1])

    def _words(self, speech: _Speech, first: int) -> list[Segment]:
        codes = {token: name.strip("<|>") for name, token in self._speech.languages.items()}
        spaced = not any(codes.get(token) in SPACELESS for token in speech.prompt[1:2])
        found, place = [], 0
        for *_, part in speech.found:
            own = [i for i, token in enumerate(part) if not first <= token < first + _TIMES and self.tokenizer.decode([token])]
            ends, starts = speech.times[place : place + len(part)], [0.0, *speech.times][place : place + len(part)]
            for word in words_of([part[i] for i in own], self.tokenizer.decode, spaced):
                found.append(Segment(round(starts[own[word.first]], 2), round(ends[own[word.last]], 2), word.text))
            place += len(part)
        return found

    def _attempts(self, temperature: Any, thresholds: dict[str, Any]) -> Attempts:
        """By the arguments, and generation_config.json."""
        temperature = _of_python(temperature)
        several = temperature if isinstance(temperature, (list, tuple)) else [0.0 if temperature is None else temperature]
        own = {name: _of_python(value) for name, value in thresholds.items()}
        found = Attempts(tuple(map(_of_python, several)), **{**self._speech.thresholds, **own})
        if found.no_speech_threshold is not None and self._speech.no_times is None:
            raise ValueError(
                "no_speech_threshold needs no_timestamps_token_id in generation_config.json: the token before it is that of silence"
            )
        return found

    def _before(self, prompt: Any) -> list[int]:
        """The tokens of a prompt."""
        words = self.model.encoder.words.weight.shape[0]
        if not isinstance(prompt, str):
            try:
                found = np.asarray(prompt)
            except (ValueError, TypeError):  # of lists in it
                found = np.array(None)
            if found.ndim != 1 or found.dtype.kind not in "iu" or not len(found) or found.min() < 0 or found.max() >= words:
                raise ValueError(f"prompt must be a str, or numbers of tokens below {words}, got {prompt!r:.80}")
            return [int(token) for token in found]
        if self._speech.before is None:
            raise ValueError(
                "a prompt needs prev_sot_token_id in generation_config.json, the token that precedes it, or is given as numbers of tokens"
            )
        of_characters(prompt, "prompt")
        read = getattr(self.tokenizer, "as_written", self.tokenizer)
        if not callable(read):
            raise TypeError("a prompt needs a tokenizer that reads texts, a function of a list that gives (ids, types) of each")
        found = np.asarray(tokens_of(read, [" " + prompt.strip()], some=False)[0][0])
        if found.size and (found.min() < 0 or found.max() >= min((*self._ends, words))):
            raise ValueError(
                f"prompt has the token {int(found.max())}, which is no word: special tokens have no place in it: {prompt!r:.80}"
            )
        return [self._speech.before, *(int(token) for token in found)]

    def _parts(self, speech: _Speech, first: int) -> list[Segment]:
        found = (Segment(start, end, self._decoded(tokens, first)) for start, end, tokens in speech.found)
        return [part for part in found if part.text]

    def _text(self, speech: _Speech, first: int) -> str:
        return self._decoded([token for *_, tokens in speech.found for token in tokens], first)

    def _decoded(self, tokens: list[int], first: int) -> str:
        words = [token for token in tokens if not 0 < first <= token < first + _TIMES]
        return self.tokenizer.decode(words).strip()


__all__ = ["Segment", "SpeechRecognizer"]
