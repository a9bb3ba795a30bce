"""Payments under guards, while the bank misbehaves, workerd is killed again and again, and leases run out.

Whatever happens, a payment is made once, or a guard names it and an operator decides. `MOORAGE_CHAOS_SEED` plays another
storm: all that the test chooses comes from its seed, which is printed.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from moorage.kernel.limits import OWNER_LEASE_SECONDS
from ops.local.edge import LocalEdge
from tests.crash.bank import HANG_SECONDS, TROUBLES, Bank, Trouble
from tests.crash.ledger import faults, opened
from tests.edge.client import client, fresh, good
from tests.edge.edges import EdgeFactory
from tests.edge.http import await_log
from tests.edge.runs import VARS

pytestmark = [pytest.mark.edge, pytest.mark.crash, pytest.mark.timeout(600)]

BODIES: Final = Path(__file__).parent / "bodies"
SEED: Final = int(os.environ.get("MOORAGE_CHAOS_SEED", "91"))
ORDERS: Final = 200
KILLS: Final = 30
LAPSE_SECONDS: Final = int(OWNER_LEASE_SECONDS) + 1
BACK_WITHIN_SECONDS: Final = 60.0
QUIET_SECONDS: Final = HANG_SECONDS + 1
"""Longer than any request to the bank takes."""

WINDOWS: Final[Mapping[str, int | None]] = {"lasting": 86_400, "brief": 120, "plain": None, "press": None}
"""How long each destination keeps its keys; those two of them that make something public are in PUBLIC."""

PUBLIC: Final = frozenset({"brief", "press"})
ENDED: Final = frozenset({"success", "failed", "partial_failure", "canceled"})


@dataclass(frozen=True)
class Order:
    """An order: its payments by destination, and what happens to their requests. Some share a scope above them, or a
    customer."""

    tag: str
    payments: Sequence[str]
    troubles: Sequence[Sequence[Trouble]]
    scope: str | None
    customer: str | None

    def sent(self) -> dict[str, Any]:
        """As the request that starts it."""
        given: dict[str, Any] = {"tag": self.tag, "payments": [(one, one in PUBLIC) for one in self.payments]}
        if self.customer is not None:
            given["customer"] = self.customer
        return {"body": "paying.order", "input": given} | ({} if self.scope is None else {"scope": self.scope})


@dataclass(frozen=True)
class Round:
    """What comes before one kill: orders, how long they go on, how long the bank is closed, and whether leases run out."""

    orders: Sequence[Order]
    seconds: float
    closed: float
    lapses: bool


def plan(seed: int) -> list[Round]:
    """All that is chosen."""
    chance = random.Random(seed)
    orders = [_order(chance, number) for number in range(ORDERS)]
    cuts = sorted(chance.sample(range(1, ORDERS), KILLS - 1))
    parts = [orders[a:b] for a, b in zip([0, *cuts], [*cuts, ORDERS], strict=True)]
    return [Round(part, chance.uniform(0.05, 1.2), chance.choice((0, 0, 0, 0.3)), chance.random() < 0.3) for part in parts]


def _order(chance: random.Random, number: int) -> Order:
    payments = chance.choices(list(WINDOWS), (4, 2, 2, 1), k=chance.randint(1, 3))
    troubles = [chance.choices(TROUBLES, k=chance.choice((0, 0, 0, 1, 1, 2))) for _ in payments]
    scope = f"yard-{number % 12}/{number}" if number % 8 == 3 else None
    customer = f"customer-{number % 10}" if number % 8 == 5 else None
    return Order(f"order-{number}", payments, troubles, scope, customer)


class Storm:
    """The orders on the edge, the bank, and the clock."""

    def __init__(self, edge: LocalEdge, api: httpx.Client, bank: Bank) -> None:
        self.edge = edge
        self.api = api
        self.bank = bank
        self.orders: dict[str, Order] = {}
        self.ended: set[str] = set()

    # --- what happens -------------------------------------------------------------------------------------------------

    def play(self, pool: ThreadPoolExecutor, one: Round) -> None:
        """Start the orders, kill workerd in the midst of them, and let it come back."""
        starting: list[Future[tuple[str, Order]]] = [pool.submit(self._start, order) for order in one.orders]
        if one.closed:
            self.bank.close()
            time.sleep(min(one.closed, one.seconds))
            self.bank.open()
        time.sleep(max(0.0, one.seconds - one.closed))
        self.edge.kill_workerd()
        # Whoever kills workerd while it starts has no edge any more.
        self._persistently("GET", "/health", None)
        self.orders.update(future.result() for future in starting)
        if one.lapses:
            self.lapse()

    def _start(self, order: Order) -> tuple[str, Order]:
        for number, troubles in enumerate(order.troubles):
            self.bank.troubles[order.tag, number] = troubles
        told = self._persistently("POST", "/runs", order.sent(), fresh(order.tag))
        return told["run_id"], order

    def lapse(self) -> None:
        """Let all leases run out."""
        self._persistently("POST", "/testing/clock", {"advance_seconds": LAPSE_SECONDS})
        self.bank.offset += LAPSE_SECONDS

    def _persistently(self, method: str, path: str, body: Any, key: str | None = None) -> Any:
        deadline = time.monotonic() + BACK_WITHIN_SECONDS
        while True:
            with suppress(httpx.TransportError):
                return good(
                    self.api.request(method, path, json=body, headers={} if key is None else {"idempotency-key": key})
                )
            assert time.monotonic() < deadline, "the edge did not come back"
            time.sleep(0.05)

    # --- how it stands ------------------------------------------------------------------------------------------------

    def guards(self) -> dict[str, dict[str, Any]]:
        """All guards, by token."""
        page = good(self.api.get("/guards", params={"limit": 500}))
        assert page["next_cursor"] is None
        return {one["token"]: one for one in page["items"]}

    def runs(self) -> dict[str, dict[str, Any]]:
        """All runs, by id."""
        page = good(self.api.get("/runs", params={"limit": 500, "body": "paying.order"}))
        assert not page["truncated"]
        return {one["run_id"]: one for one in page["items"]}

    def settle(self) -> dict[str, dict[str, Any]]:
        """Let time pass until nothing goes on any more without an operator: the guards that are left."""
        deadline = time.monotonic() + 240
        while True:
            self.lapse()
            self._until_quiet()
            runs, guards = self.runs(), self.guards()
            open_ = [run for run in runs.values() if run["status"] not in ENDED]
            left = [run for run in open_ if not self._held(run, guards)]
            if not left:
                return guards
            assert time.monotonic() < deadline, (left, guards)

    def _held(self, run: Mapping[str, Any], guards: Mapping[str, Any]) -> bool:
        """Whether a guard of its own holds it, or it waits for another's that is held."""
        if any(one["run_id"] == run["run_id"] for one in guards.values()):
            return True
        return any(one.get("guard") in guards for one in run.get("awaiting") or ())

    def _until_quiet(self) -> None:
        deadline = time.monotonic() + 120
        while True:
            before = self._looks()
            time.sleep(0.7)
            if before == self._looks() and time.monotonic() - self.bank.last > QUIET_SECONDS:
                return
            assert time.monotonic() < deadline, "it does not come to rest"

    def _looks(self) -> Any:
        return self.guards().keys(), Counter(run["status"] for run in self.runs().values()), self.bank.last

    def check(self, guards: Mapping[str, Mapping[str, Any]]) -> None:
        """Each payment was made once, or a guard names it, or it was not begun; and each guard is some open run's."""
        runs = self.runs()
        assert runs.keys() == self.orders.keys()
        of_run: dict[str, Mapping[str, Any]] = {one["run_id"]: one for one in guards.values()}
        assert len(of_run) == len(guards)
        assert of_run.keys() <= runs.keys()
        for run_id, order in self.orders.items():
            run, guard = runs[run_id], of_run.get(run_id)
            assert run["status"] not in ENDED - {"success"}, run
            assert guard is None or run["status"] not in ENDED, (run, guard)
            done = len(order.payments) if run["status"] == "success" else self.done(run_id)
            for number in range(len(order.payments)):
                payment = (order.tag, number)
                paid, keys = self.bank.of(payment), self.bank.keys[payment]
                assert len(keys) <= 1, (run, keys)
                assert "" not in keys
                assert sum(one.times for one in paid) <= 1, (run, paid)
                if number < done:
                    assert len(paid) == 1, (run, payment)
                elif number == done and guard is not None:
                    assert keys <= {guard["idempotency_key"]}, (run, guard, keys)
                    assert guard["destination"] == order.payments[number]
                else:
                    assert not paid, (run, payment, paid)
            if run["status"] == "success" and run_id not in self.ended:
                self.ended.add(run_id)
                result = good(self.api.get(f"/runs/{run_id}"))["result"]
                assert result == [self.bank.of((order.tag, n))[0].receipt for n in range(len(order.payments))]

    def done(self, run_id: str) -> int:
        """How many payments of a run are recorded."""
        steps = good(self.api.get(f"/runs/{run_id}/steps"))["items"]
        return sum(step["label"] == "pay" and step["status"] == "success" for step in steps)


