"""Work that must happen one piece after the other, in a thread of its own, for requests that come side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from geoblanket.service.limits import Limits
from geoblanket.service.refusals import OVERLOADED, Refused

__all__ = ["SingleThread"]

Result = TypeVar("Result")


class SingleThread:
    """A thread with a line in front of it.

    Parameters
    ----------
    name
        Of the thread.
    limits
        How many may wait, and how long.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        self._limits = limits
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting = 0

    def now(self, work: Callable[[], Result]) -> Result:
        """Do some work in the thread, and wait for it, however long the line is: to open and to close."""
        return self._thread.submit(work).result()

    async def do(self, work: Callable[[], Result]) -> Result:
        """Do some work in the thread.

        Raises
        ------
        Refused
            If too many wait, or this one waited too long. It may still be done.
        """
        if self._waiting >= self._limits.reports:
            raise Refused(OVERLOADED)
        self._waiting += 1
        done = asyncio.wrap_future(self._thread.submit(work))
        done.add_done_callback(self._done)
        try:
            return await asyncio.wait_for(asyncio.shield(done), self._limits.report_s)
        except TimeoutError:
            raise Refused(OVERLOADED) from None

    def close(self) -> None:
        """Finish what was begun."""
        self._thread.shutdown()

    def _done(self, done: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        if not done.cancelled():
            done.exception()  # looked at, or asyncio would log it where nobody waits any more
