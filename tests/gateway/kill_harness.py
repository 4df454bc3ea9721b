"""A gateway that is killed at random moments, again and again, and at last stops in order; a process of its own.

It forks, so that a gateway starts at once: all modules are loaded already. Devices and the server are elsewhere, and go
on meanwhile. Standard output gets a line for each kill; a line on standard input ends the killing.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time
from pathlib import Path

import paho.mqtt.client  # noqa: F401 - loaded for the children

from geoblanket.errors import LedgerError
from geoblanket.gateway.config import GatewayConfig, read_config
from geoblanket.gateway.desk import Desk, Done
from geoblanket.gateway.outbox import Outbox
from geoblanket.gateway.position import Position, Released
from geoblanket.gateway.running import run
from geoblanket.release.fleet import Fleet
from geoblanket.service.logs import configure_logs

LONGEST_S = 0.4


def plant(fault: str) -> None:
    """Break something on purpose: the checks must see it."""
    if fault == "no recovery":
        add = Outbox.add

        def slow(self: Outbox, messages: list[Released]) -> int:
            time.sleep(0.05)  # by itself the gap between the ledger and the queue is short
            return add(self, messages)

        Outbox.add = slow  # type: ignore[method-assign, assignment]
        Fleet.accounts = property(lambda _self: {})  # type: ignore[method-assign, assignment]
    if fault == "early answer":
        submit = Desk.submit

        def early(self: Desk, position: Position, source: str, done: Done, *, wait_s: float = 0.0) -> bool:
            done("released")
            return submit(self, position, source, lambda _outcome: None, wait_s=wait_s)

        Desk.submit = early  # type: ignore[method-assign]


def child(config: GatewayConfig) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    configure_logs(access=False)
    try:
        os._exit(0 if run(config) else 3)
    except LedgerError as error:
        print(error, file=sys.stderr)  # noqa: T201
        os._exit(4)


def forked(config: GatewayConfig) -> int:
    process = os.fork()
    if process == 0:
        try:
            child(config)
        finally:
            os._exit(2)
    return process


def main(path: Path, kills: int, fault: str, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - when to kill
    plant(fault)
    config = read_config(path)
    for _ in range(kills):
        process = forked(config)
        time.sleep(rng.uniform(0, LONGEST_S))
        os.kill(process, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(process, 0)[1]), "the gateway ended before it was killed"
        print("killed", flush=True)  # noqa: T201
    process = forked(config)
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        assert os.waitpid(process, os.WNOHANG) == (0, 0), "the gateway ended by itself"
    os.kill(process, signal.SIGTERM)
    status = os.waitpid(process, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 0
    print("stopped", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
