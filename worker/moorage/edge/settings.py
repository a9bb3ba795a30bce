"""What a Worker's variables and secrets say."""

import platform
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from moorage.api.ports import Otlp, Settings
from moorage.awakeables.derive import DERIVATION_KEYS, keys_of
from moorage.kernel.limits import ARTIFACT_ATTACH_SECONDS
from moorage.store import recovery

ROOT_TOKEN: Final = "MOORAGE_ROOT_TOKEN"  # noqa: S105 - the name of a binding
ALLOWED_ORIGINS: Final = "MOORAGE_ALLOWED_ORIGINS"
TEST_CLOCK: Final = "MOORAGE_TEST_CLOCK"
ALLOW_LOCAL: Final = "MOORAGE_ALLOW_LOCAL_DESTINATIONS"
ATTACH_SECONDS: Final = "MOORAGE_ARTIFACT_ATTACH_SECONDS"
URL: Final = "MOORAGE_URL"
RUNNERS: Final = "MOORAGE_RUNNERS"
PROJECT: Final = "MOORAGE_PROJECT"
PROFILE: Final = "MOORAGE_STORAGE_PROFILE"
OTLP_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
OTLP_TRACES_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
OTLP_HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"
SERVICE_NAME: Final = "OTEL_SERVICE_NAME"

BINDINGS: Final = ("DB", "BLOBS", "CLOCK", "BELL", "RUNNER", "COURIER")
"""What wrangler.toml binds, and nothing with an effect is admitted without."""

_RUNNERS: Final = 32
_MOST_RUNNERS: Final = 1000


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables of a deployment. Without a root token, root access is off."""

    root_token: str | None = field(repr=False)
    test_clock: bool
    settings: Settings


def read(env: Any) -> Variables:
    """The variables: MOORAGE_ROOT_TOKEN (secret), MOORAGE_URL (the deployment's own address, for the URLs of awakeables),
    MOORAGE_ALLOWED_ORIGINS (origins between commas or spaces),
    MOORAGE_ARTIFACT_ATTACH_SECONDS and MOORAGE_RUNNERS (what is no whole number in their bounds counts as unset),
    MOORAGE_DERIVATION_KEYS (secret; keys between commas, the root token is the last of them), OpenTelemetry's own
    OTEL_EXPORTER_OTLP_ENDPOINT, _TRACES_ENDPOINT and _HEADERS with OTEL_SERVICE_NAME, MOORAGE_TEST_CLOCK=1 and
    MOORAGE_ALLOW_LOCAL_DESTINATIONS=1 (both for development), MOORAGE_PROJECT (whose storage this is) and
    MOORAGE_STORAGE_PROFILE (refused unless it is the one that there is)."""
    root_token = text(env, ROOT_TOKEN)
    keys = keys_of(_listed(text(env, DERIVATION_KEYS)), root_token)
    otlp = _otlp(env)
    origins = (text(env, ALLOWED_ORIGINS) or "").replace(",", " ").split()
    settings = Settings(
        allowed_origins=frozenset(origin.rstrip("/") for origin in origins),
        runtime=f"Python {platform.python_version()}",
        secrets=tuple({*keys, *(otlp.headers.values() if otlp else ())}),
        root_access=root_token is not None,
        allow_local=text(env, ALLOW_LOCAL) == "1",
        attach_seconds=_whole(text(env, ATTACH_SECONDS), ARTIFACT_ATTACH_SECONDS),
        runners=_whole(text(env, RUNNERS), _MOST_RUNNERS) or _RUNNERS,
        derivation_keys=keys,
        otlp=otlp,
        url=(text(env, URL) or "").rstrip("/"),
        project=text(env, PROJECT) or "moorage",
        profile=text(env, PROFILE) or recovery.PROFILE,
        missing=tuple(name for name in BINDINGS if getattr(env, name, None) is None),
    )
    return Variables(root_token, text(env, TEST_CLOCK) == "1", settings)


def text(env: Any, name: str) -> str | None:
    """A binding that is text and not empty, or None."""
    value = getattr(env, name, None)
    return value if isinstance(value, str) and value else None


def _whole(value: str | None, most: int) -> int | None:
    return int(value) if value is not None and value.isdecimal() and 0 < int(value) <= most else None


def _listed(value: str | None) -> list[str]:
    """The parts between commas that are not empty."""
    return [part.strip() for part in (value or "").split(",") if part.strip()]


def _otlp(env: Any) -> Otlp | None:
    """Where traces go: the endpoint for traces as it is, or the general one with the path that OTLP gives them. Headers
    are `name=value` between commas, percent-encoded."""
    general = text(env, OTLP_ENDPOINT)
    url = text(env, OTLP_TRACES_ENDPOINT) or (general and f"{general.rstrip('/')}/v1/traces")
    if not url:
        return None
    pairs = (pair.partition("=") for pair in _listed(text(env, OTLP_HEADERS)))
    headers = {name.strip().lower(): unquote(value.strip()) for name, found, value in pairs if found}
    return Otlp(url, headers, text(env, SERVICE_NAME) or "moorage")
