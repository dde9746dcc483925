"""Profile of an engine on a GPU: memory, limits and pass durations."""

import difflib
import json
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from aisim_gym.errors import SpecError

FORMAT = "aisim-profile/1"
FOLDER = Path(__file__).parent / "data"


@dataclass(frozen=True)
class EngineProfile:
    """One engine: model, GPU, precision and parallelism.

    Attributes:
        name: Name in configurations.
        model: Name of the model, as published.
        gpu: Product name of the GPU.
        precision: Precision of weights and KV cache.
        backend: ``vllm``, ``trtllm`` or ``sglang``.
        backend_version: Version for which the durations are estimated.
        tensor_parallel_size: GPUs of a worker.
        kv_bytes_per_token_per_gpu: KV bytes of a token on one GPU.
        kv_transfer_bytes_per_token: Bytes moved per token by a handoff.
        kv_capacity_tokens: KV capacity of a worker.
        block_size: Tokens per KV block.
        max_num_seqs: Maximum concurrently running requests.
        max_num_batched_tokens: Token budget of a pass.
        max_model_len: Context limit of the model.
        startup_s: Time until a new worker is active.
        usd_per_gpu_hour: List price on demand.
        provenance: Source and licence of the numbers.
        table_error: Relative error of the prefill and decode tables against their source, in %:
            mean and maximum over the omitted points.
        timing_model: The table, as in an engine config.
    """

    name: str
    model: str
    gpu: str
    precision: str
    backend: str
    backend_version: str
    tensor_parallel_size: int
    kv_bytes_per_token_per_gpu: int
    kv_transfer_bytes_per_token: int
    kv_capacity_tokens: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    startup_s: float
    usd_per_gpu_hour: float
    provenance: str
    table_error: dict[str, dict[str, float]]
    timing_model: dict[str, Any]

    @property
    def gpus_per_worker(self) -> int:
        """GPUs that a worker occupies and pays for."""
        return self.tensor_parallel_size

    @property
    def usd_per_worker_hour(self) -> float:
        """Price of a worker per hour."""
        return self.gpus_per_worker * self.usd_per_gpu_hour

    def engine_settings(self, block_size: int | None = None) -> dict[str, Any]:
        """Return the engine config fields given by the profile.

        Args:
            block_size: Overrides the profile's block size; the number of blocks follows from the
                capacity.
        """
        size = block_size or self.block_size
        return {
            "backend": self.backend,
            "block_size": size,
            "num_gpu_blocks": self.kv_capacity_tokens // size,
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_model_len": self.max_model_len,
            "timing_model": self.timing_model,
        }

    @classmethod
    def from_data(cls, data: Any, source: str) -> Self:
        """Build a profile from the JSON object in its file.

        Raises:
            SpecError: If the data is not a profile; names ``source``.
        """
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            given = data.get("format") if isinstance(data, dict) else type(data).__name__
            raise SpecError(f"{source}: got format {given!r}, expected {FORMAT!r}")
        known = {field.name for field in fields(cls)}
        given_names = data.keys() - {"format"}
        for names, what in ((known - given_names, "missing"), (given_names - known, "unknown")):
            if names:
                raise SpecError(f"{source}: {what} {', '.join(sorted(names))}")
        return cls(**{name: data[name] for name in known})


def profile_names() -> list[str]:
    """Return the names of the bundled profiles."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load_profile(name_or_path: str | os.PathLike[str], folder: Path | None = None) -> EngineProfile:
    """Read a profile.

    Args:
        name_or_path: A name of :func:`profile_names`, or a ``.json`` file of the same format.
        folder: Base of a relative path; None = the current folder.

    Raises:
        SpecError: If the name is unknown, or the file cannot be read or is not a profile.
    """
    text = os.fspath(name_or_path)
    path = (folder or Path()) / Path(text).expanduser()
    if path.suffix != ".json":
        path = FOLDER / f"{text}.json"
        names = profile_names()
        if text not in names:
            close = difflib.get_close_matches(text, names, n=1)
            guess = f"; did you mean {close[0]!r}?" if close else ""
            raise SpecError(
                f"unknown engine profile {text!r}{guess} ({', '.join(names)}, or a .json file)"
            )
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"cannot read engine profile {path}: {error.strerror}") from error
    except ValueError as error:
        raise SpecError(f"{path}: invalid JSON: {error}") from error
    return EngineProfile.from_data(data, str(path))
