"""What clients declare in the catalog, as it comes over the wire. Types never coerce, and unknown fields are refused.

A field's bounds stand here; what depends on other fields or on what is stored is checked by the operation.
"""

import re
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from moorage.catalog.access import Action
from moorage.catalog.paths import PathType
from moorage.kernel.limits import (
    ATTEMPTS,
    DEDUP_WINDOW_SECONDS,
    DELIVERY_ATTEMPTS,
    DELIVERY_CONCURRENCY,
    DELIVERY_TIMEOUT_SECONDS,
    DEPTH,
    EVENT_KEYS,
    GRANT_KINDS,
    GRANTS,
    LANE_CLAIMS,
    LEASE_SECONDS,
    PATH_BYTES,
    PUBLIC_ORIGINS,
    RATE,
    RATE_PERIOD_SECONDS,
    RETENTION_SECONDS,
    RETRY_FACTOR,
    RETRY_SECONDS,
    SENDER_SECRETS,
    SENDER_TOLERANCE_SECONDS,
    TEXT_CHARACTERS,
    TTL_SECONDS,
    URL_CHARACTERS,
)
from moorage.kernel.refusals import LINE, refused

ROOT_SUBJECT: Final = "root"
"""The subject of the root credential."""

Scheme = Literal["standard", "github", "stripe", "slack", "bearer"]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
METHODS: Final[tuple[Method, ...]] = get_args(Method)

Text = Annotated[str, Field(min_length=1, max_length=int(TEXT_CHARACTERS), pattern=LINE)]
"""A label or subject: 1 to TEXT_CHARACTERS characters, none of them a control character."""

Pointer = Annotated[str, Field(max_length=int(PATH_BYTES), pattern=r"^/(?:[^~]|~[01])*$")]
"""A JSON Pointer (RFC 6901) below the root of a webhook's data."""

IN_HEADER: Final = "header:"
_ID_PLACE = r"^(?:/(?:[^~]|~[01])*|header:[!#$%&'*+.^_`|~0-9A-Za-z-]+)$"
_TYPE_PLACE = (
    r"^(?:/(?:[^~\x00-\x1f\x7f-\x9f\u2028\u2029]|~[01])*"
    r"|[^/\x00-\x1f\x7f-\x9f\u2028\u2029][^\x00-\x1f\x7f-\x9f\u2028\u2029]*)$"
)

_SECRET_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,99}")
_OWN_SECRETS: Final = ("MOORAGE_", "OTEL_")
"""With this begin the names of what the product is configured with: the root token, the keys that tokens are made of, and
the collector's credentials. None of it is anybody's to sign with or to send."""


