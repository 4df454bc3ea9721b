"""MQTT by paho-mqtt: true positions from a broker, and perturbed ones to another (or to other topics of the same).

In: the session is kept by the broker while the gateway is down. A message is acknowledged only once its position is
durable, whatever its outcome; the broker delivers the others again. Devices do not see these acknowledgements: theirs
come from the broker, at once. Out: QoS 1, and a message leaves the outbox when the broker has it.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from geoblanket.errors import MissingExtraError
from geoblanket.serve.gateway.config import MqttTable, UpstreamTable
from geoblanket.serve.gateway.messages import (
    AllowList,
    Dropped,
    Position,
    Reason,
    device_of_topic,
    owntracks_message,
    read_owntracks,
    topic_of,
)
from geoblanket.serve.gateway.outbox import Outbox
from geoblanket.serve.gateway.upstream import Upstream, client_context
from geoblanket.serve.gateway.worker import ReleaseWorker
from geoblanket.serve.metrics import GatewayMetrics, where

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

_log = logging.getLogger(__name__)

_SOURCE: Final = "mqtt"
_LARGEST: Final = 1 << 16
"""Bytes of a message; MQTT 5 brokers do not even send larger ones."""
_KEPT_S: Final = 7 * 86_400
"""How long a broker of MQTT 5 keeps the session of a gateway that is down."""
_KEEPALIVE_S: Final = 30
_RECONNECT_S: Final = (1, 30)
_WAIT_S: Final = 0.5
_QUIET_S: Final = 0.3
_ON_THE_WAY: Final = 200
"""Messages that were published and not acknowledged yet."""
_ARRIVING: Final = 512
"""Messages that a broker of MQTT 5 delivers before the first of them is acknowledged."""


def _client(table: MqttTable | UpstreamTable, *, manual_ack: bool) -> Client:
    """Return a client that is about to connect, and does so again whenever the connection is lost."""
    try:
        from paho.mqtt import client as paho
        from paho.mqtt.enums import CallbackAPIVersion
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties
    except ImportError:
        raise MissingExtraError("MQTT", "gateway") from None
    is_new = table.version == "5"
    client = paho.Client(
        CallbackAPIVersion.VERSION2,
        client_id=table.client_id,
        clean_session=None if is_new else not manual_ack,
        protocol=paho.MQTTv5 if is_new else paho.MQTTv311,
        manual_ack=manual_ack,
    )
    if table.username is not None:
        client.username_pw_set(table.username, table.password)
    secure = table.parts.scheme == "mqtts"
    if secure:
        client.tls_set_context(client_context(table.ca, table.certificate, table.private_key))
    client.reconnect_delay_set(*_RECONNECT_S)
    client.max_inflight_messages_set(_ON_THE_WAY)
    options: dict[str, Any] = {}
    if is_new:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.MaximumPacketSize = 2 * _LARGEST
        if manual_ack:
            properties.SessionExpiryInterval = _KEPT_S
            properties.ReceiveMaximum = _ARRIVING
        options = {"clean_start": not manual_ack, "properties": properties}
    port = table.parts.port or (8883 if secure else 1883)
    client.connect_async(table.parts.hostname or "", port, _KEEPALIVE_S, **options)
    return client


class MqttIn:
    """A subscription to what devices publish."""

    def __init__(self, table: MqttTable, worker: ReleaseWorker, *, allow: AllowList, metrics: GatewayMetrics) -> None:
        self._table, self._worker, self._allow, self._metrics = table, worker, allow, metrics
        self._stopping = False
        self._session = 0
        self.is_connected = False
        self._client = _client(table, manual_ack=True)
        self._client.on_connect = self._connected
        self._client.on_subscribe = self._subscribed
        self._client.on_disconnect = self._disconnected
        self._client.on_message = self._arrived

    def start(self) -> None:
        """Begin to listen."""
        self._client.loop_start()

    def stop(self) -> None:
        """Take nothing more; what is not acknowledged comes again at the next start."""
        self._stopping = True

    def close(self) -> None:
        """Leave the broker, after the last acknowledgements."""
        self._client.disconnect()
        self._client.loop_stop()

    def _connected(self, client: Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            _log.warning("The broker refuses the gateway as a listener (%s).", reason)
            return
        self._session += 1
        client.subscribe(f"{self._table.topic}/+/+", qos=1)

    def _subscribed(self, _client: Client, _data: Any, _mid: int, reasons: Any, _properties: Any) -> None:
        if any(reason.is_failure for reason in reasons):
            _log.warning("The broker does not let the gateway listen to positions (%s).", ", ".join(map(str, reasons)))
            return
        self.is_connected = True
        _log.info("Listening to the broker.")

    def _disconnected(self, _client: Client, _data: Any, _flags: Any, _reason: Any, _properties: Any) -> None:
        if self.is_connected and not self._stopping:
            _log.warning("The connection to the broker that devices publish to is lost; it is tried again.")
        self.is_connected = False

    def _arrived(self, client: Client, _data: Any, message: MQTTMessage) -> None:
        """Take a message; nothing may be raised here, or the connection's thread would end."""
        try:
            self._take(client, message)
        except Exception as error:
            _log.error("A message failed with %s at %s.", type(error).__name__, where(error.__traceback__))
            client.ack(message.mid, message.qos)

    def _take(self, client: Client, message: MQTTMessage) -> None:
        mid, qos, session = message.mid, message.qos, self._session

        def done(outcome: Reason | None) -> None:
            # A number of an earlier connection may mean another message by now.
            if outcome is not None and session == self._session:
                client.ack(mid, qos)

        content = self._read(message)
        while not self._stopping and not self._worker.failed:
            if self._worker.submit(content, _SOURCE, done, wait_s=_WAIT_S):
                return
            if qos == 0:
                self._metrics.count(_SOURCE, "overload")
                return

    def _read(self, message: MQTTMessage) -> Position | Reason:
        try:
            if message.retain:  # what was published before the gateway came, again at each start
                return "retained"
            if len(message.payload) > _LARGEST:
                return "too_large"
            device = device_of_topic(_topic(message), self._table.topic)
            return read_owntracks(bytes(message.payload), device, self._allow)
        except Dropped as dropped:
            return dropped.reason


