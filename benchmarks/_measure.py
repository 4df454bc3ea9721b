"""Time and peak memory of one job, measured in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import platform
import resource
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from geoblanket._arrays import Floats

__all__ = ["Measured", "ProcessTree", "machine", "mean_and_error", "measure", "show", "took"]


@dataclass(frozen=True)
class Measured:
    """What one run of a job took."""

    seconds: float
    peak_mb: float
    result: Any


def measure(job: Callable[..., Any], *arguments: Any) -> Measured:
    """Run `job(*arguments)` in a new process (module-level functions and plain arguments only).

    Imports that the job makes inside itself are part of its time, as they are for a user of the command line. Peak
    memory is that of the process or of its largest child, whichever is more.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_run, job, arguments).result()


def _run(job: Callable[..., Any], arguments: tuple[Any, ...]) -> Measured:
    start = time.perf_counter()
    result = job(*arguments)
    seconds = time.perf_counter() - start
    peak_kb = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return Measured(seconds, peak_kb / 1024, result)


class ProcessTree:
    """Memory and processor time of this process and all its children together, while it is open (Linux only).

    Memory that processes share counts for each of them.
    """

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self.cpu_s = 0.0
        self._before_s = time.process_time()
        self._seconds: dict[int, float] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(0.1):
            self._look()

    def _look(self) -> None:
        pages, left = 0, [os.getpid()]
        while left:
            process = Path("/proc") / str(left.pop())
            try:
                left += [int(child) for task in (process / "task").iterdir()
                         for child in (task / "children").read_text().split()]  # fmt: skip
                pages += int((process / "statm").read_text().split()[1])
                ticks = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
            except OSError:  # it has just ended
                continue
            self._seconds[int(process.name)] = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        self.peak_mb = max(self.peak_mb, pages * os.sysconf("SC_PAGE_SIZE") / 1e6)
        self.cpu_s = sum(self._seconds.values()) - self._before_s


def show(title: str, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Print a table of figures."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for position, name in enumerate(header):
        table.add_column(name, justify="left" if position == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=130).print(table)


def machine() -> str:
    """Describe this machine in a line."""
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    return f"{multiprocessing.cpu_count()} × {cpu}, Python {platform.python_version()}"


def mean_and_error(values: Floats) -> str:
    """Return a mean and its standard error."""
    return f"{values.mean():.0f} ± {values.std(ddof=1) / np.sqrt(len(values)):.0f}"


def took(started: float) -> str:
    """Return the time since the start, the processor's time and the peak memory, in words."""
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    wall, cpu = time.perf_counter() - started, time.process_time()
    return f"{wall:.0f} s, of which {cpu:.0f} s on the processor; peak memory {peak_mb:,.0f} MB"
