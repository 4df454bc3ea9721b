from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from geoblanket._untrusted import run_within


def test_what_the_work_returns_or_raises_arrives() -> None:
    assert run_within(10, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        run_within(10, lambda: 1 // 0)


def test_work_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        run_within(0.05, lambda: time.sleep(20))


def test_a_signal_is_heard_at_once() -> None:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_within(60, lambda: time.sleep(20))
    assert time.monotonic() - begin < 5
