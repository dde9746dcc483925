"""What compiled code reads from the tables is what the readable definitions say."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import observation_definition

from aisim_gym.envs import ScalingEnv, Targets, TickView
from aisim_gym.envs import tick_view as view_module
from aisim_gym.envs.action import ACTIONS, TargetAction
from aisim_gym.envs.fleet_choice import choose_fleet
from aisim_gym.envs.observation import SummaryObservation
from aisim_gym.envs.observer import OBSERVATIONS
from aisim_gym.envs.outcomes import Outcomes
from aisim_gym.envs.spaces_fit import ActionCheck, make_fitter
from aisim_gym.fleet.entries import EpisodeNow
from aisim_gym.replay import run as run_module

EnvBuilder = Callable[..., ScalingEnv]

AGG, DISAGG = "aisim_gym/Aggregated-v0", "aisim_gym/Disaggregated-v0"


def build(make_env: EnvBuilder, env_id: str, dp_size: int = 1, **arguments: Any) -> ScalingEnv:
    fleet = choose_fleet(make_env(env_id).kind)
    for launch in ("prefill", "decode", "engine"):
        if launch in fleet:
            fleet[launch]["dp_size"] = dp_size
    busy = {"duration_s": 120.0, "base_rate_rps": 4.0, "peak_rate_rps": 40.0, "period_s": 60.0}
    return make_env(env_id, fleet=fleet, workload=busy, horizon_s=100.0, **arguments)


def steps(env: ScalingEnv, seed: int) -> Any:
    """Play an episode with random actions; yield what each step returns."""
    observation, info = env.reset(seed=seed)
    yield observation, 0.0, False, False, info
    env.action_space.seed(seed)
    ended = False
    while not ended:
        step = env.step(env.action_space.sample())
        ended = step[2] or step[3]
        yield step


def episode_by_definition(env: ScalingEnv, info: dict[str, Any]) -> EpisodeNow:
    """Return what the snapshot does not say, from the request table and ``info``."""
    rows = np.asarray(env.replay.state.world.requests)
    in_flight = int(((rows["is_arrived"] == 1) & (rows["status"] == 0)).sum())
    ended = info["completed"] + info["rejected"]
    return EpisodeNow(
        env.snapshot.now_ms / 100_000.0,
        in_flight,
        info["overdue_s"] / info["duration_s"] if info["duration_s"] else 0.0,
        (ended - info["good"]) / ended if ended else 0.0,
    )


def parts_of(observation: Any) -> dict[str, Any]:
    """Return the arrays of an observation by key."""
    return observation if isinstance(observation, dict) else {"": observation}


DEFINITIONS: dict[str, Callable[[], Any]] = {
    "summary": lambda: observation_definition.summary,
    "per_rank": lambda: observation_definition.per_rank,
    "history": observation_definition.History,
}


@pytest.mark.parametrize("name", OBSERVATIONS)
@pytest.mark.parametrize("dp_size", [1, 3])
@pytest.mark.parametrize("seed", [1, 2])
def test_observation_is_bit_for_bit_that_of_the_snapshot(
    env_id: str, name: str, dp_size: int, seed: int, make_env: EnvBuilder
) -> None:
    # Queues make the first token late.
    env = build(make_env, env_id, dp_size, ttft_slo_ms=5.0, observation=name)
    define: Any = DEFINITIONS[name]()
    fit = make_fitter(env.observation_space)
    num_clipped = 0
    for observation, *_, info in steps(env, seed):
        episode = episode_by_definition(env, info)
        expected, clipped = fit(define(env.fleet_description, env.snapshot, episode))
        for key, array in parts_of(observation).items():
            wanted = parts_of(expected)[key]
            assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape)
            assert array.tobytes() == wanted.tobytes()
        assert info["obs_clipped"] == clipped
        num_clipped += clipped
    assert num_clipped > 0


class OutcomesByDefinition:
    """Outcomes of steps from the definition, all requests at every step."""

    def __init__(self) -> None:
        self._was_ended: list[bool] = []
        self._num_arrived = 0
        self._since_ms = 0.0

    def next(self, env: ScalingEnv) -> Outcomes:
        """Return what happened since the last call."""
        rows = np.asarray(env.replay.state.world.requests).tolist()
        names = np.asarray(env.replay.state.world.requests).dtype.names or ()
        requests = [dict(zip(names, row, strict=True)) for row in rows]
        was_ended = self._was_ended or [False] * len(requests)
        now_ms, overdue_ms = env.replay.now_ms, 0.0
        completed = rejected = good = 0
        for request, was in zip(requests, was_ended, strict=True):
            if not request["is_arrived"]:
                continue
            has_token, is_open = request["emitted_tokens"] > 0, request["status"] == 0
            until_ms = now_ms if is_open else request["terminal_ms"]
            until_ms = request["first_token_ms"] if has_token else until_ms
            due_ms = max(request["arrival_ms"] + 500.0, self._since_ms)
            overdue_ms += max(until_ms - due_ms, 0.0)
            if is_open or was:
                continue
            completed += request["status"] == 1
            rejected += request["status"] != 1
            ttft_ms = request["first_token_ms"] - request["arrival_ms"]
            gaps = max(request["emitted_tokens"] - 1, 1)
            itl_ms = (request["last_token_ms"] - request["first_token_ms"]) / gaps
            good += request["status"] == 1 and has_token and ttft_ms <= 500.0 and itl_ms <= 30.0
        arrived = sum(request["is_arrived"] for request in requests)
        outcomes = Outcomes(
            arrived - self._num_arrived, completed, rejected, good, overdue_ms / 1000.0
        )
        self._was_ended = [request["status"] != 0 for request in requests]
        self._num_arrived, self._since_ms = arrived, now_ms
        return outcomes


@pytest.mark.parametrize("seed", [1, 2])
def test_outcomes_are_exactly_those_of_the_definition(
    env_id: str, seed: int, make_env: EnvBuilder
) -> None:
    env, definition = build(make_env, env_id), OutcomesByDefinition()
    seen = []
    for at, (*_, info) in enumerate(steps(env, seed)):
        if at == 0:
            continue
        outcomes = definition.next(env)
        assert {name: info[name] for name in outcomes._fields} == outcomes._asdict()
        seen.append(outcomes)
    assert sum(step.good for step in seen) > 0
    assert sum(step.violations for step in seen) > 0
    assert sum(step.overdue_s for step in seen) > 0.0


def test_step_builds_no_snapshot_until_one_is_read(
    env_id: str, make_env: EnvBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(state: Any) -> None:
        raise AssertionError("a snapshot was built")

    observations = [*OBSERVATIONS, "summary"]
    for action, observation in zip(ACTIONS, observations, strict=True):
        env = make_env(env_id, action=action, observation=observation)
        with monkeypatch.context() as patch:
            patch.setattr(run_module, "take_snapshot", refuse)
            patch.setattr(view_module, "take_snapshot", refuse)
            env.reset(seed=1)
            env.step(env.action_space.sample())
            if action != "box":
                env.action_masks()
            with pytest.raises(AssertionError, match="a snapshot was built"):
                _ = env.snapshot
        assert env.snapshot.now_ms == 20_000.0


def test_observation_that_is_defined_anew_is_the_one_that_is_seen(make_env: EnvBuilder) -> None:
    class Ones(SummaryObservation):
        def observe(self, view: TickView) -> Any:
            return np.ones_like(super().observe(view))

    plain = make_env(AGG)
    env = make_env(AGG, observation=Ones(plain.fleet_description))
    observation, _ = env.reset(seed=1)
    assert observation.tolist() == [1.0] * 20
    seen, *_ = env.step(0)
    assert seen.tolist() == [1.0] * 20


def test_action_that_is_defined_anew_is_the_one_that_counts(make_env: EnvBuilder) -> None:
    class Five(TargetAction):
        def decode(self, action: Any, view: TickView) -> Targets:
            return Targets(None, 5)

    env = make_env(AGG, action=Five(make_env(AGG).fleet_description))
    env.reset(seed=1)
    env.step(0)
    assert env.snapshot.decode.num_non_draining == 5


WRONG_ACTIONS: list[Any] = [
    -1,
    8,
    True,
    0.0,
    None,
    "0",
    np.int64(8),
    np.array([0]),
    np.array([0, 8]),
    np.array([-1, 0]),
    np.array([0, 0, 0]),
    np.array([0.0, 0.0]),
    np.array([[0, 0]]),
]


@pytest.mark.parametrize("action", WRONG_ACTIONS, ids=repr)
def test_only_elements_of_the_space_are_actions(
    env_id: str, action: Any, make_env: EnvBuilder
) -> None:
    space = make_env(env_id).action_space
    assert ActionCheck(space)(action) == space.contains(action)


def test_compiled_code_lies_below_the_environments() -> None:
    folder = Path(inspect.getfile(ScalingEnv)).parent
    assert not [path.name for path in folder.glob("*.py") if "aisim_gym.kernel" in path.read_text()]
