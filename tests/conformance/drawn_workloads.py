"""Random trace rows for runs against the reference (Hypothesis)."""

from typing import Any

from conformance.drawn_engines import is_kept, seldom
from hypothesis import strategies as st

Row = dict[str, Any]


@st.composite
def workloads(
    draw: st.DrawFn,
    block_size: int,
    longest: tuple[int, int],
    *,
    is_busy: bool,
    has_sessions: bool,
    is_closed_loop: bool,
) -> dict[str, Any]:
    """Draw the workload of a scenario.

    Args:
        draw: Hypothesis.
        block_size: The engines'; that of the trace may be another one.
        longest: Most input and output tokens.
        is_busy: Whether there are many requests.
        has_sessions: Whether some rows are turns of sessions.
        is_closed_loop: Whether rows need not say when they arrive.
    """
    longest_input, longest_output = longest
    trace_block_size = draw(st.sampled_from([block_size, block_size, 2, 3, 4, 8, 10]))
    count = draw(st.sampled_from([20, 10, 40, 80] if is_busy else [2, 1, 5, 10, 20]))
    arrivals = draw(_arrivals(count, is_busy=is_busy, in_order=has_sessions))
    if is_closed_loop:  # the reference refuses times before 0 then
        arrivals = [max(at_ms, 0.0) for at_ms in arrivals]
    texts = _Texts(draw, trace_block_size)
    rows: list[Row] = [
        {
            "timestamp": at_ms,
            **texts.draw_request(
                draw(_input_lengths(block_size, longest_input)),
                draw(_output_lengths(longest_output)),
            ),
        }
        for at_ms in arrivals
    ]
    rows = [rows[0], *(row for row in rows[1:] if is_kept(draw))]
    if has_sessions:
        _join_turns(draw, rows)
    else:
        rows = _repeated(rows, draw(st.sampled_from([1, 1, 1, 1, 2, 5])))
    if is_closed_loop and draw(st.booleans()):
        for row in rows:
            row.pop("timestamp", None)
    return {"block_size": trace_block_size, "rows": rows}


@st.composite
def _arrivals(draw: st.DrawFn, count: int, *, is_busy: bool, in_order: bool) -> list[float]:
    gap_ms = draw(st.sampled_from([5.0, 0.0, 1.0, 3.0, 20.0] + [100.0, 800.0] * (not is_busy)))
    whole = draw(st.booleans())
    at_ms = draw(st.sampled_from([0.0, 0.0, -20.5, 1e6]))
    arrivals = []
    for _ in range(count):
        at_ms += gap_ms * draw(st.sampled_from([1.0, 0.0, 0.0, 0.25, 0.731, 1.618, 3.3]))
        if whole:
            at_ms = float(round(at_ms))
        early_ms = 0.0 if in_order else draw(st.sampled_from([0.0, 0.0, 0.0, 3.0]))
        arrivals.append(at_ms - early_ms)
    return arrivals


def _input_lengths(block_size: int, longest: int) -> st.SearchStrategy[int]:
    round_lengths = [1, 2, block_size, block_size + 1, 2 * block_size, 3 * block_size]
    return st.one_of(
        st.sampled_from([min(length, longest) for length in round_lengths]),
        st.integers(1, longest),
        st.integers(1, max(1, longest // 3)),
    )


def _output_lengths(longest: int) -> st.SearchStrategy[int]:
    return st.one_of(
        st.sampled_from([2, 0, 1, 1, 3, 5]),
        st.integers(1, longest),
        st.integers(1, max(1, longest // 3)),
    )


class _Texts:
    """Draws hash ids, by one of these rules.

    * ``none``: all different.
    * ``beginnings``: a common beginning of any length, then different.
    * ``kinds``: few ids, repeated within a prompt too.
    * ``continuations``: a prompt may begin with an earlier prompt and its output, in whole blocks.
    """

    def __init__(self, draw: st.DrawFn, trace_block_size: int) -> None:
        self.draw = draw
        self.trace_block_size = trace_block_size
        self.rule = draw(
            st.sampled_from(["none", "beginnings", "beginnings", "kinds", "continuations"])
        )
        self.num_groups = draw(st.sampled_from([1, 2, 3, 20]))
        self.next_id = 1_000_000
        self.token_of_id: dict[int, int] = {}  # the reference numbers ids as they appear
        self.texts: list[list[int]] = [[]]

    def draw_request(self, input_tokens: int, output_tokens: int) -> Row:
        """Draw what a request reads, and what it writes if that is known."""
        count = -(-input_tokens // self.trace_block_size)
        if self.rule == "continuations":
            return self._draw_continuation(count, output_tokens)
        return {
            "input_length": input_tokens,
            "output_length": output_tokens,
            "hash_ids": self._draw_ids(count),
        }

    def _draw_ids(self, count: int) -> list[int]:
        if self.rule == "kinds":
            kind = 1000 * self.draw(st.integers(0, self.num_groups))
            common = self.draw(st.integers(0, 6))
            return [kind + max(0, index - common) for index in range(count)]
        common = self.draw(st.integers(0, count)) if self.rule == "beginnings" else 0
        group = 1000 * self.draw(st.integers(0, self.num_groups - 1)) if common else 0
        return [*range(group, group + common), *self._own_ids(count - common)]

    def _draw_continuation(self, count: int, output_tokens: int) -> Row:
        ids = self.draw(st.sampled_from(self.texts))[:count]
        ids = [*ids, *self._own_ids(count - len(ids))]
        for block in ids:
            self.token_of_id.setdefault(block, len(self.token_of_id))
        written = self.draw(st.sampled_from(ids))
        self.texts.append([*ids, *[written] * (output_tokens // self.trace_block_size)])
        return {
            "input_length": count * self.trace_block_size,
            "output_length": output_tokens,
            "output_token_ids": [self.token_of_id[written]] * output_tokens,
            "hash_ids": ids,
        }

    def _own_ids(self, count: int) -> list[int]:
        first, self.next_id = self.next_id, self.next_id + count
        return list(range(first, self.next_id))


def _repeated(rows: list[Row], times: int) -> list[Row]:
    """Return a longer workload; prompts repeat, too."""
    times_ms = [row["timestamp"] for row in rows]
    period_ms = max(times_ms) - min(times_ms) + 1.0
    return [
        {**row, "timestamp": row["timestamp"] + period_ms * index}
        for index in range(times)
        for row in rows
    ]


def _join_turns(draw: st.DrawFn, rows: list[Row]) -> None:
    """Make some rows turns of a few sessions; rows are in order of time."""
    num_sessions = draw(st.sampled_from([2, 1, 5, 20]))
    seen: set[str] = set()
    for row in rows:
        session = draw(st.integers(-1, num_sessions - 1))
        if session < 0:
            continue
        row["session_id"] = name = f"s{session}"
        if name not in seen:
            seen.add(name)
            row |= draw(st.sampled_from([{}, {"delay": 0.0}]))
            continue
        delay_ms = draw(st.sampled_from([0.0, None, None, 1.0, 7.5, 40.0, 333.3]))
        if delay_ms is not None:
            row["delay"] = delay_ms
        if seldom(draw, 15):  # without a delay either, the turn follows at once
            del row["timestamp"]
