"""The action objects: what a choice means, its inverse, and how a GPU budget is kept."""

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from support.views import view_of

from aisim_gym.envs import ScalingEnv, Targets, TickView
from aisim_gym.envs.action import (
    ACTIONS,
    Action,
    BoxAction,
    DeltaAction,
    SplitAction,
    TargetAction,
)
from aisim_gym.envs.spaces_fit import ActionCheck
from aisim_gym.envs.targets import fleet_gpus
from aisim_gym.replay import FleetDescription, RoleDescription, ScalingLimits

EnvBuilder = Callable[..., ScalingEnv]

AGG, DISAGG = "aisim_gym/Aggregated-v0", "aisim_gym/Disaggregated-v0"

UNEVEN: dict[str, Any] = {
    "min_workers": {"prefill": 0, "decode": 2},
    "max_workers": {"prefill": 3, "decode": 9},
}


def role(gpus: int) -> RoleDescription:
    return RoleDescription(30.0, gpus, 1, 8192, 256, 100_000, None, 16)


def fleet(**limits: Any) -> FleetDescription:
    """Return two pools: a prefill worker takes two GPUs, a decode worker one."""
    return FleetDescription("disagg", role(1), role(2), ScalingLimits(**{**UNEVEN, **limits}))


def all_targets(env: ScalingEnv) -> Iterator[Targets]:
    """Yield all targets within the limits of the pools."""
    limits = env.fleet_description.limits
    pools: tuple[Any, ...] = ("decode",) if env.kind == "agg" else ("prefill", "decode")
    bounds = [limits.of_pool(pool) for pool in pools]
    for counts in itertools.product(*(range(low, (high or 0) + 1) for low, high in bounds)):
        yield Targets(None if len(counts) == 1 else counts[0], counts[-1])


# Meaning and inverse


@pytest.mark.parametrize("name", ["targets", "split", "box"])
@pytest.mark.parametrize("arguments", [{}, UNEVEN])
def test_every_target_can_be_expressed(
    env_id: str, name: str, arguments: dict[str, Any], make_env: EnvBuilder
) -> None:
    if env_id == AGG and arguments:
        arguments = {"min_workers": 2, "max_workers": 9}
    env = make_env(env_id, action=name, **arguments)
    env.reset(seed=1)
    part = env.action_object
    for targets in all_targets(env):
        action = part.encode(targets, env.view)
        assert action in env.action_space
        assert part.decode(action, env.view) == targets


def test_deltas_express_what_is_within_their_reach(make_env: EnvBuilder) -> None:
    env = make_env(DISAGG, action={"name": "deltas", "max_delta": 2}, **UNEVEN)
    env.reset(seed=1)  # 1 + 2 workers
    part = env.action_object
    for targets in all_targets(env):
        assert targets.prefill is not None
        reached = Targets(max(min(targets.prefill, 3), 0), min(targets.decode, 4))
        assert part.decode(part.encode(targets, env.view), env.view) == reached


@pytest.mark.parametrize("name", ACTIONS)
def test_targets_beyond_the_limits_become_the_nearest_within(
    name: str, make_env: EnvBuilder
) -> None:
    env = make_env(DISAGG, action={"name": name, **({"max_delta": 99} if name == "deltas" else {})})
    env.reset(seed=1)
    part = env.action_object
    assert part.decode(part.encode(Targets(99, 0), env.view), env.view) == Targets(8, 1)


@pytest.mark.parametrize("name", ACTIONS)
def test_what_is_sampled_means_targets_within_the_limits(
    env_id: str, name: str, make_env: EnvBuilder
) -> None:
    env = make_env(env_id, action=name)
    env.reset(seed=1)
    env.action_space.seed(1)
    possible = set(all_targets(env))
    for _ in range(300):
        assert env.action_object.decode(env.action_space.sample(), env.view) in possible


@pytest.mark.parametrize("action", [-1, [0, 99], [0.5, 0.5, 0.5], None, "1"])
@pytest.mark.parametrize("name", ACTIONS)
def test_what_is_no_action_is_refused(name: str, action: Any, make_env: EnvBuilder) -> None:
    env = make_env(DISAGG, action=name)
    env.reset(seed=1)
    with pytest.raises(ValueError, match=r"action: got .*, expected an element of"):
        env.step(action)
    assert env.replay.now_ms == 10_000.0


# Box


@pytest.mark.parametrize(
    ("number", "workers"),
    [(-1.0, 2), (1.0, 10), (0.0, 6), (-0.875, 3), (-0.876, 2), (0.874, 9), (0.999, 10)],
)
def test_number_is_mapped_linearly_and_rounded_half_up(number: float, workers: int) -> None:
    part = BoxAction(FleetDescription("agg", role(1), limits=ScalingLimits(1.0, 2, 10)))
    check = ActionCheck(part.space())
    for dtype in (np.float32, np.float64):
        action = np.array([number], dtype)
        assert check(action)
        assert part.decode(action, view_of()) == Targets(None, workers)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1.0001, -1.0001])
