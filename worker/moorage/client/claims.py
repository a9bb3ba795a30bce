"""Take records under a lease, and end or extend it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from moorage.client.drafts import Draft
from moorage.client.keys import fresh_key
from moorage.client.models import Claim, Held, Lease, Record, Settlement
from moorage.client.paging import segment
from moorage.client.problems import Problem
from moorage.client.wire import Wire
from moorage.kernel.errors import FailureTag


class Claims:
    """The operations on claims. Each raises Problem and Unanswered.

    A write under a claim that another has taken over raises a Problem with the tag Fenced (clause leases.fence).
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def claim(
        self,
        kind: str,
        worker: str,
        match: Mapping[str, Any] | None = None,
        *,
        limit: int = 1,
        lease_seconds: float | None = None,
        wait_seconds: float = 0,
        key: str | None = None,
        **more: Any,
    ) -> list[Claim]:
        """Claim up to `limit` records that match, oldest first within priority; none when nothing matched.

        With `wait_seconds` the answer waits for a match. With a `key`, or with `session`, `consumer` and `sequence` in
        `more`, the claim is repeated safely after a lost answer; without, it is not sent again, and what it took is ready
        again when its lease runs out.
        """
        asked: dict[str, Any] = {"kind": kind, "match": dict(match or {}), "worker": worker, "limit": limit, **more}
        if lease_seconds is not None:
            asked["lease_seconds"] = lease_seconds
        if wait_seconds:
            asked["wait_seconds"] = wait_seconds
        replays = "sequence" in more
        answer = await self._wire.call("POST", "/claims", asked, key=key, repeatable=replays, wait_seconds=wait_seconds)
        return [Claim.model_validate(one) for one in answer["claims"]]

    async def renew(self, claim: Claim | Held, lease_seconds: float | None = None) -> Lease:
        """Extend a lease that has not run out; a shorter wish leaves it as it is."""
        more = {} if lease_seconds is None else {"lease_seconds": lease_seconds}
        answer = await self._on(claim, "renew", more, repeatable=True)
        return Lease.model_validate(answer["lease"])

    async def release(self, claim: Claim | Held) -> None:
        """Give a record back unworked; the attempt is not counted."""
        await self._on(claim, "release", {}, key=fresh_key())

    async def settle(
        self,
        claim: Claim | Held,
        results: Sequence[Draft] = (),
        *,
        kv: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Settlement:
        """Consume a claimed record, publish its results, and change values by namespace and key (None deletes), in one
        transaction. The same again answers the same."""
        sent: dict[str, Any] = {"results": [draft.wire() for draft in results]}
        if kv:
            sent["kv"] = {namespace: dict(keys) for namespace, keys in kv.items()}
        return Settlement.model_validate(await self._on(claim, "settle", sent, repeatable=True))

    async def renew_many(self, claims: Sequence[Claim | Held], lease_seconds: float | None = None) -> list[Lease | Problem]:
        """Extend up to CLAIM_BATCH leases in one request; for each, in the order given, the lease or why not."""
        sent: dict[str, Any] = {"items": [asdict(_held(claim)) for claim in claims]}
        if lease_seconds is not None:
            sent["lease_seconds"] = lease_seconds
        answer = await self._wire.call("POST", "/claims/renew", sent, repeatable=True)
        return [_refusal(one) or Lease.model_validate(one["lease"]) for one in answer["items"]]

    async def settle_many(self, ends: Sequence[tuple[Claim | Held, Sequence[Draft]]]) -> list[Settlement | Problem]:
        """Settle up to CLAIM_BATCH claims with their results in one request; for each, in the order given, the settlement
        or why not. One that is refused undoes nothing of another's."""
        items = [{**asdict(_held(claim)), "results": [one.wire() for one in results]} for claim, results in ends]
        answer = await self._wire.call("POST", "/claims/settle", {"items": items}, repeatable=True)
        return [_refusal(one) or _settlement(one) for one in answer["items"]]

    async def fail(
        self,
        claim: Claim | Held,
        tag: FailureTag,
        message: str,
        *,
        retry_after: float | None = None,
        dead_letter: bool = False,
    ) -> Record:
        """End the attempt as failed: the record is ready again after a delay (`retry_after` seconds, else the kind's), or
        dead after its last attempt, or at once with `dead_letter`."""
        sent: dict[str, Any] = {"error": {"tag": tag.value, "message": message}}
        if retry_after is not None:
            sent["retry_after_seconds"] = retry_after
        if dead_letter:
            sent["dead_letter"] = True
        return Record.model_validate((await self._on(claim, "fail", sent, key=fresh_key()))["record"])

    async def _on(
        self, claim: Claim | Held, verb: str, sent: Mapping[str, Any], *, key: str | None = None, repeatable: bool = False
    ) -> Any:
        held = _held(claim)
        path = f"/claims/{segment(held.record)}/{verb}"
        return await self._wire.call("POST", path, {"epoch": held.epoch, **sent}, key=key, repeatable=repeatable)


def _held(claim: Claim | Held) -> Held:
    return claim.held if isinstance(claim, Claim) else claim


def _refusal(item: Mapping[str, Any]) -> Problem | None:
    """The problem of one item of a batch, as a single call would have raised it."""
    error = item.get("error")
    return None if error is None else Problem(error["status"], error, retry_after=error.get("retry_after"))


def _settlement(item: Mapping[str, Any]) -> Settlement:
    return Settlement.model_validate({"receipt": item["receipt"], "record": item["settled"], "results": item["results"]})
