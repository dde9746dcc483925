"""Fields, commands and public names: their pages are those that the code gives."""

import re
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from support.source_tree import ROOT

import aisim_gym
from aisim_gym.cli.main import app
from aisim_gym.spec import LaunchSpec, ReplaySpec, TrafficSpec


def load_generator() -> Any:
    spec = spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


GENERATE = load_generator()
PAGES: dict[Path, str] = GENERATE.pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_committed_page_is_what_the_code_writes(path: Path) -> None:
    assert path.read_text("utf-8") == PAGES[path], f"{path.name} has changed: make pages"


def test_there_are_no_other_pages_of_packages() -> None:
    folder = ROOT / "docs" / "reference" / "api"
    assert set(folder.glob("*.md")) == {path for path in PAGES if path.parent == folder}


@pytest.mark.parametrize("package", GENERATE.PACKAGES)
def test_every_public_name_is_on_a_page(package: str) -> None:
    public = {name for name in import_module(package).__all__ if not name.startswith("__")}
    own = PAGES[ROOT / "docs" / "reference" / "api" / f"{package}.md"]
    everywhere = "\n".join(PAGES.values())
    for name in public:
        assert re.search(rf"[ .~]{name}$", own, re.MULTILINE), f"{name} is not on the page"
        assert re.search(rf"^\.\. [\w:]+:: {name}$", everywhere, re.MULTILINE), name


def test_every_package_with_public_names_has_a_page() -> None:
    root = Path(aisim_gym.__file__).parent
    inner = {
        f"aisim_gym.{path.parent.name}"
        for path in root.glob("*/__init__.py")
        if getattr(import_module(f"aisim_gym.{path.parent.name}"), "__all__", None)
    }
    assert inner - {"aisim_gym.bench", "aisim_gym.conformance"} <= set(GENERATE.PACKAGES)


def test_every_field_says_what_it_is() -> None:
    models = GENERATE.models_of(ReplaySpec)
    assert {LaunchSpec, TrafficSpec} <= set(models)
    for model in models:
        assert model.__doc__, model
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name} has no description"


def test_every_command_and_option_says_what_it_is() -> None:
    page = PAGES[ROOT / "docs" / "reference" / "commands.md"]
    for name, text, _ in GENERATE.commands(app):
        assert text.strip(), name
        assert f"\n## {name}\n" in page
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    for row in rows:
        assert row.split(" | ")[-1].strip(" |"), row


def test_options_are_those_of_the_help() -> None:
    page = PAGES[ROOT / "docs" / "reference" / "commands.md"]
    for flag in ("--set", "--ttft-slo-ms", "--debug", "--version"):
        assert f"| `{flag}`" in page, flag
