"""Files made to exhaust whoever verifies them: verified within four times their size and 200 MB, or refused at once."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoblanket._arrayfile import write_arrays
from geoblanket.errors import InputError, MechanismError
from geoblanket.mechanism import load_bundle, verifier
from geoblanket.mechanism.bundle import domain
from geoblanket.mechanism.bundle.domain import domain_hash
from geoblanket.mechanism.bundle.header import MechanismHeader, ZoneHeader
from geoblanket.mechanism.exponential_bounds import bounds_for
from geoblanket.mechanism.promise import DISCLOSED
from tests.mechanism.bundles import MAGIC

Arrays = dict[str, np.ndarray[Any, Any]]

ONE = 2**62
GENEROUS_MB = 200
READ = """
import resource, sys
from geoblanket.mechanism.bundle.storage import load_bundle, load_for_release
from geoblanket.errors import GeoblanketError
try:
    (load_for_release if sys.argv[2] == "device" else load_bundle)(sys.argv[1])
    print("accepted", end=" ")
except GeoblanketError as error:
    print(type(error).__name__, end=" ")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def constant_rows(
    path: Path,
    *,
    rows: int,
    columns: int,
    histories: np.ndarray[Any, Any],
    history_rows: np.ndarray[Any, Any],
    places: int,
    weights: tuple[int, ...] = (),
    distance_mm: int = 0,
) -> Path:
    """A bundle whose rows are all the same, so that only distances and sizes matter."""
    row = np.full(columns, ONE // columns, np.int64)
    row[0] += ONE - row.sum()
    described = (
        MechanismHeader(
            zone="a",
            regime="day",
            rows=rows,
            outputs=columns,
            columns=columns,
            epsilon_micro=10**6,
            eta_mm=2**63 - 2,
            history_weights_micro=weights,
            histories=len(histories),
        ),
    )
    spread = np.random.default_rng(0).integers(0, 10_000_000, (places, 2)) + np.array([400_000_000, 0])
    arrays: Arrays = {
        "places_e7": spread.astype("<i4"),
        "distances_mm": np.full(rows * (rows - 1) // 2, distance_mm, "<u4"),
        "weights": np.tile(row, rows),
        "outputs": np.arange(columns, dtype="<i4"),
        "histories": histories.ravel().astype("<i4"),
        "history_rows": history_rows.astype("<i4"),
        "output_places": np.zeros(columns, "<i4"),
    }
    header = ZoneHeader(
        version=1,
        domain=domain_hash(described, arrays),
        disclosed=DISCLOSED,
        snapping_radius_mm=0,
        clock=None,
        mechanisms=described,
    )
    write_arrays(path, magic=MAGIC, fields=header.as_fields(), arrays=arrays)
    return path


def many_pasts(path: Path) -> Path:
    """A present place with as many pasts as a file may list, all of one row."""
    count = 1 << 14
    histories = np.column_stack([np.zeros(count, int), np.arange(count)])
    return constant_rows(
        path, rows=1, columns=1, histories=histories, history_rows=np.zeros(count, int), places=count,
        weights=(10**6,),
    )  # fmt: skip


def many_presents(path: Path) -> Path:
    """As many present places, each with one past."""
    count = 1 << 14
    histories = np.column_stack([np.arange(count), np.arange(count)])
    return constant_rows(
        path, rows=1, columns=1, histories=histories, history_rows=np.zeros(count, int), places=count,
        weights=(10**6,),
    )  # fmt: skip


def many_rows(path: Path) -> Path:
    """As many rows as a file may have."""
    return constant_rows(
        path, rows=5000, columns=1, histories=np.arange(5000)[:, None], history_rows=np.arange(5000), places=5000
    )


def many_columns(path: Path) -> Path:
    """As many outputs as a file may use."""
    return constant_rows(
        path, rows=400, columns=1 << 16, histories=np.arange(400)[:, None], history_rows=np.arange(400), places=400
    )


def many_places(path: Path) -> Path:
    """A million places in no zone."""
    return constant_rows(
        path, rows=1, columns=1, histories=np.arange(4)[:, None], history_rows=np.zeros(4, int), places=1_000_000
    )


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["device", "all"])
@pytest.mark.parametrize("make", [many_pasts, many_presents, many_rows, many_columns, many_places])
def test_memory_is_bounded_by_the_size_of_the_file(make: Callable[[Path], Path], reader: str, tmp_path: Path) -> None:
    path = make(tmp_path / "a.bundle")
    done = subprocess.run(
        [sys.executable, "-c", READ, path, reader], capture_output=True, text=True, check=True, timeout=300
    )
    verdict, kilobytes = done.stdout.split()
    assert verdict in {"accepted", "InputError"}
    assert int(kilobytes) / 1000 <= 4 * path.stat().st_size / 1e6 + GENEROUS_MB


@pytest.mark.parametrize("make", [many_presents, many_places])
def test_what_would_take_too_long_is_refused_beforehand(
    make: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(domain, "_LARGEST_WORK", 10**8)
    path = make(tmp_path / "a.bundle")
    started = time.process_time()
    with pytest.raises(InputError, match=r"to verify it would take about .* steps, more than the 1\.0e\+08"):
        load_bundle(path)
    assert time.process_time() - started < 20


def test_a_rule_that_tells_too_many_places_apart_is_refused(tmp_path: Path) -> None:
    """Its cells would not fit into memory: 2,000 present places, each with a past of its own to tell apart."""
    now = np.repeat(np.arange(2000), 2)
    histories = np.column_stack([now, np.tile([0, 1], 2000)])
    path = constant_rows(
        tmp_path / "a.bundle", rows=1, columns=1, histories=histories, history_rows=np.zeros(4000, int), places=4000,
        weights=(10**6,),
    )  # fmt: skip
    with pytest.raises(InputError, match="tells 8,000,000 earlier places apart"):
        load_bundle(path)


def test_inequalities_that_floats_cannot_decide_are_not_decided_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    distance_mm = 10**6 * (1 - np.eye(12, dtype=np.int64))
    # At the very edge of the bound in all pairs: twelve outputs, each the favourite of one row.
    other = (ONE << 96) // (bounds_for(10**6).lower(10**6) + (11 << 96)) + 1
    weights = np.full((12, 12), other, np.int64)
    np.fill_diagonal(weights, ONE - 11 * other)
    certificate = verifier.verify(weights, distance_mm=distance_mm, epsilon_micro=10**6, eta_mm=10**7)
    assert certificate.exact_checks > 100
    monkeypatch.setattr(verifier, "_MOST_EXACT_CHECKS", 100)
    with pytest.raises(MechanismError, match="too close for floats"):
        verifier.verify(weights, distance_mm=distance_mm, epsilon_micro=10**6, eta_mm=10**7)


def test_the_same_file_is_made_each_time(tmp_path: Path) -> None:
    first, second = (many_places(tmp_path / name).read_bytes() for name in "ab")
    assert hashlib.sha256(first).digest() == hashlib.sha256(second).digest()
