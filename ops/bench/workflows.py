"""`moorage bench --workflows`: runs beside Cloudflare Workflows, with the same trivial steps, on the same machine.

Both are served by workerd under Miniflare, one after the other, and asked over HTTP by this process in the same way: one
request starts a run and is answered when it has ended. Moorage waits for the end where that is told (`wait_seconds`). The
binding of Workflows has no such wait, so there the Worker asks for the state without a pause, beside the engine, which is
the fastest that it offers; its engine answers between two steps, so that this is no busy loop. Workflows' engine is
JavaScript in workerd and keeps its state in a Durable Object's SQLite; Moorage's is Python in workerd and keeps its in D1.
Neither is the platform itself, where D1 and Durable Objects are a network away: what is compared is what the two engines
add.
"""

import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final, Protocol

import httpx
from rich.console import Console
from rich.table import Table

from moorage.kernel.limits import WAIT_SECONDS
from ops.bench.baseline import Baseline
from ops.bundle import build_bundle, with_bodies
from ops.failure import CommandFailed
from ops.local.edge import EdgeConfig, LocalEdge
from ops.setup import paths

STEPS: Final = 100
CALLERS: Final = (1, 10)
BODIES: Final = Path(__file__).parent / "bodies"
_SCRIPT: Final = Path(__file__).parent / "workflows.mjs"
_COUNTING: Final = Path(__file__).parent / "counting" / "counting.py"
_COUNT: Final = "/bench/trips"
_PATIENCE_SECONDS: Final = 120.0
_WAIT: Final = int(WAIT_SECONDS)
_WARM_RUNS: Final = 50
"""What each side does before it is measured: compilers take so long until they have done with what runs often."""

_QUIET_SECONDS: Final = 4.0
"""More than a run of 100 steps takes."""

_SETTLE_SECONDS: Final = 0.3
"""How long a run is left alone until it waits for its signal, on both sides."""


class Side(Protocol):
    """One of the two, asked over HTTP. Each method may be called by several threads, each with a client of its own."""

    name: str

    def client(self) -> httpx.Client:
        """A client of its own."""

    def start(self, client: httpx.Client, steps: int) -> str:
        """Start a run of so many steps, and answer its id as soon as it is accepted."""

    def whole(self, client: httpx.Client, steps: int) -> None:
        """Start a run of so many steps, and answer once it has ended well. Raises CommandFailed when it has not."""

    def await_signal(self, client: httpx.Client) -> tuple[str, str]:
        """Start a run that waits for a signal: its id, and where to send the signal."""

    def signal(self, client: httpx.Client, where: str) -> None:
        """Send the signal."""

    def ended(self, client: httpx.Client, run: str, *, wait: bool = False) -> bool:
        """Whether it has ended well; with `wait` once it has ended, or after a while. Raises CommandFailed when it has ended
        in another way."""


@dataclass(frozen=True)
class Figures:
    """What was measured of one side: medians in milliseconds, and one-step runs a second by callers. `trips` are D1 round
    trips of a run of one step, its admission included, and of each further step."""

    name: str
    run_ms: float
    step_ms: float
    per_second: dict[int, float]
    signal_ms: float
    trips: tuple[float, float] | None = None


