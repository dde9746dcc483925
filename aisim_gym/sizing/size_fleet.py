"""Find the smallest fixed fleet for a workload, an engine and limits, by replays."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aisim_gym.errors import AisimError, WorkloadError
from aisim_gym.profiles.profile_fleet import KV_TRANSFER_GB_S
from aisim_gym.replay import Progress, Replay
from aisim_gym.report import headline
from aisim_gym.report.summary import gpus_per_worker
from aisim_gym.sizing.fleet_size import FleetSize, MeasuredFleet
from aisim_gym.sizing.search import FleetBounds, FleetSearch
from aisim_gym.spec import ReplaySpec, SlaSpec, TickSpec, WorkloadSpec, load_spec
from aisim_gym.spec.argument_checks import check_integer, check_number
from aisim_gym.spec.fleet import MAX_WORKERS
from aisim_gym.workload import RequestTable, detect_trace_format, load_workload

Kind = Literal["agg", "disagg"]
Workload = RequestTable | WorkloadSpec | Mapping[str, Any] | str | os.PathLike[str]
Engine = str | os.PathLike[str] | Mapping[str, Any]

DEFAULT_SHARE, DEFAULT_MAX_WORKERS = 0.95, 64

_POOLS: Mapping[Kind, Mapping[str, str]] = {
    "agg": {"engine": "aggregated"},
    "disagg": {"prefill": "prefill", "decode": "decode"},
}
"""Fields of the fleet with launch configs, and the worker type of each."""


class NoFleetError(AisimError, ValueError):
    """No fleet within the bounds is large enough.

    Attributes:
        best: The measured fleet with the highest attainment; ties go to the fewest GPUs.
        measured: All measured fleets, in order of their GPUs.
    """

    def __init__(self, message: str, measured: tuple[MeasuredFleet, ...]) -> None:
        """Create the error with the measured fleets."""
        super().__init__(message)
        self.measured = measured
        self.best = _best(measured)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with all arguments."""
        return type(self), (str(self), self.measured)


@dataclass(frozen=True)
class SizedFleet:
    """The smallest fixed fleet and the fleets measured around it.

    Attributes:
        share: Required share of good requests.
        sla: The limits.
        fleet: The smallest fleet that reaches the share.
        smaller: The next smaller fleets, one worker fewer in one pool, which do not reach it; empty
            if no pool can shrink.
        measured: All replayed fleets, in order of their GPUs.
    """

    share: float
    sla: SlaSpec
    fleet: MeasuredFleet
    smaller: tuple[MeasuredFleet, ...]
    measured: tuple[MeasuredFleet, ...]

    @property
    def workers(self) -> dict[str, int]:
        """Workers per pool of the fleet: ``workers``, or ``prefill`` and ``decode``."""
        return self.fleet.size.pools

    @property
    def gpus(self) -> int:
        """GPUs of the fleet."""
        return self.fleet.gpus

    @property
    def attainment_frac(self) -> float:
        """Share of the requests that completed within the limits."""
        return self.fleet.attainment_frac

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of the run."""
        return self.fleet.gpu_hours

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data, for JSON."""
        return {
            "share": self.share,
            "sla": self.sla.model_dump(mode="json"),
            "fleet": self.fleet.to_dict(),
            "smaller": [fleet.to_dict() for fleet in self.smaller],
            "measured": [fleet.to_dict() for fleet in self.measured],
        }


