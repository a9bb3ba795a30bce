"""`moorage timers` and `moorage kv`, as a person runs them."""

import json

import pytest

from moorage.kernel.instants import after, render
from tests.ops.test_commands import Run, docs, house, lines, run, schema, transport
from tests.unit.api.conftest import START

__all__ = ["docs", "house", "run", "schema", "transport"]


@pytest.mark.clause("timers.fire")
def test_timers_are_set_listed_shown_and_deleted(run: Run) -> None:
    put = ("timers", "put", "t", "--type", "ping")
    [made] = lines(run(*put, "--in", "1.5", "--every", "60", "--data", '{"n":1}', "--subject", "s", "--key", "k", "--json"))
    assert (made["fire_at"], made["every_seconds"], made["revision"]) == (render(after(START, 1.5)), 60, 1)
    assert made["event"] == {
        "source": "/timers/t",
        "type": "ping",
        "id": "t:1",
        "subject": "s",
        "keys": ["k"],
        "data": {"n": 1},
    }
    run(
        "timers",
        "put",
        "late",
        "--type",
        "pong",
        "--at",
        "2027-01-01T01:00:00+01:00",
        "--source",
        "/s",
        "--id",
        "e",
        "--data",
        "null",
    )
    shown = run("timers", "show", "late").stdout
    assert "2027-01-01T00:00:00.000Z" in shown
    assert '"id": "e"' in shown
    table = run("timers", "list").stdout
    assert ["late", "1", "2027-01-01T00:00:00.000Z", "-", "pong", "/s", "e"] in [line.split() for line in table.splitlines()]
    assert "60 s" in table
    assert [one["id"] for one in lines(run("timers", "list", "--json"))] == ["late", "t"]
    few = run("timers", "list", "--limit", "1", "--json")
    assert ([one["id"] for one in lines(few)], "there is more" in few.stderr) == (["late"], True)
    assert "TimerConflict" in run(*put, "--in", "1", "--revision", "0", status=1).stderr
    assert "TimerConflict" in run("timers", "delete", "t", "--revision", "7", status=1).stderr
    assert run("timers", "delete", "t").stdout == "deleted t\n"
    assert "TimerUnknown" in run("timers", "delete", "t", status=1).stderr
    for wrong in (
        (),
        ("--in", "1", "--at", "2027-01-01T01:00:00Z"),
        ("--in", "-1"),
        ("--in", "nan"),
        ("--in", "inf"),
        ("--at", "soon"),
        ("--in", "1", "--data", "{"),
    ):
        run(*put, *wrong, status=2)


@pytest.mark.clause("kv.ops")
def test_values_are_put_got_listed_and_deleted(run: Run) -> None:
    assert run("kv", "put", "ns", "a.1", '{"n":[1,null]}').stdout == "put ns/a.1 at revision 1\n"
    assert run("kv", "put", "ns", "below", "-5").stdout == "put ns/below at revision 1\n"
    run("kv", "put", "ns", "below", "1", "--revisoin", "1", status=2)
    run("kv", "delete", "ns", "below")
    [made] = lines(run("kv", "put", "ns", "b", "-", "--json", stdin='"text"'))
    assert (made["value"], made["revision"]) == ("text", 1)
    assert json.loads(run("kv", "get", "ns", "a.1").stdout) == {"n": [1, None]}
    [whole] = lines(run("kv", "get", "ns", "b", "--json"))
    assert whole == made
    run("kv", "put", "ns", "a.2", json.dumps("x" * 500))
    table = run("kv", "list", "ns").stdout
    assert [line.split()[0] for line in table.splitlines()] == ["key", "a.1", "a.2", "b"]
    assert "…" in table
    assert [one["key"] for one in lines(run("kv", "list", "ns", "--prefix", "a.", "--json"))] == ["a.1", "a.2"]
    assert "there is more" in run("kv", "list", "ns", "--limit", "2").stderr
    assert "KeyConflict" in run("kv", "put", "ns", "b", "1", "--revision", "0", status=1).stderr
    assert "KeyConflict" in run("kv", "delete", "ns", "b", "--revision", "9", status=1).stderr
    for _ in range(2):
        assert run("kv", "delete", "ns", "b").stdout == "deleted ns/b\n"
    assert "KeyUnknown" in run("kv", "get", "ns", "b", status=1).stderr
    run("kv", "put", "ns", "b", "{", status=2)


@pytest.mark.clause("kv.ops")
def test_a_claim_is_settled_with_its_values(run: Run) -> None:
    run("kinds", "declare", "job")
    run("records", "publish", "job", "{}")
    [claim] = lines(run("claims", "take", "job", "--json"))
    settle = ("claims", "settle", claim["record"]["id"], str(claim["lease"]["epoch"]))
    many = json.dumps({"ns": dict.fromkeys(map(str, range(51)), 1)})
    assert "/kv" in run(*settle, "--kv", many, status=1).stderr
    assert "IdInvalid" in run(*settle, "--kv", '{"ns":{"a b":1}}', status=1).stderr
    run(*settle, "--kv", "[]", status=2)
    assert run("kv", "list", "ns", "--json").stdout == ""
    for _ in range(2):
        run(*settle, "--kv", '{"ns":{"cursor":7,"draft":null}}')
    [cursor] = lines(run("kv", "list", "ns", "--json"))
    assert (cursor["key"], cursor["value"], cursor["revision"]) == ("cursor", 7, 1)
    assert "SettlementConflict" in run(*settle, status=1).stderr
