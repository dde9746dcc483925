"""Arrival processes against their formulas (traffic-data.md §4, docs/workloads.md).

Tolerances are four standard errors of the statistic at the size of the sample; seeds are fixed.
"""

import math
from collections.abc import Callable
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import TypeAdapter

from aisim_gym.spec.arrivals import (
    TEXTBOOK_DAY,
    AnyArrivals,
    ClientsArrivals,
    ClippedLognormal,
    DiurnalArrivals,
    Harmonic,
    WanderingArrivals,
)
from aisim_gym.spec.traffic import TrafficSpec
from aisim_gym.workload import mean_rate_rps
from aisim_gym.workload.traffic.arrival_segments import (
    arrival_segments,
    client_shares,
    mean_arrival_rate,
)
from aisim_gym.workload.traffic.rate_path import SEGMENT_S, rate_paths
from aisim_gym.workload.traffic.renewal import UnitRenewal, weibull_shape

Floats = NDArray[np.float64]

PARSER: TypeAdapter[Any] = TypeAdapter(AnyArrivals)


def random(seed: int = 1) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def arrivals(duration_s: float, seed: int = 1, times: float = 1.0, **fields: Any) -> Floats:
    """Return arrivals in s; the duration is a multiple of 300 s."""
    spec = PARSER.validate_python(fields)
    segments = arrival_segments(spec, 0.0, times, random(seed))
    parts = [part.arrival_s for part in islice(segments, round(duration_s / SEGMENT_S))]
    return np.concatenate(parts)


def counts_in(arrival_s: Floats, window_s: float, duration_s: float) -> NDArray[np.int64]:
    return np.histogram(arrival_s, np.arange(0.0, duration_s + window_s / 2, window_s))[0]


def idc(arrival_s: Floats, window_s: float, duration_s: float) -> float:
    counts = counts_in(arrival_s, window_s, duration_s)
    return float(counts.var() / counts.mean())


def cv(gaps: Floats) -> float:
    return float(gaps.std() / gaps.mean())


def assert_follows(arrival_s: Floats, rate: Callable[[Floats], Floats], duration_s: float) -> None:
    """Compare Poisson counts in 50 windows with the rate: each, and the sum of squares."""
    grid = (np.arange(50 * 2000) + 0.5) * duration_s / (50 * 2000)
    expected = rate(grid).reshape(50, -1).mean(axis=1) * duration_s / 50
    deviations = (counts_in(arrival_s, duration_s / 50, duration_s) - expected) / np.sqrt(expected)
    assert np.abs(deviations).max() < 4.0
    assert (deviations**2).sum() < 50 + 4 * math.sqrt(2 * 50)


def test_poisson_arrivals_have_count_cv_and_idc_of_a_poisson_process() -> None:
    arrival_s = arrivals(6000.0, kind="poisson", rate_rps=20.0)
    assert arrival_s.size == pytest.approx(120_000, abs=4 * math.sqrt(120_000))
    assert cv(np.diff(arrival_s)) == pytest.approx(1.0, abs=4 / math.sqrt(120_000))
    for window_s in (1.0, 10.0):
        error = math.sqrt(2.0 / (6000.0 / window_s))
        assert idc(arrival_s, window_s, 6000.0) == pytest.approx(1.0, abs=4 * error)


def raw_moments(family: str, gap_cv: float) -> list[float]:
    """Return E[X], …, E[X^4] of gaps of mean 1."""
    if family == "gamma":
        shape = 1.0 / gap_cv**2
        return [math.prod((shape + i) / shape for i in range(n)) for n in (1, 2, 3, 4)]
    power = 1.0 / weibull_shape(gap_cv)
    return [math.gamma(1 + n * power) / math.gamma(1 + power) ** n for n in (1, 2, 3, 4)]


def cv_error(family: str, gap_cv: float, size: int) -> float:
    """Return the standard error of a sample's CV (delta method)."""
    one, two, three, four = raw_moments(family, gap_cv)
    skew = (three - 3 * two + 2 * one) / gap_cv**3
    kurtosis = (four - 4 * three + 6 * two - 3 * one) / gap_cv**4
    return gap_cv * math.sqrt((gap_cv**2 - gap_cv * skew + (kurtosis - 1) / 4) / size)


