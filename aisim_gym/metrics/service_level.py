"""What it means that a request keeps its limits on latency (replay-runtime.md §15.5).

A request is good if it completed and keeps every limit that applies, bounds included. The functions
take numbers in compiled code, numbers or arrays in Python.
"""

from typing import Any

from aisim_gym.kernel import kernel


@kernel
def keeps_ttft(tokens: Any, ttft_ms: Any, limit_ms: float) -> Any:
    """Return whether the first token came in time; without a token it did not.

    Args:
        tokens: Tokens that reached the client.
        ttft_ms: Arrival to the first token; anything without a token.
        limit_ms: Limit on the time to the first token.
    """
    return (tokens > 0) & (ttft_ms <= limit_ms)


@kernel
def keeps_itl(tokens: Any, mean_gap_ms: Any, limit_ms: float) -> Any:
    """Return whether tokens followed each other fast enough.

    One token has no gap to limit; a request without a token does not keep the limit.

    Args:
        tokens: Tokens that reached the client.
        mean_gap_ms: Mean gap between them; anything for fewer than two.
        limit_ms: Limit on the mean gap between tokens.
    """
    return (tokens == 1) | ((tokens > 1) & (mean_gap_ms <= limit_ms))
