"""From a workload spec to requests: formats, generator, detection, odd rates."""

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aisim_gym.errors import UnsupportedError, WorkloadError
from aisim_gym.spec.generator import GeneratorSpec
from aisim_gym.spec.synthetic import SyntheticSpec
from aisim_gym.spec.workload import WorkloadSpec
from aisim_gym.workload import detect_trace_format, generate_requests, load_workload

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 00:00:00,4,5\n"


def mooncake_text(*timestamps: float) -> str:
    return "\n".join(
        json.dumps({"timestamp": t, "input_length": 8, "output_length": 2, "hash_ids": [1, 2]})
        for t in timestamps
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_mooncake_spec_passes_block_size_and_ratio(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", mooncake_text(10, 1010))
    spec = WorkloadSpec(trace_files=(path,), trace_block_size=4, arrival_speedup_ratio=2.0)
    table = load_workload(spec)
    assert table.arrival_ms.tolist() == [0.0, 500.0]
    assert table.trace_block_size == 4


def test_azure_spec_reads_a_csv_file(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", AZURE)
    assert len(load_workload(WorkloadSpec(trace_files=(path,), trace_format="azure"))) == 1


def test_generator_spec_is_sped_up_like_a_trace() -> None:
    generator = GeneratorSpec(duration_s=100)
    plain = generate_requests(generator)
    table = load_workload(WorkloadSpec(generator=generator, arrival_speedup_ratio=4.0))
    assert np.array_equal(table.arrival_ms, plain.arrival_ms / 4.0)
    assert np.array_equal(table.input_tokens, plain.input_tokens)


@pytest.mark.parametrize(
    ("timestamps", "rate"), [((0.0, 1_000_000.0), "0.002"), ((0.0, 0.01, 0.02), "1.5e+05")]
)
def test_odd_mean_rate_is_legal_but_warned_about(
    tmp_path: Path, timestamps: tuple[float, ...], rate: str
) -> None:
    path = write(tmp_path / "t.jsonl", mooncake_text(*timestamps))
    with pytest.warns(UserWarning, match="mean rate is") as caught:
        load_workload(WorkloadSpec(trace_files=(path,)))
    assert len(caught) == 1
    assert f"mean rate is {rate} requests per second" in str(caught[0].message)


def test_requests_at_one_instant_are_not_warned_about(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", mooncake_text(5, 5, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load_workload(WorkloadSpec(trace_files=(path,)))) == 3


def session_text(*fields: dict[str, object]) -> str:
    row = {"input_length": 8, "output_length": 2, "hash_ids": [1, 2], "session_id": "a"}
    return "\n".join(json.dumps(row | extra) for extra in fields)


def test_delta_format_adds_up_the_turns(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", session_text({"timestamp": 0}, {"delay": 3}))
    spec = WorkloadSpec(trace_files=(path,), trace_format="mooncake-delta", trace_block_size=4)
    table = load_workload(spec)
    assert table.is_delta
    assert table.input_tokens.tolist() == [8, 18]
    assert not load_workload(spec.model_copy(update={"trace_format": "mooncake"})).is_delta


def test_closed_loop_makes_sessions_and_ignores_times_and_their_rate(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", mooncake_text(0, 1e9))
    spec = WorkloadSpec(trace_files=(path,), replay_concurrency=2, arrival_speedup_ratio=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_workload(spec).session_ids == ("request_1", "request_2")


def test_closed_loop_leaves_lists_without_sessions_as_they_are(tmp_path: Path) -> None:
    rows = "2023-11-16 00:00:09,4,5\n2023-11-16 00:00:03,4,5\n"
    path = write(tmp_path / "t.csv", AZURE + rows)
    closed: dict[str, Any] = {"replay_concurrency": 3, "arrival_speedup_ratio": 0.0}
    table = load_workload(WorkloadSpec(trace_files=(path,), trace_format="azure", **closed))
    assert table.row.tolist() == [0, 2, 1]
    assert not table.has_sessions
    generator = GeneratorSpec(duration_s=100)
    table = load_workload(WorkloadSpec(generator=generator, **closed))
    assert np.array_equal(table.arrival_ms, generate_requests(generator).arrival_ms)


def test_synthetic_generator_uses_the_pace_of_the_workload_and_the_blocks_of_the_engine() -> None:
    generator = SyntheticSpec(
        input_tokens=8,
        output_tokens=1,
        request_count=3,
        arrival_interval_ms=30.0,
        shared_prefix_ratio=0.5,
        num_prefix_groups=1,
    )
    spec = WorkloadSpec(generator=generator, arrival_speedup_ratio=3.0)
    table = load_workload(spec, 2)
    assert table.start_ms.tolist() == pytest.approx([0.0, 10.0, 20.0])
    assert (table.trace_block_size, table.prompt_ids.tolist()) == (2, [0, 1] * 3)


def test_odd_rate_of_sessions_is_warned_about(tmp_path: Path) -> None:
    late = {"timestamp": 1e6, "session_id": "b"}
    path = write(tmp_path / "t.jsonl", session_text({"timestamp": 0}, {"delay": 1}, late))
    with pytest.warns(UserWarning, match=r"is 0\.002 sessions per second \(2 in 1000 s\)"):
        load_workload(WorkloadSpec(trace_files=(path,)))


def test_trace_without_a_file_or_a_reader_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="trace replay requires at least one trace file"):
        load_workload(WorkloadSpec())
    path = write(tmp_path / "t.jsonl", mooncake_text(0))
    for name in ("weka", "agentic_mooncake", "applied_compute_agentic", "dynamo"):
        spec = WorkloadSpec.from_data({"trace_files": [str(path)], "trace_format": name})
        with pytest.raises(UnsupportedError, match=f"trace_format='{name}' is not replayed yet"):
            load_workload(spec)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (mooncake_text(0), "mooncake"),
        ("\n  \n" + mooncake_text(0), "mooncake"),
        ("\ufeff" + mooncake_text(0), "mooncake"),
        ("{broken", "mooncake"),
        (AZURE, "azure"),
        ("\ufeff" + AZURE.replace("\n", "\r\n"), "azure"),
        ('{"schema": "dynamo.agentic_mooncake", "version": 2}', "agentic_mooncake"),
        ('{"schema": "dynamo.request.trace.v1"}', "dynamo"),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_format_is_told_by_the_first_line(
    tmp_path: Path, text: str, expected: str, compressed: bool
) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
    assert detect_trace_format(path) == expected


def test_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", "a,b,c\n1,2,3\n")
    with pytest.raises(WorkloadError, match=r"begins with 'a,b,c', known: mooncake .* azure"):
        detect_trace_format(path)
    with pytest.raises(WorkloadError, match="did not contain any requests"):
        detect_trace_format(write(path, "\n"))
    with pytest.raises(WorkloadError, match="failed to open trace file"):
        detect_trace_format(tmp_path / "absent")
