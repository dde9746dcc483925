"""The sections of the benchmark, by name, in the order in which they run."""

from aisim_gym.bench.against_reference import measure_mooncake, measure_scenarios
from aisim_gym.bench.batch import measure_batch
from aisim_gym.bench.bench_options import Section
from aisim_gym.bench.environments import measure_env
from aisim_gym.bench.growth import measure_fleet, measure_requests
from aisim_gym.bench.memory import measure_memory
from aisim_gym.bench.start_up import measure_start
from aisim_gym.spec.wording import closest

SECTIONS: dict[str, Section] = {
    "scenarios": measure_scenarios,
    "mooncake": measure_mooncake,
    "env": measure_env,
    "batch": measure_batch,
    "start": measure_start,
    "memory": measure_memory,
    "fleet": measure_fleet,
    "requests": measure_requests,
}


def choose_sections(names: list[str]) -> dict[str, Section]:
    """Return the sections of these names, or all if none are given.

    Raises:
        ValueError: For an unknown name; lists the known ones.
    """
    for name in names:
        if name not in SECTIONS:
            raise ValueError(
                f"unknown section {name!r}, expected of {', '.join(SECTIONS)}"
                f"{closest(name, SECTIONS)}"
            )
    return {name: SECTIONS[name] for name in SECTIONS if not names or name in names}
