"""Pages say what the code says: generated pages, tables of arguments and names, links."""

import inspect
import re
import tomllib
from typing import Any

import gymnasium
import pytest
from support.pages import PAGES, local_links
from support.source_tree import ROOT

from aisim_gym.envs import ENTRY_POINTS, SCENARIOS, AggregatedEnv, DisaggregatedEnv
from aisim_gym.envs.action import ACTIONS
from aisim_gym.envs.env_page import PAGE_NAMES, env_page
from aisim_gym.envs.observer import OBSERVATIONS
from aisim_gym.envs.ranges import RANGE_KEYS
from aisim_gym.envs.reward import REWARDS
from aisim_gym.envs.scaling_env import ScalingEnv
from aisim_gym.envs.scenario_page import scenario_page
from aisim_gym.policies import POLICIES
from aisim_gym.profiles import profile_names

DOCS = ROOT / "docs"
ENVIRONMENTS = "docs/environments.md"
WRITE = "aisim-gym envs --write docs/environments"

SECTIONS = [
    "Description",
    "Action Space",
    "Observation Space",
    "Rewards",
    "Starting State",
    "Episode End",
    "Arguments",
    "Vectorized Environment",
    "Version History",
]


def rows(page: str, head: str) -> list[list[str]]:
    """Return the cells of the tables whose first column is called ``head``, heads left out."""
    found: list[list[str]] = []
    inside = False
    for line in PAGES[page].read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif inside and not set(line) <= set("|-: "):
            found.append(cells)
        elif cells[0] == head:
            inside = True
    return found


def page_parameters() -> list[Any]:
    """Return the names of pages; a scenario whose traffic exists once has to make all of it."""
    slow = {s.id.split("/")[1] for s in SCENARIOS if "episode_s" in s.arguments}
    return [
        pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in PAGE_NAMES
    ]


@pytest.mark.parametrize("name", page_parameters())
def test_committed_page_of_an_environment_is_what_the_code_writes(name: str) -> None:
    committed = (DOCS / "environments" / f"{name}.md").read_text("utf-8")
    assert committed == env_page(name), f"{name} has changed: {WRITE}"


def test_every_registered_environment_has_a_page_and_nothing_else_has() -> None:
    pages = {path.stem for path in (DOCS / "environments").glob("*.md")}
    registered = {key for key in gymnasium.registry if key.startswith("aisim_gym/")}
    assert {f"aisim_gym/{page}" for page in pages} == registered


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_page_has_the_sections_of_gymnasiums_own_pages_in_their_order(name: str) -> None:
    page = (DOCS / "environments" / f"{name}.md").read_text("utf-8")
    assert page.startswith(f"# {name}\n")
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert [heading for heading in headings if heading in SECTIONS] == SECTIONS
    assert "| Num | Name | Min | Max | Unit |" in page
    assert "``" not in page.replace("```", "")
    assert ":class:" not in page


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_page_is_reached_from_the_site_and_the_readme(name: str) -> None:
    (contents,) = [
        block
        for page in ("environments.md", "scenarios.md")
        for block in re.findall(r"```{toctree}.*?```", (DOCS / page).read_text("utf-8"), re.DOTALL)
        if f"environments/{name}\n" in block
    ]
    assert contents
    assert f"(docs/environments/{name}.md)" in PAGES["README.md"].read_text("utf-8")


def test_difficulty_on_a_page_says_how_it_was_measured() -> None:
    row = {"attainment": 0.5, "gpu_hours": 2.0, "reward": -3.0}
    measured = {
        "episodes": 2,
        "hpa_grid": {"metrics": ["conc", "kv"], "target_factors": [0.5, 1.0], "episodes": 3},
        "cpu_s_per_episode": 0.123,
        "rows": [{"policy": "hpa", "setting": "kv, target 0.25 per worker", **row}],
    }
    text = scenario_page(SCENARIOS[0], measured).partition("## Difficulty")[2]
    assert "Means over 2 validation episodes" in text
    assert (
        "its metric (conc or kv) and its target (0.5 or 1 times the preset of the metric)" in text
    )
    assert "the best reward on 3 training episodes" in text
    assert "| hpa | kv, target 0.25 per worker | 50.0% | 2.00 | -3.00 |" in text


