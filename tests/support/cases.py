"""Small random runs: a fleet, a workload and a scaling script (Hypothesis strategies).

All are valid, and most end well; some end in an error that a run may end in, for example a prompt
that can never be scheduled.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from support.fleets import BLOCK_SIZE, Tick
from support.timing_tables import timing_tables

from aisim_gym.errors import ReplayError
from aisim_gym.replay import Replay, ScalingDecision, ScalingSnapshot
from aisim_gym.spec import ReplaySpec
from aisim_gym.workload import (
    RequestTable,
    requests_from_arrays,
    requests_from_mooncake_rows,
)

BACKENDS = ("vllm", "trtllm", "sglang")
MAX_TICKS = 6
LIMITS_MS = (None, None, None, 0.0, 25.0, 120.5)

Arrival = tuple[float, int, int, tuple[int, ...]]
"""Arrival in ms (for a later turn: since the end of the one before), input tokens, output tokens,
hash ids."""


@dataclass(frozen=True)
class Case:
    """A run to try.

    Attributes:
        spec: Fleet and options.
        arrivals: The requests.
        ticks: (time in ms, prefill target, decode target) of each tick.
        sessions: Session of each request; empty for a plain list.
        is_delta: Whether a turn repeats everything before it in its session.
    """

    spec: ReplaySpec
    arrivals: tuple[Arrival, ...]
    ticks: tuple[Tick, ...] = ()
    sessions: tuple[int, ...] = ()
    is_delta: bool = False

    def requests(self) -> RequestTable:
        """Return the workload."""
        if not self.sessions:
            at_ms, inputs, outputs, hash_ids = zip(*self.arrivals, strict=True)
            return requests_from_arrays(
                at_ms, inputs, outputs, hash_ids, trace_block_size=BLOCK_SIZE
            )
        rows: list[dict[str, Any]] = []
        for session, arrival in zip(self.sessions, self.arrivals, strict=True):
            start_ms, input_tokens, output_tokens, prompt = arrival
            is_first = all(row["session_id"] != f"s{session}" for row in rows)
            rows.append(
                {
                    "session_id": f"s{session}",
                    "timestamp" if is_first else "delay": start_ms,
                    "input_length": input_tokens,
                    "output_length": output_tokens,
                    "hash_ids": list(prompt),
                }
            )
        return requests_from_mooncake_rows(
            rows,
            BLOCK_SIZE,
            is_delta=self.is_delta,
            is_closed_loop=self.spec.workload.is_closed_loop,
        )

    def replay(self) -> Replay:
        """Return a replay that has not started."""
        first_ms = self.ticks[0][0] if self.ticks else None
        return Replay(self.spec, self.requests(), initial_tick_ms=first_ms)

    def answer(self, snapshot: ScalingSnapshot) -> ScalingDecision:
        """Return the decision of the script for a tick."""
        _, prefill, decode = self.ticks[snapshot.tick_ordinal]
        following = self.ticks[snapshot.tick_ordinal + 1 :]
        return ScalingDecision(prefill, decode, following[0][0] if following else None)


@dataclass
class CaseOutcome:
    """How a run ended.

    Attributes:
        snapshots: What was seen at the ticks.
        error: The message of the error that ended it, or None.
    """

    snapshots: list[ScalingSnapshot] = field(default_factory=list)
    error: str | None = None


def drive(
    replay: Replay, case: Case, at_tick: Callable[[ScalingSnapshot], bool | None] | None = None
) -> CaseOutcome:
    """Run to the end, answering ticks by the script; also from the middle of a run.

    Args:
        replay: Modified in place; a tick that waits is answered first.
        case: The script.
        at_tick: Called before a tick is answered; True stops there.
    """
    outcome = CaseOutcome()
    try:
        snapshot = replay.snapshot or replay.advance_to_tick()
        while snapshot is not None:
            outcome.snapshots.append(snapshot)
            if at_tick is not None and at_tick(snapshot):
                return outcome
            replay.apply(case.answer(snapshot))
            snapshot = replay.advance_to_tick()
    except ReplayError as error:
        outcome.error = str(error)
    return outcome


FIXED_MS = st.sampled_from([0.0, 1.0, 3.0, 7.5])
TIMINGS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(lambda p, d: {"type": "fixed", "prefill_ms": p, "decode_ms": d}, FIXED_MS, FIXED_MS),
    st.just({"type": "polynomial"}),
    timing_tables(),
)


DRAFTS = st.one_of(
    st.just({}),
    st.builds(
        lambda count, rates, seed: {
            "aic_nextn": count,
            "aic_nextn_accept_rates": rates,
            "aic_mtp_seed": seed,
        },
        st.integers(1, 5),
        st.sampled_from(["1,1", "0.5,0.5,0.5", "0.85,0.3", "0"]),
        st.sampled_from([0, 42, 2**64 - 1]),
    ),
)
"""Settings of speculative decoding, or none."""


def engines(worker_type: str, backend: str = "vllm") -> st.SearchStrategy[dict[str, Any]]:
    """Return engine settings of one role; pools are small enough to preempt and to evict."""
    return (
        _sglang_engines(worker_type)
        if backend == "sglang"
        else _block_engines(worker_type, backend)
    )


def _block_engines(worker_type: str, backend: str) -> st.SearchStrategy[dict[str, Any]]:
    optional = {
        "enable_prefix_caching": st.booleans(),
        "enable_chunked_prefill": st.booleans(),
        "max_num_seqs": st.one_of(st.none(), st.integers(1, 4)),
        "max_num_batched_tokens": st.one_of(st.none(), st.integers(4, 64)),
        "max_model_len": st.one_of(st.none(), st.integers(8, 60)),
        "speedup_ratio": st.sampled_from([0.0, 1.0, 2.0]),
    }
    if backend == "vllm":
        optional["preemption_mode"] = st.sampled_from(["lifo", "fifo"])
        optional["prefill_schedule_interval"] = st.integers(1, 3)
    return st.fixed_dictionaries(
        {
            "backend": st.just(backend),
            "worker_type": st.just(worker_type),
            "num_gpu_blocks": st.integers(8, 18),
            "timing_model": TIMINGS,
        },
        optional=optional,
    )


def _sglang_engines(worker_type: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "backend": st.just("sglang"),
            "worker_type": st.just(worker_type),
            "num_gpu_blocks": st.integers(10, 24),
            "timing_model": TIMINGS,
            "sglang": st.fixed_dictionaries(
                {},
                optional={
                    "chunked_prefill_size": st.sampled_from([16, 32, 8192]),
                    "max_prefill_tokens": st.sampled_from([8, 32, 16384]),
                    "clip_max_new_tokens": st.sampled_from([1, 4, 4096]),
                    "schedule_conservativeness": st.sampled_from([0.0, 0.3, 1.0]),
                    "schedule_policy": st.sampled_from(["fifo", "lpm"]),
                },
            ),
        },
        optional={
            "enable_prefix_caching": st.booleans(),
            "max_num_seqs": st.one_of(st.none(), st.integers(1, 4)),
            "max_model_len": st.one_of(st.none(), st.integers(8, 60)),
            "speedup_ratio": st.sampled_from([0.0, 1.0, 2.0]),
            "prefill_decode_interval": st.integers(0, 3),
        },
    )


TIMES_MS = st.sampled_from([0.0, 0.5, 4.0])


@st.composite
def encoders(draw: st.DrawFn) -> dict[str, Any]:
    """Draw an encoder pool."""
    max_batch = draw(st.integers(1, 3))
    return {
        "num_instances": draw(st.integers(1, 2)),
        "max_batch": max_batch,
        "preprocess_ms": draw(TIMES_MS),
        "forward_ms": draw(st.lists(TIMES_MS, min_size=max_batch, max_size=max_batch)),
        "transfer_bytes": draw(st.sampled_from([0, 1_000_000])),
        "bandwidth_gb_s": 1.0,
    }


SERVERS = st.fixed_dictionaries(
    {"workers": st.integers(1, 2), "request_ms": TIMES_MS, "token_ms": TIMES_MS}
)
STAGES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.just({}),
    st.fixed_dictionaries(
        {},
        optional={
            "encoder": encoders(),
            "tokenization": SERVERS,
            "detokenization": SERVERS,
            "transfer_links": st.just("shared"),
        },
    ),
)
"""Optional stages of a disaggregated fleet."""

LAUNCH = {
    "dp_size": st.integers(1, 2),
    "startup_time": st.sampled_from([None, 0.0, 0.015, 0.2]),
}


@st.composite
def fleets(
    draw: st.DrawFn, disaggregated: bool, backend: str = "vllm", drafting: bool = False
) -> dict[str, Any]:
    """Draw a fleet of up to four workers."""
    block_size = draw(st.sampled_from([4, 2, 8] if backend != "sglang" else [4, 1, 8]))

    def launch(worker_type: str) -> dict[str, Any]:
        engine = {"block_size": block_size, **draw(engines(worker_type, backend))}
        if block_size == 1:
            engine["num_gpu_blocks"] *= 4
        if drafting:
            engine |= draw(DRAFTS)
        if worker_type == "prefill":
            engine["kv_transfer_bytes_per_token"] = 1_000_000
            engine["kv_transfer_bandwidth"] = draw(st.sampled_from([None, 0.5, 4.0]))
            engine["kv_transfer_timing_mode"] = draw(
                st.sampled_from(["full_prompt", "destination_missing"])
            )
        return {**draw(st.fixed_dictionaries(LAUNCH)), "engine": engine}

    if not disaggregated:
        return {
            "kind": "agg",
            "num_workers": draw(st.integers(1, 3)),
            "engine": launch("aggregated"),
        }
    return {
        "kind": "disagg",
        "num_prefill_workers": draw(st.integers(1, 2)),
        "num_decode_workers": draw(st.integers(1, 2)),
        "prefill": launch("prefill"),
        "decode": launch("decode"),
        **draw(STAGES),
    }


@st.composite
def arrival_lists(draw: st.DrawFn) -> tuple[Arrival, ...]:
    """Draw up to 14 requests, many at the same instant and with common beginnings."""
    result = []
    at_ms = 0.0
    for index in range(draw(st.sampled_from([1, 5, 9, 14]))):
        at_ms += draw(st.sampled_from([0.0, 0.0, 1.0, 2.5, 7.5, 30.0]))
        input_tokens = draw(st.integers(1, 28))
        blocks = -(-input_tokens // BLOCK_SIZE)
        common = draw(st.integers(0, blocks))
        prompt = [*range(common), *range(100 * (index + 1), 100 * (index + 1) + blocks - common)]
        result.append((at_ms, input_tokens, draw(st.integers(0, 16)), tuple(prompt)))
    return tuple(result)


@st.composite
def scripts(draw: st.DrawFn, disaggregated: bool) -> tuple[Tick, ...]:
    """Draw up to ``MAX_TICKS`` ticks; a pool of a disaggregated fleet may be scaled to zero."""
    ticks: list[Tick] = []
    at_ms = 0.0
    targets = st.one_of(st.none(), st.integers(0 if disaggregated else 1, 4))
    for _ in range(draw(st.sampled_from([MAX_TICKS, 3, 0]))):
        at_ms += draw(st.sampled_from([0.5, 1.0, 5.0, 7.5, 20.0, 60.0]))
        ticks.append((at_ms, draw(targets), draw(targets)))
    return tuple(ticks)


@st.composite
def cases(draw: st.DrawFn, *, limited: bool = False, backends: tuple[str, ...] = BACKENDS) -> Case:
    """Draw a run, aggregated or disaggregated; ``limited`` ones may have a time limit.

    Requests form a list or sessions, and arrive by themselves or in a closed loop.
    """
    disaggregated = draw(st.booleans())
    backend = draw(st.sampled_from(backends))
    fleet = draw(fleets(disaggregated, backend, draw(st.booleans())))
    limit_ms = draw(st.sampled_from(LIMITS_MS)) if limited else None
    concurrency = draw(st.sampled_from([None, None, None, 1, 3]))
    spec = ReplaySpec.from_data(
        {
            "fleet": fleet,
            "max_sim_time_ms": limit_ms,
            "workload": {"replay_concurrency": concurrency},
        }
    )
    arrivals = draw(arrival_lists())
    ticks = draw(scripts(disaggregated))
    if draw(st.booleans()):
        return Case(spec, arrivals, ticks)
    count = len(arrivals)
    sessions = draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    delays_ms = st.sampled_from([0.0, 2.5, 30.0])
    turns = [
        (draw(delays_ms), *arrival[1:]) if sessions[at] in sessions[:at] else arrival
        for at, arrival in enumerate(arrivals)
    ]
    return Case(spec, tuple(turns), ticks, tuple(sessions), draw(st.booleans()))
