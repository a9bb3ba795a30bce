"""The OpenAPI document and the page that shows it, both made from the routes themselves."""

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

import moorage
from moorage.api.fields import ProblemShown
from moorage.kernel.errors import (
    ExecutionSchemaIncompatible,
    Forbidden,
    IdempotencyConflict,
    IdInvalid,
    InternalError,
    JsonInvalid,
    MoorageError,
    PayloadTooLarge,
    RequestInvalid,
    RunStreamUnauthorized,
    StorageBindingUnavailable,
    StorageCapabilityMissing,
    Unauthenticated,
    UnsupportedMediaType,
    reference,
)
from moorage.kernel.limits import ID_CHARACTERS

if TYPE_CHECKING:
    from moorage.api.routing import Route

ACCESS = "x-access"
"""OpenAPI member that says how a route admits: "credential" (the default), "stream", "open", or "own"."""

_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key with the same content answers the first answer again, for a day.",
    "schema": {"type": "string", "minLength": 1, "maxLength": int(ID_CHARACTERS), "pattern": "^[ -~]*$"},
}
_REF = "#/components/schemas/{model}"
_ABOUT = (
    "Records that workers claim by pattern under fenced leases, and awakeables that the outside world resolves. "
    "Instants are RFC 3339 UTC, sizes bytes, durations seconds. Errors are `application/problem+json`. "
    "A write that lists no `Idempotency-Key` does no more when it is sent again, and needs none; the header is checked "
    "there and otherwise ignored."
)


