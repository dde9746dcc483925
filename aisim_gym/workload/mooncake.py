"""Mooncake JSONL: one JSON object per line, prompts as hash ids (workloads.md §4, errors §14).

Parsing follows the reference's (serde) rules where Python's ``json`` is laxer: no NaN or Infinity,
no field twice or together with its alias, no ``4.0`` for an integer, no lone surrogates.
"""

import json
import math
from array import array
from collections.abc import Iterable, Mapping
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from aisim_gym.errors import UnsupportedError, WorkloadError
from aisim_gym.number_text import number_text
from aisim_gym.workload.json_float import parse_json_float
from aisim_gym.workload.prompt_ids import MAX_HASH_ID, PromptIds
from aisim_gym.workload.request_table import (
    DEFAULT_TRACE_BLOCK_SIZE,
    MAX_TOKENS,
    RequestTable,
    check_speedup_ratio,
    check_trace_block_size,
    table_in_arrival_order,
)
from aisim_gym.workload.trace_file import (
    TracePath,
    absolute_path,
    empty_trace_error,
    read_trace_lines,
)

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
"""Names and aliases a row may use, and the field each one fills; other names are ignored."""

_U64_MAX = 2**64 - 1
_U32_MAX = 2**32 - 1


def read_mooncake(
    path: TracePath,
    trace_block_size: int = DEFAULT_TRACE_BLOCK_SIZE,
    arrival_speedup_ratio: float = 1.0,
) -> RequestTable:
    """Read a Mooncake JSONL file (``timestamp`` and ``delay`` in ms), plain or gzip.

    Arrivals are shifted so that the earliest is 0 and then divided by ``arrival_speedup_ratio``
    (workloads.md §4.3); the rows may be in any order.

    Args:
        path: The file; ``~`` is expanded.
        trace_block_size: Tokens per hash id, >= 1.
        arrival_speedup_ratio: Finite and > 0.

    Raises:
        WorkloadError: Names the file and the line, in the reference's words where it has some.
        UnsupportedError: If the file is valid but a session in it has more than one turn.
    """
    reader = _MooncakeReader(str(absolute_path(path)), trace_block_size, arrival_speedup_ratio)
    for line, text in read_trace_lines(path):
        reader.add(line, text)
    return reader.finish()


def requests_from_mooncake_rows(
    rows: Iterable[Mapping[str, object] | str],
    trace_block_size: int = DEFAULT_TRACE_BLOCK_SIZE,
    arrival_speedup_ratio: float = 1.0,
    *,
    source: str = "<rows>",
) -> RequestTable:
    """Return the requests of rows in memory: parsed JSON objects, or lines as they are in a file.

    Otherwise like :func:`read_mooncake`; row k counts as line k + 1 of ``source``.
    """
    reader = _MooncakeReader(source, trace_block_size, arrival_speedup_ratio)
    for line, row in enumerate(rows, 1):
        if not isinstance(row, str) or row.strip():
            reader.add(line, row)
    return reader.finish()


class _FieldError(ValueError):
    """Why a line is not a Mooncake row; the caller adds file and line."""


class _JsonObject(tuple[tuple[str, object], ...]):
    """A JSON object as its (name, value) pairs, so that a repeated name is not lost."""

    __slots__ = ()


def _refuse_constant(name: str) -> NoReturn:
    raise _FieldError(f"got {name}, allowed: JSON numbers")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_JsonObject,
    parse_float=parse_json_float,
    parse_constant=_refuse_constant,
)


class _Row(NamedTuple):
    """The fields of one line, of the right types; None = absent."""

    hash_ids: list[int] | None
    input_length: int | None
    output_length: int | None
    timestamp: float | None
    delay: float | None
    session_id: str | None
    output_token_ids: list[int] | None


