"""What holds for every command that speaks to a deployment."""

from collections.abc import Iterator
from importlib import import_module

import pytest
from typer.core import TyperCommand, TyperOption
from typer.main import get_command

from moorage.client.records import Records
from ops.cli import SUBCOMMANDS, assemble
from tests.ops.test_commands import Run, docs, house, lines, run, schema, transport

__all__ = ["docs", "house", "run", "schema", "transport"]

SPEAKS = [name for name, one in SUBCOMMANDS.items() if hasattr(import_module(one.module), "app")]


def _commands() -> Iterator[tuple[str, TyperCommand]]:
    for group in SPEAKS:
        found = get_command(assemble([group]))
        for name, command in found.commands[group].commands.items():  # type: ignore[attr-defined]
            yield f"{group} {name}", command


def _numbers() -> Iterator[tuple[str, TyperCommand, TyperOption]]:
    for name, command in _commands():
        for option in command.params:
            if isinstance(option, TyperOption) and option.type_descriptor.annotation is float:
                yield f"{name} {option.opts[0]}", command, option


@pytest.mark.clause("kernel.limits")
@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_no_option_takes_what_is_no_number(number: str) -> None:
    met = list(_numbers())
    assert len(met) > 8
    for name, command, option in met:
        with pytest.raises(Exception) as refusal:  # noqa: PT011 - Typer's own class of it is private
            option.process_value(command.make_context(command.name, [], resilient_parsing=True), number)
        assert getattr(refusal.value, "exit_code", None) == 2, name


PRINT_WHAT_IS_KEPT = {"artifacts download", "backup prepare", "history export", "runs export", "runs output"}
"""Commands without --json: what they write is bytes, or JSON already."""


def test_every_command_has_an_answer_for_programs() -> None:
    without = {name for name, command in _commands() if not any(one.name == "as_json" for one in command.params)}
    assert without == PRINT_WHAT_IS_KEPT


@pytest.mark.clause("kernel.ids")
@pytest.mark.parametrize("command", ["kinds show", "runs show", "timers delete", "records history", "credentials revoke"])
def test_an_id_that_a_shell_left_empty_is_told_in_one_line(docs: Run, command: str) -> None:
    told = docs(*command.split(), "", status=1).stderr
    assert (told.count("\n"), "IdInvalid: '' is no id or name" in told) == (1, True)


def test_an_id_or_a_key_that_a_shell_left_empty_is_not_replaced_by_one_of_ours(docs: Run) -> None:
    assert "Idempotency-Key" in docs("records", "publish", "doc", "{}", "--key", "", status=1).stderr
    assert "/id" in docs("events", "send", "ping", "{}", "--id", "", status=1).stderr


def test_the_history_of_a_record_that_never_was_is_no_empty_table(docs: Run) -> None:
    assert "RecordUnknown" in docs("records", "history", "rec_x", status=1).stderr


@pytest.mark.clause("records.dead-letter")
def test_a_requeue_that_breaks_off_tells_how_far_it_came(docs: Run) -> None:
    docs("records", "publish", "doc", "{}", "--id", "r1")
    docs("claims", "take", "doc")
    docs("claims", "fail", "r1", "1", "--message", "m", "--tag", "Permanent")
    told = docs("dead-letters", "requeue", "r1", "r2", "r3", "--reason", "r", status=1).stderr
    assert told.startswith("requeued 1 of 3, those before r2\nmoorage: RecordUnknown: ")


def test_what_a_problem_says_of_the_whole_request_is_said_once(docs: Run) -> None:
    told = docs("artifacts", "upload", __file__, "--media-type", "a\nb", status=1).stderr
    assert told == "moorage: RequestInvalid: the header Content-Type cannot hold 'a\\nb'\n"


def test_what_ends_a_thing_names_it(docs: Run) -> None:
    record, credential = "r1", lines(docs("credentials", "create", "w", "--grant", "claim:doc", "--json"))[0]["id"]
    docs("records", "publish", "doc", '{"n":1}', "--id", record)
    docs("kv", "put", "ns", "k", "1")
    docs("timers", "put", "t", "--type", "ping", "--in", "60")
    docs("schedules", "put", "s", "--every", "60", "--record", '{"kind":"doc","body":{}}')
    docs("senders", "put", "shop", "--scheme", "bearer", "--secret", "a-secret-of-some-length")
    docs("destinations", "put", "crm", "https://crm.example.com/hook")
    docs("subscriptions", "put", "all", "--destination", "crm", "--type", "record.*")
    docs("claims", "take", "doc")
    for command, told in (
        (("kv", "delete", "ns", "k"), {"deleted": "ns/k"}),
        (("timers", "delete", "t"), {"deleted": "t"}),
        (("schedules", "delete", "s"), {"deleted": "s"}),
        (("senders", "delete", "shop"), {"deleted": "shop"}),
        (("subscriptions", "delete", "all"), {"deleted": "all"}),
        (("claims", "release", record, "1"), {"released": record}),
        (("credentials", "revoke", credential), {"revoked": credential}),
    ):
        assert lines(docs(*command, "--json")) == [told]


def test_one_of_a_thing_is_told_as_one(docs: Run) -> None:
    told = docs("records", "import", "-", stdin='{"kind":"doc","body":{}}\n').stdout
    assert told == "published 1 record\n"


@pytest.mark.clause("records.idempotent")
def test_an_import_that_is_interrupted_tells_how_it_goes_on(docs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Records, "publish_batch", interrupted)
    told = docs("records", "import", "-", stdin='{"kind":"doc","body":{}}\n', status=130).stderr
    assert told.startswith("0 records published; --key import-")
