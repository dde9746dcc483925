"""Latency limits of requests (replay-runtime.md §15.5).

A request is good if it is completed and meets every applicable limit, bounds included. The
functions accept numbers in compiled code, and numbers or arrays in Python.
"""

from typing import Any

from aisim_gym.kernel import kernel


@kernel
def keeps_ttft(tokens: Any, ttft_ms: Any, limit_ms: float) -> Any:
    """Return whether the first token meets its limit; False without a token.

    Args:
        tokens: Tokens received by the client.
        ttft_ms: Time from arrival to the first token; ignored without a token.
        limit_ms: Limit on the time to the first token.
    """
    return (tokens > 0) & (ttft_ms <= limit_ms)


@kernel
def keeps_itl(tokens: Any, mean_gap_ms: Any, limit_ms: float) -> Any:
    """Return whether the mean gap between tokens meets its limit.

    A single token has no gap and meets the limit; a request without a token does not.

    Args:
        tokens: Tokens received by the client.
        mean_gap_ms: Mean gap between them; ignored for fewer than two tokens.
        limit_ms: Limit on the mean gap between tokens.
    """
    return (tokens == 1) | ((tokens > 1) & (mean_gap_ms <= limit_ms))
