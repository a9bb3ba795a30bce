"""The picture of a run, drawn from given steps."""

from typing import Any

import pytest
from rich.cells import cell_len

from moorage.kernel import instants
from ops import timeline
from ops.glyphs import DRAWN, MINTED, PLAIN, STYLES, Glyphs

NOW = instants.parse("2026-11-29T16:35:12Z")


def at(seconds: float | None) -> str | None:
    return None if seconds is None else f"2026-11-29T16:35:{seconds:06.3f}Z"


def run(status: str = "success", **more: Any) -> dict[str, Any]:
    facts = {
        "run_id": "run_01kb1y0z3w5q9v8d7c6b5a4m3n",
        "execution_id": "exe_01kb1y0z3w5q9v8d7c6b5a4m3n",
        "body": "order",
        "scope": "order-17",
        "status": status,
        "attempt": 1,
        "started_at": at(0),
    }
    return facts | more


def step(label: str, position: str, begun: float, ended: float | None = None, **more: Any) -> dict[str, Any]:
    facts = {"label": label, "kind": "step", "position": position, "attempt": 1}
    state = {"status": "running" if ended is None else "success", "started_at": at(begun), "ended_at": at(ended)}
    return facts | state | more


def drawn(run: dict[str, Any], *steps: dict[str, Any], width: int = 80, glyphs: Glyphs = DRAWN) -> str:
    lines = timeline.render(run, steps, now=NOW, width=width, glyphs=glyphs)
    assert all(line.cell_len <= width for line in lines)
    return "\n".join(line.plain for line in lines)


AWAITING = {"awaiting": [{"label": "approval", "deadline": "2026-11-29T17:35:00.000Z"}]}
STEPS = (
    step("reserve", "1", 0, 0.4),
    step("charge", "2", 0.4, 3.2, kind="fetch", attempt=3),
    step("eu", "3.0/1", 3.2, 6, kind="fetch"),
    step("us", "3.1/1", 3.2, None, kind="fetch", status="waiting", attempt=2, next_attempt_at="2026-11-29T16:35:20Z"),
    step("asia", "3.2/1", 3.3, 4),
    step("sum", "3.0/2", 6, 6.1),
    step("asia-again", "3.2/2", 4, 5, status="failed", error={"tag": "Permanent", "message": "no such \x1b[31mplace"}),
    step("approval", "4", 6, 6, kind="awakeable"),
    step("approval", "5", 6, None, kind="wait", status="waiting", next_attempt_at="2026-11-29T17:35:00Z"),
)


def test_a_run_that_waits_for_an_event_says_for_which() -> None:
    wait = {"label": "paid", "kind": "event", "keys": ["order-7", "c-1"], "types": ["paid", "refunded"]}
    limited = {**wait, "label": "late", "types": [], "keys": ["a\x1b[31m"], "until": "2026-11-29T17:35:00.000Z"}
    assert drawn(run("suspended", awaiting=[wait, limited, {**wait, "keys": []}])).splitlines()[3:] == [
        "  waiting for paid",
        "    paid or refunded with the key order-7 or c-1",
        "  waiting for late until 2026-11-29 17:35:00 UTC (in 59 m 48 s)",
        "    an event with the key a [31m",
        "  waiting for paid",
        "    paid or refunded",
    ]


def test_a_run_that_waits_is_drawn_with_branches_retries_waits_and_errors() -> None:
    assert (
        drawn(run("suspended", attempt=2, **AWAITING), *STEPS, width=100)
        == """\
◷ suspended  order
  run_01kb1y0z3w5q9v8d7c6b5a4m3n · exe_01kb1y0z3w5q9v8d7c6b5a4m3n
  scope order-17 · attempt 2 · 12.0 s · started 2026-11-29 16:35:00 UTC
  waiting for approval until 2026-11-29 17:35:00 UTC (in 59 m 48 s)

                         0 ───────────────────────────── 12.0 s
✓ reserve      step      ██                                     400 ms
✓ charge       fetch      ██████████                             2.8 s 3 tries
✓ ╭ eu         fetch               █████████                     2.8 s
✓ ╰ sum        step                         █                   100 ms
◷ ╶ us         fetch               █┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄  8.8 s 2 tries · again in 8.0 s
✓ ╭ asia       step                ███                          700 ms
✗ ╰ asia-again step                  ████                        1.0 s Permanent: no such  [31mplace
◇ approval     awakeable                    ◇                          minted
◷ approval     wait                         ░░░░░░░░░░░░░░░░░░░  6.0 s ends in 59 m 48 s"""
    )


def test_a_narrow_terminal_without_anything_but_ascii_shows_the_same_without_bars() -> None:
    assert (
        drawn(run("suspended", **AWAITING), *STEPS[:4], STEPS[6], width=44, glyphs=PLAIN)
        == """\
~ suspended  order
  run_01kb1y0z3w5q9v8d7c6b5a4m3n
  exe_01kb1y0z3w5q9v8d7c6b5a4m3n
  scope order-17 . attempt 1 . 12.0 s
  started 2026-11-29 16:35:00 UTC
  waiting for approval until 2026-11-29 1...

+ reserve      step  400 ms
+ charge       fetch  2.8 s 3 tries
+ * eu         fetch  2.8 s
~ * us         fetch  8.8 s 2 tries . aga...
x * asia-again step   1.0 s Permanent: no..."""
    )


