"""Executions: the substrate for hosts outside the Worker (clause runs.substrate). `docs/hosts.md` tells it as a whole."""

from typing import Annotated, Any, get_args

from fastapi import Body, Path, Query
from starlette.responses import Response

from moorage.api.answers import Answer
from moorage.api.bodies import find_body
from moorage.api.execution_shapes import (
    AppliedShown,
    ApplySent,
    BlobShown,
    CanExecute,
    DueShown,
    ExecutionShown,
    HostCapabilitiesShown,
    JournalEntriesShown,
    KeptShown,
    LeaseKept,
    ManyHeldSent,
    OpenSent,
    RewoundShown,
    ScopeCursorShown,
    StandingShown,
    StopsShown,
    TakenShown,
    TakeSent,
    UnderLease,
    ValuesSent,
    ValuesShown,
    WaitSent,
)
from moorage.api.fields import JsonObject, fails
from moorage.api.hosting import blobs_of, held, substrate_of, tokens_of, until
from moorage.api.requests import ApiRequest
from moorage.api.routes.runs import OPENING, start_of
from moorage.api.routing import router
from moorage.api.run_shapes import RewindSent
from moorage.api.runners import body_bell, execution_bell
from moorage.journal.model import EntryKey, Fence
from moorage.kernel import canonical
from moorage.kernel.errors import (
    AwakeableTokenLost,
    AwakeableUnknown,
    BlobBusy,
    BlobCorrupt,
    BlobMissing,
    BodyInvalid,
    BodyUnknown,
    CapabilityUnwired,
    CursorMoved,
    DestinationUnknown,
    EffectUnsettled,
    EntryUnknown,
    ExecutionGuardBlocked,
    ExecutionRecoveryMismatch,
    ExecutionRewindNotPending,
    ExecutionRewindPlanCurrent,
    ExecutionRewindUnsafe,
    ExecutionUnknown,
    ExecutionWoken,
    GuardedElsewhere,
    GuardUnknown,
    HolderUnknown,
    KindConflict,
    KindUnknown,
    LeaseExpired,
    LeaseFenced,
    LeaseHeld,
    ParentUnknown,
    PayloadTooLarge,
    RecordExists,
    RunEnded,
    RunMetadataTooLarge,
    StorageCapabilityMissing,
)
from moorage.kernel.limits import ID_CHARACTERS, published
from moorage.kernel.refusals import refused
from moorage.runs import authority, hosting, rewind, wire
from moorage.runs.hosting import Standing
from moorage.runs.model import CAPABILITIES, TERMINAL, Build, Execution
from moorage.runs.operations import Operation

api = router("executions")

ExecutionId = Annotated[str, Path(max_length=int(ID_CHARACTERS), description="An execution's id.")]
EpochQuery = Annotated[int, Query(ge=1, le=2**53 - 1, description="The epoch of the lease under which it is held.")]
_FENCED = (LeaseFenced, LeaseExpired)
_ACTING = (
    KindUnknown,
    KindConflict,
    BodyInvalid,
    RecordExists,
    ParentUnknown,
    BodyUnknown,
    CursorMoved,
    AwakeableUnknown,
    AwakeableTokenLost,
    CapabilityUnwired,
)
_GUARDING = (GuardedElsewhere, ExecutionGuardBlocked, GuardUnknown, HolderUnknown, DestinationUnknown, LeaseHeld)
_ANY: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {"schema": {}}}}}
_ANSWER_BYTES = 8 * 2**20
_LIMITS = ("apply_operations", "journal_", "owner_", "stop_poll_ms", "run_", "scope_characters", "wait_seconds")


