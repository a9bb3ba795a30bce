"""Tokens that runs mint: derived, told again, and lost only when their key is."""

import pytest

from moorage.awakeables.derive import derive, keys_of, mint_token, token_for, told
from moorage.awakeables.model import token_sha256
from moorage.kernel.errors import AwakeableTokenLost, CapabilityUnwired

NEW, OLD = "n" * 40, "o" * 40


@pytest.mark.clause("awake.mint")
def test_a_token_is_the_same_for_the_same_awakeable_and_another_for_every_other() -> None:
    made = [(key, awakeable) for key in (NEW, OLD) for awakeable in ("awk_1", "awk_2")]
    tokens = [derive(*one) for one in made]
    assert len(set(tokens)) == 4
    assert tokens == [derive(*one) for one in made]
    for token in tokens:
        assert token.startswith("awk_tok_")
        assert len(token.removeprefix("awk_tok_")) == 43


@pytest.mark.clause("awake.mint")
def test_the_first_key_mints_and_every_key_is_tried() -> None:
    before = mint_token([OLD], "awk_1")
    stored = token_sha256(before)
    assert token_for([NEW, OLD], stored, "awk_1") == before
    assert mint_token([NEW, OLD], "awk_1") != before
    assert token_for([NEW], stored, "awk_1") is None
    assert token_for([], stored, "awk_1") is None
    assert token_for([OLD], stored, "awk_2") is None


@pytest.mark.clause("awake.mint")
def test_a_lost_token_says_how_to_get_it_back() -> None:
    stored = token_sha256(mint_token([OLD], "awk_1"))
    with pytest.raises(AwakeableTokenLost) as lost:
        told([NEW], stored, "awk_1", "approval")
    assert "MOORAGE_DERIVATION_KEYS" in lost.value.detail
    assert "approval" in lost.value.detail
    assert NEW not in str(lost.value.problem())
    assert stored not in str(lost.value.problem())


def test_without_any_key_nothing_is_minted() -> None:
    with pytest.raises(CapabilityUnwired, match="MOORAGE_DERIVATION_KEYS"):
        mint_token([], "awk_1")


def test_the_root_token_stands_behind_the_keys() -> None:
    assert keys_of([], "root") == ("root",)
    assert keys_of([NEW, OLD], "root") == (NEW, OLD, "root")
    assert keys_of([NEW, NEW], NEW) == (NEW,)
    assert keys_of([], None) == ()