def _topic(message: MQTTMessage) -> str:
    try:
        return message.topic
    except UnicodeDecodeError:
        raise Dropped("bad_name") from None


class MqttUpstream(Upstream):
    """Publishes the messages of the outbox."""

    def __init__(
        self, table: UpstreamTable, outbox: Outbox, names: Mapping[str, str], *, metrics: GatewayMetrics
    ) -> None:
        super().__init__(outbox, metrics)
        self._table, self._names = table, names
        self._acknowledged: queue.SimpleQueue[tuple[int, bool]] = queue.SimpleQueue()
        self._on_the_way: dict[int, int] = {}
        self._client = _client(table, manual_ack=False)
        self._client.on_connect = self._connected
        self._client.on_connect_fail = self._unreachable
        self._client.on_disconnect = self._disconnected
        self._client.on_publish = self._published
        self._thread = threading.Thread(target=self._run, name="upstream", daemon=True)

    def start(self) -> None:
        """Begin to publish."""
        self._client.loop_start()
        self._thread.start()

    def _end(self, seconds: float) -> None:
        del seconds  # the thread waits for nothing that takes long
        self._thread.join()
        self._client.disconnect()
        self._client.loop_stop()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            self._settle()
            room = _ON_THE_WAY - len(self._on_the_way) if self._is_up else 0
            messages = self._outbox.take(limit=room) if room else []
            for number, message in messages:
                name = self._names.get(message.device, message.device)
                payload = owntracks_message(message, name=name, accuracy_m=self._table.accuracy_m)
                topic = topic_of(name, self._table.topic)
                # paho keeps it until it is acknowledged, and publishes it again after a loss of the connection.
                self._on_the_way[self._client.publish(topic, payload, qos=1, retain=self._table.retain).mid] = number
            if not messages:
                self._pause()
            self._outbox.flush(quiet_s=_QUIET_S)
        self._settle()

    def _settle(self) -> None:
        """Remove what the broker has from the outbox. Only here, so that the number of each message is known."""
        arrived = []
        while not self._acknowledged.empty():
            mid, taken = self._acknowledged.get()
            arrived.append(self._on_the_way.pop(mid))
            (self._metrics.sent if taken else self._metrics.refused).inc()
        self._outbox.acknowledge(arrived)

    def _published(self, _client: Client, _data: Any, mid: int, reason: Any, _properties: Any) -> None:
        self._acknowledged.put((mid, not reason.is_failure))
        self._wake.set()

    def _connected(self, _client: Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._failed(f"refused: {reason}")
            return
        self._succeeded()
        self._wake.set()

    def _unreachable(self, _client: Client, _data: Any) -> None:
        self._failed("unreachable")

    def _disconnected(self, _client: Client, _data: Any, _flags: Any, _reason: Any, _properties: Any) -> None:
        if not self._stopping.is_set():
            self._failed("connection lost")
