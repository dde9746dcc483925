"""The request table, the input of every replay.

Rules: workloads.md §2 (fields), §3 (hash ids), §4.4 (lists and sessions), §5 (delta prompts).
"""

from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from aisim_gym.number_text import number_text
from aisim_gym.workload.ragged import Ragged

DEFAULT_TRACE_BLOCK_SIZE = 512
"""Default number of tokens per hash id."""

MAX_TOKENS = 2**31 - 1
"""Maximum prompt or output of one request, limited by the replay's tables."""

_NOT_COLUMNS = frozenset({"trace_block_size", "session_ids", "is_delta"})


def _no_integers() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


def _no_floats() -> NDArray[np.float64]:
    return np.empty(0, np.float64)


@dataclass(frozen=True, eq=False, repr=False)
class RequestTable:
    """Requests as read-only columns: a plain list, or sessions of consecutive turns.

    A **list** is in order of arrival. **Sessions** are contiguous, each with its turns in order.
    Only the first turn has an arrival; each later turn arrives ``delay_ms`` after the previous one
    ends. The table does not limit the number of active requests or sessions.

    The columns are copies: arguments are neither kept nor modified. Build a table with
    :func:`requests_from_arrays`, a reader or a generator, which check their input; this class does
    not.

    Attributes:
        row: Shape (requests,), int64: index of the request in its source, from 0.
        arrival_ms: Shape (requests,), float64. List: ascending; equal arrivals keep the source's
            order. Sessions: the start of the session at its first turn, in any order, NaN if it has
            none; NaN at later turns.
        input_tokens: Shape (requests,), int64, >= 1: the whole prompt. With ``is_delta`` it holds
            the prompts and outputs of the session's earlier turns, every planned output token
            counted.
        output_tokens: Shape (requests,), int64, >= 0.
        prompt_ids: Interned hash ids of all prompts, concatenated, int64.
        prompt_starts: Shape (requests + 1,), int64: ``prompt_ids[prompt_starts[i]: prompt_starts[i
            + 1]]`` are the trace blocks of prompt i, or of its ``new_input_tokens``; tokens beyond
            them are unique.
        trace_block_size: Tokens per hash id.
        session_starts: Shape (sessions + 1,), int64: session s has the rows ``session_starts[s]``
            to ``session_starts[s + 1]``, exclusive. Empty in a list.
        delay_ms: Shape (requests,), float64: think time before the turn, 0 before a first one.
            Empty in a list.
        session_ids: Names of the sessions; none in a list.
        is_delta: Whether the prompt of a turn continues everything before it in its session.
        output_ids: Tokens of all outputs whose content the source gives, int64.
        output_starts: Shape (requests + 1,), int64, offsets into ``output_ids``: request i has
            ``output_tokens[i]`` there, or none if its content is not given. Empty if no request
            has any.
    """

    row: NDArray[np.int64]
    arrival_ms: NDArray[np.float64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    prompt_ids: NDArray[np.int64]
    prompt_starts: NDArray[np.int64]
    trace_block_size: int = DEFAULT_TRACE_BLOCK_SIZE
    session_starts: NDArray[np.int64] = field(default_factory=_no_integers)
    delay_ms: NDArray[np.float64] = field(default_factory=_no_floats)
    session_ids: tuple[str, ...] = ()
    is_delta: bool = False
    output_ids: NDArray[np.int64] = field(default_factory=_no_integers)
    output_starts: NDArray[np.int64] = field(default_factory=_no_integers)

    def __post_init__(self) -> None:
        """Copy every column and make it read-only."""
        for column in fields(self):
            if column.name not in _NOT_COLUMNS:
                dtype = np.float64 if column.name.endswith("_ms") else np.int64
                values = np.array(getattr(self, column.name), dtype=dtype)
                values.setflags(write=False)
                object.__setattr__(self, column.name, values)

    def __len__(self) -> int:
        """Return the number of requests."""
        return self.arrival_ms.size

    def __repr__(self) -> str:
        """Return counts, duration, mean rate and mean lengths."""
        if len(self) == 0:
            return "RequestTable(0 requests)"
        return (
            f"RequestTable({len(self)} requests {self._pace_text()}, "
            f"mean input {self.input_tokens.mean():.1f} tokens, "
            f"mean output {self.output_tokens.mean():.1f} tokens)"
        )

    @property
    def has_sessions(self) -> bool:
        """Whether the requests are turns of sessions, not a plain list."""
        return self.session_starts.size > 0

    @property
    def num_sessions(self) -> int:
        """Number of sessions, 0 for a list."""
        return len(self.session_ids)

    @property
    def start_ms(self) -> NDArray[np.float64]:
        """Arrivals of a list; starts of sessions, NaN for a session without one."""
        return self.arrival_ms[self.session_starts[:-1]] if self.has_sessions else self.arrival_ms

    @property
    def duration_s(self) -> float:
        """Seconds from the first to the last arrival, or session start if known."""
        starts_ms = self.start_ms[np.isfinite(self.start_ms)]
        return float(starts_ms.max() - starts_ms.min()) / 1000.0 if starts_ms.size else 0.0

    @property
    def mean_rate_rps(self) -> float | None:
        """Requests of a list, or session starts, per second over the duration.

        None if all arrive at one instant or a session has no start.
        """
        duration_s = self.duration_s
        if duration_s == 0.0 or np.isnan(self.start_ms).any():
            return None
        return self.start_ms.size / duration_s

    def session_of(self) -> NDArray[np.int64]:
        """Return the session of each request, -1 in a list."""
        if not self.has_sessions:
            return np.full(len(self), -1, np.int64)
        return np.repeat(np.arange(self.num_sessions), np.diff(self.session_starts))

    def turn_of(self) -> NDArray[np.int64]:
        """Return the turn index of each request in its session, -1 in a list."""
        if not self.has_sessions:
            return np.full(len(self), -1, np.int64)
        return np.arange(len(self)) - self.session_starts[:-1][self.session_of()]

    def new_input_tokens(self) -> NDArray[np.int64]:
        """Return the new input tokens of each request, without the history of a delta turn."""
        new_tokens = self.input_tokens.copy()
        if self.is_delta:
            follow_up = np.flatnonzero(self.turn_of() > 0)
            earlier = follow_up - 1
            new_tokens[follow_up] -= self.input_tokens[earlier] + self.output_tokens[earlier]
        return new_tokens

    def between(self, start_ms: float, end_ms: float) -> "RequestTable":
        """Return the requests with ``start_ms <= arrival_ms < end_ms``, in time since the start.

        A session is selected with all its turns if it starts in the interval. Rows and hash ids are
        unchanged.

        Raises:
            ValueError: If ``start_ms`` is not finite or ``end_ms`` is less (or NaN), or if a
                session has no start.
        """
        if not (np.isfinite(start_ms) and start_ms <= end_ms):
            raise ValueError(
                f"between: got start_ms {number_text(start_ms)} and end_ms {number_text(end_ms)}, "
                "allowed: a finite start and an end that is not before it"
            )
        if not self.has_sessions:
            first, last = np.searchsorted(self.arrival_ms, [start_ms, end_ms], side="left")
            return self.take(np.arange(first, last), start_ms)
        startless = np.isnan(self.start_ms)
        if startless.any():
            name = self.session_ids[int(np.argmax(startless))]
            raise ValueError(f"between: session {name} has no start")
        inside = (self.start_ms >= start_ms) & (self.start_ms < end_ms)
        return self.take(np.flatnonzero(inside[self.session_of()]), start_ms)

    def head(self, count: int) -> "RequestTable":
        """Return the first ``count`` requests (fewer if the table is shorter).

        Sessions are taken in the table's order; the last one may lose its later turns.

        Raises:
            ValueError: If ``count`` is negative.
        """
        if count < 0:
            raise ValueError(f"head: got count {count}, allowed: an integer >= 0")
        return self.take(np.arange(min(count, len(self))), 0.0)

    def take(self, rows: NDArray[np.int64], origin_ms: float = 0.0) -> "RequestTable":
        """Return the given rows, ascending, with times relative to ``origin_ms``.

        Rows must include none or the first turns of a session. Hash ids are unchanged.
        """
        prompts = Ragged(self.prompt_ids, self.prompt_starts).take(rows)
        outputs = Ragged(self.output_ids, self.output_starts)
        if outputs.starts.size:
            outputs = outputs.take(rows)
        session_starts, session_ids = self.session_starts, self.session_ids
        if self.has_sessions:
            firsts = np.flatnonzero(self.turn_of()[rows] == 0)
            session_starts = np.append(firsts, rows.size)
            kept = self.session_of()[rows[firsts]].tolist()
            session_ids = tuple(self.session_ids[session] for session in kept)
        return RequestTable(
            row=self.row[rows],
            arrival_ms=self.arrival_ms[rows] - origin_ms,
            input_tokens=self.input_tokens[rows],
            output_tokens=self.output_tokens[rows],
            prompt_ids=prompts.flat,
            prompt_starts=prompts.starts,
            trace_block_size=self.trace_block_size,
            session_starts=session_starts,
            delay_ms=self.delay_ms[rows] if self.has_sessions else self.delay_ms,
            session_ids=session_ids,
            is_delta=self.is_delta,
            output_ids=outputs.flat,
            output_starts=outputs.starts,
        )

    def _pace_text(self) -> str:
        what = f"in {self.num_sessions} sessions" if self.has_sessions else ""
        if np.isnan(self.start_ms).any():
            return f"{what} without start times"
        rate = self.mean_rate_rps
        unit = "sessions/s" if self.has_sessions else "req/s"
        rate_text = "all at once" if rate is None else f"{rate:.4g} {unit}"
        return f"{what} over {self.duration_s:.3f} s, {rate_text}".lstrip()