@pytest.mark.parametrize("family", ["gamma", "weibull"])
@pytest.mark.parametrize("gap_cv", [0.3, 1.0, 2.0])
def test_renewal_arrivals_have_the_cv_and_the_idc_of_their_gaps(family: str, gap_cv: float) -> None:
    arrival_s = arrivals(9000.0, kind="renewal", rate_rps=20.0, cv=gap_cv, family=family)
    count = 180_000
    # Over long times the count has variance cv^2 times its mean.
    assert arrival_s.size == pytest.approx(count, abs=4 * gap_cv * math.sqrt(count))
    error = cv_error(family, gap_cv, count)
    assert cv(np.diff(arrival_s)) == pytest.approx(gap_cv, abs=4 * error)
    windows = 9000.0 / 50.0
    assert idc(arrival_s, 50.0, 9000.0) == pytest.approx(
        gap_cv**2, rel=4 * math.sqrt(2.0 / windows)
    )


@pytest.mark.parametrize("gap_cv", [0.01, 0.1, 0.7, 1.0, 1.633, 5.0, 30.0, 100.0])
def test_weibull_shape_solves_the_cv_equation(gap_cv: float) -> None:
    power = 1.0 / weibull_shape(gap_cv)
    squared = math.exp(math.lgamma(1 + 2 * power) - 2 * math.lgamma(1 + power)) - 1
    assert squared == pytest.approx(gap_cv**2, rel=1e-9)


@pytest.mark.parametrize("family", ["gamma", "weibull"])
@pytest.mark.parametrize("gap_cv", [0.2, 1.0, 3.0])
def test_renewal_process_has_its_rate_from_the_first_moment_on(family: Any, gap_cv: float) -> None:
    source = random(5)
    counts = [UnitRenewal(gap_cv, source, family).take(0.5).size for _ in range(8000)]
    error = float(np.std(counts)) / math.sqrt(len(counts))
    assert np.mean(counts) == pytest.approx(0.5, abs=4 * error)


def test_renewal_points_do_not_depend_on_the_steps_they_are_taken_in() -> None:
    whole = UnitRenewal(2.0, random(3)).take(100.0)
    process = UnitRenewal(2.0, random(3))
    steps = [step + process.take(2.5) for step in np.arange(0.0, 100.0, 2.5)]
    assert np.concatenate(steps) == pytest.approx(whole, abs=1e-9)


TWO_STATES: dict[str, Any] = {
    # Azure conversations, two states (traffic-data.md §4).
    "kind": "mmpp",
    "rates_rps": [4.6164, 7.0037],
    "switch_per_s": [[0.0, 0.00822], [0.01329, 0.0]],
}


def test_two_state_mmpp_has_the_mean_and_the_idc_of_its_formula() -> None:
    duration_s = 180_000.0
    arrival_s = arrivals(duration_s, **TWO_STATES)
    (l1, l2), r12, r21 = TWO_STATES["rates_rps"], 0.00822, 0.01329
    r = r12 + r21
    mean = (l1 * r21 + l2 * r12) / r
    factor = 2 * r12 * r21 * (l1 - l2) ** 2 / (r**2 * (l1 * r21 + l2 * r12))
    # A window sees the chain anew only after some 1/r seconds.
    for window_s in (1.0, 10.0, 60.0):
        expected = 1 + factor * (1 - (1 - math.exp(-r * window_s)) / (r * window_s))
        error = math.sqrt(2.0 * max(window_s, 2.0 / r) / duration_s)
        assert idc(arrival_s, window_s, duration_s) == pytest.approx(expected, rel=4 * error)
    error = math.sqrt((1 + factor) * mean / duration_s)
    assert arrival_s.size / duration_s == pytest.approx(mean, abs=4 * error)
    assert mean_rate_rps(TrafficSpec(arrivals=TWO_STATES, lengths="azure-conv")) == pytest.approx(
        mean
    )


