"""GET /clock/failures and POST /clock/failures/retry, on the host."""

import httpx
import pytest

from moorage.kernel.instants import after, render
from tests.unit.api.conftest import House
from tests.unit.api.test_requests import problem
from tests.unit.api.test_set_aside import fired

pytestmark = pytest.mark.clause("timers.alarm")

RETRY = "/clock/failures/retry"


async def broken(root: httpx.AsyncClient, house: House) -> None:
    """A timer that cannot fire, the third time in a row."""
    assert (await root.put("/timers/t", json={"delay_seconds": 10, "event": {"type": "ping"}})).is_success
    house.connection.execute("CREATE TRIGGER broken BEFORE INSERT ON events BEGIN SELECT raise(ABORT, 'hunter2'); END")
    for seconds in (10, 1, 2):
        await fired(house, seconds)


async def test_a_timer_that_was_mended_is_tried_at_once(root: httpx.AsyncClient, house: House) -> None:
    assert (await root.get("/clock/failures")).json() == {"items": [], "next_cursor": None}
    await broken(root, house)
    answer = await root.get("/clock/failures", params={"work": "timer_fired"})
    again = render(after(house.now, 4))
    told = {"work": "timer_fired", "item": "t@1", "attempts": 3, "error": "StorageBindingUnavailable", "retry_at": again}
    assert answer.json() == {"items": [told], "next_cursor": None}
    assert "hunter2" not in answer.text
    assert (await root.get("/clock/failures", params={"work": "run_due"})).json()["items"] == []
    house.connection.execute("DROP TRIGGER broken")
    house.dues.clear()
    assert (await root.post(RETRY, json={"work": "timer_fired", "item": "t@1"})).json() == {"retried": 1}
    assert (house.now, "time") in house.dues
    for sent in ({"work": "timer_fired", "item": "t@1"}, {"work": "timer_fired"}, {}):
        assert (await root.post(RETRY, json=sent)).json() == {"retried": 0}
    assert (await fired(house))["timer_fired"] == 1
    assert (await root.get("/clock/failures")).json()["items"] == []


async def test_everything_is_tried_and_what_still_fails_waits_longer(root: httpx.AsyncClient, house: House) -> None:
    await broken(root, house)
    house.now = after(house.now, 0.5)
    assert (await root.post(RETRY, json={})).json() == {"retried": 1}
    await fired(house)
    [told] = (await root.get("/clock/failures")).json()["items"]
    assert (told["attempts"], told["retry_at"]) == (4, render(after(house.now, 8)))


@pytest.mark.parametrize("sent", [{"work": "timer_fird"}, {"item": "t@1"}, {"work": ""}, {"work": 1}, {"all": True}, []])
async def test_what_names_nothing_is_refused(root: httpx.AsyncClient, sent: object) -> None:
    problem(await root.post(RETRY, json=sent), 422, "RequestInvalid")
    problem(await root.get("/clock/failures", params={"work": ""}), 422, "RequestInvalid")
    problem(await root.get("/clock/failures", params={"cursor": "x"}), 400, "CursorMismatch")
