"""The shapes that several rooms' requests and answers share."""

from typing import Annotated, Any, Generic, TypeVar

from fastapi import Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from moorage.kernel.errors import FailureTag, MoorageError, RequestInvalid
from moorage.kernel.instants import Instant, parse
from moorage.kernel.limits import CURSOR_CHARACTERS, PAGE_DEFAULT, PAGE_ITEMS, TEXT_CHARACTERS
from moorage.kernel.pages import PageRequest
from moorage.kernel.refusals import LINE, LINES

T = TypeVar("T")


class Sent(BaseModel):
    """A body that a client sends: unknown fields are refused and types never coerce."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Shown(BaseModel):
    """The shape of an answer. It documents, and is built only for that: answers do not pass through it."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


def _instant(value: Any) -> int:
    if not isinstance(value, str):
        raise PydanticCustomError("instant", "must be an RFC 3339 instant")
    try:
        return parse(value)
    except RequestInvalid as error:
        raise PydanticCustomError("instant", "must be an RFC 3339 instant after 1970") from error


SentInstant = Annotated[Instant, BeforeValidator(_instant), WithJsonSchema({"type": "string", "format": "date-time"})]
"""An instant in a body: RFC 3339 text, kept as milliseconds."""

ShownInstant = Annotated[str, Field(json_schema_extra={"format": "date-time"})]

Line = Annotated[str, Field(min_length=1, max_length=int(TEXT_CHARACTERS), pattern=LINE)]
"""A label or subject: one line, none of its characters a control character."""

Reason = Annotated[str, Field(min_length=1, max_length=int(TEXT_CHARACTERS), pattern=LINES)]
"""Sentences for people: line breaks and tabs, and no other control character."""

Epoch = Annotated[int, Field(ge=1, le=2**53 - 1, description="The fencing number that came with the claim.")]

Limit = Annotated[int, Query(ge=1, le=int(PAGE_ITEMS), description="Items of a page.")]
Cursor = Annotated[
    str | None,
    Query(max_length=int(CURSOR_CHARACTERS), description="`next_cursor` of the page before, under the same filters."),
]
Default = int(PAGE_DEFAULT)

RecordId = Annotated[str, Path(description="A record's id.")]
KindName = Annotated[str, Path(description="A kind's name.")]
Name = Annotated[str, Path(description="A name or id, as it was given at creation.")]

JsonObject = dict[str, Any]


def page_of(limit: int, cursor: str | None) -> PageRequest:
    """What a list is asked for."""
    return PageRequest(limit, cursor)


class PageShown(Shown, Generic[T]):
    """A page of a list; `next_cursor` is null at the end."""

    items: list[T]
    next_cursor: str | None


class FieldError(Shown):
    """One thing that is wrong with a request."""

    pointer: str
    message: str


class ProblemShown(BaseModel):
    """An error, RFC 9457. Some errors have further members."""

    model_config = ConfigDict(extra="allow", title="Problem", defer_build=True)

    type: str
    title: str
    status: int
    detail: str
    code: str
    tag: FailureTag
    retryable: bool
    retry_after: float | None = None
    errors: list[FieldError] | None = None


ANY_BODY: dict[str, Any] = {
    "requestBody": {
        "description": "JSON as its value; a form as lists of values by name; text as a string; anything else as its "
        "content type and base64; nothing as null.",
        "content": {
            "application/json": {"schema": {}},
            "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
            "text/plain": {"schema": {"type": "string"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
"""`openapi_extra` of a route that takes bodies of every content type, as `kernel.content` reads them."""


def fails(*errors: type[MoorageError]) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that may raise these, besides what every route may."""
    by_status: dict[int | str, dict[str, Any]] = {}
    for error in errors:
        entry = by_status.setdefault(error.status, {"description": ""})
        line = f"`{error.__name__}`: {error.meaning()}"
        entry["description"] = f"{entry['description']}\n\n{line}".strip()
    return by_status
