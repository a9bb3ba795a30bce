"""Small values by namespace and key."""

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from moorage.api.answers import Answer, nothing, page
from moorage.api.fields import Cursor, Default, Limit, PageShown, Sent, Shown, ShownInstant, fails, page_of
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.kernel.errors import CursorMismatch, IdempotencyConflict, KeyConflict, KeyUnknown
from moorage.kernel.limits import ID_CHARACTERS
from moorage.kv import values

api = router("kv")

Namespace = Annotated[str, Path(description="A namespace: a name of the client's choice, granted as a kind of it would be.")]
Key = Annotated[str, Path(description="A key: a name of the client's choice.")]
Prefix = Annotated[
    str | None, Query(min_length=1, max_length=int(ID_CHARACTERS), description="Only keys that begin with it.")
]
Revision = Annotated[
    int | None, Query(ge=1, le=2**53 - 1, description="Only if the key, where it is there, has this revision.")
]


class ValueSent(Sent):
    """A value to put. With `revision` only if the key has that one now; 0 is a key that is absent."""

    value: Any
    revision: int | None = Field(default=None, ge=0, le=2**53 - 1)


class ValueShown(Shown):
    """A value under its key. `revision` counts its puts and deletions, and never goes back."""

    namespace: str
    key: str
    value: Any
    revision: int
    updated_at: ShownInstant


@api.put("/kv/{namespace}/{key}", response_model=ValueShown, responses=fails(KeyConflict, IdempotencyConflict))
async def put_value(request: ApiRequest, namespace: Namespace, key: Key, sent: ValueSent) -> Response:
    """Put any JSON under a key. The same Idempotency-Key with the same content answers the first put again."""
    stored = await values.put(
        request.db, request.caller, request.now, namespace, key, sent.value, sent.revision, request.key()
    )
    return Answer(stored.answer())


@api.get("/kv/{namespace}/{key}", response_model=ValueShown, responses=fails(KeyUnknown))
async def show_value(request: ApiRequest, namespace: Namespace, key: Key) -> Response:
    """One value."""
    return Answer((await values.get(request.db, request.caller, namespace, key)).answer())


@api.delete(
    "/kv/{namespace}/{key}",
    status_code=204,
    response_class=Response,
    responses=fails(KeyConflict, IdempotencyConflict),
)
async def delete_value(request: ApiRequest, namespace: Namespace, key: Key, revision: Revision = None) -> Response:
    """Delete a key; one that is absent already is fine."""
    once = request.key({"revision": revision})
    await values.delete(request.db, request.caller, request.now, namespace, key, revision, once)
    return nothing()


@api.get("/kv/{namespace}", response_model=PageShown[ValueShown], responses=fails(CursorMismatch))
async def list_values(
    request: ApiRequest, namespace: Namespace, limit: Limit = Default, cursor: Cursor = None, prefix: Prefix = None
) -> Response:
    """A namespace's keys with their values, by key."""
    found = await values.list_keys(request.db, request.caller, namespace, page_of(limit, cursor), prefix)
    return page(found, lambda one: one.answer())
