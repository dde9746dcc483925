"""Find the smallest fleet that meets a service level for a workload."""

from aisim_gym.sizing.fleet_size import FleetSize, MeasuredFleet
from aisim_gym.sizing.size_fleet import NoFleetError, SizedFleet, engine_fleet, size_fleet

__all__ = [
    "FleetSize",
    "MeasuredFleet",
    "NoFleetError",
    "SizedFleet",
    "engine_fleet",
    "size_fleet",
]
