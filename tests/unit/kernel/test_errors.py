"""The tree of errors: what is drawn is what is there, each error travels whole, and the set of tags is closed."""

import json
import pickle
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from moorage.kernel import errors
from moorage.kernel.errors import RETRYABLE_TAGS, FailureTag, MoorageError, every_error, reference, title_of

EVERY = list(every_error())
LEAVES = [cls for cls in EVERY if not cls.__subclasses__()]
GROUPS = {cls.__name__ for cls in EVERY if cls.__subclasses__()}


def drawing() -> str:
    """The part of the module's docstring that is the tree."""
    lines = (errors.__doc__ or "").splitlines()
    start = next(number for number, line in enumerate(lines) if line.strip() == "MoorageError")
    end = next(number for number, line in enumerate(lines[start:], start) if not line.strip())
    return "\n".join(lines[start + 1 : end])


def drawn() -> Iterator[tuple[str, str, int | None]]:
    """(name, parent, status) of each class in the drawing; a status stands for all names since the one before it."""
    group = "MoorageError"
    waiting: list[tuple[str, str]] = []
    for line in drawing().splitlines():
        outer = line[4:7] in ("|- ", "`- ")
        for word in re.findall(r"\b[A-Z][A-Za-z]+\b|\b\d{3}\b", line):
            if word.isdigit():
                yield from ((name, parent, int(word)) for name, parent in waiting)
                waiting = []
            elif outer:
                group = word if word in GROUPS else group
                if word in GROUPS:
                    yield word, "MoorageError", None
                else:
                    waiting.append((word, "MoorageError"))
            else:
                waiting.append((word, group))
    assert not waiting, f"no status is drawn for {waiting}"


@pytest.mark.clause("kernel.problem")
def test_the_tree_draws_every_class_exactly_once() -> None:
    assert Counter(name for name, _, _ in drawn()) == Counter(cls.__name__ for cls in EVERY)


@pytest.mark.clause("kernel.problem")
def test_the_tree_draws_each_class_under_its_parent_and_with_its_status() -> None:
    by_name = {cls.__name__: cls for cls in EVERY}
    for name, parent, status in drawn():
        assert by_name[name].__bases__[0].__name__ == parent
        if status is not None:
            assert (name, by_name[name].status) == (name, status)


@pytest.mark.clause("kernel.failure-tag")
def test_the_set_of_tags_is_closed() -> None:
    assert [tag.value for tag in FailureTag] == [
        "Invalid",
        "Unauthenticated",
        "Forbidden",
        "Unknown",
        "Conflict",
        "Fenced",
        "TimedOut",
        "TooLarge",
        "RateLimited",
        "Transient",
        "Incompatible",
        "Corrupt",
        "Canceled",
        "Permanent",
    ]
    assert {MoorageError.tag, *(cls.tag for cls in EVERY)} <= set(FailureTag)
    with pytest.raises(ValueError, match="Other"):
        FailureTag("Other")


@pytest.mark.clause("kernel.failure-tag")
@pytest.mark.parametrize("cls", LEAVES)
def test_what_may_be_tried_again_follows_from_the_tag_alone(cls: type[MoorageError]) -> None:
    assert cls().retryable is (cls.tag in RETRYABLE_TAGS)
    assert cls().problem()["tag"] in {tag.value for tag in FailureTag}


@pytest.mark.clause("kernel.problem")
@pytest.mark.parametrize("cls", LEAVES)
def test_every_error_is_a_problem_with_its_name_as_code(cls: type[MoorageError]) -> None:
    problem = cls(retry_after=1.5, errors=[{"pointer": "/a", "message": "m"}], record="rec_1").problem()
    assert problem["code"] == cls.__name__
    assert problem["type"] == f"/errors#{cls.__name__}"
    assert problem["title"] == title_of(cls)
    assert problem["status"] == cls.status
    assert 400 <= cls.status <= 599
    assert problem["detail"] == cls.meaning()
    assert problem["retryable"] is (cls.tag in RETRYABLE_TAGS)
    assert (problem["retry_after"], problem["record"]) == (1.5, "rec_1")
    assert problem["errors"] == [{"pointer": "/a", "message": "m"}]
    json.dumps(problem)


@pytest.mark.clause("kernel.problem")
def test_what_is_not_known_is_not_in_the_problem() -> None:
    assert errors.RecordUnknown().problem().keys() == {"type", "title", "status", "detail", "code", "tag", "retryable"}


def test_titles_are_words() -> None:
    assert title_of(errors.LeaseFenced) == "Lease fenced"
    assert title_of(errors.RateLimited) == "Rate limited"


@pytest.mark.parametrize("cls", EVERY)
def test_every_error_means_something_and_says_it_once(cls: type[MoorageError]) -> None:
    assert cls.__doc__ is not None
    assert cls.meaning().endswith((".", "!"))
    assert cls.meaning() != MoorageError.meaning()
    assert Counter(other.meaning() for other in EVERY)[cls.meaning()] == 1


@pytest.mark.parametrize("cls", EVERY)
def test_an_error_survives_pickling_whole(cls: type[MoorageError]) -> None:
    error = cls("detail é", errors=[{"pointer": "/x", "message": "y"}], retry_after=2.0, epoch=3)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(copy) is cls
    assert copy.problem() == error.problem()
    assert str(copy) == str(error) == "detail é"


@pytest.mark.clause("kernel.problem")
def test_the_reference_lists_every_leaf() -> None:
    listed = reference()
    assert [entry["code"] for entry in listed] == [cls.__name__ for cls in LEAVES]
    assert all(entry["meaning"] and isinstance(entry["retryable"], bool) for entry in listed)
    json.dumps(listed)
