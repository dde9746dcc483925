"""Small fleets whose every pass can be followed by hand (replay-runtime.md §20).

A pass lasts 10 ms if it prefills anything plus 1 ms if it decodes anything; KV blocks have 4
tokens; requests have 8 input and 3 output tokens. Transfers cost 1 MB per token.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aisim_gym.replay import FleetDescription, Replay, ScalingDecision, ScalingSnapshot
from aisim_gym.report import Report, summarize
from aisim_gym.spec import ReplaySpec
from aisim_gym.workload import RequestTable, requests_from_arrays

BLOCK_SIZE = 4
BYTES_PER_TOKEN = 1_000_000

Tick = tuple[float, int | None, int | None]
"""Time in ms, prefill target, decode target."""


def small_fleet(
    *,
    workers: int | None = None,
    prefill: int | None = None,
    decode: int | None = None,
    prefill_ms: float = 10.0,
    decode_ms: float = 1.0,
    startup_ms: float | None = None,
    dp_size: int = 1,
    transfer_gb_s: float | None = None,
    engine: Mapping[str, Any] | None = None,
    prefill_engine: Mapping[str, Any] | None = None,
    decode_engine: Mapping[str, Any] | None = None,
    **options: Any,
) -> ReplaySpec:
    """Return the spec of a small fleet: aggregated with ``workers``, else disaggregated.

    Args:
        workers: Workers of an aggregated fleet.
        prefill: Prefill workers.
        decode: Decode workers.
        prefill_ms: Duration of the prefill part of a pass.
        decode_ms: Duration of the decode part.
        startup_ms: Until an added worker is active, None for at once.
        dp_size: Ranks per worker.
        transfer_gb_s: Bandwidth of the handoff, None for no transfer time.
        engine: Engine settings of every role.
        prefill_engine: More settings of prefill workers.
        decode_engine: More settings of decode workers.
        options: Further fields of the spec.
    """
    timing = {"type": "fixed", "prefill_ms": prefill_ms, "decode_ms": decode_ms}
    common = {"block_size": BLOCK_SIZE, "timing_model": timing, **(engine or {})}
    launch = {
        "dp_size": dp_size,
        "startup_time": None if startup_ms is None else startup_ms / 1000.0,
    }
    if workers is not None:
        fleet: dict[str, Any] = {
            "kind": "agg",
            "num_workers": workers,
            "engine": {**launch, "engine": common},
        }
    else:
        transfer: dict[str, float] = {"kv_transfer_bytes_per_token": BYTES_PER_TOKEN}
        if transfer_gb_s is not None:
            transfer["kv_transfer_bandwidth"] = transfer_gb_s
        prefill_part = {"worker_type": "prefill", **common, **transfer, **(prefill_engine or {})}
        decode_part = {"worker_type": "decode", **common, **(decode_engine or {})}
        fleet = {
            "kind": "disagg",
            "num_prefill_workers": prefill,
            "num_decode_workers": decode,
            "prefill": {**launch, "engine": prefill_part},
            "decode": {**launch, "engine": decode_part},
        }
    return ReplaySpec.from_data({"fleet": fleet, **options})


def arrivals(
    at_ms: Sequence[float],
    input_tokens: int | Sequence[int] = 8,
    output_tokens: int | Sequence[int] = 3,
    hash_ids: Sequence[Sequence[int]] | None = None,
) -> RequestTable:
    """Return requests that arrive at the given times; lengths for all or per request."""
    inputs = [input_tokens] * len(at_ms) if isinstance(input_tokens, int) else input_tokens
    outputs = [output_tokens] * len(at_ms) if isinstance(output_tokens, int) else output_tokens
    return requests_from_arrays(at_ms, inputs, outputs, hash_ids, trace_block_size=BLOCK_SIZE)


def every(gap_ms: float, count: int) -> list[float]:
    """Return ``count`` times from 0 on."""
    return [gap_ms * index for index in range(count)]


@dataclass
class ScriptedTicks:
    """A policy that ticks at given times with given targets and keeps what it saw."""

    ticks: Sequence[Tick]
    snapshots: list[ScalingSnapshot] = field(default_factory=list)

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        """Forget what was seen."""
        self.snapshots.clear()

    def initial_tick_ms(self) -> float:
        """Return the time of the first tick."""
        return self.ticks[0][0]

    def on_tick(self, snapshot: ScalingSnapshot) -> ScalingDecision:
        """Return the targets of this tick and the time of the next."""
        _, prefill, decode = self.ticks[len(self.snapshots)]
        self.snapshots.append(snapshot)
        following = self.ticks[len(self.snapshots) :]
        return ScalingDecision(prefill, decode, following[0][0] if following else None)


@dataclass(frozen=True)
class SmallRun:
    """A finished run, its report and what its planner saw."""

    replay: Replay
    report: Report
    snapshots: list[ScalingSnapshot]

    @property
    def summary(self) -> dict[str, Any]:
        """Summary of the run."""
        return self.report.summary

    @property
    def operations(self) -> list[dict[str, Any]]:
        """Lifecycle operations of the run."""
        return self.report.lifecycle_operations

    def column(self, name: str) -> list[Any]:
        """Return a column of the records, in order of arrival."""
        assert self.report.per_request is not None
        return self.report.per_request.columns[name]

    def tick_times(self) -> list[float]:
        """Return when the planner was asked."""
        return [snapshot.now_ms for snapshot in self.snapshots]


def run_small(spec: ReplaySpec, requests: RequestTable, ticks: Iterable[Tick] = ()) -> SmallRun:
    """Run requests through a fleet, with ticks at given times."""
    policy = ScriptedTicks(tuple(ticks))
    replay = Replay.run(spec, policy if policy.ticks else None, requests)
    return SmallRun(replay, summarize(replay), policy.snapshots)
