"""The host that docs/hosts.md prints is patient with a deployment that is away, and only then."""

import json
import re
import threading
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ops.setup import paths

PAGE = paths.ROOT / "docs" / "hosts.md"


@contextmanager
def answering(*statuses: int | None) -> Iterator[str]:
    """A deployment that gives these answers, one after the other; None hangs up without one."""
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status = left.pop(0)
            self.rfile.read(int(self.headers["content-length"]))
            if status is None:
                self.close_connection = True
                return
            told = json.dumps({"status": status}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
    assert left == []


def caller(url: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Callable[..., Any], list[float]]:
    """The page's `call`, and the seconds that it would have slept."""
    (program,) = re.findall(
        r"^```python\n(# host\.py\n.*?)^class ", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    names: dict[str, Any] = {"__file__": __file__}
    exec(compile(program, "host.py", "exec"), names)  # noqa: S102 - it is what the page prints
    slept: list[float] = []
    monkeypatch.setattr(names["time"], "sleep", slept.append)
    monkeypatch.setenv("MOORAGE_URL", url)
    monkeypatch.setenv("MOORAGE_TOKEN", "t")
    return names["call"], slept


def test_a_deployment_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(*[503, None, 530, 429] * 4, 200) as url:
        call, slept = caller(url, monkeypatch)
        assert call("POST", "/executions/claim", {}) == {"status": 200}
    assert len(slept) == 16
    assert sum(slept) > 100
    assert max(slept) == 10


@pytest.mark.parametrize("status", [401, 409, 422, 500])
def test_a_refusal_is_told_at_once(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(status) as url:
        call, slept = caller(url, monkeypatch)
        with pytest.raises(urllib.error.HTTPError) as refused:
            call("POST", "/executions/claim", {})
    assert (refused.value.code, slept) == (status, [])
