"""The manuals of the two environments, their docstrings, say the same where they should."""

import inspect
import itertools

import pytest

from aisim_gym.envs import AggregatedEnv, DisaggregatedEnv

MANUALS = (AggregatedEnv, DisaggregatedEnv)

EQUAL_SECTIONS = ("Rewards", "Episode End", "Info", "Version History")
"""Sections without a word about the topology."""

ROWS_OF_THE_TOPOLOGY = {"``initial_workers``", "``min_workers``"}
"""Arguments whose default or meaning depends on the topology."""


def sections(env: type) -> dict[str, str]:
    """Return the sections of a manual by heading."""
    parts = inspect.cleandoc(env.__doc__ or "").split("\n## ")[1:]
    return {heading: text.strip() for heading, _, text in (part.partition("\n") for part in parts)}


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a section; tables and lists are left out."""
    found = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    return [paragraph for paragraph in found if not paragraph.startswith(("|", "*"))]


def rows(text: str) -> list[list[str]]:
    """Return the cells of the table in a section, without its head."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_manuals_have_the_same_headings_in_the_same_order() -> None:
    agg, disagg = (list(sections(env)) for env in MANUALS)
    assert agg == disagg
    assert {*EQUAL_SECTIONS, "Action Space", "Observation Space", "Arguments"} <= set(agg)


@pytest.mark.parametrize("heading", EQUAL_SECTIONS)
def test_section_that_does_not_depend_on_the_topology_is_equal(heading: str) -> None:
    agg, disagg = (sections(env)[heading] for env in MANUALS)
    assert agg == disagg


@pytest.mark.parametrize("heading", ["Arguments", "Observation Space"])
def test_text_around_a_table_is_equal(heading: str) -> None:
    agg, disagg = (paragraphs(sections(env)[heading]) for env in MANUALS)
    assert agg == disagg != []


def test_starting_state_differs_in_its_first_sentence_only() -> None:
    agg, disagg = (paragraphs(sections(env)["Starting State"]) for env in MANUALS)
    assert agg[1:] == disagg[1:] != []
    assert agg[0] != disagg[0]


def test_arguments_are_equal_but_for_those_of_the_topology() -> None:
    agg, disagg = (
        [row for row in rows(sections(env)["Arguments"]) if row[0] not in ROWS_OF_THE_TOPOLOGY]
        for env in MANUALS
    )
    assert agg == disagg


@pytest.mark.parametrize("env", MANUALS)
def test_table_of_arguments_lists_all_of_them_in_order(env: type) -> None:
    listed = [row[0].strip("`") for row in rows(sections(env)["Arguments"])]
    assert listed == list(inspect.signature(env).parameters)


def test_entries_are_described_alike_in_every_pool_and_in_both_manuals() -> None:
    described: dict[str, set[tuple[str, ...]]] = {}
    for env in MANUALS:
        for _, name, *meaning in rows(sections(env)["Observation Space"]):
            for pool in ("workers_", "prefill_", "decode_"):
                name = name.removeprefix(pool)
            described.setdefault(name, set()).add(tuple(meaning))
    assert {name: meanings for name, meanings in described.items() if len(meanings) > 1} == {}
    assert len(described) == 20


@pytest.mark.parametrize("env", MANUALS)
def test_listed_reset_options_are_those_of_the_environment(
    env: type[AggregatedEnv] | type[DisaggregatedEnv],
) -> None:
    after = sections(env)["Arguments"].split("the workers at the start:")[1].splitlines()
    listed = itertools.takewhile(bool, itertools.dropwhile(lambda line: not line, after))
    assert [line.strip("* `") for line in listed] == list(env.worker_options)
