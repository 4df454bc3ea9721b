"""Long work in native code, during which Ctrl-C and SIGTERM must still end the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from geoblanket.errors import InputError

__all__ = ["run_within", "seconds_allowed", "too_slow"]

_LEAST_SECONDS: Final = 60.0
_SECONDS_PER_MIB: Final = 10.0
"""Reading a map takes about 0.02 seconds a MiB, and up to 1 where it is nothing but roads."""

Result = TypeVar("Result")


def seconds_allowed(size_bytes: int) -> float:
    """Return how long reading a file may take that has so many bytes when it is unpacked."""
    return _LEAST_SECONDS + _SECONDS_PER_MIB * size_bytes / (1 << 20)


def too_slow(path: Path, size_bytes: int) -> InputError:
    """Return the error for a file that takes longer."""
    return InputError(
        f"could not be read within {seconds_allowed(size_bytes):.0f} seconds, the time allowed for its size",
        path=path,
        hint="Give a smaller map, or read it on a machine that has less to do",
    )


def run_within(seconds: float, function: Callable[[], Result]) -> Result:
    """Return what `function` returns, which must take no longer than some seconds.

    It runs in a thread of its own while this one waits: Python hands signals to the main thread, which must not be
    inside native code for minutes. Work that is given up goes on in the background, but keeps no process alive.

    Raises
    ------
    TimeoutError
        If it takes longer.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError
    if errors:
        raise errors[0]
    return results[0]
