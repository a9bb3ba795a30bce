"""Claims: take records under a lease, and end or extend it."""

from typing import Annotated

import pydantic_core
from pydantic import Field
from starlette.responses import Response

from moorage.api import shapes
from moorage.api.answers import Answer, nothing, retry_after_header
from moorage.api.fields import Epoch, JsonObject, ProblemShown, RecordId, Sent, Shown, fails
from moorage.api.requests import ApiRequest
from moorage.api.routing import router
from moorage.api.shapes import ClaimShown, LeaseShown, RecordShown, ResultSent
from moorage.api.waiting import claim_or_wait
from moorage.kernel import canonical
from moorage.kernel.errors import (
    BodyInvalid,
    FailureTag,
    IdempotencyConflict,
    KindConflict,
    KindUnknown,
    LeaseExpired,
    LeaseFenced,
    MoorageError,
    PatternInvalid,
    PayloadTooLarge,
    RecordExists,
    RecordUnknown,
    RequestInvalid,
    SequenceConflict,
    SequenceStale,
    SessionExpired,
    SessionUnknown,
    SettlementConflict,
)
from moorage.kernel.instants import Instant
from moorage.kernel.limits import (
    CLAIM_BATCH,
    ID_CHARACTERS,
    LEASE_SECONDS,
    RETRY_SECONDS,
    SETTLE_RESULTS,
    TEXT_CHARACTERS,
    WAIT_SECONDS,
)
from moorage.kernel.refusals import refused
from moorage.kv.model import changes_of
from moorage.records import batches, claim, fail, settle
from moorage.records.batches import Ending, Renewal
from moorage.records.claim import Claims
from moorage.records.model import Claim, ClaimRef, Failure
from moorage.records.retention import next_look
from moorage.records.sessions import MAX_SEQUENCE, Turn

api = router("claims")

_FENCED = (RecordUnknown, LeaseFenced, LeaseExpired)

LeaseSeconds = Annotated[float, Field(gt=0, le=int(LEASE_SECONDS))]


class ClaimSent(Sent):
    """Which records to claim. `lease_seconds` is the kind's own unless given; `wait_seconds` is how long to wait for a first
    match."""

    kind: str
    match: JsonObject = Field(default_factory=dict)
    worker: str = Field(min_length=1, max_length=int(ID_CHARACTERS))
    limit: int = Field(default=1, ge=1, le=int(CLAIM_BATCH))
    lease_seconds: LeaseSeconds | None = None
    wait_seconds: float = Field(default=0, ge=0, le=int(WAIT_SECONDS))
    session: str | None = Field(default=None, max_length=int(ID_CHARACTERS), description="A session that is open.")
    consumer: str | None = Field(default=None, description="Who counts claims in the session.")
    sequence: int | None = Field(default=None, ge=1, le=MAX_SEQUENCE, description="The number of this claim, counted up.")

    def turn(self) -> Turn | None:
        """The claim's place in its session, if it has one. Raises RequestInvalid unless all three fields are there."""
        if self.session is None or self.consumer is None or self.sequence is None:
            missing = [name for name in ("session", "consumer", "sequence") if getattr(self, name) is None]
            if len(missing) == 3:
                return None
            errors = [{"pointer": f"/{name}", "message": "is required with the other two"} for name in missing]
            raise RequestInvalid("session, consumer and sequence go together", errors=errors)
        asked = [self.kind, self.match, self.worker, self.limit, self.lease_seconds]
        return Turn(self.session, self.consumer, self.sequence, canonical.digest(canonical.dumps(asked)))


class ClaimsShown(Shown):
    """The claimed records, oldest first within priority; empty when nothing matched now. `retry_after` are seconds, where
    the kind's rate left nothing to claim."""

    claims: list[ClaimShown]
    retry_after: float | None = None


class UnderEpoch(Sent):
    """Proof of the claim."""

    epoch: Epoch


class RenewSent(UnderEpoch):
    """How long the lease is to last from now; a shorter wish leaves it as it is."""

    lease_seconds: LeaseSeconds | None = None


class LeaseAnswer(Shown):
    """The lease as it is now."""

    lease: LeaseShown


class SettleSent(UnderEpoch):
    """The results to publish with the record as their parent."""

    results: list[ResultSent] = Field(default_factory=list, max_length=int(SETTLE_RESULTS))


class SettleOneSent(SettleSent):
    """The results, and the values that change with them: `kv` holds values by namespace and key, where null deletes."""

    kv: dict[str, JsonObject] = Field(default_factory=dict)


class ReceiptShown(Shown):
    """Proof of the settlement: the same for every replay."""

    record: str
    epoch: int
    settled_at: str
    results: list[str]
    sha256: str


class SettledShown(Shown):
    """The receipt, the consumed record, and its results."""

    receipt: ReceiptShown
    record: RecordShown
    results: list[RecordShown]


