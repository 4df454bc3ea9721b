"""What a mechanism costs to make, to ship and to use."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from geoblanket.build.rows import ZoneRows
from geoblanket.build.zone_task import peak_memory_mb
from geoblanket.mechanism.bundle.storage import BundledMechanism, stored_bytes
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mobility.histories import Steps

__all__ = ["bundle_bytes", "memory_since_reset_mb", "release_us", "reset_peak_memory"]

_RESET_PEAK = "5"
_REPORTS = 64


def bundle_bytes(mechanism: Mechanism, rows: ZoneRows) -> int:
    """Return what this mechanism takes in a file with all places, bytes; the header is some hundred more."""
    bundled = BundledMechanism.of(
        mechanism,
        zone="zone",
        regime="all day",
        history_weights=rows.history_weights,
        histories=rows.histories,
        output_places=rows.zone,
    )
    return stored_bytes([bundled], rows.places_e7)


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
