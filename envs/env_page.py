"""The manual of every registered environment as a Markdown page, by name.

This module generates the pages of the general environments from the docstrings of their classes and
from the environments themselves; the pages of scenarios come from
:mod:`aisim_gym.envs.scenario_page`.
"""

import gymnasium

from aisim_gym.envs import ENTRY_POINTS, SCENARIOS
from aisim_gym.envs.page_sections import (
    manual_sections,
    observation_table,
    overview,
    to_markdown,
    vector_text,
)
from aisim_gym.envs.scaling_env import ScalingEnv
from aisim_gym.envs.scenario_page import read_difficulty, scenario_page
from aisim_gym.spec.wording import closest

NAMESPACE = "aisim_gym/"

_GENERAL = [env_id.removeprefix(NAMESPACE) for env_id in ENTRY_POINTS]
_SCENARIOS = {scenario.id.removeprefix(NAMESPACE): scenario for scenario in SCENARIOS}

PAGE_NAMES = (*_GENERAL, *_SCENARIOS)
"""Ids without the namespace, the general environments first."""


def env_page(name: str) -> str:
    """Return the page of an environment.

    Args:
        name: Its id, with or without the namespace.

    Raises:
        ValueError: If the environment does not exist.
    """
    key = name.removeprefix(NAMESPACE)
    if key in _SCENARIOS:
        return scenario_page(_SCENARIOS[key], read_difficulty().get(key))
    if key in _GENERAL:
        return _general_page(NAMESPACE + key)
    known = ", ".join(PAGE_NAMES)
    raise ValueError(f"unknown environment {name!r}{closest(key, PAGE_NAMES)} (known: {known})")


def _general_page(env_id: str) -> str:
    env = gymnasium.make(env_id).unwrapped
    assert isinstance(env, ScalingEnv)
    texts = {**manual_sections(ScalingEnv), **manual_sections(type(env))}
    manual = {heading: to_markdown(text) for heading, text in texts.items()}
    observed, _, _ = manual["Observation Space"].partition("\n\n| ")  # the table is generated
    sections = [
        f"# {env_id.removeprefix(NAMESPACE)}",
        (type(env).__doc__ or "").partition("\n")[0],
        overview(env_id, env),
        "## Description",
        manual["Description"],
        f"The class is `{type(env).__name__}`. Its arguments choose fleet and traffic: "
        "[environments](../environments.md) has examples of them, and "
        "[scenarios](../scenarios.md) are chosen ones.",
        "## Action Space",
        manual["Action Space"],
        "The other kinds: [actions](../reference/actions.md).",
        "## Observation Space",
        observed,
        "What the entries are, and the other observations: "
        "[observations](../reference/observations.md).",
        observation_table(env),
        "## Rewards",
        manual["Rewards"],
        "## Starting State",
        manual["Starting State"],
        "## Episode End",
        manual["Episode End"],
        "## Info",
        manual["Info"],
        "## Arguments",
        manual["Arguments"],
        "## Vectorized Environment",
        vector_text(env_id),
        "## Version History",
        manual["Version History"],
    ]
    return "\n\n".join(sections) + "\n"
