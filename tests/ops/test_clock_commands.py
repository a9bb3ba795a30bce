"""`moorage clock`, as a person runs it."""

import pytest

from moorage.kernel.instants import after, render
from tests.ops.test_commands import Run, docs, house, lines, run, schema, transport
from tests.unit.api.conftest import House

__all__ = ["docs", "house", "run", "schema", "transport"]


@pytest.mark.clause("timers.alarm")
def test_what_failed_is_listed_and_tried_again(run: Run, house: House) -> None:
    again = after(house.now, 3600)
    house.connection.execute(
        "INSERT INTO due_failures VALUES ('timer_fired', 't@1', 13, :at, 'KeyError'), ('run_due', 'exe_1@5', 2, :at, 'E'),"
        " ('of_yore', 'item', 13, :at, 'KeyError')",
        {"at": again},
    )
    table = [line.split() for line in run("clock", "failures").stdout.splitlines()]
    assert ["timer_fired", "t@1", "13", "KeyError", render(again)] in table
    [told] = lines(run("clock", "failures", "--work", "run_due", "--json"))
    assert told == {"work": "run_due", "item": "exe_1@5", "attempts": 2, "error": "E", "retry_at": render(again)}
    few = run("clock", "failures", "--limit", "1", "--json")
    assert ([one["work"] for one in lines(few)], "there is more" in few.stderr) == (["of_yore"], True)
    one = ("clock", "retry", "--work", "timer_fired", "--item", "t@1")
    assert run(*one).stdout == "1 tried again now\n"
    assert run(*one).stdout == "nothing waits to be tried again\n"
    assert lines(run("clock", "retry", "--json")) == [{"retried": 1}]
    assert "RequestInvalid" in run("clock", "retry", "--work", "of_yore", status=1).stderr
    assert "--work" in run("clock", "retry", "--item", "t@1", status=2).stderr
