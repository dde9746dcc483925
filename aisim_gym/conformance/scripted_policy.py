"""The policy of a golden run: answers from a list, whatever it sees."""

from typing import Any, NoReturn

from aisim_gym.conformance.golden import Golden
from aisim_gym.replay import FleetDescription, ScalingSnapshot

FAILURE = "scripted policy failure"
"""What the policy of an error scenario raises, as a RuntimeError."""


class ScriptEndedError(Exception):
    """The run asked for a decision that was not recorded."""


class ScriptedPolicy:
    """Answers each tick with the recorded decision and keeps what it saw.

    Attributes:
        seen: The snapshots in the reference's form.
    """

    seen: list[dict[str, Any]]

    def __init__(self, golden: Golden) -> None:
        """Play the script of ``golden``."""
        self._golden = golden
        self.seen = []

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        """Start over."""
        self.seen = []

    def initial_tick_ms(self) -> float:
        """Return the recorded first tick."""
        return self._golden.initial_tick_ms

    def on_tick(self, snapshot: ScalingSnapshot) -> dict[str, Any]:
        """Return the next recorded decision.

        Raises:
            RuntimeError: At the tick that the script says.
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
            f"decision {len(self.seen)} asked for at {snapshot.now_ms} ms, "
            f"recorded are {len(self._golden.decisions)}"
        )
