"""Reports by a device and by a fleet, with and without a durable budget, against a plain implementation.

Run `python -m benchmarks.release [BUNDLE]`. Without a bundle, a made-up town of 2,025 places in 20 zones with histories
of two earlier places. The plain one snaps by Haversine, draws by NumPy's `choice`, which is not exact, and keeps its
budget in a JSON file that it writes anew and syncs. Beside it stands what the disk needs to sync as many bytes as a
report writes, and nothing else; and the same reports on a disk in memory, which shows what is not the disk.

Reports are 30 s apart. The system's clocks are read at each, and moved on by as much, so that reports leave the window
as they do in use.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks._measure import machine, show
from geoblanket._arrays import Floats

REPORTS = 20_000
DURABLE_REPORTS = 2_000
FLEET = 250_000
FLEET_DURABLE = 2_000
CALLS = 8
TURNS = 5
START = 1_719_792_000
INTERVAL_NS = 30 * 10**9
ANY_TIME_S = 1e9
WRITTEN = 3 * 4120
IN_MEMORY = "/dev/shm"  # noqa: S108 - a folder of its own is made there


OPEN = """
import sys, time
start, cpu = time.perf_counter(), time.process_time()
from geoblanket.release import Device
imported = time.perf_counter()
device = Device.open(sys.argv[1], ledger=sys.argv[2])
opened, cpu = time.perf_counter(), time.process_time() - cpu
status = {line.split(":")[0]: line.split()[1] for line in open("/proc/self/status") if line.startswith("Vm")}
print(imported - start, opened - imported, cpu, int(status["VmRSS"]) / 1024, int(status["VmHWM"]) / 1024)
"""


def walks(places: Floats, vehicles: int, steps: int) -> Floats:
    """Return latitudes and longitudes of random ways between near places, shape (steps, vehicles, 2)."""
    from scipy.spatial import KDTree

    rng = np.random.default_rng(0)
    near = np.asarray(KDTree(places).query(places, k=6)[1])
    at = rng.integers(0, len(places), vehicles)
    result = np.empty((steps, vehicles, 2))
    for step in range(steps):
        at = near[at, rng.integers(0, 6, vehicles)]
        result[step] = places[at] + rng.normal(0, 3e-4, (vehicles, 2))
    return result


def hurry_clocks() -> None:
    """Let the system's clocks, as the ledger reads them, run so that every reading is 30 s after the one before."""
    from geoblanket.release import rollback

    read, readings = rollback.read_clocks, count(1)

    def hurried() -> rollback.Reading:
        wall_ns, boot, boot_ns = read()
        ahead_ns = next(readings) * INTERVAL_NS
        return rollback.Reading(wall_ns + ahead_ns, boot, boot_ns + ahead_ns)

    rollback.read_clocks = hurried


def timed(job: Callable[[float, float, int], object], way: Floats) -> tuple[float, float, float, float]:
    """Return reports per second, median and 99th percentile of their seconds, and seconds of the processor for one."""
    seconds = np.empty(len(way))
    cpu = time.thread_time()
    for step, (lat, lon) in enumerate(way.tolist()):
        start = time.perf_counter()
        job(lat, lon, START + 30 * step)
        seconds[step] = time.perf_counter() - start
    cpu = (time.thread_time() - cpu) / len(way)
    return len(way) / seconds.sum(), float(np.median(seconds)), float(np.percentile(seconds, 99)), cpu


