"""Code on documentation pages: where each block is, and what its page says about running it.

A comment before a fence says that its code is not run, or what it needs:

    <!-- no-run: why -->
    <!-- needs: module -->
"""

import re
from dataclasses import dataclass
from pathlib import Path

from support.source_tree import ROOT

PAGES = {
    path.relative_to(ROOT).as_posix(): path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}
"""Every page by its path from the root."""

BLOCK = re.compile(
    r"(?:^<!-- (?P<word>[a-z-]+): (?P<text>[^\n]*) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>[a-z]+)\n(?P<code>.*?)^(?P=indent)```$"
    r"(?:\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)

MARKS = ("no-run", "needs")


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block of a page.

    Attributes:
        page: Path from the root.
        line: Of its first line of code, from 1.
        language: Behind the fence.
        code: As it stands.
        output: The ``text`` block right behind it, which is what it prints; None without one.
        mark: Word and text of the comment before it, if there is one.
    """

    page: str
    line: int
    language: str
    code: str
    output: str | None
    mark: tuple[str, str] | None

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"{self.page}:{self.line}"

    @property
    def is_run(self) -> bool:
        """Whether the page does not exempt it."""
        return self.mark is None or self.mark[0] != "no-run"


def blocks_of(page: str, language: str) -> list[CodeBlock]:
    """Return the blocks of a page in a language, in order."""
    text = PAGES[page].read_text("utf-8")
    found = []
    for match in BLOCK.finditer(text):
        if match["language"] == language:
            mark = None if match["word"] is None else (match["word"], match["text"])
            line = text.count("\n", 0, match.start("code")) + 1
            block = CodeBlock(page, line, language, match["code"], match["output"], mark)
            assert mark is None or mark[0] in MARKS, f"{block.place}: unknown mark {mark[0]!r}"
            found.append(block)
    return found


def pages_with(language: str) -> list[str]:
    """Return the pages that have blocks in a language."""
    return [page for page in PAGES if blocks_of(page, language)]


def local_links(page: str) -> list[Path]:
    """Return the files that a page links to or shows, anchors left out."""
    text = re.sub(r"^ *```.*?^ *```$", "", PAGES[page].read_text("utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", text)
    folder = PAGES[page].parent
    return [folder / target for target in targets if "://" not in target]