def test_mmpp_starts_in_a_state_as_often_as_it_is_in_it_later() -> None:
    spec = PARSER.validate_python(TWO_STATES)
    starts = [next(rate_paths(spec, 0.0, random(seed))).rates_rps[0] for seed in range(2000)]
    share = 0.01329 / (0.00822 + 0.01329)
    error = math.sqrt(share * (1 - share) / 2000)
    assert np.mean(np.array(starts) == 4.6164) == pytest.approx(share, abs=4 * error)


def cox_idc(mean: float, sigma: float, tau_s: float, window_s: float) -> float:
    """Return the IDC of a wandering rate by numerical integration."""
    u = (np.arange(20_000) + 0.5) * window_s / 20_000
    covered = (window_s - u) * np.expm1(sigma**2 * np.exp(-u / tau_s))
    return 1 + 2 * mean / window_s * float(covered.mean()) * window_s


def test_wandering_arrivals_have_the_idc_of_a_log_normal_cox_process() -> None:
    duration_s = 180_000.0
    arrival_s = arrivals(duration_s, kind="wandering", mean_rps=5.53, sigma=0.2276, tau_s=167.7)
    for window_s, simulated in ((1.0, 1.285), (10.0, 3.767), (60.0, 16.093)):
        expected = cox_idc(5.53, 0.2276, 167.7, window_s)
        error = math.sqrt(2.0 * max(window_s, 2 * 167.7) / duration_s)
        assert idc(arrival_s, window_s, duration_s) == pytest.approx(expected, rel=4 * error)
        assert expected == pytest.approx(simulated, rel=0.05)  # the page's own simulation


def test_noise_has_its_spread_its_memory_and_mean_one() -> None:
    spec = WanderingArrivals(mean_rps=3.0, sigma=0.4, tau_s=50.0)
    paths = islice(rate_paths(spec, 0.0, random()), 1200)
    rates = np.concatenate([path.rates_rps for path in paths])  # a cell is one second
    log_rates = np.log(rates / 3.0)
    error = 0.4 * math.sqrt(2 * 50.0 / rates.size)  # of a mean with that memory
    assert log_rates.mean() == pytest.approx(-(0.4**2) / 2, abs=4 * error)
    assert log_rates.std() == pytest.approx(0.4, abs=4 * error)
    assert rates.mean() == pytest.approx(3.0, abs=4 * 3.0 * error)
    later = np.corrcoef(log_rates[:-50], log_rates[50:])[0, 1]
    assert later == pytest.approx(math.exp(-1), abs=4 * math.sqrt(50.0 / rates.size))


def test_days_have_levels_of_their_own() -> None:
    spec = DiurnalArrivals(mean_rps=1.0, day_s=300.0, harmonics=(), day_sigma=0.3, start_h=12.0)
    paths = list(islice(rate_paths(spec, 0.0, random()), 1500))
    # The first half of a segment is the end of one day, the second half the start of the next.
    for before, after in pairwise(paths[:50]):
        assert before.rates_rps[-1] == after.rates_rps[0]
        assert before.rates_rps[0] != before.rates_rps[-1]
    levels = np.log([path.rates_rps[-1] for path in paths])
    assert levels.std() == pytest.approx(0.3, abs=4 * 0.3 / math.sqrt(2 * 1500))
    assert levels.mean() == pytest.approx(-(0.3**2) / 2, abs=4 * 0.3 / math.sqrt(1500))


def day_shape(harmonics: tuple[Harmonic, ...], hour: Floats) -> Floats:
    """Return the page's D(t)."""

    def waves(hours: Floats) -> Floats:
        log_rates = np.zeros(hours.size)
        for k, wave in enumerate(harmonics, start=1):
            log_rates += wave.amplitude * np.cos(2 * np.pi * k * (hours - wave.peak_h) / 24)
        return np.exp(log_rates)

    shape: Floats = waves(hour) / waves(np.linspace(0, 24, 100_001)[:-1]).mean()
    return shape


def test_day_follows_its_harmonics_at_any_length_and_clock_hour() -> None:
    def rate(at_s: Floats) -> Floats:
        return 20.0 * day_shape(TEXTBOOK_DAY, 6.0 + 24.0 * at_s / 1800.0)

    arrival_s = arrivals(3600.0, kind="diurnal", mean_rps=20.0, day_s=1800.0, start_h=6.0)
    assert_follows(arrival_s, rate, 3600.0)


