"""Which events fit which wait (clause waits.match).

A wait names keys, types and a pattern over the event's data, and an event fits that carries one of the keys, is of one of
the types, and whose data matches: what a wait does not name, it does not ask about. At least a key or a type is named: by
that the wait is found. The pattern has the one meaning that patterns have everywhere, over any path of the data.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from moorage.kernel import canonical
from moorage.kernel.errors import JsonInvalid, PatternInvalid, RequestInvalid
from moorage.kernel.limits import EVENT_WAIT_KEYS, EVENT_WAIT_MATCH_BYTES
from moorage.kernel.refusals import check_line
from moorage.messages.filters import AnyPath
from moorage.messages.inbox.model import KEY_TERM, TYPE_TERM
from moorage.records.patterns import Pattern, evaluate, parse


@dataclass(frozen=True, slots=True)
class Filter:
    """What a wait is for. `match` is the canonical JSON of its pattern, or None."""

    keys: tuple[str, ...]
    types: tuple[str, ...]
    match: str | None = None

    @classmethod
    def checked(cls, keys: Sequence[str], types: Sequence[str], match: Mapping[str, Any] | None) -> "Filter":
        """The filter, if it is within bounds. Raises RequestInvalid for neither a key nor a type, for more than
        EVENT_WAIT_KEYS of either, for one twice, empty or too long, and for a pattern past EVENT_WAIT_MATCH_BYTES;
        PatternInvalid for one that is none."""
        if not keys and not types:
            raise RequestInvalid("a wait for an event names at least one key or one type")
        for name, found in (("keys", keys), ("types", types)):
            if len(found) > EVENT_WAIT_KEYS:
                raise RequestInvalid(f"a wait for an event names at most {EVENT_WAIT_KEYS} {name}")
            if len(set(found)) < len(found):
                raise RequestInvalid(f"a wait for an event names one of its {name} twice")
            for one in found:
                check_line(one, f"/{name}")
        return cls(tuple(keys), tuple(types), None if match is None else _checked(match))

    @property
    def terms(self) -> list[str]:
        """By what the wait is found: any of its keys, or any of its types where it names no key."""
        return [KEY_TERM + key for key in self.keys] or [TYPE_TERM + type_ for type_ in self.types]

    def fits(self, type_: str, keys: Collection[str], data: str | None) -> bool:
        """Whether an event of this type, with these keys and this data, is one that the wait is for."""
        if self.types and type_ not in self.types:
            return False
        if self.keys and not any(key in keys for key in self.keys):
            return False
        return self.match is None or evaluate(_pattern(self.match), None if data is None else _value(data))


def _checked(match: Mapping[str, Any]) -> str:
    try:
        text = canonical.dumps(dict(match))
    except JsonInvalid as error:
        raise PatternInvalid(f"the pattern {error.detail}") from None
    if (size := canonical.size(text)) > EVENT_WAIT_MATCH_BYTES:
        raise RequestInvalid(f"the pattern of a wait has {size} bytes; at most {EVENT_WAIT_MATCH_BYTES} are taken")
    parse(canonical.stored(text), AnyPath())
    return text


@lru_cache(maxsize=256)
def _pattern(match: str) -> Pattern:
    return parse(canonical.stored(match), AnyPath())


@lru_cache(maxsize=1)
def _value(data: str) -> Any:
    """The data of an event, which is read once for all waits that it is held against one after the other."""
    return canonical.stored(data)
