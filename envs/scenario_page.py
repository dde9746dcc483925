"""The manual of a scenario as a Markdown page, in the order of Gymnasium's own pages.

Pages are generated from the scenario, its environment and the measured difficulty, so they always
match the code.
"""

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import gymnasium

from aisim_gym.envs.page_sections import (
    manual_sections,
    markdown_table,
    observation_table,
    overview,
    to_markdown,
    vector_text,
)
from aisim_gym.envs.scaling_env import ScalingEnv
from aisim_gym.envs.scenarios import Scenario

DIFFICULTY_FILE = "difficulty.json"

POOL_TITLES = {"agg": "one pool", "disagg": "prefill and decode pools"}


def read_difficulty() -> dict[str, Any]:
    """Return the results of baselines in each scenario, by name without namespace.

    ``experiments/difficulty.py`` writes the file.
    """
    text = resources.files("aisim_gym.envs").joinpath("data", DIFFICULTY_FILE).read_text("utf-8")
    measured: dict[str, Any] = json.loads(text)
    return measured


def scenario_page(scenario: Scenario, measured: Mapping[str, Any] | None) -> str:
    """Return the page of a scenario.

    Args:
        scenario: A registered one.
        measured: Its entry of :func:`read_difficulty`, None if not measured.
    """
    env = gymnasium.make(scenario.id).unwrapped
    assert isinstance(env, ScalingEnv)
    manual = manual_sections(ScalingEnv)
    general = type(env).__name__.removesuffix("Env") + "-v0"
    sections = [
        f"# {scenario.id.split('/')[1]}",
        f"{scenario.summary} {scenario.challenge}",
        overview(scenario.id, env),
        "## Description",
        _fleet_text(scenario, env),
        "## Action Space",
        _action_text(scenario, env),
        "## Observation Space",
        "A float32 vector. What the entries are, and the other observations: "
        "[observations](../reference/observations.md).",
        observation_table(env),
        "## Rewards",
        to_markdown(manual["Rewards"]),
        "## Starting State",
        _start_text(env),
        "## Episode End",
        to_markdown(manual["Episode End"]),
        "## Arguments",
        f"The scenario is [{general}]({general}.md) with these arguments. Any of them, and those "
        "not listed, can be changed in `gymnasium.make`; a table replaces the whole table "
        "here ([how to change a part of it](../scenarios.md#changing-a-scenario)).",
        "```json\n" + json.dumps(scenario.arguments, indent=2) + "\n```",
        "## Splits",
        _split_text(env),
        "## Vectorized Environment",
        vector_text(scenario.id),
        "## Difficulty",
        _difficulty_text(measured),
        "## Version History",
        "* v0: the first version.",
    ]
    return "\n\n".join(sections) + "\n"


def _fleet_text(scenario: Scenario, env: ScalingEnv) -> str:
    fleet = env.fleet_description
    rows = []
    roles = {"decode": fleet.decode} if fleet.prefill is None else {}
    if fleet.prefill is not None:
        roles = {"prefill": fleet.prefill, "decode": fleet.decode}
    for pool, role in roles.items():
        least, most = fleet.limits.of_pool("prefill" if pool == "prefill" else "decode")
        rows.append(
            (
                pool if len(roles) > 1 else "workers",
                f"{least} to {most}",
                str(role.gpus_per_worker),
                f"{role.startup_s:g} s",
                f"{role.max_kv_tokens:,}",
                str(role.max_seqs),
            )
        )
    budget = fleet.limits.max_gpus
    lines = [
        f"Engine profile `{_profile_name(scenario)}`, {POOL_TITLES[scenario.kind]}; a tick every "
        f"{fleet.limits.tick_s:g} s, {env.longest_episode_s / 60.0:g} minutes of traffic per "
        "episode" + (f", at most {budget} GPUs." if budget is not None else "."),
        markdown_table(
            ("pool", "workers", "GPUs per worker", "start-up", "KV tokens", "running requests"),
            rows,
        ),
        f"A request is good if its first token comes within {fleet.ttft_slo_ms:g} ms and the mean "
        f"gap between its tokens is at most {fleet.itl_slo_ms:g} ms.",
    ]
    return "\n\n".join(lines)


def _profile_name(scenario: Scenario) -> str:
    engine = scenario.arguments["engine"]
    return str(engine["profile"] if isinstance(engine, Mapping) else engine)


def _action_text(scenario: Scenario, env: ScalingEnv) -> str:
    name = scenario.arguments.get("action", "targets")
    name = name["name"] if isinstance(name, Mapping) else name
    return (
        f"`{env.action_space}`, kind `{name}`; how a choice becomes workers, and the other kinds: "
        "[actions](../reference/actions.md)."
    )


def _start_text(env: ScalingEnv) -> str:
    start = env.workers_at_start
    counts = ", ".join(f"{count} {name.removesuffix('_workers')}" for name, count in start.items())
    return (
        f"Active workers: {counts}; no requests. The traffic begins at time 0 and the fleet runs "
        "to the first tick. `reset(options=…)` can set another start: see "
        "[environments](../environments.md)."
    )


def _split_text(env: ScalingEnv) -> str:
    assert env.spec is not None
    has_windows = env.spec.kwargs.get("episode_s") is not None
    traffic = "plays a window from its blocks" if has_windows else "draws new traffic"
    counts = []
    for split in ("validation", "test"):
        held_out = gymnasium.make(env.spec.id, split=split).unwrapped
        assert isinstance(held_out, ScalingEnv)
        counts.append(str(held_out.num_episodes))
    return (
        f'`split="train"` (the default) {traffic} in every episode; `"validation"` and '
        f'`"test"` have {" and ".join(counts)} fixed numbered episodes: '
        '`reset(options={"episode": 1})`.'
    )


def _difficulty_text(measured: Mapping[str, Any] | None) -> str:
    if measured is None:
        return "Not measured yet."
    rows = [
        (
            row["policy"],
            row["setting"],
            f"{row['attainment']:.1%}",
            f"{row['gpu_hours']:.2f}",
            f"{row['reward']:.2f}",
        )
        for row in measured["rows"]
    ]
    grid = measured["hpa_grid"]
    factors = [f"{factor:g}" for factor in grid["target_factors"]]
    return (
        f"Means over {measured['episodes']} validation episodes, made by "
        "`python experiments/difficulty.py`. `static` is the best fixed fleet by reward, found by "
        "trying all on these episodes. `hpa` is the horizontal pod autoscaler; its metric "
        f"({_or_text(grid['metrics'])}) and its target ({_or_text(factors)} times the preset of "
        f"the metric) are those with the best reward on {grid['episodes']} training episodes. "
        f"An episode takes {measured['cpu_s_per_episode']:.2g} s of processor time.\n\n"
        + markdown_table(("policy", "setting", "good requests", "GPU-hours", "reward"), rows)
    )


def _or_text(choices: Sequence[str]) -> str:
    """Return ``a, b or c``."""
    *others, last = choices
    return f"{', '.join(others)} or {last}"
