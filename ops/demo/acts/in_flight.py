"""workerd is killed while a payment is on its way, and nobody in the house knows whether it was made."""

import os
import subprocess
import sys
from typing import Any

from ops.demo.acts.crash import healthy
from ops.demo.processes import Process
from ops.demo.stage import Act, Stage
from ops.demo.wire import Refused
from ops.setup import paths

SCOPE = "order-1042"
ORDER = {"id": "1042", "cents": 4900}
PROJECT = "demo"
LAPSED_SECONDS = 60
"""Further than any lease of an execution lasts."""

_ENDED = frozenset({"success", "failed", "partial_failure", "canceled"})


def play(stage: Stage) -> None:
    """Charge, kill, look, refuse, reconcile."""
    with Process("payments", "payments", {}, stage.folder) as payments:
        url = stage.until("the payment service listens", lambda: _url(payments), 0.02)
        stage.as_("root").put("/destinations/payments", {"url": url, "methods": ["POST"]})
        started = {"body": "checkout", "input": ORDER, "scope": SCOPE}
        run = stage.as_("till").post("/runs", started)["run_id"]
        charge = stage.until("the payment is on its way", lambda: next(iter(_charges(payments)), None), 0.02)
        before = stage.edge.workerd_pid()
        stage.edge.kill_workerd()
        stage.until("requests are answered again", lambda: healthy(stage))
        stage.as_("root").post("/testing/clock", {"advance_seconds": LAPSED_SECONDS})
        stage.say(
            f"Order 1042 was being charged when workerd (process {before}) got SIGKILL. The payment service had made "
            f"`{charge['charge']}`; its answer reached nobody. The clock is {LAPSED_SECONDS} s further: the run's lease "
            "is over, and its owner is gone without a word."
        )
        token = _refusal(stage, payments, charge["key"])
        _release(stage, token, charge)
        _end(stage, payments, run, charge)


def _refusal(stage: Stage, payments: Process, key: str) -> str:
    again = stage.as_("till").call("POST", "/runs", {"body": "checkout", "input": ORDER, "scope": SCOPE})
    stage.check("whoever asks for the order again is refused", "409 ExecutionGuardBlocked", again.outcome)
    stage.check("nothing was sent a second time", 1, len(_charges(payments)))
    guards = stage.as_("operator").get("/guards")["items"]
    stage.check("one guard stands for what may be in flight, and it bears the key that was sent", [key], _keys(guards))
    stage.check("the refusal named it, and what it takes", [guards[0]["token"], "unknown"], _named(again.value))
    return str(guards[0]["token"])


def _keys(guards: list[Any]) -> list[Any]:
    return [one["idempotency_key"] for one in guards]


def _named(refusal: Any) -> list[Any]:
    return [refusal["token"], refusal["evidence_class"]]


def _release(stage: Stage, token: str, charge: Any) -> None:
    key, receipt = charge["key"], f"receipt:{charge['key']}:{charge['charge']}"
    stage.say("What the operator sees:")
    seen = _command(stage, "guard", "--project", PROJECT)
    stage.narrator.terminal(f"moorage storage guard --project {PROJECT}", seen.stdout)
    fits = f"moorage storage reconcile-guard --project {PROJECT} {token} --evidence 'receipt:{key}:<id>'"
    stage.check("it ends with the command to run, but for what only the payment service knows", True, fits in seen.stdout)
    given = ("reconcile-guard", "--project", PROJECT, token, "--operator", "ann", "--evidence")
    other = _command(stage, *given, f"receipt:{key[:-1]}:{charge['charge']}")
    alone = _command(stage, *given, f"idempotency:{key}")
    stage.check("the receipt of another request is refused", _mismatch(), _refused(other))
    stage.check("so is the key alone: this service may charge twice under one key", _mismatch(), _refused(alone))
    done = _command(stage, *given, receipt)
    stage.narrator.terminal(f"moorage storage {' '.join(given)} {receipt}", done.stdout)
    stage.check("the receipt that the payment service has is accepted", 0, done.returncode)


def _mismatch() -> list[Any]:
    return [4, "ExecutionGuardEvidenceMismatch"]


def _refused(done: "subprocess.CompletedProcess[str]") -> list[Any]:
    return [done.returncode, done.stderr.partition(": ")[2].partition(":")[0]]


def _end(stage: Stage, payments: Process, run: str, charge: Any) -> None:
    shown = stage.until("the run has ended", lambda: _ended(stage, run))
    result = {"order": ORDER["id"], "charge": charge["charge"], "known_from": "an operator"}
    stage.check(
        "the run went on by itself, and ended with that receipt", ["success", result], [shown["status"], shown["result"]]
    )
    stage.check("and the customer was charged once", [charge], _charges(payments))
    audit = stage.as_("operator").get("/audit")["items"]
    who = [[one["operator"], one["actor"], one["guard"]["idempotency_key"]] for one in audit]
    stage.check("who vouched for it is kept for good", [["ann", "operator", charge["key"]]], who)


def _url(payments: Process) -> str | None:
    return next((one["url"] for one in payments.said() if "url" in one), None)


def _charges(payments: Process) -> list[Any]:
    if not payments.running():
        raise Refused(f"the payment service ended: {payments.complaint()}")
    return [one for one in payments.said() if "charge" in one]


def _ended(stage: Stage, run: str) -> Any:
    shown = stage.as_("till").get(f"/runs/{run}")
    return shown if shown["status"] in _ENDED else None


def _command(stage: Stage, *words: str) -> "subprocess.CompletedProcess[str]":
    """What the command does as a program of its own, with the operator's credential."""
    project = f'[projects.{PROJECT}]\nurl = "{stage.edge.url}"\ncredential_env = "DEMO_TOKEN"\n'
    (stage.folder / "moorage.toml").write_text(project, encoding="utf-8")
    known = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    return subprocess.run(
        [sys.executable, "-m", "ops.cli", "storage", *words],
        cwd=stage.folder,
        env=known | {"PYTHONPATH": str(paths.ROOT), "DEMO_TOKEN": stage.tokens["operator"], "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )


ACT = Act(
    "in-flight",
    "A payment may be in flight",
    "A run charges a customer, and workerd is killed before the answer comes. Sending it again might charge twice.",
    play,
)
