"""Train a policy: ``python experiments/train.py --config experiments/configs/smoke.toml --seed 3``.

``--resume RUN`` continues an interrupted run. README.md in this folder lists the files of a run.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from aisim_gym.errors import AisimError
from aisim_gym.policies.rl import load_config
from aisim_gym.policies.rl.training_run import finish_run, new_run, resumed_run, train


def main(
    config: Annotated[Path | None, typer.Option(help="TOML file of the run.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights, draws and traffic, >= 0.")] = 1,
    resume: Annotated[Path | None, typer.Option(help="Folder of a run to continue.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("runs"),
) -> None:
    """Train a policy and write its run folder."""
    if (config is None) == (resume is None):
        raise ValueError("expected either --config or --resume")
    if config is not None:
        run = new_run(load_config(config), seed, out, source=Path(__file__).parent)
    else:
        assert resume is not None
        run = resumed_run(resume)

    console = Console(stderr=True, highlight=False)
    console.print(f"{run.folder}: {run.config.trained_steps:,} steps", markup=False)
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bars:
        state = train(run, bars)
    if state is None:
        console.print(
            f"Interrupted and saved. Continue: python {sys.argv[0]} --resume {run.folder}",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(130)

    policy = finish_run(run, state)
    for name, value in policy.description.evaluation["metrics"].items():
        print(f"{name:16} {value['mean']:10.3f}  [{value['low']:.3f}, {value['high']:.3f}]")
    print(f"{state.steps:,} steps in {state.wall_s:.0f} s; policy: {run.policy}")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (AisimError, ValueError, ImportError, OSError) as error:
        sys.exit(f"Error: {error}")
