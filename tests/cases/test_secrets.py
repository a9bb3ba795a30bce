"""Case C20 from the field: tokens and secrets appear in the one answer that hands them out, and nowhere else."""

import base64
import hashlib
import hmac
import sqlite3
import time
from contextlib import closing
from typing import Any

import httpx
import pytest

from ops.local.edge import LocalEdge
from tests.edge.client import bearer, client, declare, fresh, good, problem
from tests.edge.edges import EdgeFactory
from tests.edge.http import await_log

pytestmark = [pytest.mark.edge, pytest.mark.clause("catalog.credentials")]

ROOT = "root-token-that-nobody-may-see-0123456789"
GITHUB = "github-secret-that-nobody-may-see"
STRIPE = "stripe-secret-that-nobody-may-see"
STANDARD = base64.b64encode(b"standard-secret-that-nobody-may-see").decode()
HELD = base64.b64encode(b"bound-secret-that-nobody-may-see").decode()
SENT = "sent-bearer-that-nobody-knows-0123456789"


@pytest.fixture(scope="module")
def own(edge_factory: EdgeFactory) -> LocalEdge:
    return edge_factory(root_token=ROOT, vars={"MOORAGE_TEST_CLOCK": "1", "HOOK_SECRET": HELD})


class Watch:
    """A client that keeps every answer but those that hand a secret out."""

    def __init__(self, edge: LocalEdge) -> None:
        self._api = client(edge)
        self.said: list[str] = []
        self.statuses: set[int] = set()

    def __call__(self, method: str, path: str, token: str | None = ROOT, **request: Any) -> httpx.Response:
        headers = {"authorization": "", **bearer(token), **request.pop("headers", {})}
        answer = self._api.request(method, path, headers={key: value for key, value in headers.items() if value}, **request)
        self.statuses.add(answer.status_code)
        self.said.append(f"{answer.headers} {answer.text}")
        return answer

    def handed_out(self, answer: httpx.Response) -> Any:
        """The JSON of an answer that may hold a secret."""
        assert answer.is_success, answer.text
        self.said.pop()
        return answer.json()


def github(body: bytes) -> dict[str, str]:
    return {"x-hub-signature-256": f"sha256={hmac.new(GITHUB.encode(), body, hashlib.sha256).hexdigest()}"}


def every_listing(watch: Watch) -> None:
    for path in (
        "/kinds",
        "/credentials",
        "/senders",
        "/destinations",
        "/scopes",
        "/awakeables",
        "/dead-letters",
        "/history",
        "/subscriptions",
        "/deliveries",
    ):
        cursor = None
        while True:
            page = good(watch("GET", path, params={"limit": 100} | ({"cursor": cursor} if cursor else {})))
            for delivery in page["items"] if path == "/deliveries" else ():
                good(watch("GET", f"/deliveries/{delivery['delivery_id']}"))
            cursor = page["next_cursor"]
            if cursor is None:
                break
    for path in ("/health", "/capabilities", "/limits", "/errors", "/openapi.json", "/docs"):
        assert watch("GET", path).is_success


