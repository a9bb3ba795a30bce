"""What is told to destinations: subscriptions, completions of runs, and deliveries."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from moorage.client.keys import fresh_key
from moorage.client.models import Answered, Moment, Page, rfc3339
from moorage.client.paging import every, page_of, segment
from moorage.client.wire import Wire
from moorage.kernel.limits import PAGE_DEFAULT, PAGE_ITEMS

DeliveryState = Literal["pending", "delivered", "dead", "canceled"]

_FOLLOWED = int(PAGE_DEFAULT)


class Subscription(Answered):
    """Which entries of history are told to a destination. `position` is the last that it looked at, `behind` how many there
    are past it."""

    name: str
    state: str
    reason: str | None
    destination: str
    types: list[str]
    kinds: list[str]
    filter: dict[str, Any] | None
    position: int
    behind: int
    created_by: str
    created_at: Moment
    updated_at: Moment


class Health(Answered):
    """How a destination has answered lately: closed, open, half_open or disabled, its failures in a row, and until when
    nothing is sent to it."""

    destination: str
    state: str
    failures: int
    blocked_until: Moment | None
    reason: str | None
    updated_at: Moment


class Completion(Answered):
    """That a run's end is told to a destination, since when, and who asked."""

    destination: str
    created_at: Moment
    created_by: str


class Delivery(Answered):
    """A delivery. `body` is what is sent, where one delivery is shown; it stays the same over attempts and generations."""

    delivery_id: str
    subscription: str
    destination: str
    event_id: str
    type: str
    aggregate_id: str
    generation: int
    state: str
    attempts: int
    next_attempt_at: Moment | None
    leased_until: Moment | None
    occurred_at: Moment
    created_at: Moment
    first_attempt_at: Moment | None
    ended_at: Moment | None
    last_status: int | None
    last_error: str | None
    body: str | None = None


class Delay(Answered):
    """How long after they happened the newest events were first sent, in seconds."""

    mean: float
    longest: float


class DestinationSummary(Answered):
    """How deliveries to a destination stand."""

    destination: str
    pending: int
    oldest_pending_at: Moment | None
    oldest_pending_seconds: float | None
    attempts: int
    dead: int
    publication_delay_seconds: Delay | None
    circuit: str
    blocked_until: Moment | None
    reason: str | None


class Summary(Answered):
    """How far the outbox is behind, in seconds, and a page of destinations."""

    lag_seconds: float
    items: list[DestinationSummary]
    next_cursor: str | None


