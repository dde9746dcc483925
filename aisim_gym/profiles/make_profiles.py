"""Generate the profiles of this package: ``python -m aisim_gym.profiles.make_profiles FOLDER``.

``FOLDER`` holds timing files of the form ``aisim-timing/1``, on finer grids and with the licences
in ``docs/engine-profiles.md``, and ``costs_startup.json``. Each profile keeps the durations at
``NEW_TOKENS`` x ``PREFIX_TOKENS`` and ``SEQUENCES`` x ``CONTEXT_TOKENS``, and records its error
against the source at the omitted points.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aisim_gym.profiles.engine_profile import FOLDER, FORMAT

Floats = NDArray[np.float64]

NEW_TOKENS = (1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
PREFIX_TOKENS = (0, 2048, 8192, 32768, 65536)
SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 512)
CONTEXT_TOKENS = (16, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536)

SOURCES = {
    "a100-llama31-8b": "a100_sxm-llama31-8b-vllm-tp1",
    "b200-deepseek-v31-nvfp4-tp4": "b200_sxm-deepseek-v31-nvfp4-trtllm-tp4",
    "b200-llama31-70b-fp8": "b200_sxm-llama31-70b-fp8-trtllm-tp1",
    "h100-llama31-70b-tp4": "h100_sxm-llama31-70b-vllm-tp4",
    "h100-llama31-8b": "h100_sxm-llama31-8b-vllm-tp1",
    "h100-qwen3-30b-a3b": "h100_sxm-qwen3-30b-a3b-vllm-tp1",
    "h100-qwen3-32b-tp2": "h100_sxm-qwen3-32b-vllm-tp2",
    "h200-deepseek-r1-fp8-tp8": "h200_sxm-deepseek-r1-fp8-sglang-tp8",
    "h200-llama31-70b-fp8-tp2": "h200_sxm-llama31-70b-fp8-trtllm-tp2",
    "l40s-llama31-8b": "l40s-llama31-8b-vllm-tp1",
}
"""Profile name by source; names of multi-GPU workers contain the number of GPUs."""

CONTEXT_LIMITS = {"Llama-3.1": 131_072, "Qwen3": 40_960, "DeepSeek": 163_840}
"""Published context limit, by a substring of the model's name."""

BLOCK_SIZES = {"vllm": 64, "trtllm": 32, "sglang": 64}

STARTUPS = ((20e9, "warm"), (300e9, "local"), (float("inf"), "cold"))
"""Start-up of a worker by the bytes of its weights: up to 20 GB they and the kernels are cached,
up to 300 GB weights come from a local disk, larger ones from remote storage."""


def main() -> None:
    """Write all profiles."""
    parser = argparse.ArgumentParser(description=__doc__, prog="make_profiles")
    parser.add_argument("folder", type=Path, help="timing files and costs_startup.json")
    parser.add_argument("--output", type=Path, default=FOLDER, help="where profiles are written")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    costs = json.loads((arguments.folder / "costs_startup.json").read_text("utf-8"))
    for name, source in SOURCES.items():
        timing = json.loads((arguments.folder / f"{source}.json").read_text("utf-8"))
        profile = make_profile(name, timing, costs)
        (arguments.output / f"{name}.json").write_text(_text(profile), encoding="utf-8")
        errors = profile["table_error"]
        told = (f"{part} {error['mean']}/{error['max']} %" for part, error in errors.items())
        print(f"{name}: mean/max error {', '.join(told)}")


