"""Compare a trained policy with fixed fleets and planners on held-out episodes.

``python experiments/evaluate.py --policy runs/chat-diurnal-ppo`` takes all training seeds in the
folder, ``--policy runs/chat-diurnal-ppo/seed-1`` one of them; ``--policy`` may be repeated. A
policy bundle also works.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from aisim_gym.errors import AisimError
from aisim_gym.policies.rl import load_policy
from aisim_gym.policies.rl.comparison import (
    advantage_lines,
    comparison_summary,
    comparison_table,
    write_episodes,
)
from aisim_gym.policies.rl.evaluation_run import (
    choose_episodes,
    compare,
    default_folder,
    seeds_in,
)
from aisim_gym.policies.rl.run_manifest import begin_manifest, end_manifest, write_json
from aisim_gym.policies.rl.training_plots import plot_comparison


def main(
    policy: Annotated[
        list[Path], typer.Option(help="Run, bundle, or folder of seeds; repeatable.")
    ],
    split: Annotated[str, typer.Option(help="Set of episodes.")] = "test",
    episodes: Annotated[
        int | None, typer.Option(help="Number of episodes; default: all.", show_default=False)
    ] = None,
    baselines: Annotated[
        str, typer.Option(help="Comma-separated planners; static: every fixed fleet.")
    ] = "static,hpa",
    out: Annotated[
        Path | None,
        typer.Option(help="Default: runs/evaluation/<name>-<split>.", show_default=False),
    ] = None,
) -> None:
    """Evaluate policies and write table, rows, summary and plot."""
    policies = [load_policy(seed) for path in policy for seed in seeds_in(path)]
    chosen = choose_episodes(policies, split, episodes)
    folder = default_folder(policies, split) if out is None else out.expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "policies": [each.description.training for each in policies],
        "split": split,
        "episodes": chosen.model_dump(mode="json"),
        "baselines": baselines.split(","),
    }
    begin_manifest(folder, content, source=Path(__file__).parent)

    errors = Console(stderr=True)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bars:
        task = bars.add_task("")
        comparison = compare(
            policies,
            chosen,
            baselines.split(","),
            lambda what, done, total: bars.update(
                task, description=what, completed=done, total=total
            ),
        )

    name = policies[0].description.training["name"]
    title = f"{name} on {chosen.episodes} {split} episodes"
    console = Console(highlight=False)
    console.print(comparison_table(comparison, title))
    if comparison.fixed:
        for line in advantage_lines(comparison):
            console.print(line, markup=False, soft_wrap=True)
    write_episodes(comparison, folder / "episodes.csv")
    write_json(folder / "summary.json", comparison_summary(comparison))
    picture = plot_comparison(comparison, folder / "plots" / "goodput.png", title)
    end_manifest(folder)
    console.print(f"Written: {folder}, plot {picture}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    try:
        typer.run(main)
    except (AisimError, ValueError, ImportError, OSError) as error:
        sys.exit(f"Error: {error}")