class _MooncakeReader:
    """Collects lines into columns; sessions are checked when all lines are there.

    The first turn of a session stands for it: ``first_turns[i]`` is the row of that turn.
    """

    def __init__(self, source: str, trace_block_size: int, arrival_speedup_ratio: float) -> None:
        check_trace_block_size(trace_block_size)
        check_speedup_ratio(arrival_speedup_ratio)
        self.source = source
        self.trace_block_size = trace_block_size
        self.ratio = arrival_speedup_ratio
        self.lines = array("q")
        self.inputs = array("q")
        self.outputs = array("q")
        self.timestamps = array("d")  # ms; NaN = absent
        self.first_turns = array("q")
        self.last_timestamps = array("d")  # at a first turn: the session's last seen; NaN = none
        self.row_of_session: dict[str, int] = {}
        self.prompts = PromptIds()

    def add(self, line: int, text: Mapping[str, object] | str) -> None:
        """Append one line, given as text or as the object in it."""
        try:
            row = _parse_row(text)
        except _FieldError as error:
            raise WorkloadError(
                f"failed to parse line {line} from {self.source} as JSON: {error}"
            ) from error
        hash_ids, input_length, output_length = self._checked_lengths(line, row)
        index = len(self.lines)
        session = f"request_{line}" if row.session_id is None else row.session_id
        first_turn = self.row_of_session.setdefault(session, index)
        timestamp = math.nan if row.timestamp is None else row.timestamp
        self.last_timestamps.append(math.nan)
        self._check_delay(line, row, session, first_turn, is_first=first_turn == index)
        if row.timestamp is not None:
            self.last_timestamps[first_turn] = timestamp
        self.lines.append(line)
        self.inputs.append(input_length)
        self.outputs.append(output_length)
        self.timestamps.append(timestamp)
        self.first_turns.append(first_turn)
        self.prompts.add(hash_ids[: -(-input_length // self.trace_block_size)])

    def finish(self) -> RequestTable:
        """Check the sessions and return the table."""
        if not self.lines:
            raise empty_trace_error(self.source)
        first_turns = np.array(self.first_turns)
        starts_ms = np.array(self.timestamps)
        is_first = first_turns == np.arange(first_turns.size)
        # NaN (a start that is missing) and infinity (an overflow) stay what they are here.
        with np.errstate(over="ignore", invalid="ignore"):
            starts_ms -= np.fmin.reduce(starts_ms[is_first])
            starts_ms /= self.ratio
        inputs = np.array(self.inputs)
        if not np.isfinite(starts_ms[is_first]).all() or not inputs.all():
            self._raise_first_problem(starts_ms, inputs, first_turns)
        if not is_first.all():
            self._refuse_second_turn(int(np.argmin(is_first)))
        return table_in_arrival_order(
            starts_ms, inputs, np.array(self.outputs), self.prompts, self.trace_block_size
        )

    def _checked_lengths(self, line: int, row: _Row) -> tuple[list[int], int, int]:
        """Return hash ids, input and output length, checked in the reference's order."""
        if row.hash_ids is None:
            raise self._row_error(line, "is missing hash_ids")
        capacity = len(row.hash_ids) * self.trace_block_size
        input_length = capacity if row.input_length is None else row.input_length
        if input_length > capacity:
            raise self._row_error(
                line, f"input_length {input_length} exceeds hash_ids capacity {capacity}"
            )
        if row.output_length is None:
            raise self._row_error(line, "is missing output_length")
        ids = row.output_token_ids
        if ids is not None and len(ids) != row.output_length:
            raise self._row_error(
                line,
                f"output_length {row.output_length} does not match "
                f"output_token_ids length {len(ids)}",
            )
        for name, length in (("input", input_length), ("output", row.output_length)):
            if length > MAX_TOKENS:
                raise self._row_error(
                    line, f"{name}_length {length} is above {MAX_TOKENS}, the most a replay counts"
                )
        return row.hash_ids, input_length, row.output_length

    def _check_delay(
        self, line: int, row: _Row, session: str, first_turn: int, *, is_first: bool
    ) -> None:
        """Check the think time before a turn (workloads.md §4.2)."""
        delay = row.delay
        if is_first:
            if delay:
                raise self._row_error(line, f"sets delay on the first turn of session {session}")
            return
        if delay is None and row.timestamp is not None:
            last_timestamp = self.last_timestamps[first_turn]
            if math.isnan(last_timestamp):
                raise self._row_error(
                    line,
                    "cannot infer delay without a previous timestamp",
                    subject=f"for session {session} ",
                )
            delay = row.timestamp - last_timestamp
        if delay is not None and not 0.0 <= delay < math.inf:
            raise self._row_error(line, f"has invalid delay {number_text(delay)}")

    def _row_error(self, line: int, problem: str, subject: str = "") -> WorkloadError:
        return WorkloadError(f"trace line {line} {subject}{problem} ({self.source})")

    def _raise_first_problem(
        self,
        starts_ms: NDArray[np.float64],
        inputs: NDArray[np.int64],
        first_turns: NDArray[np.int64],
    ) -> NoReturn:
        """Raise for the first bad session: its start comes before the lengths of its turns."""
        sessions = list(self.row_of_session)
        session, turn = -1, 0
        for index in np.argsort(first_turns, kind="stable").tolist():
            if index == first_turns[index]:
                session, turn = session + 1, 0
                start_ms = float(starts_ms[index])
                if math.isnan(self.timestamps[index]):
                    raise self._session_error(
                        index,
                        "trace mode requires first_arrival_timestamp_ms for "
                        f"session {sessions[session]}",
                    )
                if not math.isfinite(start_ms):
                    raise self._session_error(
                        index,
                        f"session {sessions[session]} has invalid "
                        f"first_arrival_timestamp_ms {number_text(start_ms)}",
                    )
            if inputs[index] == 0:
                raise self._session_error(
                    index,
                    f"session {sessions[session]} turn {turn} must have a positive input_length",
                )
            turn += 1
        raise AssertionError("called without a problem")

    def _session_error(self, index: int, problem: str) -> WorkloadError:
        return WorkloadError(f"{problem} (line {self.lines[index]} of {self.source})")

    def _refuse_second_turn(self, index: int) -> NoReturn:
        first_turn = self.first_turns[index]
        session = next(name for name, row in self.row_of_session.items() if row == first_turn)
        raise UnsupportedError(
            f"{self.source} line {self.lines[index]}: session {session} goes on after line "
            f"{self.lines[first_turn]}; multi-turn sessions are not replayed yet"
        )


def _parse_row(text: Mapping[str, object] | str) -> _Row:
    values = _fields(_json_pairs(text) if isinstance(text, str) else _as_written(text))
    _checked_text(values, "request_id")
    _checked_integer(values, "priority", -(2**31), 2**31 - 1)
    _checked_integer(values, "strict_priority", 0, _U32_MAX)
    _checked_text(values, "policy_class")
    return _Row(
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
    except _FieldError:
        raise
    except (ValueError, RecursionError) as error:
        raise _FieldError(str(error)) from error
    if not isinstance(value, _JsonObject):
        raise _FieldError(f"got {_shown(value)}, allowed: a JSON object")
    return value


def _as_written(row: Mapping[str, object]) -> Iterable[tuple[str, object]]:
    """Return the fields of a row as a reader of its JSON text would see them."""
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
            raise _FieldError(f"{name}: got {field} twice (aliases count), allowed: once")
        values[field] = value
    return values


def _checked_integer(
    values: dict[str, object], field: str, minimum: int, maximum: int
) -> int | None:
    value = values.get(field)
    if value is None or (type(value) is int and minimum <= value <= maximum):
        return value
    raise _FieldError(f"{field}: got {_shown(value)}, allowed: an integer {minimum} .. {maximum}")


def _checked_integers(values: dict[str, object], field: str, maximum: int) -> list[int] | None:
    value = values.get(field)
    if value is None:
        return None
    if not isinstance(value, list | tuple) or isinstance(value, _JsonObject):
        raise _FieldError(f"{field}: got {_shown(value)}, allowed: a list of integers")
    for item in value:
        if type(item) is not int or not 0 <= item <= maximum:
            raise _FieldError(f"{field}: got {_shown(item)}, allowed: integers 0 .. {maximum}")
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
    raise _FieldError(f"{field}: got {_shown(value)}, allowed: a finite number (ms)")


def _checked_text(values: dict[str, object], field: str) -> str | None:
    value = values.get(field)
    if value is None:
        return None
    if not isinstance(value, str):
        raise _FieldError(f"{field}: got {_shown(value)}, allowed: a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _FieldError(f"{field}: got {_shown(value)}, a lone surrogate") from error
    return value


def _shown(value: object) -> str:
    """Return ``value`` as JSON would write it, shortened."""
    if isinstance(value, _JsonObject):
        return "an object"
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else f"{text[:57]}..."
