"""`moorage bench`: what each operation costs, counted by D1 itself, beside the budget that it must keep."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import httpx
import typer

from ops.bench import designs as comparison
from ops.bench import executions, messages, peers, report, workflows
from ops.bench.baseline import Baseline
from ops.bench.budget import Measured
from ops.bench.load import load_ready_records
from ops.bench.operations import OPERATIONS, SCALED, Bench
from ops.bundle import build_bundle
from ops.failure import CommandFailed
from ops.local.edge import EdgeConfig, LocalEdge
from ops.setup import paths
from ops.up import TEST_CLOCK


def command(
    scale: Annotated[int, typer.Option(help="Load this many ready records first; 0 measures a small store.", min=0)] = 0,
    repeat: Annotated[int, typer.Option(help="How often each operation is measured.", min=1, max=1000)] = 30,
    designs: Annotated[bool, typer.Option("--designs", help="Compare ways of keeping records instead.")] = False,
    beside: Annotated[bool, typer.Option("--peers", help="Compare claim and settle with Postgres instead.")] = False,
    flows: Annotated[bool, typer.Option("--workflows", help="Compare runs with Cloudflare Workflows instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Measure every operation on the local edge; exit 1 when one costs more than its budget."""
    if designs:
        _compare(scale, repeat, as_json=as_json)
        return
    if beside:
        _beside_peers(repeat, as_json=as_json)
        return
    if flows:
        _beside_workflows(repeat, as_json=as_json)
        return
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as folder:
        results = _run(Path(folder), scale, repeat, quiet=as_json)
    if as_json:
        print(json.dumps(report.as_json(results), indent=2))
    else:
        report.show(results)
    broken = [one.operation.name for one in results.measured if not one.within_budget]
    if broken:
        raise CommandFailed(f"over budget: {', '.join(broken)}")
    uneven = results.uneven()
    if uneven:
        raise CommandFailed(f"the cost grows with the backlog: {', '.join(uneven)}")


def _compare(scale: int, repeat: int, *, as_json: bool) -> None:
    figures = comparison.measure(scale, repeat)
    if as_json:
        print(json.dumps(comparison.as_json(figures, scale), indent=2))
    else:
        comparison.show(figures, scale)


def _beside_peers(repeat: int, *, as_json: bool) -> None:
    """Ten times `repeat` records one by one, and `repeat` batches, by each."""
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as folder:
        bundle = build_bundle(paths.ROOT, paths.ROOT / "build" / "bundle")
        with _bench(EdgeConfig(Path(folder) / "state", bundle.path, paths.ROOT / "wrangler.toml")) as (_, bench):
            paces = peers.moorage(bench, repeat * 10, repeat)
    other = peers.postgres(repeat * 10, repeat)
    missing = other if isinstance(other, str) else None
    paces += [] if isinstance(other, str) else other
    if as_json:
        print(json.dumps(peers.as_json(paces, missing), indent=2))
    else:
        peers.show(paces, missing)


def _beside_workflows(repeat: int, *, as_json: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as folder:
        figures = workflows.compare(Path(folder), repeat, report.silent if as_json else report.progress)
    if as_json:
        print(json.dumps(workflows.as_json(figures), indent=2))
    else:
        workflows.show(figures)


def _run(folder: Path, scale: int, repeat: int, *, quiet: bool) -> report.Results:
    say = report.silent if quiet else report.progress
    bundle = build_bundle(paths.ROOT, paths.ROOT / "build" / "bundle")
    config = EdgeConfig(folder / "state", bundle.path, paths.ROOT / "wrangler.toml")
    say("starting the edge and the baseline")
    with Baseline(folder / "baseline") as baseline:
        bare = baseline.milliseconds(repeat)
        with _bench(config) as (edge, bench):
            boot = edge.boot_ms["total"]
            say("measuring each operation")
            executions.prepare(bench)
            operations = (*OPERATIONS, *executions.OPERATIONS, *messages.OPERATIONS)
            measured = [bench.measure(operation, repeat) for operation in operations]
            small = [bench.measure(operation, repeat) for operation in SCALED]
        say("measuring what the Clock fires")
        driven = EdgeConfig(folder / "driven", bundle.path, paths.ROOT / "wrangler.toml", vars={TEST_CLOCK: "1"})
        with _bench(driven) as (_, bench):
            executions.prepare(bench)
            measured += messages.measure(bench, max(2, repeat // 10))
        large: list[Measured] = []
        if scale:
            say(f"loading {scale:,} ready records")
            seconds = load_ready_records(edge.d1_path(), scale)
            say(f"loaded in {seconds:.0f} s; measuring again")
            with _bench(config) as (_, bench):
                large = [bench.measure(operation, repeat) for operation in SCALED]
    return report.Results(measured, small, large, scale, bare, boot)


@contextmanager
def _bench(config: EdgeConfig) -> Iterator[tuple[LocalEdge, Bench]]:
    with LocalEdge(config) as edge:
        headers = {"Authorization": f"Bearer {edge.root_token}"}
        with httpx.Client(base_url=edge.url, headers=headers, timeout=60) as client:
            bench = Bench(client)
            bench.prepare()
            yield edge, bench
