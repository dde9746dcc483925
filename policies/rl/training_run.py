"""A training run from its folder to its policy bundle.

======================  ==================================================================== in the
run's folder     what ======================
==================================================================== ``manifest.json``
configuration, seed, versions, start and end; no end = partial run ``episodes.csv``        a row per
training episode ``validations.csv``     a row per validation ``summary.json``        results
``checkpoints/``        the latest and the best, for resuming ``tensorboard/``        logs of
Stable-Baselines3, ours under ``serving/`` ``plots/``              learning curves ``policy/`` the
bundle of the best policy ======================
====================================================================
"""

import math
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aisim_gym.policies.env_runner import unwrap
from aisim_gym.policies.rl.algorithms import algorithm_class, build_learner
from aisim_gym.policies.rl.checkpoint import (
    TrainingState,
    latest_checkpoint,
    load_learner,
    read_state,
)
from aisim_gym.policies.rl.comparison import metric_interval
from aisim_gym.policies.rl.episode_metrics import EpisodeMetrics
from aisim_gym.policies.rl.evaluation import LearnedActor, evaluate
from aisim_gym.policies.rl.learned_policy import LearnedPolicy
from aisim_gym.policies.rl.model_card import model_card
from aisim_gym.policies.rl.observers import (
    BEST,
    Checkpoints,
    EpisodeLog,
    Interruption,
    ProgressBar,
    TrainingObserver,
    as_callback,
)
from aisim_gym.policies.rl.policy_bundle import (
    BundleDescription,
    PolicyBundle,
    describe_space,
    learner_arrays,
    save_bundle,
)
from aisim_gym.policies.rl.run_manifest import (
    MANIFEST,
    begin_manifest,
    end_manifest,
    library_versions,
    read_manifest,
    resume_manifest,
    write_json,
)
from aisim_gym.policies.rl.training_config import TrainingConfig
from aisim_gym.policies.rl.training_envs import (
    env_seed,
    make_training_envs,
    make_validation_env,
    normalize,
)
from aisim_gym.policies.rl.training_plots import plot_training
from aisim_gym.policies.rl.validation import Validations, validation_callback

if TYPE_CHECKING:
    from rich.progress import Progress
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

CARD_SPLIT = "validation"


class TrainingRun(NamedTuple):
    """A run that can be trained.

    Attributes:
        folder: Folder of the run.
        config: Configuration.
        seed: Seed of weights, draws and traffic.
        checkpoint: Checkpoint to resume from; None for a new run.
    """

    folder: Path
    config: TrainingConfig
    seed: int
    checkpoint: Path | None = None

    @property
    def checkpoints(self) -> Path:
        """Return the folder of the checkpoints."""
        return self.folder / "checkpoints"

    @property
    def policy(self) -> Path:
        """Return the folder of the bundle."""
        return self.folder / "policy"


def new_run(config: TrainingConfig, seed: int, out: Path, source: Path) -> TrainingRun:
    """Create a run in ``<out>/<name>/seed-<seed>``.

    Args:
        config: What to do.
        seed: Seed, >= 0.
        out: Folder of all runs.
        source: Folder whose commit is recorded.

    Raises:
        FileExistsError: If the run already exists.
        ValueError: If the seed is negative.
    """
    if seed < 0:
        raise ValueError(f"seed: got {seed}, expected >= 0")
    run = TrainingRun(out.expanduser() / config.name / f"seed-{seed}", config, seed)
    if (run.folder / MANIFEST).exists():
        raise FileExistsError(
            f"{run.folder}: the run already exists; use --resume {run.folder}, or choose "
            "another seed or --out"
        )
    run.folder.mkdir(parents=True, exist_ok=True)
    content = {
        "config": config.model_dump(mode="json"),
        "config_sha256": config.sha256(),
        "seed": seed,
    }
    begin_manifest(run.folder, content, source)
    return run


def resumed_run(folder: Path) -> TrainingRun:
    """Resume a run from its last checkpoint, to the same number of steps.

    Raises:
        FileNotFoundError: If the run or a checkpoint does not exist.
        ValueError: If the run is complete.
    """
    folder = folder.expanduser()
    manifest = read_manifest(folder)
    if manifest["ended"] is not None:
        raise ValueError(f"{folder}: the run is complete, it ended at {manifest['ended']}")
    config = TrainingConfig.from_data(manifest["config"], source=str(folder / MANIFEST))
    run = TrainingRun(folder, config, manifest["seed"])
    checkpoint = latest_checkpoint(run.checkpoints)
    resume_manifest(folder, read_state(checkpoint).steps)
    return run._replace(checkpoint=checkpoint)


