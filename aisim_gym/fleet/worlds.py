"""World types: one per backend, so that compiled code is specialised by the backend of a run."""

from aisim_gym.engine.sglang import SGLANG
from aisim_gym.engine.trtllm import TRTLLM, TRTLLM_DRAFTING
from aisim_gym.engine.vllm import VLLM, VLLM_DRAFTING
from aisim_gym.fleet.world import World


class VllmWorld(World):
    """A world of vLLM engines."""

    backend = VLLM


class VllmDraftingWorld(World):
    """A world of vLLM engines with speculative decoding."""

    backend = VLLM_DRAFTING


class TrtllmWorld(World):
    """A world of TensorRT-LLM engines."""

    backend = TRTLLM


class TrtllmDraftingWorld(World):
    """A world of TensorRT-LLM engines with speculative decoding."""

    backend = TRTLLM_DRAFTING


class SglangWorld(World):
    """A world of SGLang engines."""

    backend = SGLANG


WORLD_TYPES: tuple[type[World], ...] = (
    VllmWorld,
    VllmDraftingWorld,
    TrtllmWorld,
    TrtllmDraftingWorld,
    SglangWorld,
)
_BY_BACKEND = {
    "vllm": (VllmWorld, VllmDraftingWorld),
    "trtllm": (TrtllmWorld, TrtllmDraftingWorld),
    "sglang": (SglangWorld, SglangWorld),
}
"""World type of a backend without and with speculative decoding."""


def world_type(backend: str, drafts: bool) -> type[World]:
    """Return the world type of a backend.

    Args:
        backend: Name of the backend.
        drafts: Whether any engine of the fleet decodes speculatively.
    """
    return _BY_BACKEND[backend][int(drafts)]
