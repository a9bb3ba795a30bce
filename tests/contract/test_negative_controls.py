"""The suite can fail: each broken adapter fails the cases that are about what it lacks, with the diagnosis that says so."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from moorage.store.directory import DirectoryBlobs
from moorage.store.sqlite import SqliteDatabase
from tests.contract import (
    broken,
    test_blobs,
    test_faults,
    test_guards_scenarios,
    test_guards_transfers,
    test_leases,
    test_store,
    test_substrate_ends,
    test_substrate_steps,
    test_substrate_waits,
)
from tests.contract.broken import BrokenStore
from tests.contract.harbor import Harbor
from tests.contract.operations import OPERATIONS
from tests.contract.watch_house import WatchHouse

Case = Callable[..., Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Control:
    """A case of the suite that must fail on a broken adapter, and what it must say."""

    case: Case
    says: str
    database: type[SqliteDatabase] = SqliteDatabase
    blobs: type[DirectoryBlobs] = DirectoryBlobs

    @property
    def name(self) -> str:
        case = self.case.func if isinstance(self.case, partial) else self.case
        adapter = self.blobs if self.database is SqliteDatabase else self.database
        return f"{adapter.__name__}-{case.__name__}"


def operation(name: str) -> Any:
    """The operation of that name."""
    return next(one for one in OPERATIONS if one.name == name)


LOST_ANSWER = test_faults.test_a_lost_answer_leaves_the_whole_change_and_asking_again_does_nothing_twice
UNIQUENESS = partial(
    test_store.test_a_foreseen_uniqueness_raises_its_error,
    table="leases",
    name="leases.key",
    again="INSERT INTO leases (key, epoch) VALUES ('a', 1)",
)

UNFENCED = broken.WithoutPreconditions
IN_PIECES = broken.WithoutAtomicity
WOKEN = test_substrate_waits.test_no_suspension_passes_over_what_has_ended


ON_SHARED_ROWS = test_guards_scenarios.test_callbacks_on_disjoint_rows_run_at_once_and_on_a_shared_row_only_one


def at_sea(case: Case) -> Case:
    """A case of the substrate, on a harbor of its own."""

    @wraps(case)
    async def on_store(store: BrokenStore) -> None:
        await case(Harbor(store))

    return on_store


def in_the_house(case: Case) -> Case:
    """A case of guards, in a house of its own."""

    @wraps(case)
    async def on_store(store: BrokenStore) -> None:
        await case(await WatchHouse.of(store))

    return on_store


CONTROLS = [
    # No uniqueness: a duplicate is not refused, and an idempotency key protects nothing.
    Control(UNIQUENESS, "DID NOT RAISE", broken.WithoutUniqueness),
    Control(partial(LOST_ANSWER, operation=operation("records.publish by key")), "assert", broken.WithoutUniqueness),
    Control(partial(LOST_ANSWER, operation=operation("awakeables.mint by key")), "assert", broken.WithoutUniqueness),
    Control(partial(LOST_ANSWER, operation=operation("runs.start a child")), "assert", broken.WithoutPreconditions),
    Control(at_sea(test_substrate_steps.test_another_epoch_and_a_lapsed_lease_write_nothing), "DID NOT RAISE", UNFENCED),
    Control(at_sea(test_substrate_ends.test_an_owner_that_was_followed_ends_nothing), "DID NOT RAISE", UNFENCED),
    Control(at_sea(partial(WOKEN, when="with")), "assert", IN_PIECES),
    # No preconditions: a foreign guard is passed over, a live holder is reconciled, an effect in flight is rewound.
    Control(in_the_house(test_guards_scenarios.test_nobody_elses_guard_is_removed), "DID NOT RAISE", UNFENCED),
    Control(
        in_the_house(test_guards_scenarios.test_while_the_owners_lease_is_live_an_operator_is_refused),
        "DID NOT RAISE",
        UNFENCED,
    ),
    Control(
        in_the_house(test_guards_scenarios.test_under_a_guard_metadata_is_set_and_owner_and_leases_stay), "DID NOT", UNFENCED
    ),
    Control(
        in_the_house(test_guards_transfers.test_neither_rewinding_nor_restarting_gives_up_what_may_be_in_flight),
        "DID NOT RAISE",
        UNFENCED,
    ),
    # No atomicity: what stood beside a refused admission stays.
    Control(in_the_house(ON_SHARED_ROWS), "assert", IN_PIECES),
    # No atomicity: what came before the failure stays.
    Control(
        partial(test_store.test_a_broken_precondition_leaves_nothing_wherever_it_stands, place="after"),
        "'leases': \\[",
        broken.WithoutAtomicity,
    ),
    Control(
        partial(test_store.test_a_statement_that_fails_takes_the_whole_batch_with_it, broken="SELEC 1"),
        "'leases': \\[",
        broken.WithoutAtomicity,
    ),
    Control(test_store.test_an_initialization_that_fails_leaves_nothing, "half", broken.WithoutAtomicity),
    # No preconditions: nothing fences, nothing conflicts.
    Control(
        partial(test_store.test_a_conflict_names_the_precondition_that_broke, which=3),
        "DID NOT RAISE",
        broken.WithoutPreconditions,
    ),
    Control(
        partial(LOST_ANSWER, operation=operation("leases.release")),
        "DID NOT RAISE",
        broken.WithoutPreconditions,
    ),
    Control(
        test_leases.test_the_fence_holds_where_it_stands_in_the_same_batch,
        "assert None is LeaseFenced",
        broken.WithoutPreconditions,
    ),
    Control(
        test_leases.test_a_stale_holder_changes_nothing_whatever_it_tries,
        "assert None is LeaseFenced",
        broken.WithoutPreconditions,
    ),
    # The wrong name, a silent second try, shared rows, other numbers.
    Control(
        partial(test_store.test_a_conflict_names_the_precondition_that_broke, which=3),
        "number 12",
        broken.WithPreconditionsInAnyOrder,
    ),
    Control(test_store.test_a_conflict_is_sent_once_and_never_again, "2 == 1", broken.WithSilentRetry),
    Control(test_store.test_changing_what_was_read_changes_nothing, r"\[\] == \[", broken.WithSharedRows),
    Control(
        partial(test_store.test_every_number_is_bound_as_a_double, value=5, kind="real"),
        "integer",
        broken.WithIntegers,
    ),
    # Blobs.
    Control(
        partial(test_blobs.test_other_bytes_under_a_digest_are_never_given_out, damaged=b"CONTENT"),
        "DID NOT RAISE",
        blobs=broken.BlobsWithoutVerification,
    ),
    Control(
        test_blobs.test_a_missing_object_is_an_error_with_the_reference,
        "DID NOT RAISE",
        blobs=broken.BlobsThatAreNeverMissing,
    ),
    Control(
        test_blobs.test_the_key_is_blobs_and_the_digest,
        r"\.bin",
        blobs=broken.BlobsUnderAnotherKey,
    ),
]


@pytest.mark.clause("store.negative-controls")
@pytest.mark.parametrize("control", CONTROLS, ids=lambda one: one.name)
def test_a_broken_adapter_fails_its_case(control: Control, tmp_path: Path) -> None:
    store = BrokenStore(tmp_path, control.database, control.blobs)
    with pytest.raises((AssertionError, pytest.fail.Exception), match=control.says):
        asyncio.run(control.case(store))
    store.connection.close()


@pytest.mark.clause("store.negative-controls")
@pytest.mark.parametrize("control", CONTROLS, ids=lambda one: one.name)
def test_the_whole_adapter_passes_the_same_case(control: Control, tmp_path: Path) -> None:
    store = BrokenStore(tmp_path)
    asyncio.run(control.case(store))
    store.connection.close()
