"""The service's log, on stderr: one line per event, and only the type and position of an error."""

from __future__ import annotations

import asyncio
import logging
import sys
from types import TracebackType
from typing import Any

from geoblanket.service.metrics import where

__all__ = ["configure_logs"]


class _NoValues(logging.Formatter):
    """Writes an exception without its message, which may hold what was sent, and without a traceback."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is logging's
        kind: type[BaseException] | None = ei[0]
        trace: TracebackType | None = ei[2]
        return f"{kind.__name__ if kind else 'error'} at {where(trace)}"

    def formatStack(self, stack_info: str) -> str:  # noqa: N802, ARG002 - the name is logging's
        return ""


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a record says more than that a request was still running when the service stopped."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def configure_logs(*, access: bool = False) -> None:
    """Send the logs of this process to stderr.

    Parameters
    ----------
    access
        Whether every request has a line.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_NoValues("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(_is_news)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("geoblanket").setLevel(logging.INFO)
    logging.getLogger("geoblanket.access").setLevel(logging.INFO if access else logging.WARNING)