def size_fleet(
    workload: Workload | None = None,
    engine: Engine | None = None,
    *,
    ttft_ms: float | None = None,
    itl_ms: float | None = None,
    share: float = DEFAULT_SHARE,
    kind: Kind | None = None,
    max_workers: int = DEFAULT_MAX_WORKERS,
    max_gpus: int | None = None,
    spec: ReplaySpec | Mapping[str, Any] | str | Path | None = None,
    on_progress: Callable[[FleetSize, Progress], None] | None = None,
    on_measured: Callable[[MeasuredFleet], None] | None = None,
) -> SizedFleet:
    """Return the smallest fixed fleet that serves a share of the requests within limits.

    Smallest means the fewest GPUs, then the fewest prefill workers. Every fleet is replayed in full
    and at most once. The search doubles and bisects the number of workers, then examines the
    remaining fleets below the result:

    * the result reaches the share in its replay, and the next smaller fleets, one worker fewer in
      either pool, do not in theirs;
    * every other smaller fleet within the bounds was measured and does not reach it, or has no more
      workers in either pool than a measured fleet that does not.

    So the result is the smallest fleet if more workers do not lower attainment. This is usual but
    not guaranteed, because placement depends on the number of workers. ``measured`` shows how
    attainment grows.

    Args:
        workload: Requests, a trace file (its format is detected from its content), or a
            ``workload`` table; None uses the workload of ``spec``.
        engine: Name of an engine profile, an ``engine`` table, a launch config (a table with
            ``engine`` in it), or a mapping from ``prefill`` and ``decode`` to one of these. With a
            profile, KV moves at 50 GB/s from prefill to decode workers by default.
        ttft_ms: Limit on the time to first token.
        itl_ms: Limit on a request's mean gap between tokens.
        share: Required share of the arrived requests that complete within the limits, in (0, 1].
        kind: ``agg`` (the default without ``spec``) or ``disagg``.
        max_workers: Maximum workers of a pool.
        max_gpus: Maximum GPUs of the fleet.
        spec: A complete spec instead of ``engine``, for further settings such as
            ``max_sim_time_ms``; a given ``workload`` and given limits override it, and its number
            of workers is ignored.
        on_progress: Called before the replay of a fleet starts and regularly during it.
        on_measured: Called with every replayed fleet, so that an interrupted search keeps its
            measurements.

    Raises:
        NoFleetError: If no fleet within the bounds reaches the share; reports the best one.
        AisimError: If spec or workload are not valid, or a request can never run.
        TypeError: If an argument has the wrong type.
        ValueError: If a number is out of range, or arguments conflict.

    Example:
        >>> from aisim_gym import requests_from_arrays, size_fleet
        >>> requests = requests_from_arrays([100.0 * i for i in range(50)], [2000] * 50, [50] * 50)
        >>> sized = size_fleet(requests, "h100-llama31-8b", ttft_ms=200.0, itl_ms=20.0)
        >>> sized.workers, sized.attainment_frac
        ({'workers': 1}, 1.0)
    """
    share = _check_share(share)
    max_workers = _check_count("max_workers", max_workers)
    max_gpus = None if max_gpus is None else _check_count("max_gpus", max_gpus)
    chosen = _choose_spec(workload, engine, kind, spec)
    chosen = _with_limits(chosen, ttft_ms, itl_ms)
    if isinstance(workload, RequestTable):
        requests = workload
    else:
        requests = load_workload(chosen.workload, chosen.engine_block_size)
    if not len(requests):
        raise WorkloadError("there is nothing to size a fleet for: the workload has no requests")
    bounds = FleetBounds(*gpus_per_worker(chosen), max_workers, max_gpus)
    if bounds.gpus(bounds.square(1)) > bounds.gpu_limit:
        smallest = bounds.gpus(bounds.square(1))
        raise ValueError(f"max_gpus: got {max_gpus}, but the smallest fleet has {smallest}")
    measured: dict[FleetSize, MeasuredFleet] = {}

    def suffices(size: FleetSize) -> bool:
        def report(progress: Progress) -> None:
            if on_progress is not None:
                on_progress(size, progress)

        report(Progress(0.0, 0, len(requests)))
        replay = Replay(_sized_spec(chosen, size), requests)
        replay.advance_to_tick(report)
        numbers = headline(replay)
        fleet = MeasuredFleet(
            size, bounds.gpus(size), numbers.slo_attainment_frac, numbers.gpu_hours
        )
        measured[size] = fleet
        if on_measured is not None:
            on_measured(fleet)
        return fleet.attainment_frac >= share

    found = FleetSearch(bounds, suffices).run()
    in_order = tuple(measured[size] for size in sorted(measured, key=bounds.order))
    if found is None:
        raise NoFleetError(_no_fleet_text(bounds, chosen.sla, share, in_order), in_order)
    return SizedFleet(
        share=share,
        sla=chosen.sla,
        fleet=measured[found],
        smaller=tuple(measured[size] for size in found.neighbours),
        measured=in_order,
    )


def engine_fleet(kind: Kind, engine: Engine) -> dict[str, Any]:
    """Return the ``fleet`` table of an engine with one worker per pool, as in :func:`size_fleet`.

    Raises:
        TypeError: If an engine is neither a name nor a table.
        ValueError: If the kind is unknown, or an engine is missing or matches no pool.
    """
    if kind not in _POOLS:
        raise ValueError(f"kind: got {kind!r}, expected 'agg' or 'disagg'")
    pools = _POOLS[kind]
    per_pool: Mapping[str, Any] = dict.fromkeys(pools, engine)
    if isinstance(engine, Mapping) and {"prefill", "decode"} & engine.keys():
        if engine.keys() != pools.keys():
            wanted = "prefill and decode" if kind == "disagg" else "one engine, as kind is 'agg'"
            raise ValueError(f"engine: got one for {', '.join(engine)}, expected {wanted}")
        per_pool = engine
    fleet: dict[str, Any] = {"kind": kind}
    for pool, worker_type in pools.items():
        fleet[pool] = _launch(per_pool[pool], worker_type)
    return fleet


def limits_text(sla: SlaSpec) -> str:
    """Return the limits of a service level as text."""
    bounds = (("TTFT", sla.ttft_ms), ("ITL", sla.itl_ms), ("end to end", sla.e2e_ms))
    return ", ".join(f"{name} {bound:g} ms" for name, bound in bounds if bound is not None)


