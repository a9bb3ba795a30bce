"""Guards of effects that may be in flight, who executes, and what operators released by hand."""

from collections.abc import AsyncGenerator
from typing import Any, Literal

from pydantic import Field

from moorage.client.models import Answered, Moment, Page
from moorage.client.paging import every, page_of, segment
from moorage.client.wire import Wire
from moorage.kernel.limits import PAGE_ITEMS

EvidenceClass = Literal["replay-safe", "receipt-required", "unknown"]


class EntryKey(Answered):
    """An entry of the journal."""

    label: str
    input_sha256: str


class Guard(Answered):
    """An effect that may be in flight. `evidence_class` is `class` in its JSON; its requests carry `idempotency_key`.

    `holder_exited_at` is None until the holder itself said that it has stopped; `lease_expires_at` is that of the
    execution's owner, None when nobody owns it; `window_seconds` is None when the destination promises nothing.
    """

    token: str
    evidence_class: EvidenceClass = Field(alias="class")
    publication: bool
    scopes: list[str]
    lease_keys: list[str]
    execution_id: str
    run_id: str
    scope: str
    attempt: int
    epoch: int
    holder: str
    holder_name: str | None = None
    holder_exited_at: Moment | None = None
    lease_expires_at: Moment | None = None
    entry_key: EntryKey
    idempotency_key: str
    destination: str | None
    admitted_at: Moment
    since: Moment
    window_seconds: int | None
    window_ends_at: Moment | None = None


class Summary(Answered):
    """How many guards are open, by class, and since when the oldest is."""

    open: int
    by_class: dict[str, int]
    oldest_admitted_at: Moment | None
    oldest_seconds: int | None


class Reconciled(Answered):
    """A release. `audit` is its record; `receipt` is what the step was recorded with, None when it is sent again."""

    released: Literal[True]
    audit: str
    receipt: str | None = None


class Audit(Answered):
    """What an operator released: the guard as it was, on which evidence, who vouched for it, and whose credential asked."""

    id: str
    token: str
    guard: dict[str, Any]
    evidence: str
    operator: str
    actor: str
    released_at: Moment


class Holder(Answered):
    """Who executes, or did. Without `exited_at` it may have requests under way, however long it has been silent."""

    id: str
    kind: str
    name: str
    subject: str
    registered_at: Moment
    exited_at: Moment | None
    exit_reason: str | None


class Guards:
    """The operations on guards, for a credential that may operate. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def page(
        self,
        *,
        scope: str | None = None,
        execution: str | None = None,
        destination: str | None = None,
        evidence_class: EvidenceClass | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Guard]:
        """A page of open guards, the oldest first: those that protect a scope, of an execution, to a destination, of a
        class."""
        wanted = {"scope": scope, "execution": execution, "destination": destination, "class": evidence_class}
        return page_of(Guard, await self._wire.call("GET", "/guards", query={**wanted, "limit": limit, "cursor": cursor}))

    def iterate(
        self,
        *,
        scope: str | None = None,
        execution: str | None = None,
        destination: str | None = None,
        evidence_class: EvidenceClass | None = None,
    ) -> AsyncGenerator[Guard, None]:
        """Every such guard."""

        async def fetch(cursor: str | None) -> Page[Guard]:
            return await self.page(
                scope=scope,
                execution=execution,
                destination=destination,
                evidence_class=evidence_class,
                limit=int(PAGE_ITEMS),
                cursor=cursor,
            )

        return every(fetch)

    async def get(self, token: str) -> Guard:
        """One open guard."""
        return Guard.model_validate(await self._wire.call("GET", f"/guards/{segment(token)}"))

    async def summary(self) -> Summary:
        """How many are open, by class, and since when the oldest is."""
        return Summary.model_validate(await self._wire.call("GET", "/guards/summary"))

    async def reconcile(self, token: str, evidence: str, operator: str) -> Reconciled:
        """Release a guard: on `idempotency:<key>` the key is sent again, on `receipt:<key>:<id>` it is not.

        Where an answer was lost it is asked again; if the first was carried out that raises the Problem GuardReleased, with
        the id of its record as the member `audit`.
        """
        sent = {"evidence": evidence, "operator": operator}
        answer = await self._wire.call("POST", f"/guards/{segment(token)}/reconcile", sent, repeatable=True)
        return Reconciled.model_validate(answer)

    async def audit_page(
        self, token: str | None = None, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Audit]:
        """A page of what operators released, the oldest first; of one guard with `token`."""
        query = {"token": token, "limit": limit, "cursor": cursor}
        return page_of(Audit, await self._wire.call("GET", "/audit", query=query))

    def audit(self, token: str | None = None) -> AsyncGenerator[Audit, None]:
        """Everything that operators released."""
        return every(lambda cursor: self.audit_page(token, limit=int(PAGE_ITEMS), cursor=cursor))

    async def holders_page(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Holder]:
        """A page of holders, in the order of their ids."""
        return page_of(Holder, await self._wire.call("GET", "/holders", query={"limit": limit, "cursor": cursor}))

    def holders(self) -> AsyncGenerator[Holder, None]:
        """Every holder."""
        return every(lambda cursor: self.holders_page(limit=int(PAGE_ITEMS), cursor=cursor))
