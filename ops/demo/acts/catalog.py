"""Kinds are declared and credentials made."""

from typing import Any

from ops.demo.stage import Act, Stage

KINDS: dict[str, dict[str, Any]] = {
    "github.event": {
        "paths": {
            "event": "string",
            "action": "string",
            "repository.full_name": "string",
            "repository.private": "boolean",
            "repository.open_issues_count": "number",
            "repository.topics": "string[]",
            "sender.login": "string",
            "sender.id": "number",
        },
        "claim": {"lease_seconds": 20, "max_attempts": 5},
    },
    "github.summary": {"paths": {"event": "string", "where": "string"}},
    "repository.import": {
        "paths": {"status": "string", "repository.full_name": "string"},
        "claim": {"lease_seconds": 60, "max_attempts": 3, "retry": {"delay_seconds": 0.3, "factor": 2}},
    },
    "release": {"paths": {"tag": "string", "repository": "string"}, "claim": {"lease_seconds": 20}},
    "release.shipped": {"paths": {"tag": "string"}},
    "github.push": {"paths": {"ref": "string"}, "claim": {"lease_seconds": 20}},
}

PEOPLE: dict[str, list[dict[str, Any]]] = {
    "edge-client": [{"actions": ["publish"], "kinds": ["github.event", "github.push", "repository.import"]}],
    "triage": [
        {"actions": ["claim"], "kinds": ["github.event"]},
        {"actions": ["publish"], "kinds": ["github.summary"]},
    ],
    "vault": [
        {"actions": ["claim"], "kinds": ["github.event"], "match": {"repository.private": True}},
        {"actions": ["publish"], "kinds": ["github.summary"]},
    ],
    "importer": [{"actions": ["claim"], "kinds": ["repository.import", "github.push"]}],
    "release-manager": [
        {"actions": ["publish", "claim"], "kinds": ["release"]},
        {"actions": ["publish"], "kinds": ["release.shipped"]},
        {"actions": ["read"], "kinds": ["github.summary", "github.workflow_run"]},
        {"actions": ["execute"], "kinds": ["announce"]},
    ],
    "till": [{"actions": ["execute"], "kinds": ["checkout"]}],
    "operator": [{"actions": ["read", "operate"]}],
}

SENDER = "github-main"
SECRET = "the secret shared with GitHub"  # noqa: S105 - of a deployment that lives for seconds


def play(stage: Stage) -> None:
    """Declare everything as root, then show what the grants forbid."""
    root = stage.as_("root")
    for kind, declaration in KINDS.items():
        root.put(f"/kinds/{kind}", declaration)
    for who, grants in PEOPLE.items():
        stage.tokens[who] = root.post("/credentials", {"subject": who, "grants": grants})["token"]
    root.put(f"/senders/{SENDER}", {"scheme": "github", "secrets": [SECRET], "subject": "github.com"})
    stage.narrator.table(("who", "may", "on"), [row for who, grants in PEOPLE.items() for row in _rows(who, grants)])
    _show_limits(stage)


def _rows(who: str, grants: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    rows = []
    for number, grant in enumerate(grants):
        on = ", ".join(grant.get("kinds", ["every kind"]))
        if "match" in grant:
            on += ", only where " + " and ".join(f"{path} is {str(value).lower()}" for path, value in grant["match"].items())
        rows.append(("" if number else who, ", ".join(grant["actions"]), on))
    return rows


def _show_limits(stage: Stage) -> None:
    listed = {one["kind"] for one in stage.as_("operator").get("/kinds")["items"]}
    stage.check(f"{len(KINDS)} kinds are declared", sorted(KINDS), sorted(listed))
    claim = {"kind": "github.event", "worker": "edge-client"}
    found = stage.as_("edge-client").call("POST", "/claims", claim).outcome
    stage.check("the edge client may publish, and may not claim", "403 Forbidden", found)
    record = {"kind": "github.event", "body": {"event": "ping"}}
    found = stage.as_("triage").call("POST", "/records", record).outcome
    stage.check("a worker may claim, and may not publish events", "403 Forbidden", found)
    changed = {"paths": {**KINDS["github.event"]["paths"], "sender.id": "string"}}
    found = stage.as_("root").call("PUT", "/kinds/github.event", changed).outcome
    stage.check("a declared path keeps its type", "409 KindConflict", found)
    sender = stage.as_("root").get(f"/senders/{SENDER}")
    stage.check(
        "the webhook sender's secret is counted, never shown", [1, False], [sender["secrets"], SECRET in str(sender)]
    )


ACT = Act(
    "catalog",
    "Who may do what",
    "Kinds say which fields of a record can be asked for. Each credential gets the grants it needs and no others.",
    play,
)
