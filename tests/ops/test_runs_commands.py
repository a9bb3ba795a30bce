"""`moorage runs`, `run` and `bodies`, as a person uses them, against a deployment that executes the examples."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from typer.testing import CliRunner, Result

from moorage.bodies.registry import Registry
from moorage.client import Moorage, Patience
from moorage.kernel.limits import EXPORT_ITEMS
from ops import remote
from ops.cli import SUBCOMMANDS, assemble
from ops.failure import CommandFailed
from tests.examples.deployment import ROOT, URL, Deployment
from tests.examples.upstream import BROKEN, Answer, Upstream

T = TypeVar("T")
Run = Callable[..., Result]


class Elsewhere:
    """An event loop in a thread of its own: each command has a loop that ends with it, and runs go on beside."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)
        self.loop.close()


class Across(httpx.AsyncBaseTransport):
    """A transport to an application in another loop; an answer arrives whole."""

    def __init__(self, there: Elsewhere, inner: httpx.AsyncBaseTransport) -> None:
        self._there, self._inner = there, inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        async def ask() -> httpx.Response:
            answer = await self._inner.handle_async_request(request)
            await answer.aread()
            return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(ask(), self._there.loop))


@pytest.fixture
def there() -> Iterator[Elsewhere]:
    made = Elsewhere()
    yield made
    made.close()


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture
def deployed(there: Elsewhere, tmp_path: Path) -> Iterator[Deployment]:
    async def make() -> Deployment:
        made = Deployment(Registry.of("examples"), tmp_path / "blobs")
        for kind in ("order.closed", "feed.item", "report.summary"):
            await made.moorage.kinds.put(kind, {})
        return made

    made = there.do(make())
    yield made
    there.do(made.close())


