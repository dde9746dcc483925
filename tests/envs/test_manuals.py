"""The manuals of the environments, their docstrings, say what the code does.

What is the same in both topologies is in the manual of their base class.
"""

import inspect

import gymnasium
import pytest

from aisim_gym.envs import AggregatedEnv, DisaggregatedEnv, ScalingEnv
from aisim_gym.envs.page_sections import manual_sections
from aisim_gym.envs.reset_options import read_options

MANUALS = (AggregatedEnv, DisaggregatedEnv)
IDS = {
    AggregatedEnv: "aisim_gym/Aggregated-v0",
    DisaggregatedEnv: "aisim_gym/Disaggregated-v0",
}


def rows(text: str) -> list[list[str]]:
    """Return the cells of the table in a section, without its head."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_manuals_have_the_same_headings_in_the_order_of_gymnasiums_pages() -> None:
    agg, disagg = (list(manual_sections(env)) for env in MANUALS)
    assert agg == disagg == ["Description", "Action Space", "Observation Space", "Starting State"]
    shared = ["Rewards", "Episode End", "Info", "Arguments", "Version History"]
    assert list(manual_sections(ScalingEnv)) == shared


@pytest.mark.parametrize("env_class", MANUALS)
def test_manual_refers_to_the_shared_one(env_class: type[ScalingEnv]) -> None:
    assert "are those of :class:`ScalingEnv`" in (env_class.__doc__ or "")


def test_table_of_arguments_lists_all_of_them_in_order_with_their_defaults() -> None:
    listed = [
        (row[0].strip("`"), row[1].strip('"'))
        for row in rows(manual_sections(ScalingEnv)["Arguments"])
    ]
    signature = inspect.signature(ScalingEnv).parameters
    defaults = [
        (name, f"{parameter.default:g}" if type(parameter.default) is float else parameter.default)
        for name, parameter in signature.items()
    ]
    assert listed == [(name, str(default)) for name, default in defaults]


def test_entries_are_described_alike_in_every_pool_and_in_both_manuals() -> None:
    described: dict[str, set[tuple[str, ...]]] = {}
    for env in MANUALS:
        for _, name, *meaning in rows(manual_sections(env)["Observation Space"]):
            for pool in ("workers_", "prefill_", "decode_"):
                name = name.removeprefix(pool)
            described.setdefault(name, set()).add(tuple(meaning))
    assert {name: meanings for name, meanings in described.items() if len(meanings) > 1} == {}
    assert len(described) == 20


@pytest.mark.parametrize("env_class", MANUALS)
def test_listed_reset_options_are_those_of_the_environment(env_class: type[ScalingEnv]) -> None:
    text = manual_sections(ScalingEnv)["Arguments"].split("``reset(options=…)``")[1]
    for option in ("episode", "trace", "start_s", "duration_s", *env_class.worker_options):
        assert f"``{option}``" in text
    with pytest.raises(ValueError, match="known: episode, trace, start_s, duration_s, "):
        read_options({"nothing": 1}, env_class.worker_options)


@pytest.mark.parametrize("env_class", MANUALS)
def test_described_spaces_are_those_of_the_default_environment(
    env_class: type[ScalingEnv],
) -> None:
    env = gymnasium.make(IDS[env_class])
    sections = manual_sections(env_class)
    assert f"``{env.action_space}``" in sections["Action Space"]
    assert env.observation_space.shape == (len(rows(sections["Observation Space"])),)
