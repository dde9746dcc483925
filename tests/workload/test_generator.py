"""The chat-wave generator."""

import json
import subprocess
import sys

import numpy as np
import pytest

from aisim_gym.errors import WorkloadError
from aisim_gym.spec.generator import GeneratorSpec
from aisim_gym.workload import (
    RequestTable,
    generate_requests,
)
from aisim_gym.workload.generator import chat_wave_rate_rps


def fingerprint(table: RequestTable) -> list[object]:
    return [
        len(table),
        table.arrival_ms[:3].tolist(),
        int(table.input_tokens.sum()),
        int(table.output_tokens.sum()),
    ]


def test_same_seed_gives_the_same_requests_in_another_process() -> None:
    code = (
        "import json; from aisim_gym.spec.generator import GeneratorSpec;"
        "from aisim_gym.workload import generate_requests as g; t = g(GeneratorSpec(seed=5));"
        "print(json.dumps([len(t), t.arrival_ms[:3].tolist(), int(t.input_tokens.sum()),"
        " int(t.output_tokens.sum())]))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(other.stdout) == fingerprint(generate_requests(GeneratorSpec(seed=5)))


def test_seeds_differ_and_global_random_state_is_left_alone() -> None:
    before = np.random.get_state()  # noqa: NPY002
    first, second = (generate_requests(GeneratorSpec(seed=seed)) for seed in (1, 2))
    after = np.random.get_state()  # noqa: NPY002
    assert str(before) == str(after)
    assert first.arrival_ms[0] != second.arrival_ms[0]


def test_mean_lengths_do_not_change_the_arrivals() -> None:
    first = generate_requests(GeneratorSpec(mean_input_tokens=100))
    second = generate_requests(GeneratorSpec(mean_input_tokens=5000))
    assert np.array_equal(first.arrival_ms, second.arrival_ms)


def test_rate_runs_from_base_to_peak_and_is_raised_in_the_spike() -> None:
    spec = GeneratorSpec(
        base_rate_rps=2, peak_rate_rps=14, period_s=900, spike_at_s=1050, spike_duration_s=60
    )
    at_s = np.array([0.0, 225.0, 450.0, 900.0, 1350.0])
    assert chat_wave_rate_rps(spec, at_s) == pytest.approx([2.0, 8.0, 14.0, 2.0, 14.0])
    border_s = np.array([1049.999, 1050.0, 1109.999, 1110.0])
    calm = spec.model_copy(update={"spike_at_s": None})
    factors = chat_wave_rate_rps(spec, border_s) / chat_wave_rate_rps(calm, border_s)
    assert factors.tolist() == pytest.approx([1.0, spec.spike_factor, spec.spike_factor, 1.0])


def test_counts_follow_the_rate() -> None:
    spec = GeneratorSpec(duration_s=18_000, base_rate_rps=5, peak_rate_rps=50, spike_at_s=9_000)
    arrival_s = generate_requests(spec).arrival_ms / 1000.0
    edges = np.linspace(0.0, 18_000.0, 41)
    counts = np.histogram(arrival_s, edges)[0]
    grid = np.arange(0.0, 18_000.0, 0.5) + 0.25
    expected = chat_wave_rate_rps(spec, grid).reshape(40, -1).sum(axis=1) * 0.5
    # Poisson counts: four standard deviations, and a sum of squares near 40.
    deviations = (counts - expected) / np.sqrt(expected)
    assert np.abs(deviations).max() < 4.0
    assert 15.0 < (deviations**2).sum() < 75.0


def test_gaps_at_constant_rate_are_exponential() -> None:
    spec = GeneratorSpec(duration_s=4000, base_rate_rps=10, peak_rate_rps=10, spike_at_s=None)
    gaps_ms = np.diff(generate_requests(spec).arrival_ms)
    assert gaps_ms.mean() == pytest.approx(100.0, rel=0.02)
    assert gaps_ms.std() == pytest.approx(100.0, rel=0.03)


@pytest.mark.parametrize(("mean_input", "mean_output"), [(1000, 200), (12_000, 340), (60, 20)])
def test_lengths_have_the_asked_means_and_the_spread_of_chat(
    mean_input: int, mean_output: int
) -> None:
    spec = GeneratorSpec(
        duration_s=10_000, mean_input_tokens=mean_input, mean_output_tokens=mean_output
    )
    table = generate_requests(spec)
    for tokens, mean, longest in (
        (table.input_tokens, mean_input, 12),
        (table.output_tokens, mean_output, 8),
    ):
        assert tokens.mean() == pytest.approx(mean, rel=0.03)
        assert tokens.min() >= 1
        assert tokens.max() <= longest * mean
        assert 0.6 < tokens.std() / tokens.mean() < 1.3  # Azure conversations: 0.96 and 0.77


def test_lengths_of_one_token_are_possible() -> None:
    table = generate_requests(GeneratorSpec(mean_input_tokens=1, mean_output_tokens=1))
    assert table.input_tokens.min() == 1
    assert table.output_tokens.min() == 1


def test_generator_without_a_single_arrival_is_refused() -> None:
    spec = GeneratorSpec(duration_s=1.0, base_rate_rps=1e-9, peak_rate_rps=1e-9, spike_at_s=None)
    with pytest.raises(WorkloadError, match="no request arrives within duration_s 1 "):
        generate_requests(spec)
