"""An observation with a row per data-parallel rank, for policies that use per-worker data."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from aisim_gym.envs.observation import SummaryObservation
from aisim_gym.envs.pool_scales import most_workers, pool_scales, pools_of, scale_table
from aisim_gym.envs.tick_view import TickView
from aisim_gym.fleet.entries import write_ranks
from aisim_gym.replay import FleetDescription

RANK_ENTRIES = (
    ("reported", "1: the rank finished a pass since the last tick"),
    ("queued_prefill", "requests, log scale to 10 000"),
    ("queued_prefill_tokens", "tokens, log scale to 10^8"),
    ("queued_decode", "requests, log scale to 10 000"),
    ("queued_decode_tokens", "KV tokens, log scale to 10^8"),
    ("prefill_requests", "requests, log scale to 10 000"),
    ("decode_requests", "requests, log scale to 10 000"),
    ("batch_tokens", "prompt tokens / token budget"),
    ("kv_used", "KV tokens / KV capacity of the rank"),
    ("pass_time", "seconds / 0.5"),
)
"""Name and unit of the columns of a rank; all are 0 for a rank without a report."""


class PerRankObservation:
    """A ``Dict`` of the summary vector and, for each pool, a table of its ranks and a mask.

    =================  ==========================  =============================================
    key                space                       what
    =================  ==========================  =============================================
    ``fleet``          Box, shape (d,)             the vector of ``summary``
    ``<pool>``         Box, shape (rows * 10,)     a row per rank, :data:`RANK_ENTRIES`
    ``<pool>_mask``    MultiBinary(rows)           1: the row is a rank of an active worker
    =================  ==========================  =============================================

    Pools are ``prefill`` and ``decode``, or ``workers`` in an aggregated fleet. A pool has
    ``max_workers * dp_size`` rows: active workers by ascending id, ranks of a worker in order, then
    rows of zeros. Starting and draining workers have no rows; ``fleet`` has their counts.

    Rows are concatenated in one vector, as Stable-Baselines3 requires; with ``flat=False`` the
    table is a matrix, shape (rows, 10).

    Attributes:
        names: By key, the names of the entries (``fleet``) or columns (pools).
        units: By key, their units.
    """

    def __init__(self, fleet: FleetDescription, flat: bool = True) -> None:
        """Build the observation for a fleet with limits and service levels.

        Args:
            fleet: Fleet whose ranks have rows.
            flat: Whether the rows of a pool form one vector rather than a matrix.
        """
        if not isinstance(flat, bool):
            raise TypeError(f"flat: got {flat!r}, expected True or False")
        self._flat = flat
        self._summary = SummaryObservation(fleet)
        self._scale_table = scale_table(pool_scales(fleet))
        self._rows = {
            name: most_workers(fleet, pool) * role.dp_size
            for name, (pool, role) in pools_of(fleet).items()
        }
        self._first_rows = np.cumsum([0, *self._rows.values()], dtype=np.int64)
        assert fleet.ttft_slo_ms is not None
        assert fleet.itl_slo_ms is not None
        self._slo_ms = (float(fleet.ttft_slo_ms), float(fleet.itl_slo_ms))
        names, units = zip(*RANK_ENTRIES, strict=True)
        self.names = {"fleet": self._summary.names, **dict.fromkeys(self._rows, names)}
        self.units = {"fleet": self._summary.units, **dict.fromkeys(self._rows, units)}

    def space(self) -> spaces.Dict:
        """Return the spaces by key."""
        by_key: dict[str, spaces.Space[Any]] = {"fleet": self._summary.space()}
        for name, rows in self._rows.items():
            shape = self._shaped(np.empty((rows, len(RANK_ENTRIES)))).shape
            by_key[name] = spaces.Box(0.0, 1.0, shape, np.float32)
            by_key[f"{name}_mask"] = spaces.MultiBinary(rows)
        return spaces.Dict(by_key)

    def observe(self, view: TickView) -> dict[str, Any]:
        """Return vector, tables and masks."""
        first_rows, step = self._first_rows, view.step
        summary = np.empty(len(self._summary.names))
        ranks = np.zeros((first_rows[-1], len(RANK_ENTRIES)))
        mask = np.zeros(first_rows[-1], np.int8)
        write_ranks(
            view.world,
            self._scale_table,
            *self._slo_ms,
            step.mean_overdue,
            step.bad_frac,
            view.horizon_ms,
            summary,
            first_rows,
            ranks,
            mask,
        )
        seen: dict[str, Any] = {"fleet": summary}
        first = 0
        for name, rows in self._rows.items():
            seen[name] = self._shaped(ranks[first : first + rows])
            seen[f"{name}_mask"] = mask[first : first + rows]
            first += rows
        return seen

    def _shaped(self, table: NDArray[Any]) -> NDArray[Any]:
        return table.reshape(-1) if self._flat else table
