"""Strict scalar field types, each with its name in the reference's messages.

``"8"``, ``true`` and ``8.0`` are not integers, ``true`` and ``"1"`` are not floats, and ``1`` is
not a boolean; an integer is accepted as a float. ``wording.py`` turns the markers into text.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AllowInfNan, GetCoreSchemaHandler, Strict
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

OUT_OF_RANGE = "out_of_range"
"""Pydantic error type of an integer outside the range of its :class:`RustInteger`."""


@dataclass(frozen=True, slots=True)
class RustType:
    """Type name after "expected" in the reference's messages, and its meaning in plain words."""

    name: str
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class RustInteger(RustType):
    """An integer type of the reference with its range.

    ``is_argument`` marks a call argument, whose message in the reference differs from that of a
    config field.
    """

    low: int = 0
    high: int = 2**64 - 1
    is_argument: bool = False

    def holds(self, value: float) -> bool:
        """Return whether ``value`` lies in the range."""
        return self.low <= value <= self.high

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Add the range check to the bounds given with ``Field``."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, value: int) -> int:
        if not self.holds(value):
            raise PydanticCustomError(OUT_OF_RANGE, "integer out of range")
        return value


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reference's message for a value of the right type that is not allowed.

    The value is appended as ``, got …`` and then ``hint``, so ``text`` contains neither. For a
    number with two bounds it is the message of the lower one.
    """

    text: str
    hint: str = ""


def _integer_type(name: str, bits: int, *, is_argument: bool = False) -> RustInteger:
    high = 2**bits - 1
    return RustInteger(name, f"an integer from 0 to {high}", 0, high, is_argument)


Usize = Annotated[int, Strict(), _integer_type("usize", 64)]
U64 = Annotated[int, Strict(), _integer_type("u64", 64)]
U32 = Annotated[int, Strict(), _integer_type("u32", 32)]
U16 = Annotated[int, Strict(), _integer_type("u16", 16)]
Count = Annotated[int, Strict(), _integer_type("usize", 64, is_argument=True)]
Integer = Annotated[int, Strict(), RustType("an integer")]
F64 = Annotated[float, Strict(), AllowInfNan(False), RustType("f64", "a finite number")]
Real = Annotated[float, Strict(), RustType("f64", "a number")]
Flag = Annotated[bool, Strict(), RustType("a boolean")]
Text = Annotated[str, Strict(), RustType("a string")]
