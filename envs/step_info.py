"""The ``info`` of a step; the manual of the environments explains its keys."""

from collections.abc import Mapping
from typing import Any

from aisim_gym.envs.episode import Episode

SUCCESS_FRAC = 0.95
"""Minimum share of good requests of a successful episode."""


def step_info(episode: Episode, terms: Mapping[str, float], num_clipped: int) -> dict[str, Any]:
    """Return numbers and a boolean, with the same keys after every step.

    Args:
        episode: Episode after its last step.
        terms: Terms of the reward, empty after a reset.
        num_clipped: Number of clipped entries of the observation.
    """
    step, account = episode.view.step, episode.account
    paid, totals = account.paid, account.totals
    info: dict[str, Any] = {
        "now_s": episode.view.now_ms / 1000.0,
        "duration_s": step.duration_s,
        "gpu_hours": step.gpu_hours,
        "gpu_usd": step.gpu_usd,
        "arrived": step.arrived,
        "completed": step.completed,
        "rejected": step.rejected,
        "good": step.good,
        "violations": step.violations,
        "overdue_s": step.overdue_s,
        "churn": step.churn,
        "action_refused": int(episode.is_refused),
        "is_stuck": int(episode.replay.is_stuck),
        "obs_clipped": num_clipped,
        "total_gpu_hours": paid.gpu_hours,
        "total_gpu_usd": paid.gpu_usd,
        "total_arrived": totals.arrived,
        "total_completed": totals.completed,
        "total_rejected": totals.rejected,
        "total_good": totals.good,
        "is_success": totals.good >= SUCCESS_FRAC * totals.arrived,
    }
    for name, value in terms.items():
        info[f"reward_{name}"] = value
    return info
