"""Queues of requests with a waiting handoff action, linked through the handoff table."""

from aisim_gym.engine.tables import NONE
from aisim_gym.fleet.tables import ActionQueueRow, HandoffRow
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table


@kernel
def clear_queue(queue: ActionQueueRow) -> None:
    """Make the queue empty."""
    queue.first = NONE
    queue.last = NONE


@kernel
def append_action(queue: ActionQueueRow, handoffs: Table[HandoffRow], request: int) -> None:
    """Append a request to the queue."""
    handoffs[request].next = NONE
    if queue.first == NONE:
        queue.first = request
    else:
        handoffs[queue.last].next = request
    queue.last = request


@kernel
def prepend_action(queue: ActionQueueRow, handoffs: Table[HandoffRow], request: int) -> None:
    """Insert a request at the front of the queue."""
    handoffs[request].next = queue.first
    if queue.first == NONE:
        queue.last = request
    queue.first = request


@kernel
def pop_action(queue: ActionQueueRow, handoffs: Table[HandoffRow]) -> int:
    """Remove and return the first request of a queue that is not empty."""
    request = queue.first
    queue.first = handoffs[request].next
    if queue.first == NONE:
        queue.last = NONE
    return int(request)


@kernel
def move_actions(
    source: ActionQueueRow, target: ActionQueueRow, handoffs: Table[HandoffRow]
) -> None:
    """Append all of ``source`` to ``target``."""
    if source.first == NONE:
        return
    if target.first == NONE:
        target.first = source.first
    else:
        handoffs[target.last].next = source.first
    target.last = source.last
    clear_queue(source)
