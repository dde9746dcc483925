"""Sphinx: ``make docs`` builds the pages of this folder into ``build/docs``."""

import tomllib
from pathlib import Path

_PROJECT = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text("utf-8"))

project = "aisim-gym"
author = "aisim-gym developers"
release = _PROJECT["project"]["version"]
version = release

extensions = ["myst_parser"]
root_doc = "index"
exclude_patterns = ["examples"]

# Headings can be linked to as on code-hosting sites: page.md#its-heading.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

html_theme = "furo"
html_title = f"aisim-gym {release}"
html_copy_source = False
html_show_sphinx = False
