"""What a mechanism costs to make, to ship and to use."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from geoblanket.build.rows import ZoneRows
from geoblanket.build.zone_task import peak_memory_mb
from geoblanket.mechanism.bundle import BundledMechanism, save_bundle
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mobility.histories import Steps

__all__ = ["bundle_bytes", "memory_since_reset_mb", "release_us", "reset_peak_memory"]

_RESET_PEAK = "5"
_REPORTS = 64


def bundle_bytes(mechanism: Mechanism, rows: ZoneRows, *, snapping_radius_m: float) -> int:
    """Return the size of the file that a device would need for this mechanism alone, bytes."""
    bundled = BundledMechanism.of(
        mechanism,
        zone="zone",
        regime="all day",
        history_weights=rows.history_weights,
        histories=rows.histories,
        output_places=rows.zone,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.bundle"
        save_bundle(
            path,
            [bundled],
            version=1,
            snapping_radius_mm=int(snapping_radius_m * 1000) + 1,
            places_e7=rows.places_e7,
        )
        return path.stat().st_size


def release_us(mechanism: Mechanism, rows: ZoneRows, steps: Steps) -> float | None:
    """Return the median time of one report, from a history to a place drawn exactly, microseconds; None without steps.

    The durable note of what was spent, which a device writes before it reports, is not part of it.
    """
    times = []
    for history in steps.histories[:_REPORTS]:
        started = time.perf_counter_ns()
        mechanism.sample(int(rows.row_of(history[None])[0]))
        times.append((time.perf_counter_ns() - started) / 1000)
    return statistics.median(times) if times else None


def reset_peak_memory() -> None:
    """Forget the largest memory of this process so far, where the system can (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
    except OSError:
        return


def memory_since_reset_mb() -> float:
    """Return the largest memory of this process since `reset_peak_memory`, or since its start elsewhere, megabytes."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return peak_memory_mb()
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return round(int(lines["VmHWM"].split()[0]) * 1024 / 1e6, 1)