class Document:
    """The OpenAPI document of a set of routes, made when it is first asked for."""

    def __init__(self, routes: Sequence["Route"]) -> None:
        self._routes = routes

    @cached_property
    def openapi(self) -> dict[str, Any]:
        """The document."""
        made = get_openapi(
            title="Moorage",
            version=moorage.__version__,
            description=_ABOUT,
            routes=self._routes,
            openapi_version="3.1.0",
        )
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        problem = ProblemShown.model_json_schema(ref_template=_REF)
        schemas.update(problem.pop("$defs", {}))
        schemas["Problem"] = problem
        schemas.update(_describe_answers(made, self._routes))
        made["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        for _, _, operation in operations(made):
            _complete(operation)
        return made

    @cached_property
    def text(self) -> bytes:
        """The document as JSON."""
        return json.dumps(self.openapi, ensure_ascii=False, separators=(",", ":")).encode()

    @cached_property
    def page(self) -> bytes:
        """The document as a page that needs nothing from elsewhere."""
        return "".join(_page(self.openapi)).encode()


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(method, path, operation) of a document, in its order."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def _describe_answers(document: Mapping[str, Any], routes: Sequence["Route"]) -> dict[str, Any]:
    """Give each operation the schema of its answer; what these share is returned, to be a component."""
    answering = [(number, route) for number, route in enumerate(routes) if route.answer is not None]
    inputs: list[tuple[int, JsonSchemaMode, TypeAdapter[Any]]]
    inputs = [(number, "serialization", TypeAdapter(route.answer)) for number, route in answering]
    found, shared = TypeAdapter.json_schemas(inputs, ref_template=_REF)
    for number, route in answering:
        schema = found[(number, "serialization")]
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            status = str(route.status_code or 200)
            operation["responses"][status].setdefault("content", {})["application/json"] = {"schema": schema}
    defined: dict[str, Any] = shared.get("$defs", {})
    return defined


def _complete(operation: dict[str, Any]) -> None:
    """Add what holds for every route: how it admits, and the errors that any request of its kind may get."""
    access = operation.pop(ACCESS, "credential")
    general: list[type[MoorageError]] = [IdInvalid, RequestInvalid, InternalError]
    if access != "open":
        operation["security"] = [{"bearer": []}, {}] if access == "own" else [{"bearer": []}]
        general += [RunStreamUnauthorized if access == "stream" else Unauthenticated, Forbidden]
        general += [StorageBindingUnavailable, StorageCapabilityMissing, ExecutionSchemaIncompatible]
    if "requestBody" in operation:
        general += [JsonInvalid, PayloadTooLarge, UnsupportedMediaType]
    responses = operation["responses"]
    if IdempotencyConflict.__name__ in str(responses.get("409", "")):
        operation.setdefault("parameters", []).append(_KEY)
    if "HTTPValidationError" in str(responses.get("422", "")):
        del responses["422"]
    for error in general:
        found = responses.setdefault(str(error.status), {"description": ""})
        line = f"`{error.__name__}`: {error.meaning()}"
        if f"`{error.__name__}`" not in found["description"]:
            found["description"] = f"{found['description']}\n\n{line}".strip()
    for status, found in responses.items():
        if status.startswith("2"):
            found["description"] = "Done."
        elif not status.startswith("3"):
            found["content"] = _PROBLEM
    operation["responses"] = dict(sorted(responses.items()))


# --- the page -------------------------------------------------------------------------------------------------------

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--accent:#0b7285}
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:60rem;padding:2rem 1rem}
h1{margin:0}h2{margin:2.5rem 0 .5rem;text-transform:capitalize;border-bottom:1px solid var(--line)}
code,pre{font:13px/1.5 ui-monospace,monospace}pre{background:var(--soft);padding:.75rem;overflow:auto;border-radius:6px}
details{border:1px solid var(--line);border-radius:6px;margin:.5rem 0;padding:.5rem .75rem}
summary{cursor:pointer;overflow-wrap:anywhere}summary b{display:inline-block;min-width:4.5rem;color:var(--accent)}
summary span{opacity:.75;margin-left:.5rem}table{border-collapse:collapse;width:100%;table-layout:fixed}
td pre{white-space:pre-wrap}td,th{overflow-wrap:anywhere}
td,th{border-bottom:1px solid var(--line);padding:.3rem .5rem;text-align:left;vertical-align:top}
@media (prefers-color-scheme:dark){:root{--accent:#66d9e8}}
"""


def _page(document: Mapping[str, Any]) -> Iterator[str]:
    info = document["info"]
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield f"<title>{_text(info['title'])} API</title><style>{_STYLE}</style></head><body>"
    yield f"<h1>{_text(info['title'])} <small>{_text(info['version'])}</small></h1><p>{_prose(info['description'])}</p>"
    yield '<p>The same as data: <a href="/openapi.json">/openapi.json</a>. Every route but <code>GET /health</code>, '
    yield "this page and that document takes <code>Authorization: Bearer &lt;token&gt;</code>.</p>"
    room = None
    for method, path, operation in operations(document):
        tag = operation["tags"][0]
        if tag != room:
            room = tag
            yield f'<h2 id="{_text(tag)}">{_text(tag)}</h2>'
        yield from _operation(method, path, operation, document)
    yield '<h2 id="errors">errors</h2><table><tr><th>code<th>status<th>tag<th>meaning</tr>'
    for error in reference():
        yield f'<tr id="{error["code"]}"><td><code>{error["code"]}</code><td>{error["status"]}<td>{error["tag"]}'
        yield f"<td>{_prose(error['meaning'])}{' Retryable.' if error['retryable'] else ''}</tr>"
    yield "</table></body></html>"


def _operation(method: str, path: str, operation: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    yield f"<details><summary><b>{method}</b><code>{_text(path)}</code>"
    yield f"<span>{_text(operation['summary'])}</span></summary>"
    yield f"<p>{_prose(operation.get('description', ''))}</p>"
    parameters = operation.get("parameters", [])
    if parameters:
        yield "<table><tr><th>parameter<th>in<th>meaning</tr>"
        for one in parameters:
            needed = "" if one["required"] else " (optional)"
            yield f"<tr><td><code>{_text(one['name'])}</code>{needed}<td>{one['in']}"
            yield f"<td>{_prose(one.get('description', ''))}</tr>"
        yield "</table>"
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body, <code>{_text(media)}</code>:</p>{_schema(content.get('schema', {}), document)}"
    yield "<table><tr><th>status<th>answer</tr>"
    for status, answer in operation["responses"].items():
        yield f"<tr><td>{status}<td>{_prose(answer['description'])}"
        for media, content in answer.get("content", {}).items():
            if media == "application/json":
                yield _schema(content.get("schema", {}), document)
        yield "</tr>"
    yield "</table></details>"


def _schema(schema: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    return f"<pre>{_text(_sketch(schema, document, 0))}</pre>"


def _sketch(schema: Mapping[str, Any], document: Mapping[str, Any], depth: int) -> str:
    """A JSON Schema as a few readable lines."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if depth > 8:
        return "…"
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_sketch(one, document, depth) for one in schema["anyOf"]))
    if "properties" in schema:
        needed = schema.get("required", [])
        pad = "  " * (depth + 1)
        lines = [
            f"{pad}{name}{'' if name in needed else '?'}: {_sketch(one, document, depth + 1)}"
            for name, one in schema["properties"].items()
        ]
        return "{\n" + "\n".join(lines) + "\n" + "  " * depth + "}"
    if schema.get("type") == "array":
        return f"[{_sketch(schema.get('items', {}), document, depth)}, …]"
    if "enum" in schema or "const" in schema:
        return " | ".join(json.dumps(one) for one in schema.get("enum", [schema.get("const")]))
    return " ".join([str(schema.get("type", "any JSON")), *_bounds(schema)])


def _bounds(schema: Mapping[str, Any]) -> Iterator[str]:
    names = {
        "format": "",
        "exclusiveMinimum": "> ",
        "minimum": "≥ ",
        "maximum": "≤ ",
        "minLength": "length ≥ ",
        "maxLength": "length ≤ ",
    }
    names |= {"minItems": "items ≥ ", "maxItems": "items ≤ ", "default": "= "}
    for name, sign in names.items():
        bound = schema.get(name)
        if bound is not None:
            yield f"{sign}{bound:.0f}" if isinstance(bound, float) else f"{sign}{bound}"


def _text(value: Any) -> str:
    return html.escape(str(value))


def _prose(value: str) -> str:
    """Text with `code` in backticks; blank lines break."""
    parts = _text(value).split("`")
    marked = "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))
    return marked.replace("\n\n", "<br>")
