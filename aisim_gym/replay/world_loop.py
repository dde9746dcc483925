"""The compiled loop over many worlds, run by the threads of a batch.

Threads take their next world from a shared counter. The compiled ``advance`` is called by its
address, so that it is not compiled a second time and no Python runs between two worlds.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from aisim_gym.fleet.world import World
from aisim_gym.kernel import entry_point
from aisim_gym.numba_adapter import (
    IS_COMPLETE,
    SETTINGS,
    WORD,
    intrinsic,
    native_address,
    take_next,
)
from aisim_gym.replay.advance import advance
from aisim_gym.replay.settle import STATUS_TICK

NOT_RUN = -1
"""Status of a world that did not run, because it waits at a tick, has ended or has failed."""

NO_WORLD = -1
"""Result when no world is left."""

IS_COMPILED = IS_COMPLETE and not SETTINGS.DISABLE_JIT
"""Whether the compiled ``advance`` can be called by its address."""


@entry_point
def advance_worlds(
    example: World,
    addresses: NDArray[Any],
    functions: NDArray[Any],
    statuses: NDArray[Any],
    next_world: NDArray[Any],
    instants: int,
) -> int:
    """Run worlds to their next ticks until one stops for another reason.

    Args:
        example: Any world; all worlds have the same tables.
        addresses: Shape (worlds,), int64: addresses of the worlds, 0 to skip a world.
        functions: Shape (worlds,), int64: address of ``advance`` for each world.
        statuses: Shape (worlds,), int64: results of ``advance``; modified in place.
        next_world: Shape (1,), int64: index of the next world, shared between threads.
        instants: Maximum number of instants per call of ``advance``.

    Returns:
        Index of the world that stopped for another reason than a tick; ``NO_WORLD`` if none is
        left.
    """
    while True:
        world: int = take_next(next_world)
        if world >= len(addresses):
            return NO_WORLD
        statuses[world] = NOT_RUN
        if addresses[world] == 0:
            return world
        clock = _world_at(example, addresses[world]).clock
        if clock.tick_shown:
            return world
        clock.instants_left = instants
        statuses[world] = _call(functions[world], addresses[world])
        if statuses[world] != STATUS_TICK:
            return world


_addresses: dict[type[World], int] = {}


def advance_address(world: World) -> int:
    """Return the address of ``advance`` compiled for this world type: ``int64 f(int64 *world)``."""
    world_class = type(world)
    if world_class not in _addresses:
        _addresses[world_class] = native_address(advance, world)
    return _addresses[world_class]


@intrinsic
def _world_at(typing_context: Any, example: Any, address: Any) -> Any:
    """Return the world at an address, with the tables of ``example``'s class."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[1], WORD.as_pointer())

    return example(example, types.int64), generate


@intrinsic
def _call(typing_context: Any, function: Any, address: Any) -> Any:
    """Call the function at an address with the world at an address; return its result."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = WORD.as_pointer()
        callee = builder.inttoptr(args[0], ir.FunctionType(WORD, [pointer]).as_pointer())
        return builder.call(callee, [builder.inttoptr(args[1], pointer)])

    return types.int64(types.int64, types.int64), generate
