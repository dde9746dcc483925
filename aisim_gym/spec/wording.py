"""Translate pydantic's errors to the reference's messages.

The reference reads its configs with serde: a *parse* error states where and what was expected
(``invalid engine launch config: engine.dp: unknown field …``), a *semantic* error states the rule
(``num_gpu_blocks must be positive``). Both follow from the error type, the value, and the markers
on the field (``scalars.py``), so a model needs no error texts beyond a :class:`Refusal`.

Rules: engine-vllm-trtllm.md §1, replay-runtime.md §19.
"""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from aisim_gym.errors import SpecError
from aisim_gym.number_text import number_text
from aisim_gym.spec.refusals import MisfitError, NegativeCountError, UnsupportedSpecError
from aisim_gym.spec.scalars import OUT_OF_RANGE, Refusal, RustInteger, RustType

BOUND_ERRORS = frozenset(
    {"greater_than", "greater_than_equal", "less_than_equal", "finite_number", OUT_OF_RANGE}
)
NOT_JSON = "Out of range float values are not JSON compliant"

MarkerT = TypeVar("MarkerT")


@dataclass(frozen=True, slots=True)
class Wording:
    """Message settings of one model.

    Attributes:
        expected: Text after "expected" for this model.
        parse_prefix: Precedes the path of parse errors from this model downwards.
        unlisted: Field names missing from the reference's lists of known fields.
    """

    expected: str = "a table"
    parse_prefix: str = ""
    unlisted: frozenset[str] = frozenset()


class Complaint(NamedTuple):
    """The text of one error; parse errors are reported before semantic ones."""

    text: str
    is_semantic: bool = False
    kind: type[SpecError] = SpecError


@dataclass(slots=True)
class Place:
    """The location of an error, resolved by following pydantic's location through a model.

    Attributes:
        path: Keys as the user wrote them, without union tags.
        owner: The model that has the field at the end of the path.
        info: That field, if the last key names one.
        name: Its name; the last key may be an alias.
        annotation: The type at the end of the path.
        models: The models in that type.
        prefix: Parse prefix of the outermost model that has one, and the length of its path.
    """

    path: list[str]
    owner: type[BaseModel]
    info: FieldInfo | None
    name: str
    annotation: Any
    models: list[type[BaseModel]]
    prefix: tuple[str, int] = ("", 0)

    def markers(self, kind: type[MarkerT]) -> Iterator[MarkerT]:
        """Yield the markers of one kind on the field and in its type, outermost first."""
        metadata = self.info.metadata if self.info else ()
        for found in (*metadata, *_metadata_in(self.annotation)):
            if isinstance(found, kind):
                yield found

    def marker(self, kind: type[MarkerT]) -> MarkerT | None:
        """Return the first marker of one kind."""
        return next(self.markers(kind), None)

    def told(self, complaint: Complaint) -> str:
        """Return the full path followed by the complaint, with the reference's text unchanged.

        Path and text are merged where the text begins with the end of the path, or with a parse
        prefix and the whole path.
        """
        prefix, depth = self.prefix
        full_path = ".".join(self.path)
        if complaint.is_semantic:
            for i in range(len(self.path)):
                if complaint.text.startswith(".".join(self.path[i:])):
                    return ".".join((*self.path[:i], complaint.text))
        if complaint.is_semantic or not prefix or depth > len(self.path):
            parts = [full_path, complaint.text]
        else:
            inner_path = ".".join(self.path[depth:])
            parts = [full_path if depth else "", prefix, inner_path, complaint.text]
        return ": ".join(part for part in parts if part)


def spec_error(
    error: ValidationError, model: type[BaseModel], *, at: str = "", source: str = ""
) -> SpecError:
    """Return ``error`` as a SpecError, one line per problem, parse errors first.

    Args:
        error: What pydantic raised.
        model: The model that was validated.
        at: Path of the model itself, prepended to every path.
        source: File the values come from, named at the end of every line.
    """
    told: list[tuple[bool, str, type[SpecError]]] = []
    problems = error.errors(include_url=False)
    for details in problems:
        if details["type"] == "too_short" and _has_problem_below(details["loc"], problems):
            continue  # pydantic counts only the items that are valid
        place = locate(model, details["loc"], at=at)
        complaint = complain(place, details)
        line = place.told(complaint) + (f" ({source})" if source else "")
        told.append((complaint.is_semantic, line, complaint.kind))
    told.sort(key=lambda entry: entry[0])
    return told[0][2]("\n".join(line for _, line, _ in told))


def _has_problem_below(location: tuple[int | str, ...], problems: Sequence[ErrorDetails]) -> bool:
    depth = len(location)
    return any(len(loc) > depth and loc[:depth] == location for loc in (p["loc"] for p in problems))


