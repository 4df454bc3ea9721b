"""The lattice of all of Rome, 50 km × 50 km: made, verified, opened and drawn from.

Run `python -m benchmarks.lattice`. The peer of a draw is planar Laplace noise in floats by NumPy, which is what people
use today: inverse distribution, no promise about its rounding. Each line is a process of its own.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._measure import measure, show
from geoblanket._geodesy import haversine_m

ROME = (41.66, 12.19, 42.11, 12.80)
EPSILON = 2.0
REPORTS = 2_000
VEHICLES = 5_000
INSIDE = (41.9, 12.5)


def made(path: str) -> tuple[int, float]:
    """Make and verify the lattice; return the size of its file, and which share of ε its cells take."""
    from geoblanket.mechanism.bundle.storage import save_lattice
    from geoblanket.mechanism.lattice.kernel import slope
    from geoblanket.mechanism.lattice.making import Area, spec_over

    spec = spec_over(Area(*ROME), epsilon=EPSILON)
    save_lattice(path, spec, hold_mm=50_000, version=1, interval_s=30)
    used = float(slope(spec.rate)) * 10**6 / spec.plane.unit_mm / EPSILON
    return Path(path).stat().st_size, 1 - used


def opened(path: str, ledger: str, key: bytes) -> tuple[float, float]:
    """Open a device; return the seconds, and the megabytes that are resident then."""
    from geoblanket.release.device import Device

    start = time.perf_counter()
    with Device.open(path, ledger=ledger, device_key=key):
        seconds = time.perf_counter() - start
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
    return seconds, resident


def device_reports(path: str) -> float:
    """Return the median seconds of a report, budget in memory."""
    from geoblanket.release.budget import Budget
    from geoblanket.release.device import Device

    times = []
    with Device.open(path, ledger=None, budget=Budget(1e8, 86_400), replay=True) as device:
        for number in range(REPORTS):
            start = time.perf_counter()
            device.report(*INSIDE, 1.7e9 + 30 * number)
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def float_reports() -> float:
    """Return the median seconds of planar Laplace noise in floats, one report at a time."""
    rng = np.random.default_rng()
    times = []
    for _ in range(REPORTS):
        start = time.perf_counter()
        radius, angle = rng.gamma(2, 1 / EPSILON), rng.uniform(0, 2 * np.pi)
        _ = INSIDE[0] + radius * np.sin(angle) / 111.2, INSIDE[1] + radius * np.cos(angle) / 82.8
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def fleet_reports(path: str) -> float:
    """Return reports a second of a fleet, nothing counted."""
    from geoblanket.release.fleet import Fleet

    rng = np.random.default_rng(0)
    lat, lon = rng.uniform(41.8, 42.0, VEHICLES), rng.uniform(12.4, 12.6, VEHICLES)
    names = [str(number) for number in range(VEHICLES)]
    with Fleet.open(path, vehicles=names, ledger=None, replay=True) as fleet:
        which = np.arange(VEHICLES)
        fleet.report(which, lat, lon, 1.7e9)
        start = time.perf_counter()
        for slot in range(1, 11):
            fleet.report(which, lat, lon, 1.7e9 + 30 * slot)
        return 10 * VEHICLES / (time.perf_counter() - start)


def mean_error(path: str) -> float:
    """Return how much further than planar Laplace noise in floats reports go on average, as a share of it."""
    from geoblanket.mechanism.bundle.storage import LatticeBundle, load_bundle

    bundle = load_bundle(path)
    assert isinstance(bundle, LatticeBundle)
    lattice = bundle.lattice
    lat, lon = lattice.centers()
    rng = np.random.default_rng(1)
    errors = []
    for _ in range(20):
        truth = rng.uniform(41.75, 42.05), rng.uniform(12.3, 12.7)
        errors.append(float(haversine_m(*truth, lat, lon) @ (lattice.weights(*truth) / 2.0**62)))
    return float(np.mean(errors)) / (2000 / EPSILON) - 1


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        path, ledger, key = str(Path(folder) / "rome.bundle"), str(Path(folder) / "ledger"), b"k" * 32
        from geoblanket.release.budget import Budget
        from geoblanket.release.ledger import Ledger

        built = measure(made, path)
        size, share = built.result
        Ledger.create(ledger, budget=Budget(1e6, 86_400), device_key=key)
        first, again = measure(opened, path, ledger, key), measure(opened, path, ledger, key)
        report, peer = measure(device_reports, path), measure(float_reports)
        fleet, error = measure(fleet_reports, path), measure(mean_error, path)
        rows: list[tuple[Any, ...]] = [
            ("made and verified", f"{built.seconds:.1f} s", "–", f"{built.peak_mb:.0f} MB"),
            ("size of the file", f"{size:,} bytes", "–", "–"),
            ("ε that the cells take", f"{share:.2%}", "–", "–"),
            ("opened on a device, verified", f"{first.result[0]:.2f} s", "–", f"{first.result[1]:.0f} MB resident"),
            ("opened again", f"{again.result[0]:.2f} s", "–", f"{again.result[1]:.0f} MB resident"),
            (
                "Device.report, median",
                f"{1e6 * report.result:.0f} µs",
                f"{1e6 * peer.result:.1f} µs ({report.result / peer.result:.0f} ×)",
                f"{report.peak_mb:.0f} MB",
            ),
            ("Fleet.report, nothing counted", f"{fleet.result:,.0f} a second", "–", f"{fleet.peak_mb:.0f} MB"),
            ("mean error", f"{error.result:+.2%}", "floats: 0", f"{error.peak_mb:.0f} MB"),
        ]
    show(
        f"All of Rome, ε = {EPSILON:g} per km",
        ("work", "lattice", "planar Laplace in floats, NumPy", "peak memory"),
        rows,
    )


if __name__ == "__main__":
    main()
