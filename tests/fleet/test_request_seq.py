"""The end of a request, and the sequences that carry it (replay-runtime.md §10.7, §15.1)."""

from fleet.worlds import new_world

from aisim_gym.engine.tables import NONE
from aisim_gym.fleet.request_seq import add_request_seq, drop_request_seq, end_request
from aisim_gym.metrics.request_times import REQUEST_COMPLETED, REQUEST_REJECTED


def test_first_outcome_counts() -> None:
    state = new_world(workers=1)
    for now_ms, status in ((5.0, REQUEST_REJECTED), (6.0, REQUEST_COMPLETED)):
        state.clock[0].now_ms = now_ms
        end_request(state.world(), 0, status)
    row = state.requests[0]
    assert (row.status, row.terminal_ms) == (REQUEST_REJECTED, 5.0)


def test_sequence_has_the_lengths_of_its_request_and_leaves_nothing() -> None:
    state = new_world(workers=1)
    w = state.world()
    rows_before = int(w.arena.seq_free_count)
    s = add_request_seq(w, 0, 0, 2)
    seq = state.seqs[s]
    assert (seq.request, seq.prompt_tokens, seq.max_output_tokens) == (0, 8, 2)
    assert (w.ranks[0].owned_seqs, w.arena.seq_free_count) == (1, rows_before - 1)
    drop_request_seq(w, s)
    assert seq.request == NONE
    assert (w.ranks[0].owned_seqs, w.arena.seq_free_count) == (0, rows_before)


def test_backend_limits_the_output_of_a_sequence() -> None:
    state = new_world(workers=1, engine={"backend": "trtllm", "num_gpu_blocks": 4})
    s = add_request_seq(state.world(), 0, 0, 100)
    assert state.seqs[s].max_output_tokens == 4 * 4 - 8
