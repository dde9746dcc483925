"""When requests of generated traffic arrive: arrival processes and their rates.

The formulas are written out in docs/workloads.md. Rates are requests per second. A process with a
``cv`` is a renewal process whose clock runs at the rate: a CV of 1 is a Poisson process, smaller is
more regular, larger is burstier (traffic-data.md §4, time change).
"""

import itertools
import math
from typing import Annotated, Literal, Self

from annotated_types import Ge, Gt
from pydantic import Field, model_validator

from aisim_gym.number_text import number_text
from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.normal_distribution import normal_cdf
from aisim_gym.spec.refusals import MisfitError
from aisim_gym.spec.scalars import F64, Count, RustType

GapFamily = Literal["gamma", "weibull"]
"""Distribution of the gaps of a renewal process."""

MAX_CLIENTS = 10_000
"""Maximum number of clients of a workload; each has its own random stream."""

_NonNegative = Annotated[F64, Ge(0)]
_Positive = Annotated[F64, Gt(0)]


class _TimeChanged(SpecModel):
    """A gamma renewal process whose clock runs at a given rate."""

    cv: F64 = Field(
        default=1.0,
        ge=0.01,
        le=100,
        description="CV of the gaps at constant rate: 1 = Poisson, 0.01..100",
    )


class PoissonArrivals(SpecModel):
    """Independent arrivals at a constant rate: CV 1, IDC 1 over every window."""

    kind: Literal["poisson"] = Field(default="poisson", description="Which process")
    rate_rps: F64 = Field(gt=0, description="Rate, requests/s, > 0")


class RenewalArrivals(_TimeChanged):
    """Independent gaps of one distribution; over long windows the IDC is cv squared."""

    kind: Literal["renewal"] = Field(default="renewal", description="Which process")
    rate_rps: F64 = Field(gt=0, description="Rate, requests/s, > 0")
    family: GapFamily = Field(default="gamma", description="Distribution of the gaps")


class MmppArrivals(SpecModel):
    """A Poisson process whose rate jumps between states (Markov-modulated)."""

    kind: Literal["mmpp"] = Field(default="mmpp", description="Which process")
    rates_rps: tuple[_NonNegative, ...] = Field(
        min_length=2, description="Rate in each state, requests/s, >= 0"
    )
    switch_per_s: tuple[tuple[_NonNegative, ...], ...] = Field(
        min_length=2,
        description="Row i, column j: switches from state i to j per second in i, >= 0; 0 if i = j",
    )

    @model_validator(mode="after")
    def _check_states(self) -> Self:
        size = len(self.rates_rps)
        shape = [len(row) for row in self.switch_per_s]
        if shape != [size] * size:
            raise MisfitError(
                "switch_per_s",
                f"got rows of {shape} numbers, allowed: {size} rows of {size}, as many as "
                "rates_rps has states",
            )
        if max(self.rates_rps) == 0.0:
            raise MisfitError("rates_rps", "got 0 in every state, allowed: one rate above 0")
        for state, row in enumerate(self.switch_per_s):
            if row[state] != 0.0:
                raise MisfitError(
                    f"switch_per_s.{state}.{state}",
                    f"got {number_text(row[state])}, allowed: 0 (a state does not switch to "
                    "itself)",
                )
            if sum(row) > 100.0:
                raise MisfitError(
                    f"switch_per_s.{state}",
                    f"got {number_text(sum(row))} switches per second in all, allowed: at most 100",
                )
        for first, last in itertools.permutations(range(size), 2):
            if not self._can_reach(first, last):
                raise MisfitError(
                    "switch_per_s",
                    f"state {last} cannot be reached from state {first}, allowed: switches that "
                    "lead from every state to every other",
                )
        return self

    def _can_reach(self, first: int, last: int) -> bool:
        reached, to_visit = {first}, [first]
        while to_visit:
            row = self.switch_per_s[to_visit.pop()]
            found = {state for state, rate in enumerate(row) if rate > 0.0} - reached
            reached |= found
            to_visit += found
        return last in reached


class ClippedLognormal(SpecModel):
    """A log-normal distribution clipped to bounds."""

    median: F64 = Field(gt=0, description="Median before clipping, > 0")
    sigma: F64 = Field(ge=0, le=10, description="Standard deviation of the logarithm, 0..10")
    low: F64 = Field(default=0.0, ge=0, description="Smallest value, >= 0")
    high: F64 = Field(gt=0, description="Largest value, > 0")

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.high < self.low:
            raise MisfitError(
                "high",
                f"high must be at least low, got {number_text(self.high)} and "
                f"{number_text(self.low)}",
            )
        return self

    def scaled(self, factor: float) -> Self:
        """Return the distribution of ``factor`` times the variable."""
        changes = {name: factor * getattr(self, name) for name in ("median", "low", "high")}
        return self.model_copy(update=changes)

    @property
    def mean(self) -> float:
        """Mean after clipping, in closed form."""
        mu, sigma = math.log(self.median), self.sigma
        if sigma == 0.0:
            return min(max(self.median, self.low), self.high)
        low = (math.log(self.low) - mu) / sigma if self.low > 0.0 else -math.inf
        high = (math.log(self.high) - mu) / sigma
        between = normal_cdf(high - sigma) - normal_cdf(low - sigma)
        return (
            self.low * normal_cdf(low)
            + self.median * math.exp(sigma * sigma / 2.0) * between
            + self.high * normal_cdf(-high)
        )


