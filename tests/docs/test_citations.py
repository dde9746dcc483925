"""Every rule that code, tests and pages cite is a heading of ``docs/rules`` with an anchor."""

import re

import pytest
from support.citations import RULES, anchor_of, citations_in, citations_of, cited_files, rules_of
from support.pages import PAGES
from support.source_tree import ROOT

RULE_PAGES = sorted(path.stem for path in RULES.glob("*.md") if path.stem != "index")


def test_every_citation_leads_to_a_rule() -> None:
    unresolved = [
        f"{citation.place}: {citation.text}"
        for path in cited_files()
        for citation in citations_of(path)
        if citation.target is None
    ]
    assert not unresolved, "no such rule:\n" + "\n".join(unresolved)


def test_citations_of_the_code_are_found() -> None:
    """The test above would pass if none were found: the code has hundreds."""
    code = [c for path in cited_files() if path.suffix == ".py" for c in citations_of(path)]
    assert len(code) > 350
    assert {"aisim_gym", "envs", "policies", "tests"} <= {c.place.split("/")[0] for c in code}


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("replay-runtime.md §6.4", ["replay-runtime.md#rule-6-4"]),
        (
            "engine-vllm-trtllm.md §4, §5.2 and rulings.md 1 and 2",
            [
                "engine-vllm-trtllm.md#rule-4",
                "engine-vllm-trtllm.md#rule-5-2",
                "rulings.md#rule-1",
                "rulings.md#rule-2",
            ],
        ),
        ("env-checklist.md 1-3", [f"env-checklist.md#rule-{n}" for n in (1, 2, 3)]),
        ("engine-sglang.md\n    §13.", ["engine-sglang.md#rule-13"]),
        # Written so that they are no citations of this file.
        ("replay-runtime.md \u00a76.44", [None]),
        ("rulings.md \u0039\u0039", [None]),
        ("WORKLOADS.md \u00a74", [None]),
        ("as DESIGN \u00a73 says", [None]),
        ("a rule without a page (\u00a76.4)", [None]),
    ],
)
def test_citation_is_resolved_or_not(text: str, targets: list[str | None]) -> None:
    found = list(citations_in(f'"""Do it.\n\nRules: {text}\n"""\n', "module.py"))
    assert [citation.target for citation in found] == targets
    assert found[0].place == "module.py:3"


@pytest.mark.parametrize("page", RULE_PAGES)
def test_every_rule_has_an_anchor_right_before_its_heading(page: str) -> None:
    text = (RULES / f"{page}.md").read_text("utf-8")
    anchors = re.findall(r'^<a id="(rule-[\d-]+)"></a>\n\n#{2,3} \d', text, re.MULTILINE)
    assert len(anchors) == len(set(anchors)) == text.count("<a id=")
    assert set(anchors) == {anchor_of(rule) for rule in rules_of(page)}


@pytest.mark.parametrize("page", PAGES)
def test_links_to_rules_lead_to_rules(page: str) -> None:
    text = PAGES[page].read_text("utf-8")
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#(rule-[\d-]+)\)", text):
        path = (PAGES[page].parent / target) if target else PAGES[page]
        assert path.parent == RULES, f"{page}: {target}"
        assert anchor in {anchor_of(rule) for rule in rules_of(path.stem)}, f"{page}: {anchor}"


@pytest.mark.parametrize("page", RULE_PAGES)
def test_page_of_rules_is_in_the_index(page: str) -> None:
    index = (ROOT / "docs" / "rules" / "index.md").read_text("utf-8")
    assert f"[{page}]({page}.md)" in index
    assert f"\n{page}\n" in index