def test_textbook_day_has_the_peak_and_trough_of_the_page() -> None:
    hours = np.linspace(0.0, 24.0, 24_001)
    shape = day_shape(TEXTBOOK_DAY, hours)
    assert shape.max() / shape.min() == pytest.approx(3.1, abs=0.05)
    assert shape.max() == pytest.approx(1.56, abs=0.01)
    path = next(rate_paths(DiurnalArrivals(mean_rps=1.0, day_s=300.0), 0.0, random()))
    assert path.rates_rps.max() == pytest.approx(shape.max(), rel=1e-3)
    assert path.rates_rps.min() == pytest.approx(shape.min(), rel=1e-3)
    peak_h = 24.0 * path.edges_s[np.argmax(path.rates_rps)] / 300.0
    assert 12.5 < peak_h < 14.5
    assert path.expected == pytest.approx(300.0, rel=1e-6)


def test_noise_of_a_short_day_is_as_short() -> None:
    long, short = (
        DiurnalArrivals(mean_rps=1.0, day_s=day_s, noise_tau_h=2.0) for day_s in (86_400.0, 3600.0)
    )
    assert long.noise_tau_s == 7200.0
    assert short.noise_tau_s == 300.0


RAMP: dict[str, Any] = {
    "kind": "ramp",
    "from_rps": 5.0,
    "to_rps": 40.0,
    "at_s": 300.5,
    "ramp_s": 800.0,
    "hold_s": 100.0,
}


TIMES_S: Floats = (np.arange(240_000, dtype=np.float64) + 0.5) / 100.0


def ramp_rps(at_s: Floats) -> Floats:
    up = np.clip((at_s - 300.5) / 800.0, 0.0, 1.0)
    down = np.clip((at_s - 300.5 - 800.0 - 100.0) / 800.0, 0.0, 1.0)
    return 5.0 + 35.0 * (up - down)


def test_ramp_goes_up_and_back() -> None:
    assert_follows(arrivals(2400.0, **RAMP), ramp_rps, 2400.0)


def test_ramp_without_hold_stays_up() -> None:
    fields = {**RAMP, "hold_s": None}
    arrival_s = arrivals(2400.0, **fields)
    at_top = np.count_nonzero(arrival_s > 1800.0)
    assert at_top == pytest.approx(600 * 40, abs=4 * math.sqrt(600 * 40))


CROWD: dict[str, Any] = {
    "kind": "flash-crowd",
    "base_rps": 10.0,
    "factor": 5.0,
    "at_s": 400.0,
    "rise_s": 15.0,
    "hold_s": 120.0,
    "decay_s": 200.0,
}


def crowd_rps(at_s: Floats) -> Floats:
    rise = 1 - np.exp(-np.clip(at_s - 400.0, 0.0, 120.0) / 15.0)
    return 10.0 * (1 + 4.0 * rise * np.exp(-np.maximum(at_s - 520.0, 0.0) / 200.0))


def test_flash_crowd_rises_holds_and_decays() -> None:
    assert_follows(arrivals(2400.0, **CROWD), crowd_rps, 2400.0)


def test_flash_crowd_without_time_constants_is_a_step() -> None:
    spec = PARSER.validate_python({**CROWD, "rise_s": 0.0, "decay_s": 0.0})
    path = next(islice(rate_paths(spec, 0.0, random()), 1, None))  # 300 .. 600 s
    begin_s = path.edges_s[:-1]
    in_crowd = (begin_s >= 400.0) & (begin_s < 520.0)
    assert path.rates_rps == pytest.approx(np.where(in_crowd, 50.0, 10.0))


def test_piecewise_rate_changes_at_its_times_and_may_be_zero() -> None:
    steps: dict[str, Any] = {"times_s": [0.0, 100.25, 700.0], "rates_rps": [30.0, 0.0, 60.0]}
    arrival_s = arrivals(1200.0, kind="piecewise", **steps)
    counts = np.histogram(arrival_s, [0.0, 100.25, 700.0, 1200.0])[0]
    for count, expected in zip(counts.tolist(), (3007.5, 0.0, 30_000.0), strict=True):
        assert count == pytest.approx(expected, abs=4 * math.sqrt(expected))


