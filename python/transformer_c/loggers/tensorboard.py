"""Logs for TensorBoard, through its package."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from .base import FolderLogger


class EventWriter:
    """Writes event files: what a TensorBoardLogger has as ``experiment``.

    Parameters
    ----------
    folder : str
    purge_step : int, optional
        TensorBoard hides values of earlier files from this step on.
    """

    def __init__(self, folder: str, purge_step: int | None = None) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.compat.proto.tensor_pb2 import TensorProto
            from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise ImportError(
                f"TensorBoardLogger needs the package tensorboard ({error}): pip install 'transformer_c[tensorboard]'; "
                "tc.loggers.CSVLogger needs nothing"
            ) from error
        self._events, self._summaries, self._tensor, self._shape = event_pb2, summary_pb2, TensorProto, TensorShapeProto
        self._writer = EventFileWriter(folder)
        if purge_step is not None:
            session = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.add_event(event_pb2.Event(wall_time=time.time(), step=purge_step, session_log=session))

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        """Adds one value to the curve `tag`."""
        self._add(self._summaries.Summary.Value(tag=tag, simple_value=float(scalar_value)), global_step)

    def add_text(self, tag: str, text_string: str, global_step: int | None = None) -> None:
        """Adds a text, in Markdown."""
        plugin = self._summaries.SummaryMetadata.PluginData(plugin_name="text")
        metadata = self._summaries.SummaryMetadata(plugin_data=plugin)
        tensor = self._tensor(dtype="DT_STRING", string_val=[text_string.encode()], tensor_shape=self._shape(dim=[self._shape.Dim(size=1)]))
        self._add(self._summaries.Summary.Value(tag=f"{tag}/text_summary", metadata=metadata, tensor=tensor), global_step)

    def _add(self, value: Any, step: int | None) -> None:
        summary = self._summaries.Summary(value=[value])
        self._writer.add_event(self._events.Event(wall_time=time.time(), step=step or 0, summary=summary))

    def flush(self) -> None:
        """Writes what is not yet written."""
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()


def _cell(text: str) -> str:
    """A text in a table of Markdown."""
    return text.replace("|", "\\|").replace("\n", " ")


class TensorBoardLogger(FolderLogger):
    """Writes curves for TensorBoard; ``tensorboard --logdir FOLDER`` shows them. Needs the package tensorboard.

    Parameters
    ----------
    save_dir : path-like
    name : str, optional
    version : int or str, optional
        The files are in ``save_dir/name/version_0``; without a version, a new run has a new number.
    log_graph, default_hp_metric, prefix
        Accepted for compatibility with Lightning; `prefix` is put before every name, the others are ignored.
    """

    def __init__(
        self,
        save_dir: Any,
        name: str | None = "logs",
        version: int | str | None = None,
        log_graph: bool = False,
        default_hp_metric: bool = True,
        prefix: str = "",
    ) -> None:
        super().__init__(save_dir, name, version)
        self._prefix = f"{prefix}-" if prefix else ""
        self._writer: EventWriter | None = None

    @property
    def experiment(self) -> EventWriter:
        """The writer: ``add_scalar``, ``add_text``, ``flush``."""
        if self._writer is None:
            self._writer = EventWriter(self.log_dir)
        return self._writer

    def begin(self, step: int | None) -> None:
        """See Logger."""
        self.finalize("success")
        super().begin(step)
        self._writer = EventWriter(self.log_dir, step)

    def _write_params(self) -> None:
        rows = "\n".join(f"| {_cell(name)} | {_cell(repr(value))} |" for name, value in self._params.items())
        if rows:
            self.experiment.add_text("hparams", f"| name | value |\n|---|---|\n{rows}")

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """See Logger."""
        for name, value in metrics.items():
            self.experiment.add_scalar(self._prefix + name, value, step)

    def save(self) -> None:
        """See Logger."""
        super().save()
        self.experiment.flush()

    def finalize(self, status: str) -> None:
        """See Logger."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


__all__ = ["EventWriter", "TensorBoardLogger"]
