"""Patterns: data that says which records are meant, with one meaning everywhere.

`parse` reads the client's JSON against a kind's declared paths, `compile` turns the result into SQL over slots, and
`evaluate` answers the same question for one body in plain Python. The two share no code below the model, and tests hold
them to the same answer (clause records.pattern-one-meaning).
"""

from moorage.records.patterns.access import claim_candidates
from moorage.records.patterns.compile import Compiled, Conjunct, compile
from moorage.records.patterns.evaluate import evaluate
from moorage.records.patterns.model import EVERYTHING, Every, Not, Operator, Pattern, Some, Test, both
from moorage.records.patterns.parse import parse

__all__ = [
    "EVERYTHING",
    "Compiled",
    "Conjunct",
    "Every",
    "Not",
    "Operator",
    "Pattern",
    "Some",
    "Test",
    "both",
    "claim_candidates",
    "compile",
    "evaluate",
    "parse",
]
