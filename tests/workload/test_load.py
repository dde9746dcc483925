"""From a workload spec to requests: formats, generator, detection, odd rates."""

import gzip
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from aisim_gym.errors import UnsupportedError, WorkloadError
from aisim_gym.spec.generator import GeneratorSpec
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


def test_valid_delta_trace_and_concurrency_are_unsupported(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", mooncake_text(0))
    with pytest.raises(UnsupportedError, match="trace_format='mooncake-delta' is not replayed yet"):
        load_workload(WorkloadSpec(trace_files=(path,), trace_format="mooncake-delta"))
    with pytest.raises(UnsupportedError, match="replay_concurrency=2 is not replayed yet"):
        load_workload(WorkloadSpec(trace_files=(path,), replay_concurrency=2))


def test_trace_without_a_file_or_a_reader_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="trace replay requires at least one trace file"):
        load_workload(WorkloadSpec())
    path = write(tmp_path / "t.jsonl", mooncake_text(0))
    with pytest.raises(UnsupportedError, match="trace_format='weka' is not replayed yet"):
        load_workload(WorkloadSpec(trace_files=(path,), trace_format="weka"))


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
