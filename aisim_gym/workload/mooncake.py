"""Mooncake JSONL: one JSON object per line, prompts as hash ids (workloads.md §4, §5, errors §14).

Lines with the same session id are turns of one session. If every session has one turn and arrivals
are replayed as authored, the trace is a plain list of requests; else it is a table of sessions.
"""

import math
from array import array
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from aisim_gym.errors import WorkloadError
from aisim_gym.number_text import number_text
from aisim_gym.spec.workload import TimeUnit
from aisim_gym.workload.mooncake_row import FieldError, MooncakeRow, parse_row
from aisim_gym.workload.prompt_ids import PromptIds, check_trace_block_size
from aisim_gym.workload.ragged import RaggedBuilder
from aisim_gym.workload.request_table import DEFAULT_TRACE_BLOCK_SIZE, MAX_TOKENS, RequestTable
from aisim_gym.workload.speedup import check_speedup_ratio
from aisim_gym.workload.table_order import table_in_arrival_order, table_in_session_order
from aisim_gym.workload.trace_cells import ms_per_unit
from aisim_gym.workload.trace_file import (
    TracePath,
    absolute_path,
    empty_trace_error,
    read_trace_lines,
)


def read_mooncake(
    path: TracePath,
    trace_block_size: int = DEFAULT_TRACE_BLOCK_SIZE,
    arrival_speedup_ratio: float = 1.0,
    *,
    is_delta: bool = False,
    is_closed_loop: bool = False,
    time_unit: TimeUnit = "ms",
) -> RequestTable:
    """Read a Mooncake JSONL file, plain or gzip.

    Session starts are shifted so that the earliest is 0, then starts and delays are divided by
    ``arrival_speedup_ratio`` (workloads.md §4.3); the rows may be in any order. In a closed loop,
    starts may be missing, nothing is shifted or divided, and the ratio is ignored.

    Args:
        path: The file; ``~`` is expanded.
        trace_block_size: Tokens per hash id, >= 1.
        arrival_speedup_ratio: Finite and > 0.
        is_delta: Whether a later turn has only its new input (format ``mooncake-delta``).
        is_closed_loop: Whether the replay limits the active sessions instead of following the
            authored starts; the table then has sessions even if each has one turn.
        time_unit: Unit of ``timestamp`` and ``delay``.

    Raises:
        WorkloadError: Names the file and the line, with the reference's wording where it exists.
    """
    source = str(absolute_path(path))
    reader = _MooncakeReader(
        source, trace_block_size, arrival_speedup_ratio, is_delta, is_closed_loop, time_unit
    )
    for line, text in read_trace_lines(path):
        reader.add(line, text)
    return reader.finish()


def requests_from_mooncake_rows(
    rows: Iterable[Mapping[str, object] | str],
    trace_block_size: int = DEFAULT_TRACE_BLOCK_SIZE,
    arrival_speedup_ratio: float = 1.0,
    *,
    is_delta: bool = False,
    is_closed_loop: bool = False,
    source: str = "<rows>",
) -> RequestTable:
    """Return the requests of rows in memory, given as parsed JSON objects or as lines of text.

    Behaves like :func:`read_mooncake`; row k counts as line k + 1 of ``source``.
    """
    reader = _MooncakeReader(
        source, trace_block_size, arrival_speedup_ratio, is_delta, is_closed_loop
    )
    for line, row in enumerate(rows, 1):
        if not isinstance(row, str) or row.strip():
            reader.add(line, row)
    return reader.finish()


