"""Whoever takes a row that is not there is refused, and writes nothing."""

import math
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from fleet.worlds import new_world

from aisim_gym.engine.kv_pool import check_listed, evict_blocks, take_block_row
from aisim_gym.engine.radix_tree import ensure_root
from aisim_gym.engine.slices import give_back_slice, make_heads, take_slice
from aisim_gym.engine.tables import NONE
from aisim_gym.errors import TableFullError
from aisim_gym.fleet.events import push_leaving, push_pass_end
from aisim_gym.fleet.request_seq import add_request_seq, record_admission_of
from aisim_gym.fleet.rosters import append_worker, heap_push, insert_ascending
from aisim_gym.fleet.tables import DECODE, TOKENIZING, WORKER_ACTIVE
from aisim_gym.fleet.transfer_links import start_transfer
from aisim_gym.fleet.worker_life import create_worker, record_operation
from aisim_gym.fleet.world import World
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.metrics.token_log import append_entry, move_log
from aisim_gym.tables import make_array


def full_world() -> WorldState:
    """Return a world without a free row in any table."""
    state = new_world(workers=1)
    workers, ranks = len(state.world.workers), len(state.world.ranks)
    state.world.pools[DECODE].num_workers = workers
    state.world.pools[DECODE].num_ranks = ranks
    state.world.options.captures_requests = state.world.options.captures_operations = True
    for name in ("admissions", "operations"):
        state.replace(name, make_array(state.tables[name].dtype, 0))
    arena = state.world.arena
    arena.block_free = arena.node_free = NONE
    return state


def push_pass_ends(w: World) -> None:
    for row in range(len(w.workers) + 1):
        push_pass_end(w, min(row, len(w.workers) - 1), 1.0)


TAKINGS: dict[str, Callable[[World], object]] = {
    "workers": lambda w: create_worker(w, DECODE, WORKER_ACTIVE, NONE),
    "operations": lambda w: record_operation(w, DECODE, 0, 0),
    "admissions": lambda w: record_admission_of(w, DECODE, 0),
    "blocks": lambda w: take_block_row(w.blocks, w.arena),
    "nodes": lambda w: ensure_root(w.ranks[0], w.nodes, w.arena),
    "log_entries": lambda w: append_entry(w.token_logs[0], w.log_entries, 1.0),
    "transfers": lambda w: start_transfer(w.transfer_set, w.transfers, 0, 0, 0, 0, 1.0, 0.0),
    "time heap": push_pass_ends,
}


@pytest.mark.parametrize("table", TAKINGS)
def test_taking_from_a_full_table_is_refused_with_its_name(table: str) -> None:
    with pytest.raises(TableFullError, match=f"^{table}$"):
        TAKINGS[table](full_world().world)


def test_ranks_of_a_worker_must_fit() -> None:
    w = new_world(workers=1).world
    w.pools[DECODE].num_ranks = len(w.ranks)
    with pytest.raises(TableFullError, match=r"^ranks$"):
        create_worker(w, DECODE, WORKER_ACTIVE, NONE)


def test_stage_without_a_row_for_a_request_is_refused() -> None:
    with pytest.raises(TableFullError, match=r"^time heap$"):
        push_leaving(new_world(workers=1).world, TOKENIZING, 1.0, 0)


@pytest.mark.parametrize("take", [append_worker, insert_ascending, heap_push])
def test_full_roster_is_refused(take: Callable[..., None]) -> None:
    roster = np.arange(3)
    with pytest.raises(TableFullError, match=r"^rosters$"):
        take(roster, 3, 1)
    assert roster.tolist() == [0, 1, 2]


def test_block_list_has_room_for_what_it_was_made_for_only() -> None:
    w = new_world(workers=1).world
    seq = w.seqs[add_request_seq(w, 0, 0)]
    check_listed(seq, int(seq.entry_size))
    with pytest.raises(TableFullError, match=r"^block list$"):
        check_listed(seq, int(seq.entry_size) + 1)


def test_log_cannot_move_behind_the_end_of_the_table() -> None:
    w = new_world(workers=1).world
    with pytest.raises(TableFullError, match=r"^log_entries$"):
        move_log(w.token_logs[0], w.log_entries, len(w.log_entries) - 511, 512)


def test_blocks_that_are_not_there_cannot_be_evicted() -> None:
    w = new_world(workers=1).world
    with pytest.raises(TableFullError, match=r"^blocks$"):
        evict_blocks(w, w.ranks[0], 1)


def test_slice_given_back_with_another_size_is_refused() -> None:
    """It would be taken past the end of the array: the fault that this rule comes from."""
    array, heads = np.zeros(8), make_heads()
    take_slice(array, heads, 4)
    second = take_slice(array, heads, 4)
    with pytest.raises(TableFullError, match=r"^slices$"):
        give_back_slice(array, heads, second, 8)
    with pytest.raises(TableFullError, match=r"^slices$"):
        give_back_slice(array, heads, NONE, 4)
    assert not math.isnan(array.sum())


CHECKED = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_DISABLE_JIT": "0"}

UNGRANTED = """
from fleet.worlds import new_world
from aisim_gym.engine.kv_pool import take_block_row
from aisim_gym.errors import TableFullError
from aisim_gym.fleet.room import request_room_in_cache
w = new_world(workers=1).world
assert request_room_in_cache(w, 2, 0)
take_block_row(w.blocks, w.arena), take_block_row(w.blocks, w.arena)
try:
    take_block_row(w.blocks, w.arena)
except TableFullError as error:
    print(error)
"""


def test_checked_build_grants_no_more_rows_than_requested() -> None:
    environment = {**os.environ, **CHECKED, "PYTHONPATH": "tests"}
    command = [sys.executable, "-c", UNGRANTED]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == "blocks granted\n"
