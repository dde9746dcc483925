"""Queues of handoff actions are first in, first out."""

from hypothesis import given
from hypothesis import strategies as st

from aisim_gym.engine.tables import NONE
from aisim_gym.fleet.action_queue import append_action, clear_queue, move_actions, pop_action
from aisim_gym.fleet.tables import ActionQueueRow, HandoffRow
from aisim_gym.tables import Table, make_table

NUM_REQUESTS = 12


def contents(queue: ActionQueueRow, handoffs: Table[HandoffRow]) -> list[int]:
    found, at = [], int(queue.first)
    while at != NONE:
        found.append(at)
        at = int(handoffs[at].next)
    return found


@given(st.lists(st.tuples(st.sampled_from(["append", "pop", "move"]), st.integers(0, 2))))
def test_actions_keep_their_order_also_when_a_whole_queue_moves(
    steps: list[tuple[str, int]],
) -> None:
    handoffs, queues = make_table(HandoffRow, NUM_REQUESTS), make_table(ActionQueueRow, 3)
    expected: list[list[int]] = [[], [], []]
    for kind in range(3):
        clear_queue(queues[kind])
    free = list(range(NUM_REQUESTS))
    for step, kind in steps:
        target = (kind + 1) % 3
        if step == "append" and free:
            expected[kind].append(free[0])
            append_action(queues[kind], handoffs, free.pop(0))
        elif step == "pop" and expected[kind]:
            request = expected[kind].pop(0)
            assert pop_action(queues[kind], handoffs) == request
            free.append(request)
        elif step == "move":
            expected[target] += expected[kind]
            expected[kind] = []
            move_actions(queues[kind], queues[target], handoffs)
        assert [contents(queues[at], handoffs) for at in range(3)] == expected
