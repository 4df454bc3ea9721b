"""A gateway that is killed in the middle of its work, again and again, and at last stops in order: its own process.

It forks, so that a gateway starts at once: all modules are loaded already. Devices and the server are elsewhere, and go
on meanwhile. Each gateway is killed after a random number of steps of its work: before a report, between the ledger and
the queue, or between the queue and the acknowledgement. Half of them stand still there until they are killed, so that
no step is too short to be hit. Standard output gets a line for each kill, and one when the last gateway runs; a line on
standard input stops that one.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client  # noqa: F401 - loaded for the children

from geoblanket.errors import LedgerError
from geoblanket.release.fleet import Fleet, FleetReports
from geoblanket.serve.gateway.config import GatewayConfig, read_config
from geoblanket.serve.gateway.messages import Position, Reason, Released, WantedFence
from geoblanket.serve.gateway.outbox import Outbox
from geoblanket.serve.gateway.running import run
from geoblanket.serve.gateway.worker import Done, ReleaseWorker
from geoblanket.serve.metrics import configure_logs

MOST_STEPS = 9
AFTERWARDS_S = 0.03
"""The longest time from the step to the kill."""
PATIENCE_S = 10.0
"""Then a gateway is killed in any case: positions may have run out."""


def plant(fault: str) -> None:
    """Break something on purpose: the checks must see it."""
    if fault == "no recovery":
        Fleet.accounts = property(lambda _self: {})  # type: ignore[method-assign, assignment]
    if fault == "early answer":
        submit = ReleaseWorker.submit

        def early(
            self: ReleaseWorker,
            content: Position | WantedFence | Reason,
            source: str,
            done: Done = print,
            *,
            wait_s: float = 0.0,
        ) -> bool:
            done("released")
            return submit(self, content, source, wait_s=wait_s)

        ReleaseWorker.submit = early  # type: ignore[method-assign]


def watch(steps: int, *, stand_still: bool, here: Callable[[], None]) -> None:
    """Call `here` at a step of the work, and stand still if asked to."""
    report, add, left = Fleet.report, Outbox.add, iter(range(steps - 1, -1, -1))

    def step() -> None:
        if next(left, None) == 0:
            here()
            if stand_still:
                threading.Event().wait()

    def reported(self: Fleet, *arguments: Any) -> FleetReports:
        step()
        return report(self, *arguments)

    def added(self: Outbox, messages: list[Released]) -> int:
        step()
        dropped = add(self, messages)
        step()
        return dropped

    Fleet.report, Outbox.add = reported, added  # type: ignore[method-assign, assignment]


def child(config: GatewayConfig, ready: Callable[[], None]) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    configure_logs(access=False)
    try:
        os._exit(0 if run(config, on_ready=lambda _url: ready()) else 3)
    except LedgerError as error:
        print(error, file=sys.stderr)  # noqa: T201
        os._exit(4)


def forked(config: GatewayConfig, steps: int = 0, *, stand_still: bool = False) -> tuple[int, int]:
    """Start a gateway; return its process, and a pipe that gets a byte at a step, or (0 steps) once it runs."""
    there, here = os.pipe()
    process = os.fork()
    if process == 0:
        try:

            def tell() -> None:
                os.write(here, b".")

            if steps:
                watch(steps, stand_still=stand_still, here=tell)
            child(config, (lambda: None) if steps else tell)
        finally:
            os._exit(2)
    os.close(here)
    return process, there


def main(path: Path, kills: int, fault: str, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - when to kill
    plant(fault)
    config = read_config(path)
    for _ in range(kills):
        process, there = forked(config, rng.randint(1, MOST_STEPS), stand_still=rng.random() < 0.5)
        # Some are killed as they start.
        select.select([there], [], [], rng.uniform(0, 0.2) if rng.random() < 0.2 else PATIENCE_S)
        time.sleep(rng.uniform(0, AFTERWARDS_S))
        os.kill(process, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(process, 0)[1]), "the gateway ended before it was killed"
        os.close(there)
        print("killed", flush=True)  # noqa: T201
    process, there = forked(config)
    assert os.read(there, 1) == b".", "the gateway did not start"
    print("running", flush=True)  # noqa: T201
    sys.stdin.readline()
    assert os.waitpid(process, os.WNOHANG) == (0, 0), "the gateway ended by itself"
    os.kill(process, signal.SIGTERM)
    status = os.waitpid(process, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 0
    print("stopped", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
