"""Ids: opaque, type-prefixed, sortable by creation, never reused (clause kernel.ids).

An id is its prefix and 26 characters of Crockford's base 32: 48 bits of milliseconds and 80 random bits, so that text
order is creation order. Ids are allocated before the transaction that stores them.
"""

import re
import secrets
from typing import Literal

from moorage.kernel.errors import IdInvalid
from moorage.kernel.instants import Instant
from moorage.kernel.limits import ID_CHARACTERS

Prefix = Literal["rec", "run", "exe", "awk", "grd", "crd", "clm", "req", "upl", "ses", "hld", "aud", "rcv", "evt", "dlv"]

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_CLIENT_ID = re.compile(r"[A-Za-z0-9._~:@-]+")
_CLIENT_ALLOWED = "letters, digits and . _ ~ : @ -"
_KIND = re.compile(r"[a-z][a-z0-9._-]{0,99}")


def new(prefix: Prefix, now: Instant) -> str:
    """A fresh id: `rec_01kb3…`."""
    return f"{prefix}_{_encode((now << 80) | secrets.randbits(80))}"


def earliest(prefix: Prefix, instant: Instant) -> str:
    """The bound that no id of an earlier instant reaches, for ranges of time over ids."""
    return f"{prefix}_{_encode(instant << 80)}"


def several(prefix: Prefix, now: Instant, count: int) -> list[str]:
    """`count` fresh ids in ascending order, for a batch whose order is kept."""
    first = (now << 80) | secrets.randbits(79)
    return [f"{prefix}_{_encode(first + number)}" for number in range(count)]


def token(prefix: str) -> str:
    """An unguessable token with 256 random bits, for credentials and awakeables."""
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def check_client_id(value: str, what: str) -> str:
    """An id or name that a client supplied, unchanged.

    Raises IdInvalid naming the allowed characters when it is empty, longer than ID_CHARACTERS, `.` or `..`, or holds
    another character; so that every accepted id can stand in a path and always means exactly itself.
    """
    if not 1 <= len(value) <= ID_CHARACTERS:
        raise IdInvalid(f"{what} must have 1 to {ID_CHARACTERS} characters")
    if value in (".", "..") or _CLIENT_ID.fullmatch(value) is None:
        raise IdInvalid(f"{what} may hold {_CLIENT_ALLOWED}, and is neither '.' nor '..'")
    return value


def check_key(value: str) -> str:
    """An idempotency key, unchanged: any printable ASCII text.

    Raises IdInvalid when it is empty, longer than ID_CHARACTERS or has other characters.
    """
    if not 1 <= len(value) <= ID_CHARACTERS:
        raise IdInvalid(f"an Idempotency-Key must have 1 to {ID_CHARACTERS} characters")
    if not (value.isascii() and value.isprintable()):
        raise IdInvalid("an Idempotency-Key may hold printable ASCII characters only")
    return value


def check_kind(value: str) -> str:
    """A kind's name, unchanged. Raises IdInvalid unless it matches [a-z][a-z0-9._-]{0,99}."""
    if _KIND.fullmatch(value) is None:
        raise IdInvalid("a kind's name matches [a-z][a-z0-9._-]{0,99}")
    return value


def _encode(number: int) -> str:
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in range(120, -1, -10)])