class Plain:
    """What one would write in an afternoon: no exact draws, no guarantee after a crash."""

    def __init__(self, bundle: Any, file: Path | None) -> None:
        self.places = bundle.places_e7 * 1e-7
        self.file, self.spent = file, 0.0
        self.rng = np.random.default_rng()
        self.past: tuple[int, ...] = ()
        self.rules = [
            (one, {tuple(history): row for history, row in zip(one.histories.tolist(), one.history_rows, strict=True)})
            for one in bundle
            if one.regime != "start"
        ]
        self.zone = {
            int(place): number for number, (one, _) in enumerate(self.rules) for place in np.unique(one.histories[:, 0])
        }

    def report(self, lat: float, lon: float, _: int) -> int:
        """Return a place."""
        from geoblanket._geodesy import haversine_m

        place = int(haversine_m(lat, lon, self.places[:, 0], self.places[:, 1]).argmin())
        one, rows = self.rules[self.zone.get(place, 0)]
        past = (*self.past, place, place)[:2]
        row = next((rows[key] for key in ((place, *past), (place, past[0], -1), (place, -1, -1)) if key in rows), 0)
        probabilities = one.mechanism.weights[row] / 2**62
        drawn = int(self.rng.choice(one.output_places, p=probabilities / probabilities.sum()))
        self.past = (place, *self.past)[:2]
        self.spent += one.epsilon_per_location
        if self.file is not None:
            with self.file.open("w") as file:
                json.dump({"spent": self.spent}, file)
                file.flush()
                os.fsync(file.fileno())
        return drawn


def single(bundle: Any, folder: Path) -> list[tuple[str, ...]]:
    """Measure one vehicle."""
    from geoblanket.release import Budget, Device, Ledger

    way = walks(bundle.places_e7 * 1e-7, 1, REPORTS)[:, 0]
    plenty = Budget(1e8, 3600.0)
    Ledger.create(folder / "single.ledger", budget=plenty)
    disk = os.open(folder / "sync", os.O_CREAT | os.O_RDWR | os.O_APPEND)

    def sync(*_: object) -> None:
        os.write(disk, bytes(WRITTEN))
        os.fdatasync(disk)

    rows: list[tuple[str, ...]] = []
    with (
        TemporaryDirectory(dir=IN_MEMORY) as quick,
        Device.open(bundle, ledger=None, budget=plenty, clock_tolerance_s=ANY_TIME_S) as memory,
        Device.open(bundle, ledger=folder / "single.ledger", clock_tolerance_s=ANY_TIME_S) as durable,
    ):
        Ledger.create(Path(quick) / "quick.ledger", budget=plenty)
        no_disk = Device.open(bundle, ledger=Path(quick) / "quick.ledger", clock_tolerance_s=ANY_TIME_S)
        for what, job, steps in (
            ("report, budget in memory", memory.report, REPORTS),
            ("plain, budget in memory", Plain(bundle, None).report, REPORTS),
            ("report, durable", durable.report, DURABLE_REPORTS),
            ("plain, budget in a synced file", Plain(bundle, folder / "plain.json").report, DURABLE_REPORTS),
            ("the disk alone: 12 kB and fdatasync", sync, DURABLE_REPORTS),
            ("report, durable, on a disk in memory", no_disk.report, DURABLE_REPORTS),
        ):
            rate, median, tail, cpu = timed(job, way[:steps])
            numbers = f"{rate:,.0f}", f"{median * 1e6:,.1f}", f"{cpu * 1e6:,.1f}", f"{tail * 1e3:,.2f}"
            rows.append((what, f"{steps:,}", *numbers))
        no_disk.close()
    os.close(disk)
    return rows


def fleet(bundle: Any, folder: Path) -> list[tuple[str, ...]]:
    """Measure many vehicles."""
    from geoblanket.release import Budget, Fleet, Ledger

    Ledger.create(folder / "fleet.ledger", budget=Budget(1e8, 3600.0))
    rows: list[tuple[str, ...]] = []
    for what, vehicles, ledger in (
        ("fleet, nothing counted", FLEET, None),
        ("fleet, durable, a transaction a call", FLEET_DURABLE, folder / "fleet.ledger"),
    ):
        way = walks(bundle.places_e7 * 1e-7, vehicles, CALLS)
        names = [str(number) for number in range(vehicles)]
        with Fleet.open(bundle, vehicles=names, ledger=ledger, clock_tolerance_s=ANY_TIME_S) as cars:
            cars.report(np.arange(vehicles), way[0, :, 0], way[0, :, 1], START)
            start, cpu = time.perf_counter(), time.process_time()
            for step in range(1, CALLS):
                cars.report(np.arange(vehicles), way[step, :, 0], way[step, :, 1], START + 30 * step)
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        made = vehicles * (CALLS - 1)
        rows.append((what, f"{vehicles:,}", f"{made / seconds:,.0f}", f"{made / cpu:,.0f}"))
    return rows


