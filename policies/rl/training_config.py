"""Configuration of a training run, read from a TOML file and checked once.

A file needs ``name``, ``total_steps`` and ``[env] id``; everything else has a default. Examples:
``experiments/configs/``.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from aisim_gym.spec.loading import read_spec_data
from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.refusals import MisfitError
from aisim_gym.spec.scalars import F64, Flag, Integer, Text

AlgorithmName = Literal["ppo", "maskable_ppo", "recurrent_ppo"]

Positive = Annotated[Integer, Field(gt=0)]
Fraction = Annotated[F64, Field(ge=0, le=1)]


class EnvConfig(SpecModel):
    """The training environment."""

    id: Text = Field(description="Registered id, such as aisim_gym/Disaggregated-v0")
    kwargs: dict[str, Any] = Field(default_factory=dict, description="Arguments of make()")


class EpisodeSet(SpecModel):
    """A fixed set of evaluation episodes."""

    kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Arguments of make() that differ from [env.kwargs]"
    )
    episodes: Annotated[Integer, Field(ge=2)] = Field(
        default=20, description="Number of episodes, >= 2: intervals need several"
    )
    choose_by: Literal["seed", "episode"] = Field(
        default="seed",
        description="Argument of reset(): seed=first + k, or options={'episode': first + k}",
    )
    first: Annotated[Integer, Field(ge=0)] = Field(
        default=0, description="Seed or number of the first episode, >= 0"
    )


class Normalization(SpecModel):
    """Running statistics of VecNormalize."""

    observation: Flag = Field(default=True, description="Whether observations are normalised")
    reward: Flag = Field(default=True, description="Whether rewards are scaled in training")
    clip: F64 = Field(default=10.0, gt=0, description="Bound of both afterwards, > 0")


class Network(SpecModel):
    """Layers of the actor and, separately, of the critic."""

    hidden: tuple[Positive, ...] = Field(default=(64, 64), description="Units of each layer")
    activation: Literal["tanh", "relu"] = Field(default="tanh", description="Between layers")
    lstm_units: Positive = Field(default=64, description="LSTM units of recurrent_ppo")


class Hyperparameters(SpecModel):
    """Hyperparameters of PPO, with names and defaults of Stable-Baselines3 except the schedule."""

    learning_rate: F64 = Field(default=3e-4, gt=0, description="Adam's step size, > 0")
    schedule: Literal["constant", "linear"] = Field(
        default="constant", description="Schedule of the learning rate; linear ends at 0"
    )
    n_steps: Positive = Field(default=2048, description="Steps per environment and rollout")
    batch_size: Positive = Field(default=64, description="Steps per gradient update")
    n_epochs: Positive = Field(default=10, description="Epochs per rollout")
    gamma: Fraction = Field(default=0.99, description="Discount per step, 0..1")
    gae_lambda: Fraction = Field(default=0.95, description="Lambda of the advantage estimate, 0..1")
    clip_range: F64 = Field(default=0.2, gt=0, description="Clipping of the policy ratio, > 0")
    ent_coef: F64 = Field(default=0.0, ge=0, description="Weight of the entropy, >= 0")
    vf_coef: F64 = Field(default=0.5, ge=0, description="Weight of the value loss, >= 0")
    max_grad_norm: F64 = Field(default=0.5, gt=0, description="Maximum gradient norm, > 0")


class TrainingConfig(SpecModel):
    """A training run."""

    name: Text = Field(
        pattern=r"^[\w.-]+$", description="Folder of the runs: letters, digits, '_', '.', '-'"
    )
    algorithm: AlgorithmName = Field(default="ppo", description="Which learner")
    total_steps: Positive = Field(description="Environment steps, rounded up to whole rollouts")
    num_envs: Positive = Field(default=4, description="Environments stepped in parallel")
    vec: Literal["native", "dummy", "subproc"] = Field(
        default="native",
        description="native: replays in threads; dummy: one by one; subproc: a process each",
    )
    start_method: Literal["fork", "spawn", "forkserver"] = Field(
        default="spawn", description="How subproc starts its processes"
    )
    torch_threads: Positive = Field(
        default=1, description="Threads of PyTorch, > 0; small networks gain nothing from more"
    )
    checkpoint_steps: Positive = Field(default=20_000, description="Steps between checkpoints")
    validation_steps: Positive = Field(default=10_000, description="Steps between validations")
    env: EnvConfig
    splits: dict[str, EpisodeSet] = Field(
        default_factory=lambda: {
            "validation": EpisodeSet(first=1_000_000),
            "test": EpisodeSet(first=2_000_000),
        },
        description="Named sets of episodes; validation chooses the best policy",
    )
    normalize: Normalization = Normalization()
    network: Network = Network()
    hyperparameters: Hyperparameters = Hyperparameters()

    @property
    def rollout_steps(self) -> int:
        """Environment steps between two updates, summed over environments."""
        return self.num_envs * self.hyperparameters.n_steps

    @property
    def trained_steps(self) -> int:
        """Steps at the end of the run: ``total_steps`` rounded up to whole rollouts."""
        return -(-self.total_steps // self.rollout_steps) * self.rollout_steps

    def sha256(self) -> str:
        """Return the hash of the resolved configuration, including defaults."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @model_validator(mode="after")
    def _check_fit(self) -> Self:
        if "validation" not in self.splits:
            raise MisfitError(
                "splits",
                f"expected `validation` among them, got {', '.join(self.splits) or 'none'}",
            )
        if self.validation_steps > self.total_steps:
            raise MisfitError(
                "validation_steps",
                f"expected at most total_steps ({self.total_steps}), got {self.validation_steps}: "
                "the best policy is one that was validated",
            )
        batch_size = self.hyperparameters.batch_size
        if self.rollout_steps % batch_size != 0:
            raise MisfitError(
                "hyperparameters.batch_size",
                f"expected a divisor of num_envs * n_steps ({self.rollout_steps}), "
                f"got {batch_size}",
            )
        return self


def load_config(path: Path) -> TrainingConfig:
    """Read a training run from a ``.toml`` or ``.json`` file.

    Raises:
        SpecError: If the file cannot be read or is not valid; names file, field, given and allowed
            values.
    """
    return TrainingConfig.from_data(read_spec_data(path), source=str(path))


def env_arguments(env: EnvConfig, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``make()``, overridden by those of a set of episodes."""
    return {**env.kwargs, **overrides}
