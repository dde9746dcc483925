"""Specification errors that are more than a plain SpecError."""

from aisim_gym.errors import SpecError, UnsupportedError


class NegativeCountError(SpecError, OverflowError):
    """A count below zero; the reference raises ``OverflowError`` for it."""


class UnsupportedSpecError(SpecError, UnsupportedError):
    """A setting that the reference knows and this package does not run."""


class MisfitError(ValueError):
    """What a check of a whole model raises if one field is to blame, so that messages name it.

    Attributes:
        field: Path of the field, seen from the model: ``engine.worker_type``.
    """

    def __init__(self, field: str, text: str) -> None:
        """Blame ``field``; ``text`` holds the reference's words."""
        super().__init__(text)
        self.field = field
