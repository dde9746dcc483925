"""Observations: convert a tick to the agent's input.

An observation object has two methods, ``space()`` and ``observe(view)``, where ``view`` is a
:class:`TickView`: ``view.snapshot`` is the planner's snapshot, ``view.step`` the outcome since the
last tick. The environment casts the result to the space, clips it (``info["obs_clipped"]`` counts)
and rejects NaN. A stateful object also has a method ``begin_episode()``. The named observations are
listed in :mod:`aisim_gym.envs.observer`.

Example: two queue lengths instead of the default vector.

    >>> import gymnasium
    >>> import numpy as np
    >>> from gymnasium.spaces import Box
    >>> import aisim_gym.envs
    >>> class QueueLengths:
    ...     def space(self):
    ...         return Box(0.0, 1000.0, (2,), np.float32)
    ...     def observe(self, view):
    ...         pools = (view.snapshot.prefill, view.snapshot.decode)
    ...         prefill = sum(fpm.num_queued_prefill for fpm in pools[0].fpms)
    ...         decode = sum(fpm.num_queued_decode for fpm in pools[1].fpms)
    ...         return [prefill, decode]
    >>> env = gymnasium.make("aisim_gym/Disaggregated-v0", observation=QueueLengths())
    >>> observation, info = env.reset(seed=1)
    >>> observation.shape, observation.dtype
    ((2,), dtype('float32'))
    >>> env.close()
"""

from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from aisim_gym.envs.pool_scales import pool_scales, pools_of, scale_table
from aisim_gym.envs.tick_view import TickView
from aisim_gym.fleet.entries import write_summary
from aisim_gym.replay import FleetDescription

POOL_ENTRIES = (
    ("active", "workers / max_workers"),
    ("starting", "workers / max_workers"),
    ("draining", "workers / max_workers"),
    ("queued_requests", "log scale to 10 000"),
    ("queued_tokens", "log scale to 10^8"),
    ("running_requests", "log scale to 10 000"),
    ("batch_tokens", "prompt tokens / token budget"),
    ("kv_used", "KV tokens / KV capacity"),
    ("pass_time", "seconds / 0.5"),
)
"""Name and unit of the entries of a pool. Engine entries are sums over the latest pass of every
reporting worker, shares and times are means; they are 0 if no worker reported."""

FLEET_ENTRIES = (
    ("request_rate", "requests/s, log scale to 1000"),
    ("completion_rate", "requests/s, log scale to 1000"),
    ("in_flight", "requests, log scale to 10 000"),
    ("overdue", "requests, log scale to 10 000"),
    ("bad", "share of the requests that ended"),
    ("mean_input", "tokens, log scale to 10^6"),
    ("mean_output", "tokens, log scale to 10^6"),
    ("ttft", "mean / limit / 4"),
    ("itl", "mean / limit / 4"),
    ("gpus", "share of the most GPUs"),
    ("time", "share of the horizon"),
)
"""Name and unit of the entries after the pools. Lengths and latencies are means over completed
requests, 0 if none completed."""


class Observation(Protocol):
    """Interface of observation objects."""

    def space(self) -> spaces.Space[Any]:
        """Return the observation space."""
        ...

    def observe(self, view: TickView) -> Any:
        """Return the observation at a tick, or at the end of the episode."""
        ...


class SummaryObservation:
    """Workers, forward-pass metrics and traffic as one vector of numbers in 0..1.

    The entries of :data:`POOL_ENTRIES` for each pool (prefill first), then those of
    :data:`FLEET_ENTRIES`. A log scale to ``m`` is ``log(1 + x) / log(1 + m)``. Active and starting
    workers together are the current target of a pool.

    Attributes:
        names: Name of each entry, e.g. ``decode_kv_used``.
        units: Unit of each entry.
    """

    def __init__(self, fleet: FleetDescription) -> None:
        """Build the observation for a fleet with limits and service levels."""
        assert fleet.ttft_slo_ms is not None
        assert fleet.itl_slo_ms is not None
        scales = pool_scales(fleet)
        self._scale_table = scale_table(scales)
        self._ttft_slo_ms = float(fleet.ttft_slo_ms)
        self._itl_slo_ms = float(fleet.itl_slo_ms)
        self.names = tuple(f"{pool}_{name}" for pool in pools_of(fleet) for name, _ in POOL_ENTRIES)
        self.names += tuple(name for name, _ in FLEET_ENTRIES)
        self.units = tuple(unit for _, unit in POOL_ENTRIES) * len(scales)
        self.units += tuple(unit for _, unit in FLEET_ENTRIES)

    def space(self) -> spaces.Box:
        """Return the unit box."""
        return spaces.Box(0.0, 1.0, (len(self.names),), np.float32)

    def observe(self, view: TickView) -> NDArray[np.float64]:
        """Return the entries."""
        values = np.empty(len(self.names))
        step = view.step
        write_summary(
            view.world,
            self._scale_table,
            self._ttft_slo_ms,
            self._itl_slo_ms,
            step.mean_overdue,
            step.bad_frac,
            view.horizon_ms,
            values,
        )
        return values


def begin_episode(observation: Observation) -> None:
    """Reset a stateful observation object for a new episode."""
    begin = getattr(observation, "begin_episode", None)
    if begin is not None:
        begin()
