"""Random runs in which requests decode for long, beside others: most of their passes are steady."""

from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st
from support.timing_tables import timing_tables
from support.two_modes import Script

from aisim_gym.replay import ScalingDecision, ScalingSnapshot
from aisim_gym.spec import ReplaySpec
from aisim_gym.workload import requests_from_arrays

MAX_TICKS = 120
FIXED_TIMINGS = st.fixed_dictionaries(
    {
        "type": st.just("fixed"),
        "prefill_ms": st.sampled_from([5.0, 0.0, 20.0]),
        "decode_ms": st.sampled_from([5.0, 0.0, 10.0]),
    }
)
POLYNOMIAL = st.just({"type": "polynomial"})


@dataclass(frozen=True)
class LongDecodes:
    """A run of this kind.

    Attributes:
        spec: Fleet and options.
        arrivals: Time in ms, input and output tokens, hash ids of each request.
        trace_block_size: Of the hash ids.
        tick_ms: Between ticks; None for no ticks.
        targets: Prefill and decode targets, tick after tick and then from the first again.
    """

    spec: ReplaySpec
    arrivals: tuple[tuple[float, int, int, tuple[int, ...]], ...]
    trace_block_size: int
    tick_ms: float | None
    targets: tuple[tuple[int | None, int | None], ...]

    def script(self) -> Script:
        """Return the run with its planner."""
        at_ms, inputs, outputs, prompts = zip(*self.arrivals, strict=True)
        requests = requests_from_arrays(
            at_ms, inputs, outputs, prompts, trace_block_size=self.trace_block_size
        )

        def answer(snapshot: ScalingSnapshot) -> ScalingDecision:
            prefill, decode = self.targets[snapshot.tick_ordinal % len(self.targets)]
            if self.tick_ms is None or snapshot.tick_ordinal >= MAX_TICKS:
                return ScalingDecision(2, 2, None)
            return ScalingDecision(prefill, decode, snapshot.now_ms + self.tick_ms)

        return Script(self.spec, requests, self.tick_ms, answer)


def long_decodes(backend: str) -> st.SearchStrategy[Script]:
    """Draw a run of up to 150 requests with up to 400 output tokens, and its planner."""
    return long_decode_runs(backend).map(LongDecodes.script)


@st.composite
def long_decode_runs(draw: st.DrawFn, backend: str) -> LongDecodes:
    """Draw a run of up to 150 requests with up to 400 output tokens."""
    arrivals, block_size = draw(_arrivals())
    longest = max(row[1] for row in arrivals), max(row[2] for row in arrivals)
    spec = draw(_specs(backend, longest))
    tick_ms = draw(st.sampled_from([None, 100.0, 500.0, 5000.0]))
    targets = st.tuples(
        st.sampled_from([None, 1, 2, 3]),
        st.sampled_from([None, 1, 2, 4]),
    )
    script = draw(st.lists(targets, min_size=1, max_size=8))
    return LongDecodes(spec, arrivals, block_size, tick_ms, tuple(script))


@st.composite
def _arrivals(
    draw: st.DrawFn,
) -> tuple[tuple[tuple[float, int, int, tuple[int, ...]], ...], int]:
    """Draw the requests and the block size of their hash ids."""
    rng = Random(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.sampled_from([20, 1, 4, 60, 150]))
    rate_rps = draw(st.sampled_from([4.0, 1.0, 12.0, 30.0]))
    most_input = draw(st.sampled_from([50, 600, 3000]))
    most_output = draw(st.sampled_from([60, 4, 400]))
    grid_ms = draw(st.sampled_from([0.0, 0.0, 50.0]))
    block_size = draw(st.sampled_from([4, 16]))
    common_blocks = draw(st.sampled_from([0, 0, 2, 20]))
    at_ms, arrivals_ms = 0.0, []
    for _ in range(count):
        at_ms += rng.expovariate(rate_rps / 1000.0)
        arrivals_ms.append(round(at_ms / grid_ms) * grid_ms if grid_ms else at_ms)
    inputs = [rng.randint(1, most_input) for _ in range(count)]
    least_output = draw(st.sampled_from([1, 1, 1, 0]))
    outputs = [rng.randint(least_output, most_output) for _ in range(count)]
    prompts: list[tuple[int, ...]] = []
    for index, tokens in enumerate(inputs):
        blocks = -(-tokens // block_size)
        common = min(common_blocks, blocks)
        own = range(1000 * (index + 1), 1000 * (index + 1) + blocks - common)
        prompts.append((*range(common), *own))
    return tuple(zip(arrivals_ms, inputs, outputs, prompts, strict=True)), block_size


@st.composite
def _specs(draw: st.DrawFn, backend: str, longest: tuple[int, int]) -> ReplaySpec:
    block_size = draw(st.sampled_from([16, 4, 64] if backend != "sglang" else [16, 1, 4, 64]))
    tokens = sum(longest)
    dp_size = draw(st.sampled_from([1, 1, 1, 2, 3]))
    engine: dict[str, Any] = {
        "backend": backend,
        "block_size": block_size,
        "num_gpu_blocks": draw(
            st.sampled_from([tokens // block_size + 3, 2 * tokens // block_size + 10, 8000])
        ),
        "max_num_seqs": draw(st.sampled_from([64, 2, 5])),
        "enable_prefix_caching": draw(st.sampled_from([True, True, True, False])),
        "timing_model": draw(st.one_of(POLYNOMIAL, timing_tables(), FIXED_TIMINGS)),
    }
    if backend == "sglang":
        engine["sglang"] = {
            "chunked_prefill_size": max(
                draw(st.sampled_from([64, 512, 8192])), dp_size * block_size
            ),
            "schedule_policy": draw(st.sampled_from(["fifo", "lpm"])),
        }
        engine["prefill_decode_interval"] = draw(st.sampled_from([0, 0, 1, 3]))
    else:
        engine["max_num_batched_tokens"] = draw(st.sampled_from([8192, 16, 500]))
    if backend == "vllm":
        engine["preemption_mode"] = draw(st.sampled_from(["lifo", "fifo"]))
        engine["prefill_schedule_interval"] = draw(st.sampled_from([1, 1, 3]))
    if draw(st.sampled_from([False] * 4 + [True])):
        engine["max_model_len"] = longest[0] + draw(st.integers(1, 200))

    def launch(worker_type: str) -> dict[str, Any]:
        return {
            "engine": {**engine, "worker_type": worker_type},
            "dp_size": dp_size,
            "startup_time": draw(st.sampled_from([0.0, 0.5, 3.0])),
        }

    if draw(st.booleans()):
        fleet = {
            "kind": "disagg",
            "num_prefill_workers": draw(st.sampled_from([1, 2])),
            "num_decode_workers": draw(st.sampled_from([1, 3])),
            "prefill": launch("prefill"),
            "decode": launch("decode"),
        }
    else:
        workers = draw(st.sampled_from([1, 2, 4]))
        fleet = {"kind": "agg", "num_workers": workers, "engine": launch("aggregated")}
    return ReplaySpec.from_data(
        {
            "fleet": fleet,
            "capture_per_request": draw(st.booleans()),
            "capture_token_gaps": draw(st.sampled_from([True, True, False])),
            "telemetry_sample_interval_ms": draw(
                st.sampled_from([None, None, None, 50.0, 333.0, 1000.0])
            ),
            "max_sim_time_ms": draw(st.sampled_from([None, None, None, 500.0, 3000.0])),
            "workload": {"replay_concurrency": draw(st.sampled_from([None, None, None, 1, 4, 20]))},
        }
    )