def locate(model: type[BaseModel], location: Iterable[int | str], *, at: str = "") -> Place:
    """Follow pydantic's ``location`` through the fields of ``model``."""
    place = Place([at] if at else [], model, None, "", model, [model])
    _note_prefix(place, model)
    for key in location:
        if len(place.models) > 1:  # a union: pydantic names the member by its tag
            place.models = [member for member in place.models if key in _tags(member)]
            continue
        place.path.append(str(key))
        name = _field_name(place.models, key)
        if name is not None:
            place.owner, place.name = place.models[0], name
            place.info = place.owner.model_fields[name]
            place.annotation = place.info.annotation
        elif isinstance(key, int) and get_args(place.annotation):  # an item of a sequence
            place.info, place.annotation = None, get_args(place.annotation)[0]
        else:
            place.owner = place.models[0] if place.models else place.owner
            place.info, place.annotation = None, None
        place.models = list(_models_in(place.annotation))
        for member in place.models:
            _note_prefix(place, member)
    return place


def complain(place: Place, details: ErrorDetails) -> Complaint:
    """Describe an error in the reference's wording; may change the path of ``place``."""
    error_type, value = details["type"], details["input"]
    if error_type == "value_error":
        cause = details.get("ctx", {})["error"]
        if isinstance(cause, MisfitError):
            place.path += cause.field.split(".")
        kind = type(cause) if isinstance(cause, SpecError) else SpecError
        return Complaint(str(cause), True, kind)
    if error_type in {"extra_forbidden", "invalid_key"}:
        return _unknown_field(place)
    if error_type == "missing":
        meaning = f" ({place.info.description})" if place.info and place.info.description else ""
        return Complaint(f"missing field `{place.path.pop()}`{meaning}")
    if error_type == "too_short":
        limits = details.get("ctx", {})
        return Complaint(
            f"got {limits['actual_length']} items, expected at least {limits['min_length']}"
        )
    if error_type == "none_required":
        return Complaint(
            f"`{place.path[-1]}` is not supported by aisim-gym; leave it out",
            kind=UnsupportedSpecError,
        )
    if error_type.startswith("union_tag"):
        return _wrong_tag(place, details)
    if error_type == "literal_error":
        return _wrong_choice(place, value)
    if error_type in BOUND_ERRORS:
        return _out_of_bounds(place, error_type, value)
    if error_type.endswith("_type"):
        return Complaint(f"invalid type: {unexpected(value)}, expected {_expected(place)}")
    return Complaint(f"{details['msg']}, got {unexpected(value)}")


