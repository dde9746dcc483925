"""Examples of the fuzzer as files, and what must hold for each of them.

There are three kinds of random runs: ``small`` ones with everything in them, ``scarce`` ones as
they are compared with the reference, and ``long`` ones whose passes are mostly steady decode.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.drawn_scenarios import scenarios
from hypothesis import strategies as st
from support.audit import (
    check_arrivals,
    check_nothing_left,
    check_pools,
    check_ranks,
    check_requests,
    differing_tables,
)
from support.cases import BACKENDS, Case, cases
from support.long_decodes import LongDecodes, long_decode_runs
from support.oracle_recording import unrecorded
from support.small_tables import shrink_tables
from support.two_modes import (
    Script,
    advance,
    assert_equal_results,
    assert_equal_runs,
    compare_modes,
)

from aisim_gym.replay import Replay
from aisim_gym.spec import ReplaySpec

FORMAT = "aisim-fuzz/1"


@dataclass(frozen=True)
class Example:
    """A random run.

    Attributes:
        kind: A key of ``KINDS``.
        run: What was drawn.
    """

    kind: str
    run: Any

    def data(self) -> dict[str, Any]:
        """Return what a file says."""
        return {"format": FORMAT, "kind": self.kind, "run": KINDS[self.kind].to_json(self.run)}

    @classmethod
    def read(cls, path: Path) -> "Example":
        """Return the example of a file."""
        data = json.loads(path.read_text(encoding="utf-8"))
        assert data["format"] == FORMAT, path
        return cls(data["kind"], KINDS[data["kind"]].from_json(data["run"]))

    def check(self) -> None:
        """Run it in all the ways that must give the same.

        Raises:
            AssertionError: If a law does not hold.
        """
        check(KINDS[self.kind].script(self.run))


@dataclass(frozen=True)
class Kind:
    """A kind of example: how it is drawn, written, read and run."""

    draw: Callable[[str], st.SearchStrategy[Any]]
    to_json: Callable[[Any], Any]
    from_json: Callable[[Any], Any]
    script: Callable[[Any], Script]


def check(script: Script) -> None:
    """Compare a run with itself: pass by pass, on the smallest tables, and copied on the way."""
    compare_modes(script)
    plain, small = script.replay(fast=True), script.replay(fast=True)
    shrink_tables(small.state)
    copied: Replay | None = None
    while True:
        ours, theirs = advance(small), advance(plain)
        assert ours[1] == theirs[1]
        _check_state(small)
        if copied is not None:
            assert advance(copied)[1] == ours[1]
            assert differing_tables(copied.state, small.state) == []
        if ours[0] is None or theirs[0] is None:
            assert ours[0] is theirs[0]
            break
        assert ours[0].to_dict() == theirs[0].to_dict()
        decision = script.answer(ours[0])
        if decision is None:
            break
        if copied is None and ours[0].tick_ordinal % 3 == 1:
            copied = small.fork()
        try:
            small.apply(decision)
        except OverflowError:  # a target that no run accepts
            break
        plain.apply(decision)
        if copied is not None:
            copied.apply(decision)
    assert_equal_runs(small, plain, is_settled=ours[1] is None)
    assert_equal_results(small, plain)
    if small.is_done and not small.hit_time_limit:
        check_nothing_left(small.state)
    for replay in (small, plain):
        replay.state.check_guards()


def _check_state(replay: Replay) -> None:
    check_requests(replay.state)
    check_arrivals(replay.state)
    check_ranks(replay.state)
    check_pools(replay.state)


def _case_json(case: Case) -> dict[str, Any]:
    return {
        "spec": json.loads(case.spec.to_json()),
        "arrivals": case.arrivals,
        "ticks": case.ticks,
        "sessions": case.sessions,
        "is_delta": case.is_delta,
    }


def _case_of(data: Mapping[str, Any]) -> Case:
    return Case(
        ReplaySpec.from_data(data["spec"]),
        tuple((at_ms, i, o, tuple(ids)) for at_ms, i, o, ids in data["arrivals"]),
        tuple((at_ms, prefill, decode) for at_ms, prefill, decode in data["ticks"]),
        tuple(data["sessions"]),
        data["is_delta"],
    )


def _long_json(run: LongDecodes) -> dict[str, Any]:
    return {
        "spec": json.loads(run.spec.to_json()),
        "arrivals": run.arrivals,
        "trace_block_size": run.trace_block_size,
        "tick_ms": run.tick_ms,
        "targets": run.targets,
    }


def _long_of(data: Mapping[str, Any]) -> LongDecodes:
    return LongDecodes(
        ReplaySpec.from_data(data["spec"]),
        tuple((at_ms, i, o, tuple(ids)) for at_ms, i, o, ids in data["arrivals"]),
        data["trace_block_size"],
        data["tick_ms"],
        tuple((prefill, decode) for prefill, decode in data["targets"]),
    )


def _same(run: Any) -> Any:
    return run


KINDS: Mapping[str, Kind] = {
    "small": Kind(
        lambda backend: cases(limited=True, backends=(backend,)),
        _case_json,
        _case_of,
        Script.of_case,
    ),
    "scarce": Kind(
        scenarios, _same, _same, lambda scenario: Script.of_golden(unrecorded(scenario))
    ),
    "long": Kind(long_decode_runs, _long_json, _long_of, LongDecodes.script),
}


def examples(kind: str, backend: str) -> st.SearchStrategy[Example]:
    """Return the strategy of a kind for one backend."""
    assert backend in BACKENDS
    return KINDS[kind].draw(backend).map(lambda run: Example(kind, run))
