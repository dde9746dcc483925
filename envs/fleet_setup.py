"""Fleet of an environment with limits and prices, checked when the environment is built."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aisim_gym.envs.fleet_choice import (
    COUNT_FIELDS,
    Kind,
    choose_fleet,
    gpu_hour_prices,
    read_pass_times,
)
from aisim_gym.envs.targets import TargetLimits, Targets
from aisim_gym.replay import FleetDescription, Pool, ScalingLimits, describe_fleet
from aisim_gym.spec import AggregatedFleet, FleetSpec, ReplaySpec
from aisim_gym.spec.argument_checks import check_integer, check_number

PerPool = int | Mapping[str, int]
"""A number for all pools, or a mapping from pool to number."""


@dataclass(frozen=True)
class FleetChoice:
    """Arguments for the initial fleet, see the manual of the environments."""

    kind: Kind
    fleet: Mapping[str, Any] | None = None
    engine: str | Mapping[str, Any] | None = None
    initial_workers: PerPool | None = None
    startup_s: float | None = None
    gpu_hour_usd: float | None = None


@dataclass(frozen=True)
class FleetSetup:
    """The resolved fleet arguments of an environment.

    Attributes:
        spec: Replay spec of the fleet, without horizon.
        description: Description for planners: roles, limits and service levels.
        limits: Limits on targets.
        prices: Price of a GPU-hour in USD, by pool.
    """

    spec: ReplaySpec
    description: FleetDescription
    limits: TargetLimits
    prices: Mapping[str, float]

    def fleet_with(self, workers: Mapping[str, int], names: Mapping[str, str]) -> FleetSpec:
        """Return the fleet with other initial workers.

        Args:
            workers: Field of the fleet -> workers.
            names: Field of the fleet -> name in messages.

        Raises:
            ValueError: If the limits do not allow it.
        """
        if not workers:
            return self.spec.fleet
        fleet = self.spec.fleet.model_copy(update=dict(workers))
        self.check_workers(fleet, names)
        return fleet

    def check_workers(self, fleet: FleetSpec, names: Mapping[str, str], source: str = "") -> None:
        """Raise if the initial fleet is outside the limits.

        Args:
            fleet: The fleet.
            names: Field of the fleet -> name in messages.
            source: Origin of the numbers, for messages.

        Raises:
            TypeError: If a pool has no upper limit.
            ValueError: If a pool or the GPU budget is outside its limits.
        """
        for field, name in names.items():
            count = getattr(fleet, field)
            least, most = _pool_limits(self.description, field)
            if not least <= count <= most:
                raise ValueError(
                    f"{name}: got {count}{source}, expected {least} (min_workers) to {most} "
                    "(max_workers)"
                )
        if isinstance(fleet, AggregatedFleet):
            targets = Targets(None, fleet.num_workers)
        else:
            targets = Targets(fleet.num_prefill_workers, fleet.num_decode_workers)
        if not self.limits.fits_budget(targets):
            raise ValueError(
                f"max_gpus: got {self.limits.max_gpus}, expected at least the "
                f"{self.limits.gpus(targets)} GPUs of the fleet at its start"
            )


def make_limits(
    tick_s: float, min_workers: PerPool, max_workers: PerPool, max_gpus: int | None
) -> ScalingLimits:
    """Return the limits on the pools, see the manual of the environments.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is not allowed.
    """
    if not isinstance(max_workers, Mapping):
        check_integer("max_workers", max_workers, ">= min_workers: it bounds the action space")
    return ScalingLimits(tick_s, min_workers, max_workers, max_gpus)


def make_fleet_setup(
    choice: FleetChoice,
    limits: ScalingLimits,
    *,
    ttft_slo_ms: float,
    itl_slo_ms: float,
    capture_details: bool,
) -> FleetSetup:
    """Return the fleet of an environment.

    Args:
        choice: The initial fleet.
        limits: Limits on the pools.
        ttft_slo_ms: Limit on the time to the first token.
        itl_slo_ms: Limit on the mean gap between tokens.
        capture_details: Whether replays capture the data of reports.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is not allowed (``SpecError`` if it is in the fleet), or the
            initial fleet violates the limits.
    """
    _check_slo("ttft_slo_ms", ttft_slo_ms)
    _check_slo("itl_slo_ms", itl_slo_ms)
    if not isinstance(capture_details, bool):
        raise TypeError(f"capture_details: got {capture_details!r}, expected True or False")
    kind = choice.kind
    table = choose_fleet(
        kind, choice.fleet, choice.engine, choice.initial_workers, choice.startup_s
    )
    spec = ReplaySpec.from_data(
        {
            "fleet": table,
            "sla": {"ttft_ms": float(ttft_slo_ms), "itl_ms": float(itl_slo_ms)},
            "capture_per_request": capture_details,
            "capture_token_gaps": capture_details,
            "capture_planner_details": capture_details,
        }
    )
    if spec.fleet.kind != kind:
        raise ValueError(f"fleet.kind: got {spec.fleet.kind!r}, expected {kind!r}")
    read_pass_times(spec.fleet)
    description = describe_fleet(spec, limits)
    least, _ = description.limits.of_pool("decode")
    if kind == "agg" and least < 1:
        raise ValueError(
            f"min_workers: got {least}, expected >= 1: requests that arrive at an aggregated fleet "
            "without workers end the replay with an error"
        )
    for field in COUNT_FIELDS[kind].values():
        _pool_limits(description, field)
    prices = gpu_hour_prices(kind, table, choice.gpu_hour_usd)
    setup = FleetSetup(spec, description, TargetLimits(description), prices)
    _check_start(setup, choice)
    return setup


def _check_start(setup: FleetSetup, choice: FleetChoice) -> None:
    """Raise if the initial fleet violates the limits."""
    kind = choice.kind
    names = {
        field: "initial_workers" if kind == "agg" else f"initial_workers.{pool}"
        for pool, field in COUNT_FIELDS[kind].items()
    }
    source = ""
    if choice.initial_workers is None:
        if choice.fleet is None:
            source = " (the default)"
        else:
            names = {field: f"fleet.{field}" for field in names}
    setup.check_workers(setup.spec.fleet, names, source)


def _pool_limits(fleet: FleetDescription, field: str) -> tuple[int, int]:
    """Return minimum and maximum workers of the pool of a fleet field.

    Raises:
        TypeError: If there is no upper limit.
    """
    pool: Pool = "prefill" if "prefill" in field else "decode"
    least, most = fleet.limits.of_pool(pool)
    if most is None:
        raise TypeError(
            f"max_workers.{pool}: got None, expected an integer >= min_workers ({least}): it "
            "bounds the action space"
        )
    return least, most


def _check_slo(name: str, limit_ms: object) -> None:
    """Raise unless a limit is finite and > 0; rewards and observations divide by it."""
    limit = check_number(name, limit_ms, "> 0 and finite (ms)")
    if not (math.isfinite(limit) and limit > 0.0):
        raise ValueError(f"{name}: got {limit_ms}, expected > 0 and finite (ms)")
