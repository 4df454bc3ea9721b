"""Devices that are killed at random moments, again and again, on one ledger; run as a process of its own.

Each child opens the ledger, asks again for the last slots that it knows of, as an impatient client would, and goes on.
What it was answered it writes down at once. The parent waits for a random number of answers, possibly none, and kills
the child without warning a moment later. It compares in the end: a slot with two answers is a double; an answer that
the ledger does not have is a lost spend. A slow machine makes no difference: the answers are counted, not the time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geoblanket.errors import LedgerError, RefusedError
from geoblanket.mechanism import Bundle, load_bundle
from geoblanket.release import Budget, Device, Ledger
from geoblanket.release.budget import Account, Answer
from geoblanket.release.device_key import KEY_FILE_VARIABLE

START = 1_719_792_000
LAT, LON = 41.1051, -8.5931
STEP = 30
RETRIED = 3
MOST_ANSWERS = 12
LONGEST_START_S, LONGEST_REPORT_S = 0.12, 0.01
ANY_TIME_S = 1e9


def position(number: int) -> tuple[float, float]:
    """Return where the vehicle is: for two reports at points of the fence, for two a kilometre away, and so on."""
    away = number // 2 % 2
    return LAT + (0.01 if away else 1e-4 * (number % 7)), LON


def wrongly_held(answers: Sequence[Answer]) -> int:
    """Return how many reports repeat one that was drawn elsewhere, or repeat it wrongly."""
    wrong, drawn = 0, None
    for answer in answers:
        if answer.cost_micro or drawn is None:
            drawn = answer
            continue
        away, was_away = ((one.slot_ms // 1000 - START) // STEP // 2 % 2 for one in (answer, drawn))
        wrong += away != was_away or answer.place != drawn.place
    return wrong


class Answers:
    """Where a child writes down what it was answered, one line for each answer."""

    def __init__(self, pipe: int) -> None:
        self.pipe, self.lines = pipe, 0

    def tell(self, slot_ms: int, place: int) -> None:
        self.lines += 1
        os.write(self.pipe, f"{slot_ms // 1000} {place}\n".encode())


def reply_before_the_write(device: Device, answers: Answers, awaited: int) -> None:
    """A planted fault: the answer is given before it is stored. The kill that waits for it comes between the two."""
    original = device._ledger.write

    def write(changes: Sequence[Any], drawn: Any = None) -> None:
        for _, answer in changes:
            answers.tell(answer.slot_ms, answer.place)
        if answers.lines >= awaited:
            signal.pause()
        original(changes, drawn or {})

    device._ledger.write = write  # type: ignore[method-assign]


def forget_answers(device: Device) -> None:
    """A planted fault: answers are neither stored nor looked up."""
    account = device._ledger.account("")
    account.stored = lambda *_: None  # type: ignore[method-assign]
    account.checked_left_micro = lambda *_, **__: 0  # type: ignore[method-assign]
    device._ledger.write = lambda *_: None  # type: ignore[method-assign]


def child(bundle: Bundle, ledger: Path, known: int, answers: Answers, fault: str, awaited: int) -> None:
    device = Device.open(bundle, ledger=ledger, clock_tolerance_s=ANY_TIME_S)
    if fault == "early":
        reply_before_the_write(device, answers, awaited)
    if fault == "forget":
        forget_answers(device)
    for number in range(max(0, known - RETRIED), 1_000_000):
        try:
            one = device.report(*position(number), START + STEP * number)
        except LedgerError:
            os._exit(1)
        except RefusedError:  # a slot before the last one, that was not answered
            continue
        answers.tell(one.slot_ms, one.place)


def run(bundle: Bundle, ledger: Path, kills: int, fault: str, seed: int) -> dict[str, int]:
    rng = random.Random(seed)  # noqa: S311 - when to kill
    answers: dict[int, set[int]] = {}
    for _ in range(kills):
        known = (max(answers) - START) // STEP + 1 if answers else 0
        awaited = rng.randrange(MOST_ANSWERS)
        reader, writer = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reader)
            try:
                child(bundle, ledger, known, Answers(writer), fault, awaited)
            finally:
                os._exit(2)
        os.close(writer)
        with os.fdopen(reader) as told:
            lines = [told.readline() for _ in range(awaited)]
            time.sleep(rng.uniform(0, LONGEST_REPORT_S if awaited else LONGEST_START_S))
            os.kill(process, signal.SIGKILL)
            for line in "".join([*lines, told.read()]).split("\n")[:-1]:
                slot, place = line.split()
                answers.setdefault(int(slot), set()).add(int(place))
        assert os.WIFSIGNALED(os.waitpid(process, 0)[1]), "the child ended before it was killed"
    opened = Ledger.open(ledger)
    account: Account = opened.account("")
    stored = {one.slot_ms // 1000: one.place for one in account.answers}
    result = {
        "kills": kills,
        "answers": len(answers),
        "double": sum(len(places) > 1 for places in answers.values()),
        "lost": sum(places != {stored.get(slot)} for slot, places in answers.items() if len(places) == 1),
        "unpaid": int(account.spent_micro != sum(one.cost_micro for one in account.answers))
        + int(account.reports != len(stored)),
        "stored": len(stored),
        "held": sum(not one.cost_micro for one in account.answers),
        "wrongly held": wrongly_held(account.answers),
        "fences": len(opened.fences),
    }
    opened.close()
    return result


if __name__ == "__main__":
    path, folder, count, planted, number = sys.argv[1:]
    os.environ.setdefault(KEY_FILE_VARIABLE, str(Path(folder) / "device.key"))
    Ledger.create(Path(folder) / "a.ledger", budget=Budget(1e9, 1e8))
    ledger = Ledger.open(Path(folder) / "a.ledger")
    ledger.add_fence(LAT, LON, radius_km=0.1)
    ledger.close()
    print(json.dumps(run(load_bundle(path), Path(folder) / "a.ledger", int(count), planted, int(number))))  # noqa: T201
