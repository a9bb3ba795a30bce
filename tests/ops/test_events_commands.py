"""`moorage events`, as a person runs it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ops.test_commands import Run, docs, house, lines, ndjson, run, schema, transport
from tests.unit.api.conftest import House

__all__ = ["docs", "house", "run", "schema", "transport"]


@pytest.mark.clause("inbox.accept", "inbox.scope-once")
def test_events_are_sent_listed_shown_and_scoped(run: Run) -> None:
    send = ("events", "send", "paid", '{"n":1}', "--source", "/shop", "--id", "1", "--subject", "order-7")
    [made] = lines(run(*send, "--attribute", "correlationid=c-1", "--json"))
    assert (made["added"], made["keys"], made["event"]["data"]) == (True, ["order-7", "c-1"], {"n": 1})
    assert "accepted before, with other content" in run("events", "send", "paid", "--source", "/shop", "--id", "1").stdout
    assert " accepted" in run("events", "send", "paid", "-", stdin='"text"').stdout
    event = {"specversion": "1.0", "source": "/batch", "type": "b"}
    whole = ndjson({**event, "id": f"{n}"} for n in range(130))
    assert "sent 130 events" in run("events", "send", stdin=whole).stdout
    assert [one["added"] for one in lines(run("events", "send", "--json", stdin=ndjson([{**event, "id": "3"}])))] == [False]

    table = run("events", "list", "--type", "paid").stdout
    assert made["event_id"] in table
    assert "order-7 c-1" in table
    few = run("events", "list", "--source", "/batch", "--limit", "2", "--newest", "--json")
    assert ([one["id"] for one in lines(few)], "there is more" in few.stderr) == (["129", "128"], True)
    assert len(lines(run("events", "list", "--all", "--json"))) == 132
    assert [one["id"] for one in lines(run("events", "list", "--key", "c-1", "--json"))] == ["1"]
    shown = run("events", "show", made["event_id"]).stdout
    assert "order-7" in shown
    assert "taken by" not in shown

    tailed = run("events", "tail", "--after", "0", "--limit", "2", "--type", "b").stdout
    assert [line.split()[-1] for line in tailed.splitlines()] == ["0", "1"]
    assert len(lines(run("events", "tail", "--after", "0", "--limit", "1", "--json"))) == 1

    run("events", "scope", made["event_id"], "nowhere", status=1)
    run("events", "send", "paid", "--attribute", "x", status=2)
    for own in ("id", "source", "type", "subject", "data", "data_base64", "specversion"):
        assert f"{own} is given otherwise" in run("events", "send", "paid", "--attribute", f"{own}=x", status=2).stderr
    [extended] = lines(run("events", "send", "paid", "--attribute", "scope=a", "--attribute", "self=b", "--json"))
    assert (extended["scope"], extended["event"]["scope"], extended["event"]["self"]) == (None, "a", "b")
    run("events", "send", "--id", "1", stdin="", status=2)
    assert "line 2 is no" in str(run("events", "send", stdin='{"a":1}\n[]\n', status=1).exception)


def test_what_is_wrong_with_one_of_many_events_is_told_by_its_line_with_what_was_sent_before(run: Run) -> None:
    event = {"specversion": "1.0", "source": "/batch", "type": "b"}
    good = [{**event, "id": f"{n}"} for n in range(102)]

    def refused(*last: dict[str, Any] | list[Any]) -> str:
        done = run("events", "send", stdin=ndjson(good) + "\n" + ndjson(last), status=1)
        assert "100 events sent before" in done.stderr
        return f"{done.stderr}{done.exception}"

    assert "RequestInvalid: line 105: /source must be a URI reference" in refused(
        {**event, "id": "x"}, {**event, "id": "y", "source": "a b"}
    )
    told = refused({**event, "id": "x", "causationid": "evt_nobody"})
    assert "CausationUnknown: one of lines 101 to 104: The event names a cause" in told
    assert "line 104" in refused([])
    assert "sent" not in run("events", "send", stdin=ndjson([{}]), status=1).stderr
    unknown = run("events", "send", "--scope", "nowhere", stdin=ndjson([{**event, "id": "z"}]), status=1).stderr
    assert "ScopeUnknown: There is no scope" in unknown
    assert run("events", "send", stdin=ndjson(good[99:])).stdout == "sent 3 events, 1 of them accepted before\n"
    assert len(lines(run("events", "list", "--all", "--json"))) == 102


def test_an_event_is_shown_with_whose_waits_have_taken_it(run: Run, house: House) -> None:
    [made] = lines(run("events", "send", "paid", "--json"))
    told: dict[str, dict[str, Any]] = {
        "event.routed": {"disposition": "woke", "waits": 12, "executions": ["exe_1", "exe_2"], "work": None},
        "event.matched": {"execution": "exe_2", "label": "paid"},
    }
    for revision, (type_, data) in enumerate(told.items(), 8):
        house.connection.execute(
            "INSERT INTO history (subject, revision, type, actor, at, data) VALUES (?, ?, ?, 'moorage:router', 0, ?)",
            (made["event_id"], revision, type_, json.dumps(data)),
        )
    assert run("events", "show", made["event_id"]).stdout.splitlines()[-4:] == [
        "",
        "woke exe_1",
        "taken by exe_2, which waited for 'paid'",
        "and woke 10 more",
    ]


def test_senders_are_declared_listed_shown_and_deleted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    put = ("senders", "put", "shop", "--scheme", "github", "--secret", "older")
    parts = ("--id", "/order/id", "--type", "order.paid", "--key", "/order/id", "--key", "/order/customer")
    (one,) = lines(run(*put, "--secret", f"@{tmp_path / 'secret'}", *parts, "--tolerance-seconds", "60", "--json"))
    assert [one[part] for part in ("scheme", "subject", "secrets", "tolerance_seconds")] == ["github", "shop", 2, 60]
    assert one["event"] == {"id": "/order/id", "type": "order.paid", "keys": ["/order/id", "/order/customer"], "scope": None}
    assert lines(run("senders", "show", "shop", "--json")) == [one]
    table = run("senders", "list").stdout.splitlines()
    assert table[1].split() == [
        "shop",
        "github",
        "shop",
        "2",
        "/order/id",
        "order.paid",
        "/order/id",
        "/order/customer",
        "-",
    ]
    declared = run(*put, "--subject", "us", "--url", "http://moorage.test/").stdout
    assert declared.endswith("\nit sends to http://moorage.test/webhooks/shop\n")
    assert lines(run("senders", "list", "--json"))[0]["event"] is None
    run(*put, "--secret", "@/nowhere", status=2)
    (tmp_path / "bytes").write_bytes(b"\xff")
    run(*put, "--secret", f"@{tmp_path / 'bytes'}", status=2)
    assert "RequestInvalid" in run("senders", "put", "x", "--scheme", "none", "--secret", "s", status=1).stderr
    assert run("senders", "delete", "shop").stdout == "deleted shop\n"
    assert "SenderUnknown" in run("senders", "show", "shop", status=1).stderr
