"""What people name and say: labels and subjects are one line, reasons may be several, and none controls a terminal."""

from typing import Any

import httpx
import pytest

from moorage.awakeables import checks
from moorage.kernel.errors import RequestInvalid
from moorage.kernel.refusals import check_line, check_reason

MINT = {"ttl_seconds": 60}
CONTROLS = ["\x00", "a\x00b", "\x1b[2J", "a\x07", "\x7f", "\x9b31m", "\r"]
OPERATION = {"op": "mint", "label": "answer", "position": "0", "ttl_seconds": 60}


async def refused_at(answer: httpx.Response, pointer: str) -> None:
    assert answer.status_code == 422, answer.text
    assert answer.json()["code"] == "RequestInvalid"
    assert [one["pointer"] for one in answer.json()["errors"]] == [pointer]


@pytest.mark.parametrize("text", [*CONTROLS, "two\nlines", "a\u2028b"])
async def test_a_label_or_subject_is_one_line_without_control_characters(root: httpx.AsyncClient, text: str) -> None:
    for name in ("subject", "label"):
        await refused_at(await root.post("/awakeables", json={**MINT, name: text}), f"/{name}")
        with pytest.raises(RequestInvalid):
            checks.text(text, name)
    operations = {"epoch": 1, "operations": [{**OPERATION, "subject": text}]}
    answer = await root.post("/executions/exe_none/journal", json=operations)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].endswith("/subject")
    await refused_at(await root.post("/credentials", json={"subject": text, "grants": []}), "/subject")


@pytest.mark.parametrize("text", CONTROLS)
@pytest.mark.parametrize("path", ["/runs/run_none/stop", "/runs/run_none/restart", "/executions/exe_none/rewind"])
async def test_a_reason_holds_no_control_character(root: httpx.AsyncClient, path: str, text: str) -> None:
    await refused_at(await root.post(path, json={"reason": text}), "/reason")
    with pytest.raises(RequestInvalid) as refusal:
        check_reason(text)
    assert [one["pointer"] for one in refusal.value.errors or ()] == ["/reason"]


@pytest.mark.parametrize(
    "text", ["die Prüfung – „ok“", "\u65e5\u672c\u8a9e", "\U0001f469\u200d\U0001f680 \u00a0", "x" * 1000]
)
async def test_what_people_write_is_taken(root: httpx.AsyncClient, text: str) -> None:
    made: dict[str, Any] = (await root.post("/awakeables", json={**MINT, "label": text})).json()
    assert (await root.get(f"/awakeables/{made['id']}")).json()["label"] == text
    check_line(text, "/label")
    check_reason(f"{text[:400]}\n\t{text[:400]}")
    answer = await root.post("/runs/run_none/restart", json={"reason": f"{text[:400]}\n\t{text[:400]}"})
    assert answer.json()["code"] == "RunUnknown"
