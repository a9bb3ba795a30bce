"""The commands and requests that README.md and the pages about time, messages and values print work as they stand."""

import asyncio
import re
import shlex
from collections.abc import Iterator

import httpx
import pytest

from moorage.api.app import build_app
from ops.setup import paths
from tests.ops.test_commands import Run, house, lines, run, schema, transport
from tests.unit.api.conftest import ROOT, House, client_of

__all__ = ["house", "run", "schema", "transport"]

PAGES = ("README.md", *(f"docs/{page}.md" for page in ("kv", "timers", "schedules", "events", "webhooks", "deliveries")))

LASTING = {"up", "receive", "demo", "bench", "deploy", "wrangler", "storage", "runs", "tail", "watch", "ANSWER_AT"}
"""What needs a deployment of its own, a run under way, or an end by Ctrl-C."""

FILED = '{"specversion": "1.0", "source": "https://pay.example/acme", "id": "f-1", "type": "payment.received"}\n'
"""What stands in a file that a page reads."""

MEANT = {"MOORAGE_URL": "http://moorage.test", "MOORAGE_TOKEN": ROOT, "MOORAGE": "http://moorage.test"}


def printed(page: str) -> Iterator[list[str]]:
    """The words of each command of the page's shell blocks that stands by itself."""
    text = (paths.ROOT / page).read_text(encoding="utf-8")
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if block.startswith("# "):
            continue  # a program, which has a test of its own on the edge
        for words in commands(block):
            if words[0].removeprefix("./") in ("moorage", "curl") and not LASTING & {*words[1:3], words[-1]}:
                yield words


def commands(block: str) -> Iterator[list[str]]:
    held = ""
    for line in block.splitlines():
        held += line
        try:
            words = shlex.split(held.removesuffix("\\"), comments=True)
        except ValueError:
            held += "\n"
            continue
        if held.endswith("\\"):
            held = held.removesuffix("\\")
        else:
            held = ""
            if words:
                yield words


async def curl(house: House, words: list[str]) -> httpx.Response:
    """What `curl` would be answered."""
    method, content, headers, url = "", None, {}, ""
    rest = iter([re.sub(r"\$(\w+)", lambda found: MEANT[found[1]], word) for word in words[1:]])
    for word in rest:
        if word == "-X":
            method = next(rest)
        elif word == "-d":
            content = next(rest)
        elif word == "-H":
            name, _, value = next(rest).partition(": ")
            headers[name] = value
        elif not word.startswith("-"):
            url = word
    async with client_of(build_app(house.ports()), None) as client:
        return await client.request(method or ("GET" if content is None else "POST"), url, content=content, headers=headers)


async def offer(house: House) -> None:
    """The bodies that the pages name: the deployment's own `hello`, and what README.md declares."""
    async with client_of(build_app(house.ports())) as client:
        for body in ("hello", "shipping"):
            answer = await client.put(f"/bodies/{body}", json={"build": {"implementation": "0" * 64}})
            assert answer.status_code == 200, answer.text


@pytest.mark.clause("kv.ops", "inbox.consumer")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_prints_what_works(run: Run, house: House, page: str) -> None:
    house.secrets.update(dict.fromkeys(("SHOP_SECRET", "CRM_SECRET"), "whsec_c2VjcmV0LW9mLXRoZS1yZWFkbWUtMDI0"))
    asyncio.run(offer(house))
    # README.md's deployment may send to this machine; this one may not.
    told = {"http://127.0.0.1:9000/hook": "https://crm.example.test/hook"}
    found = list(printed(page))
    for words in found:
        if words[0] == "curl":
            answer = asyncio.run(curl(house, words))
            assert answer.is_success, f"{words}: {answer.text}"
            continue
        if words[1:3] == ["claims", "take"]:
            [claim] = lines(run(*words[1:], "--json"))
            told |= {"RECORD": claim["record"]["id"], "EPOCH": str(claim["lease"]["epoch"])}
            continue
        given = FILED if "<" in words else None
        run(*(told.get(word, word) for word in words[1 : None if given is None else words.index("<")]), stdin=given)
    assert found