class _MooncakeReader:
    """Collects lines into columns; sessions are checked after the last line.

    Sessions are numbered by first appearance; ``last_timestamps[s]`` is the latest timestamp of
    session s, NaN if there is none.
    """

    def __init__(
        self,
        source: str,
        trace_block_size: int,
        arrival_speedup_ratio: float,
        is_delta: bool,
        is_closed_loop: bool,
        time_unit: TimeUnit = "ms",
    ) -> None:
        check_trace_block_size(trace_block_size)
        if not is_closed_loop:
            check_speedup_ratio(arrival_speedup_ratio)
        self.source = source
        self.trace_block_size = trace_block_size
        self.ratio = 1.0 if is_closed_loop else arrival_speedup_ratio
        self.is_delta = is_delta
        self.is_closed_loop = is_closed_loop
        self.ms_per_unit = ms_per_unit(time_unit)
        self.lines = array("q")
        self.inputs = array("q")
        self.outputs = array("q")
        self.timestamps = array("d")  # ms; NaN = absent
        self.delays = array("d")  # ms, 0 at first turns
        self.sessions = array("q")
        self.last_timestamps = array("d")
        self.number_of_session: dict[str, int] = {}
        self.prompts = PromptIds()
        self.output_ids = RaggedBuilder()

    def add(self, line: int, text: Mapping[str, object] | str) -> None:
        """Append one line, given as text or as the object in it."""
        try:
            row = parse_row(text)
        except FieldError as error:
            raise WorkloadError(
                f"failed to parse line {line} from {self.source} as JSON: {error}"
            ) from error
        if self.ms_per_unit != 1.0:
            row = row._replace(
                timestamp=row.timestamp and row.timestamp * self.ms_per_unit,
                delay=row.delay and row.delay * self.ms_per_unit,
            )
        hash_ids, input_length, output_length = self._checked_lengths(line, row)
        self.sessions.append(self._add_turn(line, row))
        self.lines.append(line)
        self.inputs.append(input_length)
        self.outputs.append(output_length)
        self.timestamps.append(math.nan if row.timestamp is None else row.timestamp)
        self.prompts.add(hash_ids, -(-input_length // self.trace_block_size))
        self.output_ids.append(row.output_token_ids or ())

    def finish(self) -> RequestTable:
        """Check the sessions and return the table."""
        if not self.lines:
            raise empty_trace_error(self.source)
        sessions, inputs = np.array(self.sessions), np.array(self.inputs)
        is_first = np.diff(np.maximum.accumulate(sessions), prepend=-1) > 0
        starts_ms, delays_ms = np.array(self.timestamps), np.array(self.delays)
        # NaN (a missing start) and infinity (an overflow) are kept.
        with np.errstate(over="ignore", invalid="ignore"):
            if not self.is_closed_loop:
                starts_ms -= np.fmin.reduce(starts_ms[is_first])
            starts_ms /= self.ratio
            delays_ms /= self.ratio
        self._check_sessions(starts_ms, delays_ms, inputs, is_first)
        prompts, outputs = self.prompts.build(), self.output_ids.build()
        planned = np.array(self.outputs)
        if is_first.all() and not self.is_closed_loop:
            return table_in_arrival_order(
                starts_ms, inputs, planned, prompts, self.trace_block_size, outputs
            )
        table = table_in_session_order(
            sessions,
            tuple(self.number_of_session),
            starts_ms,
            delays_ms,
            inputs,
            planned,
            prompts,
            self.trace_block_size,
            outputs,
            is_delta=self.is_delta,
        )
        self._check_whole_prompts(table)
        return table

    def _add_turn(self, line: int, row: MooncakeRow) -> int:
        """Append the think time before a turn (workloads.md §4.2); return its session."""
        name = f"request_{line}" if row.session_id is None else row.session_id
        is_first = name not in self.number_of_session
        session = self.number_of_session.setdefault(name, len(self.number_of_session))
        delay = row.delay
        if is_first:
            if delay:
                raise self._row_error(line, f"sets delay on the first turn of session {name}")
            self.last_timestamps.append(math.nan)
        elif delay is None and row.timestamp is not None:
            last_timestamp = self.last_timestamps[session]
            if math.isnan(last_timestamp):
                raise self._row_error(
                    line,
                    "cannot infer delay without a previous timestamp",
                    subject=f"for session {name} ",
                )
            delay = row.timestamp - last_timestamp
        if delay is not None and not 0.0 <= delay < math.inf:
            raise self._row_error(line, f"has invalid delay {number_text(delay)}")
        if row.timestamp is not None:
            self.last_timestamps[session] = row.timestamp
        self.delays.append(delay or 0.0)
        return session

    def _checked_lengths(self, line: int, row: MooncakeRow) -> tuple[list[int], int, int]:
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

    def _row_error(self, line: int, problem: str, subject: str = "") -> WorkloadError:
        return WorkloadError(f"trace line {line} {subject}{problem} ({self.source})")

    def _check_sessions(
        self,
        starts_ms: NDArray[np.float64],
        delays_ms: NDArray[np.float64],
        inputs: NDArray[np.int64],
        is_first: NDArray[np.bool_],
    ) -> None:
        """Check starts, lengths and delays; report the first invalid session."""
        starts_ms = starts_ms[is_first]
        good_starts = (starts_ms >= 0.0) & np.isfinite(starts_ms)
        if self.is_closed_loop:
            good_starts |= np.isnan(starts_ms)
        if good_starts.all() and inputs.all() and np.isfinite(delays_ms).all():
            return
        names = list(self.number_of_session)
        session, turn = -1, 0
        # Within a session: the start first, then the length and the delay of each turn.
        for index in np.argsort(self.sessions, kind="stable").tolist():
            turn += 1
            if is_first[index]:
                session, turn = session + 1, 0
                if not good_starts[session]:
                    raise self._start_error(index, names[session], float(starts_ms[session]))
            if inputs[index] == 0:
                raise self._session_error(
                    index,
                    f"session {names[session]} turn {turn} must have a positive input_length",
                )
            if not np.isfinite(delays_ms[index]):
                raise self._session_error(
                    index,
                    f"session {names[session]} turn {turn} has invalid delay "
                    f"{number_text(float(delays_ms[index]))}",
                )

    def _start_error(self, index: int, name: str, start_ms: float) -> WorkloadError:
        if math.isnan(start_ms):
            return self._session_error(
                index, f"trace mode requires first_arrival_timestamp_ms for session {name}"
            )
        return self._session_error(
            index,
            f"session {name} has invalid first_arrival_timestamp_ms {number_text(start_ms)}",
        )

    def _check_whole_prompts(self, table: RequestTable) -> None:
        """Raise WorkloadError if the whole prompt of a delta turn exceeds the maximum length."""
        if table.input_tokens.max() <= MAX_TOKENS:
            return
        index = int(np.argmax(table.input_tokens > MAX_TOKENS))
        name = table.session_ids[table.session_of()[index]]
        raise self._session_error(
            int(table.row[index]),
            f"session {name} turn {table.turn_of()[index]}: its whole prompt of "
            f"{table.input_tokens[index]} tokens is above {MAX_TOKENS}, the most a replay counts",
        )

    def _session_error(self, index: int, problem: str) -> WorkloadError:
        return WorkloadError(f"{problem} (line {self.lines[index]} of {self.source})")
