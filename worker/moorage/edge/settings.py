"""What a Worker's variables and secrets say."""

import platform
from dataclasses import dataclass, field
from typing import Any, Final

from moorage.api.ports import Settings
from moorage.kernel.limits import ARTIFACT_ATTACH_SECONDS

ROOT_TOKEN: Final = "MOORAGE_ROOT_TOKEN"  # noqa: S105 - the name of a binding
ALLOWED_ORIGINS: Final = "MOORAGE_ALLOWED_ORIGINS"
TEST_CLOCK: Final = "MOORAGE_TEST_CLOCK"
ALLOW_LOCAL: Final = "MOORAGE_ALLOW_LOCAL_DESTINATIONS"
ATTACH_SECONDS: Final = "MOORAGE_ARTIFACT_ATTACH_SECONDS"


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables of a deployment. Without a root token, root access is off."""

    root_token: str | None = field(repr=False)
    test_clock: bool
    settings: Settings


def read(env: Any) -> Variables:
    """The variables: MOORAGE_ROOT_TOKEN (secret), MOORAGE_ALLOWED_ORIGINS (origins between commas or spaces),
    MOORAGE_ARTIFACT_ATTACH_SECONDS (what is no whole number of seconds counts as unset), MOORAGE_TEST_CLOCK=1 and
    MOORAGE_ALLOW_LOCAL_DESTINATIONS=1 (both for development)."""
    root_token = text(env, ROOT_TOKEN)
    origins = (text(env, ALLOWED_ORIGINS) or "").replace(",", " ").split()
    settings = Settings(
        allowed_origins=frozenset(origin.rstrip("/") for origin in origins),
        runtime=f"Python {platform.python_version()}",
        secrets=(root_token,) if root_token else (),
        root_access=root_token is not None,
        allow_local=text(env, ALLOW_LOCAL) == "1",
        attach_seconds=_seconds(text(env, ATTACH_SECONDS)),
    )
    return Variables(root_token, text(env, TEST_CLOCK) == "1", settings)


def text(env: Any, name: str) -> str | None:
    """A binding that is text and not empty, or None."""
    value = getattr(env, name, None)
    return value if isinstance(value, str) and value else None


def _seconds(value: str | None) -> int | None:
    return int(value) if value is not None and value.isdecimal() and 0 < int(value) <= ARTIFACT_ATTACH_SECONDS else None
