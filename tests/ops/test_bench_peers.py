"""The comparison with Postgres, and what is said where there is none."""

import pytest

from ops.bench import peers


def test_where_postgres_is_not_installed_the_comparison_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(peers, "_PLACES", ())
    said = peers.postgres(1, 1)
    assert isinstance(said, str)
    assert "not installed" in said
    assert peers.as_json([], said) == {"paces": [], "skipped": said}


def test_postgres_does_the_same_work_and_all_of_it_where_it_is_installed() -> None:
    """Every turn takes its records and consumes them: the run itself fails otherwise."""
    found = peers.postgres(3, 2)
    if isinstance(found, str):
        assert "nothing to compare with" in found
    else:
        assert [(one.at_once, one.records) for one in found] == [(1, 3), (peers.BATCH, 200)]
        assert all(one.rate > 0 for one in found)
