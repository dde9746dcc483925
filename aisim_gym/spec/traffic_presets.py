"""Named traffic: fits to public traces, and textbook rate shapes with chat lengths.

The fits are those of traffic-data.md §4, made from the traces named there;
rates of ``servegen-…``, ``reasoning-r1-day`` and ``arxiv-summarize`` are free choices. The names
are listed with their statistics in docs/workloads.md.
"""

from collections.abc import Mapping
from typing import Any, Literal

PresetName = Literal[
    "azure-chat",
    "azure-code",
    "azure-code-mmpp3",
    "mooncake-conversation",
    "mooncake-toolagent",
    "mooncake-synthetic",
    "arxiv-summarize",
    "servegen-large-day",
    "servegen-small-day",
    "servegen-large-clients",
    "reasoning-r1-day",
    "steady",
    "diurnal",
    "bursty",
    "flash-crowd",
    "ramp",
]

Data = dict[str, Any]


def _mixture(
    weights: tuple[float, ...],
    medians: tuple[float, ...],
    sigmas: tuple[float, ...],
    shortest: int,
    longest: int,
) -> Data:
    return {
        "weights": weights,
        "medians": medians,
        "sigmas": sigmas,
        "min_tokens": shortest,
        "max_tokens": longest,
    }


_CONVERSATIONS: Data = {
    "kind": "sessions",
    "continue_probs": (0.3194, 0.4451, 0.5351, 0.5955, 0.5912, 0.7766, 0.7534),
    "continue_prob_later": 0.8123,
    "gap_median_s": 123.0,
    "gap_sigma": 0.98179,
    "full_cover_prob": 0.84994,
    "growth": _mixture(
        (0.4201, 0.4356, 0.1443), (278.7, 469.1, 5630.2), (1.538, 0.331, 0.6426), 2, 91918
    ),
}
"""Multi-turn chat with one system prompt, as in the Mooncake conversation trace."""

_LARGE_DAY: Data = {
    "kind": "diurnal",
    "mean_rps": 20.0,
    "harmonics": (
        {"amplitude": 0.138, "peak_h": 18.44},
        {"amplitude": 0.0502, "peak_h": 11.93},
        {"amplitude": 0.0395, "peak_h": 3.19},
    ),
    "noise_sigma": 0.2815,
    "noise_tau_h": 3066.0 / 3600.0,
    "cv": 1.194,
}
"""A pool with few large API customers: weak daily pattern, much slow noise."""