class Subscriptions:
    """The operations on subscriptions, for a credential that may operate. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def put(
        self,
        name: str,
        types: Sequence[str],
        destination: str,
        *,
        kinds: Sequence[str] = (),
        match: Mapping[str, Any] | None = None,
        paused: bool = False,
        start: int | Literal["now"] | None = None,
    ) -> Subscription:
        """Declare a subscription, or declare it anew: entries of these `types`, and of these `kinds` where there are any,
        that fit the pattern `match`. `start` is a position of history past which to begin, or `now`; left out, a new one
        begins now and one that is there goes on where it stands."""
        sent: dict[str, Any] = {"types": list(types), "destination": destination, "kinds": list(kinds), "paused": paused}
        if match is not None:
            sent["filter"] = dict(match)
        if start is not None:
            sent["from"] = start
        return Subscription.model_validate(await self._wire.call("PUT", f"/subscriptions/{segment(name)}", sent))

    async def get(self, name: str) -> Subscription:
        """One subscription."""
        return Subscription.model_validate(await self._wire.call("GET", f"/subscriptions/{segment(name)}"))

    async def page(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Subscription]:
        """A page of subscriptions, by name."""
        query = {"limit": limit, "cursor": cursor}
        return page_of(Subscription, await self._wire.call("GET", "/subscriptions", query=query))

    def iterate(self) -> AsyncGenerator[Subscription, None]:
        """Every subscription."""
        return every(lambda cursor: self.page(limit=int(PAGE_ITEMS), cursor=cursor))

    async def pause(self, name: str, reason: str | None = None) -> Subscription:
        """Tell nothing more until it is resumed."""
        sent = {} if reason is None else {"reason": reason}
        told = await self._wire.call("POST", f"/subscriptions/{segment(name)}/pause", sent, repeatable=True)
        return Subscription.model_validate(told)

    async def resume(self, name: str) -> Subscription:
        """Go on with the first entry that was not looked at."""
        told = await self._wire.call("POST", f"/subscriptions/{segment(name)}/resume", repeatable=True)
        return Subscription.model_validate(told)

    async def delete(self, name: str) -> None:
        """Tell nothing more; what was told already is still delivered."""
        await self._wire.call("DELETE", f"/subscriptions/{segment(name)}", key=fresh_key())


class Deliveries:
    """The operations on deliveries, for a credential that may operate. Each raises Problem and Unanswered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def page(
        self,
        *,
        state: str | None = None,
        subscription: str | None = None,
        destination: str | None = None,
        event_id: str | None = None,
        newest_first: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Delivery]:
        """A page of deliveries without their bodies, in the order in which they were made unless `newest_first`. It may be
        short and still have a next one."""
        query = {
            "state": state,
            "subscription": subscription,
            "destination": destination,
            "event_id": event_id,
            "order": "desc" if newest_first else None,
            "limit": limit,
            "cursor": cursor,
        }
        return page_of(Delivery, await self._wire.call("GET", "/deliveries", query=query))

    def iterate(self, **wanted: Any) -> AsyncGenerator[Delivery, None]:
        """Every such delivery; `wanted` as `page` takes it."""
        return every(lambda cursor: self.page(**wanted, limit=int(PAGE_ITEMS), cursor=cursor))

    async def get(self, delivery: str) -> Delivery:
        """One delivery with its body."""
        return Delivery.model_validate(await self._wire.call("GET", f"/deliveries/{segment(delivery)}"))

    async def redeliver(self, delivery: str, reason: str | None = None) -> Delivery:
        """Make a delivery again that is over: the same event and bytes, one generation higher."""
        sent = {} if reason is None else {"reason": reason}
        path = f"/deliveries/{segment(delivery)}/redeliver"
        return Delivery.model_validate(await self._wire.call("POST", path, sent, key=fresh_key()))

    async def redeliver_many(
        self,
        reason: str,
        *,
        state: str = "dead",
        subscription: str | None = None,
        destination: str | None = None,
        since: datetime | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> tuple[list[Delivery], str | None]:
        """Make deliveries again that are over, the oldest first and REDELIVER_BATCH at most; and where to go on `after`, or
        None when everything was looked at."""
        named = {"subscription": subscription, "destination": destination, "after": after, "limit": limit}
        sent: dict[str, Any] = {"reason": reason, "state": state}
        sent |= {name: value for name, value in named.items() if value is not None}
        if since is not None:
            sent["since"] = rfc3339(since)
        told = await self._wire.call("POST", "/deliveries/redeliver", sent, key=fresh_key())
        return [Delivery.model_validate(one) for one in told["deliveries"]], told["next_after"]

    async def cancel(self, delivery: str, reason: str | None = None) -> Delivery:
        """Give a delivery up that is pending or dead."""
        sent = {} if reason is None else {"reason": reason}
        path = f"/deliveries/{segment(delivery)}/cancel"
        return Delivery.model_validate(await self._wire.call("POST", path, sent, repeatable=True))

    async def summary(self, *, limit: int | None = None, cursor: str | None = None) -> Summary:
        """How far the outbox is behind, and how deliveries to each destination stand."""
        query = {"limit": limit, "cursor": cursor}
        return Summary.model_validate(await self._wire.call("GET", "/deliveries/summary", query=query))

    async def health(self, destination: str) -> Health:
        """How a destination has answered lately."""
        return Health.model_validate(await self._wire.call("GET", f"/destinations/{segment(destination)}/health"))

    async def enable(self, destination: str) -> Health:
        """Send to a destination again that was gone, or whose circuit is open."""
        path = f"/destinations/{segment(destination)}/enable"
        return Health.model_validate(await self._wire.call("POST", path, repeatable=True))

    async def follow(self, seconds: float = 2.0, **wanted: Any) -> AsyncGenerator[Delivery, None]:
        """The newest deliveries, each when it is made and whenever its state, its attempts or its generation changes, by
        looking every so many seconds, for ever. `wanted` as `page` takes it. A burst is told up to PAGE_ITEMS at once;
        of what changes long after it was made nothing is told."""
        seen: dict[str, tuple[str, int, int]] = {}
        while True:
            found = await self._newest(wanted, max(seen, default=None))
            known, seen = seen, {}
            for one in reversed(found):
                stands = (one.state, one.attempts, one.generation)
                if known.get(one.delivery_id) != stands:
                    yield one
                seen[one.delivery_id] = stands
            await self._wire.timing.sleep(seconds)

    async def _newest(self, wanted: Mapping[str, Any], last: str | None) -> list[Delivery]:
        """The newest deliveries, as many as are followed, or more where more were made after `last`."""
        found = list((await self.page(**wanted, newest_first=True, limit=_FOLLOWED)).items)
        if last is not None and len(found) == _FOLLOWED and found[-1].delivery_id > last:
            found = list((await self.page(**wanted, newest_first=True, limit=int(PAGE_ITEMS))).items)
            return [one for one in found if one.delivery_id > last]
        return found
