"""`moorage events`, as a person runs it."""

import pytest

from tests.ops.test_commands import Run, docs, house, lines, ndjson, run, schema, transport

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
    assert "order-7" in run("events", "show", made["event_id"]).stdout

    tailed = run("events", "tail", "--after", "0", "--limit", "2", "--type", "b").stdout
    assert [line.split()[-1] for line in tailed.splitlines()] == ["0", "1"]
    assert len(lines(run("events", "tail", "--after", "0", "--limit", "1", "--json"))) == 1

    run("events", "scope", made["event_id"], "nowhere", status=1)
    run("events", "send", "paid", "--attribute", "x", status=2)
    run("events", "send", "--id", "1", stdin="", status=2)
    assert "line 2 is no" in str(run("events", "send", stdin='{"a":1}\n[]\n', status=1).exception)
