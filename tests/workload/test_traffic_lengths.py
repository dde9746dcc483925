"""Lengths of generated traffic (traffic-data.md §2, §4, docs/workloads.md)."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aisim_gym.spec import TrafficSpec
from aisim_gym.spec.lengths import ClientLengths, Mixture, ScaledMixture
from aisim_gym.spec.named_lengths import NAMED_LENGTHS, NamedLengths
from aisim_gym.workload import generate_requests, longest_request
from aisim_gym.workload.traffic.length_draws import (
    LengthTable,
    draw_ranks,
    length_sources,
    length_table,
)

PUBLISHED: dict[tuple[str, str], tuple[float, float, list[float]]] = {
    # Mean, KS of the fit, q5 q25 q50 q75 q95 of the data (traffic-data.md §2).
    ("azure-code", "input"): (2048, 0.0345, [75, 578, 1469, 2744, 7303]),
    ("azure-code", "output"): (27.9, 0.0391, [6, 9, 13, 24, 90]),
    ("azure-conv", "input"): (1155, 0.0465, [181, 396, 1020, 1189, 4083]),
    ("azure-conv", "output"): (211.1, 0.0264, [41, 85, 129, 395, 451]),
    ("mooncake-conversation", "input"): (12_040, 0.0262, [901, 2306, 6909, 15_370, 39_550]),
    ("mooncake-conversation", "output"): (342.6, 0.0139, [10, 156.5, 350, 472, 698]),
    ("mooncake-synthetic", "input"): (15_320, 0.0204, [22, 277, 11_590, 23_180, 48_900]),
    ("mooncake-synthetic", "output"): (149.1, 0.0279, [2, 11, 69, 250, 519]),
    ("arxiv-summarize", "input"): (2588, 0.0372, [748.6, 1986, 2730, 3370, 3813]),
    ("arxiv-summarize", "output"): (291.4, 0.0061, [60, 115, 167, 242, 736.2]),
    ("servegen-large", "input"): (910.1, 0.0458, [66.8, 267.3, 583.1, 1069, 2332]),
    ("servegen-large", "output"): (155.2, 0.0658, [1, 8.4, 51.5, 206.1, 534.7]),
    ("servegen-mid", "input"): (307.2, 0.0727, [133.7, 145.8, 173.3, 245.2, 899.2]),
    ("servegen-mid", "output"): (50.8, 0.0353, [4.2, 16.7, 33.4, 61.3, 133.7]),
    ("reasoning-r1", "input"): (1269, 0.0419, [12.9, 39.7, 206.1, 490.3, 6597]),
    ("reasoning-r1", "output"): (1528, 0.0302, [224.8, 412.3, 824.6, 1512, 5547]),
}


def side_of(name: Any, side: str) -> ScaledMixture:
    lengths = NamedLengths(name=name)
    return lengths.input_lengths if side == "input" else lengths.output_lengths


def shares(table: LengthTable, longest: int) -> NDArray[np.float64]:
    """Return the probability of 1, 2, … tokens."""
    ranks = (np.arange(400_000) + 0.5) / 400_000
    return np.bincount(table.tokens(ranks), minlength=longest + 1)[1:] / 400_000


@pytest.mark.parametrize(("name", "side"), PUBLISHED, ids=map("-".join, PUBLISHED))
def test_named_lengths_have_the_mean_and_quantiles_of_their_trace(name: str, side: str) -> None:
    mean, distance, quantiles = PUBLISHED[name, side]
    table = length_table(side_of(name, side))
    ranks = (np.arange(200_000) + 0.5) / 200_000
    tokens = np.sort(table.tokens(ranks))
    for share, quantile in zip((0.05, 0.25, 0.5, 0.75, 0.95), quantiles, strict=True):
        # A share can lie inside the jump at one integer; the bounds cost a little of the fit.
        below = np.searchsorted(tokens, math.floor(quantile), side="left") / tokens.size
        up_to = np.searchsorted(tokens, math.ceil(quantile), side="right") / tokens.size
        assert below - distance - 0.015 <= share <= up_to + distance + 0.015
    assert table.mean_tokens == pytest.approx(mean, rel=0.12)


@pytest.mark.parametrize("name", NAMED_LENGTHS)
def test_draws_have_the_mean_of_their_table(name: Any) -> None:
    lengths = NamedLengths(name=name)
    source = np.random.default_rng(1)
    ranks = draw_ranks(lengths, 100_000, source)
    for side, side_ranks in zip(
        (lengths.input_lengths, lengths.output_lengths), ranks, strict=True
    ):
        table = length_table(side)
        tokens = table.tokens(side_ranks)
        assert tokens.min() >= side.shortest
        assert tokens.max() <= side.longest
        assert tokens.mean() == pytest.approx(
            table.mean_tokens, abs=4 * tokens.std() / math.sqrt(100_000)
        )


def test_component_keeps_its_weight_where_the_bounds_cut_it() -> None:
    mixture = Mixture(
        weights=(1.0, 3.0), medians=(10.0, 100.0), sigmas=(0.1, 0.1), min_tokens=1, max_tokens=100
    )
    tokens = LengthTable(ScaledMixture(mixture)).tokens((np.arange(4000) + 0.5) / 4000)
    assert np.mean(tokens < 50) == pytest.approx(0.25, abs=1e-3)
    assert tokens.max() == 100


def test_cap_draws_longer_ones_again() -> None:
    mixture = NAMED_LENGTHS["azure-conv"].input
    plain = shares(LengthTable(ScaledMixture(mixture)), 14_050)
    capped = shares(LengthTable(ScaledMixture(mixture, 1.0, 1000)), 1000)
    assert capped == pytest.approx(plain[:1000] / plain[:1000].sum(), abs=1e-5)


def test_scale_multiplies_lengths_before_rounding() -> None:
    mixture = NAMED_LENGTHS["azure-conv"].output
    ranks = (np.arange(20_000) + 0.5) / 20_000
    plain = LengthTable(ScaledMixture(mixture)).tokens(ranks)
    for factor in (0.01, 0.5, 3.0):
        scaled = ScaledMixture(mixture, factor)
        tokens = LengthTable(scaled).tokens(ranks)
        assert np.abs(tokens - np.maximum(1, factor * plain)).max() <= factor / 2 + 0.5 + 1e-6
        assert scaled.shortest <= tokens.min()
        assert tokens.max() <= scaled.longest


def test_zero_sigma_and_equal_bounds_give_one_length() -> None:
    fixed = TrafficSpec(
        preset="steady",
        lengths={"kind": "fixed", "input_tokens": 300, "output_tokens": 20},
        duration_s=60.0,
    )
    table = generate_requests(fixed)
    assert set(table.input_tokens.tolist()) == {300}
    assert set(table.output_tokens.tolist()) == {20}
    assert longest_request(fixed) == (300, 20)


def test_log_normal_lengths_have_their_median_and_spread() -> None:
    spec = TrafficSpec(
        arrivals={"kind": "poisson", "rate_rps": 100.0},
        lengths={
            "kind": "lognormal",
            "input_median": 2000.0,
            "input_sigma": 0.8,
            "output_median": 300.0,
            "output_sigma": 0.4,
        },
        duration_s=600.0,
    )
    table = generate_requests(spec)
    for tokens, median, sigma in (
        (table.input_tokens, 2000.0, 0.8),
        (table.output_tokens, 300.0, 0.4),
    ):
        logs = np.log(tokens)
        assert logs.mean() == pytest.approx(math.log(median), abs=4 * sigma / math.sqrt(60_000))
        assert logs.std() == pytest.approx(sigma, abs=4 * sigma / math.sqrt(2 * 60_000))


def rank_correlation(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """Return Spearman's correlation, equal lengths at their mean rank."""

    def ranks(values: NDArray[np.int64]) -> NDArray[np.float64]:
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


