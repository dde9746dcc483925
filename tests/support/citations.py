"""Citations of rules: where they are, and which heading of ``docs/rules`` each of them means.

A citation names a page and a rule (``replay-runtime.md §6.4``, ``rulings.md 2``) or a rule alone
(``§6.4``), which is one of the page named last before it, or of one named by the module.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from support.source_tree import ROOT

RULES = ROOT / "docs" / "rules"
FOLDERS = ("aisim_gym", "envs", "policies", "experiments", "tests", "docs")

_SECTION = r"§\s?\d+(?:\.\d+)*"
_SEPARATOR = r"(?:,? (?:and|to) |, ?|-)"
_CITATION = re.compile(
    rf"(?P<page>(?<![\w/-])[A-Za-z][\w-]*\.md)`?(?P<link>\]\([^)\s]*\))?[\s\"#>|*]+?"
    rf"(?P<numbers>\d+(?!\d*[.\w]*\w)(?:{_SEPARATOR}\d+\b)*|{_SECTION})"
    rf"|(?P<absent>\b(?:DESIGN|STYLE)(?:\.md)? (?:§|section )\s?\d+(?:\.\d+)*)"
    rf"|(?P<alone>{_SECTION})"
)
_PAGE = re.compile(r"(?<![\w/-])([A-Za-z][\w-]*)\.md\b")


@dataclass(frozen=True)
class Citation:
    """One rule that a file points to.

    Attributes:
        place: Path from the root and line.
        text: As it stands.
        pages: Pages that it may be on, the likeliest first.
        rule: Number of the rule; None if the text is no rule of any page.
    """

    place: str
    text: str
    pages: tuple[str, ...]
    rule: str | None

    @property
    def target(self) -> str | None:
        """Page and anchor that it means, None if there is none."""
        for page in self.pages:
            if self.rule in rules_of(page):
                return f"{page}.md#{anchor_of(str(self.rule))}"
        return None


def anchor_of(rule: str) -> str:
    """Return the anchor of a rule on its page."""
    return f"rule-{rule.replace('.', '-')}"


@cache
def rules_of(page: str) -> frozenset[str]:
    """Return the numbers of the rules of a page; none if there is no such page."""
    path = RULES / f"{page}.md"
    if not path.exists():
        return frozenset()
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.M | re.S)
    return frozenset(re.findall(r"^#{2,3} (\d+(?:\.\d+)*) ", text, flags=re.MULTILINE))


def cited_files() -> list[Path]:
    """Return the files whose citations are looked at."""
    found = [
        path
        for folder in FOLDERS
        for suffix in ("py", "md")
        for path in (ROOT / folder).rglob(f"*.{suffix}")
    ]
    return sorted({ROOT / "README.md", *found} - {Path(__file__).resolve()})


def citations_of(path: Path) -> list[Citation]:
    """Return the citations of a file, in order."""
    place = path.relative_to(ROOT).as_posix()
    return list(citations_in(path.read_text("utf-8"), place))


def citations_in(text: str, place: str) -> Iterator[Citation]:
    """Yield the citations of a text, each with its line behind ``place``."""
    is_python = place.endswith(".py")
    about = (ast.get_docstring(ast.parse(text)) or "") if is_python else text
    named = tuple(dict.fromkeys(page for page in _PAGE.findall(about) if rules_of(page)))
    if place.startswith("docs/rules/"):
        named = (Path(place).stem, *named)
    for match in _CITATION.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        where, words = f"{place}:{line}", " ".join(match[0].split())
        if match["absent"]:
            yield Citation(where, words, (), None)
        elif match["alone"]:
            before = [page for page in _PAGE.findall(text[: match.start()]) if rules_of(page)]
            pages = (*before[-1:], *named) if is_python else (*named[:1], *before[-1:], *named)
            yield Citation(where, words, pages, match["alone"].strip("§ "))
        else:
            for rule in _numbers(match["numbers"]):
                yield Citation(where, words, (match["page"].removesuffix(".md"),), rule)


def _numbers(text: str) -> list[str]:
    """Return the rules of a list such as ``1-3, 9``, ranges written out."""
    if text.startswith("§"):
        return [text.strip("§ ")]
    found: list[str] = []
    for first, last in re.findall(r"(\d+)(?:(?:-| to )(\d+))?", text):
        found += map(str, range(int(first), int(last or first) + 1))
    return found
