"""How much memory a piece of work takes, native code included."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")

_PAGES_PER_MIB = 256


def peak_mib(work: Callable[..., Result], *arguments: object) -> tuple[float, Result]:
    """Return by how many MiB the memory of this process grew at most while `work` ran, and what it returned."""
    before = peak = _resident_mib()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, _resident_mib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        result = work(*arguments)
    finally:
        done.set()
        watcher.join()
    return peak - before, result


def _resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) / _PAGES_PER_MIB
