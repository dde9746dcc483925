"""PPO in one file, to read from top to bottom and to change: ``python ppo_single_file.py --help``.

Needs PyTorch (the extra ``rl``). For one choice per action (``Discrete``): environments with one
pool, or any with ``action="split"``.
"""

import argparse
import time
from dataclasses import dataclass, fields

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributions import Categorical

import aisim_gym.envs  # noqa: F401  registers the environments


@dataclass(frozen=True)
class Options:
    """What can be set on the command line."""

    env_id: str = "aisim_gym/ChatSteady-v0"
    seed: int = 1
    total_steps: int = 100_000
    num_envs: int = 8
    num_steps: int = 64  # per environment and update
    learning_rate: float = 1e-3
    gamma: float = 0.97
    gae_lambda: float = 0.95
    num_epochs: int = 4
    minibatch_size: int = 128
    clip: float = 0.2
    entropy_weight: float = 0.01
    value_weight: float = 0.5
    max_grad_norm: float = 0.5
    evaluation_episodes: int = 5


class Agent(nn.Module):
    """A policy and a value, two small networks."""

    def __init__(self, num_inputs: int, num_actions: int) -> None:
        """Build the networks; the first policy is nearly uniform."""
        super().__init__()
        self.policy = network(num_inputs, num_actions, last_gain=0.01)
        self.value = network(num_inputs, 1, last_gain=1.0)

    def distribution(self, observations: Tensor) -> Categorical:
        """Return the policy in each observation."""
        return Categorical(logits=self.policy(observations))

    def values(self, observations: Tensor) -> Tensor:
        """Return the value of each observation."""
        values: Tensor = self.value(observations)
        return values.squeeze(-1)


def network(num_inputs: int, num_outputs: int, last_gain: float) -> nn.Sequential:
    """Return two hidden layers with orthogonal weights."""
    sizes = (num_inputs, 64, 64, num_outputs)
    layers: list[nn.Module] = []
    for i in range(3):
        layer = nn.Linear(sizes[i], sizes[i + 1])
        nn.init.orthogonal_(layer.weight, last_gain if i == 2 else 2.0**0.5)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class RewardScale:
    """Divides rewards by the running standard deviation of discounted returns."""

    def __init__(self, num_envs: int, gamma: float) -> None:
        """Begin without statistics."""
        self.gamma = gamma
        self.returns = np.zeros(num_envs)
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def __call__(self, rewards: NDArray[np.float64], ended: NDArray[np.bool_]) -> Tensor:
        """Return scaled rewards, float32; takes them into the statistics first."""
        self.returns = self.returns * self.gamma + rewards
        for value in self.returns:
            self.count += 1
            delta = value - self.mean
            self.mean += delta / self.count
            self.squares += delta * (value - self.mean)
        self.returns[ended] = 0.0
        return as_tensor(rewards / np.sqrt(self.squares / self.count + 1e-8))


def as_tensor(array: NDArray[np.generic]) -> Tensor:
    """Return an array as float32."""
    return torch.as_tensor(np.asarray(array), dtype=torch.float32)


