"""A gateway from start to stop: ledger, outbox, worker, and everything that brings positions and takes them away."""

from __future__ import annotations

import contextlib
import logging
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from geoblanket._files import sync_to_disk
from geoblanket.errors import LedgerError, ParameterError
from geoblanket.mechanism.bundle.policy import DEFAULT_POLICY, Policy
from geoblanket.mechanism.bundle.trust import Trust
from geoblanket.release.budget import Budget
from geoblanket.release.device_key import read_key_file
from geoblanket.release.fence import Fences, read_fences
from geoblanket.release.fleet import Fleet
from geoblanket.release.ledger import Ledger
from geoblanket.release.reporter import Kind
from geoblanket.serve.gateway.config import GatewayConfig, HttpTable
from geoblanket.serve.gateway.messages import AllowList, Dropped, Position, Reason, read_line
from geoblanket.serve.gateway.outbox import JITTER_S, OFFSET_S, Outbox, Schedule
from geoblanket.serve.gateway.upstream import HttpSender, LineSender, SenderUpstream, Upstream
from geoblanket.serve.gateway.worker import TOLERANCE_MARGIN_S, Enrolment, ReleaseWorker, open_outbox
from geoblanket.serve.metrics import GatewayMetrics, where

if TYPE_CHECKING:
    from geoblanket.serve.gateway.mqtt import MqttIn

_log = logging.getLogger(__name__)

_LARGEST_LINE: Final = 4096
_LINE_WAIT_S: Final = 0.5
_LINES: Final = "lines"
_BUDGETS: Final = "budgets"
_UNFINISHED: Final = ".unfinished-"
_LEDGER: Final = "devices.ledger"
_OUTBOX: Final = "outbox.sqlite"
_STOP_S: Final = 3.0
_LOOK_S: Final = 0.5


