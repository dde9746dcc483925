"""Hash ids of prompts, renumbered 0, 1, 2, ... by first appearance (workloads.md §3.1)."""

from collections.abc import Sequence

import numpy as np

from aisim_gym.errors import WorkloadError
from aisim_gym.workload.ragged import Ragged, RaggedBuilder

MAX_HASH_ID = 2**64 - 1


class PromptIds:
    """The hash ids of all prompts in file order, one :meth:`add` per request."""

    def __init__(self) -> None:
        """Create an empty collection."""
        self._number_of: dict[int, int] = {}
        self._rows = RaggedBuilder()

    def add(self, hash_ids: Sequence[int], count: int) -> None:
        """Append the first ``count`` hash ids of the next request; the others are numbered too."""
        number_of = self._number_of
        numbers = [number_of.setdefault(item, len(number_of)) for item in hash_ids]
        self._rows.append(numbers[:count])

    def build(self) -> Ragged:
        """Return the numbers of each request."""
        return self._rows.build()


def check_trace_block_size(trace_block_size: int) -> None:
    """Raise WorkloadError unless ``trace_block_size`` is an integer >= 1."""
    if isinstance(trace_block_size, bool) or not isinstance(trace_block_size, int | np.integer):
        raise WorkloadError(f"trace_block_size: got {trace_block_size!r}, allowed: an integer >= 1")
    if trace_block_size < 1:
        raise WorkloadError(f"trace_block_size must be greater than 0, got {trace_block_size}")
