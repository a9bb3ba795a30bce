"""`moorage history` against the application on SQLite, and the page that says how to verify an export without it."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from moorage.api.app import build_app
from moorage.client import Moorage, Patience
from moorage.history import chain
from ops import history, remote
from ops.failure import CommandFailed
from tests.contract.adapters import ROOT as CHECKOUT
from tests.unit.api.conftest import ROOT, House, house, schema

__all__ = ["house", "schema"]

pytestmark = pytest.mark.clause("history.seal")

PAGE = CHECKOUT / "docs" / "history.md"
Run = Callable[..., Result]


class Deployment:
    """A deployment on the host, and the command line that is pointed at it."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.transport = httpx.ASGITransport(app=build_app(house.ports()))

    def client(self, url: str = "http://moorage.test", token: str | None = ROOT, _: Patience = remote.BRIEF) -> Moorage:
        return Moorage(url, token, transport=self.transport)

    def publish(self, count: int) -> None:
        """Publish records, each an entry of history."""

        async def work() -> None:
            async with self.client() as moorage:
                await moorage.kinds.put("doc", {})
                for number in range(count):
                    await moorage.records.publish("doc", {"n": number}, metadata={"note": 'é\\ "quoted" 😀'})

        asyncio.run(work())

    def run(self, *arguments: str, token: str | None = ROOT) -> Result:
        given = ["--token", token] if token and "--file" not in arguments else []
        return CliRunner().invoke(history.app, [*arguments, *given])

    def edit(self, sql: str) -> None:
        self.house.connection.execute(sql)


@pytest.fixture
def deployment(house: House, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    made = Deployment(house)
    monkeypatch.setattr(remote, "connect", made.client)
    monkeypatch.delenv("MOORAGE_TOKEN", raising=False)
    return made


def good(result: Result) -> str:
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def sealed(deployment: Deployment) -> str:
    """Seal everything; the end as POSITION:LINK."""
    return good(deployment.run("seal")).split()[-1]


def test_entries_are_listed_and_shown(deployment: Deployment) -> None:
    deployment.publish(3)
    table = good(deployment.run("list", "--limit", "2"))
    assert "record.published" in table
    assert "rec_" in table
    lines = good(deployment.run("list", "--json", "--after", "1")).splitlines()
    positions = [json.loads(line)["position"] for line in lines]
    assert positions == list(range(2, 2 + len(positions)))
    assert json.loads(good(deployment.run("show", "2", "--json")))["link"] is None
    end = sealed(deployment)
    last = int(end.partition(":")[0])
    assert json.loads(good(deployment.run("show", str(last), "--json")))["link"] == end.partition(":")[2]
    assert "content_sha256" in good(deployment.run("show", "2"))
    missing = deployment.run("show", "99")
    assert isinstance(missing.exception, CommandFailed)


def test_a_whole_chain_verifies_and_a_broken_one_ends_with_status_1(deployment: Deployment) -> None:
    assert "nothing is sealed yet" in good(deployment.run("verify"))
    deployment.publish(520)
    end = sealed(deployment)
    total = int(end.partition(":")[0])
    assert f"{total} entries hold; the chain ends with {end}" in good(deployment.run("verify"))
    assert json.loads(good(deployment.run("verify", "--json", "--content", "--head", end)))["checked"] == total
    deployment.edit("UPDATE history SET actor = 'nobody' WHERE position = 513")
    broken = deployment.run("verify")
    assert broken.exit_code == 1
    assert "broken at position 513" in broken.stderr
    told = deployment.run("verify", "--json")
    assert (told.exit_code, json.loads(told.stdout)["broken"]["position"]) == (1, 513)
    assert deployment.run("verify", "--after", "513").exit_code == 0


def test_a_noted_end_finds_a_history_that_was_cut_off_and_sealed_anew(deployment: Deployment) -> None:
    deployment.publish(4)
    end = sealed(deployment)
    deployment.edit("DELETE FROM seals")
    deployment.edit("DELETE FROM history WHERE position > 3")
    sealed(deployment)
    assert deployment.run("verify").exit_code == 0
    found = deployment.run("verify", "--head", end)
    assert (found.exit_code, "position 4" in found.stderr) == (1, True)


@pytest.mark.parametrize("head", ["7", "x:" + "0" * 64, "0:" + "0" * 64, "3:" + "A" * 64, f"{2**53}:" + "0" * 64])
def test_a_head_that_is_none_is_wrong_usage(deployment: Deployment, head: str) -> None:
    assert deployment.run("verify", "--head", head).exit_code == 2


def test_an_export_is_continued_and_verifies_by_itself_and_by_the_pages_script(
    deployment: Deployment, tmp_path: Path
) -> None:
    file = tmp_path / "history.ndjson"
    deployment.publish(3)
    first_end = sealed(deployment)
    good(deployment.run("export", str(file)))
    before = file.read_bytes()
    good(deployment.run("export", str(file)))
    assert file.read_bytes() == before
    deployment.publish(2)
    end = sealed(deployment)
    file.write_bytes(before + b'{"link":"cut off in the mid')
    good(deployment.run("export", str(file)))
    assert file.read_bytes().startswith(before)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[0] == {"format": chain.FORMAT, "after": 0, "previous": chain.GENESIS}
    assert [line["entry"]["position"] for line in lines[1:]] == list(range(1, len(lines)))
    assert good(deployment.run("verify", "--file", str(file), "--head", first_end)).split()[-1] == end
    assert script(file.read_text()) == (0, end + "\n")


def test_an_export_from_the_middle_verifies(deployment: Deployment, tmp_path: Path) -> None:
    deployment.publish(5)
    end = sealed(deployment)
    file = tmp_path / "part.ndjson"
    good(deployment.run("export", str(file), "--after", "3"))
    assert script(file.read_text()) == (0, end + "\n")
    assert good(deployment.run("verify", "--file", str(file))).split()[-1] == end
    again = deployment.run("export", str(file), "--after", "3")
    assert again.exit_code == 2
    beyond = deployment.run("export", str(tmp_path / "none"), "--after", "99")
    assert isinstance(beyond.exception, CommandFailed)


def test_an_export_to_standard_output_is_the_same(deployment: Deployment, tmp_path: Path) -> None:
    deployment.publish(2)
    sealed(deployment)
    file = tmp_path / "history.ndjson"
    good(deployment.run("export", str(file)))
    assert good(deployment.run("export")) == file.read_text()
    assert good(deployment.run("export", "-")) == file.read_text()
    assert good(deployment.run("export", "-", "--after", "2")).count("\n") == 2


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE history SET actor = 'nobody' WHERE position = 3",
        "UPDATE history SET data = data || char(10) WHERE position = 3",
        "UPDATE history SET data = '{' WHERE position = 3",
        "DELETE FROM history WHERE position = 3",
        "UPDATE seals SET links = substr(links, 1, 2 * 64) || 'f00' || substr(links, 2 * 64 + 4)",
    ],
)
def test_whatever_was_edited_is_found_in_an_export(deployment: Deployment, tmp_path: Path, edit: str) -> None:
    deployment.publish(5)
    sealed(deployment)
    deployment.edit(edit)
    file = tmp_path / "history.ndjson"
    good(deployment.run("export", str(file)))
    assert script(file.read_text()) == (1, "broken at position 3\n")
    found = deployment.run("verify", "--file", str(file))
    assert (found.exit_code, "position 3" in found.stderr) == (1, True)


