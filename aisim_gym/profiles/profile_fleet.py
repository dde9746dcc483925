"""Build the fleet table of an engine profile for environments and specifications."""

import os
from typing import Any, Literal

from aisim_gym.profiles.engine_profile import load_profile

KV_TRANSFER_GB_S = 50.0
"""One network port of 400 Gbit/s per worker, decimal GB/s."""


def profile_fleet(
    name: str | os.PathLike[str],
    kind: Literal["agg", "disagg"] = "agg",
    *,
    workers: int = 2,
    prefill_workers: int = 1,
    decode_workers: int = 2,
    kv_transfer_gb_s: float = KV_TRANSFER_GB_S,
    startup_s: float | None = None,
) -> dict[str, Any]:
    """Return the ``fleet`` table of a spec or an environment.

    Args:
        name: Name or path of the profile.
        kind: Topology.
        workers: Initial workers, for ``agg``.
        prefill_workers: Initial prefill workers, for ``disagg``.
        decode_workers: Initial decode workers, for ``disagg``.
        kv_transfer_gb_s: Bandwidth of a handoff, decimal GB/s, for ``disagg``.
        startup_s: Seconds until a new worker is active; None = the profile's value.

    Raises:
        SpecError: If the profile does not exist.
        ValueError: If ``kind`` is unknown.

    Example:
        >>> profile_fleet("h100-llama31-8b", workers=3)
        {'kind': 'agg', 'num_workers': 3, 'engine': {'engine': {'profile': 'h100-llama31-8b'}}}
    """
    load_profile(name)
    profile = os.fspath(name)
    launch = {} if startup_s is None else {"startup_time": startup_s}
    if kind == "agg":
        engine = {**launch, "engine": {"profile": profile}}
        return {"kind": "agg", "num_workers": workers, "engine": engine}
    if kind != "disagg":
        raise ValueError(f"kind: got {kind!r}, expected 'agg' or 'disagg'")
    transfer = {"kv_transfer_bandwidth": kv_transfer_gb_s}
    return {
        "kind": "disagg",
        "num_prefill_workers": prefill_workers,
        "num_decode_workers": decode_workers,
        "prefill": {**launch, "engine": {"profile": profile, **transfer}},
        "decode": {**launch, "engine": {"profile": profile}},
    }
