"""Shared prefixes of prompts in generated traffic (traffic-data.md §3, §4).

Prompts are cut into blocks of ``block_tokens``, each with a hash id, as in Mooncake traces; a block
is the same in two prompts if everything before it is the same too.
"""

from typing import Annotated, Literal, Self

from annotated_types import Ge, Le
from pydantic import Field, model_validator

from aisim_gym.number_text import number_text
from aisim_gym.spec.lengths import LONGEST_TOKENS, Mixture
from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.refusals import MisfitError
from aisim_gym.spec.scalars import F64, Count, Flag, RustType

MAX_GROUPS = 100_000
"""Maximum number of groups with one prefix each."""

_Probability = Annotated[F64, Ge(0), Le(1)]


class UniquePrompts(SpecModel):
    """Prompts without shared prefixes."""

    kind: Literal["unique"] = Field(default="unique", description="Which model")


class _Prefixed(SpecModel):
    """Groups that share a prefix of whole blocks; the remaining tokens are private."""

    block_tokens: Count = Field(
        default=512, ge=1, le=LONGEST_TOKENS, description="Tokens per block, 1..1048576"
    )
    prefix_blocks: F64 = Field(
        default=4.0, ge=0, le=1e6, description="Median length of a group's prefix, blocks, >= 0"
    )
    prefix_sigma: F64 = Field(
        default=0.0, ge=0, le=10, description="Spread of its log over the groups, 0..10"
    )
    max_prefix_blocks: Count = Field(
        default=64,
        ge=0,
        le=LONGEST_TOKENS,
        description="Longest prefix, blocks, >= 0; longer draws are cut",
    )
    adds_to_input: Flag = Field(
        default=False,
        description="true = the prefix is added to the drawn prompt length; false = it is part "
        "of it, as far as whole blocks fit",
    )

    @model_validator(mode="after")
    def _check_prefix(self) -> Self:
        if self.prefix_blocks > self.max_prefix_blocks:
            raise MisfitError(
                "prefix_blocks",
                f"prefix_blocks must be at most max_prefix_blocks, got "
                f"{number_text(self.prefix_blocks)} and {self.max_prefix_blocks}",
            )
        if self.longest_prefix_tokens > LONGEST_TOKENS:
            raise MisfitError(
                "max_prefix_blocks",
                f"got prefixes of up to {self.longest_prefix_tokens} tokens, allowed: at most "
                f"{LONGEST_TOKENS}",
            )
        return self

    @property
    def longest_prefix_tokens(self) -> int:
        """Upper bound on the tokens of a prefix."""
        is_same = self.prefix_sigma == 0.0 or self.prefix_blocks == 0.0
        blocks = round(self.prefix_blocks) if is_same else self.max_prefix_blocks
        return blocks * self.block_tokens


class GroupPrompts(_Prefixed):
    """Requests of many applications (groups), each with its own system prompt.

    Group g = 1, 2, … has a probability proportional to ``(g + zipf_shift) ** -zipf``.
    """

    kind: Literal["groups"] = Field(default="groups", description="Which model")
    groups: Count = Field(ge=1, le=MAX_GROUPS, description="Number of groups, 1..100000")
    zipf: F64 = Field(default=1.0, ge=0, le=20, description="Exponent of the popularity, 0..20")
    zipf_shift: F64 = Field(default=0.0, ge=0, description="Shift of the group index, >= 0")


class ClientPrompts(_Prefixed):
    """One system prompt per client. The arrivals must be of kind ``clients``."""

    kind: Literal["clients"] = Field(default="clients", description="Which model")


class SessionPrompts(SpecModel):
    """Conversations in which every turn extends the prompt of the previous turn.

    Drawn prompt lengths apply to first turns. Turns have their own arrival times, as in a trace: a
    turn does not wait for the answer to the previous one.
    """

    kind: Literal["sessions"] = Field(default="sessions", description="Which model")
    block_tokens: Count = Field(
        default=512, ge=1, le=LONGEST_TOKENS, description="Tokens per block, 1..1048576"
    )
    root_blocks: Count = Field(
        default=1, ge=0, le=LONGEST_TOKENS, description="Blocks shared by all sessions, >= 0"
    )
    continue_probs: tuple[_Probability, ...] = Field(
        default=(),
        max_length=1000,
        description="Probability of one more turn after turn 1, 2, …; each 0..1",
    )
    continue_prob_later: F64 = Field(
        default=0.0,
        ge=0,
        le=0.99,
        description="Probability of one more turn after all later ones, 0..0.99",
    )
    gap_median_s: F64 = Field(gt=0, description="Median time from turn to turn, seconds, > 0")
    gap_sigma: F64 = Field(ge=0, le=3, description="Standard deviation of its log, 0..3")
    growth: Mixture = Field(
        description="Tokens that a turn adds to the prompt, limited by the longest prompt"
    )
    full_cover_prob: F64 = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Probability that a turn keeps all full blocks of the previous one, 0..1; "
        "otherwise it keeps the root and a random part",
    )
    warmup_s: F64 = Field(
        default=3600.0,
        ge=0,
        le=1e6,
        description="Sessions begin this long before the start, seconds; their earlier turns are "
        "left out",
    )

    @property
    def mean_turns(self) -> float:
        """Mean number of turns of a session."""
        reaches, mean = 1.0, 1.0
        for probability in self.continue_probs:
            reaches *= probability
            mean += reaches
        later = self.continue_prob_later
        return mean + reaches * later / (1.0 - later)


AnyPrompts = Annotated[
    UniquePrompts | GroupPrompts | ClientPrompts | SessionPrompts,
    Field(discriminator="kind"),
    RustType("a table with `kind`", "`unique`, `groups`, `clients` or `sessions`"),
]