@pytest.mark.slow
def test_table_of_scenarios_lists_them_as_they_are() -> None:
    expected = []
    for scenario in SCENARIOS:
        env = gymnasium.make(scenario.id).unwrapped
        assert isinstance(env, ScalingEnv)
        fleet, name = env.fleet_description, scenario.id.split("/")[1]
        most = [fleet.limits.of_pool("decode")[1]]
        if fleet.prefill is not None:
            most.insert(0, fleet.limits.of_pool("prefill")[1])
        expected.append(
            [
                f"[{name}](environments/{name}.md)",
                {"agg": "one", "disagg": "two"}[scenario.kind],
                " + ".join(map(str, most)),
                f"{fleet.limits.tick_s:g} s",
                f"{fleet.decode.startup_s:g} s",
                scenario.summary,
            ]
        )
    assert rows("docs/scenarios.md", "id") == expected


def test_readme_lists_every_environment() -> None:
    listed = [
        (re.findall(r"`(.*)`", row[0])[0], *row[1:])
        for row in rows("README.md", "id: `aisim_gym/…`")
    ]
    general = [name.removeprefix("aisim_gym/") for name in ENTRY_POINTS]
    assert [name for name, *_ in listed[: len(general)]] == general
    assert listed[len(general) :] == [
        (s.id.removeprefix("aisim_gym/"), {"agg": "one", "disagg": "two"}[s.kind], s.summary)
        for s in SCENARIOS
    ]


def test_readme_lists_every_planner() -> None:
    assert [row[0].strip("`") for row in rows("README.md", "name")] == list(POLICIES)


@pytest.mark.parametrize("env", [AggregatedEnv, DisaggregatedEnv])
def test_table_of_arguments_has_all_in_order_with_their_defaults(env: type) -> None:
    listed = [(row[0].strip("`"), row[1].strip("`")) for row in rows(ENVIRONMENTS, "argument")]
    parameters = inspect.signature(env).parameters.values()
    assert listed == [(parameter.name, repr(parameter.default)) for parameter in parameters]


def test_named_parts_profiles_ranges_and_options_are_those_that_exist() -> None:
    page = PAGES[ENVIRONMENTS].read_text("utf-8")
    assert {row[0].strip("`"): names(row[1]) for row in rows(ENVIRONMENTS, "part")} == {
        "observation": list(OBSERVATIONS),
        "action": list(ACTIONS),
        "reward": list(REWARDS),
    }
    (profiles,) = re.findall(r"<!-- profiles -->\n(.*?)\n\n", page, re.DOTALL)
    assert re.findall(r"`([\w-]+)`", profiles) == sorted(profile_names())
    ranges = [re.findall(r'"(\w+)"', row[0])[0] for row in rows(ENVIRONMENTS, "range")]
    assert ranges == list(RANGE_KEYS)
    options = [name for row in rows(ENVIRONMENTS, "option") for name in names(row[0])]
    known = ("episode", "trace", "start_s", "duration_s")
    workers = [*AggregatedEnv.worker_options, *DisaggregatedEnv.worker_options]
    assert options == [*known, *workers]


def names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_of_the_repository(page: str) -> None:
    for target in local_links(page):
        assert target.exists(), f"{page}: no {target}"
        assert target.resolve().is_relative_to(ROOT), f"{page}: {target} is outside"


def test_extras_that_are_described_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for page in ("README.md", "docs/getting-started.md"):
        listed = {row[0].strip("`") for row in rows(page, "extra")}
        assert listed == set(project["optional-dependencies"]), page
