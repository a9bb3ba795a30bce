"""The recovery identity: who makes it, what it binds, and what keeps effectful work out."""

from dataclasses import dataclass, replace

import pytest

from moorage.kernel.errors import (
    ExecutionRecoveryMismatch,
    StorageBindingUnavailable,
    StorageCapabilityMissing,
    StorageProfileUnsupported,
)
from moorage.kernel.instants import Instant
from moorage.store import inspection, recovery, schema
from moorage.store.ports import Database, Frontiers
from moorage.store.recovery import Found, Gate
from moorage.store.transaction import Reading, Transaction
from tests.contract.adapters import Store, dump

pytestmark = pytest.mark.clause("store.recovery-identity")

NOW = Instant(1_796_000_000_000)
LATER = Instant(NOW + 60_000)
PROJECT = "harbour"


async def look(store: Store, project: str = PROJECT) -> Found:
    return await recovery.look(store.db(), store.frontiers, project)


async def initialize(store: Store, give_up: str | None = None, now: Instant = NOW) -> tuple[Found, bool]:
    return await recovery.initialize(store.db(), store.frontiers, now, PROJECT, give_up)


async def require(store: Store, gate: Gate | None = None) -> None:
    await (gate or Gate()).require(store.db, store.frontiers, PROJECT)


async def refusal(store: Store) -> str:
    with pytest.raises(ExecutionRecoveryMismatch) as refused:
        await require(store)
    assert refused.value.status == 503
    return refused.value.detail


async def forget(store: Store, identity: str) -> None:
    """The bucket loses the object, as when another bucket is bound: the frontier of some other identity is there."""
    rows = await store.sql("SELECT * FROM recovery")
    await store.sql("UPDATE recovery SET identity = ?, object_key = ?", other(identity), f"recovery/{other(identity)}.json")
    assert len(rows) == 1


def other(identity: str) -> str:
    return identity[:-1] + ("0" if identity[-1] != "0" else "1")


@dataclass
class Losing:
    """A database that loses its answer after so many commits, the commit applied or not."""

    behind: Database
    left: int
    applied: bool

    @property
    def cost(self) -> object:
        return self.behind.cost

    async def read(self, reading: Reading) -> None:
        await self.behind.read(reading)

    async def commit(self, transaction: Transaction) -> None:
        self.left -= 1
        if self.left >= 0:
            await self.behind.commit(transaction)
            return
        if self.applied:
            await self.behind.commit(transaction)
        raise StorageBindingUnavailable("no answer")


class Unwritable:
    """A bucket that takes nothing."""

    def __init__(self, behind: Frontiers) -> None:
        self.read = behind.read
        self.identities = behind.identities

    async def keep(self, identity: str, content: bytes) -> None:
        raise StorageBindingUnavailable("no answer")


async def test_a_start_makes_no_identity_and_admits_nothing(store: Store) -> None:
    before = await dump(store)
    assert "moorage storage initialize" in await refusal(store)
    assert (await look(store)).state == "unbound"
    assert await dump(store) == before
    assert list(await store.frontiers.identities()) == []


async def test_initialize_binds_both_and_asking_again_changes_nothing(store: Store) -> None:
    found, made = await initialize(store)
    assert (made, found.state) == (True, "bound")
    assert found.identity is not None
    assert (found.identity.project, found.identity.schema, found.identity.generation) == (PROJECT, schema.SCHEMA, 1)
    content = await store.frontiers.read(found.identity.identity)
    assert content == found.identity.text().encode()
    before = await dump(store)
    assert await initialize(store, now=LATER) == (found, False)
    assert await dump(store) == before
    await require(store)


async def test_the_gate_asks_until_it_passes_and_never_again(store: Store) -> None:
    gate = Gate()
    with pytest.raises(ExecutionRecoveryMismatch):
        await require(store, gate)
    await initialize(store)
    await require(store, gate)
    await store.sql("DELETE FROM recovery")
    await require(store, gate)
    with pytest.raises(ExecutionRecoveryMismatch):
        await require(store)


@pytest.mark.parametrize("commits", [0, 1])
@pytest.mark.parametrize("applied", [False, True])
async def test_an_initialization_whose_answer_was_lost_is_asked_for_again(store: Store, commits: int, applied: bool) -> None:
    lossy = Losing(store.db(), commits, applied)
    with pytest.raises(StorageBindingUnavailable):
        await recovery.initialize(lossy, store.frontiers, NOW, PROJECT)  # type: ignore[arg-type]
    found, _ = await initialize(store, now=LATER)
    assert found.is_bound
    assert len(await store.frontiers.identities()) == 1
    await require(store)


async def test_an_initialization_whose_object_was_not_written_is_finished(store: Store) -> None:
    with pytest.raises(StorageBindingUnavailable):
        await recovery.initialize(store.db(), Unwritable(store.frontiers), NOW, PROJECT)
    assert (await look(store)).state == "unfinished"
    assert "did not end" in await refusal(store)
    found, made = await initialize(store, now=LATER)
    assert (made, found.is_bound) == (True, True)


async def test_objects_without_their_database_admit_nothing(store: Store) -> None:
    found, _ = await initialize(store)
    assert found.identity is not None
    await store.sql("DELETE FROM recovery")
    assert found.identity.identity in await refusal(store)
    assert (await look(store)).state == "row_missing"
    with pytest.raises(ExecutionRecoveryMismatch, match="--give-up"):
        await initialize(store)
    with pytest.raises(ExecutionRecoveryMismatch):
        await initialize(store, give_up=other(found.identity.identity))
    anew, made = await initialize(store, give_up=found.identity.identity, now=LATER)
    assert made
    assert anew.identity is not None
    assert anew.identity.identity != found.identity.identity
    await require(store)


