"""Convert keyword arguments of the reference's Python entry points to a ReplaySpec.

The arguments are those of ``run_mocker_trace_replay`` and ``run_mocker_synthetic_trace_replay`` in
ai-dynamo-runtime 1.6.1; valid combinations are listed in replay-runtime.md §19 and workloads.md
§14.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack, cast

from aisim_gym.errors import SpecError
from aisim_gym.spec.launch import LaunchSpec, parse_launch_config
from aisim_gym.spec.refusals import UnsupportedSpecError
from aisim_gym.spec.replay import ReplaySpec
from aisim_gym.spec.synthetic import SyntheticSpec
from aisim_gym.spec.wording import closest
from aisim_gym.spec.workload import TRACE_FORMAT_ALIASES

EngineArguments = Mapping[str, Any] | str | LaunchSpec

AGENTIC_FORMATS = frozenset({"agentic_mooncake", "weka", "dynamo"})
DEFAULT_TELEMETRY_INTERVAL_MS = 1000.0


class RunArguments(TypedDict, total=False):
    """Arguments common to both entry points of the reference."""

    extra_engine_args: EngineArguments | None
    prefill_engine_args: EngineArguments | None
    decode_engine_args: EngineArguments | None
    router_config: object | None
    ais_perf_config: object | None
    num_workers: int
    num_prefill_workers: int
    num_decode_workers: int
    replay_concurrency: int | None
    replay_mode: str
    router_mode: str
    arrival_speedup_ratio: float
    model_name: str | None
    sla_ttft_ms: float | None
    sla_itl_ms: float | None
    sla_e2e_ms: float | None
    capture_per_request: bool
    capture_planner_details: bool
    scaling_policy: object | None
    capture_telemetry: bool
    telemetry_sample_interval_ms: float
    telemetry_callback: object | None
    telemetry_jsonl_path: str | os.PathLike[str] | None
    kv_event_lag_ms: float | None


class ReferenceArguments(RunArguments, total=False):
    """The arguments of the trace replay; None means the default where None is allowed."""

    trace_files: Sequence[str | os.PathLike[str]]
    trace_block_size: int | None
    trace_format: str
    trace_shared_prefix_ratio: float
    trace_num_prefix_groups: int
    report_jsonl_path: str | os.PathLike[str] | None
    max_sim_time_ms: float | None
    agentic_lanes: int | None
    execution_model: str | None
    weka_nested_timestamp_basis: str | None


class SyntheticArguments(RunArguments, total=False):
    """The optional arguments of the synthetic replay; None means the default."""

    request_rate: float | None
    arrival_interval_ms: float | None
    arrival_seed: int
    turns_per_session: int
    shared_prefix_ratio: float
    num_prefix_groups: int
    inter_turn_delay_ms: float


def replay_spec_from_reference_arguments(**arguments: Unpack[ReferenceArguments]) -> ReplaySpec:
    """Return the spec equivalent to a call of the reference's trace replay.

    Defaults are the reference's: unlike in a ``ReplaySpec``, ``capture_per_request`` is off.
    Arguments of the run rather than its specification (``scaling_policy``, ``telemetry_callback``
    and the two ``*_jsonl_path``) only switch on the capture that they need. ``model_name``,
    ``execution_model`` and the prefix options, which only affect formats that are not replayed, are
    ignored. ``trace_files`` may be omitted when requests are given as arrays.

    Raises:
        SpecError: If a value or a combination is not valid, with the reference's text.
        TypeError: For an unknown keyword; names the closest one.
    """
    given = cast(dict[str, Any], arguments)
    _refuse_unknown_keywords("run_mocker_trace_replay", given, ReferenceArguments)
    _check_mode(given)
    _check_agentic_options(arguments)
    _refuse_unsupported(given)
    workload = _pick(
        given, "trace_files", "trace_format", "arrival_speedup_ratio", "replay_concurrency"
    )
    if given.get("trace_block_size") is not None:
        workload["trace_block_size"] = given["trace_block_size"]
    return _spec_of(given, workload)


def replay_spec_from_synthetic_arguments(
    input_tokens: int,
    output_tokens: int,
    request_count: int,
    **arguments: Unpack[SyntheticArguments],
) -> ReplaySpec:
    """Return the spec equivalent to a call of the reference's synthetic replay.

    Defaults are the reference's, as in :func:`replay_spec_from_reference_arguments`.

    Raises:
        SpecError: If a value or a combination is not valid, with the reference's text.
        TypeError: For an unknown keyword; names the closest one.
    """
    given = cast(dict[str, Any], arguments)
    _refuse_unknown_keywords("run_mocker_synthetic_trace_replay", given, SyntheticArguments)
    _check_mode(given)
    _refuse_unsupported(given)
    workload = _pick(given, "arrival_speedup_ratio", "replay_concurrency")
    workload["generator"] = {
        "kind": "synthetic",
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "request_count": request_count,
        **_pick(given, *SyntheticSpec.model_fields),
    }
    return _spec_of(given, workload)


def _spec_of(given: Mapping[str, Any], workload: Mapping[str, Any]) -> ReplaySpec:
    """Return the spec of a workload on the fleet and options of the other arguments."""
    options = _pick(
        given, "max_sim_time_ms", "router_mode", "kv_event_lag_ms", "capture_planner_details"
    )
    options["capture_per_request"] = given.get("capture_per_request", False)
    if given.get("report_jsonl_path") is not None:
        options["capture_per_request"] = True
    if _wants_telemetry(given):
        options["telemetry_sample_interval_ms"] = given.get(
            "telemetry_sample_interval_ms", DEFAULT_TELEMETRY_INTERVAL_MS
        )
    return ReplaySpec.from_data(
        {
            "fleet": _select_fleet(given),
            "workload": workload,
            "sla": {name: given.get(f"sla_{name}") for name in ("ttft_ms", "itl_ms", "e2e_ms")},
            **options,
        }
    )


def _pick(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: given[name] for name in names if name in given}


def _wants_telemetry(given: Mapping[str, Any]) -> bool:
    return bool(given.get("capture_telemetry")) or any(
        given.get(name) is not None for name in ("telemetry_callback", "telemetry_jsonl_path")
    )


def _refuse_unknown_keywords(
    entry_point: str, given: Mapping[str, Any], arguments: type[RunArguments]
) -> None:
    known = arguments.__annotations__
    for name in given:
        if name not in known:
            raise TypeError(
                f"{entry_point}() got an unexpected keyword argument '{name}'"
                f"{closest(name, known)} (allowed: {', '.join(known)})"
            )


def _check_mode(given: Mapping[str, Any]) -> None:
    mode = given.get("replay_mode", "offline")
    if mode == "offline":
        return
    if mode != "online":
        raise SpecError(f"replay_mode must be either 'offline' or 'online', got '{mode}'")
    for name in ("scaling_policy", "max_sim_time_ms", "kv_event_lag_ms"):
        if given.get(name) is not None:
            raise SpecError(f"{name} only supports replay_mode='offline', got 'online'")
    if _wants_telemetry(given):
        raise SpecError("replay telemetry only supports replay_mode='offline', got 'online'")
    raise UnsupportedSpecError("replay_mode='online' is not supported by aisim-gym; use 'offline'")


def _check_agentic_options(arguments: ReferenceArguments) -> None:
    trace_format = str(arguments.get("trace_format", "mooncake"))
    trace_format = TRACE_FORMAT_ALIASES.get(trace_format, trace_format)
    basis = arguments.get("weka_nested_timestamp_basis")
    if basis is not None:
        if basis not in {"auto", "absolute", "relative"}:
            raise SpecError(
                "weka_nested_timestamp_basis must be 'auto', 'absolute', or 'relative', "
                f"got '{basis}'"
            )
        if trace_format != "weka":
            raise SpecError(
                "weka_nested_timestamp_basis requires trace_format='weka', "
                f"got trace_format='{trace_format}'"
            )
    lanes = arguments.get("agentic_lanes")
    if lanes is None:
        return
    if type(lanes) is not int:
        raise TypeError(f"agentic_lanes: expected an integer >= 1, got {lanes!r}")
    if lanes < 1:
        raise SpecError(f"agentic_lanes must be at least 1, got {lanes}")
    if trace_format not in AGENTIC_FORMATS:
        raise SpecError(
            "agentic_lanes requires trace_format='agentic_mooncake', 'weka', or 'dynamo', "
            f"got trace_format='{trace_format}'"
        )
    if arguments.get("replay_concurrency") is not None:
        raise SpecError("agentic_lanes cannot be combined with replay_concurrency")
    raise UnsupportedSpecError(f"agentic_lanes={lanes} is not supported by aisim-gym")


def _refuse_unsupported(given: Mapping[str, Any]) -> None:
    for name in ("router_config", "ais_perf_config"):
        if given.get(name) is not None:
            raise UnsupportedSpecError(
                f"{name} is not supported by aisim-gym, got {given[name]!r}; expected None"
            )


def _select_fleet(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fleet described by the engine arguments."""
    extra = given.get("extra_engine_args")
    prefill, decode = given.get("prefill_engine_args"), given.get("decode_engine_args")
    if extra is not None and (prefill is not None or decode is not None):
        raise SpecError(
            "extra_engine_args cannot be combined with prefill_engine_args/decode_engine_args"
        )
    num_workers = given.get("num_workers", 1)
    num_prefill = given.get("num_prefill_workers", 1)
    num_decode = given.get("num_decode_workers", 1)
    if prefill is not None or decode is not None:
        if prefill is None or decode is None:
            missing = "prefill_engine_args" if prefill is None else "decode_engine_args"
            raise SpecError(
                "prefill_engine_args and decode_engine_args must be provided together, "
                f"got no {missing}"
            )
        if num_workers != 1:
            raise SpecError(
                "num_workers is only used for aggregated replay; use num_prefill_workers and "
                f"num_decode_workers for disagg replay, got num_workers={num_workers}"
            )
        return {
            "kind": "disagg",
            "num_prefill_workers": num_prefill,
            "num_decode_workers": num_decode,
            "prefill": parse_launch_config(prefill, at="prefill_engine_args"),
            "decode": parse_launch_config(decode, at="decode_engine_args"),
        }
    if num_prefill != 1 or num_decode != 1:
        raise SpecError(
            "num_prefill_workers and num_decode_workers are only used for disagg replay; use "
            f"num_workers for aggregated replay, got {num_prefill} and {num_decode}"
        )
    return {
        "kind": "agg",
        "num_workers": num_workers,
        "engine": parse_launch_config({} if extra is None else extra, at="extra_engine_args"),
    }
