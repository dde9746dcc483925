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
from aisim_gym.replay.replay import Replay
from aisim_gym.replay.run import Progress, StepEnd
from aisim_gym.replay.snapshot import (
    ForwardPassMetrics,
    PoolSnapshot,
    ScalingSnapshot,
    TrafficStatistics,
)
from aisim_gym.replay.tick_history import TickRecord

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
