"""Instants: RFC 3339 outside, milliseconds inside, one text for one moment; and nobody in the core reads a clock."""

import ast
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.kernel import instants
from moorage.kernel.errors import RequestInvalid
from moorage.kernel.instants import EARLIEST, LATEST, Instant

pytestmark = pytest.mark.clause("kernel.instants")

moments = st.integers(EARLIEST, LATEST).map(Instant)
offsets = st.integers(-(23 * 60 + 59), 23 * 60 + 59)


def written(moment: datetime, minutes: int) -> str:
    local = moment + timedelta(minutes=minutes)
    sign = "-" if minutes < 0 else "+"
    clock = f"{local:%m-%dT%H:%M:%S}.{local.microsecond:06d}"
    return f"{local.year:04d}-{clock}{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


@given(moments)
def test_what_is_rendered_parses_to_the_same_instant(moment: Instant) -> None:
    text = instants.render(moment)
    assert len(text) == 24
    assert text.endswith("Z")
    assert instants.parse(text) == moment
    assert instants.normalize(text) == text[:-1] + "000000Z"


@given(moments, moments)
def test_order_of_texts_is_order_of_instants(one: Instant, other: Instant) -> None:
    assert (instants.render(one) < instants.render(other)) == (one < other)


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(9998, 12, 31)),  # noqa: DTZ001 - a zone is written by hand
    offsets,
    offsets,
)
def test_one_moment_has_one_normal_text_whatever_its_offset(moment: datetime, one: int, other: int) -> None:
    assert instants.normalize(written(moment, one)) == instants.normalize(written(moment, other))
    expected = int((moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))
    assert abs(instants.parse(written(moment, one)) - expected) <= 1


@given(st.from_regex(r"20[0-9]{2}-0[1-9]-[0-2][1-8]T[01][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?Z", fullmatch=True))
def test_normalizing_keeps_every_digit_and_is_stable(text: str) -> None:
    whole, _, fraction = text.rstrip("Z").partition(".")
    normal = instants.normalize(text)
    assert normal == f"{whole}.{fraction.ljust(9, '0')}Z"
    assert instants.normalize(normal) == normal


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("2026-11-29T16:35:00Z", "2026-11-29T16:35:00.000000000Z"),
        ("2026-11-29t16:35:00.5z", "2026-11-29T16:35:00.500000000Z"),
        ("2026-11-29T00:35:00+01:00", "2026-11-28T23:35:00.000000000Z"),
        ("2026-12-31T23:59:59.123456789-00:01", "2027-01-01T00:00:59.123456789Z"),
        ("2024-02-29T00:00:00-00:00", "2024-02-29T00:00:00.000000000Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000000Z"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000000000Z"),
    ],
)
def test_normal_text(text: str, normal: str) -> None:
    assert instants.normalize(text) == normal


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-11-29",
        "2026-11-29T16:35:00",
        "2026-11-29 16:35:00Z",
        "2026-11-29T16:35Z",
        "2026-11-29T16:35:00.Z",
        "2026-11-29T16:35:00.1234567890Z",
        "2026-11-29T16:35:60Z",
        "2026-11-29T24:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2023-02-29T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026-11-29T16:35:00+24:00",
        "2026-11-29T16:35:00+01:60",
        "2026-11-29T16:35:00+0100",
        "2026-11-29T16:35:00Z\n",
        " 2026-11-29T16:35:00Z",
        "\u0662026-11-29T16:35:00Z",
        "9999-12-31T23:59:59-01:00",
        "0001-01-01T00:00:00+01:00",
        "-2026-11-29T16:35:00Z",
        "x" * 10_000,
    ],
)
def test_what_is_no_instant_is_refused(text: str) -> None:
    for read in (instants.normalize, instants.parse):
        with pytest.raises(RequestInvalid) as raised:
            read(text)
        assert len(raised.value.detail) < 200


@pytest.mark.clause("kernel.limits")
def test_the_ends_of_time() -> None:
    assert instants.parse("1970-01-01T00:00:00Z") == EARLIEST == 0
    assert instants.parse("9999-12-31T23:59:59.999999Z") == LATEST
    with pytest.raises(RequestInvalid, match="before 1970"):
        instants.parse("1969-12-31T23:59:59.999Z")


