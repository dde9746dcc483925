"""Records per request in the reference's format (replay-runtime.md §15.6).

Keys that no run of this package can fill are always null: dispatch times, router queue times,
overlap blocks.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.tables import NONE
from aisim_gym.fleet.tables import DECODE, PREFILL
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.metrics.request_times import REQUEST_OPEN, STATUS_NAMES
from aisim_gym.report.request_ids import request_numbers, request_uuid

HISTORIES = ("routing_history", "admission_history", "pressure_record_ordinals")
"""Columns whose values are lists; only in full records."""

_POOL_NAMES = ("prefill", "decode", "agg")
"""Indexed by ``POOL_PREFILL``, ``POOL_DECODE``, ``POOL_AGGREGATED``."""


class RequestRecords:
    """One record per ended request, sorted by arrival, then by id.

    A record is a dict with the reference's keys; times are in ms, lengths in tokens, and None means
    never. ``prefill_worker_idx`` and ``decode_worker_idx`` are scheduler ids. An encoder adds
    ``encoder_ready_ms``, tokenization adds ``tokenized_ms``. Columns are built on first access.

    Example:
        >>> from aisim_gym import Replay, requests_from_arrays, summarize
        >>> replay = Replay({"fleet": {"kind": "agg"}}, requests_from_arrays([0.0], [100], [3]))
        >>> replay.advance_to_tick()
        >>> records = summarize(replay).per_request
        >>> records[0]["output_length"], records.columns["terminal_status"]
        (3, ['completed'])

    Attributes:
        row: Shape (records,), int64: index of each request in its source.
    """

    row: NDArray[np.int64]

    def __init__(self, state: WorldState, session_ids: Sequence[str] = ()) -> None:
        """Copy the ended requests from ``state``, which may continue to change.

        Args:
            state: Tables of the run.
            session_ids: Names of its sessions.
        """
        requests = np.asarray(state.world.requests)
        ended = np.flatnonzero(requests["status"] != REQUEST_OPEN)
        numbers = request_numbers(state)
        ended = ended[np.lexsort((numbers[ended], requests["arrival_ms"][ended]))]
        self._numbers = numbers[ended]
        self._session_ids = session_ids
        self._turns = np.zeros(0, np.int64)
        if len(state.world.sessions):
            self._turns = ended - state.world.sessions["first"][requests["session"][ended]]
        self.row = requests["source_index"][ended]
        self._requests = requests[ended]
        self._indices = ended
        self._num_requests = len(requests)
        self._admissions = np.asarray(state.world.admissions)[
            : state.world.clock.admission_count
        ].copy()
        self._dp_sizes = [
            int(state.world.engines[pool_id].dp_size) for pool_id in (PREFILL, DECODE)
        ]
        self._is_disaggregated = bool(state.world.options.is_disaggregated)
        self._reserves_first = bool(state.world.options.reserves_first)
        self._stage_times_ms: dict[str, NDArray[np.float64]] = {}
        if state.world.encoder.num_instances > 0:
            self._stage_times_ms["encoder_ready_ms"] = state.world.stage_times["encoder_ready_ms"][
                ended
            ]
        if state.world.server_stages[PREFILL].num_servers > 0:
            self._stage_times_ms["tokenized_ms"] = state.world.stage_times["tokenized_ms"][ended]

    def __len__(self) -> int:
        """Return the number of records."""
        return self.row.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return one record."""
        return {name: values[index] for name, values in self.columns.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the records in order."""
        names = tuple(self.columns)
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(names, values, strict=True))

    @cached_property
    def columns(self) -> dict[str, list[Any]]:
        """Lists of equal length by key, in the order of a record's keys."""
        requests = self._requests
        admissions = requests["prefill_admissions"] + requests["decode_admissions"]
        pools_used = (requests["prefill_admissions"] > 0).astype(np.int64)
        pools_used += requests["decode_admissions"] > 0
        first_ms, last_ms = requests["first_token_ms"], requests["last_token_ms"]
        gaps = np.where(requests["emitted_tokens"] > 1, requests["emitted_tokens"] - 1.0, np.nan)
        return {
            "session_id": self._sessions(),
            "turn_index": self._turns.tolist() if self._session_ids else self._nulls(),
            "uuid": [request_uuid(number) for number in self._numbers.tolist()],
            "arrival_time_ms": requests["arrival_ms"].tolist(),
            "dispatched_at_ms": self._nulls(),
            "first_admit_ms": _times(requests["first_admit_ms"]),
            "terminal_time_ms": _times(requests["terminal_ms"]),
            "first_token_ms": _times(first_ms),
            "last_token_ms": _times(last_ms),
            "ttft_ms": _spans(first_ms - requests["arrival_ms"]),
            "ttst_ms": _spans(requests["second_token_ms"] - first_ms),
            "e2e_latency_ms": _spans(last_ms - requests["arrival_ms"]),
            "itl_ms": _spans((last_ms - first_ms) / gaps),
            "input_length": requests["input_tokens"].tolist(),
            "requested_output_length": requests["output_tokens"].tolist(),
            "output_length": requests["emitted_tokens"].tolist(),
            "reused_input_tokens": requests["most_reused_tokens"].tolist(),
            "prefill_worker_idx": _ids(requests["prefill_scheduler"]),
            "decode_worker_idx": _ids(requests["decode_scheduler"]),
            **{name: _times(times_ms) for name, times_ms in self._stage_times_ms.items()},
            "prefill_admit_ms": _times(requests["prefill_admit_ms"]),
            "source_held_ms": _times(requests["source_held_ms"]),
            "destination_reserved_ms": _times(requests["destination_reserved_ms"]),
            "destination_activated_ms": _times(requests["destination_activated_ms"]),
            "decode_admit_ms": _times(requests["decode_admit_ms"]),
            "source_released_ms": _times(requests["source_released_ms"]),
            "decode_reused_input_tokens": _ids(requests["decode_reused_tokens"]),
            "prefill_route_overlap_tokens": _zero_if_known(requests["prefill_scheduler"]),
            "decode_route_overlap_tokens": _zero_if_known(requests["decode_route"]),
            "routing_history": self._routing_histories(),
            "admission_history": self._admission_histories(),
            "admission_count": admissions.tolist(),
            "readmission_count": (admissions - pools_used).tolist(),
            "pressure_record_ordinals": [[] for _ in range(len(self))],
            "terminal_status": [STATUS_NAMES[status] for status in requests["status"].tolist()],
        }

    @property
    def flat_columns(self) -> dict[str, list[Any]]:
        """The columns without list values, for tables."""
        return {name: values for name, values in self.columns.items() if name not in HISTORIES}

    def _sessions(self) -> list[str] | list[None]:
        if not self._session_ids:
            return self._nulls()
        sessions: list[int] = self._requests["session"].tolist()
        return [self._session_ids[session] for session in sessions]

    def _nulls(self) -> list[None]:
        return [None] * len(self)

    def _routing_histories(self) -> list[list[dict[str, Any]]]:
        """Return one placement per pool, as round robin places requests immediately."""
        if not self._is_disaggregated:
            schedulers = self._requests["decode_scheduler"].tolist()
            dp_size = self._dp_sizes[DECODE]
            return [_routes("agg", scheduler, dp_size) for scheduler in schedulers]
        histories = []
        for prefill, decode in zip(
            self._requests["prefill_scheduler"].tolist(),
            self._requests["decode_route"].tolist(),
            strict=True,
        ):
            routes = [
                _routes("prefill", prefill, self._dp_sizes[PREFILL]),
                _routes("decode", decode, self._dp_sizes[DECODE]),
            ]
            first, second = reversed(routes) if self._reserves_first else routes
            histories.append(first + second)
        return histories

    def _admission_histories(self) -> list[list[dict[str, Any]]]:
        position_of = np.full(self._num_requests, NONE)
        position_of[self._indices] = np.arange(len(self))
        histories: list[list[dict[str, Any]]] = [[] for _ in range(len(self))]
        per_pool: dict[tuple[int, int], int] = {}
        log = self._admissions
        for position, pool, at_ms, reused_tokens in zip(
            position_of[log["request"]].tolist(),
            log["pool"].tolist(),
            log["at_ms"].tolist(),
            log["reused_tokens"].tolist(),
            strict=True,
        ):
            if position == NONE:  # still open
                continue
            pool_ordinal = per_pool.get((position, pool), 0)
            per_pool[position, pool] = pool_ordinal + 1
            histories[position].append(
                {
                    "admission_ordinal": len(histories[position]),
                    "pool_admission_ordinal": pool_ordinal,
                    "pool": _POOL_NAMES[pool],
                    "at_ms": at_ms,
                    "reused_input_tokens": reused_tokens,
                    "is_readmission": pool_ordinal > 0,
                }
            )
        return histories


def _routes(pool: str, scheduler_id: int, dp_size: int) -> list[dict[str, Any]]:
    if scheduler_id == NONE:
        return []
    worker_id, dp_rank = divmod(scheduler_id, dp_size)
    return [
        {
            "pool": pool,
            "outcome": "immediate",
            "queue_entered_at_ms": None,
            "released_at_ms": None,
            "queue_wait_ms": 0.0,
            "logical_worker_id": worker_id,
            "scheduler_id": scheduler_id,
            "dp_rank": dp_rank,
            "reported_overlap_tokens": 0,
            "selected_overlap_blocks": None,
            "best_available_overlap_blocks": None,
            "overlap_regret_blocks": None,
            "placement_replica_id": None,
        }
    ]


def _times(values_ms: NDArray[np.float64]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values_ms.tolist()]


def _spans(values_ms: NDArray[np.float64]) -> list[float | None]:
    return _times(np.maximum(values_ms, 0.0))


def _ids(values: NDArray[np.int32]) -> list[int | None]:
    return [None if value == NONE else value for value in values.tolist()]


def _zero_if_known(values: NDArray[np.int32]) -> list[int | None]:
    return [None if value == NONE else 0 for value in values.tolist()]
