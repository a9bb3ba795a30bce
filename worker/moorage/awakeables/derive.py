"""Tokens of awakeables that runs mint: derived, so that a replay tells the same one (clause awake.mint).

A token is an HMAC of the awakeable's id, which the entry names, under a derivation key of the deployment. Nothing that is
stored tells it: the row holds its SHA-256, by which the key that made it is found again. The execution is no part of it, so
that an awakeable keeps its token when a restart hands it on to another execution.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from moorage.awakeables.model import TOKEN_PREFIX, token_sha256
from moorage.kernel import canonical
from moorage.kernel.errors import AwakeableTokenLost, CapabilityUnwired

DERIVATION_KEYS: Final = "MOORAGE_DERIVATION_KEYS"
"""The secret that holds the keys."""

Keys = Sequence[str]
"""The derivation keys. The first mints; all are tried when a token is told again."""


def keys_of(configured: Sequence[str], root_token: str | None) -> tuple[str, ...]:
    """The keys that a deployment has: those of DERIVATION_KEYS, and the root token after them.

    So a deployment that sets keys later still tells what the root token made, and one that sets none mints with the root
    token.
    """
    return tuple(dict.fromkeys([*configured, *([root_token] if root_token else [])]))


def mint_token(keys: Keys, awakeable_id: str) -> str:
    """The token of a new awakeable. Raises CapabilityUnwired when the deployment has no key at all."""
    if not keys:
        raise CapabilityUnwired(f"a run mints awakeables only where {DERIVATION_KEYS} or a root token is set")
    return derive(keys[0], awakeable_id)


def token_for(keys: Keys, sha256: str, awakeable_id: str) -> str | None:
    """The token whose SHA-256 is stored, by whichever key made it; None when that key is no longer among them.

    Every key is tried and compared in constant time, so that nothing tells which one it was.
    """
    found: str | None = None
    for key in keys:
        token = derive(key, awakeable_id)
        if hmac.compare_digest(token_sha256(token), sha256):
            found = token
    return found


def told(keys: Keys, sha256: str, awakeable_id: str, label: str) -> str:
    """The same, where it is needed. Raises AwakeableTokenLost, which says how to get it back."""
    token = token_for(keys, sha256, awakeable_id)
    if token is None:
        raise AwakeableTokenLost(
            f"the token of the awakeable {label!r} cannot be told again: the key that made it is gone; add it to "
            f"{DERIVATION_KEYS}, after the key that mints now, and open the run again",
            label=label,
        )
    return token


def derive(key: str, awakeable_id: str) -> str:
    """The token that this key makes for this awakeable: 256 bits."""
    message = canonical.dumps(["awakeable", awakeable_id]).encode()
    raw = hmac.new(key.encode(), message, hashlib.sha256).digest()
    return f"{TOKEN_PREFIX}_{base64.urlsafe_b64encode(raw).rstrip(b'=').decode()}"