PRESETS: Mapping[PresetName, Data] = {
    "azure-chat": {
        "arrivals": {"kind": "wandering", "mean_rps": 5.5304, "sigma": 0.2276, "tau_s": 167.7},
        "lengths": "azure-conv",
    },
    "azure-code": {
        "arrivals": {
            "kind": "on-off",
            "on_s": {"median": 4.416, "sigma": 1.514, "low": 0.05, "high": 39.9},
            "off_s": {"median": 10.733, "sigma": 1.351, "low": 2.0, "high": 217.2},
            "burst_rps": {"median": 10.255, "sigma": 0.473, "high": 52.4},
            "rate_factor": 0.775,
            "cv": 1.633,
        },
        "lengths": "azure-code",
    },
    "azure-code-mmpp3": {
        "arrivals": {
            "kind": "mmpp",
            "rates_rps": (0.0028, 6.8082, 22.45),
            "switch_per_s": (
                (0.0, 0.04494, 0.0019),
                (0.16212, 0.0, 0.08208),
                (0.06269, 0.37375, 0.0),
            ),
        },
        "lengths": "azure-code",
    },
    "mooncake-conversation": {
        "arrivals": {"kind": "poisson", "rate_rps": 3.3991},
        "lengths": "mooncake-conversation-start",
        "prompts": _CONVERSATIONS,
    },
    "mooncake-toolagent": {
        "arrivals": {"kind": "poisson", "rate_rps": 6.558},
        "classes": (
            {
                "share": 0.4839,
                "lengths": {
                    "kind": "mixture",
                    "input": _mixture(
                        (0.1488, 0.1275, 0.7236),
                        (906.0, 1210.9, 9024.4),
                        (0.02, 0.1796, 0.9491),
                        891,
                        126195,
                    ),
                    "output": _mixture((0.1553, 0.8447), (49.3, 424.2), (1.2893, 0.3333), 9, 1048),
                    "input_scale": 0.816,
                },
                "prompts": _CONVERSATIONS,
            },
            {
                "share": 0.3763,
                "lengths": {
                    "kind": "mixture",
                    "input": _mixture((0.3106, 0.6894), (26.9, 438.9), (0.094, 1.1595), 24, 2036),
                    "output": _mixture((0.6286, 0.3714), (3.0, 32.3), (0.02, 0.2451), 3, 53),
                },
                "prompts": {
                    "kind": "groups",
                    "groups": 1,
                    "prefix_blocks": 12,
                    "adds_to_input": True,
                },
            },
            {
                "share": 0.1398,
                "lengths": {
                    "kind": "mixture",
                    "input": _mixture((1.0,), (602.5,), (0.1758,), 455, 912),
                    "output": _mixture((1.0,), (20.6,), (0.1093,), 16, 24),
                },
                "prompts": {
                    "kind": "groups",
                    "groups": 1,
                    "prefix_blocks": 5,
                    "adds_to_input": True,
                },
            },
        ),
    },
    "mooncake-synthetic": {
        "arrivals": {"kind": "poisson", "rate_rps": 3.9069},
        "lengths": "mooncake-synthetic",
    },
    "arxiv-summarize": {
        "arrivals": {"kind": "poisson", "rate_rps": 2.0},
        "lengths": "arxiv-summarize",
    },
    "servegen-large-day": {
        "arrivals": _LARGE_DAY,
        "lengths": "servegen-large",
        "prompts": {
            "kind": "groups",
            "groups": 162,
            "zipf": 2.1864,
            "zipf_shift": 7.8712,
            "prefix_blocks": 1,
            "block_tokens": 512,
        },
    },
    "servegen-small-day": {
        "arrivals": {
            "kind": "diurnal",
            "mean_rps": 60.0,
            "harmonics": (
                {"amplitude": 0.2259, "peak_h": 16.91},
                {"amplitude": 0.1958, "peak_h": 9.61},
                {"amplitude": 0.0392, "peak_h": 5.67},
            ),
            "noise_sigma": 0.1802,
            "noise_tau_h": 2863.0 / 3600.0,
            "cv": 1.217,
        },
        "lengths": "servegen-small",
        "prompts": {
            "kind": "groups",
            "groups": 43,
            "zipf": 4.1646,
            "zipf_shift": 7.6498,
            "prefix_blocks": 1,
            "block_tokens": 16,
        },
    },
    "servegen-large-clients": {
        "arrivals": {
            "kind": "clients",
            "rate": {**_LARGE_DAY, "cv": 1.0},
            "clients": 162,
            "zipf": 2.1864,
            "zipf_shift": 7.8712,
            "cv_median": 1.168,
            "cv_sigma": 0.815,
        },
        "lengths": {
            "kind": "clients",
            "input_median": 677.9,
            "input_sigma": 1.111,
            "input_cv": 0.457,
            "output_median": 64.15,
            "output_sigma": 1.504,
            "output_cv": 0.817,
            "log_correlation": 0.495,
            "max_input_tokens": 31378,
            "max_output_tokens": 9328,
        },
        "prompts": {"kind": "clients", "prefix_blocks": 1},
    },
    "reasoning-r1-day": {
        "arrivals": {
            "kind": "diurnal",
            "mean_rps": 16.0,
            "harmonics": (
                {"amplitude": 0.5051, "peak_h": 0.6},
                {"amplitude": 0.1477, "peak_h": 0.75},
                {"amplitude": 0.0576, "peak_h": 3.76},
            ),
            "noise_sigma": 0.3063,
            "noise_tau_h": 2002.0 / 3600.0,
            "cv": 1.02,
        },
        "lengths": "reasoning-r1",
    },
    "steady": {
        "arrivals": {"kind": "poisson", "rate_rps": 8.0},
        "lengths": "azure-conv",
    },
    "diurnal": {
        "arrivals": {
            "kind": "diurnal",
            "mean_rps": 8.0,
            "day_s": 3600.0,
            "noise_sigma": 0.18,
            "noise_tau_h": 2900.0 / 3600.0,
            "cv": 1.1,
        },
        "lengths": "azure-conv",
    },
    "bursty": {
        "arrivals": {
            "kind": "mmpp",
            "rates_rps": (4.0, 24.0),
            "switch_per_s": ((0.0, 0.01), (0.04, 0.0)),
        },
        "lengths": "azure-conv",
    },
    "flash-crowd": {
        "arrivals": {"kind": "flash-crowd", "base_rps": 6.0, "factor": 3.0, "at_s": 900.0},
        "lengths": "azure-conv",
    },
    "ramp": {
        "arrivals": {
            "kind": "ramp",
            "from_rps": 4.0,
            "to_rps": 12.0,
            "at_s": 600.0,
            "ramp_s": 1200.0,
        },
        "lengths": "azure-conv",
    },
}
"""Fields of the ``TrafficSpec`` of each preset."""