class OnOffArrivals(SpecModel):
    """Alternating bursts and silences; every burst draws its own rate.

    The first request arrives at the start of the burst, the others after gamma-distributed gaps.
    """

    kind: Literal["on-off"] = Field(default="on-off", description="Which process")
    on_s: ClippedLognormal = Field(description="Length of a burst, seconds")
    off_s: ClippedLognormal = Field(description="Silence between two bursts, seconds")
    burst_rps: ClippedLognormal = Field(description="Rate in a burst, requests/s")
    rate_factor: F64 = Field(default=1.0, gt=0, description="Multiplies burst_rps, > 0")
    cv: F64 = Field(default=1.0, ge=0.01, le=100, description="CV of gaps in a burst, 0.01..100")

    @model_validator(mode="after")
    def _check_cycle(self) -> Self:
        cycle_s = self.on_s.mean + self.off_s.mean
        if cycle_s < 0.1:
            raise MisfitError(
                "on_s",
                f"burst and silence last {number_text(cycle_s)} s on average, allowed: at least "
                "0.1 s together",
            )
        return self


class WanderingArrivals(_TimeChanged):
    """A Cox process whose log rate is an Ornstein-Uhlenbeck process."""

    kind: Literal["wandering"] = Field(default="wandering", description="Which process")
    mean_rps: F64 = Field(gt=0, description="Mean rate, requests/s, > 0")
    sigma: F64 = Field(ge=0, le=5, description="Standard deviation of the log rate, 0..5")
    tau_s: F64 = Field(ge=0.1, le=1e9, description="Time constant, seconds, 0.1..1000000000")


class Harmonic(SpecModel):
    """One wave of a day: ``amplitude * cos(2 pi k (hour - peak_h) / 24)``, k by its position."""

    amplitude: F64 = Field(ge=0, le=5, description="Of the log rate, 0..5")
    peak_h: F64 = Field(ge=0, le=24, description="Clock hour of a peak, 0..24")


TEXTBOOK_DAY = (Harmonic(amplitude=0.5, peak_h=15.0), Harmonic(amplitude=0.15, peak_h=11.0))
"""A typical day: peak near 13 h at 1.56 times the mean, trough near 4 h (traffic-data.md §4)."""


class DiurnalArrivals(_TimeChanged):
    """A day: waves of the log rate, times slow noise, times a level for each day."""

    kind: Literal["diurnal"] = Field(default="diurnal", description="Which process")
    mean_rps: F64 = Field(gt=0, description="Mean rate over a day, requests/s, > 0")
    day_s: F64 = Field(
        default=86_400.0,
        ge=60,
        le=1e8,
        description="Length of a day, seconds, 60..100000000; a short day is a day in fast motion",
    )
    start_h: F64 = Field(default=0.0, ge=0, le=24, description="Clock hour at the start, 0..24")
    harmonics: tuple[Harmonic, ...] = Field(
        default=TEXTBOOK_DAY, description="Waves with 1, 2, 3, … periods a day"
    )
    noise_sigma: F64 = Field(
        default=0.0, ge=0, le=5, description="Standard deviation of the log rate's noise, 0..5"
    )
    noise_tau_h: F64 = Field(
        default=0.8, ge=0.001, le=1e5, description="Its time constant, clock hours, 0.001..100000"
    )
    day_sigma: F64 = Field(
        default=0.0, ge=0, le=5, description="Standard deviation of a day's log level, 0..5"
    )

    @model_validator(mode="after")
    def _check_noise(self) -> Self:
        if self.noise_tau_s < 0.1:
            raise MisfitError(
                "noise_tau_h",
                f"got {number_text(self.noise_tau_h)} h of a day of {number_text(self.day_s)} s, "
                f"which is {self.noise_tau_s:.3g} s, allowed: at least 0.1 s",
            )
        return self

    @property
    def noise_tau_s(self) -> float:
        """Time constant of the noise in seconds, which scales with the length of the day."""
        return self.noise_tau_h * self.day_s / 24.0


