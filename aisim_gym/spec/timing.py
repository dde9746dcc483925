"""Timing models: durations of passes (engine-vllm-trtllm.md §2.3)."""

import os
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self
from zipfile import BadZipFile

import numpy as np
from annotated_types import Ge, Le
from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    Strict,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from aisim_gym.spec.dynamo_profile import LONGEST_MS, read_dynamo_profile
from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.refusals import MisfitError, UnsupportedSpecError
from aisim_gym.spec.scalars import F64, Refusal, RustType, Text
from aisim_gym.spec.timing_table import LEAST_MS, Grid, TimingTable
from aisim_gym.spec.wording import Wording

Axis = tuple[Annotated[F64, Ge(0)], ...]
Durations = tuple[tuple[Annotated[F64, Ge(0), Le(LONGEST_MS)], ...], ...]


class _TimingModel(SpecModel):
    """Base of the reference's timing models; unknown keys are ignored, as in the reference."""

    model_config = ConfigDict(extra="ignore")


class PolynomialTiming(_TimingModel):
    """The reference's built-in polynomial in tokens and cached tokens."""

    type: Literal["polynomial"] = Field(default="polynomial", description="Kind of timing model")


class FixedTiming(_TimingModel):
    """Constant durations of the prefill and the decode part of a pass."""

    type: Literal["fixed"] = Field(default="fixed", description="Kind of timing model")
    prefill_ms: Annotated[F64, Refusal("fixed prefill latency must be finite and non-negative")] = (
        Field(ge=0, description="Added to a pass that prefills anything, ms, >= 0")
    )
    decode_ms: Annotated[F64, Refusal("fixed decode latency must be finite and non-negative")] = (
        Field(ge=0, description="Added to a pass that decodes anything, ms, >= 0")
    )


class ProfileConfig(SpecModel):
    """Configuration of the provider ``dynamo_profile``."""

    wording: ClassVar[Wording] = Wording("struct Profile")

    path: Annotated[str, Strict(), RustType("path string")] = Field(
        description="The reference's profile file, .npz; in a spec file relative to its folder"
    )

    @field_validator("path")
    @classmethod
    def _resolve_path(cls, path: str, info: ValidationInfo) -> str:
        return _resolved(path, info)


