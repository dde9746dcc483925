"""Parse JSON text, with the reference's wording of syntax errors."""

import json
from typing import Any

from aisim_gym.errors import SpecError

SERDE_MESSAGES = {
    "Expecting property name enclosed in double quotes": "key must be a string",
    "Expecting value": "expected value",
    "Expecting ':' delimiter": "expected `:`",
    "Expecting ',' delimiter": "expected `,` or a closing bracket",
    "Illegal trailing comma before end of object": "trailing comma",
    "Illegal trailing comma before end of array": "trailing comma",
    "Extra data": "trailing characters",
}


def parse_json(text: str, *, source: str = "") -> Any:
    """Return the value of a JSON text.

    Args:
        text: JSON. Unlike Python's parser, duplicate keys in an object are an error.
        source: File the text comes from, for messages.

    Raises:
        SpecError: With line and column of the first problem.
    """
    tail = f" ({source})" if source else ""
    try:
        return json.loads(text, object_pairs_hook=_object_without_duplicates)
    except json.JSONDecodeError as error:
        message = SERDE_MESSAGES.get(error.msg, error.msg)
        if error.pos >= len(text):
            message = "EOF while parsing"
        position = f"at line {error.lineno} column {error.colno}"
        raise SpecError(f"{message} {position}; expected a JSON object{tail}") from None
    except SpecError as error:
        raise SpecError(f"{error}{tail}") from None


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise SpecError(f"key `{twice}` occurs twice in one object; expected it once")
    return result
