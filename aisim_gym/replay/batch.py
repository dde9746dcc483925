"""Run many independent replays to their next ticks in parallel."""

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from types import TracebackType
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aisim_gym.errors import ReplayError
from aisim_gym.fleet.tick import KEEP
from aisim_gym.replay.replay import Replay
from aisim_gym.replay.run import INSTANTS_PER_CALL, Run
from aisim_gym.replay.settle import STATUS_TICK
from aisim_gym.replay.world_loop import (
    IS_COMPILED,
    NO_WORLD,
    NOT_RUN,
    advance_address,
    advance_worlds,
)
from aisim_gym.spec.argument_checks import check_integer
from aisim_gym.spec.fleet import MAX_WORKERS


class ReplayBatch:
    """Run many replays in threads, each with exactly the results of running it alone.

    The compiled loop releases the GIL, so the worlds use as many cores as there are threads. Each
    thread takes the next world when it finishes one, so a slow world does not delay others.

    Example:
        >>> from aisim_gym import Replay, requests_from_arrays
        >>> from aisim_gym.replay.batch import ReplayBatch
        >>> requests = requests_from_arrays([0.0, 5.0], [100, 200], [3, 4])
        >>> replays = [Replay({"fleet": {"kind": "agg"}}, requests, initial_tick_ms=at_ms)
        ...            for at_ms in (1.0, 2.0)]
        >>> with ReplayBatch(replays) as batch:
        ...     batch.advance_to_tick().tolist()
        ...     batch.apply([[-1, 2], [-1, -1]], [3.0, float("inf")])
        ...     batch.advance_to_tick().tolist()
        ...     batch.is_done.tolist()
        [True, True]
        [True, False]
        [False, True]

    Attributes:
        replays: The worlds. They may be read, answered and advanced individually between calls.
    """

    def __init__(self, replays: Sequence[Replay], num_threads: int | None = None) -> None:
        """Create a batch of worlds without running them.

        Args:
            replays: At least one distinct replay, of any fleets and backends.
            num_threads: Number of threads, >= 1; one per core by default.

        Raises:
            TypeError: If an element is not a replay, or the number of threads is not an integer.
            ValueError: If there is no replay, a duplicate, or ``num_threads < 1``.
        """
        _check_replays(replays)
        if num_threads is None:
            num_threads = os.cpu_count() or 1
        elif check_integer("num_threads", num_threads, ">= 1, or None") < 1:
            raise ValueError(f"num_threads: got {num_threads}, expected >= 1, or None")
        self.replays = tuple(replays)
        self._num_threads = min(int(num_threads), len(self.replays))
        self._threads = self._make_threads()

    def __len__(self) -> int:
        """Return the number of worlds."""
        return len(self.replays)

    @property
    def is_done(self) -> NDArray[np.bool_]:
        """Which worlds have ended, shape (worlds,)."""
        return np.array([replay.is_done for replay in self.replays], np.bool_)

    @property
    def is_waiting(self) -> NDArray[np.bool_]:
        """Which worlds wait at a tick for a decision, shape (worlds,)."""
        return np.array([replay.is_waiting for replay in self.replays], np.bool_)

    def apply(self, targets: ArrayLike, next_tick_ms: ArrayLike) -> None:
        """Answer the ticks of all waiting worlds; rows of other worlds are ignored.

        Args:
            targets: Shape (worlds, 2), integers: target number of active + starting workers of the
                prefill pool (ignored by an aggregated fleet) and of the decode pool; -1 keeps a
                pool unchanged.
            next_tick_ms: Shape (worlds,): absolute time of the next tick. A value that is not
                finite or not later than now ends the ticks.

        Raises:
            TypeError: If the targets are not integers or the times not numbers.
            ValueError: If an array has a wrong shape, or a target is not in -1 … 1 000 000; no
                world is changed.
        """
        wanted = _checked("targets", targets, (len(self), 2), "iu", "integers")
        times_ms = _checked("next_tick_ms", next_tick_ms, (len(self),), "iuf", "numbers")
        outside = np.argwhere((wanted < KEEP) | (wanted > MAX_WORKERS))
        if len(outside):
            world, pool = outside[0].tolist()
            raise ValueError(
                f"targets[{world}, {pool}]: got {wanted[world, pool]}, expected {KEEP} (keep) to "
                f"{MAX_WORKERS}"
            )
        answers = zip(self.replays, wanted.tolist(), times_ms.tolist(), strict=True)
        for replay, (prefill, decode), at_ms in answers:
            replay.current_run.answer(prefill, decode, float(at_ms))

    def advance_to_tick(self, worlds: Sequence[int] | None = None) -> NDArray[np.bool_]:
        """Run every world to its next tick, or to its end.

        Telemetry callbacks of the replays are called in the threads of the batch. After an
        interrupt, the next call continues each world where its compiled call ended.

        Args:
            worlds: Indices in :attr:`replays` of the worlds to run; None runs all.

        Returns:
            Which worlds wait for a decision, shape (worlds,).

        Raises:
            ReplayError: If a world fails or already waits for a decision. The error names the first
                such world and has notes on the others; all remaining worlds reach their ticks.
                Exceptions of telemetry callbacks propagate unchanged, with a note.
        """
        started_s = time.perf_counter()
        chosen = range(len(self)) if worlds is None else list(worlds)
        turn = _Turn([self.replays[world].current_run for world in chosen])
        try:
            running = [self._threads.submit(turn.run_some) for _ in range(self._num_threads)]
            for task in running:
                task.result()
        except BaseException:
            turn.stop()
            self._threads.shutdown()  # waits for the worlds in progress
            self._threads = self._make_threads()
            raise
        finally:
            turn.finish((time.perf_counter() - started_s) * self._num_threads)
        if turn.errors:
            raise _first_error({chosen[i]: error for i, error in turn.errors.items()})
        return turn.is_waiting if worlds is None else self.is_waiting

    def replace(self, world: int, replay: Replay) -> None:
        """Replace a world by another replay; the old replay is unchanged.

        Raises:
            TypeError: If it is not a replay.
            ValueError: If it is already another world of the batch.
        """
        replays = [*self.replays]
        replays[world] = replay
        _check_replays(replays)
        self.replays = tuple(replays)

    def close(self) -> None:
        """Stop the threads; the replays are unchanged."""
        self._threads.shutdown()

    def _make_threads(self) -> ThreadPoolExecutor:
        """Return an executor with all threads started; by itself it may start only one."""
        threads = ThreadPoolExecutor(self._num_threads, thread_name_prefix="replay-batch")
        all_started = Barrier(self._num_threads)
        for task in [threads.submit(all_started.wait) for _ in range(self._num_threads)]:
            task.result()
        return threads

    def __getstate__(self) -> dict[str, Any]:
        """Exclude the threads from pickling and copying; a copy starts its own."""
        return {name: value for name, value in vars(self).items() if name != "_threads"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the worlds and start threads."""
        vars(self).update(state)
        self._threads = self._make_threads()

    def __enter__(self) -> Self:
        """Return the batch."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the threads."""
        self.close()


def _check_replays(replays: Sequence[Replay]) -> None:
    if len(replays) == 0:
        raise ValueError("replays: got none, expected at least one")
    seen: dict[int, int] = {}
    for world, replay in enumerate(replays):
        if not isinstance(replay, Replay):
            raise TypeError(f"replays[{world}]: got {replay!r}, expected a Replay")
        first = seen.setdefault(id(replay.state), world)
        if first != world:
            raise ValueError(
                f"replays[{world}]: got the same replay as replays[{first}], expected another "
                "one (replay.fork() makes a copy)"
            )


class _Turn:
    """One run of all worlds to their next ticks, shared by all threads."""

    def __init__(self, runs: Sequence[Run]) -> None:
        worlds = [run.state.world for run in runs]
        self.errors: dict[int, Exception] = {}
        self.is_waiting = np.zeros(len(runs), np.bool_)
        self._runs = runs
        self._worlds = worlds
        self._can_run = [run.can_run for run in runs]
        addresses = [
            world.address if can_run else 0
            for world, can_run in zip(cast(Sequence[Any], worlds), self._can_run, strict=True)
        ]
        functions = [advance_address(world) if IS_COMPILED else 0 for world in worlds]
        self._addresses = np.array(addresses, np.int64)
        self._functions = np.array(functions, np.int64)
        self._statuses = np.full(len(runs), NOT_RUN, np.int64)
        self._next_world = np.zeros(1, np.int64)
        self._lock = Lock()

    def run_some(self) -> None:
        """Take and run worlds until none is left; called in every thread."""
        while (world := self._take() if not IS_COMPILED else self._run_compiled()) != NO_WORLD:
            run, status = self._runs[world], int(self._statuses[world])
            self._statuses[world] = NOT_RUN
            try:
                if status == NOT_RUN:
                    run.advance()
                else:
                    run.go_on(status)
            except Exception as error:
                self.errors[world] = error
            self.is_waiting[world] = run.is_waiting

    def stop(self) -> None:
        """Stop threads from taking more worlds."""
        self._next_world[0] = len(self._runs)

    def finish(self, spent_s: float) -> None:
        """Store the results of the compiled calls in the runs, and divide the threads' time.

        Args:
            spent_s: Real time of all threads together, in seconds.
        """
        # Interpreted runs measure their own time.
        share_s = spent_s / max(1, sum(self._can_run)) if IS_COMPILED else 0.0
        for world, run in enumerate(self._runs):
            if self._statuses[world] == STATUS_TICK:
                run.status = STATUS_TICK
                self.is_waiting[world] = True
            run.wall_s += share_s * self._can_run[world]

    def _run_compiled(self) -> int:
        """Run worlds until one needs Python; return it, or ``NO_WORLD`` at the end."""
        return advance_worlds(
            self._worlds[0],
            self._addresses,
            self._functions,
            self._statuses,
            self._next_world,
            INSTANTS_PER_CALL,
        )

    def _take(self) -> int:
        """Take a world without running it, for interpreted runs."""
        with self._lock:
            world = int(self._next_world[0])
            self._next_world[0] += 1
        return world if world < len(self._runs) else NO_WORLD


def _checked(
    name: str, given: ArrayLike, shape: tuple[int, ...], kinds: str, what: str
) -> NDArray[Any]:
    array = np.asarray(given)
    if array.dtype.kind not in kinds:
        raise TypeError(f"{name}: got {array.dtype}, expected {what}")
    if array.shape != shape:
        raise ValueError(f"{name}: got shape {array.shape}, expected {shape}")
    return array


def _first_error(errors: Mapping[int, Exception]) -> Exception:
    """Return the error of the first failed world, with its index in the message."""
    first, *others = sorted(errors)
    error = errors[first]
    if isinstance(error, ReplayError):
        error = ReplayError(f"world {first}: {error}")
        error.__cause__ = errors[first]
    else:
        error.add_note(f"in world {first}")
    for world in others:
        error.add_note(f"world {world}: {errors[world]}")
    return error
