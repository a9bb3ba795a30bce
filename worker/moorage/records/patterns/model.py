"""What a pattern is once it is read: tests of one path each, joined by every, some and not."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from moorage.catalog.paths import DeclaredPath


class Operator(StrEnum):
    """The operators on one path."""

    EQ = "$eq"
    NE = "$ne"
    GT = "$gt"
    GTE = "$gte"
    LT = "$lt"
    LTE = "$lte"
    IN = "$in"
    NIN = "$nin"
    EXISTS = "$exists"
    ANY = "$any"
    ALL = "$all"
    SIZE = "$size"


RANGES = frozenset({Operator.GT, Operator.GTE, Operator.LT, Operator.LTE})
ARRAYS = frozenset({Operator.ANY, Operator.ALL, Operator.SIZE})
LISTS = frozenset({Operator.IN, Operator.NIN, Operator.ANY, Operator.ALL})


@dataclass(frozen=True)
class Test:
    """One operator on one path. The operand is a JSON value of the path's type, or a list of such for LISTS."""

    __test__ = False  # not a test class for pytest

    path: DeclaredPath
    operator: Operator
    operand: Any


@dataclass(frozen=True)
class Every:
    """All of the terms hold; with no terms it matches everything."""

    terms: tuple["Pattern", ...]


@dataclass(frozen=True)
class Some:
    """At least one term holds; with no terms it matches nothing."""

    terms: tuple["Pattern", ...]


@dataclass(frozen=True)
class Not:
    """The exact complement of a pattern, over all bodies."""

    term: "Pattern"


Pattern = Test | Every | Some | Not

EVERYTHING = Every(())


def both(*patterns: Pattern) -> Pattern:
    """The records that all of the patterns match: a caller's own pattern narrowed by that of a grant."""
    return patterns[0] if len(patterns) == 1 else Every(patterns)
