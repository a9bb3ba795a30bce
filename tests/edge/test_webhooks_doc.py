"""The programs of docs/webhooks.md run as they are printed, and its tables tell what there is."""

import json
import os
import re
import subprocess
from typing import get_args

import pytest

from moorage.catalog.model import Scheme
from ops.local.edge import LocalEdge
from ops.setup import paths
from tests.edge.client import client, good

pytestmark = [pytest.mark.edge, pytest.mark.clause("inbox.accept", "awake.senders")]

PAGE = (paths.ROOT / "docs" / "webhooks.md").read_text(encoding="utf-8")


def run(name: str, edge: LocalEdge) -> str:
    """The output of the block of the page whose first line is a comment with this name."""
    [program] = [
        one for one in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if one.startswith(f"# {name}\n")
    ]
    env = os.environ | {"MOORAGE_URL": edge.url, "MOORAGE_TOKEN": edge.root_token, "SHOP_SECRET": "a secret of this page"}
    done = subprocess.run(["bash", "-c", program], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_shop_is_declared_and_what_it_sends_is_one_event(edge: LocalEdge) -> None:
    run("declare.sh", edge)
    first, again = (json.loads(one) for one in run("send.sh", edge).replace("}{", "}\n{").splitlines())
    assert (first["added"], again) == (True, {**first, "added": False})
    with client(edge) as api:
        stored = good(api.get(f"/events/{first['event_id']}"))
    assert (stored["type"], stored["keys"], stored["actor"]) == ("order.paid", ["o-7", "c-1"], "sender:shop")
    assert (stored["id"], stored["event"]["data"]["amount"]) == ("o-7", 1250)


def test_the_page_tells_of_every_scheme() -> None:
    table = PAGE[PAGE.index("## Who sends") :]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)[: len(get_args(Scheme))] == list(get_args(Scheme))
