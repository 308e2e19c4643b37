"""The one error of this package."""


class CheckpointError(ValueError):
    """A file is not a checkpoint, is damaged, or asks for something that is refused; the message says which and why."""
