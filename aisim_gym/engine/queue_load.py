"""Load of a rank's queue as the forward-pass metrics report it (engine-vllm-trtllm.md §8.1).

Never admitted requests count with their prompt; preempted ones with all their tokens; handed-over
ones with their prompt, from the moment the rank accepts them until they run.
"""

from aisim_gym.engine.tables import RankRow, SeqRow
from aisim_gym.kernel import kernel


@kernel
def add_to_load(rank: RankRow, seq: SeqRow) -> None:
    """Count a sequence that enters the queue."""
    _change_load(rank, seq, 1)


@kernel
def remove_from_load(rank: RankRow, seq: SeqRow) -> None:
    """Stop counting a sequence that leaves the queue, in the state in which it entered."""
    _change_load(rank, seq, -1)


@kernel
def _change_load(rank: RankRow, seq: SeqRow, sign: int) -> None:
    if seq.is_destination == 1 or seq.was_admitted == 0:
        tokens = seq.prompt_tokens
    else:
        tokens = seq.prompt_tokens + seq.generated_tokens
    if seq.is_destination == 1 or seq.was_admitted == 1:
        rank.queued_decode += sign
        rank.queued_decode_tokens += sign * tokens
        rank.queued_decode_squares += sign * tokens * tokens
    else:
        rank.queued_new += sign
        rank.queued_new_tokens += sign * tokens
        rank.queued_new_squares += sign * tokens * tokens