class Operator:
    """Somebody who looks at the bank for each guard's key, and says what is there. What was not paid, and may not be sent
    again, is paid by hand under the same key."""

    def __init__(self, storm: Storm, chance: random.Random) -> None:
        self._storm = storm
        self._chance = chance
        self.found: Counter[str] = Counter()

    def reconcile(self, guards: Mapping[str, Mapping[str, Any]]) -> None:
        """Release each."""
        for token, guard in guards.items():
            answer = self._storm.api.post(
                f"/guards/{token}/reconcile", json={"evidence": self._evidence(guard), "operator": "op-2"}
            )
            assert good(answer)["released"] is True

    def _evidence(self, guard: Mapping[str, Any]) -> str:
        bank, key = self._storm.bank, guard["idempotency_key"]
        paid = bank.paid.get(key)
        what = "paid" if paid else "unpaid"
        self.found[f"{guard['class']}, {what}"] += 1
        if guard["class"] == "replay-safe" and (paid is None or self._chance.random() < 0.5):
            return f"idempotency:{key}"
        if paid is None:
            order = self._storm.orders[guard["run_id"]]
            number = self._storm.done(guard["run_id"])
            bank.keys[order.tag, number].add(key)
            bank.pay(guard["destination"], (order.tag, number), key)
        return f"receipt:{key}:{bank.paid[key].receipt}"


