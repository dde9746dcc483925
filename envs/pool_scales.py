"""Scales that normalise the numbers of a fleet."""

import numpy as np
from numpy.typing import NDArray

from aisim_gym.fleet.readings import PoolScale
from aisim_gym.fleet.tables import DECODE, PREFILL
from aisim_gym.replay import FleetDescription, Pool, RoleDescription


def pools_of(fleet: FleetDescription) -> dict[str, tuple[Pool, RoleDescription]]:
    """Return the pools by observation name, prefill first.

    The only pool of an aggregated fleet is called ``workers``.
    """
    if fleet.prefill is None:
        return {"workers": ("decode", fleet.decode)}
    return {"prefill": ("prefill", fleet.prefill), "decode": ("decode", fleet.decode)}


def most_workers(fleet: FleetDescription, pool: Pool) -> int:
    """Return the maximum workers of a pool.

    Raises:
        ValueError: If there is no limit, because spaces have a fixed size.
    """
    _, most = fleet.limits.of_pool(pool)
    if most is None:
        raise ValueError(f"max_workers: got None for {pool}, expected a limit: spaces are bounded")
    return int(most)


def most_gpus(fleet: FleetDescription) -> int:
    """Return the maximum GPUs of targets: ``max_gpus``, or those of the maximum workers."""
    if fleet.limits.max_gpus is not None:
        return int(fleet.limits.max_gpus)
    pools = pools_of(fleet).values()
    return sum(most_workers(fleet, pool) * role.gpus_per_worker for pool, role in pools)


def pool_scales(fleet: FleetDescription) -> list[PoolScale]:
    """Return the scale of each pool, in the order of :func:`pools_of`."""
    gpus = max(1, most_gpus(fleet))
    return [
        PoolScale(
            pool_id=PREFILL if pool == "prefill" else DECODE,
            max_workers=float(max(1, most_workers(fleet, pool))),
            max_batched_tokens=float(role.max_batched_tokens),
            max_kv_tokens=float(role.max_kv_tokens),
            gpu_frac=role.gpus_per_worker / gpus,
            dp_size=float(role.dp_size),
        )
        for pool, role in pools_of(fleet).values()
    ]


def scale_table(scales: list[PoolScale]) -> NDArray[np.float64]:
    """Return the scales as an array for compiled code, shape (pools, 6)."""
    return np.array(scales, np.float64)
