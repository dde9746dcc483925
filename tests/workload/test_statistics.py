"""Statistics of workloads, and those of the public traces (traffic-data.md §1 to §3)."""

from typing import Any

import numpy as np
import pytest
from support.shared_folder import require_shared

from aisim_gym.errors import WorkloadError
from aisim_gym.workload import (
    read_azure_csv,
    read_mooncake,
    requests_from_arrays,
    requests_from_mooncake_rows,
    spread_stamps,
    trace_statistics,
)
from aisim_gym.workload.statistics import reusable_tokens


def test_counts_in_whole_windows_and_gaps() -> None:
    # 3, 0, 1 arrivals in whole seconds; the last one begins a window that is not whole.
    table = requests_from_arrays([0.0, 100.0, 900.0, 2500.0, 3000.0], [4] * 5, [1] * 5)
    statistics = trace_statistics(table)
    assert statistics.duration_s == 3.0
    assert statistics.mean_rate_rps == pytest.approx(5 / 3)
    assert statistics.peak_1s_rps == 3.0
    assert statistics.idc_1s == pytest.approx(np.var([3, 0, 1]) / np.mean([3, 0, 1]))
    gaps_s = [0.1, 0.8, 1.6, 0.5]
    assert statistics.cv == pytest.approx(np.std(gaps_s) / np.mean(gaps_s))
    assert (statistics.peak_10s_rps, statistics.idc_10s) == (None, None)
    assert statistics.cv_in_minute is None


def test_equal_gaps_have_no_variation() -> None:
    table = requests_from_arrays(np.arange(0.0, 700_000.0, 500.0), [4] * 1400, [1] * 1400)
    statistics = trace_statistics(table)
    assert (statistics.cv, statistics.cv_in_minute, statistics.idc_300s) == (0.0, 0.0, 0.0)
    assert statistics.peak_60s_rps == 2.0


def test_variation_in_minutes_leaves_out_slow_changes_and_almost_empty_minutes() -> None:
    fast = np.arange(0.0, 60_000.0, 100.0)
    few = 60_000.0 + np.array([0.0, 1.0, 59_000.0])
    slow = 120_000.0 + np.arange(0.0, 60_001.0, 2_000.0)
    arrivals = np.concatenate((fast, few, slow))
    statistics = trace_statistics(requests_from_arrays(arrivals, [4] * 634, [1] * 634))
    assert statistics.cv_in_minute == pytest.approx(0.0, abs=1e-9)
    assert statistics.cv is not None
    assert statistics.cv > 1.0


def test_reusable_is_the_leading_run_of_known_blocks() -> None:
    prompts = [[1, 2, 3], [1, 2, 4], [9, 2], [1, 2, 3], None]
    table = requests_from_arrays(np.arange(5.0), [12, 12, 8, 10, 6], [1] * 5, prompts, 4)
    assert reusable_tokens(table).tolist() == [0, 8, 0, 10, 0]
    statistics = trace_statistics(table)
    assert statistics.reusable_frac == 18 / 48
    assert statistics.requests_with_reuse_frac == 2 / 5
    assert (statistics.block_references, statistics.distinct_blocks) == (11, 5)


def test_sessions_are_counted_by_their_starts() -> None:
    row = {"input_length": 4, "output_length": 1, "hash_ids": [1]}
    rows = [
        row | {"session_id": "a", "timestamp": 0},
        row | {"session_id": "a", "delay": 5},
        row | {"session_id": "b", "timestamp": 2000},
    ]
    statistics = trace_statistics(requests_from_mooncake_rows(rows, 4))
    assert (statistics.requests, statistics.sessions) == (3, 2)
    assert statistics.peak_1s_rps == 1.0
    assert statistics.reusable_frac == pytest.approx(2 / 3)
    delta = trace_statistics(requests_from_mooncake_rows(rows, 4, is_delta=True))
    assert (delta.reusable_frac, delta.requests_with_reuse_frac) == (None, None)


def test_without_arrivals_there_are_lengths_only() -> None:
    row = {"input_length": 4, "output_length": 1, "hash_ids": [1]}
    statistics = trace_statistics(requests_from_mooncake_rows([row], 4, is_closed_loop=True))
    assert (statistics.mean_rate_rps, statistics.peak_1s_rps, statistics.cv) == (None, None, None)
    assert statistics.input_tokens.max == 4
    at_once = trace_statistics(requests_from_arrays([0.0, 0.0, 0.0], [4] * 3, [1] * 3))
    assert (at_once.mean_rate_rps, at_once.cv, at_once.idc_1s) == (None, None, None)


