"""What the tests of records work with: one kind, a clock that only the test moves, and every operation in one line."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from moorage.catalog import declare
from moorage.catalog.access import Action, Caller, Grant
from moorage.catalog.kinds import Kind, Kinds
from moorage.catalog.model import KindDeclaration
from moorage.history.query import Entry, entries
from moorage.idempotency.keys import Key, key_for
from moorage.kernel import canonical
from moorage.kernel.errors import FailureTag, LeaseExpired
from moorage.kernel.instants import Instant, after, parse, render
from moorage.kernel.pages import Page, PageRequest
from moorage.records import cancel, claim, dead_letters, fail, publish, query, settle
from moorage.records.claim import Claims
from moorage.records.due import RecordDelays, RecordLeases, StaleRecords
from moorage.records.model import Claim, ClaimRef, DeadLetter, Draft, Failure, Record, RecordLease, Relative, Settlement
from moorage.records.page_statements import Order
from moorage.records.query import Direction
from moorage.records.retention import Retention
from moorage.records.sessions import ExpiredSessions, Turn
from moorage.store.ports import Cost, Database
from moorage.timers import clock
from tests.contract.adapters import Store

START = Instant(1_800_000_000_000)
KIND = "mail"
PATHS = {"to": "string", "size": "number", "tags": "string[]", "any": "any"}
POLICY: dict[str, Any] = {
    "lease_seconds": 30,
    "max_attempts": 3,
    "retry": {"delay_seconds": 1, "factor": 2, "max_delay_seconds": 60},
}
ROOT = Caller("root")
BOOM = Failure(FailureTag.TRANSIENT, "boom")
WORKS = (RecordLeases(), RecordDelays(), StaleRecords(), Retention(), ExpiredSessions())


def ref(claimed: Claim) -> ClaimRef:
    """What the holder of a claim shows."""
    return ClaimRef(claimed.record.id, claimed.lease.epoch)


def grant(*actions: Action, kinds: Sequence[str] = (), match: Mapping[str, Any] | None = None) -> Grant:
    """A grant."""
    return Grant(frozenset(actions), tuple(kinds), match)


class Desk:
    """One store, seen by `caller` at the instant `now`. Every call has a Database of its own, as a request has."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = START
        self.caller = ROOT
        self.kinds = Kinds()
        self.cost = Cost()

    def db(self) -> Database:
        """A new instance; `cost` is the last one's."""
        db = self.store.db()
        self.cost = db.cost
        return db

    def seen_by(self, caller: Caller) -> "Desk":
        """The same store and instant for another caller."""
        other = Desk(self.store)
        other.now, other.kinds, other.caller = self.now, self.kinds, caller
        return other

    async def credential(self, subject: str, *grants: Grant) -> Caller:
        """A live credential with these grants."""
        name = f"crd_{subject}"
        await self.store.sql(
            "INSERT INTO credentials (id, token_sha256, subject, grants, created_at, created_by) VALUES (?, ?, ?, ?, ?, ?)",
            name,
            name,
            subject,
            "[]",
            str(self.now),
            "root",
        )
        return Caller(subject, grants, name)

    def pass_time(self, seconds: float) -> None:
        """Let time pass; nothing fires by itself."""
        self.now = after(self.now, seconds)

    async def fire(self) -> dict[str, int]:
        """Let the Clock fire what is due now; what it counted by class."""
        drained = await clock.drain(self.db, self.now, WORKS)
        assert not drained.failed
        return drained.fired

    async def next_due(self) -> Instant | None:
        """What the Clock would be armed for."""
        return await clock.next_due(self.db(), self.now, WORKS)

    async def declare(
        self,
        kind: str = KIND,
        paths: Mapping[str, str] = PATHS,
        policy: Mapping[str, Any] = POLICY,
        retention: int | None = None,
    ) -> Kind:
        wished = {"paths": dict(paths), "claim": dict(policy), "retention_seconds": retention}
        declaration = KindDeclaration.model_validate(wished)
        return await declare.declare(self.db(), ROOT, self.now, self.kinds, kind, declaration)

    def key(self, text: str, content: Any) -> Key:
        """An idempotency key over some content."""
        key = key_for(self.caller.subject, text, "POST /records", content)
        assert key is not None
        return key

    async def publish_all(self, drafts: Sequence[Draft], key: Key | None = None) -> list[Record]:
        return await publish.publish(self.db(), self.kinds, self.caller, self.now, drafts, key)

    async def publish(self, body: Mapping[str, Any] | None = None, kind: str = KIND, **more: Any) -> Record:
        draft = Draft(kind, {"to": "a@example.test"} if body is None else body, **more)
        return (await self.publish_all([draft]))[0]

    async def claim(
        self,
        match: Mapping[str, Any] | None = None,
        worker: str = "ann",
        limit: int = 1,
        seconds: float | None = None,
        kind: str = KIND,
        key: Key | None = None,
        turn: Turn | None = None,
        or_nothing: bool = False,
    ) -> Claims:
        return await claim.claim(
            self.db(), self.kinds, self.caller, self.now, kind, match or {}, worker, limit, seconds, key, or_nothing, turn
        )

    async def claim_one(self, **how: Any) -> Claim:
        [taken] = await self.claim(**how)
        return taken

    async def renew(self, held: ClaimRef, seconds: float | None = None, key: Key | None = None) -> RecordLease:
        return await claim.renew(self.db(), self.kinds, self.caller, self.now, held, seconds, key)

    async def release(self, held: ClaimRef, key: Key | None = None) -> None:
        await claim.release(self.db(), self.kinds, self.caller, self.now, held, key)

    async def settle(self, held: ClaimRef, *results: Draft, key: Key | None = None) -> Settlement:
        return await settle.settle(self.db(), self.kinds, self.caller, self.now, held, results, key)

    async def fail(
        self,
        held: ClaimRef,
        failure: Failure = BOOM,
        retry: float | None = None,
        dead: bool = False,
        key: Key | None = None,
    ) -> Record:
        return await fail.fail(self.db(), self.kinds, self.caller, self.now, held, failure, retry, dead, key)

    async def get(self, record: str) -> Record:
        return await query.get(self.db(), self.kinds, self.caller, self.now, record)

    async def query(
        self,
        match: Mapping[str, Any] | None = None,
        page: PageRequest | None = None,
        state: Any = None,
        order: Order = "asc",
        kind: str = KIND,
    ) -> Page[Record]:
        wanted = page or PageRequest()
        return await query.query(self.db(), self.kinds, self.caller, self.now, kind, match or {}, wanted, state, order)

    async def lineage(self, record: str, direction: Direction = "ancestors", depth: int = 32) -> tuple[list[Relative], bool]:
        return await query.lineage(self.db(), self.kinds, self.caller, self.now, record, direction, depth)

    async def letters(self, kind: str | None = KIND, page: PageRequest | None = None) -> Page[DeadLetter]:
        wanted = page or PageRequest()
        return await dead_letters.list_dead_letters(self.db(), self.kinds, self.caller, self.now, wanted, kind)

    async def letter(self, record: str) -> DeadLetter:
        return await dead_letters.show(self.db(), self.kinds, self.caller, self.now, record)

    async def requeue(self, record: str, reason: str = "mended", key: Key | None = None) -> Record:
        return await dead_letters.requeue(self.db(), self.kinds, self.caller, self.now, record, reason, key)

    async def requeue_matching(
        self, match: Mapping[str, Any], limit: int = 500, kind: str = KIND, key: Key | None = None
    ) -> list[Record]:
        return await dead_letters.requeue_matching(
            self.db(), self.kinds, self.caller, self.now, kind, match, "mended", limit, key
        )

    async def cancel(self, record: str, reason: str = "not wanted", key: Key | None = None) -> Record:
        return await cancel.cancel(self.db(), self.kinds, self.caller, self.now, record, reason, key)

    async def told(self, record: str) -> list[Entry]:
        """The record's history."""
        return await entries(self.db(), 0, 500, record)

    async def types(self, record: str) -> list[str]:
        """What happened to the record, oldest first."""
        return [entry.type.removeprefix("record.") for entry in await self.told(record)]

    async def row(self, record: str) -> dict[str, Any]:
        """The record as it lies in the table."""
        [row] = await self.store.sql("SELECT * FROM records WHERE id = ?", record)
        return row

    async def history_agrees(self) -> None:
        """Every record's row is what its history tells, and history has no gap (clause history.append)."""
        told = await self.store.sql("SELECT * FROM history ORDER BY position")
        assert [entry["position"] for entry in told] == list(range(1, len(told) + 1))
        retold: dict[str, dict[str, Any]] = {}
        revisions: dict[str, int] = {}
        for entry in told:
            subject = entry["subject"]
            revisions[subject] = revisions.get(subject, 0) + 1
            assert entry["revision"] == revisions[subject]
            if entry["type"] == "record.removed":
                gone = retold.pop(subject)
                assert gone["ended_at"] is not None
                assert json.loads(entry["data"])["seq"] == gone["seq"]
            elif entry["type"].startswith("record."):
                retold[subject] = retell(retold.get(subject), entry)
        rows = await self.store.sql(f"SELECT id, {', '.join(TOLD)} FROM records")  # noqa: S608
        stored = {row["id"]: {name: row[name] for name in TOLD} for row in rows}
        assert stored == retold


