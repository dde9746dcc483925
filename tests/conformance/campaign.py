"""Many random runs against the reference, with a log of what they were: ``make differential``.

Writes ``log.json`` and, for each batch of scenarios in which something differs, a golden file with
the smallest difference that Hypothesis finds.
"""

import argparse
import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

from conformance.drawn_scenarios import BACKENDS, Scenario, scenarios
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from support.oracle import VERSION, Oracle, why_no_oracle
from support.oracle_comparison import Differential, OracleComparison

BATCH = 250


class Campaign:
    """Compares batches of scenarios and counts.

    Attributes:
        counts: How many scenarios of each backend were what.
        endings: How often runs ended with which error.
        differences: What differed, and the file that shows it.
    """

    def __init__(self, oracle: Oracle, folder: Path) -> None:
        """Write into ``folder``."""
        self.folder = folder
        self.counts: dict[str, Counter[str]] = {backend: Counter() for backend in BACKENDS}
        self.endings: Counter[str] = Counter()
        self.differences: list[dict[str, str]] = []
        self._differential = Differential(oracle, folder)
        self._seen: set[str] = set()

    def run_batch(self, backend: str, num_scenarios: int, seed: int) -> None:
        """Compare scenarios until one differs; that one is shrunk and written.

        Repetitions among them count once.
        """
        smallest: OracleComparison | None = None

        def compare(scenario: Scenario) -> None:
            nonlocal smallest
            text = json.dumps(scenario)
            if smallest is None and text in self._seen:
                return
            self._seen.add(text)
            comparison = self._differential.compare(scenario)
            if comparison.difference is not None:
                smallest = comparison
                raise AssertionError(comparison.difference)
            if smallest is None:
                self._count(backend, comparison)

        search = settings(
            max_examples=num_scenarios,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
        try:
            seeded(seed)(search(given(scenarios(backend))(compare)))()
        except AssertionError:
            if smallest is None:
                raise
            self._keep(backend, seed, smallest)

    def _keep(self, backend: str, seed: int, comparison: OracleComparison) -> None:
        folder = self.folder / f"{backend}-{seed}"
        folder.mkdir(exist_ok=True)
        path = comparison.write(folder)
        self.counts[backend]["different"] += 1
        self.differences.append({"difference": str(comparison.difference), "file": str(path)})
        print(f"DIFFERENT {path}: {comparison.difference}", flush=True)

    def _count(self, backend: str, comparison: OracleComparison) -> None:
        error = comparison.recording.get("error")
        if comparison.failure is not None:
            ending = f"{type(comparison.failure).__name__}, we raise: {comparison.run.exception}"
        elif error is not None:
            ending = f"{error['type']}: {error['message']}"
        else:
            ending = "results"
        self.endings[re.sub(r"\(.*|\d[\d.e+-]*", "#", ending)] += 1
        self.counts[backend].update(_traits(comparison))


def _traits(comparison: OracleComparison) -> Counter[str]:
    """Return what a scenario counts for, and the sizes of its run."""
    recording = comparison.recording
    scenario, records = recording["scenario"], recording.get("per_request", {})
    topology, options = scenario["topology"], scenario["replay"]
    launches = list(scenario["engine_overrides"].values())
    workers = [count for name, count in topology.items() if name != "kind"]
    operations = recording.get("lifecycle_operations") or []
    is_scaled = any(operation["cause"] == "planner_scale" for operation in operations)
    traits = {
        "agree": True,
        "agree on an error": recording.get("error") is not None,
        "the reference gives no answer, we raise": comparison.failure is not None,
        "disaggregated": topology["kind"] == "disagg",
        "scaled": is_scaled,
        "several workers per pool and scaled": is_scaled and min(workers) > 1,
        "dp_size > 1": any(launch["dp_size"] > 1 for launch in launches),
        "drafting": any(launch["engine"].get("aic_nextn") for launch in launches),
        "sessions": any(turn for turn in records.get("turn_index", ())),
        "closed loop": "replay_concurrency" in options,
        "mooncake-delta": options.get("trace_format") == "mooncake-delta",
        "telemetry": "capture_telemetry" in options,
        "time limit": "max_sim_time_ms" in options,
        "with readmissions": any(records.get("readmission_count", ())),
        "with reuse": any(records.get("reused_input_tokens", ())),
    }
    return Counter(
        {
            **{name: int(bool(value)) for name, value in traits.items()},
            "requests": len(scenario["workload"]["rows"]),
            "snapshots": len(recording["snapshots"]),
            "lifecycle operations": len(operations),
            "telemetry samples": len((recording.get("telemetry") or {}).get("samples", ())),
            **{
                f"requests {status}": count
                for status, count in Counter(records.get("terminal_status", ())).items()
            },
        }
    )


def main() -> None:
    """Run the campaign that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=800, help="scenarios per backend")
    parser.add_argument("--seed", type=int, default=0, help="other seeds, other scenarios")
    parser.add_argument("--backend", choices=BACKENDS, action="append", help="default: all")
    parser.add_argument("--out", type=Path, default=Path("runs/differential"))
    arguments = parser.parse_args()
    if reason := why_no_oracle():
        parser.exit(2, f"{reason}\n")
    arguments.out.mkdir(parents=True, exist_ok=True)
    started_s = time.monotonic()
    with Oracle() as oracle:
        campaign = Campaign(oracle, arguments.out)
        for backend in arguments.backend or BACKENDS:
            for first in range(0, arguments.examples, BATCH):
                size = min(BATCH, arguments.examples - first)
                campaign.run_batch(backend, size, arguments.seed + first)
                print(f"{backend}: {first + size} of {arguments.examples}", flush=True)
    log: dict[str, Any] = {
        "reference": f"ai-dynamo-runtime {VERSION}",
        "seed": arguments.seed,
        "wall_s": round(time.monotonic() - started_s),
        "total": sum(campaign.counts.values(), Counter()),
        "by_backend": campaign.counts,
        "endings": dict(campaign.endings.most_common()),
        "differences": campaign.differences,
    }
    text = json.dumps(log, indent=2) + "\n"
    (arguments.out / "log.json").write_text(text)
    print(text)
    parser.exit(1 if campaign.differences else 0)


if __name__ == "__main__":
    main()