@pytest.fixture
def run(there: Elsewhere, deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> Run:
    def connect(_: str, token: str | None, patience: Patience) -> Moorage:
        return Moorage(URL, token, transport=Across(there, deployed.transport), patience=Patience(tries=1))

    monkeypatch.setattr(remote, "connect", connect)
    monkeypatch.setenv("MOORAGE_TOKEN", ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("MOORAGE_URL", raising=False)

    def call(*arguments: str, stdin: str | None = None, status: int = 0) -> Result:
        found = CliRunner().invoke(assemble(list(arguments)), list(arguments), input=stdin)
        assert found.exit_code == status, f"{arguments}: {found.exit_code} {found.output} {found.exception!r}"
        return found

    return call


def order(upstream: Upstream, cents: int = 900) -> str:
    shop = upstream.base("t")
    return json.dumps({"id": "17", "shop": shop, "sku": "lamp", "quantity": 1, "amount_cents": cents})


def lines(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def suspended(run: Run, upstream: Upstream, *more: str) -> str:
    """An order that waits for its approval."""
    (started,) = lines(run("runs", "start", "order", "--input", order(upstream, 50_000), "--json", *more))
    name: str = started["run_id"]
    for _ in range(1000):
        if lines(run("runs", "show", name, "--json"))[0]["status"] == "suspended":
            return name
    raise AssertionError(run("runs", "show", name).stdout)


@pytest.mark.parametrize("group", ["runs", "run", "bodies"])
def test_every_command_says_what_it_does_and_gives_an_example(run: Run, group: str) -> None:
    app = import_module(SUBCOMMANDS[group].module).app
    names = [command.name or command.callback.__name__.rstrip("_") for command in app.registered_commands]
    assert names
    for name in names:
        shown = " ".join(run(group, name, "--help").stdout.split())
        assert f"Example: moorage {group} {name}" in shown
        assert "--url" in shown
        assert "MOORAGE_TOKEN" in shown


def test_bodies_are_listed_and_shown(run: Run) -> None:
    listed = run("bodies").stdout
    assert listed == run("bodies", "list").stdout
    assert [line.split()[0] for line in listed.splitlines()] == ["body", "import", "order", "report"]
    assert [one["name"] for one in lines(run("bodies", "--json"))] == ["import", "order", "report"]
    shown = run("bodies", "show", "order").stdout
    for word in ("reserve", "approval", "implementation", "input_schema", "amount_cents"):
        assert word in shown
    missing = CliRunner().invoke(assemble(["bodies"]), ["bodies", "show", "oder"])
    assert isinstance(missing.exception, CommandFailed)
    assert "import, order, report" in str(missing.exception)
    run("bodies", "--json", "show", "order", status=2)


@pytest.mark.clause("runs.schedule")
def test_a_run_is_started_with_a_schedule(run: Run, upstream: Upstream) -> None:
    upstream.next_answers["t", "/stock"].extend([BROKEN] * 3)
    retry = json.dumps({"attempts": 2, "base_ms": 0, "jitter_ms": 0})
    (ended,) = lines(
        run("runs", "start", "order", "--input", order(upstream), "--retry", retry, "--wait", "--json", status=1)
    )
    assert ended["status"] == "failed"
    (step,) = lines(run("runs", "steps", ended["run_id"], "--json"))
    assert (step["label"], step["attempt"]) == ("reserve", 2)


def test_a_run_is_started_and_waited_for(run: Run, upstream: Upstream) -> None:
    shown = run("runs", "start", "order", "--input", order(upstream), "--scope", "order-17", "--wait")
    assert "started run_" in shown.stderr
    first, _, facts = shown.stdout.splitlines()[:3]
    assert first == "✓ success  order"
    assert facts.startswith("  scope order-17 · attempt 1 · ")
    for label, kind in (("reserve", "fetch"), ("charge", "fetch"), ("ship", "fetch"), ("report", "publish")):
        (line,) = [line for line in shown.stdout.splitlines() if line.startswith(f"✓ {label} ")]
        assert kind in line
    assert '"outcome":"shipped"' in shown.stdout.splitlines()[-1]


def test_a_run_that_fails_is_an_exit_status(run: Run, upstream: Upstream) -> None:
    upstream.next_answers["t", "/payments"].append(Answer(402, {}, effect=False))
    shown = run("runs", "start", "order", "--input", "-", "--wait", stdin=order(upstream), status=1).stdout
    assert shown.startswith("✗ failed  order")
    assert " at charge: " in shown
    (failed,) = [line for line in shown.splitlines() if line.startswith("✗ charge")]
    assert "402" in failed
    (told,) = lines(run("runs", "list", "--status", "failed", "--json"))
    assert "✗ failed  order" in run("runs", "watch", told["run_id"], status=1).stdout.splitlines()


def test_the_same_start_under_a_key_is_the_same_run(run: Run, upstream: Upstream) -> None:
    start = ("runs", "start", "order", "--input", order(upstream), "--key", "k", "--json")
    assert lines(run(*start))[0]["run_id"] == lines(run(*start))[0]["run_id"]


def test_a_run_that_waits_says_for_what_and_until_when(run: Run, upstream: Upstream) -> None:
    shown = run("runs", "show", suspended(run, upstream, "--metadata", '{"team":"shop"}')).stdout
    assert shown.startswith("◷ suspended  order")
    assert "waiting for approval until " in shown
    assert shown.endswith('\nmetadata  {"team":"shop"}\n')
    assert "(in 1 d 23 h)" in shown or "(in 2 d)" in shown


@pytest.mark.clause("runs.not-in-flight", "runs.stop-channel")
def test_a_run_is_stopped_once(run: Run, upstream: Upstream) -> None:
    name = suspended(run, upstream)
    assert run("runs", "stop", name, "--reason", "wrong customer").stdout == f"asked {name} to stop\n"
    assert lines(run("runs", "show", name, "--json"))[0]["status"] == "canceled"
    refused = run("runs", "stop", name, status=1).stderr
    assert refused.startswith("moorage: CancelTargetNotInFlight: ")


@pytest.mark.clause("runs.two-grains")
def test_a_pipeline_is_stopped_whole(run: Run, upstream: Upstream) -> None:
    first, second = (suspended(run, upstream, "--scope", scope) for scope in ("shop", "shop/orders"))
    stopped = run("runs", "stop", first, "--pipeline").stdout
    assert sorted(stopped.split()[1::4]) == sorted([first, second])


@pytest.mark.clause("runs.rewind", "runs.rewind-unsafe", "runs.rewind-not-pending")
def test_what_is_pending_is_rewound_once_nothing_waits_for_it(run: Run, upstream: Upstream) -> None:
    upstream.next_answers["t", "/payments"].append(Answer(402, {}, effect=False))
    run("runs", "start", "order", "--input", order(upstream), "--scope", "s", "--wait", status=1)
    (failed,) = lines(run("runs", "list", "--scope", "s", "--json"))
    held = lines(run("runs", "show", suspended(run, upstream), "--json"))[0]["execution_id"]
    refused = run("run", "rewind", held, "--reason", "r", "--force", status=1).stderr
    assert refused.startswith("moorage: ExecutionRewindUnsafe: ")
    current = run("run", "rewind", failed["execution_id"], "--reason", "r", status=1).stderr
    assert current.startswith("moorage: ExecutionRewindPlanCurrent: ")
    run("run", "rewind", failed["execution_id"], "--reason", "card replaced", "--force")
    marked = [one for one in run("runs", "list").stdout.splitlines() if " canceled (rewind) " in one]
    assert len(marked) == 1
    assert "the record of a rewind: card replaced" in run("runs", "show", marked[0].split()[0]).stdout
    gone = run("run", "rewind", failed["execution_id"], "--reason", "r", "--force", status=1).stderr
    assert gone.startswith("moorage: ExecutionRewindNotPending: ")


def test_a_failed_run_is_restarted_from_a_step(run: Run, upstream: Upstream) -> None:
    upstream.next_answers["t", "/payments"].append(Answer(402, {}, effect=False))
    run("runs", "start", "order", "--input", order(upstream), "--wait", status=1)
    (failed,) = lines(run("runs", "list", "--json"))
    (again,) = lines(run("runs", "restart", failed["run_id"], "--from-step", "charge", "--reason", "r", "--json"))
    run("runs", "watch", again["run_id"])
    assert [one.path for one in upstream.of("t")].count("/stock") == 1


def test_steps_are_listed_with_what_they_recorded(run: Run, upstream: Upstream) -> None:
    name = suspended(run, upstream)
    steps = {one["label"]: one for one in lines(run("runs", "steps", name, "--json")) if one["kind"] != "wait"}
    assert run("runs", "steps", name).stdout.splitlines()[0].split()[:4] == ["position", "label", "kind", "status"]
    (told,) = lines(run("runs", "output", name, steps["reserve"]["output"]["ref"]))
    assert told["status"] == 201


def test_outputs_that_are_gone_are_told_where_they_are_named(run: Run, upstream: Upstream) -> None:
    said = "the run is over: its result is kept, and what its steps returned is not, so no output can be read\n"
    waiting = suspended(run, upstream)
    (ended,) = lines(run("runs", "start", "order", "--input", order(upstream), "--wait", "--json"))
    assert run("runs", "steps", waiting).stderr == ""
    assert run("runs", "steps", ended["run_id"]).stderr == said
    assert run("runs", "steps", ended["run_id"], "--json").stderr == ""
    assert run("runs", "show", ended["run_id"]).stderr == ""


def test_watching_prints_each_change_and_ends_with_the_run(run: Run, upstream: Upstream) -> None:
    (started,) = lines(run("runs", "start", "order", "--input", order(upstream), "--json"))
    told = run("runs", "watch", started["run_id"]).stdout.splitlines()
    assert any("ship" in line and "success" in line for line in told)
    assert '"outcome":"shipped"' in told[-1]
    changes = lines(run("runs", "watch", started["run_id"], "--json"))
    assert changes[-1]["status"] == "success"
    assert run("runs", "watch", "run_nothing", status=1).stderr.startswith("moorage: RunUnknown: ")


@pytest.mark.clause("runs.export", "runs.describe-window", "runs.truncation-flag")
def test_runs_are_listed_by_five_and_exported(run: Run, upstream: Upstream, tmp_path: Path) -> None:
    names = [
        lines(run("runs", "start", "order", "--input", order(upstream), "--wait", "--json"))[0]["run_id"] for _ in range(7)
    ]
    listed = run("runs", "list", "--json")
    assert [one["run_id"] for one in lines(listed)] == names[:1:-1]
    assert "there is more" in listed.stderr
    assert [one["run_id"] for one in lines(run("runs", "list", "--all", "--json"))] == names[::-1]
    assert len(run("runs", "list", "--limit", "3", "--body", "order").stdout.splitlines()) == 4
    assert lines(run("runs", "list", "--body", "report", "--json")) == []

    header, *exported = lines(run("runs", "export"))
    assert (header["count"], header["truncated"], header["window"]["limit"]) == (7, False, 500)
    assert [one["run_id"] for one in exported] == names[::-1]
    file = tmp_path / "runs.ndjson"
    cut = run("runs", "export", str(file), "--limit", "2")
    assert "exported 2 runs" in cut.stdout
    assert "there is more" in cut.stderr
    assert [json.loads(line).get("run_id") for line in file.read_text().splitlines()[1:]] == names[:-3:-1]
    (clamped, *_) = lines(run("runs", "export", "--limit", "999999"))
    assert clamped["window"]["limit"] == EXPORT_ITEMS
    assert lines(run("runs", "export", "--since", "2100-01-01"))[0]["count"] == 0


@pytest.mark.clause("runs.bound-spelling")
@pytest.mark.parametrize("since", ["yesterday", "2026-11-29T00:00:00+01:00", "2026-11-29 00:00:00Z"])
def test_a_bound_that_is_spelled_otherwise_is_refused(run: Run, since: str) -> None:
    for command in ("list", "export"):
        refused = run("runs", command, "--since", since, status=1).stderr
        assert refused.startswith("moorage: HistoryBoundSpelling: ")


def test_an_input_that_does_not_fit_is_told_with_its_pointers(run: Run) -> None:
    told = run("runs", "start", "order", "--input", '{"id":"17"}', status=1).stderr
    assert told.startswith("moorage: InputInvalid: ")
    assert "  at /shop: " in told