def fenced(folder: Path) -> list[tuple[str, ...]]:
    """Measure reports of a lattice with three fences and hold against the same without, in turns."""
    from geoblanket import make_lattice
    from geoblanket.release import Budget, Device, Ledger
    from geoblanket.release.fence import NO_FENCES, Fences

    fences = Fences()
    for number in range(3):
        fences, _ = fences.with_place(41.87 + 0.03 * number, 12.45, radius_km=1, name=str(number))
    kinds = [
        (make_lattice((41.9, 12.5, 10), folder / f"{hold_m}.bundle", epsilon=4, hold_m=hold_m), some)
        for hold_m, some in ((0, NO_FENCES), (50, fences))
    ]
    plenty, made = Budget(1e8, 3600.0), count()

    def median_s(kind: int, way: Floats, disk: str | None) -> float:
        bundle, applied = kinds[kind]
        with TemporaryDirectory(dir=disk) as name:
            ledger = None if disk is None else Path(name) / f"{next(made)}.ledger"
            if ledger is not None:
                Ledger.create(ledger, budget=plenty)
            with Device.open(bundle, ledger=ledger, budget=plenty, replay=True, fences=applied) as device:
                return timed(device.report, way)[1]

    rows: list[tuple[str, ...]] = []
    for where, disk, steps in (
        ("budget in memory", None, 4_000),
        ("durable", str(folder), 500),
        ("durable, on a disk in memory", IN_MEMORY, 1_500),
    ):
        for what, degrees in (("moving", 0.001), ("at rest", 0.0)):
            way = np.column_stack([41.9 + degrees * (np.arange(steps) % 50), np.full(steps, 12.5)])
            without, with_both = np.median(
                [[median_s(kind, way, disk) for kind in (0, 1)] for _ in range(TURNS)], axis=0
            ).tolist()
            numbers = f"{without * 1e6:,.1f}", f"{with_both * 1e6:,.1f}", f"{with_both / without:.2f}"
            rows.append((f"{what}, {where}", *numbers))
    return rows


def opening(path: Path, folder: Path) -> list[tuple[str, ...]]:
    """Measure the start of a device, in processes of their own."""
    from geoblanket.release import Budget, Ledger

    Ledger.create(folder / "open.ledger", budget=Budget(1e8, 3600.0))
    rows: list[tuple[str, ...]] = []
    for what in ("first, with exact verification", "again", "again"):
        command = [sys.executable, "-c", OPEN, str(path), str(folder / "open.ledger")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        importing, seconds, cpu, resident, peak = (float(value) for value in done.stdout.split())
        rows.append((what, f"{importing:.2f}", f"{seconds:.3f}", f"{cpu:.2f}", f"{resident:.0f}", f"{peak:.0f}"))
    return rows


def main() -> None:
    """Measure everything and print the tables."""
    from benchmarks.perturb import make_town
    from geoblanket.mechanism import load_bundle

    with TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        os.environ["GEOBLANKET_DEVICE_KEY_FILE"] = str(folder.absolute() / "device.key")
        path = Path(sys.argv[1]) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else folder / "town.bundle"
        if not path.exists():
            make_town(folder, 300_000)
        hurry_clocks()
        bundle = load_bundle(path)
        about = f"{bundle.output_count:,} {bundle.output_kind}s, {path.stat().st_size / 1e6:.1f} MB ({machine()})"
        show(
            f"One vehicle, {about}",
            ("", "reports", "reports/s", "median µs", "mean CPU µs", "99 % within ms"),
            single(bundle, folder),
        )
        show(f"Many vehicles, {about}", ("", "vehicles", "reports/s", "reports/CPU s"), fleet(bundle, folder))
        show(
            f"One vehicle, a lattice, three fences and hold ({machine()})",
            ("", "median µs without", "with", "ratio"),
            fenced(folder),
        )
        show(
            f"Opening, {about}",
            ("", "import s", "open s", "CPU s of both", "resident MB", "peak MB"),
            opening(path, folder),
        )


if __name__ == "__main__":
    main()