class LinesIn:
    """A thread that reads lines.

    Parameters
    ----------
    stream
        What is read.
    on_end
        Called at the end of it, once everything that was read was handed over.
    """

    def __init__(
        self,
        stream: BinaryIO,
        worker: ReleaseWorker,
        *,
        allow: AllowList,
        metrics: GatewayMetrics,
        on_end: Callable[[], None],
    ) -> None:
        self._stream, self._worker, self._allow, self._metrics, self._on_end = stream, worker, allow, metrics, on_end
        # A daemon: a read cannot be interrupted, and the end of the gateway does not wait for it.
        self._thread = threading.Thread(target=self._run, name="lines", daemon=True)
        self._stopping = False

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Hand nothing over any more."""
        self._stopping = True

    def _run(self) -> None:
        try:
            while not self._stopping and (line := self._stream.readline(_LARGEST_LINE + 1)):
                if not line.endswith(b"\n") and len(line) > _LARGEST_LINE:
                    while (part := self._stream.readline(_LARGEST_LINE)) and not part.endswith(b"\n"):
                        pass
                    self._metrics.count(_LINES, "too_large")
                elif line.strip():
                    self._take(line)
        except (OSError, ValueError) as error:
            _log.error("Standard input cannot be read (%s at %s).", type(error).__name__, where(error.__traceback__))
        self._on_end()

    def _take(self, line: bytes) -> None:
        try:
            content: Position | Reason = read_line(line, self._allow)
        except Dropped as dropped:
            content = dropped.reason
        while not self._stopping and not self._worker.failed:
            if self._worker.submit(content, _LINES, wait_s=_LINE_WAIT_S):
                return


class Gateway:
    """Everything but the HTTP server.

    Parameters
    ----------
    config
        All about it.
    enrol
        Whether devices get an account at first sight, whatever the configuration says.
    policy
        The least that the bundle must promise.
    on_end
        Called when the gateway cannot go on, or at the end of standard input.
    clock
        Returns seconds since 1970: when messages are due.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        enrol: bool = False,
        policy: Policy = DEFAULT_POLICY,
        on_end: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._config, self._on_end = config, on_end
        self.metrics = GatewayMetrics()
        self._lines: LinesIn | None = None
        self._mqtt: MqttIn | None = None
        allow = config.messages.allow_list()
        with contextlib.ExitStack() as opened:
            fleet = opened.enter_context(_open_fleet(config, policy))
            _add_fences(fleet, config)
            path = config.state / _OUTBOX
            schedule = Schedule(fleet.interval_ms, at_once=config.upstream.send == "at-once", clock=clock)
            self.outbox = open_outbox(
                path, fleet, capacity=config.upstream.queue, metrics=self.metrics, schedule=schedule
            )
            opened.callback(self.outbox.close)
            self._upstream = _make_upstream(config, self.outbox, self.metrics, fleet.kind)
            self.worker = ReleaseWorker(
                fleet,
                self.outbox,
                enrolment=_enrolment(config, enrol=enrol),
                tolerance_s=config.clock_tolerance_s,
                metrics=self.metrics,
                on_failure=on_end,
            )
            opened.callback(self.worker.close)
            self.metrics.watch(waiting=lambda: self.outbox.overdue, devices=lambda: self.worker.devices)
            if config.lines is not None:
                self._lines = LinesIn(
                    sys.stdin.buffer, self.worker, allow=allow, metrics=self.metrics, on_end=self._end_of_lines
                )
            if config.mqtt is not None:
                from geoblanket.serve.gateway.mqtt import MqttIn

                self._mqtt = MqttIn(config.mqtt, self.worker, allow=allow, metrics=self.metrics)
            opened.pop_all()  # all is well: `stop` closes them
        if schedule.at_once:
            _log.warning(
                'With send = "at-once" the server hears of positions as they come: it learns their true times.'
            )
        else:
            _log.info(
                "Positions leave %d to %d s after the end of their slot of %g s.",
                OFFSET_S, OFFSET_S + JITTER_S, schedule.interval_ms / 1000,
            )  # fmt: skip

    def start(self) -> None:
        """Begin to take positions and to send."""
        self._upstream.start()
        if self._mqtt is not None:
            self._mqtt.start()
        if self._lines is not None:
            self._lines.start()

    def finish(self) -> None:
        """Take nothing more, and wait until everything that was taken is due."""
        self.worker.close()
        while not self.worker.failed and (seconds := self.outbox.seconds_to("last")) is not None:
            time.sleep(min(seconds, _LOOK_S))  # the clock may be set meanwhile

    def stop(self) -> None:
        """Take nothing more, finish what was begun, send what is due for some seconds, and close ledger and outbox.

        What is not due yet is sent by the next run.
        """
        for source in (self._lines, self._mqtt):
            if source is not None:
                source.stop()
        self.worker.close()
        if self._mqtt is not None:
            self._mqtt.close()
        try:
            self._upstream.stop(_STOP_S)
            self.outbox.close()
        except LedgerError as error:
            _log.error("%s", error)

    def health(self) -> dict[str, Any]:
        """Return what `/health` tells."""
        status = {"status": "failed" if self.worker.failed else "ok", "queue": self.outbox.overdue}
        if self._mqtt is not None:
            status["broker"] = "connected" if self._mqtt.is_connected else "lost"
        return status

    def _end_of_lines(self) -> None:
        if self._config.http is None and self._config.mqtt is None:
            self._on_end()


def run(
    config: GatewayConfig,
    *,
    enrol: bool = False,
    policy: Policy = DEFAULT_POLICY,
    on_ready: Callable[[str | None], None] = lambda _url: None,
) -> bool:
    """Run a gateway until SIGTERM, Ctrl-C, the end of its lines, or a failure; return False after a failure.

    Parameters
    ----------
    on_ready
        Called, with the address of the HTTP server if there is one, once positions are taken.
    """
    ended = threading.Event()
    if config.http is not None:
        return _run_with_http(config, config.http, enrol=enrol, policy=policy, on_ready=on_ready)
    gateway = Gateway(config, enrol=enrol, policy=policy, on_end=ended.set)
    try:
        gateway.start()
        on_ready(None)
        ended.wait()
        gateway.finish()
    except KeyboardInterrupt:
        pass  # Ctrl-C, or SIGTERM: the command line makes them the same
    finally:
        gateway.stop()
    return not gateway.worker.failed


