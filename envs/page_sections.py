"""Sections common to the pages of all environments, as Markdown."""

import inspect
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from aisim_gym.envs.observation import SummaryObservation
from aisim_gym.envs.scaling_env import ScalingEnv


def manual_sections(env_class: type) -> dict[str, str]:
    """Return the sections of the manual in a class's docstring, by heading."""
    sections = inspect.cleandoc(env_class.__doc__ or "").split("\n## ")[1:]
    split = (section.partition("\n") for section in sections)
    return {heading: text.strip() for heading, _, text in split}


def to_markdown(text: str) -> str:
    """Return reStructuredText of a docstring as Markdown."""
    return text.replace("``", "`").replace(":mod:`", "`").replace(":class:`", "`")


def markdown_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table with a header row."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def overview(env_id: str, env: ScalingEnv) -> str:
    """Return the table of spaces and the call that makes the environment."""
    return markdown_table(
        ("", ""),
        [
            ("Action space", f"`{env.action_space}`"),
            ("Observation space", f"`{_space_text(env.observation_space)}`"),
            ("Make", f'`gymnasium.make("aisim_gym.envs:{env_id}")`'),
        ],
    )


def observation_table(env: ScalingEnv) -> str:
    """Return the entries of the observation ``summary``, with their bounds."""
    summary = env.observation_object
    space = env.observation_space
    assert isinstance(space, gymnasium.spaces.Box)
    assert isinstance(summary, SummaryObservation)
    bounds = zip(space.low.tolist(), space.high.tolist(), strict=True)
    rows = [
        (str(i), f"`{name}`", f"{low:g}", f"{high:g}", unit)
        for i, (name, unit, (low, high)) in enumerate(
            zip(summary.names, summary.units, bounds, strict=True)
        )
    ]
    return markdown_table(("Num", "Name", "Min", "Max", "Unit"), rows)


def vector_text(env_id: str) -> str:
    """Return the section on vector environments."""
    return (
        f'`gymnasium.make_vec("{env_id}", num_envs=8)` runs the replays of all environments '
        "in threads; `autoreset_mode` is `NextStep` (the default), `SameStep` or `Disabled`: "
        "[vector environments](../how-to/vector-environments.md)."
    )


def _space_text(space: gymnasium.Space[Any]) -> str:
    if isinstance(space, gymnasium.spaces.Box):
        low, high = float(np.min(space.low)), float(np.max(space.high))
        return f"Box({low:g}, {high:g}, {space.shape}, {space.dtype})"
    return str(space)
