"""Bodies that hosts outside the Worker offer (clauses runs.substrate, runs.body-pins).

A registration says what may be started by name, and under which build an execution is opened. It executes nothing: hosts do,
and one that has another build than an execution is bound to is not given it.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.catalog.access import Caller
from moorage.history.append import Event, append
from moorage.kernel import canonical
from moorage.kernel.errors import BodyConflict, BodyUnknown, IdInvalid
from moorage.kernel.ids import check_kind
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import CONFIG_BYTES, TEXT_CHARACTERS
from moorage.kernel.pages import Page, PageRequest
from moorage.kernel.refusals import refused
from moorage.runs import authority
from moorage.runs import remote_body_statements as statements
from moorage.runs.model import BodyInfo, Build
from moorage.store.ports import Database
from moorage.store.transaction import Reading, Row, Transaction

MOST_EFFECTS = 200
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RemoteBody:
    """A body that a host offers: what is said of any body, who offered it last, and when."""

    info: BodyInfo
    registered_by: str
    updated_at: Instant

    @classmethod
    def of(cls, row: Row) -> "RemoteBody":
        """The body that a row holds."""
        info = BodyInfo(
            name=row["name"],
            host="remote",
            build=Build.of(json.loads(row["pins"])),
            effects=tuple(json.loads(row["effects"])),
            description=row["description"],
            input_schema=_json(row["input_schema"]),
            result_schema=_json(row["result_schema"]),
        )
        return cls(info, row["registered_by"], row["updated_at"])

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        return {
            **body_wire(self.info),
            "registered_by": self.registered_by,
            "updated_at": render(self.updated_at),
        }


def body_wire(info: BodyInfo) -> dict[str, Any]:
    """A registered body as JSON, wherever it runs. `build` has the digest of it all as `digest`."""
    return {
        "name": info.name,
        "host": info.host,
        "build": {**info.build.wire(), "digest": info.build.digest},
        "effects": list(info.effects),
        "description": info.description,
        "input_schema": info.input_schema,
        "result_schema": info.result_schema,
    }


async def register(db: Database, caller: Caller, now: Instant, info: BodyInfo, taken: Collection[str] = ()) -> RemoteBody:
    """Offer a body, or offer it anew under another build; what is pending stays bound to the build it began with.

    `taken` are the names of the Worker's own bodies. It takes a grant to execute the body. Raises Forbidden, IdInvalid,
    BodyConflict for a name that is taken, RequestInvalid for digests, effects, schemas and descriptions out of bounds.
    """
    check_kind(info.name)
    authority.demand(caller, "execute", info.name)
    if info.name in taken:
        raise BodyConflict(f"the Worker has a body {info.name!r} of its own")
    _check(info)
    tx = Transaction(now)
    caller.guard(tx)
    stored = tx.run(
        statements.REGISTER,
        name=info.name,
        build=info.build.digest,
        pins=canonical.dumps(info.build.wire()),
        effects=canonical.dumps(list(info.effects)),
        input_schema=_text(info.input_schema),
        result_schema=_text(info.result_schema),
        description=info.description,
        caller=caller.subject,
    )
    told = {"build": info.build.digest, "effects": list(info.effects)}
    append(tx, caller.subject, Event(f"body:{info.name}", "body.registered", told))
    await db.commit(tx)
    return RemoteBody.of(stored.one())


async def show(db: Database, caller: Caller, name: str) -> RemoteBody:
    """One remote body. Raises BodyUnknown, also when the caller may not see its runs."""
    body = await find(db, name)
    if not authority.sees(caller, name):
        raise BodyUnknown()
    return body


async def find(db: Database, name: str) -> RemoteBody:
    """One remote body, for admission, which checks the caller itself. Raises BodyUnknown."""
    reading = Reading()
    row = reading.ask(statements.BODY, name=name)
    await db.read(reading)
    return RemoteBody.of(row.one(BodyUnknown()))


async def list_bodies(db: Database, caller: Caller, page: PageRequest) -> Page[RemoteBody]:
    """The remote bodies whose runs the caller may see, by name. Raises CursorMismatch."""
    filters = ["bodies"]
    after = page.after(filters, str) or [""]
    bodies = authority.seen_bodies(caller)
    reading = Reading()
    rows = reading.ask(
        statements.BODIES,
        after=after[0],
        limit=page.limit + 1,
        seen_bodies=None if bodies is None else canonical.compact(bodies),
    )
    await db.read(reading)
    return page.page(rows.rows, filters, lambda row: [row["name"]], RemoteBody.of)


async def remove(db: Database, caller: Caller, now: Instant, name: str) -> None:
    """Offer a body no more: nothing new can be started, and what is pending stays. Raises Forbidden, BodyUnknown."""
    if not authority.sees(caller, name):
        raise BodyUnknown()
    authority.demand(caller, "execute", name)
    tx = Transaction(now)
    caller.guard(tx)
    tx.require(statements.BODY, BodyUnknown(), name=name)
    tx.run(statements.REMOVE, name=name)
    append(tx, caller.subject, Event(f"body:{name}", "body.removed"))
    await db.commit(tx)


def _check(info: BodyInfo) -> None:
    build = info.build
    digests = {"/build/implementation": build.implementation, "/build/configuration": build.configuration}
    digests.update({f"/build/dependencies/{name}": digest for name, digest in build.dependencies.items()})
    for pointer, digest in digests.items():
        if digest is not None and _SHA256.fullmatch(digest) is None:
            raise refused(pointer, "must be a SHA-256 in lower-case hexadecimal")
    if build.body != info.name:
        raise IdInvalid("the build is of another body")
    _check_names("/build/dependencies", list(build.dependencies))
    _check_names("/effects", info.effects)
    if len(info.description) > TEXT_CHARACTERS:
        raise refused("/description", f"must have at most {TEXT_CHARACTERS} characters")
    for pointer, schema in (("/input_schema", info.input_schema), ("/result_schema", info.result_schema)):
        if schema is not None and canonical.size(canonical.dumps(dict(schema))) > CONFIG_BYTES:
            raise refused(pointer, f"is longer than {CONFIG_BYTES} bytes")


def _check_names(pointer: str, names: Sequence[str]) -> None:
    if len(names) > MOST_EFFECTS or len(set(names)) != len(names):
        raise refused(pointer, f"must have at most {MOST_EFFECTS} names, each once")
    if any(not 1 <= len(name) <= TEXT_CHARACTERS for name in names):
        raise refused(pointer, f"must hold names of 1 to {TEXT_CHARACTERS} characters")


def _text(schema: Mapping[str, Any] | None) -> str | None:
    return None if schema is None else canonical.dumps(dict(schema))


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