def train(options: Options) -> Agent:
    """Return a trained agent; prints a line per update."""
    torch.manual_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    envs = gymnasium.make_vec(options.env_id, num_envs=options.num_envs, autoreset_mode="SameStep")
    observations, _ = envs.reset(seed=options.seed)
    actions = envs.single_action_space
    if not isinstance(actions, gymnasium.spaces.Discrete):
        raise TypeError(f'{options.env_id}: got {actions}, expected Discrete (action="split")')
    agent = Agent(observations.shape[1], int(actions.n))
    optimizer = torch.optim.Adam(agent.parameters(), lr=options.learning_rate, eps=1e-5)
    scale = RewardScale(options.num_envs, options.gamma)

    shape = (options.num_steps, options.num_envs)
    obs = torch.zeros((*shape, observations.shape[1]))
    chosen, log_probs, rewards, values, ends = (torch.zeros(shape) for _ in range(5))
    num_updates = options.total_steps // (options.num_steps * options.num_envs)
    episode_returns, running = [], np.zeros(options.num_envs)
    start_s = time.perf_counter()
    for update in range(num_updates):
        optimizer.param_groups[0]["lr"] = options.learning_rate * (1.0 - update / num_updates)

        for t in range(options.num_steps):
            obs[t] = as_tensor(observations)
            with torch.no_grad():
                distribution = agent.distribution(obs[t])
                action = distribution.sample()
                log_probs[t] = distribution.log_prob(action)
                values[t] = agent.values(obs[t])
            chosen[t] = action
            observations, reward, terminated, truncated, infos = envs.step(action.numpy())
            ended = terminated | truncated
            rewards[t] = scale(reward, ended)
            ends[t] = as_tensor(ended)
            running += reward
            episode_returns += running[ended].tolist()
            running[ended] = 0.0
            # An episode that was cut off had a future: its value is added where it is missing.
            for i in np.flatnonzero(truncated & ~terminated):
                with torch.no_grad():
                    last_value = agent.values(as_tensor(infos["final_obs"][i]))
                rewards[t, i] += options.gamma * last_value

        with torch.no_grad():
            next_values = agent.values(as_tensor(observations))
        advantages = torch.zeros(shape)
        advantage = torch.zeros(options.num_envs)
        for t in reversed(range(options.num_steps)):
            goes_on = 1.0 - ends[t]
            delta = rewards[t] + options.gamma * next_values * goes_on - values[t]
            advantage = delta + options.gamma * options.gae_lambda * goes_on * advantage
            advantages[t], next_values = advantage, values[t]
        targets = advantages + values

        size = options.num_steps * options.num_envs
        for _ in range(options.num_epochs):
            order = torch.as_tensor(rng.permutation(size))
            for batch in order.split(options.minibatch_size):
                distribution = agent.distribution(obs.flatten(0, 1)[batch])
                log_prob = distribution.log_prob(chosen.flatten()[batch])
                ratio = (log_prob - log_probs.flatten()[batch]).exp()
                gain = advantages.flatten()[batch]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                clipped = ratio.clamp(1.0 - options.clip, 1.0 + options.clip)
                policy_loss = -torch.min(ratio * gain, clipped * gain).mean()
                errors = agent.values(obs.flatten(0, 1)[batch]) - targets.flatten()[batch]
                loss = (
                    policy_loss
                    + options.value_weight * errors.square().mean()
                    - options.entropy_weight * distribution.entropy().mean()
                )
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), options.max_grad_norm)
                optimizer.step()

        recent = np.mean(episode_returns[-20:]) if episode_returns else float("nan")
        steps = (update + 1) * size
        rate = steps / (time.perf_counter() - start_s)
        print(f"{steps:>9,} steps  mean return {recent:9.3f}  {rate:6.0f} steps/s")
    envs.close()
    return agent


def evaluate(agent: Agent, options: Options) -> float:
    """Return the mean return on the first validation episodes, without random choices."""
    env = gymnasium.make(options.env_id, split="validation")
    returns = []
    for episode in range(options.evaluation_episodes):
        observation, _ = env.reset(options={"episode": episode})
        total, ended = 0.0, False
        while not ended:
            with torch.no_grad():
                action = int(agent.policy(as_tensor(observation)).argmax())
            observation, reward, terminated, truncated, _ = env.step(action)
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    env.close()
    return float(np.mean(returns))


def main() -> None:
    """Train, then evaluate."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for field in fields(Options):
        flag = "--" + field.name.replace("_", "-")
        parser.add_argument(flag, type=type(field.default), default=field.default, help=" ")
    options = Options(**vars(parser.parse_args()))
    torch.set_num_threads(1)  # networks this small get slower with more
    agent = train(options)
    print(f"mean validation return {evaluate(agent, options):.3f}")


if __name__ == "__main__":
    main()
