"""Ids: a prefix, then text that sorts by creation; and which names a client may choose."""

import re
from typing import get_args
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.kernel import ids
from moorage.kernel.errors import IdInvalid
from moorage.kernel.instants import EARLIEST, LATEST, Instant
from moorage.kernel.limits import ID_CHARACTERS

pytestmark = pytest.mark.clause("kernel.ids")

PREFIXES = get_args(ids.Prefix)
CHARACTERS = re.compile(r"[0-9a-hjkmnp-tv-z]{26}")
moments = st.integers(EARLIEST, LATEST).map(Instant)


@given(st.sampled_from(PREFIXES), moments)
def test_an_id_is_its_prefix_and_26_characters(prefix: ids.Prefix, now: Instant) -> None:
    head, _, tail = ids.new(prefix, now).partition("_")
    assert head == prefix
    assert CHARACTERS.fullmatch(tail)


@given(moments, moments)
def test_ids_sort_by_creation(one: Instant, other: Instant) -> None:
    if one != other:
        assert (ids.new("rec", one) < ids.new("rec", other)) == (one < other)


@given(moments, st.integers(0, 500))
def test_a_batch_keeps_its_order_and_its_instant(now: Instant, count: int) -> None:
    batch = ids.several("rec", now, count)
    assert batch == sorted(set(batch))
    assert len(batch) == count
    if batch and now < LATEST:
        assert batch[-1] < ids.new("rec", Instant(now + 1))
        assert batch[0] > ids.new("rec", Instant(now - 1)) if now else True


def test_ids_and_tokens_are_never_the_same_twice() -> None:
    now = Instant(1_795_970_100_000)
    assert len({ids.new("awk", now) for _ in range(5_000)}) == 5_000
    assert len({ids.token("mrg") for _ in range(1_000)}) == 1_000


def test_a_token_holds_256_random_bits() -> None:
    prefix, _, secret = ids.token("awt").partition("_")
    assert prefix == "awt"
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", secret)


def test_an_allocated_id_is_one_that_a_client_may_name() -> None:
    for prefix in PREFIXES:
        made = ids.new(prefix, Instant(5))
        with pytest.raises(IdInvalid):
            ids.check_client_id(made + "/", "id")
        assert ids.check_client_id(made.replace("_", "-"), "id")
        assert ids.check_client_id(made, "id") == made


REFUSED = [
    "a/b",
    "a%2Fb",
    "../x",
    ".",
    "..",
    "a b",
    "a+b",
    "a#b",
    "a?b=1",
    "é",
    "a;b",
    "a\\b",
    "%",
    "%ZZ",
    "a\x00b",
    "x" * 2_000,
    "",
    " a",
    "a\n",
    "k') OR 1=1 --",
]


@pytest.mark.parametrize("value", REFUSED)
def test_an_id_that_could_mean_something_else_in_a_path_is_refused(value: str) -> None:
    with pytest.raises(IdInvalid) as raised:
        ids.check_client_id(value, "a record's id")
    assert raised.value.status == 400
    assert "a record's id" in raised.value.detail
    assert "letters, digits and . _ ~ : @ -" in raised.value.detail or "characters" in raised.value.detail


@pytest.mark.parametrize("value", ["cancel", "A", "a", "a.b", "...", "order:7@x~y_z-", "0"])
def test_an_accepted_id_comes_back_unchanged_and_stands_in_a_path(value: str) -> None:
    assert ids.check_client_id(value, "id") == value
    assert unquote(quote(value, safe="")) == value
    assert "/" not in quote(value)


@given(st.text(max_size=30))
def test_every_accepted_id_holds_only_what_the_message_names(value: str) -> None:
    allowed = bool(re.fullmatch(r"[A-Za-z0-9._~:@-]{1,200}", value)) and value not in (".", "..")
    try:
        accepted = ids.check_client_id(value, "id") == value
    except IdInvalid:
        accepted = False
    assert accepted == allowed


@pytest.mark.clause("kernel.limits")
def test_an_id_has_as_many_characters_as_the_bound_and_not_one_more() -> None:
    assert ids.check_client_id("x" * ID_CHARACTERS, "id") == "x" * ID_CHARACTERS
    with pytest.raises(IdInvalid, match="1 to 200"):
        ids.check_client_id("x" * (ID_CHARACTERS + 1), "id")


@pytest.mark.parametrize("value", ["document", "a", "a.b-c_d", "k" * 100, "github.pull_request"])
def test_kind_names(value: str) -> None:
    assert ids.check_kind(value) == value


@pytest.mark.parametrize("value", ["", "Document", "_own", "9a", "a b", "a/b", "k" * 101, "é", "a\n", ".a", "k') OR 1=1 --"])
def test_what_is_no_kind_name_is_refused(value: str) -> None:
    with pytest.raises(IdInvalid):
        ids.check_kind(value)
