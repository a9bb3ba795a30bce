"""Tokens that runs mint: derived, told again, and lost only when their key is."""

import pytest

from moorage.awakeables.derive import derive, keys_of, mint_token, token_for, told
from moorage.awakeables.model import token_sha256
from moorage.journal.model import NO_INPUT, EntryKey, input_hash
from moorage.kernel.errors import AwakeableTokenLost, CapabilityUnwired

NEW, OLD = "n" * 40, "o" * 40
APPROVAL = EntryKey("approval")


@pytest.mark.clause("awake.mint")
def test_a_token_is_the_same_for_the_same_entry_and_another_for_every_other() -> None:
    entries = [
        ("exe_1", APPROVAL),
        ("exe_2", APPROVAL),
        ("exe_1", EntryKey("other")),
        ("exe_1", EntryKey("approval", input_hash(1))),
    ]
    tokens = [derive(key, execution, entry) for key in (NEW, OLD) for execution, entry in entries]
    assert len(set(tokens)) == 8
    assert tokens == [derive(key, execution, entry) for key in (NEW, OLD) for execution, entry in entries]
    for token in tokens:
        assert token.startswith("awk_tok_")
        assert len(token.removeprefix("awk_tok_")) == 43


@pytest.mark.clause("awake.mint")
def test_parts_of_an_entry_do_not_run_into_one_another() -> None:
    assert derive(NEW, "exe_1", EntryKey("ab", NO_INPUT)) != derive(NEW, "exe_1a", EntryKey("b", NO_INPUT))


@pytest.mark.clause("awake.mint")
def test_the_first_key_mints_and_every_key_is_tried() -> None:
    before = mint_token([OLD], "exe_1", APPROVAL)
    stored = token_sha256(before)
    assert token_for([NEW, OLD], stored, "exe_1", APPROVAL) == before
    assert mint_token([NEW, OLD], "exe_1", APPROVAL) != before
    assert token_for([NEW], stored, "exe_1", APPROVAL) is None
    assert token_for([], stored, "exe_1", APPROVAL) is None
    assert token_for([OLD], stored, "exe_2", APPROVAL) is None


@pytest.mark.clause("awake.mint")
def test_a_lost_token_says_how_to_get_it_back() -> None:
    stored = token_sha256(mint_token([OLD], "exe_1", APPROVAL))
    with pytest.raises(AwakeableTokenLost) as lost:
        told([NEW], stored, "exe_1", APPROVAL)
    assert "MOORAGE_DERIVATION_KEYS" in lost.value.detail
    assert "approval" in lost.value.detail
    assert NEW not in str(lost.value.problem())
    assert stored not in str(lost.value.problem())


def test_without_any_key_nothing_is_minted() -> None:
    with pytest.raises(CapabilityUnwired, match="MOORAGE_DERIVATION_KEYS"):
        mint_token([], "exe_1", APPROVAL)


def test_the_root_token_stands_behind_the_keys() -> None:
    assert keys_of([], "root") == ("root",)
    assert keys_of([NEW, OLD], "root") == (NEW, OLD, "root")
    assert keys_of([NEW, NEW], NEW) == (NEW,)
    assert keys_of([], None) == ()
