"""`moorage subscriptions` and `moorage deliveries`, as an operator runs them, against the application on SQLite."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moorage.client import Moorage
from moorage.messages.outbox.fan_out import OutboxFanOut
from ops.failure import CommandFailed
from tests.contract.adapters import at_once
from tests.ops.test_commands import Lossy, Run, house, lines, run, schema, transport
from tests.unit.api.conftest import ROOT, House

__all__ = ["house", "run", "schema", "transport"]


@pytest.fixture
def told(run: Run, house: House) -> list[str]:
    """A subscription that has told of three publications; the ids of the deliveries."""
    house.connection.execute(
        "INSERT INTO destinations (name, url, methods, publication, created_at, updated_at)"
        " VALUES ('crm', 'https://crm.example.com/', '[\"POST\"]', 0, 0, 0)"
    )
    run("kinds", "declare", "doc", "--path", "n:number")
    run("subscriptions", "put", "docs", "--type", "record.published", "--kind", "doc", "--destination", "crm")
    for number in range(3):
        run("records", "publish", "doc", json.dumps({"n": number}))
    at_once(OutboxFanOut().look_further(house.database(), house.now, "docs"))
    return [one["delivery_id"] for one in lines(run("deliveries", "list", "--json"))]


def test_a_subscription_is_declared_shown_paused_and_deleted(run: Run, told: list[str]) -> None:
    (one,) = lines(run("subscriptions", "list", "--json"))
    assert (one["name"], one["state"], one["types"], one["behind"]) == ("docs", "active", ["record.published"], 0)
    table = run("subscriptions", "list").stdout.splitlines()
    assert table[0].split() == ["name", "state", "destination", "types", "kinds", "behind"]
    assert table[1].split() == ["docs", "active", "crm", "record.published", "doc", "0"]
    (paused,) = lines(run("subscriptions", "pause", "docs", "--reason", "they move", "--json"))
    assert (paused["state"], paused["reason"]) == ("paused", "they move")
    assert "they move" in run("subscriptions", "show", "docs").stdout
    assert lines(run("subscriptions", "resume", "docs", "--json"))[0]["state"] == "active"
    filtered = ("--filter", '{"n":{"$gte":2}}', "--from", "0", "--paused", "--json")
    put = run("subscriptions", "put", "docs", "--type", "record.*", "--kind", "doc", "--destination", "crm", *filtered)
    assert [lines(put)[0][name] for name in ("filter", "position", "state")] == [{"n": {"$gte": 2}}, 0, "paused"]
    run("subscriptions", "put", "docs", "--type", "*", "--destination", "crm", "--from", "yesterday", status=2)
    assert run("subscriptions", "delete", "docs").stdout == "deleted docs\n"
    assert "SubscriptionUnknown" in run("subscriptions", "show", "docs", status=1).stderr


def test_deliveries_are_listed_shown_canceled_and_made_again(run: Run, told: list[str], house: House) -> None:
    assert len(told) == 3
    table = run("deliveries", "list", "--newest").stdout.splitlines()
    assert table[1].split()[:5] == [told[2], table[1].split()[1], "record.published", "crm", "pending"]
    (shown,) = lines(run("deliveries", "show", told[0], "--json"))
    assert json.loads(shown["body"])["id"] == shown["event_id"]
    assert '"specversion": "1.0"' in run("deliveries", "show", told[0]).stdout
    (canceled,) = lines(run("deliveries", "cancel", told[0], "--reason", "not wanted", "--json"))
    assert canceled["state"] == "canceled"
    (again,) = lines(run("deliveries", "redeliver", told[0], "--json"))
    assert (again["state"], again["generation"]) == ("pending", 2)
    house.connection.execute("UPDATE deliveries SET state = 'dead', next_attempt_at = NULL, ended_at = 1")
    assert run("deliveries", "redeliver", "--reason", "back", "--limit", "2").stdout == "asked for 2 deliveries again\n"
    assert len(lines(run("deliveries", "list", "--state", "dead", "--json"))) == 1
    many = ("--destination", "crm", "--subscription", "docs", "--reason", "back", "--json")
    assert len(lines(run("deliveries", "redeliver", *many))) == 1
    run("deliveries", "redeliver", status=2)
    run("deliveries", "redeliver", told[0], "--destination", "crm", status=2)
    assert "DeliveryConflict" in run("deliveries", "redeliver", told[0], status=1).stderr
    run("deliveries", "cancel", told[0])
    broken = run("deliveries", "redeliver", told[0], "dlv_x", status=1).stderr
    assert broken.startswith("asked for 1 of 2 again, those before dlv_x\nmoorage: DeliveryUnknown: ")


def test_the_summary_and_the_tail(run: Run, told: list[str], transport: Lossy) -> None:
    (summary,) = lines(run("deliveries", "summary", "--json"))
    assert summary["lag_seconds"] == 0.0
    assert [(one["destination"], one["pending"]) for one in summary["items"]] == [("crm", 3)]
    table = run("deliveries", "summary").stdout.splitlines()
    assert table[0] == "the outbox is 0 s behind"
    assert table[2].split()[-1] == "why"
    assert table[3].split()[:3] == ["crm", "closed", "3"]
    followed = lines(run("deliveries", "tail", "--limit", "3", "--json"))
    assert [one["delivery_id"] for one in followed] == told
    line = run("deliveries", "tail", "--limit", "1").stdout.split()
    assert (line[1:3], line[3][:4], line[4:]) == ([told[0], "record.published"], "rec_", ["crm", "pending", "try", "0"])
    transport.left = 0
    with pytest.raises(AssertionError) as caught:
        run("deliveries", "tail")
    assert CommandFailed.__name__ in str(caught.value)


@pytest.mark.clause("completion.subscribe")
def test_a_run_is_started_with_whom_to_tell_of_its_end(run: Run, told: list[str], house: House, transport: Lossy) -> None:
    def ask(work: Callable[[Moorage], Awaitable[Any]]) -> Any:
        return asyncio.run(work(Moorage("http://moorage.test", ROOT, transport=transport)))  # type: ignore[arg-type]

    ask(lambda moorage: moorage.wire.call("PUT", "/bodies/work", {"build": {"implementation": "a" * 64}}))
    (started,) = lines(run("runs", "start", "work", "--notify", "crm", "--json"))
    (asked,) = ask(lambda moorage: moorage.runs.completions(started["run_id"]))
    assert asked.destination == "crm"
    assert "DestinationUnknown" in run("runs", "start", "work", "--notify", "nowhere", status=1).stderr


def test_destinations_are_declared_listed_and_shown(run: Run) -> None:
    put = ("destinations", "put", "crm", "https://crm.example.com/hook")
    done = run(*put, "--secret", "env:CRM_SECRET", "--ordered", "--max-attempts", "3", "--json")
    (one,) = lines(done)
    assert "has no secret CRM_SECRET yet" in done.stderr
    assert (one["url"], one["secret"], one["methods"]) == (put[-1], "env:CRM_SECRET", ["POST"])
    assert one["delivery"] == {"concurrency": 4, "ordered": True, "max_attempts": 3, "timeout_seconds": 15}
    assert lines(run("destinations", "show", "crm", "--json")) == [one]
    run(
        "destinations",
        "put",
        "bank",
        "https://bank.example.com/",
        "--method",
        "PUT",
        "--dedup-window",
        "60",
        "--publication",
    )
    assert [each["name"] for each in lines(run("destinations", "list", "--json"))] == ["bank", "crm"]
    table = run("destinations", "list").stdout.splitlines()
    assert table[1].split() == ["bank", "https://bank.example.com/", "PUT", "-"]
    plain = run(*put, "--json")
    (anew,) = lines(plain)
    assert plain.stderr == ""
    assert (anew["secret"], anew["delivery"]["ordered"]) == (None, False)
    assert "env:NAME" in run(*put, "--secret", "whsec_literal", status=1).stderr
    assert "DestinationUnknown" in run("destinations", "show", "nowhere", status=1).stderr
