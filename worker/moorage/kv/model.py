"""The nouns of small values (clause kv.ops)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from moorage.kernel import canonical
from moorage.kernel.errors import PayloadTooLarge
from moorage.kernel.ids import check_client_id
from moorage.kernel.instants import Instant, render
from moorage.kernel.limits import KV_CHANGES, KV_VALUE_BYTES
from moorage.kernel.refusals import refused
from moorage.store.transaction import Row

SUBJECT: Final = "kv:"
"""How history calls a key: `kv:<namespace>/<key>`. No id has a slash, so nothing else is called so."""


def subject_of(namespace: str, key: str) -> str:
    """The subject of a key in history."""
    return f"{SUBJECT}{namespace}/{key}"


def check_names(namespace: str, key: str) -> None:
    """Raise IdInvalid unless namespace and key are names: 1 to ID_CHARACTERS characters that may stand in a path."""
    check_client_id(namespace, "a namespace")
    check_client_id(key, "a key")


@dataclass(frozen=True, slots=True)
class Entry:
    """A value under its key. `revision` counts every put and deletion of the key, and never goes back."""

    namespace: str
    key: str
    value: Any
    revision: int
    updated_at: Instant

    @classmethod
    def of(cls, row: Row) -> "Entry":
        """The value that a row holds; a copy."""
        value = canonical.stored(row["value"])
        return cls(row["namespace"], row["key"], value, row["revision"], row["updated_at"])

    def answer(self) -> dict[str, Any]:
        """What a client is shown."""
        return {
            "namespace": self.namespace,
            "key": self.key,
            "value": self.value,
            "revision": self.revision,
            "updated_at": render(self.updated_at),
        }


@dataclass(frozen=True, slots=True)
class Change:
    """A value to put under a key, as canonical JSON; None deletes the key."""

    namespace: str
    key: str
    text: str | None

    @classmethod
    def put(cls, namespace: str, key: str, value: Any) -> "Change":
        """A put. Raises IdInvalid for an empty or malformed name, PayloadTooLarge past KV_VALUE_BYTES."""
        check_names(namespace, key)
        text = canonical.dumps(value)
        if canonical.size(text) > KV_VALUE_BYTES:
            raise PayloadTooLarge(f"a value has at most {KV_VALUE_BYTES} bytes as canonical JSON", limit=int(KV_VALUE_BYTES))
        return cls(namespace, key, text)

    @classmethod
    def delete(cls, namespace: str, key: str) -> "Change":
        """A deletion, of what may be absent. Raises IdInvalid."""
        check_names(namespace, key)
        return cls(namespace, key, None)

    @property
    def subject(self) -> str:
        """The key's subject in history."""
        return subject_of(self.namespace, self.key)


def changes_of(wished: Mapping[str, Mapping[str, Any]]) -> list[Change]:
    """What `{namespace: {key: value or null}}` asks for; null deletes.

    Raises RequestInvalid past KV_CHANGES, and what `Change.put` raises.
    """
    if sum(len(keys) for keys in wished.values()) > KV_CHANGES:
        raise refused("/kv", f"changes more than {KV_CHANGES} keys")
    return [
        Change.delete(namespace, key) if value is None else Change.put(namespace, key, value)
        for namespace, keys in wished.items()
        for key, value in keys.items()
    ]
