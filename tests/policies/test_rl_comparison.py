"""Policies against fixed fleets of the same GPU-hours: known answers, intervals, labels (F65)."""

from typing import Any

import numpy as np
import pytest
from rich.console import Console

from aisim_gym.policies.rl.comparison import (
    Comparison,
    advantage_lines,
    comparison_summary,
    comparison_table,
    doubts_about,
)
from aisim_gym.policies.rl.episode_metrics import EpisodeMetrics
from aisim_gym.policies.rl.evaluation import StaticFleet
from aisim_gym.policies.rl.static_frontier import advantage, frontier, goodput_at, mean_interval

pytest.importorskip("scipy")

NUM_EPISODES = 6
LUCK_RPS = np.array([0.3, -0.3, 0.1, -0.1, 0.2, -0.2])
"""What each episode adds to the goodput of everybody: pairing takes it out."""


def played(gpu_hours: float, goodput_rps: float) -> list[EpisodeMetrics]:
    """Return episodes whose means are these."""
    values: dict[str, Any] = dict.fromkeys(EpisodeMetrics._fields, 0.0)
    return [
        EpisodeMetrics(**{**values, "gpu_hours": gpu_hours, "goodput_rps": goodput_rps + luck})
        for luck in LUCK_RPS
    ]


FIXED = {
    StaticFleet((1, 1), 2): played(2.0, 4.0),
    StaticFleet((1, 3), 4): played(4.0, 8.0),
    StaticFleet((2, 2), 4): played(4.0, 6.0),
    StaticFleet((3, 1), 4): played(4.0, 5.0),
    StaticFleet((3, 3), 6): played(6.0, 9.0),
}


def test_frontier_is_the_best_fleet_of_every_size() -> None:
    points = frontier(FIXED)
    assert [point.fleet.name for point in points] == ["1+1", "1+3", "3+3"]
    assert [point.gpu_hours for point in points] == [2.0, 4.0, 6.0]
    assert [point.goodput_rps for point in points] == pytest.approx([4.0, 8.0, 9.0])


@pytest.mark.parametrize(
    ("gpu_hours", "goodput_rps"),
    [(2.0, 4.0), (3.0, 6.0), (5.0, 8.5), (1.0, 2.0), (0.0, 0.0), (7.0, 9.0)],
)
def test_between_sizes_the_frontier_is_linear(gpu_hours: float, goodput_rps: float) -> None:
    assert goodput_at(gpu_hours, frontier(FIXED)) == pytest.approx(goodput_rps)


def test_advantage_is_the_goodput_above_the_frontier() -> None:
    found = advantage([played(3.0, 7.0), played(5.0, 8.0)], FIXED)
    assert [gain.mean for gain in found.per_seed] == pytest.approx([1.0, -0.5])
    assert found.pooled.mean == pytest.approx(0.25)


def test_pairing_takes_out_what_all_have_in_common() -> None:
    (gain,) = advantage([played(4.0, 8.5)], FIXED).per_seed
    assert (gain.low, gain.mean, gain.high) == pytest.approx((0.5, 0.5, 0.5))
    plain = mean_interval([metrics.goodput_rps for metrics in played(4.0, 8.5)])
    assert plain.low < 8.4 < 8.6 < plain.high


def test_one_training_seed_is_pooled_over_episodes_alone() -> None:
    found = advantage([played(3.0, 7.0)], FIXED)
    assert found.pooled == found.per_seed[0]


def test_spread_between_training_seeds_widens_the_pooled_interval() -> None:
    found = advantage([played(4.0, 8.0), played(4.0, 9.0), played(4.0, 10.0)], FIXED)
    assert found.pooled.mean == pytest.approx(1.0)
    assert found.pooled.low < 0.5
    assert found.pooled.high > 1.5


def test_interval_holds_the_mean_and_is_the_same_every_time() -> None:
    values = np.random.default_rng(2).normal(5.0, 1.0, 40).tolist()
    interval = mean_interval(values)
    assert interval.low < interval.mean < interval.high
    # 1.96 standard errors of the mean on each side.
    assert interval.high - interval.low == pytest.approx(
        2 * 1.96 * np.std(values) / np.sqrt(40), rel=0.1
    )
    assert interval == mean_interval(values)


def test_single_episode_has_no_interval() -> None:
    with pytest.raises(ValueError, match="got 1 episode, expected at least 2"):
        mean_interval([1.0])


def compared(num_seeds: int, untuned: list[str]) -> Comparison:
    learned = {f"x seed {seed}": played(3.0, 7.0) for seed in range(num_seeds)}
    return Comparison(learned, {"hpa": played(5.0, 8.0)}, FIXED, doubts_about(num_seeds, untuned))


@pytest.mark.parametrize(
    ("num_seeds", "untuned", "label"),
    [
        (1, [], "uncalibrated: 1 training seed, fewer than 5"),
        (5, ["hpa"], "uncalibrated: not tuned: hpa"),
        (3, ["hpa"], "uncalibrated: 3 training seeds, fewer than 5; not tuned: hpa"),
        (5, [], ""),
    ],
)
def test_table_and_summary_say_what_is_not_calibrated(
    num_seeds: int, untuned: list[str], label: str
) -> None:
    """Field case F65."""
    comparison = compared(num_seeds, untuned)
    console = Console(width=120)
    with console.capture() as capture:
        console.print(comparison_table(comparison, "title"))
    assert comparison.label == label
    assert label in capture.get()
    assert ("uncalibrated" in capture.get()) == bool(label)
    assert ("uncalibrated" in "\n".join(advantage_lines(comparison))) == bool(label)
    assert comparison_summary(comparison)["is_calibrated"] is not bool(label)


def test_table_shows_the_next_smaller_and_the_next_larger_fixed_fleet() -> None:
    assert list(compared(1, []).shown()) == ["x seed 0", "hpa", "static 1+1", "static 1+3"]


def test_summary_holds_the_frontier_and_the_advantage() -> None:
    summary = comparison_summary(compared(2, []))
    assert [point["fleet"] for point in summary["frontier"]] == ["1+1", "1+3", "3+3"]
    assert summary["advantage_rps"]["pooled"]["mean"] == pytest.approx(1.0)
    assert summary["advantage_rps"]["per_seed"].keys() == {"x seed 0", "x seed 1"}


def test_episode_without_requests_counts_as_kept() -> None:
    info = {"now_s": 10.0, "total_gpu_hours": 0.5, "total_arrived": 0, "total_good": 0}
    metrics = EpisodeMetrics.of(-1.0, 3, info)
    assert (metrics.attainment_frac, metrics.goodput_rps, metrics.cost) == (1.0, 0.0, 500.0)
    assert metrics.mean_gpus == pytest.approx(180.0)


def test_episode_that_ends_at_time_0_has_rates_of_0() -> None:
    info = {"now_s": 0.0, "total_gpu_hours": 0.0, "total_arrived": 0, "total_good": 0}
    metrics = EpisodeMetrics.of(-0.001, 1, info)
    assert (metrics.goodput_rps, metrics.mean_gpus, metrics.attainment_frac) == (0.0, 0.0, 1.0)
