"""Observers of a training run: episode log, checkpoints, interruptions and progress bar.

An observer is called when a rollout begins and after every step; False from ``on_step`` ends the
run. :func:`as_callback` adapts one to Stable-Baselines3.
"""

import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from aisim_gym.policies.rl.checkpoint import (
    TrainingState,
    checkpoint_name,
    remove_old_checkpoints,
    save_checkpoint,
)
from aisim_gym.policies.rl.episode_metrics import SERVING_METRICS, EpisodeMetrics
from aisim_gym.policies.rl.step_rows import append_rows, start_rows

if TYPE_CHECKING:
    from rich.progress import Progress
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

EPISODE_COLUMNS = ("steps", *EpisodeMetrics._fields)
BEST = "best"


class TrainingObserver(Protocol):
    """Interface of observers of a training run."""

    def on_rollout_start(self, model: "OnPolicyAlgorithm") -> None:
        """Handle the start of a rollout; all previous steps have been learned."""
        ...

    def on_step(self, model: "OnPolicyAlgorithm", step: Mapping[str, Any]) -> bool:
        """Handle a step.

        Args:
            model: The learner.
            step: Local variables of the rollout, among them ``dones`` and ``infos``.

        Returns:
            False to end the training.
        """
        ...


def as_callback(observer: TrainingObserver) -> "BaseCallback":
    """Return a callback of Stable-Baselines3 that calls ``observer``."""
    from stable_baselines3.common.callbacks import BaseCallback

    class ObserverCallback(BaseCallback):
        def _on_rollout_start(self) -> None:
            observer.on_rollout_start(self.model)  # type: ignore[arg-type]

        def _on_step(self) -> bool:
            return observer.on_step(self.model, self.locals)  # type: ignore[arg-type]

    return ObserverCallback()


class EpisodeLog:
    """Writes every finished episode to a CSV file and means to TensorBoard.

    TensorBoard names are ``serving/<metric>``, see
    :data:`~aisim_gym.policies.rl.episode_metrics.SERVING_METRICS`.
    """

    def __init__(self, path: Path, from_steps: int = 0) -> None:
        """Continue a file from a step, or create it."""
        self._path = path
        start_rows(path, EPISODE_COLUMNS, from_steps)

    def on_rollout_start(self, model: "OnPolicyAlgorithm") -> None:
        """Do nothing."""

    def on_step(self, model: "OnPolicyAlgorithm", step: Mapping[str, Any]) -> bool:
        """Log the episodes that ended."""
        rows = []
        for done, info in zip(step["dones"], step["infos"], strict=True):
            if done:
                metrics = EpisodeMetrics.of(info["episode"]["r"], info["episode"]["l"], info)
                rows.append((model.num_timesteps, *metrics))
                for name in SERVING_METRICS:
                    model.logger.record_mean(f"serving/{name}", getattr(metrics, name))
        append_rows(self._path, rows)
        return True


class Checkpoints:
    """Saves the run at regular intervals, and the best learner after a validation.

    Attributes:
        state: Progress of the run; ``steps`` counts learned steps.
    """

    def __init__(self, folder: Path, every_steps: int, state: TrainingState) -> None:
        """Save to ``folder``; the run is at ``state``."""
        self.state = state
        self._folder = folder
        self._every_steps = every_steps
        self._saved_steps = state.steps
        self._wall_s_before = state.wall_s
        self._started_s = time.monotonic()

    def on_rollout_start(self, model: "OnPolicyAlgorithm") -> None:
        """Save the run if due."""
        self._note(model)
        if self.state.steps - self._saved_steps >= self._every_steps:
            self.save(model)

    def on_step(self, model: "OnPolicyAlgorithm", step: Mapping[str, Any]) -> bool:
        """Do nothing, as nothing is learned within a rollout."""
        return True

    def finish(self, model: "OnPolicyAlgorithm") -> Path:
        """Save the run after its last rollout."""
        self._note(model)
        return self.save(model)

    def save(self, model: "OnPolicyAlgorithm") -> Path:
        """Save the learner as of the start of this rollout."""
        path = save_checkpoint(self._folder, checkpoint_name(self.state.steps), model, self.state)
        remove_old_checkpoints(self._folder)
        self._saved_steps = self.state.steps
        return path

    def note_validation(self, model: "OnPolicyAlgorithm", mean_reward: float) -> None:
        """Save the learner as the best if its reward is the best so far."""
        best = self.state.best_reward
        if best is None or mean_reward > best:
            self.state = self.state._replace(best_reward=mean_reward, best_steps=self.state.steps)
            save_checkpoint(self._folder, BEST, model, self.state)

    def _note(self, model: "OnPolicyAlgorithm") -> None:
        wall_s = self._wall_s_before + time.monotonic() - self._started_s
        self.state = self.state._replace(steps=model.num_timesteps, wall_s=wall_s)


class Interruption:
    """Ends the training after Ctrl-C or SIGTERM without losing learned steps.

    Attributes:
        signal_name: Name of the received signal, None before.
    """

    def __init__(self) -> None:
        """Create it without a signal."""
        self.signal_name: str | None = None

    def on_rollout_start(self, model: "OnPolicyAlgorithm") -> None:
        """Do nothing."""

    def on_step(self, model: "OnPolicyAlgorithm", step: Mapping[str, Any]) -> bool:
        """Return whether to continue."""
        return self.signal_name is None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Handle signals until the end of the block; a second signal has its previous effect."""
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def take(number: int, frame: FrameType | None) -> None:
            self.signal_name = signal.Signals(number).name
            print(f"{self.signal_name}: ending after this step", file=sys.stderr)
            for other, handler in before.items():
                signal.signal(other, handler)

        for number in before:
            signal.signal(number, take)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class ProgressBar:
    """Shows steps and the latest rewards on a terminal."""

    def __init__(self, bars: "Progress", total_steps: int) -> None:
        """Add a bar to ``bars``, which needs a field ``detail``."""
        self._bars = bars
        self._task = bars.add_task("training", total=total_steps, detail="")

    def on_rollout_start(self, model: "OnPolicyAlgorithm") -> None:
        """Show the mean reward of the latest episodes."""
        episodes = model.ep_info_buffer
        if episodes:
            mean = sum(episode["r"] for episode in episodes) / len(episodes)
            self._bars.update(self._task, detail=f"reward {mean:.2f}")

    def on_step(self, model: "OnPolicyAlgorithm", step: Mapping[str, Any]) -> bool:
        """Advance the bar."""
        self._bars.update(self._task, completed=model.num_timesteps)
        return True
