"""Random scenarios for runs against the reference: fleet, workload, scaling script (Hypothesis).

A scenario is what a golden file says under that name. All are valid; some end in an error, some
make the reference loop forever.
"""

import math
from typing import Any

from conformance.drawn_engines import BLOCK_SIZES, is_kept, launch_configs, seldom
from conformance.drawn_workloads import workloads
from hypothesis import strategies as st

Scenario = dict[str, Any]

BACKENDS = ("vllm", "trtllm", "sglang")
AGGREGATED = {"agg": "aggregated"}


@st.composite
def scenarios(draw: st.DrawFn, backend: str) -> Scenario:
    """Draw a scenario.

    Two thirds have a main subject: scarce KV blocks, or scaling of pools of several workers.
    """
    subject = draw(st.sampled_from(["anything", "scarcity", "scaling"]))
    is_disaggregated = draw(st.booleans())
    block_size = draw(st.sampled_from(BLOCK_SIZES[backend]))
    roles = {"prefill": "prefill", "decode": "decode"} if is_disaggregated else AGGREGATED
    launches = {
        name: draw(launch_configs(backend, role, block_size, is_scarce=subject == "scarcity"))
        for name, role in roles.items()
    }
    options = draw(_options())
    return {
        "name": f"{'disagg' if is_disaggregated else 'agg'}-{backend}",
        "topology": draw(_topologies(is_disaggregated, is_scaled=subject == "scaling")),
        "engine_overrides": launches,
        "workload": draw(
            workloads(
                block_size,
                draw(_longest(launches, is_scarce=subject == "scarcity")),
                is_busy=subject != "anything",
                has_sessions=seldom(draw, 35),
                is_closed_loop="replay_concurrency" in options,
            )
        ),
        "replay": options,
        "ticks": draw(_scripts(is_disaggregated, is_scaled=subject == "scaling")),
    }


def _topologies(is_disaggregated: bool, *, is_scaled: bool) -> st.SearchStrategy[dict[str, Any]]:
    workers = st.sampled_from([2, 3] if is_scaled else [1, 1, 2, 3])
    if not is_disaggregated:
        return st.fixed_dictionaries({"kind": st.just("agg"), "num_workers": workers})
    return st.fixed_dictionaries(
        {
            "kind": st.just("disagg"),
            "num_prefill_workers": workers,
            "num_decode_workers": workers,
        }
    )


def _longest(launches: dict[str, Any], *, is_scarce: bool) -> st.SearchStrategy[tuple[int, int]]:
    """Return the most input and output tokens; most requests fit the smallest pool."""
    smallest = min(
        launch["engine"]["num_gpu_blocks"] * launch["engine"]["block_size"]
        for launch in launches.values()
    )
    shares = [(0.3, 0.5), (0.4, 0.3)] if is_scarce else [(0.3, 0.3), (0.3, 0.3), (0.6, 0.3)]
    if not is_scarce and smallest < 200:  # some requests will never fit
        shares += [(0.9, 0.4), (1.5, 0.3)]
    return st.builds(
        lambda share, most: (
            max(1, min(most, int(smallest * share[0]))),
            max(1, min(60, int(smallest * share[1]))),
        ),
        st.sampled_from(shares),
        st.sampled_from([150, 150, 40, 600]),
    )


@st.composite
def _options(draw: st.DrawFn) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if seldom(draw, 8):
        options["max_sim_time_ms"] = draw(st.sampled_from([0.0, 20.0, 55.5, 200.0, 1000.0]))
    if seldom(draw, 15):
        options["arrival_speedup_ratio"] = draw(st.sampled_from([0.5, 2.0, 3.0, 0.7]))
    if seldom(draw, 15):
        options |= draw(
            st.sampled_from(
                [
                    {"sla_ttft_ms": 30.0},
                    {"sla_ttft_ms": 100.0, "sla_itl_ms": 8.0},
                    {"sla_e2e_ms": 120.0},
                ]
            )
        )
    if seldom(draw, 40):
        options["capture_telemetry"] = True
        options["telemetry_sample_interval_ms"] = draw(
            st.sampled_from([10.0, 1.0, 3.7, 25.0, 100.0, 1000.0])
        )
    if seldom(draw, 15):
        options["trace_format"] = "mooncake-delta"
    if seldom(draw, 20):
        options["replay_concurrency"] = draw(st.sampled_from([1, 2, 3, 8]))
    return options


@st.composite
def _scripts(draw: st.DrawFn, is_disaggregated: bool, *, is_scaled: bool) -> dict[str, Any] | None:
    """Draw a policy, None for none; it stops asking for ticks, so that stuck runs end."""
    count = draw(st.sampled_from([10, 25, 40] if is_scaled else [0, 3, 10, 25]))
    if count == 0 and draw(st.booleans()):
        return None
    step_ms = draw(
        st.sampled_from([10.0, 3.0, 7.5, 25.0, 60.0] + [400.0, 1500.0] * (not is_scaled))
    )
    now_ms = first_ms = draw(st.sampled_from([step_ms, 0.0, step_ms / 3.0, -5.0]))
    sizes = [1, 2, 3, 4, 8] if seldom(draw, 20) else [1, 2, 3, 4]
    if seldom(draw, 25 if is_disaggregated else 5):
        sizes.append(0)
    targets = st.sampled_from([None, None, None, *sizes])
    prefill_targets = targets if is_disaggregated else st.sampled_from([None, None, 3])
    decisions: list[list[float | None]] = []
    for _ in range(count):
        now_ms = max(now_ms, 0.0) + step_ms * draw(st.sampled_from([1.0, 1.0, 0.37, 0.5]))
        decision = [draw(prefill_targets), draw(targets), now_ms]
        if is_kept(draw):
            decisions.append(decision)
    if seldom(draw, 70):
        decisions.append([2 if is_disaggregated else None, 2, None])
    else:
        decisions.append([None, None, draw(st.sampled_from([None, 0.0, math.inf]))])
    script: dict[str, Any] = {"initial_tick_ms": first_ms, "decisions": decisions}
    if seldom(draw, 2):
        script["raise_at"] = draw(st.integers(0, len(decisions) - 1))
    if seldom(draw, 2):
        script["initial_tick_ms"] = None
    return script