def run_through(watch: Watch) -> dict[str, str]:
    """Use every secret rightly and wrongly on every route that takes one; answer all secrets by name."""
    kind = fresh("c20")
    # Everything that happens is told to somebody who cannot be reached, signed with a secret.
    there = {"url": "https://nowhere.invalid/hook", "secret": "env:HOOK_SECRET"}
    good(watch("PUT", "/destinations/there", json=there))
    good(watch("PUT", "/subscriptions/all", json={"types": ["*"], "destination": "there", "from": 0}))
    problem(watch("PUT", "/subscriptions/all", json={"types": ["*"], "destination": SENT}), 404)
    problem(watch("PUT", "/subscriptions/all", json={"types": [SENT], "destination": "there"}), 422)
    good(watch("PUT", f"/kinds/{kind}", json={"paths": {"n": "number"}}))
    declaration = {"subject": "worker", "grants": [{"actions": ["publish", "claim", "read"], "kinds": [kind]}]}
    worker = watch.handed_out(watch("POST", "/credentials", json=declaration, headers={"idempotency-key": fresh("k")}))
    dead = watch.handed_out(watch("POST", "/credentials", json=declaration))
    good(watch("DELETE", f"/credentials/{dead['id']}"))
    for name, scheme, secret in (("g", "github", GITHUB), ("s", "stripe", STRIPE), ("t", "standard", STANDARD)):
        good(
            watch("PUT", f"/senders/{name}", json={"scheme": scheme, "secrets": [secret, "env:HOOK_SECRET"], "subject": "u"})
        )
        good(watch("GET", f"/senders/{name}"))
    tokens = {
        name: watch.handed_out(watch("POST", "/awakeables", worker["token"], json={"ttl_seconds": 600, "label": name}))[
            "token"
        ]
        for name in ("resolved", "rejected", "late", "signed", "bound-root")
    }
    secrets = {
        "root": ROOT,
        "github": GITHUB,
        "stripe": STRIPE,
        "standard": STANDARD,
        "standard key": "standard-secret-that-nobody-may-see",
        "binding": HELD,
        "sent": SENT,
        "worker": worker["token"],
        "revoked": dead["token"],
        **tokens,
    }
    for token in tokens.values():
        good(watch("GET", f"/awake/{token}", worker["token"]))
        problem(watch("POST", f"/awake/{token}", SENT, json=1), 401)
        problem(watch("POST", f"/awake/{token}", dead["token"], json=1), 401)
        problem(watch("POST", f"/awake/{token}", None, content=b"1", headers=github(b"2"), params={"sender": "g"}), 401)
        for name in ("s", "t"):
            shown = {"stripe-signature": f"t={time.time():.0f},v1={STRIPE}", "webhook-id": "1", "webhook-timestamp": "1"}
            problem(watch("POST", f"/awake/{token}", None, headers=shown, params={"sender": name}), 401)
        bad = {"content-type": "application/json"}
        problem(watch("POST", f"/awake/{token}", content=b"{", headers=bad), 400)
        problem(watch("POST", f"/awake/{token}/reject", json={"tag": "no-such-tag", "message": "x"}), 422)
        problem(watch("DELETE", f"/awake/{token}"), 405)
        problem(watch("GET", f"/awake/{token}x"), 404)
        problem(watch("GET", f"/awake/{token}/x"), 404)
        problem(watch("GET", f"/awake/{token}%ZZ"), 400)
    good(watch("POST", f"/awake/{tokens['resolved']}", json=1))
    problem(watch("POST", f"/awake/{tokens['resolved']}", json=2), 409)
    good(watch("POST", f"/awake/{tokens['rejected']}/reject", json={"tag": "Permanent", "message": "no"}))
    problem(watch("POST", f"/awake/{tokens['rejected']}", json=1), 410)
    signed = {**github(b"{}"), "content-type": "application/json"}
    good(watch("POST", f"/awake/{tokens['signed']}", None, content=b"{}", headers=signed, params={"sender": "g"}))
    # Secrets where they do not belong, by mistake.
    problem(watch("PUT", "/senders/g", json={"scheme": "github", "secrets": GITHUB, "subject": "u"}), 422)
    problem(
        watch("PUT", "/senders/g", json={"scheme": "github", "secrets": [GITHUB], "subject": "u", worker["token"]: 1}), 422
    )
    problem(watch("PUT", "/senders/t", json={"scheme": "standard", "secrets": [GITHUB + "!"], "subject": "u"}), 422)
    problem(watch("PUT", "/destinations/d", json={"url": f"https://user:{SENT}@example.test/"}), 422)
    problem(watch("GET", "/kinds", params={"cursor": worker["token"]}), 400)
    problem(watch("GET", "/kinds", params={worker["token"]: "1"}), 422)
    problem(watch("GET", f"/{worker['token']}"), 404)
    problem(watch("GET", "/kinds", f"{ROOT}x"), 401)
    # Work that fails and dies.
    record = good(watch("POST", "/records", worker["token"], json={"kind": kind, "body": {"n": 1}}))["id"]
    good(watch("POST", "/claims", worker["token"], json={"kind": kind, "worker": "w"}))
    problem(watch("POST", f"/claims/{record}/settle", worker["token"], json={"epoch": 9}), 409)
    ending = {"epoch": 1, "error": {"tag": "Permanent", "message": "no"}, "dead_letter": True}
    good(watch("POST", f"/claims/{record}/fail", worker["token"], json=ending))
    problem(watch("GET", "/credentials", worker["token"]), 403)
    good(watch("POST", "/testing/clock", json={"advance_seconds": 700}))
    problem(watch("POST", f"/awake/{tokens['late']}", json=1), 410)
    every_listing(watch)
    told = good(watch("GET", "/deliveries/summary"))
    assert [one["pending"] > 0 for one in told["items"]] == [True], told
    return secrets