@pytest.mark.parametrize(
    ("fields", "rate"), [(RAMP, ramp_rps), (CROWD, crowd_rps)], ids=["ramp", "crowd"]
)
def test_shape_can_be_the_envelope_of_a_burstier_process(
    fields: dict[str, Any], rate: Callable[[Floats], Floats]
) -> None:
    duration_s = 2400.0
    arrival_s = np.concatenate(
        [arrivals(duration_s, seed=seed, cv=3.0, **fields) for seed in range(5)]
    )
    grid = np.linspace(0.0, duration_s, 240_001)
    middle = rate((grid[1:] + grid[:-1]) / 2)
    passed = np.interp(arrival_s, grid, np.append(0.0, np.cumsum(middle * np.diff(grid))))
    gaps = np.diff(passed)  # in expected requests: a renewal process of rate 1
    gaps = gaps[gaps >= 0.0]
    assert cv(gaps) == pytest.approx(3.0, abs=4 * cv_error("gamma", 3.0, gaps.size))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"kind": "poisson", "rate_rps": 7.0}, 7.0),
        ({"kind": "wandering", "mean_rps": 7.0, "sigma": 0.5, "tau_s": 10.0}, 7.0),
        ({"kind": "piecewise", "times_s": [0, 600], "rates_rps": [4, 1]}, 1.75),
        (RAMP, float(ramp_rps(TIMES_S).mean())),
        (CROWD, float(crowd_rps(TIMES_S).mean())),
        ({"kind": "diurnal", "mean_rps": 3.0, "day_s": 1200.0}, 3.0),
    ],
    ids=lambda value: value.get("kind", "") if isinstance(value, dict) else "",
)
def test_mean_rate_is_the_integral_of_the_shape(fields: dict[str, Any], expected: float) -> None:
    spec = TrafficSpec(arrivals=fields, lengths="azure-conv", duration_s=2400.0, rate_scale=2.0)
    assert mean_rate_rps(spec) == pytest.approx(2.0 * expected, rel=1e-6)


def test_mean_of_a_clipped_log_normal_is_that_of_its_draws() -> None:
    burst = ClippedLognormal(median=4.416, sigma=1.514, low=0.05, high=39.9)
    draws = np.clip(4.416 * np.exp(1.514 * random().standard_normal(400_000)), 0.05, 39.9)
    assert burst.mean == pytest.approx(draws.mean(), abs=4 * draws.std() / math.sqrt(400_000))
    assert ClippedLognormal(median=9.0, sigma=0.0, high=5.0).mean == 5.0


def test_bursts_have_the_statistics_of_the_page() -> None:
    """Azure code: simulated mean 2.57, CV 12.1, IDC 10.3 / 60.2 / 146 over 1 / 10 / 60 s."""
    spec = TrafficSpec(preset="azure-code").arrivals
    duration_s = 540_000.0
    arrival_s = arrivals(duration_s, **spec.model_dump())
    hours = counts_in(arrival_s, 3600.0, duration_s) / 3600.0
    error = hours.std() / math.sqrt(hours.size)
    assert hours.mean() == pytest.approx(mean_arrival_rate(spec, duration_s, 1.0), abs=4 * error)
    assert hours.mean() == pytest.approx(2.57, abs=4 * error)
    assert cv(np.diff(arrival_s)) == pytest.approx(12.086, rel=0.1)
    for window_s, simulated in ((1.0, 10.288), (10.0, 60.167), (60.0, 146.19)):
        assert idc(arrival_s, window_s, duration_s) == pytest.approx(simulated, rel=0.2)


