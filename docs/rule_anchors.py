"""Names of headings in links: a numbered rule is ``rule-6-4``, whatever its title says."""

import re

from myst_parser.mdit_to_docutils.base import default_slugify


def slug_of(title: str) -> str:
    """Return what a link to a heading ends with.

    Args:
        title: Text of the heading, for example ``6.4 Driving the fleet``.

    Returns:
        The same as the anchor in front of a rule, and else what code-hosting sites make of a title.
    """
    numbered = re.match(r"(\d+(?:\.\d+)*) ", title)
    if numbered:
        return f"rule-{numbered[1].replace('.', '-')}"
    return str(default_slugify(title))