def test_an_export_is_not_continued_over_an_edited_chain(deployment: Deployment, tmp_path: Path) -> None:
    deployment.publish(3)
    sealed(deployment)
    file = tmp_path / "history.ndjson"
    good(deployment.run("export", str(file)))
    deployment.edit("UPDATE history SET actor = 'nobody' WHERE position = 1")
    deployment.edit("DELETE FROM seals")
    deployment.publish(1)
    sealed(deployment)
    before = file.read_bytes()
    refused = deployment.run("export", str(file))
    assert isinstance(refused.exception, CommandFailed)
    assert "was edited" in str(refused.exception)
    assert file.read_bytes() == before


def test_a_file_that_is_no_export_is_left_alone(deployment: Deployment, tmp_path: Path) -> None:
    file = tmp_path / "letters.txt"
    file.write_text("Dear Sir,\nwithout an end")
    for arguments in (("export", str(file)), ("verify", "--file", str(file))):
        assert isinstance(deployment.run(*arguments).exception, CommandFailed)
    assert file.read_text() == "Dear Sir,\nwithout an end"


def test_without_a_credential_the_command_says_what_to_do(deployment: Deployment) -> None:
    refused = deployment.run("verify", token=None)
    assert refused.exit_code == 1
    assert "MOORAGE_TOKEN" in refused.stderr


def blocks(language: str) -> list[str]:
    """The page's fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def script(export: str) -> tuple[int, str]:
    """What the page's script says of an export."""
    [text] = blocks("sh")
    done = subprocess.run(["sh", "-c", text], input=export.encode(), capture_output=True, check=False)
    assert done.stderr == b""
    return done.returncode, done.stdout.decode()


def test_the_pages_example_is_what_its_script_and_the_product_make_of_it() -> None:
    [export] = blocks("json")
    end, broken = blocks("text")
    assert script(export) == (0, end)
    assert script(export.replace("intake", "nobody")) == (1, broken)
    previous = chain.GENESIS
    told: dict[str, Any] = {}
    for line in export.splitlines()[1:]:
        told = json.loads(line)
        text = line[line.index('"entry":') + len('"entry":') : -1]
        previous = chain.link(previous, text)
        assert told["link"] == previous
    assert end == f"{told['entry']['position']}:{previous}\n"


@pytest.mark.parametrize("edit", ["header", "cut", "twice", "moved", "start"])
def test_the_pages_script_finds_what_is_wrong_with_lines(edit: str) -> None:
    header, *entries = blocks("json")[0].splitlines(keepends=True)
    made = {
        "header": ["{}\n", *entries],
        "cut": [header, entries[0], entries[1][:-20]],
        "twice": [header, entries[0], entries[0]],
        "moved": [header, entries[0], entries[2], entries[1]],
        "start": [header.replace('"after":0', '"after":1'), entries[1]],
    }
    position = "header" if edit == "header" else "2"
    assert script("".join(made[edit])) == (1, f"broken at position {position}\n")


def test_the_command_line_has_the_group() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli", "history", "--help"], cwd=CHECKOUT, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": f"{CHECKOUT / 'worker'}:{CHECKOUT}", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in ("list", "show", "seal", "verify", "export"))