class ExternalTiming(_TimingModel):
    """A named provider; only the reference's ``dynamo_profile``, which reads profile files.

    The file is read when the first replay is built, as the reference does.
    """

    type: Literal["external"] = Field(default="external", description="Kind of timing model")
    provider: Text = Field(description="Name of the provider: dynamo_profile")
    config: ProfileConfig = Field(
        default=None,  # refused in the reference's words
        validate_default=True,
        description="Passed to the provider",
    )

    @field_validator("provider")
    @classmethod
    def _check_provider(cls, provider: str) -> str:
        if not provider:
            raise ValueError("timing provider cannot be empty")
        if provider != "dynamo_profile":
            raise UnsupportedSpecError(
                f'unsupported external timing provider "{provider}"; replayed are: '
                "`dynamo_profile`; or use `polynomial`, `fixed` or `table`"
            )
        return provider

    @field_validator("config", mode="wrap")
    @classmethod
    def _check_config(
        cls, config: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        return handler(config) if "provider" in info.data else config

    @cached_property
    def table(self) -> TimingTable:
        """The timing table of the file, read once.

        Raises:
            SpecError: If the file cannot be read or is not valid.
        """
        return read_dynamo_profile(self.config.path)


class PrefillTable(SpecModel):
    """Durations of the prefill part of a pass."""

    new_tokens: Axis = Field(
        description="Rows: prompt tokens that the pass computes, strictly increasing, at least two"
    )
    prefix_tokens: Axis = Field(
        default=(0.0,),
        description="Columns: prompt tokens known before, mean over the pass's requests; with one "
        "column they do not matter",
    )
    ms: Durations = Field(description="One row per new_tokens, one column per prefix_tokens, ms")

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        _check_grid(self, "new_tokens", "prefix_tokens")
        return self


class DecodeTable(SpecModel):
    """Durations of the decode part of a pass."""

    sequences: Axis | None = Field(
        default=None, description="Rows: sequences that decode, strictly increasing, at least two"
    )
    active_tokens: Axis | None = Field(
        default=None, description="Rows instead of sequences: sum of their context tokens"
    )
    context_tokens: Axis = Field(
        description="Columns: mean context of a sequence, strictly increasing"
    )
    ms: Durations = Field(description="One row per sequences or active_tokens, one column each, ms")

    @property
    def row_name(self) -> Literal["sequences", "active_tokens"]:
        """Name of the row axis."""
        return "active_tokens" if self.sequences is None else "sequences"

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        if (self.sequences is None) == (self.active_tokens is None):
            given = "none" if self.sequences is None else "both"
            raise ValueError(f"expected either sequences or active_tokens, got {given}")
        _check_grid(self, self.row_name, "context_tokens")
        return self

    @model_serializer(mode="wrap")
    def _omit_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        return {name: value for name, value in fields.items() if value is not None}


class TableTiming(SpecModel):
    """Durations between the points of grids: a measured engine, or a sampled function.

    Interpolated bilinearly in the raw coordinates. A prefill is looked up by the tokens that the
    pass computes and the mean prefix of its requests, a decode by its sequences (or active tokens)
    and their mean context; means are floored to whole tokens. Attention of a decode costs a time
    per sequence and context token, so over sequences and context a real engine is nearly bilinear,
    which it is not over active tokens. Each part takes at least 1 us.
    """

    type: Literal["table"] = Field(default="table", description="Kind of timing model")
    prefill: PrefillTable = Field(description="Durations of prefills")
    decode: DecodeTable = Field(description="Durations of decodes")
    outside: Literal["extend", "clamp"] = Field(
        default="extend",
        description="Beyond the grids: extend = extrapolate the outermost cells, clamp = use edges",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_path(cls, data: Any, info: ValidationInfo) -> Any:
        """Replace ``path`` by the contents of the file."""
        if not isinstance(data, Mapping) or "path" not in data:
            return data
        path = data["path"]
        if not isinstance(path, str | os.PathLike):
            raise MisfitError("path", f"got {path!r}, expected the path of a file")
        given = sorted({"prefill", "decode"} & data.keys())
        if given:
            raise ValueError(f"expected either path or prefill and decode, got path and {given[0]}")
        others = {key: value for key, value in data.items() if key != "path"}
        return {**_read_table(Path(_resolved(os.fspath(path), info))), **others}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a table written by :meth:`save`.

        Raises:
            SpecError: If the file cannot be read or is not valid.
        """
        return cls.from_data({"type": "table", "path": path})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to an ``.npz`` file for :meth:`load` or ``path`` in a spec.

        Its arrays are ``prefill_new_tokens``, ``prefill_prefix_tokens``, ``prefill_ms``,
        ``decode_sequences`` or ``decode_active_tokens``, ``decode_context_tokens``, ``decode_ms``
        and ``outside``.
        """
        arrays: dict[str, Any] = {"outside": np.array(self.outside)}
        for part in ("prefill", "decode"):
            for name, values in getattr(self, part).model_dump().items():
                arrays[f"{part}_{name}"] = np.array(values)
        with Path(path).expanduser().open("wb") as file:
            np.savez_compressed(file, **arrays)

    @cached_property
    def table(self) -> TimingTable:
        """The model as arrays."""
        prefill, decode = self.prefill, self.decode
        rows = getattr(decode, decode.row_name)
        return TimingTable(
            prefill=_grid(prefill.new_tokens, prefill.prefix_tokens, prefill.ms),
            decode=_grid(rows, decode.context_tokens, decode.ms),
            rows_are_sequences=decode.row_name == "sequences",
            clamps=self.outside == "clamp",
            prefill_floor_ms=LEAST_MS,
            decode_floor_ms=LEAST_MS,
        )


TimingModel = Annotated[
    PolynomialTiming | FixedTiming | ExternalTiming | TableTiming,
    Field(discriminator="type"),
    RustType("internally tagged enum TimingModelConfig", "a table with `type`"),
]
"""A timing model, discriminated by ``type``."""


def _resolved(path: str, info: ValidationInfo) -> str:
    """Return the path resolved against the folder of the spec file, if any."""
    folder: Path | None = (info.context or {}).get("folder")
    return path if folder is None else os.path.abspath(folder / Path(path).expanduser())


def _grid(rows: Axis, columns: Axis, ms: Durations) -> Grid:
    return Grid(np.array(rows, float), np.array(columns, float), np.array(ms, float))


def _check_grid(model: PrefillTable | DecodeTable, row_name: str, column_name: str) -> None:
    rows, columns = getattr(model, row_name), getattr(model, column_name)
    for name, axis, least in ((row_name, rows, 2), (column_name, columns, 1)):
        if len(axis) < least:
            raise MisfitError(name, f"got {len(axis)} points, expected at least {least}")
        for low, high in pairwise(axis):
            if low >= high:
                raise MisfitError(name, f"got {low:g} before {high:g}, expected increasing numbers")
    widths = sorted({len(row) for row in model.ms})
    if len(model.ms) != len(rows) or widths != [len(columns)]:
        raise MisfitError(
            "ms",
            f"got {len(model.ms)} rows of {' or '.join(map(str, widths)) or 'no'} numbers, "
            f"expected {len(rows)} of {len(columns)}: one row per {row_name}, one number per "
            f"{column_name}",
        )


def _read_table(path: Path) -> dict[str, Any]:
    """Return the contents of a file of :meth:`TableTiming.save` as plain data."""
    try:
        with path.expanduser().open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name].tolist() for name in file.files}
    except OSError as error:
        raise MisfitError("path", f"cannot read {path}: {error.strerror or error}") from None
    except (AttributeError, BadZipFile, EOFError, TypeError, ValueError) as error:
        raise MisfitError("path", f"{path}: not a timing table written by save()") from error
    data: dict[str, Any] = {"prefill": {}, "decode": {}}
    for name, values in arrays.items():
        part, _, field = name.partition("_")
        if part in data and field:
            data[part][field] = values
        else:
            data[name] = values
    return data