TOLD = (
    "seq", "kind", "body_sha256", "state", "available", "attempts", "epoch", "owner", "expires_at", "ended_at", "failure",
)  # fmt: skip

_NO_LEASE = {"owner": None, "expires_at": None}
LEASE_EXPIRED = canonical.dumps({"tag": "TimedOut", "code": "LeaseExpired", "message": LeaseExpired.meaning()})


def retell(before: dict[str, Any] | None, entry: Mapping[str, Any]) -> dict[str, Any]:
    """What a record is after one more entry of its history."""
    data = json.loads(entry["data"])
    happened = entry["type"].removeprefix("record.")
    if before is None:
        assert happened == "published"
        return dict.fromkeys(TOLD) | {
            "seq": entry["position"],
            "kind": entry["kind"],
            "body_sha256": entry["content_sha256"],
            "state": "ready",
            "available": int("not_before" not in data),
            "attempts": 0,
            "epoch": 0,
        }
    if happened == "debounced":
        assert (before["state"], before["available"], before["attempts"]) == ("ready", 0, 0)
        return before | {"body_sha256": entry["content_sha256"]}
    assert (entry["kind"], entry["content_sha256"]) == (before["kind"], before["body_sha256"])
    return before | _change(happened, before, data, entry["at"])


def _change(happened: str, before: Mapping[str, Any], data: dict[str, Any], at: int) -> dict[str, Any]:
    match happened:
        case "due":
            assert (before["state"], before["available"]) == ("ready", 0)
            return {"available": 1}
        case "claimed":
            assert (before["state"], before["available"]) == ("ready", 1)
            assert (data["attempt"], data["epoch"]) == (before["attempts"] + 1, before["epoch"] + 1)
            lease = {"owner": data["owner"], "expires_at": parse(data["expires_at"])}
            return lease | {"state": "claimed", "available": 0, "attempts": data["attempt"], "epoch": data["epoch"]}
        case "canceled":
            assert (before["state"], before["epoch"]) == (data["state"], data["epoch"])
            failure = canonical.dumps({"tag": "Canceled", "message": data["reason"]})
            return _NO_LEASE | {"state": "dead", "available": 0, "ended_at": at, "failure": failure}
        case "requeued":
            assert before["state"] == "dead"
            return {"state": "ready", "available": 1, "attempts": 0, "ended_at": None, "failure": None}
        case "dead_lettered":
            failure = canonical.dumps(data["failure"])
            return {"state": "dead", "available": 0, "ended_at": at, "failure": failure}
    assert (before["state"], before["epoch"]) == ("claimed", data["epoch"])
    match happened:
        case "renewed":
            assert data["expires_at"] >= render(before["expires_at"])
            return {"expires_at": parse(data["expires_at"])}
        case "released":
            return _NO_LEASE | {"state": "ready", "available": 1, "attempts": before["attempts"] - 1}
        case "settled":
            return _NO_LEASE | {"state": "consumed", "ended_at": at, "failure": None}
        case "lease_expired":
            assert at >= before["expires_at"]
            return _NO_LEASE | {"state": "ready", "available": 1, "failure": LEASE_EXPIRED}
        case "failed":
            failure = canonical.dumps(data["failure"])
            available = int(data["not_before"] is None)
            return _NO_LEASE | {"state": "ready", "available": available, "failure": failure}
    raise AssertionError(f"history tells of {happened}")