def test_number_outside_is_refused_not_clipped(number: float, make_env: EnvBuilder) -> None:
    env = make_env(AGG, action="box")
    env.reset(seed=1)
    with pytest.raises(ValueError, match=r"action: got .*, expected an element of Box\(-1"):
        env.step(np.array([number], np.float32))


def test_pool_that_cannot_change_takes_any_number() -> None:
    part = BoxAction(fleet(min_workers={"prefill": 3, "decode": 2}))
    view = view_of(targets=Targets(3, 2))
    assert part.decode(np.array([-0.7, -1.0]), view) == Targets(3, 2)
    assert part.encode(Targets(3, 9), view).tolist() == [0.0, 1.0]


def test_box_has_no_choices_to_mask(make_env: EnvBuilder) -> None:
    env = make_env(AGG, action="box")
    env.reset(seed=1)
    with pytest.raises(TypeError, match="action 'box' has no choices to mask; use 'targets'"):
        env.action_masks()


# GPU budget


@pytest.mark.parametrize("kind", [TargetAction, DeltaAction, SplitAction])
def test_mask_has_an_entry_for_each_choice_of_uneven_pools(
    kind: Callable[[FleetDescription], Action],
) -> None:
    """F15."""
    part = kind(fleet())
    space = part.space()
    assert isinstance(space, spaces.MultiDiscrete | spaces.Discrete)
    num_choices = int(space.nvec.sum() if isinstance(space, spaces.MultiDiscrete) else space.n)
    mask = part.mask(view_of(targets=Targets(1, 2)))
    assert mask.dtype == np.bool_
    assert mask.shape == (num_choices,)
    assert mask.all()


def test_mask_forbids_what_fits_with_no_choice_of_the_other_pool() -> None:
    part = TargetAction(fleet(max_gpus=6))
    # Two decode workers leave 4 GPUs, no prefill worker 6.
    expected = [True, True, True, False] + [True] * 5 + [False] * 3
    assert part.mask(view_of(targets=Targets(0, 2))).tolist() == expected


@pytest.mark.parametrize("max_gpus", [2, 6, 15])
def test_split_lists_exactly_what_fits_the_budget(max_gpus: int) -> None:
    description = fleet(max_gpus=max_gpus)
    part = SplitAction(description)
    pairs = [Targets(prefill, decode) for prefill in range(4) for decode in range(2, 10)]
    fitting = [pair for pair in pairs if fleet_gpus(pair, description) <= max_gpus]
    assert list(part.options) == fitting
    assert [part.decode(i, view_of()) for i in range(len(fitting))] == fitting


def test_split_is_never_refused(make_env: EnvBuilder) -> None:
    env = make_env(DISAGG, action="split", max_gpus=5)
    env.reset(seed=1)
    env.action_space.seed(1)
    ended = False
    while not ended:
        assert env.action_masks().all()
        *_, terminated, truncated, info = env.step(env.action_space.sample())
        assert info["action_refused"] == 0
        ended = terminated or truncated


def test_target_over_the_budget_becomes_the_nearest_split() -> None:
    part = SplitAction(fleet(max_gpus=6))
    view = view_of(targets=Targets(0, 2))
    nearest = part.decode(part.encode(Targets(3, 4), view), view)
    assert nearest == Targets(1, 4)  # as far as (2, 2), which comes later


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_gpus": 1}, r"got 0 splits within max_gpus \(1\)"),
        ({"max_workers": 99}, r"got 9800 splits .* expected 1 to 4096; narrow .* action_masks"),
    ],
)
def test_splits_that_are_none_or_too_many_are_refused(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SplitAction(fleet(**limits))


@pytest.mark.parametrize("kind", ACTIONS.values())
def test_pool_without_a_limit_has_no_space(kind: Callable[[FleetDescription], Action]) -> None:
    with pytest.raises(ValueError, match="max_workers: got None for decode, expected a limit"):
        kind(fleet(max_workers={"prefill": 3, "decode": None}))


# Objects of one's own


class Decoded(SplitAction):
    """Means the same targets whatever is chosen."""

    def __init__(self, means: Any) -> None:
        super().__init__(fleet(min_workers=1, max_workers=8))
        self.means = means

    def decode(self, action: Any, view: TickView) -> Any:
        return self.means


@pytest.mark.parametrize(
    ("env_id", "means", "error", "expected"),
    [
        (AGG, Targets(None, 0), ValueError, r"decode to be an integer from 1 \(min_workers\) to 8"),
        (AGG, Targets(None, -1), ValueError, "decode to be an integer from 1"),
        (AGG, Targets(None, 99), ValueError, "decode to be an integer from 1"),
        (AGG, Targets(None, 2.0), TypeError, "decode to be an integer from 1"),  # type: ignore[arg-type]
        (AGG, Targets(None, True), TypeError, "decode to be an integer from 1"),
        (AGG, Targets(2, 2), ValueError, "prefill to be None: there is one pool"),
        (DISAGG, Targets(None, 2), TypeError, "prefill to be an integer from 1"),
        (DISAGG, Targets(9, 2), ValueError, "prefill to be an integer from 1"),
        (AGG, (None, 2), TypeError, r"Targets\(prefill, decode\)"),
    ],
)
def test_what_an_action_object_means_has_to_be_targets_within_the_limits(
    env_id: str,
    means: Any,
    error: type[Exception],
    expected: str,
    make_env: EnvBuilder,
) -> None:
    part = Decoded(means)
    env = make_env(env_id, action=part)
    env.reset(seed=1)
    with pytest.raises(
        error, match=rf"^action: the action object returned .*, expected {expected}"
    ):
        env.step(0)
    part.means = Targets(None if env_id == AGG else 2, np.int64(4))  # type: ignore[arg-type]
    *_, info = env.step(0)
    assert env.snapshot.decode.num_non_draining == 4
    assert type(info["churn"]) is int


# Learners


@pytest.mark.parametrize("name", ["split", "box"])
def test_checkers_have_nothing_to_say(env_id: str, name: str, make_env: EnvBuilder) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make_env(env_id, action=name, max_gpus=9))


