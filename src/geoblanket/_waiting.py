"""Long work in native code, during which Ctrl-C and SIGTERM must still end the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["run_within"]

Result = TypeVar("Result")


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
