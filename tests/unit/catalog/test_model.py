"""What the catalog takes from clients: bounds, types, and secrets that do not show."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from moorage.catalog.access import Caller
from moorage.catalog.model import (
    ClaimDeclaration,
    CredentialDeclaration,
    DestinationDeclaration,
    KindDeclaration,
    RetryDeclaration,
    ScopeDeclaration,
    SenderDeclaration,
    SenderEventDeclaration,
    secret_name,
)
from moorage.catalog.senders import Sender, Verification
from moorage.idempotency.keys import Derivation
from moorage.kernel.errors import RequestInvalid
from moorage.kernel.instants import Instant
from moorage.kernel.limits import (
    ATTEMPTS,
    DEDUP_WINDOW_SECONDS,
    EVENT_KEYS,
    GRANTS,
    LEASE_SECONDS,
    PATH_BYTES,
    RETENTION_SECONDS,
    RETRY_FACTOR,
    RETRY_SECONDS,
    SENDER_SECRETS,
    SENDER_TOLERANCE_SECONDS,
    TEXT_CHARACTERS,
)

SENDER: dict[str, Any] = {"scheme": "github", "secrets": ["s"], "subject": "github"}
DESTINATION: dict[str, Any] = {"url": "https://example.test/"}
CREDENTIAL: dict[str, Any] = {"subject": "worker", "grants": []}
GRANT = {"actions": ["read"]}


@pytest.mark.clause("catalog.kind")
def test_retry_delays_grow_by_the_factor_up_to_the_longest() -> None:
    assert RetryDeclaration().delays(5) == [1000, 2000, 4000, 8000, 16000]
    assert RetryDeclaration(delay_seconds=0.25, factor=3, max_delay_seconds=2).delays(4) == [250, 750, 2000, 2000]
    assert RetryDeclaration(delay_seconds=10, factor=1, max_delay_seconds=5).delays(2) == [5000, 5000]
    assert RetryDeclaration(delay_seconds=0).delays(1) == [0]


@pytest.mark.clause("catalog.kind")
def test_the_widest_retry_policy_stays_within_its_longest_delay() -> None:
    widest = RetryDeclaration(
        delay_seconds=int(RETRY_SECONDS), factor=int(RETRY_FACTOR), max_delay_seconds=int(RETRY_SECONDS)
    )
    assert widest.delays(int(ATTEMPTS)) == [int(RETRY_SECONDS) * 1000] * int(ATTEMPTS)


@pytest.mark.clause("kernel.limits", "catalog.kind", "awake.senders", "catalog.destinations", "catalog.grants")
@pytest.mark.parametrize(
    ("model", "base", "field", "accepted", "refused"),
    [
        (ClaimDeclaration, {}, "lease_seconds", [1, int(LEASE_SECONDS)], [0, int(LEASE_SECONDS) + 1, 1.5, "30", True]),
        (ClaimDeclaration, {}, "max_attempts", [1, int(ATTEMPTS)], [0, int(ATTEMPTS) + 1, None]),
        (RetryDeclaration, {}, "delay_seconds", [0, 0.5, int(RETRY_SECONDS)], [-0.1, int(RETRY_SECONDS) + 0.1, True]),
        (RetryDeclaration, {}, "max_delay_seconds", [0, int(RETRY_SECONDS)], [-1, int(RETRY_SECONDS) + 1]),
        (RetryDeclaration, {}, "factor", [1, int(RETRY_FACTOR)], [0.9, int(RETRY_FACTOR) + 1, float("nan")]),
        (KindDeclaration, {}, "retention_seconds", [None, 1, int(RETENTION_SECONDS)], [0, int(RETENTION_SECONDS) + 1]),
        (SenderDeclaration, SENDER, "tolerance_seconds", [1, int(SENDER_TOLERANCE_SECONDS)],
         [0, int(SENDER_TOLERANCE_SECONDS) + 1]),
        (SenderDeclaration, SENDER, "secrets", [["s"], ["s"] * int(SENDER_SECRETS)],
         [[], ["s"] * (int(SENDER_SECRETS) + 1), "s"]),
        (SenderDeclaration, SENDER, "subject", ["x", "x" * int(TEXT_CHARACTERS), "Ünï çode"],
         ["", "x" * (int(TEXT_CHARACTERS) + 1), "a\nb", "a\x00"]),
        (SenderEventDeclaration, {}, "id",
         [None, "/id", "/", "/a~0b~1c", "/é\n", "header:X-Id", "/" + "x" * (int(PATH_BYTES) - 1)],
         ["", "id", "header:", "header:a b", "header:é", "header:a:b", "/a~2", "/~", "/" + "x" * int(PATH_BYTES), 1]),
        (SenderEventDeclaration, {}, "type",
         [None, "/type", "order.paid", "é", "a/b~", "x" * int(PATH_BYTES)],
         ["", "/a~2", "a\nb", "\x7f", "x" * (int(PATH_BYTES) + 1), 1]),
        (SenderEventDeclaration, {}, "keys", [[], ["/a"] * int(EVENT_KEYS)], [["a"], [""], ["/a"] * (int(EVENT_KEYS) + 1)]),
        (SenderDeclaration, SENDER, "event", [None, {}], ["/id", [], {"unknown": 1}]),
        (SenderDeclaration, SENDER, "scheme", ["standard", "github", "stripe", "slack", "bearer"], ["none", "", "GitHub"]),
        (DestinationDeclaration, DESTINATION, "dedup_window_seconds", [None, 1, int(DEDUP_WINDOW_SECONDS)],
         [0, int(DEDUP_WINDOW_SECONDS) + 1]),
        (DestinationDeclaration, DESTINATION, "methods", [["POST"], ["GET", "PUT"]], [[], ["TRACE"], ["post"]]),
        (CredentialDeclaration, CREDENTIAL, "grants", [[], [GRANT] * int(GRANTS)], [[GRANT] * (int(GRANTS) + 1)]),
        (CredentialDeclaration, CREDENTIAL, "grants", [[{**GRANT, "kinds": ["a"]}]],
         [[{**GRANT, "kinds": []}], [{"actions": []}], [{"actions": ["fly"]}], [{**GRANT, "match": []}]]),
        (KindDeclaration, {}, "paths", [{}, {"a": "string[]"}], [{"a": "text"}, {"a": 1}, []]),
        (ScopeDeclaration, {}, "config", [{}, {"a": 1}], [[], None, "x"]),
    ],
)  # fmt: skip
def test_bounds_are_inclusive_and_types_never_coerce(
    model: type[BaseModel], base: dict[str, Any], field: str, accepted: list[Any], refused: list[Any]
) -> None:
    for value in accepted:
        model.model_validate({**base, field: value})
    for value in refused:
        with pytest.raises(ValidationError):
            model.model_validate({**base, field: value})


@pytest.mark.parametrize(
    ("model", "base"),
    [
        (KindDeclaration, {}),
        (CredentialDeclaration, CREDENTIAL),
        (SenderDeclaration, SENDER),
        (DestinationDeclaration, DESTINATION),
        (ScopeDeclaration, {}),
    ],
)
def test_unknown_fields_are_refused(model: type[BaseModel], base: dict[str, Any]) -> None:
    model.model_validate(base)
    with pytest.raises(ValidationError, match="extra_forbidden"):
        model.model_validate({**base, "unknown": 1})


@pytest.mark.clause("catalog.destinations", "awake.senders")
def test_a_reference_names_a_binding_and_never_the_root_token() -> None:
    assert secret_name("env:GITHUB_SECRET_2", "/secret") == "GITHUB_SECRET_2"
    assert secret_name("literal", "/secret") is None
    for name in ("", "lower", "1ST", "A-B", "A B", "É", "A" * 101, "MOORAGE_ROOT_TOKEN"):
        with pytest.raises(RequestInvalid) as caught:
            secret_name(f"env:{name}", "/secret")
        assert caught.value.errors is not None
        assert caught.value.errors[0]["pointer"] == "/secret"


@pytest.mark.clause("catalog.credentials")
def test_no_secret_shows_in_a_representation_or_in_a_refusal() -> None:
    secret = "hush-hush-1"
    sender = Sender("s", "github", "github", 300, Instant(0), Instant(0), 1)
    held = [
        SenderDeclaration.model_validate({**SENDER, "secrets": [secret]}),
        DestinationDeclaration.model_validate({**DESTINATION, "secret": secret}),
        Caller("root", bearer=secret.encode()),
        Derivation(secret.encode()),
        Verification(sender, (secret,)),
    ]
    for thing in held:
        assert secret not in repr(thing)
        assert secret not in str(thing)
    with pytest.raises(ValidationError) as caught:
        SenderDeclaration.model_validate({**SENDER, "secrets": secret})
    assert secret not in str(caught.value)
