"""Sections ``scenarios`` and ``mooncake``: runs by the reference and by us, alternating."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

from aisim_gym.bench.alternation import alternate
from aisim_gym.bench.bench_case import BenchCase, TimedRun, read_scenarios
from aisim_gym.bench.bench_options import BenchOptions
from aisim_gym.bench.measurement import REFERENCE, Measurement, RatioKind, Skipped, Target
from aisim_gym.bench.our_run import run_ours

PASS_BY_PASS = "pass by pass"
NO_REFERENCE = "no reference: name an interpreter that has it with --reference"

SHORT_REQUESTS = 6_000
"""Largest scenario of a short run."""

EACH_SCENARIO = Target(8.0, is_floor=True, of_ratio=True)
ALL_SCENARIOS = Target(20.0, is_floor=True)
MOONCAKE = Target(15.0, is_floor=True, of_ratio=True)


def measure_scenarios(options: BenchOptions) -> Iterator[Measurement | Skipped]:
    """Yield the recorded scenarios, each against the reference and pass by pass."""
    ratios = []
    cases = read_scenarios()
    if options.is_short:
        cases = [case for case in cases if len(case.requests) <= SHORT_REQUESTS]
    for case in cases:
        for found in measure_case(case, options, EACH_SCENARIO):
            yield found
            if isinstance(found, Measurement) and found.other_name == REFERENCE:
                ratios.append(found.ratio or 0.0)
    if options.reference is None:
        yield Skipped(REFERENCE, NO_REFERENCE)
    else:
        yield Measurement(
            f"median ratio of {len(cases)} scenarios",
            "x",
            (median(ratios),),
            target=ALL_SCENARIOS,
        )


def measure_mooncake(options: BenchOptions) -> Iterator[Measurement | Skipped]:
    """Yield the Mooncake conversation trace on eight aggregated workers, a tick each 5 s."""
    if options.mooncake is None:
        yield Skipped("mooncake", "no trace: name mooncake_conversation.jsonl.gz with --mooncake")
        return
    options.tell(f"reading {options.mooncake}")
    case = BenchCase.of_mooncake(options.mooncake)
    yield from measure_case(case, options, MOONCAKE)
    if options.reference is None:
        yield Skipped(REFERENCE, NO_REFERENCE)


def measure_case(case: BenchCase, options: BenchOptions, target: Target) -> Iterator[Measurement]:
    """Yield a case against the reference (or alone), and against our run pass by pass.

    Every run's summary is compared with the recorded one, or else with that of our first run.

    Raises:
        WrongResultError: If a summary differs.
    """
    runs: dict[str, Callable[[], TimedRun]] = {"ours": partial(run_ours, case)}
    if options.reference is not None:
        runs[REFERENCE] = partial(options.reference.run, case)
    runs[PASS_BY_PASS] = partial(run_ours, case, pass_by_pass=True)
    options.tell(case.name)
    warm_up = alternate(runs, 1)  # loads code and files
    results = alternate(runs, options.repeats)
    expected = case.summary or warm_up["ours"][0].summary
    for who, timed in results.items():
        for run in (*warm_up[who], *timed):
            case.check(who, run.summary, expected)
    ours = _times_ms(results["ours"])
    others = {name: _times_ms(results[name]) for name in runs if name != "ours"}
    details = _details([run for who in results if who != PASS_BY_PASS for run in results[who]])
    for other, times_ms in others.items():
        yield Measurement(
            case.name,
            "ms",
            ours,
            times_ms,
            other,
            RatioKind.SPEED,
            target if other == REFERENCE else None,
            details,
        )
        details = {}  # report details once


def _times_ms(runs: Sequence[TimedRun]) -> tuple[float, ...]:
    return tuple(1000.0 * run.seconds for run in runs)


def _details(runs: Sequence[TimedRun]) -> dict[str, float]:
    """Return the medians of the other times of runs."""
    names = dict.fromkeys(name for run in runs for name in run.details)
    return {
        f"{name}, ms": median(run.details[name] for run in runs if name in run.details)
        for name in names
    }
