"""Generated traffic as tables: presets, seeds, chunks, bounds, and a fleet that runs them."""

import random
import tracemalloc
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.laws import fewer

from aisim_gym.errors import SpecError, WorkloadError
from aisim_gym.replay import Replay
from aisim_gym.report import summarize
from aisim_gym.spec import GeneratorSpec, ReplaySpec, TrafficSpec, WorkloadSpec, load_spec
from aisim_gym.spec.traffic_presets import PRESETS, PresetName
from aisim_gym.workload import (
    RequestTable,
    build_prompt_blocks,
    describe_generator,
    generate_requests,
    load_workload,
    longest_request,
    mean_rate_rps,
    read_mooncake,
    stream_requests,
    write_mooncake,
)

COLUMNS = ("row", "arrival_ms", "input_tokens", "output_tokens", "prompt_ids")


def short(preset: str, duration_s: float = 700.0, **fields: Any) -> TrafficSpec:
    """Return a preset whose crowd or ramp, if it has one, lies within the duration."""
    parts = {"flash-crowd": {"at_s": 0.2 * duration_s}, "ramp": {"at_s": 0.2 * duration_s}}
    if preset in parts:
        fields = {"arrivals": parts[preset], **fields}
    return TrafficSpec(**{"preset": preset, "duration_s": duration_s, **fields})


def assert_same(first: RequestTable, second: RequestTable) -> None:
    for column in (*COLUMNS, "prompt_starts"):
        assert np.array_equal(getattr(first, column), getattr(second, column)), column
    assert first.trace_block_size == second.trace_block_size


def test_every_preset_name_has_a_preset() -> None:
    assert set(get_args(PresetName)) == set(PRESETS)


@pytest.mark.parametrize("preset", PRESETS)
def test_chunks_put_together_are_the_whole(preset: str) -> None:
    spec = short(preset, seed=5)
    whole = generate_requests(spec)
    assert whole.arrival_ms[-1] < 700_000.0
    for chunk_s in (7.3, 300.0, 1e6):
        chunks = list(stream_requests(spec, chunk_s))
        for index, chunk in enumerate(chunks):
            assert (chunk.arrival_ms >= index * chunk_s * 1000.0).all()
            assert (chunk.arrival_ms < (index + 1) * chunk_s * 1000.0).all()
            assert chunk.trace_block_size == whole.trace_block_size
        for column in COLUMNS:
            together = np.concatenate([getattr(chunk, column) for chunk in chunks])
            assert np.array_equal(together, getattr(whole, column)), column
        sizes = np.concatenate([np.diff(chunk.prompt_starts) for chunk in chunks])
        assert np.array_equal(sizes, np.diff(whole.prompt_starts))


def test_stream_has_a_table_for_every_chunk_even_an_empty_one() -> None:
    quiet = {"kind": "piecewise", "times_s": [0, 100, 900], "rates_rps": [5, 0, 5]}
    spec = TrafficSpec(arrivals=quiet, lengths="azure-conv", duration_s=1000.0)
    sizes = [len(chunk) for chunk in stream_requests(spec, 100.0)]
    assert len(sizes) == 10
    assert sizes[1:9] == [0] * 8
    assert min(sizes[0], sizes[9]) > 400


def test_stream_holds_a_chunk_in_memory_not_the_whole() -> None:
    spec = short("mooncake-conversation", 12_000.0)
    for _ in stream_requests(spec, 100.0):  # tables of lengths are kept
        break
    peaks = []
    for run in (generate_requests, lambda spec: sum(map(len, stream_requests(spec, 100.0)))):
        tracemalloc.start()
        run(spec)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    whole, stream = peaks
    assert stream < whole / 4


@pytest.mark.parametrize("preset", PRESETS)
def test_longer_traffic_begins_like_the_shorter(preset: str) -> None:
    fields: dict[str, Any] = {"seed": 9}
    if preset in ("flash-crowd", "ramp"):
        fields["arrivals"] = {"at_s": 50.0}
    once = generate_requests(short(preset, 400.0, **fields))
    twice = generate_requests(short(preset, 800.0, **fields))
    assert_same(once, twice.head(len(once)))
    assert twice.arrival_ms[len(once)] >= 400_000.0


@pytest.mark.parametrize("preset", PRESETS)
def test_same_seed_same_table_and_global_random_state_is_left_alone(preset: str) -> None:
    """F01: the seed alone decides; NumPy's and Python's global generators are not used."""
    tables = []
    for state in (1, 2):
        np.random.seed(state)  # noqa: NPY002
        random.seed(state)
        before = str(np.random.get_state()), random.getstate()  # noqa: NPY002
        tables.append(generate_requests(short(preset, 400.0, seed=7)))
        assert (str(np.random.get_state()), random.getstate()) == before  # noqa: NPY002
    assert_same(*tables)
    other = generate_requests(short(preset, 400.0, seed=8))
    assert not np.array_equal(other.arrival_ms, tables[0].arrival_ms)