async def test_a_database_without_its_objects_admits_nothing(store: Store) -> None:
    found, _ = await initialize(store)
    assert found.identity is not None
    await forget(store, found.identity.identity)
    assert "no such object" in await refusal(store)
    with pytest.raises(ExecutionRecoveryMismatch):
        await initialize(store)
    anew, _ = await initialize(store, give_up=other(found.identity.identity), now=LATER)
    assert anew.is_bound


@pytest.mark.parametrize(("step", "older"), [(1, "the database"), (-1, "the bucket")])
async def test_another_generation_says_which_side_is_of_an_earlier_day(store: Store, step: int, older: str) -> None:
    found, _ = await initialize(store)
    identity = found.identity
    assert identity is not None
    moved = replace(identity, generation=identity.generation + step)
    await store.frontiers.keep(identity.identity, moved.text().encode())
    assert f"{older} is of an earlier day" in await refusal(store)
    with pytest.raises(ExecutionRecoveryMismatch):
        await initialize(store)


async def test_another_object_is_not_the_one_that_the_database_is_bound_to(store: Store) -> None:
    found, _ = await initialize(store)
    assert found.identity is not None
    for content in (b"", b"\xff", b"[]", b'{"generation":"x"}', found.identity.text().encode() + b" "):
        await store.frontiers.keep(found.identity.identity, content)
        assert "is not the object" in await refusal(store)


async def test_the_storage_of_another_project_admits_nothing(store: Store) -> None:
    await initialize(store)
    assert (await look(store, "elsewhere")).state == "other_project"
    with pytest.raises(ExecutionRecoveryMismatch, match="belongs to the project 'harbour'"):
        await Gate().require(store.db, store.frontiers, "elsewhere")
    with pytest.raises(ExecutionRecoveryMismatch):
        await recovery.initialize(store.db(), store.frontiers, NOW, "elsewhere")


async def test_another_schema_is_bound_in_the_next_generation(store: Store) -> None:
    found, _ = await initialize(store)
    identity = found.identity
    assert identity is not None
    older = replace(identity, schema=schema.SCHEMA - 1).sealed()
    await store.frontiers.keep(identity.identity, older.text().encode())
    await store.sql("UPDATE recovery SET schema = ?, object_sha256 = ?", older.schema, older.object_sha256)
    assert f"bound to schema {schema.SCHEMA - 1}" in await refusal(store)
    anew, made = await initialize(store, now=LATER)
    assert made
    assert anew.identity is not None
    assert (anew.identity.identity, anew.identity.generation) == (identity.identity, 2)
    assert (await store.sql("SELECT schema FROM recovery")) == [{"schema": schema.SCHEMA}]
    await require(store)


@pytest.mark.clause("store.incomplete")
async def test_a_missing_binding_or_an_unknown_profile_is_told_before_the_storage_is_asked(store: Store) -> None:
    await initialize(store)

    def never() -> Database:
        raise AssertionError("the storage was asked")

    with pytest.raises(StorageCapabilityMissing, match="RUNNER"):
        await Gate().require(never, store.frontiers, PROJECT, missing=("RUNNER",))
    with pytest.raises(StorageCapabilityMissing, match="BLOBS"):
        await Gate().require(never, None, PROJECT)
    with pytest.raises(StorageProfileUnsupported, match="postgres"):
        await Gate().require(never, store.frontiers, PROJECT, "postgres")


async def test_what_check_shows_names_whatever_is_not_well(store: Store) -> None:
    assert [one.name for one in await faults(store)] == ["recovery identity"]
    await initialize(store)
    assert await faults(store) == []
    await store.sql("INSERT INTO guard_rows (row, token) VALUES ('scope:s', 'grd_x')")
    assert [one.name for one in await faults(store)] == ["guards"]
    assert [one.name for one in await faults(store, "other", ("BELL",))] == ["profile", "bindings", "guards"]


async def faults(store: Store, profile: str = recovery.PROFILE, missing: tuple[str, ...] = ()) -> list[inspection.Finding]:
    counted = await inspection.rows(store.db())
    return [one for one in inspection.findings(await look(store), counted, profile, missing) if not one.ok]


@pytest.mark.parametrize("row", ["global", "scope:", "lease:", "SCOPE:a", ""])
async def test_no_guard_protects_everything(store: Store, row: str) -> None:
    with pytest.raises(Exception, match=r"CHECK constraint failed|500"):
        await store.sql("INSERT INTO guard_rows (row, token) VALUES (?, 'grd_x')", row)
    assert await store.sql("SELECT * FROM guard_rows") == []


async def test_the_audit_of_guards_is_never_changed(store: Store) -> None:
    await store.sql(
        "INSERT INTO guard_audit (id, token, guard, evidence, operator, actor, released_at)"
        " VALUES ('aud_1', 'grd_1', '{}', 'receipt:k:1', 'me', 'root', 1)"
    )
    for change in ("UPDATE guard_audit SET operator = 'you'", "DELETE FROM guard_audit"):
        with pytest.raises(Exception, match=r"append only|500"):
            await store.sql(change)
    assert [row["operator"] for row in await store.sql("SELECT operator FROM guard_audit")] == ["me"]
