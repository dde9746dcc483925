"""World types, one per backend, so that compiled code is specialised by backend."""

from aisim_gym.engine.backend import Backend
from aisim_gym.engine.sglang import SGLANG
from aisim_gym.engine.trtllm import TRTLLM, TRTLLM_DRAFTING
from aisim_gym.engine.vllm import VLLM, VLLM_DRAFTING
from aisim_gym.fleet.world import World

BACKENDS: dict[str, tuple[Backend, Backend]] = {
    "vllm": (VLLM, VLLM_DRAFTING),
    "trtllm": (TRTLLM, TRTLLM_DRAFTING),
    "sglang": (SGLANG, SGLANG),
}
"""By name: the backend of a fleet without drafts, and of one with speculative decoding. Both are
equal where drafting needs no separate code."""


def _make_world_types() -> dict[Backend, type[World]]:
    """Return one world type per backend, under a public name of this module (for pickling)."""
    made: dict[Backend, type[World]] = {}
    for name, backends in BACKENDS.items():
        for kind, backend in zip(("", "Drafting"), backends, strict=True):
            if backend not in made:
                type_name = f"{name.capitalize()}{kind}World"
                members = {"backend": backend, "__module__": __name__, "__doc__": World.__doc__}
                made[backend] = globals()[type_name] = type(type_name, (World,), members)
    return made


_TYPE_OF = _make_world_types()
WORLD_TYPES = tuple(_TYPE_OF.values())


def world_type(backend: str, drafts: bool) -> type[World]:
    """Return the world type of a backend.

    Args:
        backend: Name of the backend.
        drafts: Whether any engine of the fleet decodes speculatively.
    """
    return _TYPE_OF[BACKENDS[backend][int(drafts)]]
