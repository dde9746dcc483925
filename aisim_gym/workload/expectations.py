"""Expected rate and longest request of a generator, without generating the requests."""

import math

import numpy as np

from aisim_gym.number_text import number_text
from aisim_gym.spec.generator import GeneratorSpec
from aisim_gym.spec.traffic import TrafficSpec
from aisim_gym.workload.generator import CHAT_INPUT, CHAT_OUTPUT, LengthShape
from aisim_gym.workload.traffic import longest_traffic_request, traffic_rate_rps


def mean_rate_rps(spec: GeneratorSpec | TrafficSpec) -> float:
    """Return the expected requests per second over the duration.

    The mean is over all seeds, in closed form or by numerical integration of the rate. Two kinds of
    traffic are approximate: ``on-off`` arrivals treat every burst as long (renewal theorem), and
    prompts of kind ``sessions`` count later turns at the time of the first.

    >>> round(mean_rate_rps(TrafficSpec(preset="bursty")), 6)
    8.0
    """
    if isinstance(spec, TrafficSpec):
        return traffic_rate_rps(spec)
    requests = _wave_requests(spec, 0.0, spec.duration_s)
    if spec.spike_at_s is not None:
        spike_end_s = spec.spike_at_s + spec.spike_duration_s
        requests += (spec.spike_factor - 1.0) * _wave_requests(spec, spec.spike_at_s, spike_end_s)
    return requests / spec.duration_s


def longest_request(spec: GeneratorSpec | TrafficSpec) -> tuple[int, int]:
    """Return the longest prompt and the longest output that any seed can give, tokens.

    The two need not belong to the same request.

    >>> longest_request(TrafficSpec(preset="azure-chat", lengths={"max_input_tokens": 4096}))
    (4096, 1000)
    """
    if isinstance(spec, TrafficSpec):
        return longest_traffic_request(spec)
    return (
        _longest(CHAT_INPUT, spec.mean_input_tokens),
        _longest(CHAT_OUTPUT, spec.mean_output_tokens),
    )


def describe_generator(spec: GeneratorSpec | TrafficSpec) -> str:
    """Return a one-line description of a generator: rate, duration, length bounds, seed.

    >>> print(describe_generator(TrafficSpec(preset="steady", seed=7)))
    steady: 8 requests/s (mean) over 3600 s, input <= 14050 tokens, output <= 1000 tokens, seed 7
    """
    name: str = spec.kind
    if isinstance(spec, TrafficSpec):
        name = spec.preset or spec.arrivals.kind
    input_tokens, output_tokens = longest_request(spec)
    return (
        f"{name}: {mean_rate_rps(spec):.4g} requests/s (mean) over {number_text(spec.duration_s)} "
        f"s, input <= {input_tokens} tokens, output <= {output_tokens} tokens, seed {spec.seed}"
    )


def _wave_requests(spec: GeneratorSpec, start_s: float, end_s: float) -> float:
    """Return the integral of the chat wave without its spike."""
    turn = 2.0 * math.pi / spec.period_s
    wave_s = (end_s - start_s - (math.sin(turn * end_s) - math.sin(turn * start_s)) / turn) / 2.0
    swing_rps = spec.peak_rate_rps - spec.base_rate_rps
    return spec.base_rate_rps * (end_s - start_s) + swing_rps * wave_s


def _longest(shape: LengthShape, mean_tokens: float) -> int:
    return int(np.rint(max(1.0, shape.longest * mean_tokens)))