@pytest.fixture(scope="module")
def used(own: LocalEdge) -> tuple[Watch, dict[str, str]]:
    watch = Watch(own)
    secrets = run_through(watch)
    break_the_database(own, watch, secrets)
    return watch, secrets


def break_the_database(edge: LocalEdge, watch: Watch, secrets: dict[str, str]) -> None:
    """Take a table away under the running edge, so that every route that needs it ends in a failure of ours."""
    with closing(sqlite3.connect(edge.d1_path(), timeout=30)) as database:
        database.execute("ALTER TABLE awakeables RENAME TO elsewhere")
        database.execute("ALTER TABLE sender_secrets RENAME TO elsewhere_too")
        database.commit()
    for token in (secrets["late"], secrets["resolved"]):
        for answer in (
            watch("POST", f"/awake/{token}", secrets["worker"], json={"of": "the storage"}),
            watch("GET", f"/awake/{token}", secrets["worker"]),
            watch("POST", f"/awake/{token}", None, content=b"1", headers=github(b"1"), params={"sender": "g"}),
            watch("PUT", "/senders/g", json={"scheme": "github", "secrets": [GITHUB], "subject": "u"}),
        ):
            assert answer.status_code >= 500, answer.text
            assert answer.headers["content-type"] == "application/problem+json"


def test_c20_no_answer_holds_a_secret_but_the_one_that_hands_it_out(used: tuple[Watch, dict[str, str]]) -> None:
    watch, secrets = used
    assert {200, 201, 204, 400, 401, 403, 404, 405, 409, 410, 422} <= watch.statuses
    said = "\n".join(watch.said)
    assert [name for name, secret in secrets.items() if secret in said] == []


def test_c20_the_terminal_shows_failures_but_no_secret(own: LocalEdge, used: tuple[Watch, dict[str, str]]) -> None:
    watch, secrets = used
    assert max(watch.statuses) >= 500
    log = await_log(own, "POST /awake/{token}")
    # The failures are told, with their requests' ids, so the log is there to be searched.
    assert "req_" in log
    assert "POST /awake/{token}" in log
    assert [name for name, secret in secrets.items() if secret in log] == []
    assert "the storage" not in log


def test_c20_the_database_holds_only_the_signing_secrets_and_those_in_one_table(
    own: LocalEdge, used: tuple[Watch, dict[str, str]]
) -> None:
    _, secrets = used
    with closing(sqlite3.connect(own.d1_path(), timeout=30)) as database:
        dump = "\n".join(line for line in database.iterdump() if '"elsewhere_too"' not in line)
    assert "record.dead_lettered" in dump
    assert [name for name, secret in secrets.items() if secret in dump] == []


def test_c20_what_a_worker_puts_into_a_result_itself_stays_its_own(edge: LocalEdge) -> None:
    with client(edge) as api:
        kind = declare(api, fresh("c20"))
        minted = good(api.post("/awakeables", json={"ttl_seconds": 600}))
        record = good(api.post("/records", json={"kind": kind, "body": {}}))["id"]
        good(api.post("/claims", json={"kind": kind, "worker": "w"}))
        results = [{"kind": kind, "body": {"resume": minted["url"]}}]
        settled = good(api.post(f"/claims/{record}/settle", json={"epoch": 1, "results": results}))
        assert good(api.get(f"/records/{settled['results'][0]['id']}"))["body"] == {"resume": minted["url"]}
        history = api.get(f"/records/{settled['results'][0]['id']}/history").text
    assert minted["token"] not in edge.logs()
    assert minted["token"] not in history