class FailureSent(Sent):
    """Why the attempt failed: a tag of the closed set, and a sentence for people."""

    tag: Annotated[FailureTag, Field(strict=False)]
    message: str = Field(max_length=int(TEXT_CHARACTERS))


class FailSent(UnderEpoch):
    """How the attempt failed. `retry_after_seconds` supersedes the kind's delay; `dead_letter` says that no other
    attempt could succeed."""

    error: FailureSent
    retry_after_seconds: float | None = Field(default=None, ge=0, le=int(RETRY_SECONDS))
    dead_letter: bool = False


class FailedShown(Shown):
    """The record after the failed attempt."""

    record: RecordShown


class RenewItem(UnderEpoch):
    """A claim to renew; `lease_seconds` supersedes what is said for all."""

    record: str = Field(max_length=int(ID_CHARACTERS))
    lease_seconds: LeaseSeconds | None = None


class RenewManySent(Sent):
    """Claims to renew, each record once."""

    items: list[RenewItem] = Field(min_length=1, max_length=int(CLAIM_BATCH))
    lease_seconds: LeaseSeconds | None = None


class RenewedItem(Shown):
    """What became of one claim: its lease, or the problem."""

    record: str
    lease: LeaseShown | None = None
    error: ProblemShown | None = None


class RenewedShown(Shown):
    """The outcomes, in the order given."""

    items: list[RenewedItem]


class SettleItem(SettleSent):
    """A claim to settle."""

    record: str = Field(max_length=int(ID_CHARACTERS))


class SettleManySent(Sent):
    """Claims to settle, each record once."""

    items: list[SettleItem] = Field(min_length=1, max_length=int(CLAIM_BATCH))


class SettledItem(Shown):
    """What became of one claim: its receipt with the consumed record and its results, or the problem."""

    record: str
    receipt: ReceiptShown | None = None
    settled: RecordShown | None = None
    results: list[RecordShown] | None = None
    error: ProblemShown | None = None


class SettledManyShown(Shown):
    """The outcomes, in the order given."""

    items: list[SettledItem]


async def _ref(request: ApiRequest, record: str, sent: UnderEpoch) -> ClaimRef:
    """The claim that the request shows. Raises RequestInvalid for an epoch that was written as a fraction.

    As a value `2.0` is 2, but whoever writes an epoch so has computed with it, and a fencing number is only ever shown.
    """
    written = pydantic_core.from_json(await request.body())["epoch"]
    if type(written) is not int:
        message = "must be the integer that came with the claim"
        raise refused("/epoch", message, f"/epoch: {message}")
    return ClaimRef(record, sent.epoch)


async def _check_epochs(request: ApiRequest) -> None:
    """Raise RequestInvalid for an item whose epoch was written as a fraction; see `_ref`."""
    written = [item["epoch"] for item in pydantic_core.from_json(await request.body())["items"]]
    for place, epoch in enumerate(written):
        if type(epoch) is not int:
            message = "must be the integer that came with the claim"
            pointer = f"/items/{place}/epoch"
            raise refused(pointer, message, f"{pointer}: {message}")


@api.post(
    "/claims",
    response_model=ClaimsShown,
    responses=fails(
        KindUnknown,
        PatternInvalid,
        IdempotencyConflict,
        SessionUnknown,
        SessionExpired,
        SequenceStale,
        SequenceConflict,
    ),
)
async def claim_records(request: ApiRequest, sent: ClaimSent) -> Response:
    """Claim records of a kind that match. Each goes to one claimer only, under an epoch larger than any before.

    When nothing matches, a claim with `wait_seconds` answers as soon as something does, and with an empty list after that
    time. With `session`, `consumer` and `sequence` the claim is numbered: asked again with the latest number it answers the
    same claim, an empty one too, and takes nothing; an older number is refused.
    """
    key, turn = request.key(), sent.turn()

    async def attempt(now: Instant, or_nothing: bool) -> list[Claim]:
        return await claim.claim(
            request.db,
            request.ports.kinds,
            request.caller,
            now,
            sent.kind,
            sent.match,
            sent.worker,
            sent.limit,
            sent.lease_seconds,
            key,
            or_nothing=or_nothing,
            turn=turn,
        )

    claims = await claim_or_wait(
        request, sent.kind, sent.match, sent.wait_seconds, attempt, key is not None or turn is not None
    )
    request.wake(min((one.lease.expires_at for one in claims), default=None), "records")
    shown = {"claims": [shapes.claim(one) for one in claims]}
    retry_after = claims.retry_after if isinstance(claims, Claims) else None
    if retry_after is None:
        return Answer(shown)
    return Answer({**shown, "retry_after": retry_after}, headers={"retry-after": retry_after_header(retry_after)})


