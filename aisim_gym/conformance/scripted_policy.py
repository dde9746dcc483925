"""The policy of a golden run, which plays recorded decisions."""

from typing import Any, NoReturn

from aisim_gym.conformance.golden import Golden
from aisim_gym.replay import FleetDescription, ScalingSnapshot

FAILURE = "scripted policy failure"
"""Message of the RuntimeError raised by the policy of an error scenario."""


class ScriptEndedError(Exception):
    """The run needs more decisions than were recorded."""


class ScriptedPolicy:
    """Returns the recorded decision of each tick and keeps the snapshots.

    Attributes:
        seen: Snapshots in the reference's format.
    """

    seen: list[dict[str, Any]]

    def __init__(self, golden: Golden) -> None:
        """Create the policy from the script of ``golden``."""
        self._golden = golden
        self.seen = []

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        """Restart from the first decision."""
        self.seen = []

    def initial_tick_ms(self) -> float:
        """Return the recorded first tick."""
        return self._golden.initial_tick_ms

    def on_tick(self, snapshot: ScalingSnapshot) -> dict[str, Any]:
        """Return the next recorded decision.

        Raises:
            RuntimeError: At the tick recorded in the script.
            ScriptEndedError: If no decision is left.
        """
        ordinal = len(self.seen)
        self.seen.append(snapshot.to_dict())
        if ordinal == self._golden.raise_at:
            raise RuntimeError(FAILURE)
        if ordinal >= len(self._golden.decisions):
            self._end(snapshot)
        names = ("target_prefill", "target_decode", "next_tick_ms")
        return dict(zip(names, self._golden.decisions[ordinal], strict=True))

    def _end(self, snapshot: ScalingSnapshot) -> NoReturn:
        raise ScriptEndedError(
            f"decision {len(self.seen)} requested at {snapshot.now_ms} ms, "
            f"recorded are {len(self._golden.decisions)}"
        )