def make_profile(name: str, source: dict[str, Any], costs: dict[str, Any]) -> dict[str, Any]:
    """Return a profile as plain data.

    Args:
        name: Name of the profile.
        source: Content of a timing file.
        costs: Content of ``costs_startup.json``.
    """
    kv, tensor_parallel_size = source["kv"], source["tp"]
    weights_bytes = kv["weights_bytes_per_gpu"] * tensor_parallel_size
    startup = next(preset for most_bytes, preset in STARTUPS if weights_bytes <= most_bytes)
    prefill, decode = source["prefill"], source["decode"]
    prefill_ms, decode_ms = np.array(prefill["ms"]).T, np.array(decode["ms"])
    feasible = np.outer(decode["batch"], decode["context_tokens"]) <= kv["capacity_tokens"]
    prefills = _thinned(
        prefill_ms, (prefill["new_tokens"], NEW_TOKENS), (prefill["prefix_tokens"], PREFIX_TOKENS)
    )
    decodes = _thinned(
        decode_ms, (decode["batch"], SEQUENCES), (decode["context_tokens"], CONTEXT_TOKENS)
    )
    return {
        "format": FORMAT,
        "name": name,
        "model": source["model"],
        "gpu": source["gpu"],
        "precision": source["precision"],
        "backend": source["backend"],
        "backend_version": source["backend_version"],
        "tensor_parallel_size": tensor_parallel_size,
        "kv_bytes_per_token_per_gpu": kv["bytes_per_token_per_gpu"],
        "kv_transfer_bytes_per_token": kv["transfer_bytes_per_token"],
        "kv_capacity_tokens": kv["capacity_tokens"],
        "block_size": BLOCK_SIZES[source["backend"]],
        "max_num_seqs": kv["assumed_max_batch"],
        "max_num_batched_tokens": kv["assumed_max_num_tokens"],
        "max_model_len": _context_limit(source["model"]),
        "startup_s": float(costs["startup_presets_s"][startup]),
        "usd_per_gpu_hour": costs["default"][source["system"]],
        "provenance": source["provenance"],
        "table_error": {
            "prefill_pct": _error(prefill_ms, prefills[1], np.ones_like(prefill_ms, np.bool_)),
            "decode_pct": _error(decode_ms, decodes[1], feasible),
        },
        "timing_model": {
            "type": "table",
            "prefill": {
                "new_tokens": list(NEW_TOKENS),
                "prefix_tokens": list(PREFIX_TOKENS),
                "ms": prefills[0].tolist(),
            },
            "decode": {
                "sequences": list(SEQUENCES),
                "context_tokens": list(CONTEXT_TOKENS),
                "ms": decodes[0].tolist(),
            },
        },
    }


def _context_limit(model: str) -> int:
    return next(limit for family, limit in CONTEXT_LIMITS.items() if family in model)


def _thinned(
    ms: Floats, rows: tuple[list[int], tuple[int, ...]], columns: tuple[list[int], tuple[int, ...]]
) -> tuple[Floats, Floats]:
    """Return the kept durations and their interpolation at all points of the source.

    Args:
        ms: All durations.
        rows: All row positions, and the kept ones.
        columns: Likewise.
    """
    kept = np.round(ms[np.ix_(np.isin(*rows), np.isin(*columns))], 4)
    by_column = np.array([np.interp(rows[0], rows[1], column) for column in kept.T]).T
    said = np.array([np.interp(columns[0], columns[1], row) for row in by_column])
    return kept, said


def _error(ms: Floats, said: Floats, counts: NDArray[np.bool_]) -> dict[str, float]:
    """Return mean and maximum relative error in % over the selected points that are not kept."""
    error_pct = 100.0 * np.abs(said / ms - 1.0)[counts & (np.abs(said - ms) > 1e-4)]
    return {"mean": round(float(error_pct.mean()), 2), "max": round(float(error_pct.max()), 2)}


def _text(profile: dict[str, Any]) -> str:
    """Return JSON with one line per row of a table."""
    tables = profile["timing_model"]
    marks = {}
    for part in ("prefill", "decode"):
        for key, values in tables[part].items():
            rows = [json.dumps(row) for row in values]
            mark = f"<{part}.{key}>"
            marks[mark] = (
                "[\n        " + ",\n        ".join(rows) + "\n      ]"
                if key == "ms"
                else f"[{', '.join(rows)}]"
            )
            tables[part][key] = mark
    text = json.dumps(profile, indent=2)
    for mark, value in marks.items():
        text = text.replace(json.dumps(mark), value)
    return text + "\n"


if __name__ == "__main__":
    main()