def train(run: TrainingRun, bars: "Progress") -> TrainingState | None:
    """Train to the end, or until Ctrl-C or SIGTERM; both leave a checkpoint.

    Args:
        run: New or resumed.
        bars: Progress display; has a field ``detail``.

    Returns:
        The state at the end, None if the run was interrupted.
    """
    import torch
    from stable_baselines3.common.logger import configure

    config = run.config
    torch.set_num_threads(config.torch_threads)
    envs = make_training_envs(config)
    state = TrainingState() if run.checkpoint is None else _resumed_state(run)
    if run.checkpoint is None:
        model = build_learner(config, normalize(config, envs), run.seed)
    else:
        model = load_learner(run.checkpoint, algorithm_class(config.algorithm), envs)
    model.set_random_seed(env_seed(run.seed, state.steps))
    model.set_logger(configure(str(run.folder / "tensorboard"), ["tensorboard"]))
    checkpoints = Checkpoints(run.checkpoints, config.checkpoint_steps, state)
    interruption = Interruption()
    observers: list[TrainingObserver] = [
        checkpoints,
        EpisodeLog(run.folder / "episodes.csv", state.steps),
        ProgressBar(bars, config.trained_steps),
        interruption,
    ]
    validations = Validations(run.folder / "validations.csv", checkpoints)
    validating = validation_callback(config, validations)
    callbacks = [*map(as_callback, observers), validating]
    try:
        with interruption.watching():
            model.learn(
                config.trained_steps - state.steps, callback=callbacks, reset_num_timesteps=False
            )
        if interruption.signal_name is not None:
            checkpoints.save(model)
            return None
        checkpoints.finish(model)
    finally:
        model.logger.close()
        validating.eval_env.close()
        envs.close()
    return checkpoints.state


def finish_run(run: TrainingRun, state: TrainingState) -> LearnedPolicy:
    """Write the bundle of the best policy with its results, the summary and the plots.

    Args:
        run: A trained run.
        state: Its final state.
    """
    config = run.config
    envs = make_validation_env(config)
    learner = algorithm_class(config.algorithm)
    model = load_learner(run.checkpoints / BEST, learner, envs)
    weights, statistics = learner_arrays(model)
    description = _describe(run, state, model)
    policy = LearnedPolicy(description, model.policy, statistics)
    results = _results(policy)
    envs.close()
    description = description.model_copy(update={"evaluation": results})
    bundle = PolicyBundle(description, weights, statistics, str(run.policy))
    save_bundle(bundle, model_card(description), run.policy)
    summary = {
        "steps": state.steps,
        "wall_s": state.wall_s,
        "steps_per_s": state.steps / max(state.wall_s, 1e-9),
        "best_reward": state.best_reward,
        "best_steps": state.best_steps,
        CARD_SPLIT: results,
    }
    write_json(run.folder / "summary.json", summary)
    if find_spec("matplotlib") is not None:
        plot_training(
            run.folder / "episodes.csv",
            run.folder / "validations.csv",
            run.folder / "plots" / "training.png",
            f"{config.name}, seed {run.seed}",
        )
    end_manifest(run.folder)
    return LearnedPolicy(description, model.policy, statistics)


def _resumed_state(run: TrainingRun) -> TrainingState:
    """Return the state at the checkpoint; the best policy may be from after it."""
    assert run.checkpoint is not None
    state = read_state(run.checkpoint)
    if not (run.checkpoints / BEST).exists():
        return state
    best = read_state(run.checkpoints / BEST)
    return state._replace(best_reward=best.best_reward, best_steps=best.best_steps)


def _describe(
    run: TrainingRun, state: TrainingState, model: "OnPolicyAlgorithm"
) -> BundleDescription:
    manifest = read_manifest(run.folder)
    return BundleDescription(
        algorithm=run.config.algorithm,
        network=run.config.network,
        env=run.config.env,
        observation_space=describe_space(model.observation_space),
        action_space=describe_space(model.action_space),
        is_normalized=run.config.normalize.observation,
        splits=run.config.splits,
        training={
            "name": run.config.name,
            "seed": run.seed,
            "steps": state.steps,
            "best_steps": state.best_steps,
            **{name: manifest[name] for name in ("config_sha256", "commit", "is_dirty")},
        },
        versions=library_versions(),
        evaluation={},
    )


def _results(policy: LearnedPolicy) -> dict[str, Any]:
    """Return the results of a policy on the episodes of its card."""
    episodes = policy.description.splits[CARD_SPLIT]
    env = policy.make_env(**episodes.kwargs)
    results = evaluate(env, LearnedActor(unwrap(env), policy), episodes)
    env.close()
    metrics = {key: metric_interval(results, key)._asdict() for key in EpisodeMetrics._fields}
    assert all(math.isfinite(value["mean"]) for value in metrics.values())
    return {"split": CARD_SPLIT, "episodes": episodes.episodes, "metrics": metrics}
