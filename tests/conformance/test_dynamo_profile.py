"""Runs timed by the reference's profile files (engine-vllm-trtllm.md §2.3).

Random scenarios against the reference, and some recorded ones (``data/profiles``) for where it is
not installed: all backends, both topologies, chunked prompts, prefix hits, several ranks per
worker, speculative decoding.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance.drawn_profiles import Profile, profiles, use_profiles, write_profile
from conformance.drawn_scenarios import BACKENDS, scenarios
from hypothesis import given
from hypothesis import strategies as st
from support.fleets import BLOCK_SIZE, arrivals, run_small, small_fleet
from support.laws import fewer
from support.oracle import Oracle
from support.oracle_comparison import Differential
from support.oracle_recording import unrecorded

from aisim_gym.conformance import Golden, find_difference, run_scenario
from aisim_gym.engine.timing_table import LONGEST_MS
from aisim_gym.errors import SpecError, UnsupportedError
from aisim_gym.replay import Replay
from aisim_gym.spec.dynamo_profile import read_dynamo_profile

RECORDED = sorted((Path(__file__).parent / "data" / "profiles").glob("*.json.gz"))

PLANE: dict[str, Any] = {
    "prefill_isl": [100.0, 200.0, 400.0],
    "prefill_ttft_ms": [50.0, 80.0, 200.0],
    "decode_active_kv_tokens": [0.0, 1000.0],
    "decode_context_length": [0.0, 1000.0],
    "decode_itl": [[1000.0, 1100.0], [1500.0, 1600.0]],
}
"""Decodes take 1000 + 0.5 x + 0.1 y ms."""


def write_plane(folder: Path, **changed: Any) -> str:
    arrays = {**PLANE, **changed}
    path = folder / "profile.npz"
    given: dict[str, Any] = {name: array for name, array in arrays.items() if array is not None}
    np.savez(path, **given)
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where profiles and differences are written."""
    return tmp_path_factory.mktemp("profiles")


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@fewer(5)  # an example writes files and makes the reference read them
@given(data=st.data())
def test_random_run_with_profiles_is_reproduced(
    backend: str, differential: Differential, folder: Path, data: st.DataObject
) -> None:
    scenario = data.draw(scenarios(backend))
    paths = {}
    for role in scenario["engine_overrides"]:
        paths[role] = folder / f"{role}.npz"
        write_profile(data.draw(profiles()), paths[role])
    comparison = differential.compare(use_profiles(scenario, paths))
    if comparison.difference is not None:
        raise AssertionError(comparison.difference) from comparison.run.exception


@pytest.mark.slow
@given(profiles(is_long=True), st.integers(1, 300))
def test_interpolation_rounds_like_the_reference(
    oracle: Oracle, folder: Path, profile: Profile, input_tokens: int
) -> None:
    """With passes of weeks, a nanosecond is about the last bit of the interpolated value.

    Beyond ``LONGEST_MS``, which only an extrapolation can reach, a pass is cut off here.
    """
    path = folder / "long.npz"
    write_profile(profile, path)
    answer = oracle.run(lone_request(path, input_tokens, 2))
    (record,) = answer["per_request"]
    ((first_ms, last_ms),) = token_times(str(path), [input_tokens], 2)
    if last_ms < 2.0**53 / 1e6 and max(first_ms, last_ms - first_ms) < LONGEST_MS:
        assert (record["first_token_ms"], record["last_token_ms"]) == (first_ms, last_ms)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_recorded_run_with_profiles_is_reproduced(path: Path, tmp_path: Path) -> None:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        recording = json.load(file)
    paths = {}
    for role, profile in recording.pop("profiles").items():
        paths[role] = tmp_path / f"{role}.npz"
        write_profile(profile, paths[role])
    recording["scenario"] = use_profiles(recording["scenario"], paths)
    golden = Golden.from_data(recording, path)
    assert find_difference(golden, run_scenario(golden)) is None


def test_recorded_runs_cover_backends_and_topologies() -> None:
    kinds = {path.name.rsplit("-", 1)[0] for path in RECORDED}
    assert kinds == {f"{kind}-{backend}" for kind in ("agg", "disagg") for backend in BACKENDS}


