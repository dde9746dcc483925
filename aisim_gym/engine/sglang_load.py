"""Load of an SGLang rank's queues as the forward-pass metrics report it (engine-sglang.md §14).

Requests without output count with their prompt, also if part of it is computed; the others, and
those handed over, with all their tokens.
"""

from aisim_gym.engine.emission import seq_length
from aisim_gym.engine.tables import PassRow, RankRow, SeqRow
from aisim_gym.kernel import kernel


@kernel
def add_to_load(rank: RankRow, seq: SeqRow) -> None:
    """Count a sequence that enters a queue."""
    _change_load(rank, seq, 1)


@kernel
def remove_from_load(rank: RankRow, seq: SeqRow) -> None:
    """Stop counting a sequence that leaves a queue, in the state in which it entered."""
    _change_load(rank, seq, -1)


@kernel
def copy_load(rank: RankRow, work: PassRow) -> None:
    """Write the load of a rank into the sums of its pass."""
    work.queued_new = rank.queued_new
    work.queued_new_tokens = rank.queued_new_tokens
    work.queued_new_squares = rank.queued_new_squares
    work.queued_decode = rank.queued_decode
    work.queued_decode_tokens = rank.queued_decode_tokens
    work.queued_decode_squares = rank.queued_decode_squares


@kernel
def _change_load(rank: RankRow, seq: SeqRow, sign: int) -> None:
    tokens = seq_length(seq)
    if seq.is_destination == 1 or seq.generated_tokens > 0:
        rank.queued_decode += sign
        rank.queued_decode_tokens += sign * tokens
        rank.queued_decode_squares += sign * tokens * tokens
    else:
        rank.queued_new += sign
        rank.queued_new_tokens += sign * tokens
        rank.queued_new_squares += sign * tokens * tokens
