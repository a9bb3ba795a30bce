"""`moorage storage guard` and its siblings, as an operator runs them, against answers that a deployment gave."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx
from rich.console import Console
from typer.testing import CliRunner, Result

from moorage.client import Moorage, Patience
from ops import remote
from ops.cli import assemble
from ops.failure import CommandFailed
from ops.storage import guard_view

URL = "https://shop.example.test"
TOKEN = "grd_01m8nq6zt1hz3cchgv0sbnqjbg"
KEY = "moorage-7d8c5a3c0f1e2b4d6978a1b2c3d4e5f60718293a"
SHA = "4f" * 32
COMMAND = f"moorage storage reconcile-guard --project shop {TOKEN}"
GUARD: dict[str, Any] = {
    "token": TOKEN,
    "class": "unknown",
    "publication": False,
    "scopes": ["order", "order/17"],
    "lease_keys": ["entity:customer:9"],
    "execution_id": "exe_01m8nq6zt0k5v2w3x4y5z6a7b8",
    "run_id": "run_01m8nq6zszq7r8s9t0v1w2x3y4",
    "scope": "order/17",
    "attempt": 2,
    "epoch": 3,
    "holder": "hld_01m8nq6znf4g5h6j7k8m9n0p1q",
    "holder_name": "r:07",
    "holder_exited_at": None,
    "lease_expires_at": "2026-11-29T10:00:30.000Z",
    "entry_key": {"label": "charge", "input_sha256": SHA},
    "idempotency_key": KEY,
    "destination": "bank",
    "admitted_at": "2026-11-29T10:00:00.000Z",
    "since": "2026-11-29T10:00:00.000Z",
    "window_seconds": None,
}
REPLAYABLE = {
    **GUARD,
    "class": "replay-safe",
    "window_seconds": 86400,
    "window_ends_at": "2026-11-30T09:59:00.000Z",
    "since": "2026-11-29T09:59:00.000Z",
}
PUBLICATION = {
    **GUARD,
    "token": "grd_01m8nq6zt2hz3cchgv0sbnqjbg",
    "class": "receipt-required",
    "publication": True,
    "destination": None,
    "lease_keys": [],
    "lease_expires_at": None,
    "holder_exited_at": "2026-11-29T10:30:00.000Z",
}
AUDIT: dict[str, Any] = {
    "id": "aud_01m8nr9zt1hz3cchgv0sbnqjbg",
    "token": TOKEN,
    "guard": GUARD,
    "evidence": f"receipt:{KEY}:ch_1",
    "operator": "ann",
    "actor": "on-call",
    "released_at": "2026-11-29T12:00:00.000Z",
}


def summary(*guards: dict[str, Any], seconds: int = 7200) -> dict[str, Any]:
    classes = ("replay-safe", "receipt-required", "unknown")
    return {
        "open": len(guards),
        "by_class": {name: sum(one["class"] == name for one in guards) for name in classes},
        "oldest_admitted_at": guards[0]["admitted_at"] if guards else None,
        "oldest_seconds": seconds if guards else None,
    }


def page(*items: dict[str, Any]) -> dict[str, Any]:
    return {"items": list(items), "next_cursor": None}


def problem(status: int, code: str, detail: str, **more: Any) -> httpx.Response:
    told = {"code": code, "detail": detail, "status": status, "tag": "Conflict", "retryable": False, **more}
    return httpx.Response(status, json=told, headers={"x-request-id": "req_1"})


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project `shop`, and one try for each request."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SHOP_TOKEN", "secret")
    for name in ("MOORAGE_URL", "MOORAGE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "moorage.toml").write_text(f'[projects.shop]\nurl = "{URL}"\ncredential_env = "SHOP_TOKEN"\n')
    one_try = Patience(tries=1)
    monkeypatch.setattr(remote, "connect", lambda url, token, _: Moorage(url, token, patience=one_try))


@pytest.fixture
def house(respx_mock: respx.MockRouter) -> respx.MockRouter:
    return respx_mock


def run(*arguments: str, status: int = 0) -> Result:
    words = ["storage", *arguments]
    found = CliRunner().invoke(assemble(words), words)
    assert found.exit_code == status, f"{arguments}: {found.exit_code} {found.output} {found.exception!r}"
    return found


def listed(house: respx.MockRouter, *guards: dict[str, Any], seconds: int = 7200) -> respx.Route:
    house.get(f"{URL}/guards/summary").respond(json=summary(*guards, seconds=seconds))
    return house.get(url__regex=rf"^{URL}/guards(\?.*)?$").respond(json=page(*guards))


def reconcile(*more: str, status: int = 0, evidence: str = f"receipt:{KEY}:ch_1", operator: str = "ann") -> Result:
    given = ("reconcile-guard", "--project", "shop", TOKEN, "--evidence", evidence, "--operator", operator)
    return run(*given, *more, status=status)


# --- what is shown ------------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.inspect", "guards.cli")
def test_a_guard_is_shown_with_all_it_records_and_with_what_to_do(house: respx.MockRouter) -> None:
    asked = listed(house, GUARD)
    lines = run("guard", "--project", "shop").stdout.splitlines()
    assert asked.calls.last.request.headers["authorization"] == "Bearer secret"
    assert lines[0] == "1 open: 1 unknown; the oldest for 2 h"
    assert lines[2].split() == ["age", "class", "step", "destination", "attempt", "token"]
    assert lines[3].split() == ["2", "h", "unknown", "charge", "bank", "2", TOKEN]
    facts = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines[4:] if line}
    assert facts.pop("check").startswith(f"look at bank for what was done under Idempotency-Key {KEY}. Found: its id ")
    assert facts.pop("run") == f"{COMMAND} --evidence 'receipt:{KEY}:<id>' --operator '<your name>'"
    assert facts == {
        "execution": f"{GUARD['execution_id']}, epoch 3, attempt 2 of {GUARD['run_id']}",
        "scopes": "order, order/17",
        "leases": "entity:customer:9",
        "holder": f"{GUARD['holder']} (r:07), has not exited; the owner's lease ended at 2026-11-29 10:00:30 UTC",
        "entry": f"charge {SHA}",
        "key": KEY,
        "admitted": "2026-11-29 10:00:00 UTC (2 h ago)",
        "window": "none",
    }


def test_what_may_be_sent_again_is_offered_so_until_the_window_ends(house: respx.MockRouter) -> None:
    listed(house, REPLAYABLE)
    shown = run("guard", "--project", "shop").stdout
    assert "bank drops a second request with this key until 2026-11-30 09:59:00 UTC (in 21 h 59 m)." in shown
    window = (
        "  window     1 d, until 2026-11-30 09:59:00 UTC (in 21 h 59 m), counted from an earlier request at 2026-11-29 09:59"
    )
    assert window in shown
    first, second = re.findall(r"^  (?:run|or) +(.*)$", shown, re.MULTILINE)
    assert first == f"{COMMAND} --evidence 'idempotency:{KEY}' --operator '<your name>'"
    assert second == f"{COMMAND} --evidence 'receipt:{KEY}:<id>' --operator '<your name>'"


def test_a_holder_that_has_exited_leaves_nothing_to_do_while_the_window_lasts(house: respx.MockRouter) -> None:
    listed(house, {**REPLAYABLE, "holder_exited_at": "2026-11-29T10:01:00.000Z"})
    shown = run("guard", "--project", "shop").stdout
    assert "Nothing to do: the holder has exited" in shown
    assert "exited at 2026-11-29 10:01:00 UTC" in shown


def test_a_callback_that_may_be_under_way_is_to_be_waited_for(house: respx.MockRouter) -> None:
    listed(house, GUARD, seconds=5)
    shown = run("guard", "--project", "shop").stdout
    assert "check      wait: its owner may be at work on it until 2026-11-29 10:00:30 UTC, if it does not renew." in shown
    (told,) = (json.loads(line) for line in run("guard", "--project", "shop", "--json").stdout.splitlines())
    assert told["in_flight"] is True


def test_several_are_shown_in_their_order_under_one_head(house: respx.MockRouter) -> None:
    listed(house, GUARD, PUBLICATION)
    lines = run("guard", "--project", "shop").stdout.splitlines()
    rows = [line for line in lines if line.startswith("2 h ")]
    assert [row.split()[-1] for row in rows] == [TOKEN, PUBLICATION["token"]]
    assert {row.index(one["token"]) for row, one in zip(rows, (GUARD, PUBLICATION), strict=True)} == {
        lines[2].index("token")
    }
    assert any("look where the step sends for what was published under" in line for line in lines)
    assert "  leases     none" in lines


def test_json_is_the_guard_with_what_to_check_and_to_run(house: respx.MockRouter) -> None:
    listed(house, GUARD, REPLAYABLE)
    told = [json.loads(line) for line in run("guard", "--project", "shop", "--json").stdout.splitlines()]
    for found, given in zip(told, (GUARD, REPLAYABLE), strict=True):
        assert {name: found[name] for name in given} == given
    assert [len(one["commands"]) for one in told] == [1, 2]
    assert shlex.split(told[0]["commands"][0])[-3:] == [f"receipt:{KEY}:<id>", "--operator", "<your name>"]


def test_one_guard_is_shown_by_its_token(house: respx.MockRouter) -> None:
    house.get(f"{URL}/guards/{TOKEN}").respond(json=GUARD)
    house.get(f"{URL}/guards/summary").respond(json=summary(GUARD, PUBLICATION))
    assert f"  key        {KEY}" in run("guard", TOKEN, "--project", "shop").stdout


def test_a_guard_that_was_released_tells_by_whom(house: respx.MockRouter) -> None:
    house.get(f"{URL}/guards/{TOKEN}").mock(problem(404, "GuardUnknown", "No guard has this token"))
    house.get(f"{URL}/audit").respond(json=page(AUDIT))
    told = run("guard", TOKEN, "--project", "shop", status=1).stderr
    assert "released at 2026-11-29 12:00:00 UTC by ann (credential on-call)" in told


def test_the_filters_are_asked_of_the_deployment(house: respx.MockRouter) -> None:
    house.get(f"{URL}/guards/summary").respond(json=summary(GUARD))
    asked = house.get(url__regex=rf"^{URL}/guards\?").respond(json=page())
    wanted = ("--scope", "order", "--execution", "exe_1", "--destination", "bank", "--class", "unknown")
    assert run("guard", "--project", "shop", *wanted).stdout == "no open guard is like that\n"
    params = dict(asked.calls.last.request.url.params)
    assert params == {"scope": "order", "execution": "exe_1", "destination": "bank", "class": "unknown", "limit": "500"}


def test_nothing_in_flight_says_so(house: respx.MockRouter) -> None:
    listed(house)
    assert run("guard", "--project", "shop").stdout == "no guard is open: nothing that was sent is in doubt\n"
    assert run("guard", "--project", "shop", "--json").stdout == ""


def test_names_from_outside_do_nothing_to_a_terminal(house: respx.MockRouter) -> None:
    listed(house, {**GUARD, "holder_name": "\x1b[2J\nroot", "scopes": ["a\u202eb"], "destination": "[red]bank"})
    shown = run("guard", "--project", "shop").stdout
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[red]bank" in shown


def test_the_commands_find_the_deployment_again_without_a_project() -> None:
    assert guard_view.flags_of(None, remote.DEFAULT_URL) == ""
    assert guard_view.flags_of(None, "https://a.test") == "--url https://a.test "
    assert guard_view.flags_of("a b", "https://a.test") == "--project 'a b' "


def test_a_narrow_terminal_breaks_the_prose_and_never_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    from moorage.client.guards import Guard, Summary

    told: list[str] = []
    monkeypatch.setattr(guard_view, "_print", lambda _, line: told.append(line.plain))
    monkeypatch.setattr(guard_view, "Console", lambda **_: Console(force_terminal=True, width=70))
    view = guard_view.View.of("shop", URL, Summary.model_validate(summary(GUARD)))
    guard_view.show([Guard.model_validate(GUARD)], view)
    prose = told[told.index(next(line for line in told if "  check" in line)) :]
    command = next(line for line in prose if line.startswith("  run"))
    assert all(len(line) <= 70 for line in prose[: prose.index(command)])
    assert command.endswith("--operator '<your name>'")


# --- releasing ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("guards.cli")
@pytest.mark.parametrize(
    ("evidence", "receipt", "said"),
    [
        (f"receipt:{KEY}:ch_1", "ch_1", "the step is recorded with receipt ch_1, and is not sent again"),
        (f"idempotency:{KEY}", None, "the step is sent again, under the same key"),
    ],
)
def test_a_guard_is_released_on_evidence(house: respx.MockRouter, evidence: str, receipt: str | None, said: str) -> None:
    kept = {} if receipt is None else {"receipt": receipt}
    answer = {"released": True, "audit": AUDIT["id"], **kept}
    asked = house.post(f"{URL}/guards/{TOKEN}/reconcile").respond(json=answer)
    shown = reconcile(evidence=evidence)
    assert json.loads(asked.calls.last.request.content) == {"evidence": evidence, "operator": "ann"}
    assert shown.stdout.splitlines() == [f"released {TOKEN}; the audit has it as {AUDIT['id']}", said]
    assert json.loads(reconcile("--json", evidence=evidence).stdout) == answer


@pytest.mark.parametrize(("evidence", "operator"), [(f"receipt:{KEY}:<id>", "ann"), (f"receipt:{KEY}:ch_1", "<your name>")])
@pytest.mark.usefixtures("house")
def test_a_command_that_was_not_filled_in_sends_nothing(evidence: str, operator: str) -> None:
    assert "in the place of" in reconcile(evidence=evidence, operator=operator, status=2).stderr.replace("\n", " ")


def refused(house: respx.MockRouter, answer: httpx.Response) -> None:
    house.post(f"{URL}/guards/{TOKEN}/reconcile").mock(answer)


def test_a_live_owner_is_waited_for(house: respx.MockRouter) -> None:
    refused(house, problem(409, "ExecutionGuardHeld", "execution exe_1 is held under a live lease"))
    house.get(f"{URL}/guards/{TOKEN}").respond(json=GUARD)
    house.get(f"{URL}/guards/summary").respond(json=summary(GUARD, seconds=3))
    told = reconcile(status=3).stderr
    assert told.startswith("moorage: ExecutionGuardHeld: execution exe_1")
    assert "ask again when the lease has ended at 2026-11-29 10:00:30 UTC" in told


def test_evidence_of_something_else_is_answered_with_what_would_fit(house: respx.MockRouter) -> None:
    refused(house, problem(422, "ExecutionGuardEvidenceMismatch", "the evidence is idempotency:<key> or …"))
    house.get(f"{URL}/guards/{TOKEN}").respond(json=GUARD)
    house.get(f"{URL}/guards/summary").respond(json=summary(GUARD))
    told = reconcile(evidence="receipt:another:ch_1", status=4).stderr
    assert f"the guard's own key is {KEY}" in told
    assert f"this fits, once filled in: {COMMAND} --evidence 'receipt:{KEY}:<id>'" in told


def test_a_mismatch_is_told_also_where_nothing_more_can_be_learned(house: respx.MockRouter) -> None:
    refused(house, problem(422, "ExecutionGuardEvidenceMismatch", "not that"))
    house.get(f"{URL}/guards/{TOKEN}").mock(side_effect=httpx.ConnectError("gone"))
    assert "the guard stays as it was" in reconcile(status=4).stderr


def test_what_somebody_else_released_is_told_with_their_evidence(house: respx.MockRouter) -> None:
    refused(house, problem(409, "GuardReleased", "was reconciled already", audit=AUDIT["id"]))
    house.get(f"{URL}/audit").respond(json=page({**AUDIT, "operator": "bob", "evidence": f"idempotency:{KEY}"}))
    told = reconcile(status=5).stderr
    assert f"by bob (credential on-call) on the evidence idempotency:{KEY}" in told
    assert "nothing was changed by this request" in told


def test_a_release_whose_answer_was_lost_is_answered_when_it_is_asked_again(house: respx.MockRouter) -> None:
    refused(house, problem(409, "GuardReleased", "was reconciled already", audit=AUDIT["id"]))
    house.get(f"{URL}/audit").respond(json=page(AUDIT))
    assert json.loads(reconcile("--json").stdout) == {"released": True, "audit": AUDIT["id"], "receipt": "ch_1"}


def test_a_token_that_names_nothing_open_is_explained(house: respx.MockRouter) -> None:
    refused(house, problem(404, "GuardUnknown", "No guard has this token"))
    assert "its holder released it when the answer came" in reconcile(status=5).stderr


def test_who_may_not_operate_is_told_what_it_takes(house: respx.MockRouter) -> None:
    refused(house, problem(403, "Forbidden", "the credential does not grant operate"))
    assert "a grant with the action operate" in reconcile(status=1).stderr


def test_another_refusal_leaves_the_guard_and_says_so(house: respx.MockRouter) -> None:
    refused(house, problem(422, "RequestInvalid", "wrong", errors=[{"pointer": "/operator", "message": "is too long"}]))
    told = reconcile(status=1).stderr
    assert "at /operator: is too long" in told
    assert f"`moorage storage guard --project shop {TOKEN}` shows it" in told


def test_a_lost_answer_leaves_it_open_whether_it_was_released(house: respx.MockRouter) -> None:
    house.post(f"{URL}/guards/{TOKEN}/reconcile").mock(side_effect=httpx.ReadError("broken"))
    found = CliRunner().invoke(
        assemble(["storage"]),
        ["storage", "reconcile-guard", "--project", "shop", TOKEN, "--evidence", f"receipt:{KEY}:ch_1", "--operator", "a"],
    )
    assert isinstance(found.exception, CommandFailed)
    assert "whether the guard was released is not known" in str(found.exception)
    assert f"moorage storage guard --project shop {TOKEN}" in str(found.exception)


# --- what was released, who executes, and how it stands -------------------------------------------------------------------


@pytest.mark.clause("guards.audit")
def test_the_audit_lists_who_released_what_when_and_on_which_evidence(house: respx.MockRouter) -> None:
    asked = house.get(f"{URL}/audit").respond(json=page(AUDIT))
    head, row = run("audit", "--project", "shop").stdout.splitlines()
    assert head.split() == ["released", "operator", "credential", "guard", "step", "scope", "evidence", "audit"]
    for told in ("2026-11-29 12:00:00 UTC", "ann", "on-call", TOKEN, "charge", "order/17", AUDIT["evidence"], AUDIT["id"]):
        assert told in row
    assert json.loads(run("audit", TOKEN, "--project", "shop", "--json").stdout) == AUDIT
    assert asked.calls.last.request.url.params["token"] == TOKEN
    house.get(f"{URL}/audit").respond(json=page())
    assert run("audit", "--project", "shop").stdout == "nothing was released by hand\n"


def test_holders_are_listed_and_those_that_are_still_here(house: respx.MockRouter) -> None:
    here = {
        "id": "hld_1",
        "kind": "worker",
        "name": "r:07",
        "subject": "moorage",
        "registered_at": "2026-11-29T09:00:00.000Z",
        "exited_at": None,
        "exit_reason": None,
    }
    gone = {**here, "id": "hld_2", "exited_at": "2026-11-29T09:30:00.000Z", "exit_reason": "deployed anew"}
    house.get(f"{URL}/holders").respond(json=page(here, gone))
    rows = run("holders", "--project", "shop").stdout.splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["hld_1", "hld_2"]
    assert rows[1].endswith("2026-11-29 09:30:00 UTC  deployed anew")
    told = run("holders", "--project", "shop", "--here", "--json").stdout.splitlines()
    assert [json.loads(line) for line in told] == [here]


def checked(house: respx.MockRouter, ok: bool = True) -> None:
    told = {"ok": ok, "project": "shop", "profile": "cloudflare-d1-r2", "state": "bound", "identity": None}
    findings = [{"name": "tables", "ok": ok, "detail": "all there"}]
    house.get(f"{URL}/storage").respond(json={**told, "findings": findings, "rows": {}})


@pytest.mark.parametrize(
    ("guards", "seconds", "said"),
    [
        ((), 0, "in flight  ok    no guard is open: nothing that was sent is in doubt"),
        ((GUARD,), 4, "in flight  ok    1 open: 1 unknown; the oldest for 4.0 s"),
        ((GUARD, REPLAYABLE), 7200, "in flight  LOOK  2 open: 1 unknown, 1 replay-safe; the oldest for 2 h; see "),
    ],
)
def test_check_counts_open_guards_by_class_and_says_how_old_the_oldest_is(
    house: respx.MockRouter, guards: tuple[dict[str, Any], ...], seconds: int, said: str
) -> None:
    checked(house)
    house.get(f"{URL}/guards/summary").respond(json=summary(*guards, seconds=seconds))
    row = run("check", "--project", "shop").stdout.splitlines()[-1]
    assert " ".join(row.split()).startswith(" ".join(said.split()))
    assert ("`moorage storage guard --project shop`" in row) == (seconds > 60)
    told = json.loads(run("check", "--project", "shop", "--json").stdout)
    assert told["guards"]["open"] == len(guards)


def test_check_of_a_database_in_pieces_counts_nothing(house: respx.MockRouter) -> None:
    checked(house, ok=False)
    house.get(f"{URL}/guards/summary").mock(problem(500, "InternalError", "no such table"))
    assert run("check", "--project", "shop", status=1).stdout.splitlines()[-1].startswith("tables")
