"""Every pass and every token of a small run, seen by settling one instant at a time.

A planner sees only the latest pass of a rank; here the tables are read after each instant. Of
several passes of one rank that end at one instant, the last is logged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from aisim_gym.fleet.tables import PREFILL
from aisim_gym.replay import Replay, StepEnd
from aisim_gym.report import summarize
from aisim_gym.spec import ReplaySpec
from aisim_gym.workload import RequestTable, requests_from_arrays

NEVER_MS = 1e15
"""A tick so late that it never comes, armed because metrics are collected only with ticks."""

Row = tuple[float, int, int, Sequence[int]]
"""Arrival in ms, input tokens, output tokens, hash ids."""

Span = tuple[float, float, Sequence[float]]
"""Start and end of a pass in ms, and its metrics without trailing zeros, in the order of
engine-vllm-trtllm.md §15."""


def trace(*rows: Row, block_size: int = 4) -> RequestTable:
    """Return requests whose prompt blocks of ``block_size`` tokens are named by hash ids."""
    at_ms, inputs, outputs, hash_ids = zip(*rows, strict=True)
    return requests_from_arrays(at_ms, inputs, outputs, hash_ids, trace_block_size=block_size)


class LoggedPass(NamedTuple):
    """A finished pass of one rank."""

    pool: str
    worker_id: int
    dp_rank: int
    end_ms: float
    wall_s: float
    metrics: tuple[float, ...]


@dataclass(frozen=True)
class PassLog:
    """What a run did.

    Attributes:
        passes: In order of their ends.
        tokens: When each request's tokens came, by row.
        columns: The records per request, by row.
    """

    passes: list[LoggedPass]
    tokens: list[list[float]]
    columns: dict[str, list[Any]]

    def admissions(self) -> list[list[tuple[float, int]]]:
        """Return (time, reused tokens) of each admission of each request."""
        return [
            [(entry["at_ms"], entry["reused_input_tokens"]) for entry in history]
            for history in self.columns["admission_history"]
        ]

    def check_passes(
        self, spans: Sequence[Span], pool: str = "agg", worker_id: int = 0, dp_rank: int = 0
    ) -> None:
        """Assert that one rank ran exactly these passes."""
        ours = [
            entry for entry in self.passes if entry[:3] == (pool, worker_id, dp_rank)
        ]  # a group pass logs its idle ranks too
        assert [entry.end_ms for entry in ours] == [end for _, end, _ in spans]
        assert [entry.wall_s for entry in ours] == [
            pytest.approx((end - start) / 1000.0, rel=1e-12) for start, end, _ in spans
        ]
        for entry, (start, end, metrics) in zip(ours, spans, strict=True):
            padded = [*metrics, *[0.0] * (13 - len(metrics))]
            assert list(entry.metrics) == pytest.approx(padded, rel=1e-9), f"{start} -> {end}"


def log_passes(spec: ReplaySpec, requests: RequestTable) -> PassLog:
    """Run a workload that ends, without scaling."""
    replay = Replay(spec, requests, initial_tick_ms=NEVER_MS)
    passes: list[LoggedPass] = []
    tokens: list[list[float]] = [[] for _ in range(len(requests))]
    emitted = np.zeros(len(requests), np.int64)
    outcome = StepEnd.SETTLED
    while outcome is not StepEnd.COMPLETE:
        outcome = replay.step()
        passes += _ended_passes(replay)
        now_emitted = replay.state.world.requests["emitted_tokens"].astype(np.int64)
        for request in np.flatnonzero(now_emitted > emitted).tolist():
            row = int(replay.state.world.requests[request].source_index)
            tokens[row] += [replay.now_ms] * int(now_emitted[request] - emitted[request])
        emitted = now_emitted
    records = summarize(replay).per_request
    assert records is not None
    order = np.argsort(records.row).tolist()
    columns = {name: [column[at] for at in order] for name, column in records.columns.items()}
    return PassLog(passes, tokens, columns)


def _ended_passes(replay: Replay) -> list[LoggedPass]:
    """Return the passes that ended at the current instant."""
    state = replay.state
    is_disaggregated = state.world.options.is_disaggregated
    passes = []
    for worker in (
        state.world.workers[row] for row in range(int(sum(state.world.pools["num_workers"])))
    ):
        name = "prefill" if worker.pool == PREFILL else "decode"
        for dp_rank in range(int(state.world.engines[worker.pool].dp_size)):
            fpm = state.world.fpms[worker.first_rank + dp_rank]
            if not fpm.is_new or fpm.published_ms != replay.now_ms:
                continue
            fpm.is_new = False
            wall_s, *metrics = np.asarray(state.world.fpms)[worker.first_rank + dp_rank].tolist()[
                :14
            ]
            passes.append(
                LoggedPass(
                    name if is_disaggregated else "agg",
                    int(worker.id),
                    dp_rank,
                    replay.now_ms,
                    wall_s,
                    tuple(metrics),
                )
            )
    return passes
