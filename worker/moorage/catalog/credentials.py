"""Credentials: who may ask. Only the SHA-256 of a token is stored (clauses catalog.credentials, catalog.grants).

The root credential comes from a secret binding and has no row. A credential's admin grant may be for some kinds only;
its holder is then an admin of those kinds, and gives no more than that away.
"""

import hmac
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from moorage.catalog import public, statements
from moorage.catalog.access import Caller, Grant, Rate, names
from moorage.catalog.kinds import Kinds
from moorage.catalog.model import ROOT_SUBJECT, CredentialDeclaration, GrantDeclaration, check_subject
from moorage.catalog.paths import DeclaredPath, shown
from moorage.history.append import Event, append
from moorage.idempotency.keys import AlreadyDone, Derivation, Key, derive_secret, recall, remember
from moorage.kernel import canonical, ids
from moorage.kernel.errors import (
    CredentialUnknown,
    Forbidden,
    IdempotencyConflict,
    KindUnknown,
    PatternInvalid,
    RequestInvalid,
    Unauthenticated,
)
from moorage.kernel.instants import Instant, parse, render
from moorage.kernel.limits import CREDENTIAL_CACHE_SECONDS, METADATA_BYTES
from moorage.kernel.pages import Page, PageRequest
from moorage.kernel.refusals import refused
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction

TOKEN_PREFIX: Final = "moor"  # noqa: S105 - how tokens begin, no token

CheckPattern = Callable[[Mapping[str, Any], Mapping[str, DeclaredPath]], object]
"""Raises PatternInvalid unless the pattern may be asked of a kind with these paths."""

