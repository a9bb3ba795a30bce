"""The commands that speak to a deployment, as a person runs them, against the application on SQLite."""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from moorage.api.app import build_app
from moorage.client import FailureTag, Moorage, Patience
from ops import remote
from ops.cli import SUBCOMMANDS, assemble
from ops.failure import CommandFailed
from tests.unit.api.conftest import ROOT, House, house, schema

__all__ = ["house", "schema"]

Run = Callable[..., Result]

GROUPS = (
    *("records", "kinds", "claims", "dead-letters", "artifacts", "credentials", "subscriptions", "deliveries"),
    *("schedules", "timers", "kv", "events", "senders", "destinations"),
)


class Lossy(httpx.AsyncBaseTransport):
    """A transport to the application that can begin to lose requests after so many."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner
        self.left: int | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise httpx.ConnectError("gone")
        return await self.inner.handle_async_request(request)


@pytest.fixture
def transport(house: House) -> Lossy:
    return Lossy(httpx.ASGITransport(app=build_app(house.ports())))


@pytest.fixture
def run(transport: Lossy, monkeypatch: pytest.MonkeyPatch) -> Run:
    def connect(url: str, token: str | None, _: Patience) -> Moorage:
        return Moorage(url, token, transport=transport, patience=Patience(tries=1))

    monkeypatch.setattr(remote, "connect", connect)
    monkeypatch.setenv("MOORAGE_TOKEN", ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("MOORAGE_URL", raising=False)

    def call(*arguments: str, stdin: str | None = None, status: int = 0) -> Result:
        found = CliRunner().invoke(assemble(list(arguments)), list(arguments), input=stdin)
        assert found.exit_code == status, f"{arguments}: {found.exit_code} {found.output} {found.exception!r}"
        return found

    return call


@pytest.fixture
def docs(run: Run) -> Run:
    run("kinds", "declare", "doc", "--path", "n:number", "--path", "a.b:string", "--max-attempts", "1")
    return run


def lines(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def ndjson(values: Iterable[Any]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


@pytest.mark.parametrize("group", GROUPS)
def test_every_command_says_what_it_does_and_gives_an_example(run: Run, group: str) -> None:
    app = import_module(SUBCOMMANDS[group].module).app
    names = [command.name or command.callback.__name__.rstrip("_") for command in app.registered_commands]
    assert names
    for name in names:
        shown = run(group, name, "--help").stdout
        assert f"Example: moorage {group} {name}" in " ".join(shown.split())
        assert "--url" in shown
        assert "MOORAGE_TOKEN" in shown


def test_the_whole_way_of_a_record(docs: Run) -> None:
    (record,) = lines(docs("records", "publish", "doc", '{"n":1,"a":{"b":"ü"}}', "--priority", "2", "--json"))
    assert (record["body"], record["priority"]) == ({"n": 1, "a": {"b": "ü"}}, 2)
    (claim,) = lines(docs("claims", "take", "doc", "--match", '{"n":{"$lt":2}}', "--worker", "me", "--json"))
    epoch = str(claim["lease"]["epoch"])
    assert (claim["record"]["id"], claim["lease"]["owner"] != "") == (record["id"], True)
    docs("claims", "renew", record["id"], epoch, "--lease-seconds", "600")
    result = '{"kind":"doc","body":{"n":2}}'
    (done,) = lines(docs("claims", "settle", record["id"], epoch, "--result", result, "--json"))
    assert done["record"]["state"] == "consumed"
    shown = docs("records", "show", record["id"]).stdout
    assert "consumed" in shown
    assert '{"a": {"b": "ü"}, "n": 1}' in shown
    (child,) = done["receipt"]["results"]
    lineage = docs("records", "lineage", child).stdout
    assert record["id"] in lineage
    history = docs("records", "history", record["id"]).stdout
    order = [history.index(what) for what in ("record.published", "record.claimed", "record.settled")]
    assert order == sorted(order)


def test_nothing_to_claim_is_an_exit_status_of_its_own(docs: Run) -> None:
    assert "nothing matches" in docs("claims", "take", "doc", status=3).stderr


def test_a_list_says_that_there_is_more(docs: Run) -> None:
    docs("records", "import", "-", "--kind", "doc", stdin=ndjson({"n": n} for n in range(60)))
    first = docs("records", "list", "doc", "--limit", "7", "--json")
    assert [one["body"]["n"] for one in lines(first)] == list(range(7))
    assert "there is more" in first.stderr
    whole = docs("records", "list", "doc", "--all", "--newest", "--json")
    assert [one["body"]["n"] for one in lines(whole)] == list(range(59, -1, -1))
    assert whole.stderr == ""
    some = docs("records", "list", "doc", "--match", '{"n":{"$gte":58}}', "--state", "ready").stdout
    assert len(some.splitlines()) == 3
    assert some.splitlines()[0].split() == ["record", "seq", "state", "attempts", "created", "body"]


def test_a_table_in_a_pipe_cuts_no_cell(docs: Run) -> None:
    name = "k" * 100
    docs("kinds", "declare", name, *(part for n in range(9) for part in ("--path", f"a_rather_long_path_{n}:string")))
    row = next(line for line in docs("kinds", "list").stdout.splitlines() if line.startswith("kkk"))
    assert row.split()[0] == name
    assert "a_rather_long_path_8:string" in row


def test_an_import_that_broke_off_goes_on_without_doubles(docs: Run, transport: Lossy, tmp_path: Path) -> None:
    file = tmp_path / "in.ndjson"
    file.write_text(ndjson({"kind": "doc", "body": {"n": n}, "priority": n % 3} for n in range(95)) + "\n")
    transport.left = 3
    broken = CliRunner().invoke(assemble(["records"]), ["records", "import", str(file), "--batch", "10", "--key", "k"])
    assert isinstance(broken.exception, CommandFailed)
    assert "30 records published; --key k" in broken.stderr
    transport.left = None
    assert "published 95 records" in docs("records", "import", str(file), "--batch", "10", "--key", "k").stdout
    found = lines(docs("records", "list", "doc", "--all", "--json"))
    assert [one["body"]["n"] for one in found] == list(range(95))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: "),
        ("[1]", "line 2: is not a JSON object"),
        ('{"body":{}}', 'line 2: needs "kind" and "body"'),
        ('{"kind":"doc","body":{},"bodyy":1}', "line 2: has members that a record is not published with: bodyy"),
        ('{"kind":"doc","body":{},"not_before":"soon"}', "line 2: "),
        ('{"kind":"doc","body":{"n":9007199254740993}}', "line 2: "),
    ],
)
def test_a_bad_line_is_named(docs: Run, line: str, said: str) -> None:
    text = '{"kind":"doc","body":{}}\n' + line + "\n"
    done = CliRunner().invoke(assemble(["records"]), ["records", "import", "-", "--batch", "1"], input=text)
    assert isinstance(done.exception, CommandFailed)
    assert str(done.exception).startswith(said)
    assert "1 record published" in done.stderr


async def break_all(moorage: Moorage) -> None:
    async with moorage:
        while claims := await moorage.claims.claim("doc", "w", limit=100):
            for claim in claims:
                await moorage.claims.fail(claim, FailureTag.INVALID, "broken", dead_letter=True)


def test_dead_letters_are_requeued_by_name_and_by_pattern(docs: Run) -> None:
    docs("records", "import", "-", "--kind", "doc", stdin=ndjson({"n": n} for n in range(250)))
    asyncio.run(break_all(remote.connect("http://moorage.test", ROOT, remote.BRIEF)))
    docs("records", "publish", "doc", '{"n":-1}')
    (claim,) = lines(docs("claims", "take", "doc", "--json"))
    record, epoch = claim["record"]["id"], str(claim["lease"]["epoch"])
    docs("claims", "fail", record, epoch, "--message", "broken", "--tag", "Invalid", "--dead-letter")
    letters = lines(docs("dead-letters", "list", "--kind", "doc", "--all", "--json"))
    assert len(letters) == 251
    first, second = letters[0]["record"]["id"], letters[1]["record"]["id"]
    assert "broken" in docs("dead-letters", "list", "--limit", "1").stdout
    assert "attempt" in docs("dead-letters", "show", first).stdout
    assert docs("dead-letters", "requeue", first, second, "--reason", "fixed").stdout == "requeued 2 records\n"
    some = ("--kind", "doc", "--match", '{"n":{"$gte":10}}', "--reason", "fixed")
    assert docs("dead-letters", "requeue", *some, "--limit", "5").stdout == "requeued 5 records\n"
    assert docs("dead-letters", "requeue", *some).stdout == "requeued 235 records\n"
    assert len(lines(docs("dead-letters", "list", "--json"))) == 9


@pytest.mark.parametrize("arguments", [(), ("rec", "--kind", "doc"), ("rec", "--match", "{}")])
def test_a_requeue_needs_names_or_a_kind(docs: Run, arguments: tuple[str, ...]) -> None:
    docs("dead-letters", "requeue", *arguments, "--reason", "r", status=2)


def test_credentials_are_made_listed_and_revoked(docs: Run) -> None:
    grants = ("--grant", "claim,read:doc", "--grants", '[{"actions":["publish"],"kinds":["doc"],"match":{"n":1}}]')
    (made,) = lines(docs("credentials", "create", "worker", *grants, "--json"))
    assert [sorted(grant["actions"]) for grant in made["grants"]] == [["claim", "read"], ["publish"]]
    docs("records", "list", "doc", "--token", made["token"])
    refused = docs("records", "publish", "doc", '{"n":2}', "--token", made["token"], status=1)
    assert refused.stderr.startswith("moorage: Forbidden: ")
    listed = docs("credentials", "list").stdout
    assert made["token"] not in listed
    assert "doc" in listed
    docs("credentials", "revoke", made["id"])
    assert "revoked" in docs("credentials", "list").stdout
    assert "revoked_at" in docs("credentials", "show", made["id"]).stdout


def test_a_record_is_tried_cancelled_and_looked_at_by_retention(docs: Run) -> None:
    (tried,) = lines(docs("records", "dry-run", "doc", '{"n":1}', "--json"))
    assert tried["matches"] == []
    (record,) = lines(docs("records", "publish", "doc", '{"n":1}', "--json"))
    assert "dead" in docs("records", "cancel", record["id"], "--reason", "sent by mistake").stdout
    (shown,) = lines(docs("kinds", "retention", "doc", "--retention-seconds", "60", "--json"))
    assert (shown["candidates"], shown["oldest"]) == (0, [])


def test_a_public_credential_is_bound_to_origins_and_a_rate(docs: Run) -> None:
    bounds = ("--public", "--origin", "https://app.example.test", "--rate", "5", "--burst", "10")
    (made,) = lines(docs("credentials", "create", "page", "--grant", "publish:doc", *bounds, "--json"))
    assert (made["public"], made["origins"]) == (True, ["https://app.example.test"])
    assert made["rate"] == {"per_second": 5, "burst": 10}


def test_a_problem_is_told_with_its_pointers(docs: Run) -> None:
    told = docs("kinds", "declare", "doc", "--lease-seconds", "0", "--path", "n:number", "--path", "x:what", status=1)
    assert told.stdout == ""
    assert told.stderr.startswith("moorage: RequestInvalid: ")
    assert "  at /claim/lease_seconds: " in told.stderr
    assert "  at /paths/x: " in told.stderr
    assert "request req_" in told.stderr


def test_a_missing_credential_says_where_to_get_one(docs: Run) -> None:
    told = docs("kinds", "list", "--token", "wrong", status=1).stderr
    assert told.startswith("moorage: Unauthenticated: ")
    assert "MOORAGE_TOKEN" in told


def test_a_deployment_that_is_not_there_is_one_line(docs: Run, transport: Lossy) -> None:
    transport.left = 0
    done = CliRunner().invoke(assemble(["kinds"]), ["kinds", "list", "--url", "http://nowhere.test"])
    assert isinstance(done.exception, CommandFailed)
    assert str(done.exception).startswith("no answer from http://nowhere.test: GET /kinds: ConnectError: gone")


@pytest.mark.parametrize("arguments", [("kinds", "list"), ("watch", "doc")])
def test_a_wrong_address_is_told_soon(arguments: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    began = time.monotonic()
    done = CliRunner().invoke(assemble(list(arguments)), [*arguments, "--url", f"http://127.0.0.1:{port}"])
    assert isinstance(done.exception, CommandFailed)
    assert str(done.exception).startswith(f"no answer from http://127.0.0.1:{port}: ")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "arguments",
    [
        ("records", "publish", "doc", "{"),
        ("records", "publish", "doc", "[]"),
        ("records", "publish", "doc", "@/does/not/exist"),
        ("records", "list", "doc", "--match", "n=1"),
        ("kinds", "declare", "doc", "--path", "n"),
        ("claims", "settle", "rec", "1", "--result", '{"body":{}}'),
        ("credentials", "create", "s", "--grants", "{}"),
    ],
)
def test_wrong_usage_is_an_exit_status_of_two(docs: Run, arguments: tuple[str, ...]) -> None:
    docs(*arguments, status=2)


def test_a_body_is_read_from_a_file_or_standard_input(docs: Run, tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_text('{"n": 5}')
    (one,) = lines(docs("records", "publish", "doc", f"@{file}", "--json"))
    (two,) = lines(docs("records", "publish", "doc", "-", "--json", stdin='{"n": 6}'))
    assert (one["body"], two["body"]) == ({"n": 5}, {"n": 6})


def test_a_publish_under_a_key_is_one_record(docs: Run) -> None:
    twice = [lines(docs("records", "publish", "doc", "{}", "--key", "k", "--json")) for _ in range(2)]
    assert twice[0] == twice[1]
