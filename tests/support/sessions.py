"""Workloads of sessions for small fleets, and what came of their turns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

from support.fleets import BLOCK_SIZE, SmallRun, run_small

from aisim_gym.spec import ReplaySpec
from aisim_gym.workload import RequestTable, requests_from_mooncake_rows

Turn = Mapping[str, Any]
"""A Mooncake row."""


def turn(
    session: str,
    input_tokens: int = 4,
    output_tokens: int = 1,
    hash_ids: Iterable[int] | None = None,
    **fields: float,
) -> Turn:
    """Return a turn of a session; its prompt shares nothing unless it has hash ids.

    Args:
        session: Name of the session.
        input_tokens: Its prompt, or what it adds to it.
        output_tokens: Its output.
        hash_ids: One per block of 4 tokens.
        fields: ``timestamp`` and ``delay``, ms.
    """
    blocks = -(-input_tokens // BLOCK_SIZE)
    if hash_ids is None:
        first = crc32(repr((session, input_tokens, fields)).encode()) * 1000
        hash_ids = range(first, first + blocks)
    return {
        "session_id": session,
        "input_length": input_tokens,
        "output_length": output_tokens,
        "hash_ids": list(hash_ids),
        **fields,
    }


def run_turns(
    spec: ReplaySpec, turns: Sequence[Turn], *, is_delta: bool = False, ratio: float = 1.0
) -> SmallRun:
    """Run sessions on a fleet; they form a closed loop if the spec says so."""
    return run_small(spec, session_table(spec, turns, is_delta=is_delta, ratio=ratio))


def session_table(
    spec: ReplaySpec, turns: Sequence[Turn], *, is_delta: bool = False, ratio: float = 1.0
) -> RequestTable:
    """Return the workload of :func:`run_turns`."""
    return requests_from_mooncake_rows(
        turns,
        BLOCK_SIZE,
        ratio,
        is_delta=is_delta,
        is_closed_loop=spec.workload.is_closed_loop,
    )


def by_turn(run: SmallRun, name: str) -> dict[str, list[Any]]:
    """Return a column of the records per session, in order of its turns."""
    found: dict[str, list[tuple[int, Any]]] = {}
    columns = (run.column("session_id"), run.column("turn_index"), run.column(name))
    for session, turn_index, value in zip(*columns, strict=True):
        found.setdefault(session, []).append((turn_index, value))
    for session, entries in found.items():
        entries.sort(key=lambda entry: entry[0])
        assert [turn_index for turn_index, _ in entries] == list(range(len(entries))), session
    return {session: [value for _, value in found[session]] for session in sorted(found)}
