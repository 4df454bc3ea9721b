"""Desks for reports: with a real device and ledger, and with one that does as it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.release.budget import Budget
from geoblanket.release.device import Device
from geoblanket.release.ledger import Ledger
from geoblanket.serve.limits import Limits
from geoblanket.serve.service.report import ReportWorker

PLENTY = Budget(epsilon=1e9, window_s=3600)
NOW = time.time()


def here(**changes: Any) -> dict[str, Any]:
    """The body of a report from the middle of the town."""
    return {"lat": 41.0011, "lon": -8.5983, "time": NOW, **changes}


def make_ledger(path: Path, budget: Budget = PLENTY) -> Path:
    Ledger.create(path, budget=budget)
    return path


def real_worker(bundle: Bundle, ledger: Path | None, *, limits: Limits | None = None) -> ReportWorker:
    budget = PLENTY if ledger is None else None
    return ReportWorker(lambda: Device.open(bundle, ledger=ledger, budget=budget), limits=limits)


@dataclass(frozen=True)
class _Told:
    place: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "place": self.place, "lat": 0.0, "lon": 0.0, "slot": 0, "time": "", "left": 0.0, "stored": False,
        }  # fmt: skip


class ToldDevice:
    """A device that does something before it answers, and counts."""

    def __init__(self, does: Callable[[], None] = lambda: None) -> None:
        self.does = does
        self.begun = 0
        self.made = 0
        self.closed = False
        self.threads: set[int] = set()

    def report(self, lat: float, lon: float, time: float, *, request: str | None = None) -> _Told:
        del lat, lon, time, request
        self.threads.add(threading.get_ident())
        self.begun += 1
        self.does()
        self.made += 1
        return _Told(self.made)

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.closed = True
