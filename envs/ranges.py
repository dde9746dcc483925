"""Ranges in place of values, from which every episode draws.

==================================  =====================================================
``{"uniform": [low, high]}``        a real number, low <= x < high ``{"log_uniform": [low, high]}``
the same on a log scale, low > 0 ``{"integers": [low, high]}``       a whole number, both bounds
included ``{"choice": [a, b, …]}``           one of these, which may be tables with further ranges
==================================  =====================================================

A table with exactly one of these keys is a range; it may appear anywhere in a workload that is
generated for every episode.

    >>> import numpy as np
    >>> table = {"kind": "chat-wave", "peak_rate_rps": {"integers": [10, 20]}}
    >>> draw_values(table, np.random.default_rng(4))
    {'kind': 'chat-wave', 'peak_rate_rps': 17}
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from aisim_gym.spec.argument_checks import check_integer, check_number

RANGE_KEYS = ("uniform", "log_uniform", "integers", "choice")
MOST_CORNERS = 1024


def range_places(value: Any, at: str) -> Iterator[str]:
    """Yield the paths of the ranges in ``value``, prefixed with ``at``."""
    if isinstance(value, Mapping):
        if _range_kind(value) is not None:
            yield at
            return
        for name, item in value.items():
            yield from range_places(item, f"{at}.{name}")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from range_places(item, f"{at}[{i}]")


def has_ranges(value: Any) -> bool:
    """Return whether ``value`` contains a range."""
    return next(range_places(value, ""), None) is not None


def draw_values(value: Any, random: np.random.Generator) -> Any:
    """Return ``value`` with every range replaced by a draw, in order of appearance."""
    if isinstance(value, Mapping):
        kind = _range_kind(value)
        if kind is None:
            return {name: draw_values(item, random) for name, item in value.items()}
        return _draw(kind, value[kind], random)
    if isinstance(value, list | tuple):
        return [draw_values(item, random) for item in value]
    return value


def corners(value: Any, at: str) -> Iterator[Any]:
    """Yield ``value`` for all combinations of range ends and choices.

    A condition that is linear in the numbers holds on the whole ranges if it holds at their
    corners.

    Args:
        value: JSON values with ranges.
        at: Path of the value, for messages.

    Raises:
        TypeError: If a bound is not a number.
        ValueError: If a range is invalid, or there are more than 1024 corners.
    """
    yield from _corners(value, at, MOST_CORNERS)


def _corners(value: Any, at: str, most: int) -> list[Any]:
    if isinstance(value, Mapping):
        kind = _range_kind(value)
        if kind is None:
            return [
                dict(zip(value, items, strict=True))
                for items in _combined(
                    [_corners(v, f"{at}.{k}", most) for k, v in value.items()], at, most
                )
            ]
        _check_range(kind, value[kind], at)
        if kind == "choice":
            found = [
                _corners(item, f"{at}.choice[{i}]", most) for i, item in enumerate(value[kind])
            ]
            return list(itertools.chain.from_iterable(found))
        return [int(bound) if kind == "integers" else float(bound) for bound in value[kind]]
    if isinstance(value, list | tuple):
        options = [_corners(item, f"{at}[{i}]", most) for i, item in enumerate(value)]
        return [list(items) for items in _combined(options, at, most)]
    return [value]


def _combined(options: list[list[Any]], at: str, most: int) -> Iterator[tuple[Any, ...]]:
    count = math.prod(map(len, options))
    if count > most:
        raise ValueError(
            f"{at}: got ranges with {count} combinations of their ends, expected at most {most}; "
            "draw fewer numbers per episode"
        )
    return itertools.product(*options)


def _range_kind(table: Mapping[Any, Any]) -> str | None:
    if len(table) == 1:
        (key,) = table
        if key in RANGE_KEYS:
            return str(key)
    return None


def _check_range(kind: str, bounds: Any, at: str) -> None:
    at = f"{at}.{kind}"
    if not isinstance(bounds, list | tuple) or len(bounds) == 0:
        raise ValueError(f"{at}: got {bounds!r}, expected a list that is not empty")
    if kind == "choice":
        return
    if len(bounds) != 2:
        raise ValueError(f"{at}: got {len(bounds)} values, expected [low, high]")
    check = check_integer if kind == "integers" else check_number
    low, high = (check(f"{at}[{i}]", bound, "") for i, bound in enumerate(bounds))
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"{at}: got {list(bounds)}, expected finite numbers with low <= high")
    if kind == "log_uniform" and low <= 0:
        raise ValueError(f"{at}: got {list(bounds)}, expected low > 0")


def _draw(kind: str, bounds: Any, random: np.random.Generator) -> Any:
    if kind == "choice":
        return draw_values(bounds[int(random.integers(len(bounds)))], random)
    low, high = bounds
    if kind == "integers":
        return int(random.integers(low, high, endpoint=True))
    if kind == "uniform":
        return float(random.uniform(low, high))
    # Rounding can move a log-uniform draw outside its bounds.
    drawn = math.exp(random.uniform(math.log(low), math.log(high)))
    return min(max(drawn, float(low)), float(high))
