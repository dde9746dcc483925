"""The scenario suite: registered environments with a fleet, a workload and service levels.

A scenario is an environment of this package with preset arguments, all of which can be changed in
``gymnasium.make``. ``split`` is "train" by default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aisim_gym.envs.fleet_choice import Kind


@dataclass(frozen=True)
class Scenario:
    """A registered environment.

    Attributes:
        id: Name and version, e.g. ``aisim_gym/ChatSteady-v0``.
        kind: Topology.
        summary: Fleet and traffic in one sentence.
        challenge: The difficulty of the scenario.
        arguments: Keywords of the environment; JSON values.
    """

    id: str
    kind: Kind
    summary: str
    challenge: str
    arguments: Mapping[str, Any]


def _chat(**arrivals: Any) -> dict[str, Any]:
    """Return chat traffic of half an hour with Azure's conversation lengths."""
    return {
        "kind": "traffic",
        "duration_s": 1800.0,
        "arrivals": arrivals,
        "lengths": "azure-conv",
    }


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "aisim_gym/ChatSteady-v0",
        "agg",
        "An 8B model on L40S GPUs serves chat whose rate is constant but unknown.",
        "The rate of an episode is drawn on a log scale from 4 to 40 requests/s: the agent has to "
        "find the right size and then keep still.",
        {
            "engine": {"profile": "l40s-llama31-8b", "max_num_batched_tokens": 2048},
            "startup_s": 45.0,
            "initial_workers": 3,
            "max_workers": 10,
            "workload": _chat(kind="poisson", rate_rps={"log_uniform": [4.0, 40.0]}),
            "tick_s": 30.0,
            "ttft_slo_ms": 2000.0,
            "itl_slo_ms": 100.0,
        },
    ),
    Scenario(
        "aisim_gym/ChatDiurnal-v0",
        "disagg",
        "A 70B model on H100 GPUs, prefill and decode apart, follows a day compressed to an hour.",
        "The rate swings by a factor of three around a drawn mean, starts at a drawn hour and "
        "wanders; a worker of four GPUs takes two minutes to start, so the swing must be "
        "anticipated.",
        {
            "engine": "h100-llama31-70b-tp4",
            "startup_s": 120.0,
            "initial_workers": {"prefill": 3, "decode": 2},
            "max_workers": {"prefill": 6, "decode": 4},
            "workload": {
                **_chat(
                    kind="diurnal",
                    mean_rps={"uniform": [15.0, 30.0]},
                    day_s=3600.0,
                    start_h={"uniform": [0.0, 24.0]},
                    harmonics=[
                        {"amplitude": 0.5, "peak_h": 15.0},
                        {"amplitude": 0.15, "peak_h": 11.0},
                    ],
                    noise_sigma=0.18,
                    noise_tau_h=0.8,
                    cv=1.2,
                ),
                "duration_s": 3600.0,
            },
            "tick_s": 30.0,
            "ttft_slo_ms": 1500.0,
            "itl_slo_ms": 40.0,
        },
    ),
    Scenario(
        "aisim_gym/ChatBursty-v0",
        "disagg",
        "Restored snapshots start in ten seconds, and chat comes in bursts.",
        "Gaps between requests have a CV of 2 to 6: queues grow and empty within seconds, so that "
        "a short tick and a fast fleet can follow what a slow one has to provision for.",
        {
            "engine": "h200-llama31-70b-fp8-tp2",
            "startup_s": 10.0,
            "initial_workers": {"prefill": 2, "decode": 1},
            "max_workers": {"prefill": 6, "decode": 4},
            "workload": {
                **_chat(
                    kind="renewal",
                    rate_rps={"uniform": [8.0, 20.0]},
                    cv={"uniform": [2.0, 6.0]},
                ),
                "duration_s": 900.0,
            },
            "tick_s": 5.0,
            "ttft_slo_ms": 1500.0,
            "itl_slo_ms": 40.0,
        },
    ),
    Scenario(
        "aisim_gym/CodeBursts-v0",
        "agg",
        "Code completion on A100 GPUs: silence, then a burst of long prompts.",
        "Bursts reach a dozen times the mean rate and are over before a worker has started; "
        "prompts of 2,000 tokens and answers of 30 make prefill all that counts.",
        {
            "engine": "a100-llama31-8b",
            "startup_s": 45.0,
            "initial_workers": 2,
            "max_workers": 8,
            "workload": {
                "preset": "azure-code",
                "duration_s": 1800.0,
                "rate_scale": {"uniform": [1.0, 3.0]},
            },
            "tick_s": 10.0,
            "ttft_slo_ms": 3000.0,
            "itl_slo_ms": 500.0,
        },
    ),
    Scenario(
        "aisim_gym/FlashCrowd-v0",
        "disagg",
        "Quiet chat on a 70B model until a crowd arrives, within a budget of GPUs.",
        "When the crowd comes and how large it is differs by episode; two minutes of start-up make "
        "every idle worker a bet, and the budget of 32 GPUs forces a choice between prefill and "
        "decode.",
        {
            "engine": "h100-llama31-70b-tp4",
            "startup_s": 120.0,
            "initial_workers": {"prefill": 2, "decode": 1},
            "max_workers": {"prefill": 6, "decode": 4},
            "max_gpus": 32,
            "workload": _chat(
                kind="flash-crowd",
                base_rps={"uniform": [8.0, 14.0]},
                factor={"uniform": [2.0, 5.0]},
                at_s={"uniform": [300.0, 1200.0]},
                hold_s={"uniform": [120.0, 300.0]},
                rise_s=15.0,
                decay_s=300.0,
            ),
            "tick_s": 15.0,
            "ttft_slo_ms": 1500.0,
            "itl_slo_ms": 40.0,
        },
    ),
    Scenario(
        "aisim_gym/ColdRamp-v0",
        "agg",
        "Traffic ramps up for a 32B model whose workers take eight minutes to start.",
        "Weights come from a remote store. Waiting until the fleet is full is ten minutes "
        "too late.",
        {
            "engine": {"profile": "h100-qwen3-32b-tp2", "max_num_batched_tokens": 2048},
            "startup_s": 480.0,
            "initial_workers": 3,
            "max_workers": 10,
            "workload": {
                **_chat(
                    kind="ramp",
                    from_rps={"uniform": [5.0, 12.0]},
                    to_rps={"uniform": [25.0, 50.0]},
                    at_s={"uniform": [300.0, 1200.0]},
                    ramp_s={"uniform": [300.0, 1200.0]},
                ),
                "duration_s": 3600.0,
            },
            "tick_s": 30.0,
            "ttft_slo_ms": 2000.0,
            "itl_slo_ms": 60.0,
        },
    ),
    Scenario(
        "aisim_gym/Weekday-v0",
        "agg",
        "Five working days of one generated week, each compressed into two hours.",
        "The week is generated once, from a fixed seed, and is played like a recording: Monday to "
        "Wednesday are for training, Thursday for validation, Friday for tests; an episode is half "
        "a day from anywhere in them.",
        {
            "engine": {"profile": "h100-llama31-8b", "max_num_batched_tokens": 2048},
            "startup_s": 60.0,
            "initial_workers": 3,
            "max_workers": 8,
            "workload": {
                **_chat(
                    kind="diurnal",
                    mean_rps=40.0,
                    day_s=7200.0,
                    harmonics=[
                        {"amplitude": 0.6, "peak_h": 14.0},
                        {"amplitude": 0.2, "peak_h": 10.0},
                    ],
                    noise_sigma=0.2,
                    noise_tau_h=0.8,
                    day_sigma=0.15,
                    cv=1.2,
                ),
                "duration_s": 36000.0,
                "seed": 20260105,
            },
            "blocks": {
                "train": [[0.0, 21600.0]],
                "validation": [[21600.0, 28800.0]],
                "test": [[28800.0, 36000.0]],
            },
            "episode_s": 3600.0,
            "tick_s": 30.0,
            "ttft_slo_ms": 500.0,
            "itl_slo_ms": 30.0,
        },
    ),
    Scenario(
        "aisim_gym/ReasoningDay-v0",
        "disagg",
        "A mixture-of-experts model on eight H200 GPUs per worker thinks before it answers.",
        "Answers of 1,500 tokens keep decode workers busy for a minute after a request has "
        "arrived; a worker costs 32 USD an hour and takes five minutes to start.",
        {
            "engine": "h200-deepseek-r1-fp8-tp8",
            "startup_s": 300.0,
            "initial_workers": {"prefill": 1, "decode": 3},
            "max_workers": {"prefill": 3, "decode": 8},
            "workload": {
                **_chat(
                    kind="diurnal",
                    mean_rps={"uniform": [4.0, 8.0]},
                    day_s=3600.0,
                    start_h={"uniform": [0.0, 24.0]},
                    harmonics=[{"amplitude": 0.5, "peak_h": 0.6}],
                    noise_sigma=0.3,
                    noise_tau_h=0.56,
                ),
                "lengths": {"kind": "named", "name": "reasoning-r1", "max_output_tokens": 16384},
                "duration_s": 3600.0,
            },
            "reward": {"name": "cost_slo", "violation_weight": 0.05},
            "tick_s": 30.0,
            "ttft_slo_ms": 5000.0,
            "itl_slo_ms": 60.0,
        },
    ),
    Scenario(
        "aisim_gym/LongContext-v0",
        "agg",
        "Conversations of many turns with 12,000 tokens of context, 40 % of them cached.",
        "A new worker has an empty prefix cache, and one that drains takes its cache with it: "
        "every change of size costs prefill.",
        {
            "engine": {"profile": "h200-llama31-70b-fp8-tp2", "max_num_batched_tokens": 2048},
            "startup_s": 120.0,
            "initial_workers": 4,
            "max_workers": 10,
            "workload": {
                "preset": "mooncake-conversation",
                "duration_s": 3600.0,
                "rate_scale": {"uniform": [0.5, 1.5]},
            },
            "reward": {"name": "cost_slo", "violation_weight": 0.03},
            "tick_s": 30.0,
            "ttft_slo_ms": 10000.0,
            "itl_slo_ms": 150.0,
        },
    ),
    Scenario(
        "aisim_gym/ToolAgents-v0",
        "disagg",
        "Agents call tools: long prompts from three families, answers of a few tokens.",
        "Six of ten prompt tokens are in a cache somewhere; decode has little to do, and sharing "
        "depends on how many workers the families are spread over.",
        {
            "engine": "h100-llama31-8b",
            "startup_s": 60.0,
            "initial_workers": {"prefill": 2, "decode": 1},
            "max_workers": {"prefill": 8, "decode": 4},
            "workload": {
                "preset": "mooncake-toolagent",
                "duration_s": 1800.0,
                "rate_scale": {"uniform": [0.5, 2.0]},
            },
            "tick_s": 15.0,
            "ttft_slo_ms": 2000.0,
            "itl_slo_ms": 40.0,
        },
    ),
    Scenario(
        "aisim_gym/ManyClients-v0",
        "disagg",
        "API traffic of many clients, of which a few send most of it, in bursts of their own.",
        "Each client has its own rate, burstiness, lengths and system prompt, newly drawn in every "
        "episode; when the largest one changes its mind the whole mix changes.",
        {
            "engine": "h200-llama31-70b-fp8-tp2",
            "startup_s": 60.0,
            "initial_workers": {"prefill": 2, "decode": 1},
            "max_workers": {"prefill": 8, "decode": 4},
            "max_gpus": 20,
            "workload": {
                "preset": "servegen-large-clients",
                "duration_s": 1800.0,
                "rate_scale": {"uniform": [0.4, 1.2]},
            },
            "tick_s": 15.0,
            "ttft_slo_ms": 2000.0,
            "itl_slo_ms": 40.0,
        },
    ),
    Scenario(
        "aisim_gym/LargeFleet-v0",
        "agg",
        "Up to 64 workers of an 8B model share the load of a busy service.",
        "One worker more or less hardly matters; what matters is to follow a swing of 40 workers "
        "with 64 choices per action.",
        {
            "engine": {"profile": "l40s-llama31-8b", "max_num_batched_tokens": 2048},
            "startup_s": 60.0,
            "initial_workers": 30,
            "max_workers": 64,
            "workload": {
                **_chat(
                    kind="diurnal",
                    mean_rps={"uniform": [50.0, 100.0]},
                    day_s=1800.0,
                    start_h={"uniform": [0.0, 24.0]},
                    harmonics=[{"amplitude": 0.5, "peak_h": 14.0}],
                    noise_sigma=0.15,
                    noise_tau_h=0.8,
                    cv=1.2,
                ),
                "duration_s": 1800.0,
            },
            "action": {"name": "box"},
            "tick_s": 30.0,
            "ttft_slo_ms": 2000.0,
            "itl_slo_ms": 100.0,
        },
    ),
    Scenario(
        "aisim_gym/ChatRandomized-v0",
        "disagg",
        "Chat of every shape, for agents that should cope with all of them.",
        "Each episode draws whether its traffic is steady, wandering, bursty, ramping or struck by "
        "a crowd, and how strongly; prompts and answers are up to twice as long or short.",
        {
            "engine": "h100-llama31-70b-tp4",
            "startup_s": 60.0,
            "initial_workers": {"prefill": 3, "decode": 2},
            "max_workers": {"prefill": 6, "decode": 4},
            "workload": {
                "kind": "traffic",
                "duration_s": 1800.0,
                "rate_scale": {"log_uniform": [0.7, 1.4]},
                "arrivals": {
                    "choice": [
                        {"kind": "poisson", "rate_rps": 24.0},
                        {
                            "kind": "wandering",
                            "mean_rps": 24.0,
                            "sigma": {"uniform": [0.2, 0.6]},
                            "tau_s": {"log_uniform": [60.0, 600.0]},
                        },
                        {"kind": "renewal", "rate_rps": 24.0, "cv": {"uniform": [1.0, 4.0]}},
                        {
                            "kind": "ramp",
                            "from_rps": {"uniform": [8.0, 40.0]},
                            "to_rps": {"uniform": [8.0, 40.0]},
                            "at_s": 300.0,
                            "ramp_s": {"uniform": [60.0, 900.0]},
                        },
                        {
                            "kind": "flash-crowd",
                            "base_rps": 14.0,
                            "factor": {"uniform": [1.5, 4.0]},
                            "at_s": {"uniform": [300.0, 1200.0]},
                        },
                    ]
                },
                "lengths": {
                    "kind": "named",
                    "name": "azure-conv",
                    "input_scale": {"log_uniform": [0.5, 2.0]},
                    "output_scale": {"log_uniform": [0.5, 2.0]},
                },
            },
            "tick_s": 15.0,
            "ttft_slo_ms": 1500.0,
            "itl_slo_ms": 40.0,
        },
    ),
)
"""All scenarios, in the recommended order."""
