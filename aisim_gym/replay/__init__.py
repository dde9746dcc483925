"""The replay: clock, settle loop, ticks, snapshots, decisions."""

from aisim_gym.replay.batch import ReplayBatch
from aisim_gym.replay.decision import ScalingDecision
from aisim_gym.replay.policy import (
    FleetDescription,
    Pool,
    RoleDescription,
    ScalingLimits,
    ScalingPolicy,
    describe_fleet,
)
from aisim_gym.replay.replay import Progress, Replay, StepEnd, TickRecord
from aisim_gym.replay.snapshot import (
    ForwardPassMetrics,
    PoolSnapshot,
    ScalingSnapshot,
    TrafficStatistics,
)

__all__ = [
    "FleetDescription",
    "ForwardPassMetrics",
    "Pool",
    "PoolSnapshot",
    "Progress",
    "Replay",
    "ReplayBatch",
    "RoleDescription",
    "ScalingDecision",
    "ScalingLimits",
    "ScalingPolicy",
    "ScalingSnapshot",
    "StepEnd",
    "TickRecord",
    "TrafficStatistics",
    "describe_fleet",
]
