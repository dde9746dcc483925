"""``aisim-gym size``: the table, the JSON, the flags, an interruption."""

import gzip
import json
import os
import re
import threading
from pathlib import Path

import pytest
from support.cli import run_cli

from aisim_gym.replay import Progress, Replay
from aisim_gym.sizing import size_fleet

LEVEL = ("--ttft-slo-ms", "40", "--itl-slo-ms", "20")
ENGINE = ("--engine", "h100-llama31-8b")


def plain(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    """A Mooncake trace of 120 requests in 3 s: more than one worker keeps up with."""
    line = '{{"timestamp": {}, "input_length": 3000, "output_length": 20, "hash_ids": []}}\n'
    path = tmp_path / "busy.jsonl"
    ids = "[" + ", ".join(f"{{}}{number}" for number in range(6)) + "]"
    rows = [
        line.format(25 * index).replace("[]", ids.replace("{}", f"1{index:03}"))
        for index in range(120)
    ]
    path.write_text("".join(rows))
    return path


def test_g16_command_prints_the_fleet_and_the_next_smaller_one(busy: Path, tmp_path: Path) -> None:
    result = run_cli("size", busy, *ENGINE, "--ttft-slo-ms", "300", "--out", tmp_path / "out")
    assert result.status == 0, result.err
    sized = size_fleet(busy, "h100-llama31-8b", ttft_ms=300.0)
    assert sized.gpus > 1
    text = plain(result.out)
    assert "TTFT 300 ms for 95 % of the requests" in text
    for name, fleet in (("smallest", sized.fleet), ("next smaller", sized.smaller[0])):
        met = f"{100.0 * fleet.attainment_frac:.2f} %"
        assert f"{name} {fleet.size} {fleet.gpus} {met} {fleet.gpu_hours:.2f}" in text
    assert f"{len(sized.measured)} fleets replayed" in text
    assert json.loads((tmp_path / "out" / "size.json").read_text()) == sized.to_dict()


def test_json_of_a_disaggregated_fleet_from_a_gz_trace(busy: Path, tmp_path: Path) -> None:
    packed = tmp_path / "busy.jsonl.gz"
    packed.write_bytes(gzip.compress(busy.read_bytes()))
    flags = ("--ttft-slo-ms", "300", "--itl-slo-ms", "20", "--share", "0.9", "--disagg")
    result = run_cli("size", packed, *ENGINE, *flags, "--max-gpus", "12", "--json")
    assert result.status == 0, result.err
    sized = size_fleet(
        busy,
        "h100-llama31-8b",
        ttft_ms=300.0,
        itl_ms=20.0,
        share=0.9,
        kind="disagg",
        max_gpus=12,
    )
    assert json.loads(result.out) == sized.to_dict()


def test_relative_trace_is_found(busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(busy.parent)
    result = run_cli("size", busy.name, *ENGINE, "--ttft-slo-ms", "60000")
    assert result.status == 0, result.err
    assert "smallest 1 worker 1 100.00 %" in plain(result.out)
    assert "There is no smaller fleet." in plain(result.out)


def test_pipe_of_a_known_format_is_read_as_the_file_is(busy: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(busy.read_bytes(),))
    writer.start()
    flags = (*ENGINE, "--ttft-slo-ms", "300", "--trace-format", "mooncake", "--json")
    piped = run_cli("size", pipe, *flags)
    writer.join()
    assert piped.status == 0, piped.err
    assert json.loads(piped.out) == json.loads(run_cli("size", busy, *flags).out)


def test_spec_file_gives_fleet_and_limits_and_flags_win(busy: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(
        '[fleet]\nkind = "disagg"\nnum_prefill_workers = 5\n'
        '[fleet.prefill]\nengine = "h100-llama31-8b"\n[fleet.decode]\nengine = "h100-llama31-8b"\n'
        "[sla]\nttft_ms = 0.001\n"
    )
    result = run_cli("size", busy, "--spec", spec, "--ttft-slo-ms", "60000", "--json")
    assert result.status == 0, result.err
    found = json.loads(result.out)
    assert found["fleet"]["workers"] == {"prefill": 1, "decode": 1}
    assert found["sla"]["ttft_ms"] == 60_000.0
    refused = run_cli("size", busy, "--spec", spec, "--agg", *LEVEL)
    assert (refused.status, refused.out) == (2, "")
    assert "--agg: fleet.kind in the spec file is 'disagg'" in refused.err


def test_spec_file_may_hold_only_the_workload(tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text('[workload.generator]\nkind = "chat-wave"\nduration_s = 20\n')
    flags = ("--ttft-slo-ms", "60000", "--set", "fleet.engine.engine.max_num_seqs=64", "--json")
    result = run_cli("size", "--spec", spec, *ENGINE, *flags)
    assert result.status == 0, result.err
    assert json.loads(result.out)["fleet"]["workers"] == {"workers": 1}


def test_impossible_level_prints_what_was_measured_and_the_best(busy: Path, tmp_path: Path) -> None:
    flags = ("--ttft-slo-ms", "1", "--max-workers", "2", "--out", tmp_path / "out")
    result = run_cli("size", busy, *ENGINE, *flags)
    assert result.status == 2
    assert "no fleet of at most 2 workers keeps TTFT 1 ms for 95 % of the requests" in result.err
    assert "too small 2 workers" in plain(result.out)
    assert "2 fleets replayed; none is enough." in plain(result.out)
    written = json.loads((tmp_path / "out" / "size.json").read_text())
    assert written["fleet"] is None
    assert len(written["measured"]) == 2


def test_interrupted_search_prints_and_writes_what_was_measured(
    busy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed: list[Replay] = []
    advance = Replay.advance_to_tick

    def interrupt_third(replay: Replay, on_progress: object = None) -> object:
        if len(replayed) == 2:
            raise KeyboardInterrupt
        replayed.append(replay)
        return advance(replay, on_progress)  # type: ignore[arg-type]

    monkeypatch.setattr(Replay, "advance_to_tick", interrupt_third)
    result = run_cli("size", busy, *ENGINE, "--ttft-slo-ms", "1", "--out", tmp_path / "out")
    assert result.status == 130
    assert "Interrupted" in result.err
    assert "2 fleets replayed; the search was interrupted." in plain(result.out)
    assert re.search(r"too small 1 worker .*too small 2 workers", plain(result.out))
    written = json.loads((tmp_path / "out" / "size.json").read_text())
    assert (written["fleet"], len(written["measured"])) == (None, 2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "no engine: give --engine NAME, or a fleet with --spec FILE"),
        (ENGINE, "got no limits, expected"),
        ((*ENGINE, *LEVEL, "--share", "95"), "share: got 95, expected a number in (0, 1]"),
        (("--engine", "h100", *LEVEL), "unknown engine profile 'h100'"),
        ((*ENGINE, *LEVEL, "--max-workers", "0"), "max_workers: got 0"),
    ],
)
def test_bad_flags_are_told(trace: Path, flags: tuple[str, ...], message: str) -> None:
    result = run_cli("size", trace, *flags)
    assert (result.status, result.out) == (2, "")
    assert message in result.err


def test_progress_names_the_fleet_that_is_tried(
    busy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aisim_gym.cli.progress import Narrator

    bars: list[str] = []

    def follow(_: Narrator, description: str) -> object:
        bars.append(description)
        return lambda progress: isinstance(progress, Progress)

    monkeypatch.setattr(Narrator, "follow", follow)
    assert run_cli("size", busy, *ENGINE, "--ttft-slo-ms", "300").status == 0
    assert bars[:2] == ["Trying 1 worker", "Trying 2 workers"]
    assert len(bars) == len(set(bars))
