"""Reproducible request ids; the reference draws them at random (workloads.md §2)."""

from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from aisim_gym.fleet.world_state import WorldState


def request_numbers(state: WorldState) -> NDArray[np.int64]:
    """Return the number of every request, from 0.

    Requests of a list are numbered as in their source, requests of sessions by session and turn.
    """
    if len(state.world.sessions):
        return np.arange(len(state.world.requests))
    return np.asarray(state.world.requests["source_index"], np.int64)


def request_uuid(number: int) -> str:
    """Return the canonical id of a request: its number counted from 1."""
    return str(UUID(int=number + 1))