@api.post("/executions", status_code=201, response_model=ExecutionShown, responses=fails(*OPENING))
async def open_execution(request: ApiRequest, sent: OpenSent) -> Response:
    """Open an execution, or resume the one that is pending under the scope, and hold it from then on.

    Like `POST /runs`, but the caller is the host. The body need not be offered to others when `build` says what executes it.
    """
    await request.ports.admit_effects()
    authority.demand(request.caller, "execute", sent.body)
    if sent.build is not None:
        info = hosting.info_of(sent.build.build(sent.body))
        if request.ports.bodies.get(sent.body) is not None:
            raise refused("/body", "is a body of the Worker: start a run of it, or host it under another name")
    else:
        info = await find_body(request, sent.body)
        if info.host == "worker":
            raise refused("/body", "is a body of the Worker: start a run of it")
    start = await start_of(request, sent)
    execution = await hosting.open_(
        request.db,
        blobs_of(request),
        request.caller,
        request.now,
        info,
        start,
        sent.holder,
        request.key(),
        shards=request.ports.settings.runners,
        tokens=tokens_of(request),
    )
    request.wake(execution.lease.expires_at, "runs")
    return Answer(wire.execution_wire(execution), 201, {"location": f"/runs/{execution.run_id}"})


@api.post(
    "/executions/claim",
    response_model=TakenShown,
    responses=fails(ExecutionRecoveryMismatch, StorageCapabilityMissing, ExecutionGuardBlocked),
)
async def claim_executions(request: ApiRequest, sent: TakeSent) -> Response:
    """Take executions that wait for a host with these bodies, each in the build that it is bound to.

    With `wait_seconds` the answer comes as soon as there is one, and is empty after that time. What a lost answer took is
    free again when its lease ends. What a guard protects is passed over, and refused where `execution_id` asks for it.
    """
    await request.ports.admit_effects()
    builds = _builds(request, sent)
    owner, blobs = hosting.owner_of(request.caller, sent.holder), blobs_of(request)
    tokens = tokens_of(request)

    async def look() -> list[Execution] | None:
        now = request.ports.now()
        if sent.execution_id is None:
            return await hosting.take_several(request.db, blobs, now, owner, builds, sent.limit, tokens) or None
        one = await hosting.take_one(request.db, blobs, now, sent.execution_id, owner, builds, tokens)
        return None if one is None else [one]

    bells = [body_bell(name) for name in builds] if sent.execution_id is None else [execution_bell(sent.execution_id)]
    taken = await until(request, bells, sent.wait_seconds, look) or []
    request.wake(min((one.lease.expires_at for one in taken), default=None), "runs")
    return Answer({"executions": [wire.execution_wire(one) for one in taken]})


@api.post("/executions/wait", response_model=DueShown)
async def wait_for_any(request: ApiRequest, sent: CanExecute) -> Response:
    """Wait until there is something to claim for a host with these bodies. Nothing is taken, so that a host may leave while
    it waits."""
    builds = _builds(request, sent)

    async def look() -> bool | None:
        return await hosting.anything_waits(request.db, request.ports.now(), builds) or None

    found = await until(request, [body_bell(name) for name in builds], sent.wait_seconds, look)
    return Answer({"due": bool(found)})


@api.get("/executions/capabilities", response_model=HostCapabilitiesShown)
async def show_capabilities(request: ApiRequest) -> Response:
    """What this deployment offers to hosts: the operations, what bodies may ask for, and the limits."""
    limits = {name: told["value"] for name, told in published().items() if name.startswith(_LIMITS)}
    operations = sorted(str(one.__dataclass_fields__["op"].default) for one in get_args(Operation))
    return Answer({"operations": operations, "capabilities": sorted(CAPABILITIES), "limits": limits})


@api.post("/executions/renew", response_model=KeptShown)
async def renew_executions(request: ApiRequest, sent: ManyHeldSent) -> Response:
    """Extend the leases of many executions. Each item has an outcome of its own: the lease, or why it was lost."""
    fences = _fences(sent)
    mine = await request.ports.fences.check(request.db, request.caller, fences)
    leases = await substrate_of(request).renew([fence for fence in fences if fence in mine])
    request.wake(min((lease.expires_at for lease in leases.values()), default=None), "runs")
    items: list[JsonObject] = []
    for fence in fences:
        lease = leases.get(fence.execution_id) if fence in mine else None
        told = {"error": LeaseFenced().problem()} if lease is None else {"lease": wire.lease_wire(lease)}
        items.append({"execution_id": fence.execution_id, **told})
    return Answer({"items": items})