def lone_request(path: Path, input_tokens: int, output_tokens: int) -> Golden:
    """Return a scenario of one request on one worker that is timed by a profile file."""
    row = {
        "timestamp": 0.0,
        "input_length": input_tokens,
        "output_length": output_tokens,
        "hash_ids": list(range(-(-input_tokens // BLOCK_SIZE))),
    }
    scenario = {
        "name": "lone-request",
        "topology": {"kind": "agg", "num_workers": 1},
        "engine_overrides": {"agg": {"engine": {"block_size": BLOCK_SIZE}}},
        "workload": {"block_size": BLOCK_SIZE, "rows": [row]},
        "replay": {},
        "ticks": None,
    }
    return unrecorded(use_profiles(scenario, {"agg": path}))


# Worked examples


def token_times(path: str, inputs: list[int], output_tokens: int) -> list[tuple[float, float]]:
    """Return first and last token of requests that arrive together at an idle worker."""
    timing = {"type": "external", "provider": "dynamo_profile", "config": {"path": path}}
    spec = small_fleet(workers=1, engine={"timing_model": timing})
    run = run_small(spec, arrivals([0.0] * len(inputs), inputs, output_tokens))
    return list(zip(run.column("first_token_ms"), run.column("last_token_ms"), strict=True))


@pytest.mark.parametrize(
    ("inputs", "outputs", "first_ms", "decodes_ms"),
    [
        ([150], 4, 65.0, [1090.6, 1091.2, 1091.8]),
        ([50], 1, 35.0, []),
        ([1000], 1, 560.0, []),
        ([150, 150], 2, 140.0, [1166.1]),
        ([100, 103], 2, 81.2, [1112.7]),
    ],
)
def test_worked_example(
    tmp_path: Path, inputs: list[int], outputs: int, first_ms: float, decodes_ms: list[float]
) -> None:
    times = token_times(write_plane(tmp_path), inputs, outputs)
    last_ms = first_ms + sum(decodes_ms)
    for first, last in times:
        assert first == pytest.approx(first_ms, rel=1e-14)
        assert last == pytest.approx(last_ms, rel=1e-14)


@pytest.mark.parametrize("itl_ms", [0.25, -3.0, np.nan])
def test_decode_takes_at_least_one_ms(tmp_path: Path, itl_ms: float) -> None:
    path = write_plane(tmp_path, decode_itl=np.full((2, 2), itl_ms))
    assert token_times(path, [150], 4) == [(65.0, 68.0)]


@pytest.mark.parametrize("ttft_ms", [0.0, -3.0, np.nan])
def test_prefill_takes_at_least_no_time(tmp_path: Path, ttft_ms: float) -> None:
    path = write_plane(tmp_path, prefill_ttft_ms=np.full(3, ttft_ms))
    assert token_times(path, [150], 1) == [(0.0, 0.0)]


def test_big_endian_and_fortran_arrays_are_read_like_others(tmp_path: Path) -> None:
    expected = token_times(write_plane(tmp_path), [150], 4)
    changed = {
        "prefill_isl": np.array(PLANE["prefill_isl"], ">f8"),
        "decode_itl": np.asfortranarray(PLANE["decode_itl"]),
    }
    assert token_times(write_plane(tmp_path, **changed), [150], 4) == expected


# Errors

BAD_FILES: dict[str, tuple[dict[str, Any], str]] = {
    "missing array": (
        {"decode_itl": None},
        "Failed to load decode_itl from NPZ: zip file error: specified file not found in archive: "
        "specified file not found in archive",
    ),
    "dtype": (
        {"prefill_isl": np.array([1, 2, 3])},
        "Failed to load prefill_isl from NPZ: error reading npy file in npz archive: incorrect "
        "descriptor ('<i8') for this type: incorrect descriptor ('<i8') for this type",
    ),
    "objects": (
        {"prefill_isl": np.array([None], object)},
        "Failed to load prefill_isl from NPZ: error reading npy file in npz archive: incorrect "
        "descriptor ('|O') for this type: incorrect descriptor ('|O') for this type",
    ),
    "shape": (
        {"decode_itl": np.zeros(4)},
        "Failed to load decode_itl from NPZ: error reading npy file in npz archive: ndim 1 of array"
        " did not match Dimension type with NDIM = Some(2): ndim 1 of array did not match Dimension"
        " type with NDIM = Some(2)",
    ),
    "lengths": (
        {"prefill_isl": np.array([1.0]), "decode_itl": np.zeros((3, 3))},
        "Prefill array length mismatch: isl=1, ttft=3",
    ),
    "grid": (
        {"decode_itl": np.zeros((2, 3))},
        "Decode array dimension mismatch: itl shape=(2, 3), active_kv=2, context=2",
    ),
    "one point": (
        {"prefill_isl": np.array([1.0]), "prefill_ttft_ms": np.array([1.0])},
        "Failed to build prefill interpolator: The chosen Interpolation strategy needs at least 2 "
        "data points",
    ),
    "falling": (
        {"prefill_isl": np.array([3.0, 2.0, 1.0])},
        "Failed to build prefill interpolator: Values in the x axis need to be strictly monotonic "
        "rising",
    ),
    "one row": (
        {"decode_active_kv_tokens": np.array([1.0]), "decode_itl": np.zeros((1, 2))},
        "Failed to build decode interpolator: The 0-dimension has not enough data for the chosen "
        "interpolation strategy. Provided: 1, Reqired: 2",
    ),
    "one column and equal rows": (
        {
            "decode_active_kv_tokens": np.array([5.0, 5.0]),
            "decode_context_length": np.array([1.0]),
            "decode_itl": np.zeros((2, 1)),
        },
        "Failed to build decode interpolator: The 1-dimension has not enough data for the chosen "
        "interpolation strategy. Provided: 1, Reqired: 2",
    ),
    "equal rows": (
        {"decode_active_kv_tokens": np.array([5.0, 5.0])},
        "Failed to build decode interpolator: The x-axis needs to be strictly monotonic rising",
    ),
    "no number among columns": (
        {"decode_context_length": np.array([1.0, np.nan])},
        "Failed to build decode interpolator: The y-axis needs to be strictly monotonic rising",
    ),
}


@pytest.mark.parametrize(("changed", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_file_is_refused_in_the_words_of_the_reference(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError) as error:
        read_dynamo_profile(write_plane(tmp_path, **changed))
    assert str(error.value).startswith(message)


@pytest.mark.slow
@pytest.mark.parametrize(("changed", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_the_reference_uses_these_words(
    tmp_path: Path, oracle: Oracle, changed: dict[str, Any], message: str
) -> None:
    assert ask_for_error(oracle, write_plane(tmp_path, **changed)) == message


def ask_for_error(oracle: Oracle, path: str) -> str:
    """Return what the reference says about a profile file."""
    answer = oracle.run(lone_request(Path(path), 4, 1))
    assert answer["error"] is not None
    return str(answer["error"]["message"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("no.npz", None, 'Failed to open NPZ file: "{}": No such file or directory (os error 2)'),
        (
            "text.npz",
            b"text",
            'Failed to create NPZ reader for: "{}": zip file error: invalid Zip archive: '
            "Could not find EOCD: invalid Zip archive: Could not find EOCD",
        ),
    ],
)
def test_file_that_is_no_archive_is_refused(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SpecError) as error:
        read_dynamo_profile(str(path))
    assert str(error.value) == message.format(path)


def test_infinite_duration_is_refused_before_the_run(tmp_path: Path) -> None:
    path = write_plane(tmp_path, prefill_ttft_ms=np.array([1.0, np.inf, 2.0]))
    with pytest.raises(UnsupportedError, match=r"prefill_ttft_ms: got inf ms, expected at most"):
        read_dynamo_profile(path)


def test_error_names_the_field(tmp_path: Path) -> None:
    path = str(tmp_path / "no.npz")
    timing = {"type": "external", "provider": "dynamo_profile", "config": {"path": path}}
    spec = small_fleet(prefill=1, decode=1, decode_engine={"timing_model": timing})
    with pytest.raises(SpecError, match=r"^fleet.decode.engine.timing_model: Failed to open NPZ"):
        Replay(spec, arrivals([0.0]))
