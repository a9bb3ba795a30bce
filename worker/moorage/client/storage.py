"""The storage of a deployment: whether it is whole, and binding it."""

from pydantic import Field

from moorage.client.models import Answered, Moment
from moorage.client.wire import Wire


class Finding(Answered):
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str


class Identity(Answered):
    """What the database is bound to."""

    identity: str
    project: str
    schema_number: int = Field(alias="schema")
    generation: int
    object_key: str
    created_at: Moment
    updated_at: Moment


class Checked(Answered):
    """How the storage stands; `ok` when work that has effects is admitted."""

    ok: bool
    project: str
    profile: str
    state: str | None
    identity: Identity | None
    findings: list[Finding]
    rows: dict[str, int]


class Initialized(Answered):
    """What it is bound to; `initialized` is false when it was so already."""

    initialized: bool
    identity: Identity


class Storage:
    """The operations on the storage, for a credential that may operate. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def check(self) -> Checked:
        """Look at everything that the storage needs."""
        return Checked.model_validate(await self._wire.call("GET", "/storage"))

    async def initialize(self, give_up: str | None = None) -> Initialized:
        """Bind database, bucket and project to one another, where they are bound to nothing; safe to ask again."""
        body = {} if give_up is None else {"give_up": give_up}
        return Initialized.model_validate(await self._wire.call("POST", "/storage/initialize", body, repeatable=True))
