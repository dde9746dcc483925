"""The interface of a scheduler backend, and how compiled code finds the backend of a run.

A backend is one file with kernels and a :class:`Backend` that lists them, plus one line in
``fleet/worlds.py`` that gives it a world type. Compiled functions are specialised by that type, so
a run compiles only its own backend.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.tables import (
    ArenaRow,
    BlockRow,
    NodeRow,
    QueueRow,
    SeqRow,
)
from aisim_gym.kernel import dispatched
from aisim_gym.tables import Table


class RankTables(Protocol):
    """The tables shared by all engines, as the world contains them."""

    @property
    def queues(self) -> Table[QueueRow]: ...  # noqa: D102
    @property
    def seqs(self) -> Table[SeqRow]: ...  # noqa: D102
    @property
    def blocks(self) -> Table[BlockRow]: ...  # noqa: D102
    @property
    def nodes(self) -> Table[NodeRow]: ...  # noqa: D102
    @property
    def arena(self) -> ArenaRow: ...  # noqa: D102
    @property
    def entries(self) -> NDArray[np.int64]: ...  # noqa: D102
    @property
    def entry_heads(self) -> NDArray[np.int64]: ...  # noqa: D102
    @property
    def contents(self) -> NDArray[np.int64]: ...  # noqa: D102
    @property
    def timing_grids(self) -> NDArray[np.float64]: ...  # noqa: D102
    @property
    def decode_times_ms(self) -> NDArray[np.float64]: ...  # noqa: D102
    @property
    def prefill_times_ms(self) -> NDArray[np.float64]: ...  # noqa: D102
    @property
    def draws(self) -> NDArray[np.int64]: ...  # noqa: D102


class Backend(NamedTuple):
    """A scheduler backend: its properties and kernels.

    All kernels except ``run_pass`` operate on the state between two passes.

    Attributes:
        reserves_first: A handoff reserves its destination before it computes the prompt.
        has_tree: Its cache is a radix tree, which needs the node table.
        preempts: Running requests may be preempted.
        recomputes_last: A fully cached prompt is recomputed from its last block.
        output_limit: ``(t, engine, prompt_tokens, output_tokens)``: maximum output tokens of a
            new sequence.
        list_size: ``(t, engine, tokens)``: elements of ``entries`` that a sequence of ``tokens``
            tokens (prompt and output) needs.
        submit: ``(t, rank, s)``: queue a new sequence.
        cancel: ``(t, engine, rank, s)``: remove a live sequence from the rank, whatever its state;
            the caller deletes the row.
        release_source: ``(t, engine, rank, s)``: likewise, a held source with transferred KV.
        accept_destination: ``(t, engine, rank, s)``: queue a destination for its blocks; False if
            it can never run here.
        reserve_destination: ``(t, engine, rank)``: try to reserve blocks for the first pending
            destination; return it, or ``NONE``.
        activate_destination: ``(t, engine, rank, s)``: queue a destination whose KV has arrived.
        run_pass: ``(t, engine, rank, work, now_ms, wave)``: start a pass (schedule, admit, emit)
            and fill ``work``, including ``end_ms``.
        steady_passes: ``(t, engine, rank, last_entry)``: number of steady decode passes that an
            idle rank is certain to run next, see :mod:`~aisim_gym.engine.steady_decode`; else 0.
        join_decodes: ``(t, engine, rank, work)``: at the start of steady decode, admit the
            sequences that decode from its first pass on.
        advance_decodes: ``(t, engine, rank, work, num_passes, last_entry)``: apply ``num_passes``
            steady decode passes and store the signals of ending requests in ``work``.
        rows_for_decodes: ``(t, engine, rank, num_passes)``: free rows of the block table and of the
            node table that these passes may need.
        finish_group: ``(t, engine, ranks, passes, first_rank)``: called after the passes of all
            ranks of a worker have started; ``passes`` holds their results.
        block_demand: ``(t, engine, rank)``: free rows of the block table that a pass may need.
        node_demand: ``(t, engine, rank)``: free rows of the node table that a pass or a command may
            need.
        command_demand: ``(t, engine, prompt_tokens)``: maximum rows of the block table that a
            command on a sequence may take: activation, release or cancellation.
        reservation_demand: ``(t)``: maximum rows of the node table that a reservation may take.
        gauge_blocks: ``(t, engine, rank)``: (active, inactive) blocks that telemetry reports.
    """

    reserves_first: bool
    has_tree: bool
    preempts: bool
    recomputes_last: bool
    output_limit: Callable[..., int]
    list_size: Callable[..., int]
    submit: Callable[..., None]
    cancel: Callable[..., None]
    release_source: Callable[..., None]
    accept_destination: Callable[..., bool]
    reserve_destination: Callable[..., int]
    activate_destination: Callable[..., None]
    run_pass: Callable[..., None]
    steady_passes: Callable[..., int]
    join_decodes: Callable[..., None]
    advance_decodes: Callable[..., None]
    rows_for_decodes: Callable[..., tuple[int, int]]
    finish_group: Callable[..., None]
    block_demand: Callable[..., int]
    node_demand: Callable[..., int]
    command_demand: Callable[..., int]
    reservation_demand: Callable[..., int]
    gauge_blocks: Callable[..., tuple[int, int]]


output_limit = dispatched("output_limit")
list_size = dispatched("list_size")
submit = dispatched("submit")
cancel = dispatched("cancel")
release_source = dispatched("release_source")
accept_destination = dispatched("accept_destination")
reserve_destination = dispatched("reserve_destination")
activate_destination = dispatched("activate_destination")
run_pass = dispatched("run_pass")
steady_passes = dispatched("steady_passes")
join_decodes = dispatched("join_decodes")
advance_decodes = dispatched("advance_decodes")
rows_for_decodes = dispatched("rows_for_decodes")
finish_group = dispatched("finish_group")
block_demand = dispatched("block_demand")
node_demand = dispatched("node_demand")
command_demand = dispatched("command_demand")
reservation_demand = dispatched("reservation_demand")
gauge_blocks = dispatched("gauge_blocks")
