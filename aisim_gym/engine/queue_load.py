"""Load of a rank's queue as the forward-pass metrics report it (engine-vllm-trtllm.md §8.1).

Requests never admitted count with their prompt tokens, preempted requests with all their tokens.
Handed-over requests count with their prompt tokens from acceptance by the rank until they run.
"""

from aisim_gym.engine.tables import PassRow, RankRow, SeqRow
from aisim_gym.kernel import kernel


@kernel
def add_to_load(rank: RankRow, seq: SeqRow) -> None:
    """Count a sequence that enters the queue."""
    _change_load(rank, seq, 1)


@kernel
def remove_from_load(rank: RankRow, seq: SeqRow) -> None:
    """Subtract a sequence that leaves the queue, in the state in which it entered."""
    _change_load(rank, seq, -1)


@kernel
def count_queued(rank: RankRow, is_decode: bool, tokens: int, sign: int) -> None:
    """Add a sequence of ``tokens`` tokens to one of the two loads, or subtract it (``sign`` -1)."""
    if is_decode:
        rank.queued_decode += sign
        rank.queued_decode_tokens += sign * tokens
        rank.queued_decode_squares += sign * tokens * tokens
    else:
        rank.queued_new += sign
        rank.queued_new_tokens += sign * tokens
        rank.queued_new_squares += sign * tokens * tokens


@kernel
def copy_load(rank: RankRow, work: PassRow) -> None:
    """Copy the queue load of a rank into the sums of its pass."""
    work.queued_new = rank.queued_new
    work.queued_new_tokens = rank.queued_new_tokens
    work.queued_new_squares = rank.queued_new_squares
    work.queued_decode = rank.queued_decode
    work.queued_decode_tokens = rank.queued_decode_tokens
    work.queued_decode_squares = rank.queued_decode_squares


@kernel
def _change_load(rank: RankRow, seq: SeqRow, sign: int) -> None:
    is_new = not seq.was_admitted and not seq.is_destination
    tokens = seq.prompt_tokens
    if seq.was_admitted and not seq.is_destination:
        tokens += seq.generated_tokens
    count_queued(rank, not is_new, tokens, sign)
