"""The complete specification of a replay (replay-runtime.md §15.5, §19)."""

import json
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from aisim_gym.number_text import number_text
from aisim_gym.spec.fleet import AggregatedFleet, FleetSpec
from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.scalars import F64, Flag, Refusal
from aisim_gym.spec.sla import SlaSpec
from aisim_gym.spec.ticks import TickSpec
from aisim_gym.spec.workload import WorkloadSpec


class ReplaySpec(SpecModel):
    """Fleet, workload and options of one replay."""

    fleet: FleetSpec = Field(description="Pools of workers")
    workload: WorkloadSpec = Field(default=WorkloadSpec(), description="Requests and their pace")
    sla: SlaSpec = Field(default=SlaSpec(), description="Service levels for goodput")
    ticks: TickSpec = Field(default=TickSpec(), description="First scaling tick")
    max_sim_time_ms: (
        Annotated[F64, Refusal("max_sim_time_ms must be a finite, non-negative value")] | None
    ) = Field(
        default=None, ge=0, description="Simulated time at which the run stops, ms; null = never"
    )
    router_mode: Annotated[
        Literal["round_robin", "kv_router"],
        Refusal("router_mode must be either 'round_robin' or 'kv_router'"),
    ] = Field(default="round_robin", description="How requests are placed on ranks")
    kv_event_lag_ms: F64 | None = Field(
        default=None,
        ge=0,
        description="Delay of KV events on their way to the router, ms (kv_router only)",
    )
    capture_per_request: Flag = Field(default=True, description="Keep a record per request")
    capture_token_gaps: Flag = Field(
        default=True, description="Keep statistics of the gaps between tokens, for the summary"
    )
    capture_planner_details: Flag = Field(
        default=True, description="Keep the lifecycle operations of workers"
    )
    telemetry_sample_interval_ms: (
        Annotated[F64, Refusal("telemetry_sample_interval_ms must be a positive finite number")]
        | None
    ) = Field(
        default=None, gt=0, description="Simulated time between samples, ms; null = no telemetry"
    )

    @property
    def engine_block_size(self) -> int:
        """Tokens per block of the aggregated or the prefill engine."""
        fleet = self.fleet
        launch = fleet.engine if isinstance(fleet, AggregatedFleet) else fleet.prefill
        return launch.engine.block_size

    @model_validator(mode="after")
    def _check_router_options(self) -> Self:
        if self.kv_event_lag_ms and self.router_mode != "kv_router":
            raise ValueError(
                "kv_event_lag_ms only supports router_mode='kv_router', "
                f"got {number_text(self.kv_event_lag_ms)} with '{self.router_mode}'"
            )
        return self

    def to_json(self) -> str:
        """Return the spec with all defaults as JSON that ``load_spec`` reads back."""
        return json.dumps(self.model_dump(mode="json"), indent=2) + "\n"
