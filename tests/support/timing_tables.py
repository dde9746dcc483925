"""Random timing tables (``timing_model`` of type ``table``), rough, all of them valid."""

from typing import Any

from hypothesis import strategies as st

DURATIONS_MS = st.sampled_from([5.0, 0.0, 1.0, 7.3, 20.0 / 3.0, 33.3])


@st.composite
def timing_tables(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a table whose grids are smaller than what most runs ask for."""
    row_name, most_rows = draw(st.sampled_from([("sequences", 8), ("active_tokens", 900)]))
    return {
        "type": "table",
        "prefill": _grid(draw, ("new_tokens", 300, 2), ("prefix_tokens", 200, 1)),
        "decode": _grid(draw, (row_name, most_rows, 2), ("context_tokens", 200, 1)),
        "outside": draw(st.sampled_from(["extend", "clamp"])),
    }


def _grid(draw: st.DrawFn, rows: tuple[str, int, int], columns: tuple[str, int, int]) -> Any:
    """Draw a grid; axes are given as name, last position at most, and least number of points."""
    axes = {
        name: sorted(draw(st.lists(st.integers(0, last), min_size=least, max_size=4, unique=True)))
        for name, last, least in (rows, columns)
    }
    num_rows, num_columns = (len(axis) for axis in axes.values())
    return {
        **axes,
        "ms": [[draw(DURATIONS_MS) for _ in range(num_columns)] for _ in range(num_rows)],
    }
