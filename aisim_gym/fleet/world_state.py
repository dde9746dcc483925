"""Python-side storage of the tables of a run: creation, growth, copying and saving."""

from collections.abc import Collection, Mapping
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.slices import make_heads
from aisim_gym.engine.tables import EngineRow
from aisim_gym.errors import InternalError
from aisim_gym.fleet.world import World
from aisim_gym.fleet.worlds import WORLD_TYPES
from aisim_gym.metrics.gap_statistics import (
    GAP,
    NUM_SAMPLES,
    RATE,
    StatisticsRow,
    merged_statistics,
)
from aisim_gym.metrics.token_log import settle_entries
from aisim_gym.table_shapes import Declaration, Given, Growing, Per, declarations
from aisim_gym.tables import (
    IS_CHECKED,
    Table,
    copy_array,
    copy_table,
    grow_array,
    is_damaged,
    make_array,
)

DECLARED: Mapping[str, Declaration] = {
    name: declared for name, declared in declarations(World).items() if declared.is_kept
}
"""The tables that form the state of a run, as declared by ``World``."""

_LINKS = {
    name: declared.axes[0].link
    for name, declared in DECLARED.items()
    if isinstance(declared.axes[0], Growing) and declared.axes[0].link is not None
}
"""What puts the rows of a table into its free list."""

_BY_NUMBER = {declared.number: declared for declared in DECLARED.values()}


class WorldState:
    """All tables of a run; :attr:`world` passes them to compiled code.

    Attributes:
        tables: Tables by name. A world field that is a row is stored here as a one-row table.
    """

    tables: dict[str, NDArray[Any]]

    def __init__(self, tables: Mapping[str, NDArray[Any]]) -> None:
        """Create a state from all tables that ``World`` declares."""
        self.tables = dict(tables)
        self._world: World | None = None

    @classmethod
    def make(
        cls,
        counts: Mapping[str, int],
        given: Mapping[str, Any],
        *,
        first_rows: Mapping[str, int],
        left_out: Collection[str] = (),
    ) -> Self:
        """Return a state with zero-filled tables, except those given.

        Args:
            counts: Number of rows for each kind of entity.
            given: Tables by name; the state takes ownership.
            first_rows: Initial rows of growing tables, overriding the declared numbers.
            left_out: Tables to create without rows.
        """
        tables = {}
        for name, declared in DECLARED.items():
            if name in given:
                tables[name] = _adopted(given[name], declared)
                continue
            sizes = {} if name in left_out else counts
            first, axes = first_rows.get(name), declared.axes
            if len(axes) == 1:
                tables[name] = make_array(declared.dtype, _length(axes[0], sizes, first))
            else:
                shape = [_length(axis, sizes, first) for axis in axes]
                tables[name] = make_array(declared.dtype, *shape)
        for name in ("entry_heads", "break_heads"):
            tables[name][:] = make_heads()
        arena = tables["arena"][0]
        for name, link in _LINKS.items():
            link(tables[name][:0], tables[name], arena)
        return cls(tables)

    @property
    def world(self) -> World:
        """The tables as one table set; valid until one grows or is replaced."""
        if self._world is None:
            members: dict[str, Any] = {
                name: table[0] if DECLARED[name].is_row else table
                for name, table in self.tables.items()
            }
            decode_times_ms, prefill_times_ms = pass_times_ms(members["engines"])
            self._world = WORLD_TYPES[int(members["options"].backend)](
                **members, decode_times_ms=decode_times_ms, prefill_times_ms=prefill_times_ms
            )
        return self._world

    @classmethod
    def from_tables(cls, tables: Mapping[str, NDArray[Any]]) -> Self:
        """Create a state from tables by name; structured arrays become record arrays.

        Raises:
            KeyError: If a table is missing.
            ValueError: If the columns of a table differ from those of this version.
        """
        restored = {}
        for name, declared in DECLARED.items():
            if tables[name].dtype.names != declared.dtype.names or (
                tables[name].dtype.itemsize != declared.dtype.itemsize
            ):
                raise ValueError(f"table {name}: other columns than in this version")
            restored[name] = _adopted(tables[name], declared)
        return cls(restored)

    def replace(self, name: str, table: Any) -> None:
        """Replace a table."""
        self.tables[name] = table
        self._world = None

    def gap_statistics(self) -> tuple[Table[StatisticsRow], NDArray[np.int64]]:
        """Return moments and buckets of the token gaps of all requests completed so far.

        Returns:
            Rows ``GAP`` and ``RATE``, and the buckets of both, shape (NUM_SAMPLES, NUM_BUCKETS).
        """
        w = self.world
        logs, entries = copy_table(w.token_logs), copy_table(w.log_entries)
        statistics, buckets = copy_table(w.statistics), w.buckets.copy()
        for i in np.flatnonzero(logs["first"] < logs["next"]).tolist():
            gaps = statistics[NUM_SAMPLES * (i + 1) + GAP]
            rates = statistics[NUM_SAMPLES * (i + 1) + RATE]
            settle_entries(logs[i], entries, gaps, rates, buckets, int(logs[i].next), True)
        return merged_statistics(statistics), buckets

    def copy(self) -> Self:
        """Return an independent copy."""
        self.check_guards()
        return type(self)(
            {
                name: table if _is_shared(DECLARED[name]) else copy_array(table)
                for name, table in self.tables.items()
            }
        )

    def plain_tables(self) -> dict[str, NDArray[Any]]:
        """Return the tables by name as plain structured arrays, for saving to a file."""
        self.check_guards()
        return {name: np.asarray(table) for name, table in self.tables.items()}

    def check_guards(self) -> None:
        """Detect writes past the end of a table in a checked build; otherwise do nothing.

        Raises:
            InternalError: If a guard row was overwritten.
        """
        if not IS_CHECKED:
            return
        own = {n: table for n, table in self.tables.items() if not _is_shared(DECLARED[n])}
        own["decode_times_ms"] = self.world.decode_times_ms
        own["prefill_times_ms"] = self.world.prefill_times_ms
        damaged = [name for name, table in own.items() if is_damaged(table)]
        if damaged:
            raise InternalError(
                f"internal error: memory behind {', '.join(damaged)} was written at "
                f"{self.world.clock.now_ms} ms (please report this, with the run that led to it)"
            )

    def grow(self) -> None:
        """Grow the tables as requested by compiled code (``fleet/room.py``)."""
        asked = self.world.resume
        declared, amount = _BY_NUMBER[int(asked.room_table)], int(asked.room_amount)
        axis = declared.axes[0]
        if isinstance(axis, Growing):
            old = self.tables[declared.name]
            grown = grow_array(old, axis.grown(len(old), amount))
            if axis.link is not None:
                axis.link(old, grown, self.tables["arena"][0])
            self.replace(declared.name, grown)
            return
        assert isinstance(axis, Per)
        count = max(amount, 2 * axis.count(len(self.tables[declared.name])))
        self._grow_all(axis.kind, count)

    def _grow_all(self, kind: str, count: int) -> None:
        """Grow all tables with rows per entity of a kind to ``count`` entities."""
        for name, declared in DECLARED.items():
            axis, table = declared.axis_per(kind), self.tables[name]
            if axis is None:
                continue
            per = declared.axes[axis]
            assert isinstance(per, Per)
            if not (per.is_optional and table.shape[axis] == 0):
                self.replace(name, grow_array(table, per.length(count), axis))