@given(moments, st.floats(0, 1e12))
def test_after_is_later_and_never_past_the_end(now: Instant, seconds: float) -> None:
    assert now <= instants.after(now, seconds) <= LATEST
    assert instants.after(Instant(1_000), 1.5) == 2_500


# --- No clock in the core -------------------------------------------------------------------------------------------

SOURCE = Path(__file__).parents[3] / "worker" / "moorage"
OUTSIDE = {"edge", "client"}
"""The edge gives the core its clock; the client runs on its user's machine."""
CORE = sorted(path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in OUTSIDE)
CLOCKS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "monotonic"),
    ("time", "gmtime"),
    ("time", "localtime"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}
CHANCE = {"random", "uuid", "secrets", "os", "time", "datetime", "date"}


def called(node: ast.AST) -> tuple[str, str] | None:
    """(`time`, `time`) of `time.time` and of `x.time.time`."""
    if isinstance(node, ast.Attribute):
        owner = node.value
        if isinstance(owner, ast.Attribute):
            return owner.attr, node.attr
        if isinstance(owner, ast.Name):
            return owner.id, node.attr
    return None


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when a module is imported: everything but the bodies of functions and lambdas."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Lambda):
            continue
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for part in (*child.decorator_list, *child.args.defaults, *filter(None, child.args.kw_defaults)):
                yield part
                yield from at_import(part)
            continue
        yield child
        yield from at_import(child)


MAY_IMPORT = {"bodies/guard.py", "bodies/run.py"}
"""They watch what bodies draw, and draw for them when they are asked; at import they do neither."""


def clock_readings(source: str, *, may_import: bool = False) -> list[str]:
    """Where a module reads a clock, takes a name out of `time`, or draws chance at import. Those that `may_import` may have
    `random` and `uuid` at hand."""
    tree = ast.parse(source)
    found: list[str] = []
    for node in ast.walk(tree):
        if called(node) in CLOCKS:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")  # type: ignore[attr-defined]
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "random", "uuid", "secrets"):
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
        if not may_import and isinstance(node, ast.Import) and {alias.name for alias in node.names} & {"random", "uuid"}:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    for node in at_import(tree):
        if isinstance(node, ast.Call):
            name = called(node.func)
            if name and name[0] in CHANCE and name[1] not in ("getenv", "timedelta"):
                found.append(f"line {node.lineno}: {ast.unparse(node)} at import")
    return found


@pytest.mark.clause("edge.cold-start")
@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_of_the_core_reads_a_clock_or_draws_chance_at_import(path: Path) -> None:
    may_import = str(path.relative_to(SOURCE)) in MAY_IMPORT
    assert clock_readings(path.read_text(), may_import=may_import) == []


@pytest.mark.parametrize("source", ["import random\nA = random.random()", "import uuid\nclass A:\n    b = uuid.uuid4()"])
def test_who_may_import_chance_draws_none_at_import(source: str) -> None:
    assert clock_readings(source, may_import=True)


@pytest.mark.parametrize(
    "source",
    [
        "import time\ndef f(): return time.time()",
        "import datetime\ndef f(): return datetime.datetime.now()",
        "from datetime import datetime\ndef f(): return datetime.now(tz=None)",
        "from time import time\n",
        "import random\n",
        "from uuid import uuid4\n",
        "import secrets\nKEY = secrets.token_hex()",
        "import secrets\nclass A:\n    key = secrets.token_hex()",
        "import secrets\ndef f(key=secrets.token_hex()): ...",
        "import os\nKEY = os.urandom(8)",
        "import time\ndef f(clock=time.time): ...",
    ],
)
def test_the_check_sees_each_way_to_read_a_clock(source: str) -> None:
    assert clock_readings(source)


@pytest.mark.parametrize(
    "source",
    [
        "import secrets\ndef f(): return secrets.token_hex()",
        "import time\ndef f(): return time.perf_counter()",
        "from datetime import datetime\nEPOCH = datetime(1970, 1, 1)",
    ],
)
def test_the_check_lets_the_rest_pass(source: str) -> None:
    assert clock_readings(source) == []


def test_the_check_looks_at_the_whole_core() -> None:
    assert {path.parent.name for path in CORE} >= {"kernel", "records", "store", "catalog", "leases", "history"}
