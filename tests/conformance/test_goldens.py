"""Every recorded run of the reference is reproduced, field by field.

The files in ``data/goldens`` and ``data/found`` must pass. Those of the shared folder, where there
is one, must not differ; scenarios that this version does not replay are skipped there.
"""

from collections import Counter
from pathlib import Path

import pytest
from support.goldens import FOUND, GOLDENS
from support.shared_folder import find_shared

from aisim_gym.conformance import Outcome, Status, check_golden, find_goldens
from aisim_gym.conformance.run import golden_name

OURS = find_goldens([GOLDENS])
COMPARED = OURS + find_goldens([FOUND])
SHARED = find_shared("goldens")
MORE = [] if SHARED is None else find_goldens([SHARED])
MORE = [path for path in MORE if not (GOLDENS / path.name).exists()]


def explain(outcome: Outcome) -> str:
    """Say what differs first and how to replay just that case."""
    return f"{outcome}\nreplay: aisim-gym conformance {outcome.path}"


@pytest.mark.parametrize("path", COMPARED, ids=golden_name)
def test_run_of_the_reference_is_reproduced(path: Path) -> None:
    outcome = check_golden(path)
    if outcome.status is not Status.PASSED:
        raise AssertionError(explain(outcome)) from outcome.exception


@pytest.mark.skipif(not MORE, reason="needs a folder shared/goldens beside the repository")
@pytest.mark.parametrize("path", MORE, ids=golden_name)
def test_run_of_the_shared_folder_does_not_differ(path: Path) -> None:
    outcome = check_golden(path)
    if outcome.status is Status.SKIPPED:
        pytest.skip(outcome.reason)
    if outcome.status is Status.FAILED:
        raise AssertionError(explain(outcome)) from outcome.exception


def test_every_family_but_the_kv_routers_is_there() -> None:
    names = [golden_name(path).split("-", 2) for path in OURS]
    assert Counter(backend for _, backend, _ in names) == {"vllm": 140, "sglang": 59, "trtllm": 33}
    families = {family.rsplit("-", 1)[0] for _, _, family in names}
    assert len(families) == 37
    assert "kvrouter" not in families