def test_arrivals_lengths_and_prompts_do_not_change_each_other() -> None:
    plain = generate_requests(short("servegen-large-day"))
    longer = generate_requests(short("servegen-large-day", lengths={"input_scale": 2.0}))
    assert np.array_equal(plain.arrival_ms, longer.arrival_ms)
    assert np.array_equal(plain.output_tokens, longer.output_tokens)
    other = generate_requests(short("servegen-large-day", lengths="azure-code"))
    assert np.array_equal(plain.arrival_ms, other.arrival_ms)
    unique = generate_requests(short("servegen-large-day", prompts={"kind": "unique"}))
    assert np.array_equal(plain.arrival_ms, unique.arrival_ms)
    assert np.array_equal(plain.input_tokens, unique.input_tokens)
    bursty = generate_requests(short("servegen-large-day", arrivals={"cv": 3.0}))
    both = min(len(plain), len(bursty))
    assert np.array_equal(plain.input_tokens[:both], bursty.input_tokens[:both])
    assert not np.array_equal(plain.arrival_ms[:both], bursty.arrival_ms[:both])


@pytest.mark.parametrize("preset", PRESETS)
def test_rate_scale_scales_the_mean_rate(preset: str) -> None:
    once, twice = (mean_rate_rps(short(preset, rate_scale=scale)) for scale in (1.0, 2.0))
    # A burst has its first request at any rate.
    tolerance = 0.05 if preset == "azure-code" else 1e-9
    assert twice == pytest.approx(2.0 * once, rel=tolerance)


@pytest.mark.parametrize("preset", PRESETS)
def test_count_is_the_mean_rate_times_the_duration(preset: str) -> None:
    counts = [len(generate_requests(short(preset, 900.0, seed=seed))) for seed in range(30)]
    error = np.std(counts, ddof=1) / np.sqrt(30)
    expected = 900.0 * mean_rate_rps(short(preset, 900.0))
    assert np.mean(counts) == pytest.approx(expected, abs=4 * error)


@fewer(2)  # an example generates two minutes of traffic
@given(
    preset=st.sampled_from(sorted(PRESETS)),
    seed=st.integers(0, 2**64 - 1),
    scales=st.tuples(st.floats(0.02, 3.0), st.floats(0.02, 3.0)),
)
def test_no_request_is_longer_than_the_longest(
    preset: str, seed: int, scales: tuple[float, float]
) -> None:
    fields: dict[str, Any] = {"seed": seed, "rate_scale": 3.0}
    has_classes = bool(TrafficSpec(preset=preset).classes)
    if not has_classes and preset != "servegen-large-clients":
        fields["lengths"] = {"input_scale": scales[0], "output_scale": scales[1]}
    spec = short(preset, 120.0, **fields)
    longest_input, longest_output = longest_request(spec)
    for table in stream_requests(spec, 1e9):
        assert table.input_tokens.max(initial=1) <= longest_input
        assert table.output_tokens.max(initial=1) <= longest_output
        assert table.input_tokens.min(initial=1) >= 1
        assert table.output_tokens.min(initial=1) >= 1


def test_longest_request_counts_what_prefixes_add() -> None:
    prompts = {
        "kind": "groups",
        "groups": 50,
        "prefix_blocks": 4,
        "prefix_sigma": 2.0,
        "max_prefix_blocks": 10,
        "adds_to_input": True,
    }
    spec = short("steady", prompts=prompts, lengths={"max_input_tokens": 500})
    assert longest_request(spec) == (500 + 10 * 512, 1000)
    table = generate_requests(spec)
    assert 10 * 512 < table.input_tokens.max() <= 500 + 10 * 512


def test_longest_and_mean_of_chat_waves() -> None:
    spec = GeneratorSpec(duration_s=3000.0, seed=3)
    counts = [len(generate_requests(spec.model_copy(update={"seed": seed}))) for seed in range(20)]
    error = np.sqrt(3000.0 * mean_rate_rps(spec) / 20)
    assert np.mean(counts) == pytest.approx(3000.0 * mean_rate_rps(spec), abs=4 * error)
    assert longest_request(spec) == (12_000, 1600)
    assert generate_requests(spec).input_tokens.max() <= 12_000


def test_description_states_rate_bounds_and_seed() -> None:
    spec = short("mooncake-toolagent", rate_scale=0.5, seed=11)
    assert describe_generator(spec) == (
        "mooncake-toolagent: 3.279 requests/s (mean) over 700 s, input <= 102976 tokens, "
        "output <= 1048 tokens, seed 11"
    )
    assert describe_generator(GeneratorSpec(peak_rate_rps=2.0, spike_at_s=None)).startswith(
        "chat-wave: 2 requests/s (mean) over 1800 s, "
    )