@api.post("/claims/renew", response_model=RenewedShown, responses=fails(IdempotencyConflict))
async def renew_claims(request: ApiRequest, sent: RenewManySent) -> Response:
    """Extend many leases. Each item has an outcome of its own: the lease, or the problem that a single call would answer."""
    await _check_epochs(request)
    items = [Renewal(ClaimRef(one.record, one.epoch), one.lease_seconds or sent.lease_seconds) for one in sent.items]
    found = await batches.renew_many(request.db, request.ports.kinds, request.caller, request.now, items, request.key())
    shown = [
        {"record": item.ref.record, "error": one.problem()}
        if isinstance(one, MoorageError)
        else {"record": item.ref.record, "lease": shapes.lease(one)}
        for item, one in zip(items, found, strict=True)
    ]
    return Answer({"items": shown})


@api.post(
    "/claims/settle",
    response_model=SettledManyShown,
    responses=fails(PayloadTooLarge, KindConflict, IdempotencyConflict),
)
async def settle_claims(request: ApiRequest, sent: SettleManySent) -> Response:
    """Settle many claims. Each item has an outcome of its own, and the same settlement again answers its first receipt."""
    await _check_epochs(request)
    items = [Ending(ClaimRef(one.record, one.epoch), tuple(result.draft() for result in one.results)) for one in sent.items]
    found = await batches.settle_many(request.db, request.ports.kinds, request.caller, request.now, items, request.key())
    shown: list[JsonObject] = []
    for item, one in zip(items, found, strict=True):
        if isinstance(one, MoorageError):
            shown.append({"record": item.ref.record, "error": one.problem()})
            continue
        request.wake(shapes.earliest_wait(one.results), "records")
        request.wake(next_look(request.ports.kinds, one.record), "upkeep")
        results = [shapes.record(result) for result in one.results]
        settled = shapes.record(one.record)
        shown.append({"record": item.ref.record, "receipt": one.receipt, "settled": settled, "results": results})
    return Answer({"items": shown})


@api.post("/claims/{record}/renew", response_model=LeaseAnswer, responses=fails(*_FENCED, IdempotencyConflict))
async def renew_claim(request: ApiRequest, record: RecordId, sent: RenewSent) -> Response:
    """Extend a lease that has not run out."""
    ref = await _ref(request, record, sent)
    lease = await claim.renew(
        request.db, request.ports.kinds, request.caller, request.now, ref, sent.lease_seconds, request.key()
    )
    return Answer({"lease": shapes.lease(lease)})


@api.post(
    "/claims/{record}/release",
    status_code=204,
    response_class=Response,
    responses=fails(*_FENCED, IdempotencyConflict),
)
async def release_claim(request: ApiRequest, record: RecordId, sent: UnderEpoch) -> Response:
    """Give a record back unworked; the attempt is not counted."""
    ref = await _ref(request, record, sent)
    stale_at = await claim.release(request.db, request.ports.kinds, request.caller, request.now, ref, request.key())
    request.wake(stale_at, "records")
    return nothing()


@api.post(
    "/claims/{record}/settle",
    response_model=SettledShown,
    responses=fails(*_FENCED, SettlementConflict, KindUnknown, BodyInvalid, RecordExists, KindConflict, IdempotencyConflict),
)
async def settle_claim(request: ApiRequest, record: RecordId, sent: SettleOneSent) -> Response:
    """Consume a claimed record, publish its results and change keys, in one transaction. The same settlement again answers
    the first receipt."""
    drafts = [one.draft() for one in sent.results]
    ref = await _ref(request, record, sent)
    done = await settle.settle(
        request.db,
        request.ports.kinds,
        request.caller,
        request.now,
        ref,
        drafts,
        request.key(),
        changes_of(sent.kv),
    )
    request.wake(shapes.earliest_wait(done.results), "records")
    request.wake(next_look(request.ports.kinds, done.record), "upkeep")
    results = [shapes.record(one) for one in done.results]
    return Answer({"receipt": done.receipt, "record": shapes.record(done.record), "results": results})


@api.post("/claims/{record}/fail", response_model=FailedShown, responses=fails(*_FENCED, IdempotencyConflict))
async def fail_claim(request: ApiRequest, record: RecordId, sent: FailSent) -> Response:
    """End the attempt as failed: the record is ready again after a delay, or dead after its last attempt."""
    failed = await fail.fail(
        request.db,
        request.ports.kinds,
        request.caller,
        request.now,
        await _ref(request, record, sent),
        Failure(sent.error.tag, sent.error.message),
        sent.retry_after_seconds,
        sent.dead_letter,
        request.key(),
    )
    request.wake(shapes.earliest_wait([failed]), "records")
    request.wake(next_look(request.ports.kinds, failed), "upkeep")
    return Answer({"record": shapes.record(failed)})