_BEARER = re.compile(r"(?i:bearer) +([\x21-\x7e]{1,512})")
_KINDS = re.compile(r"[a-z][a-z0-9._-]{0,99}\*?|\*")
_CACHED_CREDENTIALS: Final = 1000


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential as its admins see it: neither the token nor its hash is here."""

    id: str
    subject: str
    grants: tuple[Grant, ...]
    created_at: Instant
    created_by: str
    expires_at: Instant | None
    revoked_at: Instant | None
    public: bool = False
    origins: tuple[str, ...] = ()
    rate: Rate | None = None

    @classmethod
    def of(cls, row: Row) -> "Credential":
        """The credential that a row holds."""
        return cls(**{**row, "grants": grants_of(row["grants"]), **_publicity(row)})

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        return {
            "id": self.id,
            "subject": self.subject,
            "grants": [_grant_data(grant) for grant in self.grants],
            "created_at": render(self.created_at),
            "created_by": self.created_by,
            "expires_at": None if self.expires_at is None else render(self.expires_at),
            "revoked_at": None if self.revoked_at is None else render(self.revoked_at),
            "public": self.public,
            "origins": list(self.origins) or None,
            "rate": public.rate_data(self.rate),
        }


@dataclass(frozen=True, slots=True)
class _Admitted:
    caller: Caller
    expires_at: Instant | None
    read_at: Instant


class Credentials:
    """Authentication, and the credentials that this isolate admitted lately.

    A revoked credential may still read for CREDENTIAL_CACHE_SECONDS; its writes stop at once, since every mutation
    calls `Caller.guard`. A token that was not admitted is never remembered.
    """

    def __init__(self, root_token: str | None, check_pattern: CheckPattern | None = None) -> None:
        self._root = canonical.digest(root_token) if root_token else None
        self._check_pattern = check_pattern
        self._admitted: dict[str, _Admitted] = {}

    async def admit(self, db: Database, now: Instant, authorization: str | None) -> Caller:
        """The caller that an Authorization header proves.

        Raises Unauthenticated for everything else: no header, another scheme, an unknown, revoked or expired
        credential. The error never repeats what was sent.
        """
        match = _BEARER.fullmatch(authorization.strip()) if authorization else None
        if match is None:
            raise Unauthenticated
        token = match.group(1)
        digest = canonical.digest(token)
        if self._root is not None and hmac.compare_digest(digest, self._root):
            return Caller(ROOT_SUBJECT, bearer=token.encode())
        found = self._admitted.get(digest)
        if found is None or not 0 <= now - found.read_at < CREDENTIAL_CACHE_SECONDS * 1000:
            found = await self._look_up(db, now, token, digest)
        if found.expires_at is not None and found.expires_at <= now:
            raise Unauthenticated
        return found.caller

    async def _look_up(self, db: Database, now: Instant, token: str, digest: str) -> _Admitted:
        reading = Reading()
        answer = reading.ask(statements.ADMIT, token_sha256=digest)
        await db.read(reading)
        self._admitted.pop(digest, None)
        row = answer.one(Unauthenticated())
        caller = Caller(row["subject"], grants_of(row["grants"]), row["id"], token.encode(), **_publicity(row))
        if len(self._admitted) >= _CACHED_CREDENTIALS:
            del self._admitted[next(iter(self._admitted))]
        self._admitted[digest] = _Admitted(caller, row["expires_at"], now)
        return self._admitted[digest]

    def forget(self, credential: str) -> None:
        """Drop a credential from what was admitted lately."""
        for digest in [digest for digest, found in self._admitted.items() if found.caller.credential == credential]:
            del self._admitted[digest]

    async def create(
        self,
        db: Database,
        caller: Caller,
        now: Instant,
        kinds: Kinds,
        declaration: CredentialDeclaration,
        key: Key | None = None,
    ) -> tuple[Credential, str]:
        """Make a credential; the token is answered here and nowhere else.

        Under an idempotency key the token is derived, so that the same bearer with the same key gets it again. Raises
        Forbidden when the caller is no admin or would give more than it has, RequestInvalid, PatternInvalid, and
        IdempotencyConflict when the key made something else, or made it for another bearer.
        """
        grants = tuple(_grant(grant, number) for number, grant in enumerate(declaration.grants))
        expires_at = _expiry(declaration.expires_at, now)
        public.check(declaration, grants)
        _demand_authority(caller, declaration.subject, grants)
        await self._check_matches(db, now, kinds, grants)
        derivation = Derivation(caller.bearer)
        token = ids.token(TOKEN_PREFIX) if key is None else derive_secret(derivation, key, TOKEN_PREFIX)
        credential = Credential(
            ids.new("crd", now),
            declaration.subject,
            grants,
            now,
            caller.subject,
            expires_at,
            revoked_at=None,
            public=declaration.public,
            origins=tuple(dict.fromkeys(declaration.origins or ())),
            rate=public.rate_of(declaration),
        )
        tx = Transaction(now)
        caller.guard(tx)
        remember(tx, key, {"credential": credential.id, "salt": derivation.salt})
        tx.run(statements.CREATE_CREDENTIAL, token_sha256=canonical.digest(token), **_columns(credential))
        if credential.public:
            public.admit_origins(tx, credential.id, credential.origins)
        append(tx, caller.subject, _event(credential, "credential.created"))
        try:
            await db.commit(tx)
        except AlreadyDone:
            if key is None:
                raise
            return await self._created_before(db, caller, key)
        return credential, token

    async def _created_before(self, db: Database, caller: Caller, key: Key) -> tuple[Credential, str]:
        made = await recall(db, key)
        token = derive_secret(Derivation(caller.bearer, made["salt"]), key, TOKEN_PREFIX)
        reading = Reading()
        row = reading.ask(statements.CREDENTIAL, id=made["credential"], creator=None)
        same = reading.ask(statements.CREDENTIAL_HAS_TOKEN, id=made["credential"], token_sha256=canonical.digest(token))
        await db.read(reading)
        if not same.rows:
            raise IdempotencyConflict("the key was used with another bearer token; only that one gets the secret again")
        return Credential.of(row.one(CredentialUnknown())), token

    async def _check_matches(self, db: Database, now: Instant, kinds: Kinds, grants: tuple[Grant, ...]) -> None:
        """A match on one kind that exists is checked against its paths; any other is data until it is used."""
        for number, grant in enumerate(grants):
            if grant.match is None or len(grant.kinds) != 1 or self._check_pattern is None:
                continue
            try:
                kind = await kinds.get(db, now, grant.kinds[0])
                self._check_pattern(grant.match, kind.paths)
            except KindUnknown:
                continue
            except PatternInvalid as error:
                raise PatternInvalid(f"/grants/{number}/match: {error.detail}", errors=error.errors) from None

    async def show(self, db: Database, caller: Caller, credential: str) -> Credential:
        """One credential. Raises CredentialUnknown, also for one that the caller may not see."""
        reading = Reading()
        row = reading.ask(statements.CREDENTIAL, id=credential, creator=_creator(caller, credential))
        await db.read(reading)
        return Credential.of(row.one(CredentialUnknown()))

    async def list_credentials(self, db: Database, caller: Caller, page: PageRequest) -> Page[Credential]:
        """The credentials that the caller may see, oldest first, revoked ones too. Raises Forbidden, CursorMismatch."""
        creator = _creator(caller)
        filters = ["credentials"]
        after = page.after(filters, str) or [""]
        reading = Reading()
        rows = reading.ask(statements.CREDENTIALS, after=after[0], creator=creator, limit=page.limit + 1)
        await db.read(reading)
        return page.page(rows.rows, filters, lambda row: [row["id"]], Credential.of)

    async def revoke(self, db: Database, caller: Caller, now: Instant, credential: str) -> None:
        """Revoke a credential for good; again is fine. A holder may always revoke its own.

        Raises Forbidden, CredentialUnknown.
        """
        found = await self.show(db, caller, credential)
        if found.revoked_at is None:
            tx = Transaction(now)
            caller.guard(tx)
            tx.require(statements.CREDENTIAL_IS_UNREVOKED, AlreadyDone(), id=credential)
            tx.run(statements.REVOKE, id=credential)
            if found.public:
                tx.run(statements.DISMISS_ORIGINS, id=credential)
            append(tx, caller.subject, _event(found, "credential.revoked"))
            with suppress(AlreadyDone):  # somebody revoked it at the same moment, which is what was asked for
                await db.commit(tx)
        self.forget(credential)


def grants_of(text: str) -> tuple[Grant, ...]:
    """The grants that a credential's row holds."""
    return tuple(
        Grant(frozenset(grant["actions"]), tuple(grant["kinds"]), grant.get("match")) for grant in canonical.stored(text)
    )


