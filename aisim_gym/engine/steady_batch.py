"""Sums over a batch that is about to decode steadily, for all schedulers."""

from collections.abc import Callable

from aisim_gym.engine.emission import seq_length
from aisim_gym.engine.tables import NONE, UNLIMITED, EngineRow, SeqRow
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table


@kernel
def sum_batch(
    seqs: Table[SeqRow],
    engine: EngineRow,
    first: int,
    last_entry: int,
    is_in_step: Callable[[EngineRow, SeqRow, int], bool],
    tokens_left: Callable[[EngineRow, SeqRow], int],
) -> tuple[int, int, int]:
    """Return (passes until a request ends, sum of the lengths, sum of their squares) of a queue.

    Args:
        seqs: Sequences, linked by ``next``.
        engine: Role of the rank.
        first: First sequence of the queue; without one there is no bound on the passes.
        last_entry: Of the worker's token log.
        is_in_step: ``(engine, seq, last_entry)``: whether a sequence emits one token in the next
            pass and in those that follow. The passes are 0 if one does not.
        tokens_left: ``(engine, seq)``: tokens that a sequence still generates.
    """
    passes, tokens, squares = UNLIMITED, 0, 0
    s = first
    while s != NONE:
        seq = seqs[s]
        if not is_in_step(engine, seq, last_entry):
            return 0, 0, 0
        passes = min(passes, tokens_left(engine, seq))
        length = seq_length(seq)
        tokens += length
        squares += length * length
        s = seq.next
    return passes, tokens, squares
