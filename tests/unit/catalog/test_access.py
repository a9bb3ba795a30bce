"""What a grant gives (clause catalog.grants)."""

from collections.abc import Mapping
from typing import get_args

import pytest

from moorage.catalog.access import ACTIONS, Action, Caller, Grant
from moorage.catalog.kinds import sees
from moorage.kernel.errors import Forbidden

pytestmark = pytest.mark.clause("catalog.grants")


def caller(*grants: Grant) -> Caller:
    """Somebody with these grants and no others."""
    return Caller("someone", grants, "crd_1")


def grant(*actions: Action, kinds: tuple[str, ...] = (), match: Mapping[str, object] | None = None) -> Grant:
    """A grant of these actions."""
    return Grant(frozenset(actions), kinds, match)


def test_the_actions_are_the_documented_eight() -> None:
    assert set(get_args(Action)) == ACTIONS
    assert set(ACTIONS) == {"publish", "read", "claim", "watch", "execute", "resume", "operate", "admin"}


@pytest.mark.parametrize("action", sorted(ACTIONS - {"admin"}))
def test_a_grant_gives_its_action_on_its_kind_and_nothing_else(action: Action) -> None:
    someone = caller(grant(action, kinds=("doc",)))
    assert someone.may(action, "doc")
    assert not someone.may(action, "docs")
    assert not someone.may(action, "do")
    assert not someone.may(action)
    for other in ACTIONS - {action}:
        assert not someone.may(other, "doc")


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_admin_gives_every_action_on_its_kinds(action: Action) -> None:
    assert caller(grant("admin")).may(action)
    assert caller(grant("admin")).may(action, "any")
    assert caller(grant("admin", kinds=("doc",))).may(action, "doc")
    assert not caller(grant("admin", kinds=("doc",))).may(action, "other")
    assert not caller(grant("admin", kinds=("doc",))).may(action)


def test_a_prefix_names_every_kind_that_begins_with_it() -> None:
    someone = caller(grant("read", kinds=("doc.*", "mail")))
    assert someone.may("read", "doc.pdf")
    assert someone.may("read", "doc.")
    assert someone.may("read", "mail")
    assert not someone.may("read", "doc")
    assert not someone.may("read", "mail.in")


def test_somewhere_is_enough_for_what_names_no_kind() -> None:
    assert caller(grant("claim", kinds=("doc",))).may_somewhere(["claim", "read"])
    assert caller(grant("admin", kinds=("doc",))).may_somewhere(["read"])
    assert not caller(grant("publish")).may_somewhere(["read"])
    assert not caller().may_somewhere(ACTIONS)
    assert Caller("root").may_somewhere([])


def test_without_grants_nothing_is_given_and_root_is_given_everything() -> None:
    for action in ACTIONS:
        assert not caller().may(action, "doc")
        assert Caller("root").may(action, "doc")
        assert Caller("root").may(action)
    with pytest.raises(Forbidden, match="does not grant read on kind 'doc'"):
        caller().demand("read", "doc")
    with pytest.raises(Forbidden, match="does not grant read on every kind"):
        caller(grant("read", kinds=("doc",))).demand("read")


def test_a_narrowed_grant_lets_see_what_its_pattern_matches() -> None:
    blue, red = {"team": "blue"}, {"team": "red"}
    narrowed = caller(
        grant("read", kinds=("doc",), match=blue),
        grant("read", kinds=("d*",), match=red),
        grant("claim", match={"a": 1}),
    )
    assert narrowed.narrowing("read", "doc") == [blue, red]
    assert narrowed.narrowing("read", "dog") == [red]
    assert narrowed.narrowing("read", "mail") == []
    assert caller(grant("read", match=blue), grant("read")).narrowing("read", "doc") is None
    assert Caller("root").narrowing("read", "doc") is None


def test_a_kind_is_seen_by_those_with_any_grant_on_it() -> None:
    assert sees(caller(grant("resume", kinds=("doc",))), "doc")
    assert not sees(caller(grant("resume", kinds=("doc",))), "mail")
    assert not sees(caller(), "doc")
