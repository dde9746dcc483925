"""The two kinds of specification errors that are more than a plain SpecError."""

from aisim_gym.errors import SpecError, UnsupportedError


class NegativeCountError(SpecError, OverflowError):
    """A count below zero; the reference raises ``OverflowError`` for it."""


class UnsupportedSpecError(SpecError, UnsupportedError):
    """A setting that the reference knows and this package does not run."""
