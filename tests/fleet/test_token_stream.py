"""When clients get their tokens, and where that breaks streams (replay-runtime.md §15.1, §15.4)."""

from typing import Any

import numpy as np
import pytest
from support.fleets import arrivals, run_small, small_fleet

from aisim_gym.metrics.gap_statistics import GAP
from aisim_gym.replay import Replay


def finished(replay: Replay) -> Any:
    """Return the requests of a run."""
    return np.asarray(replay.state.world.requests)


def test_first_second_and_last_token_are_kept() -> None:
    run = run_small(small_fleet(workers=1), arrivals([0.0], output_tokens=4))
    row = finished(run.replay)[0]
    times = [float(row[f"{name}_token_ms"]) for name in ("first", "second", "last")]
    assert times == [10.0, 11.0, 13.0]
    assert row["emitted_tokens"] == 4


def test_request_with_one_token_has_no_second_one() -> None:
    run = run_small(small_fleet(workers=1), arrivals([0.0], output_tokens=1))
    row = finished(run.replay)[0]
    assert np.isnan(row["second_token_ms"])
    assert (row["first_token_ms"], row["last_token_ms"]) == (10.0, 10.0)


def test_requests_that_decode_together_have_no_breaks() -> None:
    run = run_small(small_fleet(workers=1), arrivals([0.0, 0.0], output_tokens=[9, 5]))
    assert finished(run.replay)["num_breaks"].tolist() == [0, 0]


def test_preempted_request_has_one_break_and_all_its_gaps() -> None:
    """Six blocks hold two prompts of two blocks; both need a third one at once."""
    spec = small_fleet(workers=1, engine={"num_gpu_blocks": 5})
    run = run_small(spec, arrivals([0.0, 0.0], 7, 6))
    rows = finished(run.replay)
    assert rows["decode_admissions"].tolist() == [1, 2]
    assert rows["num_breaks"].tolist() == [0, 1]
    moments, _ = run.replay.state.gap_statistics()
    assert moments[GAP].count == 2 * 5
    gaps_ms = rows["last_token_ms"] - rows["first_token_ms"]
    assert moments[GAP].average == pytest.approx(gaps_ms.sum() / 10, rel=1e-12)


def test_tokens_of_one_burst_have_gaps_of_zero() -> None:
    drafts = {"aic_nextn": 2, "aic_nextn_accept_rates": "1,1"}
    run = run_small(small_fleet(workers=1, engine=drafts), arrivals([0.0], output_tokens=7))
    row = finished(run.replay)[0]
    assert (row["emitted_tokens"], row["zero_gaps"]) == (7, 4)
    moments, _ = run.replay.state.gap_statistics()
    assert (moments[GAP].count, moments[GAP].zeros) == (6, 4)
