"""kill −9 at random moments: no slot ever has two answers, and no answer is missing from the ledger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.release.lattices import save_small

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
ROOT = Path(__file__).parents[2]


def outcome(bundle: Path, folder: Path, kills: int, fault: str = "none") -> dict[str, int]:
    command = [sys.executable, "-m", "tests.release.kill_harness", str(bundle), str(folder), str(kills), fault, "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, int] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("kills", [40, pytest.param(1_000, marks=pytest.mark.slow)])
def test_no_double_answers_and_no_lost_spends(spread_path: Path, tmp_path: Path, kills: int) -> None:
    result = outcome(spread_path, tmp_path, kills)
    assert result["answers"] > kills  # most were waited for, and killed in the middle of their work
    assert (result["double"], result["lost"], result["unpaid"]) == (0, 0, 0)
    assert result["stored"] >= result["answers"]


def test_no_report_is_held_elsewhere_and_no_fence_is_lost(tmp_path: Path) -> None:
    bundle = save_small(tmp_path / "held.bundle", hold_m=50.0, cells=41)
    result = outcome(bundle, tmp_path, 30)
    assert (result["double"], result["lost"], result["unpaid"], result["wrongly held"]) == (0, 0, 0, 0)
    assert result["held"] > 20
    assert result["fences"] == 1


@pytest.mark.parametrize("fault", ["early", "forget"])
def test_planted_faults_are_caught(spread_path: Path, tmp_path: Path, fault: str) -> None:
    """An answer before its transaction, and answers that are not stored: another one follows, or none is found."""
    result = outcome(spread_path, tmp_path, 25, fault)
    assert result["double"] + result["lost"] > 0