@api.post("/executions/stops", response_model=StopsShown)
async def list_stops(request: ApiRequest, sent: ManyHeldSent) -> Response:
    """The stops that were asked for, of executions that the host holds. One reading for all of them."""
    fences = _fences(sent)
    mine = await request.ports.fences.check(request.db, request.caller, fences)
    stops = await substrate_of(request).stops([fence for fence in fences if fence in mine])
    return Answer({"items": [{"execution_id": name, "stop": wire.stop_wire(stop)} for name, stop in stops.items()]})


@api.get("/executions/{execution_id}", response_model=StandingShown, responses=fails(ExecutionUnknown))
async def show_execution(request: ApiRequest, execution_id: ExecutionId) -> Response:
    """How an execution of a host outside the Worker stands."""
    return Answer((await hosting.standing(request.db, request.caller, request.now, execution_id)).wire())


@api.post(
    "/executions/{execution_id}/journal",
    response_model=AppliedShown,
    responses=fails(
        *_FENCED,
        RunEnded,
        ExecutionWoken,
        EntryUnknown,
        PayloadTooLarge,
        RunMetadataTooLarge,
        *_ACTING,
        *_GUARDING,
        ExecutionRecoveryMismatch,
    ),
)
async def apply_operations(request: ApiRequest, execution_id: ExecutionId, sent: ApplySent) -> Response:
    """Commit a list of operations as one transaction, under the lease, and answer each. It may be sent again as it is: what
    was carried out answers what it did then."""
    if any(one.op == "admit_guard" for one in sent.operations):
        await request.ports.admit_effects()
    fence = await held(request, execution_id, sent.epoch)
    outcomes = await substrate_of(request).apply(fence, [one.operation() for one in sent.operations])
    return Answer({"outcomes": [wire.outcome_wire(one) for one in outcomes]})


@api.post(
    "/executions/{execution_id}/refresh",
    response_model=JournalEntriesShown,
    responses=fails(*_FENCED, BlobMissing, BlobCorrupt),
)
async def refresh_execution(request: ApiRequest, execution_id: ExecutionId, sent: UnderLease) -> Response:
    """The entries whose wait is over, under this epoch."""
    fence = await held(request, execution_id, sent.epoch)
    entries = await substrate_of(request).refresh(fence)
    return Answer({"entries": [wire.entry_wire(one) for one in entries]})


@api.post(
    "/executions/{execution_id}/values",
    response_model=ValuesShown,
    responses=fails(*_FENCED, EntryUnknown, BlobMissing, BlobCorrupt),
)
async def load_values(request: ApiRequest, execution_id: ExecutionId, sent: ValuesSent) -> Response:
    """What entries recorded, in the order of the keys: as many as an answer holds, and at least one."""
    fence = await held(request, execution_id, sent.epoch)
    values = await substrate_of(request).values(fence, [EntryKey(one.label, one.input_sha256) for one in sent.keys])
    shown: list[JsonObject] = []
    size = 0
    for value in values:
        size += value.size
        if shown and size > _ANSWER_BYTES:
            break
        shown.append(wire.value_wire(value))
    return Answer({"values": shown})


@api.put(
    "/executions/{execution_id}/blobs",
    response_model=BlobShown,
    responses=fails(*_FENCED, PayloadTooLarge, BlobBusy),
)
async def store_value(
    request: ApiRequest,
    execution_id: ExecutionId,
    epoch: EpochQuery,
    value: Annotated[Any, Body(description="The value, any JSON.")] = None,
) -> Response:
    """Store a large value ahead of the operation that names it. It is kept for an hour unless one does."""
    if not await request.body():
        raise refused("", "is required", "a value is required; null is one")
    text = canonical.dumps(value)
    fence = await held(request, execution_id, epoch)
    stored = await substrate_of(request).store(fence, text)
    return Answer({"sha256": stored.blob, "size": stored.size})