@pytest.mark.parametrize("arguments", [{"action": "split"}, {"action": "box"}, UNEVEN])
def test_checker_of_stable_baselines3_has_nothing_to_say(
    arguments: dict[str, Any], make_env: EnvBuilder
) -> None:
    checker = pytest.importorskip(
        "stable_baselines3.common.env_checker", reason="stable_baselines3 is not installed"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checker.check_env(make_env(DISAGG, **arguments), warn=True)


class CheckedMask(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Refuses an action that the mask before it forbids."""

    def action_masks(self) -> Any:
        """Return the mask of the environment, which learners look for by this name."""
        env = self.env.unwrapped
        assert isinstance(env, ScalingEnv)
        return env.action_masks()

    def step(self, action: Any) -> Any:
        mask = self.action_masks()
        nvec = getattr(self.action_space, "nvec", [len(mask)])
        assert len(mask) == sum(nvec)
        starts = np.cumsum([0, *nvec[:-1]])
        assert mask[starts + np.atleast_1d(action)].all(), action
        return self.env.step(action)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_masks_reach_learners_from_processes(make_env: EnvBuilder) -> None:
    """F15: an action that its mask forbids would end a process, and the test."""
    contrib = pytest.importorskip("sb3_contrib", reason="sb3_contrib is not installed")
    common = pytest.importorskip("stable_baselines3.common.vec_env")
    env = make_env(DISAGG, max_gpus=8, **UNEVEN)
    vector = common.SubprocVecEnv(
        [lambda i=i: CheckedMask(env.fork()) for i in range(4)], start_method="fork"
    )
    model = contrib.MaskablePPO(
        "MlpPolicy", vector, n_steps=125, batch_size=250, n_epochs=1, device="cpu", seed=1
    )
    model.learn(2000)
    assert model.num_timesteps == 2000
    masks = np.stack(vector.env_method("action_masks"))
    assert masks.shape == (4, 12)
    assert not masks.all()
    vector.close()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most_refused"), [("targets", None), ("split", 0)])
def test_maskable_ppo_learns_with_uneven_pools(
    name: str, most_refused: int | None, make_env: EnvBuilder
) -> None:
    """F15: masks reach the learner through a vectorised environment."""
    contrib = pytest.importorskip("sb3_contrib", reason="sb3_contrib is not installed")
    common = pytest.importorskip("stable_baselines3.common.vec_env")
    envs = [make_env(DISAGG, action=name, max_gpus=8, **UNEVEN) for _ in range(2)]
    refused, masked_out = [], []

    def watched(env: ScalingEnv) -> ScalingEnv:
        step = env.step

        def count(action: Any) -> Any:
            mask = env.action_masks()
            nums = [len(mask)] if name == "split" else [4, 8]
            starts = np.cumsum([0, *nums[:-1]])
            masked_out.append(not mask[starts + np.atleast_1d(action)].all())
            result = step(action)
            refused.append(result[-1]["action_refused"])
            return result

        env.step = count  # type: ignore[method-assign]
        return env

    vector = common.DummyVecEnv([lambda env=env: watched(env) for env in envs])
    model = contrib.MaskablePPO(
        "MlpPolicy", vector, n_steps=250, batch_size=250, n_epochs=1, device="cpu", seed=1
    )
    model.learn(2000)
    assert len(masked_out) >= 2000
    assert not any(masked_out)
    if most_refused is not None:
        assert sum(refused) <= most_refused
