"""The end of a request, and the sequences that carry it (replay-runtime.md §10.7, §15.1)."""

import numpy as np
import pytest
from fleet.worlds import new_world

from aisim_gym.engine.tables import NONE
from aisim_gym.errors import TableFullError
from aisim_gym.fleet.request_seq import (
    add_request_seq,
    drop_request_seq,
    end_request,
    request_room_for_seq,
    seq_needs,
)
from aisim_gym.fleet.room import ENTRIES
from aisim_gym.fleet.tables import DECODE
from aisim_gym.metrics.request_times import REQUEST_COMPLETED, REQUEST_REJECTED


def test_first_outcome_counts() -> None:
    state = new_world(workers=1)
    for now_ms, status in ((5.0, REQUEST_REJECTED), (6.0, REQUEST_COMPLETED)):
        state.world.clock.now_ms = now_ms
        end_request(state.world, 0, status)
    row = state.world.requests[0]
    assert (row.status, row.terminal_ms) == (REQUEST_REJECTED, 5.0)


def test_sequence_has_the_lengths_of_its_request_and_leaves_nothing() -> None:
    state = new_world(workers=1)
    w = state.world
    w.requests[0].output_tokens = 2
    rows_before = int(w.arena.seq_free_count)
    s = add_request_seq(w, 0, 0)
    seq = state.world.seqs[s]
    assert (seq.request, seq.prompt_tokens, seq.max_output_tokens) == (0, 8, 2)
    assert (w.ranks[0].owned_seqs, w.arena.seq_free_count) == (1, rows_before - 1)
    drop_request_seq(w, s)
    assert seq.request == NONE
    assert (w.ranks[0].owned_seqs, w.arena.seq_free_count) == (0, rows_before)


def test_backend_limits_the_output_of_a_sequence() -> None:
    state = new_world(workers=1, engine={"backend": "trtllm", "num_gpu_blocks": 4})
    state.world.requests[0].output_tokens = 100
    s = add_request_seq(state.world, 0, 0)
    assert state.world.seqs[s].max_output_tokens == 4 * 4 - 8


def test_room_is_asked_for_the_sequence_that_is_made() -> None:
    """The output may be cut, so the block list is shorter than prompt and output are long."""
    state = new_world(workers=1, engine={"backend": "trtllm", "num_gpu_blocks": 4})
    w = state.world
    w.requests[0].output_tokens = 100
    limit, size = seq_needs(w, DECODE, 0)
    assert (limit, size) == (8, 5)
    state.replace("entries", np.zeros(7, np.int64))  # one slice of 8 is too much
    assert not request_room_for_seq(state.world, DECODE, 0)
    assert state.world.resume.room_table == ENTRIES
    state.grow()
    assert request_room_for_seq(state.world, DECODE, 0)
    assert state.world.seqs[add_request_seq(state.world, 0, 0)].entry_size == size


def test_sequence_without_room_is_refused_instead_of_written() -> None:
    state = new_world(workers=1)
    state.replace("entries", np.zeros(1, np.int64))
    with pytest.raises(TableFullError, match="slices"):
        add_request_seq(state.world, 0, 0)
