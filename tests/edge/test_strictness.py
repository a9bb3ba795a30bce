"""The local edge refuses what Cloudflare's own Python runtime refuses, and offers what it offers."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.local.config import ConfigInvalid
from ops.local.edge import EdgeFailed, LocalEdge
from tests.edge.conftest import STRICT, EdgeFactory, bundle_of
from tests.edge.http import ask, get, get_when_back, until

pytestmark = [pytest.mark.edge, pytest.mark.clause("edge.local")]

SDK = ("workers", "asgi.py", "_workers_sdk*", "workers_runtime_sdk*")
CONFIG = 'name = "small"\nmain = "entry.py"\ncompatibility_date = "{date}"\ncompatibility_flags = ["python_workers"]\n'
DEFAULT = """
from workers import Response, WorkerEntrypoint
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        return Response(repr(ANSWER))
"""

Small = Callable[..., LocalEdge]


@pytest.fixture
def small(edge_factory: EdgeFactory, tmp_path: Path) -> Small:
    """Makes an unstarted edge of a Worker with nothing but the given source and the platform's SDK."""

    def make(source: str, date: str = "2026-11-01") -> LocalEdge:
        bundle = tmp_path / "bundle"
        vendored = bundle / "python_modules"
        vendored.mkdir(parents=True)
        for pattern in SDK:
            for found in (bundle_of(STRICT) / "python_modules").glob(pattern):
                (shutil.copytree if found.is_dir() else shutil.copy)(found, vendored / found.name)
        (bundle / "entry.py").write_text(source)
        config = tmp_path / "wrangler.toml"
        config.write_text(CONFIG.format(date=date))
        return edge_factory(config, bundle=bundle, state=tmp_path / "state", start=False)

    return make


@pytest.mark.clause("edge.cold-start")
def test_every_source_of_randomness_is_refused_while_modules_are_imported(small: Small) -> None:
    calls = {
        "os.urandom": "os.urandom(4)",
        "uuid.uuid4": "uuid.uuid4()",
        "uuid.uuid7": "uuid.uuid7()",
        "secrets.token_hex": "secrets.token_hex()",
        "secrets.choice": "secrets.choice('ab')",
        "random.random": "random.random()",
        "random.choice": "random.choice('ab')",
        "random.Random": "random.Random()",
        "random.SystemRandom": "random.SystemRandom().random()",
        "tempfile": "tempfile.mkstemp()",
        "crypto": "js.crypto.getRandomValues(js.Uint8Array.new(4))",
    }
    source = f"""
import js, os, random, secrets, tempfile, uuid
CALLS = {calls!r}
ANSWER = []
for name, call in CALLS.items():
    try:
        eval(call)
    except Exception:
        ANSWER.append(name)
seeded = random.Random(7)  # a given seed is no entropy
"""
    with small(source + DEFAULT) as edge:
        assert ask(edge, "/") == (200, repr(list(calls)))


def test_uncaught_randomness_at_import_is_named_with_its_place_and_nothing_starts(small: Small) -> None:
    edge = small("import uuid\n\nKEY = uuid.uuid4()\nANSWER = KEY\n" + DEFAULT)
    with pytest.raises(EdgeFailed, match=r"^entry\.py:3: EntropyAtImport: os\.urandom\(\) was called while") as failure:
        edge.start()
    assert "\n" not in str(failure.value)


def test_the_clock_reads_1970_at_import_and_the_time_in_requests(strict: LocalEdge) -> None:
    seen = get(strict, "/import-time")
    assert seen["clock"] < 1
    assert seen["monotonic"] < 1
    assert seen["now"] > 1_700_000_000


def test_what_a_snapshot_holds_may_be_kept_at_module_level(strict: LocalEdge) -> None:
    seen = get(strict, "/import-time")
    assert (seen["kept_choice"], seen["kept_database"], seen["kept_model"]) == ("a", 7, 1)


@pytest.mark.parametrize(
    ("kept", "named"),
    [
        ("KEPT = js.Object.new()", "entry.KEPT keeps a JavaScript Object"),
        ("KEPT = {'deep': [to_js([1])]}", "entry.KEPT keeps a JavaScript Array"),
        ("class Kept:\n    handler = create_proxy(print)", "entry.Kept keeps a JavaScript"),
    ],
)
def test_a_javascript_object_left_at_module_level_is_refused_by_name(small: Small, kept: str, named: str) -> None:
    source = f"import js\nfrom pyodide.ffi import create_proxy, to_js\n{kept}\nANSWER = 1\n"
    with pytest.raises(EdgeFailed, match=re.escape(named)) as failure:
        small(source + DEFAULT).start()
    assert "\n" not in str(failure.value)


def test_random_numbers_differ_between_starts_though_all_begin_from_one_snapshot(strict: LocalEdge) -> None:
    first = get(strict, "/random")
    strict.kill_workerd()
    second = get_when_back(strict, "/random")
    assert not set(first) & set(second)


def test_durable_object_calls_convert_both_ways(strict: LocalEdge) -> None:
    seen = get(strict, "/durable-object")
    mixed = {"list": [1, 2.5, None, True, {"deep": "é"}], "none": None, "text": "x"}
    assert seen["echoed"] == {"values": [mixed, None, 3, "four"], "types": ["JsDict", "NoneType", "int", "str"]}
    assert seen["blob"] == "00ff"
    assert seen["nothing"] is None
    assert seen["fetched"] == "Request POST over http"
    assert seen["rings"][1] == seen["rings"][0] + 1


def test_an_exception_in_a_durable_object_arrives_as_text(strict: LocalEdge) -> None:
    failure = get(strict, "/durable-object")["failure"]
    assert failure.startswith("JsException: PythonError: Traceback")
    assert "LookupError: the room is empty" in failure


def test_wait_until_runs_coroutines_and_tasks_after_the_answer(strict: LocalEdge) -> None:
    get(strict, "/wait-until")
    for place in ("context", "module", "task"):
        assert until(strict, "/notes", place)[place] == "ran"


def test_code_lies_read_only_where_the_platform_puts_it(strict: LocalEdge) -> None:
    assert get(strict, "/files") == {
        "entry": "/session/metadata/entry.py",
        "package": "/session/metadata/python_modules/workers/asgi.py",
        "code_is_read_only": True,
        "new_code_is_refused": True,
        "code_was_read_only_at_import": True,
        "file_of_import_is_gone": True,
        "tmp_is_writable": True,
        "python": [3, 14],
    }


def test_endpoints_and_dependencies_without_async_work_through_the_platforms_patch(strict: LocalEdge) -> None:
    assert get(strict, "/app/hey") == {"said": "HEY"}


def test_python_may_wait_for_javascript_in_a_plain_call(strict: LocalEdge) -> None:
    assert get(strict, "/run-sync") == "waited"


def test_a_date_that_means_an_older_python_is_refused(small: Small) -> None:
    with pytest.raises(ConfigInvalid, match=r"^compatibility_date 2026-09-07 .*must be 2026-09-08 or later$"):
        small("ANSWER = 1" + DEFAULT, date="2026-09-07").start()


def test_the_worker_sees_its_own_bindings_and_no_others(strict: LocalEdge) -> None:
    assert get(strict, "/environment") == {
        "names": ["BLOBS", "DB", "GREETING", "MOORAGE_ALLOW_LOCAL_DESTINATIONS", "MOORAGE_ROOT_TOKEN", "ROOM", "SETTINGS"],
        "greeting": "hello",
        "depth": 3,
    }
