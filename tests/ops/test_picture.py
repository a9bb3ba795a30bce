"""How a run's picture is shown: in a terminal that is drawn again, and in one that has little."""

import io

import pytest
from rich.console import Console

from ops import picture, timeline
from ops.glyphs import PLAIN
from ops.picture import State
from tests.ops.test_timeline import NOW, at, run, step


def terminal(encoding: str = "utf-8", height: int = 40) -> Console:
    """A terminal that is written to memory."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    return Console(file=file, force_terminal=True, width=90, height=height, highlight=False, color_system=None)


def written(console: Console) -> str:
    console.file.flush()
    raw = console.file
    assert isinstance(raw, io.TextIOWrapper)
    content = raw.buffer
    assert isinstance(content, io.BytesIO)
    return content.getvalue().decode(console.encoding)


def live(monkeypatch: pytest.MonkeyPatch, console: Console) -> picture.Live:
    monkeypatch.setattr(picture, "console", lambda: console)
    return picture.Live()


@pytest.mark.parametrize(("encoding", "mark"), [("utf-8", "✓"), ("ascii", "+")])
def test_a_live_picture_ends_with_the_last_state_as_the_terminal_can_show_it(
    monkeypatch: pytest.MonkeyPatch, encoding: str, mark: str
) -> None:
    console = terminal(encoding)
    with live(monkeypatch, console) as shown:
        shown.show(State(run("running"), [step("charge", "1", 0)]))
        shown.show(State(run("success", ended_at=at(2)), [step("charge", "1", 0, 2)]))
    last = written(console).rpartition(f"{mark} success  order")[2]
    assert f"{mark} charge step" in last
    assert "2.0 s" in last


def test_a_picture_that_is_higher_than_the_terminal_keeps_its_head_and_its_newest_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    console = terminal(height=20)
    steps = [step(f"step-{number}", str(number), number, number + 1) for number in range(40)]
    shown = live(monkeypatch, console)
    shown.show(State(run("running"), steps))
    drawn = [str(line) for line in shown._drawn().renderables]
    assert len(drawn) == 18
    assert drawn[0].startswith("▸ running  order")
    assert any("lines …" in line for line in drawn)
    assert "step-39" in drawn[-1]


def test_lines_tell_only_what_changed(capsys: pytest.CaptureFixture[str]) -> None:
    shown = picture.Lines(as_json=False)
    first, second = step("a", "1", 0), step("b", "2", 1)
    for steps in ([first], [first], [first | {"status": "success", "ended_at": at(1)}, second]):
        shown.show(State(run("running"), steps))
    told = [line.split()[1:4] for line in capsys.readouterr().out.splitlines() if " step " in line]
    assert told == [["running", "step", "a"], ["success", "step", "a"], ["running", "step", "b"]]


def test_a_line_of_a_step_is_drawn_with_what_an_ascii_terminal_has() -> None:
    line = timeline.line(step("a", "1", 0, 1, attempt=2), now=NOW, glyphs=PLAIN)
    assert line == "+  success   step       a  1.0 s  2 tries"