@pytest.fixture(scope="module")
def bank() -> Iterator[Bank]:
    # While a request is on its way the driven clock may leap, which no other party's does.
    with Bank(WINDOWS, slack=2 * LAPSE_SECONDS) as one:
        yield one


@pytest.fixture(scope="module")
def edge(edge_factory: EdgeFactory, bank: Bank) -> Iterator[LocalEdge]:
    made = edge_factory(bodies=BODIES, vars=VARS)
    with client(made) as api:
        for name, window in WINDOWS.items():
            sent = {"url": f"{bank.url}/{name}", "methods": ["POST"], "publication": name in PUBLIC}
            good(api.put(f"/destinations/{name}", json=sent | ({} if window is None else {"dedup_window_seconds": window})))
    yield made
    made.stop()


@pytest.mark.clause(
    "guards.crash-held", "guards.acquire", "guards.manual", "guards.evidence", "guards.scope", "guards.holder-gone"
)
def test_whatever_is_killed_when_each_payment_is_made_once_or_a_guard_names_it(edge: LocalEdge, bank: Bank) -> None:
    print(f"MOORAGE_CHAOS_SEED={SEED}")
    with client(edge) as api, ThreadPoolExecutor(24) as pool:
        storm = Storm(edge, api, bank)
        for one in plan(SEED):
            storm.play(pool, one)
        died = "workerd died and was started again"
        assert await_log(edge, died, times=KILLS).count(died) == KILLS
        guards = storm.settle()
        storm.check(guards)
        held = len(guards)
        assert held > KILLS / 3, "the storm has struck nothing: it proves nothing"
        operator = Operator(storm, random.Random(SEED + 1))
        while guards:
            operator.reconcile(guards)
            guards = storm.settle()
            storm.check(guards)
        assert {run["status"] for run in storm.runs().values()} == {"success"}
    print(f"{held} guards after the last kill; operators found {dict(operator.found)}; requests met {dict(bank.met)}")
    check_rows(edge, sum(operator.found.values()))


def check_rows(edge: LocalEdge, reconciled: int) -> None:
    """Nothing is left over in the database, and history tells of each guard how it went."""
    edge.kill()
    assert faults(edge.d1_path()) == {}
    with opened(edge.d1_path()) as database:
        for table in ("guards", "guard_rows", "executions", "journal"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table  # noqa: S608
        rows = database.execute("SELECT type, count(*) FROM history WHERE type LIKE 'guard.%' GROUP BY type").fetchall()
        told = Counter(dict(rows))
        assert database.execute("SELECT count(*) FROM guard_audit").fetchone() == (reconciled,)
    # A holder in the Worker never says that it is gone, so that nothing was sent again but by it, or after an operator.
    assert told["guard.reconciled"] == reconciled
    assert told["guard.replayed"] == 0
    assert told["guard.admitted"] == told["guard.released"] + told["guard.reconciled"]
