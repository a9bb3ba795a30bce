"""The storage of a deployment, from its bindings; a binding that is missing is told when it is first needed."""

from typing import Any

from moorage.edge.d1 import D1Database
from moorage.edge.r2 import R2Blobs, R2Frontiers
from moorage.kernel.errors import StorageCapabilityMissing
from moorage.store.ports import Blobs, Cost, Database, Frontiers
from moorage.store.transaction import Reading, Transaction


def database(env: Any) -> Database:
    """A fresh Database. Without a binding it fails every question with StorageCapabilityMissing (store.incomplete)."""
    try:
        return D1Database(getattr(env, "DB", None))
    except StorageCapabilityMissing as error:
        return _MissingDatabase(error)


def blobs(env: Any) -> Blobs | None:
    """The Blobs, or None without a binding."""
    try:
        return R2Blobs(getattr(env, "BLOBS", None))
    except StorageCapabilityMissing:
        return None


def frontiers(env: Any) -> Frontiers | None:
    """The bucket's side of the recovery identity, or None without a binding."""
    try:
        return R2Frontiers(getattr(env, "BLOBS", None))
    except StorageCapabilityMissing:
        return None


class _MissingDatabase:
    """Stands where there is no database, so that requests that need none are served."""

    def __init__(self, missing: StorageCapabilityMissing) -> None:
        self.cost = Cost()
        self._missing = missing

    async def read(self, reading: Reading) -> None:
        raise self._missing

    async def commit(self, transaction: Transaction) -> None:
        raise self._missing

    async def initialize(self, statements: list[str]) -> None:
        raise self._missing
