from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import pytest
import rich.progress

from geoblanket.cli._output import ProgressLines, duration, in_background, progress_bars


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines(clock: Clock) -> ProgressLines:
    return ProgressLines(clock)


def test_short_work_says_nothing(lines: ProgressLines, clock: Clock) -> None:
    for second in range(15):
        clock.now_s = 1000 + second
        lines("matching", second, 15)
        assert lines.line() is None


def test_work_that_tells_nothing_of_itself_says_nothing(lines: ProgressLines, clock: Clock) -> None:
    clock.now_s += 100
    assert lines.line() is None


def test_a_line_tells_how_far_a_phase_is_and_how_long_it_takes(lines: ProgressLines, clock: Clock) -> None:
    lines("reading walks", 0, None)
    clock.now_s += 10
    lines("matching", 100, 1100)  # a run that is resumed begins with what it had finished
    clock.now_s += 50
    lines("matching", 350, 1100)
    # 250 in 50 s, and 750 are left.
    assert lines.line() == "matching: 31 %, 60 s so far, about 2 min left in this phase"


@pytest.mark.parametrize(("calls", "line"), [
    ([(0, None)], "rows: 20 s so far"),
    ([(0, None), (1234, None)], "rows: 1,234, 20 s so far"),
    ([(0, 10)], "rows: 0 %, 20 s so far"),
    ([(0, 10), (10, 10)], "rows: done, work continues, 20 s so far"),
    ([(9, 10), (0, 10)], "rows: 0 %, 20 s so far"),
])  # fmt: skip
def test_what_is_known_is_told(
    lines: ProgressLines, clock: Clock, calls: list[tuple[float, float | None]], line: str
) -> None:
    clock.now_s += 20
    for done, total in calls:
        lines("rows", done, total)
    assert lines.line() == line


def test_lines_become_rarer_and_come_while_work_stands_still(lines: ProgressLines, clock: Clock) -> None:
    lines("zones and regimes", 0, 7)
    said = []
    for second in range(7 * 3600):
        clock.now_s = 1000 + second
        if lines.line() is not None:
            said.append(second)
    pauses = [later - earlier for earlier, later in pairwise(said)]
    assert said[0] == 15
    assert pauses[:9] == [30] * 9
    assert pauses == sorted(pauses)
    assert pauses[-1] == 300


@pytest.mark.parametrize(("seconds", "words"), [
    (0, "0 s"), (89, "89 s"), (90, "2 min"), (7140, "119 min"), (7200, "2 h 0 min"), (45_296, "12 h 35 min"),
])  # fmt: skip
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_lines_are_said_while_the_work_goes_on_and_not_after(lines: ProgressLines, clock: Clock) -> None:
    said: list[str] = []
    heard = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        heard.set()

    lines("noise", 0, 2)
    clock.now_s += 60
    with in_background(lines, say):
        assert heard.wait(120)
    clock.now_s += 60
    assert said == ["noise: 0 %, 60 s so far"]
    assert "progress" not in {thread.name for thread in threading.enumerate()}


def test_work_goes_on_where_nobody_listens(lines: ProgressLines, clock: Clock) -> None:
    tried = threading.Event()

    def closed(_: str) -> None:
        tried.set()
        raise BrokenPipeError

    lines("noise", 0, 2)
    clock.now_s += 60
    with in_background(lines, closed):
        assert tried.wait(120)


def test_without_a_terminal_there_are_lines_not_bars(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bars() as progress:
        assert isinstance(progress, ProgressLines)
        progress("matching", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_bars_tell_the_time_left_of_tasks_that_take_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    made: list[rich.progress.Progress] = []

    class Slow(rich.progress.Progress):
        def __init__(self, *columns: Any, **options: Any) -> None:
            super().__init__(*columns, **options, get_time=lambda: now_s[0], disable=True)
            made.append(self)

    monkeypatch.setattr(rich.progress, "Progress", Slow)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bars() as progress:
        for done in range(4):
            now_s[0] = 60.0 * done
            progress("tracking vehicles", done, 10)
        (task,) = made[0].tasks
        assert task.time_remaining == pytest.approx(7 * 60, abs=1)
