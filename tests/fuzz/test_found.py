"""What fuzzing has found stays mended (``make fuzz``); ``--found FILE`` replays another file."""

from pathlib import Path

from fuzz.examples import Example


def test_found_example_keeps_all_laws(found: Path) -> None:
    Example.read(found).check()