def _length(axis: Any, counts: Mapping[str, int], first_rows: int | None) -> int:
    """Return the length of an axis; ``counts`` is empty for a table that is left out."""
    if isinstance(axis, int):
        return axis
    if isinstance(axis, Per):
        return axis.length(counts[axis.kind]) if counts else 0
    if isinstance(axis, Growing):
        first = axis.first if first_rows is None else first_rows
        return first if counts else 0
    raise TypeError(f"a table whose shape is given must be given: {axis}")


def _adopted(table: Any, declared: Declaration) -> NDArray[Any]:
    """Return an external table for use in a state; in a checked build, a guarded copy."""
    array = np.asarray(table)
    if _is_shared(declared):
        return array
    if IS_CHECKED:
        return copy_array(array)
    if declared.dtype.names is None or isinstance(table, np.recarray):
        return cast(NDArray[Any], table)
    return array.view(declared.dtype).view(np.recarray)


def _is_shared(declared: Declaration) -> bool:
    return isinstance(declared.axes[0], Given) and declared.axes[0].is_shared


_MOST_DECODE_TIMES, _MOST_PREFILL_TIMES = 1 << 21, 1 << 18
"""Sizes of the pass-time tables, per role: 16 MB and 2 MB; only used pages take memory."""

_pass_times_ms: dict[bytes, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}


def pass_times_ms(
    engines: Table[EngineRow],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the decode and prefill time tables of two roles.

    All worlds with the same timing share these tables.
    """
    timing = ("num_blocks", "block_size", "timing", "fixed_decode_ms", "decode_speedup")
    rows = np.asarray(engines)
    columns = (rows[name] for name in (*timing, "prefill_speedup"))
    key = b"".join(np.ascontiguousarray(column).tobytes() for column in columns)
    if key not in _pass_times_ms:
        tokens = int((rows["num_blocks"] * rows["block_size"]).max()) + 1
        _pass_times_ms[key] = (
            make_array(np.float64, len(rows), min(tokens, _MOST_DECODE_TIMES)),
            make_array(np.float64, len(rows), min(tokens, _MOST_PREFILL_TIMES)),
        )
    return _pass_times_ms[key]
