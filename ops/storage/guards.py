"""`moorage storage guard`, `reconcile-guard`, `audit` and `holders`: what may be in flight, and releasing it by hand."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from moorage.client import ClientFailure, Moorage, Problem, Unanswered
from moorage.client.guards import Audit, EvidenceClass, Guard, Holder, Reconciled, Summary
from ops import remote
from ops.failure import CommandFailed
from ops.projects import ProjectName, where
from ops.storage import guard_view
from ops.storage.guard_view import View

HELD, MISMATCH, GONE = 3, 4, 5
"""Exit statuses of `reconcile-guard`: wait and ask again; look for other evidence; there is nothing to release any more."""

OLD_SECONDS = 60
"""So long an effect may be in flight without anybody having to look."""

_STATUSES = {
    "ExecutionGuardHeld": HELD,
    "ExecutionGuardEvidenceMismatch": MISMATCH,
    "GuardUnknown": GONE,
    "GuardReleased": GONE,
}

Token = Annotated[str, typer.Argument(metavar="TOKEN", help="The guard's token, grd_…")]


@dataclass(frozen=True)
class _Found:
    summary: Summary
    guards: list[Guard]
    more: bool


def guard(
    token: Annotated[str | None, typer.Argument(metavar="[TOKEN]", help="Only this guard.")] = None,
    scope: Annotated[str | None, typer.Option(help="Only the guard that protects this scope.")] = None,
    execution: Annotated[str | None, typer.Option(help="Only guards of this execution.")] = None,
    destination: Annotated[str | None, typer.Option(help="Only guards of effects that go there.")] = None,
    class_: Annotated[EvidenceClass | None, typer.Option("--class", help="Only guards of this evidence class.")] = None,
    limit: remote.Limit = 50,
    everything: remote.All = False,
    project: ProjectName = None,
    url: remote.Url = remote.DEFAULT_URL,
    credential: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show what may be in flight, the oldest first: what each guard protects, what to look for, and what to run then.

    Example: moorage storage guard --project shop
    """
    address, secret = where(project, url, credential)

    async def ask(moorage: Moorage) -> _Found:
        if token is not None:
            found = [await _one(moorage, token)]
            return _Found(await moorage.guards.summary(), found, False)
        wanted = moorage.guards.iterate(scope=scope, execution=execution, destination=destination, evidence_class=class_)
        guards, more = await remote.first(wanted, limit, everything)
        return _Found(await moorage.guards.summary(), guards, more)

    found = remote.call(address, secret, ask)
    view = View.of(project, url, found.summary)
    if as_json:
        for one in found.guards:
            told = {"check": view.advice(one), "commands": view.commands(one)}
            remote.print_json({**one.wire(), "in_flight": view.in_flight(one), **told})
    elif found.guards:
        print(f"{guard_view.counted(found.summary)}\n")
        guard_view.show(found.guards, view)
    else:
        print("no open guard is like that" if found.summary.open else guard_view.counted(found.summary))
    remote.say_more(found.more)


