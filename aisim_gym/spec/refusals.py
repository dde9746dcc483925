"""Specification errors with an additional type or field."""

from aisim_gym.errors import SpecError, UnsupportedError


class NegativeCountError(SpecError, OverflowError):
    """A count below zero; the reference raises ``OverflowError`` for it."""


class UnsupportedSpecError(SpecError, UnsupportedError):
    """A setting that the reference supports and this package does not."""


class MisfitError(ValueError):
    """Raised by a check of a whole model when one field is at fault, so that the message names it.

    Attributes:
        field: Path of the field relative to the model: ``engine.worker_type``.
    """

    def __init__(self, field: str, text: str) -> None:
        """Report ``field`` with ``text``, which contains the reference's wording."""
        super().__init__(text)
        self.field = field
