"""The names of scopes: what a client may choose, what is derived, and that the two never meet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.kernel import ids
from moorage.kernel.errors import IdInvalid
from moorage.kernel.instants import Instant
from moorage.kernel.limits import ID_CHARACTERS, SCOPE_CHARACTERS
from moorage.runs import scopes

SEGMENT = st.text(st.sampled_from("abzAZ09._~:@-"), min_size=1, max_size=12).filter(lambda text: text not in (".", ".."))
DECLARED = st.lists(SEGMENT, min_size=1, max_size=5).map("/".join)
LABELS = st.text(min_size=1, max_size=100)


@pytest.mark.clause("runs.host-scope")
@given(DECLARED, LABELS, st.sampled_from(["0" * 64, "f" * 64]))
def test_a_declared_scope_is_kept_as_it_is_and_a_childs_is_derived(parent: str, label: str, input_sha256: str) -> None:
    assert scopes.check_declared(parent) == parent
    child = scopes.child_scope(parent, label, input_sha256)
    assert scopes.is_derived(child)
    assert scopes.check_derived(child) == child
    with pytest.raises(IdInvalid):
        scopes.check_declared(child)
    low, high = scopes.below(parent)
    assert low <= child < high


@pytest.mark.clause("runs.host-scope")
@given(LABELS, LABELS)
def test_children_of_one_parent_have_scopes_of_their_own(one: str, other: str) -> None:
    inputs = ("0" * 64, "1" * 64)
    made = {scopes.child_scope("p", label, sha) for label in (one, other) for sha in inputs}
    assert len(made) == 2 * len({one, other})
    assert scopes.child_scope("p", one, inputs[0]) == scopes.child_scope("p", one, inputs[0])


@pytest.mark.clause("runs.two-grains")
@given(DECLARED, DECLARED)
def test_what_lies_below_a_scope(scope: str, other: str) -> None:
    low, high = scopes.below(scope)
    assert (low <= other < high) == other.startswith(f"{scope}/")


@pytest.mark.clause("runs.host-scope")
def test_what_a_client_may_not_choose() -> None:
    run = ids.new("run", Instant(1_800_000_000_000))
    for scope in (run, f"{run}/a", "a+b", "", "/", "a/", "a//b", "./a", "a b", "a\n", "ä", "x" * (ID_CHARACTERS + 1)):
        with pytest.raises(IdInvalid):
            scopes.check_declared(scope)
    for scope in (f"{run}x", "run_x", "x" * ID_CHARACTERS, f"a/{run}"):
        assert scopes.check_declared(scope) == scope
    for scope in (f"{run}/+", f"{run}/a+b", f"{run}//a", f"{run}/{'x' * SCOPE_CHARACTERS}"):
        with pytest.raises(IdInvalid):
            scopes.check_derived(scope)


@pytest.mark.clause("kernel.limits")
def test_nesting_ends_before_a_scope_is_too_long() -> None:
    scope = "p"
    for _ in range(10):
        scope = scopes.child_scope(scope, "x" * 100, "0" * 64)
    while len(scope) <= SCOPE_CHARACTERS - 60:
        scope = scopes.child_scope(scope, "x" * 100, "0" * 64)
    with pytest.raises(IdInvalid):
        scopes.child_scope(scope, "x" * 100, "0" * 64)
    assert len(scope) <= SCOPE_CHARACTERS
