"""Read the reference's profile files, five arrays in an ``.npz``, with its checks and errors.

They are ``prefill_isl`` (n,) and ``prefill_ttft_ms`` (n,), ``decode_active_kv_tokens`` (p,),
``decode_context_length`` (q,) and ``decode_itl`` (p, q), all float64. A cached prefix only reduces
the new tokens; a decode takes at least 1 ms (engine-vllm-trtllm.md §2.3).
"""

import json
import os
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from aisim_gym.errors import SpecError
from aisim_gym.spec.refusals import UnsupportedSpecError
from aisim_gym.spec.timing_table import Floats, Grid, TimingTable

DECODE_FLOOR_MS = 1.0
LONGEST_MS = 9e9
"""104 days: beyond, a double cannot represent whole nanoseconds."""

_NDIMS = {
    "prefill_isl": 1,
    "prefill_ttft_ms": 1,
    "decode_active_kv_tokens": 1,
    "decode_context_length": 1,
    "decode_itl": 2,
}
_NO_ZIP = "invalid Zip archive: Could not find EOCD"
_NO_MEMBER = "specified file not found in archive"


def read_dynamo_profile(path: str) -> TimingTable:
    """Return the table in a profile file.

    NaN is allowed, as in the reference: a duration that depends on it takes the minimum.

    Raises:
        SpecError: If the file cannot be read or is not valid, with the reference's message.
        UnsupportedSpecError: If it holds infinite durations or durations beyond 104 days; the
            reference fails on them in the middle of a run.
    """
    arrays = _read_arrays(path)
    isl, ttft_ms, active, context, itl_ms = (arrays[name] for name in _NDIMS)
    if len(isl) != len(ttft_ms):
        raise SpecError(f"Prefill array length mismatch: isl={len(isl)}, ttft={len(ttft_ms)}")
    if itl_ms.shape != (len(active), len(context)):
        rows, columns = itl_ms.shape
        raise SpecError(
            f"Decode array dimension mismatch: itl shape=({rows}, {columns}), "
            f"active_kv={len(active)}, context={len(context)}"
        )
    _check_axes(isl, active, context)
    for name in ("prefill_ttft_ms", "decode_itl"):
        longest = np.abs(arrays[name]) > LONGEST_MS
        if longest.any():
            raise UnsupportedSpecError(
                f"{json.dumps(path, ensure_ascii=False)}: {name}: got {arrays[name][longest][0]} "
                f"ms, expected at most {LONGEST_MS:g}"
            )
    return TimingTable(
        prefill=Grid(isl, np.zeros(1), ttft_ms[:, None]),
        decode=Grid(active, context, itl_ms),
        rows_are_sequences=False,
        clamps=False,
        prefill_floor_ms=0.0,
        decode_floor_ms=DECODE_FLOOR_MS,
    )


def _read_arrays(path: str) -> dict[str, Floats]:
    quoted = json.dumps(path, ensure_ascii=False)
    try:
        content = BytesIO(Path(path).read_bytes())
    except OSError as error:
        reason = f"{os.strerror(error.errno or 0)} (os error {error.errno})"
        raise SpecError(f"Failed to open NPZ file: {quoted}: {reason}") from None
    try:
        archive = ZipFile(content)
    except BadZipFile:
        raise SpecError(
            f"Failed to create NPZ reader for: {quoted}: zip file error: {_NO_ZIP}: {_NO_ZIP}"
        ) from None
    with archive:
        return {name: _read_array(archive, name, ndim) for name, ndim in _NDIMS.items()}


def _read_array(archive: ZipFile, name: str, ndim: int) -> Floats:
    failed = f"Failed to load {name} from NPZ:"
    try:
        member = archive.read(f"{name}.npy")
    except KeyError:
        raise SpecError(f"{failed} zip file error: {_NO_MEMBER}: {_NO_MEMBER}") from None
    except (BadZipFile, OSError, zlib.error) as error:
        raise SpecError(f"{failed} zip file error: {error}") from None
    reason = ""
    try:
        dtype = _stored_dtype(member)
        if dtype not in (np.dtype("<f8"), np.dtype(">f8")):
            descriptor = np.lib.format.dtype_to_descr(dtype)
            reason = f"incorrect descriptor ({descriptor!r}) for this type"
        else:
            array = np.lib.format.read_array(BytesIO(member), allow_pickle=False)
            if array.ndim == ndim:
                return np.ascontiguousarray(array, np.float64)
            given = f"ndim {array.ndim} of array"
            reason = f"{given} did not match Dimension type with NDIM = Some({ndim})"
    except (EOFError, ValueError) as error:
        reason = str(error)
    raise SpecError(f"{failed} error reading npy file in npz archive: {reason}: {reason}")


def _stored_dtype(member: bytes) -> np.dtype[Any]:
    """Return the dtype named in the header of an ``.npy`` file.

    Raises:
        ValueError: If the header is missing.
    """
    file = BytesIO(member)
    is_old = np.lib.format.read_magic(file) == (1, 0)
    read_header: Any = (
        np.lib.format.read_array_header_1_0 if is_old else np.lib.format.read_array_header_2_0
    )
    dtype: np.dtype[Any] = read_header(file)[2]
    return dtype


def _check_axes(isl: Floats, active: Floats, context: Floats) -> None:
    """Check the axes in the order of the reference.

    Raises:
        SpecError: If an axis has fewer than two points or is not strictly increasing.
    """
    failed = "Failed to build prefill interpolator:"
    if len(isl) < 2:
        raise SpecError(
            f"{failed} The chosen Interpolation strategy needs at least 2 data points"
            f", got {len(isl)} in prefill_isl"
        )
    _check_rises(isl, f"{failed} Values in the x axis need", "prefill_isl")
    failed = "Failed to build decode interpolator: The"
    for dimension, axis in enumerate((active, context)):
        if len(axis) < 2:
            raise SpecError(
                f"{failed} {dimension}-dimension has not enough data for the chosen interpolation "
                f"strategy. Provided: {len(axis)}, Reqired: 2"
            )
    _check_rises(active, f"{failed} x-axis needs", "decode_active_kv_tokens")
    _check_rises(context, f"{failed} y-axis needs", "decode_context_length")


def _check_rises(axis: Floats, claim: str, name: str) -> None:
    if not bool(np.all(np.diff(axis) > 0.0)):
        raise SpecError(f"{claim} to be strictly monotonic rising, got {axis.tolist()} in {name}")
