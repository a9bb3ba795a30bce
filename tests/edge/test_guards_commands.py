"""The commands about guards, run for real: a host in no language in particular guards what it sends, and falls silent."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from moorage.guards.model import new_holder
from moorage.kernel.instants import Instant
from ops.cli import assemble
from ops.failure import CommandFailed
from ops.local.edge import LocalEdge
from tests.edge.client import client, fresh, good, problem

pytestmark = pytest.mark.edge

ENTRY = {"label": "charge", "input_sha256": "b" * 64}
BUILD = {"implementation": "a" * 64}


@pytest.fixture
def api(edge: LocalEdge) -> Iterator[httpx.Client]:
    with client(edge) as one:
        yield one


@pytest.fixture(autouse=True)
def projects(edge: LocalEdge, api: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The project `shop`, asked by somebody who may operate and nothing else, and others that fail in their own way."""
    named = {"shop": "operate", "reader": "read"}
    text = ""
    for name, action in named.items():
        sent = {"subject": fresh("op"), "grants": [{"actions": [action]}]}
        monkeypatch.setenv(f"{name.upper()}_TOKEN", good(api.post("/credentials", json=sent))["token"])
        text += f'[projects.{name}]\nurl = "{edge.url}"\ncredential_env = "{name.upper()}_TOKEN"\n'
    text += '[projects.gone]\nurl = "http://127.0.0.1:9"\ncredential_env = "SHOP_TOKEN"\n'
    (tmp_path / "moorage.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("MOORAGE_URL", "MOORAGE_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def run(*words: str, status: int = 0) -> Result:
    found = CliRunner().invoke(assemble(list(words)), list(words))
    assert found.exit_code == status, f"{words}: {found.exit_code} {found.output} {found.exception!r}"
    return found


def lines(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


class Host:
    """What docs/hosts.md asks of a host that guards its effects, and no more."""

    def __init__(self, api: httpx.Client, window_seconds: int | None = None) -> None:
        self.api = api
        self.holder = new_holder(Instant(1_796_000_000_000))
        self.scope, self.destination = fresh("order"), fresh("bank")
        good(api.post("/holders", json={"id": self.holder, "name": "till-3"}))
        window = {} if window_seconds is None else {"dedup_window_seconds": window_seconds}
        sent = {"url": "https://bank.example/in", "methods": ["POST"], **window}
        good(api.put(f"/destinations/{self.destination}", json=sent))

    def asks(self) -> httpx.Response:
        """Ask for the execution of its scope."""
        sent = {"body": "pay", "input": None, "holder": "h", "scope": self.scope, "build": BUILD}
        return self.api.post("/executions", json=sent)

    def sends(self, **more: Any) -> dict[str, Any]:
        """Admit an effect, and say nothing more; answers what the admission told."""
        one = good(self.asks())
        claim = {"op": "claim", **ENTRY, "kind": "step", "position": "0"}
        admit = {"op": "admit_guard", **ENTRY, "holder": self.holder, "destination": self.destination, **more}
        sent = {"epoch": one["lease"]["epoch"], "operations": [claim, admit]}
        outcomes = good(self.api.post(f"/executions/{one['execution_id']}/journal", json=sent))["outcomes"]
        admitted: dict[str, Any] = outcomes[1]
        assert admitted["outcome"] == "admitted"
        return admitted

    def lapses(self) -> None:
        """Its lease ends, and nobody hears of it."""
        good(self.api.post("/testing/clock", json={"advance_seconds": 31}))


@pytest.mark.clause("guards.cli", "guards.inspect", "guards.live-holder", "guards.evidence", "guards.manual", "guards.audit")
def test_an_operator_finds_what_is_in_doubt_and_releases_it_as_the_command_says(api: httpx.Client) -> None:
    host = Host(api)
    admitted = host.sends()
    token, key = admitted["token"], admitted["idempotency_key"]
    given = ("storage", "reconcile-guard", "--project", "shop", token, "--operator", "ann", "--evidence")
    held = run(*given, f"receipt:{key}:ch_1", status=3).stderr
    assert held.startswith("moorage: ExecutionGuardHeld: ")
    assert "ask again when the lease has ended at " in held
    host.lapses()
    blocked = problem(host.asks(), 409)
    assert (blocked["code"], blocked["token"]) == ("ExecutionGuardBlocked", token)
    (told,) = lines(run("storage", "guard", "--project", "shop", "--destination", host.destination, "--json"))
    assert (told["token"], told["class"], told["in_flight"]) == (token, "unknown", False)
    assert (told["holder"], told["holder_name"], told["holder_exited_at"]) == (host.holder, "till-3", None)
    shown = run("storage", "guard", "--project", "shop", token).stdout
    for fact in (
        host.scope,
        host.holder,
        key,
        host.destination,
        ENTRY["input_sha256"],
        told["execution_id"],
        told["run_id"],
    ):
        assert fact in shown
    (command,) = re.findall(r"^  run +moorage (.*)$", shown, re.MULTILINE)
    assert blocked["command"].split()[1:3] == shlex.split(command)[:2]
    assert "in the place of" in " ".join(run(*shlex.split(command), status=2).stderr.split())
    for wrong in (f"idempotency:{key}", "receipt:moorage-0:ch_1"):
        assert f"the guard's own key is {key}" in run(*given, wrong, status=4).stderr
    filled = shlex.split(command.replace("<id>", "ch_1").replace("<your name>", "ann"))
    assert "is recorded with receipt ch_1" in run(*filled).stdout
    taken = good(host.asks())
    assert taken["entries"][0]["value"] == {"receipt": "ch_1", "reconciled": True}
    (kept,) = lines(run("storage", "audit", token, "--project", "shop", "--json"))
    assert (kept["token"], kept["operator"], kept["evidence"]) == (token, "ann", f"receipt:{key}:ch_1")
    # The same once more is the same; another's word comes too late.
    assert kept["id"] in run(*filled).stdout
    assert "by ann" in run(*given, f"receipt:{key}:ch_2", status=5).stderr
    assert "by ann" in run("storage", "guard", token, "--project", "shop", status=1).stderr


@pytest.mark.clause("guards.cli", "guards.class", "guards.replay", "guards.holder-gone")
def test_a_key_that_is_still_known_there_is_sent_again(api: httpx.Client) -> None:
    host = Host(api, window_seconds=86400)
    admitted = host.sends()
    host.lapses()
    shown = run("storage", "guard", "--project", "shop", admitted["token"]).stdout
    (command,) = re.findall(r"^  run +moorage (.*)$", shown, re.MULTILINE)
    assert f"idempotency:{admitted['idempotency_key']}" in command
    summary = lines(run("storage", "check", "--project", "shop", "--json"))[0]["guards"]
    assert summary["by_class"]["replay-safe"] >= 1
    row = run("storage", "check", "--project", "shop").stdout.splitlines()[-1]
    assert row.startswith("in flight")
    assert f"{summary['open']} open: " in row
    assert "the step is sent again" in run(*shlex.split(command.replace("<your name>", "ann"))).stdout
    good(api.post(f"/holders/{host.holder}/exit", json={"reason": "deployed anew"}))
    found = {one["id"]: one for one in lines(run("storage", "holders", "--project", "shop", "--all", "--json"))}
    assert found[host.holder]["exit_reason"] == "deployed anew"
    here = lines(run("storage", "holders", "--project", "shop", "--all", "--json", "--here"))
    assert host.holder not in {one["id"] for one in here}


@pytest.mark.clause("guards.class")
def test_a_publication_after_its_window_takes_a_receipt(api: httpx.Client) -> None:
    host = Host(api)
    admitted = host.sends(publication=True)
    host.lapses()
    wanted = ("storage", "guard", "--project", "shop", "--class", "receipt-required", "--scope", host.scope)
    assert [one["token"] for one in lines(run(*wanted, "--json"))] == [admitted["token"]]
    assert "for what was published under" in run(*wanted).stdout
    assert run(*wanted[:-1], fresh("elsewhere")).stdout == "no open guard is like that\n"


@pytest.mark.clause("guards.cli")
def test_what_a_command_cannot_do_is_said(api: httpx.Client) -> None:
    admitted = Host(api).sends()
    evidence = ("--evidence", f"receipt:{admitted['idempotency_key']}:ch_1", "--operator", "ann")
    for words in (("guard",), ("audit",), ("holders",), ("reconcile-guard", admitted["token"], *evidence)):
        assert run("storage", *words, "--project", "reader", status=1).stderr.startswith("moorage: Forbidden: ")
    never = ("storage", "reconcile-guard", "grd_never", *evidence, "--project")
    assert "its holder released it when the answer came" in run(*never, "shop", status=5).stderr
    lost = CliRunner().invoke(assemble(["storage"]), [*never, "gone"])
    assert isinstance(lost.exception, CommandFailed)
    assert "whether the guard was released is not known" in str(lost.exception)
