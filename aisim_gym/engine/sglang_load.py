"""Load of an SGLang rank's queues as the forward-pass metrics report it (engine-sglang.md §14).

Requests without output count with their whole prompt, even if it is partially computed. All other
requests, and handed-over ones, count with all their tokens.
"""

from aisim_gym.engine.emission import seq_length
from aisim_gym.engine.queue_load import count_queued
from aisim_gym.engine.tables import RankRow, SeqRow
from aisim_gym.kernel import kernel


@kernel
def add_to_load(rank: RankRow, seq: SeqRow) -> None:
    """Count a sequence that enters a queue."""
    _change_load(rank, seq, 1)


@kernel
def remove_from_load(rank: RankRow, seq: SeqRow) -> None:
    """Subtract a sequence that leaves a queue, in the state in which it entered."""
    _change_load(rank, seq, -1)


@kernel
def _change_load(rank: RankRow, seq: SeqRow, sign: int) -> None:
    is_decode = seq.is_destination or seq.generated_tokens > 0
    count_queued(rank, is_decode, seq_length(seq), sign)
