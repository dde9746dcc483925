"""Sphinx: ``make docs`` builds the pages of this folder into ``build/docs``."""

import sys
import tomllib
from pathlib import Path
from typing import Any

_PROJECT = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text("utf-8"))

project = "aisim-gym"
author = "aisim-gym developers"
release = _PROJECT["project"]["version"]
version = release

sys.path.insert(0, str(Path(__file__).parent))  # for rule_anchors

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
root_doc = "index"
exclude_patterns = ["examples"]

# Headings can be linked to as on code-hosting sites: page.md#its-heading.
myst_heading_anchors = 3
myst_heading_slug_func = "rule_anchors.slug_of"
myst_enable_extensions = ["colon_fence"]

# The API: what __all__ names, with the members that have docstrings.
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
autosummary_generate = False
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes with docstrings of their own are listed once
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"aisim-gym {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False


def _leave_out_manual(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Cut a docstring at its first Markdown heading: manuals of environments are pages here."""
    for place, line in enumerate(lines):
        if line.startswith("## "):
            lines[place:] = ["The manual is on the page of the environment.", ""]
            break


def _skip_plain_fields(
    app: object, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """Leave out fields of named tuples without a text of their own: the signature has them."""
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field number") else None


def setup(app: Any) -> None:
    """Change docstrings while they are read."""
    app.connect("autodoc-process-docstring", _leave_out_manual)
    app.connect("autodoc-skip-member", _skip_plain_fields)