def reconcile_guard(
    token: Token,
    evidence: Annotated[
        str,
        typer.Option(
            help="idempotency:<key>, and the key is sent again; receipt:<key>:<id>, and the step is recorded with that id."
        ),
    ],
    operator: Annotated[str, typer.Option(help="Who vouches for it; the audit keeps the name.")],
    project: ProjectName = None,
    url: remote.Url = remote.DEFAULT_URL,
    credential: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Release a guard on evidence from where it was sent; the audit keeps it for good.

    Exit status 0 when it is released, also by the same request before; 3 while its owner may be at work on it; 4 when the
    evidence does not release it; 5 when no such guard is open any more; 1 for everything else, and nothing is released then.

    Example: moorage storage reconcile-guard --project shop grd_01kb1y --evidence receipt:moorage-3f2a:ch_1 --operator ann
    """
    if guard_view.RECEIPT_ID in evidence or operator == guard_view.OPERATOR:
        raise typer.BadParameter(
            f"put the receipt's id in the place of {guard_view.RECEIPT_ID}, and a name in that of {guard_view.OPERATOR}"
        )
    address, secret = where(project, url, credential)
    shown = f"moorage storage guard {guard_view.flags_of(project, url)}{token}"
    ended = remote.call(address, secret, lambda moorage: _reconcile(moorage, token, evidence, operator))
    if isinstance(ended, Unanswered):
        raise CommandFailed(
            f"no answer from {address}: {ended}; whether the guard was released is not known: look with `{shown}`, "
            "or ask for the same again, which is safe"
        )
    if isinstance(ended, _Refused):
        _explain(ended, View.of(project, url, ended.summary) if ended.summary else None, shown)
        raise typer.Exit(_STATUSES.get(ended.problem.code, 1))
    if as_json:
        remote.print_json(ended.wire())
        return
    print(f"released {token}; the audit has it as {ended.audit}")
    if ended.receipt is None:
        print("the step is sent again, under the same key")
    else:
        print(f"the step is recorded with receipt {ended.receipt}, and is not sent again")


def audit(
    token: Annotated[str | None, typer.Argument(metavar="[TOKEN]", help="Only the release of this guard.")] = None,
    limit: remote.Limit = 50,
    everything: remote.All = False,
    project: ProjectName = None,
    url: remote.Url = remote.DEFAULT_URL,
    credential: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List what was released by hand, the oldest first: when, by whom, on which evidence. Nothing of it ever changes.

    Example: moorage storage audit --project shop
    """
    address, secret = where(project, url, credential)

    async def ask(moorage: Moorage) -> tuple[list[Audit], bool]:
        return await remote.first(moorage.guards.audit(token), limit, everything)

    found, more = remote.call(address, secret, ask)
    if as_json:
        for one in found:
            remote.print_json(one.wire())
    elif found:
        columns = ("released", "operator", "credential", "guard", "step", "scope", "evidence", "audit")
        remote.print_table(columns, [_audited(one) for one in found])
    else:
        print("nothing was released by hand")
    remote.say_more(more)


def holders(
    here: Annotated[bool, typer.Option("--here", help="Only those that have not said that they stopped.")] = False,
    limit: remote.Limit = 50,
    everything: remote.All = False,
    project: ProjectName = None,
    url: remote.Url = remote.DEFAULT_URL,
    credential: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List who executes and who did. One that never said that it stopped may still have a request on its way.

    Example: moorage storage holders --project shop --here
    """
    address, secret = where(project, url, credential)

    async def ask(moorage: Moorage) -> tuple[list[Holder], bool]:
        wanted = (one async for one in moorage.guards.holders() if not here or one.exited_at is None)
        return await remote.first(wanted, limit, everything)

    found, more = remote.call(address, secret, ask)
    if as_json:
        for one in found:
            remote.print_json(one.wire())
    else:
        columns = ("holder", "kind", "name", "subject", "registered", "exited", "why")
        remote.print_table(columns, [_holder(one) for one in found])
    remote.say_more(more)


def finding(summary: Summary, flags: str) -> tuple[str, str, str]:
    """The row of `moorage storage check` about open guards. One that stays open is not unwell, and wants to be looked at."""
    waits = (summary.oldest_seconds or 0) >= OLD_SECONDS
    told = guard_view.counted(summary)
    return (
        "in flight",
        "LOOK" if waits else "ok",
        f"{told}; see `moorage storage guard {flags}".rstrip() + "`" if waits else told,
    )


@dataclass(frozen=True)
class _Refused:
    """Why a release was refused, with what could be learned beside it."""

    problem: Problem
    guard: Guard | None
    summary: Summary | None
    released: Audit | None


async def _one(moorage: Moorage, token: str) -> Guard:
    try:
        return await moorage.guards.get(token)
    except Problem as problem:
        if problem.code != "GuardUnknown" or (released := await _released(moorage, token)) is None:
            raise
        problem.detail = f"it is not open any more: {_who(released)}"
        raise


async def _reconcile(moorage: Moorage, token: str, evidence: str, operator: str) -> Reconciled | _Refused | Unanswered:
    try:
        return await moorage.guards.reconcile(token, evidence, operator)
    except Unanswered as failure:
        return failure
    except Problem as problem:
        refused = problem
    released = await _released(moorage, token) if refused.code == "GuardReleased" else None
    if released is not None and (released.evidence, released.operator) == (evidence, operator):
        # The answer to this very request was lost, or it was asked twice.
        _, _, receipt = evidence.removeprefix("receipt:").partition(":")
        kept = {"receipt": receipt} if evidence.startswith("receipt:") else {}
        return Reconciled.model_validate({"released": True, "audit": released.id, **kept})
    guard, summary = None, None
    if refused.code in ("ExecutionGuardHeld", "ExecutionGuardEvidenceMismatch"):
        with suppress(ClientFailure):
            guard, summary = await moorage.guards.get(token), await moorage.guards.summary()
    return _Refused(refused, guard, summary, released)


async def _released(moorage: Moorage, token: str) -> Audit | None:
    with suppress(ClientFailure):
        async for one in moorage.guards.audit(token):
            return one
    return None


def _explain(refused: _Refused, view: View | None, shown: str) -> None:
    """Print what was refused, and what it means for whoever is to act."""
    remote.tell(refused.problem)
    for line in _advice(refused, view, shown):
        Console(stderr=True, highlight=False).print(Text(f"  {line}"), soft_wrap=True)


def _advice(refused: _Refused, view: View | None, shown: str) -> Sequence[str]:
    guard = refused.guard
    match refused.problem.code:
        case "ExecutionGuardHeld":
            lease = None if guard is None else guard.lease_expires_at
            until = "" if lease is None else f" at {guard_view.instant(lease)}, if its owner does not renew"
            return (
                "the effect may be on its way at this moment: nobody's word releases it now",
                f"ask again when the lease has ended{until}, or its holder has exited",
            )
        case "ExecutionGuardEvidenceMismatch" if guard is not None and view is not None:
            fits = [f"this fits, once filled in: {command}" for command in view.commands(guard)]
            return (f"the guard's own key is {guard.idempotency_key}", view.advice(guard), *fits)
        case "GuardReleased" if refused.released is not None:
            return (f"{_who(refused.released)}", "nothing was changed by this request")
        case "GuardUnknown":
            return (
                "its holder released it when the answer came, or a replay did; or it is a guard of another deployment",
                "nothing is in doubt because of it, and nothing is to be released",
            )
        case "Forbidden":
            return ("the credential needs a grant with the action operate: see `moorage credentials create --help`",)
        case _:
            return (f"the guard stays as it was; `{shown}` shows it",)


def _who(audit: Audit) -> str:
    when, by = guard_view.instant(audit.released_at), f"{audit.operator} (credential {audit.actor})"
    return f"released at {when} by {by} on the evidence {audit.evidence}, recorded as {audit.id}"


def _audited(audit: Audit) -> tuple[Any, ...]:
    guard = audit.guard
    step = guard.get("entry_key", {}).get("label")
    when = guard_view.instant(audit.released_at)
    return when, audit.operator, audit.actor, audit.token, step, guard.get("scope"), audit.evidence, audit.id


def _holder(holder: Holder) -> tuple[Any, ...]:
    exited = None if holder.exited_at is None else guard_view.instant(holder.exited_at)
    since = guard_view.instant(holder.registered_at)
    return holder.id, holder.kind, holder.name, holder.subject, since, exited, holder.exit_reason