def _launch(engine: Any, worker_type: str) -> dict[str, Any]:
    if isinstance(engine, str | os.PathLike):
        engine = {"profile": os.fspath(engine)}
    elif not isinstance(engine, Mapping):
        raise TypeError(f"engine: got {engine!r}, expected the name of a profile or a table")
    launch = dict(engine) if "engine" in engine else {"engine": engine}
    named = launch["engine"]
    fields: dict[str, Any] = {"profile": named} if isinstance(named, str) else dict(named)
    fields.setdefault("worker_type", worker_type)
    if worker_type == "prefill" and "profile" in fields:
        fields.setdefault("kv_transfer_bandwidth", KV_TRANSFER_GB_S)
    return {**launch, "engine": fields}


def _choose_spec(
    workload: Workload | None,
    engine: Engine | None,
    kind: Kind | None,
    spec: ReplaySpec | Mapping[str, Any] | str | Path | None,
) -> ReplaySpec:
    """Return the spec of all runs, with an arbitrary number of workers."""
    if (engine is None) == (spec is None):
        given = "neither" if spec is None else "both"
        raise ValueError(f"expected engine or spec, got {given}")
    if spec is not None:
        chosen = load_spec(spec)
        if kind is not None and kind != chosen.fleet.kind:
            raise ValueError(f"kind: got {kind!r}, but the fleet of spec is {chosen.fleet.kind!r}")
    else:
        assert engine is not None
        chosen = load_spec({"fleet": engine_fleet("agg" if kind is None else kind, engine)})
        if workload is None:
            raise ValueError(
                "workload: got None without spec, expected requests, a file or a table"
            )
    if workload is None or isinstance(workload, RequestTable):
        return chosen
    return chosen.model_copy(update={"workload": _workload_spec(workload)})


def _workload_spec(
    workload: WorkloadSpec | Mapping[str, Any] | str | os.PathLike[str],
) -> WorkloadSpec:
    if isinstance(workload, WorkloadSpec):
        return workload
    if isinstance(workload, Mapping):
        return WorkloadSpec.from_data(workload, at="workload")
    if not isinstance(workload, str | os.PathLike):
        raise TypeError(
            f"workload: got {type(workload).__name__}, expected a RequestTable, a trace file or a "
            "workload table"
        )
    path = Path(workload).expanduser().absolute()
    return WorkloadSpec.from_data(
        {"trace_files": [str(path)], "trace_format": detect_trace_format(path)}
    )


def _with_limits(spec: ReplaySpec, ttft_ms: float | None, itl_ms: float | None) -> ReplaySpec:
    """Return a spec with limits and without captures that a search does not use."""
    sla = spec.sla
    if ttft_ms is not None or itl_ms is not None:
        given = {"ttft_ms": ttft_ms, "itl_ms": itl_ms}
        kept = {name: getattr(sla, name) for name in given} if sla.e2e_ms is None else {}
        wins = {name: bound for name, bound in given.items() if bound is not None}
        sla = SlaSpec.from_data({**kept, **wins})
    if not limits_text(sla):
        raise ValueError("got no limits, expected ttft_ms, itl_ms or both")
    return spec.model_copy(
        update={
            "sla": sla,
            "ticks": TickSpec(),
            "capture_per_request": False,
            "capture_token_gaps": False,
            "capture_planner_details": False,
            "telemetry_sample_interval_ms": None,
        }
    )


def _sized_spec(spec: ReplaySpec, size: FleetSize) -> ReplaySpec:
    if spec.fleet.kind == "agg":
        counts = {"num_workers": size.decode}
    else:
        counts = {"num_prefill_workers": size.prefill, "num_decode_workers": size.decode}
    return spec.model_copy(update={"fleet": spec.fleet.model_copy(update=counts)})


def _check_share(share: float) -> float:
    share = check_number("share", share, "in (0, 1]")
    if not 0.0 < share <= 1.0:
        raise ValueError(f"share: got {share:g}, expected a number in (0, 1]; 0.95 is 95 %")
    return share


def _check_count(name: str, count: int) -> int:
    allowed = f"from 1 to {MAX_WORKERS:,}"
    count = check_integer(name, count, allowed)
    if not 1 <= count <= MAX_WORKERS:
        raise ValueError(f"{name}: got {count}, expected an integer {allowed}")
    return count


def _best(measured: tuple[MeasuredFleet, ...]) -> MeasuredFleet:
    return max(measured, key=lambda fleet: fleet.attainment_frac)


def _no_fleet_text(
    bounds: FleetBounds, sla: SlaSpec, share: float, measured: tuple[MeasuredFleet, ...]
) -> str:
    best = _best(measured)
    pool = " per pool" if bounds.has_two_pools else ""
    gpus = "" if bounds.max_gpus is None else f" and {bounds.max_gpus} GPUs"
    return (
        f"no fleet of at most {bounds.max_workers} workers{pool}{gpus} keeps {limits_text(sla)} "
        f"for {100.0 * share:g} % of the requests: the best of {len(measured)} measured, "
        f"{best.size} on {best.gpus} GPUs, keeps it for "
        f"{100.0 * best.attainment_frac:.2f} %; a higher limit, a smaller share or larger bounds "
        "may help"
    )