def test_empty_table_has_no_statistics() -> None:
    with pytest.raises(WorkloadError, match="the table has no requests"):
        trace_statistics(requests_from_arrays([], [], []))


PUBLISHED: dict[str, dict[str, Any]] = {
    "azure_llm_2023_code.csv.gz": {
        "rows": 8819,
        "arrivals": (3436, 2.567, 67, 32.7, 10.53, 13.15, 4.302, 13.19, 71.64, 164, 137.8),
        "input": (2048, 1974, 17, 75, 578, 1469, 2744, 7303, 7436, 7437),
        "output": (27.9, 59.9, 6, 6, 9, 13, 24, 90, 251.5, 1899),
    },
    "azure_llm_2023_conv.csv.gz": {
        "rows": 19366,
        "arrivals": (3502, 5.53, 16, 9.8, 8.45, 1.094, 1.026, 1.385, 3.857, 16.13, 56.09),
        "input": (1155, 1109, 29, 181, 396, 1020, 1189, 4083, 4142, 14050),
        "output": (211.1, 162.9, 16, 41, 85, 129, 395, 451, 601, 1000),
    },
    "mooncake_synthetic.jsonl.gz": {
        "rows": 3993,
        "arrivals": (1022, 3.907, 13, 5.5, 4.55, 1.011, 1.002, 1.089, 1.178, 1.192, 2.235),
        "input": (15320, 18380, 16, 22, 277, 11590, 23180, 48900, 66460, 191400),
        "output": (149.1, 178.2, 2, 2, 11, 69, 250, 519, 768.1, 893),
        "prefix": (121877, 43924, 0.651, 0.446),
    },
    "mooncake_conversation.jsonl.gz": {
        "rows": 12031,
        "input": (12040, 15800, 894, 901, 2306, 6909, 15370, 39550, 85400, 126200),
        "output": (342.6, 249.9, 3, 10, 156.5, 350, 472, 698, 1118, 2000),
        "prefix": (288500, 182790, 0.374, 1.0),
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_public_traces_have_the_published_statistics(name: str) -> None:
    path = require_shared("data", "traces", name)
    read = read_azure_csv if name.startswith("azure") else read_mooncake
    found, published = trace_statistics(read(path)), PUBLISHED[name]
    assert found.requests == published["rows"]
    if "arrivals" in published:
        arrivals = (
            *(found.duration_s, found.mean_rate_rps),
            *(found.peak_1s_rps, found.peak_10s_rps, found.peak_60s_rps),
            *(found.cv, found.cv_in_minute),
            *(found.idc_1s, found.idc_10s, found.idc_60s, found.idc_300s),
        )
        # The page rounds to four digits.
        assert arrivals == pytest.approx(published["arrivals"], rel=6e-4)
    for lengths, expected in (
        (found.input_tokens, published["input"]),
        (found.output_tokens, published["output"]),
    ):
        assert tuple(vars(lengths).values()) == pytest.approx(expected, rel=2e-3)
    blocks = (found.block_references, found.distinct_blocks)
    reuse = (found.reusable_frac, found.requests_with_reuse_frac)
    assert (*blocks, *reuse) == pytest.approx(published.get("prefix", (0, 0, 0.0, 0.0)), abs=5e-4)


def test_quantised_stamps_of_the_conversation_trace_are_bursts_until_spread() -> None:
    """Raw CV 3.03 and IDC(1 s) 7.9 are artefacts; spread evenly, long windows keep their IDC."""
    table = read_mooncake(require_shared("data", "traces", "mooncake_conversation.jsonl.gz"))
    raw, spread = trace_statistics(table), trace_statistics(spread_stamps(table, 3000.0))
    assert raw.cv == pytest.approx(3.03, abs=0.005)
    assert raw.idc_1s == pytest.approx(7.9, abs=0.05)
    assert spread.cv is not None
    assert spread.cv < 0.5
    assert spread.duration_s == pytest.approx(3540.0, abs=0.5)
    # The page spreads at random: equal rates, and counts of a minute that differ by edges only.
    assert spread.mean_rate_rps == pytest.approx(3.399, abs=5e-4)
    assert spread.idc_60s == pytest.approx(2.863, rel=0.01)
    assert spread.idc_300s == pytest.approx(7.356, rel=0.01)
