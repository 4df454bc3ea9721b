"""What the gateway counts. No label has a place, a device or anything that was sent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import get_args

from prometheus_client import Counter, Gauge, Histogram

from geoblanket.gateway.position import Reason
from geoblanket.service.metrics import RequestMetrics

__all__ = ["GatewayMetrics"]

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class GatewayMetrics(RequestMetrics):
    """The metrics of one gateway, in a registry of their own."""

    def __init__(self) -> None:
        super().__init__()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self._messages = counter(
            "geoblanket_gateway_messages", "Messages that came in, by outcome.", ["source", "outcome"]
        )
        self._outcomes = counter("geoblanket_gateway_outcomes", "The same, whatever the source.", ["outcome"])
        for reason in get_args(Reason):
            self._outcomes.labels(reason)
        self.durable_seconds = histogram(
            "geoblanket_gateway_durable_seconds",
            "Time from a message to its place in the ledger and the queue.",
            buckets=_BUCKETS,
        )
        self.batch = histogram(
            "geoblanket_gateway_batch_messages", "Messages that shared a transaction.", buckets=_SIZES
        )
        self.sent = counter("geoblanket_gateway_sent", "Messages that the server acknowledged.")
        self.retries = counter("geoblanket_gateway_retries", "Attempts to send that failed and are repeated.")
        self.refused = counter("geoblanket_gateway_refused", "Messages that the server refused for good.")
        self.dropped = counter("geoblanket_gateway_queue_dropped", "Messages dropped from a full queue.")
        self.recovered = counter(
            "geoblanket_gateway_recovered", "Positions that were in the ledger but not in the queue at the start."
        )
        self.upstream = gauge("geoblanket_gateway_upstream_up", "Whether the last attempt to reach the server worked.")
        self._waiting = gauge("geoblanket_gateway_queue", "Messages that are due and wait for the server.")
        self._devices = gauge("geoblanket_gateway_devices", "Devices that are known.")

    def count(self, source: str, outcome: Reason) -> None:
        """Count a message."""
        self._messages.labels(source, outcome).inc()
        self._outcomes.labels(outcome).inc()

    def watch(self, *, waiting: Callable[[], int], devices: Callable[[], int]) -> None:
        """Ask for numbers whenever they are looked at."""
        self._waiting.set_function(waiting)
        self._devices.set_function(devices)
