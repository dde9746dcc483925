"""Exact, fast replay of LLM inference fleets, and Gymnasium environments around it.

``Replay`` runs a workload through simulated workers, tick by tick; ``summarize`` reports the
results; ``size_fleet`` finds the smallest fleet that meets a service level. Environments are in
``aisim_gym.envs``, planners in ``aisim_gym.policies``.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aisim_gym.replay import (
        Replay,
        ReplayBatch,
        ScalingDecision,
        ScalingPolicy,
        ScalingSnapshot,
    )
    from aisim_gym.report import summarize
    from aisim_gym.sizing import size_fleet
    from aisim_gym.spec import ReplaySpec, load_spec
    from aisim_gym.workload import RequestTable, load_workload, requests_from_arrays

__version__ = "0.1.0"

_HOMES = {
    "Replay": "aisim_gym.replay",
    "ReplayBatch": "aisim_gym.replay",
    "ReplaySpec": "aisim_gym.spec",
    "RequestTable": "aisim_gym.workload",
    "ScalingDecision": "aisim_gym.replay",
    "ScalingPolicy": "aisim_gym.replay",
    "ScalingSnapshot": "aisim_gym.replay",
    "load_spec": "aisim_gym.spec",
    "load_workload": "aisim_gym.workload",
    "requests_from_arrays": "aisim_gym.workload",
    "size_fleet": "aisim_gym.sizing",
    "summarize": "aisim_gym.report",
}

__all__ = [
    "Replay",
    "ReplayBatch",
    "ReplaySpec",
    "RequestTable",
    "ScalingDecision",
    "ScalingPolicy",
    "ScalingSnapshot",
    "__version__",
    "load_spec",
    "load_workload",
    "requests_from_arrays",
    "size_fleet",
    "summarize",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use, so that ``import aisim_gym`` stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'aisim_gym' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


class _MissingPackages:
    """Import finder that explains how to make the two packages outside this folder importable.

    It is the last finder; in an installed package an earlier one finds them.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Find nothing.

        Raises:
            ModuleNotFoundError: If one of the two packages is imported.
        """
        if name in ("aisim_gym.envs", "aisim_gym.policies"):
            raise ModuleNotFoundError(
                f"{name} is in another folder of the source tree and can be imported only once the "
                "package is installed: run `pip install -e .` in the root of the source tree",
                name=name,
            )


sys.meta_path.append(_MissingPackages)


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(__all__)
