"""Whom entries of history may be about: what a subscription may name is what is really written (clause outbox.deliver)."""

import ast
import re
from collections.abc import Iterator

import pytest

from moorage.messages.outbox.fan_out import NEVER_TOLD
from moorage.messages.outbox.subscriptions import SUBJECTS
from ops.setup.paths import ROOT

TYPE = re.compile(r"([a-z_]+)\.[a-z_]+")
WRITERS = frozenset({"Event", "append_selected"})


def written() -> Iterator[str]:
    """The types that the sources write, as far as they stand in the call that writes them."""
    for path in (ROOT / "worker/moorage").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WRITERS:
                yield from (
                    one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)
                )


@pytest.mark.clause("outbox.deliver")
def test_every_entry_that_is_written_may_be_subscribed_to() -> None:
    words = {match[1] for text in written() if (match := TYPE.fullmatch(text))} - {NEVER_TOLD.removesuffix(".")}
    assert words <= set(SUBJECTS)
