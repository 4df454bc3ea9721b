"""The loop: change a file, read it, keep what is new, report what is wrong."""

from __future__ import annotations

import random
import re
import resource
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from geoblanket.errors import GeoblanketError
from tests.fuzz.seeds import Seeds
from tests.fuzz.targets import Target

SECONDS_PER_EXECUTION = 10.0
MIB_PER_EXECUTION = 1024
"""How far the memory of a process may grow; seeds have a few KiB."""
_LARGEST_CORPUS = 300
_LARGEST_FILE = 1 << 20


class Hang(BaseException):
    """An execution took too long. Not an Exception, so that no reader swallows it."""


@dataclass
class Outcome:
    """What a run of a target did."""

    executions: int = 0
    accepted: int = 0
    """Changed files that were read without an error."""
    kinds: set[str] = field(default_factory=set)
    """Different errors, without their numbers."""
    finds: dict[str, bytes] = field(default_factory=dict)
    """A file for each different thing that went wrong, by a text of what."""
    seconds: float = 0.0


def fuzz(
    target: Target, seeds: Seeds, folder: Path, *, executions: int, seconds: float = float("inf"), seed: int = 0
) -> Outcome:
    """Run a target; the same seed gives the same files as long as the reader is the same.

    Parameters
    ----------
    folder
        For the file that is read: after a crash of the process, it is still there.
    """
    rng = random.Random(seed)  # noqa: S311 - files, no secrets
    originals = [*(seeds.read(name) for name in target.files), *target.bodies]
    corpus = list(originals)
    path = folder / f"input.{target.ending}"
    outcome, begin = Outcome(), time.monotonic()
    for original in originals:
        path.write_bytes(original)
        target.run(path, seeds)
    memory = _peak_mib()
    while outcome.executions < executions and time.monotonic() - begin < seconds:
        data = rng.choice(target.mutations)(_parent(originals, corpus, rng), rng)[:_LARGEST_FILE]
        path.write_bytes(data)
        what = _execute(target, path, seeds, outcome)
        outcome.executions += 1
        if _peak_mib() > memory + MIB_PER_EXECUTION:
            what, memory = f"memory grew to {_peak_mib():.0f} MiB", _peak_mib()
            outcome.finds.setdefault("memory grew", data)
        elif what.startswith("find: "):
            outcome.finds.setdefault(what, data)
        if what not in outcome.kinds:
            outcome.kinds.add(what)
            if len(corpus) < _LARGEST_CORPUS:
                corpus.append(data)
    outcome.seconds = time.monotonic() - begin
    return outcome


def _parent(originals: list[bytes], corpus: list[bytes], rng: random.Random) -> bytes:
    return rng.choice(originals if rng.random() < 0.5 else corpus)


def _execute(target: Target, path: Path, seeds: Seeds, outcome: Outcome) -> str:
    """Read the file; return what came of it, in words without numbers."""
    try:
        with _deadline(SECONDS_PER_EXECUTION):
            target.run(path, seeds)
    except GeoblanketError as error:
        return _words(error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if target.value_errors and type(error) is ValueError:
            return _words(error)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"find: {type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
    outcome.accepted += 1
    return "accepted"


def _words(error: Exception) -> str:
    return re.sub(r"'[^']*'|[0-9a-f]{8,}|\d+", "#", f"{type(error).__name__}: {error}")[:200]


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    def ring(_: int, __: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
