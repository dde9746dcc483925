"""Turns of requests and sessions, with lengths and hash ids.

Every request of a segment begins a session; a single request is a session of one turn. Hash ids of
prefixes are numbered first, then new ones in order of use.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aisim_gym.spec.lengths import ScaledMixture
from aisim_gym.spec.prompts import ClientPrompts, GroupPrompts, SessionPrompts
from aisim_gym.spec.traffic import TrafficClass
from aisim_gym.workload.ragged import Ragged, offsets_of
from aisim_gym.workload.traffic.arrival_segments import zipf_shares
from aisim_gym.workload.traffic.length_draws import (
    draw_ranks,
    length_sources,
    length_table,
    longest_lengths,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Turns(NamedTuple):
    """Requests in columns.

    Attributes:
        arrival_ms: Shape (turns,), float64, whole nanoseconds.
        input_tokens: Shape (turns,), int64.
        output_tokens: Shape (turns,), int64.
        prompts: Hash ids of each prompt; tokens after them are private.
    """

    arrival_ms: Floats
    input_tokens: Integers
    output_tokens: Integers
    prompts: Ragged

    @classmethod
    def none(cls) -> "Turns":
        """Return no turns."""
        integers = np.empty(0, np.int64)
        return cls(np.empty(0), integers, integers, Ragged.empty(0))

    @classmethod
    def join(cls, parts: "list[Turns]") -> "Turns":
        """Return the concatenated turns."""
        lengths = np.concatenate([np.diff(part.prompts.starts) for part in parts])
        flat = np.concatenate([part.prompts.flat for part in parts])
        return cls(
            np.concatenate([part.arrival_ms for part in parts]),
            np.concatenate([part.input_tokens for part in parts]),
            np.concatenate([part.output_tokens for part in parts]),
            Ragged(flat, offsets_of(lengths)),
        )

    def take(self, rows: Integers) -> "Turns":
        """Return the given turns, in the given order."""
        return Turns(
            self.arrival_ms[rows],
            self.input_tokens[rows],
            self.output_tokens[rows],
            self.prompts.take(rows),
        )


class IdCounter:
    """Allocates new hash ids."""

    def __init__(self) -> None:
        """Start at 0."""
        self._next = 0

    def new(self, count: int) -> int:
        """Return the first of ``count`` new ids."""
        first = self._next
        self._next += count
        return first


class TurnSource(Protocol):
    """Creates the turns of the sessions that start in a segment."""

    def turns(self, start_s: Floats, client: Integers) -> Turns:
        """Return the turns of sessions that begin at ``start_s``, in any order."""
        ...


def turn_source(
    part: TrafficClass,
    clients: int,
    length_random: np.random.Generator,
    prompt_random: np.random.Generator,
    ids: IdCounter,
) -> TurnSource:
    """Return the turn source of a class; allocates the ids of its prefixes."""
    if isinstance(part.prompts, SessionPrompts):
        return _Sessions(part, part.prompts, clients, length_random, prompt_random, ids)
    return _SingleTurns(part, clients, length_random, prompt_random, ids)


def mean_turns(part: TrafficClass) -> float:
    """Return the mean number of turns per session start."""
    return part.prompts.mean_turns if isinstance(part.prompts, SessionPrompts) else 1.0


class _Lengths:
    """Draws prompts and outputs of a class together."""

    def __init__(self, part: TrafficClass, clients: int, random: np.random.Generator) -> None:
        self._lengths = part.lengths
        client_random, self._random = random.spawn(2)
        self.sources = length_sources(part.lengths, clients, client_random)

    def ranks(self, count: int) -> tuple[Floats, Floats]:
        return draw_ranks(self._lengths, count, self._random)


class _SingleTurns:
    """Single requests, with the prefix of a group or a client, or none."""

    def __init__(
        self,
        part: TrafficClass,
        clients: int,
        length_random: np.random.Generator,
        prompt_random: np.random.Generator,
        ids: IdCounter,
    ) -> None:
        self._lengths = _Lengths(part, clients, length_random)
        size_random, self._random = prompt_random.spawn(2)
        self._prompts = part.prompts
        self._popularity = np.ones(0)
        blocks = np.zeros(0, np.int64)
        if isinstance(part.prompts, GroupPrompts | ClientPrompts):
            groups = clients
            if isinstance(part.prompts, GroupPrompts):
                groups = part.prompts.groups
                shares = zipf_shares(groups, part.prompts.zipf, part.prompts.zipf_shift)
                self._popularity = np.cumsum(shares)
            spread = np.exp(part.prompts.prefix_sigma * size_random.standard_normal(groups))
            blocks = np.rint(part.prompts.prefix_blocks * spread)
            blocks = np.minimum(blocks, part.prompts.max_prefix_blocks).astype(np.int64)
        self._blocks = blocks
        self._first_id = ids.new(int(blocks.sum())) + offsets_of(blocks)[:-1]

    def turns(self, start_s: Floats, client: Integers) -> Turns:
        """Return one turn for each start."""
        input_ranks, output_ranks = self._lengths.ranks(start_s.size)
        input_tokens = self._lengths.sources.input.tokens(input_ranks, client)
        output_tokens = self._lengths.sources.output.tokens(output_ranks, client)
        prompts = Ragged.empty(start_s.size)
        if isinstance(self._prompts, GroupPrompts | ClientPrompts):
            group = client
            if isinstance(self._prompts, GroupPrompts):
                group = np.searchsorted(
                    self._popularity, self._random.random(start_s.size), "right"
                )
                group = np.minimum(group, self._popularity.size - 1)
            prefix = self._blocks[group]
            if self._prompts.adds_to_input:
                input_tokens = input_tokens + prefix * self._prompts.block_tokens
            else:
                prefix = np.minimum(prefix, input_tokens // self._prompts.block_tokens)
            starts = offsets_of(prefix)
            shift = np.repeat(self._first_id[group] - starts[:-1], prefix)
            prompts = Ragged(np.arange(starts[-1]) + shift, starts)
        return Turns(_whole_ns(start_s), input_tokens, output_tokens, prompts)


class _Sessions:
    """Conversations; all turns of a session are generated when it begins."""

    def __init__(
        self,
        part: TrafficClass,
        prompts: SessionPrompts,
        clients: int,
        length_random: np.random.Generator,
        prompt_random: np.random.Generator,
        ids: IdCounter,
    ) -> None:
        self._lengths = _Lengths(part, clients, length_random)
        self._random = prompt_random
        self._prompts = prompts
        scale = getattr(part.lengths, "input_scale", 1.0)
        self._growth = length_table(ScaledMixture(prompts.growth, scale))
        self._longest, _ = longest_lengths(part.lengths)
        self._root = ids.new(prompts.root_blocks)
        self._ids = ids

    def turns(self, start_s: Floats, client: Integers) -> Turns:
        """Return all first turns, then all second turns, and so on."""
        at_s, depth = start_s, 0
        input_tokens = chains = None
        parts = [Turns.none()]
        while at_s.size:
            input_ranks, output_ranks = self._lengths.ranks(at_s.size)
            if input_tokens is None or chains is None:
                input_tokens = self._lengths.sources.input.tokens(input_ranks, client)
                kept = Ragged.empty(at_s.size)
            else:
                grown = input_tokens + self._growth.tokens(input_ranks)
                kept = self._kept(chains, input_tokens)
                input_tokens = np.minimum(grown, self._longest)
            chains = self._extend(kept, input_tokens)
            output_tokens = self._lengths.sources.output.tokens(output_ranks, client)
            parts.append(Turns(_whole_ns(at_s), input_tokens, output_tokens, chains))
            goes_on = self._random.random(at_s.size) < self._continue_prob(depth)
            gaps_s = np.exp(self._prompts.gap_sigma * self._random.standard_normal(at_s.size))
            going = np.flatnonzero(goes_on)
            at_s = (at_s + self._prompts.gap_median_s * gaps_s)[going]
            client, input_tokens, chains = client[going], input_tokens[going], chains.take(going)
            depth += 1
        return Turns.join(parts)

    def _continue_prob(self, depth: int) -> float:
        probs = self._prompts.continue_probs
        return probs[depth] if depth < len(probs) else self._prompts.continue_prob_later

    def _kept(self, chains: Ragged, input_tokens: Integers) -> Ragged:
        """Return the hash ids that a turn keeps of the previous turn."""
        full = input_tokens // self._prompts.block_tokens
        root = np.minimum(full, self._prompts.root_blocks)
        u_cover, u_part = self._random.random((2, full.size))
        some = root + np.floor((full - root) * u_part * u_part).astype(np.int64)
        kept = np.where(u_cover < self._prompts.full_cover_prob, full, some)
        return _heads(chains, kept)

    def _extend(self, kept: Ragged, input_tokens: Integers) -> Ragged:
        """Return hash ids of whole prompts: kept ids, then root ids, then new ones."""
        block_tokens, root_blocks = self._prompts.block_tokens, self._prompts.root_blocks
        kept_blocks = np.diff(kept.starts)
        blocks = -(-input_tokens // block_tokens)
        starts = offsets_of(blocks)
        row = np.repeat(np.arange(blocks.size), blocks)
        position = np.arange(starts[-1]) - starts[row]
        # The root has whole blocks only: the tail of a prompt is private.
        in_root = position < np.minimum(root_blocks, input_tokens // block_tokens)[row]
        is_kept = position < kept_blocks[row]
        is_new = ~in_root & ~is_kept
        flat = self._root + position
        flat[is_kept] = kept.flat
        num_new = int(np.count_nonzero(is_new))
        flat[is_new] = self._ids.new(num_new) + np.arange(num_new)
        return Ragged(flat, starts)


def _heads(items: Ragged, counts: Integers) -> Ragged:
    """Return the first items of every row."""
    starts = offsets_of(counts)
    shift = np.repeat(items.starts[:-1] - starts[:-1], counts)
    return Ragged(items.flat[np.arange(starts[-1]) + shift], starts)


def _whole_ns(at_s: Floats) -> Floats:
    """Return times in ms, rounded to whole ns, which survive writing and reading."""
    return np.round(at_s * 1000.0, 6)
