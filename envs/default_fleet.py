"""The fleets that environments start with when no other is given.

Reference polynomial timing, one GPU per worker, 30 s of startup, 131 072 tokens of KV per worker.
"""

from typing import Any

STARTUP_S = 30.0


def _launch(worker_type: str) -> dict[str, Any]:
    engine = {
        "worker_type": worker_type,
        "num_gpu_blocks": 2048,
        "block_size": 64,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
    }
    return {"engine": engine, "startup_time": STARTUP_S}


def default_aggregated_fleet() -> dict[str, Any]:
    """Return three workers that prefill and decode."""
    return {"kind": "agg", "num_workers": 3, "engine": _launch("aggregated")}


def default_disaggregated_fleet() -> dict[str, Any]:
    """Return one prefill and two decode workers."""
    return {
        "kind": "disagg",
        "num_prefill_workers": 1,
        "num_decode_workers": 2,
        "prefill": _launch("prefill"),
        "decode": _launch("decode"),
    }
