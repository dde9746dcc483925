"""Generate the arrivals, lengths and prompts of a ``TrafficSpec``.

The models and their formulas are in docs/workloads.md.
"""

from aisim_gym.workload.traffic.expectations import longest_traffic_request, traffic_rate_rps
from aisim_gym.workload.traffic.stream import generate_traffic, stream_requests

__all__ = [
    "generate_traffic",
    "longest_traffic_request",
    "stream_requests",
    "traffic_rate_rps",
]
