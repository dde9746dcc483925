"""Views of ticks without a run behind them, for objects that look at nothing else."""

from typing import Any, cast

import numpy as np

from aisim_gym.envs import StepOutcome, Targets, TickView
from aisim_gym.envs.step_outcome import NOTHING
from aisim_gym.envs.tick_view import Load


def view_of(
    step: StepOutcome = NOTHING,
    targets: Targets | None = None,
    load: Load = Load(0.0, 0.0, 0.0, 0.0),  # noqa: B008  a tuple
) -> TickView:
    """Return a view at time 0 of an episode of a second."""
    replay = cast(Any, None)
    given = Targets(None, 1) if targets is None else targets
    view = TickView(replay, 0.0, 1000.0, given, step, np.zeros((1, 6)))
    view._load = load
    return view
