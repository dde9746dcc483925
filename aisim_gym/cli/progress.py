"""Notes and progress bars on stderr for long operations."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from aisim_gym.replay import Progress as ReplayProgress


class Narrator:
    """Reports progress; a context manager that owns the progress bars.

    Notes are lines. Bars appear on terminals only, below the notes, and vanish at the end. Other
    output to stderr also appears above the bars.
    """

    def __init__(self) -> None:
        """Create a narrator for the current stderr."""
        self._console = Console(stderr=True, highlight=False)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> Self:
        """Start to show bars."""
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the bars."""
        self._bars.stop()

    def note(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False, soft_wrap=True)

    def follow(self, description: str) -> Callable[[ReplayProgress], None]:
        """Start a bar for a run and return its update function."""
        self.clear()
        task = self._bars.add_task(description, total=None, detail="")

        def update(progress: ReplayProgress) -> None:
            self._bars.update(
                task,
                completed=progress.arrived,
                total=progress.total,
                detail=f"{progress.arrived}/{progress.total} requests, "
                f"{progress.now_ms / 1000.0:.0f} s simulated",
            )

        return update

    def wait(self, description: str) -> None:
        """Start a bar for an operation of unknown length."""
        self.clear()
        self._bars.add_task(description, total=None, detail="")

    def clear(self) -> None:
        """Remove the bars of finished operations."""
        for task_id in self._bars.task_ids:
            self._bars.remove_task(task_id)