def _grant_data(grant: Grant) -> dict[str, Any]:
    data: dict[str, Any] = {"actions": sorted(grant.actions), "kinds": list(grant.kinds)}
    return data if grant.match is None else {**data, "match": grant.match}


def _columns(credential: Credential) -> dict[str, str | int | None]:
    return {
        "id": credential.id,
        "subject": credential.subject,
        "grants": canonical.dumps([_grant_data(grant) for grant in credential.grants]),
        "created_by": credential.created_by,
        "expires_at": credential.expires_at,
        "public": credential.public,
        "origins": canonical.dumps(list(credential.origins)) if credential.origins else None,
        "rate": None if credential.rate is None else canonical.dumps(public.rate_data(credential.rate)),
    }


def _publicity(row: Row) -> dict[str, Any]:
    rate = json.loads(row["rate"]) if row["rate"] else None
    return {
        "public": bool(row["public"]),
        "origins": tuple(json.loads(row["origins"])) if row["origins"] else (),
        "rate": None if rate is None else Rate(rate["per_second"], rate["burst"]),
    }


def _event(credential: Credential, happened: str) -> Event:
    data = credential.answer()
    told = ("subject", "grants", "expires_at", *(("public", "origins", "rate") if credential.public else ()))
    return Event(credential.id, happened, {name: data[name] for name in told})


def _grant(declared: GrantDeclaration, number: int) -> Grant:
    """The grant as kept: each kind once, and `*` or no kinds at all as the grant for all of them."""
    for pattern in declared.kinds or ():
        if _KINDS.fullmatch(pattern) is None:
            raise refused(f"/grants/{number}/kinds", f"holds {shown(pattern)}, neither a kind's name nor a prefix and *")
    if declared.match is not None and canonical.size(canonical.dumps(declared.match)) > METADATA_BYTES:
        raise refused(f"/grants/{number}/match", f"is longer than {METADATA_BYTES} bytes")
    if declared.match is not None and "admin" in declared.actions:
        raise refused(f"/grants/{number}/match", "cannot narrow admin: give the other actions in a grant of their own")
    kinds = tuple(dict.fromkeys(declared.kinds or ()))
    return Grant(frozenset(declared.actions), () if "*" in kinds else kinds, declared.match)


def _expiry(text: str | None, now: Instant) -> Instant | None:
    if text is None:
        return None
    try:
        expires_at = parse(text)
    except RequestInvalid as error:
        raise refused("/expires_at", error.detail) from None
    if expires_at <= now:
        raise refused("/expires_at", "must lie in the future")
    return expires_at


def _demand_authority(caller: Caller, subject: str, grants: tuple[Grant, ...]) -> None:
    """Nobody gives more than they have: neither actions on other kinds or records, nor another's name.

    An admin of some kinds names its own subject, or one that begins with it and a colon.
    """
    check_subject(subject)
    if caller.may("admin"):
        return
    held = [grant for grant in caller.grants if "admin" in grant.actions]
    if not held:
        raise Forbidden("the credential does not grant admin")
    if subject != caller.subject and not subject.startswith(f"{caller.subject}:"):
        raise Forbidden("an admin of some kinds makes credentials for its own subject and those below it")
    for grant in grants:
        covered = bool(grant.kinds) and all(any(_covers_name(mine, kind) for mine in held) for kind in grant.kinds)
        if not covered:
            raise Forbidden("the credential does not hold what it would grant")


def _covers_name(mine: Grant, wanted: str) -> bool:
    """Whether a grant for some kinds covers everything that a name or prefix stands for."""
    return any(names(held, wanted) for held in mine.kinds)


def _creator(caller: Caller, credential: str | None = None) -> str | None:
    """Whose credentials the caller may see: None is everyone's; an admin of some kinds sees those it made.

    Every holder may see its own credential. Raises Forbidden for a caller that is no admin.
    """
    if caller.may("admin") or (credential is not None and credential == caller.credential):
        return None
    if any("admin" in grant.actions for grant in caller.grants):
        return caller.subject
    raise Forbidden("the credential does not grant admin")
