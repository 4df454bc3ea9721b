"""A short run of every target, the same each time; `make fuzz` goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fuzz import engine
from tests.fuzz.engine import fuzz
from tests.fuzz.seeds import Seeds
from tests.fuzz.targets import TARGETS, Target

EXECUTIONS = 150


@pytest.mark.parametrize("name", TARGETS)
def test_no_changed_file_gives_anything_but_a_typed_error(tmp_path: Path, seeds: Seeds, name: str) -> None:
    outcome = fuzz(TARGETS[name], seeds, tmp_path, executions=EXECUTIONS, seconds=20, seed=1)
    assert outcome.finds == {}
    assert len(outcome.kinds) > 1


ROOT = Path(__file__).parents[2]
KEPT = sorted((Path(__file__).parent / "kept").iterdir())
"""Files that once ended a process, or gave an error without a type; their names begin with their target's."""


def test_what_once_did_harm_is_refused() -> None:
    """By an exception, not by a signal; in one process, which takes seconds to start."""
    command = [sys.executable, "-m", "tests.fuzz"]
    for path in KEPT:
        command += ["--target", path.name.rpartition("-")[0], "--replay", str(path)]
    replayed = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)
    assert replayed.returncode == 1
    assert replayed.stderr.count("\ngeoblanket.errors.InputError") == len(KEPT)


def _careless(path: Path, _: Seeds) -> None:
    """A reader with three faults."""
    text = path.read_bytes()
    if text.startswith(b"{"):
        return
    if len(text) % 7 == 0:
        time.sleep(60)
    text.decode("ascii")


def test_the_engine_finds_what_is_wrong(tmp_path: Path, seeds: Seeds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SECONDS_PER_EXECUTION", 0.01)
    target = Target("json", (), _careless, bodies=(b'{"a": 1}',))
    finds = fuzz(target, seeds, tmp_path, executions=400).finds
    assert {what.split(" at ")[0] for what in finds} == {"find: Hang", "find: UnicodeDecodeError"}