def _run_with_http(
    config: GatewayConfig,
    table: HttpTable,
    *,
    enrol: bool,
    policy: Policy,
    on_ready: Callable[[str | None], None],
) -> bool:
    from geoblanket.serve.gateway.http_in import HTTP_LIMITS, Accounts, create_app
    from geoblanket.serve.limits import LOOPBACK_NAMES
    from geoblanket.serve.server import is_loopback, listen, make_server, url_of

    names = frozenset(name.lower() for name in table.host_names)
    tokens = {device: known.token for device, known in config.devices.items() if known.token is not None}
    with listen(table.host, table.port) as listener:
        url = url_of(listener, encrypted=table.tls is not None)

        def end() -> None:
            server.should_exit = True

        gateway = Gateway(config, enrol=enrol, policy=policy, on_end=end)
        app = create_app(
            gateway.worker,
            accounts=Accounts(tokens, table.token, anyone=table.without_tokens),
            allow=config.messages.allow_list(),
            metrics=gateway.metrics,
            hosts=names | LOOPBACK_NAMES if names or is_loopback(table.host) else None,
            healthy=gateway.health,
        )
        server = make_server(app, limits=HTTP_LIMITS, on_ready=partial(on_ready, url), tls=table.tls)
        try:
            gateway.start()
            server.run(sockets=[listener])
        finally:
            gateway.stop()
    return not gateway.worker.failed


def _open_fleet(config: GatewayConfig, policy: Policy) -> Fleet:
    """Open the ledger, which is made at the first start only, and the bundle."""
    key = None if config.device_key is None else read_key_file(config.device_key)
    ledger = config.state / _BUDGETS / _LEDGER
    if not ledger.parent.exists():
        if (config.state / _OUTBOX).exists():
            raise LedgerError(
                f"{ledger}: is missing, and there is a queue that knows it. What was spent is not known, so nothing is "
                "released. Put the ledger back."
            )
        _make_ledger(ledger, config.budget.made(), key)
    return Fleet.open(
        config.bundle,
        vehicles=(),
        ledger=ledger,
        budget=config.budget.made(),
        device_key=key,
        trust=Trust(public_key=config.public_key),
        policy=policy,
        clock_tolerance_s=config.clock_tolerance_s + TOLERANCE_MARGIN_S,
    )


def _add_fences(fleet: Fleet, config: GatewayConfig) -> None:
    """Keep the fences of the operator's files with the ledger: all of them, or none."""
    wanted = dict[str, Fences]()
    for device, table in config.devices.items():
        if table.fences is not None:
            try:
                wanted[device] = fleet.fences_of(device).with_all(read_fences(table.fences))
            except ParameterError as error:
                raise ParameterError(f"{table.fences} cannot be used for the device '{device}': {error}") from None
    for device, fences in wanted.items():
        if fences != fleet.fences_of(device):
            fleet.set_fences(device, fences)


def _make_ledger(path: Path, budget: Budget, key: bytes | None) -> None:
    """Make a ledger and its counter in a new folder, wholly or not at all, whenever the process is killed."""
    state = path.parent.parent
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in state.glob(f"{_UNFINISHED}*"):  # never used: its process was killed
            shutil.rmtree(left)
        unfinished = state / f"{_UNFINISHED}{secrets.token_hex(6)}"
        unfinished.mkdir(mode=0o700)
        Ledger.create(unfinished / path.name, budget=budget, device_key=key)
        for file in unfinished.iterdir():
            sync_to_disk(file)
        sync_to_disk(unfinished)
        unfinished.rename(path.parent)
        sync_to_disk(state)
    except OSError as error:
        raise LedgerError(f"{path}: cannot be made ({error.strerror or error}).") from None


def _enrolment(config: GatewayConfig, *, enrol: bool) -> Enrolment:
    return Enrolment(
        names=frozenset(config.devices),
        refused=frozenset(name for name, table in config.devices.items() if table.refuse),
        anyone=enrol or config.enrol,
        most=config.most_devices,
    )


def _make_upstream(config: GatewayConfig, outbox: Outbox, metrics: GatewayMetrics, kind: Kind) -> Upstream:
    table, names = config.upstream, config.names_upstream
    if table.protocol == "owntracks-mqtt":
        from geoblanket.serve.gateway.mqtt import MqttUpstream

        return MqttUpstream(table, outbox, names, metrics=metrics)
    if table.protocol == "lines":
        sender = LineSender(sys.stdout.buffer, names, kind=kind, accuracy_m=table.accuracy_m)
        return SenderUpstream(outbox, lambda: sender, connections=1, metrics=metrics)
    return SenderUpstream(outbox, lambda: HttpSender(table, names), connections=table.connections, metrics=metrics)