class Declared(BaseModel):
    """A body that a client sends."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


class RetryDeclaration(Declared):
    """The delays after failed attempts: the first `delay_seconds`, each next `factor` times longer, none longer than
    `max_delay_seconds`."""

    delay_seconds: float = Field(default=1, ge=0, le=int(RETRY_SECONDS))
    factor: float = Field(default=2, ge=1, le=int(RETRY_FACTOR))
    max_delay_seconds: float = Field(default=300, ge=0, le=int(RETRY_SECONDS))

    def delays(self, attempts: int) -> list[int]:
        """Milliseconds to wait after each of `attempts` failed attempts."""
        longest = self.max_delay_seconds
        return [round(1000 * min(self.delay_seconds * self.factor**number, longest)) for number in range(attempts)]


class ConcurrencyDeclaration(Declared):
    """At most `limit` claimed records share a value at the declared path `path`. A record without it is not limited."""

    path: str = Field(max_length=int(PATH_BYTES))
    limit: int = Field(ge=1, le=int(LANE_CLAIMS))


class RateDeclaration(Declared):
    """A token bucket: `burst` at once, and `per_second` on the long run. It is kept in the database, so that all who draw
    from it share it."""

    per_second: float = Field(ge=1 / int(RATE_PERIOD_SECONDS), le=int(RATE))
    burst: int = Field(default=1, ge=1, le=int(RATE))


class ClaimDeclaration(Declared):
    """How records of a kind are claimed, unless the claim says otherwise.

    `depth_limit` refuses to publish while so many records are ready, waiting ones included; what comes into being
    otherwise (results, requeued and failed records) is not refused, but counts. `ttl_seconds` makes a dead letter of a
    record that is ready, and not claimed, so long after its publication or its not_before. `rate` bounds claimed records.
    """

    lease_seconds: int = Field(default=30, ge=1, le=int(LEASE_SECONDS))
    max_attempts: int = Field(default=5, ge=1, le=int(ATTEMPTS))
    retry: RetryDeclaration = RetryDeclaration()
    concurrency: ConcurrencyDeclaration | None = None
    depth_limit: int | None = Field(default=None, ge=1, le=int(DEPTH))
    ttl_seconds: int | None = Field(default=None, ge=1, le=int(TTL_SECONDS))
    rate: RateDeclaration | None = None


class KindDeclaration(Declared):
    """The declaration of a kind. What is left out has its default, and when the kind is declared again, what stands."""

    paths: dict[str, PathType] = Field(default_factory=dict)
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    claim: ClaimDeclaration = ClaimDeclaration()
    retention_seconds: int | None = Field(default=None, ge=1, le=int(RETENTION_SECONDS))


class GrantDeclaration(Declared):
    """Actions on kinds. Without `kinds` the grant is for all of them; an empty list is refused."""

    actions: list[Action] = Field(min_length=1)
    kinds: list[str] | None = Field(default=None, min_length=1, max_length=int(GRANT_KINDS))
    match: dict[str, Any] | None = None


class CredentialDeclaration(Declared):
    """A credential to make. Without grants it may do nothing but resolve awakeables whose token its holder knows."""

    subject: Text
    grants: list[GrantDeclaration] = Field(max_length=int(GRANTS))
    expires_at: str | None = None
    public: bool = Field(
        default=False, description="May be shipped to browsers: it publishes to kinds it names, or resolves awakeables."
    )
    origins: list[str] | None = Field(default=None, min_length=1, max_length=int(PUBLIC_ORIGINS))
    rate: RateDeclaration | None = None


class SenderEventDeclaration(Declared):
    """How a sender's webhooks become events, where its scheme does not say: `id` is where the delivery's id stands, a JSON
    Pointer into the data or `header:Name`; `type` is a type, or a pointer to it; `keys` are pointers to what waits and works
    find an event by; `scope` is the scope of its events."""

    id: str | None = Field(default=None, max_length=int(PATH_BYTES), pattern=_ID_PLACE)
    type: str | None = Field(default=None, max_length=int(PATH_BYTES), pattern=_TYPE_PLACE)
    keys: list[Pointer] = Field(default_factory=list, max_length=int(EVENT_KEYS))
    scope: str | None = None


class SenderDeclaration(Declared):
    """A webhook sender. Several secrets overlap while a key is rotated; each is literal or `env:NAME`."""

    scheme: Scheme
    secrets: list[str] = Field(min_length=1, max_length=int(SENDER_SECRETS), repr=False)
    subject: Text
    tolerance_seconds: int = Field(default=300, ge=1, le=int(SENDER_TOLERANCE_SECONDS))
    event: SenderEventDeclaration | None = None


class DeliveryDeclaration(Declared):
    """How deliveries are made to a destination: `concurrency` at once, or one after the other as their events came where
    `ordered`, each at most `max_attempts` times, and each time an answer may take `timeout_seconds`."""

    concurrency: int = Field(default=4, ge=1, le=int(DELIVERY_CONCURRENCY))
    ordered: bool = False
    max_attempts: int = Field(default=24, ge=1, le=int(DELIVERY_ATTEMPTS))
    timeout_seconds: int = Field(default=15, ge=1, le=int(DELIVERY_TIMEOUT_SECONDS))


class DestinationDeclaration(Declared):
    """An outbound destination. `dedup_window_seconds` is how long the destination itself drops a repeated idempotency
    key; null says that it does not. Deliveries go to it by the first of POST, PUT and PATCH among its methods."""

    url: str = Field(max_length=int(URL_CHARACTERS))
    methods: list[Method] = Field(default=["POST"], min_length=1)
    secret: str | None = Field(default=None, repr=False)
    dedup_window_seconds: int | None = Field(default=None, ge=1, le=int(DEDUP_WINDOW_SECONDS))
    publication: bool = False
    delivery: DeliveryDeclaration = DeliveryDeclaration()


class ScopeDeclaration(Declared):
    """A scope: its parent, if it has one, and configuration that the runtime does not interpret."""

    parent: str | None = None
    config: dict[str, Any] = Field(default_factory=dict)


def check_subject(subject: str) -> None:
    """Raise RequestInvalid for a subject that nobody may be given: root, and those of the product itself."""
    if subject in (ROOT_SUBJECT, "moorage") or subject.startswith("moorage:"):
        raise refused("/subject", "is reserved: it may be neither root nor moorage, nor begin with moorage:")


def secret_name(reference: str, pointer: str) -> str | None:
    """The binding that `env:NAME` names, or None when the text is no such reference.

    Raises RequestInvalid at `pointer` for a name that is not upper-case letters, digits and underscores, and for
    what the product itself is configured with, which is nobody's to sign with or to send.
    """
    if not reference.startswith("env:"):
        return None
    name = reference.removeprefix("env:")
    if _SECRET_NAME.fullmatch(name) is None:
        raise refused(pointer, "must name a secret as env:NAME, in upper-case letters, digits and underscores")
    if name.startswith(_OWN_SECRETS):
        raise refused(pointer, "must not be one of the product's own, which begin with MOORAGE_ or OTEL_")
    return name