def test_start_lies_in_a_burst_as_often_as_any_moment() -> None:
    cycle = {"sigma": 0.0, "high": 1000.0}
    fields: dict[str, Any] = {
        "kind": "on-off",
        "on_s": {"median": 100.0, "sigma": 0.3, "high": 1000.0},
        "off_s": {"median": 200.0, "sigma": 0.3, "high": 1000.0},
        "burst_rps": {"median": 5.0, **cycle},
    }
    begins_busy = [np.any(arrivals(300.0, seed=seed, **fields) < 2.0) for seed in range(600)]
    # A third of the time is in bursts; two seconds are without a request with probability e^-10.
    assert np.mean(begins_busy) == pytest.approx(1 / 3, abs=4 * math.sqrt(2 / 9 / 600) + 2 / 300)


CLIENTS: dict[str, Any] = {
    "kind": "clients",
    "rate": {"kind": "piecewise", "times_s": [0, 600], "rates_rps": [20, 60]},
    "clients": 30,
    "zipf": 2.19,
    "zipf_shift": 7.87,
}


def test_clients_send_by_their_shares_and_together_at_the_rate() -> None:
    spec: ClientsArrivals = PARSER.validate_python(CLIENTS)
    segments = list(islice(arrival_segments(spec, 0.0, 1.0, random()), 4))
    arrival_s = np.concatenate([segment.arrival_s for segment in segments])
    assert (np.diff(arrival_s) >= 0.0).all()
    assert_follows(arrival_s, lambda at_s: np.where(at_s < 600.0, 20.0, 60.0), 1200.0)
    counts = np.bincount(np.concatenate([segment.client for segment in segments]), minlength=30)
    ranks = np.arange(1, 31)
    expected = (ranks + 7.87) ** -2.19 / ((ranks + 7.87) ** -2.19).sum()
    assert client_shares(spec) == pytest.approx(expected)
    assert counts == pytest.approx(48_000 * expected, abs=4.5 * math.sqrt(48_000 * expected[0]))
    deviations = (counts - 48_000 * expected) / np.sqrt(48_000 * expected)
    assert (deviations**2).sum() < 30 + 4 * math.sqrt(2 * 30)


def test_many_regular_clients_are_a_poisson_process_together() -> None:
    regular = {**CLIENTS, "cv_median": 0.3, "rate": {"kind": "poisson", "rate_rps": 40.0}}
    many = arrivals(3600.0, **{**regular, "clients": 300, "zipf": 0.0})
    one = arrivals(3600.0, **{**regular, "clients": 1})
    # In a second hardly a client of the many sends twice.
    error = math.sqrt(2.0 / 3600.0)
    assert idc(many, 1.0, 3600.0) == pytest.approx(1.0, abs=4 * error + 1.0 / 7.5)
    assert idc(one, 1.0, 3600.0) == pytest.approx(0.3**2, rel=0.3)


def test_cvs_of_clients_are_log_normal() -> None:
    fields = {
        **CLIENTS,
        "rate": {"kind": "poisson", "rate_rps": 400.0},
        "clients": 80,
        "zipf": 0.0,
        "cv_median": 0.5,
        "cv_sigma": 0.4,
    }
    spec: ClientsArrivals = PARSER.validate_python(fields)
    segments = list(islice(arrival_segments(spec, 0.0, 1.0, random()), 4))
    arrival_s = np.concatenate([segment.arrival_s for segment in segments])
    client = np.concatenate([segment.client for segment in segments])
    log_cvs = np.log([cv(np.diff(arrival_s[client == index])) for index in range(80)])
    assert log_cvs.mean() == pytest.approx(math.log(0.5), abs=4 * 0.4 / math.sqrt(80))
    assert log_cvs.std() == pytest.approx(0.4, abs=4 * 0.4 / math.sqrt(160))


def test_rate_factor_speeds_up_without_new_rates() -> None:
    fields: dict[str, Any] = {"kind": "wandering", "mean_rps": 5.0, "sigma": 0.6, "tau_s": 100.0}
    once = counts_in(arrivals(6000.0, **fields), 300.0, 6000.0)
    four = counts_in(arrivals(6000.0, times=4.0, **fields), 300.0, 6000.0)
    assert np.corrcoef(once, four)[0, 1] > 0.95
    assert four.sum() / once.sum() == pytest.approx(4.0, rel=4 * math.sqrt(1.25 / once.sum()))
