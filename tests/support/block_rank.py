"""One rank with a block pool that receives commands and runs passes, without a fleet."""

from collections.abc import Sequence
from typing import Any

from support.rank_tables import BareRank, make_engine

from aisim_gym.engine.backend import Backend
from aisim_gym.engine.seq_rows import delete_seq
from aisim_gym.engine.tables import (
    END_NONE,
    NONE,
    PREEMPT_NONE,
    SEQ_HELD,
    TIMING_FIXED,
    PassRow,
)
from aisim_gym.engine.trtllm import TRTLLM, TRTLLM_DRAFTING
from aisim_gym.engine.vllm import VLLM, VLLM_DRAFTING
from aisim_gym.tables import make_table


class BlockRank(BareRank):
    """A rank with 8 blocks of 4 tokens; 10 ms to prefill, 4 ms to decode."""

    def __init__(self, backend: Backend = VLLM, **engine: Any) -> None:
        """Start without sequences.

        Args:
            backend: ``VLLM``, ``TRTLLM`` or their drafting forms.
            engine: Fields of the engine row.
        """
        fixed = {"timing": TIMING_FIXED, "fixed_prefill_ms": 10.0, "fixed_decode_ms": 4.0}
        if backend in (TRTLLM, TRTLLM_DRAFTING):
            fixed |= {"preemption": PREEMPT_NONE, "recomputes_last": 0}
        super().__init__(make_engine(**{**fixed, **engine}))
        self.backend = backend
        self.work = make_table(PassRow, 1)[0]

    def submit(self, prompt_tokens: int, output_tokens: int, identities: Sequence[int] = ()) -> int:
        """Queue a request; return its sequence."""
        s = self.new_request(prompt_tokens, output_tokens, identities)
        self.backend.submit(self, self.rank, s)
        return s

    def new_request(
        self, prompt_tokens: int, output_tokens: int, identities: Sequence[int] = ()
    ) -> int:
        """Return a sequence in no queue yet; its output is limited as the backend does."""
        limit = self.backend.output_limit(self, self.engine, prompt_tokens, output_tokens)
        return self.new_seq(identities, prompt_tokens, limit)

    def accept(
        self, prompt_tokens: int, output_tokens: int = 4, identities: Sequence[int] = ()
    ) -> int:
        """Queue a destination; return its sequence, or ``NONE`` if it can never run."""
        s = self.new_request(prompt_tokens, output_tokens, identities)
        return s if self.backend.accept_destination(self, self.engine, self.rank, s) else NONE

    def reserve(self) -> int:
        """Try to reserve blocks for the first destination; return it, or ``NONE``."""
        return self.backend.reserve_destination(self, self.engine, self.rank)

    def activate(self, s: int) -> None:
        """Let the KV of a destination arrive."""
        self.backend.activate_destination(self, self.engine, self.rank, s)

    def cancel(self, s: int) -> None:
        """Take a sequence off the rank and delete it."""
        self.backend.cancel(self, self.engine, self.rank, s)
        self.delete(s)

    def delete(self, s: int) -> None:
        """Free the row of a sequence."""
        delete_seq(self.rank, self.seqs, self.arena, self.entries, self.entry_heads, s)

    def run_pass(self, wave: int = 0, now_ms: float = 0.0) -> PassRow:
        """Run a pass within the demand it announced; return its sums."""
        rows_before = int(self.arena.block_free_count)
        demand = self.backend.block_demand(self, self.engine, self.rank)
        self.backend.run_pass(self, self.engine, self.rank, self.work, now_ms, wave)
        assert rows_before - self.arena.block_free_count <= demand
        return self.work

    def run_to_end(self, num_passes: int = 100) -> list[list[int]]:
        """Run passes until nothing waits or runs; return the tokens of each signal, per pass.

        Sequences that end, and are no sources, are deleted.
        """
        emitted: list[list[int]] = []
        for _ in range(num_passes):
            if not any(queue.count for queue in self.queues):  # type: ignore[attr-defined]
                return emitted
            self.run_pass()
            signals = self.signals()
            emitted.append([int(self.seqs[s].signal_tokens) for s in signals])
            for s in signals:
                if self.seqs[s].signal_end != END_NONE and self.seqs[s].status != SEQ_HELD:
                    self.delete(s)
        raise AssertionError(f"still busy after {num_passes} passes")

    def queued(self, kind: int) -> list[int]:
        """Return the sequences in a queue."""
        return self._chain(int(self.queues[kind].first), "next")

    def admitted(self) -> list[int]:
        """Return the sequences that the last pass admitted."""
        return self._chain(int(self.work.admit_first), "admit_next")

    def signals(self) -> list[int]:
        """Return the sequences that emit or end at the end of the last pass."""
        found = self._chain(int(self.work.signal_first), "signal_next")
        assert len(found) == self.work.signal_count
        return found

    def emitted(self) -> list[int]:
        """Return the sequences that get tokens at the end of the pass, in order."""
        return [s for s in self.signals() if self.seqs[s].signal_tokens > 0]

    def _chain(self, s: int, link: str) -> list[int]:
        found: list[int] = []
        while s != NONE:
            assert s not in found
            found.append(s)
            s = int(getattr(self.seqs[s], link))
        return found


DRAFTING = {"vllm": VLLM_DRAFTING, "trtllm": TRTLLM_DRAFTING}
"""Backends with speculative decoding by name."""
