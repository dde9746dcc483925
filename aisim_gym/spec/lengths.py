"""Prompt and output lengths of generated traffic (traffic-data.md §2, §4)."""

import math
from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from annotated_types import Ge, Gt, Le
from pydantic import Field, model_validator

from aisim_gym.number_text import number_text
from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.normal_distribution import normal_cdf
from aisim_gym.spec.refusals import MisfitError
from aisim_gym.spec.scalars import F64, Count

LONGEST_TOKENS = 2**20
"""Maximum tokens of a generated prompt or output, about five times the longest in public traces."""

SMALLEST_SHARE = 1e-6
"""Minimum probability mass within the bounds; below it, redrawing is pointless."""

TokenCount = Annotated[Count, Ge(1), Le(LONGEST_TOKENS)]
_Positive = Annotated[F64, Gt(0)]
_Sigma = Annotated[F64, Ge(0), Le(10)]


class Mixture(SpecModel):
    """A mixture of log-normal lengths between two bounds.

    A component is chosen by weight. A length is ``median * exp(sigma * Z)``, redrawn from the same
    component until it rounds to ``min_tokens .. max_tokens``.
    """

    weights: tuple[_Positive, ...] = Field(
        min_length=1, description="Weight of each component, > 0; they need not add up to 1"
    )
    medians: tuple[_Positive, ...] = Field(
        min_length=1, description="Median of each component, tokens, > 0"
    )
    sigmas: tuple[_Sigma, ...] = Field(
        min_length=1, description="Standard deviation of the logarithm, 0..10"
    )
    min_tokens: TokenCount = Field(default=1, description="Shortest, tokens, 1..1048576")
    max_tokens: TokenCount = Field(description="Longest, tokens, 1..1048576")

    @model_validator(mode="after")
    def _check_components(self) -> Self:
        count = len(self.weights)
        for name, values in (("medians", self.medians), ("sigmas", self.sigmas)):
            if len(values) != count:
                raise MisfitError(
                    name, f"got {len(values)} {name} for {count} weights, allowed: as many"
                )
        if self.max_tokens < self.min_tokens:
            raise MisfitError(
                "max_tokens",
                f"max_tokens must be at least min_tokens, got {self.max_tokens} and "
                f"{self.min_tokens}",
            )
        for index, (low, high) in enumerate(self.component_bounds()):
            if high - low < SMALLEST_SHARE:
                raise MisfitError(
                    f"medians.{index}",
                    f"got a component with median {number_text(self.medians[index])} and sigma "
                    f"{number_text(self.sigmas[index])}, of which {high - low:.1g} lies in "
                    f"{self.min_tokens} .. {self.max_tokens}, allowed: at least "
                    f"{SMALLEST_SHARE:g}",
                )
        return self

    def component_bounds(self) -> list[tuple[float, float]]:
        """Return the probability of each component below the lower and below the upper bound."""
        low, high = self.min_tokens - 0.5, self.max_tokens + 0.5
        return [
            (share_below(low, median, sigma), share_below(high, median, sigma))
            for median, sigma in zip(self.medians, self.sigmas, strict=True)
        ]

    def share_up_to(self, tokens: float) -> float:
        """Return the probability of a length of at most ``tokens``, before rounding."""
        tokens = min(max(tokens, self.min_tokens - 0.5), self.max_tokens + 0.5)
        parts = zip(self.weights, self.medians, self.sigmas, self.component_bounds(), strict=True)
        shares = (
            weight * (share_below(tokens, median, sigma) - low) / (high - low)
            for weight, median, sigma, (low, high) in parts
        )
        return math.fsum(shares) / math.fsum(self.weights)


def share_below(tokens: float, median: float, sigma: float) -> float:
    """Return the probability of a log-normal length below ``tokens``, > 0."""
    if sigma == 0.0:
        return float(median < tokens)
    return normal_cdf((math.log(tokens) - math.log(median)) / sigma)


class ScaledMixture(NamedTuple):
    """Lengths of a mixture times a factor, rounded, redrawn while above a cap.

    Attributes:
        mixture: The lengths before scaling.
        factor: Multiplies them, > 0.
        cap: Longest, tokens; None for no cap.
    """

    mixture: Mixture
    factor: float = 1.0
    cap: int | None = None

    @property
    def shortest(self) -> int:
        """Shortest length, tokens."""
        return max(1, math.floor((self.mixture.min_tokens - 0.5) * self.factor - 0.5) + 1)

    @property
    def longest(self) -> int:
        """Longest length, tokens."""
        longest = max(1, math.ceil((self.mixture.max_tokens + 0.5) * self.factor - 0.5))
        return longest if self.cap is None else min(longest, self.cap)

    def refusal(self) -> str:
        """Return why no lengths can be drawn; empty if they can."""
        if self.longest > LONGEST_TOKENS:
            return f"got lengths up to {self.longest}, allowed: at most {LONGEST_TOKENS}"
        share = self.mixture.share_up_to((self.longest + 0.5) / self.factor)
        if self.longest < self.shortest or share < SMALLEST_SHARE:
            return (
                f"got {self.cap}, of which {share:.1g} of the lengths are at most, allowed: at "
                f"least {SMALLEST_SHARE:g} of them"
            )
        return ""


