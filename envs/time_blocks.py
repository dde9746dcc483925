"""Splits of a fixed workload into blocks of time and episode windows."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from aisim_gym.spec.argument_checks import check_number

Split = Literal["train", "validation", "test"]

SPLITS: tuple[Split, ...] = ("train", "validation", "test")

SPLIT_FRACS: Mapping[Split, tuple[float, float]] = {
    "train": (0.0, 0.6),
    "validation": (0.6, 0.8),
    "test": (0.8, 1.0),
}
"""Default blocks of a fixed workload, as shares of its duration."""


def checked_blocks(
    blocks: Mapping[str, Sequence[Sequence[float]]] | None, split: Split | None, duration_s: float
) -> list[tuple[float, float]]:
    """Return the blocks of a split, in order of time.

    Args:
        blocks: Split -> list of ``[start_s, end_s]``; None for :data:`SPLIT_FRACS`.
        split: Split to return; None = all.
        duration_s: Duration of the workload.

    Raises:
        TypeError: If a value has the wrong type.
        ValueError: If a block is outside the workload, two overlap, or the split has none.
    """
    if blocks is None:
        if split is None:
            return [(0.0, duration_s)]
        start_frac, end_frac = SPLIT_FRACS[split]
        return [(start_frac * duration_s, end_frac * duration_s)]
    if not isinstance(blocks, Mapping):
        raise TypeError(f"blocks: got {blocks!r}, expected a mapping from split to blocks, or None")
    spans: list[tuple[float, float, str]] = []
    for name, given in blocks.items():
        if name not in SPLITS:
            raise ValueError(f"blocks: got {name!r}, expected names out of: {', '.join(SPLITS)}")
        if not isinstance(given, Iterable) or isinstance(given, str):
            raise TypeError(f"blocks.{name}: got {given!r}, expected a list of [start_s, end_s]")
        for i, block in enumerate(given):
            at = f"blocks.{name}[{i}]"
            if not isinstance(block, Collection):
                raise TypeError(
                    f"{at}: got {block!r}, expected [start_s, end_s]: one block is [[0, 500]]"
                )
            if len(block) != 2:
                raise ValueError(f"{at}: got {block!r}, expected [start_s, end_s]")
            start_s, end_s = (check_number(at, bound, "of seconds") for bound in block)
            if not 0.0 <= start_s < end_s <= duration_s:
                raise ValueError(
                    f"{at}: got {list(block)}, expected 0 <= start_s < end_s <= {duration_s} "
                    "(the duration of the workload)"
                )
            spans.append((start_s, end_s, name))
    spans.sort()
    for (_, end_s, name), (start_s, _, other) in pairwise(spans):
        if start_s < end_s:
            raise ValueError(
                f"blocks: a block of {name} ends at {end_s} s, after one of {other} starts at "
                f"{start_s} s; expected blocks that do not overlap"
            )
    chosen = [(start_s, end_s) for start_s, end_s, name in spans if split in (None, name)]
    if not chosen:
        raise ValueError(f"blocks: got none of split {split!r}, expected at least one")
    return chosen


def windows_in(
    blocks: Sequence[tuple[float, float]], episode_s: float | None
) -> list[tuple[float, float]]:
    """Return consecutive windows in the blocks; without a length, the blocks.

    Raises:
        ValueError: If a block is shorter than a window.
    """
    if episode_s is None:
        return list(blocks)
    windows = []
    for start_s, end_s in blocks:
        if end_s - start_s < episode_s:
            raise ValueError(
                f"episode_s: got {episode_s}, expected at most {end_s - start_s}, the length of "
                f"the block from {start_s} s to {end_s} s"
            )
        for i in range(int((end_s - start_s) / episode_s)):
            windows.append((start_s + i * episode_s, start_s + (i + 1) * episode_s))
    return windows
