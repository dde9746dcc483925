"""Replace the engine profile named in a launch config by its values.

``engine = "h100-llama31-8b"`` uses the profile unchanged, ``engine = {profile = "…", …}`` overrides
some of its fields. A spec holds and writes the values.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aisim_gym.errors import SpecError
from aisim_gym.profiles import load_profile
from aisim_gym.spec.refusals import MisfitError


def with_role(launch: Any, worker_type: str) -> Any:
    """Return the launch config with the role of its profile, if any, filled in unless given."""
    changes = _changes(launch)
    if changes is None or "worker_type" in changes:
        return launch
    return {**launch, "engine": {**changes, "worker_type": worker_type}}


def fill_in_profile(launch: Any, folder: Path | None) -> Any:
    """Return the launch config with missing values filled in from its profile, if any.

    The values are the engine's fields, ``tensor_parallel_size`` and ``startup_time``, and for a
    prefill worker also the bytes per token of a handoff.

    Args:
        launch: Plain data.
        folder: Base of a relative profile path.

    Raises:
        MisfitError: If there is no such profile.
    """
    changes = _changes(launch)
    if changes is None:
        return launch
    name = changes.pop("profile")
    if not isinstance(name, str | os.PathLike):
        raise MisfitError("engine.profile", f"got {name!r}, expected a name or a path")
    try:
        profile = load_profile(name, folder)
    except SpecError as error:
        raise MisfitError("engine", str(error)) from error
    block_size = changes.get("block_size")
    is_size = isinstance(block_size, int) and block_size > 0  # other values are rejected later
    engine = profile.engine_settings(block_size if is_size else None)
    if changes.get("worker_type") == "prefill" and "kv_bytes_per_token" not in changes:
        engine["kv_transfer_bytes_per_token"] = profile.kv_transfer_bytes_per_token
    return {
        "tensor_parallel_size": profile.tensor_parallel_size,
        "startup_time": profile.startup_s,
        **launch,
        "engine": {**engine, **changes},
    }


def named_profile(launch: Any) -> Any:
    """Return the name or path of the profile of a launch config; None if it has none."""
    changes = _changes(launch)
    return None if changes is None else changes["profile"]


def _changes(launch: Any) -> dict[str, Any] | None:
    """Return the profile of a launch config and the overridden fields, or None."""
    engine = launch.get("engine") if isinstance(launch, Mapping) else None
    if isinstance(engine, str):
        return {"profile": engine}
    return dict(engine) if isinstance(engine, Mapping) and "profile" in engine else None
