"""The site: ``make docs`` builds every page without a warning, without the network."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import PAGES
from support.source_tree import ROOT


@pytest.mark.slow
def test_site_is_built_without_warnings_and_has_every_page(tmp_path: Path) -> None:
    for module in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(module, reason="the extra `docs` is not installed")
    (command,) = [
        line for line in (ROOT / "Makefile").read_text("utf-8").splitlines() if "-m sphinx" in line
    ]
    arguments = command.split(" -m ")[1].split()
    assert arguments[-2:] == ["docs", "build/docs"]
    assert "-W" in arguments
    done = subprocess.run(
        [sys.executable, "-m", *arguments[:-1], "-d", tmp_path / "trees", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for page in PAGES:
        if page.startswith("docs/"):
            html = tmp_path / "site" / Path(page).relative_to("docs").with_suffix(".html")
            assert html.exists()
            assert 'src="http' not in html.read_text("utf-8")
