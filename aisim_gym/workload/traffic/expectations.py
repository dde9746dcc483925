"""Expected rate and longest request of generated traffic, before any draw."""

from aisim_gym.spec.prompts import ClientPrompts, GroupPrompts
from aisim_gym.spec.traffic import TrafficClass, TrafficSpec
from aisim_gym.workload.traffic.arrival_segments import mean_arrival_rate
from aisim_gym.workload.traffic.length_draws import longest_lengths
from aisim_gym.workload.traffic.turns import mean_turns


def start_share(spec: TrafficSpec) -> float:
    """Return the number of session starts per request; a single request counts as a session."""
    parts = spec.request_classes
    starts = sum(part.share / mean_turns(part) for part in parts)
    return starts / sum(part.share for part in parts)


def traffic_rate_rps(spec: TrafficSpec) -> float:
    """Return the expected requests per second over the duration (see ``mean_rate_rps``)."""
    share = start_share(spec)
    return mean_arrival_rate(spec.arrivals, spec.duration_s, spec.rate_scale * share) / share


def longest_traffic_request(spec: TrafficSpec) -> tuple[int, int]:
    """Return the longest prompt and the longest output that any seed can give, tokens."""
    inputs, outputs = zip(*map(_longest_of, spec.request_classes), strict=True)
    return max(inputs), max(outputs)


def _longest_of(part: TrafficClass) -> tuple[int, int]:
    input_tokens, output_tokens = longest_lengths(part.lengths)
    if isinstance(part.prompts, GroupPrompts | ClientPrompts) and part.prompts.adds_to_input:
        input_tokens += part.prompts.longest_prefix_tokens
    return input_tokens, output_tokens