class ScaledLengths(SpecModel, ABC):
    """Scales and caps common to all models with one mixture each for prompts and outputs."""

    input_scale: F64 = Field(default=1.0, gt=0, description="Multiplies prompt lengths, > 0")
    output_scale: F64 = Field(default=1.0, gt=0, description="Multiplies output lengths, > 0")
    max_input_tokens: TokenCount | None = Field(
        default=None, description="Longest prompt, 1..1048576; longer ones are redrawn"
    )
    max_output_tokens: TokenCount | None = Field(
        default=None, description="Longest output, 1..1048576; longer ones are redrawn"
    )

    @abstractmethod
    def unscaled(self) -> tuple[Mixture, Mixture]:
        """Return the length mixtures of prompts and outputs before scaling."""

    @property
    def input_lengths(self) -> ScaledMixture:
        """Lengths of prompts."""
        return ScaledMixture(self.unscaled()[0], self.input_scale, self.max_input_tokens)

    @property
    def output_lengths(self) -> ScaledMixture:
        """Lengths of outputs."""
        return ScaledMixture(self.unscaled()[1], self.output_scale, self.max_output_tokens)

    @model_validator(mode="after")
    def _check_what_is_left(self) -> Self:
        refusals = {
            "max_input_tokens": self.input_lengths.refusal(),
            "max_output_tokens": self.output_lengths.refusal(),
        }
        for name, refusal in refusals.items():
            if refusal:
                raise MisfitError(name, refusal)
        return self


class MixtureLengths(ScaledLengths):
    """A mixture each for prompts and outputs, with a rank correlation between them."""

    kind: Literal["mixture"] = Field(default="mixture", description="Which model")
    input: Mixture = Field(description="Prompt lengths")
    output: Mixture = Field(description="Output lengths")
    rank_correlation: F64 = Field(
        default=0.0, ge=-1, le=1, description="Spearman correlation of prompt and output, -1..1"
    )

    def unscaled(self) -> tuple[Mixture, Mixture]:
        """Return the mixtures of prompts and outputs."""
        return self.input, self.output


class LognormalLengths(ScaledLengths):
    """One log-normal distribution each for prompts and outputs."""

    kind: Literal["lognormal"] = Field(default="lognormal", description="Which model")
    input_median: F64 = Field(gt=0, description="Median prompt, tokens, > 0")
    input_sigma: F64 = Field(ge=0, le=10, description="Standard deviation of its log, 0..10")
    output_median: F64 = Field(gt=0, description="Median output, tokens, > 0")
    output_sigma: F64 = Field(ge=0, le=10, description="Standard deviation of its log, 0..10")
    max_input_tokens: TokenCount | None = Field(
        default=131_072, description="Longest prompt, 1..1048576; null = 1048576"
    )
    max_output_tokens: TokenCount | None = Field(
        default=16_384, description="Longest output, 1..1048576; null = 1048576"
    )
    rank_correlation: F64 = Field(
        default=0.0, ge=-1, le=1, description="Spearman correlation of prompt and output, -1..1"
    )

    def unscaled(self) -> tuple[Mixture, Mixture]:
        """Return both distributions as mixtures of one component."""
        return (
            _one_component(self.input_median, self.input_sigma),
            _one_component(self.output_median, self.output_sigma),
        )


def _one_component(median: float, sigma: float) -> Mixture:
    return Mixture(weights=(1.0,), medians=(median,), sigmas=(sigma,), max_tokens=LONGEST_TOKENS)


class FixedLengths(SpecModel):
    """One length for all prompts and one for all outputs."""

    kind: Literal["fixed"] = Field(default="fixed", description="Which model")
    input_tokens: TokenCount = Field(description="Every prompt, tokens, 1..1048576")
    output_tokens: TokenCount = Field(description="Every output, tokens, 1..1048576")
    rank_correlation: ClassVar[float] = 0.0

    @property
    def input_lengths(self) -> ScaledMixture:
        """Lengths of prompts."""
        return _one_length(self.input_tokens)

    @property
    def output_lengths(self) -> ScaledMixture:
        """Lengths of outputs."""
        return _one_length(self.output_tokens)


def _one_length(tokens: int) -> ScaledMixture:
    return ScaledMixture(
        Mixture(
            weights=(1.0,), medians=(tokens,), sigmas=(0.0,), min_tokens=tokens, max_tokens=tokens
        )
    )


class ClientLengths(SpecModel):
    """Lengths with a mean per client and a smaller spread around it.

    Mean prompt and output are jointly log-normal over the clients; the requests of a client are
    log-normal around its means, redrawn until they are within the bounds (traffic-data.md §4,
    superposed clients). The arrivals must be of kind ``clients``.
    """

    kind: Literal["clients"] = Field(default="clients", description="Which model")
    input_median: F64 = Field(gt=0, description="Median client's mean prompt, tokens, > 0")
    input_sigma: F64 = Field(ge=0, le=10, description="Spread of the log mean, 0..10")
    input_cv: F64 = Field(ge=0, le=10, description="CV of a client's prompts, 0..10")
    output_median: F64 = Field(gt=0, description="Median client's mean output, tokens, > 0")
    output_sigma: F64 = Field(ge=0, le=10, description="Spread of the log mean, 0..10")
    output_cv: F64 = Field(ge=0, le=10, description="CV of a client's outputs, 0..10")
    log_correlation: F64 = Field(
        default=0.0, ge=-1, le=1, description="Correlation of the log means, -1..1"
    )
    max_input_tokens: TokenCount = Field(default=131_072, description="Longest, 1..1048576")
    max_output_tokens: TokenCount = Field(default=16_384, description="Longest, 1..1048576")
