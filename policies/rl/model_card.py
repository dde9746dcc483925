"""The model card of a trained policy: description, usage, results and limits."""

import json

from aisim_gym.policies.rl.policy_bundle import BundleDescription

LIMITS = """\
* It is a result for one simulated fleet and one kind of traffic. Its behaviour under other traffic,
  on another fleet or with other limits is not measured; it has never run on a real fleet.
* It sees only the observation and acts once per tick.
* Results hold for the versions below; loading fails for another environment version."""


def model_card(description: BundleDescription) -> str:
    """Return the card as Markdown (env-checklist.md 31)."""
    training, evaluation = description.training, description.evaluation
    commit = training["commit"] or "unknown"
    dirty = ", with changes on top" if training["is_dirty"] else ""
    rows = "\n".join(
        f"| {name} | {value['mean']:.6g} | {value['low']:.6g} … {value['high']:.6g} |"
        for name, value in evaluation["metrics"].items()
    )
    versions = "\n".join(f"* {name} {text}" for name, text in description.versions.items())
    arguments = json.dumps(description.env.kwargs, indent=2)
    return f"""\
# {training["name"]}, seed {training["seed"]}

A policy that scales an LLM inference fleet, learned with `{description.algorithm}` in
`{description.env.id}`.

## Use

```python
from aisim_gym.policies.rl import load_policy

policy = load_policy("path/to/this/folder")
env = policy.make_env()
observation, info = env.reset(seed=7)
policy.reset()
action = policy.act(observation)
```

Observations are given as the environment returns them; normalisation is part of the policy.

## Training

* seed {training["seed"]}, {training["steps"]:,} steps; these weights are those after
  {training["best_steps"]:,} steps, the best on the validation episodes
* configuration `{training["config_sha256"][:12]}`, commit `{commit}`{dirty}
* network: {" x ".join(map(str, description.network.hidden))} {description.network.activation}

Environment arguments:

```json
{arguments}
```

## Result

Split `{evaluation["split"]}`, {evaluation["episodes"]} episodes, deterministic actions; mean and
95 % bootstrap interval over the episodes.

| metric | mean | interval |
|---|---|---|
{rows}

The weights were chosen by the reward on `validation`: compare policies on another split.

## Limits

{LIMITS}

## Versions

{versions}

Licence: Apache-2.0, as aisim-gym.
"""
