"""``aisim-gym envs``: the list, one page, all pages."""

from pathlib import Path

import pytest
from support.cli import run_cli

from aisim_gym.envs import ENTRY_POINTS, SCENARIOS
from aisim_gym.envs.env_page import PAGE_NAMES

IDS = [*ENTRY_POINTS, *(scenario.id for scenario in SCENARIOS)]


def test_everything_that_is_listed_has_a_page() -> None:
    listed = run_cli("envs").out
    assert all(env_id in listed for env_id in IDS)
    assert list(PAGE_NAMES) == [env_id.removeprefix("aisim_gym/") for env_id in IDS]


@pytest.mark.parametrize("name", ["Aggregated-v0", "aisim_gym/Disaggregated-v0", "ChatSteady-v0"])
def test_page_is_shown_with_or_without_the_namespace(name: str) -> None:
    result = run_cli("envs", name)
    assert result.status == 0, result.err
    title = result.out.partition("Action space")[0]
    assert name.removeprefix("aisim_gym/") in title
    assert "Observation Space" in result.out


def test_unknown_environment_is_refused_with_a_guess() -> None:
    result = run_cli("envs", "Agregated-v0")
    assert result.status == 2
    assert "unknown environment 'Agregated-v0'; did you mean `Aggregated-v0`?" in result.err


@pytest.mark.slow
def test_pages_of_all_environments_are_written(tmp_path: Path) -> None:
    result = run_cli("envs", "--write", tmp_path / "pages")
    assert result.status == 0, result.err
    assert {path.stem for path in (tmp_path / "pages").iterdir()} == set(PAGE_NAMES)
    assert f"{len(PAGE_NAMES)} pages written" in result.out
