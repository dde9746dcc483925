"""Sample any model of pass durations into a timing table for replays."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from aisim_gym.spec.timing import TableTiming
from aisim_gym.spec.timing_table import Floats, Grid

Duration = Callable[[float, float], Any]
"""A duration in ms, >= 0: of new tokens and mean prefix tokens for a prefill, of sequences and mean
context tokens for a decode. Called point by point; a function of arrays works too."""

NEW_TOKENS = (1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
PREFIX_TOKENS = (0, 2048, 8192, 32768, 131072)
SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTEXT_TOKENS = (16, 256, 1024, 4096, 16384, 65536, 131072)


_ARGUMENTS = {
    "prefill_ms": "(new_tokens, prefix_tokens)",
    "decode_ms": "(sequences, context_tokens)",
}


class PartError(NamedTuple):
    """Relative error of a table against its function at the centres of all cells."""

    mean_frac: float
    max_frac: float


class TableError(NamedTuple):
    """Interpolation errors of prefills and decodes."""

    prefill: PartError
    decode: PartError


def sample_timing(
    prefill_ms: Duration,
    decode_ms: Duration,
    *,
    new_tokens: Sequence[float] = NEW_TOKENS,
    prefix_tokens: Sequence[float] = PREFIX_TOKENS,
    sequences: Sequence[float] = SEQUENCES,
    context_tokens: Sequence[float] = CONTEXT_TOKENS,
) -> TableTiming:
    """Return a timing table sampled from two functions; :func:`interpolation_error` measures it.

    Args:
        prefill_ms: ``(new_tokens, prefix_tokens)``: duration of the prefill part of a pass.
        decode_ms: ``(sequences, context_tokens)``: duration of the decode part.
        new_tokens: Points at which ``prefill_ms`` is sampled, strictly increasing, at least two.
        prefix_tokens: Likewise, at least one; one point ignores prefixes.
        sequences: Points at which ``decode_ms`` is sampled, strictly increasing, at least two.
        context_tokens: Likewise, at least one.

    Raises:
        SpecError: If an axis is not valid.
        TypeError: If an argument is not a function of two numbers, or does not return a number.
        ValueError: If a duration is negative or not finite; names the point.

    Example:
        >>> timing = sample_timing(
        ...     lambda new, prefix: 6.0 + 0.017 * new + 8e-7 * new * (prefix + new / 2),
        ...     lambda sequences, context: 6.3 + 0.013 * sequences + 4e-5 * sequences * context,
        ... )
        >>> round(timing.decode.ms[0][0], 5)
        6.31364
    """
    prefill = _sampled("prefill_ms", prefill_ms, new_tokens, prefix_tokens)
    decode = _sampled("decode_ms", decode_ms, sequences, context_tokens)
    return TableTiming.from_data(
        {
            "prefill": {
                "new_tokens": list(new_tokens),
                "prefix_tokens": list(prefix_tokens),
                "ms": prefill.tolist(),
            },
            "decode": {
                "sequences": list(sequences),
                "context_tokens": list(context_tokens),
                "ms": decode.tolist(),
            },
        }
    )


def interpolation_error(
    timing: TableTiming, prefill_ms: Duration, decode_ms: Duration
) -> TableError:
    """Return the interpolation error of a table between its points.

    Args:
        timing: The sampled table, decodes by sequences.
        prefill_ms: As for :func:`sample_timing`.
        decode_ms: Likewise.

    Raises:
        ValueError: If its decodes are by active tokens, or a function's value is not allowed.
    """
    if not timing.table.rows_are_sequences:
        raise ValueError("timing: got decodes by active_tokens, expected by sequences")
    return TableError(
        _part_error("prefill_ms", timing.table.prefill, prefill_ms),
        _part_error("decode_ms", timing.table.decode, decode_ms),
    )


def _part_error(name: str, grid: Grid, duration: Duration) -> PartError:
    rows, columns = _middles(grid.rows), _middles(grid.columns)
    true_ms = _sampled(name, duration, rows.tolist(), columns.tolist())
    table_ms = grid.at(rows[:, None], columns)
    # Where the function is 0, the relative error is 0 or infinite.
    with np.errstate(divide="ignore"):
        error = np.abs(table_ms - true_ms) / np.where(table_ms == true_ms, 1.0, true_ms)
    return PartError(float(error.mean()), float(error.max()))


def _middles(axis: Floats) -> Floats:
    return axis if len(axis) == 1 else (axis[:-1] + axis[1:]) / 2.0


def _sampled(
    name: str, duration: Duration, rows: Sequence[float], columns: Sequence[float]
) -> Floats:
    _check_function(name, duration)
    ms = np.zeros((len(rows), len(columns)))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            place = f"{name}({row:g}, {column:g})"
            value = np.asarray(duration(row, column))
            if value.dtype.kind not in "fiu" or value.size != 1:
                raise TypeError(f"{place}: got {value.tolist()!r}, expected a number of ms")
            ms[i, j] = value.item()
            if not (np.isfinite(ms[i, j]) and ms[i, j] >= 0.0):
                raise ValueError(f"{place}: got {ms[i, j]} ms, expected >= 0 and finite")
    return ms


def _check_function(name: str, given: object) -> None:
    """Raise TypeError unless ``given`` can be called with two numbers."""
    expected = f"expected a function of {_ARGUMENTS[name]}"
    if not callable(given):
        raise TypeError(f"{name}: got {given!r}, {expected}")
    try:
        parameters = inspect.signature(given)
    except ValueError:  # some built-in functions have no signature
        return
    try:
        parameters.bind(0.0, 0.0)
    except TypeError:
        raise TypeError(f"{name}: got a function of {parameters}, {expected}") from None
