"""The compiled loop over many worlds, for the threads of a batch.

Threads share a counter, from which each takes its next world. The compiled ``advance`` is called by
its address, so it is neither compiled a second time nor is Python needed between two worlds.
"""

from collections.abc import Callable
from typing import Any, cast

import numba
import numba.extending
from llvmlite import ir
from numba import types
from numba.core import config as _config
from numba.np import arrayobj
from numpy.typing import NDArray

from aisim_gym.fleet.world import World
from aisim_gym.kernel import entry_point
from aisim_gym.replay.advance import advance
from aisim_gym.replay.settle import STATUS_TICK

_NUMBA: Any = numba
_SETTINGS: Any = _config
_ARRAYS: Any = arrayobj
_WORD = ir.IntType(64)

NOT_RUN = -1
"""Status of a world that did not run: it waits at a tick, is at its end, or has failed."""

NO_WORLD = -1
"""What is returned when no world is left."""

IS_COMPILED = not _SETTINGS.DISABLE_JIT
"""Whether there is a compiled ``advance`` that can be called by its address."""


@entry_point
def advance_worlds(
    example: World,
    addresses: NDArray[Any],
    functions: NDArray[Any],
    statuses: NDArray[Any],
    next_world: NDArray[Any],
    instants: int,
) -> int:
    """Run worlds to their next ticks until one stops for something else.

    Args:
        example: Any world; all worlds have the same tables.
        addresses: Shape (worlds,), int64: of the bundles, 0 for a world that must not run.
        functions: Shape (worlds,), int64: address of ``advance`` for each world.
        statuses: Shape (worlds,), int64: what ``advance`` returned; modified in place.
        next_world: Shape (1,), int64: the world to take next; shared between threads.
        instants: How much of a run one call of ``advance`` covers at most.

    Returns:
        The world that stopped for something else than a tick; ``NO_WORLD`` if there are no more.
    """
    while True:
        world: int = _take_next(next_world)
        if world >= len(addresses):
            return NO_WORLD
        statuses[world] = NOT_RUN
        if addresses[world] == 0:
            return world
        clock = _bundle_at(example, addresses[world]).clock
        if clock.tick_shown:
            return world
        clock.instants_left = instants
        statuses[world] = _call(functions[world], addresses[world])
        if statuses[world] != STATUS_TICK:
            return world


_addresses: dict[type[World], int] = {}


def advance_address(world: World) -> int:
    """Return where ``advance`` is, compiled for worlds of this type: ``int64 f(int64 *bundle)``."""
    world_class = type(world)
    if world_class not in _addresses:
        dispatcher: Any = advance
        argument_types = (_NUMBA.typeof(world),)
        dispatcher.compile(argument_types)
        compiled = dispatcher.overloads[argument_types]
        assert compiled.signature.return_type == types.int64, compiled.signature
        name = compiled.fndesc.llvm_cfunc_wrapper_name
        _addresses[world_class] = int(compiled.library.get_pointer_to_function(name))
    return _addresses[world_class]


def _intrinsic(generator: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function generate the code of its calls, which lack its first parameter."""
    return cast(Callable[..., Any], _NUMBA.extending.intrinsic(generator))


@_intrinsic
def _take_next(typing_context: Any, counter: Any) -> Any:
    """Return the value of ``counter[0]`` and add 1 to it, in one step for all threads."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = _ARRAYS.make_array(signature.args[0])(context, builder, args[0])
        return builder.atomic_rmw("add", array.data, ir.Constant(_WORD, 1), "monotonic")

    return types.int64(counter), generate


@_intrinsic
def _bundle_at(typing_context: Any, example: Any, address: Any) -> Any:
    """Return the bundle at an address; it has the tables of ``example``'s class."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[1], _WORD.as_pointer())

    return example(example, types.int64), generate


@_intrinsic
def _call(typing_context: Any, function: Any, address: Any) -> Any:
    """Return what the function at an address returns for the bundle at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _WORD.as_pointer()
        callee = builder.inttoptr(args[0], ir.FunctionType(_WORD, [pointer]).as_pointer())
        return builder.call(callee, [builder.inttoptr(args[1], pointer)])

    return types.int64(types.int64, types.int64), generate
