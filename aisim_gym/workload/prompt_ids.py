"""Hash ids of prompts, renumbered 0, 1, 2, ... by first appearance (workloads.md §3.1)."""

from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

MAX_HASH_ID = 2**64 - 1


class PromptIds:
    """The hash ids of all prompts in file order, one :meth:`add` per request."""

    def __init__(self) -> None:
        """Start without requests."""
        self._number_of: dict[int, int] = {}
        self._flat = array("q")
        self._starts = array("q", [0])

    def add(self, hash_ids: Iterable[int]) -> None:
        """Append the hash ids of the next request; none if its prompt shares nothing."""
        number_of = self._number_of
        self._flat.extend([number_of.setdefault(item, len(number_of)) for item in hash_ids])
        self._starts.append(len(self._flat))

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the flat numbers and the offsets (requests + 1) of each request's share."""
        return np.array(self._flat, dtype=np.int64), np.array(self._starts, dtype=np.int64)


def take_prompts(
    flat: NDArray[np.int64], starts: NDArray[np.int64], order: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ``flat`` and ``starts`` with the requests in another order.

    Args:
        flat: Numbers of all prompts, one after the other.
        starts: Shape (requests + 1,), offsets into ``flat``.
        order: Old index of each new request.
    """
    lengths = np.diff(starts)[order]
    new_starts = np.concatenate(([0], np.cumsum(lengths)))
    shift = np.repeat(starts[:-1][order] - new_starts[:-1], lengths)
    return flat[np.arange(new_starts[-1]) + shift], new_starts
