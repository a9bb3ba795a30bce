"""What the commands read and print, wherever that comes from and leads to."""

import io
import json
import re
import sys
from pathlib import Path

import pytest

from ops import cli
from tests.ops.test_commands import Run, docs, house, lines, run, schema, transport

__all__ = ["docs", "house", "run", "schema", "transport"]


def in_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))


def plain(text: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


def test_no_id_and_no_instant_is_broken_over_lines(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        lines(run("events", "send", "payment.received", "--id", f"p-{n}", "--source", "https://pay.example/acme", "--json"))[
            0
        ]
        for n in range(2)
    ]
    in_a_terminal(monkeypatch, 80)
    shown = plain(run("events", "list").stdout)
    assert [line.split(None, 1)[1] for line in shown if line.startswith("event ")] == [one["event_id"] for one in made]
    assert shown[1].split() == ["accepted", made[0]["accepted_at"]]
    assert "" in shown
    assert max(map(len, shown)) <= 80
    in_a_terminal(monkeypatch, 200)
    table = plain(run("events", "list").stdout)
    assert [line.split()[0] for line in table] == ["event", *(one["event_id"] for one in made)]


def test_only_long_texts_are_folded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("kv", "put", "ns", "cursor", json.dumps("x" * 100))
    [made] = lines(run("kv", "get", "ns", "cursor", "--json"))
    in_a_terminal(monkeypatch, 80)
    shown = plain(run("kv", "list", "ns").stdout)
    assert shown[1].split()[:3] == ["cursor", "1", made["updated_at"]]
    assert len(shown) > 2
    assert max(map(len, shown)) <= 80


def test_headers_are_folded_before_a_table_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("destinations", "put", "elsewhere", "https://a.example")
    in_a_terminal(monkeypatch, 80)
    wide = plain(run("deliveries", "summary").stdout)
    assert "blocked until" not in " ".join(wide)
    assert any(line.startswith("elsewhere ") for line in wide)


def test_nothing_that_was_stored_controls_the_terminal(run: Run) -> None:
    hostile = "a\x1b[31m\x9b2J\x7f\u2028\u202eb"
    run("kv", "put", "ns", "k", "-", stdin=json.dumps(hostile))
    run("kinds", "declare", "doc")
    [record] = lines(run("records", "publish", "doc", "-", "--json", stdin=json.dumps({"a": hostile})))
    assert json.loads(run("kv", "get", "ns", "k").stdout) == hostile
    for arguments in (
        ("kv", "get", "ns", "k"),
        ("kv", "list", "ns"),
        ("records", "list", "doc"),
        ("records", "show", record["id"]),
    ):
        for more in ((), ("--json",)):
            assert set(run(*arguments, *more).stdout).isdisjoint("\x1b\x9b\x7f\u2028\u202e")
    assert len(run("kv", "list", "ns").stdout.splitlines()) == 2


def test_an_empty_table_is_its_header(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_terminal(monkeypatch, 80)
    assert [line.split() for line in plain(run("kv", "list", "ns").stdout)] == [["key", "revision", "updated", "value"]]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("NaN", "NaN"),
        ("[Infinity]", "Infinity"),
        ("1e999", "1e999"),
        ('{"a":1,"a":2}', "twice"),
        ("9007199254740993", "9007199254740993"),
        ("9007199254740993.0", "9007199254740993.0"),
        ('"\\ud800"', "hex escape"),
        ("[" * 5000, "nested"),
        ("", "not JSON"),
    ],
)
def test_json_that_would_not_arrive_as_it_is_written_is_refused(run: Run, written: str, said: str) -> None:
    assert said in run("kv", "put", "ns", "k", written, status=2).output
    assert said in run("kv", "put", "ns", "k", "-", stdin=written, status=2).output
    run("kv", "get", "ns", "k", status=1)


def test_json_is_read_from_files_in_utf8_alone(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "value.json"
    file.write_text('"ü"', encoding="utf-8")
    run("kv", "put", "ns", "k", f"@{file}")
    assert run("kv", "get", "ns", "k").stdout == '"ü"\n'
    file.write_bytes(b'"\xfc"')
    assert "UTF-8" in run("kv", "put", "ns", "k", f"@{file}", status=2).output
    assert "No such file" in run("kv", "put", "ns", "k", f"@{tmp_path}/none", status=2).output


@pytest.mark.parametrize("line", ["NaN", '{"id": 1e999}', '{"id":"a","id":"b"}'])
def test_a_line_that_is_no_json_is_named(run: Run, line: str) -> None:
    assert "line 2" in str(run("events", "send", stdin=f"\n{line}\n", status=1).exception)


@pytest.mark.parametrize(
    "arguments",
    [
        ("timers", "put", "t", "--type", "a", "--at"),
        ("schedules", "next", "--every", "60", "--after"),
        ("schedules", "backfill", "s", "--end", "2027-01-01T00:00:00Z", "--start"),
        ("credentials", "create", "s", "--expires-at"),
        ("records", "publish", "doc", "{}", "--not-before"),
    ],
)
def test_an_instant_needs_its_offset(docs: Run, arguments: tuple[str, ...]) -> None:
    outside = ("9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+23:00")
    for wrong, said in (("2027-01-01T00:00:00", "offset"), ("soon", "instant"), *((one, "outside") for one in outside)):
        told = docs(*arguments, wrong, status=2).output
        assert arguments[-1] in told
        assert said in told


@pytest.mark.parametrize("arguments", [("events", "send"), ("deliveries", "redeliver"), ("schedules", "next")])
def test_a_usage_has_no_bracket_twice(run: Run, arguments: tuple[str, ...]) -> None:
    assert "[[" not in run(*arguments, "--help").output


def called(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """How a whole command ends."""
    monkeypatch.setattr(sys, "argv", ["moorage", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


@pytest.mark.parametrize("group", ["history", "runs"])
def test_a_file_that_cannot_be_written_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, group: str
) -> None:
    (tmp_path / "file").touch()
    for where, why in (("none/x", "No such file or directory"), ("", "Is a directory"), ("file/x", "Not a directory")):
        wanted = tmp_path / where
        assert called(monkeypatch, group, "export", str(wanted)) == f"moorage: {wanted}: {why}"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_json_is_json_in_every_encoding(run: Run, monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    run("kv", "put", "ns", "k", '"ü… 😀"')
    into = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(into, encoding=encoding))
    assert called(monkeypatch, "kv", "get", "ns", "k") == 0
    assert json.loads(into.getvalue()) == "ü… 😀"
    run("kv", "put", "ns", "k", json.dumps("x" * 100))
    assert called(monkeypatch, "kv", "list", "ns") == 0
    assert b"\\u2026" in into.getvalue()


def test_a_command_needs_nowhere_to_print_to(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("kv", "put", "ns", "k", "1")
    monkeypatch.setattr(sys, "stdout", None)
    assert called(monkeypatch, "kv", "list", "ns") == 0


def test_an_interrupt_at_any_time_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "import_module", interrupted)
    assert called(monkeypatch, "kv", "list", "ns") == 130


@pytest.mark.parametrize("url", ["nonsense", "ftp://a", "http://", "http://a:99999", "http://a:x", "http://[::1", "http:/a"])
def test_what_is_no_address_is_told(run: Run, url: str) -> None:
    assert f"{url!r} is no address" in str(run("kv", "list", "ns", "--url", url, status=1).exception)


@pytest.mark.parametrize("arguments", [("kv", "get", "ns", "k"), ("kv", "list", "ns")])
def test_a_full_disk_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    run("kv", "put", "ns", "k", "1")
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert "No space left" in str(called(monkeypatch, *arguments))
