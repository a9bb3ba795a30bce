"""`moorage credentials`: make, list and revoke credentials."""

from datetime import datetime
from typing import Annotated, Any

import typer

from moorage.client import Moorage
from moorage.client.models import Credential
from moorage.kernel.limits import RATE
from ops import remote

app = remote.group("Make, list and revoke credentials.")

CredentialId = Annotated[str, typer.Argument(metavar="CREDENTIAL", help="The credential's id.")]


@app.command()
def create(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Who it is for; history names them so.")],
    grant: Annotated[
        list[str] | None,
        typer.Option(help="actions[:kinds], each separated by commas, for instance claim,read:document; repeatable."),
    ] = None,
    grants: Annotated[str | None, typer.Option(help="Grants as a JSON list, which may narrow them by patterns.")] = None,
    expires_at: Annotated[
        datetime | None, typer.Option(help="Until when it is good.", parser=remote.instant, metavar="INSTANT")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="For web pages, where everybody sees it: it may only publish.")
    ] = False,
    origin: Annotated[
        list[str] | None, typer.Option(help="With --public: only pages of this origin may use it; repeatable.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0, max=int(RATE), help="With --public: at most so many records a second.")
    ] = None,
    burst: Annotated[int, typer.Option(min=1, max=int(RATE), help="With --rate: so many at once.")] = 1,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Make a credential. Its token is printed here and never again.

    Actions: publish, read, claim, watch, execute, resume, operate, admin. Without kinds a grant is for all of them; a
    name that ends in * is a prefix.

    Example: moorage credentials create summarizer --grant claim,read:document --grant publish:summary
    """
    wanted: list[dict[str, Any]] = [_grant(one) for one in grant or []]
    more = remote.json_argument(grants, "--grants")
    if more is not None:
        if not isinstance(more, list):
            raise typer.BadParameter("--grants must be a JSON list")
        wanted += more
    limit = None if rate is None else {"per_second": rate, "burst": burst}
    made = remote.call(
        url,
        token,
        lambda moorage: moorage.credentials.create(
            subject, wanted, expires_at=expires_at, public=public, origins=origin or [], rate=limit
        ),
    )
    if as_json:
        remote.print_json(made.wire())
        return
    facts = made.wire()
    remote.print_facts({"id": made.id, "subject": subject, "grants": facts["grants"], "token": made.token})


@app.command("list")
def list_(
    limit: remote.Limit = 50,
    everything: remote.All = False,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """List credentials, oldest first, revoked ones too; never their tokens.

    Example: moorage credentials list --all
    """

    async def ask(moorage: Moorage) -> tuple[list[Credential], bool]:
        return await remote.first(moorage.credentials.iterate(), limit, everything)

    found, more = remote.call(url, token, ask)
    remote.print_list(
        found,
        more,
        as_json,
        ("credential", "subject", "grants", "created", "ends"),
        lambda one: (one.id, one.subject, _said(one), one.wire()["created_at"], _ends(one)),
    )


@app.command()
def show(
    credential: CredentialId,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.AsJson = False,
) -> None:
    """Show one credential.

    Example: moorage credentials show cred_01kb1y0z3w5q9v8d7c6b5a4m3n
    """
    found = remote.call(url, token, lambda moorage: moorage.credentials.get(credential))
    remote.print_one(found, as_json)


@app.command()
def revoke(
    credential: CredentialId,
    url: remote.Url = remote.DEFAULT_URL,
    token: remote.Token = None,
    as_json: remote.DoneAsJson = False,
) -> None:
    """Revoke a credential for good: its writes stop at once, its reads within seconds.

    Example: moorage credentials revoke cred_01kb1y0z3w5q9v8d7c6b5a4m3n
    """
    remote.call(url, token, lambda moorage: moorage.credentials.revoke(credential))
    remote.print_done("revoked", credential, as_json)


def _grant(text: str) -> dict[str, Any]:
    actions, colon, kinds = text.partition(":")
    grant: dict[str, Any] = {"actions": [one.strip() for one in actions.split(",")]}
    return {**grant, "kinds": [one.strip() for one in kinds.split(",")]} if colon else grant


def _said(credential: Credential) -> str:
    return " ".join(
        ",".join(grant.actions) + (":" + ",".join(grant.kinds) if grant.kinds else "") + (" (some)" if grant.match else "")
        for grant in credential.grants
    )


def _ends(credential: Credential) -> str | None:
    facts = credential.wire()
    return f"revoked {facts['revoked_at']}" if credential.revoked_at else facts.get("expires_at")
