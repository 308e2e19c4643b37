"""Log-mel features of speech: the energies of bands as wide as the ear's, as transformers' WhisperFeatureExtractor computes them."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from ..checkpoint import CheckpointError
from .config import Config, Preprocessor

_LOUD = 100.0  # samples are from -1 to 1
_LONGEST = 1 << 26  # samples of a window: an hour


class LogMel:
    """Samples to features.

    Parameters
    ----------
    config : Config
        Of preprocessor_config.json.
    mels, frames : int
        What the model takes: bands, and frames of a window.

    Attributes
    ----------
    rate, samples : int
        Per second, and of a window.
    """

    def __init__(self, config: Config, mels: int, frames: int) -> None:
        config.only("feature_extractor_type", "WhisperFeatureExtractor", None)
        for name in ("dither", "padding_value"):
            config.only(name, 0.0, 0)
        config.only("do_normalize", False, None)
        self.rate, self.hop = config.size("sampling_rate", 16000, most=1 << 20), config.size("hop_length", 160, most=1 << 16)
        self._size = config.size("n_fft", 400, least=2, most=1 << 14)
        self.samples = config.size("chunk_length", max(1, frames * self.hop // self.rate), most=1 << 12) * self.rate
        if self.samples > _LONGEST:
            raise CheckpointError(f"by {config.file} a window has {self.samples} samples; at most {_LONGEST} are supported")
        found = config.size("feature_size", mels), self.samples // self.hop
        if found != (mels, frames):
            raise CheckpointError(f"by {config.file} features have the shape {found}; the model takes {(mels, frames)}")
        self.frames = frames
        self._filters = _filters(mels, 1 + self._size // 2, self.rate)
        self._window = np.hanning(self._size + 1)[:-1]

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """(n,) to (mels, frames) of at least one window, float32."""
        x = np.zeros(max(len(samples), self.samples), np.float32)
        x[: len(samples)] = samples
        count, half = len(x) // self.hop, self._size // 2
        cut = np.lib.stride_tricks.sliding_window_view(np.pad(x, half, mode="reflect"), self._size)[:: self.hop][:count]
        found: np.ndarray = np.empty((count, self._filters.shape[1]))
        for begin in range(0, count, 200):
            waves = np.fft.rfft(cut[begin : begin + 200] * self._window)
            found[begin : begin + 200] = (waves.real**2 + waves.imag**2) @ self._filters
        np.log10(np.maximum(found, 1e-10, out=found), out=found)  # in place: an hour has much
        np.maximum(found, found.max() - 8.0, out=found)
        return np.ascontiguousarray(found.T / 4.0 + 1.0, np.float32)

    def checked(self, audio: Any, number: int) -> np.ndarray:
        """Samples (n,), float32."""
        what = f"audio number {number}"
        if isinstance(audio, (str, bytes, os.PathLike)):
            raise TypeError(f"{what} is {audio!r:.80}; samples are read from a file by `soundfile.read(path, dtype='float32')`")
        found = np.asarray(audio)
        if found.dtype.kind not in "f" or found.dtype.itemsize > 8:
            whole = found.dtype in (np.int16, np.int32)
            advice = f"; samples / {np.iinfo(found.dtype).max + 1} has them from -1 to 1" if whole else ""
            raise TypeError(f"{what} has samples of {found.dtype}; expected floats from -1 to 1, (n,){advice}")
        if found.ndim != 1:
            advice = {0: "; samples of one audio are an array: np.asarray(samples)"}.get(found.ndim, "")
            if found.ndim == 2:
                advice = f"; of several channels take the mean: samples.mean({int(np.argmin(found.shape))}); several audios are a list"
            raise ValueError(f"{what} has the shape {found.shape}; expected one channel, (n,){advice}")
        if not found.size:
            raise ValueError(f"{what} has no samples")
        loudest = np.abs(found).max()
        if not np.isfinite(loudest):
            raise ValueError(f"{what} has samples that are NaN or infinite")
        if loudest > _LOUD:
            raise ValueError(f"{what} has samples up to {loudest:g}; expected floats from -1 to 1: samples / 32768 of numbers of 16 bits")
        return found.astype(np.float32)

    def check_rate(self, rate: Any) -> None:
        """Raises for another number of samples per second than the model's."""
        if rate is None:
            return
        if isinstance(rate, bool) or not isinstance(rate, (int, float, np.number)):
            raise TypeError(f"sampling_rate must be a number, got {rate!r:.80} ({type(rate).__name__})")
        if rate != self.rate:
            whole = isinstance(rate, (int, np.integer)) and rate > 0
            shared = math.gcd(int(rate), self.rate) if whole else 1
            advice = f": scipy.signal.resample_poly(samples, {self.rate // shared}, {int(rate) // shared})" if whole else ""
            raise ValueError(f"sampling_rate is {rate!r:.80}; the model takes {self.rate} samples per second, so resample them{advice}")


def _filters(mels: int, bins: int, rate: int) -> np.ndarray:
    """Triangles over the frequencies of a Fourier transform, (bins, mels), of equal areas: Slaney's Auditory Toolbox of 1998."""
    step = np.log(6.4) / 27
    places = np.linspace(0, 15 + np.log(8) / step, mels + 2)  # of 0 to 8000 Hz; 15: of 1000 Hz
    edges = np.where(places < 15, 200 / 3 * places, 1000 * np.exp(step * (places - 15)))
    far = edges - np.linspace(0, rate // 2, bins)[:, None]
    widths = np.diff(edges)
    return np.maximum(0, np.minimum(-far[:, :-2] / widths[:-1], far[:, 2:] / widths[1:])) * 2 / (edges[2:] - edges[:-2])


__all__ = ["LogMel", "Preprocessor"]
