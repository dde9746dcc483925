"""The table of the guide to traces names the formats there are."""

import re
from pathlib import Path

from aisim_gym.workload.load import TRACE_READERS

GUIDE = Path(__file__).parents[2] / "docs" / "traces.md"


def test_guide_names_every_format_that_is_read() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (?:JSONL|CSV|the same)", GUIDE.read_text("utf-8"), re.M)
    assert rows == list(TRACE_READERS)