def measure(side: Side, repeat: int) -> Figures:
    """Measure one side. A step's time is what 100 steps took beyond one, by 99."""
    with side.client() as client:
        for _ in range(_WARM_RUNS):
            _whole(side, client, 1)
        one = median(_whole(side, client, 1) for _ in range(max(repeat, 10)))
        many = median(_whole(side, client, STEPS) for _ in range(max(repeat // 5, 3)))
        signals = median(_signalled(side, client) for _ in range(max(repeat // 3, 5)))
    rates = {callers: _rate(side, callers, repeat * callers) for callers in CALLERS}
    return Figures(side.name, one * 1000, (many - one) * 1000 / (STEPS - 1), rates, signals * 1000)


def _whole(side: Side, client: httpx.Client, steps: int) -> float:
    """Seconds from asking for a run to seeing that it has ended."""
    started = time.monotonic()
    side.whole(client, steps)
    return time.monotonic() - started


def _signalled(side: Side, client: httpx.Client) -> float:
    """Seconds from sending the signal to seeing that the run has ended."""
    run, where = side.await_signal(client)
    time.sleep(_SETTLE_SECONDS)
    started = time.monotonic()
    side.signal(client, where)
    _until_ended(side, client, run)
    return time.monotonic() - started


def _until_ended(side: Side, client: httpx.Client, run: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not side.ended(client, run, wait=True):
        if time.monotonic() > deadline:
            raise CommandFailed(f"{side.name}: a run did not end within {_PATIENCE_SECONDS:.0f} s")


def _rate(side: Side, callers: int, runs: int) -> float:
    """One-step runs a second when so many callers each wait for theirs."""
    numbers = itertools.count()
    lock = threading.Lock()

    def call() -> None:
        with side.client() as client:
            while True:
                with lock:
                    if next(numbers) >= runs:
                        return
                _whole(side, client, 1)

    started = time.monotonic()
    with ThreadPoolExecutor(callers) as pool:
        for done in [pool.submit(call) for _ in range(callers)]:
            done.result()
    return runs / (time.monotonic() - started)


# --- Cloudflare Workflows --------------------------------------------------------------------------------------------


class Workflows:
    """Workflows under Miniflare."""

    name = "Cloudflare Workflows"

    def __init__(self, url: str) -> None:
        self._url = url

    def client(self) -> httpx.Client:
        """A client of its own."""
        return httpx.Client(base_url=self._url, timeout=60)

    def start(self, client: httpx.Client, steps: int) -> str:
        """Start a workflow of so many steps."""
        return str(_good(client.post("/steps", json={"steps": steps}))["id"])

    def whole(self, client: httpx.Client, steps: int) -> None:
        """Start a workflow, and wait in the Worker."""
        _completed(_good(client.post("/steps?wait", json={"steps": steps}))["status"])

    def await_signal(self, client: httpx.Client) -> tuple[str, str]:
        """Start a workflow that waits for an event."""
        run = str(_good(client.post("/signal", json={}))["id"])
        return f"signal/{run}", f"/signal/{run}/signal"

    def signal(self, client: httpx.Client, where: str) -> None:
        """Send the event."""
        _good(client.post(where, json={"go": True}))

    def ended(self, client: httpx.Client, run: str, *, wait: bool = False) -> bool:
        """Whether it is complete."""
        path = f"/{run}" if "/" in run else f"/steps/{run}"
        status = _good(client.get(f"{path}?wait" if wait else path))["status"]
        if status in ("errored", "terminated"):
            _completed(status)
        return bool(status == "complete")


def _completed(status: str) -> None:
    if status != "complete":
        raise CommandFailed(f"a workflow ended as {status}; a bench measures what works")


# --- Moorage ---------------------------------------------------------------------------------------------------------


class Runs:
    """Runs on the local edge, of the bodies in ops/bench/bodies."""

    name = "Moorage"

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}

    def client(self) -> httpx.Client:
        """A client of its own."""
        return httpx.Client(base_url=self._url, headers=self._headers, timeout=60)

    def start(self, client: httpx.Client, steps: int) -> str:
        """Start a run of so many steps."""
        return str(_good(client.post("/runs", json={"body": "steps", "input": steps}))["run_id"])

    def whole(self, client: httpx.Client, steps: int) -> None:
        """Start a run, and let the answer wait for its end."""
        told = _good(client.post("/runs", params={"wait_seconds": _WAIT}, json={"body": "steps", "input": steps}))
        if not _succeeded(told["run"]):
            _until_ended(self, client, told["run_id"])

    def await_signal(self, client: httpx.Client) -> tuple[str, str]:
        """Start a run that waits for an awakeable, whose token it puts into its metadata."""
        run = str(_good(client.post("/runs", json={"body": "signal"}))["run_id"])
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            token = _good(client.get(f"/runs/{run}")).get("metadata", {}).get("token")
            if token:
                return run, f"/awake/{token}"
            time.sleep(0.02)
        raise CommandFailed("a run did not come to wait for its signal")

    def signal(self, client: httpx.Client, where: str) -> None:
        """Resolve the awakeable."""
        client.post(where, json={"go": True}).raise_for_status()

    def ended(self, client: httpx.Client, run: str, *, wait: bool = False) -> bool:
        """Whether it has succeeded."""
        return _succeeded(_good(client.get(f"/runs/{run}", params={"wait_seconds": _WAIT} if wait else None)))


def _succeeded(run: dict[str, Any]) -> bool:
    if run["status"] in ("failed", "partial_failure", "canceled"):
        raise CommandFailed(f"a run ended as {run['status']}: {run.get('error')}; a bench measures what works")
    return bool(run["status"] == "success")


def trips(side: Runs) -> tuple[float, float]:
    """D1 round trips of a one-step run from its admission to its end, and of each further step, as the isolate counts them.

    Nobody asks how a run stands meanwhile. Whatever else the isolate does in that time is counted too: the keeper of
    leases, and the Clock.
    """
    with side.client() as client:
        counts = {steps: median(_trips_of(client, side, steps) for _ in range(5)) for steps in (1, STEPS)}
    return counts[1], (counts[STEPS] - counts[1]) / (STEPS - 1)


def _trips_of(client: httpx.Client, side: Runs, steps: int) -> int:
    before = int(client.get(_COUNT).raise_for_status().text)
    run = side.start(client, steps)
    time.sleep(_QUIET_SECONDS)
    after = int(client.get(_COUNT).raise_for_status().text)
    if not side.ended(client, run):
        raise CommandFailed(f"a run of {steps} steps did not end within {_QUIET_SECONDS:.0f} s")
    return after - before


def with_prelude(project: Path, module: Path) -> Path:
    """Let a project that `with_bodies` made import a module before its entry module; returns the project."""
    entry = project / "worker" / "entry.py"
    shutil.copy2(module, entry.parent / module.name)
    entry.write_text(f"import {module.stem}  # before what it changes\n{entry.read_text()}")
    shutil.copy2(paths.ROOT / "package-lock.json", project / "package-lock.json")
    return project


@contextmanager
def moorage(folder: Path, *, counting: bool = False) -> Iterator[Runs]:
    """Moorage on the local edge with the bench's bodies; `counting` serves how many round trips to D1 there were."""
    project, builds = paths.ROOT, paths.ROOT / "build"
    if counting:
        project = with_prelude(with_bodies(paths.ROOT, BODIES, builds / "bench-project"), _COUNTING)
        bundle = build_bundle(project, builds / "bundle-counting")
    else:
        bundle = build_bundle(paths.ROOT, builds / "bundle-bench", bodies=BODIES)
    with LocalEdge(EdgeConfig(folder / "state", bundle.path, project / "wrangler.toml")) as edge:
        yield Runs(edge.url, edge.root_token)


@contextmanager
def workflows(folder: Path) -> Iterator[Workflows]:
    """Workflows under Miniflare."""
    with Baseline(folder / "workflows", _SCRIPT, prepare=False) as running:
        yield Workflows(running.url)


def compare(folder: Path, repeat: int, say: Callable[[str], None]) -> list[Figures]:
    """Measure both, one after the other, so that neither works while the other is measured."""
    say("measuring Cloudflare Workflows")
    with workflows(folder) as theirs:
        figures = [measure(theirs, repeat)]
    say("measuring Moorage")
    with moorage(folder / "timed") as ours:
        measured = measure(ours, repeat)
    say("counting round trips to D1")
    with moorage(folder / "counted", counting=True) as ours:
        figures.append(replace(measured, trips=trips(ours)))
    return figures


# --- Telling it ------------------------------------------------------------------------------------------------------


def lines(figures: Figures) -> list[tuple[str, float, bool]]:
    """Each figure's name and value, and whether more is better."""
    rates = [(f"one-step runs a second, {callers} at a time", rate, True) for callers, rate in figures.per_second.items()]
    return [
        ("ms for a run of one step", figures.run_ms, False),
        (f"ms for a step, over {STEPS} steps", figures.step_ms, False),
        *rates,
        ("ms from a signal to the run's end", figures.signal_ms, False),
    ]


def show(figures: Sequence[Figures]) -> None:
    """Print both side by side, and how many times as much Moorage takes (or does) as Workflows."""
    theirs, ours = figures
    table = Table(title="Runs beside Cloudflare Workflows", title_justify="left", title_style="bold")
    table.add_column("over HTTP, on this machine")
    for name in (theirs.name, ours.name, "Moorage / Workflows"):
        table.add_column(name, justify="right")
    for (name, their, _), (_, our, more) in zip(lines(theirs), lines(ours), strict=True):
        table.add_row(name, f"{their:.1f}", f"{our:.1f}", f"{our / their:.2f} ×{' (more is better)' if more else ''}")
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"Medians, after {_WARM_RUNS} runs. Both run on workerd under Miniflare, one after the other, and are asked the "
        "same way: one request starts a run and is answered when it has ended. Moorage waits for the end (wait_seconds); "
        "Workflows' binding has no such wait, and its Worker asks for the state without a pause, beside the engine. "
        "Workflows keeps its state in a Durable Object beside its engine; Moorage keeps its in D1, its engine is Python. "
        "On the platform D1 is a network away: count its round trips rather than these milliseconds.",
        soft_wrap=False,
    )
    if ours.trips is not None:
        first, further = ours.trips
        console.print(
            f"D1 round trips, counted in the isolate: {first:g} for a run of one step from its admission to its end, and "
            f"{further:.2f} for each further step, renewals and looks for a stop included."
        )


def as_json(figures: Sequence[Figures]) -> dict[str, Any]:
    """The same as one object."""
    theirs, ours = figures
    return {
        "figures": [
            {"figure": name, "workflows": round(their, 3), "moorage": round(our, 3), "ratio": round(our / their, 3)}
            for (name, their, _), (_, our, _) in zip(lines(theirs), lines(ours), strict=True)
        ],
        "d1_trips": None if ours.trips is None else {"one_step_run": ours.trips[0], "further_step": round(ours.trips[1], 3)},
    }


def _good(answer: httpx.Response) -> dict[str, Any]:
    if answer.is_error:
        raise CommandFailed(f"{answer.request.method} {answer.request.url.path}: {answer.status_code} {answer.text[:200]}")
    found: dict[str, Any] = answer.json()
    return found
