"""Work that a thread does ahead of the loop that takes its results."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from .._recording import enable_grad, is_grad_enabled, no_grad
from ..random import Generator, drawing_from

_LAST = object()  # instead of an error: there is no further result


def _raised(error: Exception) -> None:
    raise error


class _Worker:
    """What the thread does, and what the consumer asks of it; arguments as those of ``ahead``."""

    def __init__(self, jobs: Iterator[Callable[[], Any]], seed: int, taken_there: bool) -> None:
        self._jobs, self._seed, self._taken_there = jobs, seed, taken_there
        self._recording = enable_grad if is_grad_enabled() else no_grad
        self._asked: queue.SimpleQueue = queue.SimpleQueue()  # for each result the job, or whether there is one; None ends the thread
        self._results: queue.SimpleQueue = queue.SimpleQueue()  # pairs of a result and an error
        self._stop = threading.Event()
        self._process = os.getpid()
        self.thread = threading.Thread(target=self._work, name="transformer_c-prefetch", daemon=True)

    def _work(self) -> None:
        try:
            with self._recording(), drawing_from(Generator(self._seed)):
                while (job := self._asked.get()) and not self._stop.is_set():
                    if self._taken_there and not (job := next(self._jobs, None)):
                        break
                    self._results.put((job(), None))
            self._results.put((None, _LAST))
        except BaseException as error:
            self._results.put((None, error))

    def ask(self) -> None:
        """Asks for one more result."""
        try:
            self._asked.put(True if self._taken_there else next(self._jobs, None))
        except Exception as error:  # comes after the results before it
            self._asked.put(partial(_raised, error))

    def result(self) -> tuple[Any, Any]:
        """The next result and None; or None and an error, or _LAST."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "this iterator over a DataLoader was begun before a fork, and its thread is in the parent: call iter() again"
            )
        return self._results.get()

    def end(self) -> None:
        """Ends the thread, after the job that it is doing; in a forked child there is none."""
        if os.getpid() == self._process:
            self._stop.set()
            self._asked.put(None)
            with suppress(RuntimeError):  # it has not begun
                self.thread.join()


def ahead(jobs: Iterator[Callable[[], Any]], depth: int, seed: int, taken_there: bool) -> Iterator[Any]:
    """Runs the jobs in order on a thread, at most `depth` results ahead of the consumer.

    The thread records where the consumer does. Which of the two draws first is a matter of chance, so what the thread draws from the default
    generator comes from one of its own, and the consumer takes the jobs from their iterator, which may draw, too, unless they are `taken_there`.
    """
    worker = _Worker(jobs, seed, taken_there)
    try:
        worker.thread.start()  # waits for the thread, so Ctrl-C may come here, too
        for _ in range(depth):
            worker.ask()
        while True:
            value, error = worker.result()
            if error is _LAST:
                return
            if error is not None:
                raise error
            worker.ask()
            yield value
    finally:
        worker.end()


__all__ = ["ahead"]
