"""Choose the fleet of an environment from a table, engine profiles and keywords."""

from collections.abc import Mapping
from typing import Any, Literal

from aisim_gym.errors import SpecError
from aisim_gym.profiles import load_profile
from aisim_gym.profiles.profile_fleet import KV_TRANSFER_GB_S
from aisim_gym.spec import ExternalTiming, FleetSpec
from aisim_gym.spec.argument_checks import check_integer, check_number
from aisim_gym.spec.profiled_launch import named_profile

Kind = Literal["agg", "disagg"]

STARTUP_S = 30.0
DEFAULT_GPU_HOUR_USD = 1.0

COUNT_FIELDS: Mapping[Kind, Mapping[str, str]] = {
    "agg": {"workers": "num_workers"},
    "disagg": {"prefill": "num_prefill_workers", "decode": "num_decode_workers"},
}
"""Pool -> field of the fleet spec with its initial workers, prefill first."""

LAUNCH_FIELDS: Mapping[Kind, Mapping[str, str]] = {
    "agg": {"workers": "engine"},
    "disagg": {"prefill": "prefill", "decode": "decode"},
}
"""Pool -> field of the fleet spec with its launch config."""

_DEFAULT_WORKERS: Mapping[Kind, Mapping[str, int]] = {
    "agg": {"workers": 3},
    "disagg": {"prefill": 1, "decode": 2},
}

_WORKER_TYPES = {"workers": "aggregated", "prefill": "prefill", "decode": "decode"}

_DEFAULT_ENGINE: Mapping[str, Any] = {
    "num_gpu_blocks": 2048,
    "block_size": 64,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 8192,
}
"""Reference polynomial timing, one GPU per worker, 131 072 tokens of KV per worker."""


def choose_fleet(
    kind: Kind,
    fleet: Mapping[str, Any] | None = None,
    engine: str | Mapping[str, Any] | None = None,
    initial_workers: int | Mapping[str, int] | None = None,
    startup_s: float | None = None,
) -> dict[str, Any]:
    """Return the ``fleet`` table of a replay spec.

    Args:
        kind: Topology.
        fleet: The fleet table; None builds one.
        engine: Name of an engine profile, an ``engine`` table, or one of them per pool; None = the
            default engine. Excludes ``fleet``.
        initial_workers: Initial workers, for all pools or per pool; None keeps the default.
        startup_s: Seconds until a new worker is active; None keeps the value of fleet or profile,
            or 30 for the default engine.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If both fleet and engine are given, or a pool is unknown.
    """
    if fleet is None:
        fleet = _built_fleet(kind, engine)
    elif engine is not None:
        raise ValueError("got fleet and engine, expected at most one of them")
    elif not isinstance(fleet, Mapping):
        raise TypeError(f"fleet: got {fleet!r}, expected a table with `kind`, or None")
    chosen = dict(fleet)
    if initial_workers is not None:
        for pool, count in _per_pool("initial_workers", initial_workers, kind).items():
            chosen[COUNT_FIELDS[kind][pool]] = check_integer(f"initial_workers.{pool}", count, "")
    if startup_s is not None:
        startup_s = check_number("startup_s", startup_s, ">= 0, or None")
        for field in LAUNCH_FIELDS[kind].values():
            launch = chosen.get(field, {})
            if isinstance(launch, Mapping):  # other values fail when the fleet is checked
                chosen[field] = {**launch, "startup_time": startup_s}
    return chosen


def gpu_hour_prices(
    kind: Kind, fleet: Mapping[str, Any], gpu_hour_usd: float | None
) -> dict[str, float]:
    """Return the price of a GPU-hour in USD, by pool.

    Args:
        kind: Topology.
        fleet: A valid ``fleet`` table; a launch config in it may name an engine profile, which has
            a price.
        gpu_hour_usd: Price for all GPUs; None = the profile's price, or 1 without a profile.

    Raises:
        TypeError: If the price is not a number.
        ValueError: If it is negative or not finite.
    """
    if gpu_hour_usd is not None:
        price = check_number("gpu_hour_usd", gpu_hour_usd, ">= 0 and finite, or None")
        if not 0.0 <= price < float("inf"):
            raise ValueError(f"gpu_hour_usd: got {gpu_hour_usd}, expected >= 0 and finite, or None")
        return dict.fromkeys(COUNT_FIELDS[kind], price)
    prices = {}
    for pool, field in LAUNCH_FIELDS[kind].items():
        name = named_profile(fleet.get(field))
        prices[pool] = DEFAULT_GPU_HOUR_USD if name is None else load_profile(name).usd_per_gpu_hour
    return prices


def read_pass_times(fleet: FleetSpec) -> None:
    """Read the timing files of a fleet, which keeps their contents.

    Raises:
        SpecError: If a file cannot be read or is not valid.
    """
    for field in LAUNCH_FIELDS[fleet.kind].values():
        timing = getattr(fleet, field).engine.timing_model
        if isinstance(timing, ExternalTiming):
            try:
                _ = timing.table
            except SpecError as error:
                raise type(error)(f"fleet.{field}.engine.timing_model: {error}") from None


def _built_fleet(kind: Kind, engine: str | Mapping[str, Any] | None) -> dict[str, Any]:
    fleet: dict[str, Any] = {"kind": kind}
    for pool, chosen in _engines(kind, engine).items():
        fleet[COUNT_FIELDS[kind][pool]] = _DEFAULT_WORKERS[kind][pool]
        launch: dict[str, Any] = {}
        if chosen is None:
            chosen, launch = _DEFAULT_ENGINE, {"startup_time": STARTUP_S}
        fields: dict[str, Any] = {"profile": chosen} if isinstance(chosen, str) else {**chosen}
        if "profile" in fields and pool == "prefill":
            fields.setdefault("kv_transfer_bandwidth", KV_TRANSFER_GB_S)
        launch["engine"] = {**fields, "worker_type": _WORKER_TYPES[pool]}
        fleet[LAUNCH_FIELDS[kind][pool]] = launch
    return fleet


def _engines(
    kind: Kind, engine: str | Mapping[str, Any] | None
) -> Mapping[str, str | Mapping[str, Any] | None]:
    """Return the chosen engine of each pool."""
    if not isinstance(engine, str | Mapping | None):
        raise TypeError(
            f"engine: got {engine!r}, expected the name of a profile, a mapping or None"
        )
    if isinstance(engine, Mapping) and engine.keys() & COUNT_FIELDS["disagg"].keys():
        return _per_pool("engine", engine, kind)
    return dict.fromkeys(COUNT_FIELDS[kind], engine)


def _per_pool(name: str, given: Any, kind: Kind) -> dict[str, Any]:
    """Return a value per pool, from a single value or a mapping."""
    pools = COUNT_FIELDS[kind]
    if not isinstance(given, Mapping):
        return dict.fromkeys(pools, given)
    if given.keys() != pools.keys():
        raise ValueError(
            f"{name}: got {', '.join(map(str, given)) or 'nothing'}, expected {' and '.join(pools)}"
        )
    return dict(given)
