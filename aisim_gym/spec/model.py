"""Base class of all specification models: frozen, no extra fields, readable errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from aisim_gym.spec.wording import Wording, spec_error

CallableT = TypeVar("CallableT", bound=Callable[..., None])


def _as_base_init(init: CallableT) -> CallableT:
    """Mark ``init`` as pydantic's own.

    Otherwise pydantic also calls it for nested models, and their errors would reach the outer model
    as finished text without a location.
    """
    init.__dict__["__pydantic_base_init__"] = True
    return init


class SpecModel(BaseModel):
    """A frozen model that raises ``SpecError`` with the reference's wording."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    wording: ClassVar[Wording] = Wording()

    @_as_base_init
    def __init__(self, **data: Any) -> None:
        """Build the model from its fields.

        Raises:
            SpecError: One line per problem: path, what was given, what is allowed.
        """
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise spec_error(error, type(self)) from None

    @classmethod
    def from_data(
        cls, data: Any, *, at: str = "", source: str = "", folder: Path | None = None
    ) -> Self:
        """Build the model from plain data.

        Args:
            data: A mapping, as read from JSON or TOML.
            at: Path of the data within a larger document, for messages.
            source: File the data come from, for messages.
            folder: Base of relative paths in the data; None leaves them unchanged.

        Raises:
            SpecError: One line per problem: path, what was given, what is allowed.
        """
        try:
            return super().model_validate(data, context={"folder": folder})
        except ValidationError as error:
            raise spec_error(error, cls, at=at, source=source) from None

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Validate like pydantic, but raise SpecError."""
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise spec_error(error, cls) from None

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Validate like pydantic, but raise SpecError."""
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            raise spec_error(error, cls) from None


class ConfigStruct(SpecModel):
    """A section of the reference's engine config.

    The reference also reads a section from a sequence (fields by position). Only the empty
    sequence, which means "all defaults", is accepted here.
    """

    @model_validator(mode="before")
    @classmethod
    def _accept_empty_sequence(cls, data: Any) -> Any:
        return {} if isinstance(data, list | tuple) and not data else data