@pytest.mark.parametrize("width", [30, 44, 60, 120])
def test_an_awakeable_that_was_made_is_not_taken_for_an_answer(width: int) -> None:
    waiting = step("approval", "5", 6, None, kind="wait", status="waiting")
    answered = step("approval", "5", 6, 7, kind="wait")
    for glyphs, mark in ((DRAWN, "✓"), (PLAIN, "+")):
        made, wait = drawn(run("suspended"), STEPS[7], waiting, width=width, glyphs=glyphs).splitlines()[-2:]
        assert mark not in made
        assert made.endswith(" minted")
        assert mark not in wait
        made, wait = drawn(run(), STEPS[7], answered, width=width, glyphs=glyphs).splitlines()[-2:]
        assert (mark in made, wait[0]) == (False, mark)
        assert (("awakeable" in made) and (" wait" in wait)) == (width >= timeline.WITHOUT_KINDS)
    assert timeline.line(STEPS[7], now=NOW) == "◇  minted    awakeable  approval"
    assert timeline.line(answered, now=NOW).startswith("✓  success   wait")


def test_the_record_of_a_rewind_is_told_from_a_run_that_was_stopped() -> None:
    stop = {"requested_at": at(2), "scope": "run", "reason": "version 2"}
    told = drawn(run("canceled", ended_at=at(3), stop=stop, rewound_execution="exe_1")).splitlines()
    assert "  the record of a rewind: version 2" in told


def test_branches_within_branches_keep_their_lines() -> None:
    steps = [step("a", "1.0/1", 0, 1), step("b", "1.0/2.0/1", 1, 2), step("c", "1.0/2.1/1", 1, 2), step("d", "1.0/3", 2, 3)]
    shown = drawn(run(ended_at=at(3)), *reversed(steps)).splitlines()[-4:]
    assert [line.split("step")[0].rstrip() for line in shown] == ["✓ ╭ a", "✓ │ ╶ b", "✓ │ ╶ c", "✓ ╰ d"]


def test_steps_stand_in_the_order_of_their_places_not_of_their_text() -> None:
    positions = ["10", "2", "2.10/1", "2.9/1", "1"]
    ordered = sorted(positions, key=timeline.branch)
    assert ordered == ["1", "2", "2.9/1", "2.10/1", "10"]


def test_each_kind_of_wait_has_a_shape_of_its_own() -> None:
    kinds = ("step", "sleep", "wait", "child", "awakeable")
    steps = [step(kind, str(place), 0, 10, kind=kind) for place, kind in enumerate(kinds)]
    for glyphs in (DRAWN, PLAIN):
        lines = drawn(run(ended_at=at(10)), *steps, width=100, glyphs=glyphs).splitlines()[-5:]
        shapes = [line[len("+ awakeable awakeable ") :][:1] for line in lines]
        assert len(set(shapes)) == len(kinds)


def test_what_an_earlier_run_recorded_stands_at_the_left_edge() -> None:
    earlier = step("old", "1", 0, 1) | {"started_at": "2026-11-29T15:00:00Z", "ended_at": "2026-11-29T15:00:01Z"}
    line = drawn(run(ended_at=at(10)), earlier, step("new", "2", 0, 10)).splitlines()[-2]
    assert line.startswith("✓ old step ◂ ")
    assert line.endswith("1.0 s recorded earlier")


@pytest.mark.parametrize("width", [20, 33, 52, 75, 76, 120, 300])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    wide = step("注文" * 30, "1", 0, 1, error={"tag": "Invalid", "message": "間違い" * 50}, status="failed")
    failed = run("failed", error={"tag": "Invalid", "code": "StepFailed", "step": "注文", "message": "so " * 200})
    for glyphs in (DRAWN, PLAIN):
        assert "Invalid" in drawn(failed, wide, *STEPS, width=width, glyphs=glyphs)


def test_a_runs_error_is_told_whole() -> None:
    message = " ".join(f"word{n}" for n in range(40))
    shown = drawn(run("failed", error={"tag": "Permanent", "code": "StepFailed", "step": "charge", "message": message}))
    assert f"Permanent StepFailed at charge: {message}" in " ".join(shown.split())


def test_a_step_that_a_stop_left_open_ends_with_its_run_whose_reason_is_told() -> None:
    stop = {"requested_at": at(2), "scope": "run", "reason": "wrong customer"}
    left = step("approval", "1", 1, None, kind="wait") | {"status": "failed"}
    told = drawn(run("canceled", ended_at=at(3), stop=stop), left)
    assert "  a stop was asked for: wrong customer" in told.splitlines()
    assert told.endswith(" 2.0 s")


def test_nothing_that_controls_a_terminal_comes_through() -> None:
    hostile = "a\x1b]0;title\x07\r\nb\u202ec\x9b31m\u2028d"
    shown = drawn(
        run("failed", body=hostile, scope=hostile, error={"tag": "X", "message": hostile}),
        step(hostile, "1", 0, 1, status="failed", error={"tag": "X", "message": hostile}),
    )
    assert not set(shown) & set("\x1b\x07\r\x9b\u202e\u2028")
    assert "\n" not in timeline.line(step(hostile, "1", 0, 1), now=NOW)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-5, "0 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (59_999, "59.9 s"),
        (60_000, "1 m"),
        (125_000, "2 m 5 s"),
        (3_600_000, "1 h"),
        (12_000_000, "3 h 20 m"),
        (349_200_000, "4 d 1 h"),
    ],
)
def test_durations_are_told_in_the_units_that_matter(milliseconds: int, text: str) -> None:
    assert timeline.duration(milliseconds) == text


def test_every_status_has_a_mark_and_a_colour() -> None:
    statuses = {"running", "waiting", "suspended", "success", "failed", "partial_failure", "canceled"}
    for glyphs in (DRAWN, PLAIN):
        assert glyphs.marks.keys() == statuses | {MINTED}
        assert all(cell_len(mark) == 1 for mark in glyphs.marks.values())
    assert STYLES.keys() == statuses | {MINTED}