def test_traffic_without_a_single_arrival_is_refused() -> None:
    spec = short("steady", 1.0, rate_scale=1e-9)
    with pytest.raises(WorkloadError, match="no request arrives within duration_s 1 at 8e-09 req"):
        generate_requests(spec)
    assert [len(table) for table in stream_requests(spec)] == [0]


def test_more_requests_than_memory_holds_are_refused_before_they_are_made() -> None:
    """F50: an absurd rate is an error, not a run that never ends."""
    spec = short("steady", 3600.0, rate_scale=1e6)
    message = r"8e\+06 requests/s for 3600 s are 2.88e\+10 requests, allowed: at most 50000000"
    with pytest.raises(WorkloadError, match=message):
        generate_requests(spec)
    with pytest.raises(WorkloadError, match=r"for 300 s are 2.4e\+09 requests"):
        stream_requests(spec)


@pytest.mark.parametrize("chunk_s", [0.0, -1.0, float("nan"), float("inf")])
def test_chunks_need_a_length(chunk_s: float) -> None:
    with pytest.raises(ValueError, match=r"chunk_s: got .*, allowed: a finite number > 0"):
        stream_requests(short("steady"), chunk_s)


SMALL_FLEET: dict[str, Any] = {
    "kind": "agg",
    "num_workers": 2,
    "engine": {
        "engine": {
            "num_gpu_blocks": 20_000,
            "block_size": 64,
            "max_num_batched_tokens": 8192,
            "timing_model": {"type": "fixed", "prefill_ms": 5.0, "decode_ms": 0.5},
        }
    },
}


@pytest.mark.parametrize("preset", PRESETS)
def test_small_fleet_completes_every_request_of_a_preset(preset: str) -> None:
    traffic = short(preset, 60.0, rate_scale=0.5, seed=2)
    spec = ReplaySpec.from_data(
        {"fleet": SMALL_FLEET, "workload": {"generator": traffic.model_dump()}}
    )
    summary = summarize(Replay.run(spec)).summary
    assert summary["completed_requests"] == len(generate_requests(traffic))


def test_sessions_hit_the_prefix_cache_of_a_fleet() -> None:
    traffic = short("mooncake-conversation", 120.0, rate_scale=0.5, seed=2)
    spec = ReplaySpec.from_data(
        {
            "fleet": {**SMALL_FLEET, "num_workers": 1},
            "workload": {"generator": traffic.model_dump()},
        }
    )
    summary = summarize(Replay.run(spec)).summary
    assert summary["prefix_cache_reused_ratio"] > 0.1


def test_speedup_keeps_lengths_and_prompts() -> None:
    traffic = short("mooncake-conversation", 300.0)
    plain = generate_requests(traffic)
    fast = load_workload(WorkloadSpec(generator=traffic, arrival_speedup_ratio=4.0))
    assert np.array_equal(fast.arrival_ms, plain.arrival_ms / 4.0)
    for column in ("input_tokens", "output_tokens", "prompt_ids", "prompt_starts"):
        assert np.array_equal(getattr(fast, column), getattr(plain, column))


def test_table_written_as_a_trace_reads_back_with_its_shared_blocks(tmp_path: Path) -> None:
    """F37."""
    table = generate_requests(short("mooncake-toolagent", 200.0))
    write_mooncake(table, tmp_path / "trace.jsonl")
    again = read_mooncake(tmp_path / "trace.jsonl")
    assert again.arrival_ms == pytest.approx(table.arrival_ms - table.arrival_ms[0], abs=1e-6)
    assert np.array_equal(
        build_prompt_blocks(again, 64).shared_blocks, build_prompt_blocks(table, 64).shared_blocks
    )


def test_spec_file_names_a_preset_or_says_everything(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(
        """
        [fleet]
        kind = "agg"
        [workload.generator]
        kind = "traffic"
        preset = "azure-chat"
        duration_s = 600
        rate_scale = 2.0
        seed = 7
        """,
        "utf-8",
    )
    spec = load_spec(file)
    assert spec.workload.generator == TrafficSpec(
        preset="azure-chat", duration_s=600.0, rate_scale=2.0, seed=7
    )
    whole = ReplaySpec.model_validate_json(spec.to_json())
    assert whole == spec
    assert_same(load_workload(whole.workload), load_workload(spec.workload))
    file.write_text(
        """
        [fleet]
        kind = "agg"
        [workload.generator]
        kind = "traffic"
        arrivals = {kind = "renewal", rate_rps = 4, cv = 2.5, family = "weibull"}
        lengths = "azure-cod"
        """,
        "utf-8",
    )
    with pytest.raises(SpecError, match=r"workload\.generator\.lengths\.name: .* `azure-code`\?"):
        load_spec(file)