def unexpected(value: object) -> str:
    """Return how serde names a value it did not expect."""
    value = _as_json_number(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"boolean `{str(value).lower()}`"
    if isinstance(value, int):
        return f"integer `{value}`"
    if isinstance(value, float):
        text = repr(value).replace("e-0", "e-")
        return f"floating point `{text}`"
    if isinstance(value, str):
        return f"string {json.dumps(value, ensure_ascii=False)}"
    if isinstance(value, Mapping):
        return "map"
    if isinstance(value, Sequence):
        return "sequence"
    return f"{type(value).__name__} `{value!r}`"


def known_names(model: type[BaseModel]) -> list[str]:
    """Return the keys of a model, aliases of a field next to each other in alphabetical order."""
    return [key for name, info in model.model_fields.items() for key in _keys(name, info)]


def closest(name: str, names: Iterable[str]) -> str:
    """Return a guess like ``; did you mean `x`?``, or an empty string if no name is close."""
    found = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean `{found[0]}`?" if found else ""


def _unknown_field(place: Place) -> Complaint:
    name, model = place.path[-1], place.owner
    names = known_names(model)
    if name in names:  # pydantic used the other alias and reports this one as extra
        place.path.pop()
        return Complaint(f"duplicate field `{place.name}`")
    listed = [known for known in names if known not in _wording(model).unlisted]
    guess = closest(name, names)
    for key, info in model.model_fields.items():
        if any(name in known_names(inner) for inner in _models_in(info.annotation)):
            guess = f"; did you mean `{key}.{name}`?"
    return Complaint(f"unknown field `{name}`, expected {_alternatives(listed)}{guess}")


def _wrong_tag(place: Place, details: ErrorDetails) -> Complaint:
    tag = details.get("ctx", {})["discriminator"].strip("'")
    variants = [variant for model in place.models for variant in _tags(model)]
    given = details["input"].get(tag) if isinstance(details["input"], Mapping) else None
    if details["type"] == "union_tag_not_found":
        return Complaint(f"missing field `{tag}`, expected {_alternatives(variants)}")
    place.path.append(tag)
    if not isinstance(given, str):
        return Complaint(
            f"invalid type: {unexpected(given)}, expected variant identifier "
            f"({_alternatives(variants)})"
        )
    return Complaint(_unknown_variant(given, variants))


def _wrong_choice(place: Place, value: object) -> Complaint:
    variants = list(_literals_in(place.annotation))
    refusal = place.marker(Refusal)
    if not isinstance(value, str):
        return Complaint(
            f"invalid type: {unexpected(value)}, expected string or map ({_alternatives(variants)})"
        )
    if refusal is not None:
        hint = f"; {refusal.hint}" if refusal.hint else ""
        return Complaint(f"{refusal.text}, got '{value}'{hint}{closest(value, variants)}", True)
    return Complaint(_unknown_variant(value, variants))


def _unknown_variant(value: str, variants: Sequence[str]) -> str:
    guess = closest(value, variants)
    return f"unknown variant `{value}`, expected {_alternatives(variants)}{guess}"


def _out_of_bounds(place: Place, error_type: str, value: int | float) -> Complaint:
    refusal = place.marker(Refusal)
    if error_type == "less_than_equal" and refusal is not None:  # text is for the other bound
        most = next(cast(float, mark.le) for mark in place.markers(Le))
        text = f"{place.name} must be at most {number_text(most)}, got {value}"
        return Complaint(text, True)
    integer = place.marker(RustInteger)
    if integer is not None and not integer.holds(value):
        if integer.is_argument and value < 0:
            return Complaint(
                f"can't convert negative int to unsigned, got {value}; expected an integer >= 0",
                True,
                NegativeCountError,
            )
        category = "type" if isinstance(_as_json_number(value), float) else "value"
        return Complaint(f"invalid {category}: {unexpected(value)}, expected {_expected(place)}")
    got = f"got {number_text(value)}"
    if error_type == "finite_number" and place.prefix[0]:
        return Complaint(f"{NOT_JSON}, {got}; expected a finite number")
    if refusal is not None:
        hint = f"; {refusal.hint}" if refusal.hint else ""
        return Complaint(f"{refusal.text}, {got}{hint}", True)
    return Complaint(f"{place.name} {_bounds(place)}, {got}", True)


def _bounds(place: Place) -> str:
    """Describe the bounds of a number in the reference's wording."""
    above = next((cast(float, mark.gt) for mark in place.markers(Gt)), None)
    least = next((cast(float, mark.ge) for mark in place.markers(Ge)), None)
    most = next((cast(float, mark.le) for mark in place.markers(Le)), None)
    if place.marker(RustInteger) is not None:
        if least is not None and most is not None:
            return f"must be in {number_text(least)}..={number_text(most)}"
        return "must be positive" if above == 0 else f"must be at least {number_text(least or 0)}"
    if least is not None and most is not None:
        return f"must be finite and in [{number_text(least)}, {number_text(most)}]"
    if above is not None:
        return "must be finite and positive"
    return "must be finite" if least is None else "must be finite and non-negative"


def _expected(place: Place) -> str:
    """Return what the reference expects at ``place``, with a translation of Rust's type names."""
    rust_type = place.marker(RustType)
    if rust_type is not None:
        return rust_type.name + (f" ({rust_type.meaning})" if rust_type.meaning else "")
    return _wording(place.models[0]).expected if place.models else "another type"


def _alternatives(names: Sequence[str]) -> str:
    """Return ``names`` as serde lists them: one, one or the other, one of many."""
    quoted = [f"`{name}`" for name in names]
    return " or ".join(quoted) if len(quoted) < 3 else "one of " + ", ".join(quoted)


def _as_json_number(value: object) -> object:
    """Return integers beyond 64 bits as floats, as the reference parses them."""
    if type(value) is int and not -(2**63) <= value < 2**64:
        try:
            return float(value)
        except OverflowError:
            return value
    return value


def _wording(model: type[BaseModel]) -> Wording:
    return cast(Wording, getattr(model, "wording", Wording()))


def _note_prefix(place: Place, model: type[BaseModel]) -> None:
    prefix = _wording(model).parse_prefix
    if prefix and not place.prefix[0]:
        place.prefix = (prefix, len(place.path))


def _field_name(models: Sequence[type[BaseModel]], key: int | str) -> str | None:
    for model in models:
        for name, info in model.model_fields.items():
            if key in _keys(name, info):
                return name
    return None


def _keys(name: str, info: FieldInfo) -> list[str]:
    alias = info.validation_alias
    if isinstance(alias, AliasChoices):
        return sorted(str(choice) for choice in alias.choices)
    return [name]


def _tags(model: type[BaseModel]) -> list[str]:
    """Return the values of the model's first literal field: the tag of a union member."""
    for info in model.model_fields.values():
        literals = list(_literals_in(info.annotation))
        if literals:
            return literals
    return []


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


def _literals_in(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
        return
    for inner in get_args(annotation):
        yield from _literals_in(inner)


def _metadata_in(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Annotated:
        yield from annotation.__metadata__
    if get_origin(annotation) is not Literal:
        for inner in get_args(annotation):
            yield from _metadata_in(inner)
