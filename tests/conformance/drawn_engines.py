"""Random engine settings, all of them valid, for runs against the reference (Hypothesis)."""

from typing import Any

from hypothesis import strategies as st

BLOCK_SIZES = {"vllm": (4, 2, 8, 16), "trtllm": (4, 2, 8, 16), "sglang": (4, 1, 2, 8)}

POOL_TOKENS = (8000, 16, 32, 48, 64, 96, 160, 256, 400, 800)
"""KV pools of one rank, from ample to tiny."""

SCARCE_POOL_TOKENS = (64, 40, 50, 80, 100, 150)
"""Pools in which a few requests collide."""

FIXED_MS = st.sampled_from([4.0, 0.0, 1.0, 2.5, 3.0, 7.5, 10.0])
TIMINGS = st.one_of(
    st.just({"type": "polynomial"}),
    st.fixed_dictionaries(
        {"type": st.just("fixed"), "prefill_ms": FIXED_MS, "decode_ms": FIXED_MS}
    ),
)
SPEEDUPS = st.sampled_from([1.0, 1.0, 1.0, 0.0, 0.5, 1.3, 2.0, 3.7])
FEW_TOKENS = (None, None, 4, 6, 8, 16, 32, 64, 200)
ACCEPT_RATES = st.sampled_from(["1,1", "1", "0", "1,0", "0.5", "0.8,0.6,0.4", "0.85,0.3,1"])


def seldom(draw: st.DrawFn, percent: int) -> bool:
    """Return True so often; shrinks to False."""
    return draw(st.integers(0, 99)) >= 100 - percent


def is_kept(draw: st.DrawFn) -> bool:
    """Return True nearly always; shrinks to False, so that lists lose what does not matter."""
    return draw(st.integers(0, 29)) > 0


@st.composite
def launch_configs(
    draw: st.DrawFn,
    backend: str,
    worker_type: str,
    block_size: int,
    *,
    is_scarce: bool,
) -> dict[str, Any]:
    """Draw the launch config of one role.

    Args:
        draw: Hypothesis.
        backend: Name of the backend.
        worker_type: Role.
        block_size: Of both roles.
        is_scarce: Whether only KV blocks are short.
    """
    dp_size = draw(st.sampled_from([1, 1, 1, 1, 2, 3]))
    pools = SCARCE_POOL_TOKENS if is_scarce else POOL_TOKENS
    engine: dict[str, Any] = {
        "backend": backend,
        "worker_type": worker_type,
        "block_size": block_size,
        "num_gpu_blocks": max(2, draw(st.sampled_from(pools)) // block_size),
        "timing_model": draw(TIMINGS),
        "speedup_ratio": draw(SPEEDUPS),
        "enable_prefix_caching": draw(st.sampled_from([True] * 5 + [False])),
        **({} if is_scarce else draw(_limits())),
        **draw(_schedulers(backend, block_size, dp_size)),
    }
    if seldom(draw, 30):
        engine |= draw(_drafting())
    else:
        engine["decode_speedup_ratio"] = draw(SPEEDUPS)
    if worker_type != "aggregated" and seldom(draw, 60):
        engine |= draw(_transfers())
    return {
        "engine": engine,
        "dp_size": dp_size,
        "tensor_parallel_size": draw(st.sampled_from([1, 1, 2])),
        "startup_time": draw(st.sampled_from([None, 0.0, 0.01, 0.0375, 0.2, 5.0])),
    }


def _limits() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "max_num_seqs": st.sampled_from([256, None, 1, 2, 3, 5, 8]),
            "max_model_len": st.sampled_from([None] * 12 + [16, 30, 60, 100, 150]),
        }
    )


@st.composite
def _schedulers(draw: st.DrawFn, backend: str, block_size: int, dp_size: int) -> dict[str, Any]:
    """Draw what only one backend knows."""
    if backend == "sglang":
        least = -(-dp_size // block_size)  # every rank gets a share of at least one token
        blocks = draw(st.sampled_from([8000, 1, 2, 3, 6, 16]))
        return {
            "prefill_decode_interval": draw(st.sampled_from([0] * 5 + [1, 2, 5])),
            "sglang": {
                "schedule_policy": draw(st.sampled_from(["fifo", "lpm"])),
                "chunked_prefill_size": max(least, blocks) * block_size,
                "max_prefill_tokens": draw(st.sampled_from([16384] * 4 + [200, 100, 40, 17])),
                "clip_max_new_tokens": draw(st.sampled_from([4096, 4096, 0, 1, 4, 10])),
                "schedule_conservativeness": draw(st.sampled_from([1.0, 1.0, 0.0, 0.3, 0.7, 1.7])),
            },
        }
    settings: dict[str, Any] = {
        "max_num_batched_tokens": draw(st.sampled_from(FEW_TOKENS)),
        "enable_chunked_prefill": draw(st.sampled_from([True] * 6 + [False])),
    }
    if backend == "vllm":
        settings["preemption_mode"] = draw(st.sampled_from(["lifo", "fifo"]))
        settings["prefill_schedule_interval"] = draw(st.sampled_from([1, 1, 1, 2, 3, 5]))
    return settings


def _drafting() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"aic_nextn": st.integers(1, 5)},
        optional={
            "aic_nextn_accept_rates": ACCEPT_RATES,
            "aic_mtp_seed": st.integers(0, 2**64 - 1),
        },
    )


def _transfers() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "kv_transfer_bytes_per_token": st.sampled_from([1_000_000, 1000, 333_333]),
            "kv_transfer_bandwidth": st.sampled_from([1.0, 0.0, 0.2, 0.5, 3.0, 100.0]),
            "kv_transfer_timing_mode": st.sampled_from(["full_prompt", "destination_missing"]),
        }
    )
