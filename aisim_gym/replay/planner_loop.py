"""The planner loop: call a policy at every tick until the run ends."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from aisim_gym.replay.decision import ScalingDecision, checked_time_ms
from aisim_gym.replay.policy import ScalingLimits, ScalingPolicy, describe_fleet
from aisim_gym.replay.run import ShowProgress
from aisim_gym.replay.snapshot import ScalingSnapshot
from aisim_gym.spec import ReplaySpec


class _Replay(Protocol):
    """The interface of a replay that the loop uses."""

    @property
    def snapshot(self) -> ScalingSnapshot | None: ...

    def advance_to_tick(
        self, on_progress: ShowProgress | None = None
    ) -> ScalingSnapshot | None: ...

    def apply(self, decision: ScalingDecision | Mapping[str, Any]) -> None: ...


_ReplayT = TypeVar("_ReplayT", bound=_Replay)


def first_tick_ms(
    spec: ReplaySpec, policy: ScalingPolicy | None, limits: ScalingLimits | None, seed: int | None
) -> float | None:
    """Reset ``policy`` and return the time of the first tick, None without a policy.

    The first tick is ``spec.ticks.initial_tick_ms`` if set, otherwise the policy's.

    Raises:
        AttributeError: If ``policy`` lacks a method of a planner.
        ValueError: If the spec sets a first tick and there is no policy.
    """
    first_ms = spec.ticks.initial_tick_ms
    if policy is None:
        if first_ms is not None:
            raise ValueError(
                f"ticks.initial_tick_ms: got {first_ms} without a policy to answer ticks, "
                "expected a policy or null"
            )
        return None
    _check_policy(policy)
    policy.reset(describe_fleet(spec, limits), seed)
    policy_first_ms = checked_time_ms(policy.initial_tick_ms())
    return policy_first_ms if first_ms is None else first_ms


def follow_policy(
    replay: _ReplayT,
    policy: ScalingPolicy | None,
    on_progress: ShowProgress | None,
    give_up: Callable[[_ReplayT], bool] | None,
) -> None:
    """Run to the end with ``policy`` deciding at every tick; ``give_up`` may stop at a tick."""
    while (snapshot := replay.snapshot or replay.advance_to_tick(on_progress)) is not None:
        if give_up is not None and give_up(replay):
            return
        if policy is None:
            raise ValueError(f"policy: got None for the tick at {snapshot.now_ms} ms")
        replay.apply(policy.on_tick(snapshot))


def _check_policy(policy: Any) -> None:
    for method in ("initial_tick_ms", "on_tick", "reset"):
        if not callable(getattr(policy, method, None)):
            raise AttributeError(
                f"'{type(policy).__name__}' object has no attribute '{method}': "
                "a planner has the methods reset, initial_tick_ms and on_tick"
            )
