"""One line of a Mooncake JSONL file (workloads.md §4).

Parsing follows the reference's (serde) rules, which are stricter than Python's ``json``: no NaN or
Infinity, no duplicate field or field with its alias, no ``4.0`` for an integer, no lone surrogates.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, NoReturn

from aisim_gym.workload.json_float import parse_json_float
from aisim_gym.workload.prompt_ids import MAX_HASH_ID

FIELD_OF_NAME = {
    "hash_ids": "hash_ids",
    "output_length": "output_length",
    "output_tokens": "output_length",
    "input_length": "input_length",
    "input_tokens": "input_length",
    "timestamp": "timestamp",
    "created_time": "timestamp",
    "delay": "delay",
    "delay_ms": "delay",
    "session_id": "session_id",
    "output_token_ids": "output_token_ids",
    "request_id": "request_id",
    "priority": "priority",
    "strict_priority": "strict_priority",
    "policy_class": "policy_class",
}
"""Names and aliases allowed in a row, mapped to their field; other names are ignored."""

_U64_MAX = 2**64 - 1
_U32_MAX = 2**32 - 1


class FieldError(ValueError):
    """An invalid field of a Mooncake line; the caller adds file and line."""


class _JsonObject(tuple[tuple[str, object], ...]):
    """A JSON object as (name, value) pairs, so that duplicate names are not lost."""

    __slots__ = ()


def _refuse_constant(name: str) -> NoReturn:
    raise FieldError(f"got {name}, allowed: JSON numbers")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_JsonObject,
    parse_float=parse_json_float,
    parse_constant=_refuse_constant,
)


class MooncakeRow(NamedTuple):
    """The fields of one line, with checked types; None = absent."""

    hash_ids: list[int] | None
    input_length: int | None
    output_length: int | None
    timestamp: float | None
    delay: float | None
    session_id: str | None
    output_token_ids: list[int] | None


def parse_row(text: Mapping[str, object] | str) -> MooncakeRow:
    """Return the fields of a line, given as text or as the object in it.

    Raises:
        FieldError: Names the field, what was given and what is allowed.
    """
    values = _fields(_json_pairs(text) if isinstance(text, str) else _as_written(text))
    _checked_text(values, "request_id")
    _checked_integer(values, "priority", -(2**31), 2**31 - 1)
    _checked_integer(values, "strict_priority", 0, _U32_MAX)
    _checked_text(values, "policy_class")
    return MooncakeRow(
        hash_ids=_checked_integers(values, "hash_ids", MAX_HASH_ID),
        input_length=_checked_integer(values, "input_length", 0, _U64_MAX),
        output_length=_checked_integer(values, "output_length", 0, _U64_MAX),
        timestamp=_checked_number(values, "timestamp"),
        delay=_checked_number(values, "delay"),
        session_id=_checked_text(values, "session_id"),
        output_token_ids=_checked_integers(values, "output_token_ids", _U32_MAX),
    )


def _json_pairs(text: str) -> Iterable[tuple[str, object]]:
    try:
        value: object = _DECODER.decode(text)
    except FieldError:
        raise
    except (ValueError, RecursionError) as error:
        raise FieldError(str(error)) from error
    if not isinstance(value, _JsonObject):
        raise FieldError(f"got {_shown(value)}, allowed: a JSON object")
    return value


def _as_written(row: Mapping[str, object]) -> Iterable[tuple[str, object]]:
    """Return the fields of a row as if parsed from its JSON text."""
    for name, value in row.items():
        if isinstance(value, float) and math.isfinite(value):
            yield name, parse_json_float(repr(float(value)))
        else:
            yield name, value


def _fields(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    """Return the values of the known fields under their main names."""
    values: dict[str, object] = {}
    for name, value in pairs:
        field = FIELD_OF_NAME.get(name)
        if field is None:
            continue
        if field in values:
            raise FieldError(f"{name}: got {field} twice (aliases count), allowed: once")
        values[field] = value
    return values


def _checked_integer(
    values: dict[str, object], field: str, minimum: int, maximum: int
) -> int | None:
    value = values.get(field)
    if value is None or (type(value) is int and minimum <= value <= maximum):
        return value
    raise FieldError(f"{field}: got {_shown(value)}, allowed: an integer {minimum} .. {maximum}")


def _checked_integers(values: dict[str, object], field: str, maximum: int) -> list[int] | None:
    value = values.get(field)
    if value is None:
        return None
    if not isinstance(value, list | tuple) or isinstance(value, _JsonObject):
        raise FieldError(f"{field}: got {_shown(value)}, allowed: a list of integers")
    for item in value:
        if type(item) is not int or not 0 <= item <= maximum:
            raise FieldError(f"{field}: got {_shown(item)}, allowed: integers 0 .. {maximum}")
    return list(value)


def _checked_number(values: dict[str, object], field: str) -> float | None:
    value = values.get(field)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise FieldError(f"{field}: got {_shown(value)}, allowed: a finite number (ms)")


def _checked_text(values: dict[str, object], field: str) -> str | None:
    value = values.get(field)
    if value is None:
        return None
    if not isinstance(value, str):
        raise FieldError(f"{field}: got {_shown(value)}, allowed: a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise FieldError(f"{field}: got {_shown(value)}, a lone surrogate") from error
    return value


def _shown(value: object) -> str:
    """Return ``value`` as JSON would write it, shortened."""
    if isinstance(value, _JsonObject):
        return "an object"
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else f"{text[:57]}..."
