"""The pages under ``docs/reference`` say what the objects say (F16)."""

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from support.source_tree import ROOT
from support.views import view_of

from aisim_gym.envs.action import ACTIONS, MOST_OPTIONS
from aisim_gym.envs.observation import FLEET_ENTRIES, POOL_ENTRIES
from aisim_gym.envs.observer import OBSERVATIONS
from aisim_gym.envs.per_rank import RANK_ENTRIES
from aisim_gym.envs.reward import REWARDS, Reward, reward_info
from aisim_gym.replay import FleetDescription, RoleDescription, ScalingLimits

PAGES = Path(ROOT, "docs", "reference")

ROLE = RoleDescription(30.0, 1, 1, 8192, 256, 100_000, None, 16)
LIMITS = ScalingLimits(max_workers=8)
FLEETS = {
    1: FleetDescription("agg", ROLE, None, LIMITS, 500.0, 30.0),
    2: FleetDescription("disagg", ROLE, ROLE, LIMITS, 500.0, 30.0),
}


def tables(page: str) -> list[list[list[str]]]:
    """Return the tables of a page: rows of cells, the head included."""
    found: list[list[list[str]]] = []
    inside = False
    for line in (PAGES / page).read_text("utf-8").splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not inside:
                found.append([])
            if not set(line) <= set("|- "):
                found[-1].append(cells)
        inside = line.startswith("|")
    return found


def table(page: str, head: str) -> list[list[str]]:
    """Return the rows of the table whose first column is called ``head``."""
    (rows,) = [rows[1:] for rows in tables(page) if rows[0][0] == head]
    return rows


@pytest.mark.parametrize(
    ("head", "entries"),
    [
        ("entry of a pool", POOL_ENTRIES),
        ("entry of the fleet", FLEET_ENTRIES),
        ("column", RANK_ENTRIES),
    ],
)
def test_listed_entries_are_those_of_the_observation(
    head: str, entries: tuple[tuple[str, str], ...]
) -> None:
    assert table("observations.md", head) == [[*entry, "0", "1"] for entry in entries]


@pytest.mark.parametrize("num_pools", FLEETS)
def test_listed_observations_are_those_that_exist(num_pools: int) -> None:
    rows = table("observations.md", "name")
    assert [row[0].strip("`") for row in rows] == list(OBSERVATIONS)
    summary = OBSERVATIONS["summary"](FLEETS[num_pools]).space()
    assert isinstance(summary, spaces.Box)
    assert f"({summary.shape[0]},)" in rows[0][1]
    assert (summary.low == 0.0).all()
    assert (summary.high == 1.0).all()
    for row in rows:
        listed = set(re.findall(r"`(\w+)`", row[2]))
        assert listed == set(inspect.signature(OBSERVATIONS[row[0].strip("`")]).parameters) - {
            "fleet"
        }


@pytest.mark.parametrize("num_pools", FLEETS)
def test_listed_keys_are_those_of_the_observation(num_pools: int) -> None:
    space = OBSERVATIONS["per_rank"](FLEETS[num_pools]).space()
    assert isinstance(space, spaces.Dict)
    listed = {
        key for row in table("observations.md", "key") for key in re.findall(r"`(\w+)`", row[0])
    }
    assert set(space) <= listed
    for key, part in space.items():
        if isinstance(part, spaces.Box):
            assert (part.low.min(), part.high.max()) == (0.0, 1.0)
            assert part.dtype == np.float32
        else:
            assert key.endswith("_mask")


@pytest.mark.parametrize("num_pools", FLEETS)
def test_listed_actions_have_the_listed_spaces(num_pools: int) -> None:
    rows = table("actions.md", "name")
    assert [row[0].strip("`") for row in rows] == list(ACTIONS)
    for row in rows:
        space = ACTIONS[row[0].strip("`")](FLEETS[num_pools]).space()
        shape = f" {space.shape}" if isinstance(space, spaces.Box) else ""
        assert type(space).__name__ + shape == row[num_pools]


def test_listed_number_of_splits_is_the_limit() -> None:
    text = (PAGES / "actions.md").read_text("utf-8")
    (listed,) = re.findall(r"list may have (\d+) entries", text)
    assert int(listed) == MOST_OPTIONS


def make_reward(name: str) -> Any:
    return REWARDS[name](FLEETS[1])


@pytest.mark.parametrize("name", REWARDS)
def test_listed_terms_and_parameters_are_those_of_the_reward(name: str) -> None:
    rows = [row for row in table("rewards.md", "name") if row[0] == f"`{name}`"]
    reward: Reward = make_reward(name)
    terms = list(reward(view_of()))
    assert [row[1] for row in rows if row[1]] == terms[-len(rows) :]
    assert len(rows) == len(terms) or name == "shaped"
    parameters = inspect.signature(REWARDS[name]).parameters.values()
    expected = [f"{p.name} {p.default!r}" for p in parameters if p.name != "fleet"]
    assert [part for row in rows for part in row[3].split(", ") if part] == expected


def test_listed_costs_are_those_of_the_rewards() -> None:
    listed = [(row[0].strip("`"), f"cost_{row[1]}") for row in table("rewards.md", "reward")]
    assert listed == [
        (name, key)
        for name in REWARDS
        for key in reward_info(make_reward(name), view_of())
        if key.startswith("cost_")
    ]
