"""Run random laws on the checked build for some minutes, with fresh seeds: ``make fuzz``.

Every index is checked, every table starts with a row or none, memory behind the tables is guarded,
and a step may take no more rows than it was granted. What fails is kept as a file; so is the run
in which a process dies. Replay it with ``pytest tests/fuzz --found FILE``.
"""

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from fuzz.examples import KINDS, Example, examples
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from support.cases import BACKENDS

CONSOLE = Console(stderr=True)
BATCH = 25


def main() -> int:
    """Return 0 if nothing failed, else 1."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="of all examples; default: fresh")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"))
    parser.add_argument("--worker", type=int, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    seed = secrets.randbits(48) if options.seed is None else options.seed
    options.out.mkdir(parents=True, exist_ok=True)
    if options.worker is not None:
        return work(options.worker, options.jobs, seed, options.minutes * 60.0, options.out)
    return supervise(options.jobs, seed, options.minutes * 60.0, options.out)


def supervise(jobs: int, seed: int, duration_s: float, folder: Path) -> int:
    """Start the workers, show how far they are and collect what they found."""
    print(f"seed {seed} (again: --seed {seed})", flush=True)
    command = [sys.executable, "-m", "fuzz", "--minutes", str(duration_s / 60.0)]
    command += ["--seed", str(seed), "--jobs", str(jobs), "--out", str(folder)]
    for leftover in folder.glob("worker-*"):
        leftover.unlink()
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen([*command, "--worker", str(number)], env=environment)
        for number in range(jobs)
    ]
    started_s = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=CONSOLE) as progress:
            task = progress.add_task("fuzzing", total=duration_s)
            while any(worker.poll() is None for worker in workers):
                time.sleep(0.5)
                progress.update(
                    task,
                    completed=min(duration_s, time.monotonic() - started_s),
                    description=f"{sum(read_counts(folder).values())} examples",
                )
    except KeyboardInterrupt:
        for worker in workers:
            worker.wait()
    for number, worker in enumerate(workers):
        if worker.returncode < 0 and worker.returncode != -signal.SIGINT:
            running = folder / f"worker-{number}.json"
            kept = folder / f"crash-{seed}-{number}.json"
            if running.exists():
                running.rename(kept)
            print(f"worker {number} died of signal {-worker.returncode}; its run: {kept}")
    counts = read_counts(folder)
    for name, count in sorted(counts.items()):
        print(f"{name:20} {count:7} examples")
    print(f"{'all':20} {sum(counts.values()):7} examples, seed {seed}")
    return int(any(worker.returncode != 0 for worker in workers))


def work(number: int, jobs: int, seed: int, duration_s: float, folder: Path) -> int:
    """Draw and check examples until the time is over; return 1 after a failure."""
    running = folder / f"worker-{number}.json"
    counts: Counter[str] = Counter()
    combinations = [(kind, backend) for kind in KINDS for backend in BACKENDS]
    chosen = settings(
        max_examples=BATCH,
        deadline=None,
        database=None,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    has_failed = False
    started_s = time.monotonic()
    batch = number
    try:
        while time.monotonic() - started_s < duration_s:
            kind, backend = combinations[batch % len(combinations)]
            checked = Checked(running)
            law = given(examples(kind, backend))(checked.check)
            try:
                seeded(seed * 1_000_003 + batch)(chosen(law))()
            except Exception as error:
                has_failed = True
                error.__notes__ = []  # the example is in the file
                kept = folder / f"found-{kind}-{backend}-{seed}-{batch}.json"
                if checked.failing:
                    kept.write_text(json.dumps(checked.failing[-1].data()), encoding="utf-8")
                traceback.print_exc(limit=-4)
                print(f"kept: {kept}; again: pytest tests/fuzz --found {kept}", flush=True)
            counts[f"{kind}, {backend}"] += checked.count
            write_counts(folder, number, counts)
            batch += jobs
    except KeyboardInterrupt:
        write_counts(folder, number, counts)
    running.unlink(missing_ok=True)
    return int(has_failed)


class Checked:
    """Checks examples, each written to a file before, and remembers those that fail."""

    def __init__(self, running: Path) -> None:
        self.count = 0
        self.failing: list[Example] = []
        self._running = running

    def check(self, example: Example) -> None:
        """Check an example."""
        self._running.write_text(json.dumps(example.data()), encoding="utf-8")
        self.count += 1
        try:
            example.check()
        except Exception:
            self.failing.append(example)
            raise


def write_counts(folder: Path, number: int, counts: Counter[str]) -> None:
    """Say how many examples of each kind a worker has run."""
    (folder / f"worker-{number}.counts").write_text(json.dumps(counts), encoding="utf-8")


def read_counts(folder: Path) -> Counter[str]:
    """Return what all workers have run."""
    counts: Counter[str] = Counter()
    for path in folder.glob("worker-*.counts"):
        try:
            counts += Counter(json.loads(path.read_text(encoding="utf-8")))
        except ValueError:  # being written
            continue
    return counts


if __name__ == "__main__":
    sys.exit(main())
