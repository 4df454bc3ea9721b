"""kill −9 around the draw of an anchor: none is lost, none is drawn twice, and each is paid once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from geoblanket.release import Budget, Device, Ledger
from tests.release.lattices import LAT, LON, START, save_small

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
ROOT = Path(__file__).parents[2]
PERIOD_S = 300

AT_THE_WRITE = """
import os, signal, sys
from geoblanket.release import Device
from tests.release.lattices import LAT, LON
device = Device.open(sys.argv[1], ledger=sys.argv[2], replay=True)
original = device._ledger.write
def write(changes, anchors):
    assert anchors
    if sys.argv[4] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    original(changes, anchors)
    os.kill(os.getpid(), signal.SIGKILL)
device._ledger.write = write
device.report(LAT, LON, float(sys.argv[3]))
"""

ANY_MOMENT = """
import os, sys
from geoblanket.release import Device
from tests.release.lattices import LAT, LON
start, step = int(sys.argv[3]), int(sys.argv[4])
device = Device.open(sys.argv[1], ledger=sys.argv[2], replay=True)
os.write(1, b"ready\\n")
while True:
    report = device.report(LAT, LON, start + 30 * step)
    for anchor in device._ledger.account("").anchors:
        if anchor.starts_ms <= report.slot_ms < anchor.ends_ms:
            os.write(1, f"{report.slot} {report.place} {anchor.starts_ms} {anchor.shift}\\n".encode())
    step += 1
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    Ledger.create(tmp_path / "a.ledger", budget=Budget(1e9, 1e8))
    return tmp_path / "a.ledger"


def kept(path: Path) -> tuple[int, int, int, list[tuple[int, int] | None]]:
    opened = Ledger.open(path)
    account = opened.account("")
    found = account.reports, account.spent_micro, account.anchor_spent_micro, [one.shift for one in account.anchors]
    opened.close()
    return found


def killed(script: str, *arguments: Sequence[object]) -> None:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL


def test_a_kill_between_draw_and_write_costs_nothing(lattice_path: Path, ledger: Path) -> None:
    killed(AT_THE_WRITE, lattice_path, ledger, START, "before")  # type: ignore[arg-type]
    assert kept(ledger) == (0, 0, 0, [])
    with Device.open(lattice_path, ledger=ledger, replay=True) as device:
        assert not device.report(LAT, LON, START).stored
    assert kept(ledger)[:3] == (1, 2_000_000, 3_000_000)


def test_a_kill_after_the_write_keeps_the_anchor_and_the_answer(lattice_path: Path, ledger: Path) -> None:
    killed(AT_THE_WRITE, lattice_path, ledger, START, "after")  # type: ignore[arg-type]
    before = kept(ledger)
    assert before[:3] == (1, 2_000_000, 3_000_000)
    with Device.open(lattice_path, ledger=ledger, replay=True) as device:
        assert device.report(LAT, LON, START).stored
        device.report(LAT, LON, START + 30)
    assert kept(ledger) == (2, 4_000_000, 3_000_000, before[3])


BEFORE_THE_LOG_IS_CUT_OFF = """
import os, signal, sys
from geoblanket.mechanism.lattice.anchor import AnchorSpec
from geoblanket.release import Device
from tests.release.lattices import LAT, LON
AnchorSpec.draw = lambda *_: (0x5A17C3D1E9, 0x3B7D9F1A57)
device = Device.open(sys.argv[1], ledger=sys.argv[2], replay=True)
device.report(LAT, LON, float(sys.argv[3]))
AnchorSpec.draw = lambda *_: (1, 2)
device._ledger._cut_off_log = lambda: os.kill(os.getpid(), signal.SIGKILL)
device.report(LAT, LON, float(sys.argv[3]) + 3600)
"""


def test_a_kill_before_the_log_is_cut_off_leaves_no_shift_once_the_ledger_is_opened(
    lattice_path: Path, ledger: Path
) -> None:
    def holds_shift() -> bool:
        files = [file.read_bytes() for file in ledger.parent.iterdir() if file.name.startswith(ledger.name)]
        return any((0x5A17C3D1E9).to_bytes(5, "little") in content for content in files)

    killed(BEFORE_THE_LOG_IS_CUT_OFF, lattice_path, ledger, START)  # type: ignore[arg-type]
    assert holds_shift()
    opened = Ledger.open(ledger)
    assert not holds_shift()
    assert [anchor.shift for anchor in opened.account("").anchors] == [None, (1, 2)]
    opened.close()


def test_kills_at_any_moment_leave_one_anchor_for_each_period(tmp_path: Path, ledger: Path) -> None:
    bundle = save_small(tmp_path / "a.bundle", period_s=PERIOD_S)
    answers: dict[str, set[str]] = {}
    shifts: dict[str, set[str]] = {}
    step = 0
    for kill in range(8):
        command = [sys.executable, "-c", ANY_MOMENT, *map(str, (bundle, ledger, START, step))]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(2 + 13 * kill % 17)]
            process.kill()
            lines += process.stdout.read().splitlines(keepends=True)
        for line in (line for line in lines if line.endswith((")\n", "None\n"))):
            slot, place, period, shift = line.strip().split(" ", 3)
            answers.setdefault(slot, set()).add(place)
            if shift != "None":  # it is, where an earlier period is asked for again
                shifts.setdefault(period, set()).add(shift)
        step = max(max(int(slot) for slot in answers) - START // 30 - 3, 0)
    assert all(len(places) == 1 for places in answers.values())
    assert all(len(some) == 1 for some in shifts.values()), "a period has two anchors"
    opened = Ledger.open(ledger)
    account = opened.account("")
    periods = {answer.slot_ms // (1000 * PERIOD_S) for answer in account.answers}
    assert len(periods) == len(account.anchors) > 3
    assert account.anchor_spent_micro == 3_000_000 * len(periods)
    assert account.spent_micro == 2_000_000 * account.reports
    opened.close()