@pytest.mark.parametrize("correlation", [-1.0, -0.517, 0.0, 0.3, 1.0])
def test_prompt_and_output_have_the_rank_correlation(correlation: float) -> None:
    lengths = NAMED_LENGTHS["mooncake-synthetic"].model_copy(
        update={"rank_correlation": correlation}
    )
    input_ranks, output_ranks = draw_ranks(lengths, 40_000, np.random.default_rng(2))
    assert np.corrcoef(input_ranks, output_ranks)[0, 1] == pytest.approx(
        correlation, abs=4 / math.sqrt(40_000)
    )
    inputs = length_table(lengths.input_lengths).tokens(input_ranks)
    outputs = length_table(lengths.output_lengths).tokens(output_ranks)
    # Equal lengths blur perfect order a little.
    assert rank_correlation(inputs, outputs) == pytest.approx(correlation, abs=0.03)


CLIENTS = ClientLengths(
    input_median=678.0,
    input_sigma=1.11,
    input_cv=0.457,
    output_median=64.0,
    output_sigma=1.5,
    output_cv=0.817,
    log_correlation=0.5,
    max_input_tokens=2**20,
    max_output_tokens=2**20,
)


def test_client_means_are_jointly_log_normal_and_requests_spread_around_them() -> None:
    clients, each = 2000, 400
    source = np.random.default_rng(3)
    sources = length_sources(CLIENTS, clients, source)
    client = np.repeat(np.arange(clients), each)
    means = []
    for side in sources:
        tokens = side.tokens(source.random(client.size), client).reshape(clients, each)
        means.append(np.log(tokens.mean(axis=1)))
    assert means[0].mean() == pytest.approx(math.log(678.0), abs=4 * 1.11 / math.sqrt(clients))
    assert means[0].std() == pytest.approx(1.11, abs=4 * 1.11 / math.sqrt(2 * clients))
    # Outputs cannot be shorter than one token, which lifts the smallest means.
    assert means[1].mean() == pytest.approx(math.log(64.0), abs=0.2)
    assert np.corrcoef(means)[0, 1] == pytest.approx(0.5, abs=4 * 0.75 / math.sqrt(clients))
    tokens = sources.input.tokens(source.random(client.size), client).reshape(clients, each)
    within = tokens.std(axis=1) / tokens.mean(axis=1)
    assert np.median(within) == pytest.approx(0.457, rel=0.05)


def test_client_lengths_stay_between_one_and_their_bound() -> None:
    lengths = CLIENTS.model_copy(update={"max_input_tokens": 700, "max_output_tokens": 3})
    source = np.random.default_rng(4)
    sources = length_sources(lengths, 500, source)
    client = np.arange(50_000) % 500
    for side, longest in zip(sources, (700, 3), strict=True):
        tokens = side.tokens(source.random(client.size), client)
        assert tokens.min() >= 1
        assert tokens.max() == longest
