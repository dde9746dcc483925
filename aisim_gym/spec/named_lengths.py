"""Named lengths: mixtures fitted to public traces (traffic-data.md §2).

Each entry is (weights, medians, sigmas, shortest, longest) of prompts, the same of outputs, and the
rank correlation of the two.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from aisim_gym.spec.lengths import (
    ClientLengths,
    FixedLengths,
    LognormalLengths,
    Mixture,
    MixtureLengths,
    ScaledLengths,
)
from aisim_gym.spec.scalars import RustType

Numbers = tuple[float, ...]

LengthName = Literal[
    "azure-conv",
    "azure-code",
    "mooncake-conversation",
    "mooncake-conversation-start",
    "mooncake-synthetic",
    "arxiv-summarize",
    "servegen-large",
    "servegen-mid",
    "servegen-small",
    "reasoning-r1",
]
"""Fitted lengths. ``mooncake-conversation`` describes all requests of the trace,
``mooncake-conversation-start`` the first turns, for prompts of kind ``sessions``."""


def _mixture(
    weights: Numbers, medians: Numbers, sigmas: Numbers, shortest: int, longest: int
) -> Mixture:
    return Mixture(
        weights=weights, medians=medians, sigmas=sigmas, min_tokens=shortest, max_tokens=longest
    )


NAMED_LENGTHS: Mapping[LengthName, MixtureLengths] = {
    "azure-conv": MixtureLengths(
        input=_mixture(
            (0.2028, 0.2283, 0.4004, 0.1684),
            (244.5, 398.2, 1092.4, 3018.0),
            (1.0257, 0.0377, 0.0988, 0.3751),
            2,
            14050,
        ),
        output=_mixture(
            (0.4252, 0.2956, 0.2792), (96.8, 113.2, 405.9), (0.3568, 1.0098, 0.0487), 7, 1000
        ),
        rank_correlation=0.073,
    ),
    "azure-code": MixtureLengths(
        input=_mixture(
            (0.3147, 0.6342, 0.0511), (252.9, 1942.5, 7411.2), (1.2882, 0.6364, 0.02), 3, 7437
        ),
        output=_mixture(
            (0.079, 0.2126, 0.4244, 0.2841),
            (6.0, 8.5, 14.0, 43.7),
            (0.02, 0.1533, 0.3302, 0.8608),
            6,
            1899,
        ),
        rank_correlation=-0.021,
    ),
    "mooncake-conversation": MixtureLengths(
        input=_mixture(
            (0.0932, 0.1087, 0.7981), (906.2, 1331.1, 9622.1), (0.02, 0.2307, 0.9203), 891, 126195
        ),
        output=_mixture(
            (0.2483, 0.3124, 0.4392), (33.2, 320.1, 430.9), (1.5103, 0.6252, 0.2578), 1, 2000
        ),
        rank_correlation=0.072,
    ),
    "mooncake-conversation-start": MixtureLengths(
        input=_mixture(
            (0.1488, 0.1275, 0.7236), (906.0, 1210.9, 9024.4), (0.02, 0.1796, 0.9491), 891, 126195
        ),
        output=_mixture(
            (0.2483, 0.3124, 0.4392), (33.2, 320.1, 430.9), (1.5103, 0.6252, 0.2578), 1, 2000
        ),
        rank_correlation=0.0,
    ),
    "mooncake-synthetic": MixtureLengths(
        input=_mixture(
            (0.1472, 0.1398, 0.2978, 0.1749, 0.2404),
            (27.5, 131.8, 6192.2, 16714.0, 34466.0),
            (0.3746, 0.9997, 1.1452, 0.1256, 0.3236),
            13,
            191378,
        ),
        output=_mixture(
            (0.0571, 0.2336, 0.376, 0.3333),
            (2.0, 6.8, 57.0, 305.8),
            (0.02, 0.6105, 0.9706, 0.4594),
            1,
            893,
        ),
        rank_correlation=-0.517,
    ),
    "arxiv-summarize": MixtureLengths(
        input=_mixture(
            (0.0925, 0.5457, 0.3617), (452.1, 2233.5, 3409.4), (1.5339, 0.2968, 0.0947), 1, 4054
        ),
        output=_mixture(
            (0.352, 0.6093, 0.0388), (152.9, 164.9, 2669.1), (0.7925, 0.4317, 0.2617), 5, 4056
        ),
        rank_correlation=-0.114,
    ),
    "servegen-large": MixtureLengths(
        input=_mixture(
            (0.1767, 0.1679, 0.6554), (70.2, 570.7, 854.4), (0.1035, 0.0992, 0.8757), 1, 31378
        ),
        output=_mixture(
            (0.1029, 0.345, 0.5521), (1.0, 9.6, 178.3), (0.06, 0.9973, 0.9778), 1, 9328
        ),
        rank_correlation=0.0,
    ),
    "servegen-mid": MixtureLengths(
        input=_mixture(
            (0.3683, 0.3885, 0.2432), (145.6, 208.0, 366.4), (0.0783, 0.2172, 1.2594), 8, 125514
        ),
        output=_mixture(
            (0.0576, 0.2919, 0.6504), (11.0, 18.8, 40.8), (0.06, 1.5207, 0.6699), 1, 8554
        ),
        rank_correlation=0.0,
    ),
    "servegen-small": MixtureLengths(
        input=_mixture(
            (0.2974, 0.5303, 0.1723), (18.8, 41.5, 371.8), (0.06, 0.3664, 0.8183), 9, 125514
        ),
        output=_mixture(
            (0.2068, 0.4168, 0.3764), (1.0, 2.8, 19.2), (0.06, 0.2785, 1.1281), 1, 11094
        ),
        rank_correlation=0.0,
    ),
    "reasoning-r1": MixtureLengths(
        input=_mixture(
            (0.3485, 0.2586, 0.3929), (29.8, 269.9, 751.7), (0.7145, 0.3963, 1.736), 4, 57548
        ),
        output=_mixture(
            (0.5988, 0.1914, 0.2097), (474.9, 1378.6, 3310.3), (0.5432, 0.1769, 0.7701), 9, 34218
        ),
        rank_correlation=0.0,
    ),
}


class NamedLengths(ScaledLengths):
    """Fitted lengths with optional scales and caps."""

    kind: Literal["named"] = Field(default="named", description="Which model")
    name: LengthName = Field(description="Which lengths")

    def unscaled(self) -> tuple[Mixture, Mixture]:
        """Return the fitted mixtures of prompts and outputs."""
        return NAMED_LENGTHS[self.name].unscaled()

    @property
    def rank_correlation(self) -> float:
        """Spearman correlation of prompt and output."""
        return NAMED_LENGTHS[self.name].rank_correlation


def _expand_name(lengths: Any) -> Any:
    """Expand a bare name to the fitted lengths of that name."""
    return {"kind": "named", "name": lengths} if isinstance(lengths, str) else lengths


AnyLengths = Annotated[
    MixtureLengths | LognormalLengths | FixedLengths | NamedLengths | ClientLengths,
    Field(discriminator="kind"),
    BeforeValidator(_expand_name),
    RustType("a table with `kind`, or the name of fitted lengths"),
]
