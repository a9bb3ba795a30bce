"""Kinds, credentials and interests."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Any

from moorage.client.keys import fresh_key
from moorage.client.models import Credential, Interest, Kind, NewCredential, Page, Retention, rfc3339
from moorage.client.paging import every, page_of, segment
from moorage.client.wire import Wire
from moorage.kernel.limits import PAGE_ITEMS


class Kinds:
    """The operations on kinds. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def put(self, kind: str, declaration: Mapping[str, Any]) -> Kind:
        """Declare a kind: `{"paths": …, "claim": …, "retention_seconds": …}`. A path may neither go nor change its type."""
        return Kind.model_validate(await self._wire.call("PUT", f"/kinds/{segment(kind)}", dict(declaration)))

    async def get(self, kind: str) -> Kind:
        """One kind."""
        return Kind.model_validate(await self._wire.call("GET", f"/kinds/{segment(kind)}"))

    async def page(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Kind]:
        """A page of the kinds that the credential has some grant on, by name."""
        return page_of(Kind, await self._wire.call("GET", "/kinds", query={"limit": limit, "cursor": cursor}))

    def iterate(self) -> AsyncGenerator[Kind, None]:
        """Every such kind."""
        return every(lambda cursor: self.page(limit=int(PAGE_ITEMS), cursor=cursor))

    async def retention(self, kind: str, *, retention_seconds: int | None = None, limit: int | None = None) -> Retention:
        """What the kind's retention would remove now, or would if the kind kept its records for `retention_seconds`."""
        query = {"retention_seconds": retention_seconds, "limit": limit}
        return Retention.model_validate(await self._wire.call("GET", f"/kinds/{segment(kind)}/retention", query=query))


class Credentials:
    """The operations on credentials. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def create(
        self,
        subject: str,
        grants: Sequence[Mapping[str, Any]],
        *,
        expires_at: datetime | None = None,
        public: bool = False,
        origins: Sequence[str] = (),
        rate: Mapping[str, Any] | None = None,
    ) -> NewCredential:
        """Make a credential. Its token is told here only, also when the answer had to be asked for again.

        A `public` one may be shipped to browsers: it only publishes, from `origins` where there are any, and within `rate`
        (`{"per_second": …, "burst": …}`) where there is one.
        """
        sent: dict[str, Any] = {"subject": subject, "grants": [dict(grant) for grant in grants]}
        if expires_at is not None:
            sent["expires_at"] = rfc3339(expires_at)
        if public:
            sent["public"] = True
        if origins:
            sent["origins"] = list(origins)
        if rate is not None:
            sent["rate"] = dict(rate)
        return NewCredential.model_validate(await self._wire.call("POST", "/credentials", sent, key=fresh_key()))

    async def get(self, credential: str) -> Credential:
        """One credential."""
        return Credential.model_validate(await self._wire.call("GET", f"/credentials/{segment(credential)}"))

    async def page(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Credential]:
        """A page of credentials, oldest first, revoked ones too."""
        return page_of(Credential, await self._wire.call("GET", "/credentials", query={"limit": limit, "cursor": cursor}))

    def iterate(self) -> AsyncGenerator[Credential, None]:
        """Every credential."""
        return every(lambda cursor: self.page(limit=int(PAGE_ITEMS), cursor=cursor))

    async def revoke(self, credential: str) -> None:
        """Revoke a credential for good."""
        await self._wire.call("DELETE", f"/credentials/{segment(credential)}")


class Interests:
    """What workers say they would claim. Each operation raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def put(
        self, worker: str, kind: str, match: Mapping[str, Any] | None = None, *, ttl_seconds: int = 60
    ) -> Interest:
        """Say, or say again, what a worker would claim; it expires unless repeated within `ttl_seconds`."""
        sent = {"kind": kind, "match": dict(match or {}), "ttl_seconds": ttl_seconds}
        return Interest.model_validate(await self._wire.call("PUT", f"/interests/{segment(worker)}", sent))

    async def withdraw(self, worker: str) -> None:
        """Take the interest back."""
        await self._wire.call("DELETE", f"/interests/{segment(worker)}")

    async def page(self, kind: str | None = None, *, limit: int | None = None, cursor: str | None = None) -> Page[Interest]:
        """A page of the live interests, by worker."""
        query = {"kind": kind, "limit": limit, "cursor": cursor}
        return page_of(Interest, await self._wire.call("GET", "/interests", query=query))