@api.get(
    "/executions/{execution_id}/blobs/{sha256}",
    responses=_ANY | fails(*_FENCED, EntryUnknown, BlobMissing, BlobCorrupt),
)
async def load_value(
    request: ApiRequest,
    execution_id: ExecutionId,
    sha256: Annotated[str, Path(max_length=64, description="The digest of a value.")],
    epoch: EpochQuery,
) -> Response:
    """The bytes of a large value that the execution refers to: its canonical JSON."""
    fence = await held(request, execution_id, epoch)
    return Response(await substrate_of(request).blob(fence, sha256), media_type="application/json")


@api.post("/executions/{execution_id}/renew", response_model=LeaseKept, responses=fails(*_FENCED))
async def renew_execution(request: ApiRequest, execution_id: ExecutionId, sent: UnderLease) -> Response:
    """Extend the lease of one execution."""
    fence = await held(request, execution_id, sent.epoch)
    lease = (await substrate_of(request).renew([fence])).get(execution_id)
    if lease is None:
        raise LeaseFenced
    request.wake(lease.expires_at, "runs")
    return Answer({"lease": wire.lease_wire(lease)})


@api.get("/executions/{execution_id}/cursors/{name}", response_model=ScopeCursorShown, responses=fails(*_FENCED))
async def show_cursor(
    request: ApiRequest,
    execution_id: ExecutionId,
    name: Annotated[str, Path(max_length=int(ID_CHARACTERS), description="The cursor's name.")],
    epoch: EpochQuery,
) -> Response:
    """A cursor of the execution's scope, and the revision to move it from; 0 where there is none yet."""
    fence = await held(request, execution_id, epoch)
    value, revision = await substrate_of(request).cursor(fence, name)
    return Answer({**({} if value is None else wire.value_wire(value)), "revision": revision})


@api.post("/executions/{execution_id}/wait", response_model=StandingShown, responses=fails(ExecutionUnknown))
async def wait_for_execution(request: ApiRequest, execution_id: ExecutionId, sent: WaitSent) -> Response:
    """How the execution stands, as soon as it is `due` or its run has ended, or after `wait_seconds`.

    For who holds it, `due` says that something which it awaits has ended, or that a stop was asked for; where nobody does,
    that it may be claimed.
    """
    latest: list[Standing] = []

    async def look() -> Standing | None:
        found = await hosting.standing(request.db, request.caller, request.ports.now(), execution_id)
        latest[:] = [found]
        return found if found.due or found.status in TERMINAL else None

    await until(request, [execution_bell(execution_id)], sent.wait_seconds, look)
    return Answer(latest[0].wire())


@api.post(
    "/executions/{execution_id}/rewind",
    response_model=RewoundShown,
    responses=fails(
        ExecutionRewindNotPending, ExecutionRewindPlanCurrent, ExecutionRewindUnsafe, ExecutionGuardBlocked, EffectUnsettled
    ),
)
async def rewind_execution(request: ApiRequest, execution_id: ExecutionId, sent: RewindSent) -> Response:
    """Give up a pending execution with all that it recorded, so that its scope can be opened under another build or input.
    Cursors stay. It takes grants to execute and to operate on the body."""
    rewound = await rewind.rewind(
        request.db, request.caller, request.now, execution_id, sent.reason, sent.force, settled=sent.settled
    )
    return Answer(rewound.wire())


def _builds(request: ApiRequest, sent: CanExecute) -> dict[str, Build]:
    builds = sent.builds()
    for name in builds:
        authority.demand(request.caller, "execute", name)
    return builds


def _fences(sent: ManyHeldSent) -> list[Fence]:
    fences = [Fence(one.execution_id, one.epoch) for one in sent.items]
    if len({fence.execution_id for fence in fences}) < len(fences):
        raise refused("/items", "names an execution twice")
    return fences
