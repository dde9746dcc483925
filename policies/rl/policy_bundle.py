"""A trained policy as a self-contained folder or zip file.

=================== ======================================================================== file
contents ===================
======================================================================== ``policy.json``
:class:`BundleDescription`: environment, spaces, network, versions, results ``weights.npz``     the
network, array by array ``statistics.npz``  mean and variance of each observation entry, if
observations are normalised ``README.md``       the model card ===================
========================================================================

It contains no pickles, so loading a bundle runs no code of its author.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pydantic import Field

from aisim_gym.policies.rl.atomic_folder import replace_folder
from aisim_gym.policies.rl.training_config import AlgorithmName, EnvConfig, EpisodeSet, Network
from aisim_gym.spec.json_text import parse_json
from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.scalars import Flag, Integer

if TYPE_CHECKING:
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

DESCRIPTION, WEIGHTS, STATISTICS, CARD = "policy.json", "weights.npz", "statistics.npz", "README.md"
FORMAT = 1

Arrays = dict[str, NDArray[Any]]


class BundleDescription(SpecModel):
    """Contents of ``policy.json``."""

    format: Integer = Field(default=FORMAT, description="Version of the bundle format")
    algorithm: AlgorithmName = Field(description="Learning algorithm")
    network: Network = Field(description="Its layers")
    env: EnvConfig = Field(description="Training environment")
    observation_space: dict[str, Any] = Field(description="As of describe_space()")
    action_space: dict[str, Any] = Field(description="As of describe_space()")
    is_normalized: Flag = Field(description="Whether the bundle has statistics.npz")
    splits: dict[str, EpisodeSet] = Field(description="Sets of episodes for evaluation")
    training: dict[str, Any] = Field(
        description="Name, seed, steps, best_steps, config_sha256, commit, is_dirty"
    )
    versions: dict[str, str] = Field(description="Library versions at training")
    evaluation: dict[str, Any] = Field(description="split, episodes and mean of each metric")


class Statistics(NamedTuple):
    """Final running statistics of observations from VecNormalize.

    Attributes:
        mean: Shape of an observation.
        var: Shape of an observation.
        epsilon: Added to the variance.
        clip: Bound of normalised entries.
    """

    mean: NDArray[np.float64]
    var: NDArray[np.float64]
    epsilon: float
    clip: float

    def normalize(self, observation: NDArray[Any]) -> NDArray[np.float32]:
        """Return normalised observations, bit for bit as VecNormalize does."""
        scaled = (observation - self.mean) / np.sqrt(self.var + self.epsilon)
        normalized: NDArray[np.float32] = np.clip(scaled, -self.clip, self.clip).astype(np.float32)
        return normalized


class PolicyBundle(NamedTuple):
    """Contents of a bundle.

    Attributes:
        description: ``policy.json``.
        weights: Arrays of the network by name.
        statistics: None if observations are not normalised.
        source: Origin, for messages.
    """

    description: BundleDescription
    weights: Arrays
    statistics: Statistics | None
    source: str


def learner_arrays(model: "OnPolicyAlgorithm") -> tuple[Arrays, Statistics | None]:
    """Return the weights of a learner and its statistics, None if it has none."""
    weights = {name: value.numpy() for name, value in model.policy.state_dict().items()}
    envs = model.get_vec_normalize_env()
    if envs is None or not envs.norm_obs:
        return weights, None
    rms: Any = envs.obs_rms
    return weights, Statistics(rms.mean, rms.var, envs.epsilon, envs.clip_obs)


def save_bundle(bundle: PolicyBundle, card: str, folder: Path) -> Path:
    """Write a bundle atomically.

    Args:
        bundle: Bundle to write.
        card: Text of the model card.
        folder: Destination; replaced if it exists. Its content can be zipped.
    """
    with replace_folder(folder) as temporary:
        text = json.dumps(bundle.description.model_dump(mode="json"), indent=2, allow_nan=False)
        (temporary / DESCRIPTION).write_text(text + "\n", "utf-8")
        (temporary / CARD).write_text(card, "utf-8")
        np.savez(temporary / WEIGHTS, **_named(bundle.weights))
        if bundle.statistics is not None:
            np.savez(temporary / STATISTICS, **_named(bundle.statistics._asdict()))
    return folder


def read_bundle(path: Path) -> PolicyBundle:
    """Read a bundle from its folder, a zip of the folder's content, or the folder of its run.

    Raises:
        FileNotFoundError: If a file is missing.
        SpecError: If ``policy.json`` is not valid.
        ValueError: If the bundle has another format.
    """
    if (path / "policy" / DESCRIPTION).is_file():
        path = path / "policy"
    if not path.exists():
        raise FileNotFoundError(f"{path}: not there; expected a policy bundle or a run folder")
    if path.is_file() and not zipfile.is_zipfile(path):
        raise FileNotFoundError(f"{path}: neither a folder nor a zip file")
    root = zipfile.Path(path) if path.is_file() else path
    if not (root / DESCRIPTION).is_file():
        raise FileNotFoundError(
            f"{path}: no {DESCRIPTION}; expected a policy bundle, or the folder of a run that ended"
        )
    text = (root / DESCRIPTION).read_text("utf-8")
    source = f"{path}/{DESCRIPTION}"
    data = parse_json(text, source=source)
    if isinstance(data, dict) and data.get("format") != FORMAT:
        raise ValueError(f"{source}: format: got {data.get('format')!r}, expected {FORMAT}")
    description = BundleDescription.from_data(data, source=source)
    weights = _read_arrays(root, WEIGHTS, "the network is gone")
    statistics = None
    if description.is_normalized:
        why = (
            "the policy was trained on normalised observations and acts wrongly without their "
            "mean and variance"
        )
        arrays = _read_arrays(root, STATISTICS, why)
        statistics = Statistics(
            arrays["mean"], arrays["var"], float(arrays["epsilon"]), float(arrays["clip"])
        )
    return PolicyBundle(description, weights, statistics, str(path))


def describe_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return a space as JSON values; equal spaces give equal descriptions.

    Raises:
        ValueError: If the learners here do not support the space.
    """
    if isinstance(space, spaces.Box):
        low, high = space.low.tolist(), space.high.tolist()
        return {"kind": "Box", "low": low, "high": high, "dtype": str(space.dtype)}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist()}
    raise ValueError(f"space: got {space}, expected Box, Discrete or MultiDiscrete")


def space_text(description: Mapping[str, Any]) -> str:
    """Return a short text for a described space."""
    if description["kind"] == "Box":
        return f"Box of shape {np.shape(description['low'])}"
    if description["kind"] == "Discrete":
        return f"Discrete({description['n']})"
    return f"MultiDiscrete({description['nvec']})"


def _named(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(values) for name, values in arrays.items()}


def _read_arrays(root: Any, name: str, why: str) -> Arrays:
    """Return the arrays of a file in a folder or zip file."""
    file = root / name
    if not file.is_file():
        raise FileNotFoundError(f"{file}: missing; {why}")
    with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}