class RampArrivals(_TimeChanged):
    """A constant rate, a straight line to another one, and back if ``hold_s`` is given."""

    kind: Literal["ramp"] = Field(default="ramp", description="Which process")
    from_rps: F64 = Field(ge=0, description="Rate before the ramp, requests/s, >= 0")
    to_rps: F64 = Field(ge=0, description="Rate after the ramp, requests/s, >= 0")
    at_s: F64 = Field(ge=0, description="Start of the ramp, seconds, >= 0")
    ramp_s: F64 = Field(gt=0, description="Length of the ramp, seconds, > 0")
    hold_s: F64 | None = Field(
        default=None, ge=0, description="Time at to_rps until it ramps back, seconds; null = stay"
    )

    @model_validator(mode="after")
    def _check_rates(self) -> Self:
        if self.from_rps == self.to_rps == 0.0:
            raise MisfitError("to_rps", "got 0 for from_rps and to_rps, allowed: one above 0")
        return self


class FlashCrowdArrivals(_TimeChanged):
    """A constant rate and one crowd that rises fast, stays and decays slowly."""

    kind: Literal["flash-crowd"] = Field(default="flash-crowd", description="Which process")
    base_rps: F64 = Field(gt=0, description="Rate without the crowd, requests/s, > 0")
    factor: F64 = Field(default=3.0, gt=0, description="Rate in the crowd over base_rps, > 0")
    at_s: F64 = Field(ge=0, description="Start of the crowd, seconds, >= 0")
    rise_s: F64 = Field(default=15.0, ge=0, description="Time constant of the rise, s; 0 = a step")
    hold_s: F64 = Field(default=120.0, gt=0, description="From the start to the decay, s, > 0")
    decay_s: F64 = Field(default=300.0, ge=0, description="Time constant of the decay, s; 0 = step")


class PiecewiseArrivals(_TimeChanged):
    """A piecewise constant rate."""

    kind: Literal["piecewise"] = Field(default="piecewise", description="Which process")
    times_s: tuple[_NonNegative, ...] = Field(
        min_length=1, description="Start of each rate, seconds, ascending, the first 0"
    )
    rates_rps: tuple[_NonNegative, ...] = Field(
        min_length=1, description="Rate from each time on, requests/s, >= 0"
    )

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        if len(self.times_s) != len(self.rates_rps):
            raise MisfitError(
                "rates_rps",
                f"got {len(self.rates_rps)} rates for {len(self.times_s)} times_s, allowed: as "
                "many",
            )
        if self.times_s[0] != 0.0:
            raise MisfitError("times_s.0", f"got {number_text(self.times_s[0])}, allowed: 0")
        for index, (before, time_s) in enumerate(itertools.pairwise(self.times_s), start=1):
            if time_s <= before:
                raise MisfitError(
                    f"times_s.{index}",
                    f"got {number_text(time_s)} after {number_text(before)}, allowed: ascending "
                    "times",
                )
        if max(self.rates_rps) == 0.0:
            raise MisfitError("rates_rps", "got 0 at every time, allowed: one rate above 0")
        return self


AnyRate = Annotated[
    PoissonArrivals
    | WanderingArrivals
    | DiurnalArrivals
    | RampArrivals
    | FlashCrowdArrivals
    | PiecewiseArrivals
    | MmppArrivals,
    Field(discriminator="kind"),
    RustType("a table with `kind`", "`poisson`, `diurnal`, `ramp`, …"),
]


class ClientsArrivals(SpecModel):
    """Many clients, each with its own renewal process, that share one rate.

    Client c = 1, 2, … has a share proportional to ``(c + zipf_shift) ** -zipf`` and a burstiness
    drawn from a log-normal distribution. A few large clients cause the bursts; the sum of many
    small ones is close to a Poisson process (traffic-data.md §1, ServeGen).
    """

    kind: Literal["clients"] = Field(default="clients", description="Which process")
    rate: AnyRate = Field(description="Rate of all clients together; its cv must be 1")
    clients: Count = Field(ge=1, le=MAX_CLIENTS, description="Number of clients, 1..10000")
    zipf: F64 = Field(ge=0, le=20, description="Exponent of the shares, 0..20")
    zipf_shift: F64 = Field(default=0.0, ge=0, description="Shift of the client index, >= 0")
    cv_median: F64 = Field(
        default=1.0, ge=0.01, le=100, description="Median CV of the gaps of a client, 0.01..100"
    )
    cv_sigma: F64 = Field(default=0.0, ge=0, le=5, description="Spread of the log CV, 0..5")

    @model_validator(mode="after")
    def _check_rate(self) -> Self:
        cv = getattr(self.rate, "cv", 1.0)
        if cv != 1.0:
            raise MisfitError(
                "rate.cv",
                f"got {number_text(cv)}, allowed: 1 (the clients have cv_median and cv_sigma)",
            )
        return self


AnyArrivals = Annotated[
    PoissonArrivals
    | RenewalArrivals
    | MmppArrivals
    | OnOffArrivals
    | WanderingArrivals
    | DiurnalArrivals
    | RampArrivals
    | FlashCrowdArrivals
    | PiecewiseArrivals
    | ClientsArrivals,
    Field(discriminator="kind"),
    RustType("a table with `kind`", "`poisson`, `diurnal`, `clients`, …"),
]
